"""The arguments of a call: their names and types, for errors, help and completion."""

import contextlib
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar, get_args, get_origin

from ..errors import AttncalcError, Tip, nearest
from ..model import plural
from ..options import options_of
from ..units import truncate
from . import QUESTIONS

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
        arguments = _Arguments(function, kind)

        @functools.wraps(function)
        def call(*values: Any, **options: Any) -> Any:
            values, options = arguments.named(values, options)
            with errors_in_python():
                arguments.check(values, options)
                return function(*values, **options)

        call.__signature__ = arguments.signature  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


class _Arguments:
    """The arguments of a function with `**options`, which are those of a TypedDict."""

    def __init__(self, function: Callable[..., Any], kind: Any) -> None:
        self._function = function.__name__
        self._types = {name: without_metadata(hint) for name, hint in kind.__annotations__.items()}
        self._other_names = _other_names(kind)
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind != inspect.Parameter.VAR_KEYWORD]
        # the function's own arguments
        self._names = [parameter.name for parameter in own]
        others = [name for name in self._types if name not in self._names]
        self._known = [*self._names, *others]
        # whether it takes any number of models
        self._has_models = any(one.kind == inspect.Parameter.VAR_POSITIONAL for one in own)
        # the most values without a name
        self._most = sum(one.kind != inspect.Parameter.KEYWORD_ONLY for one in own)
        if self._has_models:
            self._most = sys.maxsize
        keywords = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=self._types[name]
            )
            for name in others
        ]
        self.signature = signature.replace(parameters=[*own, *keywords])

    def named(
        self, values: tuple[Any, ...], options: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the values, with models that have a name, and the options under their own
        names.
        """
        found = {}
        for name, value in options.items():
            is_known = name in self._known
            found[name if is_known else self._other_names.get(name, name)] = value
        if not self._has_models:
            return values, found
        models = found.pop("models", found.pop("model", None))
        if models is None:
            return values, found
        if isinstance(models, list | tuple):
            return (*values, *models), found
        return (*values, models), found

    def check(self, values: Sequence[Any], options: Mapping[str, Any]) -> None:
        """Raise AttncalcError for an argument that the function does not have, or a value of
        another type.
        """
        if len(values) > self._most:
            raise UnknownArgumentError(
                f"{self._function} takes {plural(self._most, 'value')} without a name: "
                f"{', '.join(self._names)}",
                f"name the others, as context=4096; help(attncalc.{self._function}) lists them all",
            )
        for name, value in options.items():
            if name not in self._known:
                raise self._unknown(name)
            if name in self._types:
                _check_type(name, value, self._types[name])

    def _unknown(self, name: str) -> UnknownArgumentError:
        tip = f"help(attncalc.{self._function}) lists them all"
        close = nearest(name, [*self._known, *self._other_names])
        if close:
            tip = f"did you mean '{self._other_names.get(close, close)}'? {tip}"
        return UnknownArgumentError(
            f"{self._function} has no argument '{truncate(name)}'", tip, name
        )


def _other_names(kind: Any) -> dict[str, str]:
    """Return {name on the command line, or of another tool: argument}: 'tensor_parallel_size' is
    tp.
    """
    found = {}
    for field, option in options_of(kind).items():
        for name in (*option.names, *option.also):
            positive, *_ = name.split("/")  # '--kbit-upcast/--no-kbit-upcast'
            found[_as_argument(positive)] = field
    return found


# {a name of another library, or of a command: what is called instead}.
_CALLS = {
    **dict.fromkeys(
        ("kv_cache_bytes", "kv_bytes", "kv_cache_size", "kv_size"), "int(kv_cache(...).total)"
    ),
    **dict.fromkeys(("models", "list_models", "presets"), "preset_names"),
    "gpus": "gpu_names",
    **dict.fromkeys(("from_config", "Model", "model"), "load"),
    "load_gpu": "gpu",
}


def function_like(name: str, known: Sequence[str]) -> str:
    """Return the function, or the call, that an unknown name of the package means; '' if none."""
    if name in _CALLS:
        return _CALLS[name]
    if name in QUESTIONS and QUESTIONS[name].function:
        return QUESTIONS[name].function
    return next((one for one in sorted(known, key=len, reverse=True) if one in name.lower()), "")


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
            one.message = in_python(one.message)
            one.tip = in_python(one.tip.python if isinstance(one.tip, Tip) else one.tip)
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
        if not value:
            return argument
        if re.fullmatch(r"\d{1,3}(,\d{3})+", value):
            value = value.replace(",", "")
        if value.isdecimal():
            return f"{argument}={value}"
        return f"{argument}={value!r}"

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
            wanted = "True or False"
            tip = "give one of them"
        else:
            wanted = "a text"
            tip = "put it in quotes"
        if isinstance(value, list | tuple):
            tip = f"sweep(..., {name}=[...]) has a row of each"
        raise AttncalcError(f"{name}: '{truncate(value)}' is not {wanted}", tip)
