"""The tools: one per question, made from its declaration.

A tool's arguments are the options of the command, by their names without dashes: `--kv-dtype` is
`kv_dtype`. The command's arguments have the name that its help has: MODEL is `model`. A pasted
command of another program, which stands after -- on a command line, is `command`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from ..cli import built
from ..cli.command import pasted_of
from ..cli.options import CheckedOutputOptions
from ..cli.plot_options import PlotOptions
from ..errors import AttncalcError, known_tip
from ..options import Option, as_text
from ..questions import QUESTIONS
from ..questions.schemas import further_answers, schema
from ..records import NamedTuple
from ..units import truncate

# Questions that are no tool: one needs a device and minutes, the other is about attncalc itself.
_LEFT_OUT = ("verify", "schema")
# Answers of a question that its tool does not give: a file.
_NO_ANSWER = ("record",)
# Options of the screen that a tool has: it answers with the screen and with JSON anyway.
_OF_SCREEN = ("explain", "full")
# Characters of an argument.
_LONGEST = 100_000
# The words of an option that is given several times.
_MOST = 100
# The argument with a pasted command, and its description in each question that reads one.
_COMMAND = "command"
_PASTED = {
    "fit": "COMMAND: A pasted command that starts a server, as 'vllm serve Qwen/Qwen3-8B -tp 2'; "
    "other arguments replace its options. If it loads a local folder, give model too.",
    "train": "COMMAND: A pasted command that starts a training run, as 'torchrun train.py "
    "--model_name_or_path Qwen/Qwen3-8B --bf16'; other arguments replace its options.",
}
# Headings of options that one engine alone has.
_OF_ENGINE = ("vLLM", "SGLang", "llama.cpp", "transformers")


class Tool(NamedTuple):
    """A question as a tool.

    Attributes:
        name: The question's name.
        description: What it answers, with an example of its command.
        parameters: {name of an argument: its parameter of the command}.
        arguments: The JSON Schema of the arguments.
        answer: The JSON Schema of the answer.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    arguments: dict[str, Any]
    answer: dict[str, Any]


@cache
def tools() -> dict[str, Tool]:
    """Return {name: tool} of all questions, in their order."""
    return {name: _tool(name) for name in QUESTIONS if name not in _LEFT_OUT}


def words_of(tool: Tool, arguments: Mapping[str, Any]) -> list[str]:
    """Return the words of the command that a call asks for: ['kv', '--batch', '8', '--', 'gpt2'].

    Raises AttncalcError if an argument is not known, or has no value of its type.
    """
    options: list[str] = []
    names: list[str] = []
    pasted: list[str] = []
    for name, value in arguments.items():
        if name == _COMMAND and tool.name in _PASTED:
            pasted = [_text(name, value)] if value is not None else []
            continue
        parameter = tool.parameters.get(name)
        if parameter is None:
            tip = known_tip(name, [*tool.parameters])
            raise AttncalcError(f"{tool.name} has no argument '{truncate(name)}'", tip)
        if value is None:
            continue
        if parameter.param_type_name == "argument":
            names += [_text(name, each) for each in _each(name, value)]
        else:
            options += _words_of_option(name, parameter, value)
    if tool.name in _PASTED and not pasted and pasted_of(tool.name).begins(names):
        names, pasted = [], names
    for word in names:
        if word.startswith("-"):
            raise AttncalcError(
                f"'{truncate(word)}' is no name", "an option is an argument of its own: batch=8"
            )
    behind = ["--", *pasted] if pasted else []
    return [tool.name, *names, *options, *behind]


def _words_of_option(name: str, parameter: Any, value: Any) -> Iterator[str]:
    first = parameter.opts[0]
    if not parameter.is_flag:
        for each in _each(name, value) if parameter.multiple else [value]:
            yield f"{first}={_text(name, each)}" if first.startswith("--") else first
            if not first.startswith("--"):
                yield _text(name, each)
        return
    if not isinstance(value, bool):
        raise AttncalcError(f"{name} is true or false", f"give {name}=true, or leave it out")
    if value:
        yield first
    elif parameter.secondary_opts:
        yield parameter.secondary_opts[0]


def _each(name: str, value: Any) -> Sequence[Any]:
    values = value if isinstance(value, list) else [value]
    if len(values) > _MOST:
        raise AttncalcError(f"{name} has {len(values):,} values", f"give at most {_MOST}")
    return values


def _text(name: str, value: Any) -> str:
    """Return a value as the command line has it. Raises AttncalcError for an object or a flag."""
    if isinstance(value, bool | dict) or value is None:
        raise AttncalcError(f"{name} is a text or a number", "write it as in the description")
    text = as_text(value)
    if len(text) > _LONGEST:
        raise AttncalcError(
            f"{name} has {len(text):,} characters", f"give at most {_LONGEST:,}, or a file"
        )
    return text


def _tool(name: str) -> Tool:
    command = built(name)
    # a group of commands is the list that it shows alone
    if hasattr(command, "commands"):
        command = command.commands["list"]
    declared: Mapping[str, Option] = getattr(command.callback, "declared", {})
    rare = getattr(command.callback, "rare", ())
    parameters = {
        _name_of(parameter): parameter for parameter in command.params if _is_asked(parameter)
    }
    ordered = sorted(parameters.items(), key=lambda item: item[1].name in rare)
    headings = getattr(command.callback, "headings", {})
    properties = {
        argument: _property(
            parameter, declared.get(parameter.name), headings.get(parameter.name, "")
        )
        for argument, parameter in ordered
    }
    if name in _PASTED:
        pasted = {_COMMAND: {"type": "string", "description": _PASTED[name]}}
        properties = {"model": properties["model"], **pasted, **properties}
    example = QUESTIONS[name].help
    text = " ".join((getattr(command, "epilog", None) or built(name).epilog or "").split())
    return Tool(
        name,
        f"{example} {text}".strip(),
        parameters,
        {"type": "object", "properties": properties, "additionalProperties": False},
        _answer(name),
    )


def _name_of(parameter: Any) -> str:
    """Return the name of an argument: that of an option, or what stands for a value in help."""
    name: str = parameter.name
    if parameter.param_type_name == "argument" and parameter.metavar:
        name = parameter.metavar.strip("[].").lower()
    return name


@cache
def _output_names() -> frozenset[str]:
    """Return the options that say where an answer goes, and in which form."""
    groups = (CheckedOutputOptions, PlotOptions)
    names = {parameter.name for group in groups for parameter in group.parameters()}
    return frozenset(names - {*_OF_SCREEN})


def _is_asked(parameter: Any) -> bool:
    is_hidden = getattr(parameter, "hidden", False)
    return not is_hidden and parameter.name not in {*_output_names(), "help", "preset"}


def _property(parameter: Any, declared: Option | None, heading: str) -> dict[str, Any]:
    """Return the JSON Schema of an argument, which help lists under a heading."""
    description = " ".join((parameter.help or "").split())
    for of_standard_input in (", - for standard input", " (- is standard input)"):
        description = description.replace(of_standard_input, "")
    if heading in _OF_ENGINE:
        description = f"{description} Only {heading}."
    if getattr(parameter, "is_flag", False):
        return {"type": "boolean", "description": description}
    one: dict[str, Any] = {"type": ["string", "number"]}
    known = declared.parser.known if declared and declared.parser else ()
    if known:
        one = {"type": "string", "examples": [*known][:20]}
    metavar = parameter.metavar or ""
    if metavar:
        description = f"{metavar.strip('[].')}: {description}"
    many = getattr(parameter, "multiple", False) or parameter.nargs == -1
    if many:
        listed = {"type": "array", "items": one, "maxItems": _MOST}
        return {"anyOf": [one, listed], "description": description}
    return {**one, "description": description}


def _answer(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a question's answers."""
    further = [other for other in further_answers(name) if other not in _NO_ANSWER]
    if name == "presets":
        further = []
    if name in ("flops", "memory"):
        further = ["sizes"]
    if not further:
        return schema(name)
    answers = []
    for each in (name, *further):
        # with an $id, '#/$defs/figure' is that of this schema
        answers.append({"$id": f"urn:attncalc:{each}", **schema(each)})
    return {"type": "object", "anyOf": answers}
