"""The rows of a sweep from several processes, in the order of one process."""

from __future__ import annotations

import math
import signal
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

from .sweep import Row, Sweep

CHUNK = 5_000
"""Rows that a process computes at a time, unless one batch has more contexts."""
_AHEAD = 2
"""Chunks per process that are computed before they are read, so that the memory is bounded."""


class Chunk(NamedTuple):
    """Rows that one process computes: a part of a setting's batches.

    Attributes:
        setting: The number of the setting.
        first: The number of the first batch.
        last: The number after the last batch.
    """

    setting: int
    first: int
    last: int


def chunks(sweep: Sweep) -> Iterator[Chunk]:
    """Yield the chunks in the order of their rows."""
    batches, contexts = len(sweep.values_of("batch")), len(sweep.values_of("context"))
    step = max(1, CHUNK // contexts)
    settings = math.prod(len(axis.values) for axis in sweep.outer)
    for setting in range(settings):
        for first in range(0, batches, step):
            yield Chunk(setting, first, min(first + step, batches))


def rows_in_parallel(sweep: Sweep, jobs: int, escape: Callable[[str], str] = str) -> Iterator[Row]:
    """Yield the rows of the sweep, in its order, computed by that many processes."""
    waiting: deque[Future[list[Row]]] = deque()
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _start, (sweep, escape))
    try:
        for chunk in chunks(sweep):
            waiting.append(pool.submit(_rows, chunk))
            if len(waiting) > _AHEAD * jobs:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


class _Process:
    """What a process keeps: the sweep, and how texts are escaped."""

    sweep: Sweep
    escape: Callable[[str], str]


def _start(sweep: Sweep, escape: Callable[[str], str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    _Process.sweep = sweep
    _Process.escape = staticmethod(escape)


def _rows(chunk: Chunk) -> list[Row]:
    sweep = _Process.sweep
    batches = sweep.values_of("batch")[chunk.first : chunk.last]
    return list(sweep.rows_of(sweep.setting(chunk.setting), _Process.escape, batches))
