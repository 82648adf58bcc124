"""The reports of `attncalc train` about many: one row per GPU, or per model that a GPU can
train.
"""

import re
from collections.abc import Iterator, Sequence

from ...cost.training.fits import Change
from ...cost.training.setup import WAYS, Training
from ...search import grouped
from ...show.answer_rows import (
    GROUPED,
    AnswerColumn,
    Layer,
    answer_table,
    best_verdict,
    gpu_table,
    text_column,
    verdict_of_gpus,
)
from ...show.bar import gib_range
from ...show.blocks import Form, on_one_screen
from ...show.report import Report, rows_of, workload_facts
from .figures import Answer, train_figures
from .heading import batch_text, hardware_text, optimizer_text, run_facts
from .report import train_extra

# Models of each way to tune that a screen has at most.
_MOST_MODELS = 5


def _other_gpus(answers: Sequence[Answer], as_asked: Training) -> Iterator[str]:
    """Yield which GPUs compute in another dtype, or with another attention kernel."""
    others = set[tuple[str, str, str]]()
    for of in answers:
        run = of.result.run
        if (run.dtype, run.kernel) != (as_asked.dtype, as_asked.kernel):
            which = "Apple GPUs" if run.is_mps else "GPUs without bf16"
            others.add((which, run.dtype, run.kernel))
    for which, dtype, kernel in sorted(others, reverse=True):
        yield f"{which} are counted in {dtype}, with {kernel} attention."


def gpus_report(answers: Sequence[Answer], as_asked: Training, *, full: bool = False) -> Report:
    """Return one row per GPU: what the run needs there, with the longest context or largest batch
    if asked for.

    `as_asked` is the run without a GPU, which the second line describes.
    """
    searched = answers[0].auto
    by_memory = sorted(answers, key=_memory)
    layers = [*map(_layer, by_memory)]
    rows = rows_of(layers)
    for row, of in zip(rows, by_memory, strict=True):
        row["most"] = of.most
    notes = [*_other_gpus(answers, as_asked)]
    if not full:
        notes.append(GROUPED)
    verdicts = [row["verdict"] for row in rows]
    facts = ", ".join(run_facts(as_asked, searched))
    table = gpu_table(rows, searched=searched, full=full)
    report = _list_report(answers[0], layers, (verdict_of_gpus(verdicts), facts))
    return report._replace(tables=(table,), shown_notes=tuple(notes))


def _memory(of: Answer) -> int:
    """Return the bytes of its GPU."""
    gpu = of.result.run.gpu
    assert gpu is not None
    return gpu.memory


def models_report(found: Sequence[Answer], *, full: bool = False) -> Report:
    """Return one row per model that fits on a GPU, the largest first, with the changes that are
    counted.
    """
    layers = [*map(_layer, found)]
    rows = rows_of(layers)
    for row in rows:
        row["needs"] = gib_range(row["needed_low"], row["needed_high"])
    tuned = grouped((row["tuned"], row) for row in rows)
    ways = [way for way in reversed(WAYS) if way in tuned]
    largest = ", ".join(f"{tuned[way][0]['model']} ({way})" for way in ways)
    run = found[0].result.run
    settings = f"{batch_text(run)}, {optimizer_text(run)}"
    heading = (f"FITS: up to {largest}.", f"On {hardware_text(run.gpu, run.gpus)}, {settings}")
    report = _list_report(found[0], layers, heading)
    columns = (
        text_column("model", "model"),
        text_column("tuned", "tuned"),
        AnswerColumn("needs", "needs, GiB", str),
    )

    def form(most: int) -> Form:
        """Return the table with so many models of each way to tune."""
        shown = [row for way in ways for row in tuned[way][:most]]
        return Form((answer_table(shown, columns),), notes=(_counted(found),))

    if full:
        return on_one_screen(report, [[form(len(rows))]])
    return on_one_screen(report, [map(form, range(_MOST_MODELS, 0, -1))])


def _counted(found: Sequence[Answer]) -> str:
    """Return a note on the changes that are counted, and the command of the first model alone."""
    flags = dict.fromkeys(flag for of in found for flag in _flags(of.changes[0]))
    counted = " ".join(flag for flag in flags if not flag.startswith(("--lora", "--weights-dtype")))
    run = found[0].result.run
    command = f"attncalc train {run.model.name} --gpu {run.gpu.name if run.gpu else ''}"
    if run.gpus > 1:
        command += f" --gpus {run.gpus}"
    return (
        f"Counted with {counted}, where they change a figure, and experts in 4 bits as Unsloth has "
        f"them. --full lists all. One in detail, besides your other options: {command} "
        f"{found[0].changes[0].flag}"
    )


def _flags(change: Change) -> list[str]:
    """Return its options, each with its value."""
    return [flag for flag in re.split(" (?=-)", change.flag) if flag]


def _layer(of: Answer) -> Layer:
    run = of.result.run
    facts = {
        "model": run.model.name,
        "tuned": run.way,
        "gpu": run.gpu and run.gpu.name,
        "verdict": of.result.verdict or "fits",
    }
    return facts, train_figures(of)


def _list_report(first: Answer, layers: Sequence[Layer], heading: tuple[str, ...]) -> Report:
    """Return the report of a list, whose own figures are those of the answer `first`."""
    verdict = best_verdict(facts["verdict"] for facts, _ in layers)
    run = first.result.run
    return Report(
        "train",
        heading,
        run.model.facts(),
        workload_facts(run.model, run.workload),
        train_figures(first),
        tuple(layers),
        extra={
            **train_extra(first),
            "verdict": verdict,
            "fits": verdict != "does_not_fit",
            "likelihood": None,
            "likelihood_with_expandable_segments": None,
        },
        verdict=verdict,
        has_fail_if=True,
    )
