"""Rows of a sweep in an output format, written as they are computed. A new format is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple

from ...errors import AttncalcError, did_you_mean
from ...units import truncate

Row = tuple[Any, ...]


class Rows(NamedTuple):
    """What a format writes.

    Attributes:
        names: The names of the columns.
        units: Their units, '' for none; None for a column of text.
        rows: The rows, which are computed while they are read.
        facts: Further keys of a JSON document.
    """

    names: Sequence[str]
    units: Sequence[str | None]
    rows: Iterable[Row]
    facts: dict[str, Any]


class RowFormat(NamedTuple):
    """A format of rows.

    Attributes:
        name: What `--format` calls it.
        suffixes: Suffixes of files in this format.
        module: The module in this package with `write(rows, file)` and `escape(text)`, imported when it is used.
        is_binary: Whether the file has bytes instead of text.
    """

    name: str
    suffixes: tuple[str, ...]
    module: str
    is_binary: bool = False

    def write(self, rows: Rows, file: IO[Any]) -> None:
        """Write the rows to a file, one after the other."""
        import_module(f".{self.module}", __name__).write(rows, file)

    @property
    def escape(self) -> Callable[[str], str]:
        """What a text becomes in a cell: a model's path may have characters that the format reads otherwise."""
        function: Callable[[str], str] = import_module(f".{self.module}", __name__).escape
        return function


ROW_FORMATS = {
    known.name: known
    for known in (
        RowFormat("csv", (".csv",), "csv"),
        RowFormat("jsonl", (".jsonl", ".ndjson"), "jsonl"),
        RowFormat("json", (".json",), "json"),
        RowFormat("tsv", (".tsv",), "tsv"),
        RowFormat("markdown", (".md", ".markdown"), "markdown"),
        RowFormat("html", (".html", ".htm"), "html"),
        RowFormat("latex", (".tex",), "latex"),
        RowFormat("parquet", (".parquet",), "parquet", is_binary=True),
    )
}
TABLE = "table"
"""The format of a terminal: a grid or a table on the screen, which needs all rows at once."""
_SCREEN_SUFFIXES = (".txt", "")


def choose_row_format(name: str | None, output: Path | None, *, on_terminal: bool) -> RowFormat | None:
    """Return the format of that name, or of the suffix of `output`; None for the table of a screen.

    The default is the table on a terminal, and CSV in a pipe. Raises AttncalcError if there is no such format.
    """
    if name == TABLE:
        return None
    if name is not None:
        if name not in ROW_FORMATS:
            known = (TABLE, *ROW_FORMATS)
            hint = did_you_mean(name, known)
            raise AttncalcError(f"unknown format '{truncate(name)}'", f"{hint}known formats: {', '.join(known)}")
        return ROW_FORMATS[name]
    if output is None or str(output) == "-":
        return None if on_terminal else ROW_FORMATS["csv"]
    suffix = output.suffix.lower()
    if suffix in _SCREEN_SUFFIXES:
        return None
    for known_format in ROW_FORMATS.values():
        if suffix in known_format.suffixes:
            return known_format
    suffixes = [f"{form.suffixes[0]} ({form.name})" for form in ROW_FORMATS.values()]
    raise AttncalcError(
        f"no output format has the suffix '{truncate(output.suffix)}'",
        f"use {', '.join(suffixes)}; or name the format with --format",
    )
