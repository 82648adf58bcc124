"""The bounds of a load, and what devices compute and read if data-parallel ranks divide the
experts.
"""

import dataclasses
from fractions import Fraction

import pytest
from asking import Ask
from hypothesis import given
from hypothesis import strategies as st

from attncalc import AttncalcError, Grouped, Layers, Mlp, ModelSpec, Stack, Workload, load
from attncalc.config.gpus import gpu
from attncalc.cost.flops import flops
from attncalc.hardware import Gpu
from attncalc.model import Head
from attncalc.quantity import Ratio
from attncalc.serving.load_bounds import Load, bounds_of_load, steps_of
from attncalc.serving.request import FitRequest, ResolvedRequest, resolve
from attncalc.serving.weights_read import bytes_read

# 1,000 FLOP/s and 10 bytes/s.
SLOW = Gpu("g", "G", "v", 1, 10**9, 10, (("fp16", 1000),))


def one_layer(mlp: Mlp | None = None) -> ModelSpec:
    """A layer with one head of 4: 64 weights, 128 bytes. Each token takes 128 FLOP, and 16 per
    token it attends to.
    """
    layers = Layers("layers", 1, attention=Grouped(1, 1, 4), mlp=mlp, norms=0)
    return ModelSpec("m", "m", (Stack("decoder", (layers,), 4, final_norm=False),))


def on(model: ModelSpec, **options: object) -> ResolvedRequest:
    given = {"gpu": SLOW, "reserve": 0, **options}
    return resolve(FitRequest(model, Workload.decode(1, 64), **given))  # type: ignore[arg-type]


def exactly(value: Ratio | None) -> Fraction:
    assert value is not None
    return Fraction(value.numerator, value.denominator)


def test_a_load_by_hand() -> None:
    """Two requests with a prompt of 3 and an output of 3, which decode at a context of 3 + 2 = 5 on
    average.

    A prompt takes 3 * 128 + 16 * (1 + 2 + 3) = 480 FLOP, and reads 128 + 3 * 16 = 176 bytes: 17.6
    s.
    A step of both takes 2 * (128 + 16 * 5) = 416 FLOP, and reads 128 + 2 * 16 * 5 = 288 bytes: 28.8
    s.
    Two prompts and two steps take 2 * 480 + 2 * 416 = 1,792 FLOP, 1.792 s, and read 576 bytes in
    57.6 s.
    """
    found = bounds_of_load(on(one_layer()), Load(2, 3, 3))
    assert exactly(found.ttft) == exactly(found.planning_ttft) == Fraction("17.6")
    assert exactly(found.tpot) == Fraction("28.8")
    assert exactly(found.tokens_per_second) == 6 / Fraction("57.6")
    assert found.bound_by == "memory"
    assert exactly(found.planning_tokens_per_second) == 6 / (Fraction("0.96") + Fraction("57.6"))
    assert exactly(found.planning_tpot) == (Fraction("0.48") + Fraction("57.6")) / 2


def test_a_prefill_is_no_decode_step_of_as_many_tokens() -> None:
    """The model keeps the steps of a load: a request of 3 and 4 tokens decodes at 5 on average, as
    many as the next prompt has.
    """
    resolved = on(one_layer())
    bounds_of_load(resolved, Load(1, 3, 4))
    found = bounds_of_load(resolved, Load(1, 5, 4))
    assert exactly(found.ttft) == exactly(bounds_of_load(on(one_layer()), Load(1, 5, 4)).ttft)


def test_compute_bounds_a_load_with_few_decode_steps() -> None:
    """At 10 FLOP/s and 1,000 bytes/s the 1,792 FLOP take 179.2 s. Prefills and steps in series take
    as long.
    """
    found = bounds_of_load(
        on(one_layer(), gpu=dataclasses.replace(SLOW, bandwidth=1000, flops=(("fp16", 10),))),
        Load(2, 3, 3),
    )
    assert found.bound_by == "compute"
    assert (
        exactly(found.tokens_per_second)
        == exactly(found.planning_tokens_per_second)
        == 6 / Fraction("179.2")
    )
    assert exactly(found.planning_tpot) == (48 + Fraction("83.2")) / 2


def test_cached_tokens_are_not_prefilled() -> None:
    """Of 10 tokens 6 are cached: 4 * 128 + 16 * (7 + 8 + 9 + 10) = 1,056 FLOP. The last token is
    always computed.
    """
    cold, warm, hot = (
        bounds_of_load(on(one_layer()), Load(1, 10, 1, rate)) for rate in (0, 0.6, 1)
    )
    assert exactly(warm.tokens_per_second) == Fraction(1000, 1056)
    assert exactly(hot.tokens_per_second) == Fraction(1000, 128 + 16 * 10)
    assert exactly(cold.tpot) == exactly(warm.tpot) == exactly(hot.tpot)
    assert Load(1, 10, 1, 0.6).cached_tokens == 6


def test_pipeline_stages_work_in_parallel() -> None:
    """Two stages halve what a device computes of a prompt; a step is a micro-batch of one through
    both.
    """
    model = dataclasses.replace(
        one_layer(),
        stacks=(
            dataclasses.replace(
                one_layer().main, layers=(dataclasses.replace(one_layer().main.layers[0], count=2),)
            ),
        ),
    )
    found = bounds_of_load(on(model, gpus=2, pp=2), Load(2, 3, 3))
    # a prompt passes one after the other: its weights are read once, and each computes its half in
    # 480 / 1,000 s
    assert exactly(found.planning_ttft) == exactly(found.ttft)
    quick = bounds_of_load(
        on(model, gpu=dataclasses.replace(SLOW, bandwidth=10**6), gpus=2, pp=2), Load(2, 3, 3)
    )
    assert exactly(quick.planning_ttft) == 2 * exactly(quick.ttft) == Fraction("0.96")
    assert exactly(found.tpot) == Fraction(2 * (128 + 16 * 5), 10)
    assert exactly(found.planning_tpot) == (Fraction("0.48") + 2 * Fraction("41.6")) / 2


def test_tensor_parallel_devices_add_up_activations_twice_a_layer() -> None:
    """Two devices send 2 * (2 - 1) / 2 = all of 4 elements of 2 bytes per token; a sum takes 10 us
    besides.

    A prompt of 3 tokens takes 2 * (24 bytes / 12 bytes/s + 10 us), a step of two requests 2 * (16 /
    12 s + 10 us).
    """
    layers = Layers("layers", 1, attention=Grouped(2, 2, 2), norms=0)
    model = ModelSpec("m", "m", (Stack("decoder", (layers,), 4, final_norm=False),))
    found = bounds_of_load(
        on(model, gpu=dataclasses.replace(SLOW, link=12), gpus=2, tp=2), Load(2, 3, 3)
    )
    fast = bounds_of_load(
        on(model, gpu=dataclasses.replace(SLOW, link=10**15), gpus=2, tp=2), Load(2, 3, 3)
    )
    assert exactly(found.planning_ttft) == exactly(found.ttft) + 4 + Fraction("0.00002")
    # a step, and half of the other's prompt
    more = exactly(found.planning_tpot) - exactly(fast.planning_tpot)
    assert float(more) == pytest.approx(Fraction(8, 3) + 2, rel=1e-9)
    assert exactly(found.tpot) == exactly(fast.tpot)  # the bounds have none


def test_a_load_without_output_is_an_error() -> None:
    with pytest.raises(AttncalcError, match="requests, prompt and output must be at least 1"):
        bounds_of_load(on(one_layer()), Load(1, 1, 0))


def test_a_load_needs_a_gpu_and_a_decoder() -> None:
    with pytest.raises(AttncalcError, match="bounds of time need --gpu"):
        bounds_of_load(on(one_layer(), gpu=None, reserve=None, kv_memory=10**6), Load(1, 1, 1))
    with pytest.raises(AttncalcError, match="an encoder has no output tokens"):
        bounds_of_load(on(load("bert-base"), engine="ideal"), Load(1, 1, 1))


def test_drafts_leave_output_tokens_without_bounds() -> None:
    found = bounds_of_load(on(one_layer(), engine_args={"speculative_tokens": 3}), Load(2, 3, 3))
    assert (
        found.tpot,
        found.tokens_per_second,
        found.planning_tpot,
        found.planning_tokens_per_second,
    ) == (None,) * 4
    assert exactly(found.ttft) == Fraction("17.6")


# Ranks that divide the experts

MIXTURE = Mlp(64, gated=True, n_experts=16, n_experts_per_token=4, n_shared_experts=2)


def mixture() -> ModelSpec:
    layers = (
        Layers("dense", 1, attention=Grouped(16, 16, 8), mlp=Mlp(320, gated=True)),
        Layers("experts", 2, attention=Grouped(16, 16, 8), mlp=MIXTURE),
    )
    return ModelSpec("m", "m", (Stack("decoder", layers, 128),), vocab_size=64, head=Head("lm"))


def of_ranks(engine: str, ranks: int, whole: bool) -> ResolvedRequest:
    split = {"dp": ranks} if engine == "vllm" else {"tp": ranks, "attn_dp": ranks}
    return on(mixture(), engine=engine, gpus=ranks, enable_expert_parallel=whole, **split)


RANKS = pytest.mark.parametrize(
    ("engine", "whole"), [("vllm", False), ("vllm", True), ("sglang", False), ("sglang", True)]
)


@RANKS
@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_ranks_compute_together_what_one_gpu_computes(engine: str, whole: bool, ranks: int) -> None:
    """Every matrix is multiplied with every token once: nothing of this model is on several GPUs
    but the router.
    """
    part = of_ranks(engine, ranks, whole).model
    for workload in (Workload.decode(3, 100), Workload.prefill(3, 100)):
        everywhere = dataclasses.replace(workload, batch=3 * ranks)
        assert ranks * flops(part, workload).total == flops(mixture(), everywhere).total


@RANKS
def test_ranks_read_together_the_experts_that_one_gpu_reads(engine: str, whole: bool) -> None:
    """5 tokens on each of 4 ranks pick the expected experts of 20 tokens: 16 * (1 - (3 / 4)^20) =
    15.949.
    """
    part, expert = of_ranks(engine, 4, whole).model, 2 * 3 * 128 * 64  # bytes
    none = bytes_read(part, Workload.decode(5, 100), routing="fewest")
    read = bytes_read(part, Workload.decode(5, 100), routing="expected")
    share = Fraction(16 - 16 * (0.75**20)).limit_denominator(10**6) / 4
    # the fewest are 1 of 4 whole experts, or a part of each of 4
    assert int(read - none) == pytest.approx(float(2 * expert * (share - 1)), abs=2)


@given(ranks=st.sampled_from([2, 4, 8]), requests=st.integers(1, 40), whole=st.booleans())
def test_more_requests_of_a_copy_are_served_faster_together(
    ranks: int, requests: int, whole: bool
) -> None:
    """Bounds in order: planned rates are below the upper bound, and no request is faster beside
    others.
    """
    resolved = of_ranks("vllm", ranks, whole)
    few, more = (bounds_of_load(resolved, Load(n, 20, 10)) for n in (requests, requests + ranks))
    assert exactly(few.planning_tokens_per_second) <= exactly(few.tokens_per_second)
    assert exactly(few.tokens_per_second) <= exactly(more.tokens_per_second)
    assert exactly(few.tpot) <= exactly(more.tpot) <= exactly(more.planning_tpot)
    assert exactly(few.ttft) == exactly(more.ttft) <= exactly(more.planning_ttft)


@pytest.mark.parametrize(
    ("engine", "split", "per_node", "bytes_of_token", "bandwidth"),
    [
        # 2 layers with experts of a hidden size of 128 on 2 devices: each token goes to both, of
        # which one is another, in 2 bytes both ways: 2 * 128 * 2 * (1 / 2) * 2 * 2 = 1,024
        ("vllm", {"gpus": 2, "dp": 2}, 8, 1024, 10**6),
        # its 4 experts are on up to 4 of 8 devices, 7 / 8 of them others: 2 * 128 * 4 * 7 / 8 * 4
        ("vllm", {"gpus": 8, "dp": 8}, 8, 3584, 10**6),
        # over 2 nodes a token is sent to each node once, through the network
        ("vllm", {"gpus": 8, "dp": 8}, 4, 1024, 10**5),
        # the 4 devices of each of 2 ranks send a quarter of its 4 tokens each
        ("vllm", {"gpus": 8, "tp": 4, "dp": 2}, 8, 3584 / 4, 10**6),
        ("sglang", {"gpus": 8, "tp": 8, "attn_dp": 2}, 8, 3584 / 4, 10**6),
    ],
)
def test_tokens_are_sent_to_the_devices_of_their_experts(
    engine: str, split: dict[str, int], per_node: int, bytes_of_token: float, bandwidth: int
) -> None:
    """And their outputs back: two exchanges per layer with experts, each 10 us besides."""
    device = dataclasses.replace(SLOW, link=10**6, per_node=per_node)
    resolved = on(mixture(), engine=engine, gpu=device, enable_expert_parallel=True, **split)
    sent = steps_of(resolved, Load(4 * resolved.ranks, 8, 2, network=10**5), "expected").decode_sent
    devices = resolved.gpus // resolved.ranks
    # tensor-parallel devices of a rank add up 4 tokens of 128 elements twice in each of 3 layers
    of_sum = 4 * 128 * 2 * 2 * (devices - 1) / devices / 10**6 + 10e-6
    sums = 3 * 2 * of_sum if devices > 1 else 0
    exchanges = 4 * bytes_of_token / bandwidth + 2 * 2 * 10e-6
    assert float(sent) == pytest.approx(sums + exchanges)


def test_idle_ranks_have_no_tokens() -> None:
    """One request on 8 ranks: only its 4 experts per layer are computed, and they are on one GPU or
    more.
    """
    resolved = of_ranks("vllm", 8, whole=True)
    assert [resolved.requests_of_rank(n) for n in (1, 3, 8, 9, 15, 16, 17)] == [
        (1, 1), (1, 3), (1, 8), (2, 4), (2, 7), (2, 8), (3, 5),
    ]  # fmt: skip
    alone = on(mixture(), gpus=1)
    assert exactly(bounds_of_load(resolved, Load(1, 50, 1)).ttft) < exactly(
        bounds_of_load(alone, Load(1, 50, 1)).ttft
    )


def test_fit_has_the_bounds_of_a_load_for_ranks(ask: Ask) -> None:
    """The prefill is that of one prompt, the decode step that of 32 requests on each of 8 ranks."""
    asked = (
        "fit deepseek-v3 --gpu h200 --gpus 8 --tp 1 --dp 8 --enable-expert-parallel -c 8K -b 256 "
        "--json"
    )
    found = ask(*asked.split(), "--prompt", "4K", "--output-len", "1K").document
    results = {figure["name"]: figure["value"] for figure in found["results"]}
    request = FitRequest(
        load("deepseek-v3"),
        Workload.decode(256, 8192),
        gpu=gpu("h200"),
        gpus=8,
        tp=1,
        dp=8,
        enable_expert_parallel=True,
    )
    bounds = bounds_of_load(resolve(request), Load(256, 4096, 1024))
    assert results["prefill_time_bound"] == float(bounds.ttft or 0)
    assert results["decode_time_bound"] == float(bounds.tpot or 0)
