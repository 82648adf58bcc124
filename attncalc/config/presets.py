"""The built-in models: their names and files, and the repositories whose models they are."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import AttncalcError, did_you_mean
from ..units import truncate
from .data_files import compiled_file, file_names, presets_folder

if TYPE_CHECKING:
    from pathlib import Path

_REPOSITORY = r"(?a)huggingface\.co/([\w.-]+/[\w.-]+)"
_TITLE = r"(?m)^title: *(.+)$"


class Preset(NamedTuple):
    """What a built-in model can be found by.

    Attributes:
        name: The name of its file: 'qwen3-32b'.
        title: Its title: 'Qwen3 32B'.
        repositories: The repositories that its sources name, on the Hugging Face hub: 'Qwen/Qwen3-32B'.
    """

    name: str
    title: str
    repositories: tuple[str, ...]

    @property
    def family(self) -> str:
        """The letters that its name starts with: 'qwen' for 'qwen2.5-7b' and 'qwen3-32b'; 't5' for 't5-base'."""
        letters = re.match(r"[a-z]\d+|[a-z]+", self.name)
        return letters[0] if letters else self.name

    def matches(self, word: str) -> bool:
        """Return whether the name, the title or a repository contains `word`, in any case."""
        return any(word.lower() in text.lower() for text in (self.name, self.title, *self.repositories))


def _folder() -> Path:
    return presets_folder() / "models"


def preset_names() -> list[str]:
    """Return the sorted names of all presets."""
    return list(file_names(_folder()))


def preset_text(name: str) -> str:
    """Return the YAML text of a preset, by its name or a repository.

    Raises AttncalcError if there is no such preset.
    """
    found = preset_of(name)
    if found is None:
        hint = did_you_mean(name, preset_names())
        raise AttncalcError(f"no preset named '{truncate(name)}'", f"{hint}'attncalc presets' lists them all")
    return _file(found).read_text(encoding="utf-8")


def compiled_preset(name: str) -> dict[str, Any] | None:
    """Return a preset's data from the wheel's JSON, or None in a checkout."""
    return compiled_file(_file(name))


@cache
def presets() -> tuple[Preset, ...]:
    """Return all presets, by name and size. It reads their files as text, without parsing them: 2 ms for 80 presets."""
    return tuple(
        _described(name, _file(name).read_text(encoding="utf-8")) for name in sorted(preset_names(), key=_by_size)
    )


def preset_of(name: str) -> str | None:
    """Return the preset that `name` means, or None.

    Args:
        name: A preset's name, a repository that a preset's sources name ('Qwen/Qwen3-32B'), or the repository's last
            part ('Qwen3-32B'). The case of a repository does not matter.
    """
    if name in preset_names():
        return name
    found = _by_repository().get(name.lower())
    return found[0] if found else None


def repository_of(name: str) -> str | None:
    """Return the repository that presets' sources name and whose last part is `name` in any case, or None.

    For example 'meta-llama/Llama-3.1-8B' for 'llama-3.1-8b'.
    """
    if name in preset_names():
        return None
    found = _by_repository().get(name.lower()) if "/" not in name else None
    return found[1] if found else None


@cache
def _by_repository() -> dict[str, tuple[str, str]]:
    """Return {repository, or its last part, in lower case: (name of the preset, repository)}."""
    pairs = [(repository, (preset.name, repository)) for preset in presets() for repository in preset.repositories]
    by_part = {repository.lower().partition("/")[2]: found for repository, found in pairs}
    return by_part | {repository.lower(): found for repository, found in pairs}


def _by_size(name: str) -> list[str | float]:
    """Return a key by which 'llama2-7b' comes before 'llama2-70b', and 'qwen3-32b' before 'qwen3.5-397b'."""
    return [float(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+(?:\.\d+)?)", name))]


def _described(name: str, text: str) -> Preset:
    title = re.search(_TITLE, text)
    repositories = tuple(dict.fromkeys(re.findall(_REPOSITORY, text)))
    return Preset(name, title[1].strip("\"'") if title else name, repositories)


def _file(name: str) -> Path:
    return _folder() / f"{name}.yaml"
