"""What every attention kind answers, and the plain records it answers with.

A kind knows no engine, no model family and no unit: it says which matrices it has, how many FLOPs
its scores take, what it caches and how wide the tensors around its kernel are. A new kind is one new file beside
this one and one line in the table of `attention/__init__.py`; the YAML keys are its fields.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from ..quantity import COUNT, documented
from ..workload import Mask, Run
from .span import FULL, Span

SHAPES: Mapping[str, Any] = {
    "type": "object",
    "propertyNames": {"pattern": "^[a-z][a-z0-9_]*$"},
    "additionalProperties": {"type": "array", "minItems": 1, "items": dict(COUNT)},
}
"""Matrices and vectors by name, in a preset."""

YES: Mapping[str, Any] = {"type": "boolean"}

AppliedTo = Literal["queries", "keys", "first"]
Role = Literal["kv", "k", "v", "latent", "indexer", "convolution", "state", "other"]


class Matrix(NamedTuple):
    """One named parameter tensor: `rows` x `cols` elements and `bias` more.

    applied_to: the tokens it multiplies: the queries' own, the keys' (of another length where keys come
    from a source), the first of a sequence, or None for a vector that no matmul uses (a norm's gain, sinks).
    times: how often it multiplies each of them: one matrix for all heads.
    """

    name: str
    rows: int
    cols: int = 1
    bias: int = 0
    applied_to: AppliedTo | None = None
    times: int = 1

    @property
    def weights(self) -> int:
        """Elements without the bias."""
        return self.rows * self.cols

    @property
    def multiplied(self) -> int:
        """Multiply-adds of one of the tokens it reads."""
        return self.weights if self.times == 1 else self.times * self.weights

    @property
    def params(self) -> int:
        """Elements, the bias included."""
        return self.weights + self.bias


def shaped(shapes: Mapping[str, Sequence[int]], applied_to: AppliedTo | None = None) -> tuple[Matrix, ...]:
    """The tensors of those shapes, by name: the first length the rows, all others together the columns."""
    return tuple(Matrix(name, shape[0], math.prod(shape[1:]), applied_to=applied_to) for name, shape in shapes.items())


def gate() -> Any:
    """The field of a gate on the output."""
    return documented(
        "a gate on the output, as wide as it (Qwen3-Next), or head = one value a head (Step-3.5)",
        default=False,
        schema={"anyOf": [YES, {"type": "string", "enum": ["head"]}]},
    )


def state_dtype() -> Any:
    """The field of what a model's config asks of serving engines."""
    return documented(
        "dtype that serving engines are asked to keep the state in (mamba_ssm_dtype)",
        left_out="the engine's own choice",
        default=None,
        schema={"type": "string", "enum": ["fp32", "bf16", "fp16"]},
    )


def extra_vectors() -> Any:
    """The field of what has elements and multiplies nothing."""
    return documented(
        "elements of further vectors: norms with a bias or of their own for each head, lambdas", default=None
    )


def extra_projections() -> Any:
    """The field of matrices that a kind has no name for."""
    return documented(
        "further matrices of the attention, whole on every device, that multiply every token, by name: [rows, columns]",
        default=(),
        schema=SHAPES,
    )


class CacheSpec(NamedTuple):
    """Something a layer keeps for later tokens, as `rows` of `width` elements.

    scales_with: with the context (that many rows a token, for the tokens its span keeps), with the source
    (rows a source token), or never (rows in all: a recurrent state).
    dtype: the dtype a state insists on; None for the cache's own. repeated: how often transformers' own
    class stores each row (Falcon's: once a query head); other engines store it once.
    role: what engines tell apart: K and V in one or apart, MLA's latent, an indexer's keys, a convolution's
    last tokens (as many as its width), a state; other: what no serving engine's layout is known for here.
    rotary: how many of a latent's elements are the rotary key. requested_dtype: the dtype that the model's config
    asks serving engines to keep a state in.
    """

    name: str
    rows: int
    width: int
    scales_with: Literal["context", "source", "never"] = "context"
    span: Span = FULL
    dtype: str | None = None
    repeated: int = 1
    role: Role = "other"
    rotary: int = 0
    requested_dtype: str | None = None


class Widths(NamedTuple):
    """Elements a token has in the tensors that enter and leave the attention kernel.

    n_heads query heads of d_qk and n_kv_heads of d_qk and d_v; extra: what else is live then
    (MLA's latent, and what K was made from), per token. together: q, k and v are one tensor, and live
    as long. gate: the output has one.
    """

    n_heads: int
    n_kv_heads: int
    d_qk: int
    d_v: int
    extra: int = 0
    together: bool = False
    gate: bool = False


class Attention(Protocol):
    """A kind of attention layer. Its fields are plain ints, or symbols for a formula."""

    @property
    def source(self) -> str:
        """The paper its formulas are from."""

    @property
    def span(self) -> Span:
        """The positions a query can see at all."""

    @property
    def label(self) -> str:
        """Its short name: 'GQA'."""

    @property
    def tag(self) -> str:
        """Its short name with its size: 'GQA-8', 'MLA-512'."""

    @property
    def headline(self) -> str:
        """Itself in words: 'grouped-query attention, 64 query and 8 KV heads x 128'."""

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        """Its parameters; d_source is the width of what keys are made from (d_model unless cross)."""

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        """FLOPs of one sequence of `run` between the projections: QK and PV, or a state's update.

        mask None: the dense rectangle of S x T pairs, what a kernel that skips nothing computes.
        """

    def cache(self) -> tuple[CacheSpec, ...]:
        """What it keeps for later tokens; () for nothing."""

    def widths(self, run: Run | None = None) -> Widths:
        """The tensors around the attention kernel; of `run`, where a past changes them (MLA)."""

    def notes(self, past: bool) -> tuple[str, ...]:
        """What a reader of its FLOPs and activations must know, with tokens in the past or without."""

    def with_span(self, span: Span) -> Attention:
        """Itself seeing as far as `span`."""

    def shard(self, tp: int) -> Attention:
        """The part one of `tp` tensor-parallel devices holds. AttncalcError: where it does not divide."""

    def facts(self) -> dict[str, Any]:
        """Its fields as plain data, for JSON."""


class Kind(Attention, Protocol):
    """A kind that the YAML key `attention` can name."""

    @classmethod
    def required(cls) -> tuple[str, ...]:
        """The keys a preset must give."""

    @classmethod
    def from_keys(cls, given: Mapping[str, Any], d_model: int, span: Span) -> Attention:
        """From the keys of a preset, with what they leave out. AttncalcError: a default cannot be."""
