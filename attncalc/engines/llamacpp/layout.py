"""llama.cpp: a context of fixed size, allocated at start-up, as cells in one buffer per kind of layer.

A cell is one token's K and V in every layer of a buffer. Contexts are padded to a multiple of 256 cells. Each
sequence has its own cells (a stream), or all sequences share them (--kv-unified). Layers with a sliding window have
a buffer of their own (iSWA), and so have an indexer's keys (DSA). Recurrent states are f32, one row per sequence.

Read from the llama.cpp of llama-cpp-python 0.3.36: src/llama-context.cpp, llama-kv-cache.cpp,
llama-kv-cache-iswa.cpp, llama-memory-recurrent.cpp.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ...attention import CacheSpec, Chunked
from ...errors import AttncalcError
from ...quantity import (
    Ratio,
    exact_div,
    most,
    named,
    quantity,
    ratio,
    renamed,
    symbol,
    symbol_like,
)
from ...search import first_true
from ...units import BYTES, NO_UNIT, DType, count, dtype, truncate
from ..base import NO_LIMIT, Bound, Detail, Pool
from ..pipeline import LayerCacheSpec, layer_by_layer, merge_equal, sum_over_layers
from .cells import PADDING, padded, window_cells
from .limits import DEFAULT_BATCH, DEFAULT_UBATCH, MAX_SEQUENCES
from .options import LlamacppArgs
from .placement import HOST, Placement, float32, place_layers, placement_of
from .versions import VERSION, LlamaCppVersion, llamacpp_version

TYPES = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"} | {
    name: name for name in ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")
}
"""The types that --cache-type-k and --cache-type-v accept, as the log prints them."""
CHUNK = 8192
"""The chunk size that the loader of Llama 4 sets."""
_STATE_ROLES = ("convolution", "state")
_USE_IDEAL = "use --engine ideal for a lower bound"


class Buffer(NamedTuple):
    """One llama_kv_cache.

    Attributes:
        name: "kv", "swa" (layers with a sliding window) or "indexer".
        label: its layers, for people.
        layers: how many layers it has.
        cell: bytes of one cell in all these layers.
        cell_k: the bytes of K among them.
        windowed: whether it has cells only for a sliding window.
    """

    name: str
    label: str
    layers: int
    cell: int
    cell_k: int
    windowed: bool

    @property
    def named_cell(self) -> int:
        """`cell` under a name of its own, because two buffers may use one symbol for different numbers."""
        return renamed(self.cell, f"{self.name}_bytes_per_cell", f"bytes of a cell, {self.label}")


class StateRows(NamedTuple):
    """One llama_memory_recurrent: the recurrent states of one sequence.

    Attributes:
        row: bytes of one row, in all layers.
        convolution: the bytes of convolutions among them (R in the log).
        state: the bytes of all other states (S in the log).
    """

    row: int
    convolution: int
    state: int


@dataclass(frozen=True)
class LlamaCppLayout:
    """The cells and state rows of all GPUs together, or of one of them.

    Attributes:
        buffers: the buffers of cells.
        states: the recurrent states; None without such layers.
        window: tokens of the sliding window; None if no buffer has one.
        types: dtypes of K and of V.
        sequences: slots of the server (-np).
        ubatch: tokens of a micro-batch (-ub).
        unified: whether all sequences share one stream of cells.
        swa_full: whether sliding windows are stored like full attention.
        rows: state rows per sequence: 1, and one per speculative token that can be rolled back.
        layers: layers of the model.
        release: the version, and what depends on it.
        gpu_buffers: the buffers of each GPU, whose sizes the log has; () without a known GPU.
        host: the layout of the layers whose cache is on the host; None without such layers.
        notes: see CacheLayout, also for bound, source and max_sequences.
        parts: the layout of each GPU, if there are several.
        whole: if this is the layout of one of several GPUs, the layout of all.
    """

    buffers: tuple[Buffer, ...]
    states: StateRows | None
    window: int | None
    types: tuple[DType, DType]
    sequences: int
    ubatch: int
    unified: bool
    swa_full: bool
    rows: int
    layers: int
    release: LlamaCppVersion
    notes: tuple[str, ...]
    parts: tuple[LlamaCppLayout, ...] = ()
    whole: LlamaCppLayout | None = None
    gpu_buffers: tuple[tuple[Buffer, ...], ...] = ()
    host: LlamaCppLayout | None = None
    max_sequences: int | None = MAX_SEQUENCES
    bound: Bound = "reserved"
    source: str = (
        "llama.cpp, src/llama-context.cpp, llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-memory-recurrent.cpp"
    )

    @property
    def version(self) -> str:
        return self.release.name

    @property
    def facts(self) -> tuple[str, ...]:
        version = "ik_llama.cpp" if self.release.fork else f"as in llama-cpp-python {VERSION}"
        if self.release.name.startswith("b"):
            version = f"build {self.release.name}"
        k, v = (TYPES[kv_type.name] for kv_type in self.types)
        facts = [version, f"n_seq_max {self.sequences}", f"K {k}, V {v}"]
        if self.window:
            facts.append("swa_full true" if self.swa_full else f"n_ubatch {self.ubatch}")
        return tuple(facts) if self.release.fork else (*facts, f"kv_unified {'true' if self.unified else 'false'}")

    def needed(self, batch: int, context: int) -> int:
        """Return the bytes with -np `batch` (or with `sequences`, if that is more) and `context` cells for each."""
        sequences = max(batch, self.sequences)
        full_cells, window_cells = self._cells_per_stream(batch, sequences, context)
        states = sequences * self._state_bytes_per_sequence
        return self._streams(sequences) * self._stream_bytes(full_cells, window_cells) + states

    def with_shared_prefix(self, tokens: int) -> None:
        return None

    def pool(self, memory: int, context: int) -> Pool:
        """Return what fits. Its tokens are the largest n_ctx (-c) with `sequences` slots.

        Its log lines are those of a start on all GPUs with `sequences` slots of `context` tokens each.
        """
        memory = symbol("kv_memory", memory, "bytes for the cache")
        tokens = symbol("T", context, "tokens of a sequence")
        full_cells, window_cells = self._cells_per_stream(1, 1, tokens)
        state_bytes = self._state_bytes_per_sequence
        sequence_bytes = quantity(self._stream_bytes(full_cells, window_cells) + state_bytes)
        divisor = named(sequence_bytes, "kv_bytes_per_sequence", "bytes of a sequence")
        concurrency = self._shared_concurrency(memory, context) if self.unified else ratio(memory, divisor)
        # a GPU may have the output layer only, with no cache: then the sequences have no other limit
        if not sequence_bytes or concurrency.numerator > MAX_SEQUENCES * concurrency.denominator:
            concurrency = ratio(symbol("LLAMA_MAX_SEQ", MAX_SEQUENCES, "sequences that llama.cpp supports"), 1)
        whole = self.whole or self
        only_states = sequence_bytes and not whole.buffers
        n_ctx = memory * tokens // divisor if only_states else self._largest_n_ctx(memory)
        details = self._details(context, sequence_bytes, full_cells, window_cells)
        return Pool(None, quantity(n_ctx), concurrency, tuple(details), whole._lines_of(context))

    def _details(self, context: int, sequence_bytes: int, full_cells: int, window_cells: int) -> Iterator[Detail]:
        here = ", on this GPU" if self.whole else ""
        label = f"one sequence of {count(context)} tokens{here}"
        yield Detail("kv_bytes_per_sequence", label, quantity(sequence_bytes), BYTES)
        if self.buffers:
            yield Detail("kv_cells", "cells of that sequence", quantity(full_cells), NO_UNIT)
        if self.window and not self.swa_full:
            yield Detail("swa_cells", "cells of its sliding windows", quantity(window_cells), NO_UNIT)
        # with a single buffer a cell is a token in all layers
        single = len((self.whole or self).buffers) == 1
        for buffer in self.buffers:
            name = "kv_bytes_per_token" if single else f"{buffer.name}_bytes_per_cell"
            yield Detail(name, f"one cell, {buffer.label}{here}", quantity(buffer.cell), BYTES)
        if self.states:
            label = f"one sequence's states{here}"
            yield Detail("state_bytes_per_sequence", label, quantity(self._state_bytes_per_sequence), BYTES)

    @property
    def _state_bytes_per_sequence(self) -> int:
        if self.states is None:
            return 0
        row = self.states.row
        if self.rows == 1:
            return row
        rows = symbol_like(row, "rows", self.rows, "rows of a sequence: 1 + n_rs_seq")
        return rows * renamed(row, "state_row_bytes", "bytes of one row of states")

    def _streams(self, sequences: int) -> int:
        return 1 if self.unified else sequences

    def _cells_per_stream(self, batch: int, sequences: int, context: int) -> tuple[int, int]:
        """Return the cells of one stream: of buffers for the whole context, and of those for a sliding window."""
        shared = (sequences if self.release.fork else batch) * context
        full_cells = padded(shared if self.unified else context)
        if self.window is None or self.swa_full:
            return full_cells, full_cells
        ubatch = symbol_like(context, "n_ubatch", self.ubatch, "tokens of a micro-batch (-ub)")
        return full_cells, window_cells(full_cells, self._window_tokens(self.window, sequences), ubatch)

    def _window_tokens(self, window: int, sequences: int) -> int:
        """Return the tokens of all windows in one stream."""
        return window * (sequences if self.unified else 1)

    def _stream_bytes(self, full_cells: int, window_cells: int) -> int:
        if len(self.buffers) == 1 and not self.buffers[0].windowed:
            return full_cells * self.buffers[0].cell
        return sum((window_cells if b.windowed else full_cells) * b.named_cell for b in self.buffers)

    def _largest_n_ctx(self, memory: int) -> int:
        """Return the most cells of all streams together that fit, after the cells of windows and the states."""
        sequences: int = self.sequences
        if sequences > 1:
            sequences = symbol("sequences", sequences, "sequences (-np)")
        streams = 1 if self.unified else sequences
        free = memory
        if self.states:
            state_bytes = self._state_bytes_per_sequence
            free -= sequences * named(state_bytes, "state_bytes_per_sequence", "bytes of a sequence's states")
        if not self.buffers:  # a GPU whose layers have states only
            return NO_LIMIT if free >= 0 else quantity(0)
        full_cell, window_cell = self._stream_bytes(1, 0), self._stream_bytes(0, 1)
        if self.window is None or self.swa_full:
            return _padded_cells(free, streams, full_cell + window_cell)
        ubatch = symbol("n_ubatch", self.ubatch, "tokens of a micro-batch (-ub)")
        largest_window = padded(self._window_tokens(self.window, sequences) + ubatch)
        if not full_cell:  # a GPU whose layers have sliding windows only
            fits = free >= streams * largest_window * window_cell
            return NO_LIMIT if fits else _padded_cells(free, streams, window_cell)
        # Once the context is longer than the window's buffer, that buffer no longer grows.
        n_ctx = _padded_cells(free - streams * (largest_window * window_cell), streams, full_cell)
        if n_ctx >= streams * largest_window:
            return n_ctx
        return _padded_cells(free, streams, full_cell + window_cell)

    def _shared_concurrency(self, memory: int, context: int) -> Ratio:
        """Return the most sequences that fit if all share their cells: by search, since they share the padding."""
        limit = MAX_SEQUENCES + 2  # above MAX_SEQUENCES, to which `pool` cuts the result
        batch = first_true(lambda n: n == limit or self.needed(n, context) > memory, 0, limit) - 1
        needed = named(self.needed(batch, context) if batch else 0, "kv_bytes_of_B", "bytes of that many sequences")
        return Ratio(batch, 1, most("B", batch, "concurrent sequences that fit", needed, memory).formula)

    def _lines_of(self, context: int) -> tuple[str, ...]:
        """Return the log lines, which are about all devices: each of them asks for the same ones."""
        if context not in self._kept_lines:
            self._kept_lines[context] = tuple(self._log_lines(context))
        return self._kept_lines[context]

    @cached_property
    def _kept_lines(self) -> dict[int, tuple[str, ...]]:
        return {}

    def _log_lines(self, context: int) -> Iterator[str]:
        """Yield the lines that a start with `sequences` slots of `context` tokens each prints about the cache."""
        streams = self._streams(self.sequences)
        full_cells, window_cells = map(int, self._cells_per_stream(self.sequences, self.sequences, context))
        k_type, v_type = (TYPES[kv_type.name] for kv_type in self.types)
        if self.release.fork:
            yield from self._fork_log_lines(full_cells, k_type, v_type)
            return
        yield f"llama_context: n_ctx                 = {streams * full_cells}"
        for buffer in self.buffers:
            cells = window_cells if buffer.windowed else full_cells
            if self.window:
                kind = "    SWA" if buffer.windowed else "non-SWA"
                yield f"llama_kv_cache_iswa: creating {kind} KV cache, size = {cells} cells"
            elif len(self.buffers) > 1:
                kind = "indexer" if buffer.name == "indexer" else "main"
                yield f"llama_kv_cache_dsa: creating {kind} KV cache, size = {cells} cells"
            yield from self._kv_buffer_lines(buffer.name, streams * cells)
            k, v = streams * cells * buffer.cell_k, streams * cells * (int(buffer.cell) - buffer.cell_k)
            yield (
                f"llama_kv_cache: size = {mib(k + v)} MiB ({cells:6d} cells, {buffer.layers:3d} layers, "
                f"{self.sequences:2d}/{streams} seqs), K ({k_type}): {mib(k)} MiB, V ({v_type}): {mib(v)} MiB"
            )
        if self.states:
            r, s = (self.rows * self.sequences * part for part in (self.states.convolution, self.states.state))
            yield (
                f"llama_memory_recurrent: size = {mib(r + s)} MiB ({self.sequences:6d} cells, {self.layers:3d} "
                f"layers, {self.sequences:2d} seqs {self.rows - 1:2d} rs_seq), R (f32): {mib(r)} MiB, "
                f"S (f32): {mib(s)} MiB, P (f32):    0.00 MiB"
            )

    def _kv_buffer_lines(self, name: str, cells: int) -> Iterator[str]:
        """Yield the line about that buffer of each device that has a part of it, the host first."""
        devices = [(f"CUDA{i}", buffers) for i, buffers in enumerate(self.gpu_buffers)]
        if self.host:
            devices.insert(0, ("CPU", self.host.buffers))
        for device, buffers in devices:
            for buffer in buffers:
                if buffer.name == name:
                    size = mib(cells * int(buffer.cell), width=8)
                    yield f"llama_kv_cache: {device:>10} KV buffer size = {size} MiB"

    def _fork_log_lines(self, cells: int, k_type: str, v_type: str) -> Iterator[str]:
        for buffer in self.buffers:
            k, v = cells * buffer.cell_k, cells * (int(buffer.cell) - buffer.cell_k)
            sizes = f"K ({k_type}): {mib(k)} MiB, V ({v_type}): {mib(v)} MiB"
            if not v:  # a latent; the real line continues with kv^T, in a format that changed between versions
                sizes = f"c^KV ({k_type}): {mib(k)} MiB"
            yield f"llama_new_context_with_model: KV self size  = {mib(k + v)} MiB, {sizes}"


def layout(specs: Sequence[LayerCacheSpec], args: LlamacppArgs) -> LlamaCppLayout:
    """Return how llama.cpp stores those layers. Raises AttncalcError if it does not support them or the arguments."""
    release = llamacpp_version(args.engine_version)
    types = (args.kv_dtype_k or args.kv_dtype, args.kv_dtype_v or args.kv_dtype)
    _check_args(args, types)
    merged = merge_equal(specs)
    cache_specs = [cached for spec in merged for cached in spec.cached]
    if not cache_specs:
        raise AttncalcError(
            "this model has no cache", "it is an encoder: 'attncalc memory' computes its activation memory"
        )
    for cached in cache_specs:
        _check_supported(cached, types, release.fork)
    window, notes = _window(cache_specs, release.fork, is_known=args.swa_full or args.blocks is not None)
    states = _state_rows(merged)
    if args.speculative_tokens and not states:
        raise AttncalcError(
            "--speculative-tokens has no effect on a model without recurrent states", "leave --speculative-tokens out"
        )
    whole = LlamaCppLayout(
        buffers=tuple(_buffers(merged, types, window)),
        states=states,
        window=window,
        types=types,
        sequences=args.sequences or 1,
        ubatch=args.ubatch or DEFAULT_UBATCH,
        unified=args.kv_unified or release.fork,
        swa_full=args.swa_full,
        rows=1 + args.speculative_tokens,
        layers=sum(spec.layers for spec in specs),
        release=release,
        notes=(*notes, *_notes(cache_specs, args, window, release)),
    )
    layers = layer_by_layer(specs)
    placed = placement_of(len(layers), args)
    if args.device_memory is None and args.gpus == 1:  # without a GPU nothing is divided
        return whole
    if args.gpus == 1 and not placed.is_partial and not args.no_kv_offload:
        return dataclasses.replace(whole, gpu_buffers=(whole.buffers,))
    return _divided(whole, layers, placed, types, no_kv_offload=args.no_kv_offload)


def _divided(
    whole: LlamaCppLayout,
    layers: Sequence[LayerCacheSpec],
    placed: Placement,
    types: tuple[DType, DType],
    *,
    no_kv_offload: bool,
) -> LlamaCppLayout:
    """Return the layout of all devices, with the part of each GPU and of the host."""

    def on(device: int) -> tuple[LayerCacheSpec, ...]:
        return merge_equal(
            [
                layer
                for layer, place in zip(layers, placed.layers, strict=True)
                if device == (HOST if no_kv_offload else place)
            ]
        )

    def part(specs: tuple[LayerCacheSpec, ...]) -> LlamaCppLayout:
        return dataclasses.replace(
            whole, buffers=tuple(_buffers(specs, types, whole.window)), states=_state_rows(specs), whole=whole
        )

    on_host = on(HOST)
    gpus = tuple(part(on(device)) for device in range(placed.gpus))
    whole = dataclasses.replace(
        whole, gpu_buffers=tuple(gpu.buffers for gpu in gpus), host=part(on_host) if on_host else None
    )
    return dataclasses.replace(whole, parts=tuple(dataclasses.replace(gpu, whole=whole) for gpu in gpus))


def layers_per_gpu(layers: int, gpus: int) -> tuple[int, ...]:
    """Return how many of `layers` each of `gpus` identical GPUs has, in order, with all layers offloaded.

    The output layer counts as one and goes to the last GPU; so 4 layers on 2 GPUs are 3 and 1, and the last GPU may
    even have none.
    """
    return place_layers(layers, gpus).counts()[1:]


def _notes(
    cache_specs: Sequence[CacheSpec], args: LlamacppArgs, window: int | None, release: LlamaCppVersion
) -> Iterator[str]:
    if any(cached.role == "latent" for cached in cache_specs):
        yield "A GGUF from before llama.cpp supported MLA stores K and V of every head: use --attention mha for it."
    if release.fork:
        yield "This assumes -fa (contexts are padded to 256 cells, otherwise to 32) and -mla 2 or 3 for MLA."
    if window and (args.ubatch or DEFAULT_UBATCH) > DEFAULT_BATCH and not args.swa_full:
        yield f"A micro-batch is never larger than the batch, so this assumes -b {args.ubatch} or more."
    if len({int(c.width) * int(c.rows) for c in cache_specs if c.role in ("kv", "v")}) > 1:
        yield "Without flash attention llama.cpp stores every V as wide as the widest; that is not counted."
    if args.gpus > 1:
        how = "by --tensor-split" if args.tensor_split else "as evenly as possible (no -ts)"
        yield (
            f"llama.cpp puts whole layers on each GPU, {how} (-sm layer). The figures are those of the GPU with room "
            "for the fewest sequences; the log lines are those of all GPUs."
        )
    elif args.device_memory is None:
        yield "llama.cpp distributes whole layers over the GPUs; the bytes are those of all GPUs together."


def _check_args(args: LlamacppArgs, types: tuple[DType, DType]) -> None:
    if args.tp > 1:
        raise AttncalcError(
            "--tp does not apply to llama.cpp, which distributes layers over GPUs instead of heads", "use --gpus only"
        )
    if args.sequences and args.sequences > MAX_SEQUENCES:
        raise AttncalcError(f"--sequences: llama.cpp takes at most {MAX_SEQUENCES}", "start several servers")
    if args.flash_attn not in (None, "on", "off", "auto"):
        raise AttncalcError(f"--flash-attn {truncate(args.flash_attn)} is unknown", "give on, off or auto")
    for kv_type in types:
        if kv_type.name not in TYPES:
            raise AttncalcError(f"llama.cpp has no cache in {kv_type.name}", f"known: {', '.join(TYPES)}")
    v_type = types[1]
    if args.flash_attn == "off" and v_type.group:
        raise AttncalcError(
            f"llama.cpp needs flash attention for V in {TYPES[v_type.name]}",
            "leave --flash-attn off out, or use --cache-type-v f16",
        )


def _check_supported(cached: CacheSpec, types: tuple[DType, DType], fork: bool) -> None:
    """Raise AttncalcError if llama.cpp rejects such a layer, or if its layout is not implemented here."""
    if cached.per == "source token":
        raise AttncalcError(f"{cached.name} of a source is not supported for llama.cpp", _USE_IDEAL)
    if cached.role == "other" or (fork and cached.role in (*_STATE_ROLES, "indexer")):
        raise AttncalcError(f"{cached.name} is not supported for {'ik_' if fork else ''}llama.cpp", _USE_IDEAL)
    if isinstance(cached.span, Chunked) and cached.span.chunk != CHUNK:
        raise AttncalcError(
            f"llama.cpp only has chunks of {count(CHUNK)} tokens, not of {count(cached.span.chunk)}", _USE_IDEAL
        )
    if cached.role == "latent" and types[0] != types[1]:
        raise AttncalcError("llama.cpp stores MLA's latent as K, so V has no type", "use --kv-dtype, one type for both")
    for kv_type, roles in zip(types, (("kv", "k", "latent", "indexer"), ("kv", "v")), strict=True):
        if kv_type.group and cached.role in roles and cached.width % kv_type.group:
            raise AttncalcError(
                f"llama.cpp cannot store rows of {count(cached.width)} elements in {TYPES[kv_type.name]}",
                f"its blocks have {kv_type.group} elements; use f16",
            )


def model_window(cache_specs: Sequence[CacheSpec], *, fork: bool) -> int | None:
    """Return the tokens of the sliding window; None if llama.cpp stores windows like full attention.

    Only a model that has layers with a window and layers without gets a buffer for windows. ik_llama.cpp has none.
    """
    reaches = _reaches(cache_specs)
    if fork or all(reach is not None for reach in reaches):
        return None
    return next((reach for reach in reaches if reach is not None), None)


def _reaches(cache_specs: Sequence[CacheSpec]) -> list[int | None]:
    """Return the tokens of the window of each attention layer, None for full attention."""
    return [c.span.reach for c in cache_specs if c.per == "token" and c.role != "indexer"]


def _window(cache_specs: Sequence[CacheSpec], fork: bool, *, is_known: bool) -> tuple[int | None, list[str]]:
    """Return the tokens of the sliding window, and notes. Raises AttncalcError if there are several windows.

    `is_known` says that llama.cpp's windows are those of the model: they are stored as full attention, or read from a
    GGUF file by llama.cpp's rules.
    """
    window = model_window(cache_specs, fork=fork)
    sizes = {int(reach) for reach in _reaches(cache_specs) if reach is not None}
    if window is None:
        if fork and sizes:
            return None, ["ik_llama.cpp stores the whole context in layers with a sliding window too."]
        loaded_as_full = (
            "Every layer has a sliding window. llama.cpp loads such models (Mistral, Phi-3) as full attention."
        )
        return None, [loaded_as_full] if sizes else []
    if len(sizes) > 1:
        raise AttncalcError(
            "llama.cpp supports one window size per model; these layers have "
            f"{' and '.join(map(count, sorted(sizes)))}",
            _USE_IDEAL,
        )
    notes = [] if is_known else ["This assumes that llama.cpp's loader of this model sets its sliding windows."]
    return window, notes


def _buffers(specs: Sequence[LayerCacheSpec], types: tuple[DType, DType], window: int | None) -> Iterator[Buffer]:
    labels = {"kv": "full attention" if window else "all layers", "swa": "sliding windows", "indexer": "indexer keys"}
    layers_of: dict[str, list[LayerCacheSpec]] = {name: [] for name in labels}
    for spec in specs:
        for cached in (cached for cached in spec.cached if cached.per == "token"):
            windowed = window is not None and cached.span.reach is not None
            name = "indexer" if cached.role == "indexer" else "swa" if windowed else "kv"
            layers_of[name].append(LayerCacheSpec(spec.layers, (cached,)))
    for name, members in layers_of.items():
        if members:
            layers = sum(member.layers for member in members if member.cached[0].role != "v")
            cell_k = sum(member.layers * _k_bytes(member.cached[0], types[0]) for member in members)
            cell = sum_over_layers(
                members, lambda member: _cell_bytes(member.cached[0], types), f"{name}_bytes", "bytes of a cell"
            )
            yield Buffer(name, labels[name], layers, cell, cell_k, name == "swa")


def _k_bytes(cached: CacheSpec, k: DType) -> int:
    """Return the bytes of K in one cell of one layer, as a plain int."""
    rows, width = int(cached.rows), int(cached.width)
    return 0 if cached.role == "v" else (rows // 2 if cached.role == "kv" else rows) * k.row_bytes(width)


def _cell_bytes(cached: CacheSpec, types: tuple[DType, DType]) -> int:
    """Return the bytes of one cell in one layer.

    llama.cpp quantizes a row of all heads together. Each head is a whole number of blocks, so rows per head give
    the same bytes.
    """
    k, v = types
    if cached.role != "kv" or k == v:
        return cached.rows * (v if cached.role == "v" else k).row_bytes(cached.width)
    heads = exact_div(cached.rows, 2)
    k_bytes = renamed(heads * k.row_bytes(cached.width), "k_bytes", f"bytes of K in {k.name}")
    v_bytes = renamed(heads * v.row_bytes(cached.width), "v_bytes", f"bytes of V in {v.name}")
    return k_bytes + v_bytes


def _state_rows(specs: Sequence[LayerCacheSpec]) -> StateRows | None:
    """Return the recurrent states of one sequence; None without such layers.

    For a convolution of width k llama.cpp stores k - 1 tokens, where transformers stores k: the next token is
    the k-th.
    """
    f32 = dtype("fp32")

    def row(cached: CacheSpec) -> int:
        width = cached.width - 1 if cached.role == "convolution" else cached.width
        return cached.rows * f32.row_bytes(width, "state_bytes")

    states = [LayerCacheSpec(s.layers, (c,)) for s in specs for c in s.cached if c.role in _STATE_ROLES]
    if not states:
        return None
    convolution, state = (
        sum(s.layers * int(row(s.cached[0])) for s in states if s.cached[0].role == role) for role in _STATE_ROLES
    )
    return StateRows(
        sum_over_layers(states, lambda s: row(s.cached[0]), "state_row", "bytes of a row"), convolution, state
    )


def _padded_cells(free: int, streams: int, cell: int) -> int:
    """Return how many cells of `cell` bytes fit in `free` bytes, of all streams, each a multiple of PADDING."""
    return max(free // (streams * cell) // PADDING * PADDING * streams, quantity(0))


def mib(size: int, width: int = 7) -> str:
    """Return `size` as llama.cpp prints it: MiB from a 32-bit float, by %7.2f."""
    return f"{float32(size) / 2**20:{width}.2f}"
