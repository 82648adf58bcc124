"""The picture of `attncalc sweep`: lines of any figure over any axis of numbers."""

import csv
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from asking import Ask

from attncalc import sweep
from attncalc.errors import AttncalcError
from attncalc.questions.sweep.picture import for_picture, sweep_picture
from attncalc.questions.sweep.sweep import Sweep
from attncalc.show.plot.chart import Areas, Bars, Chart, Lines


def drawn(rows: Sweep) -> Chart:
    """Return the only chart of a sweep."""
    (chart,) = sweep_picture(rows).charts
    return chart


def test_points_are_the_rows_of_the_sweep() -> None:
    rows = sweep("llama2-70b", attention="mha,gqa:8", context="1K:8K:x2", columns="kv_cache")
    chart = drawn(rows)
    assert isinstance(chart, Lines)
    assert (chart.name, chart.x.name, chart.x.unit, chart.y.unit) == (
        "kv_cache",
        "context",
        "tokens",
        "B",
    )
    assert [series.label for series in chart.series] == ["MHA", "GQA-8"]
    points = {("mha", "gqa:8")[i]: dict(series.points) for i, series in enumerate(chart.series)}
    for row in rows:
        assert points[row["attention"]][row["context"]] == row["kv_cache"]


def test_the_numeric_axis_with_most_values_is_across() -> None:
    by_batch = drawn(sweep("gpt2", context="256,512", batch="1,2,4,8", columns="kv_cache"))
    assert isinstance(by_batch, Lines)
    assert (by_batch.x.name, [series.label for series in by_batch.series]) == (
        "batch",
        ["context 256", "context 512"],
    )
    by_context = drawn(sweep("gpt2", context="256,512", batch="1,2", columns="kv_cache"))
    assert isinstance(by_context, Lines)
    assert (by_context.x.name, by_context.series[0].label) == ("context", "batch 1")


def test_an_axis_on_which_a_figure_does_not_depend_is_left_out() -> None:
    """Parameters depend on neither the context nor the batch, the cache on both, and one model has
    no lines to name.
    """
    rows = sweep(
        "gpt2",
        attention="mha,mqa",
        context="256,512",
        batch="1,2",
        columns="params_total,kv_cache_per_token",
    )
    params, per_token = sweep_picture(rows).charts
    assert isinstance(params, Bars)
    assert [bar.label for bar in params.bars] == ["MHA", "MQA"]
    assert isinstance(per_token, Lines | Bars)
    one = drawn(sweep("gpt2", context="256,512", columns="params_total"))
    assert isinstance(one, Bars)
    assert [(bar.label, bar.text) for bar in one.bars] == [("Parameters", "124.44 million")]


def test_axes_without_numbers_make_bars() -> None:
    chart = drawn(
        sweep(["gpt2", "llama2-7b"], kv_dtype="fp16,fp8", context=512, columns="kv_cache")
    )
    assert isinstance(chart, Bars)
    assert [bar.label for bar in chart.bars] == [
        "GPT-2 (124M), fp16 cache",
        "GPT-2 (124M), fp8 cache",
        "LLaMA-2 7B, fp16 cache",
        "LLaMA-2 7B, fp8 cache",
    ]


def test_parts_of_a_sum_are_one_chart_with_their_crossings() -> None:
    """`attncalc flops gpt2` prints both contexts from which scores cost more."""
    columns = "flops_attention_scores,flops_attention_projections,flops_mlp"
    rows = sweep("gpt2", context="64:8192:x2", columns=columns)
    chart = drawn(rows)
    assert isinstance(chart, Areas)
    assert [series.label for series in chart.series] == [
        "attention projections",
        "MLP",
        "attention scores",
    ]
    assert [(mark.value, mark.label) for mark in chart.marks if "maximum" not in mark.label] == [
        (3072, "scores > projections from 3,072"),
        (6144, "scores > MLP from 6,144"),
    ]


def test_parts_of_wide_sums_are_shares_and_the_caption_has_the_sums() -> None:
    columns = "flops_attention_scores,flops_mlp"
    wide = sweep("gpt2", context="64:8192:x2", columns=columns)
    chart = drawn(wide)
    assert isinstance(chart, Areas)
    assert chart.y.unit == "%"
    assert chart.tops[-1] == pytest.approx([100] * 8)
    # 12 * 2 * 64 * 2 * 768 * 3072 and 12 * 2 * 12 * (64 * 65 / 2) * 2 * 64 FLOP
    assert "the sum is 7.32 GFLOP at context 64" in sweep_picture(wide).caption[0]
    narrow = drawn(sweep("gpt2", context="512,1K,2K", columns=columns))
    assert isinstance(narrow, Areas)
    assert narrow.y.unit == "FLOP"
    row = next(iter(sweep("gpt2", context=512, columns=columns)))
    assert narrow.tops[-1][0] == row["flops_attention_scores"] + row["flops_mlp"]


def test_a_sum_beside_its_parts_is_their_upper_edge() -> None:
    parts = "params_attention,params_mlp,params_embedding,params_head,params_norm,params_other"
    rows = sweep("gpt2", layers="6,12,24", columns=f"params_total,{parts}")
    chart = drawn(rows)
    assert isinstance(chart, Areas)
    assert chart.tops[-1] == [row["params_total"] for row in rows]


def test_each_model_has_its_own_stack_and_maximum() -> None:
    columns = "flops_attention_scores,flops_mlp"
    picture = sweep_picture(sweep(["gpt2", "gpt3"], context="512,1K,2K,4K", columns=columns))
    first, second = picture.named(picture.default)
    assert isinstance(first, Areas)
    assert isinstance(second, Areas)
    assert [mark.label for mark in first.marks] == ["maximum of GPT-2 (124M)"]
    assert [mark.label for mark in second.marks] == ["maximum of GPT-3 (175B)"]
    assert first.y.label.startswith("GPT-2 (124M), FLOPs")


def test_moments_of_training_do_not_go_over_into_each_other() -> None:
    """Each context has a peak of its own: around it, the areas are level."""
    columns = "weights,gradients_at_peak,activations_at_peak"
    chart = drawn(sweep("llama3-8b", train=True, context="1K,4K,16K", columns=columns))
    assert isinstance(chart, Areas)
    assert chart.xs == [1024, 2048, 2048, 4096, 8192, 8192, 16384]
    tops = chart.tops[-1]
    assert (tops[0], tops[2], tops[3]) == (tops[1], tops[3], tops[4])


def test_figures_of_one_unit_share_axes() -> None:
    one = drawn(sweep("gpt2", context="256,512,1K", columns="peak_math,peak_flash"))
    assert isinstance(one, Lines)
    assert [series.label for series in one.series] == ["peak math", "peak flash"]
    assert one.y.label == "memory"


def test_panels_of_one_unit_have_one_scale() -> None:
    """Four models with two figures are eight lines, which are too many for one chart."""
    models = ["gpt2", "llama2-7b", "llama2-13b", "llama2-70b"]
    rows = sweep(models, context="256,512,1K", columns="kv_cache,kv_cache_if_mha")
    first, second = sweep_picture(rows).charts
    assert isinstance(first, Lines)
    assert isinstance(second, Lines)
    scales = [chart.scales(most_x=5, most_y=5)[1] for chart in (first, second)]
    assert scales[0].low == scales[1].low
    assert scales[0].high == scales[1].high


def test_lines_that_go_beyond_a_models_maximum_have_it_marked() -> None:
    chart = drawn(sweep(["gpt2", "llama2-7b"], context="512,1K,2K", columns="kv_cache"))
    assert isinstance(chart, Lines)
    assert [(mark.value, mark.label) for mark in chart.marks] == [(1024, "maximum of GPT-2 (124M)")]
    assert drawn(sweep("gpt2", context="256,512,1K", columns="kv_cache")).marks == ()  # type: ignore[union-attr]


def test_a_cell_that_is_not_possible_is_a_gap() -> None:
    """GPT-2 has 12 heads: 5 devices cannot share them."""
    rows = sweep("gpt2", tp="1,2,3,4,5,6", context=256, columns="kv_cache")
    chart = drawn(rows)
    assert isinstance(chart, Lines)
    assert dict(chart.series[0].points)[5] is None
    assert "1 of 6 cells are not possible" in sweep_picture(rows).caption[0]


def test_the_caption_has_what_does_not_vary_and_the_defaults() -> None:
    picture = sweep_picture(
        sweep("llama2-7b", context="1K,2K", gpu="h100-80gb", gpus=2, columns="concurrency")
    )
    assert picture.title == "LLaMA-2 7B"
    assert picture.caption == (
        "h100-80gb; 2 GPUs; batch 1; engine: vLLM, weights in fp16; "
        "cache in the engine's default dtype",
    )
    given = sweep_picture(
        sweep(
            "gpt2",
            context="1K,2K",
            engine="ideal",
            dtype="bf16",
            kv_dtype="fp8",
            columns="kv_cache",
        )
    )
    assert given.caption == ("ideal; bf16 model; fp8 cache; batch 1",)


def test_of_many_lines_some_are_left_out_and_the_caption_says_how_many() -> None:
    """30 batches of which 24 have a line, over 40 contexts."""
    picture = sweep_picture(sweep("gpt2", batch="1:30:1", context="10:400:10", columns="kv_cache"))
    (chart,) = picture.charts
    assert isinstance(chart, Lines)
    assert len(chart.series) == 24
    assert "6 of 30 lines are left out" in picture.caption[0]


def test_the_caption_has_what_is_not_drawn() -> None:
    """A checkpoint stores weights; GPT-2's preset has none. Parameters do not depend on the
    context.
    """
    rows = sweep("gpt2", context="256,512", columns="params_total,weights_stored")
    (caption,) = sweep_picture(rows).caption
    assert "the same from context 256 to 512" in caption
    assert "no number above zero: Weights stored" in caption
    assert (
        "same" not in sweep_picture(sweep("gpt2", context="256,512", columns="kv_cache")).caption[0]
    )


def test_one_cell_is_one_bar() -> None:
    chart = drawn(sweep("gpt2", context=256, columns="kv_cache"))
    assert isinstance(chart, Bars)
    assert [bar.text for bar in chart.bars] == ["18 MiB"]


def test_without_a_figure_the_cache_is_drawn_and_with_a_gpu_concurrency() -> None:
    assert for_picture(sweep("gpt2", context="1,2"), chosen=False).columns == ("kv_cache",)
    assert for_picture(sweep("gpt2", context="1,2", gpu="t4"), chosen=False).columns == (
        "concurrency",
    )


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (
            sweep("gpt2", context="1,2", gpu="t4", columns="verdict"),
            "cannot draw verdict, which is text",
        ),
        (
            sweep("gpt2", context="1:1000:1", batch="1:101:1"),
            "a picture shows at most 100,000 cells",
        ),
    ],
)
def test_what_cannot_be_drawn_is_an_error(rows: Sweep, error: str) -> None:
    with pytest.raises(AttncalcError, match=error):
        for_picture(rows, chosen=True)


def test_a_sweep_without_a_possible_cell_is_an_error(ask: Ask) -> None:
    assert "no cell is possible" in ask("sweep", "gpt2", "--tp", "5,7", "-c", "1K", "--plot").error


def test_the_command_draws_and_writes_rows(ask: Ask, tmp_path: Path) -> None:
    picture, table = tmp_path / "x.svg", tmp_path / "x.csv"
    command = ("sweep", "gpt2", "llama2-7b", "-c", "256,512,1K", "--show", "kv_cache")
    answer = ask(*command, "--plot", str(picture), "-o", str(table))
    assert (answer.code, answer.out) == (0, "")
    assert len(list(csv.DictReader(table.read_text().splitlines()))) == 6
    shown = [
        "".join(tag.itertext()) for tag in ET.parse(picture).iter() if tag.tag.endswith("}text")
    ]
    assert {"GPT-2 (124M)", "LLaMA-2 7B", "Context (tokens)", "256", "512", "1K"} <= set(shown)
    assert "KV cache (MiB)" in shown
    assert "already exists" in ask(*command, "--plot", str(picture)).err
    again = ask(*command, "--plot", str(picture), "--force")
    assert again.code == 0
    assert len(list(csv.DictReader(again.out.splitlines()))) == 6


def test_characters_replace_the_rows(ask: Ask, tmp_path: Path) -> None:
    answer = ask("sweep", "gpt2", "-c", "256,512,1K", "--plot")
    assert answer.code == 0
    assert "Context (tokens)" in answer.out
    assert "kv_cache" not in answer.out
    assert (
        "cannot be combined with --json" in ask("sweep", "gpt2", "-c", "1K", "--json", "--plot").err
    )
    both = ask("sweep", "gpt2", "-c", "256,512", "-o", str(tmp_path / "x.csv"), "--plot")
    assert "Context (tokens)" in both.out
    assert (tmp_path / "x.csv").exists()


def test_rows_that_cannot_be_written_leave_no_picture_on_the_screen(
    ask: Ask, tmp_path: Path
) -> None:
    answer = ask("sweep", "gpt2", "-c", "1K,2K", "--plot", "-o", tmp_path / "missing" / "a.csv")
    assert (answer.code, answer.out) == (2, "")
    assert ask("sweep", "gpt2", "-c", "1K,2K", "--plot", "-o", tmp_path / "a.csv").out.startswith(
        "GPT-2"
    )
    assert (tmp_path / "a.csv").read_text().count("\n") == 3
