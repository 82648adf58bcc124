"""`attncalc sweep`: formats of rows, the screen, progress, Ctrl-C, processes and exit codes."""

import csv
import html.parser
import io
import json
import operator
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import Ask, shell, started

from attncalc import AttncalcError, sweep
from attncalc.config import preset_text
from attncalc.questions.schemas import schema_name
from attncalc.questions.sweep.parallel import rows_in_parallel
from attncalc.questions.sweep.sweep import Sweep
from attncalc.questions.sweep.watch import Watch
from attncalc.show.formats import ROW_FORMATS, Rows

AXES: dict[str, Any] = {
    "models": ["llama2-70b", "mistral-7b-v0.1"],
    "tp": "1,3",
    "context": "1K,8K",
    "gpu": "h100-80gb",
}
COMMAND = (
    "sweep",
    "llama2-70b",
    "mistral-7b-v0.1",
    "--tp",
    "1,3",
    "-c",
    "1K,8K",
    "--gpu",
    "h100-80gb",
)
ROWS = list(sweep(**AXES))
# The rows in CSV, where an error that begins with '--tp' must not look like a formula.
QUOTED = [{**row, "error": row["error"] and f"'{row['error']}"} for row in ROWS]


def numbers(row: dict[str, str]) -> dict[str, Any]:
    """Return a row of text as the sweep has it."""

    def value(text: str) -> Any:
        if text in ("True", "False"):
            return text == "True"
        if re.fullmatch(r"-?\d+", text):
            return int(text)
        return (
            float(text) if re.fullmatch(r"-?\d+\.\d*(e[-+]\d+)?|\d+e-\d+", text) else text or None
        )

    return {name: value(text) for name, text in row.items()}


def test_csv_is_the_default_of_a_pipe_and_has_every_row(ask: Ask) -> None:
    answer = ask(*COMMAND)
    assert answer.code == 0
    assert [numbers(row) for row in csv.DictReader(io.StringIO(answer.out))] == QUOTED
    assert answer.err.splitlines() == [
        "warning: 4 of 8 cells are not possible; the column 'error' has the reason",
        "warning: contexts go beyond the model's maximum: llama2-70b (4,096)",
    ]


def test_a_context_beyond_the_maximum_is_a_warning_that_names_the_model(ask: Ask) -> None:
    command = ("sweep", "gpt2", "qwen3-8b", "-c", "1K,2K")
    warning = "warning: contexts go beyond the model's maximum: gpt2 (1,024)"
    assert ask(*command).err == f"{warning}\n"
    assert ask(*command, "--format", "table").out.splitlines()[-1] == warning
    assert not ask("sweep", "gpt2", "qwen3-8b", "-c", "1,1K").err


def test_a_warning_about_the_context_names_three_models(ask: Ask) -> None:
    models = ("gpt2", "llama2-7b", "llama2-70b", "bert-base", "t5-base", "qwen3-8b")
    assert (
        "gpt2 (1,024), llama2-7b (4,096), llama2-70b (4,096) and 1 others"
        in ask("sweep", *models, "-c", "8K").err
    )


def test_a_grid_is_sentences_with_units_for_a_screen_reader_also_in_a_pipe(ask: Ask) -> None:
    """A token of gpt2 has 12 layers * 2 * 768 * 4 B = 72 KiB: 512 of them are 36 MiB."""
    screen = ask("sweep", "gpt2", "-c", "512,1K", "-b", "1,2", "--plain").out
    assert "\n  batch: 1; context 512: 36 MiB; context 1,024: 72 MiB\n" in screen


def test_tsv_has_every_row(ask: Ask) -> None:
    text = ask(*COMMAND, "--format", "tsv").out
    assert [
        numbers(row) for row in csv.DictReader(io.StringIO(text), dialect="excel-tab")
    ] == QUOTED


def test_json_lines_have_every_row(ask: Ask) -> None:
    lines = ask(*COMMAND, "--format", "jsonl").out.splitlines()
    assert [json.loads(line) for line in lines] == ROWS


def test_json_is_a_document_with_every_row(ask: Ask) -> None:
    document = ask(*COMMAND, "--json").document
    assert document["rows"] == ROWS
    assert document["schema"] == schema_name("sweep")
    assert document["axes"] == {
        "model": ["llama2-70b", "mistral-7b-v0.1"],
        "gpu": ["h100-80gb"],
        "tp": [1, 3],
        "context": [1024, 8192],
    }
    units = {column["name"]: column["unit"] for column in document["columns"]}
    assert list(units) == list(ROWS[0])
    assert (units["model"], units["kv_cache"], units["concurrency"], units["error"]) == (
        None,
        "B",
        "",
        None,
    )


def test_markdown_has_titles_of_models_and_columns_in_one_unit(ask: Ask) -> None:
    """A token of GPT-2 takes 12 layers * 2 * 768 * 4 B = 72 KiB, so that 1,024 take 72 MiB."""
    columns = ("--columns", "kv_cache,n_kv_heads", "--format", "markdown")
    header, marks, *lines = ask("sweep", "gpt2", "-c", "1K,2K", *columns).out.splitlines()
    assert header == "| Context | KV cache, MiB | KV heads |"
    assert marks == "| ---: | ---: | ---: |"
    assert lines == ["| 1,024 | 72 | 12 |", "| 2,048 | 144 | 12 |"]
    several = ask("sweep", "gpt2", "llama2-7b", "-c", "1K", *columns).out.splitlines()
    assert [line.split("|")[1].strip() for line in several] == [
        "Model",
        "---",
        "GPT-2 (124M)",
        "LLaMA-2 7B",
    ]


def test_markdown_has_every_row(ask: Ask) -> None:
    _, _, *lines = ask(*COMMAND, "--format", "markdown").out.splitlines()
    assert len(lines) == len(ROWS)


def test_latex_has_each_column_in_one_unit(ask: Ask) -> None:
    text = ask(
        "sweep",
        "llama2-70b",
        "--tp",
        "1,3",
        "-c",
        "8K",
        "--columns",
        "kv_cache",
        "--format",
        "latex",
    ).out
    # 80 layers * 8,192 tokens * 2 * 8 heads * 128 * 2 B = 2.5 GiB; 64 heads cannot be divided by 3
    assert text.splitlines()[3:7] == [
        r"TP & KV cache, GiB & Error \\",
        r"\midrule",
        r"1 & 2.50 &  \\",
        r"3 &  & -{}-tp 3 does not divide 64 query heads \\",
    ]


def test_latex_leaves_out_a_column_without_cells(ask: Ask) -> None:
    text = ask(
        "sweep", "llama2-70b", "gpt2", "-c", "1K,4K", "--columns", "kv_cache", "--format", "latex"
    ).out
    # 80 layers * 4,096 tokens * 2 * 8 heads * 128 * 2 B = 1,280 MiB
    assert text.splitlines()[3] == r"Model & Context & KV cache, MiB \\"
    assert r"LLaMA-2 70B & 4,096 & 1,280 \\" in text.splitlines()


class Cells(html.parser.HTMLParser):
    """Collects the cells of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1] and data.strip():
            self.rows[-1][-1] += data


def test_html_has_every_row(ask: Ask) -> None:
    parser = Cells()
    parser.feed(ask(*COMMAND, "--format", "html").out)
    names, *rows = parser.rows
    assert [numbers(dict(zip(names, row, strict=True))) for row in rows] == ROWS


def test_parquet_has_every_row(ask: Ask, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "plan.parquet"
    assert ask(*COMMAND, "-o", str(file)).code == 0
    table = parquet.read_table(file)
    assert table.to_pylist() == ROWS
    assert [
        str(table.schema.field(name).type)
        for name in ("model", "verdict", "kv_cache", "concurrency", "error")
    ] == ["string", "string", "int64", "double", "string"]
    assert parquet.ParquetFile(file).metadata.num_rows == len(ROWS)


def test_parquet_without_pyarrow_names_the_command(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    answer = ask(*COMMAND, "-o", str(tmp_path / "plan.parquet"))
    assert (answer.code, "pip install pyarrow" in answer.err) == (3, True)
    assert list(tmp_path.iterdir()) == []


def test_parquet_refuses_a_number_of_more_than_64_bits(ask: Ask, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    answer = ask(
        "sweep", "llama2-70b", "-c", "1T,2T", "-b", "1000", "-o", str(tmp_path / "plan.parquet")
    )
    assert (answer.code, "64 bits" in answer.err, list(tmp_path.iterdir())) == (2, True, [])


@pytest.mark.parametrize(
    "form", [name for name, known in ROW_FORMATS.items() if not known.is_binary]
)
def test_a_model_file_with_marks_in_its_name_is_escaped(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "=a|b&<i>_\u202e.yaml").write_text(preset_text("gpt2"))
    answer = ask(
        "sweep",
        "=a|b&<i>_\u202e.yaml",
        "gpt2",
        "-c",
        "1K",
        "--columns",
        "kv_cache",
        "--format",
        form,
    )
    assert answer.code == 0
    assert "\u202e" not in answer.out
    expected = {
        "csv": "'=a|b&<i>_\\u202e.yaml,",
        "tsv": "'=a|b&<i>_\\u202e.yaml\t",
        "jsonl": json.dumps("=a|b&<i>_\\u202e.yaml"),
        "json": json.dumps("=a|b&<i>_\\u202e.yaml"),
        "markdown": "\\|b",
        "html": "&amp;&lt;i&gt;",
        "latex": "\\&",
    }
    assert expected[form] in answer.out


def test_a_suffix_selects_the_format_and_a_file_is_not_overwritten(
    ask: Ask, tmp_path: Path
) -> None:
    for suffix, start in (
        (".csv", "context,"),
        (".md", "| Context"),
        (".tex", "% "),
        (".jsonl", "{"),
        (".txt", "2 rows"),
    ):
        file = tmp_path / f"plan{suffix}"
        assert ask("sweep", "gpt2", "-c", "1K,2K", "-o", str(file)).code == 0
        assert file.read_text().startswith(start)
        again = ask("sweep", "gpt2", "-c", "1K,2K", "-o", str(file))
        assert (again.code, "already exists" in again.err) == (2, True)
        assert ask("sweep", "gpt2", "-c", "1K,2K", "-o", str(file), "--force").code == 0
    answer = ask("sweep", "gpt2", "-o", str(tmp_path / "plan.doc"))
    assert (answer.code, "no output format has the suffix '.doc'" in answer.err) == (2, True)


# The screen


def test_two_axes_are_a_grid_of_one_figure(ask: Ask) -> None:
    """80 layers x 2 x 8 KV heads x 128 x 2 B are 320 KiB per token: 320 MiB at 1,024 tokens; MHA
    has 64 heads.
    """
    answer = ask(
        "sweep", "llama2-70b", "--attention", "mha,gqa:8,mqa", "-c", "1K:4K:x2", "--format", "table"
    )
    assert answer.out == (
        "kv_cache in MiB by context\n"
        "model llama2-70b\n\n"
        "  attention  1,024  2,048   4,096\n"
        "  mha        2,560  5,120  10,240\n"
        "  gqa:8        320    640   1,280\n"
        "  mqa           40     80     160\n"
    )


def test_a_grid_shows_the_figure_that_is_asked_for(ask: Ask) -> None:
    arguments = (
        "llama3-70b",
        "--gpu",
        "h100-80gb",
        "--gpus",
        "2,4",
        "-c",
        "8K,16K",
        "--format",
        "table",
    )
    default, shown, verdicts = (
        ask("sweep", *arguments, *more)
        for more in ((), ("--show", "max_batch"), ("--show", "verdict"))
    )
    assert default.out.startswith("concurrency by context\n")
    assert shown.out.startswith("max_batch by context\n")
    assert "does not fit" in verdicts.out


def test_more_axes_label_the_lines_of_a_grid_in_80_columns(ask: Ask) -> None:
    answer = ask(
        "sweep",
        "llama3-70b",
        "qwen3-32b",
        "-c",
        "1K:1M:x2",
        "-b",
        "1,64",
        "--kv-dtype",
        "bf16,fp8",
        "--format",
        "table",
    )
    lines = answer.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.split()[:3] == ["model", "kv_dtype", "batch"] for line in lines) >= 2
    assert "131,072" in answer.out


def test_a_sweep_without_a_context_names_that_of_each_row(ask: Ask) -> None:
    models = ("gpt2", "llama3-8b")
    assert [row["context"] for row in sweep(models)] == [1024, 8192]
    assert "\n  gpt2         1,024" in ask("sweep", *models, "--format", "table").out
    assert (
        "context 8,192\n"
        in ask("sweep", "llama3-8b", "--kv-dtype", "fp8,bf16", "--format", "table").out
    )
    assert (
        "context: each model's own\n"
        in ask("sweep", *models, "--gpu", "h100,l4", "--format", "table").out
    )


def test_one_axis_is_a_table_of_the_main_figures(ask: Ask) -> None:
    answer = ask("sweep", "llama2-70b", "-c", "1K,2K", "--format", "table")
    assert [line.split() for line in answer.out.splitlines()[-2:]] == [
        ["1,024", "320", "320", "68.98", "141.56", "140.11"],
        ["2,048", "640", "320", "68.98", "285.88", "142.80"],
    ]
    fits = ask("sweep", "llama2-70b", "-c", "1K,2K", "--gpu", "2xh100", "--format", "table")
    assert max(map(len, fits.out.splitlines())) <= 80


def test_a_grid_says_which_cells_are_not_possible(ask: Ask) -> None:
    answer = ask("sweep", "llama2-70b", "--tp", "1,3", "-c", "1K,2K", "--format", "table")
    assert answer.out.count("error  error") == 1
    assert "error in 2 of 4 cells: --tp 3 does not divide 64 query heads" in answer.out


def test_a_screen_has_a_limit(ask: Ask) -> None:
    answer = ask("sweep", "llama2-70b", "-c", "1:100:1", "-b", "1:100:1", "--format", "table")
    assert (answer.code, "a screen shows at most 2,000 cells" in answer.err) == (2, True)


# Exit codes, progress, Ctrl-C and processes


def test_no_possible_cell_is_an_error_after_its_rows(ask: Ask) -> None:
    answer = ask("sweep", "llama2-70b", "--tp", "3,5")
    assert answer.code == 2
    assert len(answer.out.splitlines()) == 3
    assert answer.err == (
        "error: no cell is possible: --tp 3 does not divide 64 query heads\n"
        "  tip: change one of the options; the column error has the reason of each row\n"
    )


def test_what_does_not_fit_is_an_answer(ask: Ask) -> None:
    answer = ask("sweep", "llama2-70b", "--gpu", "t4", "-c", "1K,2K", "--columns", "verdict")
    assert (answer.code, answer.out) == (
        0,
        "context,verdict,error\n1024,does_not_fit,\n2048,does_not_fit,\n",
    )


def interrupted_by(number: int) -> Callable[..., Iterator[tuple[Any, ...]]]:
    """Return a sweep's `rows` without end; a signal arrives while the fourth one is computed."""

    def rows(self: Sweep, *arguments: Any) -> Iterator[tuple[Any, ...]]:
        for n in range(10**9):
            if n == 3:
                signal.raise_signal(number)
            yield (n, 1, None)

    return rows


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize(
    "form", [name for name, known in ROW_FORMATS.items() if not known.is_binary]
)
def test_interrupted_rows_on_standard_output_end_with_an_error(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, form: str, name: str, code: int
) -> None:
    number = signal.Signals[name]
    before = signal.getsignal(number)
    monkeypatch.setattr(Sweep, "tuples", interrupted_by(number))
    answer = ask("sweep", "gpt2", "-c", "1K,2K", "--columns", "kv_cache", "--format", form)
    assert (answer.code, answer.err) == (code, "interrupted after 3 of 2 rows\n")
    assert signal.getsignal(number) is before
    rows: dict[str, Callable[[str], list[Any]]] = {
        "csv": lambda out: [line.split(",") for line in out.splitlines()[1:]],
        "tsv": lambda out: [line.split("\t") for line in out.splitlines()[1:]],
        "json": lambda out: [list(row.values()) for row in json.loads(out)["rows"]],
        "jsonl": lambda out: [list(json.loads(line).values()) for line in out.splitlines()],
        "markdown": lambda out: [line.strip("|").split("|") for line in out.splitlines()[2:]],
        "html": lambda out: [
            re.findall(r"<td[^>]*>(.*?)</td>", line) for line in re.findall("<tr><td.*", out)
        ],
        "latex": lambda out: [
            line.removesuffix(r"\\").split("&")
            for line in re.split(r"\\(?:mid|bottom)rule\n", out)[1].splitlines()
        ],
    }
    *whole, last = [[str(cell or "").strip() for cell in row] for row in rows[form](answer.out)]
    assert [row[1] for row in whole] == ["1"] * 3
    assert last == ["", "", "interrupted after 3 of 2 rows"]


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("suffix", [".csv", ".json", ".html", ".txt"])
def test_an_interrupted_file_is_not_written(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(Sweep, "tuples", interrupted_by(signal.SIGINT))
    answer = ask(
        "sweep",
        "gpt2",
        "-c",
        "1K,2K",
        "--columns",
        "kv_cache",
        "-o",
        str(tmp_path / f"plan{suffix}"),
    )
    assert (answer.code, answer.out) == (130, "")
    assert list(tmp_path.iterdir()) == []


def test_interrupted_parquet_ends_with_an_error() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    watch = Watch(2, shows_progress=False)
    rows = interrupted_by(signal.SIGTERM)(None)
    file = io.BytesIO()
    with watch.between_rows():
        ROW_FORMATS["parquet"].write(
            Rows(
                ("context", "kv_cache", "error"), ("tokens", "bytes", None), watch.watched(rows), {}
            ),
            file,
        )
    assert parquet.read_table(file).to_pylist()[-2:] == [
        {"context": 2, "kv_cache": 1, "error": None},
        {"context": None, "kv_cache": None, "error": "interrupted after 3 of 2 rows"},
    ]


def test_an_error_in_the_middle_leaves_no_file(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Sweep, *arguments: Any) -> Iterator[tuple[Any, ...]]:
        yield (1, 1, None)
        raise AttncalcError("the disk is on fire", "run")

    monkeypatch.setattr(Sweep, "tuples", broken)
    assert (
        ask(
            "sweep",
            "gpt2",
            "-c",
            "1K,2K",
            "--columns",
            "kv_cache",
            "-o",
            str(tmp_path / "plan.csv"),
        ).code
        == 2
    )
    assert list(tmp_path.iterdir()) == []


def test_progress_is_shown_once_a_sweep_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    class Shown:
        def __enter__(self) -> Any:
            return steps.append

        def __exit__(self, *error: object) -> None:
            steps.append("end")

    monkeypatch.setattr("attncalc.questions.sweep.watch.progress", Shown)
    times = iter(range(10**6))
    rows = [(n, None) for n in range(200)]
    quick = Watch(200, shows_progress=True, clock=lambda: 0.0)
    assert list(quick.watched(rows)) == rows
    assert steps == []
    slow = Watch(200, shows_progress=True, clock=lambda: float(next(times)))
    assert list(slow.watched(rows)) == rows
    assert steps == ["64 of 200 rows", "128 of 200 rows", "192 of 200 rows", "end"]


def test_several_processes_write_the_rows_of_one(tmp_path: Path) -> None:
    arguments = "attncalc sweep gpt2 llama2-70b --tp 1,3 -b 1:30:1 -c 1:100:1"
    answer = shell(f"{arguments} > {tmp_path}/one.csv; {arguments} -j 2 > {tmp_path}/two.csv")
    assert answer.returncode == 0, answer.stderr
    one, two = ((tmp_path / f"{name}.csv").read_text() for name in ("one", "two"))
    assert one == two
    assert one.count("\n") == 1 + 2 * 2 * 30 * 100


def test_an_error_in_a_process_is_that_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """5 ranks do not divide 12 heads: the text of that error is escaped, which is a bug here."""
    rows = sweep(models="gpt2", tp="1,5")
    with pytest.raises(TypeError):
        list(rows_in_parallel(rows, 2, escape=operator.neg))  # type: ignore[arg-type]
    monkeypatch.setattr("attncalc.questions.sweep.parallel._WORKER", "")
    with pytest.raises(
        AttncalcError, match="--jobs 2: a process cannot be started, or ended early"
    ):
        list(rows_in_parallel(rows, 2))


# A sweep that takes minutes, of which three processes compute the rows.
ENDLESS = ["sweep", "gpt2", "-b", "1:1000:1", "-c", "1:1000:1", "-j", "2"]


def children(process: int) -> list[int]:
    """Return the processes that a process has started."""
    return [
        int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGKILL", -9)])
@pytest.mark.parametrize("has_rows", [True, False])
def test_processes_end_with_the_command(name: str, code: int, has_rows: bool) -> None:
    """While they compute rows, and while they start. Who waits for standard error would wait as
    long as they live.
    """
    with started("-m", "attncalc", *ENDLESS) as running:
        assert running.stdout is not None
        if has_rows:
            assert [running.stdout.readline() for _ in range(3)]
        while running.poll() is None and len(children(running.pid)) < (2 if has_rows else 1):
            time.sleep(0.01)
        ends = [os.pidfd_open(child) for child in children(running.pid)]
        running.send_signal(signal.Signals[name])
        # the row that is computed is written, into a pipe that someone has to read
        if name == "SIGTERM":
            while running.stdout.read(1 << 16):
                pass
        _, err = running.communicate(timeout=60)
        for end in ends:
            assert select.select([end], [], [], 60)[0], "a process lives on"
            os.close(end)
    assert running.returncode == code
    assert "Traceback" not in err
    assert [line for line in err.splitlines() if "interrupted" not in line] == []


def test_the_number_of_processes_has_a_limit(ask: Ask) -> None:
    answer = ask("sweep", "gpt2", "-c", "1K,2K", "-j", "1000")
    assert (answer.code, "-j 1000 is more than 256 processes" in answer.err) == (2, True)


def test_a_closed_pipe_ends_a_sweep_quietly() -> None:
    answer = shell("attncalc sweep llama2-70b -b 1:1000:1 -c 1:1000:1 | head -n 3")
    assert (answer.stderr, len(answer.stdout.splitlines())) == ("", 3)


def test_get_is_no_other_name_of_columns(ask: Ask) -> None:
    assert ask("sweep", "gpt2", "--get", "kv_cache").error == (
        "error: no such option: --get\n  tip: did you mean '--columns'?\n"
    )
