"""Find out which changes of the code no test notices.

    python tools/mutants attncalc/cost attncalc/attention/span.py    all mutants of files and packages
    python tools/mutants attncalc/engines --sample 300 --seed 1      300 at random, in every file its share
    python tools/mutants --changed main                              of the files that differ from a branch
    python tools/mutants attncalc/cost --survivors                   only those that survived the last time
    python tools/mutants attncalc/cost --report                      print the last results, run nothing

A mutant is one small change that an operator of cosmic-ray makes: `<` becomes `<=`, 2 becomes 3, a condition is
negated. Tests that reach the changed line run against it. If one fails, the mutant is killed; a mutant that survives
is a test that is missing, or code that has no effect.

Not changed: docstrings and other strings, type annotations, `if TYPE_CHECKING`, decorators that change only the speed
(a cache) or what a type checker says, and pairs of operators that the table in mutations.py leaves out. A change that
Python compiles to the same code as another is counted once. A test that does not end in 20 times its time kills too.

Which tests reach a line is recorded in .mutants/ on the first run (20 minutes); later runs record the test files that
have changed. `verify`, the fuzzers and tests of the packaging are left out: they need torch or another process.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from at_import import ImportTime
from forks import EXAMPLES, Outcome, Work, removes_decorator, run_imported, run_swapped
from mutations import Mutant, mutants
from reach import Reach
from results import Results
from swap import only_in_functions

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".mutants"
LEFT_OUT = re.compile(
    r"test_(verify|against|record|recurrent|fuzz|mutants|packaging|words|architecture|extra_kernels|simulated|docs)"
)
"""Test files that need torch, another process or minutes."""
RECORDED_AT_ONCE = 8
"""Test files per process that records: if it is stopped, the records of earlier ones stay."""


def main() -> int:
    """Return 0 if every mutant was killed or is accepted, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", help="files or packages of attncalc")
    parser.add_argument("--changed", metavar="BRANCH", help="the files that differ from this branch")
    parser.add_argument("--sample", type=int, help="how many mutants of each package to run, at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=10, help="seconds of tests per mutant (default 10)")
    parser.add_argument("--thorough", action="store_true", help="120 seconds of tests, and all examples of Hypothesis")
    parser.add_argument("--line", type=int, action="append", help="only mutants of this line")
    parser.add_argument("--survivors", action="store_true", help="run only those that survived the last time")
    parser.add_argument("--report", action="store_true", help="print the last results")
    parser.add_argument("--again", action="store_true", help="run mutants that have a result, too")
    parser.add_argument("--as-recorded", action="store_true", help="do not record test files that changed")
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    os.chdir(ROOT)
    if options.thorough:
        options.budget, EXAMPLES[0] = 120, 80
    os.environ["OMP_NUM_THREADS"] = "1"  # a fork has none of torch's threads
    FOLDER.mkdir(exist_ok=True)
    chosen = _sample(_mutants(_files(options)), options.sample, options.seed)
    if options.line:
        chosen = [mutant for mutant in chosen if mutant.line in options.line]
    results = Results(FOLDER / "results.jsonl", ROOT)
    if not options.report:
        todo = [m for m in chosen if results.wanted(m, survivors=options.survivors, again=options.again)]
        _say(f"{len(todo):,} of {len(chosen):,} mutants to run")
        _run(todo, options.budget, results, record=not options.as_recorded)
    return results.report(chosen)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _files(options: argparse.Namespace) -> list[Path]:
    paths = [Path(path).resolve() for path in options.paths]
    if options.changed:
        command = ["git", "diff", "--name-only", "--diff-filter=d", options.changed]
        names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        paths += [ROOT / name for name in names if name.startswith("attncalc/") and "/verify/" not in name]
    files = [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    return [file for file in files if file.suffix == ".py"]


def _mutants(files: Iterable[Path]) -> list[Mutant]:
    """Return the mutants of files; those of a file that has not changed come from .mutants/."""
    own = b"".join(path.read_bytes() for path in [Path(__file__).with_name("mutations.py")])
    found: list[Mutant] = []
    for file in files:
        key = hashlib.sha256(own + str(file).encode() + file.read_bytes()).hexdigest()[:16]
        kept = FOLDER / "mutants" / key
        if not kept.exists():
            kept.parent.mkdir(exist_ok=True)
            kept.write_bytes(pickle.dumps([tuple(mutant) for mutant in mutants(file, ROOT)]))
        found += [Mutant(*fields) for fields in pickle.loads(kept.read_bytes())]
    return found


def _sample(found: list[Mutant], size: int | None, seed: int) -> list[Mutant]:
    """Return a random sample of each package, in which each file has its share, in random order."""
    if size is None:
        return found
    generator = random.Random(seed)
    by_package: dict[str, list[Mutant]] = {}
    for mutant in found:
        by_package.setdefault("/".join(mutant.path.split("/")[:2]), []).append(mutant)
    chosen: list[Mutant] = []
    for several in by_package.values():
        several.sort(key=lambda mutant: (mutant.path, generator.random()))
        step, start = max(1.0, len(several) / size), generator.random()
        chosen += [several[int((i + start) * step)] for i in range(min(size, len(several)))]
    generator.shuffle(chosen)
    return chosen


def _run(todo: list[Mutant], budget: float, results: Results, *, record: bool) -> None:
    if not todo:
        return
    reach = _recorded(record=record)
    sources = {path: (ROOT / path).read_text(encoding="utf-8") for path in {mutant.path for mutant in todo}}
    lines = {m: removes_decorator(m, sources[m.path]) or m.lines for m in todo}
    tests = {m: sorted(reach.tests(m.path, *lines[m])) for m in sorted(todo)}
    work = [Work(mutant, sources[mutant.path], tests[mutant]) for mutant in todo]
    start, count = time.monotonic(), 0

    def done(mutant: Mutant, outcome: Outcome) -> None:
        nonlocal count
        count += 1
        results.add(mutant, outcome)
        if count % 50 == 0 or outcome.outcome in {"survived", "no test"}:
            rate = (time.monotonic() - start) / count
            where = f"{mutant.path}:{mutant.line}"
            _say(f"{count:,}/{len(todo):,}  {rate:.2f} s each  {where}  {outcome.outcome} {outcome.by}")

    functions: list[Work] = []
    at_import: list[Work] = []
    for item in work:
        inside = only_in_functions(item.source, item.mutant.apply(item.source))
        (functions if inside or removes_decorator(item.mutant, item.source) else at_import).append(item)
    if functions:
        child = os.fork()  # the forks of run_imported need a process that has not imported attncalc
        if child == 0:
            run_swapped(ROOT, reach, functions, budget, done)
            os._exit(0)
        os.waitpid(child, 0)
        results.read()
    survived = [item for item in functions if results.survived(item.mutant)]
    again = [item for item in survived if reach.at_import(item.mutant.path, *lines[item.mutant])]
    uses = ImportTime(ROOT, reach)
    run_imported(ROOT, reach, [uses.with_uses(item) for item in [*at_import, *again]], budget, done)


def _recorded(*, record: bool) -> Reach:
    """Return which tests reach which lines, after recording the test files that changed if asked to."""
    files = [file for file in sorted((ROOT / "tests").glob("test_*.py")) if not LEFT_OUT.match(file.name)]
    folder = FOLDER / "reach"
    folder.mkdir(exist_ok=True)
    stale = Reach.stale(folder, ROOT, files) if record else []
    for i in range(0, len(stale), RECORDED_AT_ONCE):
        several = stale[i : i + RECORDED_AT_ONCE]
        _say(f"recording which lines {len(stale) - i} test files reach")
        command = [sys.executable, str(Path(__file__).with_name("record.py")), str(folder), *map(str, several)]
        subprocess.run(command, check=True, cwd=ROOT)
    return Reach(folder, ROOT)


if __name__ == "__main__":
    sys.exit(main())
