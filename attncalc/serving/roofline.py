"""The roofline: the least time of a prefill and of a decode step on a GPU, and what bounds each.

A step takes at least as long as its FLOPs at the GPU's peak, and at least as long as its bytes at the
memory's bandwidth; the longer of the two is a bound that no software beats. Weights are read once, the
cache once; what devices send each other is not counted. Over stages, each with layers of its own, a batch is cut
so that all work at once: no step takes less than one of as many micro-batches. Williams, Waterman and Patterson 2009,
doi:10.1145/1498765.1498785.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

from ..cost.common import compute_dtype, sum_named
from ..cost.flops import flops
from ..hardware import Gpu, Peak
from ..model import ModelSpec
from ..quantity import Quantity, Ratio, ceil_div, least, named, quantity, ratio, symbol
from ..search import first_true
from ..units import DType
from ..workload import Workload
from .config import ALONE, ServingConfig, cache_read
from .weights import bytes_read, multiplied_as

Bound = Literal["compute", "memory"]


class Step(NamedTuple):
    """One forward pass on one device, and the least seconds that it takes.

    Over stages: of a decode step, one micro-batch through all of them; of a prefill, one stage's share of FLOPs
    and cache, and all weights. read: bytes of weights and of cache, each read (or written) once. by_compute,
    by_memory: seconds at the GPU's peak and at its bandwidth.
    """

    flops: Quantity
    weights: Quantity
    cache: Quantity
    read: Quantity
    by_compute: Ratio
    by_memory: Ratio

    @property
    def bound_by(self) -> Bound:
        """What takes longer; memory only where it is strictly so."""
        a, b = self.by_compute, self.by_memory
        return "memory" if b.numerator * a.denominator > a.numerator * b.denominator else "compute"

    @property
    def seconds(self) -> Ratio:
        """The least time: the longer of the two."""
        return self.by_memory if self.bound_by == "memory" else self.by_compute

    @property
    def intensity(self) -> Ratio:
        """FLOP for each byte read."""
        return ratio(
            named(self.flops, "flops", "FLOP of the step"), named(self.read, "bytes_read", "bytes read in the step")
        )


class Roofline(NamedTuple):
    """The bounds of one model and workload on one GPU; decode is None for an encoder.

    math: the dtype that products run in, and its peak; weights_dtype: what decides it. tokens_per_second: of the
    whole batch; None with drafts, which make a step's tokens more than one. micro_batch: sequences of a decode step.
    compute_bound_batch: the least batch whose decode step takes as long in arithmetic as in memory; None
    where there is none, as `limit`, the FLOP per byte that ever larger batches near, is not above the ridge.
    """

    gpu: Gpu
    math: Peak
    weights_dtype: DType
    ridge: Ratio
    prefill: Step
    decode: Step | None
    tokens_per_second: Ratio | None
    compute_bound_batch: Quantity | None
    limit: Ratio | None
    served: ServingConfig
    micro_batch: int


class _On(NamedTuple):
    """What a model runs on, and how."""

    gpu: Gpu
    math: Peak
    weights_dtype: str | None
    served: ServingConfig


def roofline(
    model: ModelSpec,
    workload: Workload,
    gpu: Gpu,
    *,
    weights_dtype: str | None = None,
    served: ServingConfig = ALONE,
) -> Roofline:
    """The bounds of a prefill of the workload's context and of a decode step at it, on one of the model's devices.

    weights_dtype: of the matrices of attention and MLPs; None for the workload's, or as the model's files hold
    them (`bytes_read`). Products run as `Gpu.multiplies` says. Sequences are taken as full.
    AttncalcError: a dtype that the GPU has no FLOP/s for.
    """
    stored = multiplied_as(model, compute_dtype(model, workload), weights_dtype)
    on = _On(gpu, gpu.multiplies(stored.name), weights_dtype, served)
    decodes = model.main.has_cache
    full = dataclasses.replace(workload, lengths=None)
    micro = dataclasses.replace(full, batch=max(1, full.batch // served.stages), phase="decode", new=1)
    decode = _decode(model, micro, on) if decodes else None
    batch, limit = _compute_bound_batch(model, micro, on) if decodes else (None, None)
    return Roofline(
        gpu=gpu,
        math=on.math,
        weights_dtype=stored,
        ridge=gpu.ridge(on.math.dtype),
        prefill=_prefill(model, full, on),
        decode=decode,
        tokens_per_second=None if decode is None or served.drafts else _tokens_per_second(full, decode),
        compute_bound_batch=batch,
        limit=limit,
        served=served,
        micro_batch=micro.batch,
    )


def _prefill(model: ModelSpec, workload: Workload, on: _On) -> Step:
    """All the context's tokens at once; of the logits, those of each sequence's last token alone."""
    request = dataclasses.replace(workload, phase="prefill", new=workload.context)
    spent = flops(model, request)
    head = spent.head
    if model.main.has_cache:  # a server needs the next token of each sequence, not those it was given
        head = flops(model, dataclasses.replace(request, phase="decode", new=1)).head
    parts: dict[str, tuple[int, str]] = {
        "flops_layers": (spent.projections + spent.scores + spent.mlp, "FLOP of the layers"),
        "flops_head": (head, "FLOP of the logits of each sequence's last token"),
    }
    tokens = dataclasses.replace(request, batch=workload.batch * workload.context)  # as many pick their experts
    return _step(model, request, tokens, sum_named(parts), on, stages=on.served.stages)


def _decode(model: ModelSpec, request: Workload, on: _On) -> Step:
    return _step(model, request, request, flops(model, request).total, on)


def _step(model: ModelSpec, request: Workload, picking: Workload, spent: Quantity, on: _On, stages: int = 1) -> Step:
    """picking: the workload whose batch is the tokens that pick experts. stages: that share its FLOPs and cache."""
    weights = bytes_read(model, picking, weights_dtype=on.weights_dtype)
    cache = cache_read(model, request, on.served)
    if stages > 1:
        share = symbol("stages", stages, "devices with layers of their own")
        spent = quantity(named(spent, "flops_all", "FLOP of all stages") // share)
        cache = quantity(named(cache, "kv_cache_all", "bytes of cache of all stages") // share)
    read = sum_named({"weights": (weights, "bytes of weights read"), "kv_cache": (cache, "bytes of cache read")})
    return Step(
        flops=spent,
        weights=weights,
        cache=cache,
        read=read,
        by_compute=ratio(named(spent, "flops", "FLOP of the step"), on.gpu.peak_symbol(on.math.dtype)),
        by_memory=ratio(read, on.gpu.bandwidth_symbol),
    )


def _tokens_per_second(workload: Workload, decode: Step) -> Ratio:
    """One token a sequence for each step."""
    batch = symbol("B", workload.batch, "sequences in the batch")
    seconds = decode.seconds
    amount, speed = (
        (named(decode.flops, "flops", "FLOP of the step"), named(seconds.denominator, "peak", "dense FLOP/s"))
        if decode.bound_by == "compute"
        else (decode.read, named(seconds.denominator, "bandwidth", "bytes/s of the memory"))
    )
    return ratio(batch * speed, amount)


def _compute_bound_batch(model: ModelSpec, request: Workload, on: _On) -> tuple[Quantity | None, Ratio | None]:
    """The least batch at which arithmetic takes as long as memory, and the intensity that batches near.

    FLOPs and cache grow by as much with each sequence, weights never faster than the batch: so once
    arithmetic takes as long, it does for every larger batch. The search is exact, on ints. Of stages each needs
    as many sequences.
    """
    gpu, math = on.gpu, on.math

    def at(batch: int) -> Step:
        return _decode(model, dataclasses.replace(request, batch=batch), on)

    one = at(1)
    per_sequence, cached = int(one.flops), int(one.cache)
    limit = ratio(
        named(per_sequence, "flops_per_sequence", "FLOP of one sequence's step"),
        named(cached, "kv_cache_per_sequence", "bytes of one sequence's cache"),
    )
    spare = per_sequence * gpu.bandwidth - cached * math.flops
    if spare <= 0:
        return None, limit

    def weights(batch: int) -> int:
        return int(bytes_read(model, dataclasses.replace(request, batch=batch), weights_dtype=on.weights_dtype))

    def bound(batch: int) -> bool:
        return batch * spare >= weights(batch) * math.flops

    # With all experts read the weights grow no more, and the batch is a plain division.
    most = max((int(layers.mlp.n_experts or 1) for layers in model.main.layers if layers.mlp), default=1)
    least_batch = first_true(bound, 0, int(ceil_div(weights(most) * math.flops, spare)))
    found = at(least_batch)
    # 'least B where a > b' is how a formula says it: arithmetic at this batch takes longer than
    # memory less the smallest step, both times peak * bandwidth.
    larger = named(found.flops, "flops_at_B", "FLOP of the step at that batch") * gpu.bandwidth_symbol
    smaller = named(found.read, "bytes_read_at_B", "bytes it reads") * gpu.peak_symbol(math.dtype)
    found_batch = least("B", least_batch, "sequences in the batch", larger, smaller - 1)
    if on.served.stages == 1:
        return found_batch, limit
    each = named(found_batch, "micro_batch", "least sequences of a stage whose step is not bound by memory")
    return quantity(each * symbol("stages", on.served.stages, "devices with layers of their own")), limit
