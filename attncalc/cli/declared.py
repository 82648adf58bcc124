"""The command of a question that is declared."""

from typing import Annotated, Any

import typer

from ..options import parsed
from ..questions.inputs import each_size
from ..questions.options import ShardedModelOptions
from ..questions.question import Question
from . import options as o
from .command import App, Options, command_app


def command_of(question: Question) -> App:
    """Return the app of a question's command: its own, or that of a question about one model."""
    if question.command is not None:
        own: App = question.command()
        return own

    def ask(model: o.NamedModel, options: Any, screen: Any, output: o.CheckedOutputOptions) -> None:
        if not model.describes(options):
            # '-b llama3-8b' lacks the number, and not the model
            parsed(each_size(options)[0], question.options)
        flags = {flag: getattr(screen, flag) for flag in question.screen}
        output.show(question.answer(model.read(options), options, **flags))

    ask.__name__ = question.name
    ask.__annotations__ |= {"options": question.options, "screen": _screen_of(question)}
    app = command_app()
    # the last heading of an option is the one that it is below
    app.command(headings={"Workload": (question.options,), "Model": (ShardedModelOptions,)})(ask)
    return app


def _screen_of(question: Question) -> type[Options]:
    """Return the group of the options that change the screen; JSON and CSV have every figure."""
    flags: dict[str, Any] = dict.fromkeys(question.screen, False)
    annotations = {
        flag: Annotated[bool, typer.Option(f"--{flag}", help=text)]
        for flag, text in question.screen.items()
    }
    return type(
        "ScreenOptions", (Options,), {**flags, "LAST": True, "__annotations__": annotations}
    )
