"""Models that are given as objects: a dict, and transformers' config object of many families."""

import collections
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from asking import refusal
from configs import LLAMA_3_8B, SMALL_LLAMA
from tables import each

from attncalc import AttncalcError, ModelSpec, flops, kv_cache, load, params
from attncalc.config.plain import fields_of
from attncalc.config.presets import preset_text

DATA = Path(__file__).parent / "data"
CONFIGS: dict[str, dict[str, Any]] = {
    **{
        name: entry["config"]
        for name, entry in json.loads((DATA / "huggingface.json").read_text()).items()
    },
    **{
        entry["name"]: entry["config"]
        for entry in json.loads((DATA / "real-configs.json").read_text("utf-8"))
    },
}
# Its file has no vision_config: the reader takes the released tower, and the class one with 768
# instead of 1,408.
OTHER_TOWER = "meta-llama__Llama-4-Maverick-17B-128E-Instruct"
UNSUPPORTED = "default-csm"


def figures(model: ModelSpec) -> dict[str, Any]:
    """Return the figures that a model's sizes decide."""
    figures = {**params(model).to_dict(), **flops(model, context=300, batch=2).to_dict()}
    if model.main.has_cache:
        figures |= kv_cache(model, context=5000).to_dict()
    return {
        **figures,
        "dtype": model.dtype,
        "max_context": model.max_context,
        "kv_dtype": model.kv_dtype,
    }


def test_config_objects_give_the_figures_of_their_files() -> None:
    transformers = pytest.importorskip("transformers")
    of_class = {
        fields["model_type"]: name for name, fields in CONFIGS.items() if name != OTHER_TOWER
    }
    known = [name for kind, name in of_class.items() if kind in transformers.CONFIG_MAPPING]

    @each("name", sorted(known))
    def check(name: str) -> None:
        fields = dict(CONFIGS[name])
        config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
        if name == UNSUPPORTED:
            with pytest.raises(AttncalcError, match=r"^CsmConfig: "):
                load(config)
        else:
            assert figures(load(config)) == figures(load(CONFIGS[name]))

    check()


def test_a_config_object_is_named_after_the_repository_that_it_is_from() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(num_key_value_heads=8)
    assert repr(load(config)).startswith(
        "ModelSpec(llama: llama, grouped-query attention, 32 query and 8 KV heads"
    )
    config._name_or_path = "org/A-Llama"
    assert (load(config).name, load(config).title) == ("A-Llama", "org/A-Llama")
    config._name_or_path = "/home/somebody/A-Llama/"
    assert (load(config).name, load(config).title) == ("A-Llama", "A-Llama")


def test_a_dict_gives_the_figures_of_the_file_with_its_contents(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_8B))
    assert figures(load(LLAMA_3_8B)) == figures(load(tmp_path / "config.json"))
    assert figures(load(collections.ChainMap({}, LLAMA_3_8B))) == figures(load(LLAMA_3_8B))


@pytest.mark.parametrize(
    "name", ["llama2-70b", "gemma3-27b", "deepseek-v3", "t5-base", "qwen3-next-80b-a3b"]
)
def test_a_dict_may_have_the_keys_of_a_model_file(name: str) -> None:
    assert figures(load(yaml.safe_load(preset_text(name)))) == figures(load(name))


def test_load_returns_a_model_unchanged() -> None:
    model = load("gpt2")
    assert load(model) is model


def test_load_does_not_change_the_dict() -> None:
    fields = {**SMALL_LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    before = json.dumps(fields)
    load(fields)
    assert json.dumps(fields) == before


def test_values_of_other_libraries_are_read_as_those_of_a_file() -> None:
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    fields = {
        **SMALL_LLAMA,
        "hidden_size": numpy.int64(64),
        "torch_dtype": torch.bfloat16,
        "architectures": ("LlamaForCausalLM",),
        "id2label": {0: "no", 1: "yes"},
    }
    assert figures(load(fields)) == figures(load(SMALL_LLAMA))


class Part:
    """The config of a part of a model."""

    def to_dict(self) -> dict[str, Any]:
        return {"width": 8}


class Dtype:
    """A dtype of torch, as its text shows it."""

    def __str__(self) -> str:
        return "torch.float8_e4m3fn"


class Number:
    """A number of numpy or torch."""

    def item(self) -> int:
        return 7


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, 2), [1, 2]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        (collections.ChainMap({"x": 1}), {"x": 1}),
        (Part(), {"width": 8}),
        (Dtype(), "float8_e4m3fn"),
        (Number(), 7),
        ("torch.bfloat16", "torch.bfloat16"),  # text stays as it is
        (None, None),
    ],
)
def test_a_value_becomes_what_json_has(value: Any, expected: Any) -> None:
    assert fields_of({"key": value, "parts": [value]}) == {"key": expected, "parts": [expected]}


@pytest.mark.parametrize("value", [object(), Part, 5j, b"bytes"])
def test_a_value_that_json_cannot_have_is_an_error(value: Any) -> None:
    with pytest.raises(
        AttncalcError, match=f"a value is .* of class {type(value).__name__}, which a config.json"
    ):
        fields_of({"key": value})


def nested(depth: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for _ in range(depth):
        fields = {"a": fields}
    return fields


def test_a_dict_that_is_too_deep_or_contains_itself_is_an_error() -> None:
    endless: dict[str, Any] = {}
    endless["a"] = endless
    for fields in (endless, nested(10**5)):
        with pytest.raises(AttncalcError, match="config: it cannot be written as JSON"):
            fields_of(fields)


class Endless:
    """Its dict contains itself."""

    def to_dict(self) -> dict[str, Any]:
        return {"model_type": "llama", "text_config": self}


@each(
    ("model", "message"),
    [
        (3, "a model cannot be given as '3', of class int"),
        (None, "a model cannot be given as 'None', of class NoneType"),
        ([SMALL_LLAMA], "a model cannot be given as"),
        (Endless, "a model cannot be given as"),
        (Endless(), "Endless: it cannot be written as JSON"),
        ({}, "config: model_type is missing"),
        ({"model_type": "nope"}, "config: model_type 'nope' is not supported"),
        (
            {**SMALL_LLAMA, "hidden_size": "wide"},
            "config: hidden_size 'wide' is not a whole number",
        ),
        (
            {**SMALL_LLAMA, "hidden_act": print},
            "config: a value is '<built-in function print>', of class builtin_f",
        ),
        ({("a", "b"): 1}, "config: it cannot be written as JSON"),
        ({"title": "x", "d_model": 8, "norm": "rmsnorm", "layers": []}, "config:1: "),
    ],
)
def test_an_object_that_is_no_model_is_an_error(model: Any, message: str) -> None:
    error = refusal(load, model)
    assert error.message.startswith(message)
    assert error.tip
