"""Schemes with integer elements: GPTQ, AWQ, AutoRound, bitsandbytes, HQQ, EETQ, BitNet, torchao,
MLX, EXL2, EXL3.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ....quantization import LINEAR, Scheme
from .compressed_tensors import MXFP4, MXFP8, NVFP4
from .fields import (
    Config,
    Read,
    UnreadError,
    average_bits,
    bits,
    by_module,
    integer,
    modules,
    section,
    size,
)

# GPTQ and AWQ


def _targets_in_blocks(blocks: Any) -> list[str]:
    """Return the modules in a list of names or of lists of names; all linear layers without one."""
    if not blocks or not isinstance(blocks, Sequence) or isinstance(blocks, str):
        return [LINEAR]
    targets: list[str] = []
    for names in blocks:
        if isinstance(names, list):
            targets += map(str, names)
        else:
            targets.append(str(names))
    return targets


def gptq(found: Config) -> Read:
    """Return GPTQ's schemes: fp16 scales and packed zero points per group, and an int32 per input
    (g_idx).

    The format 'marlin' has neither zero points nor g_idx. Source: AutoGPTQ 0.7 and GPTQModel 7.7,
    nn_modules/qlinear.
    A rule of `dynamic` changes what is quantized without it: '"lm_head": {}' does not quantize the
    head, nor '"embed_tokens": {}' the embedding (get_linear_quant_method in vLLM's gptq_utils.py).
    """
    form = str(found.get("checkpoint_format") or found.get("format") or "gptq")
    is_marlin = form == "marlin" or found.get("is_marlin_format") is True
    if not is_marlin and form not in ("gptq", "gptq_v2"):
        raise UnreadError(f"format {form}")
    n_bits = bits(found, (2, 3, 4, 5, 6, 7, 8))
    scheme = integer(n_bits, group=_group(found), zero_bits=n_bits, row_bits=32)
    if is_marlin:
        scheme = scheme._replace(zero_bits=0, row_bits=0)
    targets = _targets_in_blocks(found.get("modules_in_block_to_quantize"))
    if found.get("lm_head") is True:
        targets.append("lm_head")
    schemes = [scheme._replace(targets=tuple(targets))]
    ignored = [*modules(found.get("modules_to_not_convert"))]
    if found.get("dynamic"):
        if "lm_head" in targets:
            ignored += ["embed_tokens"]
        else:
            ignored += ["embed_tokens", "lm_head"]
    # GPTQModel's rules: '-:' leaves a module out
    for pattern, changes in section(found, "dynamic").items():
        name = f"re:{str(pattern).removeprefix('+:').removeprefix('-:')}"
        if str(pattern).startswith("-:"):
            ignored.append(name)
        elif isinstance(changes, Mapping):
            changed = {
                **found,
                **changes,
                "dynamic": None,
                "lm_head": None,
                "modules_in_block_to_quantize": None,
            }
            schemes.insert(0, gptq(changed)[0][-1]._replace(targets=(name,)))
    return schemes, ignored


def _group(found: Config) -> int:
    """Return how many inputs share a scale; 0 for all, which a config gives as -1."""
    return max(size(found, "group_size", 128), 0)


def awq(found: Config) -> Read:
    """Return AWQ's scheme: fp16 scales and packed zero points per group.

    Source: AutoAWQ 0.2.9, modules/linear/gemm.py.
    """
    n_bits = bits({"bits": found.get("w_bit"), **found}, (4, 8))
    group = _group({"group_size": found.get("q_group_size"), **found})
    return (integer(n_bits, group=group, zero_bits=n_bits),), found.get("modules_to_not_convert")


def auto_round(found: Config) -> Read:
    """Return AutoRound's schemes: those of GPTQ without g_idx, or AWQ's, in the blocks' linear
    layers.

    extra_config has other bits for single modules; with 16 they are not quantized.
    Source: auto-round 0.16, auto_round_extension/torch/qlinear_torch.py.
    """
    scheme = _auto_round_scheme(found)
    own_bits = {}
    for name, own in section(found, "extra_config").items():
        if not isinstance(own, Mapping):
            continue
        if own.get("bits") is not None or own.get("group_size") is not None:
            own_bits[name] = own

    def scheme_of(own: Config) -> Scheme | None:
        if own.get("bits") is not None and size(own, "bits") >= 16:
            return None
        given = {key: value for key, value in own.items() if value is not None}
        return _auto_round_scheme({**found, **given})

    named, ignored = by_module(own_bits, scheme_of)
    return [*named, scheme], ignored


def _auto_round_scheme(found: Config) -> Scheme:
    kind = str(found.get("data_type") or "int")
    n_bits = bits(found, (2, 3, 4, 5, 6, 7, 8))
    floats = {("mx_fp", 4): MXFP4, ("mx_fp", 8): MXFP8, ("nv_fp", 4): NVFP4}
    for (name, width), scheme in floats.items():
        if kind.startswith(name) and n_bits == width:
            return scheme
    if not kind.startswith("int"):
        raise UnreadError(f"data_type {kind}")
    form = str(found.get("packing_format") or "auto_round:auto_gptq")
    if not form.startswith("auto_round") or "llm_compressor" in form:
        raise UnreadError(f"packing_format {form}")
    return integer(n_bits, group=_group(found), zero_bits=n_bits)


# bitsandbytes, HQQ, EETQ and BitNet

# Elements that share a scale (blocksize in bitsandbytes' functional.py).
_NF4_BLOCK = 64
# Scales that share a scale with double quantization.
_NESTED_BLOCK = 256


def bitsandbytes(found: Config) -> Read:
    """Return NF4 or FP4 with a scale per 64 elements, which double quantization makes 8 bits; or
    int8.

    A matrix has a table of its 16 values, and some bytes of JSON (quant_state). If skipped modules
    are given, the lm head is quantized unless it is one of them. Source: bitsandbytes 0.50,
    `Params4bit` and `Int8Params`; transformers, quantizers/base.py (get_modules_to_not_convert).
    """
    ignored = modules(found.get("llm_int8_skip_modules"))
    targets = (LINEAR, "lm_head") if ignored else (LINEAR,)
    if found.get("load_in_8bit") or found.get("_load_in_8bit"):
        return (Scheme("int8", 8, scale_bits=32, fixed=1, targets=targets),), ignored
    if not (found.get("load_in_4bit") or found.get("_load_in_4bit")):
        raise UnreadError("neither 4 nor 8 bits")
    if not found.get("bnb_4bit_use_double_quant"):
        fixed = 16 * 4 + 80
        return (
            Scheme("int4", 4, group=_NF4_BLOCK, scale_bits=32, fixed=fixed, targets=targets),
        ), ignored
    per = _NF4_BLOCK * _NESTED_BLOCK
    return (
        Scheme(
            "int4",
            4 * per + 8 * _NESTED_BLOCK + 32,
            scale_bits=0,
            fixed=16 * 4 + 256 * 4 + 168,
            targets=targets,
            per=per,
            words="4-bit elements, 8 bits of scale per 64, 32 more per 256 of these",
        ),
    ), ignored


def hqq(found: Config) -> Read:
    """Return HQQ's schemes: a 16-bit scale and zero point per group; ten 3-bit elements are in 32
    bits.

    quant_config has one for all modules, or one for each name. Source: hqq 0.2.8, core/quantize.py
    and bitpack.py.
    """
    config = section(found, "quant_config") or found
    ignored = found.get("skip_modules", ["lm_head"])
    if "weight_quant_params" in config or "nbits" in config:
        return (_hqq_scheme(section(config, "weight_quant_params") or config),), ignored
    with_params = {
        name: section(config, name)
        for name in config
        if section(config, name).get("weight_quant_params")
    }
    return by_module(with_params, lambda own: _hqq_scheme(section(own, "weight_quant_params")))[
        0
    ], ignored


def _hqq_scheme(found: Config) -> Scheme:
    n_bits = bits(found, (1, 2, 3, 4, 8), "nbits")
    group = _group({"group_size": 64, **found})
    scheme = integer(n_bits, group=group, zero_bits=16, fixed=68)
    if n_bits == 3:
        return scheme._replace(bits=32, per=10)
    return scheme


def eetq(found: Config) -> Read:
    """Return EETQ's scheme: 8 bits and a 16-bit scale per output (transformers,
    integrations/eetq.py).
    """
    return (integer(8),), found.get("modules_to_not_convert")


def bitnet(found: Config) -> Read:
    """Return BitNet's scheme: four ternary elements in a byte, and a scale per matrix.

    Source: transformers, integrations/bitnet.py.
    """
    if found.get("linear_class") == "autobitlinear" and found.get("quantization_mode") == "online":
        raise UnreadError("weights that are quantized when they are loaded")
    scheme = Scheme(
        "int4", 2, scale_bits=0, fixed=2, words="2-bit elements, 16 bits of scale per matrix"
    )
    return (scheme,), found.get("modules_to_not_convert")


# torchao

# {type of a config, without 'Config' and underscores: its scheme}; intx elements of any width have
# a byte each.
#
# Source: torchao 0.18, quantization/quantize_/workflows (Int4Tensor, Int8Tensor, Float8Tensor,
# IntxUnpackedToInt8Tensor).
_TORCHAO: dict[str, Scheme] = {
    "int4weightonly": integer(4, group=128, zero_bits=16),
    "int8weightonly": integer(8, scale_bits=32, zero_bits=8),
    "int8dynamicactivationint8weight": Scheme("int8", 8, scale_bits=32, zero_bits=8),
    "float8weightonly": Scheme("fp8", 8, scale_bits=32, weight_only=True),
    "float8dynamicactivationfloat8weight": Scheme("fp8", 8, scale_bits=32),
    "intxweightonly": integer(8, group=32, zero_bits=8),
    "int8dynamicactivationintxweight": Scheme("int8", 8, group=32, zero_bits=8),
}


def torchao(found: Config) -> Read:
    """Return torchao's schemes: one for all linear layers, or one for each module (FqnToConfig)."""
    ignored = [*modules(found.get("modules_to_not_convert"))]
    kind = found.get("quant_type")
    if isinstance(kind, str):
        return (_torchao_scheme(kind, section(found, "quant_type_kwargs")),), ignored
    default = section(found, "quant_type").get("default")
    if not isinstance(default, Mapping):
        raise UnreadError("quant_type")
    data = section(default, "_data")
    by_name = section(data, "fqn_to_config") or section(data, "module_fqn_to_config")
    if not by_name:
        return (_torchao_scheme(str(default.get("_type")), data),), ignored

    def scheme_of(own: Any) -> Scheme | None:
        if isinstance(own, Mapping):
            return _torchao_scheme(str(own.get("_type")), section(own, "_data"))
        return None

    named, others = by_module(
        {name: own for name, own in by_name.items() if name != "_default"}, scheme_of
    )
    whole = scheme_of(by_name.get("_default"))
    return [*named, *([whole] if whole else [])], [*ignored, *others]


def _torchao_scheme(kind: str, data: Config) -> Scheme:
    name = kind.removesuffix("Config").replace("_", "").lower()
    if name not in _TORCHAO:
        raise UnreadError(kind)
    scheme = _TORCHAO[name]
    granularity: Any = section(
        section(data, "weight_granularity") or section(data, "granularity"), "_data"
    )
    given = data.get("group_size") or granularity.get("group_size")
    if scheme.group and given:
        return scheme._replace(group=_group({"group_size": given}))
    return scheme


# MLX, and ExLlama's EXL2 and EXL3

# {mode of MLX: its scheme, without scales of the whole matrix}.
_MLX_MODES = {
    "mxfp4": Scheme("mxfp4", 4, group=32, scale_bits=8),
    "mxfp8": Scheme("fp8", 8, group=32, scale_bits=8),
    "nvfp4": Scheme("fp4", 4, group=16, scale_bits=8),
}
# Families whose router is no linear layer in mlx-lm, and is not quantized.
_OWN_GATES = ("deepseek", "kimi", "glm4_moe", "mistral4", "bailing", "longcat")


def mlx(found: Config) -> Read:
    """Return MLX's schemes: a 16-bit scale and bias per group, for the embedding and the lm head
    too.

    A module's own entry goes before: other bits, or false. Source: mlx 0.32, `mx.quantize`; mlx-lm,
    utils.py (quantize_model), which writes a module's entry if the model's class chooses other bits
    for it.
    """
    scheme = _mlx_scheme(found)
    own = {}
    for name, value in found.items():
        if value is False or isinstance(value, Mapping):
            own[name] = value
    named, ignored = by_module(
        own, lambda value: _mlx_scheme({**found, **value}) if value else None
    )
    gate = () if str(found.get("names") or "").startswith(_OWN_GATES) else ("mlp.gate",)
    return [*named, scheme._replace(targets=(LINEAR, "embed_tokens", "lm_head", *gate))], ignored


def _mlx_scheme(found: Config) -> Scheme:
    mode = str(found.get("mode", "affine"))
    if mode in _MLX_MODES:
        return _MLX_MODES[mode]._replace(weight_only=True)
    if mode != "affine":
        raise UnreadError(f"mode {mode}")
    return integer(
        bits(found, (2, 3, 4, 5, 6, 8)), group=size(found, "group_size", 64), zero_bits=16
    )


def exl2(found: Config) -> Read:
    """Return EXL2's average bits, scales included, and the bits of its lm head (exllamav2,
    conversion/compile.py).
    """
    return _with_head(found, 0), None


def exl3(found: Config) -> Read:
    """Return EXL3's average bits and those of its lm head, with a 16-bit scale per input and per
    output.

    Source: exllamav3, modules/quant/exl3.py (suh, svh).
    """
    return _with_head(found, 16), None


def _with_head(found: Config, scale_bits: int) -> list[Scheme]:
    """Return the scheme of the lm head, if it has one, and that of all other matrices."""
    if found.get("head_bits") is None:
        targets = {"bits": LINEAR}
    else:
        targets = {"head_bits": "lm_head", "bits": LINEAR}
    schemes = []
    for key, target in targets.items():
        n_bits, per = average_bits(found, key)
        scheme = Scheme(
            "int4" if n_bits < 6 * per else "int8",
            n_bits,
            scale_bits=scale_bits,
            row_bits=scale_bits,
        )
        words = f"{n_bits / per:g} bits per weight on average"
        schemes.append(scheme._replace(per=per, words=words, weight_only=True, targets=(target,)))
    return schemes
