"""Activation memory, compared with the peaks that torch's profiler measured."""

import pytest
from asking import Ask
from tables import each

from attncalc import Grouped, Layers, Mask, ModelSpec, Stack, Workload, activations, load
from attncalc.cost.activations import LayerActivations
from attncalc.cost.kernels import Machine

# The peak beyond the weights and the input of one layer, in bytes: d_model 512, 8 query heads of
# 64, batch 1, S = T. Measured with torch 2.13.0 on a CPU from the profiler's memory events under
# torch.no_grad(), with F.scaled_dot_product_attention under sdpa_kernel(MATH) and
# (FLASH_ATTENTION).
MEASURED = [
    # kernel, dtype, KV heads, causal, at 256, 512 and 1,024 tokens
    ("math", "fp32", 8, True, (7_079_940, 24_121_348, 88_088_580)),
    ("math", "fp32", 8, False, (6_817_796, 23_072_772, 83_894_276)),
    ("math", "fp32", 2, True, (7_342_084, 24_645_636, 89_137_156)),
    ("math", "fp32", 2, False, (7_079_940, 23_597_060, 84_942_852)),
    ("math", "fp32", 1, True, (7_211_012, 24_383_492, 88_612_868)),
    ("math", "bf16", 8, True, (7_866_372, 25_694_212, 91_234_308)),
    ("math", "bf16", 2, False, (7_473_156, 24_383_492, 86_515_716)),
    ("math", "fp16", 1, True, (7_538_692, 25_038_852, 89_923_588)),
    ("flash", "fp32", 8, True, (2_621_440, 5_242_880, 10_485_760)),
    ("flash", "fp32", 2, False, (1_835_008, 3_670_016, 7_340_032)),
    ("flash", "bf16", 1, True, (851_968, 1_703_936, 3_407_872)),
]


def layer(kv_heads: int, dtype: str, causal: bool, workload: Workload) -> LayerActivations:
    mask = Mask("causal" if causal else "bidirectional")
    stack = Stack("s", (Layers("layers", 1, attention=Grouped(8, kv_heads, 64)),), 512, mask=mask)
    return activations(ModelSpec("m", "m", (stack,), dtype=dtype), workload)[0]


@each(("kernel", "dtype", "kv_heads", "causal", "peaks"), MEASURED)
def test_the_peak_equals_the_profilers(
    kernel: str, dtype: str, kv_heads: int, causal: bool, peaks: tuple[int, ...]
) -> None:
    for context, measured in zip((256, 512, 1024), peaks, strict=True):
        moment = layer(kv_heads, dtype, causal, Workload.prefill(1, context)).peaks[kernel]
        assert moment.size == measured == int(moment.total)


def test_only_math_holds_a_score_matrix() -> None:
    activation = layer(8, "fp16", True, Workload.prefill(1, 4096))
    names = {
        kernel: {t.name for t in moment.tensors if t.size}
        for kernel, moment in activation.peaks.items()
    }
    assert "scores" in names["math"]
    for kernel in ("flash", "efficient", "cudnn"):
        assert not {"scores", "softmax"} & names[kernel]


def test_flash_grows_with_the_tokens_and_math_with_their_square() -> None:
    small, large = (layer(8, "fp16", True, Workload.prefill(1, n)) for n in (4096, 8192))
    assert large.peaks["flash"].size == 2 * small.peaks["flash"].size
    assert 3.9 < large.peaks["math"].size / small.peaks["math"].size < 4.0


# Of a preset's layer at 200 tokens, measured as above on 2 threads; the phase, the batch, the
# group.
PRESETS = [
    # a window's mask, as a bias in bf16
    ("gpt-oss-20b", "prefill", 2, "bf16", 0, "math", 78_174_404),
    # beside the output: the mask, one byte per pair
    ("gpt-oss-20b", "prefill", 1, "fp32", 0, "flash", 9_716_800),
    ("gpt-oss-20b", "decode", 2, "bf16", 0, "math", 13_778_944),  # 128 keys are read, not 200
    ("gpt-oss-20b", "decode", 2, "bf16", 0, "flash", 44_288),  # K and V are in the cache
    ("gpt2", "decode", 1, "fp32", 0, "flash", 15_360),  # but a fused projection keeps them
    ("transformer-base", "decode", 1, "fp32", 1, "flash", 6_256),  # two threads' blocks of scores
    ("transformer-base", "decode", 2, "bf16", 1, "flash", 7_088),
    # V is a view of the output of W_kv_b
    ("deepseek-v3", "prefill", 1, "fp32", 0, "math", 131_923_204),
    ("deepseek-v3", "decode", 1, "fp32", 0, "math", 171_085_824),
]


@pytest.mark.parametrize(
    ("name", "phase", "batch", "dtype", "group", "kernel", "measured"), PRESETS
)
def test_the_peak_of_a_presets_layer_equals_the_profilers(
    name: str, phase: str, batch: int, dtype: str, group: int, kernel: str, measured: int
) -> None:
    model = load(name)
    make = Workload.prefill if phase == "prefill" else Workload.decode
    workload = make(batch, 200, dtype=dtype, source=213 if model.encoder else None)
    layers = activations(model, workload, Machine(threads=2))
    assert layers[0 if phase == "decode" else group].peaks[kernel].size == measured


def test_a_decode_step_reads_only_the_window() -> None:
    local, full = activations(load("gemma3-27b"), Workload.decode(1, 100_000))
    assert local.score_shape == (1, 32, 1, 1024)
    assert full.score_shape == (1, 32, 1, 100_000)


def test_flash_splits_the_keys_to_fill_the_gpu() -> None:
    """FlashAttention's heuristic on 132 multiprocessors: 264 slots for 8 KV heads and 32 blocks of
    128 keys.

    16 parts fill 128 of 264 slots (48 %), 32 parts 256 (97 %): 32 is the smallest number above 85 %
    of the best.
    """
    model, step = load("llama3-8b"), Workload.decode(1, 4096)
    (one_sequence,) = activations(model, step, Machine(multiprocessors=132))
    sizes = {t.name: int(t.size) for t in one_sequence.peaks["flash"].tensors}
    # parts * heads * (d_head and a logsumexp) * fp32
    assert sizes["partial"] == 32 * 32 * (128 + 1) * 4
    (many_sequences,) = activations(model, Workload.decode(64, 4096), Machine(multiprocessors=132))
    # 64 * 8 tiles fill it
    assert "partial" not in {t.name for t in many_sequences.peaks["flash"].tensors}


def test_efficient_sums_wide_values_in_fp32() -> None:
    moment = activations(load("gemma-2b"), Workload.prefill(1, 512, dtype="bf16"))[0].peaks[
        "efficient"
    ]
    # 512 tokens * 8 heads of 256 * 4 B: above a width of 128 they do not fit in registers
    assert {t.name: int(t.size) for t in moment.tensors}["accumulator"] == 512 * 8 * 256 * 4


def test_a_gate_is_held_beside_the_output() -> None:
    def peak(gate: bool) -> int:
        heads = Layers("layers", 1, attention=Grouped(8, 8, 64, gate=gate))
        model = ModelSpec("m", "m", (Stack("s", (heads,), 128),), dtype="fp16")
        return activations(model, Workload.prefill(1, 100))[0].peaks["cudnn"].size

    # q, k, v, the output and the gate are 8 * 64 * 2 B per token; y is 128 * 2 B
    assert peak(True) == 100 * 5 * 1024
    assert peak(False) == 100 * (4 * 1024 + 256)


def test_new_tokens_after_a_past_need_a_mask() -> None:
    """The causal flag means the upper left corner; 100 new of 300 tokens are in the lower one."""
    moment = layer(8, "fp16", True, Workload.prefill(1, 300, past=200)).peaks["math"]
    sizes = {t.name: int(t.size) for t in moment.tensors}
    assert (sizes["mask"], sizes["bias"]) == (100 * 300, 2 * 100 * 300)


def test_a_decode_step_writes_its_keys_into_the_cache() -> None:
    moment = layer(2, "fp16", True, Workload.decode(1, 4096)).peaks["flash"]
    # one token: 8 heads * 64 * 2 B of queries and of output, 512 * 2 B of y
    assert {t.name: int(t.size) for t in moment.tensors if t.size} == {
        "q": 1024,
        "out": 1024,
        "y": 1024,
    }


def test_mlas_decode_reads_the_latent_as_one_head() -> None:
    activation = activations(load("deepseek-v3"), Workload.decode(1, 4096))[0]
    sizes = {t.name: int(t.size) for t in activation.peaks["flash"].tensors}
    # 128 heads of 512 + 64 queries, of 512 outputs, fp32 logsumexps; the new latent is in the cache
    assert sizes == {"q": 128 * 576 * 2, "out": 128 * 512 * 2, "y": 7168 * 2}


def test_a_window_is_a_mask_for_efficient_but_not_for_flash() -> None:
    activation = activations(load("mistral-7b-v0.1"), Workload.prefill(1, 8192))[0]
    sizes = {
        kernel: {t.name: int(t.size) for t in moment.tensors}
        for kernel, moment in activation.peaks.items()
    }
    assert "mask" not in sizes["flash"]
    # one byte per pair, and a bias of 2 B per pair
    assert (sizes["efficient"]["mask"], sizes["efficient"]["bias"]) == (8192**2, 2 * 8192**2)
    assert sizes["math"]["mask"] == 8192**2


def test_a_padded_batch_has_one_mask_per_sequence() -> None:
    activation = activations(load("llama2-7b"), Workload.prefill(lengths=(512, 300, 128)))[0]
    sizes = {t.name: int(t.size) for t in activation.peaks["math"].tensors}
    assert (sizes["mask"], sizes["bias"]) == (3 * 512 * 512, 3 * 512 * 512 * 2)


@pytest.mark.parametrize(
    ("batch", "tokens", "heads", "d_head", "d_model", "dtype", "causal", "measured"),
    [
        (2, 16, (4, 4), 128, 64, "fp32", True, 467_968),
        (3, 40, (8, 2), 64, 128, "bf16", False, 1_935_360),
        (2, 24, (6, 6), 128, 8, "fp16", True, 1_283_328),
        (2, 1, (4, 4), 64, 32, "fp32", False, 10_272),
    ],
)
def test_short_sequences_peak_while_keys_are_copied(
    batch: int,
    tokens: int,
    heads: tuple[int, int],
    d_head: int,
    d_model: int,
    dtype: str,
    causal: bool,
    measured: int,
) -> None:
    """Measured as above; heads are query and KV heads."""
    mask = Mask("causal" if causal else "bidirectional")
    layers = Layers("layers", 1, attention=Grouped(*heads, d_head))
    model = ModelSpec("m", "m", (Stack("s", (layers,), d_model, mask=mask),), dtype=dtype)
    peak = activations(model, Workload.prefill(batch, tokens))[0].peaks["math"]
    assert (peak.name, peak.size) == ("QK", measured)


def test_flash_peaks_in_its_kernel_if_the_model_is_narrow() -> None:
    heads = Layers("layers", 1, attention=Grouped(8, 8, 64))
    model = ModelSpec("m", "m", (Stack("s", (heads,), 8),), dtype="fp16")
    peak = activations(model, Workload.prefill(1, 100))[0].peaks["flash"]
    # q, k, v and the output of 8 heads * 64 * 2 B per token, and one fp32 logsumexp per query and
    # head
    assert peak.size == 100 * (4 * 8 * 64 * 2 + 8 * 4)


def test_cross_attention_computes_the_sources_keys_once() -> None:
    model = load("whisper-large-v3")
    first = activations(model, Workload.prefill(1, 4, source=1500))[2].peaks["flash"]
    later = activations(model, Workload.decode(1, 5, source=1500))[1].peaks["flash"]
    assert {t.name: int(t.size) for t in first.tensors}["k"] == 1500 * 1280 * 2
    assert "k" not in {t.name for t in later.tensors}


def test_kernels_with_the_same_peak_share_a_row(ask: Ask) -> None:
    # math holds 12 heads x 1,024 x 1,024 scores; the others only the output and its projection
    rows = ask("memory", "gpt2").out.splitlines()
    assert [line.split()[:3] for line in rows if "15.00" in line] == [
        ["flash,", "efficient,", "cudnn"]
    ]
