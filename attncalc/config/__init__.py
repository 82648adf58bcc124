"""From what a person typed to a ModelSpec: a preset's name, a path, a folder or '-'."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from ..errors import AttncalcError, did_you_mean
from ..model import ModelSpec
from ..units import shown
from .build import build
from .document import Document

LIMIT = 1 << 20
"""Bytes of a model file at the most; the longest preset has a few thousand."""

_PACKAGE = Path(__file__).resolve().parent.parent
_TIP = "'attncalc presets' lists them all; a path to a .yaml or '-' for standard input works too"


def load(model: str | os.PathLike[str]) -> ModelSpec:
    """The model called `model`: a preset's name, a .yaml file, a folder that holds one, '-' for stdin.

    AttncalcError: there is none, or what is there is not a model; the message names file and line.
    """
    document, name = _document(os.fspath(model))
    return build(document, name)


def presets_folder() -> Path:
    """Where the presets are: in the installed package, or beside it in a checkout."""
    for folder in (_PACKAGE / "presets", _PACKAGE.parent / "presets"):
        if (folder / "models").is_dir():
            return folder / "models"
    raise AttncalcError("the presets are not where they were installed", "reinstall attncalc")


def preset_names() -> list[str]:
    """The names of all presets, sorted."""
    return sorted(file.stem for file in presets_folder().glob("*.yaml"))


def preset_text(name: str) -> str:
    """A preset's file as it is written. AttncalcError: there is none of that name."""
    if name not in preset_names():
        hint = did_you_mean(name, preset_names())
        raise AttncalcError(f"no preset named '{shown(name)}'", f"{hint}'attncalc presets' lists them all")
    return (presets_folder() / f"{name}.yaml").read_text(encoding="utf-8")


def _document(model: str) -> tuple[Document, str]:
    if model == "-":
        if sys.stdin is None:
            raise AttncalcError("no standard input", "name a file, or write 'attncalc kv - < FILE'")
        return _checked(sys.stdin.buffer.read(LIMIT + 1), "<stdin>"), "stdin"
    compiled = _compiled().get(model)
    if compiled is not None:
        return Document(f"{model}.yaml", compiled, {}), model
    if model in preset_names():
        return _checked(preset_text(model).encode(), f"{model}.yaml"), model
    path = _file(model)
    try:
        with path.open("rb") as file:
            return _checked(file.read(LIMIT + 1), shown(path, 200)), shown(path.stem)
    except OSError as error:
        raise AttncalcError(
            f"{shown(path)}: {(error.strerror or 'cannot be read').lower()}", "check the path"
        ) from None


def _compiled() -> dict[str, Any]:
    """The presets as the wheel has them in JSON (hatch_build.py); {} in a checkout."""
    try:
        content = (presets_folder().parent / "models.json").read_bytes()
    except OSError:
        return {}
    import json

    found: dict[str, Any] = json.loads(content)
    return found


def _checked(content: bytes, file: str) -> Document:
    """The document in `content`, of known keys and types. AttncalcError: it is not one."""
    from .schema import check
    from .yaml import read

    if len(content) > LIMIT:
        raise AttncalcError(f"{file}: longer than {LIMIT:,} bytes", "a model file has a few dozen lines")
    document = read(content, file)
    if "model_type" in document.data or "architectures" in document.data:
        raise AttncalcError(
            f"{file}: a Hugging Face config, which this version does not read",
            "write its numbers as a preset: 'attncalc presets show llama2-70b' is a model for one",
        )
    check(document)
    return document


def _file(model: str) -> Path:
    """The file that `model` leads to; a folder leads to the one model file in it."""
    path = Path(model)
    try:
        if model and path.is_dir():
            found = sorted([*path.glob("*.yaml"), *path.glob("*.yml"), *path.glob("config.json")])
            if len(found) == 1:
                return found[0]
            several = f"{len(found)} model files" if found else "no model file"
            raise AttncalcError(f"{shown(model)}: a folder with {several} in it", "name a .yaml file")
        if model and path.exists():
            return path
    except PermissionError:
        raise AttncalcError(f"{shown(model)}: permission denied", "check the path") from None
    except (OSError, ValueError):  # a name too long, or with a NUL in it
        pass
    hint = did_you_mean(model, preset_names())
    raise AttncalcError(f"no preset named '{shown(model)}', and no such file", f"{hint}{_TIP}")
