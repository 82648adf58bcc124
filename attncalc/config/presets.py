"""The presets that come with attncalc: where they are, their names and their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import AttncalcError, did_you_mean
from ..units import truncate

_PACKAGE = Path(__file__).resolve().parent.parent


def presets_folder() -> Path:
    """Where the presets are: in the installed package, or beside it in a checkout."""
    for folder in (_PACKAGE / "presets", _PACKAGE.parent / "presets"):
        if (folder / "models").is_dir():
            return folder / "models"
    raise AttncalcError("the presets are not where they were installed", "reinstall attncalc")


def preset_names() -> list[str]:
    """The names of all presets, sorted."""
    return sorted(file.stem for file in presets_folder().glob("*.yaml"))


def preset_text(name: str) -> str:
    """A preset's file as it is written. AttncalcError: there is none of that name."""
    if name not in preset_names():
        hint = did_you_mean(name, preset_names())
        raise AttncalcError(f"no preset named '{truncate(name)}'", f"{hint}'attncalc presets' lists them all")
    return (presets_folder() / f"{name}.yaml").read_text(encoding="utf-8")


def compiled_presets() -> dict[str, Any]:
    """The presets as the wheel has them in JSON (hatch_build.py); {} in a checkout."""
    try:
        content = (presets_folder().parent / "models.json").read_bytes()
    except OSError:
        return {}
    import json

    found: dict[str, Any] = json.loads(content)
    return found
