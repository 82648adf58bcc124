"""What an engine loads: the model, its checkpoint and the draft model; fields of FitRequest."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...config import ModelLike, load
from ...config.checkpoints import Checkpoints, Layouts, layout_of, of_checkpoint
from ...config.presets import (
    is_family_and_size,
    preset_of,
    repository_of,
    unquantized,
    with_file_type,
)
from ...errors import AttncalcError
from ...model import ModelSpec
from ...units import truncate
from ..inputs import with_revision
from ..options import WhatIfOptions

# The model in a launch command if it has no name or path that an engine could load.
UNNAMED = "MODEL"


def served_fields(
    model: ModelLike | None, spec: ModelSpec, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what an engine loads, as fields of FitRequest: UNNAMED if no engine could load the
    model.
    """
    if model is None or any(options.get(name) for name in WhatIfOptions.__annotations__):
        return {"served_model": UNNAMED}
    named = with_revision(model, options.get("revision"))
    if isinstance(named, str | os.PathLike):
        return served_model(os.fspath(named), spec) | checkpoint_fields(named, spec)
    if isinstance(model, ModelSpec):
        return {}
    return {"served_model": UNNAMED}


def checkpoint_fields(model: ModelLike | None, spec: ModelSpec) -> dict[str, Any]:
    """Return the known checkpoints of a built-in model, those of the release that was named first,
    as fields of FitRequest; {} of another.
    """
    if not isinstance(model, str) or os.path.exists(model) or not preset_of(model):
        return {}
    release = served_model(model, spec).get("served_model") or ""
    return {
        "checkpoints": Checkpoints(spec.name, release),
        "context_of": _context_of,
        "layouts": Layouts(spec.name, spec.model_type or "", release),
    }


def _context_of(checkpoint: str) -> int | None:
    """Return the longest context that a checkpoint states; None if it is not a known one."""
    if of_checkpoint(checkpoint) is None:
        return None
    return load(checkpoint).max_context


def served_model(name: str, spec: ModelSpec) -> dict[str, Any]:
    """Return what the engine loads, as fields of FitRequest: a folder, a file, or org/name on the
    hub.

    There are none for a preset or a model file in YAML. Engines load a folder with a config.json:
    for a config under another name, or from standard input, the command has MODEL in its place.
    """
    path = Path(name)
    if name == spec.name or path.suffix in (".yaml", ".yml") or is_family_and_size(name):
        return {}
    from ...config.hub import MAIN, parse_repository

    repository = None if os.path.exists(name) else parse_repository(name)
    is_gguf = spec.stored is not None and spec.stored.kind == "GGUF"
    if is_gguf and repository is None:
        from ...config.gguf.files import local_gguf

        # 'blobs/sha256-01' looks like a repository; './blobs/sha256-01' does not
        file = str(local_gguf(name) or name)
        return {"served_model": file if file.lower().endswith(".gguf") else os.path.join(".", file)}
    if repository:
        quantization = f":{repository.file}" if is_gguf and repository.file else ""
        revision = None if repository.revision == MAIN else repository.revision
        return {"served_model": f"{repository.name}{quantization}", "revision": revision}
    if not os.path.exists(name) and preset_of(name):
        # 'qwen3-32B' is Qwen/Qwen3-32B; 'qwen3:32b' is what the preset's sources name
        found = repository_of(name)
        if found:
            return {"served_model": found}
        return {}
    if path.name in ("config.json", "params.json"):
        name = str(path.parent)
    elif name == "-" or os.path.isfile(name):
        name = UNNAMED
    return {"served_model": name}


def given_checkpoint(model: ModelSpec, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return --served-model as a checkpoint in --weights-dtype, as fields of FitRequest. There is
    none if it is not given, and other options tell how the checkpoint stores its weights.

    One whose name has the dtype, as org/name-FP8, is not converted to it; another one may be, if
    the engine can.
    """
    served = values.get("served_model")
    weights_dtype = values.get("weights_dtype")
    if weights_dtype is None:
        return {}
    if served is None:
        # a known checkpoint may be another than the one that these options tell of
        is_told = values.get("keep") is not None or values.get("weights_size") is not None
        return {"checkpoints": {}, "layouts": {}} if is_told else {}
    layout = layout_of(served, model.name, weights_dtype, model.model_type or "")
    fields: dict[str, Any] = {"checkpoints": {weights_dtype: served}, "layouts": {}}
    if layout:
        fields["layouts"] = {weights_dtype: (layout,)}
    copy = unquantized(served)
    if copy is not None and copy[1] == weights_dtype:
        fields["checkpoint"] = served
    return fields


def draft_fields(engine_args: dict[str, Any]) -> dict[str, Any]:
    """Return the draft model as fields of FitRequest; its name leaves `engine_args`."""
    name = engine_args.pop("speculative_model", None)
    if not name:
        return {}
    draft = _draft(name, engine_args.get("speculative_config"))
    return {"draft": draft, "served_draft": served_model(name, draft).get("served_model")}


def _draft(name: str, speculation: str | None) -> ModelSpec:
    """Return the draft model. `speculation` is the JSON of --speculative-config.

    Raises AttncalcError for a type of GGUF files, since only files have their weights in it, and
    for a draft of EAGLE with the class of a whole model: yuhuili/EAGLE-LLaMA3-Instruct-8B has
    LlamaForCausalLM, and vLLM renames it.
    """
    base, file_type = with_file_type(name)
    if file_type and preset_of(base) and not os.path.exists(name):
        raise AttncalcError(
            f"--speculative-model: attncalc does not compute a draft model in {file_type}",
            f"name its GGUF file, or leave the type out: --speculative-model {truncate(base)}",
        )
    draft = load(name)
    is_eagle = "eagle-" in name.lower() or json.loads(speculation or "{}").get("method") == "eagle"
    has_class_of_eagle = any(matrix.name == "fc" for matrix in draft.extra)
    if is_eagle and draft.model_type == "llama" and not has_class_of_eagle:
        raise AttncalcError(
            f"--speculative-model: {draft.title} has the class of a whole model, not of EAGLE",
            "give a copy of its config.json in which 'architectures' is EagleLlamaForCausalLM, "
            "as vLLM reads it",
        )
    return draft
