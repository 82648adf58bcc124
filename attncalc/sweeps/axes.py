"""The axes of a sweep: the options that take a list of values, under the names that they have in Python.

A row has the values of the axes that vary in this order, and so do the loops: a model changes last, a context first.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..api.fit_options import DeploymentOptions, EngineOptions, count_or_zero
from ..attention import Variant
from ..engines import ENGINES, engine_defaults
from ..errors import AttncalcError, did_you_mean
from ..hardware import Gpu
from ..units import count, dtype, parse_count, truncate
from ..workload import Mask
from .values import Parse, read_values

MAX_CELLS = 10_000_000
"""The most cells of a sweep."""


class Kind(NamedTuple):
    """What the values of an axis are.

    Attributes:
        parse: Parses the text of one value.
        is_number: Whether a colon makes a range.
    """

    parse: Parse
    is_number: bool = False


def _text(text: str, option: str) -> str:
    return text


def _attention(text: str, option: str) -> str:
    Variant.parse(text)
    return text


def _engine(text: str, option: str) -> str:
    if text == "all":
        raise AttncalcError("--engine all is not one engine", f"list them: --engine {','.join(ENGINES)}")
    engine_defaults(text)
    return text


def _dtype(text: str, option: str) -> str:
    return text if text == "auto" else dtype(text).name


def _compute_dtype(text: str, option: str) -> str:
    return dtype(text, compute=True).name


def _phase(text: str, option: str) -> str:
    if text not in ("prefill", "decode", "train"):
        raise AttncalcError(f"there is no phase '{truncate(text)}'", "known: prefill, decode, train")
    return text


def _mask(text: str, option: str) -> str:
    return str(Mask.parse(text))


def _gpu(text: str, option: str) -> str:
    from ..config.gpus import gpus_of

    gpus_of(text)
    return text


FLAGS = {
    name
    for options in (DeploymentOptions, EngineOptions)
    for name, annotation in options.__annotations__.items()
    if annotation is bool or name in ("prefix_caching", "tensor_split")
}
"""Options that are no axes: they take no value, or a list."""
_COUNT = Kind(parse_count, is_number=True)
_COUNT_OR_ZERO = Kind(count_or_zero, is_number=True)
_DTYPE = Kind(_dtype)


def _kinds(options: Any) -> dict[str, Kind]:
    """Return the axes of a TypedDict of options: those that take one value, so no flags and no lists."""
    kinds = {}
    for name, annotation in options.__annotations__.items():
        parse = next((part for part in getattr(annotation, "__metadata__", ()) if inspect.isfunction(part)), None)
        if name in FLAGS:
            continue
        is_number = parse is not None and parse.__name__ in (
            "parse_count",
            "parse_bytes",
            "count_or_zero",
            "bytes_or_zero",
        )
        kinds[name] = Kind(parse if parse and is_number else _text, is_number)
    return kinds


AXES: dict[str, Kind] = {
    "model": Kind(_text),
    "attention": Kind(_attention),
    **_kinds(DeploymentOptions),
    **_kinds(EngineOptions),
    "engine": Kind(_engine),
    "gpu": Kind(_gpu),
    "prompt": _COUNT,
    "output": _COUNT_OR_ZERO,
    "shared_prefix": _COUNT_OR_ZERO,
    "source_context": _COUNT,
    "phase": Kind(_phase),
    "past": _COUNT_OR_ZERO,
    "mask": Kind(_mask),
    "dtype": Kind(_compute_dtype),
    "weights_dtype": _DTYPE,
    "kv_dtype": _DTYPE,
    "kv_dtype_k": _DTYPE,
    "kv_dtype_v": _DTYPE,
    "mamba_ssm_cache_dtype": _DTYPE,
    "batch": _COUNT,
    "context": _COUNT,
}
"""Every axis, the outermost first."""
PASS_AXES = ("phase", "past", "mask")
"""The axes that change only the figures of a pass."""
TRAFFIC_AXES = ("prompt", "output", "shared_prefix")
"""The axes of the requests that users send."""
FIT_AXES = {*DeploymentOptions.__annotations__, *EngineOptions.__annotations__, *TRAFFIC_AXES} - {"engine", "tp"}
"""The axes that only `fit` has."""
INNER = ("batch", "context")
"""The axes over which a compiled formula runs; all others make a new `Setting`."""


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
        Axis(name, read_values(given[name], option(name), kind.parse, is_number=kind.is_number))
        for name, kind in AXES.items()
        if given.get(name) is not None
    )
    cells = math.prod(len(axis.values) for axis in axes)
    if cells > MAX_CELLS:
        sizes = " x ".join(f"{count(len(axis.values))} {axis.name}" for axis in axes if axis.varies)
        raise AttncalcError(
            f"the sweep has {count(cells)} cells, and may have {count(MAX_CELLS)}", f"give fewer values than {sizes}"
        )
    return axes


def option(name: str) -> str:
    """Return the option of an axis: '--kv-dtype'; a model has none."""
    own = {"model": "MODEL", "output": "--output-len"}  # --output is a file
    return own.get(name, f"--{name.replace('_', '-')}")


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
