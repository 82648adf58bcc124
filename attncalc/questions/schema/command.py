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
from .. import QUESTIONS
from ..schemas import further_answers
from ..schemas import schema as schema_of

# {name of the schema of a file that users write: what it describes}.
FILES = {
    "model": "a model file (YAML), as 'presets schema' prints",
    "gpu": "a GPU file (YAML), for 'gpus' and 'fit --gpu'",
}


@command()
def schema(
    output: o.PlainOutputOptions,
    name: Annotated[
        str | None,
        typer.Argument(
            help="A command, or another schema of the list. Default: list all.",
            metavar="[SCHEMA]",
            autocompletion=lambda incomplete: [
                name for name in (*schemas(), *FILES) if name.startswith(incomplete)
            ],
        ),
    ] = None,
) -> None:
    output.write(_list() if name is None else json.dumps(_schema(name), indent=2) + "\n")


def schemas() -> dict[str, str]:
    """Return {name of a schema of JSON: what it describes}."""
    found: dict[str, str] = {}
    for question in QUESTIONS:
        if question != "schema":  # whose answer is a schema
            found[question] = f"what '{question} --json' prints"
            found |= further_answers(question)
    return found


def _list() -> str:
    known = schemas() | FILES
    width = max(map(len, known))
    return "".join(f"{name:{width}}  {described}\n" for name, described in known.items())


def _schema(name: str) -> dict[str, Any]:
    """Return the schema of that name. Raises AttncalcError if there is none."""
    if name in schemas():
        return schema_of(name)
    if name == "model":
        from ...config.keys import schema as model_schema

        return model_schema()
    if name == "gpu":
        from ...config.gpus import schema as gpu_schema

        return gpu_schema()
    known = schemas() | FILES
    raise AttncalcError(f"there is no schema '{truncate(name)}'", known_tip(name, known))
