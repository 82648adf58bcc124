"""The picture of `attncalc compare`: bars of each figure, one per variant or model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...plot.chart import Picture
from ..report import Figure
from .picture import bars, picture, shown

DEFAULT = ("kv_cache", "params_total", "flops_prefill", "flops_decode")
_TITLES = {
    "kv_cache": "KV cache",
    "params_total": "Parameters",
    "params_attention": "Parameters of attention",
    "flops_prefill": "FLOPs of a prefill",
    "flops_decode": "FLOPs of a decode step",
}


def compare_picture(
    rows: Sequence[tuple[str, Mapping[str, Figure]]],
    heading: Sequence[str],
    workloads: Sequence[Mapping[str, Any]],
    released: int | None = None,
) -> Picture | None:
    """Return bars of every figure that has a number.

    Args:
        rows: Names with their figures by name.
        heading: The first lines of the report.
        workloads: Facts of each row's workload, or of the one that all share.
        released: Index of the row to emphasize.
    """
    title, _, attention = heading[0].partition("  ")
    charts = []
    for name, first in rows[0][1].items():
        label = _TITLES.get(name, first.label[:1].upper() + first.label[1:])
        chart = bars([(row, figures[name]) for row, figures in rows], label, released)
        if chart:
            charts.append(chart)
    left_out = len(rows) - len(shown(len(rows), released))
    facts = [
        *heading[1:],
        "" if released is None else f"{rows[released][0]} is as released",
        f"{left_out} of {len(rows)} rows are left out" if left_out else "",
    ]
    names = [row for row, _ in rows] if len(workloads) > 1 else [""]
    engine = " and ".join(dict.fromkeys(str(facts["engine"]) for facts in workloads))
    subtitle = "" if released is None else attention
    return picture(title, subtitle, facts, charts, DEFAULT, engine=engine, dtypes=_dtypes(names, workloads))


def _dtypes(names: Sequence[str], workloads: Sequence[Mapping[str, Any]]) -> str:
    """Return 'weights in bf16, cache in fp8' or 'weights and cache in bf16', with names of models that differ."""
    parts: dict[str, list[str]] = {}
    for label, key in (("weights", "dtype"), ("cache", "kv_dtype")):
        by_dtype: dict[str, list[str]] = {}
        for name, facts in zip(names, workloads, strict=True):
            by_dtype.setdefault(str(facts[key]), []).append(name)
        several = len(by_dtype) > 1
        listed = [f"{dtype} ({', '.join(of)})" if several else dtype for dtype, of in by_dtype.items()]
        parts.setdefault(", ".join(listed), []).append(label)
    return ", ".join(f"{' and '.join(labels)} in {dtypes}" for dtypes, labels in parts.items())
