"""The schema of `attncalc compare --json`."""

from __future__ import annotations

from ...units import BYTES, FLOP, NO_UNIT, PARAMS
from ..compare_rows import FIGURES
from ..fail_if import OPERATORS
from .attention import DEFINITIONS
from .parts import (
    MODEL_FACTS,
    choice,
    document,
    fields,
    figures,
    flag,
    layer,
    listed,
    number,
    or_null,
    ref,
    text,
    whole,
)

_ROW = {
    **MODEL_FACTS,
    "name": text("name of the row: that of a variant, such as MHA or GQA-8, or of a model"),
    "released": flag("whether this is the model as released"),
    "context": whole("tokens per sequence", 1),
    "attention": ref("attention", "the attention of its leading kind of layer"),
}
_CHECK = fields(
    "a condition of --fail-if and one model and context that it was checked on",
    {
        "model": text("name of the model"),
        "context": whole("tokens per sequence", 1),
        "condition": text("the condition as it was given"),
        "name": text("name of the figure"),
        "value": number("the model's figure"),
        "baseline": or_null(number("the first model's figure"), "if the limit is not a change from it"),
        "operator": choice("how the two are compared", *OPERATORS),
        "limit": number("what the figure is compared with"),
        "unit": choice("unit of the three numbers", BYTES, FLOP, PARAMS, NO_UNIT),
        "passed": flag("whether the condition does not hold"),
    },
)
SCHEMA = document(
    "compare",
    "One model with MHA, GQA, MQA and MLA; or several models.",
    results=figures("the figures of the model as released, or of the first model", FIGURES),
    layers=layer("a row: a variant or a model", _ROW, figures("its figures", FIGURES)),
    extra={"checks": listed("the results of --fail-if; [] without it", _CHECK)},
    definitions=DEFINITIONS,
)
