"""What words mean that are no usual command line: `attncalc llama3-8b h100`, `attncalc how big is qwen3-8b`.

Each word is classified: a model, a GPU, a number, a dtype, an option, an idea of the vocabulary. Then each command that
could be meant is tried: the first in which every word has a place is the reading. A reading without doubt is run. An
unknown option is a doubt, since a script may have it: then the tip has the command.
"""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..api.fit_options import EngineOptions
from ..config.presets import hint, preset_of, presets, unquantized
from ..errors import AttncalcError, BadValueError, MissingError
from ..options import options_of
from ..records import NamedTuple
from ..units import parse_count, truncate
from ..vocabulary import ASSUMED, FILLER, NEEDS, NO_FIGURE, OF_SIZES, ON_GPU, Idea
from .command import NotUnderstoodError
from .trial import problem_of
from .words import OF_MODEL, Item, Words, gpu_in, hyphens, is_context, is_valid, kind_of, placeholder

_USUAL = ("kv", "fit", "train", "flops", "memory", "params", "plan", "sweep", "compare", "gpus", "presets", "explain")
"""Commands that words can mean, the most usual first."""
_SEVERAL = ("compare", "sweep", "plan")
"""Commands that take several models."""
_OF_WORDS = ("explain", "presets")
"""Commands that take any words."""
_DTYPE_OF = {"kv": "--kv-dtype", "compare": "--kv-dtype", "sweep": "--kv-dtype", "memory": "--dtype"}
_OTHER_MODELS = "'attncalc presets' lists the built-in models; other models: 'attncalc kv org/name' or a config.json"
_MOST_TRIALS = 3
_ANY_MODEL = "llama3.1-8b"
"""The model with which a command without one is tried."""
_WITH_SIZE = {"gqa": "gqa:8", "mla": "mla:512"}
"""Kinds of attention that need a size, with a usual one."""
_OF_ONE = {"--quants", "--roofline", "--log"}
"""Options of `fit` about one model; without them and with a GPU it lists the models that fit."""
_FOR_PROGRAMS = frozenset(("--json", "--format", "--output", "-o", "--fail-if", "--quiet"))
"""Options of an answer that a program reads."""
_OF_RELEASED = ("compare", "sweep")
"""Commands in which they do not: these need a model that they change."""


_MESSAGE = r"[\w.]*(Error|Exception): |(INFO|WARNING|ERROR) [^ ]"
"""How a line of a log begins that was pasted in the place of a question."""


class Reading(NamedTuple):
    """A command line that words may mean."""

    args: tuple[str, ...]  # the arguments
    unread: tuple[str, ...]  # the words that have no place in it
    left_out: tuple[str, ...]  # those that can change no figure
    missing: tuple[str, ...]  # examples of what it lacks
    assumed: tuple[str, ...]  # options with usual values, which it has without being asked
    notes: tuple[str, ...]  # what else to know
    lacks: tuple[str, ...]  # what attncalc does not count of what was typed
    replaced: tuple[str, ...]  # the options that stand for unknown ones
    doubts: tuple[Item, ...]  # what is unknown, or spelled wrong
    is_sure: bool  # whether it can be run without asking
    is_new: bool  # whether it differs from what was typed, or assumes something

    @property
    def beside(self) -> list[str]:
        """Lines about the reading, beside the command."""
        found = [("not read", ", ".join(self.left_out)), ("assumed", ", ".join(self.assumed))]
        return [
            f"{name}: {truncate(text, 300)}"
            for name, text in (*found, *(("note", each) for each in self.lacks))
            if text
        ]

    @property
    def whole(self) -> list[str]:
        """The arguments of a command that works, with examples of what it lacks."""
        needs_model = "MODEL" in self.missing
        examples = [word for example in self.missing if example != "MODEL" for word in example.split()]
        return [self.args[0], *["MODEL"] * needs_model, *self.args[1:], *examples]

    @property
    def command(self) -> str:
        """The whole command."""
        return truncate(f"attncalc {shlex.join(self.whole)}", 300)


def answer(args: Sequence[str], root: Any, error: AttncalcError) -> tuple[list[str], list[str]] | AttncalcError:
    """Return the arguments that those of a failed command mean, with what to say beside them; or the error with the
    best tip.

    Only a command that works is returned or named in a tip. If none does, the error has the reason as a further one.
    """
    from .pasted import launches

    is_unknown = isinstance(error, NotUnderstoodError)
    if is_unknown and re.match(_MESSAGE, text := " ".join(args)):
        sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()))
        return ["explain", "preemption"] if "preempted" in text else ["fit", "--log", "-"], []
    if is_unknown and launches(args):
        launch = _about_launch(args, root, error)
        return launch if isinstance(launch, AttncalcError) else (launch, [])
    asked = args[1:] if args[:1] == ["help"] else args
    words = Words(root, asked)
    asks_formulas = words.command == "explain" and any(item.kind == "model" for item in words.items(asked[1:]))
    if asks_formulas:
        args = asked = [*asked[1:], "--explain"]  # 'explain params gpt2' asks for the formulas of that model
        words, is_unknown = Words(root, asked), True
    if "--" in args or (words.command in _OF_WORDS and error.tip):
        return error if error.tip else AttncalcError(error.message, f"known: {', '.join(words.commands)}")
    readings = _read(words, asked if asked is args else [*asked, "gpt2"])  # a model, as a command has one
    readings = [one._replace(is_new=True) for one in readings] if asks_formulas else readings
    found = readings[0]
    if is_unknown and asked is not args:
        return AttncalcError(error.message, f"did you mean 'attncalc help {found.args[0]}'?")
    lacks = isinstance(error, MissingError) and "MODEL" not in found.missing
    if asked is args and (is_unknown or ((found.is_new or lacks) and not found.unread)):
        whole = [one for one in readings if is_unknown or not one.unread]
        return _tried(whole, words, asked, root, error)
    return error


def with_built_in(args: Sequence[str], error: AttncalcError) -> tuple[list[str], list[str]] | AttncalcError:
    """Return the arguments with the built-in model of the same name, if the hub cannot be reached; or the error.

    A program gets the error: the model on the hub may differ.
    """
    found = [*args]
    for i, word in enumerate(args):
        name, _, tag = word.partition(":")
        copy = unquantized(name) if "/" in name else None
        preset = copy[0] if copy else preset_of(name.rpartition("/")[2]) if "/" in name else None
        if preset is None or word.startswith("-") or not _FOR_PROGRAMS.isdisjoint(args):
            continue
        found[i] = preset
        dtype = tag.lower() or (copy[1] if copy else "")
        if dtype and args[0] in ("fit", "train") and "--weights-dtype" not in args:
            found[1:1] = ["--weights-dtype", dtype]
        return found, [f"note: {truncate(error.message, 150)}; the built-in {preset} has that name"]
    return error


def _about_launch(args: Sequence[str], root: Any, error: AttncalcError) -> list[str] | AttncalcError:
    """Return `attncalc fit` of a pasted launch command, whose engine has no option --gpu; or why it does not work."""
    i = args.index("--gpu") if "--gpu" in args[:-1] else len(args)
    gpu, command = args[i : i + 2], ["--", *args[:i], *args[i + 2 :]]
    problem = problem_of(root, ["fit", *gpu, *command])
    if problem and not gpu and not problem_of(root, ["fit", "--gpu", "h100", *command]):
        return AttncalcError(
            error.message, f"ask about it: {truncate(f'attncalc fit --gpu GPU {shlex.join(command)}', 250)}"
        )
    return problem or ["fit", *gpu, *command]


def _tried(
    readings: Sequence[Reading], words: Words, args: Sequence[str], root: Any, error: AttncalcError
) -> tuple[list[str], list[str]] | AttncalcError:
    """Return the arguments of the first reading that works, or the error with the best tip.

    It is run if nothing in it is a guess. A program's answer also has the command that was typed, and all words.
    """
    trials = (
        (one, problem_of(root, [_ANY_MODEL if each == "MODEL" else each for each in one.whole]))
        for i, one in enumerate(readings)
        if i == 0 or one.args[0] not in ("sweep", "explain")  # whose rows would have the error, or which has no words
    )
    first = next(trials)
    found, problem = first if first[1] is None else next((trial for trial in trials if trial[1] is None), first)
    is_same = words.command in (None, found.args[0])
    is_doubtful = found.left_out or found.assumed or not is_same or isinstance(error, BadValueError)
    is_strict = is_doubtful and not _FOR_PROGRAMS.isdisjoint(found.args)
    if found.is_sure and found.is_new and not is_strict and (is_same or problem is None):
        return problem or ([*found.args], found.beside)
    if not isinstance(error, NotUnderstoodError):
        if problem or ("MODEL" in found.missing and (found.unread or found.left_out)):  # 'kv no-such-model'
            return error
        if found.missing and is_same and isinstance(error, MissingError):
            return error if "MODEL" in found.missing else AttncalcError(error.message, f"for example: {found.command}")
    tip = _tip(found, words, args, works=problem is None)
    whole = AttncalcError(_message(found, words, args, error), tip)
    whole.further = (problem,) if problem else ()
    return whole


def _message(found: Reading, words: Words, args: Sequence[str], error: AttncalcError) -> str:
    """Return the message of an error. Without a command it is about what is not understood: 'qwen3-8b --vram 8GB'."""
    if words.command or len(args) == 1:
        return error.message
    options = [item for item in found.doubts if item.typed.startswith("-")]
    for item in options:
        if words.has(item.typed, found.args[0]):
            return f"{item.typed} cannot be '{truncate(item.value)}'" if item.value else f"{item.typed} needs a value"
    if options:
        return f"no such option: {', '.join(dict.fromkeys(item.typed for item in options))}"
    unread = [*found.unread, *found.left_out, *(item.typed for item in found.doubts)]
    if unread:
        return f"not understood: {truncate(', '.join(dict.fromkeys(unread)))}"
    missing = " and ".join(example.split()[0].replace("MODEL", "a model") for example in found.missing)
    return f"the question lacks {missing}" if missing else error.message


def _tip(found: Reading, words: Words, args: Sequence[str], *, works: bool) -> str:
    """Return the command that the arguments mean if it works, and what else to know."""
    command = found.args[0]
    notes = [note for note in (*found.notes, *found.lacks) if f"'attncalc {command} " not in note]
    unread = [*found.unread, *(word for word in found.left_out if " (" not in word)]
    if len(unread) >= len(args):
        names_model = re.fullmatch(r"(?=.*\d)[A-Za-z][\w.]*[-:.\d][\w.:-]*", args[0])
        return f"{hint(args[0])}{_OTHER_MODELS}" if names_model else f"known: {', '.join(words.commands)}"
    for word in map(truncate, unread):
        is_name = re.fullmatch(r"\d+(\.\d+)?[bB]|[a-z]{3,}", word) and any(one.matches(word) for one in presets())
        models = hint(word).rstrip("? ") or (f"'attncalc presets {word}' lists models" if is_name else "")
        is_model = "MODEL" in found.missing or models.startswith("which one")
        notes.append((is_model and models) or f"not understood: {word}")
    others = [name.partition("=")[0] for name in args if name.startswith("-") and not words.has(name)]
    other = next((name for name in (*found.replaced, *others) if words.has(name, command)), None)
    if other and words.command not in (None, command):
        text = f"'{command}' has {truncate(other)}" + f": {found.command}" * works
    elif len(found.replaced) == 1:
        text = f"did you mean '{found.replaced[0]}'?" + f" As in: {found.command}" * works
    elif not works:
        text = f"'attncalc {command} --help' lists its options"
    else:
        text = f"for example: {found.command}" if "MODEL" in found.missing else f"did you mean '{found.command}'?"
    model = found.args[1] if len(found.args) > 1 and not found.args[1].startswith("-") else _ANY_MODEL
    return "; ".join((text, *notes)).replace("?;", "?").replace("MODEL", model)


def _read(words: Words, args: Sequence[str]) -> list[Reading]:
    """Return what the arguments may mean, the likeliest first: what leaves the fewest words unread."""
    typed = words.items(args[1:] if words.command else args)
    items = sorted(
        typed, key=lambda item: item.idea is not None and item.value is None
    )  # what is given replaces examples
    readings: list[Reading] = []

    def gaps(one: Reading) -> int:
        """Return how many words have no place, or one that is doubted; a command that was typed may have doubts."""
        return len(one.unread) + (0 if words.command else len(one.doubts))

    for command in _likely(words.command, items):
        trial = _Trial(command, words.options(command), words.command)
        for item in typed if command in _OF_WORDS else items:
            trial.add(item)
        readings.append(trial.reading())
        if not gaps(readings[-1]):
            break
    return sorted(readings, key=gaps)[:_MOST_TRIALS]


def _likely(typed: str | None, items: Sequence[Item]) -> list[str]:
    """Return the commands that may be meant, the likeliest first: each word votes for those that it is said of."""
    votes = dict.fromkeys(_USUAL, 0.0)
    kinds = Counter(item.kind for item in items if item.kind != "model" or not item.is_guess)
    for item in items:
        if item.kind == "idea" and item.idea:
            for command, weight in item.idea.votes(item.value):
                votes[command] = votes.get(command, 0) + weight
    has_load = any("--users" in (item.idea.means if item.idea else item.text) for item in items)
    votes["plan"] -= 1.5 * (not has_load and not any(item.text == "--rate" for item in items))
    votes["compare"] += 3 * (kinds["model"] > 1)
    votes["gpus"] += not kinds["model"] and kinds["gpu"] > 0
    # 'llama3-8b fp8' asks for no cache, and 'vllm llama3-8b' for all memory
    votes["fit"] += (kinds["dtype"] > 0) / 2 + any(item.text == "--engine" or item.typed == "gpu" for item in items)
    votes["explain"] += 5 * (not kinds["model"])
    votes["presets"] += 9 * all(item.kind == "unknown" for item in items)  # 'qwen'
    if typed:
        votes[typed] = 99
    return sorted(votes, key=lambda command: -votes[command])


class _Trial:
    """One command, with what the words mean for it."""

    def __init__(self, command: str, options: dict[str, Any], typed: str | None) -> None:
        self._command, self._options, self._typed = command, options, typed
        self._is_new, self._is_asked = command != typed, command == typed
        self._found: dict[str, tuple[str, ...]] = {}
        self._arguments: list[str] = []
        self._unread: list[str] = []
        self._left_out: list[str] = []
        self._assumed: list[str] = []
        self._notes: list[str] = []
        self._lacks: list[str] = []
        self._replaced: list[str] = []
        self._doubts: list[Item] = []
        self._has_example = False
        self._follows_a_model = False

    def add(self, item: Item) -> None:
        """Find a place for an item."""
        if item.idea and item.typed.startswith("-") and self._takes(hyphens(item.text), *filter(None, (item.value,))):
            item = Item("option", hyphens(item.text), item.typed, value=item.value)  # this command has it
        if item.is_guess and not item.is_exact and (self._command not in _OF_WORDS or item.typed.startswith("-")):
            self._doubts.append(item)
        self._is_asked |= item.idea is not None and self._command in dict(item.idea.votes(item.value))
        is_usual = (item.kind == "option" and item.typed.startswith("-")) or (
            item.kind == "model" and item.text in (item.typed, item.value)
        )
        self._is_new |= item.is_guess or not is_usual
        is_name = self._typed in ("presets", "gpus") or (self._typed in _SEVERAL and self._follows_a_model)
        self._follows_a_model = item.kind == "model"  # 'compare gpt2 foo': another model, probably
        if item.kind == "plain" and self._command != "explain" and not is_name:
            self._left_out.append(item.typed)
        elif self._command in _OF_WORDS and item.kind != "filler" and not (item.kind == "option" and is_usual):
            self._add_word(item)
        elif item.idea:
            self._add_idea(item, item.idea)
        elif item.kind == "filler" or self._add_argument(item) or (item.text, item.typed.isdigit()) == ("1", False):
            pass
        elif not (slot := self._slot(item)) or not self._set(*slot, is_further=item.kind != "option"):
            self._unread.append(item.typed)

    def _add_word(self, item: Item) -> None:
        """Add a word of 'explain' or 'presets'."""
        means = item.idea.words.split() if item.idea and self._command == "explain" and not item.is_guess else []
        words = [item.typed, *means]
        term = next((word for word in words if _is_term(word)), None)
        is_own = item.idea is not None and self._command in [one.command for one in item.idea.fragments(None)]
        is_name = item.kind in ("model", "unknown", "plain") or self._typed == "presets"
        if self._command == "presets" and not (is_name or is_own):
            self._unread.append(item.typed)
        elif self._command == "explain" and term:
            self._arguments.append(term)
        elif self._command == "explain" and re.search(r"\d", item.value or ""):
            self._unread.append(item.typed)
        elif item.idea and is_own:
            self._arguments[:0] = ["show"] * (self._command == "presets" and item.idea.means.startswith("presets show"))
            self._arguments += [item.value] if item.value else []
        else:
            self._arguments.append(item.typed)

    def _add_argument(self, item: Item) -> bool:
        """Add an item that is an argument of this command, and return whether it is one."""
        takes = {"gpus": ("gpu",), "compare": ("model", "attention")}.get(self._command, ("model",))
        is_of_option = item.is_guess and item.value is not None
        is_further = self._arguments and (is_of_option or self._command not in (*_SEVERAL, "gpus"))
        if item.kind not in takes or (item.kind == "model" and is_further):
            return False
        self._arguments += [item.text] * (item.text not in self._arguments)
        if item.kind == "model" and item.is_guess and (models := hint(item.typed)).startswith("which one"):
            self._notes.append(models.rstrip("? "))
        if item.kind == "model" and item.is_exact and item.text not in (item.typed, item.value):
            self._assumed.append(f"{item.text} for {item.typed}")
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
            "number": "-c" if is_context(item.text) else None,
        }.get(item.kind)
        if item.kind == "option":
            value = item.value
            is_gpu = name != "--gpu" or all(gpu_in(one.lower()) or one == "all" for one in (value or "").split(","))
            is_list = value is not None and value.count(",") > item.typed.count(",") and re.search(r"\w,\w", value)
            name = name if is_gpu and (not is_list or self._takes_list(item.text)) else None
        else:
            value = item.text.replace(",", "") if name == "-c" else _WITH_SIZE.get(item.text, item.text)
            value = _size(value) if item.kind == "size" else value
        return None if name is None else (name,) if value is None else (name, value)

    def _takes(self, name: str, *value: str) -> bool:
        """Return whether the command has an option, with a value or without one."""
        option = self._options.get(name)
        is_optional = option is not None and str(option.metavar).startswith("[")  # '--plot' or '--plot FILE'
        return option is not None and ((is_optional and not value) or bool(value) == bool(placeholder(option)))

    def _takes_list(self, name: str) -> bool:
        return self._command == "sweep" or ",..." in str(getattr(self._options.get(name), "metavar", ""))

    def _set(self, name: str, *value: str, is_example: bool = False, is_further: bool = False) -> bool:
        """Set an option, and return whether that is possible.

        An example leaves another value as it is; a further value makes a list of it.
        """
        if not self._takes(name, *value):
            return False
        own = self._options[name].opts[0]
        if own == "--weights-dtype" and "--quants" in self._found:
            return is_further
        before = self._found.setdefault(own, (name, *value))
        if before[1:] == value or is_example:
            return True
        two = sorted((*before[1:], *value), key=lambda text: kind_of(text) == "size")
        if own == "--gpu" and [kind_of(text) for text in two[1:]] == ["size"] and kind_of(two[0]) != "size":
            sized = re.sub(r"-\d+gb (?=\d)", " ", " ".join(two).lower())  # an M3 Ultra is the largest until '96gb'
            self._found[own] = (name, gpu_in(sized) or "-".join(two).lower())  # 'a100' and '80GB'
        elif own == "--weights-dtype" and all(re.match("i?q\\d", each) for each in two) and self._takes("--quants"):
            del self._found[own]
            self._found["--quants"] = ("--quants",)  # 'q4 or q8'
        elif is_further and self._takes_list(name):
            self._found[own] = (before[0], f"{before[1]},{value[0]}")
        else:
            return False
        return True

    def _add_idea(self, item: Item, idea: Idea) -> None:
        """Add what an idea means for this command."""
        fragments = idea.fragments(_size(item.value) if item.value and idea.takes == "SIZE" else item.value)
        is_many = item.value is not None and kind_of(item.value) == "billions"
        is_read = False
        text = f"{item.typed} {item.value}" if item.value and item.is_guess else item.typed
        for one in fragments:
            fits = one.command in ("", self._command) and all(self._takes(*pair) for pair in one.options)
            if fits and not (is_many and ("--tokens", item.value) not in one.options):
                is_example = item.value is None and idea.takes != ""
                before = {*self._found}
                results = [self._set(*pair, is_example=is_example, is_further=True) for pair in one.options]
                is_read = all(results)
                if is_example:
                    new = [pair for name, pair in self._found.items() if name not in before]
                    self._has_example |= bool(new and idea.example)
                    self._assumed += [" ".join(pair) for pair in new if re.search(r"=\d|^\d", pair[-1])]
                elif not _is_whole(item, one.options):
                    self._doubts.append(item)
                self._replaced += [pair[0] for pair in one.options if item.is_guess and is_read]
                break
        is_command = any(one.command in (self._command, "fit", "explain") and not one.options for one in fragments)
        is_nothing = not fragments and (idea.note != "" or item.text.lower() in FILLER)
        if not is_read and item.is_cue:
            said = [f"{text} ({idea.note})" if idea.note else text]
            self._left_out += said * (not is_command and item.text.lower() not in FILLER)
        elif not is_read and not is_command and not is_nothing:
            self._unread.append(text)
            self._notes += [f"did you mean '{idea.means.split()[0]}'?"] * (item.is_guess and bool(item.takes))
        self._lacks += [idea.lacks] if idea.lacks else []
        if idea.note and (item.is_guess or not idea.means):
            self._notes.append(idea.note if idea.means else f"leave out {truncate(item.typed)}: {idea.note}")
        if is_nothing and idea.note == NO_FIGURE:
            self._left_out.append(f"{text} ({idea.note})")
        elif is_nothing and idea.note:
            self._doubts += [item] * (item not in self._doubts)

    def _within_context(self, examples: list[str]) -> list[str]:
        """Return the examples with the prompt or the output that the context leaves.

        Without room for it, the context is left out.
        """
        of_request = {"--prompt": "--output-len", "--output-len": "--prompt"}
        context = self._found.get("--context", ("",))[-1]
        for i, example in enumerate(examples):
            name, _, usual = example.partition(" ")
            other = self._found.get(of_request.get(name, ""), ("",))[-1]
            if name == "--prompt" and not other and (output := [one for one in examples if "--output-len" in one]):
                other, usual = output[0].split()[1], str(10**30)  # the prompt is the rest of the context
            if not (is_valid(parse_count, context, "") and is_valid(parse_count, other, "")):
                continue
            left = parse_count(context, "") - parse_count(other, "")
            if left <= 0:
                del self._found["--context"]
                self._has_example = True
                self._notes.append("prompt and output are the context: leave out --context")
            elif left < parse_count(usual, ""):
                return [*examples[:i], f"{name} {left}", *examples[i + 1 :]]
        return examples

    def reading(self) -> Reading:
        """Return the command with everything that was added."""
        of_gpu = {option.names[0] for option in options_of(EngineOptions).values() if option.needs_gpu}
        unread = [*self._unread]
        assumed = [*self._assumed]
        if self._command == "explain":
            self._arguments, others = _terms_in(self._arguments)
            if self._arguments and not re.search(r"[^A-Za-z' -]", "".join(one for one in others if len(one) > 1)):
                self._left_out += others
            else:
                unread += [*self._arguments, *others] or ["?"]
        if not (self._arguments or self._found or self._is_asked):
            unread, self._left_out = [*unread, *self._left_out], []
        has_sizes = self._command not in _OF_RELEASED and not OF_MODEL.isdisjoint(self._found)
        lists_models = (
            self._command in ("fit", "train")
            and {"--gpu", "--ram"} & {*self._found}
            and _OF_ONE.isdisjoint(self._found)
            and not unread + self._left_out
        )
        needs_model = self._command not in ("gpus", *_OF_WORDS) and not self._arguments and not lists_models
        missing = ["MODEL"] if needs_model and not has_sizes and "--log" not in self._found else []
        needs = OF_SIZES if needs_model and has_sizes else ()
        layers = self._found.get("--n-gpu-layers", ("", ""))[1]
        if "--gpu" not in self._found and layers in ("99", "999", "-1", "all"):
            self._left_out.append(" ".join(self._found.pop("--n-gpu-layers")) + " (all layers are the default)")
        given = {*self._found, *map(" ".join, self._found.values())}
        for if_given, options, example in (*needs, *NEEDS.get(self._command, ())):
            is_needed = not if_given or given & (of_gpu if if_given == ON_GPU else {*if_given})
            if is_needed and not given & {*options}:
                missing.append(example)
                given.add(example.split()[0])
        missing = self._within_context(missing)
        if "--speculative-model" in self._found:
            self._found.pop("--speculative-layers", None)
        is_moved = self._typed not in (None, self._command)
        assumable = ASSUMED if self._typed else (*ASSUMED, "--gpu h100")
        if not is_moved and not self._has_example and all(example.startswith(assumable) for example in missing):
            assumed, missing = [*assumed, *missing], []
        words = [word for pair in self._found.values() for word in pair]
        words += [word for example in assumed[len(self._assumed) :] for word in example.split()]
        return Reading(
            (self._command, *self._arguments, *words),
            tuple(unread),
            tuple(self._left_out),
            tuple(missing),
            tuple(assumed),
            tuple(dict.fromkeys(self._notes)),
            tuple(dict.fromkeys(self._lacks)),
            tuple(self._replaced),
            tuple(self._doubts),
            is_sure=not (unread or missing or self._doubts or self._has_example),
            is_new=self._is_new or bool(assumed),
        )


def _terms_in(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words that are terms of the glossary, the longest first, and the others."""
    terms: list[str] = []
    others: list[str] = []
    while words:
        length = next((n for n in range(len(words), 0, -1) if _is_term(" ".join(words[:n]))), 0)
        (terms if length else others).extend(words[: length or 1])
        words = words[length or 1 :]
    return terms, others


def _is_whole(item: Item, options: Sequence[tuple[str, ...]]) -> bool:
    """Return whether the options of an idea have all that was typed: its value, and for a context a likely number."""
    values = [value for _, *rest in options for value in rest]
    is_likely = ("--context", item.value) not in options or not item.is_guess or is_context(item.value or "")
    return is_likely and (
        item.value in (None, "1") or all(part in "".join(values).lower() for part in item.value.lower().split(","))
    )


def _is_term(words: str) -> bool:
    from ..report.glossary import find_terms

    return is_valid(find_terms, words)


def _size(text: str) -> str:
    text = text.upper().replace("I", "i")
    return text if text.lower().endswith("b") else f"{text}GB" if text[-1:].isdigit() else f"{text}B"
