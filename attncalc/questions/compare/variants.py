"""The variants of one model that `attncalc compare` has a row for."""

import math
from collections.abc import Sequence

from ...attention import Variant
from ...cost.params import params
from ...errors import AttncalcError
from ...model import ModelSpec
from ...units import count
from ...what_if import what_if

# Query heads of which the divisors are searched, up to the square root.
MAX_HEADS = 10**12


def variants(
    model: ModelSpec, further: Sequence[str] = (), *, same_params: bool = False
) -> dict[str, ModelSpec]:
    """Return `model` as MHA, every GQA, MQA, each of `further` ('mla:512') and as released, by
    name.

    With `same_params` the MLPs of each are as wide as the parameters of `model` allow.

    A number of KV heads that does not divide the query heads, or cannot be split over the devices,
    is left out.

    Raises AttncalcError if one of `further` is not a variant.
    """
    heads = int(model.main.leading.widths().n_heads)
    by_name: dict[str, ModelSpec] = {}

    def variant_of(text: str) -> ModelSpec:
        variant = model.with_attention(text)
        if same_params:
            variant = _with_params_of(model, variant)
        return variant.shard(model.tp)

    def is_new(variant: ModelSpec) -> bool:
        return all(variant.stacks != known.stacks for known in by_name.values())

    for n in _divisors(heads):
        try:
            variant = variant_of(f"gqa:{n}")
        except AttncalcError:  # n does not divide another layer's heads, or the devices
            continue
        by_name[_name_of(n, heads)] = variant
    for text in further:
        variant = variant_of(text)
        if is_new(variant):
            by_name[Variant.parse(text).title] = variant
    if is_new(model):
        # 'MLA-512', or 'MLA-512/GQA-8' if layers differ
        tags = dict.fromkeys(layers.attention.tag for layers in model.main.layers)
        by_name["/".join(tags)] = model
    return by_name


def _name_of(kv_heads: int, heads: int) -> str:
    if kv_heads == heads:
        return "MHA"
    if kv_heads == 1:
        return "MQA"
    return f"GQA-{kv_heads}"


def _with_params_of(model: ModelSpec, variant: ModelSpec) -> ModelSpec:
    """Return a variant with the d_ff, a multiple of the devices, with which it has the parameters
    of the model.
    """
    width = width_of_mlps(model)
    before = int(params(variant).total)
    wider = int(params(what_if(variant, d_ff=width + model.tp)).total)
    more = round((int(params(model).total) - before) / (wider - before))
    return what_if(variant, d_ff=width + more * model.tp)


def width_of_mlps(model: ModelSpec) -> int:
    """Return the d_ff of the MLPs. Raises AttncalcError if they have none, or several."""
    widths = {int(layers.mlp.d_ff) for layers in model.main.layers if layers.mlp}
    if len(widths) != 1:
        raise AttncalcError("--same-params needs a model whose MLPs have one width", "leave it out")
    return widths.pop()


def _divisors(number: int) -> list[int]:
    """Return the divisors, the largest first: 6, 3, 2, 1. Raises AttncalcError for a number above
    MAX_HEADS.
    """
    if number > MAX_HEADS:
        raise AttncalcError(
            f"compare: n_heads: {count(number)} is more than {count(MAX_HEADS)}", "correct n_heads"
        )
    divisors = set()
    for n in range(1, math.isqrt(number) + 1):
        if number % n == 0:
            divisors |= {n, number // n}
    return sorted(divisors, reverse=True)
