"""The report of `kv`, `flops` or `memory` for a list of contexts or batches: a row of its figures
for each.
"""

from collections.abc import Mapping, Sequence

from ..show.answer_rows import AnswerColumn, Layer, Row, answer_table
from ..show.notes import WARNING
from ..show.report import Report, Table, rows_of
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
        (_table(rows, layers, columns),),
        _notes(reports),
        rows=rows,
        has_answers=True,
        extra={"command": first.command},
        has_fail_if=True,
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
        if facts:
            lines.append(", ".join(facts))
    return tuple(lines)


def _notes(reports: Sequence[Report]) -> tuple[str, ...]:
    """Return the warnings of all rows, and the notes that every row has."""
    notes: dict[str, None] = {}
    for report in reports:
        for note in report.notes:
            if note.startswith(WARNING) or all(note in one.notes for one in reports):
                notes[note] = None
    return tuple(notes)


def _layer(report: Report) -> Layer:
    """Return the context and the batch of a row, and its figures, which say whose they are."""
    context = report.workload["context"]
    batch = report.workload["batch"]
    of = f"batch {count(batch)}, context {count(context)}"
    figures = tuple(figure._replace(of=of) for figure in report.figures)
    return {"context": context, "batch": batch}, figures


def _table(rows: Sequence[Row], layers: Sequence[Layer], headers: Mapping[str, str]) -> Table:
    """Return a row per context and batch, with the main figures."""
    units = {figure.name: figure.unit for _, figures in layers for figure in figures}
    columns = [AnswerColumn("context", "context"), AnswerColumn("batch", "batch")]
    main, *_ = headers
    for name, header in headers.items():
        if any(row[name] is None for row in rows):
            continue
        # the cache of one sequence repeats the whole cache if the batch is 1
        if name != main and all(row[name] == row[main] for row in rows):
            continue
        columns.append(AnswerColumn(name, header, unit=units[name]))
    return answer_table(rows, columns)
