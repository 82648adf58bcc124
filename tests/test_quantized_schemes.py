"""The schemes that each quantization_config describes: bits, groups, scales, zero points, modules
and limits.

The bytes that follow from a scheme are in test_quantization.py; released checkpoints in
test_quantized_releases.py.
"""

from typing import Any

import pytest
from tables import each

from attncalc.config.huggingface.quantized.fields import MAX_MODULES, MAX_NAME, MAX_SCHEMES
from attncalc.config.huggingface.quantized.released import (
    Released,
    released,
    scheme_in_name,
    to_keys,
)
from attncalc.quantization import Scheme


def read(config: Any, **others: Any) -> Released:
    found = released({"model_type": "llama", "quantization_config": config, **others}, {})
    assert found
    return found


def schemes(config: dict[str, Any], **others: Any) -> list[Scheme]:
    found = read(config, **others)
    assert (found.unread, found.quantization is None) == ("", False)
    assert found.quantization
    return list(found.quantization.schemes)


def ignored(config: dict[str, Any]) -> list[str]:
    quantization = read(config).quantization
    assert quantization
    return list(quantization.ignored)


def compressed(weights: Any, inputs: Any = None, **others: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **others}


def quark(weight: Any) -> dict[str, Any]:
    return {"quant_method": "quark", "global_quant_config": {"weight": weight}}


def hqq(**params: Any) -> dict[str, Any]:
    return {"quant_method": "hqq", "quant_config": {"weight_quant_params": params}}


def torchao(kind: Any, **kwargs: Any) -> dict[str, Any]:
    return {"quant_method": "torchao", "quant_type": kind, "quant_type_kwargs": kwargs}


def of(method: str, /, **fields: Any) -> dict[str, Any]:
    return {"quant_method": method, **fields}


def of_weights(*scheme: Any, **fields: Any) -> Scheme:
    """Return a scheme of the weights alone."""
    return Scheme(*scheme, **fields)._replace(weight_only=True)


NO_LISTS: list[Any] = [[], "a", None]
NO_BLOCKS: list[Any] = [
    [0, 1],
    [1, 0],
    [-1, 1],
    [1, -1],
    [65537, 1],
    [1, 65537],
    [1],
    [1, 2, 3],
    [1.0, 2],
    128,
    {},
]
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
FP8 = {"num_bits": 8, "type": "float", "strategy": "channel"}
FP4 = {"num_bits": 4, "type": "float"}
HEAD = ("Linear", "lm_head")
MLX = ("Linear", "embed_tokens", "lm_head", "mlp.gate")
GPTQ = of_weights("int4", 4, 128, zero_bits=4, row_bits=32)


def linear(*scheme: Any, **fields: Any) -> Scheme:
    """Return a scheme of compressed-tensors for the weights alone of linear layers and of the
    head.
    """
    return Scheme(*scheme, **fields)._replace(targets=HEAD, weight_only=True)


# {case: (quantization_config, its schemes or the only one)}.
SCHEMES: dict[str, tuple[dict[str, Any], Scheme | list[Scheme]]] = {
    # compressed-tensors: integers of 2 to 8 bits, called int4 up to 4 bits
    **{
        f"{bits}-bit integers": (
            compressed({**INT4, "num_bits": bits}),
            linear("int4" if bits <= 4 else "int8", bits, 32),
        )
        for bits in range(2, 9)
    },
    "a type left out": (compressed({"num_bits": 8, "strategy": "channel"}), linear("int8", 8)),
    "fp8 with dynamic inputs": (compressed(FP8, {"dynamic": True}), Scheme("fp8", 8, targets=HEAD)),
    "fp8 with static inputs": (
        compressed(FP8, {"dynamic": False}),
        Scheme("fp8", 8, targets=HEAD, fixed=2),
    ),
    "static inputs with zero points": (
        compressed({**FP8, "type": "int"}, {"dynamic": False, "symmetric": False}),
        Scheme("int8", 8, targets=HEAD, fixed=3),
    ),
    "packed": (compressed(INT4, format="pack-quantized"), linear("int4", 4, 32, fixed=16)),
    "packed, by the group's own format": (
        of(
            "compressed-tensors",
            format="dense",
            config_groups={"a": {"weights": INT4, "format": "pack-quantized"}},
        ),
        linear("int4", 4, 32, fixed=16),
    ),
    "zero points": (compressed({**INT4, "symmetric": False}), linear("int4", 4, 32, zero_bits=4)),
    **{
        f"the order {order}": (
            compressed({**INT4, "actorder": order}),
            linear("int4", 4, 32, row_bits=bits),
        )
        for order, bits in (
            (None, 0),
            (False, 0),
            ("weight", 0),
            ("static", 0),
            ("group", 32),
            (True, 32),
        )
    },
    "one scale per matrix": (compressed({**FP8, "strategy": "tensor"}), linear("fp8", 8, block=0)),
    "no strategy": (compressed({"num_bits": 8, "type": "float"}), linear("fp8", 8, block=0)),
    "no strategy, and a group": (
        compressed({"num_bits": 8, "type": "float", "group_size": 1}),
        linear("fp8", 8, 1),
    ),
    "the largest group": (compressed({**INT4, "group_size": 10**6}), linear("int4", 4, 10**6)),
    "a group of all": (compressed({**INT4, "group_size": -1}), linear("int4", 4, 0)),
    "tensor groups": (
        compressed({**INT4, "strategy": "tensor_group", "group_size": 16}),
        linear("int4", 4, 16),
    ),
    "blocks": (
        compressed({**FP8, "strategy": "block", "block_structure": [64, 32]}),
        linear("fp8", 8, 32, 64),
    ),
    "blocks without a strategy": (
        compressed({**FP8, "block_structure": [64, 32]}),
        linear("fp8", 8, 32, 64),
    ),
    "NVFP4": (
        compressed(FP4, {"dynamic": "local"}),
        Scheme("fp4", 4, 16, scale_bits=8, fixed=8, targets=HEAD),
    ),
    "NVFP4 of weights": (
        compressed({**FP4, "group_size": 16}),
        linear("fp4", 4, 16, scale_bits=8, fixed=4),
    ),
    **{
        f"MXFP4 by {name}": (
            compressed({**FP4, **weights}, {"dynamic": True}, **others),
            Scheme("mxfp4", 4, 32, scale_bits=8, targets=HEAD),
        )
        for name, weights, others in (
            ("its group", {"group_size": 32}, {}),
            ("its scales", {"scale_dtype": "torch.uint8"}, {}),
            ("its format", {}, {"format": "mxfp4-pack-quantized"}),
        )
    },
    "MXFP8": (
        compressed(
            {**FP8, "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"},
            {"dynamic": True},
        ),
        Scheme("fp8", 8, 32, scale_bits=8, targets=HEAD),
    ),
    "a group of single modules goes first": (
        of(
            "compressed-tensors",
            config_groups={
                "a": {"weights": FP8},
                "b": {"weights": INT4, "targets": ["Embedding", "re:.*down"]},
            },
        ),
        [of_weights("int4", 4, 32, targets=("embed_tokens", "re:.*down")), linear("fp8", 8)],
    ),
    # GPTQ
    **{
        f"GPTQ of {bits} bits": (
            of("gptq", bits=bits, group_size=64),
            of_weights("int4" if bits <= 4 else "int8", bits, 64, zero_bits=bits, row_bits=32),
        )
        for bits in range(2, 9)
    },
    "GPTQ's defaults": (of("gptq"), GPTQ),
    "GPTQ with one group": (
        of("gptq", group_size=-1),
        of_weights("int4", 4, 0, zero_bits=4, row_bits=32),
    ),
    "GPTQ, version 2": (of("gptq", checkpoint_format="gptq_v2"), GPTQ),
    "Marlin by a flag": (of("gptq", is_marlin_format=True, bits=8), of_weights("int8", 8, 128)),
    "Marlin by its format": (of("gptq", format="marlin"), of_weights("int4", 4, 128)),
    "GPTQ of the head": (of("gptq", lm_head=True), GPTQ._replace(targets=HEAD)),
    "GPTQ of some modules": (
        of("gptq", modules_in_block_to_quantize=[["a", "b"], "c"]),
        GPTQ._replace(targets=("a", "b", "c")),
    ),
    **{
        f"GPTQ of the modules {given!r}": (of("gptq", modules_in_block_to_quantize=given), GPTQ)
        for given in NO_LISTS
    },
    "GPTQModel's rules": (
        of(
            "gptq",
            lm_head=True,
            dynamic={"+:.*up": {"bits": 8}, ".*down": {"group_size": 32}, "-:.*q": {}, ".*k": 5},
        ),
        [
            of_weights("int4", 4, 32, zero_bits=4, row_bits=32, targets=("re:.*down",)),
            of_weights("int8", 8, 128, zero_bits=8, row_bits=32, targets=("re:.*up",)),
            of_weights("int4", 4, 128, zero_bits=4, row_bits=32, targets=HEAD),
        ],
    ),
    # AWQ
    "AWQ's defaults": (of("awq"), of_weights("int4", 4, 128, zero_bits=4)),
    "AWQ of 8 bits": (of("awq", bits=8, group_size=64), of_weights("int8", 8, 64, zero_bits=8)),
    "AWQ by its older names": (
        of("awq", w_bit=8, q_group_size=64),
        of_weights("int8", 8, 64, zero_bits=8),
    ),
    # AutoRound
    "AutoRound's defaults": (of("auto-round"), of_weights("int4", 4, 128, zero_bits=4)),
    **{
        f"AutoRound of {bits} bits": (
            of("auto-round", bits=bits, packing_format="auto_round:auto_awq"),
            of_weights("int4" if bits <= 4 else "int8", bits, 128, zero_bits=bits),
        )
        for bits in range(2, 9)
    },
    "AutoRound's MXFP4": (
        of("auto-round", data_type="mx_fp"),
        Scheme("mxfp4", 4, 32, scale_bits=8),
    ),
    "AutoRound's MXFP8": (
        of("auto-round", data_type="mx_fp_rceil", bits=8),
        Scheme("fp8", 8, 32, scale_bits=8),
    ),
    "AutoRound's NVFP4": (
        of("auto-round", data_type="nv_fp4"),
        Scheme("fp4", 4, 16, scale_bits=8, fixed=8),
    ),
    "AutoRound's other bits": (
        of(
            "auto-round",
            group_size=64,
            extra_config={
                "0": 8,
                "a": {"bits": 8},
                "b": {"bits": 16},
                "c": {"group_size": 32, "bits": None},
                "d": {"bits": 8, "sym": True},
                "e": {"sym": True},
                "f": 8,
            },
        ),
        [
            of_weights("int8", 8, 64, zero_bits=8, targets=("a", "d")),
            of_weights("int4", 4, 32, zero_bits=4, targets=("c",)),
            of_weights("int4", 4, 64, zero_bits=4),
        ],
    ),
    # bitsandbytes
    "LLM.int8": (of("bitsandbytes", load_in_8bit=True), Scheme("int8", 8, scale_bits=32, fixed=1)),
    "LLM.int8 by its older name": (
        of("bitsandbytes", _load_in_8bit=True, load_in_4bit=True),
        Scheme("int8", 8, scale_bits=32, fixed=1),
    ),
    "NF4": (of("bitsandbytes", load_in_4bit=True), Scheme("int4", 4, 64, scale_bits=32, fixed=144)),
    "NF4 by its older name": (
        of("bitsandbytes", _load_in_4bit=True),
        Scheme("int4", 4, 64, scale_bits=32, fixed=144),
    ),
    "NF4 with skipped modules": (
        of("bitsandbytes", load_in_4bit=True, llm_int8_skip_modules=["x"]),
        Scheme("int4", 4, 64, scale_bits=32, fixed=144, targets=HEAD),
    ),
    # HQQ
    **{
        f"HQQ of {bits} bits": (
            hqq(nbits=bits, group_size=32),
            of_weights("int4" if bits <= 4 else "int8", bits, 32, zero_bits=16, fixed=68),
        )
        for bits in (1, 2, 4, 8)
    },
    "HQQ of 3 bits": (hqq(nbits=3), of_weights("int4", 32, 64, zero_bits=16, fixed=68, per=10)),
    "HQQ without a group": (
        hqq(nbits=4, group_size=None),
        of_weights("int4", 4, 128, zero_bits=16, fixed=68),
    ),
    "HQQ's bits at the top": (
        of("hqq", nbits=8),
        of_weights("int8", 8, 64, zero_bits=16, fixed=68),
    ),
    "HQQ of each name": (
        of(
            "hqq",
            quant_config={
                "a": {"weight_quant_params": {"nbits": 8}},
                "b": {"weight_quant_params": {"nbits": 8}},
                "c": {"weight_quant_params": None},
                "d": 4,
            },
        ),
        of_weights("int8", 8, 64, zero_bits=16, fixed=68, targets=("a", "b")),
    ),
    "EETQ": (of("eetq"), of_weights("int8", 8)),
    "BitNet with offline weights": (
        of("bitnet", linear_class="autobitlinear", quantization_mode="offline"),
        Scheme(
            "int4", 2, scale_bits=0, fixed=2, words="2-bit elements, 16 bits of scale per matrix"
        ),
    ),
    # torchao
    "torchao's int4": (torchao("int4_weight_only"), of_weights("int4", 4, 128, zero_bits=16)),
    "torchao's int8 has no groups": (
        torchao("int8_weight_only", group_size=32),
        of_weights("int8", 8, scale_bits=32, zero_bits=8),
    ),
    "torchao's int8 with inputs": (
        torchao("int8_dynamic_activation_int8_weight"),
        Scheme("int8", 8, scale_bits=32, zero_bits=8),
    ),
    "torchao's fp8": (torchao("float8_weight_only"), of_weights("fp8", 8, scale_bits=32)),
    "torchao's fp8 with inputs": (
        torchao("float8_dynamic_activation_float8_weight"),
        Scheme("fp8", 8, scale_bits=32),
    ),
    "torchao's intx": (
        torchao("IntxWeightOnlyConfig", granularity={"_data": {"group_size": 16}}),
        of_weights("int8", 8, 16, zero_bits=8),
    ),
    "torchao's intx with inputs": (
        torchao(
            "Int8DynamicActivationIntxWeightConfig",
            weight_granularity={"_data": {"group_size": 16}},
        ),
        Scheme("int8", 8, 16, zero_bits=8),
    ),
    "torchao's intx without a group": (
        torchao("IntxWeightOnlyConfig"),
        of_weights("int8", 8, 32, zero_bits=8),
    ),
    "torchao's intx with inputs and without a group": (
        torchao("Int8DynamicActivationIntxWeightConfig"),
        Scheme("int8", 8, 32, zero_bits=8),
    ),
    "torchao's objects": (
        torchao({"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 64}}}),
        of_weights("int4", 4, 64, zero_bits=16),
    ),
    **{
        f"torchao's {field}": (
            torchao(
                {
                    "default": {
                        "_type": "X",
                        "_data": {
                            field: {
                                "_default": {"_type": "Float8WeightOnlyConfig"},
                                "a": {"_type": "Int4WeightOnlyConfig"},
                                "b": None,
                            }
                        },
                    }
                }
            ),
            [
                of_weights("int4", 4, 128, zero_bits=16, targets=("a",)),
                of_weights("fp8", 8, scale_bits=32),
            ],
        )
        for field in ("fqn_to_config", "module_fqn_to_config")
    },
    # floating point
    "fp8 with dynamic scales": (of("fp8"), Scheme("fp8", 8, block=0, scale_bits=32)),
    "fp8 with static scales": (
        of("fp8", activation_scheme="static"),
        Scheme("fp8", 8, block=0, scale_bits=32, fixed=4),
    ),
    "fp8 in blocks": (
        of("fp8", weight_block_size=[64, 32]),
        Scheme("fp8", 8, 32, 64, scale_bits=32),
    ),
    "the largest blocks": (
        of("fp8", weight_block_size=[65536, 1]),
        Scheme("fp8", 8, 1, 65536, scale_bits=32),
    ),
    "fp8 and experts in NVFP4": (
        of("fp8", moe_quant_algo="nvfp4"),
        [
            Scheme("fp4", 4, 16, scale_bits=8, fixed=8, targets=("experts",)),
            Scheme("fp8", 8, block=0, scale_bits=32),
        ],
    ),
    "MXFP8's method": (of("mxfp8"), Scheme("fp8", 8, 32, scale_bits=8)),
    "FBGEMM": (of("fbgemm_fp8"), Scheme("fp8", 8, scale_bits=32)),
    **{
        f"modelopt's {name}": (of("modelopt", quant_algo=name), scheme)
        for name, scheme in {
            "FP8": Scheme("fp8", 8, block=0, scale_bits=32, fixed=4),
            "FP8_PER_CHANNEL_PER_TOKEN": Scheme("fp8", 8, scale_bits=32),
            "FP8_PB_WO": Scheme("fp8", 8, 128, 128, scale_bits=32),
            "W8A16": of_weights("int8", 8, scale_bits=32),
            "W8A8_SQ_PER_CHANNEL": Scheme("int8", 8, scale_bits=32, row_bits=16),
            "nvfp4": Scheme("fp4", 4, 16, scale_bits=8, fixed=8),
            "NVFP4_AWQ": Scheme("fp4", 4, 16, scale_bits=8, fixed=8, row_bits=16),
            "W4A16_NVFP4": of_weights("fp4", 4, 16, scale_bits=8, fixed=4),
            "MXFP4": Scheme("mxfp4", 4, 32, scale_bits=8),
            "W4A16_MXFP4": of_weights("mxfp4", 4, 32, scale_bits=8),
            "MXFP8": Scheme("fp8", 8, 32, scale_bits=8),
        }.items()
    },
    "transformers' NVFP4": (of("nvfp4"), Scheme("fp4", 4, 16, scale_bits=8, fixed=8)),
    "modelopt without a method": ({"quant_algo": "MXFP8"}, Scheme("fp8", 8, 32, scale_bits=8)),
    "modelopt's mixed precision": (
        of(
            "modelopt",
            quant_algo="MIXED_PRECISION",
            quantized_layers={"a": {"quant_algo": "MXFP8"}, "b": {"quant_algo": "mxfp4"}},
        ),
        [
            Scheme("fp8", 8, 32, scale_bits=8, targets=("a",)),
            Scheme("mxfp4", 4, 32, scale_bits=8, targets=("b",)),
        ],
    ),
    # with fp32 scales, and without the lm head
    "modelopt's groups": (
        of(
            "modelopt",
            quant_algo="MIXED_PRECISION",
            config_groups={
                "a": {
                    "weights": {**FP8, "strategy": "tensor"},
                    "input_activations": {"dynamic": False},
                },
                "b": {"weights": {**FP8, "strategy": "group", "group_size": 32}, "targets": ["x"]},
                "c": {"weights": {**FP8, "type": "int"}, "targets": ["y"]},
            },
        ),
        [
            of_weights("fp8", 8, 32, targets=("x",)),
            of_weights("int8", 8, targets=("y",)),
            Scheme("fp8", 8, block=0, scale_bits=32, fixed=4),
        ],
    ),
    **{
        f"Quark's {stored} {scheme}": (quark({"dtype": stored, "qscheme": scheme}), expected)
        for stored, scheme, expected in (
            ("fp8_e4m3", "per_tensor", Scheme("fp8", 8, block=0, scale_bits=32)),
            ("fp8_e4m3", "per_channel", Scheme("fp8", 8, scale_bits=32)),
            ("int8", "per_tensor", Scheme("int8", 8, block=0, scale_bits=32)),
            ("int8", "per_channel", Scheme("int8", 8, scale_bits=32)),
        )
    },
    "Quark's MXFP4": (
        quark({"dtype": "fp4", "qscheme": "per_group", "group_size": 32}),
        Scheme("mxfp4", 4, 32, scale_bits=8),
    ),
    "Quark's modules alone": (
        of(
            "quark",
            layer_quant_config={"a": {"weight": {"dtype": "int8", "qscheme": "per_channel"}}},
        ),
        Scheme("int8", 8, scale_bits=32, targets=("a",)),
    ),
    # MLX
    **{
        f"MLX of {bits} bits": (
            of("mlx", bits=bits, group_size=32),
            of_weights("int4" if bits <= 4 else "int8", bits, 32, zero_bits=16, targets=MLX),
        )
        for bits in (2, 3, 4, 5, 6, 8)
    },
    "MLX's defaults": (of("mlx"), of_weights("int4", 4, 64, zero_bits=16, targets=MLX)),
    **{
        f"MLX's {mode}": (
            of("mlx", mode=mode),
            of_weights(dtype, bits, group, scale_bits=8, targets=MLX),
        )
        for mode, dtype, bits, group in (
            ("mxfp4", "mxfp4", 4, 32),
            ("mxfp8", "fp8", 8, 32),
            ("nvfp4", "fp4", 4, 16),
        )
    },
    # EXL2 and EXL3: average bits per 10,000 elements; below 6 they are called int4
    **{
        f"EXL2 of {bits} bits": (
            of("exl2", bits=bits),
            of_weights(
                dtype,
                round(bits * 10000),
                scale_bits=0,
                per=10000,
                words=f"{bits:g} bits per weight on average",
            ),
        )
        for bits, dtype in (
            (0.5, "int4"),
            (4.65, "int4"),
            (5.99, "int4"),
            (6, "int8"),
            (8.5, "int8"),
            (16, "int8"),
        )
    },
    "EXL3 with a head": (
        of("exl3", bits=3.0, head_bits=6),
        [
            of_weights(
                dtype,
                bits * 10000,
                scale_bits=16,
                row_bits=16,
                per=10000,
                words=f"{bits} bits per weight on average",
                targets=(target,),
            )
            for dtype, bits, target in (("int8", 6, "lm_head"), ("int4", 3, "Linear"))
        ],
    ),
}


@each("case", SCHEMES)
def test_a_config_has_its_methods_schemes(case: str) -> None:
    config, expected = SCHEMES[case]
    assert schemes(config) == (expected if isinstance(expected, list) else [expected])


def test_experts_may_have_a_dtype_of_their_own() -> None:
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"}
    blocks = Scheme("fp8", 8, 128, 128, scale_bits=32)
    assert schemes(fp8) == [blocks]
    experts = Scheme("mxfp4", 4, 32, scale_bits=8, targets=("experts",))
    assert schemes(fp8, expert_dtype="fp4") == [experts, blocks._replace(scale_bits=8)]
    assert schemes(fp8, expert_dtype="fp8") == [blocks._replace(scale_bits=8)]
    assert schemes({**fp8, "scale_fmt": None}, expert_dtype="fp4") == [experts, blocks]


@pytest.mark.parametrize(
    "family", ["deepseek_v3", "kimi_k2", "glm4_moe", "mistral4", "bailing_moe", "longcat_flash"]
)
def test_mlx_leaves_out_a_router_that_is_no_linear_layer(family: str) -> None:
    # the language model's family, if it has one of its own
    for config, text in (
        ({}, family),
        ({"model_type": family}, None),
        ({"model_type": "llama"}, family),
    ):
        found = released({**config, "quantization": {"bits": 4}}, {"model_type": text})
        assert found
        assert found.quantization
        assert found.quantization.method == "mlx"
        assert found.quantization.schemes[-1].targets == MLX[:3]
        assert found.quantization.names == config.get("model_type", "")


# {case: (quantization_config, the modules that are not quantized)}.
IGNORED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "compressed-tensors": (compressed(FP8, ignore=["a", "a", "b"]), ["a", "b"]),
    "nothing": (compressed(FP8), []),
    "one name": (compressed(FP8, ignore="a"), ["a"]),
    "GPTQModel's rules": (
        of("gptq", modules_to_not_convert=["b"], dynamic={"-:.*q": {}, "+:.*k": {}}),
        ["b", "embed_tokens", "lm_head", "re:.*q"],
    ),
    "AWQ": (of("awq", modules_to_not_convert=["a"]), ["a"]),
    "AutoRound": (
        of("auto-round", extra_config={"a": {"bits": 16}, "b": {"bits": 32}, "c": {"bits": 8}}),
        ["a", "b"],
    ),
    "bitsandbytes": (of("bitsandbytes", load_in_8bit=True, llm_int8_skip_modules=["a"]), ["a"]),
    "HQQ": (hqq(nbits=4), ["lm_head"]),
    "HQQ's own": ({**hqq(nbits=4), "skip_modules": ["a"]}, ["a"]),
    "EETQ": (of("eetq", modules_to_not_convert=["a"]), ["a"]),
    "BitNet": (of("bitnet", modules_to_not_convert=["a"]), ["a"]),
    "torchao": ({**torchao("int8_weight_only"), "modules_to_not_convert": ["a"]}, ["a"]),
    "fp8": (of("fp8", modules_to_not_convert=["a"], ignored_layers=["b"]), ["a"]),
    "fp8 by another name": (of("fp8", ignored_layers=["b"]), ["b"]),
    "NVFP4 experts": (
        of("fp8", moe_quant_algo="NVFP4", ignore=["mtp.0", "head", "x", "lm_head"]),
        ["mtp.0", "head"],
    ),
    "MXFP8": (of("mxfp8", ignored_layers=["b"]), ["b"]),
    "modelopt": (of("modelopt", quant_algo="FP8", exclude_modules=["a"], ignore=["b"]), ["a"]),
    "modelopt by another name": (of("modelopt", quant_algo="FP8", ignore=["b"]), ["b"]),
    "modelopt by a third": (of("modelopt", quant_algo="FP8", modules_to_not_convert=["c"]), ["c"]),
    "FBGEMM": (of("fbgemm_fp8", modules_to_not_convert=["a"]), ["a"]),
    "Quark": (
        {
            **quark({"dtype": "int8", "qscheme": "per_channel"}),
            "exclude": ["a"],
            "layer_quant_config": {"b": {}, "c": 1},
        },
        ["a", "b", "c"],
    ),
    "keys that are switched off": (
        of("gptq", modules_to_not_convert=["a"], outliers=None, rotation=False),
        ["a"],
    ),
    "MLX": (of("mlx", bits=4, a=False, b=True, c={"bits": 8}), ["a"]),
    "as many names as are read": (
        compressed(FP8, ignore=[str(i) for i in range(1000)]),
        [str(i) for i in range(1000)],
    ),
    "the longest name": (compressed(FP8, ignore=["a" * MAX_NAME]), ["a" * MAX_NAME]),
}


@each("case", IGNORED)
def test_a_config_names_what_is_not_quantized(case: str) -> None:
    config, expected = IGNORED[case]
    assert ignored(config) == expected


# {case: (quantization_config, what is not read)}.
UNREAD: dict[str, tuple[Any, str]] = {
    **{
        f"compressed-tensors of {bits} bits": (
            compressed({**INT4, "num_bits": bits}),
            f"{bits}-bit int",
        )
        for bits in (-1, 0, 1, 9)
    },
    **{
        f"compressed-tensors' floats of {bits} bits": (
            compressed({**FP8, "num_bits": bits}),
            f"{bits}-bit float",
        )
        for bits in (3, 5, 7, 9)
    },
    **{
        f"the size {size}": (compressed({**INT4, "group_size": size}), f"group_size {size}")
        for size in (-2, 10**6 + 1, 32.0, True)
    },
    **{
        f"the format {form}": (compressed(INT4, format=form), f"format {form}")
        for form in ("marlin-24", "sparse-24-bitmask", "sparse-bitmask")
    },
    "a key that no library has": (of("gptq", bits=4, outliers=8), "the key outliers"),
    "bits of one kind of layer": (
        {**quark(FP8), "layer_type_quant_config": {"Linear": {}}},
        "the key layer_type",
    ),
    "a key inside modelopt's own": (
        of("modelopt", quantization={"quant_algo": "FP8", "outliers": 8}),
        "the key outliers",
    ),
    "an argument that is not known": (compressed({**INT4, "outliers": 8}), "the key outliers"),
    "a group with more than its scheme": (
        {**compressed(FP8), "config_groups": {"a": {"weights": FP8, "low_rank": 8}}},
        "the key low_rank",
    ),
    "a group that is no object": (
        {**compressed(FP8), "config_groups": {"a": 1}},
        "a group that is not an object",
    ),
    "groups that are no object": (
        {**compressed(FP8), "config_groups": [1]},
        "config_groups is missing",
    ),
    "targets that are no list": (
        {**compressed(FP8), "config_groups": {"a": {"weights": FP8, "targets": "Linear"}}},
        "targets that are not a list",
    ),
    "weights that are no object": (compressed([1]), "weights that are not an object"),
    "no weights": (compressed(None), "no scheme, or too many"),
    **{f"GPTQ of {bits} bits": (of("gptq", bits=bits), f"{bits} bits") for bits in (1, 9)},
    **{f"AWQ of {bits} bits": (of("awq", bits=bits), f"{bits} bits") for bits in (3, 5, 7, 9)},
    **{
        f"AutoRound of {bits} bits": (of("auto-round", bits=bits), f"{bits} bits")
        for bits in (1, 9)
    },
    "AutoRound of 15 bits in a module": (
        of("auto-round", extra_config={"a": {"bits": 15}}),
        "15 bits",
    ),
    "AutoRound's floats": (of("auto-round", data_type="fp"), "data_type fp"),
    "AutoRound's MXFP of 5 bits": (of("auto-round", data_type="mx_fp", bits=5), "data_type mx_fp"),
    "AutoRound for llm-compressor": (
        of("auto-round", packing_format="auto_round:llm_compressor"),
        "packing_format auto_round:llm_compressor",
    ),
    "AutoRound's other packing": (of("auto-round", packing_format="gguf"), "packing_format gguf"),
    "bitsandbytes without bits": (of("bitsandbytes"), "neither 4 nor 8 bits"),
    **{f"HQQ of {bits} bits": (hqq(nbits=bits), f"{bits} bits") for bits in (0, 5, 7, 9)},
    "BitNet's online weights": (
        of("bitnet", linear_class="autobitlinear", quantization_mode="online"),
        "weights that are quantized when they ",
    ),
    "torchao without a type": (torchao({"default": 1}), "quant_type"),
    "torchao's unknown type": (torchao({"default": {"_type": "Uintx"}}), "Uintx"),
    "torchao without any": (
        torchao({"default": {"_type": "X", "_data": {"fqn_to_config": {"a": None}}}}),
        "no scheme, or too many",
    ),
    **{
        f"the block {block}": (of("fp8", weight_block_size=block), "a block of ")
        for block in NO_BLOCKS
    },
    "modelopt without an algorithm": (of("modelopt"), "quant_algo missing"),
    "modelopt's int4 groups": (
        of("modelopt", quant_algo="MIXED_PRECISION", config_groups={"a": {"weights": INT4}}),
        "4-bit integers",
    ),
    "Quark without a scheme": (of("quark"), "no scheme"),
    "Quark's weights": (quark(8), "weights that are not an object"),
    "Quark's groups of 16": (
        quark({"dtype": "fp4", "qscheme": "per_group", "group_size": 16}),
        "fp4 per_group",
    ),
    "Quark's groups of 64": (
        quark({"dtype": "fp4", "qscheme": "per_group", "group_size": 64}),
        "fp4 per_group",
    ),
    "Quark's fp4 per tensor": (
        quark({"dtype": "fp4", "qscheme": "per_tensor", "group_size": 32}),
        "fp4 per_tensor",
    ),
    "Quark's int8 per group": (quark({"dtype": "int8", "qscheme": "per_group"}), "int8 per_group"),
    **{f"MLX of {bits} bits": (of("mlx", bits=bits), f"{bits} bits") for bits in (1, 7, 9)},
    "MLX's mode": (of("mlx", mode="fp"), "mode fp"),
    **{
        f"{bits} average bits": (of("exl2", bits=bits), f"bits {bits}")
        for bits in (0.49, 16.01, True, float("nan"))
    },
    "no average bits": (of("exl3", head_bits=6), "no bits"),
    "one name too many": (compressed(FP8, ignore=["a"] * (MAX_MODULES + 1)), "its list of modules"),
    "a name that is too long": (
        compressed(FP8, ignore=["a" * (MAX_NAME + 1)]),
        "a module's name that is too long",
    ),
    "one scheme too many": (
        of(
            "mlx", bits=8, **{f"m{i}": {"bits": 4, "group_size": i + 1} for i in range(MAX_SCHEMES)}
        ),
        "no scheme, or too many",
    ),
}


@each("case", UNREAD)
def test_a_value_outside_its_limits_is_named_and_not_read(case: str) -> None:
    config, problem = UNREAD[case]
    found = read(config)
    assert problem in found.unread
    assert found.quantization
    assert (found.quantization.schemes, found.weights_dtype, found.experts_dtype) == (
        (),
        None,
        None,
    )


def test_as_many_schemes_and_names_as_are_allowed_are_read() -> None:
    config = of(
        "mlx", bits=8, **{f"m{i}": {"bits": 4, "group_size": i + 1} for i in range(MAX_SCHEMES - 1)}
    )
    assert len(schemes(config)) == MAX_SCHEMES
    assert ignored(compressed(FP8, ignore=["a"] * MAX_MODULES)) == ["a"]


def test_the_dtype_is_the_last_schemes_if_none_covers_attention_or_an_mlp() -> None:
    groups = {
        "a": {"weights": INT4, "targets": ["re:.*nowhere"]},
        "b": {"weights": FP8, "targets": ["re:.*elsewhere"]},
    }
    assert (
        read({"quant_method": "compressed-tensors", "config_groups": groups}).weights_dtype == "fp8"
    )


@pytest.mark.parametrize(
    ("config", "scheme"),
    [
        (
            hqq(nbits=1),
            {
                "dtype": "int4",
                "bits": 1,
                "group": 64,
                "zero_bits": 16,
                "fixed": 68,
                "weight_only": True,
            },
        ),
        ({"quant_method": "eetq"}, {"dtype": "int8", "bits": 8, "weight_only": True}),
        ({"quant_method": "fp8"}, {"dtype": "fp8", "bits": 8, "block": 0, "scale_bits": 32}),
    ],
)
def test_a_model_file_has_the_fields_of_a_scheme_that_are_not_the_defaults(
    config: dict[str, Any], scheme: dict[str, Any]
) -> None:
    keys = dict(to_keys(read(config)))["quantization"]
    assert (keys["schemes"], keys["names"]) == ([scheme], "llama")
    assert "names" not in dict(to_keys(read(config, model_type=None)))["quantization"]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"quant_method": "mxfp4"}, {"experts_dtype": "mxfp4"}),
        ({"bits": 4}, {"unread_quantization": "a quantization_config without quant_method"}),
        (
            {"quant_method": "eetq", "modules_to_not_convert": ["a"]},
            {
                "weights_dtype": "int8",
                "quantization": {
                    "method": "eetq",
                    "schemes": [{"dtype": "int8", "bits": 8, "weight_only": True}],
                    "ignored": ["a"],
                },
            },
        ),
        (
            compressed({**FP8, "strategy": "x"}, kv_cache_scheme={}),
            {
                "kv_dtype": "fp8",
                "unread_quantization": "compressed-tensors: strategy x",
                "quantization": {"method": "compressed-tensors", "schemes": []},
            },
        ),
    ],
)
def test_a_model_file_has_only_the_keys_that_are_known(
    config: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert dict(to_keys(read(config, model_type=None))) == expected


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("nvidia/Qwen3-235B-A22B-NVFP4", "NVFP4"),
        ("Model-int4", "INT4"),
        ("Model-W4A16", "W4A16"),
        ("Model-8bit", "8BIT"),
        ("Model", ""),
        ("ModelFP8", ""),
        ("Model-FP8-dequantized", ""),
        ("Model-AWQ-bf16", ""),
        ("Model-FP8-GGUF", ""),
    ],
)
def test_the_name_of_a_checkpoint_may_tell_its_scheme(name: str, scheme: str) -> None:
    assert scheme_in_name(name) == scheme


MODELOPT = {"quant_method": "modelopt", "quant_algo": "FP8"}
CACHES: list[tuple[dict[str, Any], str | None]] = [
    (compressed(FP8), None),
    (compressed(FP8, kv_cache_scheme={}), "fp8"),
    (compressed(FP8, kv_cache_scheme={"num_bits": 8}), "fp8"),
    (compressed(FP8, kv_cache_scheme={"num_bits": 4}), None),
    (compressed(FP8, kv_cache_scheme={"num_bits": 16}), None),
    (compressed(FP8, kv_cache_scheme="fp8"), None),
    (MODELOPT, None),
    ({**MODELOPT, "kv_cache_quant_algo": "FP8"}, "fp8"),
    ({**MODELOPT, "kv_cache_quant_algo": "NVFP4"}, "fp4"),
    ({**MODELOPT, "kv_cache_quant_algo": "INT8"}, None),
    ({**MODELOPT, "kv_cache_scheme": {"type": "float", "num_bits": 8}}, "fp8"),
    ({**MODELOPT, "kv_cache_scheme": {"type": "float", "num_bits": 8, "dynamic": True}}, None),
    ({**MODELOPT, "kv_cache_scheme": {"type": "float", "num_bits": 4}}, "fp4"),
    ({**MODELOPT, "kv_cache_scheme": {"type": "int", "num_bits": 8}}, None),
    ({**MODELOPT, "kv_cache_scheme": {"type": "float", "num_bits": 9}}, None),
    (
        {
            **MODELOPT,
            "kv_cache_quant_algo": "NVFP4",
            "quantization": {**MODELOPT, "kv_cache_quant_algo": "FP8"},
        },
        "fp8",
    ),
    ({"quant_method": "fp8", "kv_cache_quant_algo": "FP8"}, "fp8"),
    ({"quant_method": "nvfp4", "kv_cache_quant_algo": "FP8"}, "fp8"),
    ({"quant_method": "awq", "kv_cache_quant_algo": "FP8"}, None),
]


@each(("config", "expected"), CACHES)
def test_a_scheme_of_the_cache_is_its_dtype(config: dict[str, Any], expected: str | None) -> None:
    assert read(config).kv_dtype == expected


def test_the_config_or_its_language_model_has_the_quantization() -> None:
    eetq = {"quant_method": "EETQ"}
    assert released({}, {}) is None
    assert released({"quantization_config": {}}, {}) is None
    places: list[tuple[dict[str, Any], dict[str, Any]]]
    places = [({"quantization_config": eetq}, {}), ({}, {"compression_config": eetq})]
    for config, text in places:
        found = released(config, text)
        assert found
        assert (found.weights_dtype, found.unread) == ("int8", "")
    both: list[dict[str, Any]] = [
        {"quantization": {"bits": 8}},
        {"quantization": {"x": 1}, "quantization_config": eetq},
    ]
    for given in both:
        found = released(given, {"quantization_config": {"quant_method": "awq"}})
        assert found
        assert found.weights_dtype == "int8"


def test_what_has_no_method_has_no_schemes() -> None:
    assert read("int4") == Released(unread="a quantization_config that is not an object")
    assert read({"bits": 4}) == Released(unread="a quantization_config without quant_method")
    assert read({"quant_method": "mxfp4"}) == Released(experts_dtype="mxfp4")
    unknown = read({"quant_method": "aqlm"})
    assert unknown.quantization
    assert (unknown.quantization.method, unknown.unread) == ("aqlm", "aqlm")


@pytest.mark.parametrize(
    "field", ["num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"]
)
def test_the_dtype_is_that_of_experts_or_of_all(field: str) -> None:
    """The attention in fp8, and the experts in NVFP4; or only the experts."""
    config = {"quant_method": "fp8", "moe_quant_algo": "NVFP4"}
    found = read(config, **{field: 8})
    assert (found.weights_dtype, found.experts_dtype) == ("fp4", None)
    dense = read(config)
    assert (dense.weights_dtype, dense.experts_dtype) == ("fp8", None)
    only = read(compressed(INT4, ignore=["re:.*self_attn.*"]), **{field: 8})
    assert (only.weights_dtype, only.experts_dtype) == (None, "int4")
    whole = read(compressed(INT4, ignore=["re:.*self_attn.*"]))
    assert (whole.weights_dtype, whole.experts_dtype) == ("int4", None)
    attention = read(compressed(INT4, ignore=["re:.*mlp.*"]))
    assert (attention.weights_dtype, attention.experts_dtype) == ("int4", None)
