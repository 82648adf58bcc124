"""The FLOPs of a pass, in one call: `flops("llama2-70b", context=4096)`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from ...config import ModelLike
from ...cost import crossover as of_growth
from ...cost import flops as of_flops
from ...quantity import Quantity
from ...show.report import times
from ...units import FLOP, human
from ...workload import Workload
from ..arguments import takes
from ..inputs import read_call
from ..results import Result, TotalResult, pass_subject
from .options import FlopsOptions, usual_phase
from .report import flops_report

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Flops(TotalResult, of_flops.Flops):
    """The FLOPs, as `attncalc flops` prints them."""

    def _answer(self) -> str:
        return human(self.total, FLOP)


class Growth(Result, of_growth.Growth):
    """How FLOPs grow with the context, as `attncalc flops` prints it."""

    FIGURES: ClassVar[tuple[str, ...]] = ("growth_total", "growth_attention_scores")

    def _answer(self) -> str:
        return (
            f"{times(self.total, 2)} in total and {times(self.scores, 2)} of scores for twice the "
            "context"
        )


@takes(FlopsOptions)
def flops(
    model: ModelLike | None = None,
    workload: Workload | None = None,
    **options: Unpack[FlopsOptions],
) -> Flops:
    """Return the FLOPs of a prefill, a decode step or a training step on one device; by default of
    a prefill, and with recompute of a training step.

    >>> flops("llama2-70b", phase="decode", batch=8, context=4096)
    Flops(llama2-70b, decode, batch 8, context 4,096: 1.19 TFLOP)

    It takes the options of `attncalc flops`, or a Workload. Raises AttncalcError if one is not
    valid.
    """
    spec, size = read_call(model, workload, options, phase=usual_phase(options))
    return Flops(*of_flops.flops(spec, size)).knowing(
        pass_subject(spec, size), partial(flops_report, spec, size)
    )


@takes(FlopsOptions)
def growth(
    model: ModelLike | None = None,
    workload: Workload | None = None,
    **options: Unpack[FlopsOptions],
) -> Growth:
    """Return how much all FLOPs and the exact scores grow when the context doubles; by default of a
    prefill.

    It takes the options of `attncalc flops`, or a Workload. Raises AttncalcError if one is not
    valid.
    """
    spec, size = read_call(model, workload, options, phase="prefill")
    return Growth(*of_growth.growth(spec, size)).knowing(
        pass_subject(spec, size), partial(flops_report, spec, size)
    )


@takes(FlopsOptions)
def crossover(
    model: ModelLike | None = None,
    workload: Workload | None = None,
    **options: Unpack[FlopsOptions],
) -> Quantity | None:
    """Return the shortest context at which exact scores cost more than attention's projections;
    None if they never do.

    >>> crossover("llama2-70b")
    18432

    It takes the options of `attncalc flops`, or a Workload. Raises AttncalcError if one is not
    valid.
    """
    spec, size = read_call(model, workload, options, phase="prefill")
    return of_growth.crossover(spec, size)
