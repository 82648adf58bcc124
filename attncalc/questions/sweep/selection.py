"""Which rows of a sweep are kept, and in which order: --where, --sort and --top."""

import re
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import islice
from typing import Any

from ...errors import AttncalcError
from ...records import NamedTuple
from ...show.fail_if import OPERATORS, Condition, parse_condition
from ...units import truncate
from .columns import hint

_TEXT = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*(?P<operator>[=!]=)\s*(?P<text>[^\s=].*?)\s*")
_EXAMPLE = "write NAME OP VALUE, as 'verdict == fits' or 'concurrency >= 8'"
_FAIL_IF = "--fail-if"


class Text(NamedTuple):
    """A condition on a column of text: 'verdict == fits'."""

    name: str
    operator: str
    text: str

    def holds(self, value: Any) -> bool:
        if value is None:
            return False
        wanted = self.text.lower().replace(" ", "_")  # MAY NOT FIT
        found = str(value).lower().replace(" ", "_")
        if self.operator == "==":
            return found == wanted
        return found != wanted


class Selection(NamedTuple):
    where: tuple[Condition | Text, ...] = ()  # conditions that all hold for a row
    # the column by which they are sorted, the smallest first; None for their own order
    sort: str | None = None
    is_largest_first: bool = False  # whether the largest is first instead
    top: int | None = None  # the most rows; None for all
    fail_if: tuple[Condition | Text, ...] = ()  # conditions of which none may hold for a row

    @property
    def columns(self) -> tuple[str, ...]:
        named = [condition.name for condition in (*self.where, *self.fail_if)]
        if self.sort:
            named.append(self.sort)
        return tuple(named)

    def of(
        self, rows: Iterable[tuple[Any, ...]], names: Sequence[str]
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows. Those without the figure that they are sorted by are last."""
        places = [names.index(condition.name) for condition in self.where]
        conditions = list(zip(self.where, places, strict=True))

        def is_kept(row: tuple[Any, ...]) -> bool:
            return all(holds(condition, row[place]) for condition, place in conditions)

        kept: Iterable[tuple[Any, ...]] = filter(is_kept, rows) if conditions else rows
        if self.sort:
            place = names.index(self.sort)
            known = []
            unknown = []
            for row in kept:
                if row[place] is None:
                    unknown.append(row)
                else:
                    known.append(row)
            known.sort(key=lambda row: row[place], reverse=self.is_largest_first)
            kept = [*known, *unknown]
        return islice(kept, self.top)


ALL_ROWS = Selection()


def read_selection(
    where: Sequence[str],
    fail_if: Sequence[str],
    sort: str | None,
    top: int | None,
    names: Sequence[str],
) -> Selection:
    """Return what the options ask for.

    `where` and `fail_if` are conditions as 'verdict == fits'; `sort` is a column, with - before it
    the largest first. Raises AttncalcError if a column is unknown, or a condition cannot be read.
    """
    column = sort.removeprefix("-").strip() if sort else None
    conditions = tuple(_condition(text, "--where") for text in where)
    limits = tuple(_condition(text, _FAIL_IF) for text in fail_if)
    selection = Selection(conditions, column, bool(sort and sort.startswith("-")), top, limits)
    for name in selection.columns:
        if name not in names and not name.startswith("params_"):
            if name == column:
                option = "--sort"
            elif any(name == condition.name for condition in conditions):
                option = "--where"
            else:
                option = _FAIL_IF
            tip = f"{hint(name, names)}columns are those of --columns, and the options that vary"
            raise AttncalcError(f"{option}: there is no column '{truncate(name)}'", tip)
    return selection


def _condition(given: str, option: str) -> Condition | Text:
    try:
        condition = parse_condition(given, option, of_rows=True)
    except AttncalcError as error:
        text = _TEXT.fullmatch(given)
        if text is None:
            raise AttncalcError(error.message, _EXAMPLE) from None
        return Text(text["name"], text["operator"], text["text"].strip("'\""))
    if condition.sign:
        raise AttncalcError(
            f"{option} '{truncate(given)}': a sign means a change from another model", _EXAMPLE
        )
    return condition


def holds(condition: Condition | Text, value: Any) -> bool:
    """Return whether a condition is true of a cell; of an empty one it is not."""
    if isinstance(condition, Text):
        return condition.holds(value)
    if not isinstance(value, int | float):
        return False
    limit = Fraction(condition.amount.numerator, condition.amount.denominator)
    return OPERATORS[condition.operator](Fraction(value), limit)
