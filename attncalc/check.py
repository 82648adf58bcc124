"""A check: a predicted and a measured figure, and whether they agree.

The measured figure comes from a real layer on a device, from another library's model or from an engine's log.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Check(NamedTuple):
    """One comparison.

    Attributes:
        section: the heading it is printed under.
        name: its name in JSON.
        label: its name on screens.
        predicted: what the formula gives.
        measured: what was measured.
        tolerance: the largest difference that still agrees, in `unit`; 0 if both must be equal.
        unit: the unit of both figures.
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
        """Return measured - predicted."""
        return self.measured - self.predicted

    @property
    def ok(self) -> bool:
        """Return whether the two agree; NaN agrees with nothing."""
        return abs(self.difference) <= self.tolerance

    def facts(self) -> dict[str, Any]:
        """Return the check as plain data for JSON, with null for NaN."""
        return {
            "name": self.name,
            "of": self.of,
            "section": self.section,
            "predicted": self.predicted,
            "measured": self.measured if self.measured == self.measured else None,
            "difference": self.difference if self.difference == self.difference else None,
            "tolerance": self.tolerance,
            "unit": self.unit,
            "ok": self.ok,
            "note": self.note,
            "failure": self.failure,
        }


class Timing(NamedTuple):
    """How long one layer took. It is printed for information and not checked.

    Attributes:
        of: the layer group.
        phase: 'prefill' or 'decode'.
        kernel: the attention kernel.
        ms: measured milliseconds.
        flop: FLOP of the layer.
        bytes: bytes that it reads and writes.
        least_ms: milliseconds that a plain matmul and a copy on the device need for as many FLOP and bytes.
    """

    of: str
    phase: str
    kernel: str
    ms: float
    flop: int
    bytes: int
    least_ms: float

    def facts(self) -> dict[str, Any]:
        """Return the timing as plain data for JSON."""
        return {
            "of": self.of,
            "phase": self.phase,
            "kernel": self.kernel,
            "ms": self.ms,
            "flop": int(self.flop),
            "bytes": int(self.bytes),
            "flop_per_s": self.flop / self.ms * 1000,
            "bytes_per_s": self.bytes / self.ms * 1000,
            "least_ms": self.least_ms,
        }


class Scaled(NamedTuple):
    """One layer at one of several contexts, each twice the one before.

    Attributes:
        of: the layer group.
        kernel: the attention kernel.
        context: tokens.
        ms: measured milliseconds.
        flop: FLOP of the pairs that the mask allows.
        peak: measured peak memory in bytes, or None if the device cannot measure it.
        peak_predicted: predicted peak memory in bytes.
    """

    of: str
    kernel: str
    context: int
    ms: float
    flop: int
    peak: int | None
    peak_predicted: int

    def facts(self) -> dict[str, Any]:
        """Return the measurement as plain data for JSON."""
        return {
            name: value if isinstance(value, (str, float)) or value is None else int(value)
            for name, value in self._asdict().items()
        }


class Verified(NamedTuple):
    """The result of verifying one model.

    Attributes:
        checks: the comparisons, in order; () if nothing could be checked on this machine.
        times: the layers' timings.
        scaled: the layers at several contexts.
        skipped: what could not be checked, and why.
        context: tokens of context.
    """

    checks: tuple[Check, ...]
    times: tuple[Timing, ...] = ()
    scaled: tuple[Scaled, ...] = ()
    skipped: tuple[str, ...] = ()
    context: int = 0

    @property
    def ok(self) -> bool:
        """Return whether something was checked and all of it agrees."""
        return bool(self.checks) and all(check.ok for check in self.checks)
