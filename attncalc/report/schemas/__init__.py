"""JSON Schemas of what each command prints with --json. `attncalc schema` prints them; `docs/schemas/` has copies.

`schema()` in the report of a command returns its schema. One with many keys is `SCHEMA` in a file of its name here.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

VERSIONS: dict[str, int] = {"compare": 2}
"""The version of each schema whose version is not 1. It grows if a script could break (docs/json.md): `{"fit": 2}`."""


def schema_name(name: str) -> str:
    """Return the name and version of a schema: 'attncalc.kv/1'."""
    return f"attncalc.{name}/{VERSIONS.get(name, 1)}"


@cache
def schema(name: str) -> dict[str, Any]:
    """Return the schema of what a command prints, or of one of MODES in `attncalc/cli/schema.py`."""
    if find_spec(f".{name}", __name__):
        defined: dict[str, Any] = import_module(f".{name}", __name__).SCHEMA
    else:
        defined = import_module(f"..{name}", __name__).schema()
    return defined
