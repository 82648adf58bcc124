"""What recurrent kinds share: a state in place of a cache that scales_with, and one token after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from ..errors import AttncalcError
from ..quantity import Quantity, exact_div
from ..workload import Mask, Run
from .kind import CacheSpec, Matrix, Widths
from .span import FULL, Span

R = TypeVar("R", bound="Recurrent")


class Recurrent:
    """A layer that keeps a state of one size, however long the context.

    Its score FLOPs are those of the recurrent form, token by token: the update of the state and its
    read-out. A chunked, parallel form does more; what is computed by element is not counted, as elsewhere.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    span = FULL

    @property
    def label(self) -> str:
        return self.name

    @property
    def tag(self) -> str:
        return self.name

    @classmethod
    def required(cls) -> tuple[str, ...]:
        """The keys a preset must give."""
        raise NotImplementedError

    @classmethod
    def from_keys(cls: type[R], given: Mapping[str, Any], d_model: int, span: Span) -> R:
        """From the keys of a preset."""
        return cls(**given)

    @property
    def headline(self) -> str:
        return self.description

    def widths(self, run: Any = None) -> Widths:
        """There is no attention kernel, and so no heads of keys."""
        return Widths(0, 0, 0, 0)

    def notes(self, past: bool) -> tuple[str, ...]:
        return (f"{self.label}: FLOPs of the recurrent form, token by token; a chunked form does more.",)

    def with_span(self: R, span: Span) -> R:
        return self

    def facts(self) -> dict[str, Any]:
        fields = {name: value for name, value in vars(self).items() if name != "span"}
        return {"kind": self.label, **{n: int(v) if isinstance(v, Quantity) else v for n, v in fields.items()}}


def projection(name: str, rows: int, cols: int, bias: bool = False) -> Matrix:
    """A matrix that every token is multiplied by."""
    return Matrix(name, rows, cols, cols if bias else 0, "queries")


def convolution(channels: int, d_conv: int, bias: bool) -> Matrix:
    """A depthwise causal convolution: d_conv weights a channel. It mixes no channels, and so is no matrix
    product: its FLOPs are not counted, as those of norms and activations are not.
    """
    return Matrix("conv", channels, d_conv, channels if bias else 0)


def share(whole: int, tp: int, what: str) -> int:
    """What one of `tp` devices holds of `whole`. AttncalcError: it does not divide."""
    if whole % tp:
        raise AttncalcError(
            f"--tp {int(tp)} does not divide {whole} {what} of a recurrent layer",
            "choose a number of devices that does",
        )
    return exact_div(whole, tp)


@dataclass(frozen=True)
class NoAttention(Recurrent):
    """No attention: a layer that is an MLP alone (Nemotron-H)."""

    name = "none"
    description = "layers without attention"
    source = "a layer without attention"

    @classmethod
    def required(cls) -> tuple[str, ...]:
        return ()

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        return ()

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        return 0

    def cache(self) -> tuple[CacheSpec, ...]:
        return ()

    def notes(self, past: bool) -> tuple[str, ...]:
        return ()

    def shard(self, tp: int) -> NoAttention:
        return self
