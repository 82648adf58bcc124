"""Which engine is meant if --engine is not given."""

from typing import Any

import pytest
from asking import Ask
from tables import each

import attncalc
from attncalc.api.engine_choice import engine_of_options, ollama_options


def test_an_option_that_one_engine_has_chooses_it() -> None:
    assert engine_of_options({"n_gpu_layers": 20}) == ("llamacpp", "--n-gpu-layers")
    assert engine_of_options({"max_num_seqs": 8, "block_size": 32}) == ("vllm", "--max-num-seqs")
    assert engine_of_options({"attn_dp": 2}) == ("sglang", "--attn-dp")


@pytest.mark.parametrize(
    "options",
    [
        {"block_size": 32},  # vLLM and SGLang
        {"n_gpu_layers": 20, "max_num_seqs": 8},  # no engine has both
        {"n_gpu_layers": None, "cpu_moe": False},  # not given
        {"tp": 2},
    ],
)
def test_options_of_several_engines_or_of_none_choose_nothing(options: dict[str, object]) -> None:
    assert engine_of_options(options) is None


def test_python_chooses_the_engine_as_the_command_line_does() -> None:
    found = attncalc.fit("qwen3-8b", gpu="h100", mem_fraction_static=0.8)
    assert (found.resolved.engine.name, found.resolved.request.gpu_memory_utilization) == ("sglang", "0.8")
    named = attncalc.fit("qwen3-8b", gpu="h100", engine="sglang", gpu_memory_utilization=0.8)
    assert found.to_dict() == named.to_dict()


def test_the_share_of_another_engine_is_an_error() -> None:
    with pytest.raises(attncalc.AttncalcError, match="mem_fraction_static has no effect on engine vllm"):
        attncalc.fit("qwen3-8b", gpu="h100", engine="vllm", mem_fraction_static=0.8)
    with pytest.raises(attncalc.AttncalcError, match="cannot be combined with gpu_memory_utilization"):
        attncalc.fit("qwen3-8b", gpu="h100", mem_fraction_static=0.8, gpu_memory_utilization=0.8)


def test_a_name_of_ollama_is_what_ollama_runs() -> None:
    found, note = ollama_options("gemma2:9b", {"gpu": "12GB"})
    of_ollama = {"engine": "llamacpp", "weights_dtype": "q4_k_m", "context": "4096"}
    assert found == of_ollama | {"n_gpu_layers": "auto"}  # it leaves on the host what does not fit
    assert "as Ollama runs gemma2:9b" in note


OF_OLLAMA = [
    # by the GPUs' memory, and at most the model's own: PR 1971, 'requested context size too large for model
    # num_ctx=262144 n_ctx_train=40960'. Tags are Instruct
    *(("qwen3:30b-a3b-instruct-2507", gpu, {}, context) for gpu, context in (("12GB", "4096"), ("rtx-4090", "32768"))),
    *(("qwen3:30b-a3b-instruct-2507", gpu, {}, context) for gpu, context in (("2x16GB", "32768"), ("h100", "262144"))),
    ("llama3.1:8b", "24GiB", {"gpus": 2}, "131072"),  # above 47 GiB
    *((model, "h100", {}, own) for model, own in (("qwen3:8b", "40960"), ("llama3:8b", "8192"))),
    ("qwen3:8b", "h100", {"engine": "lmstudio"}, "4096"),
]


@each(("model", "gpu", "more", "context"), OF_OLLAMA)
def test_ollamas_context_follows_the_gpus_memory(model: str, gpu: str, more: dict[str, object], context: str) -> None:
    assert ollama_options(model, {"gpu": gpu, **more})[0]["context"] == context


@pytest.mark.parametrize(
    "options", [{"engine": "vllm"}, {"tp": 2}, {"weights_dtype": "fp8"}, {"max_num_seqs": 8}], ids=str
)
def test_a_name_of_ollama_with_options_that_ollama_lacks_is_only_a_name(options: dict[str, object]) -> None:
    assert ollama_options("gemma2:9b", options) == ({}, "")


def test_other_names_are_not_of_ollama() -> None:
    for name in ("gemma2-9b", "qwen3-8b:q8_0", "org/gemma2:9b", "C:model"):
        assert ollama_options(name, {}) == ({}, "")


@pytest.mark.parametrize("engine", ["ollama", "LM Studio", "lmstudio"])
def test_ollama_is_an_engine_with_its_own_weights_and_context(ask: Ask, engine: str) -> None:
    answer = ask("fit", "llama3.1-8b", "--gpu", "16GB", "--engine", engine)
    assert "4,096 tokens of context" in answer.out
    assert "llama.cpp, weights in q4_k_m" in answer.out
    partly = ask("fit", "qwen3-32b", "--gpu", "4060", "--engine", engine)  # 20 of 64 layers
    assert ("lms load qwen3-32b --context-length 4096 --gpu 0.31\n" in partly.out) == (engine != "ollama")


def test_weights_that_fill_a_desktops_card_are_q4_k_m_in_llamacpp_with_a_context_that_fits(ask: Ask) -> None:
    # 14.8 B parameters in bf16 are 27.5 GiB
    small, server = ask("fit", "qwen2.5-14b", "--gpu", "12GB"), ask("fit", "qwen2.5-14b", "--gpu", "h100")
    assert "llama.cpp, weights in q4_k_m" in small.out
    assert small.out.startswith("FITS")
    assert "the weights as released, 27.5 GiB, are larger than the GPU" in " ".join(small.out.split())
    assert "vLLM" in server.out
    assert "vLLM" in ask("fit", "qwen2.5-14b", "--gpu", "12GB", "--engine", "vllm").out
    assert "llama-server -m gpt-oss-20b-MXFP4.gguf" in ask("fit", "gpt-oss-20b", "--gpu", "5060-ti-16gb").out


@pytest.mark.parametrize(
    ("gpu", "title"),
    [
        (("MacBook Air M2 16GB",), "Apple M2 16GB"),
        (("mac 16gb",), "Apple M4 16GB"),
        (("m2", "--ram", "16GB"), "M2 16GB"),
    ],
)
def test_a_mac_is_named_by_chip_and_memory_and_has_no_further_one(ask: Ask, gpu: tuple[str, ...], title: str) -> None:
    answer = ask("fit", "llama3.1-70b", "--gpu", *gpu)
    assert title in answer.out
    assert "--gpus" not in answer.out


def test_a_shorter_context_is_suggested_before_a_cache_of_4_bits(ask: Ask) -> None:
    answer = ask("fit", "qwen2.5-14b", "--gpu", "12GB", "-c", "32k").out
    assert answer.index("--context 14336") < answer.index("--kv-dtype q4_0")


# 419,816,304 parameters of the vision tower and its projector, in fp16
TOWER = 2 * 419_816_304


@each("options", [{"model": "gemma3:4b"}, {"engine": "ollama"}, {"engine": "lmstudio"}])
def test_ollama_and_lm_studio_load_the_tower_of_a_model_for_images(options: dict[str, Any]) -> None:
    loaded: Any = attncalc.fit(**{"model": "gemma3-4b", "gpu": "rtx-3060-12gb", **options})
    assert loaded.resolved.args.mmproj.weights == TOWER
    alone: Any = attncalc.fit("gemma3-4b", gpu="rtx-3060-12gb", engine="llamacpp", weights_dtype="q4_k_m", context=4096)
    assert alone.kv_memory - loaded.kv_memory == TOWER
    in_vllm: Any = attncalc.fit("gemma3-4b", gpu="h100")
    assert in_vllm.weights_vision_tower == TOWER


def test_a_model_without_a_tower_has_no_projector_in_ollama() -> None:
    loaded: Any = attncalc.fit("gemma3:1b", gpu="rtx-3060-12gb")
    assert loaded.resolved.args.mmproj is None


def test_a_command_of_ollama_has_the_tower_too(ask: Ask) -> None:
    typed = ask("fit", "gemma3:4b", "--gpu", "3060", "--full").out
    assert "projector with its tower       0.78 GiB" in typed
    assert ask("fit", "--gpu", "3060", "--full", "--", "ollama", "run", "gemma3:4b").out == typed


@each(
    "words",
    [
        "qwen3:14b",
        "qwen3-14b",
        "qwen3-14b --quant q4_k_m",
        "qwen3-14b:q4_k_m",
        "-- llama-server -m qwen3-14b-q4_k_m.gguf -c 40960",
    ],
)
def test_a_given_memory_of_the_host_has_what_the_gpu_has_no_room_for(ask: Ask, words: str) -> None:
    """6.25 GiB of cache and 8 GiB of weights do not fit in 11.6 GiB."""
    own = "" if "-c" in words else "-c 40960"
    answer = ask("fit", *f"--gpu 3060 --ram 32 {own} {words}".split())
    assert answer.code == 0
    assert answer.out.startswith("RUNS PARTLY ON THE CPU: 29 of 40 layers on the GPU, 4.84 GiB of 32.00 GiB")


def test_a_host_that_is_too_small_has_no_part_of_the_model(ask: Ask) -> None:
    assert ask("fit", "qwen3-14b:q4_k_m", "--gpu", "3060", "--ram", "4", "-c", "40960").out.startswith("DOES NOT FIT")
