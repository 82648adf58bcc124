"""Two small models with every part that a model can have, counted by hand: parameters, FLOPs, cache
and what is read.

No two sizes are equal, so a figure that takes the wrong one differs.
"""

import dataclasses
from random import Random

import pytest

from attncalc import (
    AttncalcError,
    Cross,
    Grouped,
    Head,
    Layers,
    Mlp,
    ModelSpec,
    Sliding,
    Stack,
    Workload,
    flops,
    kv_cache,
    params,
)
from attncalc.attention import KINDS, Matrix
from attncalc.cost.activations import activations
from attncalc.cost.cache import layer_cache_specs
from attncalc.cost.experts import experts_read, routed_read
from attncalc.cost.intensity import decode_intensity, weights_read
from attncalc.workload import CAUSAL, Mask

BIDIRECTIONAL = Mask("bidirectional")

D = 50
HEADS = Grouped(6, 2, 10, bias=("q", "o"))
EXPERTS = Mlp(
    24,
    gated=True,
    n_experts=8,
    n_experts_per_token=3,
    n_shared_experts=2,
    d_ff_shared=37,
    router_bias=True,
)
DENSE = Mlp(70, bias=True)
MIXER, SCALE = Matrix("mixer", D, 9, 4, "queries"), Matrix("scale", 11)

DECODER = ModelSpec(
    "m",
    "m",
    (
        Stack(
            "decoder",
            (
                Layers("mixture", 4, attention=HEADS, mlp=EXPERTS, norms=3, extra=(MIXER, SCALE)),
                Layers(
                    "dense", 3, attention=dataclasses.replace(HEADS, span=Sliding(16)), mlp=DENSE
                ),
            ),
            D,
            norm="layernorm",
            learned_positions=100,
            embedding_norm=True,
        ),
    ),
    vocab_size=200,
    token_types=7,
    d_embedding=30,
    head=Head("lm", bias=True),
    extra=(
        Matrix("widen", 30, D, 0, "queries"),
        Matrix("start", 13, 5, 2, "first"),
        Matrix("unused", 17),
    ),
)

# of one layer: W_q, W_k, W_v and W_o; biases of q and o
ATTENTION_WEIGHTS = D * 60 + D * 20 + D * 20 + 60 * D
ATTENTION = ATTENTION_WEIGHTS + 60 + D
EXPERT, SHARED, ROUTER = 3 * D * 24, 3 * D * 37, D * 8
DENSE_WEIGHTS = 2 * D * 70
NORM = 2 * D  # a gain and a bias


def test_parameters_of_the_decoder() -> None:
    parameters = params(DECODER)
    mixture = 4 * (ROUTER + 8 + (8 + 2) * EXPERT + SHARED + MIXER.params)
    active = 4 * (ROUTER + 8 + (3 + 2) * EXPERT + SHARED + MIXER.params)
    dense = 3 * (DENSE_WEIGHTS + 70 + D)
    assert parameters.attention == 7 * ATTENTION
    assert parameters.attention_weights == 7 * ATTENTION_WEIGHTS
    assert parameters.mlp == mixture + dense
    assert parameters.embedding == (200 + 7) * 30 + 100 * D
    assert parameters.head == 30 * 200 + 200
    assert parameters.norm == (4 * 3 + 3 * 2 + 2) * NORM
    assert parameters.other == 4 * 11 + 30 * D + 13 * 5 + 2 + 17
    parts = (
        parameters.attention,
        parameters.mlp,
        parameters.embedding,
        parameters.head,
        parameters.norm,
    )
    assert parameters.total == sum(parts) + parameters.other
    assert parameters.total - parameters.active == mixture - active


def test_parameters_of_the_decoders_groups() -> None:
    mixture, dense = params(DECODER).groups
    assert (mixture.attention_total, mixture.attention_weights) == (
        4 * ATTENTION,
        4 * ATTENTION_WEIGHTS,
    )
    assert (mixture.attention_per_layer, mixture.weights_per_layer) == (
        ATTENTION,
        ATTENTION_WEIGHTS,
    )
    assert (mixture.norm, mixture.other) == (4 * 3 * NORM, 4 * 11)
    assert (dense.norm, dense.other) == (3 * 2 * NORM, 0)
    assert dense.mlp == dense.mlp_active == 3 * (DENSE_WEIGHTS + 70 + D)
    assert dense.total == dense.attention_total + dense.mlp + dense.norm


def test_a_tied_head_adds_its_bias_only() -> None:
    assert params(dataclasses.replace(DECODER, head=Head("lm", tied=True, bias=True))).head == 200
    assert params(dataclasses.replace(DECODER, head=Head("lm", tied=True))).head == 0
    assert params(dataclasses.replace(DECODER, head=Head("pooler"))).head == D * D + D
    # of 3 ranks of attention each has a third of 200 rows, rounded up
    assert params(dataclasses.replace(DECODER, head=Head("lm", bias=True, ranks=3))).head == 67 * (
        30 + 1
    )


def test_layers_that_share_weights_add_none() -> None:
    shared = dataclasses.replace(DECODER.main.layers[0], shares_weights=True)
    stack = dataclasses.replace(DECODER.main, layers=(shared, DECODER.main.layers[1]))
    assert params(dataclasses.replace(DECODER, stacks=(stack,))).attention == 3 * ATTENTION


def test_flops_of_the_decoders_prefill() -> None:
    """2 sequences of 20 tokens; 2 FLOP per weight and token."""
    cost = flops(DECODER, Workload.prefill(2, 20))
    tokens = 2 * 20
    assert cost.projections == 2 * tokens * 7 * ATTENTION_WEIGHTS
    mixture = 4 * (ROUTER + SHARED + (3 + 2) * EXPERT + D * 9)
    assert cost.mlp == 2 * tokens * (mixture + 3 * DENSE_WEIGHTS)
    # the head reads 30 elements of every token, `start` multiplies the first token of a sequence
    assert cost.head == 2 * tokens * 30 * 200 + 2 * tokens * 30 * D + 2 * 2 * 13 * 5
    full, window = 20 * 21 // 2, sum(min(n, 16) for n in range(1, 21))
    assert cost.scores == 2 * 2 * 6 * (4 * full + 3 * window) * (10 + 10)
    assert cost.scores_dense == 2 * 2 * 6 * 7 * 20 * 20 * (10 + 10)
    assert cost.qk_dense == 2 * 2 * 6 * 7 * 20 * 20 * 10
    assert cost.total == cost.projections + cost.mlp + cost.head + cost.scores
    assert cost.total_dense == cost.projections + cost.mlp + cost.head + cost.scores_dense


def test_a_training_step_costs_three_forward_passes() -> None:
    once, trained = flops(DECODER, Workload.prefill(2, 20)), flops(DECODER, Workload.train(2, 20))
    for part in (
        "total",
        "total_dense",
        "projections",
        "scores",
        "scores_dense",
        "qk_dense",
        "mlp",
        "head",
    ):
        assert getattr(trained, part) == 3 * getattr(once, part), part
    assert trained.rule
    assert not once.rule


def test_a_pooler_reads_the_first_token_of_each_sequence() -> None:
    pooled = dataclasses.replace(DECODER, head=Head("pooler"), extra=())
    assert flops(pooled, Workload.prefill(2, 20)).head == 2 * 2 * D * D
    assert flops(dataclasses.replace(pooled, head=None), Workload.prefill(2, 20)).head == 0


def test_the_cache_of_the_decoder() -> None:
    """4 layers keep 20 tokens and 3 keep 16, K and V of 2 heads of 10 in fp16."""
    cache = kv_cache(DECODER, Workload.decode(3, 20))
    per_token = 2 * 2 * 10 * 2
    assert cache.total == 3 * (4 * 20 + 3 * 16) * per_token
    assert cache.per_sequence == (4 * 20 + 3 * 16) * per_token
    assert cache.per_token == 4 * per_token  # the window is full
    assert cache.if_mha == 3 * cache.total  # 6 query heads for 2 KV heads
    assert cache.recurrent_state == cache.cross_attention_cache == 0


def test_what_a_decode_step_reads() -> None:
    """2 sequences use at least 3 of 8 routed experts, and both shared ones; 8 * (1 - (5 / 8)^2) =
    4.875 on average.
    """
    mixture = ATTENTION + ROUTER + 8 + SHARED + (3 + 2) * EXPERT + MIXER.params + 11 + 3 * NORM
    dense = ATTENTION + DENSE_WEIGHTS + 70 + D + 2 * NORM
    outside = 30 * D + 13 * 5 + 2  # `unused` multiplies nothing
    workload = Workload.decode(2, 20)
    read = weights_read(DECODER, workload)
    assert read == 4 * mixture + 3 * dense + 2 * NORM + outside + (30 + 1) * 200
    intensity, cost, cache = (
        decode_intensity(DECODER, workload),
        flops(DECODER, workload),
        kv_cache(DECODER, workload),
    )
    expected = read + 4 * int(1.875 * EXPERT)
    assert weights_read(DECODER, workload, "expected") == expected
    assert weights_read(DECODER, workload, "all") == read + 4 * 5 * EXPERT
    assert intensity.weights == 2 * expected
    assert float(intensity.per_byte) == cost.total / (2 * expected + cache.total)
    assert float(intensity.per_cache_byte) == cost.scores / cache.total


def test_experts_that_tokens_read() -> None:
    """Each token picks 3 of 8 experts; there are 2 shared ones. Here an expert has 1,000 weights.

    8 * (1 - (5 / 8)^n) experts are expected: 3, 4.875, 6.046875, ... 8.
    """
    for tokens, expected in ((1, 3000), (2, 4875), (3, 6046), (100, 8000), (10**15, 8000)):
        assert routed_read(1000, EXPERTS, tokens, "fewest") == 3000
        assert routed_read(1000, EXPERTS, tokens, "expected") == expected
        assert experts_read(1000, EXPERTS, tokens, "expected") == expected + 2000
        assert routed_read(1000, EXPERTS, tokens, "all") == 8000
        assert experts_read(1000, DENSE, tokens, "expected") == 1000
        assert routed_read(1000, DENSE, tokens, "expected") == 0


def test_the_expected_experts_are_the_average_of_random_picks() -> None:
    random = Random(0)
    for n, k, tokens in ((8, 3, 2), (64, 6, 10), (256, 8, 32)):
        rounds = 1000
        picks = sum(
            len({e for _ in range(tokens) for e in random.sample(range(n), k)})
            for _ in range(rounds)
        )
        expected = (
            routed_read(10**6, Mlp(1, n_experts=n, n_experts_per_token=k), tokens, "expected")
            / 10**6
        )
        assert picks / rounds == pytest.approx(expected, rel=0.02)


SOURCE_HEADS, CROSS_HEADS = Grouped(5, 5, 8), Grouped(4, 2, 12, bias=("k",))
D_SOURCE = 36
TRANSLATOR = ModelSpec(
    "t",
    "t",
    (
        Stack(
            "encoder",
            (Layers("layers", 3, attention=SOURCE_HEADS, mlp=Mlp(22)),),
            D_SOURCE,
            input="source",
            mask=BIDIRECTIONAL,
            relative_position_buckets=32,
        ),
        Stack(
            "decoder",
            (Layers("layers", 2, attention=HEADS, cross=Cross(CROSS_HEADS), mlp=DENSE, norms=3),),
            D,
            relative_position_buckets=32,
        ),
    ),
    vocab_size=200,
    head=Head("lm", tied=True),
)
ENCODER_ATTENTION = 4 * D_SOURCE * 40
CROSS_QUERIES, CROSS_KEYS = 2 * D * 48, 2 * D_SOURCE * 24


def test_parameters_of_the_encoder_decoder() -> None:
    parameters = params(TRANSLATOR)
    assert parameters.attention == 3 * ENCODER_ATTENTION + 2 * (
        ATTENTION + CROSS_QUERIES + CROSS_KEYS + 24
    )
    assert parameters.attention_weights == 3 * ENCODER_ATTENTION + 2 * (
        ATTENTION_WEIGHTS + CROSS_QUERIES + CROSS_KEYS
    )
    assert parameters.mlp == 3 * 2 * D_SOURCE * 22 + 2 * (DENSE_WEIGHTS + 70 + D)
    # a table of 32 buckets has a value per head
    assert parameters.embedding == 200 * D + 32 * 5 + 32 * 6
    assert parameters.norm == (3 * 2 + 1) * D_SOURCE + (2 * 3 + 1) * D
    assert (parameters.head, parameters.other) == (0, 0)


def test_flops_of_the_encoder_decoders_prefill() -> None:
    """2 sequences of 20 target tokens and 31 of the source, whose keys and values each decoder
    layer computes once.
    """
    cost = flops(TRANSLATOR, Workload.prefill(2, 20, source=31))
    encoder = 2 * 2 * 31 * ENCODER_ATTENTION
    decoder = 2 * 2 * 20 * (ATTENTION_WEIGHTS + CROSS_QUERIES) + 2 * 2 * 31 * CROSS_KEYS
    assert cost.projections == 3 * encoder + 2 * decoder
    assert cost.mlp == 2 * 2 * (3 * 31 * 2 * D_SOURCE * 22 + 2 * 20 * DENSE_WEIGHTS)
    of_the_encoder, of_the_cross = 3 * 2 * 5 * 31 * 31 * 16, 2 * 2 * 4 * 20 * 31 * 24
    assert cost.scores == 2 * (of_the_encoder + of_the_cross + 2 * 2 * 6 * (20 * 21 // 2) * 20)
    assert cost.scores_dense == 2 * (of_the_encoder + of_the_cross + 2 * 2 * 6 * 20 * 20 * 20)
    assert cost.qk_dense == cost.scores_dense // 2  # values are as wide as keys
    assert cost.head == 2 * 2 * 20 * D * 200


def test_dense_scores_of_the_encoder_decoder_with_tokens_in_the_cache() -> None:
    """The encoder has run. Each new token sees 20 keys of its own, d_qk + d_v = 20, and 31 of the
    source, 12 + 12.
    """
    for new, workload in (
        (1, Workload.decode(2, 20, source=31)),
        (13, Workload.prefill(2, 20, past=7, source=31)),
    ):
        cost = flops(TRANSLATOR, workload)
        assert cost.scores_dense == 2 * 2 * (2 * 6 * new * 20 * 20 + 2 * 4 * new * 31 * 24)
        assert cost.qk_dense == cost.scores_dense // 2


def test_an_encoder_projects_summaries_of_the_source() -> None:
    """LongT5: 31 tokens have 7 whole blocks of 4, whose keys and values W_k and W_v make too."""
    encoder, decoder = TRANSLATOR.stacks
    keys = {"n_heads": 5, "n_kv_heads": 5, "d_head": 8, "summary_block": 4}
    summaries = dataclasses.replace(
        encoder.layers[0], attention=KINDS["global_window"].from_keys(keys, D_SOURCE, Sliding(9))
    )
    model = dataclasses.replace(
        TRANSLATOR, stacks=(dataclasses.replace(encoder, layers=(summaries,)), decoder)
    )
    workload = Workload.prefill(2, 20, source=31)
    added = flops(model, workload).projections - flops(TRANSLATOR, workload).projections
    assert added == 3 * 2 * 2 * 7 * (2 * D_SOURCE * 40)
    step = Workload.decode(2, 20, source=31)
    assert flops(model, step).projections == flops(TRANSLATOR, step).projections


def test_a_step_of_the_decoder_does_not_run_the_encoder() -> None:
    cost = flops(TRANSLATOR, Workload.decode(2, 20, source=31))
    assert cost.projections == 2 * 2 * 2 * (ATTENTION_WEIGHTS + CROSS_QUERIES)
    assert cost.scores == 2 * 2 * (2 * 6 * 20 * 20 + 2 * 4 * 31 * 24)
    # K and V of the source are in the cache: W_k and W_v of the cross-attention are not read
    layer = ATTENTION + CROSS_QUERIES + DENSE_WEIGHTS + 70 + D + 3 * D
    assert weights_read(TRANSLATOR, Workload.decode(2, 20, source=31)) == 2 * layer + D + D * 200


def test_the_cache_of_the_encoder_decoder() -> None:
    cache = kv_cache(TRANSLATOR, Workload.decode(3, 20, source=31))
    assert cache.cross_attention_cache == 3 * 2 * 31 * 2 * 2 * 12 * 2
    assert cache.total == 3 * 2 * 20 * 2 * 2 * 10 * 2 + cache.cross_attention_cache


def test_the_formula_of_the_embedding_names_its_tables_only_if_there_are_two_stacks() -> None:
    assert "params_embedding" not in params(DECODER).embedding.formula.text
    tables = ("tokens", "positions_encoder", "positions_decoder")
    assert params(TRANSLATOR).embedding.formula.text == " + ".join(
        f"params_embedding_{table}" for table in tables
    )


def test_names_of_groups_are_unique_in_the_model() -> None:
    encoder, decoder = TRANSLATOR.stacks
    named = dataclasses.replace(decoder.layers[0], name="local")
    both = dataclasses.replace(
        TRANSLATOR, stacks=(encoder, dataclasses.replace(decoder, layers=(named,)))
    )
    assert [group.group for group in params(both).groups] == ["encoder", "decoder_local"]
    assert [group.group for group in params(DECODER).groups] == ["mixture", "dense"]


def test_what_engines_are_told_of_the_layers_caches() -> None:
    """How many layers, what each caches, its kind, and whether its window bounds it; the encoder
    caches nothing.
    """
    full, window = layer_cache_specs(DECODER)
    assert (full.layers, full.label, full.windowed) == (4, "GQA", False)
    assert (window.layers, window.label, window.windowed) == (3, "GQA", True)
    assert (full.cached, window.cached) == (HEADS.cache(), DECODER.main.layers[1].attention.cache())
    (decoder,) = layer_cache_specs(TRANSLATOR)
    assert [spec.per for spec in decoder.cached] == ["token", "source token"]
    encoder_only = dataclasses.replace(
        DECODER, stacks=(dataclasses.replace(DECODER.main, mask=BIDIRECTIONAL),)
    )
    assert [layers.cached for layers in layer_cache_specs(encoder_only)] == [(), ()]


def test_score_matrices_of_the_encoder_decoder() -> None:
    """fp16: 2 bytes per element. A head has S x T scores."""
    encoder, decoder, cross = activations(TRANSLATOR, Workload.prefill(2, 20, source=31))
    assert [a.name for a in (encoder, decoder, cross)] == ["encoder", "decoder", "decoder_cross"]
    assert [a.score_shape for a in (encoder, decoder, cross)] == [
        (2, 5, 31, 31),
        (2, 6, 20, 20),
        (2, 4, 20, 31),
    ]
    assert [a.output_shape for a in (encoder, decoder, cross)] == [
        (2, 31, D_SOURCE),
        (2, 20, D),
        (2, 20, D),
    ]
    assert (cross.score_elements, cross.score_matrix_per_head) == (2 * 4 * 20 * 31, 20 * 31 * 2)
    assert cross.score_matrix == 2 * 4 * 20 * 31 * 2
    after = activations(TRANSLATOR, Workload.decode(2, 20, source=31))
    assert [a.score_shape for a in after] == [(2, 6, 1, 20), (2, 4, 1, 31)]


@pytest.mark.parametrize(
    ("workload", "mask", "names"),
    [
        # a flag is enough for full attention, and a window needs a matrix as soon as it hides a key
        (Workload.prefill(1, 20), CAUSAL, ["mask_fp32", "mask"]),
        (Workload.prefill(1, 16), CAUSAL, ["mask_fp32", "mask_fp32"]),
        (Workload.prefill(1, 20, past=5), CAUSAL, ["mask", "mask"]),
        (Workload.prefill(1, 20, mask=Mask("prefix", 4)), CAUSAL, ["mask", "mask"]),
        (Workload.prefill(1, 2), CAUSAL, ["mask_fp32", "mask_fp32"]),
        (Workload.prefill(1, 1), CAUSAL, ["", ""]),
        (Workload.decode(1, 20), CAUSAL, ["", ""]),
        (Workload.prefill(1, 20, mask=BIDIRECTIONAL), BIDIRECTIONAL, ["", "mask"]),
    ],
    ids=[
        "prefill",
        "short",
        "past",
        "prefix",
        "two tokens",
        "one token",
        "decode",
        "bidirectional",
    ],
)
def test_masks_that_the_unfused_kernel_holds(
    workload: Workload, mask: Mask, names: list[str]
) -> None:
    model = dataclasses.replace(DECODER, stacks=(dataclasses.replace(DECODER.main, mask=mask),))
    for layer, name in zip(activations(model, workload), names, strict=True):
        tensors = {tensor.name for moment in layer.moments["math"] for tensor in moment.tensors}
        assert {"mask", "mask_fp32"} & tensors == set(filter(None, [name]))


@pytest.mark.parametrize(
    ("workload", "keys"),
    [
        (Workload.prefill(1, 30), (30, 30)),
        # 20 new tokens, and the 10 before them fit in the window of 16
        (Workload.prefill(1, 30, past=10), (30, 30)),
        # of the 20 before them, the window has kept 16
        (Workload.prefill(1, 40, past=20), (40, 36)),
        (Workload.decode(1, 30), (30, 16)),
    ],
)
def test_keys_that_a_kernel_reads(workload: Workload, keys: tuple[int, int]) -> None:
    full, window = activations(DECODER, workload)
    assert (full.score_shape[3], window.score_shape[3]) == keys


@pytest.mark.parametrize(
    ("workload", "fused", "keys"),
    [
        (Workload.prefill(1, 20), False, {"q", "k", "v"}),
        (Workload.prefill(1, 20, past=5), False, {"q"}),  # the new K and V are in the cache
        # one tensor, held as long as q is
        (Workload.prefill(1, 20, past=5), True, {"q", "k", "v"}),
    ],
)
def test_new_keys_are_held_until_they_are_in_the_cache(
    workload: Workload, fused: bool, keys: set[str]
) -> None:
    group = dataclasses.replace(
        DECODER.main.layers[0], attention=dataclasses.replace(HEADS, fused=fused)
    )
    model = dataclasses.replace(
        DECODER, stacks=(dataclasses.replace(DECODER.main, layers=(group,)),)
    )
    (layer,) = activations(model, workload)
    moments = {
        moment.name: {t.name: int(t.size) for t in moment.tensors}
        for moment in layer.moments["flash"]
    }
    assert {"q", "k", "v"} & set(moments["the kernel"]) == keys
    if keys == {"q"}:  # 15 new tokens in fp16: 6 query heads and 2 KV heads of 10
        assert moments["the projections"] == {"q": 15 * 60 * 2, "k": 15 * 20 * 2, "v": 15 * 20 * 2}
    else:
        assert "the projections" not in moments


def test_a_mask_that_the_model_cannot_have_is_an_error() -> None:
    with pytest.raises(AttncalcError, match="no decode step"):
        flops(DECODER, Workload.decode(1, 20, mask=Mask("bidirectional")))
