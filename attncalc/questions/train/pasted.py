"""A pasted training command, or a trainer's file, as options of `attncalc train`.

attncalc train --gpu 8xh100 -- torchrun --nproc_per_node 8 train.py --model_name_or_path
Qwen/Qwen3-8B --bf16 attncalc train axolotl.yml --gpu rtx-4090
"""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...config.presets import preset_of
from ...errors import AttncalcError, did_you_mean
from ...options import Option
from ...show.lists import tell
from ...units import hyphens, long_option, parse_count, truncate
from ..other_names import ALSO
from ..pasted_words import (
    MOST_WORDS,
    arguments_of,
    check_models,
    first_argument,
    is_option,
    value_of,
    without_first,
    words_of,
)
from .launch import ACTOR, MODULE, STARTERS, TRAINERS, Launch, is_recipe
from .programs import PROGRAMS, read_program
from .recipes import (
    OBJECTIVES,
    RecipeFile,
    changes_no_memory,
    check_syntax,
    is_key,
    meanings,
    needs_value,
    read_recipe,
    reads,
    recipe_of_keys,
    set_dtypes,
    values_of,
)
from .trainers import (
    ADVICE,
    MODELS,
    Defaults,
    configuration,
    configurations,
    defaults_of,
    is_configuration,
    model_of_name,
    original,
    trainer_of_file,
)

# Keys that take several values.
_LISTS = (
    "lora_target_modules",
    "target_modules",
    "lora_modules",
    "lora_target",
    "modules_to_save",
    "recompute_modules",
)
# Keys whose value is a file of settings.
_CONFIGS = ("config", "config_file", "deepspeed", "deepspeed_config", "deepspeed_config_file")
# {key: what it counts}: GPUs of a node, or nodes.
_COUNTED = {
    **dict.fromkeys(("nproc_per_node", "num_gpus", "gpus_per_node", "devices"), "per node"),
    **dict.fromkeys(("nnodes", "nodes", "num_nodes", "num_machines"), "nodes"),
}
# {variable of the environment: what it counts}: torchtitan's, LLaMA-Factory's.
_COUNTED_VARIABLES = {"NGPU": "per node", "NPROC_PER_NODE": "per node", "NNODES": "nodes"}
_FILES = (".yaml", ".yml", ".json", ".toml")
# Words with which a shell sends what a program prints elsewhere.
_REDIRECTIONS = re.compile(r"[|>&]|\d?>{1,2}.*|\d>&\d|&>.*")
_VISIBLE = "CUDA_VISIBLE_DEVICES"
# Variables of the environment by which PyTorch's allocator is set.
_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
# transformers' --fsdp: 'full_shard auto_wrap'.
_STRATEGY = r"(?:(?:full_shard|shard_grad_op|no_shard|hybrid_shard\w*|auto_wrap|offload)[ ,]*)+"
# A key with its value, as torchtune has them: 'batch_size=8'.
_OVERRIDE = r"[\w.]+="
_VARIABLE = r"[A-Z][A-Z0-9_]*=.*"
# Keys that scripts have which use transformers' Trainer.
_OF_TRANSFORMERS = frozenset(
    ("per_device_train_batch_size", "gradient_checkpointing", "bf16", "fp16", "torch_dtype")
)
# torchtitan's key of the ranks that shard; -1 is all that are left.
_SHARDS = "parallelism.data_parallel_shard_degree"
# The coefficient of GRPO's KL term. Without it, TRL loads no reference model; DPO always does.
_BETA = "trl.beta"
# Trainers that come with configurations, which commands name.
_WITH_CONFIGURATIONS = ("torchtune", "torchtitan", "megatron-bridge")
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
    return bool(words) and words[0].rpartition("/")[2] in TRAINERS


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
        name = word.rpartition("/")[2]
        if name in TRAINERS or name in STARTERS:
            start = i
            while start and re.fullmatch(_VARIABLE, words[start - 1]):
                start -= 1
            return [*words[:start]], ["--", *words[start:]]
    file = first_argument(words, options)
    if file is not None and _is_read(file):
        return without_first(words, file, options), ["--", file]
    return [*words], []


def _is_read(file: str) -> bool:
    """Return whether a file is one of a trainer, or a program."""
    if file.endswith((*PROGRAMS, ".toml")):  # no model has these
        return os.path.isfile(file)
    return file.endswith(_FILES) and read_recipe(file) is not None


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
    words = _without_redirections(words_of(command))
    if len(words) > MOST_WORDS:
        raise AttncalcError(
            f"the command has more than {MOST_WORDS:,} words", "leave out those of data and logging"
        )
    reader = _Reader(options, _gpus_of(before), _gpus_of_node(before))
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
    check_models(own, next(iter(reader.words), None))
    if own is None:
        added = [*reader.words, *added]
    if reader.launcher:
        added += ["--launcher", reader.launcher]
    reader.note()
    return [*before, *added]


def _without_redirections(words: Sequence[str]) -> list[str]:
    """Return the words before '| tee log' or '> log'."""
    for i, word in enumerate(words):
        if _REDIRECTIONS.fullmatch(word):
            return [*words[:i]]
    return [*words]


def _gpus_of(before: Sequence[str]) -> int:
    """Return the number of GPUs that --gpus has before a command; 0 without it."""
    number = value_of("--gpus", "--num-gpus", "--n-gpus", "--ngpus", words=before) or ""
    return int(number) if number.isdecimal() else 0


def _gpus_of_node(before: Sequence[str]) -> int:
    """Return the number of GPUs that --gpu has before a command, as 8xh100; 0 without one."""
    several = re.match(r"(\d{1,6})x", value_of("--gpu", words=before) or "")
    return int(several[1]) if several else 0


def _flag_name(name: str, option: Option) -> str:
    """Return a flag's own name, or that of its opposite if this was typed: '--no-kbit-upcast'."""
    if "/" in option.names[0]:
        return name
    return option.name


class _Reader:
    """Reads the words of a training command.

    Attributes:
        model: The model's name or path, if the command has one.
        words: The model as words of `attncalc train`: its name, or options with its sizes.
    """

    def __init__(self, options: Mapping[str, Option], gpus: int, node: int) -> None:
        self.model: str | None = None
        self.words: list[str] = []
        self._gpus = gpus  # those of --gpus before the command; 0 without it
        self._node = node  # those of --gpu 8xh100, which the command may use a part of
        self._options = options
        self._is_of_trainer = False  # whether a file has the model, and not only GPUs
        self._is_first = True  # whether no word has been read
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
        self._launch = Launch()
        self._script = ""  # the program that the command starts
        self._configuration = ""  # the name of a configuration that comes with the trainer

    def read(self, words: Sequence[str]) -> None:
        """Read all words. Raises AttncalcError as `expand_training` does."""
        rest = [*reversed(words)]
        starts = True
        while rest:
            word = rest.pop()
            name, equals, value = word.partition("=")
            if word == "--":  # Axolotl: options of the launcher follow
                continue
            if re.fullmatch(_VARIABLE, word):
                self._read_variable(name, value)
            elif word in ("-m", "--module") and rest and re.fullmatch(MODULE, rest[-1]):
                self._launch.see_module(rest.pop())
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
        self._find_trainer()
        if "beta" in self._of_files and "grpo" in self._launch.names:
            self._of_files[_BETA] = self._of_files["beta"]
        self._read_configuration()
        self._check_deepspeed()
        keys = self._of_files | self._keys
        has_several = self._number_of_gpus() > 1
        if not has_several:  # one GPU shards nothing, and torchtitan uses autocast
            self._of_files.pop(_SHARDS, None)
        own = {self._options[name].name for name in self._own} | {*given}
        if "per node" in self._counted or self._node:
            own.add("--gpus")
        defaults = defaults_of(
            self._launch.trainer,
            (*self._launch.names, preset_of(self.model or "") or ""),
            keys,
            own,
            on_several=has_several,
        )
        self._take(defaults)
        keys = defaults.keys | self._of_files | self._keys | self._of_model()
        recipe = recipe_of_keys(keys, self._file)
        self._notes += recipe.notes
        found = recipe.options | self._own
        self._notes += set_dtypes(found, given, self._launch.trainer)
        self._leave_out_epochs(found, given)
        nodes = self._counted.get("nodes", 1)
        if nodes > 1 and any("hybrid" in str(value).lower() for value in keys.values()):
            self._notes.append("hybrid_shard shards within a node, and is counted as over all GPUs")
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

    def _leave_out_epochs(self, found: dict[str, str], given: Collection[str]) -> None:
        """Leave out the passes over data whose length is not known."""
        names = {self._options[name].name: name for name in found if name in self._options}
        if "--epochs" in names and {"--tokens", "--samples"}.isdisjoint({*names, *given}):
            del found[names["--epochs"]]
            self._unused.append(names["--epochs"])

    def _take(self, defaults: Defaults) -> None:
        """Take the model and the GPUs of a trainer's defaults, and name them all."""
        keys = dict(defaults.keys)
        model = keys.pop("model", None) or keys.pop("model_name", None)
        if self.model is None and model:
            self.model = model
            keys = {"model": model, **keys}
        gpus = keys.pop("NGPU", None)
        if gpus and "per node" not in self._counted and not (self._gpus or self._node):
            self._counted["per node"] = int(gpus)
            keys["NGPU"] = gpus
        if self._launch.trainer and not defaults.release:
            names = " ".join(name for name in self._launch.names if name)
            self._notes.append(
                f"what {f'{defaults.trainer} {names}'.strip()} does by default is not known here: "
                "attncalc's defaults are counted"
            )
        if keys:
            taken = ", ".join(f"{key} {value}" for key, value in keys.items())
            self._notes.append(
                f"{defaults.trainer}'s defaults ({defaults.release}), which keys in the command "
                f"replace: {taken}"
            )
        if defaults.open:
            self._notes.append(
                f"{defaults.trainer} finds {' and '.join(defaults.open)} in the data or on the "
                "machine; without a value, attncalc's default is counted"
            )

    def _number_of_gpus(self) -> int:
        """Return the number of GPUs of the command, or of the options before it; 1 if none is
        given.
        """
        if self._gpus:
            return self._gpus
        keys = self._of_files | self._keys
        number = str(keys.get("num_processes") or keys.get("devices") or "")
        own = self._own.get("--gpus", number)
        nodes = self._counted.get("nodes", 1)
        if "per node" in self._counted:
            return self._counted["per node"] * nodes
        if not own and self._node:
            return self._node
        if self._launch.trainer == "torchtitan" and "run_train.sh" in self._launch.names:
            return 8
        return max(nodes, int(own) if own.isdecimal() else 1)

    @property
    def launcher(self) -> str:
        """Return the trainer whose keys the reader knows, and how they are written; '' for none."""
        trainer = self._launch.trainer
        if not trainer and not _OF_TRANSFORMERS.isdisjoint(self._of_files | self._keys):
            trainer = "transformers"
        if trainer not in ADVICE:
            return ""
        if trainer in ("torchtune", "megatron-bridge"):
            form = "override"
        elif self._file.suffix in PROGRAMS:
            form = "python"
        elif self._file.suffix in (".yaml", ".yml") and self._is_of_trainer:
            form = "yaml"
        else:
            form = "command"
        return f"{trainer} {form}"

    def _find_trainer(self) -> None:
        """Find the trainer of a file. Raises AttncalcError if its adapters are not known."""
        launch = self._launch
        if self._of_files and (not launch.trainer or not launch.names):
            trainer, name = trainer_of_file(self._of_files)
            if launch.trainer in ("", trainer):
                launch.trainer = trainer
                launch.names = [name]
        if launch.trains_nothing:
            raise AttncalcError(
                f"{launch.trainer} {launch.trains_nothing} trains nothing",
                "give the command that trains; 'attncalc fit' answers for serving",
            )
        if launch.has_unknown_adapters:
            raise AttncalcError(
                "what LLaMA-Adapter's layers need is not known here",
                "give the command of finetune_lora or finetune_full",
            )
        if self._script and self.model is None and os.path.isfile(self._script):
            script = truncate(self._script)
            self._notes.append(
                f"{script} itself is not read: 'attncalc train {script}' reads its settings"
            )
        if launch.guessed and launch.trainer == "trl":
            self._notes.append(f"{truncate(launch.guessed)} is read as the script of TRL")
        if "step3" in launch.names:
            self._notes.append("only the actor is counted: no critic, and no generation")

    def _check_deepspeed(self) -> None:
        """Raise AttncalcError if --deepspeed has no value, which is a switch of DeepSpeed-Chat."""
        is_switch = self._keys.get("deepspeed") == "true" and "zero_stage" not in self._keys
        if is_switch and not self._of_files and self._launch.trainer != "deepspeed-chat":
            raise AttncalcError(
                "--deepspeed needs a value", "give its file: --deepspeed ds_config.json"
            )

    def _read_configuration(self) -> None:
        """Read the name of a configuration that comes with the trainer. Raises AttncalcError if
        the trainer has none of that name.
        """
        launch = self._launch
        name = self._configuration
        if not name and launch.trainer == "torchtitan" and not self._of_files:
            name = "" if self.model else "llama3_debugmodel"  # run_train.sh's own
        if not name:
            return
        size = re.match(r"([\w.]+/(?:\d+(?:\.\d+)?B|mini))", name)  # torchtune's 'qwen2/0.5B_lora'
        if size:
            self.model = self.model or size[1]
        if launch.see_configuration(name):
            if not size and name in MODELS:
                self.model = self.model or name
        elif size:
            self._notes.append(f"of {truncate(name)} only the name is known: not its settings")
            if "lora" in name:
                self._keys.setdefault("adapter", "qlora" if "qlora" in name else "lora")
        else:
            known = configurations(launch.trainer)
            raise AttncalcError(
                f"{launch.trainer}'s configuration {truncate(name)} is not known here",
                f"{did_you_mean(name, known)}give its model, and its settings as options",
            )

    def _of_model(self) -> dict[str, str]:
        """Find the model of attncalc, and return the keys that its repository's name means."""
        if self.model is None:
            return {}
        name = model_of_name(self.model)
        self.words = name.split() if name.startswith("--") else [name]
        copied, is_in_4_bits = original(name)
        known = preset_of(copied) if copied and preset_of(name) is None else None
        if known is None:
            return {}
        self._notes.append(f"{name} is counted as {known}")
        self.words = [known]
        if is_in_4_bits:
            return {"load_in_4bit": "true"}
        return {}

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
        while rest and not is_option(rest[-1]) and not rest[-1].endswith(".py"):
            word = rest[-1]
            is_switch = word.lower() in ("true", "false", "none", "null", "yes", "no")
            is_strategy = re.fullmatch(_STRATEGY, word) is not None
            is_next = word.endswith(_FILES) or is_recipe(word) or re.match(_OVERRIDE, word)
            if (is_flag and not (is_switch or is_strategy)) or (values and is_next):
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
        is_first = self._is_first
        self._is_first = False
        if word.endswith(_FILES):
            self._read_file(word)
        elif is_first and word.endswith(PROGRAMS):
            self._read_program(word)
        elif word in OBJECTIVES and not starts:
            self._keys["rl"] = word
        elif word.endswith(".py"):
            self._script = word
            objective = self._launch.see_script(word)
            if objective:
                self._keys["rl"] = objective
        elif (starts or is_recipe(word)) and self._launch.see_program(word):
            if word in OBJECTIVES:
                self._keys["rl"] = word
        elif starts and self._launch.trainer == "litgpt" and self.model is None:
            self.model = word.removeprefix("checkpoints/")
        else:
            raise AttncalcError(
                f"unexpected word in the command: {truncate(word)}",
                "options of trainers are as --key value",
            )

    def _read_program(self, file: str) -> None:
        """Read a Python program or a notebook. Raises AttncalcError if it trains nothing, or its
        settings are not written out.
        """
        program = read_program(file)
        if program is None:
            raise AttncalcError(
                f"{truncate(file)} sets up no training that is known here",
                "give a model and its settings as options",
            )
        recipe, self._launch.trainer, name = program
        self._launch.names = [name]
        self._take_file(recipe, file)

    def _read_variable(self, name: str, value: str) -> None:
        """Read a variable of the environment before a command."""
        if name == "CONFIG_FILE":
            self._read_file(value, name)
        elif name in _COUNTED_VARIABLES and (value.isdecimal() or name == "NGPU"):
            what = _COUNTED_VARIABLES[name]
            self._check_once(what, name, value)
            self._counted[what] = parse_count(value, name)
        elif name == "CONFIG":
            self._configuration = value
        elif name == "MODULE":
            pass  # as --module
        elif name in _ALLOCATOR and "expandable_segments:true" in value.lower():
            self._own["--expandable-segments"] = ""
        else:
            has_gpus = name in _COUNTED_VARIABLES or (name == _VISIBLE and "," in value)
            (self._unread if has_gpus else self._unused).append(name)

    def _read_file(self, file: str, name: str = "the file") -> None:
        """Read a file of settings. Raises AttncalcError if it is missing or no trainer's.

        Args:
            file: Its path.
            name: The option that has it.
        """
        own = re.fullmatch(r"(?:.*/)?accelerate_configs/(\w+\.yaml)", file)
        if not os.path.isfile(file) and own and is_configuration("trl", own[1]):
            release, keys = configuration("trl", own[1])
            taken = ", ".join(f"{key} {value}" for key, value in keys.items())
            self._notes.append(f"{own[1]} is trl's ({release}): {taken}")
            self._of_files |= keys
            return
        if not os.path.isfile(file):
            raise AttncalcError(
                f"no such file: {truncate(file)}",
                f"give its path from this folder, or leave out {name}",
            )
        recipe = read_recipe(file)
        if recipe is None:
            check_syntax(file)
            raise AttncalcError(
                f"{truncate(file)} is no file of a trainer that is known here",
                "files of Axolotl, LLaMA-Factory, TRL, torchtune, torchtitan, litgpt, Unsloth, "
                "DeepSpeed and accelerate are read",
            )
        self._take_file(recipe, file)

    def _take_file(self, recipe: RecipeFile, file: str) -> None:
        """Take the settings of a file, and name those that are not read."""
        self._file = Path(file)
        self._is_of_trainer = self._is_of_trainer or recipe.model is not None
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
        key = self._key_of(name)
        if key is None:
            self._unused.append(name)
            return
        if not values:
            if self._needs_value(key):
                raise AttncalcError(f"{name} needs a value", f"write it as {name} VALUE")
            values = ("true",)
        value = _only_value(name, key, values)
        if key in _CONFIGS and _is_file(value):
            self._read_file(value, name)
        elif key == "accelerate_config":  # a file, or the name of one of TRL's: 'zero3'
            self._read_file(value if _is_file(value) else f"accelerate_configs/{value}.yaml", name)
        elif self._launch.trainer in _WITH_CONFIGURATIONS and key in ("config", "recipe"):
            self._configuration = value
        elif self._launch.trainer == "torchtitan" and key == "module":
            pass  # the folder of its configurations, which have names of their own
        elif self._is_model(key):
            self._check_once("the model", name, value)
            self.model = value.removeprefix("checkpoints/")
        elif key in _COUNTED:
            self._read_number(name, key, value)
        else:
            self._read_setting(name, key, value)

    def _key_of(self, name: str) -> str | None:
        """Return the key of trainers' files that an option is; None if its section, as
        '--validation.seq_len', changes no memory.
        """
        key = name.lstrip("-").replace("-", "_")
        self._launch.see_key(key)
        if key == "beta" and "grpo" in self._launch.names:
            return _BETA
        section, _, last = key.rpartition(".")
        if not section or is_key(key):
            return key
        if changes_no_memory(f"{section}."):
            return None
        return last  # NeMo's '--trainer.devices'

    def _read_number(self, name: str, key: str, value: str) -> None:
        """Read a number of GPUs or of nodes."""
        if value in ("auto", "gpu"):  # all that the machine has
            self._unread.append(name)
        elif value.isdecimal():
            self._check_once(_COUNTED[key], name, value)
            self._counted[_COUNTED[key]] = int(value)
        else:
            self._read_setting(name, key, value)

    def _is_model(self, key: str) -> bool:
        """Return whether a key has the model."""
        if key == "checkpoint_dir":
            return self._launch.trainer == "litgpt"
        return key == ACTOR or ALSO.get(long_option(key)) == "--preset"

    def _needs_value(self, key: str) -> bool:
        """Return whether a key is read, and is no switch."""
        if key in ("config", "recipe") and self._launch.trainer in _WITH_CONFIGURATIONS:
            return True
        if key in ("deepspeed", "offload", "fsdp"):  # switches, too: of DeepSpeed-Chat
            return False
        usual = long_option(key)
        if key in _COUNTED or key in _CONFIGS or self._is_model(key):
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


def _is_file(value: str) -> bool:
    """Return whether a value is a file of settings, which may be missing."""
    return value.endswith(_FILES) or os.path.isfile(value)


def _only_value(name: str, key: str, values: Sequence[str]) -> str:
    """Return the value of an option; of several, the list that their key takes. Raises
    AttncalcError for others.
    """
    if not values[1:] or (changes_no_memory(key) and not is_key(key)):
        return values[0]
    if key not in _LISTS:
        raise AttncalcError(
            f"unexpected word in the command: {truncate(values[1])}", f"{name} takes one value"
        )
    return "+".join(values)
