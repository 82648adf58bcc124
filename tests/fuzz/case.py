"""One input of the fuzzer: a command line, the files that it names, and the surroundings; and its
run.
"""

import atexit
import base64
import contextlib
import functools
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import typer.main
from local_hub import Handler, LocalHub, running_hub

from attncalc.cli import run

# The name of the file that is standard input.
STREAM = "<stdin>"
# The start of the name of a file on a hub, as 'hub:org/name/config.json'.
HUB = "hub:"
# The start of the end of a path on a hub, as 'hub!config.json'; its content is the number of the
# HTTP status.
BROKEN = "hub!"
# Options that name a file to write.
WRITERS = ("-o", "--output", "--plot")


class Case(NamedTuple):
    """A command line, the files that it names, and its surroundings."""

    arguments: tuple[str, ...]  # what follows `attncalc`
    # {path in the working folder: its bytes}; STREAM is standard input, and a path that ends in /
    # is a folder. Names that start with HUB or BROKEN are on a hub.
    files: Mapping[str, bytes] = {}
    # Environment variables that are set. PYTHONIOENCODING is the encoding of the output.
    environment: Mapping[str, str] = {}
    terminal: bool = False  # whether the output is a terminal
    relations: tuple[str, ...] = ()  # the relations that are always checked, by name

    def to_json(self) -> str:
        files = {name: base64.b64encode(content).decode() for name, content in self.files.items()}
        data: dict[str, Any] = {"arguments": self.arguments, "files": files}
        if self.environment:
            data["environment"] = self.environment
        if self.terminal:
            data["terminal"] = True
        if self.relations:
            data["relations"] = self.relations
        return json.dumps(data, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Case":
        data = json.loads(text)
        files = {name: base64.b64decode(content) for name, content in data["files"].items()}
        of_case = (
            data.get("environment", {}),
            data.get("terminal", False),
            tuple(data.get("relations", ())),
        )
        return cls(tuple(data["arguments"]), files, *of_case)

    @property
    def outputs(self) -> frozenset[str]:
        """The files that the command may write."""
        pairs = zip(self.arguments, self.arguments[1:], strict=False)
        return frozenset(os.path.normpath(path) for option, path in pairs if option in WRITERS)


class Result(NamedTuple):
    """What a command answered."""

    code: int  # the exit code
    out: str  # standard output
    err: str  # standard error
    # {path in the working folder: its bytes}, of the files that were written
    written: dict[str, bytes]


def run_case(case: Case) -> Result:
    """Run the command in a folder of its own. Raises what is a bug in attncalc; AssertionError if
    it changes a file.
    """
    out, err = _Output(case, "strict"), _Output(case, "backslashreplace")
    stdin = io.TextIOWrapper(io.BytesIO(case.files.get(STREAM, b"")))
    with (
        _working_folder(case) as written,
        patch.dict(os.environ, {**_on_hub(case), **case.environment}),
        _without_torch(),
        patch.object(typer.main, "get_command", _cached_command),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        before = sys.argv, sys.stdin
        sys.argv, sys.stdin = ["attncalc", *case.arguments], stdin
        try:
            code = run()
        finally:
            sys.argv, sys.stdin = before
    return Result(code, out.text(), err.text(), written)


def _on_hub(case: Case) -> dict[str, str]:
    """Put the case's files on a hub on this machine, and return the variables that lead there; {}
    without any.
    """
    if not any(name.startswith(HUB) for name in case.files):
        return {}
    hub = _hub()
    hub.files, hub.behaviours = {}, {}
    for name, content in case.files.items():
        if name.startswith(HUB):
            organisation, repository, file = name.removeprefix(HUB).split("/", 2)
            hub.files.setdefault(f"{organisation}/{repository}", {})[file] = content
        elif name.startswith(BROKEN):
            hub.behaviours[name.removeprefix(BROKEN)] = functools.partial(
                _break_off, status=int(content)
            )
    return {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HUB_CACHE": "no-cache"}


def _break_off(handler: Handler, status: int) -> None:
    handler.end(status, headers={"Location": "/elsewhere", "Retry-After": "5"})


@functools.cache
def _hub() -> LocalHub:
    """Return a hub that runs until this process ends."""
    running = running_hub()
    hub = running.__enter__()
    atexit.register(running.__exit__, None, None, None)
    return hub


def _is_local(name: str) -> bool:
    """Whether a file of a case is in its folder: a file system may hold its name."""
    is_short = all(len(part.encode(errors="surrogatepass")) < 256 for part in name.split("/"))
    return is_short and name != STREAM and not name.startswith((HUB, BROKEN))


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    """Hide torch, so that `verify` gets as far as its options lead it. Modules that are imported
    stay imported.
    """
    before = sys.modules.get("torch")
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torch"]
        if before is not None:
            sys.modules["torch"] = before


# A command is built once: that takes longer than most commands.
_cached_command = functools.cache(typer.main.get_command)


class _Output(io.TextIOWrapper):
    """A stream in the case's encoding, which remembers what is written; standard error escapes what
    that lacks.
    """

    def __init__(self, case: Case, errors: str) -> None:
        self._bytes = io.BytesIO()
        self._terminal = case.terminal
        encoding = case.environment.get("PYTHONIOENCODING", "utf-8")
        super().__init__(self._bytes, encoding=encoding, errors=errors, newline="\n")

    def isatty(self) -> bool:
        return self._terminal

    def text(self) -> str:
        self.flush()
        return self._bytes.getvalue().decode(self.encoding)


@contextlib.contextmanager
def _working_folder(case: Case) -> Iterator[dict[str, bytes]]:
    """Work in a new folder with the case's files; afterwards, put what was written into the dict
    that is yielded.

    Raises AssertionError if a file appeared that the command line does not name, or one was changed
    or removed.
    """
    before = Path.cwd()
    outer = _new_folder()
    # ../x is inside the folder that is searched for changes too
    folder = os.path.join(outer, "work")
    written: dict[str, bytes] = {}
    try:
        for name, content in case.files.items():
            if _is_local(name):
                path = os.path.join(folder, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                if not name.endswith("/"):
                    with open(path, "wb") as file:
                        file.write(content)
        os.chdir(folder)
        yield written
        if case.files or case.outputs:
            _compare_files(case, folder, outer, written)
        else:
            assert os.listdir(outer) == ["work"], os.listdir(outer)
            assert not os.listdir(folder), os.listdir(folder)
    finally:
        os.chdir(before)
        if case.files or case.outputs or os.listdir(outer) != ["work"] or os.listdir(folder):
            shutil.rmtree(outer)
        else:
            _EMPTY.append(outer)


# Folders that a case left as they were, for the next ones: to remove one takes a millisecond.
_EMPTY: list[str] = []


def _new_folder() -> str:
    """Return a folder in which the folder `work` is empty."""
    if _EMPTY:
        return _EMPTY.pop()
    outer = tempfile.mkdtemp(prefix="attncalc-fuzz-")
    os.mkdir(os.path.join(outer, "work"))
    return outer


@atexit.register
def _remove_folders() -> None:
    for outer in _EMPTY:
        shutil.rmtree(outer, ignore_errors=True)


def _compare_files(case: Case, folder: str, outer: str, written: dict[str, bytes]) -> None:
    """Raise AssertionError if a file differs that the command line does not name; put those that it
    names in a dict.
    """
    known = {
        os.path.normpath(name): content for name, content in case.files.items() if _is_local(name)
    }
    found = set()
    for path in Path(outer).rglob("*"):
        if path.is_file():
            name = os.path.relpath(path, folder)
            found.add(name)
            content = path.read_bytes()
            if name in case.outputs and content != known.get(name):
                written[name] = content
            else:
                assert content == known.get(name), f"{name} was changed"
    missing = {
        os.path.normpath(name) for name in case.files if _is_local(name) and not name.endswith("/")
    } - found
    assert not missing, missing
