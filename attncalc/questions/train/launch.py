"""Which trainer a command starts: the programs, modules and scripts that trainers have."""

import re

from .recipes import OBJECTIVES
from .trainers import is_configuration

# {program that starts a training run: the trainer; '' if it starts a script of any}.
TRAINERS = {
    "torchrun": "",
    "deepspeed": "",
    "accelerate": "",
    "axolotl": "axolotl",
    "llamafactory-cli": "llamafactory",
    "lmf": "llamafactory",
    "litgpt": "litgpt",
    "tune": "torchtune",
    "trl": "trl",
    "run_train.sh": "torchtitan",
    "train.sh": "megatron-bridge",
}
# Programs that run the trainer, which begin a command too.
STARTERS = {"python", "python3", "uv", "env", "sudo", "nohup", "srun", "bash", "sh"}
# Subcommands of trainers and launchers.
_SUBCOMMANDS = {"launch", "run", "train", "sft", "pt", "unsloth"}
# {module behind python -m: the trainer, its subcommand}.
_MODULES = {
    r"trl\.scripts\.(\w+)": "trl",
    r"torchtitan\.(train)": "torchtitan",
    r"axolotl\.cli\.(train)": "axolotl",
    r"litgpt": "litgpt",
    r"llamafactory\.cli": "llamafactory",
}
# A module of python, and no model: 'torch.distributed.run', 'litgpt'.
MODULE = r"[a-z_]\w*(?:\.[a-z_]\w*)+|litgpt"
# {script: the trainer, its name}. TRL's examples launch 'trl/scripts/sft.py', people a copy of it.
_SCRIPTS = {
    r"(?:.*/)?(sft|dpo|kto|reward|grpo)\.py": "trl",
    r"(?:.*/)?(unsloth-cli\.py)": "unsloth",
    r"(?:.*/)?(run_recipe)\.py": "megatron-bridge",
}
# Keys that only DeepSpeed-Chat's scripts have.
_OF_DEEPSPEED_CHAT = {
    "lora_dim",
    "only_optimize_lora",
    "num_padding_at_beginning",
    "lora_module_name",
    "sft_only_data_path",
    "data_split",
}
# The key of the model that its third step trains first.
ACTOR = "actor_model_name_or_path"
# Subcommands of trainers that train nothing.
_TRAINS_NOTHING = {
    "evaluate",
    "generate",
    "chat",
    "serve",
    "download",
    "preprocess",
    "inference",
    "export",
    "env",
    "api",
    "webui",
    "webchat",
}
_ADAPTERS = r"finetune_adapter\w*"


def is_recipe(word: str) -> bool:
    """Return whether a word is the name of one of torchtune's recipes: 'lora_dpo_distributed'."""
    pattern = r"(?:q?lora|full|knowledge|qat|ppo)_\w*(?:single_device|distributed)"
    return re.fullmatch(pattern, word) is not None


class Launch:
    """What a command starts.

    Attributes:
        trainer: The trainer: 'trl'; '' of another.
        names: Its subcommand, and configurations that come with it: 'sft'.
        guessed: The script that is taken for the trainer's by its name alone; '' if none is.
    """

    def __init__(self) -> None:
        self.trainer = ""
        self.names: list[str] = []
        self.guessed = ""

    def see_program(self, word: str) -> bool:
        """Read a program, a subcommand or a recipe; return whether the word is one."""
        name = word.rpartition("/")[2]
        if name in TRAINERS:
            self.trainer = TRAINERS[name]
            self.names = ["train", name] if name.endswith(".sh") else []
            return True
        if self.trainer and not self.names and word != "run" and re.fullmatch(r"\w+", word):
            self.names.append(word)
            return True
        if word == "unsloth":
            self.trainer = "unsloth"
        is_python = re.fullmatch(r"python[\d.]*", name) is not None
        return is_recipe(word) or is_python or word in STARTERS or word in _SUBCOMMANDS

    def see_module(self, word: str) -> None:
        """Read the module behind python -m: 'trl.scripts.sft'."""
        for pattern, trainer in _MODULES.items():
            match = re.fullmatch(pattern, word)
            if match:
                self.trainer = trainer
                self.names = [*match.groups()]

    def see_script(self, word: str) -> str:
        """Read a script; return what the run trains for, '' if its name does not say it."""
        for pattern, trainer in _SCRIPTS.items():
            match = re.fullmatch(pattern, word)
            if match:
                self.trainer = trainer
                self.names = [match[1]]
                self.guessed = "" if "trl/" in word else word
        objective = re.fullmatch(r".*?(" + "|".join(OBJECTIVES) + r")\w*\.py", word)
        if objective:
            return objective[1]
        return ""

    def see_key(self, key: str) -> None:
        """Read the name of an option, if only one trainer has it."""
        if key == ACTOR:
            self.trainer = "deepspeed-chat"
            self.names = ["step3"]
        elif key in _OF_DEEPSPEED_CHAT and not self.trainer:
            self.trainer = "deepspeed-chat"
            self.names = ["main.py"]

    def see_configuration(self, name: str) -> bool:
        """Read the name of a configuration; return whether it comes with the trainer."""
        if not is_configuration(self.trainer, name):
            return False
        # torchtitan's are complete: 'train' has the defaults of its TOML files
        kept = [one for one in self.names if one != "train"]
        self.names = [*kept, name]
        return True

    @property
    def trains_nothing(self) -> str:
        """Return its subcommand if that trains nothing, else ''."""
        first = next(iter(self.names), "")
        return first if self.trainer and first in _TRAINS_NOTHING else ""

    @property
    def has_unknown_adapters(self) -> bool:
        """Return whether it trains LLaMA-Adapter's, whose sizes are not known here."""
        return self.trainer == "litgpt" and any(re.fullmatch(_ADAPTERS, n) for n in self.names)
