"""What `verify --engine` asks: a model and an engine, or a whole command that starts one."""

import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import AttncalcError, NotSupportedError, clash, known_tip
from ...options import by_name, options_of, parsed
from ...records import NamedTuple
from ...show.lists import tell
from ...units import truncate
from ...verify.engines import STARTED, starter
from ..fit.launch_words import begin_of, expand, launches, options_of_launch
from ..fit.options import FitOptions
from ..options import WhatIfOptions
from ..pasted_words import words_of

# The options of `verify` that --engine takes.
ALLOWED = ("engine", "minutes", "save", "context", "dtype", *WhatIfOptions.__annotations__)
# The names that engines have for dtypes.
TORCH_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


class EngineQuestion(NamedTuple):
    engine: str  # a name of STARTED
    model: str  # the model's name or path
    options: Mapping[str, Any]  # the same question as options of `fit`, as text
    # the options of the command that starts the engine, without program and model
    words: tuple[str, ...]
    variables: Mapping[str, str] = {}  # of the environment, set before that command

    @property
    def what_if(self) -> dict[str, Any]:
        """The options that change the model."""
        return parsed(self.options, WhatIfOptions)


def read_question(
    engine: str | None, words: Sequence[str], options: Mapping[str, Any]
) -> EngineQuestion:
    """Return the question.

    Args:
        engine: The value of --engine; None if a command names it.
        words: MODEL, or a command that starts an engine, which MODEL may be before.
        options: Those of `verify`, as text: what-if sizes, context and dtype.

    Raises AttncalcError if the engine cannot be started, there is no model or more than one, or the
    command has an option that is not known.
    """
    if engine is not None:
        _check_engine(engine)
    split = [*words]
    if len(words) == 1 and " " in words[0]:
        split = words_of(words)
    if len(split) > 1 and launches(split):
        return _of_command(engine, split, options)
    if engine is None:
        raise AttncalcError(
            f"'{truncate(' '.join(words), 60)}' starts no engine that is known here",
            "the command is as 'vllm serve MODEL'",
        )
    if len(words) != 1:
        raise AttncalcError("--engine needs one model", "give one, or a command after --")
    module = starter(engine)
    found = {**options, "engine": engine}
    typed = [*module.PLAIN]
    if "context" in options:
        typed += [module.CONTEXT, _as_number(options["context"])]
    if "dtype" in options and module.DTYPE:
        typed += [module.DTYPE, TORCH_NAMES.get(options["dtype"], options["dtype"])]
    return EngineQuestion(engine, words[0], found, tuple(typed))


def _check_engine(engine: str) -> None:
    """Raise AttncalcError if the engine is unknown, or is not started."""
    if engine in STARTED:
        return
    raise NotSupportedError(
        f"--engine {truncate(engine)} cannot be started", known_tip(engine, [*STARTED])
    )


def _as_number(context: str) -> str:
    """Return the tokens of a context as engines read them."""
    from ...units import parse_count

    return str(parse_count(str(context), "--context"))


def _of_command(
    engine: str | None, words: Sequence[str], options: Mapping[str, Any]
) -> EngineQuestion:
    """Return the question of a command that starts an engine."""
    begin = begin_of(words) or 0
    before = words[:begin]
    command = words[begin:]
    if len(before) > 1:
        raise AttncalcError("--engine needs one model", "give one, or a command after --")
    for name in options:
        if name not in WhatIfOptions.__annotations__:
            raise clash(f"--{name}", "a command after --", f"give --{name} in the command")
    declared = by_name(options_of(FitOptions).values())
    with contextlib.redirect_stderr(io.StringIO()) as told:
        expanded = expand(before, command, declared, declared)
    for note in told.getvalue().splitlines():  # the engine is started with them
        tell(note.replace("note: not used:", "note: not in the prediction:"))
    model, found = _parsed(expanded, declared)
    named = str(found["engine"])
    if engine not in (None, named):
        raise clash(f"--engine {engine}", f"a command of {named}", "leave --engine out")
    _check_engine(named)
    own = {**found, **options}
    rest, variables = options_of_launch(command, declared)
    return EngineQuestion(named, model, own, tuple(rest), variables)


def _parsed(words: Sequence[str], declared: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the model, and the options of `fit` that words are, as text."""
    fields = {option.name: field for field, option in options_of(FitOptions).items()}
    found: dict[str, Any] = {}
    model = ""
    rest = [*reversed(words)]
    while rest:
        word = rest.pop()
        option = declared.get(word)
        if option is None:
            model = word
        elif option.metavar:
            found[fields[option.name]] = rest.pop()
        else:
            on = option.names[0].partition("/")[0]
            found[fields[option.name]] = word == on or word in option.names
    return model, found
