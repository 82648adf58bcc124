"""The longest context of a config.json: RoPE scaling multiplies it.

Source: vLLM's _get_and_verify_max_len (config/model.py), which SGLang follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isnan
from typing import Any

_SCALED_ALREADY = frozenset({"default", "su", "longrope", "llama3", "mrope"})
"""rope_types whose max_position_embeddings is the scaled context, or that do not scale."""

_TOO_LARGE = 10**18
"""Above the longest context of a model file, 10^15."""


def scaled_context(model_type: str, given: Mapping[str, Any], maximum: int) -> int:
    """Return the longest context: `maximum` (max_position_embeddings) times the factor of RoPE scaling.

    YaRN multiplies its original_max_position_embeddings; a `maximum` that is larger was scaled already. Gemma 3's is.
    """
    if "gemma3" in model_type:
        return maximum
    for scaling in _scalings(given):
        kind, factor = str(scaling.get("rope_type", scaling.get("type", "default"))), scaling.get("factor")
        if kind in _SCALED_ALREADY or not isinstance(factor, (int, float)):
            continue
        if isnan(factor):
            continue
        original = scaling.get("original_max_position_embeddings") if "yarn" in kind else None
        scaled = _bounded(original if isinstance(original, int) and original else maximum) * _bounded(factor)
        maximum = max(maximum, int(scaled))
    return maximum


def _bounded(number: float) -> float:
    """Return a number, or one that is too large for a context: the product of two of them is finite, and an error."""
    return max(-_TOO_LARGE, min(number, _TOO_LARGE))


def _scalings(given: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the config's RoPE scaling: one for all layers, or one per type of layer."""
    scaling = given.get("rope_scaling") or given.get("rope_parameters")
    if not isinstance(scaling, Mapping):
        return
    nested = [value for value in scaling.values() if isinstance(value, Mapping)]
    yield from nested or [scaling]
