"""Rows on their way to a file: progress for who watches, and Ctrl-C between two rows."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ...units import count
from ..progress import progress
from . import Row

QUIET_SECONDS = 0.5
"""Seconds of work before the progress is shown: a short sweep has none."""
_EVERY = 64
"""Rows between two looks at the clock."""


class Watch:
    """Counts rows while they are read, and ends them early when somebody types Ctrl-C.

    Attributes:
        rows: Rows that were read.
        errors: Those of them that have an error.
        interrupted: Whether Ctrl-C was typed.
    """

    def __init__(self, total: int, *, shows_progress: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.rows = 0
        self.errors = 0
        self.interrupted = False
        self._total = total
        self._shows_progress = shows_progress
        self._clock = clock

    def watched(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows, the last cell of which is an error or None."""
        start = self._clock()
        show: Callable[[str], None] | None = None
        with ExitStack() as stack:
            for row in rows:
                if self.interrupted:
                    return
                self.errors += row[-1] is not None
                yield row
                self.rows += 1
                if self.rows % _EVERY or not self._shows_progress or self._clock() - start < QUIET_SECONDS:
                    continue
                if show is None:
                    show = stack.enter_context(progress())
                show(f"{count(self.rows)} of {count(self._total)} rows")

    @contextmanager
    def between_rows(self) -> Iterator[None]:
        """Let Ctrl-C end the rows after the one that is being computed; a second Ctrl-C ends the program at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def interrupt(number: int, frame: Any) -> None:
            if self.interrupted:
                raise KeyboardInterrupt
            self.interrupted = True

        before = signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
