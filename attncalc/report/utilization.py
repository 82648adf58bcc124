"""The share of a device's rates that a pass reaches: of its datasheet, and of its own matmul and copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..check import Timing
from .report import Column, Table

SHARES = {
    "flop_share": "FLOP/s, of\nown matmul",
    "bytes_share": "bytes/s, of\nown copy",
    "flop_share_datasheet": "FLOP/s, of\ndatasheet",
    "bytes_share_datasheet": "bytes/s, of\ndatasheet",
}
"""The shares in JSON, and their headers."""


def datasheet_shares(
    flop_per_s: float, bytes_per_s: float, device: Mapping[str, Any], dtype: str
) -> tuple[float | None, float | None]:
    """Return the shares of the datasheet's FLOP/s in this dtype and of its bytes/s; None if unknown."""
    datasheet = device.get("datasheet") or {}
    peak, bandwidth = datasheet.get("flop_per_s", {}).get(dtype), datasheet.get("bytes_per_s")
    return (flop_per_s / peak if peak else None), (bytes_per_s / bandwidth if bandwidth else None)


def time_facts(timing: Timing, device: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """Return a time as plain data with its shares of the datasheet, for JSON."""
    facts = timing.facts()
    flop, moved = datasheet_shares(facts["flop_per_s"], facts["bytes_per_s"], device, dtype)
    return {**facts, "flop_share_datasheet": flop, "bytes_share_datasheet": moved}


def utilization_tables(times: Sequence[Mapping[str, Any]]) -> Iterator[Table]:
    """Yield one table of the shares of each pass; those of a datasheet only for a GPU that has one."""
    shares = {name: header for name, header in SHARES.items() if any(timing[name] is not None for timing in times)}
    if not shares:
        return
    several = len({timing["of"] for timing in times}) > 1
    rows = []
    for timing in times:
        label = f"{timing['phase']}, {timing['kernel']}"
        label = f"{timing['of']}, {label}" if several else label
        rows.append((label, *(percent(timing[name]) for name in shares)))
    yield Table((Column("utilization", "left"), *map(Column, shares.values())), tuple(rows))


def percent(share: float | None) -> str:
    """Return a share: '41 %', '0.8 %'; '-' without one."""
    if share is None:
        return "-"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"
