"""Local GGUF files: one file, its shards, or the only model of a folder."""

from __future__ import annotations

import re
from pathlib import Path

from ...errors import AttncalcError
from ...units import count, truncate
from ..folder import LocalFile
from ..gguf_names import gguf_models

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<files>\d{5})(?P<suffix>\.gguf)", re.IGNORECASE)
_MAX_SHARDS = 1000


def shard_names(name: str) -> list[str]:
    """Return the names of all files of a model, of which `name` is one: [name] unless it is numbered.

    'model-00002-of-00003.gguf' gives the three names. Source: llama_split_path (src/llama.cpp).
    """
    shard = _numbered(name)
    return [_with_number(shard, i) for i in range(1, int(shard["files"]) + 1)] if shard else [name]


def _numbered(name: str) -> re.Match[str] | None:
    """Return the parts of a name of `shard_names`, or None if it is not numbered."""
    match = _SHARD.fullmatch(name)
    return match if match and 1 <= int(match["number"]) <= int(match["files"]) <= _MAX_SHARDS else None


def _with_number(shard: re.Match[str], number: int) -> str:
    return f"{shard['stem']}-{number:05}-of-{shard['files']}{shard['suffix']}"


def model_name(name: str) -> str:
    """Return the model's name: that of its file, without the number of the shard and '.gguf'."""
    match = _SHARD.fullmatch(name)
    return match["stem"] if match else re.sub(r"\.gguf$", "", name, flags=re.IGNORECASE)


def local_gguf(model: str) -> Path | None:
    """Return the first GGUF file that `model` leads to; None if it leads to something else.

    Args:
        model: The path of a file, or of a folder that has GGUF files and no config.json or model file.

    Raises AttncalcError if the folder has several models.
    """
    path = Path(model)
    try:
        if not model or not path.exists():
            return None
        if path.is_file():  # not a pipe, of which the first bytes can be read only once
            with path.open("rb") as file:
                return path if file.read(4) == b"GGUF" or model.lower().endswith(".gguf") else None
        names = sorted(file.name for file in path.iterdir()) if path.is_dir() else []
    except OSError:  # the caller's own error says more
        return None
    if any(name == "config.json" or name.endswith((".yaml", ".yml")) for name in names):
        return None
    shards = ((name, _numbered(name)) for name in names if not name.startswith("ggml-vocab"))
    models = gguf_models({_with_number(shard, 1) if shard else name for name, shard in shards})
    if len(models) > 1:
        listed = ", ".join(truncate(name, 60) for name in models[:5]) + (", ..." if len(models) > 5 else "")
        raise AttncalcError(
            f"{truncate(path, 200)}: the folder has {count(len(models))} GGUF models: {listed}", "name one of the files"
        )
    return path / models[0] if models else None


def local_sources(path: Path) -> list[LocalFile]:
    """Return all files of the model that the file at `path` belongs to. Raises AttncalcError if one is missing."""
    names = shard_names(path.name)
    missing = [name for name in names if not (path.parent / name).is_file()]
    if missing and len(names) > 1:
        raise AttncalcError(
            f"{truncate(path, 200)}: {count(len(missing))} of its {count(len(names))} files are missing, such as "
            f"{truncate(missing[0], 80)}",
            "fetch the rest: each file has a part of the tensors",
        )
    return [LocalFile(path.parent / name) for name in names]
