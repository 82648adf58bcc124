"""The longest context of a config.json: RoPE scaling multiplies it.

Source: vLLM's _get_and_verify_max_len (config/model.py), which SGLang follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from sys import float_info
from typing import Any

_SCALED_ALREADY = frozenset({"default", "su", "longrope", "llama3", "mrope"})
"""rope_types whose max_position_embeddings is the scaled context, or that do not scale."""


def scaled_context(model_type: str, given: Mapping[str, Any], maximum: int) -> int:
    """Return the longest context: `maximum` (max_position_embeddings) times the factor of RoPE scaling.

    YaRN multiplies its original_max_position_embeddings; a `maximum` that is larger was scaled already. Gemma 3's is.
    """
    if "gemma3" in model_type:
        return maximum
    for scaling in _scalings(given):
        kind, factor = str(scaling.get("rope_type", scaling.get("type", "default"))), scaling.get("factor")
        if kind in _SCALED_ALREADY or not isinstance(factor, (int, float)) or not isfinite(factor):
            continue
        original = scaling.get("original_max_position_embeddings") if "yarn" in kind else None
        scaled = (original if isinstance(original, int) and original else maximum) * factor
        maximum = max(maximum, int(min(scaled, float_info.max)))  # 10^5 * 10^308 is infinite
    return maximum


def _scalings(given: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the config's RoPE scaling: one for all layers, or one per type of layer."""
    scaling = given.get("rope_scaling") or given.get("rope_parameters")
    if not isinstance(scaling, Mapping):
        return
    nested = [value for value in scaling.values() if isinstance(value, Mapping)]
    yield from nested or [scaling]
