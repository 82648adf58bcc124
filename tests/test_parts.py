"""The parts of a total that a whole model's figure could hide, each with its arithmetic."""

from __future__ import annotations

import dataclasses

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
from attncalc.cost.common import cache_dtype, compute_dtype

HEADS = Grouped(4, 2, 8)


def model(mlp: Mlp | None = None, head: Head | None = None) -> ModelSpec:
    """3 layers of d_model 16: attention of 16 * (32 + 2 * 16) + 32 * 16 = 1,536 parameters each."""
    group = Layers("layers", 3, attention=HEADS, mlp=mlp, norms=0)
    return ModelSpec("m", "m", (Stack("decoder", (group,), 16, final_norm=False),), vocab_size=10, head=head)


def test_a_token_uses_its_experts_and_the_shared_ones() -> None:
    experts = Mlp(24, gated=True, n_experts=8, n_experts_per_token=2, n_shared_experts=1)
    counted = params(model(experts))
    one, router = 3 * 16 * 24, 16 * 8
    assert counted.mlp == 3 * (router + 9 * one)
    assert counted.active - counted.attention - counted.embedding == 3 * (router + 3 * one)
    assert flops(model(experts), Workload.prefill(1, 5)).mlp == 2 * 5 * 3 * (router + 3 * one)


def test_a_token_may_use_every_expert_and_no_more() -> None:
    assert Mlp(24, n_experts=2, n_experts_per_token=2).experts_used == 2
    with pytest.raises(AttncalcError, match="3 is more than the 2 experts"):
        Mlp(24, n_experts=2, n_experts_per_token=3)


def test_attention_alone_has_no_other_parameters() -> None:
    counted = params(model())
    assert (counted.mlp, counted.head, counted.norm) == (0, 0, 0)
    assert counted.total == 3 * 1_536 + 10 * 16
    assert flops(model(), Workload.prefill(1, 5)).mlp == 0


def test_norms_around_a_stack_count_each() -> None:
    """A gain and a bias of 16, before the first layer and after the last."""
    stack = dataclasses.replace(model().main, norm="layernorm", final_norm=True, embedding_norm=True)
    assert params(dataclasses.replace(model(), stacks=(stack,))).norm == 2 * 2 * 16


def test_a_head_counts_its_matrix_unless_it_is_tied() -> None:
    # 16 * 10, and a bias of 10
    assert params(model(head=Head("lm"))).head == 160
    assert params(model(head=Head("lm", bias=True))).head == 170
    assert params(model(head=Head("lm", tied=True, bias=True))).head == 10
    assert params(model(head=Head("pooler"))).head == 16 * 16 + 16


def test_qk_alone_is_half_of_dense_scores_where_the_widths_are_equal() -> None:
    """3 layers * 2 * 4 heads * 8 * 5 * 5."""
    spent = flops(model(), Workload.prefill(1, 5))
    assert spent.qk_dense == 3 * 2 * 4 * 8 * 25
    assert spent.scores_dense == 2 * spent.qk_dense


def test_a_training_step_says_what_it_is_taken_to_be() -> None:
    assert "3 x the forward pass" in flops(model(), Workload.train(1, 5)).rule
    assert flops(model(), Workload.prefill(1, 5)).rule == ""


def test_shards_are_what_divides() -> None:
    with pytest.raises(AttncalcError, match="does not divide 4 heads"):
        Latent(4, 16, 8, 4, 8).shard(3)
    with pytest.raises(AttncalcError, match="neither divides the other"):
        Grouped(12, 6, 8).shard(4)
    with pytest.raises(AttncalcError, match="d_ff 24"):
        Mlp(24).shard(5)


@pytest.mark.parametrize(
    ("kv_heads", "label", "tag", "words"),
    [
        (4, "MHA", "MHA", "multi-head attention, 4 query and 4 KV heads x 8"),
        (2, "GQA", "GQA-2", "grouped-query attention, 4 query and 2 KV heads x 8"),
        (1, "MQA", "MQA", "multi-query attention, 4 query and 1 KV head x 8"),
    ],
)
def test_a_kind_calls_itself_by_its_heads(kv_heads: int, label: str, tag: str, words: str) -> None:
    kind = Grouped(4, kv_heads, 8)
    assert (kind.label, kind.tag, kind.headline) == (label, tag, words)
    assert Grouped(4, kv_heads, 8, 8).headline == words
    assert Grouped(4, kv_heads, 8, 12).headline == f"{words} (values x 12)"
    assert Cross(kind).tag == f"cross-{tag}"


def test_a_decode_step_remarks_on_what_is_not_computed_again() -> None:
    mla, cross = Latent(4, 16, 8, 4, 8), Cross(HEADS)
    assert "absorbed" in mla.notes(past=True)[0]
    assert "expands" in mla.notes(past=False)[0]
    assert "encoder has run" in cross.notes(past=True)[0]
    assert cross.notes(past=False) == ()


def test_a_dtype_of_the_question_comes_before_the_models() -> None:
    small, asked = load("gpt2"), Workload.decode(1, 8, dtype="bf16", kv_dtype="fp8")
    assert (compute_dtype(small, asked).name, cache_dtype(small, asked).name) == ("bf16", "fp8")
    assert cache_dtype(small, Workload.decode(1, 8, dtype="bf16")).name == "bf16"
    assert cache_dtype(small, Workload.decode(1, 8)).name == small.dtype
    with pytest.raises(AttncalcError, match="dtype of a cache"):
        compute_dtype(small, Workload.decode(1, 8, dtype="q8_0"))
