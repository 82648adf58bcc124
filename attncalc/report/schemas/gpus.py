"""The schema of `attncalc gpus --json`."""

from __future__ import annotations

from ...units import BYTES, BYTES_PER_SECOND, FLOP_PER_SECOND
from .parts import (
    NOTHING,
    amount,
    document,
    figures,
    flag,
    layer,
    number,
    or_null,
    ratio,
    size,
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
_FIGURES = {
    "memory": size(BYTES, "memory that software reports"),
    "bandwidth": size(BYTES_PER_SECOND, "memory bandwidth"),
}
_PER_DTYPE = {
    "^peak_[a-z0-9]+$": size(FLOP_PER_SECOND, "dense peak in this dtype"),
    "^ridge_[a-z0-9]+$": ratio("FLOP per byte from which a step in this dtype is compute-bound"),
}
SCHEMA = document(
    "gpus",
    "The known GPUs, or one of them.",
    results=figures("the number of GPUs", {"gpus": amount("GPUs")}),
    layers=layer("a GPU", _GPU, figures("its figures", _FIGURES, _PER_DTYPE)),
    model=NOTHING,
    workload=NOTHING,
)
