"""Pictures in files: their text, that they are the same each time, and what happens without
matplotlib.
"""

import itertools
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from asking import REPOSITORY, Ask, shell
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from attncalc.questions.fit.chart import memory_chart
from attncalc.questions.schemas import schema_name
from attncalc.show.bar import Bar as MemoryBar
from attncalc.show.characters import printable
from attncalc.show.draw import picture_file
from attncalc.show.plot.chart import Bar, Bars, Chart, Lines, Picture, Series
from attncalc.show.plot.picture import render
from attncalc.show.plot.scale import Axis
from attncalc.units import BYTES, NO_UNIT, TOKENS

FIT = ("fit", "llama2-70b", "--gpu", "h100-80gb", "--gpus", "4")
STARTS = {".svg": b"<?xml", ".png": b"\x89PNG\r\n", ".pdf": b"%PDF-1."}


def texts(svg: bytes | str) -> list[str]:
    """Return the texts of an SVG, in their order."""
    tags = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(tag.itertext()) for tag in tags]


def lines(*series: Series, unit: str = BYTES) -> Chart:
    return Lines("x", "X", Axis("context", TOKENS), Axis("KV cache", unit), series)


def svg(*charts: Chart, title: str = "title") -> list[str]:
    names = tuple(chart.name for chart in charts)
    return texts(render(Picture(title, "subtitle", ("caption",), charts, names), names, ".svg"))


# What they show


def test_compare_draws_every_figure_with_its_unit(ask: Ask, tmp_path: Path) -> None:
    """GQA-8: 80 * 8 * 4096 * 2 * 8 * 128 * 2 B = 10 GiB."""
    file = tmp_path / "c.svg"
    answer = ask("compare", "llama2-70b", "-b", "8", "--plot", str(file))
    assert answer == ask("compare", "llama2-70b", "-b", "8")
    shown = texts(file.read_text())
    for text in (
        "LLaMA-2 70B",
        "KV cache (GiB)",
        "Parameters (billion)",
        "FLOPs of a prefill (PFLOP)",
        "FLOPs of a decode step (TFLOP)",
    ):
        assert text in shown
    assert {"MHA", "GQA-8", "MQA", "80.00 GiB", "10.00 GiB", "68.98 billion"} <= set(shown)
    assert "batch 8, context 4,096" in shown[-1]
    assert "engine: ideal; weights and cache in fp16" in shown[-1]


def test_fit_draws_the_memory_and_the_roofline_of_its_report(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "f.svg"
    report = ask(*FIT, "--roofline", "--plot", str(file))
    shown = texts(file.read_text())
    assert shown[shown.index("LLaMA-2 70B on 4 x NVIDIA H100 80GB SXM") + 1] in " ".join(
        report.out.split()
    )
    assert {
        "weights 32.1 GiB",
        "prefill",
        "decode",
        "at least 147 ms",
        "989 TFLOP/s in fp16",
    } <= set(shown)
    assert "147 ms" in report.out
    only = tmp_path / "r.svg"
    ask(*FIT, "--show", "roofline", "--plot", str(only))
    assert "weights 32.1 GiB" not in texts(only.read_text())


def test_lines_have_names_and_every_context_a_tick() -> None:
    one = Series("GQA-8", tuple((1024 * 2**i, 2.0**i * 2**30) for i in range(6)))
    shown = svg(lines(one, one._replace(label="MQA")))
    assert {
        "GQA-8",
        "MQA",
        "1K",
        "2K",
        "4K",
        "8K",
        "16K",
        "32K",
        "KV cache (GiB)",
        "Context (tokens)",
    } <= set(shown)


@each(
    "points",
    [
        ((1, None),),
        ((5, 0.0),),
        ((4096, 12.0),),
        ((1, float("nan")), (2, 3.0)),
        ((1, 0.0), (2, 1e-9), (3, 1e60)),
        tuple((i, float(i)) for i in range(1, 400)),
    ],
)
def test_any_values_are_drawn(points: tuple[tuple[float, float | None], ...]) -> None:
    chart = lines(Series("a", points), unit=NO_UNIT)
    file = render(Picture("t", "", ("c",), (chart,), ("x",)), ("x",), ".svg")
    assert file.startswith(STARTS[".svg"])


def test_names_of_many_lines_do_not_cover_each_other(tmp_path: Path) -> None:
    """20 equal lines: 20 names, each below the one before by at least its size, 9 px."""
    series = [Series(f"line {i}", ((1, 5.0), (2, 5.0))) for i in range(20)]
    picture = Picture("t", "", ("c",), (lines(*series),), ("x",))
    tree = ET.fromstring(render(picture, ("x",), ".svg"))
    names = [
        tag
        for tag in tree.iter("{http://www.w3.org/2000/svg}text")
        if "line " in "".join(tag.itertext())
    ]
    heights = sorted(float(tag.attrib["y"]) for tag in names)
    assert len(heights) == 20
    assert min(b - a for a, b in itertools.pairwise(heights)) >= 9


_SHARE = st.floats(0, 1)


@given(st.sampled_from([8, 24, 80, 192]), _SHARE, _SHARE, _SHARE, _SHARE)
def test_names_of_a_memory_do_not_cross(
    gib: int, used: float, weights: float, low: float, high: float
) -> None:
    """Neither a name nor the line to it crosses another name."""
    from attncalc.show.plot.picture.canvas import Ruler
    from attncalc.show.plot.picture.stack import _names, _touch
    from attncalc.show.plot.picture.style import sizes

    memory = gib * 2**30
    usable, held, least = (
        int(memory * (1 + used) / 2),
        int(memory * weights * 1.5),
        int(memory * low**3 / 10),
    )
    most = least + int(memory * high**2 / 3)
    bar = MemoryBar(
        memory,
        usable,
        "vLLM",
        "0.9",
        "--u",
        held,
        (least, most),
        (usable - held - most, usable - held - least),
    )
    names = _names(memory_chart(bar), Ruler(sizes(8.6)), 8.2)
    assert not any(_touch(*pair) for pair in itertools.combinations(names, 2))
    assert all(-1e-9 <= name.left < name.right <= 1 + 1e-9 for name in names)


def test_a_long_name_keeps_its_ends_and_a_long_title_is_wrapped() -> None:
    name = "org/a-model-with-a-very-long-name-" * 4
    bars = Bars("b", "B", Axis("", BYTES), (Bar(name, 1.0, "1 B"), Bar("short", 2.0, "2 B")))
    shown = svg(bars, title="LLaMA-2 70B, " * 20)
    (cut,) = [text for text in shown if text.startswith("org/")]
    assert "..." in cut
    assert cut.endswith("long-name-")
    assert len(cut) < 60
    assert all(len(text) < 130 for text in shown)


ODD = (
    "$x_1$",
    "<b>&amp;",
    "漢字😀",
    "gpj\u202eexe",
    "a\x1b[31m",
    "a\nb",
    r"\alpha",
    "100%",
    "-->",
    "\ud800",
)


@each(("suffix", "names"), [*((".svg", (name,)) for name in ODD), (".png", ODD), (".pdf", ODD)])
def test_a_title_is_text_and_nothing_else(
    tmp_path: Path, suffix: str, names: tuple[str, ...]
) -> None:
    title, file = " ".join(names), tmp_path / f"x{suffix}"
    bars = Bars("b", title, Axis("", BYTES), tuple(Bar(name, 1.0, name) for name in names))
    with picture_file(Picture(title, title, (title,), (bars,), ("b",)), ("b",), file, force=False):
        pass
    assert file.read_bytes().startswith(STARTS[suffix])
    if suffix == ".svg":
        shown = set(texts(file.read_bytes()))
        assert shown - {"0", "0.2", "0.4", "0.6", "0.8", "1", "B"} == {
            printable(title, "utf-8").replace("\n", " ")
        }


# Files


@pytest.mark.parametrize("suffix", STARTS)
def test_the_same_command_writes_the_same_bytes(ask: Ask, tmp_path: Path, suffix: str) -> None:
    """Whatever the user's settings of matplotlib are, even wrong ones, and whenever it is."""
    settings = tmp_path / "matplotlibrc"
    settings.write_text(
        "axes.facecolor: red\nfont.size: 30\nsvg.fonttype: path\nno.such.key: 1\ntext.usetex: "
        "True\n"
    )
    command = [*FIT, "--show", "memory,roofline", "--plot", str(tmp_path)]
    first = ask(*command[:-1], f"{command[-1]}/a{suffix}")
    second = shell(
        f"attncalc {' '.join(command)}/b{suffix}",
        MATPLOTLIBRC=str(settings),
        MPLBACKEND="none",
        MPLCONFIGDIR=str(tmp_path / "a" / "missing"),
        SOURCE_DATE_EPOCH="1",
        TZ="Asia/Tokyo",
    )
    assert (first.code, second.returncode) == (0, 0)
    assert (first.err, second.stderr) == ("", "")
    assert first.out == second.stdout
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_settings_of_a_program_that_uses_matplotlib_stay_as_they_are() -> None:
    import matplotlib

    picture = Picture("t", "", ("c",), (lines(Series("a", ((1, 1.0),))),), ("x",))
    with matplotlib.rc_context(
        {"grid.linestyle": ":", "xtick.direction": "in", "svg.fonttype": "path"}
    ):
        drawn = render(picture, ("x",), ".svg")
        assert matplotlib.rcParams["grid.linestyle"] == ":"
        assert matplotlib.rcParams["svg.fonttype"] == "path"
    assert drawn == render(picture, ("x",), ".svg")
    assert "matplotlib.pyplot" not in sys.modules


def test_text_in_pdf_is_text() -> None:
    """/Type42 fonts and a map to Unicode: a viewer finds and copies the text."""
    picture = Picture("t", "", ("c",), (lines(Series("a", ((1, 1.0),))),), ("x",))
    file = render(picture, ("x",), ".pdf")
    assert b"/CIDFontType2" in file
    assert b"/Type3" not in file
    assert b"CreationDate" not in file
    assert b"Matplotlib" not in file


def test_an_existing_picture_is_kept_without_force(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "x.svg"
    assert ask("sweep", "gpt2", "-c", "1K,2K", "--plot", str(file)).code == 0
    first = file.read_bytes()
    error = ask("sweep", "gpt3", "-c", "1K,2K", "--plot", str(file)).error
    assert (
        error == f"error: {file}: already exists\n  tip: --force overwrites it\n"
        or "already exists" in error
    )
    assert file.read_bytes() == first
    assert ask("sweep", "gpt3", "-c", "1K,2K", "--plot", str(file), "--force").code == 0
    assert file.read_bytes() != first
    assert os.listdir(tmp_path) == ["x.svg"]


def test_a_picture_and_a_report_are_written_together(ask: Ask, tmp_path: Path) -> None:
    picture, report = tmp_path / "x.PNG", tmp_path / "x.json"
    assert ask("compare", "gpt2", "--plot", str(picture), "-o", str(report)) == (0, "", "")
    assert picture.read_bytes().startswith(STARTS[".png"])
    assert json.loads(report.read_text())["schema"] == schema_name("compare")
    as_json = ask("compare", "gpt2", "--plot", str(tmp_path / "y.svg"), "--json")
    assert as_json.document == json.loads(report.read_text())


@pytest.mark.parametrize("command", [("sweep", "gpt2", "-c", "1K,2K"), ("compare", "gpt2"), FIT])
def test_a_picture_and_a_report_of_one_file_are_an_error(
    ask: Ask, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Under two spellings, through a link to a file that does not exist yet, and through two names
    of one file.
    """
    (tmp_path / "new.json").symlink_to("new.svg")
    (tmp_path / "old.svg").write_text("old")
    (tmp_path / "old.json").hardlink_to(tmp_path / "old.svg")
    before = sorted(tmp_path.iterdir())
    for picture, report in (("x.svg", "./x.svg"), ("new.svg", "new.json"), ("old.svg", "old.json")):
        paths = "--plot", str(tmp_path / picture), "-o", f"{tmp_path}/{report}"
        error = ask(*command, *paths, "--format", "json", "--force").error
        assert error.startswith("error: --plot and -o name the same file, ")
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "old.json").read_text() == "old"


@pytest.mark.parametrize("command", [("sweep", "gpt2", "-c", "1K,2K"), ("compare", "gpt2")])
def test_of_a_picture_and_a_report_both_are_written_or_none(
    ask: Ask, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "old.json").write_text("old")
    (tmp_path / "old.svg").write_text("old")
    before = sorted(tmp_path.iterdir())
    for picture, report in (
        ("new.svg", "old.json"),
        ("old.svg", "new.json"),
        ("new.svg", "no/new.json"),
        ("no/new.svg", "new.json"),
    ):
        answer = ask(*command, "--plot", str(tmp_path / picture), "-o", str(tmp_path / report))
        assert (answer.code, answer.out) == (2, "")
        assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_is_missing_is_an_error(ask: Ask, tmp_path: Path) -> None:
    error = ask("compare", "gpt2", "--plot", str(tmp_path / "no" / "x.svg")).error
    assert "no such file or directory" in error
    assert "name a file in a folder you can write to" in error


def test_without_matplotlib_the_exit_code_is_3_before_anything_is_computed(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    for command in (
        ("compare", "gpt2"),
        ("compare", "no-such-model"),
        FIT,
        ("verify", "gpt2", "--scaling"),
    ):
        answer = ask(*command, "--plot", str(tmp_path / "x.svg"))
        assert (answer.code, answer.out) == (3, "")
        assert answer.err == (
            "error: --plot draws with matplotlib, which is not installed\n  tip: pip install "
            "matplotlib\n"
        )
    assert ask("compare", "gpt2", "--plot").code == 0
    assert list(tmp_path.iterdir()) == []


def test_characters_need_no_library() -> None:
    script = (
        "import sys; sys.argv = ['attncalc', 'compare', 'gpt2', '--plot']; from attncalc.cli "
        "import run; run();"
        "sys.exit(' '.join({'matplotlib', 'numpy', 'rich'} & set(sys.modules)) or None)"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
