"""JSON Schemas of answers: how they are named, and how their YAML files are read (reading.py).

The keys that several answers have are in groups.yaml.
"""


def schema_name(name: str, version: int = 1) -> str:
    """Return the name of a schema with its version: 'attncalc.kv/1'.

    The version grows if a script could break (docs/output.md). It is `version` of the schema's YAML
    file, and of the reports that print it.
    """
    return f"attncalc.{name}/{version}"
