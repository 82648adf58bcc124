"""Which family's rules a config.json is read by: its model_type's, its class's, or its language
model's.
"""

from typing import Any

import pytest
from asking import refusal
from configs import SMALL_LLAMA, spec_of
from tables import each

from attncalc import AttncalcError
from attncalc.config.huggingface import convert_config
from attncalc.config.huggingface.family import (
    _inner_family,
    _inner_model_type,
    _near_name,
    architecture,
    as_list,
    families,
    supported_model_types,
    unsupported_model_types,
)
from attncalc.config.huggingface.fields import UNKNOWN_CLASS, Fields

OUTER = UNKNOWN_CLASS._replace(sub_configs={"text_config": "llama"})


def test_a_model_type_is_supported_or_has_a_reason() -> None:
    supported, unsupported = supported_model_types(), unsupported_model_types()
    assert {"llama", "gemma3", "t5"} <= set(supported)
    assert supported == sorted(supported)
    assert not set(supported) & set(unsupported)
    assert unsupported["big_bird"] == families()["big_bird"]["unsupported"]
    assert all(unsupported.values())


def test_a_part_of_another_model_is_neither() -> None:
    assert families()["t5_gemma_module"]["part"]
    assert "t5_gemma_module" not in {*supported_model_types(), *unsupported_model_types()}


@pytest.mark.parametrize("base", ["decoder", "windowed", "tower", "untied", "assumed", "remote"])
def test_an_entry_that_is_no_class_is_only_a_base(base: str) -> None:
    assert base not in families()


@pytest.mark.parametrize(
    ("classes", "name"),
    [
        (["A", "B"], "A"),
        (["A"], "A"),
        ([], ""),
        (None, ""),
        ("LlamaModel", ""),
        ({"A": 1}, ""),
        ([5], "5"),
    ],
)
def test_the_first_class_counts(classes: Any, name: str) -> None:
    assert architecture({"architectures": classes}) == name


def test_a_rule_may_be_one_or_several() -> None:
    assert (as_list(None), as_list("a"), as_list(["a", "b"])) == ([], ["a"], ["a", "b"])


@pytest.mark.parametrize(
    ("model_type", "near"),
    [
        ("falkon_mamba", "falcon_mamba"),
        ("Falcon-Mamba", "falcon_mamba"),
        ("falcon-manba", "falcon_mamba"),
        ("falcn_mamba", "falcon_mamba"),
        ("falconn_mamba", "falcon_mamba"),
        ("fa1con_mamba", None),  # another digit
        ("qwen1_moe", None),  # not Qwen2
        ("qwen9_moe", None),
        ("falkon_mambo", None),  # two wrong letters
        ("falconnn_mamba", None),
        ("falcon_mam", None),
        ("pixtral", None),  # not Mixtral
    ],
)
def test_a_name_that_differs_in_one_letter_is_near(model_type: str, near: str | None) -> None:
    assert _near_name(model_type) == near


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ({}, "llama"),
        ({"model_type": "qwen2"}, "qwen2"),
        ({"model_type": "nobody"}, "nobody"),
        # the name of the whole model's language model: its own class, or else that of the whole
        # model's class
        ({"model_type": "x_text"}, "llama"),
        ({"model_type": "y_text"}, "y_text"),
    ],
)
def test_a_language_model_has_its_own_model_type_or_that_of_the_outer_class(
    inner: dict[str, Any], expected: str
) -> None:
    assert _inner_model_type("x", OUTER, "text_config", inner) == expected


def test_a_known_language_model_is_not_replaced_by_the_default() -> None:
    assert (
        _inner_model_type("gemma3", OUTER, "text_config", {"model_type": "gemma3_text"})
        == "gemma3_text"
    )
    assert (
        _inner_model_type("x", UNKNOWN_CLASS, "text_config", {"model_type": "x_text"}) == "x_text"
    )


@pytest.mark.parametrize("given", [None, "x", "llama"])
def test_a_class_may_fix_its_language_model(given: str | None) -> None:
    fixed = OUTER._replace(fixed_sub_configs=["text_config"])
    assert _inner_model_type("x", fixed, "text_config", {"model_type": given}) == "llama"
    with pytest.raises(
        AttncalcError, match=r"^text_config.model_type 'qwen2': the class of x makes it a llama"
    ):
        _inner_model_type("x", fixed, "text_config", {"model_type": "qwen2"})


@pytest.mark.parametrize(("given", "field"), [({}, "a_config"), ({"b_config": 5}, "b_config")])
def test_a_missing_language_model_is_named_by_its_first_field(
    given: dict[str, Any], field: str
) -> None:
    with pytest.raises(AttncalcError, match=rf"^{field} is missing"):
        _inner_family("x", {"text": ["a_config", "b_config"]}, Fields(given, UNKNOWN_CLASS))


@each(
    ("field", "tip"),
    [
        ("type_vocab_size", 'type_vocab_size is a field of BERT: add "model_type": "bert"'),
        ("n_ctx", 'n_ctx is a field of GPT-2: add "model_type": "gpt2"'),
        ("inner_hidden_size", "inner_hidden_size is a field of the first ChatGLM, "),
        ("initializer_range", 'add "model_type": "llama" for a plain decoder; '),
    ],
)
def test_a_config_without_a_model_type_gets_a_tip_by_its_fields(field: str, tip: str) -> None:
    """A BERT that is read as a LLaMA has MLPs of three matrices, and a head."""
    config = {**SMALL_LLAMA, field: 2}
    del config["model_type"], config["architectures"]
    error = refusal(spec_of, config)
    assert error.message == "config.json: model_type is missing"
    assert error.tip.startswith(tip)
    assert ("--assume-grouped" in error.tip) is (field == "initializer_range")


def test_longcat_2_is_no_longcat_flash() -> None:
    """Its tables of n-grams, 135 billion parameters, would be left out without a word."""
    config = {**SMALL_LLAMA, "model_type": "longcat_flash", "oe_vocab_size_ratio": 100.567}
    assert refusal(spec_of, config).message == (
        "config.json: oe_vocab_size_ratio 100.567 is not supported for longcat_flash: LongCat "
        "2.0's tables of n-grams and its indexer are not modelled"
    )


def test_the_first_chatglm_is_no_later_one_with_other_names() -> None:
    """THUDM/chatglm-6b, whose MLP has two matrices."""
    config = {
        "architectures": ["ChatGLMModel"],
        "hidden_size": 4096,
        "inner_hidden_size": 16_384,
        "max_sequence_length": 2048,
        "model_type": "chatglm",
        "num_attention_heads": 32,
        "num_layers": 28,
        "position_encoding_2d": True,
        "vocab_size": 130_528,
    }
    for given in (config, {key: config[key] for key in config if key != "model_type"}):
        error = refusal(spec_of, given)
        assert error.message == (
            "config.json: inner_hidden_size 16384 is not supported for chatglm: the first ChatGLM "
            "is another architecture, which is not modelled"
        )


@each("field", ["text_config", "llm_config", "language_config", "lm_config"])
def test_assume_grouped_finds_the_language_model_of_an_unknown_model(field: str) -> None:
    config = {"model_type": "an_invention", field: SMALL_LLAMA}
    assert convert_config(config, "", assume_grouped=True).data["n_layers"] == 3
