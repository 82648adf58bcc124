"""What a shell completes as the value of an option or argument. It is imported only when a shell asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from typer._click.shell_completion import CompletionItem

from ..config.gpus import gpu_names
from ..config.presets import preset_names
from ..engines import ENGINES
from ..options import Option
from ..report.formats import FORMATS, ROW_FORMATS
from ..report.glossary import TERMS
from ..report.gpus import SORT_KEYS
from ..sweeps.columns import COSTS, OF_FIT, TRAIN
from ..units import DTYPES

COLUMNS = dict.fromkeys((*COSTS, *OF_FIT, *TRAIN))
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
    "--columns": lambda: COLUMNS,
}
"""{what stands for a value in help, or an option's name: its values}."""


def values_of(param: Any, declared: Option | None) -> Callable[[Any, str], list[CompletionItem]] | None:
    """Return the function that completes a parameter's value, also the last one of a list: 'bf16,fp'; or None.

    `declared` is None for an argument, and for an option of the command line only.
    """
    keys = (*param.opts, (param.metavar or "").strip("[].,"))
    known = declared.parser.known if declared and declared.parser else ()
    names = (lambda: known) if known else next((VALUES[key] for key in keys if key in VALUES), None)
    if names is None:
        return None

    def complete(context: Any, incomplete: str) -> list[CompletionItem]:
        start, comma, word = incomplete.rpartition(",")
        return [CompletionItem(f"{start}{comma}{name}") for name in names() if name.startswith(word.lower())]

    return complete
