"""Tools that read records of `attncalc verify --record`: pages, and two records side by side."""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from asking import REPOSITORY

from attncalc.questions.schemas import schema_name
from attncalc.questions.verify.record_files import to_json
from attncalc.verify.record.machine import file_stem

sys.path.append(str(REPOSITORY / "tools"))
record_page = import_module("record_page")
compare_records = import_module("compare_records")

MEASURED = REPOSITORY / "docs/measured"
CPU = MEASURED / "cpu-2-threads.json"
Document = dict[str, Any]


# Pages


@pytest.mark.parametrize("data", sorted(MEASURED.glob("*.json")), ids=lambda path: path.name)
def test_a_page_has_the_verdict_and_a_row_for_each_run_of_its_record(data: Path) -> None:
    document = json.loads(data.read_text())
    lines = record_page.record_page(document).splitlines()
    assert lines[0] == f"# {document['device']['title']}"
    checks = sum(len(run["checks"]) for run in document["runs"])
    assert lines[2].startswith(f"**All {checks:,} checks agree")
    runs = lines[lines.index("## Runs") + 4 : lines.index("## Kernels and dtypes") - 1]
    assert len(runs) == len(document["runs"])
    assert data.stem == file_stem(document["device"]["title"])
    assert to_json(document) == data.read_text()
    assert data.stat().st_size < 500_000  # small enough for a repository


def test_the_page_is_written_beside_its_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "cpu.json"
    data.write_text(CPU.read_text())
    assert record_page.main([str(data)]) == 0
    written = (tmp_path / "cpu.md").read_text()
    assert written == record_page.record_page(json.loads(CPU.read_text()))
    assert capsys.readouterr().out == f"Written: {tmp_path / 'cpu.md'}\n"


# Two records


def changed(change: Callable[[Document], object]) -> Document:
    """Return a copy of the record of the docs, changed."""
    document: Document = json.loads(CPU.read_text(encoding="utf-8"))
    change(document)
    return document


def compared(b: Document) -> Any:
    return compare_records.compare_records(json.loads(CPU.read_text(encoding="utf-8")), b)


def test_a_record_agrees_with_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_records.main([str(CPU), str(CPU)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "A takes as long as B, in the median of all timed passes." in out
    comparison = compared(changed(lambda document: None))
    assert comparison.differences == comparison.only_a == comparison.only_b == []


def test_records_differ_in_figures_and_outcomes_and_not_in_numerical_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """gpt2's peak of prefill is 2 % higher in B, a numerical error 10 % higher, and each pass takes
    half as long.
    """

    def change(document: Document) -> None:
        for row in document["runs"][0]["checks"]:
            row[3] *= {"peak_prefill_math": 1.02, "math_equals_reference_fp32": 1.1}.get(row[1], 1)
        for row in document["runs"][0]["times"]:
            row[3] /= 2
        del document["runs"][2:]

    b = changed(change)
    comparison = compared(b)
    (difference,) = comparison.differences
    assert (difference["name"], difference["ok_a"], difference["ok_b"]) == (
        "peak_prefill_math",
        True,
        False,
    )
    assert difference["measured_b"] == pytest.approx(1.02 * difference["measured_a"])
    first, second = (pair.facts for pair in comparison.pairs)
    assert first["ms_a"] == pytest.approx(2 * first["ms_b"])
    assert (first["differ"], second["differ"]) == (1, 0)
    assert second["ms_a"] == second["ms_b"]
    assert (len(comparison.only_a), comparison.only_b) == (41, [])
    path = tmp_path / "b.json"
    path.write_text(json.dumps(b))
    assert compare_records.main([str(CPU), str(path)]) == 1
    out = capsys.readouterr().out
    assert "peak_prefill_math" in out
    assert " 0 of " not in out  # only runs that differ
    assert max(map(len, out.splitlines())) <= 80
    assert compare_records.main([str(CPU), str(path), "--full"]) == 1
    assert " 0 of " in capsys.readouterr().out


def test_records_without_a_common_run_are_exit_code_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "b.json"
    path.write_text(json.dumps(changed(lambda document: document["runs"].clear())))
    assert compare_records.main([str(CPU), str(path)]) == 3
    assert "The records have no run in common." in capsys.readouterr().out


@pytest.mark.parametrize("tool", ["record_page", "compare_records"])
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "no such file"),
        ("{", "not JSON"),
        ("[]", "it names no schema"),
        (json.dumps({"schema": schema_name("verify")}), f"its schema is {schema_name('verify')}"),
        (
            json.dumps({"schema": schema_name("record"), "runs": [{"arguments": 1}]}),
            "a damaged record",
        ),
    ],
)
def test_a_file_that_is_no_record_is_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, problem: str, tool: str
) -> None:
    file = tmp_path / "a.json"
    if content is not None:
        file.write_text(content)
    files = [str(file)] if tool == "record_page" else [str(file), str(file)]
    assert import_module(tool).main(files) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 2
