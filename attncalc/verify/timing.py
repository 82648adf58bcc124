"""Times of layers, and lower bounds from the device's own matmul and copy. They are shown and not checked."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..check import Timing
from ..workload import Run
from .checks.counts import projection_flops
from .devices import Device
from .passes import Pass
from .real_layer import RealLayer

MAX_RUNS, MAX_SECONDS = 10, 0.2
"""A run is repeated until one of these is reached; the fastest repetition counts."""


class Ceiling(NamedTuple):
    """The throughput that the device reaches on one large matmul, and on one large copy."""

    flop_per_s: float
    bytes_per_s: float

    def or_higher(self, other: Ceiling) -> Ceiling:
        """Return the higher of both throughputs: a busy device reaches less than it can."""
        return Ceiling(max(self.flop_per_s, other.flop_per_s), max(self.bytes_per_s, other.bytes_per_s))

    def lower_bound(self, flop: int, moved_bytes: int) -> float:
        """Return the seconds that this work takes at least."""
        return max(flop / self.flop_per_s, moved_bytes / self.bytes_per_s)


def measure_ceiling(device: Device, dtype: torch.dtype) -> Ceiling:
    """Measure a matmul and a copy in this dtype."""
    n = device.matrix_size
    a = torch.ones(n, n, dtype=dtype, device=device.torch)
    b, out = a.clone(), a.clone()
    matmul_s = fastest(device, partial(nn.functional.linear, a, b))
    copy_s = fastest(device, partial(out.copy_, a))
    return Ceiling(2 * n**3 / matmul_s, 2 * a.numel() * a.itemsize / copy_s)


def with_bound(times: list[Timing], ceiling: Ceiling) -> list[Timing]:
    """Return the same times with lower bounds from this ceiling."""
    return [t._replace(least_ms=ceiling.lower_bound(t.flop, t.bytes) * 1e3) for t in times]


def fastest(device: Device, run: Callable[[], Tensor]) -> float:
    """Return the seconds of the fastest of several runs, after one warm-up run."""
    run()
    best, spent, runs = float("inf"), 0.0, 0
    while runs < MAX_RUNS and spent < MAX_SECONDS:
        device.synchronize()
        start = time.perf_counter()
        run()
        device.synchronize()
        seconds = time.perf_counter() - start
        best, spent, runs = min(best, seconds), spent + seconds, runs + 1
    return best


def measure_time(layer_pass: Pass, layer: RealLayer, device: Device, ceiling: Ceiling) -> Timing:
    """Time one pass.

    Its FLOP and bytes are those of a perfect kernel: the FLOP of visible pairs; the weights, the tokens in and out
    and, in decode, the cache.
    """
    seconds = fastest(device, layer_pass.run)
    moved = sum(p.numel() for p in layer.module.parameters()) * layer.x.itemsize
    moved += layer.cached_bytes(layer_pass.keys) if layer_pass.phase == "decode" else 2 * layer.x.nbytes
    flop = exact_flop(layer_pass, layer)
    least_ms = ceiling.lower_bound(flop, moved) * 1e3
    return Timing(layer.case.name, layer_pass.phase, layer_pass.kernel, seconds * 1e3, flop, moved, least_ms)


def exact_flop(layer_pass: Pass, layer: RealLayer) -> int:
    """Return the FLOP of one pass; of the scores, those of visible pairs only."""
    decodes, crosses = layer_pass.phase == "decode", layer.source is not None
    keys = 0 if decodes and crosses else layer_pass.keys if crosses else layer_pass.tokens
    mask = None if decodes or crosses else layer.case.mask
    scores = layer.case.kind.score_flops(Run(1, layer_pass.tokens, layer_pass.keys), mask)
    return layer.request.batch * (projection_flops(layer.case, layer_pass.tokens, keys) + scores)
