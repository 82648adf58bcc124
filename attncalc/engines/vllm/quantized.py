"""Quantized checkpoints in vLLM: which it loads, and when `--kv-cache-dtype auto` follows them."""

from __future__ import annotations

from ...model import ModelSpec
from .versions import vllm_version

_MODELOPT = (0, 14)
"""The first version with get_kv_cache_quant_algo_string (utils/torch_utils.py), which reads modelopt's configs."""
_NVFP4 = (0, 20)
"""The first version whose MODELOPT_TO_VLLM_KV_CACHE_DTYPE_MAP has nvfp4."""
_COMPRESSED_TENSORS = (0, 15)
"""The first version in which a kv_cache_scheme of compressed-tensors makes the cache fp8 (attention/layer.py)."""
_NEVER_LOADED = ("mlx", "exl2", "exl3", "eetq", "bitnet")
_LOADED_BEFORE = {"bitsandbytes": (0, 28), "hqq": (0, 14)}
"""{quant_method: the first version known that has it no more in QuantizationMethods (layers/quantization)}."""


def loads_quantization(method: str, engine_version: str | None) -> bool:
    """Return whether a version of vLLM loads checkpoints of that quant_method, if attncalc knows of it."""
    last = _LOADED_BEFORE.get(method)
    return method not in _NEVER_LOADED and (last is None or vllm_version(engine_version).number < last)


def checkpoint_cache_dtype(model: ModelSpec, engine_version: str | None) -> str | None:
    """Return the dtype of the cache that vLLM takes from the checkpoint; None if it takes the model's.

    MLA does not read compressed-tensors' kv_cache_scheme: only `Attention` does, and not `MLAAttention`.
    """
    number, method = vllm_version(engine_version).number, model.quantization.method if model.quantization else ""
    if method.startswith("compressed"):
        has_mla = any(kind.label == "MLA" for _, layers in model.groups() for kind in layers.attentions)
        return model.kv_dtype if number >= _COMPRESSED_TENSORS and not has_mla else None
    first = _NVFP4 if model.kv_dtype == "fp4" else _MODELOPT
    return model.kv_dtype if method.startswith("modelopt") and number >= first else None
