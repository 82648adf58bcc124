"""A printed launch command loads the model that was asked for: every name of every built-in model,
read back.
"""

import shlex

import pytest
from asking import Ask
from tables import each

from attncalc import AttncalcError, load
from attncalc.config.checkpoints import Checkpoints, by_habit, of_checkpoint
from attncalc.config.presets import of_other_machine, preset_of, presets
from attncalc.options import options_of
from attncalc.questions.fit.options import FitOptions
from attncalc.questions.fit.pasted import expand
from attncalc.questions.fit.request import read_fit_request
from attncalc.questions.fit.served import served_fields
from attncalc.serving.launch import launch_command, served_model
from attncalc.serving.request import FitRequest, resolve
from attncalc.workload import Workload

OPTIONS = {
    part: option
    for option in options_of(FitOptions).values()
    for name in (*option.names, *option.also)
    for part in name.split("/")
}


def served(name: str) -> str:
    """Return what an engine loads for a model of this name."""
    spec = load(name)
    return served_model(FitRequest(spec, Workload.decode(1, 16), **served_fields(name, spec, {})))


def read_back(command: str) -> tuple[str, dict[str, str]]:
    """Return the model and the options that `fit -- COMMAND` reads."""
    model, *words = expand([], shlex.split(command), OPTIONS, OPTIONS)
    return model, dict(zip(words[::2], words[1::2], strict=False))


def test_every_name_of_a_preset_is_served_as_the_same_model() -> None:
    for preset in presets():
        parts = [repository.partition("/")[2] for repository in preset.repositories]
        for name in (preset.name, preset.title, *preset.repositories, *parts, *preset.tags):
            if preset_of(name) == preset.name:
                assert load(of_other_machine(served(name))[0]) == load(name), name


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
def test_the_command_of_every_preset_is_the_same_request(engine: str) -> None:
    for preset in presets():
        try:
            request = read_fit_request(preset.name, {"gpu": "4TB", "engine": engine})
            command = launch_command(resolve(request))
        except AttncalcError:  # an encoder, or an engine without its kind of layers
            continue
        if command is None:
            continue
        model, options = read_back(command)
        assert load(model) == request.model, command
        assert options["--context"] == str(request.workload.context), command
        assert options.get("--weights-dtype", "bf16") in ("bf16", "fp16", "fp32", "mxfp4"), command


@each(
    ("name", "repository"),
    [
        ("qwen3.6-27b", "Qwen/Qwen3.6-27B"),  # its sizes are from Qwen3.5's config.json
        ("qwen3.5-27b", "Qwen/Qwen3.5-27B"),
        ("qwen3.6-35b-a3b", "Qwen/Qwen3.6-35B-A3B"),
        ("mistral-small-3.2", "mistralai/Mistral-Small-3.2-24B-Instruct-2506"),
        ("mistral-7b-v0.2", "mistralai/Mistral-7B-Instruct-v0.2"),
        ("gemma-2b", "google/gemma-2b"),
        ("llama3_1/8B", "meta-llama/Llama-3.1-8B"),  # as torchtune names it
        ("gpt3", "path/to/gpt3"),
        ("transformer-base", "path/to/transformer-base"),
    ],
)
def test_a_name_is_served_as_the_repository_of_that_release(name: str, repository: str) -> None:
    assert served(name) == repository


def test_a_model_without_a_repository_has_a_folder_that_is_read_back(ask: Ask) -> None:
    answer = ask("fit", "gpt3", "--gpu", "8xh100")
    line = (
        "  path/to/gpt3 stands for the folder of your weights:\n  vllm serve path/to/gpt3 "
        "--max-model-len 2048"
    )
    assert line in answer.out
    command = [
        "vllm",
        "serve",
        "path/to/gpt3",
        "--max-model-len",
        "2048",
        "--tensor-parallel-size",
        "8",
    ]
    assert ask("fit", "--gpu", "8xh100", "--", *command).out == answer.out


def test_every_known_checkpoint_is_its_model_in_that_dtype() -> None:
    for preset in presets():
        for dtype, repository in Checkpoints(preset.name).items():
            model = load(repository)
            of_preset, one = of_checkpoint(repository) or ("", None)
            assert one is not None
            assert (of_preset, one.dtype, served(repository)) == (preset.name, dtype, repository)
            assert model.name == preset.name
            assert dtype in (model.weights_dtype, model.experts_dtype)
            assert (model.quantization is None) == (
                one.exceptions is None and not by_habit(repository)
            )


@each(
    ("name", "repository"),
    [
        ("deepseek-v3", "nvidia/DeepSeek-V3-FP4"),
        ("deepseek-r1", "nvidia/DeepSeek-R1-FP4"),
        ("deepseek-ai/DeepSeek-R1", "nvidia/DeepSeek-R1-FP4"),
        ("deepseek-v3.1", "nvidia/DeepSeek-V3.1-NVFP4"),
    ],
)
def test_a_release_is_loaded_from_a_checkpoint_of_its_own(
    ask: Ask, name: str, repository: str
) -> None:
    """They share a preset."""
    words = ("--gpu", "8xb200", "--engine", "vllm", "--weights-dtype", "fp4")
    command = ask("fit", name, *words, "--json").document["launch_command"]
    assert shlex.split(command)[2] == repository
    weights = int(ask("fit", name, *words, "--get", "weights").out)
    swept = ask("sweep", name, *words, "--columns", "weights", "--json").document
    assert str(weights) in str(swept)


def test_a_checkpoint_with_a_shorter_context_is_not_started_beyond_it(ask: Ask) -> None:
    """The Instruct release of Qwen2.5 states 32,768 tokens, and the base model 131,072."""
    words = ("--gpu", "h100", "--weights-dtype", "int4", "--json")
    assert ask("fit", "qwen2.5-7b", *words).document["launch_command"] is None
    command = ask("fit", "qwen2.5-7b", *words, "-c", "32768").document["launch_command"]
    assert "Qwen/Qwen2.5-7B-Instruct-AWQ --max-model-len 32768" in command
    assert ask("fit", "--gpu", "h100", "--json", "--", command).document["verdict"] == "fits"


@each("engine", ["vllm", "sglang"])
def test_a_known_checkpoint_is_the_same_answer_as_its_dtype(ask: Ask, engine: str) -> None:
    # to which neither engine converts
    words = ["qwen3-32b", "--weights-dtype", "int4", "--engine", engine]
    typed = ask("fit", "--gpu", "h100", "--json", *words).document
    assert "Qwen/Qwen3-32B-AWQ" in typed["launch_command"]
    back = ask(
        "fit", "--gpu", "h100", "--json", "--", *shlex.split(typed["launch_command"])
    ).document
    assert (back["results"], back["launch_command"]) == (typed["results"], typed["launch_command"])


@each("repository", ["RedHatAI/Qwen3-8B-FP8-dynamic", "nvidia/Qwen3-8B-FP8", "Qwen/Qwen3-8B-FP8"])
def test_a_quantized_checkpoint_is_not_quantized_again(repository: str) -> None:
    request = read_fit_request(
        "qwen3-8b", {"gpu": "h100", "weights_dtype": "fp8", "served_model": repository}
    )
    assert launch_command(resolve(request)) == f"vllm serve {repository} --max-model-len 40960"


def test_an_unquantized_folder_is_quantized_while_it_is_loaded() -> None:
    request = read_fit_request(
        "qwen3-8b", {"gpu": "h100", "weights_dtype": "fp8", "served_model": "/models/qwen3-8b"}
    )
    assert str(launch_command(resolve(request))).startswith(
        "vllm serve /models/qwen3-8b --quantization fp8"
    )


@each("options", [("qwen2.5-7b", "--engine", "ollama"), ("qwen2.5:7b",)])
def test_ollama_runs_the_instruct_release_of_a_preset(ask: Ask, options: tuple[str, ...]) -> None:
    """Qwen2.5 7B has 131,072 positions, and its Instruct release, which the tag means, states
    32,768.
    """
    answer = ask("fit", *options, "--gpu", "h200", "--json").document
    assert answer["model"]["max_context"] == 32_768
    assert (
        answer["launch_command"]
        == "OLLAMA_CONTEXT_LENGTH=32768 ollama serve & ollama run qwen2.5:7b"
    )


@each("dtype", ["int8", "int4", "fp8"])
def test_llamacpp_has_no_command_for_weights_that_no_gguf_file_has(dtype: str) -> None:
    request = read_fit_request(
        "qwen3-8b", {"gpu": "h100", "engine": "llamacpp", "weights_dtype": dtype}
    )
    assert launch_command(resolve(request)) is None
