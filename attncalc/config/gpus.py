"""GPUs by name, by one of their other names, or from a YAML file of one's own."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import AttncalcError, did_you_mean
from ..hardware import KNOWN, SHARE, Gpu
from ..quantity import COUNT
from ..units import truncate
from .document import Document
from .presets import presets_folder

LIMIT = 1 << 16
"""Bytes of a GPU's file at the most; ours have some twenty lines."""
_TIP = "'attncalc gpus' lists them all; a path to a .yaml works too"
_EXAMPLE = "'attncalc gpus h100-80gb' prints an example"
_SPEED = {**COUNT, "maximum": 10**18}
"""FLOP/s go beyond COUNT: 9,000 TFLOP/s are 9 * 10^15."""


def _folder() -> Path:
    """Where the GPUs' files are: beside the models'."""
    return presets_folder().parent / "gpus"


def gpu_names() -> list[str]:
    """The names of all GPUs, sorted."""
    return sorted(_compiled() or (file.stem for file in _folder().glob("*.yaml")))


def gpu(name: str | os.PathLike[str]) -> Gpu:
    """The GPU called `name`, by its own name or another one ('h100'), or described in the file `name`.

    AttncalcError: there is none, or the file is not a GPU's; the message names the line.
    """
    word = os.fspath(name)
    plain = "-".join(word.lower().replace("_", " ").split())  # a product's name has capitals and blanks
    if plain in gpu_names():
        return _built(plain, _data(plain))
    known = _all()
    found = next((each for each, data in known.items() if plain in data.get("aliases", ())), None)
    if found is not None:
        return _built(found, known[found])
    path = Path(word)
    try:
        if path.suffix in (".yaml", ".yml") and path.is_file():
            return _from_file(path)
    except (OSError, ValueError):  # a name too long, or with a NUL in it
        pass
    others = [alias for data in known.values() for alias in data.get("aliases", ())]
    hint = did_you_mean(plain, [*known, *others])
    raise AttncalcError(f"no GPU named '{truncate(word)}', and no such file", f"{hint}{_TIP}")


@cache
def _compiled() -> dict[str, dict[str, Any]]:
    """The GPUs as the wheel has them in JSON (hatch_build.py); {} in a checkout."""
    try:
        content = (presets_folder().parent / "gpus.json").read_bytes()
    except OSError:
        return {}
    found: dict[str, dict[str, Any]] = json.loads(content)
    return found


def _all() -> dict[str, dict[str, Any]]:
    """Every GPU's data, by its name."""
    return {name: _data(name) for name in gpu_names()}


@cache
def _data(name: str) -> dict[str, Any]:
    """What the file of the GPU of that name says."""
    if name in _compiled():
        return _compiled()[name]
    from .yaml import table

    found: dict[str, Any] = table((_folder() / f"{name}.yaml").read_bytes())
    return found


def _from_file(path: Path) -> Gpu:
    with path.open("rb") as file:
        content = file.read(LIMIT + 1)
    name = truncate(path, 200)
    if len(content) > LIMIT:
        raise AttncalcError(f"{name}: longer than {LIMIT:,} bytes", "a GPU's file has a few dozen lines")
    from .schema import check
    from .yaml import read

    try:
        document = read(content, name)
    except AttncalcError as error:
        raise AttncalcError(error.message, _EXAMPLE) from None
    check(document, schema())
    return _checked(document, path.stem)


def _checked(document: Document, name: str) -> Gpu:
    """The GPU of a file that fits the schema, if its figures can be true together."""
    found = _built(name, document.data)
    marketed = found.memory_gb * 2**30
    if not found.flops:
        raise document.error(("flops",), "empty", f"give bf16 or fp16 at least; {_EXAMPLE}")
    if found.memory > marketed:
        raise document.error(
            ("memory",), f"{found.memory:,} is more than memory_gb, {found.memory_gb}", "memory is in bytes"
        )
    return found


def _built(name: str, data: dict[str, Any]) -> Gpu:
    unified, marketed = bool(data.get("unified")), int(data["memory_gb"])
    part, whole = SHARE
    taken = marketed * 10**9 * part // whole if unified else marketed * 10**9
    notes = list(data.get("notes", ()))
    if "memory" not in data:
        share = " and three quarters of that for the GPU" if unified else ""
        notes.append(f"What software sees of its memory is not known here: {marketed} x 10^9 bytes{share} are taken.")
    return Gpu(
        name=name,
        title=data["title"],
        vendor=data["vendor"],
        memory_gb=marketed,
        memory=int(data.get("memory", taken)),
        bandwidth=data["bandwidth"],
        flops=tuple(data["flops"].items()),
        measured="memory" in data,
        unified=unified,
        aliases=tuple(data.get("aliases", ())),
        notes=tuple(notes),
        sources=tuple(data["sources"]),
    )


@cache
def schema() -> dict[str, Any]:
    """The keys of a GPU's file, as JSON Schema; presets/gpu.schema.json is this."""
    from .keys import TEXT

    name = {"type": "string", "pattern": "^[a-z0-9][a-z0-9.-]*$", "$comment": "is not small letters, digits, - and ."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "attncalc GPU",
        "description": "A GPU, or another accelerator, as attncalc reads it: one device as software sees it.",
        "$comment": _EXAMPLE,
        "type": "object",
        "required": ["title", "vendor", "memory_gb", "bandwidth", "flops", "sources"],
        "additionalProperties": False,
        "properties": {
            "title": {"description": "its name as people write it", **TEXT},
            "aliases": {"description": "other names it goes by", "type": "array", "items": name},
            "vendor": {"description": "who makes it", **TEXT},
            "memory_gb": {"description": "GB of memory as marketed", **COUNT},
            "memory": {
                "description": "bytes of memory that software sees, from a log (left out: memory_gb * 10^9; of a "
                "unified memory three quarters of it)",
                **COUNT,
            },
            "bandwidth": {"description": "bytes/s of its memory", **COUNT},
            "flops": {
                "description": "dense FLOP/s (not those with sparsity) by dtype",
                "$comment": _EXAMPLE,
                "type": "object",
                "properties": {known: {"description": f"FLOP/s in {known}", **_SPEED} for known in KNOWN},
                "additionalProperties": False,
            },
            "unified": {"description": "the memory is shared with the host", "type": "boolean"},
            "notes": {"description": "what a reader must know", "type": "array", "items": TEXT},
            "sources": {
                "description": "where its facts are from, the vendor's page first",
                "type": "array",
                "minItems": 1,
                "items": TEXT,
            },
        },
    }
