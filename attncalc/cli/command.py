"""How a command is built: options in groups, their help, and an error for an option that is given
twice.
"""

import inspect
import os
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, is_typeddict

import typer
import typer.core

from ..errors import AttncalcError
from ..options import Option, by_name, options_of
from ..questions import QUESTIONS
from ..questions.other_names import ALSO
from ..units import hyphens, truncate
from .help import Narrow, topics_of, without_topic, write_options, write_records

# The environment variable by which a shell asks for completions.
COMPLETE = "_ATTNCALC_COMPLETE"
_TIMES = "'attncalc fit MODEL --gpu GPU -c 4K --roofline' computes it."
_COMPUTED_BY = {
    "--context": "With 'fit', -c auto is the longest that fits.",
    "--ttft": _TIMES,
    "--tpot": _TIMES,
}
_COMPUTED_BY |= {"--simulate": "--device cuda runs on the GPU of this machine."}
"""{option without its value: what computes that value, or what else may be meant}."""
# The value of an option whose value may be omitted, if it is.
OMITTED = "-"


def lacks_value(name: str, params: Iterable[Any]) -> AttncalcError:
    """Return the error about an option without its value, with what the option means."""
    tip = next(
        (f"{name} {param.metavar}: {param.help}" for param in params if name in param.opts), ""
    )
    return AttncalcError(f"{name} needs a value", f"{tip} {_COMPUTED_BY.get(name, '')}".rstrip())


def own_error(error: Exception) -> AttncalcError:
    """Return the error of attncalc for one of typer: one line, and a tip."""
    if isinstance(error, AttncalcError):
        return error
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "attncalc"
    tip = f"'{path} --help all' lists all options"
    extra = re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", message)
    if extra:
        words = truncate(extra[1].strip() or "' '", 100)
        return AttncalcError(f"unexpected argument: {words}", tip)
    lacking = re.fullmatch(r"Option '(\S+)' requires (?:an argument|\d+ arguments)\.?", message)
    if lacking:
        return lacks_value(lacking[1], context.command.params if context else ())
    message = truncate(message[:1].lower() + message[1:].rstrip("."), 200)
    return AttncalcError(message.partition(" (Possible")[0], tip)


class Options:
    """A group of options that commands share. A subclass annotates them as typer does, each with
    its default.

    A command takes a group as one parameter: `def kv(model: NamedModel, output: OutputOptions)`.
    """

    LAST: ClassVar[bool] = False  # whether help lists the group after all other options
    RARE: ClassVar[frozenset[str]] = frozenset()  # options that `-h` leaves out

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Return a parameter per option, those of the base class first."""
        annotations: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            annotations |= inspect.get_annotations(base, eval_str=True)
        return [
            _parameter(name, annotation, getattr(cls, name))
            for name, annotation in annotations.items()
            if hasattr(annotation, "__metadata__")  # LAST is no option: it is not Annotated
        ]


def _parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


class Command(Narrow, typer.core.TyperCommand):
    """A command in which an option that takes one value may be given once, and [VALUE] may be
    omitted.

    `-h` and `--help` list the common options. `--help all` lists all, below headings, and `--help
    TOPIC` those of a heading.
    """

    def __init__(self, *values: Any, **settings: Any) -> None:
        super().__init__(*values, **settings)
        # the headings of its help that are asked for; None for its common options
        self._topics: frozenset[str] | None = None
        # {an option's first name: the name by which it was typed}, if they differ
        self._typed: dict[str, str] = {}
        if COMPLETE in os.environ:
            from .completion import values_of

            declared: Mapping[str, Option] = getattr(self.callback, "declared", {})
            own = getattr(self.callback, "values", {})
            for param in self.params:
                option = declared.get(param.name or "")
                complete = values_of(param, option, self.name or "", own)
                if complete:
                    param.shell_complete = complete  # type: ignore[assignment, method-assign]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_options(self, ctx, formatter, self._topics)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        # in Python an argument may be a path
        args, topic = without_topic([str(arg) for arg in args])
        self._topics = topics_of(self, topic, ctx.command_path)
        args = self._in_own_words(args, ctx)
        # MODEL is '[MODEL]' too
        options = [param for param in self.params if param.param_type_name == "option"]
        return super().parse_args(ctx, _with_omitted_values(args, _may_lack_values(options)))

    def make_parser(self, ctx: Any) -> Any:
        return _reject_repeats(super().make_parser(ctx), ctx)

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Its errors name options as they were typed: --quant, not
        --weights-dtype.
        """
        try:
            return super().invoke(ctx)
        except AttncalcError as error:
            error.message = self._as_typed(error.message)
            # a tip with a whole command may be about another one
            if "attncalc " not in error.tip:
                error.tip = self._as_typed(error.tip)
            raise

    def _as_typed(self, text: str) -> str:
        for own, typed in self._typed.items():
            text = re.sub(rf"(?<![\w-]){own}(?![\w-])", typed, text)
        return text

    def _note_typed(self, word: str, own: Mapping[str, str]) -> None:
        """Note the name of an option that differs from the option's first name."""
        typed = word.partition("=")[0]
        name = own.get(hyphens(typed))
        if not typed.startswith("-") or name is None:
            return
        for option in self.params:
            if name in option.opts and option.opts[0] != typed:
                self._typed[option.opts[0]] = typed

    def _in_own_words(self, args: list[str], ctx: Any) -> list[str]:
        """Return the arguments with other tools' names of options replaced, and a pasted command as
        options.

        A pasted command stands after --.
        """
        options = names_of(self)
        own = own_names(options)
        words = args
        pasted = list[str]()
        if "--" in args:
            end = args.index("--")
            words = args[:end]
            pasted = args[end:]
        reader = self._reader()
        if reader:
            words, pasted = reader.split(words, pasted, options)
        self._typed = {}
        for word in words:
            self._note_typed(word, own)
        words = [part for word in words for part in _without_equals(_own_name(word, own), own)]
        self._check_names(words, ctx)
        if reader is None:
            return words + pasted
        declared: Mapping[str, Option] = getattr(self.callback, "declared", {})
        named = by_name(declared.values())
        found: list[str] = reader.in_own_words(words, named)
        if pasted:
            # the reader looks for the value after its option: '--gpu=h100' is '--gpu h100'
            apart = [part for word in found for part in _value_apart(word, options)]
            found = reader.expand(apart, pasted[1:], named, options)
        return found

    def _reader(self) -> Any:
        """Return the module that reads pasted commands; None if the question reads none."""
        listed = QUESTIONS.get(self.name or "")
        if listed and listed.pasted:
            return pasted_of(str(self.name))
        return None

    def _check_names(self, words: Sequence[str], ctx: Any) -> None:
        """Raise AttncalcError for an option that the command does not have, or that lacks its
        value.

        typer would read -ctk as -c -t -k.
        """
        options: list[Any] = [param for param in self.params if param.param_type_name == "option"]
        known = {name for option in options for name in (*option.opts, *option.secondary_opts)} | {
            "-h",
            "--help",
        }
        with_value = set[str]()
        for option in options:
            if not getattr(option, "is_flag", False):
                with_value.update(option.opts)
        may_lack = _may_lack_values(options)
        previous = ""
        for word in words:
            name, equals, value = word.partition("=")
            if equals and name in known - with_value and previous not in with_value:
                raise _flag_with_value(name, value, options)
            if previous in with_value - may_lack and word.startswith("--") and name in known:
                lacking = lacks_value(previous, options)
                raise AttncalcError(self._as_typed(lacking.message), lacking.tip)
            takes_word = previous in with_value and not (
                previous in may_lack and word.startswith("--")
            )
            if takes_word or not re.match(r"--?[A-Za-z]", word):
                previous = ""
                continue
            is_joined = word[:2] in with_value and word[2:3].isdigit()  # -c8K
            if name not in known and not is_joined:
                raise self._no_option(name, ctx)
            previous = word

    def _no_option(self, name: str, ctx: Any) -> AttncalcError:
        """Return the error about an option that the command does not have."""
        from .nearest import tip_for_option

        root = ctx.find_root().command
        others = {}
        for command in getattr(root, "list_commands", lambda ctx: [])(ctx):
            if command != self.name:
                others[command] = own_names(names_of(root.get_command(ctx, command)))
        tip = tip_for_option(name, own_names(names_of(self)), others, ctx.command_path)
        reader = self._reader()
        if reader:
            tip = reader.tip_for_option(name) or tip
        return AttncalcError(f"no such option: {truncate(name)}", tip)


def pasted_of(question: str) -> Any:
    """Return the module of a question that reads pasted commands of other programs.

    Its functions: `begins` returns whether words are such a command, `split` finds one in the
    arguments, `in_own_words` replaces other values of options, `expand` makes options of a command,
    and `tip_for_option` has a tip for an option that only such a command has.
    """
    return import_module(f"attncalc.questions.{question}.pasted")


def _flag_with_value(name: str, value: str, options: Iterable[Any]) -> AttncalcError:
    """Return the error about a flag that is given a value, as '--tie-word-embeddings=false'."""
    tip = f"write {name} alone"
    if value.lower() in ("false", "no", "0", "off"):
        tip = "leave it out"
        for option in options:
            if name in option.opts and option.secondary_opts:
                tip = f"write {option.secondary_opts[0]}"
    return AttncalcError(f"{name} takes no value", tip)


def names_of(command: Any) -> dict[str, Any]:
    """Return {name: option} of a command, with the names by which other tools know it."""
    options = [
        param for param in getattr(command, "params", ()) if param.param_type_name == "option"
    ]
    found = {name: option for option in options for name in (*option.opts, *option.secondary_opts)}
    declared = getattr(getattr(command, "callback", None), "declared", {}).values()
    also = {other: option.name for option in declared for other in option.also} | ALSO
    return {other: found[own] for other, own in also.items() if own in found} | found


def own_names(names: Mapping[str, Any]) -> dict[str, str]:
    """Return {name: the command's own name of that option}, which differs for names of other tools.

    `names` are {name: option} of the command, as `names_of` has them.
    """
    own: dict[str, str] = {}
    for name, option in names.items():
        is_own = name in option.opts or name in option.secondary_opts
        own[name] = name if is_own else option.opts[0]
    return own


def _own_name(word: str, own: Mapping[str, str]) -> str:
    """Return a word with another tool's name of an option, or underscores in it, replaced:
    '--max_model_len=8K'.
    """
    name, equals, value = word.partition("=")
    usual = hyphens(name)
    if not name.startswith("-") or usual not in own:
        return word
    return f"{own[usual]}{equals}{value}"


def _without_equals(word: str, known: Container[str]) -> tuple[str, ...]:
    """Return -c=8K in two words: typer reads = as a part of the value of a short option."""
    name, equals, value = word.partition("=")
    if equals and name in known and not name.startswith("--"):
        return (name, value)
    return (word,)


def _value_apart(word: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return --gpu=h100 in two words; a value that may be left out, or looks like an option, stays
    in one.
    """
    name, equals, value = word.partition("=")
    metavar = options[name].metavar if name in options else None
    if not equals or not metavar or metavar.startswith("[") or value.startswith("-"):
        return (word,)
    return (name, value)


class Group(Narrow, typer.core.TyperGroup):
    """A command with subcommands, in which an option that takes one value may be given once."""

    def helps(self) -> Mapping[str, str]:
        """Return {command: its help}."""
        return {name: command.help or "" for name, command in self.commands.items()}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            write_records(formatter, [*self.helps().items()])

    def make_parser(self, ctx: Any) -> Any:
        return _reject_repeats(super().make_parser(ctx), ctx)


def _may_lack_values(options: Iterable[Any]) -> set[str]:
    """Return the names of the options whose value may be omitted: their metavar is in brackets."""
    names = set[str]()
    for option in options:
        if (option.metavar or "").startswith("["):
            names.update(option.opts)
    return names


def _with_omitted_values(args: list[str], names: Container[str]) -> list[str]:
    """Return the arguments with OMITTED after each option of `names` that is the last one, or that
    an option follows.

    typer has no options whose value may be omitted: `--plot --batch 8` would draw into a file
    '--batch'.
    """
    complete: list[str] = []
    end = args.index("--") if "--" in args else len(args)
    for i, arg in enumerate(args):
        complete.append(arg)
        following = args[i + 1] if i + 1 < len(args) else "--"
        if i < end and arg in names and following.startswith("-") and following != OMITTED:
            complete.append(OMITTED)
    return complete


def _reject_repeats(parser: Any, ctx: Any) -> Any:
    """Return the parser, changed to raise AttncalcError if an option that takes one value is given
    twice.

    All names of an option count together: -c and --max-model-len are both --context. A flag may be
    repeated, unless it has an opposite: --prefix-caching and --no-prefix-caching. Lists are joined:
    --gpu h100 --gpu l4.
    """
    parse_args = parser.parse_args
    lists = [one for one in {**parser._long_opt, **parser._short_opt}.values() if _is_list(one.obj)]
    for one in lists:
        one.action = "append"

    def parse_once(args: list[str]) -> Any:
        given = [*args]  # parsing takes words from the list
        try:
            values, rest, order = parse_args(args)
        except typer.TyperException as error:
            # typer names no command if an option lacks its value
            if getattr(error, "ctx", ctx) is None:
                error.ctx = ctx  # type: ignore[attr-defined]
            raise
        values |= {
            one.dest: ",".join(values[one.dest])
            for one in lists
            if isinstance(values.get(one.dest), list)
        }
        for option, times in Counter(order).items():
            single = (
                option.param_type_name == "option" and not option.multiple and not _is_list(option)
            )
            if (
                times > 1
                and single
                and (not option.is_flag or option.secondary_opts)
                and not ctx.resilient_parsing
            ):
                raise _given_twice(option, times, given, ctx)
        return values, rest, order

    parser.parse_args = parse_once
    return parser


def _given_twice(option: Any, times: int, args: Sequence[str], ctx: Any) -> AttncalcError:
    """Return the error about an option that is given several times, and takes one value."""
    count = "twice" if times == 2 else f"{times} times"
    name = option.opts[0]
    values = _values_of(option, args)
    if len(values) == times and name == "--preset" and _takes_models(ctx.command):
        tip = f"name the models: {ctx.command_path} {truncate(' '.join(values), 100)}"
    elif len(values) == times and _takes_lists(ctx.command, option):
        tip = f"give a list: {name} {truncate(','.join(values), 100)}"
    else:
        names = [other for other, own in names_of(ctx.command).items() if own is option]
        if len(names) >= 5:  # --context has 60
            names = [*option.opts, *option.secondary_opts]
        tip = "give it once"
        if len(names) > 1:
            tip = f"give it once; {', '.join(names)} are the same option"
    return AttncalcError(f"{name} is given {count}", tip)


def _values_of(option: Any, args: Sequence[str]) -> list[str]:
    """Return the values that arguments give an option by its own names."""
    found = []
    for i, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if name in option.opts and equals:
            found.append(value)
        elif arg in option.opts and i + 1 < len(args):
            found.append(args[i + 1])
    return found


def _takes_models(command: Any) -> bool:
    """Return whether MODEL may be given several times."""
    return any(
        param.param_type_name == "argument" and param.nargs == -1 for param in command.params
    )


def _takes_lists(command: Any, option: Any) -> bool:
    """Return whether each value of an option is a row: of a command whose options are axes."""
    callback = command.callback
    declared = getattr(callback, "declared", {}).get(option.name)
    return bool(getattr(callback, "has_axes", False) and declared and declared.is_axis)


def _is_list(option: Any) -> bool:
    """Return whether an option takes a list: '--gpu GPU,...'."""
    return (getattr(option, "metavar", None) or "").endswith(",...") and not option.multiple


class App(typer.Typer):
    """A typer app whose commands take groups of options."""

    def command(
        self,
        name: str | None = None,
        *,
        headings: Mapping[str, Iterable[Any]] = MappingProxyType({}),
        values: Mapping[str, Callable[[], Iterable[str]]] = MappingProxyType({}),
        has_axes: bool = False,
        **settings: Any,
    ) -> Callable[[Any], Any]:
        """Return a decorator that registers a command.

        Args:
            name: Its name, by default that of the function.
            headings: {a heading of its help: TypedDicts of the options below it}; other options
                are below 'Options'.
            values: {what stands for a value in help, or an option: the values that a shell
                completes}.
            has_axes: Whether options take lists, of which each value is a row.
            settings: Further arguments of typer.
        """
        register = super().command(name, cls=Command, **settings)

        def registered(function: Any) -> Any:
            call: Any = _flattened(function, headings)
            call.values = values
            call.has_axes = has_axes
            return register(call)

        return registered

    def callback(self, **settings: Any) -> Callable[[Any], Any]:
        register = super().callback(**settings)
        return lambda function: register(_flattened(function))


def command_app(cls: type[Group] = Group) -> App:
    """Return an empty app."""
    return App(
        cls=cls,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def command(
    headings: Mapping[str, Iterable[Any]] = MappingProxyType({}),
    values: Mapping[str, Callable[[], Iterable[str]]] = MappingProxyType({}),
    *,
    has_axes: bool = False,
) -> Callable[[Callable[..., None]], App]:
    """Return a decorator that makes an app of the function of a command. The arguments are those of
    `App.command`.
    """

    def app_of(function: Callable[..., None]) -> App:
        app = command_app()
        decorate = app.command(headings=headings, values=values, has_axes=has_axes)
        decorate(function)
        return app

    return app_of


def typer_option(option: Option) -> Any:
    """Return an option of a TypedDict as typer has it."""
    return typer.Option(*option.names, help=option.help, metavar=option.metavar or None)


def _declared_parameter(option: Option) -> inspect.Parameter:
    """Return the parameter from which typer makes an option: text, a list of texts, or a flag."""
    kind: Any = str | None
    if option.is_repeated:
        kind = list[str] | None
    elif not option.metavar:
        kind = bool if option.is_flag else bool | None
    return _parameter(
        option.parameter, Annotated[kind, typer_option(option)], False if kind is bool else None
    )


def _flattened(
    function: Callable[..., Any], headings: Mapping[str, Iterable[Any]] = MappingProxyType({})
) -> Callable[..., Any]:
    """Return the function with each group of options replaced by the group's options.

    A group is a subclass of Options, or a TypedDict whose options are declared in its annotations:
    the function then gets a dict of those that were given.
    """
    groups: dict[str, tuple[Callable[..., Any], list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    last: list[inspect.Parameter] = []
    rare: set[str] = set()
    declared_options: list[Option] = []
    # Not typing.get_type_hints: until Python 3.10 it makes Optional[Annotated[...]] of an option
    # whose default is None.
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
            groups[name] = (
                partial(_given, declared),
                [option.parameter for option in declared.values()],
            )
            parameters.extend(map(_declared_parameter, declared.values()))
            declared_options.extend(declared.values())
            rare |= {option.parameter for option in declared.values() if not option.is_common}
        else:
            parameters.append(
                parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY)
            )

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
    if headings:
        below |= {parameter.name: "Output" for parameter in last}
    call.headings = below  # type: ignore[attr-defined]
    call.rare = rare  # type: ignore[attr-defined]
    declared = {option.parameter: option for option in declared_options}
    call.declared = declared  # type: ignore[attr-defined]
    call.__name__ = function.__name__
    call.__doc__ = function.__doc__
    call.__signature__ = inspect.Signature([*parameters, *last])  # type: ignore[attr-defined]
    call.__annotations__ = {}
    return call


def _given(declared: Mapping[str, Option], **values: Any) -> dict[str, Any]:
    """Return {field: value} of the options that were given; of a flag without an opposite only if
    it is set.
    """
    given: dict[str, Any] = {}
    for field, option in declared.items():
        value = values[option.parameter]
        is_unset = option.is_flag and not value
        if value is not None and value != [] and not is_unset:
            given[field] = value
    return given
