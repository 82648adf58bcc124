"""The compute buffer: the tensors of one pass over a micro-batch, in the buffer that llama.cpp allocates at start-up.

ggml's allocator gives a tensor's bytes to later tensors as soon as it is read for the last time, so the number of
layers does not matter. The buffer is as large as the largest of three moments: the logits, the attention of one layer,
or the MLP of one layer. Tensors are in f32. With d the model's width, h the width of all query heads, kv that of all KV
heads, ff the MLP's and u = 4 * n_ubatch bytes:

- logits: one row of the vocabulary for each output, 4 bytes each, and d u for the hidden state;
- attention with flash attention: the masks, Q three times (projected, rotated, output), K and V, the residual and its
  norm: masks + (3 h + 2 kv + 2 d) u;
- attention without: the scores of all heads, 4 n_head cells n_ubatch, and masks + (2 h + 2 kv + 2 d) u;
- a gated MLP: masks + (3 ff + 2 d + h) u, where h is the place of Q, which is too small for gate and up;
- experts: each token has k copies, so ff is k ff_e; the k outputs of width d fit into the place of gate and up, or not.

Example: Qwen3-8B with 4,096 cells and a micro-batch of 512 on one GPU. Masks: 2 B * 4096 * 512 = 4 MiB. MLP:
(3 * 12288 + 2 * 4096 + 4096) * 4 * 512 B = 96 MiB. Together 100 MiB, as ggml's allocator finds for a CUDA device.

Source: src/llama-graph.cpp, src/llama-context.cpp (sched_reserve, graph_reserve), ggml/src/ggml-alloc.c and
ggml-backend.cpp (copies of split inputs) of llama.cpp b9190 and of llama-cpp-python 0.3.36.
"""

import functools
from collections.abc import Iterator
from fractions import Fraction

from ...attention.kind import Attention
from ...attention.latent import Latent
from ...model import Layers, ModelSpec
from ...quantity import Quantity, maximum, named, quantity, symbol
from ...records import NamedTuple
from ..runtime import Term
from .versions import LlamaCppVersion

F32, F16 = 4, 2
"""Bytes of an element."""
COPIES = 4
"""Copies of every input with several GPUs, so that they can work on different micro-batches at once
(GGML_SCHED_MAX_COPIES, ggml/CMakeLists.txt)."""
Spread = tuple[Fraction, Fraction]
"""The least and the most bytes of a moment, relative to its formula."""


def _spread(least: int, most: int) -> Spread:
    return Fraction(least, 100), Fraction(most, 100)


_CLOSE = _spread(98, 103)
"""ggml's allocator confirms the formula to 2%: dense models and experts, with and without windows."""
_GAPS = _spread(85, 112)
"""A later tensor may or may not fit into gaps: before the changes of 2026, and without flash attention."""
_LINEAR = _spread(90, 115)
_LATENT = _spread(80, 120)
"""MLA, and inputs for each layer (Gemma 3n and Gemma 4 E)."""
_INDEXED = _spread(75, 125)
_POOLED = _spread(60, 250)
"""Compressed attention with a kernel for the indexer, of which no buffer is published."""
_QUANTIZED_WINDOWS = _spread(95, 150)
"""A log of Gemma 4 26B with a q8_0 cache of 262,144 tokens has 1,888 MiB, where the allocator finds 1,339."""

_COPIED = _spread(80, 115)
"""With copies of matrices from the host. A log of gpt-oss-20b agrees within 0.1% for the lm head."""


class Graph(NamedTuple):
    """What the graph of one pass depends on, besides the model."""

    release: LlamaCppVersion
    flash: bool  # whether flash attention is on
    ubatch: int  # tokens of the pass
    rows: int  # rows of logits
    full_cells: int  # cells of a stream that a mask covers
    window_cells: int  # the same for sliding windows; 0 without windows
    streams: int  # streams of cells
    k_copied: bool  # whether flash attention on CUDA copies K to f16
    v_copied: bool  # whether it copies V
    gpus: int = 1  # GPUs with layers of their own
    first: bool = True  # whether the GPU has the first layer
    last: bool = True  # whether the GPU has the last layer and the logits
    # Whether several GPUs work on different micro-batches at once: only if no layer or expert, and no cache, is on the
    # host
    pipelined: bool = True
    # Bytes of the largest matrix of a layer on the host, which this GPU copies for a pass; 0 without one
    from_host: int = 0
    pool_cells: int = 0  # cells of a stream that are pools of 4; 0 without compressed attention
    # Bytes of the lm head on the host, which this GPU copies for many rows of logits; 0 without it
    head_from_host: int = 0
    attends: bool = True  # whether the GPU computes attention; with the cache on the host, the host does
    host_attends: bool = False  # whether the host computes the attention of some layers

    @property
    def copies(self) -> int:
        """The copies of every input."""
        return COPIES if self.gpus > 1 and self.pipelined else 1


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
    inputs: int  # bytes of further inputs
    layers: int  # layers of the model
    linear: bool  # whether the model has recurrent layers
    latent: bool  # whether the model has MLA

    @property
    def cells(self) -> Quantity:
        """The cells of a stream."""
        return symbol("cells", self.graph.full_cells, "cells of a stream")

    def bytes_of(self, elements: int) -> int:
        """Return the bytes of that many elements per token, in f32."""
        return elements * self.tokens * F32


def compute_buffer(model: ModelSpec, whole: ModelSpec, graph: Graph) -> ComputeBuffer:
    """Return the compute buffers for a pass over `model`, the layers on this GPU, of the model `whole`."""
    d = whole.symbolic().main.d_model
    tokens = symbol("n_ubatch", graph.ubatch, "tokens of a micro-batch (-ub)")
    plain, converted = _masks(graph, tokens, converted=False), _masks(graph, tokens, converted=True)
    masks = attention_masks = named(plain, "mask_bytes", "bytes of the masks")
    terms: list[Term] = [("mask_bytes", "masks", plain)]
    if int(converted) > int(plain):
        attention_masks = named(converted, "converted_mask_bytes", "bytes of the masks and of a copy in f16")
        terms.append(("converted_mask_bytes", "masks, and a copy in f16", converted))
    run = _Pass(
        graph=graph,
        d=d,
        tokens=tokens,
        masks=masks,
        attention_masks=attention_masks,
        inputs=_inputs(whole, graph, d, tokens),
        layers=symbol("layers", whole.main.n_layers, "layers of the model"),
        linear=any(_is_recurrent(layers) for _, layers in whole.groups()),
        latent=any(isinstance(layers.attention, Latent) for _, layers in whole.groups()),
    )
    groups = [layers for _, layers in model.symbolic().groups()]
    has_logits = bool(whole.vocab_size and (graph.last or graph.head_from_host))
    if graph.from_host:  # the GPU computes the MLPs of layers on the host too
        groups = [layers for _, layers in whole.symbolic().groups()]
    peaks = {
        "logits_bytes": _with_copy(_logits(whole, run), graph.head_from_host)
        if has_logits and whole.vocab_size
        else None,
        "attention_bytes": _largest(_attention(layers, run) for layers in groups) if graph.attends else None,
        "mlp_bytes": _with_copy(_largest(_mlp(layers, run) for layers in groups), graph.from_host),
    }
    found = {name: peak for name, peak in peaks.items() if peak}
    if _per_layer_inputs(whole):
        least, most = _LATENT
        found = {k: p._replace(spread=(min(p.spread[0], least), max(p.spread[1], most))) for k, p in found.items()}
    host = _host(whole, graph, d, tokens)
    if not found:  # a GPU without layers
        return ComputeBuffer(0, quantity(0), 0, host, ())
    terms += [(name, _LABELS[name], peak.size) for name, peak in found.items()]
    moments: list[int] = [named(peak.size, name, f"bytes: {_LABELS[name]}") for name, peak in found.items()]
    total: int = functools.reduce(maximum, moments)
    low = max(int(int(peak.size) * peak.spread[0]) for peak in found.values())
    high = max(int(int(peak.size) * peak.spread[1]) for peak in found.values())
    if graph.release.short_masks:
        # CUDA keeps the embeddings of a pass in the host's buffer; a single backend (CPU) has them in this buffer.
        # Half of them is within 4% of both.
        embeddings = run.bytes_of(d)
        total, high = total + embeddings // 2, high + int(embeddings)
    elif graph.flash:
        high += int(converted)  # the masks may leave gaps that the logits do not fit into
    return ComputeBuffer(low, quantity(total), high, host, tuple(terms))


_LABELS = {
    "logits_bytes": "logits",
    "attention_bytes": "masks and attention of one layer",
    "mlp_bytes": "masks and MLP of one layer",
}


def _with_copy(peak: _Peak | None, size: int) -> _Peak | None:
    """Return a moment at which the GPU also has a copy of a matrix from the host, whose place may be that of others."""
    if peak is None or not size:
        return peak
    copy = symbol("from_host", size, "bytes of a matrix that is copied from the host")
    low, high = peak.spread
    return _Peak(quantity(peak.size + copy), (min(low, _COPIED[0]), max(high, _COPIED[1])))


def _largest(peaks: Iterator[_Peak | None]) -> _Peak | None:
    return max((peak for peak in peaks if peak), key=lambda peak: int(peak.size), default=None)


def _masks(graph: Graph, tokens: int, *, converted: bool) -> Quantity:
    """Return the bytes of the masks on the GPU: one of the whole context, and one of the windows.

    Before the changes of 2026 the masks are in f32, and flash attention has a copy in f16 of one of them at a time
    (`converted`), which the MLP does not need. With several GPUs every later GPU has the f16 copies only.
    """
    cells: int = symbol("cells", graph.full_cells, "cells of a stream")
    first = cells
    if graph.window_cells:
        first = symbol("window_cells", graph.window_cells, "cells of a sliding window")
        cells = cells + first
    if not graph.flash:
        return quantity(cells * tokens * F32 * graph.copies)
    if graph.release.short_masks or not graph.first:
        return quantity(cells * tokens * F16 * graph.copies)
    masks = cells * tokens * F32 * graph.copies
    return quantity(masks + first * tokens * F16 if converted else masks)


def _inputs(whole: ModelSpec, graph: Graph, d: int, tokens: int) -> int:
    """Return the bytes of the inputs' copies: token embeddings on the first GPU, two hidden states on others."""
    per_layer = _per_layer_inputs(whole) * graph.copies * tokens * F32
    if graph.gpus == 1:
        return per_layer
    return (graph.copies if graph.first else 2 * graph.copies) * d * tokens * F32 + per_layer


def _per_layer_inputs(whole: ModelSpec) -> int:
    """Return the elements of a token that Gemma 3n and Gemma 4 E have for all layers; 0 for other models."""
    return next((int(matrix.cols) for matrix in whole.extra if matrix.name == "layers_projection"), 0)


def _logits(whole: ModelSpec, run: _Pass) -> _Peak:
    rows = symbol("n_outputs", run.graph.rows, "rows of logits")
    vocab = symbol("V", whole.vocab_size or 0, "tokens of the vocabulary")
    size = rows * vocab * F32 + run.bytes_of(run.d) + run.inputs
    if run.graph.gpus > 1:
        copies = _masks(run.graph._replace(first=False), run.tokens, converted=False)
        size = size + named(copies, "copied_mask_bytes", "bytes of the masks' copies")
    return _Peak(quantity(size), _LATENT if run.latent else _CLOSE)


def _is_recurrent(layers: Layers) -> bool:
    """Return whether a layer has recurrent states instead of an attention kernel."""
    return not layers.attention.widths().n_heads


def _attention(layers: Layers, run: _Pass) -> _Peak | None:
    """Return the bytes during the attention of a layer, or during its recurrence; None if the kind is unknown."""
    kind, graph = layers.attention, run.graph
    if _is_recurrent(layers):
        return _recurrence(layers, run)
    if isinstance(kind, Latent):
        return _latent_attention(kind, run)
    if graph.pool_cells:
        return _compressed_attention(kind, run)
    widths = kind.widths()
    h, kv, d = widths.n_heads * widths.d_qk, widths.n_kv_heads * widths.d_qk, run.d
    gate = h if widths.gate else 0
    if not graph.flash:
        scores = run.bytes_of(widths.n_heads * _cells(layers, run))
        elements = 2 * h + 2 * kv + 2 * d + gate
        return _Peak(quantity(scores + run.masks + run.bytes_of(elements) + run.inputs), _GAPS)
    copied = _copied(layers, run)
    if copied:
        spread = _QUANTIZED_WINDOWS if graph.window_cells else _CLOSE
        elements = 2 * h + 2 * d + 3 * gate
        return _Peak(quantity(run.attention_masks + copied + run.bytes_of(elements) + run.inputs), spread)
    queries = 3 * h if graph.release.short_masks else 2 * h
    size = run.attention_masks + run.bytes_of(queries + 2 * kv + 2 * d) + run.inputs
    return _Peak(quantity(size), _CLOSE if graph.release.short_masks else _GAPS)


def _cells(layers: Layers, run: _Pass) -> int:
    if run.graph.window_cells and layers.attention.span.reach is not None:
        return symbol("window_cells", run.graph.window_cells, "cells of a sliding window")
    return run.cells


def _copied(layers: Layers, run: _Pass) -> int:
    """Return the bytes of a layer's K and V in f16, if flash attention needs a copy of them."""
    graph = run.graph
    if not graph.release.f16_cache_copy:
        return 0
    row: int = 0
    for cached in layers.cache():
        rows = cached.rows // 2 if cached.role == "kv" else cached.rows
        if graph.k_copied and cached.role in ("kv", "k"):
            row = row + rows * cached.width
        if graph.v_copied and cached.role in ("kv", "v"):
            row = row + rows * cached.width
    return _cells(layers, run) * graph.streams * row * F16


def _latent_attention(kind: Latent, run: _Pass) -> _Peak:
    """Return the bytes during MLA with absorbed matrices: a head's query, the same in the latent's width, the output.

    With an indexer (DSA) there are a mask of the picked keys, scores of the indexer and the picked keys of all layers.
    """
    graph, latent, d_qk = run.graph, kind.kv_lora_rank + kind.d_rope, kind.d_nope + kind.d_rope
    scores = 0 if graph.flash else run.bytes_of(kind.n_heads * run.cells)
    if kind.index_topk is not None:
        elements = kind.n_heads * (d_qk + 2 * latent) + 2 * run.d + run.layers * kind.index_topk
        masks = run.bytes_of(2 * run.cells)
        return _Peak(quantity(scores + masks + run.bytes_of(elements) + run.inputs), _INDEXED)
    elements = kind.n_heads * (d_qk + kind.kv_lora_rank + latent) + 4 * run.d
    copied: int = 0
    if graph.flash and graph.release.f16_cache_copy and graph.k_copied:
        # V is the latent without its rotary part, and is copied too
        copied = (latent + kind.kv_lora_rank) * run.cells * graph.streams * F16
    exact = graph.flash and graph.release.short_masks and not graph.k_copied
    size = scores + run.masks + copied + run.bytes_of(elements) + run.inputs
    return _Peak(quantity(size), _CLOSE if exact else _LATENT)


def _compressed_attention(kind: Attention, run: _Pass) -> _Peak:
    """Return the bytes during compressed attention: masks, queries, and the indexer's scores of all pools.

    Builds without a kernel for the indexer on CUDA have the scores of each of its heads, twice. Published buffers:
    67,094.60 MiB with 1,048,576 tokens and -ub 512 (unslothai/unsloth#6940), 130,527.19 with 512,000 and -ub 2048
    (ggml-org/llama.cpp#25468). These are 1.2 % and 0.5 % more than what is computed here.
    """
    widths, graph = kind.widths(), run.graph
    elements = 3 * widths.n_heads * widths.d_qk + 2 * widths.d_qk + 2 * run.d
    if heads := getattr(kind, "index_n_heads", None):
        scores = symbol("pool_cells", graph.pool_cells, "cells of pools of 4")
        elements = elements + (scores * 2 * heads if graph.release.scores_each_head else scores)
    size = run.attention_masks + run.bytes_of(elements) + run.inputs
    return _Peak(quantity(size), _CLOSE if graph.release.scores_each_head else _POOLED)


def _recurrence(layers: Layers, run: _Pass) -> _Peak | None:
    """Return the bytes during a recurrent layer; None if it has no convolution.

    Tensors are as wide as the convolution's channels: before and after it, and gates. Delta nets have 3, Mamba 5.
    """
    cached = layers.cache()
    channels = next((c.rows for c in cached if c.role == "convolution"), None)
    if channels is None:
        return None
    tensors = 3 if "delta" in layers.attention.headline.lower() else 5
    return _Peak(quantity(run.masks + run.bytes_of(tensors * channels + 2 * run.d) + run.inputs), _LINEAR)


def _mlp(layers: Layers, run: _Pass) -> _Peak | None:
    """Return the bytes during the MLP of a layer; None without one."""
    mlp, d, new = layers.mlp, run.d, run.graph.release.short_masks
    if mlp is None:
        return None
    several = run.graph.gpus > 1
    widths = layers.attention.widths()
    # a model with recurrent layers has room for the MLP where its convolutions were
    place_of_q = 0 if run.linear or not (new or several) else widths.n_heads * widths.d_v
    live = 2 * d + place_of_q
    masks, spread = (run.masks, _CLOSE) if new else (run.attention_masks if several else run.masks, _GAPS)
    if mlp.n_experts_per_token is None:
        elements = (3 if mlp.gated else 1) * mlp.d_ff + live
        return _Peak(quantity(masks + run.bytes_of(elements) + run.inputs), spread)
    up, down = mlp.n_experts_per_token * mlp.d_ff, mlp.n_experts_per_token * d
    if not new:
        elements = maximum(3 * up + 4 * d, 2 * down + 6 * d)
        return _Peak(quantity(masks + run.bytes_of(elements) + run.inputs), spread)
    shared = mlp.d_ff_shared or (mlp.n_shared_experts or 0) * mlp.d_ff
    if shared:  # the layer's input is needed again
        live = live + d
    elements = 3 * up + live
    if int(up) <= int(place_of_q):  # the first tensor fits into the place of Q
        elements = elements - up
    if int(down) > 2 * int(up):  # the outputs do not fit into the place of gate and up
        elements = elements + down
    elements = maximum(elements, 3 * shared + live) if shared else elements
    return _Peak(quantity(masks + run.bytes_of(elements) + run.inputs), _GAPS if shared else _CLOSE)


def _host(whole: ModelSpec, graph: Graph, d: int, tokens: int) -> Quantity:
    """Return the bytes of the host's buffer: masks, token embeddings, and scores of layers whose cache is there."""
    cells: int = symbol("cells", graph.full_cells, "cells of a stream")
    if graph.window_cells:
        cells = cells + symbol("window_cells", graph.window_cells, "cells of a sliding window")
    width = F16 if graph.flash and graph.release.short_masks else F32
    if any(isinstance(kind := layers.attention, Latent) and kind.index_topk for _, layers in whole.groups()):
        width += F16  # the indexer has a mask of its own
    embeddings = 1 + graph.copies if graph.release.short_masks else graph.release.host_embeddings
    hidden = (embeddings * d + _per_layer_inputs(whole)) * tokens * F32
    inputs = cells * tokens * width * graph.copies + hidden
    if graph.flash or not graph.host_attends:
        return quantity(inputs)
    heads = max((int(layers.attention.widths().n_heads) for _, layers in whole.groups()), default=0)
    scores = symbol("h", heads, "query heads") * symbol("cells", graph.full_cells, "cells of a stream") * tokens * F32
    return quantity(inputs + scores)
