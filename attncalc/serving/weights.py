"""Bytes of the weights on one device: those that it holds, and those that a step reads.

Matrices of attention and MLPs may be quantized; everything else is in the model's own dtype. If a model's safetensors
files were read, its weights are as large as the files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from ..attention import Matrix
from ..cost.common import Part, compute_dtype, group_name, sum_over_groups
from ..cost.intensity import experts_read, routed_read, weights_read
from ..cost.params import params
from ..model import Layers, ModelSpec, Stack
from ..quantity import Quantity, ceil_div, minimum, named, quantity, symbol, total
from ..units import DType, count, dtype
from ..workload import Workload
from .stages import split_into_stages

_AS_WEIGHTS = {
    "int8": DType("int8", 8, "an fp16 scale for each output channel", group=0, scale_bytes=2),
    "int4": DType("int4", 4, "an fp16 scale per 128 weights, no zero points", group=128, scale_bytes=2),
}
"""Dtypes whose scales differ from a cache's: those of compressed-tensors' W8A8 and W4A16 schemes by default."""
_MATRICES = {False: "matrices of attention and MLPs", True: "matrices of routed experts"}
"""What is quantized, in words; by whether it is the experts only."""
_QUANTIZED = {"F8_E4M3": "fp8", "F8_E5M2": "fp8", "F8_E4M3FNUZ": "fp8", "F8_E5M2FNUZ": "fp8", "I8": "int8"}
"""Dtypes of files that are multiplied as they are. Packed elements, as int4 in I32, are unpacked first."""


class Weights(NamedTuple):
    """The weights on one device; with pipeline stages, on the stage that has most of them.

    Attributes:
        total: Bytes.
        dtype: Their dtype in words: 'fp8', 'as stored'.
        parts: (name, label, figure) of what the formula names.
        notes: What is assumed, as sentences.
    """

    total: Quantity
    dtype: str
    parts: tuple[tuple[str, str, Quantity], ...]
    notes: tuple[str, ...]


def weights(
    model: ModelSpec,
    *,
    pp: int = 1,
    part: ModelSpec | None = None,
    in_dtype: str | None = None,
    weights_dtype: str | None = None,
) -> Weights:
    """Return the weights on one device.

    Args:
        model: One tensor-parallel device's share.
        pp: Pipeline stages.
        part: The layers of one stage or GPU, instead of `pp`.
        in_dtype: The model's dtype; None for its own.
        weights_dtype: The dtype of the matrices of attention and MLPs, or of the routed experts only if it is the
            model's experts_dtype. None for the model's dtype, or for the dtypes of its safetensors files.

    Raises AttncalcError if a dtype is unknown, or the model cannot be split into stages.
    """
    model_dtype = dtype(in_dtype or model.dtype, compute=True)
    stages = split_into_stages(model, pp) if part is None else [part]
    if is_stored(model, model_dtype, weights_dtype):
        most_params = max(int(params(stage).total) for stage in stages)
        return _as_stored(model, most_params, whole=model.tp == pp == 1 and part is None)
    matrix_dtype = model_dtype if weights_dtype is None else as_weights(weights_dtype)
    experts_only = _experts_only(model, weights_dtype)
    return max(
        (_quantized(stage, matrix_dtype, model_dtype, experts_only=experts_only) for stage in stages),
        key=lambda stage: int(stage.total),
    )


def bytes_read(model: ModelSpec, workload: Workload, *, weights_dtype: str | None = None) -> Quantity:
    """Return the bytes of weights that one step of the whole batch reads on one device.

    Each weight is read once, except that an embedding is read by rows, and that only as many experts are read as the
    batch's tokens can pick. In quantized files everything but the matrices of attention and MLPs is assumed to be in
    the model's dtype. Raises AttncalcError as `weights` does.
    """
    model_dtype = compute_dtype(model, workload)
    width = symbol("bytes", model_dtype.bits // 8, f"bytes of a weight in {model_dtype.name}")
    read = named(weights_read(model, workload), "params_read", "parameters read in the step")
    stored = is_stored(model, model_dtype, weights_dtype)
    if stored and model.stored and model.stored.parameters:
        size = symbol("weights_stored", model.stored.size, "bytes of all tensors in its safetensors files")
        return quantity(read * size // symbol("elements", model.stored.parameters, "elements in its files"))
    matrix_dtype = model_dtype if weights_dtype is None else as_weights(weights_dtype)
    experts_only = _experts_only(model, weights_dtype)
    in_matrices = _matrices_total(model, lambda m: m.weights, workload, experts_only=experts_only)
    if not in_matrices or (not stored and matrix_dtype.name == model_dtype.name):
        return quantity(read * width)
    matrices = named(in_matrices, "params_linear_read", f"of them in {_MATRICES[experts_only]}")
    if stored:
        matrix_bytes, held_in = _stored_matrix_bytes(model, model_dtype, int(in_matrices)), "its files"
    else:
        matrix_bytes, held_in = (
            _matrices_total(
                model,
                lambda m: m.cols * matrix_dtype.row_bytes(m.rows),
                workload,
                experts_only=experts_only,
                name="bytes_linear",
            ),
            matrix_dtype.name,
        )
    return quantity(
        named(matrix_bytes, "bytes_linear_read", f"bytes of those matrices, in {held_in}") + (read - matrices) * width
    )


def is_stored(model: ModelSpec, model_dtype: DType, weights_dtype: str | None) -> bool:
    """Return whether the weights are as in the model's files: no other dtype was given."""
    return weights_dtype is None and model.stored is not None and model_dtype.name == dtype(model.dtype).name


def _experts_only(model: ModelSpec, weights_dtype: str | None) -> bool:
    """Return whether that dtype is of the routed experts only, as the model was released (gpt-oss)."""
    return weights_dtype is not None and model.experts_dtype == dtype(weights_dtype).name


def multiplied_as(model: ModelSpec, model_dtype: DType, weights_dtype: str | None) -> DType:
    """Return the dtype that decides what products run in: the given one, or that of most of the model's files."""
    if weights_dtype is not None:
        return dtype(weights_dtype)
    if is_stored(model, model_dtype, weights_dtype) and model.stored and model.stored.by_dtype:
        return dtype(_QUANTIZED.get(model.stored.by_dtype[0].name, model_dtype.name))
    return model_dtype


def as_weights(name: str) -> DType:
    """Return the dtype of that name for weights: their scales differ from a cache's."""
    cache_dtype = dtype(name)
    return _AS_WEIGHTS.get(cache_dtype.name, cache_dtype)


def _matrices_total(
    model: ModelSpec,
    size: Callable[[Matrix], int],
    step: Workload | None = None,
    *,
    experts_only: bool = False,
    name: str = "params_linear",
) -> Quantity:
    """Return the sum of `size` over the matrices of attention and MLPs of all layers on a device.

    Args:
        model: One device's share.
        size: Returns the parameters, or the bytes, of one matrix.
        step: Count the matrices that this step reads: one that layers share once per layer. None counts each once.
        experts_only: Only the matrices of routed experts.
        name: The name of the sum in formulas.
    """
    symbols = model.symbolic()
    if step is None:
        groups = [(stack, layers) for stack, layers in symbols.groups() if not layers.shares_weights]
    else:
        groups = [(symbols.main, layers) for layers in symbols.main.distinct()]
    symbolic_step = step and step.symbolic()
    parts = []
    for stack, layers in groups:
        per_layer = _layer_matrices(symbols, stack, layers, size, symbolic_step, experts_only=experts_only)
        parts.append(Part(group_name(symbols, stack, layers), quantity(layers.count * per_layer)))
    return sum_over_groups(name, f"{name.partition('_')[0]} of {_MATRICES[experts_only]}", parts)


def _layer_matrices(
    model: ModelSpec,
    stack: Stack,
    layers: Layers,
    size: Callable[[Matrix], int],
    step: Workload | None,
    *,
    experts_only: bool,
) -> int:
    """Return the sum of `size` over one layer's matrices; biases, vectors and routers are not quantized."""
    expert = total(size(m) for m in layers.mlp.expert(stack.d_model)) if layers.mlp else 0
    if experts_only:
        if not layers.mlp or not layers.mlp.n_experts:
            return 0
        return expert * (routed_read(layers.mlp, step.batch) if step else layers.mlp.n_experts)
    attention = layers.attention.matrices(stack.d_model, stack.d_model)
    cross = layers.cross.matrices(stack.d_model, model.d_source) if layers.cross else ()
    if step:  # K and V of the source are in the cache already
        cross = tuple(m for m in cross if m.applied_to != "keys")
    layer_total: int = total(size(m) for m in (*attention, *cross) if m.applied_to)
    if layers.mlp:
        layer_total += expert * (experts_read(layers.mlp, step.batch) if step else layers.mlp.experts_stored)
        layer_total += total(size(m) for m in layers.mlp.shared(stack.d_model))
    return layer_total


def _stored_matrix_bytes(model: ModelSpec, model_dtype: DType, read: int) -> Quantity:
    """Return the bytes in the model's files of `read` weights of its matrices, at most as many as in `model_dtype`.

    All matrices together have the bytes of the budget, less everything else in `model_dtype`. Files that are smaller
    than everything else are divided as the parameters are.
    """
    all_params, in_matrices = params(model).total, _matrices_total(model, lambda m: m.weights)
    on_device = named(weights(model, in_dtype=model_dtype.name).total, "weights", "bytes of the weights on the device")
    width = symbol("bytes", model_dtype.bits // 8, f"bytes of a weight in {model_dtype.name}")
    matrices_read = symbol("params_linear_read", read, "weights read in matrices of attention and MLPs")
    matrices = named(in_matrices, "params_linear", "weights in matrices of attention and MLPs")
    everything = named(all_params, "params", "parameters on the device")
    rest = (everything - matrices) * width
    part, whole = (on_device - rest, matrices) if int(on_device) > int(rest) else (on_device, everything)
    return quantity(minimum(matrices_read * part // whole, matrices_read * width))


def _quantized(model: ModelSpec, matrix_dtype: DType, model_dtype: DType, *, experts_only: bool) -> Weights:
    """Return the weights with matrices in `matrix_dtype`, and everything else in `model_dtype`."""
    all_params = params(model).total
    in_matrices = _matrices_total(model, lambda m: m.weights, experts_only=experts_only)
    width = symbol("bytes", model_dtype.bits // 8, f"bytes of a weight in {model_dtype.name}")
    everything = named(all_params, "params", "parameters on the device")
    parts = [("params_on_device", "parameters on the device", all_params)]
    if matrix_dtype.name == model_dtype.name or not in_matrices:
        return Weights(quantity(everything * width), model_dtype.name, tuple(parts), ())
    matrices = named(in_matrices, "params_linear", f"of them in {_MATRICES[experts_only]}")
    parts.append(("params_linear", f"of them in {_MATRICES[experts_only]}", in_matrices))
    if matrix_dtype.group is None:
        in_bytes = symbol("bytes_linear", matrix_dtype.bits // 8, f"bytes of one in {matrix_dtype.name}")
        matrix_bytes: int = matrices * in_bytes
    else:
        exact = _matrices_total(
            model,
            lambda m: m.cols * matrix_dtype.row_bytes(m.rows),
            experts_only=experts_only,
            name="bytes_linear",
        )
        parts.append(("bytes_linear", f"those matrices in {matrix_dtype.name}", exact))
        matrix_bytes = named(exact, "bytes_linear", f"bytes of those matrices in {matrix_dtype.name}")
    rest = "everything else" if experts_only else "embedding, head, routers, norms and biases"
    layout = matrix_dtype.meaning if matrix_dtype.group is not None else matrix_dtype.note
    note = (
        f"Weights: {matrix_dtype.name} ({layout}) is assumed for the {_MATRICES[experts_only]}, {model_dtype.name} for "
        f"{rest}."
    )
    size = quantity(matrix_bytes + (everything - matrices) * width)
    return Weights(size, matrix_dtype.name, tuple(parts), (note,))


def _as_stored(model: ModelSpec, on_device: int, *, whole: bool) -> Weights:
    """Return the bytes of the model's files, divided over the devices as its parameters are."""
    size = model.stored.size if model.stored else 0
    stored = symbol("weights_stored", size, "bytes of all tensors in its safetensors files")
    if whole:
        return Weights(stored, "as stored", (), ("Weights: the bytes of all tensors in its safetensors files.",))
    all_params = int(params(dataclasses.replace(model, tp=1)).total)
    share = named(on_device, "params_on_device", "parameters on the device")
    per_device = ceil_div(stored * share, named(all_params, "params_total", "parameters of the whole model"))
    note = (
        f"Weights: the bytes of its safetensors files, divided as the parameters are: {count(on_device)} of "
        f"{count(all_params)} on this device."
    )
    return Weights(quantity(per_device), "as stored", (), (note,))
