"""Families whose code is the vendor's: their figures against an independent count and the published
totals.

tests/data/vendor-configs.json has the fields of real config.json files, without those of generation
and of names. The counts below follow the vendor's own modelling file, or vLLM's, not the rules of
the family.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from configs import spec_of
from tables import each

from attncalc import Workload, kv_cache, load, params
from attncalc.attention.shared_pools import SharedPools
from attncalc.config.build import build_model
from attncalc.config.gpus import gpu
from attncalc.config.huggingface import convert_config
from attncalc.config.schema import check
from attncalc.config.yaml import parse_document, to_yaml
from attncalc.errors import AttncalcError
from attncalc.serving.fit import fit
from attncalc.serving.launch import launch_command
from attncalc.serving.request import FitRequest
from attncalc.serving.weights import weights

CONFIGS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "vendor-configs.json").read_text()
)
GROUP: dict[str, Any] = {
    "targets": 5,
    "weights": {"num_bits": 4, "type": "int", "strategy": "channel"},
}


def total(name: str, **changes: Any) -> int:
    return int(params(spec_of({**CONFIGS[name], **changes})).total)


def cache(name: str, tokens: int = 4096) -> int:
    """Return the bytes of one sequence's cache in bf16."""
    return int(kv_cache(spec_of(CONFIGS[name]), Workload.decode(1, tokens, kv_dtype="bf16")).total)


def grouped(d_model: int, heads: int, kv_heads: int, d_head: int) -> int:
    """Return the elements of W_q, W_k, W_v and W_o."""
    return 2 * d_model * d_head * (heads + kv_heads)


@each(
    ("name", "published", "not_counted"),
    [
        ("nemotron-super-49b", 49.9e9, 0),  # NVIDIA's model card
        # Hugging Face's count, with the layer of multi-token prediction
        ("mimo-7b", 7.83e9, 210_790_400),
        ("ling-lite", 16.8e9, 0),  # the Ling technical report
        ("ling-plus", 290e9, 0),
        ("kimi-k3", 2.8e12, 0),  # Moonshot's announcement
        ("minimax-m3", 428e9, 0),  # MiniMax's release notes, with the vision tower
        ("step-3.7-flash", 196e9, 0),  # StepFun's model card, the language model
        ("deepseek-v4-flash-fp8", 284e9, 0),  # DeepSeek's model card
        # Hugging Face's count, with the tower and its resampler
        ("minicpm-v-2.6", 8.1e9, 486_411_504),
        # Ai2's: with a CLIP ViT-L of 23 layers, pooling and projector
        ("molmo-7b-d", 8.02e9, 404_000_000),
        ("vila1.5-3b", 2.7e9, 0),  # Sheared LLaMA 2.7B
    ],
)
def test_the_total_is_the_published_one(name: str, published: float, not_counted: int) -> None:
    assert total(name) + not_counted == pytest.approx(published, rel=0.008)


def test_nemotron_nas_counts_each_block_of_its_own_width() -> None:
    d = 8192
    # the MLP is 2/3 of ffn_mult * d wide, rounded up to 256: 5.25 -> 28,672, 1.3125 -> 7,168, 1.0
    # -> 5,632
    width = {0.5: 2816, 1.0: 5632, 1.3125: 7168, 2.625: 14336, 3.28125: 17920, 5.25: 28672}
    # 49 layers have attention with 64 / 8 KV heads, and 48 of them the widest MLP
    assert [b["attention"]["no_op"] for b in CONFIGS["nemotron-super-49b"]["block_configs"]].count(
        False
    ) == 49
    mlps = {5.25: 49, 2.625: 6, 1.3125: 10, 1.0: 8, 0.5: 6, 3.28125: 1}
    layers = 49 * (grouped(d, 64, 8, 128) + d) + sum(
        n * (3 * d * width[mult] + d) for mult, n in mlps.items()
    )
    assert total("nemotron-super-49b") == 2 * 128_256 * d + layers + d
    # 49 layers * K and V of 8 heads * 128 in 2 B
    assert cache("nemotron-super-49b") == 4096 * 49 * 2 * 8 * 128 * 2


def test_nemotron_nas_may_replace_a_part_by_a_matrix_or_by_nothing() -> None:
    """Llama-3_1-Nemotron-51B has linear attentions and MLPs (DeciLMLinearMLP: width x width,
    without a bias).
    """
    full = {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 1.5}}
    linear = {"attention": {"replace_with_linear": True}, "ffn": {"replace_with_linear": True}}
    nothing = {"attention": {"no_op": True}, "ffn": {"no_op": True}}
    config = {
        "model_type": "nemotron-nas",
        "architectures": ["DeciLMForCausalLM"],
        "hidden_size": 512,
        "num_attention_heads": 8,
        "num_hidden_layers": 3,
        "vocab_size": 1000,
        "block_configs": [full, linear, nothing],
    }
    # embedding, head and last norm; W_q and W_o 512 x 512, W_k and W_v of 2 heads; MLP of 512; two
    # norms
    expected = 2 * 1000 * 512 + 512 + grouped(512, 8, 2, 64) + 3 * 512 * 512 + 2 * 512
    # the two matrices and their norms; a layer of nothing has neither
    expected += 2 * 512 * 512 + 2 * 512
    assert params(spec_of(config)).total == expected
    windowed = {
        "attention": {"n_heads_in_group": 4, "window_length": 128},
        "ffn": {"ffn_mult": 1.5},
    }
    with pytest.raises(AttncalcError, match="block_configs"):
        spec_of({**config, "block_configs": [windowed, linear, nothing]})


def test_mimo_is_qwen2_without_a_window() -> None:
    d = 4096
    layer = grouped(d, 32, 8, 128) + (32 + 2 * 8) * 128 + 3 * d * 11008 + 2 * d
    assert total("mimo-7b") == 36 * layer + 2 * 151_680 * d + d


def test_mimo_v2_has_full_layers_and_windows_in_the_order_of_its_lists() -> None:
    """Layer 0 and every sixth see everything, with 4 KV heads; 39 see 128 tokens before, with 8 and
    a sink per head.
    """
    d, full, windowed = 4096, 9, 39
    attention = (
        2 * d * 64 * 192 * 48
        - (192 - 128) * d * 64 * 48
        + d * (192 + 128) * (full * 4 + windowed * 8)
    )
    experts = 47 * (256 * 3 * d * 2048 + 256 * d)  # with the router
    expected = attention + windowed * 64 + 3 * d * 16384 + experts + 97 * d + 2 * 152_576 * d
    # XiaomiMiMo's card of V2-Flash
    assert total("mimo-v2.6-flash") == expected == pytest.approx(309e9, rel=0.001)
    tokens = 4096 * full * 4 + 129 * windowed * 8
    assert cache("mimo-v2.6-flash") == tokens * (192 + 128) * 2
    turned = [1 - kind for kind in CONFIGS["mimo-v2.6-flash"]["hybrid_layer_pattern"]]
    assert total("mimo-v2.6-flash", hybrid_layer_pattern=turned) == expected - 30 * (
        d * 320 * 4 + 64
    )


def test_mimo_v2_6_has_experts_in_mxfp4_and_outputs_of_attention_in_16_bits() -> None:
    """A log of vLLM on 8 GPUs with whole experts has 20.1 GiB of weights on each."""
    spec = spec_of(CONFIGS["mimo-v2.6-flash"])
    request = FitRequest(
        spec,
        Workload.decode(1, 4096),
        "vllm",
        gpu=gpu("h100-80gb"),
        gpus=8,
        tp=8,
        enable_expert_parallel=True,
    )
    held = fit(request).budget.weights
    assert held is not None
    assert int(held.total) / 2**30 == pytest.approx(20.1, rel=0.01)
    assert spec.quantization is not None
    scheme_of = spec.quantization.scheme_of
    found = [
        scheme_of(1, "attention", "W_q"),
        scheme_of(1, "attention", "W_o"),
        scheme_of(1, "experts", "W_down"),
    ]
    assert [scheme and scheme.name for scheme in found] == ["fp8", None, "mxfp4"]


@pytest.mark.parametrize(
    ("name", "d", "layers", "heads", "kv_heads", "shared", "width"),
    [("ling-lite", 2048, 28, 16, 4, 2, 1408), ("ling-plus", 5376, 88, 56, 8, 1, 3072)],
)
def test_ling_has_experts_in_every_layer(
    name: str, d: int, layers: int, heads: int, kv_heads: int, shared: int, width: int
) -> None:
    experts = (64 + shared) * 3 * d * width + 64 * d
    layer = grouped(d, heads, kv_heads, d // heads) + experts + 2 * d
    assert total(name) == layers * layer + 2 * 126_464 * d + d


LING_MINI_2: dict[str, Any] = {
    "model_type": "bailing_moe_v2",
    "architectures": ["BailingMoeV2ForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "moe_intermediate_size": 512,
    "num_hidden_layers": 20,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 256,
    "num_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 1,
    "use_bias": False,
    "use_qkv_bias": False,
    "use_qk_norm": True,
    "vocab_size": 157_184,
}


def test_ling_2_has_norms_on_queries_and_keys_and_a_dense_layer() -> None:
    """Ling-mini-2.0: 16 billion parameters, of which 1.4 are active."""
    d = 2048
    attention = grouped(d, 16, 4, 128) + 2 * 128 + 2 * d
    sparse = 257 * 3 * d * 512 + 256 * d
    expected = 20 * attention + 3 * d * 5120 + 19 * sparse + 2 * 157_184 * d + d
    assert params(spec_of(LING_MINI_2)).total == expected == pytest.approx(16.26e9, rel=0.001)


def test_ring_linear_has_lightning_attention_between_full_layers() -> None:
    """Ring-mini-linear-2.0: 16.4 billion parameters, every fifth of 20 layers with full
    attention.
    """
    config = {
        **LING_MINI_2,
        "model_type": "bailing_moe_linear",
        "architectures": ["BailingMoeLinearV2ForCausalLM"],
    }
    spec = spec_of({**config, "layer_group_size": 5, "group_norm_size": 4})
    d = 2048
    full = grouped(d, 16, 4, 128) + 2 * 128
    # q, k, v, the gate and o; the norm before the gate, and those of q and k
    linear = 5 * d * d + d + 2 * 128
    sparse = 257 * 3 * d * 512 + 256 * d
    expected = (
        4 * full + 16 * linear + 20 * 2 * d + 3 * d * 5120 + 19 * sparse + 2 * 157_184 * d + d
    )
    assert params(spec).total == expected == pytest.approx(16.4e9, rel=0.002)
    # 4 layers of K and V of 4 heads; 16 states of 16 heads x 128 x 128
    states = 16 * 16 * 128 * 128 * 2
    assert (
        kv_cache(spec, Workload.decode(1, 100, kv_dtype="bf16")).total
        == 100 * 4 * 2 * 4 * 128 * 2 + states
    )


def test_ling_2_5_is_not_read_as_its_successor_of_the_same_model_type() -> None:
    """Ling-2.5-1T: one trillion parameters; lightning attention and MLA (vLLM's
    BailingMoeV25Model).
    """
    config = {
        "model_type": "bailing_hybrid",
        "architectures": ["BailingMoeV2_5ForCausalLM"],
        "hidden_size": 8192,
        "intermediate_size": 18_432,
        "moe_intermediate_size": 2048,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "head_dim": 128,
        "num_experts": 256,
        "num_shared_experts": 1,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 4,
        "layer_group_size": 8,
        "use_bias": False,
        "use_qkv_bias": False,
        "use_qk_norm": True,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "vocab_size": 157_184,
    }
    d, width = 8192, 64 * 128
    mla = d * 1536 + 1536 + 1536 * 64 * 192 + d * 576 + 512 + 512 * 64 * 256 + width * d
    linear = 5 * d * width + width + 2 * 128
    sparse = 257 * 3 * d * 2048 + 256 * d
    expected = (
        10 * mla + 70 * linear + 80 * 2 * d + 4 * 3 * d * 18_432 + 76 * sparse + 2 * 157_184 * d + d
    )
    assert params(spec_of(config)).total == expected == pytest.approx(1e12, rel=0.03)
    assert (
        params(spec_of({**config, "architectures": ["BailingHybridForCausalLM"]})).total != expected
    )


def test_kimi_k3_has_full_gates_latent_experts_and_attention_over_residuals() -> None:
    """vLLM's models/kimi_k3/nvidia: model.py (KimiMoE, KimiDecoderLayer), mla.py, kda.py."""
    d, heads, width = 7168, 96, 96 * 128
    mla = (
        d * 1536
        + 1536
        + 1536 * heads * 192
        + d * (512 + 64)
        + 512
        + 512 * heads * 256
        + 2 * d * width
    )
    # q, k, v, gate and o; the decay of rank 128; beta; three convolutions; dt_bias, A_log and the
    # norm of a head
    kda = 5 * d * width + d * 128 + 128 * width + d * heads + 3 * width * 4 + width + heads + 128
    latent = 3584
    experts = 896 * 3 * latent * 3072 + 896 * d + 2 * d * latent + latent + 3 * d * 2 * 3072
    every_layer = 2 * d + 4 * d  # two norms; a norm and a query for the residuals, twice
    expected = 24 * mla + 69 * kda + 93 * every_layer + 3 * d * 33_792 + 92 * experts
    expected += 2 * 163_840 * d + d + 2 * d
    assert total("kimi-k3") == expected
    # 24 latents of 512 + 64 per token in 2 B; 69 states of 96 x 128 x 128 in fp32 and 4 columns of
    # the convolutions
    assert cache("kimi-k3") == 24 * 4096 * 576 * 2 + 69 * (
        heads * 128 * 128 * 4 + 3 * width * 3 * 2
    )


@pytest.mark.parametrize("name", ["minimax-m3", "minimax-m3-abridged"])
def test_minimax_m3_has_three_dense_layers_with_full_attention(name: str) -> None:
    d = 6144
    attention = grouped(d, 64, 4, 128) + 2 * 128 + 2 * d
    indexer = d * 4 * 128 + d * 128 + 2 * 128
    experts = 128 * 3 * d * 3072 + 128 * d + 3 * d * 3072
    assert (
        total(name)
        == 60 * attention + 57 * (indexer + experts) + 3 * 3 * d * 12_288 + 2 * 200_064 * d + d
    )
    # 60 layers of K and V of 4 heads; 57 have an indexer's keys too
    assert cache(name) == 4096 * 2 * (60 * 2 * 4 * 128 + 57 * 128)


def test_minimax_m3_that_lists_no_layers_is_noted() -> None:
    assert any("sparse attention" in note for note in spec_of(CONFIGS["minimax-m3-abridged"]).notes)
    assert not any("sparse attention" in note for note in spec_of(CONFIGS["minimax-m3"]).notes)


def test_step_may_have_its_text_config_at_the_top_level() -> None:
    flat = CONFIGS["step-3.7-flash"]
    text = {key: value for key, value in flat.items() if key not in ("model_type", "architectures")}
    nested = {"model_type": "step3p7", "architectures": flat["architectures"], "text_config": text}
    assert params(spec_of(nested)).total == total("step-3.7-flash")


def test_the_config_of_sglangs_deepseek_v4_is_that_of_the_class() -> None:
    renamed = {**CONFIGS["deepseek-v4-flash-fp8"], "model_type": "deepseek_v4"}
    assert total("deepseek-v4-flash-fp8") == params(spec_of(renamed)).total


def test_a_flat_glm4v_is_the_nested_one() -> None:
    flat = CONFIGS["glm-4.1v-9b"]
    text = {
        key: value
        for key, value in flat.items()
        if key not in ("model_type", "architectures", "vision_config")
    }
    nested = {
        **{key: flat[key] for key in ("model_type", "architectures", "vision_config")},
        "text_config": text,
    }
    assert params(spec_of(nested)).total == total("glm-4.1v-9b")
    assert spec_of(nested).towers == spec_of(flat).towers != ()


def test_qwen3_asr_may_have_its_text_config_in_its_thinker() -> None:
    # Qwen3-0.6B: 28 layers of 16 heads and 8 KV heads of 128, tied
    layer = grouped(1024, 16, 8, 128) + 2 * 128 + 3 * 1024 * 3072 + 2 * 1024
    assert total("qwen3-asr-0.6b") == 28 * layer + 151_936 * 1024 + 1024


def test_minicpm_v_has_the_language_model_of_its_version() -> None:
    # 2.6 is Qwen2-7B with 151,666 tokens, 4.0 a MiniCPM 4 without biases
    qwen = grouped(3584, 28, 4, 128) + (28 + 2 * 4) * 128 + 3 * 3584 * 18_944 + 2 * 3584
    assert total("minicpm-v-2.6") == 28 * qwen + 2 * 151_666 * 3584 + 3584
    minicpm = grouped(2560, 32, 2, 128) + 3 * 2560 * 10_240 + 2 * 2560
    assert total("minicpm-v-4") == 32 * minicpm + 2 * 73_448 * 2560 + 2560
    assert (
        total("minicpm-v-2.6", version=4.5)
        == 28 * (qwen - (28 + 2 * 4) * 128 + 2 * 128) + 2 * 151_666 * 3584 + 3584
    )
    with pytest.raises(AttncalcError, match="version"):
        spec_of({**CONFIGS["minicpm-v-2.6"], "version": 9.9})


def test_minicpm_v_counts_its_tower_among_the_weights() -> None:
    d, width = 1152, 4304
    siglip = (
        27 * (4 * d * d + 4 * d + 2 * d * width + width + d + 4 * d)
        + (3 * 14 * 14 + 1) * d
        + 70 * 70 * d
        + 2 * d
    )
    resampler = 64 * 3584 + d * 3584 + 4 * 3584 * 3584 + 4 * 3584 + 6 * 3584 + 3584 * 3584
    (tower,) = spec_of(CONFIGS["minicpm-v-2.6"]).towers
    assert tower.params == siglip + resampler == 486_411_504


def test_molmo_counts_its_mlp_as_gate_and_up() -> None:
    d = 3584
    layer = grouped(d, 28, 4, 128) + (28 + 2 * 4) * 128 + 3 * d * 37_888 // 2 + 2 * d
    assert total("molmo-7b-d") == 28 * layer + 2 * 152_064 * d + 128 * d + d


def test_vila_reads_llm_cfg_and_the_first_llava_its_own_fields() -> None:
    llama = CONFIGS["vila1.5-3b"]["llm_cfg"]
    flat = {**llama, "model_type": "llava_llama", "architectures": ["LlavaLlamaForCausalLM"]}
    layer = grouped(2560, 20, 20, 128) + 3 * 2560 * 6912 + 2 * 2560
    assert (
        total("vila1.5-3b") == params(spec_of(flat)).total == 32 * layer + 2 * 32_000 * 2560 + 2560
    )
    assert any("vision tower is not counted" in note for note in spec_of(flat).notes)


def test_the_first_llava_has_the_fields_of_llama_and_an_uncounted_tower() -> None:
    """liuhaotian/llava-v1.5-7b: Vicuna 7B."""
    llama = CONFIGS["vila1.5-3b"]["llm_cfg"]
    sizes = {
        "hidden_size": 4096,
        "intermediate_size": 11_008,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
    }
    config = {
        **llama,
        **sizes,
        "model_type": "llava",
        "mm_vision_tower": "openai/clip-vit-large-patch14-336",
    }
    spec = spec_of({**config, "architectures": ["LlavaLlamaForCausalLM"]})
    assert params(spec).total == 6_738_415_616
    assert any("vision tower is not counted" in note for note in spec.notes)


@pytest.mark.parametrize(
    ("model_type", "architecture"),
    [("phi3_v", "Phi3VForCausalLM"), ("phi4mm", "Phi4MMForCausalLM")],
)
def test_phi_with_vision_is_phi3(model_type: str, architecture: str) -> None:
    """Phi-3.5-vision's language model is Phi-3-mini, of 3.8 billion; CLIP and a projector make it
    4.15.
    """
    config = {
        "model_type": model_type,
        "architectures": [architecture],
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 32_064,
        "max_position_embeddings": 131_072,
        "sliding_window": 262_144,
        "tie_word_embeddings": False,
        "attention_bias": False,
    }
    layer = grouped(3072, 32, 32, 96) + 3 * 3072 * 8192 + 2 * 3072
    spec = spec_of(config)
    assert params(spec).total == 32 * layer + 2 * 32_064 * 3072 + 3072 == 3_821_079_552
    assert any("not counted" in note for note in spec.notes)


def test_orion_is_llama_with_layer_norms() -> None:
    config = {
        "model_type": "orion",
        "architectures": ["OrionForCausalLM"],
        "hidden_size": 5120,
        "intermediate_size": 15_360,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "num_key_value_heads": 40,
        "vocab_size": 84_608,
        "tie_word_embeddings": False,
    }
    layer = grouped(5120, 40, 40, 128) + 3 * 5120 * 15_360 + 2 * 2 * 5120
    expected = 40 * layer + 2 * 84_608 * 5120 + 2 * 5120
    assert params(spec_of(config)).total == expected == pytest.approx(14.5e9, rel=0.001)


def yuan(**changes: Any) -> dict[str, Any]:
    """Return the config of Yuan2-2B."""
    config = {
        "model_type": "yuan",
        "architectures": ["YuanForCausalLM"],
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "vocab_size": 135_040,
        "tie_word_embeddings": True,
    }
    return {**config, **changes}


def test_yuan_filters_the_input_of_queries_and_keys() -> None:
    d = 2048
    # two convolutions of 2 x 1 between 2,048 and 1,024 channels with their biases, and a norm
    filters = 2 * (2 * d * d // 2) + d // 2 + d + d
    layer = 4 * d * d + filters + 3 * d * 8192 + 2 * d
    spec = spec_of(yuan())
    assert params(spec).total == 24 * layer + 135_040 * d + d == pytest.approx(2.1e9, rel=0.01)
    # K and V of 32 heads * 64, and the last two tokens, in 24 layers of 2 B
    assert kv_cache(spec, Workload.decode(1, 100, kv_dtype="bf16")).total == 24 * 2 * (
        100 * 2 * d + 2 * d
    )


def test_yuan_m32_routes_by_an_attention_between_experts() -> None:
    """Yuan 2.0-M32 (arXiv:2405.17976): 40 billion parameters, of which 3.7 are active; heads of
    256.
    """
    moe = {
        "moe_num_experts": 32,
        "moe_top_k": 2,
        "ffn_hidden_size": 8192,
        "gated_linear_unit": True,
    }
    sizes = {
        "num_attention_heads": 16,
        "attention_projection_size": 4096,
        "tie_word_embeddings": False,
    }
    spec = spec_of(yuan(moe_config={**moe, "norm_topk_prob": True}, **sizes))
    d, width = 2048, 4096
    attention = 4 * d * width + 2 * d * d + d // 2 + 2 * d
    layer = attention + 32 * 3 * d * 8192 + 3 * 32 * d + 2 * d
    assert params(spec).total == 24 * layer + 2 * 135_040 * d + d == pytest.approx(40e9, rel=0.01)
    # the paper leaves the embeddings out
    assert params(spec).active == pytest.approx(3.7e9, rel=0.12)


def test_rwkv_5_has_a_state_per_head() -> None:
    """RWKV/rwkv-5-world-1b5: RwkvSelfAttention, RwkvFeedForward and RwkvBlock of its
    modeling_rwkv5.py.
    """
    config = {
        "model_type": "rwkv5",
        "architectures": ["Rwkv5ForCausalLM"],
        "hidden_size": 2048,
        "attention_hidden_size": 2048,
        "num_hidden_layers": 24,
        "num_attention_heads": 64,
        "head_size": 64,
        "vocab_size": 65_536,
        "tie_word_embeddings": False,
    }
    d, ffn = 2048, 7168  # 3.5 * 2,048, rounded down to a multiple of 32
    # and four mixes, decay and first, the group norm
    time_mixing = 5 * d * d + 4 * d + 2 * d + 2 * d
    channel_mixing = 2 * d * ffn + d * d + 2 * d
    expected = 24 * (time_mixing + channel_mixing + 2 * 2 * d) + 2 * 65_536 * d + 2 * 2 * d
    spec = spec_of(config)
    assert params(spec).total == expected == pytest.approx(1.5e9, rel=0.06)
    # 32 states of 64 x 64 in fp32 and the last token twice, in 24 layers
    assert kv_cache(spec, Workload.decode(1, 5000, kv_dtype="bf16")).total == 24 * (
        32 * 64 * 64 * 4 + 2 * d * 2
    )


def test_falcon_perception_has_norms_without_weights() -> None:
    """vLLM-Omni's FalconPerceptionBackbone, with the heads for coordinates and sizes; published:
    0.6B.
    """
    d = 1024
    layer = grouped(d, 16, 8, 128) + 16 + 3 * d * 3072
    boxes = 2 * (512 // 2 * 2 + 512 * d + d * 8192 + 8192 * 2048)
    expected = 28 * layer + d + 2 * 65_536 * d + 3 * 16 * 16 * d + boxes
    assert total("falcon-perception") == expected == pytest.approx(0.6e9, rel=0.05)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("minicpm-v-4", {"rope_scaling": {"rope_type": [1], "factor": 2}}),
        (
            "mimo-7b",
            {
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 2,
                    "original_max_position_embeddings": "4096",
                }
            },
        ),
        (
            "mimo-7b",
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"a": GROUP},
                }
            },
        ),
    ],
)
def test_fields_of_another_type_are_no_bug(name: str, changes: dict[str, Any]) -> None:
    assert total(name, **changes) == total(name)


INKLING: dict[str, Any] = {
    "model_type": "inkling_mm_model",
    "architectures": ["InklingForConditionalGeneration"],
    "text_config": {
        "hidden_size": 64,
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 4,
        "swa_head_dim": 16,
        "d_rel": 4,
        "rel_extent": 64,
        "sliding_window_size": 32,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "vocab_size": 100,
        "unpadded_vocab_size": 90,
    },
}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # as the releases write it: the width of an expert is intermediate_size
        ({"dense_mlp_idx": 3, "dense_intermediate_size": 128, "intermediate_size": 16}, 310_600),
        # as transformers saves it
        ({"intermediate_size": 128, "moe_intermediate_size": 16}, 283_912),
        (
            {
                "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 5,
                "intermediate_size": 128,
                "moe_intermediate_size": 16,
            },
            310_600,
        ),
        ({"dense_mlp_idx": 0, "dense_intermediate_size": 128, "intermediate_size": 16}, 283_912),
    ],
)
def test_inklings_first_layers_are_dense(fields: dict[str, Any], expected: int) -> None:
    """The totals are those of transformers 5.23's class on the meta device, without the towers."""
    text = {**INKLING["text_config"], **fields}
    assert params(spec_of({**INKLING, "text_config": text})).total == expected


# Draft models

DRAFT: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLMEagle3"],
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 1,
    "vocab_size": 128_256,
    "draft_vocab_size": 32_000,
    "torch_dtype": "float16",
}


def test_an_eagle_3_draft_reads_three_layers_and_has_a_head_of_its_own() -> None:
    """yuhuili/EAGLE3-LLaMA3.1-Instruct-8B: its file has 850 MB in fp16."""
    d = 4096
    # attention reads 8,192 wide; three norms and the last one; fc of three layers; a head of 32,000
    # tokens
    layer = 2 * d * (32 + 2 * 8) * 128 + d * d + 3 * d * 14_336 + 3 * d
    expected = layer + d + 3 * d * d + 32_000 * d
    spec = spec_of(DRAFT)
    assert params(spec).total == expected
    assert 2 * expected == pytest.approx(850e6, rel=0.002)
    # K and V of 8 heads * 128 in 2 B
    assert kv_cache(spec, Workload.decode(1, 1000)).total == 1000 * 2 * 8 * 128 * 2
    assert any("embedding" in note and "not counted" in note for note in spec.notes)


def test_an_eagle_3_draft_may_have_more_layers_and_a_target_of_another_width() -> None:
    d, target = 4096, 6144
    first = 2 * d * (32 + 2 * 8) * 128 + d * d + 3 * d * 14_336 + 3 * d
    second = grouped(d, 32, 8, 128) + 3 * d * 14_336 + 3 * d
    assert (
        params(spec_of({**DRAFT, "num_hidden_layers": 2})).total
        == first + second + d + 3 * d * d + 32_000 * d
    )
    # fc reads the target's width, and the embedding is the draft's own
    wider = first + d + 3 * target * d + 32_000 * d + 128_256 * d
    assert params(spec_of({**DRAFT, "target_hidden_size": target})).total == wider


@pytest.mark.parametrize(
    ("sizes", "published"),
    [
        ((4096, 14_336, 32, 8), 0.25e9),  # LLaMA3-Instruct 8B
        ((8192, 28_672, 64, 8), 0.99e9),  # LLaMA3-Instruct 70B
        ((4096, 11_008, 32, 32), 0.24e9),  # Vicuna 7B
        ((5120, 13_824, 40, 40), 0.37e9),  # Vicuna 13B
    ],
)
def test_an_eagle_draft_has_the_published_parameters(
    sizes: tuple[int, int, int, int], published: float
) -> None:
    """The table of EAGLE's README: https://github.com/SafeAILab/EAGLE."""
    names = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    config = {key: value for key, value in DRAFT.items() if key != "draft_vocab_size"}
    spec = spec_of(
        {
            **config,
            "architectures": ["EagleLlamaForCausalLM"],
            **dict(zip(names, sizes, strict=True)),
        }
    )
    d, d_ff, heads, kv_heads = sizes
    # no norm before attention and none at the end
    assert params(spec).total == 2 * d * d + grouped(d, heads, kv_heads, 128) + 3 * d * d_ff + d
    assert round(params(spec).total / 1e9, 2) * 1e9 == pytest.approx(published)


def test_a_speculators_config_is_that_of_its_layer() -> None:
    layer = {
        key: value
        for key, value in DRAFT.items()
        if key not in ("architectures", "draft_vocab_size")
    }
    config = {
        "model_type": "speculator_model",
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": 32_000,
        "transformer_layer_config": layer,
    }
    assert params(spec_of(config)).total == params(spec_of(DRAFT)).total


def test_a_p_eagle_draft_has_its_own_embedding_and_a_vector_for_hidden_states() -> None:
    """SpecForge's qwen3-8b-peagle.json and draft/peagle.py: only the first of four layers reads the
    embedding.
    """
    d, d_ff = 4096, 12_288
    config = {
        **DRAFT,
        "architectures": ["PEagleDraftModel"],
        "num_hidden_layers": 4,
        "intermediate_size": d_ff,
    }
    config |= {"vocab_size": 151_936}
    first = 2 * d * (32 + 2 * 8) * 128 + d * d + 3 * d * d_ff + 3 * d
    later = grouped(d, 32, 8, 128) + 3 * d * d_ff + 2 * d
    # fc, the vector, the last norm, head and embedding
    outside = 3 * d * d + 3 * d + d + (32_000 + 151_936) * d
    assert params(spec_of(config)).total == first + 3 * later + outside
    assert kv_cache(spec_of(config), Workload.decode(1, 1000)).total == 1000 * 4 * 2 * 8 * 128 * 2
    # speculators' layout, with four hidden states and two vectors more of Qwen3's norms
    layer = {
        key: value
        for key, value in config.items()
        if key not in ("architectures", "draft_vocab_size")
    }
    speculator = {
        "model_type": "speculator_model",
        "architectures": ["PEagleSpeculator"],
        "speculators_model_type": "peagle",
        "draft_vocab_size": 32_000,
        "eagle_aux_hidden_state_layer_ids": [1, 9, 17, 25],
        "transformer_layer_config": layer,
    }
    assert params(spec_of(speculator)).total == first + 3 * later + outside + d * d + d


def test_an_eagle_3_draft_may_read_another_number_of_layers_than_three() -> None:
    """SGLang's llama_eagle3.py: fc reads all hidden states that the config names."""
    expected = params(spec_of(DRAFT)).total + 2 * 4096 * 4096
    ids = {"eagle_aux_hidden_state_layer_ids": [1, 8, 15, 22, 29]}
    for change in ({"num_aux_hidden_states": 5}, ids, {"eagle_config": ids}):
        assert params(spec_of({**DRAFT, **change})).total == expected, change
    with pytest.raises(AttncalcError, match="num_aux_hidden_states '5' is not a value of a config"):
        spec_of({**DRAFT, "num_aux_hidden_states": "5"})


def test_an_eagle_3_draft_of_a_model_with_images_has_the_same_layers() -> None:
    """vLLM's registry: Eagle3Qwen2_5vlForCausalLM is its Eagle3LlamaForCausalLM."""
    expected = params(spec_of(DRAFT)).total
    assert (
        params(spec_of({**DRAFT, "architectures": ["Eagle3Qwen2_5vlForCausalLM"]})).total
        == expected
    )
    assert params(spec_of({**DRAFT, "model_type": "eagle_3"})).total == expected
    assert not any("draft_vocab_size" in note for note in spec_of(DRAFT).notes)  # it is read


def test_one_models_own_eagle_class_is_not_supported() -> None:
    """AngelSlim's CosyVoice3 draft has one layer, and its config the target's 24."""
    with pytest.raises(AttncalcError, match="CosyVoice3Eagle3LlamaForCausalLM is not supported"):
        spec_of(
            {
                **DRAFT,
                "architectures": ["CosyVoice3Eagle3LlamaForCausalLM"],
                "num_hidden_layers": 24,
            }
        )


# Models of flash-linear-attention: totals of its own classes on the meta device (0.6.0)

FLA = {
    "model_type": "gated_deltanet",
    "hidden_size": 2048,
    "num_hidden_layers": 21,
    "vocab_size": 32_000,
}
DENSE = {"model_type": "transformer", "hidden_size": 2048, "num_hidden_layers": 24, "num_heads": 32}
SAMBA = {"model_type": "samba", "hidden_size": 2304, "num_hidden_layers": 18, "vocab_size": 32_000}
MAMBA_2 = {
    "model_type": "mamba2",
    "hidden_size": 1024,
    "num_hidden_layers": 48,
    "vocab_size": 32_000,
    "n_groups": 1,
}


def test_models_of_flash_linear_attention_have_the_parameters_of_their_classes() -> None:
    attention = {
        "layers": [1, 5],
        "num_heads": 16,
        "num_kv_heads": 4,
        "qkv_bias": True,
        "window_size": 512,
    }
    for config, expected in (
        (FLA, 1_387_348_732),
        (
            {**FLA, "num_v_heads": 12, "expand_v": 1.0, "hidden_ratio": 3, "attn": attention},
            1_160_176_840,
        ),
        (DENSE, 1_364_297_728),
        (
            {**DENSE, "num_kv_heads": 8, "qkv_bias": True, "qk_norm": True, "window_size": 256},
            1_213_379_584,
        ),
        (SAMBA, 1_403_935_488),
        (
            {**SAMBA, "attn": [{"layers": [0], "num_heads": 18}, attention], "use_bias": True},
            1_461_374_208,
        ),
        # a saved config has the number that `auto` means, 2,304 / 16, or another one
        ({**SAMBA, "time_step_rank": 144, "intermediate_size": 4608}, 1_403_935_488),
        ({**SAMBA, "time_step_rank": 100}, 1_400_285_952),
        # fla derives the heads: 2 * 1,024 / 64
        (MAMBA_2, 382_387_712),
        ({**MAMBA_2, "num_heads": 32, "rmsnorm": True, "D_has_hdim": False}, 382_387_712),
        ({**MAMBA_2, "hidden_size": 2048, "num_heads": 64}, 1_371_839_488),
    ):
        assert params(spec_of(config)).total == expected, config


def test_models_of_flash_linear_attention_keep_states_and_windows() -> None:
    """A state of 6 heads * 256 * 512 in fp32, and 3 tokens of 6,144 channels; 17 keys and values of
    a window of 512.
    """
    states = 21 * (6 * 256 * 512 * 4 + 3 * 6144 * 2)
    assert kv_cache(spec_of(FLA), Workload.decode(1, 10_000)).total == states
    # Samba: 9 layers of 4,608 channels with a state of 16, and 9 of 18 heads * 128 in a window of
    # 2,048
    mamba = 9 * (4608 * 16 * 4 + 3 * 4608 * 2)
    assert (
        kv_cache(spec_of(SAMBA), Workload.decode(1, 10_000)).total
        == mamba + 9 * 2048 * 2 * 2304 * 2
    )


@pytest.mark.parametrize(
    "change", [{"num_heads": 128}, {"rmsnorm": False}, {"D_has_hdim": True}, {"hidden_size": 1000}]
)
def test_a_mamba_2_that_neither_class_makes_as_read_is_an_error(change: dict[str, Any]) -> None:
    with pytest.raises(AttncalcError, match="is not supported for mamba2"):
        spec_of({**MAMBA_2, **change})


@pytest.mark.parametrize(
    "change", [{"attnres_block_size": 4}, {"use_gate": False}, {"attn": {"layers": [1], "x": 1}}]
)
def test_an_option_of_flash_linear_attention_that_is_not_modelled_is_an_error(
    change: dict[str, Any],
) -> None:
    with pytest.raises(AttncalcError, match="is not supported for gated_deltanet"):
        spec_of({**FLA, **change})


def test_cogvlm_has_matrices_for_images_in_each_layer() -> None:
    """cogvlm2-llama3-chat-19B: Llama 3 8B, and in 32 layers Q, K and V with a bias, an output and
    an MLP of 14,336.
    """
    d = 4096
    config = {
        "architectures": ["CogVLMForCausalLM"],
        "hidden_size": d,
        "intermediate_size": 14_336,
        "num_attention_heads": 32,
        "num_multi_query_heads": 8,
        "num_hidden_layers": 32,
        "vocab_size": 128_256,
        "vision_config": {"hidden_size": 1792, "num_hidden_layers": 63},
    }
    expert = grouped(d, 32, 8, 128) + (32 + 2 * 8) * 128 + 3 * d * 14_336
    assert params(spec_of(config)).total == 8_030_261_248 + 32 * expert
    assert kv_cache(spec_of(config), Workload.decode(1, 1000)).total == 1000 * 32 * 2 * 8 * 128 * 2
    # CogVLM: Vicuna 7B with heads of their own and no bias
    vicuna = {
        **config,
        "num_multi_query_heads": None,
        "intermediate_size": 11_008,
        "vocab_size": 32_000,
    }
    expert = grouped(d, 32, 32, 128) + 3 * d * 11_008
    assert params(spec_of(vicuna)).total == 6_738_415_616 + 32 * expert
    with pytest.raises(AttncalcError, match="cross_hidden_size 1024 is not supported"):  # CogAgent
        spec_of({**config, "cross_hidden_size": 1024})


def test_maira_2_is_a_llama_behind_a_tower() -> None:
    """Vicuna 7B with 207 tokens more."""
    text = {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "vocab_size": 32_207,
    }
    spec = spec_of(
        {"model_type": "maira2", "text_config": text, "vision_config": {"model_type": "dinov2"}}
    )
    assert params(spec).total == 6_738_415_616 + 2 * 207 * 4096
    assert any("vision tower is not counted" in note for note in spec.notes)


def test_encoders_of_images_and_texts_are_refused_with_the_reason() -> None:
    for name in ("clip", "siglip2"):
        with pytest.raises(AttncalcError, match="no language model"):
            spec_of({"model_type": name})


def test_linear_attention_without_a_kind_of_its_own_is_refused_with_the_reason() -> None:
    for name in ("gla", "hgrn2", "gsa", "delta_net"):
        with pytest.raises(AttncalcError, match="modelled"):
            spec_of({"model_type": name})


def test_deepseek_v4_1_weighs_as_its_index_says() -> None:
    """model.safetensors.index.json: 510,286,023,000 B. Its headers, added up by part, are in a
    public manifest.
    """
    drafter = 591_424_512 + 7_219_445_760 + 3_935_232 + 106_272_000 + 3 * 3_932_376
    # in fp32 in the file, here in bf16: mixers of streams, biases of routers, sinks
    in_fp32 = 40 * (3_932_376 + 2 * 384 * 4 + 64 * 4)
    # the projections of n-grams are in fp8 in the file, with a scale per 32 x 32: 6,144 x 25,600 in
    # 2 layers
    ngrams = 2 * (6144 * 25_600 - 6144 * 25_600 // 1024)
    model = spec_of(CONFIGS["deepseek-v4.1-flash"])
    # the file has the vectors of an image's start, rows and end in bf16, as here
    assert (
        int(weights(model, weights_dtype="mxfp4").total)
        == 510_286_023_000 - drafter - in_fp32 // 2 + ngrams
    )
    preset = load("deepseek-v4.1-flash")
    assert params(preset).total == params(model).total
    # 763B with the drafter's 13.7B in 3 layers and the tower's 0.5B
    assert params(model).total == pytest.approx(763e9 - 13.9e9 - 0.5e9, rel=0.001)
    # without the tables of n-grams, of which a token reads 48 rows
    assert params(model).active < 17e9


def test_layers_of_deepseek_v4_1_share_the_pools_of_four() -> None:
    """Three layers have pools of 2 tokens and one of single tokens: keys of 512, and an indexer's
    of 128.
    """
    tokens = 4097
    windows = 40 * 128 * 512
    pools = (3 * (tokens // 2) + tokens) * (512 + 128)
    unpooled = 3 * (tokens % 2) * 2 * 512  # a key and a gate, in fp32
    assert cache("deepseek-v4.1-flash", tokens) == 2 * (windows + pools) + 4 * unpooled
    per_token = kv_cache(
        spec_of(CONFIGS["deepseek-v4.1-flash"]), Workload.decode(1, tokens, kv_dtype="bf16")
    ).per_token
    assert per_token == (3 * 640 // 2 + 640) * 2 == 3200


def test_an_owner_of_pools_has_an_indexer() -> None:
    text = CONFIGS["deepseek-v4.1-flash"]["text_config"]
    with pytest.raises(AttncalcError, match="index_source_layer_ids"):
        spec_of({**text, "index_source_layer_ids": [2, 8, 14]})
    with pytest.raises(AttncalcError, match="owns_pools: needs compress_rate and an indexer"):
        SharedPools(8, 512, 64, 8, 64, compress_rate=2, index_topk=512, owns_pools=True)
    with pytest.raises(AttncalcError, match="index_topk: needs compress_rate"):
        SharedPools(8, 512, 64, 8, 64, index_topk=512)


def test_multi_token_prediction_with_its_own_file_is_one_sparse_layer() -> None:
    """DeepSeek-V3's README_WEIGHTS.md: 11.5B parameters besides the embedding and the head, which
    are the target's.
    """
    config = {
        "model_type": "deepseek_v3",
        "architectures": ["DeepseekV3ForCausalLMNextN"],
        "hidden_size": 7168,
        "intermediate_size": 18_432,
        "moe_intermediate_size": 2048,
        "num_hidden_layers": 1,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 3,
        "num_nextn_predict_layers": 1,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "vocab_size": 129_280,
    }
    d, heads = 7168, 128
    attention = (
        d * 1536 + 1536 + 1536 * heads * 192 + d * 576 + 512 + 512 * heads * 256 + heads * 128 * d
    )
    layer = attention + 257 * 3 * d * 2048 + 256 * d + 2 * d
    spec = spec_of(config)
    # eh_proj reads embedding and hidden state; a norm before each of them, and one after the layer
    assert params(spec).total == layer + 2 * d * d + 3 * d == pytest.approx(11.5e9, rel=0.01)
    assert kv_cache(spec, Workload.decode(1, 1000, kv_dtype="bf16")).total == 1000 * 576 * 2


@pytest.mark.parametrize(
    ("model_type", "class_name"),
    [
        ("llama", "Qwen2ForCausalLMEagle"),  # SGLang's
        ("llama", "LlamaForCausalLMEagle3Deep"),
        ("llama", "EagleDrafterForCausalLM"),  # TensorRT-LLM's
        ("qwen3", "Qwen3MTPForCausalLM"),
        ("llama", "LlamaMtpForCausalLM"),
        ("mistral", "MistralMTPForSequenceClassification"),
        ("gemma4_text", "Gemma4DrafterForCausalLM"),
        ("deepseek_v3", "DeepseekV3MTPForCausalLM"),
        ("deepseek_v3", "DeepseekNextnForCausalLM"),
        (None, "DeepseekV3MTPForCausalLM"),
    ],
)
def test_a_draft_of_other_layers_is_an_error(model_type: str | None, class_name: str) -> None:
    """As plain decoders they would lack what joins the target's hidden state and the embedding."""
    config = {**DRAFT, "model_type": model_type, "architectures": [class_name]}
    expected = f"architectures {class_name} is not supported: it is a draft model"
    with pytest.raises(AttncalcError, match=expected):
        spec_of(config)


def test_nvidias_eagle_with_images_is_no_draft_model() -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    config = {
        "model_type": "eagle_2_5_vl",
        "architectures": ["Eagle2_5_VLForConditionalGeneration"],
        "text_config": {
            **sizes,
            "model_type": "qwen2",
            "intermediate_size": 128,
            "num_key_value_heads": 4,
        },
    }
    assert spec_of(config).main.n_layers == 2


def fit_with_draft(**changes: Any) -> Any:
    request = FitRequest(
        load("llama3.1-8b"), Workload.decode(1, 4096), gpu=gpu("h100-80gb"), draft=spec_of(DRAFT)
    )
    return fit(dataclasses.replace(request, **changes))


def test_fit_counts_the_weights_and_the_cache_of_a_draft_model() -> None:
    alone, result = fit_with_draft(draft=None), fit_with_draft()
    # 2 B of 424,689,664 parameters; a 33rd layer of K and V of 8 heads * 128 in 16 tokens of 2 B
    assert int(result.budget.weights.total) - int(alone.budget.weights.total) == 2 * 424_689_664
    assert {part.name for part in result.budget.weights.extra} >= {"weights_draft"}
    blocks = [
        next(d.quantity for d in r.pool.details if d.name == "kv_bytes_per_block")
        for r in (alone, result)
    ]
    assert blocks == [32 * 65_536, 33 * 65_536]


def test_tensor_parallelism_divides_the_layer_and_the_head_of_a_draft_and_not_its_fc() -> None:
    d = 4096
    layer = 2 * d * (32 + 2 * 8) * 128 + d * d + 3 * d * 14_336
    (part,) = (p for p in fit_with_draft(tp=2).budget.weights.extra if p.name == "weights_draft")
    assert int(part.size) == 2 * ((layer + 32_000 * d) // 2 + 3 * d * d + 4 * d)


def test_a_quantized_draft_has_the_bytes_of_its_release() -> None:
    draft = load("gpt-oss-20b")
    (part,) = (
        p for p in fit_with_draft(draft=draft).budget.weights.extra if p.name == "weights_draft"
    )
    assert int(part.size) == int(weights(draft, weights_dtype="mxfp4").total)
    assert int(part.size) < 14e9  # 13.76 GB are released, and 41.8 in bf16


def test_a_draft_model_is_part_of_vllms_command() -> None:
    command = launch_command(
        fit_with_draft(engine_args={"speculative_tokens": 3}, served_draft="org/draft").resolved
    )
    assert """--speculative-config '{"model": "org/draft", "num_speculative_tokens": 3}'""" in str(
        command
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": "ideal"}, "--speculative-model has no effect on engine ideal"),
        (
            {"engine_args": {"speculative_layers": 1}},
            "cannot be combined with --speculative-layers",
        ),
        ({"draft": load("t5-base")}, "T5 Base .* is an encoder-decoder"),
        ({"draft": load("bert-base")}, "BERT Base .* has no cache"),
    ],
)
def test_a_draft_model_that_cannot_be_counted_is_an_error(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(AttncalcError, match=message):
        fit_with_draft(**changes)


@each("name", CONFIGS)
def test_a_config_written_as_a_preset_gives_the_same_model(name: str) -> None:
    document = convert_config(CONFIGS[name], "config.json", title=name)
    written = parse_document(to_yaml(document.data, name).encode(), f"{name}.yaml")
    check(written)
    assert build_model(written, name) == build_model(document, name)


@each(
    ("config", "expected"),
    [  # transformers 5.24's classes, built on the meta device
        (CONFIGS["qwen3.8-flash-next"], 176_943_899_520),
        # with queries from a latent, and a whole number as kda_lower_bound
        (CONFIGS["ling-3.0-tiny"], 40_867_893_792),
        (
            {"model_type": "hy_v4_vl", "text_config": {"model_type": "hy_v4_vl_text"}},
            769_907_389_085,
        ),
    ],
)
def test_classes_of_the_newest_transformers(config: dict[str, Any], expected: int) -> None:
    assert params(spec_of(config)).total == expected


def test_qwen4_has_tables_of_n_grams_and_an_indexer_over_averaged_keys() -> None:
    spec = spec_of(CONFIGS["qwen3.8-flash-next"])
    # 12 full layers: keys and values of 2 heads, and the indexer's raw key
    grown = [kv_cache(spec, Workload.decode(1, n)).total for n in (1000, 1001)]
    assert grown[1] - grown[0] == 12 * (2 * 2 * 256 + 128) * 2
    # 16 tables, each of a prime number of rows from 20 million on, of 160 elements; they are not
    # active
    table = 320_002_176 * 160
    found = params(spec)
    assert found.total - found.active > table
    text = {**CONFIGS["qwen3.8-flash-next"]["text_config"], "ngram_vocab_size_base": 10**12}
    with pytest.raises(AttncalcError, match="ngram_vocab_size_base"):
        spec_of({**CONFIGS["qwen3.8-flash-next"], "text_config": text})
