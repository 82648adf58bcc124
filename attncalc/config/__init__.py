"""From what a person typed to a ModelSpec: a preset's name, a path, a folder, '-', or org/name on the hub."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import AttncalcError, did_you_mean
from ..model import ModelSpec
from ..units import truncate
from .build import build
from .document import Document
from .presets import compiled_presets, preset_names, preset_text

LIMIT = 1 << 22
"""Bytes of a model file at the most; the longest config.json has some tens of thousands."""

_TIP = "'attncalc presets' lists them all; a path to a .yaml or config.json works too"


class Found(NamedTuple):
    """What a person's word for a model led to: a file's content, or a preset that the wheel has compiled.

    name: what the model is called on screens. file: what errors call it. folder: the folder that was
    named, whose weights are then read too.
    """

    name: str
    file: str
    content: bytes = b""
    compiled: dict[str, Any] | None = None
    folder: Path | None = None

    @property
    def title(self) -> str:
        """What a config.json that does not say what it is called is called; '' for standard input."""
        return "" if self.file == "<stdin>" else self.name


def load(model: str | os.PathLike[str], *, assume_grouped: bool = False) -> ModelSpec:
    """The model called `model`: a preset's name, a .yaml file or a config.json, a folder that holds one,
    '-' for standard input, or org/name on the Hugging Face hub.

    assume_grouped: a config of an unknown model_type is read as plain grouped attention, and says so.
    AttncalcError: there is none, or what is there is not a model; the message names the file, and the
    line or the field.
    """
    found = _find(os.fspath(model))
    spec = build(_document(found, assume_grouped), found.name)
    if found.folder is None:
        return spec
    from .safetensors import stored_weights

    return dataclasses.replace(spec, stored=stored_weights(found.folder))


def config_of(model: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The fields of the config.json that `model` leads to; None where it leads to a preset."""
    found = _find(os.fspath(model))
    return None if found.compiled is not None else _config(found)


def model_file(model: str | os.PathLike[str], *, assume_grouped: bool = False) -> str:
    """The config.json that `model` leads to, as the text of a preset. AttncalcError: it is no config.json."""
    from .yaml import written

    found = _find(os.fspath(model))
    if found.compiled is not None or _config(found) is None:
        raise AttncalcError(f"{found.file}: a model file already", "give a config.json, or org/name on the hub")
    document = _document(found, assume_grouped)
    build(document, found.name)
    return written(document.data, found.file)


def _find(model: str) -> Found:
    if model == "-":
        if sys.stdin is None:
            raise AttncalcError("no standard input", "name a file, or write 'attncalc kv - < FILE'")
        return Found("stdin", "<stdin>", sys.stdin.buffer.read(LIMIT + 1))
    compiled = compiled_presets().get(model)
    if compiled is not None:
        return Found(model, f"{model}.yaml", compiled=compiled)
    if model in preset_names():
        return Found(model, f"{model}.yaml", preset_text(model).encode())
    path, name = _file(model)
    try:
        with path.open("rb") as file:
            folder = path.parent if Path(model).is_dir() else None
            return Found(truncate(name), truncate(path, 200), file.read(LIMIT + 1), folder=folder)
    except OSError as error:
        raise AttncalcError(
            f"{truncate(path)}: {(error.strerror or 'cannot be read').lower()}", "check the path"
        ) from None


def _document(found: Found, assume_grouped: bool) -> Document:
    """The document that was found, of known keys and types. AttncalcError: it is not one."""
    if found.compiled is not None:
        return Document(found.file, found.compiled, {})
    from .schema import check

    config = _config(found)
    if config is None:
        from .yaml import read

        document = read(found.content, found.file)
    else:
        from . import huggingface

        document = huggingface.document(config, found.file, title=found.title, assume_grouped=assume_grouped)
    check(document)
    return document


def _config(found: Found) -> dict[str, Any] | None:
    """The fields of a config.json; None for a model file of attncalc's own, in YAML or in JSON."""
    if len(found.content) > LIMIT:
        raise AttncalcError(f"{found.file}: longer than {LIMIT:,} bytes", "a model file has a few dozen lines")
    if not found.content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return None
    from .huggingface.parse import fields

    config = fields(found.content, found.file)
    own = "d_model" in config and "sources" in config and ("model_type" not in config or "title" in config)
    return None if own else config


def _file(model: str) -> tuple[Path, str]:
    """The file that `model` leads to, and the model's name. A folder leads to its config.json, or to the
    one model file in it.
    """
    path = Path(model)
    try:
        if model and path.is_dir():
            return _in_folder(path), path.resolve().name
        if model and path.exists():
            return path, path.resolve().parent.name if path.name == "config.json" else path.stem
    except PermissionError:
        raise AttncalcError(f"{truncate(model)}: permission denied", "check the path") from None
    except (OSError, ValueError):  # a name too long, or with a NUL in it
        pass
    from .hub import config_file, is_repo

    if is_repo(model):
        return config_file(model), model.partition("/")[2]
    hint = did_you_mean(model, preset_names())
    raise AttncalcError(f"no preset named '{truncate(model)}', and no such file", f"{hint}{_TIP}")


def _in_folder(folder: Path) -> Path:
    if (folder / "config.json").exists():
        return folder / "config.json"
    found = sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])
    if len(found) == 1:
        return found[0]
    several = f"{len(found)} model files" if found else "no config.json and no model file"
    raise AttncalcError(f"{truncate(folder)}: a folder with {several} in it", "name a .yaml or config.json file")


__all__ = ["config_of", "load", "model_file", "preset_names", "preset_text"]
