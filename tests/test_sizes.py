"""A list of contexts or batches in `kv`, `flops` and `memory` is that command's figures, a row for
each.
"""

import pytest
from asking import Ask

COMMANDS = ["kv", "flops", "memory"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_row_has_the_figures_of_its_own_command_line(ask: Ask, command: str) -> None:
    listed = ask(command, "gemma3-27b", "-c", "512,2K", "-b", "1,3", "--json").document
    assert [(row["batch"], row["context"]) for row in listed["layers"]] == [
        (1, 512),
        (1, 2048),
        (3, 512),
        (3, 2048),
    ]
    for row in listed["layers"]:
        alone = ask(
            command, "gemma3-27b", "-c", str(row["context"]), "-b", str(row["batch"]), "--json"
        ).document
        assert {figure["name"]: figure["value"] for figure in row["results"]} == alone["values"]


@pytest.mark.parametrize("command", COMMANDS)
def test_csv_and_get_have_a_line_per_row(ask: Ask, command: str) -> None:
    name = {"kv": "kv_cache", "flops": "flops_total", "memory": "score_matrix"}[command]
    values = ask(command, "gpt2", "-c", "512,1K", "--get", name).out.split()
    rows = ask(command, "gpt2", "-c", "512,1K", "--format", "csv").out.splitlines()
    column = rows[0].split(",").index(name)
    assert [row.split(",")[column] for row in rows[1:]] == values
    assert len(values) == 2


def test_the_screen_shows_each_context_and_the_shared_dtype(ask: Ask) -> None:
    # 36 layers * 2 * 8 heads * 128 * 2 B = 144 KiB per token: 1,024 tokens are 144 MiB, and four
    # times as much with MHA
    lines = ask("kv", "qwen3-8b", "-c", "1K,2K").out.splitlines()
    assert lines[1] == "cache in bf16 (2 B)"
    assert [line.split() for line in lines if line.startswith("    ")][-2:] == [
        ["1,024", "1", "144", "144", "576"],
        ["2,048", "1", "288", "144", "1,152"],
    ]


def test_the_heading_of_a_list_says_what_the_figures_are_of(ask: Ask) -> None:
    assert "figures are per device" in ask("kv", "llama3-8b", "--tp", "2", "-c", "4K,8K").out
    trained = ask("flops", "gpt2", "--phase", "train", "--recompute", "full", "-c", "512,1K").out
    assert "training step, full recomputation, causal mask" in trained


def test_a_range_is_a_list(ask: Ask) -> None:
    assert ask("kv", "gpt2", "-c", "128:512:x2").out == ask("kv", "gpt2", "-c", "128,256,512").out


def test_a_condition_is_tested_on_every_row(ask: Ask) -> None:
    # 72 KiB per token: 512 tokens are 36 MiB, and 1,024 are 72 MiB
    answer = ask("kv", "gpt2", "-c", "512,1K", "--fail-if", "kv_cache > 50MiB")
    assert (answer.code, answer.out.count("FAILS: 1 of 2 checks.")) == (1, 1)
    assert ask("kv", "gpt2", "-c", "512,1K", "--fail-if", "kv_cache > 80MiB").code == 0


def test_a_comma_never_groups_digits(ask: Ask) -> None:
    for command in ("kv", "flops", "memory"):
        assert (
            "tip: write 4096: a comma separates the items of a list"
            in ask(command, "gpt2", "-c", "4,096").error
        )
    rows = ask("memory", "gpt2", "-c", "64,128,256", "--get", "score_matrix").out.split()
    # 12 heads * T * T * 4 B
    assert [int(row) for row in rows] == [12 * 64**2 * 4, 12 * 128**2 * 4, 12 * 256**2 * 4]


def test_more_than_a_thousand_rows_are_an_error(ask: Ask) -> None:
    assert "1,000 are the most" in ask("kv", "gpt2", "-c", "1:200:1", "-b", "1:6:1").error
