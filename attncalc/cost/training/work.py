"""The FLOPs of a training step, and how long and how much a number of tokens takes.

Model FLOPs are 3 forward passes with the exact mask; hardware FLOPs add what is recomputed
(arXiv:2205.05198, 5.1). With frozen weights the backward pass computes no gradients of them: 2
forward passes. Adapters are not counted. A reference model has a forward pass of its own, as has
the model without its adapters in its place.
"""

import dataclasses
from collections import Counter

from ...attention.kind import MULTIPLY_ADD
from ...attention.latent import Latent
from ...engines.pipeline import cut
from ...model import Layers
from ...quantity import Quantity, Ratio, quantity, ratio, symbol
from ...records import NamedTuple
from ..flops import Flops, flops
from .selective import has_experts, recomputed_layers
from .setup import Training


class Work(NamedTuple):
    """The FLOPs of a step of all GPUs."""

    per_step: Quantity  # model FLOPs of a step
    per_token: Ratio  # model FLOPs of a token
    hardware: Quantity  # FLOPs of a step with recomputation
    six_n_d: Quantity | None  # 6 N D of a step; None for a model with an encoder
    flops: Flops  # the FLOPs of one micro-batch


class Duration(NamedTuple):
    tokens: int  # tokens
    mfu: float  # the share of the GPUs' peak FLOP/s
    peak: int  # the peak FLOP/s of a GPU in the activations' dtype
    total: int  # model FLOPs of all tokens
    seconds: float  # seconds on all GPUs
    gpu_hours: float  # hours of all GPUs together
    money: float | None  # their price; None without one
    assumes_mfu: bool = False  # whether the share is a usual one, and not given
    # the seconds that it may take, and how many GPUs are enough; None if open
    within: tuple[float, int] | None = None


def work(run: Training) -> Work:
    of_batch = flops(run.model, run.workload)
    batches = symbol(
        "micro_batches", run.dp * run.gradient_accumulation, "micro-batches of a step, of all GPUs"
    )
    exact = of_batch.total
    if of_batch.recomputation:
        exact = of_batch.total - of_batch.recomputation
    again = of_batch.recomputation
    if run.recompute_modules:
        again = _of_modules(run, of_batch)
    elif run.recompute_method == "block":
        again = _of_block(run, of_batch)
    if run.lora or run.references:
        exact = quantity(exact * ((2 if run.lora else 3) + run.references) // 3)
    if "lm_head" in run.modules_to_save:
        weights = (run.model.vocab_size or 0) * run.model.table_width
        of_head = 2 * run.workload.batch * run.workload.context * weights
        exact = quantity(
            exact + symbol("flops_head", of_head, "FLOP of the gradient of the head's copy")
        )
    per_step = quantity(batches * exact)
    hardware = per_step
    if again:
        hardware = quantity(batches * (exact + again))
    tokens = symbol("tokens", run.tokens, "tokens of a step")
    six = quantity(batches * of_batch.six_n_d) if of_batch.six_n_d is not None else None
    return Work(per_step, ratio(per_step, tokens), hardware, six, of_batch)


def _of_block(run: Training, of_batch: Flops) -> Quantity:
    """Return the FLOPs of a forward pass through the layers of each stage that are recomputed."""
    layers = run.model.main.each_layer()
    again = Counter[Layers]()
    for of_stage in cut(layers, run.stage_layers.sizes):
        for group, found in recomputed_layers(run, of_stage).items():
            again[group] += found.layers
    parts = []
    for (_, group), counted in zip(run.model.groups(), of_batch.groups, strict=True):
        n = again[dataclasses.replace(group, count=1)]
        parts.append(int(counted.recomputation) * n // int(group.count))
    return symbol("flops_block", sum(parts), "FLOP of the layers that are recomputed")


def _of_modules(run: Training, of_batch: Flops) -> Quantity:
    """Return the FLOPs of a forward pass through the modules that are recomputed.

    Norms, activation functions and RoPE multiply no matrices.
    """
    modules = run.recompute_modules
    tokens = run.workload.batch * run.workload.context
    parts = []
    for stack, layers in run.model.groups():
        weights = 0
        if "mla_up_proj" in modules and isinstance(layers.attention, Latent):
            first = "W_q" if layers.attention.q_lora_rank is None else "W_q_b"
            matrices = layers.attention.matrices(stack.d_model, stack.d_model)
            weights += sum(int(m.weights) for m in matrices if m.name in (first, "W_kv_b"))
        mlp = layers.mlp
        if "shared_experts" in modules and "moe" not in modules and mlp is not None:
            of_expert = sum(int(m.weights) for m in mlp.expert(stack.d_model))
            weights += of_expert * (mlp.n_shared_experts or 0)
            weights += sum(int(m.weights) for m in mlp.shared(stack.d_model))
        parts.append(MULTIPLY_ADD * tokens * int(layers.count) * weights)
    for group in of_batch.groups:
        if "core_attn" in modules:
            parts.append(int(group.scores) // 3)
        if ("moe" if has_experts(group.layers) else "mlp") in modules:
            parts.append(int(group.mlp) // 3)
    return symbol("flops_modules", sum(parts), "FLOP of the modules that are recomputed")


def duration(
    run: Training, of: Work, tokens: int, mfu: float, peak: int, price: float | None
) -> Duration:
    """Return how long `tokens` take at a share `mfu` of the GPUs' peak FLOP/s, and their price per
    GPU-hour.
    """
    total = int(of.per_step) * tokens // run.tokens
    seconds = total / (peak * mfu * run.gpus)
    hours = seconds * run.gpus / 3600
    return Duration(
        tokens, mfu, peak, total, seconds, hours, None if price is None else hours * price
    )
