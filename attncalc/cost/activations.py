"""Activation memory of one attention layer's forward pass: the score matrix, and the peak by kernel.

The layer is written plainly: project q, k and v, run the kernel, project the output; no gradients.
Weights and the layer's input are resting; counted is what is allocated beyond them. q, k and v stay
alive until the layer returns. With tokens in the past, cached K and V are resting too.

The phases of the math kernel are those of torch's composite `_scaled_dot_product_attention_math`
(aten/src/ATen/native/transformers/attention.cpp), which computes half precision in fp32, copies K
and V for every query head that shares them, and turns a mask into an fp32 matrix; they agreed to the
byte with torch 2.13's profiler on a CPU. Flash and efficient keep no S x T tensor: FlashAttention
(arXiv:2205.14135), memory-efficient attention (arXiv:2112.05682).
"""

from __future__ import annotations

from typing import NamedTuple

from ..attention import FULL, Attention, refuse_past
from ..model import Layers, ModelSpec, Stack
from ..quantity import Quantity, named, quantity, symbol, total
from ..workload import Run, Workload
from .parts import compute_dtype, group_name

KERNELS = ("math", "flash", "efficient", "cudnn")
FP32 = 4


class Live(NamedTuple):
    """A tensor that is alive at a moment of the pass, in bytes."""

    name: str
    what: str
    size: Quantity


class Moment(NamedTuple):
    """A moment of the forward pass and everything that is alive in it."""

    name: str
    live: tuple[Live, ...]

    @property
    def size(self) -> int:
        """Bytes alive."""
        return sum(int(tensor.size) for tensor in self.live)

    @property
    def total(self) -> Quantity:
        """Bytes alive, as the sum of the named tensors with their own formulas in the legend."""
        return total(named(t.size, t.name, f"bytes of {t.what}") for t in self.live if t.size)


class LayerActivations(NamedTuple):
    """One layer of a group: its score matrix, and the moment of its peak for each kernel, in bytes.

    attention: 'self' or 'cross'. score_shape: (B, n_heads, S, T).
    """

    group: str
    layers: Layers
    attention: str
    score_shape: tuple[int, int, int, int]
    score_elements: Quantity
    score_matrix_per_head: Quantity
    score_matrix: Quantity
    output_shape: tuple[int, int, int]
    peaks: dict[str, Moment]


def activations(model: ModelSpec, workload: Workload) -> tuple[LayerActivations, ...]:
    """The activation memory of one layer of each group, on one device.

    AttncalcError: for a dtype that activations cannot have.
    """
    symbols, asked = model.symbolic(), workload.symbolic()
    found = []
    for stack, layers in symbols.groups():
        if not stack.runs(asked):
            continue
        group = group_name(symbols, stack, layers)
        shape = _shape(symbols, stack, layers.attention, asked)
        found.append(_layer(group, layers, "self", shape))
        if layers.cross:
            shape = _shape(symbols, stack, layers.cross, asked, cross=True)
            found.append(_layer(group, layers, "cross", shape))
    return tuple(found)


class _Shape(NamedTuple):
    """The sizes of one attention call. new_keys: tokens whose K and V this pass makes."""

    B: int
    S: int
    T: int
    new_keys: int
    n_heads: int
    n_kv_heads: int
    d_qk: int
    d_v: int
    extra: int
    values_in_keys: bool
    d_model: int
    bytes: int
    mask: str
    masks: int

    @property
    def half(self) -> bool:
        return self.bytes < FP32

    @property
    def grouped(self) -> bool:
        return self.n_kv_heads != self.n_heads

    @property
    def pairs(self) -> int:
        return self.B * self.n_heads * self.S * self.T


def _shape(model: ModelSpec, stack: Stack, attention: Attention, workload: Workload, cross: bool = False) -> _Shape:
    in_dtype = compute_dtype(model, workload)
    encoder = stack.reads == "source"
    new, context = (workload.source or 0,) * 2 if encoder else (workload.new, workload.context)
    mask = workload.mask if workload.mask and not encoder else stack.mask
    if not cross:
        refuse_past(Run(1, new, context), mask)
    if cross:
        context = workload.source or 0
    made = (0 if workload.past or workload.phase == "decode" else context) if cross else new
    around = attention.widths(Run(workload.batch, new, context))
    return _Shape(
        B=workload.batch,
        S=new,
        T=context,
        new_keys=made,
        n_heads=around.n_heads,
        n_kv_heads=around.n_kv_heads,
        d_qk=around.d_qk,
        d_v=around.d_v,
        extra=around.extra,
        values_in_keys=around.values_in_keys,
        d_model=stack.d_model,
        bytes=symbol("bytes", in_dtype.bits // 8, f"bytes of an element in {in_dtype.name}"),
        mask=_mask(cross, bool(new == 1), mask.kind, attention.span != FULL or bool(workload.lengths)),
        masks=workload.batch if workload.lengths and not encoder else 1,
    )


def _mask(cross: bool, single: bool, kind: str, narrowed: bool) -> str:
    """'none', 'causal' (a flag, from which math builds a matrix) or 'matrix' (the caller's own)."""
    if narrowed and not cross:
        return "matrix"
    if cross or single or kind == "bidirectional":
        return "none"
    return "causal" if kind == "causal" else "matrix"


def _layer(group: str, layers: Layers, attention: str, s: _Shape) -> LayerActivations:
    moments = {
        "math": _math(s),
        "flash": _fused(s, logsumexp=True, repeats=False),
        "efficient": _fused(s, logsumexp=False, repeats=True),
        "cudnn": _fused(s, logsumexp=False, repeats=False),
    }
    return LayerActivations(
        group=group,
        layers=layers,
        attention=attention,
        score_shape=(int(s.B), int(s.n_heads), int(s.S), int(s.T)),
        score_elements=quantity(s.pairs),
        score_matrix_per_head=quantity(s.S * s.T * s.bytes),
        score_matrix=quantity(s.pairs * s.bytes),
        output_shape=(int(s.B), int(s.S), int(s.d_model)),
        peaks={kernel: max(found, key=lambda m: m.size) for kernel, found in moments.items()},
    )


def _live(name: str, what: str, size: int) -> Live:
    return Live(name, what, quantity(size))


def _projected(s: _Shape) -> list[Live]:
    """What the projections leave, alive until the layer returns."""
    found = [_live("q", "queries", s.B * s.S * s.n_heads * s.d_qk * s.bytes)]
    if s.new_keys:
        found.append(_live("k", "new keys", s.B * s.new_keys * s.n_kv_heads * s.d_qk * s.bytes))
        if not s.values_in_keys:
            found.append(_live("v", "new values", s.B * s.new_keys * s.n_kv_heads * s.d_v * s.bytes))
        if s.extra:
            found.append(_live("latent", "the latent", s.B * s.new_keys * s.extra * s.bytes))
    return found


def _own_mask(s: _Shape) -> list[Live]:
    """The mask that the caller makes where a flag does not say it."""
    return [_live("mask", "the mask, a byte a pair", s.masks * s.S * s.T)] if s.mask == "matrix" else []


def _output(s: _Shape) -> Live:
    return _live("out", "the kernel's output", s.B * s.S * s.n_heads * s.d_v * s.bytes)


def _projection(s: _Shape, held: list[Live]) -> Moment:
    """The output projection: the same end for every kernel."""
    y = _live("y", "the layer's output", s.B * s.S * s.d_model * s.bytes)
    return Moment("the output projection", (*held, _output(s), y))


def _fused(s: _Shape, *, logsumexp: bool, repeats: bool) -> list[Moment]:
    """Flash, efficient and cudnn: no scores. repeats: K and V are copied for every query head.

    Flash and cudnn are taken to know the mask (FlashAttention's window_size and varlen); torch's
    efficient kernel is given it, as a bias in the layer's dtype.
    """
    held = _projected(s)
    if repeats and s.mask == "matrix":
        held += [*_own_mask(s), _live("bias", "the mask as a bias", s.masks * s.S * s.T * s.bytes)]
    if repeats and s.grouped:  # torch's efficient kernel takes no fewer KV heads than query heads
        held.append(_live("kv_repeated", "K and V of every query head", _keys_and_values(s) * s.bytes))
    inside = [*held, _output(s)]
    if logsumexp:
        inside.append(_live("logsumexp", "one fp32 a query and head", s.B * s.n_heads * s.S * FP32))
    return [Moment("the kernel", tuple(inside)), _projection(s, held)]


def _keys_and_values(s: _Shape) -> int:
    """Elements of K and V with a head for every query head."""
    return s.B * s.T * s.n_heads * (s.d_qk + s.d_v)


def _math(s: _Shape) -> list[Moment]:
    """The unfused kernel: scores and softmax as whole matrices, in fp32 whatever the dtype."""
    base = [*_projected(s), *_own_mask(s)]
    held = [*base, _live("q_scaled", "scaled queries in fp32", s.B * s.S * s.n_heads * s.d_qk * FP32)]
    if s.half:
        held.append(
            _live(
                "qkv_fp32",
                "q, k and v in fp32",
                (s.B * s.S * s.n_heads * s.d_qk + s.B * s.T * s.n_kv_heads * (s.d_qk + s.d_v)) * FP32,
            )
        )
    if s.grouped:
        held.append(_live("kv_repeated", "fp32 K and V of every query head", _keys_and_values(s) * FP32))
    matrix = _live("mask_fp32", "the mask in fp32", s.masks * s.S * s.T * FP32)
    masked = [*held, matrix] if s.mask != "none" else held
    scores = _live("scores", "fp32 scores", s.pairs * FP32)
    out = _live("out", "fp32 output", s.B * s.S * s.n_heads * s.d_v * FP32)
    scaled = _live("k_scaled", "scaled keys in fp32", s.B * s.T * s.n_heads * s.d_qk * FP32)
    softmax = _live("softmax", "fp32 softmax", s.pairs * FP32)
    rows = [
        _live("is_masked", "masked pairs, a byte each", s.pairs),
        _live("row_masked", "masked queries, a byte each", s.B * s.n_heads * s.S),
        _live("scalar", "a constant", FP32),
    ]
    # Making the mask's matrix never is the peak: it holds 5 bytes a pair of one head, softmax 9 of each.
    return [
        Moment("QK", (*masked, scaled, *_copied_for_qk(s), scores)),
        Moment("softmax", (*masked, scores, softmax, *rows)),
        Moment("PV", (*masked, softmax, *_half_weights(s), *_copied_for_pv(s), out)),
        _projection(s, base),
    ]


def _copied_for_qk(s: _Shape) -> list[Live]:
    """A batched matmul of several sequences and heads wants its operands contiguous; repeated keys are."""
    if s.B == 1 or s.n_heads == 1:
        return []
    found = []
    if s.S > 1:
        found.append(_live("q_copied", "scaled queries, contiguous", s.B * s.S * s.n_heads * s.d_qk * FP32))
    if s.T > 1 and not s.grouped:
        found.append(_live("k_copied", "scaled keys, contiguous", s.B * s.T * s.n_heads * s.d_qk * FP32))
    return found


def _copied_for_pv(s: _Shape) -> list[Live]:
    """The values, for the same reason; or the output in the layer's dtype, if that is more."""
    values = s.B * s.T * s.n_heads * s.d_v * FP32 if s.B > 1 and s.n_heads > 1 and s.T > 1 and not s.grouped else 0
    output = s.B * s.S * s.n_heads * s.d_v * s.bytes if s.half else 0
    if values >= output:
        return [_live("v_copied", "values, contiguous", values)]
    return [_live("out_half", "the output in the layer's dtype", output)]


def _half_weights(s: _Shape) -> list[Live]:
    return [_live("softmax_half", "softmax in the layer's dtype", s.pairs * s.bytes)] if s.half else []
