"""Linear attention: the gated delta rule, its channel-wise form (KDA), lightning attention; short
convolutions.
"""

from ..quantity import Constant, ceil_div, documented, minimum
from ..records import dataclass
from ..workload import Mask, Run
from .kind import CacheSpec, Matrix, flag, state_dtype
from .recurrent import UPDATE_AND_READ, Recurrent, convolution, convolution_and_state, projection
from .saved import FP32, MASK, Forward, SavedTensor, matrix_input, norm_tensors

_DT_AND_A = Constant(2, "vectors of a head: dt and A")
_Q_AND_K = Constant(2, "vectors of one width: query and key")
_DELTA_RULE = Constant(
    6,
    "FLOP per element of the state: one multiply-add for a key that reads it, for the update, "
    "for a query",
)
_CHUNK = Constant(64, "tokens of a chunk of the kernel")
_BLOCK = Constant(256, "tokens of a block of lightning attention")


@dataclass(frozen=True)
class GatedDeltaNet(Recurrent):
    """n_heads states of d_head x d_v under the gated delta rule, decayed by head or by channel
    (KDA).

    The n_heads value heads share n_k_heads heads of queries and keys. The matrices of the
    channel-wise decay and of the output's gate are full, or have rank gate_rank; with full_gate
    only the decay's has it. The state is fp32.

    Source: Yang et al. 2024, arXiv:2412.06464 (gated delta net); Kimi Linear, arXiv:2510.26692
    (KDA); transformers' modeling_qwen3_next.py; vLLM's models/kimi_k3/nvidia/kda.py (full_gate).
    """

    n_heads: int = documented("value heads, each with a state")
    d_head: int = documented("width of a query and a key head")
    d_v: int = documented("width of a value head")
    d_conv: int = documented("width of the convolution")
    n_k_heads: int | None = documented(
        "heads of queries and keys", left_out="n_heads", default=None
    )
    channel_decay: bool = flag("one decay per channel of a key (KDA), not per head")
    gate_rank: int | None = documented(
        "rank of the matrices of the decay and the gate", left_out="full", default=None
    )
    full_gate: bool = flag("the matrix of the gate is full, although gate_rank is given (Kimi K3)")
    state_dtype: str | None = state_dtype()

    source = "Yang et al. 2024, arXiv:2412.06464 (gated delta net); arXiv:2510.26692 (KDA)"
    splits = (("n_k_heads", "heads"), ("n_heads", "heads"))

    @property
    def label(self) -> str:
        if self.channel_decay:
            return "KDA"
        return "GDN"

    @property
    def tag(self) -> str:
        return self.label

    @property
    def headline(self) -> str:
        name = "Kimi delta attention" if self.channel_decay else "gated delta net"
        return f"{name}, {self.n_heads} states of {self.d_head} x {self.d_v}"

    @property
    def key_heads(self) -> int:
        if self.n_k_heads is None:
            return self.n_heads
        return self.n_k_heads

    @property
    def keys(self) -> int:
        """Return the width of all heads' keys."""
        return self.key_heads * self.d_head

    @property
    def values(self) -> int:
        """Return the width of all heads' values."""
        return self.n_heads * self.d_v

    @property
    def output_gate_rank(self) -> int | None:
        """Return the rank of the gate's matrix, or None if it is full."""
        if self.full_gate:
            return None
        return self.gate_rank

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        if self.channel_decay:
            decay = (
                *_gate("W_decay", d_model, self.gate_rank, self.keys),
                Matrix("dt_A", self.keys + self.n_heads),
            )
        else:
            decay = (
                projection("W_decay", d_model, self.n_heads),
                Matrix("dt_A", _DT_AND_A * self.n_heads),
            )
        return (
            projection("W_q", d_model, self.keys),
            projection("W_k", d_model, self.keys),
            projection("W_v", d_model, self.values),
            convolution(_Q_AND_K * self.keys + self.values, self.d_conv, bias=False),
            projection("W_beta", d_model, self.n_heads),
            *decay,
            *_gate("W_gate", d_model, self.output_gate_rank, self.values),
            Matrix("norm", self.d_v),
            projection("W_o", self.values, d_model),
        )

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        return _DELTA_RULE * run.new * self.n_heads * self.d_head * self.d_v

    def cache(self) -> tuple[CacheSpec, ...]:
        # KDA's state is fp32 by default
        requested = "fp32" if self.channel_decay else self.state_dtype
        channels = _Q_AND_K * self.keys + self.values
        return convolution_and_state(
            channels, self.d_conv, self.n_heads * self.d_head, self.d_v, requested
        )

    def saved_tensors(self, forward: Forward) -> tuple[SavedTensor, ...]:
        """Return what Qwen3NextGatedDeltaNet saves with causal_conv1d and flash-linear-attention's
        chunked kernel.

        The kernel keeps normalized queries and keys, values, the sums of the decays, beta, and a
        triangular matrix of each chunk; the states are computed again
        (fla/ops/gated_delta_rule/chunk.py).
        """
        if self.channel_decay:
            return self._saved_by_kda(forward)
        f = forward
        per_head = f.tokens * self.n_heads
        values = f.tokens * self.values
        channels = _Q_AND_K * self.keys + self.values
        return (
            matrix_input(f, f.d_model, ("W_q", "W_k", "W_v", "W_gate", "W_beta", "W_decay")),
            SavedTensor("q, k and v", "the convolution", f.bytes * f.tokens * channels),
            SavedTensor(
                "normalized q and k", "the kernel", f.bytes * f.tokens * _Q_AND_K * self.keys
            ),
            SavedTensor(
                "statistics of q and k",
                "the kernel",
                FP32 * f.tokens * 2 * self.key_heads,
                is_statistic=True,
            ),
            SavedTensor("v", "the kernel", f.bytes * values),
            SavedTensor(
                "decay",
                "softplus, its product with A, the kernel",
                3 * FP32 * per_head,
                is_statistic=True,
            ),
            SavedTensor(
                "exp of A", "exp and its product", 2 * FP32 * self.n_heads, is_statistic=True
            ),
            SavedTensor(
                "beta",
                "sigmoid and the kernel",
                (2 if f.math.doubles_beta else 1) * f.bytes * per_head,
                is_statistic=True,
            ),
            SavedTensor("matrices of the chunks", "the kernel", f.bytes * per_head * _CHUNK),
            SavedTensor("output in fp32", "the norm", FP32 * values),
            SavedTensor("norm statistics", "the norm", FP32 * per_head, is_statistic=True),
            SavedTensor(
                "normalized output",
                "the gradient of the gain",
                f.bytes * values,
                input_of=("norm",),
            ),
            SavedTensor(
                "normalized output times the gain", "the gate", f.bytes * values, is_pointwise=True
            ),
            SavedTensor("gate in fp32", "SiLU", FP32 * values),
            SavedTensor("SiLU of the gate", "the product", FP32 * values, is_pointwise=True),
            SavedTensor("output", "the gradient of W_o", f.bytes * values, input_of=("W_o",)),
        )

    def _saved_by_kda(self, f: Forward) -> tuple[SavedTensor, ...]:
        """Return what KimiLinearDeltaAttention saves with causal_conv1d and
        flash-linear-attention's chunk_kda.

        The kernel keeps what that of gated delta nets does, and two matrices of each chunk
        (fla/ops/kda/chunk.py). The decay, in single fp32 operations, is -exp(A) x log(1 + exp(x)),
        or x where x is large.
        """
        per_head = f.tokens * self.n_heads
        keys = f.tokens * self.keys
        values = f.tokens * self.values
        first = ["W_q", "W_k", "W_v", "W_beta"]
        low = []  # the inputs of the second matrices of a low rank
        for name, rank in (("W_decay", self.gate_rank), ("W_gate", self.output_gate_rank)):
            if rank is None:
                first.append(name)
                continue
            first.append(f"{name}_a")
            b = f"{name}_b"
            size = f.bytes * f.tokens * rank
            low.append(SavedTensor(f"input of {b}", f"the gradient of {b}", size, input_of=(b,)))
        return (
            matrix_input(f, f.d_model, tuple(first)),
            SavedTensor("q, k and v", "the convolution", f.bytes * (_Q_AND_K * keys + values)),
            *low,
            SavedTensor("exp of the decay", "exp", FP32 * keys, is_pointwise=True),
            SavedTensor("1 + exp of the decay", "log", FP32 * keys, is_pointwise=True),
            SavedTensor(
                "softplus of the decay", "its product with A", FP32 * keys, is_pointwise=True
            ),
            SavedTensor("mask of large decays", "where", MASK * keys, is_pointwise=True),
            SavedTensor(
                "exp of A", "exp and its product", 2 * FP32 * self.n_heads, is_statistic=True
            ),
            SavedTensor("decay", "the kernel", FP32 * keys),
            SavedTensor("sums of the decay", "the kernel", FP32 * keys),
            SavedTensor("normalized q and k", "the kernel", f.bytes * _Q_AND_K * keys),
            SavedTensor(
                "statistics of q and k",
                "the kernel",
                FP32 * f.tokens * 2 * self.key_heads,
                is_statistic=True,
            ),
            SavedTensor("v", "the kernel", f.bytes * values),
            SavedTensor("beta", "sigmoid and the kernel", f.bytes * per_head, is_statistic=True),
            SavedTensor("matrices of the chunks", "the kernel", 2 * f.bytes * per_head * _CHUNK),
            SavedTensor("output in fp32", "the norm", FP32 * values),
            SavedTensor("norm statistics", "the norm", FP32 * per_head, is_statistic=True),
            SavedTensor(
                "normalized output", "the gradient of the gain", FP32 * values, input_of=("norm",)
            ),
            SavedTensor(
                "gain in fp32", "the gradient of the norm", FP32 * self.d_v, is_statistic=True
            ),
            SavedTensor(
                "normalized output times the gain", "the gate", FP32 * values, is_pointwise=True
            ),
            SavedTensor("sigmoid of the gate", "sigmoid and the product", FP32 * values),
            SavedTensor("output", "the gradient of W_o", f.bytes * values, input_of=("W_o",)),
        )


def _gate(name: str, d_model: int, rank: int | None, width: int) -> tuple[Matrix, ...]:
    """Return one full matrix, or two of a low rank."""
    if rank is None:
        return (projection(name, d_model, width),)
    return projection(f"{name}_a", d_model, rank), projection(f"{name}_b", rank, width)


@dataclass(frozen=True)
class Lightning(Recurrent):
    """n_heads states of d_head x d_head, decayed by a constant (lightning attention).

    The state has the model's dtype. Source: Qin et al. 2024, arXiv:2401.04658; MiniMax-01,
    arXiv:2501.08313; transformers' modeling_minimax.py.
    """

    n_heads: int = documented("heads, each with a state")
    d_head: int = documented("width of a query, key and value head")

    name = "lightning"
    source = "Qin et al. 2024, arXiv:2401.04658 (lightning attention)"
    splits = (("n_heads", "heads"),)

    @property
    def headline(self) -> str:
        return f"lightning attention, {self.n_heads} states of {self.d_head} x {self.d_head}"

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        width = self.n_heads * self.d_head
        return (
            projection("W_qkv", d_model, Constant(3, "widths: queries, keys and values") * width),
            projection("W_gate", d_model, width),
            Matrix("norm", width),
            projection("W_o", width, d_model),
        )

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        return UPDATE_AND_READ * run.new * self.n_heads * self.d_head * self.d_head

    def cache(self) -> tuple[CacheSpec, ...]:
        return (
            CacheSpec(
                "state", self.n_heads * self.d_head, self.d_head, per="sequence", role="state"
            ),
        )

    def saved_tensors(self, forward: Forward) -> tuple[SavedTensor, ...]:
        """Return what MiniMaxLightningAttention saves, which runs block by block, and has no fused
        kernel.

        Products of several sequences copy the heads of q, k and v; those of one sequence read the
        output of SiLU. The first block has no state before it.
        """
        f = forward
        width = self.n_heads * self.d_head
        inside = f.bytes * f.tokens * width
        first = f.bytes * f.B * minimum(f.S, _BLOCK) * width
        blocks = f.S // _BLOCK
        rest = f.S % _BLOCK
        pairs = f.B * self.n_heads * (blocks * _BLOCK * _BLOCK + rest * rest)
        n = ceil_div(f.S, _BLOCK)
        states = f.bytes * (n * f.B * width * self.d_head + (n - 1) * self.n_heads)
        factors = f.bytes * self.n_heads * (_BLOCK * _BLOCK + 2 * _BLOCK)
        copies = 3 * inside if f.B == 1 else 4 * inside
        return (
            matrix_input(f, f.d_model, ("W_qkv", "W_gate")),
            SavedTensor("output of W_qkv", "SiLU", 3 * inside),
            SavedTensor("q, k and v of the blocks", "QK, PV and KV", copies),
            SavedTensor("scores times the decay", "PV", f.bytes * pairs, is_score=True),
            SavedTensor("q and k times the decay", "the state's products", 2 * inside - first),
            SavedTensor("states between blocks", "their product with q", states),
            SavedTensor("factors of the decay", "products", factors, is_statistic=True),
            *norm_tensors(f, f.tokens, width, "norm", "attention", is_replicated=False),
            SavedTensor("sigmoid of the gate", "sigmoid and the product", inside),
            SavedTensor("output before the gate", "the product", inside, is_pointwise=True),
            SavedTensor("output", "the gradient of W_o", inside, input_of=("W_o",)),
        )


@dataclass(frozen=True)
class ShortConvolution(Recurrent):
    """A gated convolution over the last d_conv tokens (LFM2).

    It is computed element-wise, so it has no FLOPs between the projections. Source: transformers'
    modeling_lfm2.py (Lfm2ShortConv).
    """

    d_inner: int = documented("channels of the convolution")
    d_conv: int = documented("width of the convolution")
    conv_bias: bool = flag("the convolution has a bias")

    name = "short convolution"
    description = "short convolutions"
    source = "LFM2, transformers' modeling_lfm2.py (short convolution)"
    splits = (("d_inner", "channels"),)

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        return (
            projection("W_in", d_model, 3 * self.d_inner, self.conv_bias),
            convolution(self.d_inner, self.d_conv, self.conv_bias),
            projection("W_out", self.d_inner, d_model, self.conv_bias),
        )

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        return 0 * run.new

    def cache(self) -> tuple[CacheSpec, ...]:
        return (
            CacheSpec(
                "convolution",
                self.d_inner,
                self.d_conv,
                per="sequence",
                role="convolution",
                spare=1,
            ),
        )

    def saved_tensors(self, forward: Forward) -> tuple[SavedTensor, ...]:
        """Return what Lfm2ShortConv saves: the output of W_in, both operands and the result of its
        products.
        """
        inside = forward.bytes * forward.tokens * self.d_inner
        return (
            matrix_input(forward, forward.d_model, ("W_in",)),
            SavedTensor("output of W_in", "both products", 3 * inside),
            SavedTensor("input of the convolution", "the convolution", inside),
            SavedTensor("output of the convolution", "the second product", inside),
            SavedTensor("output", "the gradient of W_out", inside, input_of=("W_out",)),
        )
