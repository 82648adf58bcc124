"""Sizes under other names, and fields that no rule uses: small rules and classes instead of whole
families.
"""

from typing import Any

import pytest
from tables import each

from attncalc import AttncalcError
from attncalc.config.huggingface.fields import UNKNOWN_CLASS, ConfigClass, Fields
from attncalc.config.huggingface.sizes import _found, check_sizes, head_dim_of, repeats_own_size
from attncalc.config.huggingface.unused_fields import (
    _repeats_another,
    is_ignored,
    structural_fields,
    unused_fields,
)

RULES: dict[str, Any] = {
    "d_model": "=hidden_size",
    "n_layers": "=num_hidden_layers",
    "n_heads": "=num_attention_heads",
}
SIZES = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}


def known(**defaults: Any) -> ConfigClass:
    """Return a class of transformers with these fields."""
    return ConfigClass(defaults, {}, {}, True)


def missing(
    rules: dict[str, Any], given: dict[str, Any], of_class: ConfigClass = UNKNOWN_CLASS
) -> str:
    """Return the error about the sizes of a config, or ''."""
    try:
        check_sizes("x", rules, Fields(given, of_class), whole=True)
    except AttncalcError as error:
        return error.message
    return ""


@pytest.mark.parametrize(
    ("rules", "given", "expected"),
    [
        (RULES, {}, "hidden_size, num_hidden_layers and num_attention_heads are missing"),
        (RULES, {"num_hidden_layers": 3}, ""),
        # of several fields for one size the first in the alphabet is named
        ({"n_layers": "=num_layers or n_layers"}, {}, "n_layers are missing"),
        # a size that a kind of layers has
        ({**RULES, "kind": "a", "kinds": {"a": {"n_heads": "=n_head"}}}, {"n_head": 4}, ""),
        ({**RULES, "kinds": {"a": None}}, {"n_head": 4}, "hidden_size, num_hidden_layers and"),
        ({**RULES, "kinds": None}, {"hidden_size": 4}, ""),
        # names that no other class has for a size
        ({"n_layers": "=blocks"}, {"blocks": 3}, ""),
        ({"n_layers": "=blocks"}, {}, "blocks are missing"),
        ({"d_model": "=hidden_size or stem"}, {"stem": 3}, "hidden_size are missing"),
    ],
)
def test_a_config_has_one_of_the_sizes_of_its_rules(
    rules: dict[str, Any], given: dict[str, Any], expected: str
) -> None:
    found = missing(rules, given)
    assert found.startswith(expected) if expected else found == ""


@pytest.mark.parametrize(
    ("given", "listed"),
    [
        ({"dim": 8}, "; the config has dim instead"),
        ({"dim": 8, "seed": 5}, "; the config has dim instead"),
        ({"dim": "wide", "n_layer": 2}, "; the config has n_layer instead"),
        ({"dim": 0, "n_layer": 1}, "; the config has n_layer instead"),
        ({"dim": -8}, ""),
        ({"seed": 5}, ""),
    ],
)
def test_only_sizes_are_named_instead_of_missing_ones(given: dict[str, Any], listed: str) -> None:
    whole = "hidden_size, num_hidden_layers and num_attention_heads are missing"
    assert missing(RULES, given, known(**SIZES)) == whole + listed


def test_at_most_eight_names_are_listed() -> None:
    assert _found(list("abcdefgh"), []) == "; the config has a, b, c, d, e, f, g and h instead"
    assert _found(list("abcdefghi"), []) == _found(list("abcdefgh"), [])
    assert _found([], ["part"]) == "; the config has part instead"
    assert _found([], []) == ""


@pytest.mark.parametrize(
    ("hidden", "heads", "expected"),
    [(64, 4, 16), (64, 1, 64), (1, 1, 1), (-64, 4, None), (64, -4, None), (64, 0, None)],
)
def test_a_width_of_heads_is_a_whole_number_above_0(
    hidden: int, heads: int, expected: int | None
) -> None:
    found = head_dim_of(
        Fields({"hidden_size": hidden, "num_attention_heads": heads}, UNKNOWN_CLASS)
    )
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("width", "repeats"), [(256, True), (320, False), (192, False), (68, False), (16, False)]
)
def test_an_mlp_is_four_times_as_wide_as_the_model_by_default(width: int, repeats: bool) -> None:
    """GPT-2's n_inner is null, which stands for 4 * 64."""
    fields = Fields(
        {"hidden_size": 64, "intermediate_size": width}, known(hidden_size=8, n_inner=None)
    )
    assert repeats_own_size("intermediate_size", {}, fields) is repeats


@pytest.mark.parametrize(
    ("kind", "layer_types", "repeats"),
    [
        ({}, ["sparse"], True),
        ({}, ["full"], False),
        ({"kind": "=layer_types[i]"}, ["sparse"], True),
        ({"kind": "=layer_types[i]"}, ["full"], False),
        ({"kind": "='sparse' if i else 'full'"}, None, True),
    ],
)
def test_kinds_that_no_layer_has_give_no_size_a_name(
    kind: dict[str, Any], layer_types: list[str] | None, repeats: bool
) -> None:
    """A class that transformers does not have, with the rules of experts that it only inherits."""
    rules = {"kinds": {"sparse": {"d_ff": "=d_ff"}}, **kind}
    fields = Fields({"d_ff": 9, "ffn_dim": 9, "layer_types": layer_types}, UNKNOWN_CLASS)
    assert repeats_own_size("ffn_dim", rules, fields) is repeats
    assert repeats_own_size("ffn_dim", {**kind, "d_ff": "=d_ff"}, fields)


# Fields that no rule uses

OWN_CODE = {"auto_map": {"AutoModel": "x.Model"}}


def unused(
    given: dict[str, Any], of_class: ConfigClass, *, rules: dict[str, Any] | None = None
) -> tuple[list[str], list[str]]:
    found = unused_fields({**RULES, **(rules or {})}, Fields({**SIZES, **given}, of_class), 3)
    return found.rejected, found.ignored


LLAMA = known(**SIZES, max_position_embeddings=100, head_dim=None, switch=False)
EXPERT_KINDS = {"kind": "=layer_types[i]", "kinds": {"a": {"n_experts": "=num_experts"}, "b": None}}
KINDS = {"kind": "=layer_types[i]", "kinds": {"a": {"window": "=switch"}, "b": None}}


@each(
    ("given", "rules", "rejected", "ignored"),
    [
        ({}, {}, [], []),
        # a field of the class: an error, unless it has its default, a rule uses it, or it changes
        # no figure
        ({"switch": True}, {}, ["switch"], []),
        ({"switch": False}, {}, [], []),
        ({"switch": True}, {"d_ff": "=switch"}, [], []),
        ({"switch": True}, {"ignored": ["switch"]}, [], []),
        # rules of a kind that no layer has use a field of the class
        ({"switch": True, "layer_types": list("bbb")}, KINDS, [], []),
        # a field that only some kind of layers uses counts if there is such a layer, or an encoder
        # that may have it
        ({"num_experts": 8, "layer_types": list("aab")}, EXPERT_KINDS, [], []),
        ({"num_experts": 8, "layer_types": list("bbb")}, EXPERT_KINDS, [], ["num_experts"]),
        ({"num_experts": 8, "layer_types": list("bbb")}, {**EXPERT_KINDS, "encoder": {}}, [], []),
        # a field of other classes
        ({"num_experts": 8}, {}, [], ["num_experts"]),
        ({"num_experts": 8, **OWN_CODE}, {}, ["num_experts"], []),
        ({"rotary_seed": 8, "my_own_name": 8}, {}, [], []),
        # the value that the class's own size has, under another name
        ({"d_model": 64}, {}, [], []),
        ({"d_model": 65}, {}, [], ["d_model"]),
        # engines read some fields of every config, and what changes nothing is noted
        ({"head_dim": 16}, {}, ["head_dim"], []),
        ({"v_head_dim": 16}, {}, [], ["v_head_dim"]),
        ({"v_head_dim": 15}, {}, ["v_head_dim"], []),
        ({"v_head_dim": 17}, {}, ["v_head_dim"], []),
        *(({"sliding_window": size}, {}, [], ["sliding_window"]) for size in (100, 101, 1000)),
        ({"sliding_window": 99}, {}, ["sliding_window"], []),
        ({"sliding_window": 99.5}, {}, ["sliding_window"], []),
        ({"sliding_window": 99, "use_sliding_window": False}, {}, [], ["sliding_window"]),
        ({"attention_chunk_size": 99}, {}, ["attention_chunk_size"], []),
        # fields of single layers
        ({"per_layer_config": {"0": {"num_attention_heads": 2}}}, {}, [], []),
        ({"per_layer_config": {"0": {"switch": True}}}, {}, ["per_layer_config"], []),
        ({"per_layer_config": {"0": {}, "1": {"my_own_name": 1}}}, {}, ["per_layer_config"], []),
        ({"per_layer_config": {"0": {"rope_theta": 2.0, "bos_token_id": 5}}}, {}, [], []),
    ],
)
def test_a_field_is_used_ignored_or_an_error(
    given: dict[str, Any], rules: dict[str, Any], rejected: list[str], ignored: list[str]
) -> None:
    assert unused(given, LLAMA, rules=rules) == (rejected, ignored)


def test_a_chunk_of_a_class_with_kinds_of_layers_is_ignored() -> None:
    of_class = LLAMA._replace(defaults={**LLAMA.defaults, "layer_types": None})
    assert unused({"attention_chunk_size": 99}, of_class) == ([], ["attention_chunk_size"])
    assert unused({"sliding_window": 99}, of_class) == (["sliding_window"], [])


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("qkv_bias", "attention_bias"),  # two names of a class, and of no size
        ("dim", "emb_dim"),  # two names of a size, and of no class
        ("d_model", "hidden_size"),  # both
    ],
)
def test_a_field_may_repeat_the_value_of_another_name(name: str, other: str) -> None:
    for value, repeats in ((7, True), (8, False)):
        fields = Fields({name: 7, other: value}, UNKNOWN_CLASS)
        assert _repeats_another(name, 7, {}, fields) is repeats
    assert not _repeats_another(name, 7, {}, Fields({name: 7, "num_experts": 7}, UNKNOWN_CLASS))


@each(
    ("name", "expected"),
    [
        ("transformers_version", True),
        ("rope_theta", True),
        ("attention_dropout", True),
        ("mask_time_prob", True),
        ("time_mask", False),
        ("rms_norm_eps", True),
        ("pad_token_id", True),
        ("hidden_size", False),
        ("#", False),
        ("", False),
    ],
)
def test_fields_of_positions_training_and_tokens_change_no_figure(
    name: str, expected: bool
) -> None:
    assert is_ignored(name) is expected


def test_fields_that_may_describe_the_structure_are_listed() -> None:
    """Not those that a rule uses, that are off, or that are words which no family reads."""
    given = {
        "my_layers": 3,
        "is_new": False,
        "tokenizer_kind": "bpe",
        "hybrid_override_pattern": "M*",
        "rope_theta": 1,
    }
    assert list(structural_fields(RULES, Fields({**SIZES, **given}, LLAMA))) == [
        "my_layers",
        "hybrid_override_pattern",
    ]
