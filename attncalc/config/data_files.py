"""The YAML files that attncalc ships: presets, GPUs, the rules of config.json families, and
schemas.

In a wheel each of these folders has a JSON file beside it (`gpus/` has `gpus.json`), which
hatch_build.py makes from the YAML. Of `models/`, each file has one, since a command reads one model
of many. Python reads JSON ten times faster and needs no YAML parser, so that an installed command
answers in less time, and answers at all where PyYAML is missing.
"""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import AttncalcError

_PACKAGE = Path(__file__).resolve().parent.parent


@cache
def presets_folder() -> Path:
    """Return the folder with `models/`, `gpus/` and their schemas. Raises AttncalcError if it is
    missing.

    It is in the installed package, or beside the package in a checkout.
    """
    for folder in (_PACKAGE / "presets", _PACKAGE.parent / "presets"):
        if (folder / "models").is_dir():
            return folder
    raise AttncalcError("the folder of the built-in presets is missing", "reinstall attncalc")


@cache
def file_names(folder: Path) -> tuple[str, ...]:
    """Return the sorted names, without '.yaml', of a folder's files."""
    names = os.listdir(folder) if folder.is_dir() else ()
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


@cache
def compiled(folder: Path) -> dict[str, Any]:
    """Return {name: content} of a folder's files from the JSON file that a wheel has, or {} in a
    checkout.
    """
    return compiled_file(folder) or {}


def compiled_file(file: Path) -> dict[str, Any] | None:
    """Return the content of a YAML file from the JSON file that a wheel has beside it, or None in a
    checkout.
    """
    try:
        text = file.with_suffix(".json").read_bytes()
    except FileNotFoundError:
        return None
    content: dict[str, Any] = json.loads(text)
    return content


@cache
def file_content(folder: Path, name: str) -> Any:
    """Return the content of the file `name` in a folder, without checking it."""
    if name in compiled(folder):
        return compiled(folder)[name]
    from .yaml import parse_trusted

    return parse_trusted((folder / f"{name}.yaml").read_bytes())


def folder_content(folder: Path) -> dict[str, Any]:
    """Return {name: content} of all files in a folder."""
    return compiled(folder) or {name: file_content(folder, name) for name in file_names(folder)}


@cache
def words(file: Path) -> frozenset[str]:
    """Return the words of a text file beside the code, without those of lines that begin with
    '#'.
    """
    found = set[str]()
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            found.update(line.split())
    return frozenset(found)
