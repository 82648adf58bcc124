"""Output: formats, files, pipes, terminals, and closed streams."""

import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from asking import REPOSITORY, Ask, of_questions, shell, started
from tables import each

from attncalc import Workload, load
from attncalc.questions.kv.report import kv_report
from attncalc.questions.schemas import schema_name
from attncalc.show.formats import FORMATS
from attncalc.show.write import drop_output


@pytest.mark.skipif(os.name == "nt", reason="a file has no mode on Windows")
def test_a_file_keeps_its_mode_when_it_is_overwritten(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "kv.json"
    ask("kv", "gpt2", "-o", str(file))
    file.chmod(0o640)
    ask("kv", "gpt2", "-o", str(file), "--force")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_dash_after_o_is_standard_output(ask: Ask) -> None:
    assert ask("kv", "gpt2", "-o", "-", "--json") == ask("kv", "gpt2", "--json")


def test_a_file_is_written_atomically_and_not_overwritten(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "kv.json"
    assert ask("kv", "gpt2", "-o", str(file)) == (0, "", "")
    first = file.read_text()
    assert json.loads(first)["schema"] == schema_name("kv")
    assert "already exists" in ask("kv", "gpt3", "-o", str(file)).err
    assert file.read_text() == first
    assert ask("kv", "gpt3", "-o", str(file), "--force").code == 0
    assert file.read_text() != first
    assert os.listdir(tmp_path) == ["kv.json"]
    assert os.name == "nt" or stat.S_IMODE(file.stat().st_mode) == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize(
    ("suffix", "start"),
    [
        ("md", "**GPT-2"),
        ("csv", "of,name,value"),
        ("tsv", "of\tname\tvalue"),
        ("txt", "GPT-2 (124M)  multi"),
        ("tex", "% attncalc kv: GPT-2"),
        ("html", "<!DOCTYPE html>"),
        ("htm", "<!DOCTYPE html>"),
        ("HTML", "<!DOCTYPE html>"),
    ],
)
def test_the_suffix_of_a_file_selects_its_format(
    ask: Ask, tmp_path: Path, suffix: str, start: str
) -> None:
    file = tmp_path / f"x.{suffix}"
    ask("kv", "gpt2", "-o", str(file))
    assert file.read_text().startswith(start)


@pytest.mark.parametrize("suffix", ["ods", "rst", "jsn"])
def test_an_unknown_suffix_is_an_error_that_lists_the_known_ones(
    ask: Ask, tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"x.{suffix}"
    error = ask("kv", "gpt2", "-o", str(file)).error
    assert f"no output format has the suffix '.{suffix}'" in error
    assert all(
        f"{suffix} ({known.name})" in error
        for known in FORMATS.values()
        for suffix in known.suffixes
        if suffix
    )
    assert not file.exists()
    assert ask("kv", "gpt2", "-o", str(file), "--format", "table").code == 0
    assert file.read_text().startswith("GPT-2 (124M)  multi")


def test_a_format_is_also_called_as_its_files_are(ask: Ask) -> None:
    assert ask("kv", "gpt2", "--format", "md").out == ask("kv", "gpt2", "--format", "markdown").out


@pytest.mark.parametrize(
    "command", [("kv", "no-such-model"), ("verify", "no-such-model"), ("presets", "families")]
)
def test_the_format_is_checked_before_anything_is_computed(
    ask: Ask, command: tuple[str, ...]
) -> None:
    assert "no output format has the suffix '.rst'" in ask(*command, "-o", "t.rst").err
    assert "unknown format 'rst'" in ask(*command, "--format", "rst").err
    assert (
        "--json cannot be combined with --format csv"
        in ask(*command, "--json", "--format", "csv").err
    )


@pytest.mark.parametrize("name", ["x", "x.txt", "x.TXT", ".hidden"])
def test_txt_and_no_suffix_are_plain_text(ask: Ask, tmp_path: Path, name: str) -> None:
    assert ask("kv", "gpt2", "-o", str(tmp_path / name)).code == 0
    assert (tmp_path / name).read_text().startswith("GPT-2 (124M)  multi")


def test_every_format_renders_and_no_suffix_has_two_formats() -> None:
    for known in FORMATS.values():
        assert known.render(kv_report(load("gpt2"), Workload.decode(1, 64)), explain=True)
    suffixes = [suffix for known in FORMATS.values() for suffix in known.suffixes]
    assert len(suffixes) == len(set(suffixes))


def test_help_and_errors_list_the_formats(ask: Ask) -> None:
    listed = ", ".join(FORMATS)
    assert listed in " ".join(ask("kv", "--help", "all").out.split())
    answer = ask("kv", "gpt2", "--format", "jsn")
    assert (
        answer.err
        == f"error: unknown format 'jsn'\n  tip: did you mean 'json'? known formats: {listed}\n"
    )


def test_writing_to_a_symlink_writes_its_target(ask: Ask, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "real.json")
    assert ask("kv", "gpt2", "-o", str(link)).code == 0
    assert link.is_symlink()
    assert (tmp_path / "real.json").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_pipe_or_a_device_is_written_directly(ask: Ask, tmp_path: Path) -> None:
    assert ask("kv", "gpt2", "-o", "/dev/null") == (0, "", "")
    assert ask("kv", "gpt2", "--json", "-o", "/dev/null", "--force") == (0, "", "")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    full = ask("kv", "gpt2", "-o", "/dev/full").error
    assert full.startswith("error: /dev/full: no space left on device\n")
    link = tmp_path / "link"
    link.symlink_to("/dev/null")
    assert ask("kv", "gpt2", "-o", str(link)).code == 0
    assert [link] == list(tmp_path.iterdir())
    assert link.is_symlink()


@each(
    ("line", "of_pipe"),
    [
        ("attncalc kv gpt2 -o /dev/stdout", "attncalc kv gpt2 | cat"),
        ("attncalc kv gpt2 --json -o /dev/stdout | cat", "attncalc kv gpt2 --json"),
        ("attncalc sweep gpt2 -c 256,512 -o /dev/stdout", "attncalc sweep gpt2 -c 256,512"),
        (
            "attncalc kv gpt2 -o /dev/stdout > f; attncalc kv gpt2 -o /dev/stdout >> f; cat f",
            "cat f",
        ),
        (
            "mkfifo p.csv; cat p.csv & attncalc kv gpt2 -o p.csv; wait",
            "attncalc kv gpt2 --format csv",
        ),
        ("attncalc kv gpt2 -o /dev/stdout | true", "true"),
        (
            "attncalc sweep gpt2 -c 1:400:1 -o /dev/stdout | head -1",
            "attncalc sweep gpt2 -c 1:400:1 | head -1",
        ),
    ],
)
def test_a_descriptor_gets_what_a_pipe_gets(
    line: str, of_pipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = shell(line)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout == shell(of_pipe).stdout


def test_a_file_is_written_in_a_folder_that_exists(ask: Ask, tmp_path: Path) -> None:
    assert (
        "no such file or directory"
        in ask("kv", "gpt2", "-o", str(tmp_path / "no" / "x.json")).error
    )
    assert "not a file that can be written" in ask("kv", "gpt2", "-o", str(tmp_path)).error


def test_a_closed_pipe_is_not_an_error() -> None:
    answer = shell("attncalc flops llama2-70b --explain | head -1")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith("LLaMA-2 70B")
    assert shell("attncalc flops llama2-70b --explain | true").returncode == 0


@pytest.mark.parametrize(
    ("model", "closed"),
    [
        ("-", "<&-"),
        ("-", "2>&-"),
        ("-", "<&- >&- 2>&-"),
        ("no-such.json", ">&-"),
        ("x" * 300, ">&-"),
        ("gpt2", ">&-"),
    ],
)
def test_closed_streams_print_no_traceback(model: str, closed: str) -> None:
    answer = shell(f"attncalc kv {model} {closed}")
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr


def test_output_that_is_closed_has_no_rest_to_discard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOBase())
    drop_output()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_is_an_error_with_a_tip() -> None:
    answer = shell("attncalc kv gpt2 > /dev/full")
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: cannot write the answer: no space left")
    assert len(answer.stderr.splitlines()) == 2


@pytest.mark.skipif(os.name == "nt", reason="a path has another limit on Windows")
@pytest.mark.parametrize(
    "word", ["x" * 300, "x" * 300 + "/config.json", "x" * 300 + ".gguf", "models/" + "x" * 5000]
)
@pytest.mark.parametrize(
    "command",
    of_questions(
        [
            "kv WORD",
            "fit WORD",
            "fit WORD --gpu h100",
            "fit --log WORD",
            "train WORD",
            "compare gpt2 WORD",
            "sweep WORD",
        ]
    ),
)
def test_a_word_too_long_for_a_path_is_no_error_of_the_answers_file(
    ask: Ask, command: str, word: str
) -> None:
    error = ask(*command.replace("WORD", word).split()).error
    assert "xxxxxxxx" in error
    assert "answer" not in error


@pytest.mark.skipif(os.name == "nt", reason="a path has another limit on Windows")
def test_an_error_of_a_file_that_was_named_tells_its_name(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attncalc.cli.app", lambda args, **settings: os.stat("x" * 300))
    error = ask("kv", "gpt2").error
    assert error.startswith("error: xxxxxxxx")
    assert "file name too long\n  tip: check the path" in error


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0,
    reason="root may read any file, and Windows too",
)
def test_an_unreadable_file_or_folder_is_an_error(ask: Ask, tmp_path: Path) -> None:
    folder = tmp_path / "secret"
    folder.mkdir()
    file = folder / "model.yaml"
    file.write_text("title: x")
    file.chmod(0)
    assert "permission denied" in ask("kv", str(file)).err
    folder.chmod(0)
    assert "permission denied" in ask("kv", str(file)).err
    assert "permission denied" in ask("kv", str(folder)).err
    folder.chmod(0o755)


def test_a_pipe_gets_plain_text_whatever_the_terminal_supports() -> None:
    plain = shell("attncalc kv llama2-70b | cat", FORCE_COLOR="", TERM="xterm-256color").stdout
    assert "\x1b" not in plain
    assert shell("attncalc kv llama2-70b | cat", NO_COLOR="1", TERM="dumb").stdout == plain


def on_a_terminal(command: str, **env: str) -> str:
    """Return what a command prints to a pseudo-terminal."""
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    screen, terminal = pty.openpty()
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "TERM": "xterm-256color",
        "COLUMNS": "80",
        **env,
    }
    program = subprocess.Popen(
        [sys.executable, "-m", "attncalc", *command.split()], stdout=terminal, env=environment
    )
    os.close(terminal)
    printed = b""
    while True:
        try:
            block = os.read(screen, 65536)
        except OSError:
            break
        if not block:
            break
        printed += block
    os.close(screen)
    # Read while it writes: a pseudo-terminal holds a few KiB, and a longer help would wait forever.
    assert program.wait() == 0
    return printed.decode().replace("\r\n", "\n")


def test_a_terminal_gets_the_lines_of_plain_text_with_emphasis(ask: Ask) -> None:
    environment = {key: "" for key in ("NO_COLOR",) if key in os.environ}
    screen = on_a_terminal("kv gemma3-27b", **environment)
    plain = ask("kv", "gemma3-27b").out
    import re

    assert re.sub(r"\x1b\[[0-9;]*m", "", screen).rstrip() == plain.rstrip()
    assert "\x1b[1m" in screen


def test_help_is_as_narrow_as_the_terminal() -> None:
    for command in ("--help", "fit --help all", "sweep -h"):
        lines = on_a_terminal(command, COLUMNS="40").splitlines()
        assert [line for line in lines if len(line) > 40 and " " in line] == []


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_color_and_dumb_terminals_get_no_emphasis(variable: dict[str, str]) -> None:
    lines = (
        "kv gpt2 -c 4096",
        "plan llama3.1-8b --gpu h100 --users 9 --prompt 1K --output-len 100",
    )
    for command in of_questions(lines):
        assert "\x1b" not in on_a_terminal(command, **variable)


@pytest.mark.parametrize(
    "command", [("kv", "gpt2"), ("fit", "gpt2", "--gpu", "t4"), ("presets", "show", "gpt2")]
)
@pytest.mark.parametrize("option", ["-o", "--output"])
def test_a_name_with_a_slash_at_its_end_is_no_file(
    ask: Ask, tmp_path: Path, command: tuple[str, ...], option: str
) -> None:
    """A path drops the slash, so that x.json/ was written as x.json."""
    assert (
        "a folder, not a file that can be written"
        in ask(*command, option, f"{tmp_path}/x.json/").error
    )
    assert list(tmp_path.iterdir()) == []


# SIGTERM


# Runs a command that a signal ends when its file is complete and has not got its name yet.
ENDED = """
import os, signal, sys
name = sys.argv.pop(1)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
from attncalc.__main__ import main
from attncalc.show import write

def end(*paths):
    print("complete" if os.listdir() else "no file", flush=True)
    signal.raise_signal(signal.Signals[name])

write._rename_to_new = end
main()
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows ends a process at once")
@pytest.mark.parametrize(
    ("command", "name", "code"),
    [
        ("kv gpt2 -o x.json", "SIGHUP", 129),
        ("kv gpt2 -o x.json", "SIGINT", 130),
        ("kv gpt2 -o x.json", "SIGTERM", 143),
        ("presets show gpt2 -o x.yaml", "SIGTERM", 143),
        ("compare gpt2 --plot x.svg -o x.html", "SIGTERM", 143),
        ("sweep gpt2 -c 1K,2K -o x.csv", "SIGTERM", 143),
    ],
)
def test_a_terminated_command_leaves_no_file(
    tmp_path: Path, command: str, name: str, code: int
) -> None:
    with started("-c", ENDED, name, *command.split(), cwd=tmp_path) as running:
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err) == (code, "complete\n", "")
    assert list(tmp_path.iterdir()) == []


# Runs a command that a signal ends while a module is imported, in `__set_name__` of a class.
ENDED_IMPORT = """
import signal, sys
name, module, wraps = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it

class Ending:
    def __set_name__(self, owner, name_of_field):
        signal.raise_signal(signal.Signals[name])

class Finder:
    def find_spec(self, imported, path=None, target=None):
        if imported == module:
            sys.meta_path.remove(self)
            try:
                type("Interrupted", (), {"field": Ending()})
            except BaseException as error:
                if wraps == "yes":
                    raise RuntimeError("Error calling __set_name__") from error
                raise

sys.meta_path.insert(0, Finder())
from attncalc.__main__ import main
main()
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows ends a process at once")
@pytest.mark.parametrize(
    ("name", "code", "module", "wraps"),
    [
        ("SIGINT", 130, "attncalc.cli", "no"),
        ("SIGINT", 130, "attncalc.show.write", "no"),
        ("SIGINT", 130, "attncalc.show.write", "yes"),
        ("SIGTERM", 143, "attncalc.show.write", "yes"),
    ],
)
def test_a_signal_during_an_import_prints_no_traceback(
    name: str, code: int, module: str, wraps: str
) -> None:
    """`wraps` is whether the interpreter makes a RuntimeError of it, as Python 3.11 does."""
    with started("-c", ENDED_IMPORT, name, module, wraps, "kv", "gpt2") as running:
        assert running.communicate(timeout=60) == ("", "")
    assert running.returncode == code


@pytest.mark.skipif(os.name == "nt", reason="Windows ends a process at once")
def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """As under nohup: the command is asked for its handler, and not sent a signal that would have
    to arrive.
    """
    script = """
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from attncalc.__main__ import main
from attncalc.show import write
write._rename_to_new = lambda *paths: print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)
sys.argv = ["attncalc", "kv", "gpt2", "-o", "x.json"]
main()
"""
    with started("-c", script, cwd=tmp_path) as running:
        assert running.communicate(timeout=60)[0] == "True\n"


@each(
    ("command", "lines"),
    [
        # 12 layers * 1024 tokens * 2 * 12 heads * 64 * 2 B
        ("kv gpt2 -c 1K --get kv_cache", ["75497472"]),
        ("kv gpt2 -c 1K --get kv_cache,batch --unit MiB", ["72.0\t1"]),  # 75,497,472 / 2^20
        ("gpus l4 h200 --get name,memory_gb", ["l4\t24", "h200\t141"]),
        ("presets distilgpt2 --get NAME", ["distilgpt2"]),
        ("fit gpt2 --gpu l4 --get verdict,fits", ["fits\ttrue"]),
        ("kv gpt2 -c 1K --quiet", ["KV cache  72 MiB  75,497,472 B"]),
        ("presets distilgpt2 -q", ["distilgpt2"]),
        (
            "fit gpt2 --kv-memory 1GiB --engine ideal -q",  # 72 MiB in fp32: 14.2 of them
            [
                "FITS: 14 concurrent requests. 1 request of 1,024 tokens needs 72 MiB, 1.00 GiB "
                "are free."
            ],
        ),
        ("kv gpt2 -q --fail-if kv_cache>1GiB", []),
    ],
)
def test_a_script_gets_lines_without_a_table(ask: Ask, command: str, lines: list[str]) -> None:
    answer = ask(*command.split())
    assert (answer.out.splitlines(), answer.err, answer.code) == (lines, "", 0)


def test_a_figure_without_a_value_is_an_error_of_get(ask: Ask) -> None:
    for names in ("weights_stored", "params_total,weights_stored"):
        error = ask("params", "gpt2", "--get", names).error
        assert error == "error: --get: weights_stored does not apply here\n  tip: leave it out\n"


@each("command", ["flops gpt2 --get flops_total", "gpus mi300x --get bandwidth"])
def test_a_unit_for_figures_that_are_no_sizes_is_an_error(ask: Ask, command: str) -> None:
    error = ask(*command.split(), "--unit", "GB").error
    name = command.rsplit(maxsplit=1)[-1]
    assert error.startswith(f"error: --unit is for sizes, and none of these is one: {name}\n")


def test_a_short_name_of_a_figure_is_an_error_with_the_whole_name(ask: Ask) -> None:
    error = ask("flops", "gpt2", "--get", "total").error
    assert error.startswith("error: --get: there is no figure 'total'\n")
    assert "did you mean 'flops_total'?" in error


def test_a_figure_that_get_does_not_know_is_an_error_with_all_names(ask: Ask) -> None:
    error = ask("kv", "gpt2", "--get", "kv_bytes").error
    assert error.startswith("error: --get: there is no figure 'kv_bytes'\n")
    assert "weights_stored" in error
    for unit in ("mile", "5"):
        error = ask("kv", "gpt2", "--get", "kv_cache", "--unit", unit).error
        assert error.startswith(f"error: --unit: '{unit}' is no unit of sizes")
    assert ask("kv", "gpt2", "--get", "kv_cache", "--json").error.startswith(
        "error: --get cannot be combined with"
    )


def test_warnings_and_failed_conditions_are_named_beside_the_figures_of_get(ask: Ask) -> None:
    answer = ask("kv", "gpt2", "-c", "2K", "--get", "kv_cache", "--fail-if", "kv_cache > 1MiB")
    assert (answer.out, answer.code) == ("150994944\n", 1)  # 2,048 tokens of 72 KiB
    assert "failed: kv_cache > 1MiB: gpt2 has 150,994,944 B" in answer.err
    assert "warning: context 2,048 is beyond the learned position table of 1,024" in answer.err


def test_a_plain_file_has_sentences_as_a_screen(ask: Ask, tmp_path: Path) -> None:
    words = ("kv", "gpt2", "-c", "1K", "--plain")
    ask(*words, "-o", str(tmp_path / "a.txt"))
    assert (tmp_path / "a.txt").read_text() == ask(*words).out != ask(*words[:-1]).out


def test_get_names_the_range_of_an_estimate(ask: Ask) -> None:
    words = (
        "fit",
        "llama3.1-8b",
        "--gpu",
        "rtx-4090",
        "--engine",
        "vllm",
        "-c",
        "8K",
        "--get",
        "max_context,weights",
    )
    low, high = (ask(*words[:-1], f"max_context_{end}").out.strip() for end in ("low", "high"))
    said = f"note: max_context is an estimate: max_context_low is {low}, max_context_high {high}\n"
    assert (ask(*words).err, ask(*words, "--reserve", "1GiB").err) == (said, "")


def test_json_lines_have_a_flat_object_per_row_or_answer(ask: Ask) -> None:
    rows = [
        json.loads(line) for line in ask("gpus", "l4", "h200", "--format", "jsonl").out.splitlines()
    ]
    assert [(row["name"], row["memory_gb"]) for row in rows] == [("l4", 24), ("h200", 141)]
    assert rows[0].keys() == rows[1].keys()
    (line,) = ask("kv", "gpt2", "-c", "1K", "--format", "jsonl").out.splitlines()
    answer = json.loads(line)
    assert (answer["model"], answer["context"], answer["kv_cache"]) == ("gpt2", 1024, 75_497_472)
