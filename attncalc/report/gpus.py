"""The reports of `attncalc gpus`: the GPUs that are here, and one with all its facts and sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..hardware import Gpu
from ..quantity import Quantity, Ratio, quantity
from ..units import BYTES, BYTES_PER_SECOND, FLOP_PER_SECOND, NO_UNIT, count
from .report import Column, Figure, Report, Table, figure_rows, number, unit_column

RIDGE = "Williams et al. 2009, doi:10.1145/1498765.1498785: peak FLOP/s over bytes/s"
_NARROW = "fp8"


def gpus_report(gpus: Sequence[Gpu]) -> Report:
    """Name, memory, bandwidth, FLOP/s at 16 bit and in fp8, and the ridge, of each GPU."""
    memory, of_memory = unit_column("memory", [gpu.memory for gpu in gpus], BYTES)
    speed, of_speed = unit_column("bandwidth", [gpu.bandwidth for gpu in gpus], BYTES_PER_SECOND)
    wide, of_wide = unit_column("16 bit", [gpu.peak(sixteen(gpu)) for gpu in gpus], FLOP_PER_SECOND)
    narrow, of_narrow = unit_column("fp8", [dict(gpu.flops).get(_NARROW, 0) for gpu in gpus], FLOP_PER_SECOND)
    columns = (Column("name", "left"), memory, speed, wide, narrow, Column("FLOP\n/byte"))
    rows = tuple(
        (gpu.name, _as_seen(gpu, of_memory[i]), of_speed[i], of_wide[i], _or_none(gpu, of_narrow[i]), _ridge(gpu))
        for i, gpu in enumerate(gpus)
    )
    return Report(
        "gpus",
        (f"{count(len(gpus))} GPUs  'attncalc gpus NAME' shows one, with its sources",),
        {},
        {},
        (Figure("gpus", "GPUs", quantity(len(gpus)), NO_UNIT),),
        tuple((gpu_facts(gpu), gpu_figures(gpu)) for gpu in gpus),
        (Table(columns, rows),),
        (
            "Memory is what software sees; * what is marketed, taken small, as no log was found. 16 bit: bf16, or "
            "fp16 where there is no bf16. FLOP/s are dense, at the vendor's peak. FLOP/byte: the ridge at 16 bit, "
            "below which a step is bound by memory.",
        ),
    )


def gpu_report(gpu: Gpu) -> Report:
    """All that is known of one GPU, and from where."""
    figures = gpu_figures(gpu)
    peaks = [figure for figure in figures if figure.unit == FLOP_PER_SECOND]
    ridges = [figure for figure in figures if figure.unit == NO_UNIT]
    dtypes = [name for name, _ in gpu.flops]
    column, cells = unit_column("dense", [figure.whole for figure in peaks], FLOP_PER_SECOND)
    rows = tuple(zip(dtypes, cells, (ridge.human for ridge in ridges), strict=True))
    facts = [(figure.label, figure) for figure in figures if figure not in (*peaks, *ridges)]
    return Report(
        "gpus",
        (f"{gpu.title}  {gpu.name}", *([f"also called {', '.join(gpu.aliases)}"] if gpu.aliases else [])),
        {},
        {},
        (Figure("gpus", "GPUs", quantity(1), NO_UNIT),),
        ((gpu_facts(gpu), figures),),
        (
            Table((Column(align="left"), Column(), Column()), figure_rows(facts)),
            Table((Column("dtype", "left"), column, Column("FLOP\n/byte")), rows),
        ),
        (*gpu.notes, *(f"Source: {source}" for source in gpu.sources)),
    )


def sixteen(gpu: Gpu) -> str:
    """The 16-bit dtype that models run in there: bf16, fp16 where there is no bf16, or the first it has."""
    here = dict(gpu.flops)
    return next((name for name in ("bf16", "fp16") if name in here), next(iter(here)))


def gpu_facts(gpu: Gpu) -> dict[str, Any]:
    """A GPU's facts as JSON has them."""
    return {
        "name": gpu.name,
        "title": gpu.title,
        "vendor": gpu.vendor,
        "memory_gb": gpu.memory_gb,
        "memory_from_a_log": gpu.measured,
        "unified": gpu.unified,
        "aliases": list(gpu.aliases),
        "notes": list(gpu.notes),
        "sources": list(gpu.sources),
    }


def gpu_figures(gpu: Gpu) -> tuple[Figure, ...]:
    """Memory, bandwidth, and by dtype FLOP/s and the FLOP per byte at the ridge."""
    found: list[tuple[str, str, Quantity | Ratio, str, str]] = [
        ("memory", "memory that software sees", quantity(gpu.memory), BYTES, ""),
        ("bandwidth", "bandwidth", quantity(gpu.bandwidth), BYTES_PER_SECOND, ""),
    ]
    for name, speed in gpu.flops:
        found.append((f"peak_{name}", f"dense {name}", quantity(speed), FLOP_PER_SECOND, ""))
        found.append((f"ridge_{name}", f"FLOP per byte at the ridge in {name}", gpu.ridge(name), NO_UNIT, RIDGE))
    return tuple(Figure(key, label, value, unit, source, gpu.name) for key, label, value, unit, source in found)


def _as_seen(gpu: Gpu, memory: str) -> str:
    """A star keeps the column aligned: every cell has room for it."""
    return f"{memory}{' ' if gpu.measured else '*'}"


def _or_none(gpu: Gpu, cell: str) -> str:
    return cell if _NARROW in dict(gpu.flops) else "-"


def _ridge(gpu: Gpu) -> str:
    return number(float(gpu.ridge(sixteen(gpu))))
