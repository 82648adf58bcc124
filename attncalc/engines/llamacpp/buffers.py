"""What llama.cpp allocates of a model's caches: a buffer of cells per kind of layer, and rows of
recurrent states.

A cell is one token's K and V in every layer of a buffer. Layers with a sliding window have a buffer
of their own (iSWA), and so have an indexer's keys (DSA). Recurrent states are f32, one row per
sequence.

Compressed attention (DeepSeek-V4) has a buffer for the windows of all layers, and buffers for pools
of 4 (CSA), pools of 128 (HCA) and the indexer's pools, with one cell per pool. They are K only. The
tokens to pool are states in f32.

Source: llama.cpp's src/llama-context.cpp (n_ctx_seq), llama-kv-cache.cpp, llama-kv-cache-iswa.cpp,
llama-memory-recurrent.cpp, llama-kv-cache-dsv4.cpp, llama-memory-hybrid-idx.cpp.
"""

from collections.abc import Iterable, Iterator, Sequence

from ...attention import CacheSpec, Chunked
from ...attention.kind import POOLING_ROLES, Role
from ...attention.picked import Blocks
from ...errors import AttncalcError, NotSupportedError
from ...quantity import ceil_div, exact_div, minimum, renamed, symbol_like
from ...records import NamedTuple
from ...units import DType, count, dtype
from ..pipeline import LayerCacheSpec, sum_over_layers
from .options import LlamacppArgs

# The cells of a context are a multiple of this.
PADDING = 256
# The types that --cache-type-k and --cache-type-v accept, as the log prints them.
TYPES = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"} | {
    name: name for name in ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")
}
# The chunk size that the loader of Llama 4 sets.
_CHUNK = 8192
_STATE_ROLES = ("convolution", "short_convolution", "state")
_TO_POOL = ("unpooled", "last_pool")
_POOL_NAMES = {4: "csa", 128: "hca"}
_USE_IDEAL = "use --engine ideal for a lower bound"


class Buffer(NamedTuple):
    """One llama_kv_cache."""

    # "kv", "swa" (layers with a sliding window), "csa", "hca" (pools of 4 and of 128) or "indexer"
    name: str
    label: str  # its layers, for people
    layers: int  # how many layers it has
    cell: int  # bytes of one cell in all these layers
    cell_k: int  # the bytes of K among them
    windowed: bool  # whether it has cells only for a sliding window
    rate: int = 1  # tokens per cell

    def cells(self, full: int, windows: int) -> int:
        """Return its cells in a stream with so many of the whole context and of windows."""
        if self.windowed or self.rate == 1:
            if self.windowed:
                return windows
            return full
        return padded(self.pools(full))

    def pools(self, full: int) -> int:
        """Return the pools of a context of that many cells."""
        return ceil_div(full, symbol_like(full, f"{self.name}_size", self.rate, "tokens of a pool"))

    @property
    def named_cell(self) -> int:
        """`cell` under a name of its own, because two buffers may use one symbol for different
        numbers.
        """
        return renamed(self.cell, f"{self.name}_bytes_per_cell", f"bytes of a cell, {self.label}")


class Compressor(NamedTuple):
    """One llama_dsv4_comp_state: the tokens to pool of one sequence, which are kept in a ring."""

    name: str  # "csa", "hca" or "lid", as in the log
    size: int  # tokens of a pool
    ring: int  # tokens of the ring: 8 for pools of 4, which overlap, and 128 for pools of 128
    width: int  # elements of a token's keys, and as many of its gates
    layers: int  # how many layers have one

    @property
    def bytes(self) -> int:
        """Bytes of the keys and gates in all layers."""
        return self.layers * self.ring * self.width * 2 * 4


class StateRows(NamedTuple):
    """One llama_memory_recurrent, or the compressors of compressed attention: the states of one
    sequence.
    """

    row: int  # bytes of one row, in all layers
    convolution: int  # the bytes of convolutions among them (R in the log)
    state: int  # the bytes of all other states (S in the log)
    compressors: tuple[Compressor, ...] = ()


def padded(cells: int) -> int:
    """Return `cells` rounded up to a multiple of PADDING."""
    return ceil_div(cells, PADDING) * PADDING


def with_v_of_latents(cached: Sequence[CacheSpec]) -> tuple[CacheSpec, ...]:
    """Return what a layer caches, with K and V for MLA's latent: V is K without its rotary part."""
    split: list[CacheSpec] = []
    for spec in cached:
        if spec.role == "latent":
            v = spec._replace(
                name="V of the latent", role="v", width=spec.width - spec.rotary, rotary=0
            )
            split += [spec._replace(role="k"), v]
        else:
            split.append(spec)
    return tuple(split)


def has_pools(cache_specs: Iterable[CacheSpec]) -> bool:
    """Return whether some layer has pools. Then each slot has its own cells, also with
    --kv-unified.

    With --kv-unified each slot has those of the whole context ("only supports non-unified mode").
    """
    return any(cached.role == "pools" for cached in cache_specs)


def stream_cells(
    args: LlamacppArgs,
    window: int | None,
    *,
    batch: int,
    slots: int,
    context: int,
    per_slot: bool = False,
) -> tuple[int, int]:
    """Return the cells of one stream: of buffers for the whole context, and of those for a sliding
    window.

    A window's buffer has cells for the tokens of all windows in the stream and of a micro-batch.
    llama.cpp cuts the micro-batch to the context first, which has the same effect.

    Args:
        window: Tokens of the sliding window; None if no buffer has one.
        batch: The sequences of `context` tokens that a shared stream has cells for; in ik_llama.cpp
            all slots.
        per_slot: Whether each slot has a stream, also with --kv-unified (`has_pools`).
    """
    shared = (slots if args.release.fork else batch) * context
    full = padded(shared if args.is_unified else context)
    if window is None or args.swa_full:
        return full, full
    ubatch = symbol_like(context, "n_ubatch", args.micro_batch, "tokens of a micro-batch (-ub)")
    windows = window if per_slot else window_tokens(args, window, slots)
    return full, padded(minimum(full, windows + ubatch))


def window_tokens(args: LlamacppArgs, window: int, slots: int) -> int:
    """Return the tokens of all windows in one stream."""
    return window * (slots if args.is_unified else 1)


def model_window(cache_specs: Sequence[CacheSpec], *, fork: bool) -> int | None:
    """Return the tokens of the sliding window; None if llama.cpp stores windows like full
    attention.

    Only a model that has layers with a window and layers without gets a buffer for windows, and
    LFM2, whose attention layers all have one. ik_llama.cpp has none.

    Raises AttncalcError if there are several windows.
    """
    found = reaches(cache_specs)
    # only LFM2's recurrent layers have no state but a convolution
    roles = {cached.role for cached in cache_specs}
    is_lfm2 = "convolution" in roles and "state" not in roles
    if fork or (None not in found and not is_lfm2):
        return None
    windows = [reach for reach in found if reach is not None]
    if len(set(windows)) > 1:
        sizes = " and ".join(map(count, sorted(set(windows))))
        raise AttncalcError(
            f"llama.cpp supports one window size per model; these layers have {sizes}", _USE_IDEAL
        )
    if windows:
        return windows[0]
    return None


def reaches(cache_specs: Sequence[CacheSpec]) -> list[int | None]:
    """Return the tokens of the window of each attention layer, None for full attention."""
    grows = [cached for cached in cache_specs if cached.per == "token"]
    return [cached.span.reach for cached in grows if cached.role != "indexer"]


def buffers_of(
    specs: Sequence[LayerCacheSpec], types: tuple[DType, DType], window: int | None
) -> tuple[Buffer, ...]:
    """Return the buffers of cells, with dtypes of K and of V; one for windows only if the model has
    a `window`.
    """
    labels = {
        "kv": "full attention" if window else "all layers",
        "swa": "sliding windows",
        "csa": "pools of 4",
        "hca": "pools of 128",
        "indexer": "indexer keys",
    }
    layers_of: dict[str, list[LayerCacheSpec]] = {name: [] for name in labels}
    for spec in specs:
        for cached in spec.cached:
            if cached.per != "token" or cached.role in _TO_POOL:
                continue
            windowed = window is not None and cached.span.reach is not None
            name = "swa" if windowed else "kv"
            if cached.role in ("indexer", "index_pools", "averages"):
                name = "indexer"
            elif cached.role == "pools":
                name = _POOL_NAMES[cached.pool_size]
            # a cell has a key that is averaged, and a place for its pool's average
            if cached.role == "averages":
                stored = cached._replace(rows=2 * cached.rows)
            else:
                stored = cached
            layers_of[name].append(LayerCacheSpec(spec.layers, (stored,)))
    return tuple(
        _buffer(name, labels[name], members, types)
        for name, members in layers_of.items()
        if members
    )


def _buffer(
    name: str, label: str, members: Sequence[LayerCacheSpec], types: tuple[DType, DType]
) -> Buffer:
    """Return the buffer of layers that each cache one thing."""
    k, v = types

    def k_bytes(cached: CacheSpec) -> int:
        if cached.role == "v":
            return 0
        rows = int(cached.rows)
        return (rows // 2 if cached.role == "kv" else rows) * k.row_bytes(int(cached.width))

    def cell_bytes(member: LayerCacheSpec) -> int:
        # llama.cpp quantizes a row of all heads together. Each head is a whole number of blocks, so
        # rows per head give the same bytes.
        (cached,) = member.cached
        if cached.role != "kv" or k == v:
            return cached.rows * (v if cached.role == "v" else k).row_bytes(cached.width)
        heads = exact_div(cached.rows, 2)
        of_k = renamed(heads * k.row_bytes(cached.width), "k_bytes", f"bytes of K in {k.name}")
        return of_k + renamed(
            heads * v.row_bytes(cached.width), "v_bytes", f"bytes of V in {v.name}"
        )

    return Buffer(
        name,
        label,
        layers=sum(member.layers for member in members if member.cached[0].role != "v"),
        cell=sum_over_layers(members, cell_bytes, f"{name}_bytes", "bytes of a cell"),
        cell_k=sum(member.layers * k_bytes(member.cached[0]) for member in members),
        windowed=name == "swa",
        rate=1 if members[0].cached[0].role == "averages" else members[0].cached[0].pool_size,
    )


def _compressors(specs: Sequence[LayerCacheSpec]) -> Iterator[Compressor]:
    """Yield the compressors of compressed attention, in llama.cpp's order."""
    layers: dict[tuple[int, int], tuple[int, int, int]] = {}
    for spec in specs:
        for c in (c for c in spec.cached if c.role == "unpooled"):
            parts = int(c.rows) // 2
            width = int(c.width)
            size = c.pool_size
            _, _, before = layers.get((size, width), (0, 0, 0))
            layers[size, width] = (parts * size, parts * width, before + spec.layers)
    widest = max((width for _, width in layers), default=0)
    for (size, width), ring in sorted(layers.items(), key=lambda item: (-item[0][1], item[0][0])):
        yield Compressor(_POOL_NAMES[size] if width == widest else "lid", size, *ring)


def state_rows(specs: Sequence[LayerCacheSpec]) -> StateRows | None:
    """Return the recurrent states of one sequence, or its tokens to pool; None without such layers.

    For a convolution of width k llama.cpp stores k - 1 tokens, where transformers stores k: the
    next token is the k-th.
    """
    f32 = dtype("fp32")

    def row(spec: LayerCacheSpec) -> int:
        (cached,) = spec.cached
        width = cached.width - 1 if cached.role == "convolution" else cached.width
        return cached.rows * f32.row_bytes(width, "state_bytes")

    states: list[LayerCacheSpec] = []
    for spec in specs:
        of_spec = [cached for cached in spec.cached if cached.role in _STATE_ROLES]
        states += [LayerCacheSpec(spec.layers, (cached,)) for cached in of_spec]
    compressors = tuple(_compressors(specs))
    if compressors:
        traced = specs[0].cached[0].width  # a symbol where formulas are shown
        bytes_ = sum(compressor.bytes for compressor in compressors)
        total = symbol_like(
            traced, "state_bytes_per_sequence", bytes_, "bytes of a sequence's tokens to pool"
        )
        return StateRows(total, 0, total, compressors)
    if not states:
        return None
    convolution, state = (
        sum(s.layers * int(row(s)) for s in states if (s.cached[0].role == "state") is is_state)
        for is_state in (False, True)
    )
    return StateRows(
        sum_over_layers(states, row, "state_row", "bytes of a row"), convolution, state
    )


def check_supported(cached: CacheSpec, types: tuple[DType, DType], *, fork: bool) -> None:
    """Raise AttncalcError if llama.cpp rejects such a layer, or if its layout is not implemented
    here.
    """
    if cached.per == "source token":
        raise NotSupportedError(
            f"{cached.name} of a source is not supported for llama.cpp", _USE_IDEAL
        )
    of_fork = fork and cached.role in (*_STATE_ROLES, "indexer", "averages", *POOLING_ROLES)
    # beside the keys of MiniMax-M3's indexer llama.cpp has an unused V (pull request 26338), whose
    # width was not read
    if cached.role in ("other", "gated_averages") or of_fork or isinstance(cached.span, Blocks):
        engine = f"{'ik_' if fork else ''}llama.cpp"
        raise NotSupportedError(
            f"attncalc does not know how {engine} stores this cache: {cached.name}", _USE_IDEAL
        )
    if (
        cached.role in POOLING_ROLES
        and cached.role != "shared"
        and cached.pool_size not in _POOL_NAMES
    ):
        raise NotSupportedError(
            f"llama.cpp does not have pools of {cached.pool_size} tokens (DeepSeek-V4.1: pull "
            "request 28696 is open)",
            _USE_IDEAL,
        )
    if isinstance(cached.span, Chunked) and cached.span.chunk != _CHUNK:
        raise AttncalcError(
            f"llama.cpp only has chunks of {count(_CHUNK)} tokens, not of "
            f"{count(cached.span.chunk)}",
            _USE_IDEAL,
        )
    if cached.role in ("latent", "shared") and types[0] != types[1]:
        if cached.role == "latent":
            what = "MLA's latent"
        else:
            what = "compressed attention's keys"
        raise AttncalcError(
            f"llama.cpp stores {what} as K, so V has no type", "use --kv-dtype, one type for both"
        )
    of_k: tuple[Role, ...] = (
        "kv",
        "k",
        "latent",
        "indexer",
        "averages",
        "shared",
        "pools",
        "index_pools",
    )
    for kv_type, roles in zip(types, (of_k, ("kv", "v")), strict=True):
        if kv_type.group and cached.role in roles and cached.width % kv_type.group:
            raise AttncalcError(
                f"llama.cpp cannot store rows of {count(cached.width)} elements in "
                f"{TYPES[kv_type.name]}",
                f"its blocks have {kv_type.group} elements; use f16",
            )
