"""Compare what `attncalc train` predicts with a training step of the transformers class of a
config.
"""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ...attention.saved import TrainingKernel
from ...check import Check, Reported, VerifyResult
from ...cost.common import compute_dtype, group_name
from ...cost.training.classes import class_math
from ...errors import CannotCheckError
from ...model import Layers, ModelSpec, Stack
from ...units import BYTES, count
from ...workload import Workload
from .. import need_transformers
from ..devices import DTYPES
from ..training.checks import (
    JOINED,
    MeasuredStep,
    peak_check,
    saved_checks,
    size_on,
    state_checks,
    training_run,
)
from ..training.saved import SavedTensor
from .check import TransformersComparison
from .model import first_line
from .training import TrainingStep, layer_path, training_step

DROPOUT_NOTE = "Dropout is 0, as in most fine-tuning: it would save a mask and another tensor."
KERNELS_NOTE = (
    "Kernels of recurrent layers do not run: stand-ins save the tensors that their source lists."
)
# Bytes per token by which routers differ: in the dtype of weights, in indices, in groups of experts
# of a config.
ROUTING = 160
ROPE_NOTE = "saved once for all layers, and left out of the check"


def compare_training(
    model: ModelSpec,
    config: Mapping[str, Any],
    workload: Workload,
    on_progress: Callable[[str], None],
) -> TransformersComparison:
    """Train the transformers class of `config` without its memory, and compare it with the figures
    of `model`.

    The class has its true widths, and as few layers as have all kinds of layers of the model: what
    each saves is known then, and what is saved outside of them.

    Raises CannotCheckError if transformers has no class for the config, or its class cannot be
    trained on tensors without values; NotSupportedError if what a kind of attention saves is not
    known.
    """
    layers = few_layers(model)
    of_one = layers_of_one(model, config)
    short = leading(model, layers)
    short_config = shortened(config, layers // of_one)
    dtype = compute_dtype(model, workload).name
    checks: list[Check] = []
    reported: list[Reported] = []
    for recompute in (False, True):
        how = ", recomputing" if recompute else ""
        on_progress(f"{model.name}, {count(layers)} layers, {count(workload.context)} tokens{how}")
        step = _step(model, short_config, workload, recompute=recompute)
        measured = _measured(short, step, of_one)
        if recompute and class_math(model.model_type).residual_in_fp32:
            next(iter(measured.layers.values())).pop(0)  # its input is the embedding, in 16 bits
        run = training_run(
            short, workload.batch, workload.context, dtype, measured.kernel, recompute=recompute
        )
        if not recompute and step.rope_tables:
            label = "cosines and sines"
            reported.append(
                Reported("RoPE tables", "rope_tables", label, step.rope_tables, BYTES, ROPE_NOTE)
            )
        checks += saved_checks(run, measured, size_on("cpu", run), routing=ROUTING)
        if not recompute:
            checks += state_checks(run, measured)
        checks += peak_check(run, measured)
    limits = [DROPOUT_NOTE]
    if step.has_stand_ins:
        limits.append(KERNELS_NOTE)
    if layers < model.main.n_layers:
        limits.append(
            f"The class has {count(layers)} of its {count(model.main.n_layers)} layers: all "
            "kinds of layers."
        )
    name = f"transformers {need_transformers()}, {step.name} with {step.attention} attention"
    result = VerifyResult(
        tuple(checks), context=workload.context, limits=tuple(limits), reported=tuple(reported)
    )
    return TransformersComparison(
        result, workload, {"type": "meta", "name": name, "torch": torch.__version__}
    )


def _step(
    model: ModelSpec, config: Mapping[str, Any], workload: Workload, *, recompute: bool
) -> TrainingStep:
    """Train the class of `config`. Raises CannotCheckError if it cannot be trained."""
    dtype = DTYPES[compute_dtype(model, workload).name]
    batch = workload.batch
    context = workload.context
    try:
        return training_step(config, dtype, model.head, batch, context, recompute=recompute)
    except CannotCheckError:
        raise
    except Exception as error:  # the class may raise anything
        raise CannotCheckError(
            f"transformers' class of {model.name} cannot be trained on tensors without values: "
            f"{first_line(error)}"
        ) from None


def _measured(model: ModelSpec, step: TrainingStep, of_one: int) -> MeasuredStep:
    """Return a step by layer groups. Raises CannotCheckError if the class has another number of
    layers.

    Args:
        of_one: how many layers of the model are one of the class.
    """
    names = layer_groups(model)
    groups = [JOINED.join(names[i : i + of_one]) for i in range(0, len(names), of_one)]
    saved = step.saved_by_layer()
    outside = saved.pop("", 0) - step.rope_tables
    if len(saved) != len(groups):
        raise CannotCheckError(
            f"{step.name} saves tensors in {count(len(saved))} layers, and {model.name} has "
            f"{count(len(groups))}"
        )
    layers: dict[str, list[int]] = {}
    tensors: dict[str, list[SavedTensor]] = {}
    for group, (path, size) in zip(groups, saved.items(), strict=True):
        layers.setdefault(group, []).append(size)
        tensors[group] = [tensor for tensor in step.saved if layer_path(tensor.path) == path]
    kernel: TrainingKernel = "eager"
    if step.flash:
        kernel = "flash"
    elif step.attention == "sdpa":
        kernel = "math"
    held = (step.parameters, step.gradients, step.states, step.peak or None)
    return MeasuredStep(kernel, layers, tensors, outside, *held)


# Names of the number of layers in config files.
LENGTHS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "encoder_layers",
    "decoder_layers",
)


def few_layers(model: ModelSpec) -> int:
    """Return the least number of leading layers that has every kind of layer, but two if the model
    has them.

    The first layer also saves what all layers share, such as RoPE's cosines.
    """
    most = 1
    for stack in model.stacks:
        kinds = [
            dataclasses.replace(layers, count=1, name="")
            for layers in stack.layers
            for _ in range(layers.count)
        ]
        most = max(most, min(2, len(kinds)), *(kinds.index(kind) + 1 for kind in kinds))
    return most


def layers_of_one(model: ModelSpec, config: Mapping[str, Any]) -> int:
    """Return how many layers of the model are one of the class: 2 for Falcon-H1, which has
    attention beside Mamba-2.
    """
    parts = [config, *(value for value in config.values() if isinstance(value, dict))]
    stated = (part.get(name) for part in parts for name in LENGTHS)
    length = next((length for length in stated if isinstance(length, int)), 0)
    is_multiple = length and not model.encoder and model.main.n_layers % length == 0
    if is_multiple:
        return model.main.n_layers // length
    return 1


def shortened(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """Return a copy of `config` with its first `layers` layers; lists, and tables by layer, are cut
    too.
    """
    short: dict[str, Any] = copy.deepcopy(dict(config))
    for part in [short, *(value for value in short.values() if isinstance(value, dict))]:
        for name in [name for name in LENGTHS if isinstance(part.get(name), int)]:
            for field, value in part.items():
                if isinstance(value, (list, str)) and len(value) == part[name] > 1:
                    part[field] = value[:layers]
                elif isinstance(value, dict) and value and all(str(key).isdigit() for key in value):
                    part[field] = {key: entry for key, entry in value.items() if int(key) < layers}
            part[name] = min(layers, part[name])
    return short


def layer_groups(model: ModelSpec) -> list[str]:
    """Return the name of each layer's group, in the order of the layers."""
    names = []
    for stack in model.stacks:
        for layers in stack.layers:
            names += [group_name(model, stack, layers)] * int(layers.count)
    return names


def leading(model: ModelSpec, layers: int) -> ModelSpec:
    """Return the model with the first `layers` layers of each stack."""
    return dataclasses.replace(
        model, stacks=tuple(_leading(stack, layers) for stack in model.stacks)
    )


def _leading(stack: Stack, layers: int) -> Stack:
    kept: list[Layers] = []
    for group in stack.layers:
        if layers > 0:
            kept.append(dataclasses.replace(group, count=min(int(group.count), layers)))
        layers -= int(group.count)
    return dataclasses.replace(stack, layers=tuple(kept))
