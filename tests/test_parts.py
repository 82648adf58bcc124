"""Parts of totals: figures that the total of a whole model would hide, each with its arithmetic."""

import dataclasses
from typing import Any

import pytest

from attncalc import (
    AttncalcError,
    Cross,
    Grouped,
    Head,
    Latent,
    Layers,
    Mlp,
    ModelSpec,
    Stack,
    Workload,
    flops,
    load,
    params,
)
from attncalc.attention import FULL, KINDS
from attncalc.cost.common import cache_dtype, compute_dtype
from attncalc.quantity import quantity

HEADS = Grouped(4, 2, 8)


def model(mlp: Mlp | None = None, head: Head | None = None) -> ModelSpec:
    """3 layers of d_model 16: attention of 16 * (32 + 2 * 16) + 32 * 16 = 1,536 parameters each."""
    group = Layers("layers", 3, attention=HEADS, mlp=mlp, norms=0)
    return ModelSpec(
        "m", "m", (Stack("decoder", (group,), 16, final_norm=False),), vocab_size=10, head=head
    )


def test_a_token_uses_its_experts_and_the_shared_ones() -> None:
    experts = Mlp(24, gated=True, n_experts=8, n_experts_per_token=2, n_shared_experts=1)
    parameters = params(model(experts))
    expert, router = 3 * 16 * 24, 16 * 8
    assert parameters.mlp == 3 * (router + 9 * expert)
    assert parameters.active - parameters.attention - parameters.embedding == 3 * (
        router + 3 * expert
    )
    assert flops(model(experts), Workload.prefill(1, 5)).mlp == 2 * 5 * 3 * (router + 3 * expert)


def test_a_token_cannot_use_more_experts_than_exist() -> None:
    assert Mlp(24, n_experts=2, n_experts_per_token=2).experts_used == 2
    with pytest.raises(AttncalcError, match="3 is more than the 2 experts"):
        Mlp(24, n_experts=2, n_experts_per_token=3)


def test_a_model_of_attention_has_no_other_parameters() -> None:
    parameters = params(model())
    assert (parameters.mlp, parameters.head, parameters.norm) == (0, 0, 0)
    assert parameters.total == 3 * 1_536 + 10 * 16
    assert flops(model(), Workload.prefill(1, 5)).mlp == 0


def test_embedding_norm_and_final_norm_both_count() -> None:
    """A gain and a bias of 16, before the first layer and after the last."""
    stack = dataclasses.replace(
        model().main, norm="layernorm", final_norm=True, embedding_norm=True
    )
    assert params(dataclasses.replace(model(), stacks=(stack,))).norm == 2 * 2 * 16


def test_a_tied_head_adds_no_matrix() -> None:
    # 16 * 10, and a bias of 10
    assert params(model(head=Head("lm"))).head == 160
    assert params(model(head=Head("lm", bias=True))).head == 170
    assert params(model(head=Head("lm", tied=True, bias=True))).head == 10
    assert params(model(head=Head("pooler"))).head == 16 * 16 + 16


def test_qk_is_half_of_dense_scores_if_keys_and_values_are_equally_wide() -> None:
    """3 layers * 2 * 4 heads * 8 * 5 * 5."""
    model_flops = flops(model(), Workload.prefill(1, 5))
    assert model_flops.qk_dense == 3 * 2 * 4 * 8 * 25
    assert model_flops.scores_dense == 2 * model_flops.qk_dense


def test_a_training_step_explains_its_rule() -> None:
    assert "3 x the forward pass" in flops(model(), Workload.train(1, 5)).rule
    assert flops(model(), Workload.prefill(1, 5)).rule == ""


def test_a_tp_that_does_not_divide_a_width_is_an_error() -> None:
    with pytest.raises(AttncalcError, match="does not divide 4 heads"):
        Latent(4, 16, 8, 4, 8).shard(3)
    with pytest.raises(AttncalcError, match="does not divide 6 KV heads"):
        Grouped(12, 6, 8).shard(4)
    with pytest.raises(AttncalcError, match="--tp 5 does not divide the width of the MLP, 24"):
        Mlp(24).shard(5)


@pytest.mark.parametrize(
    ("kv_heads", "label", "tag", "headline"),
    [
        (4, "MHA", "MHA", "multi-head attention, 4 query and 4 KV heads x 8"),
        (2, "GQA", "GQA-2", "grouped-query attention, 4 query and 2 KV heads x 8"),
        (1, "MQA", "MQA", "multi-query attention, 4 query and 1 KV head x 8"),
    ],
)
def test_the_number_of_kv_heads_decides_the_label(
    kv_heads: int, label: str, tag: str, headline: str
) -> None:
    kind = Grouped(4, kv_heads, 8)
    assert (kind.label, kind.tag, kind.headline) == (label, tag, headline)
    assert Grouped(4, kv_heads, 8, 8).headline == headline
    assert Grouped(4, kv_heads, 8, 12).headline == f"{headline} (values x 12)"
    assert Cross(kind).tag == f"cross-{tag}"


def test_notes_differ_with_tokens_in_the_past() -> None:
    mla, cross = Latent(4, 16, 8, 4, 8), Cross(HEADS)
    assert "absorbed" in mla.notes(past=True)[0]
    assert "expands" in mla.notes(past=False)[0]
    assert "encoder has already run" in cross.notes(past=True)[0]
    assert cross.notes(past=False) == ()


def test_the_workloads_dtype_overrides_the_models() -> None:
    small, workload = load("gpt2"), Workload.decode(1, 8, dtype="bf16", kv_dtype="fp8")
    assert (compute_dtype(small, workload).name, cache_dtype(small, workload).name) == (
        "bf16",
        "fp8",
    )
    assert cache_dtype(small, Workload.decode(1, 8, dtype="bf16")).name == "bf16"
    assert cache_dtype(small, Workload.decode(1, 8)).name == small.dtype
    with pytest.raises(AttncalcError, match="dtype of a cache"):
        compute_dtype(small, Workload.decode(1, 8, dtype="q8_0"))


def test_one_stacks_embeddings_are_written_out_and_two_stacks_have_a_name_each() -> None:
    one = dataclasses.replace(
        model(), stacks=(dataclasses.replace(model().main, learned_positions=6),)
    )
    assert params(one).embedding == (10 + 6) * 16
    assert params(one).embedding.formula.text == "V * d_model + learned_positions * d_model"
    two = params(load("t5-base")).embedding
    assert two.formula.text.startswith(
        "params_embedding_tokens + params_embedding_positions_encoder"
    )


@pytest.mark.parametrize(("ranks", "rows", "named"), [(1, 10, False), (2, 5, True), (3, 4, True)])
def test_ranks_of_attention_divide_the_lm_head(ranks: int, rows: int, named: bool) -> None:
    head = params(model(head=Head("lm", ranks=ranks))).head
    assert head == 16 * rows
    assert ("attn_dp" in head.formula.text) is named


def test_an_lm_head_without_a_vocabulary_has_no_parameters() -> None:
    assert params(dataclasses.replace(model(head=Head("lm")), vocab_size=None)).head == 0


@pytest.mark.parametrize(("width", "named"), [(64, "d_source"), (16, "d_model")])
def test_the_width_of_an_encoder_is_named_if_it_is_not_the_decoders(width: int, named: str) -> None:
    encoder = dataclasses.replace(model().main, name="encoder", d_model=width, input="source")
    both = dataclasses.replace(model(), stacks=(encoder, model().main))
    assert quantity(both.symbolic().d_source).formula.text == named
    assert (both.d_source, type(both.plain().d_source)) == (width, int)


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({}, {"vocabulary": "10", "maximum context": "unknown"}),
        ({"vocab_size": None}, {"vocabulary": "none"}),
        ({"tp": 2}, {"tensor-parallel devices": "2"}),
        ({"assumed": "All layers are equal."}, {"assumed": "All layers are equal."}),
    ],
)
def test_a_notebooks_table_has_a_row_per_fact_that_is_known(
    changes: dict[str, Any], rows: dict[str, str]
) -> None:
    html = dataclasses.replace(model(), **changes)._repr_html_()
    optional = {"tensor-parallel devices", "assumed"}
    assert {name for name in optional if f">{name}<" in html} == optional & set(rows)
    assert all(f">{name}</th><td>{text}<" in html for name, text in rows.items())


def test_facts_of_a_model_without_a_vocabulary() -> None:
    facts = dataclasses.replace(model(), vocab_size=None).facts()
    assert (facts["vocab_size"], facts["encoder_layers"], facts["n_layers"]) == (0, 0, 3)


@pytest.mark.parametrize(
    ("mlp", "copies"),
    [
        (Mlp(24), {"attention": 1, "mlp": 1}),
        (Mlp(24, n_experts=8, n_experts_per_token=2), {"attention": 1, "experts": 8, "router": 1}),
        (
            Mlp(24, n_experts=8, n_experts_per_token=2, n_shared_experts=2),
            {"attention": 1, "experts": 8, "shared_experts": 2, "router": 1},
        ),
        # a shared MLP of another width is one
        (
            Mlp(24, n_experts=8, n_experts_per_token=2, d_ff_shared=32),
            {"attention": 1, "experts": 8, "shared_experts": 1, "router": 1},
        ),
    ],
)
def test_how_many_copies_of_each_matrix_a_quantization_may_cover(
    mlp: Mlp, copies: dict[str, int]
) -> None:
    (layers,) = model(mlp).main.layers
    assert {(role, number) for role, number, _ in layers.matrices_by_role(16, 16)} == set(
        copies.items()
    )


def test_a_model_without_kv_heads_names_its_first_kind() -> None:
    kinds = [
        KINDS["lightning"].from_keys({"n_heads": 2, "d_head": 8}, 16, FULL),
        KINDS["none"].from_keys({}, 16, FULL),
    ]
    layers = tuple(Layers(f"kind{i}", 1, attention=kind) for i, kind in enumerate(kinds))
    recurrent = dataclasses.replace(model(), stacks=(Stack("decoder", layers, 16),))
    with pytest.raises(AttncalcError, match="lightning has no KV heads to exchange"):
        recurrent.with_attention("mqa")


def test_equal_layers_are_gathered_in_formulas_unless_their_order_counts() -> None:
    local, full = (
        dataclasses.replace(model().main.layers[0], name=name) for name in ("local", "full")
    )
    mixed = dataclasses.replace(model(), stacks=(Stack("decoder", (local, full, local), 16),))
    assert [(group.name, int(group.count)) for group in mixed.symbolic().main.layers] == [
        ("local", 6),
        ("full", 3),
    ]
    in_order = mixed.symbolic(gathered=False).main.layers
    assert [(group.name, int(group.count)) for group in in_order] == [
        ("local", 3),
        ("full", 3),
        ("local", 3),
    ]


def test_a_layer_has_two_norms_unless_its_number_is_given() -> None:
    layers = Layers("layers", 3, attention=HEADS)
    two, one = (
        dataclasses.replace(model().main, layers=(group,))
        for group in (layers, dataclasses.replace(layers, norms=1))
    )
    assert params(dataclasses.replace(model(), stacks=(two,))).norm == 3 * 2 * 16
    assert params(dataclasses.replace(model(), stacks=(one,))).norm == 3 * 1 * 16
