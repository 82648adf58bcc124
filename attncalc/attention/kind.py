"""The interface of an attention kind, and the records that it returns.

A kind describes its matrices, the FLOPs of its scores, its cache and the tensors around its kernel.
It knows no engine, no model family and no unit. A new kind is a new file beside this one and a line
in the table of `attention/__init__.py`. Its fields are its YAML keys.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, get_args

from ..errors import BadValueError, NotSupportedError
from ..quantity import COUNT, Constant, Quantity, documented, exact_div, minimum
from ..records import NamedTuple
from ..workload import Mask, Run
from .saved import Forward, SavedTensor
from .span import FULL, Span

# JSON Schema of matrices and vectors by name, in a preset.
SHAPES: Mapping[str, Any] = {
    "type": "object",
    "propertyNames": {"pattern": "^[a-z][a-z0-9_]*$"},
    "additionalProperties": {"type": "array", "minItems": 1, "items": dict(COUNT)},
}

# JSON Schema of a key that is true or false.
BOOLEAN: Mapping[str, Any] = {"type": "boolean"}

AppliedTo = Literal["queries", "keys", "first", "table"]
PoolingRole = Literal["shared", "pools", "index_pools", "unpooled", "last_pool"]
HeldRole = Literal["kv", "k", "v", "latent", "indexer", "averages", "gated_averages"]
Role = Literal[HeldRole, "convolution", "short_convolution", "state", PoolingRole, "other"]
# The roles of compressed attention's caches.
POOLING_ROLES: tuple[PoolingRole, ...] = get_args(PoolingRole)


class Table(NamedTuple):
    """Rows that a matrix projects besides tokens, or instead of them: a table of positions, or
    summaries of blocks.
    """

    # rows of a table of relative positions, which is projected once per forward pass, whatever the
    # batch
    rows: int = 0
    grows: bool = False  # whether a sequence of S tokens uses only 2 S of them
    # tokens of a summary, of which each sequence has S // block instead; 0 for a table
    block: int = 0

    def rows_projected(self, batch: int, tokens: int) -> int:
        """Return the rows that a forward pass over `batch` sequences of `tokens` tokens
        projects.
        """
        if self.block:
            return batch * (tokens // self.block)
        if self.grows:
            return minimum(2 * tokens, self.rows)
        return self.rows


MULTIPLY_ADD = Constant(2, "FLOP per multiply-add")
QK_AND_PV = Constant(2, "products of one width: QK and PV")


class Matrix(NamedTuple):
    """One named parameter tensor, with its bias."""

    name: str  # its name: 'W_q'
    rows: int  # rows
    cols: int = 1  # columns
    bias: int = 0  # elements of the bias
    # The tokens that it multiplies: those of the queries, those of the keys (source tokens in
    # cross-attention), the first token of a sequence, only a table of positions, or None for a
    # parameter that takes part in no matmul (a norm's gain, sinks)
    applied_to: AppliedTo | None = None
    # how often it multiplies each token, for example once per head if all heads share the matrix
    times: int = 1
    table: Table | None = None

    @property
    def weights(self) -> int:
        """Return the elements without the bias."""
        return self.rows * self.cols

    @property
    def multiplied(self) -> int:
        """Return the multiply-adds per token."""
        return self.times * self.weights

    @property
    def params(self) -> int:
        """Return the elements with the bias."""
        return self.weights + self.bias


def matrices_from_shapes(
    shapes: Mapping[str, Sequence[int]], applied_to: AppliedTo | None = None
) -> tuple[Matrix, ...]:
    """Return tensors from a preset's shapes, by name. Trailing dimensions are flattened into
    columns.
    """
    return tuple(
        Matrix(name, shape[0], math.prod(shape[1:]), applied_to=applied_to)
        for name, shape in shapes.items()
    )


def flag(meaning: str, left_out: str = "") -> Any:
    """Return the dataclass field of what is true or false, by default false."""
    return documented(meaning, default=False, left_out=left_out, schema=BOOLEAN)


def gate() -> Any:
    """Return the dataclass field of a gate on the output."""
    return documented(
        "gate on the output: true = as wide as the output (Qwen3-Next), head = one value per "
        "head (Step-3.5)",
        default=False,
        schema={"anyOf": [BOOLEAN, {"type": "string", "enum": ["head"]}]},
    )


def state_dtype() -> Any:
    """Return the dataclass field of the dtype that a model's config requests for its states."""
    return documented(
        "dtype of the state that the config requests of serving engines (mamba_ssm_dtype)",
        left_out="the engine's default",
        default=None,
        schema={"type": "string", "enum": ["fp32", "bf16", "fp16"]},
    )


def gate_width(gate: bool | str, n_heads: int, d_v: int) -> int:
    """Return the width of a gate on the output: one value per head, or per element of it; 0 without
    a gate.
    """
    if not gate:
        return 0
    if gate == "head":
        return n_heads
    return n_heads * d_v


def extra_vectors() -> Any:
    """Return the dataclass field of parameters that take no part in a matmul."""
    return documented(
        "elements of further vectors: norms with a bias or one per head, lambdas", default=None
    )


def extra_projections() -> Any:
    """Return the dataclass field of matrices that a kind has no name for."""
    return documented(
        "further matrices that multiply every token, replicated on every device, by name: [rows, "
        "columns]",
        default=(),
        schema=SHAPES,
    )


class CacheSpec(NamedTuple):
    """A tensor that a layer caches for later tokens, as `rows` of `width` elements."""

    name: str  # its name in words: 'K and V'
    rows: int  # how many rows `per` token, source token or sequence
    width: int  # elements of a row
    # What has that many rows: each 'token' in the span, each 'source token', or each 'sequence' (a
    # state of a fixed size)
    per: Literal["token", "source token", "sequence"] = "token"
    span: Span = FULL  # the tokens that stay in the cache
    # the dtype that the tensor always has; None for the dtype of the cache
    dtype: str | None = None
    # How often transformers' class stores each row (Falcon's: once per query head). Other engines
    # store it once.
    repeated: int = 1
    # How engines store the tensor: 'kv' (K and V with heads of one width), 'k' or 'v' (if their
    # widths differ), 'latent' (MLA), 'indexer' (an indexer's keys), 'averages' (of which they store
    # one average per pool of the span; 'gated_averages', which gates weigh, are for an indexer of
    # latents), 'convolution' (its last tokens, as many as it is wide), 'short_convolution' (one
    # beside the layer's mixer, with all its tokens), 'state', or 'other' (a tensor that no serving
    # engine's layout supports). Compressed attention has 'shared' (a key that is also the value),
    # 'pools' and 'index_pools' (one key per pool, of the layer and of its indexer), 'unpooled'
    # (tokens that are still to be pooled) and 'last_pool' (tokens of the last pool).
    role: Role = "other"
    rotary: int = 0  # how many elements of a latent are the rotary key
    requested_dtype: str | None = None  # the dtype that the model's config requests for a state
    # Elements of each row that transformers' class stores and the next token does not need: a
    # convolution's oldest one
    spare: int = 0

    @property
    def pool_size(self) -> int:
        """The tokens of a pool, which are compressed or averaged; 1 without pools."""
        return int(getattr(self.span, "pool" if self.role.endswith("averages") else "size", 1))


class Widths(NamedTuple):
    """The heads and widths of the tensors that enter and leave the attention kernel."""

    n_heads: int  # query heads; 0 for a layer without an attention kernel
    n_kv_heads: int  # key and value heads
    d_qk: int  # width of a query and a key head
    d_v: int  # width of a value head
    # Further elements per token that are held at the same time (MLA's latent, and the part that K
    # was copied from)
    extra: int = 0
    fused: bool = False  # q, k and v are one tensor, so all are held as long as one of them is
    gate: int = 0  # width of the gate on the output; 0 without one


class Attention(Protocol):
    """A kind of attention layer. Its fields are plain ints, or symbols for formulas."""

    @property
    def source(self) -> str:
        """Return the paper or code that its formulas are from."""

    @property
    def span(self) -> Span:
        """Return the positions that a query can see."""

    @property
    def label(self) -> str:
        """Return its short name: 'GQA'."""

    @property
    def tag(self) -> str:
        """Return its short name with its size: 'GQA-8', 'MLA-512'."""

    @property
    def headline(self) -> str:
        """Return it in words: 'grouped-query attention, 64 query and 8 KV heads x 128'."""

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        """Return its parameters. The input of W_k and W_v is `d_source` wide: d_model, except in
        cross-attention.
        """

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        """Return the FLOPs of one sequence of `run` between the projections: QK and PV, or the
        update of a state.

        With mask None, all S x T pairs are counted, as for a kernel that skips no pair.
        """

    def cache(self) -> tuple[CacheSpec, ...]:
        """Return the tensors that it caches for later tokens; () for none."""

    def widths(self, run: Run | None = None) -> Widths:
        """Return the widths of the kernel's tensors; in MLA they depend on whether `run` has tokens
        in the past.
        """

    def saved_tensors(self, forward: Forward) -> tuple[SavedTensor, ...]:
        """Return what its forward pass saves for the backward pass; NotSupportedError if that is
        not known.
        """

    def notes(self, past: bool) -> tuple[str, ...]:
        """Return notes on its FLOPs and activations. `past`: the workload has tokens in the
        past.
        """

    def with_span(self, span: Span) -> "Attention":
        """Return the kind with another span."""

    def shard(self, tp: int) -> "Attention":
        """Return the part on one of `tp` tensor-parallel devices. Raises BadValueError if it does
        not divide.
        """

    def facts(self) -> dict[str, Any]:
        """Return its fields as plain data, for JSON."""


class Kind(Attention, Protocol):
    """A kind that the YAML key `attention` can name."""

    @classmethod
    def from_keys(cls, keys: Mapping[str, Any], d_model: int, span: Span) -> Attention:
        """Return the kind from the keys of a preset, with defaults for those left out.

        Raises AttncalcError if a key is wrong or a default does not exist.
        """


def no_saved_tensors(headline: str, part: str = "") -> NotSupportedError:
    """Return the error of a kind, or of a kind with a part, whose saved tensors are not known."""
    kind = headline.partition(",")[0] + (f" with {part}" if part else "")
    return NotSupportedError(
        f"the tensors that the backward pass needs of {kind} are not known",
        "'attncalc flops --phase train' counts the FLOPs of a training step",
    )


def plain_fields(kind: object) -> dict[str, Any]:
    """Return the fields of a kind as plain data, with symbols as numbers, and without its span."""
    fields = {name: value for name, value in vars(kind).items() if name != "span"}
    return {
        name: int(value) if isinstance(value, Quantity) else value for name, value in fields.items()
    }


def tp_share(number: int, tp: int, text: str) -> int:
    """Return number / tp, the part on one of `tp` devices.

    Raises BadValueError if `tp` does not divide the number, which `text` says in words.
    """
    if number % tp:
        raise BadValueError(
            f"--tp {int(tp)} does not divide {text}", give_one_of(tps(lambda n: number % n == 0))
        )
    return exact_div(number, tp)


def tps(is_possible: Callable[[int], bool]) -> list[int]:
    """Return the numbers of tensor-parallel devices, up to 128, that are possible."""
    return [n for n in range(1, 129) if is_possible(n)]


def give_one_of(numbers: Sequence[int], option: str = "--tp") -> str:
    """Return a tip that names the values: 'give --tp 1, 2 or 4'."""
    *first, last = map(str, numbers)
    if first:
        return f"give {option} {', '.join(first)} or {last}"
    return f"give {option} {last}"


def required_keys(kind: type) -> list[str]:
    """Return the keys that a model file must give of a kind: its documented fields without a
    default.
    """
    required = []
    for field in dataclasses.fields(kind):
        is_key = "meaning" in field.metadata and not field.metadata["left_out"]
        if is_key and field.default is dataclasses.MISSING:
            required.append(field.name)
    return required
