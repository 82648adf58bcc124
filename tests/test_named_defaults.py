"""Naming a default changes nothing, and an option without effect changes nothing."""

import csv
from typing import Any

import pytest
from asking import Ask, results
from tables import each

from attncalc import load
from attncalc.questions.fit.report import answer_report
from attncalc.questions.fit.request import read_fit_request
from attncalc.serving.answer import Answer

MODELS = (
    "qwen3-8b",
    "gpt-oss-20b",
    "gemma3-1b",
    "deepseek-v3",
    "qwen3-next-80b",
    "mistral-7b-v0.1",
    "glm-4.5-air",
)
PLACES = [
    *((None, gpu) for gpu in ("h100", "a10", "b200", "mi300x")),
    *(("sglang", gpu) for gpu in ("h100", "l4", "b200")),
    *(("llamacpp", gpu) for gpu in ("h100", "rtx-3060", "rtx-4090")),
]


def answer(model: str, options: dict[str, Any]) -> tuple[Any, ...]:
    """Return the figures and the verdict of `attncalc fit`, with its bounds of time."""
    request = read_fit_request(model, options)  # type: ignore[arg-type]
    report = answer_report(Answer.to(request), with_variants=False)
    return {figure.name: figure.value for figure in report.all_figures}, report.verdict


@each(("number", "engine", "gpu"), [(i, *place) for i, place in enumerate(PLACES)])
def test_naming_a_default_changes_nothing(number: int, engine: str | None, gpu: str) -> None:
    """Every third pair of a place and a model is asked: each engine has each model, and each place
    two models or three.
    """
    for model in MODELS[number % 3 :: 3]:
        spec = load(model)
        asked = {"gpu": gpu, "context": "4096"} | ({"engine": engine} if engine else {})
        defaults = {"batch": "1", "gpus": "1", "pp": "1", "dp": "1", "tp": "1"}
        if not gpu.startswith("rtx"):  # a file in q4_k_m is the default of a desktop's card
            defaults["dtype"] = spec.dtype
        if engine is None:
            defaults |= {"engine": "vllm", "gpu_memory_utilization": "0.92"}
        expected = answer(model, asked)
        for name, value in defaults.items():
            assert answer(model, {**asked, name: value}) == expected, (model, name)


@each("model", ["qwen3-8b", "gpt-oss-20b", "gemma3-1b"])
def test_naming_the_longest_context_changes_nothing(model: str) -> None:
    longest = load(model).max_context
    assert answer(model, {"gpu": "h100"}) == answer(model, {"gpu": "h100", "context": f"{longest}"})


@each("model", ["gpt-oss-20b", "qwen3-8b", "qwen3.5-4b"])
def test_a_batch_of_one_leaves_as_much_on_the_host(model: str) -> None:
    """Without a context llama.cpp's layers that do not fit on the card are on the host, with -b 1
    too.
    """
    asked = {"gpu": "rtx-3060", "engine": "llamacpp"}
    assert answer(model, {**asked, "batch": "1"}) == answer(model, asked)


@pytest.mark.parametrize("batch", [(), ("-b", "1"), ("-b", "4")])
def test_a_sweep_of_users_has_the_times_of_fit(ask: Ask, batch: tuple[str, ...]) -> None:
    """With -b 1 a decode step is that of one request, and without it that of as many users as fit
    on average.
    """
    asked = (
        "qwen3-8b",
        "--gpu",
        "h100",
        "--prompt",
        "2000",
        "--output-len",
        "100",
        "-c",
        "4096",
        *batch,
    )
    time = results(ask("fit", *asked, "--json"))["decode_time_bound"]
    table = ask("sweep", *asked, "--columns", "decode_time_bound", "--format", "csv").out
    (row,) = csv.DictReader(table.splitlines())
    assert float(row["decode_time_bound"]) == pytest.approx(time, rel=1e-12)


def test_the_types_of_k_and_v_do_not_change_the_states_of_llama_cpp(ask: Ask) -> None:
    """Convolutions and states are in f32, whatever the cache is in."""
    asked = (
        "fit",
        "qwen3.5-4b",
        "--engine",
        "llamacpp",
        "--gpu",
        "rtx-4090",
        "--weights-dtype",
        "q4_k_m",
        "-c",
        "8192",
    )
    both = ask(*asked, "--kv-dtype", "q4_0", "--json")
    each_one = ask(*asked, "-ctk", "q4_0", "-ctv", "q4_0", "--json")
    assert results(both)["decode_time_bound"] == results(each_one)["decode_time_bound"]


def test_expert_parallelism_of_one_device_has_no_effect(ask: Ask) -> None:
    asked = (
        "fit",
        "qwen3-30b-a3b",
        "--gpu",
        "h100",
        "-c",
        "32K",
        "--engine",
        "sglang",
        "--enable-hierarchical-cache",
    )
    alone, parallel = ask(*asked, "--json"), ask(*asked, "--enable-expert-parallel", "--json")
    assert results(alone)["host_faster_from"] == 1
    assert results(parallel) == results(alone)


def test_the_row_of_the_fewest_gpus_has_the_split_that_starts(ask: Ask) -> None:
    """64 heads on nodes of 8 GPUs: 32 GPUs are 4 stages of 8."""
    screen = ask("fit", "kimi-k2", "--engine", "vllm", "--gpu", "l40s", "-c", "100", "--full").out
    assert "--gpus 32 --tp 8 --pp 4" in screen
    row = next(line for line in screen.splitlines() if "fewest GPUs" in line)
    assert row.split()[-5:] == ["32", "--tp", "8", "--pp", "4"]


@each("option", [("--cpu-moe",), ("--n-cpu-moe", "4"), ("-ot", "exps=CPU")])
def test_experts_of_a_dense_model_on_the_host_are_an_error(
    ask: Ask, option: tuple[str, ...]
) -> None:
    asked = ("-c", "8K", "--gpu", "rtx-3060", "--engine", "llamacpp", *option)
    error = ask("fit", "gemma3-27b", *asked).error
    assert error.endswith(
        " needs a mixture of experts, which this model is not\n  tip: leave it out: -ngl leaves "
        "layers on the host\n"
    )
    assert ask("fit", "gpt-oss-20b", *asked).code in (0, 1)


def test_models_that_fit_with_experts_on_the_host_are_mixtures(ask: Ask) -> None:
    rows = ask("fit", "--gpu", "rtx-3060", "--cpu-moe", "--json").document["layers"]
    assert rows
    assert all(load(row["model"]).has_experts for row in rows)


@each(
    ("model", "dtype"),
    [
        ("llama3.1:8b-instruct-fp16", "q4_0"),
        ("qwen3-14b-q4_k_m", "q8_0"),
        ("qwen3:8b:q8_0", "bf16"),
    ],
)
def test_a_type_in_the_name_and_another_in_an_option_are_an_error(
    model: str, dtype: str, ask: Ask
) -> None:
    error = ask("fit", model, "--weights-dtype", dtype, "--gpu", "3090").error
    assert f"--weights-dtype {dtype} cannot be combined with {model}" in error


@each(("model", "dtype"), [("llama3.1:8b-instruct-fp16", "F16"), ("qwen3-14b-q4_k_m", "Q4_K_M")])
def test_a_type_in_the_name_and_the_same_in_an_option_are_one(
    model: str, dtype: str, ask: Ask
) -> None:
    named = ask("fit", model, "--gpu", "3090").out
    assert ask("fit", model, "--weights-dtype", dtype, "--gpu", "3090").out == named
