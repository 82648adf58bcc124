"""What a decode step reads from host memory, if an engine leaves layers, experts or the cache
there.

llama.cpp computes layers one after another, those on the host with its CPU. So a step takes at
least as long as the bytes on GPUs at their bandwidth and the bytes on the host at that of its
memory, added. A 70B model in q4_k_m with half of its layers on the host reads 20 GB there: 0.23 s
at 89.6 GB/s, and 0.02 s for the other half on an RTX 4090.
"""

import dataclasses

from ..cost.experts import Routing
from ..model import ModelSpec
from ..quantity import Ratio, named, quantity, ratio, symbol
from ..workload import Workload
from .cache_read import ServingConfig, cache_read
from .request import ResolvedRequest
from .roofline import HostRead, Roofline, Step
from .weights_read import bytes_read

# Bytes/s of two channels of DDR5-5600: 2 x 8 B x 5,600 MT/s.
DEFAULT_BANDWIDTH = 89_600_000_000


def uses_host(resolved: ResolvedRequest) -> bool:
    """Return whether layers, experts or the cache are on the host."""
    if not resolved.whole_layers:
        return False
    _, host, parts = _parts(resolved)
    is_partial = host.main.n_layers or any(held != part for part, held in parts)
    return bool(is_partial or resolved.engine.cache_on_host(resolved.args))


def with_host(resolved: ResolvedRequest, bounds: Roofline) -> Roofline:
    """Return the bounds with a decode step that reads what is on the host at the speed of its
    memory.

    No batch is compute-bound then. The prefill's bound stays that of all layers on GPUs: weights
    may be copied there.
    """
    if bounds.decode is None or not uses_host(resolved):
        return bounds
    bandwidth, is_assumed = host_bandwidth(resolved)
    workload = dataclasses.replace(bounds.workload, batch=bounds.micro_batch, phase="decode", new=1)

    def slowed(step: Step, routing: Routing) -> tuple[Step, Ratio, int]:
        found, size = host_step(resolved, step, workload, bounds.config, routing)
        batch = symbol("B", bounds.workload.batch, "batch size, in sequences")
        return found, ratio(batch * found.by_memory.denominator, found.by_memory.numerator), size

    decode, rate, size = slowed(bounds.decode, "fewest")
    expected = bounds.decode_expected and slowed(bounds.decode_expected, "expected")
    return bounds._replace(
        decode=decode,
        tokens_per_second=bounds.tokens_per_second and rate,
        decode_expected=expected and expected[0],
        tokens_per_second_expected=bounds.tokens_per_second_expected and expected and expected[1],
        compute_bound_batch=None,
        limit=None,
        host=HostRead(size, bandwidth, is_assumed),
    )


def _parts(
    resolved: ResolvedRequest,
) -> tuple[ModelSpec, ModelSpec, list[tuple[ModelSpec, ModelSpec]]]:
    """Return the model, the host's layers, and of each GPU its layers and what it holds of them,
    all without files.
    """
    engine = resolved.engine
    args = resolved.args
    model = dataclasses.replace(resolved.model, stored=None)
    return (
        model,
        engine.on_host(model, args),
        [(part, engine.held(part, args)) for part in engine.parts(model, args)],
    )


def host_bandwidth(resolved: ResolvedRequest) -> tuple[int, bool]:
    """Return the bytes/s of the host's memory, and whether they are assumed."""
    given = resolved.engine.host_bandwidth(resolved.args)
    gpu = resolved.gpu
    unified = gpu.bandwidth if gpu and gpu.unified else None
    return given or unified or DEFAULT_BANDWIDTH, not (given or unified)


def host_step(
    resolved: ResolvedRequest,
    step: Step,
    workload: Workload,
    config: ServingConfig,
    routing: Routing,
) -> tuple[Step, int]:
    """Return a decode step with what is on the host read at the speed of its memory, and the bytes
    there.

    The host's share of the weights is its share of the bytes that the step reads: experts in mxfp4
    have half the bytes per parameter of attention in q8_0.
    """
    assert resolved.gpu is not None

    def read(part: ModelSpec) -> int:
        if not part.main.n_layers:
            return 0
        part = dataclasses.replace(part, stored=resolved.model.stored)
        return int(
            bytes_read(part, workload, weights_dtype=resolved.weights_dtype, routing=routing)
        )

    whole, host, parts = _parts(resolved)
    host = dataclasses.replace(host, head=None)
    on_host = read(host) + sum(read(part) - read(held) for part, held in parts)
    params = symbol("read_on_host", on_host, "bytes of weights that the step reads on the host")
    everything = symbol("read", read(whole), "bytes of all weights that it reads")
    cached = step.cache if resolved.engine.cache_on_host(resolved.args) else quantity(0)
    if not int(cached) and host.main.n_layers:
        cached = cache_read(host, workload, config)
    weights = named(step.weights, "weights", "bytes of weights read")
    size = quantity(
        weights * params // everything
        + named(cached, "cache_on_host", "bytes of cache on the host")
    )
    on_gpu = named(quantity(step.read - size), "bytes_on_gpus", "bytes read on GPUs")
    slow = symbol("ram_bandwidth", host_bandwidth(resolved)[0], "bytes/s of the host's memory")
    fast = resolved.gpu.bandwidth_symbol
    work = on_gpu * slow + named(size, "bytes_on_host", "bytes read on the host") * fast
    return step._replace(by_memory=ratio(work, fast * slow)), int(size)
