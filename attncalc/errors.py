"""The exceptions that reach a user: AttncalcError, and its subclasses for a library that must tell
them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class Tip(str):
    """A tip that the page and a call in Python say in other words; its text is the command line's.

    Attributes:
        page: The words of the page, which has fields and a list of their values.
        python: The words of a call in Python.
    """

    def __new__(cls, terminal: str, page: str = "", python: str = "") -> Self:
        tip = super().__new__(cls, terminal)
        tip.page = page or terminal
        tip.python = python or terminal
        return tip

    page: str
    python: str

    def after(self, hint: str) -> Tip:
        """Return the tip behind a hint, which is the same everywhere: 'did you mean 'h200'? '."""
        return Tip(hint + self, hint + self.page, hint + self.python)


class AttncalcError(Exception):
    """An input that attncalc cannot work with. The command line prints it and exits with `code`.

    Attributes:
        message: what is wrong, in one line.
        tip: what to do about it, in one line; a Tip if not all say it in the same words.
        code: the exit code; 2 for a wrong input.
        further: other mistakes of the same file.
        printed: the message and the tip of the command line, if those of a call in Python name
            arguments instead.
    """

    code = 2

    def __init__(self, message: str, tip: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.tip = tip
        self.printed: tuple[str, str] | None = None
        self.further: tuple[AttncalcError, ...] = ()

    def __str__(self) -> str:  # what Python prints below a traceback
        tip = self.tip.python if isinstance(self.tip, Tip) else self.tip
        text = f"{self.message}\n  tip: {tip}" if tip else self.message
        return "\n".join([text, *map(str, self.further)])


class BadValueError(AttncalcError):
    """A value that an argument or an option cannot have: a number, a size, a dtype, a name of a GPU
    or an engine.
    """


class NoSuchModelError(AttncalcError):
    """No preset, file or repository has the name of this model."""


class NotSupportedError(AttncalcError):
    """A model, or a combination of model, engine and options, that attncalc cannot compute."""


class NetworkError(AttncalcError):
    """The hub cannot be reached, or does not answer as it should; a later call may work."""


class CannotCheckError(AttncalcError):
    """What this machine cannot do: no torch or matplotlib, no such device, or not enough memory."""

    code = 3


def clash(first: str, second: str, tip: str = "leave one of them out") -> AttncalcError:
    """Return the error about two options, as they are given, that exclude each other."""
    return AttncalcError(f"{first} cannot be combined with {second}", tip)


def is_valid(parse: Callable[..., object], *values: object) -> bool:
    """Return whether a function takes the values, and raises no AttncalcError."""
    try:
        parse(*values)
    except AttncalcError:
        return False
    return True


# Characters of a word that is compared with names: no name is near a longer one, and a comparison
# takes long.
_LONGEST_WORD = 300
# The least similarity of two names (difflib's ratio): 'ls' is no L40S, and 'whats' no weights.
_ALIKE = 0.7
# The same for a name with as many letters: 'gqq' is 'gqa'.
_ALIKE_AND_AS_LONG = 0.65


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the name in `known` that is closest to `word`; None if none is close."""
    if len(word) > _LONGEST_WORD:
        return None
    import difflib  # imported here, so that only a wrong word pays for it

    word = word.lower()
    names = sorted(known, key=lambda name: (not name.endswith("_total"), name))
    # 'flops' is flops_total, and not flops_mlp
    whole = [name for name in names if name.startswith(f"{word}_")]
    if word == "total":  # flops_total
        whole += [name for name in names if name.endswith("_total")]
    # decode_flops
    whole += [name for name in names if sorted(name.split("_")) == sorted(word.split("_"))]
    numbers = [
        name for name in names if [*filter(str.isdigit, name)] == [*filter(str.isdigit, word)]
    ]
    alike = [name for name in names if len(name) == len(word)]
    # flash3: flash_attn3
    near = (
        difflib.get_close_matches(word, some, n=1, cutoff=cutoff)
        for some, cutoff in ((numbers, _ALIKE), (names, _ALIKE), (alike, _ALIKE_AND_AS_LONG))
    )
    close = next(filter(None, (whole, *near)), None)
    if close:
        return close[0]
    return None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return 'did you mean 'llama2-70b'? ', or '' if nothing in `known` is close to `word`."""
    close = nearest(word, known)
    if close:
        return f"did you mean '{close}'? "
    return ""


def known_tip(word: str, known: Iterable[str]) -> str:
    """Return the tip for a word that is not known: 'did you mean 'h200'? known: h100, h200'."""
    known = list(known)
    hint = did_you_mean(word, known)
    if len(known) > (16 if hint else 40):
        listed = [*known[:12], "..."]
    else:
        listed = known
    return f"{hint}known: {', '.join(listed)}"
