"""Activation memory of attention, in one call: `activations("llama2-70b", context=4096)`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...config import ModelLike
from ...cost import activations as of_activations
from ...cost.kernels import Machine
from ...units import BYTES, human
from ...workload import Workload
from ..arguments import takes
from ..inputs import read_call
from ..results import Result, pass_subject
from .options import ActivationsOptions
from .report import memory_report

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Activations(Result, tuple[of_activations.LayerActivations, ...]):
    """The activation memory of one layer of each kind, as `attncalc memory` prints it."""

    def _answer(self) -> str:
        if not self:
            return "no attention kernel"
        layer = max(self, key=lambda layer: int(layer.score_matrix))
        return (
            f"score matrix {human(layer.score_matrix, BYTES)}, with flash "
            f"{human(layer.peaks['flash'].size, BYTES)}"
        )


@takes(ActivationsOptions)
def activations(
    model: ModelLike | None = None,
    workload: Workload | None = None,
    machine: Machine | None = None,
    **options: Unpack[ActivationsOptions],
) -> Activations:
    """Return the activation memory of one attention layer of each kind, on one device; by default
    in a prefill.

    >>> activations("gpt2", context=8192)
    Activations(gpt2, prefill, batch 1, context 8,192: score matrix 3.00 GiB, with flash 120 MiB)

    It takes the options of `attncalc memory`, or a Workload. With a machine, the buffers of its
    kernels are counted too. Raises AttncalcError if one is not valid.
    """
    spec, size = read_call(model, workload, options, phase="prefill")
    layers = Activations(of_activations.activations(spec, size, machine))
    return layers.knowing(pass_subject(spec, size), partial(memory_report, spec, size))
