"""README and docs: every screen is what the program prints, every Python example runs, every link
resolves.

`python tests/test_docs.py` runs every command of the docs and writes its screen anew.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from asking import REPOSITORY
from tables import each

from attncalc.cli import run
from attncalc.config import preset_text, presets
from attncalc.config.data_files import presets_folder
from attncalc.options import options_of as declared_options
from attncalc.questions import QUESTIONS
from attncalc.questions.fit.options import FitOptions
from attncalc.show import progress

README = REPOSITORY / "README.md"
INDEX = REPOSITORY / "docs/README.md"
# The pages whose screens, Python examples, options, links and paths are tested.
PAGES = [README, *sorted((REPOSITORY / "docs").rglob("*.md"))]
LINKED = [*PAGES, REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "CHANGELOG.md"]
MOST_PAGES, MOST_WORDS = 20, 45_000  # of the docs with README

_SCREEN = re.compile(
    r"```console\n\$ (?P<command>attncalc[^\n|]*?)(?: \| head -n "
    r"(?P<lines>\d+))?\n(?P<text>.*?)```",
    re.DOTALL,
)
# Commands that list all presets or GPUs. A new one is one file, and the docs need not list it.
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


class Screen(NamedTuple):
    """A command on a page, with its output there."""

    page: str  # the page's path in this repository
    command: str  # the command, without `| head`
    # how many lines of the output the page shows (`| head -n 20`), or None for all
    lines: int | None
    text: str  # the output on the page


def screens() -> list[Screen]:
    return [
        Screen(
            str(page.relative_to(REPOSITORY)),
            m["command"],
            int(m["lines"]) if m["lines"] else None,
            m["text"],
        )
        for page in PAGES
        for m in _SCREEN.finditer(page.read_text())
    ]


def printed(command: str) -> str:
    """Run an `attncalc ...` command in this process and return its output followed by its
    errors.
    """
    return answered(command)[1]


def answered(command: str) -> tuple[int, str]:
    """Run an `attncalc ...` command in this process and return its exit code, and its output
    followed by its errors.
    """
    out, errors = io.StringIO(), io.StringIO()
    before, folder = sys.argv, Path.cwd()
    sys.argv = shlex.split(command)
    os.chdir(REPOSITORY)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = run()
    finally:
        sys.argv = before
        os.chdir(folder)
    return code, out.getvalue() + errors.getvalue()


def head(text: str, lines: int | None) -> str:
    return text if lines is None else "".join(text.splitlines(keepends=True)[:lines])


def without_numbers(screen: str) -> str:
    """Return a screen without what differs from machine to machine.

    That is numbers, units, threads, line breaks, and the check that `verify` names at the end of a
    section's row.
    """
    screen = re.sub(r"(?m)(  (ok|NO))  .*$", r"\1", screen)
    return " ".join(
        re.sub(r"-?[\d.,]+(e[+-]\d+)?(\+cpu| ?%)?|[KMG]iB|threads?|cached", "#", screen).split()
    )


def first_words(screen: str) -> set[str]:
    """Return the first word of each row of a list."""
    return set(re.findall(r"^  (\S+)", screen, re.MULTILINE))


def preset_names_in(screen: str) -> set[str]:
    """Return the names in a list of presets."""
    return {name for row in re.findall(r"^ {2,}(.*)", screen, re.MULTILINE) for name in row.split()}


# Commands that list what is built in, and which names their screens have.
_LISTS = {"attncalc presets": preset_names_in, "attncalc gpus": first_words}


def is_up_to_date(screen: Screen, output: str) -> bool:
    if screen.command.startswith("attncalc verify"):
        return without_numbers(head(output, screen.lines)) == without_numbers(screen.text)
    if screen.command in _LISTS and _LISTS[screen.command](screen.text) < _LISTS[screen.command](
        output
    ):
        return True  # a longer list may have other units, column widths and lines
    return head(output, screen.lines) == screen.text


@pytest.mark.parametrize(
    "screen", screens(), ids=[f"{screen.page}: {screen.command}" for screen in screens()]
)
def test_a_screen_is_what_the_program_prints(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 3600.0)  # a slow machine would print its steps
    if screen.command.startswith("attncalc verify"):
        pytest.importorskip("torch")
    output = printed(screen.command)
    if not is_up_to_date(screen, output):
        assert head(output, screen.lines) == screen.text, (
            "'python tests/test_docs.py' writes all screens anew"
        )


def test_every_console_block_is_tested() -> None:
    for page in PAGES:
        text = page.read_text()
        assert text.count("```console") == len(_SCREEN.findall(text)), page
        untested = [
            block
            for block in _FENCED.findall(text)
            if "$ attncalc" in block and not _SCREEN.match(block)
        ]
        assert not untested, f"{page}: {untested}"


def test_docs_stay_valid_when_a_preset_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new preset changes the list's heading and its lines."""
    lists = [screen for screen in screens() if screen.command == "attncalc presets"]
    assert lists
    models = tmp_path / "models"
    shutil.copytree(presets_folder() / "models", models)
    (models / "a-new-preset-with-a-very-long-name.yaml").write_text(preset_text("llama2-70b"))
    monkeypatch.setattr(presets, "_folder", lambda: models)
    # without its memory
    monkeypatch.setattr(
        "attncalc.questions.presets.command.all_presets", presets.presets.__wrapped__
    )
    output = printed("attncalc presets")
    assert "a-new-preset-with-a-very-long-name" in output
    assert preset_names_in(output) == {path.stem for path in models.glob("*.yaml")}
    for screen in lists:
        assert output != screen.text
        assert is_up_to_date(screen, output)
        assert not is_up_to_date(
            screen._replace(text=screen.text.replace("llama2-70b", "llama2-71b")), output
        )


# {pattern of a command in the text: why it is not run}.
_NOT_RUN = {
    r"\.\.\.|\[|(FILE|FOLDER|NAME|PRESET)\b": "a placeholder",
    r"[|<>{]|&&": "a shell's own syntax",
    r"attncalc verify\b": "needs torch and takes minutes; tests of verify run it",
    r"org/name|unsloth/": "a repository of the hub",
    r"\b(?:mine|my-model|compose|box)\.yaml|axolotl\.yml|ds_z3\.json": "a file of the reader's",
    r"path/to/|config\.json|\.gguf\b": "a file of the reader's",
    r" (train|server)\.log": "a file of the reader's",
    r"(?:-o|--output|--plot) \S+": "writes a file",
    r"attncalc \w+$": "the name of a command, which has no model here",
}


def commands_in_text(page: Path) -> list[str]:
    """Return the commands of a page that no screen shows: in backticks, and in blocks of a
    shell.
    """
    text = page.read_text()
    inline = re.findall(r"`(attncalc [^`]+)`", _FENCED.sub("", text))
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", "").splitlines()]
    commands = [*inline, *(line for line in lines if line.startswith("attncalc "))]
    return [" ".join(re.sub(r" #.*", "", command).split()) for command in commands]


@each("page", LINKED, ids=[str(page.relative_to(REPOSITORY)) for page in LINKED])
def test_commands_in_the_text_are_accepted(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 3600.0)
    for command in dict.fromkeys(commands_in_text(page)):
        if not any(re.search(pattern, command) for pattern in _NOT_RUN):
            typed = command.replace("COMMAND", "kv").replace("MODEL", "gpt2")
            code, output = answered(typed)
            assert code in (0, 1), f"{page.name}: {command}\n{output}"


def python_blocks(page: Path) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))


@pytest.mark.parametrize(
    "page", [page for page in PAGES if python_blocks(page)], ids=lambda page: page.name
)
def test_python_examples_run(page: Path) -> None:
    test = doctest.DocTestParser().get_doctest(python_blocks(page), {}, page.name, str(page), 0)
    assert test.examples
    assert not doctest.DocTestRunner().run(test).failed


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text()), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings
    }


def links(page: Path) -> Iterator[str]:
    text = re.sub(r"`[^`\n]*`", "", _FENCED.sub("", page.read_text()))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            yield target


@each("page", LINKED, ids=[str(page.relative_to(REPOSITORY)) for page in LINKED])
def test_relative_links_resolve(page: Path) -> None:
    for target in links(page):
        file, _, anchor = target.partition("#")
        to = (page.parent / file).resolve() if file else page
        assert to.exists(), target
        assert not anchor or anchor in anchors(to), target


@each("page", LINKED, ids=[str(page.relative_to(REPOSITORY)) for page in LINKED])
def test_paths_in_this_repository_exist(page: Path) -> None:
    """A path in backticks that begins with a folder of this repository; NAME and * match
    anything.
    """
    for path in re.findall(
        r"`((?:attncalc|tests|tools|presets|docs|\.ci|\.github)/[\w./*-]+)`", page.read_text()
    ):
        pattern = re.sub(r"\b[A-Z]+\b", "*", path.rstrip("/"))
        assert list(REPOSITORY.glob(pattern)), f"{page.name}: {path}"


def test_every_page_is_linked_from_the_index() -> None:
    linked = {(INDEX.parent / target.partition("#")[0]).resolve() for target in links(INDEX)}
    assert {page for page in PAGES if page not in (README, INDEX)} - linked == set()


def test_the_docs_stay_within_their_budget() -> None:
    """A page that grows costs its readers time: shorten another one, or this one."""
    words = {page.name: len(page.read_text().split()) for page in PAGES}
    assert len(PAGES) <= MOST_PAGES
    assert sum(words.values()) <= MOST_WORDS, words


# A row of the index: | question | `command` | [page](page.md#part), ... |
_ROW = re.compile(r"(?m)^\|[^|]*\| `(?P<command>\w+)` \| (?P<pages>[^|]*)\|$")


def pages_of(command: str) -> list[Path]:
    """Return the pages that the index names for a command."""
    targets = [
        target.partition("#")[0]
        for row in _ROW.finditer(INDEX.read_text())
        if row["command"] == command
        for target in re.findall(r"\]\(([^)]+)\)", row["pages"])
    ]
    return [INDEX.parent / target for target in targets]


@each("command", QUESTIONS)
def test_every_command_has_a_page_with_a_screen(command: str) -> None:
    """The tables of README and of the index have a row for it."""
    assert f"| [`{command}`](" in README.read_text()
    names = {str(page.relative_to(REPOSITORY)) for page in pages_of(command)}
    assert command in {screen.command.split()[1] for screen in screens() if screen.page in names}


def options_of(command: str) -> set[str]:
    asked = f"attncalc {command} --help all" if command else "attncalc --help"
    # a name that help wraps at its hyphen
    whole = re.sub(r"-\n +", "-", printed(asked))
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", whole)) - {"--help"}


def test_options_named_in_the_docs_exist() -> None:
    known = {option for command in ("", *QUESTIONS, "mcp") for option in options_of(command)} | {
        "--help"
    }
    known |= {
        option
        for command in ("add", "show", "families")
        for option in options_of(f"presets {command}")
    }
    known |= {name for option in declared_options(FitOptions).values() for name in option.also}
    for page in PAGES:
        for code in re.findall(r"`([^`\n]+)`", _FENCED.sub("", page.read_text())):
            if code.startswith(
                ("--", "attncalc ", "fit ", "kv ", "flops ", "memory ", "verify ", "compare ")
            ):
                named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", code))
                assert named <= known, f"{page.name}: {sorted(named - known)}"


@each("command", QUESTIONS)
def test_every_option_is_documented(command: str) -> None:
    """On some page: most commands share options, and those of an engine are on the page of fit's."""
    text = "".join(page.read_text() for page in PAGES)
    documented = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text))
    assert options_of(command) - documented == set()


def test_readme_is_short_and_starts_with_two_commands_of_which_ci_runs_the_second() -> None:
    text = README.read_text()
    assert len(text.splitlines()) - len(QUESTIONS) <= 249  # a new command has a line in the table
    first, second = re.findall(r"```sh\n(.*?)\n```", text, re.DOTALL)[:2]
    assert first == "pip install . && attncalc kv --preset llama2-70b"
    assert second == 'pip install -e ".[dev]" && pytest'
    install, test = second.split(" && ")
    assert re.search(
        rf"(?m)^{re.escape(install)}$(.*\n)*^{test}\b", (REPOSITORY / ".ci/run").read_text()
    )
    assert "bash .ci/run" in (REPOSITORY / ".github/workflows/ci.yml").read_text()


def renew(page: Path) -> None:
    """Write a page with every screen as it is printed now."""

    def screen(match: re.Match[str]) -> str:
        lines = int(match["lines"]) if match["lines"] else None
        output = printed(match["command"])
        if "verify" in match["command"] and is_up_to_date(
            Screen(page.name, match["command"], lines, match["text"]), output
        ):
            return match[0]  # only measured numbers changed
        pipe = f" | head -n {lines}" if lines else ""
        return f"```console\n$ {match['command']}{pipe}\n{head(output, lines)}```"

    before = page.read_text()
    after = _SCREEN.sub(screen, before)
    if after != before:
        page.write_text(after)
        sys.stderr.write(f"{page.relative_to(REPOSITORY)}\n")


if __name__ == "__main__":
    for page in PAGES:
        renew(page)
