"""The options that commands share, in groups; and the model and workload that are read from them."""

# typer reads the annotations when a command is registered. Without `from __future__ import annotations` they are
# objects already, and need not be evaluated from strings.

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from ..api import workloads
from ..api.models import read_model
from ..errors import AttncalcError
from ..model import ModelSpec
from ..report.formats import FORMATS, choose_format
from ..report.report import Report
from ..units import truncate
from ..workload import Workload
from .command import Options

Text = str | None


def option(*names: str, metavar: str, help: str, parser: Callable[[str], Any] | None = None) -> typer.models.OptionInfo:
    """Return an option that takes a value."""
    info: typer.models.OptionInfo = typer.Option(*names, metavar=metavar, help=help, parser=parser)
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
Revision = Annotated[
    Text, option("--revision", metavar="REVISION", help="Branch, tag or commit of org/name on the hub. Default: main.")
]
Preset = Annotated[Text, option("--preset", "-p", metavar="MODEL", help="The same as MODEL.")]
AttentionOption = Annotated[
    Text, option("--attention", metavar="KIND", help="What if: mha, mqa, gqa:N (N KV heads) or mla:R (a latent of R).")
]
AssumeGrouped = Annotated[
    bool,
    typer.Option(
        "--assume-grouped", help="Read a config.json of an unknown model_type as plain grouped attention; a guess."
    ),
]
Tp = Annotated[
    str,
    option(
        "--tp",
        "--tensor-parallel-size",
        metavar="N",
        help="Tensor-parallel devices; figures are then per device.",
    ),
]
Batch = Annotated[Text, option("--batch", "-b", metavar="N", help="Sequences in the batch. Default: 1.")]
Context = Annotated[
    Text,
    option(
        "--context",
        "-c",
        "--max-model-len",
        metavar="N",
        help="Tokens of context (4096, 128k, 128K; fit: auto). Default: the model's maximum.",
    ),
]
Source = Annotated[
    Text, option("--source-context", metavar="N", help="Tokens on the encoder's side. Default: the encoder's maximum.")
]
Lengths = Annotated[
    Text,
    option(
        "--lengths",
        metavar="N,N,...",
        help="Unpadded lengths of a padded batch, as 512,300,128; instead of -b and -c.",
    ),
]
MaskOption = Annotated[
    Text, option("--mask", metavar="MASK", help="causal, bidirectional or prefix:N. Default: the model's own.")
]
Past = Annotated[str, option("--past", metavar="N", help="Tokens of the context that are already in the cache.")]
Phase = Annotated[str, option("--phase", metavar="PHASE", help="prefill, decode (one step at the context) or train.")]
DtypeOption = Annotated[
    Text, option("--dtype", metavar="DTYPE", help="Dtype of weights and activations. Default: as released.")
]
KvDtype = Annotated[
    Text,
    option(
        "--kv-dtype",
        "--kv-cache-dtype",
        metavar="DTYPE",
        help="Dtype of the cache: fp32, fp16, bf16, fp8, int8, int4, fp4, ... Default: --dtype.",
    ),
]
Engine = Annotated[
    str,
    option("--engine", metavar="ENGINE", help="How the cache is stored: ideal (a lower bound) or transformers."),
]
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


class NamedModelOptions(Options):
    """The name or path of the model."""

    model: Model = None
    preset: Preset = None
    revision: Revision = None

    @property
    def is_given(self) -> bool:
        """Whether a model is named at all."""
        return self.model is not None or self.preset is not None

    def name(self) -> str:
        """Return the model's name or path, with its revision. Raises AttncalcError as `model_name` does."""
        name = model_name(self.model, self.preset)
        if self.revision is None:
            return name
        from ..config.hub import with_revision

        return with_revision(name, self.revision)


class ModelOptions(NamedModelOptions):
    """Which model, and with which attention."""

    attention: AttentionOption = None
    assume_grouped: AssumeGrouped = False

    def read(self) -> ModelSpec:
        """Return the whole model. Raises AttncalcError as `model_name` and `read_model` do."""
        return read_model(self.name(), attention=self.attention, assume_grouped=self.assume_grouped)


class ShardedModelOptions(ModelOptions):
    """A model, split over tensor-parallel devices."""

    tp: Tp = "1"

    def read(self) -> ModelSpec:
        """Return one device's share of the model. Raises AttncalcError as `read_model` does."""
        return read_model(self.name(), attention=self.attention, assume_grouped=self.assume_grouped, tp=self.tp)


class SizeOptions(Options):
    """The number of sequences and of tokens."""

    batch: Batch = None
    context: Context = None
    source_context: Source = None


class PaddedSizeOptions(SizeOptions):
    """The number of sequences and of tokens, or the lengths in a padded batch."""

    lengths: Lengths = None


class PassOptions(Options):
    """Prefill, decode or training step, and its mask."""

    phase: Phase = "prefill"
    past: Past = "0"
    mask: MaskOption = None


class DtypeOptions(Options):
    """The dtype of weights and activations."""

    dtype: DtypeOption = None


class CacheDtypeOptions(DtypeOptions):
    """The dtypes of weights and activations, and of the cache."""

    kv_dtype: KvDtype = None


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


def read_workload(model: ModelSpec, *groups: Options) -> Workload:
    """Return the workload that these groups of options describe. Raises AttncalcError as the one of the API does."""
    options = {name: value for group in groups for name, value in vars(group).items()}
    return workloads.read_workload(model, **options)
