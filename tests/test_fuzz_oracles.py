"""Every oracle of the fuzzer can fail: an answer that is wrong on purpose is noticed."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from configs import SMALL_LLAMA
from fuzz import relations
from fuzz.case import Case, Result, run_case
from fuzz.oracles import check_json, check_result
from fuzz.reduce import reduced
from tables import each

from attncalc.questions.schemas import schema_name

WRONG_RESULTS = {
    "an unknown exit code": (("kv", "x"), Result(3, "", "", {})),
    "an error without a tip": (("kv", "x"), Result(2, "", "error: something is wrong\n", {})),
    "an error of two lines": (
        ("kv", "x"),
        Result(2, "", "error: something\nis wrong\n  tip: change it\n", {}),
    ),
    "an answer beside an error": (
        ("kv", "x"),
        Result(2, "1 B\n", "error: something\n  tip: change it\n", {}),
    ),
    "None in an error": (
        ("kv", "x"),
        Result(2, "", "error: the size is None today\n  tip: change it\n", {}),
    ),
    "a class in an error": (
        ("kv", "x"),
        Result(2, "", "error: <class 'int'> is wrong\n  tip: change it\n", {}),
    ),
    "no answer": (("kv", "x"), Result(0, "", "", {})),
    "a control character": (("kv", "x"), Result(0, "a\x1b[31mb\n", "", {})),
    "a mark of direction": (("kv", "x"), Result(0, "a\u202eb\n", "", {})),
    "an invisible character": (("kv", "x"), Result(0, "a\ufeffb\n", "", {})),
    "a file beside a screen": (("kv", "x", "-o", "y"), Result(0, "1 B\n", "", {"y": b"1 B"})),
    "words on standard error": (("kv", "x"), Result(0, "1 B\n", "hello\n", {})),
    "JSON without its keys": (
        ("kv", "x", "--json"),
        Result(0, json.dumps({"schema": schema_name("kv")}), "", {}),
    ),
}


def test_a_picture_of_characters_may_go_beside_a_file() -> None:
    check_result(
        Case(("compare", "x", "--plot", "-o", "y")), Result(0, "KV cache\n", "", {"y": b"1 B"})
    )


@each("wrong", WRONG_RESULTS)
def test_a_wrong_result_is_noticed(wrong: str) -> None:
    arguments, result = WRONG_RESULTS[wrong]
    with pytest.raises(AssertionError):
        check_result(Case(arguments), result)


def test_a_formula_that_does_not_give_its_value_is_noticed() -> None:
    out = run_case(Case(("kv", "gpt2", "--json"))).out
    with pytest.raises(AssertionError, match="kv_cache"):
        check_json(out.replace('"value": 75497472', '"value": 75497473'), "kv")


def test_a_file_that_the_command_line_does_not_name_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run() -> int:
        Path("beside").write_text("x")
        return 0

    monkeypatch.setattr("fuzz.case.run", run)
    with pytest.raises(AssertionError, match="beside"):
        run_case(Case(("kv", "gpt2")))


Change = Callable[[str], str]


def _values(**changed: int) -> Change:
    """Return a change of an answer in JSON: other values of its figures."""

    def change(out: str) -> str:
        data = json.loads(out)
        for figure in data["results"]:
            figure.update(value=changed.get(figure["name"], figure["value"]))
        return json.dumps(data)

    return change


def _keys(**changed: Any) -> Change:
    """Return a change of an answer in JSON: other values of its keys."""
    return lambda out: json.dumps({**json.loads(out), **changed})


FIT = ("fit", "gpt2", "--kv-memory", "1GiB")
# {relation: a command, a word of the other command that is compared with it, and what makes its
# answer wrong}.
WRONG_RELATIONS: dict[str, tuple[tuple[str, ...], str, Change]] = {
    "same_twice": (("kv", "gpt2"), "", lambda out: out + " "),
    "csv_equals_json": (("kv", "gpt2"), "csv", lambda out: out.replace("75497472", "75497473", 1)),
    "screen_equals_json": (("kv", "gpt2"), "", lambda out: out.replace("75,497,472", "75,497,473")),
    "explanation_equals_json": (
        ("kv", "gpt2"),
        "--explain",
        lambda out: out.replace("75,497,472", "75,497,473"),
    ),
    "markdown_equals_screen": (
        ("kv", "gpt2"),
        "markdown",
        lambda out: out.replace("72 KiB", "73 KiB"),
    ),
    "larger_batch": (("kv", "gpt2"), "2", _values(kv_cache=1)),
    "longer_context": (("memory", "gpt2"), "2048", _values(peak_flash=1)),
    "more_memory": (FIT, "1431655766", _values(max_batch=1)),
    "limits_hold": (FIT, "28", _keys(verdict="does_not_fit")),
    "fewest_gpus_hold": (("fit", "llama2-7b", "--gpu", "h100"), "1", _keys(verdict="does_not_fit")),
    "shards_sum_to_the_whole": (("params", "gpt2"), "--tp", _values(params_total=1)),
    "batch_is_linear": (("flops", "gpt2"), "2", _values(flops_total=1)),
    "added_preset_equals_its_config": (("kv", "model"), "added.yaml", _values(kv_cache=1)),
    "quotes_change_no_figure": (("kv", "model"), "", _values(kv_cache=1)),
    "sweep_equals_command": (("kv", "gpt2"), "sweep", lambda out: re.sub("75497472", "1", out)),
}


@each("relation", relations.RELATIONS)
def test_an_answer_that_contradicts_another_is_noticed(
    relation: relations.Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, word, change = WRONG_RELATIONS[relation.__name__]
    files = {"model/config.json": json.dumps(SMALL_LLAMA).encode()} if "model" in arguments else {}
    case = Case((*arguments, "--json"), files)
    result = run_case(case)
    data = json.loads(result.out)
    relation(case, result, data)

    def run_wrong(other: Case) -> Result:
        answer = run_case(other)
        is_other = (
            word in other.arguments
            if word
            else other.arguments[:-1] == arguments or other.arguments == arguments
        )
        # an error that should be one, as of a number in quotes, becomes an answer
        return answer._replace(code=0, out=change(answer.out or result.out)) if is_other else answer

    monkeypatch.setattr(relations, "run_case", run_wrong)
    monkeypatch.setattr(relations, "check_result", lambda *_: None)
    monkeypatch.setattr(relations, "check_json", lambda out, _: json.loads(out))
    with pytest.raises(AssertionError):
        relation(case, result, data)


def test_a_case_that_fails_is_made_smaller() -> None:
    config = {"a": [1, 2, {"x": 5, "y": 6}], "b": 3}
    case = Case(
        ("kv", "model", "--tp", "2", "--json"),
        {"model/config.json": json.dumps(config).encode(), "other": b""},
    )
    smallest = reduced(case, lambda smaller: b'"x"' in smaller.files.get("model/config.json", b""))
    assert smallest == Case(("kv",), {"model/config.json": b'{"a": [{"x": 5}]}'})
