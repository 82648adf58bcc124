"""Published deployments: measured speeds against the bounds, and the classes that are derived from
them.
"""

import json
import sys
from pathlib import Path

import pytest
from asking import Ask
from measurements import FOLDER, examples, measurements
from tables import each

from attncalc import Workload, load
from attncalc.config.gpus import gpu
from attncalc.serving.load_bounds import Load
from attncalc.serving.published import class_of, published_range
from attncalc.serving.request import FitRequest, resolve

RECIPES = [
    (row["id"], row["command"], row["verdict"])
    for row in json.loads((FOLDER / "recipes.json").read_text(encoding="utf-8"))
]
sys.path.append(str(Path(__file__).parent.parent / "tools"))
import accuracy  # noqa: E402
import serving_classes  # noqa: E402


def test_no_measured_rate_exceeds_the_bounds() -> None:
    """Nor the planning figure, of any of the runs without drafts and cached prefixes."""
    runs = measurements()
    assert len(runs) > 250
    assert [run.row["id"] for run in runs if run.of_bound > 1 or run.of_planning > 1] == []
    assert max(run.of_bound for run in runs) > 0.8  # a bound that nobody comes near would hold too


def test_no_measured_time_is_below_the_bounds() -> None:
    early = [
        run.row["id"]
        for run in measurements()
        if run.row.get("ttft_s", 1e9) < float(run.bounds.ttft)
        or run.row.get("tpot_s", 1e9) < float(run.bounds.tpot or 0)
    ]
    assert early == []


def test_runs_that_derived_no_class_lie_in_its_range() -> None:
    """At least 80 % of the pages that were held out; and the shipped table is that of the tool."""
    runs, inside = serving_classes.held_out()
    assert runs >= 50
    assert inside / runs >= 0.8
    assert serving_classes.TABLE.read_text(encoding="utf-8") == serving_classes.text(), (
        "run python tools/serving_classes.py"
    )


def test_the_page_has_the_ranges_of_published_runs() -> None:
    page = (accuracy.PAGES / "serving.md").read_text(encoding="utf-8")
    assert "\n".join(accuracy.served()) in page, "run python tools/accuracy.py"


def test_runs_of_new_publishers_lie_in_the_range() -> None:
    """80 % of the runs of each publisher, with the classes of all others."""
    runs, inside = serving_classes.of_new_publishers()
    assert inside / runs >= 0.8


def test_no_estimate_of_aiconfigurator_is_quicker_than_the_bounds() -> None:
    for row, bounds in examples():
        assert row["ttft_ms"] > 1000 * float(bounds.ttft)
        assert row["tpot_ms"] > 1000 * float(bounds.tpot or 0)
        assert row["tokens_per_s"] < float(bounds.planning_tokens_per_second or 0)


@pytest.mark.parametrize(
    ("requests", "split", "named"),
    [
        (1, {"gpus": 8, "tp": 8}, "mixture, up to 8 requests, several GPUs"),
        (9, {"gpus": 8, "tp": 8}, "mixture, 9 to 32 requests, several GPUs"),
        (
            33,
            {"gpus": 8, "tp": 1, "dp": 8},
            "mixture, 33 to 128 requests, several GPUs with DP attention",
        ),
        (129, {"gpus": 1}, "mixture, above 128 requests, one GPU"),
        (129, {"gpus": 2, "tp": 1}, "mixture, above 128 requests, one GPU"),
    ],
)
def test_a_class_is_that_of_one_copy(requests: int, split: dict[str, int], named: str) -> None:
    request = FitRequest(load("gpt-oss-120b"), Workload.decode(1, 2048), gpu=gpu("h200"), **split)  # type: ignore[arg-type]
    resolved, load_of = resolve(request), Load(requests, 1024, 1024)
    assert str(class_of(resolved, load_of)) == named
    found = published_range(resolved, load_of)
    assert found is not None
    assert 0 < found.low < found.high <= 1
    assert found.runs >= 5
    assert found.sources


def test_a_class_with_few_runs_has_the_range_of_all_loads() -> None:
    request = FitRequest(
        load("llama3.1-70b"), Workload.decode(1, 2048), gpu=gpu("h200"), gpus=4, tp=4
    )
    found = published_range(resolve(request), Load(64, 1024, 1024))
    assert found
    assert str(found.of) == "dense, any number of requests, several GPUs"
    assert found.low < found.median < found.high


@each(("name", "command", "verdict"), RECIPES)
def test_official_recipes_fit(ask: Ask, name: str, command: str, verdict: str) -> None:
    """All but three, of which tests/data/serving/README.md says why."""
    found = ask(*command.split()[1:], "--json").document
    assert found["fits"] == (verdict != "does_not_fit"), name


def test_few_recipes_do_not_fit() -> None:
    assert [name for name, _, verdict in RECIPES if verdict == "does_not_fit"] == [
        "llama3.3-70b-1xh100-fp8",
        "llama4-scout-1xh100-fp8",
        "qwen3.6-27b-1xl40s-fp8",
    ]
