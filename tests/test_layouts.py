"""The layouts of ideal and transformers: no pages, and what each of Hugging Face's caches keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evaluate import evaluate
from hypothesis import given
from hypothesis import strategies as st
from specs import CONTEXTS, models

from attncalc import AttncalcError, Full, ModelSpec, Sliding, Workload, kv_cache, load
from attncalc.attention import CacheSpec
from attncalc.cost.cache import layer_cache_specs
from attncalc.engines import layout
from attncalc.engines.base import EngineArgs
from attncalc.engines.pipeline import LayerCacheSpec, gathered, summed, words
from attncalc.quantity import Quantity, symbol
from attncalc.units import dtype

F16 = EngineArgs(kv_dtype=dtype("fp16"), dtype=dtype("fp16"))
KV = LayerCacheSpec(3, (CacheSpec("K and V", 2 * 2, 64, span=Full(), role="kv"),))
WINDOW = LayerCacheSpec(2, (CacheSpec("K and V", 2 * 2, 64, span=Sliding(100), role="kv"),))
STATE = LayerCacheSpec(1, (CacheSpec("state", 8, 16, scales_with="never", dtype="fp32", role="state"),))
NOTHING = LayerCacheSpec(4, ())
ROW = 2 * 2 * 64 * 2
"""Bytes of a token in a layer of KV."""


@given(models(), st.integers(1, 5), CONTEXTS)
def test_both_need_what_the_cache_is(model: ModelSpec, batch: int, context: int) -> None:
    for name in ("ideal", "transformers"):
        found = layout(name, layer_cache_specs(model.plain()), F16)
        assert (
            found.needed(batch, context)
            == kv_cache(model, Workload.decode(batch, context, kv_dtype="fp16"), engine_name=name).total
        )
        assert type(found.needed(batch, context)) is int


IMPLEMENTATIONS = st.sampled_from([None, "dynamic", "static"])


@given(models(), st.integers(1, 5), CONTEXTS, st.integers(0, 50), IMPLEMENTATIONS)
def test_more_needs_no_less(model: ModelSpec, batch: int, context: int, more: int, made: str | None) -> None:
    ideal = layout("ideal", layer_cache_specs(model.plain()), F16)
    theirs = layout("transformers", layer_cache_specs(model.plain()), replace(F16, cache_implementation=made))
    for found in (ideal, theirs):
        assert found.needed(batch, context) <= found.needed(batch, context + more)
        assert found.needed(batch, context) <= found.needed(batch + 1, context)
    # A dynamic cache has one token less of a window than the ideal; a static one has them all
    assert ideal.needed(batch, context) - ideal.needed(batch, 1) <= theirs.needed(batch, context)
    if made == "static":
        assert theirs.needed(batch, context) == ideal.needed(batch, context)


@given(st.integers(1, 9), st.integers(1, 2000), st.integers(0, 300), st.sampled_from([None, 1, 64]))
def test_a_quantised_cache_grows_with_its_tokens(batch: int, context: int, more: int, residual: int | None) -> None:
    settings = replace(F16, cache_implementation="quantized", residual_length=residual)
    found = layout("transformers", (KV,), settings)
    assert found.needed(batch, context) <= found.needed(batch, context + more)
    assert found.needed(batch, context) < found.needed(batch + 1, context)
    assert found.needed(batch, context) <= layout("transformers", (KV,), F16).needed(batch, context)


def test_a_memory_is_shared_without_pages() -> None:
    # Llama 2 70B: 80 * 2 * 8 * 128 * 2 B a token, of 10 GiB 8 sequences of 4096
    found = layout("ideal", layer_cache_specs(load("llama2-70b").plain()), F16).pool(10 * 2**30, 4096)
    assert found.concurrency[:2] == (10 * 2**30, 4096 * 327680)
    assert (found.tokens, found.blocks, found.log_lines) == (8 * 4096, None, ())
    # 1.5 sequences of 10 tokens are 15 tokens
    assert layout("ideal", (KV,), F16).pool(15 * 3 * ROW + 1, 10).tokens == 15


def test_windows_and_states() -> None:
    runs = (KV, WINDOW, NOTHING, STATE)
    state = 8 * 16 * 4
    ideal = layout("ideal", runs, F16)
    assert ideal.needed(2, 500) == 2 * (3 * 500 * ROW + 2 * 100 * ROW + state)
    dynamic = layout("transformers", runs, F16)
    assert dynamic.needed(2, 500) == 2 * (3 * 500 * ROW + 2 * 99 * ROW + state)
    static = layout("transformers", runs, replace(F16, cache_implementation="static"))
    assert static.needed(2, 500) == ideal.needed(2, 500)
    assert (ideal.bound, dynamic.bound, static.bound) == ("lower", "lower", "reserved")
    assert ideal.pool(10**6, 500).tokens == 10**6 * 500 // (3 * 500 * ROW + 2 * 100 * ROW + state)


def test_the_fullest_stage_counts() -> None:
    # 10 layers in 3 stages are 3, 4 and 3 (vLLM's get_pp_indices); the second has 3 of the windows
    runs = (LayerCacheSpec(4, KV.cached), LayerCacheSpec(6, WINDOW.cached))
    found = layout("ideal", runs, replace(F16, pp=3))
    assert found.needed(1, 100) == 4 * 100 * ROW
    assert found.needed(1, 1000) == 3 * 1000 * ROW
    assert found.needed(1, 110) == max(3 * 110, 110 + 3 * 100, 3 * 100) * ROW


def test_a_source_is_kept_once() -> None:
    cross = CacheSpec("K and V of the source", 2 * 2, 64, scales_with="source", role="kv")
    runs = (LayerCacheSpec(3, (*KV.cached, cross)),)
    for name in ("ideal", "transformers"):
        assert layout(name, runs, replace(F16, source=50)).needed(2, 7) == 2 * 3 * (7 + 50) * ROW
        with pytest.raises(AttncalcError, match="cache of its source"):
            layout(name, runs, F16)


def test_falcons_rows_are_stored_once_a_query_head() -> None:
    falcon = LayerCacheSpec(1, (CacheSpec("K and V", 2, 64, repeated=71, role="kv"),))
    row = 2 * 64 * 2
    assert layout("ideal", (falcon,), F16).needed(1, 10) == 10 * row
    for made in ("dynamic", "static"):
        found = layout("transformers", (falcon,), replace(F16, cache_implementation=made))
        assert found.needed(1, 10) == 10 * 71 * row


def test_a_quantised_cache_keeps_its_last_tokens_whole() -> None:
    # As measured on QuantoQuantizedLayer and HQQQuantizedLayer of transformers 5.23.0: of 100 tokens, 2 sequences
    # of 4 heads x 128, 51,200 B and 2 * 3,200 B of scales and zero points, for K as for V. A later token waits
    # in bf16 until there are 128.
    four = LayerCacheSpec(1, (CacheSpec("K and V", 2 * 4, 128, role="kv"),))
    settings = replace(F16, kv_dtype=dtype("bf16"), cache_implementation="quantized")
    whole = 2 * 8 * 128 * 2
    for residual, waiting in ((None, 127), (6, 5), (1, 0)):
        found = layout("transformers", (four,), replace(settings, residual_length=residual))
        assert found.needed(2, 100 + waiting) == 2 * (51200 + 2 * 3200) + waiting * whole
    # Two tokens: the first quantised, the second waits
    assert layout("transformers", (four,), settings).needed(1, 2) == 8 * 128 // 2 + 8 * 128 // 64 * 4 + 8 * 128 * 2
    # Backend fp8: one byte an element
    fp8 = replace(settings, kv_dtype=dtype("fp8"))
    assert layout("transformers", (four,), fp8).needed(2, 100) == 2 * 100 * 8 * 128


CASES: list[dict[str, Any]] = [
    {},
    {"cache_implementation": "static"},
    {"cache_implementation": "quantized"},
]


@pytest.mark.parametrize("given", CASES)
@pytest.mark.parametrize("name", ["llama2-70b", "gemma3-27b", "deepseek-v3", "falcon-7b", "whisper-large-v3"])
def test_formulas_say_what_the_figures_are(name: str, given: dict[str, Any]) -> None:
    model = load(name)
    engines = ["transformers"] if given else ["ideal", "transformers"]
    if "quantized" in given.values() and name in ("gemma3-27b", "whisper-large-v3"):
        return
    source = 1500 if name == "whisper-large-v3" else None
    for engine in engines:
        plain = layout(engine, layer_cache_specs(model.plain()), replace(F16, source=source, **given))
        shown = layout(engine, layer_cache_specs(model.symbolic(gathered=False)), replace(F16, source=source, **given))
        assert shown.needed(3, 400) == plain.needed(3, 400)
        a, b = plain.pool(2**33, 400), shown.pool(2**33, 400)
        assert (a.tokens, a.concurrency[:2]) == (b.tokens, b.concurrency[:2])
        for figure in (b.tokens, *(detail.quantity for detail in b.details)):
            assert isinstance(figure, Quantity)
            assert evaluate(figure.formula.text, {s.name: s.value for s in figure.formula.symbols}) == figure
            assert evaluate(figure.formula.substituted) == figure


@pytest.mark.parametrize(
    ("engine", "runs", "given", "why"),
    [
        ("ideal", (NOTHING,), {}, "keeps no cache"),
        ("ideal", (KV,), {"sequences": 2}, "--sequences has no effect on engine ideal"),
        ("ideal", (KV,), {"pp": 4}, "there are 3 layers"),
        ("transformers", (KV,), {"pp": 2}, "--pp has no effect"),
        ("transformers", (NOTHING,), {}, "keeps no cache"),
        ("transformers", (KV,), {"cache_implementation": "offloaded"}, "offloaded.* not known here"),
        ("transformers", (KV,), {"engine_version": "4.40"}, "4.40"),
        ("transformers", (KV,), {"kv_dtype": dtype("q8_0")}, "model's own dtype"),
        ("transformers", (KV,), {"kv_dtype": dtype("fp8")}, "model's own dtype"),
        ("transformers", (KV,), {"kv_dtype": dtype("int4"), "cache_implementation": "quantized"}, "own dtype"),
        ("transformers", (KV,), {"residual_length": 5}, "--residual-length"),
        (
            "transformers",
            (KV,),
            {"residual_length": 5, "kv_dtype": dtype("fp8"), "cache_implementation": "quantized"},
            "--residual-length",
        ),
        ("transformers", (KV, WINDOW), {"cache_implementation": "quantized"}, "full attention alone.*window 100"),
        ("transformers", (KV, STATE), {"cache_implementation": "quantized"}, "full attention alone.*state"),
        (
            "transformers",
            (LayerCacheSpec(1, (CacheSpec("pools", 1, 8),)),),
            {"cache_implementation": "static"},
            "keep pools",
        ),
    ],
)
def test_what_is_refused(engine: str, runs: tuple[LayerCacheSpec, ...], given: dict[str, Any], why: str) -> None:
    with pytest.raises(AttncalcError, match=why) as raised:
        layout(engine, runs, replace(F16, **given))
    assert raised.value.tip


def test_tip_names_the_cache_that_was_meant() -> None:
    with pytest.raises(AttncalcError) as raised:
        layout("transformers", (KV,), replace(F16, cache_implementation="quantised"))
    assert raised.value.tip == "did you mean 'quantized'? known: dynamic, static, quantized"


def test_equal_layers_are_counted_together() -> None:
    assert gathered((KV, NOTHING, WINDOW, KV)) == (LayerCacheSpec(6, KV.cached), WINDOW)
    assert words(WINDOW) == "K and V (window 100)"
    assert summed((KV, WINDOW), lambda run: run.cached[0].width, "w", "widths") == 3 * 64 + 2 * 64
    one = symbol("a", 5, "a number")
    assert quantity_text(summed((KV, NOTHING), lambda run: one if run.cached else 0, "w", "widths")) == "L * a"
    assert quantity_text(summed((KV, WINDOW), lambda run: one, "w", "widths")) == "w_1 + w_2"


def quantity_text(value: int) -> str:
    assert isinstance(value, Quantity)
    return value.formula.text
