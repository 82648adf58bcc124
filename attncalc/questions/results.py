"""What all results of calls have: a short repr, plain data, and a table in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import did_you_mean
from ..model import ModelSpec
from ..quantity import Quantity
from ..show.formats import choose_format
from ..show.report import Report, context_fact
from ..units import BYTES, GIB, count
from ..workload import Workload

if TYPE_CHECKING:
    from typing_extensions import Self


def _to(form: str) -> Callable[[Written], str]:
    def text(answer: Written) -> str:
        return str(answer.to(form))

    text.__doc__ = f"Return it in the format '{form}'."
    return text


class Written:
    """An answer in the formats of `--format`."""

    def to(self, form: str) -> Any:
        """Return it in a format, as 'csv' or 'latex': text, or the bytes of a spreadsheet."""
        raise NotImplementedError

    to_csv = _to("csv")
    to_json = _to("json")
    to_latex = _to("latex")
    to_markdown = _to("markdown")


class Rows(Written, Iterable[dict[str, Any]]):
    """Rows, each a dict."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return (list(self) if index < 0 else list(islice(self, index + 1)))[index]

    @property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """One dict per row, as the CSV has it."""
        return tuple(self)

    def frame(self) -> Any:
        """Return the rows as a pandas DataFrame. Raises ImportError without pandas."""
        return import_module("pandas").DataFrame(list(self))

    to_pandas = frame


class ShownReport(Written, Report):
    """A report that print() shows as the command does, and a notebook as tables."""

    def to(self, form: str) -> Any:
        return choose_format(form, None).render(self)

    def __str__(self) -> str:
        return str(self.to("table"))

    def _repr_html_(self) -> str:
        from ..show.html import fragment

        return fragment(self)


class Result(Written):
    """A result that knows the report of its command.

    Each figure of `to_dict` is an attribute too, `result.kv_cache`, a size also in GiB,
    `result.kv_cache_gib`. So is what JSON has beside the figures: `result.suggestions`.

    It is a mixin: a subclass is the result of a cost function, which `knowing` tells what was
    asked.

    Attributes:
        FIGURES: The names of its figures in the report; () for all of them.
    """

    FIGURES: ClassVar[tuple[str, ...]] = ()
    _subject: str
    _make_report: partial[Report]

    def knowing(self, subject: str, make_report: partial[Report]) -> Self:
        """Remember what was asked, in words, and the call that returns the report; return
        itself.
        """
        self._subject = subject
        self._make_report = make_report
        return self

    @cached_property
    def report(self) -> ShownReport:
        """The report that the command prints, with the formula and the source of each figure.

        Raises AttncalcError as the command does.
        """
        return ShownReport(*self._make_report())

    def to(self, form: str) -> Any:
        return self.report.to(form)

    def to_dict(self) -> dict[str, int | float | str | bool | None]:
        """Return {name: number} of the figures, as in `results` of `--json`: integers in base
        units, floats for ratios.

        A figure that does not apply is None. Raises AttncalcError as the command does.
        """
        figures = {figure.name: figure.value for figure in self.report.figures}
        return {name: figures[name] for name in self.FIGURES or figures}

    if not TYPE_CHECKING:  # a type checker would accept any name

        def __getattr__(self, name: str) -> Any:
            # what copy, pickle and notebooks look for
            if name.startswith("_") or "_make_report" not in vars(self):
                raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
            figures = self.to_dict()
            extra = self.report.extra
            if name in figures or name in extra:
                if name in figures:
                    return figures[name]
                return extra[name]
            whole = name.removesuffix("_gib")
            if whole != name and any(
                (one.name, one.unit) == (whole, BYTES) for one in self.report.figures
            ):
                if figures[whole] is None:
                    return None
                return figures[whole] / GIB
            tip = did_you_mean(name, dir(self)) + f"figures: {', '.join(figures)}"
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'; {tip}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.to_dict(), *self.report.extra]

    def __eq__(self, other: object) -> bool:
        """Return whether the other result has the same question and figures."""
        if not isinstance(other, Result) or type(self) is not type(other):
            return NotImplemented
        return self._subject == other._subject and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((type(self), self._subject))

    def __getstate__(self) -> dict[str, Any]:  # a report cannot be pickled, and is made again
        return {name: value for name, value in vars(self).items() if name != "report"}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._subject}: {self._answer()})"

    def _repr_html_(self) -> str:
        return self.report._repr_html_()

    def _answer(self) -> str:
        raise NotImplementedError


class TotalResult(Result):
    """A result of which int() is the total."""

    total: Quantity

    def __int__(self) -> int:
        return int(self.total)


class ResultRows(Result, Rows):
    """A result of several rows. Iterating yields `rows`."""

    @cached_property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """One dict per row, as the CSV has it."""
        return tuple(map(dict, self.report.rows or ()))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def model_subject(model: ModelSpec) -> str:
    """Return a model in a few words: 'llama2-70b', or 'llama2-70b on one of 8 devices'."""
    if model.tp > 1:
        return f"{model.name} on one of {model.tp} devices"
    return model.name


def workload_subject(workload: Workload) -> str:
    """Return a workload in a few words: 'batch 8, context 4,096'; a phase is named unless it is a
    decode step.
    """
    batch = f"batch {count(workload.batch)}, " if workload.lengths is None else ""
    dtypes = dict.fromkeys((workload.dtype, workload.kv_dtype))
    facts = (f"{batch}{context_fact(workload)}", *(name for name in dtypes if name))
    return ", ".join(facts)


def pass_subject(model: ModelSpec, workload: Workload) -> str:
    """Return the model, the phase and the workload of a result of one pass."""
    return f"{model_subject(model)}, {workload.phase}, {workload_subject(workload)}"
