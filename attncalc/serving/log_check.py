"""Compare a start-up log of vLLM with the prediction from the memory and the arguments in it."""

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
from .request import FitRequest, resolve

_LABELS = {
    "kv_block_size": "tokens per block",
    "kv_blocks": "blocks",
    "cpu_blocks": "blocks in host memory",
    "kv_tokens": "tokens",
    "concurrency": "concurrency",
    "kv_bytes_per_sequence": "needed for one request",
}


class LogMemory(NamedTuple):
    """The memory for the cache that a log has, in bytes, and the bounds that its rounding leaves.

    Attributes:
        low: The least memory that would be printed so.
        printed: The memory as printed.
        high: The most memory that would be printed so.
        source: Where the memory is from: the line of the log.
    """

    low: int
    printed: int
    high: int
    source: str


class LogComparison(NamedTuple):
    """A log's figures, compared with predicted ones.

    Attributes:
        request: The request with the log's memory and the version of vLLM that it is compared with.
        memory: The log's memory.
        checks: Each figure as printed and as predicted.
        guessed: Whether neither the log nor an option has the version.
    """

    request: FitRequest
    memory: LogMemory
    checks: tuple[Check, ...]
    guessed: bool

    @property
    def agrees(self) -> bool:
        """Whether every figure agrees."""
        return all(check.ok for check in self.checks)


def compare(request: FitRequest, log: Log) -> LogComparison:
    """Return the log's figures and the predicted ones. The request has neither a GPU nor a memory: the log has it.

    Without a version, the result is that of the newest version that agrees, or of the newest one if none does.

    Raises AttncalcError if the log has neither a memory nor blocks, or no version supports the model.
    """
    if request.engine_args.get("engine_version") is not None:
        return _comparison(request, log, guessed=False)
    differing: list[LogComparison] = []
    first_error: AttncalcError | None = None
    for version in RELEASES:
        try:
            comparison = _comparison(request.with_engine_args(engine_version=version), log, guessed=True)
        except AttncalcError as error:  # this version does not support the model
            first_error = first_error or error
            continue
        if comparison.agrees:
            return comparison
        differing.append(comparison)
    if first_error and not differing:
        raise first_error
    return differing[0]


def _comparison(request: FitRequest, log: Log, *, guessed: bool) -> LogComparison:
    resolved = resolve(dataclasses.replace(request, kv_memory=0))  # the layout does not depend on the memory
    context = resolved.workload.context
    cache_layout = layout(resolved.engine, layer_cache_specs(resolved.model.plain()), resolved.args)
    memory = _memory(log, cache_layout, context)
    pools = [cache_layout.pool(size, context) for size in (memory.low, memory.printed, memory.high)]
    checks = tuple(_check(name, log.logged[name], pools) for name in _LABELS if name in log.logged)
    return LogComparison(dataclasses.replace(request, kv_memory=memory.printed), memory, checks, guessed)


def _memory(log: Log, cache_layout: CacheLayout, context: int) -> LogMemory:
    """Return the least memory that a rank printed; if none did, that of the printed number of blocks."""
    if "kv_memory" in log.logged:
        exact = int(log.logged["kv_memory"].text)
        return LogMemory(exact, exact, exact, f"{count(exact)} B of the log")
    if log.available:
        least = min(log.available, key=lambda printed: Fraction(printed.text))
        size, half = Fraction(least.text) * GIB, Fraction(GIB, 200)  # "4.8" is 4.80 without its zero
        return LogMemory(int(size - half), int(size), int(size + half), least.line)
    if "kv_blocks" in log.logged:
        blocks = int(log.logged["kv_blocks"].text)
        block = next(d.quantity for d in cache_layout.pool(0, context).details if d.name == "kv_bytes_per_block")
        size_of_blocks = blocks * int(float(block))
        return LogMemory(size_of_blocks, size_of_blocks, size_of_blocks, f"{count(blocks)} blocks, as printed")
    raise AttncalcError(
        "the log has neither the memory for the cache nor the number of blocks",
        "give the memory with --kv-memory instead, or a log with 'Available KV cache memory: ... GiB'",
    )


def _check(name: str, printed: Printed, pools: list[Pool]) -> Check:
    """Return the check of one figure; its tolerance is what the log's rounding allows."""
    low, middle, high = (_figure(name, pool) for pool in pools)
    note = "the log's memory is rounded" if low != high else "exact"
    if name == "kv_bytes_per_sequence":
        return Check("log", name, _LABELS[name], middle, int(Fraction(printed.text) * GIB), GIB // 200, BYTES, note)
    measured = float(printed.text) if name == "concurrency" else int(printed.text)
    # Concurrency is printed with two decimals: 44.625 as 44.62 or 44.63.
    half = 0.005 + 1e-9 if name == "concurrency" else 0
    tolerance = (high - middle if measured > middle else middle - low) + half
    unit = TOKENS if name in ("kv_tokens", "kv_block_size") else ""
    return Check("log", name, _LABELS[name], middle, measured, tolerance, unit, note)


def _figure(name: str, pool: Pool) -> int | float:
    if name == "concurrency":
        return float(pool.concurrency)
    if name == "kv_tokens":
        return int(pool.tokens)
    if name == "kv_blocks":
        return int(pool.blocks or 0)
    return next((int(float(d.quantity)) for d in pool.details if d.name == name), 0)
