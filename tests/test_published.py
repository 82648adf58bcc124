"""Published deployments: measured speeds against the bounds, and the constants that are fitted to
them.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

from asking import Ask
from measurements import FOLDER, examples, measurements
from tables import each

from attncalc import Workload, load
from attncalc.config.gpus import gpu
from attncalc.serving.request import FitRequest, resolve
from attncalc.serving.step_times import constants_of, family_of

RECIPES = [
    (row["id"], row["command"], row["verdict"])
    for row in json.loads((FOLDER / "recipes.json").read_text(encoding="utf-8"))
]
sys.path.append(str(Path(__file__).parent.parent / "tools"))
import accuracy  # noqa: E402
import serving_constants  # noqa: E402


def test_no_measured_rate_exceeds_the_bounds() -> None:
    """Nor the planning figure, of the runs without drafts and cached prefixes. Only one of SGLang
    over nine nodes hides the tokens' way to experts behind another batch's computation.
    """
    runs = measurements()
    assert len(runs) > 250
    assert [run.row["id"] for run in runs if run.of_bound > 1] == []
    assert [run.row["id"] for run in runs if run.of_planning > 1] == ["sgep-06"]
    assert max(run.of_bound for run in runs) > 0.8  # a bound that nobody comes near would hold too


def test_no_measured_time_is_below_the_bounds() -> None:
    early = [
        run.row["id"]
        for run in measurements()
        if run.row.get("ttft_s", 1e9) < float(run.bounds.ttft)
        or run.row.get("tpot_s", 1e9) < float(run.bounds.tpot or 0)
    ]
    assert early == []


def test_the_constants_are_those_of_the_tool() -> None:
    assert serving_constants.TABLE.read_text(encoding="utf-8") == serving_constants.text(), (
        "run python tools/serving_constants.py"
    )


def test_runs_of_new_publishers_are_planned_by_the_others() -> None:
    """The median is within 10 % for dense models, and for mixtures on one GPU. 85 % of the runs of
    both lie in a range of a factor below 3.
    """
    ratios = defaultdict(list)
    for run, of_planned in serving_constants.held_out(serving_constants.own_runs()):
        ratios[run.family[1]].append(of_planned)
    assert sum(map(len, ratios.values())) > 180
    for model in ("dense", "mixture on one GPU"):
        assert 0.9 < median(ratios[model]) < 1.1
        low, high = serving_constants.range_of(ratios[model])
        assert high / low < 3
    assert 0.8 < median(ratios["mixture on several GPUs"]) < 1.25


def test_the_page_has_the_errors_of_each_class() -> None:
    page = accuracy.PAGE.read_text(encoding="utf-8")
    assert "\n".join(accuracy.served()) in page, "run python tools/accuracy.py"


def test_no_estimate_of_aiconfigurator_is_quicker_than_the_bounds() -> None:
    for row, bounds in examples():
        assert row["ttft_ms"] > 1000 * float(bounds.ttft)
        assert row["tpot_ms"] > 1000 * float(bounds.tpot or 0)
        assert row["tokens_per_s"] < float(bounds.planning_tokens_per_second or 0)


@each(
    ("name", "gpu_name", "split", "family"),
    [
        ("llama3-8b", "h100", {}, ("NVIDIA, data center", "dense")),
        ("gpt-oss-120b", "h200", {}, ("NVIDIA, data center", "mixture on one GPU")),
        (
            "gpt-oss-120b",
            "h200",
            {"gpus": 2, "tp": 1},
            ("NVIDIA, data center", "mixture on one GPU"),
        ),
        ("gpt-oss-120b", "mi300x", {"gpus": 8, "tp": 8}, ("AMD", "mixture on several GPUs")),
        ("llama3-8b", "rtx-4090", {}, ("a desktop's card", "dense")),
        ("llama3-8b", "m3-max-128gb", {}, ("Apple", "dense")),
    ],
)
def test_the_family_of_a_deployment(
    name: str, gpu_name: str, split: dict[str, int], family: tuple[str, str]
) -> None:
    request = FitRequest(load(name), Workload.decode(1, 2048), gpu=gpu(gpu_name), **split)  # type: ignore[arg-type]
    assert family_of(resolve(request)) == family


def test_a_family_without_runs_has_the_constants_of_usual_gpus() -> None:
    request = FitRequest(load("gpt-oss-20b"), Workload.decode(1, 2048), gpu=gpu("mi300x"))
    assert str(constants_of(resolve(request))) == "mixture on one GPU on NVIDIA, data center"


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
