"""Workloads: how many tokens a model processes, in which phase and under which mask.

Symbols: B batch size in sequences, S new tokens (queries), T tokens attended to (keys, with the new
ones), T_source source tokens of an encoder.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Literal, TypedDict

from .errors import BadValueError, clash
from .quantity import Quantity, documented, symbol, symbolic
from .records import NamedTuple, dataclass
from .units import count, parse_count, truncate

if TYPE_CHECKING:
    from typing_extensions import Unpack

Phase = Literal["prefill", "decode", "train"]
# What the backward pass computes again: nothing, QK and PV, all but every second matmul and fused
# attention (torchtitan's selective_ac_option = "op"), or whole layers.
Recompute = Literal["none", "selective", "op", "full"]


class Mask(NamedTuple):
    """The keys that a query can see, before a layer's span (window, chunk) narrows them.

    Attributes:
        kind: 'causal' (its own and all earlier ones), 'bidirectional' (all) or 'prefix' (the first
            `prefix` tokens see each other, the rest is causal).
        prefix: tokens of the prefix.
    """

    kind: Literal["causal", "bidirectional", "prefix"] = "causal"
    prefix: int = 0

    @classmethod
    def parse(cls, text: str) -> Mask:
        """Return the mask for 'causal', 'bidirectional' or 'prefix:N'. Raises AttncalcError for any
        other text.
        """
        if text == "causal":
            return cls()
        if text == "bidirectional":
            return cls("bidirectional")
        name, _, number = text.partition(":")
        if name == "prefix" and number:
            return cls("prefix", parse_count(number, "--mask prefix"))
        raise BadValueError(
            f"there is no mask '{truncate(text)}'",
            "known: causal, bidirectional, prefix:N (N tokens)",
        )

    def __str__(self) -> str:
        if self.kind == "prefix":
            return f"prefix:{int(self.prefix)}"
        return self.kind


CAUSAL = Mask()


class Run(NamedTuple):
    """A run of sequences with one length, as in run-length encoding: lengths 512, 300, 300 are two
    runs.
    """

    sequences: int  # how many sequences
    new: int  # new tokens of each sequence, the last ones of its context
    context: int  # tokens of each sequence


class WorkloadOptions(TypedDict, total=False):
    """The optional arguments of `Workload.prefill`, `decode` and `train`."""

    lengths: tuple[int, ...] | None
    source: int | None
    mask: Mask | None
    dtype: str | None
    kv_dtype: str | None
    assumed: tuple[str, ...]
    recompute: Recompute


@dataclass(frozen=True)
class Workload:
    """B sequences, each with S new tokens (queries) over T keys; made by `prefill`, `decode` or
    `train`.

    Attributes:
        phase: 'prefill', 'decode' or 'train'.
        batch: sequences.
        new: new tokens of a sequence.
        context: tokens of a sequence, with the new ones.
        source: source tokens of an encoder.
        lengths: the sequences' true lengths in a padded batch; None if all have `context` tokens.
        mask: a mask in place of the model's.
        dtype: dtype of weights and activations; None for the model's.
        kv_dtype: dtype of the cache; None for `dtype`.
        assumed: the defaults that were used, one phrase each.
        recompute: what the backward pass of a training step computes again.
    """

    phase: Phase
    batch: int = documented("batch size, in sequences", symbol="B")
    new: int = documented("new tokens (queries) of a sequence", symbol="S")
    context: int = documented("tokens attended to (keys), with the new ones", symbol="T")
    source: int | None = documented("source tokens of the encoder", symbol="T_source", default=None)
    lengths: tuple[int, ...] | None = None
    mask: Mask | None = None
    dtype: str | None = None
    kv_dtype: str | None = None
    assumed: tuple[str, ...] = ()
    recompute: Recompute = "none"

    def __post_init__(self) -> None:
        for name in ("batch", "new", "context", "source"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadValueError(f"{name} is {value}, and must be at least 1", "give 1 or more")
        if self.new > self.context:
            raise BadValueError(
                f"{count(self.new)} new tokens do not fit in a context of {count(self.context)}",
                "the context includes the new tokens",
            )
        if self.recompute != "none" and self.phase != "train":
            raise clash(
                f"--recompute {self.recompute}",
                f"--phase {self.phase}",
                "give it with --phase train: only a backward pass recomputes",
            )
        if self.mask and self.mask.kind == "prefix":
            if self.mask.prefix > self.context:
                raise BadValueError(
                    f"a prefix of {count(self.mask.prefix)} does not fit a context of "
                    f"{count(self.context)}",
                    "the prefix is part of the context",
                )
            if 0 < self.context - self.new < self.mask.prefix:
                raise BadValueError(
                    "the tokens of a prefix see each other, so all of them must be new or all in "
                    "the past",
                    f"give a past of 0, or of at least {count(self.mask.prefix)} tokens",
                )

    @classmethod
    def prefill(
        cls,
        batch: int = 1,
        context: int | None = None,
        *,
        past: int = 0,
        **options: Unpack[WorkloadOptions],
    ) -> Workload:
        """Return a workload that processes a context in one pass; `past` of its tokens are already
        in the cache.

        With `lengths`, batch and context follow from them.

        Raises AttncalcError if the numbers do not fit together.
        """
        if past < 0:
            raise BadValueError(f"past is {past}, and must not be negative", "give 0 or more")
        if past and options.get("lengths"):
            raise BadValueError("past cannot be combined with lengths", "leave out one of them")
        batch, context = _padded(batch, context, options.get("lengths"))
        if past >= context:
            raise BadValueError(
                f"{count(past)} tokens in the past leave no new token in a context of "
                f"{count(context)}",
                "the context includes the past tokens: make it longer than they are",
            )
        return cls("prefill", batch, context - past, context, **options)

    @classmethod
    def decode(
        cls, batch: int = 1, context: int | None = None, **options: Unpack[WorkloadOptions]
    ) -> Workload:
        """Return a step with one new token per sequence, which attends to `context` tokens, itself
        included.
        """
        batch, context = _padded(batch, context, options.get("lengths"))
        return cls("decode", batch, 1, context, **options)

    @classmethod
    def train(
        cls, batch: int = 1, context: int | None = None, **options: Unpack[WorkloadOptions]
    ) -> Workload:
        """Return a forward and a backward pass over the whole context."""
        batch, context = _padded(batch, context, options.get("lengths"))
        return cls("train", batch, context, context, **options)

    @property
    def past(self) -> int:
        """Return the tokens of a sequence that are in the cache already."""
        return self.context - self.new

    @property
    def runs(self) -> tuple[Run, ...]:
        """Return the batch as runs of sequences of one length; a single run without `lengths`."""
        if self.lengths is None:
            return (Run(self.batch, self.new, self.context),)
        runs = []
        for i, (length, number) in enumerate(
            sorted(Counter(self.lengths).items(), reverse=True), start=1
        ):
            sequences = number
            context = length
            if isinstance(self.batch, Quantity):
                sequences = symbol(f"B_{i}", number, f"sequences of length T_{i}")
                context = symbol(f"T_{i}", length, "tokens of such a sequence")
            runs.append(Run(sequences, 1 if self.phase == "decode" else context, context))
        return tuple(runs)

    def symbolic(self) -> Workload:
        """Return the workload with its numbers as symbols. If all tokens are new, T is used for S
        too.
        """
        symbols = symbolic(self)
        all_new = self.phase != "decode" and self.new == self.context
        mask = self.mask
        if mask and mask.prefix:
            mask = mask._replace(
                prefix=symbol("prefix", mask.prefix, "tokens of the prefix, which see each other")
            )
        return dataclasses.replace(
            symbols, new=symbols.context if all_new else symbols.new, mask=mask
        )

    def at(self, context: int) -> Workload:
        """Return the workload at another context, with all sequences of that length.

        The tokens in the past stay the same, a decode step still has one new token, and a prefix is
        cut to the context, or to its past: a decode step at a context of 4 has 3 tokens in the
        past, so a prefix of 5 becomes one of 3.
        """
        new = self.new if self.phase == "decode" else context - self.past
        mask = self.mask and self.mask._replace(
            prefix=min(self.mask.prefix, context - new or context)
        )
        return dataclasses.replace(self, new=new, context=context, lengths=None, mask=mask)

    def doubled(self) -> Workload:
        """Return the workload at twice the context; in a padded batch, every length doubles."""
        lengths = self.lengths and tuple(2 * length for length in self.lengths)
        return dataclasses.replace(self.at(2 * self.context), lengths=lengths)


def _padded(batch: int, context: int | None, lengths: tuple[int, ...] | None) -> tuple[int, int]:
    """Return batch and padded context: the given ones, or those that follow from `lengths`."""
    if lengths is None:
        if context is None:
            raise BadValueError(
                "a workload needs a context", "give context, or the lengths of its sequences"
            )
        if context < 1:
            raise BadValueError(f"context is {context}, and must be at least 1", "give 1 or more")
        return batch, context
    if not lengths or min(lengths) < 1:
        raise BadValueError("every length must be at least 1", "for example 512,300,128")
    return len(lengths), max(lengths)
