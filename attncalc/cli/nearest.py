"""Tips for a word that the command line does not have: the nearest declared name, or what has that
name elsewhere.
"""

import difflib
import os
from collections.abc import Iterable, Mapping

from ..config.presets import preset_of
from ..engines import PROGRAMS
from ..units import hyphens, truncate

# The least similarity of two names (difflib's ratio), so that 'contxt' is 'context', and 'serve' is
# nothing.
_ALIKE = 0.7
# The same for a name of other tools, which help does not list: '--seq_lenn' is '--seq-len'.
_VERY_ALIKE = 0.85
# Characters of a word that are compared: difflib takes the square of the length.
_LONGEST = 40
_VERSION = ("version", "v")


def nearest(word: str, names: Iterable[str], alike: float = _ALIKE) -> str | None:
    """Return the name that resembles a word most, or that begins with it; None if no name does."""
    bare = {name.lstrip("-"): name for name in names}
    typed = word.lstrip("-")[:_LONGEST].lower()
    longer = [name for name in bare if name.startswith(typed)]
    if len(longer) == 1 and len(typed) > 2:
        return bare[longer[0]]
    close = difflib.get_close_matches(typed, bare, n=1, cutoff=alike)
    if close:
        return bare[close[0]]
    return None


def tip_for_command(word: str, commands: Mapping[str, str]) -> str:
    """Return the tip for a word that is no command: what it may be instead, or the nearest
    command.
    """
    named = truncate(word)
    if word in _VERSION:
        return "did you mean 'attncalc --version'?"
    if " " in word.strip():
        return (
            "'attncalc help' lists the commands; a log or an engine's message is read by "
            "'attncalc fit --log FILE'"
        )
    command = nearest(word, commands)
    if word in PROGRAMS:
        tip = (
            "a command that starts a server is as 'vllm serve MODEL', and may follow 'attncalc "
            "fit --'"
        )
    elif command:
        tip = f"did you mean 'attncalc {command}'?"
    elif word.endswith(".log") and os.path.isfile(word):
        tip = f"did you mean 'attncalc fit --log {named}'?"
    elif _is_model(word):
        tip = f"did you mean 'attncalc kv {named}'?"
    else:
        tip = f"known: {', '.join(commands)}"
    return tip


def _is_model(word: str) -> bool:
    """Return whether a word names a model: a preset, a file or folder, or a repository."""
    if word.startswith("-") or len(word) > 255:
        return False
    return preset_of(word) is not None or os.path.exists(word) or word.count("/") == 1


def tip_for_option(
    word: str, own: Mapping[str, str], others: Mapping[str, Mapping[str, str]], path: str
) -> str:
    """Return the tip for an option that a command does not have.

    Args:
        word: The option, as it was typed.
        own: {name: the option's first name} of the command.
        others: The same of each other command.
        path: The command, as 'attncalc kv'.
    """
    name = hyphens(word)
    commands = [command for command, names in others.items() if name in names]
    # sweep writes columns, and has no figures of one answer
    if name == "--get" and "--columns" in own:
        return "did you mean '--columns'?"
    if commands:
        return _have_it([f"'attncalc {command}'" for command in commands[:3]])
    close = nearest(name, [other for other in own if own[other] == other]) or nearest(
        name, own, _VERY_ALIKE
    )
    if close:
        return f"did you mean '{own[close]}'?"
    return f"'{path} --help all' lists all options"


def _have_it(commands: list[str]) -> str:
    """Return "'attncalc fit' and 'attncalc plan' have it"."""
    *most, last = commands
    if not most:
        return f"{last} has it"
    return f"{', '.join(most)} and {last} have it"
