"""How a checkpoint is quantized, and the dtype of the cache that it asks for, by the
quantization_config of its config.

Each method is read by the rules of the code that writes or loads it. A method or an option that is
not known is returned as unread, and `fit` does not guess its size.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ....quantization import Quantization, Scheme
from ....records import NamedTuple
from ....units import truncate
from ...data_files import words
from .compressed_tensors import NVFP4, compressed_tensors
from .fields import Config, Read, UnreadError, checked, modules, section
from .floats import fbgemm_fp8, fp8, modelopt, mxfp8, quark
from .integers import (
    auto_round,
    awq,
    bitnet,
    bitsandbytes,
    eetq,
    exl2,
    exl3,
    gptq,
    hqq,
    mlx,
    torchao,
)

# {quant_method: the function that reads it}. 'mxfp4', and a config without quantization, are read
# in `released`.
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
_KNOWN_KEYS = Path(__file__).with_name("known_keys.txt")
# Fields that have the quantization; compression_config is an older name of compressed-tensors.
_CONFIGS = ("quantization_config", "compression_config")


class Released(NamedTuple):
    quantization: Quantization | None = None  # its schemes; None if nothing was read
    # the dtype of the matrices of attention and MLPs; None if there is no single one
    weights_dtype: str | None = None
    experts_dtype: str | None = None  # the dtype of the routed experts, if only they are quantized
    kv_dtype: str | None = None  # the dtype of the cache that the checkpoint asks for
    unread: str = ""  # what could not be read, in words; '' if everything was


def released(config: Config, text_config: Config) -> Released | None:
    """Return how a checkpoint is quantized; None if it is not.

    The config.json, or that of its language model (Kimi-K2.5), has the quantization_config.
    """
    found = _find(config, text_config)
    if found is None:
        return None
    if not isinstance(found, Mapping):
        return Released(unread="a quantization_config that is not an object")
    method = str(found.get("quant_method") or ("modelopt" if "quant_algo" in found else "")).lower()
    if method == "mxfp4":  # transformers' Mxfp4HfQuantizer replaces only GptOssExperts
        return Released(experts_dtype="mxfp4")
    cache = _kv_dtype(method, found)
    read = _METHODS.get(method)
    if read is None:
        name = truncate(method) or "a quantization_config without quant_method"
        return Released(Quantization(name, ()) if method else None, kv_dtype=cache, unread=name)
    names = truncate(text_config.get("model_type") or config.get("model_type") or "")
    try:
        _check_keys(method, found)
        schemes, ignored = read(
            {"expert_dtype": config.get("expert_dtype"), "names": names, **found}
        )
        of_tables = next(
            (str(text_config[key]) for key in _OF_TABLES if text_config.get(key)), method
        )
        if names.startswith("qwen4") and of_tables in _TABLES:
            schemes = [_TABLES[of_tables]._replace(targets=("engram.embed",)), *schemes]
        quantization = Quantization(
            method, checked(schemes), modules(ignored), truncate(config.get("model_type") or "")
        )
    except UnreadError as error:
        return Released(
            Quantization(method, ()), kv_dtype=cache, unread=f"{method}: {truncate(str(error))}"
        )
    has_experts = any(config.get(name) or text_config.get(name) for name in _EXPERTS)
    weights_dtype, experts_dtype = _dtypes(quantization, has_experts)
    return Released(quantization, weights_dtype, experts_dtype, cache)


def _find(config: Config, text_config: Config) -> Any:
    """Return the quantization of a config.json, or of its language model; None if neither has one.

    MLX writes its own field too, `quantization`, which goes before: its quantization_config has no
    quant_method.
    """
    for given in (config, text_config):
        own = given.get("quantization")
        if isinstance(own, Mapping) and "bits" in own:
            return {"quant_method": "mlx", **own}
    for given in (config, text_config):
        for key in _CONFIGS:
            if given.get(key):
                return given[key]
    return None


def _check_keys(method: str, found: Config) -> None:
    """Raise UnreadError if a key has a value, and is none of known_keys.txt: it may change the
    sizes.

    MLX and hqq have names of modules among the keys, with what is quantized in these.
    """
    has_modules = method in ("mlx", "hqq")
    for key, value in {**section(found, "quantization"), **found}.items():
        if (
            value
            and key not in words(_KNOWN_KEYS)
            and not (has_modules and isinstance(value, (Mapping, bool)))
        ):
            raise UnreadError(f"the key {truncate(key)}")


# Fields with the dtype of Qwen4's table of n-grams, which goes before the modules that are not
# quantized.
_OF_TABLES = ("ple_embedding_dtype", "ple_embed_dtype")
# Source: vLLM's Qwen4ExpPLEEmbeddingMethod (models/qwen4_exp/common/ngram_embedding.py).
_TABLES = {**dict.fromkeys(("fp8", "float8_e4m3fn"), Scheme("fp8", 8, block=0)), "nvfp4": NVFP4}
# Fields that a config with routed experts has.
_EXPERTS = (
    "num_experts",
    "n_routed_experts",
    "num_local_experts",
    "moe_num_experts",
    "num_experts_per_tok",
)
# Matrices whose schemes stand for those of attention.
_ATTENTION = ("W_q", "W_qkv", "W_o", "W_q_b")


def _dtypes(quantization: Quantization, has_experts: bool) -> tuple[str | None, str | None]:
    """Return (weights_dtype, experts_dtype): one of them, by what is quantized in a layer that is
    not the first.
    """
    layer = 7
    attention = [quantization.scheme_of(layer, "attention", name) for name in _ATTENTION]
    mlp = quantization.scheme_of(layer, "experts" if has_experts else "mlp", "W_down")
    if has_experts and mlp and not any(attention):
        return None, mlp.dtype
    main = mlp or next((scheme for scheme in attention if scheme), quantization.schemes[-1])
    return main.dtype, None


def _kv_dtype(method: str, found: Config) -> str | None:
    """Return the dtype of the cache that a quantization_config asks for: 'fp8', 'fp4', or None.

    compressed-tensors: any kv_cache_scheme stands for fp8 in vLLM (layers/attention/attention.py),
    which allows only 8 bits (validate_kv_cache_scheme). modelopt: a kv_cache_scheme, or a
    kv_cache_quant_algo (get_kv_cache_quant_algo_string in utils/torch_utils.py). Which engines
    follow it, and since which version, is in their own modules.
    """
    if method.startswith("compressed"):
        scheme = found.get("kv_cache_scheme")
        return "fp8" if isinstance(scheme, Mapping) and scheme.get("num_bits", 8) == 8 else None
    if not method.startswith(("modelopt", "nvfp4", "fp8")):
        return None
    own = section(found, "quantization") or found
    names = ("kv_cache_scheme", "kv_cache_quant_algo")
    asked = next(filter(None, (own.get(name) or found.get(name) for name in names)), None)
    if not isinstance(asked, Mapping):
        return {"fp8": "fp8", "nvfp4": "fp4"}.get(str(asked).lower())
    bits = asked.get("num_bits") if asked.get("type") == "float" else None
    if bits == 4:
        return "fp4"
    if bits == 8 and asked.get("dynamic") is not True:
        return "fp8"
    return None


def to_keys(found: Released) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a model file that describe it."""
    quantization, *values = found
    for key, value in zip(
        ("weights_dtype", "experts_dtype", "kv_dtype", "unread_quantization"), values, strict=True
    ):
        if value:
            yield key, value
    if quantization:
        schemes = [*map(_scheme_keys, quantization.schemes)]
        optional = {"ignored": list(quantization.ignored), "names": quantization.names}
        given = {key: value for key, value in optional.items() if value}
        yield "quantization", {"method": quantization.method, "schemes": schemes, **given}


def _scheme_keys(scheme: Scheme) -> dict[str, Any]:
    """Return the keys of a scheme in a model file, without its defaults."""
    default = Scheme("", 0)
    keys = {}
    for name, value in scheme._asdict().items():
        if value != getattr(default, name):
            keys[name] = list(value) if isinstance(value, tuple) else value
    return keys


# Names of schemes as releases have them: 'nvidia/Qwen3-235B-A22B-NVFP4'.
_SCHEMES = re.compile(
    r"(?:^|[-_./ "
    r"])(?P<scheme>NVFP4|MXFP[48]|FP[48]|INT[348]|W\dA\d{1,2}|[2-8]BIT|AWQ|GPTQ|EXL[23]|HQQ|BNB"
    r"|MLX)"
    r"(?=[-_./ ]|$)",
    re.I,
)
# Words that say that the file's weights are not, or may not be, quantized.
_PLAIN = re.compile(r"unquantized|dequant|bf16|fp16|gguf|qat", re.I)


def scheme_in_name(name: str) -> str:
    """Return the scheme that the name of a checkpoint tells: 'NVFP4'; '' if it tells none."""
    found = _SCHEMES.search(name)
    if found and not _PLAIN.search(name):
        return found["scheme"].upper()
    return ""
