"""The model of a call: its name or its config, and the options that change it."""

# Without `from __future__ import annotations`, a TypedDict has its types as objects, and not as strings.

from typing import Annotated, TypedDict

from ..attention import Variant
from ..config import ModelLike, load
from ..errors import AttncalcError
from ..model import ModelSpec
from ..options import COUNT, Count, Option, Parser
from ..units import parse_count


def _attention(text: str, name: str) -> str:
    Variant.parse(text)
    return text


_ASSUME_GROUPED = Option(
    "--assume-grouped", help="Read a config.json of an unknown model_type as plain grouped attention; a guess."
)
_TP = Option(
    *("--tp", "--tensor-parallel-size"),
    metavar="N",
    parse=COUNT,
    help="Tensor-parallel devices; figures are then per device. Default: 1.",
    common=True,
)


class WhatIfOptions(TypedDict, total=False):
    """How a model is read, and what if it had another attention."""

    attention: Annotated[
        str | None,
        Option(
            "--attention",
            metavar="KIND",
            parse=Parser(_attention),
            help="What if the model had mha, mqa, gqa:N (N KV heads) or mla:R (a latent of R).",
            common=True,
        ),
    ]
    assume_grouped: Annotated[bool, _ASSUME_GROUPED]


class ModelOptions(WhatIfOptions, total=False):
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


class ComparedModelOptions(TypedDict, total=False):
    """The options of each model of a comparison."""

    tp: Annotated[Count | None, _TP]
    assume_grouped: Annotated[bool, _ASSUME_GROUPED]


class ShardedModelOptions(ModelOptions, total=False):
    """The options that change a model, and that split it."""

    tp: Annotated[Count | None, _TP]


def read_model(
    model: ModelLike,
    *,
    attention: str | None = None,
    revision: str | None = None,
    assume_grouped: bool = False,
    tp: Count | None = None,
) -> ModelSpec:
    """Return the model, with another attention and one device's share of it if these are given.

    Args:
        model: As in `load`.
        attention: As `--attention`.
        revision: As `--revision`.
        assume_grouped: As `--assume-grouped`.
        tp: As `--tp`.

    Raises AttncalcError if there is no such model, its file is not valid, or it cannot have that attention or be split.
    """
    spec = load(with_revision(model, revision), assume_grouped=assume_grouped)
    if attention is not None:
        spec = spec.with_attention(attention)
    return spec if tp is None else spec.shard(parse_count(str(tp), "--tp"))


def with_revision(model: ModelLike, revision: str | None) -> ModelLike:
    """Return the name of the model with its revision. Raises AttncalcError if the model is not org/name on the hub."""
    if revision is None:
        return model
    from ..config.hub import with_revision as named

    if not isinstance(model, str):
        raise AttncalcError("--revision needs org/name on the hub", "leave it out")
    return named(model, revision)
