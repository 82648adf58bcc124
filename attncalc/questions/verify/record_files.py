"""The two files of a record: checked before anything is measured, and rewritten whole after every
step.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import AttncalcError
from ...records import NamedTuple
from ...show.schemas import schema_name
from ...show.write import save
from ...units import truncate
from .record import record_page

# Bytes of a record that is read; one of ten minutes has 150 KB.
LARGEST = 64 * 2**20
_HOW = "'attncalc verify --record DIR' writes a record; name its .json"


def read_record(path: Path) -> dict[str, Any]:
    """Return the record in a JSON file. Raises AttncalcError if it cannot be read, or is no
    record.
    """
    name = truncate(path)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "cannot be read").lower()
        raise AttncalcError(f"--compare {name}: {reason}", _HOW) from None
    if len(content) > LARGEST:
        raise AttncalcError(f"--compare {name}: larger than 64 MiB", _HOW)
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        raise AttncalcError(f"--compare {name}: not JSON", _HOW) from None
    schema = record.get("schema") if isinstance(record, dict) else None
    if schema != schema_name("record"):
        if isinstance(schema, str):
            found = f"its schema is {truncate(schema)}"
        else:
            found = "it names no schema"
        raise AttncalcError(f"--compare {name}: not a record of this version: {found}", _HOW)
    return dict(record)


class RecordFiles(NamedTuple):
    page: Path
    data: Path

    def write(self, record: Mapping[str, Any]) -> None:
        """Write both files, each atomically. Raises AttncalcError if one cannot be written."""
        save(to_json(record), self.data, force=True)
        save(record_page(record), self.page, force=True)


def prepare_files(folder: Path, stem: str, *, force: bool) -> RecordFiles:
    """Return the files of a record in `folder`, which is created if only its last part is missing.

    Raises AttncalcError if one of the files exists and `force` is false, or if the folder cannot be
    written to.
    """
    try:
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except FileExistsError:
        raise AttncalcError(
            f"--record {truncate(folder)}: not a folder", "name a folder, as in --record measured"
        ) from None
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "cannot be written").lower()
        raise AttncalcError(
            f"--record {truncate(folder)}: {reason}", "name a folder that you can write to"
        ) from None
    files = RecordFiles(folder / f"{stem}.md", folder / f"{stem}.json")
    for file in files:
        if file.exists() and not file.is_file():
            raise AttncalcError(
                f"{truncate(file)}: not a file that can be written", "name another folder"
            )
        if file.exists() and not force:
            raise AttncalcError(f"{truncate(file)}: already exists", "--force overwrites it")
    return files


def to_json(record: Mapping[str, Any]) -> str:
    """Return the record as JSON: one line per key, per run and per step that did not run, so that
    files stay small.
    """
    lines = []
    for key, value in record.items():
        if isinstance(value, list):
            items = ",\n".join(_compact(item) for item in value)
            lines.append(f'"{key}":[\n{items}\n]' if value else f'"{key}":[]')
        else:
            lines.append(f'"{key}":{_compact(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
