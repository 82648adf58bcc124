"""The options that several questions have: of a model, and of a workload."""

import re
from collections.abc import Sequence
from itertools import product
from typing import Annotated, TypedDict, get_args

from ..attention import Variant
from ..config.size_names import NAMES
from ..options import (
    CACHE_DTYPE,
    COUNT,
    COUNT_OR_ZERO,
    Count,
    Option,
    Parser,
    With,
    choice,
    dtype_name,
    options_of,
)
from ..ranges import split_list
from ..units import dtype, long_option, parse_count
from ..what_if import parse_pattern
from ..workload import Mask, Recompute

# Other tools' names of --context: '--ctx-size', '--max-seq-length'.
_PARTS_OF_CONTEXTS = product(
    ("", "max-", "model-max-"),
    ("context", "ctx", "seq", "sequence"),
    ("", "-len", "-length", "-size", "-window"),
)
OTHER_CONTEXTS = " ".join(
    [
        "--num-ctx --n-ctx --seqlen --max-seqlen --cutoff-len --model-max-length",
        *(f"--{''.join(parts)}" for parts in _PARTS_OF_CONTEXTS if parts != ("", "context", "")),
    ]
)
PHASES = ("prefill", "decode", "train")


def _named(size: str, *, but: str = "") -> str:
    """Return the names that a config.json has for a decoder's size, as options; `but` is the
    option's own name.
    """
    names = set(next(names for names in NAMES if size in names)) - {but}
    options = [long_option(name) for name in names if not re.search("coder|blocks", name)]
    return " ".join(sorted(options))


def _attention(text: str, name: str) -> str:
    Variant.parse(text)
    return text


TP = Option(
    "--tp",
    "--tensor-parallel-size",
    also=("-tp", "--tp-size"),
    parse=COUNT,
    help="Tensor-parallel devices; figures are then per device. Default: 1.",
    common=True,
)


class AttentionOptions(TypedDict, total=False):
    """What if a model had another attention."""

    attention: Annotated[
        str | None,
        Parser(_attention, "KIND"),
        "What if the model had mha, mqa, gqa:N (N KV heads), mla:R (a latent of R) or linear.",
        With(common=True),
    ]


class OtherSizeOptions(TypedDict, total=False):
    """What if a model had other sizes."""

    layers: Annotated[
        Count | None,
        COUNT,
        "What if it had N layers; encoder and decoder have N each.",
        With(also=_named("num_hidden_layers")),
    ]
    heads: Annotated[
        Count | None,
        COUNT,
        "What if it had N query heads.",
        With(also=f"{_named('num_attention_heads')} --q-heads"),
    ]
    kv_heads: Annotated[
        Count | None, COUNT, "What if it had N KV heads.", With(also=_named("num_key_value_heads"))
    ]
    head_dim: Annotated[
        Count | None,
        COUNT,
        "What if heads had N elements.",
        With(also=_named("head_dim", but="head_dim")),
    ]
    d_model: Annotated[
        Count | None,
        COUNT,
        "What if it had N elements per token (hidden_size).",
        With(also=f"{_named('hidden_size', but='d_model')} --hidden --dmodel"),
    ]
    d_ff: Annotated[
        Count | None,
        COUNT,
        "What if MLPs, or each expert, had N elements (intermediate_size).",
        With(also=_named("intermediate_size", but="d_ff")),
    ]
    experts: Annotated[
        Count | None,
        COUNT,
        "What if each mixture had N routed experts.",
        With(also=_named("num_experts")),
    ]
    experts_per_token: Annotated[
        Count | None,
        COUNT,
        "What if a token used N of the routed experts.",
        With(also=_named("num_experts_per_tok", but="experts_per_token")),
    ]
    vocab_size: Annotated[
        Count | None,
        COUNT,
        "What if its vocabulary had N tokens.",
        With(also=f"{_named('vocab_size', but='vocab_size')} --vocab"),
    ]
    tie_word_embeddings: Annotated[
        bool | None,
        "What if the lm head shared the embedding's matrix, or not.",
        With(names="--tie-word-embeddings/--no-tie-word-embeddings"),
    ]
    window: Annotated[
        Count | None,
        COUNT,
        "What if windows had N tokens. Without windows, all layers get one.",
        With(also=f"{_named('sliding_window')} --swa"),
    ]
    pattern: Annotated[
        str | None,
        Parser(parse_pattern, "PATTERN"),
        "Kinds of layers, repeated: '5 local, 1 global' has windows, '3 linear, 1 mla:512' other "
        "attention.",
        With(axis=False),
    ]


class WhatIfOptions(AttentionOptions, OtherSizeOptions, total=False):
    """What if a model had another attention or other sizes."""


class ReadOptions(TypedDict, total=False):
    """How a model is read."""

    assume_grouped: Annotated[
        bool, "Read a config.json of an unknown model_type as plain grouped attention; a guess."
    ]


class ModelOptions(WhatIfOptions, ReadOptions, total=False):
    revision: Annotated[
        str | None,
        "Branch, tag or commit of org/name on the hub. Default: main.",
        With(metavar="REVISION", axis=False),
    ]


class ShardedModelOptions(ModelOptions, total=False):
    """The options that change a model, and that split it."""

    tp: Annotated[Count | None, TP]


LENGTHS = Parser(
    lambda text, name: tuple(parse_count(part, name) for part in split_list(text, name)), "N,N,..."
)


class SizeOptions(TypedDict, total=False):
    """The number of sequences and of tokens."""

    batch: Annotated[
        Count | None,
        COUNT,
        "Sequences in the batch. Default: 1.",
        With(names="--batch -b", also="--batch-size --bs --bsz --max-batch-size", common=True),
    ]
    context: Annotated[
        Count | None,
        COUNT,
        "Tokens of context, as 4096, 128k (128,000) or 128K (131,072). Default: the model's "
        "maximum.",
        With(names="--context -c --max-model-len", also=OTHER_CONTEXTS, common=True),
    ]
    source_context: Annotated[
        Count | None, COUNT, "Tokens on the encoder's side. Default: the encoder's maximum."
    ]


class PaddedSizeOptions(SizeOptions, total=False):
    """The number of sequences and of tokens, or the lengths in a padded batch. A list of numbers is
    a row for each.
    """

    batch: Annotated[
        Count | None,
        options_of(SizeOptions)["batch"].but(
            help="Sequences in the batch; a list, as 1,8, is a row each. Default: 1.", common=True
        ),
    ]
    context: Annotated[
        Count | None,
        options_of(SizeOptions)["context"].but(
            help="Tokens of context, as 4096, 128k (128,000) or 128K (131,072); a list, as 4K,8K, "
            "is a row each. Default: the model's maximum.",
            common=True,
        ),
    ]
    lengths: Annotated[
        str | Sequence[Count] | None,
        LENGTHS,
        "Unpadded lengths of a padded batch, as 512,300,128; instead of -b and -c.",
        With(axis=False),
    ]


class PassOptions(TypedDict, total=False):
    """The phase and its mask."""

    phase: Annotated[
        str,
        choice(*PHASES, metavar="PHASE"),
        "prefill, decode (one step at the context) or train (FLOPs only). Default: prefill.",
        With(common=True),
    ]
    past: Annotated[
        Count, COUNT_OR_ZERO, "Tokens of the context that are already in the cache. Default: 0."
    ]
    mask: Annotated[
        str | Mask | None,
        Parser(lambda text, name: str(Mask.parse(text)), "MASK"),
        "causal, bidirectional or prefix:N. Default: the model's own.",
    ]


class TrainingOptions(TypedDict, total=False):
    """How a training step is done."""

    recompute: Annotated[
        str,
        choice(*get_args(Recompute)),
        "What the backward pass recomputes: none, selective (QK and PV), op (every second "
        "matmul, as in "
        "torchtitan) or full (layers: gradient checkpointing). Default: none; 'train' on "
        "quantized weights: full.",
        With(
            also="--recompute-granularity --activations-checkpoint-granularity --ac "
            "--activation-checkpoint-mode"
        ),
    ]


class DtypeOptions(TypedDict, total=False):
    """The dtype of weights and activations."""

    dtype: Annotated[
        str | None,
        Parser(
            lambda text, name: (
                None if text == "auto" else dtype(dtype_name(text), compute=True).name
            ),
            "DTYPE",
        ),
        "Dtype of weights and activations. Default: as released.",
        With(also="--precision --torch-dtype"),
    ]


class CacheDtypeOptions(DtypeOptions, total=False):
    """The dtypes of weights and activations, and of the cache."""

    kv_dtype: Annotated[
        str | None,
        CACHE_DTYPE,
        "Dtype of the cache: fp32, fp16, bf16, fp8, int8, int4, fp4, q8_0, q4_0, ... Default: "
        "--dtype, or the engine's.",
        With(
            names="--kv-dtype --kv-cache-dtype",
            also="--cache-dtype --cache-type --kv-cache-type --kv-type",
            common=True,
        ),
    ]
