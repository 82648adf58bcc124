"""The program that writes a config.json for an engine, run by the Python of that engine.

Its argument is a folder with fields.json: {"fields": {...}, "changes": {...}}, the fields of a
model's config.json, which may lack those that are its class's defaults, and changed sizes of the
language model. transformers fills the rest and knows the class.
"""

import json
import os
import sys
from typing import Any

# Lists and texts with an entry per layer, cut or continued if the number of layers changes.
_PER_LAYER = (
    "layer_types",
    "mlp_layer_types",
    "layers_block_type",
    "no_rope_layers",
    "hybrid_override_pattern",
)
# The classes that generate text: those of multimodal models first, as engines load them.
_MAPPINGS = (
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
)


def changed(fields: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with the changes, in the part of the language model.

    The name of a change may have several, 'num_experts|num_local_experts', of which those that the
    class has are used, or else the first.
    """
    if not changes:
        return fields
    for part in ("text_config", "llm_config"):
        if isinstance(fields.get(part), dict):
            return {**fields, part: changed(fields[part], changes)}
    known = filled(fields)
    found = {**fields}
    for names, value in changes.items():
        first, *others = names.split("|")
        own = [name for name in (first, *others) if name in known]
        found.update(dict.fromkeys(own or [first], value))
    layers = found.get("num_hidden_layers")
    for name in _PER_LAYER:
        each = found.get(name)
        if not layers or not each:
            continue
        changed_list = [each[i % len(each)] for i in range(layers)]
        found[name] = "".join(changed_list) if isinstance(each, str) else changed_list
    return found


def filled(fields: dict[str, Any]) -> dict[str, Any]:
    """Return all fields, with the defaults of the class; as they are if no class is known."""
    from transformers import AutoConfig

    model_type = fields.get("model_type", "")
    rest = {name: value for name, value in fields.items() if name != "model_type"}
    try:
        known: dict[str, Any] = AutoConfig.for_model(model_type, **rest).to_dict()
    except ValueError:  # a class of the engine's own, or none
        return fields
    found = {name: value for name, value in known.items() if value is not None}
    return {**fields, **found}


def architectures(model_type: str) -> list[str]:
    """Return the class that generates text, as a list; [] if transformers has none."""
    from transformers.models.auto import modeling_auto

    for mapping in _MAPPINGS:
        found = getattr(modeling_auto, mapping, {}).get(model_type)
        if found:
            return [found] if isinstance(found, str) else [found[0]]
    return []


def main(folder: str) -> None:
    with open(os.path.join(folder, "fields.json"), encoding="utf-8") as file:
        asked = json.load(file)
    config = filled(changed(asked["fields"], asked["changes"]))
    if not config.get("architectures"):
        config["architectures"] = architectures(config["model_type"])
    if not config["architectures"]:
        raise SystemExit(f"it has no class for model_type '{config['model_type']}'")
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1, default=str)


if __name__ == "__main__":
    main(sys.argv[1])
