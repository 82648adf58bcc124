"""A record of `attncalc verify --record`, read from its JSON alone: its runs and its verdict."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from ...check import Check
from ...model import plural
from .checks import verdict

# A record as plain data.
Document = Mapping[str, Any]
# The name of a peak: its phase and its kernel.
_PEAK = re.compile(r"peak_(prefill|decode)(?:_\d+)?_(\w+)")
# A row of a record by its columns, or of a table by its headers.
Row = Mapping[str, Any]


class Run:
    def __init__(self, facts: Mapping[str, Any], columns: Mapping[str, Sequence[str]]) -> None:
        # the run as plain data, in which each list has rows without the names of their columns
        self.facts = facts
        self._columns = columns

    def rows(self, name: str) -> list[Row]:
        """Return the rows of a list by their columns: 'checks', 'reported', 'times' or
        'scaling'.
        """
        return [dict(zip(self._columns[name], row, strict=True)) for row in self.facts[name]]

    @cached_property
    def checks(self) -> tuple[Check, ...]:
        """The checks, with the name also as the label."""
        return tuple(
            Check(
                "",
                row["name"],
                row["name"],
                row["predicted"],
                math.nan if row["measured"] is None else row["measured"],
                row["tolerance"] or 0,
                row["unit"],
                of=row["of"],
            )
            for row in self.rows("checks")
        )

    @property
    def arguments(self) -> str:
        """The arguments of `attncalc verify`, as code."""
        return f"`{self.facts['arguments']}`"

    @property
    def dtype(self) -> str:
        return str(self.facts["dtype"])

    @property
    def peaks(self) -> list[tuple[str, Check]]:
        """The kernel and the check of each peak."""
        return [
            (match[2], check) for check in self.checks if (match := _PEAK.fullmatch(check.name))
        ]


def record_verdict(record: Document) -> str:
    """Return the verdict of all runs in one or two sentences."""
    runs = record_runs(record)
    checks = [
        check._replace(of=", ".join(filter(None, (run.facts["arguments"], check.of))))
        for run in runs
        for check in run.checks
    ]
    return verdict(checks, f"on {record['device']['name']}, in {plural(len(runs), 'run')}")


def agrees(record: Document) -> bool:
    """Whether all checks agree, and no step ended in an error that nobody expected."""
    return not any(run["disagree"] for run in record["runs"]) and not any(
        step["failed"] for step in record["skipped"]
    )


def is_empty(record: Document) -> bool:
    """Whether nothing could be checked."""
    return not any(run["checks"] for run in record["runs"])


def record_runs(record: Document) -> list[Run]:
    return [Run(facts, record["columns"]) for facts in record["runs"]]
