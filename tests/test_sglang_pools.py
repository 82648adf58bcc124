"""SGLang's rows of tokens, and how its arguments are resolved: attncalc/engines/sglang/pools.py and
__init__.py.
"""

import dataclasses
from typing import Any

import pytest
from tables import each
from test_sglang import DSA, GDN, MHA, MLA, engine_args, hybrid_layout, layout_of

from attncalc import AttncalcError, Grouped, Latent, Sliding, load
from attncalc.attention.linear import Lightning, ShortConvolution
from attncalc.attention.picked import Blocks, Selected
from attncalc.cost.cache import layer_cache_specs
from attncalc.engines import find_engine
from attncalc.engines.pipeline import LayerCacheSpec

WINDOWS = MHA.with_span(Sliding(8))


@pytest.mark.parametrize(
    ("kind", "kv", "row"),
    [
        # 8 heads of K and V, 128 elements each; the half of a row is K
        (MHA, "bf16", (4096, 2048, 2048, False)),
        (MHA, "fp8", (2048, 1024, 1024, False)),
        # K of 192 elements and V of 128
        (Grouped(8, 4, 192, 128), "bf16", (2560, 1536, 1024, False)),
        # 512 elements and a rotary key of 64, of which the log has no V
        (MLA, "bf16", (1152, 1152, 0, True)),
        (MLA, "fp8", (576, 576, 0, True)),
        # fp4: a byte of scale per 16 elements, which the log leaves out
        (MLA, "fp4", (288 + 36, 288, 0, True)),
        # with an indexer an fp8 latent has 4 scales of 4 B, and its rotary key stays in bf16
        (DSA, "bf16", (1152, 1152, 0, True)),
        (DSA, "fp8", (512 + 16 + 128, 656, 0, True)),
    ],
)
def test_a_token_has_one_row_per_layer(kind: Any, kv: str, row: tuple[int, int, int, bool]) -> None:
    pools = layout_of((1, kind), kv=kv).pools
    full = pools.full
    assert (full.total, full.k, full.v, full.latent) == row
    assert type(full.total) is type(full.k) is type(full.v) is int
    assert (pools.swa, pools.window) == (None, 0)
    # 128 elements and a scale of 4 B, in fp8 whatever the cache's dtype
    assert pools.indexer == (132 if kind is DSA else 0)
    assert type(pools.indexer) is int


def test_each_pool_has_rows_of_its_own_size() -> None:
    # 8 heads of full attention, 2 heads in windows
    pools = layout_of((1, MHA), (1, Grouped(32, 2, 128, span=Sliding(64)))).pools
    assert pools.swa
    assert (pools.full.total, pools.swa.total, pools.window) == (4096, 1024, 63)


def test_latents_with_a_window_have_no_scales() -> None:
    """Only the full pool has an indexer's layers."""
    pools = layout_of((1, DSA), (1, MLA.with_span(Sliding(64))), kv="fp8").pools
    assert pools.swa
    assert (pools.full.total, pools.swa.total, pools.window) == (656, 576, 63)


@pytest.mark.parametrize(
    ("kind", "convolution", "state"),
    [
        (GDN, 8192 * 3 * 2, 32 * 128 * 128 * 4),
        (ShortConvolution(40, 3), 40 * 2 * 2, 0),
        (Lightning(4, 8), 0, 4 * 8 * 8 * 4),
    ],
)
def test_a_stage_has_a_slot_of_convolutions_and_one_of_states(
    kind: Any, convolution: int, state: int
) -> None:
    (stage,) = layout_of((1, MHA), (3, kind)).pools.stages
    assert stage == (1, 0, 0, 3 * convolution, 3 * state)
    assert all(type(size) is int for size in stage)


@pytest.mark.parametrize(
    ("layers", "combination"),
    [
        ([(1, MHA), (1, WINDOWS), (1, GDN)], "together with recurrent states"),
        ([(2, WINDOWS)], "without full attention"),
    ],
)
def test_the_error_names_the_unsupported_combination(
    layers: list[tuple[int, Any]], combination: str
) -> None:
    with pytest.raises(
        AttncalcError, match=f"a sliding-window pool {combination} is not supported"
    ):
        layout_of(*layers, model_type="gpt_oss")


def test_averages_of_keys_take_a_share_of_a_token() -> None:
    """Qwen4: 12 layers with two heads of K and V and a quarter of a key, in pages of 64 tokens."""
    specs = layer_cache_specs(load("qwen3.8-flash-next"))
    layout = find_engine("sglang").layout(specs, engine_args())
    figures = {detail.name: detail.quantity for detail in layout.pool(10**10, 4096).details}
    assert figures["kv_bytes_per_token"] == 12 * (2 * 2 * 256 * 2 + 128 * 2 // 4)
    assert figures["kv_block_size"] == 64
    with pytest.raises(AttncalcError, match=r"SGLang 0\.5\.19 has no Qwen4"):
        find_engine("sglang").layout(specs, engine_args(engine_version="0.5.19"))
    with pytest.raises(AttncalcError, match="does not split the keys that an indexer averages"):
        find_engine("sglang").layout(specs, engine_args(tp=2, dcp=2))


def test_only_latents_can_be_selected_by_an_indexer() -> None:
    spans = ((MLA, Selected(16)), (MHA, Blocks(4, 4)))
    latent, keys = (
        [LayerCacheSpec(1, (kind.cache()[0]._replace(span=span),))] for kind, span in spans
    )
    assert find_engine("sglang").layout(latent, engine_args()).needed(1, 10) == 10 * 1152
    with pytest.raises(
        AttncalcError, match="does not know how SGLang stores this cache: K and V of"
    ):
        find_engine("sglang").layout(keys, engine_args())


@pytest.mark.parametrize("width", [64, 127, 129, 256])
def test_indexer_keys_have_128_elements(width: int) -> None:
    with pytest.raises(AttncalcError, match=rf"indexer keys of {width} elements \(only 128\)"):
        layout_of((1, dataclasses.replace(DSA, index_head_dim=width)))


def test_an_fp8_latent_beside_an_indexer_has_whole_groups_of_128() -> None:
    def latent(rank: int, indexer: bool) -> Latent:
        keys: dict[str, Any] = (
            {"index_n_heads": 2, "index_head_dim": 128, "index_topk": 64} if indexer else {}
        )
        return Latent(4, rank, 64, 32, 64, q_lora_rank=64, **keys)

    with pytest.raises(AttncalcError, match="an fp8 latent must be a multiple of 128 elements"):
        layout_of((1, latent(192, indexer=True)), kv="fp8")
    # the rotary key of 32 elements is not counted
    with pytest.raises(AttncalcError, match="an fp8 latent must be a multiple of 128 elements"):
        layout_of((1, latent(96, indexer=True)), kv="fp8")
    assert layout_of((1, latent(128, indexer=True)), kv="fp8").pools.full.total == 128 + 4 + 64
    assert layout_of((1, latent(192, indexer=True)), kv="bf16").pools.full.total == 2 * 224
    assert layout_of((1, latent(192, indexer=False)), kv="fp8").pools.full.total == 224


def test_fp4_has_rows_of_whole_groups_of_16_in_one_pool() -> None:
    assert layout_of((1, Grouped(4, 2, 48)), kv="fp4").pools.full.total == 4 * (24 + 3)
    for layers in (
        [(1, Grouped(4, 2, 40))],
        [(1, MHA), (1, WINDOWS)],
        [(1, Grouped(8, 4, 192, 128))],
    ):
        with pytest.raises(
            AttncalcError,
            match="fp4 needs K and V of one width, a multiple of 16, in a single pool",
        ):
            layout_of(*layers, kv="fp4")


@pytest.mark.parametrize(
    ("kv", "model", "width"),
    [
        ("bf16", "fp16", 2),
        ("fp8", "fp16", 1),
        ("fp16", "fp16", 2),
        ("fp32", "fp32", 4),
        ("fp16", "bf16", None),
        ("fp32", "bf16", None),
        ("q8_0", "q8_0", None),
    ],
)
def test_the_cache_is_in_the_models_dtype_or_in_one_of_three(
    kv: str, model: str, width: int | None
) -> None:
    if width:
        assert layout_of((1, MHA), kv=kv, model=model).pools.full.total == 2 * 8 * 128 * width
    else:
        with pytest.raises(
            AttncalcError, match=f"SGLang has no cache in {kv} for a model in {model}"
        ):
            layout_of((1, MHA), kv=kv, model=model)


# Arguments.


@pytest.mark.parametrize(
    ("more", "limit"),
    [
        # max(min(512 for each request of the whole context, 4,096), 2,048), if 8 fit or more
        ({}, 4096),
        ({"max_running_requests": 10}, 10),
        ({"speculative_tokens": 4}, 48),
        ({"speculative_layers": 1}, 48),
        ({"speculative_layers": 1, "max_running_requests": 10}, 10),
        # each rank of attention runs its part, and one request at least
        ({"max_running_requests": 10, "attn_dp": 4}, 2),
        ({"max_running_requests": 4, "attn_dp": 4}, 1),
        ({"max_running_requests": 3, "attn_dp": 4}, 1),
        ({"speculative_tokens": 4, "attn_dp": 5}, 9),
    ],
)
def test_concurrent_sequences_of_one_rank(more: dict[str, Any], limit: int) -> None:
    sglang_layout = layout_of((1, MHA), **more)
    assert sglang_layout.max_num_seqs == limit
    stated = [fact for fact in sglang_layout.facts if fact.startswith("max-running-requests")]
    assert stated == ([f"max-running-requests {limit}"] if more else [])


@each(
    ("layers", "more", "page"),
    [
        ([(1, MHA)], {}, 1),
        ([(1, MHA)], {"block_size": 32}, 32),
        ([(1, DSA)], {}, 64),
        ([(1, DSA)], {"block_size": 64}, 64),
        ([(1, DSA)], {"block_size": 63}, None),
        ([(1, DSA)], {"block_size": 65}, None),
        # the radix cache copies states while a request runs, which it cannot if all of them are
        # convolutions
        ([(1, MHA), (1, GDN)], {"block_size": 16}, 16),
        ([(1, MHA), (1, ShortConvolution(40, 3))], {"block_size": 1}, 1),
        ([(1, MHA), (1, ShortConvolution(40, 3))], {"block_size": 2}, None),
        ([(1, MHA), (1, ShortConvolution(40, 3))], {"block_size": 2, "prefix_caching": True}, None),
        ([(1, MHA), (1, ShortConvolution(40, 3))], {"block_size": 2, "prefix_caching": False}, 2),
    ],
)
def test_tokens_of_a_page(
    layers: list[tuple[int, Any]], more: dict[str, Any], page: int | None
) -> None:
    if page is None:
        with pytest.raises(AttncalcError, match="SGLang uses pages of"):
            layout_of(*layers, **more)
    else:
        assert f"page size {page}" in layout_of(*layers, **more).facts


def test_facts_have_the_ratio_that_divides_the_memory() -> None:
    assert "swa-full-tokens-ratio 0.8" in hybrid_layout(1, 2, Sliding(8)).facts
    assert "mamba-full-memory-ratio 0.9" in layout_of((1, MHA), (1, GDN)).facts
    assert layout_of((1, MHA)).facts == ("version 0.5.23", "page size 1")
    # with the number of requests the slots are fixed only if the radix cache is off
    requests: dict[str, Any] = {"max_running_requests": 7, "mamba_full_memory_ratio": "0.5"}
    assert "mamba-full-memory-ratio 0.5" in layout_of((1, MHA), (1, GDN), **requests).facts
    fixed = layout_of((1, MHA), (1, GDN), prefix_caching=False, **requests).facts
    assert fixed == ("version 0.5.23", "page size 1", "max-running-requests 7")


NOTES: list[tuple[str, list[tuple[int, Any]], dict[str, Any], bool]] = [
    ("The source of SGLang", [(1, MHA)], {}, False),
    ("The source of SGLang", [(1, MHA)], {"engine_version": "v0.5.23"}, False),
    (
        "The source of SGLang 0.5.22 was not read: its pools are assumed to be those of 0.5.23",
        [(1, MHA)],
        {"engine_version": "0.5.22"},
        True,
    ),
    (
        "The source of SGLang 0.6.0 was not read: its pools are assumed to be those of 0.5.23",
        [(1, MHA)],
        {"engine_version": "0.6.0"},
        True,
    ),
    ("SGLang's default is pages of 1 token", [(1, MHA)], {}, True),
    ("SGLang's default is pages of 1 token", [(1, MHA)], {"block_size": 1}, False),
    ("SGLang's default is pages of 1 token", [(1, DSA)], {}, False),
    ("An fp8 latent is counted with scales", [(1, DSA)], {"kv": "fp8"}, True),
    ("An fp8 latent is counted with scales", [(1, DSA)], {}, False),
    ("An fp8 latent is counted with scales", [(1, MLA)], {"kv": "fp8"}, False),
    ("fp4 is SGLang's fp4_mx_block16", [(1, MHA)], {"kv": "fp4"}, True),
    ("fp4 is SGLang's fp4_mx_block16", [(1, MHA)], {"kv": "fp8"}, False),
    ("SGLang has DP attention for some", [(1, MHA)], {"attn_dp": 2}, True),
    ("SGLang has DP attention for some", [(1, MHA)], {}, False),
    ("This assumes that the drafter's layers", [(1, MHA)], {"speculative_layers": 1}, True),
    ("This assumes that the drafter's layers", [(1, MHA)], {"speculative_tokens": 1}, False),
    ("A sequence takes up to 5 slots of states", [(1, MHA), (1, GDN)], {}, True),
    (
        "A sequence takes up to 3 slots of states",
        [(1, MHA), (1, ShortConvolution(40, 3))],
        {},
        True,
    ),
    ("A sequence takes up to", [(1, MHA), (1, GDN)], {"prefix_caching": False}, False),
    ("A sequence takes up to", [(1, MHA)], {}, False),
    ("Without --max-running-requests", [(1, MHA)], {}, True),
    ("Without --max-running-requests", [(1, MHA)], {"max_running_requests": 9}, False),
    ("SGLang has a sliding-window pool only for", [(1, MHA), (1, WINDOWS)], {}, True),
    (
        "SGLang has a sliding-window pool only for",
        [(1, MHA), (1, WINDOWS)],
        {"model_type": "gpt_oss"},
        False,
    ),
    (
        "A prompt's chunk takes more of the",
        [(1, MHA), (1, WINDOWS)],
        {"model_type": "gpt_oss"},
        True,
    ),
    ("A prompt's chunk takes more of the", [(1, MHA)], {}, False),
    (
        "Windows and chunks are stored",
        [(1, MHA), (1, WINDOWS)],
        {"disable_hybrid_swa_memory": True},
        True,
    ),
    (
        "Windows and chunks are stored",
        [(1, MHA), (1, WINDOWS)],
        {"disable_hybrid_swa_memory": True, "model_type": "gpt_oss"},
        True,
    ),
    ("Windows and chunks are stored", [(1, MHA), (1, WINDOWS)], {"model_type": "mistral"}, False),
    (
        "SGLang has no sliding-window pool for model_type",
        [(1, MHA), (1, WINDOWS)],
        {"model_type": "mistral"},
        True,
    ),
    (
        "SGLang has no sliding-window pool for model_type",
        [(1, MHA)],
        {"model_type": "mistral"},
        False,
    ),
]


@each(("start", "layers", "more", "present"), NOTES)
def test_notes_appear_only_where_they_apply(
    start: str, layers: list[tuple[int, Any]], more: dict[str, Any], present: bool
) -> None:
    assert any(note.startswith(start) for note in layout_of(*layers, **more).notes) == present
