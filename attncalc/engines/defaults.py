"""What an engine does where nobody has said: its share of a GPU, tokens of a pass, dtypes, how it splits a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from ..units import GIB
from .base import EngineArgs
from .pipeline import stage_sizes


class Limits(NamedTuple):
    """Tokens of one forward pass, and sequences whose logits it makes at once."""

    tokens: int
    sequences: int


def all_of_it(args: EngineArgs, devices: int) -> str:
    """The share of an engine that takes all there is."""
    return "1"


def by_memory(memory: int | None, steps: tuple[tuple[int, int], ...], most: int) -> int:
    """The value of the first step, in GiB, that `memory` is below."""
    return next((value for gib, value in steps if memory is not None and memory < gib * GIB), most)


class EngineDefaults(NamedTuple):
    """One engine's.

    title: as people write it. limits: of one forward pass. share:
    what it takes of a GPU's memory, as a decimal, with so many devices that hold the model once; share_option:
    what it calls that. keeps_back: what is left free of it beside weights and cache: the tensors of a pass and
    a constant, the constant alone, or nothing. cache_dtype: of its cache, whatever the model's. narrower,
    narrower_weights: dtypes for less memory of cache and weights, the widest first. most_slots: how many
    sequences it can be started for, where each has a slot. spreads: each GPU has whole layers of its own.
    stage_sizes: layers of each pipeline stage, of so many layers over so many stages. must_fit_one: it does not
    start where one request of the whole context does not fit. whole_prompts: a forward pass takes all tokens of
    all its sequences at once, and has no limits of its own.
    """

    title: str
    limits: Callable[[EngineArgs], Limits]
    share: Callable[[EngineArgs, int], str] = all_of_it
    share_option: str = "--gpu-memory-utilization"
    keeps_back: Literal["tensors", "constant", "nothing"] = "tensors"
    cache_dtype: str | None = None
    narrower: tuple[str, ...] = ("fp8",)
    narrower_weights: tuple[str, ...] = ("fp8", "int4")
    most_slots: int | None = None
    spreads: bool = False
    stage_sizes: Callable[[int, int], Sequence[int]] = stage_sizes
    must_fit_one: bool = False
    whole_prompts: bool = False
