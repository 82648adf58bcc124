"""The current step on standard error: a bar on a terminal, otherwise a line now and then."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Seconds between two lines where standard error is not a terminal.
LINE_SECONDS = 30.0


@contextmanager
def progress(*, plain: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current step.

    A bar on a terminal disappears at the end. `plain`, in a pipe, with NO_COLOR or TERM=dumb there
    is a line each LINE_SECONDS, however long a step takes, and none before the first LINE_SECONDS
    are over, so that short runs print nothing.
    """
    if sys.stderr is None:
        yield lambda _: None
        return
    if (
        plain
        or not sys.stderr.isatty()
        or os.environ.get("NO_COLOR")
        or os.environ.get("TERM") == "dumb"
    ):
        with _lines() as show:
            yield show
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        BarColumn(bar_width=12),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda step: bar.update(task, description=step)


@contextmanager
def _lines() -> Iterator[Callable[[str], None]]:
    """Yield a function that takes the current step, which a thread prints each LINE_SECONDS."""
    current = [""]
    ended = threading.Event()

    def print_steps() -> None:
        while not ended.wait(LINE_SECONDS):
            sys.stderr.write(f"{current[0]}\n")
            sys.stderr.flush()

    thread = threading.Thread(target=print_steps, daemon=True)
    thread.start()
    try:
        yield lambda step: current.__setitem__(0, step)
    finally:
        ended.set()
        thread.join()
