"""Train a real model with one layer of each kind: saved tensors, gradients, optimizer states, and
the step's peak.
"""

import math
from functools import partial

import torch
from torch import Tensor

from ...attention.saved import TrainingKernel
from ...check import Check, VerifyResult
from ...cost.common import group_name
from ...cost.training.step import stage_budget
from ...errors import CannotCheckError
from ...model import ModelSpec
from ...records import NamedTuple
from ...units import BYTES, count, human
from ..checks.memory import SEEDS
from ..devices import Device
from ..errors import CannotRunError
from ..plan import OVERHEAD, USABLE_SHARE
from ..progress import Progress
from ..real_layer import initialised, materialised
from ..request import MIN_CONTEXT, VerifyRequest
from ..training.checks import (
    MeasuredStep,
    peak_check,
    saved_checks,
    size_on,
    state_checks,
    training_run,
)
from ..training.model import TrainedModel, missing_parts, one_of_each
from ..training.saved import SavedTensor, SavedTensors, bytes_of, state_bytes

# The kernels whose saved tensors have formulas, the leanest first.
KERNELS: tuple[TrainingKernel, ...] = ("flash", "efficient", "cudnn", "math")


class _Way(NamedTuple):
    """One way to train: a kernel, and whether layers are recomputed."""

    kernel: TrainingKernel
    recompute: bool = False


def verify_training(
    model: ModelSpec, request: VerifyRequest, device: Device, on_progress: Progress
) -> VerifyResult:
    """Train a model with one layer of each kind at its true widths for two steps, with each kernel
    that runs.

    Raises CannotCheckError if a part has no torch layer, or it does not fit in memory;
    NotSupportedError if what a kind of attention saves is not known.
    """
    if not device.has_values:
        raise CannotCheckError(
            "--simulate has no gradients to measure", "leave it out, or add --against transformers"
        )
    small = one_of_each(model)
    kernels = [kernel for kernel in KERNELS if kernel in request.kernels]
    if not kernels:
        raise CannotCheckError(
            f"{' and '.join(request.kernels)}: what this kernel saves is not known",
            f"known: {', '.join(KERNELS)}",
        )
    request, limits = _fitting(small, request, device, kernels)
    checks: list[Check] = []
    skipped = list(missing_parts(model))
    on_progress.expect([1.0] * (len(kernels) + 1))
    with device.session(request.seed) as random, torch.enable_grad():
        trained = _build(small, request, device, random)
        ways = [*map(_Way, kernels), _Way(kernels[0], True)]
        for way in ways:
            on_progress(f"{model.name}, {'recomputing' if way.recompute else way.kernel}")
            try:
                measured = _train(trained, small, request, device, way)
            except CannotRunError as error:
                skipped.append(f"{error}.")
                if not way.recompute and way.kernel == kernels[0] and kernels[1:]:
                    ways[-1] = _Way(kernels[1], True)
                continue
            run = training_run(
                small,
                request.batch,
                request.context,
                request.dtype,
                way.kernel,
                recompute=way.recompute,
            )
            seeds = 0 if device.type == "cpu" else SEEDS
            checks += saved_checks(run, measured, size_on(device.type, run), seeds=seeds)
            if any(check.name == "train_gradients" for check in checks):
                checks += ()
            else:
                checks += state_checks(run, measured)
            checks += peak_check(run, measured)
            on_progress.keep(_result(checks, skipped, limits, request))
    return _result(checks, skipped, limits, request)


def _result(
    checks: list[Check], skipped: list[str], limits: tuple[str, ...], request: VerifyRequest
) -> VerifyResult:
    return VerifyResult(
        tuple(checks), skipped=tuple(skipped), context=request.context, limits=limits
    )


def _fitting(
    model: ModelSpec, request: VerifyRequest, device: Device, kernels: list[TrainingKernel]
) -> tuple[VerifyRequest, tuple[str, ...]]:
    """Return the request with a context that fits in memory, and a note if it was shortened."""
    available = int(device.free() * USABLE_SHARE)
    context = min(request.context, model.main.learned_positions or request.context)
    while True:
        runs = [
            training_run(model, request.batch, context, request.dtype, kernel) for kernel in kernels
        ]
        needed = OVERHEAD + max(
            stage_budget(run, run.stages[0], plain=True).allocated for run in runs
        )
        if needed <= available:
            break
        if context == MIN_CONTEXT:
            raise CannotCheckError(
                f"{model.name}: embedding, head and one layer of each kind need "
                f"{human(needed, BYTES)} to train, "
                f"and {device.name} has {human(available, BYTES)} for it",
                "choose a smaller model, --dtype bf16 or another --device",
            )
        context = max(MIN_CONTEXT, context // 2)
    if context == request.context:
        return request, ()
    note = f"Context {count(request.context)} does not fit: shortened to {count(context)}."
    return request._replace(context=context), (note,)


def _build(
    model: ModelSpec, request: VerifyRequest, device: Device, random: torch.Generator | None
) -> TrainedModel:
    with torch.device("meta"):
        trained = TrainedModel(model)
    with torch.no_grad():
        materialised(trained, device.torch, request.torch_dtype)
        if random is not None:
            initialised(trained, random)
    trained.tie()
    return trained.requires_grad_(True)


def _train(
    trained: TrainedModel, model: ModelSpec, request: VerifyRequest, device: Device, way: _Way
) -> MeasuredStep:
    """Train for two steps, and measure the second one's peak. Raises CannotRunError if the kernel
    does not run.
    """
    trained.set_recompute(way.recompute)
    trained.zero_grad()
    optimizer = torch.optim.AdamW(trained.parameters(), fused=True)
    generator = torch.Generator().manual_seed(request.seed)
    vocabulary = trained.embedding.num_embeddings
    ids = torch.randint(vocabulary, (request.batch, request.context), generator=generator).to(
        device.torch
    )
    recorded = SavedTensors(trained)
    with recorded.recording():
        loss: Tensor = trained(ids, way.kernel)
    loss.backward()
    del loss
    gradients = bytes_of(p.grad for p in trained.parameters())
    optimizer.step()
    optimizer.zero_grad()
    parameters = bytes_of(trained.parameters())
    states = state_bytes(optimizer)
    names = [group_name(model, stack, layer) for stack, layer in model.groups()]
    tensors: dict[str, list[SavedTensor]] = {name: [] for name in names}
    outside = 0
    for tensor in recorded.tensors:
        part, _, rest = tensor.path.partition(".")
        sides = tensor.shape[-2:]
        if sides == (request.context, request.context) and math.prod(tensor.shape[:-2]) == 1:
            # the mask of a window, of S x S for all heads, which layers of transformers share
            continue
        if part == "layers":
            tensors[names[int(rest.partition(".")[0])]].append(tensor)
        else:
            outside += tensor.bytes
    layers = {name: [sum(tensor.bytes for tensor in tensors[name])] for name in names}
    del recorded
    peak = None
    if device.measures_memory:
        peak = (
            parameters
            + states
            + device.peak(partial(_step, trained, optimizer, ids, way.kernel)).requested
        )
    del optimizer
    device.empty_cache()
    return MeasuredStep(way.kernel, layers, tensors, outside, parameters, gradients, states, peak)


def _step(
    trained: TrainedModel, optimizer: torch.optim.Optimizer, ids: Tensor, kernel: str
) -> Tensor:
    """Train for one step; return the loss without its graph."""
    with torch.enable_grad():
        loss: Tensor = trained(ids, kernel)
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
