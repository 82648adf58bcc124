"""`attncalc mcp`: the questions as tools of a coding agent.

The tests of the server start it as agents do, and call it with the client of the SDK.
"""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from asking import REPOSITORY, Ask, of_questions
from jsonschema import Draft202012Validator
from tables import each

from attncalc.errors import AttncalcError
from attncalc.mcp.calls import check_paths
from attncalc.mcp.texts import skill
from attncalc.mcp.tools import tools, words_of
from attncalc.questions import QUESTIONS

# (tool, arguments, the words of the command line that asks the same).
ASKED: list[tuple[str, dict[str, Any], str]] = of_questions(
    [
        ("kv", {"model": "llama2-70b", "batch": 8, "context": 4096}, "llama2-70b -b 8 -c 4096"),
        ("kv", {"model": "gpt2", "context": "1K,2K"}, "gpt2 -c 1K,2K"),
        ("params", {"model": "gpt2"}, "gpt2"),
        ("flops", {"model": "gpt2", "context": "1K"}, "gpt2 -c 1K"),
        ("memory", {"model": "gpt2"}, "gpt2"),
        ("compare", {"model": ["gpt2", "llama3-8b"]}, "gpt2 llama3-8b"),
        ("fit", {"model": "qwen3-8b", "gpu": "h100"}, "qwen3-8b --gpu h100"),
        ("fit", {"model": "llama2-70b", "gpu": "t4"}, "llama2-70b --gpu t4"),
        ("fit", {"model": "qwen3-8b"}, "qwen3-8b"),
        (
            "fit",
            {"command": "vllm serve Qwen/Qwen3-8B \\\n  -tp 2", "gpu": "h100"},
            "--gpu h100 -- vllm serve Qwen/Qwen3-8B -tp 2",
        ),
        (
            "train",
            {"command": "torchrun train.py --model_name_or_path Qwen/Qwen3-8B", "gpu": "h100"},
            "--gpu h100 -- torchrun train.py --model_name_or_path Qwen/Qwen3-8B",
        ),
        ("train", {"model": "gpt2", "gpu": "h100"}, "gpt2 --gpu h100"),
        (
            "plan",
            {"model": "qwen3-8b", "users": 20, "gpu": "h100"},
            "qwen3-8b --users 20 --gpu h100",
        ),
        ("sweep", {"model": "gpt2", "context": "1K,2K"}, "gpt2 -c 1K,2K"),
        ("gpus", {"gpu": "h100"}, "h100"),
        ("presets", {}, ""),
        ("explain", {"term": "gqa"}, "gqa"),
    ]
)


def words(tool: str, arguments: dict[str, Any]) -> list[str]:
    return words_of(tools()[tool], arguments)


# The tools


def test_every_question_but_two_is_a_tool() -> None:
    """`verify` needs a device and minutes, and `schema` is about attncalc itself."""
    assert [*tools()] == [name for name in QUESTIONS if name not in ("verify", "schema")]


@each("name", [*tools()])
def test_a_tool_has_valid_schemas(name: str) -> None:
    tool = tools()[name]
    for schema in (tool.arguments, tool.answer):
        Draft202012Validator.check_schema(schema)
        # MCP's inspector refuses it
        assert '"enum": []' not in json.dumps(schema)
    assert tool.arguments["additionalProperties"] is False
    for argument in tool.arguments["properties"].values():
        assert argument["description"]


def test_a_tool_has_no_option_of_the_output() -> None:
    for tool in tools().values():
        named = tool.arguments["properties"].keys()
        assert named.isdisjoint({"output", "force", "format", "json", "quiet", "get", "plot"})


def test_common_arguments_are_before_rare_ones() -> None:
    names = [*tools()["fit"].arguments["properties"]]
    assert names.index("gpu") < names.index("mamba_ssm_cache_dtype")


@each(("tool", "arguments", "line"), ASKED)
def test_arguments_are_the_words_of_a_command(
    ask: Ask, tool: str, arguments: dict[str, Any], line: str
) -> None:
    asked = words(tool, arguments)
    found = ask(tool, "--json", *asked[1:]).document
    assert found == ask(tool, "--json", *shlex.split(line)).document


@each(
    ("arguments", "message"),
    [
        ({"modell": "gpt2"}, "kv has no argument 'modell'"),
        ({"model": {"a": 1}}, "model is a text or a number"),
        ({"model": "-b"}, "'-b' is no name"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is true or false"),
        ({"batch": True}, "batch is a text or a number"),
        ({"model": "x" * 200_000}, "model has 200,000 characters"),
    ],
)
def test_a_wrong_argument_is_an_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(AttncalcError) as raised:
        words("kv", arguments)
    assert message in raised.value.message
    assert raised.value.tip


def test_a_pasted_command_may_be_in_model() -> None:
    line = "vllm serve Qwen/Qwen3-8B -tp 2"
    assert words("fit", {"model": line, "gpu": "h100"}) == ["fit", "--gpu=h100", "--", line]
    named = words("fit", {"model": "qwen3-8b", "command": line})
    assert named == ["fit", "qwen3-8b", "--", line]


def test_options_of_one_engine_say_so() -> None:
    described = tools()["fit"].arguments["properties"]["n_cpu_moe"]["description"]
    assert described.endswith("Only llama.cpp.")


def test_a_flag_is_given_or_left_out() -> None:
    assert "--no-tie-word-embeddings" in words("kv", {"tie_word_embeddings": False})
    assert words("kv", {"model": "gpt2", "explain": False}) == ["kv", "gpt2"]


# Files


@each("word", ["/etc/passwd", "../secret.json", "--gpu=h100,../secret.json", "~", "-"])
def test_a_file_outside_the_folder_is_an_error(word: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret.json").write_text("{}")
    with pytest.raises(AttncalcError):
        check_paths(["kv", word], root)


def test_quotation_marks_in_a_command_hide_no_file(tmp_path: Path) -> None:
    with pytest.raises(AttncalcError, match="outside the folder"):
        check_paths(["fit", "--", 'vllm serve "/etc/pass"wd'], tmp_path)


def test_a_link_out_of_the_folder_is_an_error(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    with pytest.raises(AttncalcError, match="outside the folder"):
        check_paths(["kv", "link"], root)


def test_files_in_the_folder_and_names_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    check_paths(["kv", "config.json", "org/name", "--batch=8", str(tmp_path / "none")], tmp_path)


# The server


def served(talk: Callable[[Any], Awaitable[Any]], *options: str, folder: Path = REPOSITORY) -> Any:
    """Return what `talk` returns of a client of a server that is started for it."""
    pytest.importorskip(
        "mcp", reason="the SDK of MCP is not installed: pip install 'attncalc[mcp]'"
    )
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "attncalc", "mcp", *options],
        env=environment,
        cwd=str(folder),
    )

    async def run() -> Any:
        with open(os.devnull, "w") as errors:
            async with Client(stdio_client(server, errlog=errors)) as client:
                return await talk(client)

    return asyncio.run(run())


def test_each_tool_answers_as_its_command_does(ask: Ask) -> None:
    """The client compares each answer with the schema that the tool has for it."""

    async def talk(client: Any) -> list[Any]:
        await client.list_tools()
        return [await client.call_tool(tool, arguments) for tool, arguments, _ in ASKED]

    for (tool, _, line), found in zip(ASKED, served(talk), strict=True):
        expected = ask(tool, "--json", *shlex.split(line)).document
        assert not found.is_error
        assert json.dumps(found.structured_content) == json.dumps(expected)
        assert f"\n$ attncalc {tool}" in found.content[0].text


def test_a_verdict_is_an_answer_and_a_mistake_is_an_error() -> None:
    async def talk(client: Any) -> Any:
        refused = await client.call_tool("fit", {"model": "llama2-70b", "gpu": "t4"})
        mistyped = await client.call_tool("kv", {"model": "lama2-70b"})
        unknown = await client.call_tool("kv", {"modell": "gpt2"})
        outside = await client.call_tool("kv", {"model": "/etc/passwd"})
        return refused, mistyped, unknown, outside

    refused, *errors = served(talk)
    assert refused.structured_content["verdict"] == "does_not_fit"
    assert [error.is_error for error in errors] == [True, True, True]
    texts = [error.content[0].text for error in errors]
    assert "did you mean 'llama2-70b'" in texts[0]
    assert "did you mean 'model'" in texts[1]
    assert "outside the folder of the server" in texts[2]


def test_calls_at_once_do_not_mix() -> None:
    async def talk(client: Any) -> list[Any]:
        calls = [client.call_tool("kv", {"model": "gpt2", "batch": n}) for n in range(1, 11)]
        return await asyncio.gather(*calls)

    caches = [one.structured_content["values"]["kv_cache"] for one in served(talk)]
    assert caches == [n * caches[0] for n in range(1, 11)]


def test_a_call_that_is_cancelled_ends_its_process() -> None:
    async def talk(client: Any) -> Any:
        slow = {"model": ["deepseek-v3", "kimi-k2"], "users": 500, "gpu": "all"}
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.call_tool("plan", slow), 1)
        return await client.call_tool("explain", {"term": "gqa"})

    assert not served(talk).is_error


def test_resources_and_the_prompt_are_read() -> None:
    async def talk(client: Any) -> Any:
        listed = await client.list_resources()
        gpus = await client.read_resource("attncalc://gpus")
        usage = await client.read_resource("attncalc://skill")
        prompt = await client.get_prompt("size-a-deployment", {"model": "qwen3-8b"})
        return listed, gpus, usage, prompt, client.instructions

    listed, gpus, usage, prompt, instructions = served(talk)
    assert {"presets", "gpus", "glossary", "help/fit"} <= {one.name for one in listed.resources}
    assert "h100-80gb" in gpus.contents[0].text
    assert usage.contents[0].text == skill()
    assert "deployment of qwen3-8b" in prompt.messages[0].content.text
    assert "Never compute such a figure yourself" in instructions


def test_the_server_ends_with_its_client() -> None:
    pytest.importorskip("mcp", reason="the SDK of MCP is not installed")
    process = subprocess.Popen(
        [sys.executable, "-m", "attncalc", "mcp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
    )
    _, _ = process.communicate(b"this is no message\n", timeout=60)
    assert process.returncode == 0


def test_without_the_sdk_the_command_that_installs_it_is_named(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attncalc.mcp.command.find_spec", lambda name: None)
    answer = ask("mcp")
    assert answer.code == 3
    assert "pip install 'attncalc[mcp]'" in answer.err


def test_no_other_command_imports_the_sdk() -> None:
    code = "import sys; from attncalc.cli import run; run(); assert 'mcp' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, "kv", "gpt2"], check=True, cwd=REPOSITORY)


# SKILL.md


def commands_of_skill() -> list[str]:
    """Return the commands of SKILL.md, without their comments."""
    lines = re.findall(r"^attncalc .*$", skill(), re.MULTILINE)
    return [line.partition("#")[0].strip() for line in lines]


def test_the_commands_of_the_skill_have_an_answer(ask: Ask) -> None:
    commands = commands_of_skill()
    assert len(commands) >= 10
    for command in commands:
        answer = ask(*shlex.split(command)[1:])
        assert answer.code in (0, 1), f"{command}\n{answer.err}"


def test_the_skill_prints_what_it_says(ask: Ask) -> None:
    found = re.search(r"^(attncalc .* --get kv_cache) +# (\d+)$", skill(), re.MULTILINE)
    assert found
    assert ask(*shlex.split(found[1])[1:]).out.strip() == found[2]


def test_the_skill_has_sixty_lines_at_most() -> None:
    assert len(skill().splitlines()) <= 60
