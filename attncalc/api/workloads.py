"""The workload of a call: batch, context, phase and dtypes, with the model's defaults for what is left out."""

# Without `from __future__ import annotations`, a TypedDict has its types as objects, and not as strings.

from collections.abc import Sequence
from typing import TypedDict

from ..cost.common import check_source
from ..errors import AttncalcError
from ..model import ModelSpec
from ..ranges import split_list
from ..units import dtype as dtype_of
from ..units import parse_count, truncate
from ..workload import Mask, Workload, WorkloadOptions
from .models import Count

DEFAULT_CONTEXT = 512
"""Tokens of context if neither the call nor the model has a number: positions are sinusoidal or relative."""


class SizeOptions(TypedDict, total=False):
    """The number of sequences and of tokens.

    Attributes:
        batch: sequences in the batch; by default 1.
        context: tokens of context; by default the model's maximum.
        source_context: tokens on the encoder's side; by default the encoder's maximum.
    """

    batch: Count | None
    context: Count | None
    source_context: Count | None


class PaddedSizeOptions(SizeOptions, total=False):
    """The number of sequences and of tokens, or the lengths in a padded batch.

    Attributes:
        lengths: unpadded lengths of a padded batch, instead of batch and context: '512,300,128' or (512, 300, 128).
    """

    lengths: str | Sequence[Count] | None


class PassOptions(TypedDict, total=False):
    """The phase and its mask.

    Attributes:
        phase: 'prefill' (the default), 'decode' (one step at the context) or 'train'.
        past: tokens of the context that are already in the cache.
        mask: 'causal', 'bidirectional' or 'prefix:N'; by default the model's own.
    """

    phase: str
    past: Count
    mask: str | Mask | None


class DtypeOptions(TypedDict, total=False):
    """The dtype of weights and activations.

    Attributes:
        dtype: by default that of the released model.
    """

    dtype: str | None


class CacheDtypeOptions(DtypeOptions, total=False):
    """The dtypes of weights and activations, and of the cache.

    Attributes:
        kv_dtype: 'fp32', 'fp16', 'bf16', 'fp8', 'int8', 'int4', 'fp4', ...; by default `dtype`.
    """

    kv_dtype: str | None


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
    if phase == "prefill":
        return Workload.prefill(sequences, tokens, past=in_cache, **options)
    if phase == "decode":
        return Workload.decode(sequences, tokens, **options)
    if phase == "train":
        return Workload.train(sequences, tokens, **options)
    raise AttncalcError(f"there is no phase '{truncate(phase)}'", "known: prefill, decode, train")


def dtype_name(dtype: object) -> str:
    """Return the name of a dtype, which may be one of torch: 'bfloat16' for torch.bfloat16."""
    return str(dtype).removeprefix("torch.")


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
