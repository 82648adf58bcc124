"""The roofline as a part of another report: its figures by the same names whether there is a GPU or not."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import AttncalcError
from ..model import ModelSpec
from ..serving.config import ServingConfig
from ..serving.fit import FitRequest
from ..serving.roofline import roofline
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


def speed(request: FitRequest, model: ModelSpec, workload: Workload) -> Speed:
    """How fast that GPU can be at best; figures without numbers, and why, where nothing says."""
    if request.gpu is None:
        return Speed(roofline_figures(None))
    dtype, runs = request.held_in, served(request)
    try:
        found = roofline(model, workload, request.gpu, weights_dtype=dtype, served=runs)
    except AttncalcError as error:
        return Speed(roofline_figures(None), notes=(f"No roofline: {error.message}.",))
    compared, layers = roofline_variants(model, workload, request.gpu, weights_dtype=dtype, served=runs)
    return Speed(
        roofline_figures(found),
        tuple(part._replace(source=part.source or WILLIAMS) for part in roofline_parts(found)),
        (*roofline_tables(found, workload), *compared),
        (*roofline_notes(model, workload, found), *((_RELEASED,) if compared else ())),
        {**roofline_more(found), "variants": [{**facts, **_values(figures)} for facts, figures in layers]},
    )


def served(request: FitRequest) -> ServingConfig:
    """What the engine was told that its speed depends on."""
    told = request.args
    return ServingConfig(
        stages=request.gpus if request.spread else told.pp,
        dcp=told.dcp,
        kv_dtype_k=told.kv_dtype_k,
        kv_dtype_v=told.kv_dtype_v,
        drafts=told.speculative_tokens,
    )
