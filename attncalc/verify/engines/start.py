"""A running engine: started, watched by its log, and stopped with all its children on every way
out.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal

from ...errors import CannotCheckError
from ...records import NamedTuple

# Seconds between two looks at the log.
_STEP = 0.5
# Seconds that an engine has to end by itself after its log says why it does not start.
_REFUSAL_SECONDS = 15.0
# Seconds that the guard has to stop everything: more than it waits after SIGTERM.
_STOP_SECONDS = 30.0
# The log of the engine in the folder of the guard.
LOG = "engine.log"
# How far a log is.
State = Literal["unfinished", "refused", "complete"]
# Why an engine was stopped: its log is complete, it ended by itself, or the time was over.
Ending = Literal["complete", "died", "late"]


class Installed(NamedTuple):
    """An engine that is installed."""

    program: Path  # what starts it
    python: Path  # the Python that it runs in, or would
    is_library: bool = False  # whether a program of attncalc loads it, which allocates nothing


class Watched(NamedTuple):
    """What was seen of a start."""

    log: bytes  # what the engine printed
    ending: Ending
    code: int | None  # the exit code of an engine that ended by itself, negative for a signal
    seconds: float  # from the start on


class Guard:
    """A folder and the programs that run in it, one after the other. Both are gone afterwards.

    with Guard() as guard:
        guard.start(["vllm", "serve", ...], environment)
        watched = guard.watch(state_of, seconds=60, on_step=print)

    A process in a session of its own does the work (guard.py): it also ends everything if this one
    is killed.
    """

    def __init__(self) -> None:
        """Raise CannotCheckError on Windows, which has no sessions of processes."""
        if sys.platform == "win32":
            raise CannotCheckError("verify --engine needs Linux or macOS", "use WSL")
        self.folder = Path(tempfile.mkdtemp(prefix="attncalc-engine-"))
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    os.fspath(Path(__file__).with_name("guard.py")),
                    self.folder,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def __enter__(self) -> Guard:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        # a second Ctrl-C ends the wait, and the guard goes on
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        self._process.stdout.close()
        if self._process.returncode:  # it was killed, and removed nothing
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: str = LOG) -> None:
        """Start a program in the folder, whose output goes into a file there."""
        assert self._process.stdin is not None
        asked = {"command": [*command], "environment": {**environment}, "log": log}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], seconds: float
    ) -> Watched:
        """Run a program to its end, or until the time is over."""
        name = "program.log"
        self.start(command, environment, name)
        return self.watch(lambda log: "unfinished", seconds, log=name)

    def watch(
        self,
        state_of: Callable[[bytes], State],
        seconds: float,
        on_step: Callable[[bytes], None] = lambda log: None,
        log: str = LOG,
    ) -> Watched:
        """Wait for the end of the program, of its time, or for a log that is complete.

        Args:
            state_of: Returns how far a log is. It is asked at most twice a second, and only if the
                log is longer than before.
            seconds: The time limit.
            on_step: Gets the log as often.
            log: The file of the log.
        """
        begun = time.monotonic()
        end = begun + seconds
        path = self.folder / log
        read = b""
        refused_until: float | None = None
        while True:
            code = self._code(max(0.0, min(_STEP, end - time.monotonic())))
            before = len(read)
            with contextlib.suppress(OSError):
                if path.stat().st_size > before:
                    read = path.read_bytes()
            if len(read) > before:
                state = state_of(read)
                if state == "complete":
                    return Watched(read, "complete", code, time.monotonic() - begun)
                if state != "refused":
                    refused_until = None
                elif refused_until is None:
                    refused_until = time.monotonic() + _REFUSAL_SECONDS
            on_step(read)
            if code is not None:
                return Watched(read, "died", code, time.monotonic() - begun)
            if refused_until is not None and time.monotonic() >= refused_until:
                return Watched(read, "died", None, time.monotonic() - begun)
            if time.monotonic() >= end:
                return Watched(read, "late", None, time.monotonic() - begun)

    def _code(self, seconds: float) -> int | None:
        """Wait so long for the end of the program, and return its exit code; None if it runs."""
        assert self._process.stdout is not None
        ready = select.select([self._process.stdout], [], [], seconds)[0]
        if not ready:
            return None
        line = self._process.stdout.readline()
        if not line:
            raise CannotCheckError("the process that guards the engine was killed")
        return int(line)


def without_options(words: Sequence[str], names: Mapping[str, int]) -> list[str]:
    """Return the words of a command without options that the start sets itself.

    `names` has the words that follow an option: -1 for all up to the next option.
    """
    found: list[str] = []
    rest = [*reversed(words)]
    while rest:
        word = rest.pop()
        name, has_value, _ = word.partition("=")
        following = names.get(name.replace("_", "-"))
        if following is None:
            found.append(word)
            continue
        left = 0 if has_value else following
        while left and rest and not (following < 0 and rest[-1].startswith("-")):
            rest.pop()
            left -= 1
    return found


def engine_environment(
    folder: Path, own: Mapping[str, str], folders: Sequence[str]
) -> dict[str, str]:
    """Return the environment of an engine: this one's, without what gives its Python other modules.

    Args:
        folder: Where its caches and temporary files are.
        own: Further variables.
        folders: Variables of folders, each of which gets a folder of its own.
    """
    left_out = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    found = {name: value for name, value in os.environ.items() if name not in left_out}
    for name in (*folders, "TMPDIR"):
        path = folder / name.lower()
        path.mkdir(exist_ok=True)
        found[name] = os.fspath(path)
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"}
    return {**found, **offline, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", **own}
