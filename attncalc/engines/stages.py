"""A model cut into consecutive parts, as models of their own: pipeline stages, or devices with whole layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ..errors import AttncalcError
from ..model import ModelSpec
from .pipeline import cut, stage_sizes


def split_into_stages(
    model: ModelSpec, pp: int, sizes: Callable[[int, int], Sequence[int]] = stage_sizes
) -> list[ModelSpec]:
    """Return the model that each of `pp` pipeline stages has.

    The embedding is on the first stage, the head on the last; a head that is tied to the embedding is a copy there.
    `model` is one tensor-parallel device's share; `sizes` returns the layers of each stage for (layers, pp).

    Raises AttncalcError if there are fewer layers than stages, or the model has an encoder.
    """
    if pp == 1:
        return [model]
    if model.encoder:
        raise AttncalcError(
            f"--pp {pp}: an encoder-decoder cannot be split into pipeline stages", "leave --pp out; --tp splits it"
        )
    layers = tuple(sizes(model.main.n_layers, pp))
    return model.kept(("stages", layers), lambda: parts_of(model, layers))


def parts_of(
    model: ModelSpec, sizes: Sequence[int], *, output: int | None = None, numbered: bool = False
) -> list[ModelSpec]:
    """Return the model cut into consecutive parts of those sizes. The first has the embedding and other tables.

    Args:
        model: One tensor-parallel device's share.
        output: The index of the part that has the final norm and the head; None for the last.
        numbered: Whether the order and the numbers of the layers must stay known, as with a quantization that leaves
            out single layers.
    """
    numbered = numbered or model.quantization is not None
    output = len(sizes) - 1 if output is None else output
    single = [layer for run in model.main.layers for layer in [dataclasses.replace(run, count=1)] * run.count]
    parts, start = [], model.first_layer
    for i, layers in enumerate(cut(single, sizes)):
        stack = dataclasses.replace(model.main, layers=tuple(layers))
        stack = dataclasses.replace(
            stack,
            layers=stack.layers if numbered else stack.distinct(),
            final_norm=i == output and stack.final_norm,
            learned_positions=None if i else stack.learned_positions,
            embedding_norm=not i and stack.embedding_norm,
        )
        if not layers or start > model.first_layer:  # the first layer has the relative positions of all, as in T5
            stack = dataclasses.replace(stack, relative_position_buckets=None)
        head = model.head if i == output else None
        if head and head.kind == "lm" and i:  # `vocab_size` counts its matrix, so the head must not do so again
            head = head._replace(tied=True)
        part = dataclasses.replace(
            model,
            stacks=(stack,),
            head=head,
            vocab_size=model.vocab_size if not i or (head and head.kind == "lm") else None,
            token_types=None if i else model.token_types,
            extra=() if i else model.extra,
            stored=None,
            first_layer=start if numbered else 0,
        )
        parts.append(part)
        start += len(layers)
    return parts
