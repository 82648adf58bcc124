"""`attncalc presets`: the built-in models and the supported model_types; show one model, or add one."""

from __future__ import annotations

from typing import Annotated

import typer

from ..config import load, preset_names, preset_text, to_model_file
from ..errors import AttncalcError
from ..report.presets import families_report, presets_report
from . import COMMANDS
from . import options as o
from .command import command_app

app = command_app()


@app.callback(invoke_without_command=True, help=COMMANDS["presets"])
def presets(context: typer.Context, output: o.ListOutputOptions) -> None:
    command = context.invoked_subcommand
    if command is None:
        _list(output)
    elif any(vars(output).values()):
        raise AttncalcError(
            f"options cannot come before '{command}'", f"write them after it: 'attncalc presets {command} ...'"
        )


@app.command("list", help="List the presets; the same as 'attncalc presets'.")
def list_presets(output: o.ListOutputOptions) -> None:
    _list(output)


@app.command(help="Print a preset's YAML, as a start for your own.")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The preset's name.")], output: o.PlainOutputOptions
) -> None:
    output.write(preset_text(name))


@app.command(help="Print the JSON Schema of a model's YAML. An editor can check your file with it.")
def schema(output: o.PlainOutputOptions) -> None:
    import json

    from ..config.keys import schema as json_schema

    output.write(json.dumps(json_schema(), indent=2) + "\n")


@app.command(help="Convert a config.json to a preset's YAML, to read and to change.")
def add(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A config.json, a folder with one, org/name on the hub, or -.")
    ],
    output: o.PlainOutputOptions,
    assume_grouped: o.AssumeGrouped = False,
) -> None:
    output.write(to_model_file(model, assume_grouped=assume_grouped))


@app.command(help="List the supported model_types of config.json. Each unsupported one is listed with the reason.")
def families(output: o.ListOutputOptions) -> None:
    from ..config.huggingface import supported_model_types, transformers_version, unsupported_model_types

    output.show(families_report(supported_model_types(), unsupported_model_types(), transformers_version()))


def _list(output: o.ListOutputOptions) -> None:
    output.show(presets_report([load(name) for name in preset_names()]))
