"""Every kind of attention and recurrence, with sizes that are all different, so that no two of them
can be mixed up.

The numbers are worked out from the papers and the classes that each kind names, with their
arithmetic beside them.
"""

import dataclasses
import functools
import re
from typing import Any, NamedTuple

import pytest
from tables import each

from attncalc import AttncalcError, Cross
from attncalc.attention import KINDS, required_keys
from attncalc.attention.compressed import LastPool, Unpooled, WindowAndPools
from attncalc.attention.kind import Matrix, Table
from attncalc.attention.picked import Blocks, Pools, Selected
from attncalc.attention.span import FULL, Chunked, Sliding, Span
from attncalc.config.build import build_model
from attncalc.config.document import Document
from attncalc.config.keys import kind_keys
from attncalc.config.schema import check
from attncalc.quantity import formula_of, symbol
from attncalc.workload import Run

D_MODEL = 1000
RUN = Run(sequences=1, new=5, context=7)


class Case(NamedTuple):
    """A kind's keys, and what is expected of it."""

    kind: str  # its name in model files
    keys: dict[str, Any]
    matrices: dict[str, int]  # parameters by the matrix's name
    flops: int  # FLOPs of RUN between the projections, all pairs counted
    cache: list[tuple[int, int, str | None]]  # rows and width of each cached tensor, with its dtype
    d_model: int = D_MODEL  # width of the model

    def made(self) -> Any:
        return KINDS[self.kind].from_keys(self.keys, self.d_model, FULL)


GATED_DELTA = {"n_heads": 6, "d_head": 16, "d_v": 10, "d_conv": 4, "n_k_heads": 2}
LATENT = {"n_heads": 6, "kv_lora_rank": 32, "d_nope": 8, "d_rope": 4, "d_v": 9}
GROUPED = {"n_heads": 6, "n_kv_heads": 2, "d_head": 10}
MAMBA = {"d_inner": 30, "d_state": 7, "d_conv": 4, "dt_rank": 11}
MAMBA_2 = {"n_heads": 6, "d_head": 5, "d_state": 7, "d_conv": 4, "n_groups": 3}
OF_GROUPED = {"W_q": D_MODEL * 60, "W_k": D_MODEL * 20, "W_v": D_MODEL * 20, "W_o": 60 * D_MODEL}
OF_MAMBA = {
    "W_in": D_MODEL * 2 * 30,
    "conv": 30 * 4,
    "W_x": 30 * (11 + 2 * 7),
    "W_dt": 11 * 30 + 30,  # its bias is always there
    "A_log": 30 * 7,
    "D": 30,
    "W_out": 30 * D_MODEL,
}
OF_DELTA = {
    "W_q": D_MODEL * 2 * 16,
    "W_k": D_MODEL * 2 * 16,
    "W_v": D_MODEL * 6 * 10,
    "conv": (2 * 2 * 16 + 6 * 10) * 4,
    "W_beta": D_MODEL * 6,
    "norm": 10,
    "W_o": 6 * 10 * D_MODEL,
}
CASES = {
    # the state is updated and read: 2 multiply-adds per element
    "mamba": Case("mamba", MAMBA, OF_MAMBA, 2 * 2 * 5 * 30 * 7, [(30, 4, None), (30, 7, "fp32")]),
    "mamba with all options": Case(
        "mamba",
        {**MAMBA, "conv_bias": True, "proj_bias": True, "dt_norms": True},
        {
            **OF_MAMBA,
            "W_in": D_MODEL * 2 * 30 + 2 * 30,
            "conv": 30 * 4 + 30,
            "dt_b_c_norms": 11 + 7 + 7,
            "W_out": 30 * D_MODEL + D_MODEL,
        },
        2 * 2 * 5 * 30 * 7,
        [(30, 4, None), (30, 7, "fp32")],
    ),
    # the convolution has 6 * 5 inner channels, and B and C of 3 groups, which are 7 wide
    "mamba2": Case(
        "mamba2",
        MAMBA_2,
        {
            "W_in": D_MODEL * (30 + 30 + 2 * 3 * 7 + 6),
            "conv": (30 + 2 * 3 * 7) * 4,
            "dt_A_D": 3 * 6,
            "W_out": 30 * D_MODEL,
        },
        2 * 2 * 5 * 30 * 7,
        [(30 + 2 * 3 * 7, 4, None), (30, 7, "fp32")],
    ),
    "mamba2 with all options": Case(
        "mamba2",
        {**MAMBA_2, "conv_bias": True, "proj_bias": True, "inner_norm": True},
        {
            "W_in": (D_MODEL + 1) * (30 + 30 + 2 * 3 * 7 + 6),
            "conv": (30 + 2 * 3 * 7) * (4 + 1),
            "dt_A_D": 3 * 6,
            "norm": 30,
            "W_out": 30 * D_MODEL + D_MODEL,
        },
        2 * 2 * 5 * 30 * 7,
        [(30 + 2 * 3 * 7, 4, None), (30, 7, "fp32")],
    ),
    # 2 heads of queries and keys, 6 of values; a key reads the state, the difference is written, a
    # query reads it
    "delta": Case(
        "delta",
        GATED_DELTA,
        {**OF_DELTA, "W_decay": D_MODEL * 6, "dt_A": 2 * 6, "W_gate": D_MODEL * 6 * 10},
        3 * 2 * 5 * 6 * 16 * 10,
        [(2 * 2 * 16 + 6 * 10, 4, None), (6 * 16, 10, "fp32")],
    ),
    "delta with channel_decay": Case(
        "delta",
        {**GATED_DELTA, "channel_decay": True, "gate_rank": 3},
        {
            **OF_DELTA,
            "W_decay_a": D_MODEL * 3,
            "W_decay_b": 3 * 2 * 16,
            "dt_A": 2 * 16 + 6,  # a step size per channel of the keys, and A per head
            "W_gate_a": D_MODEL * 3,
            "W_gate_b": 3 * 6 * 10,
        },
        3 * 2 * 5 * 6 * 16 * 10,
        [(2 * 2 * 16 + 6 * 10, 4, None), (6 * 16, 10, "fp32")],
    ),
    "lightning": Case(
        "lightning",
        {"n_heads": 6, "d_head": 10},
        {"W_qkv": D_MODEL * 3 * 60, "W_gate": D_MODEL * 60, "norm": 60, "W_o": 60 * D_MODEL},
        2 * 2 * 5 * 6 * 10 * 10,
        [(6 * 10, 10, None)],
    ),
    "short_convolution": Case(
        "short_convolution",
        {"d_inner": 30, "d_conv": 4, "conv_bias": True},
        {"W_in": (D_MODEL + 1) * 3 * 30, "conv": 30 * (4 + 1), "W_out": (30 + 1) * D_MODEL},
        0,
        [(30, 4, None)],
    ),
    "rglru": Case(
        "rglru",
        {"d_inner": 30, "n_heads": 6, "d_conv": 4},
        {
            "W_x": (D_MODEL + 1) * 30,
            "W_y": (D_MODEL + 1) * 30,
            "conv": 30 * (4 + 1),
            "W_input_gate": 6 * 5 * 5 + 30,  # 6 blocks of 5 x 5
            "W_recurrent_gate": 6 * 5 * 5 + 30,
            "decay": 30,
            "W_out": (30 + 1) * D_MODEL,
        },
        0,
        [(30, 3, None), (30, 1, "fp32")],
    ),
    "rwkv": Case(
        "rwkv",
        {"d_inner": 30},
        {
            "time_mix": 3 * 30,
            "W_k": 900,
            "W_v": 900,
            "W_r": 900,
            "decay_and_first": 2 * 30,
            "W_o": 900,
        },
        0,
        [(2, 30, None), (3, 30, "fp32")],
        d_model=30,
    ),
    "rwkv5": Case(
        "rwkv5",
        {"d_inner": 30, "d_head": 5},
        {
            "time_mix": 4 * 30,
            "W_k": 900,
            "W_v": 900,
            "W_r": 900,
            "W_gate": 900,
            "decay_and_first": 2 * 30,
            "norm": 2 * 30,
            "W_o": 900,
        },
        2 * 2 * 5 * 30 * 5,  # 6 states of 5 x 5 are updated and read
        [(2, 30, None), (30, 5, "fp32")],
        d_model=30,
    ),
    # a memory of 16 x 10 per head is updated and read, its normaliser of 16 is read
    "mlstm": Case(
        "mlstm",
        {"n_heads": 6, "d_head": 16, "d_v": 10},
        {
            "W_q": D_MODEL * 96,
            "W_k": D_MODEL * 96,
            "W_v": D_MODEL * 60,
            "W_gate": D_MODEL * 60,
            "W_input_gate": D_MODEL * 6 + 6,
            "W_forget_gate": D_MODEL * 6 + 6,
            "norm": 60,
            "W_o": 60 * D_MODEL,
        },
        5 * 6 * (2 * 2 * 16 * 10 + 2 * 16),
        [(6 * 16, 10, None), (6, 16, None), (6, 1, None)],
    ),
    "none": Case("none", {}, {}, 0, []),
    "grouped": Case("grouped", GROUPED, OF_GROUPED, 2 * 6 * 5 * 7 * (10 + 10), [(2 * 2, 10, None)]),
    # Zamba: the input of q, k and v is wider than the output
    "grouped with d_input": Case(
        "grouped",
        {**GROUPED, "d_input": 1500},
        {"W_q": 1500 * 60, "W_k": 1500 * 20, "W_v": 1500 * 20, "W_o": 60 * D_MODEL},
        2 * 6 * 5 * 7 * (10 + 10),
        [(2 * 2, 10, None)],
    ),
    "grouped with shares_kv": Case(
        "grouped",
        {**GROUPED, "shares_kv": True, "qk_norm": "full", "bias": True},
        {"W_q": D_MODEL * 60 + 60, "W_o": 60 * D_MODEL + D_MODEL, "q_norm": 60},
        2 * 6 * 5 * 7 * (10 + 10),
        [],
    ),
    "grouped with v_from_k": Case(
        "grouped",
        {**GROUPED, "v_from_k": True, "qk_norm": "head", "bias": ["k"], "extra_vectors": 13},
        {
            "W_q": D_MODEL * 60,
            "W_k": D_MODEL * 20 + 20,
            "W_o": 60 * D_MODEL,
            "q_norm": 10,
            "k_norm": 10,
            "vectors": 13,
        },
        2 * 6 * 5 * 7 * (10 + 10),
        [(2 * 2, 10, None)],
    ),
    "grouped with further matrices and states": Case(
        "grouped",
        {
            **GROUPED,
            "extra_projections": {"mixer": [3, 5, 7]},
            "extra_states": {"last": [2, 11]},
            "gate": "head",
        },
        {**OF_GROUPED, "W_gate": D_MODEL * 6, "mixer": 3 * 5 * 7},
        2 * 6 * 5 * 7 * (10 + 10),
        [(2 * 2, 10, None), (2, 11, None)],
    ),
    # the kernel runs once for each half of a pair's values; 4 vectors of lambdas
    "differential": Case(
        "differential",
        GROUPED,
        {**OF_GROUPED, "lambdas": 4 * 10},
        2 * 2 * 6 * 5 * 7 * (10 + 10),
        [(2 * 2, 10, None)],
    ),
    # K and V pass a convolution of 2 * (10 + 10) channels; its columns and those of the layer's
    # others are cached
    "relative": Case(
        "relative",
        {**GROUPED, "d_rel": 3, "rel_extent": 17, "d_conv": 4, "layer_channels": 100},
        {**OF_GROUPED, "W_rel": D_MODEL * 6 * 3, "rel_table": 3 * 17, "conv": 40 * 4},
        2 * 6 * 5 * 7 * (10 + 10),
        [(2 * 2, 10, None), (40 + 100, 4, "fp32")],
    ),
    # Llama 3.2 Vision: text without an image skips the layer, which has its parameters all the same
    "pictures": Case("pictures", GROUPED, OF_GROUPED, 0, []),
    # without a past, the latent is expanded: QK over 8 + 4, PV over 6; here 5 of 7 tokens are new
    "latent": Case(
        "latent",
        {**LATENT, "q_lora_rank": 20, "gate": True},
        {
            "W_q_a": D_MODEL * 20,
            "q_a_norm": 20,
            "W_q_b": 20 * 6 * 12,
            "W_kv_a": D_MODEL * (32 + 4),
            "kv_a_norm": 32,
            "W_kv_b": 32 * 6 * (8 + 9),
            "W_gate": D_MODEL * 6 * 9,
            "W_o": 6 * 9 * D_MODEL,
        },
        # expanding the 2 latents of the past is cheaper than absorbing: 8,820 + 13,056 and not
        # 28,560
        2 * 6 * 35 * (12 + 9) + 2 * 2 * 32 * 6 * (8 + 9),
        [(1, 32 + 4, None)],
    ),
}


@each("case", CASES.values(), ids=CASES)
def test_parameters_of_every_matrix(case: Case) -> None:
    assert {
        m.name: int(m.params) for m in case.made().matrices(case.d_model, case.d_model)
    } == case.matrices


@each("case", CASES.values(), ids=CASES)
def test_flops_between_the_projections(case: Case) -> None:
    assert int(case.made().score_flops(RUN, None)) == case.flops


@each("case", CASES.values(), ids=CASES)
def test_rows_and_widths_of_the_cache(case: Case) -> None:
    assert [
        (int(spec.rows), int(spec.width), spec.dtype) for spec in case.made().cache()
    ] == case.cache


@each("case", CASES.values(), ids=CASES)
def test_every_kind_is_frozen_and_can_be_a_key(case: Case) -> None:
    matrices = functools.cache(lambda kind: kind.matrices(case.d_model, case.d_model))
    assert matrices(case.made()) is matrices(case.made())
    for field in dataclasses.fields(case.made())[:1]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(case.made(), field.name, 1)


def test_every_kind_has_a_case() -> None:
    # test_encoder_scores, test_indexer, test_vendor_families
    elsewhere = {"position_scores", "global_window", "block_sparse", "compressed", "shared_pools"}
    assert {case.kind for case in CASES.values()} | elsewhere == set(KINDS)


@pytest.mark.parametrize(
    "name", ["mamba", "mamba2", "delta", "lightning", "rglru", "rwkv", "rwkv5", "mlstm"]
)
def test_a_state_has_rows_per_sequence_only(name: str) -> None:
    assert {spec.per for spec in CASES[name].made().cache()} == {"sequence"}


@each(
    ("name", "tp", "split"),
    [
        ("mamba", 3, {"d_inner": 10}),
        ("mamba2", 3, {"n_heads": 2, "n_groups": 1}),
        ("delta", 2, {"n_heads": 3, "n_k_heads": 1}),
        ("lightning", 3, {"n_heads": 2}),
        ("short_convolution", 3, {"d_inner": 10}),
        ("rglru", 3, {"d_inner": 10, "n_heads": 2}),
        ("rwkv", 3, {"d_inner": 10}),
        ("rwkv5", 3, {"d_inner": 10}),  # 6 heads of 5
        ("mlstm", 3, {"n_heads": 2}),
        ("latent", 3, {"n_heads": 2}),
        ("grouped", 2, {"n_heads": 3, "n_kv_heads": 1}),
        ("grouped", 6, {"n_heads": 1, "n_kv_heads": 1}),  # each of 2 KV heads is on 3 devices
    ],
)
def test_heads_or_channels_are_split_over_devices(
    name: str, tp: int, split: dict[str, int]
) -> None:
    kind = CASES[name].made()
    assert kind.shard(tp) == dataclasses.replace(kind, **split)


def test_one_group_of_mamba2_is_on_every_device() -> None:
    kind = CASES["mamba2"].made()
    assert dataclasses.replace(kind, n_groups=1).shard(2).n_groups == 1
    assert dataclasses.replace(kind, n_groups=2).shard(2).n_groups == 1


@pytest.mark.parametrize(
    ("name", "tp", "wrong"),
    [
        ("mamba", 7, "7 does not divide 30 channels"),
        ("mamba2", 5, "5 does not divide 3 groups"),
        ("delta", 3, "3 does not divide 2 heads"),
        ("rwkv5", 5, "5 does not divide 6 heads"),
        ("grouped", 4, "4 does not divide 6 query heads"),
        ("grouped", 3, "3 does not divide 2 KV heads"),
        ("latent", 4, "4 does not divide 6 heads"),
    ],
)
def test_devices_must_divide_heads_or_channels(name: str, tp: int, wrong: str) -> None:
    with pytest.raises(AttncalcError, match=wrong):
        CASES[name].made().shard(tp)


COMPRESSED = {"n_heads": 4, "d_head": 6, "q_lora_rank": 12, "o_groups": 2, "o_lora_rank": 5}
PICKED = {"index_topk": 3, "index_n_heads": 3, "index_head_dim": 10}
BLOCK_SPARSE = {
    **GROUPED,
    "index_n_heads": 3,
    "index_head_dim": 7,
    "index_block_size": 16,
    "index_topk_blocks": 9,
}
WINDOW = Sliding(8)
WORDS: list[Any] = [
    # kind, keys, span, label, tag, headline
    (
        "grouped",
        {"n_heads": 8},
        FULL,
        "MHA",
        "MHA",
        "multi-head attention, 8 query and 8 KV heads x 125",
    ),
    (
        "grouped",
        GROUPED,
        FULL,
        "GQA",
        "GQA-2",
        "grouped-query attention, 6 query and 2 KV heads x 10",
    ),
    (
        "grouped",
        {**GROUPED, "n_kv_heads": 1, "d_v": 12},
        FULL,
        "MQA",
        "MQA",
        "multi-query attention, 6 query and 1 KV head x 10 (values x 12)",
    ),
    (
        "grouped",
        {**GROUPED, "d_v": 10},
        FULL,
        "GQA",
        "GQA-2",
        "grouped-query attention, 6 query and 2 KV heads x 10",
    ),
    ("grouped", {**GROUPED, "n_heads": 1, "n_kv_heads": 1}, FULL, "MHA", "MHA", None),
    (
        "differential",
        GROUPED,
        FULL,
        "GQA",
        "GQA-2",
        "differential grouped-query attention, 6 query and 2 KV heads x 10",
    ),
    ("pictures", GROUPED, FULL, "image-GQA", "image-GQA", "cross-attention to images"),
    (
        "block_sparse",
        BLOCK_SPARSE,
        FULL,
        "GQA",
        "GQA-2",
        "grouped-query attention, 6 query and 2 KV heads x 10, 9 blocks of 16 keys picked",
    ),
    (
        "latent",
        LATENT,
        FULL,
        "MLA",
        "MLA-32",
        "multi-head latent attention, 6 heads x 8 + 4, latent 32 + 4",
    ),
    (
        "latent",
        {**LATENT, "d_rope": 0},
        FULL,
        "MLA",
        "MLA-32",
        "multi-head latent attention, 6 heads x 8, latent 32",
    ),
    (
        "latent",
        {**LATENT, **PICKED, "index_topk": 2048},
        FULL,
        "MLA",
        "MLA-32",
        "multi-head latent attention, 6 heads x 8 + 4, latent 32 + 4, 2,048 keys picked by an "
        "indexer",
    ),
    (
        "compressed",
        COMPRESSED,
        WINDOW,
        "MQA",
        "MQA",
        "attention with one head whose keys are also the values, 4 query heads x 6",
    ),
    (
        "compressed",
        {**COMPRESSED, "compress_rate": 4},
        WINDOW,
        "HCA",
        "HCA-4",
        "attention with one head whose keys are also the values, 4 query heads x 6, pools of 4",
    ),
    (
        "compressed",
        {**COMPRESSED, **PICKED, "compress_rate": 4},
        WINDOW,
        "CSA",
        "CSA-4",
        "attention with one head whose keys are also the values, 4 query heads x 6, pools of 4, "
        "3 picked by an indexer",
    ),
    (
        "shared_pools",
        {**COMPRESSED, **PICKED, "compress_rate": 2, "owns_pools": True},
        WINDOW,
        "CSA2",
        "CSA2-2",
        "attention with one head whose keys are also the values, 4 query heads x 6, shared pools "
        "of 2, 3 picked by an "
        "indexer",
    ),
    (
        "global_window",
        {**GROUPED, "global_tokens": 1},
        WINDOW,
        "GQA",
        "GQA-2",
        "grouped-query attention, 6 query and 2 KV heads x 10, 1 global token",
    ),
    (
        "global_window",
        {**GROUPED, "global_tokens": 2},
        WINDOW,
        "GQA",
        "GQA-2",
        "grouped-query attention, 6 query and 2 KV heads x 10, 2 global tokens",
    ),
    (
        "global_window",
        {**GROUPED, "summary_block": 16},
        WINDOW,
        "GQA",
        "GQA-2",
        "grouped-query attention, 6 query and 2 KV heads x 10, a summary of every 16 tokens",
    ),
    (
        "global_window",
        {**GROUPED, "global_tokens": 0},
        WINDOW,
        "GQA",
        "GQA-2",
        "grouped-query attention, 6 query and 2 KV heads x 10",
    ),
    (
        "position_scores",
        {**GROUPED, "position_products": ["c2p"]},
        FULL,
        "GQA",
        "GQA-2",
        "grouped-query attention, 6 query and 2 KV heads x 10, a product with relative positions",
    ),
    (
        "position_scores",
        {**GROUPED, "position_products": ["c2p", "p2c"]},
        FULL,
        "GQA",
        "GQA-2",
        "grouped-query attention, 6 query and 2 KV heads x 10, two products with relative "
        "positions",
    ),
    (
        "position_scores",
        GROUPED,
        FULL,
        "GQA",
        "GQA-2",
        "grouped-query attention, 6 query and 2 KV heads x 10",
    ),
    ("delta", GATED_DELTA, FULL, "GDN", "GDN", "gated delta net, 6 states of 16 x 10"),
    (
        "delta",
        {**GATED_DELTA, "channel_decay": True},
        FULL,
        "KDA",
        "KDA",
        "Kimi delta attention, 6 states of 16 x 10",
    ),
    ("lightning", {"n_heads": 6, "d_head": 10}, FULL, "lightning", "lightning", None),
    (
        "mlstm",
        {"n_heads": 6, "d_head": 16, "d_v": 10},
        FULL,
        "mLSTM",
        "mLSTM",
        "mLSTM, 6 memories of 16 x 10",
    ),
]


@each(("kind", "keys", "span", "label", "tag", "headline"), WORDS)
def test_labels_tags_and_headlines(
    kind: str, keys: dict[str, Any], span: Span, label: str, tag: str, headline: str | None
) -> None:
    made = KINDS[kind].from_keys(keys, D_MODEL, span)
    assert (made.label, made.tag) == (label, tag)
    if headline is not None:
        assert made.headline == headline


def made(kind: str, keys: dict[str, Any], span: Span = FULL) -> Any:
    return KINDS[kind].from_keys(keys, D_MODEL, span)


@each(
    ("kind", "past", "words"),
    [
        (made("grouped", GROUPED), False, []),
        (made("differential", GROUPED), False, ["the kernel runs twice"]),
        (made("pictures", GROUPED), False, ["Text without an image skips"]),
        (made("latent", LATENT), False, ["expands K and V of the new tokens"]),
        (made("latent", LATENT), True, ["is absorbed"]),
        (
            made("latent", {**LATENT, **PICKED, "index_topk": 2048}),
            True,
            ["is absorbed", "picks 2,048 keys"],
        ),
        (made("compressed", COMPRESSED, WINDOW), False, []),
        (
            made("compressed", {**COMPRESSED, "compress_rate": 4}, WINDOW),
            False,
            ["Scores include those of pools"],
        ),
        (
            made("mlstm", {"n_heads": 6, "d_head": 16, "d_v": 10}),
            True,
            ["mLSTM: FLOPs are those of"],
        ),
        (made("none", {}), True, []),
        (Cross(made("grouped", GROUPED)), False, []),
        (Cross(made("grouped", GROUPED)), True, ["the encoder has already run"]),
    ],
)
def test_notes_on_flops_and_activations(kind: Any, past: bool, words: list[str]) -> None:
    notes = kind.notes(past)
    assert len(notes) == len(words)
    assert all(word in note for word, note in zip(words, notes, strict=True))


def test_another_window_keeps_the_pools() -> None:
    pools = made("compressed", {**COMPRESSED, "compress_rate": 4}, WINDOW).with_span(Sliding(5))
    assert pools.span == WindowAndPools(Sliding(5), Pools(4))
    assert made("compressed", COMPRESSED, WINDOW).with_span(FULL).span == FULL
    assert made("grouped", GROUPED).with_span(WINDOW).span == WINDOW
    assert made("mlstm", {"n_heads": 6, "d_head": 16, "d_v": 10}).with_span(WINDOW).span == FULL


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        (
            made("compressed", {**COMPRESSED, "compress_rate": 4}, WINDOW),
            {
                "kind": "HCA",
                **COMPRESSED,
                "compress_rate": 4,
                "index_topk": None,
                "span": "8 + all x 4",
            },
        ),
        (
            made("latent", {**LATENT, **PICKED}),
            {"kind": "MLA", **LATENT, **PICKED, "q_lora_rank": None, "gate": False},
        ),
        (
            made("grouped", {**GROUPED, "bias": True}),
            {"kind": "GQA", **GROUPED, "bias": [*"qkvo"], "d_v": 10},
        ),
        (
            made("global_window", {**GROUPED, "global_tokens": 2}, WINDOW),
            {"kind": "GQA", "global_tokens": 2, "summary_block": None, "span": "window 8"},
        ),
        (
            made("position_scores", {**GROUPED, "position_products": ["c2p"], "position_rows": 9}),
            {"position_products": ["c2p"], "position_rows": 9},
        ),
        (CASES["rwkv5"].made(), {"kind": "RWKV-5", "d_inner": 30, "d_head": 5}),
        (
            CASES["delta"].made(),
            {"kind": "GDN", **GATED_DELTA, "gate_rank": None, "channel_decay": False},
        ),
        (Cross(made("grouped", GROUPED)), {"kind": "cross-GQA", "n_heads": 6, "span": "source"}),
    ],
)
def test_facts_repeat_the_keys(kind: Any, facts: dict[str, Any]) -> None:
    assert {name: kind.facts()[name] for name in facts} == facts


@pytest.mark.parametrize(
    ("kind", "widths"),
    [
        (
            made("grouped", {**GROUPED, "d_v": 12, "fused": True, "gate": True}),
            (6, 2, 10, 12, 0, True, 6 * 12),
        ),
        (made("grouped", {**GROUPED, "gate": "head"}), (6, 2, 10, 10, 0, False, 6)),
        (Cross(made("grouped", {**GROUPED, "fused": True})), (6, 2, 10, 10, 0, False, 0)),
        (made("compressed", COMPRESSED, WINDOW), (4, 1, 6, 6, 0, False, 0)),
        (made("pictures", GROUPED), (0, 0, 0, 0, 0, False, 0)),
        (made("mlstm", {"n_heads": 6, "d_head": 16, "d_v": 10}), (0, 0, 0, 0, 0, False, 0)),
        # absorbed, all heads read the latent and the rotary key
        (made("latent", LATENT), (6, 1, 32 + 4, 32, 0, False, 0)),
    ],
)
def test_widths_around_the_kernel_after_a_past(kind: Any, widths: tuple[int, ...]) -> None:
    assert tuple(kind.widths(RUN)) == widths


@pytest.mark.parametrize(
    ("tokens", "multiplied"),
    [
        (None, {}),
        # Longformer has the matrices even if no token is global
        (0, {"W_q_global": (None, 1), "W_k_global": (None, 1), "W_v_global": (None, 1)}),
        # the global tokens have queries of their own, and every token keys and values for them
        (2, {"W_q_global": ("first", 2), "W_k_global": ("keys", 1), "W_v_global": ("keys", 1)}),
    ],
)
def test_matrices_of_global_tokens(tokens: int | None, multiplied: dict[str, Any]) -> None:
    keys = {**GROUPED, "n_kv_heads": 6, "bias": ["q", "v"]} | (
        {} if tokens is None else {"global_tokens": tokens}
    )
    matrices = made("global_window", keys, WINDOW).matrices(D_MODEL, D_MODEL)
    own = {m.name: m for m in matrices if m.name.endswith("_global")}
    assert {name: (m.applied_to, m.times) for name, m in own.items()} == multiplied
    biases = {"W_q_global": 60, "W_k_global": 0, "W_v_global": 60}
    assert all((m.rows, m.cols, m.bias) == (D_MODEL, 60, biases[name]) for name, m in own.items())


def test_scores_of_global_tokens_and_summaries() -> None:
    """5 new tokens of 7 in a window of 8 are 35 pairs without a mask, of 2 FLOP for each of 6 heads
    x (10 + 10).
    """
    pair = 2 * 6 * (10 + 10)
    assert made("global_window", GROUPED, WINDOW).score_flops(RUN, None) == pair * 35
    # each query scores 2 global keys, and 2 global queries all 7 keys
    assert made("global_window", {**GROUPED, "global_tokens": 2}, WINDOW).score_flops(
        RUN, None
    ) == pair * (35 + 2 * 12)
    # 7 tokens have 2 whole blocks of 3
    assert made("global_window", {**GROUPED, "summary_block": 3}, WINDOW).score_flops(
        RUN, None
    ) == pair * (35 + 5 * 2)


def test_summaries_pass_the_matrices_of_keys_and_values() -> None:
    matrices = made("global_window", {**GROUPED, "summary_block": 3}, WINDOW).matrices(
        D_MODEL, D_MODEL
    )
    assert {m.name for m in matrices if m.table} == {"W_k", "W_v"}
    assert {m.table.rows_projected(4, 20) for m in matrices if m.table} == {4 * 6}


@pytest.mark.parametrize(
    ("keys", "own", "rows"),
    [
        ({}, {}, 0),
        # XLNet: one row per distance, 2 per token, projected for every sequence
        ({"position_products": ["c2p"]}, {"W_position_k": ("queries", 0, 2)}, 5 * (5 + 7)),
        # DeBERTa: a table of 9 rows is projected once
        (
            {"position_products": ["c2p", "p2c"], "position_rows": 9, "position_bias": ["p2c"]},
            {"W_position_k": ("table", 0, 1), "W_position_q": ("table", 60, 1)},
            (5 + 7) * 9,
        ),
        # of 100 rows, DeBERTa v2 projects all, and v1 the 14 that 7 tokens use
        (
            {"position_products": ["c2p"], "position_rows": 100},
            {"W_position_k": ("table", 0, 1)},
            5 * 100,
        ),
        (
            {"position_products": ["p2c"], "position_rows": 100, "position_rows_grow": True},
            {"W_position_q": ("table", 0, 1)},
            7 * 14,
        ),
        # DeBERTa v3: W_q and W_k project the table
        (
            {"position_products": ["c2p"], "position_rows": 9, "shares_position_projections": True},
            {},
            5 * 9,
        ),
    ],
)
def test_products_with_relative_positions(
    keys: dict[str, Any], own: dict[str, Any], rows: int
) -> None:
    kind = made("position_scores", {**GROUPED, **keys})
    matrices = {m.name: m for m in kind.matrices(D_MODEL, D_MODEL)}
    added = {name: m for name, m in matrices.items() if name.startswith("W_position")}
    assert {name: (m.applied_to, m.bias, m.times) for name, m in added.items()} == own
    assert all((m.rows, m.cols) == (D_MODEL, 60) for m in added.values())
    shared = {"W_q", "W_k"} if keys.get("shares_position_projections") else set()
    assert {name for name, m in matrices.items() if m.table} - set(added) == shared
    assert kind.score_flops(RUN, None) == 2 * 6 * (35 * (10 + 10) + rows * 10)


@pytest.mark.parametrize(("tokens", "rows"), [(3, 6), (49, 98), (50, 100), (51, 100)])
def test_rows_of_a_growing_table(tokens: int, rows: int) -> None:
    assert Table(100, grows=True).rows_projected(4, tokens) == rows
    assert Table(100).rows_projected(4, tokens) == 100


@pytest.mark.parametrize(
    ("heads", "allowed"),
    [
        ({"n_heads": 8, "n_kv_heads": 3}, "1, 2, 4, 8"),
        ({"n_heads": 60, "n_kv_heads": 7}, "1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60"),  # 12 of 12
        # 12 of 13 up to 512
        ({"n_heads": 704, "n_kv_heads": 7}, "1, 2, 4, 8, 11, 16, 22, 32, 44, 64, 88, 176, ..."),
        # 12 of 24
        ({"n_heads": 360, "n_kv_heads": 7}, "1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 18, ..."),
        # divisors up to 512
        ({"n_heads": 64 * 64, "n_kv_heads": 3}, "1, 2, 4, 8, 16, 32, 64, 128, 256, 512"),
        ({"n_heads": 513, "n_kv_heads": 2}, "1, 3, 9, 19, 27, 57, 171"),
    ],
)
def test_the_tip_lists_numbers_of_kv_heads_that_divide(heads: dict[str, int], allowed: str) -> None:
    with pytest.raises(AttncalcError, match="does not divide") as caught:
        made("grouped", {**heads, "d_head": 8})
    assert caught.value.tip.endswith(f": {allowed}")


def test_a_formula_names_how_often_a_matrix_multiplies_only_if_that_is_not_once() -> None:
    rows = symbol("d_model", 10, "width")
    assert formula_of(Matrix("W", rows, 5).multiplied).text == "d_model * 5"
    assert formula_of(Matrix("W", rows, 5, times=3).multiplied).text == "3 * d_model * 5"


OF_EACH_KIND = {
    **{case.kind: case.made() for case in CASES.values()},
    **{kind: made(kind, keys, span) for kind, keys, span, *_ in WORDS},
    "cross": Cross(made("grouped", GROUPED)),
}


@each("name", [*KINDS, "cross"])
def test_every_kind_names_the_paper_or_the_code_of_its_formulas(name: str) -> None:
    found = re.search(r"arXiv:\d{4}\.\d{4,5}|modeling_\w+\.py", OF_EACH_KIND[name].source)
    assert found if name != "none" else not found


@each("name", [*KINDS, "cross"])
def test_a_cached_row_is_stored_once_unless_a_class_repeats_it(name: str) -> None:
    assert all(spec.repeated == 1 for spec in OF_EACH_KIND[name].cache())
    falcon = made("grouped", {**GROUPED, "repeats_kv": True, "extra_states": {"last": [2, 11]}})
    # 6 query heads, each with a copy of one of 2
    assert [spec.repeated for spec in falcon.cache()] == [6 // 2, 1]


@each("name", [*KINDS, "cross"])
def test_only_mlas_latent_has_a_rotary_key_in_it(name: str) -> None:
    rotary = sum(spec.rotary for spec in OF_EACH_KIND[name].cache())
    assert rotary == (OF_EACH_KIND[name].d_rope if name == "latent" else 0)


def test_words_of_cross_attention_name_its_heads() -> None:
    cross = Cross(made("grouped", GROUPED, WINDOW))
    assert (cross.label, cross.tag, cross.span) == ("cross-GQA", "cross-GQA-2", FULL)
    assert cross.headline == "cross-attention, grouped-query attention, 6 query and 2 KV heads x 10"


def test_sources_of_formulas() -> None:
    assert "arXiv:2512.02556" not in made("latent", LATENT).source
    assert "arXiv:2512.02556, 2.1 (indexer)" in made("latent", {**LATENT, **PICKED}).source


def test_a_window_is_needed_beside_global_tokens() -> None:
    with pytest.raises(AttncalcError, match="window: is missing"):
        made("global_window", GROUPED)


def test_widths_of_mla_without_a_past() -> None:
    """Each head has a key of 8 + 4 and a value of 9; the latent is held, and what the 8 were copied
    from.
    """
    kind = made("latent", {**LATENT, "gate": "head"})
    assert (
        tuple(kind.widths(Run(1, 5, 5)))
        == tuple(kind.widths())
        == (6, 6, 12, 9, 36 + 6 * 8, False, 6)
    )


@pytest.mark.parametrize(
    ("span", "label", "description", "reach"),
    [
        (FULL, "full", "the whole context", None),
        (Sliding(4096), "window 4,096", "a window of 4,096 tokens", 4096),
        (Chunked(8192), "chunk 8,192", "chunks of 8,192 tokens", 8192),
        (Selected(2048), "top 2,048", "the 2,048 tokens that an indexer picks", None),
        (
            Blocks(64, 1024),
            "top 1,024 x 64",
            "the 1,024 blocks of 64 tokens that an indexer picks",
            None,
        ),
        (
            WindowAndPools(WINDOW, Pools(4)),
            "8 + all x 4",
            "a window of 8 tokens and pools of 4",
            None,
        ),
        (
            WindowAndPools(WINDOW, Pools(4, 512)),
            "8 + 512 x 4",
            "a window of 8 tokens and pools of 4",
            None,
        ),
    ],
)
def test_spans_in_words(span: Span, label: str, description: str, reach: int | None) -> None:
    assert (span.label, span.description, span.reach) == (label, description, reach)


def test_a_decode_step_reads_a_window_and_whole_pools() -> None:
    # 30 tokens have 7 whole pools of 4
    assert WindowAndPools(WINDOW, Pools(4)).cached_tokens(30) == 8 + 7


@each("case", CASES.values(), ids=CASES)
def test_facts_name_the_kind_and_are_plain_data(case: Case) -> None:
    facts = case.made().facts()
    assert facts["kind"] == case.made().label
    assert {type(value) for value in facts.values()} <= {int, str, bool, list, type(None)}


@pytest.mark.parametrize(
    ("tokens", "waiting", "last"),
    [(1, 1, 0), (3, 3, 0), (4, 0, 4), (7, 3, 4), (8, 0, 4), (30, 2, 4)],
)
def test_tokens_cached_beside_pools_of_four(tokens: int, waiting: int, last: int) -> None:
    assert Unpooled(4).cached_tokens(tokens) == waiting
    assert LastPool(4).cached_tokens(tokens) == last


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ({"d_inner": 30, "d_head": 4}, "4 does not divide d_inner 30"),
        ({"d_inner": 20, "d_head": 5}, "20 is not d_model 30"),
    ],
)
def test_wrong_sizes_of_rwkv5_are_errors(keys: dict[str, int], wrong: str) -> None:
    with pytest.raises(AttncalcError, match=wrong):
        KINDS["rwkv5"].from_keys(keys, 30, FULL)


@pytest.mark.parametrize(
    "keys", [{"index_topk": 3}, {**PICKED}, {"index_topk": 3, "compress_rate": 4}]
)
def test_an_indexer_of_pools_needs_all_its_keys(keys: dict[str, int]) -> None:
    with pytest.raises(
        AttncalcError, match="needs index_n_heads, index_head_dim and compress_rate"
    ):
        KINDS["compressed"].from_keys({**COMPRESSED, **keys}, D_MODEL, WINDOW)


def test_groups_of_the_output_must_divide_the_heads() -> None:
    with pytest.raises(AttncalcError, match="3 does not divide n_heads 4"):
        KINDS["compressed"].from_keys({**COMPRESSED, "o_groups": 3}, D_MODEL, WINDOW)


@pytest.mark.parametrize("heads", [(3, 1), (6, 3), (3, 3), (2, 1)])
def test_differential_attention_needs_pairs_of_heads(heads: tuple[int, int]) -> None:
    with pytest.raises(AttncalcError, match="do not form pairs"):
        KINDS["differential"].from_keys(
            {"n_heads": heads[0], "n_kv_heads": heads[1], "d_head": 8}, D_MODEL, FULL
        )


def problem(kind: str, keys: dict[str, Any]) -> str:
    """Return what is wrong with the keys of a kind in a model file, or ''."""
    base = {
        "d_model": D_MODEL,
        "n_layers": 1,
        "d_ff": 8,
        "norm": "rmsnorm",
        "vocab_size": 10,
        "attention": kind,
    }
    own = {key: value for key, value in keys.items() if key in kind_keys(kind)}
    try:
        check(Document("f", own, {}), {"type": "object", "properties": kind_keys(kind)})
        build_model(Document("f", base | keys, {}), "m")
    except AttncalcError as error:
        return error.message
    return ""


WINDOWED = {**GROUPED, "window": 8}


@pytest.mark.parametrize(
    ("kind", "keys", "wrong", "expected"),
    [
        ("grouped", {**GROUPED, "bias": ["q", "k"]}, {"bias": ["q", "q"]}, "has an item twice"),
        ("grouped", GROUPED, {"n_kv_heads": 0}, "0 is below 1"),
        (
            "grouped",
            {**GROUPED, "extra_projections": {"mixer": [5]}},
            {"extra_projections": {"mixer": []}},
            "empty",
        ),
        (
            "grouped",
            {**GROUPED, "extra_states": {"last": [1]}},
            {"extra_states": {"last": [0]}},
            "0 is below 1",
        ),
        (
            "position_scores",
            {**GROUPED, "position_products": ["c2p", "p2c"]},
            {"position_products": ["c2p", "c2p"]},
            "has an item twice",
        ),
        # Longformer without a task has no global token
        ("global_window", {**WINDOWED, "global_tokens": 0}, {"global_tokens": -1}, "-1 is below 0"),
        ("latent", {**LATENT, "d_rope": 0}, {"d_rope": -1}, "-1 is below 0"),
        ("global_window", {**WINDOWED, "summary_block": 1}, {"summary_block": 0}, "0 is below 1"),
    ],
)
def test_what_a_model_file_may_give_for_a_key(
    kind: str, keys: dict[str, Any], wrong: dict[str, Any], expected: str
) -> None:
    assert problem(kind, keys) == ""
    assert expected in problem(kind, keys | wrong)


KEYS_OF_EACH_KIND = {
    kind: {**keys, **({"window": 8} if span == WINDOW else {})} for kind, keys, span, *_ in WORDS
}
KEYS_OF_EACH_KIND |= {case.kind: {**case.keys, "d_model": case.d_model} for case in CASES.values()}


@each(("kind", "key"), [(kind, key) for kind in KINDS for key in required_keys(KINDS[kind])])
def test_a_model_file_must_have_the_keys_of_a_kind(kind: str, key: str) -> None:
    keys = KEYS_OF_EACH_KIND[kind]
    assert problem(kind, keys) == ""
    without = {name: value for name, value in keys.items() if name != key}
    assert f"'{key}' is missing" in problem(kind, without)
