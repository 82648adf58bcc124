"""The reports of `attncalc presets`: the built-in models, and the supported model_types of a config.json."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from ..cost.params import params
from ..cost.windows import without_windows
from ..model import ModelSpec
from ..quantity import Quantity, quantity
from ..units import BYTES, NO_UNIT, PARAMS, TOKENS, count
from ..workload import Workload
from .layers import attention_source
from .per_token import no_window_full
from .report import SUM, Column, Figure, Report, Table, unit_column
from .text import WIDTH


def presets_report(models: Sequence[ModelSpec]) -> Report:
    """Return one row per preset: attention, maximum context, parameters, and cache per token."""
    totals = [params(model).total for model in models]
    tokens = [_per_token(model) for model in models]
    contexts = [quantity(model.max_context) if model.max_context else None for model in models]
    layers = tuple(
        (
            model.facts(),
            (
                Figure("params_total", "parameters", total, PARAMS, SUM, model.name),
                no_window_full(token, attention_source(model), model.name),
                Figure("max_context", "maximum context", context, TOKENS, of=model.name),
            ),
        )
        for model, total, token, context in zip(models, totals, tokens, contexts, strict=True)
    )
    size, total_cells = unit_column("parameters", totals, PARAMS)
    cache, token_cells = unit_column("KV per\ntoken, no\nwindow full", tokens, BYTES)
    names = [(model.name, _attention(model)) for model in models]
    context_cells = [count(context) if context else "-" for context in contexts]
    columns = (Column("name", "left"), Column("attention", "left"), Column("context"), size, cache)
    rows = tuple(zip(*zip(*names, strict=True), context_cells, total_cells, token_cells, strict=True))
    return Report(
        "presets",
        (f"{count(len(models))} built-in models  'attncalc presets show NAME' prints one with its sources",),
        {},
        {},
        (Figure("presets", "presets", quantity(len(models)), NO_UNIT),),
        layers,
        (Table(columns, rows),),
        ("KV per token, no window full: bytes that a token adds until a window is full.",),
    )


def _per_token(model: ModelSpec) -> Quantity:
    """Return the bytes that a token takes while no window is full."""
    return without_windows(model, Workload.decode(1, 1, source=1 if model.encoder else None)).per_token


def families_report(supported: Sequence[str], unsupported: Mapping[str, str], version: str) -> Report:
    """Return the supported model_types of a config.json, and {model_type: reason} of the unsupported ones.

    `version` is that of transformers.
    """
    columns = 3
    ordered = sorted(supported)
    height = -(-len(ordered) // columns)
    padded = [*ordered, *[""] * (height * columns - len(ordered))]
    rows = tuple(tuple(padded[row + height * column] for column in range(columns)) for row in range(height))
    left = Column(align="left")
    room = WIDTH - 4 - max(map(len, (*unsupported, "not supported")))
    reasons = tuple(
        (name if i == 0 else "", line)
        for name, reason in sorted(unsupported.items())
        for i, line in enumerate(textwrap.wrap(reason, room))
    )
    return Report(
        "families",
        (
            f"model_types of transformers {version} and of vendors: {count(len(supported))} supported, "
            f"{count(len(unsupported))} not",
        ),
        {},
        {},
        (
            Figure("families_read", "supported", quantity(len(supported)), NO_UNIT),
            Figure("families_refused", "not supported", quantity(len(unsupported)), NO_UNIT),
        ),
        tables=(
            Table((Column("supported", "left"), left, left), rows),
            Table((Column("not supported", "left"), Column("reason", "left")), reasons),
        ),
        extra={"read": ordered, "refused": dict(sorted(unsupported.items()))},
    )


def _attention(model: ModelSpec) -> str:
    """Return the kinds and spans of a model's attention: 'GQA', 'GQA, window 1,024 + full'."""
    kinds = dict.fromkeys(g.attention.label for g in model.main.layers)
    spans = dict.fromkeys(g.attention.span.label for g in model.main.layers)
    return "/".join(kinds) + ("" if list(spans) == ["full"] else ", " + " + ".join(spans))
