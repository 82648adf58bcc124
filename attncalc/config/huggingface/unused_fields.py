"""The fields of a config that may matter, and that the family's rules do not use.

A field of the class that no rule uses is an error: it must not be ignored in silence. A field that
only other classes have is ignored by transformers, so that a note names it. It is an error if an
engine reads it from every config, or if the model has its own code, which may read it.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ...records import NamedTuple
from ..data_files import words
from .family import families
from .fields import Fields, config_classes
from .formulas import kinds_of_layer, names_in
from .sizes import head_dim_of, is_name_of_size, names_of_size, repeats_own_size

_ALWAYS_USED = ("tie_word_embeddings", "per_layer_config")
_IGNORED_NAMES = Path(__file__).with_name("ignored_fields.txt")
_IGNORED_PARTS = (
    "rope",
    "rotary",
    "dropout",
    "initializer",
    "init_std",
    "init_method",
    "epsilon",
    "softcap",
    "aux_loss",
    "_image_token",
)
_IGNORED_STARTS = ("mask_time", "mask_feature", "spec_augment")
_IGNORED_ENDINGS = (
    "_pdrop",
    "_drop",
    "_eps",
    "_token_id",
    "_token_index",
    "_loss_coef",
    "_multiplier",
    "_multipliers",
)

_KV_HEADS = (
    "num_key_value_heads",
    "n_head_kv",
    "num_kv_heads",
    "multi_query_group_num",
    "num_attention_groups",
)
_HEAD_DIMS = ("head_dim", "hidden_size_per_head", "v_head_dim", "swa_head_dim", "swa_v_head_dim")
# Fields that transformers' cache or an engine reads whatever the class of the config is.
READ_BY_ENGINES = frozenset(
    {
        # vLLM: get_total_num_kv_heads (transformers_utils/model_arch_config_convertor.py)
        *_KV_HEADS,
        # vLLM: get_head_size there; SGLang: _derive_model_shapes (srt/configs/model_config.py)
        *_HEAD_DIMS,
        # transformers: get_layer_types_and_kwargs (cache_utils.py), of every class without
        # layer_types; vLLM: get_sliding_window (config/model.py), and layer_types in
        # models/llama.py and others
        "sliding_window",
        "attention_chunk_size",
        "layer_types",
        # vLLM: "bias" is another name of attention_bias (models/llama.py, LlamaDecoderLayer)
        "bias",
        "qkv_bias",
        "attention_bias",
        "mlp_bias",
    }
)
# Those that transformers' cache switches off with null only: 0 makes windows of no tokens.
_SPANS = ("sliding_window", "attention_chunk_size")


class UnusedFields(NamedTuple):
    """The names of fields that no rule uses."""

    rejected: list[str]  # fields that may change a figure
    # fields that other classes have, and that neither this one nor an engine reads
    ignored: list[str]


def unused_fields(rules: Mapping[str, Any], fields: Fields, n_layers: int) -> UnusedFields:
    """Return the given fields that matter to the config's class, or to another family, and that the
    rules do not use.

    A field that only one kind of layer uses counts as used if there is such a layer, or if the
    class has the field: LLaMA's class has no sliding_window, so that a `sliding_window` in a
    LLaMA's config is not used. `per_layer_config` is unused if it changes an unused field of some
    layer.
    """
    used_by_rules = _own_names(rules, fields)
    kinds = _kinds_of_layers(rules, fields, n_layers)
    used_by_layers = _own_names({**rules, "kinds": kinds}, fields)
    # A config may name code of the vendor's own, whose classes may read any field.
    auto_map = fields.outer_or_self.given.get("auto_map")
    has_own_code = isinstance(auto_map, Mapping) and any(
        str(name).startswith("AutoModel") for name in auto_map
    )
    rejected: list[str] = []
    ignored: list[str] = []
    for name, value in fields.given.items():
        is_default = fields.is_default(name) and not (name in _SPANS and value == 0)
        if name in used_by_layers or is_ignored(name) or is_default:
            continue
        if fields.is_of_class(name):
            if name not in used_by_rules:
                rejected.append(name)
        elif matters_to_a_family(name) and not _repeats_another(name, value, rules, fields):
            changes_engine = name in READ_BY_ENGINES and not _changes_nothing(name, value, fields)
            if not fields.is_known_class or has_own_code or changes_engine:
                rejected.append(name)
            else:
                ignored.append(name)
    for changes in (fields.given.get("per_layer_config") or {}).values():
        unused = [name for name in changes if fields.own_name(name) not in used_by_layers]
        if not all(map(is_ignored, unused)):
            rejected.append("per_layer_config")
    return UnusedFields(rejected, ignored)


def _kinds_of_layers(rules: Mapping[str, Any], fields: Fields, n_layers: int) -> dict[str, Any]:
    """Return the rules of the kinds that some layer is of."""
    present = set[str]()
    for i in range(n_layers):
        present.update(kinds_of_layer(rules, fields.of_layer(i), i))
    # an encoder may have all that a formula names
    named = str(rules.get("kind", "")) if "encoder" in rules else ""
    kinds = {}
    for kind, keys in rules.get("kinds", {}).items():
        if kind in present or kind in named:
            kinds[kind] = keys
    return kinds


def structural_fields(rules: Mapping[str, Any], fields: Fields) -> Iterator[str]:
    """Yield the given fields that may describe the model's structure, and that the rules do not
    use.

    A word counts only if a family uses a field of that name: 'tokenizer_type' does not,
    'hybrid_override_pattern' does.
    """
    used = _own_names(rules, fields)
    for name, value in fields.given.items():
        is_word = isinstance(value, str) and not matters_to_a_family(name)
        if name not in used and value and not is_word and not is_ignored(name):
            yield name


def is_ignored(name: str) -> bool:
    """Return whether a field changes neither parameters, nor FLOPs, nor a cache, in any family."""
    return (
        name in words(_IGNORED_NAMES)
        or name.startswith(_IGNORED_STARTS)
        or name.endswith(_IGNORED_ENDINGS)
        or any(part in name for part in _IGNORED_PARTS)
    )


def _own_names(rules: Mapping[str, Any], fields: Fields) -> set[str]:
    """Return the fields that rules use or ignore, under their own names."""
    return set(map(fields.own_name, (*names_in(rules), *rules.get("ignored", ()), *_ALWAYS_USED)))


def matters_to_a_family(name: str) -> bool:
    """Return whether some family uses a field, or has a size of that name."""
    return name in _names_in_all_families() or is_name_of_size(name)


def _repeats_another(name: str, value: Any, rules: Mapping[str, Any], fields: Fields) -> bool:
    """Return whether the config gives the same value under another name of the field, as d_model
    and hidden_size.
    """
    others = set(names_of_size(name))
    for known in config_classes().values():
        for pair in known.attribute_map.items():
            if name in pair:
                others.update(pair)
    if any(fields.given.get(other) == value for other in others - {name}):
        return True
    return repeats_own_size(name, rules, fields)


def _changes_nothing(name: str, value: Any, fields: Fields) -> bool:
    """Return whether one of READ_BY_ENGINES has a value that an engine would assume anyway, or is
    switched off.
    """
    if name in _HEAD_DIMS:
        return bool(value == head_dim_of(fields))
    if name == "layer_types":
        return isinstance(value, list) and set(map(str, value)) == {"full_attention"}
    if name not in _SPANS:
        return False
    # Drafts of Qwen2.5-VL, whose class is LLaMA's, keep the window that their model switches off.
    is_off = name == "sliding_window" and fields.given.get("use_sliding_window") is False
    by_layer_types = (
        name == "attention_chunk_size" and value != 0 and fields.is_of_class("layer_types")
    )
    longest = fields["max_position_embeddings"]
    return (
        is_off
        or by_layer_types
        or (type(value) is int and type(longest) is int and value >= longest)
    )


@cache
def _names_in_all_families() -> frozenset[str]:
    return frozenset().union(*map(names_in, families().values()))
