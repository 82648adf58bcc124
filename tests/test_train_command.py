"""`attncalc train` in what every command has: rows of a sweep, errors, Python, the page."""

import functools
import json
from typing import Any

import pytest
from asking import Ask, refusal
from tables import each
from test_page import answer as page
from test_page import asked
from test_sweep import answer

import attncalc
from attncalc import AttncalcError, sweep
from attncalc.questions.arguments import in_python

UNTYPED: Any = attncalc


def test_the_command_that_has_an_option_is_named(ask: Ask) -> None:
    error = ask("kv", "gpt2", "--plot").error
    assert "'attncalc compare', 'attncalc fit' and 'attncalc train' have it" in error


def test_more_gpus_than_a_node_has_are_an_error(ask: Ask) -> None:
    assert "is more than the 4" in ask("train", "gpt2", "--gpu", "4xh100", "--gpus", "8").error


# Rows of a sweep


@each(
    ("arguments", "error"),
    [
        ({"zero": 3}, "zero needs train"),
        ({"fsdp": True}, "fsdp needs train"),
        ({"train": True, "kv_dtype": "fp8"}, "kv_dtype cannot be combined with train"),
        ({"train": True, "enforce_eager": True}, "enforce_eager cannot be combined with train"),
        ({"train": True, "weights_dtype": "q4_k_m"}, "weights_dtype cannot be 'q4_k_m'"),
        ({"train": True, "columns": "kv_cache"}, "there is no figure 'kv_cache'"),
    ],
)
def test_a_value_that_is_never_possible_is_an_error_at_once(
    arguments: dict[str, Any], error: str
) -> None:
    assert error in refusal(sweep, models="llama2-70b", **arguments).message


def test_an_option_whose_text_has_commas_varies_in_a_list() -> None:
    trained = [*sweep("gpt2", train=True, lora=["r=8", "r=16,targets=q+v"], columns="allocated")]
    assert [row["lora"] for row in trained] == ["r=8", "r=16,targets=q+v"]


def test_rows_of_a_training_step_equal_train() -> None:
    names = ["verdict", "weights", "allocated", "needed_high", "flops_per_step", "gpu_hours"]
    cells = sweep(
        ["llama3-8b", "mixtral-8x7b"],
        train=True,
        columns=[*names, "price"],
        gpu="8xh100-80gb,8xh200",
        zero="1,3",
        tp="1,3",
        context="1K,4K",
        lora="r=8",
        weights_dtype="nf4",
        tokens="1B",
        mfu=0.4,
        price={"h100-80gb": 2},
    )
    assert len(cells) == 2 * 2 * 2 * 2 * 2
    for row in cells:
        own = {name: row[name] for name in ("gpu", "zero", "tp", "context")}
        is_h100 = row["gpu"] == "8xh100-80gb"
        fixed: Any = {"lora": "r=8", "weights_dtype": "nf4", "tokens": "1B", "mfu": 0.4}
        found, error = answer(functools.partial(attncalc.train, row["model"], **fixed, **own))
        # a row names options, as its table does
        assert (row["error"] and in_python(row["error"])) == error
        assert (error is not None) == (row["tp"] == 3)
        assert not found or {name: found.to_dict()[name] for name in names} == {
            name: row[name] for name in names
        }
        # the H200 has no price
        assert (row["price"] is not None) == (found is not None and is_h100)
        if found and is_h100:
            assert 2 * row["gpu_hours"] <= row["price"] < 2 * (row["gpu_hours"] + 1)


def test_a_training_step_has_the_default_context_of_train() -> None:
    (row,) = sweep("llama3.1-8b", train=True, columns="context,allocated")
    assert row["context"] == 4096
    assert row["allocated"] == attncalc.train("llama3.1-8b").to_dict()["allocated"]


# Python


def test_an_answer_of_yes_or_no_is_true_or_false() -> None:
    assert attncalc.train("gpt2", gpu="l4")
    assert not attncalc.train("llama3-8b", gpu="l4")


def test_sizes_are_a_model(ask: Ask) -> None:
    with pytest.raises(AttncalcError, match="a model is required"):
        UNTYPED.train()
    words = "--layers 2 --heads 8 --kv-heads 4 --head-dim 64 --gpu h100 --context 1K --json"
    found = UNTYPED.train(
        layers="2", heads="8", kv_heads="4", head_dim="64", gpu="h100", context="1K"
    )
    assert found.to("json") == ask("train", *words.split()).out


# The page


def test_headline_is_the_verdict() -> None:
    headline = asked("train", "llama2-7b", gpu="h100", context="4096")["headline"]
    assert headline.startswith("DOES NOT FIT")


def test_training_bar_is_as_long_as_what_is_needed() -> None:
    bar = asked("train", "llama2-7b", gpu="h100", context="4096")["bar"]
    assert sum(piece["share"] for piece in bar["pieces"]) == pytest.approx(1)
    assert 0 < bar["memory"] < 1  # it does not fit
    assert asked("train", "llama2-7b", context="4096")["bar"] is None


def test_training_curve_has_the_peak_below_the_gpu() -> None:
    asked("train", "llama2-7b", gpu="h100", context="2048")
    curve = json.loads(page.curve())
    labels = [each["label"] for each in curve["series"]]
    assert labels == ["weights and optimizer states", "allocated"]
    assert curve["limit"]["label"] == "the GPU has: 79.10 GiB"
    assert [row[0] for row in curve["rows"]] == ["128", "256", "512", "1K", "2K", "4K"]
