"""The ways to verify a model on a device: each layer, each over doubling contexts, each split over ranks."""

from __future__ import annotations

from collections.abc import Callable

from ...check import VerifyResult
from ...model import ModelSpec
from ..devices import Device
from ..options import VerifyOptions
from ..request import VerifyRequest

OnProgress = Callable[[str], None]
"""Called with the description of the current step, for a progress bar."""


def verify(
    model: ModelSpec, options: VerifyOptions, request: VerifyRequest, device: Device, on_progress: OnProgress
) -> VerifyResult:
    """Run the program that the options select. `request` is `resolve(model, options, device)`.

    Raises CannotCheckError if there is not enough memory, or no kernel that runs.
    """
    if options.program == "scaling":
        from .scaling import verify_scaling

        return verify_scaling(model, request, device, on_progress=on_progress)
    if options.program == "tensor_parallel":
        from .tensor_parallel import verify_tensor_parallel

        return verify_tensor_parallel(model, options.tp, request, device, on_progress=on_progress)
    from .layers import verify_layers

    return verify_layers(model, request, device, timed=options.timed, on_progress=on_progress)
