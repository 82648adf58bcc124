"""What to change after a failed start, as rows of a table: advice.txt beside this file.

    == vllm
    out_of_memory sampler
      try: --max-num-seqs {fewer_sequences} = fewer sequences in the warm-up
      try (large_graphs): --enforce-eager = no CUDA graphs
      sure: --max-model-len {longest} = the longest context that fits, as the log has it
      rows: smaller_steps

A section is of an engine, and a name in it is what failed. A row has what to type, which may be
missing, and after ' = ' what that is; 'sure:' if the log shows that it is enough. `{name}` is a
figure of the log: a row is left out if the log does not have it, and so is one whose condition, in
brackets, is not true. 'rows:' are the rows of another name.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..records import NamedTuple
from .startup_log import Advice

_ROW = re.compile(r"(?P<kind>try|sure|rows)(?: \((?P<condition>\w+)\))?: (?P<text>.+)")
_FIGURE = re.compile(r"\{(\w+)\}")


class Row(NamedTuple):
    kind: str  # 'try', 'sure' or 'rows'
    condition: str  # the figure that must be true; '' for none
    option: str  # what to type; '' for nothing, and for other rows
    words: str  # what it is, or the name of other rows


@cache
def _table() -> Mapping[str, Mapping[str, list[Row]]]:
    """Return advice.txt: {engine: {what failed: its rows}}."""
    table: dict[str, dict[str, list[Row]]] = {}
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        row = _ROW.fullmatch(line.strip())
        if not line or line.startswith("#"):
            continue
        if line.startswith("== "):
            engine = table.setdefault(line.removeprefix("== "), {})
        elif row is None:
            rows = engine.setdefault(line, [])
        else:
            option, _, words = row["text"].removeprefix("= ").rpartition(" = ")
            rows.append(Row(row["kind"], row["condition"] or "", option, words))
    return table


def has_rows(engine: str, name: str) -> bool:
    """Return whether the table has rows of what failed."""
    return name in _table()[engine]


def advised(engine: str, name: str, figures: Mapping[str, Any]) -> tuple[Advice, ...]:
    """Return the advice of an engine's rows.

    Args:
        engine: The engine, a section of the table.
        name: What failed, a name in that section.
        figures: What the log shows; None if it does not have a figure, or it is not to be advised.
    """
    return tuple(_advised(engine, name, figures))


def _advised(engine: str, name: str, figures: Mapping[str, Any]) -> Iterator[Advice]:
    for row in _table()[engine][name]:
        if row.condition and not figures[row.condition]:
            continue
        if row.kind == "rows":
            yield from _advised(engine, row.words, figures)
            continue
        named = _FIGURE.findall(f"{row.option} {row.words}")
        if all(figures[figure] is not None for figure in named):
            option = _FIGURE.sub(lambda match: str(figures[match[1]]), row.option)
            words = _FIGURE.sub(lambda match: str(figures[match[1]]), row.words)
            yield Advice(words, option, row.kind == "sure")
