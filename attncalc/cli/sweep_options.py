"""The options of `attncalc sweep` that other commands do not have: lists of models, columns, and formats of rows."""

# typer reads the annotations when a command is registered. Without `from __future__ import annotations` they are
# objects already, and need not be evaluated from strings.

import sys
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from ..errors import AttncalcError
from ..report.formats import ROW_FORMATS, TABLE, Format, choose_row_format
from ..units import parse_count, truncate
from .command import Options
from .options import Force, Json, Text, model_name, option, output_file

_SUFFIXES = ", ".join(suffix for known in ROW_FORMATS.values() for suffix in known.suffixes[:1])

MAX_JOBS = 256
"""The most processes of a sweep."""


class ModelsOptions(Options):
    """Which models."""

    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL...", help="Presets, files, folders or org/name on the hub, as in other commands."
        ),
    ] = None
    preset: Annotated[Text, option("--preset", "-p", metavar="MODEL", help="One more MODEL.")] = None

    def names(self) -> list[str]:
        """Return the models. Raises AttncalcError if there are none."""
        return [*(self.models or []), *([self.preset] if self.preset else [])] or [model_name(None, None)]


class ColumnOptions(Options):
    """Which figures."""

    columns: Annotated[
        Text,
        option("--columns", metavar="NAME,...", help="Figures as JSON calls them: kv_cache, concurrency, ..."),
    ] = None
    show: Annotated[Text, option("--show", metavar="NAME", help="The figure of a grid, as concurrency.")] = None
    jobs: Annotated[
        Text, option("--jobs", "-j", metavar="N", help="Processes that compute rows; pays for long sweeps. Default: 1.")
    ] = None

    def processes(self) -> int:
        """Return the number of processes. Raises AttncalcError if it is not from 1 to MAX_JOBS."""
        number = 1 if self.jobs is None else parse_count(self.jobs, "--jobs")
        if number > MAX_JOBS:
            raise AttncalcError(
                f"--jobs {number} is more than {MAX_JOBS} processes", "give the number of your CPU cores"
            )
        return number

    def names(self) -> str | None:
        """Return the columns that were named. Raises AttncalcError if both options are given."""
        if self.columns is not None and self.show is not None:
            raise AttncalcError(
                "--show cannot be combined with --columns", "--show NAME is a grid of that figure alone"
            )
        return self.columns if self.show is None else self.show


class RowOutputOptions(Options):
    """Where the rows go, and in which format."""

    LAST: ClassVar[bool] = True

    format: Annotated[
        Text,
        option(
            "--format",
            metavar="FORMAT",
            help=f"{TABLE}, {', '.join(ROW_FORMATS)}. Default: {TABLE} on a terminal, else csv.",
        ),
    ] = None
    json: Json = False
    output: Annotated[
        Path | None,
        option(
            "--output",
            "-o",
            metavar="FILE",
            parser=output_file,
            help=f"Write to this file; its suffix ({_SUFFIXES}) selects the format.",
        ),
    ] = None
    force: Force = False

    def __init__(self, **values: Any) -> None:
        """Raise AttncalcError if --json and --format differ, or the format or the suffix of --output is unknown."""
        super().__init__(**values)
        if self.json and self.format not in (None, "json"):
            raise AttncalcError(f"--json cannot be combined with --format {truncate(self.format)}", "give one of them")
        if self.json:
            self.format = "json"
        choose_row_format(self.format, self.output, on_terminal=False)

    def form(self) -> Format | None:
        """Return the format; None for the screen, which is the default on a terminal."""
        return choose_row_format(self.format, self.output, on_terminal=sys.stdout.isatty())
