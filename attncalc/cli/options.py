"""The options that are of the command line only: the name of the model, and where the answer goes."""

# typer reads the annotations when a command is registered. Without `from __future__ import annotations` they are
# objects already, and need not be evaluated from strings.

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from ..api.inputs import read_model, with_revision
from ..api.options import ModelOptions, ShardedModelOptions
from ..errors import AttncalcError
from ..model import ModelSpec
from ..options import options_of
from ..report.formats import FORMATS, choose_format
from ..report.report import Report
from ..units import truncate
from .command import Options, parameter_of

Text = str | None


def option(*names: str, metavar: str, help: str, parser: Callable[[str], Any] | None = None) -> typer.models.OptionInfo:
    """Return an option that takes a value."""
    info: typer.models.OptionInfo = typer.Option(*names, metavar=metavar, help=help, parser=parser)
    return info


def declared(kind: Any, field: str) -> typer.models.OptionInfo:
    """Return an option that a TypedDict declares."""
    info: typer.models.OptionInfo = parameter_of(options_of(kind)[field]).annotation.__metadata__[0]
    return info


_SUFFIXES = ", ".join(suffix for known in FORMATS.values() for suffix in known.suffixes if suffix)

Model = Annotated[
    Text,
    typer.Argument(
        metavar="[MODEL]",
        help="A preset, a config.json, .yaml or .gguf file, a folder with one, org/name on the hub or its address, - "
        "for standard input.",
    ),
]
Preset = Annotated[Text, option("--preset", "-p", metavar="MODEL", help="The same as MODEL.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Show the formula of every figure, with its numbers and source.")
]
Format = Annotated[
    Text, option("--format", metavar="FORMAT", help=f"Output format: {', '.join(FORMATS)}. Default: table.")
]
Json = Annotated[bool, typer.Option("--json", help="The same as --format json.")]


def output_file(text: str | Path) -> Path:
    """Return the path of a file to write. Raises AttncalcError for a folder: 'x.json/', whose slash a path drops."""
    if str(text).endswith(("/", os.sep)):
        raise AttncalcError(f"{truncate(text)}: a folder, not a file that can be written", "name a file after -o")
    return Path(text)


Output = Annotated[
    Path | None,
    option(
        "--output",
        "-o",
        metavar="FILE",
        parser=output_file,
        help=f"Write to this file; its suffix ({_SUFFIXES}) selects the format.",
    ),
]
PlainOutput = Annotated[
    Path | None, option("--output", "-o", metavar="FILE", parser=output_file, help="Write to this file.")
]
Force = Annotated[bool, typer.Option("--force", help="Let -o overwrite a file.")]


class NamedModel(Options):
    """The name or path of the model."""

    RARE: ClassVar[frozenset[str]] = frozenset({"preset"})

    model: Model = None
    preset: Preset = None

    @property
    def is_given(self) -> bool:
        """Whether a model is named at all."""
        return self.model is not None or self.preset is not None

    def name(self) -> str:
        """Return the model's name or path. Raises AttncalcError if MODEL and --preset give none, or differ."""
        return model_name(self.model, self.preset)

    def read(self, options: Mapping[str, Any], kind: Any = ShardedModelOptions) -> ModelSpec:
        """Return the model that these options change and split. Raises AttncalcError as `read_model` does."""
        return read_model(self.name(), options, kind)


class NamedModelOptions(NamedModel):
    """The name or path of the model, and its revision."""

    revision: Annotated[Text, declared(ModelOptions, "revision")] = None

    def name(self) -> str:
        """Return the model's name or path, with its revision."""
        return str(with_revision(super().name(), self.revision))


class PlainOutputOptions(Options):
    """Where plain text goes: YAML, a schema."""

    LAST: ClassVar[bool] = True

    output: PlainOutput = None
    force: Force = False

    def write(self, text: str) -> None:
        """Write the text. Raises AttncalcError if the file cannot be written."""
        from ..report.write import deliver

        deliver(text, self.output, force=self.force)


class ReportOptions(Options):
    """Where a report goes, and in which format.

    The format is checked when the options are read: `-o t.xyz` is an error before the command computes anything.

    Attributes:
        chosen: The format, by its name or by the suffix of the file.
    """

    LAST: ClassVar[bool] = True
    RARE: ClassVar[frozenset[str]] = frozenset({"explain", "format", "force"})

    explain: bool = False
    format: str | None = None
    json: bool = False
    output: Path | None = None
    force: bool = False

    def __init__(self, **values: Any) -> None:
        """Raise AttncalcError if --json and --format differ, or the format or the suffix of --output is unknown."""
        super().__init__(**values)
        self.chosen = choose_format(self._format_name(), self.output)

    def _format_name(self) -> str | None:
        if self.json and self.format not in (None, "json"):
            raise AttncalcError(f"--json cannot be combined with --format {truncate(self.format)}", "give one of them")
        return "json" if self.json else self.format

    def show(self, report: Report, *, picture_too: bool = False) -> None:
        """Write the report. Raises AttncalcError if the file exists (without --force) or cannot be written.

        Args:
            report: The report.
            picture_too: Whether --force may have been given for the file of a picture.
        """
        from ..report.write import write

        force = self.force and not (picture_too and self.output is None)
        write(report, form=self._format_name(), explain=self.explain, output=self.output, force=force)


class ListOutputOptions(ReportOptions):
    """Where a list goes, and in which format; a list has no formulas to explain."""

    format: Format = None
    json: Json = False
    output: Output = None
    force: Force = False


class OutputOptions(ReportOptions):
    """Where the answer goes, in which format, and whether with formulas."""

    explain: Explain = False
    format: Format = None
    json: Json = False
    output: Output = None
    force: Force = False


def model_name(model: Text, preset: Text) -> str:
    """Return the name that MODEL or --preset gives. Raises AttncalcError if neither does, or they differ."""
    if model is not None and preset is not None and model != preset:
        raise AttncalcError(
            f"MODEL '{truncate(model)}' cannot be combined with --preset '{truncate(preset)}'", "name one of them"
        )
    name = preset if model is None else model
    if name is None:
        raise AttncalcError(
            "a model is required", "name a preset, as in 'attncalc kv llama2-70b'; 'attncalc presets' lists them"
        )
    return name
