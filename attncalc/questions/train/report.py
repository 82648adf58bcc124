"""The report of `attncalc train`: whether a training run fits on its GPUs, its memory by part, and
its FLOPs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...attention.linear import GatedDeltaNet
from ...attention.mamba import Mamba, Mamba2
from ...cost.training.activations import has_windows
from ...cost.training.classes import class_math, saves_more
from ...cost.training.fits import (
    VARIED,
    Change,
    TrainResult,
    all_changes,
    context_step,
    sharded,
    stage_sizes,
)
from ...cost.training.setup import Training
from ...cost.training.states import States
from ...hardware import Gpu
from ...model import plural
from ...show.bar import gib, gib_range
from ...show.lists import WIDTH, option_lines
from ...show.report import LABEL, Column, Figure, Report, Table, number, workload_facts
from ...show.text import HEIGHT, height
from ...show.verdicts import VERDICTS
from ...units import BYTES, FLOP, GIB, PARAMS, count, dtype, exact, human, short
from .figures import Answer, days_text, train_figures

if TYPE_CHECKING:
    from ...show.plot.chart import Picture


def train_report(of: Answer, *, full: bool = False) -> Report:
    result = of.result
    run = of.result.run
    figures = {figure.name: figure for figure in train_figures(of)}
    notes = tuple(_notes(of))
    tables = list(_further_tables(of, figures, full=full))
    report = Report(
        "train",
        tuple(_heading(of)),
        run.model.facts(),
        workload_facts(run.model, run.workload),
        tuple(figures.values()),
        tables=(_budget_table(of, figures, with_parts=True), *tables),
        notes=notes,
        terms=tuple(_terms(result)),
        extra=train_extra(of),
        verdict=result.verdict,
        shown_notes=notes if full else tuple(_short_notes(of, notes)),
        draw=lambda: _picture(of),
    )
    if full or height(report) <= HEIGHT:
        return report
    shorter = report._replace(tables=(_budget_table(of, figures, with_parts=False), *tables))
    if of.fewest and height(shorter) > HEIGHT:
        *others, work = shorter.tables
        # without the FLOPs
        if work.rows[2:]:
            rest = [work._replace(rows=work.rows[2:])]
        else:
            rest = []
        shorter = shorter._replace(tables=(*others, *rest))
    rows = _change_rows(of.changes) if of.changes and height(shorter) > HEIGHT else []
    keeps_last = run.lora is None  # how many GPUs are enough
    while rows:
        shorter = shorter._replace(tables=(shorter.tables[0], _changes_table(rows)))
        if height(shorter) <= HEIGHT or len(rows) == 1:
            break
        rows.pop(-2 if keeps_last and len(rows) > 2 else -1)
    return shorter


def _picture(of: Answer) -> Picture | None:
    """Return the memory by part over the context, and the stages of a pipeline."""
    from ...show.picture import captions
    from ...show.plot.chart import Picture
    from .chart import DEFAULT, train_charts

    run = of.result.run
    charts = tuple(train_charts(run, stage_sizes(run)))
    shown = tuple(chart.name for chart in charts if chart.name in DEFAULT)
    model, *facts = filter(None, run_facts(run))
    return Picture(model, verdict_text(of), captions([", ".join(facts)]), charts, shown)


def _further_tables(of: Answer, figures: dict[str, Figure], *, full: bool) -> Iterator[Table]:
    """Yield the changes that make it fit, the work of a step, and with `full` the stages."""
    result = of.result
    run = of.result.run
    if of.fewest:
        yield _fewest_table(of)
    if of.changes:
        yield _changes_table(_change_rows(of.changes))
    elif of.asked and result.verdict in ("may_not_fit", "does_not_fit"):
        most = all_changes(of.asked)
        needs = f"All together, it needs {gib_range(most.result.low, most.result.high)} GiB:"
        lines = (
            f"No change is sure to make it fit. {needs}",
            *(f"  {x}" for x in option_lines(most.flag, WIDTH - 4)),
        )
        yield Table((LABEL,), tuple((line,) for line in lines))
    if full or of.time or result.verdict in (None, "fits"):
        yield _work_table(of, figures)
    if full and len(run.stages) > 1:
        rows = tuple((str(i), f"{size / GIB:.2f}") for i, size in enumerate(stage_sizes(run)))
        yield Table((Column("stage"), Column("allocated\nGiB")), rows)


def _budget_table(of: Answer, figures: dict[str, Figure], *, with_parts: bool) -> Table:
    rows = list(_budget_rows(of, figures, with_parts=with_parts))
    return Table((LABEL, Column(), Column()), tuple(rows), strong=frozenset({len(rows) - 1}))


def _terms(result: TrainResult) -> Iterator[Figure]:
    """Yield what the figures' formulas name: the parameters, and the parts of the states."""
    states = result.budget.states
    rows = (
        ("master_weights", "fp32 copies of the weights", states.master),
        ("moments", "moments of the optimizer", states.moments),
        ("frozen_weights", "frozen weights", states.frozen_weights),
    )
    for name, label, value in rows:
        if value:
            yield Figure(name, label, value, BYTES, result.run.in_optimizer.source)


# The screen


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


def _heading(of: Answer) -> Iterator[str]:
    run = of.result.run
    if of.time and of.time.within:
        yield _enough_in_time(run, *of.time.within)
    yield verdict_text(of)
    if of.time:
        how = " (assumed; --mfu sets it)" if of.time.assumes_mfu else ""
        if of.time.money is None:
            money = " (--price 2 adds the price)"
        else:
            money = f", price {_amount(of.time.money)}"
        yield (
            f"{short(of.time.tokens, PARAMS)} tokens, {human(of.time.total, FLOP)}, take "
            f"{days_text(of.time.seconds)}: {_amount(of.time.gpu_hours)} GPU-hours"
            f"{money}, at {100 * of.time.mfu:g} % MFU of {human(of.time.peak, FLOP)}/s{how}."
        )
    yield ", ".join(filter(None, run_facts(run)))
    if run.model.assumed:
        yield f"ASSUMED: {run.model.assumed}"


def verdict_text(of: Answer) -> str:
    """Return the answer as a sentence: 'FITS: needs 61.2 to 68.3 of 79.1 GiB.'"""
    result = of.result
    run = of.result.run
    needs = gib_range(result.low, result.high)
    on_each = " on each GPU" if run.gpus > 1 else ""
    if result.verdict is None or run.gpu is None:
        return f"NEEDS {needs} GiB{on_each}: add --gpu to see whether it fits."
    memory = f"of {gib(run.gpu.memory)} GiB"
    verdict = VERDICTS[result.verdict]
    if run.gpus == 1 and run.lora is None:
        for change in of.changes:
            if change.run.gpus > 1 and change.run.offload == run.offload:
                each = gib_range(change.result.low, change.result.high)
                enough = (
                    f"{count(change.run.gpus)} are enough: {change.flag} needs {each} {memory} on "
                    "each."
                )
                return f"{verdict} on one GPU. {enough}"
    what = ""
    if of.auto and result.verdict == "fits":
        what = f" up to {of.auto} {count(of.most)}"
        if of.auto == "context":
            what += f", in steps of {count(context_step(run))}"
    after = _if_sharded(of)
    for change in () if after else of.changes[:1]:
        after = f" With {change.flag} it needs {gib_range(change.result.low, change.result.high)}."
    return f"{verdict}{what}: needs {needs} {memory}{on_each}.{after}"


def _if_sharded(of: Answer) -> str:
    """Return what plain data parallelism would need with shards, unless it fits."""
    result = of.result
    run = of.result.run
    if (
        of.asked is None
        or result.verdict == "fits"
        or run.zero
        or run.gpus == 1
        or run.dp < run.gpus
    ):
        return ""
    change = sharded(of.asked)
    if change is None:
        return ""
    needs = gib_range(change.result.low, change.result.high)
    return f" Nothing is sharded: with {change.flag} it needs {needs}."


def hardware_text(gpu: Gpu | None, gpus: int) -> str:
    if gpu is None:
        return plural(gpus, "GPU")
    if gpus > 1:
        return f"{count(gpus)} x {gpu.title}"
    return f"one {gpu.title}"


def run_facts(run: Training, searched: str = "") -> tuple[str, ...]:
    """Return what a run is, in words: model and GPUs, split, shards, batch, optimizer, LoRA, dtype,
    kernel and recomputation; '' for those that need no word.

    `searched` is 'context' or 'batch', which then has no number; '' for none.
    """
    split = {"tp": run.tp, "pp": run.pp, "cp": run.cp, "ep": run.ep}
    sizes = {"batch": count(run.batch), "context": count(run.workload.context)} | {searched: "?"}
    batch = f"{sizes['batch']} x {sizes['context']} tokens"
    if run.pairs:
        batch = f"{sizes['batch']} x 2 x {sizes['context']} tokens"
    if run.gradient_accumulation > 1:
        batch += f" x {count(run.gradient_accumulation)} micro-batches"
    lora = f"LoRA r={run.lora.rank}" if run.lora else ""
    if run.lora and run.weights_dtype:
        lora += f" on {run.weights_dtype}"
    return (
        f"{run.model.title} on {hardware_text(run.gpu, run.gpus)}",
        ", ".join(f"{name} {n}" for name, n in split.items() if n > 1),
        "FSDP" if run.is_fsdp else f"ZeRO {run.zero}" if run.zero else "",
        batch,
        run.in_optimizer.title + (" without fp32 weights" if run.updates_in_place else ""),
        lora,
        run.dtype + (f" with {run.fp8} in fp8" if run.fp8 != "none" else ""),
        "" if run.kernel == "flash" else f"{run.kernel} attention",
        f"recompute {run.workload.recompute}" if run.workload.recompute != "none" else "",
    )


def _budget_rows(
    of: Answer, figures: dict[str, Figure], *, with_parts: bool
) -> Iterator[tuple[str, ...]]:
    result = of.result
    run = of.result.run
    budget = of.result.budget

    def row(name: str, *others: str, label: str = "") -> Iterator[tuple[str, str, str]]:
        if size := sum(figures[one].whole or 0 for one in (name, *others)):
            yield (label or figures[name].label, human(size, BYTES), exact(size, BYTES))

    for name in (
        "weights",
        "optimizer_states",
        "references",
        "gradients_at_peak",
        "activations_at_peak",
    ):
        yield from row(name)
    parts = [
        name
        for name in figures
        if name.startswith("activations_") and name != "activations_at_peak"
    ]
    shown = [name for name in parts if figures[name].whole]
    if (
        figures["activations_at_peak"].whole == figures["activations"].whole
        and len(shown) > 1
        and with_parts
    ):
        for name in shown:
            yield from row(name, label=f"  {figures[name].label}")
    for name in ("logits", "temporary"):
        yield from row(name)
    if figures["communication"].whole and not with_parts:
        yield from row("communication", "workspaces", label="communication, cuBLAS")
    else:
        yield from (*row("communication"), *row("workspaces"))
    yield from row("allocated")
    low = result.low - budget.allocated
    high = result.high - budget.allocated
    outside = "allocator, CUDA context" + (", NCCL" if run.gpus > 1 else "")
    yield (outside, f"{low / GIB:.2f} GiB", f"to {high / GIB:.2f} GiB")
    yield ("needed", human(result.low, BYTES), f"to {human(result.high, BYTES)}")


# Columns of the options in the table of changes, at least.
_NARROWEST_CHANGE = 24


def _change_rows(found: Sequence[Change]) -> list[list[tuple[str, ...]]]:
    """Return the rows of each change: its options, which may take several, what it needs and what
    it costs.
    """
    results = [change.result for change in found]
    numbers = [
        (gib_range(one.low, one.high), change.costs)
        for one, change in zip(results, found, strict=True)
    ]
    room = WIDTH - 6 - sum(max(map(len, column)) for column in zip(*numbers, strict=True))
    rows: list[list[tuple[str, ...]]] = []
    for change, cells in zip(found, numbers, strict=True):
        options, *more = option_lines(change.flag, max(room, _NARROWEST_CHANGE))
        rows.append([(options, *cells), *((f"  {line}", "", "") for line in more)])
    return rows


def _changes_table(rows: Sequence[list[tuple[str, ...]]]) -> Table:
    columns = (Column("change", "left"), Column("GiB"), Column("cost", "left"))
    return Table(columns, tuple(row for of_change in rows for row in of_change))


def _fewest_table(of: Answer) -> Table:
    columns = [Column("fewest GPUs, up to 1,024", "left"), *map(Column, of.fewest[0][1])]
    rows = [
        (
            f"{gpu.name}, {gib(gpu.memory)} GiB",
            *(count(one.run.gpus) if one else "-" for one in by_way.values()),
        )
        for gpu, by_way in of.fewest
    ]
    if of.by_way:
        rows.append(
            (
                "needed on one GPU, GiB",
                *(gib_range(one.low, one.high) for one in of.by_way.values()),
            )
        )
    return Table(tuple(columns), tuple(rows))


def _work_table(of: Answer, figures: dict[str, Figure]) -> Table:
    rows = [
        ("a step", f"{count(of.result.run.tokens)} tokens", figures["flops_per_step"].human),
        ("per token", "", figures["flops_per_token"].human),
    ]
    if of.work.hardware != of.work.per_step:
        rows.append(("a step with recomputation", "", figures["flops_hardware"].human))
    if of.time:
        rows.append((f"{count(of.time.tokens)} tokens", "", human(of.time.total, FLOP)))
    if of.result.run.lora:
        trained, frozen = (figures[name].whole or 0 for name in ("params_trained", "params_frozen"))
        label = "trained parameters"
        if of.result.run.tp * of.result.run.pp > 1:
            label = "trained parameters of the stage on one GPU"
        rows.append((label, count(trained), f"{100 * trained / (trained + frozen):.2f} %"))
    return Table((LABEL, Column(), Column()), tuple(rows))


def _amount(value: float) -> str:
    """Return hours or money, with two digits below 100."""
    if value < 100:
        return f"{value:,.2f}"
    return f"{value:,.0f}"


def _notes(of: Answer) -> Iterator[str]:
    result, run, budget = of.result, of.result.run, of.result.budget
    stage = f" Stage {budget.stage.number} of {run.pp} is the most loaded." if run.pp > 1 else ""
    copies = run.master_weights and dtype(run.grad_dtype).bits == 16 and budget.held("temporary")
    of_step = (
        ", with fp32 copies of the gradients"
        if copies and budget.peak.name == "optimizer step"
        else ""
    )
    master, moments = int(budget.states.master), int(budget.states.moments)
    per_weight = f"{4 * (master + moments) / master:.3g} B per parameter" if master else ""
    of_states = (
        f" Optimizer states are {per_weight}, including 4 B of fp32 master weights."
        if master
        else ""
    )
    yield f"Memory peaks during the {budget.peak.name}{of_step}.{stage}{of_states}"
    yield from _fewest_notes(of)
    yield from _weights_notes(run, budget.states)
    if of.auto and result.verdict != "fits":
        yield f"Not even the smallest {of.auto} is sure to fit."
    if of.work.six_n_d is not None and not (run.lora or run.references):
        share = int(of.work.per_step) / int(of.work.six_n_d)
        yield (
            f"The exact FLOPs are {share:.2f} x 6 N D, which leaves out the scores of attention "
            "and counts the embedding as a matmul."
        )
    half = dict(run.gpu.flops).get("bf16", 0) if of.time and run.gpu and run.dtype == "fp32" else 0
    if of.time and half > of.time.peak:
        yield (
            f"warning: Autocast (--dtype bf16 --param-dtype fp32) has {half / of.time.peak:.0f} x "
            "the FLOP/s of fp32."
        )
    if run.zero and run.ranks == 1:
        name = "--fsdp" if run.is_fsdp else f"--zero {run.zero}"
        why = "tp and pp use all GPUs" if run.gpus > 1 else "there is one GPU"
        yield f"warning: {name} shards nothing: {why}"
    if budget.states.on_host:
        yield f"In host memory: {human(budget.states.on_host, BYTES)} per GPU."
    if run.model.has_experts:
        yield "Tokens are assumed to be spread evenly over the experts."
        experts = (
            max(layers.mlp.n_experts or 0 for _, layers in run.model.groups() if layers.mlp)
            // run.ep
        )
        if run.is_fsdp and run.expert_ranks > experts:
            yield (
                "warning: transformers stacks a layer's experts, and FSDP divides them by their "
                "number: each of "
                f"{run.expert_ranks} ranks would hold one of {experts}. Counted is a part of "
                "each, as in torchtitan."
            )
    yield (
        "Activations are those of transformers' classes: norms and the loss compute in fp32. "
        "--compile fuses element-wise operations and keeps less."
    )
    yield from _kernel_warnings(run)
    yield from _head_warnings(run)
    if (times := saves_more(run.model.model_type)) > 1:
        yield f"warning: The layers of this class save about {times:g} x as much in transformers."
    yield (
        "The allocator reserves more than is allocated, the more the larger one tensor is "
        "(measured on an H200); the "
        "CUDA context takes 0.14 to 0.75 GiB. --expandable-segments narrows the range."
    )
    if result.needs_one_length:
        yield (
            "warning: The batches are assumed to have one length, padded or packed. Varied "
            "lengths need up to "
            f"{VARIED - 100} % more than is allocated, and so --expandable-segments."
        )
    yield from run.workload.assumed
    yield from run.model.notes


def _fewest_notes(of: Answer) -> Iterator[str]:
    """Yield with which changes the fewest GPUs are enough, for each way to tune; a screen has the
    first.
    """
    for i, way in enumerate(of.fewest[0][1] if of.fewest else ()):
        changed = (one.flag for _, by_way in of.fewest if (one := by_way[way]))
        flags = dict.fromkeys(
            flag for text in changed for flag in re.split(" (?=--)", text) if flag
        )
        used = ", ".join(flag for flag in flags if not flag.startswith("--gpus"))
        if used:
            yield f"{f'For {way}:' if i else 'Fewest GPUs:'} {used}."


def _weights_notes(run: Training, states: States) -> Iterator[str]:
    """Yield how weights are stored and updated."""
    if run.updates_in_place and run.in_optimizer.in_place:
        yield (
            f"{run.in_optimizer.in_place} updates weights of 16 bits in place; --master-weights "
            "counts fp32 copies."
        )
    if states.transposes:
        yield (
            f"The range has {human(states.transposes, BYTES)} of transposed weights, which "
            "Transformer Engine keeps for weights that are created in fp8, but on a B200 or B300."
        )
    if run.optimizer.startswith("paged"):
        size = human(states.moments, BYTES)
        yield f"Paged: CUDA moves the optimizer's {size} to the host when the GPU is full."
    if run.keeps_quantized_inputs:
        yield (
            "Matmuls of quantized matrices keep their inputs, as bitsandbytes' in int8 and, "
            "before 0.43.2, in 4 bits."
        )
    if run.pairs:
        yield (
            f"A pair of answers is two sequences, so -b {run.batch} is {run.workload.batch} "
            "sequences."
        )
    if run.references:
        if run.lora:
            copies = "With adapters it is the model without them, and no copy. "
        else:
            copies = ""
        yield (
            f"The reference model's forward pass is counted. {copies}The loss is counted as "
            "cross-entropy."
        )
    if run.weights_dtype and states.experts_left:
        yield (
            "warning: bitsandbytes does not quantize the experts that transformers 5 stacks: "
            "they would take "
            f"{human(states.experts_left, BYTES)} more. Unsloth quantizes them, as is counted."
        )
    if run.weights_dtype and run.kbit_upcast:
        yield (
            "Embedding, head and norms are in fp32, as peft's prepare_model_for_kbit_training "
            "casts them, and so is "
            "the residual stream under autocast; --no-kbit-upcast leaves them in 16 bits, as "
            "Unsloth and torchtune do."
        )


def _head_warnings(run: Training) -> Iterator[str]:
    """Yield what another head than the released model's would add."""
    model = run.model
    if model.vocab_size and (model.head is None or model.head.kind == "pooler"):
        size = human(12 * run.workload.batch * run.workload.context * model.vocab_size, BYTES)
        yield (
            "warning: No loss is counted. Logits of masked-language modelling would add up to "
            f"{size}."
        )


# Kinds with kernels of their own, the packages that have them, and how many times as much layers of
# 13 classes saved without them (transformers 5.17 on an H200, 2 x 512 tokens).
_WITHOUT_KERNELS = (
    (Mamba, "mamba-ssm and causal-conv1d", "9 to 24"),
    (Mamba2, "mamba-ssm and causal-conv1d", "4 to 12"),
    (GatedDeltaNet, "flash-linear-attention and causal-conv1d", "2 to 12"),
)


def _kernel_warnings(run: Training) -> Iterator[str]:
    """Yield why transformers runs another kernel than the one that is counted, or than SDPA's."""
    if run.gpu and not run.gpu.has_bf16 and run.dtype == "fp16":
        yield (
            f"warning: {run.gpu.title} has no bf16, and SDPA's flash kernel does not run on it: "
            "fp16 is counted."
        )
    for kind, packages, times in _WITHOUT_KERNELS:
        if any(isinstance(layers.attention, kind) for _, layers in run.model.groups()):
            yield (
                f"warning: Without {packages} transformers computes recurrent layers in single "
                f"operations, which save {times} x as much (measured)."
            )
    keeps_fp32 = (
        run.lora
        and run.param_dtype == "fp32" != run.dtype
        and not (run.autocasts_adapters or run.autocast)
    )
    if keeps_fp32 and run.workload.recompute == "none":
        yield (
            "Adapters in fp32 keep fp32 inputs. --autocast counts those of 16 bits, as with the "
            "Trainer's bf16=True."
        )
    if (
        run.workload.recompute == "selective"
        and run.kernel not in ("math", "eager")
        and run.fp8 == "none"
    ):
        yield (
            f"warning: {run.kernel} attention keeps no scores that --recompute selective would "
            "drop. torchtitan's selective is --recompute op."
        )
    if not class_math(run.model.model_type).has_sdpa:
        yield (
            "warning: transformers runs this class without SDPA: eager attention is its default. "
            "--kernel flash counts a flash kernel for it, with soft caps or sinks."
        )
    elif (
        run.kernel in ("flash", "efficient", "cudnn")
        and class_math(run.model.model_type).broadcasts_kv
    ):
        yield (
            "warning: SDPA in this class runs its math kernel (--kernel math); flash_attention_2 "
            "is as counted."
        )
    elif run.kernel == "flash" and has_windows(run):
        yield (
            "warning: SDPA has no flash kernel with windows: its efficient one keeps a mask per "
            "layer (--kernel efficient). flash_attention_2 is as counted."
        )


def _short_notes(of: Answer, notes: tuple[str, ...]) -> Iterator[str]:
    yield notes[0]
    yield from (
        note
        for note in notes[1:]
        if note.startswith(("warning", "Fewest", "The reference", "A pair", "In host", "Paged"))
    )
    yield (
        f"--full adds FLOPs, stages and {plural(len(notes) - 1, 'note')}; --explain shows every "
        "formula."
    )


_AS_GIVEN = (
    "loss",
    "compile",
    "optimizer",
    "param_dtype",
    "grad_dtype",
    "optimizer_dtype",
    "master_weights",
    "fp8",
    "weights_dtype",
    "gradient_accumulation",
)


def train_extra(of: Answer) -> dict[str, Any]:
    """Return the keys of JSON that only this command has."""
    result = of.result
    run = of.result.run
    budget = of.result.budget
    parallel = {name: getattr(run, name) for name in ("dp", "tp", "pp", "cp", "ep")}
    parallel |= {
        "interleaved": run.virtual_stages,
        "sequence_parallel": run.sequence_parallel,
        "zero": run.zero,
    }
    return {
        "fits": result.fits,
        "verdict": result.verdict,
        "answer": verdict_text(of),
        "gpu": run.gpu.name if run.gpu else None,
        "gpus": run.gpus,
        "parallel": parallel,
        "run": {
            "kernel": run.kernel,
            "recompute": run.workload.recompute,
            **{name: getattr(run, name) for name in _AS_GIVEN},
            "lora_rank": run.lora.rank if run.lora else None,
            "lora_targets": list(run.lora.targets) if run.lora else [],
            "offload": sorted(run.offload),
        },
        "peak": budget.peak.name,
        "moments": [
            {"name": moment.name, "bytes": budget.always + moment.size} for moment in budget.moments
        ],
        "stages": stage_sizes(run),
        "saved_tensors": [
            {
                "layers": layer.group,
                "name": tensor.name,
                "part": tensor.part,
                "bytes": int(tensor.size),
                "kept": tensor in layer.kept,
                "why": tensor.meaning,
            }
            for layer in budget.saved.layers
            for tensor in layer.tensors
        ],
        "suggestions": [
            {
                "change": change.costs,
                "flag": change.flag,
                "needed_low": result.low,
                "needed_high": result.high,
            }
            for change, result in ((change, change.result) for change in of.changes)
        ],
        "fewest_gpus": [
            {"gpu": gpu.name, "tuned": way, "gpus": one and one.run.gpus}
            for gpu, by_way in of.fewest
            for way, one in by_way.items()
        ],
        "price": of.time.money if of.time else None,
        "mfu": of.time.mfu if of.time else None,
        "mfu_assumed": of.time.assumes_mfu if of.time else None,
        "gpus_enough": of.time.within[1] if of.time and of.time.within else None,
    }
