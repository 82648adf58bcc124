"""The reports of `attncalc gpus`: the known GPUs, and one GPU with all its facts and sources."""

from collections.abc import Callable, Sequence
from typing import Any

from ...config.gpus import OTHER_MEMORIES
from ...hardware import Gpu
from ...model import plural
from ...quantity import quantity
from ...show.figures import FigureRow, FigureRows
from ...show.report import (
    Column,
    Figure,
    Report,
    Table,
    column_table,
    figure_rows,
    number,
    rows_of,
    unit_column,
)
from ...units import BYTES, BYTES_PER_SECOND, FLOP_PER_SECOND, NO_UNIT, count

FIGURES = FigureRows(gpus=FigureRow("GPUs", NO_UNIT, "GPUs"))
OF_GPU = FigureRows(
    memory=FigureRow("memory that software reports", BYTES, "memory that software reports"),
    bandwidth=FigureRow("bandwidth", BYTES_PER_SECOND, "memory bandwidth"),
)
PEAK = FigureRow(
    "", FLOP_PER_SECOND, "dense peak in this dtype, such as peak_bf16", name="^peak_[a-z0-9]+$"
)
RIDGE = FigureRow(
    "",
    NO_UNIT,
    "FLOP per byte from which a step in this dtype is compute-bound",
    source="Williams et al. 2009, doi:10.1145/1498765.1498785: peak FLOP/s divided by bytes/s",
    ratio=True,
    name="^ridge_[a-z0-9]+$",
)


# The columns by which the list is sorted, the largest first.
SORT_KEYS: dict[str, Callable[[Gpu], float]] = {
    "memory": lambda gpu: gpu.memory,
    "bandwidth": lambda gpu: gpu.bandwidth,
    "flops": lambda gpu: gpu.peak(_dtype_16_bit(gpu)),
    "fp8": lambda gpu: dict(gpu.flops).get("fp8", 0),
}


def gpus_report(gpus: Sequence[Gpu], *, sort: str | None = None, named: bool = False) -> Report:
    """Return one row per GPU: memory, bandwidth, FLOP/s in 16 bit and fp8, and the ridge point.

    `sort` is one of SORT_KEYS, or None for the order of `gpus`; `named` whether they were chosen by
    name.
    """
    gpus = sorted(gpus, key=SORT_KEYS[sort], reverse=True) if sort else gpus
    memory, memory_cells = unit_column("memory", [gpu.memory for gpu in gpus], BYTES)
    fp8, fp8_cells = unit_column(
        "fp8", [dict(gpu.flops).get("fp8", 0) for gpu in gpus], FLOP_PER_SECOND, drop=2
    )
    columns = (
        (Column("name", "left"), [gpu.name for gpu in gpus]),
        # a blank in place of the star keeps the cells aligned
        (
            memory,
            [
                f"{cell}{' ' if gpu.measured else '*'}"
                for gpu, cell in zip(gpus, memory_cells, strict=True)
            ],
        ),
        unit_column("bandwidth", [gpu.bandwidth for gpu in gpus], BYTES_PER_SECOND),
        unit_column("16 bit", [gpu.peak(_dtype_16_bit(gpu)) for gpu in gpus], FLOP_PER_SECOND),
        (
            fp8,
            [
                cell if "fp8" in dict(gpu.flops) else "-"
                for gpu, cell in zip(gpus, fp8_cells, strict=True)
            ],
        ),
        (
            Column("FLOP\n/byte", drop=1),
            [number(float(gpu.ridge(_dtype_16_bit(gpu)))) for gpu in gpus],
        ),
    )
    layers = tuple((gpu_facts(gpu), gpu_figures(gpu)) for gpu in gpus)
    return Report(
        "gpus",
        (
            f"{count(len(gpus))} {'' if named else 'known '}GPUs  'attncalc gpus NAME' shows one "
            "with its sources",
        ),
        {},
        {},
        FIGURES.filled(gpus=quantity(len(gpus))),
        layers,
        (column_table(columns),),
        (
            "Memory is what software reports; * is a lower bound from the marketed size. 16 bit "
            "is bf16, or fp16 "
            "without bf16. FLOP/s are the vendor's dense peak. FLOP/byte is the ridge point in "
            "16 bit: a step with fewer is memory-bound.",
        ),
        rows=rows_of(layers),
    )


def gpu_report(gpu: Gpu, *, full: bool = False) -> Report:
    """Return one GPU; with `full` its notes and sources are on the screen too."""
    notes = (*gpu.notes, *(f"Source: {source}" for source in gpu.sources))
    shown = [note for note in gpu.notes if note.startswith(OTHER_MEMORIES)]
    parts = [plural(len(gpu.sources), "source")]
    if len(shown) < len(gpu.notes):
        parts.insert(0, plural(len(gpu.notes) - len(shown), "note"))
    figures = gpu_figures(gpu)
    peaks = [figure for figure in figures if figure.unit == FLOP_PER_SECOND]
    ridges = [figure for figure in figures if figure.unit == NO_UNIT]
    facts = [(figure.label, figure) for figure in figures if figure not in (*peaks, *ridges)]
    layers = ((gpu_facts(gpu), figures),)
    if gpu.link:
        further = [("link to other GPUs", f"{gpu.link / 10**9:,.0f} GB/s", "each way")]
    else:
        further = []
    further += [("maximum power", f"{count(gpu.watts)} W", "")] if gpu.watts else []
    return Report(
        "gpus",
        (
            f"{gpu.title}  {gpu.name}",
            *([f"also called {', '.join(gpu.aliases)}"] if gpu.aliases else []),
        ),
        {},
        {},
        FIGURES.filled(gpus=quantity(1)),
        layers,
        (
            Table((Column(align="left"), Column(), Column()), (*figure_rows(facts), *further)),
            column_table(
                (
                    (Column("dtype", "left"), [name for name, _ in gpu.flops]),
                    unit_column("dense", [figure.whole for figure in peaks], FLOP_PER_SECOND),
                    (Column("FLOP\n/byte"), [ridge.human for ridge in ridges]),
                )
            ),
        ),
        notes,
        rows=rows_of(layers),
        shown_notes=notes if full else (*shown, f"--full shows {' and '.join(parts)}."),
    )


def _dtype_16_bit(gpu: Gpu) -> str:
    """Return the 16-bit dtype that models run in on `gpu`: bf16, else fp16, else the first dtype it
    has.
    """
    peaks = dict(gpu.flops)
    return next((name for name in ("bf16", "fp16") if name in peaks), next(iter(peaks)))


def gpu_facts(gpu: Gpu) -> dict[str, Any]:
    """Return the facts of a GPU as plain data for JSON."""
    return {
        "name": gpu.name,
        "title": gpu.title,
        "vendor": gpu.vendor,
        "memory_gb": gpu.memory_gb,
        "memory_from_a_log": gpu.measured,
        "unified": gpu.unified,
        "watts": gpu.watts or None,
        "link": gpu.link or None,
        "multiprocessors": gpu.multiprocessors or None,
        "compute_capability": ".".join(map(str, gpu.compute_capability))
        if gpu.compute_capability
        else None,
        "aliases": list(gpu.aliases),
        "notes": list(gpu.notes),
        "sources": list(gpu.sources),
    }


def gpu_figures(gpu: Gpu) -> tuple[Figure, ...]:
    """Return memory, bandwidth, and per dtype the peak FLOP/s and the ridge point."""
    figures = [
        *OF_GPU.filled("", gpu.name, memory=quantity(gpu.memory), bandwidth=quantity(gpu.bandwidth))
    ]
    for dtype, speed in gpu.flops:
        figures.append(PEAK.one(dtype, f"dense {dtype}").figure(quantity(speed), of=gpu.name))
        ridge = RIDGE.one(dtype, f"ridge point in {dtype}, FLOP per byte")
        figures.append(ridge.figure(gpu.ridge(dtype), of=gpu.name))
    return tuple(figures)
