"""A list: one question, asked of several GPUs, models, engines, types of weights or contexts.

Each is answered by the question's own function. An answer is a row, {name: value}: what differs
from the other rows, then the figures, as JSON and CSV have them. The table of a screen has some of
these columns.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from ..errors import AttncalcError
from ..model import plural
from ..records import NamedTuple
from ..search import grouped
from ..serving.fit import Verdict
from ..units import column as scaled
from ..units import count
from .bar import gib, gib_range
from .report import Column, Figure, Table, column_table
from .verdicts import VERDICTS

Question = TypeVar("Question")
Answer = TypeVar("Answer")
# An answer, as {name: value}.
Row = Mapping[str, Any]
# The facts and the figures of an answer, of which `rows_of` makes a row: `layers` of a Report.
Layer = tuple[dict[str, Any], tuple[Figure, ...]]

GROUPED = "+ N: N more GPUs with the same answer, from this memory on. --full lists all."


def ask_each(
    questions: Iterable[Question], answer: Callable[[Question], Answer]
) -> Iterator[tuple[Question, Answer | AttncalcError]]:
    """Yield each question with its answer, or with its error: an engine may not split the model
    so, for example.
    """
    for question in questions:
        found: Answer | AttncalcError
        try:
            found = answer(question)
        except AttncalcError as error:
            found = error
        yield question, found


def answers_of(
    questions: Iterable[Question], answer: Callable[[Question], Answer]
) -> tuple[list[Answer], list[AttncalcError]]:
    """Return the answers of the questions that have one, in their order, and the others' errors."""
    answers = []
    errors = []
    for _, found in ask_each(questions, answer):
        if isinstance(found, AttncalcError):
            errors.append(found)
        else:
            answers.append(found)
    return answers, errors


class AnswerColumn(NamedTuple):
    """A column of the table of a list."""

    name: str  # the name of its values in the rows
    header: str
    text: Callable[[Any], str] = count  # returns a value as text
    # The base unit of the values, which are then all in the multiple that the header names; "" if
    # each is written as `text` does
    unit: str = ""
    align: Literal["left", "right"] = "right"
    missing: str = "-"  # what a cell without a value says
    drop: int = 0  # when a screen without room leaves it out, as in `Column`

    def cells(self, values: Sequence[Any]) -> tuple[str, list[str]]:
        """Return the multiple of the unit in which all values are, '' without one, and the values
        as text.
        """
        if self.unit:
            unit, texts = scaled([value or 0 for value in values], self.unit)
        else:
            unit = ""
            texts = ["" if value is None else self.text(value) for value in values]
        for i, value in enumerate(values):
            if value is None:
                texts[i] = self.missing
        return unit, texts


def text_column(name: str, header: str, drop: int = 0) -> AnswerColumn:
    """Return a column of words."""
    return AnswerColumn(name, header, str, align="left", drop=drop)


def answer_table(rows: Sequence[Row], columns: Iterable[AnswerColumn]) -> Table:
    """Return the table of a list: a row per answer."""
    filled = []
    for column in columns:
        unit, texts = column.cells([row[column.name] for row in rows])
        header = f"{column.header}\n{unit}" if unit else column.header
        filled.append((Column(header, column.align, column.drop), texts))
    return column_table(filled)


def transposed(table: Table) -> Table:
    """Return the table with a column per answer: the first cell of a row is its header, and the
    headers are labels.
    """
    headers, *rows = [
        (column.header, *cells)
        for column, cells in zip(table.columns, zip(*table.rows, strict=True), strict=True)
    ]
    label, *others = headers
    return Table((Column(label, "left"), *map(Column, others)), tuple(rows))


# Verdicts


def best_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    return min(verdicts, key=list(VERDICTS).index)


def verdict_of_gpus(verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts of GPUs as a sentence: 'FITS: on 9 of 115 GPUs.'"""
    best = VERDICTS[best_verdict(verdicts)]
    return f"{best}: on {verdicts.count('fits')} of {plural(len(verdicts), 'GPU')}."


# GPUs

_GPU = text_column("gpu", "GPU")
_MEMORY = AnswerColumn("gpu_memory", "GiB", gib, drop=2)  # what it needs is compared with it
_NEEDED = AnswerColumn("needed", "needs, GiB", lambda ends: gib_range(*ends))
# What a row has for an engine that does not start, whatever the memory.
NOT_STARTED = "does not start"


def _verdict_in_words(verdict: str) -> str:
    return _WORDS.get(verdict, verdict)


_WORDS: dict[str, str] = {verdict: word.lower() for verdict, word in VERDICTS.items()}
_VERDICT = AnswerColumn("verdict", "", _verdict_in_words, align="left")


def gpu_table(
    rows: Sequence[Row], *, searched: str = "", with_engine: bool = False, full: bool = False
) -> Table:
    """Return GPUs by memory, and what a run needs there. Unless `full`, neighbours with the same
    answer are one row, of the least memory.

    Args:
        rows: Their answers, with 'gpu', 'gpu_memory', 'needed_low', 'needed_high' and 'verdict'.
        searched: What was searched for, 'context' or 'batch', the 'most' of the rows; '' if nothing
            was.
        with_engine: Whether GPUs have several engines, the 'with' of the rows.
        full: Whether no row is left out.
    """
    columns = [_GPU, _MEMORY, _NEEDED, _VERDICT]
    if searched:
        columns.insert(2, AnswerColumn("most", f"{searched},\nat least"))

    def most(row: Row) -> int | None:
        """Return what was searched for, if it is sure to fit."""
        if searched and row["verdict"] == "fits":
            return row["most"] or None
        return None

    def answer(row: Row) -> tuple[Any, ...]:
        """Return what neighbours have in common; numbers within a factor of 2 are the same."""
        size = (most(row) or 0).bit_length()
        return row["verdict"], size, row["with"] if with_engine else ""

    ordered = sorted(rows, key=lambda row: row["gpu_memory"])
    if full:
        groups = [[row] for row in ordered]
    else:
        groups = [*grouped((answer(row), row) for row in ordered).values()]
    shown = []
    for first, *others in groups:
        name = f"{first['gpu']} + {len(others)}" if others else first["gpu"]
        needed = (first["needed_low"], first["needed_high"])
        shown.append({**first, "gpu": name, "needed": needed, "most": most(first)})
    if with_engine and len({row["with"] for row in shown}) > 1:
        columns.append(text_column("with", "with", drop=1))
    return answer_table(shown, columns)
