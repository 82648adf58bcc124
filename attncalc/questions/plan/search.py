"""The search of a plan: the replicas of every model, kind of GPU, dtype and split."""

import math
from collections.abc import Callable, Iterable, Sequence

from ...errors import AttncalcError
from ...records import NamedTuple
from ...serving.request import FitRequest, resolve
from ...serving.weights import weights
from ...units import count
from .candidates import Candidate, replica
from .space import Space, Split, splits

# Candidates of the largest plan.
MOST_CANDIDATES = 1_000_000


class Refused(NamedTuple):
    """Why no split of a model starts on a kind of GPU, in the words of `fit`."""

    model: str  # the model's name
    gpu: str  # the kind of GPU
    reason: str  # why the first split that was tried does not start
    tip: str  # what to do instead
    # whether no split starts; otherwise the others do not hold the weights and one request
    is_whole: bool


class Found(NamedTuple):
    requests: tuple[FitRequest, ...]  # what was asked, per model, GPU and dtype
    candidates: tuple[Candidate, ...]  # the replicas that may fit and serve at least one request
    tried: int  # how many splits were computed
    pruned: int  # how many splits were left out, because their weights alone exceed the memory
    refused: tuple[Refused, ...]  # for each request of which no split is possible
    complete: bool  # whether the search ended; False after Ctrl-C


def search(
    requests: Sequence[FitRequest], space: Space, on_step: Callable[[str], None] = lambda _: None
) -> Found:
    """Return the replicas of every request and split; after Ctrl-C those found so far.

    Each request has a model, GPU and dtype, users' requests and no split; `on_step` is told what is
    computed now. Raises AttncalcError if there are more than MOST_CANDIDATES, or none is possible.
    """
    size = len(requests) * math.prod(len(sizes) for sizes in space.sizes if sizes)
    if size > MOST_CANDIDATES:
        raise AttncalcError(
            f"the plan has {count(size)} candidates, and may have {count(MOST_CANDIDATES)}",
            "name fewer GPUs, dtypes or sizes, as --gpu h100,h200 --tp 4,8",
        )
    search = _Search()
    try:
        for i, request in enumerate(requests):
            assert request.gpu is not None
            on_step(
                f"{request.model.name} on {request.gpu.name}: {i + 1} of {count(len(requests))}"
            )
            search.run(request, splits(request, space))
    except KeyboardInterrupt:
        return search.found(requests, complete=False)
    return search.found(requests, complete=True)


class _Search:
    """What was found so far."""

    def __init__(self) -> None:
        self._candidates: list[Candidate] = []
        self._tried = self._pruned = 0
        self._refused: list[Refused] = []

    def run(self, request: FitRequest, groups: Iterable[Iterable[Split]]) -> None:
        """Try the splits of one request, group after group until one fits."""
        assert request.gpu is not None
        least = _least_weights(request)
        errors = list[AttncalcError]()
        found_before = len(self._candidates)
        tried_before = self._tried
        pruned_before = self._pruned
        for group in groups:
            before = len(self._candidates)
            for split in group:
                if request.gpu.memory * split.gpus < least:
                    self._pruned += 1
                    continue
                self._tried += 1
                try:
                    self._candidates += replica(split.of(request), split)
                except AttncalcError as error:
                    errors.append(error)
            found = self._candidates[before:]
            if any(candidate.verdict == "fits" and candidate.split.dp == 1 for candidate in found):
                return
        if errors and len(self._candidates) == found_before:
            is_whole = self._pruned == pruned_before and len(errors) == self._tried - tried_before
            model = request.model.name
            gpu = request.gpu.rented
            self._refused.append(Refused(model, gpu, errors[0].message, errors[0].tip, is_whole))

    def found(self, requests: Sequence[FitRequest], *, complete: bool) -> Found:
        candidates = tuple(self._candidates)
        refused = tuple(self._refused)
        return Found(tuple(requests), candidates, self._tried, self._pruned, refused, complete)


def _least_weights(request: FitRequest) -> int:
    """Return a lower bound of the bytes of weights that all GPUs of a replica hold together; 0 if
    none is known.

    Towers are left out, which not every engine loads; a device holds its part of the rest, rounded
    up.
    """
    try:
        resolved = resolve(Split(1).of(request))
        if resolved.engine.splits_by_layer:  # layers may stay on the host
            return 0
        held = weights(
            resolved.model,
            in_dtype=resolved.workload.dtype,
            weights_dtype=resolved.weights_dtype,
            engine=None,
        )
    except AttncalcError:  # the errors of splits say more
        return 0
    return int(held.total) - sum(int(part.size) for part in held.extra)
