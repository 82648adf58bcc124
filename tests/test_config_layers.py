"""The layers of a config.json as a pattern, the fields of its class, and the formulas of its
rules.
"""

import itertools
import re
from typing import Any

import pytest
from asking import refusal
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from attncalc import AttncalcError
from attncalc.config.huggingface.fields import (
    UNKNOWN_CLASS,
    ConfigClass,
    Fields,
    transformers_version,
    written,
)
from attncalc.config.huggingface.formulas import (
    kinds_of_layer,
    names_in,
    uses_layer_number,
    value_of,
)
from attncalc.config.huggingface.layers import Layer, pattern_of_layers, shortest_pattern
from attncalc.config.huggingface.read import _move_to_layer_kinds
from attncalc.config.huggingface.sizes import head_dim_of, repeats_own_size
from attncalc.config.huggingface.values import check_values
from attncalc.model import MAX_LAYERS


def layers(text: str, **names: tuple[tuple[str, ...], dict[str, Any]]) -> list[Layer]:
    """Return one layer per letter of the text."""
    return [names[letter] for letter in text]


SLIDING: Layer = (("sliding", "dense"), {"n_heads": 8, "window": 512})
FULL: Layer = (("full", "dense"), {"n_heads": 8})
SPARSE: Layer = (("full", "sparse"), {"n_heads": 8, "n_experts": 4})
WIDER: Layer = (("full", "sparse"), {"n_heads": 8, "n_experts": 9})
OTHER: Layer = (("full", "sparse"), {"n_heads": 8, "n_experts": 7})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f", {"n_heads": 8}),
        ("fff", {"n_heads": 8}),
        (
            "ssfssf",
            {
                "n_heads": 8,
                "pattern": ["2 sliding", "full"],
                "layer_kinds": {"sliding": {"window": 512}, "full": {}},
            },
        ),
        (
            "sf",
            {
                "n_heads": 8,
                "pattern": ["sliding", "full"],
                "layer_kinds": {"sliding": {"window": 512}, "full": {}},
            },
        ),
        # the pattern may end in the middle of its period
        (
            "sfs",
            {
                "n_heads": 8,
                "pattern": ["sliding", "full"],
                "layer_kinds": {"sliding": {"window": 512}, "full": {}},
            },
        ),
        (
            "sffs",
            {
                "n_heads": 8,
                "pattern": ["sliding", "2 full"],
                "layer_kinds": {"sliding": {"window": 512}, "full": {}},
            },
        ),
        (
            "fp",
            {
                "n_heads": 8,
                "pattern": ["dense", "sparse"],
                "layer_kinds": {"dense": {}, "sparse": {"n_experts": 4}},
            },
        ),
        (
            "sp",
            {
                "n_heads": 8,
                "pattern": ["sliding_dense", "full_sparse"],
                "layer_kinds": {"sliding_dense": {"window": 512}, "full_sparse": {"n_experts": 4}},
            },
        ),
        # one name with three sets of keys
        (
            "pwowp",
            {
                "n_heads": 8,
                "pattern": ["layers", "layers_2", "layers_3", "layers_2"],
                "layer_kinds": {
                    "layers": {"n_experts": 4},
                    "layers_2": {"n_experts": 9},
                    "layers_3": {"n_experts": 7},
                },
            },
        ),
    ],
)
def test_layers_are_the_shortest_pattern(text: str, expected: dict[str, Any]) -> None:
    assert shortest_pattern(layers(text, s=SLIDING, f=FULL, p=SPARSE, w=WIDER, o=OTHER)) == expected


def expanded(pattern: dict[str, Any], n: int) -> list[dict[str, Any]]:
    """Return the keys of n layers that a pattern describes."""
    if "pattern" not in pattern:
        return [pattern] * n
    common = {key: value for key, value in pattern.items() if key not in ("pattern", "layer_kinds")}
    names: list[str] = []
    for item in pattern["pattern"]:
        number, _, name = item.rpartition(" ")
        names += [name] * int(number or 1)
    return [
        {**common, **pattern["layer_kinds"][name]}
        for name in itertools.islice(itertools.cycle(names), n)
    ]


@given(st.lists(st.sampled_from([SLIDING, FULL, SPARSE, WIDER, OTHER]), min_size=1, max_size=12))
def test_a_pattern_describes_every_layer(given_layers: list[Layer]) -> None:
    pattern = shortest_pattern(given_layers)
    assert expanded(pattern, len(given_layers)) == [keys for _, keys in given_layers]


def test_layers_of_two_names_are_two_kinds_even_if_their_keys_are_equal() -> None:
    pattern = shortest_pattern(
        [(("full",), {"d": 1}), (("sliding",), {"d": 1}), (("other",), {"d": 2})]
    )
    assert pattern["pattern"] == ["full", "sliding", "other"]
    assert pattern["layer_kinds"] == {"full": {"d": 1}, "sliding": {"d": 1}, "other": {"d": 2}}


def test_a_name_with_a_number_of_its_own_is_not_given_twice() -> None:
    pattern = shortest_pattern(
        [(("sparse",), {"d": 1}), (("sparse",), {"d": 2}), (("sparse_2",), {"d": 3})]
    )
    assert len(pattern["layer_kinds"]) == 3
    assert expanded(pattern, 3) == [{"d": 1}, {"d": 2}, {"d": 3}]


@pytest.mark.parametrize(("first", "second"), [("dense", "sparse"), ("sparse", "dense")])
def test_only_kinds_of_one_name_are_numbered_together(first: str, second: str) -> None:
    pattern = shortest_pattern([((first,), {"d": 1}), ((second,), {"d": 2}), ((second,), {"d": 3})])
    assert pattern["pattern"] == [first, second, f"{second}_2"]


RULES: dict[str, Any] = {
    "attention": "grouped",
    "mlp": "gated",
    "n_heads": "=heads",
    "d_head": 16,
    "d_ff": "=width",
    "kind": "=layer_types[i]",
    "kinds": {
        "sliding_attention": {"window": "=sliding_window"},
        "chunked_attention": {"chunk": "=size"},
        "none": {"mlp": "none"},
        "full_attention": None,
    },
    "n_layers": "=num_hidden_layers",
}


def of_rules(n: Any, **fields: Any) -> dict[str, Any]:
    types = ["full_attention"] * (n if type(n) is int and n < 10**6 else 1)
    base = {"heads": 4, "width": 32, "layer_types": types, "num_hidden_layers": n}
    return pattern_of_layers(RULES, Fields({**base, **fields}, UNKNOWN_CLASS), n)


@pytest.mark.parametrize("n", [1, 2, MAX_LAYERS])
def test_a_model_has_1_to_2000_layers(n: int) -> None:
    assert of_rules(n) == {
        "attention": "grouped",
        "n_heads": 4,
        "d_head": 16,
        "mlp": "gated",
        "d_ff": 32,
    }


def test_2000_layers_are_one_kind_if_their_rules_are_equal() -> None:
    found = pattern_of_layers(
        {"attention": "none", "mlp": "none"}, Fields({}, UNKNOWN_CLASS), MAX_LAYERS
    )
    assert found == {"attention": "none", "mlp": "none"}


@pytest.mark.parametrize("n", [0, -1, MAX_LAYERS + 1, 2.0, True, "2", [1]])
def test_another_number_of_layers_is_an_error(n: Any) -> None:
    with pytest.raises(AttncalcError, match="the number of layers is") as raised:
        of_rules(n)
    assert raised.value.tip == "it must be a whole number from 1 to 2,000"


def test_a_missing_number_of_layers_names_the_field() -> None:
    with pytest.raises(AttncalcError, match=r"^num_hidden_layers is missing"):
        of_rules(None)
    with pytest.raises(AttncalcError, match=r"^the number of layers is missing"):
        pattern_of_layers({}, Fields({}, UNKNOWN_CLASS), None)


def test_kinds_of_layers_change_the_rules() -> None:
    types = ["sliding_attention", "full_attention", "none"]
    assert of_rules(3, layer_types=types, sliding_window=9) == {
        "attention": "grouped",
        "n_heads": 4,
        "d_head": 16,
        "pattern": ["sliding", "full", "none"],
        "layer_kinds": {
            "sliding": {"mlp": "gated", "d_ff": 32, "window": 9},
            "full": {"mlp": "gated", "d_ff": 32},
            "none": {"mlp": "none"},
        },
    }


@pytest.mark.parametrize(
    ("kind", "key"), [("sliding_attention", "window"), ("chunked_attention", "chunk")]
)
def test_a_window_without_a_size_is_an_error_of_its_layer(kind: str, key: str) -> None:
    with pytest.raises(AttncalcError, match=rf"^layer 1: {kind} needs a {key}"):
        of_rules(2, layer_types=["full_attention", kind])


def test_of_two_names_of_a_layer_the_first_needs_the_window() -> None:
    rules = {**RULES, "kind": ["=layer_types[i]", "full_attention"]}
    fields = Fields({"heads": 4, "width": 32, "layer_types": ["sliding_attention"]}, UNKNOWN_CLASS)
    with pytest.raises(AttncalcError, match=r"^layer 0: sliding_attention needs a window"):
        pattern_of_layers(rules, fields, 1)


def test_a_rule_may_use_the_number_of_the_layer() -> None:
    """Layers of one kind are computed once, unless a rule depends on their number."""
    rules = {"attention": "grouped", "mlp": "none", "n_heads": "=4 if i < 2 else 8"}
    found = pattern_of_layers(rules, Fields({}, UNKNOWN_CLASS), 3)
    assert [keys["n_heads"] for keys in expanded(found, 3)] == [4, 4, 8]


@pytest.mark.parametrize(
    ("mlp", "experts", "given"),
    [("gated", 8, True), ("gated", 0, False), ("gated", None, False), ("none", 8, False)],
)
def test_only_an_mlp_with_experts_has_their_keys(
    mlp: str, experts: int | None, given: bool
) -> None:
    rules = {
        "attention": "none",
        "mlp": mlp,
        "d_ff": 9,
        "n_experts": "=experts or None",
        "n_experts_per_token": 2,
    }
    found = pattern_of_layers(rules, Fields({"experts": experts}, UNKNOWN_CLASS), 1)
    assert found == {
        "attention": "none",
        "mlp": mlp,
        **({} if mlp == "none" else {"d_ff": 9}),
        **({"n_experts": 8, "n_experts_per_token": 2} if given else {}),
    }


def test_experts_whose_number_is_missing_make_no_dense_mlp() -> None:
    rules = {
        "attention": "none",
        "mlp": "gated",
        "d_ff": 9,
        "n_experts": "=experts",
        "n_experts_per_token": 2,
    }
    with pytest.raises(AttncalcError, match=r"^experts is missing"):
        pattern_of_layers(rules, Fields({}, UNKNOWN_CLASS), 1)


def test_an_unknown_kind_is_an_error_of_its_layer() -> None:
    with pytest.raises(
        AttncalcError, match=r"^layer 1: 'x' is not a kind of layer that is supported"
    ) as raised:
        of_rules(2, layer_types=["full_attention", "x"])
    assert raised.value.tip == "known: sliding_attention, chunked_attention, none, full_attention"


@pytest.mark.parametrize("kind", [[], ["full_attention"], None, {}])
def test_what_is_no_name_is_an_unknown_kind(kind: object) -> None:
    with pytest.raises(
        AttncalcError, match=r"^layer 1: .* is not a kind of layer that is supported"
    ):
        of_rules(2, layer_types=["full_attention", kind])


def test_fields_of_one_layer_change_that_layer() -> None:
    changed = of_rules(3, per_layer_config={"1": {"heads": 8}, "02": {}})
    assert [keys["n_heads"] for keys in expanded(changed, 3)] == [4, 8, 4]


# Fields

CLASS = ConfigClass(
    {"hidden_size": 64, "tie": True, "kind": "a", "listed": [1], "theta": 1.0, "none": None},
    {"n_embd": "hidden_size", "dim": "hidden_size"},
    {},
    True,
)


def test_a_field_has_any_of_its_names_and_its_classs_default() -> None:
    fields = Fields({"n_embd": 32, "x": 1}, CLASS)
    assert (fields["hidden_size"], fields["n_embd"], fields["dim"], fields["x"]) == (32, 32, 32, 1)
    assert (fields["tie"], fields["unknown"], fields.default("tie"), fields.default("x")) == (
        True,
        None,
        True,
        None,
    )
    assert set(fields) == {*CLASS.defaults, "x"}
    assert len(fields) == 7
    assert fields.is_known_class
    assert (fields.is_of_class("tie"), fields.is_of_class("x")) == (True, False)
    assert fields.outer_or_self is fields
    assert Fields({}, UNKNOWN_CLASS, fields).outer_or_self is fields
    assert not Fields({}, UNKNOWN_CLASS).is_known_class


def test_the_last_other_name_of_a_field_counts() -> None:
    fields = Fields({"n_embd": 32, "hidden_size": 16, "dim": 8}, CLASS)
    assert fields["hidden_size"] == 8
    assert fields.remarks == [
        "n_embd 32 is used, not hidden_size 16, which is another name of the field.",
        "dim 8 is used, not n_embd 32, which is another name of the field.",
    ]
    assert Fields({"n_embd": 32, "hidden_size": 32}, CLASS).remarks == []


@each(("encoder", "decoder"), [(4, 6), (6, 4)])
@each(("value", "repeats"), [(4, True), (6, True), (3, False), (5, False), (7, False)])
def test_a_field_may_repeat_either_of_two_sizes_of_the_class(
    encoder: int, decoder: int, value: int, repeats: bool
) -> None:
    """An encoder-decoder class has encoder_layers and decoder_layers, and num_layers may be the
    number of either.
    """
    own = ConfigClass({"encoder_layers": 12, "decoder_layers": 12}, {}, {}, True)
    fields = Fields(
        {"encoder_layers": encoder, "decoder_layers": decoder, "num_layers": value}, own
    )
    assert repeats_own_size("num_layers", {}, fields) is repeats


@pytest.mark.parametrize(
    ("value", "expected"), [(64, True), (32, False), (None, False), (0, False)]
)
def test_a_value_is_compared_with_its_default(value: Any, expected: bool) -> None:
    assert Fields({"hidden_size": value}, CLASS).is_default("hidden_size") is expected
    assert Fields({"none": None if value == 64 else value}, CLASS).is_default("none") is (
        value != 32
    )


# CLASS with annotations: a size that may be null, and a word that may be true or false.
TYPED = CLASS._replace(
    types={"none": frozenset({"int", "null"}), "kind": frozenset({"bool", "str"})}
)


@pytest.mark.parametrize(
    ("name", "values", "problem"),
    [
        ("hidden_size", (1, 10**12), ""),
        ("hidden_size", (1.5, "64", True, {}, None, [64, 32]), "is not a whole number"),
        ("tie", (True, False), ""),
        ("tie", (1, 0, "true", "false", "", None), "is not true or false"),
        ("kind", ("b", "", True), ""),
        ("kind", (1, {}, None, float("inf")), "is not true or false or a word"),
        ("listed", ([2], []), ""),
        ("listed", ("a", {}, -2, None), "is not a list"),
        ("theta", (2.0, 1), ""),
        ("theta", ("x", [1], float("nan"), float("inf"), None), "is not a number"),
        ("none", (1, None), ""),
        ("none", ("1", "", 1.0, [1], False), "is not a whole number or null"),
        ("x", ("x", {}, 1, None, "none"), ""),
        ("x", ("8", "false", "1e3", ""), "is not a value of a config"),
    ],
)
def test_a_value_has_a_type_that_its_class_accepts(
    name: str, values: tuple[Any, ...], problem: str
) -> None:
    for value in values:
        if problem:
            error = refusal(check_values, Fields({name: value}, TYPED), [name])
            assert error.message == f"{name} {written(value)} {problem}"
        else:
            check_values(Fields({name: value}, TYPED), [name])
    check_values(Fields({"x": "8"}, TYPED), [])  # a field that neither a rule nor the class has


def test_a_vendors_class_may_have_null_and_one_number_per_layer() -> None:
    for value in (1, None, [64, 32]):
        check_values(
            Fields({"hidden_size": value}, CLASS._replace(is_strict=False)), ["hidden_size"]
        )


def lists(n: int, mtp: int | None, **others: Any) -> Fields:
    given = {
        "num_hidden_layers": 3,
        "num_nextn_predict_layers": mtp,
        "layer_types": ["a"] * n,
        **others,
    }
    return Fields(given, UNKNOWN_CLASS)


@pytest.mark.parametrize(
    ("n", "mtp", "is_valid"), [(3, None, True), (3, 1, True), (4, 1, True), (4, None, False)]
)
def test_a_list_has_one_entry_per_layer(n: int, mtp: int | None, is_valid: bool) -> None:
    if is_valid:
        check_values(lists(n, mtp), ["layer_types"])
        return
    with pytest.raises(AttncalcError, match=r"^layer_types has 4 entries for 3 layers"):
        check_values(lists(n, mtp), ["layer_types"])
    check_values(lists(n, mtp), [])
    check_values(lists(n, mtp, num_hidden_layers="3"), ["layer_types"])
    with pytest.raises(AttncalcError, match="layer_types 'aaaa' is not a list or null"):
        check_values(lists(n, mtp, layer_types="aaaa"), ["layer_types"])


@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("mtp", [None, 0, 1])
def test_a_list_with_too_few_or_too_many_entries_is_an_error(n: int, mtp: int | None) -> None:
    with pytest.raises(AttncalcError, match=rf"^layer_types has {n} entries for 3 layers"):
        check_values(lists(n, mtp), ["layer_types"])


def test_the_classes_are_those_of_a_release_of_transformers() -> None:
    """A release's last number, as in 5.23.0, changes no class."""
    assert re.fullmatch(r"\d+\.\d+", transformers_version())


@pytest.mark.parametrize("table", [{"5": {"x": 1}}, {"005": {}}, {}, {"9" * 9: {}}])
def test_fields_of_layers_are_under_their_numbers(table: Any) -> None:
    check_values(Fields({"per_layer_config": table}, UNKNOWN_CLASS), [])


@pytest.mark.parametrize("table", [{"x": {}}, {"5": 1}, {"9" * 10: {}}, {"-1": {}}, [1], 5])
def test_another_table_of_layers_is_an_error(table: Any) -> None:
    with pytest.raises(AttncalcError, match="has no fields of layers under their numbers"):
        check_values(Fields({"per_layer_config": table}, UNKNOWN_CLASS), [])


def test_old_kinds_of_layers_have_new_names() -> None:
    types = ["deepseek_sparse_attention", "x", 5, "qwen_sparse_attention"]
    assert Fields({"layer_types": types}, UNKNOWN_CLASS)["layer_types"] == [
        "indexed_attention",
        "x",
        5,
        "indexed_attention",
    ]
    assert Fields({"layer_types": "x"}, UNKNOWN_CLASS)["layer_types"] == "x"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"hidden_size": 64, "num_attention_heads": 4}, 16),
        ({"hidden_size": 64}, None),
        ({"num_attention_heads": 4}, None),
        ({"hidden_size": 64, "num_attention_heads": 0}, None),
        ({"hidden_size": 0, "num_attention_heads": 4}, None),
        ({"hidden_size": 64, "num_attention_heads": 4, "head_dim": 20}, 16),
    ],
)
def test_a_width_of_heads_follows_from_the_hidden_size(
    given: dict[str, Any], expected: int | None
) -> None:
    assert head_dim_of(Fields(given, UNKNOWN_CLASS)) == expected
    with_field = UNKNOWN_CLASS._replace(defaults={"head_dim": None})
    assert head_dim_of(Fields(given, with_field)) == given.get("head_dim", expected)


# Formulas


def test_rules_are_values_or_formulas() -> None:
    fields = Fields({"a": 6, "b": None}, UNKNOWN_CLASS, Fields({"a": 7}, UNKNOWN_CLASS))
    assert value_of({"x": ["=a // 2", "a", 5], "y": '=top["a"]', "z": "=i + a"}, fields, i=1) == {
        "x": [3, "a", 5],
        "y": 7,
        "z": 7,
    }
    assert fields.looked_up == {"a"}
    assert value_of("=len([n for n in range(a)])", fields) == 6


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("=b + 1", "b is missing"),
        ("=b + c", "one of b, c is missing"),
        ("=(c or 0) + b", "one of c, b is missing"),
        ("=a // 0", "the model cannot be computed from a 6"),
        ("=s + 1", "the model cannot be computed from s 'x'"),
        ("=1 // 0", "the model cannot be computed from =1 // 0"),
        ("=[a][5]", "the model cannot be computed from a 6"),
    ],
)
def test_a_formula_that_has_no_value_names_its_fields(formula: str, message: str) -> None:
    assert refusal(value_of, formula, Fields({"a": 6, "s": "x"}, UNKNOWN_CLASS)).message == message


def test_the_fields_of_formulas_are_known_without_their_values() -> None:
    assert names_in({"x": ["=a or b", "c"], "y": {"z": "=[n for n in d]"}, "w": 5}) == {
        "a",
        "b",
        "d",
    }
    assert names_in("=i + len(top) + (lambda q: q + e)(1)") == {"e"}
    assert uses_layer_number({"x": "=layer_types[i]"})
    assert not uses_layer_number({"x": "=min(a, width)"})


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("=x", ["None"]), ("a", ["a"]), (["a", "=i"], ["a", "3"]), ("=['a']", ["['a']"])],
)
def test_a_layer_has_one_kind_or_several(kind: Any, expected: list[str]) -> None:
    assert kinds_of_layer({"kind": kind}, Fields({}, UNKNOWN_CLASS), 3) == expected
    assert kinds_of_layer({}, Fields({}, UNKNOWN_CLASS), 3) == []


@pytest.mark.parametrize(
    ("encoder", "moved"),
    [
        ({"n_heads": 4}, True),
        ({"n_heads": 4, "d_ff": 9}, False),
        ({"n_heads": 4, "layer_kinds": {"a": {"d_ff": 9}, "b": {"d_ff": 8}}}, False),
        ({"n_heads": 4, "layer_kinds": {"a": {"d_ff": 9}, "b": {}}}, True),
    ],
)
def test_an_encoder_inherits_no_key_of_the_decoders_layers(
    encoder: dict[str, Any], moved: bool
) -> None:
    decoder: dict[str, Any] = {"n_layers": 2, "d_ff": 8, "n_heads": 4}
    kinds = {"pattern": ["layers"], "layer_kinds": {"layers": {"d_ff": 8}}}
    expected = {"n_layers": 2, "n_heads": 4, **kinds} if moved else dict(decoder)
    _move_to_layer_kinds(decoder, encoder)
    assert decoder == expected
