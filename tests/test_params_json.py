"""params.json of Meta and Mistral, compared with the same model's preset or published size; and
other layouts.
"""

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from asking import Ask, refusal
from hypothesis import given
from hypothesis import strategies as st

from attncalc import AttncalcError, Full, ModelSpec, Workload, kv_cache, load
from attncalc.config.params_json import is_params_json
from attncalc.cost.params import params

LLAMA_3 = {
    "ffn_dim_multiplier": 1.3,
    "n_kv_heads": 8,
    "norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "vocab_size": 128256,
}
MISTRAL = {
    "dim": 4096,
    "n_layers": 32,
    "head_dim": 128,
    "hidden_dim": 14336,
    "n_heads": 32,
    "n_kv_heads": 8,
    "norm_eps": 1e-05,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
}
# {preset: the params.json of its release}.
PRESETS: dict[str, dict[str, Any]] = {
    "llama2-7b": {
        "dim": 4096,
        "multiple_of": 256,
        "n_heads": 32,
        "n_layers": 32,
        "norm_eps": 1e-05,
        "vocab_size": -1,
    },
    "llama2-70b": {
        "dim": 8192,
        "multiple_of": 4096,
        "ffn_dim_multiplier": 1.3,
        "n_heads": 64,
        "n_kv_heads": 8,
        "n_layers": 80,
        "norm_eps": 1e-05,
        "vocab_size": -1,
    },
    "llama3-8b": {**LLAMA_3, "dim": 4096, "multiple_of": 1024, "n_heads": 32, "n_layers": 32},
    "llama3-70b": {**LLAMA_3, "dim": 8192, "multiple_of": 4096, "n_heads": 64, "n_layers": 80},
    "llama3.1-405b": {
        **LLAMA_3,
        "dim": 16384,
        "ffn_dim_multiplier": 1.2,
        "multiple_of": 4096,
        "n_heads": 128,
        "n_layers": 126,
        "use_scaled_rope": True,
    },
    "mistral-7b-v0.1": {**MISTRAL, "sliding_window": 4096},
    "mixtral-8x7b": {**MISTRAL, "moe": {"num_experts_per_tok": 2, "num_experts": 8}},
}
# Its original/config.json.
GPT_OSS_120B = {
    "num_hidden_layers": 36,
    "num_experts": 128,
    "experts_per_token": 4,
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "swiglu_limit": 7.0,
    "head_dim": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "sliding_window": 128,
    "initial_context_length": 4096,
    "rope_theta": 150000,
    "rope_scaling_factor": 32.0,
    "rope_ntk_alpha": 1,
    "rope_ntk_beta": 32,
}
LLAMA_4 = {
    "dim": 5120,
    "n_layers": 48,
    "n_heads": 40,
    "n_kv_heads": 8,
    "vocab_size": 202048,
    "multiple_of": 2048,
    "ffn_dim_multiplier": 1.2,
    "ffn_exp": 4.0,
    "norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "attention_chunk_size": 8192,
    "nope_layer_interval": 4,
    "vision_args": {
        "image_size": {"height": 336, "width": 336},
        "patch_size": {"height": 14, "width": 14},
        "dim": 1408,
        "n_layers": 34,
        "n_heads": 16,
        "mlp_ratio": 4.0,
        "output_dim": 4096,
        "pixel_shuffle_ratio": 0.5,
    },
}
PIXTRAL = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "patch_size": 14,
    "image_size": 1540,
    "intermediate_size": 4096,
    "num_channels": 3,
    "rope_theta": 10000.0,
    "mm_projector_id": "patch_merge",
    "add_pre_mm_projector_layer_norm": True,
    "adapter_bias": False,
    "spatial_merge_size": 2,
    "image_token_id": 10,
}
LARGE_3_EXPERTS = {
    "expert_hidden_dim": 4096,
    "expert_model_parallel": 1,
    "expert_parallel": 1,
    "first_k_dense_replace": 3,
    "num_expert_groups": 1,
    "num_expert_groups_per_tok": 1,
    "num_experts": 128,
    "num_experts_per_tok": 4,
    "num_shared_experts": 1,
    "route_every_n": 1,
    "routed_scale": 1.0,
}
LARGE_3 = {
    "dim": 7168,
    "head_dim": 192,
    "hidden_dim": 16384,
    "kv_lora_rank": 512,
    "llama_4_scaling": {"beta": 0.1, "original_max_position_embeddings": 8192},
    "max_position_embeddings": 294912,
    "max_seq_len": 262144,
    "moe": LARGE_3_EXPERTS,
    "n_heads": 128,
    "n_kv_heads": 128,
    "n_layers": 61,
    "norm_eps": 1e-06,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rope_theta": 10000.0,
    "tied_embeddings": False,
    "v_head_dim": 128,
    "vocab_size": 131072,
    "yarn": {
        "alpha": 1,
        "apply_scale": False,
        "beta": 32,
        "factor": 36,
        "original_max_position_embeddings": 8192,
    },
}
SCALED = {"use_scaled_rope": True}
SMALL = {**LLAMA_3, **SCALED, "multiple_of": 256}
TOTALS: dict[str, tuple[dict[str, Any], int]] = {
    # As in the safetensors files of the same models on the hub, or from config.json where these are
    # not public.
    "Llama 3.2 1B": (
        {**SMALL, "dim": 2048, "ffn_dim_multiplier": 1.5, "n_heads": 32, "n_layers": 16},
        1_235_814_400,
    ),
    "Llama 3.2 3B": (
        {**SMALL, "dim": 3072, "ffn_dim_multiplier": 1.0, "n_heads": 24, "n_layers": 28},
        3_212_749_824,
    ),
    "Ministral 8B": (
        {
            **MISTRAL,
            "n_layers": 36,
            "hidden_dim": 12288,
            "vocab_size": 131072,
            "sliding_window": [None, 32768, 32768, 32768],
        },
        8_019_808_256,
    ),
    "Codestral Mamba": (
        {
            "dim": 4096,
            "n_layers": 64,
            "vocab_size": 32768,
            "n_groups": 8,
            "rms_norm": True,
            "residual_in_fp32": True,
            "fused_add_norm": True,
            "pad_vocab_size_multiple": 1,
            "tie_embeddings": False,
            "model_type": "mamba",
        },
        7_285_403_648,
    ),
    "Mistral Small 3.1": (
        {
            **MISTRAL,
            "dim": 5120,
            "n_layers": 40,
            "hidden_dim": 32768,
            "vocab_size": 131072,
            "vision_encoder": PIXTRAL,
        },
        24_011_361_280,
    ),
    "Llama 4 Maverick": (
        {
            **LLAMA_4,
            "moe_args": {
                "num_experts": 128,
                "capacity_factor": 1.0,
                "top_k": 1,
                "interleave_moe_layer_step": 2,
            },
        },
        # config.json: the language model, and the tower with its projector
        400_711_848_960 + 871_932_416,
    ),
    "Llama 4 Scout": (
        {
            **LLAMA_4,
            **SCALED,
            "use_qk_norm": True,
            "moe_args": {"num_experts": 16, "auto_scale_F": True, "top_k": 1},
        },
        108_641_793_536,
    ),
}


def write(folder: Path, data: object, name: str = "params.json") -> Path:
    file = folder / name
    file.write_text(json.dumps(data))
    return file


def figures(model: ModelSpec) -> tuple[int, int, str, int | None]:
    """Return parameters, bytes of the cache, dtype and maximum context."""
    cache = kv_cache(model, Workload.decode(context=8192)).total
    return int(params(model).total), int(cache), model.dtype, model.max_context


@pytest.mark.parametrize("preset", PRESETS)
def test_a_params_json_has_the_figures_of_its_preset(tmp_path: Path, preset: str) -> None:
    write(tmp_path, PRESETS[preset])
    assert figures(load(tmp_path)) == figures(load(preset))


@pytest.mark.parametrize("name", TOTALS)
def test_a_params_json_has_the_published_parameters(tmp_path: Path, name: str) -> None:
    data, total = TOTALS[name]
    model = load(write(tmp_path, data))
    assert int(params(model).total) + sum(tower.params for tower in model.towers) == total


def test_gpt_oss_own_config_is_refused_by_name(ask: Ask, tmp_path: Path) -> None:
    path = write(tmp_path, GPT_OSS_120B, "config.json")
    error, tip = ask("kv", str(path)).error.splitlines()
    assert "OpenAI's original/config.json of gpt-oss is not supported" in error
    assert "give the config.json of the same model, in the folder above" in tip


def test_mistral_large_3_has_latent_attention_and_dense_layers(tmp_path: Path) -> None:
    """Published: 673B parameters of which 39B are active, and 61 layers of which 3 are dense."""
    model = load(write(tmp_path, LARGE_3))
    assert round(int(params(model).total) / 10**9) == 673
    assert round(int(params(model).active - params(model).embedding) / 10**9) == 39
    assert [group.count for group in model.main.layers] == [3, 58]
    # 61 layers * (512 + 64) * 2 B
    assert int(kv_cache(model, Workload.decode(context=1)).total) == 61 * 576 * 2


def test_a_list_of_windows_repeats(tmp_path: Path) -> None:
    """36 layers: 9 of full attention and 27 with a window; 2 * 8 heads * 128 * 2 B per token and
    layer.
    """
    model = load(write(tmp_path, TOTALS["Ministral 8B"][0]))
    full, windowed = 9 * 65536, 27 * 32768
    assert (
        int(kv_cache(model, Workload.decode(context=65536)).total)
        == (full + windowed) * 2 * 8 * 128 * 2
    )


def test_llama_4_has_full_attention_in_each_fourth_layer(tmp_path: Path) -> None:
    model = load(write(tmp_path, TOTALS["Llama 4 Scout"][0]))
    assert (
        sum(group.count for group in model.main.layers if isinstance(group.attention.span, Full))
        == 12
    )


def test_fp8_of_mistral_is_read(tmp_path: Path) -> None:
    data = {**MISTRAL, "quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}}
    assert load(write(tmp_path, data)).weights_dtype == "fp8"


def test_a_quantization_that_is_not_read_is_named(tmp_path: Path) -> None:
    data = {**PRESETS["llama3-8b"], "quantization_args": {"group_size": 32}}
    assert "quantization_args" in load(write(tmp_path, data)).unread_quantization
    assert load(
        write(tmp_path, {**MISTRAL, "quantization": {"qformat_weight": "int3"}})
    ).unread_quantization


def test_what_is_assumed_is_noted(tmp_path: Path) -> None:
    notes = load(write(tmp_path, PRESETS["llama2-7b"])).notes
    assert (
        "The params.json leaves the vocabulary to the tokenizer; 32,000 tokens are assumed."
        in notes
    )
    assert any("names no maximum context; 4,096 tokens are assumed" in note for note in notes)
    without = {key: value for key, value in MISTRAL.items() if key != "max_position_embeddings"}
    model = load(write(tmp_path, without))
    assert (model.max_context, model.sources[0][:16]) == (128_000, "its params.json,")
    assert any("128,000 tokens are assumed, as vLLM does" in note for note in model.notes)


def test_a_config_goes_before_a_params_json(tmp_path: Path) -> None:
    write(tmp_path, PRESETS["llama3-8b"])
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4}
    write(tmp_path, config, "config.json")
    assert load(tmp_path).model_type == "gpt2"


def test_a_config_of_transformers_is_no_params_json() -> None:
    distilbert = {
        "model_type": "distilbert",
        "dim": 768,
        "hidden_dim": 3072,
        "n_heads": 12,
        "n_layers": 6,
    }
    assert not is_params_json(distilbert)
    assert not is_params_json({**PRESETS["llama3-8b"], "architectures": ["LlamaForCausalLM"]})
    assert is_params_json({"model": PRESETS["llama3-8b"]})


TORCHCHAT = {
    "block_size": 131072,
    "rope_base": 5e5,
    "rope_scaling": {"factor": 8.0},
    "use_tiktoken": True,
}
EXECUTORCH = {
    "ffn_dim_multiplier": 1,
    "norm_eps": 1e-6,
    "use_scaled_rope": False,
    "use_hf_rope": True,
}
OTHER_PROJECTS: dict[str, dict[str, Any]] = {
    # n_local_heads are KV heads: read as Meta's, the cache would have 8 times its size.
    "torchchat's Llama 3.1 70B": {
        **TORCHCHAT,
        "dim": 8192,
        "ffn_dim_multiplier": 1.3,
        "multiple_of": 4096,
        "n_heads": 64,
        "n_local_heads": 8,
        "n_layers": 80,
        "vocab_size": 128256,
        "norm_eps": 1e-05,
    },
    # Without use_scaled_rope the embedding would not be shared.
    "torchchat's Llama 3.2 1B": {**TORCHCHAT, **TOTALS["Llama 3.2 1B"][0]},
    "torchchat's Llama 2 7B": {"n_layers": 32, "n_heads": 32, "dim": 4096},
    "torchchat's Stories 42M": {"n_layers": 8, "n_heads": 8, "dim": 512, "hidden_dim": 1376},
    "ExecuTorch's Qwen3 0.6B": {
        **EXECUTORCH,
        "dim": 1024,
        "hidden_dim": 3072,
        "n_heads": 16,
        "head_dim": 128,
        "n_kv_heads": 8,
        "n_layers": 28,
        "vocab_size": 151936,
        "attention_qkv_bias": False,
        "use_qk_norm": True,
        "qk_norm_before_rope": True,
    },
    "ExecuTorch's Gemma 2B": {
        **EXECUTORCH,
        "dim": 2048,
        "hidden_dim": 16384,
        "n_heads": 8,
        "head_dim": 256,
        "n_kv_heads": 1,
        "n_layers": 18,
        "vocab_size": 256000,
        "norm_type": "gemma3",
        "act_fn": "gelu",
    },
    "DeepSeek's own V3": {
        "vocab_size": 129280,
        "dim": 7168,
        "inter_dim": 18432,
        "moe_inter_dim": 2048,
        "n_layers": 61,
        "n_dense_layers": 3,
        "n_heads": 128,
        "n_routed_experts": 256,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
    },
}


def test_a_params_json_of_another_project_is_one_error(ask: Ask, tmp_path: Path) -> None:
    """Some keys have another meaning there, and some files do not say whether the embedding is
    shared.
    """
    for name, data in OTHER_PROJECTS.items():
        answer = ask("kv", str(write(tmp_path, data)))
        assert (answer.code, answer.out) == (2, ""), name
        assert "unknown key" in answer.err or "is missing" in answer.err, name
        assert "only Mistral's and Meta's own releases are read" in answer.err, name


def test_a_renamed_key_is_an_error_wherever_it_is(tmp_path: Path) -> None:
    files = {
        **PRESETS,
        **{name: data for name, (data, _) in TOTALS.items()},
        "Mistral Large 3": LARGE_3,
    }
    for name, data in files.items():
        inner = [(key, k) for key, part in data.items() if isinstance(part, dict) for k in part]
        for outer, key in [("", key) for key in data] + inner:
            changed = json.loads(json.dumps(data))
            part = changed[outer] if outer else changed
            part[f"{key}_x"] = part.pop(key)
            if outer not in ("yarn", "llama_4_scaling"):  # they change no figure
                with pytest.raises(AttncalcError):
                    assert not load(write(tmp_path, changed)), (name, outer, key)


BROKEN: dict[str, dict[str, Any]] = {
    "no width": {**PRESETS["llama3-8b"], "dim": None},
    "a width with a fraction": {**PRESETS["llama3-8b"], "dim": 4096.5},
    "a multiplier of text": {**PRESETS["llama3-8b"], "ffn_dim_multiplier": "1.3"},
    "an endless multiplier": {**PRESETS["llama3-8b"], "ffn_dim_multiplier": float("inf")},
    "multiples of zero": {**PRESETS["llama3-8b"], "multiple_of": 0},
    "no layers": {**PRESETS["llama3-8b"], "n_layers": 0},
    "a vision model": {**PRESETS["llama3-8b"], "vision_num_cross_attention_layers": 8},
    "a vocabulary of text": {**PRESETS["llama3-8b"], "vocab_size": "x"},
    "two windows": {**MISTRAL, "sliding_window": [10, 20]},
    "experts as a number": {**MISTRAL, "moe": 8},
    "every second layer": {**LARGE_3, "moe": {**LARGE_3_EXPERTS, "route_every_n": 2}},
    "a dtype that is not known": {**MISTRAL, "dtype": "complex64"},
    "an unknown key": {**MISTRAL, "n_loops": 2, "hidden_dim": "x"},
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_params_json_that_cannot_be_read_is_one_error(
    ask: Ask, tmp_path: Path, case: str
) -> None:
    assert len(ask("kv", str(write(tmp_path, BROKEN[case]))).error.splitlines()) == 2


KEYS = [
    "dim",
    "n_layers",
    "n_heads",
    "n_kv_heads",
    "hidden_dim",
    "multiple_of",
    "ffn_dim_multiplier",
    "moe",
    "moe_args",
    "vision_args",
    "vision_encoder",
    "multimodal",
    "sliding_window",
    "quantization",
    "nope_layer_interval",
    "ffn_exp",
]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 10**12),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(0, 3) | st.none(), max_size=3),
    st.dictionaries(
        st.sampled_from(["num_experts", "top_k", "capacity_factor", "route_every_n"]),
        st.integers(),
        max_size=3,
    ),
)


@given(
    st.sampled_from([*PRESETS.values(), LLAMA_4, LARGE_3]),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=2),
)
def test_any_params_json_has_parameters_or_is_one_error(
    data: dict[str, Any], changes: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(AttncalcError):
        assert figures(load(write(Path(folder), {**data, **changes})))[0] > 0


# Other layouts

LAYOUTS: dict[str, tuple[str, object, str, str]] = {
    "LoRA": (
        "adapter_config.json",
        {"peft_type": "LORA", "base_model_name_or_path": "meta-llama/Llama-3.1-8B", "r": 16},
        "a LoRA adapter (adapter_config.json)",
        "give the base model: meta-llama/Llama-3.1-8B",
    ),
    "TensorRT-LLM checkpoint": (
        "config.json",
        {
            "architecture": "LlamaForCausalLM",
            "hidden_size": 4096,
            "mapping": {"tp_size": 2},
            "quantization": {},
        },
        "a config of TensorRT-LLM",
        "give the config.json of the model itself",
    ),
    "MLC": (
        "mlc-chat-config.json",
        {"model_type": "llama", "quantization": "q4f16_1", "model_config": {"hidden_size": 4096}},
        "a config of MLC LLM",
        "give the config.json",
    ),
    "diffusers": (
        "model_index.json",
        {
            "_class_name": "Flux",
            "_diffusers_version": "0.30",
            "text_encoder": ["transformers", "CLIPTextModel"],
        },
        "a pipeline of diffusers",
        "give the config.json of a part, as text_encoder/config.json",
    ),
    "sentence-transformers": (
        "modules.json",
        [
            {
                "idx": 0,
                "name": "0",
                "path": "0_Transformer",
                "type": "sentence_transformers.models.Transformer",
            }
        ],
        "the modules of sentence-transformers",
        "give 0_Transformer/config.json",
    ),
    "an index": (
        "model.safetensors.index.json",
        {"metadata": {"total_size": 5}, "weight_map": {}},
        "the index of safetensors files",
        "give the folder that contains it",
    ),
    "GGUF metadata": (
        "gguf.json",
        {"general.architecture": "llama"},
        "the metadata of a GGUF file",
        "the .gguf file",
    ),
    "generation": (
        "generation_config.json",
        {"eos_token_id": 2, "transformers_version": "4.4"},
        "a generation_config.json",
        "give the config.json beside it",
    ),
}


@pytest.mark.parametrize("case", LAYOUTS)
def test_another_layout_is_named_with_what_to_give(ask: Ask, tmp_path: Path, case: str) -> None:
    name, data, message, tip = LAYOUTS[case]
    for options in ((), ("--assume-grouped",)):
        error, advice = ask("kv", str(write(tmp_path, data, name)), *options).error.splitlines()
        assert message in error
        assert tip in advice


@pytest.mark.parametrize("case", ["LoRA", "diffusers", "sentence-transformers", "MLC"])
def test_a_folder_with_another_layout_names_it(tmp_path: Path, case: str) -> None:
    name, data, message, _ = LAYOUTS[case]
    write(tmp_path, data, name)
    assert message in refusal(load, tmp_path).message
