"""What a config.json's odd values give: what transformers' class of the family does with them, or
an error.

The differences to transformers 5.23's classes were found by setting each field of 430 configs to 0,
null, a quoted number or boolean, and another name, and building the class on the meta device.
"""

from typing import Any

import pytest
from asking import refusal
from configs import SMALL_LLAMA
from tables import each

from attncalc import AttncalcError, load, params
from attncalc.config.document import Document
from attncalc.config.huggingface.fields import config_classes

LLAMA = SMALL_LLAMA
GEMMA_2 = {**LLAMA, "model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "head_dim": 8}
QWEN3 = {**LLAMA, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 8}
MIXTRAL = {
    **LLAMA,
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}
QWEN3_MOE = {
    **QWEN3,
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
}
LAGUNA = {
    **LLAMA,
    "model_type": "laguna",
    "architectures": ["LagunaForCausalLM"],
    "head_dim": 8,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
}
_TEXT = {
    **{key: value for key, value in LLAMA.items() if key not in ("architectures", "model_type")},
    "head_dim": 8,
    "global_head_dim": 8,
}
GEMMA_4 = {
    "model_type": "gemma4",
    "architectures": ["Gemma4ForConditionalGeneration"],
    "text_config": {
        **_TEXT,
        "model_type": "gemma4_text",
        "enable_moe_block": True,
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 16,
        "hidden_size_per_layer_input": 0,
    },
}
QWEN2_VL = {**LLAMA, "model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"]}


def error_of(config: dict[str, Any], **fields: Any) -> AttncalcError:
    return refusal(load, {**config, **fields})


def error_of_text(**fields: Any) -> str:
    """Return the error of a Gemma 4 whose text_config has these fields; None removes nothing, but
    is null.
    """
    return error_of({**GEMMA_4, "text_config": {**GEMMA_4["text_config"], **fields}}).message  # type: ignore[dict-item]


@pytest.mark.parametrize("config", [LLAMA, GEMMA_2, QWEN3, MIXTRAL, QWEN3_MOE, LAGUNA])
def test_a_number_of_heads_or_a_width_of_0_is_an_error(config: dict[str, Any]) -> None:
    for field in (
        "num_key_value_heads",
        "num_attention_heads",
        "head_dim",
        "hidden_size",
        "vocab_size",
    ):
        assert f"{field} is 0; it must be at least 1" in error_of(config, **{field: 0}).message


@pytest.mark.parametrize("config", [GEMMA_2, MIXTRAL, QWEN3_MOE, LAGUNA])
def test_null_kv_heads_are_an_error_where_the_class_forbids_them(config: dict[str, Any]) -> None:
    assert (
        "num_key_value_heads null is not a whole number"
        in error_of(config, num_key_value_heads=None).message
    )


def test_null_kv_heads_are_the_query_heads_where_the_class_takes_them() -> None:
    """Qwen2's class has a number as its default, and replaces null; Qwen2-MoE's keeps null."""
    for name in ("llama", "qwen2", "qwen3", "ernie4_5", "smollm3"):
        config = {**LLAMA, "model_type": name, "architectures": [], "head_dim": 8}
        heads, null = ({**config, "num_key_value_heads": given} for given in (8, None))
        assert load(null).main == load(heads).main, name
    for name in ("qwen2_moe", "glm"):
        message = error_of({**LLAMA, "model_type": name}, num_key_value_heads=None).message
        assert "num_key_value_heads null is not a whole number" in message, name


@each("name", [name for name, known in config_classes().items() if known.is_language_model])
def test_a_class_replaces_null_kv_heads_as_they_are_read(name: str) -> None:
    """The reference is transformers' own class."""
    transformers = pytest.importorskip("transformers")
    known = config_classes()[name]
    default = known.defaults.get("num_key_value_heads")
    takes_null = "null" in known.types.get("num_key_value_heads", ())
    if type(default) is int and takes_null:
        config = transformers.AutoConfig.for_model(name, num_key_value_heads=None)
        assert config.num_key_value_heads == config.num_attention_heads


@pytest.mark.parametrize("config", [GEMMA_2, QWEN3, QWEN3_MOE, LAGUNA])
def test_a_null_head_dim_is_an_error_where_the_class_forbids_it(config: dict[str, Any]) -> None:
    assert "head_dim null is not a whole number" in error_of(config, head_dim=None).message
    assert load({**LLAMA, "head_dim": None}) == load(LLAMA)


def test_a_class_without_head_dim_cannot_use_null() -> None:
    """OLMo 2 reads getattr(config, "head_dim", hidden_size // heads), which is null if the config
    has null.
    """
    olmo = {**LLAMA, "model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"]}
    assert "head_dim null is not a whole number" in error_of(olmo, head_dim=None).message
    assert load(olmo).main.n_layers == 3


@pytest.mark.parametrize("value", ["false", "true", "", 0, 1])
def test_a_boolean_is_not_quoted_and_no_number(value: object) -> None:
    for config in (LLAMA, GEMMA_4, QWEN2_VL, {**LLAMA, "model_type": "internlm2", "bias": False}):
        message = error_of(config, tie_word_embeddings=value).message
        assert "tie_word_embeddings" in message
        assert "is not true or false" in message
    assert "tie_word_embeddings" in error_of_text(tie_word_embeddings=value)


@pytest.mark.parametrize("value", ["8", "0", "", True, 8.0, [8]])
def test_a_size_is_a_whole_number_without_quotes(value: object) -> None:
    for config in (LLAMA, GEMMA_2, MIXTRAL):
        for field in (
            "num_key_value_heads",
            "hidden_size",
            "intermediate_size",
            "max_position_embeddings",
        ):
            assert f"{field} " in error_of(config, **{field: value}).message
            assert "is not a whole number" in error_of(config, **{field: value}).message


def test_an_older_name_of_a_field_is_checked_under_the_name_that_the_config_has() -> None:
    gpt2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100}
    for field in ("n_embd", "n_layer", "n_head"):
        assert f"{field} '4' is not a whole number" in error_of(gpt2, **{field: "4"}).message
    # named twice
    assert "n_layer '2' is not" in error_of({**gpt2, "num_hidden_layers": 2}, n_layer="2").message
    assert "not a whole number: n_embd 64, n_head 7" in error_of(gpt2, n_head=7).message


def test_null_does_not_drop_the_mlp_or_the_experts() -> None:
    assert "intermediate_size null is not a whole number" in error_of_text(intermediate_size=None)
    assert "num_experts" in error_of_text(num_experts=None)
    assert "num_local_experts null is not" in error_of(MIXTRAL, num_local_experts=None).message
    assert "num_local_experts is 0" in error_of(MIXTRAL, num_local_experts=0).message


def test_layer_types_are_as_many_as_the_layers_even_if_no_rule_uses_them() -> None:
    """Every class of transformers 5 checks their number; Qwen3-MoE's layers do not depend on
    them.
    """
    load({**QWEN3_MOE, "layer_types": ["full_attention"] * QWEN3_MOE["num_hidden_layers"]})
    assert (
        "layer_types has 1 entries for"
        in error_of(QWEN3_MOE, layer_types=["full_attention"]).message
    )


def test_null_in_a_table_is_no_number_of_kv_heads() -> None:
    """DBRX's class asks for a whole number: without one, its 8 KV heads would be 48."""
    dbrx = {"model_type": "dbrx", "d_model": 96, "n_heads": 48, "n_layers": 2, "vocab_size": 100}
    load({**dbrx, "attn_config": {"kv_n_heads": 8}})
    assert "attn_config" in error_of(dbrx, attn_config={"kv_n_heads": None}).message


def test_experts_under_another_familys_name_are_an_error() -> None:
    experts = {key: value for key, value in GEMMA_4["text_config"].items() if key != "num_experts"}  # type: ignore[attr-defined]
    message = error_of({**GEMMA_4, "text_config": {**experts, "n_routed_experts": 4}}).message
    assert "num_experts is missing, and n_routed_experts 4 is not a field of gemma4_text" in message


def test_qwens_layers_are_dense_without_experts() -> None:
    """The class asks for num_experts > 0."""
    dense = load({**QWEN3_MOE, "num_experts": 0})
    assert params(dense).total == params(load(QWEN3)).total


def test_a_granite_hybrid_without_experts_has_the_shared_mlp_alone() -> None:
    """Two layers of attention, 64 wide: only shared_intermediate_size counts, 2 * 3 * 64 * (32 -
    16) more.
    """
    granite = {
        **LLAMA,
        "model_type": "granitemoehybrid",
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "num_hidden_layers": 2,
        "layer_types": ["attention", "attention"],
        "num_local_experts": 0,
        "shared_intermediate_size": 16,
    }
    wider = params(load({**granite, "shared_intermediate_size": 32})).total
    assert wider - params(load(granite)).total == 2 * 3 * 64 * (32 - 16)
    assert params(load({**granite, "intermediate_size": 999})).total == params(load(granite)).total


def test_a_window_of_0_is_no_full_attention() -> None:
    """transformers' cache reads both fields from every config, and only null is off."""
    for config in (
        LLAMA,
        {"model_type": "t5", "d_model": 64, "num_layers": 2, "num_heads": 4, "d_ff": 128},
    ):
        for field in ("sliding_window", "attention_chunk_size"):
            assert f"{field} 0 is not supported" in error_of(config, **{field: 0}).message


def test_a_width_that_the_heads_do_not_divide_is_an_error_where_the_class_checks_it() -> None:
    assert "hidden_size 64 is not a multiple of num_attention_heads 6" in (
        error_of(LLAMA, num_attention_heads=6, num_key_value_heads=2, head_dim=8).message
    )
    assert load({**QWEN3, "num_attention_heads": 6}).main.n_layers == 3


# Errors have the names of the user's file


def test_an_error_has_the_names_of_the_users_file() -> None:
    error = error_of(LLAMA, num_key_value_heads=3)
    assert "num_key_value_heads: 3 does not divide num_attention_heads 8" in error.message
    error = error_of(MIXTRAL, num_experts_per_tok=5)
    assert "num_experts_per_tok: 5 is more than the 4 experts" in error.message
    assert error.tip == "give at most 4"
    gpt2 = {"model_type": "gpt2", "n_embd": 10**16, "n_layer": 2, "n_head": 4, "vocab_size": 100}
    assert "n_embd: 10000000000000000 is above" in error_of(gpt2).message
    assert "d_head" not in str(error_of(gpt2))


def test_an_error_about_a_computed_size_names_all_that_it_was_computed_from() -> None:
    """BLOOM's MLP is four times as wide as the model."""
    bloom = {
        "model_type": "bloom",
        "n_embed": 8 * 10**14,
        "n_layer": 2,
        "n_head": 4,
        "vocab_size": 100,
    }
    assert "d_ff (from n_embed): 3200000000000000 is above" in error_of(bloom).message


def test_an_error_has_the_names_of_a_params_json() -> None:
    meta = {
        "dim": 64,
        "n_layers": 2,
        "n_heads": 8,
        "n_kv_heads": 2,
        "vocab_size": 32_000,
        "multiple_of": 32,
        "norm_eps": 1e-5,
    }
    assert "n_kv_heads: 3 does not divide n_heads 8" in error_of(meta, n_kv_heads=3).message
    assert "n_kv_heads: 0 is not a whole number" in error_of(meta, n_kv_heads=0).message
    mistral: dict[str, Any] = {
        "dim": 64,
        "n_layers": 2,
        "n_heads": 8,
        "head_dim": 8,
        "n_kv_heads": 8,
        "hidden_dim": 128,
    }
    mistral |= {"vocab_size": 100, "norm_eps": 1e-5}
    assert "hidden_dim '8' is not a whole number" in error_of(mistral, hidden_dim="8").message
    error = error_of(mistral, moe={"num_experts": 4, "num_experts_per_tok": 5})
    assert error.tip == "give at most 4"


def test_a_document_has_the_names_of_the_file_that_it_was_made_from() -> None:
    """The key of the value, keys in the message and the tip; English words such as window only as a
    key.
    """
    origins = {
        "n_heads": {"": "llama.attention.head_count"},
        "window": {"": "llama.attention.sliding_window"},
    }
    document = Document("x", {"n_heads": 3, "d_ff": 9, "window": 0}, {}, origins)
    error = document.error(("n_heads",), "3 is below d_ff 9", "meaning of 'n_heads': query heads")
    assert error.message == "x:1: llama.attention.head_count: 3 is below d_ff 9"
    assert error.tip == "meaning of 'llama.attention.head_count': query heads"
    error = document.error(("window",), "0 is no window", "")
    assert error.message == "x:1: llama.attention.sliding_window: 0 is no window"


def test_a_key_with_several_origins_is_named_by_its_value() -> None:
    origins = {"d_ff": {"0": "moe_intermediate_size", "9": "intermediate_size"}}
    document = Document("x", {"layer_kinds": {"sparse": {"d_ff": 0}}, "d_ff": 9}, {}, origins)
    assert (
        document.error(("layer_kinds", "sparse", "d_ff"), "bad", "").message
        == "x:1: moe_intermediate_size: bad"
    )
    assert document.error(("d_ff",), "bad", "").message == "x:1: intermediate_size: bad"
    assert document.error((), "'d_ff' is missing", "").message == (
        "x:1: 'moe_intermediate_size or intermediate_size' is missing"
    )


# Refusals that were not deserved


def test_laguna_reads_a_gate_per_head_and_the_fields_of_its_first_release() -> None:
    released = {**LAGUNA, "gating": "per-head", "decoder_sparse_step": 1, "mlp_only_layers": [0]}
    assert load(released) == load({**LAGUNA, "gating": True})
    assert "mlp_only_layers [1]" in error_of(released, mlp_only_layers=[1]).message
    assert "decoder_sparse_step 2" in error_of(released, decoder_sparse_step=2).message


def test_hunyuan_a13b_has_one_value_per_layer() -> None:
    hunyuan = {
        **LLAMA,
        "model_type": "hunyuan",
        "architectures": ["HunYuanMoEV1ForCausalLM"],
        "num_experts": 4,
        "use_mixed_mlp_moe": True,
        "tie_word_embeddings": True,
        "use_qk_norm": True,
    }
    lists = {"moe_intermediate_size": [128] * 3, "moe_topk": [2] * 3, "num_shared_expert": [1] * 3}
    plain = {"moe_intermediate_size": 128, "moe_topk": 2, "num_shared_expert": 1}
    assert load({**hunyuan, **lists}) == load({**hunyuan, **plain})


def test_kimi_k2_may_leave_out_attention_bias() -> None:
    kimi = {
        **{
            key: value
            for key, value in LLAMA.items()
            if key not in ("architectures", "num_key_value_heads")
        },
        "model_type": "kimi_k2",
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 8,
        "v_head_dim": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "moe_intermediate_size": 16,
        "first_k_dense_replace": 1,
        "tie_word_embeddings": False,
    }
    assert load(kimi) == load({**kimi, "attention_bias": False})
    error = error_of(
        {
            key: value
            for key, value in kimi.items()
            if key not in ("q_lora_rank", "n_shared_experts")
        }
    )
    assert error.message == "config: q_lora_rank and n_shared_experts are missing"


def test_an_error_says_which_field_names_the_language_model() -> None:
    ultravox = {
        "model_type": "ultravox",
        "text_model_id": "meta-llama/Llama-3.2-1B-Instruct",
        "hidden_size": 4096,
    }
    assert (
        "text_model_id names the language model: 'meta-llama/Llama-3.2-1B-Instruct'"
        in error_of(ultravox).message
    )
    del ultravox["text_model_id"]
    assert error_of(ultravox).message == "config: text_config is missing"


def test_a_tip_offers_no_family_that_is_refused_too() -> None:
    error = error_of({"model_type": "unlimited-ocr", "hidden_size": 64})
    assert "its windows also include the prompt and the image" in error.message
    assert "did you mean" not in error.tip
    assert "did you mean" not in error_of({"model_type": "unlimited_ocs", "hidden_size": 64}).tip
    assert "did you mean 'llama'" in error_of({"model_type": "lamma", "hidden_size": 64}).tip


def test_merged_weights_are_not_quantized_as_what_they_came_from() -> None:
    """bitsandbytes always writes a quantization_config; other schemes may have a file of their
    own.
    """
    merged = {**LLAMA, "_name_or_path": "unsloth/llama-3-8b-bnb-4bit"}
    assert load(merged).unread_quantization == ""
    assert "AWQ" in load({**LLAMA, "_name_or_path": "org/llama-AWQ"}).unread_quantization
