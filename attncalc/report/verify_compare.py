"""The report of `attncalc verify --compare`: two records of `verify --record` side by side."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from ..check import Check
from ..model import plural
from ..units import count, truncate
from .record import Document, Run, record_runs
from .report import LABEL, Column, Report, Table
from .report import number as ratio
from .verify_tables import number

RunKey = tuple[Any, ...]
MOST_SHOWN = 10
"""Differences that a screen lists without --full."""


LONGEST = 38
"""Characters of a run's arguments in the table."""


class Difference(NamedTuple):
    """A check that the two records have, with other figures or another outcome."""

    arguments: str
    a: Check
    b: Check

    def facts(self) -> dict[str, Any]:
        """Return the difference as plain data, for JSON."""
        sides = {"a": self.a.facts(), "b": self.b.facts()}
        shared = {"arguments": self.arguments, "of": self.a.of, "name": self.a.name, "unit": self.a.unit}
        return shared | {
            f"{key}_{side}": facts[key] for key in ("predicted", "measured", "ok") for side, facts in sides.items()
        }

    def __str__(self) -> str:
        predicted = _both(number(self.a.predicted), number(self.b.predicted))
        measured = _both(number(self.a.measured), number(self.b.measured))
        where = ", ".join(filter(None, (self.a.of, self.a.name)))
        return f"{self.arguments}: {where}: predicted {predicted}; measured {measured}."


class Row(NamedTuple):
    """One run that both records have: its checks that both have, and the milliseconds of the passes that both timed."""

    arguments: str
    compared: int
    differences: tuple[Difference, ...]
    ms_a: float | None
    ms_b: float | None
    ratios: tuple[float, ...]

    def facts(self) -> dict[str, Any]:
        """Return the row as plain data, for JSON."""
        return {
            "arguments": self.arguments,
            "compared": self.compared,
            "differ": len(self.differences),
            "ms_a": self.ms_a,
            "ms_b": self.ms_b,
        }


class Comparison(NamedTuple):
    """Two records side by side.

    Attributes:
        records: both records.
        rows: the runs that both have.
        only: the runs that only the first has, and only the second.
    """

    records: tuple[Document, Document]
    rows: tuple[Row, ...]
    only: tuple[tuple[str, ...], tuple[str, ...]]

    @property
    def differences(self) -> list[Difference]:
        """The differences of all runs."""
        return [difference for row in self.rows for difference in row.differences]


def compare_records(a: Document, b: Document) -> Comparison:
    """Compare the runs with the same arguments, dtype and sizes."""
    runs_a, runs_b = ({_key(run): run for run in record_runs(record)} for record in (a, b))
    rows = tuple(_row(runs_a[key], runs_b[key]) for key in runs_a if key in runs_b)
    only_a = tuple(_named(key) for key in runs_a if key not in runs_b)
    only_b = tuple(_named(key) for key in runs_b if key not in runs_a)
    return Comparison((a, b), rows, (only_a, only_b))


def _key(run: Run) -> RunKey:
    return tuple(run.facts[name] for name in ("arguments", "dtype", "batch", "context", "source"))


def _named(key: RunKey) -> str:
    return f"{key[0]} ({key[1]}, context {count(key[3])})"


def _row(a: Run, b: Run) -> Row:
    checks_a, checks_b = ({(check.of, check.name): check for check in run.checks} for run in (a, b))
    shared = [key for key in checks_a if key in checks_b]
    arguments = str(a.facts["arguments"])
    differences = (Difference(arguments, checks_a[key], checks_b[key]) for key in shared)
    times_a, times_b = _times(a), _times(b)
    timed = [(times_a[key], times_b[key]) for key in times_a if key in times_b]
    return Row(
        arguments,
        len(shared),
        tuple(difference for difference in differences if _differ(difference.a, difference.b)),
        sum(ms for ms, _ in timed) if timed else None,
        sum(ms for _, ms in timed) if timed else None,
        tuple(ms_a / ms_b for ms_a, ms_b in timed),
    )


def _times(run: Run) -> dict[tuple[str, str, str], float]:
    return {tuple(row[:3]): float(row[3]) for row in run.facts["times"]}


def _differ(a: Check, b: Check) -> bool:
    """Whether two checks differ: in their outcome, or in a figure that both give, by more than it may be off."""
    if a.ok != b.ok:
        return True
    if not a.unit:  # a numerical error differs between any two devices
        return False
    allowed = max(a.tolerance, b.tolerance)
    return abs(a.predicted - b.predicted) > allowed or abs(a.measured - b.measured) > allowed


def compare_report(comparison: Comparison, *, full: bool) -> Report:
    """Return a row per run that both records have. Notes name each difference, or MOST_SHOWN of them without `full`."""
    rows, differences = comparison.rows, comparison.differences
    columns = (LABEL._replace(header="attncalc verify"), *map(Column, ("differ", "A, ms", "B, ms", "A / B")))
    cells = tuple(
        (truncate(row.arguments, LONGEST), f"{len(row.differences)} of {count(row.compared)}", *_time_cells(row))
        for row in rows
    )
    strong = frozenset(i for i, row in enumerate(rows) if row.differences)
    table = Table(columns, cells, strong=strong)
    shown = differences if full else differences[:MOST_SHOWN]
    more = len(differences) - len(shown)
    notes = [
        *map(str, shown),
        *([f"{plural(more, 'more difference')}: --full lists them."] if more else []),
        *(f"Only in {side}: {', '.join(names)}." for side, names in zip("AB", comparison.only, strict=True) if names),
        "ms: the sum over the passes that both records timed. Times are not checked.",
    ]
    return Report(
        "records",
        tuple(f"{side}: {_device(record)}" for side, record in zip("AB", comparison.records, strict=True)),
        {},
        {},
        (),
        tables=(table,) if rows else (),
        notes=tuple(notes),
        answer=_answer(comparison),
        extra={
            "answer": _answer(comparison),
            **{side: _facts(record) for side, record in zip("ab", comparison.records, strict=True)},
            "runs": [row.facts() for row in rows],
            "differences": [difference.facts() for difference in differences],
            "only_a": list(comparison.only[0]),
            "only_b": list(comparison.only[1]),
        },
        records=tuple(row.facts() for row in rows),
    )


def _answer(comparison: Comparison) -> str:
    rows, differing = comparison.rows, [row for row in comparison.rows if row.differences]
    if not rows:
        return "The records have no run in common."
    compared = f"{count(sum(row.compared for row in rows))} figures of {plural(len(rows), 'run')}"
    ratios = [value for row in rows for value in row.ratios]
    factor = ratio(median(ratios)) if ratios else ""
    slower = "as long" if factor == "1" else f"{factor} times as long"
    faster = f" A takes {slower} as B, in the median of all timed passes." if ratios else ""
    if not differing:
        return f"Both records agree in all {compared}.{faster}"
    return f"The records differ in {count(len(comparison.differences))} of {compared}.{faster}"


def _facts(record: Document) -> dict[str, str | None]:
    device = record["device"]
    return {
        "title": device["title"],
        "torch": device["torch"],
        "driver": device["driver"],
        "attncalc": record["attncalc"],
        "date": record["date"],
    }


def _device(record: Document) -> str:
    title, *facts = (f"{name} {fact}" if fact else "" for name, fact in _facts(record).items())
    return ", ".join([title.partition(" ")[2], *filter(None, facts)])


def _time_cells(row: Row) -> Sequence[str]:
    if row.ms_a is None or row.ms_b is None:
        return ("-", "-", "-")
    return (f"{row.ms_a:,.3f}", f"{row.ms_b:,.3f}", ratio(row.ms_a / row.ms_b))


def _both(a: str, b: str) -> str:
    return f"{a} in both" if a == b else f"{a} in A, {b} in B"
