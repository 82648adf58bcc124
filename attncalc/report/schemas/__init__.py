"""JSON Schemas of what each command prints with --json, one file per command.

`attncalc schema COMMAND` prints one; `docs/schemas/` has a copy of each.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

SCHEMAS = {
    "kv": "what 'kv --json' prints",
    "params": "what 'params --json' prints",
    "flops": "what 'flops --json' prints",
    "memory": "what 'memory --json' prints",
    "compare": "what 'compare --json' prints",
    "fit": "what 'fit --json' prints",
    "sweep": "what 'sweep --json' prints",
    "verify": "what 'verify --json' prints",
    "record": "the JSON file that 'verify --record' writes",
    "records": "what 'verify --compare --json' prints",
    "gpus": "what 'gpus --json' prints",
    "presets": "what 'presets --json' prints",
    "families": "what 'presets families --json' prints",
}
"""{name of a schema: what it describes}. The file of the same name defines it."""

VERSIONS = dict.fromkeys(SCHEMAS, 1)
"""The version of each schema. It grows if a script could break (docs/json.md): `| {"fit": 2}`."""


def schema_name(name: str) -> str:
    """Return the name and version of a schema: 'attncalc.kv/1'."""
    return f"attncalc.{name}/{VERSIONS[name]}"


def schema(name: str) -> dict[str, Any]:
    """Return a schema by its name in SCHEMAS."""
    defined: dict[str, Any] = import_module(f".{name}", __name__).SCHEMA
    return defined
