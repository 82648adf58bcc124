"""Rows on their way to a file: progress for who watches, and an end between two rows after
Ctrl-C.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ...show.formats import Row
from ...show.progress import progress
from ...units import count

# Seconds of work before the progress is shown: a short sweep has none.
_QUIET_SECONDS = 0.5
# Rows between two looks at the clock.
_EVERY = 64


class Watch:
    """Counts rows while they are read, and ends them early after a signal."""

    def __init__(
        self, total: int, *, shows_progress: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rows = 0  # rows that were read
        self.errors = 0  # those of them that have an error
        # the number of the signal that ended the rows, as SIGINT after Ctrl-C; 0 for none
        self.signal = 0
        self._total = total
        self._shows_progress = shows_progress
        self._clock = clock

    @property
    def interrupted(self) -> str:
        """Where a signal has ended the rows: 'interrupted after 3 of 40 rows'."""
        return f"interrupted after {count(self.rows)} of {count(self._total)} rows"

    def watched(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows, the last cell of which is an error or None.

        After a signal, the last row has no other cell than the error that the rows are interrupted.
        """
        start = self._clock()
        show: Callable[[str], None] | None = None
        with ExitStack() as stack:
            for row in rows:
                if self.signal:
                    yield (*(None for _ in row[:-1]), self.interrupted)
                    return
                if row[-1] is not None:
                    self.errors += 1
                yield row
                self.rows += 1
                if (
                    self.rows % _EVERY
                    or not self._shows_progress
                    or self._clock() - start < _QUIET_SECONDS
                ):
                    continue
                if show is None:
                    show = stack.enter_context(progress())
                show(f"{count(self.rows)} of {count(self._total)} rows")

    @contextmanager
    def between_rows(self) -> Iterator[None]:
        """Let Ctrl-C and SIGTERM end the rows after the one that is being computed; a second one
        ends at once.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def interrupt(number: int, frame: Any) -> None:
            if self.signal:
                sys.exit(128 + number)
            self.signal = number

        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        caught = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
        for number in caught:
            signal.signal(number, interrupt)
        try:
            yield
        finally:
            for number in caught:
                signal.signal(number, before[number])
