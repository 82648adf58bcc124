"""A check: a predicted figure, a measured one, and whether they agree.

The measurement may come from a real layer on a device, another library's model, or an engine's log.
"""

import math
from collections.abc import Sequence
from typing import Any

from .records import NamedTuple

# The keys that a record of `verify --record` keeps of the facts below, in order. It has rows: an
# object per row would make the file three times as long.
COLUMNS = {
    "checks": ("of", "name", "predicted", "measured", "tolerance", "unit"),
    "reported": ("of", "name", "predicted", "measured", "unit"),
    "times": (
        "of",
        "phase",
        "kernel",
        "ms",
        "flop",
        "bytes",
        "least_ms",
        "flop_share",
        "bytes_share",
        "ms_min",
        "ms_p90",
    ),
    "scaling": ("of", "kernel", "context", "ms", "flop", "peak", "peak_predicted"),
}


def _facts(record: object, *names: str) -> dict[str, Any]:
    """Return these attributes as plain data, with None for NaN."""
    values = {name: getattr(record, name) for name in names}
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in values.items()
    }


class Check(NamedTuple):
    section: str  # heading that it is listed under on screens
    name: str  # name in JSON
    label: str  # name on screens
    predicted: int | float  # the figure of the formula
    measured: int | float  # the figure that it is compared with
    tolerance: float = 0  # largest difference that still agrees, in `unit`; 0 if they must be equal
    unit: str = ""  # unit of both figures
    note: str = ""  # what was compared with what
    failure: str = ""  # what a disagreement means
    of: str = ""  # the layer group, or '' for the whole model

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
        """The difference as a share of the tolerance: above 1 the two disagree; infinite for
        NaN.
        """
        if self.tolerance and self.difference == self.difference:
            return abs(self.difference) / self.tolerance
        if self.ok:
            return 0.0
        return math.inf

    @property
    def ok(self) -> bool:
        """Whether the two agree; NaN agrees with nothing."""
        return abs(self.difference) <= self.tolerance

    def facts(self) -> dict[str, Any]:
        """Return the check as plain data, for JSON, with null for NaN."""
        names = ("name", "of", "section", "predicted", "measured", "difference", "tolerance")
        return _facts(self, *names, "unit", "ok", "note", "failure")


def largest_difference(checks: Sequence[Check]) -> Check | None:
    """Return the check of a predicted figure whose relative difference is the largest; None if all
    figures are equal.

    Figures have a unit: parameters, bytes, FLOP. A numerical error is not a figure: its prediction
    is 0.
    """
    largest = None
    for check in checks:
        if not (check.unit and check.predicted and check.difference):
            continue
        size = abs(check.relative_difference)
        if largest is None or size > abs(largest.relative_difference):
            largest = check
    return largest


class Reported(NamedTuple):
    """A figure that was measured for information, such as a kernel's own workspace. It never counts
    as agreement.
    """

    section: str  # heading that it is listed under on screens
    name: str  # name in JSON
    label: str  # name on screens
    measured: int | float | None  # the figure; None if it is only predicted
    unit: str = ""
    note: str = ""  # what it is
    of: str = ""  # the layer group, or '' for the whole model or the device
    predicted: int | float | None = None  # the figure of a formula; None without one

    @property
    def size(self) -> float:
        """The measured figure, or the predicted one if there is no other."""
        if self.measured is None:
            return self.predicted or 0
        return self.measured

    def facts(self) -> dict[str, Any]:
        """Return the figure as plain data, for JSON."""
        return _facts(self, "name", "of", "section", "predicted", "measured", "unit", "note")


class Timing(NamedTuple):
    """How long one pass over a layer takes; for information, not checked."""

    of: str  # the layer group
    phase: str  # 'prefill' or 'decode'
    kernel: str  # the attention kernel
    ms: float  # median of the measured times in milliseconds
    flop: int  # FLOP of the pass, of visible pairs only
    bytes: int  # bytes that the pass must move
    least_ms: float  # lower bound of the time, from the device's own matmul and copy
    ms_min: float  # the shortest measured time
    ms_p90: float  # the 90th percentile of the measured times: 9 of 10 are not longer
    # FLOP per second of the device's own matmul, measured in the same run
    device_flop_per_s: float = math.inf
    # bytes per second of the device's own copy or sum, measured in the same run
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
    """A prefill of one layer at one of several doubling contexts."""

    of: str  # the layer group
    kernel: str  # the attention kernel
    context: int  # tokens
    ms: float | None  # measured time in milliseconds; None if the run was simulated
    flop: int  # FLOP of the pass, of visible pairs only
    peak: int | None  # measured peak memory in bytes; None if the device does not report it
    peak_predicted: int  # predicted peak memory in bytes

    def facts(self) -> dict[str, Any]:
        """Return the row as plain data, for JSON."""
        return _facts(self, *self._fields)


class VerifyResult(NamedTuple):
    checks: tuple[Check, ...]  # the checks, in order; none if the model could not be verified here
    times: tuple[Timing, ...] = ()  # the times of each pass
    scaling: tuple[ScalingRow, ...] = ()  # the rows of `--scaling`
    skipped: tuple[str, ...] = ()  # notes on what could not be checked, and why
    context: int = 0  # tokens of context that were run
    # Notes that limit the whole answer: a shortened context, peak memory that was not measured
    limits: tuple[str, ...] = ()
    reported: tuple[Reported, ...] = ()  # figures that were measured for information
    # whether no device ran the layers: torch's fake tensors stood in for it
    simulated: bool = False

    @property
    def ok(self) -> bool:
        """Whether something was checked and all of it agrees."""
        return bool(self.checks) and all(check.ok for check in self.checks)
