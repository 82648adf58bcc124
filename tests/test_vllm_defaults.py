"""vLLM's defaults and what it refuses: tokens and sequences of a step, quantized checkpoints, long
contexts.
"""

import dataclasses
from typing import Any

import pytest
from tables import each

from attncalc import AttncalcError, Grouped, Latent, Layers, Mlp, ModelSpec, Stack, fit, load
from attncalc.engines.vllm.engine import ENGINE
from attncalc.engines.vllm.options import VllmArgs
from attncalc.quantization import Quantization
from attncalc.units import dtype

GIB = 2**30


def arguments(**given: Any) -> VllmArgs:
    return VllmArgs(dtype("bf16"), dtype("bf16"), **given)


def model(attention: Any = None, **fields: Any) -> ModelSpec:
    layers = (Layers("layers", 2, attention=attention or Grouped(8, 8, 16), mlp=Mlp(64)),)
    max_context = fields.pop("max_context", None)
    return ModelSpec(
        "toy", "toy", (Stack("decoder", layers, 128, max_context=max_context),), **fields
    )


@pytest.mark.parametrize(
    ("context", "attentions", "tokens"),
    [
        (None, (), 2048),
        (1000, (), 2048),
        (2048, (), 2048),
        (2049, (), 2049),
        (32768, (), 32768),
        # V0 splits longer prompts, but not with MLA
        (32769, (), 2048),
        (32769, ("MLA",), 32769),
        (100_000, ("GQA",), 2048),
    ],
)
def test_v0_takes_whole_prompts_of_up_to_32k(
    context: int | None, attentions: tuple[str, ...], tokens: int
) -> None:
    kinds = frozenset(attentions)
    args = arguments(
        max_model_len=context, attentions=kinds, device_memory=160 * GIB, engine_version="v0"
    )
    assert args.limits.max_num_batched_tokens == tokens
    assert dataclasses.replace(args, max_num_batched_tokens=7).limits.max_num_batched_tokens == 7


@each(
    ("gib", "device", "version", "tokens", "sequences"),
    [
        (None, "", "0.33.0", 8192, 1024),
        (None, "NVIDIA A100", "0.33.0", 2048, 256),
        (69.9, "NVIDIA H100", "0.33.0", 2048, 256),
        (70, "NVIDIA H100", "0.33.0", 8192, 1024),
        (80, "NVIDIA A100", "0.9.0", 2048, 256),
        (80, "NVIDIA A100", "0.8.5", 8192, 1024),
        (80, "NVIDIA A100", "0.8.4", 2048, 256),
        (80, "NVIDIA H100", "0.8.4", 8192, 1024),
        (80, "", "0.8.4", 8192, 1024),
        (23, "NVIDIA L4", "0.8.3", 2048, 1024),
        (121, "NVIDIA GB10", "0.27.1", 2048, 256),
        (80, "AMD Strix Halo", "0.23.0", 8192, 1024),
        (80, "AMD Strix Halo", "0.24.0", 2048, 256),
        (121, "NVIDIA GB10", "0.33.0", 2048, 256),
        (159.9, "AMD MI300X", "0.28.0", 8192, 1024),
        (160, "AMD MI300X", "0.28.0", 16384, 1024),
        (160, "AMD MI300X", "0.27.1", 8192, 1024),
        (80, "NVIDIA H100", "v0", 2048, 256),
    ],
)
def test_limits_of_a_step_by_gpu(
    gib: float | None, device: str, version: str, tokens: int, sequences: int
) -> None:
    args = arguments(
        device=device, device_memory=None if gib is None else int(gib * GIB), engine_version=version
    )
    assert ENGINE.limits(args) == (tokens, sequences)
    assert dataclasses.replace(args, max_num_seqs=3).limits.max_num_seqs == 3


# Quantized checkpoints


@each(
    ("method", "version", "loads"),
    [
        ("fp8", "0.33.0", True),
        ("mlx", "0.33.0", False),
        ("exl3", "0.8.5", False),
        ("bitsandbytes", "0.27.1", True),
        ("bitsandbytes", "0.28", False),
        ("bitsandbytes", "0.28.0", False),
        ("hqq", "0.13.0", True),
        ("hqq", "0.14", False),
        ("hqq", "0.14.0", False),
        ("bitsandbytes", None, False),
    ],
)
def test_which_quantizations_are_loaded(method: str, version: str | None, loads: bool) -> None:
    assert ENGINE.loads_quantization(method, version) == loads


MLA = Latent(8, 50, 12, 6, 9)


@each(
    ("method", "asked", "version", "attention", "expected"),
    [
        (None, "fp8", "0.33.0", None, None),
        ("fp8", "fp8", "0.33.0", None, None),
        ("modelopt", "fp8", "0.13.0", None, None),
        ("modelopt", "fp8", "0.14", None, "fp8"),
        ("modelopt", None, "0.14.0", None, None),
        ("modelopt_fp4", "fp8", "0.14.0", None, "fp8"),
        ("modelopt", "fp4", "0.19.1", None, None),
        ("modelopt", "fp4", "0.20", None, "fp4"),
        ("modelopt", "fp8", "0.33.0", MLA, "fp8"),
        ("compressed-tensors", "fp8", "0.14.1", None, None),
        ("compressed-tensors", "fp8", "0.15", None, "fp8"),
        ("compressed-tensors", "fp8", "0.33.0", MLA, None),
    ],
)
def test_which_checkpoints_decide_the_dtype_of_the_cache(
    method: str | None, asked: str | None, version: str, attention: Any, expected: str | None
) -> None:
    quantization = Quantization(method, ()) if method else None
    whole = model(attention, kv_dtype=asked, quantization=quantization)
    assert ENGINE.checkpoint_cache_dtype(whole, version) == expected


# What is refused


@pytest.mark.parametrize(
    ("context", "maximum", "allowed", "refused"),
    [
        (4096, 4096, False, False),
        (4097, 4096, False, True),
        (4097, 4096, True, False),
        (4097, None, False, False),
        (None, 4096, False, False),
    ],
)
def test_contexts_beyond_the_models_maximum_are_refused(
    context: int | None, maximum: int | None, allowed: bool, refused: bool
) -> None:
    args = arguments(max_model_len=context, allow_long_max_model_len=allowed)
    found = ENGINE.refusal(model(max_context=maximum), args)
    assert (found is not None) == refused
    if found:
        assert found.reason == "context 4,097 is beyond the model's maximum of 4,096"
        assert found.tip.startswith("Use --context 4096 or less.")


@pytest.mark.parametrize(
    ("vocab", "tp", "tip"),
    [
        (100, 1, None),
        (100, 2, None),
        # 128 rows
        (100, 3, "Use a --tp that does: 1, 2."),
        (128, 3, "Use a --tp that does: 1, 2."),
        # 192 rows
        (129, 3, None),
        (129, 7, "Use a --tp that does: 2, 3, 4, 6."),
        (129, 9, "Use a --tp that does: 3, 4, 6, 8."),
        (None, 3, None),
    ],
)
def test_devices_divide_the_padded_vocabulary(vocab: int | None, tp: int, tip: str | None) -> None:
    found = ENGINE.refusal(model(vocab_size=vocab), arguments(tp=tp))
    assert (found and found.tip) == tip
    if found:
        assert (
            found.reason
            == f"--tp {tp} does not divide the padded vocabulary of {-(-(vocab or 0) // 64) * 64}"
        )


# GLM-5.2: 21 of 78 layers have an indexer with keys of 132 B. MiniMax-M3: 57 of 60, with keys of
# 128 elements.
DSA, M3 = 21 * 132, 57


@each(
    ("name", "engine", "version", "gpu", "kv_dtype", "token"),
    [
        # a latent has 512 elements in fp8, 4 scales of 4 B and 64 elements in 16 bits; or 576
        # elements in fp8 or bf16
        ("glm-5.2", "vllm", "0.24.0", "rtx-pro-6000", None, 78 * 656 + DSA),
        ("glm-5.2", "vllm", "0.24.0", "gb10", None, 78 * 656 + DSA),
        ("glm-5.2", "sglang", "0.5.16", "rtx-pro-6000", None, 78 * 576 + DSA),
        ("glm-5.2", "sglang", "0.5.17", "rtx-pro-6000", None, 78 * 656 + DSA),
        ("glm-5.2", "sglang", "0.5.23", "h200", None, 78 * 1152 + DSA),
        ("minimax-m3", "vllm", "0.24.0", "h200", None, 60 * 512 + M3 * 256),
        ("minimax-m3", "vllm", "0.33.0", "b200", "fp8", 60 * 256 + M3 * 256),
        ("minimax-m3", "sglang", "0.5.21", "b200", "fp8", 60 * 256 + M3 * 128),
        ("minimax-m3", "sglang", "0.5.22", "h200", "fp8", 60 * 256 + M3 * 256),
        ("minimax-m3", "sglang", "0.5.23", "h200", "fp8", 60 * 256 + M3 * 128),
        # 512 elements, and 132 B of the indexer per pool of 4 tokens
        ("glm-5.3-flash", "sglang", "0.5.23", "h200", None, 11 * (1024 + 33)),
        ("glm-5.3-flash", "sglang", "0.5.22", "b200", None, 11 * (512 + 33)),
        ("glm-5.3-flash", "sglang", "0.5.21", "b200", None, 11 * (512 + 132)),
    ],
)
def test_the_bytes_of_a_token_beside_an_indexer(
    name: str, engine: str, version: str, gpu: str, kv_dtype: str | None, token: int
) -> None:
    options: dict[str, Any] = {
        "engine": engine,
        "engine_version": version,
        "kv_dtype": kv_dtype,
        "context": 1024,
    }
    answer = fit(name, gpu=gpu, tp=8, weights_dtype="fp4", keep="none", **options)
    figures = {detail.name: int(detail.quantity) for detail in answer.pool.details}
    assert (
        figures.get("kv_bytes_per_token", figures.get("kv_bytes_per_sequence", 0) // 1024) == token
    )


@each(
    ("name", "options", "message"),
    [
        ("glm-5.2", {"gpu": "rtx-pro-6000", "engine_version": "0.23.0"}, "has no kernel for fp8"),
        ("glm-5.2", {"gpu": "rtx-pro-6000", "kv_dtype": "bf16"}, "has no kernel for bf16"),
        ("glm-5.3-flash", {"gpu": "rtx-pro-6000"}, "has no kernel for fp8"),
        # "No valid attention backend found", says 0.32.0's planner for DeepSeek-V3.2
        ("glm-5.2", {"gpu": "a100-80gb"}, "compute capability not supported"),
        ("glm-5.2", {"gpu": "h100", "block_size": 32}, "block_size not supported"),
        ("minimax-m3", {"engine_version": "0.23.0"}, "has no MiniMax-M3"),
        ("minimax-m3", {"block_size": 64}, "MiniMax-M3 only has blocks of 128"),
        ("minimax-m3", {"dcp": 2}, "does not split keys of which an indexer picks blocks"),
        ("minimax-m3", {"kv_dtype": "fp8_ds_mla"}, "has neither"),
        ("minimax-m3", {"engine": "sglang", "engine_version": "0.5.15"}, "has no MiniMax-M3"),
        (
            "minimax-m3",
            {"engine": "sglang", "block_size": 64},
            "pages of 128 tokens here, not of 64",
        ),
        (
            "minimax-m3",
            {"engine": "llamacpp", "gpu": "8xh200", "tp": None},
            "does not know how llama.cpp stores",
        ),
        (
            "glm-5.3-flash",
            {"engine": "sglang", "kv_dtype": "fp8"},
            "in fp8 is only supported on Blackwell GPUs",
        ),
    ],
)
def test_what_engines_do_not_store_beside_an_indexer(
    name: str, options: dict[str, Any], message: str
) -> None:
    def ask() -> None:
        refused = fit(name, **{"gpu": "h200", "tp": 8, "weights_dtype": "fp4", **options}).refusal
        raise AttncalcError(refused.reason if refused else "")

    with pytest.raises(AttncalcError, match=message):
        ask()


def test_glm_5_3_flash_is_in_fp8_by_default_on_data_center_blackwell_from_0_33() -> None:
    found = [
        ENGINE.checkpoint_cache_dtype(load("glm-5.3-flash"), v, "NVIDIA B200")
        for v in ("0.32.0", "0.33.0")
    ]
    assert found == [None, "fp8"]
