"""The memory of each GPU and of the host with llama.cpp, as its log has it: model, cache and compute buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..engines.llamacpp.layout import LlamaCppLayout
from ..hardware import Gpu
from ..model import ModelSpec
from .devices import Device, devices_of
from .offload import held_layers, on_host, spread_over_gpus
from .request import ResolvedRequest
from .weights import weights


class DeviceMemory(NamedTuple):
    """The expected bytes on one device.

    Attributes:
        name: Its name in the log: 'CUDA0', or 'host'.
        layers: The layers that it has, without the output layer.
        model: Bytes of its weights. A GGUF file is mapped: the host's are those from its first to its last tensor.
        cache: Bytes of the cache of the requested sequences.
        compute: Bytes of its compute buffer; None if the reserve was given.
        outside: Bytes outside the buffers; None on the host, and if the reserve was given.
    """

    name: str
    layers: int
    model: int
    cache: int
    compute: int | None
    outside: int | None

    @property
    def total(self) -> int:
        """All of them."""
        return self.model + self.cache + (self.compute or 0) + (self.outside or 0)


def device_memory(resolved: ResolvedRequest) -> tuple[DeviceMemory, ...]:
    """Return the memory of each GPU, and then of the host; () for another engine, or without a GPU's memory.

    Raises AttncalcError as `fit` does.
    """
    if not resolved.whole_layers or resolved.share is None:
        return ()
    devices = devices_of(resolved)
    rows = [_on_gpu(i, device, resolved) for i, device in enumerate(devices)]
    host = on_host(resolved.model, resolved.gpus, resolved.args)
    layout = devices[0].layout
    whole = layout.whole or layout if isinstance(layout, LlamaCppLayout) else None
    cache = whole.host.needed(resolved.workload.batch, resolved.workload.context) if whole and whole.host else 0
    row = DeviceMemory(
        name="host",
        layers=resolved.model.main.n_layers - sum(row.layers for row in rows),
        model=_host_weights(host, resolved),
        cache=int(cache),
        compute=_detail(devices[0], "host_compute_buffer"),
        outside=None,
    )
    return (*rows, row)


def _on_gpu(number: int, device: Device, resolved: ResolvedRequest) -> DeviceMemory:
    budget = device.budget
    parts = {part.name: int(part.expected) for part in budget.reserve.runtime.parts} if budget.reserve else {}
    return DeviceMemory(
        name=f"CUDA{number}",
        layers=device.model.main.n_layers,
        model=int(budget.weights.total) if budget.weights else 0,
        cache=int(device.needed(resolved.workload.batch, resolved.workload.context)),
        compute=parts.get("compute_buffer"),
        outside=parts.get("outside_buffers"),
    )


def _detail(device: Device, name: str) -> int | None:
    details = device.budget.reserve.runtime.details if device.budget.reserve else ()
    return next((int(detail.quantity) for detail in details if detail.name == name), None)


def _host_weights(host: ModelSpec, resolved: ResolvedRequest) -> int:
    """Return the bytes of the weights on the host: its layers and tables, and the experts that GPUs do not have."""

    def size(part: ModelSpec) -> int:
        found = weights(
            resolved.model,
            part=part,
            in_dtype=resolved.workload.dtype,
            weights_dtype=resolved.weights_dtype,
            engine=resolved.engine,
            args=resolved.args,
        )
        return int(found.total)

    if host.stored is not None and host.stored.contents:
        return size(host)
    parts = spread_over_gpus(resolved.model, resolved.gpus, resolved.args)
    return size(host) + sum(size(part) - size(held_layers(part, resolved.args)) for part in parts)


_MIB = 2**20
_VENDORS = ("NVIDIA ", "GeForce ", "Tesla ", "AMD ", "Radeon ", "Instinct ")
"""What llama.cpp leaves out of the names of GPUs."""
_HEADER_FORM = "{}   {}    {}   {}   {}   {}    {}"
_GPU_FORM = "{} = {} + ({} = {} + {} + {}) + {}"
_HOST_FORM = "{}   {}    {} = {} + {} + {}    {}"
_HEADER = ("memory breakdown [MiB]", "total", "free", "self", "model", "context", "compute", "unaccounted")


def breakdown_lines(rows: Sequence[DeviceMemory], gpu: Gpu) -> Iterator[str]:
    """Yield the table that llama.cpp prints at the start and at exit: the memory of each device in MiB.

    What is outside the buffers is unaccounted, and an estimate. Without compute buffers there are no lines.

    Source: common_memory_breakdown_print (common/fit.cpp).
    """
    if not rows or rows[0].compute is None:
        return
    cells = [_HEADER, *(_breakdown(row, gpu) for row in rows)]
    widths = [max(map(len, texts)) for texts in zip(*cells, strict=True)]
    forms = [_HEADER_FORM, *[_GPU_FORM] * (len(rows) - 1), _HOST_FORM]
    for form, (name, *texts) in zip(forms, cells, strict=True):
        padded = (text.rjust(width) for text, width in zip(texts, widths[1:], strict=True))
        yield f"common_memory_breakdown_print: | {name.ljust(widths[0])} | {form.format(*padded)} |"


def _breakdown(row: DeviceMemory, gpu: Gpu) -> Sequence[str]:
    """Return the cells of one row. Sizes are rounded down."""
    used = row.model + row.cache + (row.compute or 0)
    sizes = [str(size // _MIB) for size in (used, row.model, row.cache, row.compute or 0)]
    if row.outside is None:
        return ("  - Host", "", "", *sizes, "")
    title = gpu.title
    for vendor in _VENDORS:
        title = title.removeprefix(vendor)
    free = gpu.memory - used - row.outside
    return (f"  - {row.name} ({title})", str(gpu.memory // _MIB), str(free // _MIB), *sizes, str(row.outside // _MIB))
