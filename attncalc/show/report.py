"""A report: the answer of one command as plain data, before an output format lays it out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from ..cost.common import cache_dtype, compute_dtype
from ..model import ModelSpec
from ..quantity import Formula, Quantity, Ratio
from ..records import NamedTuple
from ..units import column, count, exact, human, quotient
from ..workload import Workload

if TYPE_CHECKING:
    from ..check import Check
    from ..serving.fit import Verdict
    from .bar import Bar
    from .plot.chart import Picture


class Figure(NamedTuple):
    """One number with its formula."""

    name: str  # its name in JSON and CSV
    label: str  # its name on screens
    # The number with its formula; None if the figure does not apply, as a decode step of an encoder
    quantity: Quantity | Ratio | None
    unit: str  # the base unit of the number; "" for a ratio or a count
    source: str = ""  # the paper or the code that the formula is from
    of: str = ""  # the layer group or variant that it belongs to; "" for the whole model

    @property
    def formula(self) -> Formula:
        """The formula of the number; an empty one if the figure does not apply."""
        if self.quantity is None:
            return Formula(())
        return self.quantity.formula

    @property
    def value(self) -> int | float | None:
        """The number for JSON: an integer in base units, or the float nearest to a ratio."""
        if self.quantity is None:
            return None
        if isinstance(self.quantity, Ratio):
            return self.quantity.value
        return int(self.quantity)

    @property
    def whole(self) -> int:
        """The number as an int; 0 for a ratio and for a figure that does not apply."""
        if isinstance(self.quantity, Quantity):
            return int(self.quantity)
        return 0

    def without_formula(self, of: str) -> Figure:
        """Return an integer figure of `of` alone, whose formula another figure has already; a ratio
        as it is.
        """
        if isinstance(self.quantity, Quantity):
            return self._replace(quantity=Quantity(self.whole), of=of)
        return self

    @property
    def exact(self) -> str:
        """The number in its base unit: '1,342,177,280 B'."""
        return self._formatted(exact)

    @property
    def human(self) -> str:
        """The number rounded, in a unit that suits its size: '1.25 GiB'."""
        return self._formatted(human)

    def _formatted(self, as_text: Callable[[int, str], str]) -> str:
        if self.quantity is None:
            return "-"
        if isinstance(self.quantity, Ratio):
            if self.unit:
                return quotient(self.quantity, self.unit)
            return number(float(self.quantity))
        return as_text(self.quantity, self.unit)


def number(value: float) -> str:
    """Return a ratio in three digits: '8', '2.08', '0.125', '1,024'."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def times(quotient: Ratio, digits: int = 1) -> str:
    """Return a factor: '8.0 x', '102.8 x'; below one with two significant digits: '0.42 x'."""
    value = float(quotient)
    if value >= 1:
        return f"{value:,.{digits}f} x"
    return f"{value:.2g} x"


class Column(NamedTuple):
    header: str = ""  # its lines above the cells; "" for none
    align: Literal["left", "right"] = "right"  # 'right' for numbers, 'left' for words
    # When a screen without room leaves the column out: 1 is the first one; 0 stays
    drop: int = 0


LABEL = Column(align="left")


class Table(NamedTuple):
    """A table of text, ready to print."""

    columns: tuple[Column, ...]  # header and alignment of each column
    rows: tuple[tuple[str, ...], ...]  # the cells of each row
    strong: frozenset[int] = frozenset()  # indices of the rows to print in bold on a terminal
    code: bool = False  # whether the rows are lines of a shell command
    # what the headers of the columns of numbers are, as 'context'; LaTeX prints it above them
    above: str = ""
    unit: str = ""  # the unit of all numbers, if no header has it
    missing: str = "none"  # what a cell '-' means, in words for a list
    # whether a screen without room for all columns shows the table in parts
    is_divisible: bool = False

    @property
    def header_rows(self) -> tuple[tuple[str, ...], ...]:
        """The lines of the headers as rows; all headers end in the last one. None if no column has
        a header.
        """
        headers = [column.header.split("\n") for column in self.columns]
        height = max(map(len, headers))
        padded = [[""] * (height - len(lines)) + lines for lines in headers]
        return tuple(row for row in zip(*padded, strict=True) if any(row))

    @property
    def headers(self) -> list[str]:
        """The headers that are not empty; of a command, its title."""
        return [column.header for column in self.columns if column.header]


class Section(NamedTuple):
    """A part of a report."""

    # its figures; if it does not apply, they have the same names and no numbers
    figures: tuple[Figure, ...]
    # terms of their formulas that have a formula themselves, for --explain
    terms: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()  # sentences
    extra: dict[str, Any] | None = None  # its key of JSON; None if it does not apply


class Report(NamedTuple):
    command: str  # the command's name, which names the JSON schema
    # the first lines of the screen: the model, then the options that were used
    heading: tuple[str, ...]
    model: dict[str, Any]  # facts of the model, for JSON
    workload: dict[str, Any]  # facts of the workload, for JSON
    figures: tuple[Figure, ...]  # figures of the whole model; `results` in JSON
    # Facts and figures of each layer group or variant; `layers` in JSON
    layers: tuple[tuple[dict[str, Any], tuple[Figure, ...]], ...] = ()
    tables: tuple[Table, ...] = ()  # tables of the screen
    notes: tuple[str, ...] = ()  # sentences below the tables, warnings among them
    # Terms of the figures' formulas that have a formula themselves; only `--explain` prints them
    terms: tuple[Figure, ...] = ()
    # Further keys of the JSON document, for this command only; `notes` replaces those of the screen
    extra: Mapping[str, Any] = MappingProxyType({})
    # comparisons of predicted and measured figures; CSV prints them in place of figures
    checks: tuple[Check, ...] = ()
    # The rows of a list, {column: value} with the same columns each: CSV prints them in place of
    # figures, and JSON has them as `rows`. None if the answer is no list.
    rows: tuple[Mapping[str, Any], ...] | None = None
    footer: tuple[Table, ...] = ()  # tables below the notes, such as the lines that an engine logs
    answer: str = ""  # the answer in a sentence, below the heading; "" if the tables give it
    short_answer: str = ""  # the answer of --quiet, if it is not `answer`
    # The verdict that begins the heading, by which a terminal colours it; None without one
    verdict: Verdict | None = None
    bar: Bar | None = None  # a bar below the heading
    # The notes that a screen shows; None for all of them
    shown_notes: tuple[str, ...] | None = None
    # Those of a terminal without room for all of `shown_notes`; None if it has room for them
    short_notes: tuple[str, ...] | None = None
    # {name in a cell: the title that LaTeX prints instead}
    titles: Mapping[str, str] = MappingProxyType({})
    # the version of the JSON schema: the `version` of its YAML file
    version: int = 1
    # whether JSON has `fail_if`, also without a condition: so has its YAML file
    has_fail_if: bool = False
    # the conditions of --fail-if and what they were tested on
    fail_if: tuple[Mapping[str, Any], ...] = ()
    # Returns what --plot draws; `picture` calls it, since most screens are printed without
    draw: Callable[[], Picture | None] = lambda: None
    # Whether `layers` are answers of their own, such as engines, so that --fail-if is tested on
    # each
    has_answers: bool = False
    # names of figures that --explain leaves out, as the screen does
    unexplained: frozenset[str] = frozenset()
    # those of layer groups that it leaves out
    unexplained_of_layers: frozenset[str] = frozenset()

    @property
    def picture(self) -> Picture | None:
        """What --plot draws; None if there is nothing to draw."""
        return self.draw()

    def __repr__(self) -> str:
        return f"Report({self.command}: {self.heading[0]})"

    @property
    def screen_notes(self) -> tuple[str, ...]:
        if self.shown_notes is None:
            return self.notes
        return self.shown_notes

    @property
    def all_figures(self) -> tuple[Figure, ...]:
        """The figures of the whole model, then those of each layer group or variant, without
        duplicates.
        """
        return tuple(
            dict.fromkeys(
                (*self.figures, *(figure for _, figures in self.layers for figure in figures))
            )
        )

    @property
    def flat(self) -> tuple[Mapping[str, Any], ...]:
        """The rows of a list; or one: the model, its batch and context, and the figures of the
        whole model.
        """
        if self.rows is not None:
            return self.rows
        asked = {"model": self.model.get("name"), **self.workload}
        facts = {
            name: asked[name]
            for name in ("model", "batch", "context")
            if asked.get(name) is not None
        }
        return rows_of([(facts, self.figures)])

    @property
    def figures_to_explain(self) -> tuple[Figure, ...]:
        """The figures that --explain prints: each formula once, and none that is a symbol or a
        number alone.
        """
        seen: set[tuple[str, str]] = set()
        figures = []
        for figure in (*self.all_figures, *self.terms):
            is_left_out = bool(figure.of) and figure.name in self.unexplained_of_layers
            if figure.name in self.unexplained or is_left_out:
                continue
            key = (figure.formula.text, figure.formula.substituted)
            if figure.formula.symbols and len(figure.formula.cells) > 1 and key not in seen:
                figures.append(figure)
            seen.add(key)
        return tuple(figures)


def rows_of(
    layers: Iterable[tuple[Mapping[str, Any], Sequence[Figure]]], *facts: str
) -> tuple[dict[str, Any], ...]:
    """Return a row per entry: its facts of these names, then its figures, which are None if it
    lacks one.

    Without names the row has all facts that are one value.
    """
    layers = [*layers]
    names = dict.fromkeys(figure.name for _, figures in layers for figure in figures)
    return tuple(
        {
            **{name: own[name] for name in facts or own if not isinstance(own[name], list | dict)},
            **names,
            **{figure.name: figure.value for figure in figures},
        }
        for own, figures in layers
    )


def unit_column(
    name: str, numbers: Sequence[int], unit: str, drop: int = 0
) -> tuple[Column, list[str]]:
    """Return a column of figures in one unit, which its header shows below `name`, and the
    cells.
    """
    unit_name, cells = column(numbers, unit)
    return Column(f"{name}\n{unit_name}" if name else unit_name, drop=drop), cells


def column_table(
    columns: Iterable[tuple[Column, Sequence[str]]], strong: frozenset[int] = frozenset()
) -> Table:
    """Return a table of columns, each with its cells."""
    heads, cells = zip(*columns, strict=True)
    return Table(heads, tuple(zip(*cells, strict=True)), strong)


def figure_rows(figures: Sequence[tuple[str, Figure]]) -> tuple[tuple[str, ...], ...]:
    """Return rows of (label, rounded, exact) for pairs of a label and a figure."""
    return tuple((label, f.human, f.exact) for label, f in figures)


def context_fact(workload: Workload) -> str:
    """Return 'context 4,096', or the lengths of a padded batch: 'lengths 512, 300, 128'."""
    if workload.lengths is None:
        return f"context {count(workload.context)}"
    if len(workload.lengths) > 6:
        shortest = min(workload.lengths)
        longest = workload.context
        return f"{count(len(workload.lengths))} lengths from {count(shortest)} to {count(longest)}"
    return f"lengths {', '.join(map(count, workload.lengths))}"


def heading(model: ModelSpec, *facts: str) -> tuple[str, ...]:
    """Return the first lines of a screen: the model and its attention, then `facts`, those that are
    not empty.
    """
    lines = [
        f"{model.title}  {model.headline}",
        f"ASSUMED: {model.assumed}" if model.assumed else "",
        ", ".join(fact for fact in facts if fact),
        f"{model.tp} tensor-parallel devices; figures are per device" if model.tp > 1 else "",
    ]
    return tuple(line for line in lines if line)


def workload_facts(model: ModelSpec, workload: Workload, engine: str = "ideal") -> dict[str, Any]:
    """Return the workload as plain data for JSON, with the same keys for every command."""
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
