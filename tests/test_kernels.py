"""The tensors that each kernel holds at its peak, with the arithmetic. `verify` measures them on
torch.
"""

import math

import pytest

from attncalc import Grouped, Layers, Mask, ModelSpec, Sliding, Stack, Workload, activations, load
from attncalc.attention import Attention
from attncalc.cost.kernels import Machine

CAUSAL = Mask("causal")
GPU = Machine(multiprocessors=132)


def layer(
    kind: Attention, d_model: int = 512, dtype: str = "fp16", mask: Mask = CAUSAL
) -> ModelSpec:
    stack = Stack("s", (Layers("layers", 1, attention=kind),), d_model, mask=mask)
    return ModelSpec("m", "m", (stack,), dtype=dtype)


def peak(
    model: ModelSpec, workload: Workload, kernel: str, machine: Machine | None = None
) -> dict[str, int]:
    """Return the bytes of each tensor held at the peak, and the peak itself under the name of its
    moment.
    """
    moment = activations(model, workload, machine)[0].peaks[kernel]
    sizes = {t.name: int(t.size) for t in moment.tensors if t.size}
    assert sum(sizes.values()) == moment.size
    return {moment.name: moment.size, **sizes}


def test_math_in_half_precision_peaks_at_pv() -> None:
    rows = 100 * 8 * 64  # elements of q; k and v are as many
    pairs = 8 * 100 * 100
    assert peak(layer(Grouped(8, 8, 64)), Workload.prefill(1, 100), "math") == {
        "PV": 1_953_600,
        "q": 2 * rows,
        "k": 2 * rows,
        "v": 2 * rows,
        "q_scaled": 4 * rows,
        "qkv_fp32": 3 * 4 * rows,
        "mask_fp32": 4 * 100 * 100,
        "softmax": 4 * pairs,
        "softmax_half": 2 * pairs,
        "out": 4 * rows,
        "out_half": 2 * rows,
    }


def test_one_token_needs_no_mask_and_no_copies() -> None:
    elements = 8 * 64
    sizes = peak(layer(Grouped(8, 8, 64)), Workload.prefill(1, 1), "math")
    # q, k, v, the output in fp16; q scaled, q, k, v, the output in fp32; a softmax of 8 in fp32 and
    # fp16
    assert sizes["PV"] == 4 * 2 * elements + 5 * 4 * elements + 8 * 6 == 14_384
    sizes = peak(layer(Grouped(4, 4, 64), 32, "fp32"), Workload.prefill(2, 1), "math")
    assert not {"q_copied", "k_copied"} & set(sizes)


def test_wide_values_are_copied_for_a_batch() -> None:
    kind = Grouped(2, 2, 8, 256)
    sizes = peak(layer(kind, 16), Workload.prefill(2, 200), "math")
    keys, values = 2 * 200 * 2 * 8, 2 * 200 * 2 * 256
    # the copy of V in fp32 is more than the output in fp16
    assert sizes["v_copied"] == 4 * values
    assert sizes["qkv_fp32"] == 4 * (2 * keys + values)
    assert sizes["PV"] == 4_089_600


@pytest.mark.parametrize(
    ("workload", "copies"),
    [
        (Workload.prefill(2, 2), {"q_copied", "k_copied"}),
        (Workload.decode(2, 2), {"k_copied"}),  # one query is contiguous
        (Workload.decode(2, 1), set()),
        (Workload.prefill(1, 2), set()),
    ],
)
def test_a_batch_of_two_tokens_is_copied_for_qk(workload: Workload, copies: set[str]) -> None:
    (one,) = activations(layer(Grouped(4, 4, 64), 32, "fp32"), workload)
    qk = next(moment for moment in one.moments["math"] if moment.name == "QK")
    assert {t.name for t in qk.tensors if t.name.endswith("_copied")} == copies


@pytest.mark.parametrize(
    ("n_heads", "workload", "elements"),
    [
        (2, Workload.prefill(2, 2), 2 * 2 * 2 * 64),
        (2, Workload.decode(2, 2), 2 * 2 * 2 * 64),  # the values of both tokens for one query
        (1, Workload.prefill(2, 2), 0),
        (2, Workload.prefill(1, 2), 0),
        (2, Workload.decode(2, 1), 0),
    ],
)
def test_two_values_of_two_heads_and_sequences_are_copied_for_pv(
    n_heads: int, workload: Workload, elements: int
) -> None:
    (one,) = activations(layer(Grouped(n_heads, n_heads, 64), 32, "fp32"), workload)
    pv = next(moment for moment in one.moments["math"] if moment.name == "PV")
    assert sum(t.size for t in pv.tensors if t.name == "v_copied") == 4 * elements


@pytest.mark.parametrize("heads", [(1, 1), (8, 2)])
def test_one_head_or_shared_heads_are_not_copied(heads: tuple[int, int]) -> None:
    sizes = peak(layer(Grouped(*heads, 64), 64, "fp32"), Workload.prefill(2, 30), "math")
    assert not {"k_copied", "v_copied"} & set(sizes)


def test_efficient_repeats_keys_and_values_for_every_head() -> None:
    sizes = peak(layer(Grouped(8, 2, 64), dtype="fp32"), Workload.prefill(1, 100), "efficient")
    assert sizes["kv_repeated"] == 2 * 100 * 8 * 64 * 4
    assert sizes["the kernel"] == 100 * 64 * 4 * (8 + 2 + 2 + 16 + 8)


def test_efficient_sums_in_registers_up_to_128() -> None:
    sizes = peak(layer(Grouped(8, 8, 128)), Workload.prefill(1, 100), "efficient")
    # q, k, v, the output of 8 * 128, and y of 512
    assert sizes["the output projection"] == 100 * 2 * (4 * 8 * 128 + 512) == 921_600
    assert "accumulator" not in sizes


def test_mla_holds_its_latent_and_the_input_of_its_keys() -> None:
    sizes = peak(load("deepseek-v3"), Workload.prefill(2, 100), "efficient")
    # of 200 tokens in bf16: the latent of 512 and 64, and 128 heads of 128 that the rotary part is
    # joined to
    assert sizes["latent"] == 200 * 2 * (512 + 64 + 128 * 128)
    assert sizes["accumulator"] == 200 * 128 * 128 * 4  # d_qk 192 is above 128


@pytest.mark.parametrize(
    ("kind", "batch", "tokens", "dtype", "q_rows", "keys"),
    [
        (Grouped(8, 8, 64), 2, 768, "fp16", 256, 512),
        (Grouped(8, 8, 64), 2, 1000, "fp16", 256, 512),
        (Grouped(8, 8, 64), 2, 767, "fp16", 64, 512),
        (Grouped(1, 1, 64), 1, 200, "fp32", 64, 200),
        (Grouped(1, 1, 64), 1, 192, "fp32", 64, 192),
        (Grouped(1, 1, 64), 1, 191, "fp32", 32, 191),
        (Grouped(1, 1, 64), 1, 100, "fp32", 32, 100),
    ],
)
def test_flash_on_a_cpu_has_one_block_per_thread(
    kind: Grouped, batch: int, tokens: int, dtype: str, q_rows: int, keys: int
) -> None:
    """FlashAttentionKernel.cpp: 256 queries per block from 768 on, 64 from 192 on, else 32; 512
    keys.
    """
    sizes = peak(
        layer(kind, 8, dtype), Workload.prefill(batch, tokens), "flash", Machine(threads=2)
    )
    half = 2 * q_rows * keys if dtype == "fp16" else 0
    assert sizes["blocks"] == 2 * (4 * (q_rows * keys + 2 * q_rows + q_rows * 64) + half)


@pytest.mark.parametrize(
    ("kind", "batch", "tokens", "splits", "width"),
    [
        # a head and 12 blocks of 64 queries of 2 sequences: 24 tiles for 264 slots; 3 blocks of 256
        # keys
        (Grouped(1, 1, 64), 2, 768, 3, 64),
        # 8 times as many tiles: 192 for 264 slots, and 2 parts would need a second, half empty,
        # wave
        (Grouped(8, 8, 64), 2, 768, 1, 64),
        # 4 tiles per head and sequence: 16; 1 block of 256 keys cannot be split
        (Grouped(2, 2, 8), 2, 200, 1, 32),
        # wide heads have blocks of 128 keys: 64 tiles, 2 blocks
        (Grouped(8, 2, 128, span=Sliding(16)), 2, 200, 2, 128),
        # of 64 keys above 128
        (Grouped(2, 2, 192), 2, 200, 4, 192),
        # a width of 160 is rounded up to a multiple of 64 there, and one of 72 to a multiple of 32
        (Grouped(2, 2, 160), 2, 200, 4, 192),
        (Grouped(2, 2, 72), 2, 200, 2, 96),
        # heads of 65 and 129 are padded to the next widths: 96 with blocks of 128 keys, 192 with
        # blocks of 64
        (Grouped(2, 2, 65), 2, 200, 2, 96),
        (Grouped(2, 2, 129), 2, 200, 4, 192),
    ],
)
def test_flash_on_a_gpu_splits_keys(
    kind: Grouped, batch: int, tokens: int, splits: int, width: int
) -> None:
    """num_splits_heuristic, by hand: the smallest number of parts within 85 % of the best share of
    busy slots.
    """
    sizes = peak(layer(kind, 8), Workload.prefill(batch, tokens), "flash", GPU)
    partial = splits * batch * kind.n_heads * tokens * (width + 1) * 4
    assert sizes.get("partial", 0) == (partial if splits > 1 else 0)


def buffer(kind: Grouped, workload: Workload, kernel: str, name: str, dtype: str = "fp16") -> int:
    """Return the bytes of a kernel's own buffer; 0 if it has none."""
    (one,) = activations(layer(kind, 8, dtype), workload, GPU)
    return next((int(t.size) for m in one.moments[kernel] for t in m.tensors if t.name == name), 0)


@pytest.mark.parametrize(
    ("d_head", "context", "splits"),
    [
        (64, 256, 1),
        (64, 257, 2),
        (72, 128, 1),
        (72, 129, 2),
        (128, 128, 1),
        (128, 129, 2),
        (136, 64, 1),
        (136, 65, 2),
    ],
)
def test_keys_are_split_by_blocks_of_256_128_or_64(d_head: int, context: int, splits: int) -> None:
    width = {64: 64, 72: 96, 128: 128, 136: 192}[d_head]
    partial = buffer(Grouped(1, 1, d_head), Workload.decode(1, context), "flash", "partial")
    assert partial == (splits * (width + 1) * 4 if splits > 1 else 0)


@pytest.mark.parametrize(
    ("workload", "queries", "splits"),
    [
        # 32 heads of 64 queries are 32 tiles for 264 slots: 8 of 16 parts fill 256 of them
        (Workload.prefill(1, 4096, past=4032), 64, 8),
        # in a decode step the 32 query heads of the one KV head are one tile: 16 parts
        (Workload.decode(1, 4096), 1, 16),
    ],
)
def test_a_decode_step_takes_query_heads_as_queries(
    workload: Workload, queries: int, splits: int
) -> None:
    assert (
        buffer(Grouped(32, 1, 64), workload, "flash", "partial")
        == splits * 32 * queries * (64 + 1) * 4
    )


def num_splits_heuristic(tiles: int, slots: int, blocks: int, max_splits: int) -> int:
    """FlashAttention 2's function of this name (csrc/flash_attn/flash_api.cpp), line by line."""
    if tiles >= 0.8 * slots:
        return 1
    max_splits = min(max_splits, slots, blocks)
    efficiency = []
    for splits in range(1, max_splits + 1):
        eligible = splits == 1 or math.ceil(blocks / splits) != math.ceil(blocks / (splits - 1))
        waves = tiles * splits / slots
        efficiency.append(waves / math.ceil(waves) if eligible else 0.0)
    return 1 + next(
        i for i, value in enumerate(efficiency) if value >= 0.85 * max(efficiency) and value
    )


@pytest.mark.parametrize("multiprocessors", [5, 10, 108, 132, 148])
def test_keys_are_split_as_flash_attention_splits_them(multiprocessors: int) -> None:
    """One query per sequence and KV head is one tile; every 256 of its keys are a block. A GPU has
    2 slots per SM.
    """
    for batch in (1, 2, 3, 7, 8, 16, 40, 105, 106, 172, 173, 211, 212):
        for blocks in (1, 2, 3, 7, 16, 100, 127, 128, 129, 130, 300):
            workload, machine = (
                Workload.decode(batch, 256 * blocks),
                Machine(multiprocessors=multiprocessors),
            )
            (one,) = activations(layer(Grouped(1, 1, 64), 8), workload, machine)
            partial = next(
                (int(t.size) for t in one.moments["flash"][0].tensors if t.name == "partial"), 0
            )
            splits = num_splits_heuristic(batch, 2 * multiprocessors, blocks, 128)
            assert partial == (splits * batch * (64 + 1) * 4 if splits > 1 else 0), (batch, blocks)


@pytest.mark.parametrize(("queries", "tiles"), [(64, 1), (65, 2), (128, 2), (129, 3)])
def test_a_tile_has_64_queries(queries: int, tiles: int) -> None:
    """On a GPU with 2 slots, 1 tile is split over both, and 2 tiles fill them."""
    workload = Workload.prefill(1, 4096, past=4096 - queries)
    (one,) = activations(layer(Grouped(1, 1, 64), 8), workload, Machine(multiprocessors=1))
    assert ("partial" in {t.name for t in one.moments["flash"][0].tensors}) == (tiles < 2)


@pytest.mark.parametrize(
    ("d_head", "dtype", "held"),
    [(64, "fp16", 0), (128, "fp16", 0), (129, "fp16", 1), (192, "fp16", 1), (192, "fp32", 0)],
)
def test_efficient_has_an_accumulator_above_128(d_head: int, dtype: str, held: int) -> None:
    accumulator = buffer(
        Grouped(2, 2, d_head), Workload.prefill(1, 30), "efficient", "accumulator", dtype
    )
    assert accumulator == held * 30 * 2 * d_head * 4


def test_a_gate_as_wide_as_the_output_is_no_moment_of_its_own() -> None:
    (one,) = activations(layer(Grouped(8, 8, 64, gate=True), 512), Workload.prefill(1, 30))
    assert {"the output projection"} == {m.name for m in one.moments["flash"]} - {"the kernel"}


def test_flash_splits_the_keys_of_mlas_decode_step() -> None:
    sizes = peak(load("deepseek-v3"), Workload.decode(2, 200), "flash", GPU)
    # 128 query heads for one KV head fill 2 tiles of 64 rows per sequence; 200 keys are 4 blocks of
    # 64
    assert sizes["partial"] == 4 * 2 * 128 * (576 + 1) * 4 == 2_363_392
    # one token has nothing to split
    assert "partial" not in peak(layer(Grouped(1, 1, 64), 8), Workload.prefill(1, 1), "flash", GPU)


def test_flash_on_a_gpu_pads_heads_to_a_multiple_of_8() -> None:
    """torch's pad_last_dim: copies of q, k and v with heads of 88, and an output of as many, of
    which 84 are read.
    """
    sizes = peak(layer(Grouped(8, 2, 84)), Workload.prefill(1, 100), "flash")
    assert sizes["qk_padded"] == 100 * (8 + 2) * 88 * 2
    assert sizes["v_padded"] == 100 * 2 * 88 * 2
    assert sizes["out_padding"] == 100 * 8 * 4 * 2
    logsumexp = 8 * 100 * 4
    assert sizes["the kernel"] == 100 * 2 * ((8 + 2 + 2) * 84 + (8 + 2 + 2 + 8) * 88) + logsumexp


def test_flash_on_a_cpu_pads_no_heads() -> None:
    sizes = peak(layer(Grouped(8, 2, 84)), Workload.prefill(1, 100), "flash", Machine(threads=2))
    assert not {"qk_padded", "v_padded", "out_padding"} & set(sizes)


def test_efficient_pads_the_rows_of_its_bias_to_a_multiple_of_8() -> None:
    """torch's pad_bias: a copy with 104 columns for 100 keys; the unpadded bias is freed before the
    kernel runs.
    """
    kind = Grouped(2, 2, 8, span=Sliding(16))
    sizes = peak(layer(kind, 8), Workload.prefill(1, 100), "efficient")
    q_k_v, mask = 3 * 100 * 2 * 8 * 2, 100 * 100
    assert sizes["padding the bias"] == q_k_v + mask + 100 * 100 * 2 + 100 * 104 * 2
    # of few queries with wide heads the kernel is the peak: only the padded bias is left, and the
    # fp32 output is there
    wide = peak(
        layer(Grouped(8, 8, 256, span=Sliding(16)), 8), Workload.prefill(1, 30), "efficient"
    )
    rows = 30 * 8 * 256
    assert wide["the kernel"] == 3 * 2 * rows + 30 * 30 + 30 * 32 * 2 + 2 * rows + 4 * rows
    assert "bias" not in wide


def test_a_bias_with_aligned_rows_is_not_padded() -> None:
    kind = Grouped(2, 2, 8, span=Sliding(16))
    sizes = peak(layer(kind, 8), Workload.prefill(1, 104), "efficient")
    assert sizes["bias"] == 104 * 104 * 2
    assert "bias_padded" not in sizes


def test_cudnn_takes_a_bias_with_any_rows() -> None:
    kind = Grouped(2, 2, 8, span=Sliding(16))
    sizes = peak(layer(kind, 8), Workload.prefill(1, 101), "cudnn")
    assert sizes["bias"] == 101 * 101 * 2
    assert "bias_padded" not in sizes


def test_flash_splits_no_keys_on_an_unknown_machine() -> None:
    """One tile for 2 slots per multiprocessor would be split even on a GPU with one of them."""
    (one,) = activations(layer(Grouped(1, 1, 64), 8), Workload.decode(1, 4096))
    assert "partial" not in {t.name for moment in one.moments["flash"] for t in moment.tensors}
    assert one.buffers["flash"] == 0


def test_only_a_kernels_own_buffers_are_inside_it() -> None:
    """torch's dispatcher sees what operations return, also flash's logsumexp, but not what they
    free again.
    """

    def inside(model: ModelSpec, workload: Workload, machine: Machine) -> dict[str, set[str]]:
        peaks = activations(model, workload, machine)[0].peaks
        return {
            kernel: {t.name for t in moment.tensors if t.inside} for kernel, moment in peaks.items()
        }

    wide = layer(Grouped(2, 2, 192), 8)
    on_a_gpu = inside(wide, Workload.prefill(2, 200), GPU)
    assert on_a_gpu == {
        "math": set(),
        "flash": {"partial"},
        "efficient": {"accumulator"},
        "cudnn": set(),
    }
    assert inside(wide, Workload.prefill(2, 200), Machine(threads=2))["flash"] == {"blocks"}


def test_a_kernels_buffers_are_the_most_that_it_allocates_inside() -> None:
    wide = layer(Grouped(2, 2, 192), 8)
    (on_a_cpu,) = activations(wide, Workload.prefill(2, 200), Machine(threads=2))
    # of each thread, in fp32: 64 x 200 scores, 2 x 64 sums and maxima, an output of 64 x 192; the
    # scores in fp16 too
    blocks = 2 * (4 * (64 * 200 + 2 * 64 + 64 * 192) + 2 * 64 * 200)
    accumulator = 2 * 200 * 2 * 192 * 4
    assert on_a_cpu.buffers == {"math": 0, "flash": blocks, "efficient": accumulator, "cudnn": 0}
    for kernel, moment in on_a_cpu.tensor_peaks.items():
        assert moment.size <= on_a_cpu.peaks[kernel].size


def test_cross_attention_scores_have_the_sources_width() -> None:
    encoder, decoder, cross = activations(load("t5-base"), Workload.prefill(1, 5, source=21))
    assert (encoder.score_shape, decoder.score_shape) == ((1, 12, 21, 21), (1, 12, 5, 5))
    assert cross.score_shape == (1, 12, 5, 21)


def test_a_mask_option_applies_only_to_the_decoder() -> None:
    def tensors(workload: Workload) -> list[set[str]]:
        """Return the names of the tensors that each layer holds at the peak: encoder, decoder,
        cross-attention.
        """
        return [
            {t.name for t in layer.peaks["math"].tensors}
            for layer in activations(load("t5-base"), workload)
        ]

    bidirectional = tensors(Workload.prefill(1, 5, source=21, mask=Mask("bidirectional")))
    assert not any("mask" in name for names in bidirectional for name in names)
    assert "mask_fp32" in tensors(Workload.prefill(1, 5, source=21))[1]
    padded = tensors(Workload.prefill(lengths=(30, 9), source=21))
    assert ["mask" in names for names in padded] == [False, True, False]


def test_a_bidirectional_window_needs_a_mask_matrix() -> None:
    kind = Grouped(8, 8, 64, span=Sliding(16))
    assert (
        peak(layer(kind, mask=Mask("bidirectional")), Workload.prefill(1, 30), "math")["mask"]
        == 30 * 30
    )


def test_cross_attention_after_a_past_computes_no_keys() -> None:
    layers = activations(load("t5-base"), Workload.prefill(1, 30, past=10, source=21))
    cross = next(layer for layer in layers if layer.attention == "cross")
    assert "k" not in {t.name for t in cross.peaks["flash"].tensors}
    assert "the projections" not in {moment.name for moment in cross.moments["flash"]}


def test_layers_have_unique_names() -> None:
    layers = activations(load("t5-base"), Workload.prefill(1, 5, source=21))
    assert len({layer.name for layer in layers}) == 3


def test_a_gate_per_head_is_as_wide_as_the_heads() -> None:
    """8 heads x 64 and d_model 64: a full gate of 512 per token is above the output y, and one of 8
    is not.
    """
    full = peak(layer(Grouped(8, 8, 64, gate=True), 64), Workload.prefill(1, 100), "flash")
    per_head = peak(layer(Grouped(8, 8, 64, gate="head"), 64), Workload.prefill(1, 100), "flash")
    assert full["the gate"] - per_head["the output projection"] == 100 * 2 * (512 - 64)
