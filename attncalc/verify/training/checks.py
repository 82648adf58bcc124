"""Checks of a training step: what each layer saves, gradients, optimizer states, the peak."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ...attention.saved import SavedTensor, TrainingKernel
from ...check import Check
from ...cost.training.activations import LayerSaved, StageSaved, stage_saved
from ...cost.training.classes import class_math
from ...cost.training.setup import Training
from ...cost.training.states import states
from ...cost.training.step import stage_budget
from ...model import ModelSpec
from ...quantity import Quantity, exact_div, quantity, symbol, total
from ...records import NamedTuple
from ...units import BYTES, dtype
from ...workload import Recompute, Workload
from ..checks.tolerance import furthest
from .saved import SavedTensor as Recorded

SAVED = "saved for backward"
STATES = "training states"
PEAK = "peak memory"
# Shares of a step's peak. In the backward pass of a layer it is an upper bound: the gradients of
# its largest activations are counted as if all of them existed at once.
TOLERANCE = 0.01
LAYER_TOLERANCE = 0.2
# Between the names of two groups whose layers are one layer of a class: 'attention and mamba'.
JOINED = " and "
# Tensors that a failed check names.
_MAX_NAMED = 3
WRONG_SAVED = "an operation saves a tensor that the formula does not count, or another size of it"


class MeasuredStep(NamedTuple):
    """What one training step was seen to hold, in bytes."""

    kernel: TrainingKernel  # the attention kernel
    layers: Mapping[str, list[int]]  # what each layer of a group saved, by group
    tensors: Mapping[str, Sequence[Recorded]]  # the tensors that a layer of a group saved, by group
    outside: int  # what embedding, last norm, head and loss saved
    parameters: int  # of all parameters, tied ones once
    gradients: int  # of their gradients
    states: int  # of AdamW's two moments
    # the largest sum of all tensors that exist together; None if it was not measured
    peak: int | None


def training_run(
    model: ModelSpec,
    batch: int,
    tokens: int,
    dtype_name: str,
    kernel: TrainingKernel,
    *,
    recompute: bool = False,
) -> Training:
    """Return the run that is measured: one device, one dtype throughout, a fused AdamW; as many
    source tokens.
    """
    source = tokens if model.encoder else None
    recomputes: Recompute = "full" if recompute else "none"
    workload = Workload.train(batch, tokens, source=source, dtype=dtype_name, recompute=recomputes)
    return Training(
        model,
        workload,
        kernel=kernel,
        param_dtype=dtype_name,
        grad_dtype=dtype_name,
        optimizer_dtype=dtype_name,
        master_weights=False,
    )


def saved_checks(
    run: Training,
    measured: MeasuredStep,
    on_device: Callable[[SavedTensor], Quantity],
    *,
    routing: int = 0,
    seeds: int = 0,
) -> Iterator[Check]:
    """Check what each layer and what is outside of them saves.

    Raises NotSupportedError if what a kind of attention saves is not known.

    Args:
        on_device: returns the bytes of a predicted tensor on the device that was measured.
        routing: bytes per token by which a router may differ.
        seeds: bytes of the random number generator's state that a fused kernel may save.
    """
    (stage,) = run.stages
    saved = stage_saved(run, stage, stage.model.symbolic())
    recomputes = run.workload.recompute != "none"
    if recomputes:
        name = "saved_recompute"
        label = "recomputed"
    else:
        name = f"saved_{measured.kernel}"
        label = str(measured.kernel)
    for layer in _by_measured(saved.layers, measured):
        sizes = measured.layers[layer.group]
        if sizes:
            predicted = total(on_device(tensor) for tensor in layer.kept)
            largest = sorted(layer.kept, key=lambda t: -int(t.size))[:3]
            note = (
                "bytes that one layer saves, each storage once; the largest: "
                f"{', '.join(t.name for t in largest)}"
            )
            value = furthest(sizes, predicted)
            mlp = layer.layers.mlp
            if mlp and mlp.n_experts:
                tolerance = routing * run.workload.batch * run.workload.context
            else:
                tolerance = 0
            if measured.kernel != "math":
                tolerance += seeds
            failure = WRONG_SAVED + _unpredicted(
                measured.tensors[layer.group], map(on_device, layer.kept)
            )
            yield Check(
                SAVED, name, label, predicted, value, tolerance, BYTES, note, failure, layer.group
            )
    # the mask is an argument of recomputed layers, and autograd does not save it
    kept = (tensor for tensor in saved.outside if tensor.name != "causal mask")
    outside = quantity(total(map(on_device, kept)) + loss_bytes(run, saved))
    note = "token ids, last norm, input of the head, log-probabilities and labels of the loss"
    label = f"outside, {label}"
    yield Check(
        SAVED, f"{name}_outside", label, outside, measured.outside, 0, BYTES, note, WRONG_SAVED
    )


def _by_measured(layers: Sequence[LayerSaved], measured: MeasuredStep) -> Iterator[LayerSaved]:
    """Yield what layers save; several that are one layer of the class together."""
    joined = {name: group for group in measured.layers for name in group.split(JOINED)}
    for group in measured.layers:
        parts = [layer for layer in layers if joined.get(layer.group) == group]
        yield parts[-1]._replace(
            group=group, kept=tuple(tensor for layer in parts for tensor in layer.kept)
        )


def _unpredicted(tensors: Iterable[Recorded], predicted: Iterable[Quantity]) -> str:
    """Name the largest tensors that are saved and not predicted, by their sizes; '' if there are
    none.
    """
    expected = Counter(map(int, predicted))
    found = []
    for tensor in sorted(tensors, key=lambda tensor: -tensor.bytes):
        if not expected[tensor.bytes]:
            found.append(tensor.name)
        expected[tensor.bytes] -= 1
    if found:
        return f"; not predicted: {', '.join(found[:_MAX_NAMED])}"
    return ""


def size_on(device: str, run: Training) -> Callable[[SavedTensor], Quantity]:
    """Return a function from a predicted tensor to its bytes on a type of device.

    On a CPU the mean and deviation of a LayerNorm have the dtype of its input, and on a GPU they
    are in fp32.
    """
    is_halved = (
        device == "cpu" and run.model.main.norm == "layernorm" and dtype(run.dtype).bits == 16
    )

    def size(tensor: SavedTensor) -> Quantity:
        if is_halved and tensor.is_statistic and "norm" in tensor.name:
            return quantity(exact_div(tensor.size, 2))
        return quantity(tensor.size)

    return size


def loss_bytes(run: Training, saved: StageSaved) -> Quantity:
    """Return what the loss saves: log-probabilities, labels in int64, and their number.

    Labels are padded by one token and shifted; those of a single sequence stay a view of the longer
    tensor. Classes that compute the loss in the dtype of the activations take the token ids as they
    are.
    """
    vocabulary = run.stages[0].model.symbolic().vocab_size or 0
    if not class_math(run.model.model_type).upcasts_loss:
        return quantity((saved.tokens * vocabulary + 1) * (dtype(run.dtype).bits // 8))
    padding = 1 if run.workload.batch == 1 else 0
    return quantity(saved.tokens * vocabulary * 4 + (saved.tokens + padding) * 8 + 4)


def state_checks(run: Training, measured: MeasuredStep) -> Iterator[Check]:
    """Check the bytes of parameters, gradients and optimizer states."""
    held = states(run, run.stages[0])
    rows = (
        (
            "parameters",
            total((held.weights, held.frozen_weights)),
            measured.parameters,
            "storages of the parameters, tied ones once",
        ),
        ("gradients", held.gradients, measured.gradients, "after the backward pass"),
        ("optimizer_states", held.moments, measured.states, "AdamW's two moments after a step"),
    )
    failure = "the formula has other tensors than the model"
    for name, predicted, value, note in rows:
        yield Check(
            STATES,
            f"train_{name}",
            name.replace("_", " "),
            predicted,
            value,
            0,
            BYTES,
            note,
            failure,
        )


def peak_check(run: Training, measured: MeasuredStep) -> Iterator[Check]:
    if measured.peak is None:
        return
    budget = stage_budget(run, run.stages[0])
    held = budget.states
    parts = [
        (held.weights, "weights"),
        (held.moments, "moments"),
        *((p.size, p.name) for p in budget.peak.held),
    ]
    predicted = total(symbol(name, size, f"bytes of {name}") for size, name in parts)
    if run.workload.recompute != "none":
        name = "recompute"
        label = "step, recomputed"
    else:
        name = measured.kernel
        label = f"step, {measured.kernel}"
    note = f"forward, backward and optimizer: {budget.peak.name}"
    failure = "a tensor is held that the formula does not count, or one that it counts is not held"
    share = LAYER_TOLERANCE if "layer" in budget.peak.name else TOLERANCE
    tolerance = share * predicted
    yield Check(
        PEAK, f"peak_train_{name}", label, predicted, measured.peak, tolerance, BYTES, note, failure
    )
