"""The arguments of a call: their names and types, for errors, help and completion."""

import contextlib
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, TypeVar, get_args, get_origin

from ..errors import AttncalcError, nearest
from ..model import plural
from ..options import options_of
from ..units import truncate

F = TypeVar("F", bound=Callable[..., Any])


class UnknownArgumentError(AttncalcError, TypeError):
    """An argument that a function does not have.

    Attributes:
        name: The argument's name; '' if it has none.
    """

    def __init__(self, message: str, tip: str = "", name: str = "") -> None:
        super().__init__(message, tip)
        self.name = name


def takes(kind: Any) -> Callable[[F], F]:
    """Return a decorator of a function with `**options`, which are those of the TypedDict `kind`.

    Its signature lists them, so that help and completion in a notebook do. The function raises
    AttncalcError for another name.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*values: Any, **options: Any) -> Any:
            options = {
                name if name in known else other_names.get(name, name): value
                for name, value in options.items()
            }
            if several and (given := options.pop("models", options.pop("model", None))) is not None:
                values = (*values, *(given if isinstance(given, list | tuple) else (given,)))
            with errors_in_python():
                if len(values) > most:
                    raise UnknownArgumentError(
                        f"{function.__name__} takes {plural(most, 'value')} without a name: "
                        f"{', '.join(names)}",
                        f"name the others, as context=4096; help(attncalc.{function.__name__}) "
                        "lists them all",
                    )
                for name, value in options.items():
                    if name not in known:
                        close = nearest(name, [*known, *other_names])
                        hint = f"did you mean '{other_names.get(close, close)}'? " if close else ""
                        raise UnknownArgumentError(
                            f"{function.__name__} has no argument '{truncate(name)}'",
                            f"{hint}help(attncalc.{function.__name__}) lists them all",
                            name,
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
        several = any(one.kind == inspect.Parameter.VAR_POSITIONAL for one in own)
        if several:
            most = sys.maxsize
        else:
            most = sum(one.kind != inspect.Parameter.KEYWORD_ONLY for one in own)
        known = [*names, *(parameter.name for parameter in keywords)]
        other_names = _other_names(kind)
        called = signature.replace(parameters=[*own, *keywords])
        call.__signature__ = called  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


def _other_names(kind: Any) -> dict[str, str]:
    """Return {name on the command line, or of another tool: argument}: 'tensor_parallel_size' is
    tp.
    """
    return {
        _as_argument(part): field
        for field, option in options_of(kind).items()
        for name in (*option.names, *option.also)
        for part in name.split("/")[:1]
    }


# {command: its function, if that has another name}.
_FUNCTIONS = {
    "kv": "kv_cache",
    "memory": "activations",
    "presets": "preset_names",
    "gpus": "gpu_names",
}
_CALLS = {
    **dict.fromkeys(
        ("kv_cache_bytes", "kv_bytes", "kv_cache_size", "kv_size"), "int(kv_cache(...).total)"
    ),
    **dict.fromkeys(("models", "list_models"), "preset_names"),
    **dict.fromkeys(("from_config", "Model", "model"), "load"),
    "load_gpu": "gpu",
}


def function_like(name: str, known: Sequence[str]) -> str:
    """Return the function, or the call, that an unknown name of the package means; '' if none."""
    part = next((one for one in sorted(known, key=len, reverse=True) if one in name.lower()), "")
    return (_CALLS | _FUNCTIONS).get(name) or part


def _as_argument(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


@contextlib.contextmanager
def errors_in_python() -> Iterator[None]:
    """Name arguments instead of options in the errors of a call: `tp=4` for '--tp 4'."""
    try:
        yield
    except AttncalcError as error:
        for one in (error, *error.further):
            one.printed = one.printed or (one.message, one.tip)
            one.message, one.tip = in_python(one.message), in_python(one.tip)
        raise


def in_python(text: str) -> str:
    """Return a text with the arguments of a call instead of options; a command in it stays as it
    is.
    """

    def argument(match: re.Match[str]) -> str:
        command, name, value = match.groups()
        if command:
            return command
        argument = "output" if name == "output-len" else _as_argument(name)
        if value and re.fullmatch(r"\d{1,3}(,\d{3})+", value):
            value = value.replace(",", "")
        if value:
            return f"{argument}={value if value.isdecimal() else repr(value)}"
        return argument

    # a value has a digit, or is a word before a verb or the end: '--prompt 3K', '--phase train
    # cannot be combined with'
    value = r"(?=[^ ]*\d)[\w./:,-]*\w|[a-z_]+(?=$|[:;,.]| (?:cannot|does|is|has|needs) )"
    command = r"'attncalc [a-z][^']*'|(?:(?<=: )|^)attncalc [a-z].*"
    named = re.sub(rf"({command})|--([a-z][a-z-]*[a-z])(?:[ =]({value}))?", argument, text)
    return re.sub(r"(=\S*[^ ,]) (?=\w+=)", r"\1, ", named)


def without_metadata(hint: Any) -> Any:
    """Return the type of an annotation: `int | str` for `Annotated[int | str, parse_count]` and for
    itself.

    Only Annotated is unwrapped: since Python 3.14 a union has an `__origin__` too, which is
    typing.Union.
    """
    if get_origin(hint) is Annotated:
        return hint.__origin__
    return hint


def _check_type(name: str, value: object, kind: Any) -> None:
    """Raise AttncalcError for a value of another type than the option's. A number is read from its
    text later.
    """
    kinds = get_args(kind) or (kind,)
    if value is None or int in kinds or float in kinds:
        return
    allowed = tuple(get_origin(one) or one for one in kinds)
    is_dtype = str in kinds and str(value).startswith("torch.")
    if isinstance(value, bytes) or not (isinstance(value, allowed) or is_dtype):
        if bool in kinds:
            wanted, tip = ("True or False", "give one of them")
        else:
            wanted, tip = ("a text", "put it in quotes")
        if isinstance(value, list | tuple):
            tip = f"sweep(..., {name}=[...]) has a row of each"
        raise AttncalcError(f"{name}: '{truncate(value)}' is not {wanted}", tip)
