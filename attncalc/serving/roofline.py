"""The roofline: a lower bound of the time of a prefill and of a decode step on a GPU, and what
bounds each.

A step takes at least as long as its FLOPs at the GPU's peak, and at least as long as its bytes at
the memory's bandwidth. The longer of the two is a bound that no software beats. Weights and cache
are read once; communication between devices is not counted. With pipeline stages a batch is split
so that all stages work in parallel: over 4 stages, 8 sequences are 4 micro-batches of 2, and a
decode step of all takes as long as one micro-batch through all stages. Williams, Waterman and
Patterson 2009, doi:10.1145/1498765.1498785.

All tokens of a step may pick the same experts, so the bounds of a mixture read as few as one token
picks. What a step takes with the expected number of experts is given beside them, and is no bound.
"""

import dataclasses
from typing import Literal

from ..cost.common import compute_dtype, sum_named
from ..cost.experts import Routing
from ..cost.flops import flops, prefill_flops
from ..hardware import Gpu, Peak
from ..model import ModelSpec
from ..quantity import Quantity, Ratio, ceil_div, least, named, quantity, ratio, symbol
from ..records import NamedTuple
from ..search import first_true
from ..units import DType
from ..workload import Workload
from .cache_read import ONE_DEVICE, ServingConfig, cache_read
from .weight_format import multiplied_as
from .weights_read import bytes_read

Bound = Literal["compute", "memory"]


class Step(NamedTuple):
    """One forward pass on one device, and its lower bound.

    With pipeline stages, a decode step is one micro-batch through all of them; a prefill is one
    stage's share of FLOPs and cache, with all weights.
    """

    flops: Quantity  # FLOP of the step
    weights: Quantity  # bytes of weights, each read once
    cache: Quantity  # bytes of cache, each read or written once
    read: Quantity  # bytes of both
    by_compute: Ratio  # seconds at the GPU's peak
    by_memory: Ratio  # seconds at the GPU's bandwidth

    @property
    def bound_by(self) -> Bound:
        """What takes longer; 'compute' if both take as long."""
        a = self.by_compute
        b = self.by_memory
        if b.numerator * a.denominator > a.numerator * b.denominator:
            return "memory"
        return "compute"

    @property
    def seconds(self) -> Ratio:
        """The lower bound of the time: the longer of the two."""
        if self.bound_by == "memory":
            return self.by_memory
        return self.by_compute

    @property
    def intensity(self) -> Ratio:
        """FLOP per byte read."""
        return ratio(
            named(self.flops, "flops", "FLOP of the step"),
            named(self.read, "bytes_read", "bytes read in the step"),
        )

    def on(self, machine: "Machine") -> "Step":
        """Return the same pass on another GPU."""
        by_compute, by_memory = _times(self.flops, self.read, machine)
        return self._replace(by_compute=by_compute, by_memory=by_memory)


class HostRead(NamedTuple):
    """What a decode step reads from host memory."""

    size: int  # bytes of weights and cache
    bandwidth: int  # bytes/s of the memory
    is_assumed: bool  # whether the bandwidth is the default


class Roofline(NamedTuple):
    """The bounds of one model and workload on one GPU.

    Attributes:
        gpu: The GPU.
        math: The dtype in which products run, and its peak.
        weights_dtype: The dtype of the weights, which decides `math`.
        ridge: The FLOP per byte at which a step becomes compute-bound.
        prefill: A prefill of the workload's context.
        decode: A decode step at that context; None for an encoder.
        tokens_per_second: Tokens/s of the whole batch; None for an encoder, and with drafts, of
            which an unknown number is accepted.
        prefill_expected: The prefill with the expected experts; None for a model without experts.
        decode_expected: The decode step with the expected experts; None without experts, and for an
            encoder.
        tokens_per_second_expected: Tokens/s of that step.
        compute_bound_batch: The smallest batch whose decode step is compute-bound, with the
            expected experts; None if there is none.
        limit: FLOP per byte that a decode step approaches as the batch grows.
        config: The engine's settings.
        micro_batch: Sequences of `decode`.
        prompt: The workload of the prefill.
        workload: The workload of the decode step, with the whole batch.
        host: What the decode step reads from host memory; None if all is on GPUs.
    """

    gpu: Gpu
    math: Peak
    weights_dtype: DType
    ridge: Ratio
    prefill: Step
    decode: Step | None
    tokens_per_second: Ratio | None
    prefill_expected: Step | None
    decode_expected: Step | None
    tokens_per_second_expected: Ratio | None
    compute_bound_batch: Quantity | None
    limit: Ratio | None
    config: ServingConfig
    micro_batch: int
    prompt: Workload
    workload: Workload
    host: HostRead | None = None


class Machine(NamedTuple):
    """A GPU, the dtypes of products and weights, and the engine's settings."""

    gpu: Gpu
    math: Peak
    weights_dtype: str | None
    config: ServingConfig


def roofline(
    model: ModelSpec,
    workload: Workload,
    gpu: Gpu,
    *,
    weights_dtype: str | None = None,
    config: ServingConfig = ONE_DEVICE,
    with_limits: bool = True,
) -> Roofline:
    """Return the bounds of a prefill of the workload's context, and of a decode step at it, on one
    device.

    Args:
        model: One tensor-parallel device's share.
        workload: Its sequences are assumed to have the full context.
        gpu: The device.
        weights_dtype: The dtype of the matrices of attention and MLPs; None for the workload's, or
            that of the model's files (see `bytes_read`). `Gpu.matmul_peak` returns the dtype in
            which products run.
        config: The engine's settings.
        with_limits: Whether to search for `compute_bound_batch` and `limit`, which are None
            otherwise.

    Raises AttncalcError if the GPU has no FLOP/s for the dtype.
    """
    machine, stored = machine_of(model, workload, gpu, weights_dtype, config)
    full = dataclasses.replace(workload, lengths=None)
    micro = dataclasses.replace(
        full, batch=max(1, full.batch // config.stages), phase="decode", new=1
    )
    decode = decode_step(model, micro, machine) if model.main.has_cache else None
    decode_expected = None
    if decode and model.has_experts:
        decode_expected = decode_step(model, micro, machine, "expected")
    batch = None
    limit = None
    if decode and with_limits:
        batch, limit = _compute_bound_batch(model, micro, machine)
    return Roofline(
        gpu=gpu,
        math=machine.math,
        weights_dtype=stored,
        ridge=gpu.ridge(machine.math.dtype),
        prefill=prefill_step(model, full, machine),
        decode=decode,
        tokens_per_second=_tokens_per_second(full, decode, config),
        prefill_expected=prefill_step(model, full, machine, "expected")
        if model.has_experts
        else None,
        decode_expected=decode_expected,
        tokens_per_second_expected=_tokens_per_second(full, decode_expected, config),
        compute_bound_batch=batch,
        limit=limit,
        config=config,
        micro_batch=micro.batch,
        prompt=full,
        workload=full,
    )


def machine_of(
    model: ModelSpec, workload: Workload, gpu: Gpu, weights_dtype: str | None, config: ServingConfig
) -> tuple[Machine, DType]:
    """Return what a step runs on, and the dtype of the weights; arguments as in `roofline`.

    Raises AttncalcError if the GPU has no FLOP/s for the dtype.
    """
    stored = multiplied_as(model, compute_dtype(model, workload), weights_dtype)
    return Machine(gpu, gpu.matmul_peak(stored.name), weights_dtype, config), stored


def prefill_step(
    model: ModelSpec,
    workload: Workload,
    machine: Machine,
    routing: Routing = "fewest",
    *,
    cached: int = 0,
    with_head: bool = True,
) -> Step:
    """Return the pass over the context's tokens, with logits only for the last token of each
    sequence.

    `model` is one device's share. `cached` tokens of each sequence, fewer than the context, are in
    the cache already.
    """
    prefill = dataclasses.replace(workload, phase="prefill", new=workload.context - cached)
    # Every token of the prompt picks experts: as many as the decode step of a batch of that size.
    tokens = dataclasses.replace(prefill, batch=workload.batch * prefill.new)
    flop_total = prefill_flops(model, prefill, with_head=with_head)
    return _step(model, prefill, tokens, flop_total, machine, routing, stages=machine.config.stages)


def decode_step(
    model: ModelSpec, workload: Workload, machine: Machine, routing: Routing = "fewest"
) -> Step:
    """Return one micro-batch's step; arguments as in `prefill_step`."""
    return _step(model, workload, workload, flops(model, workload).total, machine, routing)


def _step(
    model: ModelSpec,
    workload: Workload,
    picking: Workload,
    flop_total: Quantity,
    machine: Machine,
    routing: Routing,
    stages: int = 1,
) -> Step:
    """Return the step that computes `flop_total` FLOP.

    Tokens pick experts as if they were the batch of `picking`; `flop_total` is of all `stages`,
    which share it and the cache.
    """
    weights = bytes_read(model, picking, weights_dtype=machine.weights_dtype, routing=routing)
    cache = cache_read(model, workload, machine.config)
    if stages > 1:
        share = symbol("stages", stages, "devices with layers of their own")
        flop_total = quantity(named(flop_total, "flops_all", "FLOP of all stages") // share)
        cache = quantity(named(cache, "kv_cache_all", "bytes of cache of all stages") // share)
    read = sum_named(
        {"weights": (weights, "bytes of weights read"), "kv_cache": (cache, "bytes of cache read")}
    )
    return Step(flop_total, weights, cache, read, *_times(flop_total, read, machine))


def _times(flop_total: Quantity, read: Quantity, machine: Machine) -> tuple[Ratio, Ratio]:
    """Return the seconds of so many FLOP at the GPU's peak, and of so many bytes at its
    bandwidth.
    """
    peak = machine.gpu.peak_symbol(machine.math.dtype)
    return ratio(named(flop_total, "flops", "FLOP of the step"), peak), ratio(
        read, machine.gpu.bandwidth_symbol
    )


def _tokens_per_second(
    workload: Workload, decode: Step | None, config: ServingConfig
) -> Ratio | None:
    """Return the tokens/s of a batch whose step yields one token per sequence; None if it yields
    another number.
    """
    if decode is None or config.drafts:
        return None
    batch = symbol("B", workload.batch, "batch size, in sequences")
    seconds = decode.seconds
    if decode.bound_by == "compute":
        work = named(decode.flops, "flops", "FLOP of the step")
        speed = named(seconds.denominator, "peak", "dense FLOP/s")
    else:
        work = decode.read
        speed = named(seconds.denominator, "bandwidth", "bytes/s of the memory")
    return ratio(batch * speed, work)


def _compute_bound_batch(
    model: ModelSpec, workload: Workload, machine: Machine
) -> tuple[Quantity | None, Ratio | None]:
    """Return the smallest compute-bound batch (None if there is none), and the FLOP/byte that large
    batches approach.

    Each further sequence adds the same FLOPs and the same bytes of cache. The bytes of weights,
    with the expected experts, grow at most in proportion to the batch. So if a batch is
    compute-bound, every larger one is, and a binary search on ints is exact. Each pipeline stage
    needs that many sequences.
    """
    gpu = machine.gpu
    math = machine.math

    def decode_at(batch: int) -> Step:
        return decode_step(model, dataclasses.replace(workload, batch=batch), machine, "expected")

    single = decode_at(1)
    per_sequence = int(single.flops)
    cached = int(single.cache)
    limit = ratio(
        named(per_sequence, "flops_per_sequence", "FLOP of one sequence's step"),
        named(cached, "kv_cache_per_sequence", "bytes of one sequence's cache"),
    )
    spare = per_sequence * gpu.bandwidth - cached * math.flops
    if spare <= 0:
        return None, limit

    def weights(batch: int, routing: Routing = "expected") -> int:
        step = dataclasses.replace(workload, batch=batch)
        return int(bytes_read(model, step, weights_dtype=machine.weights_dtype, routing=routing))

    def compute_bound(batch: int) -> bool:
        return batch * spare >= weights(batch) * math.flops

    # If all experts were read, the answer would be a division. It is an upper bound, because a step
    # reads fewer.
    upper = int(ceil_div(weights(1, "all") * math.flops, spare))
    smallest = first_true(compute_bound, 0, upper) if model.has_experts else upper
    step = decode_at(smallest)
    # The formula is 'least B where a > b', and the condition is FLOP / peak >= bytes / bandwidth.
    # Multiplied by peak * bandwidth, both sides are integers, so that a >= b is the same as a > b -
    # 1.
    larger = (
        named(step.flops, "flops_at_B", "FLOP of the step at that batch") * gpu.bandwidth_symbol
    )
    smaller = named(step.read, "bytes_read_at_B", "bytes it reads") * gpu.peak_symbol(math.dtype)
    batch = least("B", smallest, "batch size, in sequences", larger, smaller - 1)
    if machine.config.stages == 1:
        return batch, limit
    per_stage = named(
        batch, "micro_batch", "fewest sequences of a stage whose step is compute-bound"
    )
    return quantity(
        per_stage * symbol("stages", machine.config.stages, "devices with layers of their own")
    ), limit
