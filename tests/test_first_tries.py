"""What people type first, with the words of other tools, gets an answer or the right pointer."""

from __future__ import annotations

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


@pytest.mark.parametrize("who", TRIES)
def test_first_tries_work(who: str, ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    failed = []
    for one in TRIES[who]:
        code, text = answer_of(ask, one, monkeypatch)
        missing = [words for words in one["says"] if words not in text]
        if code != one.get("code", 0) or missing:
            failed.append((one.get("run") or one["python"], code, missing, text[:300]))
    assert failed == []


def test_there_are_tries_of_many_kinds_of_user() -> None:
    assert len(TRIES) == 14
    assert sum(map(len, TRIES.values())) == 300
