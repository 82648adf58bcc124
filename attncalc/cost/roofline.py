"""The roofline: the least time of a prefill and of a decode step on a GPU, and what bounds each.

A step takes at least as long as its FLOPs at the GPU's peak, and at least as long as its bytes at the
memory's bandwidth; the longer of the two is a bound that no software beats. Weights are read once, the
cache once; what devices send each other is not counted. Williams, Waterman and Patterson 2009,
doi:10.1145/1498765.1498785.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

from ..hardware import Gpu, Peak
from ..model import ModelSpec
from ..quantity import Quantity, Ratio, ceil_div, least, named, quantity, ratio, symbol
from ..units import DType, dtype
from ..workload import Workload
from .cache import kv_cache
from .flops import flops
from .intensity import weights_read
from .parts import cache_dtype, compute_dtype, sum_named

Bound = Literal["compute", "memory"]


class Step(NamedTuple):
    """One forward pass of the whole batch on one device, and the least seconds that it takes.

    read: bytes of weights and of cache, each read (or written) once. by_compute, by_memory: seconds at the
    GPU's peak and at its bandwidth.
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

    math: the dtype that products run in, and its peak. tokens_per_second: of the whole batch.
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


def roofline(
    model: ModelSpec,
    workload: Workload,
    gpu: Gpu,
    *,
    weights_dtype: str | None = None,
    math_dtype: str | None = None,
) -> Roofline:
    """The bounds of a prefill of the workload's context and of a decode step at it, on one of the model's devices.

    weights_dtype: as the weights are stored; None for the workload's dtype. math_dtype: as products run;
    None for that of the weights, or the next wider one that the GPU has. Sequences are taken as full.
    AttncalcError: a dtype that the GPU has no FLOP/s for.
    """
    stored = compute_dtype(model, workload) if weights_dtype is None else dtype(weights_dtype)
    math = gpu.multiplies(math_dtype or stored.name)
    decodes = model.main.keeps_cache
    full = dataclasses.replace(workload, lengths=None)
    decode = _decode(model, full, gpu, stored, math) if decodes else None
    batch, limit = _compute_bound_batch(model, full, gpu, stored, math) if decodes else (None, None)
    return Roofline(
        gpu=gpu,
        math=math,
        weights_dtype=stored,
        ridge=gpu.ridge(math.dtype),
        prefill=_prefill(model, full, gpu, stored, math),
        decode=decode,
        tokens_per_second=decode and _tokens_per_second(full, decode),
        compute_bound_batch=batch,
        limit=limit,
    )


def _prefill(model: ModelSpec, workload: Workload, gpu: Gpu, stored: DType, math: Peak) -> Step:
    """All the context's tokens at once; of the logits, those of each sequence's last token alone."""
    asked = dataclasses.replace(workload, phase="prefill", new=workload.context)
    spent = flops(model, asked)
    head = spent.head
    if model.main.keeps_cache:  # a server needs the next token of each sequence, not those it was given
        head = flops(model, dataclasses.replace(asked, phase="decode", new=1)).head
    parts: dict[str, tuple[int, str]] = {
        "flops_layers": (spent.projections + spent.scores + spent.mlp, "FLOP of the layers"),
        "flops_head": (head, "FLOP of the logits of each sequence's last token"),
    }
    tokens = dataclasses.replace(asked, batch=workload.batch * workload.context)  # as many pick their experts
    return _step(model, asked, tokens, sum_named(parts), gpu, stored, math)


def _decode(model: ModelSpec, workload: Workload, gpu: Gpu, stored: DType, math: Peak) -> Step:
    asked = dataclasses.replace(workload, phase="decode", new=1)
    return _step(model, asked, asked, flops(model, asked).total, gpu, stored, math)


def _step(
    model: ModelSpec, asked: Workload, picking: Workload, spent: Quantity, gpu: Gpu, stored: DType, math: Peak
) -> Step:
    """picking: the workload whose batch is the tokens that pick experts."""
    params = named(weights_read(model, picking), "params_read", "parameters read in the step")
    weights = quantity(stored.row_bytes(params))
    cache = _cache_read(model, asked)
    read = sum_named({"weights": (weights, "bytes of weights read"), "kv_cache": (cache, "bytes of cache read")})
    return Step(
        flops=spent,
        weights=weights,
        cache=cache,
        read=read,
        by_compute=ratio(named(spent, "flops", "FLOP of the step"), gpu.peak_symbol(math.dtype)),
        by_memory=ratio(read, gpu.bandwidth_symbol),
    )


def _cache_read(model: ModelSpec, asked: Workload) -> Quantity:
    """Bytes of the cache that a step reads or writes: all of it, but for what the token of a decode step
    does not attend to (an indexer's picks, a chunk that began anew).
    """
    if not model.main.keeps_cache:
        return Quantity(0)
    whole, left = kv_cache(model, asked).total, 0
    if asked.phase == "decode":
        stored = cache_dtype(model, asked)
        for _, layers in model.plain().groups():
            for kept in layers.cache():
                if kept.grows == "context":
                    of = dtype(kept.dtype) if kept.dtype else stored
                    tokens = kept.span.kept(asked.context) - kept.span.visible(asked.context)
                    left += layers.count * asked.batch * max(0, tokens) * kept.rows * of.row_bytes(kept.width)
    if not left:
        return whole
    unseen = named(left, "kv_cache_unseen", "bytes of cache that the token does not attend to")
    return quantity(named(whole, "kv_cache_kept", "bytes of the whole cache") - unseen)


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


def _compute_bound_batch(
    model: ModelSpec, workload: Workload, gpu: Gpu, stored: DType, math: Peak
) -> tuple[Quantity | None, Ratio | None]:
    """The least batch at which arithmetic takes as long as memory, and the intensity that batches near.

    FLOPs and cache grow by as much with each sequence, weights never faster than the batch: so once
    arithmetic takes as long, it does for every larger batch. The search is exact, on ints.
    """

    def at(batch: int) -> Step:
        return _decode(model, dataclasses.replace(workload, batch=batch), gpu, stored, math)

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
        asked = dataclasses.replace(workload, phase="decode", new=1, batch=batch)
        return int(stored.row_bytes(int(weights_read(model, asked))))

    def bound(batch: int) -> bool:
        return batch * spare >= weights(batch) * math.flops

    # With all experts read the weights grow no more, and the batch is a plain division.
    most = max((int(layers.mlp.n_experts or 1) for layers in model.main.layers if layers.mlp), default=1)
    high = int(ceil_div(weights(most) * math.flops, spare))
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bound(middle) else (middle, high)
    found = at(high)
    # 'least B where a > b' is how a formula says it: arithmetic at this batch takes longer than
    # memory less the smallest step, both times peak * bandwidth.
    larger = named(found.flops, "flops_at_B", "FLOP of the step at that batch") * gpu.bandwidth_symbol
    smaller = named(found.read, "bytes_read_at_B", "bytes it reads") * gpu.peak_symbol(math.dtype)
    return least("B", high, "sequences in the batch", larger, smaller - 1), limit
