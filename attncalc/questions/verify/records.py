"""The report of `attncalc verify --compare`: two records of `verify --record` side by side."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from ...check import Check
from ...model import plural
from ...show.report import LABEL, Column, Report, Table
from ...show.report import number as ratio
from ...units import count, truncate
from .checks import NOT_MEASURED, number
from .record import Document, Run, record_runs

# Differences that a screen lists without --full.
_MOST_SHOWN = 10
# Characters of a run's arguments in the table.
_LONGEST = 38


class _Pair(NamedTuple):
    """A run that both records have."""

    facts: dict[str, Any]  # the run as plain data, for JSON
    differences: list[dict[str, Any]]  # the checks that differ, as plain data
    ratios: list[float]  # a's time divided by B's, of each pass that both timed


def records_report(a: Document, b: Document, *, full: bool) -> Report:
    """Return a row per run that both records have: those with the same arguments, dtype and sizes.

    Notes name each check that differs, or the first ten without `full`.
    """
    runs_a, runs_b = ({_key(run): run for run in record_runs(record)} for record in (a, b))
    pairs = [_pair(run, runs_b[key]) for key, run in runs_a.items() if key in runs_b]
    differences = [difference for pair in pairs for difference in pair.differences]
    shown = differences if full else differences[:_MOST_SHOWN]
    more = len(differences) - len(shown)
    only = {
        "a": [_named(key) for key in runs_a if key not in runs_b],
        "b": [_named(key) for key in runs_b if key not in runs_a],
    }
    records = {"a": _facts(a), "b": _facts(b)}
    answer = _answer(pairs, len(differences))
    listed = pairs if full else [pair for pair in pairs if pair.differences]
    return Report(
        "records",
        tuple(f"{side.upper()}: {_device(facts)}" for side, facts in records.items()),
        {},
        {},
        (),
        tables=(_table(listed),) if listed else (),
        notes=(
            *map(_sentence, shown),
            *([f"{plural(more, 'more difference')}: --full lists them."] if more else []),
            *(
                f"Only in {side.upper()}: {', '.join(names)}."
                for side, names in only.items()
                if names
            ),
            "ms: the sum over the passes that both records timed. Times are not checked."
            if full
            else f"--full lists {plural(len(pairs), 'run')} with their times, which are not "
            "checked.",
        ),
        answer=answer,
        extra={
            "answer": answer,
            **records,
            "runs": [pair.facts for pair in pairs],
            "differences": differences,
            **{f"only_{side}": names for side, names in only.items()},
        },
        rows=tuple(pair.facts for pair in pairs),
    )


def _key(run: Run) -> tuple[Any, ...]:
    return tuple(run.facts[name] for name in ("arguments", "dtype", "batch", "context", "source"))


def _named(key: tuple[Any, ...]) -> str:
    return f"{key[0]} ({key[1]}, context {count(key[3])})"


def _pair(a: Run, b: Run) -> _Pair:
    arguments = str(a.facts["arguments"])
    checks_a, checks_b = ({(check.of, check.name): check for check in run.checks} for run in (a, b))
    shared = [(check, checks_b[key]) for key, check in checks_a.items() if key in checks_b]
    differences = [_difference(arguments, *checks) for checks in shared if _differ(*checks)]
    times_a, times_b = (
        {tuple(row[:3]): float(row[3]) for row in run.facts["times"]} for run in (a, b)
    )
    timed = [(ms, times_b[key]) for key, ms in times_a.items() if key in times_b]
    facts = {
        "arguments": arguments,
        "compared": len(shared),
        "differ": len(differences),
        "ms_a": sum(ms for ms, _ in timed) if timed else None,
        "ms_b": sum(ms for _, ms in timed) if timed else None,
    }
    return _Pair(facts, differences, [ms_a / ms_b for ms_a, ms_b in timed])


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


def _table(pairs: Sequence[_Pair]) -> Table:
    rows = []
    for facts, _, _ in pairs:
        ms_a = facts["ms_a"]
        ms_b = facts["ms_b"]
        if ms_a is None:
            times = ("-", "-", "-")
        else:
            times = (f"{ms_a:,.3f}", f"{ms_b:,.3f}", ratio(ms_a / ms_b))
        rows.append(
            (
                truncate(facts["arguments"], _LONGEST),
                f"{facts['differ']} of {count(facts['compared'])}",
                *times,
            )
        )
    columns = (
        LABEL._replace(header="attncalc verify"),
        *map(Column, ("differ", "A, ms", "B, ms", "A / B")),
    )
    strong = frozenset(i for i, pair in enumerate(pairs) if pair.differences)
    return Table(columns, tuple(rows), strong, missing=NOT_MEASURED)


def _answer(pairs: Sequence[_Pair], differing: int) -> str:
    if not pairs:
        return "The records have no run in common."
    compared = (
        f"{count(sum(pair.facts['compared'] for pair in pairs))} figures of "
        f"{plural(len(pairs), 'run')}"
    )
    ratios = [value for pair in pairs for value in pair.ratios]
    factor = ratio(median(ratios)) if ratios else ""
    slower = "as long" if factor == "1" else f"{factor} times as long"
    if ratios:
        faster = f" A takes {slower} as B, in the median of all timed passes."
    else:
        faster = ""
    if not differing:
        return f"Both records agree in all {compared}.{faster}"
    return f"The records differ in {count(differing)} of {compared}.{faster}"


def _facts(record: Document) -> dict[str, str | None]:
    device = record["device"]
    return {
        **{key: device[key] for key in ("title", "torch", "driver")},
        **{key: record[key] for key in ("attncalc", "date")},
    }


def _device(facts: Mapping[str, str | None]) -> str:
    """Return a record's facts in words: 'NVIDIA H200, torch 2.13.0, ...'; the title is without its
    name.
    """
    named = (f"{name} {fact}" for name, fact in facts.items() if fact and name != "title")
    return ", ".join([str(facts["title"]), *named])
