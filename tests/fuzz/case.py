"""One input of the fuzzer: a command line and the files that it names; and what must hold for its answer."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from evaluate import evaluate
from schemas import check_answer

from attncalc.cli import run

STREAM = "<stdin>"
"""The name of the file that is standard input."""


class Case(NamedTuple):
    """A command line and the files that it names.

    Attributes:
        arguments: What follows `attncalc`.
        files: {path in the working folder: its bytes}; STREAM is standard input.
    """

    arguments: tuple[str, ...]
    files: dict[str, bytes]

    def to_json(self) -> str:
        files = {name: base64.b64encode(content).decode() for name, content in self.files.items()}
        return json.dumps({"arguments": self.arguments, "files": files}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Case:
        data = json.loads(text)
        files = {name: base64.b64decode(content) for name, content in data["files"].items()}
        return cls(tuple(data["arguments"]), files)


def check(case: Case) -> int:
    """Run the case and return its exit code. Raises AssertionError, or the bug's own exception, if it fails."""
    code, out, err = _run(case)
    assert code in (0, 1, 2), code
    if code == 2:
        _check_error(out, err)
    else:
        _check_answer(case, out, err)
    return code


def _run(case: Case) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    stdin = io.TextIOWrapper(io.BytesIO(case.files.get(STREAM, b"")))
    with _working_folder(case), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        before = sys.argv, sys.stdin
        sys.argv, sys.stdin = ["attncalc", *case.arguments], stdin
        try:
            code = run()
        finally:
            sys.argv, sys.stdin = before
    return code, out.getvalue(), err.getvalue()


@contextlib.contextmanager
def _working_folder(case: Case) -> Iterator[None]:
    """Work in a new folder with the case's files. Raises AssertionError if the case changed what is in it."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        for name, content in case.files.items():
            if name != STREAM:
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        os.chdir(folder)
        try:
            yield
            found = {str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()}
            assert found == set(case.files) - {STREAM}, found
        finally:
            os.chdir(before)


def _check_error(out: str, err: str) -> None:
    """An error is one line and a tip, and there is no answer beside it."""
    assert not out, out
    lines = [line for line in err.splitlines() if not line.startswith("warning")]
    assert [line[:7] for line in lines] in (["error: "], ["error: ", "  tip: "]), err
    assert "None" not in lines[0].split(), err
    _check_characters(err)


def _check_answer(case: Case, out: str, err: str) -> None:
    """An answer is readable, its JSON is as the schema says, and each formula of JSON gives its value."""
    _check_characters(out)
    _check_characters(err)
    assert out or "-o" in case.arguments, "nothing was printed"
    if "--json" not in case.arguments:
        return
    data = check_answer(out)
    for figure in _figures(data):
        if figure["formula"]:
            value = evaluate(figure["formula"], figure["symbols"])
            assert float(value) == float(figure["value"]), figure
            if figure["unit"]:
                assert figure["value"] >= 0, figure


def _figures(data: Any) -> Iterator[dict[str, Any]]:
    """Yield the results of a JSON answer, those of its layers too."""
    for part in (data, *data.get("layers", ())):
        yield from (figure for figure in part.get("results", ()) if "formula" in figure)


def _check_characters(text: str) -> None:
    assert all(char.isprintable() or char == "\n" for char in text), repr(text)
