"""The command line: invalid input gets one line of error, a tip and exit code 2."""

from collections.abc import Callable
from typing import Any

import pytest
from asking import Ask

from attncalc import (
    AttncalcError,
    FitRequest,
    Workload,
    activations,
    crossover,
    decode_intensity,
    fit,
    flops,
    growth,
    kv_cache,
    load,
    roofline,
    sweep,
)
from attncalc.options import options_of
from attncalc.questions.fit.options import DeploymentOptions, EngineOptions

INVALID = {
    "no model": ("kv",),
    "two models": ("kv", "gpt2", "-p", "gpt3"),
    "an unknown preset": ("kv", "lama2-70b"),
    "an unknown command": ("kb",),
    "an unknown option": ("kv", "gpt2", "--contxt", "3"),
    "an option without its value": ("kv", "gpt2", "-b"),
    "too many arguments": ("kv", "gpt2", "gpt3", "--json"),
    "a batch of zero": ("kv", "gpt2", "-b", "0"),
    "a negative context": ("kv", "gpt2", "-c", "-5"),
    "a float": ("kv", "gpt2", "-c", "1e6"),
    "an empty number": ("kv", "gpt2", "-c", ""),
    "an unknown dtype": ("kv", "gpt2", "--kv-dtype", "fp17"),
    "activations in a dtype with scales": ("memory", "gpt2", "--dtype", "int4"),
    "an incomplete attention": ("kv", "gpt2", "--attention", "gqa"),
    "KV heads that do not divide": ("kv", "gpt2", "--attention", "gqa:5"),
    "a number of devices that does not divide the heads": ("kv", "llama2-70b", "--tp", "3"),
    "an unknown engine": ("kv", "gpt2", "--engine", "vlm"),
    "an unknown phase": ("flops", "gpt2", "--phase", "inference"),
    "an unknown mask": ("flops", "gpt2", "--mask", "prefix"),
    "a prefix longer than the context": ("flops", "gpt2", "--mask", "prefix:2000", "-c", "10"),
    "a past as long as the context": ("flops", "gpt2", "-c", "10", "--past", "10"),
    "a past of a decode step": ("flops", "gpt2", "--phase", "decode", "--past", "10"),
    "an encoder's decode step": ("flops", "bert-base", "--phase", "decode"),
    "a past of a padded batch": ("flops", "gpt2", "--lengths", "5,3", "--past", "2"),
    "a seed that is no number": ("verify", "gpt2", "--seed", "x"),
    "a source without an encoder": ("kv", "gpt2", "--source-context", "5"),
    "lengths that are not numbers": ("kv", "gpt2", "--lengths", "5,x"),
    "both lengths and a batch": ("kv", "gpt2", "--lengths", "5,3", "-b", "2"),
    "an unknown format": ("kv", "gpt2", "--format", "xml"),
    "two formats": ("kv", "gpt2", "--json", "--format", "csv"),
    "an unknown preset to show": ("presets", "show", "gpt9"),
    "variants of several models": ("compare", "gpt2", "gpt3", "--attention", "mqa"),
    "a folder": ("kv", "/"),
    "an output file in a missing folder": ("kv", "gpt2", "-o", "/no/such/folder/x.json"),
    "an output file that is a folder": ("kv", "gpt2", "-o", "/"),
    "memory of training": ("memory", "gpt2", "--phase", "train"),
    "an encoder's memory of a decode step": ("memory", "bert-base", "--phase", "decode"),
    "an encoder's memory after a past": ("memory", "bert-base", "-c", "20", "--past", "10"),
    "options before a subcommand": ("presets", "--json", "show", "gpt2"),
    "an empty dtype": ("kv", "gpt2", "--kv-dtype", ""),
    "a context of a thousand digits": ("flops", "gpt2", "-c", "9" * 1000),
    "force without a file": ("kv", "gpt2", "--force"),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_input_is_an_error_with_a_tip_and_exit_code_2(ask: Ask, case: str) -> None:
    said = ask(*INVALID[case]).error
    error, tip, *rest = said.splitlines()
    assert error.startswith("error: ")
    assert tip.startswith("  tip: ")
    assert not rest


def test_a_list_for_one_number_is_an_error_that_names_sweep(ask: Ask) -> None:
    for command in (
        "kv gpt2 --tp 2,4",
        "flops gpt2 --past 1,5",
        "fit gpt2 --gpu h100 --gpus 2,4",
        "fit gpt2 --gpu 2,4xh100",
        "fit gpt2 --kv-memory 1,8GiB",
        "fit gpt2 --gpu h100 --gpu-memory-utilization 0,9",
        "fit gpt2 --gpu h100 --engine llamacpp --n-gpu-layers 1,2",
    ):
        answer = ask(*command.split(), "--json")
        assert answer.code == 2, command
        assert (
            "attncalc sweep gpt2" in answer.err or "lists of values belong to sweep" in answer.err
        ), command
    # 1 and 24 are not the lengths that were meant
    assert "has a comma within a number" in ask("kv", "gpt2", "--lengths", "1,024").err


def test_a_list_for_a_number_is_an_error_in_python_too() -> None:
    with pytest.raises(AttncalcError, match="'1,8' is not a whole number"):
        kv_cache("gpt2", batch="1,8")
    for name, option in {**options_of(DeploymentOptions), **options_of(EngineOptions)}.items():
        if option.parser and option.parser.is_number:
            given: Any = {name: [2, 4]}
            with pytest.raises(AttncalcError, match=f"^{name}: '2,4'"):
                fit("gpt2", gpu="h100-80gb", engine="llamacpp", **given)


@pytest.mark.parametrize("command", ["compare - -", "fit - --gpu l4 --speculative-model -"])
def test_standard_input_can_be_read_only_once(ask: Ask, command: str) -> None:
    error = ask(*command.split(), stdin=ask("presets", "show", "gpt2").out).error
    assert error.startswith(
        "error: standard input can be read only once, and '-' is given twice\n  tip: "
    )


def test_the_tip_of_an_option_without_a_value_is_its_meaning(ask: Ask) -> None:
    assert (
        ask("kv", "gpt2", "-b").err
        == "error: -b needs a value\n  tip: -b N: Sequences in the batch; a list, as 1,8, is a "
        "row each. Default: 1.\n"
    )


@pytest.mark.parametrize("arguments", [("kv", "gpt2", "h100"), ("kv", "gpt2", "--zzzzzzzz")])
def test_the_tip_names_the_help_of_the_command(ask: Ask, arguments: tuple[str, ...]) -> None:
    assert ask(*arguments).err.endswith("tip: 'attncalc kv --help all' lists all options\n")


@pytest.mark.parametrize(
    ("option", "tip"),
    [
        ("--json=1", "write --json alone"),
        ("--json=false", "leave it out"),
        ("--tie-word-embeddings=true", "write --tie-word-embeddings alone"),
        ("--tie-word-embeddings=false", "write --no-tie-word-embeddings"),
    ],
)
def test_a_flag_with_a_value_has_the_flag_as_a_tip(ask: Ask, option: str, tip: str) -> None:
    name = option.partition("=")[0]
    assert ask("params", "gpt2", option).error == f"error: {name} takes no value\n  tip: {tip}\n"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("kv gpt2 -c 0", "-c: '0' is not"),
        ("kv gpt2 --max-model-len 0", "--max-model-len: '0' is not"),
        ("sweep gpt2 --show memory", "--show: there is no figure 'memory'"),
        ("kv -b gpt2", "-b: 'gpt2' is not a whole number"),
        ("compare -b gpt2", "-b: 'gpt2' is not a whole number"),
        ("train -b gpt2", "-b: 'gpt2' is not a whole number"),
        ("train -b auto --gpu all", "a model is required"),
        ("compare -c 4K,8K", "a model is required"),
        ("kv -c 4K,8K", "a model is required"),
        ("fit -c gpt2", "-c: 'gpt2' is not a whole number"),
        ("sweep -j gpt2 -c 8K,16K", "-j: 'gpt2' is not a whole number"),
        ("kv gpt2 --num-kv-heads 7", "--num-kv-heads: 7 does not divide the 12 query heads"),
    ],
)
def test_an_error_names_an_option_as_it_was_typed(ask: Ask, line: str, error: str) -> None:
    assert ask(*line.split()).error.startswith(f"error: {error}")


@pytest.mark.parametrize(
    ("line", "tip"),
    [
        ("compare -p gpt2 -p gpt3", "name the models: attncalc compare gpt2 gpt3"),
        ("sweep gpt2 --gpu h100 --gpu=a100", "give a list: --gpu h100,a100"),
        ("kv gpt2 -p gpt2 -p gpt3", "give it once; --preset, -p are the same option"),
        ("explain whats the difference", "'attncalc explain' lists all terms"),
        ("gpus ls", "'attncalc gpus' lists the known GPUs"),
    ],
)
def test_a_tip_leads_to_an_answer(ask: Ask, line: str, tip: str) -> None:
    assert ask(*line.split()).error.endswith(f"  tip: {tip}\n")


def test_no_figure_of_a_gpu_is_the_tip_for_a_figure_of_the_model(ask: Ask) -> None:
    assert "did you mean" not in ask("sweep", "gpt2", "--gpu", "h100", "--columns", "memory").error


def test_a_cost_function_refuses_a_workload_that_does_not_fit_the_model() -> None:
    """Workloads made in Python meet no check of the command line."""
    t5, gpt2 = load("t5-base"), load("gpt2")
    costs: list[Callable[..., object]] = [
        kv_cache,
        flops,
        activations,
        growth,
        crossover,
        decode_intensity,
    ]
    for cost in costs:
        with pytest.raises(
            AttncalcError, match=r"T5 Base .* has an encoder, and needs source tokens"
        ):
            cost(t5, Workload.decode(1, 10))
        with pytest.raises(AttncalcError, match="source_context has no effect"):
            cost(gpt2, Workload.decode(1, 10, source=5))
    with pytest.raises(AttncalcError, match="needs source tokens"):
        fit(FitRequest(t5, Workload.decode(1, 10), kv_memory=2**30))
    with pytest.raises(AttncalcError, match="memory does not support phase='train'"):
        activations(gpt2, Workload.train(1, 10))
    with pytest.raises(AttncalcError, match="a prefill is not a decode step"):
        decode_intensity(gpt2, Workload.prefill(1, 10))
    with pytest.raises(AttncalcError, match="roofline with a Workload needs a Gpu"):
        roofline(gpt2, Workload.decode(1, 10), "h100")  # type: ignore[call-overload]
    for cost in costs[1:3]:  # also of the first token
        with pytest.raises(AttncalcError, match="a bidirectional model has no decode step"):
            cost(load("bert-base"), Workload.decode(1, 1))


def test_sweep_refuses_what_the_commands_refuse() -> None:
    (row,) = sweep("gpt2", context=10, phase="train", columns="flops_total,peak_flash")
    assert (
        row["error"]
        == "memory does not support --phase train: it counts a forward pass without gradients"
    )
    assert (row["flops_total"], row["peak_flash"]) == (None, None)
    (row,) = sweep("bert-base", context=1, phase="decode", columns="flops_total")
    assert "no decode step" in row["error"]
