"""The figures of a start-up log beside the predicted ones, as engines compare them."""

from __future__ import annotations

from typing import NamedTuple

from ..check import Check
from ..units import BYTES, TOKENS
from .base import Pool
from .startup_log import Printed, StartupLog

SIZES = {
    "state_slots": "slots of states",
    "conv_state_size": "states of convolutions",
    "ssm_state_size": "recurrent states",
    "kv_tokens": "tokens",
    "full_kv_tokens": "tokens of the full pool",
    "swa_kv_tokens": "tokens of the window pool",
    "kv_size": "KV cache",
    "k_size": "K",
    "v_size": "V",
    "full_k_size": "K of the full pool",
    "full_v_size": "V of the full pool",
    "swa_k_size": "K of the window pool",
    "swa_v_size": "V of the window pool",
    "swa_kv_size": "KV cache of sliding windows",
    "indexer_kv_size": "keys of the indexer",
    "recurrent_size": "recurrent states",
    "n_ctx": "n_ctx",
}
"""The figures of the caches of SGLang and llama.cpp."""


class LogMemory(NamedTuple):
    """The memory for the cache that a log has, in bytes, and the bounds that its rounding leaves.

    Attributes:
        low: The least memory that would be printed so.
        printed: The memory as printed; negative if weights and reserve are larger than the engine's share.
        high: The most memory that would be printed so.
        source: Where the memory is from: the line of the log.
    """

    low: int
    printed: int
    high: int
    source: str


LogChecks = tuple[LogMemory | None, tuple[Check, ...]]
"""The memory for the cache, None if the engine did not get so far; and each figure beside the predicted one."""


def figure_of(name: str, pool: Pool) -> int | float:
    """Return a figure of a pool by its name in logs; 0 if it has none."""
    if name == "concurrency":
        return float(pool.concurrency)
    if name == "kv_tokens":
        return int(pool.tokens)
    if name == "kv_blocks":
        return int(pool.blocks or 0)
    return next((int(d.quantity) for d in pool.details if d.name == name), 0)


def size_checks(log: StartupLog, predicted: dict[str, Printed], given: str = "") -> tuple[Check, ...]:
    """Return the checks of printed figures with predicted ones that are rounded alike; not of the given one."""
    return tuple(
        Check(
            "log",
            name,
            SIZES[name],
            predicted[name].bytes,
            log.logged[name].bytes,
            2 * log.logged[name].half,  # both are rounded
            BYTES if name.endswith("_size") else TOKENS,
            "both are rounded" if name.endswith("_size") else "exact",
        )
        for name in SIZES
        if name in log.logged and name in predicted and name != given
    )
