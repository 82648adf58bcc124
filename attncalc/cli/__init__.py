"""The command line: `attncalc COMMAND [MODEL]`. A command is imported when it is run.

Exit codes: 0 yes, 1 the answer is no, 2 the command line is wrong, 3 it cannot be checked on this
machine.
"""

import contextlib
import io
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from .. import __version__
from ..errors import AttncalcError
from ..questions import QUESTIONS
from ..show.lists import tell
from ..units import truncate
from .command import COMPLETE, Group, command_app, own_error, pasted_of

__all__ = ["app", "run"]

# What `attncalc` alone prints, within 24 rows.
_FIRST_SCREEN = f"""What attention costs: exact, with the formula shown.

  attncalc kv llama2-70b --batch 8 --context 4096
  attncalc fit llama3.1-8b
  attncalc fit llama3.1-8b --gpu h100

{chr(10).join(f"  {name:<8} {listed.help}" for name, listed in QUESTIONS.items())}

'attncalc COMMAND --help' lists its common options, '--help all' all.
"""
# The command that is no question: it serves them to agents.
SERVER = "mcp"
_SERVER_HELP = "Serve these questions as tools of a coding agent."
# Options that end the command: what follows them would be dropped.
_ALONE = ("-h", "--help", "-V", "--version")
# Shells for which there is a completion script.
SHELLS = ("bash", "zsh", "fish")
# The environment variable that shows the traceback of a bug.
DEBUG = "ATTNCALC_DEBUG"


def built(name: str) -> Any:
    """Return the command of a question, which is imported, as typer runs it."""
    from ..questions.question import declared
    from .declared import command_of

    question = declared(name)
    found = typer.main.get_command(command_of(question))
    found.help = QUESTIONS[name].help
    found.epilog = question.epilog.format(example=question.example)
    return found


class _Commands(Group):
    """The commands. Only the one that is run is imported, so that the others do not slow the
    start.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        if args[:1] == ["help"]:
            args = self._help_of(ctx, args[1:])
        if len(args) > 1 and args[0] in _ALONE:
            words = truncate(" ".join(args[1:]), 100)
            tip = f"'attncalc {args[0]}' stands alone"
            if args[1] in QUESTIONS:
                tip = f"'attncalc {args[1]} --help' shows the options of {args[1]}"
            raise AttncalcError(f"unexpected after {args[0]}: {words}", tip)
        return super().parse_args(ctx, args)

    def _help_of(self, ctx: Any, words: list[str]) -> list[str]:
        """Return the arguments for which 'help', 'help fit', 'help fit TOPIC' or 'help presets
        show' stands.
        """
        if not words:
            return []
        subcommands = getattr(self.get_command(ctx, words[0]), "commands", {})
        n_commands = 2 if words[1:] and words[1] in subcommands else 1
        return [*words[:n_commands], "--help", *words[n_commands:]]

    def list_commands(self, ctx: Any) -> list[str]:
        return [*QUESTIONS, SERVER]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in QUESTIONS:
            return built(cmd_name)
        if cmd_name == SERVER:
            found = typer.main.get_command(import_module("attncalc.mcp.command").mcp)
            found.help = _SERVER_HELP
            return found
        return None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in (*QUESTIONS, SERVER) or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        from .nearest import tip_for_command

        message = f"there is no command '{truncate(args[0])}'"
        raise AttncalcError(message, tip_for_command(args[0], self.helps()))

    def helps(self) -> Mapping[str, str]:
        return {name: listed.help for name, listed in QUESTIONS.items()} | {SERVER: _SERVER_HELP}


app = command_app(cls=_Commands)


def _show_version(is_set: bool) -> None:
    if is_set:
        sys.stdout.write(f"attncalc {__version__}\n")
        raise typer.Exit


def _show_completion(shell: str | None) -> None:
    if shell is None:
        return
    if shell not in SHELLS:
        raise AttncalcError(
            f"--show-completion: there is no script for '{truncate(shell)}'",
            f"known: {', '.join(SHELLS)}",
        )
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="attncalc", complete_var=COMPLETE, shell=shell)
    sys.stdout.write(f"{script}\n")
    raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Show the version.", callback=_show_version, is_eager=True
        ),
    ] = False,
    show_completion: Annotated[
        str | None,
        typer.Option(
            "--show-completion",
            metavar="SHELL",
            help="Show the completion script of bash, zsh or fish.",
            callback=_show_completion,
            is_eager=True,
        ),
    ] = None,
) -> None:
    """What attention costs: exact, with the formula shown.

    attncalc kv llama2-70b --batch 8 --context 4096

    attncalc compare llama2-70b

    attncalc flops gpt3 --explain

    attncalc help fit
    """
    if context.invoked_subcommand is None:
        for line in _FIRST_SCREEN.splitlines():
            tell(line, " " * 11 * line.startswith(" "), sys.stdout)


def run() -> int:
    """Run the command line, print its errors, and return the exit code; no traceback reaches a
    user.
    """
    if sys.stdout is None:
        sys.stdout = _NoOutput()
    elif isinstance(sys.stdout, io.TextIOWrapper):
        # Windows' pipes have cp1252, which lacks most characters, and its lines would end with
        # \r\n.
        sys.stdout.reconfigure(errors="backslashreplace", newline="\n")
    if COMPLETE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
    try:
        args = sys.argv[1:]
        # a command that starts a server or a trainer is a question about it
        if args and args[0] not in (*QUESTIONS, SERVER) and not args[0].startswith("-"):
            args = _with_command(args)
        code = app(args, standalone_mode=False, prog_name="attncalc")
        sys.stdout.flush()
    except typer.Abort:
        return 130
    except Exception as error:
        return _code_of_signal(error) or _fail_of(error)
    if isinstance(code, int):
        return code
    return 0


def _code_of_signal(error: Exception) -> int:
    """Return the exit code of Ctrl-C or SIGTERM that an error comes from, as that of an interrupted
    import; or else 0.

    Until Python 3.12, an exception in `__set_name__` of a class became a RuntimeError.
    """
    cause: BaseException | None = error
    seen: list[BaseException] = []
    while cause is not None and cause not in seen:
        if isinstance(cause, KeyboardInterrupt):
            return 130
        if isinstance(cause, SystemExit) and isinstance(cause.code, int):
            return cause.code
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__
    return 0


def _fail_of(error: Exception) -> int:
    """Print an error, and return the exit code."""
    if isinstance(error, AttncalcError | typer.TyperException):
        return _fail_with(error)
    if isinstance(error, OSError):
        return _fail_of_system(error)
    if os.environ.get(DEBUG):  # the last resort: every known cause has an error of its own
        raise error
    kind = type(error).__name__
    return _fail(
        f"this is a bug in attncalc: {truncate(f'{kind}: {error}', 100)}",
        f"please report it with the command that you typed; {DEBUG}=1 shows the traceback",
    )


def _with_command(args: list[str]) -> list[str]:
    """Return a pasted command of another program as the question that reads it; other arguments
    as they are.

    A command in quotation marks is one argument, and options of attncalc may follow it.
    """
    command = None
    for name, listed in QUESTIONS.items():
        if listed.pasted and pasted_of(name).begins(args):
            command = name
            break
    if command is None:
        return args
    if " " in args[0]:
        return [command, *args[1:], "--", args[0]]
    return [command, "--", *args]


class _NoOutput(io.TextIOBase):
    """Stands for a standard output that is closed: nothing can be written to it, but `-o FILE`
    needs none.
    """

    def write(self, text: str) -> int:
        raise AttncalcError(
            "there is no standard output to write to", "leave standard output open; -o names a file"
        )


def _fail_of_system(error: OSError) -> int:
    """Print why a file could not be read, or the answer not written, and return the exit code."""
    reason = (error.strerror or "unknown reason").lower()
    if error.filename is not None:  # a file that the question names: writing to a stream names none
        return _fail(f"{truncate(error.filename)}: {reason}", "check the path")
    from ..show.write import drop_output, is_closed_pipe

    drop_output()
    if is_closed_pipe(error):
        return 0
    return _fail(f"cannot write the answer: {reason}", "is the disk full?")


def _fail_with(error: Exception) -> int:
    """Print an error, and the other mistakes of the same file, and return the exit code."""
    own = own_error(error)
    code = _fail(own.message, own.tip, own.code)
    for further in own.further:
        _fail(further.message, further.tip)
    return code


def _fail(message: str, tip: str, code: int = 2) -> int:
    """Print the error and its tip, and return the exit code."""
    with contextlib.suppress(OSError, AttributeError):  # it is full, or closed and therefore None
        for line in (f"error: {message}", *([f"  tip: {tip}"] if tip else [])):
            tell(line, "    ")
    return code
