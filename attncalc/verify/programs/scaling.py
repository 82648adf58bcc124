"""Time and peak memory of each layer over doubling contexts, to see what grows linearly and what
quadratically.
"""

import torch

from ...attention.recurrent import Recurrent
from ...check import Check, ScalingRow, VerifyResult
from ...model import ModelSpec
from ..cases import Case, cases
from ..checks.memory import peak_checks, predicted_activations
from ..devices import Device
from ..errors import CannotRunError
from ..extra_kernels import cost_kernel, is_compiled
from ..kernels import only
from ..passes import passes
from ..plan import Plan, make_plan
from ..progress import Progress
from ..real_layer import RealLayer
from ..request import VerifyRequest
from ..time_plan import doubling_contexts, is_scaled, plan_within_limit
from ..timing import exact_flop, typical


def verify_scaling(
    model: ModelSpec, request: VerifyRequest, device: Device, on_progress: Progress
) -> VerifyResult:
    """Run every distinct attention layer at doubling contexts; the peaks are checked, the times are
    only shown.

    Raises CannotCheckError if there is not enough memory, or no kernel that runs.
    """
    checks: list[Check] = []
    rows: list[ScalingRow] = []
    notes: list[str] = []
    order = {kernel: i for i, kernel in enumerate(request.kernels)}

    def so_far() -> VerifyResult:
        return VerifyResult(
            tuple(checks),
            scaling=tuple(sorted(rows, key=lambda row: (row.of, order[row.kernel], row.context))),
            skipped=(*longest.skipped, *notes),
            context=longest.request.context,
            limits=longest.shortened,
            simulated=not device.has_values,
        )

    with device.session(request.seed) as random:
        longest, steps = plan_within_limit(model, request, device)
        on_progress.expect(steps)
        contexts = doubling_contexts(longest.request.context)
        plans = [make_plan(model, request._replace(context=n), device) for n in contexts]
        for case in cases(model):
            if isinstance(case.kind, Recurrent):
                notes.append(f"{case.name}: {case.kind.label} runs no attention kernel to measure.")
                continue
            if not is_scaled(case):
                continue  # the encoder's tokens are the source, whose length does not change
            for plan in plans:
                on_progress(f"{model.name}, {case.name}, {plan.request.context:,} tokens")
                measured, refused = _measure(model, case, plan, device, random)
                for row, check in measured:
                    rows.append(row)
                    checks += [check] if check else []
                    on_progress.keep(so_far())
                notes += [
                    f"{case.name}, {plan.request.context:,} tokens: {reason}." for reason in refused
                ]
                device.empty_cache()
    return so_far()


def _measure(
    model: ModelSpec, case: Case, plan: Plan, device: Device, random: torch.Generator | None
) -> tuple[list[tuple[ScalingRow, Check | None]], list[str]]:
    """Return, per kernel, the time and peak of a prefill at one context, and the check of the peak;
    and refusals.
    """
    layer = RealLayer(case, plan.request, device.torch, random)
    context = plan.request.context
    predicted = predicted_activations(model, plan, device.machine)
    measured: list[tuple[ScalingRow, Check | None]] = []
    refused: list[str] = []
    for layer_pass in passes(layer, plan):
        if layer_pass.phase == "decode":
            continue
        kernel = layer_pass.kernel
        ms = None
        try:
            if device.has_values:
                layer_pass.run()
                with only(kernel):
                    ms = typical(device, layer_pass.run) * 1e3
        except CannotRunError as error:
            refused.append(str(error))
            continue
        activation = predicted[case.cost_name, "prefill"]
        check = None
        peak = None
        if device.measures_memory and not is_compiled(kernel):
            label = f"{kernel}, {context:,}"
            found = peak_checks(
                f"prefill_{context}", label, kernel, activation, device.peak(layer_pass.run)
            )
            check = found.checks[0]._replace(of=case.name)
            peak = found.peak
        if check:
            predicted_peak = int(check.predicted)
        else:
            predicted_peak = activation.peaks[cost_kernel(kernel)].size
        flop = exact_flop(layer_pass, layer)
        measured.append(
            (ScalingRow(case.name, kernel, context, ms, flop, peak, predicted_peak), check)
        )
    return measured, refused
