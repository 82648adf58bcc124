"""A question is declared once, in its folder."""

import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from asking import Ask

import attncalc
from attncalc.cli import app_of
from attncalc.questions import QUESTIONS
from attncalc.questions.question import Question

FOLDER = Path(attncalc.__file__).parent / "questions"
DECLARED: dict[str, Question] = {
    name: module.QUESTION
    for name in QUESTIONS
    if hasattr(module := import_module(f"attncalc.questions.{name}"), "QUESTION")
}


def test_each_folder_is_a_line_of_the_list() -> None:
    assert {path.parent.name for path in FOLDER.glob("*/__init__.py")} == {*QUESTIONS}


def test_a_question_reads_pasted_commands_if_its_line_says_so() -> None:
    readers = {path.parent.name for path in FOLDER.glob("*/pasted.py")}
    assert readers == {name for name, listed in QUESTIONS.items() if listed.pasted}


@pytest.mark.parametrize("name", DECLARED)
def test_the_declaration_is_the_command(name: str, ask: Ask) -> None:
    question = DECLARED[name]
    assert question.name == name
    callback: Any = app_of(name).registered_commands[0].callback
    assert callback.declared.keys() == question.options.__annotations__.keys()
    program, *words = shlex.split(question.example)
    assert program == "attncalc"
    assert ask(*words).code == 0


@pytest.mark.parametrize("name", DECLARED)
def test_the_function_in_python_takes_its_options(name: str) -> None:
    question = DECLARED[name]
    answer = getattr(attncalc, question.call)("gpt2", tp="2")
    assert answer.report.command == name
    assert {*question.columns} <= {figure.name for figure in answer.report.figures}


def test_different_dtypes_of_k_and_v_are_named_as_typed(ask: Ask) -> None:
    error = ask("kv", "gpt2", "-ctk", "q8_0", "-ctv", "q4_0").error
    assert error.startswith("error: K and V are in different dtypes: K in q8_0, V in q4_0\n")
    error = ask("kv", "gpt2", "-ctk", "q8_0", "-ctv", "q8_0", "--kv-dtype", "fp16").error
    assert error.startswith("error: --kv-dtype fp16 cannot be combined with q8_0 of both K and V\n")
