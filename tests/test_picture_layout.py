"""The layout of pictures: their size, panels of one width, and texts that do not cover each other."""

import itertools
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import Ask
from tables import each

import attncalc
from attncalc import Workload, gpu, load
from attncalc.errors import AttncalcError
from attncalc.questions.compare.report import compare_models, compare_variants
from attncalc.questions.fit.report import fit_report
from attncalc.questions.sweep.picture import for_picture, sweep_picture
from attncalc.serving.request import FitRequest
from attncalc.show.plot.chart import Picture

pytest.importorskip("matplotlib")

COLUMN = (3.3, None)
# At 72 dots per inch, the width of a letter is a whole number of dots.
DPI = 720


def swept(*models: str, **options: Any) -> Picture:
    rows = attncalc.sweep(list(models), **options)
    return sweep_picture(for_picture(rows, chosen="columns" in options))


def fitted() -> Picture:
    request = FitRequest(
        model=load("llama2-70b"), workload=Workload.decode(1, 4096), gpu=gpu("h100-80gb"), tp=4
    )
    picture = fit_report(request).picture
    assert picture
    return picture


def compared(*models: str, contexts: tuple[int, ...] = ()) -> Picture:
    loaded = [load(name) for name in models]
    workload = Workload.decode(1, 1024)
    if len(loaded) == 1:
        picture = compare_variants(loaded[0], workload, contexts=contexts).picture
    else:
        picture = compare_models(loaded, [workload] * len(loaded), contexts).picture
    assert picture
    return picture


def trained(show: str) -> Picture:
    report = attncalc.train("llama3-8b", gpu="h100-80gb", gpus=8, zero=3, context=4096)._make_report
    picture = report().picture
    assert picture
    return picture._replace(default=(show,))


PARTS = "flops_attention_scores,flops_attention_projections,flops_mlp"
PICTURES: dict[str, Callable[[], Picture]] = {
    "kv": lambda: swept("llama3-70b", "qwen3-32b", "deepseek-v3", context="1K:128K:x2"),
    "maxima": lambda: swept("llama3-8b", "llama2-7b", "mistral-7b-v0.1", context="1K:32K:x2"),
    "flops": lambda: swept("gpt2", context="64:8192:x2", columns=PARTS),
    "flops of two models": lambda: swept("gpt2", "gpt3", context="64:2048:x2", columns=PARTS),
    "memory": lambda: swept("gpt2", context="256:8K:x2", columns="peak_math,peak_flash"),
    "concurrency": lambda: swept("llama3-8b", context="1K:8K:x2", gpu="h100-80gb,rtx-4090"),
    "bars": lambda: swept("gpt2", "llama2-7b", context=512, columns="params_total,kv_cache"),
    "compare": lambda: compared("llama2-70b"),
    "compare over contexts": lambda: compared("gpt2", contexts=(256, 512, 1024, 2048)),
    "compare models": lambda: compared("gpt2", "llama2-7b", contexts=(256, 1024, 2048)),
    "fit": fitted,
    "train": lambda: trained("memory"),
    "timeline": lambda: trained("timeline"),
}


def canvas_of(picture: Picture, size: tuple[float, float | None] | None = None) -> Any:
    import matplotlib

    from attncalc.show.plot.picture.layout import lay_out
    from attncalc.show.plot.picture.style import SETTINGS

    with matplotlib.rc_context(SETTINGS):
        return lay_out(picture, picture.default, size)


def boxes(canvas: Any) -> Iterator[tuple[str, Any]]:
    """Yield each text of a picture with its box, in dots of 1/720 inch."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    canvas.figure.set_dpi(DPI)
    renderer: Any = FigureCanvasAgg(canvas.figure)
    renderer.draw()
    for text in canvas.figure.findobj(Text):
        if text.get_text().strip() and text.get_visible():
            yield text.get_text(), text.get_window_extent(renderer.get_renderer())


def overlap(a: Any, b: Any) -> bool:
    """Return whether two boxes share more than a dot: letters have space around them."""
    across = min(a.x1, b.x1) - max(a.x0, b.x0)
    up = min(a.y1, b.y1) - max(a.y0, b.y0)
    return bool(across > 0.01 * DPI and up > 0.02 * DPI)


@pytest.mark.parametrize("size", [None, COLUMN, (3.3, 7.0)], ids=["full", "column", "high"])
@pytest.mark.parametrize("name", PICTURES)
def test_no_text_covers_another_or_leaves_the_picture(
    name: str, size: tuple[float, float | None] | None
) -> None:
    canvas = canvas_of(PICTURES[name](), size)
    found = list(boxes(canvas))
    assert len(found) > 5
    for (text, a), (other, b) in itertools.combinations(found, 2):
        if not {text, other} & {"3.35 TB/s"}:  # its box is that of a turned text
            assert not overlap(a, b), (text, other)
    for text, box in found:
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= canvas.width * DPI, text
        assert box.y1 <= canvas.height * DPI, text


@pytest.mark.parametrize("name", ["kv", "flops", "memory", "concurrency", "train", "timeline"])
def test_a_low_picture_keeps_its_labels_whole(name: str) -> None:
    canvas = canvas_of(PICTURES[name]()._replace(title=""), (3.3, 2.6))
    found = list(boxes(canvas))
    for (text, a), (other, b) in itertools.combinations(found, 2):
        assert not overlap(a, b), (text, other)
    assert not any("..." in text for text, _ in found)


@pytest.mark.parametrize("name", PICTURES)
def test_panels_of_a_column_have_one_width(name: str) -> None:
    canvas = canvas_of(PICTURES[name](), COLUMN)
    panels = [axes for axes in canvas.figure.axes if axes.get_xlabel()]
    edges = {
        (round(axes.get_position().x0, 6), round(axes.get_position().x1, 6)) for axes in panels
    }
    assert len(edges) == 1


def test_the_size_is_that_of_the_file(ask: Ask, tmp_path: Path) -> None:
    """3.3 x 2.2 inches are 237.6 x 158.4 points, and 990 x 660 dots at 300 per inch."""
    command = ("sweep", "gpt2", "-c", "1K,2K,4K", "--size", "3.3x2.2in", "--plot")
    assert ask(*command, str(tmp_path / "a.svg")).code == 0
    root = ET.parse(tmp_path / "a.svg").getroot()
    assert (root.attrib["width"], root.attrib["height"]) == ("237.6pt", "158.4pt")
    assert ask(*command, str(tmp_path / "a.png")).code == 0
    head = (tmp_path / "a.png").read_bytes()[16:24]
    assert [int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")] == [990, 660]


@pytest.mark.parametrize("size", ["8.4cm", "84mm", "238.11pt"])
def test_a_width_alone_lets_the_charts_have_their_height(
    ask: Ask, tmp_path: Path, size: str
) -> None:
    file = tmp_path / "a.svg"
    assert ask("compare", "gpt2", "--size", size, "--plot", str(file)).code == 0
    root = ET.parse(file).getroot()
    assert float(root.attrib["width"].removesuffix("pt")) == pytest.approx(238.11, abs=0.01)


@each(
    ("arguments", "error"),
    [
        (("--size", "3.3in"), "--size needs --plot"),
        (("--title", "x"), "--title needs --plot"),
        (("--size", "3.3in", "--plot"), "--size needs a file"),
        (("--size", "3.3", "--plot", "x.svg"), "'3.3' is no size of a picture"),
        (("--size", "0x2in", "--plot", "x.svg"), "0x2in is too small"),
        (("--size", "99in", "--plot", "x.svg"), "99in is too large"),
        (("--size", "3.3x2in", "--plot", "x.svg"), "do not fit 2 inches of height"),
    ],
)
def test_a_size_that_cannot_be_drawn_is_an_error(
    arguments: tuple[str, ...], error: str, ask: Ask
) -> None:
    answer = ask("compare", "llama2-70b", *arguments)
    assert answer.code == 2
    assert error in answer.err


def test_the_size_of_a_tip_is_enough() -> None:
    picture = PICTURES["compare"]()
    with pytest.raises(AttncalcError) as refused:
        canvas_of(picture, (3.3, 2.0))
    assert refused.value.tip
    height = refused.value.tip.partition("--size 3.3x")[2].partition("in")[0]
    assert canvas_of(picture, (3.3, float(height))).height == float(height)


def test_a_title_replaces_the_model_which_the_caption_then_names(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "a.svg"
    ask("compare", "llama2-70b", "--title", "Sharing heads", "--plot", str(file))
    tags = ET.parse(file).iter("{http://www.w3.org/2000/svg}text")
    shown = ["".join(tag.itertext()) for tag in tags]
    assert "Sharing heads" in shown
    assert "LLaMA-2 70B" not in shown
    assert "LLaMA-2 70B; grouped-query attention" in shown[-1] + shown[-2]
    out = ask("compare", "llama2-70b", "--title", "", "--plot").out
    assert out.lstrip().startswith("KV cache")
