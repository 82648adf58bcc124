"""What a schema and the builder of a model allow: each limit, and each key that contradicts
another.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from asking import Ask, of_questions, refusal
from tables import each

from attncalc import AttncalcError, ModelSpec, load
from attncalc.config.build import build_model
from attncalc.config.document import Document
from attncalc.config.presets import presets
from attncalc.config.schema import check
from attncalc.config.yaml import MAX_DEPTH, MAX_VALUES, parse_document

BASE: dict[str, Any] = {
    "d_model": 64,
    "n_layers": 4,
    "n_heads": 4,
    "d_ff": 128,
    "norm": "rmsnorm",
    "vocab_size": 100,
}
KINDS: dict[str, Any] = {
    "pattern": ["2 local", "global"],
    "layer_kinds": {"local": {"window": 8}, "global": {}},
}


def problem(value: Any, schema: dict[str, Any]) -> str:
    """Return what the error says of a value that is called 'k', or ''."""
    try:
        check(
            Document("f", {"k": value}, {("k",): 3}),
            {"type": "object", "properties": {"k": schema}},
        )
    except AttncalcError as error:
        return error.message.removeprefix("f:3: ")
    return ""


NUMBER = {"type": "integer", "minimum": 2, "maximum": 1000}
LISTED = {
    "type": "array",
    "minItems": 1,
    "uniqueItems": True,
    "items": {"type": "integer", "maximum": 9},
}
TABLE = {
    "type": "object",
    "maxProperties": 2,
    "propertyNames": {"pattern": "^[a-z]+$"},
    "additionalProperties": {"type": "integer"},
}
EITHER = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "boolean"}]}
TEXT = {"type": "string", "pattern": "^a", "$comment": "does not start with a"}


@each(
    ("value", "schema", "expected"),
    [
        (2, NUMBER, ""),
        (1000, NUMBER, ""),
        (1, NUMBER, "k: 1 is below 2"),
        (1001, NUMBER, "k: 1001 is above 1,000"),
        (True, NUMBER, "k: true is not a whole number"),
        (2.0, NUMBER, "k: '2.0' is not a whole number"),
        (None, NUMBER, "k: nothing is not a whole number"),
        (True, {"type": "boolean"}, ""),
        (1, {"type": "boolean"}, "k: '1' is not true or false"),
        ([1], LISTED, ""),
        ([], LISTED, "k: empty"),
        ([1, 1], LISTED, "k: has an item twice"),
        ([1, 10], LISTED, "f:3: k.1: 10 is above 9"),
        ({}, LISTED, "k: '{}' is not a list"),
        ([], {"type": "array", "items": {}}, ""),
        ([1, 1], {"type": "array", "items": {}}, ""),
        ({"a": 1, "b": 2}, TABLE, ""),
        ({"a": 1, "b": 2, "c": 3}, TABLE, "k: has 3 entries, more than 2"),
        ({"A": 1}, TABLE, "f:3: k.A: not a name"),
        ({"a": "x"}, TABLE, "f:3: k.a: 'x' is not a whole number"),
        ({"a": 1}, {"type": "object"}, "f:3: k.a: there is no such key"),
        ({}, {"type": "object", "required": ["a"], "properties": {"a": {}}}, "k: 'a' is missing"),
        (1, EITHER, ""),
        (False, EITHER, ""),
        (0, EITHER, "k: 0 is below 1"),
        ("x", EITHER, "k: 'x' is not a whole number or true or false"),
        ("ab", TEXT, ""),
        ("ba", TEXT, "k: 'ba' does not start with a"),
        ("a", {"enum": ["a", "b"]}, ""),
        ("c", {"enum": ["a", "b"]}, "k: 'c' is not known"),
        (["a"], {"enum": ["a", "b"]}, "k: '['a']' is not known"),
    ],
)
def test_a_value_is_compared_with_its_schema(
    value: Any, schema: dict[str, Any], expected: str
) -> None:
    assert problem(value, schema).removeprefix("f:3: ") == expected.removeprefix("f:3: ")


EXAMPLE = "'attncalc presets show llama2-70b' prints an example"


def tip(data: dict[str, Any], schema: dict[str, Any]) -> str:
    return refusal(check, Document("f", data, {}), schema).tip


FILE = """\
sources: ["a test"]
d_model: 0
n_layers: four
n_headz: 8
norm: rmsnorm
bias: [q, k]
mlp: dense
"""


def test_every_mistake_of_a_file_is_reported_with_its_line(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(FILE)
    answer = ask("kv", str(tmp_path / "m.yaml"))
    errors = [
        line.partition("m.yaml:")[2]
        for line in answer.err.splitlines()
        if line.startswith("error: ")
    ]
    assert [error[:12] for error in errors] == [
        "2: d_model: ",
        "3: n_layers:",
        "4: n_headz: ",
        "7: mlp: 'den",
    ]
    assert answer.err.count("  tip: ") == 4
    assert (answer.code, answer.out) == (2, "")


def test_at_most_ten_mistakes_are_reported() -> None:
    document = Document("f", {f"key_{n}": 1 for n in range(30)}, {})
    error = refusal(check, document, {"type": "object", "properties": {}})
    assert len(error.further) == 9
    assert str(error).count("there is no such key") == 10


def described(meaning: str, **schema: Any) -> dict[str, Any]:
    return {"description": meaning, **schema}


def test_the_tip_has_the_meaning_of_the_key_itself() -> None:
    width = described("width in elements", type="integer")
    parts = described("all parts", type="object", properties={"width": width})
    schema = {"type": "object", "properties": {"parts": parts}}
    assert tip({"parts": {"width": "x"}}, schema) == "meaning of 'width': width in elements"
    assert tip({"parts": 5}, schema) == "meaning of 'parts': all parts"
    assert (
        tip({"parts": 5}, {"type": "object", "properties": {"parts": {"type": "object"}}})
        == EXAMPLE
    )
    assert tip([], schema) == EXAMPLE  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "hint"), [("alpa", "did you mean 'alpha'? "), ("x", f"{EXAMPLE}; ")]
)
def test_the_tip_for_an_unknown_key_lists_the_first_eight(key: str, hint: str) -> None:
    properties: dict[str, Any] = {name: {} for name in ("alpha", *"bcdefghij")}
    schema = {"type": "object", "properties": properties}
    assert tip({key: 1}, schema) == f"{hint}known: alpha, b, c, d, e, f, g, h, ..."


def test_the_tip_for_an_unknown_key_may_be_the_schemas_own() -> None:
    schema = {"type": "object", "properties": {"alpha": {}}, "$comment": "look it up"}
    assert tip({"x": 1}, schema) == "look it up; known: alpha, ..."


def build(**changes: Any) -> ModelSpec:
    """Return the model with some keys changed; a key of None is left out."""
    data = {key: value for key, value in {**BASE, **changes}.items() if value is not None}
    return build_model(Document("f", data, {}), "m")


@pytest.mark.parametrize(
    ("n_layers", "pattern", "expected"),
    [
        (4, ["2 local", "global"], [("local", 2), ("global", 1), ("local", 1)]),
        (3, ["2 local", "global"], [("local", 2), ("global", 1)]),
        (6, ["2 local", "global"], [("local", 2), ("global", 1), ("local", 2), ("global", 1)]),
        (4, ["local", "3 global"], [("local", 1), ("global", 3)]),
        (5, ["local", "3 global"], [("local", 1), ("global", 3), ("local", 1)]),
    ],
)
def test_a_pattern_is_repeated_up_to_the_number_of_layers(
    n_layers: int, pattern: list[str], expected: Any
) -> None:
    model = build(**{**KINDS, "pattern": pattern, "n_layers": n_layers})
    assert [(group.name, group.count) for group in model.main.layers] == expected


@pytest.mark.parametrize(
    ("sizes", "is_valid"),
    [([5, 5], True), ([5, 0], True), ([5, 6], False), ([5], False), ([5, 1, 1], False)],
)
def test_a_tower_has_parameters_and_a_part_of_them(sizes: list[int], is_valid: bool) -> None:
    if is_valid:
        (tower,) = build(towers={"vision": sizes}).towers
        assert [tower.params, tower.split] == sizes
    else:
        with pytest.raises(
            AttncalcError, match=r"towers\.vision: is not \[parameters, those of them"
        ):
            build(towers={"vision": sizes})


@pytest.mark.parametrize("shape", [[5], [5, 6, 7]])
def test_a_rope_table_has_two_dimensions(shape: list[int]) -> None:
    (table,) = build(rope_tables={"full": [5, 6]}).rope_tables
    assert (table.name, table.rows, table.width) == ("full", 5, 6)
    with pytest.raises(AttncalcError, match=r"rope_tables\.full: is not \[rows, width\]"):
        build(rope_tables={"full": shape})


# {case: (keys that change; None for none, what the error says)}.
CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "a decoder of an encoder that sees all tokens": (
        {"encoder": {}, "mask": "bidirectional"},
        "mask: a decoder cannot be bidirectional",
    ),
    "an item of no tower": (
        {"tower_items": {"audio": {}}},
        "tower_items.audio: belongs to no tower",
    ),
    "attention of no tower": (
        {"tower_attention": {"audio": {"heads": 12}}},
        "tower_attention.audio: belongs to no tower",
    ),
    "attention larger than its tower": (
        {
            "towers": {"vision": [100, 80]},
            "tower_attention": {"vision": {"heads": 12, "whole": 81}},
        },
        "tower_attention.vision.whole: is more than the 80 parameters of 'vision' that are divided",
    ),
    "a pattern longer than the model": (
        {**KINDS, "n_layers": 2},
        "pattern: is longer than n_layers, 2",
    ),
    "a pattern without kinds": (
        {"pattern": ["a"]},
        "'pattern' and 'layer_kinds' must be given together",
    ),
    "kinds without a pattern": (
        {"layer_kinds": {"a": {}}},
        "'pattern' and 'layer_kinds' must be given together",
    ),
    "a kind that is not there": (
        {**KINDS, "pattern": ["local", "x"]},
        "pattern.1: 'x' is not one of layer_kinds",
    ),
    "a kind that is not used": (
        {**KINDS, "pattern": ["local"]},
        "layer_kinds.global: is not in the pattern",
    ),
    "two kinds that are not used": (
        {**KINDS, "pattern": ["local"], "layer_kinds": {"a": {}, "local": {}, "b": {}}},
        "layer_kinds.a: is not in the pattern",
    ),
    "a window and a chunk": (
        {"window": 8, "chunk": 8},
        "chunk: a layer has a window or a chunk, not both",
    ),
    "no heads": ({"n_heads": None}, "'n_heads' is missing"),
    "no width of the MLP": ({"d_ff": None}, "'d_ff' is missing"),
    "a width without an MLP": ({"mlp": "none"}, "d_ff: has no effect on this model"),
    "shared experts without experts": (
        {"n_shared_experts": 1},
        "n_shared_experts: shared experts need n_experts",
    ),
    "a width of shared experts": ({"d_ff_shared": 1}, "d_ff_shared: shared experts need n_experts"),
    "a router's bias without experts": (
        {"router_bias": True},
        "router_bias: has no effect on this model",
    ),
    "a latent without latent attention": (
        {"kv_lora_rank": 8},
        "kv_lora_rank: has no effect on this model",
    ),
    "a key that every kind overrides": (
        {**KINDS, "window": 9, "layer_kinds": {"local": {"window": 8}, "global": {"window": 7}}},
        "window: has no effect on this model",
    ),
    "a key of one kind without effect": (
        {**KINDS, "layer_kinds": {"local": {"kv_lora_rank": 8}, "global": {}}},
        "layer_kinds.local.kv_lora_rank: has no effect on this model",
    ),
    "recurrent layers in an encoder-decoder": (
        {
            **dict.fromkeys(("n_heads", "d_ff")),
            "encoder": {"attention": "grouped", "n_heads": 4, "mlp": "plain", "d_ff": 8},
            "attention": "mamba",
            "d_inner": 8,
            "d_state": 4,
            "d_conv": 4,
            "dt_rank": 2,
            "mlp": "none",
        },
        "attention: an encoder-decoder can only have grouped attention",
    ),
    **{
        f"{key} without a vocabulary": (
            {"vocab_size": None, key: value},
            f"{key}: has no effect without 'vocab_size'",
        )
        for key, value in (
            ("token_types", 2),
            ("d_embedding", 8),
            ("tied_embeddings", True),
            ("head_bias", True),
        )
    },
    "an lm head without a vocabulary": (
        {"vocab_size": None, "head": "lm"},
        "head: an lm head needs 'vocab_size'",
    ),
    **{
        f"{key} of a {head} head": (
            {"head": head, key: True},
            f"{key}: has no effect without an lm head",
        )
        for key in ("tied_embeddings", "head_bias")
        for head in ("none", "pooler")
    },
    "a pattern of modules that is not valid": (
        {"quantization": {"method": "fp8", "schemes": [], "ignored": ["re:("]}},
        "quantization: has a pattern of modules that is not valid",
    ),
    "a pattern of targets that is not valid": (
        {
            "quantization": {
                "method": "fp8",
                "schemes": [{"dtype": "fp8", "bits": 8, "targets": ["re:("]}],
            }
        },
        "quantization: has a pattern of modules that is not valid",
    ),
}


@each("case", CONTRADICTIONS)
def test_keys_that_contradict_or_have_no_effect_are_an_error(case: str) -> None:
    changes, message = CONTRADICTIONS[case]
    error = refusal(build, **changes)
    assert error.message.startswith(f"f:1: {message}")
    assert error.tip


def test_a_key_beside_the_kinds_may_be_that_of_one() -> None:
    """8 is the window of the local layers; the global ones override it."""
    model = build(**{**KINDS, "window": 8, "layer_kinds": {"local": {}, "global": {"window": 9}}})
    assert [str(group.attention.span.label) for group in model.main.layers][:2] == [
        "window 8",
        "window 9",
    ]


@pytest.mark.parametrize(
    ("changes", "kind", "tied", "bias"),
    [
        ({}, "lm", False, False),
        ({"tied_embeddings": True, "head_bias": True}, "lm", True, True),
        ({"head": "pooler"}, "pooler", False, False),
        ({"head": "pooler", "vocab_size": None}, "pooler", False, False),
        ({"head": "pooler", "tied_embeddings": False}, "pooler", False, False),
    ],
)
def test_a_model_with_a_vocabulary_has_an_lm_head(
    changes: dict[str, Any], kind: str, tied: bool, bias: bool
) -> None:
    head = build(**changes).head
    assert head
    assert (head.kind, head.tied, head.bias) == (kind, tied, bias)


@pytest.mark.parametrize(
    "changes", [{"vocab_size": None}, {"head": "none"}, {"head": "none", "vocab_size": None}]
)
def test_a_model_without_a_vocabulary_has_no_head(changes: dict[str, Any]) -> None:
    assert build(**changes).head is None


def test_left_out_keys_have_their_defaults() -> None:
    model = build()
    (layers,) = model.main.layers
    assert (model.title, model.dtype, model.main.name, model.main.mask.kind) == (
        "m",
        "fp16",
        "decoder",
        "causal",
    )
    assert (model.main.final_norm, model.main.embedding_norm, model.main.max_context) == (
        True,
        False,
        None,
    )
    assert (layers.name, layers.norms, layers.shares_weights, layers.cross, layers.extra) == (
        "layers",
        2,
        False,
        None,
        (),
    )
    assert layers.mlp
    assert (layers.mlp.gated, layers.mlp.bias, layers.mlp.router_bias, layers.mlp.n_experts) == (
        False,
        False,
        False,
        None,
    )
    assert (model.sources, model.notes, model.towers, model.rope_tables) == ((), (), (), ())
    assert (model.quantization, model.kv_dtype, model.model_type, model.unread_quantization) == (
        None,
        None,
        None,
        "",
    )


SAYS_ALL = {"mlp": "gated", "tied_embeddings": True, "dtype": "bf16"}


@pytest.mark.parametrize(
    ("left_out", "expected"),
    [
        ("mlp", "mlp: plain, two matrices"),
        ("tied_embeddings", "tied_embeddings: false"),
        ("dtype", "dtype: fp16"),
    ],
)
def test_a_default_that_no_screen_shows_is_an_assumption(left_out: str, expected: str) -> None:
    assert build(**SAYS_ALL).assumed == ""
    assumed = build(**SAYS_ALL | {left_out: None}).assumed
    assert assumed.startswith(expected)
    assert assumed.endswith(": defaults of keys that the model file leaves out.")
    assert (
        build(**SAYS_ALL | {left_out: None, "assumed": "A guess."}).assumed == f"A guess. {assumed}"
    )


@pytest.mark.parametrize("keys", [{"mlp": "none"}, {"mlp": "plain", "d_ff": 8}])
def test_a_key_that_every_kind_of_layer_says_is_no_assumption(keys: dict[str, Any]) -> None:
    kinds = {"pattern": ["one"], "layer_kinds": {"one": keys}}
    assert build(**SAYS_ALL | {"mlp": None, "d_ff": None} | kinds).assumed == ""


def test_an_encoder_may_leave_out_what_its_decoder_says() -> None:
    encoder = {"n_layers": 1}
    assert build(**SAYS_ALL, encoder=encoder).assumed == ""
    assert "mlp: plain" in build(**SAYS_ALL | {"mlp": None}, encoder=encoder).assumed


def test_a_screen_starts_with_the_defaults_of_a_model_file(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(
        "d_model: 64\nn_layers: 2\nnorm: rmsnorm\nn_heads: 4\nd_ff: 256\ndtype: bf16\n"
    )
    for command in ("kv", "params", "flops", "memory"):
        second = ask(command, str(tmp_path / "m.yaml")).out.splitlines()[1]
        assert second.startswith("ASSUMED: mlp: plain, two matrices")


@pytest.mark.parametrize(
    "command",
    of_questions(
        [
            "fit m.yaml --kv-memory 1GiB",
            "train m.yaml",
            "compare m.yaml",
            "compare gpt2 m.yaml",
            "plan m.yaml --gpu l4 --users 1 --prompt 9 --output-len 9",
            "sweep m.yaml -c 9 --format table",
        ]
    ),
)
def test_every_command_says_the_defaults_of_a_model_file(
    command: str, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.yaml").write_text(
        "d_model: 64\nn_layers: 2\nnorm: rmsnorm\nn_heads: 4\nd_ff: 256\ndtype: bf16\n"
    )
    screen = " ".join(ask(*command.split()).out.split())
    assert re.search(r"ASSUMED(?: of m(?:\.yaml)?)?: mlp: plain, two matrices", screen)


def test_no_preset_leaves_out_such_a_key() -> None:
    assert [preset.name for preset in presets() if load(preset.name).assumed] == []


def test_given_keys_replace_defaults() -> None:
    model = build(
        mlp="gated",
        mlp_bias=True,
        n_experts=4,
        n_experts_per_token=2,
        router_bias=True,
        d_latent=8,
        norms_per_layer=3,
        shares_weights=True,
        final_norm=False,
        embedding_norm=True,
        learned_positions=32,
        mask="bidirectional",
        head="none",
    )
    (layers,) = model.main.layers
    assert (model.main.name, model.main.mask.kind) == ("encoder", "bidirectional")
    assert (model.main.final_norm, model.main.embedding_norm, model.main.max_context) == (
        False,
        True,
        32,
    )
    assert (layers.norms, layers.shares_weights) == (3, True)
    assert layers.mlp
    assert (layers.mlp.gated, layers.mlp.bias, layers.mlp.router_bias, layers.mlp.d_latent) == (
        True,
        True,
        True,
        8,
    )


def test_a_decoder_with_an_encoder_has_one_more_norm() -> None:
    model = build(encoder={"n_layers": 3}, learned_positions=32, mlp="gated")
    encoder, decoder = model.stacks
    assert (encoder.name, encoder.input, encoder.mask.kind, encoder.max_context) == (
        "encoder",
        "source",
        "bidirectional",
        None,
    )
    assert (decoder.name, decoder.input, decoder.mask.kind, decoder.max_context) == (
        "decoder",
        "target",
        "causal",
        32,
    )
    assert (encoder.n_layers, encoder.layers[0].norms, encoder.layers[0].cross) == (3, 2, None)
    assert decoder.layers[0].norms == 3
    assert decoder.layers[0].cross is not None
    assert encoder.layers[0].mlp == decoder.layers[0].mlp


# YAML


def nested(depth: int) -> bytes:
    return b"a: " + b"[" * (depth - 1) + b"]" * (depth - 1)


def test_a_file_has_at_most_20_levels() -> None:
    assert parse_document(nested(MAX_DEPTH), "f").data
    assert parse_document(b"\n".join([b"x%d: [[1]]" % i for i in range(30)]), "f").data
    with pytest.raises(AttncalcError, match="f:1: nested more than 20 levels deep"):
        parse_document(nested(MAX_DEPTH + 1), "f")
    with pytest.raises(AttncalcError, match="f:2: nested more than 20 levels deep"):
        # each level that ends is subtracted once
        parse_document(b"b: [[1]]\n" + nested(MAX_DEPTH + 1), "f")


def test_a_file_has_at_most_200_000_values() -> None:
    """One event per item, and eight for the starts and ends of the document, the mapping and the
    list, and the key.
    """
    items = b"- 1\n" * (MAX_VALUES - 8)
    assert parse_document(b"a:\n" + items, "f").data
    with pytest.raises(AttncalcError, match="f: YAML with more than 200,000 values"):
        parse_document(b"a:\n" + items + b"- 1\n" * 9, "f")


@each(
    ("text", "value"),
    [
        ("0", 0),
        ("7", 7),
        ("-7", -7),
        ("-0", 0),
        ("1.5", 1.5),
        ("true", True),
        ("x", "x"),
        ("''", ""),
        ("", None),
        ("~", "error"),
        ("null", "error"),
        ("0777", "error"),
        ("0x10", "error"),
        ("1:30", "error"),
        ("1_000", "error"),
        ("-010", "error"),
        ("!!bool x", "error"),
        ("!!int x", "error"),
        ("2001-99-99", "error"),
        ("1" + ":0" * 200 + ".5", "error"),  # 60^200 is no float
    ],
)
def test_a_number_is_decimal(text: str, value: Any) -> None:
    content = f"a: 1\nb: {text}".encode()
    if value == "error":
        with pytest.raises(AttncalcError, match=r"f:2: .* cannot be read as a value"):
            parse_document(content, "f")
    else:
        document = parse_document(content, "f")
        assert document.data["b"] == value
        assert type(document.data["b"]) is type(value)
        assert document.lines == {(): 1, ("a",): 1, ("b",): 2}


def test_lines_are_those_of_keys_and_items() -> None:
    document = parse_document(b"a:\n  b: 1\n  c:\n  - x\n  - y: 5\n", "f")
    assert document.lines == {
        (): 1,
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 3,
        ("a", "c", 0): 4,
        ("a", "c", 1): 5,
        ("a", "c", 1, "y"): 5,
    }
    assert document.error(("a", "c", 0, "deeper"), "x", "t").message == "f:4: a.c.0.deeper: x"
    assert document.error((), "x", "t").message == "f:1: x"
    assert Document("f", {}, {}).error(("q",), "x", "t").message == "f:1: q: x"


def test_an_error_about_the_whole_file_has_the_line_of_its_first_key() -> None:
    document = parse_document(b"# a comment\n\na: 1\n", "f")
    for path in ((), ("missing",), ("missing", 0)):
        assert document.error(path, "x", "t").message.startswith("f:3: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\nb: 2\na: 3", "f:3: a: given twice"),
        (b"a: 1\n[b]: 2", "f:2: a key must be a word"),
        (b"a: &x 1\nb: *x", "f:2: aliases are not supported"),
        (b"a: 1\nb: [", "f:3: not YAML: "),
        (b"a: \x01", "f: not YAML: control characters are not allowed"),
        (b"", "f: the file is empty"),
        (b"[1]", "f:1: not a mapping of keys to values"),
        (b"\xff\xfe", "f: not a text file"),
    ],
)
def test_what_is_no_document_is_an_error_with_its_line(content: bytes, message: str) -> None:
    assert refusal(parse_document, content, "f").message.startswith(message)


@pytest.mark.parametrize("written", ["4,096", '"4,096"'])
def test_a_comma_groups_no_digits(written: str, ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(
        f"d_model: {written}\nn_layers: 2\nnorm: rmsnorm\nn_heads: 4\nd_ff: 256\n"
    )
    answer = ask("kv", str(tmp_path / "m.yaml"))
    assert "d_model: '4,096' is not a whole number" in answer.err
    assert "tip: write 4096: a comma groups no digits" in answer.err


def test_a_comma_groups_no_digits_in_a_config_json() -> None:
    with pytest.raises(AttncalcError, match="n_embd '7,680' is not a whole number") as caught:
        load({"model_type": "gpt2", "n_embd": "7,680", "n_layer": 2, "n_head": 12})
    assert caught.value.tip == "write 7680: a comma groups no digits"
