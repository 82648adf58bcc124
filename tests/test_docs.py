"""README: its screens are what the program prints, its Python runs, its commands are CI's."""

from __future__ import annotations

import doctest
import re
import shlex
import sys
from pathlib import Path

import pytest

from attncalc.cli import COMMANDS, run

REPOSITORY = Path(__file__).parent.parent
README = (REPOSITORY / "README.md").read_text()
SCREENS = re.findall(r"```console\n\$ (attncalc [^\n]*)\n(.*?)```", README, re.DOTALL)
"""To renew them all: python tests/test_readme.py"""


def printed(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    run()
    captured = capsys.readouterr()
    return captured.out + captured.err


@pytest.mark.parametrize(("command", "screen"), SCREENS, ids=[command for command, _ in SCREENS])
def test_a_screen_is_what_the_program_prints(
    command: str, screen: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = printed(command, capsys, monkeypatch)
    if command.startswith("attncalc verify"):  # what is measured differs from machine to machine
        assert without_numbers(found) == without_numbers(screen)
    elif command == "attncalc presets":  # a new preset is one file: the list in README may lack it
        assert set(screen.split()) - {"21"} <= set(found.split())
    else:
        assert found == screen


def without_numbers(screen: str) -> str:
    """The words of a screen, with its lines and numbers alike."""
    return " ".join(re.sub(r"-?[\d.,]+(e[+-]\d+)?(\+cpu|%)?|[KMG]iB|threads?|cached", "#", screen).split())


def test_every_command_has_a_screen() -> None:
    shown = {command.split()[1] for command, _ in SCREENS}
    assert shown >= set(COMMANDS)


def test_readme_starts_with_the_two_commands_and_ci_runs_the_second() -> None:
    first, second = re.findall(r"```sh\n(.*?)\n```", README, re.DOTALL)[:2]
    assert first == "pip install . && attncalc kv --preset llama2-70b"
    assert second == 'pip install -e ".[dev]" && pytest'
    assert second in (REPOSITORY / ".ci/run").read_text()


def test_its_python_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert blocks
    for block in blocks:
        test = doctest.DocTestParser().get_doctest(block, {}, "README", "README.md", 0)
        assert test.examples
        assert not doctest.DocTestRunner().run(test).failed


def test_every_option_is_in_the_readme_or_in_help(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option that README names is one that a command has."""
    helps = "".join(printed(f"attncalc {command} -h", capsys, monkeypatch) for command in COMMANDS)
    for option in set(re.findall(r"`(--[a-z-]+)", README)):
        assert option in helps, option


def renewed() -> str:
    """README with every screen as it is printed now."""
    import contextlib
    import io

    def screen(match: re.Match[str]) -> str:
        out = io.StringIO()
        sys.argv = shlex.split(match[1])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            run()
        return f"```console\n$ {match[1]}\n{out.getvalue()}```"

    return re.sub(r"```console\n\$ (attncalc [^\n]*)\n(.*?)```", screen, README, flags=re.DOTALL)


if __name__ == "__main__":
    (REPOSITORY / "README.md").write_text(renewed())
