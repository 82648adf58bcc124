"""Well-known figures, each with its arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from attncalc import (
    Cross,
    Grouped,
    Layers,
    Mask,
    ModelSpec,
    Stack,
    Workload,
    activations,
    flops,
    kv_cache,
    load,
    params,
)

GIB = 2**30


def model(attention: Any, *, d_model: int, layers: int = 1, dtype: str = "fp16", **more: Any) -> ModelSpec:
    """Return a model that has only attention."""
    groups = (Layers("layers", layers, attention=attention, norms=0, **more),)
    return ModelSpec("test", "test", (Stack("decoder", groups, d_model, final_norm=False),), dtype=dtype)


def kv(name: str, context: int, attention: str = "", **workload: Any) -> int:
    """Return the KV cache of a preset at batch 1, in bytes."""
    spec = load(name).with_attention(attention) if attention else load(name)
    return int(kv_cache(spec, Workload.decode(1, context, **workload)).total)


def test_llama2_70b_cache() -> None:
    # 80 layers * 4,096 tokens * 2 (K and V) * 8 KV heads * 128 * 2 B
    assert kv("llama2-70b", 4096) == 80 * 4096 * 2 * 8 * 128 * 2 == 1_342_177_280 == 1.25 * GIB
    # the same for one token: 80 * 2 * 8 * 128 * 2 B
    assert kv_cache(load("llama2-70b"), Workload.decode(1, 4096)).per_token == 327_680
    # 64 KV heads instead of 8; 1 instead of 8
    assert kv("llama2-70b", 4096, "mha") == 8 * 1_342_177_280
    assert kv("llama2-70b", 4096, "mqa") == 1_342_177_280 / 8


def test_gpt3_cache() -> None:
    # 96 layers * 4,096 tokens * 2 * 96 heads * 128 * 2 B: 19.33 GB, 18.00 GiB
    assert kv("gpt3", 4096) == 96 * 4096 * 2 * 96 * 128 * 2 == 19_327_352_832 == 18 * GIB


def test_one_layer_of_32_query_and_8_kv_heads() -> None:
    grouped = Grouped(n_heads=32, n_kv_heads=8, d_head=128)
    one = model(grouped, d_model=4096)
    # 2,048 tokens * 2 * 8 heads * 128 elements of 2 B; with MHA 32 heads
    assert kv_cache(one, Workload.decode(1, 2048)).total == 2 * 4_194_304 == 2 * (2048 * 2 * 8 * 128)
    assert kv_cache(one, Workload.decode(1, 2048)).if_mha == 2 * 16_777_216 == 2 * (2048 * 2 * 32 * 128)
    # 32 layers * 4,194,304 elements * 4 B
    deep = model(grouped, d_model=4096, layers=32)
    assert kv_cache(deep, Workload.decode(1, 2048, kv_dtype="fp32")).total == 536_870_912


def test_attention_parameters_of_d_model_512() -> None:
    # 4 matrices of 512 x 512
    assert params(model(Grouped(8, 8, 64), d_model=512)).attention == 4 * 512 * 512 == 1_048_576


def test_fused_attention_with_biases_of_d_model_128() -> None:
    fused = Grouped(4, 4, 32, bias=("q", "k", "v", "o"), fused=True)
    counted = params(model(fused, d_model=128))
    # W_qkv 128 x 384 + 384, W_o 128 x 128 + 128
    assert dict(counted.groups[0].attention) == {"W_qkv": 49_536, "W_o": 16_512}
    assert counted.attention == 49_536 + 16_512 == 66_048


def test_gpt3_parameters() -> None:
    counted = params(load("gpt3"))
    # 4 matrices of 12,288 x 12,288 a layer, 96 layers; without biases
    assert counted.groups[0].weights_per_layer == 4 * 12_288**2 == 603_979_776
    assert counted.attention_weights == 96 * 603_979_776 == 57_982_058_496
    # 96 * (12 d^2 + 13 d) + (50,257 + 2,048) d + 2 d
    d = 12_288
    assert counted.total == 96 * (12 * d * d + 13 * d) + (50_257 + 2_048) * d + 2 * d == 174_604_259_328


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("llama2-70b", 68_976_648_192),
        ("bert-base", 109_482_240),
        ("gpt2", 124_439_808),
        ("llama2-7b", 6_738_415_616),
        ("llama3-70b", 70_553_706_496),
        ("llama3.1-405b", 405_853_388_800),
        ("gemma-2b", 2_506_172_416),
        ("bert-large", 335_141_888),
        ("gpt-oss-120b", 116_829_156_672),  # 116.83B in the model card's table 1, exactly as transformers' class has
    ],
)
def test_published_totals(name: str, published: int) -> None:
    """Published: the element counts of the released checkpoints."""
    assert params(load(name)).total == published


def test_the_original_transformers() -> None:
    # Table 3 of the paper: 65 million and 213 million, with a vocabulary of "about 37000"
    assert round(int(params(load("transformer-base")).total) / 1e6) == 63
    assert round(int(params(load("transformer-large")).total) / 1e6) == 214


def test_score_matrices() -> None:
    def layer(heads: int, context: int, dtype: str) -> Any:
        spec = model(Grouped(heads, heads, 64), d_model=64 * heads, dtype=dtype)
        return activations(spec, Workload.prefill(1, context))[0]

    # 32 heads * 4,096 * 4,096 * 2 B
    assert layer(32, 4096, "fp16").score_matrix == 32 * 4096 * 4096 * 2 == 1_073_741_824
    # 128,000 * 128,000 * 4 B = 61.04 GiB
    head = layer(1, 128_000, "fp32").score_matrix_per_head
    assert head == 128_000**2 * 4 == 65_536_000_000
    assert round(int(head) / GIB, 2) == 61.04
    # 4 heads * T * T * 4 B
    assert layer(4, 64, "fp32").score_matrix == 4 * 64 * 64 * 4 == 65_536
    assert layer(4, 2048, "fp32").score_matrix == 4 * 2048 * 2048 * 4 == 67_108_864


def test_scores_at_4096_tokens_and_width_4096() -> None:
    spec = model(Grouped(32, 32, 128), d_model=4096)
    spent = flops(spec, Workload.prefill(1, 4096))
    # QK alone: 4,096 * 4,096 * 4,096 = 68,719,476,736 multiply-adds of 2 FLOP; PV takes as many
    assert spent.qk_dense == 2 * 68_719_476_736 == 137_438_953_472
    assert spent.scores_dense == 2 * 137_438_953_472


def test_cross_attention_of_5_queries_over_7_keys() -> None:
    heads = Grouped(8, 8, 64)
    spec = model(heads, d_model=512, dtype="fp32", cross=Cross(heads))
    workload = Workload.prefill(2, 5, source=7)
    crossed = activations(spec, workload)[1]
    assert crossed.score_shape == (2, 8, 5, 7)
    assert crossed.output_shape == (2, 5, 512)
    # 2 sequences * 7 source tokens * 2 * 8 heads * 64 * 4 B
    assert kv_cache(spec, workload).cross_attention_cache == 2 * 7 * 2 * 8 * 64 * 4


def test_llama2_70b_prefill() -> None:
    spent = flops(load("llama2-70b"), Workload.prefill(1, 4096))
    # 2 FLOP a weight (all but the embedding and the norms) and token, and QK and PV of 64 heads
    matmul = 2 * 4096 * (68_976_648_192 - 32_000 * 8192 - 161 * 8192)
    assert spent.total_dense == matmul + 80 * 2 * 2 * 64 * 128 * 4096**2 == 606_878_878_924_800
    # under the causal mask 4,096 * 4,097 / 2 of the pairs are left
    assert spent.total == matmul + 80 * 2 * 2 * 64 * 128 * (4096 * 4097 // 2) == 584_894_015_078_400


def test_deepseek_v3_cache() -> None:
    # 61 layers * 4,096 tokens * (512 latent + 64 rotary) * 2 B
    assert kv("deepseek-v3", 4096) == 61 * 4096 * (512 + 64) * 2 == 287_834_112


def test_gpt_oss_cache() -> None:
    # 12 layers keep 128 tokens, 12 keep all; 2 * 8 heads * 64 * 2 B a token
    assert kv("gpt-oss-20b", 131_072) == 12 * (128 + 131_072) * 2 * 8 * 64 * 2 == 3_224_371_200


def test_gemma3_cache() -> None:
    # 52 layers keep 1,024 tokens, 10 keep all; 2 * 16 heads * 128 * 2 B a token
    tokens = 52 * 1024 + 10 * 131_072
    assert kv("gemma3-27b", 131_072) == tokens * 2 * 16 * 128 * 2 == 11_173_625_856


def test_training_is_three_forward_passes() -> None:
    spec = load("gpt2")
    forward, step = flops(spec, Workload.prefill(2, 64)), flops(spec, Workload.train(2, 64))
    assert step.total == 3 * forward.total
    assert step.scores_dense == 3 * forward.scores_dense


def test_a_decode_step_costs_two_flop_per_weight_and_the_scores() -> None:
    spent = flops(load("llama2-70b"), Workload.decode(1, 4096))
    matmul = 2 * (68_976_648_192 - 32_000 * 8192 - 161 * 8192)
    # one query of 64 heads over 4,096 keys, QK and PV of 128, 80 layers
    assert spent.total == matmul + 80 * 2 * 2 * 64 * 128 * 4096


def test_padding_changes_exact_scores_and_the_ideal_cache() -> None:
    spec = load("llama2-7b")
    ragged = Workload.prefill(lengths=(100, 60))
    # 100 * 101 / 2 + 60 * 61 / 2 pairs; 32 layers of 32 heads * 128, QK and PV
    assert flops(spec, ragged).scores == 32 * 4 * 32 * 128 * (5050 + 1830)
    # 160 tokens of 524,288 B
    assert kv_cache(spec, ragged).total == 160 * 524_288


def test_prefix_mask_of_a_prefill() -> None:
    spec = load("llama2-7b")
    spent = flops(spec, Workload.prefill(1, 100, mask=Mask("prefix", 40)))
    # causal pairs and the upper triangle of the first 40
    assert spent.scores == 32 * 4 * 32 * 128 * (5050 + 40 * 39 // 2)
