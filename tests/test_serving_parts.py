"""The pieces of `fit`: tensor-parallel sizes, pipeline stages, a device's experts, shares, and what
surely fits.
"""

import dataclasses
from typing import Any

import pytest
from asking import refusal

from attncalc import (
    AttncalcError,
    Grouped,
    Head,
    Layers,
    Mlp,
    ModelSpec,
    Sliding,
    Stack,
    Workload,
    load,
)
from attncalc.attention import Matrix
from attncalc.attention.linear import GatedDeltaNet
from attncalc.attention.mamba import Mamba
from attncalc.checkpoint import CheckpointWeights
from attncalc.config.gpus import gpu
from attncalc.cost.params import params
from attncalc.engines.expert_parallel import (
    WholeExperts,
    divide_experts,
    divide_for_attention,
    without_routed,
)
from attncalc.engines.pipeline import parts_of, split_into_stages
from attncalc.engines.runtime import RuntimeMemory
from attncalc.engines.transformers.engine import ENGINE as TRANSFORMERS
from attncalc.quantity import symbol
from attncalc.serving.fit import (
    Deployment,
    fit,
    most_sequences,
    sure_limits,
    tensor_parallel_sizes,
    with_longest_context,
)
from attncalc.serving.memory_budget import Reserve
from attncalc.serving.request import FitRequest, parse_share, resolve
from attncalc.serving.traffic import Traffic
from attncalc.units import GIB, dtype


def model(*layers: Layers, d: int = 96, **fields: Any) -> ModelSpec:
    stack_fields = {f.name for f in dataclasses.fields(Stack)}
    of_stack = {name: fields.pop(name) for name in list(fields) if name in stack_fields}
    stack = Stack("decoder", layers, d, **of_stack)
    return ModelSpec("toy", "toy", (stack,), **{"vocab_size": 9600, "head": Head("lm"), **fields})


def dense(heads: int, kv: int, *, d_ff: int = 9600, count: int = 2, name: str = "layers") -> Layers:
    return Layers(name, count, attention=Grouped(heads, kv, 8), mlp=Mlp(d_ff, gated=True))


# Tensor-parallel sizes


@pytest.mark.parametrize(
    ("layers", "sizes"),
    [
        ((dense(12, 4),), [1, 2, 4, 12]),  # KV heads are split, or copied a whole number of times
        ((dense(12, 12),), [1, 2, 3, 4, 6, 12]),
        ((dense(12, 12, d_ff=10),), [1, 2]),
        ((dense(12, 12), dense(8, 8, name="others")), [1, 2, 4]),
        # no heads of attention: powers of two up to 64 that divide the channels
        ((Layers("mamba", 2, attention=Mamba(3 * 2**7, 8, 4, 5)),), [1, 2, 4, 8, 16, 32, 64]),
        ((Layers("mamba", 2, attention=Mamba(24, 8, 4, 5)),), [1, 2, 4, 8]),
    ],
)
def test_tensor_parallel_sizes_divide_all_layers(
    layers: tuple[Layers, ...], sizes: list[int]
) -> None:
    assert list(tensor_parallel_sizes(model(*layers))) == sizes


# Pipeline stages


EMBEDDED = model(
    dense(4, 4, count=3),
    dense(2, 2, count=2, name="others"),
    learned_positions=50,
    relative_position_buckets=32,
    embedding_norm=True,
    token_types=2,
    extra=(Matrix("table", 7, 5),),
)


def test_the_first_stage_has_the_tables_and_the_last_the_head() -> None:
    first, middle, last = split_into_stages(EMBEDDED, 3, lambda layers, pp: [2, 2, 1])
    assert [part.main.n_layers for part in (first, middle, last)] == [2, 2, 1]
    assert [
        (part.main.learned_positions, part.main.relative_position_buckets)
        for part in (first, middle, last)
    ] == [(50, 32), (None, None), (None, None)]
    assert [part.main.embedding_norm for part in (first, middle, last)] == [True, False, False]
    assert [part.main.final_norm for part in (first, middle, last)] == [False, False, True]
    assert [part.token_types for part in (first, middle, last)] == [2, None, None]
    assert [part.extra for part in (first, middle, last)] == [EMBEDDED.extra, (), ()]
    assert [part.vocab_size for part in (first, middle, last)] == [9600, None, 9600]
    assert [part.head and part.head.tied for part in (first, middle, last)] == [None, None, True]
    assert [[layers.name for layers in part.main.layers] for part in (first, middle, last)] == [
        ["layers"],
        ["layers", "others"],
        ["others"],
    ]
    assert [part.first_layer for part in (first, middle, last)] == [0, 0, 0]


def test_numbered_parts_keep_every_layer_and_its_number() -> None:
    whole = dataclasses.replace(EMBEDDED, first_layer=3)
    first, last = parts_of(whole, [2, 3], numbered=True)
    assert [layers.count for layers in (*first.main.layers, *last.main.layers)] == [1] * 5
    assert (first.first_layer, last.first_layer) == (3, 5)
    gathered, _ = parts_of(whole, [2, 3])
    assert [layers.count for layers in gathered.main.layers] == [2]
    assert gathered.first_layer == 0


def test_the_output_may_be_on_another_part_than_the_last() -> None:
    first, last = parts_of(EMBEDDED, [2, 3], output=0)
    assert (first.head, first.main.final_norm) == (EMBEDDED.head, EMBEDDED.main.final_norm)
    assert (last.head, last.vocab_size, last.extra, last.main.final_norm) == (None, None, (), False)


def test_one_stage_is_the_model_and_an_encoder_decoder_has_no_others() -> None:
    assert split_into_stages(EMBEDDED, 1) == [EMBEDDED]
    files = dataclasses.replace(EMBEDDED, stored=CheckpointWeights(1, 1, (), 5))
    assert split_into_stages(files, 1) == [files]
    assert split_into_stages(load("t5-base"), 1) == [load("t5-base")]
    with pytest.raises(
        AttncalcError, match="--pp 2: an encoder-decoder cannot be split into pipeline stages"
    ):
        split_into_stages(load("t5-base"), 2)


# Experts on one device


MIXTURE = Mlp(64, gated=True, n_experts=10, n_experts_per_token=4, n_shared_experts=2)


def mixture(mlp: Mlp = MIXTURE, **fields: Any) -> ModelSpec:
    plain = Layers("dense", 1, attention=Grouped(4, 4, 8), mlp=Mlp(320, gated=True))
    return model(plain, Layers("experts", 2, attention=Grouped(4, 4, 8), mlp=mlp), **fields)


def mlps(divided: ModelSpec) -> tuple[Mlp, Mlp]:
    first, second = (layers.mlp for layers in divided.main.layers)
    assert first is not None
    assert second is not None
    return first, second


def test_a_device_without_routed_experts_has_router_and_shared_ones() -> None:
    found = without_routed(MIXTURE)
    assert (found.n_experts, found.n_routed, found.n_shared_experts, found.d_ff_shared) == (
        0,
        10,
        None,
        128,
    )
    assert found.shared_copies == 1
    assert [matrix.cols for matrix in found.router(96)] == [10]
    given = without_routed(dataclasses.replace(MIXTURE, n_shared_experts=None, d_ff_shared=100))
    assert given.d_ff_shared == 100
    assert without_routed(dataclasses.replace(MIXTURE, n_shared_experts=None)).d_ff_shared is None


@pytest.mark.parametrize(
    ("tp", "dp", "n_experts", "replicates"),
    [
        (1, 1, 10, False),
        (2, 1, 5, False),
        (1, 3, 4, False),
        (2, 2, 3, True),
        (10, 1, 1, False),
        (5, 2, 1, True),
    ],
)
def test_vllms_whole_experts_are_those_of_the_fullest_device(
    tp: int, dp: int, n_experts: int, replicates: bool
) -> None:
    """10 experts on 3 devices are 4 on the first. Several devices of several ranks have all shared
    experts each.
    """
    first, found = mlps(divide_experts(mixture(), tp, dp, expert_parallel=True))
    assert first == Mlp(320, gated=True)
    assert isinstance(found, WholeExperts)
    assert (found.n_experts, found.n_routed, found.d_ff, found.d_ff_shared) == (
        n_experts,
        10,
        64,
        128,
    )
    assert found.shared_copies == (tp if replicates else 1)
    assert found.shard(2).d_ff_shared == (128 if replicates else 64)
    assert found.shard(2).d_ff == 64


def test_vllms_ranks_divide_the_width_of_the_experts() -> None:
    _, found = mlps(divide_experts(mixture(), 2, 4, expert_parallel=False))
    assert (found.d_ff, found.n_experts, found.d_ff_shared, found.n_shared_experts) == (
        16,
        10,
        128,
        None,
    )
    plain = model(dense(4, 4))
    assert divide_experts(plain, 2, 4, expert_parallel=True) is plain
    assert (plain.has_experts, mixture().has_experts) == (False, True)


def test_sglangs_ranks_divide_all_mlps_and_the_head() -> None:
    first, found = mlps(divide_for_attention(mixture(), 4, 2, expert_parallel=False))
    # `shard` divides by the 2 devices of a rank later
    assert (first.d_ff, found.d_ff, found.d_ff_shared) == (160, 32, 64)
    whole = divide_for_attention(mixture(), 2, 1, expert_parallel=True)
    _, found = mlps(whole)
    assert isinstance(found, WholeExperts)
    assert (found.n_experts, found.d_ff, found.d_ff_shared, found.shared_copies) == (5, 64, 128, 1)
    plain = model(dense(4, 4))
    assert divide_for_attention(plain, 4, 1, expert_parallel=True) == plain
    heads = [
        divide_for_attention(mixture(head=Head("lm", tied=tied)), 4, 2, expert_parallel=False)
        for tied in (True, False)
    ]
    assert [divided.head and divided.head.ranks for divided in heads] == [1, 2]


@pytest.mark.parametrize(
    ("mlp", "tp", "ranks", "whole", "message", "tip"),
    [
        (
            MIXTURE,
            3,
            3,
            False,
            "--tp 3 does not divide the width of the MLP, 320",
            "give --tp 1, 2, 4, 5, 8, 10, 16, 20, 32, 40, 64 or 80",
        ),
        (
            dataclasses.replace(MIXTURE, d_ff_shared=100),
            8,
            2,
            False,
            "--tp 8 does not divide the width of the shared experts, 100",
            "give --tp 1, 2, 4, 5, 10, 20, 25, 50 or 100",
        ),
        (
            dataclasses.replace(MIXTURE, d_ff=60, n_shared_experts=None),
            8,
            2,
            False,
            "--tp 8 does not divide the width of an expert, 60",
            "give --tp 1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30 or 60",
        ),
        (
            MIXTURE,
            4,
            2,
            True,
            "--enable-expert-parallel: --tp 4 does not divide the 10 experts",
            "give --tp 1, 2, 5 or 10",
        ),
    ],
)
def test_sglangs_devices_divide_evenly(
    mlp: Mlp, tp: int, ranks: int, whole: bool, message: str, tip: str
) -> None:
    error = refusal(divide_for_attention, mixture(mlp), tp, ranks, expert_parallel=whole)
    assert (error.message, error.tip) == (message, tip)


@pytest.mark.parametrize(
    ("tp", "dp", "whole", "message", "tip"),
    [
        (
            3,
            2,
            False,
            "--tp 3 times --dp 2 does not divide the width of an expert, 64",
            "give --tp 1, 2, 4, 8, 16 or 32, or add --enable-expert-parallel: it divides whole "
            "experts",
        ),
        (
            11,
            1,
            True,
            "--enable-expert-parallel: 11 devices are more than the 10 experts",
            "use at most 10 devices for --tp times --dp",
        ),
    ],
)
def test_vllms_devices_have_a_part_of_each_expert_or_one(
    tp: int, dp: int, whole: bool, message: str, tip: str
) -> None:
    error = refusal(divide_experts, mixture(), tp, dp, expert_parallel=whole)
    assert (error.message, error.tip) == (message, tip)


@pytest.mark.parametrize("size", [1_000_003, 10**17 + 1])
def test_files_are_divided_as_the_parameters_of_a_rank(size: int) -> None:
    """Rounded up, and exact for any size."""
    whole = mixture(stored=CheckpointWeights(1, 1, (), size))
    request = FitRequest(
        whole, Workload.decode(1, 10), kv_memory=1, dp=2, enable_expert_parallel=True
    )
    divided = resolve(request).model
    assert divided.stored is not None
    here, everywhere = int(params(divided).total), int(params(whole).total)
    assert divided.stored.size == -(-size * here // everywhere)
    assert isinstance(divided.stored.size, int)


def test_shared_experts_that_tp_does_not_divide_are_an_error() -> None:
    found = WholeExperts(64, n_experts=2, n_experts_per_token=4, n_routed=10, d_ff_shared=100)
    with pytest.raises(
        AttncalcError, match="--tp 8 does not divide the width of the shared experts, 100"
    ):
        found.shard(8)


# Shares and reserves


@pytest.mark.parametrize(
    ("text", "numerator", "denominator"),
    [("0.92", 92, 100), ("1", 1, 1), (" 0.5 ", 5, 10), ("0.001", 1, 1000)],
)
def test_a_share_is_exact(text: str, numerator: int, denominator: int) -> None:
    share = parse_share(text, "--share")
    assert share.numerator * denominator == numerator * share.denominator
    assert (share.option, share.text) == ("--share", text.strip())


@pytest.mark.parametrize("text", ["0", "1.001", "-0.5", "half", "92"])
def test_a_share_is_above_0_and_at_most_1(text: str) -> None:
    with pytest.raises(AttncalcError, match="--share"):
        parse_share(text, "--share")


def test_a_logged_excess_moves_the_range_or_replaces_it() -> None:
    reserve = Reserve(symbol("estimate", 100, "bytes"), 80, 150, RuntimeMemory())
    moved = reserve.with_excess(30, exact=False)
    assert (moved.low, moved.total, moved.high) == (110, 130, 180)
    assert reserve.with_excess(-30, exact=False)[:3] == (70, 50, 120)
    exact = reserve.with_excess(30, exact=True)
    assert (exact.low, exact.total, exact.high) == (130, 130, 130)


# What surely fits


def on_memory(
    name: str, memory: int, *, batch: int = 1, context: int = 4096, engine: str = "ideal"
) -> FitRequest:
    return FitRequest(load(name), Workload.decode(batch, context), engine, kv_memory=memory)


# Bytes of a token of Qwen3-8B: 36 layers, 8 heads of 128, in 2 bytes.
PER_TOKEN = 36 * 2 * 8 * 128 * 2


def test_sure_limits_are_those_of_the_memory_and_the_model() -> None:
    assert sure_limits(resolve(on_memory("qwen3-8b", 10_000 * PER_TOKEN, batch=2))) == (5000, 2)
    assert sure_limits(resolve(on_memory("qwen3-8b", 10**6 * PER_TOKEN))) == (40_960, 10**6 // 4096)
    assert sure_limits(resolve(on_memory("qwen3-8b", PER_TOKEN - 1))) == (0, 0)
    assert sure_limits(resolve(on_memory("qwen3-8b", 40_960 * PER_TOKEN))) == (40_960, 10)
    assert sure_limits(resolve(on_memory("qwen3-8b", 40_959 * PER_TOKEN))) == (40_959, 9)


def test_the_longest_context_replaces_the_requested_one_if_one_fits() -> None:
    assert with_longest_context(on_memory("qwen3-8b", 5000 * PER_TOKEN)).workload.context == 5000
    nothing = on_memory("qwen3-8b", 0)
    assert with_longest_context(nothing) is nothing


def test_states_of_a_fixed_size_have_no_longest_context() -> None:
    delta = model(Layers("delta", 2, attention=GatedDeltaNet(4, 8, 8, 4)))
    found = fit(FitRequest(delta, Workload.decode(1, 100), "ideal", kv_memory=GIB))
    assert found.max_context is None
    assert found.max_batch
    assert sure_limits(found.resolved)[0] == 0
    nothing = fit(FitRequest(delta, Workload.decode(1, 100), "ideal", kv_memory=0))
    assert (nothing.max_context, nothing.max_batch, nothing.verdict) == (0, 0, "does_not_fit")


def test_most_sequences_of_each_context_share_a_prefix_once() -> None:
    resolved = resolve(on_memory("qwen3-8b", 10_000 * PER_TOKEN))
    alone = most_sequences(Deployment(resolved), (1000, 3000, 20_000))
    assert [(one.sequences, one.needed) for one in alone] == [
        (10, 10_000 * PER_TOKEN),
        (3, 9000 * PER_TOKEN),
        (0, 0),
    ]
    vllm = resolve(
        dataclasses.replace(
            on_memory("qwen3-8b", 10_000 * PER_TOKEN, engine="vllm"), gpu=gpu("h100-80gb")
        )
    )
    with_prefix = resolve(
        dataclasses.replace(vllm.request, traffic=Traffic(1000, 600, shared_prefix=800))
    )
    without, shared = (most_sequences(Deployment(one), (1600,)) for one in (vllm, with_prefix))
    # 625 blocks of 16 tokens, one of which stays free: 624 // 100; (624 - 50) // 50 with a prefix
    # of 50 blocks
    assert (without[0].sequences, shared[0].sequences) == (6, 11)
    assert [Deployment(one).shares_prefix for one in (vllm, with_prefix)] == [False, True]


@pytest.mark.parametrize(("context", "new"), [(1, 1), (30, 1), (31, 0), (32, 0), (1000, 0)])
def test_transformers_window_is_full_one_token_early(context: int, new: int) -> None:
    """A dynamic cache keeps 31 tokens for a window of 32: the query's own token is the last."""
    (cached,) = Grouped(4, 2, 8, span=Sliding(32)).cache()
    workload = Workload.decode(3, context)
    row = 2 * 2 * 8 * 2
    assert TRANSFORMERS.token_bytes(cached, workload, dtype("bf16")) == new * row
    assert TRANSFORMERS.layer_bytes(cached, workload, dtype("bf16")) == 3 * min(context, 31) * row
