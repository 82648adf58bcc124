"""Spreadsheets: a sheet per model, with units, exact numbers and texts that are never computed."""

import io
import sys
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from asking import Ask

from attncalc.show.formats import Rows
from attncalc.show.xlsx import write

pytest.importorskip("xlsxwriter")
_NAMESPACE = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def sheets(file: Path | io.BytesIO) -> dict[str, list[list[Any]]]:
    """Return {sheet: its rows}: numbers as floats, texts as str, and None for a cell that is
    empty.
    """
    with zipfile.ZipFile(file) as parts:
        book = ElementTree.fromstring(parts.read("xl/workbook.xml"))
        shared = ElementTree.fromstring(parts.read("xl/sharedStrings.xml"))
        texts = [
            "".join(node.text or "" for node in item.iter(f"{_NAMESPACE}t")) for item in shared
        ]
        found = {}
        for i, sheet in enumerate(book.iter(f"{_NAMESPACE}sheet"), start=1):
            content = ElementTree.fromstring(parts.read(f"xl/worksheets/sheet{i}.xml"))
            assert content.find(f".//{_NAMESPACE}f") is None  # no formulas
            pane = content.find(f".//{_NAMESPACE}pane")
            assert pane is not None
            assert (pane.get("ySplit"), pane.get("state")) == ("1", "frozen")
            rows = [list(row) for row in content.iter(f"{_NAMESPACE}row")]
            found[str(sheet.get("name"))] = [[_value(cell, texts) for cell in row] for row in rows]
    return found


def _value(cell: ElementTree.Element, texts: list[str]) -> Any:
    value = cell.find(f"{_NAMESPACE}v")
    if value is None or value.text is None:
        return None
    return texts[int(value.text)] if cell.get("t") == "s" else float(value.text)


def test_a_sweep_and_a_report_can_be_spreadsheets(ask: Ask, tmp_path: Path) -> None:
    command = (
        "sweep",
        "gpt2",
        "llama2-7b",
        "-c",
        "1K,2K",
        "--columns",
        "kv_cache",
        "-o",
        str(tmp_path / "s.xlsx"),
    )
    assert ask(*command).code == 0
    assert sheets(tmp_path / "s.xlsx")["llama2-7b"][1:] == [
        ["llama2-7b", 1024, 2**29],
        ["llama2-7b", 2048, 2**30],
    ]
    assert ask("kv", "gpt2", "-c", "1024", "-o", str(tmp_path / "kv.xlsx")).code == 0
    kv = sheets(tmp_path / "kv.xlsx")["kv"]
    assert ["", "kv_cache", 2 * 12 * 768 * 4 * 1024, "B"] in [row[:4] for row in kv]


def test_texts_stay_texts_and_numbers_stay_exact() -> None:
    file = io.BytesIO()
    names = ["=1+1", "a/b[" + "x" * 40, "A/B[" + "x" * 40]
    write(
        Rows(
            ["model", "size", "fits"],
            [None, "B", None],
            [(name, 2**60, True) for name in names],
            {},
        ),
        file,
    )
    found = sheets(file)
    assert [len(name) <= 31 for name in found] == [True] * 3
    assert next(iter(found.values())) == [
        ["model", "size (B)", "fits"],
        ["=1+1", "1152921504606846976", 1],
    ]


def test_without_xlsxwriter_an_error_names_the_command_before_anything_is_computed(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    for words in (("compare", "gpt2"), ("sweep", "gpt2", "-c", "1K,2K"), ("kv", "no-such-model")):
        answer = ask(*words, "-o", str(tmp_path / "x.xlsx"))
        assert (answer.code, 'pip install "attncalc[xlsx]"' in answer.err) == (3, True)
    assert list(tmp_path.iterdir()) == []
