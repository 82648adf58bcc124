"""A question is declared once, in its folder."""

import ast
import shlex
from pathlib import Path
from typing import Any

import pytest
from asking import Ask

import attncalc
from attncalc.cli.declared import command_of
from attncalc.options import options_of
from attncalc.questions import QUESTIONS, homes
from attncalc.questions.question import declared

FOLDER = Path(attncalc.__file__).parent / "questions"
DECLARED = {name: declared(name) for name in QUESTIONS}


def test_each_folder_is_a_line_of_the_list() -> None:
    assert {path.parent.name for path in FOLDER.glob("*/__init__.py")} == {*QUESTIONS}
    assert {name: question.name for name, question in DECLARED.items()} == {
        name: name for name in QUESTIONS
    }


def test_a_question_reads_pasted_commands_if_its_line_says_so() -> None:
    readers = {path.parent.name for path in FOLDER.glob("*/pasted.py")}
    assert readers == {name for name, listed in QUESTIONS.items() if listed.pasted}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_options_of_the_declaration_are_those_of_the_command(name: str) -> None:
    question = DECLARED[name]
    callback: Any = command_of(question).registered_commands[0].callback
    options = options_of(question.options).values() if question.options else ()
    assert {*callback.declared} == {option.parameter for option in options}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_example_of_the_declaration_is_answered(
    name: str, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, *words = shlex.split(DECLARED[name].example)
    assert program == "attncalc"
    if name == "verify":
        pytest.importorskip("torch")
        words = ["verify", "gpt2", "-c", "8", "--simulate", "cuda"]  # the example takes a minute
    monkeypatch.chdir(tmp_path)
    assert ask(*words).code == 0


ABOUT_ONE_MODEL = [name for name in QUESTIONS if DECLARED[name].command is None]


@pytest.mark.parametrize("name", ABOUT_ONE_MODEL)
def test_the_function_in_python_has_the_report_of_a_question_about_one_model(name: str) -> None:
    question = DECLARED[name]
    if not QUESTIONS[name].function:
        pytest.skip("it has no function in Python")
    answer = getattr(attncalc, QUESTIONS[name].function)("gpt2", tp="2")
    assert answer.report.command == name
    assert {*question.columns} <= {figure.name for figure in answer.report.figures}


def test_a_type_checker_sees_the_functions_of_the_list() -> None:
    """`attncalc/__init__.py` imports them for it alone."""
    tree = ast.parse(Path(attncalc.__file__).read_text(encoding="utf-8"))
    seen = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("questions.")
        for alias in node.names
        if alias.asname
    }
    assert seen == homes()


def test_a_question_on_the_page_has_a_place_of_its_own() -> None:
    places = [listed.on_page for listed in QUESTIONS.values() if listed.on_page]
    assert sorted(places) == [*range(1, len(places) + 1)]
    for name, listed in QUESTIONS.items():
        question = DECLARED[name]
        if listed.on_page and question.command is not None:
            assert question.on_page is not None


def test_different_dtypes_of_k_and_v_are_named_as_typed(ask: Ask) -> None:
    error = ask("kv", "gpt2", "-ctk", "q8_0", "-ctv", "q4_0").error
    assert error.startswith("error: K and V are in different dtypes: K in q8_0, V in q4_0\n")
    error = ask("kv", "gpt2", "-ctk", "q8_0", "-ctv", "q8_0", "--kv-dtype", "fp16").error
    assert error.startswith("error: --kv-dtype fp16 cannot be combined with q8_0 of both K and V\n")
