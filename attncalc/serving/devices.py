"""The GPUs of a request that have layers of their own: their memory, and how the engine stores the
cache there.
"""

import dataclasses
from collections.abc import Hashable, Iterator, Sequence

from ..cost.cache import layer_cache_specs
from ..engines.base import CacheLayout
from ..engines.runtime import DeviceMemory
from ..model import ModelSpec
from ..quantity import Quantity, named
from ..records import NamedTuple
from .memory_budget import End, MemoryBudget, Reserve, memory_budget, weights_on_gpu
from .request import ResolvedRequest


class Device(NamedTuple):
    """A GPU, or a memory that an engine reported."""

    resolved: ResolvedRequest
    model: ModelSpec  # the layers on this device, as a model
    budget: MemoryBudget  # the device's memory
    layout: CacheLayout  # how the engine stores these layers' cache, in plain ints
    # The layout of which one request must fit for the engine to start, if it is not `layout`
    start: CacheLayout | None = None
    name: str = ""  # 'gpu_2' or 'stage_2' if devices have layers of their own, else ''
    number: int = 1  # its place among the devices of the request, counted from 1

    def slack(self, batch: int, context: int, end: End = "expected") -> int:
        """Return the bytes that `batch` sequences of `context` tokens leave free; negative if they
        do not fit.
        """
        return (
            self.budget.room(end)
            - self._extra_reserve(batch, context, end)
            - self.needed(batch, context)
        )

    def taken(self, batch: int, context: int) -> int:
        """Return the least bytes that weights, runtime memory and the sequences take; 0 if the
        memory was given.
        """
        usable = self.budget.usable
        if usable is not None:
            return int(usable) - self.slack(batch, context, "high")
        return 0

    def has_room(self, batch: int, context: int, end: End = "expected") -> bool:
        """Return whether there is room for the sequences, and the engine can run that many."""
        admitted = self.resolved.engine.admits(self.layout, batch, context)
        return admitted and self.slack(batch, context, end) >= 0

    def missing_blocks(self, context: int, end: End) -> tuple[int, int] | None:
        """Return the blocks that the engine needs to start and those it has; None if it has
        enough.
        """
        least = self.resolved.engine.least_blocks(self.layout)
        blocks = least and int(self.layout.pool(max(0, self.budget.room(end)), context).blocks or 0)
        if blocks < least:
            return (least, blocks)
        return None

    def needed(self, batch: int, context: int) -> int:
        """Return the bytes that `batch` sequences need, at least those that one needs for the
        engine to start.
        """
        needed = self.layout.needed(batch, context)
        if self.start:
            return max(needed, self.start.needed(1, context))
        return needed

    def kv_memory(self, batch: int, context: int, main: "Device") -> Quantity:
        """Return the bytes for the cache of that many sequences; the symbol names the device if it
        is not `main`.
        """
        name = "kv_memory"
        meaning = "bytes for the cache"
        if self.name != main.name:
            name = f"kv_memory_{self.name}"
            meaning = f"bytes for the cache on {self.name.replace('_', ' ')}"
        extra = self._extra_reserve(batch, context, "expected")
        if extra:
            name = f"{name}_then"
            meaning = f"{meaning}, less what a pass over these sequences takes"
        return named(max(0, self.budget.room() - extra), name, meaning)

    def _extra_reserve(self, batch: int, context: int, end: End) -> int:
        """Return the bytes that the runtime memory for `batch` sequences has beyond that for the
        requested ones.

        0 unless the engine's runtime memory depends on the batch and the context (`runtime_grows`).
        """
        budget = self.budget
        if (
            budget.reserve is None
            or budget.reserve_for is None
            or not self.resolved.engine.runtime_grows
        ):
            return 0
        return budget.reserve_for(batch, context).at(end) - budget.reserve.at(end)


class HostMemory(NamedTuple):
    """What llama.cpp has in host memory, whose size is known: layers, experts, the embedding,
    caches and inputs.

    If a GPU uses the same memory, what is on the GPU counts too: layers on the host save nothing on
    a Mac.
    """

    limit: int  # bytes of host memory
    weights: int  # bytes of the weights there
    layout: CacheLayout | None  # how the caches there are stored; None if all are on GPUs
    device: Device  # the first GPU, whose runtime memory has the buffer for inputs in host memory
    is_shared: bool = False  # whether the GPU's memory is a part of the limit

    def needed(self, batch: int, context: int) -> int:
        """Return the bytes that `batch` sequences of `context` tokens need on the host."""
        cache = int(self.layout.needed(batch, context)) if self.layout else 0
        reserve_for = self.device.budget.reserve_for
        inputs = _inputs(reserve_for(batch, context)) if reserve_for else 0
        return (
            self.weights
            + cache
            + inputs
            + (self.device.taken(batch, context) if self.is_shared else 0)
        )

    def has_room(self, batch: int, context: int) -> bool:
        return self.needed(batch, context) <= self.limit


def _inputs(reserve: Reserve) -> int:
    """Return the bytes of the compute buffer in host memory; 0 if the reserve was given."""
    return next(
        (int(d.quantity) for d in reserve.runtime.details if d.name == "host_compute_buffer"), 0
    )


def host_limit(resolved: ResolvedRequest) -> tuple[int, bool] | None:
    """Return the bytes of host memory, and whether the GPU's are among them; None if no size of it
    is known.
    """
    limit = resolved.engine.host_limit(resolved.args)
    if not resolved.whole_layers or resolved.share is None:
        return None
    if resolved.gpus == 1 and resolved.gpu and resolved.gpu.machine_memory:
        machine = resolved.gpu.machine_memory
        return min(machine, limit or machine), True
    if limit is None:
        return None
    return (limit, False)


def host_memory(resolved: ResolvedRequest, first: Device) -> HostMemory | None:
    """Return what is in host memory beside the `first` GPU; None if no size of it is known."""
    limit = host_limit(resolved)
    if not limit:
        return None
    size, includes_gpu = limit
    weights = _weights_on_host(resolved)
    # Metal maps the file for the GPU too: its bytes are in memory once
    if includes_gpu and first.budget.weights:
        both = int(weights_on_gpu(resolved, resolved.model).total)
        weights = min(weights, max(0, both - int(first.budget.weights.total)))
    return HostMemory(size, weights, _host_layout(resolved), first, includes_gpu)


def _host_layout(resolved: ResolvedRequest) -> CacheLayout | None:
    specs = layer_cache_specs(resolved.model.plain())
    return resolved.engine.host_layout(specs, resolved.args_without_slots)


def devices_of(resolved: ResolvedRequest) -> list[Device]:
    """Return one device per GPU, or per pipeline stage, that has its own layers; a single one if
    all are equal.
    """
    return list(each_device(resolved))


def devices_with_room(resolved: ResolvedRequest, batch: int, context: int) -> list[Device] | None:
    """Return the devices, or None if one has no room for the sequences, even with the most memory
    for the cache.

    The device with the most layers, which fills first, is computed first, and those after one
    without room are not computed.
    """
    devices: list[Device] = []
    for device in each_device(resolved, most_layers_first=True):
        if not device.has_room(batch, context, "high"):
            return None
        devices.append(device)
    return sorted(devices, key=lambda device: device.number)


def each_device(resolved: ResolvedRequest, *, most_layers_first: bool = False) -> Iterator[Device]:
    """Yield the devices, each of which is computed when it is asked for.

    `most_layers_first` puts those with the most layers, which fill first, before the others.
    """
    model = resolved.model
    engine = resolved.engine
    args = resolved.args_without_slots
    specs = layer_cache_specs(model.plain())
    whole = sharing_prefix(engine.layout(specs, args), resolved)
    if not resolved.whole_layers and (resolved.gpu is None or args.pp == 1):
        yield Device(resolved, model, memory_budget(resolved), whole)
        return
    kind = "gpu" if resolved.whole_layers else "stage"
    parts = engine.parts(model, resolved.args)
    start = None
    # it starts only if one request fits on each stage with all layers
    if engine.checks_all_layers(args):
        start = engine.layout(specs, dataclasses.replace(args, pp=1))
    # equal parts in the middle have equal budgets
    budgets: dict[tuple[int, bool, bool], MemoryBudget] = {}
    numbered = list(
        enumerate(zip(parts, layout_per_device(whole, len(parts)), strict=True), start=1)
    )
    if most_layers_first:
        numbered.sort(key=lambda numbered_part: -numbered_part[1][0].main.n_layers)
    for i, (part, part_layout) in numbered:
        first = i == 1
        last = i == len(parts)
        alike = _first_alike(part, model, numbered=resolved.whole_layers)
        place = (id(alike), first, last)
        if place not in budgets:
            budgets[place] = memory_budget(resolved, alike, first=first, last=last)
        yield Device(
            resolved, part, budgets[place], part_layout, start, name=f"{kind}_{i}", number=i
        )


def _first_alike(part: ModelSpec, model: ModelSpec, *, numbered: bool) -> ModelSpec:
    """Return the first part of the model that has the same contents. It keeps what was computed of
    it for all of them, and for all GPUs of a plan.

    `numbered` is whether the numbers of the layers matter: --n-cpu-moe moves experts by them.
    """

    def alike() -> ModelSpec:
        contents = part if numbered else _contents(part)
        return model.kept(("part", contents), lambda: part)

    return part.kept("alike", alike)


def _contents(part: ModelSpec) -> Hashable:
    """Return what the memory of a stage depends on: its layers and their schemes, but not the
    numbers of the layers.
    """
    quantization = part.quantization
    if not part.first_layer or quantization is None:
        return part
    schemes = []
    layer = part.first_layer
    for run in part.main.layers:
        matrices = [
            (role, matrix.name)
            for role, _, matrix in run.matrices_by_role(part.main.d_model, part.d_source)
        ]
        for number in range(layer, layer + run.count):
            schemes += [quantization.scheme_of(number, *matrix) for matrix in matrices]
        layer += run.count
    return dataclasses.replace(part, first_layer=1), tuple(schemes)


def sharing_prefix(layout: CacheLayout, resolved: ResolvedRequest) -> CacheLayout:
    """Return the layout in which the users' requests store their shared prefix once; unchanged if
    they do not.
    """
    tokens = resolved.request.shared_tokens
    sharing = layout.with_shared_prefix(tokens) if tokens else None
    return sharing or layout


def layout_per_device(whole: CacheLayout, devices: int) -> Sequence[CacheLayout]:
    """Return the layout of each device: its own (`parts`), or the same for all if the engine has
    only one.
    """
    if len(whole.parts) == devices:
        return whole.parts
    return (whole,) * devices


def device_memory(resolved: ResolvedRequest) -> tuple[DeviceMemory, ...]:
    """Return the memory of each GPU with layers of its own, and then of the host; () without such
    GPUs.

    Raises AttncalcError as `fit` does.
    """
    if not resolved.whole_layers or resolved.share is None:
        return ()
    batch = resolved.workload.batch
    context = resolved.workload.context
    rows = []
    compute_on_host = None
    for i, device in enumerate(devices_of(resolved)):
        budget = device.budget
        parts = {}
        details = {}
        if budget.reserve:
            parts = {part.name: int(part.expected) for part in budget.reserve.runtime.parts}
            details = {
                detail.name: int(detail.quantity) for detail in budget.reserve.runtime.details
            }
        row = DeviceMemory(
            name=f"{resolved.args.backend}{i}",
            layers=device.model.main.n_layers,
            model_buffer=int(budget.weights.total) if budget.weights else 0,
            kv_buffer=int(device.needed(batch, context)),
            compute_buffer=parts["compute_buffer"] + parts.get("draft_compute_buffer", 0)
            if parts
            else None,
            outside_buffers=parts["outside_buffers"] + parts.get("projector", 0) if parts else None,
        )
        rows.append(row)
        if i == 0:
            compute_on_host = details.get("host_compute_buffer")
    cache = _host_layout(resolved)
    host = DeviceMemory(
        name="host",
        layers=resolved.model.main.n_layers - sum(row.layers for row in rows),
        model_buffer=_weights_on_host(resolved),
        kv_buffer=int(cache.needed(batch, context)) if cache else 0,
        compute_buffer=compute_on_host,
        outside_buffers=None,
    )
    return (*rows, host)


def _weights_on_host(resolved: ResolvedRequest) -> int:
    """Return the bytes of the weights on the host: its layers and tables, and the experts that GPUs
    do not have.
    """
    engine = resolved.engine
    args = resolved.args

    def size(part: ModelSpec) -> int:
        return int(weights_on_gpu(resolved, part).total)

    host = engine.on_host(resolved.model, args)
    if host.stored is not None and host.stored.contents:
        return size(host)
    return size(host) + sum(
        size(part) - size(engine.held(part, args)) for part in engine.parts(resolved.model, args)
    )
