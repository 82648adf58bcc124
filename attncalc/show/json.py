"""JSON, the contract that scripts rely on: a report, whose shape never depends on a flag, and the
rows of a sweep.
"""

import json
from typing import IO, Any

from .. import __version__
from .formats import Rows
from .jsonl import escape
from .report import Figure, Report
from .schemas import schema_name

__all__ = ["escape", "render", "result", "write"]


def render(report: Report, *, explain: bool = False) -> str:
    """Return one JSON object; values are integers in base units, and a ratio is a number with unit
    ''.

    `explain` has no effect: JSON always has every formula.
    """
    assumed = bool(report.model.get("assumed"))
    document = {
        "schema": schema_name(report.command, report.version),
        "attncalc": __version__,
        "values": {figure.name: figure.value for figure in report.figures},
        **({} if report.rows is None else {"rows": report.rows}),
        "model": report.model,
        "workload": report.workload,
        "results": [result(figure, assumed) for figure in report.figures],
        "layers": [
            {**facts, "results": [result(f, assumed) for f in figures]}
            for facts, figures in report.layers
        ],
        "notes": list(report.notes),
        **({"fail_if": list(report.fail_if)} if report.has_fail_if else {}),
        **report.extra,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def write(rows: Rows, file: IO[str]) -> None:
    """Write a sweep as one document: its facts, and a list of rows with one object per line."""
    encode = json.JSONEncoder(ensure_ascii=False).encode
    columns = [
        {"name": name, "unit": unit} for name, unit in zip(rows.names, rows.units, strict=True)
    ]
    for name, value in {**rows.facts, "columns": columns}.items():
        file.write(f"{',' if name != 'schema' else '{'}\n  {encode(name)}: {encode(value)}")
    file.write(',\n  "rows": [')
    separator = "\n    "
    for row in rows.rows:
        file.write(separator + encode(dict(zip(rows.names, row, strict=True))))
        separator = ",\n    "
    file.write("\n  ]\n}\n")


def result(figure: Figure, assumed: bool = False) -> dict[str, Any]:
    """Return a figure as plain data. If `assumed` (--assume-grouped), its source starts with
    'assumed:'.
    """
    return {
        "name": figure.name,
        "value": figure.value,
        "unit": figure.unit,
        "formula": figure.formula.text,
        "substituted": figure.formula.substituted,
        "symbols": {s.name: s.value for s in figure.formula.symbols},
        "source": f"assumed: {figure.source}" if assumed else figure.source,
    }
