"""vLLM's layout of compressed attention (DeepSeek-V4): its groups, blocks and log, compared with
published figures.
"""

import math
from pathlib import Path
from typing import Any

import pytest
from asking import Ask
from tables import each

from attncalc import AttncalcError, Head, Layers, Mlp, ModelSpec, Sliding, Stack, fit, load
from attncalc.attention.compressed import Compressed, WindowAndPools
from attncalc.attention.picked import Pools
from attncalc.cost.cache import layer_cache_specs
from attncalc.engines import find_engine
from attncalc.engines.vllm.blocks import VllmLayout
from attncalc.engines.vllm.options import VllmArgs
from attncalc.engines.vllm.packed import weighed_blocks
from attncalc.units import GIB, dtype

# DeepSeek-V4-Flash: 43 layers with a window of 128, 21 of them with pools of 4 and an indexer, 20
# with pools of 128. Pages, as multiples of 576 B:
#   64 tokens x 584 B = 37,376             -> 37,440   windows, and pools of 4 (256 tokens / 4)
#   64 x (128 + 4)    =  8,448             ->  8,640   the indexer's pools of 4
#   2 x 584           =  1,168             ->  1,728   pools of 128 (256 tokens / 128)
#   4 x 2 x 2 x 512 x 4 B = 32,768         -> 32,832   tokens to pool by 4, of a layer
#   4 x 2 x 2 x 128 x 4 B =  8,192         ->  8,640   tokens to pool by 4, of an indexer
#   8 x 2 x 512 x 4 B     = 32,768         -> 32,832   tokens to pool by 128
TUPLES = 22 * (37_440 + 8_640 + 1_728)  # 1,051,776 B
SLOTS = 22 * 37_440 + 21 * 8_640 + 20 * 1_728  # 1,039,680 B
GROUP = 21 * 37_440 + 21 * 8_640 + 20 * 1_728  # 1,002,240 B


QWEN4: dict[str, Any] = {"name": "qwen3.8-flash-next", "kv_dtype": dtype("bf16")}


def in_vllm(version: str, name: str = "deepseek-v4-flash", **options: Any) -> VllmLayout:
    args = VllmArgs(
        **{"kv_dtype": dtype("fp8"), "dtype": dtype("bf16"), "engine_version": version, **options}
    )
    layout = find_engine("vllm").layout(layer_cache_specs(load(name).plain()), args)
    assert isinstance(layout, VllmLayout)
    return layout


def test_a_request_of_30_000_tokens_needs_6_66_gib_in_0_22() -> None:
    """vllm-project/vllm issue 44376: 16,384 batched tokens, "6.66 GiB KV cache is needed", "maximum
    length 13528".

    pools            ceil(30,000 / 256)              =   118 blocks
    windows      2 x (ceil(16,511 / 64) + 1)         =   518
    to pool by 4      ceil(16,391 / 4) + 1           = 4,099
    to pool by 128    ceil(16,511 / 8) + 1           = 2,065
    6,800 blocks x 1,051,776 B = 6.661 GiB
    """
    layout = in_vllm("0.22.0", max_num_batched_tokens=16_384)
    pool = layout.pool(int(5.44 * GIB), 30_000)
    assert layout.bytes_per_block == TUPLES
    assert layout.blocks_per_request(30_000) == 118 + 518 + 4_099 + 2_065 == 6_800
    assert pool.figure("kv_bytes_per_sequence") == 6_800 * TUPLES
    assert round(6_800 * TUPLES / GIB, 2) == 6.66
    # the log's 5.44 GiB are 5.435 to 5.445
    memory = int(5.445 * GIB)
    assert layout.pool(memory, 13_528).figure("kv_bytes_per_sequence") <= memory
    assert layout.pool(int(5.44 * GIB), 13_529).figure("kv_bytes_per_sequence") > int(5.44 * GIB)


@each(
    ("version", "options", "gib", "context", "blocks", "tokens"),
    [
        # tests/data/engine-logs, vllm-deepseek-v4-flash-tp2. A request is weighed by the bytes of
        # its groups, which are 1,002,240, 22 x 37,440, 21 x 37,440, 21 x 46,080 and 20 x 37,440 B
        # for 512, 131, 131, 2,051 and 1,041 blocks: 3,481 blocks of pools; 33,136 / 3,481 x 131,072
        # = 1,247,687
        ("0.24.0", {"max_num_batched_tokens": 8_192}, 32.08, 131_072, 33_136, 1_247_687),
        # vllm-project/vllm issue 51041, Flash-0731 with a layer for multi-token prediction: two
        # steps are in flight, 16,384 tokens. 7,965 / 6,401 x 121,344 = 150,992
        (
            "0.26.0",
            {"max_num_batched_tokens": 8_192, "speculative_layers": 1},
            7.71,
            121_344,
            7_965,
            150_992,
        ),
        # the same issue, the preview checkpoint, whose flags are not known: 8,192 tokens in flight
        # agree.
        # 7,236 / 6,537 x 912,128 = 1,009,661
        (
            "0.26.0",
            {"max_num_batched_tokens": 4_096, "speculative_layers": 1},
            7.01,
            912_128,
            7_236,
            1_009_661,
        ),
    ],
)
def test_logged_tokens_are_those_of_published_logs(
    version: str, options: dict[str, Any], gib: float, context: int, blocks: int, tokens: int
) -> None:
    memory = blocks * SLOTS
    assert abs(memory / GIB - gib) <= 0.005
    pool = in_vllm(version, **options).pool(memory, context)
    assert (pool.blocks, pool.tokens) == (blocks, tokens)


@pytest.mark.parametrize(
    ("version", "block", "checked"),
    [
        ("0.20.0", TUPLES, TUPLES),
        ("0.22.1", TUPLES, TUPLES),
        ("0.23.0", SLOTS, TUPLES),
        ("0.26.0", SLOTS, TUPLES),
        ("0.27.0", GROUP, TUPLES),
        ("0.28.0", GROUP, TUPLES),
        ("0.29.0", GROUP, GROUP),
        ("0.33.0", GROUP, GROUP),
    ],
)
def test_bytes_of_a_block_by_version(version: str, block: int, checked: int) -> None:
    layout = in_vllm(version)
    blocks = layout.blocks_per_request(30_000)
    assert layout.bytes_per_block == block
    assert layout.pool(GIB, 30_000).figure("kv_bytes_per_sequence") == blocks * checked
    # one more block is never used
    assert layout.needed(1, 30_000) == max((blocks + 1) * block, blocks * checked)
    assert layout.needed(9, 30_000) == max((9 * blocks + 1) * block, blocks * checked)


def test_windows_fill_two_groups_of_about_as_many_layers_as_pages_of_one_size() -> None:
    for version in ("0.20.0", "0.33.0"):
        assert [len(group.layers) for group in in_vllm(version).groups] == [62, 22, 21, 42, 20]
    # multi-token prediction has one more window: 44 in 2 groups
    assert [len(group.layers) for group in in_vllm("0.33.0", speculative_layers=1).groups] == [
        62,
        22,
        22,
        42,
        20,
    ]


def test_of_two_equally_good_numbers_of_layers_per_group_vllm_takes_the_larger() -> None:
    """3 layers with pools and 4 windows: groups of 3 leave 2 places of 6 empty, groups of 4 one
    place of each 4.
    """
    window = Compressed(8, 512, 64, 8, 64, span=Sliding(128))
    pools = {"compress_rate": 4, "index_topk": 512, "index_n_heads": 64, "index_head_dim": 128}
    pooled = Compressed(
        8, 512, 64, 8, 64, **pools, span=WindowAndPools(Sliding(128), Pools(4, 512))
    )
    layers = (
        Layers("windows", 1, attention=window, mlp=Mlp(64)),
        Layers("pools", 3, attention=pooled, mlp=Mlp(64)),
    )
    model = ModelSpec(
        "toy", "toy", (Stack("decoder", layers, 128),), vocab_size=100, head=Head("lm")
    )
    args = VllmArgs(kv_dtype=dtype("fp8"), dtype=dtype("bf16"), engine_version="0.22.0")
    layout = find_engine("vllm").layout(layer_cache_specs(model.plain()), args)
    assert isinstance(layout, VllmLayout)
    assert [len(group.layers) for group in layout.groups] == [6, 4, 6]


def test_from_0_27_the_log_counts_blocks_of_all_groups_alike() -> None:
    """With 16,384 tokens in flight, 30,000 tokens take 118, 259, 259, 4,099 and 2,065 blocks.

    Up to 0.26 they count by bytes: 118 x 1,002,240 + 259 x (22 + 21) x 37,440 + 4,099 x 21 x 46,080
    + 2,065 x 20 x 37,440 B are 6,035 blocks of 1,002,240 B.
    """
    by_bytes = 118 * GROUP + 259 * 43 * 37_440 + 4_099 * 21 * 46_080 + 2_065 * 20 * 37_440
    assert (
        weighed_blocks([118, 259, 259, 4_099, 2_065], in_vllm("0.26.0").groups)
        == -(-by_bytes // GROUP)
        == 6_035
    )
    for version, logged in (("0.26.0", 6_035), ("0.27.0", 6_800)):
        layout = in_vllm(version)
        assert int(layout.pool(1_000 * layout.bytes_per_block, 30_000).tokens) == int(
            1_000 / logged * 30_000
        )


def test_a_shorter_context_needs_hardly_less_memory_and_logs_fewer_tokens() -> None:
    layout = in_vllm("0.33.0")
    long, short = (layout.pool(40 * GIB, context) for context in (131_072, 32_768))
    assert int(short.tokens) < int(long.tokens) / 3
    windows = [pool.figure("kv_blocks_of_windows") for pool in (long, short)]
    assert windows == [2 * (-(-(127 + 16_384) // 64) + 1)] * 2
    assert [pool.figure("kv_blocks_of_pools") for pool in (long, short)] == [512, 128]
    assert layout.pool(GIB, 32_768).figure("kv_blocks_of_unpooled_tokens") == 4_099 + 2_065
    assert any("for all tokens in flight" in note for note in layout.notes)


def test_tensor_parallelism_replicates_the_cache() -> None:
    specs = layer_cache_specs(load("deepseek-v4-flash").shard(4).plain())
    args = VllmArgs(kv_dtype=dtype("fp8"), dtype=dtype("bf16"), tp=4)
    assert find_engine("vllm").layout(specs, args).needed(1, 4_096) == in_vllm("0.33.0").needed(
        1, 4_096
    )


def test_deepseek_v4_1_takes_the_blocks_of_published_logs() -> None:
    """A public log of vLLM's main branch of 18 September 2026 on eight RTX PRO 6000: 133,619 blocks
    of 230,400 B are 28.67 GiB and 1,130,792 tokens, 138.04 requests of 8,192.

    3 x (64 x 584 -> 37,440, 64 x 132 -> 8,640) + 128 x 584 -> 74,880 + 128 x 132 -> 17,280 =
    230,400 B windows of 64 x 584 -> 37,440 B: 6 in a block, 40 layers in 7 groups of 8,192 / 64 + 1
    blocks each 7 x 129 + 64 of pools + 1 ring of tokens to pool = 968 blocks
    """
    on = {"max_model_len": 8192, "device": "NVIDIA RTX PRO 6000 Blackwell 96GB"}
    layout = in_vllm("0.33.0", "deepseek-v4.1-flash", **on)
    pool = layout.pool(133_619 * 230_400, 8_192)
    assert (layout.bytes_per_block, layout.blocks_per_request(8_192)) == (230_400, 968)
    assert (pool.blocks, pool.tokens) == (133_619, 1_130_792)
    # the same log with --block-size 256: "block stride 460224"
    assert in_vllm("0.33.0", "deepseek-v4.1-flash", block_size=256).bytes_per_block == 460_224
    # a B200 has pools in fp4: 3 x (64 x 288 -> 18,432, 64 x 132 -> 8,704) + 128 x 288 + 128 x 132
    # with whole rows of 528 and of 288 B in a block from 0.33 on, and with pools in fp8 in 0.30
    b200 = {"name": "deepseek-v4.1-flash", "device": "NVIDIA B200 180GB"}
    assert (
        in_vllm("0.32.0", **b200).bytes_per_block
        == 3 * (18_432 + 8_704) + 36_864 + 16_896
        == 135_168
    )
    assert in_vllm("0.33.0", **b200).bytes_per_block == 43 * math.lcm(528, 288)
    assert in_vllm("0.30.0", **b200).bytes_per_block == 3 * (33_792 + 8_704) + 67_584 + 16_896


@each(
    ("version", "kv", "drafted", "blocks", "tokens"),
    [  # GB10s in vllm-project/vllm issue 54426, and a log with 569 blocks and three drafted tokens
        ("0.30.0", "bf16", 2, 539, 780_638),
        ("0.30.0", "bf16", 2, 744, 1_077_542),
        ("0.31.0", "fp8", 2, 534, 1_399_848),
        ("0.31.0", "fp8", 2, 707, 1_853_358),
        ("0.30.0", "bf16", 3, 569, 806_269),
    ],
)
def test_qwen4_takes_the_blocks_of_logs(
    version: str, kv: str, drafted: int, blocks: int, tokens: int
) -> None:
    """13 layers with multi-token prediction, whose averages of 4 keys are beside K and V.

    state: 48 x 128 x 128 x 4 B + 10,240 x (3 + 2) x 2 B = 3,248,128 B, 1,586 tokens of 2 x 2 x 256
    x 2 B -> 1,600 block: 13 x (1,600 x 2,048 + 400 x 256) = 43,929,600 B
    a request: ceil(262,144 / 1,600) of K and V, 4 in each of 3 groups of states and for the
    convolution, and a ring 164 + 3 x 4 + 4 + 1 = 181 blocks; 539 / 181 x 262,144 = 780,638
    """
    options = {
        **QWEN4,
        "kv_dtype": dtype(kv),
        "speculative_tokens": drafted,
        "speculative_layers": 1,
    }
    layout = in_vllm(version, **options)
    if (kv, drafted) == ("bf16", 2):
        assert (layout.bytes_per_block, layout.blocks_per_request(262_144)) == (43_929_600, 181)
    assert layout.pool(blocks * int(layout.bytes_per_block), 262_144).tokens == tokens


@pytest.mark.parametrize("version", ["0.22.0", "0.26.0", "0.33.0"])
def test_pipeline_stages_have_the_layers_of_their_groups(version: str) -> None:
    layout = in_vllm(version, pp=2)
    for i, group in enumerate(layout.groups):
        assert sorted(
            n for part in layout.parts for n in part.groups_by_stage[0][i].layers
        ) == sorted(group.layers)
    # the first of 43 stages has a window and no pools
    first, *_ = in_vllm(version, pp=43).parts
    assert first.bytes_per_block == 37_440


@each(
    ("options", "error"),
    [
        ({"version": "0.19.1"}, "has no compressed attention"),
        ({"version": "0.33.0", "kv_dtype": dtype("bf16")}, "in fp8 .fp8_ds_mla., not in bf16"),
        ({"version": "0.29.0", "name": "deepseek-v4.1-flash"}, "has no DeepSeek-V4.1"),
        ({"version": "0.28.0", **QWEN4}, "has no Qwen4"),
        (
            {"version": "0.30.0", **QWEN4, "kv_dtype": dtype("fp8")},
            "does not store Qwen4's keys and values in fp8",
        ),
        (
            {"version": "0.33.0", **QWEN4, "dcp": 2, "tp": 2},
            "--pp and --dcp are not supported for Qwen4",
        ),
        ({"version": "0.29.0", "name": "glm-5.3-flash"}, "has no GLM-5.3-Flash"),
        (
            {"version": "0.33.0", "name": "glm-5.3-flash", "dcp": 2, "tp": 2},
            "--pp and --dcp are not supported for GLM",
        ),
        ({"version": "0.33.0", "block_size": 64}, "blocks of compressed attention have 256 tokens"),
        (
            {"version": "0.33.0", "disable_hybrid_kv_cache_manager": True},
            "compressed attention needs the hybrid KV-cache manager",
        ),
        ({"version": "0.33.0", "dcp": 2, "tp": 2}, "does not split the cache of a sliding window"),
    ],
)
def test_what_vllm_cannot_store_is_an_error(options: dict[str, Any], error: str) -> None:
    with pytest.raises(AttncalcError, match=error):
        in_vllm(**options)


@pytest.mark.parametrize(
    ("kv_dtype", "tokens_per_block", "blocks", "tokens"),
    [("bf16", 2304, 1140, 2_532_577), ("fp8", 4480, 1078, 4_503_445)],
)
def test_glm_5_3_flash_holds_the_published_tokens(
    kv_dtype: str, tokens_per_block: int, blocks: int, tokens: int
) -> None:
    """vllm-project/vllm issue 55221: 2 x H200 NVL, 3 drafted tokens of multi-token prediction,
    1,048,576 tokens.

    A state of 2,244,608 B fits in 2,304 latents of 1,024 B, or 4,480 of 512 B. A block has pages of
    12 layers, with the predicting one. A request takes 456 or 235 blocks, 1 for tokens to pool, and
    5 for each of 3 groups of states.
    """
    latent = 1024 if kv_dtype == "bf16" else 512
    page = tokens_per_block * (latent * 12 + 132 * 12 // 4)
    options: dict[str, Any] = {
        "tp": 2,
        "speculative_tokens": 3,
        "speculative_layers": 1,
        "kv_dtype": kv_dtype,
    }
    answer = fit(
        "glm-5.3-flash", kv_memory=blocks * page, engine_version="0.30.0", **options
    ).to_dict()
    assert (answer["kv_bytes_per_block"], answer["kv_blocks"], answer["kv_tokens"]) == (
        page,
        blocks,
        tokens,
    )
    needed = fit("glm-5.3-flash", kv_memory=page, engine_version="0.32.0", **options).to_dict()[
        "kv_needed"
    ]
    # and a checkpoint of each state, and the block that no request gets
    assert needed == (-(-1_048_576 // tokens_per_block) + 1 + 3 * 6 + 1) * page


def test_the_cache_is_fp8_by_default_from_0_30() -> None:
    vllm, model = find_engine("vllm"), load("deepseek-v4-flash")
    assert [vllm.checkpoint_cache_dtype(model, version) for version in ("0.29.0", "0.30.0")] == [
        None,
        "fp8",
    ]
    assert vllm.checkpoint_cache_dtype(load("llama2-70b"), "0.30.0") is None


def test_fit_finds_the_release_of_the_published_log_by_itself(ask: Ask) -> None:
    log = (
        Path(__file__).parent
        / "data"
        / "engine-logs"
        / "excerpts"
        / "vllm-deepseek-v4-flash-tp2.log"
    )
    answer = ask("fit", "deepseek-v4-flash", "--log", str(log))
    assert "AGREES: all figures are within the log's rounding." in answer.out
    assert "version 0.25.1," in answer.out
