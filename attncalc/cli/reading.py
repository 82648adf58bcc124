"""What words mean that are no usual command line: `attncalc llama3-8b h100`, `attncalc how big is qwen3-8b`.

Each word is classified: a model, a GPU, a number, a dtype, an option, an idea of the vocabulary. Then each command that
could be meant is tried: the first in which every word has a place is the reading. A reading without doubt is run. An
unknown option is a doubt, since a script may have it: then the tip has the command.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from ..config.gpus import gpu_names, gpus_of
from ..config.presets import hint, preset_names, preset_of, presets, with_file_type
from ..cost.training.optimizers import OPTIMIZERS
from ..engines import ENGINES
from ..engines.pasted import could_matter
from ..errors import AttncalcError, BadValueError, NoSuchModelError
from ..options import WEIGHTS_DTYPE
from ..records import NamedTuple
from ..units import truncate
from .command import NotUnderstoodError, names_of
from .vocabulary import FILLER, IDEAS, NEEDS, NUMBERS, PLACEHOLDERS, SAME, Idea

_PATTERNS = {
    "number": r"\d[\d_,]*[kKmM]?|\d[\dkKmM]*(?:(?:[,:]|\.\.)[\dx]+[kKmM]?)+",
    "share": r"\d*\.\d+|\d+(?:\.\d+)?%",
    "billions": r"\d+(?:\.\d+)?[bBtT]",
    "size": r"\d+(?:\.\d+)?[KMGTkmgt](?:[iI]?[bB])?",
    "time": r"\d+(?:\.\d+)?(?:ms|s|/s)",
    "attention": r"(?i)mha|mqa|gqa(?:[:-]\d+)?|mla(?:[:-]\d+)?|linear",
    "model": r"[\w.-]+/[\w.-]+|\.{0,2}/\S+|\S+\.(?:gguf|json|yaml)",
}
"""{kind of word: its pattern}, beside those that a table knows."""
_PROGRAM = r"(?i).*(launch|serve|chat|generat|build).*"
_SEVERAL = ("compare", "sweep", "plan")
"""Commands that take several models."""
_OF_WORDS = ("explain", "presets")
"""Commands that take any words."""
_DTYPE_OF = {"kv": "--kv-dtype", "compare": "--kv-dtype", "memory": "--dtype"}
_SIZES = {"--layers", "--d-model"}
"""Options of which one stands for a model."""
_GLUE = frozenset(("of", "is", "at", "in", "to", "a", "an", "as", "with"))
"""Words between an idea and its value: 'a batch of 8'."""
_MOST_IDEAS = 6
_OPTION = re.compile(r"--?[A-Za-z]")


class Item(NamedTuple):
    """A word, or several that belong together, and what it is.

    Attributes:
        kind: 'model', 'gpu', 'dtype', 'attention', 'idea', 'option', 'filler', 'unknown' or a kind of value.
        text: What it is in attncalc's words.
        typed: What was typed.
        idea: Its idea.
        value: The value of its option or idea.
        is_guess: Whether it is an unknown option, or is spelled wrong.
    """

    kind: str
    text: str
    typed: str
    idea: Idea | None = None
    value: str | None = None
    is_guess: bool = False

    @property
    def takes(self) -> tuple[str, ...]:
        """The kinds of words of which it still needs one as a value."""
        return PLACEHOLDERS.get(self.idea.takes, ()) if self.idea and self.value is None else ()


class Reading(NamedTuple):
    """A command line that words may mean.

    Attributes:
        args: The arguments.
        unread: The words that have no place in it.
        missing: Examples of what it lacks.
        notes: What else to know.
        replaced: The options that stand for unknown ones.
        is_sure: Whether it can be run without asking.
        is_new: Whether it differs from what was typed.
    """

    args: tuple[str, ...]
    unread: tuple[str, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    replaced: tuple[str, ...]
    is_sure: bool
    is_new: bool

    @property
    def command(self) -> str:
        """The whole command, with examples of what it lacks."""
        return truncate(f"attncalc {shlex.join([*self.args, *self.missing])}", 300)


def answer(args: Sequence[str], root: Any, error: AttncalcError) -> list[str] | AttncalcError:
    """Return the arguments that those of a failed command mean, or the error with the best tip."""
    from .pasted import launches

    is_unknown = isinstance(error, NotUnderstoodError)
    if is_unknown and launches(args):
        return AttncalcError(
            error.message, f"ask about it: attncalc fit --gpu GPU -- {truncate(shlex.join(args), 200)}"
        )
    asked = args[1:] if args[:1] == ["help"] else args
    words = Words(root, asked[0].lower() if asked else "")
    if "--" in args or (words.command in _OF_WORDS and error.tip):
        return error
    found = words.read(asked if asked is args else [*asked, "gpt2"])  # a model, as a command has one
    is_same = words.command in (None, found.args[0]) and asked is args
    if found.is_sure and found.is_new and is_same:
        return [*found.args]
    is_full = found.is_new and not found.unread
    if is_full and found.missing and is_same and not is_unknown:
        name = "a model" if found.missing[0] == "MODEL" else found.missing[0]
        return AttncalcError(f"{name} is required", f"for example: {found.command}")
    if is_unknown or (is_full and isinstance(error, NoSuchModelError | BadValueError)):
        tip = _tip(found, words, asked) if asked is args else f"did you mean 'attncalc help {found.args[0]}'?"
        return AttncalcError(error.message, tip)
    return error


def _tip(found: Reading, words: Words, args: Sequence[str]) -> str:
    """Return the command that the arguments mean, and what else to know."""
    command, notes = found.args[0], [*found.notes]
    if len(found.unread) >= len(args):
        return f"known: {', '.join(words.commands)}"
    for word in map(truncate, found.unread):
        is_name = re.fullmatch(r"\d+(\.\d+)?[bB]|[a-z]{3,}", word) and any(one.matches(word) for one in presets())
        models = hint(word).rstrip("? ") or (f"'attncalc presets {word}' lists models" if is_name else "")
        notes.append(("MODEL" in found.missing and models) or f"not understood: {word}")
    other = next((name for name in (*found.replaced, *args) if name.startswith("-") and not words.has(name)), None)
    if other and words.command not in (None, command):
        text = f"'attncalc {command}' has {truncate(other.partition('=')[0])}: {found.command}"
    elif len(found.replaced) == 1:
        text = f"did you mean '{found.replaced[0]}'? As in: {found.command}"
    else:
        text = f"did you mean '{found.command}'?"
    model = found.args[1] if len(found.args) > 1 and not found.args[1].startswith("-") else "MODEL"
    return "; ".join((text, *notes)).replace("?;", "?").replace("MODEL", model)


class Words:
    """Reads words, with the options of the commands and the vocabulary.

    Attributes:
        command: The command that was typed, or None.
        commands: All commands.
    """

    def __init__(self, root: Any, first: str) -> None:
        self._root, self.commands = root, root.list_commands(None)
        self.command = first if first in self.commands else None
        self._options: dict[str, dict[str, Any]] = {}
        own = self.options(self.command) if self.command else {}
        known = own.copy()
        for other in ("fit", "train", "plan", "kv", "flops"):
            known = self.options(other) | known
        self._known = known
        self._phrases = {_parts(word): idea for idea in IDEAS for word in idea.words.split()}
        self._phrases |= {(name,): Idea(name, f"train --optimizer {name}") for name in OPTIMIZERS}
        for name, means in (*zip(self.commands, self.commands, strict=True), *map(_as_fragment, known.items())):
            self._phrases.setdefault(_parts(name), Idea(name, means))
        self._phrases = {("".join(phrase),): idea for phrase, idea in self._phrases.items()} | self._phrases
        self._alike = {_essence(phrase): idea for phrase, idea in reversed(self._phrases.items())}

    def options(self, command: str) -> dict[str, Any]:
        """Return {name, or that of another tool: option} of a command."""
        if command not in self._options:
            self._options[command] = names_of(self._root.get_command(None, command))
        return self._options[command]

    def has(self, name: str) -> bool:
        """Return whether the command that was typed has an option."""
        return _hyphens(name) in self.options(self.command or "fit")

    def read(self, args: Sequence[str]) -> Reading:
        """Return what the arguments most likely mean."""
        items = self._items(args[1:] if self.command else args)
        items.sort(key=lambda item: item.idea is not None and item.value is None)  # what is given replaces examples
        readings: list[Reading] = []
        for command in self._likely(items):
            trial = _Trial(command, self.options(command), is_new=command != self.command)
            for item in items:
                trial.add(item)
            readings.append(trial.reading())
            if not readings[-1].unread:
                break
        return min(readings, key=lambda found: len(found.unread))

    def _likely(self, items: Sequence[Item]) -> list[str]:
        """Return the commands that may be meant, the likeliest first."""
        models = sum(item.kind == "model" and not item.is_guess for item in items)
        firsts = (item.idea.fragments(item.value)[:1] for item in items if item.idea)
        meant = [one.command for first in firsts for one in first if one.command]
        has_gpu = any(item.kind in ("gpu", "size") or item.text == "--gpu" for item in items)
        is_gpu = not models and {*meant} <= {"compare", "gpus", "explain"}
        order = [self.command] if self.command else [] if has_gpu or models else ["explain"]
        order += ["gpus"] * (is_gpu and any(item.kind == "gpu" for item in items))
        order += ["compare"] * (models > 1)
        order += [command for command in meant if command in ("train", "compare")]
        order += [*(command for command in meant if command in ("plan", "gpus")), "fit"] * has_gpu
        usual = ["kv", "fit", "flops", "memory", "train", "sweep", "plan", "params"]
        if any(item.kind == "dtype" for item in items):
            usual = [command for command in usual if command not in _DTYPE_OF]  # 'llama3-8b fp8' asks for no cache
        return list(dict.fromkeys([*order, *meant, *usual]))

    def _items(self, args: Sequence[str]) -> list[Item]:
        """Return what the arguments are, in order."""
        items: list[Item] = []
        bare: list[str] = []
        rest = [*reversed(args)]
        while rest:
            word = rest.pop()
            if not _OPTION.match(word):
                names = word.split(",")
                bare += names if all(map(preset_of, names)) else word.split() or [word]
                continue
            items += self._classified(bare)
            bare = []
            name, equals, value = word.partition("=")
            if not equals and rest and not _OPTION.match(rest[-1]):
                value = rest[-1]
            item = self._option(name, value)
            if item.value is not None and not equals:
                rest.pop()
                item = item._replace(value=_continued(item.value, rest))
            items.append(item)
        return _with_values([*items, *self._classified(bare)])

    def _option(self, name: str, value: str) -> Item:
        """Return what an option is, known or not, with its value if it has one."""
        own, idea = self.command and self.has(name), self._phrases.get(_parts(name))
        option = self._known.get(_hyphens(name)) if own or idea not in IDEAS else None
        if option is not None and option.opts[0] == "--output" and _kind(value) == "number":  # tokens, and no file
            option, idea = None, self._phrases[("output",)]
        if option is not None:
            is_model = option.opts[0] == "--preset" and value
            given = (value or None) if _placeholder(option) else None
            return Item("model" if is_model else "option", value if is_model else _hyphens(name), name, value=given)
        idea = idea or self._idea(name)
        dtype = self._of_phrase([name.lstrip("-")])
        if idea is None and dtype and dtype.kind == "dtype":
            return dtype._replace(typed=name, is_guess=True)
        known = self._of_phrase([value]) if value else None
        kind = known.kind if known else "unknown"
        if idea is None and known and known.kind in ("gpu", "dtype"):
            return known._replace(typed=name, value=value, is_guess=True)
        if idea is None and could_matter(name) and known is None:
            return Item("unknown", name, f"{name} {value}".rstrip(), value=value or None, is_guess=True)
        is_known, idea = idea is not None, idea or Idea(name, note="nothing here is like it")
        if idea.means.startswith("--preset") and value:
            return Item("model", value, name, value=value, is_guess=True)
        if idea.takes == "DTYPE" and (bits := re.fullmatch(r"(\d+)(\.0)?", value)):
            kind, value = "dtype", f"int{bits[1]}"
        if idea.takes:
            takes = idea.takes == "VALUE" or kind in PLACEHOLDERS[idea.takes]
        elif idea.means:
            takes = kind == "unknown" and "presets" in idea.means
        else:
            takes = is_known or kind not in ("idea", "option")
        return Item("idea", name, name, idea, value if takes and value else None, is_guess=True)

    def _idea(self, name: str) -> Idea | None:
        """Return what an unknown name means: in other words, spelled wrong, or with more words."""
        parts = _parts(name)
        if idea := self._phrases.get(parts) or self._alike.get(_essence(parts) or parts):
            return idea
        for phrase, idea in self._phrases.items():
            if len(parts) == len(phrase) and all(map(_is_alike, parts, phrase)):
                return idea
        runs = (parts[i:j] for i in range(len(parts)) for j in range(len(parts), i, -1))
        most = max((run for run in runs if run in self._phrases and _essence(run)), key=len, default=())
        return self._phrases[most] if 2 * len(_essence(most)) >= len(_essence(parts)) > 0 else None

    def _classified(self, bare: Sequence[str]) -> list[Item]:
        """Return what words without dashes are, the longest phrases first."""
        items: list[Item] = []
        text = [word.strip("?!,;'\"") or word for word in bare]
        i = 0
        while i < len(text):
            lengths = range(min(4, len(text) - i), 0, -1)
            found = ((length, item) for length in lengths if (item := self._of_phrase(text[i : i + length])))
            length, item = next(found, None) or (1, self._guessed(text[i], is_first=i == 0 and not self.command))
            i += length
            is_number = item.kind == "gpu" and items and re.fullmatch(r"\d{1,4}", items[-1].text)
            if is_number and (len(items) < 2 or not items[-2].takes):  # '8 h100', not 'batch 8 h100'
                item = item._replace(text=f"{items.pop().text}x{item.text}".removeprefix("1x"))
            items.append(item)
        return items

    def _of_phrase(self, text: Sequence[str]) -> Item | None:
        """Return what some adjoining words are together, or None."""
        joined = " ".join(text)
        lower = joined.lower()
        kind = _kind(joined)
        gpu = _gpu(lower) if kind is None or re.fullmatch(r"\d{4}s?", lower) else None
        idea = self._phrases.get(_parts(lower))
        preset = preset_of(with_file_type(joined)[0])
        preset = None if len(text) > 1 and preset == preset_of(" ".join(text[1:])) else preset  # 'chat qwen3-8b'
        bits = re.fullmatch(r"(\d{1,2})[ -]?bits?", lower)
        item = None
        if kind not in (None, "model") and not gpu:
            item = Item(kind or "", lower.replace("-", ":") if kind == "attention" else joined, joined)
        elif idea:
            item = Item("idea", joined, joined, idea)
        elif preset and (len(text) > 1 or preset == joined or re.search(r"\d|/", joined)):
            item = Item("model", preset if len(text) > 1 else joined, joined)
        elif gpu:
            item = Item("gpu", gpu, joined)
        elif bits:
            item = Item("dtype", {"16": "bf16", "32": "fp32"}.get(bits[1], f"int{bits[1]}"), joined)
        elif len(text) == 1:
            item = self._of_pair(joined) or (Item("model", joined, joined) if kind else _of_word(joined))
        return item

    def _of_pair(self, word: str) -> Item | None:
        """Return what 'ctx=8192', 'tp:2' and 'h100:4' are."""
        if (pair := re.fullmatch(r"([^=:/]+)([=:])(.+)", word)) is None:
            return None
        name, sign, value = pair.groups()
        if value.isdigit() and _gpu(name.lower()):
            return Item("gpu", f"{value}x{name}", word)
        idea = self._idea(name) if sign == "=" else self._phrases.get(_parts(name))
        if idea and idea.means.startswith("--preset"):
            return Item("model", value, word)
        return Item("idea", word, word, idea, value) if idea else None

    def _guessed(self, word: str, *, is_first: bool) -> Item:
        """Return what a word that is spelled wrong probably is."""
        known = [*("-".join(phrase) for phrase in self._phrases), *preset_names(), *gpu_names()]
        close = difflib.get_close_matches(word.lower(), known if len(word) > 2 else (), 1, 0.75)
        close = close or difflib.get_close_matches(word.lower(), self.commands if is_first else (), 1, 0.6)
        close = close or ["serve"] * (is_first and re.fullmatch(_PROGRAM, word) is not None)
        found = self._of_phrase(close) if close else None
        return found._replace(typed=word, is_guess=True) if found else Item("unknown", word, word, is_guess=True)


def _as_fragment(named: tuple[str, Any]) -> tuple[str, str]:
    """Return the name of an option, and what to type for it."""
    name, option = named
    return name, f"{option.opts[0]} {_placeholder(option)}".rstrip()


def _placeholder(option: Any) -> str:
    """Return what stands for the value of an option; '' for a flag."""
    if getattr(option, "is_flag", False):
        return ""
    metavar = (option.metavar or "").partition(",")[0].strip("[]")
    return metavar if metavar in PLACEHOLDERS else "SIZE" if metavar in ("GIB", "GB") else "VALUE"


def _hyphens(name: str) -> str:
    return f"--{name[2:].replace('_', '-')}" if name.startswith("--") else name


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[-_ ]+", name.lower()) if part)


def _essence(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the parts of a name that distinguish it: ('context',) of --max-seq-length."""
    return tuple(same for part in parts if (same := SAME.get(part, part.removesuffix("s") if len(part) > 3 else part)))


def _is_alike(part: str, known: str) -> bool:
    """Return whether a part of a name is another one that is cut off or spelled wrong: 'frac', 'bacth'."""
    is_start = len(part) > 2 and known.startswith(part)
    return is_start or difflib.SequenceMatcher(None, part, known).ratio() > 0.75


def _continued(value: str, rest: list[str]) -> str:
    """Return a value with the words after it that belong to it: '128 k', and '1k 2k 4k' as a list."""
    if value.isdigit() and rest and rest[-1] in ("k", "K", "m", "M"):
        value += rest.pop()
    while rest and _kind(value) == _kind(rest[-1]) == "number":
        value += f",{rest.pop()}"
    return value


def _kind(text: str) -> str | None:
    return next((kind for kind, pattern in _PATTERNS.items() if re.fullmatch(pattern, text)), None)


def _gpu(text: str) -> str | None:
    """Return the GPU that a text names, as an option has it: '2xrtx-3090' of '2 x 3090s'."""
    for name in (text, text.removesuffix("s")) if re.search(r"^(?!gpu:)[^=]*\d|^(cpu|local)$", text) else ():
        try:
            number, gpu = gpus_of(name)
        except AttncalcError:
            continue
        return f"{number}x{gpu.name}" if number and " " in name else name.replace(" ", "-")
    return None


def _of_word(word: str) -> Item | None:
    """Return what a single word is, or None."""
    lower = word.lower()
    item = None
    if several := re.fullmatch(r"x(\d{1,4})|(\d{1,4})x", lower):
        item = Item("option", "--gpus", word, value=several[1] or several[2])
    elif lower in ENGINES:
        item = Item("option", "--engine", word, value=lower)
    elif lower in NUMBERS:
        item = Item("number", NUMBERS[lower], word)
    elif lower in FILLER:
        item = Item("filler", word, word)
    elif _is_valid(WEIGHTS_DTYPE.parse, word, ""):
        item = Item("dtype", word, word)
    return item


def _is_valid(parse: Any, *values: str) -> bool:
    try:
        parse(*values)
    except AttncalcError:
        return False
    return True


def _with_values(items: Sequence[Item]) -> list[Item]:
    """Return the items with the values of ideas: '8' of 'batch 8', and '500' of '500 users'.

    A number between two ideas belongs to the one that leaves the fewest words without a place.
    """
    takers = [i for i, item in enumerate(items) if item.takes][:_MOST_IDEAS]

    def cost(chosen: Sequence[int | None]) -> tuple[int, int]:
        left = [item for i, item in enumerate(items) if i not in chosen and item.kind in ("number", "share", "time")]
        before = sum(j is not None and j < i for i, j in zip(takers, chosen, strict=True))
        return chosen.count(None) + sum(not _is_context(item.text) for item in left), before

    choices = product(*([*_beside(i, items), None] for i in takers))
    chosen = min((one for one in choices if len({*one} - {None}) == len(one) - one.count(None)), key=cost)
    values = {i: items[j].text for i, j in zip(takers, chosen, strict=True) if j is not None}
    return [item._replace(value=values.get(i, item.value)) for i, item in enumerate(items) if i not in chosen]


def _beside(i: int, items: Sequence[Item]) -> Iterator[int]:
    """Yield the places of the words after and before an idea that may be its value."""
    for step in (1, -1):
        j = i + step
        while 0 <= j < len(items) and items[j].kind == "filler" and items[j].text.lower() in _GLUE:
            j += step
        if 0 <= j < len(items) and items[j].kind in items[i].takes:
            yield j


def _is_context(text: str) -> bool:
    """Return whether a number alone is a context: 32k, 4096."""
    return _kind(text) == "number" and (not text.isdigit() or (len(text) > 2 and int(text[:40]) >= 256))


class _Trial:
    """One command, with what the words mean for it."""

    def __init__(self, command: str, options: dict[str, Any], *, is_new: bool) -> None:
        self._command, self._options, self._is_new = command, options, is_new
        self._found: dict[str, tuple[str, ...]] = {}
        self._arguments: list[str] = []
        self._unread: list[str] = []
        self._notes: list[str] = []
        self._replaced: list[str] = []
        self._has_guess = False

    def add(self, item: Item) -> None:
        """Find a place for an item."""
        self._has_guess |= item.is_guess and (self._command not in _OF_WORDS or item.typed.startswith("-"))
        self._is_new |= item.kind not in ("option", "model")
        if self._command in _OF_WORDS and item.kind not in ("option", "filler"):
            self._add_word(item)
        elif item.idea:
            self._add_idea(item, item.idea)
        elif item.kind == "filler" or self._add_argument(item) or (item.text, item.typed.isdigit()) == ("1", False):
            pass
        elif not (slot := self._slot(item)) or not self._set(*slot, is_further=item.kind != "option"):
            self._unread.append(item.typed)

    def _add_word(self, item: Item) -> None:
        """Add a word of 'explain' or 'presets'."""
        if item.idea and self._command in [one.command for one in item.idea.fragments(None)]:
            self._arguments[:0] = ["show"] * (item.idea.means == "presets show")
            self._arguments += [item.value] if item.value else []
        else:
            self._arguments.append(item.typed)

    def _add_argument(self, item: Item) -> bool:
        """Add an item that is an argument of this command, and return whether it is one."""
        takes = {"gpus": ("gpu",), "compare": ("model", "attention")}.get(self._command, ("model",))
        is_further = self._arguments and (item.is_guess or self._command not in (*_SEVERAL, "gpus"))
        if item.kind not in takes or (item.kind == "model" and is_further):
            return False
        self._arguments += [item.text] * (item.text not in self._arguments)
        return True

    def _slot(self, item: Item) -> tuple[str, ...] | None:
        """Return the option, and its value, that an item is for this command."""
        is_plain = self._command == "train" and re.fullmatch(r"(?i)(bf|fp|b?float)\d+", item.text)
        name = {
            "option": item.text,
            "gpu": "--gpu",
            "size": "--gpu",
            "attention": "--attention",
            "dtype": "--dtype" if is_plain else _DTYPE_OF.get(self._command, "--weights-dtype"),
            "number": "-c" if _is_context(item.text) else None,
        }.get(item.kind)
        if item.kind == "option":
            value = item.value
            is_gpu = name != "--gpu" or all(_gpu(one.lower()) or one == "all" for one in (value or "").split(","))
            is_list = value is not None and value.count(",") > item.typed.count(",") and re.search(r"\w,\w", value)
            name = name if is_gpu and (not is_list or self._takes_list(item.text)) else None
        else:
            value = (
                _size(item.text) if item.kind == "size" else item.text.replace(",", "") if name == "-c" else item.text
            )
        return None if name is None else (name,) if value is None else (name, value)

    def _takes(self, name: str, *value: str) -> bool:
        """Return whether the command has an option, with a value or without one."""
        option = self._options.get(name)
        is_optional = option is not None and str(option.metavar).startswith("[")  # '--plot' or '--plot FILE'
        return option is not None and ((is_optional and not value) or bool(value) == bool(_placeholder(option)))

    def _takes_list(self, name: str) -> bool:
        return self._command == "sweep" or ",..." in str(getattr(self._options.get(name), "metavar", ""))

    def _set(self, name: str, *value: str, is_example: bool = False, is_further: bool = False) -> bool:
        """Set an option, and return whether that is possible.

        An example leaves another value as it is; a further value makes a list of it.
        """
        if not self._takes(name, *value):
            return False
        own = self._options[name].opts[0]
        before = self._found.setdefault(own, (name, *value))
        if before[1:] == value or is_example:
            return True
        size, gpu = sorted((before[-1], *value[-1:]), key=lambda text: _kind(text) != "size")[:2]
        if own == "--gpu" and (both := _gpu(f"{gpu} {size}".lower())):  # 'a100' and '80GB'
            self._found[own] = (name, both)
        elif is_further and self._takes_list(name):
            self._found[own] = (before[0], f"{before[1]},{value[0]}")
        else:
            return False
        return True

    def _add_idea(self, item: Item, idea: Idea) -> None:
        """Add what an idea means for this command."""
        fragments = idea.fragments(_size(item.value) if item.value and idea.takes == "SIZE" else item.value)
        is_many = item.value is not None and _kind(item.value) == "billions"
        is_read = False
        for one in fragments:
            fits = one.command in ("", self._command) and all(self._takes(*pair) for pair in one.options)
            if fits and not (is_many and ("--tokens", item.value) not in one.options):
                is_example = item.value is None and idea.takes != ""
                results = [self._set(*pair, is_example=is_example) for pair in one.options]
                is_read = all(results)
                self._replaced += [pair[0] for pair in one.options if item.is_guess and is_read]
                break
        is_command = any(one.command in (self._command, "fit", "explain") and not one.options for one in fragments)
        is_nothing = not fragments and (idea.note != "" or item.text.lower() in FILLER)
        if not is_read and not is_command and not is_nothing:
            self._unread.append(f"{item.typed} {item.value}" if item.value and item.is_guess else item.typed)
            self._notes += [f"did you mean '{idea.means.split()[0]}'?"] * (item.is_guess and bool(item.takes))
        if idea.note and (item.is_guess or not idea.means):
            self._notes.append(idea.note if idea.means else f"leave out {truncate(item.typed)}: {idea.note}")
            self._has_guess = True

    def reading(self) -> Reading:
        """Return the command with everything that was added."""
        unread = [*self._unread]
        if self._command == "explain":
            from ..report.glossary import find_terms

            unread += [] if _is_valid(find_terms, " ".join(self._arguments)) else self._arguments or ["?"]
        needs_model = self._command not in ("gpus", *_OF_WORDS) and not _SIZES & self._found.keys()
        missing = ["MODEL"] if needs_model and not self._arguments else []
        for options, example in NEEDS.get(self._command, ()):
            missing += [] if {*options} & self._found.keys() else example.split()
        return Reading(
            (self._command, *self._arguments, *(word for pair in self._found.values() for word in pair)),
            tuple(unread),
            tuple(missing),
            tuple(dict.fromkeys(self._notes)),
            tuple(self._replaced),
            is_sure=not (unread or missing or self._has_guess),
            is_new=self._is_new,
        )


def _size(text: str) -> str:
    text = text.upper().replace("I", "i")
    return text if text.lower().endswith("b") else f"{text}GB" if text[-1:].isdigit() else f"{text}B"
