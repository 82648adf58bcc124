"""How checkpoints store quantized matrices: the schemes of quantization_config, and their bytes."""

import json
import re
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from asking import Ask
from configs import LLAMA_3_8B as LLAMA
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from attncalc import AttncalcError, ModelSpec, Workload, load
from attncalc.config import preset_text
from attncalc.config.build import build_model
from attncalc.config.gpus import gpu
from attncalc.config.huggingface import convert_config
from attncalc.config.huggingface.quantized.released import _METHODS, released
from attncalc.cost.experts import Routing
from attncalc.cost.params import params
from attncalc.engines.pipeline import split_into_stages
from attncalc.quantization import Quantization, Scheme, pattern_problem
from attncalc.serving.launch import launch_command
from attncalc.serving.request import FitRequest, resolve
from attncalc.serving.weight_format import multiplied_as, released_dtype
from attncalc.serving.weights import weights
from attncalc.serving.weights_read import bytes_read
from attncalc.units import dtype

# A layer: q and o 4096 x 4096, k and v 4096 x 1024, gate and up 4096 x 14336, down 14336 x 4096
LINEAR = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336
OUTPUTS = 4096 + 4096 + 2 * 1024 + 2 * 14336 + 4096
INPUTS = 4 * 4096 + 2 * 4096 + 14336
# Embedding, head and norms.
OTHERS = 2 * 128256 * 4096 + 65 * 4096


def from_config(**config: Any) -> ModelSpec:
    return build_model(convert_config(config, "config"), "config")


def size(model: ModelSpec) -> int:
    """Return the bytes of the weights as released."""
    return int(weights(model, weights_dtype=released_dtype(model)).total)


def compressed(
    weights: dict[str, Any], inputs: dict[str, Any] | None = None, **others: Any
) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        **others,
    }


@each(
    ("scheme", "per_layer"),
    [
        # one bf16 scale per output
        (compressed({"num_bits": 8, "type": "int", "strategy": "channel"}), LINEAR + 2 * OUTPUTS),
        (compressed({"num_bits": 8, "type": "float", "strategy": "channel"}), LINEAR + 2 * OUTPUTS),
        # one bf16 scale per matrix
        (compressed({"num_bits": 8, "type": "float", "strategy": "tensor"}), LINEAR + 7 * 2),
        # 4 bits and a bf16 scale per 128 inputs; the shape of the packed matrix, two int64
        (
            compressed(
                {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128},
                format="pack-quantized",
            ),
            LINEAR * 33 // 64 + 7 * 16,
        ),
        # without groups, and with zero points of 4 bits
        (
            compressed({"num_bits": 4, "type": "int", "strategy": "channel", "symmetric": False}),
            LINEAR // 2 + OUTPUTS * 20 // 8,
        ),
        (
            compressed(
                {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}
            ),
            LINEAR + 2 * LINEAR // 128**2,
        ),
        # NVFP4 without quantized activations: an fp8 scale per 16, and one fp32 scale per matrix
        (
            compressed(
                {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
            ),
            LINEAR * 9 // 16 + 28,
        ),
        # DeepSeek's blocks have fp32 scales
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, LINEAR + 4 * LINEAR // 128**2),
        ({"quant_method": "fp8"}, LINEAR + 7 * 4),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, LINEAR + 7 * 8),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, LINEAR * 9 // 16 + 56),
        (
            {"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4"}},
            LINEAR * 9 // 16 + 56,
        ),
        # GPTQ: fp16 scales, packed zero points, and an int32 per input
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128},
            LINEAR // 2 + LINEAR // 128 * 20 // 8 + 4 * INPUTS,
        ),
        (
            {"quant_method": "gptq", "bits": 8, "group_size": 32},
            LINEAR + LINEAR // 32 * 3 + 4 * INPUTS,
        ),
        (
            {"quant_method": "gptq", "bits": 3, "group_size": -1},
            LINEAR * 3 // 8 + OUTPUTS * 19 // 8 + 4 * INPUTS,
        ),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128},
            LINEAR // 2 + LINEAR // 128 * 20 // 8,
        ),
        # Marlin has neither zero points nor g_idx
        (
            {"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"},
            LINEAR // 2 + LINEAR // 64,
        ),
        # AutoRound: GPTQ without g_idx
        (
            {"quant_method": "auto-round", "bits": 4, "group_size": 128},
            LINEAR // 2 + LINEAR // 128 * 20 // 8,
        ),
        (
            {"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp", "group_size": 32},
            LINEAR * 17 // 32,
        ),
        # NF4: an fp32 scale per 64, a table of 16 fp32 and 80 bytes of JSON per matrix
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            LINEAR // 2 + LINEAR // 16 + 7 * 144,
        ),
        # with double quantization: 8 bits per 64, an fp32 scale per 256 of these, 272 fp32 and 168
        # bytes of JSON
        (
            {
                "quant_method": "bitsandbytes",
                "load_in_4bit": True,
                "bnb_4bit_use_double_quant": True,
            },
            LINEAR // 2 + LINEAR // 64 + LINEAR // 4096 + 7 * 1256,
        ),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, LINEAR + 4 * OUTPUTS + 7),
        ({"quant_method": "fbgemm_fp8"}, LINEAR + 4 * OUTPUTS),
        ({"quant_method": "eetq"}, LINEAR + 2 * OUTPUTS),
        # BitNet: 2 bits, and a bf16 scale per matrix
        ({"quant_method": "bitnet"}, LINEAR // 4 + 7 * 2),
        # HQQ: 16 bits of scale and of zero point per 64; ten elements of 3 bits in 32 bits
        (
            {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4}}},
            LINEAR * 9 // 16 + 7 * 68,
        ),
        (
            {
                "quant_method": "hqq",
                "quant_config": {"weight_quant_params": {"nbits": 3, "group_size": 32}},
            },
            LINEAR // 8
            + 2 * ceil(4096**2 * 0.4)
            + 2 * ceil(4096 * 1024 * 0.4)
            + 3 * ceil(4096 * 14336 * 0.4)
            + 7 * 68,
        ),
        ({"quant_method": "mxfp8"}, LINEAR * 33 // 32),
        ({"quant_method": "nvfp4"}, LINEAR * 9 // 16 + 56),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, LINEAR // 2 + LINEAR // 32),
        (
            {
                "quant_method": "torchao",
                "quant_type": "int4_weight_only",
                "quant_type_kwargs": {"group_size": 32},
            },
            LINEAR // 2 + LINEAR // 8,
        ),
        ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, LINEAR + 5 * OUTPUTS),
        # Quark: MXFP4 for experts alone has a pattern of its own
        (
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}},
                "layer_quant_config": {
                    "*down_proj": {
                        "weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}
                    }
                },
            },
            LINEAR - 4096 * 14336 * 15 // 32 + 6 * 4,
        ),
    ],
)
def test_matrices_have_the_bytes_of_their_scheme(scheme: dict[str, Any], per_layer: int) -> None:
    model = from_config(**LLAMA, quantization_config=scheme)
    assert size(model) == 32 * per_layer + 2 * OTHERS
    # one step reads all but the embedding
    step = Workload.decode(1, 100)
    released = released_dtype(model)
    assert bytes_read(model, step, weights_dtype=released) == size(model) - 2 * 128256 * 4096


IGNORED = {
    "self_attn": 2 * 4096**2 + 2 * 4096 * 1024,
    "re:.*self_attn.*": 2 * 4096**2 + 2 * 4096 * 1024,
    "*.self_attn*": 2 * 4096**2 + 2 * 4096 * 1024,
    "re:.*mlp\\.(gate|up)_proj": 2 * 4096 * 14336,
    "model.layers.*.mlp.down_proj": 4096 * 14336,
    "mlp.gate": 0,  # a router's name is not the beginning of gate_proj
    "visual": 0,
    "model.visual.blocks.0.mlp": 0,
    "lm_head": 0,
}


@pytest.mark.parametrize(("name", "ignored"), IGNORED.items())
def test_ignored_modules_stay_in_the_models_dtype(name: str, ignored: int) -> None:
    scheme = {"quant_method": "fp8", "modules_to_not_convert": [name]}
    matrices = {0: 7, 2 * 4096**2 + 2 * 4096 * 1024: 3, 2 * 4096 * 14336: 5, 4096 * 14336: 6}[
        ignored
    ]
    assert size(from_config(**LLAMA, quantization_config=scheme)) == (
        2 * OTHERS + 32 * (2 * ignored + LINEAR - ignored + 4 * matrices)
    )


@pytest.mark.parametrize(
    "name", ["model.layers.3", "model.layers.3.*", "language_model.model.layers.3.mlp"]
)
def test_a_single_layer_may_be_left_out(name: str) -> None:
    model = from_config(
        **LLAMA, quantization_config={"quant_method": "fp8", "modules_to_not_convert": [name]}
    )
    left_out, matrices = (3 * 4096 * 14336, 3) if name.endswith("mlp") else (LINEAR, 7)
    assert size(model) == 2 * OTHERS + 32 * (LINEAR + 28) + left_out - 4 * matrices
    # it is on the first of two pipeline stages
    parts = [
        int(weights(stage, weights_dtype="fp8").total) for stage in split_into_stages(model, 2)
    ]
    assert sum(parts) == size(model)
    stage = 16 * (LINEAR + 28) + 2 * (128256 * 4096 + 32 * 4096)
    assert parts == [stage + left_out - 4 * matrices, stage + 2 * 4096]


def test_groups_may_name_their_modules() -> None:
    # down in fp8 with a scale per output, all others in int4 with a scale per 32 inputs
    scheme = compressed({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32})
    scheme["config_groups"]["group_1"] = {
        "targets": ["re:.*down_proj"],
        "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
    }
    model = from_config(**LLAMA, quantization_config=scheme)
    down = 4096 * 14336
    rest = LINEAR - down
    assert size(model) == 2 * OTHERS + 32 * (down + 2 * 4096 + rest // 2 + rest // 32 * 2)
    assert weights(model, weights_dtype=released_dtype(model)).dtype == "int4 and fp8"


def test_a_language_models_own_config_may_have_it() -> None:
    """As in Kimi-K2.5, whose attention and dense MLPs are not quantized."""
    text = {key: value for key, value in LLAMA.items() if key != "architectures"}
    text["quantization_config"] = compressed({"num_bits": 8, "type": "int", "strategy": "channel"})
    model = from_config(model_type="llava", text_config=text, torch_dtype="bfloat16")
    assert size(model) == 2 * OTHERS + 32 * (LINEAR + 2 * OUTPUTS)


def test_only_experts_may_be_quantized() -> None:
    mixtral = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    mixtral["architectures"] = ["MixtralForCausalLM"]
    scheme = compressed({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32})
    model = from_config(
        **mixtral, quantization_config={**scheme, "ignore": ["re:.*self_attn.*", "lm_head"]}
    )
    assert (model.weights_dtype, model.experts_dtype) == (None, "int4")
    experts = 32 * 8 * 3 * 4096 * 14336
    assert size(model) == 2 * (int(params(model).total) - experts) + experts * 9 // 16
    # one token reads 2 of 8 experts
    routings: list[Routing] = ["fewest", "all"]
    single, eight = (
        bytes_read(model, Workload.decode(1, 9), weights_dtype="int4", routing=r) for r in routings
    )
    assert eight - single == experts * 6 // 8 * 9 // 16


# Elements of the embedding, and of the lm head.
TABLE = 128256 * 4096


@each(
    ("scheme", "saved"),
    [
        # compressed-tensors covers every linear layer that it does not ignore: 2 bytes become 1,
        # and 2 of scale
        (
            {**compressed({"num_bits": 8, "type": "int", "strategy": "channel"}), "ignore": []},
            TABLE - 2 * 128256,
        ),
        (compressed({"num_bits": 8, "type": "int", "strategy": "channel"}), 0),
        # GPTQ: 4 bits, and 20 of scale and zero point per 128; g_idx
        (
            {"quant_method": "gptq", "bits": 4, "lm_head": True},
            2 * TABLE - TABLE // 2 - TABLE // 128 * 20 // 8 - 4 * 4096,
        ),
        ({"quant_method": "gptq", "bits": 4}, 0),
        # bitsandbytes skips the lm head, unless it is told what to skip
        (
            {
                "quant_method": "bitsandbytes",
                "load_in_8bit": True,
                "llm_int8_skip_modules": ["visual"],
            },
            TABLE - 4 * 128256 - 1,
        ),
        (
            {
                "quant_method": "bitsandbytes",
                "load_in_8bit": True,
                "llm_int8_skip_modules": ["lm_head"],
            },
            0,
        ),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 0),
        ({"quant_method": "fp8"}, 0),
        # EXL2 has bits for the head
        ({"quant_method": "exl2", "bits": 4.0, "head_bits": 6}, TABLE * 10 // 8),
        ({"quant_method": "exl2", "bits": 4.0}, 0),
    ],
)
def test_the_lm_head_is_quantized_where_the_writer_quantizes_it(
    scheme: dict[str, Any], saved: int
) -> None:
    model = from_config(**LLAMA, quantization_config=scheme)
    tied = from_config(**{**LLAMA, "tie_word_embeddings": True}, quantization_config=scheme)
    assert size(model) - size(tied) == 2 * TABLE - saved
    # a step reads the head as it is stored
    step = Workload.decode(1, 100)
    dtype = released_dtype(model)
    assert (
        bytes_read(model, step, weights_dtype=dtype) - bytes_read(tied, step, weights_dtype=dtype)
        == -saved
    )
    # on the last of two pipeline stages too
    stages = [
        int(weights(stage, weights_dtype=dtype).total) for stage in split_into_stages(model, 2)
    ]
    assert sum(stages) == size(model)


def test_mlx_quantizes_the_embedding_too() -> None:
    """16 bits of scale and of bias per 64; a tied head reads the quantized embedding."""
    mlx = {"bits": 4, "group_size": 64}
    model = from_config(
        **{**LLAMA, "tie_word_embeddings": True}, quantization=mlx, quantization_config=mlx
    )
    assert size(model) == (32 * LINEAR + TABLE) * 9 // 16 + 2 * 65 * 4096
    assert bytes_read(model, Workload.decode(1, 100), weights_dtype="int4") == size(model)
    # a module's own entry goes before
    own = {
        **mlx,
        "model.embed_tokens": {"bits": 8, "group_size": 64},
        "model.layers.0.mlp.down_proj": False,
    }
    changed = from_config(**{**LLAMA, "tie_word_embeddings": True}, quantization=own)
    assert size(changed) - size(model) == TABLE // 2 + 4096 * 14336 * 23 // 16
    served = FitRequest(
        model, Workload.decode(1, 100), "llamacpp", gpu=gpu("m4-16gb"), served_model="org/name-4bit"
    )
    assert launch_command(resolve(served)) == "mlx_lm.server --model org/name-4bit"


def test_a_router_is_quantized_only_by_mlx() -> None:
    mixtral = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    mixtral["architectures"] = ["MixtralForCausalLM"]
    gates = {f"model.layers.{n}.block_sparse_moe.gate": {"bits": 8} for n in range(32)}
    router, matrices = 8 * 4096, 2 * 4096**2 + 2 * 4096 * 1024 + 8 * 3 * 4096 * 14336
    plain, named = (
        from_config(**mixtral, quantization={"bits": 4, **entries}) for entries in ({}, gates)
    )
    assert size(plain) == (32 * (matrices + router) + 2 * TABLE) * 9 // 16 + 2 * 65 * 4096
    assert size(named) - size(plain) == 32 * router // 2
    fp8 = from_config(**mixtral, quantization_config={"quant_method": "mxfp8"})
    assert size(fp8) == 32 * (matrices * 33 // 32 + 2 * router) + 2 * OTHERS
    # DeepSeek's router is a bare tensor in mlx-lm
    deepseek = {**LLAMA, "model_type": "deepseek_v3", "quantization": {"bits": 4}}
    deepseek["architectures"] = ["DeepseekV3ForCausalLM"]
    schemes = from_config(**deepseek).quantization
    assert schemes
    assert not schemes.scheme_of(5, "router", "router")


def test_gptqmodels_rules_change_or_leave_out_modules() -> None:
    rules = {"-:.*q_proj": {}, "+:.*down_proj": {"bits": 8, "group_size": 64}}
    model = from_config(
        **LLAMA, quantization_config={"quant_method": "gptq", "bits": 4, "dynamic": rules}
    )
    q, down = 4096**2, 4096 * 14336
    rest = LINEAR - q - down
    per_layer = (
        2 * q
        + down
        + down // 64 * 3
        + 4 * 14336
        + rest // 2
        + rest // 128 * 20 // 8
        + 4 * (INPUTS - 4096 - 14336)
    )
    assert size(model) == 32 * per_layer + 2 * OTHERS


def test_gptqmodels_rules_do_not_quantize_embedding_and_head() -> None:
    """Qwen3.5-122B-A10B-GPTQ-Int4 has these rules. vLLM loads 68.4 GiB, and would load 66.8 with
    both in 4 bits.
    """
    rules: dict[str, dict[str, int]] = {"lm_head": {}, "model.language_model.embed_tokens": {}}
    scheme = {"quant_method": "gptq", "bits": 4}
    assert size(from_config(**LLAMA, quantization_config={**scheme, "dynamic": rules})) == size(
        from_config(**LLAMA, quantization_config=scheme)
    )


def test_autorounds_extra_config_has_other_bits_for_single_modules() -> None:
    extra = {
        "model.layers.3.mlp.down_proj": {"bits": 8},
        "model.layers.4.self_attn.q_proj": {"bits": 16},
    }
    scheme = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "extra_config": extra}
    q, down = 4096**2, 4096 * 14336
    other = from_config(**LLAMA, quantization_config={**scheme, "extra_config": {}})
    model = from_config(**LLAMA, quantization_config=scheme)
    # 8 bits and 24 of scale and zero point per 128, instead of 4 and 20; 16 bits instead of 4 and
    # 20
    assert (
        size(model) - size(other) == down // 2 + down // 256 + 2 * q - q // 2 - q // 128 * 20 // 8
    )


@pytest.mark.parametrize(
    ("layers", "changed"),
    [({"model.layers.0.mlp": "FP8"}, 1), ({f"model.layers.{n}.mlp": "FP8" for n in range(32)}, 32)],
)
def test_modelopts_mixed_precision_names_every_module(layers: dict[str, str], changed: int) -> None:
    mixed = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {name: {"quant_algo": algorithm} for name, algorithm in layers.items()},
    }
    model = from_config(**LLAMA, quantization_config=mixed)
    mlp = 3 * 4096 * 14336
    assert size(model) == 2 * (32 * LINEAR + OTHERS) - changed * (mlp - 3 * 8)


def test_tensor_parallel_devices_have_a_share_of_each_matrix() -> None:
    model = from_config(
        **LLAMA, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]}
    )
    norms = 65 * 4096 * 2
    assert size(model.shard(2)) - norms == (size(model) - norms) // 2


def test_a_model_file_keeps_the_scheme() -> None:
    config = {
        **LLAMA,
        "quantization_config": compressed({"num_bits": 8, "type": "int", "strategy": "channel"}),
    }
    document = convert_config(config, "config")
    assert size(build_model(document, "copy")) == 32 * (LINEAR + 2 * OUTPUTS) + 2 * OTHERS


# What is not read

UNREAD: dict[str, Any] = {
    "a method that is not known": {"quant_method": "ternary_weights"},
    **{
        f"{name}, whose codebooks vary": {"quant_method": name}
        for name in ("aqlm", "higgs", "vptq", "spqr")
    },
    "quanto": {"quant_method": "quanto", "weights": "int8"},
    "GGUF in a folder": {"quant_method": "gguf"},
    "no object": "int4",
    "a packing that is not known": {
        "quant_method": "gptq",
        "bits": 4,
        "checkpoint_format": "bitblas",
    },
    "modelopt's AWQ": {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"},
    "Quark's integers": {
        "quant_method": "quark",
        "global_quant_config": {"weight": {"dtype": "uint4", "qscheme": "per_group"}},
    },
    "HQQ without bits": {"quant_method": "hqq"},
    "average bits of letters": {"quant_method": "exl2", "bits": "4.0"},
    "bits that are no number": {"quant_method": "gptq", "bits": "4"},
    "sparse weights": compressed(
        {"num_bits": 8, "type": "int", "strategy": "channel"},
        sparsity_config={"format": "sparse-24-bitmask"},
    ),
    "an algorithm that is not known": {"quant_method": "modelopt", "quant_algo": "W1A1"},
    "a pattern that is not valid": {"quant_method": "fp8", "modules_to_not_convert": ["re:("]},
    "a repeat in a repeated group": {
        "quant_method": "fp8",
        "modules_to_not_convert": ["re:(a+)+b"],
    },
    "repeated alternatives": {"quant_method": "fp8", "modules_to_not_convert": ["re:(.|.)*x$"]},
    "a repeated group of groups": {
        "quant_method": "fp8",
        "modules_to_not_convert": ["re:((.+))+x$"],
    },
    "many alternatives": {
        "quant_method": "fp8",
        "modules_to_not_convert": ["re:" + "(.|.)" * 40 + "x$"],
    },
    "many repeats": {"quant_method": "fp8", "modules_to_not_convert": ["re:.*.*.*.*.*.*x$"]},
    "a repeat behind a comment": {
        "quant_method": "fp8",
        "modules_to_not_convert": ["re:(?#[)(.|.)*x$(?#])"],
    },
    "very many patterns": {
        "quant_method": "fp8",
        "modules_to_not_convert": [f"re:{n}" for n in range(40_000)],
    },
    "a name without end": {"quant_method": "fp8", "modules_to_not_convert": ["a" * 10_000]},
    "too many names": {
        "quant_method": "fp8",
        "modules_to_not_convert": [str(n) for n in range(60_000)],
    },
    "names that are no list": {"quant_method": "fp8", "modules_to_not_convert": 7},
}


def test_patterns_of_releases_are_read() -> None:
    released = [
        "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
        "re:vision_tower.*",
        "re:.*mlp.gate$",
        "re:.*self_attn.*",
    ]
    assert pattern_problem(released) == ""
    assert (
        pattern_problem([f"re:.*\\.layers\\.{i}\\.(?:mlp|self_attn)\\..*" for i in range(100)])
        == ""
    )


def test_a_wrong_pattern_in_a_model_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "model.yaml"
    scheme = "quantization: {method: gptq, schemes: [{dtype: int4, bits: 4}], ignored: ['re:(']}"
    file.write_text(f"{preset_text('llama3-8b')}\nweights_dtype: int4\n{scheme}\n")
    with pytest.raises(
        AttncalcError, match="quantization: has a pattern of modules that is not valid"
    ):
        load(file)


METHODS = sorted({*_METHODS, "mxfp4", "aqlm", ""})
FIELDS = [
    "bits",
    "nbits",
    "group_size",
    "w_bit",
    "q_group_size",
    "quant_config",
    "weight_quant_params",
    "skip_modules",
    "quant_type",
    "_type",
    "_data",
    "default",
    "fqn_to_config",
    "modules_to_not_convert",
    "ignored_layers",
    "ignore",
    "exclude",
    "exclude_modules",
    "quant_algo",
    "quantized_layers",
    "quantization",
    "config_groups",
    "weights",
    "num_bits",
    "type",
    "strategy",
    "block_structure",
    "targets",
    "format",
    "dynamic",
    "extra_config",
    "lm_head",
    "modules_in_block_to_quantize",
    "packing_format",
    "data_type",
    "head_bits",
    "mode",
    "global_quant_config",
    "layer_quant_config",
    "weight",
    "dtype",
    "qscheme",
    "weight_block_size",
    "moe_quant_algo",
    "expert_dtype",
    "llm_int8_skip_modules",
    "load_in_4bit",
    "load_in_8bit",
    "bnb_4bit_use_double_quant",
    "kv_cache_scheme",
    "kv_cache_quant_algo",
    "sparsity_config",
    "input_activations",
    "checkpoint_format",
    "model.layers.0.mlp",
]
VALUES = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        3,
        4,
        8,
        16,
        -1,
        10**9,
        2.5,
        float("nan"),
        "",
        "int",
        "float",
        "Linear",
        "re:(",
        "*",
        "group",
        "FP8",
        "MIXED_PRECISION",
        "fp8_e4m3",
        "per_tensor",
        "affine",
        "Int4WeightOnlyConfig",
        "marlin",
    ]
)
JSON = st.recursive(
    VALUES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6)
    ),
)


@given(st.sampled_from(METHODS), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=12))
def test_any_quantization_config_is_read_or_named_as_unread(
    method: str, config: dict[str, Any]
) -> None:
    found = released({**LLAMA, "quantization_config": {**config, "quant_method": method}}, {})
    assert found
    if found.unread:
        assert (found.weights_dtype, found.experts_dtype) == (None, None)
    elif found.quantization:
        model = from_config(**LLAMA, quantization_config={**config, "quant_method": method})
        assert 0 < size(model) < 3 * int(params(model).total)


@each("scheme", UNREAD.values(), ids=UNREAD)
def test_what_is_not_read_is_an_error_in_fit_and_no_figure_in_kv(
    scheme: Any, ask: Ask, tmp_path: Path
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**LLAMA, "quantization_config": scheme}))
    error, tip = ask("fit", str(file), "--gpu", "h100-80gb").error.splitlines()
    assert error.startswith("error: the quantization of")
    assert "--weights-dtype" in tip
    assert ask("fit", str(file), "--gpu", "h100-80gb", "--weights-dtype", "int4").code == 0
    figures = {r["name"]: r["value"] for r in ask("kv", str(file), "--json").document["results"]}
    assert figures["weights"] is None


def test_kv_and_fit_have_the_same_weights(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(
        json.dumps(
            {**LLAMA, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64}}
        )
    )
    answers = (
        ask("kv", str(file), "--json"),
        ask("fit", str(file), "--gpu", "h100", "--engine", "ideal", "--json"),
    )
    kv, fit = (
        {r["name"]: r["value"] for r in json.loads(answer.out)["results"]} for answer in answers
    )
    assert (
        kv["weights"] == fit["weights"] == 32 * (LINEAR // 2 + LINEAR // 64 * 20 // 8) + 2 * OTHERS
    )


@pytest.mark.parametrize(
    ("scheme", "dtype_of_products"),
    [
        ({"quant_method": "gptq", "bits": 8}, "bf16"),
        ({"quant_method": "gptq", "bits": 4}, "int4"),  # whose roofline converts them
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        (compressed({"num_bits": 8, "type": "float", "strategy": "channel"}), "bf16"),
        (
            compressed(
                {"num_bits": 8, "type": "float", "strategy": "channel"},
                inputs={"num_bits": 8, "dynamic": True},
            ),
            "fp8",
        ),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "fp4"),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}, "bf16"),
        ({"quant_method": "torchao", "quant_type": "float8_weight_only"}, "bf16"),
    ],
)
def test_products_run_in_the_models_dtype_if_only_weights_are_quantized(
    scheme: dict[str, Any], dtype_of_products: str
) -> None:
    model = from_config(**LLAMA, quantization_config=scheme)
    assert multiplied_as(model, dtype("bf16"), released_dtype(model)).name == dtype_of_products
    assert (
        multiplied_as(model, dtype("bf16"), "int8" if model.weights_dtype != "int8" else "fp8").name
        != "bf16"
    )


@pytest.mark.parametrize(
    "name",
    [
        "Llama-3.1-8B-Instruct-NVFP4",
        "llama_8b_awq",
        "NVIDIA-Nemotron-3.5-Lightning-8B-of-Llama-quantized.w4a16",
    ],
)
def test_a_name_that_tells_a_quantization_without_its_config_is_an_error(
    name: str, ask: Ask, tmp_path: Path
) -> None:
    """As nvidia's older releases, whose quantization is in hf_quant_config.json alone."""
    file = tmp_path / f"{name}.json"
    file.write_text(json.dumps(LLAMA))
    error = ask("fit", str(file), "--gpu", "h100").error
    assert "and the config.json has no quantization_config" in error
    assert "hf_quant_config.json" in error.splitlines()[1]
    assert ask("fit", str(file), "--gpu", "h100", "--weights-dtype", "bf16").code == 0
    assert "Sizes assume the dtype shown" in ask("params", str(file)).out.replace("\n  ", " ")


@pytest.mark.parametrize(
    "name", ["Llama-3.1-8B", "Nemotron-3-Ultra-550B-BF16", "gemma-3-qat-int4-unquantized", "fp8ish"]
)
def test_other_names_tell_no_quantization(name: str, ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.json"
    file.write_text(json.dumps(LLAMA))
    assert ask("fit", str(file), "--gpu", "h100").code == 0


def test_modelopts_own_file_is_read_beside_the_config(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    plain = load(str(tmp_path / "config.json"))
    own = {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
    }
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(own))
    for path in (tmp_path, tmp_path / "config.json"):
        model = load(str(path))
        assert (model.weights_dtype, model.kv_dtype) == ("fp8", "fp8")
        assert size(model) < size(plain)
    (tmp_path / "hf_quant_config.json").unlink()
    (tmp_path / "quantize_config.json").write_text(
        json.dumps({"bits": 4, "group_size": 128, "desc_act": False})
    )
    gptq = load(str(tmp_path))
    assert size(gptq) == 32 * (LINEAR // 2 + LINEAR // 128 * 20 // 8 + 4 * INPUTS) + 2 * OTHERS
    (tmp_path / "hf_quant_config.json").write_text("[]")
    assert "hf_quant_config.json" in ask("kv", str(tmp_path)).error


@given(
    st.integers(1, 300),
    st.integers(1, 300),
    st.sampled_from([0, 16, 32, 128]),
    st.sampled_from([0, 1, 128]),
)
def test_a_matrix_is_never_smaller_than_its_elements(
    rows: int, cols: int, group: int, block: int
) -> None:
    scheme = Scheme("int4", 4, group=group, block=block, zero_bits=4)
    elements = -(-rows * cols * 4 // 8)
    scales = scheme.matrix_bytes(rows, cols) - elements
    assert 0 < scales <= 3 * rows * cols


def test_layers_are_found_by_their_own_number() -> None:
    """'model.layers.1*' also covers layers 10 to 19, as a shell pattern does; 'model.layers.1.*'
    does not.
    """
    scheme = (Scheme("fp8", 8),)
    wide, narrow = (
        Quantization("modelopt", scheme, (name,))
        for name in ("model.layers.1*", "model.layers.1.*")
    )
    covered = [[n for n in range(30) if not q.scheme_of(n, "mlp", "W_up")] for q in (wide, narrow)]
    assert covered == [[1, *range(10, 20)], [1]]


QWEN3_5_MODULES = {
    "linear_attn": ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj"),
    "self_attn": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "mlp": ("gate_proj", "up_proj", "down_proj"),
}
NAMES_IN_QWEN3_5 = [
    f"model.layers.{n}.{parent}.{leaf}"
    for n in range(64)
    for parent in ("self_attn" if n % 4 == 3 else "linear_attn", "mlp")
    for leaf in QWEN3_5_MODULES[parent]
]


def qwen3_5_without(*listed: str) -> int:
    fp8 = compressed({"num_bits": 8, "type": "float", "strategy": "channel"})
    sizes = {
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "num_hidden_layers": 64,
        "vocab_size": 248320,
    }
    heads = {
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "linear_value_head_dim": 128,
    }
    linear = {"linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_key_head_dim": 128}
    quantization = {**fp8, "ignore": ["lm_head", *listed]}
    return size(
        from_config(
            model_type="qwen3_5_text", **sizes, **heads, **linear, quantization_config=quantization
        )
    )


@each("parent", QWEN3_5_MODULES)
def test_a_pattern_leaves_out_the_modules_whose_names_it_matches(parent: str) -> None:
    for pattern in (
        f".*{parent}.*",
        *(f".*{leaf}$" for leaf in QWEN3_5_MODULES[parent]),
        ".*in_proj_qkv",
        ".*gate.*",
    ):
        named = [name for name in NAMES_IN_QWEN3_5 if re.match(pattern, name)]
        assert qwen3_5_without(f"re:{pattern}") == qwen3_5_without(*named) > qwen3_5_without()


def test_in_proj_z_is_a_module_of_the_linear_layers_alone() -> None:
    # 48 layers of 5120 x 48 * 128: 2 bytes an element in place of 1, and no scale of 2 bytes per
    # output
    assert qwen3_5_without("re:.*in_proj_z$") - qwen3_5_without() == 48 * (5120 * 6144 - 2 * 6144)


def test_gate_in_modelopt_leaves_out_routers_and_dense_gates_but_no_routed_expert() -> None:
    """As vLLM and SGLang, which compare one name for all routed experts, and one for a fused gate
    and up.
    """
    covers = Quantization("modelopt", (Scheme("fp4", 4),), ("lm_head", "*gate*")).scheme_of
    matrices = ("W_gate", "W_up", "W_down")
    assert [bool(covers(3, "experts", name)) for name in matrices] == [True] * 3
    assert [bool(covers(3, "mlp", name)) for name in matrices] == [False, False, True]
    no_gates = Quantization("modelopt", (Scheme("fp4", 4),), ("*gate*",), "nemotron_h").scheme_of
    assert no_gates(1, "experts", "W_up")
    assert no_gates(1, "shared_experts", "W_up")


# The dtype of the cache

SCHEME_8 = {
    "num_bits": 8,
    "type": "float",
    "strategy": "tensor",
    "dynamic": False,
    "symmetric": True,
}
INT8 = compressed({"num_bits": 8, "type": "int", "strategy": "channel"})
CACHES: dict[str, tuple[dict[str, Any], dict[str, tuple[str, str]]]] = {
    # {engine: (the first version that follows the checkpoint, the one before)}
    "compressed-tensors": (
        {**INT8, "kv_cache_scheme": SCHEME_8},
        {"vllm": ("0.15.0", "0.14.1"), "sglang": ("0.5.19", "0.5.18")},
    ),
    "modelopt": (
        {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
        {"vllm": ("0.14.1", "0.13.0"), "sglang": ("0.5.3", "0.5.2")},
    ),
    "modelopt's kv_cache_scheme": (
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": SCHEME_8},
        {"vllm": ("0.14.1", "0.13.0"), "sglang": ("0.5.3", "0.5.2")},
    ),
    "an NVFP4 cache": (
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "NVFP4"},
        {"vllm": ("0.20.2", "0.19.1")},
    ),
}


def cache_of(model: ModelSpec, engine: str, version: str | None = None, **given: Any) -> str:
    request = FitRequest(
        model,
        Workload.decode(1, 100, **given),
        gpu=gpu("h100-80gb"),
        engine=engine,
        engine_args={"engine_version": version},
    )
    return resolve(request).args.kv_dtype.name


@pytest.mark.parametrize(("scheme", "versions"), CACHES.values(), ids=CACHES)
def test_the_checkpoint_decides_the_dtype_of_the_cache_as_in_the_engine(
    scheme: dict[str, Any], versions: dict[str, tuple[str, str]]
) -> None:
    model = from_config(**LLAMA, quantization_config=scheme)
    asked = "fp4" if scheme.get("kv_cache_quant_algo") == "NVFP4" else "fp8"
    for engine in ("vllm", "sglang"):
        first, before = versions.get(engine, (None, None))
        assert cache_of(model, engine, first) == (asked if first else "bf16")
        assert cache_of(model, engine, before) == "bf16"
        assert cache_of(model, engine, kv_dtype="bf16") == "bf16"
    assert cache_of(model, "ideal") == "bf16"


def test_no_cache_dtype_without_a_scheme_for_it() -> None:
    for scheme in (
        INT8,
        {**INT8, "kv_cache_scheme": None},
        {"quant_method": "modelopt", "quant_algo": "FP8"},
    ):
        assert cache_of(from_config(**LLAMA, quantization_config=scheme), "vllm") == "bf16"
    dynamic = {
        "quant_method": "modelopt",
        "quant_algo": "FP8",
        "kv_cache_scheme": {**SCHEME_8, "dynamic": True},
    }
    assert cache_of(from_config(**LLAMA, quantization_config=dynamic), "vllm") == "bf16"


def test_weights_that_are_not_read_keep_the_dtype_of_the_cache() -> None:
    scheme = {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "kv_cache_quant_algo": "FP8"}
    model = from_config(**LLAMA, quantization_config=scheme)
    assert model.unread_quantization == "modelopt: quant_algo W4A16_AWQ"
    request = FitRequest(model, Workload.decode(1, 100), gpu=gpu("h100-80gb"), weights_dtype="int4")
    assert resolve(request).args.kv_dtype.name == "fp8"


@pytest.mark.parametrize(
    ("scheme", "engine", "version", "loaded"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "vllm", "0.27.1", True),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "vllm", None, False),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "sglang", None, True),
        ({"quant_method": "exl2", "bits": 4.0}, "vllm", None, False),
        ({"quant_method": "exl2", "bits": 4.0}, "ideal", None, True),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, "vllm", None, True),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, "sglang", None, False),
        (INT8, "vllm", None, True),
    ],
)
def test_a_format_that_the_engine_does_not_load_is_a_warning(
    scheme: dict[str, Any], engine: str, version: str | None, loaded: bool, ask: Ask, tmp_path: Path
) -> None:
    file = tmp_path / "model.json"
    file.write_text(json.dumps({**LLAMA, "quantization_config": scheme}))
    given = [
        "--gpu",
        "h100-80gb",
        "--engine",
        engine,
        *(["--engine-version", version] if version else []),
    ]
    warned = "does not load" in ask("fit", str(file), *given).out
    assert warned != loaded
    command = ask("fit", str(file), *given, "--json").document["launch_command"]
    assert (command is not None) == (loaded and engine != "ideal")
    # with a dtype of one's own the checkpoint is another one
    assert "does not load" not in ask("fit", str(file), *given, "--weights-dtype", "bf16").out


def test_kv_notes_the_cache_dtype_that_a_checkpoint_asks_for(ask: Ask, tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    scheme = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": SCHEME_8}
    file = tmp_path / "config.json"
    file.write_text(
        json.dumps({**config, "torch_dtype": "bfloat16", "quantization_config": scheme})
    )
    note = "The checkpoint asks for a cache in fp8."
    assert note in " ".join(ask("kv", str(file)).out.split())
    assert note not in " ".join(ask("kv", str(file), "--kv-dtype", "fp8").out.split())
