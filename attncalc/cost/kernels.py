"""The tensors that one attention layer's forward pass holds, moment by moment, for each kernel.

The layer projects q, k and v, runs the kernel and projects the output, without gradients. Its
weights and its input exist before it starts, so only what it allocates is counted. q, k and v are
freed when the layer returns. With tokens in the past the cache exists before too: new K and V are
written into it and freed. With a fused projection they are freed only when the layer returns,
because q, k and v are views of one tensor.

The math kernel is torch's composite `_scaled_dot_product_attention_math`
(aten/src/ATen/native/transformers/attention.cpp). It computes half precision in fp32, copies K and
V for every query head that shares them, and turns the causal flag into an fp32 matrix. Flash
(FlashAttention, arXiv:2205.14135) and efficient (memory-efficient attention, arXiv:2112.05682) hold
no S x T tensor. `attncalc verify` measures all of them.
"""

from collections.abc import Iterable

from ..quantity import Constant, Quantity, ceil_div, minimum, named, quantity, symbol, total
from ..records import NamedTuple

KERNELS = ("math", "flash", "efficient", "cudnn")
FP32 = Constant(4, "bytes of an element in fp32")
# Head widths of FlashAttention are multiples of this; torch pads others (pad_last_dim in
# attention.cpp).
FLASH_ALIGNMENT = 8
# Rows of the efficient kernel's bias are multiples of this; torch pads others (pad_bias in
# attention.cpp).
EFFICIENT_ALIGNMENT = 8


class HeldTensor(NamedTuple):
    """A tensor that is held at a moment of the pass."""

    name: str  # its name in formulas
    meaning: str  # what it holds
    size: Quantity  # bytes
    inside: bool  # whether a kernel allocates it inside, so that torch's dispatcher does not see it


class Moment(NamedTuple):
    """A moment of the forward pass and the tensors that are held then."""

    name: str  # its name on screens: 'PV'
    tensors: tuple[HeldTensor, ...]  # the tensors held

    @property
    def size(self) -> int:
        """Return the bytes held."""
        return sum(int(tensor.size) for tensor in self.tensors)

    @property
    def total(self) -> Quantity:
        """Return the bytes held, as the sum of the named tensors."""
        return total(named(t.size, t.name, f"bytes of {t.meaning}") for t in self.tensors if t.size)

    @property
    def without_buffers(self) -> "Moment":
        """Return the moment without what a kernel allocates inside."""
        return self._replace(tensors=tuple(tensor for tensor in self.tensors if not tensor.inside))


class Machine(NamedTuple):
    """The device that a kernel's own buffers depend on."""

    threads: int = 0  # threads of a CPU, which has its own flash kernel; 0 for a GPU
    # streaming multiprocessors of a GPU; 0 leaves out the buffers that depend on them
    multiprocessors: int = 0
    # Whether it is AMD's GPU. Its flash and efficient kernels (AOTriton) neither split keys nor
    # have an fp32 accumulator.
    rocm: bool = False
    # whether the efficient kernel takes shared KV heads as they are
    efficient_shares_kv_heads: bool = False


class Shape(NamedTuple):
    """The sizes of one attention call."""

    B: int  # sequences
    S: int  # queries of a sequence
    T: int  # keys of a sequence
    live_keys: int  # new tokens whose K and V are held until the layer returns
    cached_keys: int  # new tokens whose K and V are written into the cache and freed
    n_heads: int  # query heads
    n_kv_heads: int  # key and value heads
    d_qk: int  # width of a query and a key head
    d_v: int  # width of a value head
    extra: int  # further elements held per live key
    gate: int  # width of the gate on the output; 0 without one
    d_model: int  # width of the model
    bytes: int  # bytes of an element
    mask: str  # 'none', 'causal' (a flag) or 'matrix' (the caller's own, one byte per pair)
    # how many mask matrices the caller makes: one per sequence of a padded batch, otherwise 1
    masks: int

    @property
    def half(self) -> bool:
        """Whether elements have fewer bits than fp32."""
        return self.bytes < FP32

    @property
    def grouped(self) -> bool:
        """Whether query heads share KV heads."""
        return self.n_kv_heads != self.n_heads

    @property
    def pairs(self) -> int:
        """The elements of the score matrix."""
        return self.B * self.n_heads * self.S * self.T


def peak(moments: Iterable[Moment]) -> Moment:
    """Return the moment with the most bytes held."""
    return max(moments, key=lambda moment: moment.size)


def moments(s: Shape, machine: Machine) -> dict[str, list[Moment]]:
    """Return the moments that may be the peak, for each of KERNELS."""
    if machine.threads:
        flash = _fused(s, bias=True, scratch=(_logsumexp(s), *_thread_buffers(s, machine.threads)))
    else:
        splits = () if machine.rocm else _split_buffers(s, machine.multiprocessors)
        flash = _fused(s, scratch=(_logsumexp(s), *_padded_heads(s), *splits))
    efficient = _fused(
        s,
        bias=True,
        repeats=not machine.efficient_shares_kv_heads,
        alignment=EFFICIENT_ALIGNMENT,
        scratch=() if machine.rocm else _accumulator(s),
    )
    return {"math": _math(s), "flash": flash, "efficient": efficient, "cudnn": _fused(s, bias=True)}


def _tensor(name: str, meaning: str, size: int, *, inside: bool = False) -> HeldTensor:
    return HeldTensor(name, meaning, quantity(size), inside)


def _projected(s: Shape) -> list[HeldTensor]:
    """Return the outputs of the projections, held until the layer returns."""
    tensors = [_queries(s)]
    if s.live_keys:
        tensors += _keys(s, s.live_keys)
        if s.extra:
            size = s.B * s.live_keys * s.extra * s.bytes
            tensors.append(_tensor("latent", "the latent, and what K was made from", size))
    return tensors


def _queries(s: Shape) -> HeldTensor:
    return _tensor("q", "queries", s.B * s.S * s.n_heads * s.d_qk * s.bytes)


def _keys(s: Shape, tokens: int) -> list[HeldTensor]:
    return [
        _tensor("k", "new keys", s.B * tokens * s.n_kv_heads * s.d_qk * s.bytes),
        _tensor("v", "new values", s.B * tokens * s.n_kv_heads * s.d_v * s.bytes),
    ]


def _caller_mask(s: Shape) -> list[HeldTensor]:
    """Return the mask that the caller makes if a flag is not enough."""
    if s.mask == "matrix":
        return [_tensor("mask", "the mask, one byte per pair", s.masks * s.S * s.T)]
    return []


def _output(s: Shape) -> HeldTensor:
    return _tensor("out", "the kernel's output", s.B * s.S * s.n_heads * s.d_v * s.bytes)


def _output_projection(s: Shape, held: list[HeldTensor]) -> Moment:
    """Return the moment of the output projection, or of the gate before it if that holds more.

    `held` are the other tensors held then.
    """
    y = _tensor("y", "the layer's output", s.B * s.S * s.d_model * s.bytes)
    if s.gate > s.d_model:
        gate = _tensor("gate", "the gate", s.B * s.S * s.gate * s.bytes)
        return Moment("the gate", (*held, _output(s), gate))
    return Moment("the output projection", (*held, _output(s), y))


def _fused(
    s: Shape,
    *,
    bias: bool = False,
    repeats: bool = False,
    alignment: int = 1,
    scratch: tuple[HeldTensor, ...] = (),
) -> list[Moment]:
    """Return the moments of flash, efficient and cudnn, which hold no scores.

    Args:
        s: the call's sizes.
        bias: the kernel takes a mask as a bias in the layer's dtype. Flash on a GPU needs none: it
            has windows and lengths of its own (FlashAttention's window_size and varlen).
        repeats: the kernel needs as many KV heads as query heads.
        alignment: rows of the bias have a multiple of this many elements.
        scratch: the kernel's own buffers.
    """
    held = _projected(s)
    if bias:
        held += _caller_mask(s)
    inputs = [*held]
    if repeats and s.grouped:
        inputs.append(
            _tensor("kv_repeated", "K and V of every query head", _keys_and_values(s) * s.bytes)
        )
    moments = []
    if bias and s.mask == "matrix":
        rows = s.masks * s.S * s.bytes
        matrix = _tensor("bias", "the mask as a bias", rows * s.T)
        if int(s.T) % alignment:
            columns = alignment * ceil_div(s.T, alignment)
            padded = _tensor(
                "bias_padded", f"the bias with rows of a multiple of {alignment}", rows * columns
            )
            moments.append(Moment("padding the bias", (*inputs, matrix, padded)))
            matrix = padded
        inputs.append(matrix)
    moments += [Moment("the kernel", (*inputs, _output(s), *scratch)), _output_projection(s, held)]
    # new K and V before they are in the cache: the peak if they are wider than d_model
    if s.cached_keys:
        moments.append(Moment("the projections", (_queries(s), *_keys(s, s.cached_keys))))
    return moments


def _logsumexp(s: Shape) -> HeldTensor:
    return _tensor("logsumexp", "one fp32 value per query and head", s.B * s.n_heads * s.S * FP32)


def _accumulator(s: Shape) -> tuple[HeldTensor, ...]:
    """Return the output in fp32, which torch's efficient kernel allocates for heads wider than 128.

    Up to that width it sums in registers.
    """
    if not s.half or max(s.d_qk, s.d_v) <= 128:
        return ()
    return (
        _tensor(
            "accumulator", "the output in fp32", s.B * s.S * s.n_heads * s.d_v * FP32, inside=True
        ),
    )


def _padded_heads(s: Shape) -> tuple[HeldTensor, ...]:
    """Return q, k and v padded to the head widths that FlashAttention has, and what that adds to
    its output.

    With heads of 84, all four are 88 wide, and the layer reads a view of the output.
    """
    d_qk, d_v = (FLASH_ALIGNMENT * ceil_div(d, FLASH_ALIGNMENT) for d in (s.d_qk, s.d_v))
    tensors = []
    if int(s.d_qk) % FLASH_ALIGNMENT:
        size = (s.B * s.S * s.n_heads + s.B * s.T * s.n_kv_heads) * d_qk * s.bytes
        tensors.append(
            _tensor("qk_padded", f"q and k with heads of a multiple of {FLASH_ALIGNMENT}", size)
        )
    if int(s.d_v) % FLASH_ALIGNMENT:
        size = s.B * s.T * s.n_kv_heads * d_v * s.bytes
        tensors.append(
            _tensor("v_padded", f"v with heads of a multiple of {FLASH_ALIGNMENT}", size)
        )
        size = s.B * s.S * s.n_heads * (d_v - s.d_v) * s.bytes
        tensors.append(_tensor("out_padding", "the padding of the output", size))
    return tuple(tensors)


def _thread_buffers(s: Shape, threads: int) -> tuple[HeldTensor, ...]:
    """Return the block of scores and output that each thread of torch's CPU kernel has.

    A block has 256, 64 or 32 queries and 512 keys. Source:
    aten/src/ATen/native/cpu/FlashAttentionKernel.cpp.
    """
    nt = symbol("threads", threads, "threads of the CPU")
    if s.S >= 768:
        q_split = 256
    elif s.S >= 192:
        q_split = 64
    else:
        q_split = 32
    rows = minimum(s.S, q_split)
    cols = minimum(s.T, 512)
    size = nt * (rows * cols + 2 * rows + rows * s.d_qk) * FP32
    if s.half:
        size += nt * rows * cols * s.bytes
    return (_tensor("blocks", "each thread's block of scores and output", size, inside=True),)


def _split_buffers(s: Shape, multiprocessors: int) -> tuple[HeldTensor, ...]:
    """Return FlashAttention's partial outputs, for passes with too few queries to fill the GPU.

    It then splits the keys over more blocks. Source: set_params_splitkv and num_splits_heuristic in
    FlashAttention 2's flash_api.cpp; torch 2.13 has its own copy in
    aten/src/ATen/native/transformers/cuda/flash_attn.
    """
    # a decode step treats the query heads that share a KV head as queries
    swapped = s.S == 1 and s.grouped
    rows = s.n_heads // s.n_kv_heads if swapped else s.S
    heads = s.n_kv_heads if swapped else s.n_heads
    if s.d_qk <= 64:
        keys_per_block = 256
    elif s.d_qk <= 128:
        keys_per_block = 128
    else:
        keys_per_block = 64
    blocks = int(ceil_div(s.T, keys_per_block))
    splits = _splits(int(s.B * heads * ceil_div(rows, 64)), 2 * multiprocessors, blocks)
    if splits == 1:
        return ()
    step = 32 if s.d_qk <= 128 else 64  # widths of the kernels: 160 runs as 192
    width = step * ceil_div(s.d_qk, step)
    n = symbol("splits", splits, "parts that the keys are split into")
    size = n * s.B * s.n_heads * s.S * (width + 1) * FP32
    return (_tensor("partial", "partial outputs in fp32", size, inside=True),)


def _splits(tiles: int, slots: int, blocks: int) -> int:
    """Return the smallest number of parts that keeps the GPU at least 85 % as busy as the best
    number does.
    """
    if not slots or tiles >= 0.8 * slots:
        return 1
    efficiency = {}
    for n in range(1, min(128, slots, blocks) + 1):
        if n == 1 or -(-blocks // n) != -(-blocks // (n - 1)):
            waves = tiles * n / slots
            efficiency[n] = waves / -(-tiles * n // slots)
    return next(n for n, value in efficiency.items() if value >= 0.85 * max(efficiency.values()))


def _keys_and_values(s: Shape) -> int:
    """Return the elements of K and V, repeated for every query head."""
    return s.B * s.T * s.n_heads * (s.d_qk + s.d_v)


def _math(s: Shape) -> list[Moment]:
    """Return the moments of the unfused kernel, which holds scores and softmax as whole matrices in
    fp32.
    """
    projected = [*_projected(s), *_caller_mask(s)]
    held = [
        *projected,
        _tensor("q_scaled", "scaled queries in fp32", s.B * s.S * s.n_heads * s.d_qk * FP32),
    ]
    if s.half:
        held.append(
            _tensor(
                "qkv_fp32",
                "q, k and v in fp32",
                (s.B * s.S * s.n_heads * s.d_qk + s.B * s.T * s.n_kv_heads * (s.d_qk + s.d_v))
                * FP32,
            )
        )
    if s.grouped:
        held.append(
            _tensor("kv_repeated", "fp32 K and V of every query head", _keys_and_values(s) * FP32)
        )
    masked = [*held, *_mask_as_bias(s)]
    scores = _tensor("scores", "fp32 scores", s.pairs * FP32)
    out = _tensor("out", "fp32 output", s.B * s.S * s.n_heads * s.d_v * FP32)
    scaled = _tensor("k_scaled", "scaled keys in fp32", s.B * s.T * s.n_heads * s.d_qk * FP32)
    softmax = _tensor("softmax", "fp32 softmax", s.pairs * FP32)
    rows = [
        _tensor("is_masked", "masked pairs, one byte each", s.pairs),
        _tensor("row_masked", "masked queries, one byte each", s.B * s.n_heads * s.S),
        _tensor("scalar", "a constant", FP32),
    ]
    if s.half:
        half = [_tensor("softmax_half", "softmax in the layer's dtype", s.pairs * s.bytes)]
    else:
        half = []
    # Making the mask's matrix is never the peak: it holds 5 bytes per pair of one head, and softmax
    # 9 per pair of each.
    return [
        Moment("QK", (*masked, scaled, *_copied_for_qk(s), scores)),
        Moment("softmax", (*masked, scores, softmax, *rows)),
        Moment("PV", (*masked, softmax, *half, *_copied_for_pv(s), out)),
        _output_projection(s, projected),
    ]


def _mask_as_bias(s: Shape) -> list[HeldTensor]:
    """Return the bias that is added to the scores: in the layer's dtype for a caller's mask, in
    fp32 for the flag.
    """
    if s.mask == "none":
        return []
    if s.mask == "causal":
        return [_tensor("mask_fp32", "the mask in fp32", s.S * s.T * FP32)]
    return [_tensor("bias", "the mask as a bias", s.masks * s.S * s.T * s.bytes)]


def _copied_for_qk(s: Shape) -> list[HeldTensor]:
    """Return the copies for QK: a batched matmul needs contiguous operands. Repeated keys are
    contiguous already.
    """
    if s.B == 1 or s.n_heads == 1:
        return []
    copies = []
    if s.S > 1:
        copies.append(
            _tensor("q_copied", "scaled queries, contiguous", s.B * s.S * s.n_heads * s.d_qk * FP32)
        )
    if s.T > 1 and not s.grouped:
        copies.append(
            _tensor("k_copied", "scaled keys, contiguous", s.B * s.T * s.n_heads * s.d_qk * FP32)
        )
    return copies


def _copied_for_pv(s: Shape) -> list[HeldTensor]:
    """Return the larger of the values, contiguous for PV, and the output in the layer's dtype."""
    if s.B > 1 and s.n_heads > 1 and s.T > 1 and not s.grouped:
        values = s.B * s.T * s.n_heads * s.d_v * FP32
    else:
        values = 0
    output = s.B * s.S * s.n_heads * s.d_v * s.bytes if s.half else 0
    if values >= output:
        return [_tensor("v_copied", "values, contiguous", values)]
    return [_tensor("out_half", "the output in the layer's dtype", output)]
