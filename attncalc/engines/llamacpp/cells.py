"""How many cells a stream has: of the whole context, and of a sliding window.

Source: llama.cpp's src/llama-context.cpp (n_ctx_seq) and src/llama-kv-cache-iswa.cpp.
"""

from __future__ import annotations

from ...quantity import ceil_div, minimum

PADDING = 256
"""The cells of a context are a multiple of this."""


def padded(cells: int) -> int:
    """Return `cells` rounded up to a multiple of PADDING."""
    return ceil_div(cells, PADDING) * PADDING


def window_cells(full_cells: int, window_tokens: int, ubatch: int) -> int:
    """Return the cells for the tokens of all windows in a stream and of a micro-batch, at most `full_cells`.

    llama.cpp cuts the micro-batch to the context first, which has the same effect.
    """
    return padded(minimum(full_cells, window_tokens + ubatch))
