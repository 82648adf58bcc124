"""`attncalc schema`: JSON Schemas of what commands print as JSON, and of the files that users
write.
"""

import json
from typing import Annotated, Any

import typer

from ...cli import options as o
from ...cli.command import command
from ...errors import AttncalcError, known_tip
from ...units import truncate
from .. import COMMANDS
from ..schemas import schema as schema_of

# {command: {the schema of another answer of it: what it describes}}.
MODES = {
    "kv": {
        "sizes": "what 'kv', 'flops' and 'memory --json' print for a list of contexts or batches"
    },
    "fit": {
        "vram": "what 'fit --json' prints without --gpu",
        "what_fits": "what 'fit --json' prints without MODEL, and with --gpu all",
        "diagnosis": "what 'fit --log --json' prints of a failed start of an unknown model",
    },
    "verify": {
        "record": "the JSON file that 'verify --record' writes",
        "records": "what 'verify --compare --json' prints",
    },
    "presets": {"families": "what 'presets families --json' prints"},
}
# {name of a schema of JSON: what it describes}.
SCHEMAS = {
    name: described
    for command in COMMANDS
    if command != "schema"  # whose answer is a schema
    for name, described in {
        command: f"what '{command} --json' prints",
        **MODES.get(command, {}),
    }.items()
}
# {name of the schema of a file that users write: what it describes}.
FILES = {
    "model": "a model file (YAML), as 'presets schema' prints",
    "gpu": "a GPU file (YAML), for 'gpus' and 'fit --gpu'",
}


@command("For example: attncalc schema kv -o kv.schema.json")
def schema(
    output: o.PlainOutputOptions,
    name: Annotated[
        str | None,
        typer.Argument(
            help="A command, or another schema of the list. Default: list all.",
            metavar="[SCHEMA]",
            autocompletion=lambda incomplete: [
                name for name in (*SCHEMAS, *FILES) if name.startswith(incomplete)
            ],
        ),
    ] = None,
) -> None:
    output.write(_list() if name is None else json.dumps(_schema(name), indent=2) + "\n")


def _list() -> str:
    known = SCHEMAS | FILES
    width = max(map(len, known))
    return "".join(f"{name:{width}}  {described}\n" for name, described in known.items())


def _schema(name: str) -> dict[str, Any]:
    """Return the schema of that name. Raises AttncalcError if there is none."""
    if name in SCHEMAS:
        return schema_of(name)
    if name == "model":
        from ...config.keys import schema as model_schema

        return model_schema()
    if name == "gpu":
        from ...config.gpus import schema as gpu_schema

        return gpu_schema()
    known = SCHEMAS | FILES
    raise AttncalcError(f"there is no schema '{truncate(name)}'", known_tip(name, known))
