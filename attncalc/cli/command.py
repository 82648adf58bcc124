"""How a command is built: options in groups, their help, and an error for an option that is given twice."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, is_typeddict

import typer
import typer.core

from ..errors import AttncalcError
from ..options import Option, options_of

if TYPE_CHECKING:
    from typing_extensions import Self

SETTINGS = {"help_option_names": ["-h", "--help"]}
OMITTED = "-"
"""The value of an option whose value may be omitted, if it is."""


class Options:
    """A group of options that commands share. A subclass annotates them as typer does, each with its default.

    A command takes a group as one parameter: `def kv(model: ModelOptions, output: OutputOptions)`.

    Attributes:
        LAST: Whether help lists the group after all other options.
        RARE: Options that `-h` leaves out if the command has headings.
    """

    LAST: ClassVar[bool] = False
    RARE: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Return a parameter per option, those of the base class first."""
        return [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=getattr(cls, name), annotation=annotation)
            for name, annotation in _annotations(cls).items()
        ]

    def with_defaults(self, texts: dict[str, str]) -> Self:
        """Return the group with `texts`, {option: text}, for the options that were left out."""
        return type(self)(**{**vars(self), **{k: v for k, v in texts.items() if k in vars(self)}, **self.given()})

    def given(self) -> dict[str, Any]:
        """Return {option: value} of the options that were given; of a flag always."""
        return {name: value for name, value in vars(self).items() if value is not None}


def _annotations(cls: type[Options]) -> dict[str, Any]:
    """Return {option: its annotation}. `LAST` is not an option: it is not `Annotated`."""
    names: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        annotations = inspect.get_annotations(base, eval_str=True)
        names |= {name: kind for name, kind in annotations.items() if hasattr(kind, "__metadata__")}
    return names


class Command(typer.core.TyperCommand):
    """A command in which an option that takes one value may be given once, and [VALUE] may be omitted.

    Its help has headings. `-h` lists the common options, `--help` all of them.
    """

    def __init__(self, *values: Any, **settings: Any) -> None:
        super().__init__(*values, **settings)
        self._help: _Help = getattr(self.callback, "help_of", None) or _Help({}, frozenset())
        self._is_brief = False

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        left_out = 0
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            if self._is_brief and self._help.headings:
                if param.name in self._help.rare:
                    left_out += 1
                    continue
                record = _brief(param)
            is_argument = param.param_type_name == "argument"
            default = "Arguments" if is_argument else "Options"
            heading = default if is_argument else self._help.headings.get(param.name or "", default)
            sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)
        if left_out:
            formatter.write_paragraph()
            formatter.write_text(f"--help lists {left_out} more options.")

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        self._is_brief = "-h" in args
        options = [param for param in self.params if param.param_type_name == "option"]  # MODEL is '[MODEL]' too
        names = {name for option in options if (option.metavar or "").startswith("[") for name in option.opts}
        return super().parse_args(ctx, with_omitted_values(args, names))

    def make_parser(self, ctx: Any) -> Any:
        return reject_repeats(super().make_parser(ctx), ctx)


def _brief(param: Any) -> tuple[str, str]:
    """Return an option or argument in one line: its shortest names, and the first sentence of its help."""
    short, long = ([name for name in param.opts if name.startswith("--") == is_long][:1] for is_long in (False, True))
    names = ", ".join((*short, *long))
    is_option = param.param_type_name == "option"
    metavar = f" {param.metavar}" if is_option and param.metavar else ""
    help = re.sub(r" \([^()]*\)", "", param.help or "")  # noqa: A001 - as typer calls it
    return f"{names}{metavar}" if is_option else param.metavar, re.split(r"[.:;] |\.$", help)[0]


class Group(typer.core.TyperGroup):
    """A command with subcommands, in which an option that takes one value may be given once."""

    def make_parser(self, ctx: Any) -> Any:
        return reject_repeats(super().make_parser(ctx), ctx)


def with_omitted_values(args: list[str], names: Container[str]) -> list[str]:
    """Return the arguments with OMITTED after each option of `names` that is the last one, or that an option follows.

    typer has no options whose value may be omitted: `--plot --batch 8` would draw into a file '--batch'.
    """
    complete: list[str] = []
    end = args.index("--") if "--" in args else len(args)
    for i, arg in enumerate(args):
        complete.append(arg)
        following = args[i + 1] if i + 1 < len(args) else "--"
        if i < end and arg in names and following.startswith("-") and following != OMITTED:
            complete.append(OMITTED)
    return complete


def reject_repeats(parser: Any, ctx: Any) -> Any:
    """Return the parser, changed to raise AttncalcError if an option that takes one value is given twice.

    All names of an option count together: -c and --max-model-len are both --context. A flag may be repeated,
    unless it has an opposite: --prefix-caching and --no-prefix-caching.
    """
    parse_args = parser.parse_args

    def parse_once(args: list[str]) -> Any:
        try:
            values, rest, order = parse_args(args)
        except typer.TyperException as error:
            if getattr(error, "ctx", ctx) is None:  # typer names no command if an option lacks its value
                error.ctx = ctx  # type: ignore[attr-defined]
            raise
        for option, times in Counter(order).items():
            single = option.param_type_name == "option" and not option.multiple
            if times > 1 and single and (not option.is_flag or option.secondary_opts) and not ctx.resilient_parsing:
                names = [*option.opts, *option.secondary_opts]
                also = f"; {', '.join(names)} are the same option" if len(names) > 1 else ""
                count = "twice" if times == 2 else f"{times} times"
                raise AttncalcError(f"{names[0]} is given {count}", f"give it once{also}")
        return values, rest, order

    parser.parse_args = parse_once
    return parser


class App(typer.Typer):
    """A typer app whose commands take groups of options."""

    def command(
        self, name: str | None = None, *, headings: Mapping[str, Iterable[Any]] = MappingProxyType({}), **settings: Any
    ) -> Callable[[Any], Any]:
        """Return a decorator that registers a command.

        Args:
            name: Its name; by default the function's.
            headings: {heading of its help: TypedDicts of the options below it}; other options are below 'Options'.
            settings: Those of typer.
        """
        register = super().command(name, cls=Command, **settings)
        return lambda function: register(flattened(function, headings))

    def callback(self, **settings: Any) -> Callable[[Any], Any]:
        register = super().callback(**settings)
        return lambda function: register(flattened(function))


def command_app(cls: type[Group] = Group) -> App:
    """Return an empty app, to which the file of a command adds the command."""
    return App(
        cls=cls,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings=SETTINGS,
    )


class _Help(NamedTuple):
    """What help has besides the options.

    Attributes:
        headings: {parameter: the heading of its option}.
        rare: parameters that `-h` leaves out.
    """

    headings: Mapping[str, str]
    rare: frozenset[str]


def parameter_of(option: Option) -> inspect.Parameter:
    """Return the parameter from which typer makes an option: text, a list of texts, or a flag."""
    info = typer.Option(*option.names, help=option.help, metavar=option.metavar or None)
    default: bool | None = None
    kind: Any = str | None
    if option.is_repeated:
        kind = list[str] | None
    elif not option.metavar:
        kind, default = (bool, False) if option.is_flag else (bool | None, None)
    annotation = Annotated[kind, info]
    return inspect.Parameter(option.parameter, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def flattened(
    function: Callable[..., Any], headings: Mapping[str, Iterable[Any]] = MappingProxyType({})
) -> Callable[..., Any]:
    """Return the function with each group of options replaced by the group's options.

    A group is a subclass of Options, or a TypedDict whose options are declared in its annotations: the function then
    gets a dict of those that were given.
    """
    groups: dict[str, tuple[Callable[..., Any], list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    last: list[inspect.Parameter] = []
    rare: set[str] = set()
    # Not typing.get_type_hints: until Python 3.10 it makes Optional[Annotated[...]] of an option whose default is None.
    hints = inspect.get_annotations(function, eval_str=True)
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints[name]
        if inspect.isclass(kind) and issubclass(kind, Options):
            options = kind.parameters()
            groups[name] = kind, [option.name for option in options]
            (last if kind.LAST else parameters).extend(options)
            rare |= kind.RARE
        elif is_typeddict(kind):
            declared = options_of(kind)
            groups[name] = partial(_given, declared), [option.parameter for option in declared.values()]
            parameters.extend(map(parameter_of, declared.values()))
            rare |= {option.parameter for option in declared.values() if not option.is_common}
        else:
            parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))

    def call(**values: Any) -> Any:
        for name, (group, options) in groups.items():
            values[name] = group(**{option: values.pop(option) for option in options})
        return function(**values)

    below = {
        option.parameter: heading
        for heading, kinds in headings.items()
        for kind in kinds
        for option in options_of(kind).values()
    }
    below |= dict.fromkeys([parameter.name for parameter in last] if headings else [], "Output")
    call.__name__ = function.__name__
    call.__doc__ = function.__doc__
    call.__signature__ = inspect.Signature([*parameters, *last])  # type: ignore[attr-defined]
    call.__annotations__ = {}
    call.help_of = _Help(below, frozenset(rare if headings else ()))  # type: ignore[attr-defined]
    return call


def _given(declared: Mapping[str, Option], **values: Any) -> dict[str, Any]:
    """Return {field: value} of the options that were given; of a flag without an opposite only if it is set."""
    found = {field: values[option.parameter] for field, option in declared.items()}
    return {
        field: value
        for field, value in found.items()
        if value is not None and value != [] and not (declared[field].is_flag and not value)
    }
