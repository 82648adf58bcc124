"""Record which tests reach which lines, and how long each test takes."""

from __future__ import annotations

import collections
import difflib
import functools
import gc
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

FILE_CACHES = {
    *("presets", "_by_repository", "presets_folder", "file_names", "compiled", "file_content", "schema"),
    *("_model_schema", "words", "_names_in_all_families", "families", "_rules", "_tables", "config_classes"),
    *("_classes_json", "_table", "kind_keys", "layer_keys"),
}
"""The cached functions of attncalc/config that read files, or are slow."""


SECONDS_PER_TEST = 8
"""Seconds of processor time after which further cases of a parametrized test are not recorded, and so not used."""


class Recorder:
    """A pytest plugin that runs each test in a context of coverage.py with the test's name.

    The caches of attncalc are emptied before each test, so that a test reaches the lines whose results an earlier one
    left in a cache. Caches of files (presets, families) are emptied only at the start of each test file: reading them
    takes longer than most tests.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        self.root = root
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self.coverage = coverage.Coverage(
            data_file=None, include=[f"{root}/attncalc/*"], omit=["*/attncalc/verify/*"], config_file=False
        )
        self._file = ""
        self._spent: dict[str, float] = collections.defaultdict(float)
        self.coverage.start()  # before attncalc is imported: what runs then has no test's name

    def pytest_collection(self) -> None:
        """Let Hypothesis try few examples: they reach nearly the same lines."""
        from hypothesis import settings

        settings.register_profile("reach", parent=settings.get_profile("attncalc"), max_examples=8)
        settings.load_profile("reach")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Skip tests that start another process."""

        def no_process(*_arguments: object, **_options: object) -> None:
            pytest.skip("another process")

        subprocess.Popen = no_process  # type: ignore[assignment,misc]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Run one test in its context."""
        file = file_of(item.nodeid)
        clear_caches(files_too=file != self._file)
        self._file = file
        self.coverage.switch_context(item.nodeid)
        start = time.process_time()
        yield
        self.seconds[item.nodeid] = round(time.process_time() - start, 4)
        self._spent[item.nodeid.partition("[")[0]] += self.seconds[item.nodeid]

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Leave out further cases of a test whose cases take long: each preset with each engine, say."""
        if self._spent[item.nodeid.partition("[")[0]] > SECONDS_PER_TEST:
            pytest.skip("enough cases")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that fails or is skipped without any mutant: it kills nothing."""
        if report.outcome != "passed":
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write one record per test file."""
        self.coverage.stop()
        data = self.coverage.get_data()
        files = {
            str(Path(name).relative_to(self.root)): data.contexts_by_lineno(name)
            for name in data.measured_files()
            if Path(name).is_relative_to(self.root)  # tests/test_mutants.py writes an attncalc/ of its own
        }
        sources = {file: save_source(self.folder, self.root / file) for file in files}
        lines: dict[str, dict[str, dict[int, list[str]]]] = collections.defaultdict(dict)
        for file, by_line in files.items():
            for line, tests in by_line.items():
                for test in filter(None, tests):
                    lines[file_of(test)].setdefault(file, {}).setdefault(line, []).append(test)
        for test_file in {file_of(test) for test in self.seconds}:
            record = {
                "sha": sha(self.root / test_file),
                "seconds": {test: s for test, s in self.seconds.items() if file_of(test) == test_file},
                "failed": sorted(test for test in self.failed if file_of(test) == test_file),
                "sources": sources,
                "at_import": {file: sorted(n for n, tests in files[file].items() if "" in tests) for file in files},
                "lines": _numbered(lines[test_file], [t for t in self.seconds if file_of(t) == test_file]),
            }
            (self.folder / f"{Path(test_file).stem}.json").write_text(json.dumps(record))


def _numbered(lines: dict[str, dict[int, list[str]]], tests: list[str]) -> dict[str, dict[int, list[int]]]:
    number = {test: i for i, test in enumerate(tests)}
    return {file: {n: [number[t] for t in ts] for n, ts in by_line.items()} for file, by_line in lines.items()}


def file_of(test: str) -> str:
    """Return a test's file: "tests/test_cli.py::test_help" is in "tests/test_cli.py"."""
    return test.partition("::")[0]


def sha(path: Path) -> str:
    """Return a short hash of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def save_source(folder: Path, path: Path) -> str:
    """Keep a copy of a source file as it was recorded, and return its hash."""
    name = sha(path)
    (folder / "sources").mkdir(exist_ok=True, parents=True)
    (folder / "sources" / name).write_bytes(path.read_bytes())
    return name


class Reach:
    """Which tests reach a line, from the records of all test files.

    A source file may have changed since it was recorded: then a line is looked up where it was.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        self.root = root
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self._at_import: dict[str, set[int]] = collections.defaultdict(set)
        self._records: list[tuple[list[str], dict[str, Any], dict[str, Any]]] = []
        for path in sorted(folder.glob("*.json")):
            record = json.loads(path.read_text())
            self.seconds |= record["seconds"]
            self.failed |= set(record["failed"])
            for file, numbers in record.get("at_import", {}).items():
                self._at_import[file].update(numbers)
            self._records.append((list(record["seconds"]), record["lines"], record["sources"]))

    @staticmethod
    def stale(folder: Path, root: Path, test_files: Iterable[Path]) -> list[Path]:
        """Return the test files that are not recorded as they are now."""
        old = {path.stem: json.loads(path.read_text())["sha"] for path in folder.glob("*.json")}
        return [path for path in test_files if old.get(path.stem) != sha(path)]

    def tests(self, file: str, first: int, last: int) -> set[str]:
        """Return the tests that reach any of the lines from first to last."""
        found = set()
        for line in range(first, last + 1):
            found |= self._by_line(file).get(line, set())
        return found

    def at_import(self, file: str, first: int, last: int) -> bool:
        """Return whether any of the lines runs when attncalc is imported, or the tests are collected."""
        return any(line in self._at_import[file] for line in range(first, last + 1))

    @functools.lru_cache(maxsize=4)  # noqa: B019 (one Reach per run)
    def _by_line(self, file: str) -> dict[int, set[str]]:
        now: dict[int, set[str]] = collections.defaultdict(set)
        for tests, lines, sources in self._records:
            if file not in lines:
                continue
            for line, recorded in self._recorded_as(file, sources[file]).items():
                for old in recorded:
                    now[line].update(tests[i] for i in lines[file].get(str(old), ()))
        return now

    @functools.lru_cache(maxsize=64)  # noqa: B019 (one Reach per run)
    def _recorded_as(self, file: str, sha_then: str) -> dict[int, range]:
        """Return {line now: lines as recorded}. A changed line is those that it replaces, and one on either side."""
        before = (self.folder / "sources" / sha_then).read_text(encoding="utf-8").splitlines()
        after = (self.root / file).read_text(encoding="utf-8").splitlines()
        lines: dict[int, range] = {}
        for kind, i1, i2, j1, j2 in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            for j in range(j1, j2):
                old = i1 + j - j1 + 1
                lines[j + 1] = range(old, old + 1) if kind == "equal" else range(i1, i2 + 2)
        return lines


@functools.cache
def _caches(_modules: int) -> tuple[list[Any], list[Any]]:
    own = [
        thing
        for thing in gc.get_objects()
        if type(thing) is functools._lru_cache_wrapper and str(thing.__module__).startswith("attncalc")
    ]
    slow = [thing for thing in own if thing.__name__ in FILE_CACHES and thing.__module__.startswith("attncalc.config")]
    return slow, [thing for thing in own if thing not in slow]


def clear_caches(*, files_too: bool) -> None:
    """Empty the caches of attncalc's functions."""
    slow, quick = _caches(sum(name.startswith("attncalc") for name in sys.modules))
    for thing in quick + slow * files_too:
        thing.cache_clear()
