"""Try damaged inputs for some time, and keep each that fails in tests/fuzz/corpus, made smaller.

    python tools/fuzz.py --seconds 600                  all kinds of input
    python tools/fuzz.py --seconds 600 --kind configs   one kind
    python tools/fuzz.py --seconds 600 --kind configs --coverage
    python tools/fuzz.py --every-field                  each field of each config with each odd
    value, for 20 minutes python tools/fuzz.py --printed --count 100000       printed launch
    commands, and rows of plan and sweep, as `fit`

A run writes what it has done to standard output once a minute, and a report when it ends or is
interrupted. Input number N of seed S is always the same: `--seed S --first N --count 1` repeats it.
Many small files are written: with TMPDIR=/dev/shm, a folder in memory, a run is much quicker.
--coverage guides the inputs by the code that they reach; it needs atheris.
"""

import argparse
import collections
import contextlib
import gc
import hashlib
import heapq
import io
import math
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
# Seconds of the processor: other work on the machine does not count.
SECONDS_PER_CASE = 20
# Bytes of address space, beyond which a case fails.
MEMORY = 2 << 30
# Bytes by which one case may raise the memory of the process.
GROWTH = 256 << 20
SLOWEST = 20
# How often a kind is drawn: those that take longer less often. The default is DEFAULT_WEIGHT.
WEIGHTS = {
    "arguments": 3,
    "comparisons": 1,
    "same_answers": 2,
    "deployments": 1,
    "sweeps": 2,
    "hub": 1,
    "names": 2,
    "lists": 3,
    "logs": 1,
    "gpu_files": 2,
    "surroundings": 2,
    "quantized": 4,
    "cached": 4,
}
DEFAULT_WEIGHT = 10


def main() -> int:
    """Return 0 if no input failed, else 1."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    from fuzz.inputs import KINDS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--kind", action="append", choices=sorted(KINDS))
    parser.add_argument("--seed", type=int, default=Random().randrange(10**9))
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--count", type=int, default=10**12, help="inputs to try at most")
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--every-field", action="store_true")
    parser.add_argument("--printed", action="store_true")
    options = parser.parse_args()
    os.environ["ATTNCALC_DEBUG"] = os.environ["HF_HUB_OFFLINE"] = "1"
    signal.signal(signal.SIGPROF, _too_slow)
    if options.coverage:
        return _guided(options)
    if options.printed:
        return _printed(options)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    return _random(options)


def _random(options: argparse.Namespace) -> int:
    """Try inputs by number until the time is over."""
    watch = _Watch(options.seed)
    end = time.monotonic() + (math.inf if options.every_field else options.seconds)
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    interrupts: list[int] = []
    # an exception would be an answer of the case that runs
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda number, _: interrupts.append(number))
    inputs = _every_field if options.every_field else _at_random
    for number, (kind, case) in inputs(options):
        watch.try_case(kind, number, case)
        if interrupts or time.monotonic() > end:
            break
    return watch.report()


def _at_random(options: argparse.Namespace) -> Iterator[tuple[int, tuple[str, Any]]]:
    """Yield each input's number, kind and case; a number always gives the same one."""
    from fuzz.inputs import KINDS

    kinds = [
        (kind, WEIGHTS.get(kind, DEFAULT_WEIGHT))
        for kind in KINDS
        if kind in (options.kind or KINDS)
    ]
    drawn = [kind for kind, weight in kinds for _ in range(weight)]
    for number in range(options.first, options.first + options.count):
        random = Random(f"{options.seed}/{number}")
        kind = random.choice(drawn)
        yield number, (kind, KINDS[kind](random))


def _every_field(options: argparse.Namespace) -> Iterator[tuple[int, tuple[str, Any]]]:
    """Yield the number, kind and case of each changed field."""
    from fuzz.every_field import every_case

    for number, case in enumerate(
        islice(every_case(), options.first, options.first + options.count), options.first
    ):
        yield number, ("every_field", case)


def _printed(options: argparse.Namespace) -> int:
    """Check questions of `fit`, `plan` and `sweep` by number, and print those that have two
    answers.
    """
    from fuzz.printed_commands import check_number

    end = math.inf if options.count < 10**12 else time.monotonic() + options.seconds
    answered = failed = number = 0
    for number in range(options.first, options.first + options.count):
        if time.monotonic() > end:
            break
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # notes
                answered += check_number(str(options.seed), number)
        except Exception as error:
            failed += 1
            _say(
                f"FAILED --printed --seed {options.seed} --first {number} --count 1: {error!r}"[
                    :3000
                ]
            )
    _say(
        f"{number - options.first + 1:,} questions, {answered:,} answered, {failed} with two "
        "answers"
    )
    if failed:
        return 1
    return 0


def _guided(options: argparse.Namespace) -> int:
    """Let atheris choose the bytes from which Hypothesis draws inputs; it ends at the first that
    fails.
    """
    import atheris

    with atheris.instrument_imports(include=["attncalc"]):
        from fuzz.inputs import KINDS
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st

    (kind,) = options.kind or ["configs"]
    watch = _Watch(options.seed)

    @settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=False))
    def check(random: Any) -> None:
        watch.try_case(kind, watch.counts.total(), KINDS[kind](random))

    limits = [f"-max_total_time={int(options.seconds)}", "-len_control=0", "-max_len=4096"]
    atheris.Setup([sys.argv[0], *limits], check.hypothesis.fuzz_one_input)
    atheris.Fuzz()
    return 0


class _Watch:
    """Runs cases, counts them, and remembers those that failed and those that took longest."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.counts: collections.Counter[str] = collections.Counter()
        self.answers: collections.Counter[str] = collections.Counter()
        self.seconds: collections.Counter[str] = collections.Counter()
        self.failed: collections.Counter[str] = collections.Counter()
        self.slowest: list[tuple[float, int, str]] = []
        self.said = time.monotonic()

    def try_case(self, kind: str, number: int, case: Any) -> None:
        self.counts[kind] += 1
        before = _memory()
        start = time.process_time()
        try:
            self.answers[kind] += _checked(case) < 2
            grown = _memory() - before
            if grown > GROWTH and self.counts.total() > 100:
                raise MemoryError(f"{grown >> 20} MiB more than before")
        except Exception as error:
            self._keep(kind, number, case, error)
        seconds = time.process_time() - start
        self.seconds[kind] += seconds  # type: ignore[assignment]
        entry = (seconds, number, " ".join(case.arguments))
        if len(self.slowest) < SLOWEST:
            heapq.heappush(self.slowest, entry)
        elif entry > self.slowest[0]:
            heapq.heapreplace(self.slowest, entry)
        if time.monotonic() - self.said > 60:
            self.said = time.monotonic()
            _say(
                f"{time.strftime('%H:%M:%S')} {self.counts.total():,} inputs, {len(self.failed)} "
                "causes of failure"
            )

    def _keep(self, kind: str, number: int, case: Any, error: Exception) -> None:
        """Write the case to the corpus, made smaller, if it is the first of its cause."""
        from fuzz.reduce import reduced

        cause = _cause(error)
        self.failed[cause] += 1
        if self.failed[cause] > 1:
            return
        reason = "".join(traceback.format_exception(error, limit=-3))
        case = reduced(case, lambda smaller: _fails_as(smaller, cause))
        text = case.to_json()
        name = f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
        CORPUS.mkdir(exist_ok=True)
        (CORPUS / name).write_text(text, encoding="utf-8")
        _say(
            f"FAILED {name}, input {number}: attncalc {' '.join(case.arguments)[:300]!r}\n"
            f"{reason[:3000]}"
        )

    def report(self) -> int:
        """Print the counts, the causes of failure and the slowest cases. Return 0 if none failed,
        else 1.
        """
        for kind, number in self.counts.items():
            milliseconds = self.seconds[kind] / number * 1000
            _say(
                f"{kind:12} {number:9,} inputs, {self.answers[kind]:9,} answered, "
                f"{milliseconds:7.2f} ms each"
            )
        _say("the slowest:")
        for seconds, number, arguments in sorted(self.slowest, reverse=True):
            _say(f"  {seconds:6.2f} s  input {number}: {arguments[:160]!r}")
        for cause, number in self.failed.items():
            _say(f"failed {number} times: {cause}")
        _say(
            f"{self.counts.total():,} inputs, {len(self.failed)} causes of failure, seed "
            f"{self.seed}"
        )
        if self.failed:
            return 1
        return 0


def _checked(case: Any) -> int:
    """Return the exit code of the case. Raises what it fails with; TimeoutError after
    SECONDS_PER_CASE.
    """
    from fuzz.checked import check

    signal.setitimer(signal.ITIMER_PROF, SECONDS_PER_CASE)
    try:
        return check(case)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _fails_as(case: Any, cause: str) -> bool:
    try:
        _checked(case)
    except Exception as error:
        return _cause(error) == cause
    return False


def _cause(error: Exception) -> str:
    """Return the kind of the error, and the line of attncalc or of an oracle that raised it."""
    if isinstance(error, (TimeoutError, MemoryError)):
        return type(error).__name__
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if str(ROOT) in frame.filename
    ]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__} {place}"


def _memory() -> int:
    """Return the most bytes of memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _say(text: str) -> None:
    sys.stdout.write(text.encode("ascii", "backslashreplace").decode() + "\n")
    sys.stdout.flush()


def _too_slow(*_: object) -> None:
    raise TimeoutError(f"took more than {SECONDS_PER_CASE} s of the processor")


if __name__ == "__main__":
    sys.exit(main())
