"""llama.cpp: a context of fixed size, allocated at start-up, as cells in one buffer per kind of
layer.

Contexts are padded to a multiple of 256 cells. Each sequence has its own cells (a stream), or all
sequences share them (--kv-unified).

Read from the llama.cpp of llama-cpp-python 0.3.36: src/llama-context.cpp, llama-kv-cache.cpp,
llama-kv-cache-iswa.cpp, llama-memory-recurrent.cpp. Compressed attention is from
llama-kv-cache-dsv4.cpp of September 2026.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from ...attention import CacheSpec
from ...errors import AttncalcError
from ...quantity import Ratio, most, named, quantity, ratio, renamed, symbol, symbol_like
from ...records import dataclass
from ...search import first_true
from ...units import BYTES, NO_UNIT, count
from ..base import NO_LIMIT, Bound, Detail, Pool
from ..pipeline import NO_CACHE, LayerCacheSpec, layer_by_layer, merge_equal
from .buffers import (
    PADDING,
    TYPES,
    Buffer,
    StateRows,
    buffers_of,
    check_supported,
    has_pools,
    model_window,
    padded,
    reaches,
    state_rows,
    window_tokens,
    with_v_of_latents,
)
from .log_lines import Start
from .options import DEFAULT_BATCH, MAX_SEQUENCES, WITHOUT_FLASH, LlamacppArgs
from .placement import HOST, placement_of

# Where the search for a context ends, in multiples of PADDING.
_MOST_PADDINGS = 2**32
# Copies of its recurrent states to which a slot of Ollama's own engine can return.
_CHECKPOINTS = 24


@dataclass(frozen=True)
class LlamaCppLayout:
    """The cells and state rows of all GPUs together, or of one of them."""

    start: Start  # what all devices hold together
    buffers: tuple[Buffer, ...]  # the buffers of cells
    states: StateRows | None  # the recurrent states; None without such layers
    notes: tuple[str, ...]  # see CacheLayout, also for bound, source and max_num_seqs
    # the layout of each GPU, if there are several or the host has some layers
    parts: tuple[LlamaCppLayout, ...] = ()
    is_part: bool = False  # whether this is one of these
    # the layout of the layers whose cache is on the host; None without such layers
    host: LlamaCppLayout | None = None
    max_num_seqs: int | None = MAX_SEQUENCES
    bound: Bound = "reserved"
    source: str = (
        "llama.cpp, src/llama-context.cpp, llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, "
        "llama-kv-cache-dsv4.cpp, llama-memory-recurrent.cpp"
    )

    @property
    def args(self) -> LlamacppArgs:
        return self.start.args

    @property
    def version(self) -> str:
        return self.args.release.name

    @property
    def facts(self) -> tuple[str, ...]:
        args = self.args
        fork = args.release.fork
        k, v = (TYPES[kv_type.name] for kv_type in args.types)
        facts = [args.release.fact, f"n_seq_max {args.slots}", f"K {k}, V {v}"]
        if self.start.window:
            facts.append("swa_full true" if args.swa_full else f"n_ubatch {args.micro_batch}")
        if not fork:
            facts.append("kv_unified true" if args.is_unified else "kv_unified false")
        return tuple(facts)

    def needed(self, batch: int, context: int) -> int:
        """Return the bytes with -np `batch` (or with the given slots, if they are more) and
        `context` cells for each.

        The slots that a stream has cells for are `batch`, also if there are more.
        """
        slots = max(batch, self.args.slots)
        full_cells, window_cells = self.start.stream_cells(
            batch=batch, slots=slots, context=context
        )
        states = slots * self._state_bytes_per_sequence
        return self.start.streams(slots) * self._stream_bytes(full_cells, window_cells) + states

    def in_ollama(self, context: int, kept: int | None) -> int | None:
        """Return the bytes of the cache in Ollama's own engine; None if it has windows, and `kept`
        is not known.

        All slots share the cells (kvcache/causal.go), and each slot's states have 24 checkpoints
        (recurrent.go).

        Args:
            context: Tokens of a slot.
            kept: Tokens of each slot that layers with a window keep; 0 for those of the window.
        """
        slots = self.args.slots
        window = self.start.window
        full_cells = padded(slots * context)
        window_cells = full_cells
        if window:
            if kept is None:
                return None
            in_window = window
            if slots > 1:  # one token more for a stop token (Init)
                in_window += 1
            kept = max(kept, in_window)
            if kept < context:
                window_cells = padded(slots * kept + self.args.micro_batch)
        states = slots * (1 + _CHECKPOINTS) * self._state_bytes_per_sequence
        return int(self._stream_bytes(full_cells, window_cells) + states)

    def with_shared_prefix(self, tokens: int) -> None:
        return None

    def pool(self, memory: int, context: int) -> Pool:
        """Return what fits. Its tokens are the largest n_ctx (-c) with the given slots.

        Its log lines are those of a start on all GPUs with these slots of `context` tokens each.
        """
        memory = symbol("kv_memory", memory, "bytes for the cache")
        tokens = symbol("T", context, "tokens of a sequence")
        full_cells, window_cells = self.start.stream_cells(batch=1, slots=1, context=tokens)
        sequence_bytes = quantity(
            self._stream_bytes(full_cells, window_cells) + self._state_bytes_per_sequence
        )
        divisor = named(sequence_bytes, "kv_bytes_per_sequence", "bytes of a sequence")
        if self.args.is_unified:
            concurrency = self._shared_concurrency(memory, context)
        else:
            concurrency = ratio(memory, divisor)
        # a GPU may have the output layer only, with no cache: then the sequences have no other
        # limit
        if not sequence_bytes or concurrency.numerator > MAX_SEQUENCES * concurrency.denominator:
            concurrency = ratio(
                symbol("LLAMA_MAX_SEQ", MAX_SEQUENCES, "sequences that llama.cpp supports"), 1
            )
        n_ctx: int
        if sequence_bytes and not self.start.buffers:  # states only
            n_ctx = memory * tokens // divisor
        elif self.start.per_slot:
            n_ctx = self._searched_n_ctx(memory)
        else:
            n_ctx = self._largest_n_ctx(memory)
        details = self._details(context, sequence_bytes, full_cells, window_cells)
        return Pool(None, quantity(n_ctx), concurrency, tuple(details), self.start.lines(context))

    def _details(
        self, context: int, sequence_bytes: int, full_cells: int, window_cells: int
    ) -> Iterator[Detail]:
        here = ", on this GPU" if self.is_part else ""
        label = f"one sequence of {count(context)} tokens{here}"
        yield Detail("kv_bytes_per_sequence", label, quantity(sequence_bytes), BYTES)
        if self.buffers:
            yield Detail("kv_cells", "cells of that sequence", quantity(full_cells), NO_UNIT)
        if self.start.window and not self.args.swa_full:
            yield Detail(
                "swa_cells", "cells of its sliding windows", quantity(window_cells), NO_UNIT
            )
        # with a single buffer a cell is a token in all layers
        single = len(self.start.buffers) == 1 and not self.start.draft
        for buffer in self.buffers:
            name = "kv_bytes_per_token" if single else f"{buffer.name}_bytes_per_cell"
            yield Detail(name, f"one cell, {buffer.label}{here}", quantity(buffer.cell), BYTES)
        if self.states:
            label = f"one sequence's states{here}"
            yield Detail(
                "state_bytes_per_sequence", label, quantity(self._state_bytes_per_sequence), BYTES
            )

    @property
    def _state_bytes_per_sequence(self) -> int:
        if self.states is None:
            return 0
        row = self.states.row
        if self.args.state_rows == 1:
            return row
        rows = symbol_like(row, "rows", self.args.state_rows, "rows of a sequence: 1 + n_rs_seq")
        return rows * renamed(row, "state_row_bytes", "bytes of one row of states")

    def _stream_bytes(self, full_cells: int, window_cells: int) -> int:
        if len(self.buffers) == 1 and not self.buffers[0].windowed:
            return full_cells * self.buffers[0].cell
        return sum(b.cells(full_cells, window_cells) * b.named_cell for b in self.buffers)

    def _largest_n_ctx(self, memory: int) -> int:
        """Return the most cells of all streams together that fit, after the cells of windows and
        the states.
        """
        slots: int = self.args.slots
        if slots > 1:
            slots = symbol("sequences", slots, "sequences (-np)")
        streams = self.args.streams(slots)
        free = memory
        if self.states:
            state_bytes = self._state_bytes_per_sequence
            free -= slots * named(
                state_bytes, "state_bytes_per_sequence", "bytes of a sequence's states"
            )
        if not self.buffers:  # a GPU whose layers have states only
            return NO_LIMIT if free >= 0 else quantity(0)
        full_cell = self._stream_bytes(1, 0)
        window_cell = self._stream_bytes(0, 1)
        if self.start.window is None or self.args.swa_full:
            return _padded_cells(free, streams, full_cell + window_cell)
        ubatch = symbol("n_ubatch", self.args.micro_batch, "tokens of a micro-batch (-ub)")
        largest_window = padded(window_tokens(self.args, self.start.window, slots) + ubatch)
        if not full_cell:  # a GPU whose layers have sliding windows only
            if free >= streams * largest_window * window_cell:
                return NO_LIMIT
            return _padded_cells(free, streams, window_cell)
        # Once the context is longer than the window's buffer, that buffer no longer grows.
        n_ctx = _padded_cells(free - streams * (largest_window * window_cell), streams, full_cell)
        if n_ctx >= streams * largest_window:
            return n_ctx
        return _padded_cells(free, streams, full_cell + window_cell)

    def _searched_n_ctx(self, memory: int) -> int:
        """Return the most cells of all streams together, for buffers whose cells are pools."""
        slots = self.args.slots

        def needed(paddings: int) -> int:
            cells = self.start.stream_cells(batch=1, slots=1, context=paddings * PADDING)
            return (
                self.start.streams(slots) * self._stream_bytes(*cells)
                + slots * self._state_bytes_per_sequence
            )

        if needed(_MOST_PADDINGS) <= memory:
            return NO_LIMIT
        paddings = max(0, first_true(lambda n: needed(n) > memory, 0, _MOST_PADDINGS) - 1)
        if not paddings:  # the states alone may be too many
            return 0
        n_ctx = paddings * PADDING * self.args.streams(slots)
        return most("n_ctx", n_ctx, "cells of all streams", needed(paddings), memory)

    def _shared_concurrency(self, memory: int, context: int) -> Ratio:
        """Return the most sequences that fit if all share their cells: by search, since they share
        the padding.
        """
        limit = MAX_SEQUENCES + 2  # above MAX_SEQUENCES, to which `pool` cuts the result
        batch = first_true(lambda n: n == limit or self.needed(n, context) > memory, 0, limit) - 1
        size = 0
        if batch:
            size = self.needed(batch, context)
        needed = named(size, "kv_bytes_of_B", "bytes of that many sequences")
        found = most("B", batch, "concurrent sequences that fit", needed, memory)
        return Ratio(batch, 1, found.formula)


def layout(specs: Sequence[LayerCacheSpec], args: LlamacppArgs) -> LlamaCppLayout:
    """Return how llama.cpp stores those layers. Raises AttncalcError if it does not support them or
    the arguments.
    """
    release = args.release
    check_args(args)
    if release.stores_v_of_latents:
        specs = [spec._replace(cached=with_v_of_latents(spec.cached)) for spec in specs]
    merged = merge_equal(specs)
    cache_specs = [cached for spec in merged for cached in spec.cached]
    if not cache_specs:
        raise AttncalcError(*NO_CACHE)
    _check_specs(cache_specs, args)
    window = model_window(cache_specs, fork=release.fork)
    states = state_rows(merged)
    if args.speculative_tokens and not states and not args.has_draft_context:
        raise AttncalcError(
            "--speculative-tokens has no effect on a model without recurrent states",
            "leave --speculative-tokens out",
        )
    buffers = buffers_of(merged, args.types, window)
    layers = layer_by_layer(specs)
    draft: tuple[Buffer, ...] = ()
    if args.has_draft_context:
        draft = _draft_buffer(layers, args)
    # without a GPU nothing is divided
    on_devices = {}
    if args.gpus > 1 or args.device_memory is not None:
        on_devices = {"CPU" if args.on_cpu else f"{args.backend}0": buffers}
    start = Start(
        args,
        buffers,
        states,
        window,
        len(layers),
        on_devices,
        draft,
        per_slot=has_pools(cache_specs),
    )
    notes = tuple(_notes(cache_specs, args, window))
    whole = LlamaCppLayout(start, (*buffers, *draft), states, notes)
    placed = placement_of(len(layers), args)
    is_on_one = args.gpus == 1 and not placed.is_partial and not args.no_kv_offload
    if not on_devices or is_on_one:
        return whole
    places: Sequence[int] = placed.layers
    if args.no_kv_offload:
        places = [HOST] * len(layers)
    return _on_devices(whole, layers, places, placed.gpus)


def _on_devices(
    whole: LlamaCppLayout, layers: Sequence[LayerCacheSpec], places: Sequence[int], gpus: int
) -> LlamaCppLayout:
    """Return the layout with a part for each GPU, and one for the host if it has some of the cache.

    `places` is the GPU of each layer's cache, or HOST. The drafter's cache is on the last GPU.
    """
    args = whole.args
    held: dict[int, list[LayerCacheSpec]] = {place: [] for place in (*range(gpus), HOST)}
    for layer, place in zip(layers, places, strict=True):
        held[place].append(layer)
    with_drafter = HOST if args.no_kv_offload else gpus - 1
    parts = {}
    for place, members in held.items():
        merged = merge_equal(members)
        buffers = buffers_of(merged, args.types, whole.start.window)
        if place == with_drafter:
            buffers = (*buffers, *whole.start.draft)
        parts[place] = dataclasses.replace(
            whole, buffers=buffers, states=state_rows(merged), is_part=True
        )
    devices = {"CPU": parts[HOST].buffers}
    for i in range(gpus):
        devices[f"{args.backend}{i}"] = parts[i].buffers
    start = dataclasses.replace(whole.start, devices=devices)
    host = None
    if parts[HOST].buffers or parts[HOST].states:
        host = dataclasses.replace(parts[HOST], start=start)
    return dataclasses.replace(
        whole,
        start=start,
        parts=tuple(dataclasses.replace(parts[i], start=start) for i in range(gpus)),
        host=host,
    )


def _check_specs(cache_specs: Sequence[CacheSpec], args: LlamacppArgs) -> None:
    """Raise AttncalcError if this version cannot store such caches."""
    release = args.release
    for cached in cache_specs:
        check_supported(cached, args.types, fork=release.fork)
    if has_pools(cache_specs):
        release.require(
            "has_compressed_attention", "llama.cpp", "compressed attention (DeepSeek-V4)"
        )
    has_latents = any(cached.role == "latent" for cached in cache_specs)
    if has_latents and not (release.has_latents or release.fork):
        raise AttncalcError(
            f"llama.cpp {release.name} stores K and V of every head, not MLA's latents",
            "use --attention mha",
        )


def _draft_buffer(layers: Sequence[LayerCacheSpec], args: LlamacppArgs) -> tuple[Buffer, ...]:
    """Return the cache of the drafter's context, which has as many cells as the model's
    (common_speculative_init).

    Layers for multi-token prediction are like the model's last one with keys. Raises AttncalcError
    for several GPUs, over which llama.cpp distributes a draft model by what is free, for a draft
    model with recurrent states, and for compressed attention.
    """
    if args.speculative_model:
        drafted: Sequence[LayerCacheSpec] = args.speculative_model.layers
        if args.gpus > 1:
            raise AttncalcError(
                "attncalc does not know how llama.cpp divides a draft model over several GPUs",
                "give one GPU, or --speculative-layers 1 for multi-token prediction",
            )
    else:
        drafted = []
        for layer in layers:
            if any(cached.per == "token" for cached in layer.cached):
                drafted = [layer] * args.speculative_layers
    if any(has_pools(layer.cached) for layer in (*layers, *drafted)):
        raise AttncalcError(
            "attncalc does not know how llama.cpp stores a drafter of compressed attention "
            "(DeepSeek-V4)",
            "leave the drafter out",
        )
    merged = merge_equal(drafted)
    cache_specs = [cached for spec in merged for cached in spec.cached]
    for cached in cache_specs:
        check_supported(cached, args.draft_types, fork=args.release.fork)
        if cached.per != "token":
            raise AttncalcError(
                "attncalc does not know how llama.cpp stores the states of a draft model",
                "give a draft model without recurrent layers",
            )
    buffers = buffers_of(merged, args.draft_types, None)
    n_layers = sum(spec.layers for spec in merged)
    cell = sum(int(buffer.cell) for buffer in buffers)
    cell_k = sum(buffer.cell_k for buffer in buffers)
    return (Buffer("draft", "the drafter", n_layers, quantity(cell), cell_k, windowed=False),)


def _notes(
    cache_specs: Sequence[CacheSpec], args: LlamacppArgs, window: int | None
) -> Iterator[str]:
    fork = args.release.fork
    if has_pools(cache_specs):
        if args.is_unified and args.slots > 1:
            yield (
                f"With --kv-unified each of the {args.slots} slots has cells for the whole "
                "context of all slots: llama.cpp keeps compressed attention's caches per slot."
            )
    else:
        yield from _window_notes(cache_specs, args, window)
    if any(cached.role == "latent" for cached in cache_specs):
        yield (
            "A GGUF from before llama.cpp supported MLA, which has no attention.key_length_mla, "
            "stores K and V of every head: give the file, or --attention mha."
        )
    if fork:
        yield (
            "This assumes -fa (contexts are padded to 256 cells, otherwise to 32) and -mla 2 or 3 "
            "for MLA."
        )
    if window and args.micro_batch > DEFAULT_BATCH and not args.swa_full:
        yield (
            f"A micro-batch is never larger than the batch, so this assumes -b {args.ubatch} or "
            "more."
        )
    if len({int(c.width) * int(c.rows) for c in cache_specs if c.role in ("kv", "v")}) > 1:
        yield (
            "Without flash attention llama.cpp stores every V as wide as the widest; that is not "
            "counted."
        )
    if args.gpus > 1:
        how = "by --tensor-split" if args.tensor_split else "as evenly as possible (no -ts)"
        yield (
            f"llama.cpp puts whole layers on each GPU, {how} (-sm layer). The figures are those "
            "of the GPU with room for the fewest sequences; the log lines are those of all GPUs."
        )
    elif args.device_memory is None:
        yield (
            "llama.cpp distributes whole layers over the GPUs; the bytes are those of all GPUs "
            "together."
        )


def _window_notes(
    cache_specs: Sequence[CacheSpec], args: LlamacppArgs, window: int | None
) -> Iterator[str]:
    has_windows = any(reach is not None for reach in reaches(cache_specs))
    if window is None and has_windows and args.release.fork:
        yield "ik_llama.cpp stores the whole context in layers with a sliding window too."
    elif window is None and has_windows:
        yield (
            "Every layer has a sliding window. llama.cpp loads such models (Mistral, Phi-3) as "
            "full attention."
        )
    # a GGUF file's windows are read by llama.cpp's rules
    elif window and not args.swa_full and args.blocks is None:
        yield "This assumes that llama.cpp's loader of this model sets its sliding windows."


def check_args(args: LlamacppArgs) -> None:
    if args.tp > 1:
        raise AttncalcError(
            "--tp does not apply to llama.cpp, which distributes layers over GPUs instead of heads",
            "use --gpus only",
        )
    if args.sequences and args.sequences > MAX_SEQUENCES:
        raise AttncalcError(
            f"--sequences: llama.cpp takes at most {MAX_SEQUENCES}", "start several servers"
        )
    for kv_type in (*args.types, *args.draft_types):
        if kv_type.name not in TYPES:
            nearest = "q4_0" if kv_type.bits <= 4 else "q8_0"
            raise AttncalcError(
                f"llama.cpp has no cache in {kv_type.name}",
                f"give {nearest}; known: {', '.join(TYPES)}",
            )
    v_type = args.types[1]
    if args.flash_attn == "off" and v_type.group:
        raise AttncalcError(
            f"llama.cpp needs flash attention for V in {TYPES[v_type.name]}",
            "leave --flash-attn off out, or use --cache-type-v f16",
        )
    if args.model_type in WITHOUT_FLASH and v_type.group:
        raise AttncalcError(
            f"llama.cpp needs flash attention for V in {TYPES[v_type.name]}, and turns it off for "
            "Grok",
            "use --cache-type-v f16",
        )


def _padded_cells(free: int, streams: int, cell: int) -> int:
    """Return how many cells of `cell` bytes fit in `free` bytes, of all streams, each a multiple of
    PADDING.
    """
    return max(free // (streams * cell) // PADDING * PADDING * streams, quantity(0))
