"""Read a quantization_config: how a checkpoint stores its matrices, and the dtype of the cache that it asks for.

Each method is read by the rules of the code that writes or loads it; `_METHODS` names them. A method or an option that
is not known is returned as unread, and `fit` refuses to guess its size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...quantization import LINEAR, Quantization, Scheme
from ...units import truncate

MAX_MODULES = 50_000
"""The most names that a list of modules may have; releases list some hundreds."""
MAX_NAME = 300
"""The longest name or pattern of a module."""

_NESTED_REPEAT = re.compile(r"[*+}][^()|]*\)\s*[*+{]")
"""A repeat inside a repeated group, as in (a+)+, on which matching may take exponential time."""


class Released(NamedTuple):
    """How a checkpoint is quantized.

    Attributes:
        quantization: Its schemes; None if nothing was read.
        weights_dtype: The dtype of the matrices of attention and MLPs; None if there is no single one.
        experts_dtype: The dtype of the routed experts, if only they are quantized.
        kv_dtype: The dtype of the cache that the checkpoint asks for.
        unread: What could not be read, in words; '' if everything was.
    """

    quantization: Quantization | None = None
    weights_dtype: str | None = None
    experts_dtype: str | None = None
    kv_dtype: str | None = None
    unread: str = ""


class _UnreadError(Exception):
    """A scheme that is not known; its text names it."""


def released(config: Mapping[str, Any], text_config: Mapping[str, Any]) -> Released | None:
    """Return how a checkpoint is quantized; None if it is not.

    Args:
        config: The fields of the config.json.
        text_config: Those of its language model, which may have the quantization_config instead (Kimi-K2.5).
    """
    found = next(
        (
            given[key]
            for given in (config, text_config)
            for key in ("quantization_config", "compression_config")
            if given.get(key)
        ),
        None,
    )
    if found is None:
        return Released(unread="mlx") if isinstance(config.get("quantization"), Mapping) else None
    if not isinstance(found, Mapping):
        return Released(unread="a quantization_config that is not an object")
    method = str(found.get("quant_method") or ("modelopt" if "quant_algo" in found else "")).lower()
    if method == "mxfp4":  # transformers' Mxfp4HfQuantizer replaces only GptOssExperts
        return Released(experts_dtype="mxfp4")
    read = _METHODS.get(method)
    if read is None:
        return Released(unread=truncate(method or "a quantization_config without quant_method"))
    try:
        schemes, ignored = read({"expert_dtype": config.get("expert_dtype"), **found})
        quantization = Quantization(
            method, _checked_targets(schemes), _names(ignored), truncate(config.get("model_type") or "")
        )
    except _UnreadError as error:
        return Released(unread=f"{method}: {truncate(str(error))}")
    has_experts = any(given.get(name) for given in (config, text_config) for name in _EXPERTS)
    weights_dtype, experts_dtype = _dtypes(quantization, has_experts)
    return Released(quantization, weights_dtype, experts_dtype, _kv_dtype(found))


_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "num_experts_per_tok")
"""Fields that a config with routed experts has."""
_ATTENTION = ("W_q", "W_qkv", "W_o", "W_q_b")
"""Matrices whose schemes stand for those of attention."""


def _dtypes(quantization: Quantization, has_experts: bool) -> tuple[str | None, str | None]:
    """Return (weights_dtype, experts_dtype): one of them, by what is quantized in a layer that is not the first."""
    layer = 7
    attention = [quantization.scheme_of(layer, "attention", name) for name in _ATTENTION]
    if has_experts and not any(attention) and (experts := quantization.scheme_of(layer, "experts", "W_down")):
        return None, experts.dtype
    mlp = quantization.scheme_of(layer, "experts" if has_experts else "mlp", "W_down")
    main = mlp or next((scheme for scheme in attention if scheme), quantization.schemes[0])
    return main.dtype, None


def _kv_dtype(found: Mapping[str, Any]) -> str | None:
    """Return the dtype of the cache as vLLM derives it from the config, or None for the model's.

    Source: vLLM, layers/attention/attention.py (kv_cache_scheme of compressed-tensors makes it fp8), and
    get_kv_cache_quant_algo_string in utils/torch_utils.py (modelopt).
    """
    scheme = found.get("kv_cache_scheme")
    if isinstance(scheme, Mapping) and scheme.get("num_bits") == 8 and scheme.get("type") == "float":
        return "fp8"
    nested = found.get("quantization")
    algorithms = (
        found.get("kv_cache_quant_algo"),
        nested.get("kv_cache_quant_algo") if isinstance(nested, Mapping) else None,
    )
    names = [name.upper() for name in algorithms if isinstance(name, str)]
    return "fp8" if "FP8" in names else "fp4" if "NVFP4" in names else None


# Names of modules


def _names(listed: Any) -> tuple[str, ...]:
    """Return a list of modules, bounded and with safe patterns. Raises _UnreadError for other values."""
    if listed is None:
        return ()
    if isinstance(listed, str):
        listed = [listed]
    if not isinstance(listed, Sequence) or len(listed) > MAX_MODULES:
        raise _UnreadError("its list of modules")
    names = tuple(dict.fromkeys(str(item) for item in listed))
    for name in names:
        if len(name) > MAX_NAME:
            raise _UnreadError("a module's name that is too long")
        if name.startswith("re:"):
            _check_pattern(name[3:])
    return names


def _check_pattern(pattern: str) -> None:
    """Raise _UnreadError for a regular expression that is wrong, or may take exponential time."""
    if _NESTED_REPEAT.search(pattern) or pattern.count("*") + pattern.count("+") > 8:
        raise _UnreadError("a pattern of modules that is too complex")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        raise _UnreadError("a pattern of modules that is not valid") from None


def _checked_targets(schemes: Sequence[Scheme]) -> tuple[Scheme, ...]:
    """Return the schemes with checked targets. Raises _UnreadError if there is none."""
    if not schemes or len(schemes) > 64:
        raise _UnreadError("no scheme, or too many")
    return tuple(scheme._replace(targets=_names(scheme.targets)) for scheme in schemes)


def _size(found: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """Return a field that is a whole number from -1 to a million. Raises _UnreadError for others."""
    value = found.get(key, default)
    if value is None and default is not None:
        value = default
    if type(value) is not int or not -1 <= value <= 10**6:
        raise _UnreadError(f"{key} {value!r}")
    return value


_Read = tuple[Sequence[Scheme], Any]
"""The schemes of a config, and its list of modules that are not quantized."""


# Methods


def _fp8(found: Mapping[str, Any]) -> _Read:
    """DeepSeek's blocks of 128 x 128 with fp32 scales, or one scale per matrix (transformers' FineGrainedFP8Config)."""
    ignored = found.get("modules_to_not_convert") or found.get("ignored_layers")
    block = found.get("weight_block_size")
    if block is None:
        scheme = Scheme("fp8", 8, block=0, scale_bits=32)
    else:
        outputs, inputs = _block(block)
        scheme = Scheme("fp8", 8, group=inputs, block=outputs, scale_bits=32)
    if str(found.get("moe_quant_algo") or "").upper() == "NVFP4":
        experts = _NVFP4._replace(targets=("experts",))
        return (experts, scheme), [
            name for name in found.get("ignore") or () if "mtp" in str(name) or str(name) == "head"
        ]
    if found.get("expert_dtype") == "fp4":  # DeepSeek-V4: an exponent of 8 bits per 32 elements
        return (Scheme("mxfp4", 4, group=32, scale_bits=8, targets=("experts",)), scheme), ignored
    return (scheme,), ignored


def _block(block: Any) -> tuple[int, int]:
    """Return (outputs, inputs) of a block that has one scale. Raises _UnreadError for other values."""
    if not isinstance(block, Sequence) or len(block) != 2 or not all(type(n) is int and 0 < n <= 65536 for n in block):
        raise _UnreadError(f"a block of {block!r}")
    return block[0], block[1]


_NVFP4 = Scheme("fp4", 4, group=16, scale_bits=8, fixed=8)
"""NVFP4: an fp8 scale per 16 elements; one fp32 scale per matrix, and one for its input."""
_FP8_TENSOR = Scheme("fp8", 8, block=0, scale_bits=32, fixed=4)
"""FP8 with one fp32 scale per matrix, and one for its input."""
_ALGORITHMS: dict[str, Scheme] = {
    "FP8": _FP8_TENSOR,
    "FP8_PER_CHANNEL_PER_TOKEN": Scheme("fp8", 8, scale_bits=32),
    "FP8_PB_WO": Scheme("fp8", 8, group=128, block=128, scale_bits=32),
    "NVFP4": _NVFP4,
    "NVFP4_AWQ": _NVFP4,
    "W4A16_NVFP4": _NVFP4,
    "MXFP8": Scheme("fp8", 8, group=32, scale_bits=8),
    "W4A16_MXFP4": Scheme("mxfp4", 4, group=32, scale_bits=8),
    "MXFP4": Scheme("mxfp4", 4, group=32, scale_bits=8),
}
"""{quant_algo of NVIDIA's modelopt: scheme}. Source: vLLM, layers/quantization/modelopt.py (QUANT_ALGOS)."""


def _modelopt(found: Mapping[str, Any]) -> _Read:
    """NVIDIA's modelopt, in the config or in hf_quant_config.json beside it."""
    nested = found.get("quantization")
    section = nested if isinstance(nested, Mapping) else found
    ignored = section.get("exclude_modules") or section.get("ignore")
    algorithm = str(section.get("quant_algo") or "").upper()
    if algorithm == "MIXED_PRECISION":
        layers = section.get("quantized_layers")
        if not isinstance(layers, Mapping):
            return _config_groups(section), ignored
        names: dict[str, list[str]] = {}
        for name, of_layer in layers.items():
            of_name = of_layer.get("quant_algo") if isinstance(of_layer, Mapping) else None
            names.setdefault(str(of_name or "").upper(), []).append(str(name))
        return [_algorithm(name)._replace(targets=tuple(modules)) for name, modules in names.items()], ignored
    return (_algorithm(algorithm),), ignored


def _algorithm(name: str) -> Scheme:
    if name not in _ALGORITHMS:
        raise _UnreadError(f"quant_algo {name or 'missing'}")
    return _ALGORITHMS[name]


def _compressed_tensors(found: Mapping[str, Any]) -> _Read:
    """compressed-tensors (llm-compressor): groups of modules with a scheme each."""
    sparsity = found.get("sparsity_config")
    if isinstance(sparsity, Mapping) and sparsity.get("format") not in (None, "dense"):
        raise _UnreadError(f"sparsity format {sparsity.get('format')}")
    return _config_groups(found), found.get("ignore")


def _config_groups(found: Mapping[str, Any]) -> list[Scheme]:
    """Return the schemes of config_groups. A group that covers only single modules goes first."""
    groups = found.get("config_groups")
    if not isinstance(groups, Mapping):
        raise _UnreadError("config_groups is missing")
    schemes = []
    for group in groups.values():
        if not isinstance(group, Mapping):
            raise _UnreadError("a group that is not an object")
        if group.get("weights") is None:  # only activations, or the output of attention, are quantized
            continue
        targets = group.get("targets") or [LINEAR]
        scheme = _arguments(group["weights"], str(group.get("format") or found.get("format") or ""))
        schemes.append(scheme._replace(targets=tuple(str(target) for target in targets)))
    return sorted(schemes, key=lambda scheme: LINEAR in scheme.targets)


_INTEGERS_AND_FLOATS = {("float", 8): "fp8", ("int", 8): "int8", ("int", 4): "int4"}
"""{(type, num_bits) of QuantizationArgs: dtype}."""


def _arguments(weights: Any, form: str) -> Scheme:
    """Return the scheme of a group's QuantizationArgs.

    Scales are in the model's dtype of 16 bits; those of nvfp4 and mxfp4 have 8. Source: compressed-tensors,
    compressors/quantized_compressors.
    """
    if not isinstance(weights, Mapping):
        raise _UnreadError("weights that are not an object")
    if form in ("marlin-24", "sparse-24-bitmask", "sparse-bitmask"):
        raise _UnreadError(f"format {form}")
    bits, kind = _size(weights, "num_bits"), weights.get("type", "int")
    if kind == "float" and bits == 4:
        is_mxfp4 = weights.get("group_size") == 32 or "mxfp4" in form
        return Scheme("mxfp4", 4, group=32, scale_bits=8) if is_mxfp4 else _NVFP4
    if (kind, bits) not in _INTEGERS_AND_FLOATS:
        raise _UnreadError(f"{bits}-bit {kind}")
    scheme = _with_scales(Scheme(_INTEGERS_AND_FLOATS[kind, bits], bits), weights)
    return scheme._replace(
        fixed=16 if "pack" in form else 0,  # weight_shape, two int64
        zero_bits=bits if weights.get("symmetric") is False else 0,
        row_bits=0 if weights.get("actorder") in (None, False, "weight", "static") else 32,  # weight_g_idx
    )


def _with_scales(scheme: Scheme, weights: Mapping[str, Any]) -> Scheme:
    """Return the scheme with the scales of a strategy: per tensor, channel, group or block."""
    strategy, group = weights.get("strategy"), _size(weights, "group_size", 0)
    if strategy == "block" or weights.get("block_structure"):
        outputs, inputs = _block(weights.get("block_structure"))
        return scheme._replace(group=inputs, block=outputs)
    if strategy in ("group", "tensor_group") or (strategy is None and group > 0):
        return scheme._replace(group=max(group, 0))
    if strategy in ("tensor", None):
        return scheme._replace(block=0, scale_bits=32)
    if strategy != "channel":
        raise _UnreadError(f"strategy {strategy}")
    return scheme


def _gptq(found: Mapping[str, Any]) -> _Read:
    """GPTQ: fp16 scales and packed zero points per group, and an int32 group number per input (g_idx)."""
    bits = _bits(found, (2, 3, 4, 8))
    scheme = Scheme(
        f"int{8 if bits == 8 else 4}", bits, max(_size(found, "group_size", 128), 0), zero_bits=bits, row_bits=32
    )
    blocks = found.get("modules_in_block_to_quantize")
    if isinstance(blocks, Sequence) and blocks:
        names = [name for block in blocks for name in (block if isinstance(block, list) else [block])]
        scheme = scheme._replace(targets=tuple(str(name) for name in names))
    dynamic = found.get("dynamic")
    rules = dynamic if isinstance(dynamic, Mapping) else {}
    schemes, ignored = [scheme], list(found.get("modules_to_not_convert") or ())
    for pattern, changes in rules.items():
        name = f"re:{str(pattern).removeprefix('+:').removeprefix('-:')}"
        if str(pattern).startswith("-:"):
            ignored.append(name)
        elif isinstance(changes, Mapping):
            changed = {**found, **changes, "dynamic": None}
            schemes.insert(0, next(iter(_gptq(changed)[0]))._replace(targets=(name,)))
    return schemes, ignored


def _awq(found: Mapping[str, Any]) -> _Read:
    """AWQ: fp16 scales and packed zero points per group."""
    bits = _bits({"bits": found.get("w_bit"), **found}, (4, 8))
    group = found.get("group_size", found.get("q_group_size", 128))
    return (
        (Scheme(f"int{bits}", bits, max(_size({"group_size": group}, "group_size"), 0), zero_bits=bits),),
        found.get("modules_to_not_convert"),
    )


def _bits(found: Mapping[str, Any], known: Sequence[int]) -> int:
    bits = _size(found, "bits", 4)
    if bits not in known:
        raise _UnreadError(f"{bits} bits")
    return bits


def _bitsandbytes(found: Mapping[str, Any]) -> _Read:
    """bitsandbytes: NF4 or FP4 with a scale per 64 elements, which double quantization makes 8 bits; or int8."""
    ignored = [*(found.get("llm_int8_skip_modules") or ())]
    if found.get("load_in_8bit") or found.get("_load_in_8bit"):
        return (Scheme("int8", 8, scale_bits=32),), ignored
    if not (found.get("load_in_4bit") or found.get("_load_in_4bit")):
        raise _UnreadError("neither 4 nor 8 bits")
    # The scales of the scales, fp32 per 256 of them, are 0.002 bits of an element.
    double = bool(found.get("bnb_4bit_use_double_quant"))
    tables = 16 * 4 + (256 * 4 if double else 0)
    return (Scheme("int4", 4, group=64, scale_bits=8 if double else 32, fixed=tables),), ignored


def _fbgemm_fp8(found: Mapping[str, Any]) -> _Read:
    """FBGEMM's fp8: an fp32 scale per output channel."""
    return (Scheme("fp8", 8, scale_bits=32),), found.get("modules_to_not_convert")


def _quark(found: Mapping[str, Any]) -> _Read:
    """AMD's Quark."""
    whole = found.get("global_quant_config")
    weight = whole.get("weight") if isinstance(whole, Mapping) else None
    if not isinstance(weight, Mapping) or found.get("layer_quant_config"):
        raise _UnreadError("no single scheme")
    stored, scheme = weight.get("dtype"), weight.get("qscheme")
    if stored in ("fp8_e4m3", "int8"):
        form = Scheme("fp8" if stored == "fp8_e4m3" else "int8", 8, scale_bits=32)
        if scheme in ("per_tensor", "per_channel"):
            return (form if scheme == "per_channel" else form._replace(block=0),), found.get("exclude")
    if stored == "fp4" and scheme == "per_group" and weight.get("group_size") == 32:
        return (Scheme("mxfp4", 4, group=32, scale_bits=8),), found.get("exclude")
    raise _UnreadError(f"{stored} {scheme}")


_METHODS: Mapping[str, Callable[[Mapping[str, Any]], _Read]] = {
    "fp8": _fp8,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "modelopt_mixed": _modelopt,
    "nvfp4": _modelopt,
    "compressed-tensors": _compressed_tensors,
    "compressed_tensors": _compressed_tensors,
    "gptq": _gptq,
    "gptq_marlin": _gptq,
    "awq": _awq,
    "awq_marlin": _awq,
    "bitsandbytes": _bitsandbytes,
    "fbgemm_fp8": _fbgemm_fp8,
    "quark": _quark,
}
"""{quant_method: the function that reads it}."""


def to_keys(found: Released) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a model file that describe it."""
    if found.weights_dtype:
        yield "weights_dtype", found.weights_dtype
    if found.experts_dtype:
        yield "experts_dtype", found.experts_dtype
    if found.kv_dtype:
        yield "kv_dtype", found.kv_dtype
    if found.unread:
        yield "unread_quantization", found.unread
    if found.quantization:
        default = Scheme("", 0)
        schemes = [
            {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in scheme._asdict().items()
                if value != getattr(default, name)
            }
            for scheme in found.quantization.schemes
        ]
        yield (
            "quantization",
            {
                "method": found.quantization.method,
                "schemes": schemes,
                **({"ignored": list(found.quantization.ignored)} if found.quantization.ignored else {}),
                **({"names": found.quantization.names} if found.quantization.names else {}),
            },
        )
