"""A report: the answer to one command as plain data, before anything is laid out or written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from ..check import Check
from ..cost.common import cache_dtype, compute_dtype
from ..model import ModelSpec
from ..quantity import Formula, Quantity, Ratio
from ..units import column, count, exact, human, quotient
from ..workload import Workload

SUM = "the sum of its parts"
QUOTIENT = "one figure over another"


class Figure(NamedTuple):
    """One number: its name in JSON, its label on screens, its unit and where its formula is from.

    of: what it is a figure of: '' for the whole model, else a layer group or a variant. quantity is
    None for a figure that there is not: an encoder's decode step.
    """

    name: str
    label: str
    quantity: Quantity | Ratio | None
    unit: str
    source: str = ""
    of: str = ""

    @property
    def formula(self) -> Formula:
        """How it came about."""
        return Formula(()) if self.quantity is None else self.quantity.formula

    @property
    def value(self) -> int | float | None:
        """The number as JSON has it: an integer in base units; a ratio is the nearest float."""
        if self.quantity is None:
            return None
        if isinstance(self.quantity, Ratio):
            whole, rest = divmod(self.quantity.numerator, self.quantity.denominator)
            return float(self.quantity) if rest else whole
        return int(self.quantity)

    @property
    def whole(self) -> int:
        """A figure that is a whole number, as one; 0 for a ratio, or where there is none."""
        return int(self.quantity) if isinstance(self.quantity, Quantity) else 0

    @property
    def exact(self) -> str:
        """'1,342,177,280 B'."""
        return self._shown(exact)

    @property
    def human(self) -> str:
        """'1.25 GiB'."""
        return self._shown(human)

    def _shown(self, as_text: Callable[[int, str], str]) -> str:
        if self.quantity is None:
            return "-"
        if isinstance(self.quantity, Ratio):
            return quotient(float(self.quantity), self.unit) if self.unit else number(float(self.quantity))
        return as_text(self.quantity, self.unit)


def number(value: float) -> str:
    """A ratio in three digits: '8', '2.08', '0.125', '1,024'."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def times(quotient: Ratio, digits: int = 1) -> str:
    """'8.0 x', '102.8 x'; below one two digits that say something: '0.42 x'."""
    value = float(quotient)
    return f"{value:,.{digits}f} x" if value >= 1 else f"{value:.2g} x"


class Column(NamedTuple):
    """A column of a table; right-aligned numbers unless said."""

    header: str = ""
    align: Literal["left", "right"] = "right"


LABEL = Column(align="left")


class Table(NamedTuple):
    """Rows of cells, ready to print. strong: rows to emphasise, by number."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    strong: frozenset[int] = frozenset()


class Report(NamedTuple):
    """An answer. figures: of the whole; layers: of each layer group or variant, with its facts.

    parts: what only an explanation shows: the parts that a figure's formula names. more: what JSON says
    of this command alone, by key; checks: what was compared, for those who read rows.
    footer: tables that stand after the notes, as an engine's own words do.
    """

    command: str
    heading: tuple[str, ...]
    model: dict[str, Any]
    workload: dict[str, Any]
    figures: tuple[Figure, ...]
    layers: tuple[tuple[dict[str, Any], tuple[Figure, ...]], ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    parts: tuple[Figure, ...] = ()
    more: Mapping[str, Any] = MappingProxyType({})
    checks: tuple[Check, ...] = ()
    footer: tuple[Table, ...] = ()

    @property
    def all_figures(self) -> tuple[Figure, ...]:
        """The figures of the whole, then those of each part; one that stands in both is named once."""
        return tuple(dict.fromkeys((*self.figures, *(figure for _, figures in self.layers for figure in figures))))

    @property
    def workings(self) -> tuple[Figure, ...]:
        """The figures that --explain prints: each formula once, nothing that is a plain zero or one."""
        seen: set[tuple[str, str]] = set()
        found = []
        for figure in (*self.all_figures, *self.parts):
            key = (figure.formula.text, figure.formula.substituted)
            if figure.formula.symbols and key not in seen:
                found.append(figure)
            seen.add(key)
        return tuple(found)


def unit_column(name: str, numbers: Sequence[int], unit: str) -> tuple[Column, list[str]]:
    """A column of figures in one unit, which stands under its name."""
    shown, cells = column(numbers, unit)
    return Column(f"{name}\n{shown}" if name else shown), cells


def figure_rows(figures: Sequence[tuple[str, Figure]]) -> tuple[tuple[str, ...], ...]:
    """Rows of (label, rounded, exact), for figures with the labels that a screen gives them."""
    return tuple((label, f.human, f.exact) for label, f in figures)


def tokens_asked(workload: Workload) -> str:
    """'context 4,096', or the lengths of a padded batch: 'lengths 512, 300 and 128'."""
    if workload.lengths is None:
        return f"context {count(workload.context)}"
    if len(workload.lengths) > 6:
        return (
            f"{count(len(workload.lengths))} lengths from {count(min(workload.lengths))} to {count(workload.context)}"
        )
    return f"lengths {', '.join(map(count, workload.lengths))}"


def heading(model: ModelSpec, *facts: str) -> tuple[str, ...]:
    """The lines a screen starts with: the model and its attention, then the facts that were used."""
    device = f"{model.tp} tensor-parallel devices; every figure is one device's" if model.tp > 1 else ""
    asked = [f"ASSUMED: {model.assumed}"] if model.assumed else []
    asked.append(", ".join(fact for fact in facts if fact))
    return (f"{model.title}  {model.headline}", *(line for line in (*asked, device) if line))


def workload_facts(model: ModelSpec, workload: Workload, engine: str = "ideal") -> dict[str, Any]:
    """The workload as plain data, for JSON: the same keys for every command."""
    return {
        "phase": workload.phase,
        "batch": int(workload.batch),
        "new": int(workload.new),
        "context": int(workload.context),
        "source_context": workload.source,
        "lengths": list(workload.lengths) if workload.lengths else None,
        "mask": str(workload.mask or model.main.mask),
        "dtype": compute_dtype(model, workload).name,
        "kv_dtype": cache_dtype(model, workload).name,
        "engine": engine,
    }
