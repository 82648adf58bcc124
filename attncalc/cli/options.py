"""The options that commands share: one name, one short form, one help text each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..config import load
from ..errors import AttncalcError
from ..model import ModelSpec
from ..report.formats import FORMATS
from ..report.report import Report
from ..units import dtype, parse_count, truncate
from ..workload import Mask, Workload, WorkloadOptions

DEFAULT_CONTEXT = 512
"""Tokens where neither the question nor the model names a context (sinusoidal or relative positions)."""

_SUFFIXES = ", ".join(suffix for known in FORMATS.values() for suffix in known.suffixes if suffix)

Model = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODEL]",
        help="A preset, a config.json or .yaml, a folder with one, org/name on the hub, - for standard input.",
    ),
]
Preset = Annotated[str | None, typer.Option("--preset", "-p", metavar="MODEL", help="The same as MODEL.")]
Batch = Annotated[str | None, typer.Option("--batch", "-b", metavar="N", help="Sequences in the batch. Default: 1.")]
Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        "-c",
        "--max-model-len",
        metavar="N",
        help="Tokens of context (4096, 128k, 128K). Default: the model's own maximum.",
    ),
]
Source = Annotated[
    str | None,
    typer.Option("--source-context", metavar="N", help="Tokens on the encoder's side. Default: its own maximum."),
]
Lengths = Annotated[
    str | None,
    typer.Option(
        "--lengths",
        metavar="N,N,...",
        help="True lengths of a padded batch, as 512,300,128; instead of -b and -c.",
    ),
]
KvDtype = Annotated[
    str | None,
    typer.Option(
        "--kv-dtype",
        "--kv-cache-dtype",
        metavar="DTYPE",
        help="Dtype of the cache: fp32, fp16, bf16, fp8, int8, int4, fp4, ... Default: --dtype.",
    ),
]
DtypeOption = Annotated[
    str | None,
    typer.Option("--dtype", metavar="DTYPE", help="Dtype of weights and activations. Default: as released."),
]
Tp = Annotated[
    str,
    typer.Option(
        "--tp",
        "--tensor-parallel-size",
        metavar="N",
        help="Tensor-parallel devices; figures are then one device's.",
    ),
]
AttentionOption = Annotated[
    str | None,
    typer.Option("--attention", metavar="KIND", help="What if: mha, mqa, gqa:N (N KV heads) or mla:R (a latent of R)."),
]
Engine = Annotated[
    str,
    typer.Option("--engine", metavar="ENGINE", help="Whose storage: ideal (what a later token needs) or transformers."),
]
AssumeGrouped = Annotated[
    bool,
    typer.Option(
        "--assume-grouped", help="Read a config.json of an unknown model_type as plain grouped attention, and say so."
    ),
]
MaskOption = Annotated[
    str | None,
    typer.Option("--mask", metavar="MASK", help="causal, bidirectional or prefix:N. Default: the model's own."),
]
Past = Annotated[str, typer.Option("--past", metavar="N", help="Tokens of the context that are in the cache already.")]
Phase = Annotated[
    str, typer.Option("--phase", metavar="PHASE", help="prefill, decode (one step at the context) or train.")
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Show the formula of every figure, with its numbers and source.")
]
Format = Annotated[
    str | None,
    typer.Option("--format", metavar="FORMAT", help=f"Output format: {', '.join(FORMATS)}. Default: table."),
]
Json = Annotated[bool, typer.Option("--json", help="The same as --format json.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help=f"Write to this file; its suffix ({_SUFFIXES}) selects the format."
    ),
]
PlainOutput = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file.")]
Force = Annotated[bool, typer.Option("--force", help="Let -o overwrite a file.")]


def read_model(
    model: str | None,
    preset: str | None,
    *,
    attention: str | None = None,
    tp: str = "1",
    assume_grouped: bool = False,
) -> ModelSpec:
    """The model asked for, with its attention exchanged and sharded as asked. AttncalcError: none, or two."""
    if model is not None and preset is not None and model != preset:
        raise AttncalcError(f"two models: '{truncate(model)}' and --preset '{truncate(preset)}'", "name one of them")
    name = preset if model is None else model
    if name is None:
        raise AttncalcError("no model", "name a preset, as in 'attncalc kv llama2-70b'; 'attncalc presets' lists them")
    spec = load(name, assume_grouped=assume_grouped)
    if attention is not None:
        spec = spec.with_attention(attention)
    return spec.shard(parse_count(tp, "--tp"))


def read_workload(
    model: ModelSpec,
    *,
    phase: str = "decode",
    batch: str | None,
    context: str | None,
    source: str | None = None,
    lengths: str | None = None,
    mask: str | None = None,
    past: str = "0",
    in_dtype: str | None = None,
    kv_dtype: str | None = None,
) -> Workload:
    """The workload asked for; what is left out comes from the model. AttncalcError: for what cannot be."""
    if lengths is not None and (batch, context) != (None, None):
        raise AttncalcError("--lengths with --batch or --context", "the lengths say both: leave out the others")
    given: WorkloadOptions = {
        "source": read_source(model, source),
        "lengths": _lengths(lengths),
        "mask": None if mask is None else Mask.parse(mask),
        "dtype": None if in_dtype is None else dtype(in_dtype, compute=True).name,
        "kv_dtype": None if kv_dtype is None else dtype(kv_dtype).name,
        "assumed": _assumed(model, context, lengths, source),
    }
    sequences = 1 if batch is None else parse_count(batch, "--batch")
    tokens = model.max_context or DEFAULT_CONTEXT
    if context is not None:
        tokens = parse_count(context, "--context")
    before = parse_count(past, "--past") if past.strip() != "0" else 0
    if before and phase != "prefill":
        raise AttncalcError(f"--past has no effect on '{truncate(phase)}'", "give it with '--phase prefill'")
    if phase == "prefill":
        return Workload.prefill(sequences, tokens, past=before, **given)
    if phase == "decode":
        return Workload.decode(sequences, tokens, **given)
    if phase == "train":
        return Workload.train(sequences, tokens, **given)
    raise AttncalcError(f"there is no phase '{truncate(phase)}'", "known: prefill, decode, train")


def _assumed(model: ModelSpec, context: str | None, lengths: str | None, source: str | None) -> tuple[str, ...]:
    """What stands in for a maximum that the model does not name."""
    found = []
    if context is None and lengths is None and model.max_context is None:
        found.append(f"The model names no longest context: {DEFAULT_CONTEXT} tokens are taken; -c sets it.")
    if model.encoder and source is None and model.encoder.max_context is None:
        found.append(f"The model names no longest source: {DEFAULT_CONTEXT} tokens are taken.")
    return tuple(found)


def read_source(model: ModelSpec, source: str | None) -> int | None:
    """Tokens of the source; the encoder's own longest where none are given. AttncalcError: there is no encoder."""
    if model.encoder is None:
        if source is not None:
            raise AttncalcError("--source-context: this model has no encoder", "leave it out")
        return None
    if source is not None:
        return parse_count(source, "--source-context")
    return model.encoder.max_context or DEFAULT_CONTEXT


def _lengths(lengths: str | None) -> tuple[int, ...] | None:
    if lengths is None:
        return None
    return tuple(parse_count(part, "--lengths") for part in lengths.split(","))


def show(
    report: Report,
    *,
    explain: bool = False,
    form: str | None = None,
    as_json: bool = False,
    output: Path | None = None,
    force: bool = False,
) -> None:
    """Write the report where and how it was asked for."""
    from ..report.write import write

    if as_json and form not in (None, "json"):
        raise AttncalcError(f"--json and --format {truncate(form)} do not agree", "give one of them")
    write(report, form="json" if as_json else form, explain=explain, output=output, force=force)
