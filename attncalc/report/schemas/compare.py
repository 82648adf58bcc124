"""The schema of `attncalc compare --json`."""

from __future__ import annotations

from ...units import BYTES, FLOP, NO_UNIT, PARAMS
from ..compare_rows import FIGURES
from ..fail_if import OPERATORS
from . import parts as p
from .attention import DEFINITIONS

_ROW = {
    **p.MODEL_FACTS,
    "name": p.text("name of the row: that of a variant, such as MHA or GQA-8, or of a model"),
    "released": p.flag("whether this is the model as released"),
    "context": p.whole("tokens per sequence", 1),
    "attention": p.ref("attention", "the attention of its leading kind of layer"),
}
_CHECK = p.fields(
    "a condition of --fail-if and one model and context that it was checked on",
    {
        "model": p.text("name of the model"),
        "context": p.whole("tokens per sequence", 1),
        "condition": p.text("the condition as it was given"),
        "name": p.text("name of the figure"),
        "value": p.number("the model's figure"),
        "baseline": p.or_null(p.number("the first model's figure"), "if the limit is not a change from it"),
        "operator": p.choice("how the two are compared", *OPERATORS),
        "limit": p.number("what the figure is compared with"),
        "unit": p.choice("unit of the three numbers", BYTES, FLOP, PARAMS, NO_UNIT),
        "passed": p.flag("whether the condition does not hold"),
    },
)
SCHEMA = p.document(
    "compare",
    "One model with MHA, GQA, MQA and MLA; or several models.",
    results=p.figures("the figures of the model as released, or of the first model", FIGURES),
    layers=p.layer("a row: a variant or a model", _ROW, p.figures("its figures", FIGURES)),
    extra={"checks": p.listed("the results of --fail-if; [] without it", _CHECK)},
    definitions=DEFINITIONS,
)
