"""SGLang's layout at its limits: least memories, slots of states, pages, formulas, details and log
lines.

Whole models and errors are in test_sglang.py.
"""

from fractions import Fraction
from typing import Any

import pytest
from evaluate import text_of
from tables import each
from test_sglang import GDN, MHA, MLA, engine_args, hybrid_layout, layout_of

from attncalc import Sliding
from attncalc.attention.linear import Lightning
from attncalc.engines import find_engine
from attncalc.engines.base import Pool
from attncalc.engines.pipeline import LayerCacheSpec
from attncalc.engines.sglang.slots import SglangLayout
from attncalc.engines.sglang.states import StatePool
from attncalc.quantity import symbol, symbolic

GIB = 2**30
# Bytes of a token in one layer of MHA: 8 heads of K and V, 128 elements in bf16.
ROW = 8 * 2 * 128 * 2
ONE = Fraction(1)
# Slots of 1,000 B in half of the memory.
HALF = StatePool(1000, ONE, 3, 0, None, None)
DRAFTING = StatePool(1000, ONE, 3, 2, 48, None)


def in_symbols(*layers: tuple[int, Any], **more: Any) -> SglangLayout:
    specs = [LayerCacheSpec(n, symbolic(kind).cache()) for n, kind in layers]
    found = find_engine("sglang").layout(specs, engine_args(**more))
    assert isinstance(found, SglangLayout)
    return found


def details(pool: Pool) -> dict[str, int]:
    return {detail.name: int(float(detail.quantity)) for detail in pool.details}


# Slots of states.


@each(
    ("states", "memory", "slots", "left"),
    [
        # 2 slots are the half of 4,000 B, and one of them is never given to a sequence
        (HALF, 4000, 1, 2000),
        (HALF, 3999, 0, 0),
        (HALF, 5999, 1, 3999),
        (HALF, 6000, 2, 3000),
        (HALF, 2000, 0, 0),
        (HALF, 0, 0, 0),
        # without any slot the pool's share less the one of no sequence is below 0
        (DRAFTING, 0, 0, 0),
        (DRAFTING, 6000, 0, 0),
        # 1 slot with a third of 2 copies needs 5,000 / 3 B of the half, beside 3,000 B of no
        # sequence
        (DRAFTING, 9332, 0, 0),
        (DRAFTING, 9334, 1, 9334 - 2 * 1000 - 2 * 1000),
        # 3 / 4 of the memory
        (HALF._replace(ratio=Fraction(3)), 4000, 2, 1000),
        # without the radix cache the number of slots is fixed, and they may need more than there is
        (HALF._replace(fixed_slots=7), 8001, 7, 1),
        (HALF._replace(fixed_slots=7), 8000, 7, 0),
        (HALF._replace(fixed_slots=7), 7000, 7, 0),
    ],
)
def test_slots_of_a_memory_and_what_they_leave_for_tokens(
    states: StatePool, memory: int, slots: int, left: int
) -> None:
    assert states.slots_in(memory) == slots
    assert states.token_memory(memory, slots) == left


def test_slots_and_the_memory_for_tokens_have_formulas() -> None:
    memory = symbol("kv_memory", 10**6, "bytes")
    half, drafting = (
        states._replace(slot_bytes=symbol("slot", 1000, "bytes")) for states in (HALF, DRAFTING)
    )
    assert text_of(half.slots_in(memory)) == "kv_memory // (2 * state_bytes_per_slot) - 1"
    # of the half 3 slots are for no sequence, and a third of 2 copies comes with each other slot
    slots = drafting.slots_in(memory)
    assert text_of(slots) == (
        "(kv_memory - 2 * state_bytes_per_slot * 3) * 3 // (2 * state_bytes_per_slot * 5)"
    )
    left = drafting.token_memory(memory, 7)
    assert text_of(left) == "kv_memory - 8 * state_bytes_per_slot - 6 * state_bytes_per_slot"


@pytest.mark.parametrize(
    ("states", "token_bytes", "slots"),
    [
        # 10 B and half of the memory: n slots are in 20 (n + 1) B, of which 10 (n + 1) B are for
        # tokens
        (StatePool(10, ONE, 1, 0, None, None), 100, 9),
        (StatePool(10, ONE, 1, 0, None, None), 101, 10),
        (StatePool(10, ONE, 1, 0, 3, None), 100, 9),
        # four copies of each: 50 (n + 1) B for tokens
        (StatePool(10, ONE, 1, 4, 10**6, None), 500, 9),
        (StatePool(10, ONE, 1, 4, 10**6, None), 501, 10),
        # at most 10 sequences have copies, and there is one set more: 100 (n + 1) - 10 (n + 1 + 44)
        # B
        (StatePool(10, ONE, 1, 4, 10, None), 2100 - 650, 20),
        (StatePool(10, ONE, 1, 4, 10, None), 2100 - 650 + 1, 21),
        # 3 / 4 of the memory: 40 / 3 * 5 (n + 1) - 10 (n + 1 + 44) B
        (StatePool(30, Fraction(3), 1, 4, 10, None), 200 * 51 - 30 * 95, 50),
    ],
)
def test_the_search_starts_at_the_slots_that_always_leave_enough(
    states: StatePool, token_bytes: int, slots: int
) -> None:
    """If every slot has its own copies, the first number of slots with enough room for tokens is
    exact.
    """
    assert states._enough_slots(token_bytes, 1) == slots
    assert states._enough_slots(token_bytes, slots + 5) == slots + 5


@pytest.mark.parametrize(
    ("states", "token_bytes", "sequences", "needed"),
    [
        # the example of the docstring: from 65 to 79 B there are 2 slots, and 30 B are taken
        (StatePool(10, ONE, 1, 0, None, None), 35, 1, 65),
        (StatePool(10, ONE, 1, 0, None, None), 30, 1, 50),
        (StatePool(10, ONE, 1, 0, None, None), 10, 1, 40),
        (StatePool(10, ONE, 1, 0, None, None), 10, 2, 60),
        # 14 B have 3 slots for a sequence, 4 B, and 2 copies: 8 B are left; 13 B leave 7
        (StatePool(1, ONE, 3, 1, 1, None), 8, 1, 14),
        # 3 slots per sequence
        (StatePool(10, ONE, 3, 0, None, None), 10, 2, 140),
        # (7 + 1) slots whatever the ratio
        (StatePool(10, ONE, 1, 0, 7, 7), 33, 2, 113),
        # and 2 copies for each of 7 sequences, and one set more
        (StatePool(10, ONE, 1, 2, 7, 7), 33, 2, 113 + 160),
    ],
)
def test_the_least_memory_for_tokens_and_states(
    states: StatePool, token_bytes: int, sequences: int, needed: int
) -> None:
    assert states.needed(token_bytes, sequences) == needed


# Pages.


@pytest.mark.parametrize(
    ("page", "window", "tokens"),
    [
        # more than one window and one page: with 15 tokens before the query, in pages of 16, 32 are
        # not enough
        (16, Sliding(16), 32),
        (16, Sliding(17), 48),
        (16, Sliding(32), 48),
        (16, Sliding(33), 64),
        (1, Sliding(16), 17),
        (2, Sliding(16), 18),
        (2, Sliding(17), 20),
    ],
)
def test_the_window_pool_has_more_than_a_window_and_a_page(
    page: int, window: Sliding, tokens: int
) -> None:
    """With --swa-full-tokens-ratio 1 both pools have as many tokens."""
    sglang_layout = hybrid_layout(1, 2, window, 2, swa_full_tokens_ratio="1", block_size=page)
    assert sglang_layout.needed(1, 1) == tokens * 2 * ROW
    assert sglang_layout.pool(tokens * 2 * ROW, 1).concurrency.numerator > 0
    assert sglang_layout.pool((tokens - page) * 2 * ROW, 1).concurrency.numerator == 0
    assert sglang_layout.pool(0, 1).concurrency.numerator == 0


def test_pages_of_two_tokens_round_up_contexts_and_round_down_pools() -> None:
    sglang_layout = layout_of((1, MHA), block_size=2)
    assert sglang_layout.needed(3, 7) == 3 * 8 * ROW
    pool = sglang_layout.pool(7 * ROW, 3)
    assert (pool.tokens, pool.blocks, pool.concurrency[:2]) == (6, 3, (6, 4))


def test_a_shared_prefix_is_counted_once_in_whole_pages() -> None:
    """Of 100 tokens of which 70 are shared, pages of 16 share 64: 112 tokens, and 48 of each
    further sequence.
    """
    paged = layout_of((1, MHA), block_size=16).with_shared_prefix(70)
    assert paged
    assert paged.needed(5, 100) == (112 + 4 * 48) * ROW
    assert paged.needed(1, 100) == 112 * ROW
    single = layout_of((1, MHA)).with_shared_prefix(70)
    assert single
    assert single.needed(5, 100) == (100 + 4 * 30) * ROW
    assert layout_of((1, MHA), prefix_caching=True).with_shared_prefix(70)
    assert layout_of((1, MHA), prefix_caching=False).with_shared_prefix(70) is None


# Formulas.


def test_formulas_have_a_page_size_only_if_it_rounds() -> None:
    batch, context = symbol("B", 3, "sequences"), symbol("T", 100, "tokens")
    cost = "L * 2 * n_kv_heads * d_head * bytes"
    single, paged = in_symbols((3, MHA)), in_symbols((3, MHA), block_size=16)
    assert text_of(single.needed(batch, context)) == f"B * T * {cost}"
    assert text_of(paged.needed(batch, context)) == f"B * ceil(T / page_size) * page_size * {cost}"
    pool = single.pool(10**9, 100)
    assert text_of(pool.tokens) == "kv_memory // kv_bytes_per_token"
    assert text_of(pool.blocks) == "kv_memory // kv_bytes_per_token // page_size"
    assert text_of(pool.concurrency) == "kv_tokens / T"
    pool = paged.pool(10**9, 100)
    assert text_of(pool.tokens) == "kv_memory // kv_bytes_per_token // page_size * page_size"
    assert text_of(pool.concurrency) == "kv_tokens / (ceil(T / page_size) * page_size)"


def test_formulas_of_two_pools_have_the_ratio_unless_it_is_one() -> None:
    layers = (1, MHA), (2, MHA.with_span(Sliding(9)))
    batch, context = symbol("B", 3, "sequences"), symbol("T", 100, "tokens")
    cost = "(5 * full_bytes_per_token + 4 * swa_bytes_per_token)"
    eight, equal = in_symbols(*layers), in_symbols(*layers, swa_full_tokens_ratio="1")
    # the windows' pool has more than 8 tokens and one page: 10 of its own
    windows = "max(B * min(T, window_slots), 10)"
    assert (
        text_of(eight.needed(batch, context))
        == f"ceil(max(B * T, ceil({windows} * 5 / 4)) * {cost} / 5)"
    )
    assert (
        text_of(equal.needed(batch, context))
        == f"max(B * T, {windows}) * (full_bytes_per_token + swa_bytes_per_token)"
    )
    pool = eight.pool(10**9, 100)
    assert text_of(pool.tokens) == f"kv_memory * 5 // {cost}"
    assert text_of(pool.details[2].quantity) == "full_tokens * 4 // 5"
    pool = equal.pool(10**9, 100)
    assert text_of(pool.tokens) == "kv_memory // kv_bytes_per_token"
    assert text_of(pool.details[2].quantity) == "full_tokens"


def test_slots_of_states_limit_concurrency_with_a_formula() -> None:
    pool = in_symbols((1, MHA), (2, GDN)).pool(10**9, 1)
    # 9 / 19 of 10^9 B hold 110 slots of 2 * (32 * 128 * 128 * 4 + 8192 * 3 * 2) B; one is not
    # given, and 5 per sequence
    assert details(pool)["state_slots"] == 109
    assert pool.concurrency[:2] == (21, 1)
    assert text_of(pool.concurrency) == "state_slots // slots_per_sequence / 1"
    assert text_of(pool.tokens).startswith(
        "(kv_memory - (kv_memory * 9 // (19 * state_bytes_per_slot) - 1 + 1)"
    )


# Details and log lines.


def test_a_stage_without_windows_has_no_bytes_of_windows() -> None:
    """Stages of 3 full layers, and of 1 full and 2 windowed: 3 * 4,096 B and (1 + 2 * 0.8) * 4,096
    B per token.
    """
    windows = MHA.with_span(Sliding(8))
    pool = layout_of((4, MHA), (2, windows), pp=2).pool(3 * ROW * 1000, 10)
    assert pool.tokens == 1000
    assert details(pool) == {
        "full_bytes_per_token": 3 * ROW,
        "swa_bytes_per_token": 0,
        "swa_tokens": 800,
        "kv_block_size": 1,
    }
    # a stage of 3 windowed layers has as many tokens in its one pool
    pool = layout_of((1, MHA), (5, windows), pp=2, swa_full_tokens_ratio="0.1").pool(
        3 * ROW * 1000, 10
    )
    assert details(pool)["full_bytes_per_token"] == 0
    assert details(pool)["swa_bytes_per_token"] == 3 * ROW


def test_every_pool_has_a_page_more_than_its_tokens() -> None:
    """1,024 full and 1,024 windowed layers of 4 MiB per token in all, 2 MiB of K, and as many
    tokens in both pools.

    1,024 tokens and a page of 64 are 1,088 * 4 MiB = 4.25 GiB in each pool.
    """
    layers = (1024, MHA), (1024, MHA.with_span(Sliding(64)))
    pool = layout_of(*layers, block_size=64, swa_full_tokens_ratio="1").pool(1024 * 8 * 2**20, 64)
    assert pool.log_lines == (
        "Use sliding window memory pool. full_layer_tokens=1024, swa_layer_tokens=1024",
        "Full KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1024, K size: 2.12 GB, V "
        "size: 2.12 GB",
        "SWA KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1024, K size: 2.12 GB, V "
        "size: 2.12 GB",
        "SWAKVPool mem usage: 8.50 GB, swa size: 1024, full size: 1024",
        "max_total_num_tokens=1024, ...",
    )
    # with half as many tokens for windows: 512 and 64 are 2.25 GiB
    pool = layout_of(*layers, block_size=64, swa_full_tokens_ratio="0.5").pool(1024 * 6 * 2**20, 64)
    assert pool.log_lines[3] == "SWAKVPool mem usage: 6.50 GB, swa size: 512, full size: 1024"


def test_states_of_a_drafter_are_named_in_the_log() -> None:
    """The sizes have a slot more: 3 * 1,024 layers of 4 heads * 8 * 8 * 4 B are 3 MiB per slot."""
    plain = layout_of((1, MHA), (3072, Lightning(4, 8))).pool(19 * GIB, 1)
    # 9 GiB of 19 are 3,072 slots
    line = (
        "Mamba Cache is allocated. max_mamba_cache_size: 3071, conv_state size: 0.00GB, ssm_state "
        "size: 9.00GB"
    )
    assert plain.log_lines[0] == line
    drafting = layout_of(
        (1, MHA), (3072, Lightning(4, 8)), speculative_tokens=1, prefix_caching=False
    )
    assert drafting.pool(19 * GIB, 1).log_lines[0].endswith("GB ...")
    assert "Mamba" not in layout_of((1, MHA)).pool(GIB, 1).log_lines[0]


def test_the_log_line_of_a_latent_has_one_size() -> None:
    # 1,024 layers * 576 * 2 B * (1,023 + 1) rows = 1.125 GiB
    pool = layout_of((1024, MLA)).pool(1023 * 1024 * 1152, 1)
    line = "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1023, KV size: 1.12 GB"
    assert pool.log_lines == (line, "max_total_num_tokens=1023, ...")
