"""llama.cpp's layout at its limits: cells, slots, details, formulas, notes and log lines of toy
layers.

Whole models and properties are in test_llamacpp.py.
"""

from fractions import Fraction
from typing import Any

import pytest
from asking import Ask, refusal
from evaluate import text_of
from tables import each
from test_llamacpp import kv, latent, llama_layout, recurrent

from attncalc import Chunked, Grouped, Sliding, load
from attncalc.attention import CacheSpec
from attncalc.attention.mamba import Mamba2
from attncalc.cost.cache import layer_cache_specs
from attncalc.engines.base import CacheLayout, Pool
from attncalc.engines.llamacpp.layout import LlamaCppLayout
from attncalc.engines.llamacpp.log_lines import mib
from attncalc.engines.pipeline import LayerCacheSpec
from attncalc.quantity import symbol, symbolic

MIB, GIB = 2**20, 2**30
# Bytes of a cell in one layer: 2 heads of K and V, 64 elements in f16.
CELL = 2 * 2 * 64 * 2
FULL, WINDOW = kv(1, 2, 64), kv(1, 2, 64, Sliding(300))
ATTENTION = symbolic(Grouped(4, 2, 64))
SYMBOLS = LayerCacheSpec(3, ATTENTION.cache())
SYMBOLS_OF_WINDOWS = LayerCacheSpec(2, ATTENTION.with_span(Sliding(300)).cache())
SYMBOLS_OF_STATES = LayerCacheSpec(2, symbolic(Mamba2(4, 8, 16, 4, 1)).cache())


def details(pool: Pool) -> dict[str, int]:
    return {detail.name: int(float(detail.quantity)) for detail in pool.details}


# Cells.


@pytest.mark.parametrize(
    ("given", "context", "full", "windows"),
    [
        ({}, 256, 256, 256),
        ({}, 257, 512, 512),
        # a window of 300 and a micro-batch of 512: 812 cells are 1,024
        ({}, 4096, 4096, 1024),
        ({"ubatch": 212}, 4096, 4096, 512),
        ({"ubatch": 213}, 4096, 4096, 768),
        ({"swa_full": True}, 4096, 4096, 4096),
        # one sequence of many that could share the cells has one window
        ({"kv_unified": True, "sequences": 8}, 4096, 4096, 1024),
        ({"sequences": 8}, 4096, 4096, 1024),
    ],
)
def test_cells_of_one_sequence(
    given: dict[str, Any], context: int, full: int, windows: int
) -> None:
    pool = llama_layout(FULL, WINDOW, **given).pool(GIB, context)
    found = details(pool)
    assert found["kv_cells"] == full
    assert found.get("swa_cells") == (None if "swa_full" in given else windows)
    assert found["kv_bytes_per_sequence"] == (full + windows) * CELL


def test_contexts_shorter_than_a_windows_cells_have_as_many_in_both() -> None:
    """A window of 1,500 has 2,048 cells. In 5 slots of 2,560 cells, 1,280 are for each of two
    layers.
    """
    layers = FULL, kv(1, 2, 64, Sliding(1500))
    assert llama_layout(*layers, sequences=5).pool(5 * 2560 * CELL, 100).tokens == 5 * 1280
    assert llama_layout(*layers, sequences=5).pool(5 * (2048 + 2304) * CELL, 100).tokens == 5 * 2304
    assert llama_layout(*layers, sequences=5).pool(0, 100).tokens == 0


def test_cells_of_one_sequence_of_the_fork_are_those_of_one_slot() -> None:
    pool = llama_layout(FULL, sequences=8, engine_version="ik").pool(GIB, 1000)
    assert (details(pool)["kv_cells"], details(pool)["kv_bytes_per_sequence"]) == (
        1024,
        1024 * CELL,
    )


def test_details_are_those_of_what_the_layers_have() -> None:
    def names(*specs: LayerCacheSpec, **given: Any) -> list[str]:
        return [detail.name for detail in llama_layout(*specs, **given).pool(GIB, 100).details]

    assert names(FULL) == ["kv_bytes_per_sequence", "kv_cells", "kv_bytes_per_token"]
    assert names(recurrent(2, 10, 4)) == ["kv_bytes_per_sequence", "state_bytes_per_sequence"]
    two = [
        "kv_bytes_per_sequence",
        "kv_cells",
        "swa_cells",
        "kv_bytes_per_cell",
        "swa_bytes_per_cell",
    ]
    assert names(FULL, WINDOW) == two
    assert names(FULL, WINDOW, swa_full=True) == [name for name in two if name != "swa_cells"]
    # on a GPU that has one of two buffers, its cells are no tokens either
    first, second = llama_layout(FULL, FULL, FULL, WINDOW, gpus=2).parts
    assert [d.name for d in first.pool(GIB, 100).details] == [
        "kv_bytes_per_sequence",
        "kv_cells",
        "swa_cells",
        "kv_bytes_per_cell",
    ]
    assert [d.name for d in second.pool(GIB, 100).details][3:] == ["swa_bytes_per_cell"]


@pytest.mark.parametrize(
    "memory", [256 * 2 * CELL, 256 * 2 * CELL + 1, 257 * 256 * CELL, 256 * 256 * CELL - 1]
)
def test_at_most_256_sequences_of_the_memory(memory: int) -> None:
    """256 sequences of 256 tokens, with their own cells or in shared ones."""
    own = llama_layout(FULL).pool(memory, 256).concurrency
    assert Fraction(*own[:2]) == min(256, Fraction(memory, 256 * CELL))
    shared = llama_layout(FULL, kv_unified=True).pool(memory, 256).concurrency
    assert shared[:2] == (min(256, memory // (256 * CELL)), 1)


# Formulas.


def test_formulas_name_slots_only_if_there_are_several() -> None:
    batch, context = symbol("B", 3, "sequences"), symbol("T", 1000, "tokens")
    cell = "L * 2 * n_kv_heads * d_head * bytes"
    one, two = llama_layout(SYMBOLS), llama_layout(SYMBOLS, sequences=2)
    assert text_of(one.needed(batch, context)) == f"B * ceil(T / 256) * 256 * {cell}"
    pool = one.pool(10**7, 1000)
    assert text_of(pool.tokens) == f"kv_memory // ({cell}) // 256 * 256"
    assert text_of(pool.concurrency) == "kv_memory / kv_bytes_per_sequence"
    assert (
        text_of(two.pool(10**7, 1000).tokens)
        == f"kv_memory // (sequences * {cell}) // 256 * 256 * sequences"
    )


def test_formulas_of_windows_and_states() -> None:
    windows = llama_layout(SYMBOLS, SYMBOLS_OF_WINDOWS, sequences=2).pool(10**7, 1000)
    assert text_of(windows.tokens) == (
        "(kv_memory - sequences * ceil((300 + n_ubatch) / 256) * 256 * swa_bytes_per_cell) // "
        "(sequences * kv_bytes_per_cell) // 256 * 256 * sequences"
    )
    shared = llama_layout(SYMBOLS, SYMBOLS_OF_WINDOWS, sequences=2, kv_unified=True).pool(
        10**7, 1000
    )
    assert text_of(shared.tokens) == (
        "(kv_memory - ceil((300 * sequences + n_ubatch) / 256) * 256 * swa_bytes_per_cell) // "
        "kv_bytes_per_cell // 256 * 256"
    )
    assert text_of(shared.concurrency) == "most B where kv_bytes_of_B <= kv_memory"
    # 5,120 cells of 3 * 512 B and 2,048 of 1,024 B for 5 windows of 300: 5 sequences fit, a sixth
    # does not
    concurrency = shared.concurrency
    needed = llama_layout(SYMBOLS, SYMBOLS_OF_WINDOWS, sequences=2, kv_unified=True).needed(5, 1000)
    assert concurrency[:2] == (5, 1)
    assert {s.name: s.value for s in concurrency.formula.symbols}["kv_bytes_of_B"] == needed
    concurrency = llama_layout(SYMBOLS, kv_unified=True).pool(1000, 1000).concurrency
    assert concurrency[:2] == (0, 1)
    assert {s.name: s.value for s in concurrency.formula.symbols}["kv_bytes_of_B"] == 0
    states = llama_layout(SYMBOLS, SYMBOLS_OF_STATES).pool(10**7, 1000)
    assert [
        text_of(d.quantity) for d in states.details if d.name == "state_bytes_per_sequence"
    ] == ["state_row_1 + state_row_2"]
    rolled = llama_layout(SYMBOLS, SYMBOLS_OF_STATES, speculative_tokens=2).pool(10**7, 1000)
    assert [
        text_of(d.quantity) for d in rolled.details if d.name == "state_bytes_per_sequence"
    ] == ["rows * state_row_bytes"]
    only = llama_layout(SYMBOLS_OF_STATES).pool(10**5, 1000)
    assert text_of(only.tokens) == "kv_memory * T // kv_bytes_per_sequence"


# Log lines.


def lines_of(cache_layout: CacheLayout, context: int, word: str) -> list[str]:
    return [line for line in cache_layout.pool(GIB, context).log_lines if word in line]


def test_each_device_logs_its_part_of_each_buffer() -> None:
    """3 slots of 1,024 cells; layers 0 to 5 and the output over two GPUs: four and two."""
    specs = (kv(5, 64, 128), kv(1, 64, 128, Sliding(300)))
    # a cell of one layer has 2 * 64 * 128 * 2 B = 32 KiB: 3 * 1,024 of them are 96 MiB
    two = llama_layout(*specs, sequences=3, gpus=2)
    assert lines_of(two, 1024, "KV buffer") == [
        "llama_kv_cache:      CUDA0 KV buffer size =   384.00 MiB",
        "llama_kv_cache:      CUDA1 KV buffer size =    96.00 MiB",
        "llama_kv_cache:      CUDA1 KV buffer size =    96.00 MiB",
    ]
    partly = llama_layout(*specs, sequences=3, device_memory=GIB, n_gpu_layers=4)
    assert lines_of(partly, 1024, "KV buffer") == [
        "llama_kv_cache:        CPU KV buffer size =   288.00 MiB",
        "llama_kv_cache:      CUDA0 KV buffer size =   192.00 MiB",
        "llama_kv_cache:      CUDA0 KV buffer size =    96.00 MiB",
    ]
    both = llama_layout(*specs, sequences=3, device_memory=GIB, gpus=2, n_gpu_layers=4)
    assert [line.split()[1] for line in lines_of(both, 1024, "KV buffer")] == [
        "CPU",
        "CUDA0",
        "CUDA1",
    ]
    everything = llama_layout(*specs, sequences=3, device_memory=GIB)
    assert lines_of(everything, 1024, "KV buffer") == [
        "llama_kv_cache:      CUDA0 KV buffer size =   480.00 MiB",
        "llama_kv_cache:      CUDA0 KV buffer size =    96.00 MiB",
    ]
    host = llama_layout(*specs, sequences=3, device_memory=GIB, no_kv_offload=True)
    assert lines_of(host, 1024, "KV buffer") == [
        "llama_kv_cache:        CPU KV buffer size =   480.00 MiB",
        "llama_kv_cache:        CPU KV buffer size =    96.00 MiB",
    ]
    assert lines_of(llama_layout(*specs, sequences=3), 1024, "KV buffer") == []
    # without a GPU's memory nothing is divided, whatever -ngl
    assert lines_of(llama_layout(*specs, n_gpu_layers=4), 1024, "KV buffer") == []


def test_streams_of_slots_are_logged_together() -> None:
    """3 slots have 3 streams of 256 cells, or one of 768 for 750 tokens."""
    layer = kv(1, 64, 128)
    # 32 KiB per cell: 24 MiB either way, half of it K
    tail = "  1 layers,  3/{} seqs), K (f16):   12.00 MiB, V (f16):   12.00 MiB"
    own = lines_of(llama_layout(layer, sequences=3), 250, "size")
    assert own == ["llama_kv_cache: size =   24.00 MiB (   256 cells, " + tail.format(3)]
    shared = lines_of(llama_layout(layer, sequences=3, kv_unified=True), 250, "size")
    assert shared == ["llama_kv_cache: size =   24.00 MiB (   768 cells, " + tail.format(1)]


def test_qwen4_has_cells_of_keys_and_of_averages_and_a_convolution() -> None:
    """12 layers: 2 heads of 2 x 256 elements, and a key of 128 with its pool's average; f16.

    36 states of (3 x 10,240 + 48 x 128 x 128) x 4 B, and 9 x 10,240 x 4 B of the convolution beside
    one of them
    """
    pool = llama_layout(*layer_cache_specs(load("qwen3.8-flash-next"))).pool(GIB, 4096)
    found = details(pool)
    assert (found["kv_bytes_per_cell"], found["indexer_bytes_per_cell"]) == (
        12 * 2 * 2 * 256 * 2,
        12 * 2 * 128 * 2,
    )
    assert (
        found["state_bytes_per_sequence"] == 36 * (3 * 10_240 + 48 * 128 * 128) * 4 + 9 * 10_240 * 4
    )
    assert any(
        "llama_memory_hybrid_idx: creating indexer KV cache, size = 4096 cells" in s
        for s in pool.log_lines
    )


def test_a_single_buffer_is_not_announced() -> None:
    assert lines_of(llama_layout(FULL), 100, "creating") == []
    assert len(lines_of(llama_layout(FULL, WINDOW), 100, "creating")) == 2
    indexed = llama_layout(latent(1, CacheSpec("indexer keys", 1, 128, role="indexer")))
    assert [line.split()[2] for line in lines_of(indexed, 100, "creating")] == ["main", "indexer"]


def test_a_build_before_mla_stores_k_and_v_of_every_head(ask: Ask) -> None:
    """A log of DeepSeek-R1 671B on 8 GPUs, April 2025: 5,120 MiB on each with 8 layers, 8,192
    cells.
    """
    words = [
        "fit",
        "deepseek-v3",
        "--engine",
        "llamacpp",
        "--gpu",
        "8xmi250x",
        "--weights-dtype",
        "q4_k_m",
    ]
    words += ["-c", "2048", "-b", "4", "--flash-attn", "off", "--engine-version", "b4900"]
    assert (
        "b4900 stores K and V of every head, not MLA's latents\n  tip: use --attention mha"
        in ask(*words).err
    )
    answer = ask(*words, "--attention", "mha", "--json").document
    (needed,) = (row["value"] for row in answer["results"] if row["name"] == "kv_needed")
    assert needed == 5120 * MIB == 8 * 8192 * 128 * (192 + 128) * 2
    assert llama_layout(latent(64), engine_version="ik").pool(GIB, 100)


def test_a_build_before_2026_stores_v_of_a_latent_too() -> None:
    """DeepSeek-R1 with b5614: 61 layers x 32,768 cells x 2 B x 576 elements of K, and 512 of V."""
    for build, size in (("b5614", 2196 + 1952), ("b7837", 2196)):
        layout = llama_layout(latent(61), engine_version=build)
        assert layout.needed(1, 32768) == size * MIB
        assert lines_of(layout, 32768, "size")[0].endswith(f"V (f16): {size - 2196:7.2f} MiB")


def test_the_fork_logs_a_latent_without_v() -> None:
    # 256 cells of 16 * 1,024 elements in f16: 8 MiB of K and 8 MiB of V
    (line,) = llama_layout(kv(1, 16, 1024), engine_version="ik").pool(GIB, 100).log_lines
    assert line == (
        "llama_new_context_with_model: KV self size  =   16.00 MiB, K (f16):    8.00 MiB, V "
        "(f16):    8.00 MiB"
    )
    # 64 layers of 576 elements: 18 MiB
    (line,) = llama_layout(latent(64), engine_version="ik").pool(GIB, 100).log_lines
    assert (
        line == "llama_new_context_with_model: KV self size  =   18.00 MiB, c^KV (f16):   18.00 MiB"
    )


def test_rows_of_states_are_logged_with_those_to_roll_back_to() -> None:
    """2 slots of 1 + 2 rows of 32 layers: 8,192 channels * 3 * 4 B are 96 KiB, 4,096 * 128 * 4 B
    are 2 MiB.
    """
    (line,) = lines_of(
        llama_layout(recurrent(32, 8192, 4096), sequences=2, speculative_tokens=2), 100, "recurrent"
    )
    assert line == (
        "llama_memory_recurrent: size =  402.00 MiB (     2 cells,  32 layers,  2 seqs  2 rs_seq), "
        "R (f32):   18.00 MiB, S (f32):  384.00 MiB, P (f32):    0.00 MiB"
    )


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "   0.00"),
        (5 * MIB, "   5.00"),
        (MIB * 10**6, "1000000.00"),
        (2**63 + 1, "8796093022208.00"),
    ],
)
def test_mib_are_printed_from_a_32_bit_float(size: int, text: str) -> None:
    assert mib(size) == text
    # (2^24 + 1) MiB have no float of 32 bits
    assert mib((2**24 + 1) * MIB) == "16777216.00"


# Devices.


def test_parts_of_the_host_and_of_gpus_add_up() -> None:
    whole = llama_layout(
        kv(6, 2, 64), recurrent(2, 10, 4), device_memory=GIB, n_gpu_layers=5, sequences=2
    )
    assert isinstance(whole, LlamaCppLayout)
    # 9 with the output, 5 of them on the GPU: layers 4 to 7
    (gpu,) = whole.parts
    assert whole.host
    assert [buffer.layers for buffer in gpu.buffers] == [2]
    assert [buffer.layers for buffer in whole.host.buffers] == [4]
    assert gpu.states == whole.states
    assert whole.host.states is None
    assert gpu.needed(2, 256) + whole.host.needed(2, 256) == whole.needed(2, 256)
    # each part knows the whole with its parts, whose lines it logs
    assert gpu.pool(GIB, 256).log_lines == whole.pool(GIB, 256).log_lines
    assert "on this GPU" in gpu.pool(GIB, 256).details[0].label
    assert "on this GPU" not in whole.pool(GIB, 256).details[0].label


def test_without_kv_offload_the_gpu_has_no_cache() -> None:
    whole = llama_layout(kv(6, 2, 64), device_memory=GIB, no_kv_offload=True)
    assert isinstance(whole, LlamaCppLayout)
    (gpu,) = whole.parts
    assert gpu.needed(1, 256) == 0
    assert whole.host
    assert whole.host.needed(1, 256) == whole.needed(1, 256) == 6 * 256 * CELL


def test_one_gpu_with_everything_has_no_parts() -> None:
    alone: list[dict[str, Any]] = [
        {},
        {"device_memory": GIB},
        {"device_memory": GIB, "n_gpu_layers": 7},
    ]
    for given in alone:
        assert llama_layout(kv(6, 2, 64), **given).parts == ()
    assert len(llama_layout(kv(6, 2, 64), device_memory=GIB, n_gpu_layers=6).parts) == 1
    assert len(llama_layout(kv(6, 2, 64), gpus=2).parts) == 2
    assert len(llama_layout(kv(6, 2, 64), gpus=2, device_memory=GIB).parts) == 2


# Facts, notes and errors.


@pytest.mark.parametrize(
    ("specs", "given", "facts"),
    [
        ([FULL], {}, ("build b11739", "n_seq_max 1", "K f16, V f16", "kv_unified false")),
        (
            [FULL],
            {
                "engine_version": "b9000",
                "sequences": 3,
                "kv_unified": True,
                "k": "q8_0",
                "v": "bf16",
            },
            ("build b9000", "n_seq_max 3", "K q8_0, V bf16", "kv_unified true"),
        ),
        (
            [FULL],
            {"engine_version": "ik", "kv_dtype": "fp32"},
            ("ik_llama.cpp", "n_seq_max 1", "K f32, V f32"),
        ),
        (
            [FULL, WINDOW],
            {"ubatch": 64},
            ("build b11739", "n_seq_max 1", "K f16, V f16", "n_ubatch 64", "kv_unified false"),
        ),
        (
            [FULL, WINDOW],
            {"swa_full": True},
            ("build b11739", "n_seq_max 1", "K f16, V f16", "swa_full true", "kv_unified false"),
        ),
    ],
)
def test_facts_are_the_settings_of_the_log(
    specs: list[LayerCacheSpec], given: dict[str, Any], facts: tuple[str, ...]
) -> None:
    assert llama_layout(*specs, **given).facts == facts


LATENT, WIDE = latent(1), kv(1, 4, 64)
NOTES: list[tuple[str, list[LayerCacheSpec], dict[str, Any], bool]] = [
    ("A GGUF from before llama.cpp supported MLA", [LATENT], {}, True),
    ("A GGUF from before llama.cpp supported MLA", [FULL], {}, False),
    ("This assumes -fa", [FULL], {"engine_version": "ik"}, True),
    ("This assumes -fa", [FULL], {"engine_version": "b1"}, False),
    (
        "A micro-batch is never larger than the batch, so this assumes -b 2049",
        [FULL, WINDOW],
        {"ubatch": 2049},
        True,
    ),
    ("A micro-batch is never larger", [FULL, WINDOW], {"ubatch": 2048}, False),
    ("A micro-batch is never larger", [FULL, WINDOW], {}, False),
    ("A micro-batch is never larger", [FULL], {"ubatch": 2049}, False),
    ("A micro-batch is never larger", [FULL, WINDOW], {"ubatch": 2049, "swa_full": True}, False),
    ("Without flash attention llama.cpp stores every V", [FULL, WIDE], {}, True),
    ("Without flash attention llama.cpp stores every V", [FULL, kv(1, 4, 32)], {}, False),
    ("Without flash attention llama.cpp stores every V", [FULL, LATENT], {}, False),
    ("Without flash attention llama.cpp stores every V", [LATENT], {}, False),
    ("llama.cpp puts whole layers on each GPU, as evenly as", [FULL, FULL], {"gpus": 2}, True),
    (
        "llama.cpp puts whole layers on each GPU, by --tensor-",
        [FULL],
        {"gpus": 2, "tensor_split": (1.0, 2.0)},
        True,
    ),
    ("llama.cpp puts whole layers on each GPU", [FULL], {}, False),
    ("llama.cpp puts whole layers on each GPU", [FULL], {"device_memory": GIB}, False),
    ("llama.cpp distributes whole layers over the GPUs", [FULL], {}, True),
    ("llama.cpp distributes whole layers over the GPUs", [FULL], {"device_memory": GIB}, False),
    ("llama.cpp distributes whole layers over the GPUs", [FULL], {"gpus": 2}, False),
    ("This assumes that llama.cpp's loader of this model", [FULL, WINDOW], {}, True),
    (
        "This assumes that llama.cpp's loader of this model",
        [FULL, WINDOW],
        {"swa_full": True},
        False,
    ),
    ("This assumes that llama.cpp's loader of this model", [FULL, WINDOW], {"blocks": 2}, False),
    ("This assumes that llama.cpp's loader of this model", [FULL], {}, False),
    ("Every layer has a sliding window", [WINDOW], {}, True),
    ("Every layer has a sliding window", [WINDOW], {"engine_version": "ik"}, False),
    ("Every layer has a sliding window", [WINDOW, recurrent(1, 10, 4)], {}, True),
    ("Every layer has a sliding window", [FULL], {}, False),
    ("Every layer has a sliding window", [recurrent(1, 10, 4)], {}, False),
    ("ik_llama.cpp stores the whole context", [FULL, WINDOW], {"engine_version": "ik"}, True),
    ("ik_llama.cpp stores the whole context", [FULL], {"engine_version": "ik"}, False),
    ("ik_llama.cpp stores the whole context", [FULL, WINDOW], {}, False),
]


@each(("start", "specs", "given", "present"), NOTES)
def test_notes_appear_only_where_they_apply(
    start: str, specs: list[LayerCacheSpec], given: dict[str, Any], present: bool
) -> None:
    assert any(note.startswith(start) for note in llama_layout(*specs, **given).notes) == present


@each(
    ("specs", "given", "accepted"),
    [
        ([FULL], {"tp": 1}, True),
        ([FULL], {"tp": 2}, False),
        ([FULL], {"sequences": 256}, True),
        ([FULL], {"sequences": 257}, False),
        ([FULL], {"flash_attn": "off", "k": "q8_0"}, True),
        ([FULL], {"flash_attn": "off", "v": "q8_0"}, False),
        ([FULL], {"flash_attn": "auto", "v": "q8_0"}, True),
        ([recurrent(1, 10, 4)], {"speculative_tokens": 1}, True),
        ([FULL], {"speculative_tokens": 1}, False),
        ([FULL, kv(1, 2, 64, Chunked(8192))], {}, True),
        ([FULL, kv(1, 2, 64, Chunked(8191))], {}, False),
        ([FULL, kv(1, 2, 64, Chunked(8193))], {}, False),
        ([FULL, WINDOW, kv(1, 2, 64, Sliding(301))], {}, False),
        ([WINDOW, kv(1, 2, 64, Sliding(301))], {}, True),
        ([LATENT], {"k": "q8_0", "v": "q8_0"}, True),
        ([LATENT], {"k": "q8_0"}, False),
        ([LATENT], {"v": "q8_0"}, False),
        # blocks of 32 elements, of K if K is quantized and of V if V is
        ([kv(1, 2, 80)], {"k": "q8_0"}, False),
        ([kv(1, 2, 80)], {"v": "q8_0"}, False),
        (
            [LayerCacheSpec(1, (CacheSpec("K", 2, 80, role="k"), CacheSpec("V", 2, 64, role="v")))],
            {"v": "q8_0"},
            True,
        ),
        (
            [LayerCacheSpec(1, (CacheSpec("K", 2, 80, role="k"), CacheSpec("V", 2, 64, role="v")))],
            {"k": "q8_0"},
            False,
        ),
        (
            [LayerCacheSpec(1, (CacheSpec("K", 2, 64, role="k"), CacheSpec("V", 2, 80, role="v")))],
            {"k": "q8_0"},
            True,
        ),
        (
            [LayerCacheSpec(1, (CacheSpec("K", 2, 64, role="k"), CacheSpec("V", 2, 80, role="v")))],
            {"v": "q8_0"},
            False,
        ),
        # states are in f32 whatever the cache's type
        ([FULL, recurrent(1, 10, 4)], {"kv_dtype": "q8_0"}, True),
        ([recurrent(1, 10, 4)], {"engine_version": "ik"}, False),
        ([LATENT], {"engine_version": "ik"}, True),
        (
            [latent(1, CacheSpec("indexer keys", 1, 128, role="indexer"))],
            {"engine_version": "ik"},
            False,
        ),
        ([latent(1, CacheSpec("indexer keys", 1, 128, role="indexer"))], {}, True),
    ],
)
def test_supported_combinations(
    specs: list[LayerCacheSpec], given: dict[str, Any], accepted: bool
) -> None:
    if accepted:
        assert llama_layout(*specs, **given).needed(1, 1) > 0
    else:
        assert refusal(llama_layout, *specs, **given).tip


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"flash_attn": "off", "k": "q4_0", "v": "q8_0"},
            "llama.cpp needs flash attention for V in q8_0",
        ),
        ({"flash_attn": "off", "k": "q4_0", "v": "fp8"}, "llama.cpp has no cache in fp8"),
        ({"k": "int8"}, "llama.cpp has no cache in int8"),
    ],
)
def test_errors_name_the_type(given: dict[str, Any], message: str) -> None:
    assert refusal(llama_layout, FULL, **given).message == message


def test_quantized_k_and_v_have_blocks_of_their_own_type() -> None:
    """A cell of 2 heads * 64 elements: q8_0 has 34 B per 32 elements, q4_0 18 B."""
    k = 2 * 2 * 34
    assert llama_layout(FULL, k="q8_0", v="q4_0").needed(1, 256) == 256 * (k + 2 * 2 * 18)
    assert llama_layout(FULL, k="q8_0").needed(1, 256) == 256 * (k + 2 * 64 * 2)
    both = llama_layout(FULL, FULL, WINDOW, k="q8_0", v="q4_0")
    assert isinstance(both, LlamaCppLayout)
    assert [(b.name, b.layers, b.cell, b.cell_k, b.windowed) for b in both.buffers] == [
        ("kv", 2, 2 * 208, 2 * k, False),
        ("swa", 1, 208, k, True),
    ]
    assert [b.label for b in both.buffers] == ["full attention", "sliding windows"]
    assert all(type(size) is int for b in both.buffers for size in (b.layers, b.cell, b.cell_k))
    assert llama_layout(FULL).pool(GIB, 100).details[-1].label == "one cell, all layers"
    # K of 192 elements and V of 128 in one layer are one layer of the log
    apart = llama_layout(
        LayerCacheSpec(3, (CacheSpec("K", 4, 192, role="k"), CacheSpec("V", 4, 128, role="v")))
    )
    assert isinstance(apart, LlamaCppLayout)
    assert [(b.layers, b.cell, b.cell_k) for b in apart.buffers] == [
        (3, 3 * 4 * 320 * 2, 3 * 4 * 192 * 2)
    ]


def test_states_have_the_convolutions_tokens_before_the_newest() -> None:
    """In f32: 10 channels of 3 tokens, and 4 * 128 elements, in 2 layers."""
    found = llama_layout(recurrent(2, 10, 4), kv_dtype="q8_0")
    assert isinstance(found, LlamaCppLayout)
    assert found.states == (2 * (10 * 3 + 4 * 128) * 4, 2 * 10 * 3 * 4, 2 * 4 * 128 * 4, ())


@each(
    ("slots", "kept", "windows"),
    [
        (1, 1000, 1536),  # 1,000 + 512
        (2, 1000, 2560),  # 2 x 1,000 + 512 = 2,512
        (4, 1000, 4608),  # 4 x 1,000 + 512 = 4,512
        (2, 0, 1280),  # 2 x 301 + 512 = 1,114
        (2, 4096, 8192),  # as long as the context: all cells
    ],
)
def test_ollama_keeps_the_windows_of_all_slots_and_one_batch(
    slots: int, kept: int, windows: int
) -> None:
    """Cells are padded to 256. Two slots of 4,096 tokens are 8,192 cells of the layer with full
    attention.
    """
    layout = llama_layout(FULL, WINDOW, sequences=slots, ubatch=512)
    assert isinstance(layout, LlamaCppLayout)
    assert layout.in_ollama(4096, kept) == (slots * 4096 + windows) * CELL
    assert layout.in_ollama(4096, None) is None
