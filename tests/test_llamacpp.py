"""llama.cpp's buffers of cells: attncalc/engines/llamacpp/layout.py. Whole logs are in
test_engine_logs.py.
"""

from dataclasses import replace
from typing import Any

import pytest
from evaluate import text_of
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from attncalc import AttncalcError, Chunked, Full, Sliding, load
from attncalc.attention import CacheSpec, Span
from attncalc.cost.cache import layer_cache_specs
from attncalc.engines import find_engine
from attncalc.engines.base import CacheLayout
from attncalc.engines.llamacpp.options import LlamacppArgs
from attncalc.engines.llamacpp.placement import place_layers
from attncalc.engines.pipeline import LayerCacheSpec
from attncalc.model import ModelSpec
from attncalc.units import dtype

FULL = Full()
PLENTY = 2**50
F16 = LlamacppArgs(kv_dtype=dtype("f16"), dtype=dtype("f16"))


def kv(layers: int, heads: int, width: int, span: Span = FULL) -> LayerCacheSpec:
    return LayerCacheSpec(layers, (CacheSpec("K and V", 2 * heads, width, span=span, role="kv"),))


def latent(layers: int, *more: CacheSpec) -> LayerCacheSpec:
    return LayerCacheSpec(layers, (CacheSpec("latent", 1, 576, role="latent", rotary=64), *more))


def recurrent(layers: int, channels: int, state: int) -> LayerCacheSpec:
    convolution = CacheSpec("convolution", channels, 4, per="sequence", role="convolution")
    return LayerCacheSpec(
        layers,
        (
            convolution,
            CacheSpec("state", state, 128, per="sequence", role="state", requested_dtype="bf16"),
        ),
    )


def llama_layout(
    *specs: LayerCacheSpec,
    kv_dtype: str = "f16",
    k: str | None = None,
    v: str | None = None,
    **given: Any,
) -> CacheLayout:
    args = replace(F16, kv_dtype=dtype(kv_dtype), **given)
    args = replace(args, kv_dtype_k=dtype(k) if k else None, kv_dtype_v=dtype(v) if v else None)
    return find_engine("llamacpp").layout(specs, args)


def sizes(cache_layout: CacheLayout, context: int) -> list[str]:
    """Return the MiB in the log line of each buffer."""
    lines = [
        line
        for line in cache_layout.pool(PLENTY, context).log_lines
        if "size" in line and "creating" not in line
    ]
    return [line.split("size")[1].split("=")[1].split()[0] for line in lines]


DEEPSEEK = latent(61)
# DeepSeek in a GGUF from before llama.cpp supported MLA: K of 128 x 192 and V of 128 x 128.
PLAIN = LayerCacheSpec(61, (CacheSpec("K", 128, 192, role="k"), CacheSpec("V", 128, 128, role="v")))


@pytest.mark.parametrize(("context", "printed"), [(2048, "9760.00"), (512, "2440.00")])
def test_k_and_v_of_every_head_of_mla_as_logged(context: int, printed: str) -> None:
    """Two logs of tests/data/engine-logs whose model file cannot express K and V of every head."""
    # 61 * 2048 * (24576 + 16384) * 2 B
    assert sizes(llama_layout(PLAIN, engine_version="ik"), context) == [printed]


def test_log_lines_of_a_start() -> None:
    # 1536 = 1024 + 512 cells of a window; 10 * 4096 * 2 * 2048 * 2 B = 320 MiB, 52 * 1536 * 2 *
    # 2048 * 2 B = 624 MiB
    pool = llama_layout(kv(52, 16, 128, Sliding(1024)), kv(10, 16, 128)).pool(PLENTY, 4096)
    assert pool.log_lines == (
        "llama_context: n_ctx                 = 4096",
        "llama_kv_cache_iswa: creating non-SWA KV cache, size = 4096 cells",
        "llama_kv_cache: size =  320.00 MiB (  4096 cells,  10 layers,  1/1 seqs), "
        "K (f16):  160.00 MiB, V (f16):  160.00 MiB",
        "llama_kv_cache_iswa: creating     SWA KV cache, size = 1536 cells",
        "llama_kv_cache: size =  624.00 MiB (  1536 cells,  52 layers,  1/1 seqs), "
        "K (f16):  312.00 MiB, V (f16):  312.00 MiB",
    )
    # 2 sequences of 30 + 2 layers: 2 * 30 * 8192 * 3 * 4 B = 5.625 MiB, 2 * 30 * 4096 * 128 * 4 B =
    # 120 MiB
    pool = llama_layout(recurrent(30, 8192, 4096), kv(2, 2, 128), sequences=2, v="q8_0").pool(
        PLENTY, 256
    )
    assert pool.log_lines == (
        "llama_context: n_ctx                 = 512",
        # 2 streams * 256 cells * 2 layers * 256 = 262,144 elements: 0.5 MiB of K, 34 / 64 of it of
        # V, 0.265625
        "llama_kv_cache: size =    0.77 MiB (   256 cells,   2 layers,  2/2 seqs), "
        "K (f16):    0.50 MiB, V (q8_0):    0.27 MiB",
        "llama_memory_recurrent: size =  125.62 MiB (     2 cells,  32 layers,  2 seqs  0 rs_seq), "
        "R (f32):    5.62 MiB, S (f32):  120.00 MiB, P (f32):    0.00 MiB",
    )


def test_indexer_keys_have_their_own_buffer() -> None:
    cache_layout = llama_layout(
        latent(61, CacheSpec("indexer keys", 1, 128, dtype="fp8", role="indexer"))
    )
    # 61 * 4096 * 576 * 2 B = 274.5 MiB, and with 128 elements for 576, in the cache's own type, 61
    # MiB
    assert sizes(cache_layout, 4096) == ["274.50", "61.00"]
    assert cache_layout.needed(1, 4096) == 61 * 4096 * (576 + 128) * 2
    assert (
        "llama_kv_cache_dsa: creating indexer KV cache, size = 4096 cells"
        in cache_layout.pool(PLENTY, 4096).log_lines
    )


def test_names_of_figures_are_unambiguous() -> None:
    def names(*specs: LayerCacheSpec) -> dict[str, int]:
        return {
            d.name: int(float(d.quantity)) for d in llama_layout(*specs).pool(PLENTY, 256).details
        }

    # a token of one buffer: 3 layers of 2 heads x 64, K and V in f16
    assert names(kv(3, 2, 64))["kv_bytes_per_token"] == 3 * 2 * 2 * 64 * 2
    two = names(kv(3, 2, 64), kv(1, 2, 64, Sliding(300)))
    assert (two["kv_bytes_per_cell"], two["swa_bytes_per_cell"]) == (3 * 512, 512)
    assert "kv_bytes_per_token" not in two
    # 2 layers: 10 channels of 3 tokens before the newest, and 5 * 128, in f32
    assert (
        names(recurrent(2, 10, 5), kv(1, 2, 64))["state_bytes_per_sequence"]
        == 2 * (10 * 3 + 5 * 128) * 4
    )


def test_contexts_are_padded_per_sequence_or_once_if_unified() -> None:
    cell = 2 * 2 * 128 * 2  # one layer of two heads, K and V
    apart, shared = llama_layout(kv(1, 2, 128)), llama_layout(kv(1, 2, 128), kv_unified=True)
    assert apart.needed(3, 300) == 3 * 512 * cell
    assert shared.needed(3, 300) == 1024 * cell  # 900 padded
    # -np 4 divides -c by 4, whatever the batch
    assert llama_layout(kv(1, 2, 128), sequences=4).needed(1, 300) == 4 * 512 * cell
    assert llama_layout(kv(1, 2, 128), sequences=4, kv_unified=True).needed(1, 300) == 512 * cell


def test_a_window_buffer_holds_the_window_and_a_micro_batch() -> None:
    layers = (kv(1, 1, 64), kv(1, 1, 64, Sliding(1000)))
    cell = 2 * 64 * 2
    assert llama_layout(*layers).needed(1, 8192) == (8192 + 1536) * cell  # 1000 + 512 padded
    assert llama_layout(*layers, ubatch=100).needed(1, 8192) == (8192 + 1280) * cell  # 1100 padded
    assert llama_layout(*layers, swa_full=True).needed(1, 8192) == 2 * 8192 * cell
    assert llama_layout(*layers).needed(1, 1024) == 2 * 1024 * cell
    # Two sequences with a stream each, and with one for both: 2 * 1000 + 512 padded
    assert llama_layout(*layers).needed(2, 8192) == 2 * (8192 + 1536) * cell
    assert llama_layout(*layers, kv_unified=True).needed(2, 8192) == (16384 + 2560) * cell


def test_a_model_with_only_windows_is_loaded_as_full_attention() -> None:
    cache_layout = llama_layout(kv(32, 8, 128, Sliding(4096)))
    assert cache_layout.needed(1, 32768) == 32 * 32768 * 2 * 8 * 128 * 2
    assert "Every layer has a sliding window" in " ".join(cache_layout.notes)


def test_tokens_are_the_largest_context_that_fits() -> None:
    # Gemma 3 27B in 10 GiB: less 1536 cells * 52 layers * 8192 B, over 10 * 8192 B: 123,084 cells,
    # 122,880 = 480 * 256
    pool = (
        find_engine("llamacpp")
        .layout(layer_cache_specs(load("gemma3-27b").plain()), F16)
        .pool(10 * 2**30, 4096)
    )
    assert pool.tokens == (10 * 2**30 - 1536 * 52 * 8192) // (10 * 8192) // 256 * 256 == 122880
    # 4096 * 10 * 8192 + 1536 * 52 * 8192 B per sequence
    assert pool.concurrency[:2] == (10 * 2**30, 989855744)
    assert pool.blocks is None
    # A recurrent model has no cells: 10 sequences of 100 tokens
    one = 4 * (8192 * 3 + 4096 * 128)
    assert llama_layout(recurrent(1, 8192, 4096)).pool(10 * one + 1, 100).tokens == 1000


RUNS = st.lists(
    st.one_of(
        st.builds(
            kv, st.integers(1, 3), st.integers(1, 4), st.sampled_from([32, 64, 96]), st.just(FULL)
        ),
        st.builds(
            kv,
            st.integers(1, 3),
            st.integers(1, 4),
            st.sampled_from([32, 64, 96]),
            st.just(Sliding(300)),
        ),
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
def test_needed_grows_and_is_at_least_ideal(
    specs: list[LayerCacheSpec], given: dict[str, Any], batch: int, context: int, more: int
) -> None:
    cache_layout = llama_layout(*specs, **given)
    needed = cache_layout.needed(batch, context)
    assert type(needed) is int
    assert needed <= cache_layout.needed(batch, context + more)
    assert needed <= cache_layout.needed(batch + 1, context)
    # In the cache's own dtype a convolution of 4 tokens is smaller than its last 3 in f32
    ideal = find_engine("ideal").layout(specs, replace(F16, kv_dtype=dtype(given["kv_dtype"])))
    assert ideal.needed(batch, context) <= needed


@given(RUNS, GIVEN, st.integers(1, 4), st.integers(1, 3000), st.integers(-1, 9000))
def test_a_pool_holds_as_much_as_fits(
    specs: list[LayerCacheSpec], given: dict[str, Any], batch: int, context: int, slack: int
) -> None:
    cache_layout = llama_layout(*specs, **given)
    memory = cache_layout.needed(batch, context) + slack
    pool = cache_layout.pool(memory, context)
    streams = 1 if given["kv_unified"] else given["sequences"] or 1
    cells, rest = divmod(int(pool.tokens), streams)
    if any(cached.per == "token" for run in specs for cached in run.cached):
        assert rest == cells % 256 == 0
        assert cells == 0 or cache_layout.needed(1, cells) <= memory
        assert cache_layout.needed(1, cells + 1) > memory
    if (given["sequences"] or 1) == 1:
        whole_sequences = pool.concurrency.numerator // pool.concurrency.denominator
        assert whole_sequences == 0 or cache_layout.needed(whole_sequences, context) <= memory
        assert cache_layout.needed(whole_sequences + 1, context) > memory


def test_states_and_streams_per_slot() -> None:
    # A row: 2 layers of (10 * 3 + 4 * 128) f32; a cell: 3 layers of 2 heads of 64, K and V
    row, cell = 2 * (10 * 3 + 4 * 128) * 4, 3 * 2 * 2 * 64 * 2
    specs = (recurrent(2, 10, 4), kv(3, 2, 64))
    assert llama_layout(*specs, sequences=4).needed(1, 256) == 4 * (row + 256 * cell)
    assert llama_layout(*specs, sequences=4, kv_unified=True).needed(1, 256) == 4 * row + 256 * cell
    assert llama_layout(*specs, speculative_tokens=2).needed(5, 256) == 5 * (3 * row + 256 * cell)
    pool = llama_layout(*specs, sequences=4).pool(4 * (row + 512 * cell), 100)
    assert pool.tokens == 4 * 512
    assert pool.concurrency[:2] == (4 * (row + 512 * cell), row + 256 * cell)
    assert llama_layout(*specs, sequences=4).pool(4 * (row + 512 * cell) - 1, 100).tokens == 4 * 256
    assert llama_layout(*specs, sequences=4).pool(3, 100).tokens == 0
    # Shared cells: four sequences of 100 tokens have 512 cells; a fifth fits in them, but its row
    # of states does not
    shared = llama_layout(*specs, kv_unified=True).pool(4 * row + 512 * cell, 100)
    assert shared.concurrency[:2] == (4, 1)
    # The fork divides -c by -np, in one stream
    assert (
        llama_layout(kv(3, 2, 64), sequences=3, engine_version="ik").needed(1, 300) == 1024 * cell
    )


def test_in_a_small_memory_window_and_context_have_equal_cells() -> None:
    # Below 128 + 512 padded, 768 cells, a window's buffer is as long as the context's
    cell = 2 * 2 * 64 * 2
    cache_layout = llama_layout(kv(1, 2, 64), kv(1, 2, 64, Sliding(128)))
    assert cache_layout.pool(2 * 512 * cell, 100).tokens == 512
    assert cache_layout.pool(2 * 768 * cell, 100).tokens == 768
    assert cache_layout.pool((768 + 1024) * cell, 100).tokens == 1024
    three = llama_layout(kv(1, 2, 64), kv(1, 2, 64, Sliding(128)), sequences=3)
    assert three.pool(3 * (768 + 1024) * cell, 100).tokens == 3 * 1024


def test_k_and_v_of_different_types() -> None:
    # A cell of one layer: K 128 * 192 / 32 * 34 B, V 128 * 128 * 2 B; the log has K's and V's apart
    cache_layout = llama_layout(PLAIN, k="q8_0", v="f16")
    assert cache_layout.needed(1, 256) == 61 * 256 * (128 * 192 // 32 * 34 + 128 * 128 * 2)
    # 61 * 256 * 26,112 B = 388.875 MiB and 61 * 256 * 32,768 B = 488 MiB
    assert cache_layout.pool(PLENTY, 256).log_lines[1] == (
        "llama_kv_cache: size =  876.88 MiB (   256 cells,  61 layers,  1/1 seqs), "
        "K (q8_0):  388.88 MiB, V (f16):  488.00 MiB"
    )


def test_layers_per_gpu_are_those_of_llama_cpp() -> None:
    # with the output as the last: 81 over 4 GPUs end at 20.25, 40.5 and 60.75
    assert place_layers(80, 4).counts() == (0, 21, 20, 20, 19)
    assert place_layers(36, 4).counts() == (0, 10, 9, 9, 8)
    assert place_layers(2, 2).counts() == (0, 2, 0)
    assert place_layers(5, 1).counts() == (0, 5)


def test_each_gpu_has_the_cells_of_its_own_layers() -> None:
    # 7 over 2: four layers with a window, then one and the whole context's
    cache_layout = llama_layout(kv(5, 1, 64, Sliding(1000)), kv(1, 1, 64), gpus=2)
    cell = 2 * 64 * 2
    first, second = cache_layout.parts
    assert first.needed(2, 8192) == 2 * 4 * 1536 * cell  # 1000 + 512 padded
    assert second.needed(2, 8192) == 2 * (1536 + 8192) * cell
    assert cache_layout.needed(2, 8192) == first.needed(2, 8192) + second.needed(2, 8192)
    # A GPU with only windows limits the context only if the windows themselves do not fit
    assert first.pool(4 * 1536 * cell, 100).tokens == 2**60
    assert first.pool(4 * 1536 * cell - 1, 100).tokens == 1280
    assert "on this GPU" in first.pool(1, 100).details[0].label
    assert llama_layout(kv(6, 1, 64), gpus=1).parts == ()


def test_a_gpu_may_have_only_states_or_nothing() -> None:
    states, keys = llama_layout(recurrent(2, 10, 4), kv(1, 2, 64), gpus=2).parts
    row = 2 * (10 * 3 + 4 * 128) * 4
    assert (states.needed(3, 500), keys.needed(3, 500)) == (3 * row, 3 * 512 * 2 * 2 * 64 * 2)
    assert states.pool(row, 100).tokens == 2**60
    assert states.pool(row - 1, 100).tokens == 0
    assert states.pool(5 * row, 100).concurrency[:2] == (5 * row, row)
    nothing = llama_layout(kv(2, 2, 64), gpus=2).parts[1]
    assert nothing.needed(3, 500) == 0
    assert nothing.pool(0, 500).concurrency[:2] == (256, 1)
    assert nothing.pool(0, 500).tokens == 2**60


def test_at_most_256_sequences() -> None:
    cell = 2 * 2 * 64 * 2
    for unified in (False, True):
        cache_layout = llama_layout(kv(1, 2, 64), kv_unified=unified)
        assert cache_layout.max_num_seqs == 256
        assert cache_layout.pool(256 * 256 * cell, 256).concurrency[:2] in {
            (256, 1),
            (256 * 256 * cell, 256 * cell),
        }
        assert cache_layout.pool(PLENTY, 256).concurrency[:2] == (256, 1)


@each("given", [{}, {"sequences": 3}, {"swa_full": True}, {"kv_unified": True}, {"ubatch": 64}])
@each("name", ["llama2-70b", "gemma3-27b", "deepseek-v3", "gpt-oss-20b"])
@each("memory", [2**34, 2**29 + 7])
def test_formulas_evaluate_to_their_figures(name: str, given: dict[str, Any], memory: int) -> None:
    model: ModelSpec = load(name)
    plain = find_engine("llamacpp").layout(layer_cache_specs(model.plain()), replace(F16, **given))
    shown = find_engine("llamacpp").layout(
        layer_cache_specs(model.symbolic(gathered=False)), replace(F16, **given)
    )
    assert shown.needed(3, 5000) == plain.needed(3, 5000)
    a, b = plain.pool(memory, 5000), shown.pool(memory, 5000)
    assert (a.tokens, a.concurrency[:2], a.log_lines) == (b.tokens, b.concurrency[:2], b.log_lines)
    for figure in (b.tokens, *(detail.quantity for detail in b.details)):
        text_of(figure)


@each(
    ("specs", "given", "why"),
    [
        ((), {}, "has no cache"),
        ((LayerCacheSpec(2, ()),), {}, "has no cache"),
        ((kv(2, 2, 64),), {"tp": 2}, "distributes layers over GPUs"),
        ((kv(2, 2, 64),), {"engine_version": "4000"}, "4000"),
        ((kv(2, 2, 64),), {"sequences": 257}, "at most 256"),
        ((kv(2, 2, 64),), {"speculative_tokens": 2}, "without recurrent states"),
        ((kv(2, 2, 64),), {"kv_dtype": "fp8"}, "no cache in fp8"),
        ((kv(2, 2, 64),), {"v": "int8"}, "no cache in int8"),
        ((kv(2, 2, 80),), {"kv_dtype": "q8_0"}, "rows of 80 elements in q8_0"),
        ((kv(2, 2, 80),), {"k": "q4_0"}, "rows of 80 elements in q4_0"),
        ((DEEPSEEK,), {"k": "q8_0"}, "latent as K"),
        (
            (kv(2, 2, 64), kv(2, 2, 64, Sliding(8)), kv(2, 2, 64, Sliding(9))),
            {},
            "one window size per model.* 8 and 9",
        ),
        ((kv(2, 2, 64), kv(2, 2, 64, Chunked(4096))), {}, "chunks of 8,192 tokens, not of 4,096"),
        (
            (LayerCacheSpec(2, (CacheSpec("pools", 1, 64),)),),
            {},
            "does not know how llama.cpp stores this cache: pools",
        ),
        (
            (LayerCacheSpec(2, (CacheSpec("K and V", 2, 64, per="source token", role="kv"),)),),
            {"source": 9},
            "K and V of a source is not supported",
        ),
        (
            (recurrent(2, 8, 8),),
            {"engine_version": "ik"},
            "does not know how ik_llama.cpp stores this cache",
        ),
    ],
)
def test_unsupported_combinations_are_errors(
    specs: tuple[LayerCacheSpec, ...], given: dict[str, Any], why: str
) -> None:
    with pytest.raises(AttncalcError, match=why) as raised:
        llama_layout(*specs, **given)
    assert raised.value.tip


def test_chunks_are_stored_like_windows_and_facts_list_the_options() -> None:
    cache_layout = llama_layout(kv(12, 8, 128), kv(36, 8, 128, Chunked(8192)), ubatch=4096)
    # 8192 + 4096 cells of a chunk
    assert cache_layout.needed(1, 65536) == (12 * 65536 + 36 * 12288) * 2 * 8 * 128 * 2
    assert cache_layout.facts == (
        "build b11739",
        "n_seq_max 1",
        "K f16, V f16",
        "n_ubatch 4096",
        "kv_unified false",
    )
    assert any("-b 4096" in note for note in cache_layout.notes)
