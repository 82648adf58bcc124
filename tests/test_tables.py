"""A table in one test: every row is checked, and every row that fails is named."""

import sys
from pathlib import Path

import pytest
from tables import each


def test_all_failing_rows_are_named_and_the_others_are_not() -> None:
    @each(("number", "limit"), [(1, 2), pytest.param(3, 2, id="three"), (4, 2)])
    def check(number: int, limit: int) -> None:
        if number == 4:
            raise KeyError(number)
        assert number < limit, "too large"

    with pytest.raises(AssertionError) as error:
        check()
    first, three, four = str(error.value).split("\nrow")
    assert first == "2 of 3 rows fail"
    assert three.startswith(" 1 (three): too large")
    assert four == " 2 (number=4, limit=2): KeyError: 4"


def test_a_row_that_skips_or_misses_an_error_fails() -> None:
    @each("ends", [lambda: pytest.skip("no"), lambda: pytest.fail("no error")])
    def check(ends: object) -> None:
        assert callable(ends)
        ends()

    with pytest.raises(AssertionError, match="2 of 2 rows fail"):
        check()


def test_an_empty_table_fails() -> None:
    @each("number", [])
    def check(number: int) -> None:
        raise AssertionError(number)

    with pytest.raises(AssertionError, match="the table is empty"):
        check()


@each("column", "ab")
@each("row", (1, 2))
def test_rows_have_their_own_folder_and_patches(
    column: str,
    row: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    assert not hasattr(pytest, "of_this_row")
    monkeypatch.setattr(pytest, "of_this_row", row, raising=False)
    assert capsys.readouterr().out == ""
    sys.stdout.write(column)
