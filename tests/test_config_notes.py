"""The title, dtype, head and notes of a config.json, and which file of a repository is read."""

from typing import Any

import pytest
from asking import refusal
from configs import SMALL_LLAMA as LLAMA
from tables import each

from attncalc import AttncalcError
from attncalc.config.hub import Repository
from attncalc.config.huggingface import convert_config
from attncalc.config.huggingface.family import Family
from attncalc.config.huggingface.fields import UNKNOWN_CLASS, Fields, transformers_version
from attncalc.config.huggingface.read import _check_requirements, _has_unknown_head, _Reader
from attncalc.config.plain import fields_of, label_of, name_of
from attncalc.config.source import _file_of, _parts


def keys(
    *, title: str = "", file: str = "config.json", assume: bool = False, **changes: Any
) -> dict[str, Any]:
    """Return the keys of the model file of a small LLaMA with changed fields; `...` removes a
    field.
    """
    config = {key: value for key, value in {**LLAMA, **changes}.items() if value is not ...}
    return convert_config(config, file, title=title, assume_grouped=assume).data


def notes(**changes: Any) -> list[str]:
    found: list[str] = keys(**changes).get("notes", [])
    return found


@pytest.mark.parametrize(
    ("path", "title", "expected"),
    [
        ("org/name", "", "org/name"),
        ("org/name", "other", "org/name"),
        ("/org/name", "", "llama"),
        ("./name", "", "llama"),
        ("name", "", "llama"),
        ("a/b/c", "other", "other"),
        ("", "other", "other"),
    ],
)
def test_a_title_is_the_name_of_a_repository_if_the_config_has_one(
    path: str, title: str, expected: str
) -> None:
    assert keys(_name_or_path=path, title=title)["title"] == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "bf16"),
        ({"torch_dtype": "float16"}, "fp16"),
        ({"torch_dtype": "torch.float32"}, "fp32"),
        ({"dtype": "float16"}, "fp16"),
        ({"torch_dtype": None}, "bf16"),
        ({"torch_dtype": "auto"}, "bf16"),
    ],
)
def test_the_dtype_is_that_of_either_field(fields: dict[str, Any], expected: str) -> None:
    assert keys(**fields)["dtype"] == expected
    assumed = "The config names no dtype; bf16 is assumed."
    assert (assumed in notes(**fields)) is (fields == {"torch_dtype": None})


@pytest.mark.parametrize("value", [0, False, "", [], "int4"])
@pytest.mark.parametrize("field", ["dtype", "torch_dtype"])
def test_a_dtype_that_is_none_is_an_error(field: str, value: Any) -> None:
    message = refusal(keys, **{"torch_dtype": ..., field: value}).message
    assert message == f"config.json: dtype '{value}' is not supported"


@each(
    ("model_type", "class_name", "note"),
    [
        ("llama", "LlamaForCausalLM", None),
        ("llama", "LlamaForSequenceClassification", None),
        (
            "mistral",
            "LlamaForCausalLM",
            "architectures names LlamaForCausalLM, a class of llama; the figures are those of "
            "mistral, the model_type.",
        ),
        (
            "llama",
            "LlamaPlusForCausalLM",
            "architectures names LlamaPlusForCausalLM, which is not known as a class of llama; "
            "the figures are those of llama.",
        ),
        ("iquestcoder", "LlamaForCausalLM", None),  # transformers' own class of it
        ("llama", ..., None),
        (..., "LlamaForCausalLM", None),
    ],
)
def test_a_class_that_is_none_of_its_model_type_is_noted(
    model_type: Any, class_name: Any, note: str | None
) -> None:
    classes = class_name if class_name is ... else [class_name]
    found = notes(model_type=model_type, architectures=classes)
    assert [text for text in found if text.startswith("architectures names")] == (
        [note] if note else []
    )


@pytest.mark.parametrize(
    ("class_name", "head", "note"),
    [
        ("LlamaForCausalLM", None, False),
        ("LlamaModel", "none", False),
        ("LlamaForSequenceClassification", "none", True),
        ("LlamaForConditionalGeneration", None, False),
        ("LlamaLMHeadModel", None, False),
    ],
)
def test_the_class_decides_the_head(class_name: str, head: str | None, note: bool) -> None:
    found = keys(architectures=[class_name])
    assert found.get("head") == head
    assert (f"The head of {class_name} is not counted." in found.get("notes", [])) is note


@pytest.mark.parametrize(
    ("class_name", "unknown"),
    [
        ("", False),
        ("LlamaModel", False),
        ("LlamaForCausalLM", False),
        ("GPT2LMHeadModel", False),
        ("LlamaForSequenceClassification", True),
        ("LlamaForRetrievalModel", True),
        ("LlamaEncoder", True),
        ("LlamaForOneTask", False),  # a head of the family
    ],
)
def test_a_head_of_neither_a_language_model_nor_the_family_is_unknown(
    class_name: str, unknown: bool
) -> None:
    assert _has_unknown_head({"heads": {"ForOneTask": {}}}, class_name) is unknown


@pytest.mark.parametrize(
    ("mask", "fields", "noted"),
    [
        ("bidirectional", {}, True),
        ("bidirectional", {"architectures": ["XModel"]}, False),
        ("causal", {}, False),
        (None, {"architectures": ["XModel"]}, False),
    ],
)
def test_an_encoder_without_a_class_is_counted_without_a_task_head(
    mask: str | None, fields: dict[str, Any], noted: bool
) -> None:
    family = Family("x", {"mask": mask}, Fields({"dtype": "bfloat16", **fields}, UNKNOWN_CLASS))
    found = list(_Reader({}, family).general_notes())
    note = "The config names no class in architectures; the model without a task head is counted."
    assert found == [note] * noted


def test_scaling_multiplies_the_context_unless_positions_are_learned() -> None:
    scaling = {"rope_type": "linear", "factor": 4.0}
    assert keys(rope_scaling=scaling)["max_context"] == 4 * 256
    gpt2 = {
        "model_type": "gpt2",
        "n_layer": 2,
        "n_head": 4,
        "n_embd": 64,
        "vocab_size": 100,
        "n_positions": 50,
    }
    assert convert_config({**gpt2, "rope_scaling": scaling}, "c").data["max_context"] == 50


def test_the_first_field_that_is_not_supported_is_named() -> None:
    """internlm2 is the vendor's own class, which may read any field."""
    with pytest.raises(
        AttncalcError, match=r"^config\.json: num_experts 8 is not supported for internlm2"
    ):
        keys(
            model_type="internlm2",
            bias=False,
            tie_word_embeddings=False,
            num_experts=8,
            kv_lora_rank=4,
        )


@pytest.mark.parametrize("given", [{"model_type": "gemma3_text"}, {}])
def test_a_language_model_without_a_model_type_has_the_tables_of_its_family(
    given: dict[str, Any],
) -> None:
    """Gemma 3's sliding layers have their own base of rotary positions, in vLLM a second table."""
    text = {
        **given,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "head_dim": 16,
    }
    found = convert_config({"model_type": "gemma3", "text_config": text}, "c").data
    assert list(found["rope_tables"]) == ["full", "sliding"]


def test_a_whole_config_has_no_notes() -> None:
    assert notes() == []
    assert keys()["sources"] == [
        f"its config.json, read as transformers {transformers_version()}'s llama"
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model_type": ...}, "The config names no model_type; LlamaForCausalLM is read as llama."),
        ({"num_nextn_predict_layers": 2}, "Multi-token prediction layers (2) are not counted."),
        (
            {"vocab_size": ...},
            "The config omits vocab_size; the defaults of transformers' llama are used.",
        ),
        ({"quantization_config": {"quant_method": "fp8"}}, "Weights are released in fp8."),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "Experts are released in mxfp4."),
        (
            {"quantization_config": {"quant_method": "aqlm"}},
            "The quantization of the weights is not read: aqlm. Sizes assume the dtype shown.",
        ),
    ],
)
def test_a_note_says_what_is_missing_or_not_counted(fields: dict[str, Any], expected: str) -> None:
    assert notes(**fields) == [expected]


NAMED = "its name says FP8, and the config.json has no quantization_config"


def test_the_name_of_a_file_a_title_or_a_repository_may_tell_a_quantization() -> None:
    for found in (
        keys(file="some/Model-FP8/config.json"),
        keys(file="some\\Model-FP8\\config.json"),
        keys(title="Model-FP8"),
        keys(_name_or_path="org/Model-FP8"),
    ):
        assert found["unread_quantization"] == NAMED
        assert found["notes"] == [
            f"The quantization of the weights is not read: {NAMED}. Sizes assume the dtype shown."
        ]
    assert "unread_quantization" not in keys(file="Model-FP8/llama/config.json")
    read = keys(title="Model-FP8", quantization_config={"quant_method": "fp8"})
    assert "unread_quantization" not in read


def test_an_unknown_model_type_is_assumed_to_be_grouped() -> None:
    found = keys(model_type="brandnew", assume=True, num_loops=3, nothing=0, tokenizer_type="x")
    assert found["assumed"] == (
        "model_type 'brandnew' read as plain grouped attention. Ignored fields: num_loops."
    )
    assert found["sources"] == ["its config.json, whose model_type 'brandnew' is not known"]
    assert "model_type" not in found
    without = keys(model_type=..., architectures=..., assume=True)
    assert without["assumed"] == "a config without a model_type read as plain grouped attention."
    assert (without["title"], without["sources"]) == (
        "a model",
        ["its config.json, whose class is not known"],
    )


def test_an_error_names_the_file_and_offers_to_assume_grouped_attention_only_if_that_works() -> (
    None
):
    error = refusal(keys, model_type="brandnew")
    assert error.message.startswith("config.json: model_type 'brandnew' is not supported")
    assert error.tip.endswith("; --assume-grouped reads it as plain grouped attention")
    assert "--assume-grouped" not in refusal(keys, model_type="brandnew", hidden_size=...).tip


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"a": 1}, "a 1 is not supported for x"),
        ({"b": 2}, "the combination of a null, b 2 is not supported for x"),
        ({"c": 3}, "the combination of c 3, d 4 is not supported for x"),
    ],
)
def test_a_requirement_that_does_not_hold_names_its_fields(
    fields: dict[str, Any], message: str
) -> None:
    rules = {"require": ["=not a", "=not (b or a)", '=not c or not top["d"]']}
    family = Family("x", rules, Fields(fields, UNKNOWN_CLASS, Fields({"d": 4}, UNKNOWN_CLASS)))
    assert refusal(_check_requirements, family).message == message


class Inner:
    """A config object, as transformers' classes are."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def to_dict(self) -> dict[str, Any]:
        return self.fields


class Scalar:
    """A number as numpy and torch have them."""

    def item(self) -> int:
        return 5


class Dtype:
    def __str__(self) -> str:
        return "torch.bfloat16"


def test_objects_in_a_config_become_json() -> None:
    given = Inner(a=Inner(b=(1, 2)), c={3, 1}, d=Scalar(), e=Dtype(), f=frozenset("x"), g={1: None})
    assert fields_of(given) == {
        "a": {"b": [1, 2]},
        "c": [1, 3],
        "d": 5,
        "e": "bfloat16",
        "f": ["x"],
        "g": {"1": None},
    }
    assert (label_of(given), label_of({})) == ("Inner", "config")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (5, "a model cannot be given as '5', of class int"),
        (Inner, "of class type"),
        ({"a": Inner}, "config: a value is"),
        ({"a": object()}, "which a config.json cannot have"),
        ({(1, 2): 3}, "config: it cannot be written as JSON"),
        (Inner(a={(1, 2): 3}), "Inner: it cannot be written as JSON"),
    ],
)
def test_another_object_is_an_error(given: Any, message: str) -> None:
    assert message in refusal(fields_of, given).message


@pytest.mark.parametrize(
    ("path", "expected"),
    [("org/A", "A"), ("A", "A"), ("/home/x/A/", "A"), ("C:\\x\\A", "A"), ("", ""), (None, "")],
)
def test_a_config_is_called_by_the_last_part_of_its_path(path: Any, expected: str) -> None:
    assert name_of({"_name_or_path": path}) == expected


# Fields of an encoder's own config

T5: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 100,
    "sliding_window": 8,
}


def t5gemma(decoder: dict[str, Any], encoder: dict[str, Any]) -> dict[str, Any]:
    return {
        "model_type": "t5gemma",
        "vocab_size": 100,
        "decoder": {"model_type": "t5_gemma_module", **T5, **decoder},
        "encoder": {"model_type": "t5_gemma_module", **T5, **encoder},
    }


@pytest.mark.parametrize(
    ("decoder", "encoder"), [({"kv_lora_rank": 5}, {}), ({}, {"kv_lora_rank": 6})]
)
def test_a_field_of_the_encoder_or_decoder_is_named_with_its_own_value(
    decoder: dict[str, Any], encoder: dict[str, Any]
) -> None:
    config = {**t5gemma(decoder, encoder), "auto_map": {"AutoModel": "x"}}
    value = {**decoder, **encoder}["kv_lora_rank"]
    with pytest.raises(AttncalcError, match=f"kv_lora_rank {value} is not supported"):
        convert_config(config, "c")


# The file of a repository


@each(
    ("wanted", "names", "file"),
    [
        ("", ["config.json", "params.json", "a.safetensors"], "config.json"),
        ("", ["params.json", "adapter_config.json"], "params.json"),
        ("", ["adapter_config.json", "x"], "adapter_config.json"),
        ("", ["modules.json", "model_index.json"], "model_index.json"),
        ("", ["config.json", "a-Q8_0.gguf"], "a-Q8_0.gguf"),
        *(
            ("", ["config.json", "a-Q8_0.gguf", f"b{end}"], "config.json")
            for end in (".safetensors", ".bin", ".pt", ".pth")
        ),
        ("x/config.json", ["x/config.json", "config.json"], "x/config.json"),
        ("Q8_0", ["config.json", "a.safetensors", "a-Q8_0.gguf"], "a-Q8_0.gguf"),
        ("a.safetensors", ["config.json", "a.safetensors"], "config.json"),
        ("a.safetensors.index.json", ["config.json", "a.safetensors.index.json"], "config.json"),
    ],
)
def test_a_repository_has_one_model_file(wanted: str, names: list[str], file: str) -> None:
    assert _file_of(Repository("org/name", "main", wanted), frozenset(names)) == file


@pytest.mark.parametrize(
    ("wanted", "names", "message", "tip"),
    [
        ("", [], "(it has no files)", "write a model file"),
        ("", list("edcba"), "(it has a, b, c, d, e)", "write a model file"),
        ("", list("fedcba"), "(it has a, b, c, d, e, ...)", "write a model file"),
        (
            "x.json",
            ["config.json"],
            "the repository has no such file or quantization",
            "leave ':x.json' out",
        ),
        ("Q5_0", ["a-Q8_0.gguf"], "the repository has no such file or quantization", "it has Q8_0"),
    ],
)
def test_a_repository_without_a_model_file_is_an_error(
    wanted: str, names: list[str], message: str, tip: str
) -> None:
    error = refusal(_file_of, Repository("org/name", "main", wanted), frozenset(names))
    assert message in error.message
    assert error.tip.startswith(tip)


class Opened:
    """A folder that has some files and records which of them are prepared."""

    def __init__(self, *names: str) -> None:
        self.has, self.prepared = names, [""]

    def prepare(self, names: list[str]) -> None:
        self.prepared = names

    def open(self, name: str) -> Any:
        return name if name in self.has else None

    def label(self, name: str) -> str:
        return f"org/name/{name}"


def test_all_parts_of_a_gguf_model_are_opened_together() -> None:
    names = [f"x/a-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    folder: Any = Opened(*names)
    assert list(map(str, _parts(folder, names[0]))) == names
    assert folder.prepared == names
    single: Any = Opened("a.gguf")
    assert list(map(str, _parts(single, "a.gguf"))) == ["a.gguf"]
    error = refusal(_parts, Opened(names[0]), names[0])
    assert error.message == f"org/name/{names[0]}: 2 of its 3 files are missing, such as {names[1]}"
