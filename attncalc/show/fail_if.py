"""Conditions on figures, for CI: 'params_total > 7.5e9', or 'kv_cache_per_token > +0%' of a
baseline.
"""

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any

from ..errors import AttncalcError, known_tip
from ..model import plural
from ..quantity import Quantity
from ..records import NamedTuple
from ..units import BYTES, FLOP, NO_UNIT, PARAMS, Amount, exact, human, parse_amount, truncate
from .notes import FAILED
from .report import Figure, Report

OPERATORS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_CONDITION = re.compile(
    r"\s*(?P<name>[A-Za-z_][\w "
    r"-]*?)\s*(?P<operator>[<>=!]=?)\s*(?P<sign>[+-]?)(?P<amount>[^%]*)(?P<percent>%?)\s*"
)
# The verdict as a number, 0 to 2, so that 'verdict != FITS' and 'verdict > MAY NOT FIT' are
# conditions too.
_VERDICT = "verdict"
_VERDICTS = ("fits", "may_not_fit", "does_not_fit")
_TIP = (
    "write NAME OP VALUE, as 'kv_cache > 8GiB', 'params_total > 7.5e9', or '> +5%' for a change "
    "from the first model"
)


# Factors of limits of parameters and FLOPs, whose suffixes are decimal: 7M are 7,000,000, and 7B 7
# billion.
_DECIMAL = {
    "K": Fraction(10**3, 2**10),
    "M": Fraction(10**6, 2**20),
    "G": Fraction(10**9, 2**30),
    "T": Fraction(10**12, 2**40),
    **dict.fromkeys("bB", Fraction(10**9)),
}


class Condition(NamedTuple):
    """What a figure must not be."""

    text: str  # as it was written: 'kv_cache_per_token > +0%'
    name: str  # the figure's name in JSON
    operator: str  # '>', '>=', '<', '<=', '==' or '!='
    sign: int  # 1 or -1 if the amount is a change from a baseline; 0 for a limit of its own
    amount: Amount  # the limit, or the change
    is_share: bool  # whether the change is a percentage of the baseline

    def test(self, figure: Figure, baseline: Figure | None = None) -> "Outcome":
        """Return the figure compared with the limit.

        Raises AttncalcError if the figure does not apply to the model, is in another unit, or lacks
        a baseline.
        """
        factor = self._factor(figure.unit)
        if self.amount.unit and self.amount.unit != figure.unit and factor is None:
            raise AttncalcError(
                f"--fail-if '{truncate(self.text)}': {self.name} is not in {self.amount.unit}",
                {BYTES: "write a size, as 8GiB", FLOP: "write FLOP, as 1.5TFLOP"}.get(
                    figure.unit, "write a number without a unit, as 7.5e9"
                ),
            )
        limit = Fraction(self.amount.numerator, self.amount.denominator) * (factor or 1)
        if not self.sign:
            baseline = None
        elif baseline is None:
            raise AttncalcError(
                f"--fail-if '{truncate(self.text)}' needs two models: the change is from the first",
                "name the model to compare with first, or write a limit without a sign",
            )
        else:
            before = self._exact(baseline)
            change = before * limit / 100 if self.is_share else limit
            limit = before + self.sign * change
        passed = not OPERATORS[self.operator](self._exact(figure), limit)
        return Outcome(self, figure, baseline, limit, passed)

    def _factor(self, unit: str) -> Fraction | None:
        """Return what the suffix of a limit of parameters or FLOPs is more than a size's; None
        without one.
        """
        if unit not in (PARAMS, FLOP):
            return None
        suffix = re.search(r"\d ?([a-zA-Z])$", self.text)
        if suffix is None:
            return None
        return _DECIMAL.get(suffix[1])

    def _exact(self, figure: Figure) -> Fraction:
        """Return the figure's number. Raises AttncalcError if it does not apply to the model."""
        if isinstance(figure.quantity, Quantity):
            return Fraction(int(figure.quantity))
        if figure.quantity is not None:
            return Fraction(int(figure.quantity.numerator), int(figure.quantity.denominator))
        of = f" to {figure.of}" if figure.of else ""
        problem = f"--fail-if '{truncate(self.text)}': {figure.name} does not apply{of}"
        raise AttncalcError(problem, "leave the condition out")


class Outcome(NamedTuple):
    """A figure that was compared with a limit."""

    condition: Condition
    figure: Figure  # the figure of the model that was tested
    baseline: Figure | None  # the same figure of the first model, if the limit is a change from it
    limit: Fraction  # the limit, in the figure's base unit
    passed: bool  # whether the condition is false

    def facts(self) -> dict[str, Any]:
        """Return the result as plain data, for JSON."""
        return {
            "of": self.figure.of,
            "condition": self.condition.text,
            "name": self.figure.name,
            "value": self.figure.value,
            "baseline": None if self.baseline is None else self.baseline.value,
            "operator": self.condition.operator,
            "limit": int(self.limit) if self.limit.denominator == 1 else float(self.limit),
            "unit": self.figure.unit,
            "passed": self.passed,
        }

    def sentence(self, model: str) -> str:
        """Return the result in words: 'kv_cache > +0%: new has 512 B, the limit is 256 B; old has
        256 B.'.
        """
        if self.condition.name == _VERDICT:
            return (
                f"{self.condition.text}: {model} has "
                f"'{_VERDICTS[self.figure.whole].replace('_', ' ')}'."
            )
        limit = _words(self.limit, self.figure.unit)
        has = f"{self.condition.text}: {model} has {_value(self.figure)}, the limit is {limit}"
        if self.baseline is None:
            return f"{has}."
        return f"{has}; {self.baseline.of} has {_value(self.baseline)}."


def parse_condition(text: str, option: str = "--fail-if", *, of_rows: bool = False) -> Condition:
    """Return the condition that a text describes, such as 'kv_cache > 8GiB' or 'flops_decode >=
    +5%'.

    `option` is named in errors; a verdict is no number if `of_rows`, since those of a sweep have it
    in words.

    Raises AttncalcError if it is not a name, an operator and a value.
    """
    match = _CONDITION.fullmatch(text)
    if match is None or match["operator"] not in OPERATORS:
        raise AttncalcError(f"{option} '{truncate(text)}' is not a condition", _TIP)
    if re.search("[<>=]", match["amount"]):
        raise AttncalcError(
            f"{option} '{truncate(text)}' is more than one condition", f"give {option} for each"
        )
    sign = {"+": 1, "-": -1, "": 0}[match["sign"]]
    if match["percent"] and not sign:
        raise AttncalcError(
            f"{option} '{truncate(text)}': a percentage is a change and needs a sign",
            "write +5% or -5%",
        )
    word = "_".join(match["amount"].lower().split())
    if match["name"] == "fits" and not of_rows:
        raise AttncalcError(f"{option}: 'fits' is no number", f"write '{_VERDICT} != fits'")
    is_verdict = match["name"] == _VERDICT and not of_rows
    if is_verdict and word not in _VERDICTS:
        raise AttncalcError(
            f"--fail-if: '{truncate(match['amount'])}' is no verdict",
            f"known: {', '.join(_VERDICTS)}",
        )
    if is_verdict:
        amount = Amount(_VERDICTS.index(word), 1, NO_UNIT)
    else:
        amount = parse_amount(match["amount"], option)
    if match["percent"] and amount.unit:
        raise AttncalcError(
            f"{option} '{truncate(text)}': a percentage has no unit", "write +5% or +2GiB"
        )
    return Condition(
        " ".join(text.split()),
        match["name"],
        match["operator"],
        sign,
        amount,
        bool(match["percent"]),
    )


def checks_of(
    conditions: Sequence[Condition],
    figures: Mapping[str, Figure],
    baseline: Mapping[str, Figure] | None = None,
) -> list[Outcome]:
    """Return each condition tested on the figures, {name: figure}, against those of a baseline.

    Raises AttncalcError if a figure is unknown or does not apply, or a limit is in another unit or
    lacks a baseline.
    """
    outcomes = []
    for condition in conditions:
        named = _named(condition, figures)
        before = None if baseline is None else baseline[named.name]
        outcomes.append(named.test(figures[named.name], before))
    return outcomes


def figure_named(word: str, figures: Collection[str], option: str = "--fail-if") -> str:
    """Return the name of the figure that a word is, also in the words of a label: 'KV cache' is
    kv_cache.

    Raises AttncalcError if there is no such figure.
    """
    plain = re.sub(r"[\s-]+", "_", word.strip().lower())
    for name in (word, plain):
        if name in figures:
            return name
    raise AttncalcError(
        f"{option}: there is no figure '{truncate(word)}'",
        f"{known_tip(plain, figures)}; --json has all as values",
    )


def _named(condition: Condition, figures: Collection[str]) -> Condition:
    """Return the condition with the name that the figure has here. Raises AttncalcError if there is
    no such figure.
    """
    return condition._replace(name=figure_named(condition.name, figures))


def limited(report: Report, conditions: Sequence[Condition]) -> Report:
    """Return a report with each condition tested on its figures, of every kind of layer and of
    every engine.

    Raises AttncalcError as `checks_of` does.
    """
    figures = report.all_figures if report.has_answers else report.figures
    verdict = report.extra.get(_VERDICT)
    if verdict in _VERDICTS:
        number = Quantity(_VERDICTS.index(verdict))
        figures = (*figures, Figure(_VERDICT, "verdict", number, NO_UNIT))
    by_name = {figure.name: figure for figure in figures}
    conditions = [_named(condition, by_name) for condition in conditions]
    checks_of(conditions, by_name)
    model = report.model.get("name", f"the {report.command}")
    context = report.workload.get("context")
    tested = []
    for condition in conditions:
        for figure in figures:
            if figure.name == condition.name:
                tested.append((figure.of or model, model, context, condition.test(figure)))
    return with_outcomes(report, tested)


def with_outcomes(report: Report, tested: Sequence[tuple[str, str, int | None, Outcome]]) -> Report:
    """Return a report with the outcomes of its conditions: (what was tested in words, model,
    context, outcome).
    """
    failures = [
        f"{FAILED}{outcome.sentence(words)}"
        for words, _, _, outcome in tested
        if not outcome.passed
    ]
    checks = plural(len(tested), "check")
    answer = ""
    if failures:
        answer = f"FAILS: {len(failures)} of {checks}."
    elif tested:
        answer = f"PASSES: {checks}."
    return report._replace(
        answer="\n".join(filter(None, (answer, report.answer))),
        notes=(*failures, *report.notes),
        shown_notes=_after(failures, report.shown_notes),
        short_notes=_after(failures, report.short_notes),
        fail_if=tuple(
            {"model": model, "context": context, **outcome.facts()}
            for _, model, context, outcome in tested
        ),
    )


def _after(failures: Sequence[str], notes: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if notes is None:
        return None
    return (*failures, *notes)


def _value(figure: Figure) -> str:
    if figure.exact == figure.human:
        return figure.exact
    return f"{figure.exact} ({figure.human})"


def _words(number: Fraction, unit: str) -> str:
    """Return a limit in words, which may be negative or lie between whole numbers; a large one is
    rounded.
    """
    if number < 0:
        return f"-{_words(-number, unit)}"
    if number.denominator != 1 and number < 1000:
        return f"{float(number):.4g} {unit if unit in (BYTES, FLOP) else ''}".strip()
    whole = round(number)
    rounded = human(whole, unit)
    if rounded == exact(whole, unit):
        return rounded
    return f"{exact(whole, unit)} ({rounded})"
