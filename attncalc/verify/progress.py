"""How far a verification is: the step that runs, how many there are, and about how long the rest will take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..units import duration

MEASURED_SECONDS = 2.0
"""Expected seconds of finished steps from which on their true time corrects the rest."""


def ignore(text: str) -> None:
    """Show nothing."""


class Progress:
    """Describes each step that begins: '7 of 22, about 3 min left: llama2-70b, decoder'.

    A program calls `expect` once, and then the object itself with the name of each step that begins.

    Attributes:
        later: expected seconds of each step of each program that follows the current one.
    """

    def __init__(self, show: Callable[[str], None] = ignore, clock: Callable[[], float] = time.monotonic) -> None:
        self._show, self._clock = show, clock
        self._started = clock()
        self._finished: list[float] = []
        self._running: list[float] = []
        self._ahead: list[float] = []
        self.later: Sequence[Sequence[float]] = ()

    def expect(self, steps: Sequence[float]) -> None:
        """Set the expected seconds of each step of the program that begins now."""
        self._finish()
        self._ahead = list(steps)

    def __call__(self, step: str) -> None:
        """Describe the step that begins; without its number if the program has not told how many there are."""
        self._finish()
        if not self._ahead:
            self._show(step)
            return
        self._running = [self._ahead.pop(0)]
        rest = [*self._running, *self._ahead, *(seconds for steps in self.later for seconds in steps)]
        number, seconds = len(self._finished) + 1, sum(rest) * self._correction()
        left = f", about {duration(seconds)} left" if seconds else ""
        self._show(f"{number} of {len(self._finished) + len(rest)}{left}: {step}")

    def _finish(self) -> None:
        self._finished += self._running
        self._running = []

    def _correction(self) -> float:
        """Return how much longer the finished steps took than expected; 1 before there is much to go by."""
        expected = sum(self._finished)
        return (self._clock() - self._started) / expected if expected >= MEASURED_SECONDS else 1.0
