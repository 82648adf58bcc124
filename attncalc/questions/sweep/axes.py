"""The axes of a sweep: the options that take a list of values, under the names that they have in
Python.

A row has the values of the axes that vary in this order, and so do the loops: a model changes last,
a context first.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypedDict

from ...engines import ENGINES
from ...errors import AttncalcError, known_tip
from ...options import Option, as_text, options_of
from ...ranges import parse_counts
from ...records import NamedTuple
from ...units import count, truncate
from ..fit.options import DeploymentOptions, EngineOptions, TrafficOptions
from ..options import (
    CacheDtypeOptions,
    PassOptions,
    ReadOptions,
    SizeOptions,
    TrainingOptions,
    WhatIfOptions,
)
from .options import RowOptions
from .others import OTHERS

# The most cells of a sweep.
MAX_CELLS = 10_000_000
# The most values of an axis.
MAX_VALUES = 100_000


class OwnOptions(
    WhatIfOptions,
    ReadOptions,
    SizeOptions,
    PassOptions,
    TrainingOptions,
    TrafficOptions,
    CacheDtypeOptions,
    DeploymentOptions,
    EngineOptions,
    total=False,
):
    """The options of a model's costs and of `fit`."""


def _sweep_options() -> Any:
    """Return a TypedDict of all options: the own ones, those of other questions, those of rows."""
    of_others = [other.axes for other in OTHERS.values()]
    flags = [other.flag for other in OTHERS.values()]
    annotations: dict[str, Any] = {}
    for kind in (OwnOptions, *of_others, *flags, RowOptions):
        annotations |= kind.__annotations__
    typed_dict: Any = TypedDict
    return typed_dict("SweepOptions", annotations, total=False)


# The options of `attncalc sweep` besides the models: those of other commands, most of which take
# lists.
if TYPE_CHECKING:
    SweepOptions = dict[str, Any]
else:
    SweepOptions = _sweep_options()
# The axes over which a compiled formula runs; all others make a new setting.
INNER = ("batch", "context")
# The axes that change only the figures of a pass.
PASS_AXES = (*options_of(PassOptions), *options_of(TrainingOptions))
# The axes of the requests that users send.
TRAFFIC_AXES = tuple(options_of(TrafficOptions))
_FIT = (DeploymentOptions, EngineOptions, TrafficOptions)
# The axes that only `fit` has.
FIT_AXES = {*chain(*map(options_of, _FIT))} - {"engine", "tp"}
# {an option that only the rows of another question have: that question}.
OF_OTHERS = {
    name: question
    for question, other in OTHERS.items()
    for name in options_of(other.axes).keys() - options_of(OwnOptions).keys()
}


def _axes() -> dict[str, Option]:
    of_pass = (SizeOptions, PassOptions, TrainingOptions, CacheDtypeOptions)
    of_others = [other.axes for other in OTHERS.values()]
    kinds: tuple[Any, ...] = (WhatIfOptions, *_FIT, *of_pass, *of_others)
    found = {"model": Option("MODEL", metavar="MODEL", help="A model, as in other commands.")}
    for kind in kinds:
        for name, option in options_of(kind).items():
            if option.is_axis:
                found[name] = option
    for name in INNER:
        found[name] = found.pop(name)  # the last ones
    return found


# Every axis, the outermost first.
AXES = _axes()
# Options that are no axes: they take no value, or a text that may have commas. A list in Python has
# several values.
FLAGS = {name: option for name, option in options_of(SweepOptions).items() if not option.is_axis}


class Axis(NamedTuple):
    name: str  # its name: 'kv_dtype'
    values: Sequence[Any]  # its values: numbers as ints, a GPU or a model as it was given

    @property
    def size(self) -> int:
        """How many values it has."""
        return len(self.values)

    @property
    def varies(self) -> bool:
        """Whether it has more than one value."""
        return len(self.values) > 1


def read_axes(given: Mapping[str, Any], question: str = "") -> tuple[Axis, ...]:
    """Return an axis for each option that is given, with its values read and checked; the
    outermost is first.

    Args:
        given: {name of an option: its values}, None for one that is left out.
        question: Another question whose rows the sweep has: its own options are axes too. '' if
            the rows have the figures of a model, or of `fit`.

    Raises AttncalcError if a name is unknown, a value is not valid, or there are more than
    MAX_CELLS cells.
    """
    for name in given:
        if name not in {**FLAGS, **AXES}:
            raise AttncalcError(f"a sweep has no axis '{truncate(name)}'", known_tip(name, AXES))
    options = {**FLAGS, **AXES}
    if question:
        other = OTHERS[question]
        for name in other.own_axes:
            options[name] = options_of(other.options)[name]
    axes = []
    for name, option in options.items():
        if given.get(name) is not None:
            axes.append(Axis(name, _values(given[name], name, option)))
    cells = math.prod(axis.size for axis in axes)
    if cells > MAX_CELLS:
        sizes = " x ".join(f"{count(axis.size)} {axis.name}" for axis in axes if axis.varies)
        raise AttncalcError(
            f"the sweep has {count(cells)} cells, and may have {count(MAX_CELLS)}",
            f"give fewer values than {sizes}",
        )
    return tuple(axes)


def is_number(name: str) -> bool:
    """Return whether the values of an axis are whole numbers."""
    parser = AXES[name].parser
    return parser is not None and parser.is_number


def option_name(name: str) -> str:
    """Return the option of an axis, as '--kv-dtype', or of a flag."""
    return {**options_of(SweepOptions), **AXES}[name].name


def _values(given: Any, name: str, axis: Option) -> Sequence[Any]:
    """Return the values of an axis, each once.

    Args:
        given: A value, a text with a list of values, or a list with one value in each item. A text
            with numbers may have ranges: '8:64:8' is 8, 16, ..., 64 and '1K:128K:x2' is 1K, 2K,
            ..., 128K.

    Raises AttncalcError if a value is not valid, or there are none or too many.
    """
    option = axis.name
    if isinstance(given, str):
        values = _values_of_text(given, name, axis)
    elif isinstance(given, Iterable) and not isinstance(given, Mapping | os.PathLike):
        values = [_value(item, name, axis) for item in islice(given, MAX_VALUES + 1)]
    else:
        values = [_value(given, name, axis)]
    if len(values) > MAX_VALUES:
        raise AttncalcError(
            f"{option} has more than {count(MAX_VALUES)} values", "give fewer, or larger steps"
        )
    if not values:
        raise AttncalcError(f"{option} has no values", f"give at least one, or leave {option} out")
    if all(isinstance(value, str | int) for value in values):
        _check_once(values, option)
    return values


def _check_once(values: Sequence[Any], option: str) -> None:
    """Raise AttncalcError if a value is in the list twice."""
    seen: set[Any] = set()
    for value in values:
        if value in seen:
            raise AttncalcError(
                f"{option}: {truncate(str(value))} is in the list twice", "give it once"
            )
        seen.add(value)


def _values_of_text(text: str, name: str, axis: Option) -> list[Any]:
    """Return the values in a text: commas separate them."""
    if axis.parser and axis.parser.is_number:
        return [*parse_counts(text, axis.name, limit=MAX_VALUES, parse=axis.parser.parse)]
    values: list[Any] = []
    for part in text.split(","):
        if name == "gpu" and part.strip() == "all":
            from ...config.gpus import gpu_names

            values += gpu_names()
        else:
            values.append(_checked(part.strip(), text, name, axis))
    return values


def _value(value: Any, name: str, axis: Option) -> Any:
    """Return one value, whatever characters are in it."""
    if axis.parser and (axis.parser.is_number or name in FLAGS):
        text = as_text(value)
        parsed = axis.parser.parse(text, axis.name)
        if axis.parser.is_number:
            return parsed
        return text
    if isinstance(value, str):
        return _checked(value.strip(), value, name, axis)
    return value


def _checked(text: str, part: str, name: str, axis: Option) -> str:
    """Return the text of one value, which is parsed again when its cells are computed."""
    option = axis.name
    parser = axis.parser
    if not text:
        raise AttncalcError(
            f"{option}: '{truncate(part)}' has an empty value", "separate values by one comma: a,b"
        )
    if name == "engine" and text == "all":
        raise AttncalcError(
            "--engine all is not one engine", f"list them: --engine {','.join(ENGINES)}"
        )
    if name == "kv_dtype" and text == "auto":  # the engine's default
        return text
    if name == "gpu":
        from ...config.gpus import gpus_of

        gpus_of(text)
    value = parser.parse(text, option) if parser else text
    if isinstance(value, str):
        return value
    return text


def cell(value: Any, escape: Callable[[str], str]) -> Any:
    """Return a value of an axis as a row has it, with its text escaped."""
    text = shown(value)
    if isinstance(text, str):
        return escape(text)
    return text


def shown(value: Any) -> Any:
    """Return a value of an axis as a row has it: the name of a GPU or a model instead of the
    object.
    """
    if isinstance(value, str | int | float):
        return value
    return getattr(value, "name", None) or str(value)
