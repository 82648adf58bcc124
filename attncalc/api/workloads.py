"""The workload of a call: batch, context, phase and dtypes, with the model's defaults for what is left out."""

# Without `from __future__ import annotations`, a TypedDict has its types as objects, and not as strings.

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

from ..cost.common import check_source
from ..errors import AttncalcError
from ..model import ModelSpec
from ..options import COUNT, COUNT_OR_ZERO, DTYPE_OR_AUTO, Count, Option, Parser, dtype_name, given
from ..ranges import split_list
from ..units import dtype as dtype_of
from ..units import parse_count, truncate
from ..workload import Mask, Workload, WorkloadOptions

DEFAULT_CONTEXT = 512
"""Tokens of context if neither the call nor the model has a number: positions are sinusoidal or relative."""
PHASES = ("prefill", "decode", "train")


def _compute_dtype(text: str, name: str) -> str:
    return dtype_of(dtype_name(text), compute=True).name


def _phase(text: str, name: str) -> str:
    if text not in PHASES:
        raise AttncalcError(f"there is no phase '{truncate(text)}'", f"known: {', '.join(PHASES)}")
    return text


def _mask(text: str, name: str) -> str:
    return str(Mask.parse(text))


class SizeOptions(TypedDict, total=False):
    """The number of sequences and of tokens."""

    batch: Annotated[
        Count | None,
        Option("--batch", "-b", metavar="N", parse=COUNT, help="Sequences in the batch. Default: 1.", common=True),
    ]
    context: Annotated[
        Count | None,
        Option(
            *("--context", "-c", "--max-model-len"),
            metavar="N",
            parse=COUNT,
            help="Tokens of context, as 4096, 128k or 128K. Default: the model's maximum.",
            common=True,
        ),
    ]
    source_context: Annotated[
        Count | None,
        Option(
            "--source-context",
            metavar="N",
            parse=COUNT,
            help="Tokens on the encoder's side. Default: the encoder's maximum.",
        ),
    ]


class PaddedSizeOptions(SizeOptions, total=False):
    """The number of sequences and of tokens, or the lengths in a padded batch."""

    lengths: Annotated[
        str | Sequence[Count] | None,
        Option(
            "--lengths",
            metavar="N,N,...",
            axis=False,
            help="Unpadded lengths of a padded batch, as 512,300,128; instead of -b and -c.",
        ),
    ]


class PassOptions(TypedDict, total=False):
    """The phase and its mask."""

    phase: Annotated[
        str,
        Option(
            "--phase",
            metavar="PHASE",
            parse=Parser(_phase),
            help="prefill, decode (one step at the context) or train. Default: prefill.",
            common=True,
        ),
    ]
    past: Annotated[
        Count,
        Option(
            "--past",
            metavar="N",
            parse=COUNT_OR_ZERO,
            help="Tokens of the context that are already in the cache. Default: 0.",
        ),
    ]
    mask: Annotated[
        str | Mask | None,
        Option(
            "--mask",
            metavar="MASK",
            parse=Parser(_mask),
            help="causal, bidirectional or prefix:N. Default: the model's own.",
        ),
    ]


class DtypeOptions(TypedDict, total=False):
    """The dtype of weights and activations."""

    dtype: Annotated[
        str | None,
        Option(
            "--dtype",
            metavar="DTYPE",
            parse=Parser(_compute_dtype),
            help="Dtype of weights and activations. Default: as released.",
        ),
    ]


class CacheDtypeOptions(DtypeOptions, total=False):
    """The dtypes of weights and activations, and of the cache."""

    kv_dtype: Annotated[
        str | None,
        Option(
            *("--kv-dtype", "--kv-cache-dtype"),
            metavar="DTYPE",
            parse=DTYPE_OR_AUTO,
            help="Dtype of the cache: fp32, fp16, bf16, fp8, int8, int4, fp4, ... Default: --dtype, or the engine's.",
            common=True,
        ),
    ]


class _WorkloadOptions(PaddedSizeOptions, PassOptions, CacheDtypeOptions, total=False):
    pass


def workload_of(model: ModelSpec, options: Mapping[str, Any], **defaults: Any) -> Workload:
    """Return the workload that the options of a command describe; `defaults` are those of the command.

    Raises AttncalcError as `read_workload` does.
    """
    return read_workload(model, **{**defaults, **given(options, _WorkloadOptions)})


def read_workload(
    model: ModelSpec,
    *,
    batch: Count | None = None,
    context: Count | None = None,
    source_context: Count | None = None,
    lengths: str | Sequence[Count] | None = None,
    phase: str = "decode",
    past: Count = 0,
    mask: str | Mask | None = None,
    dtype: str | None = None,
    kv_dtype: str | None = None,
) -> Workload:
    """Return the workload; the model's defaults replace options that are left out.

    Raises AttncalcError if an option is not a number, a mask or a dtype, or two options exclude each other.
    """
    if lengths is not None and (batch, context) != (None, None):
        other = "--batch" if batch is not None else "--context"
        raise AttncalcError(
            f"--lengths cannot be combined with {other}", "the lengths set batch and context: leave the other out"
        )
    options: WorkloadOptions = {
        "source": read_source(model, source_context),
        "lengths": None if lengths is None else read_lengths(lengths),
        "mask": None if mask is None else Mask.parse(str(mask)),
        "dtype": None if dtype is None else dtype_of(dtype_name(dtype), compute=True).name,
        "kv_dtype": None if kv_dtype is None else dtype_of(dtype_name(kv_dtype)).name,
        "assumed": _assumptions(
            model, has_context=context is not None or lengths is not None, has_source=source_context is not None
        ),
    }
    sequences = 1 if batch is None else parse_count(str(batch), "--batch")
    tokens = model.max_context or DEFAULT_CONTEXT
    if context is not None:
        tokens = parse_count(str(context), "--context")
    in_cache = 0 if str(past).strip() == "0" else parse_count(str(past), "--past")
    if in_cache and lengths is not None:
        raise AttncalcError("--past cannot be combined with --lengths", "leave one of them out")
    if in_cache and phase != "prefill":
        raise AttncalcError(f"--past cannot be combined with --phase {truncate(phase)}", "give it with --phase prefill")
    if _phase(phase, "--phase") == "prefill":
        return Workload.prefill(sequences, tokens, past=in_cache, **options)
    make = Workload.decode if phase == "decode" else Workload.train
    return make(sequences, tokens, **options)


def _assumptions(model: ModelSpec, *, has_context: bool, has_source: bool) -> tuple[str, ...]:
    """Return a note per number that neither the call nor the model has."""
    notes = []
    if not has_context and model.max_context is None:
        notes.append(f"The model has no maximum context: {DEFAULT_CONTEXT} tokens are assumed; -c sets it.")
    if not has_source and model.encoder and model.encoder.max_context is None:
        notes.append(
            f"The encoder has no maximum context: {DEFAULT_CONTEXT} tokens are assumed; --source-context sets it."
        )
    return tuple(notes)


def read_source(model: ModelSpec, source: Count | None) -> int | None:
    """Return the tokens on the encoder's side, the encoder's maximum by default; None without an encoder.

    Raises AttncalcError if a number is given and the model has no encoder.
    """
    tokens = None if source is None else parse_count(str(source), "--source-context")
    if tokens is None and model.encoder:
        tokens = model.encoder.max_context or DEFAULT_CONTEXT
    check_source(model, tokens)
    return tokens


def read_lengths(lengths: str | Sequence[Count]) -> tuple[int, ...]:
    """Return the lengths in '512,300,128' or (512, 300, 128). Raises AttncalcError if one is not a number."""
    parts = split_list(lengths, "--lengths") if isinstance(lengths, str) else lengths
    return tuple(parse_count(str(part), "--lengths") for part in parts)
