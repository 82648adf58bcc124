"""The options that commands share, in groups; and the model and workload that are read from them."""

# typer reads the annotations when a command is registered. Without `from __future__ import annotations` they are
# objects already, and need not be evaluated from strings.

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from ..config import load
from ..errors import AttncalcError
from ..model import ModelSpec
from ..report.formats import FORMATS, choose_format
from ..report.report import Report
from ..units import dtype, parse_count, truncate
from ..workload import Mask, Workload, WorkloadOptions
from .command import Options

DEFAULT_CONTEXT = 512
"""Tokens of context if neither the command nor the model has a number: positions are sinusoidal or relative."""

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
        return super().read().shard(parse_count(self.tp, "--tp"))


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


def read_model(name: str, *, attention: Text = None, assume_grouped: bool = False) -> ModelSpec:
    """Return the model of that name, with the attention that --attention replaces its own with.

    Raises AttncalcError if there is no such model, its file is not valid, or it cannot have that attention.
    """
    spec = load(name, assume_grouped=assume_grouped)
    return spec if attention is None else spec.with_attention(attention)


def read_workload(
    model: ModelSpec,
    size: SizeOptions,
    dtypes: DtypeOptions | None = None,
    forward: PassOptions | None = None,
) -> Workload:
    """Return the workload; the model's defaults replace options that were left out.

    Args:
        model: The model.
        size: Batch and context.
        dtypes: The dtypes; None for the model's.
        forward: The phase and the mask; None for a decode step.

    Raises AttncalcError if an option is not a number, a mask or a dtype, or two options exclude each other.
    """
    lengths = size.lengths if isinstance(size, PaddedSizeOptions) else None
    if lengths is not None and (size.batch, size.context) != (None, None):
        other = "--batch" if size.batch is not None else "--context"
        raise AttncalcError(
            f"--lengths cannot be combined with {other}", "the lengths set batch and context: leave the other out"
        )
    kv_dtype = dtypes.kv_dtype if isinstance(dtypes, CacheDtypeOptions) else None
    options: WorkloadOptions = {
        "source": read_source(model, size.source_context),
        "lengths": _lengths(lengths),
        "mask": None if forward is None or forward.mask is None else Mask.parse(forward.mask),
        "dtype": None if dtypes is None or dtypes.dtype is None else dtype(dtypes.dtype, compute=True).name,
        "kv_dtype": None if kv_dtype is None else dtype(kv_dtype).name,
        "assumed": _assumptions(model, size.context, lengths, size.source_context),
    }
    batch = 1 if size.batch is None else parse_count(size.batch, "--batch")
    context = model.max_context or DEFAULT_CONTEXT
    if size.context is not None:
        context = parse_count(size.context, "--context")
    phase = "decode" if forward is None else forward.phase
    past = 0
    if forward is not None and forward.past.strip() != "0":
        past = parse_count(forward.past, "--past")
    if past and lengths is not None:
        raise AttncalcError("--past cannot be combined with --lengths", "leave one of them out")
    if past and phase != "prefill":
        raise AttncalcError(f"--past cannot be combined with --phase {truncate(phase)}", "give it with --phase prefill")
    if phase == "prefill":
        return Workload.prefill(batch, context, past=past, **options)
    if phase == "decode":
        return Workload.decode(batch, context, **options)
    if phase == "train":
        return Workload.train(batch, context, **options)
    raise AttncalcError(f"there is no phase '{truncate(phase)}'", "known: prefill, decode, train")


def _assumptions(model: ModelSpec, context: Text, lengths: Text, source: Text) -> tuple[str, ...]:
    """Return a note per number that neither the command nor the model has."""
    notes = []
    if context is None and lengths is None and model.max_context is None:
        notes.append(f"The model has no maximum context: {DEFAULT_CONTEXT} tokens are assumed; -c sets it.")
    if model.encoder and source is None and model.encoder.max_context is None:
        notes.append(
            f"The encoder has no maximum context: {DEFAULT_CONTEXT} tokens are assumed; --source-context sets it."
        )
    return tuple(notes)


def read_source(model: ModelSpec, source: Text) -> int | None:
    """Return the tokens on the encoder's side, the encoder's maximum by default; None without an encoder.

    Raises AttncalcError if a number is given and the model has no encoder.
    """
    if model.encoder is None:
        if source is not None:
            raise AttncalcError("--source-context has no effect: this model has no encoder", "leave it out")
        return None
    if source is not None:
        return parse_count(source, "--source-context")
    return model.encoder.max_context or DEFAULT_CONTEXT


def _lengths(lengths: Text) -> tuple[int, ...] | None:
    if lengths is None:
        return None
    return tuple(parse_count(part, "--lengths") for part in lengths.split(","))
