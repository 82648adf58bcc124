"""`attncalc presets`: the built-in models and the supported model_types; show one model, or add
one.
"""

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ...cli import options as o
from ...cli.command import Group, command_app
from ...config import load, preset_text, to_model_file
from ...config.presets import Preset
from ...config.presets import presets as all_presets
from ...errors import AttncalcError, did_you_mean
from ...units import truncate
from ..options import ModelOptions
from .report import Listed, attention_words, families_report, presets_report


class _Presets(Group):
    """The subcommands. Without one of them, the arguments are those of `list`: `attncalc presets
    qwen --json`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        first = args[0] if args else ""
        if first in self.commands or first in ctx.help_option_names or ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        command = next((arg for arg in args if arg in self.commands), None)
        if command is not None:
            raise AttncalcError(
                f"options cannot come before '{command}'",
                f"write them after it: 'attncalc presets {command} ...'",
            )
        return super().parse_args(ctx, ["list", *args])


presets = command_app(cls=_Presets)

Full = Annotated[bool, typer.Option("--full", help="Show the figures of every preset.")]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[WORD]...",
        help="List those with each WORD in the name, title or repository, or with that attention, "
        "as mla or hybrid.",
    ),
]


@presets.callback()
def without_subcommand() -> None:
    pass


@presets.command("list", help="List the presets; the same as 'attncalc presets'.")
def list_presets(output: o.AnswerOptions, words: Words = None, full: Full = False) -> None:
    found = _matching(words or [])
    listed = [Listed(load(preset.name), preset.family, preset.repositories) for preset in found]
    names_only = not (words or full)
    output.show(
        presets_report(listed, words=words or [], names_only=names_only, one_per_line=_is_piped())
    )


def _is_piped() -> bool:
    """Return whether the names go to a program or a file, which reads lines."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # it is closed, or no file
        return not os.isatty(sys.stdout.fileno())
    return False


def _matching(words: list[str]) -> list[Preset]:
    """Return the presets that have each of the words, in a name or as their attention: 'mla',
    'hybrid'.

    Raises AttncalcError if there are none.
    """
    if not words:
        return [preset for preset in all_presets() if preset.is_listed]
    families = [preset.family for preset in all_presets()]

    def has(preset: Preset, word: str) -> bool:
        if preset.matches(word):
            return True
        # a family's presets are found without reading all files
        is_family = families.count(word.lower()) > 1
        return not is_family and word.lower() in attention_words(load(preset.name))

    found = [preset for preset in all_presets() if all(has(preset, word) for word in words)]
    if found:
        return found
    known = {name for preset in all_presets() for name in (preset.family, preset.name)}
    hint = did_you_mean(words[0], known) if len(words) == 1 else ""
    wanted = " and ".join(f"'{truncate(word)}'" for word in words)
    raise AttncalcError(f"no preset with {wanted}", f"{hint}'attncalc presets' lists them all")


@presets.command(help="Print a preset's YAML, as a start for your own.")
def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A preset's name, or its repository.")
    ],
    output: o.PlainOutputOptions,
) -> None:
    output.write(preset_text(name))


@presets.command(
    help="Print the JSON Schema of a model's YAML. An editor can check your file with it."
)
def schema(output: o.PlainOutputOptions) -> None:
    import json

    from ...config.keys import schema as json_schema

    output.write(json.dumps(json_schema(), indent=2) + "\n")


@presets.command(help="Convert a config.json or .gguf file to a preset's YAML.")
def add(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A config.json or .gguf file, a folder with one, org/name, or -."
        ),
    ],
    output: o.PlainOutputOptions,
    assume_grouped: Annotated[bool, o.declared(ModelOptions, "assume_grouped")] = False,
) -> None:
    text = to_model_file(model, assume_grouped=assume_grouped)
    output.write(f"{_schema_line(output.output)}{text}")


def _schema_line(file: Path | None) -> str:
    """Return the first line of a preset of this repository, by which an editor finds the schema of
    its keys; '' for a file elsewhere.
    """
    if file is not None and (file.absolute().parent.parent / "model.schema.json").is_file():
        return "# yaml-language-server: $schema=../model.schema.json\n"
    return ""


@presets.command(
    help="List the supported model_types of config.json. Each unsupported one is listed with the "
    "reason."
)
def families(output: o.AnswerOptions) -> None:
    from ...config.huggingface import (
        supported_model_types,
        transformers_version,
        unsupported_model_types,
    )

    output.show(
        families_report(supported_model_types(), unsupported_model_types(), transformers_version())
    )
