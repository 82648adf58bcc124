"""What each word of a command line is: a model, a GPU, a number, a dtype, an option, an idea of the vocabulary."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise, product, takewhile
from math import ceil, prod
from pathlib import Path
from typing import Any

from ..config.gpus import gpu_names, gpus_of
from ..config.presets import (
    nearest_size,
    of_other_machine,
    of_size,
    preset_names,
    preset_of,
    presets,
    starting_with,
    unquantized,
    with_file_type,
)
from ..config.source import DOCUMENTS
from ..cost.training.optimizers import OPTIMIZERS
from ..engines import ENGINES, RUNNERS
from ..engines.pasted import could_matter
from ..errors import BadValueError, is_valid
from ..hardware import PER_NODE
from ..model import plural
from ..options import WEIGHTS_DTYPE, Parser
from ..records import NamedTuple
from ..units import hyphens, long_option, truncate
from ..vocabulary import (
    ALL_SHOWN,
    COUNTS,
    FAMILIES,
    FILLER,
    IDEAS,
    NEGATIONS,
    NEWEST,
    NO_FIGURE,
    NUMBERS,
    OTHER_SIZES,
    PLACEHOLDERS,
    REWRITES,
    SYMBOLS,
    THIS_MACHINE,
    UNLIKE,
    Idea,
    Phrases,
    parts_of,
)
from ..what_if import SIZES
from .arithmetic import SYMBOL_OF, number
from .command import names_of
from .fit_log import is_log_file
from .gpu_words import gpu_in
from .pasted import changes_nothing, option_of_engine
from .recipes import UNREAD, options_of_file, options_of_keys, reads, values_of

_PATTERNS = {
    "number": r"\d[\d_,]*[kKmM]?|\d[\dkKmM]*(?:(?:[,:]|\.\.)[\dx]+[kKmM]?)+",
    "share": r"\d*\.\d+|\d+(?:\.\d+)?%",
    "billions": r"\d+(?:\.\d+)?[bBtT]",
    "size": r"\d+(?:\.\d+)?[KMGTkmgt](?:[iI]?[bB])?",
    "time": r"\d+(?:\.\d+)?(?:ms|s|/s)",
    "attention": r"(?i)mha|mqa|gqa(?:[:-]\d+)?|mla(?:[:-]\d+)?|linear",
    "model": r"(?![\d.]+/|\w+/s(?:ec)?$)[\w.-]+/[\w.-]+|\.{0,2}/\S+|\S+\.(?:gguf|json|yaml)",
}
"""{kind of word: its pattern}, beside those that a table knows."""
_ASKED = (
    r"\b(how many|number of)( (?!(for|on|with|to|at|of|in|can|do|does|per|if|gpus?|cards?|nodes?|vram)\b)"
    r"(\d+(k| tokens?)( tokens?)?|[a-z]+))*$"
)
"""What stands before the number that a question asks for: 'how many parallel 32k' before 'requests'."""
_PROGRAM = r"(?i).*(launch|serve|chat|generat|build).*"
_GLUE = frozenset(
    ("of", "is", "at", "in", "to", "a", "an", "as", "with", "token", "tokens", "running", "active", "under", "below")
)
"""Words between an idea and its value: 'a batch of 8'."""
_EITHER = ("vs", "versus", "or", "and")
_HAS = dict.fromkeys(("use", "uses", "using", "have", "has"), ("attention",)) | {"support": ("dtype",)}
"""{verb of a question about what there is: the kinds of words that it asks for, and does not set}."""
_BEFORE_USED = "than|shows|showing|uses|used|says|reports|takes?|eats|exceeds|available"
"""Words before a size that is used, and no GPU's."""
_DENIALS = ("not", "never", "no", "instead", "without")
_SMALL_WORDS = ("then", "any", "so", "also", "really", "yet")
FILES = (*DOCUMENTS, ".log")  # the ends of words that can only be files
_UNLIKELY = {"N--context": r"\d{1,2}", "SIZE--gpu SIZ": r"\d{4,}", "RANKtrain --l": r".*[kKmM,].*"}
"""{placeholder and start of what an idea means: numbers that it hardly has, as '3 epochs' after 'context'}."""
_MOST_IDEAS = 6
_MOST_DIGITS = 8
"""Digits of a number of tokens; one of parameters has more."""
OF_MODEL = set(map(long_option, SIZES))
"""Options that can describe a model."""
_QUANTS = {name.replace("_", ""): name for name in WEIGHTS_DTYPE.known if "_" in name}
"""Types of GGUF files without their underscores: 'q5km'."""
_YES = ("true", "yes", "on", "1")
_NAMED = ("gpu", "dtype", "attention")
"""Kinds of words that need no option before them to be understood."""
_OPTION = re.compile(r"--?[A-Za-z]")
_CHANGED = r"(?i)doubl\w+|halv\w+|half|twice|improv\w+|increas\w+|reduc\w+|saves?|savings?|gains?|lowers?|worth"


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

    @property
    def takes(self) -> tuple[str, ...]:
        """The kinds of words of which it still needs one as a value."""
        is_open = self.idea and self.value is None and not self.is_asked
        return PLACEHOLDERS.get(self.idea.takes, ()) if self.idea and is_open else ()

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


@cache
def _phrases(names: tuple[tuple[str, Idea], ...]) -> Phrases:
    """Return the phrases with the names of options and commands: a question reads its words several times."""
    return Phrases(names)


class Words:
    """Reads words, with the options of the commands and the vocabulary."""

    def __init__(self, root: Any, args: Sequence[str]) -> None:
        self._root, self.commands = root, root.list_commands(None)
        first, phrases = "".join(args[:1]).lower(), {"-".join(args[:n]).lower() for n in (2, 3)}
        is_phrase = len(args) > 1 and any(not phrases.isdisjoint(idea.words.split()) for idea in IDEAS)
        # the command that was typed, or None; 'memory needed' is no command
        self.command = first if first in self.commands and not is_phrase else None
        self._options: dict[str, dict[str, Any]] = {}
        self._parsers: dict[str, Parser] = {}
        own = self.options(self.command) if self.command else {}
        known = own.copy()
        for other in ("fit", "train", "plan", "kv", "flops"):
            known = self.options(other) | known
        self._known = known
        names = [(name, Idea(name, f"train --optimizer {name}")) for name in OPTIMIZERS]
        names += [(name, Idea(name, name)) for name in self.commands]
        names += [
            (
                name,
                Idea(name, f"{option.opts[0]} {placeholder(option)}".rstrip(), "params" * (option.opts[0] in OF_MODEL)),
            )
            for name, option in known.items()
            # 'fp8' alone is the dtype, and 'the full context' no option
            if not is_valid(WEIGHTS_DTYPE.parse, name.lstrip("-"), "")
            and (name.lstrip("-") not in FILLER or placeholder(option))
        ]
        self._phrases = _phrases(tuple(names))

    def options(self, command: str) -> dict[str, Any]:
        """Return {name, or that of another tool: option} of a command."""
        if command not in self._options:
            found = self._root.get_command(None, command)
            self._options[command] = names_of(found)
            for option in getattr(found.callback, "declared", {}).values():
                if option.parser:
                    self._parsers.setdefault(option.name, option.parser)
        return self._options[command]

    def has(self, name: str, command: str | None = None) -> bool:
        """Return whether a command has an option, by default the one that was typed."""
        return hyphens(name) in self.options(command or self.command or "fit")

    def first_name(self, name: str) -> str:
        """Return the first name of an option that any command has, '--weights-dtype' of '--quantization=awq'."""
        option = self._known.get(hyphens(name.partition("=")[0]))
        return str(option.opts[0]) if option else name

    def items(self, args: Sequence[str]) -> list[Item]:
        """Return what the arguments are, in order."""
        bare: list[str] = []
        parts = (
            part for word in _rewritten(args) for unglued in self._unglued(word) for part in parts_of_name(unglued)
        )
        words, of_files = self._of_files([*parts])
        words, of_keys = self._of_keys(words)
        items: list[Item] = []
        rest = [*reversed(words)]
        while rest:
            word = rest.pop()
            if not _OPTION.match(word):
                names = word.split(",")
                is_list = all(preset_of(name) or kind_of(name) in ("billions", "attention") for name in names)
                bare += names if is_list else word.split() or [word]
                continue
            items += self._classified(bare)
            bare = []
            name, equals, value = word.rstrip("?,;").partition("=")
            if not equals and rest and not (_OPTION.match(rest[-1]) or rest[-1].endswith(".py")):
                value = rest[-1]
            if (of_engine := self._of_engine(name, value)) is not None:
                rest = rest[: len(rest) - of_engine[0]] if not equals else rest
                items += of_engine[1]
                continue
            item = self._option(name, value)
            if item.kind == "model" and "," in value and not equals:
                continue  # to the list of '--models gpt2,qwen3-8b'
            if item.value is not None and not equals:
                rest.pop()
                item = item._replace(value=_continued(item.value, rest))
            elif value and item.value is None and item.idea and item.is_exact and not item.typed.endswith(value):
                is_yes = value.lower() in _YES or ("offload" in name and value == "cpu")
                rest = rest[:-1] if is_yes and not equals else rest
                meant = self._phrases.of(value)
                is_same = meant is not None and meant.means.split()[:1] == [item.idea.alone]  # '--stage sft'
                # '--screen-reader "does qwen3 14b fit"'
                is_own = (
                    " " in value or preset_of(value) or all(kind_of(one) == "attention" for one in value.split(","))
                )
                item = item._replace(is_exact=is_yes or (not equals and (is_same or bool(is_own))))
            items.insert(0 if "base" in name and item.kind == "model" else len(items), item)  # compared with others
        found = self._with_all_gpus(_with_active(_with_values([*items, *self._classified(bare), *of_keys])))
        given = {self._set_by(one) for one in found}  # replaces what a file sets
        found = _with_models([*found, *(one for one in of_files if self._set_by(one) not in given)])
        if len({item.text for item in found if item.kind == "model"}) > 1:  # 'deepseek-v3 mla vs llama2-70b gqa'
            found = [item for item in found if item.kind != "attention"]
        found = _as_one_machine(_without_this_machine(found))
        return _with_splits(_without_empty(_with_neighbours(_without_denied(_with_usual(found)))))

    def _unglued(self, word: str) -> list[str]:
        """Return a number and what it counts, or a family and a size, as two words: '500users', 'llama70b'."""
        word = word if preset_of(word) else word.rstrip("?!,.;)")
        match = re.fullmatch(r"(\d[\d_,]*[kKmM]?)-?([A-Za-z]{3,})", word)
        idea = self._phrases.of(match[2]) if match else None
        if match and idea and "number" in PLACEHOLDERS.get(idea.takes, ()):
            return [*match.groups()]
        of_family = re.fullmatch(r"(?i)([a-z]+)-?(\d+(?:\.\d+)?b)", word)
        is_family = of_family and not preset_of(word) and of_size(of_family[2], of_family[1])
        return [*of_family.groups()] if of_family and is_family else [word]

    def _with_all_gpus(self, items: Sequence[Item]) -> list[Item]:
        """Return the items with the number of all GPUs: '--nnodes 2 --nproc_per_node 8', 'train --dp 8 --tp 2',
        '--gpu 8xh100 --nodes 2', '--instance p5.48xlarge --count 2'.
        """
        found: dict[str, Item] = {}
        for item in items:
            name = item.idea.words.split()[0] if item.idea else self._set_by(item)
            if item.value and item.value.isdecimal():
                found["per-node" if re.search("per.node", item.typed) else name] = item
            elif item.kind == "gpu" or name == "--gpu" or (item.idea and item.idea.means == "--gpu GPU"):
                found["machine"] = item
        machine, counted = found.get("machine"), found.get("--gpus")
        if (
            machine
            and counted
            and counted.typed == "--count"
            and (machine.is_guess or _is_instance(machine.value or ""))
        ):
            found["nodes"] = counted
        if (nodes := found.get("nodes")) and "per-node" not in found:
            return _with_nodes(items, nodes, machine, counted, is_split=not {"--tp", "--pp"}.isdisjoint(found))
        factors: tuple[str, ...] = ("nodes", "per-node")
        if self.command == "train" and "--gpus" not in found and "nodes" not in found:
            factors = ("dp", "--tp", "--pp", "--cp")
        if found.keys().isdisjoint(factors[:1]) or (factors[0] == "nodes" and "per-node" not in found):
            return [*items]
        number = prod(int(found[name].value or 1) for name in factors if name in found)
        replaced = [item for name, item in found.items() if name in ("nodes", "per-node", "dp")]
        others = [item for item in items if all(item is not one for one in replaced)]
        total = Item("option", "--gpus", replaced[-1].typed, value=str(number), is_guess=True)
        return [*others, total._replace(is_exact="shard" not in replaced[-1].typed)]

    def _of_files(self, words: Sequence[str]) -> tuple[list[str], list[Item]]:
        """Return the words without the files of other trainers, and the options in these: '--deepspeed ds_z3.json'."""
        rest: list[str] = []
        found: dict[str, str] = {}
        for word in words:
            options = options_of_file(word)
            found = (options or {}) | found
            if options is None:
                rest.append(word)
            elif rest and _OPTION.match(rest[-1]):
                rest.pop()
        if found and self.command is None:
            rest.insert(0, "train")
        unread = found.pop(UNREAD, "")
        items = [Item("idea", "train", "", Idea("train", "train", lacks=unread))] if unread else []
        return rest, items + [_meant(*pair) for pair in found.items()]

    def _of_keys(self, words: Sequence[str]) -> tuple[list[str], list[Item]]:
        """Return the words without options that are keys of trainers' files, and what these are: '--adapter qlora'."""
        keys: dict[str, str] = {}
        ideas = [self._phrases.of(word) for word in words]
        trains = self.command is None and any(idea and idea.means.startswith("train") for idea in ideas)
        if self.command != "train" and not trains:
            return [*words], []
        rest: list[str] = []
        pending, is_needed = [*reversed(words)], False
        while pending:
            word = pending.pop()
            name, equals, value = word.partition("=")
            follows = not equals and pending and not _OPTION.match(pending[-1])
            value = pending[-1] if follows else value or "true"
            key = name.lstrip("-").replace("-", "_")
            absent = value.endswith(FILES) and not Path(value).exists()
            is_key = _OPTION.match(word) and not self.has(name, "train") and reads(key, value)
            if is_key and not (absent and not options_of_keys({key: value}, Path())):
                idea, keys[key] = self._phrases.of(name), value
                is_flag = value.lower() in (*_YES, "cpu")
                is_taken = idea and idea.means and (kind_of(value) in PLACEHOLDERS.get(idea.takes, ()) or is_flag)
                is_needed |= not is_taken or value.lower() == "false"
                pending = pending[: len(pending) - bool(follows)]
            else:
                rest.append(word)
        if not is_needed:  # the vocabulary has them all, in the order that was typed
            return [*words], []
        return rest, [_meant(*pair) for pair in options_of_keys(keys, Path()).items()]

    def _of_engine(self, name: str, value: str) -> tuple[int, list[Item]] | None:
        """Return whether an option of an engine's command takes the value, and what it is; None if no engine has it."""
        idea = self._phrases.of(name)
        if self.has(name) or idea or len(name) < 3 or (found := option_of_engine(name, value)) is None:
            return None
        value = value if found.takes else ""
        note = NO_FIGURE if found.is_free else "it may change the runtime memory"
        unused = Item("idea", name, name, Idea(name, note=note), value or None, is_guess=True, is_exact=True)
        return bool(value), [_meant(*pair) for pair in found.options] or [unused]

    def symbol(self, name: str) -> str:
        """Return the symbol of a size that has that name: 'L' of 'n_layers'; the name itself if it is none's."""
        idea = None if name in ("N", "D") else self._phrases.of(SYMBOLS.get(name.lower(), name))
        return next((SYMBOL_OF[one] for one in idea.means.split() if one in SYMBOL_OF), name) if idea else name

    def _set_by(self, item: Item) -> str:
        """Return what an item sets: 'model', or an option by its first name."""
        if item.kind == "model":
            return "model"
        return self.first_name(item.text) if item.text in self._known else item.typed

    def _option(self, name: str, value: str) -> Item:
        """Return what an option is, known or not, with its value if it has one."""
        idea = self._phrases.of(name)
        own = self.command and self.has(name) and not (idea and idea.lacks)  # TGI's --max-total-tokens
        option = self._known.get(hyphens(name))
        if option is not None and option.opts[0] == "--output" and kind_of(value) == "number":  # tokens, and no file
            return self._unknown_option(name, value, self._phrases[("output",)])._replace(text="output")
        form = self._phrases.of(value) if option is None or option.opts[0] == "--output" else None
        if form and re.match("--(json|format|plain)", form.means):  # '--output json' is no file
            return Item("idea", name, f"{name} {value}", form, is_guess=True, is_exact=True)
        if option is not None and not own and is_valid(WEIGHTS_DTYPE.parse, name.lstrip("-"), ""):
            return self._unlike_any(name, value, None)  # '--fp8', which `train` has
        is_value = bool(value and placeholder(option) and not idea.takes) if option and idea else False  # '--count 8'
        if option is not None and (own or idea not in IDEAS or is_value):
            return self._known_option(name, value, option)
        return self._unknown_option(name, value, idea or self._phrases.like(name))

    def _known_option(self, name: str, value: str, option: Any) -> Item:
        if option.opts[0] == "--preset" and value:
            return Item("model", _named(value), name, value=value)
        if option.opts[0] == "--gpu" and value in THIS_MACHINE:
            return Item("option", hyphens(name), name, value="local", is_guess=True, is_exact=True)
        parser, given = self._parsers.get(option.opts[0]), (value or None) if placeholder(option) else None
        if given and parser and not is_valid(parser.parse, given, name):  # '--gpus 8xH100', '--dtype int4'
            meant = self._of_phrase([given])
            if meant and (meant.kind in _NAMED or (meant.idea and meant.idea.sets(option.opts[0]))):
                typed = f"{name} {given}" if meant.idea else name  # '--quant nf4'
                return meant._replace(typed=typed, value=None if meant.idea else given, is_guess=True, is_exact=True)
        return Item("option", hyphens(name), name, value=given)

    def _unknown_option(self, name: str, value: str, idea: Idea | None) -> Item:
        """Return what an option is that no command has. It is exact if the vocabulary has that name."""
        known = self._of_phrase([value]) if value else None
        kind = known.kind if known else "unknown"
        is_file = value.endswith(FILES) and idea is not None and idea.means.startswith("--attention")  # --baseline
        if idea is None or is_file or (kind == "gpu" and kind not in PLACEHOLDERS.get(idea.takes, (kind,))):
            return self._unlike_any(name, value, known)
        is_exact = idea is self._phrases.same_as(name)
        if option := self._known.get(idea.words):  # '--dtypes' is '--dtype'
            item = self._known_option(idea.words, value, option)
            if item.kind in _NAMED:
                return item._replace(typed=name, is_guess=True, is_exact=is_exact)
        is_open = idea.takes or (idea.means and " -" not in idea.means)
        if is_open and known and known.idea and known.idea.sets(idea.means.partition(" ")[0]):
            return known._replace(typed=f"{name} {value}", is_guess=True, is_exact=is_exact)
        idea = self._of_file(value, idea)
        value = known.text if known and kind == "gpu" else value
        if value and (idea.means.startswith("--preset") or ("," in value and preset_of(value.partition(",")[0]))):
            return Item("model", _named(value), name, value=value, is_guess=True, is_exact=is_exact)
        is_bits = idea.takes == "DTYPE" and re.search("bit|quant|type|precision|bpw", name)
        if is_bits and (of_bits := self._of_phrase([re.sub(r"^(\d+)(\.0)?$", r"\1bit", value)])):
            kind, value = of_bits.kind, of_bits.text  # '4' and '4bit' are int4
        if idea.takes:
            takes = idea.takes == "VALUE" or kind in PLACEHOLDERS[idea.takes]
        elif idea.means:
            is_plain = kind == "number" and idea.means in self.commands  # '--epochs 3'
            takes = is_plain or (kind == "unknown" and "presets" in idea.means) or value.endswith(DOCUMENTS)
        else:
            takes = True
        is_exact |= idea.note.startswith((NO_FIGURE, ALL_SHOWN))
        return Item("idea", name, name, idea, value if takes and value else None, is_guess=True, is_exact=is_exact)

    def _unlike_any(self, name: str, value: str, known: Item | None) -> Item:
        """Return what an option is that no word of the vocabulary is like, from its value or as a note."""
        dtype = self._of_phrase([name.lstrip("-")])
        if dtype and dtype.kind in ("dtype", "attention"):
            return dtype._replace(typed=name, is_guess=True, is_exact=True)
        near = difflib.get_close_matches(name, self._known, 1, 0.85)
        if near and not dtype:  # '--kv-cash-dtype fp8' is no --weights-dtype
            return self._known_option(near[0], value, self._known[near[0]])._replace(typed=name, is_guess=True)
        if known and known.kind in _NAMED:
            return known._replace(
                typed=name, value=value, is_guess=True, is_exact=known.kind == "gpu" or len(name) == 2
            )
        if value.endswith(FILES):  # '-f values.yaml'
            item = known or Item("unknown", value, value)
            return item._replace(typed=value, value=value, is_guess=True, is_exact=True)
        if could_matter(name) and known is None:
            return Item("unknown", name, f"{name} {value}".rstrip(), value=value or None, is_guess=True)
        if self.command == "train" and known is None and (values := values_of(name.lstrip("-").replace("-", "_"))):
            raise BadValueError(f"{name} cannot be '{truncate(value)}'", f"known: {', '.join(values)}")
        is_near = difflib.get_close_matches(name, self._known, 1, 0.75) or {*parts_of(name)} & (NEGATIONS | COUNTS)
        idea = Idea(name, note=NO_FIGURE if changes_nothing(name) else "no option has that name" if is_near else UNLIKE)
        is_exact = idea.note in (NO_FIGURE, UNLIKE)
        takes = known is None or known.kind not in ("idea", "option")
        return Item("idea", name, name, idea, value if takes and value else None, is_guess=True, is_exact=is_exact)

    def _of_file(self, name: str, idea: Idea) -> Idea:
        """Return what the name of a file says of an idea: '--deepspeed ds_config_zero3.json'."""
        found = self._of_program(name, is_first=True) if name.endswith(DOCUMENTS) else None
        named = found.idea if found else None
        return named if named and named.means.startswith(f"{idea.means} -") else idea

    def _classified(self, bare: Sequence[str]) -> list[Item]:
        """Return what words without dashes are, the longest phrases first."""
        items: list[Item] = []
        said = [word for word in bare if re.search(r"\w", word)]  # not '-', '&'
        text = [re.sub("'s$", "", word.strip("?!,;'\"()").rstrip(":.")) for word in said]
        ended = [word[-1] in "?!,;:." for word in said]
        i = 0
        while i < len(text):
            most = 6 if text[i].lower() in _parts_of_names() else 4  # 'deepseek r1 distill qwen 32b'
            lengths = range(min(most, len(text) - i), 0, -1)
            found = ((length, item) for length in lengths if (item := self._of_phrase(text[i : i + length])))
            guess = next(found, None) or self._misspelled(text[i : i + 6])
            length, item = guess or (1, self._guessed(text[i], is_first=i == 0 and not self.command))
            if "number" in item.takes and re.search(_ASKED, " ".join(text[:i]).lower()):
                item = item._replace(is_asked=True)
            i += length
            if item.kind == "plain" and ended[i - 1]:  # 'need help: 70b', unlike 'vicuna 13b'
                item = item._replace(text=f"{item.text}.")
            if item.idea and item.idea.means == "--gpu local":
                item = Item("gpu", "local", item.typed)
            is_number = item.kind == "gpu" and items and re.fullmatch(r"\d{1,4}", items[-1].text)
            is_mac = item.idea and item.typed.lower().startswith("mac") and items and re.match("m[1-9]", items[-1].text)
            if is_mac:  # 'm3 macbook air 16gb' is an M3 with 16GB
                continue
            before = items[-3].kind if len(items) > 2 else ""
            # '8 h100' and '300B tokens 8 h100', not 'batch 8 h100'
            if is_number and (len(items) < 2 or not items[-2].takes or before in items[-2].takes):
                item = item._replace(text=f"{items.pop().text}x{item.text}")
            items.append(item)
        return items

    def _of_phrase(self, text: Sequence[str]) -> Item | None:
        """Return what some adjoining words are together, or None."""
        typed = " ".join(text)
        joined = _named(typed) if len(text) == 1 else typed
        lower = joined.lower()
        kind = kind_of(joined)
        gpu = gpu_in(lower) if kind is None or re.fullmatch(r"\d{4}s?", lower) else None
        idea = self._phrases.of(lower)
        preset = preset_of(with_file_type(joined)[0])
        preset = None if len(text) > 1 and preset == preset_of(" ".join(text[1:])) else preset  # 'chat qwen3-8b'
        bits = re.fullmatch(r"(\d{1,2})[ -]?bits?", lower)
        item = None
        if len(text) > 1 and (of_gpus := self._of_gpus(text)):
            return of_gpus
        if kind not in (None, "model") and not gpu:
            item = Item(kind or "", lower.replace("-", ":") if kind == "attention" else joined, joined)
        elif idea:
            item = Item("idea", joined, joined, idea)
        elif preset and (len(text) > 1 or preset == joined or re.search(r"\d|/|-", joined)):
            is_old = preset in NEWEST and not re.search(rf"^{preset}$|/|0[.]1", lower)  # 'mistral 7b'
            name = NEWEST[preset] if is_old else preset if len(text) > 1 else joined
            item = Item("model", name, typed, is_guess=is_old, is_exact=is_old)
        elif gpu:
            item = Item("gpu", gpu, joined)
        elif bits:
            item = Item("dtype", {"16": "bf16", "32": "fp32"}.get(bits[1], f"int{bits[1]}"), joined)
        elif len(text) > 1:
            item = _of_part(joined)
        elif is_log_file(joined):
            item = Item("option", "--log", joined, value=joined)
        else:
            is_absent = joined.endswith(DOCUMENTS) and not Path(joined).exists()  # the configuration of another tool
            is_model = kind is not None and not is_absent
            item = self._of_pair(joined) or (Item("model", joined, joined) if is_model else _of_word(joined))
        return item

    def _of_gpus(self, text: Sequence[str]) -> Item | None:
        """Return 'how many gpus' of 'how many h100s', with the GPU."""
        gpu, joined = gpu_in(text[-1].lower()), " ".join(text)
        idea = self._phrases.of(" ".join([*text[:-1], "gpus"])) if gpu else None
        return Item("idea", joined, joined, idea, gpu) if idea and idea.takes == "GPU" else None

    def _of_pair(self, word: str) -> Item | None:
        """Return what 'ctx=8192', 'tp:2', 'tp2' and 'h100:4' are."""
        if re.search(r"layers.*\*|\*.*layers", word):  # '2*layers*kv_heads*head_dim'
            return Item("idea", word, word, Idea("kv-cache", "explain"))
        if (pair := re.fullmatch(r"(?i)([^=:/]+)([=:])(.+)|([tpdec]p)()(\d+)", word)) is None:
            return None
        name, sign, value = filter(lambda part: part is not None, pair.groups())
        if name.isupper() and len(name) > 3:  # a variable of a shell
            return Item("plain", word, word)
        name = SYMBOLS.get(name, name)
        idea = self._phrases.like(name) if sign == "=" else self._phrases.of(name)
        if idea and idea.means.startswith("--preset"):
            return Item("model", value, word)
        return Item("idea", word, word, idea, value) if idea else None

    def _misspelled(self, text: Sequence[str]) -> tuple[int, Item] | None:
        """Return how many words are a model that is not spelled as its preset, and the model: 'mistal 7b'."""
        first, *others = text
        release = re.sub(r"(?i)(-instruct)?-\d+[km]$", "", first)
        if release != first and preset_of(release):
            return 1, Item("model", release, first, is_guess=True, is_exact=True)  # 'qwen2.5-14b-1m'
        letters, digits = re.fullmatch(r"([a-z]*)(.*)", first.lower()).groups()  # type: ignore[union-attr]
        if len(letters) < 4 or letters in _parts_of_names() or re.search(r"[^\d.]", digits):
            return None
        close = difflib.get_close_matches(letters, _parts_of_names(), 2, 0.8)
        for family in close if len(letters) > 4 else [one for one in close if _is_one_slip(letters, one)]:
            for length in range(len(text), 1, -1):
                item = self._of_phrase([f"{family}{digits}", *others[: length - 1]])
                if item and item.kind == "model":
                    return length, item._replace(typed=" ".join(text[:length]), is_guess=True, is_exact=True)
        return None

    def _guessed(self, word: str, *, is_first: bool) -> Item:
        """Return what a word that is spelled wrong probably is."""
        if word.endswith(FILES):
            return Item("unknown", word, word, is_guess=True)
        if word.endswith(".py"):
            return self._of_program(word, is_first=is_first) or Item("filler", word, word)
        size = re.search(r"\d+(?:\.\d+)?[bB]\b", word)
        models = of_size(size[0]) if size else preset_names()
        known = [*("-".join(phrase) for phrase in self._phrases), *models, *gpu_names(), *NEGATIONS]
        family = starting_with(word) if re.search(r"[A-Za-z].*\d", word) else []  # deepseek-v4 is not deepseek-v3
        cutoff = 0.75 if not word.isalpha() else 0.8 if len(word) > 4 else 0.86
        close = family[:1] or difflib.get_close_matches(word.lower(), known if len(word) > 3 else (), 1, cutoff)
        close = close or difflib.get_close_matches(word.lower(), self.commands if is_first else (), 1, 0.6)
        names = [name for name in models if re.match(rf"{re.escape(word.lower())}[\d.-]", name)]
        is_family = len(word) > 2 and word.isalpha() and bool(names)  # 'llama' is not 'ollama'
        if is_family or word.lower() in NEGATIONS:
            return Item("unknown", word, word, is_guess=True)
        found = self._of_phrase(close) if close else self._of_program(word, is_first=is_first)
        if found and close and found.kind == "idea" and _is_plain(word) and not _is_one_slip(word.lower(), close[0]):
            found, close = None, []  # 'expected' is not 'experts'
        if found:
            # there is one Llama with 405B
            is_only = bool(size) and models == close and found.text[:4].lower() == word[:4].lower()
            is_only |= len(family) == 1 and self.command is None  # 'qwen3-next'
            is_exact = not close or is_only or (found.kind == "idea" and len(word) > 3)
            return found._replace(typed=word, is_guess=True, is_exact=is_exact)
        return (
            Item("plain", word, word) if _is_plain(word) and not close else Item("unknown", word, word, is_guess=True)
        )

    def _of_program(self, name: str, *, is_first: bool) -> Item | None:
        """Return what a program does, by its name: 'pretrain_gpt.py', 'estimate_zero3_model_states_mem_needs'."""
        parts = re.split(r"[^a-z0-9]+", name.lower())
        ideas = [self._phrases[(part,)] for part in parts if (part,) in self._phrases]
        serving = [self._phrases[("serve",)]] if re.fullmatch(_PROGRAM, name) else []
        ideas = [*(one for one in ideas if one.means.startswith("train")), *serving, *ideas]
        if ideas and (is_first or "_" in name):
            return Item("idea", name, name, ideas[0])
        is_program = is_first and re.search(r"\w[-_.]\w", name) and not re.search(r"\d[bB]\b", name)
        return Item("filler", name, name) if is_program else None


def _rewritten(args: Sequence[str]) -> list[str]:
    """Return the arguments as they are written here: '1T' for '1 trillion', '--price=2' for '$2/h'."""
    for pattern, text in REWRITES:
        joined = " ".join(word.replace(" ", "\0") for word in args)
        if (changed := re.sub(pattern, text, joined)) != joined:
            changed = re.sub(r"<(\d+) - (\d+)>", lambda match: str(int(match[1]) - int(match[2])), changed)
            args = [word.replace("\0", " ") for word in changed.split()]
    return [*args]


def _meant(name: str, value: str = "") -> Item:
    """Return an option, or with --preset the model, that other words stand for."""
    if name == "--preset":
        return Item("model", _named(value), value, value=value, is_guess=True, is_exact=True)
    return Item("option", name, f"{name} {value}".rstrip(), value=value or None, is_guess=True, is_exact=True)


def parts_of_name(word: str) -> list[str]:
    """Return the model and the method in the name of a recipe of torchtune: 'llama3_1/8B_lora_single_device'; and the
    model and its dtype in the name of a quantized copy: 'Qwen3-4B-MLX-8bit'.
    """
    is_free = not re.search(r"(?i)/|gguf$", word) and preset_of(with_file_type(word)[0]) is None
    copy = unquantized(word) if is_free else None
    if copy:
        parts = word.split("-")
        names = ("-".join(parts[:n]) for n in range(len(parts), 0, -1))  # the release, as it may have another context
        return [next((name for name in names if preset_of(name) == copy[0]), copy[0]), f"--weights-dtype={copy[1]}"]
    match = re.fullmatch(r"(?i)([^/]+/\d+(?:_\d)?B)_(\w+)", word)
    known = match and preset_of(match[1])
    return [match[1], *re.findall(r"q?lora|dora", match[2])] if match and known else [word]


def _named(path: str) -> str:
    """Return the model and the type that a path of another machine names, as one name."""
    return ":".join(filter(None, of_other_machine(path)))


def placeholder(option: Any) -> str:
    """Return what stands for the value of an option; '' for a flag."""
    if getattr(option, "is_flag", False):
        return ""
    metavar = (option.metavar or "").partition(",")[0].strip("[]")
    return metavar if metavar in PLACEHOLDERS else "SIZE" if metavar in ("GIB", "GB") else "VALUE"


def _continued(value: str, rest: list[str]) -> str:
    """Return a value with the words after it that belong to it: '1k 2k 4k' as a list."""
    is_dtype = [is_valid(WEIGHTS_DTYPE.parse, one, "") for one in (value, *rest)]
    while rest and (kind_of(value) == kind_of(rest[-1]) == "number" or (is_dtype[0] and is_dtype[len(rest)])):
        if any(gpu_in(one.lower()) for one in rest[-2:]):  # '--users 100 8 h100', '-c 32768 4090'
            break
        value += f",{rest.pop()}"
    return value


def kind_of(text: str) -> str | None:
    return next((kind for kind, pattern in _PATTERNS.items() if re.fullmatch(pattern, text)), None)


def _of_part(name: str) -> Item | None:
    """Return the only model of which some words are a part of the name, 'mistral small 3.2', or a family: 'gemma 3'."""
    models = starting_with(name) if re.split("[ -]", name.lower())[0] in _parts_of_names() else []
    if len(models) == 1:
        return Item("model", models[0], name, is_guess=True, is_exact=True)
    return Item("unknown", name, name, is_guess=True) if re.sub("[ -]", "", name.lower()) in FAMILIES else None


def _of_word(word: str) -> Item | None:
    lower = word.lower()
    if several := re.fullmatch(r"x(\d{1,4})|(\d{1,4})x", lower):
        return Item("option", "--gpus", word, value=several[1] or several[2])
    if lower in (*ENGINES, *RUNNERS):
        return Item("option", "--engine", word, value=lower)
    if lower in NUMBERS:
        return Item("number", NUMBERS[lower], word)
    if lower in FILLER:
        return Item("filler", word, word)
    dtype = word if is_valid(WEIGHTS_DTYPE.parse, word, "") else _QUANTS.get(re.sub("[_-]", "", lower))
    return Item("dtype", dtype, word) if dtype else None


def _with_usual(items: Sequence[Item]) -> Sequence[Item]:
    """Return the items with the 16 bits that 'does fp8 double ...' compares fp8 with, instead of the verb."""
    others = [item for item in items if item.value or not re.fullmatch(_CHANGED, item.typed)]
    types = [item for item in others if item.kind == "dtype" or item.has_type]
    if len(others) == len(items) or len(types) != 1:
        return others if types else items
    usual = "fp16" if (own := types[0].value or types[0].text)[:1] in "qQ" else "bf16"
    other = types[0]._replace(value=usual) if types[0].value else types[0]._replace(text=usual)
    return others if own in ("fp16", "bf16") else [other, *others]


def _with_neighbours(items: Sequence[Item]) -> list[Item]:
    """Return the items with what the next word makes of them."""
    found = [*items]
    for i in range(len(found) - 2, 0, -1):  # 'q4 vs q8 vs f16 kv cache'
        before, word, typed = found[i - 1 : i + 2]
        if before.kind == "dtype" and word.text in _EITHER[:3] and typed.has_type:
            found[i - 1] = typed._replace(value=before.text)
    for i, (item, after) in enumerate(pairwise(found)):
        is_counted = after.kind == "plain" or (after.idea is not None and not after.idea.means)
        is_speed = after.idea is not None and "tps" in after.idea.words.split()
        if item.kind == "number" and (is_speed or after.typed.lower() == "times"):  # '40 tokens/s', '8 times smaller'
            found[i] = item._replace(kind="plain")
        elif after.kind in _HAS.get(item.typed.lower(), ()) and found[0].typed.lower() in ("does", "is", "has"):
            found[i + 1] = after._replace(kind="plain")  # 'does mistral 7b use gqa'
        elif re.fullmatch(_BEFORE_USED, item.typed.lower()) and after.kind == "size":  # 'than 40GB'
            found[i + 1] = after._replace(kind="plain")
        elif is_counted and item.kind == "number" and item.typed.isdigit():  # '10000 samples'
            found[i] = item._replace(kind="unknown")
        elif item.kind == "model" and after.typed.lower() in OTHER_SIZES and not re.search(r"\d[bB]\b", item.typed):
            found[i + 1] = Item("unknown", after.text, f"{item.typed} {after.typed}", is_guess=True)  # 'gpt-3 xl'
        elif item.text in _EITHER and i and _takes_too(found[i - 1], after):  # 'batch 1 vs 32', 'kv cache fp8 vs fp16'
            found[i + 1] = found[i - 1]._replace(value=after.text)
    return found


def _without_denied(items: Sequence[Item]) -> Sequence[Item]:
    """Return the items with MHA for 'without gqa', and without the kind of attention that a model is said to lack."""
    found = [*items]
    for i, (item, after) in enumerate(pairwise(items)):
        if after.kind == "attention" and item.typed.lower() in _DENIALS:
            found[i : i + 2] = Item("filler", item.text, item.typed), after._replace(text="mha")
        elif after.kind == "attention" and any(one.typed.endswith("n't") for one in items[max(i - 1, 0) : i + 1]):
            found[i + 1] = Item("filler", after.text, after.typed)  # 'phi-3-mini doesn't have GQA'
    return found


def _takes_too(item: Item, other: Item) -> bool:
    """Return whether an idea with a value may have another item as a further one."""
    return bool(item.idea and item.value and other.kind in PLACEHOLDERS.get(item.idea.takes, ()))


def _without_empty(items: Sequence[Item]) -> list[Item]:
    """Return the items with a denial that denies nothing, a part of a name alone, and an 'or' of two clauses as plain.

    For example the 'not' of 'and if not, which', the 'small' of 'so small', and 'or should I get'.
    """
    found = [*items]
    said = [i for i, item in enumerate(items) if item.kind != "filler" and item.typed.lower() not in _SMALL_WORDS]
    for place, i in enumerate(said):
        before, after = ([items[j] for j in some] for some in (said[:place][-1:], said[place + 1 :][:1]))
        if _is_empty(items[i], items[max(i - 1, 0) : i], before, after, items[i + 1 : i + 2]):
            found[i] = Item("plain", items[i].text, items[i].typed)
    return found


def _is_empty(
    item: Item, adjoining: Sequence[Item], before: Sequence[Item], after: Sequence[Item], following: Sequence[Item]
) -> bool:
    """Return whether a word says nothing here: beside the words around it, with and without those that say nothing."""
    text = item.text.lower()
    if text in _DENIALS:
        return not any(map(_changes, after)) or any(one.text.lower() in ("if", "or", "why", "but") for one in adjoining)
    if text == "or":
        kinds = {one.kind for one in (*before, *after)}
        return len(kinds) > 1 or "plain" in kinds
    is_part = item.kind == "unknown" and text in _parts_of_names() and not starting_with(text)
    return is_part and not any(one.kind in ("model", "gpu") for one in (*adjoining, *following))


def _without_this_machine(items: list[Item]) -> list[Item]:
    """Return the items of a question about a model without 'my GPU', if this machine has none."""
    if not any(item.kind == "model" for item in items) or is_valid(gpus_of, "local"):
        return items
    return [Item("plain", one.typed, one.typed) if _is_this_machine(one) else one for one in items]


def _as_one_machine(items: list[Item]) -> list[Item]:
    """Return the items of 'two 3090s and one 4090' as one machine, and of 'g5.xlarge (1 A10)' without the A10."""
    said = [item.typed.lower() for item in items]
    places = [i for i, item in enumerate(items) if item.kind == "gpu"]
    named = [i for i in places if _is_instance(items[i].text)]
    if len(named) == 1 and not {"or", "vs"} & {*said}:
        of_instance = gpus_of(items[named[0]].text)[1].name
        kinds = {i: re.sub(r"^\d+x|(?<=\d)\D.*", "", items[i].text) for i in places if i not in named}
        return [item for i, item in enumerate(items) if not of_instance.startswith(kinds.get(i, " "))]
    if (
        len(places) != 2
        or not {"have", "has", "own", "got", "with", "mix", "combine"} & {*said[: places[0]]}
        or {"or", "vs"} & {*said}
    ):
        return items
    first, last = places
    joint = items[first]._replace(text=f"{items[first].text}+{items[last].text}")
    return [*items[:first], joint, *items[last + 1 :]] if {*said[first + 1 : last]} <= {"and", "plus", "a"} else items


def _is_this_machine(item: Item) -> bool:
    return item.text == "local" or (item.idea is not None and item.idea.alone == "--gpu local" and item.value is None)


def _changes(item: Item) -> bool:
    """Return whether an item sets something, which 'not' before it would take away: 'not fp8'."""
    return item.kind in ("dtype", "option", "attention", "unknown") or (item.idea is not None and not item.is_cue)


def _with_splits(items: Sequence[Item]) -> list[Item]:
    """Return the items with lists for two splits of a model: --tp 4,2 --pp 1,2 for 'tp=4 vs tp=2 pp=2'."""
    names = ["".join(re.findall(r"--[tpd]p\b", one.idea.means if one.idea else one.text)[:1]) for one in items]
    either = next((i for i, item in enumerate(items) if item.text in _EITHER), 0)
    if not (either and names[either - 1] and "".join(names[either + 1 : either + 2]) and items[either - 1].value):
        return [*items]
    sides = [dict(zip(names[part], items[part], strict=True)) for part in (slice(either), slice(either, None))]
    found = [item for i, item in enumerate(items) if not names[i] and i != either]
    for name in filter(None, dict.fromkeys(names)):
        value = ",".join((name in side and side[name].value) or "1" for side in sides)
        found.append(Item("option", name, name, value=value, is_guess=True, is_exact=True))
    return found


def given_by(item: Item) -> dict[str, Fraction]:
    """Return the number that an item gives to a symbol of a formula: {'L': 32} of '32 layers', {'N': 3e9} of '3b'."""
    if item.kind == "gpu":
        return {"GPUs": Fraction(gpus_of(item.text)[0] or 1)} if is_valid(gpus_of, item.text) else {}
    if item.kind in ("model", "billions"):
        size = re.search(r"\d+(?:\.\d+)?[bB]\b", item.typed)
        return {"N": number(size[0]) or Fraction(0)} if size else {}
    options = [pair for one in item.idea.fragments(item.value) for pair in one.options] if item.idea else []
    names = [*(pair[0] for pair in options), item.text]
    value = number(re.sub(r",(?=\d{3}\b)", "", item.value or ""))
    return {} if value is None else {SYMBOL_OF[name]: value for name in names[:1] if name in SYMBOL_OF}


@cache
def _parts_of_names() -> frozenset[str]:
    """Return the words in the names of models and GPUs: 'mini', 'super'."""
    names = [*gpu_names(), *(text for one in presets() for text in (one.name, one.title))]
    return frozenset(re.findall("[a-z]+", " ".join(names).lower()))


def _is_plain(word: str) -> bool:
    """Return whether an unknown word can change no figure: no name of a model, a GPU or an option, and no number."""
    lower = word.lower()
    is_word = re.fullmatch(r"[^\W\d_]+(?:['-][^\W\d_]+)*", lower)
    is_formula = re.fullmatch(r"\d[nd]{1,2}|\d+/\d+", lower) is not None  # 2N, 24/7
    is_size = not OTHER_SIZES.isdisjoint(lower.split("-")[1:])  # 'bert-medium'
    return is_formula or (bool(is_word) and not is_size and lower not in NEGATIONS | COUNTS | _parts_of_names())


def _is_one_slip(word: str, known: str) -> bool:
    """Return whether one letter of a word differs, is missing or is too many, or two are exchanged: 'contxt'."""
    start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(word, known, strict=False)))
    slip, meant = word[start:], known[start:]
    is_exchange = slip[:2] == meant[:2][::-1] and slip[2:] == meant[2:]
    return start > 0 and (is_exchange or slip[1:] in (meant, meant[1:]) or slip == meant[1:])


def _with_values(items: Sequence[Item]) -> list[Item]:
    """Return the items with the values of ideas: '8' of 'batch 8', and '500' of '500 users'.

    A number between two ideas belongs to the one that leaves the fewest words without a place, and then to the nearer.
    """
    has_price = any(item.text == "--price" and item.value for item in items)
    takers = [i for i, item in enumerate(items) if item.takes and not (has_price and "--price" in item.idea.means)]  # type: ignore[union-attr]
    takers = takers[:_MOST_IDEAS]

    def cost(chosen: Sequence[int | None]) -> tuple[float, int, int]:
        left = [item for i, item in enumerate(items) if i not in chosen and item.kind in ("number", "share", "time")]
        pairs = [(i, j) for i, j in zip(takers, chosen, strict=True) if j is not None]
        before, distance = sum(j < i for i, j in pairs), sum(abs(j - i) for i, j in pairs)
        without = (
            0.5 if "gpu" in items[i].takes or items[i].text in _GLUE else 1
            for i, j in zip(takers, chosen, strict=True)
            if j is None
        )
        return sum(without) + sum(not is_context(item.text) for item in left), distance, before

    choices = product(*([*_beside(i, items), None] for i in takers))
    chosen = min((one for one in choices if len({*one} - {None}) == len(one) - one.count(None)), key=cost)
    values = {i: items[j].text for i, j in zip(takers, chosen, strict=True) if j is not None}
    return [
        item._replace(value=_of_mac(item, values[i]) if i in values else item.value)
        for i, item in enumerate(items)
        if i not in chosen
    ]


def _with_active(items: Sequence[Item]) -> Sequence[Item]:
    """Return the items with the users who are active: 30 of '300 employees, 10% active at once'."""
    share = next((item for item in items if item.typed == "--peak-share" and item.value), None)
    all_users = next((item for item in items if item.value and item.idea and "--users" in item.idea.means), None)
    part = re.fullmatch(r"(\d{1,3}(?:\.\d+)?)%|1/([1-9]\d{0,3})", (share and share.value) or "")
    most = number(re.sub(r",(?=\d{3}\b)", "", all_users.value or "")) if all_users else None
    if not (part and share and all_users and all_users.idea and most):
        said = Item("plain", "active", f"{share.value if share else ''} active")
        return [said if item is share else item for item in items]
    users = ceil(most * Fraction(part[1]) / 100 if part[1] else most / int(part[2]))
    counted = all_users.idea._replace(lacks=f"{all_users.value} x {share.value} = {users} active users")
    active = all_users._replace(value=str(users), idea=counted)
    return [active if item is all_users else item for item in items if item is not share]


def _of_mac(item: Item, value: str) -> str:
    """Return a Mac of that memory, of which a GPU has less: 'mac 24gb'. The chip changes the speed only."""
    if not re.match(r"(?i)mac(book|[ -]|$)", item.typed) or kind_of(value) != "size":
        return value
    mac = f"mac {value}"
    return gpus_of(mac)[1].name if gpu_in(mac) else value


def _is_instance(name: str) -> bool:
    return is_valid(gpus_of, name) and gpus_of(name)[1].instance != ""


def _with_nodes(
    items: Sequence[Item], nodes: Item, machine: Item | None, counted: Item | None, *, is_split: bool
) -> list[Item]:
    """Return the items with the GPUs of all nodes: 2x8xh100 of two nodes with 8xh100.

    `machine` names a node's GPU, with its number or without one; `counted` is the number of GPUs, of all nodes if the
    usual node has fewer. `is_split` is whether another option decides how many GPUs there are.
    """
    name = (machine.value or machine.text) if machine else ""
    total, usual = int((counted and counted.value) or 0), PER_NODE
    if is_valid(gpus_of, name):
        usual = gpus_of(name)[1].per_node
    has_number = re.match(r"\d+x", name) is not None or _is_instance(name)
    if counted is nodes:
        total = 0
    if not has_number and (total > usual or is_split or not (machine or total)):
        unused = nodes._replace(idea=Idea("nodes", note=NO_FIGURE), is_exact=total > usual or is_split)
        return [unused if item is nodes else item for item in items]
    others = [item for item in items if not any(item is one for one in (nodes, machine, counted))]
    text = f"{nodes.value}x{name}" if has_number else f"{nodes.value}x{total or usual}x{name}".rstrip("x")
    lacks = "" if has_number else f"{plural(total or usual, 'GPU')} per node are assumed: --gpus is the number of all"
    if not machine:
        text, idea = str(int(nodes.value or 1) * total), Idea("gpus", "--gpus N", lacks=lacks)
        return [*others, Item("idea", "gpus", nodes.typed, idea, text, is_guess=True, is_exact=True)]
    return [
        *others,
        Item("idea", "gpu", nodes.typed, Idea("gpu", "--gpu GPU", lacks=lacks), text, is_guess=True, is_exact=True),
    ]


def _with_models(items: Sequence[Item]) -> list[Item]:
    """Return the items with a model of each size: 'llama 70b', 'the 120b model of gpt-oss', '405b' of 'llama3.1-70b and
    405b'; and of 'a 7B' if no model is named.
    """
    if len(items) > 2 and not any(item.kind == "billions" for item in items):
        items = [_of_family(item) for item in items]
    items = _without_other_sizes(items)
    is_named = any(item.kind == "model" for item in items)
    found, families = list[Item](), list[Item]()
    for item in items:
        if item.kind != "billions":
            found.append(item)
            continue
        family = next((one for one in (*found[-1:], *items) if _is_family_of(one, item.text)), None)
        before = found[-1] if found else item
        last = next((one for one in reversed(found) if one.kind == "model"), None)
        if family:
            names = of_size(item.text, family.typed)
        elif is_named:
            names = of_size(item.text, last.text.partition("-")[0]) if last and before.text in _EITHER else []
        else:
            names = of_size(item.text) or nearest_size(item.text)
        if not names:
            found.append(item)
            continue
        families += [family] if family else []
        typed = f"{family.typed} {item.typed}" if family else item.typed
        is_other = not family and before.kind == "plain" and before.text == before.typed  # 'vicuna 13b'
        found.append(Item("model", names[0], typed, is_guess=True, is_exact=not is_other))
    return [one for one in found if not any(one is family for family in families)]


def _is_family_of(item: Item, size: str) -> bool:
    """Return whether an item is the family of a model of that size: 'gpt-oss' of 120b."""
    is_open = item.kind == "unknown" or (
        item.kind == "model" and item.is_guess and not re.search(r"\d[bB]", item.typed)
    )
    return is_open and len(item.typed) > 2 and bool(of_size(size, item.typed))


def _without_other_sizes(items: Sequence[Item]) -> Sequence[Item]:
    """Return the items without a model that has other parameters than are said: GPT-3 of 'an 82B parameter GPT-3'."""
    sized = [one for one, after in pairwise(items) if one.kind == "billions" and after.typed[:5].lower() == "param"]
    named = [one for one in items if one.kind == "model" and preset_of(one.text)]
    if not (len(named) == len(sized) == 1) or re.search(r"\d[bB]\b", named[0].typed):
        return items
    from ..config import load
    from ..cost.params import params

    there, said = params(load(named[0].text)), float(number(sized[0].text) or 0)
    if any(0.8 < int(one) / said < 1.25 for one in (there.total, there.active)):
        return items
    return [one._replace(kind="plain", text=one.typed) if one is named[0] else one for one in items]


def _of_family(item: Item) -> Item:
    """Return an item with the usual model of a family: deepseek-v3 of 'deepseek'."""
    model = FAMILIES.get(re.sub("[ -]", "", item.typed.lower())) if item.kind == "unknown" else None
    return item._replace(kind="model", text=model, is_exact=True) if model else item


def _beside(i: int, items: Sequence[Item]) -> Iterator[int]:
    """Yield the places of the words after and before an idea that may be its value."""
    for step in (1, -1):
        j = i + step
        while 0 <= j < len(items) and items[j].text.lower() in _GLUE and items[j].value is None:
            j += step
        idea = items[i].idea
        is_batch = idea is not None and (("--batch" in idea.means and step == 1) or idea.means == "--batch N")
        counts = idea and (idea.takes == "SIZE" or is_batch)  # 'users at 64k', '16k requests'
        text = items[j].text if 0 <= j < len(items) else ""
        is_long = bool(counts and re.search(r"(?i)k|,", text))
        is_long |= bool(re.search(r"(?i)[mbt]$", text)) and [one.typed[:5] for one in items[j + 1 : j + 2]] == ["param"]
        is_long |= bool(idea and re.fullmatch(_UNLIKELY.get(idea.takes + idea.means[:9], "-"), text))
        if 0 <= j < len(items) and items[j].kind in items[i].takes and not is_long:
            yield j
    if "--price" in items[i].idea.means:  # type: ignore[union-attr]
        yield from (j for j, item in enumerate(items) if item.kind == "share" and "%" not in item.text)


def is_context(text: str) -> bool:
    """Return whether a number alone is a context: 32k, 4096, and not 1,8,64."""
    numbers = re.findall(r"\d+", re.sub(r",(?=\d{3}\b)", "", text))
    is_long = any(len(one) > _MOST_DIGITS for one in numbers)
    is_short = re.fullmatch(r"[\d,]+", text) and min(map(int, numbers)) < 256
    return kind_of(text) == "number" and not (is_long or is_short)
