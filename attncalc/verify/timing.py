"""Times of layers, and lower bounds from the device's own matmul and copy. They are shown and not
checked.
"""

import math
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn

from ..check import Timing
from ..records import NamedTuple
from ..workload import Run
from .checks.counts import projection_flops
from .devices import Device
from .kernels import only
from .passes import Pass
from .real_layer import RealLayer

# A run is repeated until one of these is reached.
MAX_RUNS = 10
MAX_SECONDS = 0.2


class Ceiling(NamedTuple):
    """The throughput that the device reaches on one large matmul, and on one large copy or sum."""

    flop_per_s: float  # FLOP per second of the matmul
    bytes_per_s: float  # bytes read and written per second


def measure_ceiling(device: Device, dtype: torch.dtype) -> Ceiling:
    """Measure a matmul, a copy and a sum in this dtype. The fastest of several runs counts.

    A pass's time is a median, so that noise cannot make a pass faster than its bound. Ones draw
    less power than random numbers, with which a GPU may lower its clock. A sum only reads, as a
    decode step almost does: that is a few percent faster than a copy, which also writes.
    """
    budget = device.free() // 8
    # three matrices
    n = max(64, min(device.matrix_size, math.isqrt(budget // (3 * dtype.itemsize)) // 64 * 64))
    a = torch.ones(n, n, dtype=dtype, device=device.torch)
    matmul_s = fastest(device, partial(nn.functional.linear, a, a.clone()))
    del a
    source = torch.ones(
        max(1, min(device.copied_bytes, budget) // dtype.itemsize), dtype=dtype, device=device.torch
    )
    copy_s = fastest(device, partial(torch.empty_like(source).copy_, source))
    sum_s = fastest(device, partial(torch.sum, source))
    moved = source.nbytes
    del source
    device.empty_cache()  # else plans would count as used what torch keeps of them
    return Ceiling(2 * n**3 / matmul_s, max(2 * moved / copy_s, moved / sum_s))


def known_ceiling(device: Device, dtype: torch.dtype) -> Ceiling:
    """Return the ceiling that was measured first on this device, or measure it. A simulated device
    has no limit.
    """
    if not device.has_values:
        return Ceiling(math.inf, math.inf)
    return device.kept(("ceiling", dtype), lambda: measure_ceiling(device, dtype))


def with_bound(times: list[Timing], ceiling: Ceiling) -> list[Timing]:
    """Return the same times with lower bounds from this ceiling."""
    return [
        t._replace(
            least_ms=max(t.flop / ceiling.flop_per_s, t.bytes / ceiling.bytes_per_s) * 1e3,
            device_flop_per_s=ceiling.flop_per_s,
            device_bytes_per_s=ceiling.bytes_per_s,
        )
        for t in times
    ]


def fastest(device: Device, run: Callable[[], Tensor]) -> float:
    """Return the seconds of the fastest of several runs, after one warm-up run."""
    run()
    return min(repeated(device, run))


def typical(device: Device, run: Callable[[], Tensor]) -> float:
    """Return the median seconds of several runs. `run` must have been run before, as its first run
    is slower.
    """
    return median(repeated(device, run))


def repeated(device: Device, run: Callable[[], Tensor]) -> list[float]:
    """Return the seconds of each of several runs: MAX_RUNS, or fewer if they take MAX_SECONDS."""
    seconds: list[float] = []
    while len(seconds) < MAX_RUNS and sum(seconds) < MAX_SECONDS:
        seconds.append(device.seconds(run))
    return seconds


def measure_time(layer_pass: Pass, layer: RealLayer, device: Device, ceiling: Ceiling) -> Timing:
    """Time one pass, which must have been run before, in the context of its kernel.

    Its FLOP and bytes are those of a perfect kernel: the FLOP of visible pairs; the weights, the
    tokens in and out and, in decode, the cache.
    """
    with only(layer_pass.kernel):
        ms = sorted(1e3 * seconds for seconds in repeated(device, layer_pass.run))
    moved = sum(p.numel() for p in layer.module.parameters()) * layer.x.itemsize
    if layer_pass.phase == "decode":
        moved += layer.cached_bytes(layer_pass.keys)
    else:
        moved += 2 * layer.x.nbytes
    flop = exact_flop(layer_pass, layer)
    p90 = ms[math.ceil(0.9 * len(ms)) - 1]
    timing = Timing(
        layer.case.name, layer_pass.phase, layer_pass.kernel, median(ms), flop, moved, 0, ms[0], p90
    )
    return with_bound([timing], ceiling)[0]


def exact_flop(layer_pass: Pass, layer: RealLayer) -> int:
    """Return the FLOP of one pass; of the scores, those of visible pairs only."""
    decodes = layer_pass.phase == "decode"
    crosses = layer.source is not None
    if decodes and crosses:
        keys = 0
    elif crosses:
        keys = layer_pass.keys
    else:
        keys = layer_pass.tokens
    mask = None if decodes or crosses else layer.case.mask
    scores = layer.case.kind.score_flops(Run(1, layer_pass.tokens, layer_pass.keys), mask)
    return layer.request.batch * (projection_flops(layer.case, layer_pass.tokens, keys) + scores)
