"""The tensors that each kernel holds at its peak, with the arithmetic. `verify` measures them on torch."""

from __future__ import annotations

import pytest

from attncalc import Grouped, Layers, Mask, ModelSpec, Sliding, Stack, Workload, activations, load
from attncalc.attention import Attention
from attncalc.cost.kernels import Machine

CAUSAL = Mask("causal")
GPU = Machine(multiprocessors=132)


def layer(kind: Attention, d_model: int = 512, dtype: str = "fp16", mask: Mask = CAUSAL) -> ModelSpec:
    stack = Stack("s", (Layers("layers", 1, attention=kind),), d_model, mask=mask)
    return ModelSpec("m", "m", (stack,), dtype=dtype)


def peak(model: ModelSpec, workload: Workload, kernel: str, machine: Machine | None = None) -> dict[str, int]:
    """Return the bytes of each tensor held at the peak, and the peak itself under the name of its moment."""
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
    one = 8 * 64
    found = peak(layer(Grouped(8, 8, 64)), Workload.prefill(1, 1), "math")
    # q, k, v, the output in fp16; q scaled, q, k, v, the output in fp32; a softmax of 8 in fp32 and fp16
    assert found["PV"] == 4 * 2 * one + 5 * 4 * one + 8 * 6 == 14_384
    found = peak(layer(Grouped(4, 4, 64), 32, "fp32"), Workload.prefill(2, 1), "math")
    assert not {"q_copied", "k_copied"} & set(found)


def test_wide_values_are_copied_for_a_batch() -> None:
    kind = Grouped(2, 2, 8, 256)
    found = peak(layer(kind, 16), Workload.prefill(2, 200), "math")
    keys, values = 2 * 200 * 2 * 8, 2 * 200 * 2 * 256
    # the copy of V in fp32 is more than the output in fp16
    assert found["v_copied"] == 4 * values
    assert found["qkv_fp32"] == 4 * (2 * keys + values)
    assert found["PV"] == 4_089_600


@pytest.mark.parametrize("heads", [(1, 1), (8, 2)])
def test_one_head_or_shared_heads_are_not_copied(heads: tuple[int, int]) -> None:
    found = peak(layer(Grouped(*heads, 64), 64, "fp32"), Workload.prefill(2, 30), "math")
    assert not {"k_copied", "v_copied"} & set(found)


def test_efficient_repeats_keys_and_values_for_every_head() -> None:
    found = peak(layer(Grouped(8, 2, 64), dtype="fp32"), Workload.prefill(1, 100), "efficient")
    assert found["kv_repeated"] == 2 * 100 * 8 * 64 * 4
    assert found["the kernel"] == 100 * 64 * 4 * (8 + 2 + 2 + 16 + 8)


def test_efficient_sums_in_registers_up_to_128() -> None:
    found = peak(layer(Grouped(8, 8, 128)), Workload.prefill(1, 100), "efficient")
    # q, k, v, the output of 8 * 128, and y of 512
    assert found["the output projection"] == 100 * 2 * (4 * 8 * 128 + 512) == 921_600
    assert "accumulator" not in found


def test_mla_holds_its_latent_and_the_input_of_its_keys() -> None:
    found = peak(load("deepseek-v3"), Workload.prefill(2, 100), "efficient")
    # of 200 tokens in bf16: the latent of 512 and 64, and 128 heads of 128 that the rotary part is joined to
    assert found["latent"] == 200 * 2 * (512 + 64 + 128 * 128)
    assert found["accumulator"] == 200 * 128 * 128 * 4  # d_qk 192 is above 128


@pytest.mark.parametrize(
    ("kind", "batch", "tokens", "dtype", "q_rows", "keys"),
    [
        (Grouped(8, 8, 64), 2, 768, "fp16", 256, 512),
        (Grouped(1, 1, 64), 1, 200, "fp32", 64, 200),
        (Grouped(1, 1, 64), 1, 100, "fp32", 32, 100),
    ],
)
def test_flash_on_a_cpu_has_one_block_per_thread(
    kind: Grouped, batch: int, tokens: int, dtype: str, q_rows: int, keys: int
) -> None:
    """FlashAttentionKernel.cpp: 256 queries per block from 768 on, 64 from 192 on, else 32; 512 keys."""
    found = peak(layer(kind, 8, dtype), Workload.prefill(batch, tokens), "flash", Machine(threads=2))
    half = 2 * q_rows * keys if dtype == "fp16" else 0
    assert found["blocks"] == 2 * (4 * (q_rows * keys + 2 * q_rows + q_rows * 64) + half)


@pytest.mark.parametrize(
    ("kind", "batch", "tokens", "splits", "width"),
    [
        # a head and 12 blocks of 64 queries of 2 sequences: 24 tiles for 264 slots; 3 blocks of 256 keys
        (Grouped(1, 1, 64), 2, 768, 3, 64),
        # 8 times as many tiles: 192 for 264 slots, and 2 parts would need a second, half empty, wave
        (Grouped(8, 8, 64), 2, 768, 1, 64),
        # 4 tiles a head and sequence: 16; 1 block of 256 keys cannot be split
        (Grouped(2, 2, 8), 2, 200, 1, 32),
        # wide heads have blocks of 128 keys: 64 tiles, 2 blocks
        (Grouped(8, 2, 128, span=Sliding(16)), 2, 200, 2, 128),
        # of 64 keys above 128
        (Grouped(2, 2, 192), 2, 200, 4, 192),
    ],
)
def test_flash_on_a_gpu_splits_keys(kind: Grouped, batch: int, tokens: int, splits: int, width: int) -> None:
    """num_splits_heuristic, by hand: the smallest number of parts within 85 % of the best share of busy slots."""
    found = peak(layer(kind, 8), Workload.prefill(batch, tokens), "flash", GPU)
    partial = splits * batch * kind.n_heads * tokens * (width + 1) * 4
    assert found.get("partial", 0) == (partial if splits > 1 else 0)


def test_mlas_decode_step_is_split_too() -> None:
    found = peak(load("deepseek-v3"), Workload.decode(2, 200), "flash", GPU)
    # 128 query heads for one KV head fill 2 tiles of 64 rows a sequence; 200 keys are 4 blocks of 64
    assert found["partial"] == 4 * 2 * 128 * (576 + 1) * 4 == 2_363_392
    # one token has nothing to split
    assert "partial" not in peak(layer(Grouped(1, 1, 64), 8), Workload.prefill(1, 1), "flash", GPU)


def test_cross_attention_scores_have_the_sources_width() -> None:
    encoder, decoder, across = activations(load("t5-base"), Workload.prefill(1, 5, source=21))
    assert (encoder.score_shape, decoder.score_shape) == ((1, 12, 21, 21), (1, 12, 5, 5))
    assert across.score_shape == (1, 12, 5, 21)


def test_a_mask_option_applies_only_to_the_decoder() -> None:
    asked = Workload.prefill(1, 5, source=21, mask=Mask("bidirectional"))
    found = [{t.name for t in one.peaks["math"].tensors} for one in activations(load("t5-base"), asked)]
    assert not any("mask" in name for names in found for name in names)
    causal = Workload.prefill(1, 5, source=21)
    assert "mask_fp32" in {t.name for t in activations(load("t5-base"), causal)[1].peaks["math"].tensors}
    padded = Workload.prefill(lengths=(30, 9), source=21)
    alive = [{t.name for t in one.peaks["math"].tensors} for one in activations(load("t5-base"), padded)]
    assert ["mask" in names for names in alive] == [False, True, False]


def test_a_bidirectional_window_needs_a_mask_matrix() -> None:
    kind = Grouped(8, 8, 64, span=Sliding(16))
    assert peak(layer(kind, mask=Mask("bidirectional")), Workload.prefill(1, 30), "math")["mask"] == 30 * 30


def test_cross_attention_after_a_past_computes_no_keys() -> None:
    later = activations(load("t5-base"), Workload.prefill(1, 30, past=10, source=21))
    across = next(one for one in later if one.attention == "cross")
    assert "k" not in {t.name for t in across.peaks["flash"].tensors}


def test_layers_have_unique_names() -> None:
    found = activations(load("t5-base"), Workload.prefill(1, 5, source=21))
    assert len({one.name for one in found}) == 3
