"""The output formats. A new format is one file with a `render` function and one line in FORMATS."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from ..errors import AttncalcError, did_you_mean
from ..units import truncate

if TYPE_CHECKING:
    from .report import Report

DEFAULT = "table"


class Format(NamedTuple):
    """An output format.

    Attributes:
        name: What `--format` calls it.
        suffixes: Suffixes of files that are written in this format; "" is a file without a suffix.
        module: The module in this package with its `render(report, *, explain)`, imported when it is used.
        has_tabs: Whether tabs separate its cells; the tabs of other formats come from a name, and are escaped.
    """

    name: str
    suffixes: tuple[str, ...]
    module: str
    has_tabs: bool = False

    def render(self, report: Report, *, explain: bool = False) -> str:
        """Return the report as text in this format; with `explain`, its formulas too."""
        text: str = import_module(f".{self.module}", __package__).render(report, explain=explain)
        return text


FORMATS = {
    known.name: known
    for known in (
        Format("table", (".txt", ""), "text"),
        Format("json", (".json",), "json"),
        Format("csv", (".csv",), "csv"),
        Format("tsv", (".tsv",), "tsv", has_tabs=True),
        Format("markdown", (".md", ".markdown"), "markdown"),
        Format("html", (".html", ".htm"), "html"),
        Format("latex", (".tex",), "latex"),
    )
}


def goes_to_file(output: Path | None) -> TypeGuard[Path]:
    """Return whether `output` is a file; None and '-' are standard output."""
    return output is not None and str(output) != "-"


def choose_format(name: str | None, output: Path | None) -> Format:
    """Return the format of that name, or the one that the suffix of `output` stands for, or the default.

    Raises AttncalcError if there is no such format, or if the suffix is unknown and `name` is None.
    """
    if name is not None:
        if name not in FORMATS:
            hint = did_you_mean(name, FORMATS)
            raise AttncalcError(f"unknown format '{truncate(name)}'", f"{hint}known formats: {', '.join(FORMATS)}")
        return FORMATS[name]
    if output is None or str(output) == "-":
        return FORMATS[DEFAULT]
    suffix = output.suffix.lower()
    for known in FORMATS.values():
        if suffix in known.suffixes:
            return known
    suffixes = [f"{suffix} ({known.name})" for known in FORMATS.values() for suffix in known.suffixes if suffix]
    raise AttncalcError(
        f"no output format has the suffix '{truncate(output.suffix)}'",
        f"use {', '.join(suffixes)}; or name the format with --format",
    )
