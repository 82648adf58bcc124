"""`attncalc plan`: rows are what `fit` answers, and no better row is missed."""

import math
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from asking import Ask
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import each

from attncalc import AttncalcError, FitRequest, fit, gpu, load, plan, users
from attncalc.config.checkpoints import Checkpoints, checkpoints
from attncalc.config.presets import unquantized
from attncalc.config.prices import read_prices
from attncalc.quantity import ratio
from attncalc.questions.fit.request import fit_request
from attncalc.questions.plan import search as plan_search
from attncalc.questions.plan.answer import read_plan
from attncalc.questions.plan.candidates import Candidate, replica
from attncalc.questions.plan.demand import Demand
from attncalc.questions.plan.load import read_traffic
from attncalc.questions.plan.nodes import placed
from attncalc.questions.plan.rows import costs, not_dominated, row, rows, sorted_rows
from attncalc.questions.plan.search import search
from attncalc.questions.plan.space import Space, Split, splits
from attncalc.serving import devices
from attncalc.serving.memory_budget import MemoryBudget, memory_budget
from attncalc.serving.request import resolve
from attncalc.serving.traffic import Traffic
from attncalc.serving.users import Users
from attncalc.show.plot.chart import Lines

LOAD = ("--users", "500", "--prompt", "3K", "--output-len", "500")
MODELS = ("qwen3-8b", "gpt-oss-20b", "gemma3-27b", "deepseek-v3", "qwen3-next-80b-a3b")
GPUS = ("l4", "h100-80gb", "mi300x", "rtx-4090")


def request_of(model: str, device: str, engine: str = "vllm", **options: Any) -> FitRequest:
    given = {
        "gpu": device,
        "engine": engine,
        "prompt": 3000,
        "output": 500,
        "context": 4096,
        **options,
    }
    return fit_request(load(model), given)


# Rows are what fit answers


@given(
    st.sampled_from(MODELS),
    st.sampled_from(GPUS),
    st.sampled_from(("vllm", "sglang")),
    st.sampled_from((None, "fp8")),
    st.integers(1, 200_000),
)
@settings(max_examples=15, deadline=None)
def test_what_fits_is_what_fit_says(
    model: str, device: str, engine: str, kv_dtype: str | None, context: int
) -> None:
    request = request_of(
        model, device, engine, prompt=1, output=0, context=context, kv_dtype=kv_dtype
    )
    space = Space(tp=[1, 8], pp=[1, 2], dp=[1, 2] if engine == "vllm" else None)
    found = {one.split: one for one in search([request], space).candidates}
    for split in splits(request, space)[0]:
        try:
            answer = fit(split.of(request))
        except AttncalcError:
            assert split not in found
            continue
        concurrent = users(answer.resolved)
        assert concurrent is not None
        assert (split in found) == (answer.fits and concurrent.average != 0)
        if split in found:
            assert found[split].verdict == answer.verdict
            assert found[split].capacity == (concurrent.average or 0) * answer.resolved.replicas
            assert found[split].worst_capacity == (concurrent.worst or 0) * answer.resolved.replicas


def test_the_command_of_a_row_gives_fit_the_same_numbers(ask: Ask) -> None:
    for model, gpus, number in (
        ("llama3.1-70b", "h200,mi300x", 0),
        ("deepseek-v3", "h200", -1),
        ("qwen3-8b", "m4-max-128gb", 0),
    ):
        document = ask("plan", model, *LOAD, "--gpu", gpus, "--json").document
        best = document["layers"][number]
        figures = {figure["name"]: figure["value"] for figure in best["results"]}
        answer = ask(
            "fit",
            "--gpu",
            best["gpu"],
            "--prompt",
            "3K",
            "--output-len",
            "500",
            "--json",
            "--",
            *shlex.split(best["launch_command"]),
        )
        of_fit = answer.document
        assert of_fit["verdict"] == best["verdict"]
        assert of_fit["launch_command"] == best["launch_command"]
        assert of_fit["users"]["concurrent_average_all_replicas"] == figures["users_per_replica"]
        assert (
            of_fit["users"]["concurrent_worst_all_replicas"] == figures["users_per_replica_worst"]
        )


def _check_with_fit(ask: Ask, row: dict[str, Any]) -> None:
    """Check that `fit` answers the command of a row of a plan with the row's verdict and users."""
    command = row["launch_command"]
    # of a checkpoint the hub has the config.json, and there is no hub here
    model = (row["model"], "--weights-dtype", row["weights_dtype"]) if row["checkpoint"] else ()
    answer = ask(
        "fit",
        *model,
        "--gpu",
        row["gpu"],
        "--prompt",
        "3K",
        "--output-len",
        "500",
        "--json",
        "--",
        *shlex.split(command),
    ).document
    figures = {figure["name"]: figure["value"] for figure in row["results"]}
    assert answer["launch_command"] == command
    assert answer["verdict"] == row["verdict"], command
    for name in ("users_per_replica", "users_per_replica_worst"):
        assert answer["users"][name] == figures[name], command
    assert answer["ranks"] == row["ranks"], command
    for name in ("concurrent_average", "concurrent_worst"):
        assert answer["values"][name] == figures[name], command


@each(("words", "splits"), [
    # vLLM converts the released weights, which have no blocks: every split divides them
    (["qwen3-235b-a22b", "--gpu", "h100", "--weights-dtype", "fp8", "--tp", "4,8", "--dp", "1"], ["tp 4", "tp 8"]),
    # SGLang loads Qwen3-235B-A22B-FP8, since an L40S does not hold an eighth of the weights in bf16
    (["qwen3-235b-a22b", "--gpu", "l40s", "--weights-dtype", "fp8", "--engine", "sglang", "--tp", "8"], []),
    # each checkpoint; the blocks of the one in FP8 are cut
    (["qwen3-235b-a22b", "--gpu", "b200", "--weights-dtype", "all", "--tp", "8", "--dp", "1"], ["tp 8", "tp 8"]),
    (["minimax-m2.5", "--gpu", "h200", "--tp", "4,8", "--dp", "1"], ["tp 4"]),
])  # fmt: skip
def test_no_row_is_a_split_that_fit_refuses(ask: Ask, words: list[str], splits: list[str]) -> None:
    """1,536 outputs of experts / 8 = 192 are no whole FP8 blocks of 128."""
    rows = ask("plan", *words, *LOAD, "--all", "--json").document["layers"]
    for one in rows:
        _check_with_fit(ask, one)
    assert sorted(one["split"] for one in rows) == splits


def test_users_of_a_replica_are_those_of_all_its_ranks(ask: Ask) -> None:
    """4 ranks with 409 users each are 1,636 of the replica, in `plan` and in `fit`."""
    words = ("gpt-oss-120b", "--gpu", "b200", "--dp", "4", "--tp", "1")
    (found,) = ask("plan", *words, *LOAD, "--json").document["layers"]
    figures = {figure["name"]: figure["value"] for figure in found["results"]}
    assert found["ranks"] == 4
    assert figures["users_per_replica"] == 4 * figures["concurrent_average"]
    assert figures["users_per_replica_worst"] == 4 * figures["concurrent_worst"]
    _check_with_fit(ask, found)
    assert " replica of 4 ranks, room for " in " ".join(ask("plan", *words, *LOAD).out.split())


@each(("words", "reason", "fit_words"), [
    (
        ["minimax-m2.5", "--gpu", "h200", "--tp", "8"],
        "--tp 8 leaves 192 of 1,536 outputs of experts, which are not whole FP8 blocks of 128",
        ["minimax-m2.5", "--gpu", "8xh200"],
    ),
    (
        ["qwen3-8b", "--gpu", "l4", "--context", "60000"],
        "context 60,000 is beyond the model's maximum of 40,960",
        ["qwen3-8b", "--gpu", "l4", "--context", "60000"],
    ),
])  # fmt: skip
def test_nothing_starts_for_the_reason_that_fit_gives(
    ask: Ask, words: list[str], reason: str, fit_words: list[str]
) -> None:
    answer = ask("plan", *words, *LOAD)
    assert answer.code == 1
    assert " ".join(answer.out.split()).startswith(f"NOTHING STARTS: {reason}. Use --")
    assert [*ask("plan", *words, *LOAD, "--json").document["search"]["refused"].values()] == [
        reason
    ]
    assert ask("fit", *fit_words, "--json").document["summary"] == f"DOES NOT START: {reason}."


def test_a_reason_of_some_splits_is_not_that_of_all(ask: Ask) -> None:
    """On L4s the weights do not fit with tp 8, and on H200s they do, but vLLM does not start."""
    words = ("plan", "minimax-m2.5", *LOAD, "--gpu", "h200,l4", "--tp", "8", "-q")
    assert ask(*words).out.startswith(
        "NOTHING FITS: no split over these GPUs holds the weights and one request. Others"
    )


@each(("words", "gpus", "fewest"), [
    # 16 ranks with room for 68 to 99 users each: 3,000 / 1,088 = 3 replicas, or 3,000 / 1,584 = 2
    ("deepseek-v3 --gpu h200 --dp 16 --tp 1", 48, 32),
    # an instance is rented whole, with one replica of 218 to 231 users: 14 of 8 GPUs, or 13
    ("qwen3-32b --gpu p5.48xlarge --tp 4 --pp 2", 112, 104),
])  # fmt: skip
def test_fewer_gpus_may_be_enough_with_the_least_runtime_memory(
    ask: Ask, words: str, gpus: int, fewest: int
) -> None:
    load = ("--users", "3000", "--prompt", "8K", "--output-len", "1K")
    answer = " ".join(ask("plan", *words.split(), *load).out.split())
    assert f"{gpus:,} x H" in answer
    assert f" {fewest} GPUs may be enough: with the least runtime memory" in answer


def test_one_replica_of_wide_experts_is_enough_for_3000_users(ask: Ask) -> None:
    """32 ranks had room for 32 to 4,448 users with the tokens of all ranks on each GPU."""
    words = ("plan", "deepseek-v3", "--gpu", "h200", "--dp", "32", "--tp", "1", "-q")
    load = ("--users", "3000", "--prompt", "8K", "--output-len", "1K")
    assert ask(*words, *load).out.startswith("32 x H200 SXM 141GB in 4 nodes")


def test_quantized_weights_have_the_command_of_a_checkpoint_that_exists(ask: Ask) -> None:
    words = (
        "plan",
        "qwen3-32b",
        *LOAD,
        "--gpu",
        "h100",
        "--tp",
        "4",
        "--all",
        "--json",
        "--weights-dtype",
    )
    rows = {row["weights_dtype"]: row for row in ask(*words, "all").document["layers"]}
    assert {name: row["checkpoint"] for name, row in rows.items()} == {
        None: None, "fp8": "Qwen/Qwen3-32B-FP8", "int4": "Qwen/Qwen3-32B-AWQ",
    }  # fmt: skip
    assert rows["int4"]["launch_command"].startswith(
        "vllm serve Qwen/Qwen3-32B-AWQ --max-model-len "
    )
    (unknown,) = ask(*words, "fp4").document["layers"]
    assert (unknown["checkpoint"], unknown["launch_command"]) == (None, None)


def test_every_known_checkpoint_is_one_of_a_preset() -> None:
    for one in checkpoints():
        if not one.is_habit:
            preset, dtype = unquantized(one.name) or ("", "")
            assert dtype in Checkpoints(preset), one.name


# No better row is missed


@each(("model", "device", "space"), [
    ("llama3.1-70b", "h100-80gb", Space(tp=[1, 2, 4, 8], pp=[1, 2, 3])),
    ("llama3.1-70b", "l4", Space(tp=[1, 2, 4, 8], pp=[1, 2])),
    ("gpt-oss-120b", "h100-80gb", Space(tp=[1, 2, 8], dp=[1, 2, 4])),
    ("deepseek-v3", "h200", Space(tp=[1, 8, 16], pp=[1, 2])),
])  # fmt: skip
def test_pruning_drops_no_row(model: str, device: str, space: Space) -> None:
    request = request_of(model, device)
    pruned = search([request], space)
    every = []
    for split in splits(request, space)[0]:
        try:
            every += replica(split.of(request), split)
        except AttncalcError:
            continue
    assert [one.split for one in pruned.candidates] == [one.split for one in every]


@each(("model", "device", "number"), [
    ("qwen3-8b", "l4", 100),
    ("llama3.1-70b", "h200", 500),
    ("gpt-oss-120b", "h100-80gb", 300),
])  # fmt: skip
def test_no_split_that_divides_a_node_is_better_than_the_first_row(
    model: str, device: str, number: int
) -> None:
    request, every = request_of(model, device), []
    for tp in (1, 2, 4, 8):
        for pp in (1, 2, 4, 8):
            split = Split(tp * pp, tp, pp)
            if 8 % (tp * pp) == 0:
                try:
                    every += replica(split.of(request), split)
                except AttncalcError:
                    continue
    first, best = (
        sorted_rows(rows(found, Demand(number)), "gpus")[0]
        for found in (search([request], Space()).candidates, every)
    )
    assert costs(first) <= costs(best)


def test_pruning_leaves_out_what_cannot_hold_the_weights() -> None:
    """Llama 3.1 70B has 141 GB in bf16: 4 GPUs of 24 GB do not hold it, and 8 do."""
    found = search([request_of("llama3.1-70b", "l4")], Space(tp=[1, 2, 4, 8]))
    assert (found.pruned, found.tried) == (3, 1)


def test_more_nodes_are_tried_only_if_one_does_not_fit() -> None:
    inside = search([request_of("llama3.1-70b", "h100-80gb")], Space())
    assert max(one.split.gpus for one in inside.candidates) == 8
    # 671 GB in fp8, a node has 640
    across = search([request_of("deepseek-v3", "h100-80gb")], Space())
    assert {(one.split.tp, one.split.pp) for one in across.candidates} >= {(16, 1), (8, 2)}
    assert max(one.split.tp * one.split.pp for one in across.candidates) == 16


# Rows than which another is better


def candidate_of(split: Split, most: int, verdict: str = "fits") -> Candidate:
    resolved = resolve(Split(1).of(request_of("qwen3-8b", "h100-80gb")))
    tokens = Traffic(3000, 500).average_tokens
    users = Users(Traffic(3000, 500), tokens, tokens, None, None, None, None, False, False)
    return Candidate(resolved, split, verdict, users, most, most, "cache")  # type: ignore[arg-type]


SPLITS = st.builds(
    lambda tp, pp: Split(tp * pp, tp, pp), st.sampled_from((1, 2, 4, 8)), st.sampled_from((1, 2))
)
CANDIDATES = st.builds(
    candidate_of, SPLITS, st.integers(1, 700), st.sampled_from(("fits", "may_not_fit"))
)


@given(st.lists(CANDIDATES, max_size=8), st.integers(1, 1000))
@settings(max_examples=50, deadline=None)
def test_a_row_is_left_out_if_and_only_if_another_is_better(
    candidates: list[Candidate], number: int
) -> None:
    every = rows(candidates, Demand(number))
    kept = not_dominated(every)
    assert bool(kept) == bool(every)
    for one in every:
        beaten_by = [
            other
            for other in kept
            if all(a <= b for a, b in zip(costs(other), costs(one), strict=True))
        ]
        assert beaten_by  # by itself, if it is kept
        if one not in kept:
            assert any(
                costs(other) != costs(one) or other.headroom >= one.headroom for other in beaten_by
            )
    assert len({costs(one) for one in kept}) == len(kept)


@given(st.integers(1, 60), st.sampled_from((1, 2, 4, 8, 16, 24)), st.sampled_from((1, 4, 8, 72)))
@settings(max_examples=200, deadline=None)
def test_the_rest_serves_all_users_if_a_node_fails(needed: int, gpus: int, per_node: int) -> None:
    replicas, nodes = placed(needed, gpus, per_node, spread=True)
    each, of_one = per_node // gpus, -(-gpus // per_node)
    lost = -(-replicas // nodes) if each else 1
    assert replicas - lost >= needed
    assert nodes * each >= replicas if each else nodes == replicas * of_one
    assert placed(needed, gpus, per_node, spread=False)[0] == needed < replicas


def test_replicas_are_as_many_as_the_users_need() -> None:
    """1,001 users on replicas of 500 are 3 replicas of 4 GPUs; 2 of them share a node of 8."""
    found = row(candidate_of(Split(4, 4), 500), Demand(1001, prices={"h100-80gb": ratio(249, 100)}))
    assert found is not None
    assert (found.replicas, found.gpus, found.nodes, found.capacity) == (3, 12, 2, 1500)
    assert float(found.price or 0) == pytest.approx(12 * 2.49)
    assert found.headroom == pytest.approx(1500 / 1001 - 1)
    assert row(candidate_of(Split(4, 4), 500), Demand(1001, max_gpus=11)) is None


def budgets_of(model: str, device: str, split: Split, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many memory budgets a replica asks for."""
    asked: list[bool] = []

    def counted(*args: Any, **options: Any) -> MemoryBudget:
        asked.append(True)
        return memory_budget(*args, **options)

    monkeypatch.setattr(devices, "memory_budget", counted)
    replica(split.of(request_of(model, device)), split)
    return len(asked)


def test_stages_with_equal_layers_share_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight stages of Llama 3.1 70B are the first, the last, and six with 10 layers. DeepSeek-V3
    has eight or seven layers on a stage, whose numbers do not matter.
    """
    split = Split(8, pp=8)
    assert budgets_of("llama3.1-70b", "h200", split, monkeypatch) == 3
    assert budgets_of("deepseek-v3", "mi355x", split, monkeypatch) < 6


def test_a_replica_without_room_asks_for_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    assert budgets_of("llama3.1-70b", "l4", Split(4, pp=4), monkeypatch) == 1


# The screen


@each("words", [
    f"llama3.1-70b {' '.join(LOAD)} --gpu h100,h200,l40s,mi300x",
    f"llama3.1-70b qwen3-8b {' '.join(LOAD)} --gpu h100,h200,l40s,mi300x --growth 1.5,2 --all",
    f"gpt-oss-120b {' '.join(LOAD)} --gpu h100,h200 --price h100=2.49,h200=3.79 --kv-dtype " "auto,fp8 --spread",
    f"llama3.1-70b {' '.join(LOAD)} --gpu l4,rtx-4090 --max-gpus 8",
    f"qwen3-8b {' '.join(LOAD)} --gpu h100,h200,mi300x,l4 --disaggregate --watts",
])  # fmt: skip
def test_a_plan_fits_a_screen(ask: Ask, words: str) -> None:
    answer = ask("plan", *words.split())
    lines = answer.out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert not answer.err


def test_prices_leave_one_table_with_the_best_row_of_each_gpu(ask: Ask) -> None:
    models, prices = ("qwen3-32b", "gpt-oss-120b"), ("h100-80gb=2.49", "h200=3.79", "l40s=1.2")
    load = "--users 200 --prompt 8K --output-len 1K --gpu all --price"
    lines = ask("plan", *models, *load.split(), ",".join(prices)).out.splitlines()
    assert sum(line.startswith("  model ") for line in lines) == 1
    rows = {tuple(line.split()[:2]) for line in lines if line.startswith("  ")}
    assert {(model, price.partition("=")[0]) for model in models for price in prices} <= rows
    assert any(line.startswith("Left out: ") and "nodes, worst" in line for line in lines)


def test_published_runs_give_a_range_below_the_bound_unless_there_is_an_efficiency(
    ask: Ask,
) -> None:
    words = ("plan", "llama3.1-70b", *LOAD, "--gpu", "h200", "--json")
    row = ask(*words).document["layers"][0]
    low, high = row["published_tokens_per_second_low"], row["published_tokens_per_second_high"]
    bound = next(
        figure["value"] for figure in row["results"] if figure["name"] == "tokens_per_second_bound"
    )
    assert 0 < low < high <= bound
    assert row["published_runs"] >= 1
    assert row["published_sources"]
    estimated = ask(*words, "--efficiency", "0.5").document["layers"][0]
    assert estimated["published_runs"] is None


def test_the_first_line_is_the_answer(ask: Ask) -> None:
    answer = ask("plan", "llama3.1-70b", *LOAD, "--gpu", "h200")
    assert answer.out.startswith("8 x H200 SXM 141GB in 1 node: tp 2, pp 2, 2 replicas, ")
    assert "vllm serve meta-llama/Llama-3.1-70B --max-model-len 3572" in answer.out
    assert answer.code == 0


def test_nothing_that_fits_is_the_answer_no(ask: Ask) -> None:
    answer = ask("plan", "llama3.1-70b", *LOAD, "--gpu", "l4", "--max-gpus", "4")
    # 4 x 22.0 * 0.92 = 81 GiB hold 70.55B parameters in 4 bits (33 GiB and scales), and 8 as many
    # in 16 (131 GiB)
    assert " --weights-dtype int4 does, or --max-gpus 8." in answer.out.splitlines()[1]
    assert answer.code == 1
    few = ask("plan", "llama3.1-70b", *LOAD, "--gpu", "h100", "--max-gpus", "8")
    each = plan("llama3.1-70b", users=1, prompt="3K", output=500, gpu="8xh100", all=True).rows
    most = max(8 // row["gpus"] * row["users_per_replica"] for row in each)
    assert few.out.startswith("NOT ENOUGH: 8 x H100 80GB SXM ")
    assert f", room for {most} users, up to " in " ".join(few.out.split())
    assert few.code == 1
    assert "\nEnough: 16 x H100 80GB SXM in 2 nodes: " in few.out
    six = ask("plan", "llama3.1-70b", "--users", "200", "--gpu", "6xh100").out
    assert "\nEnough: 8 x H100 80GB SXM in 1 node: " in six
    words = ("plan", "llama3.1-70b", "--rate", "50/s", *LOAD[2:], "--gpu", "h100")
    fewer, enough = ask(*words, "--max-gpus", "8").out, ask(*words).out.split(" in ")[0]
    assert fewer.startswith("NOT ENOUGH: 8 x H100 80GB SXM ")
    assert f"\nEnough: {enough} in " in fewer


def test_a_limit_for_ci(ask: Ask) -> None:
    words = ("plan", "llama3.1-70b", *LOAD, "--gpu", "h200", "--fail-if")
    assert ask(*words, "gpus > 8").code == 0
    failing = ask(*words, "gpus > 4")
    assert failing.code == 1
    assert "failed: gpus > 4: " in failing.out


def test_ctrl_c_prints_what_was_found_and_writes_no_file(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_l4 = replica

    def interrupted(request: FitRequest, split: Split) -> list[Candidate]:
        if request.gpu == gpu("mi300x"):
            raise KeyboardInterrupt
        return of_l4(request, split)

    monkeypatch.setattr(plan_search, "replica", interrupted)
    answer = ask("plan", "qwen3-8b", *LOAD, "--gpu", "l4,mi300x")
    assert answer.code == 130
    assert " x L4 24GB in " in answer.out or " x L4 in " in answer.out
    assert "warning: interrupted" in answer.out
    words = ("plan", "qwen3-8b", *LOAD, "--gpu", "l4,mi300x", "-o", str(tmp_path / "plan.csv"))
    assert ask(*words) == (130, "", "interrupted: no file is written\n")
    assert ask(*words[:-2], "--plot", str(tmp_path / "plan.svg")) == (
        130,
        "",
        "interrupted: no file is written\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_growth_has_a_line_for_each_size(ask: Ask) -> None:
    document = ask(
        "plan", "qwen3-8b", *LOAD, "--gpu", "h100", "--growth", "1.5,2", "--json"
    ).document
    assert [size["users"] for size in document["growth"]] == [750, 1000]
    twice = ask(
        "plan", "qwen3-8b", "--users", "1000", *LOAD[2:], "--gpu", "h100", "--json"
    ).document
    assert document["growth"][1]["gpus"] == next(
        f["value"] for f in twice["results"] if f["name"] == "gpus"
    )


def test_a_larger_size_prefers_the_faster_of_equal_rows(ask: Ask) -> None:
    """1,000 users on H200 take 16 GPUs with tp 4, tp 8 or pp 2; one more sort key than GPUs are the
    times.
    """
    words = (
        "plan",
        "llama3.1-70b",
        "--prompt",
        "3K",
        "--output-len",
        "500",
        "--gpu",
        "h200",
        "--json",
        "--users",
    )
    sizes = ask(*words, "500", "--growth", "2").document["growth"]
    best = ask(*words, "1000").document["layers"][0]
    assert sizes[0]["split"] == best["split"]


def test_watts_are_those_of_all_gpus(ask: Ask) -> None:
    """8 H200 of 700 W are 5.6 kW: 5.6 / 3600 kWh per second, of so many tokens."""
    words = ("plan", "llama3.1-70b", *LOAD, "--gpu", "h200", "--tp", "8", "--watts")
    found = figures_of(ask(*words, "--json").document)
    assert found["watts"] == 8 * 700
    assert found["kwh_per_million_tokens"] == pytest.approx(
        5.6 / 3600 / found["tokens_per_second_estimate"] * 10**6
    )
    assert "  5.60 " in ask(*words).out
    unknown = figures_of(ask("plan", "qwen3-8b", *LOAD, "--gpu", "m4-max-128gb", "--json").document)
    assert unknown["watts"] is None


def test_a_laptop_has_one_gpu_and_a_rack_72(ask: Ask) -> None:
    for device, gpus in (("rtx-4090-laptop", 1), ("m4-max-128gb", 1), ("h200", 8), ("gb200", 72)):
        assert gpu(device).per_node == gpus
    document = ask("plan", "qwen3-8b", *LOAD, "--gpu", "rtx-4090-laptop", "--json").document
    found = figures_of(document)
    assert found["nodes"] == found["gpus"] > 1


@pytest.mark.parametrize(
    ("gpus", "prices", "found"),
    [
        ("h100", "2.5", {"h100-80gb": 2.5}),
        ("h100", "$2.50/hr", {"h100-80gb": 2.5}),
        ("h100", "2.5 USD / GPU-hour", {"h100-80gb": 2.5}),
        ("h100,l4", "2.5,0.8", {"h100-80gb": 2.5, "l4": 0.8}),
        ("h100", "$1825/month", {"h100-80gb": 2.5}),
        ("h100", "8xh100=20", {"h100-80gb": 2.5}),
        ("h100,l4", "h100:2.5, l4:0.8", {"h100-80gb": 2.5, "l4": 0.8}),
        ("p4d,p5.48xlarge", "32,98", {"p4d.24xlarge": 4, "p5.48xlarge": 98 / 8}),
    ],
)
def test_prices_without_names_are_those_of_the_gpus_in_their_order(
    gpus: str, prices: str, found: object
) -> None:
    assert {
        name: float(price) for name, price in read_prices(prices, gpus.split(",")).items()
    } == found


def test_a_number_of_one_kind_of_gpu_is_the_most_that_plan_takes() -> None:
    load = {"users": 50, "prompt": "4K", "output": "1K"}
    assert read_plan(["llama3-8b"], {**load, "gpu": "4xh100"}).space.max_gpus == 4
    assert read_plan(["llama3-8b"], {**load, "gpu": "4xh100", "max_gpus": 8}).space.max_gpus == 8


def test_prices_from_a_file(ask: Ask, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("h100: 2.5\nh200: 4\n")
    document = ask(
        "plan", "llama3.1-70b", *LOAD, "--gpu", "all", "--price", str(prices), "--json"
    ).document
    assert document["search"]["gpus"] == ["h100-80gb", "h200"]
    figures = {figure["name"]: figure["value"] for figure in document["results"]}
    assert (
        figures["price_per_hour"]
        == figures["gpus"] * {"h100-80gb": 2.5, "h200": 4}[document["layers"][0]["gpu"]]
    )


def test_rows_in_python_are_those_of_the_csv(ask: Ask) -> None:
    result = plan("qwen3-8b", users=500, prompt=3000, output=500, gpu="l4,h100", all=True)
    csv = ask("plan", "qwen3-8b", "--users", "500", "--prompt", "3000", "--output-len", "500", "--gpu", "l4,h100",
              "--all", "--format", "csv").out  # fmt: skip
    assert len(csv.splitlines()) == len(result.rows) + 1
    assert csv.splitlines()[0].split(",")[: len(result.rows[0])] == list(result.rows[0])
    assert repr(result).startswith("PlanResult(qwen3-8b for 500 users: ")


# Prefill and decode on separate GPUs


def test_pools_prefill_as_many_prompts_as_the_decoders_finish(ask: Ask) -> None:
    """N users of 500 tokens are N / (TTFT + 499 TPOT) requests/s, whose prompts move a cache of
    3,072 tokens each.
    """
    words = ("plan", "llama3.1-70b", *LOAD, "--gpu", "h200", "--disaggregate", "--json")
    (pools,) = ask(*words, "--efficiency", "1").document["disaggregated"]
    rate = 500 / (pools["ttft"] + 499 * pools["tpot"])
    assert pools["requests_per_second"] == pytest.approx(rate)
    assert pools["prefill_replicas"] == math.ceil(rate * pools["ttft"])
    cache = next(
        f["value"] for f in ask("kv", "llama3.1-70b", "-c", "3K", "--json").document["results"]
    )
    assert pools["cache_bytes_per_second"] == pytest.approx(rate * cache)
    assert pools["gpus"] == pools["prefill_gpus"] + pools["decode_gpus"]
    (half,) = ask(*words, "--efficiency", "0.5", "--tpot", "60ms").document["disaggregated"]
    assert half["tpot"] == pytest.approx(2 * pools["tpot"])
    # half the speed of half as many prompts
    assert half["prefill_replicas"] == pools["prefill_replicas"]


def test_a_rate_needs_decoders_for_as_many_requests_as_run(ask: Ask) -> None:
    words = (
        "plan",
        "llama3.1-70b",
        "--rate",
        "20/s",
        *LOAD[2:],
        "--gpu",
        "h200",
        "--disaggregate",
        "--json",
    )
    (pools,) = ask(*words).document["disaggregated"]
    assert pools["requests_per_second"] == 20
    assert pools["prefill_replicas"] == math.ceil(20 * pools["ttft"])
    assert ask(*words, "--ttft", "1ms").document["disaggregated"] == []


# Pictures


def charts_of(**options: Any) -> dict[str, Lines]:
    drawn = plan(
        "llama3.1-70b", prompt="3K", output=500, **{"gpu": "h100,h200,mi300x", **options}
    ).report.draw()
    assert drawn
    return {chart.name: chart for chart in drawn.charts if isinstance(chart, Lines)}


def test_the_cost_in_the_picture_is_that_of_the_best_row() -> None:
    prices = {"h100": 2.49, "h200": 3.79, "mi300x": 2.99}
    chart = charts_of(users=500, price=prices)["cost"]
    rows = plan(
        "llama3.1-70b", users=480, prompt="3K", output=500, gpu="h100,h200,mi300x", price=prices
    ).rows
    for series in chart.series:
        at_480 = next(y for x, y in series.points if x == 480)
        assert at_480 == pytest.approx(
            min(row["price_per_hour"] for row in rows if row["gpu"] == series.label)
        )
        heights = [y or 0 for _, y in series.points]
        assert heights == sorted(heights)


def test_the_frontier_has_no_point_that_is_slower_and_dearer() -> None:
    for series in charts_of(users=500)["frontier"].series:
        times, costs_of = zip(*series.points, strict=True)
        assert list(times) == sorted(times)
        assert list(costs_of) == sorted(costs_of, reverse=True)


def test_a_picture_says_what_the_times_are(ask: Ask, tmp_path: Path) -> None:
    words = ("plan", "llama3.1-70b", "--rate", "20/s", *LOAD[2:], "--gpu", "h200", "--plot")
    assert "what a million tokens cost: median run" in " ".join(ask(*words).out.split())
    assert "cost: estimates with --efficiency 0.5" in " ".join(
        ask(*words, "--efficiency", "0.5").out.split()
    )
    assert ask(*words, str(tmp_path / "plan.svg")).code == 0
    assert (tmp_path / "plan.svg").stat().st_size > 10_000
    assert ask("plan", "llama3.1-70b", *LOAD, "--gpu", "l4", "--max-gpus", "4", "--plot").code == 2


# Load and times


def figures_of(document: dict[str, Any]) -> dict[str, Any]:
    return {figure["name"]: figure["value"] for figure in document["results"]}


def test_a_rate_takes_as_many_replicas_as_one_falls_short(ask: Ask) -> None:
    """100 requests/s of 500 tokens are 50,000 tokens/s: with one replica fewer they are too
    many.
    """
    options = "--prompt 3K --output-len 500 --gpu h200 --tp 8 --efficiency 0.5 --json"
    words = ("plan", "llama3.1-70b", *options.split())
    found = figures_of(ask(*words, "--rate", "100/s").document)
    assert found["tokens_per_second_estimate"] >= 100 * 500
    full = figures_of(ask(*words, "--users", str(found["users_per_replica"])).document)
    assert full["replicas"] == 1
    assert (found["replicas"] - 1) * full["tokens_per_second_estimate"] < 100 * 500
    assert figures_of(ask(*words, "--rate", "6000/min").document) == found


def test_a_replica_has_no_more_users_than_the_target_allows(ask: Ask) -> None:
    words = ("plan", "llama3.1-70b", *LOAD, "--gpu", "h200", "--tp", "8", "--json")
    free, quick = (ask(*words, *more).document for more in ((), ("--tpot", "50ms")))
    assert figures_of(free)["tpot_estimate"] > 0.050 >= figures_of(quick)["tpot_estimate"]
    assert quick["layers"][0]["limited_by"] == "--tpot"
    assert figures_of(quick)["replicas"] > figures_of(free)["replicas"]


@each(
    ("targets", "limited_by"),
    [
        ("--ttft 70ms", "--ttft"),
        ("--tpot 40ms", "--tpot"),
        # 8 users have their first token in 69 ms, and each further one in 35 ms
        ("--ttft 70ms --tpot 40ms", "--ttft"),
        ("--ttft 200ms --tpot 40ms", "--tpot"),
        ("--ttft 10s --tpot 10s", "cache"),
    ],
)
def test_a_replica_is_limited_by_the_target_that_one_more_user_misses(
    ask: Ask, targets: str, limited_by: str
) -> None:
    words = "plan llama3.1-8b --gpu l40s --users 500 --prompt 1K --output-len 200 --json"
    plan = ask(*words.split(), *targets.split()).document
    assert plan["layers"][0]["limited_by"] == limited_by


def test_the_tokens_of_a_mixture_are_those_of_the_expected_experts(ask: Ask) -> None:
    """200 tokens that pick 8 of 128 experts pick 128 (1 - (1 - 8/128)^200) = 128 of them; the bound
    reads 8.
    """
    words = "plan qwen3-30b-a3b --users 200 --prompt 128 --output-len 128 --gpu h100 --tp 1 --json"
    found = figures_of(ask(*words.split()).document)
    # 200 short caches and few FLOPs beside 30.5B weights in bf16 at 3.35 TB/s: 18.2 ms at least
    assert found["tpot_bound"] < 61.1e9 / 3.35e12 < found["tpot_estimate"]


def test_whole_instances_are_rented(ask: Ask) -> None:
    """A replica of 4 GPUs takes an instance of 8, on which a second one runs: 98 per hour and not
    49.
    """
    words = (
        "plan",
        "llama3.1-70b",
        *LOAD[2:],
        "--gpu",
        "p5.48xlarge",
        "--tp",
        "4",
        "--price",
        "98",
        "--users",
    )
    document = ask(*words, "20", "--json").document
    found = figures_of(document)
    assert (found["gpus"], found["replicas"], found["nodes"], found["price_per_hour"]) == (
        8,
        2,
        1,
        98,
    )
    assert (document["layers"][0]["gpu"], document["layers"][0]["instance"]) == (
        "h100-80gb",
        "p5.48xlarge",
    )
    assert ask(*words, "20").out.startswith(
        "1 x p5.48xlarge (8 x H100 80GB SXM): tp 4, 2 replicas, "
    )
    assert figures_of(ask(*words, "500", "--json").document)["nodes"] > 1  # and no limit of one
    chart = charts_of(users=20, gpu="p5.48xlarge", price=98)["users"]
    assert {users for gpus, users in chart.series[0].points if gpus < 8} == {0}


@each(("limit", "gpus"), [
    ("--max-gpus 32", 32),
    ("--gpu 4x8xh100", 32),
    ("--budget 20/h --price 2.5", 8),
    ("--budget 21900/month --price 2.5", 12),  # 730 hours of 30
    ("--gpu p5.48xlarge --budget 150/h --price 98", 8),
])  # fmt: skip
def test_a_limit_without_users_asks_how_many_it_serves(ask: Ask, limit: str, gpus: int) -> None:
    words = [
        "plan",
        "llama3.1-70b",
        *LOAD[2:],
        *(() if "--gpu " in limit else ("--gpu", "h100")),
        *limit.split(),
    ]
    document = ask(*words, "--json").document
    found = figures_of(document)
    assert gpus - 7 <= found["gpus"] <= gpus
    assert found["users_all_replicas"] == found["replicas"] * found["users_per_replica"] > 0
    assert document["load"]["users"] is None
    figures = [figure for row in document["layers"] for figure in row["results"]]
    speeds = [
        figure["value"] for figure in figures if figure["name"] == "tokens_per_second_estimate"
    ]
    assert found["tokens_per_second_estimate"] == max(speeds)


@each("load", ["--rate 20/s", "--users 300 --tpot 50ms", "--max-gpus 16 --tpot 50ms"])
def test_a_plan_is_of_the_speed_of_the_median_published_run(ask: Ask, load: str) -> None:
    words = f"plan llama3.1-70b {load} --prompt 3K --output-len 500 --gpu h200 --tp 8".split()
    heading = " ".join(ask(*words).out.partition("\n\n")[0].split())
    share = re.findall(r"published runs reaches ([\d.]+) of the best case", heading)
    # of dense models on several GPUs
    same = figures_of(ask(*words, "--efficiency", "0.425", "--json").document)
    assert share == ["0.42"]
    assert same == figures_of(ask(*words, "--json").document)


def test_the_cheapest_row_is_that_of_the_expected_speed(ask: Ask) -> None:
    """One A100 keeps up with 100 users in the best case, at 1.4; at the median speed an H100 does,
    at 2.5.
    """
    words = (
        "plan llama3.1-8b --users 100 --tpot 50ms --gpu h100,a100-80gb --price 2.5,1.4 --prompt "
        "2K --output-len 500"
    )
    expected, best = (ask(*words.split(), *more).out for more in ((), ("--efficiency", "1")))
    assert expected.startswith("1 x H100 80GB SXM ")
    assert best.startswith("1 x A100 80GB SXM ")


@each(("tpot", "is_near"), [("50ms", False), ("20ms", True)])
def test_the_gpus_of_the_best_case_are_named(ask: Ask, tpot: str, is_near: bool) -> None:
    """20 ms are near the 16.1 of a single request at 0.42 of the best case."""
    words = ("plan", "llama3.1-70b", "--users", "300", "--gpu", "h100", "--tpot", tpot)
    heading = " ".join(ask(*words).out.partition("\n\n")[0].split())
    best = figures_of(ask(*words, "--efficiency", "1", "--json").document)["gpus"]
    assert f"of the best case, for which {best} GPUs are enough" in heading
    assert ("the target is near the least time" in heading) == is_near


@each("asked", ["", "--efficiency 0.5"])
def test_users_are_told_the_speed_of_each(ask: Ask, asked: str) -> None:
    words = ("plan", "llama3.1-8b", *asked.split(), "--users", "200", *LOAD[2:], "--gpu", "h100")
    speed = re.search(r"Expect ([\d.]+) tokens/s per concurrent user", ask(*words).out)
    assert speed
    of_all = figures_of(ask(*words, "--json").document)["tokens_per_second_estimate"]
    assert float(speed[1]) == pytest.approx(of_all / 200, rel=0.02)


def test_a_rate_of_a_day_is_that_of_its_seconds(ask: Ask) -> None:
    words = ("plan", "llama3.1-8b", *LOAD[2:], "--gpu", "h100", "--json", "--rate")
    for text in ("1M/day", "1000000 requests per day"):
        assert ask(*words, text).document["load"]["rate"] == pytest.approx(10**6 / 86_400)


@each(("asked", "peak", "average"), [
    ("--rate 10k*20/day --load-factor 1/3", 3 * 10_000 * 20 / 86_400, 10_000 * 20 / 86_400),
    ("--rate 5/s --load-factor 25%", 20, 5),
])  # fmt: skip
def test_gpus_serve_the_peak_and_the_price_of_tokens_is_that_of_the_average(
    ask: Ask, asked: str, peak: float, average: float
) -> None:
    words = f"plan llama3.1-8b --prompt 500 --output-len 300 --gpu h100 --price 2.5 {asked}".split()
    document = ask(*words, "--json").document
    assert document["load"]["rate"] == pytest.approx(peak)
    found = figures_of(document)
    assert (
        found["gpus"]
        == figures_of(ask(*words[:10], "--rate", str(peak), "--json").document)["gpus"]
    )
    assert found["price_per_million_tokens"] == pytest.approx(
        found["price_per_hour"] / 3600 / (average * 300) * 10**6
    )
    (heading,) = re.findall(r"peak of\s+([\d.]+)\s+on\s+average", ask(*words).out)
    assert float(heading) == pytest.approx(average, rel=0.01)


def test_a_load_factor_prices_the_tokens_of_users_who_are_not_always_there(ask: Ask) -> None:
    words = ("plan", "llama3.1-8b", *LOAD, "--gpu", "h100", "--price", "2.5", "--json")
    busy, idle = (
        figures_of(ask(*words, *more).document) for more in ((), ("--load-factor", "0.25"))
    )
    assert idle.pop("price_per_million_tokens") == pytest.approx(
        4 * busy.pop("price_per_million_tokens")
    )
    assert idle == busy


def test_a_rate_of_a_day_says_that_it_has_no_peak(ask: Ask) -> None:
    words = ("plan", "llama3.1-8b", *LOAD[2:], "--gpu", "h100", "--rate")
    asked = [
        " ".join(ask(*words, *rate.split()).out.split())
        for rate in ("9/s", "1M/day", "1M/day --load-factor 1")
    ]
    assert ["a peak of 3 x is --load-factor 1/3" in each for each in asked] == [False, True, False]


def test_growth_of_a_percentage_is_compound(ask: Ask) -> None:
    """A GPU more is due in the first month of which 100 x 1.2^months users exceed the room of the
    GPUs before.
    """
    words = ("plan", "qwen3-8b", *LOAD[2:], "--gpu", "h100", "--tp", "1", "--json", "--growth")
    room = figures_of(ask(*words[:-1], "--users", "1").document)["users_per_replica"]
    sizes = ask(*words, "20%/month", "--users", "100").document["growth"]
    gpus = [
        1 + math.floor((math.ceil(100 * 1.2**months - 1e-9) - 1) / room) for months in range(13)
    ]
    due = [months for months in range(1, 13) if gpus[months] > gpus[months - 1] or months == 12]
    assert [(size["when"], size["gpus"]) for size in sizes] == [
        (f"{months} month{'s' * (months > 1)}", gpus[months]) for months in due
    ]
    assert [
        size["factor"] for size in ask(*words, "2x,50%", "--users", "9").document["growth"]
    ] == [2, 1.5]


def test_growth_ends_in_the_month_in_which_the_gpus_are_too_few(ask: Ask) -> None:
    """2 replicas have room for 2 x 403 = 806 users: 200 x 1.15^9 = 704 of them, and not 200 x
    1.15^10 = 810.
    """
    gpus = ("--gpu", "h100", "--max-gpus", "16", "--tp", "8")
    screen = ask("plan", "qwen2.5-32b", "--users", "200", *gpus, "--growth", "15%/month").out
    assert re.findall(r"(\d+) months: \S+ users +(\S+)", screen)[-1] == ("10", "-")


def test_an_unreachable_target_says_by_how_much(ask: Ask) -> None:
    answer = ask("plan", "llama3.1-70b", *LOAD, "--gpu", "h200", "--ttft", "1ms")
    assert answer.code == 1
    assert answer.out.startswith("NOTHING IS FAST ENOUGH: --ttft 1.00 ms, and the shortest is ")


def test_an_efficiency_makes_estimates_of_bounds(ask: Ask) -> None:
    words = ("plan", "llama3.1-70b", *LOAD, "--gpu", "h200", "--tp", "8", "--json")
    whole, half = (figures_of(ask(*words, "--efficiency", e).document) for e in ("1", "0.5"))
    assert half["tpot_estimate"] == pytest.approx(2 * whole["tpot_estimate"])
    assert half["tokens_per_second_estimate"] == pytest.approx(
        whole["tokens_per_second_estimate"] / 2
    )
    assert whole["tokens_per_second_estimate"] <= whole["tokens_per_second_bound"]


def test_the_price_of_tokens_is_that_of_an_hour_at_full_speed(ask: Ask) -> None:
    document = ask(
        "plan", "llama3.1-70b", *LOAD, "--gpu", "h200", "--price", "h200=3.79", "--json"
    ).document
    found = figures_of(document)
    assert found["price_per_hour"] == pytest.approx(8 * 3.79)
    per_hour = found["tokens_per_second_estimate"] * 3600
    assert found["price_per_month"] == pytest.approx(8 * 3.79 * 730)
    assert found["price_per_million_tokens"] == pytest.approx(
        found["price_per_hour"] / per_hour * 10**6
    )


@each(("rate", "gpus", "price"), [
    ("0.01", 1, 231.48),  # 0.01 x 300 = 3 tokens/s: 2.5 / (3 x 3600) x 10^6
    ("0.5", 1, 4.63),  # 2.5 / (150 x 3600) x 10^6
])  # fmt: skip
def test_the_price_of_tokens_at_a_rate_is_that_of_the_tokens_asked_for(
    ask: Ask, rate: str, gpus: int, price: float
) -> None:
    words = f"plan llama3.1-8b --gpu h100 --price 2.5 --rate {rate} --prompt 1000 --output-len 300"
    found = figures_of(ask(*words.split(), "--json").document)
    assert found["gpus"] == gpus
    assert found["price_per_million_tokens"] == pytest.approx(price, rel=1e-3)


@each(("api", "of_request"), [
    ("0.6", 1300 * 0.6 / 10**6),
    ("0.5,1.5", (1000 * 0.5 + 300 * 1.5) / 10**6),
    ("0.01", 1300 * 0.01 / 10**6),
])  # fmt: skip
def test_gpus_break_even_with_an_api_at_the_rate_at_which_it_costs_as_much(
    ask: Ask, api: str, of_request: float
) -> None:
    load = ("--rate", "2/s", "--efficiency", "0.5", "--prompt", "1000", "--output-len", "300")
    words = ("plan", "llama3.1-8b", "--gpu", "h100", "--price", "2.5", *load)
    found = figures_of(ask(*words, "--api-price", api, "--json").document)
    assert found["break_even_rate"] == pytest.approx(2.5 * found["gpus"] / 3600 / of_request)
    screen = " ".join(ask(*words, "--api-price", api).out.split())
    assert f"{2 * 2_628_000 * of_request:,.0f} per month for 2 requests/s" in screen
    capacity = float(re.findall(r"up to ([\d.]+) requests/s", screen)[0])
    assert ("the API is cheaper at any rate" in screen) == (found["break_even_rate"] > capacity)


def test_a_request_counts_for_as_long_as_it_runs(tmp_path: Path) -> None:
    """Outputs of 100 and 300 tokens run 100 and 300 steps: (100 x (1000 + 50) + 300 x (2000 + 150))
    / 400 = 1875.
    """
    file = tmp_path / "requests.csv"
    file.write_text("id,ContextTokens,GeneratedTokens\na,1000,100\nb,2000,300\n")
    traffic = read_traffic({"lengths": file})
    assert (traffic.prompt, traffic.output) == (1500, 200)
    assert (traffic.average_tokens, traffic.worst_tokens) == (
        (100 * 1050 + 300 * 2150) // 400,
        2300,
    )
    assert read_traffic({"lengths": file, "percentile": 50.0}).worst_tokens == 1100
    assert (
        read_traffic({"lengths": file, "length_columns": "GeneratedTokens,ContextTokens"}).prompt
        == 200
    )


@given(st.integers(1, 50), st.integers(0, 50), st.integers(1, 50), st.integers(0, 50))
@settings(max_examples=30, deadline=None)
def test_a_range_is_every_length_between(low: int, more: int, first: int, further: int) -> None:
    prompts, outputs = range(low, low + more + 1), range(first, first + further + 1)
    held = sum(o * (p + o / 2) for p in prompts for o in outputs) / sum(
        o * len(prompts) for o in outputs
    )
    traffic = read_traffic(
        {"prompt": f"{low}:{low + more}", "output": f"{first}:{first + further}"}
    )
    assert 0 <= int(traffic.average_tokens) - held + 1e-9 <= 1  # rounded up
    assert traffic.worst_tokens == low + more + first + further


def test_a_share_of_cached_tokens_is_stored_once(ask: Ask) -> None:
    words = ("plan", "llama3.1-70b", *LOAD, "--gpu", "h200", "--tp", "8", "--json")
    without, by_share, by_length = (
        ask(*words, *more).document
        for more in ((), ("--prefix-hit-rate", "0.5"), ("--shared-prefix", str(3 * 1024 // 2)))
    )
    assert figures_of(by_share) == figures_of(by_length)
    assert figures_of(by_share)["users_per_replica"] > figures_of(without)["users_per_replica"]
    assert figures_of(by_share)["ttft_bound"] < figures_of(without)["ttft_bound"]


@each(
    ("words", "prompt", "output", "assumed"),
    [
        ("llama3-8b", 4096, 1024, "--prompt 4K, --output-len 1K"),
        ("llama2-7b", 3072, 1024, "--prompt 3072, --output-len 1K"),  # its longest context is 4,096
        ("gpt2", 768, 256, "--prompt 768, --output-len 256"),  # of 1,024
        ("llama3-8b -c 4608", 3584, 1024, "--prompt 3584, --output-len 1K"),  # 4,608 - 1,024
        ("llama3-8b --prompt 7K", 7168, 1024, "--output-len 1K"),
        ("llama3-8b --prompt 7K -c 7500", 7168, 332, "--output-len 332"),  # 7,500 - 7,168
        ("llama3-8b --output-len 500", 4096, 500, "--prompt 4K"),
    ],
)
def test_usual_requests_are_assumed_and_named(
    ask: Ask, words: str, prompt: int, output: int, assumed: str
) -> None:
    document = ask("plan", *words.split(), "--users", "10", "--gpu", "h100", "--json").document
    assert (document["load"]["prompt"], document["load"]["output"]) == (prompt, output)
    assert document["notes"][0] == f"Assumed: {assumed}."


# Bad input


@each(("words", "message"), [
    ("", "--users and --gpu are required"),
    ("--users 500", "--gpu is required"),
    ("--users 0 --gpu h100 --prompt 3K --output-len 1", "--users: '0' is not a whole number"),
    ("--users 500 --gpu 2xh100,l4 --prompt 3K --output-len 1", "--gpu 2xh100: several kinds"),
    ("--users 500 --gpu hal9000 --prompt 3K --output-len 1", "no GPU named 'hal9000'"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --price h200=3", "--price: h200 is not among the GPUs"),
    ("--users 500 --gpu h100,l4 --prompt 3K --output-len 1 --price h100=3", "--price: l4 has no price"),
    ("--users 500 --gpu h100,l4 --prompt 3K --output-len 1 --price 3", "--price: '3' is not a GPU with its price"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --price h100=free", "--price h100-80gb: 'free' is not"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --price no.yaml", "--price: no.yaml: no such file"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --sort price", "--sort price needs --price"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --api-price 1", "--api-price needs --price"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --api-price 1,2,3", "--api-price: '1,2,3' has more than two"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --sort cost", "--sort cannot be 'cost'"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --growth 0", "--growth: '0' is not a number above 0"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --growth x", "--growth: 'x' is not a number above 0"),
    ("--users 500 --gpu h100 --prompt 3M --output-len 1", "more than the context"),
    ("--users 500 --rate 20/s --gpu h100 --prompt 3K --output-len 1", "--users cannot be combined with --rate"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --budget 500 --price 2", "--budget: '500' has no period"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --budget 500/day", "--budget needs --price"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --growth 5%/moon", "--growth: '5%/moon' has no period"),
    ("--rate 20/fortnight --gpu h100 --prompt 3K --output-len 1", "--rate: '20/fortnight' is not a rate"),
    ("--users 500 --gpu h100 --prompt 3K:1K --output-len 1", "--prompt: the range '3K:1K' ends below its start"),
    ("--users 500 --gpu h100 --lengths no.csv", "--lengths: no.csv: no such file"),
    ("--users 500 --gpu h100 --lengths README.md", "--lengths: README.md has no column 'prompt'"),
    ("--users 500 --gpu h100 --lengths no.csv --prompt 3K", "--lengths cannot be combined with --prompt"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --percentile 99", "--percentile needs --lengths"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --ttft soon", "--ttft: 'soon' is not a time above 0"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --ttft 300", "--ttft: '300' has no unit"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --efficiency 2", "--efficiency: '2' is not a number"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --load-factor 3", "--load-factor: '3' is not a number"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --load-factor 4/3", "--load-factor: '4/3' is not a number"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --load-factor 1/0", "--load-factor: '0' is not a number"),
    ("--users 500 --gpu h100 --prompt 3K --output-len 1 --prefix-hit-rate 2", "--prefix-hit-rate: '2' is not"),
    ("--users 5 --gpu h100 --prompt 3K --output-len 1 --spread --disaggregate", "cannot be combined with --spread"),
    ("--users 500 --gpu all --prompt 3K --output-len 1 --tp 1:1000:1 --pp 1:1000:1", "candidates, and may have"),
])  # fmt: skip
def test_bad_input_is_one_error_and_a_tip(ask: Ask, words: str, message: str) -> None:
    said = ask("plan", "llama3.1-70b", *words.split(), "--json").error  # which assumes nothing
    error, tip = said.splitlines()
    assert message in error
    assert tip.startswith("  tip: ")


def test_a_row_too_slow_to_read_along_is_after_the_others(ask: Ask) -> None:
    # M3 Ultra: 819 GB/s / 141 GB of weights are 6 steps per second, and 100 users' caches are read
    # beside them
    answer = ask(
        "plan",
        "llama3.1-70b",
        "--users",
        "100",
        "--prompt",
        "4K",
        "--output-len",
        "1K",
        "--gpu",
        "m3-ultra-512gb,h200",
    )
    rows = [line for line in answer.out.splitlines() if line.startswith(("  m3-ultra", "  h200"))]
    assert [row.split()[0] for row in rows][-1] == "m3-ultra-512gb"
    assert "less than 5 tokens/s per user" in answer.out


@each(
    ("words", "error", "tip"),
    [
        (
            "--gpu h100 --max-gpus 4 --tp 8",
            "--tp 8 needs 8 GPUs, and --max-gpus is 4",
            "give --max-gpus 8",
        ),
        (
            "--gpu 4xh100 --tp 8 --pp 2",
            "--tp 8 with --pp 2 needs 16 GPUs, and --gpu has 4",
            "give --max-gpus 16",
        ),
    ],
)
def test_a_split_over_more_gpus_than_there_may_be_is_an_error(
    ask: Ask, words: str, error: str, tip: str
) -> None:
    first, second = ask("plan", "qwen3-8b", "--users", "100", *words.split()).error.splitlines()
    assert first == f"error: {error}"
    assert second.endswith(tip)


def test_a_sum_of_gpus_that_is_allowed_is_no_advice(ask: Ask) -> None:
    line = "plan llama3.1-70b --users 9 --gpu l4 --max-gpus 8 --tp 1"
    answer = ask(*line.split())
    assert answer.code == 1
    assert "--max-gpus" not in answer.out.split("Assumed")[0]


@each("time", ["20tok", "20tok/s", "soon"])
def test_a_time_that_cannot_be_read_has_the_forms_that_can(ask: Ask, time: str) -> None:
    line = ["plan", "qwen3-8b", "--gpu", "h100", "--users", "10", "--tpot", time]
    assert ask(*line).error.splitlines() == [
        f"error: --tpot: '{time}' is not a time above 0",
        "  tip: write 20/s, 50ms or 2s",
    ]


GROWING = "plan qwen3-8b --gpu h100 --users 100 --growth 20%/month"


def test_growth_is_shown_beside_the_formulas(ask: Ask) -> None:
    out = ask(*GROWING.split(), "--explain").out
    assert re.search(r"^ +growth +gpus +nodes ", out, re.MULTILINE)


@each("option", ["-q", "--get gpus", "--format csv", "-o x.jsonl"])
def test_growth_that_an_answer_has_no_place_for_is_an_error(ask: Ask, option: str) -> None:
    error = ask(*GROWING.split(), *option.split()).error
    assert error.startswith("error: --growth cannot be combined with ")
