"""The table and the JSON of the memory of each GPU and of the host (llama.cpp)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..engines.llamacpp.options import LlamacppArgs
from ..serving.fit import FitResult
from ..serving.request import ResolvedRequest
from ..units import BYTES, column, count
from .report import Column, Table

if TYPE_CHECKING:
    from ..serving.device_memory import DeviceMemory

_PARTS = ("model", "cache", "compute", "outside", "total")


def is_divided(resolved: ResolvedRequest) -> bool:
    """Return whether the request says which layers or caches go to which device."""
    args = resolved.args
    if not isinstance(args, LlamacppArgs):
        return False
    return args.n_gpu_layers is not None or bool(args.n_cpu_moe or args.tensor_split or args.no_kv_offload)


def _rows(result: FitResult) -> tuple[DeviceMemory, ...]:
    if not result.resolved.whole_layers:
        return ()
    from ..serving.device_memory import device_memory

    return device_memory(result.resolved)


def devices_table(result: FitResult) -> tuple[Table, ...]:
    """Return one row per GPU and one of the host, with the buffers of each; none for other engines."""
    rows = _rows(result)
    if not rows:
        return ()
    sizes = [getattr(row, part) for row in rows for part in _PARTS]
    unit, cells = column([size or 0 for size in sizes], BYTES)
    shown = ["" if size is None else cell for size, cell in zip(sizes, cells, strict=True)]
    columns = (
        Column("device", "left"),
        Column("layers"),
        *(Column(f"{name}\n{unit}") for name in ("model", "KV cache", "compute", "outside", "total")),
    )
    width = len(_PARTS)
    table_rows = tuple((row.name, count(row.layers), *shown[i * width : (i + 1) * width]) for i, row in enumerate(rows))
    return (Table(columns, table_rows),)


def devices_facts(result: FitResult) -> list[dict[str, Any]]:
    """Return the rows for JSON, in bytes; none for other engines."""
    return [_facts(row) for row in _rows(result)]


def _facts(row: DeviceMemory) -> dict[str, Any]:
    return {
        "name": row.name,
        "layers": row.layers,
        "model_buffer": row.model,
        "kv_buffer": row.cache,
        "compute_buffer": row.compute,
        "outside_buffers": row.outside,
        "total": row.total,
    }


def host_notes(resolved: ResolvedRequest) -> list[str]:
    """Return what is in host memory, which no GPU's figures include; [] for other engines."""
    notes = []
    if resolved.whole_layers:
        notes.append("The embedding stays in host memory: no GPU's figures include it.")
    if isinstance(resolved.args, LlamacppArgs) and resolved.args.no_kv_offload:
        notes.append("The cache is in host memory, whose size attncalc does not know: it limits nothing here.")
    return notes
