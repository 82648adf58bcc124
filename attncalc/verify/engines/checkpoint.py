"""A model's folder for an engine: a config.json and no weights, which the engine makes up.

Nothing comes from the hub: the fields are those that attncalc has, and transformers, which is
installed wherever vLLM or SGLang is, adds the defaults and the name of the class.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...attention.grouped import Grouped
from ...errors import AttncalcError, CannotCheckError
from ...model import ModelSpec
from ...units import long_option, truncate
from .start import Guard, engine_environment

# {an option of what-if sizes: its field in the config.json of most models}. Their classes know
# these names where their own differ, as gpt2's n_embd.
_FIELDS = {
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "d_model": "hidden_size",
    "experts": "num_experts|num_local_experts|n_routed_experts",
    "experts_per_token": "num_experts_per_tok|moe_topk",
    "vocab_size": "vocab_size",
    "window": "sliding_window",
    "tie_word_embeddings": "tie_word_embeddings",
}
_TORCH_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
# Seconds that transformers has to write the file: its import takes 3 to 20.
_SECONDS = 180.0


def changes_of(model: ModelSpec, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a config.json that options of what-if sizes change.

    Args:
        model: The changed model.
        changes: {option: value} of `WhatIfOptions`.

    Raises CannotCheckError for an option that no field stands for.
    """
    given = dict(changes)
    heads = set()
    for _, group in model.groups():
        for kind in group.attentions:
            if isinstance(kind, Grouped):
                heads.add((kind.n_heads, kind.n_kv_heads, kind.d_head))
    if len(heads) == 1:
        _, kv_heads, width = heads.pop()
        if str(given.get("attention", "")).lower().partition(":")[0] in ("mha", "gqa", "mqa"):
            del given["attention"]
            given["kv_heads"] = int(kv_heads)
        if given.keys() & {"d_model", "heads", "kv_heads"}:  # the width of a head stays
            given.setdefault("head_dim", int(width))
    widths = _widths_of_mlps(model) if given.keys() & {"d_model", "d_ff"} else {}
    given.pop("d_ff", None)
    unknown = [long_option(name) for name in given if name not in _FIELDS]
    if unknown:
        raise CannotCheckError(
            f"{', '.join(unknown)}: no field of a config.json makes this of {model.title}",
            "give a config.json of the model that the engine shall load",
        )
    return widths | {_FIELDS[name]: value for name, value in given.items()}


def _widths_of_mlps(model: ModelSpec) -> dict[str, int]:
    """Return the fields with the widths of MLPs and of experts; {} for one that has several."""
    dense = set()
    routed = set()
    for _, group in model.groups():
        if group.mlp and group.mlp.n_experts:
            routed.add(int(group.mlp.d_ff))
        elif group.mlp:
            dense.add(int(group.mlp.d_ff))
    found = {}
    if len(routed) == 1:
        found = {"moe_intermediate_size": min(routed), "intermediate_size": min(routed)}
    if len(dense) == 1:
        found["intermediate_size"] = min(dense)
    return found


def preset_fields(model: ModelSpec) -> dict[str, Any]:
    """Return the fields that a preset has apart from its class's: its dtype and its positions."""
    fields: dict[str, Any] = {"dtype": _TORCH_NAMES.get(str(model.dtype), "bfloat16")}
    if model.max_context:
        fields["max_position_embeddings"] = int(model.max_context)
    return fields


def write_checkpoint(
    guard: Guard, python: Path, fields: Mapping[str, Any], changes: Mapping[str, Any]
) -> Path:
    """Write a config.json into a folder for the engine, and return the folder.

    Args:
        guard: Where the program runs, and in whose folder it writes.
        python: The Python of the engine, which has transformers.
        fields: The fields of the model's config.json; defaults of its class may lack.
        changes: Fields of the language model that differ.

    Raises CannotCheckError if transformers cannot make the config.
    """
    folder = guard.folder / "model"
    folder.mkdir()
    asked = {"fields": {**fields}, "changes": {**changes}}
    (folder / "fields.json").write_text(json.dumps(asked), encoding="utf-8")
    program = Path(__file__).with_name("write_config.py")
    own = {"TRANSFORMERS_VERBOSITY": "error"}
    environment = engine_environment(guard.folder, own, ("HF_HOME", "TORCHINDUCTOR_CACHE_DIR"))
    command = [os.fspath(python), "-I", os.fspath(program), os.fspath(folder)]
    watched = guard.run(command, environment, _SECONDS)
    if watched.code != 0:
        lines = watched.log.decode("utf-8", "replace").strip().splitlines()
        reason = lines[-1] if lines else "it took too long"
        raise CannotCheckError(
            f"the engine's transformers cannot write this model's config: {truncate(reason, 200)}",
            "another version of transformers may know the model",
        )
    (folder / "fields.json").unlink()
    return folder


def python_of(program: Path) -> Path:
    """Return the Python that runs a program which pip has installed: that of its first line.

    Raises AttncalcError if it has none.
    """
    with program.open("rb") as file:
        line = file.readline(4096).decode("utf-8", "replace").strip()
    named = Path(line.removeprefix("#!").split(" ")[0])
    for python in (named, program.resolve().parent / "python"):
        if python.name.startswith("python") and os.access(python, os.X_OK):
            return python
    raise AttncalcError(
        f"{truncate(program)} does not name its Python", "install the engine with pip"
    )
