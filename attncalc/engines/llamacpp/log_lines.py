"""The lines that llama.cpp prints about its memory: caches, model and compute buffers, and the
table of all devices.
"""

from collections.abc import Iterator, Mapping, Sequence

from ...hardware import Gpu
from ...records import Keeper, dataclass
from ..runtime import DeviceMemory, RuntimeFacts
from .buffers import TYPES, Buffer, StateRows, stream_cells
from .compute_buffer import ComputeBuffer
from .options import LlamacppArgs
from .placement import block_count, float32, placement_of
from .tensors import model_buffers

_MIB = 2**20
# The buffer of compressed attention for the whole context, which no layer has.
_NO_LAYERS = Buffer("kv", "full attention", 0, 0, 0, windowed=False)
_DSV4_BUFFERS = {"csa": "CSA compressed", "hca": "HCA compressed", "indexer": "lightning-indexer"}
# What llama.cpp leaves out of the names of GPUs.
_VENDORS = ("NVIDIA ", "GeForce ", "Tesla ", "AMD ", "Radeon ", "Instinct ")
_HEADER_FORM = "{}   {}    {}   {}   {}   {}    {}"
_GPU_FORM = "{} = {} + ({} = {} + {} + {}) + {}"
_HOST_FORM = "{}   {}    {} = {} + {} + {}    {}"
_HEADER = (
    "memory breakdown [MiB]",
    "total",
    "free",
    "self",
    "model",
    "context",
    "compute",
    "unaccounted",
)


def mib(size: int, width: int = 7) -> str:
    """Return `size` as llama.cpp prints it: MiB from a 32-bit float, by %7.2f."""
    return f"{float32(size) / _MIB:{width}.2f}"


@dataclass(frozen=True)
class Start(Keeper):
    """A start of the server, and the lines of its log about the caches."""

    args: LlamacppArgs
    buffers: tuple[Buffer, ...]  # the buffers of cells, of all devices together
    states: StateRows | None  # the recurrent states; None without such layers
    window: int | None  # tokens of the sliding window; None if no buffer has one
    layers: int  # layers of the model
    # The buffers of each device by its name, the host first; {} without a known GPU
    devices: Mapping[str, tuple[Buffer, ...]]
    draft: tuple[Buffer, ...] = ()  # the buffer of the drafter's context; () without one
    # whether each slot has a stream, also with --kv-unified: compressed attention
    per_slot: bool = False

    def streams(self, slots: int) -> int:
        """Return the streams of cells of so many slots."""
        if self.per_slot:
            return slots
        return self.args.streams(slots)

    def stream_cells(self, *, batch: int, slots: int, context: int) -> tuple[int, int]:
        """Return the cells of one stream (`buffers.stream_cells`)."""
        return stream_cells(
            self.args,
            self.window,
            batch=batch,
            slots=slots,
            context=context,
            per_slot=self.per_slot,
        )

    def lines(self, context: int) -> tuple[str, ...]:
        """Return the lines of a start with slots of `context` tokens each. Every device of a
        request asks for them.
        """
        return self.kept(context, lambda: tuple(self._lines(context)))

    def _lines(self, context: int) -> Iterator[str]:
        args = self.args
        slots = self.args.slots
        streams = self.streams(slots)
        full, windows = map(
            int, self.stream_cells(batch=args.whole_contexts, slots=slots, context=context)
        )
        k_type, v_type = (TYPES[kv_type.name] for kv_type in args.types)
        if not args.release.fork:
            yield f"llama_context: n_ctx                 = {args.streams(slots) * full}"
        buffers = self.buffers
        if self.per_slot:
            yield "llama_kv_cache_dsv4: creating DSV4 raw KV cache"
            buffers = (_NO_LAYERS, *buffers)
        elif self.window and all(buffer.windowed for buffer in buffers):  # LFM2 with a window
            buffers = (_NO_LAYERS, *buffers)
        for buffer in buffers:
            cells = int(buffer.cells(full, windows))
            k = streams * cells * buffer.cell_k
            v = streams * cells * (int(buffer.cell) - buffer.cell_k)
            sizes = f"K ({k_type}): {mib(k)} MiB, V ({v_type}): {mib(v)} MiB"
            if args.release.fork:
                # a latent; the real line continues with kv^T, in a format that changed between
                # versions
                if not v:
                    sizes = f"c^KV ({k_type}): {mib(k)} MiB"
                yield f"llama_new_context_with_model: KV self size  = {mib(k + v)} MiB, {sizes}"
                continue
            yield from self._creating(buffer, cells, full)
            for device, held in self.devices.items():
                for part in (part for part in held if part.name == buffer.name):
                    size = mib(streams * cells * int(part.cell), width=8)
                    yield f"llama_kv_cache: {device:>10} KV buffer size = {size} MiB"
            yield (
                f"llama_kv_cache: size = {mib(k + v)} MiB ({cells:6d} cells, {buffer.layers:3d} "
                f"layers, {slots:2d}/{streams} seqs), {sizes}"
            )
        if self.states:  # ik_llama.cpp has none
            yield from self._state_lines(self.states)
        yield from _draft_lines(args, self.draft, streams * full)

    def _creating(self, buffer: Buffer, cells: int, full: int) -> Iterator[str]:
        """Yield what llama.cpp prints before it allocates a buffer, if there are several."""
        if buffer.name in _DSV4_BUFFERS and self.per_slot:
            kind = _DSV4_BUFFERS[buffer.name]
            pools = int(buffer.pools(full))
            yield f"llama_kv_cache_dsv4: creating DSV4 {kind} KV cache, size = {pools} cells"
        elif self.window:
            kind = "    SWA" if buffer.windowed else "non-SWA"
            yield f"llama_kv_cache_iswa: creating {kind} KV cache, size = {cells} cells"
        elif len(self.buffers) > 1 and not (self.states and buffer.name == "kv"):
            kind = "indexer" if buffer.name == "indexer" else "main"
            memory = "memory_hybrid_idx" if self.states else "kv_cache_dsa"
            yield f"llama_{memory}: creating {kind} KV cache, size = {cells} cells"

    def _state_lines(self, states: StateRows) -> Iterator[str]:
        args = self.args
        slots = args.slots
        rows = args.state_rows
        for ring in states.compressors:
            yield (
                f"llama_dsv4_comp_state: {ring.name} ratio = {ring.size}, state = {ring.ring} x "
                f"{ring.width}, streams "
                f"= {slots}, rs_seq = {rows - 1}, layers = {ring.layers}, size = "
                f"{mib(rows * slots * ring.bytes)} MiB"
            )
        if not states.compressors:
            r, s = (rows * slots * part for part in (states.convolution, states.state))
            yield (
                f"llama_memory_recurrent: size = {mib(r + s)} MiB ({slots:6d} cells, "
                f"{block_count(self.layers, args):3d} "
                f"layers, {slots:2d} seqs {rows - 1:2d} rs_seq), R (f32): {mib(r)} MiB, "
                f"S (f32): {mib(s)} MiB, P (f32):    0.00 MiB"
            )


def _draft_lines(args: LlamacppArgs, buffers: Sequence[Buffer], cells: int) -> Iterator[str]:
    """Yield the lines about the drafter's context, which has the cells of all slots."""
    k_type, v_type = (TYPES[kv_type.name] for kv_type in args.draft_types)
    for buffer in buffers:
        k = cells * buffer.cell_k
        v = cells * (int(buffer.cell) - buffer.cell_k)
        yield (
            "load_model: "
            f"{'loading draft model' if args.speculative_model else 'creating MTP draft context'}"
        )
        yield (
            f"llama_kv_cache: size = {mib(k + v)} MiB ({cells:6d} cells, {buffer.layers:3d} "
            f"layers,  1/1 seqs), K ({k_type}): {mib(k)} MiB, V ({v_type}): {mib(v)} MiB"
        )


def buffer_lines(facts: RuntimeFacts[LlamacppArgs], buffer: ComputeBuffer) -> Iterator[str]:
    """Yield the lines on layers and model buffers, and on the compute buffers of this GPU and of
    the host.
    """
    args = facts.args
    layers = facts.whole.main.n_layers
    if args.on_cpu:
        yield f"load_tensors: {'CPU':>12} model buffer size = {mib(facts.weights, width=8)} MiB"
        yield (
            f"sched_reserve: {'CPU':>10} compute buffer size = "
            f"{mib(int(buffer.expected), width=8)} MiB"
        )
        return
    yield (
        "load_tensors: offloaded "
        f"{placement_of(layers, args).on_gpus}/{block_count(layers, args) + 1} layers to GPU"
    )
    sizes = model_buffers(facts.whole, args)
    name = f"{args.backend}{0 if facts.first else args.gpus - 1}"
    is_known = facts.first or facts.last
    if not sizes and is_known:
        sizes = {name: facts.weights}
    for device, size in sizes.items():
        yield f"load_tensors: {device:>12} model buffer size = {mib(size, width=8)} MiB"
    if is_known:
        yield (
            f"sched_reserve: {name:>10} compute buffer size = "
            f"{mib(int(buffer.expected), width=8)} MiB"
        )
        yield (
            f"sched_reserve: {'CUDA_Host':>10} compute buffer size = "
            f"{mib(int(buffer.host), width=8)} MiB"
        )


def breakdown_lines(rows: Sequence[DeviceMemory], gpu: Gpu) -> Iterator[str]:
    """Yield the table that llama.cpp prints at the start and at exit: the memory of each device in
    MiB.

    What is outside the buffers is unaccounted, and an estimate. Without compute buffers there are
    no lines.

    Source: common_memory_breakdown_print (common/fit.cpp).
    """
    if not rows or rows[0].compute_buffer is None:
        return
    cells = [_HEADER, *(_breakdown(row, gpu) for row in rows)]
    widths = [max(map(len, texts)) for texts in zip(*cells, strict=True)]
    forms = [_HEADER_FORM, *[_GPU_FORM] * (len(rows) - 1), _HOST_FORM]
    for form, (name, *texts) in zip(forms, cells, strict=True):
        padded = (text.rjust(width) for text, width in zip(texts, widths[1:], strict=True))
        yield f"common_memory_breakdown_print: | {name.ljust(widths[0])} | {form.format(*padded)} |"


def _breakdown(row: DeviceMemory, gpu: Gpu) -> Sequence[str]:
    """Return the cells of one row. Sizes are rounded down."""
    buffers = row.model_buffer, row.kv_buffer, row.compute_buffer or 0
    sizes = [str(size // _MIB) for size in (sum(buffers), *buffers)]
    if row.outside_buffers is None:
        return ("  - Host", "", "", *sizes, "")
    title = gpu.title
    for vendor in _VENDORS:
        title = title.removeprefix(vendor)
    outside = row.outside_buffers
    free = gpu.memory - sum(buffers) - outside
    return (
        f"  - {row.name} ({title})",
        str(gpu.memory // _MIB),
        str(free // _MIB),
        *sizes,
        str(outside // _MIB),
    )
