"""Reading a config.json: supported configs, errors and their messages, and assumptions."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from asking import Ask, refusal, results
from configs import SMALL_LLAMA as LLAMA
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from attncalc import Workload, kv_cache, load, params
from attncalc.config import load_with_config, to_model_file
from attncalc.config.build import build_model
from attncalc.config.huggingface import (
    convert_config,
    supported_model_types,
    unsupported_model_types,
)
from attncalc.config.huggingface.family import FOLDER, RULE_KEYS, as_list, families
from attncalc.config.huggingface.fields import config_classes
from attncalc.config.huggingface.formulas import FUNCTIONS
from attncalc.config.keys import is_stack_key, layer_keys, schema
from attncalc.config.schema import check
from attncalc.errors import AttncalcError
from attncalc.model import ModelSpec


def read(**fields: Any) -> ModelSpec:
    """Return the model of a small LLaMA's config with some fields changed; `...` removes one."""
    config = {key: value for key, value in {**LLAMA, **fields}.items() if value is not ...}
    document = convert_config(config, "config.json")
    check(document)
    return build_model(document, "config")


def error_of(**fields: Any) -> AttncalcError:
    error = refusal(read, **fields)
    assert error.message.startswith("config.json")
    assert error.tip
    return error


# Supported configs


def test_a_llama_config_gives_the_spec_written_by_hand() -> None:
    # embedding and head 2 * 100 * 64; a layer: Q and O 2 * 64 * 64, K and V 2 * 64 * 16, MLP 3 * 64
    # * 128, two norms of 64; the last norm 64
    assert (
        params(read()).total
        == 2 * 100 * 64 + 3 * (2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 128 + 2 * 64) + 64
    )
    # 2 sequences * 10 tokens * 3 layers * K and V of 2 heads * 8 in 2 bytes
    assert kv_cache(read(), Workload.decode(2, 10)).total == 2 * 10 * 3 * 2 * 2 * 8 * 2


def test_an_omitted_size_has_the_default_of_its_class_and_is_noted() -> None:
    # LlamaConfig: 32 layers of 32 heads, no GQA, 4096 wide: LLaMA 7B
    spec = build_model(convert_config({"model_type": "llama", "hidden_size": 4096}, "c"), "c")
    assert params(spec).total == 6_738_415_616
    omitted = (
        "intermediate_size, max_position_embeddings, num_attention_heads, num_hidden_layers, "
        "vocab_size"
    )
    assert (
        f"The config omits {omitted}; the defaults of transformers' llama are used." in spec.notes
    )
    assert not any("omits" in note for note in read().notes)


def test_a_field_may_have_another_of_its_names() -> None:
    # GPT2Config knows n_embd, n_layer and n_head, and answers to hidden_size
    by_own = convert_config(
        {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4}, "c"
    ).data
    by_other = convert_config(
        {"model_type": "gpt2", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
        "c",
    ).data
    assert by_own == by_other


def test_a_window_has_an_effect_only_if_it_is_switched_on() -> None:
    def cache_bytes(**fields: Any) -> int:
        return int(
            kv_cache(
                read(model_type="qwen2", sliding_window=16, **fields), Workload.decode(1, 100)
            ).total
        )

    per_token = 2 * 2 * 8 * 2
    assert cache_bytes(use_sliding_window=False, max_window_layers=1) == 3 * 100 * per_token
    # layers 0 and 1 of 3 are full, layer 2 caches its window
    assert cache_bytes(use_sliding_window=True, max_window_layers=2) == (2 * 100 + 16) * per_token


@pytest.mark.parametrize(
    ("dtype", "name"),
    [("float16", "fp16"), ("torch.bfloat16", "bf16"), ("float32", "fp32"), ("auto", "bf16")],
)
def test_the_dtype_is_the_released_one(dtype: str, name: str) -> None:
    assert read(torch_dtype=dtype).dtype == name


def test_a_missing_dtype_is_noted() -> None:
    assert any("names no dtype" in note for note in read(torch_dtype=...).notes)


@pytest.mark.parametrize(
    ("vision", "note"),
    [
        (
            "clip_vision_model",
            "The vision tower is not counted, except in the size of the weights.",
        ),
        ("a_new_tower", "The vision tower is not counted."),
    ],
)
def test_a_tower_is_noted(vision: str, note: str) -> None:
    text = {
        key: value for key, value in LLAMA.items() if key not in ("architectures", "torch_dtype")
    }
    config = {"model_type": "llava", "text_config": text, "vision_config": {"model_type": vision}}
    spec = build_model(convert_config(config, "c"), "c")
    assert params(spec).total == params(read()).total
    assert note in spec.notes


@pytest.mark.parametrize(
    ("scheme", "released"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "int4"),
        ({"quant_method": "gptq", "bits": 9}, None),
        ({"quant_method": "compressed-tensors"}, None),
        ({"quant_method": "hqq"}, None),
    ],
)
def test_quantised_weights_are_noted(scheme: dict[str, Any], released: str | None) -> None:
    spec = read(quantization_config=scheme)
    assert spec.weights_dtype == released
    noted = (
        "quantization of the weights is not read" if released is None else f"released in {released}"
    )
    assert any(noted in note for note in spec.notes)
    assert bool(spec.unread_quantization) == (released is None)


def test_mxfp4_is_the_dtype_of_the_experts_alone() -> None:
    spec = read(
        quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    )
    assert (spec.weights_dtype, spec.experts_dtype) == (None, "mxfp4")
    assert any(note.startswith("Experts are released in mxfp4.") for note in spec.notes)


def test_a_head_that_is_not_counted_is_noted() -> None:
    spec = read(architectures=["LlamaForSequenceClassification"])
    assert params(spec).head == 0
    assert any("LlamaForSequenceClassification" in note for note in spec.notes)


# Errors

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a model_type that is not known": (
        {"model_type": "lama"},
        "model_type 'lama' is not supported",
    ),
    "no model_type and no class": (
        {"model_type": ..., "architectures": ...},
        "model_type is missing",
    ),
    "a model_type that is no word": ({"model_type": 7}, "model_type is missing"),
    "a layer that is not known": (
        {"model_type": "qwen2", "layer_types": ["full_attention", "retention", "full_attention"]},
        "layer 1: 'retention' is not a kind of layer that is supported",
    ),
    "fewer layer_types than layers": (
        {"model_type": "qwen2", "layer_types": ["full_attention"]},
        "layer_types has 1 entries for 3 layers",
    ),
    "a window that is switched off": (
        {"model_type": "qwen2", "layer_types": ["sliding_attention"] * 3},
        "layer 0: sliding_attention needs a window",
    ),
    "a window in a llama, which vLLM applies": (
        {"sliding_window": 64},
        "sliding_window 64 is not supported for llama",
    ),
    "a head that vLLM and SGLang would widen": (
        {"v_head_dim": 16},
        "v_head_dim 16 is not supported for llama",
    ),
    "a word for a number": ({"hidden_size": "large"}, "hidden_size 'large' is not a whole number"),
    "half a layer": ({"num_hidden_layers": 2.5}, "num_hidden_layers 2.5 is not a whole number"),
    "no layers": ({"num_hidden_layers": 0}, "the number of layers is 0"),
    "a billion layers": ({"num_hidden_layers": 10**9}, "the number of layers is 1000000000"),
    "a negative size": (
        {"intermediate_size": -5},
        "intermediate_size is -5; it must be at least 1",
    ),
    "a size that is infinite": (
        {"hidden_size": float("inf")},
        "hidden_size Infinity is not a whole number",
    ),
    "yes for a number": ({"hidden_size": True}, "hidden_size True is not a whole number"),
    "a number for yes": ({"attention_bias": "no"}, "attention_bias 'no' is not true or false"),
    "heads that do not divide": (
        {"num_key_value_heads": 3},
        "num_key_value_heads: 3 does not divide num_attention_heads 8",
    ),
    "nothing for a size": ({"hidden_size": None}, "hidden_size null is not a whole number"),
    "a dtype that is not one": (
        {"torch_dtype": "float8_e4m3fn"},
        "dtype 'float8_e4m3fn' is not supported",
    ),
    "a wrapper without its language side": ({"model_type": "paligemma"}, "text_config is missing"),
    "a language side of another class than the wrapper's": (
        {"model_type": "qwen2_5_vl", "text_config": {"model_type": "llama"}},
        "text_config.model_type 'llama': the class of qwen2_5_vl makes it a qwen2_5_vl_text",
    ),
    "a wrapper around an unknown model_type": (
        {"model_type": "llava", "text_config": {"model_type": "nobody"}},
        "text_config.model_type 'nobody' is not supported",
    ),
}


@each("case", WRONG)
def test_a_config_that_is_not_supported_is_an_error_that_names_the_field(case: str) -> None:
    fields, message = WRONG[case]
    assert message in error_of(**fields).message


def test_fields_that_a_formula_cannot_use_are_named_with_their_values() -> None:
    error = error_of(model_type="helium", head_dim=9)
    assert "the combination of" in error.message
    assert "head_dim 9" in error.message
    assert error.message.endswith("is not supported for helium")


def test_an_unsupported_family_gives_a_reason() -> None:
    assert unsupported_model_types()
    for name, why in unsupported_model_types().items():
        with pytest.raises(AttncalcError, match="is not supported") as caught:
            convert_config({"model_type": name}, "config.json")
        assert name in caught.value.message
        assert why


def test_every_language_model_of_transformers_is_supported_or_gives_a_reason() -> None:
    models = {
        name for name, config_class in config_classes().items() if config_class.is_language_model
    }
    parts = {name for name, rules in families().items() if rules.get("part")}
    assert models <= set(supported_model_types()) | set(unsupported_model_types()) | parts
    assert not set(supported_model_types()) & set(unsupported_model_types())


def test_assume_grouped_is_not_listed_as_a_family() -> None:
    assert "assumed" not in supported_model_types()
    assert "model_type 'assumed' is not supported" in error_of(model_type="assumed").message


CONTENT = {
    "not JSON": (b'{"model_type": ', "not JSON"),
    "a key twice": (
        b'{"model_type": "llama", "hidden_size": 1, "hidden_size": 2}',
        "hidden_size: given twice",
    ),
    "nested too deep": (b'{"a": ' * 100_000, "JSON that cannot be read"),
    "a number of 10,000 digits": (
        b'{"model_type": "llama", "hidden_size": ' + b"9" * 10_000 + b"}",
        "Infinity is not",
    ),
    "not UTF-8": (b'{"model_type": "\xff"}', "not a text file"),
}


@pytest.mark.parametrize("case", CONTENT)
def test_a_file_that_is_not_a_config_is_an_error_with_a_tip(
    ask: Ask, tmp_path: Path, case: str
) -> None:
    content, message = CONTENT[case]
    (tmp_path / "config.json").write_bytes(content)
    error = ask("kv", str(tmp_path)).error
    assert message in error
    assert len(error.splitlines()) == 2


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.sampled_from(["full_attention", "sliding_attention", 1, None]), max_size=4),
    st.dictionaries(st.sampled_from(["a", "num_heads"]), st.integers(), max_size=2),
)


@given(st.sampled_from(supported_model_types()), st.data())
def test_any_value_of_any_field_gives_figures_or_an_error(name: str, data: st.DataObject) -> None:
    fields = (
        sorted(config_classes()[name].defaults) if name in config_classes() else ["hidden_size"]
    )
    changed = data.draw(
        st.dictionaries(st.sampled_from(fields or ["hidden_size"]), VALUES, max_size=3)
    )
    config = {"model_type": name, **changed}
    part = next(iter(as_list(families()[name].get("text"))), None)
    if part:
        inner = (
            config_classes()[name].sub_configs.get(part) if name in config_classes() else "llama"
        )
        config = {"model_type": name, part: {"model_type": inner, **changed}}
    message = ""
    try:
        document = convert_config(config, "config.json")
        check(document)
        assert params(build_model(document, "config")).total > 0
    except AttncalcError as error:
        message = error.message
    assert not message or (message.startswith("config.json") and message.isprintable())


# Rules of the families


def formulas(rules: Any) -> list[str]:
    if isinstance(rules, dict):
        return [f for rule in rules.values() for f in formulas(rule)]
    if isinstance(rules, list):
        return [f for rule in rules for f in formulas(rule)]
    return [rules] if isinstance(rules, str) and rules.startswith("=") else []


@each("name", sorted(families()))
def test_a_family_uses_only_known_keys_and_functions(name: str) -> None:
    rules = families()[name]
    keys = {*schema()["properties"], *RULE_KEYS}
    assert set(rules) <= keys
    assert set(rules.get("encoder", {})) <= {
        *RULE_KEYS,
        "config",
        "extra_params",
        *filter(is_stack_key, schema()["properties"]),
    }
    for keys_of_kind in (rules.get("kinds") or {}).values():
        assert set(keys_of_kind or {}) <= set(layer_keys())
    for formula in formulas(rules):
        calls = [
            node.func
            for node in ast.walk(ast.parse(formula[1:].strip()))
            if isinstance(node, ast.Call)
        ]
        called = {function.id for function in calls if isinstance(function, ast.Name)}
        assert called <= set(FUNCTIONS)


def test_no_family_is_defined_twice() -> None:
    """The second rules would silently replace the first."""
    names = [
        line.partition(":")[0]
        for file in sorted(FOLDER.glob("*.yaml"))
        for line in file.read_text().splitlines()
        if line[:1].isalpha()
    ]
    assert sorted(names) == sorted(set(names))


# --assume-grouped

UNKNOWN = {**LLAMA, "model_type": "nobody", "sliding_window": 7}


def test_assume_grouped_reads_an_unknown_model_type(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(UNKNOWN))
    assert ask("kv", str(tmp_path)).code == 2
    answer = ask("kv", str(tmp_path), "--assume-grouped", "--json", "-c", "10")
    assert answer.code == 0
    assert results(answer)["kv_cache"] == 10 * 3 * 2 * 2 * 8 * 2
    report = answer.document
    assert "nobody" in report["model"]["assumed"]
    assert "sliding_window" in report["model"]["assumed"]
    assert all(result["source"].startswith("assumed") for result in report["results"])
    screen = ask("kv", str(tmp_path), "--assume-grouped").out
    assert "ASSUMED: model_type 'nobody' read as plain grouped attention" in " ".join(
        screen.split()
    )


def test_assume_grouped_does_not_change_a_known_model_type() -> None:
    assert not load_config(LLAMA).assumed


def load_config(config: dict[str, Any], assume_grouped: bool = True) -> ModelSpec:
    return build_model(convert_config(config, "c", assume_grouped=assume_grouped), "c")


def test_a_preset_from_an_assumed_config_stays_assumed(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(UNKNOWN))
    file = tmp_path / "assumed.yaml"
    assert ask("presets", "add", str(tmp_path), "--assume-grouped", "-o", str(file)).code == 0
    assert "nobody" in load(file).assumed
    assert load(file).model_type is None


# Sources of a config


def test_a_path_a_folder_and_standard_input_give_the_same_model(ask: Ask, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    answers = [ask("kv", str(path), "--json") for path in (folder, folder / "config.json")]
    answers.append(ask("kv", "-", "--json", stdin=json.dumps(LLAMA)))
    assert [answer.code for answer in answers] == [0, 0, 0]
    assert len({json.dumps(results(answer)) for answer in answers}) == 1
    assert json.loads(answers[0].out)["model"]["title"] == "small"


def test_a_folders_config_json_is_preferred_to_its_other_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "mergekit_config.yml").write_text("models: []")
    assert load(tmp_path).main.n_layers == 3


def test_the_fields_of_a_config_are_available_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert load_with_config(tmp_path) == (load(tmp_path), LLAMA)
    assert load_with_config("gpt3") == (load("gpt3"), None)


@pytest.mark.parametrize("command", ["kv", "params", "flops", "memory", "compare"])
def test_every_command_reads_a_config(ask: Ask, tmp_path: Path, command: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert ask(command, str(tmp_path)).code == 0
    assert ask(command, str(tmp_path), "--explain").code == 0


def test_presets_add_writes_a_preset_and_does_not_overwrite_it(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    file = tmp_path / "mine.yaml"
    assert ask("presets", "add", str(tmp_path), "-o", str(file)).code == 0
    assert params(load(file)).total == params(load(tmp_path)).total
    assert "transformers" in file.read_text()
    assert load(file).model_type == load(tmp_path).model_type == "llama"
    again = ask("presets", "add", str(tmp_path), "-o", str(file))
    assert (again.code, again.out) == (2, "")
    with pytest.raises(AttncalcError, match="is already a model file"):
        to_model_file("gpt2")


def test_the_families_are_listed(ask: Ask) -> None:
    listed = ask("presets", "families", "--json").document
    assert "llama" in listed["read"]
    assert set(listed["refused"]) == set(unsupported_model_types())
    text = ask("presets", "families").out
    assert "llama" in text
    assert max(map(len, text.splitlines())) <= 80


# Screens of these models


def screen_of(ask: Ask, name: str, command: str, *options: str) -> str:
    """Return what a command prints about one of the measured models, from its config on standard
    input.
    """
    measured = json.loads((Path(__file__).parent / "data" / "huggingface.json").read_text())
    answer = ask(command, "-", *options, stdin=json.dumps(measured[name]["config"]))
    assert answer.code == 0
    return " ".join(answer.out.split())


def test_notes_explain_caches_that_are_not_plain(ask: Ask) -> None:
    shared = screen_of(ask, "gemma3n-e4b", "kv", "--engine", "transformers")
    assert "15 of 35 layers reuse the K and V of an earlier layer." in shared
    assert "16 of 35 layers attend to a window of 512 tokens" in shared
    assert "one token less than the window" in shared
    assert "once per query head" in screen_of(ask, "falcon-180b", "kv", "--engine", "transformers")
    assert "Recurrent states are stored in fp32" in screen_of(ask, "jamba-v0.1", "kv")
    assert "which are not counted" in screen_of(ask, "llama-3.2-11b-vision", "kv")


def test_a_model_without_kv_heads_has_no_mha_figure(ask: Ask) -> None:
    figures = {
        r["name"]: r["value"]
        for r in json.loads(screen_of(ask, "falcon-mamba-7b", "kv", "--json"))["results"]
    }
    assert (figures["kv_cache_if_mha"], figures["kv_cache_ratio_if_mha"]) == (None, None)
    assert "of MHA" not in screen_of(ask, "falcon-mamba-7b", "compare")


@pytest.mark.parametrize("name", ["granite-4.0-h-tiny", "minimax-text-01", "zamba2-7b"])
def test_no_two_figures_of_params_have_one_name(ask: Ask, name: str) -> None:
    report = json.loads(screen_of(ask, name, "params", "--json"))
    for listed in (report["results"], *(layer["results"] for layer in report["layers"])):
        names = [result["name"] for result in listed]
        assert len(set(names)) == len(names)
    of = {result["name"]: result["value"] for result in report["results"]}
    parts = ("attention", "mlp", "embedding", "head", "norm", "other")
    assert of["params_total"] == sum(of[f"params_{part}"] for part in parts)
