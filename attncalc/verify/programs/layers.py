"""Verify each distinct attention layer of a model, one after another."""

from collections.abc import Callable, Iterable
from functools import partial

import torch

from ...attention import Grouped
from ...attention.recurrent import NoAttention
from ...check import Check, Reported, Timing, VerifyResult
from ...cost.cache import kv_cache
from ...cost.common import group_name
from ...cost.params import params
from ...model import ModelSpec
from ...records import NamedTuple
from ...units import BYTES, PARAMS
from .. import timing
from ..cases import Case, cases
from ..checks import counts, memory
from ..checks.behaviour import behaviour
from ..checks.numerics import Environment, numerics
from ..devices import Device
from ..errors import CannotRunError
from ..extra_kernels import is_compiled
from ..passes import Pass, passes
from ..plan import Plan, check_memory
from ..progress import Progress
from ..real_layer import RealLayer
from ..request import VerifyRequest
from ..time_plan import plan_within_limit


class LayerTotals(NamedTuple):
    """Measured parameters and cache bytes of one layer of a case."""

    case: Case
    params: int
    cache: int


class _Measured:
    """What the layers of a model have shown so far."""

    def __init__(self, plan: Plan, model: ModelSpec, device: Device) -> None:
        self.checks: list[Check] = []
        self.times: list[Timing] = []
        self.reported: list[Reported] = []
        self.totals: list[LayerTotals] = []
        self.skipped = [*plan.skipped]
        for stack, layers in model.groups():
            if isinstance(layers.attention, NoAttention):
                name = group_name(model, stack, layers)
                self.skipped.append(f"{name}: these layers have no attention to check.")
        self._plan = plan
        self._device = device

    def add(self, case: Case, checks: Iterable[Check]) -> None:
        self.checks += (check._replace(of=case.name) for check in checks)

    def result(self) -> VerifyResult:
        limits = list(self._plan.shortened)
        if not self._device.measures_memory:
            limits.append(
                f"Peak memory is not checked: torch does not report it on {self._device.type}."
            )
        return VerifyResult(
            tuple(self.checks),
            tuple(self.times),
            skipped=tuple(self.skipped),
            context=self._plan.request.context,
            limits=tuple(limits),
            reported=tuple(self.reported),
            simulated=not self._device.has_values,
        )


def verify_layers(
    model: ModelSpec, request: VerifyRequest, device: Device, on_progress: Progress
) -> VerifyResult:
    """Build every distinct attention layer of `model` at its true size and check it.

    Raises CannotCheckError if there is not enough memory, or no kernel that runs.
    """
    with device.session(request.seed) as random:
        plan, steps = plan_within_limit(model, request, device)
        on_progress.expect(steps)
        predicted = memory.predicted_activations(model, plan, device.machine)
        is_timed = request.timed and device.has_values
        ceiling = timing.known_ceiling(device, request.torch_dtype) if is_timed else None
        found = _Measured(plan, model, device)
        for case, symbolic in zip(cases(model), cases(model, symbolic=True), strict=True):
            on_progress(f"{model.name}, {case.name}")
            check_memory(plan, case, device)
            layer = RealLayer(case, plan.request, device.torch, random)
            case_checks, layer_totals = _structure(
                layer, symbolic, plan, has_values=device.has_values
            )
            found.totals.append(layer_totals)
            if device.has_values:
                case_checks += counts.visible_pairs(layer, symbolic)
            found.add(case, case_checks)
            on_progress.keep(found.result())
            for layer_pass in passes(layer, plan):
                observe = partial(_observe, layer_pass, layer, symbolic, device, predicted, ceiling)
                observed = _retried(observe, layer_pass.kernel, device)
                if isinstance(observed, str):
                    found.skipped.append(f"{case.name}, {layer_pass.phase}: {observed}.")
                    continue
                case_checks += observed.checks
                found.add(case, observed.checks)
                found.reported += (figure._replace(of=case.name) for figure in observed.reported)
                found.times += observed.times
                on_progress.keep(found.result())
            found.skipped += (*_uncounted_kernels(case_checks, case, plan), *_unchecked(layer))
            is_recurrent = layer.is_recurrent
            del layer, layer_pass, observe  # else the layer would exist until the next one does
            device.empty_cache()
            if device.has_values:
                env = Environment(device, request.kernels, random)
                found.add(case, () if is_recurrent else numerics(case.kind, env))
                found.add(case, behaviour(case, env))
                on_progress.keep(found.result())
        if ceiling:
            again = timing.measure_ceiling(device, request.torch_dtype)
            # a busy device reaches less than it can
            highest = timing.Ceiling(*map(max, ceiling, again))
            found.times = timing.with_bound(found.times, highest)
        found.checks += _model_totals(model, plan, found.totals)
    return found.result()


class _Observed(NamedTuple):
    """What the runs of one pass show."""

    checks: list[Check]
    reported: tuple[Reported, ...]
    times: list[Timing]


def _observe(
    layer_pass: Pass,
    layer: RealLayer,
    symbolic: Case,
    device: Device,
    predicted: memory.PredictedActivations,
    ceiling: timing.Ceiling | None,
) -> _Observed:
    """Count the FLOPs of a pass, then measure its peak memory, then its time."""
    checks: list[Check] = []
    reported: tuple[Reported, ...] = ()
    can_observe = not is_compiled(layer_pass.kernel)
    flops = counts.flops(layer_pass, layer, symbolic) if can_observe else None
    if flops:
        checks.append(flops)
    else:
        layer_pass.run()  # libraries allocate their lasting workspaces in the first run
    if device.measures_memory and can_observe and not layer.is_recurrent:
        peak = memory.peak(layer_pass, layer, device, predicted)
        checks += peak.checks
        reported = peak.reported
    times = []
    if ceiling and not layer.is_recurrent:
        times.append(timing.measure_time(layer_pass, layer, device, ceiling))
    return _Observed(checks, reported, times)


def _retried(observe: Callable[[], _Observed], kernel: str, device: Device) -> _Observed | str:
    """Return what `observe` returns, or why the kernel does not run. If memory runs out, it is
    tried once more.
    """
    for _ in range(2):
        try:
            return observe()
        except CannotRunError as error:
            return str(error)
        except torch.OutOfMemoryError:
            pass  # the exception holds the tensors of its frames until this block ends
        device.empty_cache()
    return f"{kernel} ran out of memory"


def _structure(
    layer: RealLayer, symbolic: Case, plan: Plan, *, has_values: bool
) -> tuple[list[Check], LayerTotals]:
    """Check parameters and cache, and return the layer's totals for the sums over the model."""
    checks = list(counts.parameters(layer, symbolic))
    if layer.case.decodes:
        decoded = counts.decode_some(layer, plan)
        checks += counts.cache_bytes(decoded, layer, symbolic)
        checks += counts.cache_contents(decoded) if has_values else ()
    measured = {
        check.name: int(check.measured)
        for check in checks
        if check.name in ("params_layer", "cache_decode")
    }
    return checks, LayerTotals(
        layer.case, measured["params_layer"], measured.get("cache_decode", 0)
    )


def _uncounted_kernels(checks: list[Check], case: Case, plan: Plan) -> list[str]:
    """Note the kernels whose FLOPs torch's counter could not count."""
    names = {check.name for check in checks}
    uncounted = [k for k in plan.kernels_of(case, "prefill") if f"flops_prefill_{k}" not in names]
    return [
        f"{case.name}: this torch cannot count the FLOPs of {k} with grouped heads."
        for k in uncounted
    ]


def _unchecked(layer: RealLayer) -> list[str]:
    """Note which checks do not apply to this layer, and why."""
    name = layer.case.name
    kind = layer.case.kind
    if layer.is_recurrent:
        notes = [
            f"{name}: {kind.label} is a recurrence, run here token by token; "
            "no attention kernel runs, so scores, masks, peaks and times are not checked."
        ]
        if layer.case.tp > 1:
            notes.append(f"{name}: it has the sizes of one device; its split is not checked.")
        return notes
    if isinstance(kind, Grouped) and kind.shares_kv:
        return [
            f"{name}: K and V are those of an earlier layer (random here); no decode step is run."
        ]
    return []


def _model_totals(model: ModelSpec, plan: Plan, totals: list[LayerTotals]) -> list[Check]:
    """Check the model's attention parameters and its whole cache: measured per layer, times the
    number of layers.
    """
    note = "measured on one layer of each kind, times the number of layers"
    failure = "the formula's sum over the layers differs from the sum of the measured layers"
    attention = params(model).attention
    label = "attention parameters"
    measured = sum(t.case.layers_with_weights * t.params for t in totals)
    checks = [
        Check("model", "params_attention", label, attention, measured, 0, PARAMS, note, failure)
    ]
    if model.main.has_cache:
        cache = kv_cache(model, plan.request.decode()).total
        label = f"KV cache, {plan.request.context:,} tokens"
        measured = sum(t.case.layers * t.cache for t in totals)
        checks.append(Check("model", "kv_cache", label, cache, measured, 0, BYTES, note, failure))
    return checks
