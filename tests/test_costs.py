"""Properties that hold between figures for every model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specs import CONTEXTS, latent, models
from tables import each
from toy import Recurrent

from attncalc import (
    AttncalcError,
    Grouped,
    Head,
    Latent,
    Layers,
    ModelSpec,
    Stack,
    Workload,
    flops,
    kv_cache,
    load,
    params,
)
from attncalc.attention import pairs
from attncalc.cost.intensity import decode_intensity, weights_read
from attncalc.questions.compare.report import compare_variants
from attncalc.questions.kv.report import kv_report
from attncalc.units import DTYPES, dtype
from attncalc.workload import Mask, Run


@given(models(), CONTEXTS, st.integers(1, 3))
def test_per_token_is_what_the_next_token_adds(model: ModelSpec, context: int, batch: int) -> None:
    now = kv_cache(model, Workload.decode(batch, context))
    then = kv_cache(model, Workload.decode(batch, context + 1))
    assert then.total - now.total == batch * now.per_token


@given(models(), CONTEXTS, st.integers(1, 3))
def test_groups_add_up_to_the_total(model: ModelSpec, context: int, batch: int) -> None:
    workload = Workload.prefill(batch, context)
    cache, parameters, model_flops = (
        kv_cache(model, workload),
        params(model),
        flops(model, workload),
    )
    assert cache.total == sum(g.total for g in cache.groups)
    assert cache.total == batch * cache.per_sequence
    assert parameters.attention == sum(value for g in parameters.groups for _, value in g.attention)
    assert (
        model_flops.total
        == model_flops.projections + model_flops.scores + model_flops.mlp + model_flops.head
    )
    assert model_flops.scores <= model_flops.scores_dense


@given(models(), CONTEXTS)
def test_decode_steps_add_up_to_a_prefills_exact_scores(model: ModelSpec, context: int) -> None:
    """MLA's decode steps cost more than its prefill, since they absorb W_kv_b."""
    steps = sum(flops(model, Workload.decode(1, t)).scores for t in range(1, context + 1))
    whole = flops(model, Workload.prefill(1, context)).scores
    if any(isinstance(g.attention, Latent) for g in model.main.layers):
        assert steps >= whole
    else:
        assert steps == whole


@given(models(), CONTEXTS, st.data())
def test_a_prefill_in_two_parts_costs_the_same(
    model: ModelSpec, context: int, data: st.DataObject
) -> None:
    past = data.draw(st.integers(0, context - 1))
    if past and any(isinstance(g.attention, Latent) for g in model.main.layers):
        return
    parts = flops(model, Workload.prefill(1, context, past=past)).scores
    first = flops(model, Workload.prefill(1, past)).scores if past else 0
    assert first + parts == flops(model, Workload.prefill(1, context)).scores


@pytest.mark.parametrize(
    "given_dtypes",
    [{}, {"dtype": "fp32"}, {"kv_dtype": "fp8"}, {"dtype": "fp32", "kv_dtype": "int4"}],
)
def test_reports_use_the_same_cache_dtype(given_dtypes: dict[str, str]) -> None:
    model, workload = load("llama2-7b"), Workload.decode(1, 4096, **given_dtypes)  # type: ignore[arg-type]
    by_kv = {f.name: f.value for f in kv_report(model, workload).figures}["kv_cache"]
    by_compare = {f.name: f.value for f in compare_variants(model, workload).figures}["kv_cache"]
    assert by_kv == by_compare == kv_cache(model, workload).total


def test_dense_scores_of_a_padded_batch_include_padding() -> None:
    model_flops = flops(load("llama2-7b"), Workload.prefill(lengths=(100, 60)))
    # 2 sequences of 100 x 100 pairs; 32 layers of 32 heads * 128, QK and PV
    assert model_flops.scores_dense == 32 * 4 * 32 * 128 * 2 * 100 * 100


@given(latent(), st.integers(2, 100), st.data())
def test_mla_after_a_past_counts_the_cheaper_of_absorbed_and_expanded(
    kind: Latent, context: int, data: st.DataObject
) -> None:
    new = data.draw(st.integers(1, context))
    run, mask = Run(1, new, context), Mask()
    score_flops, visible_pairs = kind.score_flops(run, mask), pairs(kind.span, run, mask)
    absorbed = 2 * kind.n_heads * visible_pairs * (16 + 16 + 4)
    expanded = 2 * kind.n_heads * (visible_pairs * (8 + 4 + 8) + (context - new) * 16 * (8 + 8))
    if new == context:
        assert score_flops == expanded
    else:
        assert score_flops == (absorbed if new == 1 else min(absorbed, expanded))


def test_eight_devices_hold_an_eighth_each_and_all_norms() -> None:
    whole, part = params(load("llama2-70b")), params(load("llama2-70b").shard(8))
    for name in ("attention", "mlp", "head", "embedding"):
        assert 8 * getattr(part, name) == getattr(whole, name)
    assert part.norm == whole.norm


def test_every_device_holds_the_output_bias() -> None:
    whole, part = params(load("gpt2")).attention, params(load("gpt2").shard(2)).attention
    assert 2 * part == whole + 12 * 768


def test_mlas_down_projections_are_replicated() -> None:
    whole, part = (dict(params(load("deepseek-v3").shard(tp)).groups[1].attention) for tp in (1, 8))
    for name in ("W_q_a", "W_kv_a", "q_a_norm", "kv_a_norm"):
        assert part[name] == whole[name]
    for name in ("W_q_b", "W_kv_b", "W_o"):
        assert 8 * part[name] == whole[name]


@pytest.mark.parametrize(("tp", "kv_heads"), [(1, 8), (2, 4), (4, 2), (8, 1), (16, 1), (64, 1)])
def test_kv_heads_are_split_and_then_replicated(tp: int, kv_heads: int) -> None:
    # vLLM: max(1, n_kv_heads // tp) KV heads per device; 80 layers, 4,096 tokens, K and V of 128, 2
    # B
    cache = kv_cache(load("llama2-70b").shard(tp), Workload.decode(1, 4096))
    assert cache.total == 80 * 4096 * 2 * kv_heads * 128 * 2


def test_mlas_latent_is_replicated() -> None:
    whole, part = (
        kv_cache(load("deepseek-v3").shard(tp), Workload.decode(1, 4096)).total for tp in (1, 8)
    )
    assert whole == part == 287_834_112


@pytest.mark.parametrize(
    ("name", "tp"), [("falcon-7b", 2), ("llama2-70b", 3), ("llama2-70b", 128), ("gpt2", 8)]
)
def test_a_tp_that_does_not_divide_the_heads_is_an_error(name: str, tp: int) -> None:
    with pytest.raises(AttncalcError, match=f"--tp {tp}"):
        load(name).shard(tp)


@each(
    ("name", "row"),
    [
        ("fp32", 128 * 4),
        ("fp16", 128 * 2),
        ("bf16", 128 * 2),
        ("fp8", 128),
        # vLLM's int8_per_token_head: an fp32 scale for each head's K and V of a token
        ("int8", 128 + 4),
        ("int4", 64 + 4),  # the same, two elements per byte
        ("fp4", 64 + 8),  # NVFP4: hd / 2 + hd / 16
        ("mxfp4", 64 + 4),  # a scale per 32
        ("q8_0", 34 * 4),  # llama.cpp: 34 B per 32 elements
        ("q4_0", 18 * 4),  # 18 B per 32 elements
        ("q4_1", 20 * 4),  # 16 B of elements, an fp16 scale and an fp16 least
        ("q5_0", 22 * 4),  # 20 B of elements and a scale
        ("q5_1", 24 * 4),
        ("iq4_nl", 18 * 4),
    ],
)
def test_bytes_of_a_row_of_128_in_every_dtype(name: str, row: int) -> None:
    assert dtype(name).row_bytes(128) == row
    # 80 layers * 2 * 8 KV heads: rows per token
    cache = kv_cache(load("llama2-70b"), Workload.decode(1, 4096, kv_dtype=name))
    assert cache.per_token == 80 * 2 * 8 * row
    assert name in DTYPES


@given(models())
def test_mha_caches_at_least_as_much_as_grouped_heads(model: ModelSpec) -> None:
    cache = kv_cache(model, Workload.decode(1, 50))
    if all(isinstance(g.attention, Grouped) for g in model.main.layers):
        assert cache.if_mha >= cache.total
        assert kv_cache(model.with_attention("mha"), Workload.decode(1, 50)).total == cache.if_mha
        assert kv_cache(model.with_attention("mqa"), Workload.decode(1, 50)).total <= cache.total


def test_mla_instead_of_gqa_caches_a_latent_and_a_rotary_key() -> None:
    cache = kv_cache(load("llama2-70b").with_attention("mla:512"), Workload.decode(1, 4096))
    assert cache.total == 80 * 4096 * (512 + 64) * 2


def test_mla_leaves_the_layers_that_attend_to_images() -> None:
    cache = kv_cache(
        load("llama3.2-11b-vision").with_attention("mla:512"), Workload.decode(1, 4096)
    )
    # 32 of the 40 layers attend to text: 512 of latent and 128 / 2 of rotary key, in bf16
    assert int(cache.per_token) == 32 * (512 + 64) * 2


def test_a_decode_step_reads_weights_and_cache_once() -> None:
    model, workload = load("llama2-70b"), Workload.decode(1, 4096)
    # everything but the embedding's table
    assert weights_read(model, workload) == 68_976_648_192 - 32_000 * 8192
    read = decode_intensity(model, workload)
    total = int(read.weights) + int(read.cache)
    assert float(read.per_byte) == int(flops(model, workload).total) / total
    # 64 query heads share 8 KV heads: 8 heads * 2 FLOP for each 2-byte element
    assert float(read.per_cache_byte) == 8.0


def test_a_decode_step_reads_no_encoder_weights() -> None:
    # 12 layers: 4 + 2 matrices of 768 x 768, an MLP of 2 * 768 * 3,072, 3 norms; the last norm; the
    # tied head
    read = weights_read(load("t5-base"), Workload.decode(1, 10, source=20))
    assert read == 12 * (6 * 768**2 + 2 * 768 * 3072 + 3 * 768) + 768 + 768 * 32_128


def test_a_large_batch_reads_every_expert_once() -> None:
    model = load("mixtral-8x7b")
    one_sequence, many_sequences = (
        weights_read(model, Workload.decode(n, 10), "expected") for n in (1, 64)
    )
    expert = 3 * 4096 * 14_336
    # 8 * (3 / 4)^64 experts are missed: 8e-8
    assert many_sequences - one_sequence == 32 * (8 - 2) * expert
    assert one_sequence == params(model).active - 32_000 * 4096


def test_a_mask_option_applies_to_the_decoder() -> None:
    model_flops = flops(
        load("t5-base"), Workload.prefill(1, 20, source=30, mask=Mask("prefix", 10))
    )
    # 12 layers of 12 heads * 64, QK and PV: the encoder's 30 * 30 pairs; 20 causal ones, the upper
    # triangle of 10, and 20 * 30 of the source
    pairs_seen = {"encoder": 30 * 30, "decoder": 20 * 21 // 2 + 10 * 9 // 2 + 20 * 30}
    assert {g.group: g.scores for g in model_flops.groups} == {
        k: 12 * 4 * 12 * 64 * n for k, n in pairs_seen.items()
    }


def test_a_tied_head_still_counts_its_bias() -> None:
    def head(tied: bool) -> int:
        stack = Stack("decoder", (Layers("layers", 1, attention=Grouped(2, 2, 8)),), 16)
        return int(
            params(
                ModelSpec("m", "m", (stack,), vocab_size=11, head=Head("lm", tied, bias=True))
            ).head
        )

    assert (head(True), head(False)) == (11, 11 * 16 + 11)


def test_states_of_a_fixed_size_and_layers_without_a_cache_add_up() -> None:
    layers = (
        Layers("toy", 3, attention=Recurrent(10)),
        Layers("attention", 2, attention=Grouped(4, 4, 8)),
        Layers("reuses", 5, attention=Grouped(4, 4, 8, shares_kv=True)),
    )
    model = ModelSpec("m", "m", (Stack("decoder", layers, 32),), dtype="bf16")
    cache = kv_cache(model, Workload.decode(2, 100))
    # 3 layers * 2 sequences * 10 elements of 4 B whatever the context; 2 layers of 2 * 4 * 8 per
    # token
    assert cache.recurrent_state == 3 * 2 * 10 * 4
    assert cache.total == 240 + 2 * 2 * 100 * 2 * 4 * 8 * 2
    assert flops(model, Workload.prefill(1, 7)).groups[0].scores == 3 * 4 * 7 * 10
