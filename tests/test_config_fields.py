"""The fields of a config.json: which of them are read, which are ignored with a note, and which are
an error.
"""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from asking import Ask, refusal
from configs import SMALL_LLAMA as LLAMA
from configs import spec_of
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from attncalc import Workload, kv_cache, params
from attncalc.config.huggingface.architectures import is_class_of, model_type_of_class
from attncalc.config.huggingface.family import families, supported_model_types
from attncalc.config.huggingface.fields import config_classes
from attncalc.config.huggingface.unused_fields import READ_BY_ENGINES
from attncalc.config.size_names import NAMES
from attncalc.errors import AttncalcError
from attncalc.model import ModelSpec

MEASURED: dict[str, dict[str, Any]] = {
    name: entry["config"]
    for name, entry in json.loads(
        (Path(__file__).parent / "data" / "huggingface.json").read_text()
    ).items()
    if entry["config"]["model_type"] != "csm"  # which is not supported
}


# Released configs, without fields that change nothing, and the parameters of their classes.
#
# `params` is what transformers 5.23's class has on the meta device. For Qwen-14B, CodeFuse
# (Qwen-7B), nomic-embed-text, Falcon-40B, Phi-2 and MiniMax-Text-01, whose classes are the
# vendor's, it is the published number. The fields below made each an error, or would have been
# ignored.
RELEASES: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "releases.json").read_text()
)
NOTES = {
    "Qwen3-Coder-480B-A35B-Instruct": "Fields that transformers' qwen3_moe does not have are "
    "ignored: use_qk_norm.",
    # its use_qk_norm is the class's own, but this norm has no weights
    "Llama-4-Maverick-17B-128E": None,
    "MiMo-V2-Flash": "Fields that transformers' mimo_v2_flash does not have are ignored: "
    "attention_chunk_size.",
    "GLM-5.2-NVFP4": None,  # its layer_types have an older name
    "EXAONE-4.5-33B": "text_config.model_type exaone4_5_text is read as exaone4.",
    "MiniCPM3-4B": "The config names no model_type; MiniCPM3ForCausalLM is read as minicpm3.",
    "Qwen-14B-Chat": "The context is seq_length 2048, not max_position_embeddings 8192.",
    "nomic-embed-text-v1.5": None,  # the vendor's class has GPT-2's names of sizes
    "bloom": None,  # vLLM takes seq_length as the context
    # this and the next two are the first releases, with the vendors' code and model_types
    "falcon-40b": None,
    "phi-2": None,
    "MiniMax-Text-01": None,
    "CodeFuse-DevOps-Model-7B-Chat": "The context is seq_length 2048, not "
    "max_position_embeddings 6144.",
}


def read(**fields: Any) -> ModelSpec:
    """Return the model of a small LLaMA's config with some fields changed; `...` removes one."""
    return spec_of({key: value for key, value in {**LLAMA, **fields}.items() if value is not ...})


def error_of(config: dict[str, Any]) -> AttncalcError:
    return refusal(spec_of, config)


@each("name", RELEASES)
def test_a_release_with_an_unusual_field_is_read(name: str) -> None:
    spec = spec_of(RELEASES[name]["config"])
    assert params(spec).total == RELEASES[name]["params"]
    expected = NOTES[name]
    assert expected in spec.notes if expected else not any("ignored" in note for note in spec.notes)


def test_a_model_that_is_not_causal_has_no_cache() -> None:
    """Embedding models: transformers' masks and vLLM's layers read is_causal whatever the class."""
    causal, bidirectional = (
        spec_of({**LLAMA, "model_type": "qwen2", "is_causal": value}) for value in (True, False)
    )
    assert (causal.main.has_cache, bidirectional.main.has_cache) == (True, False)
    assert params(causal).total == params(bidirectional).total


def test_vendors_lists_of_layers_must_agree_with_the_class() -> None:
    """vLLM and SGLang read MiMo-V2's own lists; transformers' class derives both."""
    mimo = RELEASES["MiMo-V2-Flash"]["config"]
    for field in ("moe_layer_freq", "hybrid_layer_pattern"):
        assert f"{field} [" in error_of({**mimo, field: [1, *mimo[field][1:]]}).message


def test_the_context_is_the_shorter_of_two_as_vllm_takes_it() -> None:
    qwen = RELEASES["Qwen-14B-Chat"]["config"]
    assert spec_of(qwen).max_context == 2048
    assert spec_of({**qwen, "seq_length": 8192}).max_context == 8192
    assert not any("seq_length" in note for note in spec_of({**qwen, "seq_length": 8192}).notes)


# configs/llama_60m.json of GaLore (https://github.com/jiaweizzhao/GaLore), as ReLoRA's are
GALORE = {
    "architectures": ["LLaMAForCausalLM"],
    "hidden_size": 512,
    "intermediate_size": 1376,
    "max_sequence_length": 1024,
    "model_type": "llama",
    "num_attention_heads": 8,
    "num_hidden_layers": 8,
    "vocab_size": 32_000,
}


@each(
    ("given", "context", "note"),
    [
        (1024, 1024, "The context is max_sequence_length 1024, as in vLLM; "),
        (4096, 2048, "The context is the default of llama, 2048; max_sequence_length 4096 "),
    ],
)
def test_a_context_under_another_name_changes_no_other_figure(
    given: int, context: int, note: str
) -> None:
    spec = spec_of({**GALORE, "max_sequence_length": given})
    # embedding and head, 8 layers of four matrices, a gated MLP and two norms, and the last norm
    layer = 4 * 512**2 + 3 * 512 * 1376 + 2 * 512
    assert params(spec).total == 2 * 32_000 * 512 + 8 * layer + 512
    assert spec.max_context == context
    assert any(text.startswith(note) for text in spec.notes)
    assert not any("max_position_embeddings" in text for text in spec.notes)


def test_a_context_under_another_name_is_an_error_if_it_is_the_rows_of_a_table() -> None:
    gpt2 = {"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 64, "max_seq_len": 128}
    message = error_of(gpt2).message
    assert "n_positions is missing, and max_seq_len 128 is not a field of gpt2" in message


@pytest.mark.parametrize(
    "value", [5, [], {"x": {}}, {"0": 5}, {"-1": {}}, {"9" * 5000: {}}, "a", {"²": {}}]
)
def test_a_per_layer_config_that_is_none_is_an_error(value: Any) -> None:
    assert "per_layer_config" in error_of({**LLAMA, "per_layer_config": value}).message


def test_a_mistral_with_kinds_of_layers_is_read_as_ministral() -> None:
    """transformers' AutoConfig changes the model_type of such a config."""
    windows = {
        **LLAMA,
        "sliding_window": 16,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    }
    mistral, ministral = (
        spec_of({**windows, "model_type": name}) for name in ("mistral", "ministral")
    )
    assert [layers.attention for layers in mistral.main.layers] == [
        a.attention for a in ministral.main.layers
    ]


# Fields that the class does not have


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("use_qk_norm", True),
        ("kv_lora_rank", 512),
        ("num_kv_shared_layers", 2),
        ("num_experts", 8),
        ("d_model", 65),
    ],
)
def test_a_field_that_only_other_classes_have_is_ignored_with_a_note(name: str, value: Any) -> None:
    spec = read(**{name: value})
    assert params(spec).total == params(read()).total
    assert f"Fields that transformers' llama does not have are ignored: {name}." in spec.notes


@each(
    "fields",
    [
        {"d_model": 64},
        {"num_layers": 3},
        {"n_embd": 64, "n_head": 8, "n_layer": 3},
        {"kv_channels": 8, "n_kv_heads": 2},
        {"use_qk_norm": False},
        {"head_dim": 8},
        {"sliding_window": None},
        {"sliding_window": 256},
        {"attention_chunk_size": 256},
        {"sliding_window": 64, "use_sliding_window": False},
        {"layer_types": ["full_attention"] * 3},
        {"tokenizer_class": "LlamaTokenizer"},
    ],
)
def test_a_field_that_changes_nothing_is_not_an_error(fields: dict[str, Any]) -> None:
    assert params(read(**fields)).total == params(read()).total


@each("name", sorted(READ_BY_ENGINES - config_classes()["llama"].defaults.keys()))
def test_a_field_that_an_engine_reads_from_every_config_is_an_error(name: str) -> None:
    value = (
        ["sliding_attention"] * 3 if name == "layer_types" else True if name.endswith("bias") else 7
    )
    error = error_of({**LLAMA, "head_dim": 8, name: value})
    assert error.message.startswith(f"config.json: {name} ")
    assert error.message.endswith("is not supported for llama")


def test_a_model_with_its_own_code_may_read_any_field() -> None:
    own_code = {"auto_map": {"AutoModelForCausalLM": "modeling_llama.LlamaForCausalLM"}}
    assert (
        "use_qk_norm True is not supported"
        in error_of({**LLAMA, **own_code, "use_qk_norm": True}).message
    )
    only_config = {"auto_map": {"AutoConfig": "configuration_llama.LlamaConfig"}}
    assert params(read(**only_config, use_qk_norm=True)).total == params(read()).total


def test_a_class_that_transformers_does_not_have_may_read_any_field() -> None:
    internlm = {**LLAMA, "model_type": "internlm2", "bias": False, "tie_word_embeddings": False}
    assert spec_of(internlm).main.n_layers == 3
    assert (
        "num_experts 8 is not supported for internlm2"
        in error_of({**internlm, "num_experts": 8}).message
    )


def test_the_other_name_of_a_field_counts_if_both_disagree() -> None:
    """transformers' GPT2Config(n_embd=64, hidden_size=128) has 128: other names are set after the
    own ones.
    """
    gpt2 = {"model_type": "gpt2", "n_layer": 2, "n_head": 4, "vocab_size": 100, "n_positions": 50}
    for config in (
        {**gpt2, "n_embd": 64, "hidden_size": 128},
        {**gpt2, "hidden_size": 128, "n_embd": 64},
    ):
        spec = spec_of(config)
        assert spec.main.d_model == 128
        assert (
            "hidden_size 128 is used, not n_embd 64, which is another name of the field."
            in spec.notes
        )


# Sizes that are missing


def test_a_config_without_sizes_is_an_error_that_names_what_it_has_instead() -> None:
    error = error_of({"model_type": "llama", "n_layers": 10, "dim": 512})
    assert error.message == (
        "config.json: hidden_size, num_hidden_layers and num_attention_heads are missing; "
        "the config has n_layers and dim instead"
    )
    assert "are missing" in error_of({"model_type": "llama"}).message
    inside = error_of(
        {"model_type": "llama", "model_config": {"hidden_size": 64, "num_hidden_layers": 3}}
    )
    assert inside.message.endswith("the config has model_config instead")
    # MLC writes Mistral 3's language model as the model_type of the whole
    assert error_of({"model_type": "ministral3", "text_config": LLAMA}).message.endswith(
        "has text_config instead"
    )


@pytest.mark.parametrize(
    ("inside", "has_sizes"),
    [
        ({"hidden_size": 64, "num_hidden_layers": 3}, True),
        ({"hidden_size": 64}, False),
        ({"hidden_size": 64, "num_hidden_layers": "3"}, False),
        ({"hidden_size": "64", "num_hidden_layers": "3"}, False),
        ({"hidden_size": 64, "seed": 3}, False),
        ({"seed": 64, "step": 3}, False),
    ],
)
def test_a_part_with_two_sizes_is_named_instead_of_missing_ones(
    inside: dict[str, Any], has_sizes: bool
) -> None:
    message = error_of({"model_type": "llama", "a_part": inside}).message
    assert ("the config has a_part instead" in message) is has_sizes


def test_a_missing_size_is_an_error_if_the_config_has_another_name_for_it() -> None:
    error = error_of(
        {**{k: v for k, v in LLAMA.items() if k != "num_hidden_layers"}, "num_layers": 3}
    )
    assert error.message.endswith(
        "num_hidden_layers is missing, and num_layers 3 is not a field of llama"
    )
    assert "rename num_layers to num_hidden_layers" in error.tip


@pytest.mark.parametrize(
    "misspelt",
    ["num_attetion_heads", "num_attention_heds", "num_attentoin_heads", "numAttentionHeads"],
)
def test_a_misspelt_field_is_an_error(misspelt: str) -> None:
    config = {key: value for key, value in LLAMA.items() if key != "num_attention_heads"}
    error = error_of({**config, misspelt: 8})
    assert error.message.endswith(f"num_attention_heads is missing; {misspelt} is not a field")
    assert error.tip == f"rename {misspelt} to num_attention_heads"


def test_a_misspelt_field_with_the_default_or_beside_the_right_one_changes_nothing() -> None:
    expected = params(read(tie_word_embeddings=False)).total
    assert params(read(tie_word_embeddings=..., tie_word_embedding=False)).total == expected
    assert params(read(tie_word_embeddings=False, tie_word_embedding=True)).total == expected
    assert params(read(_num_attention_heads=4)).total == params(read()).total


def test_a_size_that_the_class_derives_may_have_another_name() -> None:
    """Without num_key_value_heads, LLaMA has as many KV heads as query heads: 8."""
    assert (
        params(read(num_key_value_heads=..., n_kv_heads=8)).total
        == params(read(num_key_value_heads=8)).total
    )
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    assert (
        "num_key_value_heads is missing, and n_kv_heads 2"
        in error_of({**config, "n_kv_heads": 2}).message
    )


def test_a_size_with_a_default_is_not_derived() -> None:
    """Qwen2's class has 32 KV heads if a config omits them, whatever its query heads."""
    qwen = {**LLAMA, "model_type": "qwen2", "n_kv_heads": 8}
    del qwen["num_key_value_heads"]
    assert "num_key_value_heads is missing, and n_kv_heads 8" in error_of(qwen).message


def test_falcons_mlp_under_another_name_is_read_if_it_is_what_the_class_derives() -> None:
    """transformers' class makes 4 * hidden_size of an omitted ffn_hidden_size."""
    falcon = {**LLAMA, "model_type": "falcon", "architectures": ["FalconForCausalLM"]}
    del falcon["num_key_value_heads"]
    del falcon["intermediate_size"]
    assert spec_of({**falcon, "intermediate_size": 256}) == spec_of(
        {**falcon, "ffn_hidden_size": 256}
    )
    message = error_of({**falcon, "intermediate_size": 512}).message
    assert "ffn_hidden_size is missing, and intermediate_size 512 is not a field" in message


def test_an_omitted_size_is_noted_if_only_a_layer_of_its_own_uses_it() -> None:
    spec = read(
        num_hidden_layers=1,
        per_layer_config={"0": {"num_key_value_heads": 1}},
        intermediate_size=...,
    )
    assert (
        "The config omits intermediate_size; the defaults of transformers' llama are used."
        in spec.notes
    )


def test_the_language_model_inside_a_wrapper_may_rely_on_defaults() -> None:
    """LLaVA-1.5's text_config gives none of LLaMA 7B's sizes but the vocabulary's."""
    text = {"model_type": "llama", "vocab_size": 32064}
    spec = spec_of({"model_type": "llava", "text_config": text})
    # LLaMA 7B with 64 more tokens in the embedding and in the head
    assert params(spec).total == 6_738_415_616 + 2 * 64 * 4096
    assert any(note.startswith("The config omits hidden_size, ") for note in spec.notes)
    renamed = {"model_type": "llava", "text_config": {**text, "dim": 512}}
    assert (
        "hidden_size is missing, and dim 512 is not a field of llama" in error_of(renamed).message
    )


def test_a_class_without_experts_contradicts_the_model_type_of_a_mixture() -> None:
    """transformers reads EAGLE's draft for Mixtral as Mixtral, and vLLM as a LLaMA without
    experts.
    """
    mixtral = {**LLAMA, "model_type": "mixtral"}
    for config in (mixtral, {**LLAMA, "architectures": ["MixtralForCausalLM"]}):
        message = error_of(config).message
        assert (
            f"model_type {config['model_type']} and architectures {config['architectures'][0]} "
            "contradict" in message
        )
    for named in ("MixtralForCausalLM", "NoSuchModel", "MixtralForSequenceClassification"):
        assert spec_of({**mixtral, "architectures": [named]}).main.n_layers == 3
    # LlamaForCausalLM has the same layers
    assert spec_of({**LLAMA, "model_type": "mistral"}).main.n_layers == 3


def test_missing_layers_of_a_class_without_defaults_are_named() -> None:
    qwen = {
        **LLAMA,
        "model_type": "qwen",
        "no_bias": True,
        "tie_word_embeddings": False,
        "kv_channels": 8,
    }
    del qwen["num_hidden_layers"], qwen["num_key_value_heads"]
    assert error_of(qwen).message == "config.json: num_hidden_layers is missing"


class Renaming(NamedTuple):
    """A size of a config that gets the name that other classes have for it."""

    name: str  # the config's name in tests/data/huggingface.json
    part: str  # the field whose config has the size; '' for the whole config
    field: str  # the size's own name
    other: str  # its new name


def renamings() -> Iterator[Renaming]:
    for name, config in MEASURED.items():
        for part in (
            "",
            *(
                key
                for key in ("text_config", "encoder", "decoder")
                if isinstance(config.get(key), dict)
            ),
        ):
            fields = config[part] if part else config
            for field in fields:
                names = next((names for names in NAMES if field in names), frozenset())
                yield from (
                    Renaming(name, part, field, other) for other in sorted(names - set(fields))
                )


@given(st.sampled_from(list(renamings())))
def test_a_size_under_another_familys_name_never_gives_other_figures_in_silence(
    renaming: Renaming,
) -> None:
    config = copy.deepcopy(MEASURED[renaming.name])
    fields = config[renaming.part] if renaming.part else config
    own = config_classes().get(str(fields.get("model_type", config["model_type"])))
    before = spec_of(config)
    fields[renaming.other] = fields.pop(renaming.field)
    try:
        after = spec_of(config)
    except AttncalcError:
        return
    if figures(after) != figures(before):
        is_of_class = own is not None and renaming.other in own.defaults
        noted = any(
            renaming.field in note or renaming.other in note
            for note in set(after.notes) - set(before.notes)
        )
        # MiMo-V2's class reads sliding_window_size itself: its window is one longer
        assert is_of_class or noted or renaming.other == "sliding_window_size"


def figures(spec: ModelSpec) -> tuple[int, int, int | None]:
    workload = Workload.decode(1, 4096, source=4096 if spec.encoder else None, kv_dtype="bf16")
    return int(params(spec).total), int(kv_cache(spec, workload).total), spec.max_context


# The model_type


@each(
    ("class_name", "model_type"),
    [
        ("LlamaForCausalLM", "llama"),
        ("LlamaModel", "llama"),
        ("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl"),
        ("Qwen3MoeForCausalLM", "qwen3_moe"),
        ("GPT2LMHeadModel", "gpt2"),
        ("GPTNeoXForCausalLM", "gpt_neox"),
        ("OpenAIGPTLMHeadModel", "openai-gpt"),
        ("T5EncoderModel", "t5"),
        ("XLMRobertaForSequenceClassification", "xlm-roberta"),
        ("MarianMTModel", "marian"),
        ("MiniCPM3ForCausalLM", "minicpm3"),
        ("QWenLMHeadModel", "qwen"),
        ("InternLM2ForCausalLM", "internlm2"),
        ("Gemma3ForCausalLM", "gemma3_text"),
        ("Gemma3ForConditionalGeneration", "gemma3"),
        ("NobodyForCausalLM", None),
        # the class of transformers is `keye`, those of releases `Keye`
        ("KeyeForConditionalGeneration", "Keye"),
        ("ForCausalLM", None),
        ("", None),
    ],
)
def test_a_class_belongs_to_a_model_type(class_name: str, model_type: str | None) -> None:
    assert model_type_of_class(class_name, families()) == model_type


def test_a_class_of_every_language_model_belongs_to_its_model_type() -> None:
    """transformers' own table is the reference."""
    auto = pytest.importorskip("transformers.models.auto.modeling_auto")
    tables = [
        getattr(auto, f"MODEL_FOR_{task}_MAPPING_NAMES")
        for task in ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT")
    ]
    types: dict[str, set[str]] = {}
    for table in tables:
        for model_type, class_name in table.items():
            types.setdefault(str(class_name), set()).add(model_type)
    known = [*families(), *config_classes()]
    for class_name, expected in types.items():
        if expected & set(known):
            assert model_type_of_class(class_name, known) in expected, class_name


def test_transformers_classes_are_known_beside_their_model_type() -> None:
    """Parts of a model (MllamaVisionModel) and decision heads, which several families share, are
    not.
    """
    auto = pytest.importorskip("transformers.models.auto.modeling_auto")
    tables = [
        getattr(auto, f"MODEL_FOR_{task}_MAPPING_NAMES")
        for task in ("CAUSAL_LM", "MASKED_LM", "SEQUENCE_CLASSIFICATION", "SEQ_TO_SEQ_CAUSAL_LM")
    ]
    for table in tables:
        for model_type in table.keys() & set(supported_model_types()):
            assert is_class_of(table[model_type], model_type), model_type


def test_a_config_without_a_model_type_is_read_by_its_class_with_a_note() -> None:
    spec = read(model_type=...)
    assert params(spec).total == params(read()).total
    assert spec.model_type == "llama"
    assert "The config names no model_type; LlamaForCausalLM is read as llama." in spec.notes


@each(
    ("model_type", "near"),
    [
        ("lama", "llama"),
        ("qwen3-moe", "qwen3_moe"),
        ("Mistral", "mistral"),
        ("mixtrall", "mixtral"),
        ("gemma2_text", None),
        ("bailing_moe_v9", None),
        ("mimosa", None),
        ("minimax_m9", None),
        ("llama5", None),
        ("an_invention", None),
    ],
)
def test_only_a_model_type_that_is_nearly_the_same_is_suggested(
    model_type: str, near: str | None
) -> None:
    tip = error_of({**LLAMA, "model_type": model_type}).tip
    assert ("did you mean" in tip) == (near is not None)
    assert near is None or f"did you mean '{near}'?" in tip


def test_an_encoder_without_a_model_type_is_that_of_its_class() -> None:
    """T5GemmaConfig makes its encoder a t5_gemma_module; another model_type is an error of its
    own.
    """
    given = MEASURED["default-t5gemma"]
    encoder = {key: value for key, value in given["encoder"].items() if key != "model_type"}
    assert params(spec_of({**given, "encoder": encoder})).total == params(spec_of(given)).total
    error = error_of({**given, "encoder": {**encoder, "model_type": "an_invention"}})
    assert "encoder.model_type 'an_invention' is not supported" in error.message


def test_layer_types_may_have_transformers_older_names() -> None:
    """transformers remaps deepseek_sparse_attention, which GLM-5.2-NVFP4 has, to
    indexed_attention.
    """
    glm = MEASURED["default-axk2"]
    old, new = ({**glm, "layer_types": [kind] * glm["num_hidden_layers"]} for kind in OLD_AND_NEW)
    assert figures(spec_of(old)) == figures(spec_of(new))


OLD_AND_NEW = ("deepseek_sparse_attention", "indexed_attention")


# --assume-grouped


def test_assume_grouped_is_offered_only_if_it_gives_figures(ask: Ask) -> None:
    def tip_of(config: dict[str, Any]) -> str:
        return ask("kv", "-", stdin=json.dumps(config)).error.splitlines()[-1]

    unknown = {**LLAMA, "model_type": "an_invention"}
    assert "--assume-grouped" in tip_of(unknown)
    assert ask("kv", "-", "--assume-grouped", stdin=json.dumps(unknown)).code == 0
    for config in ({"model_type": "an_invention"}, {**unknown, "num_key_value_heads": 3}):
        assert "--assume-grouped" not in tip_of(config)
        assert ask("kv", "-", "--assume-grouped", stdin=json.dumps(config)).code == 2
    unnamed = {
        **{k: v for k, v in LLAMA.items() if k != "model_type"},
        "architectures": ["NobodyForCausalLM"],
    }
    assert "--assume-grouped" in tip_of(unnamed)
    screen = ask("kv", "-", "--assume-grouped", stdin=json.dumps(unnamed)).out
    assert "ASSUMED: a config without a model_type read as plain grouped attention." in screen
    strange = {
        "model_type": {"a": 1},
        "text_config": LLAMA,
        "vision_config": {"model_type": "clip_vision_model"},
    }
    assert "--assume-grouped" in tip_of(strange)
    inside = {"model_type": "llava", "text_config": unknown}
    assert "--assume-grouped" not in tip_of(inside)
    assert ask("kv", "-", "--assume-grouped", stdin=json.dumps(inside)).code == 2


def test_assume_grouped_lists_every_structural_field_that_it_ignored(ask: Ask) -> None:
    structure = {
        "block_configs": [{"n": 1}],
        "kv_lora_rank": 4,
        "my_new_layers": 3,
        "hybrid_override_pattern": "M*",
    }
    others = {"tokenizer_type": "bpe", "rope_theta": 1e4, "bos_token_id": 1, "is_new": False}
    unknown = {**LLAMA, "model_type": "an_invention", **structure, **others}
    assumed = ask("kv", "-", "--assume-grouped", "--json", stdin=json.dumps(unknown)).document[
        "model"
    ]["assumed"]
    assert assumed.endswith(f"Ignored fields: {', '.join(structure)}.")


def test_a_base_of_other_families_is_not_a_model_type() -> None:
    assert (
        "model_type 'remote' is not supported"
        in error_of({**LLAMA, "model_type": "remote"}).message
    )
