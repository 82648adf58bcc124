"""Which engine is meant if --engine is not given."""

import pytest

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
    with pytest.raises(attncalc.AttncalcError, match="--mem-fraction-static has no effect on engine vllm"):
        attncalc.fit("qwen3-8b", gpu="h100", engine="vllm", mem_fraction_static=0.8)
    with pytest.raises(attncalc.AttncalcError, match="cannot be combined with --gpu-memory-utilization"):
        attncalc.fit("qwen3-8b", gpu="h100", mem_fraction_static=0.8, gpu_memory_utilization=0.8)


def test_a_name_of_ollama_is_what_ollama_runs() -> None:
    found, note = ollama_options("gemma2:9b", {"gpu": "12GB"})
    of_ollama = {"engine": "llamacpp", "weights_dtype": "q4_k_m", "context": "4096"}
    assert found == of_ollama | {"n_gpu_layers": "auto"}  # it leaves on the host what does not fit
    assert "as Ollama runs gemma2:9b" in note
    # two of 24 GB are above the 47 GiB from which the default is the model's own
    assert ollama_options("llama3.1:8b", {"gpu": "24GiB", "gpus": 2})[0]["context"] == "131072"


@pytest.mark.parametrize(
    "options", [{"engine": "vllm"}, {"tp": 2}, {"weights_dtype": "fp8"}, {"max_num_seqs": 8}], ids=str
)
def test_a_name_of_ollama_with_options_that_ollama_lacks_is_only_a_name(options: dict[str, object]) -> None:
    assert ollama_options("gemma2:9b", options) == ({}, "")


def test_other_names_are_not_of_ollama() -> None:
    for name in ("gemma2-9b", "qwen3-8b:q8_0", "org/gemma2:9b", "C:model"):
        assert ollama_options(name, {}) == ({}, "")
