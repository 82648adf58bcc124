"""Run tests against mutants, each in a fork of a process that has everything ready.

There are two ways. `run_swapped` forks a process that has collected all tests, and puts the mutant's code into the
functions there: 0.1 to 0.5 s per mutant. A change in code that runs at import (a constant, a field, a decorator)
cannot be put in like this. For it `run_imported` forks a process that has imported only other people's packages:
the fork imports attncalc with the mutant in it, and collects the tests' files one by one.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

import pytest
from mutations import Mutant
from reach import Reach, clear_caches, file_of
from swap import Functions, remove_decorator, undecorated_body

MEMORY = 3 << 30
"""Bytes that a mutant may take beyond those of the process that it is forked from."""
FIXED_SECONDS = 10
TIMES_SLOWER = 20
"""A test that takes 10 s and 20 times its usual time of the processor counts as one that does not end."""
WALL_SECONDS = 600


class Outcome(NamedTuple):
    """What became of a mutant.

    Attributes:
        outcome: "killed", "timeout", "survived", or "no test" if no test reaches it.
        by: The test that killed it, or "import".
        ran: How many tests were chosen within the budget.
        of: How many reach it.
    """

    outcome: str
    by: str
    ran: int
    of: int


class Work(NamedTuple):
    """A mutant and the tests that reach it, in the order in which they are run."""

    mutant: Mutant
    source: str
    tests: list[str]


def removes_decorator(mutant: Mutant, source: str) -> tuple[int, int] | None:
    """Return the lines of the body of a method, if a mutant removes its `@property` or alike, or None."""
    return undecorated_body(source, mutant.line) if mutant.operator == "RemoveDecorator" else None


def ordered(tests: Iterable[str], seconds: dict[str, float], killers: collections.Counter[str]) -> list[str]:
    """Return tests in the order that finds a mutant soonest.

    First those that killed others in the same file, then the quickest: they are about the changed code and little
    else. Of a test function with many cases the later ones come later: a quarter of its time more per case.
    """
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for test in sorted(tests, key=lambda test: seconds.get(test, 0)):
        groups[test.partition("[")[0]].append(test)
    ranked = [(seconds.get(test, 0) * (1 + i / 4), test) for group in groups.values() for i, test in enumerate(group)]
    rest = [test for _, test in sorted(ranked)]
    known = set(rest)
    first = [test for test, _ in killers.most_common(40) if test in known and seconds.get(test, 0) < 1]
    return list(dict.fromkeys([*first, *rest]))


def within_budget(tests: Sequence[str], seconds: dict[str, float], budget: float) -> list[str]:
    """Return the first tests whose times add up to the budget; one at least."""
    kept: list[str] = []
    total = 0.0
    for test in tests:
        total += seconds.get(test, 0.01)
        if kept and total > budget:
            break
        kept.append(test)
    return kept


class Collected:
    """A pytest plugin that collects all tests, and runs those of each mutant in a fork."""

    def __init__(
        self, root: Path, reach: Reach, work: list[Work], budget: float, done: Callable[[Mutant, Outcome], None]
    ) -> None:
        self.root = root
        self.reach = reach
        self.work = work
        self.budget = budget
        self.done = done
        self.bad = set(reach.failed)
        self._good: set[str] = set()
        self._killers: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self._pipe = -1

    def pytest_collection(self) -> None:
        """Let Hypothesis stop at the first failure: how small the example can be does not matter."""
        quick_hypothesis()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run every mutant instead of the tests."""
        self._items = {item.nodeid: item for item in session.items}
        for path in {item.mutant.path for item in self.work}:  # some are imported only when they are used
            importlib.import_module(module_of(path))
        self._functions = Functions(self.root)
        clear_caches(files_too=True)
        gc.collect()
        gc.freeze()
        for work in self.work:
            self.done(work.mutant, self._outcome(work))
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """End a fork at the first test that fails."""
        if report.failed and self._pipe >= 0:
            finish(self._pipe, "killed", report.nodeid)

    def _outcome(self, work: Work) -> Outcome:
        killers = self._killers[work.mutant.path]
        while True:
            known = [test for test in work.tests if test in self._items and test not in self.bad]
            tests = within_budget(ordered(known, self.reach.seconds, killers), self.reach.seconds, self.budget)
            outcome, by = self._fork(tests, work)
            if outcome == "killed" and by not in self._good:
                if self._fork([by], None)[0] != "survived":
                    self.bad.add(by)
                    sys.stderr.write(f"{by} fails without a mutant, and is left out\n")
                    continue
                self._good.add(by)
            killers[by] += outcome == "killed"
            return Outcome("no test" if not known else outcome, by, len(tests), len(known))

    def _fork(self, tests: list[str], work: Work | None) -> tuple[str, str]:
        return in_fork(lambda pipe: self._run(pipe, tests, work), limit(tests, self.reach.seconds))

    def _run(self, pipe: int, tests: list[str], work: Work | None) -> None:
        if work is not None and removes_decorator(work.mutant, work.source):
            remove_decorator(module_of(work.mutant.path), work.mutant.within)
        elif work is not None:
            self._functions.swap(work.mutant.path, work.source, work.mutant.apply(work.source))
        clear_caches(files_too=work is not None and work.mutant.path.startswith("attncalc/config"))
        self._pipe = pipe
        items = [self._items[test] for test in tests]
        for item, following in itertools.zip_longest(items, items[1:]):
            signal.setitimer(signal.ITIMER_PROF, time_limit(self.reach.seconds.get(item.nodeid, 0)))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def run_swapped(
    root: Path, reach: Reach, work: list[Work], budget: float, done: Callable[[Mutant, Outcome], None]
) -> None:
    """Run mutants of functions. This process has imported attncalc afterwards."""
    files = sorted({file_of(test) for item in work for test in item.tests})
    pytest.main([*OPTIONS, *(str(root / file) for file in files)], plugins=[Collected(root, reach, work, budget, done)])


OPTIONS = [
    "-o",
    "addopts=",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:terminal",
    "--capture=sys",
]


class _Chosen:
    """A pytest plugin that runs the chosen tests of a file in their order, and ends the fork when one fails."""

    def __init__(self, tests: list[str], reach: Reach, pipe: int) -> None:
        self.order = {test: i for i, test in enumerate(tests)}
        self.reach = reach
        self.pipe = pipe

    def pytest_collection(self) -> None:
        quick_hypothesis()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda item: self.order[item.nodeid])

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        signal.setitimer(signal.ITIMER_PROF, time_limit(self.reach.seconds.get(item.nodeid, 0)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            finish(self.pipe, "killed", report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            finish(self.pipe, "killed", f"{report.nodeid} (collection)")


def run_imported(
    root: Path, reach: Reach, work: list[Work], budget: float, done: Callable[[Mutant, Outcome], None]
) -> None:
    """Run mutants in forks that import attncalc anew."""
    _preload(root)
    gc.collect()
    gc.freeze()
    killers: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    good, bad = set[str](), set(reach.failed)
    for mutant, source, all_tests in work:
        while True:
            tests = [test for test in all_tests if test not in bad]
            chosen = within_budget(ordered(tests, reach.seconds, killers[mutant.path]), reach.seconds, budget)
            run = functools.partial(_run_imported, mutant, mutant.apply(source), root, reach, chosen)
            outcome, by = in_fork(run, limit(chosen, reach.seconds))
            if outcome != "killed" or by in good:
                break
            unchanged = functools.partial(_run_imported, mutant, source, root, reach, [by] if by in chosen else chosen)
            if in_fork(unchanged, limit(chosen, reach.seconds))[0] == "survived":
                good.add(by)
                break
            if by not in chosen:
                raise RuntimeError(f"without a mutant, attncalc and its tests do not start: {by}")
            bad.add(by)
            sys.stderr.write(f"{by} fails without a mutant, and is left out\n")
        killers[mutant.path][by] += outcome == "killed"
        if outcome == "survived" and not chosen:
            outcome = "no test"
        done(mutant, Outcome(outcome, by, len(chosen), len(tests)))


def _run_imported(mutant: Mutant, text: str, root: Path, reach: Reach, tests: list[str], pipe: int) -> None:
    """Import attncalc with a file's text, and run tests, until one fails."""
    _import_with(mutant, text, root, pipe)
    by_file: dict[str, list[str]] = {}
    for test in tests:
        by_file.setdefault(file_of(test), []).append(test)
    for file, several in by_file.items():
        signal.setitimer(signal.ITIMER_PROF, 120)
        code = pytest.main([*OPTIONS, str(root / file)], plugins=[_Chosen(several, reach, pipe)])
        if code not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            finish(pipe, "killed", f"{file} ({code})")


def _import_with(mutant: Mutant, text: str, root: Path, pipe: int) -> None:
    """Import attncalc with a mutant in it; a mutant with which the import fails is killed."""
    name = module_of(mutant.path)
    sys.meta_path.insert(0, _Finder(name, root / mutant.path, text))
    signal.setitimer(signal.ITIMER_PROF, 60)
    try:
        importlib.import_module("attncalc.cli")
        importlib.import_module(name)
    except BaseException:
        finish(pipe, "killed", "import")


def module_of(path: str) -> str:
    """Return the name of a file's module: "attncalc/cost/flops.py" is attncalc.cost.flops."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, with the mutant's source."""

    def __init__(self, name: str, path: Path, text: str) -> None:
        self.name, self.path, self.text = name, path, text

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(
            fullname, self.path, loader=_Loader(fullname, str(self.path), self.text)
        )


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.text, self.path, "exec", dont_inherit=True)


def _preload(root: Path) -> None:
    """Import the packages that the tests import, without attncalc, the tests and torch."""

    def report(pipe: int) -> None:
        pytest.main(
            [*OPTIONS, "--collect-only", str(root / "tests" / "test_cli.py"), str(root / "tests" / "test_costs.py")]
        )
        finish(pipe, "names", " ".join(sys.modules))

    _, names = in_fork(report, 120)
    own = {
        "attncalc",
        "tests",
        "conftest",
        "torch",
        "transformers",
        *(path.stem for path in (root / "tests").glob("*.py")),
    }
    for name in names.split():
        if name.partition(".")[0] not in own:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


EXAMPLES = [15]
"""How many examples Hypothesis tries, in tests that do not say: --thorough restores the tests' own number."""


def quick_hypothesis() -> None:
    """Let Hypothesis try few examples and stop at the first failure, whatever the machine's load."""
    from hypothesis import HealthCheck, Phase, settings

    settings.register_profile(
        "mutants",
        parent=settings.get_profile("attncalc"),
        max_examples=EXAMPLES[0],
        phases=(Phase.explicit, Phase.generate),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    settings.load_profile("mutants")


def time_limit(seconds: float) -> float:
    """Return the seconds of processor time after which a test is taken not to end."""
    return FIXED_SECONDS + TIMES_SLOWER * seconds


def limit(tests: Iterable[str], seconds: dict[str, float]) -> float:
    """Return the seconds after which a fork is killed, on a busy machine."""
    return WALL_SECONDS + 4 * sum(seconds.get(test, 0) for test in tests)


def finish(pipe: int, outcome: str, by: str) -> None:
    """Report an outcome, and end this fork."""
    os.write(pipe, json.dumps([outcome, by]).encode())
    os._exit(0)


def in_fork(run: Callable[[int], None], seconds: float) -> tuple[str, str]:
    """Return what `run` reports from a fork; "survived" if it returns, "timeout" if it does not end."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            os.setpgid(0, 0)
            quiet = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(quiet, stream)
            _bound_memory()
            run(writing)
            finish(writing, "survived", "")
        except BaseException:
            finish(writing, "error", traceback.format_exc())
    os.close(writing)
    text = _read(reading, seconds)
    os.close(reading)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if not text:
        return "timeout", ""
    outcome, by = json.loads(text)
    if outcome == "error":
        raise RuntimeError(f"a fork ended with\n{by}")
    return outcome, by


def _read(pipe: int, seconds: float) -> bytes:
    end, text = time.monotonic() + seconds, b""
    while select.select([pipe], [], [], max(0, end - time.monotonic()))[0]:
        piece = os.read(pipe, 1 << 20)
        if not piece:
            break
        text += piece
    return text


def _bound_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
