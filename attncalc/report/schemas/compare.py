"""The schema of `attncalc compare --json`."""

from __future__ import annotations

from ..compare_rows import FIGURES
from . import parts as p
from .attention import DEFINITIONS

_ROW = {
    **p.MODEL_FACTS,
    "name": p.text("name of the row: that of a variant, such as MHA or GQA-8, or of a model"),
    "released": p.flag("whether this is the model as released"),
    "context": p.whole("tokens per sequence", 1),
    "attention": p.ref("attention", "the attention of its leading kind of layer"),
}
_CROSSOVER = p.fields(
    "which of two models is cheaper from which context",
    {
        "figure": p.choice("name of the figure", "kv_cache", "flops_decode"),
        "models": p.texts("names of the first model and of another"),
        "limit": p.whole("the longest context that was considered", 1),
        "step": p.whole("the contexts are multiples of it", 1),
        "ranges": p.listed(
            "the ranges of contexts, in order",
            p.fields(
                "a range, up to the next one or the limit",
                {
                    "context": p.whole("its first context", 1),
                    "cheaper": p.or_null(p.text("name of the cheaper model"), "if both have the same figure"),
                },
            ),
        ),
    },
)
SCHEMA = p.document(
    "compare",
    "One model with MHA, GQA, MQA and MLA; or several models.",
    results=p.figures("the figures of the model as released, or of the first model", FIGURES),
    layers=p.layer("a row: a variant or a model", _ROW, p.figures("its figures", FIGURES)),
    extra={
        "crossovers": p.listed(
            "per model after the first and figure, from which context which of the two is cheaper; [] for one model",
            _CROSSOVER,
        ),
    },
    definitions=DEFINITIONS,
)
