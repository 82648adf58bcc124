"""vLLM's defaults and what it refuses: tokens and sequences of a step, quantized checkpoints, long contexts."""

import dataclasses
from typing import Any

import pytest
from tables import each

from attncalc import AttncalcError, Grouped, Latent, Layers, Mlp, ModelSpec, Stack, fit
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
    return ModelSpec("toy", "toy", (Stack("decoder", layers, 128, max_context=max_context),), **fields)


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
def test_v0_takes_whole_prompts_of_up_to_32k(context: int | None, attentions: tuple[str, ...], tokens: int) -> None:
    kinds = frozenset(attentions)
    args = arguments(max_model_len=context, attentions=kinds, device_memory=160 * GIB, engine_version="v0")
    assert args.step_tokens == tokens
    assert dataclasses.replace(args, max_num_batched_tokens=7).step_tokens == 7


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
def test_limits_of_a_step_by_gpu(gib: float | None, device: str, version: str, tokens: int, sequences: int) -> None:
    args = arguments(device=device, device_memory=None if gib is None else int(gib * GIB), engine_version=version)
    assert ENGINE.limits(args) == (tokens, sequences)
    assert dataclasses.replace(args, max_num_seqs=3).step_sequences == 3


def test_the_share_of_the_memory_is_larger_from_0_20() -> None:
    for version, share in (("0.19.1", "0.9"), ("0.20.0", "0.92"), (None, "0.92")):
        assert ENGINE.share(arguments(engine_version=version), 1) == share


@pytest.mark.parametrize(
    ("version", "checks"), [("0.13.0", False), ("0.14.0", True), ("0.16.0", True), ("0.17.0", False)]
)
def test_some_versions_check_the_layers_of_all_stages(version: str, checks: bool) -> None:
    assert ENGINE.checks_all_layers(arguments(engine_version=version)) == checks


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
        assert found.reason == f"--tp {tp} does not divide the padded vocabulary of {-(-(vocab or 0) // 64) * 64}"


@pytest.mark.parametrize(
    ("engine", "version", "gpu", "latent"),
    [
        # 512 in fp8, 4 scales of 4 B and 64 elements in 16 bits; 576 elements in fp8; 576 in bf16
        ("vllm", "0.24.0", "rtx-pro-6000", 656),
        ("vllm", "0.24.0", "gb10", 656),
        ("vllm", "0.33.0", "b200", 1152),
        ("sglang", "0.5.10", "b200", 576),
        ("sglang", "0.5.16", "rtx-pro-6000", 576),
        ("sglang", "0.5.17", "rtx-pro-6000", 656),
        ("sglang", "0.5.23", "h200", 1152),
    ],
)
def test_the_default_dtype_of_latents_that_an_indexer_picks(engine: str, version: str, gpu: str, latent: int) -> None:
    """GLM-5.2: 78 layers, of which 21 have an indexer with keys of 132 B."""
    answer = fit("glm-5.2", gpu=gpu, tp=8, weights_dtype="fp4", context=64, engine=engine, engine_version=version)
    assert answer.to_dict()["kv_bytes_per_sequence"] == 64 * (78 * latent + 21 * 132)


@pytest.mark.parametrize(("version", "kv_dtype"), [("0.23.0", None), ("0.24.0", "bf16")])
def test_vllm_has_one_kernel_for_picked_latents_on_rtx_blackwell(version: str, kv_dtype: str | None) -> None:
    options: dict[str, Any] = {"gpu": "rtx-pro-6000", "tp": 8, "weights_dtype": "fp4", "engine_version": version}
    refused = fit("glm-5.2", context=64, kv_dtype=kv_dtype, **options)
    assert refused.verdict == "does_not_fit"
    assert refused.refusal
    assert "has no kernel for" in refused.refusal.reason


@pytest.mark.parametrize(
    ("engine", "version", "gpu", "kv_dtype", "head", "index_key"),
    [
        # K and V of 128 elements, and in 57 of 60 layers the indexer's key
        ("vllm", "0.24.0", "h200", None, 512, 256),
        ("vllm", "0.33.0", "b200", "fp8", 256, 256),
        ("sglang", "0.5.20", "b200", "fp8", 256, 256),
        ("sglang", "0.5.21", "b200", "fp8", 256, 128),
        ("sglang", "0.5.22", "h200", "fp8", 256, 256),
        ("sglang", "0.5.23", "h200", "fp8", 256, 128),
    ],
)
def test_minimax_m3_stores_a_key_for_its_indexer(
    engine: str, version: str, gpu: str, kv_dtype: str | None, head: int, index_key: int
) -> None:
    options: dict[str, Any] = {"engine": engine, "engine_version": version, "gpu": gpu, "kv_dtype": kv_dtype}
    answer = fit("minimax-m3", tp=8, weights_dtype="fp4", context=128, **options)
    assert answer.to_dict()["kv_bytes_per_sequence"] == 128 * (60 * head + 57 * index_key)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine_version": "0.23.0"}, "has no MiniMax-M3"),
        ({"block_size": 64}, "MiniMax-M3 only has blocks of 128"),
        ({"dcp": 2}, "does not split keys of which an indexer picks blocks"),
        ({"kv_dtype": "fp8_ds_mla"}, "has neither"),
        ({"engine": "sglang", "engine_version": "0.5.15"}, "has no MiniMax-M3"),
        ({"engine": "sglang", "block_size": 64}, "pages of 128 tokens here, not of 64"),
        ({"engine": "llamacpp", "tp": None, "weights_dtype": "q4_k_m"}, "does not know how llama.cpp stores"),
    ],
)
def test_what_engines_cannot_store_of_minimax_m3_is_an_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AttncalcError, match=message):
        fit("minimax-m3", gpu="8xh200", **{"tp": 8, "weights_dtype": "fp4", **options})
