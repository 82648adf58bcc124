"""Formats: what each one writes can be read back, and is what the screen or JSON shows, for every
command.
"""

import csv
import io
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from asking import Ask, of_questions
from tables import each
from test_latex import compile_latex, needs_tex

from attncalc.questions import QUESTIONS
from attncalc.questions.question import declared
from attncalc.show.formats import FORMATS
from attncalc.show.html import fragment
from attncalc.show.report import Column, Report, Table

LOGS = "tests/data/engine-logs"
RUNS = of_questions(
    [
        "kv llama2-70b --batch 8",
        "kv gemma3-27b --tp 2 --assume-grouped",
        "kv bert-base",
        "params mixtral-8x7b",
        "flops deepseek-v3 --phase decode",
        "flops t5-base",
        "memory llama2-70b --phase decode --context 1024",
        "compare llama2-70b --attention mla:512",
        "compare llama2-70b gemma3-27b deepseek-v3 gpt-oss-20b --context 4096",
        "fit qwen3-8b --gpu h100-80gb --context 8192",
        "fit qwen3-8b --gpu rtx-4090 --context 40960 --full --roofline",
        "fit gemma3-27b --engine all --kv-memory 40GiB",
        "fit llama3-8b --kv-memory 20GiB --prompt 4K --output-len 1K",
        f"fit gemma3-27b --log {LOGS}/excerpts/vllm-gemma3-27b-0.11rc.log",
        f"fit --log {LOGS}/refusals/vllm-qwen3-8b-24g.log --gpu rtx-4090",
        "plan gpt2 --users 9 --prompt 500 --output-len 100 --gpu t4,l4 --price t4=0.5,l4=0.7",
        "train gpt2",
        "gpus",
        "gpus h100-80gb",
        "presets",
        "presets llama3",
        "presets families",
        "explain gqa",
        "verify gpt2 --simulate t4 -c 64",
    ]
)
# Commands with formats of their own: a schema is JSON, and a sweep writes rows.
WITHOUT_REPORT = {"schema", "sweep"}
# A question without a line above has its example.
for _name in QUESTIONS.keys() - WITHOUT_REPORT - {run.split()[0] for run in RUNS}:
    RUNS.append(declared(_name).example.removeprefix("attncalc "))
TAGS = "html head meta title style body div p strong pre table thead tbody tr th td br"
REPORTS: dict[str, Report] = {}

Cells = tuple[str, ...]
# The rows of a table's header, and those below it.
Rows = tuple[tuple[Cells, ...], tuple[Cells, ...]]


@pytest.fixture
def report(ask: Ask, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Report:
    """Return the report of a command line, as it is before a format writes it; each command is run
    once.
    """
    if request.param.startswith("verify"):
        pytest.importorskip("torch")
    if request.param not in REPORTS:
        with monkeypatch.context() as patch:
            patch.setattr(
                "attncalc.show.write.write",
                lambda report, **_: REPORTS.update({request.param: report}),
            )
            assert ask(*request.param.split()).err == ""
    return REPORTS[request.param]


every_command = pytest.mark.parametrize("report", RUNS, indirect=True)


def tables(report: Report) -> list[Table]:
    """Return the tables of a screen, without the lines of a shell command."""
    return [table for table in (*report.tables, *report.footer) if not table.code]


def stripped(rows: tuple[Cells, ...]) -> tuple[Cells, ...]:
    return tuple(tuple(cell.strip() for cell in row) for row in rows)


def titled(rows: tuple[Cells, ...], report: Report) -> tuple[Cells, ...]:
    """Return the rows with titles for names, as a paper has them."""
    return tuple(tuple(report.titles.get(cell, cell) for cell in row) for row in rows)


def test_every_command_is_read_back() -> None:
    assert {run.split()[0] for run in RUNS} == set(QUESTIONS) - WITHOUT_REPORT


@every_command
def test_latex_has_the_cells_of_the_screen(report: Report) -> None:
    written = FORMATS["latex"].render(report)
    expected = [(stripped(t.header_rows), stripped(t.rows)) for t in tables(report)]
    assert list(latex_tables(written)) == [
        tuple(titled(part, report) for part in table) for table in expected
    ]
    for note in report.screen_notes:
        assert f"% {note}\n" in written


@every_command
def test_html_has_the_cells_of_the_screen(report: Report) -> None:
    page = Page(FORMATS["html"].render(report))
    assert page.tables == [(stripped(html_header(t)), stripped(t.rows)) for t in tables(report)]
    for line in (*report.heading[1:], *report.screen_notes):
        assert line in page.paragraphs


@every_command
def test_markdown_has_the_cells_of_the_screen(report: Report) -> None:
    expected = [
        ((tuple(c.header.replace("\n", " ") for c in t.columns),), stripped(t.rows))
        for t in tables(report)
    ]
    assert list(markdown_tables(FORMATS["markdown"].render(report))) == [
        tuple(titled(part, report) for part in table) for table in expected
    ]


@every_command
@each(("form", "dialect"), [("csv", "excel"), ("tsv", "excel-tab")])
def test_csv_and_tsv_have_the_figures_of_json(report: Report, form: str, dialect: str) -> None:
    read = list(csv.DictReader(io.StringIO(FORMATS[form].render(report)), dialect=dialect))
    document = json.loads(FORMATS["json"].render(report))
    if report.rows:
        assert document["rows"] == [dict(row) for row in report.rows]
        facts = [
            tuple("" if cell is None else str(cell) for cell in row.values()) for row in report.rows
        ]
        assert [tuple(cell.removeprefix("'") for cell in row.values()) for row in read] == facts
        return
    if report.checks:
        columns: tuple[str, ...] = (
            "of",
            "name",
            "predicted",
            "measured",
            "difference",
            "tolerance",
            "unit",
            "ok",
        )
        expected = [check.facts() for check in report.checks]
    else:
        columns = ("name", "value", "unit", "formula", "substituted")
        expected = document["results"] + [
            figure for group in document["layers"] for figure in group["results"]
        ]
    cells = [
        tuple("" if fact[name] is None else str(fact[name]) for name in columns)
        for fact in expected
    ]
    assert {tuple(row[name] for name in columns) for row in read} == set(cells)
    assert read[0]["name"] == expected[0]["name"]


@every_command
def test_html_loads_and_runs_nothing(report: Report) -> None:
    page = Page(FORMATS["html"].render(report, explain=True))
    assert page.tags <= {*TAGS.split(" ")}
    assert page.attributes <= {"lang", "charset", "name", "content", "class", "scope"}
    assert page.unclosed == []


def test_html_marks_numbers_parts_and_the_answer(ask: Ask) -> None:
    page = ask("kv", "llama2-70b", "--format", "html").out
    first, second = re.findall(r"<tr.*?</tr>", page)[:2]
    assert first.startswith(
        '<tr class="strong"><th scope="row">KV cache</th><td class="number">1.25 GiB</td>'
    )
    assert second.startswith(
        '<tr><th scope="row" class="part">per token</th><td class="number">320 KiB</td>'
    )
    assert ".attncalc .number { text-align: right;" in page
    headers = ask("compare", "llama2-70b", "--format", "html").out
    assert '<tr><td></td><th scope="col" class="number">KV<br>heads</th>' in headers


def test_latex_names_models_by_title_below_one_header_for_contexts(
    ask: Ask, tmp_path: Path
) -> None:
    (tmp_path / "my_run_3.yaml").write_text(ask("presets", "show", "gpt2").out)
    written = ask(
        "compare", str(tmp_path / "my_run_3.yaml"), "qwen3-8b", "-c", "512,1K", "--format", "latex"
    ).out
    lines = written[: written.index("bigskip")].splitlines()
    # 12 layers * 512 tokens * 2 * 12 heads * 64 * 4 B are 36 MiB
    assert lines[lines.index(r"\toprule") :][1:5] == [
        r" & \multicolumn{2}{c}{context} \\ \cmidrule(l){2-3}",
        r"KV cache, MiB & 512 & 1,024 \\",
        r"\midrule",
        r"GPT-2 (124M) & 36 & 72 \\",
    ]


def test_markdown_names_models_by_title(ask: Ask) -> None:
    written = ask("compare", "gpt2", "llama2-7b", "-c", "512", "--format", "markdown").out
    assert "|  | GPT-2 (124M) | LLaMA-2 7B |\n" in written
    over = ask("compare", "gpt2", "llama2-7b", "-c", "512,1K", "--format", "markdown").out
    assert "| GPT-2 (124M) | 36 | 72 |\n" in over


def test_latex_keeps_the_names_of_models_with_one_title(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(ask("presets", "show", "gpt2").out)
    written = ask(
        "compare", str(tmp_path / "mine.yaml"), "gpt2", "-c", "512", "--format", "latex"
    ).out
    assert " & mine & gpt2 " in written


def test_latex_aligns_numbers_to_the_right_and_indents_parts(ask: Ask) -> None:
    written = ask("kv", "llama2-70b", "--format", "latex").out
    assert "\\begin{tabular}{@{}lrr@{}}\n" in written
    assert "\n\\quad per token & 320 KiB & 327,680 B \\\\\n" in written


@needs_tex
@every_command
def test_latex_compiles(report: Report, tmp_path: Path) -> None:
    log = compile_latex(FORMATS["latex"].render(report, explain=True), tmp_path)
    assert "Missing character" not in log


HOSTILE = "a_b & 50% #1 $x^2~\\{y} <b>|=*[é\u00d7"


@pytest.mark.parametrize(
    "name", [HOSTILE, "=cmd", "[x", "*x", "</script><b>", "b\nc", '"q', "\\end{tabular}"]
)
def test_a_name_is_the_same_in_every_format(name: str) -> None:
    table = Table((Column("", "left"), Column(name)), ((name, "1"), (f"  {name}", "2")))
    report = Report("kv", (name,), {}, {}, (), tables=(table,), notes=(name,))
    one_line = " ".join(name.split())
    assert next(latex_tables(FORMATS["latex"].render(report)))[1] == (
        (one_line, "1"),
        (one_line, "2"),
    )
    assert Page(FORMATS["html"].render(report)).tables[0][1] == ((name, "1"), (name, "2"))
    assert [rows for _, rows in markdown_tables(FORMATS["markdown"].render(report))] == [
        ((name.replace("\n", " "), "1"), (name.replace("\n", " "), "2"))
    ]


@pytest.mark.parametrize("mark", ["=", "+", "-", "@", "\t", "\n"])
def test_no_name_is_a_formula_in_csv_and_tsv(mark: str) -> None:
    report = Report("compare", ("x",), {}, {}, (), rows=({"name": f"{mark}cmd", "change": -5},))
    assert FORMATS["csv"].render(report) in (
        f"name,change\n'{mark}cmd,-5\n",
        f'name,change\n"\'{mark}cmd",-5\n',
    )
    (row,) = csv.DictReader(io.StringIO(FORMATS["tsv"].render(report)), dialect="excel-tab")
    assert row["name"].startswith("'")
    assert row["change"] == "-5"


def test_a_line_of_tsv_is_a_row() -> None:
    report = Report("compare", ("x",), {}, {}, (), rows=({"name": "a\tb\nc\td", "of": "e"},))
    assert FORMATS["tsv"].render(report) == "name\tof\na\\u0009b\\u000ac\\u0009d\te\n"


def test_tabs_of_tsv_are_printed_and_saved(ask: Ask, tmp_path: Path) -> None:
    printed = ask("kv", "gpt2", "--format", "tsv").out
    ask("kv", "gpt2", "-o", str(tmp_path / "kv.tsv"))
    assert printed == (tmp_path / "kv.tsv").read_text()
    assert printed.startswith("of\tname\tvalue\tunit\tformula\tsubstituted\tassumed\n\tkv_cache\t")


@pytest.mark.parametrize("report", RUNS[:1], indirect=True)
def test_a_fragment_of_html_is_one_element_with_its_style(report: Report) -> None:
    text = fragment(report)
    assert text.startswith('<div class="attncalc">\n<style>')
    assert text.endswith("</div>")
    assert Page(text).tables == Page(FORMATS["html"].render(report)).tables


@pytest.mark.parametrize("form", ["latex", "html", "markdown"])
def test_explain_adds_the_formulas_to_the_tables(ask: Ask, form: str) -> None:
    plain = ask("kv", "llama2-70b", "--format", form).out
    explained = ask("kv", "llama2-70b", "--format", form, "--explain").out
    assert set(plain.split("\n")) <= set(explained.split("\n"))
    formula = r"$= L \cdot B \cdot T \cdot 2" if form == "latex" else "L  * B * T"
    assert formula in explained


def test_a_warning_among_data_is_also_an_error_line(ask: Ask) -> None:
    answer = ask("kv", "gpt2", "-c", "4096", "--format", "tsv")
    assert "warning: " not in answer.out
    assert answer.err.startswith("warning: context 4,096 is beyond")


_COMMAND = {
    r"\textbackslash{}": "\\",
    r"\textasciitilde{}": "~",
    r"\textasciicircum{}": "^",
    r"\textasciigrave{}": "`",
    r"\textless{}": "<",
    r"\textgreater{}": ">",
    r"\textbar{}": "|",
    r"\symbol{34}": '"',
    r"$\times$": "\u00d7",
    r"\'{e}": "é",
    r"\quad ": "",
    "{}": "",
    **{f"\\{mark}": mark for mark in "{}&%$#_"},
}
_LATEX = re.compile("|".join(map(re.escape, _COMMAND)))


def latex_tables(text: str) -> Iterator[Rows]:
    """Yield the rows of each tabular: those above the \\midrule, and those below."""
    for body in re.findall(
        r"\\begin\{tabular\}\{@\{\}[lr]+@\{\}\}\n\\toprule\n(.*?)\\bottomrule\n\\end\{tabular\}",
        text,
        re.S,
    ):
        above, rule, below = body.partition("\\midrule\n")
        yield (_latex_rows(above), _latex_rows(below)) if rule else ((), _latex_rows(above))


def _latex_rows(text: str) -> tuple[Cells, ...]:
    rows = text.split(" \\\\\n")
    assert rows.pop() == ""
    cells = (re.split(r"(?<!\\)&", row) for row in rows)
    return tuple(
        tuple(_LATEX.sub(lambda m: _COMMAND[m[0]], cell).strip() for cell in row) for row in cells
    )


def markdown_tables(text: str) -> Iterator[Rows]:
    """Yield the rows of each table: the header, and those below it."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
    for lines in re.findall(r"(?:^\|.*\|\n)+", text, re.M):
        header, marks, *rows = (_markdown_cells(line) for line in lines.splitlines())
        assert all(re.fullmatch("---:?", mark) for mark in marks)
        assert all(len(row) == len(header) for row in rows)
        yield ((header,), tuple(rows))


def _markdown_cells(line: str) -> Cells:
    cells = re.split(r"(?<!\\) \| ", line[2:-2])
    return tuple(re.sub(r"\\(.)", r"\1", cell.replace("&nbsp;", "")).strip() for cell in cells)


def html_header(table: Table) -> tuple[Cells, ...]:
    """Return the headers of a table as the row that HTML has, or no row if all are empty."""
    return (tuple(column.header for column in table.columns),) if table.header_rows else ()


class Page(HTMLParser):
    """A page of HTML: its tables, paragraphs and elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[Any] = []
        self.paragraphs: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.unclosed: list[str] = []
        self._part = 1
        self.feed(text)
        self.close()
        self.tables = [
            tuple(tuple(tuple(row) for row in part) for part in table) for table in self.tables
        ]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}
        if tag not in ("meta", "br"):
            self.unclosed.append(tag)
        if tag == "table":
            self.tables.append(([], []))
        elif tag in ("thead", "tbody"):
            self._part = int(tag == "tbody")
        elif tag == "tr":
            self.tables[-1][self._part].append([])
        elif tag in ("th", "td"):
            self.tables[-1][self._part][-1].append("")
        elif tag == "p":
            self.paragraphs.append("")
        elif tag == "br":
            self.handle_data("\n")

    def handle_endtag(self, tag: str) -> None:
        assert self.unclosed.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.unclosed and self.unclosed[-1] in ("th", "td"):
            self.tables[-1][self._part][-1][-1] += data
        elif "p" in self.unclosed:
            self.paragraphs[-1] += data
