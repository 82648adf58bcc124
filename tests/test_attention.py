"""Attention kinds: their matrices by name, and what they become."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncalc import AttncalcError, Cross, Grouped, Latent
from attncalc.attention import FULL, KINDS, CacheSpec, Variant
from attncalc.workload import Run


def params(kind: Any, d_model: int, d_source: int = 0) -> dict[str, int]:
    return {m.name: int(m.params) for m in kind.matrices(d_model, d_source or d_model)}


def test_options_add_matrices_and_vectors() -> None:
    every = ("q", "k", "v", "o")
    kind = Grouped(8, 2, 16, 24, bias=every, qk_norm="full", sinks=True, gate=True)
    assert params(kind, 100) == {
        "W_q": 100 * 8 * 16 + 8 * 16,
        "W_k": 100 * 2 * 16 + 2 * 16,
        "W_v": 100 * 2 * 24 + 2 * 24,
        "W_gate": 100 * 8 * 24,
        "W_o": 8 * 24 * 100 + 100,
        "q_norm": 8 * 16,
        "k_norm": 2 * 16,
        "sinks": 8,
    }


@given(st.sampled_from([(), ("q",), ("k", "v"), ("q", "v", "o"), ("q", "k", "v", "o")]))
def test_fusing_projections_keeps_the_parameter_count(bias: tuple[str, ...]) -> None:
    fused, apart = (params(Grouped(8, 2, 16, 24, bias=bias, fused=f), 64) for f in (True, False))
    assert sum(fused.values()) == sum(apart.values())
    assert set(fused) == {"W_qkv", "W_o"}


@pytest.mark.parametrize(
    ("kind", "d_model", "measured"),
    [
        # Measured on the models' own classes: see tests/data/oracle.json for how.
        # Qwen3-Next, full layers
        (Grouped(16, 2, 256, qk_norm="head", gate=True), 2048, 27_263_488),
        (Grouped(32, 32, 128, qk_norm="full"), 4096, 4 * 4096**2 + 8192),  # OLMo 2 7B
        (Grouped(64, 8, 64, bias=("q", "k", "v", "o"), sinks=True), 2880, 26_550_144),  # gpt-oss
        # DeepSeek-V2-Lite: queries not compressed
        (Latent(16, 512, 128, 64, 128), 2048, 13_763_072),
        (Latent(128, 512, 128, 64, 128, q_lora_rank=1536), 7168, 187_107_328),  # DeepSeek-V3
    ],
)
def test_attention_of_released_models(kind: Any, d_model: int, measured: int) -> None:
    assert sum(params(kind, d_model).values()) == measured


def test_cross_attention_keys_have_the_width_of_the_source() -> None:
    kind = Cross(Grouped(4, 4, 8, fused=True))
    assert params(kind, 32, 100) == {
        "W_q": 32 * 32,
        "W_k": 100 * 32,
        "W_v": 100 * 32,
        "W_o": 32 * 32,
    }


def test_wide_values_are_cached_at_their_own_width() -> None:
    kind = Grouped(8, 2, 16, 24)
    assert kind.cache() == (CacheSpec("K", 2, 16, role="k"), CacheSpec("V", 2, 24, role="v"))
    # QK of 16 and PV of 24, 2 FLOP each, 8 heads, 5 * 7 pairs
    assert kind.score_flops(Run(1, 5, 7), None) == 2 * 8 * 5 * 7 * (16 + 24)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mha", Grouped(8, 8, 16)),
        ("mqa", Grouped(8, 1, 16)),
        ("gqa:4", Grouped(8, 4, 16)),
        ("mla:32", Latent(8, 32, 16, 8, 16)),
        ("mla:32+4", Latent(8, 32, 16, 4, 16)),
    ],
)
def test_variants_of_grouped_attention(text: str, expected: Any) -> None:
    assert Variant.parse(text).apply(Grouped(8, 2, 16)) == expected


def test_variants_of_latent_attention() -> None:
    kind = Latent(8, 32, 16, 4, 12)
    # every head has a key of 16 + 4 and a value of 12
    assert Variant.parse("mha").apply(kind) == Grouped(8, 8, 20, 12)
    assert Variant.parse("mla:64").apply(kind) == Latent(8, 64, 16, 4, 12)


def test_variants_of_cross_attention_stay_grouped() -> None:
    kind = Cross(Grouped(8, 8, 16))
    assert Variant.parse("mqa").apply(kind) == Cross(Grouped(8, 1, 16))
    assert Variant.parse("mla:64").apply(kind) == kind


@pytest.mark.parametrize(("d_head", "rope"), [(1, 1), (2, 1), (3, 1), (4, 2), (128, 64)])
def test_a_variants_rotary_key_is_half_as_wide_as_a_head(d_head: int, rope: int) -> None:
    kind = Variant.parse("mla:32").apply(Grouped(8, 2, d_head))
    assert isinstance(kind, Latent)
    assert (kind.d_nope, kind.d_rope, kind.d_v) == (d_head, rope, d_head)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("mqa", Grouped(8, 2, 16), ""),
        ("mla:32", Grouped(8, 2, 16), "a rotary key of 8 beside the latent; queries"),
        ("mla:32+4", Grouped(8, 2, 16), "queries not compressed"),
        ("mqa", Latent(8, 32, 16, 4, 12), "queries are not compressed"),
        ("mla:64", Latent(8, 32, 16, 4, 12), ""),
        ("mqa", Cross(Grouped(8, 8, 16)), ""),
        ("mla:64", Cross(Grouped(8, 8, 16)), "cross-attention as released"),
        (
            "mqa",
            KINDS["lightning"].from_keys({"n_heads": 6, "d_head": 10}, 60, FULL),
            "lightning as released",
        ),
        ("mqa", KINDS["none"].from_keys({}, 60, FULL), ""),
    ],
)
def test_a_variant_states_its_assumptions(text: str, kind: Any, words: str) -> None:
    assumption = Variant.parse(text).assumption(kind)
    assert assumption.startswith(words)
    assert bool(assumption) == bool(words)


@pytest.mark.parametrize("text", ["", "gqa:", "gqa:0", "gqa:x", "mla:", "mha:3", "swa:4"])
def test_an_unknown_variant_is_an_error(text: str) -> None:
    with pytest.raises(AttncalcError, match="--attention"):
        Variant.parse(text)


def test_kv_heads_must_divide_query_heads() -> None:
    with pytest.raises(AttncalcError, match="3 does not divide n_heads 8") as caught:
        Grouped(8, 3, 16)
    assert "1, 2, 4, 8" in caught.value.tip
