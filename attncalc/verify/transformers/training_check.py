"""Compare what `attncalc train` predicts with a training step of the transformers class of a config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ...attention.saved import TrainingKernel
from ...check import Check, VerifyResult
from ...cost.common import compute_dtype, group_name
from ...errors import CannotCheckError
from ...model import ModelSpec
from ...units import count
from ...workload import Workload
from .. import need_transformers
from ..devices import DTYPES
from ..training.checks import MeasuredStep, peak_check, saved_checks, size_on, state_checks, training_run
from ..training.layers import few_layers, leading, shortened
from .check import TransformersComparison
from .model import first_line
from .training import TrainingStep, training_step


def compare_training(
    model: ModelSpec, config: Mapping[str, Any], workload: Workload, on_progress: Callable[[str], None]
) -> TransformersComparison:
    """Train the transformers class of `config` without its memory, and compare it with the figures of `model`.

    The class has its true widths, and as few layers as have all kinds of layers of the model: what each saves is known
    then, and what is saved outside of them.

    Raises CannotCheckError if transformers has no class for the config, or its class cannot be trained on tensors
    without values; NotSupportedError if what a kind of attention saves is not known.
    """
    layers = few_layers(model)
    short, short_config = leading(model, layers), shortened(config, layers)
    dtype = compute_dtype(model, workload).name
    checks: list[Check] = []
    step: TrainingStep | None = None
    for recompute in (False, True):
        how = ", recomputing" if recompute else ""
        on_progress(f"{model.name}, {count(layers)} layers, {count(workload.context)} tokens{how}")
        try:
            step = training_step(
                short_config, DTYPES[dtype], model.head, workload.batch, workload.context, recompute=recompute
            )
        except CannotCheckError:
            raise
        except Exception as error:  # the class may raise anything
            raise CannotCheckError(
                f"transformers' class of {model.name} cannot be trained on tensors without values: {first_line(error)}"
            ) from None
        measured = _measured(short, step)
        run = training_run(
            short, workload.batch, workload.context, dtype, measured.kernel, recompute=recompute
        )
        checks += saved_checks(run, measured, size_on("cpu", run))
        checks += () if recompute else state_checks(run, measured)
        checks += peak_check(run, measured)
    assert step is not None
    note = f"The class has {count(layers)} of {count(model.main.n_layers)} layers: each kind of layer once or twice."
    limits = (note,) if layers < model.main.n_layers else ()
    name = f"transformers {need_transformers()}, {step.name} with {step.attention} attention"
    result = VerifyResult(tuple(checks), context=workload.context, limits=limits)
    return TransformersComparison(result, workload, {"type": "meta", "name": name, "torch": torch.__version__})


def _measured(model: ModelSpec, step: TrainingStep) -> MeasuredStep:
    """Return a step by layer groups. Raises CannotCheckError if the class has another number of layers."""
    groups = [group_name(model, stack, layers) for stack, layers in model.groups() for _ in range(int(layers.count))]
    saved = step.saved_by_layer()
    outside = saved.pop("", 0)
    if len(saved) != len(groups):
        raise CannotCheckError(
            f"{step.name} saves tensors in {count(len(saved))} layers, and {model.name} has {count(len(groups))}"
        )
    layers: dict[str, list[int]] = {}
    for group, size in zip(groups, saved.values(), strict=True):
        layers.setdefault(group, []).append(size)
    kernel: TrainingKernel = "flash" if step.flash else "math" if step.attention == "sdpa" else "eager"
    return MeasuredStep(kernel, layers, outside, step.parameters, step.gradients, step.states, step.peak or None)

