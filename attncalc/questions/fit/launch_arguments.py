"""The arguments of a pasted command, as the engine's own parser (Python's argparse) reads them."""

from collections.abc import Sequence

from ...engines.arguments import OPTIONAL, VALUES, Argument, Arguments
from ...errors import AttncalcError
from ...records import NamedTuple
from ...units import truncate
from ..pasted_words import is_option


class Given(NamedTuple):
    """An argument as a command has it."""

    name: str  # as it is written
    whole: str  # its whole name, of which `name` may be the beginning
    argument: Argument
    values: tuple[str, ...]


def read_arguments(words: Sequence[str], arguments: Arguments) -> tuple[list[str], list[Given]]:
    """Return the words that belong to no argument, and the arguments.

    Raises AttncalcError for an argument that the engine does not have, and for one without its
    value, or with a value that it does not take.
    """
    bare = []
    found = []
    rest = [*reversed(words)]
    while rest:
        word = rest.pop()
        if is_option(word):
            found.append(_read(word, rest, arguments))
        else:
            bare.append(word)
    return bare, found


def _read(word: str, rest: list[str], arguments: Arguments) -> Given:
    """Return the argument that a word begins, whose values are taken from the end of `rest`."""
    name, has_value, value = word.partition("=")
    short = word[:2]
    if short in arguments.by_name and len(word) > 2 and name not in arguments.by_name:
        name = short  # '-qfp8' is '-q fp8'
        has_value = "="
        value = word[2:]
    whole, argument = arguments.find(name)
    if has_value and not argument.takes_value:
        raise AttncalcError(
            f"{truncate(name)} of the command takes no value", f"write {truncate(name)} alone"
        )
    if has_value:
        return Given(name, whole, argument, (value,))
    values: list[str] = []
    most = len(rest) if argument.takes == VALUES else 1
    while argument.takes_value and len(values) < most and rest and not is_option(rest[-1]):
        values.append(rest.pop())
    if argument.takes_value and argument.takes != OPTIONAL and not values:
        raise AttncalcError(
            f"{truncate(name)} needs a value", f"{arguments.title} has {whole} VALUE"
        )
    return Given(name, whole, argument, tuple(values))
