"""The words that people bring from other tools and from their own language, and what to type for them.

One line per idea. The names of declared options and commands need no line: `Phrases` takes them too.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from .records import NamedTuple

PLACEHOLDERS = {
    "N": ("number", "billions"),
    "RANK": ("number",),
    "SIZE": ("size", "number"),
    "DTYPE": ("dtype",),
    "SHARE": ("share",),
    "GPU": ("gpu", "size"),
    "HOST": ("size",),
    "DRAFT": ("model",),
    "KIND": ("attention",),
    "MODEL": (),
    "VALUE": ("number", "share", "time", "size"),
}
"""{what stands for a value: the kinds of words that it takes}."""


class Fragment(NamedTuple):
    """A part of a command line: the command, or '' for any, and options with their values."""

    command: str
    options: tuple[tuple[str, ...], ...]


class Idea(NamedTuple):
    """An idea that has other words elsewhere."""

    words: str  # the words that mean it, separated by blanks; 'per-token' is also the phrase 'per token'
    # What to type for it: a command, options, or both; a placeholder stands for the value beside it. ' | ' separates
    # alternatives, of which the first counts that the command has
    means: str = ""
    alone: str = ""  # what to type instead if no value is beside it
    note: str = ""  # what else to know about it
    lacks: str = ""  # what attncalc does not count of it, which is always said
    example: str = ""  # instead of `alone`: one with a value of ours, which a person has to choose

    @property
    def takes(self) -> str:
        """What stands for its value; '' if it has none."""
        found = re.search(rf"\b({'|'.join(PLACEHOLDERS)})\b", self.means)
        return found[1] if found else ""

    def fragments(self, value: str | None) -> list[Fragment]:
        """Return the alternatives, with the value in its place."""
        text = self.means if value is not None or not self.takes else self.alone or self.example
        found = []
        for part in filter(None, text.split(" | ")):
            words = part.split()
            command = "" if words[0].startswith("-") else words.pop(0)
            options: list[tuple[str, ...]] = []
            for word in words:
                if word.startswith("-"):
                    options.append((word,))
                else:
                    filled = (
                        re.sub(rf"^(\w*[=:+>/])?{self.takes}$", lambda m: _prefixed(m[1] or "", str(value)), word)
                        if self.takes
                        else word
                    )
                    options[-1:] = [(*options[-1], filled)] if options else [(filled,)]
            found.append(Fragment(command, tuple(options)))
        return found

    def sets(self, name: str) -> bool:
        """Return whether it sets options of this command, or a value of this option: 'nf4' of --weights-dtype."""
        return self.means.startswith(f"{name} -") or f" {name} " in self.alone

    def votes(self, value: str | None) -> list[tuple[str, float]]:
        """Return the commands that it speaks for, with their weights: `fit` suits most questions, and counts less."""
        commands = list(dict.fromkeys(one.command for one in self.fragments(value) if one.command))
        first = 2 - (commands[:1] == ["fit"])
        return [(command, first / 2**i) for i, command in enumerate(commands)]


def _prefixed(prefix: str, value: str) -> str:
    """Return 'mla:128,mla:256' for '128,256', and 'targets=q+v' for 'q,v'."""
    value = value.replace(",", "+") if prefix == "targets=" else value
    return ",".join(f"{prefix}{one}" for one in value.split(","))


UNLIKE = "nothing here is like it"  # the note about an option that resembles none, without which a person is answered
ALL_SHOWN = "all figures are shown"  # the note about an option that selects some, which a program needs
NO_FIGURE = "it changes no figure"
"""The note about words that may be left out, with their values."""


def _idea(line: str) -> Idea:
    """Return the idea of a line of vocabulary.txt."""
    text, *others = re.split("  (?=alone: |note: |lacks: |example: )", line)
    words, _, means = text.partition(" =")
    return Idea(words, means.strip(), **dict(other.split(": ", 1) for other in others))


_LINES = Path(__file__).with_name("vocabulary.txt").read_text(encoding="utf-8").splitlines()
_NAMED = dict(line.split(": ", 1) for line in _LINES if re.match("[A-Z_]+: ", line))
IDEAS = tuple(_idea(line) for line in _LINES if re.match("[^#A-Z]", line))
FILLER, GLUE, NEGATIONS, COUNTS, THIS_MACHINE, OTHER_SIZES = (
    frozenset(_NAMED[name].split()) for name in ("FILLER", "GLUE", "NEGATIONS", "COUNTS", "THIS_MACHINE", "OTHER_SIZES")
)
NUMBERS, SAME, SYMBOLS, CLOUDS, MESSAGES = (
    dict(pair.split("=") for pair in _NAMED[name].split())
    for name in ("NUMBERS", "SAME", "SYMBOLS", "CLOUDS", "MESSAGES")
)
REWRITES = [line.removeprefix("REWRITE ").split(" -> ") for line in _LINES if line.startswith("REWRITE ")]
"""Patterns of words and what they mean, which is written in their place before each word is read."""


class Phrases(dict[tuple[str, ...], Idea]):
    """{words of a phrase: its idea}: those of the vocabulary, before those of the names of options and commands."""

    def __init__(self, names: Iterable[tuple[str, Idea]]) -> None:
        known = {parts_of(word): idea for idea in IDEAS for word in idea.words.split()}
        for name, idea in names:
            known.setdefault(parts_of(name), idea)
        super().__init__({("".join(phrase),): idea for phrase, idea in known.items()} | known)
        self._alike = {_essence(phrase): idea for phrase, idea in reversed(self.items())}

    def of(self, name: str) -> Idea | None:
        """Return what exactly these words mean."""
        parts = parts_of(name)
        plural = (*parts[:-1], f"{parts[-1]}s") if parts[1:] else ()  # '1 kv head'
        return self.get(parts) or self.get(("".join(parts),)) or self.get(plural)  # 'adamw 8bit' is adamw8bit

    def same_as(self, name: str) -> Idea | None:
        """Return what the name of an option means, if its parts mean that too: --max-seq-length is --context."""
        parts = parts_of(name)
        return self.get(parts) or self._alike.get(_essence(parts) or parts)

    def like(self, name: str) -> Idea | None:
        """Return what an unknown name means: in other words, spelled wrong, or with more words."""
        parts = parts_of(name)
        if idea := self.same_as(name):
            return idea
        for phrase, idea in self.items():
            if len(parts) == len(phrase) and all(map(_is_alike, parts, phrase)):
                return idea
        runs = (parts[i:j] for i in range(len(parts)) for j in range(len(parts), i, -1))
        most = max((run for run in runs if run in self and _essence(run)), key=len, default=())
        # '--no-kv-cache' is not the cache, and '--no-wandb' changes no figure either
        is_denied = not NEGATIONS.isdisjoint({*parts} - {*most}) and most in self and self[most].note != NO_FIGURE
        return self[most] if 2 * len(_essence(most)) >= len(_essence(parts)) > 0 and not is_denied else None


def parts_of(name: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[-_ ]+", name.lower().replace("'", "")) if part)


def _essence(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the parts of a name that distinguish it: ('context',) of --max-seq-length."""
    both = ((part, part.removesuffix("s") if len(part) > 3 else part) for part in parts)
    return tuple(same for part, singular in both if (same := SAME.get(part, SAME.get(singular, singular))))


def _is_alike(part: str, known: str) -> bool:
    """Return whether a part of a name is another one that is cut off or spelled wrong: 'frac', 'bacth'."""
    is_start = len(part) > 2 and known.startswith(part)
    return is_start or difflib.SequenceMatcher(None, part, known).ratio() > 0.75


ASSUMED = ("--prompt", "--output-len", "--mfu", "--layers", "--gpu all", "--other-memory")
"""Options whose example is assumed without a value, as it is a usual one: an answer names it."""
ASSUMED_IN_WORDS = ("--gpu h100", "--gpu 8xh100", "--context", "--gpu cpu", "--users", "--heads", "--head-dim", "MODEL")
"""Further ones that a question assumes without a command."""
ON_GPU = ("options of a GPU",)
"""Stands for the options that mean nothing without --gpu, as -ngl."""
_NEEDS = [match for line in _LINES if (match := re.fullmatch(r"NEEDS (\w+): (.*) \? (.*) : (.*)", line))]
NEEDS = {
    command: tuple(
        (tuple(filter(None, one[2].split(","))), one[3].split(), one[4]) for one in _NEEDS if one[1] == command
    )
    for command in ("fit", "train", "plan", "sweep", "sizes")
}
"""{command: (if one of these is given, it needs one of these options, an example)}; () is always. 'sizes' is for a
model that is described by its sizes.
"""
