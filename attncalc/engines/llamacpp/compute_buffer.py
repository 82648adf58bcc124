"""The compute buffer: the tensors of one pass over a micro-batch, in the buffer that llama.cpp allocates at start-up.

ggml's allocator gives a tensor's bytes to later tensors as soon as it is read for the last time, so the number of
layers does not matter. The buffer is as large as the largest of three moments: the logits, the attention of one layer,
or the MLP of one layer. Tensors are in f32. With d the model's width, h the width of all query heads, kv that of all KV heads,
ff the MLP's and u = 4 * n_ubatch bytes:

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

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from ...attention.latent import Latent
from ...model import Layers, ModelSpec
from ...quantity import Quantity, maximum, named, quantity, symbol
from ..runtime import Term
from .versions import LlamaCppVersion

F32, F16 = 4, 2
"""Bytes of an element."""
COPIES = 4
"""Copies of every input with several GPUs, so that they can work on different micro-batches at once
(GGML_SCHED_MAX_COPIES, ggml/CMakeLists.txt)."""
_CLOSE = (Fraction(98, 100), Fraction(103, 100))
"""The range of a term that ggml's allocator confirms to 2 %: dense models and experts, with and without windows."""
_LINEAR = (Fraction(90, 100), Fraction(115, 100))
_LATENT = (Fraction(85, 100), Fraction(115, 100))
_INDEXED = (Fraction(80, 100), Fraction(125, 100))
_QUANTIZED_WINDOWS = (Fraction(95, 100), Fraction(150, 100))
"""A log of Gemma 4 26B with a q8_0 cache of 262,144 tokens has 1,888 MiB, where the allocator finds 1,339."""
_UNKNOWN = (Fraction(60, 100), Fraction(160, 100))


class Graph(NamedTuple):
    """What the graph of one pass depends on, besides the model.

    Attributes:
        release: the version of llama.cpp.
        flash: whether flash attention is on.
        ubatch: tokens of the pass.
        rows: rows of logits.
        full_cells: cells of a stream that a mask covers.
        window_cells: the same for sliding windows; 0 without windows.
        streams: streams of cells.
        k_copied: whether flash attention on CUDA copies K to f16.
        v_copied: whether it copies V.
        gpus: GPUs with layers of their own.
        first: whether the GPU has the first layer.
        last: whether the GPU has the last layer and the logits.
    """

    release: LlamaCppVersion
    flash: bool
    ubatch: int
    rows: int
    full_cells: int
    window_cells: int
    streams: int
    k_copied: bool
    v_copied: bool
    gpus: int = 1
    first: bool = True
    last: bool = True

    @property
    def copies(self) -> int:
        """The copies of every input."""
        return COPIES if self.gpus > 1 else 1


class ComputeBuffer(NamedTuple):
    """The compute buffers of one GPU and of the host.

    Attributes:
        low: the fewest bytes to expect on the GPU.
        expected: the expected bytes, with a formula.
        high: the most bytes to expect.
        host: bytes of the buffer in host memory (CUDA_Host).
        terms: (name, label, figure) of the symbols in the formula.
    """

    low: int
    expected: Quantity
    high: int
    host: Quantity
    terms: tuple[Term, ...]


class _Peak(NamedTuple):
    """The bytes at one moment of the pass, and their range relative to the formula."""

    size: Quantity
    spread: tuple[Fraction, Fraction] = _CLOSE


def compute_buffer(model: ModelSpec, whole: ModelSpec, graph: Graph) -> ComputeBuffer:
    """Return the compute buffers for a pass over `model`, the layers on this GPU, of the model `whole`."""
    d = whole.symbolic().main.d_model
    n = symbol("n_ubatch", graph.ubatch, "tokens of a micro-batch (-ub)")
    masks = _masks(graph, n)
    mask_bytes = named(masks, "masks", "bytes of the masks")
    inputs = _inputs(whole, graph, d, n)
    groups = [layers for _, layers in model.symbolic().groups()]
    linear = any(_is_linear(layers) for _, layers in whole.groups())
    peaks: dict[str, tuple[str, _Peak]] = {}
    if graph.last and whole.vocab_size:
        peaks["logits_bytes"] = ("logits", _logits(whole, graph, d, n, inputs))
    attention = _largest(_attention(layers, d, n, graph, mask_bytes, inputs, linear=linear) for layers in groups)
    if attention:
        peaks["attention_bytes"] = ("masks and attention of one layer", attention)
    mlp = _largest(_mlp(layers, d, n, graph, mask_bytes, inputs, whole, linear=linear) for layers in groups)
    if mlp:
        peaks["mlp_bytes"] = ("masks and MLP of one layer", mlp)
    if not peaks:  # a GPU without layers
        return ComputeBuffer(0, quantity(0), 0, _host(whole, graph, d, n), ())
    total: int = quantity(0)
    for i, (name, (label, peak)) in enumerate(peaks.items()):
        part = named(peak.size, name, f"bytes: {label}")
        total = maximum(total, part) if i else part
    low = max(int(int(peak.size) * peak.spread[0]) for _, peak in peaks.values())
    high = max(int(int(peak.size) * peak.spread[1]) for _, peak in peaks.values())
    if graph.release.short_masks:
        # CUDA keeps the embeddings of a pass in the host's buffer; a single backend (CPU) has them in this buffer.
        # Half of them is within 4% of both.
        embeddings = d * n * F32
        total, high = total + embeddings // 2, high + int(embeddings)
    elif graph.flash:
        high += F32 * int(mask_bytes) // F16  # the f32 mask may leave gaps that the logits do not fit into
    terms = [(name, label, peak.size) for name, (label, peak) in peaks.items()]
    return ComputeBuffer(low, quantity(total), high, _host(whole, graph, d, n), (("masks", "masks", masks), *terms))


def _largest(peaks: Iterator[_Peak | None]) -> _Peak | None:
    return max((peak for peak in peaks if peak), key=lambda peak: int(peak.size), default=None)


def _masks(graph: Graph, n: int) -> Quantity:
    """Return the bytes of the masks on the GPU: one of the whole context, and one of the windows.

    Before the changes of 2026 the masks are in f32, and flash attention has a copy in f16 of one of them at a time.
    With several GPUs every later GPU has the f16 copies only.
    """
    cells: int = symbol("cells", graph.full_cells, "cells of a stream")
    first = cells
    if graph.window_cells:
        first = symbol("window_cells", graph.window_cells, "cells of a sliding window")
        cells = cells + first
    if not graph.flash:
        return quantity(cells * n * F32 * graph.copies)
    if graph.release.short_masks or not graph.first:
        return quantity(cells * n * F16 * graph.copies)
    return quantity(cells * n * F32 * graph.copies + first * n * F16)


def _inputs(whole: ModelSpec, graph: Graph, d: int, n: int) -> int:
    """Return the bytes of the inputs' copies: token embeddings on the first GPU, two hidden states on others."""
    per_layer = _per_layer_inputs(whole) * n * F32
    if graph.gpus == 1:
        return per_layer
    return (graph.copies if graph.first else 2 * graph.copies) * d * n * F32 + per_layer


def _per_layer_inputs(whole: ModelSpec) -> int:
    """Return the elements of a token that Gemma 3n and Gemma 4 E have for all layers; 0 for other models."""
    return next((int(matrix.cols) for matrix in whole.extra if matrix.name == "layers_projection"), 0)


def _logits(whole: ModelSpec, graph: Graph, d: int, n: int, inputs: int) -> _Peak:
    rows = symbol("n_outputs", graph.rows, "rows of logits")
    vocab = symbol("V", whole.vocab_size or 0, "tokens of the vocabulary")
    size = rows * vocab * F32 + d * n * F32 + inputs
    if graph.gpus > 1:
        size = size + named(_masks(graph._replace(first=False), n), "masks", "bytes of the masks")
    return _Peak(quantity(size))


def _is_linear(layers: Layers) -> bool:
    """Return whether a layer has recurrent states instead of an attention kernel."""
    return not layers.attention.widths().n_heads


def _attention(layers: Layers, d: int, n: int, graph: Graph, masks: int, inputs: int, *, linear: bool) -> _Peak | None:
    """Return the bytes during the attention of a layer, or during its recurrence; None if the kind is unknown."""
    kind, u = layers.attention, n * F32
    if _is_linear(layers):
        return _recurrence(layers, d, n, masks if linear else 0, inputs)
    widths = kind.widths()
    if isinstance(kind, Latent):
        return _latent_attention(kind, d, n, graph, masks, inputs)
    h = widths.n_heads * widths.d_qk
    kv = widths.n_kv_heads * widths.d_qk
    gated = h if widths.gate else 0
    if not graph.flash:
        cells = _cells(layers, graph)
        scores = widths.n_heads * cells * n * F32
        return _Peak(quantity(scores + masks + (2 * h + 2 * kv + 2 * d + gated) * u + inputs))
    copied = _copied(layers, graph)
    if copied:
        spread = _QUANTIZED_WINDOWS if graph.window_cells else _CLOSE
        return _Peak(quantity(masks + copied + (2 * h + 2 * d + 3 * gated) * u + inputs), spread)
    queries = 3 * h if graph.release.short_masks else 2 * h
    return _Peak(quantity(masks + (queries + 2 * kv + 2 * d) * u + inputs))


def _cells(layers: Layers, graph: Graph) -> int:
    """Return the cells of a stream of that layer."""
    if graph.window_cells and layers.attention.span.reach is not None:
        return symbol("window_cells", graph.window_cells, "cells of a sliding window")
    return symbol("cells", graph.full_cells, "cells of a stream")


def _copied(layers: Layers, graph: Graph) -> int:
    """Return the bytes of a layer's K and V in f16, if flash attention needs a copy of them."""
    if not graph.release.f16_cache_copy or not (graph.k_copied or graph.v_copied):
        return 0
    rows = 0
    for cached in layers.cache():
        both = cached.role == "kv"
        if cached.scales_with != "context" or cached.role not in ("kv", "k", "v", "latent"):
            continue
        k_rows = cached.rows // 2 if both else cached.rows
        if graph.k_copied and cached.role != "v":
            rows = rows + k_rows * cached.width
        if graph.v_copied and cached.role != "k":
            # V of a latent is the latent without its rotary part
            rows = rows + k_rows * (cached.width - cached.rotary)
    return _cells(layers, graph) * graph.streams * rows * F16


def _latent_attention(kind: Latent, d: int, n: int, graph: Graph, masks: int, inputs: int) -> _Peak:
    """Return the bytes during MLA with absorbed matrices: a head's query, the same in the latent's width, the output.

    With an indexer (DSA) there are a mask of the picked keys, scores of the indexer and the picked keys of all layers.
    """
    u, latent = n * F32, kind.kv_lora_rank + kind.d_rope
    d_qk = kind.d_nope + kind.d_rope
    cells = symbol("cells", graph.full_cells, "cells of a stream")
    spread = _CLOSE if graph.flash and graph.release.short_masks and not graph.k_copied else _LATENT
    scores = 0 if graph.flash else kind.n_heads * cells * n * F32
    if kind.index_topk is not None:
        elements = kind.n_heads * (d_qk + 2 * latent) + 2 * d
        return _Peak(quantity(scores + masks + 3 * cells * n * F16 + elements * u + inputs), _INDEXED)
    elements = kind.n_heads * (d_qk + kind.kv_lora_rank + latent) + 4 * d
    copied = 0
    if graph.flash and graph.release.f16_cache_copy:
        copied = (latent * graph.k_copied + kind.kv_lora_rank * graph.v_copied) * cells * graph.streams * F16
    if graph.flash and not graph.release.short_masks:
        masks = named(int(masks) * F32 // (F32 + F16), "long_masks", "bytes of the masks in f32")
    return _Peak(quantity(scores + masks + copied + elements * u + inputs), spread)


def _recurrence(layers: Layers, d: int, n: int, masks: int, inputs: int) -> _Peak | None:
    """Return the bytes during a recurrent layer: its convolution's channels before and after, and gates.

    Delta nets have 3 tensors as wide as the convolution, Mamba 5.
    """
    cached = layers.cache()
    channels = next((c.rows for c in cached if c.role == "convolution"), None)
    if channels is None:
        return None
    copies = 3 if "delta" in layers.attention.headline.lower() else 5
    return _Peak(quantity(masks + (copies * channels + 2 * d) * n * F32 + inputs), _LINEAR)


def _mlp(
    layers: Layers, d: int, n: int, graph: Graph, masks: int, inputs: int, whole: ModelSpec, *, linear: bool
) -> _Peak | None:
    """Return the bytes during the MLP of a layer; None without one."""
    mlp = layers.mlp
    if mlp is None:
        return None
    widths, u = layers.attention.widths(), n * F32
    # a model with recurrent layers has room for the MLP where its convolutions were
    place_of_q = 0 if linear else widths.n_heads * widths.d_v
    new = graph.release.short_masks
    live = 2 * d + place_of_q if new else 2 * d
    if mlp.n_experts_per_token is None:
        tensors = 3 if mlp.gated else 1
        return _Peak(quantity(masks + (tensors * mlp.d_ff + live) * u + inputs))
    k, up = mlp.n_experts_per_token, mlp.n_experts_per_token * mlp.d_ff
    down = k * d
    if not new:
        return _Peak(quantity(masks + maximum(3 * up + 4 * d, 2 * down + 6 * d) * u + inputs))
    shared = mlp.d_ff_shared or (mlp.n_shared_experts or 0) * mlp.d_ff
    if shared:  # the layer's input is needed again
        live = live + d
    routed = 3 * up + live
    if int(up) <= int(place_of_q):  # the first tensor fits into the place of Q
        routed = routed - up
    if int(down) > 2 * int(up):  # the outputs do not fit into the place of gate and up
        routed = routed + down
    largest = maximum(routed, 3 * shared + live) if shared else routed
    return _Peak(quantity(masks + largest * u + inputs))


def _host(whole: ModelSpec, graph: Graph, d: int, n: int) -> Quantity:
    """Return the bytes of the host's buffer: the inputs of a pass, which are masks and token embeddings."""
    cells: int = symbol("cells", graph.full_cells, "cells of a stream")
    if graph.window_cells:
        cells = cells + symbol("window_cells", graph.window_cells, "cells of a sliding window")
    width = F16 if graph.flash and graph.release.short_masks else F32
    embeddings = graph.release.host_embeddings
    if graph.gpus > 1 and graph.release.short_masks:
        embeddings = 5
    return quantity(cells * n * width * graph.copies + (embeddings * d + _per_layer_inputs(whole)) * n * F32)
