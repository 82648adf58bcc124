"""The parts of a sum are what adds up to it, in every answer."""

from typing import Any

import pytest

import attncalc
from attncalc.show.sums import SUMS, whole_of

MODELS = ("gpt2", "llama3-8b", "deepseek-v3", "bert-base", "t5-base", "gemma3-27b")


def of_sweep(model: str, whole: str, **options: Any) -> dict[str, Any]:
    (row,) = attncalc.sweep(model, context=512, columns=[whole, *SUMS[whole]], **options)
    assert row["error"] is None
    return row


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("whole", ["params_total", "flops_total", "flops_total_dense"])
def test_parts_add_up_to_their_sum(model: str, whole: str) -> None:
    row = of_sweep(model, whole)
    assert sum(row[part] for part in SUMS[whole]) == row[whole]


def test_recomputation_is_a_part_of_a_training_step() -> None:
    row = of_sweep("gpt2", "flops_total", phase="train", recompute="full")
    assert row["flops_recomputation"]
    assert sum(row[part] for part in SUMS["flops_total"]) == row["flops_total"]


@pytest.mark.parametrize("whole", ["allocated", "activations"])
@pytest.mark.parametrize("options", [{}, {"recompute": "full"}, {"gpus": 8, "zero": 3}])
def test_parts_of_training_add_up(whole: str, options: dict[str, Any]) -> None:
    figures = attncalc.train("llama3-8b", context=2048, **options).to_dict()
    assert sum(int(figures[part] or 0) for part in SUMS[whole]) == figures[whole]


def test_figures_of_two_sums_have_no_whole() -> None:
    assert whole_of(["flops_mlp", "flops_head"]) == "flops_total"
    assert whole_of(["flops_mlp", "params_mlp"]) == ""
    assert whole_of(["flops_attention_scores", "flops_attention_scores_dense"]) == ""
