"""llama.cpp's caches of compressed attention (DeepSeek-V4), compared with published lines of its
log.
"""

from typing import Any

import pytest
from asking import Ask
from tables import each

from attncalc import AttncalcError, fit, load
from attncalc.cost.cache import layer_cache_specs
from attncalc.engines import find_engine
from attncalc.engines.llamacpp.layout import LlamaCppLayout
from attncalc.engines.llamacpp.options import LlamacppArgs
from attncalc.units import GIB, dtype

MIB = 2**20
# Lines of ggml-org/llama.cpp issue 27680: -c 64000 -ub 4096, with a cache in bf16. Those of the
# pools are not among the excerpts that were found.
PUBLISHED = """\
llama_context: n_ctx                 = 64000
llama_kv_cache_dsv4: creating DSV4 raw KV cache
llama_kv_cache_iswa: creating non-SWA KV cache, size = 64000 cells
llama_kv_cache: size =    0.00 MiB ( 64000 cells,   0 layers,  1/1 seqs), K (bf16):    0.00 MiB, V (bf16):    0.00 MiB
llama_kv_cache_iswa: creating     SWA KV cache, size = 4352 cells
llama_kv_cache: size =  182.75 MiB (  4352 cells,  43 layers,  1/1 seqs), K (bf16):  182.75 MiB, V (bf16):    0.00 MiB
llama_dsv4_comp_state: csa ratio = 4, state = 8 x 1024, streams = 1, rs_seq = 0, layers = 21, size =    1.31 MiB
llama_dsv4_comp_state: hca ratio = 128, state = 128 x 512, streams = 1, rs_seq = 0, layers = 20, size =   10.00 MiB
llama_dsv4_comp_state: lid ratio = 4, state = 8 x 256, streams = 1, rs_seq = 0, layers = 21, size =    0.33 MiB
"""


def in_llamacpp(**options: Any) -> LlamaCppLayout:
    args = LlamacppArgs(**{"kv_dtype": dtype("fp16"), "dtype": dtype("bf16"), **options})
    layout = find_engine("llamacpp").layout(
        layer_cache_specs(load("deepseek-v4-flash").plain()), args
    )
    assert isinstance(layout, LlamaCppLayout)
    return layout


def test_lines_are_those_of_a_published_log() -> None:
    found = in_llamacpp(kv_dtype=dtype("bf16"), ubatch=4_096).pool(0, 64_000).log_lines
    assert [line for line in PUBLISHED.splitlines() if line not in found] == []
    # 16,000 pools of 4 and 500 of 128, both in multiples of 256 cells
    assert "llama_kv_cache_dsv4: creating DSV4 CSA compressed KV cache, size = 16000 cells" in found
    assert any(
        line.startswith("llama_kv_cache: size =   10.00 MiB (   512 cells,  20 layers")
        for line in found
    )


def test_buffers_of_131_072_tokens_are_the_published_ones() -> None:
    """ggml-org/llama.cpp issue 25468, -ub 512: windows 32.25 MiB, pools of 4 672, pools of 128 20,
    indexer 168.

    768 cells x 43 x 1,024 B; 32,768 x 21 x 1,024; 1,024 x 20 x 1,024; 32,768 x 21 x 256 B.
    """
    layout = in_llamacpp()
    full, windows = layout.start.stream_cells(batch=1, slots=1, context=131_072)
    sizes = {
        buffer.name: buffer.cells(full, windows) * int(buffer.cell) / MIB
        for buffer in layout.buffers
    }
    assert sizes == {"swa": 32.25, "csa": 672, "hca": 20, "indexer": 168}
    states = 21 * 8 * 2 * 1_024 * 4 + 20 * 128 * 2 * 512 * 4 + 21 * 8 * 2 * 256 * 4
    assert layout.needed(1, 131_072) == (32.25 + 672 + 20 + 168) * MIB + states


def test_each_slot_has_its_own_cells_also_with_a_unified_cache() -> None:
    """llama-kv-cache-dsv4.cpp: "only supports non-unified mode even if unified flag is passed"."""
    own, unified = in_llamacpp(sequences=4), in_llamacpp(sequences=4, kv_unified=True)
    assert own.needed(4, 32_768) == 4 * in_llamacpp().needed(1, 32_768)
    assert unified.needed(4, 32_768) == 4 * in_llamacpp().needed(1, 4 * 32_768)
    assert any(
        "each of the 4 slots has cells for the whole context" in note for note in unified.notes
    )


def test_a_drafts_tokens_to_roll_back_have_planes_of_tokens_to_pool() -> None:
    """n_planes = n_stream * (1 + n_rs_seq): with 3 tokens four times 12,206,080 B."""
    extra = in_llamacpp(speculative_tokens=3).needed(1, 8_192) - in_llamacpp().needed(1, 8_192)
    assert extra == 3 * 12_206_080


@each("options", [{}, {"sequences": 3}, {"sequences": 2, "kv_unified": True}, {"swa_full": True}])
def test_the_longest_context_is_the_largest_that_fits(options: dict[str, Any]) -> None:
    layout = in_llamacpp(**options)
    slots = layout.args.slots
    n_ctx = int(layout.pool(20 * GIB, 8_192).tokens)
    assert n_ctx % 256 == 0
    assert (
        layout.needed(slots, n_ctx // slots)
        <= 20 * GIB
        < layout.needed(slots, n_ctx // slots + 256)
    )


def test_several_gpus_have_the_buffers_of_their_layers() -> None:
    whole = in_llamacpp(gpus=4, device_memory=80 * GIB)
    assert sum(part.needed(1, 65_536) for part in whole.parts) == in_llamacpp().needed(1, 65_536)


@each(
    ("build", "context", "ubatch", "mib"),
    [("b9900", 1_048_576, 512, 67_094.60), ("b9988", 512_000, 2_048, 130_527.19)],
)
def test_the_compute_buffer_has_the_indexers_scores_of_all_heads_up_to_b9988(
    build: str, context: int, ubatch: int, mib: float
) -> None:
    """unslothai/unsloth pull request 6940 and ggml-org/llama.cpp issue 25468."""
    answer = fit(
        "deepseek-v4-flash", engine="llamacpp", gpu="b200", weights_dtype="q2_k", context=context,
        engine_version=build, ubatch=ubatch,
    )  # fmt: skip
    assert answer.to_dict()["compute_buffer"] == pytest.approx(mib * MIB, rel=0.015)


@each(
    ("options", "error"),
    [
        ({"engine_version": "b9600"}, "b9600 has no compressed attention"),
        ({"engine_version": "ik"}, "does not know how ik_llama.cpp stores"),
        (
            {"kv_dtype_v": dtype("q8_0")},
            "stores compressed attention's keys as K, so V has no type",
        ),
    ],
)
def test_what_llamacpp_cannot_store_is_an_error(options: dict[str, Any], error: str) -> None:
    with pytest.raises(AttncalcError, match=error):
        in_llamacpp(**options)


def test_fit_reads_the_lines_of_a_log(ask: Ask) -> None:
    log = "build: 10400 (abcdef0)\nllama_context: n_ubatch              = 4096\n" + PUBLISHED
    answer = ask("fit", "deepseek-v4-flash", "--log", "-", stdin=log)
    assert "AGREES: all figures are within the log's rounding." in answer.out
    assert "tokens to pool by 128" in answer.out
