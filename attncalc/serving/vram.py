"""The GPU memory that a request needs, without a GPU, and which GPUs have it."""

import dataclasses

from ..errors import AttncalcError
from ..hardware import Gpu
from ..quantity import Quantity, named, quantity
from ..records import NamedTuple
from ..search import first_true
from ..units import BYTES, count, human
from .fit import Deployment, Verdict, fit, possible_verdict, with_other_gpus
from .memory_budget import MemoryBudget, Reserve
from .request import FitRequest, ResolvedRequest, resolve
from .weights import Weights

# Bytes between two memories that are tried: 64 MiB.
STEP = 2**26
# The largest memory that is tried: 1 PiB.
_LARGEST = 2**50


class Need(NamedTuple):
    """What a request needs on one GPU, or on each of several."""

    resolved: ResolvedRequest  # the complete request
    budget: MemoryBudget  # the memory of the GPU with the least room
    cache: Quantity  # bytes of the cache there
    verdict: Verdict  # whether all GPUs have room

    @property
    def gpu_name(self) -> str:
        if self.resolved.gpu:
            return self.resolved.gpu.name
        return ""

    @property
    def memory(self) -> int:
        """The bytes of that GPU; 0 without one."""
        return int(self.budget.memory or 0)

    @property
    def weights(self) -> Weights:
        assert self.budget.weights is not None
        return self.budget.weights

    @property
    def reserve(self) -> Reserve:
        assert self.budget.reserve is not None
        return self.budget.reserve

    @property
    def total(self) -> Quantity:
        """The expected bytes: weights, cache and runtime memory."""
        return quantity(
            named(self.weights.total, "weights", "bytes of the weights")
            + named(self.cache, "kv_needed", "bytes of the cache")
            + named(self.reserve.total, "reserve", "bytes of the runtime memory")
        )

    @property
    def low(self) -> int:
        """The bytes with the smallest runtime memory."""
        return int(self.weights.total) + int(self.cache) + self.reserve.low

    @property
    def high(self) -> int:
        """The bytes with the largest runtime memory."""
        return int(self.weights.total) + int(self.cache) + self.reserve.high


class WhatFits(NamedTuple):
    """Which models fit on a GPU, or on which GPUs a model fits."""

    # What each model that fits needs in its widest weights, the largest first, or the newest first
    # if `largest` is not None; the smallest one if none fits.
    # Or what one model needs on each GPU, those with the least memory first
    needs: tuple[Need, ...]
    problems: tuple[str, ...]  # why it is not possible for each of the others
    models: int | None = None  # the number of models; None if it is one model on each GPU
    untried: int = 0  # how many of them were not tried
    # The largest model that fits, if `needs` has the newest first
    largest: Need | None = None

    @property
    def verdicts(self) -> list[Verdict]:
        return [need.verdict for need in self.needs]


class UsualGpu(NamedTuple):
    """A kind of GPU, and the fewest that hold the model."""

    name: str
    need: Need  # what the request needs on each of them
    fewest: tuple[int | None, ...]  # the fewest GPUs for each context; None if it takes too many


class Vram(NamedTuple):
    # What it needs at each context, on the smallest GPU that is sure to hold it; first as asked
    needs: tuple[Need, ...]
    gpus: tuple[UsualGpu, ...]  # kinds of GPUs that hold it, those with the least memory first
    # (a GPU's memory in GB, the largest type of GGUF files that it holds, or None); () if not
    # searched for
    quants: tuple[tuple[int, str | None], ...]
    assumes_context: bool  # whether the context was not given
    # (type of GGUF files, the longest context on each GPU of `quants`, 0 if none fits); () if not
    # asked for
    quant_contexts: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def asked(self) -> Need:
        """What it needs at the context that is asked for."""
        return self.needs[0]

    @property
    def low(self) -> int:
        """The bytes that it needs then with the smallest runtime memory."""
        return self.asked.low

    @property
    def expected(self) -> int:
        """The expected bytes then."""
        return int(self.asked.total)

    @property
    def high(self) -> int:
        """The bytes that it needs then with the largest runtime memory."""
        return self.asked.high

    @property
    def contexts(self) -> list[int]:
        """Tokens of a request, first as asked."""
        return [int(one.resolved.workload.context) for one in self.needs]


def need(request: FitRequest) -> Need:
    """Return what a request needs on its GPUs. Raises AttncalcError as `fit` does."""
    found = fit(request)
    return Need(found.resolved, found.budget, found.needed, found.verdict)


def quick_need(request: FitRequest) -> Need:
    """Return what `need` does, without the formulas: in plain ints, for one of many rows."""
    deployment = Deployment(resolve(request))
    batch = deployment.resolved.workload.batch
    context = deployment.resolved.workload.context
    tightest, _ = deployment.tightest(deployment.pools(context), batch, context)
    verdict = "does_not_fit" if deployment.refusal(context) else deployment.verdict(batch, context)
    budget = deployment.devices[tightest].budget
    cache = deployment.needed(batch, context, tightest)
    return Need(deployment.resolved, budget, cache, verdict)


def smallest(request: FitRequest, gpu: Gpu) -> Need:
    """Return what a request needs on GPUs with the least memory that is sure to hold it, in steps
    of STEP.

    `request` has no GPU, or only the number of GPUs that share the model; of `gpu` only the memory
    is replaced. Raises AttncalcError as `fit` does, and if the engine does not start or does not
    run the batch, whatever the memory.
    """

    def on(memory: int) -> FitRequest:
        return dataclasses.replace(
            request, gpu=dataclasses.replace(gpu, title="GPU", memory=memory)
        )

    def holds(steps: int) -> bool:
        return possible_verdict(on(steps * STEP)) == "fits"

    largest = resolve(on(_LARGEST))
    refusal = largest.refusal
    if refusal:
        raise AttncalcError(
            f"{largest.engine.title} does not start: {refusal.reason}", refusal.tip_of_error
        )
    if not holds(_LARGEST // STEP):
        most = Deployment(largest).devices[0].layout.max_num_seqs
        if most is not None and most < largest.workload.batch:
            raise AttncalcError(
                f"{largest.engine.title} runs at most {count(most)} concurrent requests",
                f"give -b {most} or fewer",
            )
        raise AttncalcError(
            f"no GPU of {human(_LARGEST, BYTES)} holds this", "give a shorter -c, or a smaller -b"
        )
    weights = Deployment(largest).devices[0].budget.weights
    low = int(weights.total) // STEP if weights else 0
    high = low + 1
    step = 1
    while not holds(high):  # each time a step of twice the size
        low = high
        step *= 2
        high += step
    return need(on(first_true(holds, low, high) * STEP))


def fewest_gpus(request: FitRequest, most: int, above: int = 0) -> FitRequest | None:
    """Return the request on the fewest GPUs of its kind that are sure to hold it, or None if more
    than `most` are.

    A number of GPUs, or a split, that the request has is kept. `above` is a number that is known
    not to be enough.
    """
    try:
        others = [request] if request.gpus or request.tp else with_other_gpus(resolve(request))
        for other in others:
            gpus = other.gpus or resolve(other).gpus
            if gpus > most:
                return None
            if gpus > above and possible_verdict(other) == "fits":
                return other
    except AttncalcError:  # the GPU lacks the dtype, for example
        pass
    return None
