"""One row per GPU, for --gpu all: what a run needs there and whether it fits."""

from collections.abc import Iterable, Sequence

from ..model import plural
from ..records import NamedTuple
from ..search import grouped
from ..serving.fit import Verdict
from ..units import count
from .bar import gib, gib_range
from .report import Column, Table, column_table
from .verdicts import VERDICTS

GROUPED = "+ N: N more GPUs with the same answer, from this memory on. --full lists all."


class GpuRow(NamedTuple):
    """A GPU's answer."""

    name: str
    memory: int  # bytes that software sees
    low: int  # the fewest bytes that are needed
    high: int  # the most bytes that are needed
    verdict: Verdict  # whether it fits
    most: int | None = None  # the longest context or the largest batch, if that was searched for
    engine: str = ""  # the engine that it has by default; '' if all GPUs have the same


def best_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    return min(verdicts, key=list(VERDICTS).index)


def verdict_of_all(verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts of GPUs as a sentence: 'FITS: on 9 of 115 GPUs.'"""
    return (
        f"{VERDICTS[best_verdict(verdicts)]}: on {verdicts.count('fits')} of "
        f"{plural(len(verdicts), 'GPU')}."
    )


def gpu_table(rows: Sequence[GpuRow], *, searched: str = "", full: bool = False) -> Table:
    """Return the rows by memory. Unless `full`, neighbours with the same answer are one row, of the
    least memory.

    `searched` is what `most` of the rows is: 'context' or 'batch'; '' if nothing was searched for.
    """
    ordered = sorted(rows, key=lambda row: row.memory)
    groups = [[row] for row in ordered] if full else _groups(ordered)
    firsts = [group[0] for group in groups]
    more = [f" + {len(group) - 1}" if len(group) > 1 else "" for group in groups]
    columns = [
        (
            Column("GPU", "left"),
            [f"{row.name}{others}" for row, others in zip(firsts, more, strict=True)],
        ),
        (Column("GiB"), [gib(row.memory) for row in firsts]),
        (Column("needs, GiB"), [gib_range(row.low, row.high) for row in firsts]),
        (Column("", "left"), [VERDICTS[row.verdict].lower() for row in firsts]),
    ]
    if len({row.engine for row in firsts}) > 1:
        columns.append((Column("with", "left"), [row.engine for row in firsts]))
    if searched:
        most = [count(row.most) if row.most and row.verdict == "fits" else "-" for row in firsts]
        columns.insert(2, (Column(f"{searched},\nat least"), most))
    return column_table(columns)


def _groups(rows: Sequence[GpuRow]) -> list[list[GpuRow]]:
    """Return rows with the same answer together, contexts within a factor of 2 being the same."""
    steps = [row.most.bit_length() if row.most and row.verdict == "fits" else 0 for row in rows]
    groups = grouped(
        ((row.verdict, step, row.engine), row) for row, step in zip(rows, steps, strict=True)
    )
    return list(groups.values())
