"""A pasted training command, or a trainer's file, as options of `attncalc train`.

attncalc train --gpu 8xh100 -- torchrun --nproc_per_node 8 train.py --model_name_or_path
Qwen/Qwen3-8B --bf16 attncalc train axolotl.yml --gpu rtx-4090
"""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import AttncalcError
from ...options import Option
from ...show.lists import tell
from ...units import hyphens, long_option, truncate
from ..other_names import ALSO
from ..pasted_words import (
    MOST_WORDS,
    arguments_of,
    check_models,
    first_argument,
    value_of,
    without_first,
    words_of,
)
from .recipes import (
    OBJECTIVES,
    changes_no_memory,
    defaults_of,
    is_key,
    meanings,
    needs_value,
    read_recipe,
    reads,
    recipe_of_keys,
    set_dtypes,
    values_of,
)

# Programs that start a training run.
_TRAINERS = {"torchrun", "deepspeed", "accelerate", "axolotl", "llamafactory-cli", "tune", "trl"}
# Subcommands, and programs that run the trainer.
_LAUNCHERS = {
    "launch",
    "run",
    "train",
    "sft",
    "python",
    "python3",
    "uv",
    "env",
    "sudo",
    "nohup",
    "pt",
}
# A script whose name says what the run trains for: 'run_dpo.py'.
_OF_SCRIPT = r".*?(" + "|".join(OBJECTIVES) + r")\w*\.py"
# TRL's own scripts: its examples launch 'trl/scripts/sft.py'.
_OF_TRL = r"(?:.*/)?trl/scripts/(\w+)\.py"
# Keys that take several values.
_LISTS = ("lora_target_modules", "target_modules", "lora_modules", "lora_target")
# Keys whose value is a file of settings.
_CONFIGS = ("config", "config_file", "deepspeed", "deepspeed_config")
# {key: what it counts}: GPUs of a node, or nodes.
_COUNTED = {
    **dict.fromkeys(("nproc_per_node", "num_gpus", "gpus_per_node"), "per node"),
    **dict.fromkeys(("nnodes", "num_nodes", "num_machines"), "nodes"),
}
_FILES = (".yaml", ".yml", ".json", ".toml")
# {switch of trainers: the options of `train` that mean the same}.
_SWITCHES = {
    "qlora": "--lora --weights-dtype nf4",
    "load_in_4bit": "--lora --weights-dtype nf4",
    "gradient_checkpointing": "--recompute full",
}


def begins(words: Sequence[str]) -> bool:
    """Return whether the words are a command that starts a training run, which may be one text."""
    if words and " " in words[0]:
        words = words[0].split()
    return bool(words) and words[0].rpartition("/")[2] in _TRAINERS


def split(
    words: Sequence[str], pasted: Sequence[str], options: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """Return the arguments of `train`, and -- with the training command behind it; [] without one.

    The command may stand without -- after the options of `train`. A trainer's file as MODEL is a
    command that has this file alone.

    Args:
        words: The arguments before --.
        pasted: -- and what follows it; empty without --.
        options: {name: option} of `train`.
    """
    if pasted:
        return [*words], [*pasted]
    for i, word in arguments_of(words, options):
        if word.rpartition("/")[2] in _TRAINERS:
            return [*words[:i]], ["--", *words[i:]]
    file = first_argument(words, options)
    if file is not None and file.endswith(_FILES) and read_recipe(file):
        return without_first(words, file, options), ["--", file]
    return [*words], []


def in_own_words(words: Sequence[str], options: Mapping[str, Option]) -> list[str]:
    """Return the arguments as they are: values of trainers are those of `train`."""
    return [*words]


def tip_for_option(name: str) -> str:
    """Return the tip for an option that only trainers have; '' for another."""
    key = name.lstrip("-").replace("-", "_")
    same = _SWITCHES.get(key)
    if same:
        return f"write {same}"
    if is_key(key):
        return (
            "options of trainers stand after --: attncalc train -- python train.py "
            f"{truncate(name)} ..."
        )
    return ""


def expand(
    before: Sequence[str],
    command: Sequence[str],
    options: Mapping[str, Option],
    names: Mapping[str, Any],
) -> list[str]:
    """Return the arguments of `attncalc train`, with a pasted command as options.

    `before` has the arguments before the command, which replace its model and the same options. A
    note names the words of the command that are not used. `options` change figures; `names` has all
    of `attncalc train`.

    Raises AttncalcError if a file of settings is missing, a key cannot have its value, or two words
    contradict.
    """
    words = words_of(command)
    if len(words) > MOST_WORDS:
        raise AttncalcError(
            f"the command has more than {MOST_WORDS:,} words", "leave out those of data and logging"
        )
    reader = _Reader(options)
    reader.read(words)
    given = {
        options[name].name
        for name in (word.partition("=")[0] for word in before)
        if name in options
    }
    added = []
    for name, value in reader.settings(given).items():
        option = options[name]
        if option.name not in given:
            if option.metavar:
                added += [option.name, value]
            else:
                added += [_flag_name(name, option)]
    own = first_argument(before, names) or value_of("--preset", "-p", words=before)
    check_models(own, reader.model)
    if own is None and reader.model:
        added.insert(0, reader.model)
    reader.note()
    return [*before, *added]


def _flag_name(name: str, option: Option) -> str:
    """Return a flag's own name, or that of its opposite if this was typed: '--no-kbit-upcast'."""
    if "/" in option.names[0]:
        return name
    return option.name


class _Reader:
    """Reads the words of a training command.

    Attributes:
        model: The model's name or path, if the command has one.
    """

    def __init__(self, options: Mapping[str, Option]) -> None:
        self.model: str | None = None
        self._options = options
        self._file = Path()  # the last file of settings
        self._of_files: dict[str, Any] = {}  # {key of trainers' files: value}
        self._keys: dict[str, str] = {}  # the same of the keys that were typed
        self._own: dict[str, str] = {}  # {option of `attncalc train` that was typed: value}
        self._counted: dict[str, int] = {}
        # {what was typed already: its name, its value}
        self._meant: dict[str, tuple[str, str]] = {}
        self._unused: list[str] = []
        self._unread: list[str] = []
        self._notes: list[str] = []
        self._trainer = ""  # the last program that starts a run: 'trl'
        self._subcommand = ""  # of the trainer: 'sft' of 'trl sft'

    def read(self, words: Sequence[str]) -> None:
        """Read all words. Raises AttncalcError as `expand_training` does."""
        rest = [*reversed(words)]
        starts = True
        while rest:
            word = rest.pop()
            name, equals, value = word.partition("=")
            if equals and name.isupper():  # a variable of the environment
                self._unused.append(name)
            elif word.startswith("-") or equals:
                starts = False
                values = [value] if equals else self._values_after(name, rest)
                self._read_key(name, values)
            else:
                self._read_bare(word, starts=starts)
                starts = starts and not word.endswith((*_FILES, ".py"))

    def settings(self, given: Collection[str]) -> dict[str, str]:
        """Return {option of `attncalc train`: value}: what was typed replaces what files have, and
        both replace the trainer's defaults. `given` options stand before the command.

        Raises AttncalcError if the numbers of GPUs differ.
        """
        keys = self._of_files | self._keys
        own = {self._options[name].name for name in self._own}
        release, defaults = defaults_of(self._trainer, self._subcommand, keys, own | {*given})
        if defaults:
            taken = ", ".join(f"{key} {value}" for key, value in defaults.items())
            self._notes.append(f"{self._trainer}'s defaults ({release}): {taken}")
        recipe = recipe_of_keys(defaults | keys, self._file)
        self._notes += recipe.notes
        found = recipe.options | self._own
        self._notes += set_dtypes(found, given)
        nodes = self._counted.get("nodes", 1)
        if "per node" in self._counted:
            gpus = str(self._counted["per node"] * nodes)
            if found.get("--gpus", gpus) != gpus:
                raise AttncalcError(
                    f"the command has {found['--gpus']} and {gpus} GPUs", "give one of the numbers"
                )
            found["--gpus"] = gpus
        elif "nodes" in self._counted:
            found.setdefault("--gpus", str(nodes))
        return found

    def note(self) -> None:
        """Name what is not counted, and the words that are not used."""
        for note in self._notes:
            tell(f"note: {note}")
        if self._unread:
            tell(f"note: not read, and may change memory: {', '.join(dict.fromkeys(self._unread))}")
        if self._unused:
            tell(f"note: not used: {', '.join(dict.fromkeys(self._unused))}")

    def _values_after(self, name: str, rest: list[str]) -> list[str]:
        """Return the values after an option, taken from `rest`: 'q_proj', 'v_proj' of
        '--target-modules q_proj v_proj'.

        The script of a launcher is no value of the flag before it.
        """
        option = self._options.get(hyphens(name))
        is_flag = option is not None and not option.metavar
        values: list[str] = []
        while rest and not rest[-1].startswith("--") and not rest[-1].endswith(".py"):
            is_switch = rest[-1].lower() in ("true", "false", "none", "null", "yes", "no")
            is_file = rest[-1].endswith(_FILES) and bool(values)
            if (is_flag and not is_switch) or is_file:
                break
            values.append(rest.pop())
            if is_flag:
                break
        return values

    def _read_bare(self, word: str, *, starts: bool) -> None:
        """Read a word that is no option: a program, a script, a file of settings, or what the run
        trains for.

        Raises AttncalcError for another word, which the trainer would refuse.
        """
        of_script = re.fullmatch(_OF_SCRIPT, word)
        of_trl = re.fullmatch(_OF_TRL, word)
        if of_trl:
            self._trainer = "trl"
            self._subcommand = of_trl[1]
        elif starts and word.rpartition("/")[2] in _TRAINERS:
            self._trainer = word.rpartition("/")[2]
            self._subcommand = ""
        elif starts and self._trainer and not self._subcommand:
            self._subcommand = word
        if word.endswith(_FILES):
            self._read_file(word)
        elif word in OBJECTIVES:
            self._keys["rl"] = word
        elif of_script:
            self._keys["rl"] = of_script[1]
        elif not (word.endswith(".py") or (starts and _is_of_launcher(word))):
            raise AttncalcError(
                f"unexpected word in the command: {truncate(word)}",
                "options of trainers are as --key value",
            )

    def _read_file(self, file: str, name: str = "the file") -> None:
        """Read a file of settings. Raises AttncalcError if it is missing or no trainer's.

        Args:
            file: Its path.
            name: The option that has it.
        """
        if not os.path.isfile(file):
            raise AttncalcError(
                f"no such file: {truncate(file)}",
                f"give its path from this folder, or leave out {name}",
            )
        recipe = read_recipe(file)
        if recipe is None:
            raise AttncalcError(
                f"{truncate(file)} is no file of a trainer that is known here",
                "files of Axolotl, LLaMA-Factory, TRL, torchtune, DeepSpeed and accelerate are "
                "read",
            )
        self._file = Path(file)
        self._of_files |= recipe.keys
        if recipe.unread:
            self._notes.append(
                f"not read of {truncate(self._file.name, 40)}: {', '.join(recipe.unread)}"
            )
        self.model = recipe.model or self.model

    def _read_key(self, name: str, values: Sequence[str]) -> None:
        """Read an option of the command; without values it is a switch.

        Raises AttncalcError if a known key cannot have the value, or needs one.
        """
        key = name.lstrip("-").replace("-", "_")
        is_known = reads(key, values[0] if values else "true")
        if not is_known and "." in key:
            key = key.rpartition(".")[2]  # torchtitan's '--training.seq_len'
        if not values:
            if self._needs_value(key):
                raise AttncalcError(f"{name} needs a value", f"write it as {name} VALUE")
            values = ("true",)
        value = _only_value(name, key, values)
        if key in _CONFIGS and (value.endswith(_FILES) or os.path.isfile(value)):
            self._read_file(value, name)
        # torchtune: 'llama3_1/70B_lora'
        elif key == "config" and re.fullmatch(r"[\w.]+/[\w.-]+", value):
            self._read_torchtune(value)
        elif ALSO.get(long_option(key)) == "--preset":
            self._check_once("the model", name, value)
            self.model = value
        elif key in _COUNTED and value.isdecimal():
            self._check_once(_COUNTED[key], name, value)
            self._counted[_COUNTED[key]] = int(value)
        else:
            self._read_setting(name, key, value)

    def _needs_value(self, key: str) -> bool:
        """Return whether a key is read, and is no switch."""
        usual = long_option(key)
        if key in _COUNTED or key in _CONFIGS or ALSO.get(usual) == "--preset":
            return True
        option = self._options.get(usual)
        return needs_value(key) or (option is not None and bool(option.metavar))

    def _read_setting(self, name: str, key: str, value: str) -> None:
        """Read an option that is a key of trainers' files, or one of `attncalc train`; another is
        left out.
        """
        usual = long_option(key)
        if reads(key, value):
            for meaning, text in meanings(key, value):
                self._check_once(meaning, name, text)
            self._keys[key] = value
        elif usual in self._options:
            self._check_once(self._options[usual].name, name, value)
            self._read_own(usual, value)
        else:
            self._leave_out(key, name)
            known = values_of(key)
            if known:
                raise AttncalcError(
                    f"{name} cannot be '{truncate(value)}'", f"known: {', '.join(known)}"
                )

    def _check_once(self, meaning: str, name: str, value: str) -> None:
        """Raise AttncalcError if the command has another value of the same meaning: a launcher
        repeats its script's.
        """
        before, known = self._meant.get(meaning, (name, value))
        if known != value and meaning not in ("--offload", "component"):
            raise AttncalcError(
                f"{name} {truncate(value)} contradicts {before} {truncate(known)}",
                "give one of them",
            )
        self._meant[meaning] = (name, value)

    def _leave_out(self, key: str, name: str) -> None:
        """Note an option that is not read."""
        if changes_no_memory(key):
            self._unused.append(name)
        else:
            self._unread.append(name)

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


def _is_of_launcher(word: str) -> bool:
    """Return whether a word begins a command: a program, its subcommand, or a recipe of
    torchtune.
    """
    is_recipe = re.fullmatch(r"(?:q?lora|full|knowledge)_\w+", word) is not None
    return is_recipe or word in _LAUNCHERS or word.rpartition("/")[2] in _TRAINERS


def _only_value(name: str, key: str, values: Sequence[str]) -> str:
    """Return the value of an option; of several, the list that their key takes. Raises
    AttncalcError for others.
    """
    if not values[1:] or changes_no_memory(key):
        return values[0]
    if key not in _LISTS:
        raise AttncalcError(
            f"unexpected word in the command: {truncate(values[1])}", f"{name} takes one value"
        )
    return "+".join(values)
