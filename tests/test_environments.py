"""The same answer in every environment: locales, encodings, folders that are missing or read-only,
Python's options.
"""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from asking import REPOSITORY, Ask

from attncalc.config.huggingface import convert_config
from attncalc.questions.schemas import schema_name
from attncalc.show import write

MODEL = REPOSITORY / "docs/examples/qwen3-next-80b-a3b"
COMMAND = ("kv", str(MODEL), "--json")
# What `python -m attncalc` does, also where Python ignores PYTHONPATH.
START = (
    f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); from attncalc.__main__ import main; "
    "main()"
)
NO_HOME: dict[str, str | None] = dict.fromkeys(("HOME", "USERPROFILE", "HF_HOME"))


def run(
    *command: str,
    python: tuple[str, ...] = (),
    before: str = "",
    cwd: Path | None = None,
    env: dict[str, str | None] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run attncalc in a process of its own.

    Args:
        command: The command line.
        python: Options of Python.
        before: Python code that is run first.
        cwd: The working folder.
        env: Environment variables to set; None removes one.
    """
    changed = {**os.environ, **(env or {})}
    environment = {name: value for name, value in changed.items() if value is not None}
    arguments = [sys.executable, *python, "-c", before + START, *command]
    return subprocess.run(
        arguments, cwd=cwd, env=environment, capture_output=True, timeout=60, check=False
    )


@pytest.fixture(scope="module")
def usual() -> bytes:
    """Return the answer of COMMAND."""
    done = run(*COMMAND)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["schema"] == schema_name("kv")
    return done.stdout


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "cp1252"},
        {"PYTHONIOENCODING": "utf-16"},
        NO_HOME,
        NO_HOME | {"HOME": "/nonexistent", "USERPROFILE": "/nonexistent"},
        {"TMPDIR": "/nonexistent", "TEMP": "/nonexistent", "TMP": "/nonexistent"},
        {"TERM": "", "COLUMNS": "-1", "LINES": "x"},
        {"PYTHONWARNDEFAULTENCODING": "1", "PYTHONWARNINGS": "error"},
    ],
    ids=",".join,
)
def test_the_environment_changes_no_answer(usual: bytes, env: dict[str, str | None]) -> None:
    done = run(*COMMAND, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode(env.get("PYTHONIOENCODING") or "utf-8").encode() == usual


@pytest.mark.parametrize(
    "options",
    [("-I",), ("-O",), ("-OO",), ("-W", "error", "-X", "dev"), ("-s", "-B")],
    ids=" ".join,
)
def test_an_option_of_python_changes_no_answer(usual: bytes, options: tuple[str, ...]) -> None:
    done = run(*COMMAND, python=options)
    assert (done.returncode, done.stdout, done.stderr) == (0, usual, b"")


@pytest.mark.parametrize("form", ["json", "csv", "markdown", "table"])
def test_lines_end_with_a_line_feed_where_the_system_would_write_two_characters(form: str) -> None:
    """Python writes \\r\\n on Windows; a file must have the same bytes everywhere."""
    windows = run(
        "kv",
        "gpt2",
        "--format",
        form,
        before="import sys; sys.stdout.reconfigure(newline='\\r\\n'); ",
    )
    assert windows.returncode == 0
    assert windows.stdout == run("kv", "gpt2", "--format", form).stdout
    assert b"\r" not in windows.stdout


def test_a_file_is_written_where_files_cannot_be_linked(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAT has no links, with which a new file gets its name at once."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert ask("kv", "gpt2", "-o", str(tmp_path / "kv.json")) == (0, "", "")
    assert json.loads((tmp_path / "kv.json").read_text())["model"]["name"] == "gpt2"
    assert "already exists" in ask("kv", "gpt2", "-o", str(tmp_path / "kv.json")).err
    assert os.listdir(tmp_path) == ["kv.json"]


@pytest.mark.parametrize(
    ("is_windows", "error", "closed"),
    [
        (False, BrokenPipeError(errno.EPIPE, "broken pipe"), True),
        (True, OSError(errno.EINVAL, "invalid argument"), True),
        (False, OSError(errno.EINVAL, "invalid argument"), False),
        (True, OSError(errno.ENOSPC, "no space left on device"), False),
    ],
)
def test_windows_reports_a_closed_pipe_as_an_invalid_argument(
    monkeypatch: pytest.MonkeyPatch, is_windows: bool, error: OSError, closed: bool
) -> None:
    monkeypatch.setattr(write, "IS_WINDOWS", is_windows)
    assert write.is_closed_pipe(error) == closed


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes of folders")
def test_a_folder_without_write_permission_is_an_error_only_for_a_new_file(
    usual: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "read-only"
    folder.mkdir(mode=0o555)
    done = run(*COMMAND, cwd=folder)
    assert (done.returncode, done.stdout) == (0, usual)
    if os.geteuid() == 0:
        pytest.skip("root may write to every folder")
    refused = run(*COMMAND, "-o", "kv.json", cwd=folder)
    assert refused.returncode == 2
    assert refused.stderr.startswith(b"error: kv.json: permission denied\n  tip: ")


def test_a_preset_that_is_not_there_is_an_error_without_a_home() -> None:
    done = run("kv", "org/none", env={**NO_HOME, "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 2
    assert done.stderr.startswith(
        b"error: org/none: not in the local cache, and HF_HUB_OFFLINE is set\n  tip: "
    )


def test_the_name_of_a_folder_ends_at_a_backslash_too(ask: Ask) -> None:
    """A folder called llama-awq holds quantized weights, also as C:\\models\\llama-awq."""
    config = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))
    for file in ("/models/llama-awq/config.json", "C:\\models\\llama-awq\\config.json"):
        assert "awq" in convert_config(config, file, title="").data["unread_quantization"].lower()
    assert (
        "unread_quantization"
        not in convert_config(config, "C:\\models-awq\\llama\\config.json", title="").data
    )


@pytest.mark.parametrize("script", ["test_json_schema", "test_docs", "test_kinds_page"])
def test_a_script_reads_the_checkout_it_is_in(script: str, tmp_path: Path) -> None:
    """An attncalc that is installed, such as that of another checkout, is not read."""
    installed = tmp_path / "attncalc"
    installed.mkdir()
    (installed / "__init__.py").write_text("raise ImportError('the installed attncalc')")
    folder = str(REPOSITORY / "tests")
    code = f"import sys; sys.path.insert(0, {folder!r}); import {script}, attncalc; "
    done = subprocess.run(
        [sys.executable, "-c", f"{code}print(attncalc.__file__)"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == str(REPOSITORY / "attncalc/__init__.py"), done.stderr
