"""The command line: `attncalc COMMAND [MODEL]`. One thin file a command, imported when it is asked for.

Exit codes: 0 yes, 1 the answer is no, 2 the question is wrong, 3 it cannot be checked here.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from .. import __version__
from ..errors import AttncalcError, did_you_mean
from ..units import truncate

COMMANDS = {
    "kv": "The KV cache: in all, by sequence, by token.",
    "params": "Parameters: attention by matrix, MLP, embedding, total.",
    "flops": "FLOPs of a prefill, a decode step, a training step.",
    "memory": "Activation memory: score matrix, peak by kernel.",
    "compare": "MHA, GQA, MQA, MLA of a model; or several models.",
    "fit": "What fits on these GPUs, in an engine's own words.",
    "verify": "Real torch layers, measured beside the formulas.",
    "gpus": "The GPUs that are here: memory, bandwidth, FLOP/s.",
    "presets": "The models that are here: list, show, add one.",
}
"""Every command and its help; the module of that name in this package holds it."""

_SETTINGS = {"help_option_names": ["-h", "--help"]}


class _Commands(typer.core.TyperGroup):
    """Commands that are imported when they are run: the others cost nothing at start."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            hint = did_you_mean(cmd_name, COMMANDS)
            raise AttncalcError(f"there is no command '{truncate(cmd_name)}'", f"{hint}known: {', '.join(COMMANDS)}")
        return typer.main.get_command(import_module(f".{cmd_name}", __name__).app)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
)


def _version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"attncalc {__version__}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """What attention costs: exact, with the formula shown.

    attncalc kv llama2-70b --batch 8 --context 4096

    attncalc compare llama2-70b

    attncalc flops gpt3 --explain
    """
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


def command_app() -> typer.Typer:
    """The app that one command's file fills."""
    return typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings=_SETTINGS,
    )


def run() -> int:
    """Run the command line, print its errors, and return the exit code; no traceback reaches a user."""
    if sys.stdout is None:
        return _refused("no standard output to answer on", "leave standard output open; -o names a file")
    try:
        code = app(standalone_mode=False, prog_name="attncalc")
        sys.stdout.flush()
    except (AttncalcError, typer.TyperException) as error:
        return _refused(*_words(error))
    except typer.Abort:
        return 130
    except OSError as error:
        from ..report.write import drop_output

        drop_output()
        if isinstance(error, BrokenPipeError):  # the reader has what it wanted, as `head` does
            return 0
        return _refused(f"cannot write the answer: {(error.strerror or 'unknown reason').lower()}", "is the disk full?")
    return code if isinstance(code, int) else 0


def _words(error: Exception) -> tuple[str, str, int]:
    """What is wrong, what to do about it, and the exit code."""
    if isinstance(error, AttncalcError):
        return error.message, error.tip, error.code
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    path = getattr(getattr(error, "ctx", None), "command_path", "attncalc")
    return truncate(message[:1].lower() + message[1:].rstrip("."), 200), f"'{path} --help' lists what there is", 2


def _refused(message: str, tip: str, code: int = 2) -> int:
    if sys.stderr is not None:
        sys.stderr.write(f"error: {message}\n" + (f"  tip: {tip}\n" if tip else ""))
    return code
