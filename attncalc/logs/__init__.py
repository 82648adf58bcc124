"""What engines print: the readers of their logs, and what a log says about a failed start.

Each engine whose logs are read has a module here, its reader, and one line in READERS.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from ..engines.base import CacheLayout
    from .startup_log import Advice, LogChecks, LogRefusal, StartupLog

# {the name of an engine: the module that reads its logs}, which is imported on first use.
READERS = {"vllm": ".vllm", "sglang": ".sglang", "llamacpp": ".llamacpp"}


class Reader(Protocol):
    """The module that reads the logs of one engine."""

    SIGNS: re.Pattern[str]  # a pattern of the lines of its log
    # hundredths by which logged weights may be below and above
    WEIGHTS_TOLERANCE: tuple[int, int]
    PREEMPTED: str  # its word for a running request that lost its cache

    def read_log(self, lines: Sequence[str], stated: LogRefusal | None = None) -> StartupLog | None:
        """Return the contents of a start-up log; None if it has neither the size of a cache nor why
        there is none.

        `stated` is why, if a message states it.
        """

    def log_checks(
        self, log: StartupLog, layout: CacheLayout, args: Any, context: int
    ) -> LogChecks:
        """Return the memory for the cache that a log has, and its figures beside the predicted
        ones.
        """

    def log_advice(self, log: StartupLog) -> tuple[Advice, ...]:
        """Return what the log of a failed start suggests without the model's sizes, the least
        costly change first.
        """

    def logged_gpu_memory(self, log: StartupLog) -> int | None:
        """Return the bytes of the GPU that a log has; None if it has none."""

    def logged_room(
        self, log: StartupLog, memory: int | None, share: str | float | None
    ) -> int | None:
        """Return the bytes that were left for the cache, negative if weights and runtime memory
        were too large.

        None if the log does not have them.

        `memory` is what it printed for the cache, and `share` the share of the GPU's memory that
        was given.
        """


def find_reader(engine: str) -> Reader:
    """Return the reader of an engine's logs. `engine` is a key of READERS."""
    return cast("Reader", import_module(READERS[engine], __name__))
