"""The layers on each pipeline stage, as models of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ..engines.pipeline import cut, stage_sizes
from ..errors import AttncalcError
from ..model import Layers, ModelSpec


def split_into_stages(
    model: ModelSpec, pp: int, sizes: Callable[[int, int], Sequence[int]] = stage_sizes
) -> list[ModelSpec]:
    """Return the model that each of `pp` pipeline stages has.

    The embedding is on the first stage, the head on the last; a head that is tied to the embedding is a copy there.

    Args:
        model: One tensor-parallel device's share.
        pp: The number of stages.
        sizes: The engine's function (layers, pp) -> the number of layers on each stage.

    Raises AttncalcError if there are fewer layers than stages, or the model has an encoder.
    """
    if pp == 1:
        return [model]
    if model.encoder:
        raise AttncalcError(
            f"--pp {pp}: an encoder-decoder cannot be split into pipeline stages", "leave --pp out; --tp splits it"
        )
    return parts_of(model, sizes(model.main.n_layers, pp), embedding_first=True)


def parts_of(
    model: ModelSpec, sizes: Sequence[int], *, embedding_first: bool, numbered: bool = False
) -> list[ModelSpec]:
    """Return the model cut into consecutive parts of those sizes, of which the last has the head.

    Args:
        model: One tensor-parallel device's share.
        sizes: The layers of each part.
        embedding_first: Whether the first part has the embedding and other tables.
        numbered: Whether the order and the numbers of the layers must stay known.
    """
    numbered = numbered or model.quantization is not None
    models, start = [], model.first_layer
    for i, layers in enumerate(_cut(model, sizes)):
        part = _part(model, layers, first=embedding_first and i == 0, last=i == len(sizes) - 1, numbered=numbered)
        if not layers or start > model.first_layer:
            part = _without_relative_positions(part)
        models.append(dataclasses.replace(part, first_layer=start if numbered else 0))
        start += len(layers)
    return models


def _cut(model: ModelSpec, sizes: Sequence[int]) -> list[Sequence[Layers]]:
    """Return the model's layers, one entry per layer, cut into consecutive parts of those sizes."""
    return cut([dataclasses.replace(run, count=1) for run in model.main.layers for _ in range(run.count)], sizes)


def _without_relative_positions(part: ModelSpec) -> ModelSpec:
    """Return a part without the model's first layer, which has the relative positions of all layers, as in T5."""
    return dataclasses.replace(part, stacks=(dataclasses.replace(part.main, relative_position_buckets=None),))


def _part(model: ModelSpec, layers: Sequence[Layers], *, first: bool, last: bool, numbered: bool) -> ModelSpec:
    """Return the model with these layers; `first` has the embedding and other tables, `last` norm and head."""
    stack = dataclasses.replace(model.main, layers=tuple(layers))
    # A quantization may leave out single layers, whose order must stay known.
    gathered = stack.layers if numbered else stack.distinct()
    stack = dataclasses.replace(stack, layers=gathered, final_norm=last and stack.final_norm)
    head = model.head if last else None
    if not first:
        stack = dataclasses.replace(stack, learned_positions=None, embedding_norm=False)
    if head and head.kind == "lm" and not first:  # `vocab_size` counts its matrix, so the head must not do so again
        head = head._replace(tied=True)
    return dataclasses.replace(
        model,
        stacks=(stack,),
        head=head,
        vocab_size=model.vocab_size if first or (head and head.kind == "lm") else None,
        token_types=model.token_types if first else None,
        extra=model.extra if first else (),
        stored=None,
    )
