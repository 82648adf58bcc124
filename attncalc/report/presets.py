"""The reports of `attncalc presets`: the models that are here, and the families of config.json."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from ..cost.cache import kv_cache
from ..cost.params import params
from ..model import ModelSpec
from ..quantity import quantity
from ..units import BYTES, NO_UNIT, PARAMS, TOKENS, count
from ..workload import Workload
from .layers import attention_source
from .report import SUM, Column, Figure, Report, Table, unit_column
from .text import WIDTH


def presets_report(models: Sequence[ModelSpec]) -> Report:
    """Name, attention, longest context, parameters and KV bytes of a first token, of each preset."""
    totals = [params(model).total for model in models]
    tokens = [kv_cache(m, Workload.decode(1, 1, source=1 if m.encoder else None)).per_token for m in models]
    longest = [quantity(model.max_context) if model.max_context else None for model in models]
    layers = tuple(
        (
            model.facts(),
            (
                Figure("params_total", "parameters", total, PARAMS, SUM, model.name),
                Figure("kv_cache_per_token", "KV of a first token", token, BYTES, attention_source(model), model.name),
                Figure("max_context", "longest context", context, TOKENS, of=model.name),
            ),
        )
        for model, total, token, context in zip(models, totals, tokens, longest, strict=True)
    )
    size, of_totals = unit_column("parameters", totals, PARAMS)
    cache, of_tokens = unit_column("KV/token", tokens, BYTES)
    names = [(model.name, _attention(model)) for model in models]
    contexts = [count(context) if context else "-" for context in longest]
    columns = (Column("name", "left"), Column("attention", "left"), Column("context"), size, cache)
    rows = tuple(zip(*zip(*names, strict=True), contexts, of_totals, of_tokens, strict=True))
    return Report(
        "presets",
        (f"{count(len(models))} presets  'attncalc presets show NAME' prints one, with its sources",),
        {},
        {},
        (Figure("presets", "presets", quantity(len(models)), NO_UNIT),),
        layers,
        (Table(columns, rows),),
    )


def families_report(read: Sequence[str], refused: Mapping[str, str], version: str) -> Report:
    """The model_types of a config.json that are read, and those that are not, each with the reason."""
    columns = 3
    ordered = sorted(read)
    height = -(-len(ordered) // columns)
    padded = [*ordered, *[""] * (height * columns - len(ordered))]
    rows = tuple(tuple(padded[row + height * column] for column in range(columns)) for row in range(height))
    left = Column(align="left")
    room = WIDTH - 4 - max(map(len, refused), default=0)
    reasons = tuple(
        (name if i == 0 else "", line)
        for name, why in sorted(refused.items())
        for i, line in enumerate(textwrap.wrap(why, room))
    )
    return Report(
        "families",
        (f"model_types of transformers {version}: {count(len(read))} read, {count(len(refused))} refused by name",),
        {},
        {},
        (
            Figure("families_read", "read", quantity(len(read)), NO_UNIT),
            Figure("families_refused", "refused", quantity(len(refused)), NO_UNIT),
        ),
        tables=(
            Table((Column("read", "left"), left, left), rows),
            Table((Column("refused", "left"), Column("because", "left")), reasons),
        ),
        extra={"read": ordered, "refused": dict(sorted(refused.items()))},
    )


def _attention(model: ModelSpec) -> str:
    """'GQA', 'GQA, window 1,024 and full'."""
    kinds = dict.fromkeys(g.attention.label for g in model.main.layers)
    spans = dict.fromkeys(g.attention.span.label for g in model.main.layers)
    return "/".join(kinds) + ("" if list(spans) == ["full"] else ", " + " and ".join(spans))
