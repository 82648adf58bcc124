"""What is asked of a model: how many tokens, in which phase, under which mask.

Symbols: B sequences in the batch, S new tokens (queries), T tokens attended to (keys, the new ones
included), T_source tokens of an encoder's side.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict

from .errors import AttncalcError
from .quantity import Quantity, documented, symbol, symbolic
from .units import count, parse_count, truncate

if TYPE_CHECKING:
    from typing_extensions import Unpack

Phase = Literal["prefill", "decode", "train"]


class Mask(NamedTuple):
    """Which keys a query may see, before a layer's span (window, chunk) narrows it.

    kind: causal (itself and all before), bidirectional (all), prefix (the first `prefix` tokens see
    each other, the rest is causal).
    """

    kind: Literal["causal", "bidirectional", "prefix"] = "causal"
    prefix: int = 0

    @classmethod
    def parse(cls, text: str) -> Mask:
        """'causal', 'bidirectional' or 'prefix:N'. AttncalcError: for anything else."""
        if text == "causal":
            return cls()
        if text == "bidirectional":
            return cls("bidirectional")
        name, _, number = text.partition(":")
        if name == "prefix" and number:
            return cls("prefix", parse_count(number, "--mask prefix"))
        raise AttncalcError(f"there is no mask '{truncate(text)}'", "known: causal, bidirectional, prefix:N (N tokens)")

    def __str__(self) -> str:
        return f"prefix:{int(self.prefix)}" if self.kind == "prefix" else self.kind


CAUSAL = Mask()


class Run(NamedTuple):
    """`sequences` alike: each asks with its last `new` tokens of `context`."""

    sequences: int
    new: int
    context: int


class Given(TypedDict, total=False):
    """What every kind of workload may be given besides its size; see Workload."""

    lengths: tuple[int, ...] | None
    source: int | None
    mask: Mask | None
    dtype: str | None
    kv_dtype: str | None
    assumed: tuple[str, ...]


@dataclass(frozen=True)
class Workload:
    """B sequences, each asking with S new tokens over T keys; made by prefill, decode or train.

    lengths: the sequences' true lengths in a padded batch; None where all have T.
    source: tokens on the encoder's side. mask: instead of the model's own. dtype, kv_dtype: of
    activations and cache; None for the model's own. assumed: what was taken where the question was
    silent, in words.
    """

    phase: Phase
    batch: int = documented("sequences in the batch", symbol="B")
    new: int = documented("new tokens (queries) of a sequence", symbol="S")
    context: int = documented("tokens attended to (keys), the new ones included", symbol="T")
    source: int | None = documented("source tokens, on the encoder's side", symbol="T_source", default=None)
    lengths: tuple[int, ...] | None = None
    mask: Mask | None = None
    dtype: str | None = None
    kv_dtype: str | None = None
    assumed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("batch", "new", "context", "source"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise AttncalcError(f"{name}: {value} is not above zero", "give at least 1")
        if self.new > self.context:
            raise AttncalcError(
                f"{count(self.new)} new tokens do not fit in a context of {count(self.context)}",
                "the context counts the new tokens too",
            )
        if self.mask and self.mask.kind == "prefix":
            if self.mask.prefix > self.context:
                raise AttncalcError(
                    f"a prefix of {count(self.mask.prefix)} does not fit a context of {count(self.context)}",
                    "a prefix is a part of the context",
                )
            if 0 < self.context - self.new < self.mask.prefix:
                raise AttncalcError(
                    "a prefix whose tokens see each other must be processed at once",
                    f"keep at least {count(self.mask.prefix)} tokens in the past, or none",
                )

    @classmethod
    def prefill(cls, batch: int = 1, context: int | None = None, *, past: int = 0, **given: Unpack[Given]) -> Workload:
        """Process a context at once; `past` of its tokens are in the cache already.

        With `lengths`, batch and context follow from them. AttncalcError: for what cannot be.
        """
        if past < 0 or (past and given.get("lengths")):
            raise AttncalcError("past tokens must be zero or more, and zero with lengths", "leave out one of them")
        batch, context = _padded(batch, context, given.get("lengths"))
        if past >= context:
            raise AttncalcError(
                f"with {count(past)} of {count(context)} tokens in the past, no new one is left",
                "the context counts the past tokens too",
            )
        return cls("prefill", batch, context - past, context, **given)

    @classmethod
    def decode(cls, batch: int = 1, context: int | None = None, **given: Unpack[Given]) -> Workload:
        """One step: one new token a sequence, which attends to `context` tokens, itself included."""
        batch, context = _padded(batch, context, given.get("lengths"))
        return cls("decode", batch, 1, context, **given)

    @classmethod
    def train(cls, batch: int = 1, context: int | None = None, **given: Unpack[Given]) -> Workload:
        """A forward and a backward pass over the whole context."""
        batch, context = _padded(batch, context, given.get("lengths"))
        return cls("train", batch, context, context, **given)

    @property
    def past(self) -> int:
        """Tokens in the cache before this step."""
        return self.context - self.new

    @property
    def runs(self) -> tuple[Run, ...]:
        """The batch as runs of equal sequences; one run unless there are lengths."""
        if self.lengths is None:
            return (Run(self.batch, self.new, self.context),)
        runs = []
        for i, (length, n) in enumerate(sorted(Counter(self.lengths).items(), reverse=True), start=1):
            sequences, context = n, length
            if isinstance(self.batch, Quantity):
                sequences = symbol(f"B_{i}", n, f"sequences of length T_{i}")
                context = symbol(f"T_{i}", length, "tokens of such a sequence")
            runs.append(Run(sequences, 1 if self.phase == "decode" else context, context))
        return tuple(runs)

    def symbolic(self) -> Workload:
        """Itself with its numbers as symbols; where all tokens are new, S is T and T stands for both."""
        given = symbolic(self)
        everything = self.phase != "decode" and self.new == self.context
        mask = self.mask
        if mask and mask.prefix:
            mask = mask._replace(prefix=symbol("prefix", mask.prefix, "tokens of the prefix, which see each other"))
        return dataclasses.replace(given, new=given.context if everything else given.new, mask=mask)

    def at(self, context: int) -> Workload:
        """The same question of full sequences at another context: a decode step still has one new token.

        What is in the past stays there; a prefix is cut to the context.
        """
        new = self.new if self.phase == "decode" else context - self.past
        mask = self.mask and self.mask._replace(prefix=min(self.mask.prefix, context))
        return dataclasses.replace(self, new=new, context=context, lengths=None, mask=mask)

    def doubled(self) -> Workload:
        """The same question at twice the context; of a padded batch, at twice each length."""
        lengths = self.lengths and tuple(2 * length for length in self.lengths)
        return dataclasses.replace(self.at(2 * self.context), lengths=lengths)


def _padded(batch: int, context: int | None, lengths: tuple[int, ...] | None) -> tuple[int, int]:
    """The batch and its padded context, from what is given of the three."""
    if lengths is None:
        if context is None:
            raise AttncalcError("a workload without a context", "give context, or the lengths of its sequences")
        if context < 1:
            raise AttncalcError(f"context: {context} is not above zero", "give at least 1")
        return batch, context
    if not lengths or min(lengths) < 1:
        raise AttncalcError("lengths must be whole numbers above zero", "for example 512,300,128")
    return len(lengths), max(lengths)
