"""llama.cpp's compute buffer of toy models, each moment by the formula in compute_buffer.py's
docstring.

test_llamacpp_buffers.py compares whole buffers with those of ggml's allocator and of posted logs.
"""

import dataclasses
from typing import Any, NamedTuple

import pytest
from tables import each

from attncalc import Full, Grouped, Head, Latent, Layers, Mlp, ModelSpec, Sliding, Stack
from attncalc.attention import Matrix
from attncalc.attention.linear import GatedDeltaNet, Lightning
from attncalc.attention.mamba import Mamba
from attncalc.engines.llamacpp.compute_buffer import ComputeBuffer, Graph, compute_buffer
from attncalc.engines.llamacpp.versions import llamacpp_version
from attncalc.units import dtype

# Width of the model, vocabulary, tokens of the pass, rows of logits, cells of a stream, cells of a
# window.
D, V, N, ROWS, CELLS, WINDOW = 100, 70, 10, 3, 64, 32
HEADS, KV_HEADS, D_QK, D_V = 8, 2, 16, 24
H, KV, Q_PLACE = HEADS * D_QK, KV_HEADS * D_QK, HEADS * D_V
# Bytes of one element of every token, in f32.
U = 4 * N
ATTENTION = Grouped(HEADS, KV_HEADS, D_QK, D_V)
DENSE = Mlp(300, gated=True)
F16 = dtype("fp16")
NEW, OLD, FUSED = map(llamacpp_version, ("b9500", "b9371", "b10830"))
GRAPH = Graph(NEW, True, N, ROWS, CELLS, 0, 1, k_copied=False, v_copied=False)
MASK_F16, MASK_F32 = CELLS * N * 2, CELLS * N * 4
CLOSE, GAPS, LATENT, LINEAR, INDEXED = (97, 103), (85, 112), (80, 120), (90, 115), (75, 125)


def model(attention: Any = ATTENTION, mlp: Mlp | None = DENSE, **fields: Any) -> ModelSpec:
    stack = Stack("decoder", (Layers("layers", 6, attention=attention, mlp=mlp),), D)
    return ModelSpec("toy", "toy", (stack,), **{"vocab_size": V, "head": Head("lm"), **fields})


def buffer(whole: ModelSpec, **changes: Any) -> tuple[dict[str, int], ComputeBuffer]:
    """Return the bytes of each moment by name, and the buffer."""
    found = compute_buffer(whole, whole, GRAPH._replace(**changes))
    return {name: int(size) for name, _, size in found.terms}, found


# Four copies of the token embeddings, for as many micro-batches at once.
EMBEDDINGS = 4 * D * U
MOMENTS: list[tuple[dict[str, Any], dict[str, int]]] = [
    (
        {},
        {
            "mask_bytes": MASK_F16,
            "logits_bytes": ROWS * V * 4 + D * U,
            "attention_bytes": MASK_F16 + (2 * H + 2 * D) * U,
            "mlp_bytes": MASK_F16 + (3 * 300 + 2 * D + Q_PLACE) * U,
        },
    ),
    (
        {"flash": False},
        {
            "mask_bytes": MASK_F32,
            "attention_bytes": HEADS * CELLS * U + MASK_F32 + (2 * H + 2 * D) * U,
            "mlp_bytes": MASK_F32 + (3 * 300 + 2 * D + Q_PLACE) * U,
        },
    ),
    (  # V is transposed, so each of its elements has a place of its own, in 64 bits
        {"flash": False, "v_row": 7, "window_cells": WINDOW},
        {"mask_bytes": (CELLS + WINDOW) * N * 4 + 2 * 7 * 8 * N},
    ),
    ({"flash": False, "v_row": 7, "release": llamacpp_version("b6072")}, {"mask_bytes": MASK_F32}),
    (
        # the mask in f32, and for attention a copy in f16; Q's place is free again
        {"release": OLD},
        {
            "mask_bytes": MASK_F32,
            "converted_mask_bytes": MASK_F32 + MASK_F16,
            "attention_bytes": MASK_F32 + MASK_F16 + (2 * H + 2 * KV + 2 * D) * U,
            "mlp_bytes": MASK_F32 + (3 * 300 + 2 * D) * U,
        },
    ),
    ({"window_cells": WINDOW}, {"mask_bytes": (CELLS + WINDOW) * N * 2}),
    (
        # four copies of masks and token embeddings; the logits have those of the masks
        {"gpus": 2},
        {
            "mask_bytes": 4 * MASK_F16,
            "logits_bytes": ROWS * V * 4 + D * U + EMBEDDINGS + 4 * MASK_F16,
            "attention_bytes": 4 * MASK_F16 + (2 * H + 2 * D) * U + EMBEDDINGS,
            "mlp_bytes": 4 * MASK_F16 + (3 * 300 + 2 * D + Q_PLACE) * U + EMBEDDINGS,
        },
    ),
    ({"gpus": 2, "flash": False}, {"mask_bytes": 4 * MASK_F32}),
    (
        {"gpus": 2, "first": False},  # a later GPU receives the hidden state
        {
            "attention_bytes": 4 * MASK_F16 + (2 * H + 2 * D) * U + EMBEDDINGS,
            "mlp_bytes": 4 * MASK_F16 + (3 * 300 + 2 * D + Q_PLACE) * U + EMBEDDINGS,
        },
    ),
    (
        {"gpus": 2, "first": False, "pipelined": False},
        {"mlp_bytes": MASK_F16 + (3 * 300 + 2 * D) * U},
    ),
    ({"k_copied": True}, {"mlp_bytes": MASK_F16 + (3 * 300 + 2 * D) * U}),
    (
        {"cache_from_host": (F16, F16)},
        {"attention_bytes": MASK_F16 + CELLS * KV_HEADS * (D_QK + D_V) * 2 + (2 * H + 2 * D) * U},
    ),
    (  # of the place of the copies of K and V one is a gap
        {"cache_from_host": (F16, F16), "from_host": {"other": 10**6, "down": 10**5}},
        {
            "mlp_bytes": MASK_F16
            + 2 * 300 * U
            + 10**6
            + (2 * D + Q_PLACE) * U
            + CELLS * KV_HEADS * (D_QK + D_V) * 2 // 2
        },
    ),
    (
        {"from_host": {"other": 10**5, "down": 10**6}},
        {"mlp_bytes": MASK_F16 + (300 + D) * U + 10**6 + (2 * D + Q_PLACE) * U},
    ),
    (
        {"gpus": 2, "release": OLD},  # the MLP has both masks, and Q's place
        {
            "logits_bytes": ROWS * V * 4 + D * U + EMBEDDINGS + 4 * MASK_F16,
            "mask_bytes": 4 * MASK_F32,
            "converted_mask_bytes": 4 * MASK_F32 + MASK_F16,
            "mlp_bytes": 4 * MASK_F32 + MASK_F16 + (3 * 300 + 2 * D + Q_PLACE) * U + EMBEDDINGS,
        },
    ),
    ({"gpus": 2, "release": OLD, "first": False}, {"mask_bytes": 4 * MASK_F16}),
    ({"k_copied": True}, {"attention_bytes": MASK_F16 + CELLS * KV * 2 + (2 * H + 2 * D) * U}),
    (
        {"v_copied": True},
        {"attention_bytes": MASK_F16 + CELLS * KV_HEADS * D_V * 2 + (2 * H + 2 * D) * U},
    ),
    (
        {"k_copied": True, "v_copied": True, "release": OLD},  # before June 2026 nothing was copied
        {"attention_bytes": MASK_F32 + MASK_F16 + (2 * H + 2 * KV + 2 * D) * U},
    ),
    (
        {"from_host": {"head": 2000}, "last": False},
        {
            "logits_bytes": ROWS * V * 4 + D * U + 2000,
            "mlp_bytes": MASK_F16 + (3 * 300 + 2 * D + Q_PLACE) * U,
        },
    ),
]


@each(("changes", "expected"), MOMENTS)
def test_moments_of_a_dense_model(changes: dict[str, Any], expected: dict[str, int]) -> None:
    terms, _ = buffer(model(), **changes)
    assert {name: terms[name] for name in expected} == expected
    assert ("converted_mask_bytes" in terms) == (
        "converted_mask_bytes" in expected or changes.get("release") is OLD
    ) or (not changes.get("first", True))


class Moment(NamedTuple):
    """A moment of a pass over a model."""

    whole: ModelSpec
    name: str
    size: int  # its bytes
    spread: tuple[int, int]
    changes: dict[str, Any]  # what differs from GRAPH


def attention(kind: Any, size: int, spread: tuple[int, int] = CLOSE, **changes: Any) -> Moment:
    return Moment(model(kind, None), "attention_bytes", size, spread, changes)


def mlp(mlp: Mlp, size: int, spread: tuple[int, int] = CLOSE, **changes: Any) -> Moment:
    return Moment(model(mlp=mlp), "mlp_bytes", size, spread, changes)


KINDS = {
    "K and V of one width are one tensor of which each is half": attention(
        Grouped(HEADS, KV_HEADS, D_QK),
        MASK_F16 + CELLS * KV * 2 + (2 * H + 2 * D) * U,
        k_copied=True,
    ),
    "a sliding window reads its own cells": attention(
        Grouped(HEADS, KV_HEADS, D_QK, D_V, span=Sliding(16)),
        (CELLS + WINDOW) * N * 2 + WINDOW * KV * 2 + (2 * H + 2 * D) * U,
        (95, 150),
        k_copied=True,
        window_cells=WINDOW,
    ),
    "full attention beside windows reads all cells": attention(
        Grouped(HEADS, KV_HEADS, D_QK, D_V, span=Full()),
        HEADS * CELLS * U + (CELLS + WINDOW) * N * 4 + (2 * H + 2 * D) * U,
        GAPS,
        flash=False,
        window_cells=WINDOW,
    ),
    "without flash attention a gate is as wide as Q": attention(
        Grouped(HEADS, KV_HEADS, D_QK, D_V, gate=True),
        HEADS * CELLS * U + MASK_F32 + (3 * H + 2 * D) * U,
        GAPS,
        flash=False,
    ),
    "beside copies a gate has three times its width": attention(
        Grouped(HEADS, KV_HEADS, D_QK, D_V, gate=True),
        MASK_F16 + CELLS * KV_HEADS * D_V * 2 + (5 * H + 2 * D) * U,
        v_copied=True,
    ),
    "an MLP without a gate has one tensor": mlp(Mlp(300), MASK_F16 + (300 + 2 * D + Q_PLACE) * U),
    "gate and up of the experts are as wide as Q's place, which one of them takes": mlp(
        Mlp(96, gated=True, n_experts=8, n_experts_per_token=2),
        MASK_F16 + (2 * 2 * 96 + 2 * D + Q_PLACE) * U,
    ),
    "outputs wider than gate and up have a place of their own": mlp(
        Mlp(49, gated=True, n_experts=8, n_experts_per_token=5),
        MASK_F16 + (3 * 5 * 49 + 5 * D + 2 * D + Q_PLACE) * U,
    ),
    "outputs as wide as gate and up do not": mlp(
        Mlp(50, gated=True, n_experts=8, n_experts_per_token=5),
        MASK_F16 + (3 * 5 * 50 + 2 * D + Q_PLACE) * U,
    ),
    "CUDA keeps the outputs beside the weighted ones, which may be more than gate, up and "
    "activation": mlp(
        Mlp(50, gated=True, n_experts=8, n_experts_per_token=5),
        MASK_F16 + (2 * 5 * D + 2 * D + Q_PLACE) * U,
        release=FUSED,
    ),
    "outputs wider than gate, up and activation have two places": mlp(
        Mlp(20, gated=True, n_experts=16, n_experts_per_token=10),
        MASK_F16 + (3 * 10 * 20 + 2 * 10 * D + 2 * D + Q_PLACE) * U,
        release=FUSED,
    ),
    "beside a matrix from the host are gate and up, or activation and outputs": mlp(
        Mlp(200, gated=True, n_experts=8, n_experts_per_token=4),
        MASK_F16 + (4 * 200 + 4 * D + 2 * D + Q_PLACE) * U + 10**6,
        (80, 115),
        from_host={"down": 10**6},
    ),
    "experts that are as wide as shared ones": mlp(
        Mlp(60, gated=True, n_experts=8, n_experts_per_token=4, d_ff_shared=500),
        MASK_F16 + (3 * 500 + 2 * D + Q_PLACE) * U,
        GAPS,
    ),
    "old builds: gate, up and activation of the experts": mlp(
        Mlp(200, gated=True, n_experts=8, n_experts_per_token=4),
        MASK_F32 + (3 * 4 * 200 + 4 * D) * U,
        GAPS,
        release=OLD,
    ),
    "old builds: twice the outputs of the experts": mlp(
        Mlp(20, gated=True, n_experts=8, n_experts_per_token=4),
        MASK_F32 + (2 * 4 * D + 6 * D) * U,
        GAPS,
        release=OLD,
    ),
    "MLA: the query, the same in the latent's width with the rotary part, the output": attention(
        Latent(HEADS, 50, 12, 6, 9), MASK_F16 + (HEADS * (18 + 50 + 56) + 4 * D) * U
    ),
    "MLA without flash attention has scores": attention(
        Latent(HEADS, 50, 12, 6, 9),
        HEADS * CELLS * U + MASK_F32 + (HEADS * (18 + 50 + 56) + 4 * D) * U,
        LATENT,
        flash=False,
    ),
    "MLA copies the latent, of which V is a part": attention(
        Latent(HEADS, 50, 12, 6, 9),
        MASK_F16 + 56 * CELLS * 3 * 2 + (HEADS * (18 + 50 + 56) + 4 * D) * U,
        LATENT,
        k_copied=True,
        streams=3,
    ),
    "old builds copy no latents": attention(
        Latent(HEADS, 50, 12, 6, 9),
        MASK_F32 + (HEADS * (18 + 50 + 56) + 4 * D) * U,
        LATENT,
        k_copied=True,
        release=OLD,
    ),
    "MLA's logits have a wider range": Moment(
        model(Latent(HEADS, 50, 12, 6, 9), vocab_size=10**6),
        "logits_bytes",
        ROWS * 10**6 * 4 + D * U,
        LATENT,
        {},
    ),
    "an indexer has a mask, scores and the picked keys of the 6 layers": attention(
        Latent(HEADS, 50, 12, 6, 9, index_topk=7, index_n_heads=2, index_head_dim=5),
        2 * CELLS * U + (HEADS * (18 + 2 * 56) + 2 * D + 6 * 7) * U,
        INDEXED,
    ),
    "a delta net has three tensors as wide as its convolution, and without attention no mask": attention(
        GatedDeltaNet(4, 8, 10, 3), (3 * (2 * 4 * 8 + 4 * 10) + 2 * D) * U, LINEAR, full_cells=0
    ),
    "Mamba has five": attention(Mamba(200, 8, 3, 5), (5 * 200 + 2 * D) * U, LINEAR, full_cells=0),
    "between two GPUs pass the halves of Mamba's input, and one back": attention(
        Mamba(200, 8, 3, 5),
        ((5 + 4 * 3) * 200 + 2 * D + 4 * D) * U,
        LINEAR,
        gpus=3,
        first=False,
        last=False,
        full_cells=0,
    ),
}


@each("case", KINDS)
def test_moments_of_other_layers(case: str) -> None:
    whole, name, size, spread, changes = KINDS[case]
    terms, found = buffer(whole, **changes)
    assert terms[name] == size
    release = changes.get("release", NEW)
    embeddings = D * U if release is not OLD else 0
    assert found.expected == size  # the other moments are smaller
    assert found.low == size * spread[0] // 100
    assert found.high == size * spread[1] // 100 + embeddings + terms.get("converted_mask_bytes", 0)


@each("case", KINDS)
def test_inputs_of_each_layer_count_in_each_moment(case: str) -> None:
    """Gemma 3n's 66 elements per token; the range is as wide as the moment's and as theirs."""
    whole, name, size, spread, changes = KINDS[case]
    extra = (Matrix("layers_projection", D, 66, applied_to="queries"),)
    terms, found = buffer(dataclasses.replace(whole, extra=extra), **changes)
    assert terms[name] == size + 66 * U * (4 if "gpus" in changes else 1)
    low, high = min(spread[0], LATENT[0]), max(spread[1], LATENT[1])
    assert found.low == terms[name] * low // 100
    more = D * U if changes.get("release", NEW) is not OLD else terms.get("converted_mask_bytes", 0)
    assert found.high == terms[name] * high // 100 + more


def test_layers_without_a_convolution_have_no_moment_of_attention() -> None:
    terms, _ = buffer(model(Lightning(4, 8)), full_cells=0)
    assert set(terms) == {"logits_bytes", "mlp_bytes"}


def test_a_model_with_recurrent_layers_has_no_place_of_q() -> None:
    hybrid = model()
    layers = (*hybrid.main.layers, Layers("mamba", 1, attention=Mamba(10, 8, 3, 5)))
    hybrid = dataclasses.replace(hybrid, stacks=(dataclasses.replace(hybrid.main, layers=layers),))
    assert buffer(hybrid)[0]["mlp_bytes"] == MASK_F16 + (3 * 300 + 2 * D) * U


def test_inputs_of_each_layer_count_in_all_moments_and_widen_the_range() -> None:
    """Gemma 3n: a matrix of 6 layers of 11 elements."""
    per_layer = model(extra=(Matrix("layers_projection", D, 66, applied_to="queries"),))
    before, _ = buffer(model())
    terms, found = buffer(per_layer)
    for name in ("logits_bytes", "attention_bytes", "mlp_bytes"):
        assert terms[name] == before[name] + 66 * U
    assert found.low == terms["mlp_bytes"] * 80 // 100
    assert found.high == terms["mlp_bytes"] * 120 // 100 + D * U
    several, _ = buffer(per_layer, gpus=2)
    assert several["mlp_bytes"] == buffer(model(), gpus=2)[0]["mlp_bytes"] + 4 * 66 * U
    assert found.host == MASK_F16 + (2 * D + 66) * U


@pytest.mark.parametrize("kind", ["other", "down", "head"])
def test_copies_of_matrices_from_the_host_widen_the_range(kind: str) -> None:
    _, found = buffer(model(), from_host={kind: 10**6})
    assert (found.low, found.high) == (
        found.expected * 80 // 100,
        found.expected * 115 // 100 + D * U,
    )


def test_logits_come_after_the_outputs_of_experts_that_cuda_keeps() -> None:
    """The place of gate, up and activation is free, but too small: 3 * 20 rows of 7,000 logits are
    more.
    """
    experts = model(mlp=Mlp(20, gated=True, n_experts=8, n_experts_per_token=2), vocab_size=7000)
    logits = ROWS * 7000 * 4 + D * U
    assert buffer(experts)[0]["logits_bytes"] == logits
    behind = 2 * (3 * 20 + D) * U + D * U
    assert buffer(experts, release=FUSED)[0]["logits_bytes"] == logits + behind
    # so does attention with copies of the cache
    plain, fused = (
        buffer(experts, release=release, k_copied=True, v_copied=True)[0]["attention_bytes"]
        for release in (NEW, FUSED)
    )
    assert fused - plain == 2 * (3 * 20 + D) * U


def test_without_a_gpu_the_buffer_has_the_embeddings() -> None:
    assert buffer(model(), on_cpu=True)[1].expected - buffer(model())[1].expected == D * U


def test_the_gpu_has_neither_masks_nor_scores_of_attention_on_the_host() -> None:
    terms, found = buffer(model(), flash=False, attends=False)
    assert set(terms) == {"logits_bytes", "mlp_bytes"}
    assert found.host == HEADS * CELLS * U + MASK_F32 + 2 * D * U


def test_layers_on_the_host_are_computed_on_the_gpu_from_copies() -> None:
    """The part on the GPU has no MLP, but the GPU computes those of the layers on the host."""
    whole, part = model(), model(mlp=None)
    with_copies = compute_buffer(part, whole, GRAPH._replace(from_host={"other": 1000}))
    assert "mlp_bytes" in {name for name, *_ in with_copies.terms}
    assert "mlp_bytes" not in {name for name, *_ in compute_buffer(part, whole, GRAPH).terms}


def test_a_gpu_without_layers_has_no_buffer() -> None:
    whole = model()
    empty = dataclasses.replace(whole, stacks=(dataclasses.replace(whole.main, layers=()),))
    found = compute_buffer(empty, whole, GRAPH._replace(last=False))
    assert (found.low, found.expected, found.high, found.terms) == (0, 0, 0, ())
    assert found.host == MASK_F16 + 2 * D * U


def test_a_model_without_a_vocabulary_has_no_logits() -> None:
    assert "logits_bytes" not in buffer(model(vocab_size=None, head=None))[0]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, MASK_F16 + 2 * D * U),  # since January 2026 the token embeddings are there twice
        ({"flash": False}, MASK_F32 + 2 * D * U),
        ({"release": OLD}, MASK_F32 + 2 * D * U),
        ({"release": llamacpp_version("b7599")}, MASK_F32 + D * U),
        ({"window_cells": WINDOW}, (CELLS + WINDOW) * N * 2 + 2 * D * U),
        ({"gpus": 2}, 4 * MASK_F16 + 2 * D * U),
        ({"gpus": 2, "pipelined": False}, MASK_F16 + 2 * D * U),
        ({"gpus": 2, "release": OLD}, 4 * MASK_F32 + 2 * D * U),
    ],
)
def test_buffer_of_the_host(changes: dict[str, Any], expected: int) -> None:
    assert buffer(model(), **changes)[1].host == expected


def test_an_indexer_has_a_mask_of_its_own_on_the_host() -> None:
    sparse = model(Latent(HEADS, 50, 12, 6, 9, index_topk=7, index_n_heads=2, index_head_dim=5))
    assert buffer(sparse)[1].host == CELLS * N * (2 + 2) + 2 * D * U
