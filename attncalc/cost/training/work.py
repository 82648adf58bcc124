"""The FLOPs of a training step, and how long and how much a number of tokens takes.

Model FLOPs are 3 forward passes with the exact mask; hardware FLOPs add what is recomputed
(arXiv:2205.05198, 5.1). With frozen weights the backward pass computes no gradients of them: 2
forward passes. Adapters are not counted. A reference model has a forward pass of its own, as has
the model without its adapters in its place.
"""

from ...quantity import Quantity, Ratio, quantity, ratio, symbol
from ...records import NamedTuple
from ..flops import Flops, flops
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
    if of_batch.recomputation:
        exact = of_batch.total - of_batch.recomputation
    else:
        exact = of_batch.total
    if run.lora or run.references:
        exact = quantity(exact * ((2 if run.lora else 3) + run.references) // 3)
    if "lm_head" in run.modules_to_save:
        weights = (run.model.vocab_size or 0) * run.model.table_width
        of_head = 2 * run.workload.batch * run.workload.context * weights
        exact = quantity(
            exact + symbol("flops_head", of_head, "FLOP of the gradient of the head's copy")
        )
    per_step = quantity(batches * exact)
    if of_batch.recomputation:
        hardware = quantity(batches * (exact + of_batch.recomputation))
    else:
        hardware = per_step
    tokens = symbol("tokens", run.tokens, "tokens of a step")
    six = quantity(batches * of_batch.six_n_d) if of_batch.six_n_d is not None else None
    return Work(per_step, ratio(per_step, tokens), hardware, six, of_batch)


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
