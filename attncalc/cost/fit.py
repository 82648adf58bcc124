"""What fits: what an engine makes of the memory that is left for the cache, and how far that goes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from ..engines import habits, layout
from ..engines.layouts import Layout, Pool
from ..errors import AttncalcError
from ..model import ModelSpec
from ..quantity import Quantity, least, most, named, quantity, symbol
from ..search import first
from .cache import kept
from .ledger import Ledger, Question, kept_back, ledger_of
from .weights import spread, staged

__all__ = ["Fit", "Ledger", "Question", "fit", "holds", "min_gpus", "on_gpus", "possible", "splits"]

FAR = 2**50
"""Sequences, or tokens of a sequence, beyond which a cache is said to have no limit."""


class Fit(NamedTuple):
    """The answer to a Question, on one device: of several that differ, the one with room for the fewest sequences.

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


class _Device(NamedTuple):
    """A GPU, or a memory that an engine reported, and what the engine makes of it.

    model: what the GPU has of it. name: of a GPU, or a pipeline stage, with layers of its own.
    """

    asked: Question
    model: ModelSpec
    ledger: Ledger
    plain: Layout
    name: str = ""

    def slack(self, batch: int, context: int) -> int:
        """Bytes that are left with so many sequences; below 0 for those that lack."""
        return self.ledger.room - self._more(batch, context) - self.plain.needed(batch, context)

    def memory(self, batch: int, context: int, shown: _Device) -> Quantity:
        """Bytes for the cache with so many sequences; of another device than the one shown under its name."""
        name, meaning = "kv_memory", "bytes for the cache"
        if self.name != shown.name:
            name, meaning = f"kv_memory_{self.name}", f"bytes for the cache on {self.name.replace('_', ' ')}"
        more = self._more(batch, context)
        if more:
            name, meaning = f"{name}_then", f"{meaning}, less what these take in a pass"
        return named(max(0, self.ledger.room - more), name, meaning)

    def _more(self, batch: int, context: int) -> int:
        """Bytes that a pass over so many sequences takes beyond those asked about, where it takes all at once."""
        held = self.ledger.reserve
        if held is None or not habits(self.asked.engine).whole_prompts:
            return 0
        then = dataclasses.replace(self.asked, batch=batch, context=context)
        return int(kept_back(then, self.model).total) - int(held.total)


def fit(asked: Question) -> Fit:
    """What fits. AttncalcError: the engine has no layout for the model, or a setting cannot be."""
    model = asked.model.shard(asked.settings.tp)
    devices = _devices(asked, model)
    whole = layout(asked.engine, kept(model.symbolic(gathered=False)), asked.started())
    shown = _each(whole, len(devices))
    pools = [
        each.pool(int(device.ledger.kv_memory), asked.context) for device, each in zip(devices, shown, strict=True)
    ]

    def room(i: int) -> tuple[bool, Fraction, int]:
        slack = devices[i].slack(asked.batch, asked.context)
        return slack >= 0, _times(pools[i]), slack

    tightest = min(range(len(devices)), key=room)
    pool = pools[tightest]
    fewest = min(range(len(pools)), key=lambda i: int(pools[i].tokens))
    if pools[fewest].tokens < pool.tokens:
        name = devices[fewest].name
        tokens = named(pools[fewest].tokens, f"kv_tokens_{name}", f"tokens on {name.replace('_', ' ')}, the fewest")
        pool = pool._replace(tokens=tokens)
    limiting = devices[tightest]
    batch, context = symbol("B", asked.batch, "sequences"), symbol("T", asked.context, "tokens of each")
    return Fit(
        asked=asked,
        ledger=limiting.ledger,
        layout=shown[tightest],
        pool=pool,
        needed=quantity(shown[tightest].needed(batch, context)),
        fits=_hold(devices, asked.batch, asked.context),
        max_context=_longest(devices, limiting, asked.batch),
        max_batch=_sequences(devices, limiting, asked.context),
    )


def holds(asked: Question) -> bool:
    """Whether it fits: the verdict alone. AttncalcError: as `fit`."""
    return _hold(_devices(asked, asked.model.shard(asked.settings.tp)), asked.batch, asked.context)


def _devices(asked: Question, model: ModelSpec) -> list[_Device]:
    """The devices that differ: one for all, but where each GPU, or pipeline stage, has layers of its own."""
    whole = layout(asked.engine, kept(model.plain()), asked.told())
    if asked.gpu is None or not (asked.spread or asked.settings.pp > 1):
        return [_Device(asked, model, ledger_of(asked, model), whole)]
    if asked.spread:
        of, parts = "gpu", spread(model, asked.gpus)
    else:
        of, parts = "stage", staged(model, asked.settings.pp, habits(asked.engine).stage_sizes)
    ledgers: dict[ModelSpec, Ledger] = {}
    for part in parts:
        if part not in ledgers:
            ledgers[part] = ledger_of(asked, model, part)
    return [
        _Device(asked, part, ledgers[part], mine, f"{of}_{i}")
        for i, (part, mine) in enumerate(zip(parts, _each(whole, len(parts)), strict=True), start=1)
    ]


def _each(whole: Layout, devices: int) -> Sequence[Layout]:
    """The layout of each device. Where one stands for all, each has what the fullest needs."""
    return whole.parts if devices > 1 and whole.parts else (whole,) * devices


def _hold(devices: Sequence[_Device], batch: int, context: int) -> bool:
    """Whether all devices have room for the sequences, and the engine runs so many."""
    most = devices[0].plain.most
    return (most is None or batch <= most) and all(each.slack(batch, context) >= 0 for each in devices)


def _times(pool: Pool) -> Fraction:
    """How many sequences at once, for comparison."""
    return Fraction(pool.concurrency.numerator, pool.concurrency.denominator)


def min_gpus(asked: Question) -> Quantity | None:
    """The fewest GPUs of this kind that hold the model and the batch, by tensor parallelism at the pp asked for.

    None where no number that divides the model does, and without a GPU.
    """
    for more in on_gpus(asked):
        if possible(more):
            tightest = min(
                _devices(more, asked.model.shard(more.settings.tp)), key=lambda d: d.slack(asked.batch, asked.context)
            )
            have = named(tightest.ledger.kv_memory, "kv_memory_at", "bytes for the cache with so many")
            need = named(
                tightest.plain.needed(asked.batch, asked.context), "needed_at", "bytes that the batch needs then"
            )
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


def possible(asked: Question) -> bool:
    """`holds`, where what cannot be does not hold."""
    try:
        return holds(asked)
    except AttncalcError:
        return False


def _longest(devices: Sequence[_Device], shown: _Device, batch: int) -> Quantity | None:
    """The longest context of so many sequences."""
    found = _most(lambda tokens: _hold(devices, batch, tokens))
    if not found:
        return None if found is None else Quantity(0)
    limit = min(devices, key=lambda each: (each.slack(batch, found + 1), each is not shown))
    need = named(limit.plain.needed(batch, found), "needed", "bytes that these need")
    return most("T", found, "tokens of each sequence", need, limit.memory(batch, found, shown))


def _sequences(devices: Sequence[_Device], shown: _Device, context: int) -> Quantity | None:
    """The most sequences of that context, which may be all that the engine runs."""
    found = _most(lambda batch: _hold(devices, batch, context))
    if not found:
        return None if found is None else Quantity(0)
    if found == devices[0].plain.most:
        return symbol("most_at_once", found, "sequences that the engine runs at once")
    limit = min(devices, key=lambda each: (each.slack(found + 1, context), each is not shown))
    need = named(limit.plain.needed(found, context), "needed", "bytes that these need")
    return most("B", found, "sequences", need, limit.memory(found, context, shown))


def _most(fits: Callable[[int], bool]) -> int | None:
    """The most for which `fits` holds, which it does up to some number; 0 for none, None beyond FAR."""
    if not fits(1):
        return 0
    high = 2
    while fits(high):
        high *= 2
        if high > FAR:
            return None
    return first(lambda n: not fits(n), high // 2, high) - 1
