"""The memory of each GPU and of the host with llama.cpp, as its log has it: model, cache and compute buffers."""

from __future__ import annotations

from typing import NamedTuple

from ..engines.llamacpp.layout import LlamaCppLayout
from ..model import ModelSpec
from .fit import Device, devices_of
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
    return next((int(float(detail.quantity)) for detail in details if detail.name == name), None)


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
