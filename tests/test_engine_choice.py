"""Which engine is meant if --engine is not given."""

from itertools import product
from typing import Any

import pytest
from asking import Ask
from tables import each

import attncalc
from attncalc.questions.fit.engine_choice import engine_of_options, ollama_options
from attncalc.questions.fit.request import read_fit_request


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
    assert (found.resolved.engine.name, found.resolved.request.gpu_memory_utilization) == (
        "sglang",
        "0.8",
    )
    named = attncalc.fit("qwen3-8b", gpu="h100", engine="sglang", gpu_memory_utilization=0.8)
    assert found.to_dict() == named.to_dict()


def test_the_share_of_another_engine_is_an_error() -> None:
    with pytest.raises(
        attncalc.AttncalcError, match="mem_fraction_static has no effect on engine vllm"
    ):
        attncalc.fit("qwen3-8b", gpu="h100", engine="vllm", mem_fraction_static=0.8)
    with pytest.raises(
        attncalc.AttncalcError, match="cannot be combined with gpu_memory_utilization"
    ):
        attncalc.fit("qwen3-8b", gpu="h100", mem_fraction_static=0.8, gpu_memory_utilization=0.8)


def test_a_name_of_ollama_is_what_ollama_runs() -> None:
    found, note = ollama_options("gemma2:9b", {"gpu": "12GB"})
    of_ollama = {"engine": "llamacpp", "weights_dtype": "q4_k_m", "context": "4096"}
    assert found == of_ollama | {"n_gpu_layers": "auto"}  # it leaves on the host what does not fit
    assert "as Ollama runs it" in note


OF_OLLAMA = [
    # by the GPUs' memory, and at most the model's own: PR 1971, 'requested context size too large
    # for model num_ctx=262144 n_ctx_train=40960'. Tags are Instruct
    *(
        ("qwen3:30b-a3b-instruct-2507", gpu, {}, context)
        for gpu, context in (("12GB", "4096"), ("rtx-4090", "32768"))
    ),
    *(
        ("qwen3:30b-a3b-instruct-2507", gpu, {}, context)
        for gpu, context in (("2x16GB", "32768"), ("h100", "262144"))
    ),
    ("llama3.1:8b", "24GiB", {"gpus": 2}, "131072"),  # above 47 GiB
    *((model, "h100", {}, own) for model, own in (("qwen3:8b", "40960"), ("llama3:8b", "8192"))),
    ("qwen3:8b", "h100", {"engine": "lmstudio"}, "4096"),
]


@each(("model", "gpu", "more", "context"), OF_OLLAMA)
def test_ollamas_context_follows_the_gpus_memory(
    model: str, gpu: str, more: dict[str, object], context: str
) -> None:
    assert ollama_options(model, {"gpu": gpu, **more})[0]["context"] == context


@pytest.mark.parametrize(
    "options",
    [{"engine": "vllm"}, {"tp": 2}, {"weights_dtype": "fp8"}, {"max_num_seqs": 8}],
    ids=str,
)
def test_a_name_of_ollama_with_options_that_ollama_lacks_is_only_a_name(
    options: dict[str, object],
) -> None:
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
    assert ("lms load qwen3-32b --context-length 4096 --gpu 0.31\n" in partly.out) == (
        engine != "ollama"
    )


DESKTOPS = ["3060", "rtx-4090", "8xrtx-4090", "24GB", "24GiB", "strix-halo"]


@each(("model", "gpu"), product(["qwen3-0.6b", "qwen2.5-14b", "llama3.1-70b"], DESKTOPS))
def test_a_desktops_gpu_has_q4_k_m_in_llamacpp_whatever_the_models_size(
    ask: Ask, model: str, gpu: str
) -> None:
    shown = " ".join(ask("fit", model, "--gpu", gpu, "-c", "4096").out.split())
    assert "llama.cpp, weights in q4_k_m" in shown
    assert "--engine llamacpp and --weights-dtype q4_k_m are the defaults on this GPU." in shown


@each("gpu", ["m2-16gb", "cpu"])
def test_a_mac_and_a_cpu_have_q4_k_m(ask: Ask, gpu: str) -> None:
    shown = " ".join(ask("fit", "qwen3-0.6b", "--gpu", gpu, "-c", "4096").out.split())
    assert "llama.cpp, weights in q4_k_m" in shown
    assert (
        f"--weights-dtype q4_k_m is the default on this {'CPU' if gpu == 'cpu' else 'GPU'}."
        in shown
    )


@each("gpu", ["h100", "2xh100", "l4", "a10", "48GB", "rtx-pro-6000"])
def test_a_servers_gpu_has_vllm_and_the_weights_as_released(gpu: str) -> None:
    request = attncalc.fit("qwen3-8b", gpu=gpu, context=4096).request
    assert (request.engine, request.weights_dtype) == ("vllm", None)


@each(
    ("options", "engine", "weights_dtype", "why"),
    [
        ("", "llamacpp", "q4_k_m", "--engine llamacpp and --weights-dtype q4_k_m are the defaults"),
        ("--engine llamacpp", "llamacpp", "q4_k_m", "--weights-dtype q4_k_m is the default"),
        ("--engine vllm", "vllm", None, ""),
        ("--weights-dtype bf16", "llamacpp", "bf16", ""),
        ("--weights-dtype q8_0", "llamacpp", "q8_0", ""),
        ("--dtype fp16", "llamacpp", None, ""),
        ("--weights-dtype fp8", "vllm", "fp8", "llama.cpp has no weights in fp8"),
        ("--kv-dtype q8_0", "llamacpp", "q4_k_m", "are the defaults"),
        ("--kv-dtype fp8", "vllm", None, "llama.cpp has no cache in fp8"),
        ("--tp 1", "vllm", None, "llama.cpp has no --tp"),
        ("--gpu-memory-utilization 0.9", "vllm", None, "llama.cpp has no --gpu-memory-utilization"),
        ("--max-num-seqs 8", "vllm", None, "only vLLM has --max-num-seqs"),
        ("--block-size 16", "vllm", None, "llama.cpp has no --block-size"),
        ("--mem-fraction-static 0.8", "sglang", None, "only SGLang has --mem-fraction-static"),
        ("-np 2", "llamacpp", "q4_k_m", "--weights-dtype q4_k_m is the default"),
        ("--kv-memory 1GiB --engine vllm", "vllm", None, ""),
    ],
)
def test_an_option_of_another_engine_chooses_it_on_a_desktops_gpu(
    ask: Ask, options: str, engine: str, weights_dtype: str | None, why: str
) -> None:
    asked = ("fit", "qwen3-0.6b", "--gpu", "rtx-4090", "-c", "4096", *options.split())
    document = ask(*asked, "--json").document
    assert document["workload"]["engine"] == engine
    assert why in " ".join(ask(*asked).out.split())
    command = document["layers"][0]["launch_command"]
    types = {"q4_k_m": "Q4_K_M", "q8_0": "Q8_0", "bf16": "BF16", None: "F16"}
    assert engine != "llamacpp" or f"-m Qwen3-0.6B-{types[weights_dtype]}.gguf" in command
    assert ("--quantization fp8" in command) is (weights_dtype == "fp8")


@each(
    ("model", "engine", "weights_dtype", "why"),
    [
        ("gpt-oss-20b", "llamacpp", "mxfp4", "--weights-dtype mxfp4 are the defaults"),
        ("deepseek-v3", "vllm", None, "llama.cpp has no weights in fp8"),
        ("minimax-m3", "vllm", None, "how llama.cpp stores this cache"),
        ("whisper-large-v3", "vllm", None, "llama.cpp cannot load Whisper large-v3"),
    ],
)
def test_a_model_that_llamacpp_does_not_load_has_vllm_and_the_screen_says_why(
    ask: Ask, model: str, engine: str, weights_dtype: str | None, why: str
) -> None:
    request = attncalc.fit(model, gpu="rtx-4090", context=256).request
    assert (request.engine, request.weights_dtype) == (engine, weights_dtype)
    assert why in " ".join(ask("fit", model, "--gpu", "rtx-4090", "-c", "256").out.split())


DECODERS = [name for name in attncalc.preset_names() if not name.startswith("bert")]


@each(("model", "gpu"), product(DECODERS, ["h100", "rtx-3060-12gb", "m2-16gb"]))
def test_every_way_to_ask_has_the_same_engine_and_weights(model: str, gpu: str) -> None:
    device = attncalc.gpu(gpu)
    fit = read_fit_request(model, {"gpu": gpu, "context": 256})
    of_fit = (fit.engine, fit.weights_dtype)
    assert (of_fit[0] == "vllm") is (not device.runs_files or _lacking(model, device))
    by_object = read_fit_request(
        attncalc.load(model), {"gpu": device, "context": 256}, is_compared=True
    )
    assert (by_object.engine, by_object.weights_dtype) == of_fit
    sweep: Any = attncalc.sweep(models=[model], gpu=gpu, context=256)
    assert [*sweep.deployments.values()] == [{of_fit: None}]


@each(("model", "gpu"), product(["qwen3-0.6b", "gpt-oss-20b", "minimax-m3"], ["rtx-4090", "l4"]))
def test_a_row_of_a_sweep_has_the_weights_of_fit(model: str, gpu: str) -> None:
    (row,) = attncalc.sweep(models=[model], gpu=gpu, context=4096)
    found: Any = attncalc.fit(model, gpu=gpu, context=4096)
    assert (row["weights"], row["verdict"]) == (int(found.weights), found.verdict)


def _lacking(model: str, device: attncalc.Gpu) -> bool:
    """Return whether llama.cpp does not load the model on a card; on a Mac there is nothing
    else.
    """
    unread = {
        "deepseek-v4.1-flash",
        "glm-5.3-flash",
        "inkling",
        "minimax-m3",
        "t5-base",
        "whisper-large-v3",
    }
    spec = attncalc.load(model)
    is_lacking = (
        model in unread or model.startswith("transformer-") or spec.weights_dtype in ("fp8", "int4")
    )
    return device.vendor != "Apple" and (is_lacking or spec.experts_dtype == "int4")


def test_the_row_of_a_gpu_is_its_answer() -> None:
    found = attncalc.what_fits("qwen3-8b", gpu="all", context=8192)
    for need in found.needs:
        request = attncalc.fit("qwen3-8b", gpu=need.resolved.gpu, context=8192).request
        row = need.resolved.request
        assert (row.engine, row.weights_dtype) == (request.engine, request.weights_dtype)


def test_rows_of_different_engines_say_engine_and_weights(ask: Ask) -> None:
    every = ask("fit", "qwen3-8b", "--gpu", "all").out
    assert "  llama.cpp, q4_k_m\n" in every
    assert "  vLLM, as released\n" in every
    assert "Engine and weights are each GPU's defaults" in every
    sweep = ask("sweep", "qwen3-8b", "--gpu", "rtx-4090,l4", "-c", "8K", "--format", "table").out
    assert (
        "Engines by default: rtx-4090: llama.cpp, weights q4_k_m; l4: vLLM, weights as released."
        in " ".join(sweep.split())
    )


@each("name", ["BF16", "F16", "F32", "Q8_0"])
def test_the_weights_of_a_command_are_those_in_its_files_name(ask: Ask, name: str) -> None:
    typed = {"BF16": "bf16", "F16": "fp16", "F32": "fp32", "Q8_0": "q8_0"}[name]
    command = f"fit --gpu rtx-4090 --json -- llama-server -m Qwen3-8B-{name}.gguf -c 4096 -np 1"
    option = f"fit qwen3-8b --gpu rtx-4090 --json --engine llamacpp --weights-dtype {typed} -c 4096"
    read = ask(*command.split())
    assert read.document["results"] == ask(*option.split()).document["results"]


@pytest.mark.parametrize(
    ("gpu", "title"),
    [
        (("MacBook Air M2 16GB",), "Apple M2 16GB"),
        (("mac 16gb",), "Apple M4 16GB"),
        (("m2", "--ram", "16GB"), "M2 16GB"),
    ],
)
def test_a_mac_is_named_by_chip_and_memory_and_has_no_further_one(
    ask: Ask, gpu: tuple[str, ...], title: str
) -> None:
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
    alone: Any = attncalc.fit(
        "gemma3-4b", gpu="rtx-3060-12gb", engine="llamacpp", weights_dtype="q4_k_m", context=4096
    )
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
    assert answer.out.startswith(
        "RUNS PARTLY ON THE CPU: 29 of 40 layers on the GPU, 4.84 GiB of 32.00 GiB"
    )


def test_a_host_that_is_too_small_has_no_part_of_the_model(ask: Ask) -> None:
    assert ask(
        "fit", "qwen3-14b:q4_k_m", "--gpu", "3060", "--ram", "4", "-c", "40960"
    ).out.startswith("DOES NOT FIT")


def test_the_command_of_a_list_names_an_engine_that_is_not_the_gpus_own(ask: Ask) -> None:
    shown = " ".join(ask("fit", "--gpu", "rtx-4090", "--engine", "vllm").out.split())
    assert "--gpu rtx-4090 -c 8192" in shown
    assert shown.endswith("--engine vllm")
