"""How cost grows with the context: crossovers, doubling, and the comparison with a recurrent layer."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
from specs import grouped

from attncalc import (
    Chunked,
    Grouped,
    Layers,
    ModelSpec,
    Stack,
    Workload,
    crossover,
    flops,
    growth,
    load,
)
from attncalc.cost.complexity import attention_layer_complexity, recurrent_layer_complexity


@st.composite
def wide_or_narrow(draw: st.DrawFn) -> ModelSpec:
    """Models of grouped layers, some so narrow that scores overtake projections within a few tokens."""
    kinds = draw(st.lists(grouped(), min_size=1, max_size=3))
    layers = tuple(Layers(f"kind{i}", 1, attention=kind) for i, kind in enumerate(kinds))
    return ModelSpec("m", "m", (Stack("decoder", layers, draw(st.integers(1, 60))),))


@given(
    wide_or_narrow(), st.sampled_from([Workload.prefill(1, 9), Workload.decode(1, 9), Workload.prefill(1, 9, past=7)])
)
def test_the_crossover_is_the_first_context_found_by_a_scan(model: ModelSpec, workload: Workload) -> None:
    found = crossover(model, workload)
    first = workload.past + 1 if workload.phase == "prefill" else 1

    def overtaken(context: int) -> bool:
        spent = flops(model, workload.at(context))
        return spent.scores > spent.projections

    by_scan = next((n for n in range(first, 400) if overtaken(n)), None)
    if (found is not None and found < 400) or by_scan is not None:
        assert found == by_scan
    elif found is not None:
        assert overtaken(int(found))


def test_the_crossover_inside_a_chunk_is_found() -> None:
    # Llama 4's heads with chunks of 8,000, one decode step: 2 * 40 * 2 * 128 FLOP a key overtake
    # 2 * 62,914,560 where more than 6,144 keys are seen, first within the first chunk
    kind = Grouped(40, 8, 128, span=Chunked(8000))
    model = ModelSpec("m", "m", (Stack("decoder", (Layers("layers", 1, attention=kind),), 5120),))
    assert crossover(model, Workload.decode(1, 100)) == 6145


def test_the_compared_layer_is_the_one_with_the_most_scores() -> None:
    gemma, workload = load("gemma3-27b"), Workload.prefill(1, 8192)
    reordered = dataclasses.replace(gemma.main, layers=gemma.main.layers[::-1])
    other = dataclasses.replace(gemma, stacks=(reordered,))
    one = attention_layer_complexity(gemma, workload)
    # a global layer: 2 FLOP a weight and token, and 8,192 * 8,193 / 2 pairs of 32 heads * 128, QK and PV
    assert one.flops == 2 * 8192 * (66_060_544 - 256) + 4 * 32 * 128 * (8192 * 8193 // 2)
    assert attention_layer_complexity(other, workload).flops == one.flops


def test_the_compared_layer_leaves_out_cross_attention() -> None:
    # 4 matrices of 1,280 x 1,280; 448 * 449 / 2 pairs of 20 heads * 64, QK and PV
    one = attention_layer_complexity(load("whisper-large-v3"), Workload.prefill(1, 448, source=1500))
    assert one.flops == 2 * 448 * 4 * 1280**2 + 4 * 20 * 64 * (448 * 449 // 2)


def test_the_crossover_includes_the_past() -> None:
    # LLaMA-2 70B, 4,000 tokens in the cache: n new ones see n (n + 1) / 2 + 4,000 n keys, and
    # 2 * 64 * 2 * 128 FLOP a key overtake 2 * 150,994,944 a token where (n + 1) / 2 + 4,000 > 9,216
    assert crossover(load("llama2-70b"), Workload.prefill(1, 4096, past=4000)) == 4000 + 10_432


def test_doubling_a_padded_batch_doubles_each_length() -> None:
    model, workload = load("llama2-7b"), Workload.prefill(lengths=(512, 300))
    grown = growth(model, workload)
    # n (n + 1) / 2 pairs of each length
    before, after = (sum(n * (n + 1) // 2 for n in lengths) for lengths in ((512, 300), (1024, 600)))
    assert float(grown.scores) == after / before


def test_a_recurrent_layer_is_split_over_devices() -> None:
    # two 8,192 x 8,192 matrices, 2 FLOP a weight and token, over 8 devices
    one = recurrent_layer_complexity(load("llama2-70b").shard(8), Workload.prefill(1, 100))
    assert one.flops == 2 * 100 * 2 * 8192**2 // 8


def test_the_longest_path_through_windows() -> None:
    # Mistral's window reaches 4,095 tokens back: 3 layers for the 8,191 steps between the ends of 8,192
    model, workload = load("mistral-7b"), Workload.prefill(1, 8192)
    assert attention_layer_complexity(model, workload).longest_path == 3
    full = load("llama2-7b")
    assert attention_layer_complexity(full, workload).longest_path == 1
