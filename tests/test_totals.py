"""Totals of presets, each with its arithmetic. Mutation testing showed that no other test held
these figures.
"""

import dataclasses

import pytest

from attncalc import (
    AttncalcError,
    Chunked,
    Cross,
    Grouped,
    Head,
    Latent,
    Layers,
    ModelSpec,
    Sliding,
    Stack,
    Workload,
    decode_intensity,
    flops,
    kv_cache,
    load,
    params,
)
from attncalc.cost.complexity import attention_layer_complexity, layer_types
from attncalc.cost.intensity import weights_read


def one_layer(kind: Grouped, d_model: int = 512) -> ModelSpec:
    return ModelSpec("m", "m", (Stack("s", (Layers("layers", 1, attention=kind),), d_model),))


def test_flops_grow_linearly_with_the_batch() -> None:
    # 64 tokens: 12 layers * 2 * 768^2 * (4 + 8) of matrices, 12 * 4 * 64 * 65 / 2 * 768 of scores,
    # and a head at every token of 2 * 768 * 50,257
    one_sequence = 64 * 12 * 2 * 768**2 * 12 + 12 * 4 * (64 * 65 // 2) * 768 + 64 * 2 * 768 * 50_257
    assert one_sequence == 15_888_777_216
    assert flops(load("gpt2"), Workload.prefill(2, 64)).total == 2 * one_sequence


def test_a_pooler_reads_one_token_per_sequence() -> None:
    assert flops(load("bert-base"), Workload.prefill(2, 64)).head == 2 * 2 * 768**2


def test_an_encoder_and_a_decoder_add_up() -> None:
    model = load("t5-base").with_attention("mqa")
    model_flops = flops(model, Workload.prefill(2, 5, source=7))
    # a layer's W_q and W_o are 768^2 each, its one head's W_k and W_v 768 * 64 each
    wide, narrow = 2 * 768**2, 2 * 768 * 64
    per_token = 2 * 12 * 2
    # the encoder's 7 tokens, the decoder's 5, and across: queries of 5, keys of 7
    assert model_flops.projections == per_token * (wide * (7 + 5 + 5) + narrow * (7 + 5 + 7))
    # 768 of QK and 768 of PV for a pair: 7 * 7 in the encoder, 5 * 5 and 5 * 7 in the decoder
    assert model_flops.scores_dense == 2 * 12 * 4 * 768 * (49 + 25 + 35)
    assert model_flops.qk_dense == 2 * 12 * 2 * 768 * (49 + 25 + 35)


def test_mlp_flops_of_one_token() -> None:
    # Mixtral: 32 layers * 2 * (a router of 8 and 2 experts of 3 * 14,336 columns) * 4,096
    assert flops(load("mixtral-8x7b"), Workload.prefill(1, 1)).mlp == 32 * 2 * 4096 * (
        8 + 2 * 3 * 14_336
    )
    # DeepSeek-V3: 3 dense layers; 58 with a router of 256, and 8 + 1 experts of 2,048
    dense, sparse = 3 * 18_432, 256 + 9 * 3 * 2048
    assert flops(load("deepseek-v3"), Workload.prefill(1, 1)).mlp == 2 * 7168 * (
        3 * dense + 58 * sparse
    )


@pytest.mark.parametrize("name", ["t5-base", "deepseek-v3", "bert-base", "gpt-oss-20b"])
def test_groups_and_head_add_up_to_the_total(name: str) -> None:
    model = load(name)
    model_flops = flops(model, Workload.prefill(2, 9, source=7 if model.encoder else None))
    assert (
        sum(g.projections + g.scores + g.mlp for g in model_flops.groups) + model_flops.head
        == model_flops.total
    )


def test_only_new_tokens_are_projected() -> None:
    model_flops = flops(load("t5-base"), Workload.prefill(2, 30, past=10, source=21))
    layer, ffn, pair = 4 * 768**2, 2 * 768 * 3072, 2 * 2 * 768
    # the encoder has run: 20 new tokens, each with its own four matrices and W_q and W_o across
    decoder = 20 * 2 * (layer + 2 * 768**2 + ffn)
    pairs = sum(range(11, 31)) + 20 * 21
    head = 2 * 768 * 32_128
    assert model_flops.total == 2 * (12 * (decoder + pairs * pair) + 20 * head)


def test_a_model_without_a_vocabulary_has_no_head_flops() -> None:
    model = dataclasses.replace(load("gpt2"), vocab_size=None)
    assert flops(model, Workload.prefill(1, 8)).head == 0
    assert params(model.shard(2)).embedding == 1024 * 768


def test_active_parameters_of_deepseek_v3() -> None:
    """Published: 37 B activated; here with the whole embedding and the router."""
    # MLA: queries through 1,536, K and V through 512 + 64, 128 heads of 128 + 64 and of 128
    mla = (
        7168 * 1536
        + 1536
        + 1536 * 128 * 192
        + 7168 * 576
        + 512
        + 512 * 128 * 256
        + 128 * 128 * 7168
    )
    dense, sparse = 3 * 7168 * 18_432, 7168 * 256 + 9 * 3 * 7168 * 2048
    norms, vocabulary = 61 * 2 * 7168 + 7168, 129_280 * 7168
    active = 61 * mla + 3 * dense + 58 * sparse + norms + 2 * vocabulary
    assert params(load("deepseek-v3")).active == active == 37_552_282_624


def test_a_shard_holds_its_share_of_heads_and_rows() -> None:
    # 36 attentions of 4 * 768^2 over 4 devices; GPT-2's 50,257 rows over 2 are 25,129, its
    # positions whole
    assert params(load("t5-base").shard(4)).attention == 36 * 4 * 768**2 // 4
    assert params(load("gpt2").shard(2)).embedding == (25_129 + 1_024) * 768


def test_a_narrow_decoder_reads_a_wide_encoder() -> None:
    cross = Cross(Grouped(4, 4, 8))
    shapes = {m.name: (m.rows, m.cols) for m in cross.matrices(32, 48)}
    assert (shapes["W_q"], shapes["W_k"], shapes["W_v"]) == ((32, 32), (48, 32), (48, 32))


def test_if_mha_includes_cross_attention() -> None:
    step = Workload.decode(1, 10, source=20)
    assert kv_cache(load("t5-base"), step).if_mha == 12 * 2 * 768 * (10 + 20) * 4
    narrow = kv_cache(load("t5-base").with_attention("mqa"), step)
    assert (narrow.total, narrow.if_mha) == (12 * 2 * 64 * 30 * 4, 12 * 2 * 768 * 30 * 4)


def test_fp32_caches_take_twice_the_bytes() -> None:
    cache = kv_cache(load("llama2-7b"), Workload.decode(1, 4096, dtype="fp32"))
    assert cache.total == 2 * 32 * 4096 * 4096 * 4 == 4 * 2**30


def test_weights_that_a_decode_step_reads() -> None:
    # GPT-2: 12 layers of 4 + 8 squares of 768 with their biases (4 + 4 + 1) and two LayerNorms, a
    # last norm, and the tied embedding as the head
    layer = 12 * 768**2 + (4 + 4 + 1) * 768 + 2 * 2 * 768
    assert weights_read(load("gpt2"), Workload.decode(1, 8)) == 12 * layer + 2 * 768 + 50_257 * 768
    # Whisper: the decoder's 32 layers of 1,280: self-attention without a bias on W_k,
    # cross-attention's W_q and W_o with their biases, 8 squares of MLP, three norms; the encoder
    # has already run
    self_attention, cross_attention = 4 * 1280**2 + 3 * 1280, 2 * 1280**2 + 2 * 1280
    layer = self_attention + cross_attention + 8 * 1280**2 + 5 * 1280 + 3 * 2 * 1280
    read = weights_read(load("whisper-large-v3"), Workload.decode(1, 10, source=20))
    assert read == 32 * layer + 2 * 1280 + 51_866 * 1280
    llama = load("llama2-70b")
    step = Workload.decode(1, 4096)
    assert decode_intensity(llama, step).weights == 2 * weights_read(llama, step)


def test_a_step_reads_the_active_parameters_without_the_embedding() -> None:
    model = load("deepseek-v3")
    read = weights_read(model, Workload.decode(1, 4096))
    assert read == params(model).active - 129_280 * 7168


def test_a_step_reads_norms_and_biases_outside_the_layers() -> None:
    model = load("gpt2")
    stack = dataclasses.replace(model.main, embedding_norm=True)
    with_norm_and_bias = dataclasses.replace(
        model, stacks=(stack,), head=Head("lm", tied=True, bias=True)
    )
    step = Workload.decode(1, 8)
    assert weights_read(with_norm_and_bias, step) - weights_read(model, step) == 2 * 768 + 50_257


def test_a_cache_dtype_cannot_be_the_dtype_of_weights() -> None:
    with pytest.raises(AttncalcError, match="q4_0"):
        decode_intensity(load("llama2-7b"), Workload.decode(1, 8, dtype="q4_0"))


def test_a_training_step_is_three_passes() -> None:
    step = Workload.train(2, 64)
    # 2 sequences of 64 tokens: 4 squares of 512, and 64 * 65 / 2 pairs of 4 * 512; recurrent: 8
    # squares
    assert attention_layer_complexity(one_layer(Grouped(8, 8, 64)), step).flops == 3 * 2 * (
        64 * 2 * 4 * 512**2 + 64 * 65 // 2 * 4 * 512
    )
    recurrent = layer_types(one_layer(Grouped(8, 8, 64)), step).recurrent
    assert recurrent.flops == 3 * 2 * 64 * 2 * 2 * 512**2


def test_the_longest_path_between_two_tokens() -> None:
    def path(model: ModelSpec, tokens: int) -> int | None:
        return attention_layer_complexity(model, Workload.prefill(1, tokens)).scores.longest_path

    assert path(load("gemma3-27b"), 4096) == 1  # one full layer is enough
    # a window of 4,096 reaches 4,095 tokens back: from the 8,191st to the first in two
    assert [path(load("mistral-7b-v0.1"), n) for n in (1, 4096, 8191, 8192)] == [1, 1, 2, 3]
    assert path(one_layer(Grouped(8, 8, 64, span=Chunked(16))), 20) is None  # chunks never meet
    assert path(one_layer(Grouped(8, 8, 64, span=Sliding(1))), 20) is None
    assert path(one_layer(Grouped(8, 8, 64, span=Sliding(2))), 20) == 19
    assert (
        attention_layer_complexity(load("gpt2"), Workload.prefill(1, 64)).scores.sequential_steps
        == 1
    )


def test_a_recurrent_layers_flops_are_divided_over_devices() -> None:
    # two squares of 768 at 2 FLOP per parameter, over 2 devices
    whole = layer_types(load("gpt2"), Workload.prefill(1, 1)).recurrent.flops
    assert whole == 2 * 2 * 768**2
    assert layer_types(load("gpt2").shard(2), Workload.prefill(1, 1)).recurrent.flops == whole // 2


def test_sharding_latent_attention_divides_its_heads() -> None:
    with pytest.raises(AttncalcError, match="128 heads"):
        load("deepseek-v3").shard(3)
    with pytest.raises(AttncalcError, match="does not divide"):
        Grouped(12, 3, 16).shard(8)


def test_heads_need_not_add_up_to_d_model() -> None:
    kind = Grouped(5, 5, 7)
    assert params(one_layer(kind, 64)).attention == 4 * 64 * 35


def test_a_prefill_expands_the_latent() -> None:
    kind = Latent(4, 16, 8, 4, 8)
    model_flops = flops(one_layer(kind, 32), Workload.prefill(1, 1))  # type: ignore[arg-type]
    # one token: W_q 32 * 4 * 12, W_kv_a 32 * 20, W_kv_b 16 * 4 * 16, W_o 32 * 32; one pair of 12 +
    # 8 per head
    assert model_flops.projections == 2 * (32 * 48 + 32 * 20 + 16 * 64 + 32 * 32)
    assert model_flops.scores == 2 * 4 * (12 + 8)
