"""Files of Axolotl, LLaMA-Factory, TRL, torchtune, torchtitan, litgpt, Unsloth, DeepSpeed and
accelerate as options of `attncalc train`.

Keys that change no memory are left out: data, learning rates, logging. Others that are not known
are named.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...config import base_of_recipe
from ...config.source import DOCUMENTS, LIMIT
from ...cost.training.optimizers import ALIASES, OPTIMIZERS
from ...errors import AttncalcError
from ...records import NamedTuple
from ...units import dtype, parse_count, truncate

_LINES = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
_OF_KEY = {
    key: {
        value.strip("*"): options.strip()
        for value, options in (part.split(":", 1) for part in text.split(" | "))
    }
    for keys, equals, text in (
        line.partition(" = ") for line in _LINES if line[:1] not in ("#", "N")
    )
    for key in keys.split()
}
# Parts of the names of keys that change no memory.
_NO_MEMORY = re.compile("(?i)" + "|".join(_LINES[-1].split()[1:]))
_NOT_GENERATION = (
    "neither generation of answers nor reward and value models are counted, and a reference "
    "model only with --reference-model"
)
# {what a run trains for: (its flags of `attncalc train`, what is not counted)}.
OBJECTIVES = {
    "dpo": (("--pairs", "--reference-model"), ""),
    "kto": (("--reference-model",), "the forward passes of KTO's KL term are not counted"),
    "orpo": (("--pairs",), ""),
    "simpo": (("--pairs",), ""),
    "reward": (
        ("--pairs",),
        "a reward model has no lm_head and no logits: they are counted all the same",
    ),
    "grpo": ((), _NOT_GENERATION),
    "ppo": ((), _NOT_GENERATION),
}
# Values by which a key is as if it were not there.
_NOTHING = ("false", "none", "null", "0")
# Options with which 16-bit weights are not what the optimizer updates: DeepSpeed and Megatron keep
# fp32 copies, accelerate casts the weights of FSDP to fp32, and adapters are in fp32.
_OTHER_WEIGHTS = ("--zero", "--fsdp", "--tp", "--pp", "--lora")
# Trainers whose FSDP shards the weights in the dtype in which the model is loaded.
_SHARD_AS_LOADED = ("litgpt", "torchtitan", "torchtune")
# {trainer: what loads the model in bf16}, if it is not --dtype bfloat16.
_LOADS_BF16 = {"litgpt": "--precision bf16-true"}
# Matrices of adapters that a switch each names: litgpt's --lora_query.
_TARGETS = ("q", "k", "v", "o", "mlp", "lm_head")
# Those that torchtune's switches add to its lora_attn_modules.
_ADDED_TARGETS = ("mlp", "lm_head")
# What keys mean that only adapters have.
OF_ADAPTERS = frozenset(
    (
        *("lora", "r", "targets", "dropout"),
        *(f"target_{name}" for name in _TARGETS),
        *(f"with_{name}" for name in _ADDED_TARGETS),
        *("--weights-dtype", "--no-kbit-upcast", "--double-quant"),
    )
)
# {option of a buffer of DeepSpeed: the stages of ZeRO that have it}.
_BUFFERS = {
    "--reduce-bucket-size": ("1", "2", "3"),
    "--overlap-comm": ("1", "2"),
    "--stage3-max-live-parameters": ("3",),
    "--sub-group-size": ("3",),
}
# Beginnings of keys that only DeepSpeed's and accelerate's files have.
_MARKS = ("zero_optimization.", "distributed_type")


class Recipe(NamedTuple):
    """The settings of a training run, as `attncalc train` has them."""

    options: dict[str, str]  # {option: value}; the value of a flag is ""
    notes: list[str]  # sentences on what is not counted


class RecipeFile(NamedTuple):
    """A trainer's file of settings."""

    model: str | None  # the name or path of the model that it trains
    keys: dict[str, Any]  # {its key: value}, of nested mappings 'zero_optimization.stage'
    unread: list[str]  # the keys that are not read and may change memory


def read_recipe(path: str) -> RecipeFile | None:
    """Return a trainer's file; None of any other file."""
    file = Path(path)
    if not os.path.isfile(path) or file.stat().st_size > LIMIT:
        return None
    data = _parsed(file)
    if data is None:
        return None
    keys = dict(_flat(data))
    base = base_of_recipe(data)
    if base is None and not any(key.startswith(_MARKS) for key in keys):
        return None
    unread = []
    for key, value in keys.items():
        if not value or reads(key, str(value)):
            continue
        if is_key(key):
            unread.append(f"{key} {truncate(str(value), 40)}")
        elif not changes_no_memory(key):
            unread.append(key)
    return RecipeFile(base, keys, unread)


def _parsed(file: Path) -> Mapping[str, Any] | None:
    """Return the data of a file; None if it is none of JSON, TOML and YAML."""
    # load parsers, which other words do not need
    if file.suffix == ".toml":
        from .toml import parse_toml

        return parse_toml(file)
    from ...config.yaml import parse_document

    if file.suffix not in DOCUMENTS:
        return None
    try:
        return parse_document(file.read_bytes(), str(file), is_strict=False).data
    except (AttncalcError, OSError):
        return None


def check_syntax(path: str) -> None:
    """Raise AttncalcError with the line of a mistake in a file of YAML or JSON."""
    from ...config.yaml import parse_document

    if not path.endswith(DOCUMENTS):
        return
    try:
        parse_document(Path(path).read_bytes(), path, is_strict=False)
    except AttncalcError as error:
        raise AttncalcError(
            error.message, "correct it, or give the settings as options: --lora r=16"
        ) from None


def meanings(key: str, value: str) -> list[tuple[str, str]]:
    """Return what a typed key means: (option of `attncalc train`, or a part of one, its value)."""
    return [*_meant(_OF_KEY.get(key, {}), value, Path())]


def changes_no_memory(key: str) -> bool:
    """Return whether a key of trainers' files changes no memory: of data, learning rates or
    logging.
    """
    return _NO_MEMORY.search(key) is not None


def is_key(key: str) -> bool:
    """Return whether trainers' files have this key."""
    return key in _OF_KEY


def reads(key: str, value: str) -> bool:
    """Return whether a key of trainers' files, with that value, is known."""
    values = _OF_KEY.get(key, {})
    return "" in values or value.lower() in values or (bool(values) and value.lower() in _NOTHING)


def needs_value(key: str) -> bool:
    """Return whether a key of trainers' files is no switch: its value is one of an option."""
    return "{}" in _OF_KEY.get(key, {}).get("", "")


def values_of(key: str) -> list[str]:
    """Return the values of a key of trainers' files; none if it takes any value or is not known."""
    values = _OF_KEY.get(key, {})
    if "" in values:
        return []
    return [one for one in values if "," not in one]


def same_meaning(key: str, other: str) -> bool:
    """Return whether two keys mean the same option."""
    return _OF_KEY.get(key) == _OF_KEY.get(other, {})


def set_dtypes(found: dict[str, str], given: Collection[str], trainer: str = "") -> list[str]:
    """Turn the dtype in which the trainer loads the model into options, and return notes.

    transformers' Trainer leaves the weights in that dtype, and bf16=True adds autocast but no fp32
    copy (transformers/trainer.py). torch.optim creates moments in the dtype of the weights
    (`zeros_like`, torch/optim/adamw.py); bitsandbytes and Adafactor do not.

    Args:
        found: {option of `attncalc train`: value}; 'loaded' is the dtype, 'trained' that to which
            trained weights are cast, and 'autocast' is there if matmuls are autocast.
        given: The options that stand before the command, which replace its own.
        trainer: The trainer.
    """
    text = found.pop("loaded", "")
    trained = found.pop("trained", "")
    autocasts = found.pop("autocast", None) is not None
    notes = []
    if text.lower() == "auto":
        notes.append("dtype auto is counted as bf16, which most checkpoints have")
        text = "bf16"
    if text:
        loaded = dtype(text, compute=True).name
        found.setdefault("--dtype", loaded)
        notes += _set_loaded(found, {*found, *given}, loaded, trainer)
    options = {*found, *given}
    if trained and not text and options.isdisjoint({*_OTHER_WEIGHTS, "--param-dtype"}):
        found["--param-dtype"] = dtype(trained, compute=True).name
    if autocasts and _autocast_matters(found, options):
        found["--autocast"] = ""
    return notes


def _set_loaded(
    found: dict[str, str], options: Collection[str], loaded: str, trainer: str
) -> list[str]:
    """Set the dtypes of weights and moments of a model that is loaded in the dtype `loaded`; return
    notes.
    """
    notes = []
    is_frozen = "--lora" in options and "--weights-dtype" not in options
    if is_frozen and loaded == "fp32" and found["--dtype"] != "fp32":
        notes.append(
            f"the frozen weights are loaded in fp32, and counted in {found['--dtype']}: "
            f"{_LOADS_BF16.get(trainer, '--dtype bfloat16')} loads them so"
        )
    others = {*_OTHER_WEIGHTS}
    if trainer in _SHARD_AS_LOADED:
        others = {"--zero"}
    if not others.isdisjoint(options) or "--param-dtype" in options:
        return notes
    if loaded != "fp32" or "--fsdp" not in options:  # FSDP has fp32 by default
        found["--param-dtype"] = loaded
    if loaded != "fp32":
        if "--lora" not in options:
            found["--no-master-weights"] = ""
        name = found.get("--optimizer", "adamw")
        optimizer = OPTIMIZERS.get(ALIASES.get(name, name))
        if optimizer and optimizer.kind == "plain" and not optimizer.in_place:
            found["--optimizer-dtype"] = loaded
    return notes


def _autocast_matters(found: Mapping[str, str], options: Collection[str]) -> bool:
    """Return whether autocast changes what adapters keep: those in fp32, beside weights that are
    not cast to fp32 anyway.
    """
    if "--lora" not in options or found.get("--param-dtype", "fp32") != "fp32":
        return False
    casts_anyway = "--weights-dtype" in options and "--no-kbit-upcast" not in options
    is_half = "--dtype" not in options or found.get("--dtype", "fp32") != "fp32"
    return is_half and not casts_anyway


def recipe_of_keys(flat: Mapping[str, Any], file: Path) -> Recipe:
    """Return the settings that a trainer's keys are. Paths are relative to `file`; Path() if the
    keys were typed.
    """
    found: dict[str, str] = {}
    notes: list[str] = []
    for key, value in flat.items():
        for option, text in _meant(_OF_KEY.get(key, {}), value, file):
            joint = {"--offload": ",", "targets": "+"}.get(option)
            value_here = _listed(text) if option == "targets" else text
            if option in OBJECTIVES:
                flags, note = OBJECTIVES[option]
                found |= dict.fromkeys(flags, "")
                notes += [note] if note else []
            elif joint and option in found:
                parts = (*found[option].split(joint), *value_here.split(joint))
                found[option] = joint.join(dict.fromkeys(parts))
            else:
                found[option] = value_here
    # LLaMA-Factory: disable_gradient_checkpointing is False by default
    if "finetuning_type" in flat:
        found.setdefault("--recompute", "full")
    notes += _set_recomputation(found)
    rank = found.pop("dim", "")
    if rank:
        rank = str(parse_count(rank, "lora_dim"))
    if rank and "lora" in found:
        found["r"] = rank
    elif rank:  # DeepSpeed-Chat without --only_optimize_lora
        notes.append(f"adapters of rank {rank} beside the trained weights are not counted")
    notes += _set_sharding(found, has_file=any(_names_deepspeed(key) for key in flat))
    _join(found, is_typed=not file.name)
    if "--modules-to-save" in found and "--lora" not in found:
        del found["--modules-to-save"]
        notes.append("modules_to_save has no effect: there are no adapters")
    return Recipe(found, [*dict.fromkeys(notes)])


def _listed(text: str) -> str:
    """Return a list of matrices as --lora has it: "['q_proj','v_proj']" is 'q_proj+v_proj'."""
    return re.sub(r"[\[\]'\" ]", "", text).replace(",", "+")


def _set_recomputation(found: dict[str, str]) -> list[str]:
    """Turn parts of options on recomputation and compilation into options, and return notes on what
    is counted instead.
    """
    notes = []
    every = found.pop("every", "")
    if every and found.get("--recompute") == "op":
        found["--recompute"] = "none"
        notes.append(
            f"of every {every} layers one is recomputed, but the activations of all are counted"
        )
    notes += _set_layers(found)
    if found.pop("hosted", None) is not None:
        notes.append("inputs of layers that move to host memory are counted on the GPU")
    if found.get("--recompute") != "selective" and "--recompute-modules" in found:
        del found["--recompute-modules"]
        notes.append("recompute_modules has no effect: the granularity is not selective")
    offloaded = found.get("--offload", "").split(",")
    if "activations" in offloaded and found.get("--recompute") != "full":
        offloaded.remove("activations")
        found["--offload"] = ",".join(offloaded)
        notes.append("activations that are offloaded without checkpointing are counted on the GPU")
    if found.get("--offload") == "":
        del found["--offload"]
    only = found.pop("compiled", "")
    if only == "loss":
        found.pop("--compile", None)
    elif only == "model" and found.get("--loss") == "compiled":
        del found["--loss"]
    return notes


def _set_layers(found: dict[str, str]) -> list[str]:
    """Leave out Megatron's way to recompute layers where it has no effect, and return notes."""
    method = found.get("--recompute-method")
    number = found.get("--recompute-num-layers")
    if method is None and number is None:
        return []
    if found.get("--recompute") == "full" and method and number:
        is_of_each = (method, number) == ("uniform", "1")
        if not is_of_each or "--virtual-stages" not in found:
            return []
    found.pop("--recompute-method", None)
    found.pop("--recompute-num-layers", None)
    if found.get("--recompute") == "full" and method and number:
        return []  # each layer is recomputed alone, as without them
    return ["recompute_method and recompute_num_layers need each other, and the granularity full"]


def _names_deepspeed(key: str) -> bool:
    """Return whether a key names a file of DeepSpeed."""
    return "deepspeed {}" in _OF_KEY.get(key, {}).values()


def _set_sharding(found: dict[str, str], *, has_file: bool) -> list[str]:
    """Set accelerate's default stage of ZeRO, and leave out what has no effect: weights in host
    memory without ZeRO 3, buffers of other stages, sequence parallelism without tensor parallelism,
    a reference model of objectives without one. Return notes.

    `has_file` tells whether a file of DeepSpeed has the stage.
    """
    notes = []
    if found.pop("stage_2", None) is not None and "--zero" not in found and not has_file:
        found["--zero"] = "2"
        notes.append("accelerate's default is counted: zero_stage 2")
    if found.pop("unsharded", None) is not None:
        found.pop("--fsdp", None)
    zero = found.get("--zero")
    if zero in ("0", "1", "2") and "--fsdp" not in found and "--offload" in found:
        parts = [part for part in found["--offload"].split(",") if part != "params"]
        found["--offload"] = ",".join(parts)
        if not parts:
            del found["--offload"]
    for name, stages in _BUFFERS.items():
        if zero not in stages or "--fsdp" in found:
            found.pop(name, None)
    if found.get("--tp", "1") == "1":
        found.pop("--sequence-parallel", None)
    if "alone" in found:
        del found["alone"]
        found.pop("--reference-model", None)
    return notes


def _join(found: dict[str, str], *, is_typed: bool) -> None:
    """Make options of parts of one. A file may have modules of LoRA without LoRA; who types them
    means LoRA.
    """
    prompt = found.pop("prompt", "")
    completion = found.pop("completion", "")
    if completion:  # GRPO's lengths; DPO's max_length has the prompt
        lengths = [parse_count(length, "a length") for length in (prompt, completion) if length]
        found.setdefault("--context", str(sum(lengths)))
    lora = {name: found.pop(name) for name in ("lora", "r", "targets", "dropout") if name in found}
    switched = [name for name in _TARGETS if found.pop(f"target_{name}", None) is not None]
    if switched:
        lora["targets"] = "+".join(switched)
    added = [name for name in _ADDED_TARGETS if found.pop(f"with_{name}", None) is not None]
    if added:
        named = [lora["targets"]] if "targets" in lora else []
        lora["targets"] = "+".join([*named, *added])
    if "lora" in lora or "r" in lora or "--weights-dtype" in found or (is_typed and lora):
        parts = {"r": "16", **lora}
        found["--lora"] = ",".join(
            f"{name}={parts[name]}" for name in ("r", "targets", "dropout") if name in parts
        )
    if "--weights-dtype" not in found:
        found.pop("--no-kbit-upcast", None)
    if found.get("--weights-dtype") != "nf4":
        found.pop("--double-quant", None)
    if found.get("--zero") == "2":
        found.pop("--fsdp", None)


def _flat(data: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values with their keys, 'zero_optimization.stage'; a list of texts as
    'q_proj+v_proj'.
    """
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        elif isinstance(value, list):
            yield f"{before}{key}", "+".join(map(str, value))
        elif value not in (None, "", "auto") or (value == "auto" and key == "reduce_bucket_size"):
            yield f"{before}{key}", value
        elif value == "auto" and key in ("bf16", "fp16"):
            yield f"{before}{key}", key == "bf16"
        elif value == "auto" and key in ("dtype", "torch_dtype"):
            yield f"{before}{key}", value


def _meant(values: Mapping[str, str], value: Any, file: Path) -> Iterator[tuple[str, str]]:
    """Yield (option, its value) that a key means."""
    words = values.get(str(value).lower(), values.get("", "")).split()
    while words:
        name = words.pop(0)
        if words and not words[0].startswith("-"):
            text = words.pop(0).replace("{}", str(value).replace("output_proj", "o_proj"))
        else:
            text = ""
        if name == "component":
            yield from _of_component(text)
        elif name == "deepspeed":
            yield from _of_deepspeed(text, file)
        elif name == "strategy":
            yield from _of_strategy(text)
        elif name in ("optimizer", "params", "activations"):
            yield "--offload", name
        elif name == "both":
            yield "--offload", "optimizer,params"
        else:
            yield name, text


def _of_component(name: str) -> Iterator[tuple[str, str]]:
    """Yield what a class of a torchtune recipe means:
    'torchtune.models.llama3_1.qlora_llama3_1_8b'.
    """
    if name.startswith("torchtune.models."):
        if "lora_" in name:
            yield "lora", ""
        if ".qlora_" in name:
            yield "--weights-dtype", "nf4"
            yield "--no-kbit-upcast", ""
    elif "CutCrossEntropy" in name:
        yield "--loss", "fused"
    elif name.endswith(".DPOLoss"):
        yield "dpo", ""
    elif name.endswith(("LinearCrossEntropyLoss", "CEWithChunkedOutputLoss")):
        yield "--loss", "chunked"


def _of_strategy(text: str) -> Iterator[tuple[str, str]]:
    """Yield what the words of transformers' --fsdp mean: 'full_shard auto_wrap offload'."""
    words = set(re.split(r"[\s,+]+", text.lower()))
    if "offload" in words:
        yield "--offload", "optimizer,params"
    if "shard_grad_op" in words:
        yield "--zero", "2"
    elif "no_shard" not in words:
        yield "--fsdp", ""


def _of_deepspeed(name: str, file: Path) -> Iterator[tuple[str, str]]:
    """Yield what a DeepSpeed file means that another file names; if it is not here, its name."""
    beside = next((str(path) for path in (Path(name), file.parent / name) if path.is_file()), None)
    found = read_recipe(beside) if beside else None
    if found:  # it names no further file: two could name each other
        keys = {key: value for key, value in found.keys.items() if key != "deepspeed"}
        yield from recipe_of_keys(keys, Path(str(beside))).options.items()
    stage = re.search(r"z(?:ero)?_?([123])", name)
    if beside is None and stage is None and name.endswith(DOCUMENTS):
        raise AttncalcError(
            f"no such file: {truncate(name)}", "it has the stage of ZeRO: give its path"
        )
    if not found and stage:
        yield "--zero", stage[1]
        moved = ("optimizer", "params")[: int(stage[1]) - 1] if "offload" in name else ()
        yield from (("--offload", part) for part in moved)
