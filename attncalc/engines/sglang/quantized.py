"""Quantized checkpoints in SGLang: which it loads, and when `--kv-cache-dtype auto` follows them."""

from __future__ import annotations

import re

from ...model import ModelSpec
from .versions import sglang_version

_NEVER_LOADED = ("mlx", "exl2", "exl3", "eetq", "bitnet", "hqq", "torchao", "fbgemm_fp8")
"""quant_methods that QUANTIZATION_METHODS (layers/quantization) does not have in 0.5.23."""


def loads_quantization(method: str, engine_version: str | None) -> bool:
    """Return whether SGLang loads checkpoints of that quant_method, if attncalc knows of it."""
    return method not in _NEVER_LOADED


def checkpoint_cache_dtype(model: ModelSpec, engine_version: str | None) -> str | None:
    """Return the dtype of the cache that SGLang takes from the checkpoint: fp8, or None for the model's.

    An NVFP4 cache is left to --kv-cache-dtype (mem_cache/kv_cache_dtype.py).
    """
    method = model.quantization.method if model.quantization else ""
    version, family = sglang_version(engine_version), re.split("[-_]", method)[0]
    is_read = {
        "modelopt": version.reads_modelopt_cache_dtype,
        "fp8": version.reads_fp8_cache_dtype,
        "compressed": version.reads_compressed_tensors_cache_dtype,
    }
    return "fp8" if is_read.get(family) and model.kv_dtype == "fp8" else None
