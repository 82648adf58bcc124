"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from attncalc import __version__
from attncalc.cli import COMMANDS, run

REPOSITORY = Path(__file__).parent.parent


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Ask = Callable[..., Answer]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run a command line in this process: ask("kv", "gpt2", stdin="...")."""

    def asked(*arguments: str, stdin: str = "") -> Answer:
        monkeypatch.setattr(sys, "argv", ["attncalc", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = run()
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return asked


def shell(command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a shell line in which `attncalc` is this checkout's."""
    line = command.replace("attncalc ", f"{sys.executable} -m attncalc ")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **env}
    environment.pop("PYTHONUNBUFFERED", None)  # it would hide what is written only at the end
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def test_the_first_command_of_the_readme(ask: Ask) -> None:
    answer = ask("kv", "--preset", "llama2-70b")
    assert answer.code == 0
    assert "1.25 GiB  1,342,177,280 B" in answer.out
    assert answer.err == ""


def results(answer: Answer) -> dict[str, int]:
    return {r["name"]: r["value"] for r in json.loads(answer.out)["results"]}


def test_json_answers_the_design_by_name(ask: Ask) -> None:
    answer = ask("kv", "llama2-70b", "-b", "8", "-c", "4096", "--json")
    document = json.loads(answer.out)
    assert document["schema"] == "attncalc.kv/1"
    assert document["attncalc"] == __version__
    facts = {"d_model": 8192, "n_layers": 80, "vocab_size": 32_000, "max_context": 4096, "dtype": "fp16", "tp": 1}
    assert facts.items() <= document["model"].items()
    assert results(answer)["kv_cache"] == 10_737_418_240
    assert results(answer)["kv_cache_per_token"] == 327_680
    assert results(answer)["kv_cache_if_mha"] == 8 * 10_737_418_240


@pytest.mark.parametrize("command", ["kv", "params", "flops", "memory", "compare"])
@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown"])
def test_every_command_answers_in_every_format(ask: Ask, command: str, form: str) -> None:
    for more in ((), ("--explain",), ("--attention", "mla:64")):
        answer = ask(command, "gpt2", "--format", form, *more)
        assert (answer.code, answer.err) == (0, "")
        assert answer.out.endswith("\n")
        if form == "json":
            json.loads(answer.out)


@pytest.mark.parametrize("command", ["kv", "params", "flops", "memory", "compare"])
def test_every_command_takes_a_model_by_argument_option_and_stdin(ask: Ask, command: str) -> None:
    text = (REPOSITORY / "presets/models/gpt2.yaml").read_text()
    by_argument, by_option = ask(command, "gpt2"), ask(command, "-p", "gpt2")
    assert by_argument == by_option
    if command != "compare":
        assert ask(command, "-", stdin=text).out == by_argument.out


@pytest.mark.parametrize(
    ("option", "same"),
    [
        ("--max-model-len", "--context"),
        ("--tensor-parallel-size", "--tp"),
        ("--kv-cache-dtype", "--kv-dtype"),
    ],
)
def test_the_engines_names_of_options_are_known_too(ask: Ask, option: str, same: str) -> None:
    value = "fp8" if "dtype" in option else "2"
    assert ask("kv", "gpt2", option, value) == ask("kv", "gpt2", same, value)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("4096", 4096), ("4_096", 4096), ("4,096", 4096), ("4k", 4000), ("4K", 4096), ("1M", 2**20)],
)
def test_a_context_as_people_write_it(ask: Ask, text: str, tokens: int) -> None:
    assert json.loads(ask("kv", "llama2-7b", "-c", text, "--json").out)["workload"]["context"] == tokens


def test_10_to_the_18_tokens_are_exact(ask: Ask) -> None:
    answer = ask("kv", "llama2-70b", "-c", str(10**18), "--json")
    assert results(answer)["kv_cache"] == 327_680 * 10**18
    assert ask("flops", "llama2-70b", "-c", str(10**18)).code == 0


def test_what_if(ask: Ask) -> None:
    base, mqa = (
        results(ask("kv", "llama2-70b", "--attention", kind, "--json"))["kv_cache"] for kind in ("gqa:8", "mqa")
    )
    assert base == 8 * mqa
    assert "MLA" in ask("compare", "llama2-70b", "--attention", "mla:512").out


def test_compare_marks_what_was_released(ask: Ask) -> None:
    answer = ask("compare", "llama2-70b")
    assert "GQA-8 *" in answer.out
    document = json.loads(ask("compare", "llama2-70b", "--json").out)
    assert [row["name"] for row in document["layers"]] == [
        "MHA",
        "GQA-32",
        "GQA-16",
        "GQA-8",
        "GQA-4",
        "GQA-2",
        "MQA",
    ]
    assert [row["name"] for row in document["layers"] if row["released"]] == ["GQA-8"]


def test_a_prefix_is_answered_whatever_its_length(ask: Ask) -> None:
    answer = ask("flops", "gpt2", "--mask", "prefix:300", "-c", "512", "--json")
    assert answer.code == 0
    # causal pairs and the upper triangle of the first 300; 12 layers of 12 heads * 64, QK and PV
    assert results(answer)["flops_attention_scores"] == 12 * 4 * 12 * 64 * (512 * 513 // 2 + 300 * 299 // 2)


def test_what_a_question_leaves_out_is_said(ask: Ask) -> None:
    assert "no longest context: 512 tokens are taken" in ask("kv", "transformer-base").out.replace("\n  ", " ")
    assert "Context 448: the longest that all" in ask("compare", "gpt2", "whisper-large-v3").out
    assert "a rotary key of 64 beside the latent" in ask("kv", "llama2-7b", "--attention", "mla:512").out


def test_compare_warns_of_every_model_that_cannot(ask: Ask) -> None:
    answer = ask("compare", "gpt2", "whisper-large-v3", "-c", "5000").out.replace("\n  ", " ")
    assert "warning: GPT-2 (124M): context 5,000" in answer
    assert "warning: Whisper large-v3: context 5,000" in answer


def test_a_file_keeps_its_mode_when_it_is_overwritten(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "kv.json"
    ask("kv", "gpt2", "-o", str(file))
    file.chmod(0o640)
    ask("kv", "gpt2", "-o", str(file), "--force")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_dash_after_o_is_standard_output(ask: Ask) -> None:
    assert ask("kv", "gpt2", "-o", "-", "--json") == ask("kv", "gpt2", "--json")


def test_compare_puts_models_side_by_side(ask: Ask) -> None:
    answer = ask("compare", "llama2-70b", "gemma3-27b", "deepseek-v3")
    assert answer.code == 0
    assert "llama2-70b gemma3-27b deepseek-v3" in " ".join(answer.out.split())
    assert "context 4,096" in answer.out
    both = (json.loads(ask("compare", *names, "--json").out)["layers"][0] for names in (["gpt2"], ["gpt2", "gpt3"]))
    one, other = both
    assert set(one) == set(other)


def test_presets_are_listed_and_shown(ask: Ask) -> None:
    listed = ask("presets")
    assert all(name in listed.out for name in ("llama2-70b", "t5-base", "deepseek-v3"))
    assert ask("presets", "list") == listed
    assert ask("presets", "show", "gpt2").out == (REPOSITORY / "presets/models/gpt2.yaml").read_text()


def test_help_lists_every_command(ask: Ask) -> None:
    for arguments in ((), ("-h",), ("--help",)):
        answer = ask(*arguments)
        assert answer.code == 0
        assert all(command in answer.out for command in COMMANDS)
    for command in COMMANDS:
        answer = ask(command, "-h")
        assert answer.code == 0
        assert max(map(len, answer.out.splitlines())) <= 80
    assert ask("-V").out == f"attncalc {__version__}\n"


WRONG = {
    "no model": ("kv",),
    "two models": ("kv", "gpt2", "-p", "gpt3"),
    "an unknown preset": ("kv", "lama2-70b"),
    "an unknown command": ("kb",),
    "an unknown option": ("kv", "gpt2", "--contxt", "3"),
    "an option without its value": ("kv", "gpt2", "-b"),
    "too many words": ("kv", "gpt2", "gpt3"),
    "a batch of zero": ("kv", "gpt2", "-b", "0"),
    "a negative context": ("kv", "gpt2", "-c", "-5"),
    "a float": ("kv", "gpt2", "-c", "1e6"),
    "an empty number": ("kv", "gpt2", "-c", ""),
    "a dtype that is not one": ("kv", "gpt2", "--kv-dtype", "fp17"),
    "activations with scales": ("memory", "gpt2", "--dtype", "int4"),
    "an attention that is not one": ("kv", "gpt2", "--attention", "gqa"),
    "KV heads that do not divide": ("kv", "gpt2", "--attention", "gqa:5"),
    "devices that do not divide": ("kv", "llama2-70b", "--tp", "3"),
    "an engine that is not one": ("kv", "gpt2", "--engine", "vlm"),
    "a phase that is not one": ("flops", "gpt2", "--phase", "inference"),
    "a mask that is not one": ("flops", "gpt2", "--mask", "prefix"),
    "a prefix beyond the context": ("flops", "gpt2", "--mask", "prefix:2000", "-c", "10"),
    "a past as long as the context": ("flops", "gpt2", "-c", "10", "--past", "10"),
    "a past of a decode step": ("flops", "gpt2", "--phase", "decode", "--past", "10"),
    "an encoder's decode step": ("flops", "bert-base", "--phase", "decode"),
    "a source without an encoder": ("kv", "gpt2", "--source-context", "5"),
    "lengths that are none": ("kv", "gpt2", "--lengths", "5,x"),
    "lengths and a batch": ("kv", "gpt2", "--lengths", "5,3", "-b", "2"),
    "a format that is not one": ("kv", "gpt2", "--format", "xml"),
    "two formats": ("kv", "gpt2", "--json", "--format", "csv"),
    "a preset to show that is not": ("presets", "show", "gpt9"),
    "variants of several models": ("compare", "gpt2", "gpt3", "--attention", "mqa"),
    "a folder": ("kv", "/"),
    "a file in a folder that is not": ("kv", "gpt2", "-o", "/no/such/folder/x.json"),
    "a folder to write": ("kv", "gpt2", "-o", "/"),
    "memory of training": ("memory", "gpt2", "--phase", "train"),
    "an encoder's memory of a decode step": ("memory", "bert-base", "--phase", "decode"),
    "an encoder's memory after a past": ("memory", "bert-base", "-c", "20", "--past", "10"),
    "options before a subcommand": ("presets", "--json", "show", "gpt2"),
    "an empty dtype": ("kv", "gpt2", "--kv-dtype", ""),
    "a context of a thousand digits": ("flops", "gpt2", "-c", "9" * 1000),
    "force without a file": ("kv", "gpt2", "--force"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_question_gets_one_line_a_tip_and_code_2(ask: Ask, what: str) -> None:
    answer = ask(*WRONG[what])
    assert answer.code == 2
    assert answer.out == ""
    error, tip, *rest = answer.err.splitlines()
    assert error.startswith("error: ")
    assert tip.startswith("  tip: ")
    assert not rest


def test_a_context_beyond_the_positions_is_a_warning(ask: Ask) -> None:
    answer = ask("kv", "gpt2", "-c", "4096", "--json")
    assert answer.code == 0
    assert answer.err.startswith("warning: context 4,096 is beyond the learned position table of 1,024")
    assert json.loads(answer.out)["notes"][0].startswith("warning: ")


def test_a_file_is_written_whole_and_kept(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "kv.json"
    assert ask("kv", "gpt2", "-o", str(file)) == (0, "", "")
    first = file.read_text()
    assert json.loads(first)["schema"] == "attncalc.kv/1"
    assert "is there already" in ask("kv", "gpt3", "-o", str(file)).err
    assert file.read_text() == first
    assert ask("kv", "gpt3", "-o", str(file), "--force").code == 0
    assert file.read_text() != first
    assert os.listdir(tmp_path) == ["kv.json"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize(
    ("suffix", "start"), [("md", "**GPT-2"), ("csv", "of,name,value"), ("txt", "GPT-2 (124M)  multi")]
)
def test_a_files_suffix_picks_its_format(ask: Ask, tmp_path: Path, suffix: str, start: str) -> None:
    file = tmp_path / f"x.{suffix}"
    ask("kv", "gpt2", "-o", str(file))
    assert file.read_text().startswith(start)


def test_a_link_is_followed_and_stays(ask: Ask, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "real.json")
    assert ask("kv", "gpt2", "-o", str(link)).code == 0
    assert link.is_symlink()
    assert (tmp_path / "real.json").exists()


def test_a_device_is_not_overwritten(ask: Ask) -> None:
    answer = ask("kv", "gpt2", "-o", "/dev/null", "--force")
    assert answer.code == 2
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_closed_pipe_is_no_error() -> None:
    answer = shell("attncalc flops llama2-70b --explain | head -1")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith("LLaMA-2 70B")
    assert shell("attncalc flops llama2-70b --explain | true").returncode == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_traceback(closed: str) -> None:
    answer = shell(f"attncalc kv - {closed}")
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_one_line() -> None:
    answer = shell("attncalc kv gpt2 > /dev/full")
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: cannot write the answer: no space left")
    assert len(answer.stderr.splitlines()) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_a_file_without_permission(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "secret.yaml"
    file.write_text("title: x")
    file.chmod(0)
    assert "permission denied" in ask("kv", str(file)).err


def test_a_pipe_gets_plain_text_whatever_the_terminal_says() -> None:
    plain = shell("attncalc kv llama2-70b | cat", FORCE_COLOR="", TERM="xterm-256color").stdout
    assert "\x1b" not in plain
    assert shell("attncalc kv llama2-70b | cat", NO_COLOR="1", TERM="dumb").stdout == plain


def on_a_terminal(command: str, **env: str) -> str:
    """What a command prints to a terminal of its own."""
    import pty

    screen, terminal = pty.openpty()
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "TERM": "xterm-256color",
        "COLUMNS": "80",
        **env,
    }
    subprocess.run([sys.executable, "-m", "attncalc", *command.split()], stdout=terminal, env=environment, check=True)
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
    return printed.decode().replace("\r\n", "\n")


def test_a_terminal_gets_the_same_rows_with_emphasis(ask: Ask) -> None:
    environment = {key: "" for key in ("NO_COLOR",) if key in os.environ}
    screen = on_a_terminal("kv gemma3-27b", **environment)
    plain = ask("kv", "gemma3-27b").out
    import re

    assert re.sub(r"\x1b\[[0-9;]*m", "", screen).rstrip() == plain.rstrip()
    assert "\x1b[1m" in screen


def test_no_color_and_dumb_terminals_get_no_colour() -> None:
    assert "\x1b[3" not in on_a_terminal("kv gpt2 -c 4096", NO_COLOR="1")
    assert "\x1b" not in on_a_terminal("kv gpt2", TERM="dumb")
