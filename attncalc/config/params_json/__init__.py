"""The params.json of Mistral's and Meta's releases, read as the config.json of the same model."""

from collections.abc import Mapping
from typing import Any

from ...errors import AttncalcError, NotSupportedError
from ..document import Document
from ..huggingface import convert_config
from .keys import TIP, Keys
from .meta import from_meta
from .mistral import from_mamba, from_mistral

# {field of a config.json: the keys of a params.json that it is made of}; errors name the last one
# that is given.
_NAMES = {
    "hidden_size": ("dim",),
    "num_hidden_layers": ("n_layers",),
    "num_attention_heads": ("n_heads",),
    "num_key_value_heads": ("n_heads", "n_kv_heads"),
    "intermediate_size": ("multiple_of", "hidden_dim"),
    "tie_word_embeddings": ("tie_embeddings", "tied_embeddings"),
    "max_position_embeddings": ("max_seq_len", "max_position_embeddings"),
    "n_routed_experts": ("moe.num_experts",),
    "num_local_experts": ("moe.num_experts",),
    "n_shared_experts": ("moe.num_shared_experts",),
    "moe_intermediate_size": ("moe.expert_hidden_dim",),
}
# Values of model_type that releases of Mistral's and Meta's have.
_MODEL_TYPES = (None, "transformer", "mamba", "llama", "mistral")
# Keys of transformers' config.json, one of which each has.
_OF_TRANSFORMERS = {"architectures", "hidden_size", "num_hidden_layers", "d_model"}


def is_params_json(data: Mapping[str, Any]) -> bool:
    """Return whether the data are of a params.json: 'dim' and 'n_layers', without the keys of
    transformers.

    The original/config.json of gpt-oss counts as one: its error names it.
    """
    data = _inner(data)
    if _is_gpt_oss(data):
        return True
    if not {"dim", "n_layers"} <= data.keys() or data.keys() & _OF_TRANSFORMERS:
        return False
    if data.get("model_type") not in _MODEL_TYPES:
        return False
    return "n_heads" in data or data.get("model_type") == "mamba"


def convert_params(
    data: Mapping[str, Any], file: str, title: str
) -> tuple[Document, dict[str, Any]]:
    """Return the model file of a params.json, and the config.json of the same model.

    Raises AttncalcError as `convert_config` does, with the names of the params.json.
    """
    given = _inner(data)
    names = {}
    for field, keys in _NAMES.items():
        for key in keys:
            if key.split(".")[0] in given:
                names[field] = key
    config, notes = to_config(data, file)
    document = convert_config(config, file, title=title, names=names)
    document.data["sources"] = [
        text.replace("config.json", "params.json") for text in document.data["sources"]
    ]
    if notes:
        document.data["notes"] = [*notes, *document.data.get("notes", ())]
    return document, config


def to_config(data: Mapping[str, Any], file: str) -> tuple[dict[str, Any], list[str]]:
    """Return the config.json of the same model, and notes about what the params.json lacks and is
    assumed.

    Raises AttncalcError, with the key, if a value cannot be used; NotSupportedError for the
    original/config.json of gpt-oss.
    """
    keys = Keys(_inner(data))
    if _is_gpt_oss(keys):
        raise NotSupportedError(
            f"{file}: OpenAI's original/config.json of gpt-oss is not supported",
            f"{TIP}, in the folder above",
        )
    notes: list[str] = []
    try:
        if keys.get("model_type") == "mamba":
            config = from_mamba(keys)
        elif "hidden_dim" in keys:
            config = from_mistral(keys, notes)
        else:
            config = from_meta(keys, notes)
    except AttncalcError as error:
        raise type(error)(f"{file}: {error.message}", error.tip) from None
    return config, notes


def _inner(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the keys inside 'model', where some files have them all."""
    inner = data.get("model")
    if isinstance(inner, Mapping) and "dim" in inner:
        return inner
    return data


def _is_gpt_oss(data: Mapping[str, Any]) -> bool:
    has_names = "experts_per_token" in data and "initial_context_length" in data
    return has_names and "model_type" not in data
