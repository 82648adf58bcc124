"""The arguments of a call: a model with options, or a model and a workload."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, get_args, get_origin

from ..config import ModelLike
from ..errors import AttncalcError, did_you_mean
from ..model import ModelSpec
from ..options import given
from ..units import truncate
from ..workload import Workload
from .models import ShardedModelOptions, read_model
from .workloads import read_workload

F = TypeVar("F", bound=Callable[..., Any])


class UnknownArgumentError(AttncalcError, TypeError):
    """An argument that a function does not have."""


def takes(kind: Any) -> Callable[[F], F]:
    """Return a decorator of a function with `**options`, which are those of the TypedDict `kind`.

    Its signature lists them, so that help and completion in a notebook do. The function raises AttncalcError for
    another name.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*values: Any, **options: Any) -> Any:
            for name, value in options.items():
                if name not in known:
                    hint = did_you_mean(name, known)
                    raise UnknownArgumentError(
                        f"{function.__name__} has no argument '{truncate(name)}'",
                        f"{hint}help(attncalc.{function.__name__}) lists them all",
                    )
                if name in kinds:
                    _check_type(name, value, kinds[name])
            return function(*values, **options)

        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind != inspect.Parameter.VAR_KEYWORD]
        names = [parameter.name for parameter in own]
        kinds = {name: without_metadata(hint) for name, hint in kind.__annotations__.items()}
        keywords = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)
            for name, hint in kinds.items()
            if name not in names
        ]
        known = [*names, *(parameter.name for parameter in keywords)]
        call.__signature__ = signature.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


def without_metadata(hint: Any) -> Any:
    """Return the type of an annotation: `int | str` for `Annotated[int | str, parse_count]` and for itself.

    Only Annotated is unwrapped: since Python 3.14 a union has an `__origin__` too, which is typing.Union.
    """
    return hint.__origin__ if get_origin(hint) is Annotated else hint


def _check_type(name: str, value: object, kind: Any) -> None:
    """Raise AttncalcError for a value of another type than the option's. A number is read from its text later."""
    kinds = get_args(kind) or (kind,)
    if value is None or int in kinds or float in kinds:
        return
    allowed = tuple(get_origin(one) or one for one in kinds)
    is_dtype = str in kinds and str(value).startswith("torch.")
    if isinstance(value, bytes) or not (isinstance(value, allowed) or is_dtype):
        wanted = "True or False" if bool in kinds else "a text"
        raise AttncalcError(
            f"--{name.replace('_', '-')}: '{truncate(value)}' is not {wanted}", "give it as on the command line"
        )


def read_call(
    model: ModelLike, workload: Workload | None, options: Mapping[str, Any], **defaults: Any
) -> tuple[ModelSpec, Workload]:
    """Return the model and the workload of a call.

    Args:
        model: The model.
        workload: The workload; None if the options describe it.
        options: The options of the model, and those of the workload.
        defaults: Options of the workload that this call has by default.

    Raises AttncalcError if the model or an option is not valid, or a workload is combined with options that describe
    one.
    """
    spec = read_model(model, **given(options, ShardedModelOptions))
    of_model = ShardedModelOptions.__annotations__
    of_workload = {name: value for name, value in options.items() if value is not None and name not in of_model}
    if workload is None:
        return spec, read_workload(spec, **{**defaults, **of_workload})
    if not isinstance(workload, Workload):
        raise AttncalcError(
            f"a workload cannot be given as '{truncate(workload)}'",
            "name the option, as context=4096, or give a Workload",
        )
    if of_workload:
        raise AttncalcError(f"{next(iter(of_workload))} cannot be combined with a Workload", "leave one of them out")
    return spec, workload


def model_subject(model: ModelSpec) -> str:
    """Return a model in a few words: 'llama2-70b', or 'llama2-70b on one of 8 devices'."""
    return f"{model.name} on one of {model.tp} devices" if model.tp > 1 else model.name
