"""The pictures of `attncalc train`: the parts of the peak over the context, and a step's moments."""

from pathlib import Path
from typing import Any

import pytest
from asking import Ask

import attncalc
from attncalc.cost.training.step import most_loaded
from attncalc.questions.train.chart import (
    over_a_step,
    over_contexts,
    parts_at_peak,
    place_of,
    train_charts,
)
from attncalc.show.plot.chart import Areas

RUNS: dict[str, dict[str, Any]] = {
    "one GPU": {"model": "gpt2", "context": "512"},
    "peak in the backward pass": {"model": "llama3-8b", "loss": "chunked", "context": "4096"},
    "recomputed": {"model": "llama3-8b", "recompute": "full", "loss": "fused", "context": "8192"},
    "ZeRO 3": {"model": "llama3-8b", "gpus": 8, "zero": 3, "gpu": "h100-80gb"},
    "LoRA": {"model": "qwen3-8b", "lora": "r=16", "weights_dtype": "nf4", "gpu": "rtx-4090"},
    "mixture": {"model": "mixtral-8x7b", "context": "4096"},
    "eager": {"model": "llama3-8b", "kernel": "eager", "recompute": "full", "context": "4096"},
    "accumulated": {"model": "gpt2", "gradient_accumulation": 4},
    "pipeline": {"model": "llama3-8b", "gpus": 4, "pp": 4, "gradient_accumulation": 8},
    "offloaded activations": {
        "model": "llama3-8b",
        "recompute": "full",
        "offload": "activations",
        "context": "4096",
    },
    "block of recomputed layers": {
        "model": "llama3-8b",
        "recompute": "full",
        "recompute_method": "block",
        "recompute_num_layers": 8,
        "context": "4096",
    },
    "recomputed modules": {
        "model": "llama3-8b",
        "recompute": "selective",
        "recompute_modules": "core_attn,layernorm",
        "compile": True,
        "context": "4096",
    },
    "loading": {
        "model": "llama3-8b",
        "gpus": 2,
        "zero": 3,
        "load_full_state_dict": True,
        "lora": "r=8",
        "recompute": "full",
        "context": "512",
    },
}
every_run = pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)


def sums(chart: Areas) -> dict[float, float]:
    return dict(zip(chart.xs, chart.tops[-1], strict=True))


@every_run
def test_stacked_parts_add_up_to_the_printed_peak_at_each_context(options: dict[str, Any]) -> None:
    options = dict(options)
    model = options.pop("model")
    of_chart = sums(over_contexts(attncalc.train(model, **options).run))
    assert len(of_chart) > 3
    for context in list(of_chart)[::4]:
        printed = attncalc.train(model, **{**options, "context": int(context)}).to_dict()
        assert of_chart[context] == printed["allocated"]


@every_run
def test_activations_at_the_peak_are_known_by_part(options: dict[str, Any]) -> None:
    options = dict(options)
    run = attncalc.train(options.pop("model"), **options).run
    for budget in [most_loaded(run, plain=True)]:
        for moment in budget.moments:
            for held in moment.held:
                if held.name == "activations":
                    assert sum(map(int, held.parts.values())) == int(held.size), moment.name
                    assert min([*held.parts.values(), 0]) == 0
        assert sum(parts_at_peak(budget).values()) == budget.allocated


@every_run
def test_the_highest_moment_of_a_step_is_its_peak(options: dict[str, Any]) -> None:
    options = dict(options)
    run = attncalc.train(options.pop("model"), **options).run
    budget = most_loaded(run, plain=True)
    chart = over_a_step(run, budget)
    assert max(chart.tops[-1]) == budget.allocated_in_step
    (mark,) = chart.marks
    assert mark.label.endswith(budget.peak.name)
    assert place_of(budget.peak).start < mark.value < place_of(budget.peak).end
    assert chart.xs == sorted(chart.xs)
    assert (chart.spans[0].start, chart.spans[-1].end) == (chart.xs[0], chart.xs[-1])


def test_phases_of_a_step_are_in_their_order() -> None:
    """Without accumulation, there are no gradients until the backward pass, and no activations in
    the optimizer's step.
    """
    run = attncalc.train("llama3-8b").run
    chart = over_a_step(run, most_loaded(run, plain=True))
    assert [span.label for span in chart.spans] == ["forward", "loss", "backward", "step"]
    points = {series.label: series.points for series in chart.series}
    gradients = [y for x, y in points["gradients"] if x < 2]
    assert set(gradients) == {0}
    _, at_end = points["activations: MLP"][-1]
    assert at_end == 0


def test_accumulated_gradients_are_held_from_the_beginning() -> None:
    run = attncalc.train("gpt2", gradient_accumulation=4).run
    chart = over_a_step(run, most_loaded(run, plain=True))
    points = {series.label: series.points for series in chart.series}
    _, first = points["gradients"][0]
    # 124,439,808 parameters, of which each has a gradient of 4 B
    assert first == 4 * 124_439_808


def test_a_change_of_the_peak_is_a_jump_between_neighbouring_contexts() -> None:
    """Llama 3 8B on one GPU: up to 6,023 tokens the optimizer's step is the peak."""
    chart = over_contexts(attncalc.train("llama3-8b", context=4096).run)
    (mark,) = chart.marks
    assert (mark.value, mark.label) == (6024, "peak in the loss from 6,024")
    assert 6023 in chart.xs
    both = sums(chart)
    assert both[6024] >= both[6023]
    for context in (6023, 6024):
        peak = attncalc.train("llama3-8b", context=context).to_dict()["allocated"]
        assert both[context] == peak


def test_a_recurrent_model_has_no_activations_of_attention() -> None:
    chart = over_contexts(attncalc.train("mamba-2.8b", context=1024).run)
    labels = {series.label for series in chart.series}
    assert "activations: recurrence" in labels
    assert "activations: attention" not in labels


def test_the_memory_of_the_gpu_is_a_line() -> None:
    with_gpu, *_ = train_charts(attncalc.train("gpt2", gpu="t4").run, [1])
    without, *_ = train_charts(attncalc.train("gpt2").run, [1])
    assert isinstance(with_gpu, Areas)
    assert isinstance(without, Areas)
    assert [limit.label for limit in with_gpu.limits] == ["GPU memory, 14.6 GiB"]
    assert without.limits == ()


def test_the_picture_of_a_pipeline_has_its_stages(ask: Ask) -> None:
    command = (
        "llama3-8b --gpus 2 --pp 2 --gradient-accumulation 4 -c 4K --plot --show memory,stages"
    )
    out = ask("train", *command.split()).out
    for text in ("activations: MLP", "optimizer states", "8K", "stage 0", "stage 1"):
        assert text in out


def test_show_timeline_draws_one_step(ask: Ask, tmp_path: Path) -> None:
    out = ask("train", "gpt2", "--plot", "--show", "timeline").out
    assert "forward" in out
    assert "backward" in out
    file = tmp_path / "t.svg"
    assert ask("train", "gpt2", "--plot", str(file), "--show", "timeline").code == 0
    assert "Moments of one step, not to scale" in file.read_text()
