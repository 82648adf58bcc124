"""The weights in a folder of safetensors files, from their headers.

A file has three parts: the length of the header (8 bytes, little-endian), the header (JSON with the dtype, the shape
and the first and last byte of each tensor), and the bytes of all tensors without gaps.
Source: the format's README and `SafeTensors::read_metadata` in safetensors/src/tensor.rs.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..checkpoint import BITS, CheckpointWeights, StoredDtype
from ..errors import AttncalcError
from ..units import count, truncate
from .parse_json import parse_object

INDEX = "model.safetensors.index.json"
LIMIT = 100_000_000
"""Bytes that a header may have, by the format's own limit; an index may have as many."""
POINTER = b"version https://git-lfs"
"""The first bytes of the pointer that git stores instead of a file which git-lfs has not fetched."""

_SHARD = re.compile(r"(?P<stem>.+)-\d+-of-(?P<files>\d+)\.safetensors")
_FETCH_AGAIN = "fetch the file again: this one is incomplete"
_FETCH_REST = "fetch the rest, or name the config.json alone: then no weights are read"
_Offsets = tuple[int, int]


class _Tensor(NamedTuple):
    """A tensor of a file.

    Attributes:
        dtype: Its dtype, one of BITS.
        elements: How many elements it has.
        offsets: Its first byte, and the byte after its last, counted from the end of the header.
    """

    dtype: str
    elements: int
    offsets: _Offsets


class _Index(NamedTuple):
    """The index of a model in several files.

    Attributes:
        shards: {tensor: the file that has it}.
        total_size: Bytes of all tensors, or None if the index does not give them.
    """

    shards: dict[str, str]
    total_size: int | None


def stored_weights(folder: Path) -> CheckpointWeights | None:
    """Return the weights in the safetensors files of `folder`, or None if it has none.

    The index names the files. Without an index they are `model*.safetensors`, or all files that are no adapters. If the
    folder has the index and none of its files, the result is the index's `total_size`, without dtypes.

    Raises AttncalcError, with the file's name, if a file is missing or not valid.
    """
    index = _index(folder / INDEX)
    files = _files(folder, index)
    if files:
        return _sum(folder, files, index)
    if index is None or index.total_size is None:
        return None
    return CheckpointWeights(len(set(index.shards.values())), len(index.shards), (), index.total_size)


def _files(folder: Path, index: _Index | None) -> list[str]:
    """Return the sorted names of the files that contain each tensor once, or [] if there are none."""
    present = {path.name for path in sorted(folder.glob("*.safetensors")) if _is_fetched(path)}
    if index is not None and present.intersection(index.shards.values()):
        return _complete(folder, set(index.shards.values()), present, f"{INDEX} names are")
    if "model.safetensors" in present:  # other files may have the same weights in another dtype
        return ["model.safetensors"]
    models = {name for name in present if name.startswith("model")}
    files = models or {name for name in present if not name.startswith("adapter")}
    return _complete(folder, files | _siblings(files), present, "are numbered are") if files else []


def _siblings(names: set[str]) -> set[str]:
    """Return all files of the numbered ones: three for 'model-00001-of-00003.safetensors'."""
    siblings = set()
    for name in names:
        match = _SHARD.fullmatch(name)
        if match and int(match["files"]) <= 10**5:
            files, width = int(match["files"]), len(match["files"])
            siblings |= {f"{match['stem']}-{i:0{width}}-of-{match['files']}.safetensors" for i in range(1, files + 1)}
    return siblings


def _complete(folder: Path, required: set[str], present: set[str], reason: str) -> list[str]:
    """Return the `required` files, sorted. Raises AttncalcError if one of the files is missing."""
    missing = sorted(required - present)
    if missing:
        raise AttncalcError(
            f"{truncate(folder, 200)}: {count(len(missing))} of the {count(len(required))} files that {reason} "
            f"missing, such as {truncate(missing[0], 80)}",
            _FETCH_REST,
        )
    return sorted(required)


def _is_fetched(path: Path) -> bool:
    """Return whether a file is present, and not a dead link or a pointer of git-lfs."""
    try:
        with path.open("rb") as file:
            return file.read(len(POINTER)) != POINTER
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unreadable(path, error) from None


def _sum(folder: Path, files: list[str], index: _Index | None) -> CheckpointWeights:
    """Return the weights of all `files` together. Raises AttncalcError if two of them have the same tensor."""
    file_of: dict[str, str] = {}
    elements: dict[str, int] = {}
    for name in files:
        for tensor, (dtype, n_elements, _) in _header(folder / name).items():
            if tensor in file_of:
                other = truncate(file_of[tensor], 80)
                raise AttncalcError(
                    f"{truncate(folder / name, 200)}: tensor '{truncate(tensor, 80)}' is in {other} too",
                    "keep the files of one model in the folder: it is unclear which would be loaded",
                )
            file_of[tensor] = name
            elements[dtype] = elements.get(dtype, 0) + n_elements
    if index is not None and set(index.shards.values()) == set(files):
        for tensor, name in index.shards.items():
            if file_of.get(tensor) != name:
                raise AttncalcError(
                    f"{truncate(folder / INDEX, 200)}: tensor '{truncate(tensor, 80)}' is not in {truncate(name, 80)}",
                    "the index and the files are not of the same release: fetch them again",
                )
    by_dtype = [StoredDtype(dtype, total, total * BITS[dtype] // 8) for dtype, total in elements.items()]
    by_dtype.sort(key=lambda stored: (-stored.size, stored.name))
    return CheckpointWeights(len(files), len(file_of), tuple(by_dtype), sum(stored.size for stored in by_dtype))


def _header(path: Path) -> dict[str, _Tensor]:
    """Return {name: tensor} of a file. Raises AttncalcError if it is not valid."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header = parse_object(_header_bytes(path, file, size), f"{truncate(path, 200)} (header)", _FETCH_AGAIN)
            start = file.tell()
    except OSError as error:
        raise _unreadable(path, error) from None
    header.pop("__metadata__", None)
    tensors = {name: _tensor(path, name, entry) for name, entry in header.items()}
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].offsets):
        if tensor.offsets[0] != end:
            raise _broken(path, f"tensor '{truncate(name, 80)}' does not start where the one before it ends")
        end = tensor.offsets[1]
    if start + end != size:
        kind = "shorter" if size < start + end else "longer"
        raise _broken(path, f"{count(abs(start + end - size))} bytes {kind} than its header describes")
    return tensors


def _header_bytes(path: Path, file: BinaryIO, size: int) -> bytes:
    """Return the header, and leave `file` at the byte after it."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise _broken(path, "shorter than its header, or not a safetensors file")
    if length > LIMIT:
        raise _broken(path, f"a header of {count(length)} bytes, more than the format allows")
    return file.read(length)


def _tensor(path: Path, name: str, entry: Any) -> _Tensor:
    """Return one tensor of the header. Raises AttncalcError if its dtype, shape and offsets contradict each other."""
    keys = entry if isinstance(entry, dict) else {}
    dtype, shape, offsets = keys.get("dtype"), _sizes(keys.get("shape")), _sizes(keys.get("data_offsets"))
    label = f"tensor '{truncate(name, 80)}'"
    if shape is None or offsets is None or len(offsets) != 2 or not isinstance(dtype, str):
        raise _broken(path, f"{label} has no valid dtype, shape and data_offsets")
    if dtype not in BITS:
        raise AttncalcError(
            f"{truncate(path, 200)}: {label} has the dtype '{truncate(dtype)}', which is not known",
            f"known: {', '.join(BITS)}",
        )
    elements = math.prod(shape)
    if elements * BITS[dtype] != 8 * (offsets[1] - offsets[0]):
        raise _broken(
            path,
            f"{label}: {truncate(shape)} in {dtype} does not fill the {count(offsets[1] - offsets[0])} bytes it has",
        )
    return _Tensor(dtype, elements, (offsets[0], offsets[1]))


def _sizes(value: Any) -> list[int] | None:
    """Return a list of at most 64 unsigned 64-bit numbers as it is, or None for anything else."""
    if not isinstance(value, list) or len(value) > 64:
        return None
    return value if all(type(number) is int and 0 <= number < 2**64 for number in value) else None


def _index(path: Path) -> _Index | None:
    """Return the index at `path`, or None if there is no file. Raises AttncalcError if it is not valid."""
    try:
        with path.open("rb") as file:
            content = file.read(LIMIT + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from None
    if len(content) > LIMIT:
        raise _broken(path, f"longer than {count(LIMIT)} bytes")
    data = parse_object(content, truncate(path, 200), _FETCH_AGAIN)
    shards, metadata = data.get("weight_map"), data.get("metadata")
    if not isinstance(shards, dict) or not all(_is_shard(name) for name in shards.values()):
        raise _broken(path, "its weight_map does not name a safetensors file of this folder for each tensor")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, float) and total.is_integer():  # some writers write 16060522496.0
        total = int(total)
    if total is not None and (type(total) is not int or total < 0):
        raise _broken(path, f"its total_size is '{truncate(total)}', not a number of bytes")
    return _Index(shards, total)


def _is_shard(name: Any) -> bool:
    return isinstance(name, str) and name.endswith(".safetensors") and not re.search(r"[/\\\0]", name)


def _broken(path: Path, problem: str) -> AttncalcError:
    return AttncalcError(f"{truncate(path, 200)}: {problem}", _FETCH_AGAIN)


def _unreadable(path: Path, error: OSError) -> AttncalcError:
    return AttncalcError(f"{truncate(path, 200)}: {(error.strerror or 'cannot be read').lower()}", "check the path")
