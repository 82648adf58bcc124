"""Reading a config.json: what is understood, what is refused and with which words, and what is assumed."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from asking import Ask, results
from hypothesis import given
from hypothesis import strategies as st

import attncalc.config.huggingface
from attncalc import Workload, kv_cache, load, params
from attncalc.config import config_of, model_file
from attncalc.config.build import build
from attncalc.config.huggingface import document, families, read_families, refused
from attncalc.config.huggingface.fields import config_classes
from attncalc.config.huggingface.read import NOT_KEYS
from attncalc.config.huggingface.rules import FUNCTIONS
from attncalc.config.keys import is_stack_key, layer_keys, schema
from attncalc.config.schema import check
from attncalc.errors import AttncalcError
from attncalc.model import ModelSpec

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "vocab_size": 100,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
}


def read(**fields: Any) -> ModelSpec:
    """The model of a small llama's config with some fields changed; None takes one away."""
    config = {key: value for key, value in {**LLAMA, **fields}.items() if value is not ...}
    found = document(config, "config.json")
    check(found)
    return build(found, "config")


def refusal(**fields: Any) -> AttncalcError:
    with pytest.raises(AttncalcError) as caught:
        read(**fields)
    assert caught.value.message.startswith("config.json")
    assert caught.value.tip
    return caught.value


# what is understood


def test_a_llama_by_hand() -> None:
    # embedding and head 2 * 100 * 64; a layer: Q and O 2 * 64 * 64, K and V 2 * 64 * 16, MLP 3 * 64 * 128,
    # two norms of 64; the last norm 64
    assert params(read()).total == 2 * 100 * 64 + 3 * (2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 128 + 2 * 64) + 64
    # 2 sequences * 10 tokens * 3 layers * K and V of 2 heads * 8 in 2 bytes
    assert kv_cache(read(), Workload.decode(2, 10)).total == 2 * 10 * 3 * 2 * 2 * 8 * 2


def test_what_a_file_omits_is_its_classes_default() -> None:
    # LlamaConfig: 32 layers of 32 heads, no GQA, 4096 wide: LLaMA 7B
    spec = build(document({"model_type": "llama"}, "c"), "c")
    assert params(spec).total == 6_738_415_616


def test_a_field_by_its_other_name() -> None:
    # GPT2Config knows n_embd, n_layer and n_head, and answers to hidden_size
    by_own = document({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4}, "c").data
    by_other = document(
        {"model_type": "gpt2", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}, "c"
    ).data
    assert by_own == by_other


def test_a_window_counts_where_it_is_switched_on() -> None:
    def kept(**fields: Any) -> int:
        return int(kv_cache(read(model_type="qwen2", sliding_window=16, **fields), Workload.decode(1, 100)).total)

    per_token = 2 * 2 * 8 * 2
    assert kept(use_sliding_window=False, max_window_layers=1) == 3 * 100 * per_token
    # layers 0 and 1 of 3 are full, layer 2 keeps its window
    assert kept(use_sliding_window=True, max_window_layers=2) == (2 * 100 + 16) * per_token


@pytest.mark.parametrize(
    ("dtype", "name"), [("float16", "fp16"), ("torch.bfloat16", "bf16"), ("float32", "fp32"), ("auto", "bf16")]
)
def test_the_dtype_it_is_released_in(dtype: str, name: str) -> None:
    assert read(torch_dtype=dtype).dtype == name


def test_a_dtype_that_is_not_said_is_said_to_be_taken() -> None:
    assert any("names no dtype" in note for note in read(torch_dtype=...).notes)


def test_a_tower_is_said_not_to_be_counted() -> None:
    text = {key: value for key, value in LLAMA.items() if key not in ("architectures", "torch_dtype")}
    config = {"model_type": "llava", "text_config": text, "vision_config": {"model_type": "clip_vision_model"}}
    spec = build(document(config, "c"), "c")
    assert params(spec).total == params(read()).total
    assert "The vision tower is not counted." in spec.notes


@pytest.mark.parametrize(
    ("said", "packed"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, None),
        ({"quant_method": "compressed-tensors"}, None),
    ],
)
def test_quantised_weights_are_said_to_be(said: dict[str, Any], packed: str | None) -> None:
    spec = read(quantization_config=said)
    assert spec.weights_dtype == packed
    assert any(f"released {'quantised' if packed is None else f'in {packed}'};" in note for note in spec.notes)


def test_experts_alone_are_said_to_be_released_in_mxfp4() -> None:
    spec = read(quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})
    assert (spec.weights_dtype, spec.experts_dtype) == (None, "mxfp4")
    assert any(note.startswith("Experts are released in mxfp4;") for note in spec.notes)


def test_a_head_that_is_not_counted_is_said() -> None:
    spec = read(architectures=["LlamaForSequenceClassification"])
    assert params(spec).head == 0
    assert any("LlamaForSequenceClassification" in note for note in spec.notes)


# what is refused

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a model_type that is not known": ({"model_type": "lama"}, "model_type 'lama' is not modelled"),
    "no model_type": ({"model_type": ...}, "model_type is missing"),
    "a model_type that is no word": ({"model_type": 7}, "model_type is missing"),
    "a layer that is not known": (
        {"model_type": "qwen2", "layer_types": ["full_attention", "retention", "full_attention"]},
        "layer 1: 'retention' is not a layer",
    ),
    "fewer layer_types than layers": (
        {"model_type": "qwen2", "layer_types": ["full_attention"]},
        "layer_types has 1 entries for 3 layers",
    ),
    "a window that is switched off": (
        {"model_type": "qwen2", "layer_types": ["sliding_attention"] * 3},
        "layer 0: sliding_attention without a window",
    ),
    "two names that contradict": (
        {"model_type": "gpt2", "n_embd": 64, "hidden_size": 128},
        "hidden_size 128 and n_embd 64 contradict each other",
    ),
    "a leftover that contradicts": ({"d_model": 65}, "d_model 65: not modelled for llama"),
    "a field of another family": ({"num_kv_shared_layers": 2}, "num_kv_shared_layers 2: not modelled for llama"),
    "a latent that a llama has not": ({"kv_lora_rank": 512}, "kv_lora_rank 512: not modelled for llama"),
    "a word for a number": ({"hidden_size": "large"}, "hidden_size 'large' is not a whole number"),
    "half a layer": ({"num_hidden_layers": 2.5}, "num_hidden_layers 2.5 is not a whole number"),
    "no layers": ({"num_hidden_layers": 0}, "0 layers"),
    "a billion layers": ({"num_hidden_layers": 10**9}, "1000000000 layers"),
    "a negative size": ({"intermediate_size": -5}, "intermediate_size -5 is not a whole number"),
    "a size that is infinite": ({"hidden_size": float("inf")}, "hidden_size inf is not a whole number"),
    "yes for a number": ({"hidden_size": True}, "hidden_size True is not a whole number"),
    "a number for yes": ({"attention_bias": "no"}, "attention_bias 'no' is not true or false"),
    "heads that do not divide": ({"num_key_value_heads": 3}, "n_kv_heads: 3 does not divide n_heads 8"),
    "nothing for a size": ({"hidden_size": None}, "cannot make anything of"),
    "a dtype that is not one": ({"torch_dtype": "float8_e4m3fn"}, "dtype 'float8_e4m3fn' is not modelled"),
    "a wrapper without its language side": ({"model_type": "llava"}, "text_config is missing"),
    "a language side of another class than the wrapper's": (
        {"model_type": "qwen2_5_vl", "text_config": {"model_type": "llama"}},
        "text_config.model_type 'llama': the class of qwen2_5_vl makes it a qwen2_5_vl_text",
    ),
    "a wrapper around what is not known": (
        {"model_type": "llava", "text_config": {"model_type": "nobody"}},
        "text_config.model_type 'nobody' is not modelled",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_understood_is_refused_by_name(what: str) -> None:
    fields, words = WRONG[what]
    assert words in refusal(**fields).message


def test_a_family_that_is_refused_says_why() -> None:
    assert refused()
    for name, why in refused().items():
        with pytest.raises(AttncalcError, match="is not modelled") as caught:
            document({"model_type": name}, "config.json")
        assert name in caught.value.message
        assert why


def test_every_class_of_a_language_model_is_read_or_refused() -> None:
    whole = {name for name, kind in config_classes().items() if kind.language}
    assert whole <= set(read_families()) | set(refused()) | {n for n, r in families().items() if r.get("part")}
    assert not set(read_families()) & set(refused())


def test_what_assume_grouped_reads_by_is_no_family() -> None:
    assert "assumed" not in read_families()
    assert "model_type 'assumed' is not modelled" in refusal(model_type="assumed").message


CONTENT = {
    "not JSON": (b'{"model_type": ', "not JSON"),
    "a key twice": (b'{"model_type": "llama", "hidden_size": 1, "hidden_size": 2}', "hidden_size: given twice"),
    "nested too deep": (b'{"a": ' * 100_000, "JSON that cannot be read"),
    "a number without end": (b'{"model_type": "llama", "hidden_size": ' + b"9" * 10_000 + b"}", "cannot be read"),
    "not text": (b'{"model_type": "\xff"}', "not a text file"),
}


@pytest.mark.parametrize("what", CONTENT)
def test_a_file_that_is_no_config(ask: Ask, tmp_path: Path, what: str) -> None:
    content, words = CONTENT[what]
    (tmp_path / "config.json").write_bytes(content)
    answer = ask("kv", str(tmp_path))
    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err
    assert len(answer.err.splitlines()) == 2


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.sampled_from(["full_attention", "sliding_attention", 1, None]), max_size=4),
    st.dictionaries(st.sampled_from(["a", "num_heads"]), st.integers(), max_size=2),
)


@given(st.sampled_from(read_families()), st.data())
def test_whatever_a_config_says_it_is_read_or_refused(name: str, data: st.DataObject) -> None:
    """No value of any field gets anything but figures or an error for the reader."""
    fields = sorted(config_classes()[name].defaults) if name in config_classes() else ["hidden_size"]
    changed = data.draw(st.dictionaries(st.sampled_from(fields or ["hidden_size"]), VALUES, max_size=3))
    config = {"model_type": name, **changed}
    part = families()[name].get("text")
    if part:
        inner = config_classes()[name].inside.get(part) if name in config_classes() else "llama"
        config = {"model_type": name, part: {"model_type": inner, **changed}}
    said = ""
    try:
        found = document(config, "config.json")
        check(found)
        assert params(build(found, "config")).total > 0
    except AttncalcError as error:
        said = error.message
    assert not said or (said.startswith("config.json") and said.isprintable())


# the rules are data


def formulas(rules: Any) -> list[str]:
    if isinstance(rules, dict):
        return [f for rule in rules.values() for f in formulas(rule)]
    if isinstance(rules, list):
        return [f for rule in rules for f in formulas(rule)]
    return [rules] if isinstance(rules, str) and rules.startswith("=") else []


@pytest.mark.parametrize("name", sorted(families()))
def test_the_rules_of_a_family_name_keys_and_fields_that_there_are(name: str) -> None:
    rules = families()[name]
    keys = {*schema()["properties"], *NOT_KEYS}
    assert set(rules) <= keys
    assert set(rules.get("encoder", {})) <= {
        *NOT_KEYS,
        "of",
        "extra_params",
        *filter(is_stack_key, schema()["properties"]),
    }
    for keys_of_kind in (rules.get("kinds") or {}).values():
        assert set(keys_of_kind or {}) <= set(layer_keys())
    for formula in formulas(rules):
        calls = [node.func for node in ast.walk(ast.parse(formula[1:].strip())) if isinstance(node, ast.Call)]
        called = {function.id for function in calls if isinstance(function, ast.Name)}
        assert called <= set(FUNCTIONS)


def test_no_family_is_written_twice() -> None:
    """In one table or in two: the second would silently replace the first."""
    folder = Path(attncalc.config.huggingface.__file__).parent
    names = [
        line.partition(":")[0]
        for file in sorted(folder.glob("*.yaml"))
        for line in file.read_text().splitlines()
        if line[:1].isalpha()
    ]
    assert sorted(names) == sorted(set(names))


# --assume-grouped

UNKNOWN = {**LLAMA, "model_type": "nobody", "sliding_window": 7}


def test_an_unknown_type_may_be_assumed_to_be_plain(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(UNKNOWN))
    assert ask("kv", str(tmp_path)).code == 2
    answer = ask("kv", str(tmp_path), "--assume-grouped", "--json", "-c", "10")
    assert answer.code == 0
    assert results(answer)["kv_cache"] == 10 * 3 * 2 * 2 * 8 * 2
    report = json.loads(answer.out)
    assert "nobody" in report["model"]["assumed"]
    assert "sliding_window" in report["model"]["assumed"]
    assert all(result["source"].startswith("assumed") for result in report["results"])
    screen = ask("kv", str(tmp_path), "--assume-grouped").out
    assert "ASSUMED: model_type 'nobody' read as plain grouped attention" in " ".join(screen.split())


def test_a_known_type_is_never_assumed() -> None:
    assert not load_config(LLAMA).assumed


def load_config(config: dict[str, Any], assume_grouped: bool = True) -> ModelSpec:
    return build(document(config, "c", assume_grouped=assume_grouped), "c")


def test_an_assumed_preset_stays_assumed(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(UNKNOWN))
    file = tmp_path / "kept.yaml"
    assert ask("presets", "add", str(tmp_path), "--assume-grouped", "-o", str(file)).code == 0
    assert "nobody" in load(file).assumed
    assert load(file).model_type is None


# ways in


def test_a_path_a_folder_and_standard_input_say_the_same(ask: Ask, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    answers = [ask("kv", str(where), "--json") for where in (folder, folder / "config.json")]
    answers.append(ask("kv", "-", "--json", stdin=json.dumps(LLAMA)))
    assert [answer.code for answer in answers] == [0, 0, 0]
    assert len({json.dumps(results(answer)) for answer in answers}) == 1
    assert json.loads(answers[0].out)["model"]["title"] == "small"


def test_a_config_wins_over_other_files_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "mergekit_config.yml").write_text("models: []")
    assert load(tmp_path).main.n_layers == 3


def test_a_config_is_there_to_be_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert config_of(tmp_path) == LLAMA
    assert config_of("llama2-70b") is None


@pytest.mark.parametrize("command", ["kv", "params", "flops", "memory", "compare"])
def test_every_command_reads_a_config(ask: Ask, tmp_path: Path, command: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert ask(command, str(tmp_path)).code == 0
    assert ask(command, str(tmp_path), "--explain").code == 0


def test_a_preset_is_written_once_and_kept(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    file = tmp_path / "mine.yaml"
    assert ask("presets", "add", str(tmp_path), "-o", str(file)).code == 0
    assert params(load(file)).total == params(load(tmp_path)).total
    assert "transformers" in file.read_text()
    assert load(file).model_type == load(tmp_path).model_type == "llama"
    again = ask("presets", "add", str(tmp_path), "-o", str(file))
    assert (again.code, again.out) == (2, "")
    with pytest.raises(AttncalcError, match="a model file already"):
        model_file("gpt2")


def test_the_families_are_listed(ask: Ask) -> None:
    answer = ask("presets", "families", "--json")
    listed = json.loads(answer.out)
    assert "llama" in listed["read"]
    assert set(listed["refused"]) == set(refused())
    text = ask("presets", "families").out
    assert "llama" in text
    assert max(map(len, text.splitlines())) <= 80


# what screens say of such models


def example(ask: Ask, name: str, command: str, *options: str) -> str:
    """What a command says of one of the measured models, from its config on standard input."""
    measured = json.loads((Path(__file__).parent / "data" / "huggingface.json").read_text())
    answer = ask(command, "-", *options, stdin=json.dumps(measured[name]["config"]))
    assert answer.code == 0
    return " ".join(answer.out.split())


def test_a_screen_says_who_keeps_what(ask: Ask) -> None:
    shared = example(ask, "gemma3n-e4b", "kv", "--engine", "transformers")
    assert "15 of 35 layers reuse the K and V of an earlier layer." in shared
    assert "16 of 35 layers attend to a window of 512 tokens" in shared
    assert "one token less than the window" in shared
    assert "once per query head" in example(ask, "falcon-180b", "kv", "--engine", "transformers")
    assert "Recurrent states are stored in fp32" in example(ask, "jamba-v0.1", "kv")
    assert "which are not counted" in example(ask, "llama-3.2-11b-vision", "kv")


def test_there_is_no_mha_of_a_model_without_heads_of_keys(ask: Ask) -> None:
    found = {r["name"]: r["value"] for r in json.loads(example(ask, "falcon-mamba-7b", "kv", "--json"))["results"]}
    assert (found["kv_cache_if_mha"], found["kv_cache_ratio_if_mha"]) == (None, None)
    assert "of MHA" not in example(ask, "falcon-mamba-7b", "compare")


@pytest.mark.parametrize("name", ["granite-4.0-h-tiny", "minimax-text-01", "zamba2-7b"])
def test_no_two_figures_of_params_have_one_name(ask: Ask, name: str) -> None:
    report = json.loads(example(ask, name, "params", "--json"))
    for listed in (report["results"], *(layer["results"] for layer in report["layers"])):
        names = [result["name"] for result in listed]
        assert len(set(names)) == len(names)
    of = {result["name"]: result["value"] for result in report["results"]}
    parts = ("attention", "mlp", "embedding", "head", "norm", "other")
    assert of["params_total"] == sum(of[f"params_{part}"] for part in parts)
