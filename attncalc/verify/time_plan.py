"""The time that a verification will take, predicted from the device's own matmul and copy before
anything is run.
"""

import time
from collections.abc import Mapping

from ..attention import FULL
from ..attention.recurrent import Recurrent
from ..cost.activations import activations
from ..errors import CannotCheckError
from ..model import ModelSpec
from ..units import count, duration
from ..workload import Run
from .cases import Case, cases
from .checks.counts import MAX_COUNTED_TOKENS, projection_flops
from .devices import Device
from .extra_kernels import cost_kernel, is_compiled
from .layers import layer_class
from .passes import UNUSED_KERNEL
from .plan import CasePhase, Plan, make_plan
from .real_layer import RealLayer
from .request import DECODE_STEPS, MIN_CONTEXT, VerifyRequest
from .timing import MAX_RUNS, MAX_SECONDS, Ceiling, known_ceiling

# How much longer a pass takes than its FLOP and bytes at the device's own rates.
#
# On a CPU with 2 threads, shared with other programs, seven runs of 4 to 8,192 tokens took 0.2 to
# 1.9 times the prediction with this factor, most of them about half. No GPU was measured: fused
# kernels reach a third to two thirds of the matmul rate.
SLOWDOWN = {"cpu": 1.5, "cuda": 3.0, "xpu": 3.0, "mps": 3.0}
# Seconds per layer for what does not depend on the context: the checks of kernels and of a small
# layer.
FIXED_SECONDS = {"cpu": 0.7, "cuda": 2.0, "xpu": 2.0, "mps": 2.0}
# Seconds to compile a kernel for one shape. Not measured.
COMPILE_SECONDS = 15
# Normally distributed numbers that the device draws per second. A CPU uses one core for it.
RANDOM_PER_SECOND = {"cpu": 150e6, "cuda": 20e9, "xpu": 10e9, "mps": 5e9}
# Seconds of one step of a recurrence, which is some twenty small operators.
SECONDS_PER_STEP = {"cpu": 0.5e-3, "cuda": 1e-3, "xpu": 1e-3, "mps": 1e-3}
# Tokens of a recurrent layer that are run to see how long a simulated device takes: it computes
# shapes in Python.
SAMPLE_TOKENS = 16
# Prefills that take as long as all checks of a simulated recurrent layer. Of ten kinds, nine took
# 1.8 to 2.3.
SIMULATED_PREFILLS = 3
# How many times slower a step is under torch's FLOP counter, which is written in Python.
COUNTED_STEP = 6
# Bytes moved per query-key pair to make a mask: two comparisons of 8-byte positions, and their
# results.
BYTES_PER_PAIR = 40
# How often a pass reads or writes a tensor that it holds at its peak.
TOUCHES = 6
# How often --scaling doubles the context.
DOUBLINGS = 3
# Runs of each pass besides the timed ones: the FLOP counter's, and that of the peak.
RUNS = 2

Kernels = Mapping[CasePhase, tuple[str, ...]]


def predicted_steps(
    model: ModelSpec,
    request: VerifyRequest,
    device: Device,
    ceiling: Ceiling | None = None,
    kernels: Kernels | None = None,
) -> list[float]:
    """Return the seconds that each step of the program is expected to take: each layer, or each
    context.

    On a simulated device only the steps of a recurrence take time: it computes shapes, but one
    token after the other. They are measured on a few tokens, in a session. Raises CannotCheckError
    if there is no such layer.

    Args:
        ceiling: the device's rates in the request's dtype; by default they are measured once.
        kernels: the kernels by case and phase; without, every kernel of the request runs in every
            phase.
    """
    ceiling = ceiling or known_ceiling(device, request.torch_dtype)
    layers = cases(model)
    for case in layers:
        layer_class(case.kind)
    if request.program == "scaling":
        layers = tuple(case for case in layers if is_scaled(case))
        contexts = doubling_contexts(request.context)
        if not device.has_values:
            return [0.0] * len(layers) * len(contexts)  # no recurrent layers are among them
        parts = [
            _Estimate(model, request._replace(context=n), device, ceiling, kernels)
            for n in contexts
        ]
        return [part.of_prefills(case) for case in layers for part in parts]
    if not device.has_values:
        return [
            SIMULATED_PREFILLS * request.context * _simulated_token(case, request, device)
            if isinstance(case.kind, Recurrent)
            else 0.0
            for case in layers
        ]
    estimate = _Estimate(model, request, device, ceiling, kernels)
    return [estimate.of_layer(case) for case in layers]


def _simulated_token(case: Case, request: VerifyRequest, device: Device) -> float:
    """Return the seconds of one token in a prefill of a recurrent layer on a simulated device."""

    def measure() -> float:
        layer = RealLayer(case, request._replace(context=SAMPLE_TOKENS), device.torch, None)
        started = time.perf_counter()
        layer.prefill(SAMPLE_TOKENS, UNUSED_KERNEL)
        return (time.perf_counter() - started) / SAMPLE_TOKENS

    return device.kept(
        ("simulated token", case.kind, case.stack.d_model, request.batch, request.dtype), measure
    )


def doubling_contexts(longest: int) -> tuple[int, ...]:
    """Return the contexts of --scaling: the longest, its half, its quarter and its eighth, in
    rising order.
    """
    contexts = [longest >> i for i in range(DOUBLINGS, -1, -1)]
    return tuple(n for n in contexts if n >= MIN_CONTEXT)


def is_scaled(case: Case) -> bool:
    """Whether --scaling measures this layer: an attention kernel runs, over a number of tokens that
    doubles.
    """
    return not isinstance(case.kind, Recurrent) and case.stack.input != "source"


def plan_within_limit(
    model: ModelSpec, request: VerifyRequest, device: Device
) -> tuple[Plan, list[float]]:
    """Return a plan that fits in memory and in the request's time, and the expected seconds of its
    steps.

    The context is halved until it fits. Raises CannotCheckError if not even MIN_CONTEXT does, or no
    kernel runs.
    """

    def planned(asked: VerifyRequest) -> tuple[Plan, list[float]]:
        plan = make_plan(model, asked, device)
        return plan, predicted_steps(model, plan.request, device, kernels=plan.kernels)

    first, steps = planned(request)
    plan = first
    too_long = sum(steps)
    while request.seconds is not None and sum(steps) > request.seconds:
        if plan.request.context == MIN_CONTEXT:
            raise CannotCheckError(
                f"{model.name}: {MIN_CONTEXT} tokens would take about {duration(sum(steps))} on "
                f"{device.name}, and the limit is {duration(request.seconds)}",
                "give a smaller --batch, or more --minutes",
            )
        plan, steps = planned(
            plan.request._replace(context=max(MIN_CONTEXT, plan.request.context // 2))
        )
    if plan is first:
        return plan, steps
    context = count(first.request.context)
    shorter = count(plan.request.context)
    note = f"Context {context} would take about {duration(too_long)}: shortened to {shorter}."
    return plan._replace(shortened=(*first.shortened, note)), steps


class _Estimate:
    """The expected seconds of the layers of one request."""

    def __init__(
        self,
        model: ModelSpec,
        request: VerifyRequest,
        device: Device,
        ceiling: Ceiling,
        kernels: Kernels | None,
    ) -> None:
        self.request = request
        self.device = device
        self.ceiling = ceiling
        self.kernels = kernels
        self.size = request.torch_dtype.itemsize
        self.peaks: dict[tuple[str, str], dict[str, int]] = {}
        for phase, workload in (("prefill", request.prefill()), ("decode", request.decode())):
            if phase == "decode" and not model.main.has_cache:
                continue
            for layer in activations(model, workload):
                self.peaks[layer.name, phase] = {
                    kernel: moment.size for kernel, moment in layer.peaks.items()
                }

    def of_layer(self, case: Case) -> float:
        """Return the seconds of every check of one layer."""
        seconds = FIXED_SECONDS[self.device.type] + self.of_setup(case)
        # to compare them with the reference
        seconds += COMPILE_SECONDS * sum(map(is_compiled, self.request.kernels))
        if case.decodes:  # the cache is filled by two prefills, and by one with DECODE_STEPS steps
            seconds += 2 * self.of_one_prefill(case)
            seconds += DECODE_STEPS * min(
                self._of_pass(case, "decode", k) for k in self._kernels(case, "decode")
            )
        if isinstance(case.kind, Recurrent):
            return seconds + COUNTED_STEP * self.of_one_prefill(case)
        tokens = min(self._tokens(case), MAX_COUNTED_TOKENS)
        seconds += tokens**2 * BYTES_PER_PAIR / self.ceiling.bytes_per_s
        for phase in ("prefill", "decode") if case.decodes else ("prefill",):
            seconds += sum(
                self._repeated(self._of_pass(case, phase, k), k) for k in self._kernels(case, phase)
            )
        return seconds

    def of_prefills(self, case: Case) -> float:
        """Return the seconds of one context of --scaling."""
        times = (
            self._repeated(self._of_pass(case, "prefill", k), k)
            for k in self._kernels(case, "prefill")
        )
        return self.of_setup(case) + sum(times)

    def of_one_prefill(self, case: Case) -> float:
        """Return the seconds of one prefill with the fastest kernel."""
        return min(
            self._of_pass(case, "prefill", kernel) for kernel in self._kernels(case, "prefill")
        )

    def of_setup(self, case: Case) -> float:
        """Return the seconds to fill weights, tokens and caches with random numbers."""
        weights = self._weights(case) * self.size
        drawn = self._tokens(case) * int(case.stack.d_model)
        if case.decodes and not isinstance(case.kind, Recurrent):
            width = sum(int(c.rows * c.width) for c in case.kind.cache())
            drawn += self.request.context * width * len(self._kernels(case, "decode"))
        drawn *= self.request.batch
        return 4 * weights / self.ceiling.bytes_per_s + drawn / RANDOM_PER_SECOND[self.device.type]

    def _kernels(self, case: Case, phase: str) -> tuple[str, ...]:
        if isinstance(case.kind, Recurrent):
            return ("",)
        if self.kernels is None:
            known = self.request.kernels
        else:
            known = self.kernels.get((case.name, phase), ())
        return known or self.request.kernels

    def _tokens(self, case: Case) -> int:
        if case.stack.input == "source":
            return self.request.source or 0
        return self.request.context

    def _weights(self, case: Case) -> int:
        return sum(int(m.params) for m in case.kind.matrices(case.stack.d_model, case.d_source))

    def _repeated(self, seconds: float, kernel: str) -> float:
        """Return the seconds of all runs of a pass that takes `seconds`."""
        if self.request.timed:
            timed = min(MAX_RUNS * seconds, max(seconds, MAX_SECONDS))
        else:
            timed = 0.0
        return RUNS * seconds + timed + (COMPILE_SECONDS if is_compiled(kernel) else 0)

    def _of_pass(self, case: Case, phase: str, kernel: str) -> float:
        """Return the seconds of one run: its FLOP, and the bytes of its weights, its cache and its
        peak.
        """
        batch = self.request.batch
        decodes = phase == "decode"
        new = 1 if decodes else self._tokens(case)
        if isinstance(case.kind, Recurrent):
            flop = batch * projection_flops(case, new, new)
            steps = (
                new
                * SECONDS_PER_STEP[self.device.type]
                * max(1, batch * self._weights(case) // 10**9)
            )
            return steps + self._of_work(flop, self._weights(case) * self.size)
        keys = (self.request.source or 0) if case.crosses else self._tokens(case)
        if decodes and case.crosses:
            projected = 0
        elif decodes:
            projected = 1
        else:
            projected = keys
        flop = batch * int(
            projection_flops(case, new, projected) + case.kind.score_flops(Run(1, new, keys), None)
        )
        peaks = self.peaks.get((case.cost_name, phase), {})
        moved = self._weights(case) * self.size + TOUCHES * peaks.get(cost_kernel(kernel), 0)
        if decodes:
            moved += (
                batch * keys * sum(int(c.rows * c.width) for c in case.kind.cache()) * self.size
            )
        if not decodes and case.kind.span != FULL:
            moved += new * keys * BYTES_PER_PAIR
        return self._of_work(flop, moved)

    def _of_work(self, flop: int, moved: int) -> float:
        seconds = flop / self.ceiling.flop_per_s + moved / self.ceiling.bytes_per_s
        return SLOWDOWN[self.device.type] * seconds
