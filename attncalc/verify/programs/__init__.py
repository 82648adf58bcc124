"""The ways to verify a model on a device: each layer, over doubling contexts, or trained."""

from importlib import import_module

from ...check import VerifyResult
from ...model import ModelSpec
from ...units import count
from ..devices import Device
from ..errors import MemoryRanOutError
from ..progress import Progress
from ..request import MIN_CONTEXT, VerifyRequest

# If memory runs out, the context is divided by the first of these, then by the next; after the last
# it is an error.
DIVISORS = (1, 2, 4)


def verify(
    model: ModelSpec, request: VerifyRequest, device: Device, on_progress: Progress
) -> VerifyResult:
    """Run the request's program.

    If memory runs out, although the plan fits in what was free before, the program is planned and
    run anew: first with the same context, then with a half and a quarter of it.

    Raises CannotCheckError if there is not enough memory, or no kernel that runs.
    """
    note = ""
    asked = request
    for divisor in DIVISORS:
        try:
            result = _run(model, asked, device, on_progress)
            if note:
                return result._replace(limits=(*result.limits, note))
            return result
        except MemoryRanOutError as error:
            # without the frames, which hold tensors
            failed = MemoryRanOutError(error.message, error.tip)
        device.empty_cache()
        asked = request._replace(context=max(MIN_CONTEXT, request.context // divisor))
        note = f"{failed.message}. Repeated with a context of at most {count(asked.context)}."
    raise failed


def _run(
    model: ModelSpec, request: VerifyRequest, device: Device, on_progress: Progress
) -> VerifyResult:
    """Run the program: `verify_layers` in layers.py, for example, which is imported only then."""
    module = import_module(f".{request.program}", __name__)
    result: VerifyResult = getattr(module, f"verify_{request.program}")(
        model, request, device, on_progress
    )
    return result
