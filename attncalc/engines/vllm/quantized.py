"""Quantized checkpoints in vLLM: which it loads, and when `--kv-cache-dtype auto` follows them."""

from __future__ import annotations

from ...model import ModelSpec
from .versions import vllm_version

_NEVER_LOADED = ("mlx", "exl2", "exl3", "eetq", "bitnet")


def loads_quantization(method: str, engine_version: str | None) -> bool:
    """Return whether a version of vLLM loads checkpoints of that quant_method, if attncalc knows of it."""
    version = vllm_version(engine_version)
    dropped = {"bitsandbytes": version.loads_bitsandbytes, "hqq": version.loads_hqq}
    return method not in _NEVER_LOADED and dropped.get(method, True)


def checkpoint_cache_dtype(model: ModelSpec, engine_version: str | None) -> str | None:
    """Return the dtype of the cache that vLLM takes from the checkpoint; None if it takes the model's.

    MLA does not read compressed-tensors' kv_cache_scheme: only `Attention` does, and not `MLAAttention`.
    """
    version, method = vllm_version(engine_version), model.quantization.method if model.quantization else ""
    if method.startswith("compressed"):
        has_mla = any(kind.label == "MLA" for _, layers in model.groups() for kind in layers.attentions)
        return model.kv_dtype if version.reads_compressed_tensors_cache_dtype and not has_mla else None
    is_read = version.reads_modelopt_fp4_cache if model.kv_dtype == "fp4" else version.reads_modelopt_cache_dtype
    return model.kv_dtype if method.startswith("modelopt") and is_read else None
