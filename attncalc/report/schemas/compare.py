"""The schema of `attncalc compare --json`."""

from __future__ import annotations

from ...units import BYTES, FLOP, NO_UNIT, PARAMS
from ..fail_if import OPERATORS
from .attention import DEFINITIONS
from .parts import (
    MODEL_FACTS,
    amount,
    choice,
    document,
    fields,
    figures,
    flag,
    layer,
    listed,
    number,
    or_null,
    ratio,
    ref,
    size,
    text,
    whole,
)

_NO_DECODE = "for an encoder, which has no decode step"
_FIGURES = {
    "n_kv_heads": amount("KV heads"),
    "params_total": size(PARAMS, "all parameters"),
    "params_attention": size(PARAMS, "attention, with biases and norms of its own"),
    "kv_cache": size(BYTES, "the whole cache on one device"),
    "kv_cache_per_token": size(BYTES, "what the next token of one sequence adds at this context"),
    "kv_cache_per_token_max": size(BYTES, "what it adds while no window is full"),
    "kv_cache_ratio": ratio("kv_cache / kv_cache of the first row: of MHA, or of the first model", "without a cache"),
    "flops_prefill": size(FLOP, "a prefill of the whole context"),
    "flops_decode": size(FLOP, "one decode step", _NO_DECODE),
    "decode_flop_per_byte": ratio(
        "a decode step's FLOPs per byte of weights and cache; of a mixture, with the expected experts", _NO_DECODE
    ),
    "decode_flop_per_cache_byte": ratio("the scores' FLOPs per byte of cache", _NO_DECODE),
}
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
    results=figures("the figures of the model as released, or of the first model", _FIGURES),
    layers=layer("a row: a variant or a model", _ROW, figures("its figures", _FIGURES)),
    extra={"checks": listed("the results of --fail-if; [] without it", _CHECK)},
    definitions=DEFINITIONS,
)
