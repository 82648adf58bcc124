"""How long a layer takes, beside what the device's own matmul and copy would need. For information."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..check import Timing
from ..workload import Run
from .counts import projections
from .device import Device
from .passes import Pass
from .subject import Layer

SIDE = {"cpu": 1024, "mps": 4096, "cuda": 8192}
"""Rows of the square matrices whose product and copy are the ceilings."""
RUNS, ENOUGH = 10, 0.2
"""So many runs, but no more once so many seconds are spent; the fastest counts."""


class Ceiling(NamedTuple):
    """What the device reaches on one large product, and on one large copy."""

    flop_per_s: float
    bytes_per_s: float

    def or_higher(self, other: Ceiling) -> Ceiling:
        """The higher of both: a device that was busy shows less than it can."""
        return Ceiling(max(self.flop_per_s, other.flop_per_s), max(self.bytes_per_s, other.bytes_per_s))

    def least(self, flop: int, moved: int) -> float:
        """Seconds below which so many FLOP and bytes cannot be."""
        return max(flop / self.flop_per_s, moved / self.bytes_per_s)


def ceiling(device: Device, dtype: torch.dtype) -> Ceiling:
    """Measure both, in this dtype."""
    n = SIDE[device.kind]
    a = torch.ones(n, n, dtype=dtype, device=device.torch)
    b, out = a.clone(), a.clone()
    product = fastest(device, partial(nn.functional.linear, a, b))
    copy = fastest(device, partial(out.copy_, a))
    return Ceiling(2 * n**3 / product, 2 * a.numel() * a.itemsize / copy)


def bounded(times: list[Timing], most: Ceiling) -> list[Timing]:
    """The same times with their bounds by this ceiling."""
    return [t._replace(least_ms=most.least(t.flop, t.bytes) * 1e3) for t in times]


def fastest(device: Device, run: Callable[[], Tensor]) -> float:
    """Seconds of the fastest of a few runs, after one to warm up."""
    run()
    best, spent, runs = float("inf"), 0.0, 0
    while runs < RUNS and spent < ENOUGH:
        device.finish()
        start = time.perf_counter()
        run()
        device.finish()
        took = time.perf_counter() - start
        best, spent, runs = min(best, took), spent + took, runs + 1
    return best


def timed(one: Pass, layer: Layer, device: Device, most: Ceiling) -> Timing:
    """The time of one pass.

    FLOP are those the mask allows, bytes the weights, the tokens in and out and, in decode, the cache: what
    a perfect kernel would do.
    """
    seconds = fastest(device, one.run)
    moved = sum(p.numel() for p in layer.module.parameters()) * layer.x.itemsize
    moved += layer.cached_bytes(one.keys) if one.phase == "decode" else 2 * layer.x.nbytes
    flop = flop_of(one, layer)
    return Timing(layer.subject.name, one.phase, one.kernel, seconds * 1e3, flop, moved, most.least(flop, moved) * 1e3)


def flop_of(one: Pass, layer: Layer) -> int:
    """FLOPs of one pass, scores exact for the mask."""
    decodes, crosses = one.phase == "decode", layer.source is not None
    keys = 0 if decodes and crosses else one.keys if crosses else one.tokens
    mask = None if decodes or crosses else layer.subject.mask
    scores = layer.subject.kind.score_flops(Run(1, one.tokens, one.keys), mask)
    return layer.asked.batch * (projections(layer.subject, one.tokens, keys) + scores)
