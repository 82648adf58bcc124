"""The report of `attncalc fit --vllm-log`: what vLLM printed when it started, beside what is predicted."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import NamedTuple

from ..check import Check
from ..cost.cache import kept
from ..cost.fit import Question
from ..engines import layout
from ..engines.layouts import Layout, Pool
from ..engines.vllm.log import Log, Printed
from ..engines.vllm.versions import STRETCHES
from ..errors import AttncalcError
from ..units import BYTES, TOKENS, count, human
from .fit import fit_report
from .report import LABEL, Column, Report, Table

_GIB = 2**30
_LABELS = {
    "kv_block_size": "tokens of a block",
    "kv_blocks": "blocks",
    "cpu_blocks": "blocks in host memory",
    "kv_tokens": "tokens",
    "concurrency": "concurrency",
    "kv_bytes_per_sequence": "needed for one request",
}


class Memory(NamedTuple):
    """Bytes for the cache, as far as a log's rounding tells them: at the least, as printed, at the most."""

    least: int
    printed: int
    most: int
    said: str


def log_report(asked: Question, log: Log, assumed: tuple[str, ...] = ()) -> Report:
    """What the log printed, beside what its memory and settings give; `more["agrees"]` says whether all does.

    asked: without a memory. A log without a version is held to all that are known, from the newest on.
    AttncalcError: the log names neither a memory nor blocks to start from.
    """
    asked, found = _best(asked, log)
    memory, compared = found
    report = fit_report(dataclasses.replace(asked, kv_memory=memory.printed), assumed)
    checks = tuple(check for _, check in compared)
    agrees = all(check.ok for check in checks)
    version = asked.settings.engine_version
    guessed = "" if log.version or not version else f"The log names no version: {version} is taken, {_WHY[agrees]}."
    return report._replace(
        tables=(_table(memory, compared), *report.tables[:2], _verdict(agrees)),
        notes=(*((guessed,) if guessed else ()), *_notes(log, agrees, asked), *report.notes),
        checks=checks,
        more={**report.more, "agrees": agrees, "checks": [check.facts() for check in checks]},
    )


_WHY = {True: "the newest with which all figures agree", False: "and no other agrees; --engine-version says otherwise"}
Compared = tuple[Memory, list[tuple[Printed, Check]]]


def _best(asked: Question, log: Log) -> tuple[Question, Compared]:
    """The comparison, with the newest version that agrees where the log names none and nobody did."""
    if asked.settings.engine_version is not None:
        return asked, _compared(asked, log)
    tried = []
    for version in STRETCHES:
        one = dataclasses.replace(asked, settings=dataclasses.replace(asked.settings, engine_version=version))
        try:
            found = _compared(one, log)
        except AttncalcError:  # that version cannot hold the model
            if version == STRETCHES[0]:
                raise
            continue
        if all(check.ok for _, check in found[1]):
            return one, found
        tried.append((one, found))
    return tried[0]


def _compared(asked: Question, log: Log) -> Compared:
    """Each figure as printed, beside the predicted one."""
    made = layout(asked.engine, kept(asked.model.shard(asked.settings.tp).plain()), asked.settings)
    memory = _memory(log, made, asked.context)
    pools = [made.pool(size, asked.context) for size in (memory.least, memory.printed, memory.most)]
    return memory, [(log.logged[name], _check(name, log.logged[name], pools)) for name in _LABELS if name in log.logged]


def _memory(log: Log, made: Layout, context: int) -> Memory:
    """The least memory of the ranks that printed one; without any, that of the blocks printed."""
    if "kv_memory" in log.logged:
        exactly = int(log.logged["kv_memory"].text)
        return Memory(exactly, exactly, exactly, f"{count(exactly)} B of the log")
    if log.available:
        poorest = min(log.available, key=lambda printed: Fraction(printed.text))
        exact, half = Fraction(poorest.text) * _GIB, Fraction(_GIB, 200)  # "4.8" is 4.80 without its zero
        return Memory(int(exact - half), int(exact), int(exact + half), poorest.line)
    if "kv_blocks" in log.logged:
        one = next(d.quantity for d in made.pool(0, context).details if d.name == "kv_bytes_per_block")
        size = int(log.logged["kv_blocks"].text) * int(float(one))
        return Memory(size, size, size, f"{count(int(log.logged['kv_blocks'].text))} blocks, as printed")
    raise AttncalcError(
        "the log says neither how much memory its cache has nor how many blocks",
        "give the memory with --kv-memory instead, or a log with 'Available KV cache memory: ... GiB'",
    )


def _check(name: str, printed: Printed, pools: list[Pool]) -> Check:
    """The figure as printed beside the predicted one; they agree within what rounding allows."""
    low, middle, high = (_figure(name, pool) for pool in pools)
    note = "the log's memory is rounded" if low != high else "exact"
    if name == "kv_bytes_per_sequence":
        return Check("log", name, _LABELS[name], middle, int(Fraction(printed.text) * _GIB), _GIB // 200, BYTES, note)
    if name == "concurrency":
        spread = max(high - middle, middle - low) + 0.005 + 1e-9  # 44.625 is printed as 44.62
        return Check("log", name, _LABELS[name], middle, float(printed.text), spread, "", note)
    unit = TOKENS if name in ("kv_tokens", "kv_block_size") else ""
    return Check("log", name, _LABELS[name], middle, int(printed.text), max(high - middle, middle - low), unit, note)


def _figure(name: str, pool: Pool) -> int | float:
    if name == "concurrency":
        return float(pool.concurrency)
    if name == "kv_tokens":
        return int(pool.tokens)
    if name == "kv_blocks":
        return int(pool.blocks or 0)
    return next((int(float(d.quantity)) for d in pool.details if d.name == name), 0)


def _table(memory: Memory, compared: list[tuple[Printed, Check]]) -> Table:
    columns = (LABEL._replace(header=f"from {memory.said}"), Column("printed"), Column("predicted"), Column("", "left"))
    rows = tuple(
        (check.label, _shown(check, check.measured), _shown(check, check.predicted), _agreement(check))
        for _, check in compared
    )
    return Table(columns, rows)


def _shown(check: Check, value: int | float) -> str:
    if check.unit == BYTES:
        return human(int(value), BYTES)
    return f"{value:,.2f}" if isinstance(value, float) else count(value)


def _agreement(check: Check) -> str:
    if not check.ok:
        return "differs"
    return f"agrees, +- {_shown(check, check.tolerance)}" if check.tolerance else "agrees"


def _verdict(agrees: bool) -> Table:
    words = "AGREES: all figures are within the log's rounding." if agrees else "DIFFERS: see the figures above."
    return Table((LABEL,), ((words,),), strong=frozenset({0}))


def _notes(log: Log, agrees: bool, asked: Question) -> tuple[str, ...]:
    if agrees:
        return ()
    notes = ["A setting that the log does not name may differ: give it as an option, which overrides the log."]
    if len(log.available) < asked.devices and asked.devices > 1:
        notes.insert(0, "The log has one rank's memory; the rank with the least decides how many blocks there are.")
    return tuple(notes)
