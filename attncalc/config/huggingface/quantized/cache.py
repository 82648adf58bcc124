"""The dtype of the cache that a checkpoint asks for, from which an engine derives its default."""

from __future__ import annotations

from collections.abc import Mapping

from .fields import Config, section


def kv_dtype(method: str, found: Config) -> str | None:
    """Return the dtype of the cache that a quantization_config asks for: 'fp8', 'fp4', or None.

    compressed-tensors: any kv_cache_scheme stands for fp8 in vLLM (layers/attention/attention.py), which allows only 8
    bits (validate_kv_cache_scheme). modelopt: a kv_cache_scheme, or a kv_cache_quant_algo
    (get_kv_cache_quant_algo_string in utils/torch_utils.py). Which engines follow it, and since which version, is in
    their own modules.
    """
    if method.startswith("compressed"):
        scheme = found.get("kv_cache_scheme")
        return "fp8" if isinstance(scheme, Mapping) and scheme.get("num_bits", 8) == 8 else None
    if not method.startswith(("modelopt", "nvfp4", "fp8")):
        return None
    own = section(found, "quantization") or found
    names = ("kv_cache_scheme", "kv_cache_quant_algo")
    asked = next((given[name] for name in names for given in (own, found) if given.get(name)), None)
    if isinstance(asked, Mapping):
        bits = asked.get("num_bits") if asked.get("type") == "float" else None
        return "fp4" if bits == 4 else "fp8" if bits == 8 and asked.get("dynamic") is not True else None
    return {"fp8": "fp8", "nvfp4": "fp4"}.get(str(asked).lower()) if asked else None
