"""How a checkpoint is quantized, by the quantization_config of its config.json."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ....quantization import Quantization, Scheme
from ....units import truncate
from ...data_files import words
from .averages import exl2, exl3, mlx
from .cache import kv_dtype
from .compressed_tensors import compressed_tensors
from .fields import Config, Read, UnreadError, checked, modules, section
from .floats import fbgemm_fp8, fp8, modelopt, mxfp8, quark
from .integers import auto_round, awq, bitnet, bitsandbytes, eetq, gptq, hqq, torchao

_METHODS: Mapping[str, Callable[[Config], Read]] = {
    "auto-round": auto_round,
    "auto_round": auto_round,
    "awq": awq,
    "awq_marlin": awq,
    "bitnet": bitnet,
    "bitsandbytes": bitsandbytes,
    "compressed-tensors": compressed_tensors,
    "compressed_tensors": compressed_tensors,
    "eetq": eetq,
    "exl2": exl2,
    "exl3": exl3,
    "fbgemm_fp8": fbgemm_fp8,
    "fp8": fp8,
    "gptq": gptq,
    "gptq_marlin": gptq,
    "hqq": hqq,
    "intel/auto-round": auto_round,
    "mlx": mlx,
    "modelopt": modelopt,
    "modelopt_fp4": modelopt,
    "modelopt_mixed": modelopt,
    "mxfp8": mxfp8,
    "nvfp4": modelopt,
    "quark": quark,
    "torchao": torchao,
}
"""{quant_method: the function that reads it}. 'mxfp4', and a config without quantization, are read in `released`."""
_KNOWN_KEYS = Path(__file__).with_name("known_keys.txt")
_CONFIGS = ("quantization_config", "compression_config")
"""Fields that have the quantization; compression_config is an older name of compressed-tensors."""


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


def released(config: Config, text_config: Config) -> Released | None:
    """Return how a checkpoint is quantized; None if it is not.

    Args:
        config: The fields of the config.json.
        text_config: Those of its language model, which may have the quantization_config instead (Kimi-K2.5).
    """
    found = _find(config, text_config)
    if found is None:
        return None
    if not isinstance(found, Mapping):
        return Released(unread="a quantization_config that is not an object")
    method = _method(found)
    if method == "mxfp4":  # transformers' Mxfp4HfQuantizer replaces only GptOssExperts
        return Released(experts_dtype="mxfp4")
    cache = kv_dtype(method, found)
    read = _METHODS.get(method)
    if read is None:
        name = truncate(method) or "a quantization_config without quant_method"
        return Released(Quantization(name, ()) if method else None, kv_dtype=cache, unread=name)
    names = truncate(text_config.get("model_type") or config.get("model_type") or "")
    try:
        _check_keys(method, found)
        schemes, ignored = read({"expert_dtype": config.get("expert_dtype"), "names": names, **found})
        quantization = Quantization(
            method, checked(schemes), modules(ignored), truncate(config.get("model_type") or "")
        )
    except UnreadError as error:
        return Released(Quantization(method, ()), kv_dtype=cache, unread=f"{method}: {truncate(str(error))}")
    has_experts = any(given.get(name) for given in (config, text_config) for name in _EXPERTS)
    weights_dtype, experts_dtype = _dtypes(quantization, has_experts)
    return Released(quantization, weights_dtype, experts_dtype, cache)


def _find(config: Config, text_config: Config) -> Any:
    """Return the quantization of a config.json, or of its language model; None if neither has one.

    MLX writes its own field too, `quantization`, which goes before: its quantization_config has no quant_method.
    """
    for given in (config, text_config):
        if isinstance(own := given.get("quantization"), Mapping) and "bits" in own:
            return {"quant_method": "mlx", **own}
    return next((given[key] for given in (config, text_config) for key in _CONFIGS if given.get(key)), None)


def _method(found: Config) -> str:
    """Return the quant_method in small letters; '' if there is none."""
    return str(found.get("quant_method") or ("modelopt" if "quant_algo" in found else "")).lower()


def _check_keys(method: str, found: Config) -> None:
    """Raise UnreadError if a key has a value, and is none of known_keys.txt: it may change the sizes.

    MLX and hqq have names of modules among the keys, with what is quantized in these.
    """
    has_modules = method in ("mlx", "hqq")
    for key, value in {**section(found, "quantization"), **found}.items():
        if value and key not in words(_KNOWN_KEYS) and not (has_modules and isinstance(value, (Mapping, bool))):
            raise UnreadError(f"the key {truncate(key)}")


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
    main = mlp or next((scheme for scheme in attention if scheme), quantization.schemes[-1])
    return main.dtype, None


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
