"""What llama.cpp puts on each GPU, of models that no request describes."""

import dataclasses

from attncalc import ModelSpec
from attncalc.engines.llamacpp.offload import device_parts
from attncalc.engines.llamacpp.options import LlamacppArgs
from attncalc.units import dtype


def spread_over_gpus(
    model: ModelSpec, gpus: int, args: LlamacppArgs | None = None
) -> list[ModelSpec]:
    """Return the part of each GPU; without arguments all layers are on equal ones."""
    blocks = model.stored.blocks if model.stored else None
    args = args or LlamacppArgs(
        dtype("fp16"), dtype("fp16"), blocks=blocks, model_type=model.model_type
    )
    return device_parts(model, dataclasses.replace(args, gpus=gpus))[1:]
