"""The rows of `attncalc compare`: a variant or a model at one context, with its figures."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from ...cost.cache import kv_cache
from ...cost.flops import prefill_and_decode
from ...cost.intensity import decode_intensity
from ...cost.params import params
from ...model import ModelSpec
from ...quantity import named, quantity, ratio
from ...records import NamedTuple
from ...show.figures import (
    KV_CACHE,
    PARAMS_ATTENTION,
    PARAMS_TOTAL,
    PER_TOKEN,
    FigureRow,
    FigureRows,
    ratio_row,
)
from ...show.layers import attention_source, kv_heads
from ...show.report import Figure
from ...units import FLOP, NO_UNIT, PARAMS
from ...workload import Workload

_NO_DECODE = "for an encoder, which has no decode step"
STEPS = FigureRows(
    flops_prefill=FigureRow(
        "prefill",
        FLOP,
        "a prefill of the whole context, with logits of the last token",
        title="FLOPs of a prefill",
    ),
    flops_decode=FigureRow(
        "one decode step", FLOP, "one decode step", _NO_DECODE, title="FLOPs of a decode step"
    ),
)
FIGURES = FigureRows(
    n_kv_heads=FigureRow("KV heads", NO_UNIT, "KV heads"),
    params_total=PARAMS_TOTAL._replace(source=""),
    params_active=FigureRow(
        "active per token", PARAMS, "parameters that one token uses: not all of a mixture's experts"
    ),
    params_attention=PARAMS_ATTENTION._replace(label="attention parameters"),
    kv_cache=KV_CACHE,
    **PER_TOKEN,
    kv_cache_ratio=ratio_row(
        "KV cache / the first's",
        "kv_cache / kv_cache of the first row: of MHA, or of the first model",
        "without a cache",
    ),
    **STEPS,
    decode_flop_per_byte=ratio_row(
        "decode FLOP/byte",
        "a decode step's FLOPs per byte of weights and cache; of a mixture, with the expected "
        "experts",
        _NO_DECODE,
    ),
    decode_flop_per_cache_byte=ratio_row(
        "score FLOP per cache byte", "the scores' FLOPs per byte of cache", _NO_DECODE
    ),
)

# The figures that are drawn without --show.
CHARTS = ("kv_cache", "params_total", "flops_prefill", "flops_decode")


class Row(NamedTuple):
    name: str  # the variant or the model: 'GQA-8', 'llama2-70b'
    model: ModelSpec
    workload: Workload  # the workload, at one of the contexts
    figures: dict[str, Figure]  # its figures by name

    def facts(self, *, released: bool) -> dict[str, Any]:
        """Return what the row is about, for JSON."""
        return {
            **self.model.facts(),
            "name": self.name,
            "released": released,
            "context": int(self.workload.context),
            "attention": self.model.main.leading.facts(),
        }


def rows_at(
    models: Sequence[tuple[str, ModelSpec, Workload]], contexts: Sequence[int]
) -> list[list[Row]]:
    """Return for each model, with its name and its workload, a row per context; without contexts
    the workload's own.

    A ratio is to the first model at the same context.
    """
    _, first, workload = models[0]
    contexts = contexts or [workload.context]
    bases = [
        int(kv_cache(first, dataclasses.replace(workload, context=context)).total)
        for context in contexts
    ]
    rows = []
    for name, model, own in models:
        at_contexts = [dataclasses.replace(own, context=context) for context in contexts]
        labels = [
            f"{name} at context {context}" if len(contexts) > 1 else name for context in contexts
        ]
        rows.append(
            [
                Row(name, model, at, _figures(model, at, label, base))
                for at, label, base in zip(at_contexts, labels, bases, strict=True)
            ]
        )
    return rows


def _figures(model: ModelSpec, workload: Workload, of: str, base_bytes: int) -> dict[str, Figure]:
    """Return the figures of one row; kv_cache_ratio is the cache divided by `base_bytes`, the first
    row's.
    """
    prefill, step = prefill_and_decode(model, workload)
    decode = dataclasses.replace(workload, phase="decode", new=1)
    cache = kv_cache(model, workload)
    decodes = model.main.has_cache
    read = decode_intensity(model, decode) if decodes else None
    counted = params(model)
    to_first = (
        named(cache.total, "kv_cache", "bytes of the cache"),
        named(base_bytes, "kv_cache_first", "bytes of the first row's cache"),
    )

    figures = FIGURES.filled(
        attention_source(model),
        of,
        n_kv_heads=quantity(kv_heads(model.symbolic().main.leading)),
        params_total=counted.total,
        params_active=counted.active,
        params_attention=counted.attention,
        kv_cache=cache.total,
        kv_cache_per_token=cache.per_token,
        kv_cache_per_token_max=cache.per_token_without_windows,
        kv_cache_ratio=ratio(*to_first) if base_bytes else None,
        flops_prefill=prefill,
        flops_decode=step,
        decode_flop_per_byte=read and read.per_byte,
        decode_flop_per_cache_byte=read and read.per_cache_byte,
    )
    return {figure.name: figure for figure in figures}


def attention_of(model: ModelSpec) -> str:
    """Return the model's kinds of attention: 'GQA', or 'MLA/GQA' if layers differ."""
    return "/".join(dict.fromkeys(layers.attention.label for layers in model.main.layers))
