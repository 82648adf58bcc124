"""The file of a record: checked before anything is measured, and rewritten whole after every
step.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import AttncalcError
from ...show.write import save
from ...units import truncate


def write_record_file(record: Mapping[str, Any], file: Path) -> None:
    """Write a record atomically. Raises AttncalcError if it cannot be written."""
    save(to_json(record), file, force=True)


def prepare_file(folder: Path, stem: str, *, force: bool) -> Path:
    """Return the file of a record in `folder`, which is created if only its last part is missing.

    Raises AttncalcError if the file exists and `force` is false, or if the folder cannot be written
    to.
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
    file = folder / f"{stem}.json"
    if file.exists() and not file.is_file():
        raise AttncalcError(
            f"{truncate(file)}: not a file that can be written", "name another folder"
        )
    if file.exists() and not force:
        raise AttncalcError(f"{truncate(file)}: already exists", "--force overwrites it")
    return file


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
