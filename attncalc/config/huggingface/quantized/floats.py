"""Schemes with floating-point elements: DeepSeek's fp8, NVIDIA's modelopt, MX formats, FBGEMM,
AMD's Quark.
"""

from collections.abc import Mapping
from typing import Any

from ....quantization import Scheme
from .compressed_tensors import MXFP4, MXFP8, NVFP4, config_groups
from .fields import Config, Read, UnreadError, block, by_module, modules, section

# FP8 with one fp32 scale per output.
_FP8 = Scheme("fp8", 8, scale_bits=32)
# FP8 with one fp32 scale per matrix, and one for its input.
_FP8_TENSOR = _FP8._replace(block=0, fixed=4)


def fp8(found: Config) -> Read:
    """Return DeepSeek's blocks with fp32 scales, or one scale per matrix (transformers'
    FineGrainedFP8Config).

    DeepSeek-V4 has scales of 8 bits, and experts in MXFP4 (expert_dtype), as MiMo-V2.6 has them
    (store_dtype). Its files have no scales for the matrices of pools and two of an indexer, which
    the config does not list.
    """
    ignored = found.get("modules_to_not_convert") or found.get("ignored_layers")
    names = str(found.get("names"))
    if names.startswith(("deepseek_v4", "deepseek_ref")):
        ignored = [*modules(ignored), "compressor", "indexer.wk", "indexer.weights_proj"]
    if found.get("weight_block_size") is None:
        if found.get("activation_scheme") == "static":
            scheme = _FP8_TENSOR
        else:
            scheme = _FP8_TENSOR._replace(fixed=0)
    else:
        outputs, inputs = block(found["weight_block_size"])
        scheme = _FP8._replace(group=inputs, block=outputs)  # weight_scale_inv
    if found.get("expert_dtype") and found.get("scale_fmt") == "ue8m0":
        scheme = scheme._replace(scale_bits=8)
    if str(found.get("moe_quant_algo") or "").upper() == "NVFP4":
        outside = []
        for name in modules(found.get("ignore")):
            if "mtp" in name or name == "head":
                outside.append(name)
        return (NVFP4._replace(targets=("experts",)), scheme), outside
    if found.get("expert_dtype") == "fp4" or found.get("store_dtype") == "mxfp4":
        schemes = [MXFP4._replace(targets=("experts",)), scheme]
        if names.startswith("deepseek_v41"):  # scales of single rows in its lookup tables
            schemes.insert(1, scheme._replace(block=1, targets=("engram.embed",)))
        return schemes, ignored
    return (scheme,), ignored


def mxfp8(found: Config) -> Read:
    """Return MXFP8: an exponent of 8 bits per 32 elements."""
    return (MXFP8,), found.get("modules_to_not_convert") or found.get("ignored_layers")


# {quant_algo of NVIDIA's modelopt: scheme}; AWQ and SmoothQuant add a 16-bit scale per input.
#
# Source: modelopt 0.47, torch/export/quant_utils.py; vLLM, layers/quantization/modelopt.py
# (QUANT_ALGOS).
_ALGORITHMS: dict[str, Scheme] = {
    "FP8": _FP8_TENSOR,
    "FP8_PER_CHANNEL_PER_TOKEN": _FP8,
    "FP8_PB_WO": _FP8._replace(group=128, block=128),
    "W8A16": Scheme("int8", 8, scale_bits=32, weight_only=True),
    "W8A8_SQ_PER_CHANNEL": Scheme("int8", 8, scale_bits=32, row_bits=16),
    "NVFP4": NVFP4,
    "NVFP4_AWQ": NVFP4._replace(row_bits=16),
    "W4A8_NVFP4_FP8": NVFP4,
    "W4A16_NVFP4": NVFP4._replace(fixed=4, weight_only=True),
    "MXFP8": MXFP8,
    "MXFP4": MXFP4,
    "W4A16_MXFP4": MXFP4._replace(weight_only=True),
    "W4A8_MXFP4_FP8": MXFP4,
}


def modelopt(found: Config) -> Read:
    """Return the schemes of NVIDIA's modelopt, in the config or in hf_quant_config.json beside
    it.
    """
    own = section(found, "quantization") or found
    ignored = own.get("exclude_modules") or own.get("ignore") or own.get("modules_to_not_convert")
    algorithm = str(own.get("quant_algo") or "").upper()
    if algorithm == "MIXED_PRECISION":
        layers = section(own, "quantized_layers")
        if not layers:
            return [_fp32_scales(scheme) for scheme in config_groups(own, heads=False)], ignored
        return by_module({name: section(layers, name) for name in layers}, _algorithm)[0], ignored
    if not algorithm and found.get("quant_method") == "nvfp4":  # transformers' NVFP4Config
        return (NVFP4,), ignored
    return (_algorithm(own),), ignored


def _algorithm(found: Config) -> Scheme:
    name = str(found.get("quant_algo") or "").upper()
    if name not in _ALGORITHMS:
        raise UnreadError(f"quant_algo {name or 'missing'}")
    return _ALGORITHMS[name]


def _fp32_scales(scheme: Scheme) -> Scheme:
    """Return a scheme of config_groups with modelopt's scales. Raises UnreadError for AWQ, whose
    scales vary.
    """
    if scheme.dtype == "int4":
        raise UnreadError("4-bit integers")
    if scheme.dtype == "fp8" and not scheme.group:
        return scheme._replace(scale_bits=32, fixed=4)
    return scheme


def fbgemm_fp8(found: Config) -> Read:
    """Return FBGEMM's fp8: an fp32 scale per output channel."""
    return (_FP8,), found.get("modules_to_not_convert")


def quark(found: Config) -> Read:
    """Return the schemes of AMD's Quark: one for all matrices, and others for modules that a
    pattern names.
    """
    ignored = [*modules(found.get("exclude"))]
    named, others = by_module(section(found, "layer_quant_config"), _quark_scheme)
    whole = _quark_scheme(section(found, "global_quant_config"))
    if whole is None and not named:
        raise UnreadError("no scheme")
    return [*named, *([whole] if whole else [])], [*ignored, *others]


def _quark_scheme(config: Any) -> Scheme | None:
    """Return the scheme of a config's weights; None if it has none. Raises UnreadError if it is not
    known.
    """
    weight = config.get("weight") if isinstance(config, Mapping) else None
    if weight is None:
        return None
    if not isinstance(weight, Mapping):
        raise UnreadError("weights that are not an object")
    stored = weight.get("dtype")
    scheme = weight.get("qscheme")
    group = weight.get("group_size")
    if stored in ("fp8_e4m3", "int8") and scheme in ("per_tensor", "per_channel"):
        form = Scheme("fp8" if stored == "fp8_e4m3" else "int8", 8, scale_bits=32)
        if scheme == "per_channel":
            return form
        return form._replace(block=0)
    if stored == "fp4" and scheme == "per_group" and group == 32:
        return MXFP4
    raise UnreadError(f"{stored} {scheme}")
