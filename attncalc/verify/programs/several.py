"""Verify several models within one limit of time: the cheapest first, until the time is used."""

import math
from collections.abc import Iterator, Mapping, Sequence

from ...check import VerifyResult
from ...errors import CannotCheckError
from ...model import ModelSpec
from ...units import duration
from ..devices import Device
from ..errors import DeviceFailedError
from ..progress import Models, Progress
from ..request import MIN_CONTEXT, VerifyRequest
from ..time_plan import predicted_steps
from . import verify

# A context is not shortened if it takes at most this many times as long as the shortest one.
SLACK = 1.25
# The rounding of sums must not shorten a context that just fits.
ROUNDING = 1 + 1e-9


def verify_several(
    asked: Sequence[tuple[ModelSpec, VerifyRequest]], device: Device, on_progress: Progress
) -> Iterator[tuple[int, VerifyResult]]:
    """Yield the number of each model and its result as they come. Models that the time does not
    reach are left out.

    Each gets what its shortest context needs, and the same share of what longer contexts take
    beyond that as all others that are left. What earlier models took corrects what later ones are
    expected to take.

    A model that cannot be verified has no checks, and a note that says why. Of one that is
    interrupted, or ended by an error of the device, what it has measured comes before the error. A
    single model has all the time, and its own errors.
    """
    if len(asked) == 1:
        ((model, request),) = asked
        for result in _verified(model, request, device, on_progress):
            yield 0, result
        return
    started = on_progress.clock()
    with device.session(0):
        estimates = [_estimate(model, request, device) for model, request in asked]
    for i, found in enumerate(estimates):
        if isinstance(found, CannotCheckError):
            yield i, _unchecked(found, asked[i][1])
    times = {
        i: found for i, found in enumerate(estimates) if not isinstance(found, CannotCheckError)
    }
    if times:
        yield from _cheapest_first(asked, times, device, on_progress, started)


def _cheapest_first(
    asked: Sequence[tuple[ModelSpec, VerifyRequest]],
    times: Mapping[int, tuple[float, float]],
    device: Device,
    on_progress: Progress,
    started: float,
) -> Iterator[tuple[int, VerifyResult]]:
    """Yield the results of the models that have estimates: the seconds of each, and of its shortest
    context.
    """
    expected, least = ({i: pair[n] for i, pair in times.items()} for n in (0, 1))
    order = sorted(expected, key=expected.__getitem__)
    limit = asked[0][1].seconds or math.inf
    deadline = started + limit
    needed = min(least.values()) + on_progress.clock() - started  # the estimates took time too
    if needed > limit:
        raise CannotCheckError(
            f"no model can be checked in {duration(limit)}: the quickest needs about "
            f"{duration(needed)}",
            "give more --minutes",
        )
    for number, i in enumerate(order, 1):
        pace = on_progress.correction()
        left = deadline - on_progress.clock()
        if least[i] * pace > left:
            continue
        ahead = order[number - 1 :]
        beyond = sum(expected[j] - least[j] for j in ahead)
        if beyond:
            share = min(1.0, max(0.0, left / pace - sum(least[j] for j in ahead)) / beyond)
        else:
            share = 1.0
        seconds = max(SLACK * least[i], least[i] + share * (expected[i] - least[i]))
        later = sum(least[j] + share * (expected[j] - least[j]) for j in order[number:])
        on_progress.models = Models(number, len(order), later, deadline)
        model, request = asked[i]
        request = request._replace(seconds=seconds * ROUNDING)
        try:
            for result in _verified(model, request, device, on_progress):
                yield i, result
        except DeviceFailedError:
            raise
        except CannotCheckError as error:
            yield i, _unchecked(error, request)


def _unchecked(error: CannotCheckError, request: VerifyRequest) -> VerifyResult:
    """Return the result of a model that cannot be verified: no checks, and a note that says why."""
    return VerifyResult((), skipped=(f"{error.message}.",), context=request.context)


def _estimate(
    model: ModelSpec, request: VerifyRequest, device: Device
) -> tuple[float, float] | CannotCheckError:
    """Return the seconds of a model, and of its shortest context; or why it cannot be verified."""
    shortest = request._replace(context=MIN_CONTEXT)
    try:
        return sum(predicted_steps(model, request, device)), sum(
            predicted_steps(model, shortest, device)
        )
    except CannotCheckError as error:
        return error


def _verified(
    model: ModelSpec, request: VerifyRequest, device: Device, on_progress: Progress
) -> Iterator[VerifyResult]:
    """Yield the result; if it ends early, first what was measured until then."""
    on_progress.result = None
    try:
        result = verify(model, request, device, on_progress)
        on_progress.finish()
        yield result
    except (KeyboardInterrupt, DeviceFailedError) as error:
        found = on_progress.result
        if found:
            if isinstance(error, KeyboardInterrupt):
                why = "Interrupted"
            else:
                why = error.message
            yield found._replace(
                limits=(*found.limits, f"{why}: the rest of this model was not checked.")
            )
        raise
