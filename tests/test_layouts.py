"""The engines without pages: ideal, and transformers with each of its caches."""

from dataclasses import replace
from typing import Any

import pytest
from asking import refusal
from evaluate import text_of
from hypothesis import given
from hypothesis import strategies as st
from specs import CONTEXTS, models
from tables import each

from attncalc import AttncalcError, Full, ModelSpec, Sliding, Workload, kv_cache, load
from attncalc.attention import CacheSpec
from attncalc.cost.cache import layer_cache_specs
from attncalc.engines import find_engine
from attncalc.engines.base import EngineArgs
from attncalc.engines.pipeline import LayerCacheSpec, describe, merge_equal, sum_over_layers
from attncalc.engines.transformers.engine import ENGINE as TRANSFORMERS
from attncalc.engines.transformers.options import TransformersArgs
from attncalc.quantity import Quantity, symbol
from attncalc.units import dtype

F16 = EngineArgs(kv_dtype=dtype("fp16"), dtype=dtype("fp16"))
TF16 = TransformersArgs(kv_dtype=dtype("fp16"), dtype=dtype("fp16"))
ARGS: dict[str, EngineArgs] = {"ideal": F16, "transformers": TF16}
KV = LayerCacheSpec(3, (CacheSpec("K and V", 2 * 2, 64, span=Full(), role="kv"),))
WINDOW = LayerCacheSpec(2, (CacheSpec("K and V", 2 * 2, 64, span=Sliding(100), role="kv"),))
STATE = LayerCacheSpec(1, (CacheSpec("state", 8, 16, per="sequence", dtype="fp32", role="state"),))
NOTHING = LayerCacheSpec(4, ())
# Bytes of one token in one layer of KV.
ROW = 2 * 2 * 64 * 2


@given(models(), st.integers(1, 5), CONTEXTS)
def test_needed_equals_kv_cache(model: ModelSpec, batch: int, context: int) -> None:
    for name in ("ideal", "transformers"):
        cache_layout = find_engine(name).layout(layer_cache_specs(model.plain()), ARGS[name])
        assert (
            cache_layout.needed(batch, context)
            == kv_cache(model, Workload.decode(batch, context, kv_dtype="fp16"), engine=name).total
        )
        assert type(cache_layout.needed(batch, context)) is int


IMPLEMENTATIONS = st.sampled_from([None, "dynamic", "static"])


@given(models(), st.integers(1, 5), CONTEXTS, st.integers(0, 50), IMPLEMENTATIONS)
def test_needed_grows_with_batch_and_context(
    model: ModelSpec, batch: int, context: int, more: int, implementation: str | None
) -> None:
    ideal = find_engine("ideal").layout(layer_cache_specs(model.plain()), F16)
    transformers = TRANSFORMERS.layout(
        layer_cache_specs(model.plain()), replace(TF16, cache_implementation=implementation)
    )
    for cache_layout in (ideal, transformers):
        assert cache_layout.needed(batch, context) <= cache_layout.needed(batch, context + more)
        assert cache_layout.needed(batch, context) <= cache_layout.needed(batch + 1, context)
    # A dynamic cache has one token less of a window than the ideal; a static one has them all
    assert ideal.needed(batch, context) - ideal.needed(batch, 1) <= transformers.needed(
        batch, context
    )
    if implementation == "static":
        assert transformers.needed(batch, context) == ideal.needed(batch, context)


@given(st.integers(1, 9), st.integers(1, 2000), st.integers(0, 300), st.sampled_from([None, 1, 64]))
def test_a_quantized_cache_grows_with_its_tokens(
    batch: int, context: int, more: int, residual: int | None
) -> None:
    args = replace(TF16, cache_implementation="quantized", residual_length=residual)
    cache_layout = find_engine("transformers").layout((KV,), args)
    assert cache_layout.needed(batch, context) <= cache_layout.needed(batch, context + more)
    assert cache_layout.needed(batch, context) < cache_layout.needed(batch + 1, context)
    assert cache_layout.needed(batch, context) <= TRANSFORMERS.layout((KV,), TF16).needed(
        batch, context
    )


def test_concurrency_without_pages_is_a_quotient_of_bytes() -> None:
    # Llama 2 70B: 80 * 2 * 8 * 128 * 2 B per token, of 10 GiB 8 sequences of 4096
    cache_layout = (
        find_engine("ideal")
        .layout(layer_cache_specs(load("llama2-70b").plain()), F16)
        .pool(10 * 2**30, 4096)
    )
    assert cache_layout.concurrency[:2] == (10 * 2**30, 4096 * 327680)
    assert (cache_layout.tokens, cache_layout.blocks, cache_layout.log_lines) == (
        8 * 4096,
        None,
        (),
    )
    # 1.5 sequences of 10 tokens are 15 tokens
    assert find_engine("ideal").layout((KV,), F16).pool(15 * 3 * ROW + 1, 10).tokens == 15


def test_windows_and_states() -> None:
    specs = (KV, WINDOW, NOTHING, STATE)
    state = 8 * 16 * 4
    ideal = find_engine("ideal").layout(specs, F16)
    assert ideal.needed(2, 500) == 2 * (3 * 500 * ROW + 2 * 100 * ROW + state)
    dynamic = TRANSFORMERS.layout(specs, TF16)
    assert dynamic.needed(2, 500) == 2 * (3 * 500 * ROW + 2 * 99 * ROW + state)
    static = find_engine("transformers").layout(specs, replace(TF16, cache_implementation="static"))
    assert static.needed(2, 500) == ideal.needed(2, 500)
    assert (ideal.bound, dynamic.bound, static.bound) == ("lower", "lower", "reserved")
    assert ideal.pool(10**6, 500).tokens == 10**6 * 500 // (3 * 500 * ROW + 2 * 100 * ROW + state)


def test_the_largest_pipeline_stage_decides() -> None:
    # 10 layers in 3 stages are 3, 4 and 3 (vLLM's get_pp_indices); the second has 3 of the windows
    specs = (LayerCacheSpec(4, KV.cached), LayerCacheSpec(6, WINDOW.cached))
    cache_layout = find_engine("ideal").layout(specs, replace(F16, pp=3))
    assert cache_layout.needed(1, 100) == 4 * 100 * ROW
    assert cache_layout.needed(1, 1000) == 3 * 1000 * ROW
    assert cache_layout.needed(1, 110) == max(3 * 110, 110 + 3 * 100, 3 * 100) * ROW


def test_a_stage_without_a_cache_has_no_limit() -> None:
    """Gemma 3n's last layers share the caches of earlier ones, so a stage may have none."""
    full, empty = find_engine("ideal").layout((KV, NOTHING), replace(F16, pp=2)).parts
    assert full.needed(2, 10) == 2 * 10 * 3 * ROW
    assert empty.needed(2, 10) == 0
    assert empty.pool(0, 10).tokens == empty.pool(0, 10).concurrency.numerator == 2**60


def test_a_source_is_stored_once() -> None:
    cross = CacheSpec("K and V of the source", 2 * 2, 64, per="source token", role="kv")
    specs = (LayerCacheSpec(3, (*KV.cached, cross)),)
    for name in ("ideal", "transformers"):
        assert (
            find_engine(name).layout(specs, replace(ARGS[name], source=50)).needed(2, 7)
            == 2 * 3 * (7 + 50) * ROW
        )
        with pytest.raises(AttncalcError, match="caches its source"):
            find_engine(name).layout(specs, ARGS[name])


def test_transformers_repeats_falcons_kv_per_query_head() -> None:
    falcon = LayerCacheSpec(1, (CacheSpec("K and V", 2, 64, repeated=71, role="kv"),))
    row = 2 * 64 * 2
    assert find_engine("ideal").layout((falcon,), F16).needed(1, 10) == 10 * row
    for made in ("dynamic", "static"):
        cache_layout = find_engine("transformers").layout(
            (falcon,), replace(TF16, cache_implementation=made)
        )
        assert cache_layout.needed(1, 10) == 10 * 71 * row


def test_a_quantized_cache_stores_its_last_tokens_unquantized() -> None:
    # As measured on QuantoQuantizedLayer and HQQQuantizedLayer of transformers 5.23.0: of 100
    # tokens, 2 sequences of 4 heads x 128, 51,200 B and 2 * 3,200 B of scales and zero points, for
    # K as for V. A later token waits in bf16 until there are 128.
    four = LayerCacheSpec(1, (CacheSpec("K and V", 2 * 4, 128, role="kv"),))
    args = replace(TF16, kv_dtype=dtype("bf16"), cache_implementation="quantized")
    whole = 2 * 8 * 128 * 2
    for residual, waiting in ((None, 127), (6, 5), (1, 0)):
        cache_layout = find_engine("transformers").layout(
            (four,), replace(args, residual_length=residual)
        )
        assert cache_layout.needed(2, 100 + waiting) == 2 * (51200 + 2 * 3200) + waiting * whole
        assert type(cache_layout.needed(2, 100 + waiting)) is int
    # Two tokens: the first quantised, the second waits
    assert (
        find_engine("transformers").layout((four,), args).needed(1, 2)
        == 8 * 128 // 2 + 8 * 128 // 64 * 4 + 8 * 128 * 2
    )
    # Backend fp8: one byte per element
    fp8 = replace(args, kv_dtype=dtype("fp8"))
    assert find_engine("transformers").layout((four,), fp8).needed(2, 100) == 2 * 100 * 8 * 128


CASES: list[dict[str, Any]] = [
    {},
    {"cache_implementation": "static"},
    {"cache_implementation": "quantized"},
]


@each("given", CASES)
@each("name", ["llama2-70b", "gemma3-27b", "deepseek-v3", "falcon-7b", "whisper-large-v3"])
def test_formulas_evaluate_to_their_figures(name: str, given: dict[str, Any]) -> None:
    model = load(name)
    engines = ["transformers"] if given else ["ideal", "transformers"]
    if "quantized" in given.values() and name in ("gemma3-27b", "whisper-large-v3"):
        return
    source = 1500 if name == "whisper-large-v3" else None
    for engine in engines:
        plain = find_engine(engine).layout(
            layer_cache_specs(model.plain()), replace(ARGS[engine], source=source, **given)
        )
        shown = find_engine(engine).layout(
            layer_cache_specs(model.symbolic(gathered=False)),
            replace(ARGS[engine], source=source, **given),
        )
        assert shown.needed(3, 400) == plain.needed(3, 400)
        a, b = plain.pool(2**33, 400), shown.pool(2**33, 400)
        assert (a.tokens, a.concurrency[:2]) == (b.tokens, b.concurrency[:2])
        for figure in (b.tokens, *(detail.quantity for detail in b.details)):
            text_of(figure)


@each(
    ("engine", "specs", "given", "why"),
    [
        ("ideal", (NOTHING,), {}, "has no cache"),
        ("ideal", (KV,), {"pp": 4}, r"the number of layers \(3\)"),
        ("transformers", (NOTHING,), {}, "has no cache"),
        (
            "transformers",
            (KV,),
            {"cache_implementation": "offloaded"},
            "offloaded is not supported",
        ),
        ("transformers", (KV,), {"engine_version": "4.40"}, "4.40"),
        ("transformers", (KV,), {"kv_dtype": dtype("q8_0")}, "the dtype of the model"),
        ("transformers", (KV,), {"kv_dtype": dtype("fp8")}, "the dtype of the model"),
        (
            "transformers",
            (KV,),
            {"kv_dtype": dtype("int4"), "cache_implementation": "quantized"},
            "the dtype of the model",
        ),
        ("transformers", (KV,), {"residual_length": 5}, "--residual-length"),
        (
            "transformers",
            (KV,),
            {"residual_length": 5, "kv_dtype": dtype("fp8"), "cache_implementation": "quantized"},
            "--residual-length",
        ),
        (
            "transformers",
            (KV, WINDOW),
            {"cache_implementation": "quantized"},
            "only full attention.*window 100",
        ),
        (
            "transformers",
            (KV, STATE),
            {"cache_implementation": "quantized"},
            "only full attention.*state",
        ),
        (
            "transformers",
            (LayerCacheSpec(1, (CacheSpec("pools", 1, 8),)),),
            {"cache_implementation": "static"},
            "cache pools",
        ),
    ],
)
def test_unsupported_combinations_are_errors(
    engine: str, specs: tuple[LayerCacheSpec, ...], given: dict[str, Any], why: str
) -> None:
    with pytest.raises(AttncalcError, match=why) as raised:
        find_engine(engine).layout(specs, replace(ARGS[engine], **given))
    assert raised.value.tip


def test_the_tip_suggests_the_nearest_cache_implementation() -> None:
    error = refusal(
        find_engine("transformers").layout, (KV,), replace(TF16, cache_implementation="quantised")
    )
    assert error.tip == "did you mean 'quantized'? known: dynamic, static, quantized"


def test_a_dynamic_window_is_full_one_token_before_its_size() -> None:
    """A window of 100 stores 99 tokens, because the next one makes the 100th; states and sources
    are ideal's.
    """
    (window,), (kv,), (state,) = WINDOW.cached, KV.cached, STATE.cached
    across = window._replace(per="source token")
    fp16 = dtype("fp16")
    for context, stored in ((98, 98), (99, 99), (100, 99), (500, 99)):
        run = Workload.decode(3, context, source=50)
        assert TRANSFORMERS.layer_bytes(window, run, fp16) == 3 * stored * ROW
        assert TRANSFORMERS.token_bytes(window, run, fp16) == (ROW if context < 99 else 0)
        assert TRANSFORMERS.layer_bytes(kv, run, fp16) == 3 * context * ROW
        assert TRANSFORMERS.token_bytes(kv, run, fp16) == ROW
        assert TRANSFORMERS.layer_bytes(across, run, fp16) == 3 * 50 * ROW
        assert TRANSFORMERS.layer_bytes(state, run, fp16) == 3 * 8 * 16 * 4
        for cached in (across, state):
            assert TRANSFORMERS.token_bytes(cached, run, fp16) == 0


def test_transformers_runs_whole_prompts_and_a_static_cache_reserves_its_context() -> None:
    defaults = TRANSFORMERS
    assert defaults.whole_prompts
    assert defaults.runtime_grows
    for name, reserves in (
        (None, False),
        ("dynamic", False),
        ("static", True),
        ("quantized", False),
    ):
        assert defaults.reserves_context(replace(TF16, cache_implementation=name)) == reserves


def test_equal_layers_are_merged_and_summed() -> None:
    assert merge_equal((KV, NOTHING, WINDOW, KV)) == (LayerCacheSpec(6, KV.cached), WINDOW)
    assert describe(WINDOW) == "K and V (window 100)"
    assert (
        sum_over_layers((KV, WINDOW), lambda spec: spec.cached[0].width, "w", "widths")
        == 3 * 64 + 2 * 64
    )
    a = symbol("a", 5, "a number")
    assert (
        quantity_text(
            sum_over_layers((KV, NOTHING), lambda spec: a if spec.cached else 0, "w", "widths")
        )
        == "L * a"
    )
    assert (
        quantity_text(sum_over_layers((KV, WINDOW), lambda spec: a, "w", "widths")) == "w_1 + w_2"
    )


def quantity_text(value: int) -> str:
    assert isinstance(value, Quantity)
    return value.formula.text
