"""Spans: the positions that a query can see, and exact counts of query-key pairs.

Any kind can have any span. Positions count from 1: under a causal mask, the n-th token of a
sequence sees `visible_keys(n)` keys, itself included.
"""

from typing import Protocol

from ..errors import AttncalcError
from ..quantity import Constant, documented, exact_div, minimum
from ..records import dataclass
from ..workload import Mask, Run

HALF = Constant(2, "half of all pairs: a token attends to itself and to those before it")
_BOTH_SIDES = Constant(2, "sides: tokens before and after")


class Span(Protocol):
    """How far back a query sees."""

    @property
    def reach(self) -> int | None:
        """Return the upper bound of the keys that a query sees; None without a bound."""

    @property
    def tokens_per_row(self) -> int:
        """Return how many further tokens add a row to a cache that is not full; 0 if its rows stay
        about as many.
        """

    @property
    def label(self) -> str:
        """Return its short name: 'full', 'window 1,024', 'chunk 8,192'."""

    @property
    def description(self) -> str:
        """Return it in words: 'the whole context', 'a window of 1,024 tokens', 'chunks of 8,192
        tokens'.
        """

    def visible_keys(self, n: int) -> int:
        """Return the keys that the n-th token sees under a causal mask."""

    def causal_pairs(self, n: int) -> int:
        """Return the pairs among the first n tokens under a causal mask: visible_keys(1) + ... +
        visible_keys(n).
        """

    def bidirectional_pairs(self, n: int) -> int:
        """Return the pairs among n tokens under a bidirectional mask, where the span applies in
        both directions.
        """

    def future_pairs(self, n: int) -> int:
        """Return the pairs among n tokens whose key comes after the query: bidirectional_pairs(n) -
        causal_pairs(n).
        """

    def cached_tokens(self, n: int) -> int:
        """Return the tokens that a cache without pages holds after n tokens."""


class Full:
    """Every position. All instances are equal."""

    reach = None
    tokens_per_row = 1
    label = "full"
    description = "the whole context"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Full)

    def __hash__(self) -> int:
        return hash(Full)

    def visible_keys(self, n: int) -> int:
        return n

    def causal_pairs(self, n: int) -> int:
        return exact_div(n * (n + 1), HALF)

    def bidirectional_pairs(self, n: int) -> int:
        return n * n

    def future_pairs(self, n: int) -> int:
        return exact_div(n * (n - 1), HALF)

    def cached_tokens(self, n: int) -> int:
        return n


class Narrow:
    """Shared by the spans that leave out keys: the pairs after a query mirror those before it."""

    tokens_per_row = 1

    def causal_pairs(self, n: int) -> int:
        raise NotImplementedError

    def future_pairs(self, n: int) -> int:
        return self.causal_pairs(n) - n

    def bidirectional_pairs(self, n: int) -> int:
        return _BOTH_SIDES * self.causal_pairs(n) - n


@dataclass(frozen=True)
class Sliding(Narrow):
    """The nearest `window` positions, with the query's own: 0 <= i - j < window.

    Under a bidirectional mask: |i - j| < window. Source: Mistral 7B, arXiv:2310.06825, section 2.
    """

    window: int = documented("tokens of the sliding window, with the query's own", symbol="W")

    @property
    def reach(self) -> int:
        return self.window

    @property
    def label(self) -> str:
        return f"window {int(self.window):,}"

    @property
    def description(self) -> str:
        return f"a window of {int(self.window):,} tokens"

    def visible_keys(self, n: int) -> int:
        return minimum(n, self.window)

    def causal_pairs(self, n: int) -> int:
        return capped_causal_pairs(self.window, n)

    def cached_tokens(self, n: int) -> int:
        return minimum(n, self.window)


@dataclass(frozen=True)
class Chunked(Narrow):
    """The positions of the query's own chunk: i // chunk == j // chunk, counted from 0.

    Source: Llama 4's attention_chunk_size, transformers' masking_utils.py.
    """

    chunk: int = documented("tokens of an attention chunk", symbol="C")

    @property
    def reach(self) -> int:
        return self.chunk

    @property
    def label(self) -> str:
        return f"chunk {int(self.chunk):,}"

    @property
    def description(self) -> str:
        return f"chunks of {int(self.chunk):,} tokens"

    def visible_keys(self, n: int) -> int:
        return (n - 1) % self.chunk + 1

    def causal_pairs(self, n: int) -> int:
        rest = n % self.chunk
        whole = n // self.chunk * exact_div(self.chunk * (self.chunk + 1), HALF)
        return whole + exact_div(rest * (rest + 1), HALF)

    def cached_tokens(self, n: int) -> int:
        return minimum(n, self.chunk)


FULL = Full()


def capped_causal_pairs(limit: int, n: int) -> int:
    """Return the pairs if a token sees at most `limit` keys: min(1, limit) + ... + min(n,
    limit).
    """
    m = minimum(n, limit)
    return exact_div(m * (m + 1), HALF) + (n - m) * limit


def pairs(span: Span, run: Run, mask: Mask | None) -> int:
    """Return the query-key pairs of one sequence: its last `run.new` tokens are queries, all
    `run.context` are keys.

    With mask None, these are all S * T pairs.

    Raises AttncalcError for a bidirectional mask with tokens in the past, which could not have seen
    the new ones. Workload raises it for a prefix.
    """
    new = run.new
    context = run.context
    if mask is None:
        return new * context
    if mask.kind == "bidirectional":
        check_mask(run, mask)
        return span.bidirectional_pairs(context)
    if new == context:
        causal = span.causal_pairs(context)
        if mask.prefix:
            return causal + span.future_pairs(minimum(mask.prefix, context))
        return causal
    if new == 1:
        return span.visible_keys(context)
    return span.causal_pairs(context) - span.causal_pairs(context - new)


def check_mask(run: Run, mask: Mask) -> None:
    """Raise AttncalcError for a bidirectional mask with tokens in the past, which could not have
    seen the new ones.
    """
    if mask.kind == "bidirectional" and run.new != run.context:
        raise no_decode_step()


def no_decode_step() -> AttncalcError:
    """Return the error for a decode step, or a past, with a bidirectional mask."""
    return AttncalcError(
        "a bidirectional model has no decode step: every token sees every other",
        "choose '--phase prefill' without '--past', or '--mask causal'",
    )
