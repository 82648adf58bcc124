"""The roofline: arithmetic of a known model, bounds that no split of the work beats, and the
compute-bound batch.
"""

import dataclasses
from fractions import Fraction

import pytest
from asking import Ask, results
from evaluate import evaluate, text_of
from hypothesis import given
from hypothesis import strategies as st
from specs import CONTEXTS, models
from tables import each

import attncalc
from attncalc import (
    AttncalcError,
    Chunked,
    Grouped,
    Latent,
    Layers,
    Mlp,
    ModelSpec,
    Stack,
    Workload,
    load,
)
from attncalc.attention.indexer import Indexer
from attncalc.attention.picked import Selected
from attncalc.attention.span import Sliding
from attncalc.checkpoint import CheckpointWeights, StoredDtype
from attncalc.config.gpus import gpu
from attncalc.cost.cache import kv_cache
from attncalc.cost.flops import flops
from attncalc.hardware import Gpu
from attncalc.quantity import Ratio
from attncalc.questions.fit.roofline import (
    roofline_facts,
    roofline_figures,
    roofline_notes,
    roofline_tables,
    roofline_terms,
    roofline_variants,
)
from attncalc.serving.cache_read import ServingConfig
from attncalc.serving.request import FitRequest, resolve
from attncalc.serving.roofline import Roofline, Step, roofline
from attncalc.show.lists import wrapped
from attncalc.show.text import table_lines
from attncalc.units import PER_SECOND, SECONDS, dtype, quotient

PEAKS = st.integers(1, 10**6)
BATCHES = st.integers(1, 9)


def slow(peak: int = 1000, bandwidth: int = 10) -> Gpu:
    """A GPU with small numbers."""
    return Gpu("g", "G", "v", 1, 10**9, bandwidth, (("fp16", peak),))


def exactly(value: Ratio | None) -> Fraction:
    assert value is not None
    return Fraction(value.numerator, value.denominator)


def decode(bounds: Roofline) -> Step:
    assert bounds.decode is not None
    return bounds.decode


def test_a_decode_step_of_llama2_70b_on_an_h100_is_memory_bound() -> None:
    """The bytes that the step reads, divided by the bandwidth.

    Weights but for the embedding: 68,976,648,192 - 32,000 * 8,192 = 68,714,504,192 parameters,
    137,429,008,384 B. Cache: 8 sequences * 4,096 tokens * 327,680 B = 10,737,418,240 B.
    Their sum over 3.35e12 B/s is 44.23 ms, and 8 / 0.04423 = 180.9 tokens/s.
    """
    model, workload = load("llama2-70b"), Workload.decode(8, 4096)
    bounds = roofline(model, workload, gpu("h100-80gb"))
    step = decode(bounds)
    assert (step.weights, step.cache) == (137_429_008_384, 10_737_418_240)
    assert exactly(step.seconds) == Fraction(137_429_008_384 + 10_737_418_240, 3_350_000_000_000)
    assert quotient(float(step.seconds), SECONDS) == "44.2 ms"
    assert exactly(bounds.tokens_per_second) == 8 / exactly(step.seconds)
    assert quotient(float(exactly(bounds.tokens_per_second)), PER_SECOND) == "181 tokens/s"
    assert (step.bound_by, bounds.prefill.bound_by) == ("memory", "compute")
    assert step.seconds.formula.text == "(weights + kv_cache) / bandwidth"


def test_prefill_computes_logits_for_the_last_token_only() -> None:
    """The head takes 2 * 8,192 * 32,000 = 524,288,000 FLOP per token, and 4,095 of 4,096 tokens do
    not need it.
    """
    model, workload = load("llama2-70b"), Workload.decode(1, 4096)
    bounds = roofline(model, workload, gpu("h100-80gb"))
    everything = flops(model, Workload.prefill(1, 4096)).total
    assert bounds.prefill.flops == everything - 4095 * 524_288_000
    assert exactly(bounds.prefill.seconds) == Fraction(
        int(bounds.prefill.flops), 989_400_000_000_000
    )


def one_layer(attention: Grouped | Latent, d_model: int = 4, mlp: Mlp | None = None) -> ModelSpec:
    """A model of one layer and nothing else."""
    stack = Stack(
        "decoder",
        (Layers("layers", 1, attention=attention, mlp=mlp, norms=0),),
        d_model,
        final_norm=False,
    )
    return ModelSpec("m", "m", (stack,))


def test_the_compute_bound_batch_by_hand() -> None:
    """A model of one layer with one head: 4 matrices of 4 x 4 are 64 weights, 128 bytes in fp16.

    Per sequence, a step at context 1 takes 2 * 64 + 4 * 4 * 1 = 144 FLOP and reads a K and a V of
    4, 16 bytes.
    With 100 FLOP/s and 20 bytes/s, n sequences are compute-bound if 144 n / 100 >= (128 + 16 n) /
    20: n >= 10.
    With 8 bytes/s, 1.44 n >= 16 + 2 n never holds. Nor does it at a ridge of 144 / 16 = 9
    FLOP/byte.
    """
    model, workload = one_layer(Grouped(1, 1, 4)), Workload.decode(1, 1)
    bounds = roofline(model, workload, slow(100, 20))
    assert (decode(bounds).flops, decode(bounds).weights, decode(bounds).cache) == (144, 128, 16)
    assert bounds.compute_bound_batch == 10
    assert (
        evaluate(
            bounds.compute_bound_batch.formula.substituted.replace("least B", "least T"), {"T": 10}
        )
        == 10
    )
    assert exactly(bounds.limit) == Fraction(144, 16)
    never = roofline(model, workload, slow(100, 8))
    assert never.compute_bound_batch is None
    assert exactly(never.ridge) == Fraction(100, 8) > exactly(never.limit)
    assert roofline(model, workload, slow(900, 100)).compute_bound_batch is None


def test_at_the_ridge_a_step_is_compute_bound() -> None:
    """At batch 10 compute takes 10 * 144 / 100 = 14.4 s, and memory (128 + 160) / 20 = 14.4 s."""
    step = decode(roofline(one_layer(Grouped(1, 1, 4)), Workload.decode(10, 1), slow(100, 20)))
    assert exactly(step.by_compute) == exactly(step.by_memory) == Fraction(144, 10)
    assert step.bound_by == "compute"


def test_no_router_beats_the_bounds_of_a_mixture() -> None:
    """8 experts of 2 * 4 * 6 = 48 weights, 2 per token; the router has 4 * 8 weights, attention 64.

    All tokens may pick the same 2. If they pick at random, batch 2 reads 8 * (1 - (6 / 8)^2) = 3.5
    experts, and batch 3 reads 4.625, on average.
    """
    model = one_layer(Grouped(1, 1, 4), mlp=Mlp(6, n_experts=8, n_experts_per_token=2))
    found = [roofline(model, Workload.decode(batch, 3), slow()) for batch in (1, 2, 3)]
    assert [decode(bounds).weights for bounds in found] == [2 * (96 + 48 * 2)] * 3
    assert [bounds.prefill.weights for bounds in found] == [2 * (96 + 48 * 2)] * 3
    steps = [bounds.decode_expected for bounds in found if bounds.decode_expected]
    assert [step.weights for step in steps] == [2 * 192, 2 * (96 + 168), 2 * (96 + 222)]
    assert found[0].prefill_expected is not None
    assert found[0].prefill_expected.weights == steps[2].weights  # three tokens too
    for bounds, step in zip(found, steps, strict=True):
        assert exactly(decode(bounds).seconds) <= exactly(step.seconds)
        assert exactly(bounds.tokens_per_second) >= exactly(bounds.tokens_per_second_expected)
    dense = roofline(one_layer(Grouped(1, 1, 4)), Workload.decode(3, 5), slow())
    assert (dense.prefill_expected, dense.decode_expected, dense.tokens_per_second_expected) == (
        None,
        None,
        None,
    )


def test_what_the_expected_experts_change_is_no_bound() -> None:
    """No label of a figure, and no header of a table, calls it one."""
    model, device = load("mixtral-8x7b"), gpu("h100-80gb")
    bounds = roofline(model, Workload.decode(4, 4096), device)
    labels = [figure.label for figure in roofline_figures(bounds) if "expected" in figure.name]
    assert len(labels) == 3
    assert not any(word in label for label in labels for word in ("least", "most", "bound"))
    lower, expected = roofline_tables(bounds, Workload.decode(4, 4096))
    assert (lower.columns[0].header, lower.columns[-1].header) == (
        "lower bound",
        "at most\ntokens/s",
    )
    assert (expected.columns[0].header, expected.columns[-1].header) == (
        "expected\nexperts",
        "tokens/s",
    )


def test_a_compute_bound_batch_may_read_only_some_experts() -> None:
    """The same model at context 1, on a GPU on which compute and memory both take one second at
    batch 2.

    A token uses 64 + 32 + 2 * 48 = 192 weights, and takes 2 * 192 + 16 = 400 FLOP: 800 for two.
    Two tokens are expected to pick 3.5 experts: 2 * (96 + 48 * 3.5) + 16 * 2 = 560 bytes. The bound
    reads 2 experts.
    """
    model = one_layer(Grouped(1, 1, 4), mlp=Mlp(6, n_experts=8, n_experts_per_token=2))
    bounds = roofline(model, Workload.decode(2, 1), slow(800, 560))
    assert bounds.decode_expected is not None
    assert (bounds.decode_expected.flops, bounds.decode_expected.read, decode(bounds).read) == (
        800,
        560,
        416,
    )
    assert bounds.compute_bound_batch == 2


def test_all_sequences_are_assumed_as_long_as_the_longest() -> None:
    model = one_layer(Grouped(1, 1, 4))
    padded, full = Workload.decode(lengths=(9, 4, 2)), Workload.decode(3, 9)
    assert roofline(model, padded, slow())[3:] == roofline(model, full, slow())[3:]
    assert "as long as the longest" in " ".join(
        roofline_notes(model, padded, roofline(model, padded, slow()))
    )


def test_the_weights_dtype_decides_bytes_and_peak() -> None:
    """fp8 has 1 byte per weight and runs at 1,978.9 TFLOP/s on an H100; an A100 computes in bf16,
    at 312.

    mxfp4 has half a byte per weight and 1 byte of scale per 32. The head, 32,000 x 8,192, and the
    norms, 161 x 8,192, stay in 2 bytes.
    """
    model, workload = load("llama2-70b"), Workload.decode(1, 4096)
    on_h100 = roofline(model, workload, gpu("h100"), weights_dtype="fp8")
    wide = 32_000 * 8192 + 161 * 8192
    assert decode(on_h100).weights == (68_714_504_192 - wide) + 2 * wide
    assert decode(on_h100).cache == kv_cache(model, workload).total
    assert on_h100.math == ("fp8", 1_978_900_000_000_000)
    assert exactly(on_h100.ridge) == Fraction(1_978_900_000_000_000, 3_350_000_000_000)
    on_a100 = roofline(model, workload, gpu("a100"), weights_dtype="fp8")
    assert on_a100.math == ("bf16", 312_000_000_000_000)
    assert "fp8 weights are multiplied in bf16" in " ".join(
        roofline_notes(model, workload, on_a100)
    )
    packed = decode(roofline(model, workload, gpu("b200"), weights_dtype="mxfp4")).weights
    assert packed == (68_714_504_192 - wide) * 17 // 32 + 2 * wide


def test_a_note_names_the_dtype_in_which_narrow_weights_are_multiplied() -> None:
    model, workload = load("llama3-8b"), Workload.decode(1, 128)
    for name, words in (
        ("mxfp4", "mxfp4 weights are converted and multiplied in bf16 (W4A16)."),
        ("fp8", "fp8 weights are multiplied in fp8 with activations in fp8 (W8A8)."),
        ("q4_0", "q4_0 weights are multiplied in int8 with activations in int8, as in llama.cpp."),
    ):
        assert words in roofline_notes(
            model, workload, roofline(model, workload, gpu("h100"), weights_dtype=name)
        )
    assert not [
        note
        for note in roofline_notes(model, workload, roofline(model, workload, gpu("h100")))
        if "A16" in note
    ]


def with_files(model: ModelSpec, of: str, size: int) -> ModelSpec:
    return dataclasses.replace(
        model, stored=CheckpointWeights(1, 1, (StoredDtype(of, size, size),), size)
    )


def test_quantized_files_decide_bytes_and_peak() -> None:
    """A step reads 8.0 GB less the embedding, 128,256 * 4,096 * 2 B, at fp8's peak. Variants have
    no files.
    """
    model, workload = (
        with_files(load("llama3-8b"), "F8_E4M3", 8_000_000_000),
        Workload.decode(1, 4096),
    )
    bounds = roofline(model, workload, gpu("h100"))
    assert decode(bounds).weights == 8_000_000_000 - 1_050_673_152
    assert bounds.math.dtype == "fp8"
    assert roofline_variants(model, workload, roofline(model, workload, gpu("h100"))) == ((), ())
    in_fp8 = roofline(model, workload, gpu("h100"), weights_dtype="fp8")
    assert roofline_variants(model, workload, in_fp8, "fp8")[1]


def test_decode_context_parallel_devices_read_their_share() -> None:
    """2 KV heads of 8 take 2 * 2 * 8 * 2 B per token, and each of 4 devices reads a quarter of 3 *
    1,000 tokens.

    A recurrent state and a window are whole on every device.
    """
    workload = Workload.decode(3, 1000)
    model = one_layer(Grouped(4, 2, 8))
    whole, quarter = (
        decode(roofline(model, workload, slow(), config=ServingConfig(dcp=n))) for n in (1, 4)
    )
    assert (whole.cache, quarter.cache) == (3 * 1000 * 64, 3 * 250 * 64)
    assert quarter.weights == whole.weights
    window = one_layer(Grouped(4, 2, 8, span=Sliding(100)))
    assert (
        decode(roofline(window, workload, slow(), config=ServingConfig(dcp=4))).cache
        == 3 * 100 * 64
    )
    plain = Latent(1, 8, 4, 4, 4)
    picking = dataclasses.replace(
        plain, index_topk=30, index_n_heads=1, index_head_dim=6, q_lora_rank=4, span=Selected(30)
    )
    # 30 latents of 24 B and 100 keys of 12 B, halved
    shared = roofline(
        one_layer(picking), Workload.decode(2, 100), slow(), config=ServingConfig(dcp=2)
    )
    assert decode(shared).cache == 2 * (30 * 24 + 100 * 12) // 2


def test_k_and_v_are_read_in_their_own_dtypes() -> None:
    """A head of 32 takes 34 B in q8_0 and 18 B in q4_0. K and V may also differ in width."""
    config, workload = (
        ServingConfig(kv_dtype_k=dtype("q8_0"), kv_dtype_v=dtype("q4_0")),
        Workload.decode(3, 100),
    )
    step = decode(roofline(one_layer(Grouped(4, 2, 32)), workload, slow(), config=config))
    assert step.cache == 3 * 100 * 2 * (34 + 18)
    wider_v = decode(
        roofline(one_layer(Grouped(4, 2, 32, d_v=64)), workload, slow(), config=config)
    )
    assert wider_v.cache == 3 * 100 * 2 * (34 + 36)
    k_only = ServingConfig(kv_dtype_k=dtype("q8_0"))  # V has the model's dtype, fp16
    assert decode(
        roofline(one_layer(Grouped(4, 2, 32)), workload, slow(), config=k_only)
    ).cache == 3 * 100 * 2 * (34 + 64)
    text_of(step.cache)


def test_stages_work_on_a_micro_batch_each() -> None:
    """64 weights take 128 B; a sequence at context 1 takes 16 B and 144 FLOP.

    8 sequences over 4 stages are micro-batches of 2: 128 + 32 B at 10 B/s take 16 s, in which all 8
    get a token.
    As one batch they take 25.6 s. 3 sequences are micro-batches of 1.
    """
    model, device = one_layer(Grouped(1, 1, 4)), slow(1000, 10)
    bounds = roofline(model, Workload.decode(8, 1), device, config=ServingConfig(stages=4))
    assert exactly(decode(bounds).seconds) == 16
    assert exactly(bounds.tokens_per_second) == Fraction(8, 16)
    assert exactly(decode(roofline(model, Workload.decode(8, 1), device)).seconds) == Fraction(
        256, 10
    )
    few = roofline(model, Workload.decode(3, 1), device, config=ServingConfig(stages=4))
    assert exactly(few.tokens_per_second) == 3 / Fraction(144, 10)
    notes = " ".join(roofline_notes(model, Workload.decode(8, 1), bounds))
    assert (
        "4 stages: a decode step is split into as many micro-batches, of 2 sequences each" in notes
    )


def test_a_prefill_over_stages_shares_its_flops_and_cache() -> None:
    model, workload = one_layer(Grouped(1, 1, 4)), Workload.decode(8, 16)
    one, four = (
        roofline(model, workload, slow(), config=ServingConfig(stages=n)).prefill for n in (1, 4)
    )
    assert (four.flops, four.cache, four.weights) == (one.flops // 4, one.cache // 4, one.weights)
    assert exactly(four.by_compute) == exactly(one.by_compute) / 4


def test_each_stage_needs_a_compute_bound_batch() -> None:
    """One device needs 10 sequences, as above, so 4 stages need 40. With 39 a micro-batch is
    memory-bound.
    """
    model, config = one_layer(Grouped(1, 1, 4)), ServingConfig(stages=4)
    bounds = roofline(model, Workload.decode(1, 1), slow(100, 20), config=config)
    assert bounds.compute_bound_batch == 40
    for batch, bound in ((40, "compute"), (39, "memory")):
        at = roofline(model, Workload.decode(batch, 1), slow(100, 20), config=config)
        assert decode(at).bound_by == bound


@given(models(), st.integers(1, 40), CONTEXTS, PEAKS, PEAKS, st.integers(1, 8), st.integers(1, 12))
def test_no_split_of_a_batch_into_micro_batches_is_faster(
    model: ModelSpec, batch: int, context: int, peak: int, bandwidth: int, stages: int, cuts: int
) -> None:
    """Lower bound of a step with `cuts` micro-batches over equal stages.

    The largest micro-batch passes all stages, and each stage processes all micro-batches.
    """
    device, cuts = slow(peak, bandwidth), min(cuts, batch)
    bound = roofline(
        model, Workload.decode(batch, context), device, config=ServingConfig(stages=stages)
    )
    sizes = [batch // cuts + (i < batch % cuts) for i in range(cuts)]
    of = {
        n: exactly(decode(roofline(model, Workload.decode(n, context), device)).seconds)
        for n in set(sizes)
    }
    assert exactly(decode(bound).seconds) <= max(of[sizes[0]], sum(of[n] for n in sizes) / stages)


def test_drafts_leave_tokens_per_second_without_a_bound() -> None:
    model, workload, config = load("llama3-8b"), Workload.decode(4, 1024), ServingConfig(drafts=3)
    bounds = roofline(model, workload, gpu("h100"), config=config)
    assert bounds.tokens_per_second is None
    assert decode(bounds).seconds == decode(roofline(model, workload, gpu("h100"))).seconds
    assert "a step verifies 3 drafted tokens per sequence" in " ".join(
        roofline_notes(model, workload, bounds)
    )
    (steps,), (others,) = (
        roofline_tables(bounds, workload),
        roofline_variants(model, workload, bounds)[0],
    )
    assert steps.rows[1][-1] == "-" != steps.rows[0][-1]
    assert {row[2] for row in others.rows} == {"-"}


def test_engine_args_reach_the_roofline() -> None:
    model, workload = load("llama3-8b"), Workload.decode(1, 4096)
    vllm = FitRequest(
        model, workload, gpu=gpu("h100"), gpus=8, pp=2, dcp=4, engine_args={"speculative_tokens": 3}
    )
    bf16 = dtype("bf16")
    assert ServingConfig.of(resolve(vllm)) == ServingConfig(2, 4, bf16, bf16, drafts=3)
    llamacpp = FitRequest(
        model, workload, "llamacpp", gpu=gpu("h100"), gpus=3, engine_args={"kv_dtype_k": "q8_0"}
    )
    expected = ServingConfig(
        stages=3, kv_dtype_k=dtype("q8_0"), kv_dtype_v=dtype("f16"), state_dtype=dtype("fp32")
    )
    assert ServingConfig.of(resolve(llamacpp)) == expected


def test_figures_without_a_gpu_have_the_same_names_and_no_numbers() -> None:
    bounds = roofline(load("llama3-8b"), Workload.decode(4, 1024), gpu("h100"))
    of = [(f.name, f.label, f.unit) for f in roofline_figures(bounds)]
    assert of == [(f.name, f.label, f.unit) for f in roofline_figures(None)]
    assert {f.quantity for f in roofline_figures(None)} == {None}


def test_a_dtype_that_the_gpu_lacks_is_an_error() -> None:
    with pytest.raises(AttncalcError, match="T4 has no published FLOP/s for bf16"):
        roofline(load("llama3-8b"), Workload.decode(1, 128), gpu("t4"))


def test_keys_that_an_indexer_does_not_pick_are_not_read() -> None:
    """A latent of 8 + 4 elements takes 24 B per token; 30 of 100 are picked. All indexer keys, 6
    wide, are read.
    """
    plain = Latent(1, 8, 4, 4, 4)
    picking = dataclasses.replace(
        plain, index_topk=30, index_n_heads=1, index_head_dim=6, q_lora_rank=4, span=Selected(30)
    )
    assert picking.cache()[-1] == Indexer(1, 6).cache()
    workload = Workload.decode(2, 100)
    assert decode(roofline(one_layer(plain), workload, slow())).cache == 2 * 100 * 24
    bounds = roofline(one_layer(picking), workload, slow())
    assert decode(bounds).cache == 2 * (30 * 24 + 100 * 12)
    # a prefill writes all of it
    assert bounds.prefill.cache == kv_cache(one_layer(picking), workload).total


def test_of_chunked_attention_only_the_current_chunk_is_read() -> None:
    """With chunks of 4, the 5th token sees only itself. 3 layers have 2 KV heads of 8: 2 * 2 * 8
    elements of 2 B.
    """
    attention = Grouped(4, 2, 8, span=Chunked(4))
    stack = Stack("decoder", (Layers("layers", 3, attention=attention),), 32)
    model = ModelSpec("m", "m", (stack,))
    assert decode(roofline(model, Workload.decode(7, 5), slow())).cache == 7 * 3 * 2 * 2 * 8 * 2
    assert decode(roofline(model, Workload.decode(7, 8), slow())).cache == 4 * 7 * 3 * 2 * 2 * 8 * 2


def test_an_encoder_has_no_decode_step() -> None:
    bounds = roofline(load("bert-base"), Workload.prefill(4, 512, dtype="fp16"), gpu("t4"))
    assert (bounds.decode, bounds.tokens_per_second, bounds.compute_bound_batch, bounds.limit) == (
        None,
    ) * 4
    assert bounds.prefill.flops == flops(load("bert-base"), Workload.prefill(4, 512)).total
    assert bounds.prefill.cache == 0
    assert roofline_variants(load("bert-base"), Workload.prefill(4, 512, dtype="fp16"), bounds) == (
        (),
        (),
    )


@given(models(), BATCHES, CONTEXTS, PEAKS, PEAKS)
def test_a_bound_is_the_longer_of_compute_and_memory_time(
    model: ModelSpec, batch: int, context: int, peak: int, bandwidth: int
) -> None:
    bounds = roofline(model, Workload.decode(batch, context), slow(peak, bandwidth))
    for step in (bounds.prefill, decode(bounds)):
        times = Fraction(int(step.flops), peak), Fraction(int(step.read), bandwidth)
        assert exactly(step.seconds) == max(times)
        assert step.bound_by == ("memory" if times[1] > times[0] else "compute")
        assert step.read == step.weights + step.cache
    assert exactly(bounds.tokens_per_second) * exactly(decode(bounds).seconds) == batch


@given(models(), BATCHES, CONTEXTS, PEAKS, PEAKS, st.integers(0, 10**6))
def test_a_faster_gpu_is_never_slower(
    model: ModelSpec, batch: int, context: int, peak: int, bandwidth: int, more: int
) -> None:
    workload = Workload.decode(batch, context)
    base = roofline(model, workload, slow(peak, bandwidth))
    for faster in (slow(peak + more, bandwidth), slow(peak, bandwidth + more)):
        bounds = roofline(model, workload, faster)
        assert exactly(bounds.prefill.seconds) <= exactly(base.prefill.seconds)
        assert exactly(decode(bounds).seconds) <= exactly(decode(base).seconds)


MOE = st.sampled_from(
    [
        None,
        Mlp(6),
        Mlp(6, n_experts=8, n_experts_per_token=2),
        Mlp(40, n_experts=64, n_experts_per_token=3),
    ]
)


@given(models(), MOE, CONTEXTS, st.integers(1, 300))
def test_the_compute_bound_batch_is_the_smallest(
    model: ModelSpec, mlp: Mlp | None, context: int, ridge: int
) -> None:
    """A batch smaller by one is memory-bound. If there is no such batch, a batch of a billion is
    memory-bound.
    """
    stack = dataclasses.replace(
        model.main, layers=tuple(dataclasses.replace(g, mlp=mlp) for g in model.main.layers)
    )
    model = dataclasses.replace(model, stacks=(stack,))
    device = slow(ridge, 1)
    batch = roofline(model, Workload.decode(1, context), device).compute_bound_batch

    def bound(at: int) -> str:
        found = roofline(model, Workload.decode(at, context), device)
        return (found.decode_expected or decode(found)).bound_by

    if batch is None:
        assert bound(10**9) == "memory"
        return
    assert bound(int(batch)) == "compute"
    assert batch == 1 or bound(int(batch) - 1) == "memory"
    text_of(batch)


Q8, Q4 = dtype("q8_0"), dtype("q4_0")
SERVED = st.sampled_from(
    [
        ServingConfig(),
        ServingConfig(stages=3),
        ServingConfig(dcp=2, drafts=1),
        ServingConfig(2, 2, Q8, Q4),
        ServingConfig(kv_dtype_k=dtype("fp32")),
    ]
)
PACKED = st.sampled_from([None, "fp8", "int8", "q4_0", "fp4"])


@given(models(), BATCHES, CONTEXTS, PEAKS, PEAKS, SERVED, PACKED, st.booleans())
def test_every_formula_gives_its_figure(
    model: ModelSpec,
    batch: int,
    context: int,
    peak: int,
    bandwidth: int,
    config: ServingConfig,
    packed: str | None,
    files: bool,
) -> None:
    model = with_files(model, "F8_E4M3", 5000) if files else model
    workload = Workload.decode(batch, context)
    bounds = roofline(model, workload, slow(peak, bandwidth), weights_dtype=packed, config=config)
    for figure in (*roofline_figures(bounds), *roofline_terms(bounds)):
        if figure.quantity is not None:
            text_of(figure.quantity)


def test_figures_keep_their_names_and_labels_name_a_bound() -> None:
    model, workload = load("llama3-8b").shard(2), Workload.decode(4, 1024)
    bounds = roofline(model, workload, gpu("h100"))
    figures = {figure.name: figure for figure in roofline_figures(bounds)}
    assert set(figures) >= {
        "prefill_time_bound",
        "decode_time_bound",
        "decode_tokens_per_second_bound",
        "decode_compute_bound_batch",
    }
    for name in ("prefill_time_bound", "decode_time_bound"):
        assert "at least" in figures[name].label
        assert figures[name].unit == "s"
    assert "at most" in figures["decode_tokens_per_second_bound"].label
    more = roofline_facts(bounds)
    assert (more["prefill_bound_by"], more["decode_bound_by"], more["gpu"]) == (
        "compute",
        "memory",
        "h100-80gb",
    )
    notes = " ".join(roofline_notes(model, workload, bounds))
    assert "without the communication between the 2 devices" in notes
    assert (
        f"At a context of {workload.context:,} tokens decode is memory-bound at every batch"
        in notes
    )


def test_mha_gqa_mqa_and_mla_are_compared() -> None:
    """Fewer KV heads read less, so that no step is slower, and only MQA becomes compute-bound.

    The only GQA in the table is the released one.
    """
    model, workload = load("llama2-70b"), Workload.decode(64, 4096)
    (table,), layers = roofline_variants(model, workload, roofline(model, workload, gpu("a100")))
    names = [row[0] for row in table.rows]
    assert names == ["MHA", "GQA-8 *", "MQA", "MLA-512"]
    assert [facts["name"] for facts, _ in layers if facts["released"]] == ["GQA-8"]
    steps = [
        figure for _, figures in layers for figure in figures if figure.name == "decode_time_bound"
    ]
    seconds = [exactly(figure.quantity) for figure in steps if isinstance(figure.quantity, Ratio)]
    assert seconds[:3] == sorted(seconds[:3], reverse=True)
    assert table.rows[0][4] == "never"
    assert table.rows[2][4].startswith("batch ")


@pytest.mark.parametrize(
    "name", ["llama3-70b", "deepseek-v3", "gpt-oss-20b", "gemma3-27b", "t5-base", "bert-base"]
)
def test_tables_and_notes_fit_the_screen(name: str) -> None:
    model = load(name)
    source = 512 if model.encoder else None
    make = Workload.decode if model.main.has_cache else Workload.prefill
    workload = make(10_000, model.max_context or 512, source=source, dtype="fp16")
    bounds = roofline(model, workload, gpu("t4"))
    tables = (*roofline_tables(bounds, workload), *roofline_variants(model, workload, bounds)[0])
    lines = [line for table in tables for line in table_lines(table)]
    lines += [line for note in roofline_notes(model, workload, bounds) for line in wrapped(note)]
    assert lines
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (4.8894, SECONDS, "4.89 s"),
        (0.009, SECONDS, "9.00 ms"),
        (0.0123, SECONDS, "12.3 ms"),
        (0.000649, SECONDS, "649 us"),
        (1e-9, SECONDS, "0.00100 us"),
        (1234.6, SECONDS, "1,235 s"),
        (999.7, PER_SECOND, "1,000 tokens/s"),
        (180.9, PER_SECOND, "181 tokens/s"),
    ],
)
def test_ratios_with_a_unit_have_three_digits(value: float, unit: str, text: str) -> None:
    assert quotient(value, unit) == text


def test_the_bounds_of_users_are_those_of_a_prompt_and_of_their_average_length(ask: Ask) -> None:
    """4,096 + 1,024 / 2 = 4,608 tokens on average, with as many requests as run then."""
    asked = (
        "fit",
        "qwen3-8b",
        "--gpu",
        "h100",
        "-c",
        "32K",
        "--prompt",
        "4K",
        "--output-len",
        "1K",
    )
    found = results(ask(*asked, "--json"))
    running = found["concurrent_average"]
    prefill = results(ask("fit", "qwen3-8b", "--gpu", "h100", "-c", "4096", "--json"))
    decode = results(
        ask("fit", "qwen3-8b", "--gpu", "h100", "-c", "4608", "-b", str(running), "--json")
    )
    assert found["prefill_time_bound"] == prefill["prefill_time_bound"]
    assert found["decode_time_bound"] == decode["decode_time_bound"]
    screen = " ".join(ask(*asked, "--roofline").out.split())
    assert (
        f"one prompt of 4,096 tokens without a cached prefix, and a decode step has {running} "
        "requests" in screen
    )
    given = ask(*asked, "-b", "8", "--json").document["roofline"]
    sizes = [
        given[name]
        for name in ("prefill_batch", "prefill_context", "decode_batch", "decode_context")
    ]
    assert sizes == [1, 4096, 8, 4608]
    (row,) = attncalc.sweep(
        "qwen3-8b",
        gpu="h100",
        batch=8,
        context="32K",
        prompt="4K",
        output="1K",
        columns="decode_time_bound",
    )
    bounds = attncalc.roofline(
        "qwen3-8b", gpu="h100", batch=8, context="32K", prompt="4K", output="1K"
    )
    assert bounds.decode is not None
    assert row["decode_time_bound"] == float(bounds.decode.seconds)


@each(
    ("command", "is_said"),
    [
        ("llama3-70b --gpu 4090 --weights-dtype q4_k_m -ngl 40", True),
        ("llama3-70b --gpu 4090 --gpus 4 --weights-dtype q4_k_m -ngl 99", False),
        ("gpt-oss-20b --gpu 4090 --n-cpu-moe 4", True),
        ("gpt-oss-20b --gpu 4090", False),
    ],
)
def test_a_decode_step_names_what_it_reads_on_the_host(
    ask: Ask, command: str, is_said: bool
) -> None:
    out = " ".join(
        ask("fit", *command.split(), "--engine", "llamacpp", "-c", "4K", "--roofline").out.split()
    )
    assert ("in host memory at 89.6 GB/s, assumed (--ram-bandwidth)" in out) == is_said


# Llama 3 8B in bf16: W_q and W_o, W_k and W_v, three matrices of the MLP, two norms; 8 x 128 rows
# of K and of V
LAYER = 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096)
OUTPUT = 2 * (128256 * 4096 + 4096)
CACHED = 2 * 8 * 128 * 2 * 4096
RTX_4090 = 1_008_000_000_000


@each(
    ("options", "on_host", "on_gpu"),
    [
        # -ngl 17 are 16 layers and the output on the GPU, and 16 layers on the host
        (["-ngl", "17"], 16 * (LAYER + CACHED), 16 * (LAYER + CACHED) + OUTPUT),
        (["--no-kv-offload"], 32 * CACHED, 32 * LAYER + OUTPUT),
    ],
)
def test_a_decode_step_reads_the_host_at_the_speed_of_its_memory(
    options: list[str], on_host: int, on_gpu: int, ask: Ask
) -> None:
    model = (
        "fit",
        "llama3-8b",
        "--engine",
        "llamacpp",
        "--gpu",
        "rtx-4090",
        "-c",
        "4096",
        "--weights-dtype",
        "bf16",
    )
    figures = results(ask(*model, *options, "--ram-bandwidth", "50GB", "--json"))
    assert gpu("rtx-4090").bandwidth == RTX_4090
    seconds = on_host / 50e9 + on_gpu / RTX_4090
    # the host has the last norm too
    assert figures["decode_time_bound"] == pytest.approx(seconds, rel=1e-4)
    assert figures["decode_tokens_per_second_bound"] == pytest.approx(1 / seconds, rel=1e-4)
    assert figures["decode_compute_bound_batch"] is None


def test_experts_on_the_host_are_read_there(ask: Ask) -> None:
    # gpt-oss-20b: 4 of 32 experts of 3 x 2,880 x 2,880 weights per layer and token
    model = (
        "fit",
        "gpt-oss-20b",
        "--engine",
        "llamacpp",
        "--gpu",
        "rtx-4090",
        "-c",
        "4096",
        "--json",
    )
    on_gpu, on_host = (
        results(ask(*model, *options))["decode_time_bound"] for options in ([], ["--cpu-moe"])
    )
    assert on_host > 3 * on_gpu


def test_unified_memory_has_one_speed(ask: Ask) -> None:
    model = ("fit", "llama3-8b", "--gpu", "m4-max-64gb", "-c", "4096", "--json")
    whole, half = (
        results(ask(*model, *options))["decode_time_bound"] for options in ([], ["-ngl", "17"])
    )
    assert half == pytest.approx(whole, rel=1e-4)


def test_speed_of_what_does_not_fit_is_a_condition(ask: Ask) -> None:
    # 70.55 billion parameters in bf16 would be read at 3,352 GB/s, 23.7 steps a second; an H100 has
    # 80 GB
    answer = ask("fit", "llama3.1-70b", "--gpu", "h100", "--roofline", "-c", "1024").out
    assert answer.startswith("DOES NOT FIT")
    assert "\nIf it fitted: at most 24 tokens/s" in answer


def test_speed_on_a_desktop_has_the_layers_on_the_host_that_do_not_fit(ask: Ask) -> None:
    # 17.57 GiB of 39 are read in host memory at 89.6 GB/s, 211 ms; the rest on an RTX 4090 at 1,008
    # GB/s, 23 ms
    answer = ask("fit", "llama3.1-70b:q4_k_m", "--gpu", "rtx-4090", "--roofline", "-c", "2048").out
    assert answer.startswith("At most 4.3 tokens/s for one request.")
    assert "--n-gpu-layers 45 is assumed" in answer
