"""The wheel's generated files: the presets, the GPUs and the families' rules as JSON, which Python reads ten
times faster than YAML.

An installed command answers a preset or a config.json without importing a YAML parser, a fifth of its
start. The YAML files are shipped too, to be shown and learned from; a checkout has only them.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import yaml
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds models.json and gpus.json, {name: data}, and families.json, {model_type: rules}; an editable install
    reads YAML.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        presets = {file.stem: table(file) for file in tables(self.root, "presets", "models")}
        gpus = {file.stem: table(file) for file in tables(self.root, "presets", "gpus")}
        rules = [table(file) for file in tables(self.root, "attncalc", "config", "huggingface")]
        made = {
            "presets/models.json": presets,
            "presets/gpus.json": gpus,
            "config/huggingface/families.json": {name: own for part in rules for name, own in part.items()},
        }
        folder = Path(tempfile.mkdtemp())
        for place, content in made.items():
            handle = folder / Path(place).name
            handle.write_text(json.dumps(content), encoding="utf-8")
            build_data["force_include"][str(handle)] = f"attncalc/{place}"


def tables(*folder: str) -> list[Path]:
    """The YAML files of a folder, in the order in which they are read."""
    return sorted(Path(*folder).glob("*.yaml"))


def table(file: Path) -> Any:
    """What a YAML file says."""
    return yaml.safe_load(file.read_text(encoding="utf-8"))
