"""The base of the recurrent kinds, which have a state of a fixed size and run token by token; no
attention at all.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from ..quantity import Constant
from ..records import dataclass
from ..workload import Mask, Run
from .kind import CacheSpec, Matrix, Widths, no_saved_tensors, plain_fields, tp_share
from .saved import Forward, SavedTensor
from .span import FULL, Span

R = TypeVar("R", bound="Recurrent")
UPDATE_AND_READ = Constant(
    4, "FLOP per element of the state: a multiply-add updates it, and one reads it"
)


class Recurrent:
    """A layer with a state of a fixed size, however long the context.

    Its score FLOPs are those of the recurrent form, token by token: updating the state and reading
    it. A chunked, parallel form does more. Element-wise operations are not counted, as elsewhere.
    """

    name: ClassVar[str]  # the kind's short name
    description: ClassVar[str]  # the layers in words
    # The fields that tensor parallelism divides evenly, with what each counts
    splits: ClassVar[tuple[tuple[str, str], ...]] = ()
    span = FULL

    @property
    def label(self) -> str:
        return self.name

    @property
    def tag(self) -> str:
        return self.name

    @classmethod
    def from_keys(cls: type[R], keys: Mapping[str, Any], d_model: int, span: Span) -> R:
        return cls(**keys)

    @property
    def headline(self) -> str:
        return self.description

    def widths(self, run: Any = None) -> Widths:
        """Return zero widths: there is no attention kernel."""
        return Widths(0, 0, 0, 0)

    def saved_tensors(self, forward: Forward) -> tuple[SavedTensor, ...]:
        raise no_saved_tensors(self.headline)

    def notes(self, past: bool) -> tuple[str, ...]:
        return (
            f"{self.label}: FLOPs are those of the recurrent form, token by token. A chunked "
            "form does more.",
        )

    def with_span(self: R, span: Span) -> R:
        return self

    def shard(self: R, tp: int) -> R:
        whole = {name: getattr(self, name) for name, _ in self.splits}
        parts = {
            name: split_evenly(whole[name], tp, noun)
            for name, noun in self.splits
            if whole[name] is not None
        }
        # each kind is a dataclass
        return dataclasses.replace(self, **parts)  # type: ignore[type-var]

    def facts(self) -> dict[str, Any]:
        return {"kind": self.label, **plain_fields(self)}


def projection(name: str, rows: int, cols: int, bias: bool = False) -> Matrix:
    """Return a matrix that multiplies every token."""
    return Matrix(name, rows, cols, cols if bias else 0, "queries")


def convolution(channels: int, d_conv: int, bias: bool) -> Matrix:
    """Return the weights of a depthwise causal convolution: d_conv per channel.

    It is no matrix product, so its FLOPs are not counted, like those of norms and activations.
    """
    return Matrix("conv", channels, d_conv, channels if bias else 0)


def convolution_and_state(
    channels: int, d_conv: int, rows: int, width: int, requested_dtype: str | None
) -> tuple[CacheSpec, ...]:
    """Return the cache of a layer with a short convolution: its last tokens, and a state of `rows`
    x `width` in fp32.

    `requested_dtype` is that of the state, if the model's config requests one of serving engines.
    """
    return (
        CacheSpec("convolution", channels, d_conv, per="sequence", role="convolution", spare=1),
        CacheSpec(
            "state",
            rows,
            width,
            per="sequence",
            dtype="fp32",
            role="state",
            requested_dtype=requested_dtype,
        ),
    )


def split_evenly(number: int, tp: int, noun: str) -> int:
    """Return how many of `number` heads or channels one of `tp` devices has, as `tp_share` does."""
    return tp_share(number, tp, f"{number} {noun} of a recurrent layer")


@dataclass(frozen=True)
class NoAttention(Recurrent):
    """No attention: a layer that is only an MLP (Nemotron-H)."""

    name = "none"
    description = "layers without attention"
    source = "a layer without attention"

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        return ()

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        return 0

    def cache(self) -> tuple[CacheSpec, ...]:
        return ()

    def saved_tensors(self, forward: Forward) -> tuple[SavedTensor, ...]:
        return ()

    def notes(self, past: bool) -> tuple[str, ...]:
        return ()
