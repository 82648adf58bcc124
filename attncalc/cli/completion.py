"""What a shell completes as the value of an option or argument. It is imported only when a shell
asks.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from typer._click.shell_completion import CompletionItem

from ..config.gpus import gpu_names
from ..config.presets import preset_names
from ..engines import ENGINES
from ..options import Option
from ..questions.explain.glossary import TERMS
from ..questions.gpus.report import SORT_KEYS
from ..questions.schemas import schema
from ..questions.sweep.columns import COSTS, OF_FIT, TRAIN
from ..show.formats import FORMATS, ROW_FORMATS
from ..units import DTYPES

COLUMNS = dict.fromkeys((*COSTS, *OF_FIT, *TRAIN))
# {what stands for a value in help, or an option's name: its values}.
VALUES: dict[str, Callable[[], Iterable[str]]] = {
    "MODEL": preset_names,
    "GPU": gpu_names,
    "DTYPE": lambda: DTYPES,
    "ENGINE": lambda: ENGINES,
    "FORMAT": lambda: dict.fromkeys((*FORMATS, *ROW_FORMATS)),
    "TERM": lambda: TERMS,
    "FIGURE": lambda: SORT_KEYS,
    "--gpu": lambda: (*gpu_names(), "all", "local"),
    "COLUMN": lambda: COLUMNS,
    "NAME": preset_names,
    "--columns": lambda: COLUMNS,
}


def _figures(command: str) -> list[str]:
    """Return the names for --get and --fail-if of a command."""
    keys = schema({"list": "presets"}.get(command, command))["properties"]
    row = keys["layers"]["items"]["properties"] if "rows" in keys else {}
    figures = (row or keys)["results"]["items"]
    facts = [
        name
        for name in ("name", "model", "gpu", "verdict", "max_context")
        if name in row or name in keys
    ]
    return [*facts, *figures.get("anyOf", [figures])[0]["properties"]["name"]["enum"]]


def values_of(
    param: Any, declared: Option | None, command: str
) -> Callable[[Any, str], list[CompletionItem]] | None:
    """Return the function that completes a parameter's value, also the last one of a list:
    'bf16,fp'; or None.

    `declared` is None for an argument, and for an option of the command line only.
    """
    keys = (*param.opts, (param.metavar or "").strip("[].,"))
    known = declared.parser.known if declared and declared.parser else ()
    of_figures = {"--get", "--fail-if"} & {*keys} and command != "sweep"
    names = (
        partial(_figures, command)
        if of_figures
        else (lambda: known)
        if known
        else next((VALUES[key] for key in keys if key in VALUES), None)
    )
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
