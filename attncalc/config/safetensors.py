"""The weights in a folder of safetensors files, from their headers.

A file has three parts: the length of the header (8 bytes, little-endian), the header (JSON with the
dtype, the shape and the first and last byte of each tensor), and the bytes of all tensors without
gaps.
Source: the format's README and `SafeTensors::read_metadata` in safetensors/src/tensor.rs.
"""

import itertools
import math
import re
from collections import Counter
from typing import Any

from ..checkpoint import BITS, CheckpointWeights, StoredDtype
from ..errors import AttncalcError
from ..records import NamedTuple
from ..units import count, truncate
from .folder import ByteSource, Folder
from .parse_json import parse_object

INDEX = "model.safetensors.index.json"
# Bytes that a header may have; the format allows 100 million. The longest of the releases known, of
# Kimi-K2-Thinking with 3,500 tensors in a file, have 0.5 MB. Reading takes 7 times the bytes of
# memory.
MAX_HEADER = 16 << 20
# Bytes that an index may have. That of Kimi-K2.5 in NVFP4 has 31 MB: 60 layers, each of 384 experts
# with 3 matrices of 4 tensors. Reading takes 5.4 times the bytes of memory: 256 MB.
MAX_INDEX = 48 << 20
# Tensors of all files together. Kimi-K2.5 in NVFP4 has 278,000.
MAX_TENSORS = 500_000

_SHARD = re.compile(
    r"(?P<stem>.+)-(?P<number>\d{1,9})-of-(?P<files>\d{1,9})\.safetensors", re.ASCII
)
# The beginning of a tensor of a layer, or of one for multi-token prediction: 'mtp.fc.weight',
# 'model.mtp_layers.0.'
_PREDICTING = re.compile(
    r"(?:model\.|language_model\.){0,2}(?:layers\.(\d{1,9})\.|mtp(?:_\w{1,40})?\.)", re.ASCII
)
_NO_WEIGHTS = "name the config.json alone: then no weights are read"
_FETCH_AGAIN = "fetch the file again: this one is incomplete"
_FETCH_REST = f"fetch the rest, or {_NO_WEIGHTS}"


class _Tensor(NamedTuple):
    """A tensor of a file; its offsets are its first byte and the byte after its last, from the end
    of the header.
    """

    dtype: str
    elements: int
    offsets: tuple[int, int]


class _Index(NamedTuple):
    """{tensor: the file that has it}, and the bytes of all tensors if the index gives them."""

    shards: dict[str, str]
    total_size: int | None


def stored_weights(folder: Folder, layers: int | None = None) -> CheckpointWeights | None:
    """Return the weights in the safetensors files of `folder`, or None if it has none.

    Layers after the model's `layers`, if their number is known, are those of multi-token prediction
    (DeepSeek-V3, GLM-4.5), and so are tensors called `mtp` (Qwen3.5, MiMo).

    The index names the files. Without an index they are `model*.safetensors`, or all files that are
    no adapters. If the folder has the index and none of its files, or more files than its
    `max_headers`, the result is the index's `total_size`, without dtypes.

    Raises AttncalcError, with the file's name, if a file is missing or not valid.
    """
    index = _index(folder)
    try:
        files = _files(folder, index)
    except _MissingError:
        if folder.is_complete:
            raise
        files = []
    if files and (folder.max_headers is None or len(files) <= folder.max_headers):
        return _sum(folder, files, index, layers)
    if index is None or index.total_size is None:
        return None
    return CheckpointWeights(
        len(set(index.shards.values())), len(index.shards), (), index.total_size
    )


class _MissingError(AttncalcError):
    """Some of the files that belong together are missing."""


def _files(folder: Folder, index: _Index | None) -> list[str]:
    """Return the sorted names of the files that contain each tensor once, or [] if there are
    none.
    """
    names = {name for name in folder.names() if _is_shard(name)}
    if folder.max_headers is None:  # on disk, a name may be a dead link
        names = {name for name in names if folder.open(name) is not None}
    if index is not None and names.intersection(index.shards.values()):
        required = set(index.shards.values())
        missing = required - names
        if missing:
            raise _missing(folder, len(missing), len(required), f"{INDEX} names are", min(missing))
        return sorted(required)
    if "model.safetensors" in names:  # other files may have the same weights in another dtype
        return ["model.safetensors"]
    models = {name for name in names if name.startswith("model")}
    files = models or {name for name in names if not name.startswith("adapter")}
    _check_numbers(folder, files)
    return sorted(files)


def _check_numbers(folder: Folder, files: set[str]) -> None:
    """Raise AttncalcError if files are missing between numbered ones, as 2 and 3 of
    'model-00001-of-00003.safetensors'.

    Numbers are counted, and no names are made: a thousand empty files
    'a-1-of-99999999.safetensors', 'b-1-of-...' are quickly made, and their missing names would fill
    the memory.
    """
    numbers: dict[tuple[str, str], dict[int, str]] = {}
    for match in filter(None, map(_SHARD.fullmatch, files)):
        of_group = numbers.setdefault((match["stem"], match["files"]), {})
        of_group[int(match["number"])] = match["number"]
    missing = {}
    for (stem, last), present in numbers.items():
        numbered = [number for number in present if 1 <= number <= int(last)]
        missing[stem, last] = int(last) - len(numbered)
    total = sum(missing.values())
    if total:
        stem, last = min(group for group in missing if missing[group])
        present = numbers[stem, last]
        first = next(number for number in itertools.count(1) if number not in present)
        example = f"{stem}-{first:0{min(map(len, present.values()))}}-of-{last}.safetensors"
        raise _missing(folder, total, len(files) + total, "are numbered are", example)


def _missing(
    folder: Folder, missing: int, required: int, reason: str, example: str
) -> _MissingError:
    return _MissingError(
        f"{folder.label()}: {count(missing)} of the {count(required)} files that {reason} "
        f"missing, such as {truncate(example, 80)}",
        _FETCH_REST,
    )


def _sum(
    folder: Folder, files: list[str], index: _Index | None, layers: int | None
) -> CheckpointWeights:
    """Return the weights of all `files` together. Raises AttncalcError if two of them have the same
    tensor.
    """
    file_of: dict[str, str] = {}
    elements = Counter[str]()
    predicting = 0
    folder.prepare(files)
    for name in files:
        for tensor, (dtype, n_elements, _) in _header(folder, name).items():
            if tensor in file_of:
                other = truncate(file_of[tensor], 80)
                raise AttncalcError(
                    f"{folder.label(name)}: tensor '{truncate(tensor, 80)}' is in {other} too",
                    "keep the files of one model in the folder: it is unclear which would be "
                    "loaded",
                )
            file_of[tensor] = name
            elements[dtype] += n_elements
            match = _PREDICTING.match(tensor)
            if match and (match[1] is None or (layers is not None and int(match[1]) >= layers)):
                predicting += n_elements * BITS[dtype] // 8
        if len(file_of) > MAX_TENSORS:
            raise _too_large(folder.label(), f"more than {count(MAX_TENSORS)} tensors in its files")
    if index is not None and set(index.shards.values()) == set(files):
        for tensor, name in index.shards.items():
            if file_of.get(tensor) != name:
                raise AttncalcError(
                    f"{folder.label(INDEX)}: tensor '{truncate(tensor, 80)}' is not in "
                    f"{truncate(name, 80)}",
                    "the index and the files are not of the same release: fetch them again",
                )
    by_dtype = [
        StoredDtype(dtype, total, total * BITS[dtype] // 8) for dtype, total in elements.items()
    ]
    by_dtype.sort(key=lambda stored: (-stored.size, stored.name))
    size = sum(stored.size for stored in by_dtype)
    return CheckpointWeights(len(files), len(file_of), tuple(by_dtype), size, predicting=predicting)


def _header(folder: Folder, name: str) -> dict[str, _Tensor]:
    file = folder.open(name)
    label = folder.label(name)
    if file is None:
        raise _broken(label, "no such file")
    content, start = _header_bytes(file, label)
    header = parse_object(content, f"{label} (header)", _FETCH_AGAIN)
    header.pop("__metadata__", None)
    tensors = {name: _tensor(label, name, entry) for name, entry in header.items()}
    end = 0
    for tensor_name, tensor in sorted(tensors.items(), key=lambda item: item[1].offsets):
        if tensor.offsets[0] != end:
            raise _broken(
                label,
                f"tensor '{truncate(tensor_name, 80)}' does not start where the one before it ends",
            )
        end = tensor.offsets[1]
    if file.size is not None and start + end != file.size:
        kind = "shorter" if file.size < start + end else "longer"
        raise _broken(
            label, f"{count(abs(start + end - file.size))} bytes {kind} than its header describes"
        )
    return tensors


def _header_bytes(file: ByteSource, label: str) -> tuple[bytes, int]:
    prefix = file.read(0, 8)
    length = int.from_bytes(prefix, "little")
    is_whole = len(prefix) == 8 and (file.size is None or length <= file.size - 8)
    if is_whole and length > MAX_HEADER:
        raise _too_large(label, f"a header of {count(length)} bytes, more than {count(MAX_HEADER)}")
    header = file.read(8, 8 + length) if is_whole else b""
    if not is_whole or len(header) < length:
        raise _broken(label, "shorter than its header, or not a safetensors file")
    return header, 8 + length


def _tensor(label: str, name: str, entry: Any) -> _Tensor:
    """Return one tensor of the header. Raises AttncalcError if its dtype, shape and offsets
    contradict each other.
    """
    keys = entry if isinstance(entry, dict) else {}
    dtype = keys.get("dtype")
    shape = _sizes(keys.get("shape"))
    offsets = _sizes(keys.get("data_offsets"))
    tensor = f"tensor '{truncate(name, 80)}'"
    if shape is None or offsets is None or len(offsets) != 2 or not isinstance(dtype, str):
        raise _broken(label, f"{tensor} has no valid dtype, shape and data_offsets")
    if dtype not in BITS:
        raise AttncalcError(
            f"{label}: {tensor} has the dtype '{truncate(dtype)}', which is not known",
            f"known: {', '.join(BITS)}",
        )
    elements = math.prod(shape)
    if elements * BITS[dtype] != 8 * (offsets[1] - offsets[0]):
        raise _broken(
            label,
            f"{tensor}: {truncate(shape)} in {dtype} does not fill the "
            f"{count(offsets[1] - offsets[0])} bytes it has",
        )
    return _Tensor(dtype, elements, (offsets[0], offsets[1]))


def _sizes(value: Any) -> list[int] | None:
    """Return a list of at most 64 unsigned 64-bit numbers as it is, or None for anything else."""
    if not isinstance(value, list) or len(value) > 64:
        return None
    if all(type(number) is int and 0 <= number < 2**64 for number in value):
        return value
    return None


def _index(folder: Folder) -> _Index | None:
    content = folder.read(INDEX, MAX_INDEX)
    label = folder.label(INDEX)
    if content is None:
        return None
    if len(content) > MAX_INDEX:
        raise _too_large(label, f"longer than {count(MAX_INDEX)} bytes")
    data = parse_object(content, label, _FETCH_AGAIN)
    shards = data.get("weight_map")
    metadata = data.get("metadata")
    if not isinstance(shards, dict) or not all(_is_shard(name) for name in shards.values()):
        raise _broken(
            label, "its weight_map does not name a safetensors file of this folder for each tensor"
        )
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, float) and total.is_integer():  # some writers write 16060522496.0
        total = int(total)
    if total is not None and (type(total) is not int or not 0 <= total < 2**63):
        raise _broken(label, f"its total_size is '{truncate(total)}', not a number of bytes")
    return _Index(shards, total)


def _is_shard(name: Any) -> bool:
    return (
        isinstance(name, str) and name.endswith(".safetensors") and not re.search(r"[/\\\0]", name)
    )


def _broken(label: str, problem: str) -> AttncalcError:
    return AttncalcError(f"{label}: {problem}", _FETCH_AGAIN)


def _too_large(label: str, problem: str) -> AttncalcError:
    return AttncalcError(f"{label}: {problem}", _NO_WEIGHTS)
