"""How vLLM groups layers: which share block numbers, how many a group has, and how pages become
equal.
"""

from dataclasses import replace
from typing import Any

import pytest
from asking import refusal
from tables import each

from attncalc.attention import CacheSpec, Chunked, Sliding
from attncalc.engines.vllm.blocks import VllmLayout
from attncalc.engines.vllm.groups import group_layers
from attncalc.engines.vllm.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
from attncalc.engines.vllm.layer_spec import layer_specs
from attncalc.engines.vllm.options import TURBOQUANT, VllmArgs
from attncalc.engines.vllm.versions import vllm_version
from attncalc.quantity import quantity, symbol
from attncalc.units import dtype

# Pages of 4 KiB.
HEADS = ((2, 64),)
FULL = FullAttentionSpec(16, HEADS, token_bytes=256)
WIDE = FullAttentionSpec(16, ((2, 128),), token_bytes=512)
WINDOW = SlidingWindowSpec(16, HEADS, token_bytes=256, sliding_window=1024)
CHUNKS = ChunkedLocalAttentionSpec(16, HEADS, token_bytes=256, attention_chunk_size=2048)
LATENT = MLAAttentionSpec(16, ((1, 128),), token_bytes=256)
STATE = MambaSpec(16, ((1, 1500),), state_bytes=3000)
ACROSS = CrossAttentionSpec(16, HEADS, token_bytes=256)


def args_of(version: str, promote: bool = False) -> VllmArgs:
    bf16 = dtype("bf16")
    return VllmArgs(bf16, bf16, engine_version=version, disable_hybrid_kv_cache_manager=promote)


def grouped(
    *specs: KVCacheSpec, version: str = "0.33.0", promote: bool = False
) -> list[tuple[int, ...]]:
    return [group.layers for group in group_layers(specs, args_of(version, promote))]


def refused(*specs: KVCacheSpec, version: str = "0.33.0") -> str:
    error = refusal(group_layers, specs, args_of(version))
    assert error.tip == "choose a newer version with --engine-version, or another engine"
    return error.message


def test_the_first_layer_of_a_group_decides_its_blocks() -> None:
    (group,) = group_layers([FULL, FULL], args_of("0.33.0"))
    assert (group.layers, group.spec) == ((0, 1), FULL)
    (group,) = group_layers([WIDE, FULL], args_of("0.33.0"))
    assert group.spec == WIDE


@each(
    ("full", "windows", "version", "size"),
    [
        # groups of the rarest kind, or of the most common one if that has less than 3/2 as many
        # layers
        (10, 14, "0.18.0", 14),
        (10, 15, "0.18.0", 10),
        (14, 10, "0.18.0", 14),
        (15, 10, "0.18.0", 10),
        # from 0.12 to 0.17 less than 5/4
        (4, 5, "0.17.1", 4),
        (8, 9, "0.17.1", 9),
        (8, 9, "0.12.0", 9),
        (8, 10, "0.12.0", 8),
        (8, 9, "0.11.2", 8),
        (10, 52, "0.33.0", 10),
    ],
)
def test_groups_have_as_many_layers_as_the_rarest_kind(
    full: int, windows: int, version: str, size: int
) -> None:
    args = args_of(version)
    groups = group_layers([FULL] * full + [WINDOW] * windows, args)
    assert max(len(group.layers) for group in groups) == size
    assert len(groups) == -(-full // size) + -(-windows // size)
    added = [(-full % size, full), (-windows % size, windows)]
    assert list(VllmLayout(args, groups, (groups,), None, None, ()).padding()) == [
        pair for pair in added if pair[0]
    ]
    assert sorted(n for group in groups for n in group.layers) == list(range(full + windows))


def test_a_group_takes_every_nth_layer_of_its_kind_from_0_11() -> None:
    specs = [WINDOW, WINDOW, FULL] * 2
    assert grouped(*specs) == [(0, 3), (1, 4), (2, 5)]
    assert grouped(*specs, version="0.11.0") == [(0, 3), (1, 4), (2, 5)]
    assert grouped(*specs, version="0.10.2") == [(0, 1), (3, 4), (2, 5)]
    # 5 in groups of 2: 3 groups
    assert grouped(*([WINDOW] * 5), FULL, FULL) == [(0, 3), (1, 4), (2,), (5, 6)]
    assert grouped(*([WINDOW] * 5), FULL, FULL, version="0.10.2") == [(0, 1), (2, 3), (4,), (5, 6)]


ONE = [(0, 1)]
TWO = [(0,), (1,)]


@each(
    ("specs", "version", "promote", "expected"),
    [
        # windows have groups of their own from 0.9.1 on
        ((FULL, WINDOW), "0.9.0", False, ONE),
        ((FULL, WINDOW), "0.9.1", False, TWO),
        ((FULL, WINDOW), "0.33.0", True, ONE),
        ((WINDOW, FULL), "0.33.0", True, ONE),
        # chunks in 0.10.0 and from 0.14 on
        ((FULL, CHUNKS), "0.9.2", False, ONE),
        ((FULL, CHUNKS), "0.10.0", False, TWO),
        ((FULL, CHUNKS), "0.10.1", False, ONE),
        ((FULL, CHUNKS), "0.13.0", False, ONE),
        ((FULL, CHUNKS), "0.14.0", False, TWO),
        ((FULL, CHUNKS), "0.14.0", True, ONE),
        # without full attention nothing is promoted
        ((WINDOW, WINDOW), "0.9.0", False, ONE),
        ((WINDOW, CHUNKS), "0.33.0", False, TWO),
        # widths are mixed in one group from 0.11 on, and before V1; pages of one size always
        ((FULL, WIDE), "0.11.0", False, ONE),
        ((FULL, WIDE), "v0", False, ONE),
        ((FULL, replace(WIDE, token_bytes=256)), "0.10.2", False, ONE),
        ((FULL, LATENT), "0.10.2", False, ONE),
        ((FULL, replace(LATENT, token_bytes=300)), "0.33.0", False, ONE),
        ((WINDOW, replace(WINDOW, token_bytes=512)), "0.33.0", False, ONE),
        # one window each, and states, have groups of their own
        ((WINDOW, replace(WINDOW, sliding_window=512)), "0.33.0", False, TWO),
        ((STATE, replace(STATE, state_bytes=2000, shape=((1, 1000),))), "0.33.0", False, TWO),
        ((STATE, replace(STATE, shape=((2, 750),))), "0.33.0", False, TWO),
        ((STATE, STATE), "0.33.0", False, ONE),
        ((FULL, ACROSS), "0.33.0", False, TWO),
        ((FULL, replace(FULL, block_size=32, token_bytes=128)), "0.33.0", False, TWO),
    ],
)
def test_which_layers_share_a_group(
    specs: tuple[KVCacheSpec, ...], version: str, promote: bool, expected: list[tuple[int, ...]]
) -> None:
    assert grouped(*specs, version=version, promote=promote) == expected


def test_promoted_windows_have_the_blocks_of_full_attention() -> None:
    small = replace(WINDOW, block_size=8)
    (group,) = group_layers([small, FULL, FULL], args_of("0.33.0", True))
    assert group.specs == (FULL, FULL, FULL)


def pages(*specs: KVCacheSpec, version: str = "0.33.0") -> list[tuple[int, int]]:
    """Return the tokens per block and the bytes of a page of each layer, in the order of its
    groups.
    """
    groups = group_layers(specs, args_of(version))
    assert all(type(spec.block_size) is int for group in groups for spec in group.specs)
    return [(spec.block_size, spec.page_size_bytes) for group in groups for spec in group.specs]


def test_pages_become_as_large_as_the_largest() -> None:
    """4 KiB: a window of 2 KiB gets twice as many tokens; one of 3 KiB is padded, and so are
    states.
    """
    half, three_quarters = replace(WINDOW, token_bytes=128), replace(WINDOW, token_bytes=192)
    assert pages(FULL, half) == [(16, 4096), (32, 4096)]
    assert pages(half, FULL, version="0.12.0") == [(32, 4096), (16, 4096)]
    assert pages(FULL, replace(WINDOW, token_bytes=32)) == [(16, 4096), (128, 4096)]
    assert pages(FULL, three_quarters, version="0.24.0") == [(16, 4096), (16, 4096)]
    assert pages(FULL, STATE, version="0.11.2") == [(16, 4096), (16, 4096)]


@pytest.mark.parametrize(
    ("other", "version"),
    [
        (replace(WINDOW, token_bytes=128), "0.11.2"),
        (replace(WINDOW, token_bytes=192), "0.23.0"),
        # a page of latents is never padded
        (replace(LATENT, token_bytes=192), "0.33.0"),
    ],
)
def test_pages_that_cannot_be_equal_are_errors(other: KVCacheSpec, version: str) -> None:
    large = replace(WINDOW, sliding_window=99) if isinstance(other, MLAAttentionSpec) else FULL
    message = refused(large, other, version=version)
    name = vllm_version(version).name
    assert (
        message
        == f"vLLM {name} cannot bring together pages of different sizes, which this model has"
    )


def test_several_kinds_before_the_hybrid_manager_are_errors() -> None:
    message = refused(WINDOW, CHUNKS, version="0.9.0")
    assert message.endswith("supports only layers of one kind here, and this model has several")


@pytest.mark.parametrize("other", [STATE, ACROSS])
def test_several_kinds_without_the_hybrid_manager_are_errors(other: KVCacheSpec) -> None:
    error = refusal(group_layers, (FULL, other), args_of("0.33.0", True))
    assert "only layers of one kind without its hybrid KV-cache manager" in error.message
    assert "the connector of the cache that needs it" in (error.tip or "")


# Specs of a layer


KV = CacheSpec("K and V", 4, 128, role="kv")
KEYS, VALUES = CacheSpec("K", 2, 192, role="k"), CacheSpec("V", 2, 128, role="v")
LATENTS = CacheSpec("latent", 1, 576, role="latent", rotary=64)
INDEX = CacheSpec("index", 1, 128, role="indexer")
CONVOLUTION = CacheSpec("convolution", 100, 4, per="sequence", role="convolution")
MATRIX = CacheSpec("state", 20, 30, per="sequence", dtype="fp32", role="state")


def of_layer(
    *cached: CacheSpec, kv: str = "bf16", version: str = "0.33.0", block: int = 64, **given: Any
) -> Any:
    args = VllmArgs(dtype(kv), dtype("bf16"), engine_version=version, **given)
    return list(layer_specs(cached, args, block))


@each(
    ("cached", "kv", "version", "expected"),
    [
        ((KV,), "bf16", "0.33.0", 4 * 128 * 2),
        ((KV,), "fp32", "0.33.0", 4 * 128 * 4),
        ((KV,), "fp8", "0.33.0", 4 * 128),
        # V is stored as wide as K up to 0.19
        ((KEYS, VALUES), "bf16", "0.19.1", 2 * (192 + 192) * 2),
        ((KEYS, VALUES), "bf16", "0.20.0", 2 * (192 + 128) * 2),
        ((LATENTS,), "bf16", "0.33.0", 576 * 2),
        ((LATENTS,), "fp8", "0.33.0", 576),
        # V0 aligns a latent to 256 bytes
        ((LATENTS,), "bf16", "0.7.3", 1280),
        ((LATENTS,), "fp8", "0.7.3", 768),
        ((LATENTS._replace(width=512),), "bf16", "0.7.3", 1024),
    ],
)
def test_bytes_of_a_token(
    cached: tuple[CacheSpec, ...], kv: str, version: str, expected: int
) -> None:
    (spec,) = of_layer(*cached, kv=kv, version=version)
    assert (spec.token_bytes, spec.block_size, spec.page_size_bytes) == (
        expected,
        64,
        64 * expected,
    )
    assert spec.shape == tuple((c.rows, c.width) for c in cached)
    assert spec.kind == ("mla" if cached[0] is not KV and cached[0] is not KEYS else "full")
    assert isinstance(spec, FullAttentionSpec)


def test_fp8_latents_beside_an_indexer_have_scales_and_a_wide_rotary_key() -> None:
    """512 + 4 scales of 4 B + 64 x 2 B; the indexer's key has 128 B and a scale, in any dtype."""
    for kv, latent in (("fp8", 512 + 16 + 128), ("bf16", 1152)):
        found = of_layer(LATENTS, INDEX, kv=kv)
        assert [(spec.kind, spec.token_bytes) for spec in found] == [
            ("mla", latent),
            ("mla", 128 + 4),
        ]
    # another rotary part, and a key of more than one scale
    split = LATENTS._replace(rotary=100)
    assert of_layer(split, INDEX._replace(width=129), kv="fp8")[0].token_bytes == 476 + 16 + 200
    assert of_layer(split, INDEX._replace(width=129), kv="fp8")[1].token_bytes == 129 + 8


@pytest.mark.parametrize(
    ("drafted", "given", "model", "conv", "state"),
    [
        # 100 channels x 3 tokens of the convolution, 20 x 30 of the state
        (0, None, None, 100 * 3 * 2, 600 * 2),
        (2, None, None, 100 * 5 * 2, 600 * 2),
        (0, None, "fp32", 100 * 3 * 2, 600 * 4),
        (0, "fp32", None, 100 * 3 * 2, 600 * 4),
        (0, "bf16", "fp32", 100 * 3 * 2, 600 * 2),
    ],
)
def test_bytes_of_states(
    drafted: int, given: str | None, model: str | None, conv: int, state: int
) -> None:
    options: dict[str, Any] = {
        "speculative_tokens": drafted,
        "mamba_ssm_cache_dtype": given and dtype(given),
    }
    (spec,) = of_layer(CONVOLUTION, MATRIX._replace(requested_dtype=model), **options)
    assert (spec.kind, spec.state_bytes, spec.page_size_bytes) == (
        "mamba",
        conv + state,
        conv + state,
    )
    assert not isinstance(spec, FullAttentionSpec)
    # lightning attention's state has the model's dtype, whatever is given
    (lightning,) = of_layer(MATRIX._replace(dtype=None), **options)
    assert lightning.state_bytes == 600 * 2


def test_drafted_tokens_are_in_the_formula_of_a_convolution() -> None:
    """3 tokens and those that a drafter proposes, of each of 100 channels."""
    channels = CONVOLUTION._replace(rows=symbol("channels", 100, "channels of the convolution"))
    for drafted in (0, 2):
        (spec,) = of_layer(channels, speculative_tokens=drafted)
        assert spec.state_bytes == 100 * (3 + drafted) * 2
        assert ("speculative_tokens" in quantity(spec.state_bytes).formula.text) == (drafted > 0)


def test_kinds_windows_and_labels() -> None:
    across = KV._replace(per="source token")
    found = of_layer(KV._replace(span=Sliding(1024)), across, MATRIX)
    assert [(spec.kind, spec.window, spec.label) for spec in found] == [
        ("sliding", 1024, "sliding 1,024"),
        ("mamba", None, "mamba"),
        ("cross", None, "cross"),
    ]
    (chunked,) = of_layer(KV._replace(span=Chunked(8192)))
    assert (chunked.kind, chunked.window, chunked.label) == ("chunked", 8192, "chunked 8,192")
    assert of_layer(KV)[0].label == "full"
    assert [
        isinstance(spec, FullAttentionSpec) for spec in (FULL, LATENT, WINDOW, CHUNKS, ACROSS)
    ] == [True, True, False, False, False]


def test_windows_have_blocks_of_16_tokens_from_0_25_to_0_29() -> None:
    window = KV._replace(span=Sliding(1024))
    for version, block in (("0.24.0", 64), ("0.25.0", 16), ("0.29.0", 16), ("0.30.0", 64)):
        assert of_layer(window, version=version)[0].block_size == block
        assert of_layer(KV, version=version)[0].block_size == 64


def test_padding_makes_a_page_larger() -> None:
    padded = replace(STATE, page_size_padded=4096)
    assert (padded.page_size_bytes, padded.real_page_size_bytes, STATE.page_size_bytes) == (
        4096,
        3000,
        3000,
    )
    assert replace(FULL, page_size_padded=5000).page_size_bytes == 5000
    assert replace(FULL, page_size_padded=5000).real_page_size_bytes == 16 * 256


@pytest.mark.parametrize(
    ("cached", "kv", "message", "tip"),
    [
        (
            (CacheSpec("memory", 4, 4, per="sequence"),),
            "bf16",
            "attncalc does not know how vLLM stores this cache: memory",
            "use --engine ideal for a lower bound",
        ),
        (
            (KV,),
            "q8_0",
            "vLLM has no cache in q8_0",
            f"known: fp32, fp16, bf16, fp8, int8, int4, fp4, {', '.join(TURBOQUANT)}",
        ),
        (
            (LATENTS,),
            "int8",
            "vLLM has no cache of latents in int8",
            "known: fp32, fp16, bf16, fp8",
        ),
        (
            (LATENTS, INDEX),
            "fp4",
            "vLLM has no cache of latents in fp4",
            "known: fp32, fp16, bf16, fp8",
        ),
        (
            (LATENTS._replace(width=575), INDEX),
            "fp8",
            "vLLM's fp8_ds_mla is for latents of 512 + 64 elements, not of 575",
            "use --kv-dtype bf16",
        ),
    ],
)
def test_caches_that_vllm_does_not_have_are_errors(
    cached: tuple[CacheSpec, ...], kv: str, message: str, tip: str
) -> None:
    error = refusal(of_layer, *cached, kv=kv)
    assert (error.message, error.tip) == (message, tip)
