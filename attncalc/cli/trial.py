"""Try a command line without its answer: whether its options exist, and whether the command accepts their values."""

import contextlib
import io
import os
from collections.abc import Callable, Sequence
from typing import Any

import typer

from ..errors import AttncalcError, CannotCheckError, NetworkError
from .command import own_error

_OFFLINE = "HF_HUB_OFFLINE"
_trials: list[None] = []


def accepted(*checks: Callable[[], Any]) -> None:
    """End a trial if the last checks of a request pass. Without a trial, do nothing.

    A command calls it when it has read its request, before it computes or writes an answer.
    """
    if _trials:
        for check in checks:
            check()
        raise typer.Exit


def printed_by(root: Any, args: Sequence[str]) -> str:
    """Return what a command prints, '' if it does not work."""
    text, errors = io.StringIO(), io.StringIO()
    refused = contextlib.suppress(AttncalcError, typer.TyperException)
    with refused, contextlib.redirect_stdout(text), contextlib.redirect_stderr(errors):
        root.main([*args], standalone_mode=False, prog_name="attncalc")
    return text.getvalue()


def problem_of(root: Any, args: Sequence[str]) -> AttncalcError | None:
    """Return why a command line does not work; None if it does, or if only the hub or another machine can tell.

    Nothing is printed, written or downloaded.
    """
    if "-" in args:
        return None  # standard input can be read only once
    before = os.environ.get(_OFFLINE)
    os.environ[_OFFLINE] = "1"
    _trials.append(None)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            root.main([*args], standalone_mode=False, prog_name="attncalc")
    except (NetworkError, CannotCheckError):
        return None
    except (AttncalcError, typer.TyperException) as error:
        return own_error(error)
    finally:
        _trials.pop()
        del os.environ[_OFFLINE]
        if before is not None:
            os.environ[_OFFLINE] = before
    return None
