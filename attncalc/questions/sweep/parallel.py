"""The rows of a sweep from several processes, in the order of one process."""

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import islice

from ...errors import AttncalcError
from .sweep import Row, Sweep

# Rows that a process computes at a time, unless one batch has more contexts.
CHUNK = 5_000

_WORKER = f"import sys; sys.path[:] = sys.argv[1:]; from {__name__} import work; work()"


def _chunks(sweep: Sweep) -> Iterator[tuple[int, slice]]:
    """Yield the number of a setting and a part of its batches, which one process computes, in the
    order of the rows.
    """
    batches = len(sweep.values_of("batch"))
    contexts = len(sweep.values_of("context"))
    step = max(1, CHUNK // contexts)
    for setting in range(sweep.n_settings):
        for first in range(0, batches, step):
            yield setting, slice(first, first + step)


def rows_in_parallel(sweep: Sweep, jobs: int, escape: Callable[[str], str] = str) -> Iterator[Row]:
    """Yield the rows of the sweep, in its order, computed by that many processes.

    Of three processes the first computes chunks 0, 3, 6 and so on. Each writes its rows into a
    pipe, and waits there until they are read, so that the memory is bounded. Its standard input
    ends when this process ends in whatever way, and then the process ends too.
    """
    workers: list[subprocess.Popen[bytes]] = []
    try:
        for _ in islice(_chunks(sweep), jobs):  # no more than there are chunks
            workers.append(_start())
        for first, worker in enumerate(workers):
            assert worker.stdin is not None
            pickle.dump((sweep, escape, first, len(workers)), worker.stdin)
            worker.stdin.flush()
        for number, _ in enumerate(_chunks(sweep)):
            yield from _received(workers[number % len(workers)])
    except (OSError, EOFError, pickle.UnpicklingError):
        raise AttncalcError(
            f"--jobs {jobs}: a process cannot be started, or ended early",
            "leave --jobs out, or give fewer processes",
        ) from None
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.communicate()


def _start() -> subprocess.Popen[bytes]:
    """Start a process in a session of its own: Ctrl-C ends this process, which ends the others."""
    # multiprocessing would share semaphores and the streams: without this process a worker waits
    # for ever and keeps standard error open, and one that has just started prints a traceback.
    return subprocess.Popen(
        [sys.executable, "-c", _WORKER, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _received(worker: subprocess.Popen[bytes]) -> list[Row]:
    assert worker.stdout is not None
    rows = pickle.load(worker.stdout)
    if isinstance(rows, Exception):
        raise rows
    return rows  # type: ignore[no-any-return]


def work() -> None:
    """Compute the rows that standard input asks for, and write each chunk of them to standard
    output.
    """
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)
    sweep, escape, first, step = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    for setting, batches in islice(_chunks(sweep), first, None, step):
        pickle.dump(
            _rows(sweep, escape, setting, batches), sys.stdout.buffer, pickle.HIGHEST_PROTOCOL
        )
        sys.stdout.buffer.flush()


def _end_with_standard_input() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def _rows(
    sweep: Sweep, escape: Callable[[str], str], setting: int, batches: slice
) -> list[Row] | Exception:
    try:
        return list(
            sweep.rows_of(sweep.setting(setting), escape, sweep.values_of("batch")[batches])
        )
    except Exception as error:
        return error
