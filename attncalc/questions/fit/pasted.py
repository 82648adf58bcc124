"""A command that starts a server, pasted as a question of `fit`: after --, at the end of the
options, or in a file that is MODEL.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ...engines import PROGRAMS
from ...options import Option
from ..pasted_words import first_argument, without_first
from .launch_files import command_in
from .launch_words import begin_of, begins_launch, expand, with_engine_json

__all__ = ["begins", "expand", "in_own_words", "split", "tip_for_option"]

# Suffixes of files that hold no launch command.
_NO_SCRIPTS = (".json", ".gguf", ".safetensors")


def begins(words: Sequence[str]) -> bool:
    """Return whether the words are a command that starts an engine, which may be one text, or run
    by another.
    """
    names_program = any(name in word for name in PROGRAMS for word in words)
    return names_program and begins_launch(words)


def split(
    words: Sequence[str], pasted: Sequence[str], options: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """Return the arguments of `fit`, and -- with the launch command behind it; [] without one.

    The command may stand without -- after the options of `fit`, or in a file that is MODEL.

    Args:
        words: The arguments before --.
        pasted: -- and what follows it; empty without --.
        options: {name: option} of `fit`.
    """
    if pasted:
        return [*words], [*pasted]
    begin = begin_of(words) if PROGRAMS.intersection(words) else None
    if begin is not None:
        return [*words[:begin]], ["--", *words[begin:]]
    file = first_argument(words, options)
    if (
        file is not None
        and (file == "-" or os.path.isfile(file))
        and not file.endswith(_NO_SCRIPTS)
    ):
        in_file = command_in(file)
        if in_file:
            return without_first(words, file, options), ["--", *in_file]
    return [*words], []


def in_own_words(words: Sequence[str], options: Mapping[str, Option]) -> list[str]:
    """Return the arguments, with an engine's JSON as options."""
    if any("{" in word for word in words):
        return with_engine_json(words, options)
    return [*words]


def tip_for_option(name: str) -> str:
    """Return '': options of engines are options of `fit`."""
    return ""
