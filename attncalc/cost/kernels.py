"""What is alive in one attention layer's forward pass, moment by moment, for each kernel.

The layer is written plainly: project q, k and v, run the kernel, project the output; no gradients.
Weights and the layer's input are resting; counted is what is allocated beyond them. q, k and v stay
alive until the layer returns. With tokens in the past the cache is resting too: new K and V are
written into it, and only a fused projection keeps them.

The phases of the math kernel are those of torch's composite `_scaled_dot_product_attention_math`
(aten/src/ATen/native/transformers/attention.cpp), which computes half precision in fp32, copies K
and V for every query head that shares them, and turns the causal flag into an fp32 matrix. Flash and
efficient keep no S x T tensor: FlashAttention (arXiv:2205.14135), memory-efficient attention
(arXiv:2112.05682). `attncalc verify` measures all of it.
"""

from __future__ import annotations

from typing import NamedTuple

from ..quantity import Quantity, ceil_div, minimum, named, quantity, symbol, total

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


class Machine(NamedTuple):
    """What a kernel's own buffers depend on; without it they are not counted.

    threads: of a CPU, whose flash kernel is another one. multiprocessors: of a GPU.
    """

    threads: int = 0
    multiprocessors: int = 0


class Shape(NamedTuple):
    """The sizes of one attention call.

    held_keys: new tokens whose K and V stay alive, with `extra` elements a token beside them. new_keys: those
    whose K and V go into the cache instead. mask: 'none', 'causal' (a flag) or 'matrix' (the caller's own, a
    byte a pair), of which there are `masks`.
    """

    B: int
    S: int
    T: int
    held_keys: int
    new_keys: int
    n_heads: int
    n_kv_heads: int
    d_qk: int
    d_v: int
    extra: int
    gate: bool
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


def peaks(s: Shape, machine: Machine) -> dict[str, Moment]:
    """The moment of the peak for each of KERNELS."""
    if machine.threads:
        flash = _fused(s, bias=True, scratch=(_logsumexp(s), *_of_threads(s, machine.threads)))
    else:
        flash = _fused(s, scratch=(_logsumexp(s), *_of_splits(s, machine.multiprocessors)))
    moments = {
        "math": _math(s),
        "flash": flash,
        "efficient": _fused(s, bias=True, repeats=True, scratch=_accumulator(s)),
        "cudnn": _fused(s, bias=True),
    }
    return {kernel: max(found, key=lambda m: m.size) for kernel, found in moments.items()}


def _live(name: str, what: str, size: int) -> Live:
    return Live(name, what, quantity(size))


def _projected(s: Shape) -> list[Live]:
    """What the projections leave, alive until the layer returns."""
    found = [_queries(s)]
    if s.held_keys:
        found += _keys(s, s.held_keys)
        if s.extra:
            found.append(_live("latent", "the latent, and what K was made from", s.B * s.held_keys * s.extra * s.bytes))
    return found


def _queries(s: Shape) -> Live:
    return _live("q", "queries", s.B * s.S * s.n_heads * s.d_qk * s.bytes)


def _keys(s: Shape, tokens: int) -> list[Live]:
    return [
        _live("k", "new keys", s.B * tokens * s.n_kv_heads * s.d_qk * s.bytes),
        _live("v", "new values", s.B * tokens * s.n_kv_heads * s.d_v * s.bytes),
    ]


def _own_mask(s: Shape) -> list[Live]:
    """The mask that the caller makes where a flag does not say it."""
    return [_live("mask", "the mask, a byte a pair", s.masks * s.S * s.T)] if s.mask == "matrix" else []


def _output(s: Shape) -> Live:
    return _live("out", "the kernel's output", s.B * s.S * s.n_heads * s.d_v * s.bytes)


def _projection(s: Shape, held: list[Live]) -> Moment:
    """The output projection: the same end for every kernel."""
    y = _live("y", "the layer's output", s.B * s.S * s.d_model * s.bytes)
    if s.gate and s.n_heads * s.d_v > s.d_model:
        gate = _live("gate", "the gate", s.B * s.S * s.n_heads * s.d_v * s.bytes)
        return Moment("the gate", (*held, _output(s), gate))
    return Moment("the output projection", (*held, _output(s), y))


def _fused(s: Shape, *, bias: bool = False, repeats: bool = False, scratch: tuple[Live, ...] = ()) -> list[Moment]:
    """Flash, efficient and cudnn: no scores.

    bias: a mask is given to it as a bias in the layer's dtype; flash on a GPU knows windows and lengths
    (FlashAttention's window_size and varlen). repeats: it takes no fewer KV heads than query heads.
    """
    held = _projected(s)
    inside = [*held]
    if bias:
        held += _own_mask(s)
    if bias and s.mask == "matrix":
        inside = [*held, _live("bias", "the mask as a bias", s.masks * s.S * s.T * s.bytes)]
    if repeats and s.grouped:
        repeated = _live("kv_repeated", "K and V of every query head", _keys_and_values(s) * s.bytes)
        inside.append(repeated)
    found = [Moment("the kernel", (*inside, _output(s), *scratch)), _projection(s, held)]
    if s.new_keys:  # heads that are wider together than the model: their K and V, before the cache has them
        found.append(Moment("the projections", (_queries(s), *_keys(s, s.new_keys))))
    return found


def _logsumexp(s: Shape) -> Live:
    return _live("logsumexp", "one fp32 a query and head", s.B * s.n_heads * s.S * FP32)


def _accumulator(s: Shape) -> tuple[Live, ...]:
    """torch's efficient kernel sums in registers up to a width of 128."""
    wide = s.half and max(s.d_qk, s.d_v) > 128
    return (_live("accumulator", "the output in fp32", s.B * s.S * s.n_heads * s.d_v * FP32),) if wide else ()


def _of_threads(s: Shape, threads: int) -> tuple[Live, ...]:
    """A block of scores and output for each thread of torch's kernel for CPUs.

    aten/src/ATen/native/cpu/FlashAttentionKernel.cpp: blocks of 256, 64 or 32 queries by 512 keys.
    """
    nt = symbol("threads", threads, "threads of the CPU")
    q_split = 256 if s.S >= 768 else 64 if s.S >= 192 else 32
    rows, cols = minimum(s.S, q_split), minimum(s.T, 512)
    size = nt * (rows * cols + 2 * rows + rows * s.d_qk) * FP32
    if s.half:
        size += nt * rows * cols * s.bytes
    return (_live("blocks", "each thread's block of scores and output", size),)


def _of_splits(s: Shape, multiprocessors: int) -> tuple[Live, ...]:
    """FlashAttention's partial outputs where a pass has too few queries to fill the GPU.

    csrc/flash_attn/flash_api.cpp, num_splits_heuristic: the keys are split over more blocks.
    """
    swapped = s.S == 1 and s.grouped  # the queries that share a KV head stand for query tokens
    rows = s.n_heads // s.n_kv_heads if swapped else s.S
    heads = s.n_kv_heads if swapped else s.n_heads
    blocks = int(ceil_div(s.T, 256 if s.d_qk <= 64 else 128 if s.d_qk <= 128 else 64))
    splits = _splits(int(s.B * heads * ceil_div(rows, 64)), 2 * multiprocessors, blocks)
    if splits == 1:
        return ()
    width = 32 * ceil_div(s.d_qk, 32)
    n = symbol("splits", splits, "parts the keys are split into")
    return (_live("partial", "partial outputs in fp32", n * s.B * s.n_heads * s.S * (width + 1) * FP32),)


def _splits(tiles: int, slots: int, blocks: int) -> int:
    """The fewest parts that keep the GPU 85 % as busy as it can be."""
    if not slots or tiles >= 0.8 * slots:
        return 1
    busy = {}
    for n in range(1, min(128, slots, blocks) + 1):
        if n == 1 or -(-blocks // n) != -(-blocks // (n - 1)):
            waves = tiles * n / slots
            busy[n] = waves / -(-tiles * n // slots)
    return next(n for n, share in busy.items() if share >= 0.85 * max(busy.values()))


def _keys_and_values(s: Shape) -> int:
    """Elements of K and V with a head for every query head."""
    return s.B * s.T * s.n_heads * (s.d_qk + s.d_v)


def _math(s: Shape) -> list[Moment]:
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
    masked = [*held, *_mask_as_bias(s)]
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


def _mask_as_bias(s: Shape) -> list[Live]:
    """What is added to the scores: in the layer's dtype for the caller's own mask, in fp32 for the flag."""
    if s.mask == "none":
        return []
    if s.mask == "causal":
        return [_live("mask_fp32", "the mask in fp32", s.S * s.T * FP32)]
    return [_live("bias", "the mask as a bias", s.masks * s.S * s.T * s.bytes)]


def _copied_for_qk(s: Shape) -> list[Live]:
    """A batched matmul of several sequences and heads wants its operands contiguous; repeated keys are."""
    if s.B == 1 or s.n_heads == 1:
        return []
    found = []
    if s.S > 1:
        found.append(_live("q_copied", "scaled queries, contiguous", s.B * s.S * s.n_heads * s.d_qk * FP32))
    if s.T > 1 and not s.grouped:
        found.append(_live("k_copied", "scaled keys, contiguous", s.B * s.T * s.n_heads * s.d_qk * FP32))
    return found


def _copied_for_pv(s: Shape) -> list[Live]:
    """The values, for the same reason; or the output in the layer's dtype, if that is more."""
    values = s.B * s.T * s.n_heads * s.d_v * FP32 if s.B > 1 and s.n_heads > 1 and s.T > 1 and not s.grouped else 0
    output = s.B * s.S * s.n_heads * s.d_v * s.bytes if s.half else 0
    if values >= output:
        return [_live("v_copied", "values, contiguous", values)]
    return [_live("out_half", "the output in the layer's dtype", output)]


def _half_weights(s: Shape) -> list[Live]:
    return [_live("softmax_half", "softmax in the layer's dtype", s.pairs * s.bytes)] if s.half else []
