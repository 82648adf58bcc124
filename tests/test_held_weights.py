"""Weights as engines hold them: logged start-ups, towers, tables, padding, and the rounding of
PyTorch's allocator.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from asking import Ask, results
from configs import LLAMA_3_8B
from hypothesis import given
from hypothesis import strategies as st

from attncalc import ModelSpec, Workload, load
from attncalc.checkpoint import CheckpointWeights, StoredDtype
from attncalc.config.build import build_model
from attncalc.config.gpus import gpu
from attncalc.config.huggingface import convert_config
from attncalc.cost.params import params
from attncalc.engines.vllm.held_weights import rounding
from attncalc.questions.fit.figures import WEIGHT_PARTS
from attncalc.serving.memory_budget import memory_budget
from attncalc.serving.request import FitRequest, resolve
from attncalc.serving.weights import Weights
from attncalc.units import GIB

DATA: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "held_weights.json").read_text()
)
MIB = 2**20


def held(
    model: ModelSpec, *, engine: str = "vllm", on: str = "h100-80gb", tp: int = 1, **options: Any
) -> Weights:
    """Return the weights of a fit."""
    workload = Workload.decode(1, 100, dtype=options.pop("dtype", None))
    version = {"engine_version": options.pop("version")} if "version" in options else {}
    request = FitRequest(
        model, workload, engine, gpu=gpu(on), tp=tp, engine_args=version, **options
    )
    found = memory_budget(resolve(request)).weights
    assert found is not None
    return found


def extra(found: Weights) -> dict[str, int]:
    """Return the bytes of what is held beside the language model, by label."""
    return {part.label: int(part.size) for part in found.extra}


def from_config(**config: Any) -> ModelSpec:
    return build_model(convert_config(config, "config"), "config")


LLAMA = {**LLAMA_3_8B, "max_position_embeddings": 131072, "rope_theta": 500000.0}

# Logged start-ups


@pytest.mark.parametrize(
    "run",
    DATA["runs"],
    ids=lambda run: f"{run['config']}-tp{run['tp']}-vllm{run['vllm']}-{run['weights']}",
)
def test_weights_are_what_vllm_logged(run: dict[str, Any]) -> None:
    """The worst error of the formulas is 0.026 GiB (gpt-oss-20b at tp 4); the log itself rounds to
    0.01.
    """
    model = from_config(**DATA["configs"][run["config"]])
    found = held(model, tp=run["tp"], version=run["vllm"], dtype=run["dtype"])
    assert abs(int(found.total) / GIB - run["weights"]) < 0.03


MODELS = Path(__file__).parent / "data" / "engine-logs" / "models"


@pytest.mark.parametrize(
    ("name", "version", "on", "options", "logged"),
    # "Model loading took" in public logs of other GPUs; V0 is vLLM's engine before V1
    [
        ("llama-3.1-8b", "0.11.0", "rtx-3090", {}, 14.99),
        ("llama-3.1-8b", "0.10.1", "a100-40gb", {}, 14.99),
        ("llama-3.1-8b", "v0", "rtx-3090", {}, 14.99),
        ("llama-3.2-3b", "v0", "t4", {"dtype": "fp16"}, 6.02),
        ("qwen2.5-0.5b", "0.26.0", "rtx-5060-ti-16gb", {}, 0.93),
        ("qwen2.5-1.5b", "v0", "l40s", {}, 2.88),
        ("qwen2.5-7b", "0.18.1", "v100-32gb", {"dtype": "fp16"}, 14.25),
        ("qwen2.5-14b", "v0", "a100-40gb", {}, 27.59),
        ("qwen3-14b", "0.11.0", "a100-40gb", {}, 27.50),
        ("qwen3-30b-a3b", "0.11.0", "a100-80gb", {}, 56.93),
        # AWQ and GPTQ with groups of 128, whose config is not in the log
        ("qwen2.5-3b", "0.29.0", "l4", {"weights_dtype": "int4"}, 1.95),
        ("phi-4", "v0", "a100-80gb", {"weights_dtype": "int4"}, 8.51),
    ],
)
def test_weights_are_near_public_logs(
    name: str, version: str, on: str, options: dict[str, Any], logged: float
) -> None:
    found = held(load(str(MODELS / f"{name}.json")), on=on, version=version, **options)
    assert abs(int(found.total) / GIB - logged) < 0.05


@pytest.mark.parametrize(
    ("name", "logged"),
    # "Model loading took" of vLLM 0.12 to 0.19 for models in MXFP4 with Marlin's layout
    [("gpt-oss-20b", 13.72), ("gpt-oss-120b", 65.97)],
)
def test_mxfp4_experts_are_padded_as_logged(name: str, logged: float) -> None:
    model = load(name)
    found = held(model, on="a100-80gb", version="0.19.0")
    # hidden 2880 -> 3072, the width of an expert 2880 -> 2944; 17 bits per 4 elements of 4 bits
    layers, experts = model.main.n_layers, {"gpt-oss-20b": 32, "gpt-oss-120b": 128}[name]
    padding = layers * experts * 3 * (3072 * 2944 - 2880**2) * 17 // 32
    assert extra(found)["padding of MXFP4 experts"] == padding
    assert abs(int(found.total) / GIB - logged) < 0.05


def test_hopper_has_the_layouts_of_triton() -> None:
    """20b at tp 2 on vLLM 0.19: half an expert, 1440 wide, is padded to 1472."""
    model = load("gpt-oss-20b")
    per_expert = (
        # values, two to a byte, padded to 64: 2880 / 2 -> 1472 by 2 x 1472, and 1472 / 2 -> 768 by
        # 2880
        1472 * 2944
        + 768 * 2880
        # scales of 32 elements, padded to 256 outputs; those of the checkpoint stay beside them
        + (3072 * 90 + 3072 * 46)
        + (2944 * 90 + 2880 * 46)
    )
    stored = 3 * 2880 * 1440 * 17 // 32
    # biases in fp32 instead of bf16: gate and up of 1472, down of 2880
    biases = 4 * (2944 + 2880) - 2 * (2880 + 2880)
    padding = extra(held(model, tp=2, version="0.19.0"))["padding of MXFP4 experts"]
    assert padding == 24 * 32 * (per_expert + biases - stored)


# Parts


def test_old_versions_keep_products_of_mla() -> None:
    """A log of DeepSeek-R1 at tp 8 on vLLM 0.7.3 has 83.88 GiB of weights; later versions have
    79.7.
    """
    found = held(load("deepseek-v3"), on="h200", tp=8, version="0.7.3")
    # in fp8, 16 of 128 heads: W_Q W_UK has 1,536 x 16 x 512 elements, W_UV W_O 16 x 512 x 7,168
    products = 16 * 512 * (1536 + 7168)
    rotary = 1536 * 16 * 64 * 2  # the rotary part of W_Q, copied in bf16
    assert extra(found)["products of MLA's matrices"] == 61 * (products + rotary)
    assert abs(int(found.total) / GIB - 83.88) < 0.15
    assert "products of MLA's matrices" not in extra(
        held(load("deepseek-v3"), on="h200", tp=8, version="0.8.5")
    )


def test_rope_tables_have_a_row_per_position() -> None:
    # 131,072 positions x 128 elements x 2 B; llama3's scaling does not change them
    scaling = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
    for config in (LLAMA, {**LLAMA, "rope_scaling": scaling}):
        assert extra(held(from_config(**config)))["rope tables"] == 131072 * 128 * 2 == 32 * MIB


@pytest.mark.parametrize(
    ("scaling", "rows"),
    [
        ({"rope_type": "linear", "factor": 8.0}, 8 * 131072),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 4 * 32768),
        ({"rope_type": "dynamic", "factor": 4.0}, 131072),
        # one table for short contexts and one for long ones
        (
            {
                "rope_type": "longrope",
                "short_factor": [1.0] * 64,
                "long_factor": [2.0] * 64,
                "original_max_position_embeddings": 4096,
            },
            131072 + 4096,
        ),
        ({"type": "mrope", "mrope_section": [16, 24, 24]}, 4 * 131072),
    ],
)
def test_scaled_positions_have_longer_tables(scaling: dict[str, Any], rows: int) -> None:
    assert (
        extra(held(from_config(**{**LLAMA, "rope_scaling": scaling})))["rope tables"]
        == rows * 128 * 2
    )


def test_gemma3_has_a_table_for_each_kind_of_layer() -> None:
    # 27B: heads of 128, full layers with factor 8 and sliding ones without
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 5376,
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
    }
    text |= {
        "num_key_value_heads": 16,
        "head_dim": 128,
        "intermediate_size": 21504,
        "vocab_size": 262208,
    }
    text |= {
        "max_position_embeddings": 131072,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    vision = {
        "model_type": "siglip_vision_model",
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "patch_size": 14,
    }
    vision |= {
        "num_attention_heads": 16,
        "num_hidden_layers": 27,
        "image_size": 896,
        "vision_use_head": False,
    }
    model = from_config(
        model_type="gemma3", text_config=text, vision_config=vision, torch_dtype="bfloat16"
    )
    parts = extra(held(model))
    assert parts["rope tables"] == (8 + 1) * 131072 * 128 * 2
    # SigLIP So400m with 4,096 patches of 14 x 14: 416,866,032 parameters in transformers' class;
    # the projector adds a matrix 1152 x 5376 and a norm of 1152
    assert parts["vision tower"] == 2 * (416_866_032 + 1152 * 5376 + 1152)
    assert round(parts["vision tower"] / GIB, 1) == 0.8
    # over two devices the matrices of its layers are divided
    halved = 27 * (4 * 1152**2 + 3 * 1152 + 2 * 1152 * 4304 + 4304) // 2
    assert extra(held(model, tp=2))["vision tower"] == parts["vision tower"] - 2 * halved
    # llama.cpp loads it from a file of its own
    assert "vision tower" not in extra(held(model, engine="llamacpp"))


def test_models_without_rotary_positions_have_no_table() -> None:
    assert "rope tables" not in extra(held(load("gpt2")))


@pytest.mark.parametrize(("name", "tables"), [("flash", 2), ("pro", 1)])
def test_deepseek_v4_keeps_tables_in_fp32(name: str, tables: int) -> None:
    """Flash has layers without pools, whose base of rotary positions is another."""
    assert extra(held(load(f"deepseek-v4-{name}")))["rope tables"] == tables * 1048576 * 64 * 4


@pytest.mark.parametrize(
    ("name", "options", "per_token"),
    [
        # 512 or 1,024 picked tokens of 4 bytes; 4 residual streams, also without a drafter up to
        # 0.26
        ("flash", {"version": "0.26.0"}, 512 * 4 + 4 * 4096 * 2),
        ("pro", {"version": "0.26.0"}, 1024 * 4 + 4 * 7168 * 2),
        # queries of 512, 64 also where a GPU has 32, and 64 heads of the indexer: 128 values in 4
        # bits, a scale for each 32 and a weight in fp32
        ("flash", {"version": "0.28.0", "tp": 2}, 512 * 4 + 64 * 512 * 2 + 64 * (64 + 4 + 4)),
        (
            "flash",
            {"version": "0.28.0", "tp": 4, "on": "rtx-pro-6000"},
            512 * 4 + 16 * 512 * 2 + 64 * (64 + 4 + 4),
        ),
        ("flash", {"version": "0.29.0"}, 512 * 4),
    ],
)
def test_deepseek_v4_has_buffers_for_the_tokens_of_a_step(
    name: str, options: dict[str, Any], per_token: int
) -> None:
    parts = extra(held(load(f"deepseek-v4-{name}"), **options))
    assert parts["buffers of streams and picked tokens"] == 8192 * per_token


def test_latents_beside_an_indexer_have_a_buffer_for_the_picked_tokens() -> None:
    """GLM-5.3 picks 2,048 tokens in pools of 4, and has room for 3 more, in tiles of 128."""
    for name, picked in (("deepseek-v3.2", 2048), ("glm-5.3-flash", 2176)):
        assert extra(held(load(name)))["buffers of streams and picked tokens"] == 8192 * picked * 4


def test_sglang_keeps_rope_tables_in_fp32() -> None:
    assert extra(held(from_config(**LLAMA), engine="sglang"))["rope tables"] == 131072 * 128 * 4


DEEPSEEK: dict[str, Any] = {
    **DATA["configs"]["deepseek-ai--deepseek-v2-lite-chat"],
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


def test_kv_b_is_copied_if_it_is_quantized() -> None:
    plain = from_config(
        **{key: value for key, value in DEEPSEEK.items() if key != "quantization_config"}
    )
    assert "absorbed kv_b" not in extra(held(plain))  # views of the matrix itself
    # 27 layers x latent 512 x 16 heads x (128 + 128) x 2 B
    quantized = extra(held(from_config(**DEEPSEEK)))
    assert quantized["absorbed kv_b"] == 27 * 512 * 16 * 256 * 2
    # SGLang always copies
    assert extra(held(plain, engine="sglang"))["absorbed kv_b"] == 27 * 512 * 16 * 256 * 2


def test_the_allocator_gives_whole_blocks_of_2_mib() -> None:
    # 75 MiB take 76, because the last MiB of a block is not split off; 74.5 would leave 1.5 MiB,
    # which is
    assert [rounding(int(size * MIB)) / MIB for size in (75, 74.5, 74, 87.5, 9)] == [
        1,
        0,
        0,
        0.5,
        0,
    ]
    # from vLLM 0.21 on tensors of 20 MiB or more are not split off
    assert [rounding(int(size * MIB), whole=True) / MIB for size in (74.5, 20.5, 18.5, 16)] == [
        1.5,
        1.5,
        0,
        0,
    ]
    # phi-4: q, k and v 5120 x 7680 x 2 B = 75 MiB, down 17920 x 5120 x 2 B = 175 MiB, in 40 layers
    # each; gate and up 350 MiB and o 50 MiB are whole blocks
    phi = from_config(**DATA["configs"]["microsoft--phi-4"])
    assert extra(held(phi))["rounding of PyTorch's allocator"] == 40 * (1 + 1) * MIB
    # Gemma 3 1B: gate and up 1152 x 13824 x 2 B = 30.375 MiB take 32, and down takes 16 instead of
    # 15.1875
    gemma, down = (
        load(str(MODELS.parents[1] / "startups" / "models" / "own-gemma3-1b.json")),
        26 * 13 * MIB // 16,
    )
    assert extra(held(gemma, version="0.20.2"))["rounding of PyTorch's allocator"] == down
    assert (
        extra(held(gemma, version="0.21.0"))["rounding of PyTorch's allocator"]
        == down + 26 * 13 * MIB // 8
    )


@given(st.integers(1, 2**34))
def test_the_allocator_adds_at_most_1_mib_to_a_tensor(size: int) -> None:
    assert 0 <= rounding(size) <= MIB
    assert rounding(size) == 0 or (-(-size // 512) * 512 + rounding(size)) % (2 * MIB) == 0


def test_parts_and_weights_add_up() -> None:
    for name in ("gpt-oss-20b", "llama3-8b"):
        found = held(load(name), tp=2)
        (model_bytes,) = (
            part for part_name, _, part in found.parts if part_name == "weights_model"
        )
        assert found.total == model_bytes + sum(extra(found).values())


def test_files_are_exact_and_have_the_same_parts_beside_them() -> None:
    for name in ("gpt-oss-20b", "gemma3-27b"):
        model = load(name)
        files = CheckpointWeights(1, 1, (StoredDtype("BF16", 500, 1000),), 1000)
        from_files, counted = held(dataclasses.replace(model, stored=files)), held(model)
        expected = {
            label: size for label, size in extra(counted).items() if label != "vision tower"
        }
        assert extra(from_files) == expected
        assert int(from_files.total) == 1000 + sum(expected.values())


# fp32


def test_models_in_fp32_are_cast_by_serving_engines() -> None:
    model = load("gpt2")
    two_bytes = 2 * int(params(model).total)
    for engine, name, on in (
        ("vllm", "bf16", "h100-80gb"),
        ("vllm", "fp16", "t4"),
        ("sglang", "fp16", "h100-80gb"),
    ):
        resolved = resolve(FitRequest(model, Workload.decode(1, 100), engine, gpu=gpu(on)))
        assert (resolved.args.dtype.name, resolved.args.kv_dtype.name) == (name, name)
        found = memory_budget(resolved).weights
        assert found is not None
        assert int(found.total) - sum(extra(found).values()) == two_bytes
        assert any("released in fp32" in note and f"in {name}." in note for note in found.notes)
    assert int(held(model, engine="transformers").total) == 2 * two_bytes
    assert held(model, dtype="fp32").dtype == "fp32"


# The dtype of the cache


@pytest.mark.parametrize(
    ("config", "kv"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "bf16"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}
                },
                "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"},
            },
            "fp8",
        ),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "fp8"),
        (
            {
                "quant_method": "modelopt",
                "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
            },
            "fp8",
        ),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": None}, "bf16"),
    ],
)
def test_the_quantization_decides_the_dtype_of_the_cache(config: dict[str, Any], kv: str) -> None:
    model = from_config(**LLAMA, quantization_config=config)
    request = FitRequest(model, Workload.decode(1, 100), gpu=gpu("h100-80gb"))
    assert resolve(request).args.kv_dtype.name == kv
    # --kv-dtype goes first, and llama.cpp has its own default
    assert resolve(request.with_workload(kv_dtype="bf16")).args.kv_dtype.name == "bf16"
    assert resolve(dataclasses.replace(request, engine="llamacpp")).args.kv_dtype.name == "fp16"


def test_gemma3s_preset_has_its_published_tower() -> None:
    """transformers' class of the whole model has 27,432,406,640 parameters."""
    model = load("gemma3-27b")
    (tower,) = model.towers
    assert int(params(model).total) + tower.params == 27_432_406_640


def test_gemmas_with_inputs_per_layer_have_a_buffer_for_a_step() -> None:
    """It has max_num_batched_tokens x layers x width of the inputs: for E2B 35 x 256."""
    file = Path(__file__).parent / "data" / "startups" / "models" / "gemma-4-e2b.json"
    model = load(str(file))
    label = "buffer of per-layer inputs"
    assert extra(held(model))[label] == 8192 * 35 * 256 * 2
    assert extra(held(model, on="rtx-4090"))[label] == 2048 * 35 * 256 * 2
    assert label not in extra(held(dataclasses.replace(model, towers=())))
    assert label not in extra(held(load("gemma3-27b")))


def test_every_part_has_a_line_on_the_full_screen_and_a_figure(ask: Ask) -> None:
    """Gemma 4 E2B's buffer of inputs per layer: 2,048 tokens x 35 layers x 256 elements x 2 B = 35
    MiB.
    """
    file = Path(__file__).parent / "data" / "startups" / "models" / "gemma-4-e2b.json"
    command = ("fit", str(file), "--gpu", "l4", "-c", "8192")
    assert (
        "buffer of per-layer inputs             35 MiB      36,700,160 B"
        in ask(*command, "--full").out
    )
    assert results(ask(*command, "--json"))["weights_layer_inputs"] == 2048 * 35 * 256 * 2
    assert {part.name for part in held(load(str(file)), on="l4").extra} <= {*WEIGHT_PARTS}
