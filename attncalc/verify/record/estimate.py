"""How long a step takes: a rough figure from its FLOP, corrected by the steps before."""

from __future__ import annotations

from ...model import ModelSpec
from ...workload import Run
from ..cases import cases
from ..devices import Device
from ..options import VerifyOptions
from ..request import VerifyRequest

SECONDS_PER_CASE = {"cpu": 2.0, "cuda": 2.0, "mps": 3.0}
"""Seconds of the checks of one layer that do not depend on its size, by type of device."""
FLOP_PER_SECOND = {"cpu": 5e10, "cuda": 5e13, "mps": 1e12}
"""FLOP that a device reaches, by its type, before anything was measured."""
RUNS = 8
"""How often a pass is run: for its FLOP, its peak and its time."""
SECONDS_TO_SPLIT = 15.0
"""Seconds that processes take to start and to connect."""


def rough_seconds(model: ModelSpec, options: VerifyOptions, request: VerifyRequest, device: Device) -> float:
    """Return about how many seconds a step takes on a device that nothing is known of."""
    seconds = 0.0
    for case in cases(model.plain()):
        d_model = int(case.stack.d_model)
        weights = sum(int(m.weights) for m in case.kind.matrices(d_model, int(case.d_source)))
        run = Run(1, request.context, request.context)
        flop = request.batch * (2 * weights * request.context + int(case.kind.score_flops(run, None)))
        if options.program == "scaling":
            flop *= 2  # 1 + 1/2 + 1/4 + 1/8
        seconds += SECONDS_PER_CASE[device.type]
        seconds += RUNS * len(request.kernels) * flop / FLOP_PER_SECOND[device.type]
    return seconds + (SECONDS_TO_SPLIT if options.program == "tensor_parallel" else 0.0)


class Pace:
    """How the time that steps took compares with the time that was estimated."""

    def __init__(self) -> None:
        self._estimated = self._taken = 0.0

    def add(self, estimated: float, taken: float) -> None:
        """Add a finished step, in seconds."""
        self._estimated += estimated
        self._taken += taken

    def corrected(self, estimated: float) -> float:
        """Return an estimate, corrected by the finished steps."""
        return estimated * self._taken / self._estimated if self._estimated else estimated
