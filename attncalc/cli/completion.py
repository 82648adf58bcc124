"""What a shell completes as the value of an option or argument. It is imported only when a shell
asks.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from typer._click.shell_completion import CompletionItem

from ..config.gpus import gpu_names
from ..config.presets import preset_names
from ..engines import ENGINES
from ..options import Option
from ..questions.schemas import schema
from ..show.formats import FORMATS, ROW_FORMATS
from ..units import DTYPES

Values = Mapping[str, Callable[[], Iterable[str]]]
# {what stands for a value in help, or an option's name: its values}; a command may have further
# ones.
VALUES: Values = {
    "MODEL": preset_names,
    "GPU": gpu_names,
    "DTYPE": lambda: DTYPES,
    "ENGINE": lambda: ENGINES,
    "FORMAT": lambda: dict.fromkeys((*FORMATS, *ROW_FORMATS)),
    "--gpu": lambda: (*gpu_names(), "all", "local"),
    "NAME": preset_names,
}


def _figures(command: str) -> list[str]:
    """Return the names for --get and --fail-if of a command."""
    keys = schema({"list": "presets"}.get(command, command))["properties"]
    row = keys["layers"]["items"]["properties"] if "rows" in keys else {}
    figures = (row or keys)["results"]["items"]
    facts = ("name", "model", "gpu", "verdict", "max_context")
    known = {*row, *keys}
    names = figures.get("anyOf", [figures])[0]["properties"]["name"]["enum"]
    return [*(name for name in facts if name in known), *names]


def values_of(
    param: Any, declared: Option | None, command: str, own: Values
) -> Callable[[Any, str], list[CompletionItem]] | None:
    """Return the function that completes a parameter's value, also the last one of a list:
    'bf16,fp'; or None.

    `declared` is None for an argument, and for an option of the command line only. `own` has the
    values that only this command completes, as VALUES has those of all.
    """
    keys = (*param.opts, (param.metavar or "").strip("[].,"))
    names = _names_of(keys, declared, command, {**VALUES, **own})
    if names is None:
        return None

    def complete(context: Any, incomplete: str) -> list[CompletionItem]:
        start, comma, word = incomplete.rpartition(",")
        return [
            CompletionItem(f"{start}{comma}{name}")
            for name in names()
            if name.startswith(word.lower())
        ]

    return complete


def _names_of(
    keys: Sequence[str], declared: Option | None, command: str, values: Values
) -> Callable[[], Iterable[str]] | None:
    if {"--get", "--fail-if"} & {*keys} and command != "sweep":
        return partial(_figures, command)
    if declared and declared.parser and declared.parser.known:
        known = declared.parser.known
        return lambda: known
    return next((values[key] for key in keys if key in values), None)
