"""The current step on standard error: a bar on a terminal, otherwise a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LINE_SECONDS = 60.0
"""Seconds between two lines where standard error is not a terminal."""


@contextmanager
def progress(clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current step.

    A bar on a terminal disappears at the end. In a pipe or a file there is at most one line per LINE_SECONDS, and none
    before the first LINE_SECONDS are over, so that short runs print nothing.
    """
    if sys.stderr is None:
        yield lambda _: None
        return
    if not sys.stderr.isatty():
        yield _lines(clock)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), BarColumn(bar_width=12), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda step: bar.update(task, description=step)


def _lines(clock: Callable[[], float]) -> Callable[[str], None]:
    """Return a function that prints a step if the last line, or the start, was LINE_SECONDS ago."""
    last = clock()

    def show(step: str) -> None:
        nonlocal last
        if clock() - last >= LINE_SECONDS:
            last = clock()
            sys.stderr.write(f"{step}\n")
            sys.stderr.flush()

    return show
