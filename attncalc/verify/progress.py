"""How far a verification is: the step that runs, how many there are, about how long the rest takes,
and its results.
"""

import math
import time
from collections.abc import Callable, Sequence

from ..check import VerifyResult
from ..records import NamedTuple
from ..units import duration

# Expected seconds of finished steps from which on their true time corrects the rest.
MEASURED_SECONDS = 2.0


def ignore(_: object) -> None:
    """Do nothing."""


class Models(NamedTuple):
    """Where one model is among several."""

    number: int  # its number, from 1
    total: int  # how many models there are
    later: float  # expected seconds of all models that follow
    deadline: float  # when the time for all ends, by the clock of the progress


class Progress:
    """Describes each step that begins: '2 of 3, about 3 min left: llama2-70b, decoder'; of several
    models, each model.

    A program calls `expect` once, then the object itself with the name of each step that begins,
    and `keep` with what it has measured so far, so that an interrupt loses nothing.
    """

    def __init__(
        self,
        show: Callable[[str], None] = ignore,
        clock: Callable[[], float] = time.monotonic,
        on_result: Callable[[VerifyResult], None] = ignore,
    ) -> None:
        self._show = show
        self._on_result = on_result
        self.clock = clock
        self._started = clock()
        self._finished: list[float] = []
        self._running: list[float] = []
        self._ahead: list[float] = []
        self.models: Models | None = None  # where the model is among several; None for a single one
        # what the program has measured so far; None if nothing
        self.result: VerifyResult | None = None

    def expect(self, steps: Sequence[float]) -> None:
        """Set the expected seconds of each step of the program that begins now."""
        self.finish()
        self._ahead = list(steps)
        self.result = None

    def finish(self) -> None:
        """Count the step that runs as finished."""
        self._finished += self._running
        self._running = []

    def keep(self, result: VerifyResult) -> None:
        """Keep what the program has measured so far."""
        self.result = result
        self._on_result(result)

    def __call__(self, step: str) -> None:
        """Describe the step that begins; without its number if the program has not told how many
        there are.
        """
        self.finish()
        if not self._ahead:
            self._show(step)
            return
        self._running = [self._ahead.pop(0)]
        rest = [*self._running, *self._ahead]
        number = len(self._finished) + 1
        total = len(self._finished) + len(rest)
        own = seconds = sum(rest) * self.correction()
        if self.models:
            number = self.models.number
            total = self.models.total
            seconds += self.models.later * self.correction()
            seconds = max(own, min(seconds, self.models.deadline - self.clock()))
        left = f", about {duration(seconds)} left" if seconds else ""
        self._show(f"{number} of {total}{left}: {step}")

    def correction(self) -> float:
        """Return how much longer the finished steps took than expected; 1 before there is much to
        go by.
        """
        expected = math.fsum(self._finished)
        if expected >= MEASURED_SECONDS:
            return (self.clock() - self._started) / expected
        return 1.0
