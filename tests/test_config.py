"""Model files: their keys, and the errors for invalid ones."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from asking import Ask, refusal
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from attncalc import AttncalcError, Chunked, Grouped, load, preset_names
from attncalc.config.data_files import presets_folder
from attncalc.config.document import Document
from attncalc.config.keys import schema
from attncalc.config.schema import check
from attncalc.config.yaml import parse_document
from attncalc.model import ModelSpec

REPOSITORY = Path(__file__).parent.parent
PRESETS = REPOSITORY / "presets"
# Presets that must not disappear. A new preset need not be added here.
REQUIRED = {
    "transformer-base",
    "transformer-big",
    "bert-base",
    "bert-large",
    "gpt2",
    "gpt3",
    "llama2-70b",
    "llama2-7b",
    "llama3-8b",
    "llama3-70b",
    "llama3.1-405b",
    "mistral-7b-v0.1",
    "mixtral-8x7b",
    "falcon-7b",
    "gemma-2b",
    "qwen3-8b",
    "t5-base",
    "whisper-large-v3",
    "gemma3-27b",
    "gpt-oss-20b",
    "deepseek-v3",
}
TINY = """\
title: Tiny
sources: [a test]
d_model: 64
n_layers: 4
n_heads: 4
d_ff: 128
norm: rmsnorm
vocab_size: 100
max_context: 32
"""


def tiny(tmp_path: Path, more: str = "", without: str = "") -> ModelSpec:
    """Return the tiny model with lines added, or without the line of one key."""
    file = tmp_path / "tiny.yaml"
    lines = [line for line in TINY.splitlines() if not (without and line.startswith(f"{without}:"))]
    file.write_text("\n".join([*lines, more]) + "\n")
    return load(file)


def test_the_schema_file_is_up_to_date() -> None:
    """`attncalc presets schema -o presets/model.schema.json --force` writes it."""
    assert json.loads((PRESETS / "model.schema.json").read_text()) == json.loads(
        json.dumps(schema())
    )


def test_required_presets_exist() -> None:
    assert set(preset_names()) >= REQUIRED


VALIDATOR = jsonschema.Draft202012Validator(schema())


def check_preset(text: str) -> None:
    """Check the text of a preset: it names its schema and sources, and is valid."""
    assert text.startswith("# yaml-language-server: $schema=../model.schema.json\n")
    data = yaml.safe_load(text)
    VALIDATOR.validate(data)
    assert data["title"]
    assert data["sources"]
    assert all("http" in source for source in data["sources"])


@each("name", preset_names())
def test_a_preset_names_its_schema_and_sources_and_is_valid(name: str) -> None:
    check_preset((PRESETS / "models" / f"{name}.yaml").read_text())


WORDS = ["rmsnorm", "grouped", "latent", "gated", "head", "lm", "fp16", "fp8", "causal", "int4"]
ITEMS = st.sampled_from(["q", "k", "x", "local", "5 local", "0 local", 3])
KINDS = st.sampled_from(["local", "n_heads", "Bad", "window"])
# JSON Schema takes 1.0 for 1
FRACTIONS = st.floats(allow_nan=False).filter(lambda number: not number.is_integer())
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 20_000), FRACTIONS, st.text(max_size=5)
)
VALUES: st.SearchStrategy[Any] = st.one_of(
    SCALARS,
    st.sampled_from(WORDS),
    st.lists(ITEMS, max_size=3),
    st.dictionaries(KINDS, st.one_of(st.integers(0, 3), st.just({})), max_size=2),
)


@given(st.dictionaries(st.sampled_from([*schema()["properties"], "nonsense"]), VALUES, max_size=4))
def test_check_agrees_with_jsonschema(changes: dict[str, Any]) -> None:
    data = {**yaml.safe_load(TINY), **changes}
    is_valid = VALIDATOR.is_valid(data)
    try:
        check(Document("x.yaml", data, {}))
    except AttncalcError:
        assert not is_valid
    else:
        assert is_valid


def test_the_schema_allows_the_keys_of_every_attention_kind() -> None:
    assert {"n_kv_heads", "kv_lora_rank", "window", "chunk", "sinks"} <= set(schema()["properties"])


def test_omitted_keys_have_defaults(tmp_path: Path) -> None:
    model = tiny(tmp_path)
    (layers,) = model.main.layers
    assert layers.attention == Grouped(4, 4, 16)
    assert (layers.count, layers.norms, model.dtype, model.max_context) == (4, 2, "fp16", 32)


def test_gemma3_has_52_local_and_10_global_layers() -> None:
    counts: dict[str, int] = {}
    for group in load("gemma3-27b").main.distinct():
        counts[group.name] = group.count
    assert counts == {"local": 52, "global": 10}


def test_a_chunk_is_a_span(tmp_path: Path) -> None:
    assert tiny(tmp_path, "chunk: 8").main.layers[0].attention.span == Chunked(8)


def test_an_encoder_inherits_the_keys_that_it_omits(tmp_path: Path) -> None:
    model = tiny(tmp_path, "encoder: {n_layers: 2, max_context: 50}")
    assert model.encoder is not None
    assert (model.encoder.n_layers, model.encoder.max_context, model.encoder.d_model) == (2, 50, 64)
    assert model.main.layers[0].cross is not None
    assert not model.encoder.has_cache


def test_a_folder_with_one_model_file_is_that_model(tmp_path: Path) -> None:
    tiny(tmp_path)
    assert load(tmp_path).title == "Tiny"


def test_a_model_file_needs_neither_title_nor_sources(tmp_path: Path, ask: Ask) -> None:
    file = tmp_path / "my-model.yaml"
    file.write_text("d_model: 64\nn_layers: 4\nn_heads: 4\nd_ff: 128\nnorm: rmsnorm\n")
    model = load(file)
    assert (model.name, model.title, model.sources) == ("my-model", "my-model", ())
    assert ask("kv", str(file), "-c", "10").out.startswith("my-model  ")
    content = json.dumps(
        {"d_model": 64, "n_layers": 4, "n_heads": 4, "d_ff": 128, "norm": "rmsnorm"}
    )
    assert ask("kv", "-", "-c", "10", stdin=content).out.startswith("stdin  ")


INVALID = {
    "an unknown key": (
        "n_head: 3",
        "",
        "tiny.yaml:10: n_head: there is no such key",
        "did you mean 'n_heads'?",
    ),
    "a missing key": ("", "d_model", "'d_model' is missing", "width of the model"),
    "missing heads": ("", "n_heads", "'n_heads' is missing", "query heads"),
    "a wrong type": (
        "window: wide",
        "",
        "tiny.yaml:10: window: 'wide' is not a whole number",
        "sliding window",
    ),
    "KV heads that do not divide": ("n_kv_heads: 3", "", "3 does not divide n_heads 4", "1, 2, 4"),
    "an unknown dtype": ("dtype: fp17", "", "dtype: 'fp17' is not known", "did you mean"),
    "a key twice": ("d_ff: 12", "", "tiny.yaml:10: d_ff: given twice", "keep one"),
    "aliases are not supported": (
        "layer_kinds: {a: &x {window: 3}, b: *x}",
        "",
        "aliases are not supported",
        "write the values out",
    ),
    "experts without a router": ("n_experts: 3", "", "must be given together", ""),
    "more experts used than there are": (
        "n_experts: 3\nn_experts_per_token: 4",
        "",
        "4 is more than the 3",
        "",
    ),
    "a bad word in a pattern": (
        "pattern: [Local]\nlayer_kinds: {a: {}}",
        "",
        "is not a kind of layer",
        "",
    ),
    "a bias of an unknown projection": (
        "bias: [q, z]",
        "",
        "'z' is not known",
        "known: q, k, v, o",
    ),
    "an MLP without its width": ("", "d_ff", "'d_ff' is missing", "mlp: none"),
    "a number above the maximum": (
        "window: 1000000000000001",
        "",
        "is above 1,000,000,000,000,000",
        "",
    ),
    "a title that moves the cursor": (
        'title: "\\e[31mred"',
        "title",
        "is not one line of text",
        "",
    ),
    "a title of blanks": ("title: '  '", "title", "is not one line of text", ""),
    "a latent encoder-decoder": (
        "attention: latent\nkv_lora_rank: 8\nd_nope: 8\nd_rope: 4\nd_v: 8\nencoder: {n_layers: 1}",
        "",
        "can only have grouped attention",
        "leave out 'encoder'",
    ),
    "a window that every kind overrides": (
        "window: 5\npattern: [a, b]\nlayer_kinds: {a: {window: 7}, b: {window: 8}}",
        "",
        "window: has no effect",
        "every layer kind overrides it",
    ),
    "an empty title": ("title: ''", "title", "title: '' is not one line of text", ""),
}


@each("case", INVALID)
def test_an_invalid_file_is_an_error_with_a_tip(case: str, tmp_path: Path) -> None:
    more, without, message, tip = INVALID[case]
    error = refusal(tiny, tmp_path, more, without)
    assert message in error.message
    assert tip in error.tip
    assert error.tip
    assert "\n" not in error.message + error.tip


def test_the_line_of_a_wrong_value_is_named(tmp_path: Path) -> None:
    more = "pattern: [a]\nlayer_kinds:\n  a:\n    n_kv_heads: 3"
    with pytest.raises(
        AttncalcError, match=r"tiny.yaml:13: layer_kinds.a.n_kv_heads: 3 does not divide"
    ):
        tiny(tmp_path, more)


def test_heads_that_do_not_divide_the_width(tmp_path: Path) -> None:
    with pytest.raises(AttncalcError, match="not a multiple of n_heads 5"):
        tiny(tmp_path, "n_heads: 5", without="n_heads")


@each(
    ("content", "message"),
    [
        (b"# only a comment\n", "empty"),
        (b"\x7fELF\x02\x01", "not YAML"),
        (b"just words", "not a mapping"),
        (b"a: [1, 2\nb: 3", "not YAML"),
        (b"a: " + b"[" * 5000, "nested more than 20 levels deep"),
        (b"a: 2024-99-99\n", "cannot be read as a value"),
        (b"a: &a [*a]\n", "aliases are not supported"),
        (b"- " * 60_000, "nested more than 20 levels deep"),
        (b"{a: " * 60_000, "nested more than 20 levels deep"),
        (b"a: !!python/object:os.system 1\n", "cannot be read|aliases|not YAML"),
        (b"a: 1" + b"0" * 5000, "cannot be read as a value"),
    ],
)
def test_content_that_is_not_a_mapping_is_an_error(content: bytes, message: str) -> None:
    with pytest.raises(AttncalcError, match=message):
        parse_document(content, "x.yaml")


@each(
    ("text", "message"),
    [("# Title\nwords", "is neither a model nor an engine's log"), ("a: 1", "keys are a")],
)
def test_a_text_that_is_no_model_says_so_in_one_error(
    ask: Ask, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "NOTES.md").write_text(text, encoding="utf-8")
    answer = ask("fit", str(tmp_path / "NOTES.md"))
    assert answer.code == 2
    assert message in answer.err
    assert answer.err.count("error:") == 1


def test_an_alias_bomb_is_an_error_before_it_expands() -> None:
    bomb = "a0: &a0 [x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 40)
    )
    with pytest.raises(AttncalcError, match="aliases are not supported"):
        parse_document(bomb.encode(), "x.yaml")


@pytest.mark.parametrize(
    "name", ["lama2-70b", "", "no/such/file", "x" * 5000, "a\0b", "a\nb", "\x1b[31mred"]
)
def test_an_unknown_model_is_an_error(name: str) -> None:
    with pytest.raises(AttncalcError, match="no preset named") as caught:
        load(name)
    assert caught.value.message.isprintable()


def test_a_misspelled_name_gets_a_suggestion() -> None:
    assert refusal(load, "lama2-70b").tip.startswith("did you mean 'llama2-70b'?")


def test_a_folder_without_a_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AttncalcError, match=r"the folder has no config.json and no model file"):
        load(tmp_path)


def test_presets_are_found_in_a_checkout() -> None:
    assert presets_folder() == PRESETS


def test_a_model_file_in_json_may_name_its_model_type(tmp_path: Path) -> None:
    data = yaml.safe_load((PRESETS / "models" / "gemma3-27b.yaml").read_text())
    (tmp_path / "mine.json").write_text(json.dumps(data))
    assert load(tmp_path / "mine.json").model_type == load("gemma3-27b").model_type == "gemma3"
    (tmp_path / "mine.json").write_text(json.dumps({**data, "model_type": "a b"}))
    with pytest.raises(AttncalcError, match="is not a model_type"):
        load(tmp_path / "mine.json")


@pytest.mark.parametrize(
    ("scaling", "longest"),
    [
        ({}, 4096),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 16_384),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, 8192),
        (
            {
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 8.0,
                    "original_max_position_embeddings": 2048,
                }
            },
            16_384,
        ),
        # max_position_embeddings is the scaled context already, as in DeepSeek-V3 and Llama 3.1
        (
            {
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 2.0,
                    "original_max_position_embeddings": 2048,
                }
            },
            4096,
        ),
        (
            {
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "original_max_position_embeddings": 512,
                }
            },
            4096,
        ),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, 8192),
    ],
)
def test_rope_scaling_multiplies_the_longest_context(
    tmp_path: Path, scaling: dict[str, Any], longest: int
) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "max_position_embeddings": 4096, **scaling}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert load(path).max_context == longest


def test_a_model_has_at_most_256_kinds_of_layers(tmp_path: Path) -> None:
    """5,000 kinds took minutes."""
    kinds = {f"k{i}": {"window": i + 1} for i in range(257)}
    sizes = {
        "d_model": 64,
        "n_layers": 257,
        "n_heads": 4,
        "d_head": 16,
        "norm": "rmsnorm",
        "mlp": "gated",
        "d_ff": 128,
    }
    file = tmp_path / "m.json"
    model = {
        "title": "x",
        "sources": ["s"],
        "vocab_size": 9,
        **sizes,
        "layer_kinds": kinds,
        "pattern": list(kinds),
    }
    file.write_text(json.dumps(model))
    with pytest.raises(AttncalcError, match="layer_kinds: has 257 entries, more than 256"):
        load(file)
    del kinds["k256"]
    file.write_text(json.dumps({**model, "pattern": list(kinds)}))
    assert {layers.name for layers in load(file).main.layers} == set(kinds)
