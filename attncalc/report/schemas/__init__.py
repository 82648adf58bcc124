"""JSON Schemas of what each command prints with --json. `attncalc schema` prints them;
`docs/schemas/` has copies.

Each is a YAML file here, and groups.yaml has the keys that several have; reading.py explains how to
write one.
"""

from functools import cache
from typing import Any

# The version of each schema whose version is not 1. It grows if a script could break
# (docs/json.md): `{"fit": 2}`.
VERSIONS: dict[str, int] = {"compare": 2}


def schema_name(name: str) -> str:
    """Return the name and version of a schema: 'attncalc.kv/1'."""
    return f"attncalc.{name}/{VERSIONS.get(name, 1)}"


@cache
def schema(name: str) -> dict[str, Any]:
    """Return the schema of what a command prints, or of one of MODES in
    `attncalc/cli/schema.py`.
    """
    from .reading import read_schema

    return read_schema(name, schema_name(name))
