"""The least that an engine must leave on the host so that a request fits: layers, or the experts of
layers.
"""

from ..engines import find_engine
from ..engines.engine import AUTO
from ..search import first_true
from .fit import possible_verdict
from .request import FitRequest, resolve


def least_offload(request: FitRequest, option: str) -> int | None:
    """Return the value of an option of `Engine.offload_options` with the least on the host that
    fits for sure.

    None if the option has no effect on the model, and if it does not fit with the most on the host.
    """
    return request.kept(("offload", option), lambda: _least_offload(request, option))


def _least_offload(request: FitRequest, option: str) -> int | None:
    values = _values(request, option)

    def fits(i: int) -> bool:
        # Without a limit of host memory: more on the host leaves the GPUs more room, and the host
        # less.
        return _fits(request.with_engine_args(ram=None, **{option: values[i]}))

    if not values:
        return None
    least = 0
    if not fits(0):  # asked first: with nothing on the host, no GPU copies matrices from there
        last = len(values) - 1
        if not fits(last):
            return None
        least = first_true(fits, 0, last)
    found = request.with_engine_args(**{option: values[least]})
    if request.engine_args.get("ram") is None or _fits(found):
        return values[least]
    return None


def _fits(request: FitRequest) -> bool:
    return possible_verdict(request) == "fits"


def with_least_offload(request: FitRequest, option: str) -> FitRequest | None:
    """Return the request with the least on the host; None if nothing needs to be, or the most is
    not enough.
    """
    value = least_offload(request, option)
    if value is None or value == _values(request, option)[0]:
        return None
    return request.with_engine_args(**{option: value})


def with_auto_offload(request: FitRequest) -> FitRequest:
    """Return the request with a number for 'auto' of an offload option: all on GPUs if nothing else
    fits.

    For an engine without the option 'auto' stays, which that engine rejects, and so it does with
    engine 'all', of which each engine's request is completed.

    Raises AttncalcError as `resolve` does.
    """
    auto = {name for name, value in request.engine_args.items() if value == AUTO}
    if not auto or request.engine == "all":
        return request
    for option in auto & find_engine(request.engine).offload_options.keys():
        found = with_least_offload(request.with_engine_args(**{option: None}), option)
        request = request.with_engine_args(**{option: found.engine_args[option] if found else None})
    return request


def _values(request: FitRequest, option: str) -> range:
    resolved = resolve(request)
    return resolved.engine.offload_values(option, request.model, resolved.args)
