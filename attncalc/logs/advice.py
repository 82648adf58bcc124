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

import math
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from ..records import NamedTuple
from ..units import GIB
from .startup_log import MIB, Advice, LogRefusal, StartupLog, least

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


# Figures of the rows

# vLLM's share before 0.20, and the memory of most GPUs that serve: what is assumed if a log has
# neither.
_USUAL_SHARE = "0.9"
_USUAL_MEMORY = 80 * GIB
# Bytes that should stay free beyond an allocation that failed after the cache was there.
_MARGIN = GIB // 4


def smaller_share(log: StartupLog, otherwise: str, default: str) -> dict[str, str]:
    """Return the figures of a share with which an allocation that failed after the cache would have
    had room.

    Args:
        log: The log, with a refusal.
        otherwise: The share if the log lacks the one that failed.
        default: What `otherwise` is smaller than, as a condition in words.
    """
    refusal = log.refusal
    total = log.budget.get("gpu_memory")
    share = log.settings.get("gpu_memory_utilization")
    if refusal is None or share is None:
        return {"smaller_share": otherwise, "if_default": f", if {default}"}
    hundredths = share_below(refusal, Fraction(share), total.bytes if total else 0)
    return {"smaller_share": f"0.{max(1, hundredths):02d}", "if_default": ""}


def share_below(refusal: LogRefusal, share: Fraction, total: int) -> int:
    """Return the hundredths of a share that is smaller by what an allocation lacked; `total` bytes
    of a GPU, or 0.

    Of graphs that failed for a small piece, what the next pieces need is not known.
    """
    if refusal.tried and refusal.free:
        missing = max(0, refusal.tried.bytes - refusal.free.bytes)
    else:
        missing = 0
    is_piece = refusal.where == "graphs" and bool(refusal.tried) and missing < MIB * 64
    if total and not is_piece:
        part = Fraction(missing + _MARGIN, total)
    else:
        part = Fraction(1, 20)
    return min(99, int(100 * (share - part)))


# Bytes of weights that are assumed on a GPU if the log does not have them: a small model's in bf16.
_LEAST_WEIGHTS = 2 * GIB


def more_gpus(log: StartupLog, option: str) -> str:
    """Return the option for twice as many tensor-parallel GPUs as the log has, or for as many as
    hold one request.

    Example: one request needs 36 GiB, and 7.84 are left. Four GPUs hold 9 GiB each where 3/4 of 2
    GiB of weights are gone: '--tp 4'. '' if not even eight times as many do.
    """
    needed = log.logged.get("kv_bytes_per_sequence")
    left = least(log.available)
    weights = log.budget.get("weights")
    held = weights.bytes if weights else _LEAST_WEIGHTS
    for factor in (2, 4, 8):
        if not (needed and left) or needed.bytes <= factor * left.bytes + (factor - 1) * held:
            return f"{option} {factor * int(log.settings.get('tp', '1'))}"
    return ""


def larger_share(
    log: StartupLog, largest: str, least: Fraction | int, missing: int = 0
) -> str | None:
    """Return in words the largest share that engines start with; None if the log has such a share,
    or more is needed.

    Args:
        least: The share that is just not enough; 0 if the log does not show it.
        missing: Bytes that are missing, if the log shows them, and not the GPU's memory.
    """
    share = log.settings.get("gpu_memory_utilization")
    most = Fraction(largest)
    if missing > (most - Fraction(share or _USUAL_SHARE)) * _USUAL_MEMORY:
        return None
    if max(Fraction(share or 0), least) >= most:
        return None
    if not least:
        return "a larger share"
    digits = 2
    if math.ceil(100 * least) >= 100 * most:
        digits = 3
    return f"a share above 0.{math.ceil(10**digits * least):0{digits}d}"


def of_load(log: StartupLog) -> str:
    """Return the name of the advice for requests that wait: for a full cache, or else for more
    running requests; '' if none wait.
    """
    if log.load and log.load.is_full:
        return "overloaded"
    if log.load and log.load.waiting:
        return "waiting"
    return ""


def figures_of_load(log: StartupLog) -> dict[str, Any]:
    """Return the figures of the advice for requests that wait."""
    load = log.load
    return {
        "default_cache": "kv_dtype" not in log.settings,
        "fitting": load.fitting if load and load.preempted and load.running else None,
    }
