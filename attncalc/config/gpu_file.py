"""Write a GPU's YAML file, with the starts of engines that were measured on its machine."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ..errors import AttncalcError
from ..hardware import Gpu, MeasuredStart
from ..units import BYTES, human, truncate
from .gpus import gpu
from .yaml import rows_of_yaml

# Keys of a file whose values are those of a Gpu by that name.
_PLAIN = (
    "title",
    "vendor",
    "memory_gb",
    "memory",
    "bandwidth",
    "multiprocessors",
    "nvlink",
    "link",
    "per_node",
    "watts",
)


def with_start(path: Path, here: Gpu, start: MeasuredStart) -> Gpu:
    """Return the GPU of a file with one more start, or `here` with that start if there is no file.

    A start of the same model, version and split is replaced.

    Raises AttncalcError if the file cannot be read, or is of another GPU than `here`.
    """
    known = read_machine(path, here) or here
    others = [other for other in known.starts if _asked(other) != _asked(start)]
    return dataclasses.replace(known, starts=(*others, start))


def read_machine(path: Path, here: Gpu) -> Gpu | None:
    """Return the GPU of a file; None if there is no file.

    Raises AttncalcError if the file cannot be read, is of another GPU than `here`, or `here` cannot
    be written.
    """
    if path.suffix not in (".yaml", ".yml"):
        raise AttncalcError(
            f"{truncate(path)}: a GPU file is YAML", "name it .yaml, as --save box.yaml"
        )
    if not here.flops:
        raise AttncalcError(
            f"{here.title} is not a known GPU, and a GPU file needs its FLOP/s",
            "write its file first, as docs/models.md shows, and give it to --save",
        )
    if not path.exists():
        return None
    known = gpu(path)
    if (known.title, known.memory) != (here.title, here.memory):
        raise AttncalcError(
            f"{truncate(path)} is of {_named(known)}, and this machine has {_named(here)}",
            "give --save another file",
        )
    return known


def to_yaml(known: Gpu) -> str:
    """Return the YAML text of a GPU file."""
    data: dict[str, Any] = {}
    for key in _PLAIN:
        value = getattr(known, key)
        if value not in (None, 0):
            data[key] = value
    if known.compute_capability:
        major, minor = known.compute_capability
        data["compute_capability"] = f"{major}.{minor}"
    if known.unified:
        data["unified"] = True
    data["flops"] = dict(known.flops)
    if known.notes:
        data["notes"] = [*known.notes]
    data["sources"] = [*known.sources]
    data["starts"] = [{**start._asdict(), "parts": [*start.parts]} for start in known.starts]
    comment = "# Measured with 'attncalc verify --engine --save'; give it to --gpu."
    return f"{comment}\n{rows_of_yaml(data)}"


def _named(known: Gpu) -> str:
    return f"{known.title} with {human(known.memory, BYTES)}"


def _asked(start: MeasuredStart) -> tuple[Any, ...]:
    """Return what a start was of, without what was measured."""
    return start[:-2]
