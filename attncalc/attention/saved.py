"""The tensors that the forward pass of a layer saves for its backward pass.

Each kind of attention lists them once (`Attention.saved_tensors`). What a recomputation drops, what
tensor and sequence parallelism divide, and what frozen weights make unnecessary follow from that
list.

torch saves the operands that a derivative reads, once per storage: of `x @ W` it saves x for the
gradient of W, and W for the gradient of x. So the input of a frozen matrix is not saved
(torch/csrc/autograd, derivatives.yaml).
"""

from collections.abc import Iterator
from typing import Literal

from ..quantity import Constant, exact_div, symbol_like
from ..records import NamedTuple
from .span import FULL, Span

TrainingKernel = Literal["flash", "efficient", "cudnn", "math", "eager", "eager-fused"]
# Kernels that keep the scores of attention.
KEEP_SCORES = ("math", "eager", "eager-fused")
Gain = Literal["cast", "fp32", "upcast", "power", "shifted", "centred", "none", "bare"]
Activation = Literal["fused", "gelu_new", "relu", "xielu"]
Softmax = Literal["fp32", "plain", "shifted", "floored", "gated"]
FP32 = Constant(4, "bytes of an element in fp32")
INT64 = Constant(8, "bytes of an index")
MASK = Constant(1, "byte of an element of a dropout mask")
Part = Literal["attention", "mlp", "norms", "embedding", "head"]


class SavedTensor(NamedTuple):
    name: str  # its name: 'q'
    meaning: str  # which operation saves it
    size: int  # bytes
    part: Part = "attention"  # the part of the layer that it belongs to
    # the matrices whose gradients alone need it; () if frozen weights need it too
    input_of: tuple[str, ...] = ()
    # an S x T tensor, or one inside the kernel, which selective recomputation drops
    is_score: bool = False
    # The result of element-wise operations, which a compiler fuses and computes again; but it keeps
    # the input of a matmul (ban_recompute_materialized_backward in torch/_functorch/config.py)
    is_pointwise: bool = False
    # every tensor-parallel device has all of it, and sequence parallelism divides it
    is_replicated: bool = False
    is_statistic: bool = False  # a few values per row, such as a mean, which papers leave out
    # tokens that are sent to their experts, of which each device of --tp has its own if it has
    # whole experts
    is_dispatched: bool = False
    read_by: tuple[str, ...] = ()  # the matrices that read it, if another operation saves it anyway


class Router(NamedTuple):
    """How a router of a mixture of experts computes what it saves."""

    # What it saves per expert: a 'softmax' or a 'sigmoid' in fp32; nothing if the softmax is of the
    # 'chosen' experts only, in fp32 or 'cast'; or a mask and a softmax for each choice
    # ('sparsemixer', Phi-3.5-MoE)
    scores: Literal["softmax", "sigmoid", "chosen", "chosen, cast", "sparsemixer"] = "softmax"
    normalizes: bool = True  # the weights of the chosen experts are divided by their sum
    # Its matmul is in fp32: its weights are 'copied' as its input is, or 'stored' in fp32
    in_fp32: Literal["", "copied", "stored"] = ""
    # Groups of experts, and those that are chosen before the experts (DeepSeek-V3); 0 for none
    groups: tuple[int, int] = (0, 0)
    # Its input passes a norm without a gain and is scaled, and so are the weights of each expert
    # (Gemma 4)
    scales: bool = False
    # Dtype of the weights that multiply the experts' outputs: 'cast' to that of the activations, or
    # 'fp32'
    weights: Literal["cast", "fp32"] = "cast"
    # The weights multiply the results of the experts' activation function, and not the outputs
    # (Megatron-LM)
    weighs_inside: bool = False
    casts: bool = False  # its scores, too, have the dtype of the activations
    clamps_sum: bool = False  # the sum of the chosen weights has a minimum


class ClassMath(NamedTuple):
    """How a class of transformers computes what its layers save."""

    # How a norm multiplies by its gain: 'cast' in the activations' dtype; in 'fp32', or with the
    # gain 'upcast' to it, or 'shifted' by one; with a 'power' of the mean square instead of rsqrt,
    # and an upcast gain; 'centred': a LayerNorm in single fp32 operations; 'none': a LayerNorm in
    # fp32 that has no gain; 'bare': such an RMSNorm
    gain: Gain = "cast"
    # The activation function: 'fused', or 'gelu_new' or 'xielu' in single operations, or 'relu',
    # whose derivative needs its result only
    activation: Activation = "fused"
    # The softmax of eager attention: in 'fp32', or 'plain' in the activations' dtype, or 'shifted':
    # there too, of scores minus their maximum, or 'floored': of their maximum with the least
    # number; 'gated': in fp32, and with sinks the output is multiplied by a gate of the scores'
    # log-sum-exp
    softmax: Softmax = "fp32"
    # both parts of a gated MLP are clamped, and SiLU is in single operations (gpt-oss)
    clamps: bool = False
    is_dense: bool = False  # each expert computes all tokens (Llama 4)
    router: Router = Router()  # the router of a mixture of experts
    # Q is joined from a rotated and another part, in an order of heads and tokens in which the
    # output of a fused kernel must be copied for W_o
    joins_heads: bool = False
    # Each layer has cosines and sines of its own: for one 'half' of each head, for 'all' of it, or
    # for all of it 'in fp32'
    own_tables: Literal["", "half", "all", "in fp32"] = ""
    in_parallel: bool = False  # attention and MLP have norms of their own of the same input
    normalizes_v: bool = False  # values pass a norm without a gain
    indexes_kv: bool = False  # shared heads of K and V are indexed by lists, which copies them
    # SDPA gets K and V with fewer heads than q, which only its math kernel takes
    broadcasts_kv: bool = False
    # Queries are multiplied by a value of their position: in 'fp32' in layers without a span (Llama
    # 4), or 'cast' (Ministral 3)
    scales_queries: Literal["", "fp32", "cast"] = ""
    caps_scores: bool = False  # eager scores pass a tanh
    scores_in_fp32: bool = False  # eager attention multiplies q and k in fp32
    inner_norms: bool = False  # the inputs of W_o and W_down pass norms
    scales_embedding: bool = False  # the embedding is multiplied by a tensor of one element
    positions_of_rows: bool = False  # each sequence has positions of its own
    scales_layer: bool = False  # so is the output of each layer
    caps_logits: bool = False  # logits pass a tanh
    upcasts_loss: bool = True  # the loss converts logits to fp32
    # Transformers runs it with scaled_dot_product_attention, which has neither sinks nor soft caps
    has_sdpa: bool = True
    residual_in_fp32: bool = False  # the residual stream between layers is in fp32
    doubles_beta: bool = False  # beta of a gated delta net is doubled
    # Attention and Mamba-2, listed as two layers, are one, and scale their inputs (Falcon-H1)
    parallel_mixers: bool = False

    def norms(self, with_gain: int) -> int:
        """Return the norms of a layer, of which `with_gain` have parameters."""
        if self.gain in ("none", "bare"):
            return 2
        return with_gain


class Forward(NamedTuple):
    """The forward pass of one layer on one device."""

    B: int  # sequences
    S: int  # tokens of a sequence
    T: int  # tokens that K and V are computed from: S, or the source tokens
    d_model: int  # width of the model
    bytes: int  # bytes of an element of the activations
    kernel: TrainingKernel = "flash"  # the attention kernel
    # norms and the eager softmax compute in fp32 and save fp32 tensors, as in transformers
    upcasts: bool = True
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"  # the kind of norm
    rotary: bool = True  # whether q and k are rotated, and are new tensors then
    dropout: bool = False  # whether dropout is active, as in GPT-2 and Megatron's early models
    # how the class of the model computes norms and activation functions
    math: ClassMath = ClassMath()

    @property
    def tokens(self) -> int:
        return self.B * self.S

    @property
    def source_tokens(self) -> int:
        """Return the tokens that K and V are computed from."""
        return self.B * self.T

    @property
    def is_eager(self) -> bool:
        """Return whether attention computes its scores in single operations, or in Megatron's fused
        softmax.
        """
        return self.kernel in ("eager", "eager-fused")

    @property
    def is_half(self) -> bool:
        """Return whether an fp32 copy of an activation is another tensor."""
        return self.bytes != FP32


def norm_tensors(
    f: Forward,
    rows: int,
    width: int,
    name: str,
    part: Part = "norms",
    *,
    is_replicated: bool = True,
) -> Iterator[SavedTensor]:
    """Yield what one norm saves: its input, its statistics, and the normalized input if that is
    another tensor.

    transformers computes an RMSNorm in fp32 by single operations (LlamaRMSNorm): it saves an fp32
    copy of the input, 1 / RMS, and the normalized input for the gradient of the gain, in the dtype
    in which they are multiplied.
    LayerNorm and fused RMSNorms save their input.
    """
    elements = rows * width
    gain = f.math.gain
    plain = (part, (), False, False, is_replicated)
    if gain in ("none", "bare"):
        vectors = 2 if gain == "none" else 1
        yield SavedTensor(f"{name} input in fp32", "the norm", FP32 * elements, *plain)
        yield SavedTensor(f"{name} statistics", "the norm", FP32 * vectors * rows, *plain, True)
        return
    if f.upcasts and (f.norm == "rmsnorm" or gain == "centred"):
        # input - mean is computed twice: for the variance, and to be scaled
        copies = 2 if gain == "centred" else 1
        for copy in range(copies):
            what = "input in fp32" if copies == 1 else f"centred input {copy + 1}"
            yield SavedTensor(
                f"{name} {what}", "the norm's square and product", FP32 * elements, *plain
            )
        size = f.bytes if gain == "cast" else FP32
        meaning = "the gradient of the gain"
        yield SavedTensor(
            f"{name} normalized",
            meaning,
            size * elements,
            part,
            (name,),
            False,
            True,
            is_replicated,
        )
        if gain == "shifted" or (gain in ("upcast", "power", "centred") and f.is_half):
            yield SavedTensor(
                f"{name} gain in fp32", "the gradient of its input", FP32 * width, *plain, True
            )
        vectors = 2 if gain == "power" else 1  # the mean square and 1 / RMS
    else:
        yield SavedTensor(f"{name} input", "the norm", f.bytes * elements, *plain)
        if gain == "shifted":
            yield SavedTensor(
                f"{name} gain + 1", "the gradient of its input", f.bytes * width, *plain
            )
        vectors = 2 if f.norm == "layernorm" else 1  # mean and 1 / deviation, or 1 / RMS
    yield SavedTensor(f"{name} statistics", "the norm", FP32 * vectors * rows, *plain, True)


def l2_norm_tensors(
    f: Forward, rows: int, width: int, name: str, part: Part = "attention"
) -> Iterator[SavedTensor]:
    """Yield what a norm without a gain saves: its input in fp32 and 1 / RMS (Llama4TextL2Norm)."""
    vectors = 2 if f.math.gain == "power" else 1
    yield SavedTensor(
        f"{name} input in fp32", "the norm's square and product", FP32 * rows * width, part
    )
    yield SavedTensor(
        f"{name} statistics", "the norm", FP32 * vectors * rows, part, is_statistic=True
    )


def scales_of_queries(f: Forward, span: Span) -> Iterator[SavedTensor]:
    """Yield the values of each position by which queries are multiplied."""
    if f.math.scales_queries == "cast" or (f.math.scales_queries and span == FULL):
        size = f.bytes if f.math.scales_queries == "cast" else FP32
        yield SavedTensor("scales of queries", "the product", size * f.S, is_statistic=True)


def kernel_tensors(
    f: Forward, n_heads: int, n_kv_heads: int, d_qk: int, d_v: int, *, sinks: bool = False
) -> Iterator[SavedTensor]:
    """Yield what the attention kernel saves: q, k and v, the scores or their log-sum-exp, and the
    output.

    FlashAttention saves its output and the log-sum-exp of each row instead of the scores
    (arXiv:2205.14135, 3.1). The output is also the input of W_o: one tensor.
    """
    in_fp32 = f.kernel == "math" and f.is_half
    size = FP32 if in_fp32 else f.bytes
    of_qk = FP32 if f.is_eager and f.math.scores_in_fp32 else size
    kv_heads = n_heads if copies_kv(f, n_heads, n_kv_heads, d_qk) else n_kv_heads
    fp32 = " in fp32" if in_fp32 else ""
    yield SavedTensor(f"q{fp32}", "QK", of_qk * f.tokens * n_heads * d_qk)
    yield SavedTensor(f"k{fp32}", "QK", of_qk * f.source_tokens * kv_heads * d_qk)
    yield SavedTensor(f"v{fp32}", "PV", size * f.source_tokens * kv_heads * d_v)
    output = f.bytes * f.tokens * n_heads * d_v
    if f.kernel in ("flash", "efficient", "cudnn"):
        # whose output has the order of tokens and heads
        copies = f.math.joins_heads and f.kernel != "efficient"
        yield SavedTensor(
            "output", "the kernel and W_o", output, read_by=() if copies else ("W_o",)
        )
        if copies:
            yield SavedTensor("output, copied", "the gradient of W_o", output, input_of=("W_o",))
        yield SavedTensor(
            "log-sum-exp", "the kernel", FP32 * f.tokens * n_heads, is_score=True, is_statistic=True
        )
        return
    if f.kernel == "math":
        pairs = f.B * n_heads * f.S * f.T
        yield SavedTensor(f"probabilities{fp32}", "softmax and PV", size * pairs, is_score=True)
    else:
        yield from _eager_tensors(f, n_heads, output, sinks=sinks)
    yield SavedTensor("output", "W_o", output, input_of=("W_o",))


def _eager_tensors(f: Forward, n_heads: int, output: int, *, sinks: bool) -> Iterator[SavedTensor]:
    """Yield the scores and probabilities that eager attention saves.

    Megatron's fused kernel of scale, mask and softmax saves its result alone
    (megatron/core/fusions/fused_softmax.py): with dropout 5 bytes per score in 16 bits, as
    arXiv:2205.05198 counts them. transformers' fp32 softmax saves 9.
    """
    rows = f.B * n_heads * f.S
    pairs = rows * f.T
    if f.kernel == "eager-fused":
        yield SavedTensor("probabilities", "softmax and PV", f.bytes * pairs, is_score=True)
        yield from _dropout_of_probabilities(f, pairs)
        return
    if f.math.caps_scores:
        yield SavedTensor(
            "tanh of the scores", "the softcap", f.bytes * pairs, is_score=True, is_pointwise=True
        )
    if f.math.softmax == "shifted":
        yield SavedTensor(
            "place of the maximum", "max", INT64 * rows, is_score=True, is_statistic=True
        )
    if f.math.softmax == "floored":
        yield SavedTensor(
            "scores", "their maximum with the least number", f.bytes * pairs + FP32, is_score=True
        )
    is_gated = sinks and f.math.softmax == "gated"
    if is_gated:
        yield SavedTensor("scores", "log-sum-exp", f.bytes * pairs, is_score=True)
        gates = (FP32 + 2 * f.bytes) * rows
        yield SavedTensor(
            "log-sum-exp and gate", "the sigmoid, product", gates, is_score=True, is_statistic=True
        )
        yield SavedTensor("output without the gate", "the product", output)
    if sinks and not is_gated:
        size = f.bytes * (pairs + rows)
        yield SavedTensor("probabilities of keys and sink", "softmax and PV", size, is_score=True)
    elif f.upcasts and f.is_half and f.math.softmax in ("fp32", "gated"):
        yield SavedTensor("probabilities in fp32", "softmax", FP32 * pairs, is_score=True)
        yield SavedTensor("probabilities", "PV", f.bytes * pairs, is_score=True)
    else:
        yield SavedTensor("probabilities", "softmax and PV", f.bytes * pairs, is_score=True)
    yield from _dropout_of_probabilities(f, pairs)


def _dropout_of_probabilities(f: Forward, pairs: int) -> Iterator[SavedTensor]:
    if f.dropout:
        yield SavedTensor(
            "dropout mask of the probabilities", "dropout", MASK * pairs, is_score=True
        )
        yield SavedTensor("probabilities after dropout", "PV", f.bytes * pairs, is_score=True)


def copies_kv(f: Forward, n_heads: int, n_kv_heads: int, d_head: int) -> bool:
    """Return whether K and V are copied for every query head.

    Flash and cuDNN read shared heads of at most 256 (integrations/sdpa_attention.py,
    use_gqa_in_sdpa). Math and eager attention multiply the single head of one sequence without a
    copy.
    """
    is_shared = f.kernel in ("flash", "cudnn") and d_head <= 256
    is_one = f.kernel in KEEP_SCORES and n_kv_heads == 1 and f.B == 1
    return n_heads != n_kv_heads and not (is_shared or is_one)


def matrix_input(
    f: Forward, width: int, input_of: tuple[str, ...], name: str = "input", part: Part = "attention"
) -> SavedTensor:
    """Return the input of matrices that read the residual stream after a norm."""
    return SavedTensor(
        name,
        f"the gradients of {', '.join(input_of)}",
        f.bytes * f.tokens * width,
        part,
        input_of,
        is_replicated=True,
    )


def split(value: int, parts: int, name: str, meaning: str) -> int:
    """Return value / parts, with `parts` as a symbol in formulas."""
    if parts > 1:
        return exact_div(value, symbol_like(value, name, parts, meaning))
    return value
