"""The two figures of the cache per token: at the workload's context, and while no window is full.

They differ in models with windows. Mistral 7B v0.1 has a window of 4,096 tokens in all 32 layers. Each of the first
4,096 tokens adds 128 KiB. At a context of 32,768 every window is full: the next token replaces the oldest, adding 0 B.
"""

from __future__ import annotations

from ..quantity import Quantity
from ..units import BYTES
from .report import Figure

AT_CONTEXT = "per token, at this context"
NO_WINDOW_FULL = "per token, no window full"


def at_context(value: Quantity, source: str, of: str = "") -> Figure:
    """Return the bytes that the next token of a sequence adds at the workload's context."""
    return Figure("kv_cache_per_token", AT_CONTEXT, value, BYTES, source, of)


def no_window_full(value: Quantity, source: str, of: str = "") -> Figure:
    """Return the bytes that the next token of a sequence adds while no window is full."""
    return Figure("kv_cache_per_token_max", NO_WINDOW_FULL, value, BYTES, source, of)
