"""All that `attncalc fit` says about one engine. Each part is computed when it is first read."""

from __future__ import annotations

import dataclasses
from functools import cached_property, partial
from typing import TYPE_CHECKING

from ..engines.runtime import DeviceMemory
from ..errors import AttncalcError
from ..quantity import Quantity, ceil_div
from ..workload import Workload
from .attention_ranks import AttentionRanks, with_attention_ranks
from .devices import device_memory
from .fit import Deployment, FitResult, Limits, fit, min_gpus
from .offload import least_offload
from .request import FitRequest, ResolvedRequest
from .suggestions import Suggestion, suggestions
from .tiers import Tier, tiers
from .users import Users, users
from .weight_format import multiplied_as

if TYPE_CHECKING:
    from .roofline import Roofline


def bounds_of(
    resolved: ResolvedRequest, *, with_limits: bool = True
) -> tuple[Roofline | None, str]:
    """Return `lower_bounds`; or None, and why there are none, which is '' without a GPU."""
    if resolved.gpu is None:
        return None, ""
    try:
        return lower_bounds(resolved, with_limits=with_limits), ""
    except AttncalcError as error:  # the GPU has no FLOP/s for the dtype
        return None, error.message


def lower_bounds(resolved: ResolvedRequest, *, with_limits: bool = True) -> Roofline:
    """Return lower bounds of time on the GPU.

    With users' requests, the prefill is that of one prompt, and the decode step that of requests of
    average length: as many as the batch, or without a batch as many as run on average.
    `with_limits` is as in `roofline`.

    Raises AttncalcError if the GPU has no FLOP/s for the dtype.
    """
    from ..engines.expert_parallel import with_ranks
    from .cache_read import ServingConfig
    from .host_read import with_host
    from .roofline import roofline

    assert resolved.gpu is not None
    of_gpu = partial(
        roofline,
        gpu=resolved.gpu,
        weights_dtype=resolved.weights_dtype,
        config=ServingConfig.of(resolved),
    )
    batch = resolved.request.workload.batch
    load = _load(resolved)
    _, ranks = resolved.requests_of_rank(ceil_div(batch, resolved.copies))
    if load is None:
        return with_host(
            resolved,
            of_gpu(with_ranks(resolved.model, ranks), resolved.workload, with_limits=with_limits),
        )
    prompt, decode = load
    model = resolved.model if batch == 1 else with_ranks(resolved.model, ranks)
    bounds = with_host(resolved, of_gpu(model, decode, with_limits=with_limits))
    of = of_gpu(with_ranks(resolved.model, 1), prompt, with_limits=False)
    return bounds._replace(
        prefill=of.prefill, prefill_expected=of.prefill_expected, prompt=of.prompt
    )


def _load(resolved: ResolvedRequest) -> tuple[Workload, Workload] | None:
    """Return the workloads of one prompt, and of a decode step of users' requests; None without
    such requests.

    Requests with `lengths` have their average length as a prompt.
    """
    load = users(resolved)
    if load is None:
        return None
    batch = resolved.workload.batch
    if resolved.request.workload.batch == 1 and not resolved.request.batch_is_given:
        batch = int(load.average or 1)
    prompt = load.traffic.prompt or int(load.traffic.average_tokens)
    return (
        dataclasses.replace(resolved.workload, batch=1, context=prompt),
        dataclasses.replace(
            resolved.workload, batch=max(1, batch), context=int(load.traffic.average_tokens)
        ),
    )


class Answer:
    """What fits with one engine, and what follows from it."""

    def __init__(self, result: FitResult) -> None:
        self.result = result

    @classmethod
    def to(cls, request: FitRequest) -> Answer:
        """Return the answer to a request. Raises AttncalcError as `fit` does."""
        return cls(fit(request))

    @property
    def resolved(self) -> ResolvedRequest:
        return self.result.resolved

    @cached_property
    def changes(self) -> tuple[Suggestion, ...]:
        """The changes that would make it fit, the cheapest first; () if it does."""
        return suggestions(self.result)

    @cached_property
    def limits(self) -> tuple[Limits, Limits]:
        """What fits with the least memory for the cache, and with the most."""
        deployment = Deployment(self.resolved)
        workload = self.resolved.workload
        low, high = (
            deployment.limits(workload.batch, workload.context, end) for end in ("low", "high")
        )
        return low, high

    @cached_property
    def users(self) -> Users | None:
        """How many users' requests run concurrently; None if the request has none."""
        return users(self.resolved)

    @cached_property
    def fewest_gpus(self) -> Quantity | None:
        """The fewest GPUs that hold the batch; None if no number does."""
        return min_gpus(self.resolved)

    @cached_property
    def without_dcp(self) -> FitResult | None:
        """What fits on the same GPUs without decode context parallelism; None if there is none."""
        if self.resolved.args.dcp == 1:
            return None
        return fit(dataclasses.replace(self.resolved.request, dcp=1))

    @cached_property
    def with_dcp(self) -> FitResult | None:
        """What fits if all tensor-parallel GPUs of attention divide the tokens.

        None if some do already, or the engine or the model does not have it.
        """
        args = self.resolved.args
        if args.dcp > 1 or "dcp" not in self.resolved.engine.splits:
            return None
        try:
            return fit(dataclasses.replace(self.resolved.request, dcp=args.tp // args.attn_dp))
        except AttncalcError:
            return None

    @cached_property
    def tiers(self) -> tuple[Tier, ...]:
        """The memories that hold the cache, if it is in host memory or on disk too; else ()."""
        return tiers(self.result)

    def least_offload(self, option: str) -> int | None:
        """Return llama.cpp's largest n_gpu_layers or smallest n_cpu_moe with which it fits; None if
        none does.
        """
        resolved = self.resolved
        if option not in resolved.engine.offload_options or resolved.share is None:
            return None
        return least_offload(resolved.request, option)

    @cached_property
    def devices(self) -> tuple[DeviceMemory, ...]:
        """The memory of each GPU and of the host; () for engines that split every layer."""
        return device_memory(self.resolved)

    @cached_property
    def attention_ranks(self) -> AttentionRanks | None:
        """What DP attention would give; None for a model or an engine that does not have it."""
        return with_attention_ranks(self.result)

    @property
    def has_bounds(self) -> bool:
        """Whether there are bounds of time on the GPU, which are not computed for it."""
        resolved = self.resolved
        if resolved.gpu is None:
            return False
        stored = multiplied_as(resolved.model, resolved.args.dtype, resolved.weights_dtype)
        return resolved.gpu.multiplies(stored.name)

    @cached_property
    def bounds(self) -> tuple[Roofline | None, str]:
        return bounds_of(self.resolved)

    @cached_property
    def first_bounds(self) -> Roofline | None:
        """The bounds of a decode step after the first token, whose cache is still empty."""
        first = dataclasses.replace(self.resolved.workload, context=1)
        return bounds_of(self.resolved._replace(workload=first), with_limits=False)[0]
