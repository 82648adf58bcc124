"""A check: what a formula predicts beside what something else says, and whether the two agree.

The something else may be a real layer on a device, another library's model, an engine's log.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Check(NamedTuple):
    """One comparison.

    name: in JSON; label: on screens, under `section`. of: the layer group it is of, '' for the whole
    model. tolerance: the largest difference that still agrees, in `unit`; 0 for what must be equal.
    note: what was compared with what. failure: what it would mean if they did not agree.
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
        """Measured less predicted."""
        return self.measured - self.predicted

    @property
    def ok(self) -> bool:
        """Whether the two agree; what is not a number agrees with nothing."""
        return abs(self.difference) <= self.tolerance

    def facts(self) -> dict[str, Any]:
        """Itself as plain data, for JSON, where what is not a number is null."""
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
    """How long one layer took, for information: nothing is held against it.

    least_ms: the time that the device's own matmul and copy would need for as many FLOP and bytes.
    """

    of: str
    phase: str
    kernel: str
    ms: float
    flop: int
    bytes: int
    least_ms: float

    def facts(self) -> dict[str, Any]:
        """Itself as plain data, for JSON."""
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
    """One layer at one of several doubling contexts; flop are those the mask allows."""

    of: str
    kernel: str
    context: int
    ms: float
    flop: int
    peak: int | None
    peak_predicted: int

    def facts(self) -> dict[str, Any]:
        """Itself as plain data, for JSON; peak is null where the device does not tell."""
        return {
            name: value if isinstance(value, (str, float)) or value is None else int(value)
            for name, value in self._asdict().items()
        }


class Verified(NamedTuple):
    """What was checked of one model, in order, at a context; skipped: what could not be, and why.

    No check at all: the model could not be checked here.
    """

    checks: tuple[Check, ...]
    times: tuple[Timing, ...] = ()
    scaled: tuple[Scaled, ...] = ()
    skipped: tuple[str, ...] = ()
    context: int = 0

    @property
    def ok(self) -> bool:
        """Whether everything that was checked agrees, and something was."""
        return bool(self.checks) and all(check.ok for check in self.checks)
