"""The axes of a sweep: the options that take a list of values, under the names that they have in Python.

A row has the values of the axes that vary in this order, and so do the loops: a model changes last, a context first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..api.fit_options import DeploymentOptions, EngineOptions, TrafficOptions
from ..api.options import CacheDtypeOptions, PassOptions, SizeOptions, WhatIfOptions
from ..engines import ENGINES
from ..errors import AttncalcError, did_you_mean
from ..hardware import Gpu
from ..options import Option, options_of
from ..units import count, truncate
from .options import SweepOptions
from .values import Parse, read_values

MAX_CELLS = 10_000_000
"""The most cells of a sweep."""


def _axes(*kinds: Any) -> dict[str, Option]:
    """Return the options of TypedDicts that take a list of values; batch and context are the innermost."""
    found = {name: option for kind in kinds for name, option in options_of(kind).items() if option.is_axis}
    inner = {name: found.pop(name) for name in INNER}
    return {**found, **inner}


INNER = ("batch", "context")
"""The axes over which a compiled formula runs; all others make a new `Setting`."""
_MODEL = Option("MODEL", metavar="MODEL", help="A model, as in other commands.")
_FIT = (DeploymentOptions, EngineOptions)
AXES: dict[str, Option] = {
    "model": _MODEL,
    **_axes(WhatIfOptions, *_FIT, TrafficOptions, SizeOptions, PassOptions, CacheDtypeOptions),
}
"""Every axis, the outermost first."""
FLAGS = {name for name, option in options_of(SweepOptions).items() if not option.is_axis}
"""Options that are no axes: they take no value, or a list."""
PASS_AXES = ("phase", "past", "mask")
"""The axes that change only the figures of a pass."""
TRAFFIC_AXES = tuple(options_of(TrafficOptions))
"""The axes of the requests that users send."""
FIT_AXES = {name for kind in (*_FIT, TrafficOptions) for name in options_of(kind)} - {"engine", "tp"}
"""The axes that only `fit` has."""


class Axis(NamedTuple):
    """An axis.

    Attributes:
        name: Its name: 'kv_dtype'.
        values: Its values: numbers as ints, a GPU or a model as it was given.
    """

    name: str
    values: Sequence[Any]

    @property
    def varies(self) -> bool:
        """Whether it has more than one value."""
        return len(self.values) > 1


def read_axes(given: Mapping[str, Any]) -> tuple[Axis, ...]:
    """Return the axes that are given, the outermost first.

    Args:
        given: {name of an axis: its values}; None for one that is left out.

    Raises AttncalcError if a name is unknown, a value is not valid, or there are more than MAX_CELLS cells.
    """
    for name in given:
        if name not in AXES:
            raise AttncalcError(
                f"a sweep has no axis '{truncate(name)}'", f"{did_you_mean(name, AXES)}known: {', '.join(AXES)}"
            )
    axes = tuple(
        Axis(name, read_values(given[name], axis.name, _reader(name), is_number=is_number(name)))
        for name, axis in AXES.items()
        if given.get(name) is not None
    )
    cells = math.prod(len(axis.values) for axis in axes)
    if cells > MAX_CELLS:
        sizes = " x ".join(f"{count(len(axis.values))} {axis.name}" for axis in axes if axis.varies)
        raise AttncalcError(
            f"the sweep has {count(cells)} cells, and may have {count(MAX_CELLS)}", f"give fewer values than {sizes}"
        )
    return axes


def is_number(name: str) -> bool:
    """Return whether the values of an axis are whole numbers."""
    parser = AXES[name].parser
    return parser is not None and parser.is_number


def option_name(name: str) -> str:
    """Return the option of an axis, as '--kv-dtype', or of a flag."""
    return {**options_of(SweepOptions), **AXES}[name].name


def _reader(name: str) -> Parse:
    """Return what parses the text of one value: a number is parsed here, another text when its cells are computed."""
    parser = AXES[name].parser
    if parser is not None and parser.is_number:
        return parser.parse

    def read(text: str, option: str) -> str:
        if name == "engine" and text == "all":
            raise AttncalcError("--engine all is not one engine", f"list them: --engine {','.join(ENGINES)}")
        if name == "kv_dtype" and text == "auto":  # the engine's default
            return text
        if name == "gpu":
            from ..config.gpus import gpus_of

            gpus_of(text)
        value = parser.parse(text, option) if parser else text
        return value if isinstance(value, str) else text

    return read


def cell(value: Any, escape: Callable[[str], str]) -> Any:
    """Return a value of an axis as a row has it, with its text escaped."""
    text = shown(value)
    return escape(text) if isinstance(text, str) else text


def shown(value: Any) -> Any:
    """Return a value of an axis as a row has it: the name of a GPU or a model instead of the object."""
    if isinstance(value, Gpu):
        return value.name
    return (
        value
        if isinstance(value, str | int | float) and not hasattr(value, "spec")
        else getattr(value, "name", None) or str(value)
    )
