"""The schema of `attncalc gpus --json`."""

from __future__ import annotations

from ..gpus import FIGURES, OF_GPU, PEAK, RIDGE
from .parts import (
    NOTHING,
    document,
    figures,
    flag,
    layer,
    number,
    or_null,
    text,
    texts,
    whole,
)

_GPU = {
    "name": text("its name for --gpu"),
    "title": text("its name for people"),
    "vendor": text("its vendor"),
    "memory_gb": number("memory as sold, in GB"),
    "memory_from_a_log": flag("whether the figure 'memory' is from a log"),
    "unified": flag("whether CPU and GPU share one memory"),
    "multiprocessors": or_null(whole("its multiprocessors", 1), "if they are unknown"),
    "compute_capability": or_null(text("NVIDIA's compute capability, such as 9.0"), "if it has none"),
    "aliases": texts("further names for --gpu"),
    "notes": texts("notes on it"),
    "sources": texts("sources of its facts"),
}
SCHEMA = document(
    "gpus",
    "The known GPUs, or one of them.",
    results=figures("the number of GPUs", FIGURES),
    layers=layer("a GPU", _GPU, figures("its figures", OF_GPU, PEAK, RIDGE)),
    model=NOTHING,
    workload=NOTHING,
)
