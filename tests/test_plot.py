"""Charts of each command: their data are the report's figures, and characters draw them in 80
columns.
"""

import json
import math
from pathlib import Path

import pytest
from asking import Ask, shell
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from attncalc import Workload, gpu, load
from attncalc.check import ScalingRow
from attncalc.questions.compare.report import compare_models, compare_variants
from attncalc.questions.fit.chart import memory_chart, roofline_chart
from attncalc.questions.fit.report import fit_report
from attncalc.questions.schemas import schema_name
from attncalc.questions.verify.chart import scaling_charts
from attncalc.serving.request import FitRequest
from attncalc.serving.roofline import roofline
from attncalc.show.bar import Bar as MemoryBar
from attncalc.show.picture import MAX_BARS, bars, shown
from attncalc.show.plot import text
from attncalc.show.plot.chart import Bar, Bars, Chart, Lines, Picture, Roof, Series, Stack, known
from attncalc.show.plot.scale import Axis
from attncalc.units import BYTES, NO_UNIT, SECONDS, TOKENS

GIB = 2**30


def chart_of(picture: Picture | None, name: str) -> Chart:
    assert picture is not None
    return next(chart for chart in picture.charts if chart.name == name)


def bars_of(picture: Picture | None, name: str) -> Bars:
    chart = chart_of(picture, name)
    assert isinstance(chart, Bars)
    return chart


# The data


def test_bars_of_compare_are_the_figures_of_its_rows() -> None:
    """LLaMA-2 70B at 4,096 tokens: 64 KV heads take 80 * 2 * 64 * 128 * 2 B * 4096 = 10 GiB, one
    takes 160 MiB.
    """
    report = compare_variants(load("llama2-70b"), Workload.decode(1, 4096))
    cache = bars_of(report.picture, "kv_cache")
    assert [(bar.label, bar.value) for bar in cache.bars][:2] == [
        ("MHA", 10 * GIB),
        ("GQA-32", 5 * GIB),
    ]
    assert (cache.bars[-1].value, cache.bars[-1].text) == (160 * 2**20, "160 MiB")
    assert [bar.label for bar in cache.bars if bar.strong] == ["GQA-8"]
    for facts, figures in report.layers:
        for figure in figures:
            if figure.value:
                drawn = {bar.label: bar.value for bar in bars_of(report.picture, figure.name).bars}
                assert drawn[facts["name"]] == figure.value


def test_compare_draws_bytes_flops_and_parameters() -> None:
    picture = compare_variants(load("gpt2"), Workload.decode(1, 1024)).picture
    assert picture
    assert picture.default == ("kv_cache", "params_total", "flops_prefill", "flops_decode")
    assert picture.title == "GPT-2 (124M)"
    assert "engine: ideal" in picture.caption[0]
    assert "weights and cache in fp32" in picture.caption[0]


def test_an_encoder_has_no_bars_of_a_cache() -> None:
    picture = compare_variants(load("bert-base"), Workload.prefill(1, 512)).picture
    assert picture
    assert picture.default == ("params_total", "flops_prefill")


def test_the_caption_names_models_whose_dtypes_differ() -> None:
    models = [load("gpt2"), load("llama2-7b")]
    picture = compare_models(models, [Workload.decode(1, 512)] * 2).picture
    assert picture
    assert "weights and cache in fp32 (gpt2), fp16 (llama2-7b)" in picture.caption[0]


def test_a_whole_number_of_seconds_keeps_its_unit() -> None:
    chart = bars("time", "Time", SECONDS, [("a", 2), ("b", 0.5), ("c", None)])
    assert chart
    assert [bar.text for bar in chart.bars] == ["2.00 s", "500 ms", "-"]


@pytest.mark.parametrize(
    ("number", "strong"), [(24, None), (25, None), (25, 7), (169, 100), (10**4, 1)]
)
def test_of_many_bars_the_first_the_last_and_the_released_one_are_drawn(
    number: int, strong: int | None
) -> None:
    kept = shown(number, strong)
    assert kept == sorted(set(kept))
    assert len(kept) <= min(number, MAX_BARS)
    assert {0, number - 1} <= set(kept)
    assert strong is None or strong in kept


def test_the_memory_of_a_gpu_is_pieces_from_zero_to_what_the_engine_uses() -> None:
    """80 GiB, of which 72 are usable: 32 of weights, 2 to 6 of runtime, 34 to 38 left."""
    bar = MemoryBar(
        80 * GIB,
        72 * GIB,
        "vLLM",
        "0.9",
        "--gpu-memory-utilization",
        32 * GIB,
        (2 * GIB, 6 * GIB),
        (34 * GIB, 38 * GIB),
    )
    chart = memory_chart(bar)
    assert [(piece.kind, piece.start // GIB, piece.end // GIB) for piece in chart.pieces] == [
        ("weights", 0, 32),
        ("runtime", 32, 34),
        ("range", 34, 38),
        ("cache", 38, 72),
    ]
    assert [f"{piece.label} {piece.text}" for piece in chart.pieces if piece.label] == [
        "weights 32.0 GiB",
        "runtime 2.0 to 6.0 GiB",
        "KV cache 34.0 to 38.0 GiB",
    ]
    assert [(mark.value // GIB, mark.label) for mark in chart.marks] == [
        (72, "72.0 GiB for the engine, 0.9 of the memory"),
        (80, "80.0 GiB on the GPU"),
    ]


def test_weights_that_exceed_the_memory_leave_no_cache() -> None:
    bar = MemoryBar(
        16 * GIB, 14 * GIB, "vLLM", "0.9", "--u", 32 * GIB, (GIB, GIB), (-19 * GIB, -19 * GIB)
    )
    pieces = memory_chart(bar).pieces
    assert [piece.kind for piece in pieces] == ["weights", "runtime"]
    assert pieces[-1].text == "1.0 GiB"


def test_steps_are_on_the_roof() -> None:
    """The speed of a step is its FLOP per byte times the bandwidth, or the peak if that is
    lower.
    """
    device = gpu("h100-80gb")
    chart = roofline_chart(roofline(load("llama2-7b"), Workload.decode(1, 4096), device))
    prefill, decode = chart.steps
    assert (chart.peak, chart.bandwidth) == (989_400_000_000_000, 3_350_000_000_000)
    assert prefill.speed == pytest.approx(chart.peak)
    assert decode.speed == pytest.approx(decode.intensity * chart.bandwidth)
    assert prefill.intensity > chart.ridge > decode.intensity
    low, high = chart.x_range
    assert low < decode.intensity < prefill.intensity < high
    assert chart.roof[1] == (chart.ridge, chart.peak)


def test_fit_draws_the_memory_and_the_roofline() -> None:
    report = fit_report(
        FitRequest(model=load("llama2-7b"), workload=Workload.decode(1, 4096), gpu=gpu("h100-80gb"))
    )
    assert report.picture
    assert report.picture.default == ("memory", "roofline")
    assert report.picture.subtitle.startswith("FITS")
    assert "engine: vLLM" in report.picture.caption[0]
    assert "weights in fp16, cache in fp16" in report.picture.caption[0]
    memory = chart_of(report.picture, "memory")
    assert isinstance(memory, Stack)
    assert report.bar
    assert memory.pieces[0].end == report.bar.weights


ROWS = [
    ScalingRow("decoder", "math", 128, 2.0, 100, 10, 11),
    ScalingRow("decoder", "math", 256, 3.0, 400, None, 44),
    ScalingRow("decoder", "flash", 128, None, 100, 5, 5),
]


def test_measured_times_are_points_and_flops_the_line_through_the_last() -> None:
    """400 FLOP took 3 ms, so 100 FLOP would take 0.75 ms."""
    time, peak = scaling_charts(ROWS)
    assert isinstance(time, Lines)
    assert isinstance(peak, Lines)
    (math_time,) = time.series
    assert math_time.measured == ((128, 0.002), (256, 0.003))
    assert [x for x, _ in math_time.points] == [128, 256]
    assert [y for _, y in math_time.points] == pytest.approx([0.00075, 0.003])
    assert [series.label for series in peak.series] == ["math", "flash"]
    assert peak.series[0].points == ((128, 11), (256, 44))
    assert peak.series[0].measured == ((128, 10),)


def test_a_simulation_draws_only_what_is_predicted() -> None:
    (peak,) = scaling_charts([row._replace(ms=None, peak=None) for row in ROWS])
    assert isinstance(peak, Lines)
    assert (peak.name, [series.measured for series in peak.series]) == ("peak", [(), ()])


def test_every_layer_has_its_own_charts() -> None:
    charts = list(scaling_charts([*ROWS, ROWS[0]._replace(of="local")]))
    assert [chart.title for chart in charts] == [
        "Time, decoder",
        "Peak memory, decoder",
        "Time, local",
        "Peak memory, local",
    ]


# With characters, and in words


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("compare llama2-70b", "  KV cache, GQA-8: 1.25 GiB"),
        ("compare gpt2 bert-base -c 128,512", "  Parameters, GPT-2 (124M): 124.44 million"),
        (
            "fit gpt2 --gpu t4",
            "  roof: 320 GB/s, then 65 TFLOP/s in fp16; compute-bound from 203 FLOP/byte",
        ),
        ("fit gpt2 --gpu t4 --show memory", "  weights: 0.2 GiB"),
        # a token of gpt2 has 12 layers * 2 * 768 * 4 B = 72 KiB
        (
            "sweep gpt2 bert-base -c 256,512 --columns kv_cache",
            "  KV cache: GPT-2 (124M); context 256: 18 MiB; context 512: 36 MiB",
        ),
    ],
)
def test_plain_prints_the_figures_of_a_drawing(command: str, line: str, ask: Ask) -> None:
    screen = ask(*command.split(), "--plot", "--plain").out
    assert line in screen.splitlines(), screen
    assert screen.isascii()
    assert ask(*command.split(), "--plot").out != screen


def picture_of(chart: Bars | Lines | Stack | Roof) -> Picture:
    return Picture("title", "", ("caption",), (chart,), (chart.name,))


def drawn(chart: Bars | Lines | Stack | Roof, width: int = 80) -> str:
    return text.render(picture_of(chart), (chart.name,), width)


def test_a_bar_is_as_long_as_its_value() -> None:
    bars = [
        Bar("a", 8.0, "8"),
        Bar("b", 4.0, "4", strong=True),
        Bar("c", None, "-"),
        Bar("d", 1e-9, "0.000"),
    ]
    lines = drawn(Bars("x", "X", Axis("", NO_UNIT), tuple(bars))).splitlines()
    a, b, c, d = (next(line for line in lines if line.startswith(f"  {name} ")) for name in "abcd")
    assert a.count("▒") == 2 * b.count("█")
    assert b.startswith("  b *")
    assert c == "  c      -"
    assert d.count("▒") == 1


def test_a_line_has_its_name_at_its_end_and_a_gap_where_there_is_no_value() -> None:
    series = Series("GQA", ((1024, GIB), (2048, None), (4096, 4 * GIB), (8192, 8 * GIB)))
    lines = drawn(
        Lines("x", "X", Axis("context", TOKENS), Axis("KV cache", BYTES), (series,))
    ).splitlines()
    assert lines[2] == "KV cache (GiB)"
    (named,) = [line for line in lines if line.endswith(" o GQA")]
    assert named.index("o") < named.index(" o GQA")
    inside = [line.partition(" o GQA")[0] for line in lines[3:] if "│" in line or "┤" in line]
    assert "".join(inside).count("o") == 3
    assert not any("·" in line[:40] for line in inside)
    assert lines[-4].split() == ["1K", "2K", "4K", "8K"]


def test_each_line_has_a_mark_of_its_own() -> None:
    high, low = Series("high", ((1, 9.0), (2, 9.0))), Series("low", ((1, 1.0), (2, 1.0)))
    lines = drawn(Lines("x", "X", Axis("n", NO_UNIT), Axis("y", NO_UNIT), (high, low))).splitlines()
    assert next(line for line in lines if line.endswith(" o high")).count("o") == 3
    assert next(line for line in lines if line.endswith(" x low")).count("x") == 3


def test_lines_may_be_missing_altogether() -> None:
    series = Series("a", ((1, None), (2, math.nan), (3, math.inf)))
    assert "Context" in drawn(
        Lines("x", "X", Axis("context", TOKENS), Axis("y", NO_UNIT), (series,))
    )


_VALUES = st.one_of(st.none(), st.just(0.0), st.floats(1e-9, 1e30))


@given(
    st.lists(
        st.tuples(st.text(min_size=1, max_size=60), st.lists(_VALUES, min_size=1, max_size=9)),
        max_size=30,
    ),
    st.sampled_from([BYTES, NO_UNIT, TOKENS]),
    st.sampled_from([40, 80]),
)
def test_characters_fit_the_screen(
    rows: list[tuple[str, list[float | None]]], unit: str, width: int
) -> None:
    rows = [
        ("".join(char for char in name if char.isprintable()) or "x", values)
        for name, values in rows
    ]
    series = tuple(Series(name, tuple(enumerate(values, 1))) for name, values in rows)
    lines = Lines("x", "X", Axis("n", NO_UNIT), Axis("y", unit), series)
    bars = [Bar(name, value, "1,234.56 GiB") for name, values in rows for value in values[:1]]
    charts: list[Lines | Bars] = [lines]
    charts += [Bars("x", "X", Axis("", unit), tuple(bars))] if bars else []
    for chart in charts:
        assert max(map(len, drawn(chart, width).splitlines())) <= width


@given(st.lists(st.tuples(st.floats(1, 100), st.one_of(st.none(), st.floats(0, 1e9))), max_size=9))
def test_known_points_have_a_finite_y(points: list[tuple[float, float | None]]) -> None:
    assert known([*points, (1.0, math.nan)]) == [(x, y) for x, y in points if y is not None]


# On the command line


def test_plot_without_a_file_draws_in_place_of_the_report(ask: Ask) -> None:
    answer = ask("compare", "gpt2", "--plot")
    assert (answer.code, answer.err) == (0, "")
    assert "▒" in answer.out
    assert "MHA *" in answer.out
    assert "as released. attn." not in answer.out
    assert ask("compare", "--plot", "-b", "1", "gpt2") == answer
    assert ask("compare", "gpt2", "--plot", "-") == answer
    assert ask("compare", "--plot", "--", "gpt2") == answer


def test_a_report_that_cannot_be_written_leaves_no_picture_on_the_screen(
    ask: Ask, tmp_path: Path
) -> None:
    answer = ask("compare", "gpt2", "--plot", "-o", tmp_path / "missing" / "a.md")
    assert (answer.code, answer.out) == (2, "")


def test_plot_before_a_model_asks_for_a_file(ask: Ask) -> None:
    error = ask("compare", "--plot", "gpt2").error
    assert "no picture has the suffix" in error
    assert "--plot as the last option draws on the terminal" in error


@pytest.mark.parametrize(
    "command",
    [
        "compare llama2-70b",
        "compare gpt2 llama2-7b llama3-8b -c 512,1K,2K",
        "fit llama2-70b --gpu h100-80gb --gpus 4",
        "train llama3-8b --gpu h100-80gb --gpus 8 --zero 3",
        "train llama3-8b --gpu h100-80gb --gpus 8 --zero 3 --show timeline",
        "sweep gpt2 -c 64:1024:x2",
        "sweep gpt2 -c 16:400:16 -b 1:30:1 --columns kv_cache",
        "plan gpt2 --users 9 --prompt 500 --output-len 100 --gpu t4,l4 --price t4=0.5,l4=0.7",
    ],
)
def test_a_terminal_has_one_chart_of_at_most_20_rows(command: str, ask: Ask) -> None:
    """Besides the title and the caption, which may have several lines."""
    blocks = ask(*command.split(), "--plot").out.split("\n\n")
    assert len(blocks) == 3
    _, chart, _ = blocks
    assert len(chart.splitlines()) <= 20 - 4


def test_other_charts_are_named_below_the_first(ask: Ask) -> None:
    out = ask("compare", "gpt2", "--plot").out
    assert "--show params_total,flops_prefill,flops_decode draws more" in out


def test_lines_on_top_of_each_other_are_a_table(ask: Ask) -> None:
    """80 layers of 8 heads of 128 take 1.25 GiB at 4K; the 64 of Qwen3 32B take 1.00."""
    models = ("llama2-70b", "llama3-70b", "qwen3-32b")
    command = ("sweep", *models, "-c", "4K,8K", "--columns", "kv_cache")
    lines = ask(*command, "--plot").out.splitlines()
    assert lines[2] == "KV cache (GiB) by context (tokens)"
    assert [line.split() for line in lines[3:7]] == [
        ["4K", "8K"],
        ["LLaMA-2", "70B", "1.25", "2.50"],
        ["Llama", "3", "70B", "1.25", "2.50"],
        ["Qwen3", "32B", "1.00", "2.00"],
    ]


def test_ones_own_model_is_not_as_released(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "n_layers: 2\nd_model: 512\nn_heads: 8\nn_kv_heads: 2\nmlp: plain\nd_ff: 2048\n"
        "vocab_size: 1000\nnorm: layernorm\n"
    )
    out = ask("compare", str(file), "-c", "512", "--plot").out
    assert out.startswith("mine\n")
    assert "GQA-2 is the model's own" in " ".join(out.split())
    assert "as released" not in out


def test_show_chooses_charts_in_its_order(ask: Ask) -> None:
    out = ask("compare", "gpt2", "--show", "params_total, kv_cache", "--plot").out
    assert out.index("Parameters") < out.index("KV cache")
    assert "FLOPs of a prefill" not in out


@each(
    ("arguments", "error"),
    [
        (("compare", "gpt2", "--show", "kv_cache"), "--show needs --plot"),
        (("compare", "gpt2", "--plot", "--show", "kv_cashe"), "there is no chart 'kv_cashe'"),
        (
            ("compare", "gpt2", "--json", "--plot"),
            "--plot without a file cannot be combined with --json",
        ),
        (("compare", "gpt2", "--format", "csv", "--plot"), "cannot be combined with --format"),
        (("compare", "gpt2", "--explain", "--plot"), "cannot be combined with --explain"),
        (("compare", "gpt2", "--plot", "x.gif"), "no picture has the suffix '.gif'"),
        (("compare", "gpt2", "--plot", "x.svg/"), "a folder, not a file"),
        (("compare", "gpt2", "--plot="), "no picture has the suffix"),
        (("compare", "gpt2", "--plot", "a.svg", "--plot", "b.svg"), "--plot is given twice"),
        (("fit", "gpt2", "--kv-memory", "1GiB", "--plot"), "--plot needs --gpu"),
        (
            (
                "fit",
                "gpt2",
                "--log",
                "tests/data/engine-logs/excerpts/vllm-gemma3-27b-0.11rc.log",
                "--plot",
            ),
            "--log",
        ),
        (("verify", "gpt2", "--plot"), "--plot needs --scaling"),
        (("verify", "--record", "d", "--plot"), "--plot cannot be combined with --record"),
        (("kv", "gpt2", "--plot", "--json"), "no such option"),
    ],
)
def test_wrong_options_are_an_error_with_a_tip(
    ask: Ask, arguments: tuple[str, ...], error: str
) -> None:
    assert error in ask(*arguments).error


def test_a_wrong_chart_lists_the_known_ones(ask: Ask) -> None:
    answer = ask("fit", "gpt2", "--gpu", "t4", "--show", "rofline", "--plot")
    assert "did you mean 'roofline'? known: memory, roofline" in answer.err


def test_the_exit_code_is_the_answers(ask: Ask) -> None:
    answer = ask("fit", "llama2-70b", "--gpu", "t4", "--show", "memory", "--plot")
    assert answer.code == 1
    assert "DOES NOT FIT" in answer.out


def test_every_engine_has_a_bar(ask: Ask) -> None:
    out = ask("fit", "gpt2", "--gpu", "t4", "--engine", "all", "--plot").out
    assert out.count("llama.cpp     ▒") == 1
    assert ask("fit", "gpt2", "--kv-memory", "1GiB", "--engine", "all", "--plot").code == 0


def test_a_report_in_a_file_leaves_standard_output_to_the_characters(
    ask: Ask, tmp_path: object
) -> None:
    file = f"{tmp_path}/x.json"
    answer = ask("compare", "gpt2", "-o", file, "--plot")
    assert "▒" in answer.out
    with open(file) as report:
        assert json.load(report)["schema"] == schema_name("compare")


def test_an_encoding_without_blocks_gets_ascii() -> None:
    for command in ("compare gpt2 --plot", "fit gpt2 --gpu t4 --show memory,roofline --plot"):
        done = shell(f"attncalc {command}", PYTHONIOENCODING="ascii")
        assert done.returncode == 0
        assert done.stdout.isascii()
        assert "\\u" not in done.stdout
    assert "[=" in done.stdout or "[#" in done.stdout
    assert "|" in done.stdout
