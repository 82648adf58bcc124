"""What is asked of an engine, and the memory of one GPU down to what is left for the cache."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

from ..engines import engine_defaults
from ..engines.base import EngineArgs
from ..engines.defaults import Limits
from ..hardware import Gpu
from ..model import ModelSpec
from ..quantity import Quantity, ceil_div, named, quantity, symbol
from ..units import dtype
from .reserve import Reserve, Share, reserve, share
from .weights import Weights, weights


@dataclass(frozen=True)
class FitRequest:
    """What is asked of one engine: do `batch` sequences of `context` tokens fit?

    model: whole; args.tp and args.pp split it. Either kv_memory, the bytes for the cache on one
    device that an engine reported, or gpu, of which there are `gpus`. share: of its memory that the engine
    takes; reserve: bytes kept back; weights_dtype, dtype: of the weights, and of the model. None for what the
    engine, or the model, has of its own. kv_default: nobody has said what the cache is in, and
    args.kv_dtype is the model's own.
    """

    model: ModelSpec
    engine: str
    args: EngineArgs
    batch: int
    context: int
    kv_memory: int | None = None
    gpu: Gpu | None = None
    gpus: int = 1
    share: Share | None = None
    reserve: int | None = None
    weights_dtype: str | None = None
    dtype: str | None = None
    kv_default: bool = False

    @property
    def held_in(self) -> str | None:
        """The dtype of the weight matrices: as given, else as released; None for that of the model or its files."""
        if self.weights_dtype is not None or self.dtype is not None or self.model.stored is not None:
            return self.weights_dtype
        return self.model.weights_dtype or self.model.experts_dtype

    @property
    def devices(self) -> int:
        """GPUs that hold the model once."""
        return self.args.tp * self.args.pp

    @property
    def spread(self) -> bool:
        """Whether each GPU has whole layers of its own."""
        return engine_defaults(self.engine).spreads and self.gpu is not None

    def of(self, engine: str) -> FitRequest:
        """The same question to an engine, with the cache's dtype that it takes where nobody has said.

        Another engine than it was requested splits the model over the GPUs in its own way.
        """
        request, args = dataclasses.replace(self, engine=engine), self.args
        taken = engine_defaults(engine).cache_dtype
        if taken and self.kv_default:
            args = dataclasses.replace(args, kv_dtype=dtype(taken))
        if request.spread and engine != self.engine:
            args = dataclasses.replace(args, tp=1, pp=1, dcp=1)
        return dataclasses.replace(request, args=args)

    @property
    def limits(self) -> Limits | None:
        """How much one forward pass takes at once on that GPU; None without one."""
        if self.gpu is None:
            return None
        its = engine_defaults(self.engine)
        if its.whole_prompts:
            return Limits(self.batch * self.context, self.batch)
        return its.limits(self.told())

    def told(self) -> EngineArgs:
        """The settings, with the model and the GPU that the engine finds."""
        kinds = [kind for _, layers in self.model.groups() for kind in layers.attentions]
        told = dataclasses.replace(
            self.args,
            model_type=self.model.model_type,
            attentions=frozenset(kind.label for kind in kinds),
            n_kv_heads=int(self.model.main.leading.widths().n_kv_heads) or None,
        )
        if self.gpu is None:
            return told
        gpus = self.gpus if self.spread else 1
        return dataclasses.replace(told, device_memory=self.gpu.memory, device=self.gpu.title, gpus=gpus)

    def started(self) -> EngineArgs:
        """As `told`, with a slot for each sequence, where the engine has slots and nobody has said how many."""
        told, most = self.told(), engine_defaults(self.engine).most_slots
        if most is None or told.sequences:
            return told
        return dataclasses.replace(told, sequences=min(self.batch, most))


class MemoryBudget(NamedTuple):
    """The memory of one GPU down to what is left for the cache; only kv_memory where that was given.

    short: bytes by which weights and reserve are more than the engine takes. layers: of the model, on that
    GPU, where not all are.
    """

    kv_memory: Quantity
    memory: Quantity | None = None
    share: Share | None = None
    usable: Quantity | None = None
    weights: Weights | None = None
    reserve: Reserve | None = None
    short: int = 0
    layers: int | None = None

    @property
    def room(self) -> int:
        """Bytes for the cache, below 0 where weights and reserve are too large."""
        return int(self.kv_memory) - self.short


def kept_back(request: FitRequest, model: ModelSpec) -> Reserve:
    """The bytes kept back on a GPU that has that model, or part of one. AttncalcError: as `reserve`."""
    if request.reserve is not None or request.limits is None:
        return Reserve(symbol("reserve", request.reserve or 0, "bytes kept back, as given"), (), "")
    return reserve(model, request.engine, request.limits, request.args.pp, in_dtype=request.dtype)


def memory_budget(request: FitRequest, model: ModelSpec, part: ModelSpec | None = None) -> MemoryBudget:
    """The budget of one of the model's devices. part: what is on that GPU, where not all layers are.

    AttncalcError: as `weights` and `reserve`.
    """
    if request.gpu is None:
        return MemoryBudget(symbol("kv_memory", request.kv_memory or 0, "bytes for the cache on one device"))
    memory = symbol("memory", request.gpu.memory, f"bytes of one {request.gpu.title} that software sees")
    taken = share(request.engine, request.told(), request.devices)
    if request.share:
        taken = request.share._replace(option=taken.option)
    usable = quantity(
        memory if taken.numerator == taken.denominator else ceil_div(memory * taken.numerator, taken.denominator)
    )
    held = weights(model, pp=request.args.pp, part=part, in_dtype=request.dtype, weights_dtype=request.held_in)
    back = kept_back(request, part or model)
    gone = int(held.total) + int(back.total)
    left = named(usable, "usable", "bytes that the engine takes") - named(held.total, "weights", "bytes of the weights")
    left = left - named(back.total, "reserve", "bytes kept back for activations, graphs and the driver")
    short = max(0, gone - int(usable))
    layers = part.main.n_layers if part else None
    return MemoryBudget(Quantity(0) if short else left, memory, taken, usable, held, back, short, layers)
