"""Helpers to run the command line, in this process or in a shell, and to read its answer."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

REPOSITORY = Path(__file__).parent.parent
# Tests and scripts of this folder use this checkout, also where another one is installed.
sys.path.insert(0, str(REPOSITORY))

from attncalc import AttncalcError  # noqa: E402
from attncalc.questions import QUESTIONS  # noqa: E402

# How the reason begins for which a test is skipped that needs an engine.
NOT_TESTED = "NOT TESTED, since it is not installed: "


class Answer(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """What a command says that could not be run: an error and its tip."""
        assert (self.code, self.out) == (2, "")
        assert "\n  tip: " in self.err
        return self.err

    @property
    def document(self) -> Any:
        """What a command prints with --json."""
        return json.loads(self.out)


Line = TypeVar("Line", str, tuple[Any, ...])


def of_questions(lines: Iterable[Line]) -> list[Line]:
    """Return the command lines, or rows that begin with one, of questions that attncalc has.

    A question is deleted with its folder, its line in the list, its page and its own tests. What
    all questions have in common is tested with lines of each.
    """

    def command(line: Any) -> str:
        return line.split()[0] if isinstance(line, str) else command(line[0])

    return [line for line in lines if command(line) in QUESTIONS]


# The type of the `ask` fixture: ask("kv", "gpt2", stdin="").
Ask = Callable[..., Answer]


def shell(command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a line in bash, in which `attncalc` is the one of this checkout. Skips the test on
    Windows.
    """
    if os.name == "nt":
        pytest.skip("the line is for a POSIX shell")
    line = command.replace("attncalc ", f"{sys.executable} -m attncalc ")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **env}
    environment.pop("PYTHONUNBUFFERED", None)  # it would hide output that is written only at exit
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


@contextmanager
def started(*command: str, **settings: Any) -> Iterator[subprocess.Popen[str]]:
    """Start Python with these arguments, for the attncalc of this checkout; it is killed when the
    block ends.
    """
    with subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        **settings,
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def results(answer: Answer) -> dict[str, int]:
    """Return the figures of a JSON answer by name."""
    return {r["name"]: r["value"] for r in answer.document["results"]}


def refusal(call: Callable[..., object], *args: Any, **options: Any) -> AttncalcError:
    """Return the error that a call raises."""
    with pytest.raises(AttncalcError) as raised:
        call(*args, **options)
    return raised.value
