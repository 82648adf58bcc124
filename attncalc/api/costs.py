"""What a model costs, in one call: `kv_cache("llama2-70b", context=4096)`.

Each function takes a model as `load` does, and the options of its command, under the same names and
with the same defaults. Instead of those that describe a workload it takes a `Workload`. The results
are those of `attncalc/cost/`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from ..config import ModelLike
from ..cost import activations as of_activations
from ..cost import cache as of_cache
from ..cost import crossover as of_growth
from ..cost import flops as of_flops
from ..cost import intensity as of_intensity
from ..cost import params as of_params
from ..cost.kernels import Machine
from ..model import ModelSpec
from ..quantity import Quantity
from ..report.compare import compare_models
from ..report.flops import flops_report
from ..report.kv import kv_report
from ..report.memory import memory_report
from ..report.params import params_report
from ..report.report import number, times
from ..units import BYTES, FLOP, GIB, PARAMS, human
from ..workload import Workload
from .arguments import takes
from .inputs import phase_of_flops, read_call, read_model
from .options import (
    ActivationsOptions,
    FlopsOptions,
    IntensityOptions,
    KVCacheOptions,
    ShardedModelOptions,
)
from .results import Result, TotalResult, model_subject, workload_subject

if TYPE_CHECKING:
    from typing_extensions import Unpack


class KVCache(TotalResult, of_cache.KVCache):
    """The KV cache, as `attncalc kv` prints it."""

    @property
    def gib(self) -> float:
        """The total in GiB."""
        return int(self) / GIB

    # it has the module of its engine, which cannot be pickled
    def __reduce__(self) -> tuple[Any, ...]:
        return _kv_cache, self._make_report.args

    def _answer(self) -> str:
        return human(self.total, BYTES)


class Params(TotalResult, of_params.Params):
    """The parameters, as `attncalc params` prints them."""

    def _answer(self) -> str:
        return human(self.total, PARAMS)


class Flops(TotalResult, of_flops.Flops):
    """The FLOPs, as `attncalc flops` prints them."""

    def _answer(self) -> str:
        return human(self.total, FLOP)


class Activations(Result, tuple[of_activations.LayerActivations, ...]):
    """The activation memory of one layer of each kind, as `attncalc memory` prints it."""

    def _answer(self) -> str:
        if not self:
            return "no attention kernel"
        layer = max(self, key=lambda layer: int(layer.score_matrix))
        return (
            f"score matrix {human(layer.score_matrix, BYTES)}, with flash "
            f"{human(layer.peaks['flash'].size, BYTES)}"
        )


class Growth(Result, of_growth.Growth):
    """How FLOPs grow with the context, as `attncalc flops` prints it."""

    FIGURES: ClassVar[tuple[str, ...]] = ("growth_total", "growth_attention_scores")

    def _answer(self) -> str:
        return (
            f"{times(self.total, 2)} in total and {times(self.scores, 2)} of scores for twice the "
            "context"
        )


class Intensity(Result, of_intensity.Intensity):
    """The arithmetic intensity of a decode step, as `attncalc compare` prints it."""

    FIGURES: ClassVar[tuple[str, ...]] = ("decode_flop_per_byte", "decode_flop_per_cache_byte")

    def _answer(self) -> str:
        return f"{number(float(self.per_byte))} FLOP per byte"


@takes(KVCacheOptions)
def kv_cache(
    model: ModelLike | None = None,
    workload: Workload | None = None,
    **options: Unpack[KVCacheOptions],
) -> KVCache:
    """Return the KV cache of a model, in bytes on one device.

    >>> kv_cache("llama2-70b", context=4096)
    KVCache(llama2-70b, batch 1, context 4,096: 1.25 GiB)

    It takes the options of `attncalc kv`, or a Workload. Raises AttncalcError if one is not valid.
    """
    engine = options.pop("engine", None) or "ideal"
    spec, size = read_call(model, workload, options)
    return _kv_cache(spec, size, engine)


def _kv_cache(model: ModelSpec, workload: Workload, engine: str) -> KVCache:
    cache = KVCache.__new__(KVCache)
    vars(cache).update(vars(of_cache.kv_cache(model, workload, engine_name=engine)))
    stored = f" as {engine} stores it" if engine != "ideal" else ""
    subject = f"{model_subject(model)}, {workload_subject(workload)}{stored}"
    return cache.knowing(subject, partial(kv_report, model, workload, engine))


@takes(ShardedModelOptions)
def params(model: ModelLike | None = None, **options: Unpack[ShardedModelOptions]) -> Params:
    """Return the parameters of a model on one device.

    >>> params("gpt2")
    Params(gpt2: 124.44 million)

    The options are those of `attncalc params`.

    Raises AttncalcError if the model or an option is not valid.
    """
    spec = read_model(model, options)
    return Params(*of_params.params(spec)).knowing(
        model_subject(spec), partial(params_report, spec)
    )


def _pass_subject(model: ModelSpec, workload: Workload) -> str:
    return f"{model_subject(model)}, {workload.phase}, {workload_subject(workload)}"


@takes(FlopsOptions)
def flops(
    model: ModelLike | None = None,
    workload: Workload | None = None,
    **options: Unpack[FlopsOptions],
) -> Flops:
    """Return the FLOPs of a prefill, a decode step or a training step on one device; by default of
    a prefill, and with recompute of a training step.

    >>> flops("llama2-70b", phase="decode", batch=8, context=4096)
    Flops(llama2-70b, decode, batch 8, context 4,096: 1.19 TFLOP)

    It takes the options of `attncalc flops`, or a Workload. Raises AttncalcError if one is not
    valid.
    """
    spec, size = read_call(model, workload, options, phase=phase_of_flops(options))
    return Flops(*of_flops.flops(spec, size)).knowing(
        _pass_subject(spec, size), partial(flops_report, spec, size)
    )


@takes(ActivationsOptions)
def activations(
    model: ModelLike | None = None,
    workload: Workload | None = None,
    machine: Machine | None = None,
    **options: Unpack[ActivationsOptions],
) -> Activations:
    """Return the activation memory of one attention layer of each kind, on one device; by default
    in a prefill.

    >>> activations("gpt2", context=8192)
    Activations(gpt2, prefill, batch 1, context 8,192: score matrix 3.00 GiB, with flash 120 MiB)

    It takes the options of `attncalc memory`, or a Workload. With a machine, the buffers of its
    kernels are counted too. Raises AttncalcError if one is not valid.
    """
    spec, size = read_call(model, workload, options, phase="prefill")
    layers = Activations(of_activations.activations(spec, size, machine))
    return layers.knowing(_pass_subject(spec, size), partial(memory_report, spec, size))


@takes(FlopsOptions)
def growth(
    model: ModelLike | None = None,
    workload: Workload | None = None,
    **options: Unpack[FlopsOptions],
) -> Growth:
    """Return how much all FLOPs and the exact scores grow when the context doubles; by default of a
    prefill.

    It takes the options of `attncalc flops`, or a Workload. Raises AttncalcError if one is not
    valid.
    """
    spec, size = read_call(model, workload, options, phase="prefill")
    return Growth(*of_growth.growth(spec, size)).knowing(
        _pass_subject(spec, size), partial(flops_report, spec, size)
    )


@takes(FlopsOptions)
def crossover(
    model: ModelLike | None = None,
    workload: Workload | None = None,
    **options: Unpack[FlopsOptions],
) -> Quantity | None:
    """Return the shortest context at which exact scores cost more than attention's projections;
    None if they never do.

    >>> crossover("llama2-70b")
    18432

    It takes the options of `attncalc flops`, or a Workload. Raises AttncalcError if one is not
    valid.
    """
    spec, size = read_call(model, workload, options, phase="prefill")
    return of_growth.crossover(spec, size)


@takes(IntensityOptions)
def decode_intensity(
    model: ModelLike | None = None,
    workload: Workload | None = None,
    **options: Unpack[IntensityOptions],
) -> Intensity:
    """Return the FLOP per byte of a decode step, which reads weights and cache once.

    >>> decode_intensity("llama2-70b", batch=8, context=4096)
    Intensity(llama2-70b, batch 8, context 4,096: 8 FLOP per byte)

    It takes the options of `attncalc compare` of a decode step, or a Workload. Raises AttncalcError
    if one is not valid.
    """
    spec, size = read_call(model, workload, options)
    found = of_intensity.decode_intensity(spec, size)
    subject = f"{model_subject(spec)}, {workload_subject(size)}"
    return Intensity(*found).knowing(subject, partial(compare_models, (spec,), (size,)))
