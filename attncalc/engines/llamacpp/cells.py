"""What llama.cpp sets aside: buffers of cells and rows of states, and what fits in a memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ...quantity import Quantity, Ratio, ceil_div, minimum, most, named, quantity, ratio, symbol
from ...search import first_true
from ...units import BYTES, NO_UNIT, DType, count
from ..base import Bound, Detail, Pool

VERSION, FORK = "0.3.36", "ik"
"""What --engine-version may be: llama-cpp-python's version, or the fork ik_llama.cpp."""
TYPES = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"} | {
    name: name for name in ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")
}
"""The types that --cache-type-k and -v take, as the log prints them."""
MOST_SEQUENCES = 256
"""LLAMA_MAX_SEQ (src/llama-cparams.h)."""
NO_LIMIT = symbol("no_limit", 2**60, "cells, where a GPU has no layer of the whole context")
PAD = 256
"""Cells that a context is a multiple of."""


class Buffer(NamedTuple):
    """One llama_kv_cache. cell: bytes of a cell in all its layers, k of them K's; window: its cells are few."""

    name: str
    label: str
    layers: int
    cell: int
    k: int
    window: bool = False

    @property
    def printed_bytes(self) -> int:
        """`cell` under its name, so that buffers may use one symbol for different numbers; an int stays plain."""
        if not isinstance(self.cell, Quantity):
            return self.cell
        return named(self.cell, f"{self.name}_bytes_per_cell", f"bytes of a cell, {self.label}")


class States(NamedTuple):
    """One llama_memory_recurrent: bytes of one sequence's row in all layers, convolutions (R) and states (S)."""

    row: int
    r: int
    s: int


@dataclass(frozen=True)
class LlamaCpp:
    """Cells and rows, of all GPUs together.

    reach: tokens of the window, None where no buffer has one. rows: of a sequence's state, 1 and one for
    each speculative token that can be taken back. layers: of the model. parts: each GPU's own layers,
    where there are several; whole: what such a part is of.
    """

    buffers: tuple[Buffer, ...]
    states: States | None
    reach: int | None
    types: tuple[DType, DType]
    sequences: int
    ubatch: int
    unified: bool
    swa_full: bool
    rows: int
    layers: int
    fork: bool
    notes: tuple[str, ...]
    parts: tuple[LlamaCpp, ...] = ()
    whole: LlamaCpp | None = None
    most: int | None = MOST_SEQUENCES
    bound: Bound = "reserved"
    source: str = (
        "llama.cpp, src/llama-context.cpp, llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-memory-recurrent.cpp"
    )

    @property
    def version(self) -> str:
        return FORK if self.fork else VERSION

    @property
    def facts(self) -> tuple[str, ...]:
        known = "ik_llama.cpp" if self.fork else f"as in llama-cpp-python {VERSION}"
        k, v = (TYPES[one.name] for one in self.types)
        found = [known, f"n_seq_max {self.sequences}", f"K {k}, V {v}"]
        if self.reach:
            found.append("swa_full true" if self.swa_full else f"n_ubatch {self.ubatch}")
        return tuple(found) if self.fork else (*found, f"kv_unified {'true' if self.unified else 'false'}")

    def needed(self, batch: int, context: int) -> int:
        """Bytes with -np `batch` (or the sequences given, if they are more), each with `context` cells of its own."""
        sequences = max(batch, self.sequences)
        base, window = self._cells(batch, sequences, context)
        return self._streams(sequences) * self._bytes(base, window) + sequences * self._state

    def pool(self, memory: int, context: int) -> Pool:
        """What the memory holds. tokens: the largest n_ctx (-c) for the sequences given. log_lines: of a start
        with so many sequences of `context` tokens, on all GPUs.
        """
        memory = symbol("kv_memory", memory, "bytes for the cache")
        tokens = symbol("T", context, "tokens of a sequence")
        base, window = self._cells(1, 1, tokens)
        one = quantity(self._bytes(base, window) + self._state)
        each = named(one, "kv_bytes_per_sequence", "bytes of a sequence")
        details = [Detail("kv_bytes_per_sequence", f"one sequence of {count(context)} tokens{self._here}", one, BYTES)]
        if self.buffers:
            details.append(Detail("kv_cells", "its cells", quantity(base), NO_UNIT))
        if self.reach and not self.swa_full:
            details.append(Detail("swa_cells", "its cells of a window", quantity(window), NO_UNIT))
        for b in self.buffers:
            details.append(Detail(self._cell_name(b), f"one cell, {b.label}{self._here}", quantity(b.cell), BYTES))
        if self.states:
            label = f"one sequence's states{self._here}"
            details.append(Detail("state_bytes_per_sequence", label, quantity(self._state), BYTES))
        fits = self._most(memory, context) if self.unified else ratio(memory, each)
        if not one or fits.numerator > MOST_SEQUENCES * fits.denominator:  # a GPU may have the output alone
            fits = ratio(symbol("LLAMA_MAX_SEQ", MOST_SEQUENCES, "sequences that llama.cpp takes"), 1)
        whole = self.whole or self
        found = memory * tokens // each if one and not whole.buffers else self._n_ctx(memory)
        return Pool(None, quantity(found), fits, tuple(details), tuple(whole._words(context)))

    @property
    def _here(self) -> str:
        return ", on this GPU" if self.whole else ""

    def _cell_name(self, buffer: Buffer) -> str:
        """Its figure's name in JSON: a cell of the one buffer is a token in all layers."""
        alone = len((self.whole or self).buffers) == 1
        return "kv_bytes_per_token" if alone else f"{buffer.name}_bytes_per_cell"

    @property
    def _state(self) -> int:
        """Bytes of one sequence's states."""
        if self.states is None:
            return 0
        row = self.states.row
        if not isinstance(row, Quantity):
            return self.rows * row
        rows = symbol("rows", self.rows, "rows of a sequence: 1 + n_rs_seq")
        return rows * named(row, "state_row_bytes", "bytes of one row of states") if self.rows > 1 else row

    def _streams(self, sequences: int) -> int:
        return 1 if self.unified else sequences

    def _cells(self, batch: int, sequences: int, context: int) -> tuple[int, int]:
        """Cells of a stream, without a window and with it."""
        shared = (sequences if self.fork else batch) * context
        base = _padded(shared if self.unified else context)
        if self.reach is None or self.swa_full:
            return base, base
        ubatch = self._ubatch if isinstance(context, Quantity) else self.ubatch
        # llama.cpp first cuts the micro-batch to the context; the cells are cut to it here all the same.
        return base, _padded(minimum(base, self._windows(sequences) + ubatch))

    @property
    def _ubatch(self) -> Quantity:
        return symbol("n_ubatch", self.ubatch, "tokens of a micro-batch (-ub)")

    def _windows(self, sequences: int) -> int:
        """Tokens of all the windows in a stream."""
        return (self.reach or 0) * (sequences if self.unified else 1)

    def _bytes(self, base: int, window: int) -> int:
        """Bytes of one stream."""
        if len(self.buffers) == 1 and not self.buffers[0].window:
            return base * self.buffers[0].cell
        return sum((window if b.window else base) * b.printed_bytes for b in self.buffers)

    def _n_ctx(self, memory: int) -> int:
        """The most cells, of all streams, that fit with the windows' cells and the states."""
        sequences: int = self.sequences
        if sequences > 1:
            sequences = symbol("sequences", sequences, "sequences (-np)")
        streams = 1 if self.unified else sequences
        free = memory
        if self.states:
            free -= sequences * named(self._state, "state_bytes_per_sequence", "bytes of a sequence's states")
        if not self.buffers:  # a GPU with layers of states alone
            return NO_LIMIT if free >= 0 else quantity(0)
        base, window = self._bytes(1, 0), self._bytes(0, 1)
        if self.reach is None or self.swa_full:
            return _whole(free, streams, base + window)
        least = _padded(self._windows(sequences) + self._ubatch)
        if not base:  # a GPU with layers of a window alone
            return NO_LIMIT if free >= streams * least * window else _whole(free, streams, window)
        # Once the context is longer than a window's buffer, that buffer stays as it is.
        found = _whole(free - streams * (least * window), streams, base)
        return found if found >= streams * least else _whole(free, streams, base + window)

    def _most(self, memory: int, context: int) -> Ratio:
        """The most sequences that fit where they share their cells: by search, since paddings are shared."""
        beyond = MOST_SEQUENCES + 2
        found = first_true(lambda n: n == beyond or self.needed(n, context) > memory, 0, beyond) - 1
        taken = named(self.needed(found, context) if found else 0, "kv_bytes_of_B", "bytes of so many sequences")
        return Ratio(found, 1, most("B", found, "sequences that fit at once", taken, memory).formula)

    def _words(self, context: int) -> Iterator[str]:
        """The lines of a start with the sequences given, of `context` tokens each."""
        sequences = self.sequences
        streams = self._streams(sequences)
        base, window = (int(cells) for cells in self._cells(sequences, sequences, context))
        k_type, v_type = (TYPES[one.name] for one in self.types)
        if self.fork:
            for b in self.buffers:
                k, v = base * b.k, base * (int(b.cell) - b.k)
                # Of a latent the line goes on with kv^T, in words that changed.
                sizes = (
                    f"K ({k_type}): {_mib(k)} MiB, V ({v_type}): {_mib(v)} MiB"
                    if v
                    else f"c^KV ({k_type}): {_mib(k)} MiB"
                )
                yield f"llama_new_context_with_model: KV self size  = {_mib(k + v)} MiB, {sizes}"
            return
        yield f"llama_context: n_ctx                 = {streams * base}"
        for b in self.buffers:
            cells = window if b.window else base
            if self.reach:
                kind = "    SWA" if b.window else "non-SWA"
                yield f"llama_kv_cache_iswa: creating {kind} KV cache, size = {cells} cells"
            elif len(self.buffers) > 1:
                kind = "indexer" if b.name == "indexer" else "main"
                yield f"llama_kv_cache_dsa: creating {kind} KV cache, size = {cells} cells"
            k, v = streams * cells * b.k, streams * cells * (int(b.cell) - b.k)
            yield (
                f"llama_kv_cache: size = {_mib(k + v)} MiB ({cells:6d} cells, {b.layers:3d} layers, "
                f"{sequences:2d}/{streams} seqs), K ({k_type}): {_mib(k)} MiB, V ({v_type}): {_mib(v)} MiB"
            )
        if self.states:
            r, s = (self.rows * sequences * part for part in (self.states.r, self.states.s))
            yield (
                f"llama_memory_recurrent: size = {_mib(r + s)} MiB ({sequences:6d} cells, {self.layers:3d} layers, "
                f"{sequences:2d} seqs {self.rows - 1:2d} rs_seq), R (f32): {_mib(r)} MiB, S (f32): {_mib(s)} MiB, "
                f"P (f32): {_mib(0)} MiB"
            )


def _padded(cells: int) -> int:
    return ceil_div(cells, PAD) * PAD


def _whole(free: int, streams: int, cell: int) -> int:
    """Cells of `cell` bytes in `free`, of all streams, each with whole paddings."""
    return quantity(0) if free <= 0 else free // (streams * cell) // PAD * PAD * streams


def _mib(size: int) -> str:
    """As llama.cpp prints it: MiB from a 32-bit float, by %7.2f."""
    single: float = struct.unpack("f", struct.pack("f", size))[0]
    return f"{single / 2**20:7.2f}"
