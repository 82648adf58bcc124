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
    known = [figure_named(name, rows[0], "--get") for name in names] if rows else []
    figures = {figure.name for figure in report.all_figures}
    for name in known:
        if name in figures and all(row[name] is None for row in rows):
            raise AttncalcError(f"--get: {name} does not apply here", "leave it out")
    sizes = {figure.name for figure in report.all_figures if figure.unit == BYTES}
    if unit is not None and known and sizes.isdisjoint(known):
        raise AttncalcError(
            f"--unit is for sizes, and none of these is one: {', '.join(known)}", "leave --unit out"
        )

    def cell(row: Mapping[str, Any], name: str) -> str:
        value = row[name]
        if name in sizes and value is not None and unit not in (None, 1):
            value /= unit
        return _cell(value)

    return "".join("\t".join(cell(row, name) for name in known) + "\n" for row in rows)


def ranges(report: Report, names: Sequence[str]) -> Iterator[str]:
    """Yield the range of each of these figures that is an estimate, for a report without a list."""
    (row,) = _rows(report) if report.rows is None else ({},)
    for name in (figure_named(name, row, "--get") for name in names if row):
        low = row.get(f"{name}_low")
        high = row.get(f"{name}_high")
        if low != high:
            yield f"{name} is an estimate: {name}_low is {_cell(low)}, {name}_high {_cell(high)}"


def short(report: Report) -> str:
    """Return the answer in one line, or the first column of a list without one."""
    answer = report.heading[0] if report.verdict else report.answer or report.extra.get("answer")
    if answer:
        return f"{answer}\n"
    if report.command == "sizes":
        mains = [figures[0] for _, figures in report.layers]
        return "".join(f"{figure.of}: {figure.human}\n" for figure in mains)
    if report.rows is not None:
        return "".join(f"{_cell(next(iter(row.values())))}\n" for row in report.rows)
    first = report.figures[0]
    return (
        f"{first.label}  {first.human}{'' if first.exact == first.human else f'  {first.exact}'}\n"
    )


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
