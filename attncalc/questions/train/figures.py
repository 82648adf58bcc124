"""The answer of `attncalc train`, and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from ...cost.training.fits import Asked, Change, TrainResult, overhead, reserved, typed
from ...cost.training.setup import Training
from ...cost.training.states import States
from ...cost.training.step import Cached, StageBudget
from ...cost.training.work import Duration, Work
from ...hardware import Gpu
from ...quantity import Quantity, named, quantity, symbol, total
from ...records import NamedTuple
from ...show.figures import SUM, FigureRow, FigureRows, Number, ratio_row
from ...show.report import Figure
from ...units import BYTES, FLOP, NO_UNIT, PARAMS, SECONDS, TOKENS
from .advice import in_keys

# Values by the names of their figures.
Values: TypeAlias = dict[str, Number]

# What is held at the peak only, as the budget names it.
_AT_PEAK = ("activations", "gradients", "logits", "temporary", "communication")
FIGURES = FigureRows(
    weights=FigureRow("weights", BYTES, "weights on one GPU of the most loaded stage", source=SUM),
    optimizer_states=FigureRow(
        "optimizer states", BYTES, "fp32 copies of the weights, and moments", source=SUM
    ),
    gradients=FigureRow("gradients", BYTES, "gradients of a whole step, if all are held at once"),
    activations=FigureRow("activations", BYTES, "what is kept for the backward pass", source=SUM),
    activations_attention=FigureRow(
        "attention", BYTES, "activations of attention, or of whole layers with --recompute full"
    ),
    activations_mlp=FigureRow("MLP", BYTES, "activations of the MLPs"),
    activations_norms=FigureRow("norms", BYTES, "activations of the layers' norms"),
    activations_outside=FigureRow(
        "outside the layers", BYTES, "activations of the embedding, the last norm and the head"
    ),
    logits=FigureRow(
        "logits and loss", BYTES, "logits, or what the loss keeps of them, at the peak"
    ),
    temporary=FigureRow(
        "largest temporary",
        BYTES,
        "gradients of activations and recomputed activations at the peak",
    ),
    gradients_at_peak=FigureRow("gradients", BYTES, "gradients that are held at the peak"),
    activations_at_peak=FigureRow("activations", BYTES, "activations that are held at the peak"),
    references=FigureRow("reference model", BYTES, "weights of frozen copies of the model"),
    communication=FigureRow("communication", BYTES, "buffers of collective operations"),
    loading=FigureRow(
        "full state dict and shard",
        BYTES,
        "what a GPU holds while a checkpoint is loaded",
        "without --load-full-state-dict",
    ),
    workspaces=FigureRow("cuBLAS workspaces", BYTES, "workspaces of cuBLAS, which torch allocates"),
    allocated=FigureRow(
        "allocated at the peak",
        BYTES,
        "the most that tensors hold, in a step or at loading: torch.cuda.max_memory_allocated",
        source=SUM,
    ),
    needed_low=FigureRow(
        "needed, at least", BYTES, "the least that a GPU needs, with allocator and CUDA context"
    ),
    needed=FigureRow("needed", BYTES, "what a GPU is expected to need"),
    needed_high=FigureRow("needed, at most", BYTES, "the most that a GPU needs"),
    gpu_memory=FigureRow(
        "memory of a GPU", BYTES, "memory of a GPU as software sees it", "without --gpu"
    ),
    host_memory=FigureRow("host memory", BYTES, "what --offload moves to host memory, per GPU"),
    params_trained=FigureRow(
        "trained parameters", PARAMS, "trained parameters of the stage on one GPU, before ZeRO"
    ),
    params_frozen=FigureRow(
        "frozen parameters", PARAMS, "frozen parameters of the stage on one GPU, before ZeRO"
    ),
    step_tokens=FigureRow("tokens per step", TOKENS, "tokens of a step of all GPUs"),
    flops_per_step=FigureRow(
        "model FLOP per step", FLOP, "FLOP of a step of all GPUs, without recomputation"
    ),
    flops_hardware=FigureRow("hardware FLOP per step", FLOP, "the same with recomputation"),
    flops_per_token=ratio_row(
        "model FLOP per token", "FLOP of a step divided by its tokens", unit=FLOP
    ),
    six_n_d=FigureRow("6 N D per step", FLOP, "the usual estimate of a step", "with an encoder"),
    training_seconds=FigureRow(
        "time", SECONDS, "seconds that --tokens take, rounded down", "without --tokens"
    ),
    gpu_hours=FigureRow(
        "GPU-hours", NO_UNIT, "hours of all GPUs together, rounded down", "without --tokens"
    ),
)
SOURCE = (
    "Rajbhandari et al. 2019, arXiv:1910.02054 (states); Korthikanti et al. 2022, "
    "arXiv:2205.05198 (activations)"
)


class Answer(NamedTuple):
    result: TrainResult  # whether it fits
    work: Work  # its FLOPs
    time: Duration | None  # how long it takes; None if not asked
    auto: str  # what was searched for
    changes: tuple[Change, ...]  # changes that make it fit
    # Without a GPU, the fewest of common ones for each way to tune, with their changes; None if
    # 1,024 are not enough
    fewest: tuple[tuple[Gpu, dict[str, Change | None]], ...] = ()
    # {way to tune: the run without such changes}
    by_way: Mapping[str, TrainResult] = MappingProxyType({})
    asked: Asked | None = None  # the run with its options; None if no changes are asked for
    # the trainer whose command or file was given, with how its keys are written: 'trl command'
    launcher: str = ""

    def flag(self, change: Change) -> str:
        """Return a change as the reader types it: in the keys of the trainer whose command or file
        was given, or as options of `attncalc train`.
        """
        return in_keys(typed(change.options), self.launcher)

    @property
    def most(self) -> int:
        """Return what was searched for: the longest context, or the largest micro-batch in
        examples.
        """
        run = self.result.run
        if self.auto == "context":
            return run.workload.context
        return run.batch


def train_figures(of: Answer) -> tuple[Figure, ...]:
    states = of.result.budget.states
    return FIGURES.filled(
        SOURCE,
        **_state_values(states),
        **_activation_values(of.result.budget),
        **_peak_values(of.result.budget),
        **_needed_values(of.result),
        **_work_values(of),
        params_trained=states.trained,
        params_frozen=states.frozen,
        host_memory=states.on_host,
    )


def _state_values(states: States) -> Values:
    """Return what is held for the whole run, and the gradients of a step."""
    return {
        "weights": _weights(states),
        "optimizer_states": _optimizer_states(states),
        "references": states.references,
        "gradients": states.gradients,
    }


def _weights(states: States) -> Quantity:
    return total((states.weights, states.frozen_weights))


def _optimizer_states(states: States) -> Quantity:
    return total((states.master, states.moments))


def _activation_values(budget: StageBudget) -> Values:
    """Return what is kept for the backward pass, by part."""
    parts = budget.activations
    kept = (
        named(size, f"activations_{part}", f"bytes of activations, {part}")
        for part, size in parts.items()
    )
    outside = total(parts[name] for name in ("embedding", "head") if name in parts)
    none = quantity(0)
    return {
        "activations": total(kept),
        "activations_attention": parts.get("attention", none),
        "activations_mlp": parts.get("mlp", none),
        "activations_norms": parts.get("norms", none),
        "activations_outside": outside,
    }


def _held_at_peak(budget: StageBudget) -> dict[str, Quantity]:
    """Return the bytes of each of _AT_PEAK."""
    return {
        name: total(held.size for held in budget.peak.held if held.name == name)
        for name in _AT_PEAK
    }


def _peak_values(budget: StageBudget) -> Values:
    """Return what is held at the peak, besides what is held for the whole run."""
    at_peak = _held_at_peak(budget)
    return {
        "logits": at_peak["logits"],
        "temporary": at_peak["temporary"],
        "communication": at_peak["communication"],
        "gradients_at_peak": at_peak["gradients"],
        "activations_at_peak": at_peak["activations"],
        "workspaces": budget.workspaces,
        "loading": _loading(budget),
        "allocated": _loading(budget) if budget.peaks_at_loading else _allocated_in_step(budget),
    }


def _loading(budget: StageBudget) -> Quantity | None:
    """Return the bytes while a checkpoint is loaded; None if they are not asked for."""
    return budget.loading or None


def _allocated_in_step(budget: StageBudget) -> Quantity:
    """Return the bytes that tensors hold at the peak of a step, as the sum of what has a name."""
    states = budget.states
    parts = [
        ("weights", _weights(states), "bytes of the weights"),
        ("optimizer_states", _optimizer_states(states), "bytes of the optimizer's states"),
        ("references", states.references, "bytes of reference models"),
        ("workspaces", budget.workspaces, "bytes of cuBLAS's workspaces"),
    ]
    for name, size in _held_at_peak(budget).items():
        parts.append((name, size, f"bytes of {name} at the peak"))
    return total(named(size, name, meaning) for name, size, meaning in parts if size)


def _needed_values(result: TrainResult) -> Values:
    """Return what a GPU needs, with the allocator's reserve and the CUDA context, and what it
    has.
    """
    run = result.run
    budget = result.budget
    cached = Cached(
        named(
            budget.cached.logits,
            "freed_logits",
            "bytes of logits in 16 bits, which the allocator holds when freed",
        ),
        named(
            budget.cached.streams,
            "streams",
            "bytes of FSDP's buffers and gradients in streams of their own",
        ),
        named(
            budget.cached.transposes, "transposes", "bytes of transposed copies of weights in fp8"
        ),
    )
    allocated = named(
        _allocated_in_step(budget), "allocated", "bytes allocated at the peak of a step"
    )
    loading = named(budget.loading, "loading", "bytes allocated while a checkpoint is loaded")
    largest = symbol("largest_tensor", budget.largest, "bytes of the largest tensor")
    reserves = reserved(run, allocated, largest, cached, loading)
    low, expected, high = (
        quantity(size + symbol("context", outside, "bytes of CUDA context and NCCL"))
        for size, outside in zip(reserves, overhead(run), strict=True)
    )
    gpu_memory = None
    if run.gpu:
        gpu_memory = symbol("gpu_memory", run.gpu.memory, f"bytes of {run.gpu.title}")
    return {"needed_low": low, "needed": expected, "needed_high": high, "gpu_memory": gpu_memory}


def _work_values(of: Answer) -> Values:
    """Return the tokens and the FLOPs of a step, and the time of a run."""
    seconds = None
    gpu_hours = None
    if of.time:
        seconds = quantity(int(of.time.seconds))
        gpu_hours = quantity(int(of.time.gpu_hours))
    return {
        "step_tokens": _tokens(of.result.run),
        "flops_per_step": of.work.per_step,
        "flops_hardware": of.work.hardware,
        "flops_per_token": of.work.per_token,
        "six_n_d": of.work.six_n_d,
        "training_seconds": seconds,
        "gpu_hours": gpu_hours,
    }


def _tokens(run: Training) -> Quantity:
    return quantity(
        symbol("dp", run.dp, "data-parallel ranks")
        * symbol("micro_batches", run.gradient_accumulation, "micro-batches of a step")
        * symbol("B", run.workload.batch, "sequences of a micro-batch")
        * symbol("T", run.workload.context, "tokens of a sequence")
    )
