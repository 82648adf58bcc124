"""Try damaged inputs for some time, and keep each that fails in tests/fuzz/corpus.

    python tools/fuzz.py --seconds 600                  all kinds in turn
    python tools/fuzz.py --seconds 600 --kind configs   one kind
    python tools/fuzz.py --seconds 600 --kind configs --coverage

--coverage guides the inputs by the code that they reach; it needs atheris.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import os
import random
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
SECONDS_PER_CASE = 60
MEMORY = 4 << 30
"""Bytes of address space, beyond which a case fails."""


def main() -> int:
    """Return 0 if no input failed, else 1."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--kind", action="append")
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    parser.add_argument("--coverage", action="store_true")
    options = parser.parse_args()
    os.environ["ATTNCALC_DEBUG"] = os.environ["HF_HUB_OFFLINE"] = "1"
    signal.signal(signal.SIGALRM, _too_slow)
    if options.coverage:
        return _guided(options)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    return _random(options)


def _random(options: argparse.Namespace) -> int:
    """Draw inputs with Hypothesis, 200 of a kind in turn."""
    from fuzz.inputs import TARGETS
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from hypothesis import strategies as st

    rounds = settings(
        max_examples=200,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    watch = _Watch()
    end = time.monotonic() + options.seconds
    number = options.seed
    while time.monotonic() < end:
        for kind in options.kind or TARGETS:
            number += 1
            try:
                seed(number)(rounds(given(st.tuples(st.just(kind), TARGETS[kind]))(lambda pair: watch.check(*pair))))()
            except Exception:
                watch.keep(kind)
    return watch.report(options.seed)


def _guided(options: argparse.Namespace) -> int:
    """Let atheris choose the bytes from which Hypothesis draws inputs; it ends at the first that fails."""
    import atheris

    with atheris.instrument_imports(include=["attncalc"]):
        from fuzz.inputs import TARGETS
    from hypothesis import given, settings

    (kind,) = options.kind or ["configs"]
    watch = _Watch()

    @settings(deadline=None, database=None)
    @given(TARGETS[kind])
    def check(case: Any) -> None:
        try:
            watch.check(kind, case)
        except Exception:
            watch.keep(kind)
            raise

    atheris.Setup([sys.argv[0], f"-max_total_time={int(options.seconds)}"], check.hypothesis.fuzz_one_input)
    atheris.Fuzz()
    return 0


class _Watch:
    """Counts the cases of each kind, and knows the last one that failed."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.answers: collections.Counter[str] = collections.Counter()
        self.failed: dict[str, str] = {}
        self.last: Any = None

    def check(self, kind: str, case: Any) -> None:
        from fuzz.case import check

        self.counts[kind] += 1
        signal.alarm(SECONDS_PER_CASE)
        try:
            self.answers[kind] += check(case) != 2
        except BaseException:
            self.last = case
            raise
        finally:
            signal.alarm(0)

    def keep(self, kind: str) -> None:
        """Write the last case that failed to the corpus, and say why it failed."""
        text = self.last.to_json()
        name = f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
        reason = traceback.format_exc(limit=-2)
        if reason not in self.failed:
            self.failed[reason] = name
            CORPUS.mkdir(exist_ok=True)
            (CORPUS / name).write_text(text, encoding="utf-8")
            _say(f"FAILED {name}: attncalc {' '.join(self.last.arguments)[:200]!r}\n{reason}")

    def report(self, first_seed: int) -> int:
        for kind, number in self.counts.items():
            _say(f"{kind:12} {number:9,} inputs, {self.answers[kind]:9,} answered")
        _say(f"{self.counts.total():,} inputs, {len(self.failed)} causes of failure, seed {first_seed}")
        return 1 if self.failed else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _too_slow(*_: object) -> None:
    raise TimeoutError(f"took more than {SECONDS_PER_CASE} s")


if __name__ == "__main__":
    sys.exit(main())
