"""What people type first, with the words of other tools, gets an answer or the right pointer."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from asking import Ask

import attncalc
from attncalc.errors import AttncalcError

TRIES: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).parent / "data/first-tries.yaml").read_text(encoding="utf-8")
)


def answer_of(ask: Ask, one: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Return the exit code and all that is printed; in Python an error is code 2."""
    if "python" not in one:
        words = shlex.split(one["run"])
        monkeypatch.setattr("sys.argv", ["attncalc", *words])
        answer = ask(*words)
        return answer.code, answer.out + answer.err
    try:
        return 0, str(eval(one["python"], {"attncalc": attncalc}))
    except (AttncalcError, AttributeError) as error:
        return 2, str(error)


_PLACEHOLDERS = {"MODEL": "llama3.1-8b", "GPU": "h100", "FILE": "llama3.1-8b"}


def failing_tips(text: str, ask: Ask) -> list[str]:
    """Return the commands in the tips of an answer that do not run, and why."""
    tips = "\n".join(line for line in text.splitlines() if line.startswith("  tip: "))
    found = re.findall(
        r"'attncalc ((?: '[^'\n]*'(?=[ '])|[^'\n])*)'|: attncalc ([^;\n]*)", tips, re.MULTILINE
    )
    failing = []
    for either in found:
        command = "".join(either).rstrip("?")
        answer = ask(*[_PLACEHOLDERS.get(word, word) for word in shlex.split(command)])
        if answer.code == 2:
            failing.append(f"{command}: {answer.err.splitlines()[0]}")
    return failing


@pytest.mark.parametrize("who", TRIES)
def test_first_tries_work_and_every_tip_names_a_command_that_runs(
    who: str, ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    failed = []
    for one in TRIES[who]:
        code, text = answer_of(ask, one, monkeypatch)
        missing = [words for words in one["says"] if words not in text]
        tips = failing_tips(text, ask)
        if code != one.get("code", 0) or missing or tips:
            failed.append((one.get("run") or one["python"], code, missing, tips, text[:300]))
    assert not failed, failed


def test_a_tip_with_a_command_that_does_not_run_is_noticed(ask: Ask) -> None:
    tips = (
        "  tip: did you mean 'attncalc kv llama3.1-8b --tp 3'? for example: attncalc fit MODEL "
        "--gpu GPU"
    )
    assert failing_tips(tips, ask) == [
        "kv llama3.1-8b --tp 3: error: --tp 3 does not divide 32 query heads"
    ]


def test_there_are_tries_of_many_kinds_of_user() -> None:
    assert len(TRIES) >= 16
    assert sum(map(len, TRIES.values())) >= 230
