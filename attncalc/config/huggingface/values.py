"""Which values the fields of a config may have: their types, and which of them may be null or 0.

transformers' classes reject a value of another type, and so does this module. It also rejects 0
where it is no size.
"""

import re
from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any

from ...errors import AttncalcError
from ..schema import without_commas
from .fields import Fields, type_of, written
from .sizes import names_of_size
from .unused_fields import is_ignored

_PER_LAYER_LISTS = ("layer_types", "mlp_layer_types")
# The fields that may be 0 in every family. A family's `zero` names more: without experts, Qwen's
# layers are dense.
_MAY_BE_ZERO = frozenset(
    {
        # numbers of something that a model need not have
        "n_shared_experts",
        "num_shared_experts",
        "moe_num_shared_experts",
        "num_shared_expert",
        "num_dense_layers",
        "first_k_dense_replace",
        "num_kv_shared_layers",
        "num_nextn_predict_layers",
        "max_window_layers",
        "type_vocab_size",
        "additional_vocab_size",
        "zero_expert_num",
        "pre_seq_len",
        "hidden_size_per_layer_input",
        "vocab_size_per_layer_input",
        "shared_intermediate_size",
        "moe_latent_size",
        "attn_res_block_size",
        "routed_expert_hidden_size",
        "layer_group_size",
        # positions, counted from 0
        "attn_layer_offset",
        "expert_layer_offset",
        "moe_layer_start_index",
        "moe_layer_end_index",
        "pad_token_id",
        "index_skip_topk_offset",
        "index_topk_freq",
        "bos_token_id",
        "eos_token_id",
    }
)

_KV_SIZES = names_of_size("num_key_value_heads") | {"head_dim"}

# The fields that may be -1, which means none, or the last.
_MAY_BE_NEGATIVE = names_of_size("sliding_window") | {"moe_layer_end_index"}

# Sizes that classes divide by, whether or not they use them.
_DIVISORS = (
    names_of_size("num_attention_heads") | names_of_size("num_key_value_heads") | {"head_dim"}
)


def check_values(fields: Fields, names: Collection[str]) -> None:
    """Raise AttncalcError if a field that matters cannot have its value.

    A value must have a type that the class accepts, and a list with one entry per layer must be as
    long as there are layers. `per_layer_config` must have fields of layers under their numbers.
    `names` are those that the family's rules use. Others are checked if the class declares them.
    """
    used = set(map(fields.own_name, names))
    _check_per_layer_config(fields.given.get("per_layer_config"))
    for config in (fields.config, *(fields.given.get("per_layer_config") or {}).values()):
        for name, value in config.items():
            own_name = fields.own_name(name)
            is_declared = fields.is_of_class(own_name) and not is_ignored(own_name)
            if own_name in used or is_declared:
                types = fields.types(own_name)
                # Without a number of KV heads, the rules would take that of query heads, as only
                # some classes do.
                has_number = own_name in _KV_SIZES and type(fields.default(own_name)) is int
                is_required = has_number and not fields.replaces_null(own_name)
                _check_type(str(name), value, types - {"null"} if is_required else types)
    hidden = fields["hidden_size"]
    heads = fields["num_attention_heads"]
    if (
        fields.divides
        and type(hidden) is int
        and type(heads) is int
        and heads > 0
        and hidden % heads
    ):
        raise AttncalcError(
            f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}",
            "correct one of them",
        )
    n_layers = fields["num_hidden_layers"]
    mtp_layers = fields["num_nextn_predict_layers"] or 0
    # the rules that use them raise the error
    if type(n_layers) is not int or type(mtp_layers) is not int:
        return
    for name in _PER_LAYER_LISTS:
        value = fields.given.get(name)
        # Some lists go on with the layers of multi-token prediction, which no figure counts.
        is_checked = name in names or fields.is_known_class
        if (
            is_checked
            and isinstance(value, list)
            and len(value) not in (n_layers, n_layers + mtp_layers)
        ):
            raise AttncalcError(
                f"{name} has {len(value)} entries for {n_layers} layers (num_hidden_layers)",
                "correct one of them",
            )


def check_zeros(fields: Fields, rules: Mapping[str, Any]) -> None:
    """Raise AttncalcError if a size that the family's formulas have used is 0, or below."""
    may_be_zero = set(map(fields.own_name, (*_MAY_BE_ZERO, *rules.get("zero", ()))))
    for config in (fields.config, *(fields.given.get("per_layer_config") or {}).values()):
        for name, value in config.items():
            own_name = fields.own_name(name)
            is_used = own_name in fields.looked_up or own_name in _DIVISORS
            if (
                not is_used
                or type(value) is not int
                or value > 0
                or value == fields.default(own_name)
            ):
                continue
            if own_name not in (may_be_zero if value == 0 else _MAY_BE_NEGATIVE):
                raise AttncalcError(
                    f"{name} is {value}; it must be at least 1",
                    "correct the config, or leave the field out",
                )


def _check_per_layer_config(per_layer: Any) -> None:
    """Raise AttncalcError if a `per_layer_config` is not {"5": {field: value}, ...}."""
    is_table = isinstance(per_layer, Mapping) and all(
        key.isdecimal() and len(key) < 10 and isinstance(changes, Mapping)
        for key, changes in per_layer.items()
    )
    if per_layer is not None and not is_table:
        raise AttncalcError(
            f"per_layer_config {written(per_layer)} has no fields of layers under their numbers",
            'it looks like {"5": {"sliding_window": 512}}',
        )


# {JSON's type, under Python's name: what an error calls it}.
_TYPE_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a word",
    "list": "a list",
    "dict": "a table",
    "null": "null",
}

# A number, a boolean or nothing, in quotes.
_LITERAL = re.compile(r"\s*(true|false|[-+]?[0-9.]+(e[-+]?[0-9]+)?|)\s*", re.IGNORECASE)


def _check_type(name: str, value: Any, types: Collection[str]) -> None:
    """Raise AttncalcError unless a field of these types may have the value; no types if they are
    not known.
    """
    if types:
        is_possible = type_of(value) in types
    else:
        is_possible = not (isinstance(value, str) and _LITERAL.fullmatch(value))
    # engines read -5 where transformers wants -5.0
    is_possible |= "float" in types and type_of(value) == "int"
    if not is_possible or (isinstance(value, float) and not isfinite(value)):
        possible = " or ".join(meaning for known, meaning in _TYPE_NAMES.items() if known in types)
        digits = without_commas(value)
        if digits:
            tip = f"write {digits}: a comma groups no digits"
        else:
            tip = "correct the config, or leave the field out"
        raise AttncalcError(
            f"{name} {written(value)} is not {possible or 'a value of a config'}", tip
        )
