"""The costs of one model with one set of options, as functions of batch and context."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...cost.activations import activations
from ...cost.cache import kv_cache
from ...cost.flops import flops, prefill_and_decode
from ...cost.intensity import decode_intensity
from ...cost.params import params
from ...model import ModelSpec
from ...quantity import Quantity, Ratio, quantity
from ...show.layers import kv_heads
from ...show.report import Figure
from ...tracing import Compiled
from ...workload import Workload, WorkloadOptions
from ..flops.figures import flops_figures
from ..inputs import read_workload
from ..kv.figures import kv_figures
from ..memory.figures import largest_layer, memory_figures
from ..params.figures import params_figures
from .axes import PASS_AXES
from .columns import COMPARED, KV, MEMORY, PASS, PER_BYTE, STEPS, WEIGHTS

Number = Quantity | Ratio | None
# A context with which options are checked that hold for all cells.
ANY = 10**15


class Costs:
    """The figures of `kv`, `params`, `flops` and `memory` of one tensor-parallel device, for any
    batch and context.
    """

    def __init__(
        self, model: ModelSpec, options: Mapping[str, Any], columns: Sequence[str]
    ) -> None:
        self._model = model
        self._columns = columns
        self._engine = options.get("engine") or "ideal"
        given = {}
        for name in ("source_context", "dtype", "kv_dtype"):
            if options.get(name) not in (None, "auto"):
                given[name] = options[name]
        self._decode = read_workload(model, {"batch": 1, "context": ANY, **given})
        self._sources: list[Callable[[int, int], Mapping[str, Number]]] = []
        for names, compute in self._computations():
            if not names.keys().isdisjoint(columns):
                self._sources.append(compute)
        if any(name.startswith("params_") for name in columns):
            self._sources.append(self._params)
        passes = {name: options[name] for name in PASS_AXES if options.get(name) is not None}
        self._pass = read_workload(
            model, {"batch": 1, "context": ANY, "phase": "prefill", **given, **passes}
        )
        self._past = passes.get("past", 0)
        self.figures: Callable[[int, int], tuple[Any, ...]] = Compiled(self._compute, ("B", "T"))

    def _computations(
        self,
    ) -> list[tuple[Mapping[str, str], Callable[[int, int], Mapping[str, Number]]]]:
        return [
            ({**KV, **WEIGHTS}, self._kv),
            (STEPS, self._steps),
            ({**COMPARED, **PER_BYTE}, self._compared),
            (PASS, self._flops),
            (MEMORY, self._memory),
        ]

    def _compute(self, batch: int, context: int) -> list[Number]:
        figures: dict[str, Number] = {}
        for compute in self._sources:
            figures |= compute(batch, context)
        return [figures.get(name) for name in self._columns]

    def _kv(self, batch: int, context: int) -> dict[str, Number]:
        workload = _at(self._decode, batch, context)
        cache = kv_cache(self._model, workload, engine_name=self._engine)
        return _by_name(kv_figures(self._model, workload, cache))

    def _params(self, batch: int, context: int) -> dict[str, Number]:
        return _by_name(params_figures(self._model, params(self._model)))

    def _steps(self, batch: int, context: int) -> dict[str, Number]:
        workload = _at(self._decode, batch, context)
        return dict(zip(STEPS, prefill_and_decode(self._model, workload), strict=True))

    def _compared(self, batch: int, context: int) -> dict[str, Number]:
        model = self._model
        if model.main.has_cache:
            read = decode_intensity(model, _at(self._decode, batch, context))
        else:
            read = None
        return {
            "n_kv_heads": quantity(kv_heads(model.symbolic().main.leading)),
            "decode_flop_per_byte": read and read.per_byte,
            "decode_flop_per_cache_byte": read and read.per_cache_byte,
        }

    def _flops(self, batch: int, context: int) -> dict[str, Number]:
        workload = _at(self._pass, batch, context, past=self._past)
        return _by_name(flops_figures(self._model, flops(self._model, workload)))

    def _memory(self, batch: int, context: int) -> dict[str, Number]:
        layers = activations(self._model, _at(self._pass, batch, context, past=self._past))
        return _by_name(memory_figures(self._model, largest_layer(self._model, layers)))


def _at(workload: Workload, batch: int, context: int, past: int = 0) -> Workload:
    """Return the workload at another batch and context, with as many tokens in the past."""
    options: WorkloadOptions = {
        "source": workload.source,
        "mask": workload.mask,
        "dtype": workload.dtype,
        "kv_dtype": workload.kv_dtype,
        "recompute": workload.recompute,
    }
    if workload.phase == "prefill":
        return Workload.prefill(batch, context, past=past, **options)
    make = Workload.decode if workload.phase == "decode" else Workload.train
    return make(batch, context, **options)


def _by_name(figures: Sequence[Figure]) -> dict[str, Number]:
    return {figure.name: figure.quantity for figure in figures}
