"""What words mean that are no usual command line: `attncalc llama3-8b h100`, `attncalc how big is qwen3-8b`."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import takewhile
from typing import Any

from ..api.fit_options import EngineOptions
from ..api.options import CacheDtypeOptions, PaddedSizeOptions
from ..api.train_options import DAYS
from ..config import load
from ..config.gpus import gpus_of
from ..config.presets import hint, of_size, preset_of, starting_with, with_file_type
from ..cost.params import params
from ..engines import ENGINES, find_engine
from ..errors import MissingError, is_valid
from ..options import SHARE, options_of
from ..report.glossary import TERMS, find_terms, is_term, terms_in, terms_of_question
from ..serving.fit import USEFUL_CONTEXT
from ..units import PERIODS, hyphens, parse_count, parse_decimal, truncate
from ..vocabulary import (
    ALL_SHOWN,
    ASSUMED,
    ASSUMED_IN_WORDS,
    FILLER,
    NEEDS,
    NO_FIGURE,
    ON_GPU,
    REWRITES,
    UNLIKE,
    Fragment,
    Idea,
)
from .arithmetic import lines_of, number
from .checked import checked
from .gpu_words import gpu_in
from .kinds import Item, given_by, is_context, kind_of, of_gpus, placeholder
from .neighbours import CLAIM, EITHER
from .words import OF_MODEL, Words

_USUAL = ("kv", "fit", "train", "flops", "memory", "params", "plan", "sweep", "compare", "gpus", "presets", "explain")
"""Commands that words can mean, the most usual first."""
SEVERAL = ("compare", "sweep", "plan", "verify")
"""Commands that take several models."""
_SERVED = 1_100_000
"""The longest context that a server has by default: with a longer one the question is which context fits."""
_OF_ONE_ANSWER = ("fit", "train")
"""Commands whose answer compares nothing: 'lora vs qlora' is no option of theirs."""
OF_WORDS = ("explain", "presets")
"""Commands that take any words."""
_DTYPE_OF = {"kv": "--kv-dtype", "compare": "--kv-dtype", "sweep": "--kv-dtype", "memory": "--dtype"}
_DEAREST = 100
"""A price that is no GPU-hour's: 'a budget of 5000 dollars', 'a GPU under 1000 dollars'."""
ANY_MODEL = "llama3.1-8b"
"""The model with which a command without one is tried."""
_WITH_SIZE = {"gqa": "gqa:8", "mla": "mla:512"}
"""Kinds of attention that need a size, with a usual one."""
_OF_ONE = {"--quants", "--roofline", "--log"}
"""Options of `fit` about one model; without them and with a GPU it lists the models that fit."""
FOR_PROGRAMS = frozenset(("--json", "--format", "--output", "-o", "--fail-if", "--quiet", "-q", "--get"))
"""Options of an answer that a program reads."""
_FREE = {"flops": (CacheDtypeOptions,), "params": (CacheDtypeOptions, PaddedSizeOptions)}
"""{command: the options on which its figures do not depend, beside --weights-dtype}."""
_WHY = "why|how (do|does|is|are)$"
"""Words that ask for an explanation."""
_REASON = "why|how come"
"""Those that ask for a reason, which is said in words beside a model's figures."""
_FEW = 4
"""Words of a question that is about the terms that it names, and no other."""


def numbers_given(items: Iterable[Item]) -> dict[str, Fraction]:
    """Return the numbers that items give to symbols of formulas; N of a model that is named is what a token uses."""
    given: dict[str, Fraction] = {}
    for item in items:
        given |= given_by(item)
        if item.kind == "model" and kind_of(item.typed) != "billions" and preset_of(item.text):
            given["N"] = Fraction(int(params(load(item.text)).active))
    return given


def _says(items: Iterable[Item], pattern: str) -> bool:
    """Return whether a word or phrase of a question is one of those of a pattern."""
    return any(re.fullmatch(pattern, item.typed.lower()) for item in items)


def by_layer() -> str:
    """Return the name of the engine that runs files at a desk: each GPU has whole layers."""
    return next(name for name in ENGINES if find_engine(name).splits_by_layer)


def readings_of(words: Words, args: Sequence[str]) -> Iterator[Reading]:
    """Yield what the arguments may mean, the likeliest first: what leaves the fewest words unread."""
    typed = words.items(args[1:] if words.command else args)
    # what is given replaces examples
    items = sorted(typed, key=lambda item: item.idea is not None and item.value is None)
    others, is_found = list[Reading](), False

    def gaps(one: Reading) -> int:
        """Return how many words have no place, or one that is doubted; a command that was typed may have doubts."""
        return len(one.unread) + (0 if words.command else len(one.doubts))

    likely, place = _likely(words.command, items), _place(items)
    for command, votes in likely:
        is_meant = votes > 0 or votes == likely[0][1]
        reading = Reading(command, words.options(command), words.command, place, is_meant=is_meant)
        for item in typed if command in OF_WORDS else items:
            reading.add(item)
        reading.finish()
        if gaps(reading) or reading.is_one_row:
            others.append(reading)
        elif votes > 0 or not is_found:
            is_found = True
            yield reading
    yield from sorted(others, key=gaps)


def _place(items: Sequence[Item]) -> str:
    """Return 'gpu' if a GPU or weights are named, and 'desk' for a Mac or a desktop's, where people run GGUF files."""
    values = [one.value for one in items if one.value and re.search("[a-zA-Z]", one.value) and one.kind != "model"]
    texts = [*values, *(one.text for one in items if one.kind in ("gpu", "size"))]
    devices = [gpus_of(text)[1] for text in texts if is_valid(gpus_of, text)]
    at_a_desk = bool(devices) and all(one.runs_files for one in devices)
    has_engine = any(item.text == "--engine" for item in items)
    is_of_weights = any(re.fullmatch("(?i)weights?", one.typed) for one in items)
    asks_cache = any(one.idea and "--kv-dtype" in one.idea.means for one in items)
    return "desk" if at_a_desk and not has_engine else "gpu" if devices or (is_of_weights and not asks_cache) else ""


def _likely(typed: str | None, items: Sequence[Item]) -> list[tuple[str, float]]:
    """Return the commands that may be meant with their votes, the likeliest first.

    Each word votes for those that it is said of.
    """
    if not typed and any(item.idea and item.idea.means == "verify" for item in items):
        return [("verify", 99.0)]  # no other command measures anything
    votes = dict.fromkeys(_USUAL, 0.0)
    kinds = Counter(item.kind for item in items if item.kind != "model" or not item.is_guess)
    for item in items:
        if item.kind == "idea" and item.idea:
            for command, weight in item.idea.votes(item.value):
                votes[command] = votes.get(command, 0) + weight
    named = " ".join(item.means for item in items)
    votes["plan"] -= 1.5 * (re.search("--(users|rate|price|budget)", named) is None)
    asks_why = any(re.match(_WHY, item.typed.lower()) for item in items)
    votes["params"] += 2 * (asks_why and any(item.means == "params" for item in items))
    votes["memory"] += 2 * any(item.means == "memory" for item in items)  # activations 'per layer', which `kv` has too
    votes["plan"] -= 9 * (votes["train"] > 1)  # 'cost of finetuning on 8 h100 at 2.5 dollars'
    votes["train"] += 3 * any(item.idea and item.idea.means == "train" for item in items)  # 'grpo with vllm'
    # 'how many flops to train gpt3 on 300B tokens' needs no GPU
    asks_flops = any(item.idea and item.idea.means.startswith("flops | train") for item in items)
    votes["flops"] += 9 * (asks_flops and "D" in numbers_given(items) and not kinds["gpu"])
    asks_optimum = _asks_optimum(items) and kinds["gpu"] + kinds["model"] > 0
    votes["train" if kinds["gpu"] else "flops"] += 9 * asks_optimum
    asks_users = any(item.is_asked and item.idea and "--batch" in item.idea.means for item in items)
    is_priced = "--price" in named and any(re.match(r"\d+x", item.text) for item in items)
    machines = (gpus_of(text) for item in items if is_valid(gpus_of, text := item.value or item.text))
    has_nodes = any(number and number > gpu.per_node for number, gpu in machines)  # '4x8xh100': replicas of a model
    is_limited = has_nodes or "--budget" in named or is_priced
    votes["plan"] += (9 if is_limited else -9) * asks_users
    counts = [item.value or "" for item in items if item.idea and item.idea.means.startswith("plan --users")]
    # 'how many H100s for 300 concurrent users', 'which is cheapest for 100 users'
    asks_gpus = any(re.match("(?i)how many|cheap", item.typed) and "plan --gpu" in str(item.idea) for item in items)
    votes["plan"] += 9 * (asks_gpus and re.search("--(users|rate)", named) is not None)
    # 'how many requests per second can 2 h100 serve', '10000 users', which are those of several replicas
    votes["plan"] += 9 * (any(item.is_asked and "--rate" in str(item.idea) for item in items) and kinds["gpu"] > 0)
    votes["plan"] += 9 * any(len(one) > 3 for one in counts)
    votes["compare"] += 3 * (kinds["model"] > 1)
    if _says(items, f"{_REASON}|sav(es?|ings?)|vs|versus"):
        votes["compare"] += 3 * (kinds["attention"] > 0 and any(item.kind == "model" for item in items))
    typed_files = sum(with_file_type(item.text)[1] is not None for item in items)
    votes["fit"] += typed_files + 9 * any(item.text == "--log" for item in items)
    votes["sweep"] += 9 * (typed_files > 1)  # 'qwen3 8b q8 or qwen3 14b q4'
    several = (kinds["dtype"] > 1) + (kinds["gpu"] + kinds["size"] > 1)
    votes["sweep"] += several / 2 + 1.5 * (kinds["model"] > 1 and kinds["gpu"] + kinds["size"] > 0)
    votes["gpus"] += not kinds["model"] and kinds["gpu"] > 0 and (len(items) > 1 or named == "local")
    # 'llama3-8b fp8' asks for no cache, and 'vllm llama3-8b' for all memory
    votes["fit"] += (kinds["dtype"] > 0) / 2 + any(item.text == "--engine" or item.typed == "gpu" for item in items)
    has_figure = any(re.search(r"\d", item.value or "") for item in items)
    votes["explain"] += 5 * (not kinds["model"] and (asks_why or not has_figure))
    sizes = (
        item for item in items if item.idea and item.value is None and not OF_MODEL.isdisjoint(item.idea.means.split())
    )
    votes["explain"] += _says(items, "what is|whats") and any(sizes)
    is_list = all(item.kind == "unknown" or item.names_a_family for item in items)  # 'qwen'
    votes["presets"] += 9 * (is_list or any(item.means == "presets" for item in items))
    models = [item.text for item in items if item.kind == "model" and preset_of(item.text)]
    if models and not load(models[0]).main.has_cache:
        votes |= {"fit": 0, "memory": votes["memory"] + votes["fit"] * (votes["train"] < 2)}  # an encoder has no cache
    if typed:  # of a command that draws nothing, `compare` draws the figures
        votes["compare"] += any(item.text == "--plot" for item in items)
        votes[typed] = 99
    return sorted(votes.items(), key=lambda one: -one[1])


def _asks_optimum(items: Iterable[Item]) -> bool:
    """Return whether the question is on how many tokens a model is best trained."""
    return any(item.idea and "chinchilla" in item.idea.words.split() for item in items)


class Reading:
    """A command line that words may mean: one command, with what each word means for it."""

    def __init__(self, command: str, options: dict[str, Any], typed: str | None, place: str, *, is_meant: bool) -> None:
        self._command, self._options, self._typed, self._place = command, options, typed, place
        self._arguments: list[str] = []
        self._found: dict[str, tuple[str, ...]] = {}  # {option: its words}
        self._is_asked = command == typed  # whether a word is about it
        self._has_example = self._follows_a_model = self._compares = False
        self._asks_meaning = False  # whether a model is an example: 'what does a3b mean in qwen3-30b-a3b'
        self._has_answer = False  # whether a phrase has an explanation of its own, beside which numbers are examples
        self.args: list[str] = []  # the whole command line
        self.unread: list[str] = []  # the words that have no place in it
        self.left_out: list[str] = []  # those that can change no figure
        self.missing: list[str] = []  # examples of what it lacks
        self.assumed: list[str] = []  # options with usual values, which it has without being asked
        self.notes: list[str] = []  # what else to know
        self.dropped: dict[str, list[str]] = {}  # {why it can be left out: the words}
        self.lacks: list[str] = []  # what attncalc does not count of what was typed
        self.replaced: list[str] = []  # the options that stand for unknown ones
        self._items: list[Item] = []
        self._is_listed = False  # whether the last item continues a list: 'at 4k and 8k'
        self._numbers: list[str] = []  # words with a number, which a formula of a term may need
        self._answers: list[str] = []  # formulas of terms with the numbers given
        self.doubts: list[Item] = []  # what is unknown, or spelled wrong
        self.is_meant = is_meant  # whether a word speaks for this command
        self.is_new = command != typed  # whether it differs from what was typed, or assumes something

    @property
    def is_sure(self) -> bool:
        """Whether it can be run without asking."""
        return not (self.unread or self.missing or self.doubts or self._has_example)

    @property
    def is_one_row(self) -> bool:
        """Whether it is a `sweep` of a single model, which nobody typed."""
        return self._command == "sweep" != self._typed and "," not in "".join(self.args) and not self._arguments[1:]

    @property
    def blocking(self) -> list[str]:
        """The words without which it cannot be run."""
        return [*self.unread, *map(_named, self.doubts)]

    @property
    def gaps(self) -> list[str]:
        """The words that are not in it for certain."""
        return [*self.blocking, *(word.partition(" (")[0] for word in self.left_out)]

    @property
    def options(self) -> list[str]:
        """The options that words set."""
        return [word for pair in self._found.values() for word in pair]

    @property
    def is_computed(self) -> bool:
        """Whether its answer is that of a formula, which is printed above the command's screen."""
        return any(line.startswith("answer: ") for line in self._answers)

    @property
    def beside(self) -> list[str]:
        """Lines about the reading, beside the command."""
        lines = {"not read": ", ".join([*self.left_out, *self.blocking]), "assumed": ", ".join(self.assumed)}
        is_priced = "--price" in self._found or any("price" in line for line in self._answers)
        lacks = (each for each in dict.fromkeys(self.lacks) if not (is_priced and "prices" in each))
        powers = [
            f"{text} is {parse_count(text, ''):,} tokens; {text.upper()} is {parse_count(text.upper(), ''):,}"
            for text in self._found.get("--context", ())[1:]
            if self._typed is None and re.fullmatch("(4|8|16|32|64|128|256|512)k", text)
        ]
        named = [*lines.items(), *(("note", each) for each in (*lacks, *powers))]
        return [*self._answers, *(f"{name}: {truncate(text, 300)}" for name, text in named if text)]

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

    def add(self, item: Item) -> None:
        """Find a place for an item."""
        before = self._items[-1] if self._items else item
        self._is_listed = before.kind in ("number", "size") or before.text.lower() in (*EITHER, "to")
        self._items.append(item)
        if item.kind == "gpu" and self._command != "plan":  # in which 'h100' is any number
            item = item._replace(text=item.text.removeprefix("1x"))
        self._assume_chip(item)
        own = item.idea and not item.idea.lacks and item.typed.startswith("-")
        if own and self._takes(hyphens(item.text), *filter(None, (item.value,))):
            item = Item("option", hyphens(item.text), item.typed, value=item.value)  # this command has it
        is_option = item.typed.startswith("-") and item.typed not in FOR_PROGRAMS
        term = self._command == "explain" and is_option and is_term(item.typed.lstrip("-"))
        is_word = self._command in OF_WORDS and (term or not item.typed.startswith("-"))
        if item.is_guess and not item.is_exact and not is_word:
            self.doubts.append(item)
        self._compares |= item.text in ("vs", "versus")
        self._asks_meaning |= item.typed.lower() in ("mean", "means", "meaning", "define", "definition")
        self._is_asked |= item.idea is not None and self._command in dict(item.idea.votes(item.value))
        is_named = item.kind == "model" and item.text in (item.typed, item.value)
        is_usual = is_named or (item.kind == "option" and item.typed.startswith("-"))
        self.is_new |= item.is_guess or not is_usual
        is_name = self._typed in ("presets", "gpus") or (self._typed in SEVERAL and self._follows_a_model)
        self._follows_a_model = item.kind == "model"  # 'compare gpt2 foo': another model, probably
        is_beside = self.is_meant and (self._command, item.text) == ("train", "--engine")  # 'grpo with vllm'
        if self._is_free(item):  # 'flops gpt2 --dtype bf16' is no question of `kv`, which has it
            self.left_out.append(f"{_with_value(item)} ({NO_FIGURE})")
        elif is_beside or (item.kind == "plain" and self._command != "explain" and not is_name):
            self.left_out.append(item.typed)
        elif self._command in OF_WORDS and item.kind != "filler" and (term or item.kind != "option" or not is_usual):
            self._add_word(item)
        elif item.idea:
            self._add_idea(item, item.idea)
        elif item.kind == "filler" or self._add_argument(item) or (item.text, item.typed.isdigit()) == ("1", False):
            pass
        elif not (slot := self._slot(item)) or not self._set(*slot, is_further=item.kind != "option"):
            self.unread.append(item.typed)

    def _assume_chip(self, item: Item) -> None:
        """Say which chip of Macs with that memory is assumed, unless it is named: 'macbook pro m3' is no M3 Pro."""
        chip, typed = re.match(r"(m\d[\w-]*)-\d+gb$", item.value or item.text), item.typed.lower()
        if chip and re.search(r"\bmac(book)?\b", typed) and chip[1].replace("-", "") not in re.sub("[ -]", "", typed):
            self.assumed.append(f"{chip[0]} for '{item.typed}': the chip sets the speed")

    def _is_free(self, item: Item) -> bool:
        """Return whether an item changes no figure of the typed command. Raises MissingError without its value."""
        of_others = [one for kind in _FREE.get(str(self._typed), ()) for one in options_of(kind).values()]
        names = {name for one in of_others for name in (*one.names, *one.also, "--weights-dtype")}
        is_free = not names.isdisjoint(item.means.split())
        if is_free and item.kind == "option" and not item.value:
            raise MissingError(f"{item.typed} needs a value", f"leave it out: {NO_FIGURE} of '{self._typed}'")
        return is_free and self._typed == self._command

    def _add_word(self, item: Item) -> None:
        """Add a word of 'explain' or 'presets'."""
        # the other words of 'slow', which means `fit`, are none of this one
        known = item.idea and item.idea.means not in _USUAL[:-1] and self._command == "explain" and not item.is_guess
        means = [word.lstrip("-") for word in item.idea.words.split()] if item.idea and known else []
        kind = [item.text.partition(":")[0]] * (item.kind == "attention")  # gqa of 'gqa-8'
        words = [item.typed.lstrip("-"), *kind, *means]
        term = next((word for word in words if is_term(word)), None)
        is_own = item.idea is not None and self._command in [one.command for one in item.idea.fragments(None)]
        is_name = item.kind in ("model", "unknown", "plain", "attention") or self._typed == "presets"
        if self._command == "presets" and not (is_name or is_own):
            self.unread.append(item.typed)
        elif self._command == "explain" and term and (self._typed or not re.search(r"\d{3}", item.value or "")):
            self._arguments.append(term)
            self.left_out += [_with_value(item)] if item.value and item.value not in FILLER else []
            self._has_answer |= item.idea is not None and item.idea.means == "explain"
        elif self._command == "explain" and re.search(r"\d", item.value or ""):
            self._numbers.append(_with_value(item))
        elif item.idea and is_own:
            self._arguments[:0] = ["show"] * (self._command == "presets" and item.idea.means.startswith("presets show"))
            self._arguments += [item.value] if item.value else []
        else:
            self._arguments.append(item.typed)

    def _add_argument(self, item: Item) -> bool:
        """Add an item that is an argument of this command, and return whether it is one."""
        takes = {"gpus": ("gpu",), "compare": ("model", "attention")}.get(self._command, ("model",))
        is_of_option = item.is_guess and item.value is not None
        is_further = self._arguments and (is_of_option or self._command not in (*SEVERAL, "gpus"))
        if item.kind not in takes or (item.kind == "model" and is_further):
            return item.kind == "model" and preset_of(item.text) in map(preset_of, self._arguments[:1])
        self._arguments += [item.text] * (item.text not in self._arguments)
        if item.kind == "model" and item.is_guess and (models := hint(item.typed)).startswith("which one"):
            self.notes.append(models.rstrip("? "))
        if item.kind == "model" and item.is_exact and item.text not in (item.typed, item.value):
            is_near = kind_of(item.typed) == "billions" and not of_size(item.typed)
            nearest = " (the nearest size; 'attncalc presets' lists all)" * is_near
            self.assumed.append(f"{item.text} for {item.typed}{nearest}")
        return True

    def _slot(self, item: Item) -> tuple[str, ...] | None:
        """Return the option, and its value, that an item is for this command."""
        of_command = _DTYPE_OF.get(self._command, "--weights-dtype")
        if of_command == "--kv-dtype" and (
            "--weights-dtype" in self._found or re.match("(?i)awq|gptq|nf4|i?q\\d_k", item.text)
        ):  # of weights only
            of_command = "--weights-dtype"
        is_plain = self._command == "train" and re.fullmatch(r"(?i)(bf|fp|b?float)\d+", item.text)
        name = {
            "option": item.text,
            "gpu": "--gpu",
            "size": "--gpu",
            "attention": "--attention",
            "dtype": "--dtype" if is_plain else "--weights-dtype" if self._place else of_command,
            "number": "-c" if is_context(item.text) else None,
        }.get(item.kind)
        if item.kind == "option":
            value = item.value
            parts = (value or "").split(",")
            is_gpu = name != "--gpu" or all(gpu_in(one.lower()) or one in ("all", "local") for one in parts)
            is_joined = value is not None and value.count(",") > item.typed.count(",")
            is_list = is_joined and name != "--pattern" and re.search(r"^[^=]*\w,\w", value or "")
            name = name if is_gpu and (not is_list or self._takes_list(item.text)) else None
        else:
            value = re.sub(r",(?=\d{3}\b)", "", item.text) if name == "-c" else item.text
            value = _size(value) if item.kind == "size" else value
            if self._command == "fit" and self._place == "desk" and re.match(r"[3-8][ -]?bit", item.typed.lower()):
                value = value.replace("int", "q")  # a GGUF file, and no AWQ
        return None if name is None else (name,) if value is None else (name, value)

    def _takes(self, name: str, *value: str) -> bool:
        """Return whether the command has an option, with a value or without one."""
        option = self._options.get(name)
        is_optional = option is not None and str(option.metavar).startswith("[")  # '--plot' or '--plot FILE'
        is_range = ":x" in "".join(value)  # 'from 4k to 32k'
        if option is not None and (
            is_range or (option.metavar in ("NAME", "WHAT", "KERNEL") and "," in "".join(value))
        ):
            return self._takes_list(name)
        if option is not None and option.opts[0].endswith("dtype") and "," in "".join(value):
            are_files = all(re.match(r"(?i)i?q\d", one) for one in value[0].split(","))
            return self._takes_list(name) or (are_files and "--quants" in self._options)
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
        if own == "--weights-dtype" and "," in value[0] and not self._takes_list(name):
            name, own, value = "--quants", "--quants", ()
        if own == "--weights-dtype" and "--quants" in self._found:
            return is_further
        if own == "--price" and self._typed is None and (number(value[0]) or 0) > _DEAREST:
            self.left_out.append(f"{value[0]} (--price is per GPU-hour)")
            return True
        before = self._found.setdefault(own, (name, *value))
        if before[1:] == value or is_example:
            return True
        # '--lora --rank 16', and 'mla', with the rank beside it
        if not before[1:] or (own == "--attention" and value[0].startswith(f"{before[1]}:")):
            self._found[own] = (name, *value)
            return True
        return self._set_further(own, before, (name, *value), is_further=is_further)

    def _set_further(self, own: str, before: tuple[str, ...], pair: tuple[str, ...], *, is_further: bool) -> bool:
        """Set an option that has another value, and return whether that is possible."""
        name, *value = pair
        is_another = is_further and kind_of(value[0]) in ("number", "size")
        two = sorted((*before[1:], *value), key=lambda text: kind_of(text) == "size")
        if own == "--gpu" and [kind_of(text) for text in two[1:]] == ["size"] and kind_of(two[0]) != "size":
            sized = re.sub(r"-\d+gb (?=\d)", " ", " ".join(two).lower())  # an M3 Ultra is the largest until '96gb'
            known = gpu_in(sized) or ("-".join(two).lower() if re.match(r"(\d+x)?m\d", sized) else "")  # 'a100', '80GB'
            if not known and self._is_of_host(*two):
                self._found[own] = (name, two[0])
                return self._set("--ram", two[1])
            size = "x".join([*re.findall(r"^(\d+)x", two[0]), two[1]])
            self._found[own] = (name, known or size)
            self.assumed += [] if known else [f"{size} for {' '.join(two)}"]  # a changed card
        elif own == "--weights-dtype" and all(re.match("i?q\\d", each) for each in two) and self._takes("--quants"):
            del self._found[own]
            self._found["--quants"] = ("--quants",)  # 'q4 or q8'
        elif own in ("--context", "--gpu") and is_another and not self._is_listed:
            return False  # 'at 128k avg 50k' are no two contexts
        elif own == "--lora" or (
            (is_further or own in ("--engine", "--price"))
            and (self._takes_list(name) or "+" in value[0][:2] + before[1][:1])
        ):
            joined = f"{before[1]},{value[0]}"
            joined = re.sub(r"\b1x", "", joined) if self._command == "plan" else joined
            if self._command == "plan" and re.search(r"\b\d+x", joined):
                return False  # 'one a100 or 2x l40s' are rows of `sweep`
            self._found[own] = (before[0], joined)
        else:
            return False
        return True

    def _is_of_host(self, card: str, size: str) -> bool:
        """Return whether a size that the named card does not have is the host's memory: '3080, 32gb'.

        A card that was changed has at most twice its memory, which is said beside its name: 'a 4090 with 48gb'.
        """
        known = gpus_of(card)[1] if is_valid(gpus_of, card) else None
        if known is None or known.unified or re.search("(?i)vram|gpu|video", self._items[-1].typed):
            return False
        between = [*takewhile(lambda one: one.kind == "filler", self._items[-2::-1])]
        is_apart = self._items[-2 - len(between)].ends or any(one.text in EITHER for one in between)
        return (
            known.is_cpu
            or is_apart
            or f"{known.memory_gb}gb" in card.lower()
            or gpus_of(size)[1].memory_gb > 2 * known.memory_gb
        )

    def _add_idea(self, item: Item, idea: Idea) -> None:
        """Add what an idea means for this command."""
        is_size = idea.takes in ("SIZE", "HOST") and "-gb SIZE" not in idea.means  # '--cpu-offload-gb 10' is GiB
        value = _size(item.value) if item.value and is_size else item.value
        fragments = idea.fragments(value)
        text = _with_value(item)
        noted = f"{text} ({idea.note})" if idea.note else text
        commands = (self._command, "fit", *["explain"] * (not item.typed.startswith("-")))
        is_command = any(one.command in commands and not one.options for one in fragments)
        may_matter = item.value or item.takes or item.typed.startswith("-")
        if self._set_idea(item, idea, fragments):
            pass
        elif item.is_cue:
            # 'how many FLOPs to generate 128 tokens' is no question of memory
            is_asked = self._command in ("fit", "plan") and re.fullmatch("g?flops?", item.typed.lower())
            words = self.unread if is_asked else self.left_out
            words += [noted] * (not is_command and item.text.lower() not in FILLER)
        elif not fragments and (idea.note or item.text.lower() in FILLER):
            # '--dist-init-addr 10.0.0.1:5000', and not '--max-power 300W'
            is_text = not re.match(r"\d(?!.*\d[.:]\d.*[.:])", item.value or "")
            is_text = is_text and not re.search("checkpoint|model", item.text)
            is_plain = item.value is None or is_text
            notes = (NO_FIGURE, UNLIKE, ALL_SHOWN) if is_plain else (NO_FIGURE,)
            is_free = not may_matter or idea.note.startswith(notes)
            self.left_out += [noted] * is_free
            self.doubts += [item] * (not is_free and item not in self.doubts)
        elif idea.note == CLAIM:
            self.left_out.append(f"{item.typed} ({CLAIM})")
        elif not is_command:
            self.unread.append(text)
            self.notes += [f"did you mean '{idea.means.split()[0]}'?"] * (item.is_guess and bool(item.takes))
        self.lacks += [idea.lacks] if idea.lacks else []
        if idea.note and (item.is_guess or not idea.means):
            if idea.means:
                self.notes.append(idea.note)
            else:
                self.dropped[idea.note] = [*self.dropped.get(idea.note, ()), truncate(_named(item))]

    def _set_idea(self, item: Item, idea: Idea, fragments: Sequence[Fragment]) -> bool:
        """Set the options of the first fragment that this command has, and return whether that is possible."""
        is_many = item.value is not None and kind_of(item.value) == "billions"
        is_length = re.fullmatch(r"\d{1,6}|\d{1,4}[kK]", item.value or "") is not None  # and no data to train on
        for one in fragments:
            fits = one.command in ("", self._command) and all(self._takes(*pair) for pair in one.options)
            is_total = ("--tokens", item.value) in one.options or any("/" in pair[-1] for pair in one.options)
            if not fits or (is_many and not is_total) or (is_length and is_total and self._command == "train"):
                continue
            is_own = self._typed == self._command not in (idea.means, item.text.lstrip("-"))
            if item.typed.startswith("-") and is_own and not one.options:
                self.left_out.append(_with_value(item))  # 'kv gpt2 --per-token --get kv_cache' wants another figure
            is_example = item.value is None and idea.takes != ""
            before = {*self._found}
            results = [self._set(*pair, is_example=is_example, is_further=True) for pair in one.options]
            is_set = all(results)
            if is_example:
                new = [pair for name, pair in self._found.items() if name not in before]
                self._has_example |= bool(new and idea.example)
                self.assumed += [" ".join(pair) for pair in new if re.search(r"=\d|^\d", pair[-1])]
            elif not _is_whole(item, one.options):
                self.doubts.append(item)
            self.replaced += [pair[0] for pair in one.options if item.is_guess and is_set]
            return is_set
        return False

    def _within_context(self) -> None:
        """Let the missing prompt or output be what the context leaves. Without room for it, leave out the context."""
        usual = dict(one.split() for one in self.missing if one.startswith(("--prompt", "--output-len")))
        context = self._found.get("--context", ("",))[-1]
        lengths = {name: self._found.get(name, ("",))[-1] for name in ("--output-len", "--prompt")} | usual
        output, prompt = lengths.values()
        if not (usual and all(is_valid(parse_count, text, "") for text in (context, output, prompt))):
            return
        name, other = ("--prompt", output) if "--prompt" in usual else ("--output-len", prompt)
        left = parse_count(context, "") - parse_count(other, "")
        if left <= 0:
            del self._found["--context"]
            self._has_example = True
            self.notes.append("prompt and output are the context: leave out --context")
        elif len(usual) == 2 or left < parse_count(usual[name], ""):
            self.missing[self.missing.index(f"{name} {usual[name]}")] = f"{name} {left}"

    def _keep_terms(self) -> None:
        """Keep the terms of the glossary as arguments. Other words are left out, or unread if they have a meaning."""
        usual = (item.typed for item in self._items if item.kind == "filler" and is_term(item.typed))
        self._arguments = self._arguments or [*usual]  # 'what is a transformer'
        is_reason = _says(self._items, _REASON)
        # numbers of a question why are those of the explanation: 'why does an MLP have 8 d^2 parameters'
        with_digits = [one for one in self._arguments if re.search(r"\d", one)]
        numbers = [one for one in with_digits if is_reason or (one.isdigit() and self._has_answer)]
        self._arguments, others = terms_in([one for one in self._arguments if one not in numbers])
        wider = [["attention"], *[["kv-cache"]] * any(kind_of(one) == "attention" for one in self._arguments)]
        without = [one for one in self._arguments if not (is_term(one) and find_terms(one) in wider)]  # 'cache of mla'
        self._arguments = without if is_term(" ".join(without)) else self._arguments
        figures = "".join(one for one in others if len(one) > 1 and not self._has_answer)
        others += numbers
        is_about_terms = self._asks_meaning or (
            not re.search(r"[^A-Za-z' -]", figures) and not any(map(starting_with, others))
        )
        named = find_terms(" ".join(self._arguments)) if self._arguments else []
        is_open = bool(named) or (is_reason and not any(item.value or item.kind == "model" for item in self._items))
        if is_about_terms and self._typed is None and len(self._items) > _FEW and not self._compares and is_open:
            self._arguments = terms_of_question(" ".join(item.typed for item in self._items), named)
        if self._arguments and is_about_terms:
            self.left_out += others
            self._compute()
        else:
            self.unread += [*self._arguments, *others] or ["?"]
        (self.left_out if is_reason else self.unread).extend(self._numbers)

    def _explain_beside(self) -> None:
        """Add what a term means beside figures: of a question why, those that it names, or the model's attention."""
        # 'what is a kv cache and how big is it for llama2-7b'
        asks_both = all(_says(self._items, one) for one in ("what is", "and", "how .*"))
        asks_why = asks_both or _says(self._items, _REASON)
        terms = [
            item
            for item in self._items
            if (item.idea and item.idea.means == "explain")
            or (asks_why and item.kind in ("idea", "plain", "attention") and not item.value)
            if is_term(item.typed)
        ]
        self._use(terms)
        terms.sort(key=lambda item: item.idea is not None and not item.idea.means.endswith("explain"))
        named = [name for item in terms for name in find_terms(item.typed)]
        names = [name for name in named if name != "attention"] or named
        model = next((one for one in self._arguments if preset_of(one)), None)
        if self._command == "kv" and asks_why and model and {*names} <= {"kv-cache"}:
            attentions = [layers.attention for _, layers in load(model).groups()]
            names += [one.label.lower() for one in attentions]
            names += ["window"] * any("Sliding" in type(one.span).__name__ for one in attentions)
        if names and asks_why and self._command == "flops":
            self._found.pop("--explain", None)  # a sentence instead of all formulas
        for name in [*dict.fromkeys(name for name in names if name in TERMS)][:2]:
            self._answers.append(f"note: {TERMS[name].title}: {TERMS[name].meaning}")

    def _compute(self) -> None:
        """Compute the formulas of the terms with the numbers given: 'chinchilla optimal tokens for a 3b model'."""
        formulas = [one for name in find_terms(" ".join(self._arguments)) for one in TERMS[name].formula]
        if lines := lines_of(formulas, numbers_given(self._items)):
            names = tuple(line.removeprefix("answer: ").partition("=")[0] for line in lines)
            symbols = {*re.findall(r"[A-Za-z]\w*", " ".join(one for one in formulas if one.startswith(names)))}
            self._use([item for item in self._items if symbols & given_by(item).keys()])
            self._answers = lines

    def _use(self, items: Sequence[Item]) -> None:
        """Count items as read, since the answer has them."""
        used = {text for item in items for text in (item.typed, _with_value(item))}
        self.left_out, self._numbers, self.unread = (
            [word for word in several if word not in used] for several in (self.left_out, self._numbers, self.unread)
        )

    def _compute_training(self) -> None:
        """Compute 2 N and 6 N D: `flops` counts one step with its scores, and a model of 1.5B is only like another."""
        model = next((one for one in self._items if one.kind == "model"), None)
        if model is None or self._command not in ("flops", "train"):
            return
        tokens = [one for one in self._items if "D" in given_by(one) and kind_of(one.value or "") == "billions"]
        is_step = self._command == "flops" and "--phase" in self._found
        is_step = is_step and self._found.get("--context", ("1",))[-1] == "1"  # 2 N has no scores
        of_token = [one for one in self._items if is_step and re.search(r"\btoken$", one.typed)]
        own = given_by(model) if kind_of(model.typed) == "billions" else {}
        is_full = self._found.get("--optimizer", ("adamw",))[-1] == "adamw" and "--lora" not in self._found
        is_near = bool(own) and self._command == "train" and is_full and not of_size(model.typed)
        has_tokens = bool(tokens) or _asks_optimum(self._items)
        asks_tokens = {"--days", "--samples"} & {*self._found} == {"--days"} and not (has_tokens or self._typed)
        terms = ["chinchilla", "mfu"] if has_tokens else ["mfu"] if asks_tokens else ["6nd"] if of_token else []
        terms += ["training-memory"] if is_near else []
        given = numbers_given(tokens) | own
        if terms and (self._command == "flops" or not tokens) and preset_of(model.text):
            self._set("--phase", "train", is_example=True)
            self._use([*tokens, *of_token])
            given = numbers_given([model]) | given
        given |= {"D": Fraction(1)} if "6nd" in terms and "train" in self._found["--phase"] else {}
        given |= self._given_by_gpus(has_tokens=has_tokens)
        self._answers += lines_of([one for term in terms for one in TERMS[term].formula], given)
        if self._answers and self._command == "train":
            self.assumed += ["--mfu 0.4"] if "MFU" in given and "--mfu" not in self._found else []
            is_run = own and self._typed in (None, "train") and not self.unread + self.doubts
            # another model's time and price
            for name in ("--tokens", "--mfu", "--price", "--days") if is_run or asks_tokens else ():
                self._found.pop(name, None)
            lacks = "6 N D leaves out attention's scores; " if "mfu" in terms else ""
            self._answers.append(f"note: {lacks}the memory below is that of {model.text}")
        is_timed = (self._command, self._typed) == ("train", None) and "mfu" in terms
        is_split = re.search(r"--(zero|fsdp|tp|pp|cp|lora)\b", " ".join(self._found))
        if is_timed and given.get("GPUs", 1) > 1 and not is_split:
            self._found["--zero"] = ("--zero", "3")
            self.assumed.append("--zero 3")

    def _given_by_gpus(self, *, has_tokens: bool) -> dict[str, Fraction]:
        """Return the numbers of the GPUs that train, and the days unless the tokens on counted GPUs give them."""
        usual = {"--gpu": "", "--gpus": "", "--mfu": "0.4", "--days": "", "--price": ""}
        gpus, several, mfu, days, price = (self._found.get(name, (text,))[-1] for name, text in usual.items())
        given = of_gpus(gpus)
        if "peak" not in given or not is_valid(SHARE.parse, mfu, ""):
            return {}
        given["MFU"] = Fraction(*parse_decimal(mfu, "--mfu", upper=1))
        if several.isdecimal():  # '--gpu a100 --gpus 8'
            given["GPUs"] = Fraction(several)
        is_counted = several or re.match(r"\d+x", gpus)
        if days and not (has_tokens and is_counted) and is_valid(DAYS.parse, days, ""):
            given["days"] = Fraction(DAYS.parse(days, "--days")) / PERIODS["day"]
            if has_tokens:
                del given["GPUs"]
        if match := re.fullmatch(r"(?:(\d+)x[^=]+=)?(\d*\.?\d+)", price):  # '8xa100=12' is the price of all 8
            given["price"] = Fraction(match[2]) / int(match[1] or 1)
        return given

    def checked(self, root: Any) -> list[str]:
        """Return the line that says whether a figure of the question is right, whose words are then read; or []."""
        line = checked(root, self._items, self.args[1:])
        if line:
            self._use([item for item in self._items if item.kind in ("idea", "plain")])
            self.left_out = [word for word in self.left_out if CLAIM not in word]
        return [line] if line else []

    def finish(self) -> Reading:
        """Return the reading, after all items were added."""
        if self._command == "explain":
            self._keep_terms()
        if not (self._arguments or self._found or self._is_asked):
            self.unread, self.left_out = [*self.unread, *self.left_out], []
        if self._command != "explain":
            self._explain_beside()
            self._compute_training()
        self._divide_users()
        self._join_parts()
        self._requests_of_tokens()
        if self._compares and self._command in _OF_ONE_ANSWER and "," not in "".join(self.options):
            self.unread += [] if "--quants" in self._found else ["vs"]
        if self._command not in OF_WORDS:  # a number may be meant as a value
            self.unread += [word for word in self.left_out if re.match(r"\d", word) and " (" not in word]
            self.left_out = [word for word in self.left_out if word not in self.unread]
        self._find_missing()
        if "--speculative-model" in self._found:
            self._found.pop("--speculative-layers", None)
        self._choose_context()
        self._choose_precision()
        if self._place == "desk" and re.match("[35679]x", self._found.get("--gpu", ("",))[-1]):
            self._found["--engine"] = ("--engine", by_layer())  # no 3 GPUs divide the heads
            self.assumed.append(f"--engine {by_layer()}")
        if self._command == "sweep" != self._typed and {*self._found}.isdisjoint((*FOR_PROGRAMS, "--plot")):
            self._choose_rows()
        examples: list[str] = []
        has_kinds = bool(self._arguments) or "--attention" in self._found
        is_open = self._typed is None or (self._typed == "compare" and has_kinds)  # 'compare mha gqa'
        is_open |= self._typed == "kv" and "mla:" in self._found.get("--attention", ("",))[-1]  # heads cache nothing
        assumable = (*ASSUMED, *ASSUMED_IN_WORDS) if is_open and not self.unread + self.doubts else ASSUMED
        is_moved = self._typed not in (None, self._command) and not (is_open and self._command == "sweep")
        # 'will it rain in Paris tomorrow', 'how much vram needs flux'
        is_moved |= "MODEL" in self.missing and len(self.left_out) > 2 * bool(self._found)
        is_moved |= self._command == "plan" and self._asks_models  # no assumed one answers which
        asks_term = _says(self._items, "what is|whats|define")
        is_moved |= "MODEL" in self.missing and asks_term and not self._found  # 'what is inference'
        if not is_moved and not self._has_example and all(example.startswith(assumable) for example in self.missing):
            examples = [one for one in self.missing if one != "MODEL"]
            model = [ANY_MODEL] * ("MODEL" in self.missing)
            self._arguments[:0] = model
            self.assumed, self.missing = [*model, *self.assumed, *examples], []
        self.args = [self._command, *self._arguments, *self.options, *" ".join(examples).split()]
        self.is_new |= bool(self.assumed)
        return self

    def _choose_context(self) -> None:
        """Replace a context of 0 by the model's own, and let a very long one be the longest that fits."""
        own = self._longest_context
        usual = " ".join(self._found.get("--context", ()))
        if "--prompt" in self._found and usual in self.assumed:  # 'how many users with 8K input and 2K output'
            del self._found["--context"]
            self.assumed.remove(usual)
        if self._found.get("--context", ("",))[-1] == "0" and self._arguments:  # llama.cpp's own context of the model
            self._found["--context"] = ("--context", str(own))
            self.is_new |= own > 0
        asks_what_fits = self._command == "fit" and "--gpu" in self._found and not self._typed and self._arguments
        has_context = not {"--context", "--prompt", "--log", "--roofline"}.isdisjoint(self._found)  # a speed needs one
        if asks_what_fits and not has_context and own > _SERVED:
            self._found["--context"] = ("--context", "auto")
            self.assumed.append("--context auto")

    def _choose_precision(self) -> None:
        """Let a question about the time of training have mixed precision, where the release is in fp32, as GPT-2."""
        is_timed = self._command == "train" and not self._typed and {"--tokens", "--samples"} & {*self._found}
        types = ("--dtype", "--param-dtype", "--weights-dtype", "--autocast")
        is_fp32 = any(preset_of(one) and load(one).dtype == "fp32" for one in self._arguments * bool(is_timed))
        if is_fp32 and self._found.keys().isdisjoint(types):
            self._found |= {"--dtype": ("--dtype", "bf16"), "--param-dtype": ("--param-dtype", "fp32")}
            self.assumed.append("--dtype bf16 --param-dtype fp32 (mixed precision)")

    def _choose_rows(self) -> None:
        """Set what a person wants of `sweep`: a table, the files that people run at a desk, and the fewest GPUs."""
        self._found["--format"] = ("--format", "table")
        self._found |= {"--train": ("--train",)} if self._typed == "train" else {}
        has_type = any(with_file_type(one)[1] for one in self._arguments)
        at_a_desk = self._place == "desk" and self._found.keys().isdisjoint(("--engine", "--train"))
        if at_a_desk and not has_type and "--weights-dtype" not in self._found:
            self._found["--weights-dtype"] = ("--weights-dtype", "q4_k_m")
            self.assumed.append("--weights-dtype q4_k_m")
        listed = {name for name, words in self._found.items() if "," in words[-1]} - {"--columns"}
        is_open = self._found.keys().isdisjoint(("--gpus", "--tp", "--pp", "--train")) and len(self._arguments) == 1
        gpu = self._found.get("--gpu", ("1x",))[-1]
        is_alone = self._place == "gpu" and not re.search(",|x", gpu)
        if len(self._arguments) > 1 and is_alone and "and" in [one.typed for one in self._items]:
            share = "--gpu-memory-utilization 0.45"
            self.lacks.append(f"each row has the GPU alone; to run both on it, give each a share, as {share}")
        fewest = is_open and bool(listed) and listed <= {"--gpu", "--batch"} and not re.match(r"\d+x", gpu)
        self._found |= {"--fewest-gpus": ("--fewest-gpus",)} if fewest else {}
        shared, given = self._longest_context, {*self._found, *(one.split()[0] for one in self.missing)}
        if len(self._arguments) > 1 and shared and given.isdisjoint(("--context", "--prompt", "--train")):
            usual = min(shared, USEFUL_CONTEXT) if at_a_desk else shared
            self._found["--context"] = ("--context", str(usual))
            longest = " (the longest that all these models support)" * (usual == shared)
            self.assumed.append(f"--context {usual}{longest}")

    def _divide_users(self) -> None:
        """Refuse users of each model: 'llama3-8b for 300 users and gpt2 for 50' asks for no combination of both."""
        users = self._found.get("--batch", ("",))[-1]
        if self._typed is None and len(self._arguments) > 1 and "," in users:
            self.unread.append(f"{users} users of several models")
        if len(self._arguments) > 1 and re.search(r"\busers\b", " ".join(self.unread)):
            self.notes.append("plan each model alone, with its own --users")

    def _requests_of_tokens(self) -> None:
        """Replace tokens of a day or another period, as in 'day/50M', by requests."""
        period, _, tokens = self._found.get("--rate", ("",))[-1].partition("/")
        if period in PERIODS and (per_period := number(tokens.replace(",", ""))):
            usual = (("--prompt", "4K"), ("--output-len", "1K"))
            each = sum(parse_count(self._found.get(name, ("", length))[-1], "") for name, length in usual)
            requests = f"{float(per_period / each):{'.3g' if per_period < 1000 * each else '.0f'}}"
            self._found["--rate"] = ("--rate", f"{requests}/{period}")
            self.lacks.append(f"{tokens} tokens per {period} are {requests} requests of {each:,} tokens")

    def _join_parts(self) -> None:
        """Make one value of parts: a context of 'p+512,c+2048', and kinds of attention with their sizes."""
        if parts := re.findall(r"\+([^,]+)", self._found.get("--context", ("", ""))[1]):
            self._found["--context"] = ("--context", str(sum(parse_count(part, "") for part in parts)))
        if (lora := "".join(self._found.get("--lora", ())[1:])) and not re.search(r"(?:^|,)r=|^\d", lora):
            self._found["--lora"] = ("--lora", f"r=16,{lora}")
            self.assumed.append("--lora r=16")
        if "--kv-dtype" in self._found:  # a cache has no K-quants
            name, text = self._found["--kv-dtype"]
            self._found["--kv-dtype"] = (name, re.sub(r"\b([qQ][458])(?=,|$)", r"\1_0", text))
        name, text = self._found.get("--attention", ("", ""))
        text = re.sub(r"(mla:\d+),(\+\d+)|(\+\d+),(mla:\d+)", r"\1\4\2\3", text)
        if text.startswith("+"):  # a rotary key without its latent
            del self._found[name]
            self.missing.append(f"{name} mla:512{text}")
            return
        kinds = text.split(",")
        sized = {kind.partition(":")[0] for kind in kinds if ":" in kind}
        if name:
            # of several kinds, MHA and MQA have KV heads of their own
            heads = self._found.pop("--kv-heads", ())[1:] if kinds[1:] else ()
            usual = _WITH_SIZE | ({"gqa": f"gqa:{heads[0]}"} if heads else {})
            values = dict.fromkeys(usual.get(kind, kind) for kind in kinds if kind not in sized)
            self._found["--attention"] = (name, ",".join(values))

    @property
    def _longest_context(self) -> int:
        """The longest context that all models support; 0 unless all are built-in."""
        return min(map(own_context, self._arguments), default=0)

    @property
    def _asks_models(self) -> bool:
        """Whether the question is which model: 'largest model'."""
        return any(item.idea is not None and item.idea.means.startswith("presets | fit") for item in self._items)

    def _find_missing(self) -> None:
        """Find what the command lacks, with examples."""
        of_gpu = {option.names[0] for option in options_of(EngineOptions).values() if option.needs_gpu}
        has_sizes = self._command != "compare" and not OF_MODEL.isdisjoint(self._found)
        lists_models = (
            self._command in ("fit", "train")
            and {"--gpu", "--ram"} & {*self._found}
            and (_OF_ONE.isdisjoint(self._found) or self._asks_models)
            and (self._asks_models or not self.unread + self.left_out)
        )
        if lists_models and not self._arguments:
            self._found.pop("--roofline", None)
        has_model = any(kind_of(one) != "attention" for one in self._arguments)
        if self._command == "compare" and not has_model:
            self.unread += OF_MODEL & self._found.keys()
        needs_model = self._command not in ("gpus", *OF_WORDS) and not has_model and not lists_models
        self.missing += ["MODEL"] * (needs_model and not has_sizes and "--log" not in self._found)
        layers = self._found.get("--n-gpu-layers", ("", ""))[1]
        if "--gpu" not in self._found and layers in ("99", "999", "-1", "all"):
            self.left_out.append(" ".join(self._found.pop("--n-gpu-layers")) + " (all layers are the default)")
        given = {*self._found, *map(" ".join, self._found.values())}
        given |= {"numbered"} if re.match(r"\d+x", self._found.get("--gpu", ("",))[-1]) else set()
        given |= {"file types"} if any(with_file_type(one)[1] for one in self._arguments) else set()
        given |= {"one price"} if re.fullmatch(r"\d{1,2}(\.\d+)?", self._found.get("--price", ("",))[-1]) else set()
        needs = (*NEEDS["sizes"] * (needs_model and has_sizes), *NEEDS.get(self._command, ()))
        for if_given, options, example in needs:
            is_needed = not if_given or given & (of_gpu if if_given == ON_GPU else {*if_given})
            if is_needed and not given & {*options}:
                self.missing.append(example)
                given |= {example, example.split()[0]}
        self._hold_prefix()
        self._within_context()
        for i, (name, _, usual) in enumerate(one.partition(" ") for one in self.missing):
            if name == "--context" and 0 < (own := self._longest_context) < parse_count(usual, ""):
                self.missing[i] = f"--context {own}"

    def _hold_prefix(self) -> None:
        """Let the prompt be the shared prefix with a request's own tokens, and an assumed one exceed the prefix."""
        prefix = number(self._found.get("--shared-prefix", ("",))[-1]) or Fraction(0)
        own = number(self._found.get("--prompt", ("",))[-1].partition("+")[2])
        if own:
            self._found["--prompt"] = ("--prompt", str(prefix + own))
        elif "--prompt 4K" in self.missing and prefix >= parse_count("4K", ""):
            self.missing[self.missing.index("--prompt 4K")] = f"--prompt {prefix + parse_count('1K', '')}"


def own_context(model: str) -> int:
    """Return the longest context of a built-in model; 0 without one."""
    name = with_file_type(model)[0]
    return (load(name).max_context if preset_of(name) else None) or 0


def _is_whole(item: Item, options: Sequence[tuple[str, ...]]) -> bool:
    """Return whether the options of an idea have all that was typed: its value, and for a context a likely number."""
    values = [value for _, *rest in options for value in rest]
    is_named = not item.is_guess or (item.idea is not None and item.idea.means == "--context N")
    is_likely = ("--context", item.value) not in options or is_named or is_context(item.value or "")
    return is_likely and (
        item.value in (None, "1")
        or (item.idea is not None and item.idea.lacks != "")  # which is said
        or all(part in "".join(values).lower() for part in item.value.lower().split(","))
    )


def _with_value(item: Item) -> str:
    """Return an idea with its number: 'layers 32', and '70b' of which it is a part."""
    return item.typed if (item.value or "") in item.typed else f"{item.typed} {item.value}"


def _named(item: Item) -> str:
    """Return an item as an error names it: what words were rewritten to is no option that was typed."""
    is_rewritten = item.idea and any(f"--{item.idea.words}=" in text for _, text in REWRITES)
    return _with_value(item).lstrip("-") if is_rewritten else item.typed


def _size(text: str) -> str:
    text = text.upper().replace("I", "i").replace("X", "x")
    return text if text.lower().endswith("b") else f"{text}GB" if text[-1:].isdigit() else f"{text}B"
