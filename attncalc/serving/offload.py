"""What llama.cpp puts on each GPU and on the host: layers as models of their own, with the tensors of a GGUF file."""

from __future__ import annotations

import dataclasses

from ..checkpoint import CheckpointWeights
from ..engines.base import EngineArgs
from ..engines.llamacpp.options import LlamacppArgs
from ..engines.llamacpp.placement import HOST, placement_of
from ..engines.llamacpp.tensors import cuda_bytes, mapped_bytes, tensors_of
from ..model import Layers, ModelSpec
from .expert_parallel import without_routed
from .stages import parts_of


def spread_over_gpus(model: ModelSpec, gpus: int, args: EngineArgs | None = None) -> list[ModelSpec]:
    """Return the model that each of `gpus` GPUs has in llama.cpp.

    The embedding and other tables stay in host memory. The GPU with the output layer has the head; a tied one is a copy
    there. A part of a GGUF file has `stored`, the tensors on that GPU.

    Args:
        model: The whole model.
        gpus: The number of GPUs.
        args: The arguments, of which those that place layers are used; None puts all layers on equal GPUs.
    """
    return _parts(model, gpus, args)[1:]


def on_host(model: ModelSpec, gpus: int, args: EngineArgs) -> ModelSpec:
    """Return the layers that llama.cpp has in host memory, with the embedding and other tables."""
    return _parts(model, gpus, args)[0]


def _parts(model: ModelSpec, gpus: int, args: EngineArgs | None) -> list[ModelSpec]:
    """Return the part of the host, and then that of each GPU."""
    args = _arguments(model, gpus, args)
    placed = placement_of(model.main.n_layers, args)
    numbered = args.n_cpu_moe > 0
    models = parts_of(model, placed.counts(), embedding_first=True, numbered=numbered)
    for i, part in enumerate(models):
        has_output = placed.output == i - 1
        head = model.head if has_output else None
        if head and head.kind == "lm" and i:  # `vocab_size` counts its matrix, so the head must not do so again
            head = head._replace(tied=True)
        stack = dataclasses.replace(part.main, final_norm=has_output and model.main.final_norm)
        matrices = tuple(matrix for matrix in model.extra if matrix.applied_to)
        extra = part.extra if not i else matrices if has_output else ()
        models[i] = dataclasses.replace(
            part,
            stacks=(stack,),
            head=head,
            vocab_size=model.vocab_size if not i or (head and head.kind == "lm") else None,
            extra=extra,
        )
    if model.stored and model.stored.contents:
        return _with_tensors(models, model, model.stored, args)
    return models


def _arguments(model: ModelSpec, gpus: int, args: EngineArgs | None) -> LlamacppArgs:
    if args is None:
        from ..units import dtype

        blocks = model.stored.blocks if model.stored else None
        args = LlamacppArgs(dtype("fp16"), dtype("fp16"), blocks=blocks, model_type=model.model_type)
    return dataclasses.replace(_own(args), gpus=gpus)


def _own(args: EngineArgs) -> LlamacppArgs:
    """Return llama.cpp's arguments, the only ones that divide a model between GPUs and host."""
    if not isinstance(args, LlamacppArgs):
        raise TypeError(f"{type(args).__name__} are not llama.cpp's arguments")
    return args


def _with_tensors(
    models: list[ModelSpec], whole: ModelSpec, stored: CheckpointWeights, args: LlamacppArgs
) -> list[ModelSpec]:
    """Return the parts with the tensors of the file on each device: bytes of a CUDA buffer, or mapped ones."""
    devices = tensors_of(whole, args)
    parts = []
    for model, device in zip(models, range(HOST, args.gpus), strict=True):
        tensors = devices[device]
        size = mapped_bytes(tensors) if device == HOST else cuda_bytes(tensors)
        part = stored._replace(tensors=len(tensors), by_dtype=(), size=size, contents=tuple(tensors))
        parts.append(dataclasses.replace(model, stored=part))
    return parts


def held_layers(part: ModelSpec, args: EngineArgs) -> ModelSpec:
    """Return the layers of a GPU's part without the experts that --n-cpu-moe puts on the host."""
    args = _own(args)
    if not args.n_cpu_moe or part.stored is not None:
        return part
    layers = []
    number = part.first_layer
    for group in part.main.layers:
        on_cpu = max(0, min(args.n_cpu_moe - number, group.count))
        if on_cpu:
            layers.append(_without_experts(dataclasses.replace(group, count=on_cpu)))
        if on_cpu < group.count:
            layers.append(dataclasses.replace(group, count=group.count - on_cpu))
        number += group.count
    return dataclasses.replace(part, stacks=(dataclasses.replace(part.main, layers=tuple(layers)),))


def _without_experts(layers: Layers) -> Layers:
    """Return layers of which only the router and the shared experts are left of a mixture."""
    if layers.mlp is None or not layers.mlp.n_experts:
        return layers
    return dataclasses.replace(layers, mlp=without_routed(layers.mlp))
