"""A check: a predicted figure, a measured one, and whether they agree.

The measurement may come from a real layer on a device, another library's model, or an engine's log.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .records import NamedTuple

COLUMNS = {
    "checks": ("of", "name", "predicted", "measured", "tolerance", "unit"),
    "reported": ("of", "name", "predicted", "measured", "unit"),
    "times": (
        *("of", "phase", "kernel", "ms", "flop", "bytes", "least_ms", "flop_share", "bytes_share"),
        *("ms_min", "ms_p90"),
    ),
    "scaling": ("of", "kernel", "context", "ms", "flop", "peak", "peak_predicted"),
}
"""The keys that a record of `verify --record` keeps of the facts below, in order. It has rows: an object per row would
make the file three times as long."""


def _facts(record: object, *names: str) -> dict[str, Any]:
    """Return these attributes as plain data, with None for NaN."""
    values = {name: getattr(record, name) for name in names}
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()}


class Check(NamedTuple):
    """One comparison.

    Attributes:
        section: heading that it is listed under on screens.
        name: name in JSON.
        label: name on screens.
        predicted: the figure of the formula.
        measured: the figure that it is compared with.
        tolerance: largest difference that still agrees, in `unit`; 0 if they must be equal.
        unit: unit of both figures.
        note: what was compared with what.
        failure: what a disagreement means.
        of: the layer group, or '' for the whole model.
    """

    section: str
    name: str
    label: str
    predicted: int | float
    measured: int | float
    tolerance: float = 0
    unit: str = ""
    note: str = ""
    failure: str = ""
    of: str = ""

    @property
    def difference(self) -> int | float:
        """Measured minus predicted."""
        return self.measured - self.predicted

    @property
    def relative_difference(self) -> float:
        """The difference as a share of the prediction. A prediction of 0 counts as 1."""
        return float(self.difference) / float(self.predicted or 1)

    @property
    def tolerance_used(self) -> float:
        """The difference as a share of the tolerance: above 1 the two disagree; infinite for NaN."""
        if self.tolerance and self.difference == self.difference:
            return abs(self.difference) / self.tolerance
        return 0.0 if self.ok else math.inf

    @property
    def ok(self) -> bool:
        """Whether the two agree; NaN agrees with nothing."""
        return abs(self.difference) <= self.tolerance

    def facts(self) -> dict[str, Any]:
        """Return the check as plain data, for JSON, with null for NaN."""
        names = ("name", "of", "section", "predicted", "measured", "difference", "tolerance")
        return _facts(self, *names, "unit", "ok", "note", "failure")


def largest_difference(checks: Sequence[Check]) -> Check | None:
    """Return the check of a predicted figure whose relative difference is the largest; None if all figures are equal.

    Figures have a unit: parameters, bytes, FLOP. A numerical error is not a figure: its prediction is 0.
    """
    differing = [check for check in checks if check.unit and check.predicted and check.difference]
    return max(differing, key=lambda check: abs(check.relative_difference), default=None)


class Reported(NamedTuple):
    """A figure that was measured for information, such as a kernel's own workspace. It never counts as agreement.

    Attributes:
        section: heading that it is listed under on screens.
        name: name in JSON.
        label: name on screens.
        measured: the figure; None if it is only predicted.
        unit: its unit.
        note: what it is.
        of: the layer group, or '' for the whole model or the device.
        predicted: the figure of a formula; None without one.
    """

    section: str
    name: str
    label: str
    measured: int | float | None
    unit: str = ""
    note: str = ""
    of: str = ""
    predicted: int | float | None = None

    @property
    def size(self) -> float:
        """The measured figure, or the predicted one if there is no other."""
        return (self.predicted or 0) if self.measured is None else self.measured

    def facts(self) -> dict[str, Any]:
        """Return the figure as plain data, for JSON."""
        return _facts(self, "name", "of", "section", "predicted", "measured", "unit", "note")


class Timing(NamedTuple):
    """How long one pass over a layer takes; for information, not checked.

    Attributes:
        of: the layer group.
        phase: 'prefill' or 'decode'.
        kernel: the attention kernel.
        ms: median of the measured times in milliseconds.
        flop: FLOP of the pass, of visible pairs only.
        bytes: bytes that the pass must move.
        least_ms: lower bound of the time, from the device's own matmul and copy.
        ms_min: the shortest measured time.
        ms_p90: the 90th percentile of the measured times: 9 of 10 are not longer.
        device_flop_per_s: FLOP per second of the device's own matmul, measured in the same run.
        device_bytes_per_s: bytes per second of the device's own copy or sum, measured in the same run.
    """

    of: str
    phase: str
    kernel: str
    ms: float
    flop: int
    bytes: int
    least_ms: float
    ms_min: float
    ms_p90: float
    device_flop_per_s: float = math.inf
    device_bytes_per_s: float = math.inf

    def facts(self) -> dict[str, Any]:
        """Return the timing as plain data, for JSON."""
        rates = {
            "flop_per_s": self.flop / self.ms * 1000,
            "flop_share": self.flop / self.ms * 1000 / self.device_flop_per_s,
            "bytes_per_s": self.bytes / self.ms * 1000,
            "bytes_share": self.bytes / self.ms * 1000 / self.device_bytes_per_s,
        }
        measured = _facts(self, "of", "phase", "kernel", "ms", "ms_min", "ms_p90", "flop", "bytes")
        return {**measured, **rates, "least_ms": self.least_ms}


class ScalingRow(NamedTuple):
    """A prefill of one layer at one of several doubling contexts.

    Attributes:
        of: the layer group.
        kernel: the attention kernel.
        context: tokens.
        ms: measured time in milliseconds; None if the run was simulated.
        flop: FLOP of the pass, of visible pairs only.
        peak: measured peak memory in bytes; None if the device does not report it.
        peak_predicted: predicted peak memory in bytes.
    """

    of: str
    kernel: str
    context: int
    ms: float | None
    flop: int
    peak: int | None
    peak_predicted: int

    def facts(self) -> dict[str, Any]:
        """Return the row as plain data, for JSON."""
        return _facts(self, *self._fields)


class VerifyResult(NamedTuple):
    """The result of verifying one model.

    Attributes:
        checks: the checks, in order; none if the model could not be verified here.
        times: the times of each pass.
        scaling: the rows of `--scaling`.
        skipped: notes on what could not be checked, and why.
        context: tokens of context that were run.
        limits: notes that limit the whole answer: a shortened context, peak memory that was not measured.
        reported: figures that were measured for information.
        simulated: whether no device ran the layers: torch's fake tensors stood in for it.
    """

    checks: tuple[Check, ...]
    times: tuple[Timing, ...] = ()
    scaling: tuple[ScalingRow, ...] = ()
    skipped: tuple[str, ...] = ()
    context: int = 0
    limits: tuple[str, ...] = ()
    reported: tuple[Reported, ...] = ()
    simulated: bool = False

    @property
    def ok(self) -> bool:
        """Whether something was checked and all of it agrees."""
        return bool(self.checks) and all(check.ok for check in self.checks)
