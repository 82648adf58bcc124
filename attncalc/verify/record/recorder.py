"""Run the steps of a record that fit in its time, and describe after each what is known so far, as
plain data.
"""

import datetime
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ... import __version__
from ...check import COLUMNS, VerifyResult
from ...errors import AttncalcError
from ...model import ModelSpec
from ...records import NamedTuple
from ...units import duration, truncate
from ..devices import Device
from ..errors import DeviceFailedError
from ..options import VerifyOptions
from ..programs import verify
from ..progress import Progress
from ..request import VerifyRequest, resolve
from ..time_plan import predicted_steps
from .machine import machine_facts, main_dtype
from .steps import Step, Target, record_steps

SCHEMA = "attncalc.record/1"
NO_TIME = "no time left"
INTERRUPTED = "the record ended before it"
# The note of a step that was interrupted, or ended in an error.
UNFINISHED = "This run ended before all of its checks."
# A result of the step that runs is written at most this much later.
WRITE_SECONDS = 5.0
# Significant digits of measured numbers that are no integers.
DIGITS = 7

# A record as plain data, which is written as JSON and from which the page is made.
Document = dict[str, Any]


class Left(NamedTuple):
    """A step that did not run."""

    arguments: str
    reason: str  # why
    seconds: float | None = None  # how long it would have taken, if the time was too short for it
    failed: bool = False  # whether it ended in an error that nobody expected
    # whether longer contexts of the same model did not run either, for the same reason
    longer: bool = False


def plan_record(models: Mapping[str, ModelSpec], base: VerifyOptions, device: Device) -> list[Step]:
    """Return the steps for a device, the most informative first. Raises AttncalcError if an option
    is unknown.

    `models` has the models by the name that the command line takes; `base` the dtype, the kernel
    and the seed of each.
    """
    for model in list(models.values())[:1]:
        # raises the error of an unknown dtype or kernel before anything is measured
        resolve(model, base, device)
    target = Target(device.type, base.dtype or main_dtype(device), device.default_dtype)
    return record_steps(models, base, target)


def record(
    steps: Sequence[Step],
    models: Mapping[str, ModelSpec],
    device: Device,
    minutes: float,
    command: str,
    show: Callable[[str], None],
    write: Callable[[Document], None],
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Run every step that fits in the time. The record is written as results come: the runs, and
    what did not run.

    A step starts only if its estimate fits in what is left of `minutes`. `show` is called with the
    progress in words, and `write` with the record after each step, at most WRITE_SECONDS after each
    result, and after an interrupt.
    """
    head = {
        "schema": SCHEMA,
        "attncalc": __version__,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "command": command,
        "minutes": minutes,
        "device": machine_facts(device),
        "columns": COLUMNS,
    }
    _Recorder(
        steps, models, device, minutes, show, now, lambda found: write({**head, **found})
    ).run()


class _Pace:
    """How the time that steps took compares with the time that was expected."""

    def __init__(self) -> None:
        self._expected = self._taken = 0.0

    def add(self, expected: float, taken: float) -> None:
        """Add a finished step, in seconds."""
        self._expected += expected
        self._taken += taken

    def corrected(self, expected: float) -> float:
        """Return expected seconds, corrected by the finished steps."""
        if self._expected:
            return expected * self._taken / self._expected
        return expected


class _Recorder:
    def __init__(
        self,
        steps: Sequence[Step],
        models: Mapping[str, ModelSpec],
        device: Device,
        minutes: float,
        show: Callable[[str], None],
        now: Callable[[], float],
        write: Callable[[Document], None],
    ) -> None:
        self.steps = steps
        self.models = models
        self.device = device
        self.show = show
        self.now = now
        self.write = write
        self.started = self.written = now()
        self.deadline = self.started + 60 * minutes
        self.runs: list[dict[str, Any]] = []
        self.running: dict[str, Any] | None = None
        """What the step that runs has measured so far."""
        self.ahead: Sequence[Step] = steps
        """The steps that have no result yet."""
        self.left: list[Left] = []
        self.pace = _Pace()
        self.ended_series: set[str] = set()

    def run(self) -> None:
        """Run the steps, and write the record as their results come."""
        requests = [
            resolve(self.models[step.model], step.options, self.device) for step in self.steps
        ]
        expected = self._expected(requests)
        broken = ""
        for i, (step, request) in enumerate(zip(self.steps, requests, strict=True)):
            self.ahead = self.steps[i:]
            if step.series in self.ended_series:
                continue
            left_out = self._left_out(step, expected[i], broken)
            if left_out:
                self._leave_out(step, left_out)
                continue
            self._show_progress(i, expected)
            try:
                broken = self._run_step(step, request, expected[i])
            except KeyboardInterrupt:
                if self.running:
                    self._write()
                raise
            self.ahead = self.steps[i + 1 :]
            self._write()
        self.ahead = ()
        self._write()

    def _expected(self, requests: Sequence[VerifyRequest]) -> list[float]:
        """Return the seconds that each step is expected to take. The device's rates are measured
        for it.
        """
        with self.device.session(0):
            return [
                sum(predicted_steps(self.models[step.model], request, self.device))
                for step, request in zip(self.steps, requests, strict=True)
            ]

    def _left_out(self, step: Step, expected: float, broken: str) -> Left | None:
        """Return why a step does not start; None if it does."""
        if broken:
            return Left(step.arguments, broken)
        seconds = self.pace.corrected(expected)
        if seconds > self.deadline - self.now():
            return Left(step.arguments, NO_TIME, seconds=round(seconds, 1))
        return None

    def _show_progress(self, i: int, expected: Sequence[float]) -> None:
        """Show the number of this step, of those that will probably fit, and the time that they
        take.
        """
        left = self.deadline - self.now()
        number = 0
        seconds = 0.0
        for estimate in map(self.pace.corrected, expected[i:]):
            if seconds + estimate <= left:
                number = number + 1
                seconds = seconds + estimate
        done = len(self.runs)
        prefix = f"{done + 1} of {done + max(1, number)}, about {duration(seconds)} left"
        self.show(f"{prefix}: {self.steps[i].arguments}")

    def _run_step(self, step: Step, request: VerifyRequest, expected: float) -> str:
        """Run one step and keep its result; return why no further step can run, or ''."""
        before = self.now()
        request = request._replace(seconds=max(1.0, self.deadline - before))

        def keep(result: VerifyResult) -> None:
            facts = run_facts(step, request, result, self.now() - before)
            self.running = {**facts, "notes": [UNFINISHED, *facts["notes"]]}
            if self.now() - self.written >= WRITE_SECONDS:
                self._write()

        self.running = None
        try:
            result = verify(self.models[step.model], request, self.device, Progress(on_result=keep))
        except Exception as error:  # whatever happens on this machine, what was measured is kept
            known = error if isinstance(error, AttncalcError) else None
            if known:
                reason = known.message
            else:
                reason = f"{type(error).__name__}: {truncate(error, 200)}"
            failed = not known or isinstance(error, DeviceFailedError)
            self.runs += [self.running] if self.running else []
            self.running = None
            self._leave_out(step, Left(step.arguments, reason, failed=failed))
            works = not failed or self._answers()
            if works:
                return ""
            return f"{self.device.name} no longer answers after {step.arguments}"
        seconds = self.now() - before
        self.pace.add(expected, seconds)
        self.running = None
        self.runs.append(run_facts(step, request, result, seconds))
        if step.series and result.context < request.context:
            self.ended_series.add(step.series)  # its note names the context that fits
        gc.collect()
        self.device.empty_cache()
        return ""

    def _leave_out(self, step: Step, left: Left) -> None:
        self.left.append(left._replace(longer=bool(step.series)))
        if step.series:
            self.ended_series.add(step.series)

    def _answers(self) -> bool:
        """Whether the device still works: after an illegal access every call of CUDA fails in this
        process.
        """
        try:
            torch.ones(1, device=self.device.torch).add_(1).item()
        except Exception:
            return False
        return True

    def _write(self) -> None:
        """Write what is known: the step that runs has its results among the runs, or has not
        run.
        """
        ahead = self.ahead[1:] if self.running else self.ahead
        left = [
            *self.left,
            *(Left(step.arguments, INTERRUPTED) for step in ahead if not step.series),
        ]
        self.write(
            {
                "seconds": round(self.now() - self.started, 1),
                "runs": [*self.runs, self.running] if self.running else [*self.runs],
                "skipped": [step._asdict() for step in left],
            }
        )
        self.written = self.now()


def run_facts(
    step: Step, request: VerifyRequest, result: VerifyResult, seconds: float
) -> dict[str, Any]:
    """Return one run as plain data. Checks that disagree are in it whole, all others as a row of
    COLUMNS.
    """
    facts = {
        "checks": [check.facts() for check in result.checks],
        "reported": [figure.facts() for figure in result.reported],
        "times": [timing.facts() for timing in result.times],
        "scaling": [row.facts() for row in result.scaling],
    }
    return {
        "arguments": step.arguments,
        "batch": request.batch,
        "context": result.context,
        "source": request.source,
        "dtype": request.dtype,
        "seconds": round(seconds, 1),
        **{
            name: [[_rounded(row[key]) for key in COLUMNS[name]] for row in rows]
            for name, rows in facts.items()
        },
        "disagree": [
            {key: _rounded(value) for key, value in check.facts().items()}
            for check in result.checks
            if not check.ok
        ],
        "notes": [*result.limits, *result.skipped],
    }


def _rounded(value: Any) -> Any:
    """Return a number for JSON: an int, or a float of few digits; None for what JSON cannot
    hold.
    """
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return int(value)
    if not abs(value) < float("inf"):
        return None
    return float(f"{value:.{DIGITS - 1}e}")
