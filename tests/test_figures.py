"""Well-known figures, each with its arithmetic."""

from pathlib import Path
from typing import Any

import pytest
from tables import each

import attncalc
from attncalc import (
    AttncalcError,
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
from attncalc.config.presets import presets

GIB = 2**30


def model(
    attention: Any, *, d_model: int, layers: int = 1, dtype: str = "fp16", **more: Any
) -> ModelSpec:
    """Return a model that has only attention."""
    groups = (Layers("layers", layers, attention=attention, norms=0, **more),)
    return ModelSpec(
        "test", "test", (Stack("decoder", groups, d_model, final_norm=False),), dtype=dtype
    )


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
    single_layer = model(grouped, d_model=4096)
    # 2,048 tokens * 2 * 8 heads * 128 elements of 2 B; with MHA 32 heads
    assert (
        kv_cache(single_layer, Workload.decode(1, 2048)).total
        == 2 * 4_194_304
        == 2 * (2048 * 2 * 8 * 128)
    )
    assert (
        kv_cache(single_layer, Workload.decode(1, 2048)).if_mha
        == 2 * 16_777_216
        == 2 * (2048 * 2 * 32 * 128)
    )
    # 32 layers * 4,194,304 elements * 4 B
    model_of_32_layers = model(grouped, d_model=4096, layers=32)
    assert (
        kv_cache(model_of_32_layers, Workload.decode(1, 2048, kv_dtype="fp32")).total == 536_870_912
    )


def test_attention_parameters_of_d_model_512() -> None:
    # 4 matrices of 512 x 512
    assert params(model(Grouped(8, 8, 64), d_model=512)).attention == 4 * 512 * 512 == 1_048_576


def test_fused_attention_with_biases_of_d_model_128() -> None:
    fused = Grouped(4, 4, 32, bias=("q", "k", "v", "o"), fused=True)
    parameters = params(model(fused, d_model=128))
    # W_qkv 128 x 384 + 384, W_o 128 x 128 + 128
    assert dict(parameters.groups[0].attention) == {"W_qkv": 49_536, "W_o": 16_512}
    assert parameters.attention == 49_536 + 16_512 == 66_048


def test_gpt3_parameters() -> None:
    parameters = params(load("gpt3"))
    # 4 matrices of 12,288 x 12,288 per layer, 96 layers; without biases
    assert parameters.groups[0].weights_per_layer == 4 * 12_288**2 == 603_979_776
    assert parameters.attention_weights == 96 * 603_979_776 == 57_982_058_496
    # 96 * (12 d^2 + 13 d) + (50,257 + 2,048) d + 2 d
    d = 12_288
    assert (
        parameters.total
        == 96 * (12 * d * d + 13 * d) + (50_257 + 2_048) * d + 2 * d
        == 174_604_259_328
    )


PUBLISHED = {
    line.split()[0]: int(line.split()[1].replace(",", ""))
    for line in (Path(__file__).parent / "data/published-params.txt").read_text().splitlines()
    if not line.startswith("#")
}


@each(("name", "published"), PUBLISHED.items())
def test_published_totals(name: str, published: int) -> None:
    model = load(name)
    assert published - params(model).total in (0, sum(tower.params for tower in model.towers))


def test_every_model_without_a_file_of_its_own_has_a_published_total() -> None:
    assert {preset.name for preset in presets() if not preset.is_listed} <= set(PUBLISHED)


@pytest.mark.parametrize(
    ("name", "published", "besides"),
    [
        # the vision tower with its projector
        ("gemma3-4b", 4_300_079_472, 419_816_304),
        ("gemma3-12b", 12_187_325_040, 421_290_864),
        ("gemma3-27b", 27_432_406_640, 423_060_336),
        ("llama4-scout", 108_641_793_536, 871_932_416),
        ("mistral-small-24b", 24_011_361_280, 438_958_080),
        # the tied head is stored a second time: vocabulary * d_model
        ("qwen3-0.6b", 751_632_384, 151_936 * 1024),
        ("qwen3-1.7b", 2_031_739_904, 151_936 * 2048),
        # a correction bias per expert, which is no parameter of transformers' class: in 62 and in
        # 23 layers
        ("minimax-m2.5", 228_689_764_864, 62 * 256),
        ("nemotron3-nano-30b", 31_577_940_288, 23 * 128),
        ("minimax-m3", 427_040_140_160, 865_567_232 + 57 * 128),
    ],
)
def test_published_totals_with_what_is_not_counted(name: str, published: int, besides: int) -> None:
    model = load(name)
    assert params(model).total == published - besides
    assert sum(tower.params for tower in model.towers) in (0, besides)


@pytest.mark.parametrize(
    ("name", "published", "moe_layers", "experts", "own_rows"),
    [
        ("glm-4.5", 358_337_791_296, 89, 160, 2 * 151_552),
        ("glm-4.5-air", 110_468_824_832, 45, 128, 2 * 151_552),
        ("glm-5.3", 753_329_940_480, 75, 256, 0),
    ],
)
def test_published_totals_with_a_layer_of_multi_token_prediction(
    name: str, published: int, moe_layers: int, experts: int, own_rows: int
) -> None:
    """That layer is one more MoE layer with a projection of two widths to one, three norms, and an
    embedding and a head if they are its own.
    """
    model = load(name)
    parameters = params(model)
    sparse = parameters.groups[-1]
    d = model.main.d_model
    # and a correction bias per expert, in each MoE layer
    besides = (
        int(sparse.total) // sparse.layers.count
        + 2 * d * d
        + 3 * d
        + own_rows * d
        + (moe_layers + 1) * experts
    )
    assert parameters.total == published - besides


@each(
    ("name", "billions"),
    [
        ("command-r7b", "8.03"),  # "model params = 8.03 B" in llama.cpp's log
        ("deepseek-v3", "671"),
        ("deepseek-v4-flash", "284"),
        ("deepseek-v4-pro", "1573"),  # 1.6T in the model card
        ("glm-5", "744"),
        ("hy4-preview", "770"),
        ("jamba-1.5-large", "399"),  # 398B in arXiv 2408.12570, rounded down
        ("jamba-1.5-mini", "52"),  # arXiv 2408.12570
        ("kimi-k2", "1026"),  # 1,026,408,235,864 elements in the safetensors files
        ("kimi-linear-48b", "49"),  # 48B in its name; 49B in the model card
        ("llama4-maverick", "401"),  # 400B in the model card, with the tower
        ("mamba2-2.7b", "2.7"),
        ("mimo-v2.5", "309"),  # 310B in the model card
        ("minimax-m1", "456"),  # arXiv 2506.13585
        ("nemotron-h-56b", "56"),
        ("nemotron-h-8b", "8.1"),
        ("olmo2-13b", "13.7"),
        ("qwen3-14b", "14.8"),
        ("qwen3-next-80b-a3b", "80"),
        ("qwen3.5-397b-a17b", "396"),  # 397B with the tower
        ("yi-34b", "34"),
    ],
)
def test_published_totals_in_billions(name: str, billions: str) -> None:
    """Published: the model's name, card or paper."""
    digits = len(billions.partition(".")[2])
    assert f"{int(params(load(name)).total) / 1e9:.{digits}f}" == billions


# Bytes of K and V, or of MLA's latent, per token beyond 8,192 tokens, and of the state that does
# not grow
CACHES = {
    # layers * K and V * KV heads * width * 2 B
    "qwen3-32b": (64 * 2 * 8 * 128 * 2, 0),
    "qwen2.5-7b": (28 * 2 * 4 * 128 * 2, 0),
    "phi-4": (40 * 2 * 10 * 128 * 2, 0),
    "mistral-nemo-12b": (40 * 2 * 8 * 128 * 2, 0),
    "glm-4.5": (92 * 2 * 8 * 128 * 2, 0),
    "glm-4.6": (92 * 2 * 8 * 128 * 2, 0),
    "minimax-m2.5": (62 * 2 * 8 * 128 * 2, 0),
    "minimax-m3": (60 * 2 * 4 * 128 * 2 + 57 * 128 * 2, 0),
    "mimo-v2-flash": (9 * 4 * (192 + 128) * 2, 0),
    "mimo-v2.5": (9 * 4 * (192 + 128) * 2, 0),
    "gemma4-e4b": (4 * 2 * 2 * 512 * 2, 0),
    "kimi-k3": (24 * (512 + 64) * 2, 69 * 96 * (128 * 128 * 4 + 4 * 3 * 128 * 2)),
    "nemotron3-super": (
        8 * 2 * 2 * 128 * 2,
        40 * (128 * 64 * 128 * 4 + 4 * (128 * 64 + 2 * 8 * 128) * 2),
    ),
    "smollm3-3b": (36 * 2 * 4 * 128 * 2, 0),
    # layers * (latent + rotary) * 2 B
    "deepseek-v2-lite": (27 * (512 + 64) * 2, 0),
    "kimi-k2": (61 * (512 + 64) * 2, 0),
    # and a key of 128 for the indexer
    "deepseek-v3.2": (61 * (512 + 64 + 128) * 2, 0),
    "glm-5": (78 * (512 + 64 + 128) * 2, 0),
    # 21 of 78 layers have an indexer
    "glm-5.3": (78 * (512 + 64) * 2 + 21 * 128 * 2, 0),
    "hy4-preview": (78 * (512 + 64) * 2 + 21 * 128 * 2, 0),
    # only the layers whose windows and chunks are not full: every second, 8 of 48, 5 of 30, 12 of
    # 48, 8 of 32, 16 of 64
    "gemma2-27b": (23 * 2 * 16 * 128 * 2, 0),
    "gemma3-12b": (8 * 2 * 8 * 256 * 2, 0),
    "gemma4-26b-a4b": (5 * 2 * 2 * 512 * 2, 0),
    "llama4-scout": (12 * 2 * 8 * 128 * 2, 0),
    "command-r7b": (8 * 2 * 8 * 128 * 2, 0),
    "olmo3-32b": (16 * 2 * 8 * 128 * 2, 0),
    # 32 of 40 layers; the 8 of cross-attention cache what the image has
    "llama3.2-11b-vision": (32 * 2 * 8 * 128 * 2, 0),
    # 12 of 48 layers; 36 with 32 heads of 128 x 128 in fp32, and a convolution over 4 of (2 * 16 +
    # 32) * 128 columns
    "qwen3-next-80b-a3b": (
        12 * 2 * 2 * 256 * 2,
        36 * (32 * 128 * 128 * 4 + 4 * (2 * 16 + 32) * 128 * 2),
    ),
    # 6 of 52 layers; 23 with 64 heads of 64 x 128, and a convolution over 4 of 64 * 64 + 2 * 8 *
    # 128 columns
    "nemotron3-nano-30b": (
        6 * 2 * 2 * 128 * 2,
        23 * (64 * 64 * 128 * 4 + 4 * (64 * 64 + 2 * 8 * 128) * 2),
    ),
    # 4 of 40 layers; 36 with 48 heads of 64 x 128, and a convolution over 4 of 48 * 64 + 2 * 128
    # columns
    "granite4-h-tiny": (
        4 * 2 * 4 * 128 * 2,
        36 * (48 * 64 * 128 * 4 + 4 * (48 * 64 + 2 * 128) * 2),
    ),
    # 4 of 32 layers; 28 with 8,192 columns, each with a state of 16 and a convolution over 4
    "jamba-1.5-mini": (4 * 2 * 8 * 128 * 2, 28 * 8192 * (16 * 4 + 4 * 2)),
    "jamba-1.5-large": (9 * 2 * 8 * 128 * 2, 63 * 16384 * (16 * 4 + 4 * 2)),
    # 7 of 27 layers with a latent; 20 with 32 heads of 128 x 128 in fp32, and a convolution over 4
    # of 3 * 32 * 128
    "kimi-linear-48b": (7 * (512 + 64) * 2, 20 * (32 * 128 * 128 * 4 + 4 * 3 * 32 * 128 * 2)),
    # 10 of 80 layers; 70 with 64 heads of 128 x 128 in the dtype of the cache
    "minimax-m1": (10 * 2 * 8 * 128 * 2, 70 * 64 * 128 * 128 * 2),
    # 4 of 52 layers; 24 with 128 heads of 64 x 128, and a convolution over 4 of 128 * 64 + 2 * 8 *
    # 128 columns
    "nemotron-h-8b": (
        4 * 2 * 8 * 128 * 2,
        24 * (128 * 64 * 128 * 4 + 4 * (128 * 64 + 2 * 8 * 128) * 2),
    ),
    # 64 layers with 80 heads of 64 x 128, and a convolution over 4 of 80 * 64 + 2 * 128 columns
    "mamba2-2.7b": (0, 64 * (80 * 64 * 128 * 4 + 4 * (80 * 64 + 2 * 128) * 2)),
    # attention and Mamba-2 in each of 44 layers: 24 heads of 128 x 256, a convolution of 24 * 128 +
    # 2 * 256 columns
    "falcon-h1-7b": (
        44 * 2 * 2 * 128 * 2,
        44 * (24 * 128 * 256 * 4 + 4 * (24 * 128 + 2 * 256) * 2),
    ),
}


@each(("name", "per_token", "state"), [(name, *cache) for name, cache in CACHES.items()])
def test_cache_of_a_token_and_state(name: str, per_token: int, state: int) -> None:
    engine = "transformers" if state else "ideal"  # which keeps all columns of a convolution
    cache = kv_cache(load(name), Workload.decode(1, 8193), engine=engine)
    assert cache.per_token == per_token
    assert cache.recurrent_state == state


def test_the_original_transformers() -> None:
    # Table 3 of the paper: 65 million and 213 million, with a vocabulary of "about 37000"
    assert round(int(params(load("transformer-base")).total) / 1e6) == 63
    assert round(int(params(load("transformer-big")).total) / 1e6) == 214


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
    model_flops = flops(spec, Workload.prefill(1, 4096))
    # QK alone: 4,096 * 4,096 * 4,096 = 68,719,476,736 multiply-adds of 2 FLOP; PV takes as many
    assert model_flops.qk_dense == 2 * 68_719_476_736 == 137_438_953_472
    assert model_flops.scores_dense == 2 * 137_438_953_472


def test_cross_attention_of_5_queries_over_7_keys() -> None:
    heads = Grouped(8, 8, 64)
    spec = model(heads, d_model=512, dtype="fp32", cross=Cross(heads))
    workload = Workload.prefill(2, 5, source=7)
    cross_attention = activations(spec, workload)[1]
    assert cross_attention.score_shape == (2, 8, 5, 7)
    assert cross_attention.output_shape == (2, 5, 512)
    # 2 sequences * 7 source tokens * 2 * 8 heads * 64 * 4 B
    assert kv_cache(spec, workload).cross_attention_cache == 2 * 7 * 2 * 8 * 64 * 4


def test_llama2_70b_prefill() -> None:
    model_flops = flops(load("llama2-70b"), Workload.prefill(1, 4096))
    # 2 FLOP per weight (all but the embedding and the norms) and token, and QK and PV of 64 heads
    matmul = 2 * 4096 * (68_976_648_192 - 32_000 * 8192 - 161 * 8192)
    assert (
        model_flops.total_dense == matmul + 80 * 2 * 2 * 64 * 128 * 4096**2 == 606_878_878_924_800
    )
    # under the causal mask 4,096 * 4,097 / 2 of the pairs are left
    assert (
        model_flops.total
        == matmul + 80 * 2 * 2 * 64 * 128 * (4096 * 4097 // 2)
        == 584_894_015_078_400
    )


def test_deepseek_v3_cache() -> None:
    # 61 layers * 4,096 tokens * (512 latent + 64 rotary) * 2 B
    assert kv("deepseek-v3", 4096) == 61 * 4096 * (512 + 64) * 2 == 287_834_112


def test_gpt_oss_cache() -> None:
    # 12 layers cache 128 tokens, 12 cache all; 2 * 8 heads * 64 * 2 B per token
    assert kv("gpt-oss-20b", 131_072) == 12 * (128 + 131_072) * 2 * 8 * 64 * 2 == 3_224_371_200


def test_gemma3_cache() -> None:
    # 52 layers cache 1,024 tokens, 10 cache all; 2 * 16 heads * 128 * 2 B per token
    tokens = 52 * 1024 + 10 * 131_072
    assert kv("gemma3-27b", 131_072) == tokens * 2 * 16 * 128 * 2 == 11_173_625_856


def test_training_is_three_forward_passes() -> None:
    spec = load("gpt2")
    forward, step = flops(spec, Workload.prefill(2, 64)), flops(spec, Workload.train(2, 64))
    assert step.total == 3 * forward.total
    assert step.scores_dense == 3 * forward.scores_dense


def test_full_recomputation_is_the_published_formula_of_megatron() -> None:
    """Narayanan et al. 2021, arXiv:2104.04473, eq. 3: 96 B s l h^2 (1 + s / 6h + V / 16lh), with
    recomputation.
    """
    batch, s, layers, h, vocabulary = 1536, 2048, 96, 12_288, 50_257
    step = flops(load("gpt3"), Workload.train(batch, s, recompute="full"))
    # per token 4 passes of 24 h^2 and of 4 s h in each layer, and 3 passes of 2 V h: the head is
    # not repeated
    published = batch * s * (96 * layers * h * h + 16 * layers * s * h + 6 * vocabulary * h)
    assert step.total_dense == published
    # section 5.1: 300 billion tokens take 34 days on 1,024 A100s at 140 TFLOP/s each
    days = step.total_dense * 300e9 / (batch * s) / (1024 * 140e12) / 86_400
    assert days == pytest.approx(34, rel=0.03)


def test_selective_recomputation_repeats_the_scores_only() -> None:
    spec, selective = load("gpt2"), Workload.train(2, 64, recompute="selective")
    forward, step = flops(spec, Workload.prefill(2, 64)), flops(spec, selective)
    # 12 layers, 2 sequences of 64 * 65 / 2 pairs, QK and PV of 12 heads of 64
    assert step.recomputation == forward.scores == 12 * 2 * 2080 * 4 * 12 * 64
    assert step.total == 3 * forward.total + forward.scores
    assert sum(group.total for group in step.groups) == step.total - step.head


def test_recomputation_of_ops_repeats_every_second_matmul() -> None:
    # of q, k, v, o, gate, up and down: k, o and up
    step = flops(load("llama3-8b"), Workload.train(2, 64, recompute="op"))
    assert step.recomputation == 32 * 2 * 2 * 64 * 4096 * (1024 + 4096 + 14336)
    with pytest.raises(AttncalcError, match="recompute='op' does not support"):
        flops(load("mixtral-8x7b"), Workload.train(1, 64, recompute="op"))


@each("workload", [{"phase": "decode"}, {"phase": "prefill", "past": 3}])
def test_only_training_recomputes(workload: dict[str, Any]) -> None:
    with pytest.raises(AttncalcError, match="recompute='full' cannot be combined with phase"):
        attncalc.flops("gpt2", recompute="full", context=64, **workload)
    assert "gpt2, train," in repr(attncalc.flops("gpt2", recompute="full", context=64))


def test_six_n_d_is_the_published_compute_of_gpt3() -> None:
    """Brown et al. 2020, Table D.1: 174,600 million parameters, 300 billion tokens, 3.14e23 FLOP in
    training.
    """
    # 146,484,375 sequences of 2,048 tokens are 300 billion tokens; 6 * 174.6e9 * 300e9 = 3.143e23
    estimate = flops(load("gpt3"), Workload.train(146_484_375, 2048)).six_n_d
    assert estimate is not None
    assert f"{int(estimate):.3g}" == "3.14e+23"


def test_six_n_d_counts_the_active_parameters_of_a_mixture() -> None:
    spec = load("mixtral-8x7b")
    assert flops(spec, Workload.train(2, 100)).six_n_d == 6 * params(spec).active * 200


def test_only_training_without_an_encoder_has_six_n_d() -> None:
    assert flops(load("gpt2"), Workload.prefill(1, 64)).six_n_d is None
    assert flops(load("gpt2"), Workload.decode(1, 64)).six_n_d is None
    assert flops(load("t5-base"), Workload.train(1, 64, source=9)).six_n_d is None
    assert flops(load("bert-base"), Workload.train(1, 64)).six_n_d


def test_a_decode_step_costs_two_flop_per_weight_and_the_scores() -> None:
    model_flops = flops(load("llama2-70b"), Workload.decode(1, 4096))
    matmul = 2 * (68_976_648_192 - 32_000 * 8192 - 161 * 8192)
    # one query of 64 heads over 4,096 keys, QK and PV of 128, 80 layers
    assert model_flops.total == matmul + 80 * 2 * 2 * 64 * 128 * 4096


def test_padding_changes_exact_scores_and_the_ideal_cache() -> None:
    spec = load("llama2-7b")
    ragged = Workload.prefill(lengths=(100, 60))
    # 100 * 101 / 2 + 60 * 61 / 2 pairs; 32 layers of 32 heads * 128, QK and PV
    assert flops(spec, ragged).scores == 32 * 4 * 32 * 128 * (5050 + 1830)
    # 160 tokens of 524,288 B
    assert kv_cache(spec, ragged).total == 160 * 524_288


def test_prefix_mask_of_a_prefill() -> None:
    spec = load("llama2-7b")
    model_flops = flops(spec, Workload.prefill(1, 100, mask=Mask("prefix", 40)))
    # causal pairs and the upper triangle of the first 40
    assert model_flops.scores == 32 * 4 * 32 * 128 * (5050 + 40 * 39 // 2)
