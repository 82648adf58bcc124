"""A formula with its symbols gives the figure, for hybrid models in every engine."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asking import Ask
from evaluate import evaluate
from reports import fit_request, one_per_structure
from tables import each

from attncalc import AttncalcError, ModelSpec, activations, flops, kv_cache, load, params
from attncalc.config.build import build_model
from attncalc.config.huggingface import convert_config
from attncalc.engines import ENGINES
from attncalc.questions.fit.report import fit_report
from attncalc.questions.verify.catalogue import CATALOGUE
from attncalc.show.json import result
from attncalc.show.report import Figure

CONFIGS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "huggingface.json").read_text()
)


def is_hybrid(model: ModelSpec) -> bool:
    """Whether the layers differ in what they cache."""
    return model.main.has_cache and len({layers.cache() for layers in model.main.layers}) > 1


def hybrids() -> Iterator[ModelSpec]:
    for name, entry in CONFIGS.items():
        try:
            model = build_model(convert_config(entry["config"], f"{name}.json", title=name), name)
        except AttncalcError:  # a family that attncalc does not support
            continue
        if is_hybrid(model):
            yield model


def fit_figures(model: ModelSpec, engine: str) -> tuple[Figure, ...]:
    """The figures of `fit`; () if the engine does not support the model."""
    try:
        return fit_report(fit_request(model, engine)).all_figures
    except AttncalcError:
        return ()


@each("model", hybrids())
def test_formula_and_symbols_in_json_give_the_value(model: ModelSpec) -> None:
    figures = [figure for engine in ENGINES for figure in fit_figures(model, engine)]
    for figure in figures:
        data = result(figure)
        if data["formula"]:
            assert float(evaluate(data["formula"], data["symbols"])) == float(data["value"]), data
    assert any(figure.formula.symbols for figure in figures)


def test_two_groups_of_layers_are_two_symbols() -> None:
    """LFM2 has 6 layers of attention and 10 of short convolutions, whose bytes llama.cpp adds up in
    one formula.
    """
    entry = CONFIGS["lfm2-1.2b"]
    model = build_model(
        convert_config(entry["config"], "lfm2-1.2b.json", title="lfm2-1.2b"), "lfm2-1.2b"
    )
    figure = next(f for f in fit_figures(model, "llamacpp") if f.name == "kv_bytes_per_sequence")
    layers = {
        symbol.name: symbol.value
        for symbol in figure.formula.symbols
        if symbol.name.startswith("L")
    }
    assert layers == {"L_1": 6, "L_2": 10}


@each("name", one_per_structure(CATALOGUE))
def test_explain_explains_every_small_number_of_costs(name: str) -> None:
    """A literal 2 of a formula has a meaning, and a legend line of its own."""
    model = load(name)
    reports = [
        flops(model, context=300).report,
        params(model).report,
        activations(model, context=300).report,
    ]
    reports += [kv_cache(model, context=300).report] if model.main.has_cache else []
    unexplained = [
        (figure.label, text)
        for report in reports
        for figure in report.figures_to_explain
        for text, _ in figure.formula.tokens
        if type(text) is str and text in "234567"
    ]
    assert unexplained == []


def test_the_legend_of_a_constant_is_printed_once(ask: Ask) -> None:
    screen = ask("kv", "llama2-70b", "-c", "4096", "--explain").out
    assert screen.count("    2                  tensors: keys and values\n") == 1
    assert "    B               1  batch size, in sequences\n" in screen
    assert "    T           4,096  tokens attended to" in screen
    screen = ask("flops", "gpt2", "-c", "1024", "--explain").out
    assert len(re.findall(r"(?m)^    2 +FLOP per multiply-add$", screen)) == 1
    assert "products of one width: QK and PV" in screen
    assert "flops_mlp" in screen
    assert "FLOP of the head" not in screen  # it is a figure, which has its own lines
