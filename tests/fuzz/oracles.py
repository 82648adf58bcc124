"""What must hold for every answer of attncalc, whatever the input was."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from evaluate import evaluate
from schemas import check_answer

from attncalc.config.schema import MAX_MISTAKES

from .case import Case, Result

# What a terminal is told about colours; nothing else may control it.
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# How lines about a reading of the words begin.
READING = ("note: ", "read as: ", "not read: ", "assumed: ")
# What only the code of attncalc should see.
INTERNAL = re.compile(
    r"<class |<function | object at 0x|Traceback|\bAttncalcError\b|\bdataclass\b|\bNoneType\b"
)
# Characters of an error and its tip. The longest lists the supported model types.
LONGEST_ERROR = 1500


def check_result(case: Case, result: Result) -> None:
    """Raise AssertionError if the answer of `case` cannot be right."""
    expected = (0, 1, 2, 3) if case.arguments[:1] == ("verify",) else (0, 1, 2)
    assert result.code in expected, result.code
    _check_characters(result, case)
    if result.code >= 2:
        _check_error(result, with_rows=case.arguments[:1] == ("sweep",))
    else:
        _check_answer(case, result)


def _check_characters(result: Result, case: Case) -> None:
    for text in (
        result.out,
        result.err,
        *(content.decode("utf-8") for content in result.written.values()),
    ):
        plain = COLOUR.sub("", text) if case.terminal else text
        allowed = {"\n", "\t"} if "tsv" in case.arguments else {"\n"}
        if not plain.replace("\n", "").isprintable():
            assert all(_is_visible(char) for char in set(plain) - allowed), repr(plain)


def _is_visible(char: str) -> bool:
    """Whether a character is neither a control character, nor invisible, nor a line's end, nor half
    of another.
    """
    return char.isprintable() or unicodedata.category(char) in ("Zs", "Co", "Cn")


def _check_error(result: Result, *, with_rows: bool) -> None:
    """Each mistake is one line and a tip, there is no answer beside it, and nothing was written.

    Args:
        result: What the command answered.
        with_rows: Whether it is `sweep`, which may print rows of errors too.
    """
    if not with_rows:
        assert not result.out, result.out
        assert not result.written, result.written
    whole = result.err.replace("\n    ", " ")  # a terminal has lines of its width
    lines = [line for line in whole.splitlines() if not line.startswith(("warning", *READING))]
    mistakes = list(zip(lines[::2], lines[1::2], strict=False))
    assert 0 < len(mistakes) <= MAX_MISTAKES, result.err
    assert [line[:7] for line in lines] == ["error: ", "  tip: "] * len(mistakes), result.err
    assert all(len(error) + len(tip) < LONGEST_ERROR for error, tip in mistakes), result.err
    assert all(len(line) > 9 for line in lines), result.err
    assert "None" not in lines[0].split(), result.err
    assert not INTERNAL.search(result.err), result.err


def _check_answer(case: Case, result: Result) -> None:
    """An answer is readable; in JSON, each formula gives its value."""
    beside = ("warning: ", "failed: ", *READING)
    lines = re.sub(r"\n +", " ", result.err).splitlines()  # a terminal's are wrapped
    assert all(line.startswith(beside) for line in lines), result.err
    assert result.out or result.written or "--quiet" in case.arguments, "nothing was printed"
    if "--plot" not in case.arguments:  # which draws the answer beside it
        assert not (result.out and result.written), "the answer was printed and written"
    assert not INTERNAL.search(result.out), INTERNAL.search(result.out)
    if "--json" in case.arguments and not {"--plot", "--quiet"} & {*case.arguments}:
        check_json(result.out or next(iter(result.written.values())).decode(), case.arguments[0])


def check_json(text: str, command: str) -> dict[str, Any]:
    """Return the data of a JSON answer. Raises AssertionError if it breaks its schema, or a formula
    is wrong.
    """
    data = check_answer(text)
    assert re.fullmatch(
        rf"attncalc\.({command}|families|diagnosis|vram|what_fits)/\d+", data["schema"]
    ), data["schema"]
    for figure in figures(data):
        _check_figure(figure)
    return data


def _check_figure(figure: dict[str, Any]) -> None:
    value = figure["value"]
    if value is None:
        assert not figure["formula"], figure
        return
    assert type(value) in (int, float), figure
    if figure["unit"]:
        assert value >= 0 or figure["name"] == "weights_on_host", figure  # which a sum subtracts
    if figure["formula"]:
        assert float(evaluate(figure["formula"], figure["symbols"])) == float(value), figure
        if not figure["formula"].startswith(("least", "most")):
            assert float(evaluate(figure["substituted"])) == float(value), figure


def figures(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the results of a JSON answer, those of its layers too."""
    for part in (data, *data.get("layers", ())):
        yield from (figure for figure in part.get("results", ()) if "formula" in figure)
