"""What llama.cpp allocates of a model's caches: a buffer of cells per kind of layer, and rows of recurrent states.

A cell is one token's K and V in every layer of a buffer. Layers with a sliding window have a buffer of their own
(iSWA), and so have an indexer's keys (DSA). Recurrent states are f32, one row per sequence.

Source: llama.cpp's src/llama-context.cpp (n_ctx_seq), llama-kv-cache.cpp, llama-kv-cache-iswa.cpp,
llama-memory-recurrent.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...attention import CacheSpec, Chunked
from ...attention.kind import POOLING_ROLES
from ...errors import AttncalcError, NotSupportedError
from ...quantity import ceil_div, exact_div, minimum, renamed, symbol_like
from ...units import DType, count, dtype
from ..pipeline import LayerCacheSpec, sum_over_layers
from .options import LlamacppArgs

PADDING = 256
"""The cells of a context are a multiple of this."""
TYPES = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"} | {
    name: name for name in ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")
}
"""The types that --cache-type-k and --cache-type-v accept, as the log prints them."""
_CHUNK = 8192
"""The chunk size that the loader of Llama 4 sets."""
_STATE_ROLES = ("convolution", "state")
_USE_IDEAL = "use --engine ideal for a lower bound"


class Buffer(NamedTuple):
    """One llama_kv_cache."""

    name: str  # "kv", "swa" (layers with a sliding window) or "indexer"
    label: str  # its layers, for people
    layers: int  # how many layers it has
    cell: int  # bytes of one cell in all these layers
    cell_k: int  # the bytes of K among them
    windowed: bool  # whether it has cells only for a sliding window

    @property
    def named_cell(self) -> int:
        """`cell` under a name of its own, because two buffers may use one symbol for different numbers."""
        return renamed(self.cell, f"{self.name}_bytes_per_cell", f"bytes of a cell, {self.label}")


class StateRows(NamedTuple):
    """One llama_memory_recurrent: the recurrent states of one sequence."""

    row: int  # bytes of one row, in all layers
    convolution: int  # the bytes of convolutions among them (R in the log)
    state: int  # the bytes of all other states (S in the log)


def padded(cells: int) -> int:
    """Return `cells` rounded up to a multiple of PADDING."""
    return ceil_div(cells, PADDING) * PADDING


def stream_cells(args: LlamacppArgs, window: int | None, *, batch: int, slots: int, context: int) -> tuple[int, int]:
    """Return the cells of one stream: of buffers for the whole context, and of those for a sliding window.

    A window's buffer has cells for the tokens of all windows in the stream and of a micro-batch. llama.cpp cuts the
    micro-batch to the context first, which has the same effect.

    Args:
        args: The arguments.
        window: Tokens of the sliding window; None if no buffer has one.
        batch: The sequences of `context` tokens that a shared stream has cells for; in ik_llama.cpp all slots.
        slots: Slots of the server.
        context: Tokens of each sequence.
    """
    shared = (slots if args.release.fork else batch) * context
    full = padded(shared if args.is_unified else context)
    if window is None or args.swa_full:
        return full, full
    ubatch = symbol_like(context, "n_ubatch", args.micro_batch, "tokens of a micro-batch (-ub)")
    return full, padded(minimum(full, window_tokens(args, window, slots) + ubatch))


def window_tokens(args: LlamacppArgs, window: int, slots: int) -> int:
    """Return the tokens of all windows in one stream."""
    return window * (slots if args.is_unified else 1)


def model_window(cache_specs: Sequence[CacheSpec], *, fork: bool) -> int | None:
    """Return the tokens of the sliding window; None if llama.cpp stores windows like full attention.

    Only a model that has layers with a window and layers without gets a buffer for windows. ik_llama.cpp has none.

    Raises AttncalcError if there are several windows.
    """
    found = reaches(cache_specs)
    if fork or None not in found:
        return None
    windows = [reach for reach in found if reach is not None]
    if len(set(windows)) > 1:
        sizes = " and ".join(map(count, sorted(set(windows))))
        raise AttncalcError(
            f"llama.cpp supports one window size per model; these layers have {sizes}",
            _USE_IDEAL,
        )
    return windows[0] if windows else None


def reaches(cache_specs: Sequence[CacheSpec]) -> list[int | None]:
    """Return the tokens of the window of each attention layer, None for full attention."""
    return [c.span.reach for c in cache_specs if c.per == "token" and c.role != "indexer"]


def buffers_of(specs: Sequence[LayerCacheSpec], types: tuple[DType, DType], window: int | None) -> tuple[Buffer, ...]:
    """Return the buffers of cells, with dtypes of K and of V; one for windows only if the model has a `window`."""
    labels = {"kv": "full attention" if window else "all layers", "swa": "sliding windows", "indexer": "indexer keys"}
    layers_of: dict[str, list[LayerCacheSpec]] = {name: [] for name in labels}
    for spec in specs:
        for cached in (cached for cached in spec.cached if cached.per == "token"):
            windowed = window is not None and cached.span.reach is not None
            name = "indexer" if cached.role == "indexer" else "swa" if windowed else "kv"
            layers_of[name].append(LayerCacheSpec(spec.layers, (cached,)))
    return tuple(_buffer(name, labels[name], members, types) for name, members in layers_of.items() if members)


def _buffer(name: str, label: str, members: Sequence[LayerCacheSpec], types: tuple[DType, DType]) -> Buffer:
    """Return the buffer of layers that each cache one thing."""
    k, v = types

    def k_bytes(cached: CacheSpec) -> int:
        if cached.role == "v":
            return 0
        rows = int(cached.rows)
        return (rows // 2 if cached.role == "kv" else rows) * k.row_bytes(int(cached.width))

    def cell_bytes(member: LayerCacheSpec) -> int:
        # llama.cpp quantizes a row of all heads together. Each head is a whole number of blocks, so rows per head give
        # the same bytes.
        (cached,) = member.cached
        if cached.role != "kv" or k == v:
            return cached.rows * (v if cached.role == "v" else k).row_bytes(cached.width)
        heads = exact_div(cached.rows, 2)
        of_k = renamed(heads * k.row_bytes(cached.width), "k_bytes", f"bytes of K in {k.name}")
        return of_k + renamed(heads * v.row_bytes(cached.width), "v_bytes", f"bytes of V in {v.name}")

    return Buffer(
        name,
        label,
        layers=sum(member.layers for member in members if member.cached[0].role != "v"),
        cell=sum_over_layers(members, cell_bytes, f"{name}_bytes", "bytes of a cell"),
        cell_k=sum(member.layers * k_bytes(member.cached[0]) for member in members),
        windowed=name == "swa",
    )


def state_rows(specs: Sequence[LayerCacheSpec]) -> StateRows | None:
    """Return the recurrent states of one sequence; None without such layers.

    For a convolution of width k llama.cpp stores k - 1 tokens, where transformers stores k: the next token is
    the k-th.
    """
    f32 = dtype("fp32")

    def row(spec: LayerCacheSpec) -> int:
        (cached,) = spec.cached
        width = cached.width - 1 if cached.role == "convolution" else cached.width
        return cached.rows * f32.row_bytes(width, "state_bytes")

    states = [LayerCacheSpec(s.layers, (c,)) for s in specs for c in s.cached if c.role in _STATE_ROLES]
    if not states:
        return None
    convolution, state = (
        sum(s.layers * int(row(s)) for s in states if s.cached[0].role == role) for role in _STATE_ROLES
    )
    return StateRows(sum_over_layers(states, row, "state_row", "bytes of a row"), convolution, state)


def check_supported(cached: CacheSpec, types: tuple[DType, DType], *, fork: bool) -> None:
    """Raise AttncalcError if llama.cpp rejects such a layer, or if its layout is not implemented here."""
    if cached.per == "source token":
        raise NotSupportedError(f"{cached.name} of a source is not supported for llama.cpp", _USE_IDEAL)
    if cached.role in ("other", *POOLING_ROLES) or (fork and cached.role in (*_STATE_ROLES, "indexer")):
        raise NotSupportedError(f"{cached.name} is not supported for {'ik_' if fork else ''}llama.cpp", _USE_IDEAL)
    if isinstance(cached.span, Chunked) and cached.span.chunk != _CHUNK:
        raise AttncalcError(
            f"llama.cpp only has chunks of {count(_CHUNK)} tokens, not of {count(cached.span.chunk)}", _USE_IDEAL
        )
    if cached.role == "latent" and types[0] != types[1]:
        raise AttncalcError("llama.cpp stores MLA's latent as K, so V has no type", "use --kv-dtype, one type for both")
    for kv_type, roles in zip(types, (("kv", "k", "latent", "indexer"), ("kv", "v")), strict=True):
        if kv_type.group and cached.role in roles and cached.width % kv_type.group:
            raise AttncalcError(
                f"llama.cpp cannot store rows of {count(cached.width)} elements in {TYPES[kv_type.name]}",
                f"its blocks have {kv_type.group} elements; use f16",
            )
