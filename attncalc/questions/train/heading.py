"""The heading of `attncalc train`: whether the run fits, how long it takes, and its settings."""

from __future__ import annotations

from collections.abc import Iterator

from ...cost.training.fits import Change, context_step, sharded
from ...cost.training.setup import Lora, Training
from ...cost.training.work import Duration
from ...hardware import Gpu
from ...model import plural
from ...show.bar import gib, gib_range
from ...show.report import number
from ...show.verdicts import VERDICTS
from ...units import FLOP, PARAMS, count, days_text, human, short
from .figures import Answer


def heading(of: Answer) -> Iterator[str]:
    """Yield the first lines of the screen."""
    run = of.result.run
    if of.time and of.time.within:
        yield _enough_in_time(run, *of.time.within)
    yield verdict_text(of)
    if of.time:
        yield _time_text(of.time)
    yield ", ".join(run_facts(run))
    if run.model.assumed:
        yield f"ASSUMED: {run.model.assumed}"


def _enough_in_time(run: Training, seconds: float, enough: int) -> str:
    """Return how many GPUs are enough for the time, and whether those of the run are too few."""
    gpus = hardware_text(run.gpu, enough).replace("one ", "1 x ")
    are = "is" if enough == 1 else "are"
    days = "1 day" if seconds == 86400 else f"{number(seconds / 86400)} days"
    text = f"{gpus} {are} enough for {days}"
    if run.gpus >= enough:
        return f"{text}."
    if run.gpus == 1:
        return f"{text}, 1 is not."
    return f"{text}, {count(run.gpus)} are not."


def _time_text(time: Duration) -> str:
    """Return how long the tokens take, and what they cost if a price is given."""
    work = f"{short(time.tokens, PARAMS)} tokens, {human(time.total, FLOP)}"
    hours = f"{days_text(time.seconds)}: {_amount(time.gpu_hours)} GPU-hours"
    if time.money is None:
        hours = f"{hours} (--price 2 adds the price)"
    else:
        hours = f"{hours}, price {_amount(time.money)}"
    speed = f"{100 * time.mfu:g} % MFU of {human(time.peak, FLOP)}/s"
    if time.assumes_mfu:
        return f"{work}, take {hours}, at {speed} (assumed; --mfu sets it)."
    return f"{work}, take {hours}, at {speed}."


def _amount(value: float) -> str:
    """Return hours or money, with two digits below 100."""
    if value < 100:
        return f"{value:,.2f}"
    return f"{value:,.0f}"


def verdict_text(of: Answer) -> str:
    """Return the answer as a sentence: 'FITS: needs 61.2 to 68.3 of 79.1 GiB.'"""
    result = of.result
    run = of.result.run
    needs = gib_range(result.low, result.high)
    on_each = " on each GPU" if run.gpus > 1 else ""
    if result.verdict is None or run.gpu is None:
        return f"NEEDS {needs} GiB{on_each}: add --gpu to see whether it fits."
    verdict = VERDICTS[result.verdict]
    memory = f"{gib(run.gpu.memory)} GiB"
    more = _more_gpus(of)
    if more:
        return (
            f"{verdict} on one GPU. {count(more.run.gpus)} are enough, {fewest_rule(more.run)}: "
            f"{of.flag(more)} needs {_needs(more)} of {memory} on each."
        )
    if of.auto and result.verdict == "fits":
        verdict = f"{verdict} up to {_longest(of)}"
    likely = ""
    if result.verdict == "may_not_fit":
        likely = f" {_likely_text(of)}"
    return f"{verdict}: needs {needs} of {memory}{on_each}.{likely}{_with_a_change(of)}"


def _likely_text(of: Answer) -> str:
    """Return how sure it is that a run fits that may not: 'Likely to fit without expandable
    segments, sure to with them.'
    """
    result = of.result
    run = result.run
    now = (result.likelihood or "").capitalize()
    if run.expandable_segments or run.is_mps:
        return f"{now} to fit."
    then = result.likelihood_with_expandable_segments
    if then == result.likelihood:
        return f"{now} to fit, with expandable segments too."
    return f"{now} to fit without expandable segments, {then} to with them."


def fewest_rule(run: Training) -> str:
    """Return by which rule a number of GPUs is enough: 'by the top of the range, ...'."""
    rule = f"by the top of the range, for {batch_text(run)} on each"
    if run.offload:
        return rule
    return f"{rule} without offload"


def named_change(of: Answer) -> Change | None:
    """Return the change that `verdict_text` names; None if it names none."""
    if of.result.verdict is None or of.result.run.gpu is None:
        return None
    return _more_gpus(of) or _with_shards(of) or _first_change(of)


def _more_gpus(of: Answer) -> Change | None:
    """Return the first change to more GPUs, for a run without adapters on one; None without one."""
    run = of.result.run
    if run.gpus > 1 or run.lora is not None:
        return None
    for change in of.changes:
        if change.run.gpus > 1 and change.run.offload == run.offload:
            return change
    return None


def _longest(of: Answer) -> str:
    """Return what was searched for: 'batch 12', or 'context 9,216, in steps of 1,024'."""
    if of.auto == "context":
        step = count(context_step(of.result.run))
        return f"context {count(of.most)}, in steps of {step}"
    return f"{of.auto} {count(of.most)}"


def _with_a_change(of: Answer) -> str:
    """Return what the run needs with shards, or with the first change, as a sentence after a blank;
    '' without one.
    """
    shards = _with_shards(of)
    if shards:
        return f" Nothing is sharded: with {of.flag(shards)} it needs {_needs(shards)}."
    first = _first_change(of)
    if first:
        return f" With {of.flag(first)} it needs {_needs(first)}."
    return ""


def _with_shards(of: Answer) -> Change | None:
    """Return the change that divides what each GPU has a copy of; None if nothing needs it, or it
    is not possible.
    """
    run = of.result.run
    is_copied = run.gpus > 1 and run.dp == run.gpus and not run.zero
    if is_copied and of.asked and of.result.verdict != "fits":
        return sharded(of.asked)
    return None


def _first_change(of: Answer) -> Change | None:
    if of.changes:
        return of.changes[0]
    return None


def _needs(change: Change) -> str:
    """Return the GiB that a run needs with a change: '61.2 to 68.3'."""
    return gib_range(change.result.low, change.result.high)


def hardware_text(gpu: Gpu | None, gpus: int) -> str:
    if gpu is None:
        return plural(gpus, "GPU")
    if gpus > 1:
        return f"{count(gpus)} x {gpu.title}"
    return f"one {gpu.title}"


def run_facts(run: Training, searched: str = "") -> list[str]:
    """Return the run: the model and its GPUs, then `settings`."""
    return [f"{run.model.title} on {hardware_text(run.gpu, run.gpus)}", *settings(run, searched)]


def settings(run: Training, searched: str = "") -> Iterator[str]:
    """Yield how the run is divided, its batch, optimizer, dtypes and kernels.

    `searched` is 'batch' or 'context' if that is searched for.
    """
    for name, size in {"tp": run.tp, "pp": run.pp, "cp": run.cp, "ep": run.ep}.items():
        if size > 1:
            yield f"{name} {size}"
    if run.is_fsdp:
        yield "FSDP"
    elif run.zero:
        yield f"ZeRO {run.zero}"
    yield batch_text(run, searched)
    yield optimizer_text(run)
    if run.lora:
        yield from _lora_settings(run, run.lora)
    if run.fp8 == "none":
        yield run.dtype
    else:
        yield f"{run.dtype} with {run.fp8} in fp8"
    if run.kernel != "flash":
        yield f"{run.kernel} attention"
    yield from _recompute_settings(run)


def _recompute_settings(run: Training) -> Iterator[str]:
    """Yield what the backward pass recomputes."""
    if run.recompute_modules:
        yield f"recompute {' and '.join(run.recompute_modules)}"
    elif run.recompute_method:
        layers = plural(run.recompute_num_layers, "layer")
        yield f"recompute full, {run.recompute_method} of {layers}"
    elif run.workload.recompute != "none":
        yield f"recompute {run.workload.recompute}"


def _lora_settings(run: Training, lora: Lora) -> Iterator[str]:
    """Yield what is trained beside frozen weights, which may be quantized."""
    if run.weights_dtype:
        yield f"LoRA r={lora.rank} on {run.weights_dtype}"
    else:
        yield f"LoRA r={lora.rank}"
    if run.modules_to_save:
        yield f"whole {' and '.join(run.modules_to_save)}"


def batch_text(run: Training, searched: str = "") -> str:
    """Return '1 x 4,096 tokens x 8 micro-batches', with 'largest batch' or 'longest context' for
    what is searched for.
    """
    batch = count(run.batch)
    tokens = f"{count(run.workload.context)} tokens"
    if searched == "batch":
        batch = "largest batch"
    if searched == "context":
        tokens = "longest context"
    if run.pairs:
        text = f"{batch} x 2 x {tokens}"
    else:
        text = f"{batch} x {tokens}"
    if run.gradient_accumulation > 1:
        return f"{text} x {count(run.gradient_accumulation)} micro-batches"
    return text


def optimizer_text(run: Training) -> str:
    if run.updates_in_place:
        return f"{run.in_optimizer.title} without fp32 weights"
    return run.in_optimizer.title
