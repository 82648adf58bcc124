"""Files of Axolotl, LLaMA-Factory, TRL, torchtune, DeepSpeed and accelerate as options of `attncalc train`.

Keys that change no memory are left out: data, learning rates, logging. Others that are not known are named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..config import base_of_recipe
from ..config.source import DOCUMENTS, LIMIT
from ..errors import AttncalcError
from ..units import truncate

_RECOMPUTE = {"false": "--recompute none", "": "--recompute full"}
_FSDP = {"no_shard": "", "2": "--zero 2", "shard_grad_op": "--zero 2", "": "--fsdp"}
_KEYS: dict[str, dict[str, str]] = {
    "disable_gradient_checkpointing": {"true": "--recompute none"},
    "adapter finetuning_type": {"lora": "lora", "qlora": "lora --weights-dtype nf4"},
    "lora_r lora_rank lora.r model.lora_rank": {"": "r {}"},
    "lora_target lora_target_modules model.lora_attn_modules": {"": "targets {}"},
    "model.apply_lora_to_mlp": {"true": "targets gate+up+down"},
    "model.apply_lora_to_output": {"true": "targets lm_head"},
    "lora_dropout model.lora_dropout": {"0.0": "", "0": "", "": "dropout {}"},
    "load_in_4bit": {"true": "--weights-dtype nf4"},
    "load_in_8bit": {"true": "--weights-dtype int8"},
    "quantization_bit": {"4": "--weights-dtype nf4", "8": "--weights-dtype int8"},
    "double_quantization bnb_4bit_use_double_quant": {"true": "--double-quant"},
    "sequence_len cutoff_len max_seq_length max_length tokenizer.max_seq_len": {"": "--context {}"},
    "micro_batch_size per_device_train_batch_size train_micro_batch_size_per_gpu batch_size": {"": "--batch {}"},
    "gradient_accumulation_steps deepspeed_config.gradient_accumulation_steps": {"": "--gradient-accumulation {}"},
    "gradient_checkpointing enable_activation_checkpointing fsdp_config.fsdp_activation_checkpointing "
    "fsdp_config.activation_checkpointing": _RECOMPUTE,
    "optimizer optim": {"": "--optimizer {}"},
    "optimizer_in_bwd": {"true": "--optimizer-in-backward"},
    "bf16 bf16.enabled": {"false": "", "": "--dtype bf16"},
    "fp16 fp16.enabled": {"false": "", "": "--dtype fp16"},
    "mixed_precision": {"bf16": "--dtype bf16", "fp16": "--dtype fp16"},
    "dtype": {"": "--dtype {}"},
    "compile": {"true": "--compile"},
    "torch_compile": {"true": "--compile --loss compiled"},
    "liger_fused_linear_cross_entropy use_liger_kernel enable_liger_kernel cut_cross_entropy": {"true": "--loss fused"},
    "chunked_cross_entropy": {"true": "--loss chunked"},
    "eager_attention attn_implementation": {"true": "--kernel eager", "eager": "--kernel eager"},
    "rl stage": {"dpo": "pairs --reference-model", "kto": "--reference-model", "orpo": "pairs", "rm": "pairs"},
    "trl.beta": {"0.0": "", "0": "", "": "--reference-model"},
    "deepspeed": {"": "deepspeed {}"},
    "fsdp": {"": "--fsdp"},
    "distributed_type": {"fsdp": "--fsdp"},
    "fsdp_config.fsdp_sharding_strategy fsdp_config.fsdp_reshard_after_forward": _FSDP | {"false": "--zero 2"},
    "fsdp_config.fsdp_offload_params fsdp_config.offload_params": {"true": "params"},
    "zero_optimization.stage deepspeed_config.zero_stage": {"": "--zero {}"},
    "zero_optimization.offload_optimizer.device deepspeed_config.offload_optimizer_device": {
        "none": "",
        "": "optimizer",
    },
    "zero_optimization.offload_param.device deepspeed_config.offload_param_device": {"none": "", "": "params"},
    "tensor_parallel_size tensor_parallel_degree tensor_model_parallel_size": {"": "--tp {}"},
    "pipeline_model_parallel_size": {"": "--pp {}"},
    "expert_parallel_size expert_model_parallel_size": {"": "--ep {}"},
    "context_parallel_size sequence_parallel_degree": {"": "--cp {}"},
    "num_processes": {"": "--gpus {}"},
    "model._component_ loss._component_ optimizer._component_ plugins": {"": "component {}"},
    "sample_packing packed pad_to_sequence_len tf32 flash_attention lora_target_linear num_generations "
    "fsdp_version fsdp_config.fsdp_version fsdp_config.reshard_after_forward": {"": ""},
}
"""{keys: {value: what it is as options, or as parts of one}}; '' stands for every other value."""
UNREAD = "unread"
"""The key of a sentence with the keys that are not read, beside the options."""
_NO_MEMORY = re.compile(
    r"(?i)data|dir$|path|file|log|report|wandb|swanlab|name|project|run_|hub|tokens?\b|tokenizer|(^|_)token|template|chat"
    r"|prompt|sample|split|shuffle|eval|val_|test_|predict|generat|metric|seed|lr_|_lr|lr$|learning|warmup|decay|beta|eps"
    r"|momentum|epoch|step|patience|watchdog|(?<!to_)sav(e|ing)|resume|export|infer|trust|type$|backend$|machine|rdzv"
    r"|network|environment|main_|timeout|host|port$|device|worker|pin_memory|clip|max_grad|scale|hysteresis|overwrite"
    r"|plot|do_|strict|temperature|top_|reward|coef|state_dict|wrap|sync|reuse|prefetch|orig_params|all_gathers|t_loading"
    r"|overlap|contiguous|round_robin|scatter|untested|downcast|revision|processor|pref_|label|unused|reentrant|profil"
    r"|alpha|base_model|_comment|gather_16bit|max_completion"
)
"""Parts of the names of keys that change no memory."""
_OF_KEY = {key: values for keys, values in _KEYS.items() for key in keys.split()}
_MARKS = ("zero_optimization.", "distributed_type")
"""Beginnings of keys that only DeepSpeed's and accelerate's files have."""


def options_of_file(path: str, *, is_named: bool = False) -> dict[str, str] | None:
    """Return {option of `attncalc train`: value} of a trainer's file; None of any other file.

    A file that another names (`is_named`) names no further one: two could name each other.
    """
    file = Path(path)
    if file.suffix not in DOCUMENTS or not file.is_file() or file.stat().st_size > LIMIT:
        return None
    from ..config.yaml import parse_document  # loads a parser of YAML, which other words do not need

    try:
        data = parse_document(file.read_bytes(), path).data
    except (AttncalcError, OSError):
        return None
    flat, base = dict(_flat(data)), base_of_recipe(data)
    if base is None and not any(key.startswith(_MARKS) for key in flat):
        return None
    if is_named:
        flat.pop("deepspeed", None)
    found: dict[str, str] = {"--preset": base} if base else {}
    for key, value in flat.items():
        for option, text in _meant(_OF_KEY.get(key, {}), value, file):
            joint = {"--offload": ",", "targets": "+"}.get(option)
            found[option] = joint.join((found[option], text)) if joint and option in found else text
    if unread := [key for key, value in flat.items() if value and not (key in _OF_KEY or _NO_MEMORY.search(key))]:
        found[UNREAD] = f"not read of {truncate(file.name, 40)}: {', '.join(unread)}"
    if "finetuning_type" in flat:  # LLaMA-Factory: disable_gradient_checkpointing is False by default
        found.setdefault("--recompute", "full")
    _join(found)
    return found


def _join(found: dict[str, str]) -> None:
    """Make options of parts of one."""
    if found.pop("pairs", None) is not None and (batch := found.get("--batch", "1")).isdecimal():
        found["--batch"] = str(2 * int(batch))  # chosen and rejected answers
    lora = {name: found.pop(name) for name in ("lora", "r", "targets", "dropout") if name in found}
    if "lora" in lora or "r" in lora or "--weights-dtype" in found:
        parts = {"r": "16", **lora}
        found["--lora"] = ",".join(f"{name}={parts[name]}" for name in ("r", "targets", "dropout") if name in parts)
    if found.get("--zero") == "2":
        found.pop("--fsdp", None)


def _flat(data: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values with their keys, 'zero_optimization.stage'; a list of texts as 'q_proj+v_proj'."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        elif isinstance(value, list):
            yield f"{before}{key}", "+".join(map(str, value))
        elif value not in (None, "", "auto"):
            yield f"{before}{key}", value
        elif value == "auto" and key in ("bf16", "fp16"):
            yield f"{before}{key}", key == "bf16"


def _meant(values: Mapping[str, str], value: Any, file: Path) -> Iterator[tuple[str, str]]:
    """Yield (option, its value) that a key means."""
    words = values.get(str(value).lower(), values.get("", "")).split()
    while words:
        name = words.pop(0)
        text = (
            words.pop(0).replace("{}", str(value).replace("output_proj", "o_proj"))
            if words and not words[0].startswith("-")
            else ""
        )
        if name == "component":
            yield from _of_component(text)
        elif name == "deepspeed":
            yield from _of_deepspeed(text, file)
        elif name in ("optimizer", "params"):
            yield "--offload", name
        else:
            yield name, text


def _of_component(name: str) -> Iterator[tuple[str, str]]:
    """Yield what a class of a torchtune recipe means: 'torchtune.models.llama3_1.qlora_llama3_1_8b'."""
    if name.startswith("torchtune.models."):
        yield from [("lora", "")] * ("lora_" in name)
        yield from [("--weights-dtype", "nf4"), ("--no-kbit-upcast", "")] * (".qlora_" in name)
    elif "CutCrossEntropy" in name:
        yield "--loss", "fused"
    elif name.endswith(("LinearCrossEntropyLoss", "CEWithChunkedOutputLoss")):
        yield "--loss", "chunked"
    elif "8bit" in name:
        yield "--optimizer", "adam8bit"


def _of_deepspeed(name: str, file: Path) -> Iterator[tuple[str, str]]:
    """Yield what a DeepSpeed file means that another file names; if it is not here, its name."""
    beside = next((str(path) for path in (Path(name), file.parent / name) if path.is_file()), None)
    found = beside and options_of_file(beside, is_named=True)
    yield from (found or {}).items()
    if not found and (stage := re.search(r"z(?:ero)?_?([123])", name)):
        yield "--zero", stage[1]
