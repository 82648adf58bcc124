"""What llama.cpp puts on each GPU and on the host: layers as models of their own, with the tensors
of a GGUF file.
"""

import dataclasses
import itertools

from ...model import ModelSpec
from ..expert_parallel import without_routed
from ..pipeline import parts_of
from .options import LlamacppArgs
from .placement import HOST, Placement, placement_of
from .tensors import cuda_bytes, host_bytes, placed_by, tensors_of


def device_parts(model: ModelSpec, args: LlamacppArgs) -> list[ModelSpec]:
    """Return the part of the model in host memory, and then that of each GPU.

    The embedding and other tables stay in host memory. The GPU with the output layer has the head;
    a tied one is a copy there. A part of a GGUF file has `stored`, the tensors on that device:
    bytes of a CUDA buffer, or mapped ones.

    Metal maps the file from the first to the last tensor of the GPU. A tied head is the token
    embedding, the first tensor, so Gemma 4 E4B's table of layer inputs is mapped too: all 7,798 MiB
    of a file in q8_0 are, as logged.
    """
    is_metal = args.device.startswith("Apple")
    placed = placement_of(model.main.n_layers, args)
    key = ("device_parts", is_metal, placed, *placed_by(model.main.n_layers, args))
    return model.kept(key, lambda: _device_parts(model, args, placed, is_metal=is_metal))


def _device_parts(
    model: ModelSpec, args: LlamacppArgs, placed: Placement, *, is_metal: bool
) -> list[ModelSpec]:
    output = placed.output - HOST
    parts = parts_of(model, placed.counts(), output=output, numbered=args.moves_experts)
    if output:
        matrices = model.extra
        if not (is_metal and model.head is not None and model.head.tied):
            matrices = tuple(matrix for matrix in model.extra if matrix.applied_to)
        parts[output] = dataclasses.replace(parts[output], extra=matrices)
    if not model.stored or not model.stored.contents:
        return parts
    devices = tensors_of(model, args)
    for i, device in enumerate(range(HOST, args.gpus)):
        tensors = devices[device]
        if device == HOST or is_metal:
            size = host_bytes(tensors, args)
        else:
            size = cuda_bytes(tensors)
        stored = model.stored._replace(
            tensors=len(tensors), by_dtype=(), size=size, contents=tuple(tensors)
        )
        parts[i] = dataclasses.replace(parts[i], stored=stored)
    return parts


def held_layers(part: ModelSpec, args: LlamacppArgs) -> ModelSpec:
    """Return the layers of a GPU's part without the experts that an option puts on the host."""
    if not args.moves_experts or part.stored is not None:
        return part
    layers = []
    number = part.first_layer
    for group in part.main.layers:
        for on_host, run in itertools.groupby(
            range(number, number + group.count), args.has_experts_on_host
        ):
            equal = dataclasses.replace(group, count=len(list(run)))
            # the router and the shared experts are left
            if on_host and equal.mlp and equal.mlp.n_experts:
                equal = dataclasses.replace(equal, mlp=without_routed(equal.mlp))
            layers.append(equal)
        number += group.count
    return dataclasses.replace(part, stacks=(dataclasses.replace(part.main, layers=tuple(layers)),))
