"""Families whose code is released with the weights: their figures against an independent count and
published totals.

The configs have the fields of the releases that say their sizes. The counts follow the vendor's
modelling file, or the model file of vLLM, SGLang or mlx-lm, not the rules of the family.
"""

from typing import Any

import pytest
from configs import spec_of

from attncalc import Workload, kv_cache, params
from attncalc.config.build import build_model
from attncalc.config.huggingface import convert_config
from attncalc.config.schema import check
from attncalc.config.yaml import parse_document, to_yaml
from attncalc.errors import AttncalcError


def total(config: dict[str, Any]) -> int:
    return int(params(spec_of(config)).total)


def active(config: dict[str, Any]) -> int:
    return int(params(spec_of(config)).active)


def cache(config: dict[str, Any], tokens: int = 100) -> int:
    """Return the bytes of one sequence's cache in bf16."""
    return int(kv_cache(spec_of(config), Workload.decode(1, tokens, kv_dtype="bf16")).total)


def sizes(
    d: int, d_ff: int, layers: int, heads: int, kv_heads: int | None, vocab: int, **others: Any
) -> dict[str, Any]:
    """Return the fields of a config with transformers' usual names; kv_heads None leaves theirs
    out.
    """
    config = {
        "hidden_size": d,
        "intermediate_size": d_ff,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "vocab_size": vocab,
    }
    return {**config, **({} if kv_heads is None else {"num_key_value_heads": kv_heads}), **others}


def grouped(d_model: int, heads: int, kv_heads: int, d_head: int) -> int:
    """Return the elements of W_q, W_k, W_v and W_o."""
    return 2 * d_model * d_head * (heads + kv_heads)


LLAMA_3 = sizes(4096, 14_336, 32, 32, 8, 128_256, model_type="llama", tie_word_embeddings=False)
QWEN_2_5 = sizes(3584, 18_944, 28, 28, 4, 152_064, model_type="qwen2", tie_word_embeddings=False)
QWEN_3 = sizes(
    4096, 12_288, 36, 32, 8, 151_936, model_type="qwen3", head_dim=128, tie_word_embeddings=False
)
# their model cards
LLAMA_3_8B, QWEN_2_5_7B, QWEN_3_8B = 8_030_261_248, 7_615_616_512, 8_190_735_360


# A vision or audio tower beside a known language model


@pytest.mark.parametrize(
    ("model_type", "field", "text", "expected"),
    [
        ("locateanything", "text_config", QWEN_2_5, QWEN_2_5_7B),
        ("andesvl-aimv2-qwen3", "text_config", QWEN_3, QWEN_3_8B),
        ("ovis", "llm_config", QWEN_2_5, QWEN_2_5_7B),
        ("ovis2_5", "llm_config", QWEN_3, QWEN_3_8B),
        ("NVLM_D", "llm_config", QWEN_2_5, QWEN_2_5_7B),
        ("h2ovl_chat", "llm_config", LLAMA_3, LLAMA_3_8B),
        ("skywork_chat", "llm_config", QWEN_2_5, QWEN_2_5_7B),
        ("Llama_Nemotron_Nano_VL", "llm_config", LLAMA_3, LLAMA_3_8B),
        ("eagle_2_5_vl", "text_config", QWEN_2_5, QWEN_2_5_7B),
        ("interns1", "text_config", QWEN_3, QWEN_3_8B),
        ("kanana-1.5-v", "text_config", LLAMA_3, LLAMA_3_8B),
        ("opencua", "text_config", QWEN_2_5, QWEN_2_5_7B),
        ("ultravox", "text_config", LLAMA_3, LLAMA_3_8B),
    ],
)
def test_the_language_model_is_that_of_the_config_inside(
    model_type: str, field: str, text: dict[str, Any], expected: int
) -> None:
    assert total({"model_type": model_type, field: text, "vision_config": {}}) == expected


@pytest.mark.parametrize(
    ("model_type", "text", "expected"),
    [
        ("logics", QWEN_3, QWEN_3_8B),
        ("llama3v", LLAMA_3, LLAMA_3_8B),
        ("Keye", QWEN_3, QWEN_3_8B),
        ("KeyeVL1_5", QWEN_3, QWEN_3_8B),
        ("isaac", QWEN_3, QWEN_3_8B),
        ("dots_ocr", QWEN_2_5, QWEN_2_5_7B),
        ("kimi_audio", QWEN_2_5, QWEN_2_5_7B),
    ],
)
def test_the_language_model_may_have_its_fields_at_the_top_level(
    model_type: str, text: dict[str, Any], expected: int
) -> None:
    assert total({**text, "model_type": model_type}) == expected


def deepseek_ocr(**changes: Any) -> dict[str, Any]:
    """Return the config of DeepSeek-OCR."""
    text = sizes(
        1280, 6848, 12, 10, 10, 129_280, first_k_dense_replace=1, moe_intermediate_size=896
    )
    text |= {
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
        "use_mla": False,
    }
    text |= {
        "kv_lora_rank": None,
        "q_lora_rank": None,
        "qk_nope_head_dim": 0,
        "qk_rope_head_dim": 0,
        "v_head_dim": 0,
    }
    return {
        "model_type": "deepseek_vl_v2",
        "language_config": {**text, **changes},
        "vision_config": {},
    }


def test_deepseek_ocr_has_experts_and_ordinary_heads() -> None:
    """Its name on Hugging Face is 3B: 3.34 billion parameters, of which 0.4 are DeepEncoder's and
    the projector's.
    """
    d = 1280
    layer = 4 * d * d + 2 * d
    sparse = (64 + 2) * 3 * d * 896 + 64 * d
    expected = 12 * layer + 3 * d * 6848 + 11 * sparse + 2 * 129_280 * d + d
    assert total(deepseek_ocr()) == expected == pytest.approx(3.34e9 - 0.4e9, rel=0.002)
    assert cache(deepseek_ocr()) == 100 * 12 * 2 * 10 * 128 * 2  # K and V of 10 heads of 128


def test_deepseek_vl2_has_latent_attention_where_its_heads_have_widths() -> None:
    """DeepSeek-VL2-Small: DeepSeek-V2-Lite's 15.7 billion parameters."""
    mla = {
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "use_mla": True,
    }
    text = sizes(2048, 10_944, 27, 16, 16, 102_400, moe_intermediate_size=1408, **mla)
    assert total(deepseek_ocr(**text)) == 15_706_484_224
    assert cache(deepseek_ocr(**text)) == 100 * 27 * (512 + 64) * 2


def test_deepseek_vl2_has_the_vendors_30_layers_by_default() -> None:
    config = deepseek_ocr()
    del config["language_config"]["num_hidden_layers"]
    assert total(config) == total(deepseek_ocr(num_hidden_layers=30))


def test_step3_projects_the_queries_from_a_latent() -> None:
    """Step3: 321 billion parameters, of which 5 are the vision tower's, and 38 billion active
    ones.
    """
    text = {
        "model_type": "step3_text",
        "max_seq_len": 65_536,
        "moe_layers_enum": ",".join(map(str, range(4, 60))),
    }
    config = {"model_type": "step3_vl", "text_config": text, "vision_config": {}}
    d = 7168
    attention = d * (2048 + 2 * 256) + 2048 * 64 * 256 + 64 * 256 * d + 2048 + 2 * d
    sparse = 49 * 3 * d * 5120 + 48 * d
    expected = 61 * attention + 5 * 3 * d * 18_432 + 56 * sparse + 2 * 128_815 * d + d
    assert total(config) == expected == pytest.approx(316e9, rel=0.001)
    assert active(config) == pytest.approx(38e9, rel=0.025)
    assert cache(config) == 100 * 61 * 2 * 256 * 2  # K and V of one head of 256


# LLaMA's layers under another name


def test_openpangu_embedded_has_a_bias_on_every_projection_of_attention() -> None:
    config = sizes(4096, 12_800, 34, 32, 8, 153_376, model_type="PanguEmbedded", bias=True)
    d = 4096
    layer = grouped(d, 32, 8, 128) + (32 + 2 * 8) * 128 + d + 3 * d * 12_800 + 2 * d
    assert total(config) == 34 * layer + 2 * 153_376 * d + d
    assert total({**config, "bias": False}) == 34 * (layer - 48 * 128 - d) + 2 * 153_376 * d + d


def test_xverse_may_have_experts_as_wide_as_its_mlp() -> None:
    """XVERSE-13B; XVERSE-MoE-A4.2B has 25.8 billion parameters, of which 4.2 are active."""
    dense = sizes(5120, 13_824, 40, 40, None, 100_278, model_type="xverse")
    assert (
        total(dense)
        == 40 * (4 * 5120**2 + 3 * 5120 * 13_824 + 2 * 5120) + 2 * 100_278 * 5120 + 5120
    )
    config = sizes(
        2560, 1728, 28, 32, 32, 100_278, model_type="xverse", num_experts=64, moe_top_k=6
    )
    config["num_shared_experts"] = 2
    d = 2560
    layer = 4 * d * d + (64 + 2) * 3 * d * 1728 + 64 * d + 2 * d
    assert total(config) == 28 * layer + 2 * 100_278 * d + d == pytest.approx(25.8e9, rel=0.001)
    assert active(config) == pytest.approx(4.2e9, rel=0.006)


@pytest.mark.parametrize(
    ("config", "published"),
    [
        (sizes(4096, 11_008, 32, 32, None, 100_008, model_type="aquila"), 7.3e9),  # Aquila-7B
        (sizes(4608, 12_288, 52, 36, 36, 65_519, model_type="skywork"), 13.85e9),  # Skywork-13B
    ],
)
def test_aquila_and_skywork_are_llamas(config: dict[str, Any], published: float) -> None:
    llama = {**config, "model_type": "llama"}
    assert total(config) == total(llama) == pytest.approx(published, rel=0.002)


def test_telechat_has_biases_only_where_its_parts_return() -> None:
    """TeleChat2-7B, whose config has GPT-2's names: `dense` and `down_proj` have biases."""
    config = {
        "model_type": "telechat",
        "hidden_size": 4096,
        "n_layer": 30,
        "n_head": 32,
        "ffn_hidden_size": 12_288,
    }
    config |= {
        "vocab_size": 131_072,
        "seq_length": 8192,
        "num_key_value_heads": 32,
        "embed_layernorm": False,
    }
    d = 4096
    layer = 4 * d * d + d + 3 * d * 12_288 + d + 2 * d
    assert total(config) == 30 * layer + 2 * 131_072 * d + d
    assert spec_of(config).max_context == 8192


def minimind(**changes: Any) -> dict[str, Any]:
    """Return the config of MiniMind2, of 104 million parameters."""
    config = {
        "model_type": "minimind",
        "dim": 768,
        "n_layers": 16,
        "n_heads": 8,
        "n_kv_heads": 2,
        "vocab_size": 6400,
    }
    config |= {
        "hidden_dim": 2048,
        "multiple_of": 64,
        "n_routed_experts": 4,
        "n_shared_experts": True,
    }
    return {**config, "num_experts_per_tok": 2, "use_moe": False, **changes}


def test_minimind_shares_its_embedding_and_may_leave_out_its_width() -> None:
    d = 768
    layer = grouped(d, 8, 2, 96) + 3 * d * 2048 + 2 * d
    assert total(minimind()) == 16 * layer + 6400 * d + d == pytest.approx(104e6, rel=0.001)
    assert total(minimind(hidden_dim=None)) == total(minimind())  # 8 / 3 of 768 is 2,048
    # 512: 8 / 3 is 1,365.3, and the next multiple of 64 is 1,408
    assert total(minimind(dim=512, hidden_dim=None)) == total(minimind(dim=512, hidden_dim=1408))


def test_minimind_moe_has_145_million_parameters() -> None:
    config = minimind(dim=640, n_layers=8, hidden_dim=None, use_moe=True)
    d, d_ff = 640, 1728  # 8 / 3 of 640, rounded up to a multiple of 64
    layer = grouped(d, 8, 2, 80) + 5 * 3 * d * d_ff + 4 * d + 2 * d
    assert total(config) == 8 * layer + 6400 * d + d == pytest.approx(145e6, rel=0.001)
    assert total({**config, "n_shared_experts": 1}) == total(config)


def test_openelm_has_heads_and_widths_of_each_layer() -> None:
    """OpenELM-270M: 271,527,168 parameters (its model card on Hugging Face says 0.3B)."""
    queries = [12] * 5 + [16] * 7 + [20] * 4
    factors = [
        0.5,
        0.73,
        0.97,
        1.2,
        1.43,
        1.67,
        1.9,
        2.13,
        2.37,
        2.6,
        2.83,
        3.07,
        3.3,
        3.53,
        3.77,
        4.0,
    ]
    config = {
        "model_type": "openelm",
        "num_transformer_layers": 16,
        "model_dim": 1280,
        "vocab_size": 32_000,
    }
    config |= {
        "head_dim": 64,
        "num_query_heads": queries,
        "num_kv_heads": [n // 4 for n in queries],
    }
    config |= {
        "ffn_multipliers": factors,
        "ffn_dim_divisor": 256,
        "share_input_output_layers": True,
    }
    # the factors times 1,280, to the nearest multiple of 256
    widths = [
        768,
        1024,
        1280,
        1536,
        1792,
        2048,
        2560,
        2816,
        3072,
        3328,
        3584,
        3840,
        4352,
        4608,
        4864,
        5120,
    ]
    assert [256 * int(1280 * f / 256 + 0.5) for f in factors] == widths
    layers = sum(
        grouped(1280, n, n // 4, 64) + 2 * 64 + 3 * 1280 * width + 2 * 1280
        for n, width in zip(queries, widths, strict=True)
    )
    assert total(config) == layers + 32_000 * 1280 + 1280 == 271_527_168
    assert cache(config) == 100 * 2 * 64 * 2 * sum(n // 4 for n in queries)


def test_decilm_has_kv_heads_of_each_layer() -> None:
    config = sizes(
        4096,
        14_336,
        3,
        32,
        None,
        32_000,
        model_type="deci",
        num_key_value_heads_per_layer=[4, 2, 1],
    )
    attention = sum(grouped(4096, 32, kv_heads, 128) for kv_heads in (4, 2, 1))
    assert (
        total(config) == attention + 3 * (3 * 4096 * 14_336 + 2 * 4096) + 2 * 32_000 * 4096 + 4096
    )
    assert cache(config) == 100 * 2 * 128 * 2 * (4 + 2 + 1)


def test_minicpm_4_1_has_full_attention_as_vllm_runs_it() -> None:
    config = sizes(4096, 16_384, 32, 32, 2, 73_448, model_type="minicpm", tie_word_embeddings=False)
    sparse = {**config, "sparse_config": {"kernel_size": 32, "topk": 64}}
    assert (total(sparse), cache(sparse)) == (total(config), cache(config))
    assert any("sparse_config" in note for note in spec_of(sparse).notes)


# GPT-2's layers


def test_jais_has_gated_mlps_and_alibi() -> None:
    """jais-13b: 13 billion parameters."""
    config = {"model_type": "jais", "n_embd": 5120, "n_head": 40, "n_layer": 40, "n_inner": 13_653}
    config |= {"n_positions": 2048, "vocab_size": 84_992, "activation_function": "swiglu"}
    config["position_embedding_type"] = "alibi"
    d, d_ff = 5120, 13_653
    layer = 4 * d * d + 4 * d + 3 * d * d_ff + 2 * d_ff + d + 4 * d
    assert total(config) == 40 * layer + 84_992 * d + 2 * d == pytest.approx(13e9, rel=0.002)


def test_codeshell_has_grouped_heads() -> None:
    config = {
        "model_type": "codeshell",
        "n_embd": 4096,
        "n_head": 32,
        "n_layer": 42,
        "n_inner": 16_384,
    }
    config |= {
        "num_query_groups": 8,
        "group_query_attention": True,
        "position_embedding_type": "rope",
    }
    config |= {"vocab_size": 70_144, "n_positions": 8192, "tie_word_embeddings": False}
    d, d_ff = 4096, 16_384
    layer = grouped(d, 32, 8, 128) + (32 + 2 * 8) * 128 + d + 2 * d * d_ff + d_ff + d + 4 * d
    assert total(config) == 42 * layer + 2 * 70_144 * d + 2 * d == pytest.approx(7.98e9, rel=0.001)
    assert cache(config) == 100 * 42 * 2 * 8 * 128 * 2


def test_rugpt3_xl_computes_all_scores_of_its_sparse_layers() -> None:
    config = sizes(
        2048, 8192, 24, 16, None, 50_264, model_type="rugpt3xl", tie_word_embeddings=False
    )
    config |= {
        "max_position_embeddings": 2048,
        "sparse_mode": "alternating",
        "sparse_block_size": 16,
    }
    d = 2048
    layer = 4 * d * d + 4 * d + 2 * d * 8192 + 8192 + d + 4 * d
    assert total(config) == 24 * layer + 2 * 50_264 * d + 2048 * d + 2 * d
    assert any("sparse pattern" in note for note in spec_of(config).notes)
    assert not any(
        "sparse pattern" in note for note in spec_of({**config, "sparse_mode": "none"}).notes
    )


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [("phi3small", "attends to blocks"), ("rwkv7", "recurrent"), ("llada", "diffusion")],
)
def test_a_family_that_is_not_modelled_is_an_error_that_says_why(
    model_type: str, reason: str
) -> None:
    with pytest.raises(AttncalcError, match=reason):
        spec_of({**LLAMA_3, "model_type": model_type})


def test_the_tower_of_qwen_vl_is_noted() -> None:
    config = sizes(
        4096, 22_016, 32, 32, None, 151_936, model_type="qwen", no_bias=True, kv_channels=128
    )
    config |= {"seq_length": 2048, "tie_word_embeddings": False}
    assert not any("tower" in note for note in spec_of(config).notes)
    assert "The vision tower is not counted." in spec_of({**config, "visual": {"layers": 48}}).notes


# Experts


def test_minicpm_may_have_experts() -> None:
    """MiniCPM-MoE-8x2B: 13.6 billion parameters without the embedding, of which 4 are active."""
    config = sizes(
        2304, 5760, 40, 36, 36, 122_753, model_type="minicpm", num_experts=8, num_experts_per_tok=2
    )
    d = 2304
    layer = 4 * d * d + 8 * 3 * d * 5760 + 8 * d + 2 * d
    assert total(config) == 40 * layer + 122_753 * d + d
    assert total(config) - 122_753 * d == pytest.approx(13.6e9, rel=0.001)


def test_grok_1_has_four_norms_and_shares_its_embedding() -> None:
    """hpcai-tech/grok-1: xAI published 314 billion parameters."""
    config = sizes(
        6144, 32_768, 64, 48, 8, 131_072, model_type="grok-1", num_experts=8, num_experts_per_tok=2
    )
    config["tie_word_embeddings"] = True
    d = 6144
    layer = grouped(d, 48, 8, 128) + 8 * 3 * d * 32_768 + 8 * d + 4 * d
    assert total(config) == 64 * layer + 131_072 * d + d == pytest.approx(314e9, rel=0.006)


def test_grok_2_has_gits_model_type_and_a_dense_mlp_beside_its_experts() -> None:
    """xai-org/grok-2: 270 billion parameters, of which 115 are active."""
    config = sizes(
        8192, 32_768, 64, 64, 8, 131_072, model_type="git", architectures=["Grok1ForCausalLM"]
    )
    config |= {
        "head_dim": 128,
        "moe_intermediate_size": 16_384,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    }
    config |= {"residual_moe": True, "tie_word_embeddings": False, "sliding_window_size": -1}
    d = 8192
    layer = grouped(d, 64, 8, 128) + 8 * 3 * d * 16_384 + 3 * d * 32_768 + 8 * d + 4 * d
    assert total(config) == 64 * layer + 2 * 131_072 * d + d == pytest.approx(270e9, rel=0.002)
    assert active(config) == pytest.approx(115e9, rel=0.002)


def test_arctic_has_an_mlp_as_wide_as_the_model_beside_its_experts() -> None:
    """snowflake-arctic: 480 billion parameters, of which 17 are active."""
    config = sizes(
        7168,
        4864,
        35,
        56,
        8,
        32_000,
        model_type="arctic",
        num_local_experts=128,
        num_experts_per_tok=2,
    )
    config |= {"moe_layer_frequency": 1, "parallel_attn_mlp_res": True, "use_residual": True}
    d = 7168
    layer = grouped(d, 56, 8, 128) + 128 * 3 * d * 4864 + 128 * d + 3 * d * d + 3 * d
    assert total(config) == 35 * layer + 2 * 32_000 * d + d == pytest.approx(480e9, rel=0.004)
    assert active(config) == pytest.approx(17e9, rel=0.02)


def test_klear_mixes_routed_and_shared_experts_by_coefficients() -> None:
    """Klear-46B-A2.5B."""
    config = sizes(
        2048, 8960, 32, 32, 4, 151_936, model_type="Klear", num_experts=256, num_experts_per_tok=8
    )
    config |= {
        "n_shared_experts": 1,
        "moe_intermediate_size": 896,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }
    d = 2048
    attention = grouped(d, 32, 4, 64) + 2 * 64
    layer = attention + 257 * 3 * d * 896 + 256 * d + 256 + 2 * d + 2 + 2 * d
    assert total(config) == 32 * layer + 2 * 151_936 * d + d == pytest.approx(46e9, rel=0.005)
    assert active(config) == pytest.approx(2.5e9, rel=0.02)


def test_hunyuan_large_has_keys_and_values_in_every_second_layer() -> None:
    """Hunyuan-Large (arXiv:2411.02265): 389 billion parameters, of which 52 are active; 80 heads, 8
    KV heads.
    """
    config = sizes(
        6400,
        18_304,
        64,
        80,
        8,
        128_512,
        model_type="hunyuan",
        attention_head_dim=80,
        num_experts=16,
    )
    config |= {
        "moe_topk": 1,
        "num_shared_expert": 1,
        "use_mixed_mlp_moe": True,
        "use_cla": True,
        "cla_share_factor": 2,
    }
    config |= {"use_qk_norm": True, "tie_word_embeddings": True, "attention_bias": False}
    d = 6400
    own, shared = grouped(d, 80, 8, 80), 2 * d * d
    moe = 17 * 3 * d * 18_304 + 16 * d
    spec = spec_of(config)
    norms = params(spec).total - (32 * (own + shared) + 64 * (moe + 2 * d) + 128_512 * d + d)
    # a gain of 80 for the queries of 64 layers, and for the keys of at least those that have any
    assert 96 * 80 <= norms <= 128 * 80
    assert params(spec).total == pytest.approx(389e9, rel=0.001)
    assert params(spec).active == pytest.approx(52e9, rel=0.015)
    assert cache(config) == 100 * 32 * 2 * 8 * 80 * 2


def test_longcat_flash_lite_embeds_n_grams() -> None:
    """LongCat-Flash-Lite: 68.5 billion parameters, of which 31.4 embed n-grams."""
    config = {
        "model_type": "longcat_flash_ngram",
        "hidden_size": 3072,
        "ffn_hidden_size": 6144,
        "num_layers": 14,
    }
    config |= {
        "expert_ffn_hidden_size": 1024,
        "num_attention_heads": 32,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
    }
    config |= {
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 256,
    }
    config |= {"moe_topk": 12, "zero_expert_num": 128, "vocab_size": 131_072, "router_bias": False}
    config |= {"ngram_vocab_size_ratio": 78, "emb_neighbor_num": 4, "emb_split_num": 4}
    d = 3072
    mla = d * 1536 + 1536 + 1536 * 32 * 192 + d * 576 + 512 + 512 * 32 * 256 + 32 * 128 * d
    layer = 2 * (mla + 3 * d * 6144 + 2 * d) + 256 * 3 * d * 1024 + (256 + 128) * d
    # 4 * (4 - 1) tables of 256, the i-th with 78 * 131,072 + 2 * i + 1 rows, and a projection of
    # each
    tables = sum(78 * 131_072 + 2 * i + 1 for i in range(12)) * 256 + 12 * 256 * d
    assert tables == pytest.approx(31.4e9, rel=0.002)
    assert (
        total(config)
        == 14 * layer + tables + 2 * 131_072 * d + d
        == pytest.approx(68.5e9, rel=0.001)
    )


def test_baichuan_m1_has_other_heads_in_its_windows_and_caches_the_last_token() -> None:
    config = sizes(
        5120, 17_408, 4, 32, 2, 133_120, model_type="baichuan_m1", conv_window=2, sliding_window=64
    )
    config |= {
        "sliding_window_layers": [0, 1, 2],
        "num_swa_attention_heads": 20,
        "num_swa_key_value_heads": 4,
    }
    d = 5120
    full, window = grouped(d, 32, 2, 160) + 4 * 2, grouped(d, 20, 4, 256) + 4 * 4
    assert total(config) == full + 3 * window + 4 * (3 * d * 17_408 + 2 * d) + 2 * 133_120 * d + d
    # K and V of 100 tokens in one layer and of 64 in three; the keys and values of the last token
    # in all four
    kept = (100 + 1) * 2 * 2 * 160 + 3 * (64 + 1) * 2 * 4 * 256
    assert cache(config) == 2 * kept


# Draft models


def test_eagle_3_1_has_a_norm_for_each_hidden_state_of_the_target() -> None:
    """SpecForge's qwen3-30B-A3B-eagle3.1: vLLM's llama_eagle3.py makes three norms of the target's
    width.
    """
    config = sizes(
        2048, 12_288, 1, 32, 4, 151_936, model_type="llama", head_dim=128, draft_vocab_size=32_000
    )
    config["architectures"] = ["LlamaForCausalLMEagle3"]
    assert total({**config, "fc_norm": True, "norm_output": True}) == total(config) + 3 * 2048


DFLASH = sizes(
    4096, 12_288, 5, 32, 8, 151_936, model_type="qwen3", head_dim=128, tie_word_embeddings=False
)
DFLASH |= {"architectures": ["DFlashDraftModel"], "block_size": 16, "num_target_layers": 36}
DFLASH["dflash_config"] = {"mask_token_id": 151_669, "target_layer_ids": [1, 9, 17, 25, 33]}


def test_a_dflash_draft_shares_the_embedding_and_the_head_of_its_target() -> None:
    """Qwen3-8B-DFlash-b16 has 1.05 billion parameters: five layers, and fc of the hidden states of
    five others.
    """
    d = 4096
    layer = grouped(d, 32, 8, 128) + 2 * 128 + 3 * d * 12_288 + 2 * d
    expected = 5 * layer + 5 * d * d + 2 * d  # fc, the norm after it and the last norm
    assert total(DFLASH) == expected == pytest.approx(1.05e9, rel=0.002)
    assert cache(DFLASH) == 100 * 5 * 2 * 8 * 128 * 2
    assert any("shares with its target" in note for note in spec_of(DFLASH).notes)


def test_dspark_and_domino_add_heads_to_dflash() -> None:
    d, vocab = 4096, 151_936
    dspark = {**DFLASH["dflash_config"], "projector_type": "dspark", "markov_rank": 256}
    dspark |= {"enable_confidence_head": True, "confidence_head_with_markov": True}
    # two matrices of the vocabulary and the rank; one row with a bias over a state and the rank
    assert total({**DFLASH, "architectures": ["DSparkDraftModel"], "dflash_config": dspark}) == (
        total(DFLASH) + 2 * vocab * 256 + d + 256 + 1
    )
    domino = {
        **DFLASH["dflash_config"],
        "projector_type": "domino",
        "emb_dim": 256,
        "gru_hidden_dim": 1024,
    }
    # torch.nn.GRU without biases: three gates of the input and three of the state
    gru = 3 * 1024 * d + 3 * 1024 * 1024
    assert total({**DFLASH, "architectures": ["DominoDraftModel"], "dflash_config": domino}) == (
        total(DFLASH) + gru + (d + 1024) * 256 + 256 * vocab
    )


@pytest.mark.parametrize(
    "architecture",
    [
        "Eagle3Qwen3ForCausalLM",
        "MiMoMTPModel",
        "Qwen3NextMTP",
        "DFlashLagunaForCausalLM",
        "HASSModel",
    ],
)
@pytest.mark.parametrize("config", [LLAMA_3, QWEN_2_5, {**LLAMA_3, "model_type": "glm4"}])
def test_a_draft_of_another_class_is_not_read_as_a_whole_model(
    config: dict[str, Any], architecture: str
) -> None:
    with pytest.raises(
        AttncalcError, match=f"{architecture} is not supported: it is a draft model"
    ):
        spec_of({**config, "architectures": [architecture]})


def test_vllms_drafts_of_minimax_and_qwen3_vl_have_llamas_layers() -> None:
    config = {**LLAMA_3, "num_hidden_layers": 1, "draft_vocab_size": 32_000}
    llama = total({**config, "architectures": ["LlamaForCausalLMEagle3"]})
    for name in ("Eagle3MiniMaxM2ForCausalLM", "Eagle3Qwen3vlForCausalLM"):
        assert total({**config, "architectures": [name]}) == llama


def test_openpangu_ultra_moe_has_four_norms_in_a_layer() -> None:
    """openPangu-Ultra-MoE: 718 billion parameters, of which 39 are active."""
    config = sizes(
        7680,
        18_432,
        61,
        128,
        128,
        153_600,
        model_type="pangu_ultra_moe",
        moe_intermediate_size=2048,
    )
    config |= {
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
    }
    config |= {
        "v_head_dim": 128,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
    }
    config |= {"first_k_dense_replace": 3, "sandwich_norm": True}
    d = 7680
    mla = d * 1536 + 1536 + 1536 * 128 * 192 + d * 576 + 512 + 512 * 128 * 256 + 128 * 128 * d
    layers = 61 * (mla + 4 * d) + 3 * 3 * d * 18_432 + 58 * (257 * 3 * d * 2048 + 256 * d)
    assert total(config) == layers + 2 * 153_600 * d + d == pytest.approx(718e9, rel=0.002)
    assert active(config) == pytest.approx(39e9, rel=0.04)


# Embedding models


def encoder(model_type: str, vocab: int, **others: Any) -> dict[str, Any]:
    """Return the config of an encoder of BERT-base's sizes."""
    return {**sizes(768, 3072, 12, 12, None, vocab), "model_type": model_type, **others}


def encoder_layer(mlp: int, biases: int) -> int:
    """Return a layer of 768: four matrices, the MLP's, biases, and two norms."""
    return 4 * 768**2 + mlp + biases + 4 * 768


@pytest.mark.parametrize(
    ("vocab", "types", "published"),
    # gte-base-en-v1.5; gte-multilingual-base
    [(30_528, 0, 136_776_192), (250_048, 1, 305_368_320)],
)
def test_the_first_gte_has_gated_mlps_and_rotary_positions(
    vocab: int, types: int, published: int
) -> None:
    """Hugging Face's count; it has 769 more for gte-multilingual-base, whose file has a classifier
    of tokens.
    """
    config = encoder(
        "new",
        vocab,
        architectures=["NewModel"],
        type_vocab_size=types,
        position_embedding_type="rope",
    )
    layer = encoder_layer(3 * 768 * 3072, 4 * 768 + 768)
    assert total(config) == 12 * layer + (vocab + types) * 768 + 2 * 768 == published


@pytest.mark.parametrize("activation", ["swiglu", "gelu"])
def test_nomic_embed_gates_its_mlps_by_its_activation(activation: str) -> None:
    """nomic-embed-text-v1.5 has SwiGLU and 136,731,648 parameters (Hugging Face's count)."""
    config = encoder("nomic_bert", 30_528, activation_function=activation, type_vocab_size=2)
    matrices = 3 if activation == "swiglu" else 2
    expected = 12 * encoder_layer(matrices * 768 * 3072, 0) + (30_528 + 2) * 768 + 2 * 768
    assert total(config) == expected
    assert activation == "gelu" or expected == 136_731_648


def test_nomic_embed_v2_has_experts_in_every_second_layer() -> None:
    """nomic-embed-text-v2-moe: 475 million parameters, of which 305 are active; one bias after the
    experts.
    """
    config = encoder(
        "nomic_bert", 250_048, activation_function="gelu", type_vocab_size=1, moe_every_n_layers=2
    )
    config |= {
        "num_experts": 8,
        "moe_top_k": 2,
        "qkv_proj_bias": True,
        "mlp_fc1_bias": True,
        "mlp_fc2_bias": True,
    }
    dense = encoder_layer(2 * 768 * 3072, 4 * 768 + 3072 + 768)
    sparse = encoder_layer(8 * 2 * 768 * 3072 + 8 * 768, 4 * 768 + 768)
    assert (
        total(config)
        == 6 * (dense + sparse) + 250_049 * 768 + 2 * 768
        == pytest.approx(475e6, rel=0.001)
    )
    assert active(config) == pytest.approx(305e6, rel=0.002)


def test_jina_embeddings_2_has_berts_model_type_and_gated_mlps() -> None:
    """jina-embeddings-v2-base-en: 137 million parameters, ALiBi and no learned positions."""
    config = encoder(
        "bert", 30_528, architectures=["JinaBertModel"], position_embedding_type="alibi"
    )
    config |= {"feed_forward_type": "geglu", "max_position_embeddings": 8192, "type_vocab_size": 2}
    layer = encoder_layer(3 * 768 * 3072, 4 * 768 + 768)
    pooler = 768 * 768 + 768
    assert (
        total(config)
        == 12 * layer + 30_530 * 768 + 2 * 768 + pooler
        == pytest.approx(137e6, rel=0.004)
    )


def test_jina_embeddings_3_has_no_learned_positions_and_its_adapters_are_noted() -> None:
    """jina-embeddings-v3: 572 million parameters with five adapters of rank 4 on all matrices and
    the embedding.
    """
    config = sizes(1024, 4096, 24, 16, None, 250_002, model_type="xlm-roberta", type_vocab_size=1)
    config |= {"position_embedding_type": "rotary", "max_position_embeddings": 8194, "lora_rank": 4}
    config["lora_adaptations"] = [
        "retrieval.query",
        "retrieval.passage",
        "separation",
        "classification",
        "matching",
    ]
    adapters = 5 * 4 * (24 * ((1024 + 3072) + (1024 + 1024) + 2 * (1024 + 4096)) + 250_002 + 1024)
    assert total(config) + adapters == pytest.approx(572e6, rel=0.001)
    assert any("LoRA adapters (5)" in note for note in spec_of(config).notes)


def test_nvidias_bidirectional_llamas_are_encoders() -> None:
    """llama-embed-nemotron-8b: Llama 3.1 8B without its head; every token sees every other."""
    config = {
        **LLAMA_3,
        "model_type": "llama_bidirec",
        "architectures": ["LlamaBidirectionalModel"],
    }
    assert total(config) == LLAMA_3_8B - 128_256 * 4096
    assert cache(config) == 0


def test_colpali_has_a_projection_and_no_head() -> None:
    """ColPali: PaliGemma's Gemma 2B, and a projection to 128."""
    gemma = sizes(2048, 16_384, 18, 8, 1, 257_216, model_type="gemma", head_dim=256)
    paligemma = {"model_type": "paligemma", "text_config": gemma, "vision_config": {}}
    config = {"model_type": "colpali", "embedding_dim": 128, "vlm_config": paligemma}
    layer = grouped(2048, 8, 1, 256) + 3 * 2048 * 16_384 + 2 * 2048
    assert total(config) == 18 * layer + 257_216 * 2048 + 2048 + 2048 * 128 + 128


# Every one of them


def test_an_error_lists_the_fields_in_the_same_order_in_every_run() -> None:
    with pytest.raises(
        AttncalcError, match="head_dim 5, hidden_size 64, num_attention_heads 8 is not supported"
    ):
        spec_of(
            sizes(
                64, 128, 2, 8, 8, 1000, model_type="exaone", tie_word_embeddings=False, head_dim=5
            )
        )


@pytest.mark.parametrize(
    "config", [deepseek_ocr(), minimind(), minimind(use_moe=True, hidden_dim=None)]
)
def test_a_config_written_as_a_preset_gives_the_same_model(config: dict[str, Any]) -> None:
    document = convert_config(config, "config.json", title="model")
    written = parse_document(to_yaml(document.data, "model").encode(), "model.yaml")
    check(written)
    assert build_model(written, "model") == build_model(document, "model")
