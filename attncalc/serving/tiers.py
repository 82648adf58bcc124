"""The cache in tiers: on the GPUs, in host memory and on disk.

An engine copies blocks of the cache to a lower tier, and loads them from there when another prompt
starts with the same tokens. Loading is worth it if it takes less time than prefilling these tokens
again.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

from ..engines.engine import HostCache
from ..errors import AttncalcError
from ..quantity import Quantity, Ratio, least, named, quantity, ratio, symbol
from ..records import NamedTuple
from ..search import first_true
from ..units import GIB
from .fit import FitResult
from .request import ResolvedRequest

if TYPE_CHECKING:
    from .roofline import Step

# The default bytes/s from host memory to one GPU, and from disk to all of them.
#
# Assumed: about what PCIe 4.0 x16 copies, of its 31.5 GB/s, and one fast SSD reads. PCIe 5.0 x16
# copies 54 GB/s to an NVIDIA H20 (gitea.gahow.org/gahow/agentic-kvc,
# exp_a_tier_latency/results/pcie.json).
HOST_BANDWIDTH = 25 * 10**9
DISK_BANDWIDTH = 5 * 10**9
# Tokens up to which `faster_from` is searched, for a model without a maximum context.
_LONGEST = 2**24


class Tier(NamedTuple):
    """A memory that holds the cache."""

    name: Literal["gpu", "host", "disk"]  # what it is
    memory: Quantity  # its bytes, on all devices of one replica
    tokens: Quantity  # how many tokens it holds, as the engine counts them
    # Its bytes/s, to one GPU from the host, and to all of them from disk; None for the GPUs
    bandwidth: int | None = None
    # Seconds in which the cache of the request's context is loaded to the GPUs; None for the GPUs
    load: Ratio | None = None
    # The fewest tokens whose cache is loaded in less time than their prefill takes at the GPU's
    # peak; None if there is no such number up to the model's maximum context, without a GPU, and if
    # its FLOP/s are not known
    faster_from: Quantity | None = None

    @property
    def tokens_per_gib(self) -> Ratio:
        """Tokens in a GiB of this memory."""
        tokens = named(self.tokens, f"{self.name}_kv_tokens", "tokens in this memory")
        size = named(self.memory, f"{self.name}_kv_memory", "bytes of this memory")
        return ratio(tokens * symbol("GiB", GIB, "bytes"), size)


def tiers(result: FitResult) -> tuple[Tier, ...]:
    """Return the GPUs' memory for the cache, and that of the host and of a disk; () if neither of
    these is used.
    """
    resolved = result.resolved
    request = result.request
    on_gpu = named(result.budget.kv_memory, "kv_memory", "bytes for the cache on one GPU")
    host = resolved.engine.host_cache(resolved.args, result.layout, on_gpu)
    if host is None and request.disk_size is None:
        return ()
    devices = symbol(
        "devices", resolved.devices // resolved.args.attn_dp, "GPUs that hold the cache together"
    )
    found = [Tier("gpu", quantity(on_gpu * devices), result.pool.tokens)]
    if host:
        found.append(_tier("host", result, host, request.host_bandwidth or HOST_BANDWIDTH))
    if request.disk_size is not None:
        copies = symbol(
            "copies", host.copies if host else int(devices), "GPUs whose caches are stored"
        )
        size = symbol("disk_size", request.disk_size, "bytes on disk for the cache")
        disk = HostCache(quantity(size // copies), int(copies))
        found.append(_tier("disk", result, disk, request.disk_bandwidth or DISK_BANDWIDTH))
    return tuple(found)


def _tier(
    name: Literal["host", "disk"], result: FitResult, stored: HostCache, bandwidth: int
) -> Tier:
    """Return the tier with that memory. Each GPU has a link to the host of its own; all GPUs share
    the disk.
    """
    resolved = result.resolved
    copies = symbol("copies", stored.copies, "GPUs whose caches are stored")
    memory = quantity(
        named(stored.per_device, f"{name}_kv_memory_per_gpu", "bytes for the cache of one GPU")
        * copies
    )
    here = named(stored.per_device, f"{name}_kv_memory_per_gpu", "bytes for the cache of one GPU")
    sharing = 1 if name == "host" else stored.copies

    def size(cache: int) -> int:
        """Return the bytes that cross one link for `cache` bytes of one GPU."""
        loaded = named(cache, "kv_cache_of_request", "bytes of the request's cache on one GPU")
        if sharing == 1:
            return loaded
        return loaded * copies

    speed = symbol(f"{name}_bandwidth", bandwidth, f"bytes/s of the {name}")
    return Tier(
        name,
        memory,
        result.layout.pool(here, resolved.workload.context).tokens,
        bandwidth,
        ratio(size(_cache_of(resolved, resolved.workload.context)), speed),
        _faster_from(resolved, sharing, bandwidth, name),
    )


def _cache_of(resolved: ResolvedRequest, context: int) -> Quantity:
    """Return the bytes of the cache of one request on one GPU: the tokens themselves, without what
    the blocks waste.
    """
    from .cache_read import ServingConfig, cache_read  # here and below: most requests have no tiers

    workload = dataclasses.replace(resolved.workload, batch=1, context=context, lengths=None)
    config = ServingConfig.of(resolved)
    whole = cache_read(
        resolved.model, dataclasses.replace(workload, phase="prefill", new=context), config
    )
    if config.stages == 1:
        return whole
    share = symbol("stages", config.stages, "devices with layers of their own")
    return quantity(named(whole, "kv_cache_all", "bytes of cache of all stages") // share)


def prefill_of(resolved: ResolvedRequest, context: int) -> Step | None:
    """Return the prefill of one request of `context` tokens on one GPU; None without a GPU or its
    FLOP/s.
    """
    if resolved.gpu is None or resolved.divides_experts:
        return None
    from .cache_read import ServingConfig
    from .roofline import machine_of, prefill_step

    workload = dataclasses.replace(resolved.workload, batch=1, context=context, lengths=None)
    config = ServingConfig.of(resolved)
    try:
        machine, _ = machine_of(
            resolved.model, workload, resolved.gpu, resolved.weights_dtype, config
        )
    except AttncalcError:  # the GPU has no FLOP/s for the dtype
        return None
    return prefill_step(resolved.model, workload, machine, with_head=False)


def _faster_from(
    resolved: ResolvedRequest, sharing: int, bandwidth: int, name: str
) -> Quantity | None:
    """Return `Tier.faster_from`.

    Only the FLOPs of the layers count: prefills share the weights that they read, and the logits
    are needed anyway. Each further token adds as many FLOPs as the one before it or more, and as
    many bytes or fewer. So if loading is faster for some length, it is for all longer ones, and a
    binary search is exact; except within a chunk of chunked attention, whose first tokens add fewer
    FLOPs.
    """

    def faster(context: int) -> bool:
        step = prefill_of(resolved, context)
        return step is not None and _beats(step, sharing, bandwidth)

    longest = resolved.request.model.max_context or _LONGEST
    if not faster(longest):
        return None
    found = first_true(faster, 0, longest)
    step = prefill_of(resolved, found)
    assert step is not None
    prefill = named(step.flops, "flops_at_T", "FLOP of the prefill on one GPU")
    loaded = named(int(step.cache) * sharing, "kv_cache_at_T", "bytes to load")
    speed = symbol(f"{name}_bandwidth", bandwidth, f"bytes/s of the {name}")
    peak = step.by_compute.denominator
    flops_per_second = named(peak, "peak", "dense FLOP/s of the GPU")
    # FLOP / peak > bytes / bandwidth, multiplied by both: whole numbers
    return least("T", found, "tokens of a prompt", prefill * speed, loaded * flops_per_second)


def _beats(step: Step, sharing: int, bandwidth: int) -> bool:
    return int(step.flops) * bandwidth > int(step.cache) * sharing * int(
        step.by_compute.denominator
    )
