"""`attncalc fit` about many: the built-in models on a GPU. One model on each GPU is in
test_vram.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from asking import Ask, refusal
from tables import each

import attncalc
from attncalc.errors import AttncalcError
from attncalc.questions.fit.newest import released_in
from attncalc.questions.fit.what_fits import find_what_fits

GPU = "rtx-3060-laptop"


@pytest.fixture(scope="module")
def found() -> Any:
    return attncalc.what_fits(gpu=GPU)


def test_models_that_fit_are_listed_the_largest_first(found: Any) -> None:
    sizes = [int(attncalc.params(need.resolved.request.model).total) for need in found.needs]
    assert sizes == sorted(sizes, reverse=True)
    # an encoder has no requests and no context to list
    generate = [name for name in attncalc.preset_names() if attncalc.load(name).main.has_cache]
    assert 15 < len(sizes) < found.models == len(generate)
    assert {need.verdict for need in found.needs} == {"fits"}


def test_on_a_gpu_that_the_engine_refuses_no_model_starts(ask: Ask) -> None:
    answer = ask("fit", "--gpu", "gtx-1060-6gb", "--engine", "vllm")
    assert answer.code == 1
    assert answer.out.startswith("DOES NOT START: not even ")
    assert "vLLM\n  needs a GPU of compute capability 7.0 or more" in answer.out


def test_a_screen_lists_the_newest_models_first_and_names_the_largest_above(ask: Ask) -> None:
    largest = find({"gpu": "h100"}).needs[0].resolved.request.model
    heading, table, *_ = ask("fit", "--gpu", "h100").out.split("\n\n")
    assert heading.startswith(f"FITS: up to {largest.title} in ")
    names = [line.split()[0] for line in table.splitlines()[2:] if "older ones" not in line]
    years = [released_in(name) for name in names]
    assert years == sorted(years, reverse=True)
    assert years[0] == 2026
    # JSON has all models, the largest first
    listed = ask("fit", "--gpu", "h100", "--json").document
    assert listed["rows"][0]["model"] == largest.name


def test_the_year_of_every_listed_model_is_known() -> None:
    generate = [name for name in attncalc.preset_names() if attncalc.load(name).main.has_cache]
    assert [name for name in generate if not released_in(name)] == []
    # the longest start of a name decides
    assert (released_in("deepseek-v3"), released_in("deepseek-v3.2")) == (2024, 2025)


@each(
    ("model", "dtype", "wider"), [("qwen2.5-7b", "q4_k_m", "q5_k_m"), ("qwen3-4b", "q6_k", "q8_0")]
)
def test_a_models_weights_are_the_widest_that_fit(
    ask: Ask, found: Any, model: str, dtype: str, wider: str
) -> None:
    need = next(need for need in found.needs if need.resolved.request.model.name == model)
    assert need.resolved.request.weights_dtype == dtype
    asked = ("fit", model, "--engine", "llamacpp", "--gpu", GPU, "-c", "8192", "--json")
    for weights in (dtype, wider):
        answer = ask(*asked, "--weights-dtype", weights).document
        assert (answer["verdict"] == "fits") is (weights == dtype)


def test_contexts_and_requests_are_the_most_that_surely_fit(ask: Ask, found: Any) -> None:
    rows = {
        facts["model"]: {figure.name: figure.value for figure in row}
        for facts, row in found.report.layers
    }
    asked = (
        "fit",
        "qwen2.5-7b",
        "--engine",
        "llamacpp",
        "--gpu",
        GPU,
        "--weights-dtype",
        "q4_k_m",
        "--json",
    )
    context, requests = rows["qwen2.5-7b"]["max_context"], rows["qwen2.5-7b"]["max_batch"]
    for *others, most in (("-c", context), ("-c", 8192, "-b", requests)):
        for more in (0, 256 if most == context else 1):  # cells come in 256
            answer = ask(*asked, *map(str, others), str(most + more)).document
            assert (answer["verdict"] == "fits") is (more == 0)


@each("gpu", ["4090", "8xh100"])
def test_the_answer_comes_first_and_fits_a_terminal_of_24_rows(ask: Ask, gpu: str) -> None:
    answer = ask("fit", "--gpu", gpu)
    lines = answer.out.splitlines()
    assert (answer.code, answer.err) == (0, "")
    assert lines[0].startswith("FITS: up to ")
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


@each(
    ("options", "engine", "dtypes"),
    [
        (("--gpu", "h100"), "vllm", {"fp8", "int4"}),
        (("--gpu", "rtx-3090", "--engine", "vllm"), "vllm", {"bf16", "fp8", "int4"}),
        (("--gpu", "rtx-3090", "--tp", "1"), "vllm", {"bf16", "fp8", "int4"}),
        (("--gpu", "rtx-3090", "--weights-dtype", "q4_k_m"), "llamacpp", {"q4_k_m"}),
        (("--gpu", "m2-24gb"), "llamacpp", {"q8_0", "q6_k", "q5_k_m", "q4_k_m"}),
    ],
)
def test_the_engine_follows_from_the_gpu_and_the_options(
    options: tuple[str, ...], engine: str, dtypes: set[str]
) -> None:
    named = {
        name[2:].replace("-", "_"): value
        for name, value in zip(options[::2], options[1::2], strict=True)
    }
    needs = find(named).needs
    assert {need.resolved.engine.name for need in needs} == {engine}
    assert {need.resolved.request.weights_dtype or "bf16" for need in needs} <= dtypes | {
        "bf16",
        "mxfp4",
    }


def find(options: Any) -> Any:
    return find_what_fits(None, options, most=8)


def test_models_that_are_shorter_than_the_context_are_left_out() -> None:
    assert "phi-4" in {need.resolved.request.model.name for need in find({"gpu": "12GB"}).needs}
    needs = find({"gpu": "12GB", "context": "20K"}).needs
    assert all(need.resolved.request.model.max_context >= 20 * 1024 for need in needs)
    assert {int(need.resolved.workload.context) for need in needs} == {20 * 1024}


def test_if_nothing_fits_the_smallest_model_says_so(ask: Ask) -> None:
    answer = ask("fit", "--gpu", "300MB")
    assert (answer.code, answer.out.splitlines()[0]) == (
        1,
        "DOES NOT FIT: not even GPT-2 (124M) in q4_k_m, of the built-in models.",
    )


@each(
    ("arguments", "error"),
    [
        ("--gpu 12GB --quants", "--quants needs a model and one GPU"),
        ("--gpu h100 --roofline", "--roofline needs a model and one GPU"),
        ("--gpu h100 --engine all", "--engine all needs a model and one GPU"),
        ("--gpu all", "a model is required"),
        ("--gpu h10000", "no GPU named 'h10000'"),
        ("--gpu 2xh100 --tp 3", "--tp 3"),
    ],
)
def test_what_cannot_be_listed_is_an_error(ask: Ask, arguments: str, error: str) -> None:
    assert error in ask("fit", *arguments.split()).error


def test_python_answers_both_questions() -> None:
    on_each = attncalc.what_fits("llama3.1-8b", gpu="all")
    assert len(on_each.needs) == len(attncalc.gpu_names())
    assert repr(on_each) == f"WhatFits(llama3.1-8b: {on_each.report.heading[0]})"
    for call in (attncalc.fit, attncalc.vram):
        assert 'attncalc.what_fits(model, gpu="all")' in refusal(call, "llama3.1-8b", gpu="all").tip
    with pytest.raises(AttncalcError, match="a model or a GPU is required"):
        attncalc.what_fits()
