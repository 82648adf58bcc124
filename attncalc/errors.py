"""The one exception that reaches a user."""

from __future__ import annotations

from collections.abc import Iterable


class AttncalcError(Exception):
    """A question that cannot be answered as asked.

    `message` says what is wrong in one line, `tip` what to do about it. The command line prints
    both and ends with exit code `code`: 2, the question is wrong.
    """

    code = 2

    def __init__(self, message: str, tip: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.tip = tip


class CannotCheckError(AttncalcError):
    """A question that cannot be answered on this machine: no torch, no such device, no room."""

    code = 3


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """'did you mean 'llama2-70b'? ', or '' when nothing in `known` is close to `word`."""
    import difflib  # only a wrong word pays for it

    close = difflib.get_close_matches(word.lower(), sorted(known), n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'? " if close else ""
