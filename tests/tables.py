"""Check every row of a table in one test, which fails once and names each row that fails."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from reprlib import Repr
from typing import Any

import pytest

LABEL = Repr()
LABEL.maxstring = LABEL.maxother = 80
LONGEST_REASON = 800  # characters; the first failing row is also shown with its whole traceback


Check = Callable[..., None]


def each(names: str | tuple[str, ...], rows: Iterable[Any], ids: Iterable[str] = ()) -> Callable[[Check], Check]:
    """Run a test for every row: as pytest.mark.parametrize, but as one case.

    A case costs milliseconds of fixtures and a line of a report; a row costs only its check.
    Each row has a monkeypatch and a tmp_path of its own. A row cannot skip, and an empty table fails.
    """
    wanted = (names,) if isinstance(names, str) else names
    table = [_row(row, wanted) for row in rows]
    for number, name in enumerate(ids):
        table[number] = (table[number][0], name)

    def decorate(check: Check) -> Check:
        signature = inspect.signature(check)

        def run_row(number: int, values: Iterable[Any], fixtures: dict[str, Any]) -> None:
            own = dict(fixtures)
            if "tmp_path" in fixtures:
                own["tmp_path"] = fixtures["tmp_path"] / str(number)
                own["tmp_path"].mkdir()
            if "capsys" in fixtures:
                fixtures["capsys"].readouterr()
            with pytest.MonkeyPatch.context() as patch:
                if "monkeypatch" in fixtures:
                    own["monkeypatch"] = patch
                check(**own, **dict(zip(wanted, values, strict=True)))

        @functools.wraps(check)
        def test(**fixtures: Any) -> None:
            assert table, "the table is empty"
            failed: dict[str, BaseException] = {}
            for number, (values, name) in enumerate(table):
                try:
                    run_row(number, values, fixtures)
                except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
                    failed[f"row {number} ({name})"] = error
            if failed:
                reasons = [f"{row}: {_reason(error)}" for row, error in failed.items()]
                message = "\n".join([f"{len(failed)} of {len(table)} rows fail", *reasons])
                raise AssertionError(message) from next(iter(failed.values()))

        remaining = [value for name, value in signature.parameters.items() if name not in wanted]
        vars(test)["__signature__"] = signature.replace(parameters=remaining)
        return test

    return decorate


def _row(row: Any, wanted: tuple[str, ...]) -> tuple[Iterable[Any], str]:
    """Return a row's values and its name: the id of pytest.param, or the values."""
    if isinstance(row, type(pytest.param())):
        assert not row.marks, "a row cannot have marks"
        return row.values, str(row.id or LABEL.repr(row.values))
    values = (row,) if len(wanted) == 1 else tuple(row)
    return values, ", ".join(f"{name}={LABEL.repr(value)}" for name, value in zip(wanted, values, strict=False))


def _reason(error: BaseException) -> str:
    text = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."
