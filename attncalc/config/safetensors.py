"""The weights in a folder of safetensors files, read from their headers alone.

A file is the header's length (8 bytes, little-endian), the header (JSON: for each tensor its dtype,
its shape and where its bytes start and end), and the bytes of all tensors without a gap.
Source: the format's README and `SafeTensors::read_metadata` in safetensors/src/tensor.rs.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..checkpoint import BITS, CheckpointWeights, StoredDtype
from ..errors import AttncalcError
from ..units import count, truncate

INDEX = "model.safetensors.index.json"
LIMIT = 100_000_000
"""Bytes of a header at the most: the format's own limit. An index may have as many."""
POINTER = b"version https://git-lfs"
"""How the stand-in begins that git keeps where git-lfs has not fetched a file."""

_SHARD = re.compile(r"(?P<stem>.+)-\d+-of-(?P<files>\d+)\.safetensors")
_AGAIN = "fetch the file again: this one is not whole"
_FETCH = "fetch the rest, or name its config.json alone: then no weights are read"
_Offsets = tuple[int, int]


class _Tensor(NamedTuple):
    dtype: str
    elements: int
    offsets: _Offsets


class _Index(NamedTuple):
    """An index: the file of each tensor, and the bytes of all where it says so."""

    shards: dict[str, str]
    total_size: int | None


def stored_weights(folder: Path) -> CheckpointWeights | None:
    """The weights that the files of `folder` hold; None where it has none.

    Its index names the files; without one they are `model*.safetensors`, or else all but adapters.
    Where the index is there and none of its files, its own `total_size` is the answer, without dtypes.
    AttncalcError: some of the files are missing, or one is not what the format says; it names the file.
    """
    index = _index(folder / INDEX)
    files = _files(folder, index)
    if files:
        return _sum(folder, files, index)
    if index is None or index.total_size is None:
        return None
    return CheckpointWeights(len(set(index.shards.values())), len(index.shards), (), index.total_size)


def _files(folder: Path, index: _Index | None) -> list[str]:
    """The names of the files that make up the model: one of each tensor. [] for none."""
    here = {path.name for path in sorted(folder.glob("*.safetensors")) if _is_fetched(path)}
    if index is not None and here.intersection(index.shards.values()):
        return _complete(folder, set(index.shards.values()), here, f"{INDEX} names are")
    if "model.safetensors" in here:  # beside it may stand the same weights in another dtype
        return ["model.safetensors"]
    for chosen in (
        {name for name in here if name.startswith("model")},
        {name for name in here if not name.startswith("adapter")},
    ):
        if chosen:
            return _complete(folder, chosen | _numbered(chosen), here, "are numbered are")
    return []


def _numbered(names: set[str]) -> set[str]:
    """All files of which 'model-00001-of-00003.safetensors' says that they are there."""
    wanted = set()
    for name in names:
        found = _SHARD.fullmatch(name)
        if found and int(found["files"]) <= 10**5:
            files, width = int(found["files"]), len(found["files"])
            wanted |= {f"{found['stem']}-{i:0{width}}-of-{found['files']}.safetensors" for i in range(1, files + 1)}
    return wanted


def _complete(folder: Path, wanted: set[str], here: set[str], by: str) -> list[str]:
    """`wanted`, sorted. AttncalcError: one of them is not here."""
    missing = sorted(wanted - here)
    if missing:
        raise AttncalcError(
            f"{truncate(folder, 200)}: {count(len(missing))} of the {count(len(wanted))} files that {by} "
            f"not there, as {truncate(missing[0], 80)}",
            _FETCH,
        )
    return sorted(wanted)


def _is_fetched(path: Path) -> bool:
    """Whether a file is there itself, and no dead link or stand-in of git-lfs."""
    try:
        with path.open("rb") as file:
            return file.read(len(POINTER)) != POINTER
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unreadable(path, error) from None


def _sum(folder: Path, files: list[str], index: _Index | None) -> CheckpointWeights:
    """What `files` hold together, each tensor once. AttncalcError: two of them have the same one."""
    home: dict[str, str] = {}
    elements: dict[str, int] = {}
    for name in files:
        for tensor, (dtype, held, _) in _header(folder / name).items():
            if tensor in home:
                other = truncate(home[tensor], 80)
                raise AttncalcError(
                    f"{truncate(folder / name, 200)}: tensor '{truncate(tensor, 80)}' is in {other} too",
                    "keep one model's files in the folder: which of them would be loaded cannot be told",
                )
            home[tensor] = name
            elements[dtype] = elements.get(dtype, 0) + held
    if index is not None and set(index.shards.values()) == set(files):
        for tensor, name in index.shards.items():
            if home.get(tensor) != name:
                raise AttncalcError(
                    f"{truncate(folder / INDEX, 200)}: tensor '{truncate(tensor, 80)}' is not in {truncate(name, 80)}",
                    "index and files are not of one release: fetch them again",
                )
    by_dtype = [StoredDtype(dtype, held, held * BITS[dtype] // 8) for dtype, held in elements.items()]
    by_dtype.sort(key=lambda each: (-each.size, each.name))
    return CheckpointWeights(len(files), len(home), tuple(by_dtype), sum(each.size for each in by_dtype))


def _header(path: Path) -> dict[str, _Tensor]:
    """The tensors of a file by name. AttncalcError: it is not what the format says."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header = _object(_header_bytes(path, file, size), path)
            start = file.tell()
    except OSError as error:
        raise _unreadable(path, error) from None
    header.pop("__metadata__", None)
    tensors = {name: _tensor(path, name, said) for name, said in header.items()}
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].offsets):
        if tensor.offsets[0] != end:
            raise _broken(path, f"tensor '{truncate(name, 80)}' does not start where the one before it ends")
        end = tensor.offsets[1]
    if start + end != size:
        kind = "shorter" if size < start + end else "longer"
        raise _broken(path, f"{count(abs(start + end - size))} bytes {kind} than its header says")
    return tensors


def _header_bytes(path: Path, file: BinaryIO, size: int) -> bytes:
    """The header, after which `file` stands."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise _broken(path, "shorter than its header, or not a safetensors file")
    if length > LIMIT:
        raise _broken(path, f"a header of {count(length)} bytes, which the format does not allow")
    return file.read(length)


def _tensor(path: Path, name: str, said: Any) -> _Tensor:
    """One tensor as the header describes it. AttncalcError: its dtype, shape and place do not agree."""
    known = said if isinstance(said, dict) else {}
    dtype, shape, offsets = known.get("dtype"), _sizes(known.get("shape")), _sizes(known.get("data_offsets"))
    of = f"tensor '{truncate(name, 80)}'"
    if shape is None or offsets is None or len(offsets) != 2 or not isinstance(dtype, str):
        raise _broken(path, f"{of} has no dtype, shape and data_offsets as the format wants them")
    if dtype not in BITS:
        raise AttncalcError(
            f"{truncate(path, 200)}: {of} has the dtype '{truncate(dtype)}', which is not known",
            f"known: {', '.join(BITS)}",
        )
    elements = math.prod(shape)
    if elements * BITS[dtype] != 8 * (offsets[1] - offsets[0]):
        raise _broken(
            path,
            f"{of}: {truncate(shape)} in {dtype} does not fill the {count(offsets[1] - offsets[0])} bytes it has",
        )
    return _Tensor(dtype, elements, (offsets[0], offsets[1]))


def _sizes(said: Any) -> list[int] | None:
    """A list of a few whole numbers, none below zero, that fit into 64 bits; None where it is not one."""
    if not isinstance(said, list) or len(said) > 64:
        return None
    return said if all(type(number) is int and 0 <= number < 2**64 for number in said) else None


def _index(path: Path) -> _Index | None:
    """The index at `path`; None where there is none. AttncalcError: it is not one."""
    try:
        with path.open("rb") as file:
            content = file.read(LIMIT + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from None
    if len(content) > LIMIT:
        raise _broken(path, f"longer than {count(LIMIT)} bytes")
    said = _object(content, path)
    shards, metadata = said.get("weight_map"), said.get("metadata")
    if not isinstance(shards, dict) or not all(_is_shard(name) for name in shards.values()):
        raise _broken(path, "its weight_map does not give each tensor a safetensors file of this folder")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, float) and total.is_integer():  # some writers divide before they write
        total = int(total)
    if total is not None and (type(total) is not int or total < 0):
        raise _broken(path, f"its total_size is '{truncate(total)}', not a number of bytes")
    return _Index(shards, total)


def _is_shard(name: Any) -> bool:
    return isinstance(name, str) and name.endswith(".safetensors") and not re.search(r"[/\\\0]", name)


def _object(content: bytes, path: Path) -> dict[str, Any]:
    """The JSON object in `content`. AttncalcError: there is none, or a key of it stands twice."""
    try:
        found = json.loads(content, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _broken(path, "not a JSON object where the format has one")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are all different: of two tensors of a name, one would not be counted."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _broken(path: Path, what: str) -> AttncalcError:
    return AttncalcError(f"{truncate(path, 200)}: {what}", _AGAIN)


def _unreadable(path: Path, error: OSError) -> AttncalcError:
    return AttncalcError(f"{truncate(path, 200)}: {(error.strerror or 'cannot be read').lower()}", "check the path")
