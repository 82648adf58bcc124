"""Which code runs when attncalc is imported, and which lines use what it defines."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from forks import Work
from reach import Reach


class ImportTime:
    """The lines that run at import, and the tests of a mutant there.

    No test reaches such a line itself. A mutant of a constant, a field or a decorator is run against the tests that
    reach a line with its name.
    """

    def __init__(self, root: Path, reach: Reach) -> None:
        self.root = root
        self.reach = reach

    def with_uses(self, work: Work) -> Work:
        """Return the work with the tests that reach a use of what the changed statement defines."""
        mutant = work.mutant
        names = mutant.names or tuple(mutant.within.split(".")[-1:])
        tests = set(work.tests)
        for name in names:
            tests |= self._tests_of(name)
        if not tests:
            tests = self.reach.tests(mutant.path, 1, len(work.source.splitlines()))
        return work._replace(tests=sorted(tests))

    @functools.lru_cache(maxsize=4096)  # noqa: B019 (one object per run)
    def _tests_of(self, name: str) -> set[str]:
        word = re.compile(rf"\b{re.escape(name)}\b")
        found: set[str] = set()
        for path in (self.root / "attncalc").rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if not name or not word.search(text):
                continue
            for number, line in enumerate(text.splitlines(), 1):
                if word.search(line):
                    found |= self.reach.tests(str(path.relative_to(self.root)), number, number)
        return found
