"""The steps of the roofline of a model of one layer, each counted by hand, with the formulas that
it prints.
"""

import dataclasses
from fractions import Fraction
from typing import Any

import pytest
from evaluate import text_of

from attncalc import (
    Chunked,
    Grouped,
    Head,
    Latent,
    Layers,
    Mlp,
    ModelSpec,
    Sliding,
    Stack,
    Workload,
    load,
)
from attncalc.attention import CacheSpec
from attncalc.attention.picked import Selected
from attncalc.config.gpus import gpu
from attncalc.cost.cache import kv_cache
from attncalc.hardware import Gpu
from attncalc.quantity import Quantity
from attncalc.serving.cache_read import ONE_DEVICE, ServingConfig, cache_read
from attncalc.serving.request import FitRequest, resolve
from attncalc.serving.roofline import Roofline, Step, roofline
from attncalc.units import dtype
from attncalc.workload import Mask

FP8, Q8, F16, BF16 = dtype("fp8"), dtype("q8_0"), dtype("f16"), dtype("bf16")
F32 = dtype("fp32")
# 64 weights in four matrices of 4 x 4; 16 bytes of cache for a token, and 16 FLOP for a key.
PLAIN = Grouped(1, 1, 4)
# 48 weights in each of 8 experts, 32 in the router.
MIXTURE = Mlp(6, n_experts=8, n_experts_per_token=2)


def one_layer(
    mlp: Mlp | None = None, attention: Grouped | Latent = PLAIN, **fields: Any
) -> ModelSpec:
    stack = Stack(
        "decoder",
        (Layers("layers", 1, attention=attention, mlp=mlp, norms=0),),
        4,
        final_norm=False,
    )
    return ModelSpec("m", "m", (stack,), **fields)


def bounds(
    of: ModelSpec, peak: int, bandwidth: int, batch: int = 1, context: int = 1, **config: Any
) -> Roofline:
    device = Gpu("g", "G", "v", 1, 10**9, bandwidth, (("fp16", peak),))
    return roofline(of, Workload.decode(batch, context), device, config=ServingConfig(**config))


def decode(found: Roofline) -> Step:
    assert found.decode is not None
    return found.decode


# Steps


def test_every_token_of_a_prefill_picks_experts() -> None:
    """Each token picks 2 of 64: one layer reads 64 (1 - (62 / 64)^n) for n tokens, on average."""
    many = Mlp(6, n_experts=64, n_experts_per_token=2)
    for batch, context in ((1, 1), (3, 5), (5, 3), (9, 9), (1000, 1000)):
        found = bounds(one_layer(many), 10, 10, batch, context)
        assert found.prefill.weights == 2 * (64 + 4 * 64 + 48 * 2)
        assert found.prefill_expected is not None
        experts = 64 * (1 - (62 / 64) ** (batch * context))
        assert int(found.prefill_expected.weights) == pytest.approx(
            2 * (64 + 4 * 64 + 48 * experts), abs=2
        )


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_stages_divide_the_work_of_a_prefill(stages: int) -> None:
    """5 sequences of 7 tokens: 2 FLOP for each of 64 weights, and 16 for each of 28 pairs; 16 bytes
    of cache each.
    """
    prefill = bounds(one_layer(), 10, 10, 5, 7, stages=stages).prefill
    everything, cache = 5 * (2 * 64 * 7 + 16 * 28), 5 * 7 * 16
    assert (prefill.flops, prefill.cache, prefill.weights) == (
        everything // stages,
        cache // stages,
        128,
    )
    for figure, name in ((prefill.flops, "flops_all"), (prefill.cache, "kv_cache_all")):
        if stages > 1:
            assert figure.formula.text == f"{name} // stages"
        else:
            assert "stages" not in figure.formula.text


def test_a_prefill_computes_the_logits_of_each_sequences_last_token() -> None:
    """2 sequences of 3 tokens; 2 FLOP for each of the head's 4 x 10 weights."""
    prefill = bounds(one_layer(vocab_size=10, head=Head("lm")), 10, 10, 2, 3).prefill
    assert prefill.flops == 2 * (2 * 64 * 3 + 16 * 6) + 2 * 2 * 40


@pytest.mark.parametrize(
    ("batch", "stages", "micro"), [(1, 1, 1), (8, 1, 8), (8, 4, 2), (7, 4, 1), (3, 4, 1)]
)
def test_a_micro_batch_is_a_stages_share_of_the_batch(batch: int, stages: int, micro: int) -> None:
    found = bounds(one_layer(), 10, 10, batch, stages=stages)
    assert found.micro_batch == micro
    assert decode(found).flops == micro * (2 * 64 + 16)


@pytest.mark.parametrize(
    ("peak", "bandwidth", "bound"),
    # 2 sequences take 288 FLOP and read 160 bytes
    [
        (288, 160, "compute"),
        (287, 160, "compute"),
        (289, 160, "memory"),
        (288, 159, "memory"),
        (288, 161, "compute"),
    ],
)
def test_the_longer_of_both_times_bounds_a_step(peak: int, bandwidth: int, bound: str) -> None:
    found = bounds(one_layer(), peak, bandwidth, 2)
    step = decode(found)
    assert (step.flops, step.read, step.bound_by) == (288, 160, bound)
    longest = max(Fraction(288, peak), Fraction(160, bandwidth))
    assert Fraction(step.seconds.numerator, step.seconds.denominator) == longest
    assert Fraction(step.intensity.numerator, step.intensity.denominator) == Fraction(288, 160)
    speed = found.tokens_per_second
    assert speed is not None
    assert Fraction(speed.numerator, speed.denominator) == 2 / longest
    assert speed.formula.text == (
        "B * peak / flops" if bound == "compute" else "B * bandwidth / (weights + kv_cache)"
    )
    # of drafts an unknown number is accepted
    assert bounds(one_layer(), peak, bandwidth, 2, drafts=1).tokens_per_second is None


def test_a_steps_flops_are_those_of_all_parts() -> None:
    """64 weights of attention, 32 of the router and two experts of 48; a head of 4 x 10; 16 for 7
    keys.
    """
    found = bounds(one_layer(MIXTURE, vocab_size=10, head=Head("lm")), 10, 10, 1, 7)
    assert decode(found).flops == 2 * (64 + 32 + 2 * 48 + 40) + 16 * 7
    assert found.prefill.flops == 7 * 2 * (64 + 32 + 2 * 48) + 16 * 28 + 2 * 40
    assert found.prefill.flops.formula.text == "flops_layers + flops_head"


# The compute-bound batch


def batch_of(found: Roofline) -> Quantity:
    assert found.compute_bound_batch is not None
    text_of(found.compute_bound_batch)
    return found.compute_bound_batch


@pytest.mark.parametrize(
    ("peak", "bandwidth", "smallest"),
    # 144 n / peak >= (128 + 16 n) / bandwidth
    [
        (100, 20, 10),  # 2880 n >= 12800 + 1600 n: n >= 10
        (101, 20, 11),  # 2880 n >= 12928 + 1616 n: n >= 10.2
        (1, 1, 1),  # 144 n >= 128 + 16 n: n >= 1
        (9, 1, None),  # 144 n >= 1152 + 144 n never
        (10, 1, None),
        (899, 100, 7192),  # 14400 n >= 115072 + 14384 n: n >= 7192
    ],
)
def test_the_compute_bound_batch_of_a_dense_model(
    peak: int, bandwidth: int, smallest: int | None
) -> None:
    for batch in (1, 3):  # of the workload: it does not matter
        found = bounds(one_layer(), peak, bandwidth, batch)
        if smallest is None:
            assert found.compute_bound_batch is None
            continue
        least = batch_of(found)
        assert least == smallest
        assert (
            least.formula.text
            == "least B where flops_at_B * bandwidth > bytes_read_at_B * peak - 1"
        )


@pytest.mark.parametrize(
    ("peak", "bandwidth", "smallest"),
    # 400 n / peak >= (192 + 96 e + 16 n) / bandwidth with e = 8 (1 - (6 / 8)^n) experts: 2, 3.5,
    # 4.625, ...
    [
        (800, 560, 2),  # 1: 0.5 < 400 / 560; 2: 1 = 560 / 560
        (800, 559, 3),
        (1, 1, 1),  # 400 >= 400
        (401, 400, 2),  # 2: 800 / 401 >= 560 / 400
        (400, 56, 24),  # e is almost 8: n >= (960 + 16 n) / 56, so 40 n >= 960
    ],
)
def test_the_compute_bound_batch_of_a_mixture_counts_the_experts_that_are_read(
    peak: int, bandwidth: int, smallest: int
) -> None:
    assert batch_of(bounds(one_layer(MIXTURE), peak, bandwidth)) == smallest


def test_a_gain_of_one_is_enough_for_a_compute_bound_batch() -> None:
    """A latent of 8 + 5 elements in fp8 is 13 bytes: F bandwidth - 13 peak = 1 has a solution for
    any F.
    """
    of = one_layer(attention=Latent(1, 8, 4, 5, 4))
    flops = int(decode(bounds(of, 1, 1, kv_dtype_k=FP8)).flops)
    bandwidth = pow(flops, -1, 13)
    peak = (flops * bandwidth - 1) // 13
    found = bounds(of, peak, bandwidth, kv_dtype_k=FP8)
    assert (decode(found).cache, flops * bandwidth - 13 * peak) == (13, 1)
    # n >= weights * peak
    assert batch_of(found) == decode(found).weights * peak
    assert bounds(of, peak + 1, bandwidth, kv_dtype_k=FP8).compute_bound_batch is None


def test_layers_without_an_mlp_and_dense_ones_are_counted_beside_a_mixture() -> None:
    """Two more layers of 64 weights, and a dense MLP of 4 x 6 twice: 3 * 64 + 32 + 48 + 48 e
    weights.
    """
    groups = tuple(
        Layers(name, 1, attention=PLAIN, mlp=mlp, norms=0)
        for name, mlp in (("plain", None), ("dense", Mlp(6)), ("experts", MIXTURE))
    )
    of = ModelSpec("m", "m", (Stack("decoder", groups, 4, final_norm=False),))
    # FLOP: 2 * (192 + 32 + 48 + 96) + 3 * 16 = 784; bytes of one sequence: 2 * 368 + 48 = 784
    assert batch_of(bounds(of, 1, 1)) == 1
    # two are expected to read 2 * (272 + 48 * 3.5) + 96 = 976 bytes, and take 1568 FLOP
    assert batch_of(bounds(of, 1568, 976)) == 2
    assert batch_of(bounds(of, 1568, 975)) == 3


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_every_stage_needs_a_compute_bound_batch(stages: int) -> None:
    found = bounds(one_layer(), 100, 20, stages=stages)
    assert found.compute_bound_batch == 10 * stages
    assert found.compute_bound_batch is not None
    assert ("stages" in found.compute_bound_batch.formula.text) == (stages > 1)


def test_limits_are_only_searched_if_asked_for() -> None:
    device = Gpu("g", "G", "v", 1, 10**9, 20, (("fp16", 100),))
    found = roofline(one_layer(), Workload.decode(1, 1), device, with_limits=False)
    assert (found.compute_bound_batch, found.limit) == (None, None)
    assert decode(found).flops == 144


# The bytes of cache that a step reads


INDEXER = frozenset({"indexer"})


def test_an_indexers_keys_may_be_whole() -> None:
    """SGLang: 3 layers of 24 B of a latent, half of them here, and 12 B of an indexer's key, all of
    them.
    """
    of = picking(3)
    written = cache_read(of, Workload.prefill(2, 100), ServingConfig(dcp=2, whole=INDEXER))
    assert written == 3 * 2 * 100 * (24 // 2 + 12)


def test_one_device_is_the_default() -> None:
    assert ONE_DEVICE == ServingConfig() == (1, 1, None, None, 0, frozenset(), None)


@pytest.mark.parametrize(
    ("engine", "fields", "config"),
    [
        ("vllm", {"tp": 4, "pp": 2, "dcp": 2}, ServingConfig(2, 2, BF16, BF16)),
        (
            "vllm",
            {"tp": 2, "engine_args": {"speculative_tokens": 3}},
            ServingConfig(1, 1, BF16, BF16, drafts=3),
        ),
        # a GPU of SGLang has the heads of its group: 4 of 8 for half of the tokens, or 1 for half
        # of them
        ("sglang", {"tp": 4, "dcp": 2}, ServingConfig(1, 1, BF16, BF16, whole=INDEXER)),
        ("sglang", {"tp": 16, "dcp": 2}, ServingConfig(1, 2, BF16, BF16, whole=INDEXER)),
        # llama.cpp gives each GPU whole layers
        (
            "llamacpp",
            {"gpus": 3, "engine_args": {"kv_dtype_k": "q8_0"}},
            ServingConfig(3, 1, Q8, F16, state_dtype=F32),
        ),
        (
            "llamacpp",
            {"gpus": 3, "engine_args": {"kv_dtype_v": "q8_0"}},
            ServingConfig(3, 1, F16, Q8, state_dtype=F32),
        ),
    ],
)
def test_the_settings_are_those_of_a_request(
    engine: str, fields: dict[str, Any], config: ServingConfig
) -> None:
    asked = FitRequest(
        load("llama3-8b"), Workload.decode(1, 100), engine, gpu=gpu("h100-80gb"), **fields
    )
    assert ServingConfig.of(resolve(asked)) == config


SPEC = CacheSpec("kv", 2, 8)


@pytest.mark.parametrize(
    ("dcp", "spec", "divided"),
    [
        (2, SPEC, True),
        (1, SPEC, False),
        (2, SPEC._replace(span=Sliding(5)), False),
        (2, SPEC._replace(per="sequence"), False),
        (2, SPEC._replace(per="source token"), False),
    ],
)
def test_devices_divide_the_tokens_of_a_cache_that_grows_with_the_context(
    dcp: int, spec: CacheSpec, divided: bool
) -> None:
    assert ServingConfig(dcp=dcp).divides(spec) == divided


@pytest.mark.parametrize(
    ("config", "role", "pieces"),
    [
        (ServingConfig(), "kv", [("k_v_cache", 2, "bf16")]),
        (ServingConfig(kv_dtype_k=FP8, kv_dtype_v=FP8), "kv", [("k_v_cache", 2, "fp8")]),
        (ServingConfig(kv_dtype_k=FP8), "kv", [("k_cache", 1, "fp8"), ("v_cache", 1, "bf16")]),
        (ServingConfig(kv_dtype_v=FP8), "kv", [("k_cache", 1, "bf16"), ("v_cache", 1, "fp8")]),
        (ServingConfig(kv_dtype_k=FP8, kv_dtype_v=Q8), "k", [("k_cache", 2, "fp8")]),
        (ServingConfig(kv_dtype_k=FP8, kv_dtype_v=Q8), "v", [("v_cache", 2, "q8_0")]),
        (ServingConfig(kv_dtype_k=FP8, kv_dtype_v=Q8), "latent", [("latent_cache", 2, "fp8")]),
        (ServingConfig(kv_dtype_k=FP8, kv_dtype_v=Q8), "indexer", [("indexer_cache", 2, "fp8")]),
        (ServingConfig(kv_dtype_k=FP8, kv_dtype_v=Q8), "state", [("state_cache", 2, "bf16")]),
    ],
)
def test_k_and_v_are_two_tensors_if_their_dtypes_differ(
    config: ServingConfig, role: Any, pieces: list[tuple[str, int, str]]
) -> None:
    found = config.pieces(SPEC._replace(role=role), dtype("bf16"))
    assert [(name, piece.rows, of.name) for name, piece, of in found] == pieces


@pytest.mark.parametrize("dcp", [1, 2])
@pytest.mark.parametrize(("batch", "context"), [(1, 5), (1, 8), (3, 21)])
def test_a_step_reads_no_earlier_chunk(batch: int, context: int, dcp: int) -> None:
    """Chunks of 8: of 21 tokens the last 5 are read. A cache of chunks is not divided, since it has
    a reach.
    """
    chunked = one_layer(attention=Grouped(1, 1, 4, span=Chunked(8)))
    read = cache_read(chunked, Workload.decode(batch, context), ServingConfig(dcp=dcp))
    assert read == batch * ((context - 1) % 8 + 1) * 16
    # a prefill writes all that is stored
    written = cache_read(chunked, Workload.prefill(batch, context), ServingConfig(dcp=dcp))
    assert written >= read


@pytest.mark.parametrize("dcp", [1, 2, 4])
@pytest.mark.parametrize(("batch", "context"), [(1, 20), (1, 30), (2, 100)])
def test_a_step_reads_the_latents_that_an_indexer_picks(batch: int, context: int, dcp: int) -> None:
    """30 latents of 8 + 4 elements are picked, by keys of 6 elements of every token; 2 bytes
    each.
    """
    of = picking(3)
    read = cache_read(of, Workload.decode(batch, context), ServingConfig(dcp=dcp))
    assert read == 3 * batch * (min(30, context) * 24 + context * 12) // dcp
    text = read.formula.text
    assert (text == "kv_cache_whole - kv_cache_unread") == (context > 30)
    # all tokens of a prefill are written
    written = cache_read(of, Workload.prefill(batch, context), ServingConfig(dcp=dcp))
    assert written == 3 * batch * context * 36 // dcp


def picking(layers: int, topk: int = 30) -> ModelSpec:
    """Latents of 24 bytes, of which `topk` are picked by keys of 12 bytes of every token."""
    latent = Latent(1, 8, 4, 4, 4)
    attention = dataclasses.replace(
        latent,
        index_topk=topk,
        index_n_heads=1,
        index_head_dim=6,
        q_lora_rank=4,
        span=Selected(topk),
    )
    groups = (Layers("layers", layers, attention=attention, norms=0),)
    return ModelSpec("m", "m", (Stack("decoder", groups, 4, final_norm=False),))


def test_a_share_of_a_layers_cache_is_rounded_down() -> None:
    """16 devices have 101 * 24 // 16 = 151 and 101 * 12 // 16 = 75 bytes, of which 71 * 24 // 16 =
    106 are not read.
    """
    read = cache_read(picking(3), Workload.decode(1, 101), ServingConfig(dcp=16))
    assert read == 3 * (151 + 75) - 3 * 106
    symbols = {symbol.name: symbol.value for symbol in read.formula.symbols}
    assert symbols == {"kv_cache_whole": 678, "kv_cache_unread": 318}
    plain = cache_read(one_layer(), Workload.decode(1, 101), ServingConfig(dcp=3))
    assert plain == 101 * 16 // 3
    assert "// dcp" in plain.formula.text
    assert "dcp" not in cache_read(one_layer(), Workload.decode(1, 101)).formula.text


def test_an_encoder_reads_no_cache() -> None:
    """BERT keeps none, neither in a prefill nor later."""
    layers = Layers("layers", 1, attention=PLAIN, norms=0)
    stack = Stack("encoder", (layers,), 4, final_norm=False, mask=Mask("bidirectional"))
    encoder = ModelSpec("m", "m", (stack,))
    assert cache_read(encoder, Workload.prefill(2, 3)) == 0
    found = roofline(
        encoder, Workload.prefill(2, 3), Gpu("g", "G", "v", 1, 10**9, 1, (("fp16", 1),))
    )
    assert (found.decode, found.tokens_per_second, found.compute_bound_batch) == (None, None, None)
    assert found.prefill.cache == 0


def test_tokens_before_their_pool_are_read_although_the_next_token_attends_to_none() -> None:
    """DeepSeek-V4 keeps them for a later pool.

    After 256 tokens there are none behind the last pool, and fewer pools than its indexer picks.
    """
    of, step = load("deepseek-v4-flash"), Workload.decode(1, 256)
    assert cache_read(of, step) == kv_cache(of, step).total


def test_tensors_in_a_dtype_of_their_own_have_a_name_of_their_own() -> None:
    """A head of 32: 34 bytes in q8_0 for K, and 64 in fp16 for V."""
    of = one_layer(attention=Grouped(1, 1, 32))
    read = cache_read(of, Workload.decode(2, 3), ServingConfig(kv_dtype_k=Q8))
    assert read == 2 * 3 * (34 + 64)
    names = [symbol.name for symbol in read.formula.symbols]
    assert "k_cache" in names
    assert "v_cache" not in names
    wider = cache_read(of, Workload.decode(2, 3), ServingConfig(kv_dtype_v=dtype("fp32")))
    assert wider == 2 * 3 * (64 + 128)
    names = [symbol.name for symbol in wider.formula.symbols]
    assert "v_cache" in names
    assert "k_cache" not in names
    alike = cache_read(of, Workload.decode(2, 3), ServingConfig(kv_dtype_k=dtype("bf16")))
    assert alike == 2 * 3 * 2 * 64
    assert [symbol.name for symbol in alike.formula.symbols].count("k_cache") == 1
    one = cache_read(of, Workload.decode(2, 3), ServingConfig(kv_dtype_k=Q8, kv_dtype_v=Q8))
    assert one == 2 * 3 * 2 * 34
    assert "k_v_cache" in [symbol.name for symbol in one.formula.symbols]
    plain = cache_read(of, Workload.decode(2, 3))
    assert not {"k_cache", "v_cache", "k_v_cache"} & {
        symbol.name for symbol in plain.formula.symbols
    }
