"""Which code runs when attncalc is imported, and which lines use what it defines."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

from forks import Work
from mutations import Mutant
from reach import Reach, file_of

FILES = 5
"""Test files per mutant: each has to be collected anew, which takes longer than its tests."""
COMPARED = {
    f"attncalc/config/{module}.py": f"tests/{test}"
    for module, test in (
        ("keys", "test_config.py::test_the_schema_file_is_up_to_date"),
        ("gguf/architectures", "test_gguf_blocks.py::test_architectures_have_the_windows_of_llama_cpp"),
    )
}
"""{module: the test that compares all that it defines with a table}; no line that uses one constant leads to it."""
NEEDS_TORCH = re.compile(r"^(import torch|from torch|.*importorskip\(.torch.\))", re.MULTILINE)
"""A test file that imports torch for all its tests takes seconds to collect."""


class ImportTime:
    """The lines that run at import, and the tests of a mutant there.

    No test reaches such a line itself. A mutant of a field, a default or a decorator is run against the tests that
    reach its class or function, and those that reach a line with the name of either; one of a constant against those
    that reach a line with its name.
    """

    def __init__(self, root: Path, reach: Reach) -> None:
        self.root = root
        self.reach = reach

    def with_uses(self, work: Work) -> Work:
        """Return the work with the tests that reach what the changed statement defines, in at most FILES files."""
        mutant = work.mutant
        definition = self._tests_of_definition(mutant, work.source)
        tests = definition | set(work.tests)
        for name in {*mutant.names, mutant.within.rpartition(".")[2]}:
            tests |= self._tests_of(name)
        module = self.reach.tests(mutant.path, 1, len(work.source.splitlines()))
        tests = tests or module
        files = self._files(tests, definition, module)
        chosen = {test for test in tests if file_of(test) in files}
        if mutant.path in COMPARED:
            chosen.add(COMPARED[mutant.path])
        return work._replace(tests=sorted(chosen))

    def _files(self, tests: set[str], definition: set[str], module: set[str]) -> set[str]:
        """Return FILES test files: by turns the one with the quickest test left, and the one that is most about it."""
        seconds = self.reach.seconds
        quickest = sorted(tests, key=lambda test: (test not in definition, seconds.get(test, 0)))
        quickest = [test for test in quickest if not self._needs_torch(file_of(test))] or quickest
        by_time = list(dict.fromkeys(file_of(test) for test in quickest))
        by_share = sorted(by_time, key=lambda file: -self._share(file, module))
        return set(list(dict.fromkeys(file for pair in zip(by_time, by_share, strict=True) for file in pair))[:FILES])

    def _tests_of_definition(self, mutant: Mutant, source: str) -> set[str]:
        """Return the tests that reach the body of the function or class whose decorator, default or field it is."""
        kinds = (ast.FunctionDef, ast.ClassDef)
        for node in sorted((n for n in ast.walk(ast.parse(source)) if isinstance(n, kinds)), key=lambda n: -n.lineno):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first <= mutant.line <= (node.end_lineno or first):
                return self.reach.tests(mutant.path, first, node.end_lineno or first)
        return set()

    @functools.lru_cache(maxsize=1024)  # noqa: B019 (one object per run)
    def _needs_torch(self, file: str) -> bool:
        return NEEDS_TORCH.search((self.root / file).read_text(encoding="utf-8")) is not None

    def _share(self, file: str, module: set[str]) -> float:
        """Return which share of a test file's time is of tests that reach the module: high if it is about it."""
        own = sum(seconds for test, seconds in self.reach.seconds.items() if file_of(test) == file)
        return sum(self.reach.seconds[test] for test in module if file_of(test) == file) / (own + 1)

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
