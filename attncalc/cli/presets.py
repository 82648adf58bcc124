"""`attncalc presets`: the models that are here, and the families that are read; show one, or add one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..config import load, preset_names, preset_text, to_model_file
from ..errors import AttncalcError
from ..report.presets import families_report, presets_report
from . import COMMANDS, command_app
from . import options as o

app = command_app()


@app.callback(invoke_without_command=True, help=COMMANDS["presets"])
def presets(
    context: typer.Context,
    format: o.Format = None,
    json: o.Json = False,
    output: o.Output = None,
    force: o.Force = False,
) -> None:
    if context.invoked_subcommand is None:
        _list(form=format, as_json=json, output=output, force=force)
    elif format or json or output or force:
        name = context.invoked_subcommand
        raise AttncalcError(f"options before '{name}'", f"write them after it: 'attncalc presets {name} ...'")


@app.command("list", help="List them all (the same as no command).")
def list_presets(
    format: o.Format = None, json: o.Json = False, output: o.Output = None, force: o.Force = False
) -> None:
    _list(form=format, as_json=json, output=output, force=force)


@app.command(help="Print a preset's YAML: the file to start your own from.")
def show(
    name: Annotated[str, typer.Argument(help="The preset's name.")],
    output: o.PlainOutput = None,
    force: o.Force = False,
) -> None:
    _print(preset_text(name), output, force)


@app.command(help="Print the JSON Schema of a model's YAML, for an editor.")
def schema(output: o.PlainOutput = None, force: o.Force = False) -> None:
    import json

    from ..config.keys import schema as written

    _print(json.dumps(written(), indent=2) + "\n", output, force)


@app.command(help="Write a model's config.json as a preset's YAML, to read, keep and change.")
def add(
    model: Annotated[str, typer.Argument(help="A config.json, a folder with one, org/name on the hub, or -.")],
    output: o.PlainOutput = None,
    assume_grouped: o.AssumeGrouped = False,
    force: o.Force = False,
) -> None:
    _print(to_model_file(model, assume_grouped=assume_grouped), output, force)


@app.command(help="List the model_types of a config.json: those that are read, and those that are refused, and why.")
def families(format: o.Format = None, json: o.Json = False, output: o.Output = None, force: o.Force = False) -> None:
    from ..config.huggingface import supported_model_types, transformers_version, unsupported_model_types

    report = families_report(supported_model_types(), unsupported_model_types(), transformers_version())
    o.show(report, form=format, as_json=json, output=output, force=force)


def _print(text: str, output: Path | None, force: bool) -> None:
    from ..report.write import deliver

    deliver(text, output, force=force)


def _list(**how: Any) -> None:
    o.show(presets_report([load(name) for name in preset_names()]), **how)
