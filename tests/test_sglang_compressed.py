"""SGLang's pools of compressed attention (DeepSeek-V4), compared with published start-up lines."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from asking import Ask
from tables import each

from attncalc import AttncalcError, ModelSpec, load
from attncalc.config.build import build_model
from attncalc.config.huggingface import convert_config
from attncalc.cost.cache import layer_cache_specs
from attncalc.engines import find_engine
from attncalc.engines.sglang.compressed import CompressedLayout
from attncalc.engines.sglang.options import SglangArgs
from attncalc.units import GIB, dtype

FLASH, PRO, FLASH_41 = "deepseek-v4-flash", "nvidia__DeepSeek-V4-Pro-NVFP4", "deepseek-v4.1-flash"
CONFIGS = json.loads((Path(__file__).parent / "data" / "real-configs.json").read_text("utf-8"))


def model_of(name: str) -> ModelSpec:
    config = next((entry["config"] for entry in CONFIGS if entry["name"] == name), None)
    return (
        load(name)
        if config is None
        else build_model(convert_config(config, "config.json", title=name), name)
    )


def in_sglang(version: str, name: str = FLASH, **options: Any) -> CompressedLayout:
    args = SglangArgs(
        **{"kv_dtype": dtype("fp8"), "dtype": dtype("bf16"), "engine_version": version, **options}
    )
    layout = find_engine("sglang").layout(layer_cache_specs(model_of(name).plain()), args)
    assert isinstance(layout, CompressedLayout)
    return layout


def lines(layout: CompressedLayout, memory: int) -> str:
    return "\n".join(layout.pool(memory, 8_192).log_lines)


@each(
    ("name", "version", "options", "gib", "printed", "pools"),
    [
        # A log of DeepSeek-V4-Flash of 2026-05-15, file 70267455292 in an index of public GitHub
        # files. A page of windows has 44 layers and the tokens to pool by 128: (43 + 1) x 256 x 584
        # + 16 x 21 x 10,240 + 256 x 20 x 4,096 B.
        (FLASH, "0.5.12", {}, 19.58, "15955.85", "full=1317632, "),
        # DeepSeek-V4-Pro with 0.5.13, ratio 0.15, file 62203623713
        (
            PRO,
            "0.5.13",
            {"swa_full_tokens_ratio": "0.15"},
            105.08,
            "32781.44",
            "full=3441920, swa=516096, c4=860480, c128=26890, c4_state=32256, c128_state=516096",
        ),
        # The same with 0.5.15 and 512 requests on 8 ranks of attention, file 62447426110: (64 + 2)
        # x 128 + 128 tokens to pool in 31 layers are the printed 1.01 GB.
        (
            PRO,
            "0.5.15",
            {"swa_full_tokens_ratio": "0.15", "tp": 8, "attn_dp": 8, "max_running_requests": 512},
            118.93,
            "13735.04, ... c128_state_fixed=1.01 GB",
            "full=9217792, swa=1382656, c4=2304448, c128=72014, ",
        ),
        # DeepSeek-V4-Flash-0731 with 8 requests, a log of 2026-08-07, file 57382202304
        (
            FLASH,
            "0.5.16",
            {"max_running_requests": 8},
            11.89,
            "7705.45, ... c128_state_fixed=0.11 GB",
            "full=1641472, swa=164096, c4=410368, c128=12824, c4_state=10256, c128_state=0",
        ),
        # DeepSeek-V4.1-Flash with DSpark on three GB10, a log of 2026-09-11, file 69412325477: 3
        # layers with pools of 2 and one with single tokens, (584 + 68) x (3 / 2 + 1) x 41 / 40 B
        (
            FLASH_41,
            "0.5.22",
            {"speculative_tokens": 6, "max_running_requests": 4, "chunked_prefill_size": 1_024},
            8.84,
            "1670.75, ... c2_state_fixed=0.00 GB",
            "full=5491200, swa=13312, c4=1372800, c128=42900, ",
        ),
    ],
)
def test_pools_are_those_of_published_logs(
    name: str, version: str, options: dict[str, Any], gib: float, printed: str, pools: str
) -> None:
    layout = in_sglang(version, name, **options)
    tokens = int(pools.partition("=")[2].partition(",")[0])
    memory = layout.needed(1, tokens)
    assert abs(memory / GIB - gib) <= 0.005
    found = lines(layout, memory)
    assert f"bytes_per_full_token={printed}" in found
    assert f"DSV4 pool sizes: {pools}" in found


def test_with_eagle_as_much_memory_holds_the_published_tokens() -> None:
    """sgl-project/sglang pull request 28620, 8 x L20: 120,576 tokens, and 73,472 with EAGLE.

    Without a drafter a token takes 7,705.45 + 0.1 x 20 x 4,096 = 15,897.45 B. With one, the tokens
    to pool are kept twice, and all is 44 / 43 of that: (15,897.45 + 0.1 x 13,440 + 0.1 x 81,920) x
    44 / 43 = 26,024.9 B.
    """
    memory = in_sglang("0.5.14").needed(1, 120_576)
    assert abs(memory - 120_576 * 15_897.45) < 1_000
    with_eagle = in_sglang("0.5.14", speculative_layers=1, speculative_tokens=4).pool(memory, 8_192)
    assert with_eagle.tokens == 73_472 == int(120_576 * 15_897.45 / 26_024.9) // 256 * 256


def test_from_0_5_21_the_window_pool_is_that_of_all_running_requests() -> None:
    """Without a radix cache: 8 x (128 + 128 + 256 + 256) + 2 x 4,096 + 256 tokens; with one, 4 x 8
    x 384 more.

    A log of 0.5.21's development on one request and chunks of 4,096 has swa_tokens=10752 (file
    70150042556).
    """
    one = in_sglang("0.5.21", max_running_requests=1, chunked_prefill_size=4_096)
    assert one.window_cap == 768 + 2 * 4_096 + 256 + 4 * 384 == 10_752
    eight: dict[str, Any] = {"max_running_requests": 8, "chunked_prefill_size": 4_096}
    assert (
        in_sglang("0.5.23", **eight).window_cap
        == -(-(8 * 768 + 2 * 4_096 + 256 + 32 * 384) // 256) * 256
    )
    assert (
        in_sglang("0.5.23", **eight, prefix_caching=False).window_cap == 8 * 768 + 2 * 4_096 + 256
    )
    # 4 requests with 6 drafted tokens and 16 ends of prefixes: swa_tokens=13312 (file 69412325477)
    drafting: dict[str, Any] = {
        "speculative_tokens": 6,
        "max_running_requests": 4,
        "chunked_prefill_size": 1_024,
    }
    assert in_sglang("0.5.23", **drafting).window_cap == 13_312


def test_from_0_5_21_pages_are_counted_with_their_padding() -> None:
    """64 keys of 584 B are padded to 37,440 B, 2 keys to 1,728 and 256 keys to 149,760.

    The tokens to pool by 4 are kept once per page: 8 x 21 x 10,240 B.
    """
    (stage,) = in_sglang("0.5.23").stage_bytes
    assert stage.page == 21 * (37_440 + 64 * 132) + 20 * 1_728
    assert stage.window_page == 43 * 149_760 + 8 * 21 * 10_240
    assert "bytes_per_full_token=3899.25" in lines(in_sglang("0.5.23"), 40 * GIB)  # 998,208 / 256
    # a ratio that is given decides as before
    by_ratio = in_sglang("0.5.23", swa_full_tokens_ratio="0.1")
    assert by_ratio.window_cap is None
    # 998,208 / 256 + 0.1 x 8,160,000 / 256
    assert "bytes_per_full_token=7086.75" in lines(by_ratio, 40 * GIB)


def test_shared_pools_have_reserved_pages_and_formats_of_their_own_on_blackwell() -> None:
    """DeepSeek-V4.1: 3 layers with pools of 2 and one with single tokens own pools.

    128 keys of 584 B are padded to 74,880 B and 256 to 149,760; the indexer's take 68. Each layer
    reserves 256 keys, and those of the indexer for one page and for 64 more. On a B200 with DP
    attention keys take 528 B and pools 288.
    """
    (stage,) = in_sglang("0.5.23", FLASH_41).stage_bytes
    assert stage.page == 3 * (74_880 + 128 * 68) + 149_760 + 256 * 68
    assert stage.reserved == 4 * 149_760 + (3 * (128 + 64) + 256 + 64) * 68
    assert stage.request == 2 * 3 * 4_096  # a ring of 2 keys and gates in fp32
    (before,) = in_sglang("0.5.22", FLASH_41).stage_bytes
    assert (before.page, before.reserved) == (256 * 1_630, 0)
    b200 = {"device": "NVIDIA B200 180GB", "tp": 8}
    (stage,) = in_sglang("0.5.23", FLASH_41, **b200, attn_dp=8).stage_bytes
    assert stage.page == 640 * (288 + 68)
    assert stage.window_page == 40 * 256 * 528
    assert (
        in_sglang("0.5.23", FLASH_41, **b200).stage_bytes[0].page
        == 3 * (74_880 + 128 * 68) + 149_760 + 256 * 68
    )


def test_fewer_running_requests_leave_more_for_tokens() -> None:
    default, eight = (
        in_sglang("0.5.23", max_running_requests=n).pool(40 * GIB, 131_072) for n in (None, 8)
    )
    assert int(eight.tokens) > 2 * int(default.tokens)
    assert default.figure("unpooled_bytes") == (258 * 128 + 128) * 20 * 4_096
    assert eight.concurrency.numerator == 8


@each("version", ["0.5.15", "0.5.23"])
@each("options", [{}, {"speculative_layers": 1, "speculative_tokens": 4}, {"pp": 2}])
def test_needed_is_the_least_memory_that_holds_the_requests(
    version: str, options: dict[str, Any]
) -> None:
    layout = in_sglang(version, max_running_requests=16, **options)
    for batch, context in ((1, 8_192), (16, 100_000)):
        memory = layout.needed(batch, context)
        enough, less = (
            float(layout.pool(size, context).concurrency) for size in (memory, memory - 1)
        )
        assert enough >= batch > less


def test_each_pipeline_stage_has_the_pools_of_its_layers() -> None:
    """Stages of 21 and 22 layers: 2 windows, 10 with pools of 4 and 9 of 128; then 11 and 11."""
    first, second = in_sglang("0.5.15", pp=2).stage_bytes
    assert [first.layers, second.layers] == [21, 22]
    assert first.page == 10 * 64 * (584 + 132) + 9 * 2 * 584
    assert second.page == 11 * 64 * (584 + 132) + 11 * 2 * 584


def test_a_shared_prefix_is_stored_once_in_whole_pages() -> None:
    layout = in_sglang("0.5.15")
    shared = layout.with_shared_prefix(10_000)
    assert shared is not None
    saved = layout.needed(40, 20_000) - shared.needed(40, 20_000)
    assert saved == pytest.approx(39 * 9_984 * 7_705.45, abs=100)


@each(
    ("options", "error"),
    [
        ({"version": "0.5.11"}, "has no compressed attention"),
        ({"version": "0.5.23", "kv_dtype": dtype("bf16")}, "in fp8 .fp8_ds_mla., not in bf16"),
        ({"version": "0.5.23", "block_size": 64}, "pages of compressed attention have 256 tokens"),
        (
            {"version": "0.5.23", "disable_hybrid_swa_memory": True},
            "does not apply to compressed attention",
        ),
        ({"version": "0.5.12", "pp": 2}, "of each pipeline stage for all layers"),
        ({"version": "0.5.20", "name": FLASH_41}, "has no DeepSeek-V4.1"),
        (
            {"version": "0.5.23", "name": FLASH_41, "pp": 2},
            "does not support --pp for DeepSeek-V4.1",
        ),
    ],
)
def test_what_sglang_cannot_store_is_an_error(options: dict[str, Any], error: str) -> None:
    with pytest.raises(AttncalcError, match=error):
        in_sglang(**options)


def test_the_cache_is_fp8_by_default() -> None:
    sglang = find_engine("sglang")
    assert [sglang.checkpoint_cache_dtype(load(name), None) for name in (FLASH, "llama2-70b")] == [
        "fp8",
        None,
    ]


def test_fit_compares_a_log_with_the_tokens_of_its_memory(ask: Ask) -> None:
    log = (
        "[2026-08-07 17:35:57 TP0] server_args=ServerArgs(tp_size=4, max_running_requests=8)\n"
        "[2026-08-07 17:35:58 TP0] DSV4 memory calculation: bytes_per_full_token=7705.45, "
        "available_bytes=11.89 GB, "
        "c128_state_fixed=0.11 GB, full_token=1641472\n"
        "[2026-08-07 17:35:58 TP0] DSV4 pool sizes: full=1641472, swa=164096, c4=410368, "
        "c128=12824, c4_state=10256, "
        "c128_state=0\n"
        "[2026-08-07 17:35:59 TP0] DSV4 pool sizes: full=32768, swa=3072, c4=8192, c128=256, "
        "c4_state=192, "
        "c128_state=0\n"
        "[2026-08-07 17:36:00 TP0] max_total_num_tokens=32768, context_len=32768\n"
    )
    answer = ask("fit", FLASH, "--log", "-", "--context", "32K", stdin=log)
    assert "AGREES: all figures are within the log's rounding." in answer.out
    assert "version 0.5.20," in answer.out


def test_fit_suggests_fewer_running_requests(ask: Ask) -> None:
    """On 8 L20, windows of 256 requests take more than the 16 GiB that are left; those of 64 take a
    quarter.
    """
    gpus = ("--gpu", "l20", "--tp", "8")
    assert (
        "--max-running-requests 64         64\n"
        in ask("fit", FLASH, "--engine", "sglang", "--context", "32K", *gpus).out
    )
    changes = find_engine("sglang").fewer_requests
    compressed = SglangArgs(
        kv_dtype=dtype("fp8"), dtype=dtype("bf16"), attentions=frozenset({"CSA", "HCA"})
    )
    assert list(changes(compressed)) == [64, 16, 4]
    assert list(changes(dataclasses.replace(compressed, max_running_requests=16))) == [4]
    assert list(changes(dataclasses.replace(compressed, attentions=frozenset({"MLA"})))) == []
