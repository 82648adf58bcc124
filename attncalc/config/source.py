"""The bytes of a model file or config.json, and the folder that they are from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..errors import AttncalcError, NetworkError
from ..records import NamedTuple
from ..units import truncate

if TYPE_CHECKING:
    from .folder import ByteSource, Folder
    from .hub import Repository

# Suffixes of files that are read as JSON or YAML.
DOCUMENTS = (".json", ".yaml", ".yml")
# Bytes that a model file may have; the longest config.json has some tens of thousands.
LIMIT = 1 << 22

CONFIG = "config.json"
PARAMS = "params.json"
# Files of models that are described elsewhere; the error about their content names that place.
OTHER_LAYOUTS = ("adapter_config.json", "mlc-chat-config.json", "model_index.json", "modules.json")

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")


class Source(NamedTuple):
    """What a model's name or path leads to, before it is parsed."""

    name: str  # what the model is called on screens
    file: str  # what errors call the file
    content: bytes = b""  # the file's bytes; empty for a preset of a wheel and for GGUF files
    # the data of a preset of a wheel, which is parsed and checked already
    preset: dict[str, Any] | None = None
    # The folder or repository that was named instead of a file, whose weights are read too
    folder: Folder | None = None
    # the folder that the file is in; None for a preset and standard input
    beside: Folder | None = None
    gguf: tuple[ByteSource, ...] = ()  # the parts of a GGUF model; () for other files


def repository_source(repository: Repository) -> Source:
    """Return the model file of a repository in the cache or on the hub.

    Without a file's name, it is the GGUF file if the repository has no other weights, else
    config.json or params.json.

    Raises AttncalcError if there is none, or the cache or the hub has no such repository.
    """
    from .hub import MAIN

    folder = _folder_of(repository)
    name = repository.name.partition("/")[2]
    if repository.revision != MAIN:
        is_commit = re.fullmatch(r"[0-9a-f]{40}", repository.revision)
        name = f"{name}@{repository.revision[:12] if is_commit else repository.revision}"
    file = _file_of(repository, folder.names())
    if file.lower().endswith(".gguf"):
        from .gguf.files import model_name

        return Source(
            truncate(model_name(file.rpartition("/")[2]), 120),
            folder.label(file),
            gguf=_parts(folder, file),
        )
    content = folder.read(file, LIMIT)
    if content is None:
        raise AttncalcError(
            f"{repository}: {truncate(file, 80)} cannot be read", "fetch the repository again"
        )
    is_named = repository.file == file  # as with a path, a file alone has no weights
    beside = folder if "/" not in file else None
    return Source(
        truncate(name, 120),
        folder.label(file),
        content,
        folder=None if is_named else folder,
        beside=beside,
    )


def _folder_of(repository: Repository) -> Folder:
    """Return the files of a repository, from the cache or from the hub.

    A repository in the cache is used without a request and without a check for a newer one.
    HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE have the same meaning as for
    huggingface_hub.

    Raises AttncalcError if there is no such model or revision, access is denied or the hub cannot
    be reached.
    """
    from .hub import cached_folder, is_offline

    cached = cached_folder(repository)
    if cached is not None:
        return cached
    if is_offline():
        raise NetworkError(
            f"{repository}: not in the local cache, and HF_HUB_OFFLINE is set",
            "unset it, or give the path to its config.json",
        )
    from .remote import RemoteFolder

    return RemoteFolder(repository)


def _file_of(repository: Repository, names: frozenset[str]) -> str:
    """Return the model file of a repository with these files. Raises AttncalcError if it has
    none.
    """
    from .gguf.files import gguf_file, gguf_models, quantizations

    wanted = repository.file
    if (
        wanted in names
        and wanted.endswith((".json", ".gguf"))
        and not wanted.endswith(".index.json")
    ):
        return wanted
    if wanted.endswith((*_WEIGHTS, ".index.json")):  # the address of a page with weights
        wanted = ""
    has_weights = any(name.endswith(_WEIGHTS) for name in names)
    if wanted or (gguf_models(names) and not has_weights):
        file = gguf_file(names, wanted)
        if file is not None:
            return file
    if wanted:
        tags = ", ".join(quantizations(names)[:20])
        raise AttncalcError(
            f"{truncate(repository, 120)}: the repository has no such file or quantization",
            f"it has {truncate(tags, 200)}" if tags else f"leave ':{truncate(wanted)}' out",
        )
    for file in (CONFIG, PARAMS, *OTHER_LAYOUTS):
        if file in names:
            return file
    if names:
        listed = ", ".join(sorted(names)[:5]) + (", ..." if len(names) > 5 else "")
    else:
        listed = "no files"
    raise AttncalcError(
        f"{repository}: the repository has no {CONFIG}, {PARAMS} or GGUF file (it has "
        f"{truncate(listed, 120)})",
        "write a model file: 'attncalc presets show gpt2' prints one",
    )


def _parts(folder: Folder, file: str) -> tuple[ByteSource, ...]:
    """Return all parts of the model whose first file is `file`. Raises AttncalcError if one is
    missing.
    """
    from .gguf.files import shard_names

    place, slash, base = file.rpartition("/")
    names = [f"{place}{slash}{name}" for name in shard_names(base)]
    folder.prepare(names)
    parts = [folder.open(name) for name in names]
    missing = [name for name, part in zip(names, parts, strict=True) if part is None]
    if missing:
        raise AttncalcError(
            f"{folder.label(file)}: {len(missing)} of its {len(names)} files are missing, such as "
            f"{truncate(missing[0], 80)}",
            "each file has a part of the tensors: fetch the rest, or name another quantization",
        )
    return tuple(part for part in parts if part is not None)
