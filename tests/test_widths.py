"""The width of screens: no line is wider than a pipe's 80 columns, or than a terminal, if it has
several words.
"""

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from asking import Ask
from tables import each
from test_docs import printed, screens

from attncalc.show.lists import list_lines, screen_width, wrapped
from attncalc.show.report import LABEL, Column, Table
from attncalc.show.text import narrowed, table_lines

LOGS = Path(__file__).parent / "data" / "engine-logs"
# What prints data or a picture, or needs torch.
WIDE = ("--json", "--format", "-o", "schema", "presets show", "presets add", "verify", "--plot")
COMMANDS = sorted(
    {screen.command for screen in screens() if not any(word in screen.command for word in WIDE)}
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def too_wide(text: str, width: int) -> list[str]:
    """Return the lines of several words that are wider; in a pipe an error and its tip are one line
    each.
    """
    errors = ("error: ", "  tip: ", "failed: ")
    return [
        line
        for line in text.splitlines()
        if len(line) > width and len(line.split()) > 1 and not line.startswith(errors)
    ]


def logs() -> Iterator[tuple[str, ...]]:
    """Yield the command line of every failed start of the test data, and of every tenth log."""
    entries = [
        entry for entry in json.loads((LOGS / "logs.json").read_text()) if "excerpt" in entry
    ]
    for entry in entries[::10]:
        model = entry["model"]
        model = str(LOGS / model) if model.startswith("models/") else model
        yield (model, "--gpu", "h100", "--log", str(LOGS / entry["excerpt"]))
    for log in (*(LOGS / "doctor").iterdir(), *(LOGS / "refusals").iterdir()):
        yield ("qwen3-8b", "--log", str(log))


def test_a_pipe_has_80_columns() -> None:
    """As the docs show it, which their own test compares with what the program prints."""
    wide = {
        screen.command: too_wide(screen.text, 80)
        for screen in screens()
        if screen.command in COMMANDS
    }
    assert {command: lines for command, lines in wide.items() if lines} == {}


@each("command", list(logs()))
def test_what_is_said_about_a_log_has_80_columns(command: tuple[str, ...], ask: Ask) -> None:
    assert too_wide(ask("fit", *command, "--full").out, 80) == []


@each("command", COMMANDS)
def test_a_narrow_terminal_has_lines_of_its_width_and_plain_ones_are_ascii(command: str) -> None:
    """Every third width from 40 on; a word that is wider has a line of its own. Every second
    command is plain.
    """
    width = 40 + 3 * COMMANDS.index(command) % 40
    plain = " --plain" * (COMMANDS.index(command) % 2 and not command.endswith('"'))
    output = Terminal()
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(SystemExit):
        patch.setenv("COLUMNS", str(width))
        patch.setenv("TERM", "dumb")
        patch.setattr("test_docs.io.StringIO", lambda: output)
        printed(command + plain)
    assert output.getvalue().isascii() or not plain
    wide = [
        line
        for line in output.getvalue().splitlines()
        if len(line) > width and len(line.split()) > 1
    ]
    assert wide == []


@pytest.mark.parametrize(
    ("columns", "expected"),
    [("60", 60), ("132", 132), ("39", 40), ("0", 80), ("x", 80), ("²", 80), ("9" * 5000, 999999)],
)
def test_columns_set_the_width(
    columns: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert [screen_width(Terminal()), screen_width(io.StringIO())] == [expected] * 2


@pytest.mark.parametrize(
    "arguments",
    [(), ("kv", "gpt22"), ("fit", "gpt2", "--gpu", "h1000"), ("kv", "gpt2", "--seed", "1")],
)
def test_messages_have_the_width_of_columns_and_are_one_line_in_a_pipe_without(
    arguments: tuple[str, ...], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_pipe = ask(*arguments)
    monkeypatch.setenv("COLUMNS", "40")
    narrow = ask(*arguments)
    assert max(map(len, f"{narrow.out}{narrow.err}".splitlines())) <= 40
    assert narrow.err.split() == in_pipe.err.split()
    assert len(in_pipe.err.splitlines()) <= 2  # an error and its tip


@each(
    ("table", "lines"),
    [
        (
            Table(
                (LABEL, Column(), Column()),
                (("KV cache", "1.25 GiB", "1,342 B"), ("  per token", "320 KiB", "")),
            ),
            ["  KV cache: 1.25 GiB (1,342 B)", "    per token: 320 KiB"],
        ),
        (
            Table(
                (Column("model", "left"), Column("batch", "left"), Column("KV\nMiB")),
                (("gpt2", "1", "36"), ("", "2", "72")),
            ),
            ["  model: gpt2; batch: 1; KV: 36 MiB", "  model: gpt2; batch: 2; KV: 72 MiB"],
        ),
        (
            Table(
                (Column("held", "left"), Column("MiB"), LABEL),
                (("math", "64", "scores"), ("", "8", "queries"), ("flash", "8", "keys")),
            ),
            ["  held: math; 64 MiB, scores;", "    8 MiB, queries", "  held: flash; 8 MiB, keys"],
        ),
        (
            Table(
                (
                    Column("gpu", "left"),
                    Column("repli-\ncas"),
                    Column("TTFT\n>="),
                    Column("tokens\n/s <="),
                ),
                (("h200", "1", "54.7 ms", "7"),),
            ),
            ["  gpu: h200; replicas: 1;", "    TTFT >= 54.7 ms; tokens/s <= 7"],
        ),
        (
            Table(
                (Column("change", "left"), Column("requests")),
                (("--tp 2", "3"), ("  --pp 2", ""), ("-c 8", "4")),
            ),
            ["  change: --tp 2 --pp 2; requests: 3", "  change: -c 8; requests: 4"],
        ),
        (
            Table((LABEL, LABEL), (("qwen", "a b"), ("", "c"), ("phi", "d"))),
            ["  qwen: a b c", "  phi: d"],
        ),
        (  # a unit of a row; 7.6 GiB and 8 GB are no units of these cells
            Table(
                (LABEL, Column("8 GB"), Column("at 9 GiB")),
                (("a, GiB", "1.5", "9"), ("rtx, 7.6 GiB", "-", "2")),
            ),
            ["  a: 8 GB: 1.5 GiB; at 9 GiB: 9 GiB", "  rtx, 7.6 GiB: 8 GB: none; at 9 GiB: 2"],
        ),
        (
            Table((Column("from 18.69 GiB", "left"), Column("logged")), (("tokens", "136"),)),
            ["  from 18.69 GiB: tokens; logged: 136"],
        ),
        (  # the unit of the whole table
            Table(
                (Column("cache, GiB", "left"), Column("4K")), (("gpt2", "18.0"),), above="context"
            ),
            ["  cache: gpt2; context 4K: 18.0 GiB"],
        ),
        (
            Table((LABEL, Column("fp8\nTFLOP/s")), (("h100", "1,978.9"),)),
            ["  h100: fp8: 1,978.9 TFLOP/s"],
        ),
        (
            Table((LABEL, Column("tokens\nper GiB")), (("gpt2", "9"),)),
            ["  gpt2: tokens per GiB: 9"],
        ),
        (
            Table((LABEL, LABEL), (("all", "8"), ("- weights", "5"), ("= cache", "3"))),
            ["  all: 8", "  minus weights: 5", "  equals cache: 3"],
        ),
    ],
)
def test_a_list_has_the_labels_of_a_table_in_each_line(table: Table, lines: list[str]) -> None:
    assert list_lines(table, 40) == lines


def test_a_number_and_its_unit_are_on_one_line() -> None:
    assert wrapped("weights take 12.5 GiB, or 3 %", width=19) == [
        "weights take",
        "  12.5 GiB, or 3 %",
    ]


def test_a_list_says_what_a_missing_cell_means() -> None:
    table = Table(
        (LABEL, Column("4K"), Column("share")), (("rtx", "-", ""),), missing="does not fit"
    )
    assert list_lines(table, 40) == ["  rtx: 4K: does not fit"]


def test_a_command_that_is_too_wide_is_folded_with_backslashes() -> None:
    table = Table(
        (Column("with --tp 2:", "left"),),
        (("vllm serve some/model --max-model-len 32768 \\",), ("    --x 1",)),
        code=True,
    )
    assert list_lines(table, 40) == [
        "  with --tp 2:",
        "  vllm serve some/model \\",
        "      --max-model-len 32768 --x 1",
    ]


@pytest.mark.parametrize(
    "command", ["kv gpt2 -o x.json", "compare gpt2 --plot x.svg", "sweep gpt2 -c 512,1K -o x.csv"]
)
def test_a_terminal_says_which_file_was_written(
    command: str, ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if "--plot" in command:
        pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    terminal = Terminal()
    with contextlib.redirect_stderr(terminal):
        ask(*command.split(), "--force")
    assert terminal.getvalue() == f"wrote {command.rpartition(' ')[2]}\n"


def test_a_narrow_screen_leaves_columns_out_before_a_table_becomes_a_list(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    screen = ask("compare", "llama2-70b").out
    assert "  Left out at 60 columns: of MHA; decode FLOP/byte.\n" in screen
    (row,) = [line.split() for line in screen.splitlines() if line.startswith("  GQA-8 *")]
    assert row == ["GQA-8", "*", "8", "12.08", "320", "1,280", "582.75", "148.16"]
    # a screen reader gets all
    assert "of MHA: 0.125" in " ".join(ask("compare", "llama2-70b", "--plain").out.split())


def test_a_narrow_screen_of_gpus_keeps_the_memory_that_decides(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    screen = ask("fit", "llama3.1-8b", "--gpu", "all").out
    assert "  Left out at 60 columns: with.\n" in screen
    (row,) = [line.split() for line in screen.splitlines() if line.startswith("  gtx-1650")]
    assert row[3] == "3.7"  # GiB, of which it needs 5.7


def test_columns_are_left_out_in_their_order_and_none_in_vain() -> None:
    columns = (Column("name", "left"), Column("a" * 20, drop=2), Column("b" * 20, drop=1))
    table = Table(columns, (("x", "1", "2"),))
    assert table_lines(narrowed(table, 30)[0])[0].split() == ["name", "a" * 20]
    assert narrowed(table, 30)[1] == ["b" * 20]
    assert narrowed(table, 10)[1] == ["b" * 20, "a" * 20]
    # without room for the name alone, the table is a list with all
    assert narrowed(table, 5) == (table, [])
