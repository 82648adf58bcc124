"""compare at several contexts, and its CSV."""

import csv
import io
from typing import Any

import pytest
from asking import Ask

MODELS = ("llama2-70b", "gemma3-27b", "deepseek-v3")
CONTEXTS = (4096, 32768, 131072)


def layers(ask: Ask, *arguments: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = ask("compare", *arguments, "--json").document["layers"]
    return listed


def figures(entry: dict[str, Any]) -> dict[str, Any]:
    return {result["name"]: result["value"] for result in entry["results"]}


@pytest.mark.parametrize("text", ["4K,32K,128K", "4096,32_768,131072", "4K,32K:128K:96K"])
def test_json_has_an_entry_per_model_and_context(ask: Ask, text: str) -> None:
    entries = layers(ask, *MODELS, "-c", text)
    assert [(entry["name"], entry["context"]) for entry in entries] == [
        (m, c) for m in MODELS for c in CONTEXTS
    ]


def test_each_entry_has_the_figures_of_that_context_alone(ask: Ask) -> None:
    entries = iter(layers(ask, *MODELS, "-c", "4K,32K,128K"))
    alone = [layers(ask, *MODELS, "-c", str(context)) for context in CONTEXTS]
    for i in range(len(MODELS)):
        for at_context in alone:
            assert figures(next(entries)) == figures(at_context[i])


def test_variants_are_compared_at_each_context(ask: Ask) -> None:
    entries = layers(ask, "llama2-70b", "-c", "4K,8K", "--attention", "mla:512")
    assert len(entries) == 8 * 2  # MHA, GQA-32 to GQA-2, MQA and MLA
    assert {entry["context"] for entry in entries if entry["released"]} == {4096, 8192}
    by_row = {(entry["name"], entry["context"]): figures(entry) for entry in entries}
    assert by_row["MHA", 8192]["kv_cache"] == 80 * 8192 * 2 * 64 * 128 * 2
    assert by_row["GQA-8", 8192]["kv_cache_ratio"] == 1 / 8


def test_same_params_gives_mlps_what_attention_has_less(ask: Ask) -> None:
    # MQA of GPT-2 has 2 * 11 * 64 columns of 768 + 1 less per layer, a unit of d_ff 2 * 768 + 1:
    # 704.5 more, so 704
    command = ("compare", "gpt2", "--same-params")
    assert ask(*command).out.splitlines()[11].split()[:2] == ["MQA", "3,776"]
    entries = {entry["name"]: figures(entry) for entry in layers(ask, *command[1:])}
    assert entries["MHA"]["params_total"] - entries["MQA"]["params_total"] == 12 * (
        2 * 11 * 64 * 769 - 704 * 1537
    )
    assert (
        "a model whose MLPs have one width" in ask("compare", "deepseek-v3", "--same-params").error
    )
    assert "--same-params takes one model" in ask(*command, "llama2-7b").error


def test_one_context_keeps_the_json_of_one_context(ask: Ask) -> None:
    document = ask("compare", *MODELS, "-c", "4K", "--json").document
    assert [entry["name"] for entry in document["layers"]] == list(MODELS)
    assert document["workload"]["context"] == 4096
    assert document["results"] == document["layers"][0]["results"]


def test_the_first_context_is_that_of_workload_and_results(ask: Ask) -> None:
    document = ask("compare", "gemma3-27b", "llama2-70b", "-c", "32K,4K", "--json").document
    assert document["workload"]["context"] == 32768
    assert document["results"] == document["layers"][0]["results"]
    assert document["layers"][0]["context"] == 32768


def test_the_screen_has_models_down_and_contexts_across(ask: Ask) -> None:
    """LLaMA-2 70B caches 320 KiB per token: 4,096 tokens are 1,280 MiB."""
    heading, answer, table, *_ = ask("compare", *MODELS, "-c", "4K,32K,128K").out.split("\n\n")
    assert (
        heading.splitlines()[1]
        == "batch 1, 3 contexts from 4,096 to 131,072, prefill and one decode step"
    )
    assert answer.startswith(
        "gemma3-27b against llama2-70b: its KV cache is smaller from a context of 1,775."
    )
    rows = [line.split() for line in table.splitlines()]
    assert rows[0] == ["KV", "cache,", "MiB", "4,096", "32,768", "131,072"]
    assert rows[1] == ["llama2-70b", "1,280.0", "10,240.0", "40,960.0"]
    assert rows[3][0] == "deepseek-v3"


def test_the_screen_of_variants_marks_the_released_one(ask: Ask) -> None:
    lines = ask("compare", "llama2-70b", "-c", "4K,32K").out.splitlines()
    assert ["GQA-8", "*", "1,280", "10,240"] in [line.split() for line in lines]


@pytest.mark.parametrize("models", [("llama2-70b",), MODELS, ("bert-base", "t5-base")])
def test_screens_of_many_contexts_fit_80_columns(ask: Ask, models: tuple[str, ...]) -> None:
    out = ask("compare", *models, "-c", "1M:12M:1M").out
    assert max(map(len, out.splitlines())) <= 80
    assert out.count("12,582,912") >= 2


def test_an_encoder_has_neither_a_cache_nor_a_decode_step(ask: Ask) -> None:
    out = ask("compare", "bert-base", "-c", "128,512").out
    assert "prefill, GFLOP" in out
    assert "KV cache" not in out
    assert "decode" not in out
    beside = ask("compare", "gpt2", "bert-base", "-c", "128,512").out.splitlines()
    start = next(i for i, line in enumerate(beside) if "one decode step, " in line)
    assert beside[start + 2].split() == ["bert-base", "-", "-"]


def test_a_constant_is_shown_only_if_it_is_one(ask: Ask) -> None:
    """Gemma 3 27B's windows of 1,024 are not full at 512 tokens: each token adds more than at
    4,096.
    """
    assert "token" in ask("compare", "gemma3-27b", "-c", "2K,4K").out.split("at every")[1]
    assert (
        "token"
        not in ask("compare", "gemma3-27b", "-c", "512,4K")
        .out.split("at every")[1]
        .split("\n\n")[0]
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("4K,", "--context: '' is not a whole number"),
        ("4,096", "--context: '4,096' has a comma within a number"),
        ("8K:4K:1K", "--context: the range '8K:4K:1K' ends below its start"),
        ("1:1000:1", "--context: '1:1000:1' is more than 100 numbers"),
    ],
)
def test_other_contexts_are_errors(ask: Ask, text: str, error: str) -> None:
    assert ask("compare", "gpt2", "--context", text).error.startswith(f"error: {error}")


@pytest.mark.parametrize(("form", "dialect"), [("csv", "excel"), ("tsv", "excel-tab")])
@pytest.mark.parametrize(
    "arguments", [(*MODELS, "-c", "4K,32K"), (*MODELS, "-c", "4K"), ("llama2-70b", "-c", "4K")]
)
def test_csv_has_a_row_per_model_and_context(
    ask: Ask, arguments: tuple[str, ...], form: str, dialect: str
) -> None:
    out = ask("compare", *arguments, "--format", form).out
    rows = list(csv.DictReader(io.StringIO(out), dialect=dialect))
    entries = layers(ask, *arguments)
    assert len(rows) == len(entries)
    for row, entry in zip(rows, entries, strict=True):
        expected = {name: entry[name] for name in ("name", "released", "context")} | figures(entry)
        assert list(row) == list(expected)
        assert row == {
            name: "" if value is None else str(value) for name, value in expected.items()
        }


def test_csv_leaves_a_figure_that_does_not_apply_empty(ask: Ask) -> None:
    out = ask("compare", "gpt2", "bert-base", "-c", "128", "--format", "csv").out
    _, encoder = csv.DictReader(io.StringIO(out))
    assert (encoder["name"], encoder["flops_decode"]) == ("bert-base", "")


@pytest.mark.parametrize("models", [("llama2-70b",), ("llama2-70b", "llama3-70b")])
def test_the_warning_is_about_the_longest_context(ask: Ask, models: tuple[str, ...]) -> None:
    out = ask("compare", *models, "-c", "1K,8K,6K").out
    assert out.count("is beyond the model's maximum of 4,096") == 1
    assert "context 8,192 is beyond" in out


def test_a_source_is_for_the_models_with_an_encoder(ask: Ask) -> None:
    answer = ask("compare", "t5-base", "gpt2", "-c", "128,256", "--source-context", "64", "--json")
    assert answer.code == 0
    assert answer.document["workload"]["source_context"] == 64
