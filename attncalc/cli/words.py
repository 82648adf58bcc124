"""What each word of a command line is: a model, a GPU, a number, a dtype, an option, an idea of the vocabulary."""

import difflib
import re
from collections.abc import Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from ..config.gpus import gpu_names
from ..config.presets import of_family, of_size, own_name, preset_names, preset_of, starting_with, with_file_type
from ..config.source import DOCUMENTS
from ..cost.training.optimizers import OPTIMIZERS
from ..engines.pasted import could_matter
from ..errors import BadValueError, is_valid
from ..options import WEIGHTS_DTYPE, Parser
from ..units import hyphens, is_auto, long_option, truncate
from ..vocabulary import (
    ALL_SHOWN,
    COUNTS,
    FILLER,
    IDEAS,
    NEGATIONS,
    NO_FIGURE,
    PLACEHOLDERS,
    SYMBOLS,
    THIS_MACHINE,
    UNLIKE,
    Idea,
    Phrases,
    parts_of,
)
from ..what_if import SIZES
from .arithmetic import SYMBOL_OF
from .checked import with_claims
from .command import names_of
from .fit_log import is_log_file
from .gpu_words import gpu_in
from .kinds import (
    Item,
    continued,
    is_instance,
    is_one_slip,
    is_plain,
    kind_of,
    meant_by,
    named_by,
    of_part,
    of_word,
    parts_of_name,
    parts_of_names,
    placeholder,
    rewritten,
)
from .neighbours import (
    as_one_machine,
    with_active,
    with_models,
    with_neighbours,
    with_nodes,
    with_splits,
    with_types,
    with_usual,
    with_values,
    without_denied,
    without_empty,
    without_this_machine,
)
from .pasted import changes_nothing, option_of_engine
from .recipes import UNREAD, options_of_file, options_of_keys, reads, values_of

_ASKED = (
    r"\b(how many|number of)( (?!(for|on|with|to|at|of|in|can|do|does|per|if|gpus?|cards?|nodes?|vram)\b)"
    r"(\d+(k| tokens?)( tokens?)?|[a-z]+))*$"
)
"""What stands before the number that a question asks for: 'how many parallel 32k' before 'requests'."""
_PROGRAM = r"(?i).*(launch|serve|chat|generat|build).*"
FILES = (*DOCUMENTS, ".log")  # the ends of words that can only be files
OF_MODEL = set(map(long_option, SIZES))
"""Options that can describe a model."""
_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0", "0.0", "none")
_NAMED = ("gpu", "dtype", "attention")
"""Kinds of words that need no option before them to be understood."""
_OPTION = re.compile(r"--?[A-Za-z]")
_phrases = cache(Phrases)  # of the names of options and commands: a question reads its words several times


_OF_BITS = {"2": "q2_k", "3": "q3_k_m", "5": "q5_k_m", "6": "q6_k", "16": "bf16", "32": "fp32"}
"""{bits of a weight: the usual dtype}, other than int8 and int4."""


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
        parts = (part for word in rewritten(args) for unglued in self._unglued(word) for part in parts_of_name(unglued))
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
                value = rest[-1].rstrip("?!,;")
            idea = None if hyphens(name) in self._known else self._phrases.of(name)
            if idea and not idea.takes and idea.note != NO_FIGURE and value.lower() in _NO[:3]:  # '--causal false'
                rest = rest[: len(rest) - (not equals)]
                name, equals, value = f"--no-{name.lstrip('-')}", "", ""
            if (of_engine := self._of_engine(name, value)) is not None:
                rest = rest[: len(rest) - of_engine[0]] if not equals else rest
                items += of_engine[1]
                continue
            item = self._option(name, value)
            if item.kind == "model" and "," in value and not equals:
                continue  # to the list of '--models gpt2,qwen3-8b'
            if item.value is not None and not equals:
                rest.pop()
                item = item._replace(value=continued(item.value, rest, self._counts_others))
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
        found = self._with_all_gpus(with_active(with_values(with_claims([*items, *self._classified(bare), *of_keys]))))
        given = {self._set_by(one) for one in found}  # replaces what a file sets
        found = with_types(with_models([*found, *(one for one in of_files if self._set_by(one) not in given)]))
        if len({item.text for item in found if item.kind == "model"}) > 1:  # 'deepseek-v3 mla vs llama2-70b gqa'
            found = [item for item in found if item.kind != "attention"]
        found = as_one_machine(without_this_machine(found))
        return with_splits(without_empty(with_neighbours(without_denied(with_usual(found)))))

    def _counts_others(self, word: str) -> bool:
        """Return whether a word takes a number, and not of tokens."""
        idea = self._phrases.of(word)
        return idea is not None and idea.takes == "N" and not re.search("--(context|tokens) N", idea.means)

    def _unglued(self, word: str) -> list[str]:
        """Return a number and what it counts, or a family and a size, as two words: '500users', 'llama70b'."""
        typed, word = word, word if preset_of(word) else word.rstrip("?!,.;)")
        match = re.fullmatch(r"(\d[\d_,]*[kKmM]?)-?([A-Za-z]{3,})", word)
        idea = self._phrases.of(match[2]) if match else None
        if match and idea and "number" in PLACEHOLDERS.get(idea.takes, ()):
            return [*match.groups()]
        sized = re.fullmatch(r"(?i)([a-z]+)-?(\d+(?:\.\d+)?b)", word)
        is_known = preset_of(word) or of_family(word)
        is_family = sized and not is_known and of_size(sized[2], sized[1])
        return [*sized.groups()] if sized and is_family else [typed]

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
        is_machine = machine and (machine.is_guess or is_instance(machine.value or ""))
        if is_machine and counted and counted.typed == "--count":
            found["nodes"] = counted
        if (nodes := found.get("nodes")) and "per-node" not in found:
            return with_nodes(items, nodes, machine, counted, is_split=not {"--tp", "--pp"}.isdisjoint(found))
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
        return rest, items + [self._of_option(*pair) for pair in found.items()]

    def _of_option(self, name: str, value: str) -> Item:
        """Return what an option, or the word of an idea, of a trainer's file is."""
        idea = self._phrases.get((name,))
        return Item("idea", name, name, idea, is_guess=True, is_exact=True) if idea else meant_by(name, value)

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
        return rest, [self._of_option(*pair) for pair in options_of_keys(keys, Path()).items()]

    def _of_engine(self, name: str, value: str) -> tuple[int, list[Item]] | None:
        """Return whether an option of an engine's command takes the value, and what it is; None if no engine has it."""
        idea = self._phrases.of(name)
        if self.has(name) or idea or len(name) < 3 or (found := option_of_engine(name, value)) is None:
            return None
        value = value if found.takes else ""
        note = NO_FIGURE if found.is_free else "it may change the runtime memory"
        unused = Item("idea", name, name, Idea(name, note=note), value or None, is_guess=True, is_exact=True)
        return bool(value), [meant_by(*pair) for pair in found.options] or [unused]

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
        name = re.sub(r"^--\w+\.(?=\D)", "--", name)  # torchtitan's '--training.seq_len'
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
        takes_own = idea is not None and (not idea.takes or is_auto(value))  # '--count 8', '-c auto'
        is_value = bool(value and takes_own and option and placeholder(option))
        if option is not None and (own or idea not in IDEAS or is_value):
            return self._known_option(name, value, option)
        return self._unknown_option(name, value, idea or self._phrases.like(name))

    def _known_option(self, name: str, value: str, option: Any) -> Item:
        if option.opts[0] == "--preset" and value:
            item = Item("model", named_by(value), name, value=value)
            if preset_of(item.text) or "/" in value or value.endswith(FILES):
                return item
            guess = self._guessed(value, is_first=False)  # '--model lama-3-8b'
            return guess if guess.kind == "model" else item
        if option.opts[0] == "--gpu" and value in THIS_MACHINE:
            return Item("option", hyphens(name), name, value="local", is_guess=True, is_exact=True)
        parser, given = self._parsers.get(option.opts[0]), (value or None) if placeholder(option) else None
        if given and parser and not is_valid(parser.parse, given, name):  # '--gpus 8xH100', '--dtype int4'
            meant = self._of_phrase([given])
            if meant and (meant.kind in _NAMED or (meant.idea and meant.idea.sets(option.opts[0]))):
                typed = f"{name} {given}" if meant.idea else name  # '--quant nf4'
                return meant._replace(typed=typed, value=None if meant.idea else given, is_guess=True, is_exact=True)
        if value.lower() in _NO and not placeholder(option):  # '--dropout=0.0'
            return Item("idea", name, name, Idea(name, note=NO_FIGURE), value)
        return Item("option", hyphens(name), name, value=given)

    def _unknown_option(self, name: str, value: str, idea: Idea | None) -> Item:
        """Return what an option is that no command has. It is exact if the vocabulary has that name."""
        known = self._of_phrase([value]) if value else None
        kind = known.kind if known else "unknown"
        is_condition = re.match(r"\w+ *([<>]|[=!]=)", value)  # --check 'kv_cache < 4GiB'
        idea = self._phrases.of("assert") if is_condition else idea
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
            return Item("model", named_by(value), name, value=value, is_guess=True, is_exact=is_exact)
        is_bits = idea.takes == "DTYPE" and re.search("bit|quant|type|precision|bpw", name)
        if is_bits and (of_bits := self._of_phrase([re.sub(r"^(\d+)(\.0)?$", r"\1bit", value)])):
            kind, value = of_bits.kind, of_bits.text  # '4' and '4bit' are int4
        if idea.takes:
            takes = idea.takes == "VALUE" or kind in PLACEHOLDERS[idea.takes]
        elif idea.means:
            is_plain = kind == "number" and idea.means in self.commands  # '--epochs 3'
            takes = is_plain or (kind in ("unknown", "model") and "presets" in idea.means) or value.endswith(DOCUMENTS)
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
            family = re.sub(r"\d.*", "", text[i].lower())  # of 'deepseek r1 distill qwen 32b', 'qwen3 30b a3b 2507'
            most = 6 if family in parts_of_names() else 4
            lengths = range(min(most, len(text) - i), 0, -1)
            found = ((length, item) for length in lengths if (item := self._of_phrase(text[i : i + length])))
            guess = next(found, None) or self._misspelled(text[i : i + 6])
            length, item = guess or (1, self._guessed(text[i], is_first=i == 0 and not self.command))
            if "number" in item.takes and re.search(_ASKED, " ".join(text[:i]).lower()):
                item = item._replace(is_asked=True)
            i += length
            if item.kind == "plain" and ended[i - 1]:  # 'need help: 70b', unlike 'vicuna 13b'
                item = item._replace(text=f"{item.text}.")
            item = item._replace(ends=said[i - 1][-1] in ",;")
            if item.idea and item.idea.means == "--gpu local":
                item = Item("gpu", "local", item.typed)
            counted = {"gpu": r"\d{1,4}", "size": r"(?!1$)\d{1,2}"}.get(item.kind, "-")  # '8 h100', 'two 48GB cards'
            last = items[-1] if items else item
            is_number = last.kind == "number" and not last.ends and re.fullmatch(counted, last.text)
            is_mac = item.idea and item.typed.lower().startswith("mac") and re.match("m[1-9]", last.text)
            if is_mac:  # 'm3 macbook air 16gb' is an M3 with 16GB
                continue
            before = items[-3].kind if len(items) > 2 else ""
            # '8 h100' and '300B tokens 8 h100', not 'batch 8 h100'
            if is_number and (len(items) < 2 or "number" not in items[-2].takes or before in items[-2].takes):
                item = item._replace(text=f"{items.pop().text}x{item.text}")
            items.append(item)
        return items

    def _of_phrase(self, text: Sequence[str]) -> Item | None:
        """Return what some adjoining words are together, or None."""
        typed = " ".join(text)
        joined = typed if len(text) > 1 or of_family(typed) else named_by(typed)
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
        elif preset:
            item = Item("model", own_name(joined, preset) if len(text) > 1 else joined, typed)
        elif (family := of_family(joined)) and not of_family(" ".join(text[1:])):
            item = Item("model", family, typed, is_guess=True, is_exact=True)
        elif gpu:
            item = Item("gpu", gpu, joined)
        elif bits:
            item = Item("dtype", _OF_BITS.get(bits[1], f"int{bits[1]}"), joined)
        elif len(text) > 1:
            item = of_part(joined)
        elif is_log_file(joined):
            item = Item("option", "--log", joined, value=joined)
        else:
            is_absent = joined.endswith(DOCUMENTS) and not Path(joined).exists()  # the configuration of another tool
            is_model = kind is not None and not is_absent
            item = self._of_pair(joined) or (Item("model", joined, joined) if is_model else of_word(joined))
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
        if len(letters) < 4 or letters in parts_of_names() or re.search(r"[^\d.]", digits):
            return None
        close = difflib.get_close_matches(letters, parts_of_names(), 2, 0.8)
        for family in close if len(letters) > 4 else [one for one in close if is_one_slip(letters, one)]:
            for length in range(len(text), 1, -1):
                item = self._of_phrase([f"{family}{digits}", *others[: length - 1]])
                if item and item.kind == "model":
                    return length, item._replace(typed=" ".join(text[:length]), is_guess=True, is_exact=True)
        return None

    def _guessed(self, word: str, *, is_first: bool) -> Item:
        """Return what a word that is spelled wrong probably is."""
        if word.endswith(FILES):
            return Item("unknown", word, word, is_guess=True)
        if re.fullmatch(r".*\.py|[a-z_]+(\.[a-z_]+){2,}", word):  # 'axolotl.cli.train'
            return self._of_program(word, is_first=True) or Item("filler", word, word)
        size = re.search(r"\d+(?:\.\d+)?[bB]\b", word)
        models = of_size(size[0]) if size else preset_names()
        known = [*("-".join(phrase) for phrase in self._phrases), *models, *gpu_names(), *NEGATIONS]
        family = starting_with(word) if re.search(r"[A-Za-z].*\d", word) else []  # deepseek-v4 is not deepseek-v3
        cutoff = 0.75 if not word.isalpha() else 0.8 if len(word) > 4 else 0.86
        close = family[:1] or difflib.get_close_matches(word.lower(), known if len(word) > 3 else (), 1, cutoff)
        close = close or difflib.get_close_matches(word.lower(), self.commands if is_first else (), 1, 0.6)
        stem = word if family else re.sub(r"[-.\d]+$", "", word)
        names = [name for name in models if re.match(rf"{re.escape(stem.lower())}[\d.-]", name)]
        is_family = len(stem) > 2 and stem.isalpha() and bool(names)  # 'llama' is not 'ollama', and 'llama5' neither
        if is_family or word.lower() in NEGATIONS:
            return Item("unknown", word, word, is_guess=True)
        found = self._of_phrase(close) if close else self._of_program(word, is_first=is_first)
        is_other = is_plain(word) and bool(close) and not is_one_slip(word.lower(), close[0])
        if found and close and found.kind == "idea" and (is_other or starting_with(word.partition("-")[0])):
            found, close = None, []  # 'expected' is not 'experts', and 'qwen3-embedding' not 'tied-embedding'
        if found:
            # there is one Llama with 405B
            is_only = bool(size) and models == close and found.text[:4].lower() == word[:4].lower()
            is_only |= len(family) == 1 and self.command is None  # 'qwen3-next'
            is_exact = not close or is_only or (found.kind == "idea" and len(word) > 3)
            return found._replace(typed=word, is_guess=True, is_exact=is_exact)
        return Item("plain", word, word) if is_plain(word) and not close else Item("unknown", word, word, is_guess=True)

    def _of_program(self, name: str, *, is_first: bool) -> Item | None:
        """Return what a program does, by its name: 'pretrain_gpt.py', 'estimate_zero3_model_states_mem_needs'."""
        parts = re.split(r"[^a-z0-9]+", name.lower())
        ideas = [self._phrases[(part,)] for part in parts if (part,) in self._phrases]
        serving = [self._phrases[("serve",)]] if re.fullmatch(_PROGRAM, name) else []
        training = (one for start in ("train -", "train") for one in ideas if one.means.startswith(start))
        ideas = [*training, *serving, *ideas]  # of 'train_dpo.py' what has options
        if ideas and (is_first or "_" in name):
            return Item("idea", name, name, ideas[0])
        is_program = is_first and re.search(r"\w[-_.]\w", name) and not re.search(r"\d[bB]\b", name)
        return Item("filler", name, name) if is_program else None
