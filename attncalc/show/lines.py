"""The lines of a report that a script reads: figures by name, or the answer in one line."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import AttncalcError
from ..units import BYTES
from .characters import printable
from .fail_if import figure_named
from .report import Report


def picked(report: Report, names: Sequence[str], unit: int | None = None) -> str:
    """Return the figures of these names with tabs between them, a line per row; one that does not
    apply to a row is empty.

    Sizes are in units of so many bytes, and in bytes by default. Raises AttncalcError if a name is
    unknown, if a figure applies to no row, or if a unit is given and no figure is a size.
    """
    rows = _rows(report)
    if not rows:
        return ""
    known = [figure_named(name, rows[0], "--get") for name in names]
    figures = {figure.name: figure for figure in report.all_figures}
    sizes = set()
    for name in known:
        if name not in figures:
            continue
        if all(row[name] is None for row in rows):
            raise AttncalcError(f"--get: {name} does not apply here", "leave it out")
        if figures[name].unit == BYTES:
            sizes.add(name)
    if unit is not None and known and not sizes:
        raise AttncalcError(
            f"--unit is for sizes, and none of these is one: {', '.join(known)}", "leave --unit out"
        )
    text = ""
    for row in rows:
        cells = []
        for name in known:
            value = row[name]
            if name in sizes and value is not None and unit not in (None, 1):
                value /= unit
            cells.append(_cell(value))
        text += "\t".join(cells) + "\n"
    return text


def ranges(report: Report, names: Sequence[str]) -> Iterator[str]:
    """Yield the range of each of these figures that is an estimate, for a report without a list."""
    if report.rows is not None:
        return
    (row,) = _rows(report)
    for word in names:
        name = figure_named(word, row, "--get")
        low = row.get(f"{name}_low")
        high = row.get(f"{name}_high")
        if low != high:
            yield f"{name} is an estimate: {name}_low is {_cell(low)}, {name}_high {_cell(high)}"


def short(report: Report) -> str:
    """Return the answer in one line, or the first column of a list without one."""
    answer = report.short_answer or report.answer or report.extra.get("answer")
    if report.verdict:
        answer = report.heading[0]
    if answer:
        return f"{answer}\n"
    if report.command == "sizes":
        mains = [figures[0] for _, figures in report.layers]
        return "".join(f"{figure.of}: {figure.human}\n" for figure in mains)
    if report.rows is not None:
        return "".join(f"{_cell(next(iter(row.values())))}\n" for row in report.rows)
    first = report.figures[0]
    if first.exact == first.human:
        return f"{first.label}  {first.human}\n"
    return f"{first.label}  {first.human}  {first.exact}\n"


def _rows(report: Report) -> Sequence[Mapping[str, Any]]:
    """Return the rows of a list, or the one of an answer, with its facts."""
    facts = {
        key: value for key, value in report.extra.items() if not isinstance(value, list | dict)
    }
    if report.rows is not None:
        return report.flat
    return [{**report.flat[0], **facts}]


def _cell(value: Any) -> str:
    """Return a value as text: nothing for None, 'true' for True."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return printable(str(value), "utf-8")
