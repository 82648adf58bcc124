"""The built-in models: their names and their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import AttncalcError, did_you_mean
from ..units import truncate
from .data_files import compiled, file_names, presets_folder


def _folder() -> Path:
    return presets_folder() / "models"


def preset_names() -> list[str]:
    """Return the sorted names of all presets."""
    return list(file_names(_folder()))


def preset_text(name: str) -> str:
    """Return the YAML text of a preset. Raises AttncalcError if there is no preset of that name."""
    if name not in preset_names():
        hint = did_you_mean(name, preset_names())
        raise AttncalcError(f"no preset named '{truncate(name)}'", f"{hint}'attncalc presets' lists them all")
    return (_folder() / f"{name}.yaml").read_text(encoding="utf-8")


def compiled_preset(name: str) -> dict[str, Any] | None:
    """Return a preset's data from the wheel's JSON, or None in a checkout or without such a preset."""
    data: dict[str, Any] | None = compiled(_folder()).get(name)
    return data
