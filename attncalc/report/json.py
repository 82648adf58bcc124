"""A report as JSON: the contract that scripts rely on. Its shape never depends on a flag."""

from __future__ import annotations

import json
from typing import Any

from .. import __version__
from .report import Figure, Report


def render(report: Report) -> str:
    """One JSON object; values are integers in base units, a ratio a number with unit ''."""
    assumed = bool(report.model.get("assumed"))
    document = {
        "schema": f"attncalc.{report.command}/1",
        "attncalc": __version__,
        "model": report.model,
        "workload": report.workload,
        "results": [result(figure, assumed) for figure in report.figures],
        "layers": [{**facts, "results": [result(f, assumed) for f in figures]} for facts, figures in report.layers],
        "notes": list(report.notes),
        **report.more,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def result(figure: Figure, assumed: bool = False) -> dict[str, Any]:
    """A figure as plain data; assumed: its source says that it rests on what nobody has said."""
    return {
        "name": figure.name,
        "value": figure.value,
        "unit": figure.unit,
        "formula": figure.formula.text,
        "substituted": figure.formula.substituted,
        "symbols": {s.name: s.value for s in figure.formula.symbols},
        "source": f"assumed: {figure.source}" if assumed else figure.source,
    }
