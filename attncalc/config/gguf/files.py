"""Which GGUF files are meant: one file, its shards, or one of those in a folder or a repository.

Of a repository it is decided by llama.cpp's rules for `-hf org/name:Q4_K_M`.
Source: find_best_model and gguf_filename_is_model in common/download.cpp of llama.cpp.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from ...errors import AttncalcError
from ...units import count, truncate
from ..folder import LocalFile

_SHARD = re.compile(
    r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<files>\d{5})(?P<suffix>\.gguf)", re.IGNORECASE
)
_MAX_SHARDS = 1000

# The quantizations that are taken if none is named, in this order; else the first file.
_DEFAULT_TAGS = ("Q4_K_M", "Q8_0")

_NOT_MODELS = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
_LATER_SHARD = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf", re.IGNORECASE)
_TAG = re.compile(
    r"[-._/](?P<tag>(?:UD-)?(?:I?Q\d\w*|TQ\d\w*|B?F16|F32|MXFP4\w*"
    r"|NVFP4\w*))(?:-00001-of-\d{5})?\.gguf",
    re.IGNORECASE,
)


def shard_names(name: str) -> list[str]:
    """Return the names of all files of a model, of which `name` is one: [name] unless it is
    numbered.

    'model-00002-of-00003.gguf' gives the three names. Source: llama_split_path (src/llama.cpp).
    """
    shard = _numbered(name)
    if shard:
        return [_with_number(shard, i) for i in range(1, int(shard["files"]) + 1)]
    return [name]


def _numbered(name: str) -> re.Match[str] | None:
    """Return the parts of a name of `shard_names`, or None if it is not numbered."""
    match = _SHARD.fullmatch(name)
    if match and 1 <= int(match["number"]) <= int(match["files"]) <= _MAX_SHARDS:
        return match
    return None


def _with_number(shard: re.Match[str], number: int) -> str:
    return f"{shard['stem']}-{number:05}-of-{shard['files']}{shard['suffix']}"


def model_name(name: str) -> str:
    """Return the model's name: that of its file, without the number of the shard and '.gguf'."""
    match = _SHARD.fullmatch(name)
    if match:
        return match["stem"]
    return re.sub(r"\.gguf$", "", name, flags=re.IGNORECASE)


def local_gguf(model: str) -> Path | None:
    """Return the first GGUF file that `model` leads to; None if it leads to something else.

    A folder must have GGUF files, and no config.json or model file. Raises AttncalcError if the
    folder has several models.
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
    if _has_config(names):
        return None
    models = _first_files(names)
    if len(models) > 1:
        listed = ", ".join(truncate(name, 60) for name in models[:5]) + (
            ", ..." if len(models) > 5 else ""
        )
        raise AttncalcError(
            f"{truncate(path, 200)}: the folder has {count(len(models))} GGUF models: {listed}",
            "name one of the files, or rank them: attncalc fit FOLDER --gpu 12GB",
        )
    return path / models[0] if models else None


def _has_config(names: Iterable[str]) -> bool:
    """Return whether these files of a folder describe its model, whichever GGUF files are beside
    them.
    """
    return any(name == "config.json" or name.endswith((".yaml", ".yml")) for name in names)


def local_models(folder: str, *, with_config: bool = True) -> list[Path]:
    """Return the first file of each GGUF model in a folder; [] for anything else.

    `with_config` is whether the folder may describe another model.
    """
    path = Path(folder)
    try:
        names = sorted(file.name for file in path.iterdir()) if path.is_dir() else []
    except OSError:
        return []
    if with_config or not _has_config(names):
        return [path / name for name in _first_files(names)]
    return []


def _first_files(names: Iterable[str]) -> list[str]:
    """Return the language models of these files, of those in several parts the first."""
    shards = ((name, _numbered(name)) for name in names if not name.startswith("ggml-vocab"))
    return gguf_models({_with_number(shard, 1) if shard else name for name, shard in shards})


def local_sources(path: Path) -> list[LocalFile]:
    """Return all files of the model that the file at `path` belongs to. Raises AttncalcError if one
    is missing.
    """
    names = shard_names(path.name)
    missing = [name for name in names if not (path.parent / name).is_file()]
    if missing and len(names) > 1:
        raise AttncalcError(
            f"{truncate(path, 200)}: {count(len(missing))} of its {count(len(names))} files are "
            f"missing, such as {truncate(missing[0], 80)}",
            "fetch the rest: each file has a part of the tensors",
        )
    return [LocalFile(path.parent / name) for name in names]


def gguf_models(names: Iterable[str]) -> list[str]:
    """Return the sorted GGUF files that are language models, of those in several parts only the
    first.
    """
    models = []
    for name in names:
        base = name.rpartition("/")[2]
        is_model = not any(word in base for word in _NOT_MODELS)
        if base.lower().endswith(".gguf") and is_model and not _LATER_SHARD.search(base):
            models.append(name)
    return sorted(models)


def gguf_file(names: Iterable[str], wanted: str = "") -> str | None:
    """Return the GGUF file that `wanted` means, or None.

    `wanted` is a file, or a quantization such as 'Q4_K_M' in any case; '' is llama.cpp's default.
    """
    models = gguf_models(names)
    for tag in (wanted,) if wanted else _DEFAULT_TAGS:
        by_name = [name for name in models if name.lower() == tag.lower()]
        # 'F16' is not 'x-BF16.gguf', though llama.cpp would take it.
        whole = [
            name
            for name in models
            if re.search(rf"(?<![A-Z0-9]){re.escape(tag)}[.-]", name, re.IGNORECASE)
        ]
        found = by_name or whole
        if found:
            return found[0]
    if models and not wanted:
        return models[0]
    return None


def quantizations(names: Iterable[str]) -> list[str]:
    """Return the quantizations of the GGUF models, as one can name them after 'org/name:'."""
    # Only the end: '_Q4_Q4_Q4...' of 500 characters would take milliseconds, and a hub may list
    # thousands of names.
    tags = (_TAG.search(name[-80:]) for name in gguf_models(names))
    return list(dict.fromkeys(match["tag"] for match in tags if match))
