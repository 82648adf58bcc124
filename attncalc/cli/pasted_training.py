"""A pasted training command, or a trainer's file, as options of `attncalc train`.

attncalc train --gpu 8xh100 -- torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen3-8B --bf16
attncalc train axolotl.yml --gpu rtx-4090
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import AttncalcError
from ..options import Option
from ..report.lists import tell
from ..units import hyphens, long_option, truncate
from .other_names import ALSO
from .pasted import first_argument, value_of, words_of
from .recipes import changes_no_memory, reads, recipe_of_file, recipe_of_keys, values_of

_TRAINERS = {"torchrun", "deepspeed", "accelerate", "axolotl", "llamafactory-cli", "tune", "trl"}
"""Programs that start a training run."""
_MOST_WORDS = 1_000
_OBJECTIVES = {"dpo", "kto", "orpo", "simpo", "reward", "grpo", "ppo"}
"""Subcommands, as of `trl dpo`, that say what a run trains for."""
_CONFIGS = ("config", "config_file", "deepspeed", "deepspeed_config")
"""Keys whose value is a file of settings."""
_COUNTED = {
    **dict.fromkeys(("nproc_per_node", "num_gpus", "gpus_per_node"), "per node"),
    **dict.fromkeys(("nnodes", "num_nodes", "num_machines"), "nodes"),
}
"""{key: what it counts}: GPUs of a node, or nodes."""
_FILES = (".yaml", ".yml", ".json", ".toml")


def begins_training(words: Sequence[str]) -> bool:
    """Return whether the words are a command that starts a training run, which may be one text."""
    if words and " " in words[0]:
        words = words[0].split()
    return bool(words) and words[0].rpartition("/")[2] in _TRAINERS


def split_training(
    words: Sequence[str], pasted: Sequence[str], options: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """Return the arguments of `train`, and -- with the training command behind it; [] without one.

    A trainer's file as MODEL is a command that has this file alone.

    Args:
        words: The arguments before --.
        pasted: -- and what follows it; empty without --.
        options: {name: option} of `train`.
    """
    if pasted:
        return [*words], [*pasted]
    file = first_argument(words, options)
    if file is not None and file.endswith(_FILES) and recipe_of_file(file):
        return [word for word in words if word != file], ["--", file]
    return [*words], []


def expand_training(
    before: Sequence[str], command: Sequence[str], options: Mapping[str, Option], names: Mapping[str, Any]
) -> list[str]:
    """Return the arguments of `attncalc train`, with a pasted command as options.

    `before` has the arguments before the command, which replace its model and the same options. A note names the
    words of the command that are not used. `options` change figures; `names` has all of `attncalc train`.

    Raises AttncalcError if a file of settings is missing, or a key cannot have its value.
    """
    words = words_of(command)
    if len(words) > _MOST_WORDS:
        raise AttncalcError(f"the command has more than {_MOST_WORDS:,} words", "leave out those of data and logging")
    reader = _Reader(options)
    reader.read(words)
    given = {options[name].name for name in (word.partition("=")[0] for word in before) if name in options}
    added = []
    for name, value in reader.settings().items():
        option = options[name]
        if option.name not in given:
            added += [option.name, value] if option.metavar else [_flag_name(name, option)]
    own = first_argument(before, names) or value_of("--preset", "-p", words=before)
    if own is None and reader.model:
        added.insert(0, reader.model)
    reader.note()
    return [*before, *added]


def _flag_name(name: str, option: Option) -> str:
    """Return a flag's own name, or that of its opposite if this was typed: '--no-kbit-upcast'."""
    return name if "/" in option.names[0] else option.name


class _Reader:
    """Reads the words of a training command.

    Attributes:
        model: The model's name or path, if the command has one.
    """

    def __init__(self, options: Mapping[str, Option]) -> None:
        self.model: str | None = None
        self._options = options
        self._of_files: dict[str, str] = {}  # {option of `attncalc train`: value}
        self._keys: dict[str, str] = {}  # {key of trainers' files: value}
        self._own: dict[str, str] = {}  # {option of `attncalc train` that was typed: value}
        self._gpus: dict[str, int] = {}
        self._typed: set[str] = set()
        self._unused: list[str] = []
        self._unread: list[str] = []
        self._notes: list[str] = []

    def read(self, words: Sequence[str]) -> None:
        """Read all words. Raises AttncalcError as `expand_training` does."""
        rest = [*reversed(words)]
        is_script_named = False
        while rest:
            word = rest.pop()
            name, equals, value = word.partition("=")
            if not word.startswith("-") and not equals:
                if is_script_named and not word.endswith(_FILES):
                    raise AttncalcError(
                        f"unexpected word in the command: {truncate(word)}", "options of trainers are as --key value"
                    )
                is_script_named = is_script_named or word.endswith(".py")
                self._read_bare(word)
                continue
            has_value = bool(equals)
            if not equals and rest and not rest[-1].startswith("--") and self._takes_value(name, rest[-1]):
                value = rest.pop()
                has_value = True
            self._read_key(name, value if has_value else "true", typed=word)

    def settings(self) -> dict[str, str]:
        """Return {option of `attncalc train`: value}: what was typed replaces what files have."""
        recipe = recipe_of_keys(self._keys, Path())
        self._notes += recipe.notes
        found = self._of_files | recipe.options | self._own
        if self._gpus:
            nodes = self._gpus.get("nodes", 1)
            found["--gpus"] = str(self._gpus.get("per node", 1) * nodes)
        return found

    def note(self) -> None:
        """Name what is not counted, and the words that are not used."""
        for note in self._notes:
            tell(f"note: {note}")
        if self._unread:
            tell(f"note: not read, and may change memory: {', '.join(dict.fromkeys(self._unread))}")
        if self._unused:
            tell(f"note: not used: {', '.join(dict.fromkeys(self._unused))}")

    def _takes_value(self, name: str, following: str) -> bool:
        """Return whether the word after an option is its value, and not the script of a launcher's flag."""
        option = self._options.get(hyphens(name))
        is_flag = option is not None and not option.metavar
        is_word_of_flag = following.lower() in ("true", "false", "none", "null", "yes", "no")
        return (not is_flag or is_word_of_flag) and not following.endswith(".py")

    def _read_bare(self, word: str) -> None:
        """Read a word that is no option: a file of settings, or what the run trains for."""
        if word.endswith(_FILES):
            self._read_file(word)
        elif word in _OBJECTIVES or (script := re.fullmatch(r".*?(dpo|kto|orpo|grpo|reward)\w*\.py", word)):
            self._keys["rl"] = word if word in _OBJECTIVES else script[1]  # type: ignore[index]

    def _read_file(self, file: str) -> None:
        """Read a file of settings. Raises AttncalcError if it is missing or no trainer's."""
        if not os.path.isfile(file):
            raise AttncalcError(f"no such file: {truncate(file)}", "the command's files of settings are read, too")
        recipe = recipe_of_file(file)
        if recipe is None:
            raise AttncalcError(
                f"{truncate(file)} is no file of a trainer that is known here",
                "files of Axolotl, LLaMA-Factory, TRL, torchtune, DeepSpeed and accelerate are read",
            )
        self._of_files |= recipe.options
        self._notes += recipe.notes
        self.model = recipe.model or self.model

    def _read_key(self, name: str, value: str, *, typed: str) -> None:
        """Read an option of the command. Raises AttncalcError if a known key cannot have the value."""
        key = name.lstrip("-").replace("-", "_")
        if not reads(key, value) and "." in key:
            key = key.rpartition(".")[2]  # torchtitan's '--training.seq_len'
        usual = long_option(key)
        self._check_once(key, name)
        if key in _CONFIGS and (value.endswith(_FILES) or os.path.isfile(value)):
            self._read_file(value)
        elif key == "config" and re.fullmatch(r"[\w.]+/[\w.-]+", value):  # torchtune: 'llama3_1/70B_lora'
            self._read_torchtune(value)
        elif ALSO.get(usual) == "--preset":
            self.model = value
        elif key in _COUNTED and value.isdecimal():
            self._gpus[_COUNTED[key]] = int(value)
        elif reads(key, value):
            self._keys[key] = value
        elif usual in self._options:
            self._read_own(usual, value)
        else:
            self._leave_out(key, typed)
            known = values_of(key)
            if known:
                raise AttncalcError(f"{name} cannot be '{truncate(value)}'", f"known: {', '.join(known)}")

    def _check_once(self, key: str, name: str) -> None:
        """Raise AttncalcError if the command has the same key already."""
        if key in self._typed:
            raise AttncalcError(f"{name} is given twice in the command", "give it once")
        self._typed.add(key)

    def _leave_out(self, key: str, typed: str) -> None:
        """Note an option that is not read."""
        if changes_no_memory(key):
            self._unused.append(typed)
        else:
            self._unread.append(typed)

    def _read_own(self, name: str, value: str) -> None:
        """Read an option that `attncalc train` has, too; a flag may have 'true' or 'false'."""
        option = self._options[name]
        if option.metavar:
            self._own[name] = value
        elif value.lower() in ("true", "yes"):
            self._own[name] = ""

    def _read_torchtune(self, config: str) -> None:
        """Read the name of a torchtune config: 'llama3_1/8B_qlora_single_device'."""
        model = re.match(r"([\w.]+/\d+(?:\.\d+)?B)", config)
        self.model = model[1] if model else config
        if "lora" in config:
            self._keys["adapter"] = "qlora" if "qlora" in config else "lora"
