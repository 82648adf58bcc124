"""vLLM's layout of toy models: its blocks and log lines by version, what it notes, and what it
refuses.
"""

import dataclasses
from typing import Any

import pytest
from asking import refusal
from tables import each

from attncalc import (
    AttncalcError,
    Chunked,
    Grouped,
    Head,
    Latent,
    Layers,
    Mlp,
    ModelSpec,
    Sliding,
    Stack,
    load,
)
from attncalc.attention import CacheSpec
from attncalc.attention.linear import GatedDeltaNet
from attncalc.config.gpus import gpu
from attncalc.cost.cache import layer_cache_specs
from attncalc.engines import find_engine
from attncalc.engines.base import CacheLayout
from attncalc.engines.vllm.options import VllmArgs
from attncalc.quantity import Quantity
from attncalc.records import dataclass
from attncalc.serving.fit import with_other_gpus
from attncalc.serving.request import FitRequest, resolve
from attncalc.units import dtype
from attncalc.workload import Workload

FULL, LATENT = Grouped(8, 4, 16), Latent(8, 50, 12, 6, 9)
WINDOW, DELTA = Grouped(8, 4, 16, span=Sliding(32)), GatedDeltaNet(4, 8, 8, 4)
DEVICE = "This is vLLM's layout on NVIDIA and AMD GPUs; its backend for "
BLOCKS = "Blocks of 16 tokens are those of vLLM's FLASH_ATTN_MLA; --block-size sets others."
OLD = (
    "The engine before V1 is computed as in vLLM 0.8.5; the source of older versions was not read."
)
PREFIX = "Prefix caching is "
BATCHED = "Batched tokens are the API server's default on an H100 or better"
DRAFTER = "The drafter's own layers are not counted"
STEPS = (
    "This assumes --pp + 1 steps in flight; a mixture of experts has --pp steps in this version."
)


def model(*kinds: Any, count: int = 2) -> ModelSpec:
    layers = tuple(
        Layers(f"kind{i}", count, attention=kind, mlp=Mlp(64)) for i, kind in enumerate(kinds)
    )
    return ModelSpec(
        "toy", "toy", (Stack("decoder", layers, 128),), vocab_size=100, head=Head("lm")
    )


def in_vllm(*kinds: Any, count: int = 2, kv: str = "bf16", **options: Any) -> CacheLayout:
    given = {
        "engine_version": "0.20.0",
        "device": "NVIDIA H100",
        "device_memory": 80 * 2**30,
        "max_model_len": 512,
    }
    args = VllmArgs(kv_dtype=dtype(kv), dtype=dtype("bf16"), **{**given, **options})
    return find_engine("vllm").layout(layer_cache_specs(model(*kinds, count=count).plain()), args)


@each(
    ("kinds", "options", "expected"),
    [
        ((FULL,), {}, []),
        ((FULL,), {"device": "Intel Gaudi 3"}, [DEVICE]),
        ((FULL,), {"device": "AMD MI300X"}, []),
        ((FULL,), {"device": ""}, []),
        ((FULL,), {"engine_version": "0.7.3"}, [OLD]),
        ((FULL,), {"engine_version": "0.8"}, []),
        ((LATENT,), {}, [BLOCKS]),
        ((LATENT,), {"block_size": 64}, []),
        ((LATENT,), {"block_size": 128, "engine_version": "0.17.1"}, []),
        ((LATENT,), {"block_size": 16}, []),
        (
            (LATENT,),
            {"block_size": 16, "engine_version": "0.17.1"},
            ["With FLASHMLA vLLM 0.17.1 uses blocks of 64, not --block-size."],
        ),
        ((LATENT,), {"engine_version": "0.7.3"}, [OLD]),
        ((FULL, WINDOW), {}, []),
        ((FULL, WINDOW), {"device_memory": None}, [BATCHED]),
        ((FULL, WINDOW), {"device_memory": None, "max_num_batched_tokens": 2048}, []),
        ((FULL,), {"device_memory": None}, []),
        ((FULL, DELTA), {"prefix_caching": False}, [f"{PREFIX}off. Each state takes one block"]),
        ((FULL, DELTA), {"engine_version": "0.25.0"}, [f"{PREFIX}off by default. Each state"]),
        (
            (FULL, DELTA),
            {"engine_version": "0.28.0"},
            [f"{PREFIX}on by default, which takes one more state per request"],
        ),
        ((FULL,), {"speculative_tokens": 2}, [DRAFTER]),
        ((FULL,), {"speculative_tokens": 2, "speculative_layers": 1}, []),
        ((FULL, WINDOW), {"pp": 2, "engine_version": "0.26.0"}, [STEPS]),
        ((FULL, WINDOW), {"pp": 1, "engine_version": "0.26.0"}, []),
        ((FULL, WINDOW), {"pp": 2, "engine_version": "0.29.0"}, []),
        ((FULL,), {"pp": 2, "engine_version": "0.26.0"}, []),
    ],
)
def test_notes_name_what_the_layout_assumes(
    kinds: Any, options: dict[str, Any], expected: list[str]
) -> None:
    notes = in_vllm(*kinds, **options).notes
    found = [
        note
        for note in notes
        if note.startswith((DEVICE, "Blocks of", OLD, PREFIX, BATCHED, DRAFTER, STEPS[:30]))
    ]
    found += [note for note in notes if note.startswith("With FLASHMLA")]
    assert len(found) == len(expected), notes
    assert all(note.startswith(start) for note, start in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("kinds", "options", "message", "tip"),
    [
        (
            (FULL,),
            {"engine_version": "0.10.1", "dcp": 2, "tp": 8},
            "0.10.1 has no --dcp",
            "use --engine-version 0.10.2",
        ),
        (
            (FULL, WINDOW),
            {"dcp": 2, "tp": 8},
            "--dcp: vLLM does not split the cache of a sliding window",
            "leave --dcp",
        ),
        ((FULL,), {"dcp": 3, "tp": 8}, "--dcp 3 does not divide --tp 8", "use a divisor of --tp"),
        (
            (FULL,),
            {"dcp": 4, "tp": 8, "n_kv_heads": 4},
            "each of 4 KV heads is on 2 devices",
            "use at most --dcp 2",
        ),
        (
            (FULL,),
            {"dcp": 2, "tp": 4, "n_kv_heads": 4},
            "each of 4 KV heads is on 1 device",
            "use at most --dcp 1",
        ),
        (
            (FULL,),
            {"dcp": 2, "tp": 2, "n_kv_heads": 4},
            "each of 4 KV heads is on 1 device",
            "use at most --dcp 1",
        ),
        ((FULL,), {"pp": 3}, "--pp 3 is more than the number of layers (2)", ""),
    ],
)
def test_vllm_does_not_start(kinds: Any, options: dict[str, Any], message: str, tip: str) -> None:
    error = refusal(in_vllm, *kinds, **options)
    assert message in error.message
    assert tip in (error.tip or "")


@pytest.mark.parametrize(
    ("kinds", "options"),
    [
        ((FULL,), {"dcp": 2, "tp": 8, "n_kv_heads": 4}),
        ((FULL,), {"dcp": 2, "tp": 8}),
        ((FULL,), {"dcp": 2, "tp": 8, "n_kv_heads": 2}),
        ((LATENT,), {"dcp": 8, "tp": 8, "n_kv_heads": 1}),
        ((LATENT,), {"dcp": 4, "tp": 8, "n_kv_heads": 8}),
    ],
)
def test_dcp_splits_tokens_over_the_copies_of_a_head(kinds: Any, options: dict[str, Any]) -> None:
    assert in_vllm(*kinds, **options)


def test_a_stage_without_a_cache_is_refused_and_so_is_a_model_without_one() -> None:
    shared = Grouped(8, 4, 16, shares_kv=True)
    with pytest.raises(
        AttncalcError,
        match="--pp 2: vLLM does not start, because a stage would have no layer with a",
    ):
        in_vllm(FULL, shared, pp=2)
    assert in_vllm(FULL, shared)
    with pytest.raises(AttncalcError, match="this model has no cache"):
        in_vllm(shared)


def test_a_drafters_layers_cache_as_much_as_the_last_attention_layer() -> None:
    """A token of a layer is 2 x 4 heads x 16 x 2 B; of DeepSeek-V3.2 a latent of 576 x 2 B and an
    indexer's key.
    """
    indexed = Latent(8, 512, 128, 64, 128, index_topk=16, index_n_heads=8, index_head_dim=128)
    assert in_vllm(indexed, speculative_layers=1).needed(1, 64) == 2 * 3 * 64 * (1152 + 132)
    for layers, expected in ((0, 2), (1, 3), (2, 4)):
        pool = in_vllm(FULL, speculative_layers=layers).pool(2**20, 512)
        block = next(
            detail.quantity for detail in pool.details if detail.name == "kv_bytes_per_block"
        )
        assert block == expected * 16 * 2 * 4 * 16 * 2


@pytest.mark.parametrize(
    ("kinds", "version", "given", "tokens"),
    [
        ((FULL,), "0.20.0", None, 16),
        ((LATENT,), "0.20.0", None, 16),
        ((LATENT,), "0.7.3", None, 16),
        ((LATENT,), "0.20.0", 128, 128),
        ((FULL,), "0.20.0", 32, 32),
    ],
)
def test_a_block_has_16_tokens_unless_it_is_given(
    kinds: Any, version: str, given: int | None, tokens: int
) -> None:
    pool = in_vllm(*kinds, engine_version=version, block_size=given).pool(2**20, 512)
    assert (
        next(detail.quantity for detail in pool.details if detail.name == "kv_block_size") == tokens
    )


def other_gpus(engine: str, **fields: Any) -> list[tuple[int | None, int | None]]:
    mlp = Mlp(60, n_experts=6, n_experts_per_token=2)
    stack = Stack("decoder", (Layers("layers", 3, attention=Grouped(6, 6, 8), mlp=mlp),), 48)
    heads = ModelSpec("toy", "toy", (stack,), vocab_size=60)
    resolved = resolve(FitRequest(heads, Workload.decode(1, 100), engine, **fields))
    return [(request.tp, request.gpus) for request in with_other_gpus(resolved)]


def test_other_numbers_of_gpus_hold_the_model_once() -> None:
    h100 = gpu("h100-80gb")
    assert other_gpus("vllm", gpu=h100) == [(1, 1), (2, 2), (3, 3), (6, 6)]
    assert other_gpus("vllm", gpu=h100, pp=2) == [(1, 2), (2, 4), (3, 6), (6, 12)]
    assert other_gpus("vllm", gpu=h100, dp=2) == [(1, 2), (2, 4), (3, 6), (6, 12)]
    assert other_gpus("sglang", gpu=h100, tp=2, attn_dp=2) == [(2, 2), (4, 4), (6, 6), (12, 12)]
    assert other_gpus("llamacpp", gpu=h100) == [(None, 1), (None, 2), (None, 3)]
    # on more GPUs a given memory would be another
    assert other_gpus("vllm", gpu=h100, kv_memory=2**30) == []
    assert other_gpus("vllm", kv_memory=2**30) == []
    assert other_gpus("llamacpp", gpu=h100, kv_memory=2**30) == []


# Bytes of a block in one layer: 16 tokens, K and V, 4 heads of 16, 2 bytes.
PAGE = 16 * 2 * 4 * 16 * 2
CHUNKS = Grouped(8, 4, 16, span=Chunked(32))
STEP: dict[str, Any] = {"max_num_batched_tokens": 48}


@each(
    ("kinds", "options", "context", "blocks"),
    [
        ((FULL,), {}, 500, 32),
        ((FULL,), {}, 512, 32),
        ((FULL,), {}, 513, 33),
        ((FULL,), {"block_size": 32}, 500, 16),
        ((FULL,), {"dcp": 2, "tp": 8, "n_kv_heads": 4}, 500, 16),  # 250 tokens on each
        ((FULL,), {"dcp": 2, "tp": 8, "n_kv_heads": 4}, 513, 17),  # 257
        # a window of 32 and a step: 31 + 48 tokens, and one block more since it may start in the
        # middle of a block
        ((FULL, WINDOW), STEP, 500, 32 + 5 + 1),
        ((FULL, WINDOW), STEP, 20, 2 + 2 + 1),
        ((FULL, WINDOW), {**STEP, "max_num_batched_tokens": 49}, 500, 32 + 5 + 1),
        ((FULL, WINDOW), {**STEP, "max_num_batched_tokens": 50}, 500, 32 + 6 + 1),
        # from 0.26 on --pp + 1 steps are in flight: 31 + 2 x 48, and 31 + 3 x 48
        ((FULL, WINDOW), {**STEP, "engine_version": "0.26.0"}, 500, 32 + 8 + 1),
        ((FULL, WINDOW), {**STEP, "engine_version": "0.26.0", "pp": 2}, 500, 32 + 11 + 1),
        ((FULL, WINDOW), {**STEP, "pp": 2}, 500, 32 + 5 + 1),
        ((FULL, CHUNKS), STEP, 500, 32 + 5),  # 32 + 48
        ((FULL, CHUNKS), {**STEP, "max_num_batched_tokens": 49}, 500, 32 + 6),
        ((FULL, CHUNKS), STEP, 20, 2 + 2),
    ],
)
def test_blocks_of_a_request(
    kinds: Any, options: dict[str, Any], context: int, blocks: int
) -> None:
    found = in_vllm(*kinds, **options)
    size = options.get("block_size", 16) * PAGE // 16
    # a block has two layers, and the null block is never used
    assert found.needed(3, context) == (3 * blocks + 1) * 2 * size
    details = {detail.name: detail.quantity for detail in found.pool(2**24, context).details}
    assert details["kv_blocks_per_request"] == blocks
    assert details["kv_groups"] == len(kinds)


def test_v0_has_no_null_block_and_blocks_in_host_memory() -> None:
    old = in_vllm(FULL, engine_version="0.7.3", swap_space=2**20)
    assert old.needed(3, 500) == 3 * 32 * 2 * PAGE
    pool = old.pool(100 * 2 * PAGE, 500)
    assert pool.log_lines == (
        f"# GPU blocks: 100, # CPU blocks: {2**20 // (2 * PAGE)}",
        "Maximum concurrency for 500 tokens per request: 3.20x",
    )
    default = in_vllm(FULL, engine_version="0.7.3").pool(100 * 2 * PAGE, 500)
    cpu_blocks = next(detail.quantity for detail in default.details if detail.name == "cpu_blocks")
    assert cpu_blocks == 4 * 2**30 // (2 * PAGE)  # --swap-space is 4 GiB by default
    assert isinstance(cpu_blocks, Quantity)
    assert cpu_blocks.formula.text == "swap_space // bytes_per_block"


@pytest.mark.parametrize(
    ("kinds", "options", "tokens", "concurrency"),
    [
        # 100 blocks; a request of 500 tokens takes 32, or 32 and 6 for a window
        ((FULL,), {"engine_version": "0.9.0"}, 1600, 1600 / 500),
        ((FULL,), {"engine_version": "0.9.1"}, 1600, 100 / 32),
        ((FULL,), {"engine_version": "0.20.0"}, 1600, 100 / 32),
        ((FULL,), {"engine_version": "0.20.1"}, 1562, 100 / 32),  # 100 / 32 x 500 = 1562.5
        ((FULL, WINDOW), {"engine_version": "0.20.0"}, 800, 100 / 38),
        ((FULL, WINDOW), {"engine_version": "0.20.1"}, 1315, 100 / 38),
        ((FULL,), {"engine_version": "0.20.0", "dcp": 2, "tp": 8, "n_kv_heads": 4}, 3200, 100 / 16),
        ((FULL,), {"engine_version": "0.10.2", "dcp": 2, "tp": 8, "n_kv_heads": 4}, 3200, 100 / 16),
    ],
)
def test_tokens_and_concurrency_are_logged_by_the_versions_definition(
    kinds: Any, options: dict[str, Any], tokens: int, concurrency: float
) -> None:
    pool = in_vllm(*kinds, **STEP, **options).pool(100 * 2 * PAGE, 500)
    assert (pool.blocks, pool.tokens) == (100, tokens)
    assert float(pool.concurrency) == pytest.approx(concurrency)
    assert pool.log_lines == (
        f"GPU KV cache size: {tokens:,} tokens",
        f"Maximum concurrency for 500 tokens per request: {concurrency:.2f}x",
    )


def test_the_log_has_one_line_from_0_28() -> None:
    pool = in_vllm(FULL, engine_version="0.28.0").pool(100 * 2 * PAGE, 500)
    assert pool.log_lines == (
        "GPU KV cache size: 1,562 tokens, Maximum concurrency for 500 tokens per request: 3.12x",
    )


@pytest.mark.parametrize(
    ("kinds", "context", "prefix", "shared"),
    [
        ((FULL,), 500, 100, 6),  # a hit is whole blocks: 96 tokens
        ((FULL,), 500, 15, 0),
        ((FULL, WINDOW), 500, 480, 30 + 1),  # the window of 500 tokens begins at 469, in block 29
        ((FULL, WINDOW), 600, 480, 30),  # it begins behind the prefix
        ((FULL, WINDOW), 511, 496, 31 + 1),  # at 480, the first token of block 30
        ((FULL, WINDOW), 510, 496, 31 + 2),  # at 479, the last one of block 29
        ((FULL, WINDOW), 20, 16, 1 + 1),
        ((FULL, CHUNKS), 470, 464, 29 + 1),  # the chunk begins at 448, in block 28
        ((FULL, CHUNKS), 490, 480, 30),  # at 480
    ],
)
def test_requests_share_the_blocks_of_their_prefix(
    kinds: Any, context: int, prefix: int, shared: int
) -> None:
    alone = in_vllm(*kinds, **STEP)
    sharing = alone.with_shared_prefix(prefix)
    assert sharing is not None
    assert alone.needed(3, context) - sharing.needed(3, context) == 2 * shared * 2 * PAGE
    assert sharing.needed(1, context) == alone.needed(1, context)


@pytest.mark.parametrize(
    ("kinds", "options", "shares"),
    [
        ((FULL,), {}, True),
        ((FULL,), {"prefix_caching": False}, False),
        ((FULL,), {"engine_version": "0.7.3"}, False),
        ((FULL,), {"engine_version": "0.7.3", "prefix_caching": True}, True),
        ((FULL, DELTA), {}, False),
        ((FULL, DELTA), {"engine_version": "0.28.0"}, True),
    ],
)
def test_prefixes_are_shared_if_they_are_cached(
    kinds: Any, options: dict[str, Any], shares: bool
) -> None:
    assert (in_vllm(*kinds, **options).with_shared_prefix(64) is not None) == shares


def test_facts_and_source_name_version_block_size_and_step() -> None:
    assert in_vllm(FULL).facts == ("version 0.20.0", "block size 16")
    assert in_vllm(FULL, WINDOW, **STEP).facts == (
        "version 0.20.0",
        "block size 16",
        "48 batched tokens",
    )
    assert in_vllm(FULL, engine_version="0.32.0").source.endswith(
        "vLLM 0.32.0, v1/kv_cache_interface.py and v1/core/kv_cache_utils.py"
    )
    assert in_vllm(FULL, engine_version="0.33.0").source.endswith("v1/core/kv_cache_planning.py")
    assert in_vllm(FULL, engine_version="v0").source.startswith(
        "vLLM 0.8.5, worker/cache_engine.py"
    )


def test_the_stage_with_the_most_layers_decides_the_bytes_of_a_block() -> None:
    three = in_vllm(FULL, count=3, pp=2)
    assert three.needed(1, 16) == 2 * 2 * PAGE
    assert [part.needed(1, 16) // (2 * PAGE) for part in three.parts] in ([2, 1], [1, 2])
    assert in_vllm(FULL, count=3).parts == ()


@pytest.mark.parametrize(
    ("full", "windows", "version", "groups", "lines"),
    [
        (4, 4, "0.20.0", 2, []),
        # 4 / 3 is below 3 / 2: groups of 4, in which the windows' group has a layer of padding
        (4, 3, "0.20.0", 2, ["Add 1 padding layers, may waste at most 33.33% KV cache memory"]),
        # 4 / 3 is above 5 / 4, the ratio of 0.12: groups of 3, of which full attention has two
        (4, 3, "0.12.0", 3, ["Add 2 padding layers, may waste at most 50.00% KV cache memory"]),
        (4, 3, "0.11.0", 3, ["Add 2 padding layers, may waste at most 50.00% KV cache memory"]),
        (6, 3, "0.20.0", 3, []),
        (5, 3, "0.20.0", 3, ["Add 1 padding layers, may waste at most 20.00% KV cache memory"]),
        (2, 5, "0.20.0", 4, ["Add 1 padding layers, may waste at most 20.00% KV cache memory"]),
    ],
)
def test_groups_have_equal_numbers_of_layers(
    full: int, windows: int, version: str, groups: int, lines: list[str]
) -> None:
    layers = (
        Layers("full", full, attention=FULL, mlp=Mlp(64)),
        Layers("windows", windows, attention=WINDOW, mlp=Mlp(64)),
    )
    hybrid = ModelSpec(
        "toy", "toy", (Stack("decoder", layers, 128),), vocab_size=100, head=Head("lm")
    )
    args = VllmArgs(dtype("bf16"), dtype("bf16"), engine_version=version, max_model_len=512, **STEP)
    pool = find_engine("vllm").layout(layer_cache_specs(hybrid.plain()), args).pool(2**24, 512)
    assert next(detail.quantity for detail in pool.details if detail.name == "kv_groups") == groups
    assert [line for line in pool.log_lines if "padding" in line] == lines


@pytest.mark.parametrize(
    ("version", "given", "tokens"),
    [
        ("0.10.2", None, 16),  # before 0.11 the requested block size, if there is one group
        ("0.10.2", 32, 32),
        ("0.11.0", None, 500),  # a block of states is a whole request
        ("0.20.0", 32, 500),
    ],
)
def test_blocks_of_states_alone_are_counted_as_the_version_does(
    version: str, given: int | None, tokens: int
) -> None:
    pool = in_vllm(DELTA, engine_version=version, block_size=given, prefix_caching=False).pool(
        2**24, 500
    )
    assert pool.blocks
    assert pool.tokens == pool.blocks * tokens


LONGER, NARROW = Grouped(8, 4, 16, span=Sliding(64)), Grouped(8, 2, 16)


@pytest.mark.parametrize(
    ("kinds", "block", "request_blocks"),
    [
        (
            (FULL,),
            "L * block_size * 2 * n_kv_heads * d_head * bytes",
            "ceil(max_model_len / block_size)",
        ),
        (
            (LATENT,),
            "L * block_size * (kv_lora_rank + d_rope) * bytes",
            "ceil(max_model_len / block_size)",
        ),
        (
            (FULL, WINDOW),
            "L_group * block_size * 2 * n_kv_heads * d_head * bytes",
            "ceil(max_model_len / block_size) + ceil(min(W - 1 + in_flight, max_model_len) / "
            "block_size) + 1",
        ),
        # one symbol for windows or heads of several sizes would be ambiguous
        (
            (FULL, WINDOW, LONGER),
            "L_group * block_size * 2 * n_kv_heads * d_head * bytes",
            "blocks_1 + blocks_2 + blocks_3",
        ),
        ((FULL, NARROW), "pages_1 + pages_2", "ceil(max_model_len / block_size)"),
    ],
)
def test_formulas_of_a_block_and_of_a_request(kinds: Any, block: str, request_blocks: str) -> None:
    given: dict[str, Any] = {
        "device": "NVIDIA H100",
        "device_memory": 80 * 2**30,
        "max_model_len": 512,
    }
    args = VllmArgs(kv_dtype=dtype("bf16"), dtype=dtype("bf16"), **given)
    found = (
        find_engine("vllm")
        .layout(layer_cache_specs(model(*kinds).symbolic(gathered=False)), args)
        .pool(2**30, 500)
    )
    details = {detail.name: detail.quantity.formula.text for detail in found.details}
    assert (details["kv_bytes_per_block"], details["kv_blocks_per_request"]) == (
        block,
        request_blocks,
    )
    assert found.blocks is not None
    assert found.blocks.formula.text == "kv_memory // bytes_per_block"


@pytest.mark.parametrize(
    ("version", "prefix_caching", "tokens"),
    [("0.10.2", False, 10), ("0.19.0", False, 10), ("0.19.0", True, 16)],
)
def test_a_states_block_counts_as_a_whole_request_unless_prefixes_are_cached(
    version: str, prefix_caching: bool, tokens: int
) -> None:
    """Two groups, and requests of 10 tokens: the smallest block counts."""
    found = in_vllm(FULL, DELTA, engine_version=version, prefix_caching=prefix_caching).pool(
        2**24, 10
    )
    assert found.blocks is not None
    assert found.tokens == found.blocks // 2 * tokens


def test_a_hit_is_a_multiple_of_the_blocks_of_all_groups() -> None:
    """Full attention has blocks of 16 tokens, and windows of half the heads blocks of 32: 48 tokens
    are a hit of 32.
    """
    narrow = Grouped(8, 2, 16, span=Sliding(1024))
    for prefix, shared in ((31, 0), (32, 2 + 1), (48, 2 + 1), (63, 2 + 1), (64, 4 + 2)):
        alone = in_vllm(FULL, narrow, **STEP)
        sharing = alone.with_shared_prefix(prefix)
        assert sharing is not None
        assert alone.needed(3, 70) - sharing.needed(3, 70) == 2 * shared * 2 * PAGE


def test_the_blocks_of_the_first_group_are_shown() -> None:
    narrow = Grouped(8, 2, 16, span=Sliding(1024))
    for kinds, tokens in (((FULL, narrow), 16), ((narrow, FULL), 32)):
        details = in_vllm(*kinds, **STEP).pool(2**24, 500).details
        assert (
            next(detail.quantity for detail in details if detail.name == "kv_block_size") == tokens
        )


def test_a_stage_that_lacks_a_group_has_the_bytes_of_the_others() -> None:
    """Groups of two layers; the first stage has full attention, and the second the windows."""
    assert [part.needed(0, 16) for part in in_vllm(FULL, WINDOW, pp=2).parts] == [
        2 * PAGE,
        2 * PAGE,
    ]
    assert [part.needed(0, 16) for part in in_vllm(FULL, WINDOW, pp=2, count=1).parts] == [
        PAGE,
        PAGE,
    ]


def test_a_layout_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        in_vllm(FULL).max_num_seqs = 1  # type: ignore[misc]


def test_devices_that_divide_a_sequence_share_its_prefix() -> None:
    """With --dcp 2 a block of 16 tokens on each of two devices has 32 of a sequence."""
    alone = in_vllm(FULL, dcp=2, tp=8, n_kv_heads=4)
    for prefix, shared in ((31, 0), (32, 1), (63, 1), (64, 2)):
        sharing = alone.with_shared_prefix(prefix)
        assert sharing is not None
        assert alone.needed(3, 500) - sharing.needed(3, 500) == 2 * shared * 2 * PAGE


@each(
    ("kinds", "options", "fixed", "token"),
    [
        # two layers share a block of 16 tokens
        ((FULL,), {}, None, 2 * PAGE / 16),
        ((FULL,), {"dcp": 2, "tp": 8, "n_kv_heads": 4}, None, 2 * PAGE / 32),
        # 6 blocks of a window, as above; a group of states has one block per request
        ((FULL, WINDOW), STEP, 6 * 2 * PAGE, 2 * PAGE / 16),
        ((FULL, DELTA), {"prefix_caching": False}, 2 * PAGE, 2 * PAGE / 16),
        ((WINDOW,), STEP, 6 * 2 * PAGE, None),
    ],
)
def test_a_request_has_bytes_whatever_its_length_and_bytes_per_token(
    kinds: Any, options: dict[str, Any], fixed: int | None, token: float | None
) -> None:
    of = in_vllm(*kinds, **options)
    details = {detail.name: detail.quantity for detail in of.pool(2**24, 512).details}
    assert details.get("kv_fixed_bytes_per_sequence") == fixed
    assert (
        float(details["kv_bytes_per_token"]) if "kv_bytes_per_token" in details else None
    ) == token
    assert details["kv_bytes_per_sequence"] == (fixed or 0) + 512 * (token or 0)


@pytest.mark.parametrize("kinds", [(FULL, DELTA), (DELTA, FULL)])
def test_states_are_not_shared(kinds: Any) -> None:
    alone = in_vllm(*kinds, engine_version="0.28.0")
    sharing = alone.with_shared_prefix(64)
    assert sharing is not None
    assert alone.needed(3, 500) - sharing.needed(3, 500) == 2 * 4 * 2 * PAGE


@dataclass(frozen=True)
class Both(Grouped):
    """Self-attention that reads a source too, as a decoder's layer with both."""

    def cache(self) -> tuple[CacheSpec, ...]:
        (own,) = super().cache()
        return own, own._replace(per="source token")


@pytest.mark.parametrize(("version", "times"), [("0.10.2", 1), ("0.11.0", 2)])
def test_tokens_of_several_groups_are_multiplied_by_dcp_from_0_11(version: str, times: int) -> None:
    across = in_vllm(Both(8, 4, 16), engine_version=version, dcp=2, tp=8, n_kv_heads=4, source=100)
    found = across.pool(2**24, 500)
    assert found.blocks is not None
    assert found.tokens == found.blocks // 2 * 16 * times


def test_a_source_of_unknown_length_has_one_token() -> None:
    across = in_vllm(Both(8, 4, 16), engine_version="0.12.0", block_size=1).pool(2**24, 500)
    details = {detail.name: detail.quantity for detail in across.details}
    assert details["kv_blocks_per_request"] == 500 + 1


@each(("block_size", "is_refused"), [(None, False), (128, False), (64, True), (256, True)])
def test_keys_of_which_an_indexer_picks_blocks_are_in_blocks_of_128(
    block_size: int | None, is_refused: bool
) -> None:
    specs = layer_cache_specs(load("minimax-m3").plain())
    options: dict[str, Any] = {
        "engine_version": "0.33.0",
        "device": "NVIDIA H200",
        "device_memory": 141 * 10**9,
        "max_model_len": 512,
    }
    args = VllmArgs(kv_dtype=dtype("bf16"), dtype=dtype("bf16"), block_size=block_size, **options)
    message = refusal(lambda: find_engine("vllm").layout(specs, args)) if is_refused else ""
    assert ("MiniMax-M3 only has blocks of 128" in str(message)) == is_refused
    if not is_refused:
        assert find_engine("vllm").layout(specs, args)


@each(("span", "label"), [(Sliding(32), "window 32"), (Chunked(32), "chunk 32")])
def test_latents_that_not_every_token_sees_are_refused(span: Any, label: str) -> None:
    """No released model has them, and counted as full attention they would be too many bytes."""
    error = refusal(in_vllm, LATENT.with_span(span))
    assert error.message.endswith(
        f"does not know how vLLM stores this cache: latent and rotary key, {label}"
    )
    assert in_vllm(LATENT)
