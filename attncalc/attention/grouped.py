"""Grouped attention: multi-head (MHA), grouped-query (GQA) and multi-query (MQA) in one class.

They differ only in n_kv_heads: n_heads in MHA, 1 in MQA, and a number between in GQA.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from ..errors import AttncalcError
from ..quantity import Constant, documented, exact_div, maximum
from ..records import dataclass
from ..workload import Mask, Run
from .kind import (
    BOOLEAN,
    MULTIPLY_ADD,
    QK_AND_PV,
    SHAPES,
    CacheSpec,
    Matrix,
    Widths,
    extra_projections,
    extra_vectors,
    flag,
    gate,
    gate_width,
    give_one_of,
    matrices_from_shapes,
    no_saved_tensors,
    plain_fields,
    tp_share,
    tps,
)
from .saved import (
    FP32,
    INT64,
    Forward,
    SavedTensor,
    copies_kv,
    kernel_tensors,
    l2_norm_tensors,
    matrix_input,
    norm_tensors,
    scales_of_queries,
)
from .span import FULL, Span, pairs

_K_AND_V = Constant(2, "tensors: keys and values")
# The most query heads whose divisors a tip lists.
_MOST_HEADS = 512


def kv_heads_tip(n_heads: int) -> str:
    """Return the tip with the numbers of KV heads that n_heads query heads can share."""
    allowed = [str(n) for n in range(1, min(n_heads, _MOST_HEADS) + 1) if n_heads % n == 0]
    listed = ", ".join(allowed[:12])
    if len(allowed) > 12:
        listed = f"{listed}, ..."
    return f"every KV head serves the same number of query heads: {listed}"


@dataclass(frozen=True)
class Grouped:
    """n_heads query heads of d_head that share n_kv_heads key and value heads.

    Each K and V head serves n_heads / n_kv_heads query heads. d_head need not be d_model / n_heads.

    Raises AttncalcError if n_kv_heads does not divide n_heads.
    """

    n_heads: int = documented("query heads")
    n_kv_heads: int = documented("key and value heads", left_out="n_heads")
    d_head: int = documented("width of a query and a key head", left_out="d_model / n_heads")
    d_v: int | None = documented("width of a value head", left_out="d_head", default=None)
    span: Span = FULL
    bias: tuple[str, ...] = documented(
        "projections that have a bias: true for all, or a list of q, k, v, o",
        default=(),
        schema={
            "anyOf": [
                BOOLEAN,
                {"type": "array", "uniqueItems": True, "items": {"enum": ["q", "k", "v", "o"]}},
            ]
        },
    )
    fused: bool = flag("q, k and v are one matrix")
    qk_norm: Literal["head", "full", "l2"] | None = documented(
        "norm on q and k: head = one gain of d_head for all heads, full = one gain over the "
        "width of all heads, l2 = per head and without a gain (Llama 4 Scout)",
        default=None,
        schema={"enum": ["head", "full", "l2"]},
    )
    sinks: bool = flag("a learned logit per query head beside those of the keys (gpt-oss)")
    extra_vectors: int | None = extra_vectors()
    gate: bool | Literal["head"] = gate()
    shares_kv: bool = flag(
        "reads the keys and values of an earlier layer: has no W_k and W_v, and no cache (Gemma 3n)"
    )
    v_from_k: bool = flag(
        "W_k computes the values too, and both are cached: there is no W_v (Gemma 4's full layers)"
    )
    d_input: int | None = documented(
        "width of the input of q, k and v (Zamba concatenates the layer's input and the embedding)",
        left_out="d_model",
        default=None,
    )
    repeats_kv: bool = flag("transformers' class caches K and V once per query head (Falcon)")
    extra_projections: tuple[Matrix, ...] = extra_projections()
    extra_states: tuple[Matrix, ...] = documented(
        "states of a fixed size beside K and V, replicated on every device, by name: [rows, "
        "columns] (Zaya)",
        default=(),
        schema=SHAPES,
    )

    source = (
        "Vaswani et al. 2017, arXiv:1706.03762, 3.2 (MHA); Shazeer 2019, arXiv:1911.02150 (MQA); "
        "Ainslie et al. 2023, arXiv:2305.13245 (GQA)"
    )

    @classmethod
    def from_keys(cls, keys: Mapping[str, Any], d_model: int, span: Span) -> "Grouped":
        keys = dict(keys)
        n_heads = keys["n_heads"]
        if "d_head" not in keys and d_model % n_heads:
            raise AttncalcError(
                f"d_head: is missing, and d_model {d_model} is not a multiple of n_heads {n_heads}",
                "give d_head, the width of a query head",
            )
        bias = keys.pop("bias", False)
        defaults = {"n_kv_heads": n_heads, "d_head": d_model // n_heads}
        if isinstance(bias, bool):
            bias = "qkvo" if bias else ""
        extra = matrices_from_shapes(keys.pop("extra_projections", {}), "queries")
        states = matrices_from_shapes(keys.pop("extra_states", {}))
        return cls(
            **{**defaults, **keys},
            bias=tuple(bias),
            span=span,
            extra_projections=extra,
            extra_states=states,
        )

    def __post_init__(self) -> None:
        if self.n_heads % self.n_kv_heads:
            raise AttncalcError(
                f"n_kv_heads: {self.n_kv_heads} does not divide n_heads {self.n_heads}",
                kv_heads_tip(self.n_heads),
            )

    @property
    def label(self) -> str:
        if self.n_kv_heads == self.n_heads:
            return "MHA"
        if self.n_kv_heads == 1:
            return "MQA"
        return "GQA"

    @property
    def tag(self) -> str:
        if self.n_kv_heads in (1, self.n_heads):
            return self.label
        return f"GQA-{self.n_kv_heads}"

    @property
    def headline(self) -> str:
        name = {"MHA": "multi-head", "GQA": "grouped-query", "MQA": "multi-query"}[self.label]
        plural = "" if self.n_kv_heads == 1 else "s"
        heads = f"{self.n_heads} query and {self.n_kv_heads} KV head{plural} x {self.d_head}"
        if self.d_v not in (None, self.d_head):
            widths = f"{heads} (values x {self.d_v})"
        else:
            widths = heads
        return f"{name} attention, {widths}"

    @property
    def _d_v(self) -> int:
        if self.d_v is None:
            return self.d_head
        return self.d_v

    def _bias(self, letter: str, width: int) -> int:
        if letter in self.bias:
            return width
        return 0

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        q = self.n_heads * self.d_head
        k = self.n_kv_heads * self.d_head
        v = self.n_kv_heads * self._d_v
        o = self.n_heads * self._d_v
        d_output = d_model
        if self.d_input is not None:
            d_model = d_source = self.d_input
        if self.shares_kv or self.v_from_k:
            matrices = [Matrix("W_q", d_model, q, self._bias("q", q), "queries")]
            if not self.shares_kv:
                matrices.append(Matrix("W_k", d_source, k, self._bias("k", k), "keys"))
        elif self.fused:
            bias = self._bias("q", q) + self._bias("k", k) + self._bias("v", v)
            matrices = [Matrix("W_qkv", d_model, q + k + v, bias, "queries")]
        else:
            matrices = [
                Matrix("W_q", d_model, q, self._bias("q", q), "queries"),
                Matrix("W_k", d_source, k, self._bias("k", k), "keys"),
                Matrix("W_v", d_source, v, self._bias("v", v), "keys"),
            ]
        if self.gate:
            matrices.append(
                Matrix(
                    "W_gate", d_model, gate_width(self.gate, self.n_heads, self._d_v), 0, "queries"
                )
            )
        matrices.extend(self.extra_projections)
        matrices.append(Matrix("W_o", o, d_output, self._bias("o", d_output), "queries"))
        if self.qk_norm in ("head", "full"):
            full = self.qk_norm == "full"
            matrices.append(Matrix("q_norm", q if full else self.d_head))
            if not self.shares_kv:
                matrices.append(Matrix("k_norm", k if full else self.d_head))
        if self.sinks:
            matrices.append(Matrix("sinks", self.n_heads))
        if self.extra_vectors:
            matrices.append(Matrix("vectors", self.extra_vectors))
        return tuple(matrices)

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        # Per pair and head, QK takes d_head multiply-adds and PV takes d_v. Each is 2 FLOP.
        return MULTIPLY_ADD * self.n_heads * pairs(self.span, run, mask) * self._qk_and_v

    @property
    def _qk_and_v(self) -> int:
        if self.d_v is None:
            return QK_AND_PV * self.d_head
        return self.d_head + self.d_v

    def cache(self) -> tuple[CacheSpec, ...]:
        if self.shares_kv:
            return ()
        repeated = exact_div(self.n_heads, self.n_kv_heads) if self.repeats_kv else 1
        states = (CacheSpec(m.name, m.rows, m.cols, per="sequence") for m in self.extra_states)
        if self.d_v is None:
            return (
                CacheSpec(
                    "K and V",
                    _K_AND_V * self.n_kv_heads,
                    self.d_head,
                    span=self.span,
                    repeated=repeated,
                    role="kv",
                ),
                *states,
            )
        return (
            CacheSpec(
                "K", self.n_kv_heads, self.d_head, span=self.span, repeated=repeated, role="k"
            ),
            CacheSpec("V", self.n_kv_heads, self.d_v, span=self.span, repeated=repeated, role="v"),
            *states,
        )

    def widths(self, run: Run | None = None) -> Widths:
        return Widths(
            self.n_heads,
            self.n_kv_heads,
            self.d_head,
            self._d_v,
            fused=self.fused,
            gate=gate_width(self.gate, self.n_heads, self._d_v),
        )

    def saved_tensors(self, forward: Forward) -> tuple[SavedTensor, ...]:
        if type(self) is not Grouped:  # what differs in a subclass may save other tensors
            raise no_saved_tensors(self.headline)
        f = forward
        tensors = list(self._before_the_kernel(f))
        kv_heads = self.n_heads if self.repeats_kv else self.n_kv_heads
        own = tuple(
            kernel_tensors(f, self.n_heads, kv_heads, self.d_head, self._d_v, sinks=self.sinks)
        )
        views = self._views(f) if self.fused else set()
        if views:
            whole = (
                f.bytes
                * f.tokens
                * (self.n_heads * self.d_head + self.n_kv_heads * (self.d_head + self._d_v))
            )
            tensors.append(SavedTensor("output of W_qkv", "QK and PV", whole))
            own = tuple(tensor for tensor in own if tensor.name not in views)
        tensors += [tensor for tensor in own if not (self.shares_kv and tensor.name[0] in "kv")]
        if f.math.inner_norms:
            width = self.n_heads * self._d_v
            norm = norm_tensors(f, f.tokens, width, "inner norm", "attention", is_replicated=False)
            tensors += norm
            if f.kernel in ("flash", "efficient", "cudnn"):  # which save the output of attention
                tensors.append(
                    SavedTensor(
                        "normed output", "W_o", f.bytes * f.tokens * width, input_of=("W_o",)
                    )
                )
        if self.gate:
            gates = f.bytes * f.tokens * gate_width(self.gate, self.n_heads, self._d_v)
            tensors.append(SavedTensor("gate", "the sigmoid", gates))
            gated = f.bytes * f.tokens * self.n_heads * self._d_v
            tensors.append(SavedTensor("gated output", "W_o", gated, input_of=("W_o",)))
        return tuple(tensors)

    def _before_the_kernel(self, f: Forward) -> Iterator[SavedTensor]:
        """Yield the input of the projections, and what norms, rotation and scales of q, k and v
        save.
        """
        applied = [matrix.name for matrix in self.matrices(1, 1) if matrix.applied_to]
        names = tuple(name for name in applied if name != "W_o")
        yield matrix_input(f, f.d_model if self.d_input is None else self.d_input, names)
        if f.math.own_tables:
            size = {"half": f.bytes, "all": 2 * f.bytes, "in fp32": 2 * FP32}[f.math.own_tables]
            tables = size * f.S * self.d_head
            yield SavedTensor(
                "cosines and sines", "RoPE", tables, is_replicated=True, is_statistic=True
            )
        if f.math.indexes_kv and self.n_kv_heads != self.n_heads:
            yield SavedTensor(
                "indices of K and V", "a list as an index", 2 * INT64, is_statistic=True
            )
        yield from scales_of_queries(f, self.span)
        normed: list[tuple[str, int, int]] = []
        if self.qk_norm:
            normed.append(("q_norm", f.tokens, self.n_heads))
        if self.qk_norm and not self.shares_kv:
            normed.append(("k_norm", f.source_tokens, self.n_kv_heads))
        for name, tokens, n_heads in normed:
            if self.qk_norm == "l2":
                yield from l2_norm_tensors(f, tokens * n_heads, self.d_head, name)
                continue
            if self.qk_norm == "full":
                rows = tokens
                width = n_heads * self.d_head
            else:
                rows = tokens * n_heads
                width = self.d_head
            yield from norm_tensors(f, rows, width, name, "attention", is_replicated=False)
        if f.math.normalizes_v and not self.shares_kv:
            yield from l2_norm_tensors(f, f.source_tokens * self.n_kv_heads, self._d_v, "v_norm")

    def _views(self, f: Forward) -> set[str]:
        """Return which of q, k and v the kernel reads in the output of W_qkv, which is saved whole
        then.

        Rotation makes new tensors of q and k. Math attention copies them, and so does eager
        attention those of several sequences.
        """
        if f.kernel == "math" or (f.is_eager and f.B != 1):
            return set()
        views = {"v"} if f.rotary else {"q", "k", "v"}
        if f.math.indexes_kv and self.n_kv_heads != self.n_heads:  # an index by a list copies
            views -= {"k", "v"}
        if copies_kv(f, self.n_heads, self.n_kv_heads, self.d_head):
            return views - {"k", "v"}
        return views

    def notes(self, past: bool) -> tuple[str, ...]:
        return ()

    def with_span(self, span: Span) -> "Grouped":
        return dataclasses.replace(self, span=span)

    def shard(self, tp: int) -> "Grouped":
        # Query heads are split. KV heads are split too, and replicated if there are fewer than
        # devices: with 8 KV heads, each of 16 devices holds one, and each head is on 2 devices
        # (vLLM, model_executor/models/llama.py).
        heads = tp_share(self.n_heads, tp, f"{self.n_heads} query heads")
        n_kv_heads = int(self.n_kv_heads)
        if n_kv_heads % tp and tp % n_kv_heads:
            possible = tps(
                lambda n: self.n_heads % n == 0 and (n_kv_heads % n == 0 or n % n_kv_heads == 0)
            )
            problem = f"--tp {int(tp)} does not divide {n_kv_heads} KV heads, nor they --tp"
            raise AttncalcError(problem, give_one_of(possible))
        kv = maximum(1, self.n_kv_heads // tp)
        return dataclasses.replace(self, n_heads=heads, n_kv_heads=kv)

    def facts(self) -> dict[str, Any]:
        fields = plain_fields(self)
        fields |= {
            "kind": self.label,
            "d_v": int(self._d_v),
            "span": self.span.label,
            "bias": list(self.bias),
        }
        sizes = ("kind", "n_heads", "n_kv_heads", "d_head", "d_v", "span", "bias")
        flags = ("fused", "qk_norm", "sinks", "gate", "shares_kv", "v_from_k")
        return {name: fields[name] for name in (*sizes, *flags)}
