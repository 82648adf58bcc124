"""The fields of a config.json that each key of a params.json becomes, and the limits of their
values.

Sources: args.py and FeedForward in meta-llama/llama-models;
vllm/transformers_utils/configs/mistral.py.
"""

from typing import Any

import pytest
from asking import refusal
from tables import each

from attncalc.config.params_json import is_params_json, to_config
from attncalc.model import MAX_LAYERS

META: dict[str, Any] = {
    "dim": 4096,
    "n_layers": 32,
    "n_heads": 32,
    "vocab_size": 128256,
    "norm_eps": 1e-5,
}
MISTRAL: dict[str, Any] = {
    "dim": 4096,
    "n_layers": 32,
    "n_heads": 32,
    "hidden_dim": 14336,
    "vocab_size": 32000,
    "head_dim": 128,
    "n_kv_heads": 8,
    "norm_eps": 1e-5,
}
LATENT: dict[str, Any] = {**MISTRAL, "head_dim": 192, "qk_nope_head_dim": 128}
MAMBA: dict[str, Any] = {
    "dim": 4096,
    "n_layers": 64,
    "model_type": "mamba",
    "vocab_size": 32768,
    "n_groups": 8,
}
MOE: dict[str, Any] = {**META, "vocab_size": 202048, "moe_args": {"num_experts": 16}}
VISION: dict[str, Any] = {
    "dim": 1408,
    "n_layers": 34,
    "n_heads": 16,
    "image_size": 336,
    "patch_size": 14,
}
PIXTRAL: dict[str, Any] = {"hidden_size": 1024, "patch_size": 14, "image_token_id": 10}

# {case: (params.json, fields of the config.json; None for a field that is not there or null)}.
FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no KV heads: one for each query head": (META, {"num_key_value_heads": 32}),
    "KV heads": ({**META, "n_kv_heads": 8}, {"num_key_value_heads": 8}),
    "a vocabulary of Llama 2": (
        {**META, "vocab_size": 32000},
        {"torch_dtype": "float16", "vocab_size": 32000},
    ),
    "a vocabulary that the tokenizer has": ({**META, "vocab_size": -1}, {"vocab_size": 32000}),
    "no vocabulary": (
        {key: value for key, value in META.items() if key != "vocab_size"},
        {"vocab_size": 32000, "torch_dtype": "float16"},
    ),
    "the largest vocabulary of Llama 2's": (
        {**META, "vocab_size": 33_023},
        {"torch_dtype": "float16"},
    ),
    "a vocabulary with tokens added to Llama 3's": (
        {**META, "vocab_size": 128264},
        {"torch_dtype": "bfloat16"},
    ),
    "a vocabulary of Llama 3": (META, {"torch_dtype": "bfloat16", "vocab_size": 128256}),
    "Llama 1": (
        {**META, "vocab_size": -1, "norm_eps": 1e-6},
        {"max_position_embeddings": 2048, "vocab_size": 32000},
    ),
    "Llama 2": (
        {**META, "vocab_size": -1, "norm_eps": 1e-5},
        {"max_position_embeddings": 4096, "vocab_size": 32000},
    ),
    "Code Llama": (
        {**META, "vocab_size": 32016, "rope_theta": 1000000},
        {"max_position_embeddings": 16_384},
    ),
    "no layers of cross-attention": (
        {**META, "vision_num_cross_attention_layers": -1},
        {"model_type": "llama"},
    ),
    "Llama 3": (META, {"max_position_embeddings": 8192, "tie_word_embeddings": False}),
    "Llama 3.1": (
        {**META, "use_scaled_rope": True},
        {"max_position_embeddings": 131072, "tie_word_embeddings": False},
    ),
    "the widest model that shares it": (
        {**META, "dim": 4095, "use_scaled_rope": True},
        {"tie_word_embeddings": True},
    ),
    "a small model without scaled positions does not": (
        {**META, "dim": 2048},
        {"tie_word_embeddings": False},
    ),
    # two thirds of 4 * 4096: 10922, rounded up to the next multiple of 256, 11008
    "the width of the MLP": (META, {"intermediate_size": 11008}),
    "multiples of 1": ({**META, "multiple_of": 1}, {"intermediate_size": 10922}),
    "a width that is a multiple": ({**META, "multiple_of": 10922}, {"intermediate_size": 10922}),
    "the largest multiple": ({**META, "multiple_of": 10**9}, {"intermediate_size": 10**9}),
    # int(1.3 * 10922) = 14198
    "a multiplier": (
        {**META, "multiple_of": 1, "ffn_dim_multiplier": 1.3},
        {"intermediate_size": 14198},
    ),
    "a whole multiplier": (
        {**META, "multiple_of": 1, "ffn_dim_multiplier": 2},
        {"intermediate_size": 21844},
    ),
    "a small multiplier": (
        {**META, "multiple_of": 1, "ffn_dim_multiplier": 0.5},
        {"intermediate_size": 5461},
    ),
    "the smallest sizes": ({**META, "dim": 1, "n_layers": 1, "n_heads": 1}, {"hidden_size": 1}),
    "the largest width": ({**META, "dim": 10**9}, {"hidden_size": 10**9}),
    "no quantization": (META, {"quantization_config": None}),
    # Llama 4
    # two thirds of 4 * 4096 = 10922; the experts' width is divided by 1 + capacity_factor: 5461,
    # 256 * 22 = 5632
    "Llama 4's experts": (
        MOE,
        {
            "model_type": "llama4_text",
            "architectures": ["Llama4ForCausalLM"],
            "intermediate_size": 5632,
            "intermediate_size_mlp": 11008,
            "num_local_experts": 16,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 1,
            "head_dim": 128,
            "max_position_embeddings": 1_048_576,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "layer_types": ["full_attention"] * 32,
            "no_rope_layer_interval": None,
        },
    ),
    "experts of the whole width": (
        {**MOE, "moe_args": {"num_experts": 16, "auto_scale_F": False}},
        {"intermediate_size": 11008},
    ),
    # Python's int(88 / 1.1) is 80, as in FeedForward; 88 // 1.1 would be 79: 1.1 is a little more
    # than 11 tenths
    "a capacity with a fraction": (
        {
            **MOE,
            "dim": 33,
            "n_heads": 1,
            "multiple_of": 1,
            "moe_args": {"num_experts": 4, "capacity_factor": 0.1},
        },
        {"intermediate_size": 80},
    ),
    # two thirds of 4096 / 2 = 1365; by 1 + 1
    "a small expansion": ({**MOE, "multiple_of": 1, "ffn_exp": 0.5}, {"intermediate_size": 682}),
    # two thirds of 4096 = 2730; by 1 + 1
    "an expansion of 1": ({**MOE, "multiple_of": 1, "ffn_exp": 1}, {"intermediate_size": 1365}),
    # two thirds of 3 * 4096 = 8192; by 1 + 1
    "an expansion": ({**MOE, "multiple_of": 1, "ffn_exp": 3.0}, {"intermediate_size": 4096}),
    # two thirds of 1000 * 4096 = 2730666; by 1 + 1
    "the largest expansion": (
        {**MOE, "multiple_of": 1, "ffn_exp": 1000},
        {"intermediate_size": 1_365_333},
    ),
    "Scout": (
        {**MOE, "use_scaled_rope": True},
        {"max_position_embeddings": 10_485_760, "tie_word_embeddings": False},
    ),
    "a width of heads": ({**MOE, "head_dim": 64}, {"head_dim": 64}),
    "experts in every second layer": (
        {**MOE, "moe_args": {"num_experts": 16, "top_k": 2, "interleave_moe_layer_step": 2}},
        {"num_experts_per_tok": 2, "interleave_moe_layer_step": 2},
    ),
    "chunks": (
        {**MOE, "attention_chunk_size": 8192},
        {"attention_chunk_size": 8192, "layer_types": None},
    ),
    "an interval without chunks": (
        {**MOE, "nope_layer_interval": 4},
        {"no_rope_layer_interval": 4},
    ),
    "a quantized Llama 4": (
        {**MOE, "quantization_args": {"group_size": 32}},
        {"quantization_config": {"quant_method": "quantization_args of Meta's params.json"}},
    ),
    # Mistral
    "a Mistral": (
        MISTRAL,
        {
            "model_type": "mistral",
            "architectures": ["MistralForCausalLM"],
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "intermediate_size": 14336,
            "torch_dtype": "bfloat16",
            "max_position_embeddings": 128_000,
            "sliding_window": None,
            "quantization_config": None,
        },
    ),
    "a dtype": ({**MISTRAL, "dtype": "float16"}, {"torch_dtype": "float16"}),
    "tied embeddings": ({**MISTRAL, "tied_embeddings": True}, {"tie_word_embeddings": True}),
    "tied embeddings by another name": (
        {**MISTRAL, "tie_embeddings": True},
        {"tie_word_embeddings": True},
    ),
    "a context": ({**MISTRAL, "max_position_embeddings": 1000}, {"max_position_embeddings": 1000}),
    "a context by another name": (
        {**MISTRAL, "max_seq_len": 2000},
        {"max_position_embeddings": 2000},
    ),
    "a window": (
        {**MISTRAL, "sliding_window": 4096},
        {"sliding_window": 4096, "model_type": "mistral"},
    ),
    "windows that repeat": (
        {**MISTRAL, "n_layers": 3, "sliding_window": [None, 10]},
        {
            "model_type": "ministral",
            "sliding_window": 10,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        },
    ),
    "one layer with a window": (
        {**MISTRAL, "n_layers": 1, "sliding_window": [10, None]},
        {"sliding_window": 10, "layer_types": ["sliding_attention"]},
    ),
    "as many layers as a model may have": (
        {**MISTRAL, "n_layers": MAX_LAYERS, "sliding_window": [None, 10]},
        {"layer_types": ["full_attention", "sliding_attention"] * (MAX_LAYERS // 2)},
    ),
    "Mixtral": (
        {**MISTRAL, "moe": {"num_experts": 8, "num_experts_per_tok": 2}},
        {
            "model_type": "mixtral",
            "architectures": ["MixtralForCausalLM"],
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
    ),
    "latent attention without experts": (
        LATENT,
        {
            "model_type": "mistral4",
            "architectures": ["Mistral4ForCausalLM"],
            "head_dim": None,
            "n_routed_experts": 1,
            "num_experts_per_tok": 1,
            "n_shared_experts": 1,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 32,
            "moe_intermediate_size": 14336,
        },
    ),
    "latent attention with experts": (
        {
            **LATENT,
            "moe": {"num_experts": 128, "num_expert_groups": 2, "num_expert_groups_per_tok": 1},
        },
        {"n_routed_experts": 128, "n_group": 2, "topk_group": 1, "num_experts_per_tok": None},
    ),
    # quantization, as vLLM makes it of Mistral's
    "fp8 with scales": (
        {**MISTRAL, "quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}},
        {"quantization_config": {"quant_method": "fp8", "activation_scheme": "static"}},
    ),
    "fp8 without scales": (
        {**MISTRAL, "quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "NO_SCALES"}},
        {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}},
    ),
    "a quant_method": (
        {**MISTRAL, "quantization": {"quant_method": "Compressed_Tensors"}},
        {"quantization_config": {"quant_method": "compressed-tensors"}},
    ),
    "a format of weights": (
        {**MISTRAL, "quantization": {"qformat_weight": "INT3"}},
        {"quantization_config": {"qformat_weight": "INT3", "quant_method": "int3"}},
    ),
    "no format": (
        {**MISTRAL, "quantization": {"x": 1}},
        {"quantization_config": {"x": 1, "quant_method": "unknown"}},
    ),
    "an empty quantization": ({**MISTRAL, "quantization": {}}, {"quantization_config": None}),
    # Mamba
    # heads of 64 in 2 * 4096 inner channels
    "Mamba": (
        MAMBA,
        {
            "model_type": "mamba2",
            "architectures": ["Mamba2ForCausalLM"],
            "hidden_size": 4096,
            "num_hidden_layers": 64,
            "head_dim": 64,
            "num_heads": 128,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
        },
    ),
    "Mamba with a tied embedding": (
        {**MAMBA, "tie_embeddings": True},
        {"tie_word_embeddings": True},
    ),
    "Mamba in another dtype": ({**MAMBA, "dtype": "float32"}, {"torch_dtype": "float32"}),
    # 32770 tokens, rounded up to a multiple of 16
    "a vocabulary that is padded": (
        {**MAMBA, "vocab_size": 32770, "pad_vocab_size_multiple": 16},
        {"vocab_size": 32784},
    ),
    "a model inside": ({"model": META}, {"hidden_size": 4096}),
    "a key that changes nothing": ({**META, "lora_args": {"rank": 16}}, {"lora_args": None}),
}


@each("case", FIELDS)
def test_keys_become_the_fields_of_a_config(case: str) -> None:
    data, fields = FIELDS[case]
    config = to_config(data, "params.json")[0]
    assert {name: config.get(name) for name in fields} == fields
    assert {type(value) for value in config.values()}.isdisjoint({float})  # a size has no fraction


def test_a_list_of_windows_may_be_longer_than_the_layers() -> None:
    """A list of 4 MiB, repeated for each of 2,000 layers, would take gigabytes."""
    config = to_config(
        {**MISTRAL, "n_layers": 3, "sliding_window": [None, 10] * 100_000}, "params.json"
    )[0]
    assert config["layer_types"] == ["full_attention", "sliding_attention", "full_attention"]


def notes(data: dict[str, Any]) -> tuple[str, ...]:
    return tuple(to_config(data, "params.json")[1])


def test_notes_name_what_is_assumed_and_nothing_else() -> None:
    context = (
        "The params.json names no maximum context; {} tokens are assumed, as Meta released it."
    )
    assert notes(META) == (context.format("8,192"),)
    assert notes({**MOE, "vision_args": VISION}) == (context.format("1,048,576"),)
    assert notes({**META, "vocab_size": -1})[0].endswith("32,000 tokens are assumed.")
    assert notes({**META, "vocab_size": 32000}) == (context.format("4,096"),)
    assert notes(MISTRAL) == (
        "The params.json names no maximum context; 128,000 tokens are assumed, as vLLM does.",
    )
    assert (
        notes({**MISTRAL, "max_seq_len": 5})
        == notes({**MISTRAL, "max_position_embeddings": 5})
        == ()
    )
    audio = {**MISTRAL, "max_seq_len": 5, "multimodal": {"whisper_model_args": {"dim": 1}}}
    assert notes(audio) == ("The audio encoder is not counted.",)
    assert notes(MAMBA) == ()


def test_llama_4s_vision_tower_is_a_config_of_its_own() -> None:
    config = to_config(
        {**MOE, "quantization_args": {"x": 1}, "vision_args": VISION}, "params.json"
    )[0]
    assert set(config) == {
        "architectures",
        "model_type",
        "torch_dtype",
        "text_config",
        "vision_config",
        "quantization_config",
    }
    assert (config["model_type"], config["torch_dtype"]) == ("llama4", "bfloat16")
    assert config["text_config"]["hidden_size"] == 4096
    assert not {"architectures", "quantization_config"} & config["text_config"].keys()


@each(
    ("vision", "fields"),
    [
        # 4 * 1408
        (
            {},
            {
                "hidden_size": 1408,
                "num_hidden_layers": 34,
                "num_attention_heads": 16,
                "intermediate_size": 5632,
            },
        ),
        (
            {},
            {
                "image_size": 336,
                "patch_size": 14,
                "pixel_shuffle_ratio": 0.5,
                "vision_output_dim": None,
            },
        ),
        ({"mlp_ratio": 0.5}, {"intermediate_size": 704}),
        ({"mlp_ratio": 99}, {"intermediate_size": 139_392}),
        ({"mlp_ratio": 100}, {"intermediate_size": None}),
        ({"mlp_ratio": 101}, {"intermediate_size": None}),
        ({"mlp_ratio": 0}, {"intermediate_size": None}),
        ({"mlp_ratio": -1}, {"intermediate_size": None}),
        ({"mlp_ratio": "4"}, {"intermediate_size": None}),
        ({"dim": "1408"}, {"intermediate_size": None}),
        ({"dim": True}, {"intermediate_size": None}),
        ({"dim": 0}, {"intermediate_size": None}),
        ({"dim": -1}, {"intermediate_size": None}),
        ({"dim": 1}, {"intermediate_size": 4}),
        ({"dim": 10**9}, {"intermediate_size": 4 * 10**9}),
        ({"dim": 10**9 + 1}, {"intermediate_size": None}),
        ({"dim": 10**400}, {"intermediate_size": None}),
        (
            {"output_dim": 64},
            {"vision_output_dim": 64, "projector_input_dim": 64, "projector_output_dim": 64},
        ),
        (
            {"image_size": {"height": 8, "width": 9}, "patch_size": {"height": 2}},
            {"image_size": 8, "patch_size": 2},
        ),
        ({"pixel_shuffle_ratio": 1.0}, {"pixel_shuffle_ratio": 1.0}),
    ],
)
def test_llama_4s_vision_args_become_fields(vision: dict[str, Any], fields: dict[str, Any]) -> None:
    config = to_config({**MOE, "vision_args": {**VISION, **vision}}, "params.json")[0][
        "vision_config"
    ]
    assert {name: config[name] for name in fields} == fields


@each(
    ("vision", "fields"),
    [
        ({"mm_projector_id": "patch_merge"}, {"model_type": "mistral3", "spatial_merge_size": 2}),
        (
            {"mm_projector_id": "patch_merge"},
            {"architectures": ["Mistral3ForConditionalGeneration"]},
        ),
        ({"mm_projector_id": "patch_merge"}, {"multimodal_projector_bias": False}),
        ({"mm_projector_id": "patch_merge", "spatial_merge_size": 4}, {"spatial_merge_size": 4}),
        (
            {"mm_projector_id": "patch_merge", "adapter_bias": True},
            {"multimodal_projector_bias": True},
        ),
        (
            {},
            {"model_type": "llava", "multimodal_projector_bias": True, "spatial_merge_size": None},
        ),
        ({}, {"architectures": ["LlavaForConditionalGeneration"], "tie_word_embeddings": False}),
        ({"adapter_bias": False}, {"multimodal_projector_bias": False}),
        ({}, {"vision_config": {"model_type": "pixtral", "hidden_size": 1024, "patch_size": 14}}),
    ],
)
@each("place", ["vision_encoder", "multimodal"])
def test_a_pixtral_tower_has_mistrals_projector_or_llavas(
    place: str, vision: dict[str, Any], fields: dict[str, Any]
) -> None:
    tower = {**PIXTRAL, **vision}
    given = tower if place == "vision_encoder" else {"vision_encoder_args": tower}
    config = to_config({**MISTRAL, place: given}, "params.json")[0]
    assert {name: config.get(name) for name in fields} == fields
    assert config["text_config"]["model_type"] == "mistral"
    assert config["torch_dtype"] == "bfloat16"


@pytest.mark.parametrize("given", [{}, {"quantization_config": {"quant_method": "fp8"}}])
def test_a_quantization_is_of_the_language_model_and_its_tower(given: dict[str, Any]) -> None:
    """A config.json of transformers has it at the top, where engines look for it."""
    config = to_config({**MISTRAL, **given, "vision_encoder": PIXTRAL}, "params.json")[0]
    assert {key: value for key, value in config.items() if key == "quantization_config"} == given


WHOLE = "is not a whole number above 0"
# {case: (params.json, what the error says)}.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    **{
        f"{key} of {value}": ({**META, key: value}, f"{key}: {value} {WHOLE}")
        for key in ("dim", "n_layers", "n_heads", "multiple_of")
        for value in (0, -1, 10**9 + 1, 2.0, True)
    },
    **{
        f"a multiplier of {value}": (
            {**META, "ffn_dim_multiplier": value},
            "is not a number above 0",
        )
        for value in (0, -1, 1000.5, 1001, True, float("nan"))
    },
    **{
        f"an expansion of {value}": ({**MOE, "ffn_exp": value}, "ffn_exp: ")
        for value in (0, -1, 1000.5, 1001, None, 10**400)
    },
    **{
        f"a capacity of {value}": (
            {**MOE, "moe_args": {"capacity_factor": value}},
            "moe_args.capacity_factor: ",
        )
        for value in (-0.5, 1000.5, 1001, None)
    },
    "experts that are no mapping": ({**META, "moe_args": [1]}, "moe_args: not a mapping"),
    "Llama 3.2 Vision": ({**META, "vision_num_cross_attention_layers": 8}, "Llama 3.2 Vision"),
    "a key beside Mixtral's": (
        {**MISTRAL, "moe": {"num_experts": 8, "routed_scale": 2}},
        "moe: only num_experts",
    ),
    "Mixtral's experts as a list": ({**MISTRAL, "moe": [8]}, "moe: not a mapping"),
    "a tower that is no mapping": ({**MOE, "vision_args": [1]}, "vision_args: not a mapping"),
    "a quantization that is no mapping": (
        {**MISTRAL, "quantization": "fp8"},
        "quantization: not a mapping",
    ),
    "a key of Llama 4 in an older Llama": ({**META, "head_dim": 64}, "unknown key head_dim"),
    "a key of no release of Meta's": ({**META, "multiple_off": 2}, "unknown key multiple_off"),
    "a key of no release of Mistral's": (
        {**MISTRAL, "ffn_exp": 4, "n_loops": 2},
        "unknown key n_loops",
    ),
    "a key of no Mamba": ({**MAMBA, "d_state": 64}, "unknown key d_state"),
    "experts of another kind": (
        {**MOE, "moe_args": {"num_shared": 1}},
        "unknown key moe_args.num_shared",
    ),
    "experts of another kind beside latents": (
        {**LATENT, "moe": {"n_experts": 1}},
        "unknown key moe.n_experts",
    ),
    "another tower of Meta's": (
        {**MOE, "vision_args": {**VISION, "depth": 1}},
        "unknown key vision_args.depth",
    ),
    "another tower of Mistral's": (
        {**MISTRAL, "vision_encoder": {**PIXTRAL, "depth": 1}},
        "unknown key vision_encoder.depth",
    ),
    "another tower": (
        {**MISTRAL, "multimodal": {"audio_model_args": {}}},
        "unknown key multimodal.audio_model_args",
    ),
    "a norm that LLaVA's projector does not have": (
        {**MISTRAL, "vision_encoder": {**PIXTRAL, "add_pre_mm_projector_layer_norm": True}},
        "vision_encoder: a norm",
    ),
    "no KV heads at all": ({**META, "n_kv_heads": 0}, "n_kv_heads: 0 is not"),
    "experts scaled in quotes": (
        {**MOE, "moe_args": {"auto_scale_F": "false"}},
        "auto_scale_F: 'false' is not true",
    ),
    "latents without their width": (
        {**MISTRAL, "kv_lora_rank": 512},
        "kv_lora_rank without qk_nope_head_dim",
    ),
    **{
        f"a vocabulary of {size}": (
            {**META, "vocab_size": size},
            f"vocab_size: {size} is not the vocabulary",
        )
        for size in (-2, 0, 31_999, 33_024, 128_255, 152_064, 203_072, True, 32_000.0)
    },
    "biases": ({**MISTRAL, "use_biases": True}, "use_biases True"),
    "norms of Voxtral Realtime": (
        {**MISTRAL, "ada_rms_norm_t_cond": True},
        "ada_rms_norm_t_cond True",
    ),
    "two lists of windows": (
        {**MISTRAL, "sliding_window": 10, "_sliding_window": [10]},
        "cannot be combined",
    ),
    "Mamba with LayerNorm": ({**MAMBA, "rms_norm": False}, "rms_norm False"),
    **{
        f"no {key}": (
            {name: value for name, value in data.items() if name != key},
            f"{key} is missing",
        )
        for data, keys in (
            (META, ["norm_eps"]),
            (MISTRAL, ["head_dim", "n_kv_heads", "vocab_size", "norm_eps"]),
        )
        for key in keys
    },
    **{
        f"experts in every layer of {n}": (
            {**LATENT, "moe": {"route_every_n": n}},
            f"moe.route_every_n: {n} is not supported",
        )
        for n in (0, 2)
    },
    **{
        f"windows of {windows}": (
            {**MISTRAL, "sliding_window": windows},
            "not a list of one size and nulls",
        )
        for windows in ([], [10, 20], [None, 10, 20], [10, "x"], [10.5], [None, 2.5])
    },
    **{
        f"windows in {layers} layers": (
            {**MISTRAL, "n_layers": layers, "sliding_window": [None, 10]},
            "not a list of one size and nulls",
        )
        for layers in (0, -1, MAX_LAYERS + 1, 2.0, None)
    },
}


@each("case", REFUSED)
def test_a_value_outside_its_limits_is_an_error_with_its_key(case: str) -> None:
    data, message = REFUSED[case]
    error = refusal(to_config, data, "folder/params.json")
    assert error.message.startswith("folder/params.json: ")
    assert message in error.message
    assert error.tip.endswith("give the config.json of the same model")


@each(
    ("data", "expected"),
    [
        (META, True),
        ({**META, "model_type": "transformer"}, True),
        ({**META, "model_type": "llama"}, True),
        ({**META, "model_type": "mistral"}, True),
        ({**META, "model_type": "distilbert"}, False),
        (MAMBA, True),
        ({"dim": 1, "n_layers": 1}, False),
        ({"dim": 1, "n_heads": 1}, False),
        ({"n_layers": 1, "n_heads": 1}, False),
        *(
            ({**META, key: 1}, False)
            for key in ("architectures", "hidden_size", "num_hidden_layers", "d_model")
        ),
        ({"model": META}, True),
        ({"model": "llama", **META}, True),
        ({"model": {"x": 1}, **META}, True),
        ({"model": {"x": 1}}, False),
    ],
)
def test_a_params_json_is_known_by_its_keys(data: dict[str, Any], expected: bool) -> None:
    assert is_params_json(data) is expected
