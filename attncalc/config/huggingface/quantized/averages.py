"""Formats whose modules have bits of their own: MLX, and ExLlama's EXL2 and EXL3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....quantization import LINEAR, Scheme
from .fields import Config, Read, UnreadError, average_bits, bits, by_scheme, integer, size

_MLX_MODES = {
    "mxfp4": Scheme("mxfp4", 4, group=32, scale_bits=8),
    "mxfp8": Scheme("fp8", 8, group=32, scale_bits=8),
    "nvfp4": Scheme("fp4", 4, group=16, scale_bits=8),
}
"""{mode of MLX: its scheme, without scales of the whole matrix}."""
_OWN_GATES = ("deepseek", "kimi", "glm4_moe", "mistral4", "bailing", "longcat")
"""Families whose router is no linear layer in mlx-lm, and is not quantized."""


def mlx(found: Config) -> Read:
    """Return MLX's schemes: a 16-bit scale and bias per group, for the embedding and the lm head too.

    A module's own entry goes before: other bits, or false. Source: mlx 0.32, `mx.quantize`; mlx-lm, utils.py
    (quantize_model), which writes a module's entry if the model's class chooses other bits for it.
    """
    scheme = _mlx_scheme(found)
    ignored = [str(name) for name, own in found.items() if own is False]
    named = {str(name): _mlx_scheme({**found, **own}) for name, own in found.items() if isinstance(own, Mapping)}
    targets = [LINEAR, "embed_tokens", "lm_head"]
    if not str(found.get("names") or "").startswith(_OWN_GATES):
        targets.append("mlp.gate")
    return [*by_scheme(named), scheme._replace(targets=tuple(targets))], ignored


def _mlx_scheme(found: Config) -> Scheme:
    mode = str(found.get("mode", "affine"))
    if mode in _MLX_MODES:
        return _MLX_MODES[mode]._replace(weight_only=True)
    if mode != "affine":
        raise UnreadError(f"mode {mode}")
    return integer(bits(found, (2, 3, 4, 5, 6, 8)), group=size(found, "group_size", 64), zero_bits=16)


def exl2(found: Config) -> Read:
    """Return EXL2's average bits, scales included, and the bits of its lm head (exllamav2, conversion/compile.py)."""
    return _with_head(found, 0), None


def exl3(found: Config) -> Read:
    """Return EXL3's average bits and those of its lm head, with a 16-bit scale per input and per output.

    Source: exllamav3, modules/quant/exl3.py (suh, svh).
    """
    return _with_head(found, 16), None


def _with_head(found: Config, scale_bits: int) -> list[Scheme]:
    """Return the scheme of the lm head, if it has one, and that of all other matrices."""
    schemes = []
    for key, target in (("head_bits", "lm_head"), ("bits", LINEAR)):
        value: Any = found.get(key)
        if value is None and key == "head_bits":
            continue
        n_bits, per = average_bits(found, key)
        average = f"{n_bits / per:g} bits per weight on average"
        dtype = "int4" if n_bits < 6 * per else "int8"
        scheme = Scheme(
            dtype, n_bits, scale_bits=scale_bits, row_bits=scale_bits, per=per, words=average, weight_only=True
        )
        schemes.append(scheme._replace(targets=(target,)))
    return schemes
