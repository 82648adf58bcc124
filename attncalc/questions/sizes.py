"""The report of `kv`, `flops` or `memory` for a list of contexts or batches: a row of its figures
for each.
"""

from collections.abc import Mapping, Sequence

from ..show.notes import WARNING
from ..show.report import Column, Figure, Report, Table, column_table, rows_of, unit_column
from ..units import count


def sizes_report(reports: Sequence[Report], columns: Mapping[str, str]) -> Report:
    """Return the report of a list: the answers of one command for several contexts or batches of
    one model.

    Args:
        reports: The answer for each context and batch, in the order of the list.
        columns: {a figure: its header} of those that the screen has; JSON, CSV and --get have all.
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
        (_table(reports, columns),),
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


def _table(reports: Sequence[Report], headers: Mapping[str, str]) -> Table:
    """Return a row per report: its context and batch, and the main figures."""
    columns = [
        (Column("context"), [count(one.workload["context"]) for one in reports]),
        (Column("batch"), [count(one.workload["batch"]) for one in reports]),
    ]
    by_name = [{figure.name: figure for figure in one.figures} for one in reports]
    main, *_ = headers
    for name, header in headers.items():
        figures = [of_row[name] for of_row in by_name]
        if any(figure.value is None for figure in figures):
            continue
        # the cache of one sequence repeats the whole cache if the batch is 1
        if name != main and all(row[name].value == row[main].value for row in by_name):
            continue
        wholes = [figure.whole for figure in figures]
        columns.append(unit_column(header, wholes, figures[0].unit))
    return column_table(columns)
