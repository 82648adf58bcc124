"""A question is declared once: the command line, the page's form and the agents' tool follow."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated

import pytest
from asking import Ask

from attncalc.mcp import tools as of_agents
from attncalc.mcp.tools import tools, words_of
from attncalc.options import COUNT, Count
from attncalc.questions import QUESTIONS, Listed
from attncalc.questions.kv.options import read_kv
from attncalc.questions.kv.report import kv_report
from attncalc.questions.options import ShardedModelOptions, SizeOptions
from attncalc.questions.question import Question

sys.path.append(str(Path(__file__).parent.parent / "tools"))
build_page = import_module("build_page")


class ToyOptions(ShardedModelOptions, SizeOptions, total=False):
    """The options of a question that is only here."""

    toy_size: Annotated[Count | None, COUNT, "The size of a toy. Default: 1."]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Declare a question, as a folder and a line of the list do."""
    module = ModuleType("attncalc.questions.toy")
    module.QUESTION = Question(  # type: ignore[attr-defined]
        "toy",
        options=ToyOptions,
        read=read_kv,
        report=kv_report,
        example="attncalc toy gpt2 --toy-size 3",
    )
    monkeypatch.setitem(sys.modules, "attncalc.questions.toy", module)
    monkeypatch.setitem(QUESTIONS, "toy", Listed("A toy.", on_page=99))
    monkeypatch.setattr(of_agents, "_answer", lambda name: {"type": "object"})
    tools.cache_clear()
    yield
    tools.cache_clear()


@pytest.mark.usefixtures("toy")
def test_a_declared_question_is_a_command(ask: Ask) -> None:
    assert "--toy-size N" in ask("toy", "--help", "all").out
    assert ask("toy", "gpt2", "--toy-size", "3").code == 0
    assert "A toy." in ask("--help").out


@pytest.mark.usefixtures("toy")
def test_a_declared_question_is_on_the_form_of_the_page() -> None:
    command = build_page.form()["commands"][-1]
    options = [option["name"] for group in command["groups"] for option in group["options"]]
    assert (command["name"], command["help"]) == ("toy", "A toy.")
    assert "toy-size" in options


@pytest.mark.usefixtures("toy")
def test_a_declared_question_is_a_tool_of_agents() -> None:
    tool = tools()["toy"]
    described = tool.arguments["properties"]["toy_size"]["description"]
    assert described == "N: The size of a toy. Default: 1."
    assert words_of(tool, {"model": "gpt2", "toy_size": 3}) == ["toy", "gpt2", "--toy-size=3"]
