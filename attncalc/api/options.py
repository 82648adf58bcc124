"""The options of a model, of a workload, and of the commands about costs. Those of `fit` are in fit_options.py."""

# Without `from __future__ import annotations`, a TypedDict has its types as objects, and not as strings.

from collections.abc import Sequence
from typing import Annotated, TypedDict, get_args

from ..attention import Variant
from ..engines.options import SplitCacheOptions
from ..options import CACHE_DTYPE, COUNT, COUNT_OR_ZERO, Count, Option, Parser, choice, dtype_name, options_of
from ..ranges import split_list
from ..units import dtype, parse_count
from ..what_if import parse_pattern
from ..workload import Mask, Recompute

OTHER_CONTEXTS = (
    *(
        f"--{first}{word}{last}"
        for first in ("", "max-", "model-max-")
        for word in ("context", "ctx", "seq", "sequence")
        for last in ("", "-len", "-length", "-size", "-window")
        if first + word + last != "context"
    ),
    *("--num-ctx", "--n-ctx", "--seqlen", "--max-seqlen", "--cutoff-len"),
)
"""Other tools' names of --context: '--ctx-size', '--max-seq-length'."""
PHASES = ("prefill", "decode", "train")


def _attention(text: str, name: str) -> str:
    Variant.parse(text)
    return text


_TP = Option(
    *("--tp", "--tensor-parallel-size"),
    also=("-tp", "--tp-size"),
    parse=COUNT,
    help="Tensor-parallel devices; figures are then per device. Default: 1.",
    common=True,
)


class WhatIfOptions(TypedDict, total=False):
    """What if a model had another attention or other sizes."""

    attention: Annotated[
        str | None,
        Option(
            "--attention",
            parse=Parser(_attention, "KIND"),
            common=True,
            help="What if the model had mha, mqa, gqa:N (N KV heads), mla:R (a latent of R) or linear.",
        ),
    ]
    layers: Annotated[
        Count | None,
        Option(
            "--layers",
            also=("--n-layer", "--n-layers", "--num-layers", "--num-hidden-layers"),
            parse=COUNT,
            help="What if it had N layers.",
        ),
    ]
    heads: Annotated[
        Count | None,
        Option(
            "--heads",
            also=("--n-head", "--n-heads", "--num-heads", "--num-attention-heads", "--q-heads"),
            parse=COUNT,
            help="What if it had N query heads.",
        ),
    ]
    kv_heads: Annotated[
        Count | None,
        Option(
            "--kv-heads",
            also=("--n-kv-head", "--n-kv-heads", "--num-kv-heads", "--num-key-value-heads", "--num-query-groups"),
            parse=COUNT,
            help="What if it had N KV heads.",
        ),
    ]
    head_dim: Annotated[
        Count | None,
        Option(
            "--head-dim",
            also=("--d-head", "--head-size", "--kv-channels"),
            parse=COUNT,
            help="What if heads had N elements.",
        ),
    ]
    d_model: Annotated[
        Count | None,
        Option(
            "--d-model",
            also=("--hidden-size", "--hidden", "--dmodel", "--n-embd", "--n-embed", "--embedding-dim", "--dim"),
            parse=COUNT,
            help="What if it had N elements per token (hidden_size).",
        ),
    ]
    d_ff: Annotated[
        Count | None,
        Option(
            "--d-ff",
            also=("--intermediate-size", "--ffn-hidden-size", "--n-inner", "--ffn-dim", "--mlp-dim"),
            parse=COUNT,
            help="What if MLPs, or each expert, had N elements (intermediate_size).",
        ),
    ]
    vocab_size: Annotated[
        Count | None,
        Option(
            "--vocab-size",
            also=("--vocab", "--padded-vocab-size", "--n-vocab"),
            parse=COUNT,
            help="What if its vocabulary had N tokens.",
        ),
    ]
    window: Annotated[
        Count | None, Option("--window", parse=COUNT, help="What if layers saw the last N tokens: sliding windows.")
    ]
    pattern: Annotated[
        str | None,
        Option(
            "--pattern",
            parse=Parser(parse_pattern, "PATTERN"),
            axis=False,
            help="Which layers have the window, as '5 local, 1 global', repeated.",
        ),
    ]


class ReadOptions(TypedDict, total=False):
    """How a model is read."""

    assume_grouped: Annotated[
        bool,
        Option(
            "--assume-grouped", help="Read a config.json of an unknown model_type as plain grouped attention; a guess."
        ),
    ]


class ModelOptions(WhatIfOptions, ReadOptions, total=False):
    """The options that change a model."""

    revision: Annotated[
        str | None,
        Option(
            "--revision",
            metavar="REVISION",
            axis=False,
            help="Branch, tag or commit of org/name on the hub. Default: main.",
        ),
    ]


class ComparedModelOptions(ReadOptions, total=False):
    """The options of each model of a comparison."""

    tp: Annotated[Count | None, _TP]


class ShardedModelOptions(ModelOptions, total=False):
    """The options that change a model, and that split it."""

    tp: Annotated[Count | None, _TP]


LENGTHS = Parser(lambda text, name: tuple(parse_count(part, name) for part in split_list(text, name)), "N,N,...")


class SizeOptions(TypedDict, total=False):
    """The number of sequences and of tokens."""

    batch: Annotated[
        Count | None,
        Option(
            *("--batch", "-b"),
            also=("--batch-size", "--bs", "--bsz", "--max-batch-size"),
            parse=COUNT,
            help="Sequences in the batch. Default: 1.",
            common=True,
        ),
    ]
    context: Annotated[
        Count | None,
        Option(
            *("--context", "-c", "--max-model-len"),
            also=OTHER_CONTEXTS,
            parse=COUNT,
            common=True,
            help="Tokens of context, as 4096, 128k (128,000) or 128K (131,072). Default: the model's maximum.",
        ),
    ]
    source_context: Annotated[
        Count | None,
        Option("--source-context", parse=COUNT, help="Tokens on the encoder's side. Default: the encoder's maximum."),
    ]


class PaddedSizeOptions(SizeOptions, total=False):
    """The number of sequences and of tokens, or the lengths in a padded batch."""

    lengths: Annotated[
        str | Sequence[Count] | None,
        Option(
            "--lengths",
            parse=LENGTHS,
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
            parse=choice(*PHASES, metavar="PHASE"),
            common=True,
            help="prefill, decode (one step at the context) or train. Default: prefill.",
        ),
    ]
    past: Annotated[
        Count,
        Option("--past", parse=COUNT_OR_ZERO, help="Tokens of the context that are already in the cache. Default: 0."),
    ]
    mask: Annotated[
        str | Mask | None,
        Option(
            "--mask",
            parse=Parser(lambda text, name: str(Mask.parse(text)), "MASK"),
            help="causal, bidirectional or prefix:N. Default: the model's own.",
        ),
    ]


class TrainingOptions(TypedDict, total=False):
    """How a training step is done."""

    recompute: Annotated[
        str,
        Option(
            "--recompute",
            also=("--recompute-granularity", "--ac", "--activation-checkpoint-mode"),
            parse=choice(*get_args(Recompute)),
            help="What the backward pass recomputes: none, selective (QK and PV), op (every second matmul, as in "
            "torchtitan) or full (layers). Default: none.",
        ),
    ]


class DtypeOptions(TypedDict, total=False):
    """The dtype of weights and activations."""

    dtype: Annotated[
        str | None,
        Option(
            "--dtype",
            also=("--precision", "--torch-dtype"),
            parse=Parser(lambda text, name: dtype(dtype_name(text), compute=True).name, "DTYPE"),
            help="Dtype of weights and activations. Default: as released.",
        ),
    ]


class CacheDtypeOptions(DtypeOptions, total=False):
    """The dtypes of weights and activations, and of the cache."""

    kv_dtype: Annotated[
        str | None,
        Option(
            *("--kv-dtype", "--kv-cache-dtype"),
            also=("--cache-dtype", "--cache-type", "--kv-cache-type", "--kv-type"),
            parse=CACHE_DTYPE,
            common=True,
            help="Dtype of the cache: fp32, fp16, bf16, fp8, int8, int4, fp4, ... Default: --dtype, or the engine's.",
        ),
    ]


class KVCacheOptions(ShardedModelOptions, PaddedSizeOptions, CacheDtypeOptions, SplitCacheOptions, total=False):
    """The options of `attncalc kv`."""

    engine: Annotated[
        str,
        Option(
            "--engine",
            metavar="ENGINE",
            help="How the cache is stored: ideal (a lower bound) or transformers. Default: ideal.",
        ),
    ]


class FlopsOptions(ShardedModelOptions, PaddedSizeOptions, PassOptions, TrainingOptions, total=False):
    """The options of `attncalc flops`."""


class ActivationsOptions(ShardedModelOptions, PaddedSizeOptions, PassOptions, DtypeOptions, total=False):
    """The options of `attncalc memory`."""


class IntensityOptions(ShardedModelOptions, SizeOptions, CacheDtypeOptions, total=False):
    """The options of a decode step, as those of `attncalc compare`."""


class CompareOptions(ComparedModelOptions, CacheDtypeOptions, total=False):
    """The options of `attncalc compare`."""

    attention: Annotated[
        str | Sequence[str] | None,
        Option(
            "--attention",
            metavar="KIND",
            common=True,
            help="For one model: one more row, as mla:512; may be repeated.",
            repeated=True,
        ),
    ]
    batch: Annotated[Count | None, options_of(SizeOptions)["batch"]]
    context: Annotated[
        Count | Sequence[Count] | None,
        options_of(SizeOptions)["context"].but(
            metavar="N,N,...",
            parse=None,
            help="Tokens of context, as 32K; several as 4K,32K,128K or 4K:128K:x2. Default: the longest of all models.",
        ),
    ]
    source_context: Annotated[Count | None, options_of(SizeOptions)["source_context"]]
