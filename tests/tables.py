"""Check every row of a table in one test, which fails once and names each row that fails."""

import functools
import inspect
from collections.abc import Callable, Iterable
from reprlib import Repr
from typing import Any

import pytest

Check = Callable[..., None]
_LABEL = Repr()
_LABEL.maxstring = _LABEL.maxother = 80
_LONGEST_REASON = 800  # characters; the first failing row is also shown with its whole traceback


def each(
    names: str | tuple[str, ...], rows: Iterable[Any], ids: Iterable[object] = ()
) -> Callable[[Check], Check]:
    """Run a test for every row: as pytest.mark.parametrize, but as one case.

    A case costs milliseconds of fixtures and a line of a report; a row costs only its check.
    Each row has a monkeypatch and a tmp_path of its own. A row cannot skip, and an empty table
    fails.
    A generator of rows runs when the test does, not in every process that only collects it.
    """
    wanted = (names,) if isinstance(names, str) else names

    @functools.cache
    def read_table() -> list[tuple[str, dict[str, Any]]]:
        table = [_row(row, wanted) for row in rows]
        for number, name in enumerate(ids):
            table[number] = (str(name), table[number][1])
        return table

    def decorate(check: Check) -> Check:
        @functools.wraps(check)
        def test(**fixtures: Any) -> None:
            __tracebackhide__ = True
            table = read_table()
            assert table, "the table is empty"
            failed: dict[str, BaseException] = {}
            for number, (name, values) in enumerate(table):
                try:
                    _run(check, number, fixtures, values)
                except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
                    failed[f"row {number} ({name})"] = error
            if failed:
                reasons = [f"{row}: {_reason(error)}" for row, error in failed.items()]
                message = "\n".join([f"{len(failed)} of {len(table)} rows fail", *reasons])
                raise AssertionError(message) from next(iter(failed.values()))

        signature = inspect.signature(check)
        fixtures = [
            parameter for name, parameter in signature.parameters.items() if name not in wanted
        ]
        # pytest looks for no fixtures of a row
        vars(test)["__signature__"] = signature.replace(parameters=fixtures)
        return test

    return decorate


def _row(row: Any, wanted: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """Return a row's name and its values: the name is the id of pytest.param, or the values."""
    if isinstance(row, type(pytest.param())):
        assert not row.marks, "a row cannot have marks"
        return str(row.id), dict(zip(wanted, row.values, strict=True))
    values = dict(zip(wanted, (row,) if len(wanted) == 1 else row, strict=True))
    return ", ".join(f"{name}={_LABEL.repr(value)}" for name, value in values.items()), values


def _run(check: Check, number: int, fixtures: dict[str, Any], values: dict[str, Any]) -> None:
    """Check one row, with its own folder and patches, and without what earlier rows printed."""
    __tracebackhide__ = True
    own = dict(fixtures)
    if "tmp_path" in fixtures:
        own["tmp_path"] = fixtures["tmp_path"] / str(number)
        own["tmp_path"].mkdir()
    if "capsys" in fixtures:
        fixtures["capsys"].readouterr()
    with pytest.MonkeyPatch.context() as patch:
        if "monkeypatch" in fixtures:
            own["monkeypatch"] = patch
        check(**own, **values)


def _reason(error: BaseException) -> str:
    text = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}..."
