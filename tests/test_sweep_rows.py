"""Which rows of a sweep are kept, in which order, and how many GPUs its users need."""

from typing import Any

import pytest
from asking import Ask
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import each

from attncalc import sweep
from attncalc.config.gpus import gpu_names

AXES: dict[str, Any] = {"models": ["gpt2", "llama2-7b"], "context": "1K,2K,4K", "batch": "1,2,4"}
LOAD: dict[str, Any] = {"prompt": "3K", "output": 500}


@given(
    st.sampled_from((">", ">=", "<", "<=", "==", "!=")),
    st.sampled_from((1, 2, 3, 4)),
    st.sampled_from(("kv_cache", "-kv_cache", "context", "-flops_decode", None)),
    st.integers(1, 20) | st.none(),
)
@settings(max_examples=30, deadline=None)
def test_rows_are_kept_sorted_and_cut(
    operator: str, batch: int, sort: str | None, top: int | None
) -> None:
    def holds(row: int) -> bool:
        return bool({">": row > batch, ">=": row >= batch, "<": row < batch, "<=": row <= batch,
                     "==": row == batch, "!=": row != batch}[operator])  # fmt: skip

    kept = [row for row in sweep(**AXES) if holds(row["batch"])]
    if sort:
        name = sort.removeprefix("-")
        kept.sort(key=lambda row: row[name], reverse=sort.startswith("-"))
    assert list(sweep(**AXES, where=f"batch {operator} {batch}", sort=sort, top=top)) == kept[:top]


@each(("where", "expected"), [
    (["verdict == fits"], {"h200"}),
    (["verdict != fits"], {"h100-80gb", "l4"}),
    (["verdict == FITS", "weights > 10GiB"], {"h200"}),
    (["gpu == l4"], {"l4"}),
    (["kv_memory >= 1TiB"], set()),
])  # fmt: skip
def test_conditions_read_texts_and_sizes(where: list[str], expected: set[str]) -> None:
    rows = sweep(models="llama3.1-70b", gpu="h100-80gb,h200,l4", gpus=2, where=where)
    assert {row["gpu"] for row in rows} == expected


def test_rows_of_which_a_condition_is_true_fail(ask: Ask) -> None:
    """32 layers * 2 * 8 KV heads * 128 * 2 B = 128 KiB per token: 32K tokens are 4 GiB, and 3 ranks
    are impossible.
    """
    words = ("sweep", "llama3.1-8b", "-c", "8K,32K")
    answer = ask(*words, "--fail-if", "kv_cache > 2GiB")
    assert (answer.code, answer.err) == (1, f"failed: context 32768: kv_cache is {4 * 2**30}\n")
    # 32K may fit
    assert ask(*words, "--gpu", "l4", "--fail-if", "verdict == DOES NOT FIT").code == 0
    assert "tp 3, context 8192: " in ask(*words, "--tp", "1,3", "--fail-if", "kv_cache > 9GiB").err
    assert sweep("llama3.1-8b", gpu="l4", context="32K", fail_if="verdict != fits").failures == [
        "the row: verdict is may_not_fit"
    ]


def test_rows_have_the_fewest_gpus_and_their_figures() -> None:
    # DeepSeek-V3 has 628.8 GiB of weights: 8 H200 have 8 * 139.8 * 0.92 = 1,029 GiB, and 8 H100 8 *
    # 79.1 * 0.92 = 582
    rows = list(
        sweep("deepseek-v3", gpu="h200,4xh200,h100", fewest_gpus=True, price="h200=3,h100=2")
    )
    assert [(row["gpus"], row["price_per_hour"]) for row in rows] == [
        (8, 8 * 3),
        (4, 4 * 3),
        (16, 16 * 2),
    ]
    given = sweep("deepseek-v3", gpu="h100", gpus=16, tp=8, pp=2, columns="decode_time_bound")
    assert [row["decode_time_bound"] for row in given] == [rows[2]["decode_time_bound"]]


def test_all_gpus_are_an_axis() -> None:
    assert {row["gpu"] for row in sweep(models="gpt2", gpu="all", columns="weights")} == set(
        gpu_names()
    )


def test_requests_of_users_add_their_columns(ask: Ask) -> None:
    words = ("sweep", "llama3.1-70b", "--gpu", "h200", "--tp", "4,8")
    of_users = {"concurrent_average", "concurrent_worst", "users_all_replicas"}
    assert of_users <= set(
        ask(*words, "--prompt", "3K", "--output-len", "500").out.splitlines()[0].split(",")
    )
    assert not of_users & set(ask(*words).out.splitlines()[0].split(","))


def test_a_selection_is_a_table_of_80_columns(ask: Ask) -> None:
    lines = ask(
        "sweep",
        "llama3.1-70b",
        "qwen3-32b",
        "--gpu",
        "h200,h100",
        "--gpus",
        "1:8",
        "--prompt",
        "3K",
        "--output-len",
        "500",
        "--users",
        "500",
        "--price",
        "h100=2.49,h200=3.79",
        "--format",
        "table",
        "--where",
        "verdict == fits",
        "--where",
        "gpus_needed <= 16",
        "--sort",
        "price_per_hour",
        "--top",
        "3",
    ).out.splitlines()
    assert lines[0] == "3 of 32 rows"
    assert sum(line.startswith("  qwen3-32b ") for line in lines) == 3
    assert max(map(len, lines)) <= 80


def test_the_verdict_of_a_row_is_that_of_fit(ask: Ask) -> None:
    """An H100 leaves room for 0.69 requests with the expected memory: they may fit."""
    words = ("llama3.1-70b", "--gpu", "h100", "--tp", "2", "-c", "8K", "--json")
    (row,) = ask("sweep", *words).document["rows"]
    answer = ask("fit", *words).document
    assert (
        (row["verdict"], row["max_batch"])
        == (answer["verdict"], answer["values"]["max_batch"])
        == ("may_not_fit", 0)
    )
    assert "fits" not in row
    assert "tip: did you mean 'verdict'?" in ask("sweep", *words, "--where", "fits == yes").err


def test_the_flops_of_a_prefill_are_those_of_its_time(ask: Ask) -> None:
    """At 989.4 TFLOP/s; a server computes the logits of the last token of each sequence."""
    words = ("sweep", "llama3.1-8b", "--gpu", "h100", "-c", "8K", "-b", "4", "--json")
    (row,) = ask(*words, "--columns", "flops_prefill,prefill_time_bound,flops_total").document[
        "rows"
    ]
    assert row["prefill_time_bound"] == pytest.approx(row["flops_prefill"] / 989.4e12, rel=1e-3)
    # the logits of 8,191 tokens more: 2 * d_model 4,096 * vocabulary 128,256
    assert row["flops_total"] - row["flops_prefill"] == 4 * 8191 * 2 * 4096 * 128_256
    figures = ask("compare", "llama3.1-8b", "-c", "8K", "-b", "4", "--json").document
    assert row["flops_prefill"] in [figure["value"] for figure in figures["results"]]


@each(("words", "message"), [
    ("--where kv_cache", "--where 'kv_cache' is not a condition"),
    ("--where", "--where"),
    ("--where=verdit==fits --gpu h200", "--where: there is no column 'verdit'"),
    ("--where=kv_cache>+5", "a sign means a change from another model"),
    ("--fail-if=verdict=fits", "--fail-if 'verdict=fits' is not a condition"),
    ("--where=context>1 --fail-if=verdit==fits", "--fail-if: there is no column 'verdit'"),
    ("--fail-if=verdit==fits --gpu h200", "--fail-if: there is no column 'verdit'"),
    ("--sort nothing", "--sort: there is no column 'nothing'"),
    ("--where=fits==yes --gpu h200", "--where: there is no column 'fits'"),
    ("--columns fits --gpu h200", "--columns: there is no figure 'fits'"),
    ("--sort verdict", "--sort: there is no column 'verdict'"),
    ("--top 0", "--top: '0' is not a whole number"),
    ("--fewest-gpus --gpu h200 --tp 2", "--fewest-gpus needs --gpu, and no --gpus"),
    ("--users 5 --gpu h200", "--users needs --prompt"),
    ("--price h200=free --gpu h200", "--price h200: 'free' is not a number"),
    ("--top 2 --plot", "--plot cannot be combined with --top"),
])  # fmt: skip
def test_bad_input_is_one_error(ask: Ask, words: str, message: str) -> None:
    answer = ask("sweep", "gpt2", "-c", "1K,2K", *words.split())
    assert answer.code == 2
    assert message in answer.err.splitlines()[0]
