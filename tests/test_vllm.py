"""vLLM's blocks, groups and versions: attncalc/engines/vllm. Whole logs are in
test_engine_logs.py.
"""

import contextlib
from typing import Any

import pytest
from asking import refusal
from evaluate import text_of
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from attncalc import compare, fit, kv_cache, sweep
from attncalc.attention import CacheSpec, Sliding
from attncalc.config import load
from attncalc.cost.cache import layer_cache_specs
from attncalc.engines import find_engine
from attncalc.engines.base import CacheLayout, DraftModel, EngineArgs
from attncalc.engines.pipeline import LayerCacheSpec
from attncalc.engines.switches import Switch
from attncalc.engines.vllm.options import VllmArgs
from attncalc.engines.vllm.versions import RELEASES, VllmVersion, vllm_version
from attncalc.errors import AttncalcError, NotSupportedError
from attncalc.units import dtype

GIB = 2**30
BF16, FP8 = dtype("bf16"), dtype("fp8")
# 8 KV heads x 128: 2 * 8 * 128 * 2 B = 4,096 B per token and layer in 16 bits.
KV = CacheSpec("K and V", 2 * 8, 128, role="kv")


def engine_args(**given: Any) -> VllmArgs:
    return VllmArgs(**{"kv_dtype": BF16, "dtype": BF16, "max_num_batched_tokens": 8192, **given})


def vllm(*specs: LayerCacheSpec, **given: Any) -> CacheLayout:
    return find_engine("vllm").layout(specs, engine_args(**given))


def figure(vllm_layout: CacheLayout, name: str, context: int = 4096, memory: int = GIB) -> int:
    return int(
        float(next(d.quantity for d in vllm_layout.pool(memory, context).details if d.name == name))
    )


def full(n: int, cached: CacheSpec = KV) -> LayerCacheSpec:
    return LayerCacheSpec(n, (cached,))


def window(n: int, size: int, cached: CacheSpec = KV) -> LayerCacheSpec:
    return LayerCacheSpec(n, (cached._replace(span=Sliding(size)),))


LATENT = CacheSpec("latent", 1, 576, role="latent", rotary=64)
INDEX = CacheSpec("indexer keys", 1, 128, role="indexer")


@pytest.mark.parametrize(
    ("cached", "kv_dtype", "bytes_per_token"),
    [
        ((LATENT,), "bf16", 576 * 2),
        ((LATENT,), "fp8", 576),
        # an indexer's key is 128 fp8 and an fp32 scale, for any kv_dtype
        ((LATENT, INDEX), "bf16", 576 * 2 + 128 + 4),
        # fp8_ds_mla: 512 fp8, 4 fp32 scales, 64 elements in 16 bits = 656
        ((LATENT, INDEX), "fp8", 512 + 4 * 4 + 64 * 2 + 132),
        ((KV,), "fp8", 2 * 8 * 128),
        ((KV,), "int8", 2 * 8 * (128 + 4)),
        ((KV,), "int4", 2 * 8 * (64 + 4)),
        # nvfp4: half a byte per element, and an fp8 scale per 16
        ((KV,), "fp4", 2 * 8 * (64 + 8)),
        # K has an fp16 norm, and V an fp16 scale and zero
        ((KV,), "turboquant_k8v4", 8 * (128 + 64 + 4)),
        ((KV,), "turboquant_4bit_nc", 8 * (64 + 2 + 64 + 4)),
        ((KV,), "turboquant_3bit_nc", 8 * (48 + 2 + 48 + 4)),
    ],
)
def test_bytes_of_a_token_by_kind_and_dtype(
    cached: tuple[CacheSpec, ...], kv_dtype: str, bytes_per_token: int
) -> None:
    vllm_layout = vllm(LayerCacheSpec(1, cached), kv_dtype=dtype(kv_dtype), block_size=64)
    assert figure(vllm_layout, "kv_bytes_per_block") == 64 * bytes_per_token


@pytest.mark.parametrize("name", ["llama3-8b", "deepseek-v3"])
def test_fp8_ds_mla_is_an_error_for_a_model_without_sparse_attention(name: str) -> None:
    with pytest.raises(AttncalcError, match="has neither") as caught:
        kv_cache(name, kv_dtype="fp8_ds_mla")
    assert caught.value.tip == "use kv_dtype='fp8'"


@each(("name", "layers", "token"), [("deepseek-v3.2", 61, 656 + 132), ("glm-5", 78, 656 + 132)])
def test_fp8_ds_mla_is_counted_as_flashmla_stores_it(name: str, layers: int, token: int) -> None:
    """A latent has 656 B and an indexer's key 128 + 4 B, in `kv` as in `fit`; plain fp8 has 576 +
    128 B.
    """
    options: dict[str, Any] = {"context": 8192, "kv_dtype": "fp8_ds_mla"}
    cached = layers * token * 8192
    assert int(kv_cache(name, **options).total) == cached
    assert int(kv_cache(name, context=8192, kv_dtype="fp8").total) == layers * (576 + 128) * 8192
    for engine in ("vllm", "ideal"):
        assert (
            fit(name, kv_memory="100GiB", engine=engine, **options).to_dict()[
                "kv_bytes_per_sequence"
            ]
            == cached
        )
    assert compare(name, name, **options).rows[1]["kv_cache"] == cached
    (row,) = sweep(name, columns="kv_cache", **options)
    assert row["kv_cache"] == cached


def test_fp8_ds_mla_of_compressed_attention_has_keys_of_584_bytes() -> None:
    """Two contexts of whole pools differ in pools only: 21 layers have some of 4 tokens, 20 some of
    128.

    Beside a pool of 4 tokens is an indexer's key of 132 B.
    """
    short, long = (
        int(kv_cache("deepseek-v4-flash", context=context, kv_dtype="fp8_ds_mla").total)
        for context in (4096, 8192)
    )
    assert long - short == 584 * (21 * 4096 // 4 + 20 * 4096 // 128) + 132 * 21 * 4096 // 4
    # a block of 64 keys of 584 B is padded to a multiple of 576 B in vLLM
    padded = fit("deepseek-v4-flash", kv_memory="100GiB", context=8192).to_dict()["kv_needed"]
    assert isinstance(padded, int)
    assert padded > long


def test_turboquant_leaves_the_first_and_the_last_two_layers_in_16_bits() -> None:
    """Of a model without states: 10 layers of 8 heads of 128 in blocks of 16 tokens."""
    tokens = 16 * (4 * 2 * 8 * 128 * 2 + 6 * 8 * (64 + 2 + 64 + 4))
    turbo = dtype("turboquant_4bit_nc")
    layers = [LayerCacheSpec(10, (KV,))]
    assert figure(vllm(*layers, kv_dtype=turbo, block_size=16), "kv_bytes_per_block") == tokens
    window = KV._replace(span=Sliding(128))
    with pytest.raises(AttncalcError, match="only supported for full attention"):
        vllm(LayerCacheSpec(1, (window,)), kv_dtype=turbo)


@pytest.mark.parametrize(("version", "supported"), [("0.20.2", False), ("0.21.0", True)])
def test_turboquant_is_refused_where_each_layer_has_workspaces(
    version: str, *, supported: bool
) -> None:
    # 28 of 32 layers, fp32: 1,024 sequences x 32 heads x (32 splits x 129 + 128 + 1)
    assert round(28 * 1024 * 32 * (32 * 129 + 128 + 1) * 4 / GIB, 1) == 14.6
    with (
        contextlib.nullcontext()
        if supported
        else pytest.raises(NotSupportedError, match="in each layer")
    ):
        vllm(full(10), kv_dtype=dtype("turboquant_4bit_nc"), engine_version=version)


def test_dcp_divides_the_tokens_of_latents() -> None:
    # cdiv(cdiv(4,096, 8), 16) = 32 blocks on each of 8 devices
    vllm_layout = vllm(LayerCacheSpec(61, (LATENT,)), tp=8, dcp=8)
    assert figure(vllm_layout, "kv_block_size") == 16
    assert figure(vllm_layout, "kv_blocks_per_request") == 32


@each(
    ("version", "device", "kv_dtype", "tokens"),
    [
        # without a GPU, as on an H100; test_vllm_plans.py has the others of this version
        ("0.32.0", "", BF16, 16),
        # check_and_update_config in platforms/cuda.py of 0.17.1, 0.14.1 and 0.10.0
        ("0.17.1", "NVIDIA H100 80GB HBM3", BF16, 64),
        ("0.17.1", "NVIDIA B200", BF16, 64),
        ("0.14.1", "NVIDIA B200", BF16, 128),
        ("0.10.0", "NVIDIA B200", BF16, 16),
        ("0.17.1", "NVIDIA A100-SXM4-80GB", BF16, 16),
        # platforms/rocm.py does not change the default
        ("0.17.1", "AMD Instinct MI300X", BF16, 16),
    ],
)
def test_a_block_of_latents_has_the_tokens_of_the_backend(
    version: str, device: str, kv_dtype: Any, tokens: int
) -> None:
    vllm_layout = vllm(
        LayerCacheSpec(61, (LATENT,)), engine_version=version, device=device, kv_dtype=kv_dtype
    )
    assert figure(vllm_layout, "kv_block_size") == tokens


@pytest.mark.parametrize(
    ("cached", "given", "message"),
    [
        (
            (LATENT,),
            {"engine_version": "0.24.0", "kv_dtype": FP8},
            "vLLM 0.24.0 does not split latents in fp8",
        ),
        ((LATENT,), {"engine_version": "0.25.0", "kv_dtype": FP8}, None),
        ((LATENT,), {"engine_version": "0.24.0"}, None),
        (
            (LATENT, INDEX),
            {"engine_version": "0.24.0"},
            "0.24.0 does not split the latents that an indexer picks",
        ),
        ((LATENT, INDEX), {"engine_version": "0.25.0", "device": "NVIDIA B200"}, None),
        (
            (LATENT, INDEX),
            {"engine_version": "0.28.0", "device": "NVIDIA H200", "kv_dtype": FP8},
            "on NVIDIA H200",
        ),
        (
            (LATENT, INDEX),
            {"engine_version": "0.29.0", "device": "NVIDIA H200", "kv_dtype": FP8},
            None,
        ),
        ((LATENT, INDEX), {"device": "NVIDIA H200"}, "only in fp8 on NVIDIA H200"),
        (
            (LATENT, INDEX),
            {"device": "AMD Instinct MI300X", "kv_dtype": FP8},
            "on AMD Instinct MI300X",
        ),
    ],
)
def test_dcp_needs_a_kernel_for_latents_in_that_version_on_that_device(
    cached: Any, given: dict[str, Any], message: str | None
) -> None:
    with pytest.raises(AttncalcError, match=message) if message else contextlib.nullcontext():
        vllm(LayerCacheSpec(61, cached), tp=8, dcp=8, **given)


def test_windows_have_groups_of_their_own() -> None:
    """Gemma 3 27B: 52 windows and 10 full layers are 7 groups of 10 layers, 8 of them padding."""
    vllm_layout = vllm(
        *[part for _ in range(10) for part in (window(5, 1024), full(1))], window(2, 1024)
    )
    assert figure(vllm_layout, "kv_groups") == 6 + 1
    assert figure(vllm_layout, "kv_bytes_per_block") == 10 * 16 * 4096
    assert (
        "Add 8 padding layers, may waste at most 15.38% KV cache memory"
        in vllm_layout.pool(GIB, 4096).log_lines
    )
    # full: 131,072 / 16; a window: (1,023 + 2 x 8,192 in flight) / 16, and one more because it may
    # start in a block
    assert figure(vllm_layout, "kv_blocks_per_request", 131072) == 8192 + 6 * (
        -(-(1023 + 16384) // 16) + 1
    )


@pytest.mark.parametrize(
    "given", [{"engine_version": "0.9.0"}, {"disable_hybrid_kv_cache_manager": True}]
)
def test_without_the_hybrid_manager_windows_store_every_token(given: dict[str, Any]) -> None:
    vllm_layout = vllm(window(5, 1024), full(1), **given)
    assert figure(vllm_layout, "kv_groups") == 1
    assert figure(vllm_layout, "kv_bytes_per_block") == 6 * 16 * 4096


def test_smaller_pages_get_more_tokens_per_block() -> None:
    # Gemma 4: windows of 16 heads x 256 and full layers of 4 heads x 512: half as wide, so twice
    # the tokens
    wide, narrow = CacheSpec("K and V", 32, 256, role="kv"), CacheSpec("K and V", 8, 512, role="kv")
    vllm_layout = vllm(window(5, 1024, wide), full(1, narrow), max_num_batched_tokens=8192)
    assert figure(vllm_layout, "kv_bytes_per_block") == 16 * 32 * 256 * 2
    assert figure(vllm_layout, "kv_blocks_per_request", 131072) == 131072 // 32 + 5 * (
        -(-(1023 + 16384) // 16) + 1
    )
    with pytest.raises(AttncalcError, match=r"0\.11\.2 cannot bring together pages"):
        vllm(window(5, 1024, wide), full(1, narrow), engine_version="0.11.2")


CONVOLUTION = CacheSpec("convolution", 8192, 4, per="sequence", role="convolution")
STATE = CacheSpec(
    "state", 32 * 128, 128, per="sequence", dtype="fp32", role="state", requested_dtype="fp32"
)
# Qwen3.5-9B's: 8,192 x 3 x 2 B of convolution and 32 x 128 x 128 x 4 B of state: 2,146,304 B.
GDN = LayerCacheSpec(3, (CONVOLUTION, STATE), "GDN")
WIDE = CacheSpec("K and V", 2 * 4, 256, role="kv")


def test_attention_blocks_grow_until_a_state_fits() -> None:
    # 2,146,304 B / 4,096 B per token is 524.0; the next multiple of 16 is 528, and 528 x 4,096 /
    # 2,146,304 = 1.0076
    vllm_layout = vllm(GDN, full(1, WIDE), engine_version="0.19.0", prefix_caching=False)
    assert figure(vllm_layout, "kv_block_size") == 528
    assert "Padding mamba page size by 0.76% to ensure" in vllm_layout.pool(GIB, 4096).log_lines[1]
    assert figure(vllm_layout, "kv_blocks_per_request", 262144) == -(-262144 // 528) + 3 * 1


@pytest.mark.parametrize(
    ("given", "states"),
    [
        ({"engine_version": "0.14.0"}, 1),
        ({"engine_version": "0.19.0"}, 1),
        ({"engine_version": "0.19.0", "prefix_caching": True}, 2),
        ({"engine_version": "0.19.0", "prefix_caching": True, "speculative_tokens": 3}, 5),
        ({"engine_version": "0.28.0"}, 2),  # prefix caching is on by default since 0.28
        ({"engine_version": "0.33.0"}, 3),  # and a checkpoint half-way through a prefill
        ({"engine_version": "0.33.0", "prefix_caching": False}, 1),
    ],
)
def test_blocks_of_states_per_request(given: dict[str, Any], states: int) -> None:
    vllm_layout = vllm(GDN, full(1, WIDE), **given)
    block = figure(vllm_layout, "kv_block_size")
    assert figure(vllm_layout, "kv_blocks_per_request", 262144) == -(-262144 // block) + 3 * states


def test_the_largest_pipeline_stage_decides() -> None:
    # 80 layers in 3 stages: 26, 27, 27
    assert figure(vllm(full(80), pp=3), "kv_bytes_per_block") == 27 * 16 * 4096


def test_before_0_11_each_stage_groups_its_own_layers() -> None:
    # 4 full and 22 windows in 2 stages of 13: 2 and 11 each, so 6 groups of 2, and not 7 of 4
    specs = [part for _ in range(4) for part in (window(5, 512), full(1))] + [window(2, 512)]
    old, new = (vllm(*specs, pp=2, engine_version=v) for v in ("0.10.2", "0.11.0"))
    assert (figure(old, "kv_groups"), figure(old, "kv_bytes_per_block")) == (1 + 6, 2 * 16 * 4096)
    assert (figure(new, "kv_groups"), figure(new, "kv_bytes_per_block")) == (1 + 6, 2 * 16 * 4096)


def test_since_0_13_cross_attention_has_blocks_for_batched_tokens() -> None:
    # the encoder's 1,500 tokens are 94 blocks; from 0.13 max_num_batched_tokens, 2,048 here, are
    # 128
    across = KV._replace(per="source token")
    specs = (LayerCacheSpec(32, (KV, across)),)
    for version, blocks in (("0.12.0", 94), ("0.13.0", 128)):
        vllm_layout = vllm(*specs, source=1500, max_num_batched_tokens=2048, engine_version=version)
        assert figure(vllm_layout, "kv_blocks_per_request", 448) == 28 + blocks


def test_since_0_20_aligned_blocks_are_multiples_of_the_block_size() -> None:
    # 2,146,304 B / 4,096 B are 524 tokens: 528 of 16, 576 of 64
    for version, block in (("0.19.0", 528), ("0.20.2", 576)):
        assert (
            figure(vllm(GDN, full(1, WIDE), block_size=64, engine_version=version), "kv_block_size")
            == block
        )


def test_from_0_17_to_0_26_a_cached_prefixs_block_is_no_larger_than_a_step() -> None:
    """0.20.2: 'In Mamba cache align mode, block_size (2096) must be <= max_num_batched_tokens
    (2048)'.
    """

    def block(version: str, tokens: int) -> int:
        given = {"prefix_caching": True, "max_num_batched_tokens": tokens}
        return int(
            figure(vllm(GDN, full(1, WIDE), engine_version=version, **given), "kv_block_size")
        )

    assert [
        block("0.16.0", 527),
        block("0.17.0", 528),
        block("0.26.0", 528),
        block("0.27.0", 527),
    ] == [528] * 4
    for version in ("0.17.0", "0.26.0"):
        with pytest.raises(AttncalcError, match="a block has 528 tokens, and a step 527"):
            block(version, 527)


def test_before_0_20_1_a_states_block_counted_as_a_whole_request() -> None:
    # 4 groups; the least block is that of a request of 512 tokens, not attention's of 528
    vllm_layout = vllm(GDN, full(1, WIDE), engine_version="0.19.0")
    assert (
        vllm_layout.pool(100 * figure(vllm_layout, "kv_bytes_per_block"), 512).tokens
        == 100 // 4 * 512
    )


def test_purely_recurrent_models_cache_no_prefixes_by_default() -> None:
    vllm_layout = vllm(LayerCacheSpec(64, GDN.cached, "Mamba"), engine_version="0.33.0")
    assert figure(vllm_layout, "kv_blocks_per_request", 2048) == 1


def test_since_0_18_the_log_has_no_line_for_a_block_that_did_not_grow() -> None:
    small = LayerCacheSpec(3, (CONVOLUTION._replace(rows=8, width=3),), "short convolution")
    assert not any("Setting" in line for line in vllm(small, full(1)).pool(GIB, 4096).log_lines)
    assert any(
        "size to 16" in line
        for line in vllm(small, full(1), engine_version="0.17.1").pool(GIB, 4096).log_lines
    )


@each(
    ("specs", "given", "wrong"),
    [
        ([LayerCacheSpec(2, ())], {}, "has no cache"),
        (
            [LayerCacheSpec(1, (CacheSpec("memory", 4, 4, per="sequence"),))],
            {},
            "how vLLM stores this cache: memory",
        ),
        ([full(1)], {"kv_dtype": dtype("q8_0")}, "no cache in q8_0"),
        (
            [LayerCacheSpec(1, (LATENT,))],
            {"kv_dtype": dtype("int8")},
            "no cache of latents in int8",
        ),
        ([full(1)], {"pp": 2}, r"the number of layers \(1\)"),
        ([window(1, 8), full(1)], {"dcp": 2}, "does not split the cache of a sliding window"),
        ([GDN, full(1, WIDE)], {"engine_version": "0.9.2"}, "has no cache for recurrent layers"),
        (
            [GDN, full(1, WIDE)],
            {"disable_hybrid_kv_cache_manager": True},
            "only layers of one kind",
        ),
        (
            [LayerCacheSpec(3, GDN.cached, "Mamba-2"), full(1)],
            {"engine_version": "0.19.0", "prefix_caching": True},
            "prefix caching of Mamba layers is not supported",
        ),
        (
            [LayerCacheSpec(3, GDN.cached, "Mamba-2"), full(1)],
            {"engine_version": "0.26.0", "prefix_caching": True},
            "prefix caching of Mamba layers",
        ),
        (
            [GDN, full(1, WIDE)],
            {"engine_version": "0.11.0", "prefix_caching": True},
            "no prefix caching for recurrent layers",
        ),
        (
            [LayerCacheSpec(3, GDN.cached, "KDA"), full(1)],
            {"engine_version": "0.16.0", "speculative_tokens": 1},
            "no speculative decoding for these",
        ),
        (
            [GDN, LayerCacheSpec(1, (LATENT,))],
            {"engine_version": "0.11.0"},
            "has no MLA beside recurrent layers",
        ),
        ([full(1), LayerCacheSpec(1, ())], {"pp": 2}, "a stage would have no layer with a cache"),
        (
            [full(1), LayerCacheSpec(1, (KV._replace(per="source token"),))],
            {"engine_version": "0.10.1"},
            "no cache for cross",
        ),
        (
            [LayerCacheSpec(1, (LATENT._replace(width=320), INDEX))],
            {"kv_dtype": dtype("fp8")},
            "not of 320",
        ),
        (
            [full(3), window(3, 8)],
            {"pp": 2, "engine_version": "0.10.2"},
            "stages with different kinds of layers",
        ),
    ],
)
def test_unsupported_combinations_are_errors(
    specs: list[LayerCacheSpec], given: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(AttncalcError, match=wrong):
        vllm(*specs, **given)


def test_tokens_are_rounded_like_python_floats() -> None:
    # 1,994 / 375 * 6,000 is 31,904; in floats it is a little less, and vLLM truncates it
    vllm_layout = vllm(full(32))
    pool = vllm_layout.pool(1994 * figure(vllm_layout, "kv_bytes_per_block"), 6000)
    assert (pool.blocks, int(pool.tokens), 1994 * 6000 // 375) == (1994, 31903, 31904)
    text_of(pool.tokens)


def test_releases_cover_every_set_of_behaviours() -> None:
    """A log without a version is compared with RELEASES, which must behave in every way that any
    release does.
    """
    flags = [name for name, value in vars(VllmVersion).items() if isinstance(value, Switch)]

    def signature(version: tuple[int, ...]) -> tuple[object, ...]:
        at = VllmVersion("", version)
        return tuple(getattr(at, name) for name in flags)

    covered = {signature(vllm_version(text).number) for text in RELEASES}
    patches = [
        (0, minor, patch) for minor in range(8, 34) for patch in range(5 if minor == 8 else 0, 6)
    ]
    assert {signature(version) for version in patches} <= covered


MODELS = [
    "llama2-70b",
    "deepseek-v3",
    "gemma3-27b",
    "gpt-oss-20b",
    "mistral-7b-v0.1",
    "whisper-large-v3",
]


@given(
    st.sampled_from(MODELS), st.integers(1, 64), st.integers(1, 200_000), st.sampled_from([1, 2, 4])
)
def test_needed_grows_and_is_at_least_ideal(name: str, batch: int, context: int, tp: int) -> None:
    model = load(name).shard(tp)
    source = model.encoder.max_context if model.encoder else None
    settings = engine_args(tp=tp, source=source)
    vllm_layout = find_engine("vllm").layout(layer_cache_specs(model.plain()), settings)
    ideal = find_engine("ideal").layout(
        layer_cache_specs(model.plain()), EngineArgs(BF16, BF16, tp=tp, source=source)
    )
    need = vllm_layout.needed(batch, context)
    assert (
        ideal.needed(batch, context)
        <= need
        <= min(vllm_layout.needed(batch + 1, context), vllm_layout.needed(batch, context + 1))
    )


@given(st.sampled_from(MODELS), st.integers(2**20, 2**40), st.integers(1, 200_000))
def test_formulas_evaluate_to_their_figures(name: str, memory: int, context: int) -> None:
    model = load(name).shard(2)
    source = model.encoder.max_context if model.encoder else None
    vllm_layout = find_engine("vllm").layout(
        layer_cache_specs(model.symbolic(gathered=False)), engine_args(tp=2, source=source)
    )
    pool = vllm_layout.pool(memory, context)
    assert pool.blocks is not None
    for shown in (pool.blocks, pool.tokens, *(d.quantity for d in pool.details)):
        text_of(shown)
    plain = (
        find_engine("vllm")
        .layout(layer_cache_specs(model.plain()), engine_args(tp=2, source=source))
        .pool(memory, context)
    )
    assert (int(plain.tokens), plain.log_lines) == (int(pool.tokens), pool.log_lines)


def test_v0_aligns_the_latents_of_a_token_to_256_bytes() -> None:
    # "# GPU blocks: 18418", 2.30x for 128,000 tokens, from 21.43 GiB of DeepSeek-R1 on 8 x H200:
    # 1,152 B become 1,280
    model = load("deepseek-v3").shard(8)
    v0 = find_engine("vllm").layout(
        layer_cache_specs(model.plain()), engine_args(tp=8, engine_version="v0")
    )
    pool = v0.pool(int(21.43 * GIB), 128_000)
    assert pool.blocks == 18_418
    assert f"{float(pool.concurrency):.2f}" == "2.30"


# Drafters


def stages(vllm_layout: CacheLayout) -> list[int]:
    """Return the bytes that one block takes on each pipeline stage."""
    return [part.needed(0, 16) for part in vllm_layout.parts or [vllm_layout]]


PAGE = 16 * 4096


def test_a_draft_model_runs_on_the_last_stage() -> None:
    """Two layers of 1 KV head x 128 beside 4 layers with 8 heads on each of two stages."""
    small = LayerCacheSpec(2, (KV._replace(rows=2),))
    draft = DraftModel("draft", 10**9, (small,))
    assert stages(vllm(full(8), pp=2)) == [4 * PAGE, 4 * PAGE]
    assert stages(vllm(full(8), pp=2, speculative_model=draft)) == [
        4 * PAGE,
        4 * PAGE + 2 * PAGE // 8,
    ]
    assert stages(vllm(full(8), speculative_model=draft)) == [8 * PAGE + 2 * PAGE // 8]
    # one request takes as many blocks as without it
    assert figure(vllm(full(8), speculative_model=draft), "kv_blocks_per_request") == 4096 // 16


def test_the_layers_of_a_drafter_are_on_the_stage_of_the_last_attention_layer() -> None:
    assert stages(vllm(full(5), pp=2, speculative_layers=2)) == [3 * PAGE, (2 + 2) * PAGE]
    mixed = vllm(window(4, 1024), full(4), speculative_layers=4)
    # two groups of full attention beside one of windows
    assert (figure(mixed, "kv_groups"), figure(mixed, "kv_bytes_per_block")) == (3, 4 * PAGE)
    across = LayerCacheSpec(2, (KV, KV._replace(per="source token")))
    with_source = vllm(across, source=1500, speculative_layers=2)
    # 2 + 2 layers of K and V, in groups of 2 like the 2 layers of the source
    assert (figure(with_source, "kv_groups"), figure(with_source, "kv_bytes_per_block")) == (
        3,
        2 * PAGE,
    )


def test_states_are_padded_to_the_widest_page_of_attention() -> None:
    """A state of 2,146,304 B in pages of 528 tokens x 4,096 B; 3 groups of states beside one of
    attention.
    """
    found = vllm(GDN, full(1, WIDE), engine_version="0.19.0")
    assert figure(found, "kv_bytes_per_block") == 528 * 4096
    # without attention nothing is padded: 3 layers of one group
    alone = vllm(GDN, engine_version="0.19.0")
    assert figure(alone, "kv_bytes_per_block") == 3 * 2_146_304
    # with two widths of attention the wider one decides
    both = vllm(
        GDN,
        full(1, WIDE),
        full(1, WIDE._replace(width=128)),
        engine_version="0.33.0",
        prefix_caching=False,
    )
    assert figure(both, "kv_bytes_per_block") == 528 * 4096


def test_stages_of_old_versions_have_equal_kinds_of_groups() -> None:
    """2 and 2 windows, and 1 full layer each, in stages of 3; 0.10 groups each stage for itself."""
    one = [window(2, 512), full(1)]
    old = vllm(*one, *one, pp=2, engine_version="0.10.2")
    assert (stages(old), figure(old, "kv_groups")) == ([PAGE, PAGE], 3)
    new = vllm(*one, *one, pp=2, engine_version="0.11.0")
    assert (stages(new), figure(new, "kv_groups")) == ([PAGE, PAGE], 3)
    # the first stage logs its own padding: 4 windows in groups of 2 need none, and 3 of the second
    # stage a layer
    uneven = vllm(full(2), window(4, 512), full(2), window(3, 512), pp=2, engine_version="0.10.2")
    assert (stages(uneven), figure(uneven, "kv_groups")) == ([2 * PAGE, 2 * PAGE], 3)
    assert not any("padding" in line for line in uneven.pool(GIB, 4096).log_lines)
    error = refusal(vllm, window(3, 512), full(1), window(2, 512), pp=2, engine_version="0.10.2")
    assert (
        error.message
        == "--pp 2: stages with different kinds of layers are not supported for vLLM 0.10.2"
    )
    assert (
        error.tip
        == "use --engine-version 0.11.0 or later, which groups the layers of all stages together"
    )
    with pytest.raises(AttncalcError, match="--pp 3: stages with different kinds"):
        vllm(full(4), window(2, 512), pp=3, engine_version="0.10.2")


@pytest.mark.parametrize(
    ("version", "expected"),
    # from 0.11 to 0.16 each stage pays for the layers of all stages if their widths differ
    [("0.11.0", [4]), ("0.16.0", [4]), ("0.17.0", [2, 2])],
)
def test_stages_of_layers_of_several_widths(version: str, expected: list[int]) -> None:
    """A latent of 1,152 B and an indexer's key of 132 in each of four layers, in blocks of 64
    tokens.
    """
    found = vllm(LayerCacheSpec(4, (LATENT, INDEX)), pp=2, engine_version=version)
    assert stages(found) == [layers * 64 * (1152 + 132) for layers in expected]
    # layers of one width are divided in every version
    assert stages(vllm(full(4), pp=2, engine_version=version)) == [2 * PAGE] * 2


@pytest.mark.parametrize(
    ("version", "promoted", "groups"),
    [
        ("0.33.0", False, 2),
        ("0.33.0", True, 1),
        ("0.9.0", False, 1),
        ("0.9.1", False, 2),
        ("0.9.1", True, 1),
    ],
)
def test_windows_are_stored_like_full_attention_without_groups_of_their_own(
    version: str, promoted: bool, groups: int
) -> None:
    """4,096 tokens have 256 blocks; a window and a step of 8,192 tokens are more than that, and
    take one more.
    """
    found = vllm(
        full(1), window(1, 1024), engine_version=version, disable_hybrid_kv_cache_manager=promoted
    )
    assert figure(found, "kv_groups") == groups
    assert figure(found, "kv_blocks_per_request") == (256 if groups == 1 else 256 + 256 + 1)
