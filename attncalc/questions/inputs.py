"""From the options of a call to its model and its workload."""

import dataclasses
import re
import shlex
from collections.abc import Mapping
from typing import Any

from ..config import ModelLike, load
from ..cost.common import check_source
from ..engines.ds_mla import ds_mla_problem
from ..engines.options import SplitCacheOptions
from ..errors import AttncalcError, clash
from ..model import ModelSpec
from ..options import options_of, parsed
from ..ranges import parse_counts
from ..units import DS_MLA, count, truncate
from ..what_if import OF_SIZES, model_of_sizes, what_if
from ..workload import Mask, Workload, WorkloadOptions
from .options import (
    CacheDtypeOptions,
    PaddedSizeOptions,
    PassOptions,
    ShardedModelOptions,
    TrainingOptions,
    WhatIfOptions,
)

# Tokens of context if neither the call nor the model has a number: positions are sinusoidal or
# relative.
DEFAULT_CONTEXT = 512


class _WorkloadOptions(
    PaddedSizeOptions,
    PassOptions,
    TrainingOptions,
    CacheDtypeOptions,
    SplitCacheOptions,
    total=False,
):
    """All options of a workload."""


def read_model(
    model: ModelLike | None, options: Mapping[str, Any], kind: Any = ShardedModelOptions
) -> ModelSpec:
    """Return the model, with another attention and one device's share of it if the options say so.

    Without a model, the options have its sizes.

    `kind` is the TypedDict of the options that are of the model. Raises AttncalcError if there is
    no such model, its file is not valid, or it cannot have that attention or be split.
    """
    values = parsed(options, kind)
    model = model_of_sizes(values) if model is None else model
    spec = load(
        with_revision(model, values.get("revision")), assume_grouped="assume_grouped" in values
    )
    changes = {name: values[name] for name in WhatIfOptions.__annotations__ if name in values}
    changed = what_if(spec, **changes)
    if changed != spec:
        title = f"{spec.title} with {' '.join(_as_typed(name, options[name]) for name in changes)}"
        if spec.title == OF_SIZES:
            spec = changed
        else:
            notes = (*changed.notes, *_width_notes(changed, changes))
            spec = dataclasses.replace(changed, title=title, notes=notes)
    if "tp" in values:
        return spec.shard(values["tp"])
    return spec


def _width_notes(changed: ModelSpec, changes: Mapping[str, Any]) -> list[str]:
    """Return a note that other heads keep their width, unless an option sets it."""
    if "heads" not in changes or "head_dim" in changes:
        return []
    width = int(changed.main.leading.widths().d_qk)
    return [
        f"--heads {changes['heads']}: each head keeps its width of {width}; --head-dim sets it."
    ]


def _as_typed(name: str, value: object) -> str:
    """Return an option of `WhatIfOptions` with its value, as the command line has it."""
    names = options_of(WhatIfOptions)[name].names[0].split("/")
    if value is False:
        return names[1]
    if value is True:
        return names[0]
    return f"{names[0]} {shlex.quote(str(value))}"


def with_revision(model: ModelLike, revision: str | None) -> ModelLike:
    """Return the name of the model with its revision. Raises AttncalcError if the model is not
    org/name on the hub.
    """
    if revision is None:
        return model
    from ..config.hub import with_revision as named

    if not isinstance(model, str):
        raise AttncalcError("--revision needs org/name on the hub", "leave it out")
    return named(model, revision)


def read_workload(model: ModelSpec, options: Mapping[str, Any]) -> Workload:
    """Return the workload that the options describe; the model's defaults replace those that are
    left out.

    Raises AttncalcError if an option is not a number, a mask or a dtype, or two options exclude
    each other.
    """
    values = parsed(options, _WorkloadOptions)
    if values.keys() & SplitCacheOptions.__annotations__:
        values["kv_dtype"] = _one_cache_dtype(values)
    for name in ("batch", "context"):
        if "lengths" in values and name in values:
            raise clash(
                "--lengths", f"--{name}", "the lengths set batch and context: leave the other out"
            )
    if values.get("kv_dtype") == DS_MLA:
        _check_ds_mla(model)
    phase = values.get("phase", "decode")
    past = values.get("past", 0)
    of_workload: WorkloadOptions = {
        "source": read_source(model, values.get("source_context")),
        "lengths": values.get("lengths"),
        "mask": Mask.parse(values["mask"]) if "mask" in values else None,
        "dtype": values.get("dtype"),
        "kv_dtype": values.get("kv_dtype"),
        "recompute": values.get("recompute", "none"),
        "assumed": (
            *_assumptions(
                model,
                has_context=bool({"context", "lengths"} & values.keys()),
                has_source="source_context" in values,
            ),
            *_thousands(options.get("context")),
        ),
    }
    if past and "lengths" in values:
        raise clash("--past", "--lengths")
    if past and phase != "prefill":
        raise clash("--past", f"--phase {truncate(phase)}", "give it with --phase prefill")
    batch = values.get("batch", 1)
    context = values.get("context", model.max_context or DEFAULT_CONTEXT)
    if phase == "prefill":
        return Workload.prefill(batch, context, past=past, **of_workload)
    make = Workload.decode if phase == "decode" else Workload.train
    return make(batch, context, **of_workload)


# The most rows of a list of contexts and batches.
MOST_ROWS = 1000


def each_size(options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the options for each context and batch of their lists, contexts first; one without
    lists.

    Raises AttncalcError for a number that cannot be read, and for more than MOST_ROWS rows.
    """
    lists = []
    for name in ("batch", "context"):
        value = options.get(name)
        is_list = isinstance(value, str) and any(sign in value for sign in ",:")
        lists.append(parse_counts(str(value), f"--{name}") if is_list else [value])
    batches, contexts = lists
    rows = len(batches) * len(contexts)
    if rows > MOST_ROWS:
        raise AttncalcError(
            f"{count(len(contexts))} contexts and {count(len(batches))} batches are "
            f"{count(rows)} rows, and {count(MOST_ROWS)} are the most",
            "'attncalc sweep' has up to 10 million",
        )
    found = []
    for batch in batches:
        for context in contexts:
            sizes = {"batch": batch, "context": context}
            found.append(
                {**options, **{name: size for name, size in sizes.items() if size is not None}}
            )
    return found


def _thousands(context: object) -> list[str]:
    """Return a note on '32k' tokens, where 32K are often meant; [] for another number."""
    if match := re.fullmatch(r"(\d{1,6})k", str(context)):
        thousands = int(match[1])
    else:
        thousands = 0
    if thousands < 4 or thousands & (thousands - 1):  # no power of two
        return []
    tokens = count(thousands * 1000)
    binary = count(thousands * 1024)
    return [f"{context} is {tokens} tokens, as in vLLM; {thousands}K is {binary}."]


def _one_cache_dtype(values: Mapping[str, Any]) -> str:
    """Return the dtype that K and V share, as llama.cpp's options name it. Raises AttncalcError if
    they differ.
    """
    shared = values.get("kv_dtype") or "fp16"  # None is auto
    k, v = (values.get(name) or shared for name in SplitCacheOptions.__annotations__)
    if k == v and values.get("kv_dtype") and shared != k:
        raise clash(f"--kv-dtype {shared}", f"{k} of both K and V", "give one of them")
    if k != v:
        raise AttncalcError(
            f"K and V are in different dtypes: K in {k}, V in {v}",
            "give one dtype to both; 'attncalc fit MODEL --gpu rtx-4090 -ctk q8_0 -ctv q4_0' has "
            "two dtypes",
        )
    return str(k)


def _check_ds_mla(model: ModelSpec) -> None:
    """Raise AttncalcError if vLLM's fp8_ds_mla, a format of sparse attention, is for other models
    than this one.
    """
    if problem := ds_mla_problem(model):
        raise AttncalcError(
            f"--kv-dtype {DS_MLA} is for models with an indexer (DeepSeek-V3.2) or compressed "
            f"attention (DeepSeek-V4), and {model.title} {problem}",
            "use --kv-dtype fp8",
        )


def _assumptions(model: ModelSpec, *, has_context: bool, has_source: bool) -> tuple[str, ...]:
    """Return a note per number that neither the call nor the model has."""
    notes = []
    if not has_context and model.max_context is None:
        notes.append(f"--context {DEFAULT_CONTEXT} is assumed: the model has no maximum.")
    if not has_source and model.encoder and model.encoder.max_context is None:
        notes.append(f"--source-context {DEFAULT_CONTEXT} is assumed: the encoder has no maximum.")
    return tuple(notes)


def read_source(model: ModelSpec, tokens: int | None) -> int | None:
    """Return the tokens on the encoder's side, the encoder's maximum by default; None without an
    encoder.

    Raises AttncalcError if a number is given and the model has no encoder.
    """
    if tokens is None and model.encoder:
        tokens = model.encoder.max_context or DEFAULT_CONTEXT
    check_source(model, tokens)
    return tokens


def read_call(
    model: ModelLike | None, workload: Workload | None, options: Mapping[str, Any], **defaults: Any
) -> tuple[ModelSpec, Workload]:
    """Return the model and the workload of a call.

    `defaults` are options of the workload that this call has by default. Raises AttncalcError if
    the model or an option is not valid, or a workload is combined with options that describe one.
    """
    spec = read_model(model, options)
    given_options = {name: value for name, value in options.items() if value is not None}
    if workload is None:
        return spec, read_workload(spec, {**defaults, **given_options})
    if not isinstance(workload, Workload):
        raise AttncalcError(
            f"a workload cannot be given as '{truncate(workload)}'",
            "name the option, as context=4096; compare(a, b) has two models, and from which "
            "context one is cheaper",
        )
    for name in given_options:
        if name not in ShardedModelOptions.__annotations__:
            raise clash(name, "a Workload")
    return spec, workload
