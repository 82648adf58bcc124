"""`attncalc plan` in what every command has: errors, tips, Python, the page, spreadsheets."""

import json
import math
import pickle
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from asking import Ask, results
from measurements import FOLDER
from tables import each

import attncalc
from attncalc import AttncalcError, FitRequest, Workload, load, plan, sweep
from attncalc.config.gpus import gpu
from attncalc.questions.fit.request import read_fit_request
from attncalc.questions.plan.answer import read_plan
from attncalc.questions.plan.space import Space, Split, splits

UNTYPED: Any = attncalc
LOAD: dict[str, Any] = {"prompt": "3K", "output": 500}
RECIPES = [
    (row["id"], row["command"], row["verdict"])
    for row in json.loads((FOLDER / "recipes.json").read_text(encoding="utf-8"))
]
PLAN = (
    "plan",
    "qwen3-8b",
    "llama3-8b",
    "--users",
    "50",
    "--prompt",
    "3K",
    "--output-len",
    "500",
    "--gpu",
    "l4,h100",
)


# Options and errors


def test_lists_may_be_repeated(ask: Ask) -> None:
    line = "plan gpt2 --users 5 --json --gpu h100"
    assert ask(*f"{line} --gpu l4 --price 2 --price 1".split()) == ask(
        *f"{line},l4 --price 2,1".split()
    )


@pytest.mark.parametrize("command", ["kv", "params", "compare", "fit", "gpus", "train"])
def test_an_unknown_option_names_the_command_that_has_it(ask: Ask, command: str) -> None:
    assert (
        ask(command, "--rps", "2").error
        == "error: no such option: --rps\n  tip: 'attncalc plan' has it\n"
    )


@each(
    ("line", "error", "tip"),
    [
        (
            "kv gpt2 --users 4",
            "no such option: --users",
            "'attncalc plan' and 'attncalc sweep' have it",
        ),
        (
            "plan llama3.1-8b --gpu h100 --users 50 --kv-memory 20GiB",
            "no such option: --kv-memory",
            "have it",
        ),
        (
            "plan llama3.1-8b --gpu h100 --users 50 --served-model x",
            "no such option: --served-model",
            "",
        ),
        (
            "plan gpt2 --users 9 --gpu h100 --gpus 4 --tp 8",
            "--tp 8 needs 8 GPUs, and --gpus is 4",
            "",
        ),
    ],
)
def test_a_line_that_is_not_understood_is_an_error_with_a_tip(
    ask: Ask, line: str, error: str, tip: str
) -> None:
    first, second = ask(*line.split()).error.splitlines()
    assert first.startswith(f"error: {error}")
    assert tip in second


# As fit and sweep answer


@each(("model", "device"), product(["gpt2", "qwen3-8b", "gpt-oss-20b"], ["h100", "rtx-3060-12gb"]))
def test_the_engine_and_the_weights_are_those_of_fit(model: str, device: str) -> None:
    fit = read_fit_request(model, {"gpu": device, "context": 256})
    asked = read_plan([model], {"gpu": device, "users": 1, "prompt": 64, "output": 16})
    found = asked.requests[0]
    assert (found.engine, found.weights_dtype) == (fit.engine, fit.weights_dtype)


def test_the_engines_of_the_gpus_are_named(ask: Ask) -> None:
    line = "plan qwen3-8b --gpu rtx-4090,l4 --users 20 --prompt 4000 --output-len 500"
    note = "Engines by default: llama.cpp on rtx-4090; vLLM on l4. --engine sets one for all."
    assert note in " ".join(ask(*line.split()).out.split())


@pytest.mark.parametrize("option", [["--cpu-moe"], ["-ngl", "9"]])
def test_a_load_reads_the_host_as_the_roofline_does(ask: Ask, option: list[str]) -> None:
    """With a prompt of 1,023 and an output of 2 the step is at 1,024 tokens."""
    model = ["mixtral-8x7b:q4_k_m", "--gpu", "rtx-4090", *option, "--json"]
    planned = results(
        ask(
            "plan",
            *model,
            "--users",
            "1",
            "--prompt",
            "1023",
            "--output-len",
            "2",
            "--max-gpus",
            "1",
            "--tpot",
            "9s",
        )
    )
    assert planned["tpot_bound"] == results(ask("fit", *model, "-c", "1024"))["decode_time_bound"]


@each(("name", "command", "verdict"), RECIPES)
def test_a_plan_tries_the_split_of_each_recipe(name: str, command: str, verdict: str) -> None:
    words = command.split()[2:]
    given = {
        word[2:].replace("-", "_"): value
        for word, value in pairwise(words)
        if word.startswith("--")
    }
    sizes = {size: int(given.get(size, 1)) for size in ("tp", "pp", "dp")}
    request = FitRequest(
        load(words[0]),
        Workload.decode(1, 2048),
        given.get("engine", "vllm"),
        gpu=gpu(given["gpu"]),
        tp=None,
    )
    expert_parallel = "--enable-expert-parallel" in words
    split = Split(int(given["gpus"]), **sizes, expert_parallel=expert_parallel)
    groups = splits(request, Space(expert_parallel=expert_parallel))
    assert any(split in group for group in groups), name


def test_the_gpus_and_the_price_of_users_are_those_of_plan() -> None:
    """500 users on 1 replica of 834 need 8 H200, on replicas of 352 two of 4."""
    prices = {"h200": 3.79}
    found = {
        row["tp"]: row
        for row in sweep(
            models="llama3.1-70b", gpu="h200", tp="4,8", users=500, price=prices, **LOAD
        )
    }
    rows = plan(
        "llama3.1-70b", users=500, gpu="h200", tp="4,8", price=prices, all=True, tpot="9s", **LOAD
    ).rows
    for row in rows:
        of_sweep = found[row["tp"]]
        assert of_sweep["gpus_needed"] == row["gpus"]
        assert of_sweep["price_per_hour"] == pytest.approx(row["price_per_hour"])
        assert of_sweep["users_all_replicas"] * row["replicas"] == row["users_all_replicas"]
        assert row["gpus"] == row["tp"] * math.ceil(500 / of_sweep["users_all_replicas"])


# Python


def test_a_gpu_is_required() -> None:
    with pytest.raises(AttncalcError, match="gpu is required"):
        UNTYPED.plan("gpt2", users=9)
    with pytest.raises(AttncalcError, match="a model is required"):
        UNTYPED.plan()


def test_a_plan_can_be_sent_to_another_process() -> None:
    found = plan("llama3-8b", users=2, gpu="h100")
    again = pickle.loads(pickle.dumps(found))
    assert again.to_dict() == found.to_dict()
    assert repr(again) == repr(found)


def test_sizes_are_a_model(ask: Ask) -> None:
    words = "--layers 2 --heads 8 --kv-heads 4 --head-dim 64 --gpu h100 --users 9 --prompt 1K"
    found = UNTYPED.plan(
        layers="2",
        heads="8",
        kv_heads="4",
        head_dim="64",
        gpu="h100",
        users="9",
        prompt="1K",
        output="100",
    )
    printed = ask("plan", *words.split(), "--output-len", "100", "--json").out
    assert found.to("json") == printed


@each(
    "call",
    [
        lambda: plan("gpt2", users=1, prompt=9, output=9, gpu="l4", tp=["1,2"]),
        lambda: plan("gpt2", users=1, prompt=9, output=9, gpu="l4", kv_dtype=["auto,fp8"]),
    ],
)
def test_an_item_of_a_list_has_no_comma(call: Any) -> None:
    with pytest.raises(
        AttncalcError, match="is an item of a list, which is one value and has no comma"
    ):
        call()


def test_an_item_of_a_list_is_one_gpu() -> None:
    with pytest.raises(AttncalcError, match="no GPU named 'h100,l4'"):
        plan("gpt2", users=1, prompt=9, output=9, gpu=["h100,l4"])


# The page


def test_plan_curve_has_the_gpus_that_more_users_need() -> None:
    """One H100 holds 96 of these requests on average: 80 users need one, 160 two."""
    from test_page import answer, asked

    asked("plan", "llama3.1-8b", gpu="h100", users="20", prompt="4K", output_len="1K")
    curve = json.loads(answer.curve())
    assert curve["rows"][-2:] == [["80", "1"], ["160", "2"]]
    assert [tick["label"] for tick in curve["y_ticks"]] == ["0", "1", "2"]  # and no half GPUs


def test_plan_curve_of_a_rate_is_over_requests_per_second() -> None:
    from test_page import answer, asked

    asked("plan", "llama3.1-8b", gpu="h100", rate="4", prompt="4K", output_len="1K")
    curve = json.loads(answer.curve())
    assert curve["x_label"] == "requests per second"
    assert [row[0] for row in curve["rows"]] == ["0.5", "1", "2", "4", "8", "16", "32"]


# Spreadsheets


def test_a_plan_has_a_sheet_per_model_with_units(ask: Ask, tmp_path: Path) -> None:
    pytest.importorskip("xlsxwriter")
    from test_xlsx import sheets

    assert ask(*PLAN, "-o", str(tmp_path / "plan.xlsx")).code == 0
    ask(*PLAN, "-o", str(tmp_path / "plan.csv"))
    found = sheets(tmp_path / "plan.xlsx")
    assert set(found) == {"qwen3-8b", "llama3-8b"}
    assert (
        sum(len(rows) - 1 for rows in found.values())
        == len((tmp_path / "plan.csv").read_text().splitlines()) - 1
    )
    header = found["qwen3-8b"][0]
    assert {"gpus", "tpot_bound (s)", "tokens_per_second_bound (tokens/s)", "watts"} <= set(header)
