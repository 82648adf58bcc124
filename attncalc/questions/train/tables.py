"""The tables of `attncalc train`: memory by part, changes that make it fit, and the FLOPs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...cost.training.fits import TrainResult, all_changes, stage_sizes
from ...cost.training.setup import Training
from ...show.bar import gib, gib_range
from ...show.lists import WIDTH, option_lines
from ...show.report import LABEL, Column, Figure, Table
from ...units import BYTES, FLOP, GIB, count, exact, human
from .figures import Answer

# The figures of one run, by name.
Figures = Mapping[str, Figure]
# The rows of one change.
ChangeRows = Sequence[tuple[str, ...]]
# What is held at the peak, in the order of the table.
_FIRST = ("weights", "optimizer_states", "references", "gradients_at_peak", "activations_at_peak")
# Numbers of GPUs that are enough by the top of the range, as a note says.
_FEWEST = "fewest GPUs, no offload"
# Columns of the options in the table of changes, at least.
_NARROWEST_CHANGE = 24


def budget_table(of: Answer, figures: Figures, *, with_parts: bool, full: bool = False) -> Table:
    """Return the memory by part. Without the parts of activations it is shorter.

    With `full` it has what torch allocates at the peak. Else cuBLAS, allocator and CUDA context are
    one row, outside the tensors.
    """
    rows = [*_size_rows(figures, _FIRST)]
    if with_parts:
        rows += _parts_of_activations(figures)
    rows += _size_rows(figures, ("logits", "temporary", "communication"))
    result = of.result
    tensors = result.budget.allocated
    if full or result.budget.peaks_at_loading:
        outside = _names_outside(result)
        rows += _size_rows(figures, ("workspaces",))
        if result.budget.peaks_at_loading:
            in_step = result.budget.allocated_in_step
            rows.append(("allocated in a step", human(in_step, BYTES), exact(in_step, BYTES)))
            rows += _size_rows(figures, ("loading",))
        rows += _size_rows(figures, ("allocated",))
    else:
        outside = "outside the tensors"
        tensors -= figures["workspaces"].whole
    low = f"{(result.low - tensors) / GIB:.2f} GiB"
    high = f"to {(result.high - tensors) / GIB:.2f} GiB"
    rows += [
        (outside, low, high),
        ("needed", human(result.low, BYTES), f"to {human(result.high, BYTES)}"),
    ]
    return Table((LABEL, Column(), Column()), tuple(rows), strong=frozenset({len(rows) - 1}))


def _names_outside(result: TrainResult) -> str:
    """Return what takes memory besides what torch allocates."""
    if result.run.gpus > 1:
        return "allocator, CUDA context, NCCL"
    if result.run.is_mps:
        return "allocator"
    return "allocator, CUDA context"


def _size_rows(figures: Figures, names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield a row per figure, without those of 0 B."""
    for name in names:
        figure = figures[name]
        if figure.whole:
            yield figure.label, human(figure.whole, BYTES), exact(figure.whole, BYTES)


def _parts_of_activations(figures: Figures) -> Iterator[tuple[str, str, str]]:
    """Yield the parts of the activations, if there are several and all are held at the peak."""
    names = [name for name in figures if name.startswith("activations_")]
    names.remove("activations_at_peak")
    rows = [*_size_rows(figures, names)]
    if len(rows) > 1 and figures["activations_at_peak"].whole == figures["activations"].whole:
        for label, size, exact_size in rows:
            yield f"  {label}", size, exact_size


def change_rows(of: Answer) -> list[ChangeRows]:
    """Return the rows of each change: its options, which may take several, what it needs and what
    it costs.
    """
    changes = of.changes
    needs = [gib_range(change.result.low, change.result.high) for change in changes]
    costs = [change.costs for change in changes]
    room = WIDTH - 6 - max(map(len, needs)) - max(map(len, costs))
    rows: list[ChangeRows] = []
    for change, size, cost in zip(changes, needs, costs, strict=True):
        options, *more = option_lines(of.flag(change), max(room, _NARROWEST_CHANGE))
        rows.append([(options, size, cost), *((f"  {line}", "", "") for line in more)])
    return rows


def changes_table(rows: Sequence[ChangeRows]) -> Table:
    columns = (Column("change", "left"), Column("GiB"), Column("cost", "left"))
    return Table(columns, tuple(row for of_change in rows for row in of_change))


def no_change_tables(of: Answer) -> tuple[Table, ...]:
    """Return what more changes together need if no two are sure to make the run fit; () if it fits,
    or if no changes are asked for.
    """
    if of.asked is None or of.result.verdict not in ("may_not_fit", "does_not_fit"):
        return ()
    most = all_changes(of.asked)
    needs = gib_range(most.result.low, most.result.high)
    lines = [f"No change is sure to make it fit. All together, it needs {needs} GiB:"]
    if most.result.verdict == "fits":
        lines = [f"No two changes are enough. With these it needs {needs} GiB:"]
    lines += [f"  {line}" for line in option_lines(of.flag(most), WIDTH - 4)]
    return (Table((LABEL,), tuple((line,) for line in lines)),)


def fewest_table(of: Answer) -> Table:
    """Return the fewest GPUs of common kinds, up to 1,024, for each way to tune."""
    _, ways = of.fewest[0]
    columns = [Column(_FEWEST, "left"), *map(Column, ways)]
    rows = []
    for gpu, by_way in of.fewest:
        numbers = [count(change.run.gpus) if change else "-" for change in by_way.values()]
        rows.append((f"{gpu.name}, {gib(gpu.memory)} GiB", *numbers))
    if of.by_way:
        needs = [gib_range(result.low, result.high) for result in of.by_way.values()]
        rows.append(("needed on one GPU, GiB", *needs))
    return Table(tuple(columns), tuple(rows))


def work_table(of: Answer, figures: Figures) -> Table:
    """Return the FLOPs of a step and of a token, which are the first two rows, then what else the
    options ask for.
    """
    run = of.result.run
    rows = [
        ("a step", f"{count(run.tokens)} tokens", figures["flops_per_step"].human),
        ("per token", "", figures["flops_per_token"].human),
    ]
    if of.work.hardware != of.work.per_step:
        rows.append(("a step with recomputation", "", figures["flops_hardware"].human))
    if of.time:
        rows.append((f"{count(of.time.tokens)} tokens", "", human(of.time.total, FLOP)))
    if run.lora:
        rows.append(_trained_row(run, figures))
    return Table((LABEL, Column(), Column()), tuple(rows))


def _trained_row(run: Training, figures: Figures) -> tuple[str, str, str]:
    trained = figures["params_trained"].whole
    share = trained / (trained + figures["params_frozen"].whole)
    label = "trained parameters"
    if run.tp * run.pp > 1:
        label = "trained parameters of the stage on one GPU"
    return label, count(trained), f"{100 * share:.2f} %"


def stages_table(run: Training) -> Table:
    """Return what each stage of a pipeline allocates."""
    rows = tuple((str(i), f"{size / GIB:.2f}") for i, size in enumerate(stage_sizes(run)))
    return Table((Column("stage"), Column("allocated\nGiB")), rows)
