"""The roofline as a part of another report: its figures by the same names whether there is a GPU or not."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..cost.fit import Question
from ..cost.roofline import Roofline, roofline
from ..errors import AttncalcError
from ..model import ModelSpec
from ..units import NO_UNIT, PER_SECOND, SECONDS
from ..workload import Workload
from .report import Figure, Table
from .roofline import (
    WILLIAMS,
    roofline_figures,
    roofline_more,
    roofline_notes,
    roofline_parts,
    roofline_tables,
    roofline_variants,
)

_BOUNDS = (
    ("prefill_time_bound", "prefill takes at least", SECONDS),
    ("decode_time_bound", "a decode step takes at least", SECONDS),
    ("decode_tokens_per_second_bound", "at best, of the batch", PER_SECOND),
    ("decode_compute_bound_batch", "least batch not bound by memory", NO_UNIT),
    ("ridge_flop_per_byte", "FLOP per byte at the GPU's ridge", NO_UNIT),
    ("prefill_flop_per_byte", "FLOP per byte of the prefill", NO_UNIT),
    ("decode_flop_per_byte", "FLOP per byte of a decode step", NO_UNIT),
    ("decode_flop_per_byte_limit", "FLOP per byte that ever larger batches near", NO_UNIT),
)
"""The roofline's figures, which stand without a number where there is no GPU."""


_RELEASED = "* as released; the others are the same model with other attention, a what-if."


def _values(figures: tuple[Figure, ...]) -> dict[str, Any]:
    return {figure.name: figure.value for figure in figures}


class Speed(NamedTuple):
    """The bounds on a GPU, ready to place: figures, an explanation's parts, tables, notes and JSON's own."""

    figures: tuple[Figure, ...]
    parts: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    more: dict[str, Any] | None = None


def speed(asked: Question, model: ModelSpec, workload: Workload) -> Speed:
    """How fast that GPU can be at best; figures without numbers, and why, where nothing says."""
    nothing = tuple(Figure(name, label, None, unit) for name, label, unit in _BOUNDS)
    if asked.gpu is None:
        return Speed(nothing)
    try:
        found: Roofline = roofline(model, workload, asked.gpu, weights_dtype=asked.weights_dtype)
    except AttncalcError as error:
        return Speed(nothing, notes=(f"No roofline: {error.message}.",))
    compared, layers = roofline_variants(model, workload, asked.gpu, weights_dtype=asked.weights_dtype, brief=True)
    return Speed(
        roofline_figures(found),
        tuple(part._replace(source=part.source or WILLIAMS) for part in roofline_parts(found)),
        (*roofline_tables(found, workload), *compared),
        (*roofline_notes(model, workload, found), *((_RELEASED,) if compared else ())),
        {**roofline_more(found), "variants": [{**facts, **_values(figures)} for facts, figures in layers]},
    )
