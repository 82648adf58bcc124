"""The report of `kv`, `flops` or `memory` for a list of contexts or batches: a row of its figures
for each.
"""

from collections.abc import Sequence

from ..show.notes import WARNING
from ..show.report import Column, Figure, Report, Table, column_table, rows_of, unit_column
from ..units import count

# The figures that a screen has a column for; JSON, CSV and --get have all.
_SHOWN = {
    "kv": ("kv_cache", "kv_cache_per_sequence", "kv_cache_per_token", "kv_cache_if_mha"),
    "flops": (
        "flops_total",
        "flops_attention_projections",
        "flops_attention_scores",
        "flops_mlp",
        "flops_head",
    ),
    "memory": ("score_matrix", "peak_math", "peak_flash", "peak_efficient"),
}
_HEADERS = {
    "kv_cache": "KV cache",
    "kv_cache_per_sequence": "per\nsequence",
    "kv_cache_per_token": "per token,\nat this\ncontext",
    "kv_cache_if_mha": "if MHA",
    "flops_total": "total",
    "flops_attention_projections": "projections",
    "flops_attention_scores": "scores",
    "flops_mlp": "MLP",
    "flops_head": "head",
    "score_matrix": "score\nmatrix",
    "peak_math": "math",
    "peak_flash": "flash",
    "peak_efficient": "efficient",
}


def sizes_report(reports: Sequence[Report]) -> Report:
    """Return the report of a list: the answers of one command for several contexts or batches of
    one model.

    Args:
        reports: The answer for each context and batch, in the order of the list.
    """
    first = reports[0]
    layers = tuple(_layer(one) for one in reports)
    facts = {"model": first.model["name"]}
    rows = rows_of([({**facts, **sizes}, figures) for sizes, figures in layers])
    return Report(
        "sizes",
        (first.heading[0], *_facts(first)),
        first.model,
        first.workload,
        layers[0][1],
        layers,
        (_table(first.command, reports),),
        _notes(reports),
        rows=rows,
        has_answers=True,
        extra={"command": first.command},
    )


def _facts(report: Report) -> tuple[str, ...]:
    """Return what all rows have in common: the lines of the heading, without context and batch."""
    lines = []
    for line in report.heading[1:]:
        facts = [
            fact
            for fact in line.split(", ")
            if not fact.startswith(("batch ", "context ", "scores "))
        ]
        lines.append(", ".join(facts))
    return tuple(line for line in lines if line)


def _notes(reports: Sequence[Report]) -> tuple[str, ...]:
    """Return the warnings of all rows, and the notes that every row has."""
    notes: dict[str, None] = {}
    for report in reports:
        for note in report.notes:
            if note.startswith(WARNING) or all(note in one.notes for one in reports):
                notes[note] = None
    return tuple(notes)


def _layer(report: Report) -> tuple[dict[str, int], tuple[Figure, ...]]:
    """Return the context and the batch of a row, and its figures, which say whose they are."""
    context = report.workload["context"]
    batch = report.workload["batch"]
    of = f"batch {count(batch)}, context {count(context)}"
    return {"context": context, "batch": batch}, tuple(
        figure._replace(of=of) for figure in report.figures
    )


def _table(command: str, reports: Sequence[Report]) -> Table:
    """Return a row per report: its context and batch, and the main figures."""
    columns = [
        (Column("context"), [count(one.workload["context"]) for one in reports]),
        (Column("batch"), [count(one.workload["batch"]) for one in reports]),
    ]
    by_name = [{figure.name: figure for figure in one.figures} for one in reports]
    for name in _SHOWN[command]:
        figures = [of_row[name] for of_row in by_name]
        if any(figure.value is None for figure in figures) or _is_repeated(command, name, by_name):
            continue
        column, cells = unit_column(
            _HEADERS[name], [figure.whole for figure in figures], figures[0].unit
        )
        columns.append((column, cells))
    return column_table(columns)


def _is_repeated(command: str, name: str, rows: Sequence[dict[str, Figure]]) -> bool:
    """Return whether a column has the numbers of the first figure, as the cache of one sequence
    with batch 1.
    """
    main = _SHOWN[command][0]
    return name != main and all(row[name].value == row[main].value for row in rows)
