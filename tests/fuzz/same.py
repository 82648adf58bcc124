"""One question asked in several ways: a command line, a call, a row of a sweep or of a comparison,
a model file.
"""

import csv
import io
from random import Random
from typing import Any

import attncalc
from attncalc.config.presets import presets
from attncalc.options import by_name, options_of
from attncalc.questions.flops.options import FlopsOptions
from attncalc.questions.kv.options import KVCacheOptions
from attncalc.questions.memory.options import ActivationsOptions
from attncalc.questions.options import ShardedModelOptions
from attncalc.questions.sweep.columns import COSTS

from .case import Case, Result, run_case
from .command_lines import Known, options

Data = dict[str, Any]
# {command: its function and its options}.
KINDS: dict[str, Any] = {
    "kv": (attncalc.kv_cache, KVCacheOptions),
    "params": (attncalc.params, ShardedModelOptions),
    "flops": (attncalc.flops, FlopsOptions),
    "memory": (attncalc.activations, ActivationsOptions),
}
# {option: values that many models may have}.
VALUES: dict[str, tuple[str, ...]] = {
    "--attention": ("mha", "mqa", "gqa:2", "gqa:4", "mla:512", "linear"),
    "--layers": ("2", "7", "100"),
    "--heads": ("8", "16", "24"),
    "--kv-heads": ("1", "2", "4"),
    "--head-dim": ("64", "96"),
    "--d-ff": ("1000", "4096"),
    "--vocab-size": ("1000", "32K"),
    "--experts": ("16", "64"),
    "--experts-per-token": ("1", "2"),
    "--window": ("100", "1K"),
    "--pattern": ("3 local, 1 global", "2 linear, 1 global", "local"),
    "--tp": ("1", "2", "4"),
    "--batch": ("1", "3", "8"),
    "--context": ("1", "100", "4K", "10000"),
    "--source-context": ("50", "1K"),
    "--lengths": ("300,200,7", "512"),
    "--dtype": ("fp32", "fp16", "bf16"),
    "--kv-dtype": ("fp32", "bf16", "fp8", "int4", "q8_0", "fp8_ds_mla", "auto"),
    "--phase": ("prefill", "decode", "train"),
    "--past": ("0", "10", "99"),
    "--mask": ("causal", "bidirectional", "prefix:5"),
    "--recompute": ("none", "full", "selective"),
    "--engine": ("ideal", "transformers"),
}
# Figures of `kv` and `params` that a row of `compare` has too.
OF_COMPARED = {
    "kv_cache",
    "kv_cache_per_token",
    "params_total",
    "params_active",
    "params_attention",
}
_NOT_COMPARED = {
    "lengths",
    "phase",
    "past",
    "mask",
    "recompute",
    "engine",
    "kv_dtype_k",
    "kv_dtype_v",
    "attention",
}


def same_answers(random: Random) -> Case:
    """Return a command of costs with up to four options, whose answer is compared with those of the
    other ways.
    """
    command = random.choice([*KINDS])
    model = random.choice([preset.name for preset in presets()])
    known = [
        option for option in options(command) if _name(option) in VALUES or "--tie" in option.name
    ]
    words: list[str] = []
    for option in random.sample(known, random.choice((0, 1, 1, 2, 2, 3, 4))):
        if "--tie" in option.name:
            words.append(random.choice(option.names))
        else:
            words += (_name(option), random.choice(VALUES[_name(option)]))
    return Case(
        (command, model, *words, "--json"), relations=tuple(one.__name__ for one in RELATIONS)
    )


def _name(option: Known) -> str:
    return next((name for name in option.names if name in VALUES), "")


def given(case: Case) -> Data:
    """Return the options of a command line as arguments of a call."""
    kind = KINDS[case.arguments[0]][1]
    fields = {option: field for field, option in options_of(kind).items()}
    by_word = by_name(fields)
    arguments: Data = {}
    words = iter(case.arguments[2:-1])
    for word in words:
        option = by_word[word]
        field = fields[option]
        arguments[field] = next(words) if option.metavar else not word.startswith("--no-")
    return arguments


def _values(data: Data) -> Data:
    return {figure["name"]: figure["value"] for figure in data["results"]}


def call_equals_command(case: Case, result: Result, data: Data) -> None:
    """A call of Python has the figures of the command."""
    function, _ = KINDS[case.arguments[0]]
    called = function(case.arguments[1], **given(case)).to_dict()
    assert called == _values(data), case.arguments


def row_of_sweep_equals_command(case: Case, result: Result, data: Data) -> None:
    """A row of a sweep has every figure of the command that is a column."""
    arguments = given(case)
    if "lengths" in arguments or (
        case.arguments[0] in ("params", "kv") and "recompute" in arguments
    ):
        return
    figures = {name: value for name, value in _values(data).items() if name in COSTS}
    if (
        case.arguments[0] == "flops"
        and "phase" not in arguments
        and arguments.get("recompute", "none") != "none"
    ):
        # the only phase that recomputes: `flops` has it by default then
        arguments["phase"] = "train"
    (row,) = attncalc.sweep(case.arguments[1], columns=[*figures], **arguments)
    assert row["error"] is None, (case.arguments, row)
    assert {name: row[name] for name in figures} == figures, case.arguments


def row_of_comparison_equals_command(case: Case, result: Result, data: Data) -> None:
    """A row of a comparison has the figures of the command, and in either order of two models."""
    arguments = given(case)
    if case.arguments[0] not in ("kv", "params") or _NOT_COMPARED & arguments.keys():
        return
    model = attncalc.load(case.arguments[1])
    options_of_comparison = {
        name: arguments.pop(name) for name in [*arguments] if name in _OF_WORKLOAD
    }
    changed = _changed(case, arguments)
    figures = {name: value for name, value in _values(data).items() if name in OF_COMPARED}
    if "context" not in options_of_comparison:
        options_of_comparison["context"] = data["workload"].get("context") or 128
    for models, i in (((model, changed), 1), ((changed, model), 0)):
        row = attncalc.compare(*models, **options_of_comparison)[i]
        assert {name: row[name] for name in figures} == figures, case.arguments


_OF_WORKLOAD = {"batch", "context", "source_context", "dtype", "kv_dtype", "tp"}


def _changed(case: Case, arguments: Data) -> attncalc.ModelSpec:
    from attncalc.questions.inputs import read_model

    return read_model(case.arguments[1], arguments)


def table_equals_command(case: Case, result: Result, data: Data) -> None:
    """CSV has the figures of JSON under their names."""
    answer = run_case(case._replace(arguments=(*case.arguments[:-1], "--format", "csv")))
    rows = csv.DictReader(io.StringIO(answer.out))
    found = {row["name"]: row["value"] for row in rows if not row["of"]}
    expected = {name: "" if value is None else str(value) for name, value in _values(data).items()}
    assert {name: found[name] for name in expected} == expected, case.arguments


RELATIONS = (
    call_equals_command,
    row_of_sweep_equals_command,
    row_of_comparison_equals_command,
    table_equals_command,
)
