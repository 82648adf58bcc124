"""The options that are of the command line only: the name of the model, and where the answer
goes.
"""

import contextlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from ..config import ModelLike
from ..config.presets import of_ollama, with_file_type
from ..errors import AttncalcError, clash, is_valid
from ..model import ModelSpec
from ..options import options_of, parsed
from ..questions.inputs import read_model, with_revision
from ..questions.options import ModelOptions, ShardedModelOptions, SizeOptions, WhatIfOptions
from ..show.formats import FORMATS, choose_format
from ..show.lists import tell
from ..show.notes import FAILED
from ..show.report import Report
from ..units import is_auto, parse_bytes, truncate
from ..what_if import SIZES, model_of_sizes, no_model
from .command import Options, typer_option

if TYPE_CHECKING:
    from ..show.fail_if import Condition

Text = str | None


def option(
    *names: str, metavar: str, help: str, parser: Callable[[str], Any] | None = None
) -> typer.models.OptionInfo:
    info: typer.models.OptionInfo = typer.Option(*names, metavar=metavar, help=help, parser=parser)
    return info


def declared(kind: Any, field: str) -> typer.models.OptionInfo:
    info: typer.models.OptionInfo = typer_option(options_of(kind)[field])
    return info


def output_file(text: str | Path) -> Path:
    """Return the path of a file to write.

    Raises AttncalcError for a folder, 'x.json/', whose slash a path drops; and for a number, by
    which tokens are meant.
    """
    if str(text).endswith(("/", os.sep)):
        raise AttncalcError(
            f"{truncate(text)}: a folder, not a file that can be written", "name a file after -o"
        )
    if str(text) in FORMATS:
        raise AttncalcError(
            f"--output {text}: a file needs a suffix", f"-o answer.{text} is a file"
        )
    if re.fullmatch(r"\d[\d_,.]{0,30}[kmgtKMGT]?", str(text)):
        tip = f"tokens of an output are --output-len {text}; a file needs a suffix, as {text}.txt"
        raise AttncalcError(f"--output {text}: --output is the file of the answer", tip)
    return Path(text)


def output_option(*suffixes: str) -> typer.models.OptionInfo:
    """Return the option --output, with the suffixes of files that it knows."""
    if suffixes:
        selects = f"; its suffix ({', '.join(suffixes)}) selects the format"
    else:
        selects = ""
    return option(
        "--output", "-o", metavar="FILE", parser=output_file, help=f"Write to this file{selects}."
    )


Preset = Annotated[Text, option("--preset", "-p", metavar="MODEL", help="The same as MODEL.")]
FailIf = Annotated[
    list[str] | None,
    option(
        "--fail-if",
        metavar="CONDITION",
        help="Exit with 1 if a figure is beyond a limit: 'kv_cache > 8GiB', or of two models "
        "'kv_cache > +5%' of the first; may be repeated.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Let -o overwrite a file.")]


class NamedModel(Options):
    """The name or path of the model."""

    RARE: ClassVar[frozenset[str]] = frozenset({"preset"})

    model: Annotated[
        Text,
        typer.Argument(
            metavar="[MODEL]",
            help="A preset, a config.json, .yaml or .gguf file, a folder with one, org/name on "
            "the hub or its address, - for standard input.",
        ),
    ] = None
    preset: Preset = None

    @property
    def is_given(self) -> bool:
        """Whether a model is named at all."""
        return self.model is not None or self.preset is not None

    def name(self) -> str:
        """Return the model's name or path. Raises AttncalcError if MODEL and --preset give none, or
        differ.
        """
        if None not in (self.model, self.preset) and self.model != self.preset:
            raise clash(
                f"MODEL '{truncate(self.model)}'",
                f"--preset '{truncate(self.preset)}'",
                "name one of them",
            )
        name = self.preset if self.model is None else self.model
        if name is None:
            raise no_model()
        return name

    def describes(self, options: Mapping[str, Any]) -> bool:
        """Return whether a model is named, or described by its sizes."""
        return self.is_given or not SIZES.isdisjoint(options)

    def name_or_sizes(self, options: Mapping[str, Any]) -> ModelLike:
        """Return the model's name or path; without one, the model of the sizes in the options.

        Raises AttncalcError if there is neither.
        """
        if options.get("engine") == "ollama" and self.model:
            self.model = of_ollama(self.model)
        if self.is_given:
            return of_json(self.name())
        return of_sizes(options)

    def read(self, options: Mapping[str, Any], kind: Any = ShardedModelOptions) -> ModelSpec:
        """Return the model that these options change and split. Raises AttncalcError as
        `read_model` does.
        """
        model = self.name_or_sizes(options)
        note_file_types(model)
        return read_model(model, options, kind)


class NamedModelOptions(NamedModel):
    """The name or path of the model, and its revision."""

    revision: Annotated[Text, declared(ModelOptions, "revision")] = None

    def name(self) -> str:
        """Return the model's name or path, with its revision."""
        return str(with_revision(super().name(), self.revision))


class NamedModels(Options):
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL...",
            help="Presets, files, folders or org/name on the hub, as in other commands.",
        ),
    ] = None
    preset: Preset = None

    def names(self) -> list[str]:
        """Return the models. Raises AttncalcError if there are none."""
        return model_names(self.models, self.preset)

    def names_or_sizes(self, options: Mapping[str, Any]) -> list[ModelLike]:
        """Return the models; without any, the one of the sizes in the options. Raises AttncalcError
        without both.
        """
        if self.models or self.preset:
            return [*map(of_json, self.names())]
        return [of_sizes(options)]


def model_names(models: list[str] | None, preset: Text) -> list[str]:
    """Return the names that MODEL... and --preset give. Raises AttncalcError if there are none."""
    names = [*(models or []), *([preset] if preset else [])]
    if not names:
        raise no_model()
    return names


def of_json(model: str) -> ModelLike:
    """Return the fields of a config.json whose text stands in the place of its name; any other name
    as it is.
    """
    if model.lstrip().startswith("{"):
        with contextlib.suppress(ValueError):
            fields: dict[str, Any] = json.loads(model)
            return fields
    return model


def note_file_types(*models: ModelLike) -> None:
    """Say that the types of GGUF files in models' names are not used: they are of the weights,
    which `fit` loads.
    """
    types = dict.fromkeys(with_file_type(model)[1] for model in models if isinstance(model, str))
    for file_type in filter(None, types):
        tell(
            f"note: {file_type} is not used: it is the type of weights, which 'attncalc fit' counts"
        )


def check_numbers(options: Mapping[str, Any]) -> None:
    """Raise AttncalcError if the batch or the context is no number, nor auto: '-b llama3-8b' lacks
    the number, and not the model.
    """
    given = {name: options.get(name) for name in SizeOptions.__annotations__}
    parsed({name: value for name, value in given.items() if not is_auto(value)}, SizeOptions)


def of_sizes(options: Mapping[str, Any]) -> ModelLike:
    """Return the model of the sizes in the options. Raises AttncalcError if they have none."""
    return model_of_sizes(parsed(options, WhatIfOptions))


Plain = Annotated[
    bool,
    typer.Option("--plain", help="Print words only: no colours, no drawings, and tables as lists."),
]


class PlainOutputOptions(Options):
    """Where plain text goes: YAML, a schema."""

    LAST: ClassVar[bool] = True

    output: Annotated[Path | None, output_option()] = None
    force: Force = False
    plain: Plain = False

    def write(self, text: str) -> None:
        """Write the text. Raises AttncalcError if the file cannot be written."""
        from ..show.write import deliver

        deliver(text, self.output, force=self.force)


_ALL_SUFFIXES = [suffix for known in FORMATS.values() for suffix in known.suffixes]
_SUFFIXES = [suffix for suffix in _ALL_SUFFIXES if suffix]


class ReportOptions(Options):
    """Where a report goes, and in which format.

    The format is checked when the options are read: `-o t.xyz` is an error before the command
    computes anything.

    Attributes:
        explain: Whether formulas are shown.
        chosen: The format, by its name or by the suffix of the file.
    """

    LAST: ClassVar[bool] = True
    RARE: ClassVar[frozenset[str]] = frozenset({"format", "force", "plain"})

    explain = False
    format: Annotated[
        Text,
        option(
            "--format",
            metavar="FORMAT",
            help=f"Output format: {', '.join(FORMATS)}. Default: table.",
        ),
    ] = None
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object; jq .values has the figures.")
    ] = False
    output: Annotated[Path | None, output_option(*_SUFFIXES)] = None
    force: Force = False
    plain: Plain = False

    def __init__(self, **values: Any) -> None:
        """Raise AttncalcError if --json and --format differ, or the format or the suffix of
        --output is unknown.
        """
        super().__init__(**values)
        if self.json and self.format not in (None, "json"):
            raise clash("--json", f"--format {truncate(self.format)}", "give one of them")
        self.form_name = "json" if self.json else self.format
        self.check_format()

    def check_format(self) -> None:
        """Raise AttncalcError if the format or the suffix of --output is unknown."""
        self.chosen = choose_format(self.form_name, self.output)
        self.chosen.check(self.output)

    def write(self, text: str, *, tabs: bool = False) -> None:
        """Write a text. Raises AttncalcError if the file exists (without --force) or cannot be
        written.
        """
        from ..show.write import deliver

        deliver(text, self.output, force=self.force, tabs=tabs)

    def show(self, report: Report, *, picture_too: bool = False) -> None:
        """Write the report. Raises AttncalcError if the file exists (without --force) or cannot be
        written.

        `picture_too` is whether --force may have been given for the file of a picture.
        """
        from ..show.write import write

        force = self.force and not (picture_too and self.output is None)
        write(
            report,
            form=self.form_name,
            explain=self.explain,
            output=self.output,
            force=force,
            plain=self.plain,
        )


class AnswerOptions(ReportOptions):
    """Where the answer goes, or the part of it that a script reads."""

    RARE: ClassVar[frozenset[str]] = ReportOptions.RARE | {"quiet", "unit"}

    get: Annotated[
        Text,
        option(
            "--get",
            metavar="NAME,...",
            help="Print these figures alone, in base units, a line per row: kv_cache. A wrong "
            "name lists all.",
        ),
    ] = None
    unit: Annotated[
        Text,
        option(
            "--unit", metavar="UNIT", help="Unit of sizes with --get, as GiB, GB or MB. Default: B."
        ),
    ] = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the answer in one line.")] = (
        False
    )

    def __init__(self, **values: Any) -> None:
        """Raise AttncalcError as `ReportOptions`, and if --get is combined with a format."""
        if values["get"] is not None:
            if values["json"] or values["format"]:
                raise clash("--get", "--json" if values["json"] else "--format", "give one of them")
            values["format"] = "tsv"
        if str(values["unit"]).lower() in ("byte", "bytes"):
            values["unit"] = "B"
        super().__init__(**values)
        if self.unit is not None and not is_valid(parse_bytes, f"1 {self.unit}", ""):
            raise AttncalcError(
                f"--unit: '{truncate(self.unit)}' is no unit of sizes",
                "write B, MiB, GiB, MB or GB",
            )
        if self.unit is not None and self.get is None:
            tell(
                "note: --unit is not used: it is for --get; a screen has GiB and bytes, and "
                "--json bytes"
            )

    @property
    def is_silent(self) -> bool:
        """Whether at most one line is written: --json, --format, --get and --output ask for
        something.
        """
        return self.quiet and self.output is None and self.form_name is None

    def show(self, report: Report, *, picture_too: bool = False) -> None:
        """Write the report, the figures of --get, or a line. Raises AttncalcError as
        `ReportOptions.show` does.
        """
        from ..show import lines
        from ..show.write import tell_alerts

        if self.get is not None:
            unit = None if self.unit is None else parse_bytes(f"1 {self.unit}", "--unit")
            self.write(lines.picked(report, self.get.split(","), unit), tabs=True)
            tell_alerts(report)
            for range_ in lines.ranges(report, self.get.split(",")):
                tell(f"note: {range_}")
        elif not self.is_silent:
            super().show(report, picture_too=picture_too)
        elif not report.fail_if:
            self.write(lines.short(report))


class _Explained(Options):
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show the formula of every figure: numbers and source."),
    ] = False


class OutputOptions(AnswerOptions, _Explained):
    """Where the answer goes, if anywhere, in which format, and whether with formulas."""

    def exit_if_failed(self, report: Report) -> None:
        """Exit with 1 if a condition of --fail-if is true; without an answer, name it on standard
        error.
        """
        failed = [note for note in report.notes if note.startswith(FAILED)]
        if self.is_silent:
            for note in failed:
                tell(note)
        if failed:
            raise typer.Exit(1)


class CheckedOutputOptions(OutputOptions):
    """Where the answer goes, and what CI checks of it."""

    RARE: ClassVar[frozenset[str]] = OutputOptions.RARE | {"fail_if"}

    fail_if: FailIf = None

    def __init__(self, **values: Any) -> None:
        """Raise AttncalcError if a condition cannot be read."""
        super().__init__(**values)
        self._conditions: tuple[Condition, ...] = ()
        if self.fail_if:
            from ..show.fail_if import parse_condition

            self._conditions = tuple(map(parse_condition, self.fail_if))

    def show(self, report: Report, *, picture_too: bool = False) -> None:
        """Write the report with its conditions; if one is true, the exit code is 1.

        Raises AttncalcError as `ReportOptions.show` does, and if a condition does not apply to the
        figures.
        """
        if self._conditions:
            from ..show.fail_if import limited

            report = limited(report, self._conditions)
        # a program asks
        elif report.extra.get("verdict") == "may_not_fit" and (self.quiet or self.form_name):
            tell("note: MAY NOT FIT exits with 0; --fail-if 'verdict != FITS' makes it 1")
        super().show(report, picture_too=picture_too)
        self.exit_if_failed(report)
