"""The output formats. A new format is one file, and one line here."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import IO, TYPE_CHECKING, Any, TypeGuard

from ..errors import AttncalcError, BadValueError, did_you_mean
from ..records import NamedTuple
from ..units import truncate

if TYPE_CHECKING:
    from .report import Report

Row = tuple[Any, ...]


class Rows(NamedTuple):
    names: Sequence[str]  # the names of the columns
    units: Sequence[str | None]  # their units, '' for none; None for a column of text
    rows: Iterable[Row]  # the rows, which are computed while they are read
    facts: dict[str, Any]  # further keys of a JSON document
    # {name of a column or a model: its title in a paper}
    titles: Mapping[str, str] = MappingProxyType({})


class Format(NamedTuple):
    name: str  # what `--format` calls it
    # suffixes of files that are written in this format; "" is a file without a suffix
    suffixes: tuple[str, ...]
    # The module in this package, imported when it is used. For a format of FORMATS it has
    # `render(report, *, explain)`, and for one of ROW_FORMATS `write(rows, file)` and
    # `escape(text)`.
    module: str
    # Whether tabs separate its cells; the tabs of other formats come from a name, and are escaped
    has_tabs: bool = False
    # Whether the file has bytes instead of text. The module may have `need()`, which raises
    # CannotCheckError without the library that writes them.
    is_binary: bool = False

    def render(self, report: Report, *, explain: bool = False) -> Any:
        """Return the report as text in this format, or as bytes if it is binary; with `explain`,
        its formulas too.
        """
        return self._imported().render(report, explain=explain)

    def check(self, output: Path | None) -> None:
        """Raise AttncalcError if bytes would go to a terminal, and CannotCheckError without the
        library for them.
        """
        if not self.is_binary:
            return
        module = self._imported()
        if hasattr(module, "need"):
            module.need()
        if not goes_to_file(output) and (sys.stdout.isatty() or not hasattr(sys.stdout, "buffer")):
            raise AttncalcError(
                f"--format {self.name} is not text", f"write a file: -o answer{self.suffixes[0]}"
            )

    def write(self, rows: Rows, file: IO[Any]) -> None:
        """Write the rows to a file, one after the other."""
        self._imported().write(rows, file)

    @property
    def escape(self) -> Callable[[str], str]:
        """What a text becomes in a cell of a row: a path may have characters that the format reads
        otherwise.
        """
        function: Callable[[str], str] = self._imported().escape
        return function

    def _imported(self) -> ModuleType:
        return import_module(f".{self.module}", __package__)


# The default. Of rows it is a grid or a table on the screen, which needs all of them at once.
TABLE = "table"
_ALL = {
    known.name: known
    for known in (
        Format(TABLE, (".txt", ""), "text"),
        Format("json", (".json",), "json"),
        Format("csv", (".csv",), "csv"),
        Format("tsv", (".tsv",), "tsv", has_tabs=True),
        Format("markdown", (".md", ".markdown"), "markdown"),
        Format("html", (".html", ".htm"), "html"),
        Format("latex", (".tex",), "latex"),
        Format("jsonl", (".jsonl", ".ndjson"), "jsonl"),
        Format("xlsx", (".xlsx",), "xlsx", is_binary=True),
        Format("parquet", (".parquet",), "parquet", is_binary=True),
    )
}
# The formats of a report.
FORMATS = {
    name: _ALL[name]
    for name in (TABLE, "json", "csv", "tsv", "markdown", "html", "latex", "jsonl", "xlsx")
}
# The formats of the rows of a sweep, beside TABLE.
ROW_FORMATS = {
    name: _ALL[name]
    for name in ("csv", "jsonl", "json", "tsv", "markdown", "html", "latex", "xlsx", "parquet")
}


def goes_to_file(output: Path | None) -> TypeGuard[Path]:
    """Return whether `output` is a file; None and '-' are standard output."""
    return output is not None and str(output) != "-"


def descriptor_of(output: Path) -> int | None:
    """Return the number of a descriptor of this process that a path names, as 1 of /dev/stdout;
    None for another.
    """
    named = {"/dev/stdout": 1, "/dev/stderr": 2}
    match = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d{1,9})", str(output))
    if match:
        return int(match[1])
    return named.get(str(output))


def is_stream(output: Path) -> bool:
    """Return whether a path leads to a pipe or a device, or is a descriptor: it is no file to make
    anew.
    """
    if descriptor_of(output) is not None:
        return True
    try:
        mode = os.stat(output).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def choose_format(name: str | None, output: Path | None) -> Format:
    """Return the format of that name, or the one that the suffix of `output` stands for, or the
    default.

    Raises AttncalcError if there is no such format, or if the suffix is unknown and `name` is None.
    """
    suffixes = []
    for known in FORMATS.values():
        suffixes += [f"{suffix} ({known.name})" for suffix in filter(None, known.suffixes)]
    return _chosen(name, output, FORMATS, suffixes) or FORMATS[TABLE]


def choose_row_format(name: str | None, output: Path | None, *, on_terminal: bool) -> Format | None:
    """Return the format of rows in the same way; None for TABLE.

    The default is TABLE on a terminal, and CSV in a pipe. Raises AttncalcError as `choose_format`
    does.
    """
    formats = {TABLE: _ALL[TABLE], **ROW_FORMATS}
    suffixes = [f"{known.suffixes[0]} ({known.name})" for known in ROW_FORMATS.values()]
    chosen = _chosen(name, output, formats, suffixes) or formats[TABLE if on_terminal else "csv"]
    if chosen.name == TABLE:
        return None
    return chosen


def _chosen(
    name: str | None, output: Path | None, formats: Mapping[str, Format], suffixes: Sequence[str]
) -> Format | None:
    """Return the format of a name or a suffix; None for standard output or a stream. An error lists
    `suffixes`.
    """
    if name is not None:
        for known in formats.values():
            if f".{name}" in known.suffixes:  # 'md'
                return known
        if name not in formats:
            hint = did_you_mean(name, formats)
            raise BadValueError(
                f"unknown format '{truncate(name)}'", f"{hint}known formats: {', '.join(formats)}"
            )
        return formats[name]
    if not goes_to_file(output) or (not output.suffix and is_stream(output)):
        return None
    for known in formats.values():
        if output.suffix.lower() in known.suffixes:
            return known
    raise AttncalcError(
        f"no output format has the suffix '{truncate(output.suffix)}'",
        f"use {', '.join(suffixes)}; or name the format with --format",
    )
