"""Bytes of the weights on one device: quantised matrices, all else in the model's own dtype, or as stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..attention import Matrix
from ..cost.common import Part, compute_dtype, group_name, sum_of
from ..cost.intensity import experts_read, routed_read, weights_read
from ..cost.params import params
from ..engines.llamacpp import layers_per_gpu
from ..engines.pipeline import cut, stage_sizes
from ..errors import AttncalcError
from ..model import Layers, ModelSpec, Stack
from ..quantity import Quantity, ceil_div, minimum, named, quantity, symbol, total
from ..units import DType, count, dtype
from ..workload import Workload

_AS_WEIGHTS = {
    "int8": DType("int8", 8, "an fp16 scale for each output channel", group=0, scale_bytes=2),
    "int4": DType("int4", 4, "an fp16 scale per 128 weights, no zero points", group=128, scale_bytes=2),
}
"""Weights are scaled otherwise than caches: as compressed-tensors' W8A8 and W4A16 schemes do by default."""
_MATRICES = {False: "matrices of attention and MLPs", True: "matrices of routed experts"}
"""What is quantised, in words: those of experts alone, or all."""
_QUANTISED = {"F8_E4M3": "fp8", "F8_E5M2": "fp8", "F8_E4M3FNUZ": "fp8", "F8_E5M2FNUZ": "fp8", "I8": "int8"}
"""What files hold that is multiplied as it is; elements that are packed into others are unpacked first."""


class Weights(NamedTuple):
    """Bytes of the weights on one device, of the pipeline stage that has most of them.

    dtype: what they are in, for people: 'fp8', 'the dtypes of its files'. parts: (name, label, figure) of
    what the formula names. notes: what is assumed.
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
    """The weights on one of the model's tp devices, of `pp` pipeline stages, or of that `part` of it alone.

    in_dtype: of the model, its own where None. weights_dtype: of the matrices of attention and MLPs, experts
    too, but of the routed experts alone where it is the model's experts_dtype; None for the model's, and where
    its safetensors files were read, for what they hold.
    The embedding is on the first stage, the head on the last. AttncalcError: a dtype that there is not,
    more stages than layers, stages of an encoder-decoder.
    """
    own = dtype(in_dtype or model.dtype, compute=True)
    stages = staged(model, pp) if part is None else [part]
    if as_stored(model, own, weights_dtype):
        most = max(int(params(stage).total) for stage in stages)
        return _stored(model, most, alone=model.tp == pp == 1 and part is None)
    packed = own if weights_dtype is None else as_weights(weights_dtype)
    alone = _experts_alone(model, weights_dtype)
    return max((_bytes(stage, packed, own, alone=alone) for stage in stages), key=lambda one: int(one.total))


def bytes_read(model: ModelSpec, workload: Workload, *, weights_dtype: str | None = None) -> Quantity:
    """Bytes of the weights that one step of the whole batch reads on one device, in what `weights` holds them in.

    Each once, but for an embedding's rows; of experts as many as the batch's tokens can pick. Of quantised files
    all but the matrices of attention and MLPs is taken to be in the model's dtype. AttncalcError: as `weights`.
    """
    own = compute_dtype(model, workload)
    width = symbol("bytes", own.bits // 8, f"bytes of a weight in {own.name}")
    read = named(weights_read(model, workload), "params_read", "parameters read in the step")
    stored = as_stored(model, own, weights_dtype)
    if stored and model.stored and model.stored.parameters:
        size = symbol("weights_stored", model.stored.size, "bytes of all tensors in its safetensors files")
        return quantity(read * size // symbol("elements", model.stored.parameters, "elements in its files"))
    packed = own if weights_dtype is None else as_weights(weights_dtype)
    alone = _experts_alone(model, weights_dtype)
    linear = _linear(model, lambda m: m.weights, workload, alone=alone)
    if not linear or (not stored and packed.name == own.name):
        return quantity(read * width)
    matrices = named(linear, "params_linear_read", f"of them in {_MATRICES[alone]}")
    if stored:
        narrow = _stored_linear(model, own, int(linear))
    else:
        narrow = _linear(model, lambda m: m.cols * packed.row_bytes(m.rows), workload, alone=alone, name="bytes_linear")
    return quantity(
        named(narrow, "bytes_linear_read", f"bytes of those matrices, in {packed.name if not stored else 'its files'}")
        + (read - matrices) * width
    )


def as_stored(model: ModelSpec, own: DType, weights_dtype: str | None) -> bool:
    """Whether the weights are taken to be as its files hold them: nobody asked for another dtype."""
    return weights_dtype is None and model.stored is not None and own.name == dtype(model.dtype).name


def _experts_alone(model: ModelSpec, weights_dtype: str | None) -> bool:
    """Whether that dtype is of the routed experts only: so the model is released."""
    return weights_dtype is not None and model.experts_dtype == dtype(weights_dtype).name


def multiplied_as(model: ModelSpec, own: DType, weights_dtype: str | None) -> DType:
    """The dtype by which a GPU decides what products run in: the one asked for, or that of most of its files."""
    if weights_dtype is not None:
        return dtype(weights_dtype)
    if as_stored(model, own, weights_dtype) and model.stored and model.stored.by_dtype:
        return dtype(_QUANTISED.get(model.stored.by_dtype[0].name, own.name))
    return own


def as_weights(name: str) -> DType:
    """The dtype called `name` as weights have it: their scales are not a cache's."""
    found = dtype(name)
    return _AS_WEIGHTS.get(found.name, found)


def staged(model: ModelSpec, pp: int, sizes: Callable[[int, int], Sequence[int]] = stage_sizes) -> list[ModelSpec]:
    """What each of `pp` pipeline stages holds, as a model of its own; sizes: how an engine cuts its layers.

    A head that is tied to the embedding has a copy of it on the last stage.
    AttncalcError: fewer layers than stages, or an encoder.
    """
    if pp == 1:
        return [model]
    if model.encoder:
        raise AttncalcError(
            f"--pp {pp}: an encoder-decoder has no pipeline stages here", "leave it out; --tp splits it"
        )
    layers = [dataclasses.replace(run, count=1) for run in model.main.layers for _ in range(run.count)]
    stages = cut(layers, sizes(len(layers), pp))
    return [_stage(model, tuple(stage), first=i == 0, last=i == pp - 1) for i, stage in enumerate(stages)]


def spread(model: ModelSpec, gpus: int) -> list[ModelSpec]:
    """What each of `gpus` GPUs that are alike holds in llama.cpp, as a model of its own.

    The embedding and other tables stay in host memory; the last GPU has the head, of a tied one a copy.
    Source: load_tensors (src/llama-model.cpp), dev_input and dev_output.
    """
    layers = [dataclasses.replace(run, count=1) for run in model.main.layers for _ in range(run.count)]
    parts = cut(layers, layers_per_gpu(len(layers), gpus))
    found = [_stage(model, tuple(part), first=False, last=i == gpus) for i, part in enumerate(parts, start=1)]
    found[-1] = dataclasses.replace(found[-1], extra=tuple(matrix for matrix in model.extra if matrix.applied_to))
    return found


def _stage(model: ModelSpec, layers: tuple[Layers, ...], *, first: bool, last: bool) -> ModelSpec:
    stack = dataclasses.replace(model.main, layers=layers)
    stack = dataclasses.replace(stack, layers=stack.distinct(), final_norm=last and stack.final_norm)
    head = model.head if last else None
    if not first:
        stack = dataclasses.replace(stack, learned_positions=None, relative_position_buckets=None, embedding_norm=False)
    if head and head.kind == "lm" and not first:  # its matrix is counted as the table that it is
        head = head._replace(tied=True)
    return dataclasses.replace(
        model,
        stacks=(stack,),
        head=head,
        vocab_size=model.vocab_size if first or (head and head.kind == "lm") else None,
        token_types=model.token_types if first else None,
        extra=model.extra if first else (),
        stored=None,
    )


def _linear(
    model: ModelSpec,
    size: Callable[[Matrix], int],
    step: Workload | None = None,
    *,
    alone: bool = False,
    name: str = "params_linear",
) -> Quantity:
    """The `size` of all matrices of attention and MLPs on a device, or of routed experts `alone`, in all layers
    together; or of those that a step reads, which reads shared ones in each layer.
    """
    symbols = model.symbolic()
    if step is None:
        groups = [(stack, layers) for stack, layers in symbols.groups() if not layers.shares_weights]
    else:
        groups = [(symbols.main, layers) for layers in symbols.main.distinct()]
    asked = step and step.symbolic()
    parts = []
    for stack, layers in groups:
        one = _matrices(symbols, stack, layers, size, asked, alone=alone)
        parts.append(Part(group_name(symbols, stack, layers), quantity(layers.count * one)))
    return sum_of(name, f"{name.partition('_')[0]} of {_MATRICES[alone]}", parts)


def _matrices(
    model: ModelSpec, stack: Stack, layers: Layers, size: Callable[[Matrix], int], step: Workload | None, *, alone: bool
) -> int:
    """The `size` of one layer's, without biases and vectors, routers and what stands beside."""
    expert = total(size(m) for m in layers.mlp.expert(stack.d_model)) if layers.mlp else 0
    if alone:
        if not layers.mlp or not layers.mlp.n_experts:
            return 0
        return expert * (routed_read(layers.mlp, step.batch) if step else layers.mlp.n_experts)
    own = layers.attention.matrices(stack.d_model, stack.d_model)
    cross = layers.cross.matrices(stack.d_model, model.d_source) if layers.cross else ()
    if step:  # keys and values of the source are in the cache already
        cross = tuple(m for m in cross if m.applied_to != "keys")
    found: int = total(size(m) for m in (*own, *cross) if m.applied_to)
    if layers.mlp:
        found += expert * (experts_read(layers.mlp, step.batch) if step else layers.mlp.experts_stored)
        found += total(size(m) for m in layers.mlp.shared(stack.d_model))
    return found


def _stored_linear(model: ModelSpec, own: DType, read: int) -> Quantity:
    """Bytes in its files of `read` weights of the matrices: as many of all their bytes, and never more than in `own`.

    Their bytes are what the ledger has, less all else in `own`; of files with less than that, as parameters divide.
    """
    everything, linear = params(model).total, _linear(model, lambda m: m.weights)
    held = named(weights(model, in_dtype=own.name).total, "weights", "bytes of the weights on the device")
    width = symbol("bytes", own.bits // 8, f"bytes of a weight in {own.name}")
    share = symbol("params_linear_read", read, "weights read in matrices of attention and MLPs")
    whole = named(linear, "params_linear", "weights in matrices of attention and MLPs")
    among = named(everything, "params", "parameters on the device")
    beside = (among - whole) * width
    found = share * (held - beside) // whole if int(held) > int(beside) else share * held // among
    return quantity(minimum(found, share * width))


def _bytes(model: ModelSpec, packed: DType, own: DType, *, alone: bool) -> Weights:
    everything, linear = params(model).total, _linear(model, lambda m: m.weights, alone=alone)
    width = symbol("bytes", own.bits // 8, f"bytes of a weight in {own.name}")
    held = named(everything, "params", "parameters on the device")
    parts = [("params_on_device", "parameters on the device", everything)]
    if packed.name == own.name or not linear:
        return Weights(quantity(held * width), own.name, tuple(parts), ())
    matrices = named(linear, "params_linear", f"of them in {_MATRICES[alone]}")
    parts.append(("params_linear", f"of them in {_MATRICES[alone]}", linear))
    if packed.group is None:
        of_matrices: int = matrices * symbol("bytes_linear", packed.bits // 8, f"bytes of one in {packed.name}")
    else:
        of_matrices = _linear(model, lambda m: m.cols * packed.row_bytes(m.rows), alone=alone, name="bytes_linear")
        parts.append(("bytes_linear", f"those matrices in {packed.name}", quantity(of_matrices)))
        of_matrices = named(of_matrices, "bytes_linear", f"bytes of those matrices in {packed.name}")
    rest = "all else stays" if alone else "embedding, head, routers, norms and biases stay"
    note = (
        f"Weights: {packed.name} ({packed.meaning if packed.group is not None else packed.note}) is taken for the "
        f"{_MATRICES[alone]}; {rest} in {own.name}."
    )
    return Weights(quantity(of_matrices + (held - matrices) * width), packed.name, tuple(parts), (note,))


def _stored(model: ModelSpec, on_device: int, *, alone: bool) -> Weights:
    """What its files hold, over the devices as the parameters divide."""
    size = model.stored.size if model.stored else 0
    stored = symbol("weights_stored", size, "bytes of all tensors in its safetensors files")
    words = "as stored"
    if alone:
        return Weights(stored, words, (), ("Weights: the bytes of all tensors in its safetensors files.",))
    whole = int(params(dataclasses.replace(model, tp=1)).total)
    share = named(on_device, "params_on_device", "parameters on the device")
    each = ceil_div(stored * share, named(whole, "params_total", "parameters of the whole model"))
    note = (
        f"Weights: the bytes of its safetensors files, divided as the parameters are: {count(on_device)} of "
        f"{count(whole)} on this device."
    )
    return Weights(quantity(each), words, (), (note,))
