"""The numbers of GPUs with which a request fits, the fewest first."""

from collections.abc import Iterator
from heapq import heappop, heappush

from ..errors import AttncalcError
from ..model import plural
from ..records import NamedTuple
from ..units import count
from .changes import HARDWARE, UNNOTICED, Change, works
from .fit import NO_LIMIT, possible_verdict, sure_sequences, with_other_gpus
from .request import FitRequest, ResolvedRequest, resolve


class _Option(NamedTuple):
    """A number of GPUs that may be enough. Options are sorted by their fields, in this order."""

    gpus: int  # the GPUs of all copies of the model
    crosses_nodes: bool  # whether one copy needs more GPUs than a node has
    has_more_replicas: bool  # whether it needs more copies than there are
    copy: int  # the GPUs of one copy
    change: Change


def more_gpus(resolved: ResolvedRequest, below: int = NO_LIMIT) -> Iterator[Change]:
    """Yield larger numbers of GPUs that are enough, the fewest first: --gpus 8 --tp 2, with as many
    copies of the model as the batch needs.

    Another split of the GPUs that are there counts too. Of equally many GPUs, those of one copy
    come before further copies, if it is in one node.

    Args:
        resolved: The request.
        below: Only smaller numbers of GPUs are tried.
    """
    # The GPUs of a copy only grow. So an option with fewer GPUs than the next copy is the next one,
    # and all others wait: one copy on 4 GPUs is tried before 8 copies on 1 GPU each.
    waiting: list[_Option] = []
    for request in with_other_gpus(resolved):
        copy = request.gpus or _gpus_of_copy(resolved)
        if copy >= below:
            break
        while waiting and waiting[0].gpus < copy:
            option = heappop(waiting)
            if _is_enough(option.change, resolved):
                yield option.change
        found = _option(request, copy, resolved)
        if found and found.gpus < below:
            heappush(waiting, found)
    while waiting:
        option = heappop(waiting)
        if _is_enough(option.change, resolved):
            yield option.change


def _gpus_of_copy(resolved: ResolvedRequest) -> int:
    """Return the GPUs that hold the model once, or all of them for an engine that splits it by
    layer.
    """
    if resolved.whole_layers:
        return resolved.gpus
    return resolved.devices * resolved.dp


def _option(request: FitRequest, copy: int, resolved: ResolvedRequest) -> _Option | None:
    """Return the option with as many copies as the batch needs; None if that is not more GPUs than
    there are, nor another split of these.

    Args:
        request: The request with one copy.
        copy: The GPUs of that copy.
        resolved: The request that is changed.
    """
    current = _gpus_of_copy(resolved)
    if copy < current or (resolved.whole_layers and copy == current):
        return None
    needed = _copies(request, resolved.request.workload.batch)
    if not needed:
        return None
    there = 1
    if not resolved.whole_layers and resolved.gpus % copy == 0:
        there = max(1, resolved.gpus // copy)
    gpus = copy * max(needed, there)
    # 32 GPUs as --tp 8 --pp 4 may hold what --tp 32 does not
    is_same_split = (request.tp, request.pp) == (resolved.args.tp, resolved.args.pp)
    is_one_copy = gpus == copy == current == resolved.gpus
    is_other_split = is_one_copy and not (resolved.whole_layers or is_same_split)
    if gpus <= resolved.gpus and not is_other_split:
        return None
    crosses_nodes = resolved.gpu is not None and copy > resolved.gpu.per_node
    change = _change_to(request, gpus, copy, resolved)
    return _Option(gpus, crosses_nodes, needed > there, copy, change)


def _copies(request: FitRequest, batch: int) -> int:
    """Return how many copies of the model hold the batch for sure; 0 if none do, or if the request
    is not possible.

    An engine that splits the model by layer has one copy.
    """
    try:
        resolved = resolve(request)
        if resolved.whole_layers:
            return int(possible_verdict(request) == "fits")
        sequences = sure_sequences(resolved)
        if sequences:
            return -(-batch // (sequences * resolved.replicas))
        return int(possible_verdict(request) == "fits")  # without a limit
    except AttncalcError:
        return 0


def _change_to(request: FitRequest, gpus: int, copy: int, resolved: ResolvedRequest) -> Change:
    """Return the change to so many GPUs, of which each copy of the model has `copy`."""
    if gpus == resolved.gpus:
        words = "another split of these GPUs"
    elif copy == _gpus_of_copy(resolved):
        words = plural(gpus // copy, "replica")
    elif copy == gpus:
        words = f"{count(gpus)} GPUs"
    else:
        words = f"{count(copy)} GPUs per replica"
    flag = f"--gpus {gpus}"
    if not resolved.whole_layers:
        flag += f" --tp {request.tp}"
    if request.pp > 1:
        flag += f" --pp {request.pp}"
    cost = HARDWARE
    if gpus <= (resolved.request.gpus_there or 0):
        cost = UNNOTICED
    return Change(words, flag, {"gpus": gpus, "tp": request.tp, "pp": request.pp}, cost=cost)


def _is_enough(change: Change, resolved: ResolvedRequest) -> bool:
    # `_copies` has tried whole layers
    return resolved.whole_layers or works(change, resolved.request)
