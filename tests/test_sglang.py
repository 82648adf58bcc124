"""SGLang's pools of tokens, windows and states: attncalc/engines/sglang. Whole logs are in
test_engine_logs.py.
"""

from fractions import Fraction
from typing import Any

import pytest
from asking import refusal
from evaluate import text_of
from hypothesis import given
from hypothesis import strategies as st
from specs import models
from tables import each

from attncalc import AttncalcError, Chunked, Full, Grouped, Latent, Sliding, Workload, fit, load
from attncalc.attention.kind import CacheSpec
from attncalc.attention.linear import GatedDeltaNet, Lightning, ShortConvolution
from attncalc.attention.mamba import Mamba2
from attncalc.attention.picked import Blocks
from attncalc.config.gpus import gpu
from attncalc.cost.cache import layer_cache_specs
from attncalc.engines import find_engine
from attncalc.engines.pipeline import LayerCacheSpec, cut_into_stages
from attncalc.engines.sglang.options import SglangArgs
from attncalc.engines.sglang.pools import stage_sizes
from attncalc.engines.sglang.slots import SglangLayout
from attncalc.engines.sglang.states import StatePool
from attncalc.logs import find_reader
from attncalc.logs.sglang import read_log
from attncalc.quantity import Quantity
from attncalc.serving.request import FitRequest, resolve
from attncalc.units import dtype

GIB = 2**30
MHA = Grouped(32, 8, 128)
MLA = Latent(128, 512, 128, 64, 128, q_lora_rank=1536)
DSA = Latent(
    64, 512, 192, 64, 256, q_lora_rank=2048, index_n_heads=32, index_head_dim=128, index_topk=2048
)
GDN = GatedDeltaNet(32, 128, 128, 4, n_k_heads=16)


def engine_args(kv: str = "bf16", model: str = "bf16", **more: Any) -> SglangArgs:
    return SglangArgs(kv_dtype=dtype(kv), dtype=dtype(model), **more)


def layout_of(*layers: tuple[int, Any], **more: Any) -> SglangLayout:
    """Return the layout of a model; each argument is a number of layers and their kind."""
    sglang_layout = find_engine("sglang").layout(
        [LayerCacheSpec(n, kind.cache()) for n, kind in layers], engine_args(**more)
    )
    assert isinstance(sglang_layout, SglangLayout)
    return sglang_layout


def hybrid_layout(full: int, every: int, window: Any, layers: int = 8, **more: Any) -> SglangLayout:
    """Return the layout of a hybrid: of every `every` layers the first `full` have full
    attention.
    """
    return layout_of(
        *[(1, MHA.with_span(Full() if i % every < full else window)) for i in range(layers)], **more
    )


def test_the_longest_request_leaves_one_token_of_the_pool() -> None:
    """Published in sgl-project/sglang issue 4048: "exceeds the maximum allowed length (59862
    tokens)" for a prompt.
    """
    engine, pool = find_engine("sglang"), layout_of((1, MHA)).pool(59_868 * 4096, 160_062)
    assert pool.tokens == 59_868
    assert engine.longest_request(pool) == 59_862 + 5
    assert engine.longest_request(layout_of((1, MHA)).pool(6 * 4096, 4096)) is None
    assert engine.longest_request(layout_of((1, MHA)).pool(7 * 4096, 4096)) == 6
    assert find_engine("vllm").longest_request(pool) is None


# Rows and slots as in the logs of real servers.


def test_an_fp8_latent_with_an_indexer_is_656_bytes() -> None:
    # 512 fp8 + 512 / 128 * 4 of scales + 64 * 2 of rotary key = 656; 128 fp8 + 4 of scale = 132; 78
    # * 788 = 61,464
    sglang_layout = layout_of((78, DSA), kv="fp8")
    pool = sglang_layout.pool(61_464 * 131_072, 4096)
    # (131,072 + 64) * 61,464 B = 7.507 GiB; the page is 64 because there is an indexer
    assert (
        pool.log_lines[0]
        == "KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 131072, KV size: 7.51 GB"
    )
    assert pool.details[0].quantity == 61_464
    assert "page size 64" in sglang_layout.facts


@each(
    ("layers", "options", "rows"),
    [
        # each GPU stores every second token, so that a pool of 1,000 rows holds 2,000 tokens
        ((8, MLA), {}, 576 * 2 * 8),
        # all keys of an indexer: 656 B of a latent and twice 132 B; the drafter's layer is whole
        # too
        ((78, DSA), {"kv": "fp8"}, 78 * (656 + 2 * 132)),
        (
            (78, DSA),
            {"kv": "fp8", "speculative_layers": 1, "speculative_tokens": 2},
            78 * (656 + 2 * 132) + 2 * (656 + 132),
        ),
        # Grouped(32, 1, 128) is what one of 8 GPUs has of 4 heads or of 8. A pair of GPUs stores
        # the heads of both:
        # one of 4 heads, and two of 8, with which the pair stores as many bytes per token as
        # without --dcp
        ((8, Grouped(32, 1, 128)), {"n_kv_heads": 4}, 8 * 2 * 128 * 2),
        ((8, Grouped(32, 1, 128)), {"n_kv_heads": 8}, 8 * 2 * 2 * 128 * 2),
    ],
)
def test_dcp_stores_a_part_of_the_tokens_on_each_gpu(
    layers: Any, options: dict[str, Any], rows: int
) -> None:
    """Source: _compute_cell_size in SGLang's pool_configurator.py, get_num_kv_heads in its
    model_config.py.
    """
    of = layout_of(layers, tp=8, dcp=2, **options)
    pool = of.pool(64_000 * rows, 4096)
    assert pool.tokens == 2 * 64_000
    assert (
        pool.log_lines[-1] == "max_total_num_tokens=64000, ..."
    )  # sglang pull request 32730: the log has those of one GPU
    assert float(pool.concurrency) == 2 * 64_000 / 4096
    assert of.needed(1, 4096) == 2048 * rows
    assert of.needed(1, 4097) == (2048 + (64 if options.get("kv") else 1)) * rows


def test_a_log_with_dcp_has_the_tokens_of_one_gpu() -> None:
    of = layout_of((8, MLA), tp=8, dcp=2)
    pool = of.pool(2**30, 4096)
    log = read_log(["ServerArgs(tp_size=8, dcp_size=2)", *pool.log_lines])
    assert log is not None
    memory, checks = find_reader("sglang").log_checks(log, of, of.args, 4096)
    assert memory is not None
    assert of.pool(memory.printed, 4096).tokens == pool.tokens
    assert all(check.ok for check in checks)


def test_the_indexers_keys_of_a_model_take_a_part_of_what_dcp_gives() -> None:
    """Issue 27: half of the gain or less. Twice 788 / (656 + 2 x 132), and 8 times 788 / (656 + 8 x
    132).
    """
    tokens = [
        int(layout_of((78, DSA), kv="fp8", tp=8, dcp=n).pool(10**10, 4096).tokens)
        for n in (1, 2, 8)
    ]
    assert [round(n / tokens[0], 2) for n in tokens[1:]] == [1.71, 3.68]


@each(
    ("layers", "options", "message", "tip"),
    [
        (
            ((8, MLA),),
            {"tp": 8, "dcp": 3},
            "--dcp 3 does not divide the 8 tensor-parallel devices of attention",
            "use a divisor: --dcp shares these devices",
        ),
        (
            ((8, MLA),),
            {"tp": 8, "dcp": 2, "engine_version": "0.5.14"},
            "SGLang 0.5.14 has no --dcp",
            "use --engine-version 0.5.15 or later, or leave --dcp out",
        ),
        (
            ((8, DSA),),
            {"tp": 8, "dcp": 2, "engine_version": "0.5.21"},
            "SGLang 0.5.21 has no --dcp with an indexer",
            "use --engine-version 0.5.22 or later, or leave --dcp out",
        ),
        (
            ((4, MHA), (4, MHA.with_span(Sliding(128)))),
            {"tp": 8, "dcp": 2, "model_type": "gpt_oss"},
            "--dcp: SGLang does not split the pool of sliding windows",
            "leave --dcp out, or add --disable-hybrid-swa-memory",
        ),
    ],
)
def test_dcp_that_sglang_does_not_have_is_an_error(
    layers: Any, options: dict[str, Any], message: str, tip: str
) -> None:
    error = refusal(layout_of, *layers, **options)
    assert (error.message, error.tip) == (message, tip)


def test_states_of_qwen3_5_have_one_spare_slot() -> None:
    # a slot: 24 * 16 heads * 128 * 128 * 4 B of state and 24 * (2 * 8 * 128 + 16 * 128) * 3 * 2 B
    # of convolution
    slot = 24 * 16 * 128 * 128 * 4 + 24 * 4096 * 3 * 2
    sglang_layout = layout_of((24, GDN.shard(2)), (8, Grouped(8, 2, 256)))
    # 187 slots are 9 / 19 of the memory, the next slot is not
    memory = 187 * slot * 19 // 9 + 1
    pool = sglang_layout.pool(memory, 4096)
    assert pool.log_lines[0] == (
        "Mamba Cache is allocated. max_mamba_cache_size: 186, conv_state size: 0.10GB, ssm_state "
        "size: 4.38GB"
    )
    # what is left holds tokens: 8 layers * 2 heads * 2 * 256 * 2 B = 16,384 B each
    assert {d.name: d.quantity for d in pool.details} == {
        "kv_bytes_per_token": 16_384,
        "state_bytes_per_slot": slot,
        "state_slots": 186,
        "kv_block_size": 1,
    }
    assert pool.tokens == (memory - 187 * slot) // 16_384
    # with the radix cache a sequence may take 5 slots: 186 // 5
    assert pool.concurrency[:2] == (37, 1)


# One pool.


def test_tokens_are_whole_pages() -> None:
    # 80 layers * 8 heads * (128 + 128) * 2 B = 327,680 B
    pool = layout_of((80, MHA), block_size=16).pool(10 * GIB + 327_679, 4096)
    assert pool.tokens == 32_768
    assert pool.blocks == 2048
    assert pool.concurrency[:2] == (32_768, 4096)
    # (32,768 + 16) * 80 * 8 * 128 * 2 B = 5.0024 GiB each
    assert pool.log_lines == (
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 32768, K size: 5.00 GB, V size: "
        "5.00 GB",
        "max_total_num_tokens=32768, ...",
    )


def test_a_page_is_one_token_by_default() -> None:
    sglang_layout = layout_of((1, MHA))
    assert sglang_layout.pool(4096 * 1001, 7).tokens == 1001
    assert sglang_layout.needed(3, 7) == 21 * 4096
    assert sglang_layout.facts == ("version 0.5.23", "page size 1")
    # a sequence of 7 tokens takes two pages of 4
    assert layout_of((1, MHA), block_size=4).needed(3, 7) == 24 * 4096


def test_k_and_v_of_different_widths_are_logged_separately() -> None:
    # 4 heads of K 192 and V 128: 1,536 B and 1,024 B per layer; (1,048,575 + 1) rows
    pool = layout_of((2, Grouped(8, 4, 192, 128))).pool(2 * 2560 * (2**20 - 1), 1)
    assert "K size: 3.00 GB, V size: 2.00 GB" in pool.log_lines[0]


@pytest.mark.parametrize(
    ("kind", "bytes_"),
    [
        # fp4: two elements per byte and one byte of scale per 16
        (MHA, 8 * 2 * (64 + 8)),
        (MLA, 576 // 2 + 576 // 16),
    ],
)
def test_fp4_has_a_scale_per_16_elements(kind: Any, bytes_: int) -> None:
    assert layout_of((3, kind), kv="fp4").needed(1, 10) == 10 * 3 * bytes_


def test_the_log_line_of_an_fp4_latent_leaves_out_its_scales() -> None:
    # (2^20 - 1 + 1) rows * 1,024 layers * 288 B = 288 GiB, without 36 B of scales
    pool = layout_of((1024, MLA), kv="fp4").pool((2**20 - 1) * 1024 * 324, 1)
    assert pool.log_lines[0].endswith("#tokens: 1048575, KV size: 288.00 GB")


def test_layers_that_share_keys_have_rows_too() -> None:
    shared = Grouped(32, 8, 128, shares_kv=True)
    assert layout_of((20, MHA), (10, shared)).needed(1, 1) == 30 * 4096


def test_only_layers_with_an_indexer_store_its_keys() -> None:
    shared = Latent(64, 512, 192, 64, 256, q_lora_rank=2048)
    assert layout_of((3, DSA), (5, shared), kv="fp8").needed(1, 64) == 64 * (8 * 656 + 3 * 132)
    # the two layers of a drafter have indexers too
    assert layout_of((3, DSA), (5, shared), kv="fp8", speculative_layers=2).needed(1, 64) == 64 * (
        10 * 656 + 5 * 132
    )
    # bf16: no scales
    assert layout_of((3, DSA), kv="bf16").needed(1, 64) == 64 * 3 * (1152 + 132)


def test_drafter_layers_have_rows_in_the_full_pool() -> None:
    assert layout_of((30, MHA), speculative_layers=2).needed(1, 5) == 5 * 32 * 4096
    assert layout_of((78, DSA), kv="fp8", speculative_layers=1).needed(1, 64) == 64 * 79 * 788
    # with a drafter SGLang runs at most 48 concurrent sequences
    assert layout_of((1, MHA), speculative_layers=1).pool(GIB, 1).concurrency[:2] == (48, 1)


def test_max_running_requests_limits_concurrency() -> None:
    sglang_layout = layout_of((1, MHA), max_running_requests=3)
    assert sglang_layout.max_num_seqs == 3
    assert sglang_layout.pool(GIB, 16).concurrency[:2] == (3, 1)
    assert sglang_layout.pool(2 * 16 * 4096, 16).concurrency[:2] == (32, 16)


def test_the_last_stages_get_the_remaining_layers() -> None:
    # 11 over 4 stages: 2, 3, 3, 3
    assert stage_sizes(11, 4) == [2, 3, 3, 3]
    parts = cut_into_stages(
        [LayerCacheSpec(4, MHA.cache()), LayerCacheSpec(7, GDN.cache())], 4, stage_sizes
    )
    assert [[spec.layers for spec in stage] for stage in parts] == [[2], [2, 1], [3], [3]]
    assert layout_of((11, MHA), pp=4).needed(1, 10) == 10 * 3 * 4096
    with pytest.raises(AttncalcError, match=r"the number of layers \(2\)"):
        layout_of((2, MHA), pp=3)


# Two pools.


def test_the_window_pool_has_four_fifths_of_the_tokens_by_default() -> None:
    # 12 full and 12 windowed layers of 4,096 B: 5 * 49,152 + 4 * 49,152 B hold 5 tokens and 4 of
    # windows
    sglang_layout = hybrid_layout(1, 2, Sliding(128), 24)
    pool = sglang_layout.pool(442_368 * 1000 + 442_367, 4096)
    assert pool.tokens == 5000 + 4  # 442,367 * 5 // 442,368
    # 49,152 B per token and 12 layers of windows' as much; 4,003 of windows = int(5,004 * 0.8);
    # pages of 1
    assert {d.name: d.quantity for d in pool.details} == {
        "full_bytes_per_token": 49_152,
        "swa_bytes_per_token": 49_152,
        "swa_tokens": 4003,
        "kv_block_size": 1,
    }
    assert "swa-full-tokens-ratio 0.8" in sglang_layout.facts
    # 5,005 rows of 24,576 B and 4,004 rows, for K and V each: 0.206 GiB in all
    assert pool.log_lines == (
        "Use sliding window memory pool. full_layer_tokens=5004, swa_layer_tokens=4003",
        "Full KV Cache is allocated. dtype: torch.bfloat16, #tokens: 5004, K size: 0.11 GB, V "
        "size: 0.11 GB",
        "SWA KV Cache is allocated. dtype: torch.bfloat16, #tokens: 4003, K size: 0.09 GB, V "
        "size: 0.09 GB",
        "SWAKVPool mem usage: 0.41 GB, swa size: 4003, full size: 5004",
        "max_total_num_tokens=5004, ...",
    )


def test_the_window_pool_has_whole_pages() -> None:
    # 1 full, 1 windowed layer: 4,096 * (1 + 1/2) B per token; 1,000 tokens are 992 whole, 496 of
    # windows are 480
    sglang_layout = hybrid_layout(1, 2, Sliding(64), 2, swa_full_tokens_ratio="0.5", block_size=32)
    pool = sglang_layout.pool(6144 * 1000, 100)
    assert (pool.tokens, pool.details[2].quantity) == (992, 480)


@pytest.mark.parametrize(
    ("window", "context", "slots"),
    [
        # the window before the query, 128 tokens not yet freed, one page and one token for the next
        # step
        (Sliding(1024), 100_000, 1023 + 128 + 2),
        (Chunked(8192), 100_000, 8192 + 128 + 2),
        # the context is shorter
        (Sliding(1024), 900, 900),
    ],
)
def test_window_tokens_per_sequence(window: Any, context: int, slots: int) -> None:
    sglang_layout = hybrid_layout(1, 4, window, swa_full_tokens_ratio="0.01")
    # 2 full, 6 windowed: the windows' pool is 0.01 of the full one, so 100 slots of the full pool
    # per slot of its own
    tokens = max(10 * context, 100 * max(10 * slots, sglang_layout.pools.window + 2))
    assert sglang_layout.needed(10, context) == -(-tokens * 4096 * (2 * 100 + 6) // 100)


def test_a_drafter_needs_more_window_tokens_per_sequence() -> None:
    # 1,023 before the query, 128 steps of 4 tokens not yet freed, a token to align and 2 * 4 for
    # two steps
    drafted = hybrid_layout(1, 4, Sliding(1024), swa_full_tokens_ratio="0.01", speculative_tokens=4)
    assert drafted.needed(10, 100_000) == 100 * 10 * (1023 + 512 + 1 + 8) * 4096 * 206 // 100
    # in pages of 16: 1023 + 512 + 16 + 8 = 1559 are 98 pages; without a drafter a page: 1023 + 128
    # + 32 are 74
    paged = hybrid_layout(
        1, 4, Sliding(1024), swa_full_tokens_ratio="0.01", speculative_tokens=4, block_size=16
    )
    assert paged._swa_tokens_per_sequence(100_000) == 98 * 16
    assert (
        hybrid_layout(1, 4, Sliding(1024), block_size=16)._swa_tokens_per_sequence(100_000)
        == 74 * 16
    )
    # with --speculative-layers only, the drafter is taken to propose one token
    assert (
        hybrid_layout(
            1, 4, Sliding(1024), speculative_layers=1, block_size=16
        )._swa_tokens_per_sequence(100_000)
        == 74 * 16
    )
    assert (
        hybrid_layout(
            1, 4, Sliding(1026), speculative_layers=1, block_size=16
        )._swa_tokens_per_sequence(100_000)
        == 74 * 16
    )


def test_a_stage_with_only_windows_has_as_many_tokens_as_the_full_pool() -> None:
    # stages of 2 full and 1 windowed layer (2.8 * 4,096 B) and of 3 windowed ones (3 * 4,096 B)
    sglang_layout = layout_of((2, MHA), (4, MHA.with_span(Sliding(8))), pp=2)
    assert sglang_layout.needed(1, 1000) == 1000 * 3 * 4096
    assert sglang_layout.pool(1000 * 3 * 4096, 1000).tokens == 1000


def test_one_pool_with_the_option_or_with_only_windows() -> None:
    hybrid, request = (
        hybrid_layout(1, 2, Sliding(8)),
        hybrid_layout(1, 2, Sliding(8), disable_hybrid_swa_memory=True),
    )
    alone = layout_of((8, MHA.with_span(Sliding(8))))
    assert request.needed(2, 999) == alone.needed(2, 999) == 2 * 999 * 8 * 4096
    assert hybrid.pools.swa is not None
    assert any("whole context" in note for note in alone.notes)
    assert any("--disable-hybrid-swa-memory" in note for note in hybrid.notes)


@pytest.mark.parametrize(
    ("model_type", "has_swa_pool"),
    [("gpt_oss", True), ("gemma3", False), ("mistral", False), (None, True)],
)
def test_the_model_type_decides_whether_windows_have_a_pool(
    model_type: str | None, has_swa_pool: bool
) -> None:
    sglang_layout = hybrid_layout(1, 2, Sliding(128), 24, model_type=model_type)
    assert (sglang_layout.pools.swa is not None) is has_swa_pool
    notes = " ".join(sglang_layout.notes)
    assert ("other models (Gemma 2 and 3)" in notes) is (model_type is None)
    assert (
        f"for model_type {model_type}: windows and chunks are stored" in notes
    ) is not has_swa_pool
    if not has_swa_pool:  # 24 layers of 4,096 B, whatever the window
        assert sglang_layout.needed(2, 999) == 2 * 999 * 24 * 4096


def test_unsupported_window_pools_are_errors() -> None:
    windows = MHA.with_span(Sliding(8))
    for layers in ([(1, MHA), (1, windows), (1, GDN)], [(2, windows)]):
        with pytest.raises(AttncalcError, match="a sliding-window pool"):
            layout_of(*layers, model_type="inkling_mm_model")
        assert (
            layout_of(
                *layers, model_type="inkling_mm_model", disable_hybrid_swa_memory=True
            ).pools.swa
            is None
        )
        assert layout_of(*layers, model_type="nobody").pools.swa is None


# States.


def test_state_dtypes() -> None:
    def slot(kind: Any, **more: Any) -> int:
        states = layout_of((1, MHA), (1, kind), **more).states
        assert states is not None
        return int(states.slot_bytes)

    # 4 heads * 8 * 16: fp32 unless the model or the option message otherwise; the 3 tokens of the
    # convolution in bf16
    convolution = (4 * 8 + 2 * 16) * 3 * 2
    mamba = Mamba2(4, 8, 16, 4, 1)
    assert slot(mamba) == 4 * 8 * 16 * 4 + convolution
    assert slot(mamba, kv="fp8", model="fp32") == 4 * 8 * 16 * 4 + convolution
    assert slot(Mamba2(4, 8, 16, 4, 1, state_dtype="bf16")) == 4 * 8 * 16 * 2 + convolution
    assert slot(mamba, mamba_ssm_cache_dtype=dtype("fp16")) == 4 * 8 * 16 * 2 + convolution
    assert slot(Lightning(4, 8)) == 4 * 8 * 8 * 4


@pytest.mark.parametrize(
    ("kind", "more", "slots"), [(GDN, {}, 5), (ShortConvolution(40, 3), {}, 3)]
)
def test_the_radix_cache_copies_states(kind: Any, more: dict[str, Any], slots: int) -> None:
    states = layout_of((1, MHA), (1, kind), **more).states
    assert states is not None
    assert states.slots_per_sequence == slots


def test_without_the_radix_cache_each_sequence_has_one_slot() -> None:
    sglang_layout = layout_of(
        (2, MHA), (3, Lightning(1, 8)), prefix_caching=False, max_running_requests=7
    )
    # (7 + 1) slots of 3 * 8 * 8 * 4 B, and 7 sequences of 10 tokens of 8,192 B
    assert sglang_layout.needed(7, 10) == 8 * 768 + 70 * 8192
    assert sglang_layout.pool(8 * 768 + 70 * 8192, 10).concurrency[:2] == (70, 10)
    assert sglang_layout.pool(8 * 768 + 80 * 8192, 10).concurrency[:2] == (7, 1)
    alone = layout_of((2, MHA), (3, Lightning(1, 8)), prefix_caching=False).states
    assert alone is not None
    assert (alone.slots_per_sequence, alone.fixed_slots) == (1, None)


def test_max_total_tokens_caps_the_pool() -> None:
    """5,000 tokens in pages of 64 are 78 pages: 4,992 tokens, of 80,000 that the memory holds."""
    engine, capped = (
        find_engine("sglang"),
        layout_of((1, MHA), block_size=64, max_total_tokens=5000),
    )
    pool = capped.pool(80_000 * 4096, 2000)
    assert (pool.tokens, pool.blocks, pool.log_lines[-1]) == (
        4992,
        78,
        "max_total_num_tokens=4992, ...",
    )
    # 39 pages, and 40
    assert [engine.admits(capped, 2, context) for context in (2496, 2497)] == [True, False]
    assert capped.pool(640 * 4096, 2000).tokens == 640
    assert (
        layout_of((1, MHA), block_size=64, max_total_tokens=90_000).pool(80_000 * 4096, 2000).tokens
        == 80_000
    )
    assert (
        layout_of((1, MHA), max_total_tokens=1000, dcp=2, tp=2, n_kv_heads=1)
        .pool(80_000 * 4096, 10)
        .tokens
        == 2000
    )


def test_slots_of_states_can_be_given() -> None:
    """64 slots of 3 * 8 * 8 * 4 B and one that no sequence gets; 64 // 5 = 12 sequences with the
    radix cache.
    """
    given = layout_of((2, MHA), (3, Lightning(1, 8)), max_mamba_cache_size=64)
    assert given.max_num_seqs == 12
    pool = given.pool(65 * 768 + 80 * 8192, 10)
    assert pool.tokens == 80
    assert {detail.name: int(detail.quantity) for detail in pool.details}["state_slots"] == 64
    assert (
        layout_of(
            (2, MHA), (3, Lightning(1, 8)), max_mamba_cache_size=64, max_running_requests=8
        ).max_num_seqs
        == 8
    )
    without = layout_of(
        (2, MHA), (3, Lightning(1, 8)), max_mamba_cache_size=64, prefix_caching=False
    )
    assert without.max_num_seqs == 64
    # two ranks of attention have half of them each
    halves = layout_of(
        (2, MHA), (3, Lightning(1, 8)), max_mamba_cache_size=64, attn_dp=2, tp=2
    ).states
    assert halves is not None
    assert halves.fixed_slots == 32
    with pytest.raises(AttncalcError, match="a request takes 5 slots"):
        layout_of((2, MHA), (3, Lightning(1, 8)), max_mamba_cache_size=9, attn_dp=2, tp=2)


def test_a_drafter_copies_states_per_proposed_token() -> None:
    # 1,000 B per slot, half the memory, 3 slots per sequence, 2 tokens ahead: 30,000 B hold
    # (15,000 - 3,000) // (1,000 * 5 / 3) = 7 slots; 7 // 3 = 2 sequences, (2 + 1) * 2 copies
    states = StatePool(1000, Fraction(1), 3, 2, 48, None)
    assert states.slots_in(30_000) == 7
    assert states.token_memory(30_000, 7) == 30_000 - 8 * 1000 - 6 * 1000
    # no more than 1 sequence at once: (1 + 1) * 2 copies
    assert (
        states._replace(max_running_requests=1).token_memory(30_000, 7)
        == 30_000 - 8 * 1000 - 4 * 1000
    )


def test_versions_take_the_copies_of_states_from_other_parts_of_the_memory() -> None:
    """Qwen3.5-35B-A3B on a GB10 with 16 drafted tokens (file 51954681097, a nightly build of April
    2026).

    0.75 * 112.95 GiB free - 20.44 of weights = 64.27 GiB. The copies for 48 requests are taken
    first: 46.1 GiB. 9 / 19 of the rest are 143 slots, "ssm_state size: 8.44GB" with one more, and
    35 requests of 4 slots have copies, also with one more: 36 * 16 * 60 MiB = 33.75 GiB, as logged.
    The rest holds 278K tokens of 10 layers and 8 of the drafter.
    """
    layers = (30, GDN), (18, Grouped(16, 2, 256))
    slot = 30 * (32 * 128 * 128 * 4 + 8192 * 3 * 2)
    memory = 6427 * GIB // 100
    old = layout_of(*layers, speculative_tokens=16, engine_version="0.5.11")
    pool = old.pool(memory, 4096)
    assert old.states is not None
    assert pool.log_lines[0].startswith(
        "Mamba Cache is allocated. max_mamba_cache_size: 143, conv_state size: 0.20GB, ssm_state "
        "size: 8.44GB"
    )
    assert (old.states._running(143) + 1) * 16 * 60 / 1024 == 33.75
    assert pool.tokens == (memory - (48 * 16 + 143) * slot) // (18 * 2048) == 280_786
    # up to 0.5.6 each slot has its copies; from 0.5.13 on the requests that have slots, from 0.5.17
    # on with one more
    found = {
        version: layout_of(*layers, speculative_tokens=16, engine_version=version).pool(
            memory, 4096
        )
        for version in ("0.5.6", "0.5.7", "0.5.13", "0.5.17")
    }
    slots = {
        version: {d.name: d.quantity for d in pool.details}["state_slots"]
        for version, pool in found.items()
    }
    share = memory * 9 // 19
    assert slots == {
        "0.5.6": share // (17 * slot),
        "0.5.7": 143,
        "0.5.13": share * 4 // (slot * (4 + 16)),  # steps do not overlap before 0.5.14
        "0.5.17": (share - 17 * slot) * 5 // (slot * (5 + 16)),
    }


def test_requests_take_fewer_slots_of_states_in_old_versions() -> None:
    """Qwen3.5-9B on two RTX 4090 with 0.5.10 has 186 slots and max_running_requests=62, so 3 per
    request.
    """

    def per_sequence(version: str, **given: Any) -> int:
        states = layout_of((1, MHA), (1, GDN), engine_version=version, **given).states
        assert states is not None
        return states.slots_per_sequence

    assert [per_sequence(version) for version in ("0.5.10", "0.5.13", "0.5.14")] == [3, 3, 5]
    assert per_sequence("0.5.10", mamba_radix_cache_strategy="extra_buffer") == 5
    assert per_sequence("0.5.23", mamba_radix_cache_strategy="no_buffer") == 3
    drafts: dict[str, Any] = {"speculative_tokens": 4}
    assert [
        per_sequence(version, **drafts, speculative_layers=1) for version in ("0.5.10", "0.5.11")
    ] == [4, 5]
    # DFlash and n-grams
    assert [per_sequence(version, **drafts) for version in ("0.5.13", "0.5.14")] == [4, 5]


def test_windows_beside_states_are_stored_like_full_attention() -> None:
    assert layout_of((1, MHA), (1, MHA.with_span(Sliding(8))), (1, GDN)).pools.swa is None


def test_all_stages_have_slots_as_large_as_the_largest() -> None:
    # stages of 2 attention and 1 lightning layer and of 3 lightning layers: 3 * 8 * 8 * 4 B per
    # slot on both
    sglang_layout = layout_of((2, MHA), (4, Lightning(1, 8)), pp=2)
    assert sglang_layout.states is not None
    assert sglang_layout.states.slot_bytes == 768
    # 20 slots, of which no sequence gets one, are 9 / 19 of the memory; the first stage alone has
    # tokens, 8,192 B each
    memory = 20 * 768 * 19 // 9 + 1
    assert sglang_layout.pool(memory, 1).tokens == (memory - 20 * 768) // 8192
    # the other way round the second one has them: 19 GiB hold 10 GiB of tokens, 5 of K and 5 of V
    reversed_stages = layout_of((4, Lightning(1, 8)), (2, MHA), pp=2).pool(19 * GIB, 1)
    assert reversed_stages.log_lines[1].endswith("K size: 5.00 GB, V size: 5.00 GB")


def test_the_search_for_slots_starts_near_its_result() -> None:
    # the search starts only a few slots above its result, with and without a limit on sequences
    for max_running_requests in (1, 48, 10**9):
        states = StatePool(1000, Fraction(9, 10), 5, 4, max_running_requests, None)
        slots = states.slots_in(states.needed(10**12, 1))
        assert 0 <= states._enough_slots(10**12, 1) - slots < 20


@given(
    st.integers(1, 60),
    st.sampled_from(["0.9", "0.1", "1", "3", "0.37"]),
    st.sampled_from([1, 3, 5]),
    st.sampled_from([0, 1, 4]),
    st.sampled_from([1, 2, 48]),
    st.integers(1, 2000),
    st.integers(1, 6),
    st.sampled_from([{}, {"padding": 0}, {"padding": 0, "reserved_for_copies": 77}]),
)
def test_any_memory_from_needed_on_is_enough(
    slot: int,
    share: str,
    per_sequence: int,
    drafted_tokens: int,
    max_running_requests: int,
    tokens: int,
    sequences: int,
    more: dict[str, int],
) -> None:
    states = StatePool(
        slot,
        Fraction(share),
        per_sequence,
        drafted_tokens,
        max_running_requests if drafted_tokens else None,
        None,
        **more,
    )

    def holds(memory: int) -> bool:
        slots = int(states.slots_in(memory))
        return (
            slots // per_sequence >= sequences and int(states.token_memory(memory, slots)) >= tokens
        )

    needed = states.needed(tokens, sequences)
    assert not holds(needed - 1)
    assert all(holds(needed + more) for more in (*range(5 * slot), 17 * slot, 1000 * slot))


# Properties of all models.


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "block_size": st.sampled_from([1, 16, 64]),
        "swa_full_tokens_ratio": st.sampled_from(["1", "0.8", "0.1"]),
        "speculative_layers": st.integers(0, 2),
        "disable_hybrid_swa_memory": st.booleans(),
    },
)


@given(models(), SETTINGS, st.integers(1, 40), st.integers(1, 300))
def test_needed_is_the_least_memory_that_holds(
    model: Any, more: Any, batch: int, context: int
) -> None:
    try:
        plain = find_engine("sglang").layout(layer_cache_specs(model.plain()), engine_args(**more))
        shown = find_engine("sglang").layout(
            layer_cache_specs(model.symbolic(gathered=False)), engine_args(**more)
        )
    except AttncalcError:
        return  # rows of several sizes, several windows
    needed = plain.needed(batch, context)
    assert type(needed) is int
    enough, short = plain.pool(needed, context), plain.pool(needed - 1, context)
    assert Fraction(*short.concurrency[:2]) < batch <= Fraction(*enough.concurrency[:2])
    assert plain.needed(batch + 1, context) >= needed <= plain.needed(batch, context + 1)
    assert (
        find_engine("ideal")
        .layout(layer_cache_specs(model.plain()), engine_args())
        .needed(batch, context)
        <= needed
    )
    # the formulas give the same numbers
    figure = shown.needed(batch, context)
    pool = shown.pool(needed, context)
    assert isinstance(figure, Quantity)
    assert figure == needed
    assert pool.log_lines == enough.log_lines
    for shown_figure in (
        figure,
        pool.tokens,
        pool.concurrency,
        *(detail.quantity for detail in pool.details),
    ):
        text_of(shown_figure)


# The share of a GPU's memory.


def test_a_request_has_the_kinds_of_attention() -> None:
    # 1536 MiB for MLA instead of 58 * 8
    request = FitRequest(
        load("deepseek-v3"), Workload.decode(1, 4096), "sglang", gpu=gpu("h100-80gb"), gpus=8
    )
    resolved = resolve(request)
    assert resolved.args.attentions == {"MLA"}
    memory = gpu("h100-80gb").memory // 2**20 + 500  # what nvidia-smi shows
    mib = 512 + 12288 + 8 * 128 + 512 * 2 + 1536
    assert resolved.share is not None
    assert float(resolved.share.text) == round((memory - mib) / memory, 3)


# Errors.


@each(
    ("layers", "more", "message"),
    [
        ([(1, MHA), (1, Grouped(32, 4, 128))], {}, "rows of one size"),
        ([(1, MHA), (1, MHA.with_span(Sliding(8))), (1, MHA.with_span(Sliding(9)))], {}, "several"),
        ([(1, MHA.with_span(Blocks(64, 16)))], {}, "blocks of 64"),
        ([(3, GDN)], {}, "no layer caches any"),
        ([(1, MHA)], {"kv": "int8"}, "no cache in int8"),
        ([(1, MHA)], {"kv": "fp16"}, "no cache in fp16 for a model in bf16"),
        ([(1, DSA)], {"kv": "fp4"}, "an indexer cannot be in fp4"),
        ([(1, Grouped(8, 4, 192, 128))], {"kv": "fp4"}, "fp4 needs"),
        ([(1, DSA)], {"block_size": 16}, "pages of 64 tokens"),
        ([(1, MHA), (1, ShortConvolution(40, 3))], {"block_size": 16}, "pages of 1 token"),
        ([(1, MHA), (1, GDN)], {"speculative_layers": 1}, "--speculative-tokens is required"),
        ([(1, MHA)], {"engine_version": "0.3.5"}, "0.3.5 is not supported"),
        ([(1, MHA)], {"engine_version": "newest"}, "no version 'newest'"),
        ([(1, MHA)], {"swa_full_tokens_ratio": "1.5"}, "at most 1"),
        ([(1, MHA)], {"swa_full_tokens_ratio": "1e9"}, "not a number above 0"),
        ([(1, MHA), (1, GDN)], {"mamba_full_memory_ratio": "0.0"}, "not a number above 0"),
        (
            [(1, MHA), (1, MHA.with_span(Sliding(8)))],
            {"prefix_caching": False, "max_running_requests": 4},
            "prefill chunk",
        ),
    ],
)
def test_unsupported_combinations_are_errors(
    layers: list[tuple[int, Any]], more: dict[str, Any], message: str
) -> None:
    with pytest.raises(AttncalcError, match=message) as error:
        layout_of(*layers, **more)
    assert error.value.tip


@pytest.mark.parametrize(
    ("cached", "message"),
    [
        (CacheSpec("memory", 1, 8), "how SGLang stores this cache: memory"),
        (CacheSpec("K and V", 2, 8, per="source token", role="kv"), "K and V of a source"),
        (CacheSpec("indexer keys", 1, 64, role="indexer"), "of 64 elements"),
    ],
)
def test_unsupported_caches_are_errors(cached: CacheSpec, message: str) -> None:
    with pytest.raises(AttncalcError, match=message):
        find_engine("sglang").layout([LayerCacheSpec(1, (*MHA.cache(), cached))], engine_args())


def test_later_versions_are_computed_like_the_newest_known() -> None:
    sglang_layout = layout_of((1, MHA), engine_version="0.6.1")
    assert (sglang_layout.facts[0], sglang_layout.version) == ("version 0.6.1", "0.6.1")
    assert "0.5.23" in sglang_layout.notes[0]


# Buffers for LoRA adapters.


LLAMA_LORA: dict[str, Any] = {
    "enable_lora": True,
    "max_lora_rank": 64,
    "lora_target_modules": "all",
}
# Bytes per input or output: 8 adapters of rank 64 in bf16.
PAIR = 8 * 64 * 2


@each(
    ("model", "options", "widths"),
    [
        # q and o have 4096 + 4096 inputs and outputs, k and v 4096 + 1024, gate, up and down 4096 +
        # 14,336: 81,920; embedding and head 128,256 + 4096 each, and both of them twice
        # (init_embedding_buffer)
        ("llama3-8b", {}, 32 * (2 * 8192 + 2 * 5120 + 3 * 18_432) + 2 * 2 * (128_256 + 4096)),
        ("llama3-8b", {"lora_target_modules": "q_proj,down_proj"}, 32 * (8192 + 2 * 5120 + 18_432)),
        ("llama3-8b", {"lora_target_modules": "embed_tokens"}, 128_256 + 4096),
        # half of the outputs of q, k, v, gate and up, and half of the inputs of o and down
        (
            "llama3-8b",
            {"lora_target_modules": "qkv_proj,o_proj,gate_up_proj,down_proj", "tp": 2},
            32 * (6144 + 2 * 4608 + 6144 + 3 * 11_264),
        ),
        # the head's outputs are divided, the embedding is not
        ("llama3-8b", {"lora_target_modules": "lm_head", "tp": 2}, 4096 + 64_128),
        # a pair per expert
        (
            "qwen3-30b-a3b",
            {"lora_target_modules": "o_proj gate_proj"},
            48 * (4096 + 2048 + 128 * 2 * (2048 + 768)),
        ),
        # the 3 dense layers of DeepSeek-V3 have buffers for 256 experts of 2,048 too, and their own
        # MLP of 18,432
        (
            "deepseek-v3",
            {"lora_target_modules": "down_proj"},
            61 * 256 * (7168 + 2048) + 58 * (7168 + 2048) + 3 * (7168 + 18_432),
        ),
        # q_a and kv_a: 7168 inputs each, 1,536 and 576 outputs, which nothing divides
        (
            "deepseek-v3",
            {"lora_target_modules": "q_a_proj", "tp": 8},
            61 * (7168 + 1536 + 7168 + 576),
        ),
    ],
)
def test_lora_buffers_have_a_pair_for_each_target_module(
    model: str, options: dict[str, Any], widths: int
) -> None:
    """Source: get_lora_A_shape, get_lora_B_shape and init_buffers in SGLang 0.5.23's
    lora/mem_pool.py.
    """
    result = fit(model, engine="sglang", gpu="b200", context=4096, **{**LLAMA_LORA, **options})
    assert result.budget.weights is not None
    (size,) = (part.size for part in result.budget.weights.extra if part.name == "weights_lora")
    assert size == widths * PAIR


@each(("options", "devices"), [({}, 1), ({"tp": 8}, 8), ({"tp": 4, "expert_parallel": True}, 0)])
def test_experts_that_ktransformers_has_on_the_host_leave_the_gpus(
    options: dict[str, Any], devices: int
) -> None:
    """120 of 128 experts in each of 48 layers, of 3 x 2,048 x 768 in bf16; with expert parallelism
    24 of 32 per GPU.
    """
    sizes = []
    for experts in (128, 8):
        budget = fit(
            "qwen3-30b-a3b", engine="sglang", gpu="h100", kt_num_gpu_experts=experts, **options
        ).budget
        assert budget.weights is not None
        sizes.append(int(budget.weights.total))
    gone = 120 * 48 // devices if devices else 24 * 48
    assert sizes[0] - sizes[1] == gone * 3 * 2048 * 768 * 2


def test_fewer_adapters_of_a_batch_take_less() -> None:
    sizes = []
    for adapters in (8, 2):
        options: dict[str, Any] = {"max_loras_per_batch": adapters, "lora_target_modules": "o_proj"}
        result = fit("llama3-8b", engine="sglang", gpu="h100", **{**LLAMA_LORA, **options})
        assert result.budget.weights is not None
        sizes += [part.size for part in result.budget.weights.extra if part.name == "weights_lora"]
    assert sizes == [32 * 8192 * PAIR, 32 * 8192 * PAIR // 4]


@each(
    ("model", "options", "message"),
    [
        ("llama3-8b", {"max_lora_rank": None}, "enable_lora needs max_lora_rank"),
        ("llama3-8b", {"lora_target_modules": None}, "enable_lora needs lora_target_modules"),
        ("llama3-8b", {"enable_lora": False}, "adapters of LoRA need enable_lora"),
        ("llama3-8b", {"pp": 2}, "enable_lora is not supported with pp"),
        (
            "llama3-8b",
            {"lora_target_modules": "query"},
            "'query' is not a module with LoRA adapters",
        ),
        (
            "llama3-8b",
            {"lora_target_modules": "all,o_proj"},
            "'all' is not a module with LoRA adapters",
        ),
        ("llama3-8b", {"lora_target_modules": " "}, "'' is not a module with LoRA adapters"),
        ("qwen3-next-80b-a3b", {"tp": 2}, "LoRA buffers are not known for GDN"),
        ("deepseek-v2-lite", {}, "LoRA buffers are not known for MLA"),
    ],
)
def test_lora_buffers_that_are_not_known_are_an_error(
    model: str, options: dict[str, Any], message: str
) -> None:
    given = {name: value for name, value in {**LLAMA_LORA, **options}.items() if value is not None}
    with pytest.raises(AttncalcError, match=message):
        fit(model, engine="sglang", gpu="h200", **given)
