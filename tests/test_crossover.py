"""How cost grows with the context: crossovers, doubling, and the comparison with a recurrent
layer.
"""

import dataclasses

import pytest
from asking import Ask, results
from hypothesis import given
from hypothesis import strategies as st
from specs import grouped
from tables import each

from attncalc import (
    Chunked,
    Full,
    Grouped,
    Layers,
    ModelSpec,
    Sliding,
    Stack,
    Workload,
    crossover,
    flops,
    growth,
    load,
)
from attncalc.attention import KINDS, Span
from attncalc.cost.complexity import attention_layer_complexity, layer_types
from attncalc.cost.crossover import _scores_and_others


@st.composite
def wide_or_narrow(draw: st.DrawFn) -> ModelSpec:
    """Models of grouped layers, some so narrow that scores overtake projections within a few
    tokens.
    """
    kinds = draw(st.lists(grouped(), min_size=1, max_size=3))
    layers = tuple(Layers(f"kind{i}", 1, attention=kind) for i, kind in enumerate(kinds))
    return ModelSpec("m", "m", (Stack("decoder", layers, draw(st.integers(1, 60))),))


@given(
    wide_or_narrow(),
    st.sampled_from(
        [Workload.prefill(1, 9), Workload.decode(1, 9), Workload.prefill(1, 9, past=7)]
    ),
)
def test_the_crossover_is_the_first_context_found_by_a_scan(
    model: ModelSpec, workload: Workload
) -> None:
    context_found = crossover(model, workload)
    first = workload.past + 1 if workload.phase == "prefill" else 1

    def scores_cost_more(context: int) -> bool:
        score_flops, projection_flops = _scores_and_others(
            model.plain(), workload.at(context), ["attention_projections"]
        )
        return score_flops > projection_flops

    by_scan = next((n for n in range(first, 400) if scores_cost_more(n)), None)
    if (context_found is not None and context_found < 400) or by_scan is not None:
        assert context_found == by_scan
    elif context_found is not None:
        assert scores_cost_more(int(context_found))


def test_scores_overtake_the_mlp_later_than_the_projections(ask: Ask) -> None:
    # 4 * 32 * 128 * T * (T + 1) / 2 FLOP of causal scores per layer, 8,192 * (T + 1) per token,
    # overtake 2 * 41,943,040 of the projections where T + 1 > 10,240, and 2 * 3 * 4,096 * 14,336 of
    # the MLP where T + 1 > 43,008
    figures = results(ask("flops", "llama3.1-8b", "--json"))
    assert [figures[f"scores_overtake_{name}context"] for name in ("", "mlp_", "both_")] == [
        10_240,
        43_008,
        53_248,
    ]


def test_the_crossover_inside_a_chunk_is_found() -> None:
    # Llama 4's heads with chunks of 8,000, one decode step: 2 * 40 * 2 * 128 FLOP per key overtake
    # 2 * 62,914,560 where more than 6,144 keys are seen, first within the first chunk
    kind = Grouped(40, 8, 128, span=Chunked(8000))
    model = ModelSpec("m", "m", (Stack("decoder", (Layers("layers", 1, attention=kind),), 5120),))
    assert crossover(model, Workload.decode(1, 100)) == 6145


def test_complexity_is_of_the_layer_with_the_most_scores() -> None:
    gemma, workload = load("gemma3-27b"), Workload.prefill(1, 8192)
    reordered = dataclasses.replace(gemma.main, layers=gemma.main.layers[::-1])
    reordered_gemma = dataclasses.replace(gemma, stacks=(reordered,))
    layer = attention_layer_complexity(gemma, workload)
    # a global layer: 2 FLOP per weight and token, and 8,192 * 8,193 / 2 pairs of 32 heads * 128, QK
    # and PV
    assert layer.flops == 2 * 8192 * (66_060_544 - 256) + 4 * 32 * 128 * (8192 * 8193 // 2)
    assert attention_layer_complexity(reordered_gemma, workload).flops == layer.flops


def test_complexity_leaves_out_cross_attention() -> None:
    # 4 matrices of 1,280 x 1,280; 448 * 449 / 2 pairs of 20 heads * 64, QK and PV
    layer = attention_layer_complexity(
        load("whisper-large-v3"), Workload.prefill(1, 448, source=1500)
    )
    assert layer.flops == 2 * 448 * 4 * 1280**2 + 4 * 20 * 64 * (448 * 449 // 2)


def test_the_crossover_includes_the_past() -> None:
    # LLaMA-2 70B, 4,000 tokens in the cache: n new ones see n (n + 1) / 2 + 4,000 n keys, and
    # 2 * 64 * 2 * 128 FLOP per key overtake 2 * 150,994,944 per token where (n + 1) / 2 + 4,000 >
    # 9,216
    assert crossover(load("llama2-70b"), Workload.prefill(1, 4096, past=4000)) == 4000 + 10_432


def test_doubling_a_padded_batch_doubles_each_length() -> None:
    model, workload = load("llama2-7b"), Workload.prefill(lengths=(512, 300))
    doubled = growth(model, workload)
    # n (n + 1) / 2 pairs of each length
    before, after = (
        sum(n * (n + 1) // 2 for n in lengths) for lengths in ((512, 300), (1024, 600))
    )
    assert float(doubled.scores) == after / before


def test_the_layer_types_are_those_of_the_paper() -> None:
    """Vaswani et al. 2017, Table 1: n^2 d, n d^2, k n d^2 and r n d; attention is cheaper than
    recurrence if n < d.
    """
    model, d = load("transformer-base"), 512
    for n in (50, 512, 2000):
        types = layer_types(model, Workload.prefill(3, n, source=20))
        k, r = 3, min(n, 128)
        assert (types.kernel, types.neighborhood) == (k, r)
        # 3 sequences; 2 FLOP per multiply-add; QK and PV, and two matrices of a recurrent layer
        assert types.self_attention.flops == 3 * 4 * n**2 * d
        assert types.recurrent.flops == 3 * 4 * n * d**2
        assert types.convolutional.flops == 3 * 2 * k * n * d**2
        assert types.restricted.flops == 3 * 4 * r * n * d
        assert (types.self_attention.flops < types.recurrent.flops) == (n < d)
    # O(1), O(n), O(log_k(n)) and O(n / r): 3^6 = 729 < 2,000 < 3^7; 15 * 128 < 2,000 < 16 * 128
    rows = (types.self_attention, types.recurrent, types.convolutional, types.restricted)
    assert [row.longest_path for row in rows] == [1, 2000, 7, 16]
    assert [row.sequential_steps for row in rows] == [1, 2000, 1, 1]
    step = layer_types(model, Workload.decode(1, 27, source=20))  # one token takes the place of n
    assert (step.self_attention.flops, step.recurrent.flops) == (4 * 27 * d, 4 * d**2)
    assert (step.recurrent.sequential_steps, step.convolutional.longest_path) == (1, 3)
    assert (
        layer_types(
            windows(Sliding(40), Chunked(60), Full()), Workload.prefill(1, 100)
        ).neighborhood
        == 40
    )


def test_a_models_layer_has_its_scores_and_its_projections_apart() -> None:
    layer = attention_layer_complexity(load("llama2-7b"), Workload.train(1, 100))
    # 3 passes; 4 matrices of 4,096 x 4,096; 100 * 101 / 2 pairs of 32 heads * 128, QK and PV
    assert layer.projections == 3 * 2 * 100 * 4 * 4096**2
    assert layer.scores.flops == 3 * 4 * 4096 * (100 * 101 // 2)
    assert layer.flops == layer.projections + layer.scores.flops


def test_a_recurrent_layer_is_split_over_devices() -> None:
    # two 8,192 x 8,192 matrices, 2 FLOP per weight and token, over 8 devices
    layer = layer_types(load("llama2-70b").shard(8), Workload.prefill(1, 100)).recurrent
    assert layer.flops == 2 * 100 * 2 * 8192**2 // 8


def test_the_longest_path_through_windows() -> None:
    # Mistral's window reaches 4,095 tokens back: 3 layers for the 8,191 steps between the ends of
    # 8,192
    model, workload = load("mistral-7b-v0.1"), Workload.prefill(1, 8192)
    assert attention_layer_complexity(model, workload).scores.longest_path == 3
    full = load("llama2-7b")
    assert attention_layer_complexity(full, workload).scores.longest_path == 1


def test_one_device_of_a_recurrent_layer_has_all_its_weights_and_no_division_in_the_formula() -> (
    None
):
    """Two matrices of 8,192 x 8,192, 2 FLOP per weight and token."""
    one = layer_types(load("llama2-70b"), Workload.prefill(1, 100)).recurrent
    two = layer_types(load("llama2-70b").shard(2), Workload.prefill(1, 100)).recurrent
    assert one.flops == 2 * 100 * 2 * 8192**2 == 2 * two.flops
    assert ("tp" in one.flops.formula.text, "tp" in two.flops.formula.text) == (False, True)
    assert (one.sequential_steps, one.longest_path) == (100, 100)


def windows(*spans: Span) -> ModelSpec:
    layers = tuple(
        Layers(f"kind{i}", 1, attention=Grouped(4, 2, 8, span=span)) for i, span in enumerate(spans)
    )
    return ModelSpec("m", "m", (Stack("decoder", layers, 32),))


@pytest.mark.parametrize(
    ("spans", "tokens", "layers"),
    [
        ([Sliding(4)], 10, 3),  # 3 tokens further per layer: ceil(9 / 3)
        ([Sliding(4)], 11, 4),
        ([Sliding(2)], 10, 9),
        ([Sliding(1)], 10, None),  # a token sees only itself
        ([Sliding(4), Sliding(2)], 10, 3),
        ([Chunked(4)], 10, None),  # chunks never exchange information
        ([Chunked(4), Sliding(4)], 10, 3),
        ([Chunked(4)], 1, 1),
        ([Sliding(4), Full()], 10, 1),
    ],
)
def test_layers_between_the_tokens_farthest_apart(
    spans: list[Span], tokens: int, layers: int | None
) -> None:
    assert (
        attention_layer_complexity(windows(*spans), Workload.prefill(1, tokens)).scores.longest_path
        == layers
    )


def test_complexity_of_a_model_without_attention_is_that_of_its_recurrent_layer() -> None:
    keys = {"n_heads": 6, "d_head": 10}
    layers = Layers("layers", 3, attention=KINDS["lightning"].from_keys(keys, 40, Full()))
    model = ModelSpec("m", "m", (Stack("decoder", (layers,), 40),))
    complexity = attention_layer_complexity(model, Workload.prefill(1, 100))
    assert (complexity.scores.sequential_steps, complexity.scores.longest_path) == (100, 100)
    (group,) = flops(model, Workload.prefill(1, 100)).groups
    assert complexity.flops * group.layers.count == group.projections + group.scores


def test_the_crossovers_formula_compares_both_sides() -> None:
    """One group of layers is written out; of several groups, both sums have a name."""
    one, two = (
        crossover(windows(*spans), Workload.decode(1, 9))
        for spans in ([Full()], [Full(), Sliding(4)])
    )
    assert one is not None
    assert two is not None
    assert one.formula.text.startswith("least T where ")
    assert "flops_attention" not in one.formula.text
    assert "flops_attention_scores_at_T > flops_attention_projections_at_T" in two.formula.text


@pytest.mark.parametrize(
    ("spans", "past", "context"),
    [
        # a decode step of 4 heads x 8 does 4 * 4 * 8 FLOP per key, and 2 * 32 * (32 + 2 * 16 + 32)
        # = 6,144 to project: more than 48 keys
        ([Full()], 0, 49),
        ([Full()], 30, 49),
        # 49 keys are first seen by the 49th token of a chunk, the last of 49; chunks of 48 have too
        # few
        ([Chunked(49)], 0, 49),
        ([Chunked(48)], 0, None),
        ([Sliding(49)], 0, 49),
        ([Sliding(48)], 0, None),
        # two layers need 97 keys: 57 + 40, where the first chunk has 57 and the second window is
        # full
        ([Chunked(60), Sliding(40)], 0, 57),
        # chunks of 60 and 40 that end together at 120: 58 + 38 keys at 118, 59 + 39 at 119
        ([Chunked(60), Chunked(40)], 0, 119),
    ],
)
def test_the_first_decode_step_at_which_scores_cost_more(
    spans: list[Span], past: int, context: int | None
) -> None:
    model = windows(*spans)
    assert crossover(model, Workload.decode(1, past + 9)) == context
    if context is not None:
        before, at = (flops(model, Workload.decode(1, n)) for n in (context - 1, context))
        assert before.scores <= before.projections
        assert at.scores > at.projections


def first_by_scan(chunks: tuple[int, ...], past: int) -> int | None:
    """Return the first context up to 600 whose scores cost more, by adding up the keys that each
    new token sees.

    Each layer of `windows` does 4 * 4 * 8 FLOP per key, and 2 * 32 * (32 + 2 * 16 + 32) per token.
    """
    scores = 0
    for context in range(past + 1, 601):
        scores += sum(4 * 4 * 8 * ((context - 1) % chunk + 1) for chunk in chunks)
        if scores > len(chunks) * 6_144 * (context - past):
            return context
    return None


@each(
    ("chunks", "past"),
    [
        # 48 keys per new token are as expensive: chunks of 60 have more only near their end, and
        # 30.5 on average
        *(((60,), past) for past in (5, 45, 50, 60, 70, 120)),
        *(((97,), past) for past in (5, 50, 97, 130)),  # 49 on average
        # these two have 38 on average, but tokens 51 to 110 of the longer chunk see 80.5 and 20.5
        *(((110, 40), past) for past in (10, 45, 70, 90, 130, 440)),
        *(((100, 80), past) for past in (20, 45, 130, 250)),
        *(((120, 80), past) for past in (0, 5, 10, 90, 250)),
        *(((110, 70), past) for past in (20, 70, 130)),
    ],
)
def test_new_tokens_after_a_past_may_start_inside_a_chunk(
    chunks: tuple[int, ...], past: int
) -> None:
    model = windows(*map(Chunked, chunks))
    assert crossover(model, Workload.prefill(1, past + 1, past=past)) == first_by_scan(chunks, past)


def test_the_scores_of_one_token_can_cost_more_than_its_projections() -> None:
    """Differential attention scores each key twice: 8 * 8 * 8 FLOP for 1 key of 8 heads x 8.

    In a model of width 1 the projections are 2 * (64 + 2 * 16 + 64).
    """
    kind = KINDS["differential"].from_keys({"n_heads": 8, "n_kv_heads": 2, "d_head": 8}, 1, Full())
    model = ModelSpec("m", "m", (Stack("decoder", (Layers("layers", 1, attention=kind),), 1),))
    assert crossover(model, Workload.decode(1, 9)) == 1
    assert crossover(model, Workload.prefill(1, 9)) == 1


def test_table_1_has_the_papers_count_beside_the_flops(ask: Ask) -> None:
    # n = d = 512: n^2 d = 134,217,728, and 2 products of 2 FLOP per multiply-add: 536.9 MFLOP
    lines = ask("flops", "transformer-base", "--full").out.splitlines()
    row = next(line.split() for line in lines if line.startswith("  self-attention"))
    assert row == ["self-attention", "n^2", "d", "134.22", "536.9", "1", "1"]
    model = load("transformer-base")
    types = layer_types(model, Workload.prefill(1, 512, source=512))
    counts = [types.self_attention, types.recurrent, types.convolutional, types.restricted]
    assert [one.terms for one in counts] == [512**3, 512**3, 3 * 512**3, 128 * 512**2]
    assert [int(one.flops) // int(one.terms or 1) for one in counts] == [4, 4, 2, 4]


def test_only_full_explains_the_contexts_from_which_scores_cost_more(ask: Ask) -> None:
    crossing = "scores cost more than projections from a context of = "
    assert crossing not in ask("flops", "gpt2", "--explain").out
    assert crossing in ask("flops", "gpt2", "--explain", "--full").out
    # the sum of the only group of layers is no news
    assert "all, decoder" not in ask("flops", "gpt2", "--explain").out
    assert "all, local" in ask("flops", "gemma3-27b", "--explain").out
