"""The program that runs an engine for `verify --engine`, and leaves nothing of it.

It needs nothing but Python, and is started as `python -I guard.py FOLDER` in a session of its own.
Each line on its standard input starts a program: {"command": [...], "environment": {...}, "log":
"engine.log"}. It answers with a line when a program ends: its exit code. When standard input ends,
because attncalc closes it or is killed, it stops the program with all its children and removes
FOLDER.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time

# Seconds between two looks at the program.
_STEP = 0.1
# Seconds that processes have after SIGTERM, and then without the processes that clean up after
# them.
_TERM_SECONDS = 5.0
_CLEAN_SECONDS = 1.0
# prctl's number for "orphans among my descendants become my children" (linux/prctl.h).
_PR_SET_CHILD_SUBREAPER = 36
# and for a signal that a process gets when its parent ends, as when this one is killed.
_PR_SET_PDEATHSIG = 1
# Python's process that removes shared memory and semaphores once their users are gone.
_CLEANER = b"resource_tracker"
_SHARED_MEMORY = "/dev/shm/"


class Guarded:
    """The program that runs, with all processes that it starts."""

    def __init__(self) -> None:
        self.pid = 0  # of the program; 0 if none runs
        self.group = 0  # its group of processes, also after its end
        self.code: int | None = None

    def start(self, line: bytes, folder: str) -> None:
        """Start the program of a line."""
        asked = json.loads(line)
        with open(os.path.join(folder, asked["log"]), "ab") as log:
            try:
                program = subprocess.Popen(
                    asked["command"],
                    cwd=folder,
                    env=asked["environment"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=_end_with_parent,  # noqa: PLW1509 - there is one thread
                )
            except OSError as error:
                log.write(f"{asked['command'][0]}: {error.strerror}\n".encode())
                self.code = 127
                return
        self.pid = program.pid
        self.group = program.pid
        self.code = None

    def reap(self) -> None:
        """Note which children have ended."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.pid:
                    self.pid = 0
                    self.code = os.waitstatus_to_exitcode(status)

    def stop(self) -> None:
        """End all processes, first by asking them to."""
        shared = {path for pid in descendants() for path in shared_memory(pid)}
        self._signal(signal.SIGTERM)
        self._wait(_TERM_SECONDS)
        self._signal(signal.SIGKILL, but=_CLEANER)
        self._wait(_CLEAN_SECONDS)
        while self._runs():
            self._signal(signal.SIGKILL)
            self._wait(_STEP)
        for path in shared:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _runs(self) -> bool:
        self.reap()
        return bool(self.pid or descendants())

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self._runs() and time.monotonic() < end:
            time.sleep(_STEP / 4)

    def _signal(self, number: int, but: bytes = b"") -> None:
        found = descendants()
        for pid in found:
            if but and but in command_line(pid):
                continue
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        if self.group and not os.path.exists("/proc/self"):
            with contextlib.suppress(OSError):
                os.killpg(self.group, number)


def descendants() -> list[int]:
    """Return the processes that this one has started, and those that they started; [] without
    /proc.
    """
    children: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for name in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # pid (name, which may have blanks and brackets) state parent
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    children.setdefault(int(parent), []).append(int(name))
    found: list[int] = []
    ahead = [os.getpid()]
    while ahead:
        own = children.get(ahead.pop(), [])
        found += own
        ahead += own
    return found


def command_line(pid: int) -> bytes:
    """Return the command of a process; b'' if it is gone."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()
    return b""


def shared_memory(pid: int) -> set[str]:
    """Return the files of shared memory that a process uses, and that were made since this one
    began.
    """
    begun = os.stat(f"/proc/{os.getpid()}").st_ctime
    found = set()
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        for line in file:
            path = line.rstrip("\n").partition(_SHARED_MEMORY)[2]
            with contextlib.suppress(OSError):
                if path and os.stat(_SHARED_MEMORY + path).st_ctime >= begun - 1:
                    found.add(_SHARED_MEMORY + path)
    return found


def _end_with_parent() -> None:
    """Let this process get SIGTERM when its parent ends, where the system can."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def adopt_orphans() -> None:
    """Let orphans among the descendants become children of this process, where the system can."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def main(folder: str) -> None:
    # A handler and not SIG_IGN, which the engine would inherit.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    adopt_orphans()
    guarded = Guarded()
    waiting = b""
    is_running = False
    while True:
        if select.select([0], [], [], _STEP)[0]:
            read = os.read(0, 1 << 16)
            if not read:
                break
            *lines, waiting = (waiting + read).split(b"\n")
            for line in lines:
                guarded.start(line, folder)
                is_running = True
        guarded.reap()
        if is_running and guarded.code is not None:
            is_running = False
            guarded.stop()  # what a program that died has left
            with contextlib.suppress(OSError):
                os.write(1, f"{guarded.code}\n".encode())
    guarded.stop()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
