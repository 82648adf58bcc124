"""The compute buffer: the tensors of one pass over a micro-batch, in the buffer that llama.cpp
allocates at start-up.

ggml's allocator gives a tensor's bytes to later tensors as soon as it is read for the last time, so
the number of layers does not matter. The buffer is as large as the largest of three moments: the
logits, the attention of one layer, or the MLP of one layer. Tensors are in f32. With d the model's
width, h the width of all query heads, kv that of all KV heads, ff the MLP's and u = 4 * n_ubatch
bytes:

- logits: one row of the vocabulary for each output, 4 bytes each, and d u for the hidden state;
- attention with flash attention: the masks, Q and the output, the residual and its norm, and copies
  of K and V, in f16 or from the host: masks + copies + (2 h + 2 d) u;
- attention without: the scores of all heads, 4 n_head cells n_ubatch, and masks + (2 h + 2 d) u.
  With the masks count the places of V's elements, which is transposed: 8 B for each of kv;
- a gated MLP: masks + (3 ff + 2 d + h) u, where h is the place of Q, which is too small for gate
  and up;
- experts: each token has k copies, so ff is k ff_e; the k outputs of width d fit into the place of
  gate and up, or not.

Without a GPU the buffer is the host's, and has the embeddings of the pass too, d u. From b11400 on
there are two of these, which every moment has, and Q's place is no wider than d.

Example: Qwen3-8B with 4,096 cells and a micro-batch of 512 on one GPU. Masks: 2 B * 4096 * 512 = 4
MiB. MLP:
(3 * 12288 + 2 * 4096 + 4096) * 4 * 512 B = 96 MiB. Together 100 MiB, as ggml's allocator finds for
a CUDA device.

Source: src/llama-graph.cpp, src/llama-context.cpp (sched_reserve, graph_reserve),
ggml/src/ggml-alloc.c and ggml-backend.cpp (copies of split inputs) of llama.cpp b9190 and of
llama-cpp-python 0.3.36, and graph_optimize in ggml/src/ggml-cuda/ggml-cuda.cu of v0.5.0.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from ...attention.kind import Attention
from ...attention.latent import Latent
from ...model import Layers, ModelSpec
from ...quantity import Quantity, maximum, minimum, named, quantity, symbol
from ...records import NamedTuple
from ...units import DType, dtype
from ..runtime import Term
from .versions import LlamaCppVersion

# Bytes of an element.
F32 = 4
F16 = 2
# Copies of every input with several GPUs, so that they can work on different micro-batches at once
# (GGML_SCHED_MAX_COPIES, ggml/CMakeLists.txt).
COPIES = 4
# The least and the most bytes of a moment, in percent of its formula.
Spread = tuple[int, int]
# ggml's allocator confirms the formula to 3%: dense models and experts, with and without windows.
_CLOSE = 97, 103
# A later tensor may or may not fit into gaps: before the changes of 2026, and without flash
# attention.
_GAPS = 85, 112
_LINEAR = 90, 115
# MLA, and inputs for each layer (Gemma 3n and Gemma 4 E).
_LATENT = 80, 120
_INDEXED = 75, 125
# Compressed attention with a kernel for the indexer, of which no buffer is published.
_POOLED = 60, 250
# A log of Gemma 4 26B with a q8_0 cache of 262,144 tokens has 1,888 MiB, where the allocator finds
# 1,339.
_QUANTIZED_WINDOWS = 95, 150

# An encoder: of 80 buffers without a GPU 77 are within 1 %, and all within 7. On GPUs one log is.
_OF_ENCODER = 90, 115
# With copies of matrices from the host. A log of gpt-oss-20b agrees within 0.1% for the lm head.
_COPIED = 80, 115


class Graph(NamedTuple):
    """What the graph of one pass depends on, besides the model."""

    release: LlamaCppVersion
    flash: bool  # whether flash attention is on
    ubatch: int  # tokens of the pass
    rows: int  # rows of logits
    full_cells: int  # cells of a stream that a mask covers; 0 without attention
    window_cells: int  # the same for sliding windows; 0 without windows
    streams: int  # streams of cells
    k_copied: bool  # whether flash attention on CUDA copies K to f16
    v_copied: bool  # whether it copies V
    gpus: int = 1  # GPUs with layers of their own
    first: bool = True  # whether the GPU has the first layer
    last: bool = True  # whether the GPU has the last layer and the logits
    # Whether several GPUs work on different micro-batches at once: only if no layer or expert, and
    # no cache, is on the host
    pipelined: bool = True
    pool_cells: int = 0  # cells of a stream that are pools of 4; 0 without compressed attention
    # Bytes of the largest matrices on the host, which this GPU copies for a pass: "down" (last in
    # an MLP), "other" (of layers), and "head" (lm head) for many rows of logits
    from_host: Mapping[str, int] = MappingProxyType({})
    on_cpu: bool = False  # whether there is no GPU: this buffer is the host's
    k_rotated: bool = False  # whether K is quantized, for which Q is rotated
    # whether V is, for which the attention's output is rotated back, or is cast from f32
    v_rotated: bool = False
    attends: bool = True  # whether the GPU computes attention; otherwise the host does
    # The dtypes of K and V of layers whose attention the GPU computes from copies of a cache on the
    # host
    cache_from_host: tuple[DType, DType] | None = None
    v_row: int = 0  # elements of a token's V whose places are inputs without flash attention
    is_encoder: bool = False  # whether the model has no cache: K and V are of the pass alone

    @property
    def copies(self) -> int:
        """The copies of every input."""
        if self.gpus > 1 and self.pipelined:
            return COPIES
        return 1

    @property
    def mixes_on_cpu(self) -> bool:
        """Whether there is no GPU, and the graph has inputs for batches that mix tokens and
        embeddings, which that of compressed attention has not.
        """
        return self.on_cpu and self.release.mixes_inputs and not self.pool_cells


class ComputeBuffer(NamedTuple):
    """The compute buffers of one GPU and of the host."""

    low: int  # the fewest bytes to expect on the GPU
    expected: Quantity  # the expected bytes, with a formula
    high: int  # the most bytes to expect
    host: Quantity  # bytes of the buffer in host memory (CUDA_Host)
    terms: tuple[Term, ...]  # (name, label, figure) of the symbols in the formula


class _Peak(NamedTuple):
    """The bytes at one moment of the pass, and their range relative to the formula."""

    size: Quantity
    spread: Spread = _CLOSE


class _Pass(NamedTuple):
    """The sizes that all moments of a pass share."""

    graph: Graph  # what the graph depends on
    d: int  # width of the model
    tokens: int  # tokens of the pass
    masks: int  # bytes of the masks
    attention_masks: int  # the same with the copy in f16 that attention reads
    inputs: int  # bytes of the copies of further inputs
    layers: int  # layers of the model
    linear: bool  # whether the model has recurrent layers
    mixture: bool  # whether the model has experts
    latent: bool  # whether the model has MLA
    picked: int = 0  # without a GPU, bytes of what an indexer picks, and of its mask

    @property
    def cells(self) -> Quantity:
        """The cells of a stream."""
        return symbol("cells", self.graph.full_cells, "cells of a stream")

    def bytes_of(self, elements: int) -> int:
        """Return the bytes of that many elements per token, in f32."""
        return elements * self.tokens * F32


def compute_buffer(model: ModelSpec, whole: ModelSpec, graph: Graph) -> ComputeBuffer:
    """Return the compute buffers for a pass over `model`, the layers on this GPU, of the model
    `whole`, which keeps them for further GPUs.
    """
    facts = {**graph._asdict(), "from_host": tuple(sorted(graph.from_host.items()))}
    key = ("compute_buffer", model.stacks, *facts.values())
    return whole.kept_for_now(key, lambda: _compute_buffer(model, whole, graph))


def _compute_buffer(model: ModelSpec, whole: ModelSpec, graph: Graph) -> ComputeBuffer:
    run, terms = _pass_and_masks(whole, graph)
    if graph.is_encoder:
        return _of_encoder(whole, run, terms)
    # with matrices from the host the GPU computes the layers there too
    computed = whole if graph.from_host.get("other") or graph.from_host.get("down") else model
    groups = [layers for _, layers in computed.symbolic().groups()]
    found = _peaks(groups, whole, run)
    host = _host(whole, graph, run.d, run.tokens)
    if not found:  # a GPU without layers
        return ComputeBuffer(0, quantity(0), 0, host, ())
    terms += [(name, _LABELS[name], peak.size) for name, peak in found.items()]
    moments: list[int] = [
        named(peak.size, name, f"bytes: {_LABELS[name]}") for name, peak in found.items()
    ]
    total: int = functools.reduce(maximum, moments)
    low = max(int(peak.size) * peak.spread[0] // 100 for peak in found.values())
    high = max(int(peak.size) * peak.spread[1] // 100 for peak in found.values())
    high += _cache_from_host(groups, run)
    if graph.cache_from_host:
        low = low * 9 // 10
    # experts of other GPUs' layers leave gaps that a copied matrix may not fit into
    if graph.gpus > 1:
        high += graph.from_host.get("other", 0)
    if graph.release.short_masks:
        # the embeddings of a pass are in the host's buffer, which is this one without a GPU
        embeddings = run.bytes_of(2 * run.d if graph.mixes_on_cpu else run.d)
        if graph.on_cpu:
            total = total + embeddings
        high += int(embeddings)
    elif graph.flash and graph.attends:
        # the masks may leave gaps that the logits do not fit into
        high += int(_masks(graph, run.tokens, converted=True))
    return ComputeBuffer(low, quantity(total), high, host, tuple(terms))


def _of_encoder(whole: ModelSpec, run: _Pass, terms: list[Term]) -> ComputeBuffer:
    """Return the buffers of a pass without a cache, whose embeddings are the host's on a GPU."""
    groups = [layers for _, layers in whole.symbolic().groups()]
    moments = {
        "attention_bytes": _largest(_attention_of_encoder(layers, run) for layers in groups),
        "mlp_bytes": _largest(_mlp_of_encoder(layers, run) for layers in groups),
    }
    found = {name: peak for name, peak in moments.items() if peak}
    terms += [(name, _LABELS[name], peak.size) for name, peak in found.items()]
    sizes: list[int] = [
        named(peak.size, name, f"bytes: {_LABELS[name]}") for name, peak in found.items()
    ]
    total: int = functools.reduce(maximum, sizes)
    low = max(int(peak.size) * peak.spread[0] // 100 for peak in found.values())
    high = max(int(peak.size) * peak.spread[1] // 100 for peak in found.values())
    # a log of bge-small has 2.51 MiB for 512 tokens: masks of 1 MiB, and 2 embeddings of 0.75
    embeddings = (1 + _embeddings_of_encoder(run.graph)) * run.d
    host = quantity(run.masks + run.bytes_of(embeddings))
    return ComputeBuffer(low, quantity(total), high, host, tuple(terms))


def _embeddings_of_encoder(graph: Graph) -> int:
    """Return how many embeddings of a token are in the host's buffer instead of the GPU's."""
    if graph.release.mixes_inputs:
        return 2
    return 1


def _attention_of_encoder(layers: Layers, run: _Pass) -> _Peak:
    """Return the bytes during the attention of a layer of an encoder.

    With flash attention K and V of the pass are copied to f16: Q, K, V, their copies, the output
    and the residual are 5.5 times d, and 7 from b11400 on. Where Q, K and V are one tensor, that is
    there too, which adds 2 d. Without it there are the scores, and 6 or 7 d, of which one tensor
    adds 2 before b11400. On a GPU the embeddings among these are the host's. Measured for BERT's,
    NomicBERT's, ModernBERT's and EuroBERT's sizes (tests/data/llamacpp-buffers); CUDA's log of
    bge-small without flash attention has 16.75 MiB, as computed.
    """
    graph = run.graph
    is_fused = getattr(layers.attention, "fused", False)
    halves = 14 if graph.release.mixes_inputs else 11
    if not graph.flash and not graph.release.mixes_inputs:
        halves = 12
    if is_fused and (graph.flash or not graph.release.mixes_inputs):
        halves += 4
    if not graph.on_cpu:
        halves -= 2 * _embeddings_of_encoder(graph)
    size = run.attention_masks + run.bytes_of(run.d) * halves // 2
    if not graph.flash:
        heads = layers.attention.widths().n_heads
        size = size + run.bytes_of(heads * graph.ubatch)
    return _Peak(quantity(size), _OF_ENCODER)


def _mlp_of_encoder(layers: Layers, run: _Pass) -> _Peak | None:
    """Return the bytes during the MLP of a layer of an encoder; None without one.

    A plain MLP has its inner tensor and 3 d beside it, 6 from b11400 on; a gated one has three
    inner tensors, and 3 or 5 d.
    """
    mlp = layers.mlp
    graph = run.graph
    if mlp is None:
        return None
    beside = 3
    if graph.release.mixes_inputs:
        beside = 5 if mlp.gated else 6
    if not graph.on_cpu:
        beside -= _embeddings_of_encoder(graph)
    inner = (3 if mlp.gated else 1) * mlp.d_ff
    return _Peak(quantity(run.masks + run.bytes_of(inner + beside * run.d)), _OF_ENCODER)


def _pass_and_masks(whole: ModelSpec, graph: Graph) -> tuple[_Pass, list[Term]]:
    """Return what the moments of a pass share, and the terms of the masks in its formula."""
    d = whole.symbolic().main.d_model
    tokens = symbol("n_ubatch", graph.ubatch, "tokens of a micro-batch (-ub)")
    plain = quantity(0)
    converted = quantity(0)
    if graph.attends:
        plain = _masks(graph, tokens, converted=False)
        converted = _masks(graph, tokens, converted=True)
    terms: list[Term] = []
    masks = 0
    if plain:
        masks = named(plain, "mask_bytes", "bytes of the masks")
        terms.append(("mask_bytes", "masks", plain))
    attention_masks = masks
    if int(converted) > int(plain):
        attention_masks = named(
            converted, "converted_mask_bytes", "bytes of the masks and of a copy in f16"
        )
        terms.append(("converted_mask_bytes", "masks, and a copy in f16", converted))
    # token embeddings on the first GPU, the hidden state on others
    input_width = d if graph.copies > 1 else 0
    run = _Pass(
        graph=graph,
        d=d,
        tokens=tokens,
        masks=masks,
        attention_masks=attention_masks,
        inputs=(input_width + _per_layer_inputs(whole)) * graph.copies * tokens * F32,
        layers=symbol("layers", whole.main.n_layers, "layers of the model"),
        linear=any(_is_recurrent(layers) for _, layers in whole.groups()),
        mixture=whole.has_experts,
        latent=any(isinstance(layers.attention, Latent) for _, layers in whole.groups()),
    )
    picked = _picked(whole, run)
    if picked:
        label = "keys that the indexer picks in all layers, and its mask"
        terms.append(("picked_bytes", label, picked))
        run = run._replace(picked=named(picked, "picked_bytes", f"bytes of the {label}"))
    return run, terms


def _picked(whole: ModelSpec, run: _Pass) -> Quantity | None:
    """Return the bytes of the keys that an indexer (DSA) picks in all layers, which stay until the
    end of the pass, and of its mask; None without an indexer, or with a GPU.
    """
    if not run.graph.on_cpu:
        return None
    kinds = [layers.attention for _, layers in whole.symbolic().groups()]
    tops = [kind.index_topk for kind in kinds if isinstance(kind, Latent)]
    top = next((top for top in tops if top), None)
    if top is None:
        return None
    keys = run.bytes_of(run.layers * minimum(top, run.cells))
    return quantity(keys + run.cells * run.tokens * F16)


def _peaks(groups: Sequence[Layers], whole: ModelSpec, run: _Pass) -> dict[str, _Peak]:
    """Return the moments of a pass over these layers, and of the logits, by their name in the
    formula.
    """
    graph = run.graph
    has_logits = whole.vocab_size and (graph.last or graph.from_host.get("head"))
    mlp = _largest(_mlp(layers, run) for layers in groups)
    if mlp and graph.cache_from_host and graph.from_host.get("other"):
        # The MLP's tensors and matrices from the host take the place of the copies of K and V only
        # where they fit. Of the gaps, which are from nothing to both copies, one copy is counted
        gaps = symbol(
            "gaps", _cache_from_host(groups, run) // 2, "bytes of gaps, as large as a copy of K"
        )
        mlp = mlp._replace(size=quantity(mlp.size + gaps))
    mixing = groups
    if not graph.attends:
        mixing = [layers for layers in groups if _is_recurrent(layers)]
    peaks = {
        "logits_bytes": _logits(whole, run) if has_logits else None,
        "attention_bytes": _largest(_attention(layers, run) for layers in mixing),
        "mlp_bytes": mlp,
    }
    if _per_layer_inputs(whole):
        least, most = _LATENT
    elif any(graph.from_host.values()):
        least, most = _COPIED
    else:
        least, most = _CLOSE
    return {
        name: peak._replace(spread=(min(peak.spread[0], least), max(peak.spread[1], most)))
        for name, peak in peaks.items()
        if peak
    }


def _cache_from_host(groups: Sequence[Layers], run: _Pass) -> int:
    """Return the bytes of the largest copy of a layer's K and V from the host."""
    types = run.graph.cache_from_host
    if types:
        return max((int(_kv_bytes(layers, run, *types)) for layers in groups), default=0)
    return 0


_LABELS = {
    "logits_bytes": "logits",
    "attention_bytes": "masks and attention of one layer",
    "mlp_bytes": "masks and MLP of one layer",
}


def _largest(peaks: Iterator[_Peak | None]) -> _Peak | None:
    return max((peak for peak in peaks if peak), key=lambda peak: int(peak.size), default=None)


def _masks(graph: Graph, tokens: int, *, converted: bool) -> Quantity:
    """Return the bytes of the masks on the GPU: one of the whole context, and one of the windows.

    Before the changes of 2026 the masks are in f32, and flash attention has a copy in f16 of one of
    them at a time (`converted`), which the MLP does not need. With several GPUs every later GPU has
    the f16 copies only.
    """
    cells: int = symbol("cells", graph.full_cells, "cells of a stream")
    first = cells
    if not graph.full_cells:
        cells = first = 0
    if graph.window_cells:
        first = symbol("window_cells", graph.window_cells, "cells of a sliding window")
        cells = cells + first
    if not graph.flash:
        return quantity((cells * F32 + _v_places(graph)) * tokens * graph.copies)
    if graph.release.short_masks or not graph.first:
        return quantity(cells * tokens * F16 * graph.copies)
    masks = cells * tokens * F32 * graph.copies
    return quantity(masks + first * tokens * F16 if converted else masks)


def _v_places(graph: Graph) -> int:
    """Return the bytes per token of the places of V's elements, in 64 bits: without flash attention
    V is transposed.
    """
    if graph.release.has_places:
        return graph.v_row * 8 * (2 if graph.window_cells and graph.full_cells else 1)
    return 0


def _per_layer_inputs(whole: ModelSpec) -> int:
    """Return the elements of a token that Gemma 3n and Gemma 4 E have for all layers; 0 for other
    models.
    """
    return next(
        (int(matrix.cols) for matrix in whole.extra if matrix.name == "layers_projection"), 0
    )


def _logits(whole: ModelSpec, run: _Pass) -> _Peak:
    rows = symbol("n_outputs", run.graph.rows, "rows of logits")
    vocab = symbol("V", whole.vocab_size or 0, "tokens of the vocabulary")
    size = rows * vocab * F32 + run.bytes_of(run.d) + run.inputs
    head = run.graph.from_host.get("head")
    if head:
        size = size + symbol(
            "head_from_host", head, "bytes of the lm head that is copied from the host"
        )
    behind = max((_behind_experts(layers, run) for _, layers in whole.groups()), default=0)
    if behind and int(rows * vocab * F32) > int(behind):
        size = size + behind + run.bytes_of(run.d)
    if run.graph.mixes_on_cpu:
        size = size + run.masks + run.bytes_of(2 * run.d)
    if run.graph.gpus > 1:
        copies = _masks(run.graph._replace(first=False), run.tokens, converted=False)
        size = size + named(copies, "copied_mask_bytes", "bytes of the masks' copies")
    return _Peak(quantity(size), _LATENT if run.latent else _CLOSE)


def _is_recurrent(layers: Layers) -> bool:
    """Return whether a layer has recurrent states instead of an attention kernel."""
    return not layers.attention.widths().n_heads


def _attention(layers: Layers, run: _Pass) -> _Peak | None:
    """Return the bytes during the attention of a layer, or during its recurrence; None if the kind
    is unknown.
    """
    kind = layers.attention
    graph = run.graph
    if _is_recurrent(layers):
        return _recurrence(layers, run)
    if isinstance(kind, Latent) and not kind.caches_heads:
        return _latent_attention(kind, run)
    if graph.pool_cells:
        return _compressed_attention(kind, run)
    widths = kind.widths()
    h = widths.n_heads * widths.d_qk
    kv = widths.n_kv_heads * widths.d_qk
    d = run.d
    gate = h if widths.gate else 0
    if graph.cache_from_host:
        from_host = _kv_bytes(layers, run, *graph.cache_from_host)
    else:
        from_host = 0
    if not graph.flash:
        scores = run.bytes_of(widths.n_heads * _cells(layers, run))
        elements = _elements_without_flash(h, d, graph, is_fused=getattr(kind, "fused", False))
        elements = elements + gate
        size = scores + run.masks + from_host + run.bytes_of(elements) + run.inputs
        return _Peak(quantity(size), _GAPS)
    f16 = dtype("fp16")
    copies = graph.release.f16_cache_copy
    if copied := _kv_bytes(
        layers,
        run,
        *(f16 if copies and is_copied else None for is_copied in (graph.k_copied, graph.v_copied)),
    ):
        gate = 3 * gate
        place = _behind_experts(layers, run)
        copied = copied + (place if int(copied) + int(run.bytes_of(h)) > int(place) else 0)
    if copied or from_host:
        spread = _QUANTIZED_WINDOWS if graph.window_cells else _CLOSE
        size = (
            run.attention_masks
            + copied
            + from_host
            + run.bytes_of(2 * h + 2 * d + gate)
            + run.inputs
        )
        return _Peak(quantity(size), spread)
    elements = 2 * h + 2 * d + (0 if graph.release.short_masks else 2 * kv)
    size = run.attention_masks + run.bytes_of(elements) + run.inputs
    return _Peak(quantity(size), _CLOSE if graph.release.short_masks else _GAPS)


def _elements_without_flash(h: int, d: int, graph: Graph, *, is_fused: bool) -> int:
    """Return the elements per token beside the scores of queries of `h` elements.

    Without a GPU Q is a part of the tensor of Q, K and V in models that have one. Since b11400 one
    of Q and the output fits into a place as wide as the model.
    """
    if is_fused and graph.on_cpu and graph.release.short_masks:
        return h + (2 if graph.mixes_on_cpu else 1) * d
    if not graph.mixes_on_cpu:
        return 2 * h + 2 * d
    if int(h) > int(d):
        return 2 * h + 3 * d
    return h + 3 * d


def _cells(layers: Layers, run: _Pass) -> int:
    if run.graph.window_cells and layers.attention.span.reach is not None:
        return symbol("window_cells", run.graph.window_cells, "cells of a sliding window")
    return run.cells


def _kv_bytes(layers: Layers, run: _Pass, k: DType | None, v: DType | None) -> int:
    """Return the bytes of a layer's cells with K and V in these dtypes; None leaves one out."""
    row: int = 0
    for cached in layers.cache():
        rows = cached.rows // 2 if cached.role == "kv" else cached.rows
        for kind, roles in ((k, ("kv", "k", "latent")), (v, ("kv", "v"))):
            if kind and cached.role in roles:
                row = row + rows * kind.row_bytes(cached.width)
    return _cells(layers, run) * run.graph.streams * row


def _behind_experts(layers: Layers, run: _Pass) -> int:
    """Return the bytes before the sum of the experts' outputs, if CUDA keeps these until then.

    Later that place is free, but what is larger comes after it: attention with copies, and logits.
    """
    mlp = layers.mlp
    if (
        mlp is None
        or mlp.n_experts_per_token is None
        or run.graph.on_cpu
        or not run.graph.release.keeps_outputs
    ):
        return 0
    up = mlp.n_experts_per_token * mlp.d_ff
    down = mlp.n_experts_per_token * run.d
    if int(down) <= 2 * int(up) and not (mlp.d_ff_shared or mlp.n_shared_experts):
        return 0
    return run.bytes_of(3 * up + (down if int(down) > 3 * int(up) else 0))


def _latent_attention(kind: Latent, run: _Pass) -> _Peak:
    """Return the bytes during MLA with absorbed matrices: a head's query, the same in the latent's
    width, the output.

    With an indexer (DSA) there are a mask of the picked keys, scores of the indexer and the picked
    keys of all layers.
    """
    graph = run.graph
    latent = kind.kv_lora_rank + kind.d_rope
    d_qk = kind.d_nope + kind.d_rope
    scores = 0 if graph.flash else run.bytes_of(kind.n_heads * run.cells)
    if graph.on_cpu and graph.release.short_masks:
        return _latent_attention_on_cpu(kind, run, scores)
    if kind.index_topk is not None:
        elements = kind.n_heads * (d_qk + 2 * latent) + 2 * run.d + run.layers * kind.index_topk
        masks = run.bytes_of(2 * run.cells)
        return _Peak(quantity(scores + masks + run.bytes_of(elements) + run.inputs), _INDEXED)
    elements = kind.n_heads * (d_qk + kind.kv_lora_rank + latent) + 4 * run.d
    is_copied = graph.flash and graph.release.f16_cache_copy and graph.k_copied
    # V is a part of this copy
    copied = latent * run.cells * graph.streams * F16 if is_copied else 0
    exact = graph.flash and graph.release.short_masks and not graph.k_copied
    size = scores + run.masks + copied + run.bytes_of(elements) + run.inputs
    return _Peak(quantity(size), _CLOSE if exact else _LATENT)


def _latent_attention_on_cpu(kind: Latent, run: _Pass, scores: int) -> _Peak:
    """Return the bytes during MLA without a GPU: a head's query, and two as wide as the latent.

    Measured for DeepSeek-V3 by its sizes (tests/data/llamacpp-buffers): each element of the latent
    counts twice, each one of a head's key once. An indexer's scores in f32 take Q's place if they
    fit. Builds without a kernel for the indexer have the scores of each of its heads, twice.
    """
    d_qk = kind.d_nope + kind.d_rope
    latent = kind.kv_lora_rank + kind.d_rope
    elements = kind.n_heads * (d_qk + 2 * latent) + 3 * run.d
    # before b11400 the heads' outputs leave a gap after their queries
    if not run.graph.mixes_on_cpu and int(d_qk) > int(kind.d_v):
        elements = elements + kind.n_heads * (d_qk - kind.d_v)
    size = scores + run.masks + run.picked + run.bytes_of(elements) + run.inputs
    if kind.index_topk is None:
        return _Peak(quantity(size), _CLOSE)
    index_scores = run.bytes_of(run.cells)
    if run.graph.release.scores_each_head and kind.index_n_heads:
        index_scores = run.bytes_of(2 * kind.index_n_heads * run.cells)
    if int(index_scores) > int(run.bytes_of(kind.n_heads * d_qk)):
        size = size + index_scores
    return _Peak(quantity(size), _GAPS)


def _compressed_attention(kind: Attention, run: _Pass) -> _Peak:
    """Return the bytes during compressed attention: masks, queries, and the indexer's scores of all
    pools.

    Builds without a kernel for the indexer on CUDA have the scores of each of its heads, twice.
    Published buffers: 67,094.60 MiB with 1,048,576 tokens and -ub 512 (unslothai/unsloth#6940),
    130,527.19 with 512,000 and -ub 2048 (ggml-org/llama.cpp#25468). These are 1.2 % and 0.5 % more
    than what is computed here.
    """
    widths = kind.widths()
    graph = run.graph
    elements = 3 * widths.n_heads * widths.d_qk + 2 * widths.d_qk + 2 * run.d
    heads = getattr(kind, "index_n_heads", None)
    if heads:
        scores: int = symbol("pool_cells", graph.pool_cells, "cells of pools of 4")
        if graph.release.scores_each_head:
            scores = scores * 2 * heads
        elements = elements + scores
    size = run.attention_masks + run.bytes_of(elements) + run.inputs
    return _Peak(quantity(size), _CLOSE if graph.release.scores_each_head else _POOLED)


def _recurrence(layers: Layers, run: _Pass) -> _Peak | None:
    """Return the bytes during a recurrent layer; None if it has no convolution.

    Tensors are as wide as the convolution's channels: before and after it, and gates. Delta nets
    have 3, Mamba 5.
    """
    cached = layers.cache()
    channels = next((c.rows for c in cached if c.role == "convolution"), None)
    if channels is None:
        return None
    tensors = 3 if "delta" in layers.attention.headline.lower() else 5
    graph = run.graph
    # what passes between two GPUs: both halves of the input, and one back
    if tensors == 5 and graph.copies > 1:
        if not graph.first:
            tensors += 2 * graph.copies
        if not graph.last:
            tensors += graph.copies
    return _Peak(
        quantity(run.masks + run.bytes_of(tensors * channels + 2 * run.d) + run.inputs), _LINEAR
    )


def _mlp(layers: Layers, run: _Pass) -> _Peak | None:
    """Return the bytes during the MLP of a layer; None without one."""
    mlp = layers.mlp
    d = run.d
    new = run.graph.release.short_masks
    if mlp is None:
        return None
    place_of_q = _place_of_q(layers, run)
    live = 2 * d + place_of_q
    spread = _CLOSE if new else _GAPS
    masks = run.masks if new or run.graph.gpus == 1 else run.attention_masks
    if mlp.n_experts_per_token is None:
        size = run.bytes_of((3 if mlp.gated else 1) * mlp.d_ff)
        if not run.mixture:
            up_and_gate = (2 if mlp.gated else 1) * mlp.d_ff
            size = _with_copies(size, run, up_and_gate, mlp.d_ff + d)
    else:
        # 0: the first GPU computes those on the host
        routed = mlp.n_experts_per_token if mlp.n_experts else 0
        up = routed * mlp.d_ff
        down = routed * d
        shared = mlp.d_ff_shared or (mlp.n_shared_experts or 0) * mlp.d_ff
        if new:
            elements = _experts(up, down, run, place_of_q)
            if run.graph.on_cpu and int(up) <= int(place_of_q):
                live = live - run.d
            elements = maximum(elements, 3 * shared) if shared else elements
        else:
            live = 0
            elements = maximum(3 * up + 4 * d, 2 * down + 6 * d)
        spread = _GAPS if shared else spread
        size = _with_copies(run.bytes_of(elements), run, 2 * up, up + down)
    size = masks + size + run.picked + run.bytes_of(live) + run.inputs
    return _Peak(quantity(size), spread)


def _place_of_q(layers: Layers, run: _Pass) -> int:
    """Return the elements per token of the place of Q, which is too small for the tensors of the
    MLP.

    A model with recurrent layers has room for these where its convolutions were. With K alone
    quantized Q is rotated into a place further on (attn_rot), and a later GPU without copies of
    inputs has it where the hidden state was.
    """
    graph = run.graph
    widths = layers.attention.widths()
    if graph.on_cpu and graph.release.short_masks:
        is_fused = getattr(layers.attention, "fused", False)
        return _place_on_cpu(widths.n_heads * widths.d_v, run, is_fused=is_fused)
    if (
        run.linear
        or (graph.k_copied and not graph.v_copied)
        or (graph.gpus > 1 and graph.copies == 1 and not graph.first)
    ):
        return 0
    if graph.release.short_masks or graph.gpus > 1:
        return widths.n_heads * widths.d_v
    return 0


def _place_on_cpu(h: int, run: _Pass, *, is_fused: bool) -> int:
    """Return the same without a GPU, for queries of `h` elements per token.

    Since b11400 it is as wide as the model. Before, each rotation of a quantized cache (of Q for K,
    of the output for V) moves a tensor of h elements to the other end of a free place; where h is
    not d, two rotations move it back. Where Q is a part of the tensor of Q, K and V, only one
    rotation needs that place. Measured (tests/data/llamacpp-buffers).
    """
    graph = run.graph
    one_rotation = graph.k_rotated != graph.v_rotated
    place = h
    if graph.mixes_on_cpu or (run.linear and run.mixture):
        place = run.d
    elif not graph.flash or run.linear:
        place = 0
    elif is_fused:
        place = h if one_rotation else 0
    elif int(h) < int(run.d):
        place = 2 * h if graph.v_rotated else h
    elif graph.v_rotated if int(h) == int(run.d) else one_rotation:
        place = 0
    return place


def _experts(up: int, down: int, run: _Pass, place_of_q: int) -> int:
    """Return the elements per token of the experts: gate, up and activation, and the outputs where
    these are free.
    """
    elements = 3 * up
    # The first tensor fits into the place of Q. Without a GPU a tensor as wide as the model has a
    # part of that place, and only an equal one fits
    fits = int(up) == int(place_of_q) if run.graph.on_cpu else int(up) <= int(place_of_q)
    if fits and not run.graph.mixes_on_cpu:
        elements = elements - up
    # the outputs beside the weighted ones
    keeps = run.graph.release.keeps_outputs and not run.graph.on_cpu
    if int(down) > 2 * int(up):  # the outputs do not fit into the place of gate and up
        return elements + down * (2 if keeps and int(down) > int(elements) else 1)
    if keeps:
        return maximum(elements, 2 * down)
    return elements


def _with_copies(size: int, run: _Pass, up: int, down: int) -> int:
    """Return the bytes of an MLP of that size, whose matrices may be copied from the host one at a
    time.

    Beside a matrix of gate or up there are so many elements per token, and beside that of the
    output so many.
    """
    for name, elements in (("other", up), ("down", down)):
        matrix = run.graph.from_host.get(name)
        if matrix:
            copy = symbol(
                f"{name}_from_host", matrix, "bytes of a matrix that is copied from the host"
            )
            size = maximum(size, run.bytes_of(elements) + copy)
    return size


def _host(whole: ModelSpec, graph: Graph, d: int, tokens: int) -> Quantity:
    """Return the bytes of the host's buffer: masks, token embeddings, and scores of layers whose
    cache is there.
    """
    cells: int = symbol("cells", graph.full_cells, "cells of a stream")
    if graph.window_cells:
        cells = cells + symbol("window_cells", graph.window_cells, "cells of a sliding window")
    width = F16 if graph.flash and graph.release.short_masks else F32
    kinds = [layers.attention for _, layers in whole.groups()]
    if any(isinstance(kind, Latent) and kind.index_topk for kind in kinds):
        width += F16  # the indexer has a mask of its own
    masks = (cells * width + (0 if graph.flash else _v_places(graph))) * tokens * graph.copies
    inputs = masks + (graph.release.host_embeddings * d + _per_layer_inputs(whole)) * tokens * F32
    if graph.flash or graph.attends:
        return quantity(inputs)
    heads = max((int(layers.attention.widths().n_heads) for _, layers in whole.groups()), default=0)
    scores = (
        symbol("h", heads, "query heads")
        * symbol("cells", graph.full_cells, "cells of a stream")
        * tokens
        * F32
    )
    return quantity(inputs + scores)
