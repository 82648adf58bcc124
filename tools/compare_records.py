"""Compare two records of `attncalc verify --record`:
`python tools/compare_records.py docs/measured/cpu-2-threads.json measured/cpu-2-threads.json`.

Prints a row for each run in which they differ, or with --full for each run that both have: how many
of its figures differ, and how long the passes took. Figures differ if one record's check agrees and
the other's does not, or if predictions or measurements are further apart than the check's
tolerance. The exit code is 0 if all figures agree, 1 if some differ, 3 if the records have no run
in common, and 2 if a file is no record.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from record_page import DAMAGES, damaged, read_record  # noqa: E402

from attncalc.check import Check  # noqa: E402
from attncalc.errors import AttncalcError  # noqa: E402
from attncalc.model import plural  # noqa: E402
from attncalc.questions.verify.checks import NOT_MEASURED, number  # noqa: E402
from attncalc.questions.verify.record import Document, Run, record_runs  # noqa: E402
from attncalc.show import text  # noqa: E402
from attncalc.show.report import LABEL, Column, Report, Table  # noqa: E402
from attncalc.show.report import number as ratio  # noqa: E402
from attncalc.units import count, truncate  # noqa: E402

# Differences that a screen lists without --full.
_MOST_SHOWN = 10
# Characters of a run's arguments in the table.
_LONGEST = 38


class Pair(NamedTuple):
    """A run that both records have."""

    # `arguments`; `compared` and `differ`, numbers of checks; `ms_a` and `ms_b`, sums over the
    # passes that both timed, or None without one
    facts: dict[str, Any]
    differences: list[dict[str, Any]]  # the checks that differ, as plain data
    ratios: list[float]  # A's time divided by B's, of each pass that both timed


class Comparison(NamedTuple):
    """Two records, side by side."""

    a: Document
    b: Document
    pairs: list[Pair]
    only_a: list[str]  # the runs that only A has
    only_b: list[str]

    @property
    def differences(self) -> list[dict[str, Any]]:
        """The checks that differ, of all runs."""
        return [difference for pair in self.pairs for difference in pair.differences]

    @property
    def answer(self) -> str:
        """The answer in words."""
        return _answer(self.pairs, len(self.differences))


def compare_records(a: Document, b: Document) -> Comparison:
    """Return the runs that both records have, those with the same arguments, dtype and sizes, and
    those that only one has.
    """
    runs_a = {_key(run): run for run in record_runs(a)}
    runs_b = {_key(run): run for run in record_runs(b)}
    return Comparison(
        a,
        b,
        [_pair(run, runs_b[key]) for key, run in runs_a.items() if key in runs_b],
        [_named(key) for key in runs_a if key not in runs_b],
        [_named(key) for key in runs_b if key not in runs_a],
    )


def screen(comparison: Comparison, *, full: bool = False) -> str:
    """Return the comparison in lines of at most 80 columns.

    Notes name each check that differs, or the first ten without `full`.
    """
    differences = comparison.differences
    if full:
        shown = differences
        listed = comparison.pairs
    else:
        shown = differences[:_MOST_SHOWN]
        listed = [pair for pair in comparison.pairs if pair.differences]
    notes = [_sentence(difference) for difference in shown]
    more = len(differences) - len(shown)
    if more:
        notes.append(f"{plural(more, 'more difference')}: --full lists them.")
    if comparison.only_a:
        notes.append(f"Only in A: {', '.join(comparison.only_a)}.")
    if comparison.only_b:
        notes.append(f"Only in B: {', '.join(comparison.only_b)}.")
    if full:
        notes.append("ms: the sum over the passes that both records timed. Times are not checked.")
    else:
        runs = plural(len(comparison.pairs), "run")
        notes.append(f"--full lists {runs} with their times, which are not checked.")
    tables = (_table(listed),) if listed else ()
    heading = (f"A: {_device(comparison.a)}", f"B: {_device(comparison.b)}")
    report = Report(
        "records", heading, {}, {}, (), tables=tables, notes=tuple(notes), answer=comparison.answer
    )
    return text.render(report)


def _key(run: Run) -> tuple[Any, ...]:
    return tuple(run.facts[name] for name in ("arguments", "dtype", "batch", "context", "source"))


def _named(key: tuple[Any, ...]) -> str:
    return f"{key[0]} ({key[1]}, context {count(key[3])})"


def _pair(a: Run, b: Run) -> Pair:
    arguments = str(a.facts["arguments"])
    checks_a = {(check.of, check.name): check for check in a.checks}
    checks_b = {(check.of, check.name): check for check in b.checks}
    shared = [(check, checks_b[key]) for key, check in checks_a.items() if key in checks_b]
    differences = [_difference(arguments, *checks) for checks in shared if _differ(*checks)]
    times_a = {tuple(row[:3]): float(row[3]) for row in a.facts["times"]}
    times_b = {tuple(row[:3]): float(row[3]) for row in b.facts["times"]}
    timed = [(ms, times_b[key]) for key, ms in times_a.items() if key in times_b]
    facts = {
        "arguments": arguments,
        "compared": len(shared),
        "differ": len(differences),
        "ms_a": sum(ms for ms, _ in timed) if timed else None,
        "ms_b": sum(ms for _, ms in timed) if timed else None,
    }
    return Pair(facts, differences, [ms_a / ms_b for ms_a, ms_b in timed])


def _differ(a: Check, b: Check) -> bool:
    """Whether two checks differ: in their outcome, or in a figure that both give, by more than it
    may be off.
    """
    if a.ok != b.ok:
        return True
    if not a.unit:  # a numerical error differs between any two devices
        return False
    allowed = max(a.tolerance, b.tolerance)
    return abs(a.predicted - b.predicted) > allowed or abs(a.measured - b.measured) > allowed


def _difference(arguments: str, a: Check, b: Check) -> dict[str, Any]:
    sides = {"a": a.facts(), "b": b.facts()}
    return {
        "arguments": arguments,
        "of": a.of,
        "name": a.name,
        "unit": a.unit,
        **{
            f"{key}_{side}": facts[key]
            for key in ("predicted", "measured", "ok")
            for side, facts in sides.items()
        },
    }


def _sentence(difference: Mapping[str, Any]) -> str:
    """Return a difference in words: 'gpt2: decoder, params_W_q: predicted 8 in both; measured 8 in
    A, 9 in B.'
    """
    where = ", ".join(filter(None, (difference["of"], difference["name"])))
    figures = []
    for key in ("predicted", "measured"):
        values = (difference[f"{key}_{side}"] for side in "ab")
        a, b = ("nan" if value is None else number(value) for value in values)
        figures.append(f"{key} {a} in both" if a == b else f"{key} {a} in A, {b} in B")
    return f"{difference['arguments']}: {where}: {'; '.join(figures)}."


def _table(pairs: Sequence[Pair]) -> Table:
    rows = []
    for pair in pairs:
        facts = pair.facts
        ms_a = facts["ms_a"]
        ms_b = facts["ms_b"]
        if ms_a is None:
            times = ("-", "-", "-")
        else:
            times = (f"{ms_a:,.3f}", f"{ms_b:,.3f}", ratio(ms_a / ms_b))
        arguments = truncate(facts["arguments"], _LONGEST)
        rows.append((arguments, f"{facts['differ']} of {count(facts['compared'])}", *times))
    columns = (
        LABEL._replace(header="attncalc verify"),
        *map(Column, ("differ", "A, ms", "B, ms", "A / B")),
    )
    strong = frozenset(i for i, pair in enumerate(pairs) if pair.differences)
    return Table(columns, tuple(rows), strong, missing=NOT_MEASURED)


def _answer(pairs: Sequence[Pair], differing: int) -> str:
    if not pairs:
        return "The records have no run in common."
    compared = (
        f"{count(sum(pair.facts['compared'] for pair in pairs))} figures of "
        f"{plural(len(pairs), 'run')}"
    )
    ratios = [value for pair in pairs for value in pair.ratios]
    if differing:
        outcome = f"The records differ in {count(differing)} of {compared}."
    else:
        outcome = f"Both records agree in all {compared}."
    if not ratios:
        return outcome
    factor = ratio(median(ratios))
    if factor == "1":
        return f"{outcome} A takes as long as B, in the median of all timed passes."
    return f"{outcome} A takes {factor} times as long as B, in the median of all timed passes."


def _device(record: Document) -> str:
    """Return what was measured: 'NVIDIA H200, torch 2.13.0, driver 580.65, ...'."""
    device = record["device"]
    parts = [str(device["title"]), f"torch {device['torch']}"]
    if device["driver"]:
        parts.append(f"driver {device['driver']}")
    return ", ".join([*parts, f"attncalc {record['attncalc']}", f"date {record['date']}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comparison, and return the exit code."""
    parser = argparse.ArgumentParser(description="Compare two records.")
    parser.add_argument("a", type=Path, metavar="A.json")
    parser.add_argument("b", type=Path, metavar="B.json")
    parser.add_argument("--full", action="store_true", help="List every run and every difference.")
    options = parser.parse_args(arguments)
    try:
        a = read_record(options.a)
        b = read_record(options.b)
        try:
            comparison = compare_records(a, b)
            shown = screen(comparison, full=options.full)
        except DAMAGES as error:
            raise damaged(f"{options.a}, {options.b}", error) from None
    except AttncalcError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(shown)
    if not comparison.pairs:
        return 3
    if comparison.differences:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
