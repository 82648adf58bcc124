"""What vLLM's attention backends take: block sizes, dtypes, GPUs; and models that it has no more."""

import json
from pathlib import Path
from typing import Any

import pytest
from asking import Ask

from attncalc import AttncalcError, fit, load
from attncalc.serving.fit import FitResult

DATA = Path(__file__).parent / "data"
each = pytest.mark.parametrize


def answer(model: Any, gpu: str, **options: Any) -> FitResult:
    given = {"context": 2048, "kv_memory": 8 << 30, **options}
    return fit(model, gpu=gpu, engine="vllm", **given)


def block_size(result: FitResult) -> int:
    return next(
        int(detail.quantity) for detail in result.pool.details if detail.name == "kv_block_size"
    )


def reason(result: FitResult) -> str:
    refusal = result.refusal
    return refusal.reason if refusal else ""


@each(
    ("model", "gpu", "version", "given", "used"),
    [
        # check_and_update_config in platforms/cuda.py of 0.17.1: "Forcing kv cache block size to 64
        # for FlashMLA backend", and for FlashInferMLA unless it is 32
        ("deepseek-v2-lite", "h100", "0.17.1", 16, 64),
        ("deepseek-v2-lite", "h100", "0.17.1", 128, 128),
        ("deepseek-v2-lite", "b200", "0.17.1", 16, 64),
        ("deepseek-v2-lite", "b200", "0.17.1", 32, 32),
        # "Forcing kv cache block size to 128 for CUTLASS_MLA backend"
        ("deepseek-v2-lite", "b200", "0.14.1", 64, 128),
        # "Forcing kv cache block size to 64 for FlashMLASparse backend"
        ("deepseek-v3.2", "h100", "0.17.1", 32, 64),
        ("deepseek-v3.2", "h100", "0.17.1", 128, 64),
        # the planner of 0.32.0: TRITON_MLA, and FLASHINFER_MLA_SPARSE
        ("deepseek-v2-lite", "b200", "0.32.0", 16, 16),
        ("deepseek-v2-lite", "b200", "0.32.0", 128, 128),
        ("deepseek-v3.2", "b200", "0.32.0", 32, 32),
        ("deepseek-v3.2", "h100", "0.32.0", 128, 128),
    ],
)
def test_a_given_block_size_is_used_if_the_backend_takes_it(
    model: str, gpu: str, version: str, given: int, used: int
) -> None:
    found = answer(model, gpu, engine_version=version, block_size=given)
    assert block_size(found) == used
    notes = [note for note in found.layout.notes if "not --block-size" in note]
    assert bool(notes) == (given != used)


@each(
    ("model", "gpu", "version", "size", "words"),
    [
        # the planner of 0.32.0
        ("deepseek-v2-lite", "h100", "0.32.0", 8, "block_size not supported"),
        ("llama3-8b", "h100", "0.32.0", 24, "block_size not supported"),
        ("llama3-8b", "mi300x", "0.32.0", 1, "block_size not supported"),
        ("llama3-8b", "h100", "0.32.0", 48, ""),
        # BlockSize in config/cache.py of 0.17.1, which are the choices of the option
        ("llama3-8b", "h100", "0.17.1", 48, "invalid choice: 48"),
        ("llama3-8b", "h100", "0.17.1", 8, ""),
    ],
)
def test_a_block_size_that_vllm_does_not_take_is_a_refusal(
    model: str, gpu: str, version: str, size: int, words: str
) -> None:
    found = reason(answer(model, gpu, engine_version=version, block_size=size))
    assert words in found
    assert bool(words) == bool(found)


def test_rocm_takes_blocks_of_one_token_before_0_18() -> None:
    """platforms/rocm.py of 0.17.1 chooses ROCM_AITER_MLA for them."""
    found = answer("deepseek-v2-lite", "mi300x", engine_version="0.17.1", block_size=1)
    assert block_size(found) == 1


def test_without_async_scheduling_windows_hold_one_step() -> None:
    """A window of 1,024 tokens: 1,023 and one or two steps of 8,192, in blocks of 16, and one more:
    -(-9,215 // 16) + 1 are 577, and -(-17,407 // 16) + 1 are 1,089.
    """
    blocks = []
    for given in (False, None):
        found = answer("gemma3-27b", "h100", context=131072, async_scheduling=given, kv_memory=None)
        figures = {detail.name: int(detail.quantity) for detail in found.pool.details}
        blocks.append(figures["kv_blocks_per_request"])
    assert blocks == [8192 + 6 * 577, 8192 + 6 * 1089]


@each(
    ("model", "gpu", "version", "options", "size"),
    [
        # _get_sm90_fa4_fp8_kv_block_size: heads of 512 elements in fp8 on Hopper
        ("gemma4-26b-a4b", "h100", "0.31.0", {"kv_dtype": "fp8"}, 64),
        ("gemma4-26b-a4b", "h100", "0.30.0", {"kv_dtype": "fp8"}, 16),
        ("gemma4-26b-a4b", "h100", "0.31.0", {}, 16),
        # triton_flashinfer.py: image tokens that see each other, heads of 256 or 512 elements
        ("gemma3-12b", "b200", "0.30.0", {}, 64),
        ("gemma3-12b", "b200", "0.29.0", {}, 16),
        ("gemma3-12b", "b200", "0.30.0", {"language_model_only": True}, 16),
        ("gemma3-27b", "b200", "0.30.0", {}, 16),
        ("gemma3-1b", "b200", "0.30.0", {}, 16),
        # rocm_aiter_unified_attn.py: sinks on AMD's GPUs
        ("gpt-oss-20b", "mi300x", "0.19.0", {}, 64),
        ("gpt-oss-20b", "mi300x", "0.18.0", {}, 16),
        ("llama3.1-8b", "mi300x", "0.19.0", {}, 16),
    ],
)
def test_some_heads_have_blocks_of_64_tokens(
    model: str, gpu: str, version: str, options: dict[str, Any], size: int
) -> None:
    assert block_size(answer(model, gpu, engine_version=version, **options)) == size


@each(
    ("version", "options", "tokens"),
    [
        # a video: 32 frames of 70 + 2 + 6 tokens are 2,496
        ("0.22.0", {}, 2496),
        ("0.21.0", {}, 2048),
        ("0.22.0", {"language_model_only": True}, 2048),
        ("0.22.0", {"max_num_batched_tokens": 4096}, 4096),
    ],
)
def test_a_step_of_gemma_4_holds_a_video(
    version: str, options: dict[str, Any], tokens: int
) -> None:
    found = answer("gemma4-26b-a4b", "a100-80gb", engine_version=version, **options)
    args: Any = found.resolved.args
    assert args.limits.max_num_batched_tokens == tokens


@each(
    ("model", "gpu", "version", "words"),
    [
        ("gemma3-12b", "a100-80gb", "0.24.0", "the Triton attention backend on NVIDIA A100"),
        ("gemma3-12b", "a100-80gb", "0.23.0", ""),
        ("gemma3-12b", "l40s", "0.24.0", ""),
        ("gemma3-1b", "a100-80gb", "0.24.0", ""),
        ("deepseek-v2-lite", "a100-80gb", "0.26.0", "Triton MLA backend on NVIDIA A100"),
        ("deepseek-v2-lite", "a100-80gb", "0.25.0", ""),
        ("bloom-560m", "h100", "0.27.0", "FlashAttention does not support fp8 kv-cache"),
        ("bloom-560m", "h100", "0.26.0", ""),
    ],
)
def test_a_cache_in_fp8_needs_a_backend_that_has_it(
    model: str, gpu: str, version: str, words: str
) -> None:
    found = reason(answer(model, gpu, engine_version=version, kv_dtype="fp8"))
    assert words in found
    assert bool(words) == bool(found)


def test_falcon_does_not_read_the_dtype_of_the_cache() -> None:
    """The planner of 0.32.0 has 4,096 B for 16 tokens of 2 x 64 elements: 16 bits, whatever is
    asked for.
    """
    with pytest.raises(AttncalcError, match="vLLM does not read it for Falcon"):
        answer("falcon-7b", "h100", kv_dtype="fp8")


@each(
    ("version", "blocks"),
    [
        # 11 blocks of 768 tokens for latents, and 2 for each of 3 groups of states; with a checkpoint
        # of the prefill 3
        ("0.28.0", 17),
        ("0.29.0", 20),
    ],
)
def test_a_prefill_of_kimi_k3_has_a_checkpoint(version: str, blocks: int) -> None:
    found = answer("kimi-k3", "h100", tp=8, engine_version=version, context=8192)
    figures = {detail.name: int(detail.quantity) for detail in found.pool.details}
    assert figures["kv_blocks_per_request"] == blocks


@each(
    ("model", "version", "words"),
    [
        ("baichuan2-7b", "0.23.0", ""),
        ("minimax-m1", "0.24.0", "MiniMaxM1ForCausalLM was supported in vLLM until v0.23.0"),
        ("mpt-7b", "0.28.0", ""),
        ("mpt-7b", "0.29.0", "MptForCausalLM was supported in vLLM until v0.28.0"),
        ("bart-base", "0.33.0", "BartForConditionalGeneration is not supported in-tree anymore"),
        ("t5-small", "0.33.0", "['T5ForConditionalGeneration'] are not supported for now"),
    ],
)
def test_a_model_that_a_version_dropped_does_not_start(
    model: str, version: str, words: str
) -> None:
    found = reason(answer(model, "h100", engine_version=version, context=512))
    assert words in found
    assert bool(words) == bool(found)


def test_a_dropped_model_that_transformers_runs_has_a_note() -> None:
    found = answer("persimmon-8b", "h100", engine_version="0.26.0")
    assert reason(found) == ""
    assert any("with the code of transformers" in note for note in found.layout.notes)


def test_windows_in_some_layers_of_qwen2_do_not_start() -> None:
    configs = json.loads((DATA / "huggingface.json").read_text(encoding="utf-8"))
    some = load(configs["SYNTH-qwen2.5-7b-swa-on"]["config"])
    assert "for some but all layers" in reason(answer(some, "h100"))


def test_a_class_without_stages_has_no_pipeline() -> None:
    found = answer("mamba2-2.7b", "h100", pp=2)
    assert reason(found) == "Pipeline parallelism is not supported for this model"


@each("engine", ["vllm", "sglang"])
def test_a_draft_model_serves_none_alone(engine: str) -> None:
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 1,
        "vocab_size": 128256,
        "draft_vocab_size": 32000,
        "torch_dtype": "float16",
    }
    found = fit(load(config), gpu="h100", engine=engine, context=2048)
    assert "a draft model proposes tokens" in reason(found)


def test_lists_tell_why_an_engine_does_not_start(ask: Ask) -> None:
    gpus = " ".join(ask("fit", "bloom-7b1", "--engine", "sglang", "--gpu", "all").out.split())
    assert "GPUs: BloomForCausalLM has no SGlang implementation" in gpus
    engines = " ".join(ask("fit", "t5-base", "--gpu", "h100", "--engine", "all").out.split())
    assert "DOES NOT START with vLLM: Model architectures ['T5ForCon" in engines
