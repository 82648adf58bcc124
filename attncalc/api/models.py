"""The model of a call: its name or its config, and the options that change it."""

# Without `from __future__ import annotations`, a TypedDict has its types as objects, and not as strings.

from collections.abc import Mapping
from typing import Any, TypedDict

from ..config import ModelLike, load
from ..errors import AttncalcError
from ..model import ModelSpec
from ..units import parse_count

Count = int | str
"""A whole number: 4096, '4_096', '4k' (4,000) or '4K' (4,096)."""


class ModelOptions(TypedDict, total=False):
    """The options that change a model.

    Attributes:
        attention: what if: 'mha', 'mqa', 'gqa:N' (N KV heads) or 'mla:R' (a latent of R).
        revision: branch, tag or commit of 'org/name' on the hub.
        assume_grouped: read a config.json of an unknown model_type as plain grouped attention; a guess.
    """

    attention: str | None
    revision: str | None
    assume_grouped: bool


class ComparedModelOptions(TypedDict, total=False):
    """The options of each model of a comparison, as in ShardedModelOptions."""

    tp: Count | None
    assume_grouped: bool


class ShardedModelOptions(ModelOptions, total=False):
    """The options that change a model, and that split it.

    Attributes:
        tp: tensor-parallel devices; figures are then per device.
    """

    tp: Count | None


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
        attention: As in ModelOptions.
        revision: As in ModelOptions.
        assume_grouped: As in ModelOptions.
        tp: As in ShardedModelOptions.

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


def as_text(value: object) -> str:
    """Return an option as the command line has it: '3,1' for (3, 1)."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple | range) else str(value)


def given(options: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    """Return the options that a TypedDict has, without those that are None."""
    return {name: options[name] for name in kind.__annotations__ if options.get(name) is not None}
