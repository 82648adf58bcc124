"""The command line: `attncalc COMMAND [MODEL]`. One file per command, imported when the command is run.

Exit codes: 0 yes, 1 the answer is no, 2 the command line is wrong, 3 it cannot be checked on this machine.
"""

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from .. import __version__
from ..errors import AttncalcError, BadValueError, MissingError, NetworkError, NoSuchModelError, NotUnderstoodError
from ..report.lists import tell
from ..units import truncate
from .command import COMPLETE, Group, command_app, names_of, own_error

__all__ = ["COMMANDS", "app", "command_app", "run"]

COMMANDS = {
    "kv": "KV cache: total, per sequence and per token.",
    "params": "Parameters: attention by matrix, MLP, embedding, total.",
    "flops": "FLOPs of a prefill, a decode step or a training step.",
    "memory": "Activation memory: score matrix and peak, by kernel.",
    "compare": "One model with MHA, GQA, MQA and MLA; or several models.",
    "fit": "How much GPU memory it needs, and what fits on which GPUs.",
    "train": "Whether training fits: memory per GPU by part, FLOPs, days.",
    "plan": "From users to GPUs: how many, of which kind, and at what price.",
    "sweep": "A row per combination of models, contexts, GPUs and other options.",
    "verify": "Real torch layers, measured and compared with the formulas.",
    "gpus": "Known GPUs: memory, bandwidth, FLOP/s.",
    "presets": "Built-in models: list, show or add one.",
    "explain": "A term of the field on one screen, with an example.",
    "schema": "JSON Schemas of the commands' JSON, and of your own files.",
}
"""Every command with its help. The module of the same name in this package has its app, of that name too."""

_FIRST_SCREEN = f"""What attention costs: exact, with the formula shown.

  attncalc kv llama2-70b --batch 8 --context 4096
  attncalc fit llama3.1-8b
  attncalc fit llama3.1-8b --gpu h100

{chr(10).join(f"  {name:<8} {text}" for name, text in COMMANDS.items())}

'attncalc help COMMAND' shows its common options, 'attncalc COMMAND --help' all.
"""
"""What `attncalc` alone prints, within 24 rows."""
_OF_LOG = ("log", "logs", "doctor", "diagnose", "debug")
"""Words for the reading of a log, before its file or where it is piped in."""
_OTHER_NAMES = {"version": "--version", "v": "--version", "completion": "--show-completion"}
_OTHER_NAMES |= dict.fromkeys(_OF_LOG, "fit --log")
"""{a word: what it is as an option}."""
_ASKS_FOR_HELP = r"what (can|does|do) (you|it|this|this tool|attncalc) do|how (do|can) i use (it|this|attncalc)"
"""Questions that the start page answers."""
_LISTS = {**dict.fromkeys(("list", "ls", "models", "preset"), "presets"), "gpu": "gpus"}
"""{a word before --json and other options of output: the command that it means}."""
SHELLS = ("bash", "zsh", "fish")
"""Shells for which there is a completion script."""
DEBUG = "ATTNCALC_DEBUG"
"""The environment variable that shows the traceback of a bug."""


@cache
def _built(name: str, completes: bool) -> Any:
    """Return a command: a question in words asks for the same ones several times."""
    found = typer.main.get_command(getattr(import_module(f".{name}", __name__), name))
    found.help = COMMANDS[name]
    return found


class _Commands(Group):
    """The commands. Only the one that is run is imported, so that the others do not slow the start."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        if args[:1] == ["help"]:
            args = [*args[1:], "-h"] if args[1:] else []  # the common options: all are up to 360 lines
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _built(cmd_name, COMPLETE in os.environ) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if (name := args[0].lower()) in COMMANDS or ctx.resilient_parsing:
            return super().resolve_command(ctx, [name, *args[1:]])
        raise NotUnderstoodError(f"there is no command '{truncate(args[0])}'")

    def helps(self) -> Mapping[str, str]:
        return COMMANDS


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
            f"--show-completion: there is no script for '{truncate(shell)}'", f"known: {', '.join(SHELLS)}"
        )
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="attncalc", complete_var=COMPLETE, shell=shell)
    sys.stdout.write(f"{script}\n")
    raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Show the version.", callback=_show_version, is_eager=True)
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
    """Run the command line, print its errors, and return the exit code; no traceback reaches a user."""
    if sys.stdout is None:
        sys.stdout = _NoOutput()
    elif isinstance(sys.stdout, io.TextIOWrapper):
        # Windows' pipes have cp1252, which lacks most characters, and its lines would end with \r\n.
        sys.stdout.reconfigure(errors="backslashreplace", newline="\n")
    if COMPLETE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
    try:
        code = _run([str(arg) for arg in sys.argv[1:]])
        sys.stdout.flush()
    except typer.Abort:
        return 130
    except Exception as error:
        return _code_of_signal(error) or _fail_of(error)
    return code if isinstance(code, int) else 0


def _code_of_signal(error: Exception) -> int:
    """Return the exit code of Ctrl-C or SIGTERM that an error comes from, as that of an interrupted import; or else 0.

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


def _run(args: list[str], *, is_read: bool = False) -> Any:
    """Run a command line. If it is no usual one, run what its words mean, if that is without doubt.

    `is_read` is whether it is what words mean.
    """
    piped = b""
    if not args or (args[0] in _OF_LOG and not any(map(os.path.isfile, args))):
        from ..config.user_files import piped_in

        piped = piped_in()
        of_log = ["--log", "-"] if args and not _is_listing(piped) else []
        args = ["fit", *of_log, *args[1:]] if piped else args  # cat server.log | attncalc
    if not is_read and args and args[0] not in COMMANDS.keys() - {"fit"}:
        args = _with_listed_gpus(args)
    may_be_file = args[:1] == ["fit"] or any(map(os.path.isfile, args))
    if not is_read and args and args[0] not in COMMANDS.keys() - {"fit"} and may_be_file:
        from .launch_files import question_in, with_command

        if command := with_command(args, names_of(_built("fit", COMPLETE in os.environ))):
            return _run_as(command)
        args = (question_in(piped) if args == ["fit"] else []) or args  # echo how big is gpt2 | attncalc
    try:
        return app(args, standalone_mode=False, prog_name="attncalc")
    except (AttncalcError, typer.TyperException) as raised:
        error = own_error(raised)
        can_read = isinstance(error, NotUnderstoodError | NoSuchModelError | MissingError | BadValueError)
        if not isinstance(error, NetworkError) and (is_read or not can_read):
            raise
    from .answer import answer
    from .stand_in import with_built_in

    root: Any = typer.main.get_command(app)
    of_name = isinstance(error, NetworkError | NoSuchModelError | BadValueError)
    found = with_built_in(args, root, error) if of_name else error
    if isinstance(found, AttncalcError) and not isinstance(error, NetworkError):
        other = _other_name(*args)
        found = (other, []) if other else answer(args, root, error)
    if isinstance(found, AttncalcError):
        raise found
    return _run_as(*found)


def _listing_or(arg: str) -> str:
    """Return what nvidia-smi printed into the file that an argument names; the argument if that is no such file."""
    if os.path.isfile(arg):
        from .launch_files import content

        with contextlib.suppress(AttncalcError, OSError):
            return data.decode("utf-8", "replace") if _is_listing(data := content(arg)) else arg
    return arg


def _is_listing(data: bytes) -> bool:
    """Return whether nvidia-smi printed all of the data."""
    from .gpu_words import read_listing

    listing = read_listing(data.decode("utf-8", "replace"))
    return bool(listing.options) and not listing.rest.strip()


def _with_listed_gpus(args: list[str]) -> list[str]:
    """Return the arguments with the GPUs that nvidia-smi printed, in an argument or on standard input."""
    from ..config.user_files import piped_in

    data = b"" if {"--gpu", "--log"} & {*args} else piped_in(is_shared="-" not in args)
    texts = [data.decode("utf-8", "replace"), *map(_listing_or, args)]
    if not re.search(r"\d ?MiB|\(UUID|nvidia\.com/gpu", " ".join(texts)):
        return args
    from .gpu_words import with_listed_gpus

    piped, *args = texts
    found, note = with_listed_gpus(args, piped)
    if found != args:
        tell(f"note: {'the node' if 'nvidia.com/gpu' in ' '.join(texts) else 'nvidia-smi'} is read as {note}")
    return found


def _other_name(name: str, *rest: str) -> list[str]:
    """Return the arguments that a word which is no command stands for: 'version'; [] if it is none of these."""
    from .reading import FOR_PROGRAMS

    if name in _LISTS and FOR_PROGRAMS & {*rest[:1]}:
        return [_LISTS[name], *rest]
    if name in _OF_LOG and not rest:
        raise MissingError(
            f"{name}: give a start-up log, or the message in quotation marks",
            f"for example, docker logs vllm 2>&1 | attncalc {name}; 'attncalc verify --smoke' checks this machine",
        )
    if name in ("--help", "-h") or (name == "--plain" and not rest):
        return ["help"]  # with options that no command has: '--help --no-color'
    is_file = name in _OF_LOG and len(rest) == 1 and " " not in rest[0]  # not a message
    if name in _OTHER_NAMES and (is_file or len(rest) == (name == "completion")):
        return [*_OTHER_NAMES[name].split(), *rest]
    asks_for_help = re.fullmatch(_ASKS_FOR_HELP, " ".join((name, *rest)).lower().rstrip("? .!"))
    return ["help"] if asks_for_help else []


def _run_as(meant: list[str], beside: list[str] | None = None) -> Any:
    """Run the command line that was meant, and name it, with further lines below it; without one they are all."""
    if meant:
        tell(f"read as: attncalc {shlex.join(meant)}", is_command=True)
    answers = [line for line in beside or () if line.startswith("answer: ")]
    for line in beside or ():
        tell(line, "    ", sys.stdout if line in answers else sys.stderr)
    is_whole = not meant or (answers and {"--quiet", "-q"} & {*meant})
    return None if is_whole else _run(meant, is_read=True)


class _NoOutput(io.TextIOBase):
    """Stands for a standard output that is closed: nothing can be written to it, but `-o FILE` needs none."""

    def write(self, text: str) -> int:
        raise AttncalcError("there is no standard output to write to", "leave standard output open; -o names a file")


def _fail_of_system(error: OSError) -> int:
    """Print why a file could not be read, or the answer not written, and return the exit code."""
    reason = (error.strerror or "unknown reason").lower()
    if error.filename is not None:  # a file that the question names: writing to a stream names none
        return _fail(f"{truncate(error.filename)}: {reason}", "check the path")
    from ..report.write import drop_output, is_closed_pipe

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
