"""The words of a pasted command, of whatever program: which are options, values or arguments."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..config.presets import preset_of
from ..errors import clash
from ..units import hyphens, truncate

# Words of a command that are read.
MOST_WORDS = 1_000
# Characters of a command that is one text: `shlex` is quadratic in the length of a word.
_LONGEST_TEXT = 100_000


def words_of(command: Sequence[str]) -> list[str]:
    """Return the words of a command that is given as its words, or as one text with all of them."""
    is_text = len(command) == 1 and len(command[0]) <= _LONGEST_TEXT
    try:
        if is_text:
            # a shell joins lines at a backslash; shlex has a word of it
            return shlex.split(re.sub(r"\\\r?\n", " ", command[0]))
        return list(command)
    except ValueError:  # a quotation mark without its other
        return command[0].split()


def check_models(own: str | None, model: str | None) -> None:
    """Raise AttncalcError if MODEL is another model than that of the command, which is known."""
    known = preset_of(model) if model else None
    if known is not None and own is not None and preset_of(own) != known:
        raise clash(
            f"MODEL {truncate(own)}", f"{truncate(model)} of the command", "name one of them"
        )


def without_first(words: Sequence[str], word: str, options: Mapping[str, Any]) -> list[str]:
    """Return the words without the argument `word`; the same word as the value of an option
    stays.
    """
    taken = _places_of_values(words, options)
    places = (i for i, one in enumerate(words) if one == word)
    place = next(i for i in places if i not in taken)
    return [*words[:place], *words[place + 1 :]]


def _places_of_values(words: Sequence[str], options: Mapping[str, Any]) -> set[int]:
    """Return the places of the words that are values of options, whose names may have
    underscores.
    """
    takes_value = {name for name, option in options.items() if option.metavar}
    return {i + 1 for i, word in enumerate(words) if hyphens(word) in takes_value}


def first_argument(words: Sequence[str], options: Mapping[str, Any]) -> str | None:
    """Return the first of the words that is neither an option nor the value of one: the model; None
    without one.
    """
    for _, word in arguments_of(words, options):
        return word
    return None


def arguments_of(words: Sequence[str], options: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield the words that are neither options nor values of them, each after its place."""
    taken = _places_of_values(words, options)
    for i, word in enumerate(words):
        if i not in taken and not is_option(word):
            yield i, word


def value_of(*option: str, words: Sequence[str]) -> str | None:
    """Return the value of an option among words; None without it."""
    return next((value for name, value in pairwise(words) if name in option), None)


def is_option(word: str) -> bool:
    """Return whether a word is the name of an option: neither - nor a negative number."""
    return word.startswith("-") and re.fullmatch(r"-|-\d[\d.]*", word) is None
