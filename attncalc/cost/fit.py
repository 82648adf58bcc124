"""What fits: the ledger of one GPU, what an engine makes of the rest, and how far that goes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..engines import layout
from ..engines.layout import Layout, Pool, Settings
from ..errors import AttncalcError
from ..hardware import Gpu
from ..model import ModelSpec
from ..quantity import Quantity, ceil_div, least, most, named, quantity, symbol
from .cache import kept
from .reserve import Limits, Reserve, Share, limits, reserve, share
from .weights import Weights, weights

FAR = 2**50
"""Sequences, or tokens of a sequence, beyond which a cache is said to have no limit."""


@dataclass(frozen=True)
class Question:
    """What is asked of one engine: do `batch` sequences of `context` tokens fit?

    model: whole; settings.tp and settings.pp split it. Either kv_memory, the bytes for the cache on one
    device that an engine reported, or gpu, of which there are `gpus`. share: of its memory that the engine
    takes; reserve: bytes kept back; weights_dtype, dtype: of the weights, and of the model; max_num_seqs:
    of one step. None for what the engine, or the model, has of its own.
    """

    model: ModelSpec
    engine: str
    settings: Settings
    batch: int
    context: int
    kv_memory: int | None = None
    gpu: Gpu | None = None
    gpus: int = 1
    share: Share | None = None
    reserve: int | None = None
    weights_dtype: str | None = None
    dtype: str | None = None
    max_num_seqs: int | None = None

    @property
    def devices(self) -> int:
        """GPUs that hold the model once."""
        return self.settings.tp * self.settings.pp

    @property
    def spread(self) -> bool:
        """Whether layers go to whichever GPU has room, so that all GPUs are one memory: llama.cpp's way."""
        return self.engine == "llamacpp" and self.gpu is not None

    def of(self, engine: str) -> Question:
        """The same question to another engine, which splits the model over the GPUs in its own way."""
        asked = dataclasses.replace(self, engine=engine)
        if not asked.spread:
            return asked
        return dataclasses.replace(asked, settings=dataclasses.replace(self.settings, tp=1, pp=1, dcp=1))

    @property
    def limits(self) -> Limits | None:
        """How much one forward pass takes at once on that GPU; None without one."""
        if self.gpu is None:
            return None
        given = self.settings.max_num_batched_tokens or (self.settings.ubatch if self.engine == "llamacpp" else None)
        return limits(self.engine, self.gpu.memory, self.gpu.title, given, self.max_num_seqs)

    def told(self) -> Settings:
        """The settings, with the GPU that the engine finds."""
        if self.gpu is None:
            return self.settings
        return dataclasses.replace(self.settings, device_memory=self.gpu.memory, device=self.gpu.title)


class Ledger(NamedTuple):
    """The memory of one GPU down to what is left for the cache; only kv_memory where that was given.

    Where all GPUs are one memory (`Question.spread`), of all of them.

    short: bytes by which weights and reserve are more than the engine takes.
    """

    kv_memory: Quantity
    memory: Quantity | None = None
    share: Share | None = None
    usable: Quantity | None = None
    weights: Weights | None = None
    reserve: Reserve | None = None
    short: int = 0


class Fit(NamedTuple):
    """The answer to a Question, on one device.

    needed: bytes for the batch asked about. max_context: the longest for that batch; max_batch: the most
    sequences of that context; None without a limit, 0 where not one fits. Both are the engine's, whatever
    the model was made for.
    """

    asked: Question
    ledger: Ledger
    layout: Layout
    pool: Pool
    needed: Quantity
    fits: bool
    max_context: Quantity | None
    max_batch: Quantity | None


def fit(asked: Question) -> Fit:
    """What fits. AttncalcError: the engine has no layout for the model, or a setting cannot be."""
    model = asked.model.shard(asked.settings.tp)
    settings = asked.told()
    plain = layout(asked.engine, kept(model.plain()), settings)
    shown = layout(asked.engine, kept(model.symbolic(gathered=False)), settings)
    ledger = _ledger(asked, model)
    have = int(ledger.kv_memory)
    memory = named(have, "kv_memory", "bytes for the cache on one device")
    batch, context = symbol("B", asked.batch, "sequences"), symbol("T", asked.context, "tokens of each")
    needed = quantity(shown.needed(batch, context))
    longest = _most(lambda tokens: plain.needed(asked.batch, tokens) <= have)
    sequences = _most(lambda n: plain.needed(n, asked.context) <= have)
    return Fit(
        asked=asked,
        ledger=ledger,
        layout=shown,
        pool=shown.pool(memory, asked.context),
        needed=needed,
        fits=int(needed) <= have,
        max_context=_limit("T", "tokens of each sequence", longest, lambda n: plain.needed(asked.batch, n), memory),
        max_batch=_limit("B", "sequences", sequences, lambda n: plain.needed(n, asked.context), memory),
    )


def holds(asked: Question) -> bool:
    """Whether it fits: the verdict alone. AttncalcError: as `fit`."""
    model = asked.model.shard(asked.settings.tp)
    plain = layout(asked.engine, kept(model.plain()), asked.told())
    return plain.needed(asked.batch, asked.context) <= _ledger(asked, model).kv_memory


def min_gpus(asked: Question) -> Quantity | None:
    """The fewest GPUs of this kind that hold the model and the batch, by tensor parallelism at the pp asked for.

    None where no number that divides the model does, and without a GPU.
    """
    for more in on_gpus(asked):
        if _possible(more):
            model = asked.model.shard(more.settings.tp)
            have = named(_ledger(more, model).kv_memory, "kv_memory_at", "bytes for the cache with so many")
            plain = layout(asked.engine, kept(model.plain()), more.told())
            need = named(plain.needed(asked.batch, asked.context), "needed_at", "bytes that the batch needs then")
            return least("gpus", more.gpus, "GPUs", have, need, ">=")
    return None


def on_gpus(asked: Question) -> Iterator[Question]:
    """The same question on one copy's GPUs, the fewest first; nothing without a GPU."""
    if asked.spread:
        yield from (dataclasses.replace(asked, gpus=n) for n in range(1, asked.model.main.n_layers + 1))
    elif asked.gpu:
        for tp in splits(asked.model):
            settings = dataclasses.replace(asked.settings, tp=tp)
            yield dataclasses.replace(asked, settings=settings, gpus=tp * settings.pp)


def splits(model: ModelSpec) -> Iterator[int]:
    """Tensor-parallel sizes that its heads allow, the least first; powers of two for a model without heads."""
    heads = [int(kind.widths().n_heads) for _, layers in model.groups() for kind in layers.attentions]
    most_heads = max(heads)
    for tp in range(1, (most_heads or 64) + 1):
        if most_heads % tp == 0 if most_heads else tp & (tp - 1) == 0:
            try:
                model.shard(tp)
            except AttncalcError:  # something else of it does not divide
                continue
            yield tp


def _possible(asked: Question) -> bool:
    """`holds`, where what cannot be does not hold."""
    try:
        return holds(asked)
    except AttncalcError:
        return False


def _ledger(asked: Question, model: ModelSpec) -> Ledger:
    if asked.gpu is None or asked.limits is None:
        return Ledger(symbol("kv_memory", asked.kv_memory or 0, "bytes for the cache on one device"))
    memory: int = symbol("memory", asked.gpu.memory, f"bytes of one {asked.gpu.title} that software sees")
    together = asked.gpus if asked.spread else 1
    if together > 1:
        memory = memory * symbol("gpus", together, "GPUs that hold the model's layers together")
    taken = share(asked.engine, asked.settings.engine_version, asked.gpu.memory, asked.devices)
    if asked.share:
        taken = asked.share._replace(option=taken.option)
    usable = quantity(
        memory if taken.numerator == taken.denominator else ceil_div(memory * taken.numerator, taken.denominator)
    )
    held = weights(model, pp=asked.settings.pp, in_dtype=asked.dtype, weights_dtype=asked.weights_dtype)
    back = reserve(model, asked.engine, asked.limits, asked.settings.pp, together, in_dtype=asked.dtype)
    if asked.reserve is not None:
        back = Reserve(symbol("reserve", asked.reserve, "bytes kept back, as given"), (), "")
    gone = int(held.total) + int(back.total)
    left = named(usable, "usable", "bytes that the engine takes") - named(held.total, "weights", "bytes of the weights")
    left = left - named(back.total, "reserve", "bytes kept back for activations, graphs and the driver")
    short = max(0, gone - int(usable))
    return Ledger(Quantity(0) if short else left, quantity(memory), taken, usable, held, back, short)


def _most(fits: Callable[[int], bool]) -> int | None:
    """The most for which `fits` holds, which it does up to some number; 0 for none, None beyond FAR."""
    if not fits(1):
        return 0
    high = 2
    while fits(high):
        high *= 2
        if high > FAR:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _limit(
    name: str, meaning: str, found: int | None, needed: Callable[[int], int], memory: Quantity
) -> Quantity | None:
    if not found:
        return None if found is None else Quantity(0)
    return most(name, found, meaning, named(needed(found), "needed", "bytes that these need"), memory)
