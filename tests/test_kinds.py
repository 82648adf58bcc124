"""Every kind of attention and recurrence, with sizes that are all different, so that no two of them can be mixed up.

The numbers are worked out from the papers and the classes that each kind names, with their arithmetic beside them.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import pytest

from attncalc import AttncalcError
from attncalc.attention import KINDS
from attncalc.attention.compressed import LastPool, Unpooled
from attncalc.attention.span import FULL
from attncalc.workload import Run

D_MODEL = 1000
RUN = Run(sequences=1, new=5, context=7)


class Case(NamedTuple):
    """A kind's keys, and what is expected of it.

    Attributes:
        kind: its name in model files.
        keys: its keys.
        matrices: parameters by the matrix's name.
        flops: FLOPs of RUN between the projections, all pairs counted.
        cache: rows and width of each cached tensor, with its dtype.
        d_model: width of the model.
    """

    kind: str
    keys: dict[str, Any]
    matrices: dict[str, int]
    flops: int
    cache: list[tuple[int, int, str | None]]
    d_model: int = D_MODEL

    def made(self) -> Any:
        return KINDS[self.kind].from_keys(self.keys, self.d_model, FULL)


GATED_DELTA = {"n_heads": 6, "d_head": 16, "d_v": 10, "d_conv": 4, "n_k_heads": 2}
GROUPED = {"n_heads": 6, "n_kv_heads": 2, "d_head": 10}
CASES = {
    # the state is updated and read: 2 multiply-adds per element
    "mamba": Case(
        "mamba",
        {"d_inner": 30, "d_state": 7, "d_conv": 4, "dt_rank": 11},
        {
            "W_in": D_MODEL * 2 * 30,
            "conv": 30 * 4,
            "W_x": 30 * (11 + 2 * 7),
            "W_dt": 11 * 30 + 30,  # its bias is always there
            "A_log": 30 * 7,
            "D": 30,
            "W_out": 30 * D_MODEL,
        },
        2 * 2 * 5 * 30 * 7,
        [(30, 4, None), (30, 7, "fp32")],
    ),
    "mamba with all options": Case(
        "mamba",
        {
            "d_inner": 30,
            "d_state": 7,
            "d_conv": 4,
            "dt_rank": 11,
            "conv_bias": True,
            "proj_bias": True,
            "dt_norms": True,
        },
        {
            "W_in": D_MODEL * 2 * 30 + 2 * 30,
            "conv": 30 * 4 + 30,
            "W_x": 30 * (11 + 2 * 7),
            "W_dt": 11 * 30 + 30,
            "A_log": 30 * 7,
            "D": 30,
            "dt_b_c_norms": 11 + 7 + 7,
            "W_out": 30 * D_MODEL + D_MODEL,
        },
        2 * 2 * 5 * 30 * 7,
        [(30, 4, None), (30, 7, "fp32")],
    ),
    # the convolution has 6 * 5 inner channels, and B and C of 3 groups, which are 7 wide
    "mamba2": Case(
        "mamba2",
        {"n_heads": 6, "d_head": 5, "d_state": 7, "d_conv": 4, "n_groups": 3},
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
        {
            "n_heads": 6,
            "d_head": 5,
            "d_state": 7,
            "d_conv": 4,
            "n_groups": 3,
            "conv_bias": True,
            "proj_bias": True,
            "inner_norm": True,
        },
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
    # 2 heads of queries and keys, 6 of values; a key reads the state, the difference is written, a query reads it
    "delta": Case(
        "delta",
        GATED_DELTA,
        {
            "W_q": D_MODEL * 2 * 16,
            "W_k": D_MODEL * 2 * 16,
            "W_v": D_MODEL * 6 * 10,
            "conv": (2 * 2 * 16 + 6 * 10) * 4,
            "W_beta": D_MODEL * 6,
            "W_decay": D_MODEL * 6,
            "dt_A": 2 * 6,
            "W_gate": D_MODEL * 6 * 10,
            "norm": 10,
            "W_o": 6 * 10 * D_MODEL,
        },
        3 * 2 * 5 * 6 * 16 * 10,
        [(2 * 2 * 16 + 6 * 10, 4, None), (6 * 16, 10, "fp32")],
    ),
    "delta with channel_decay": Case(
        "delta",
        {**GATED_DELTA, "channel_decay": True, "gate_rank": 3},
        {
            "W_q": D_MODEL * 2 * 16,
            "W_k": D_MODEL * 2 * 16,
            "W_v": D_MODEL * 6 * 10,
            "conv": (2 * 2 * 16 + 6 * 10) * 4,
            "W_beta": D_MODEL * 6,
            "W_decay_a": D_MODEL * 3,
            "W_decay_b": 3 * 2 * 16,
            "dt_A": 2 * 16 + 6,  # a step size per channel of the keys, and A per head
            "W_gate_a": D_MODEL * 3,
            "W_gate_b": 3 * 6 * 10,
            "norm": 10,
            "W_o": 6 * 10 * D_MODEL,
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
        {"time_mix": 3 * 30, "W_k": 900, "W_v": 900, "W_r": 900, "decay_and_first": 2 * 30, "W_o": 900},
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
    "grouped": Case(
        "grouped",
        GROUPED,
        {"W_q": D_MODEL * 60, "W_k": D_MODEL * 20, "W_v": D_MODEL * 20, "W_o": 60 * D_MODEL},
        2 * 6 * 5 * 7 * (10 + 10),
        [(2 * 2, 10, None)],
    ),
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
        {"W_q": D_MODEL * 60, "W_k": D_MODEL * 20 + 20, "W_o": 60 * D_MODEL, "q_norm": 10, "k_norm": 10, "vectors": 13},
        2 * 6 * 5 * 7 * (10 + 10),
        [(2 * 2, 10, None)],
    ),
    "grouped with further matrices and states": Case(
        "grouped",
        {**GROUPED, "extra_projections": {"mixer": [3, 5, 7]}, "extra_states": {"last": [2, 11]}, "gate": "head"},
        {
            "W_q": D_MODEL * 60,
            "W_k": D_MODEL * 20,
            "W_v": D_MODEL * 20,
            "W_gate": D_MODEL * 6,
            "mixer": 3 * 5 * 7,
            "W_o": 60 * D_MODEL,
        },
        2 * 6 * 5 * 7 * (10 + 10),
        [(2 * 2, 10, None), (2, 11, None)],
    ),
    # the kernel runs once for each half of a pair's values; 4 vectors of lambdas
    "differential": Case(
        "differential",
        GROUPED,
        {"W_q": D_MODEL * 60, "W_k": D_MODEL * 20, "W_v": D_MODEL * 20, "W_o": 60 * D_MODEL, "lambdas": 4 * 10},
        2 * 2 * 6 * 5 * 7 * (10 + 10),
        [(2 * 2, 10, None)],
    ),
    # K and V pass a convolution of 2 * (10 + 10) channels; its columns and those of the layer's others are cached
    "relative": Case(
        "relative",
        {**GROUPED, "d_rel": 3, "rel_extent": 17, "d_conv": 4, "layer_channels": 100},
        {
            "W_q": D_MODEL * 60,
            "W_k": D_MODEL * 20,
            "W_v": D_MODEL * 20,
            "W_o": 60 * D_MODEL,
            "W_rel": D_MODEL * 6 * 3,
            "rel_table": 3 * 17,
            "conv": 40 * 4,
        },
        2 * 6 * 5 * 7 * (10 + 10),
        [(2 * 2, 10, None), (40 + 100, 4, "fp32")],
    ),
    # Llama 3.2 Vision: text without an image skips the layer, which has its parameters all the same
    "pictures": Case(
        "pictures",
        GROUPED,
        {"W_q": D_MODEL * 60, "W_k": D_MODEL * 20, "W_v": D_MODEL * 20, "W_o": 60 * D_MODEL},
        0,
        [],
    ),
    # without a past, the latent is expanded: QK over 8 + 4, PV over 6; here 5 of 7 tokens are new
    "latent": Case(
        "latent",
        {"n_heads": 6, "kv_lora_rank": 32, "d_nope": 8, "d_rope": 4, "d_v": 9, "q_lora_rank": 20, "gate": True},
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
        # expanding the 2 latents of the past is cheaper than absorbing: 8,820 + 13,056 and not 28,560
        2 * 6 * 35 * (12 + 9) + 2 * 2 * 32 * 6 * (8 + 9),
        [(1, 32 + 4, None)],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_parameters_of_every_matrix(case: Case) -> None:
    assert {m.name: int(m.params) for m in case.made().matrices(case.d_model, case.d_model)} == case.matrices


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_flops_between_the_projections(case: Case) -> None:
    assert int(case.made().score_flops(RUN, None)) == case.flops


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_rows_and_widths_of_the_cache(case: Case) -> None:
    assert [(int(spec.rows), int(spec.width), spec.dtype) for spec in case.made().cache()] == case.cache


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_kind_is_frozen_and_can_be_a_key(case: Case) -> None:
    assert {case.made(): 1}[case.made()] == 1
    for field in dataclasses.fields(case.made())[:1]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(case.made(), field.name, 1)


def test_every_kind_has_a_case() -> None:
    elsewhere = {"position_scores", "global_window", "block_sparse", "compressed"}  # test_encoder_scores, test_indexer
    assert {case.kind for case in CASES.values()} | elsewhere == set(KINDS)


@pytest.mark.parametrize("name", ["mamba", "mamba2", "delta", "lightning", "rglru", "rwkv", "rwkv5", "mlstm"])
def test_no_tensor_of_a_state_scales_with_the_context(name: str) -> None:
    assert {spec.scales_with for spec in CASES[name].made().cache()} == {"never"}


@pytest.mark.parametrize(
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
def test_heads_or_channels_are_split_over_devices(name: str, tp: int, split: dict[str, int]) -> None:
    kind = CASES[name].made()
    assert kind.shard(tp) == dataclasses.replace(kind, **split)


def test_one_group_of_mamba2_is_on_every_device() -> None:
    kind = dataclasses.replace(CASES["mamba2"].made(), n_groups=1)
    assert kind.shard(2).n_groups == 1


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


@pytest.mark.parametrize(
    ("name", "label", "tag"),
    [
        ("delta", "GDN", "GDN"),
        ("delta with channel_decay", "KDA", "KDA"),
        ("rwkv5", "RWKV-5", "RWKV-5"),
        ("mlstm", "mLSTM", "mLSTM"),
        ("lightning", "lightning", "lightning"),
        ("grouped", "GQA", "GQA-2"),
        ("pictures", "image-GQA", "image-GQA"),
        ("latent", "MLA", "MLA-32"),
    ],
)
def test_labels_and_tags(name: str, label: str, tag: str) -> None:
    kind = CASES[name].made()
    assert (kind.label, kind.tag) == (label, tag)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_facts_name_the_kind_and_are_plain_data(case: Case) -> None:
    facts = case.made().facts()
    assert facts["kind"] == case.made().label
    assert {type(value) for value in facts.values()} <= {int, str, bool, list, type(None)}


@pytest.mark.parametrize(
    ("tokens", "waiting", "last"), [(1, 1, 0), (3, 3, 0), (4, 0, 4), (7, 3, 4), (8, 0, 4), (30, 2, 4)]
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


@pytest.mark.parametrize("heads", [(3, 1), (6, 3), (3, 3)])
def test_differential_attention_needs_pairs_of_heads(heads: tuple[int, int]) -> None:
    with pytest.raises(AttncalcError, match="do not form pairs"):
        KINDS["differential"].from_keys({"n_heads": heads[0], "n_kv_heads": heads[1], "d_head": 8}, D_MODEL, FULL)
