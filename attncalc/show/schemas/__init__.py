"""JSON Schemas of answers: how they are named, and how their YAML files are read (reading.py).

The keys that several answers have are in groups.yaml.
"""

# The version of each schema whose version is not 1. It grows if a script could break
# (docs/json.md): `{"fit": 2}`.
VERSIONS: dict[str, int] = {"compare": 2}


def schema_name(name: str) -> str:
    """Return the name and version of a schema: 'attncalc.kv/1'."""
    return f"attncalc.{name}/{VERSIONS.get(name, 1)}"
