"""llama.cpp's cells: to the digits that it prints, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evaluate import evaluate
from hypothesis import given
from hypothesis import strategies as st

from attncalc import AttncalcError, Chunked, Full, Sliding, load
from attncalc.attention import CacheSpec, Span
from attncalc.cost.cache import layer_cache_specs
from attncalc.engines import layout
from attncalc.engines.base import CacheLayout, EngineArgs
from attncalc.engines.llamacpp.split import layers_of_gpus
from attncalc.engines.pipeline import LayerCacheSpec
from attncalc.model import ModelSpec
from attncalc.quantity import Quantity
from attncalc.units import dtype

FULL = Full()
PLENTY = 2**50
F16 = EngineArgs(kv_dtype=dtype("f16"), dtype=dtype("f16"))


def kv(layers: int, heads: int, width: int, span: Span = FULL) -> LayerCacheSpec:
    return LayerCacheSpec(layers, (CacheSpec("K and V", 2 * heads, width, span=span, role="kv"),))


def latent(layers: int, *more: CacheSpec) -> LayerCacheSpec:
    return LayerCacheSpec(layers, (CacheSpec("latent", 1, 576, role="latent", rotary=64), *more))


def recurrent(layers: int, channels: int, state: int) -> LayerCacheSpec:
    convolution = CacheSpec("convolution", channels, 4, scales_with="never", role="convolution")
    return LayerCacheSpec(
        layers, (convolution, CacheSpec("state", state, 128, scales_with="never", role="state", requested_dtype="bf16"))
    )


def stored(
    *runs: LayerCacheSpec, kv_dtype: str = "f16", k: str | None = None, v: str | None = None, **given: Any
) -> CacheLayout:
    settings = replace(F16, kv_dtype=dtype(kv_dtype), **given)
    settings = replace(settings, kv_dtype_k=dtype(k) if k else None, kv_dtype_v=dtype(v) if v else None)
    return layout("llamacpp", runs, settings)


def sizes(found: CacheLayout, context: int) -> list[str]:
    """MiB as each buffer's line has them."""
    lines = [line for line in found.pool(PLENTY, context).log_lines if "size" in line and "creating" not in line]
    return [line.split("size")[1].split("=")[1].split()[0] for line in lines]


DEEPSEEK = latent(61)
PLAIN = LayerCacheSpec(61, (CacheSpec("K", 128, 192, role="k"), CacheSpec("V", 128, 128, role="v")))
"""DeepSeek as a GGUF made before MLA has it: K of 128 x 192 and V of 128 x 128."""


@pytest.mark.parametrize(("context", "printed"), [(2048, "9760.00"), (512, "2440.00")])
def test_keys_and_values_of_a_latent_are_as_logs_print_them(context: int, printed: str) -> None:
    """The two of tests/data/engine-logs that no model file asks for."""
    # 61 * 2048 * (24576 + 16384) * 2 B
    assert sizes(stored(PLAIN, engine_version="ik"), context) == [printed]


def test_the_lines_of_a_start() -> None:
    # 1536 = 1024 + 512 cells of a window; 10 * 4096 * 2 * 2048 * 2 B = 320 MiB, 52 * 1536 * 2 * 2048 * 2 B = 624 MiB
    found = stored(kv(52, 16, 128, Sliding(1024)), kv(10, 16, 128)).pool(PLENTY, 4096)
    assert found.log_lines == (
        "llama_context: n_ctx                 = 4096",
        "llama_kv_cache_iswa: creating non-SWA KV cache, size = 4096 cells",
        "llama_kv_cache: size =  320.00 MiB (  4096 cells,  10 layers,  1/1 seqs), "
        "K (f16):  160.00 MiB, V (f16):  160.00 MiB",
        "llama_kv_cache_iswa: creating     SWA KV cache, size = 1536 cells",
        "llama_kv_cache: size =  624.00 MiB (  1536 cells,  52 layers,  1/1 seqs), "
        "K (f16):  312.00 MiB, V (f16):  312.00 MiB",
    )
    # 2 sequences of 30 + 2 layers: 2 * 30 * 8192 * 3 * 4 B = 5.625 MiB, 2 * 30 * 4096 * 128 * 4 B = 120 MiB
    found = stored(recurrent(30, 8192, 4096), kv(2, 2, 128), sequences=2, v="q8_0").pool(PLENTY, 256)
    assert found.log_lines == (
        "llama_context: n_ctx                 = 512",
        # 2 streams * 256 cells * 2 layers * 256 = 262,144 elements: 0.5 MiB of K, 34 / 64 of it of V, 0.265625
        "llama_kv_cache: size =    0.77 MiB (   256 cells,   2 layers,  2/2 seqs), "
        "K (f16):    0.50 MiB, V (q8_0):    0.27 MiB",
        "llama_memory_recurrent: size =  125.62 MiB (     2 cells,  32 layers,  2 seqs  0 rs_seq), "
        "R (f32):    5.62 MiB, S (f32):  120.00 MiB, P (f32):    0.00 MiB",
    )


def test_an_indexers_keys_have_cells_of_their_own() -> None:
    found = stored(latent(61, CacheSpec("indexer keys", 1, 128, dtype="fp8", role="indexer")))
    # 61 * 4096 * 576 * 2 B = 274.5 MiB, and with 128 elements for 576, in the cache's own type, 61 MiB
    assert sizes(found, 4096) == ["274.50", "61.00"]
    assert found.needed(1, 4096) == 61 * 4096 * (576 + 128) * 2
    assert "llama_kv_cache_dsa: creating indexer KV cache, size = 4096 cells" in found.pool(PLENTY, 4096).log_lines


def test_a_figure_of_one_name_is_of_one_thing() -> None:
    def names(*runs: LayerCacheSpec) -> dict[str, int]:
        return {d.name: int(float(d.quantity)) for d in stored(*runs).pool(PLENTY, 256).details}

    # a token of one buffer: 3 layers of 2 heads x 64, K and V in f16
    assert names(kv(3, 2, 64))["kv_bytes_per_token"] == 3 * 2 * 2 * 64 * 2
    two = names(kv(3, 2, 64), kv(1, 2, 64, Sliding(300)))
    assert (two["kv_bytes_per_cell"], two["swa_bytes_per_cell"]) == (3 * 512, 512)
    assert "kv_bytes_per_token" not in two
    # 2 layers: 10 channels of 3 tokens before the newest, and 5 * 128, in f32
    assert names(recurrent(2, 10, 5), kv(1, 2, 64))["state_bytes_per_sequence"] == 2 * (10 * 3 + 5 * 128) * 4


def test_contexts_are_padded_for_each_sequence_or_for_all() -> None:
    cell = 2 * 2 * 128 * 2  # one layer of two heads, K and V
    apart, shared = stored(kv(1, 2, 128)), stored(kv(1, 2, 128), kv_unified=True)
    assert apart.needed(3, 300) == 3 * 512 * cell
    assert shared.needed(3, 300) == 1024 * cell  # 900 padded
    # -np 4 shares -c out among 4, whoever comes
    assert stored(kv(1, 2, 128), sequences=4).needed(1, 300) == 4 * 512 * cell
    assert stored(kv(1, 2, 128), sequences=4, kv_unified=True).needed(1, 300) == 512 * cell


def test_a_window_keeps_its_tokens_and_a_micro_batch() -> None:
    found = (kv(1, 1, 64), kv(1, 1, 64, Sliding(1000)))
    cell = 2 * 64 * 2
    assert stored(*found).needed(1, 8192) == (8192 + 1536) * cell  # 1000 + 512 padded
    assert stored(*found, ubatch=100).needed(1, 8192) == (8192 + 1280) * cell  # 1100 padded
    assert stored(*found, swa_full=True).needed(1, 8192) == 2 * 8192 * cell
    assert stored(*found).needed(1, 1024) == 2 * 1024 * cell
    # Two sequences with a stream each, and with one for both: 2 * 1000 + 512 padded
    assert stored(*found).needed(2, 8192) == 2 * (8192 + 1536) * cell
    assert stored(*found, kv_unified=True).needed(2, 8192) == (16384 + 2560) * cell


def test_a_model_of_windows_alone_is_loaded_without_them() -> None:
    found = stored(kv(32, 8, 128, Sliding(4096)))
    assert found.needed(1, 32768) == 32 * 32768 * 2 * 8 * 128 * 2
    assert "Every layer has a window" in " ".join(found.notes)


def test_a_memory_holds_the_largest_context() -> None:
    # Gemma 3 27B in 10 GiB: less 1536 cells * 52 layers * 8192 B, over 10 * 8192 B: 123,084 cells, 122,880 = 480 * 256
    found = layout("llamacpp", layer_cache_specs(load("gemma3-27b").plain()), F16).pool(10 * 2**30, 4096)
    assert found.tokens == (10 * 2**30 - 1536 * 52 * 8192) // (10 * 8192) // 256 * 256 == 122880
    # 4096 * 10 * 8192 + 1536 * 52 * 8192 B a sequence
    assert found.concurrency[:2] == (10 * 2**30, 989855744)
    assert found.blocks is None
    # A recurrent model has no cells: 10 sequences of 100 tokens
    one = 4 * (8192 * 3 + 4096 * 128)
    assert stored(recurrent(1, 8192, 4096)).pool(10 * one + 1, 100).tokens == 1000


RUNS = st.lists(
    st.one_of(
        st.builds(kv, st.integers(1, 3), st.integers(1, 4), st.sampled_from([32, 64, 96]), st.just(FULL)),
        st.builds(kv, st.integers(1, 3), st.integers(1, 4), st.sampled_from([32, 64, 96]), st.just(Sliding(300))),
        st.builds(recurrent, st.integers(1, 3), st.integers(1, 50), st.integers(1, 9)),
        st.just(latent(2)),
    ),
    min_size=1,
    max_size=4,
)
GIVEN = st.fixed_dictionaries(
    {
        "kv_unified": st.booleans(),
        "swa_full": st.booleans(),
        "sequences": st.sampled_from([None, 1, 3]),
        "ubatch": st.sampled_from([None, 64, 700]),
        "kv_dtype": st.sampled_from(["f16", "q8_0", "iq4_nl", "q5_1"]),
        "engine_version": st.sampled_from([None, "0.3.36"]),
    }
)


@given(RUNS, GIVEN, st.integers(1, 9), st.integers(1, 3000), st.integers(0, 700))
def test_more_needs_no_less_and_never_less_than_the_ideal(
    runs: list[LayerCacheSpec], given: dict[str, Any], batch: int, context: int, more: int
) -> None:
    found = stored(*runs, **given)
    needed = found.needed(batch, context)
    assert type(needed) is int
    assert needed <= found.needed(batch, context + more)
    assert needed <= found.needed(batch + 1, context)
    # In the cache's own dtype a convolution of 4 tokens is smaller than its last 3 in f32
    ideal = layout("ideal", runs, replace(F16, kv_dtype=dtype(given["kv_dtype"])))
    assert ideal.needed(batch, context) <= needed


@given(RUNS, GIVEN, st.integers(1, 4), st.integers(1, 3000), st.integers(-1, 9000))
def test_what_a_memory_holds_fits_and_no_more(
    runs: list[LayerCacheSpec], given: dict[str, Any], batch: int, context: int, slack: int
) -> None:
    found = stored(*runs, **given)
    memory = found.needed(batch, context) + slack
    pool = found.pool(memory, context)
    streams = 1 if given["kv_unified"] else given["sequences"] or 1
    cells, rest = divmod(int(pool.tokens), streams)
    if any(cached.scales_with == "context" for run in runs for cached in run.cached):
        assert rest == cells % 256 == 0
        assert cells == 0 or found.needed(1, cells) <= memory
        assert found.needed(1, cells + 1) > memory
    if (given["sequences"] or 1) == 1:
        at_once = pool.concurrency.numerator // pool.concurrency.denominator
        assert at_once == 0 or found.needed(at_once, context) <= memory
        assert found.needed(at_once + 1, context) > memory


def test_states_and_streams_of_the_sequences_given() -> None:
    # A row: 2 layers of (10 * 3 + 4 * 128) f32; a cell: 3 layers of 2 heads of 64, K and V
    row, cell = 2 * (10 * 3 + 4 * 128) * 4, 3 * 2 * 2 * 64 * 2
    runs = (recurrent(2, 10, 4), kv(3, 2, 64))
    assert stored(*runs, sequences=4).needed(1, 256) == 4 * (row + 256 * cell)
    assert stored(*runs, sequences=4, kv_unified=True).needed(1, 256) == 4 * row + 256 * cell
    assert stored(*runs, speculative_tokens=2).needed(5, 256) == 5 * (3 * row + 256 * cell)
    found = stored(*runs, sequences=4).pool(4 * (row + 512 * cell), 100)
    assert found.tokens == 4 * 512
    assert found.concurrency[:2] == (4 * (row + 512 * cell), row + 256 * cell)
    assert stored(*runs, sequences=4).pool(4 * (row + 512 * cell) - 1, 100).tokens == 4 * 256
    assert stored(*runs, sequences=4).pool(3, 100).tokens == 0
    # Shared cells: four sequences of 100 tokens have 512 cells, a fifth 100 would too but for its row
    shared = stored(*runs, kv_unified=True).pool(4 * row + 512 * cell, 100)
    assert shared.concurrency[:2] == (4, 1)
    # The fork shares -c out among -np, in one stream
    assert stored(kv(3, 2, 64), sequences=3, engine_version="ik").needed(1, 300) == 1024 * cell


def test_a_small_memory_holds_as_many_cells_of_a_window() -> None:
    # Below 128 + 512 padded, 768 cells, a window's buffer is as long as the context's
    cell = 2 * 2 * 64 * 2
    found = stored(kv(1, 2, 64), kv(1, 2, 64, Sliding(128)))
    assert found.pool(2 * 512 * cell, 100).tokens == 512
    assert found.pool(2 * 768 * cell, 100).tokens == 768
    assert found.pool((768 + 1024) * cell, 100).tokens == 1024
    three = stored(kv(1, 2, 64), kv(1, 2, 64, Sliding(128)), sequences=3)
    assert three.pool(3 * (768 + 1024) * cell, 100).tokens == 3 * 1024


def test_k_and_v_of_two_types() -> None:
    # A cell of one layer: K 128 * 192 / 32 * 34 B, V 128 * 128 * 2 B; the log has K's and V's apart
    found = stored(PLAIN, k="q8_0", v="f16")
    assert found.needed(1, 256) == 61 * 256 * (128 * 192 // 32 * 34 + 128 * 128 * 2)
    # 61 * 256 * 26,112 B = 388.875 MiB and 61 * 256 * 32,768 B = 488 MiB
    assert found.pool(PLENTY, 256).log_lines[1] == (
        "llama_kv_cache: size =  876.88 MiB (   256 cells,  61 layers,  1/1 seqs), "
        "K (q8_0):  388.88 MiB, V (f16):  488.00 MiB"
    )


def test_layers_go_to_gpus_as_llama_cpp_splits_them() -> None:
    # with the output as the last: 81 over 4 GPUs end at 20.25, 40.5 and 60.75
    assert layers_of_gpus(80, 4) == (21, 20, 20, 19)
    assert layers_of_gpus(36, 4) == (10, 9, 9, 8)
    assert layers_of_gpus(2, 2) == (2, 0)
    assert layers_of_gpus(5, 1) == (5,)


def test_each_gpu_has_the_cells_of_its_own_layers() -> None:
    # 7 over 2: four layers with a window, then one and the whole context's
    found = stored(kv(5, 1, 64, Sliding(1000)), kv(1, 1, 64), gpus=2)
    cell = 2 * 64 * 2
    first, second = found.parts
    assert first.needed(2, 8192) == 2 * 4 * 1536 * cell  # 1000 + 512 padded
    assert second.needed(2, 8192) == 2 * (1536 + 8192) * cell
    assert found.needed(2, 8192) == first.needed(2, 8192) + second.needed(2, 8192)
    # Windows alone limit no context, but where they do not fit themselves
    assert first.pool(4 * 1536 * cell, 100).tokens == 2**60
    assert first.pool(4 * 1536 * cell - 1, 100).tokens == 1280
    assert "on this GPU" in first.pool(1, 100).details[0].label
    assert stored(kv(6, 1, 64), gpus=1).parts == ()


def test_a_gpu_may_have_states_alone_or_nothing() -> None:
    states, keys = stored(recurrent(2, 10, 4), kv(1, 2, 64), gpus=2).parts
    row = 2 * (10 * 3 + 4 * 128) * 4
    assert (states.needed(3, 500), keys.needed(3, 500)) == (3 * row, 3 * 512 * 2 * 2 * 64 * 2)
    assert states.pool(row, 100).tokens == 2**60
    assert states.pool(row - 1, 100).tokens == 0
    assert states.pool(5 * row, 100).concurrency[:2] == (5 * row, row)
    nothing = stored(kv(2, 2, 64), gpus=2).parts[1]
    assert nothing.needed(3, 500) == 0
    assert nothing.pool(0, 500).concurrency[:2] == (256, 1)
    assert nothing.pool(0, 500).tokens == 2**60


def test_no_more_sequences_than_llama_cpp_takes() -> None:
    cell = 2 * 2 * 64 * 2
    for unified in (False, True):
        found = stored(kv(1, 2, 64), kv_unified=unified)
        assert found.most == 256
        assert found.pool(256 * 256 * cell, 256).concurrency[:2] in {(256, 1), (256 * 256 * cell, 256 * cell)}
        assert found.pool(PLENTY, 256).concurrency[:2] == (256, 1)


@pytest.mark.parametrize("given", [{}, {"sequences": 3}, {"swa_full": True}, {"kv_unified": True}, {"ubatch": 64}])
@pytest.mark.parametrize("name", ["llama2-70b", "gemma3-27b", "deepseek-v3", "gpt-oss-20b"])
@pytest.mark.parametrize("memory", [2**34, 2**29 + 7])
def test_formulas_say_what_the_figures_are(name: str, given: dict[str, Any], memory: int) -> None:
    model: ModelSpec = load(name)
    plain = layout("llamacpp", layer_cache_specs(model.plain()), replace(F16, **given))
    shown = layout("llamacpp", layer_cache_specs(model.symbolic(gathered=False)), replace(F16, **given))
    assert shown.needed(3, 5000) == plain.needed(3, 5000)
    a, b = plain.pool(memory, 5000), shown.pool(memory, 5000)
    assert (a.tokens, a.concurrency[:2], a.log_lines) == (b.tokens, b.concurrency[:2], b.log_lines)
    for figure in (b.tokens, *(detail.quantity for detail in b.details)):
        assert isinstance(figure, Quantity)
        assert evaluate(figure.formula.text, {s.name: s.value for s in figure.formula.symbols}) == figure
        assert evaluate(figure.formula.substituted) == figure


@pytest.mark.parametrize(
    ("runs", "given", "why"),
    [
        ((), {}, "keeps no cache"),
        ((LayerCacheSpec(2, ()),), {}, "keeps no cache"),
        ((kv(2, 2, 64),), {"tp": 2}, "spreads layers over GPUs"),
        ((kv(2, 2, 64),), {"pp": 2}, "--pp has no effect"),
        ((kv(2, 2, 64),), {"engine_version": "b4000"}, "b4000"),
        ((kv(2, 2, 64),), {"sequences": 257}, "at most 256"),
        ((kv(2, 2, 64),), {"speculative_tokens": 2}, "only rows of states"),
        ((kv(2, 2, 64),), {"kv_dtype": "fp8"}, "no cache in fp8"),
        ((kv(2, 2, 64),), {"v": "int8"}, "no cache in int8"),
        ((kv(2, 2, 80),), {"kv_dtype": "q8_0"}, "rows of 80 elements in q8_0"),
        ((kv(2, 2, 80),), {"k": "q4_0"}, "rows of 80 elements in q4_0"),
        ((DEEPSEEK,), {"k": "q8_0"}, "latent as K alone"),
        ((kv(2, 2, 64), kv(2, 2, 64, Sliding(8)), kv(2, 2, 64, Sliding(9))), {}, "one window a model.* 8 and 9"),
        ((kv(2, 2, 64), kv(2, 2, 64, Chunked(4096))), {}, "chunks of 8,192 tokens alone, not 4,096"),
        ((LayerCacheSpec(2, (CacheSpec("pools", 1, 64),)),), {}, "stores pools is not known"),
        (
            (LayerCacheSpec(2, (CacheSpec("K and V", 2, 64, scales_with="source", role="kv"),)),),
            {"source": 9},
            "keeps of a source",
        ),
        ((recurrent(2, 8, 8),), {"engine_version": "ik"}, "not known here"),
    ],
)
def test_what_is_refused(runs: tuple[LayerCacheSpec, ...], given: dict[str, Any], why: str) -> None:
    with pytest.raises(AttncalcError, match=why) as raised:
        stored(*runs, **given)
    assert raised.value.tip


def test_chunks_are_windows_and_facts_name_the_options() -> None:
    found = stored(kv(12, 8, 128), kv(36, 8, 128, Chunked(8192)), ubatch=4096)
    # 8192 + 4096 cells of a chunk
    assert found.needed(1, 65536) == (12 * 65536 + 36 * 12288) * 2 * 8 * 128 * 2
    assert found.facts == (
        "as in llama-cpp-python 0.3.36",
        "n_seq_max 1",
        "K f16, V f16",
        "n_ubatch 4096",
        "kv_unified false",
    )
    assert any("-b 4096" in note for note in found.notes)
