"""The report of `attncalc presets`: the models that are here, a row each."""

from __future__ import annotations

from collections.abc import Sequence

from ..cost.cache import kv_cache
from ..cost.params import params
from ..model import ModelSpec
from ..quantity import quantity
from ..units import BYTES, NO_UNIT, PARAMS, TOKENS, count, human
from ..workload import Workload
from .report import Column, Figure, Report, Table


def presets_report(models: Sequence[ModelSpec]) -> Report:
    """Name, attention, layers, parameters and KV bytes of a first token, of each preset."""
    layers, rows = [], []
    for model in models:
        total = params(model).total
        token = kv_cache(model, Workload.decode(1, 1, source=1 if model.encoder else None)).per_token
        figures = (
            Figure("params_total", "parameters", total, PARAMS, of=model.name),
            Figure("kv_cache_per_token", "KV of a token", token, BYTES, of=model.name),
            Figure("max_context", "longest context", quantity(model.max_context or 0), TOKENS, of=model.name),
        )
        layers.append((model.facts(), figures))
        kinds = dict.fromkeys(g.attention.label for g in model.main.layers)
        spans = dict.fromkeys(g.attention.span.label for g in model.main.layers)
        label = "/".join(kinds) + ("" if list(spans) == ["full"] else ", " + " and ".join(spans))
        longest = count(model.max_context) if model.max_context else "-"
        rows.append((model.name, label, human(total, PARAMS), human(token, BYTES), longest))
    columns = (
        Column("name", "left"),
        Column("attention", "left"),
        Column("parameters"),
        Column("KV a token"),
        Column("context"),
    )
    return Report(
        "presets",
        (f"{count(len(models))} presets  'attncalc presets show NAME' prints one, with its sources",),
        {},
        {},
        (Figure("presets", "presets", quantity(len(models)), NO_UNIT),),
        tuple(layers),
        (Table(columns, tuple(rows)),),
    )
