"""Characters in files' names and titles, encodings that lack them, and what a reader or a program
makes of them.
"""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from asking import Ask
from tables import each

from attncalc.questions import kv
from attncalc.show.characters import printable

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
}


def _folder(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def _run(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "attncalc", *arguments]
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        timeout=60,
        check=False,
    )


@each(
    ("text", "encoding", "shown"),
    [
        ("█▓▒░", "cp1252", "#=-."),
        ("█▓▒░", "utf-8", "█▓▒░"),
        ("Größe", "cp1252", "Größe"),
        ("漢", "cp1252", r"\u6f22"),
        ("😀", "ascii", r"\ud83d\ude00"),
        ("a\nb\tc", "utf-8", "a\nb\\u0009c"),
        ("a\rb\x1b[31m", "utf-8", r"a\u000db\u001b[31m"),
        ("gpj\u202eexe", "utf-8", r"gpj\u202eexe"),
        ("a\u2028b\u2066c", "utf-8", r"a\u2028b\u2066c"),
        ("a\u200bb\ufeffc\u00add", "utf-8", r"a\u200bb\ufeffc\u00add"),
        ("a\U000e0041", "utf-8", r"a\udb40\udc41"),
        ("\udcff", "utf-8", r"\udcff"),
        ("é", "no such encoding", r"\u00e9"),
        ("é", None, "é"),
    ],
)
def test_what_an_output_cannot_show_or_should_not_is_escaped(
    text: str, encoding: str | None, shown: str
) -> None:
    assert printable(text, encoding) == shown


@pytest.mark.parametrize("form", ["json", "table", "markdown", "csv", "tsv", "html", "latex"])
def test_a_tab_in_a_name_is_in_no_output(ask: Ask, tmp_path: Path, form: str) -> None:
    folder = _folder(tmp_path, "a\tb")
    out = ask("compare", "gpt2", str(folder), "--format", form).out
    assert out
    assert "a\tb" not in out


@each("encoding", ["cp1252", "ascii", "utf-8"])
@each("form", ["json", "table", "markdown", "csv", "tsv", "html", "latex"])
def test_every_format_is_printed_in_every_encoding(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, form: str
) -> None:
    _folder(tmp_path, "漢字😀")
    monkeypatch.chdir(tmp_path)
    with io.TextIOWrapper(io.BytesIO(), encoding) as output:
        monkeypatch.setattr(sys, "stdout", output)
        answer = ask("kv", "漢字😀", "--format", form)
        output.flush()
        printed = output.buffer.getvalue()
    assert (answer.code, answer.err) == (0, "")
    assert printed.decode(encoding)
    if form == "json":
        assert json.loads(printed)["model"]["title"] == "漢字😀"


@each("encoding", ["ascii", "utf-8"])
def test_a_process_prints_in_the_encoding_of_its_environment(tmp_path: Path, encoding: str) -> None:
    _folder(tmp_path, "漢字😀")
    done = _run("kv", "漢字😀", "--json", cwd=tmp_path, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout.decode(encoding))["model"]["title"] == "漢字😀"


def test_a_name_that_is_not_utf_8_is_escaped_on_the_screen_and_in_a_file(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff"
    try:
        os.mkdir(folder)
    except OSError:
        pytest.skip("this file system takes only names in UTF-8")
    Path(os.fsdecode(folder), "config.json").write_text(json.dumps(CONFIG))
    done = _run("kv", os.fsdecode(b"\xff"), "--json", "-o", "answer.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads((tmp_path / "answer.json").read_text())["model"]["n_layers"] == 2


def test_a_link_in_a_title_is_not_a_link_in_markdown(ask: Ask, tmp_path: Path) -> None:
    folder = _folder(tmp_path, "[x](javascript:y)")
    assert r"\[x](javascript:y)" in ask("kv", str(folder), "--format", "markdown").out


@pytest.mark.parametrize("mark", ["=", "+", "@"])
def test_a_name_that_a_spreadsheet_would_compute_is_quoted(
    ask: Ask, tmp_path: Path, mark: str
) -> None:
    folder = _folder(tmp_path, f"{mark}cmd")
    rows = list(
        csv.DictReader(io.StringIO(ask("compare", "gpt2", str(folder), "--format", "csv").out))
    )
    assert {row["name"] for row in rows} == {"gpt2", f"'{mark}cmd"}


@pytest.mark.skipif(os.name == "nt", reason="the line is for a POSIX shell")
def test_a_closed_standard_output_is_needed_only_without_a_file(tmp_path: Path) -> None:
    command = f"{sys.executable} -m attncalc kv gpt2"
    to_file = subprocess.run(
        f"{command} -o kv.json >&-",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert to_file.returncode == 0
    assert json.loads((tmp_path / "kv.json").read_text())["model"]["name"] == "gpt2"
    to_nowhere = subprocess.run(
        f"{command} >&-", shell=True, cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert (to_nowhere.returncode, to_nowhere.stderr[:35]) == (
        2,
        b"error: there is no standard output ",
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_the_exit_code_is_that_of_the_error_where_standard_error_is_full(tmp_path: Path) -> None:
    command = f"{sys.executable} -m attncalc kv no-such-model 2>/dev/full"
    assert (
        subprocess.run(command, shell=True, cwd=tmp_path, timeout=60, check=False).returncode == 2
    )


@pytest.mark.skipif(os.name == "nt", reason="the line is for a POSIX shell")
def test_a_deleted_working_folder_is_not_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    command = f"cd gone && rmdir ../gone && {sys.executable} -m attncalc kv gpt2 -o kv.json"
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: kv.json: no such file or directory")


def test_a_bug_is_one_line_and_its_traceback_is_shown_on_request(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> Any:
        raise MemoryError("out of memory")

    question = kv.QUESTION._replace(report=broken)
    monkeypatch.setattr("attncalc.questions.kv.QUESTION", question)
    monkeypatch.delenv("ATTNCALC_DEBUG")
    error = ask("kv", "gpt2").error
    assert error.startswith(
        "error: this is a bug in attncalc: MemoryError: out of memory\n  tip: please report it"
    )
    monkeypatch.setenv("ATTNCALC_DEBUG", "1")
    with pytest.raises(MemoryError):
        ask("kv", "gpt2")


def test_compare_finds_the_divisors_of_very_many_heads_at_once(ask: Ask, tmp_path: Path) -> None:
    """10^12 = 2^12 x 5^12 has 13 x 13 divisors."""
    heads = {
        "num_attention_heads": 10**12,
        "num_key_value_heads": 10**12,
        "hidden_size": 10**12,
        "head_dim": 1,
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG | heads))
    rows = csv.DictReader(io.StringIO(ask("compare", str(file), "--format", "csv").out))
    assert len({row["name"] for row in rows}) == 13 * 13
    file.write_text(json.dumps(CONFIG | dict.fromkeys(heads, 10**13) | {"head_dim": 1}))
    assert "10,000,000,000,000 is more than 1,000,000,000,000" in ask("compare", str(file)).err


def test_a_terminal_of_no_width_is_as_wide_as_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "attncalc", "kv", "gpt2"]
    subprocess.run(
        command, stdout=child, env={**os.environ, "COLUMNS": "0"}, timeout=60, check=True
    )
    os.close(child)
    assert b"KV cache" in os.read(parent, 10_000)
