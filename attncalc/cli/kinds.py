"""What a word alone is: its kind by a pattern or a table, and the parts of a name."""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import takewhile
from typing import Any

from ..config.gpus import gpu_names, gpus_of
from ..config.presets import of_family, of_other_machine, preset_of, presets, starting_with, unquantized, with_file_type
from ..engines import ENGINES, RUNNERS
from ..errors import is_valid
from ..options import WEIGHTS_DTYPE
from ..records import NamedTuple
from ..vocabulary import COUNTS, FILLER, NEGATIONS, NO_FIGURE, NUMBERS, OTHER_SIZES, PLACEHOLDERS, REWRITES, Idea
from .arithmetic import SYMBOL_OF, number
from .gpu_words import gpu_in

_PATTERNS = {
    "number": r"\d[\d_,]*[kKmM]?|\d[\dkKmM]*(?:(?:[,:]|\.\.)[\dx]+[kKmM]?)+",
    "share": r"\d*\.\d+|\d+(?:\.\d+)?%",
    "billions": r"\d+(?:\.\d+)?[bBtT]",
    "size": r"\d+(?:\.\d+)?[KMGTkmgt](?:[iI]?[bB]|i)?",
    "time": r"\d+(?:\.\d+)?(?:ms|s|/s)",
    "attention": r"(?i)mha|mqa|gqa(?:[:-]\d+)?|mla(?:[:-]\d+)?|linear",
    "model": r"(?!\S+\.(?:py|sh)$)(?:(?![\d.]+/|\w+/s(?:ec)?$)[\w.-]+/[\w.-]+|\.{0,2}/\S+|\S+\.(?:gguf|json|yaml))",
}
"""{kind of word: its pattern}, beside those that a table knows."""
_MOST_DIGITS = 8
"""Digits of a number of tokens; one of parameters has more."""
_QUANTS = {name.replace("_", ""): name for name in WEIGHTS_DTYPE.known if "_" in name}
"""Types of GGUF files without their underscores: 'q5km'."""


class Item(NamedTuple):
    """A word, or several that belong together, and what it is."""

    # 'model', 'gpu', 'dtype', 'attention', 'idea', 'option', 'filler', a kind of value, 'unknown', or 'plain' if it is
    # unknown and can change no figure
    kind: str
    text: str  # what it is in attncalc's words
    typed: str  # what was typed
    idea: Idea | None = None
    value: str | None = None  # the value of its option or idea
    is_guess: bool = False  # whether it is an unknown option, or is spelled wrong
    is_exact: bool = False  # whether it is a guess without doubt: another name of the same
    is_asked: bool = False  # whether its number is the question: 'how many users'
    ends: bool = False  # whether a comma follows

    @property
    def takes(self) -> tuple[str, ...]:
        """The kinds of words of which it still needs one as a value."""
        if self.idea is None or self.value is not None or self.is_asked:
            return ()
        counts = re.search("tokens|/|params", self.idea.means)  # billions of them, as no --tp of 'llama 70b tp 2' has
        return tuple(one for one in PLACEHOLDERS.get(self.idea.takes, ()) if counts or one != "billions")

    @property
    def means(self) -> str:
        """What to type for it."""
        return self.idea.means if self.idea else self.text

    @property
    def names_a_family(self) -> bool:
        """Whether it is a family without a size, of which a usual model is meant: 'qwen'."""
        return self.kind == "model" and self.is_guess and not re.search(r"\d[bB]", self.typed)

    @property
    def has_type(self) -> bool:
        """Whether it is an idea with a dtype: 'kv cache fp8'."""
        return bool(self.value and self.idea and self.idea.takes == "DTYPE")

    @property
    def is_cue(self) -> bool:
        """Whether it sets nothing, and only speaks for commands: 'vram' without a number, 'how fast'."""
        if self.idea is None or self.value is not None or self.typed.startswith("-"):
            return False
        fragments = self.idea.fragments(None)
        is_unset = self.idea.note.startswith(NO_FIGURE) or (bool(self.idea.takes) and not fragments)
        return is_unset or any(not one.options for one in fragments)


def rewritten(args: Sequence[str]) -> list[str]:
    """Return the arguments as they are written here: '1T' for '1 trillion', '--price=2' for '$2/h'."""
    for pattern, text in REWRITES:
        joined = " ".join(word.replace(" ", "\0") for word in args)
        if (changed := re.sub(pattern, text, joined)) != joined:
            changed = re.sub(r"<(\d+) - (\d+)>", lambda match: str(int(match[1]) - int(match[2])), changed)
            args = [word.replace("\0", " ") for word in changed.split()]
    return [*args]


def as_typed(name: str, args: Sequence[str]) -> str:
    """Return the words that were rewritten to an option: 'server costs 280000' for 'purchase-price 280000'."""
    joined, option = " ".join(args), f"--{name}".replace(" ", "=")
    for pattern, text in REWRITES:
        for match in re.finditer(pattern, joined):
            if option in (expanded := match.expand(text)).split():
                return f"'{match[0].removeprefix(expanded.partition(option)[0]).strip(' ,')}'"
        joined = re.sub(pattern, text, joined)
    return name


def meant_by(name: str, value: str = "") -> Item:
    """Return an option, or with --preset the model, that other words stand for."""
    if name == "--preset":
        return Item("model", named_by(value), value, value=value, is_guess=True, is_exact=True)
    return Item("option", name, f"{name} {value}".rstrip(), value=value or None, is_guess=True, is_exact=True)


def parts_of_name(word: str) -> list[str]:
    """Return the model and the method in the name of a recipe of torchtune: 'llama3_1/8B_lora_single_device'; and the
    model and its dtype in the name of a quantized copy: 'Qwen3-4B-MLX-8bit'.
    """
    is_free = not re.search(r"(?i)/|gguf$", word) and preset_of(with_file_type(word)[0]) is None
    copy = unquantized(word.rstrip(",;:?!.")) if is_free else None
    if copy:
        parts = word.split("-")
        names = ("-".join(parts[:n]) for n in range(len(parts), 0, -1))  # the release, as it may have another context
        return [next((name for name in names if preset_of(name) == copy[0]), copy[0]), f"--weights-dtype={copy[1]}"]
    match = re.fullmatch(r"(?i)([^/]+/\d+(?:_\d)?B)_(\w+)", word)
    known = match and preset_of(match[1])
    return [match[1], *re.findall(r"q?lora|dora", match[2])] if match and known else [word]


def named_by(path: str) -> str:
    """Return the model and the type that a family or a path of another machine names, as one name."""
    return ":".join(filter(None, of_other_machine(of_family(path) or path)))


def placeholder(option: Any) -> str:
    """Return what stands for the value of an option; '' for a flag."""
    if getattr(option, "is_flag", False):
        return ""
    metavar = (option.metavar or "").partition(",")[0].strip("[]")
    return metavar if metavar in PLACEHOLDERS else "SIZE" if metavar in ("GIB", "GB") else "VALUE"


def continued(value: str, rest: list[str], counts: Callable[[str], bool]) -> str:
    """Return a value with the words after it that belong to it: '1k 2k 4k' as a list.

    `counts` is whether a word takes the number before it: '-c 32k 64 users'.
    """
    is_dtype = [is_valid(WEIGHTS_DTYPE.parse, one, "") for one in (value, *rest)]
    while rest and (kind_of(value) == kind_of(rest[-1]) == "number" or (is_dtype[0] and is_dtype[len(rest)])):
        after = rest[-2] if rest[1:] else ""
        if any(gpu_in(one.lower()) for one in rest[-2:]) or counts(after):  # '--users 100 8 h100', '-c 32768 4090'
            break
        value += f",{rest.pop()}"
    return value


def kind_of(text: str) -> str | None:
    return next((kind for kind, pattern in _PATTERNS.items() if re.fullmatch(pattern, text)), None)


def of_part(name: str) -> Item | None:
    """Return the only model of which some words are a part of the name: 'mistral small 3.2'."""
    models = starting_with(name) if re.split("[ -]", name.lower())[0] in parts_of_names() else []
    return Item("model", models[0], name, is_guess=True, is_exact=True) if len(models) == 1 else None


def of_word(word: str) -> Item | None:
    lower = word.lower()
    if several := re.fullmatch(r"x(\d{1,4})|(\d{1,4})x", lower):
        return Item("option", "--gpus", word, value=several[1] or several[2])
    if lower in (*ENGINES, *RUNNERS):
        return Item("option", "--engine", word, value=lower)
    if lower in NUMBERS:
        return Item("number", NUMBERS[lower], word)
    if lower in FILLER:
        return Item("filler", word, word)
    if lower in COUNTS:  # 'half' is no dtype here
        return None
    dtype = word if is_valid(WEIGHTS_DTYPE.parse, word, "") else _QUANTS.get(re.sub("[_-]", "", lower))
    return Item("dtype", dtype, word) if dtype else None


def given_by(item: Item) -> dict[str, Fraction]:
    """Return the number that an item gives to a symbol of a formula: {'L': 32} of '32 layers', {'N': 3e9} of '3b'."""
    if item.kind == "gpu":
        return of_gpus(item.text)
    if item.kind in ("model", "billions"):
        size = re.search(r"\d+(?:\.\d+)?[bB]\b", item.typed)
        return {"N": number(size[0]) or Fraction(0)} if size else {}
    options = [pair for one in item.idea.fragments(item.value) for pair in one.options] if item.idea else []
    names = [*(pair[0] for pair in options), item.text]
    value = number(re.sub(r",(?=\d{3}\b)", "", item.value or ""))
    return {} if value is None else {SYMBOL_OF[name]: value for name in names[:1] if name in SYMBOL_OF}


def of_gpus(text: str) -> dict[str, Fraction]:
    """Return the number of GPUs and the peak FLOP/s of one, as far as they are known."""
    number_of, gpu = gpus_of(text) if is_valid(gpus_of, text) else (None, None)
    peak = {"peak": Fraction(gpu.peak("bf16"))} if gpu and is_valid(gpu.peak, "bf16") else {}
    return {"GPUs": Fraction(number_of or 1), **peak} if gpu else {}


@cache
def parts_of_names() -> frozenset[str]:
    """Return the words in the names of models and GPUs: 'mini', 'super'."""
    names = [*gpu_names(), *(text for one in presets() for text in (one.name, one.title))]
    return frozenset(re.findall("[a-z]+", " ".join(names).lower()))


def is_plain(word: str) -> bool:
    """Return whether an unknown word can change no figure: no name of a model, a GPU or an option, and no number."""
    lower = word.lower()
    is_word = re.fullmatch(r"[^\W\d_]+(?:['-][^\W\d_]+)*", lower)
    is_formula = re.fullmatch(r"\d[nd]{1,2}|\d+/\d+", lower) is not None  # 2N, 24/7
    is_size = not OTHER_SIZES.isdisjoint(lower.split("-")[1:])  # 'bert-medium'
    return is_formula or (bool(is_word) and not is_size and lower not in NEGATIONS | COUNTS | parts_of_names())


def is_one_slip(word: str, known: str) -> bool:
    """Return whether one letter of a word differs, is missing or is too many, or two are exchanged: 'contxt'."""
    start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(word, known, strict=False)))
    slip, meant = word[start:], known[start:]
    is_exchange = slip[:2] == meant[:2][::-1] and slip[2:] == meant[2:]
    return start > 0 and (is_exchange or slip[1:] in (meant, meant[1:]) or slip == meant[1:])


def is_instance(name: str) -> bool:
    return is_valid(gpus_of, name) and gpus_of(name)[1].instance != ""


def is_context(text: str) -> bool:
    """Return whether a number alone is a context: 32k, 4096, and not 1,8,64."""
    numbers = re.findall(r"\d+", re.sub(r",(?=\d{3}\b)", "", text))
    is_long = any(len(one) > _MOST_DIGITS for one in numbers)
    is_short = re.fullmatch(r"[\d,]+", text) and min(map(int, numbers)) < 256
    return kind_of(text) == "number" and not (is_long or is_short)
