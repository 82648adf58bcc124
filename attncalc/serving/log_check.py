"""A start-up log of vLLM beside what is predicted from its memory and settings, within the log's rounding."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import NamedTuple

from ..check import Check
from ..cost.cache import layer_cache_specs
from ..engines import layout
from ..engines.base import CacheLayout, Pool
from ..engines.vllm.log import Log, Printed
from ..engines.vllm.versions import RELEASES
from ..errors import AttncalcError
from ..units import BYTES, GIB, TOKENS, count
from .memory_budget import FitRequest

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


class Compared(NamedTuple):
    """The question as it was answered, with its version and memory; each figure as printed beside the predicted.

    guessed: the log names no version, nor did anybody, and this one was taken.
    """

    request: FitRequest
    memory: Memory
    checks: tuple[Check, ...]
    guessed: bool

    @property
    def agrees(self) -> bool:
        """Whether every figure does."""
        return all(check.ok for check in self.checks)


def compare(request: FitRequest, log: Log) -> Compared:
    """The log's figures beside the predicted ones; request: without a memory.

    A log without a version is held to all that are known, from the newest on; the newest that agrees is taken,
    else the newest. AttncalcError: the log names neither a memory nor blocks, or no version has the layout.
    """
    if request.args.engine_version is not None:
        return _compared(request, log, guessed=False)
    tried: list[Compared] = []
    refused: AttncalcError | None = None
    for version in RELEASES:
        args = dataclasses.replace(request.args, engine_version=version)
        try:
            found = _compared(dataclasses.replace(request, args=args), log, guessed=True)
        except AttncalcError as error:  # that version cannot hold the model
            refused = refused or error
            continue
        if found.agrees:
            return found
        tried.append(found)
    if not tried and refused:
        raise refused
    return tried[0]


def _compared(request: FitRequest, log: Log, *, guessed: bool) -> Compared:
    made = layout(request.engine, layer_cache_specs(request.model.shard(request.args.tp).plain()), request.told())
    memory = _memory(log, made, request.context)
    pools = [made.pool(size, request.context) for size in (memory.least, memory.printed, memory.most)]
    checks = tuple(_check(name, log.logged[name], pools) for name in _LABELS if name in log.logged)
    return Compared(dataclasses.replace(request, kv_memory=memory.printed), memory, checks, guessed)


def _memory(log: Log, made: CacheLayout, context: int) -> Memory:
    """The least memory of the ranks that printed one; without any, that of the blocks printed."""
    if "kv_memory" in log.logged:
        exactly = int(log.logged["kv_memory"].text)
        return Memory(exactly, exactly, exactly, f"{count(exactly)} B of the log")
    if log.available:
        poorest = min(log.available, key=lambda printed: Fraction(printed.text))
        exact, half = Fraction(poorest.text) * GIB, Fraction(GIB, 200)  # "4.8" is 4.80 without its zero
        return Memory(int(exact - half), int(exact), int(exact + half), poorest.line)
    if "kv_blocks" in log.logged:
        blocks = int(log.logged["kv_blocks"].text)
        one = next(d.quantity for d in made.pool(0, context).details if d.name == "kv_bytes_per_block")
        size = blocks * int(float(one))
        return Memory(size, size, size, f"{count(blocks)} blocks, as printed")
    raise AttncalcError(
        "the log says neither how much memory its cache has nor how many blocks",
        "give the memory with --kv-memory instead, or a log with 'Available KV cache memory: ... GiB'",
    )


def _check(name: str, printed: Printed, pools: list[Pool]) -> Check:
    """The figure as printed beside the predicted one; they agree within what rounding allows."""
    low, middle, high = (_figure(name, pool) for pool in pools)
    note = "the log's memory is rounded" if low != high else "exact"
    if name == "kv_bytes_per_sequence":
        return Check("log", name, _LABELS[name], middle, int(Fraction(printed.text) * GIB), GIB // 200, BYTES, note)
    measured = float(printed.text) if name == "concurrency" else int(printed.text)
    # a float's own rounding too: 44.625 is printed as 44.62
    half = 0.005 + 1e-9 if name == "concurrency" else 0
    room = (high - middle if measured > middle else middle - low) + half
    unit = TOKENS if name in ("kv_tokens", "kv_block_size") else ""
    return Check("log", name, _LABELS[name], middle, measured, room, unit, note)


def _figure(name: str, pool: Pool) -> int | float:
    if name == "concurrency":
        return float(pool.concurrency)
    if name == "kv_tokens":
        return int(pool.tokens)
    if name == "kv_blocks":
        return int(pool.blocks or 0)
    return next((int(float(d.quantity)) for d in pool.details if d.name == name), 0)
