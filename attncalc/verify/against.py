"""A model's figures beside those of transformers' own class of it: what it holds, keeps and multiplies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from ..check import Check, Verified
from ..cost.cache import kv_cache
from ..cost.common import compute_dtype, group_name
from ..cost.flops import projections, scores
from ..cost.params import params
from ..model import Layers, ModelSpec, Stack
from ..quantity import Quantity, quantity, total
from ..units import BYTES, FLOP, NO_UNIT, PARAMS, count
from ..workload import Workload
from . import need_transformers
from .ask import known_dtype, own_dtype
from .device import DTYPES
from .forward import Call, Ran, forward
from .theirs import Theirs, line

CONTEXT, CONTEXT_OF_STATES, SOURCE = 128, 32, 24
"""Tokens of the first pass where none are asked for; classes with states take them one by one."""


class Against(NamedTuple):
    """What was found, the workload of the FLOPs, and what it was held against, as plain data for JSON."""

    found: Verified
    workload: Workload
    facts: dict[str, Any]


class Group(NamedTuple):
    """A kind of layer with a symbol for each number, its stack, and how many of the class's modules one layer is."""

    name: str
    stack: Stack
    layers: Layers
    modules: int
    params: Quantity


def verify_against(
    model: ModelSpec, config: Mapping[str, Any], asked: Workload, tell: Callable[[str], None]
) -> Against:
    """Build transformers' class of `config` and hold the figures of `model`, made from it, against its own.

    asked: the prefill to count. CannotCheckError: transformers has no class for the config, or it does not build.
    """
    tell(f"{model.name}, building")
    theirs = Theirs(config, DTYPES[compute_dtype(model, asked).name], model.head)
    asked = _readable(model, theirs, asked)
    apart = {stack.input for stack in model.stacks if stack.relative_position_buckets}
    units = theirs.units(apart)
    skipped = list(_left_out(theirs))
    passes: dict[int, Ran] = {}
    try:
        for tokens in _lengths(model, asked.context):
            tell(f"{model.name}, {count(tokens)} tokens")
            cached = model.main.has_cache
            passes[tokens] = forward(theirs, units, asked.batch, tokens, asked.source, cached=cached)
    except Exception as error:  # another library's, of any kind
        skipped.append(f"{theirs.name} does not run without values ({line(error)}): cache and FLOPs are not compared.")
    calls = passes[asked.context].calls if passes else tuple(map(Call, units))
    checks = [_total(model, theirs, config), _attention(model, theirs.attention(units, apart))]
    for stack in model.stacks:
        checks += _stack(model, stack, asked, [call for call in calls if call.unit.reads == stack.input], bool(passes))
    for tokens, ran in passes.items():
        checks += _cache(model, asked, tokens, ran) if ran.cached else ()
    if model.main.has_cache and passes and not any(ran.cached for ran in passes.values()):
        skipped.append(f"{theirs.name} returns no cache: none is compared.")
    facts = {"type": "meta", "name": f"transformers {need_transformers()}, {theirs.name}", "torch": torch.__version__}
    return Against(Verified(tuple(checks), skipped=tuple(skipped), context=asked.context), asked, facts)


def asked_of(
    model: ModelSpec, batch: int | None, context: int | None, source: int | None, dtype: str | None
) -> Workload:
    """The prefill to count, with what was left open: small, and never beyond the model's own longest.

    AttncalcError: a dtype that no layer runs in.
    """
    short = CONTEXT_OF_STATES if any(map(recurrent, model.main.layers)) else CONTEXT
    longest = model.max_context or model.main.learned_positions or short
    if model.encoder:
        source = source or min(model.encoder.max_context or SOURCE, SOURCE)
    given = own_dtype(model) if dtype is None else known_dtype(dtype)
    return Workload.prefill(batch or 2, context or min(longest, short), source=source, dtype=given)


def _readable(model: ModelSpec, theirs: Theirs, asked: Workload) -> Workload:
    """The workload at the only lengths that a class takes which reads pictures, or spectra."""
    if theirs.input == "pixel_values" and model.main.learned_positions:
        return asked.at(model.main.learned_positions)
    if theirs.input == "input_features" and model.encoder and model.encoder.learned_positions:
        return dataclasses.replace(asked, source=model.encoder.learned_positions)
    return asked


def recurrent(layers: Layers) -> bool:
    """Whether a state takes the place of keys and values: some classes take its tokens one by one."""
    return bool(layers.attention.cache()) and not layers.attention.widths().n_heads


def _lengths(model: ModelSpec, context: int) -> list[int]:
    """The context, and one beyond the widest window or chunk, where the model goes as far and the class is quick."""
    if any(map(recurrent, model.main.layers)) or not model.main.has_cache:
        return [context]
    reaches = [int(layers.attention.span.reach or 0) for layers in model.main.layers]
    beyond = min(max(reaches) + 2, model.max_context or max(reaches) + 2)
    return [context, beyond] if context < beyond else [context]


def _total(model: ModelSpec, theirs: Theirs, config: Mapping[str, Any]) -> Check:
    """All parameters: those of the class, and what it holds in another way than the checkpoint does."""
    held, others = theirs.params()
    notes = [f"parameters of the class{', of its language side' if others else ''}, each tied tensor once"]
    mlps = [group.mlp for _, group in model.groups() if group.mlp]
    if theirs.corrections() and any(mlp.n_experts and mlp.router_bias for mlp in mlps):
        held += theirs.corrections()
        notes.append(f"with {count(theirs.corrections())} of routers that it holds as buffers")
    if config.get("tie_word_embeddings") is False and theirs.tied_head():
        held += theirs.tied_head()
        notes.append("with the lm head, which the class ties until it loads one")
    return Check(
        "parameters",
        "params_total",
        "parameters",
        params(model).total,
        held,
        unit=PARAMS,
        note=", ".join(notes),
        failure="a matrix, a norm or a table is counted that the class does not have, or the reverse",
    )


def _attention(model: ModelSpec, held: int) -> Check:
    return Check(
        "parameters",
        "params_attention",
        "attention parameters",
        params(model).attention,
        held,
        unit=PARAMS,
        note="parameters of the class's attention modules, in all layers, each shared one once",
        failure="the sum over the layers is not that of the class",
    )


def _stack(model: ModelSpec, stack: Stack, asked: Workload, calls: list[Call], ran: bool) -> Iterator[Check]:
    """Each of a stack's layers beside the modules that the class runs for it, in order."""
    groups = _groups(model)
    order = [groups[group_name(model, stack, layers)] for layers in stack.layers for _ in range(int(layers.count))]
    expected = sum(group.modules for group in order)
    yield Check(
        "model",
        f"modules_{stack.name}",
        f"attention modules, {stack.name}",
        expected,
        len(calls),
        unit=NO_UNIT,
        note=f"attention modules of the {stack.name} that the class {'runs' if ran else 'has'}",
        failure="the model has more layers, or layers of another kind, than the class",
    )
    if expected != len(calls):
        return
    held: dict[str, list[list[Call]]] = {}
    left = list(calls)
    for group in order:
        held.setdefault(group.name, []).append(_taken(left, group))
    for group in {group.name: group for group in order if group.modules}.values():
        yield _params(group, held[group.name])
        if ran:
            yield from _flops(model, group, asked, held[group.name])


def _groups(model: ModelSpec) -> dict[str, Group]:
    """The kinds of layers of all stacks, by name."""
    found: dict[str, Group] = {}
    for (stack, layers), part in zip(model.symbolic().groups(), params(model).groups, strict=True):
        modules = len(layers.attentions) if part.attention_one_layer else 0
        found.setdefault(part.group, Group(part.group, stack, layers, modules, part.attention_one_layer))
    return found


def _taken(left: list[Call], group: Group) -> list[Call]:
    """The next modules of `left`, which is shortened: of those that share a layer of the class, the likest."""
    if group.modules == 1:
        layer = [call for call in left if call.unit.layer == left[0].unit.layer]
        side_by_side = layer[: next((i for i, call in enumerate(left) if call not in layer), len(left))]
        taken = [min(side_by_side, key=lambda call: abs(call.unit.params - group.params))]
    else:
        taken = left[: group.modules]
    for call in taken:
        left.remove(call)
    return taken


def _params(group: Group, held: list[list[Call]]) -> Check:
    note = f"parameters of the attention modules of {_layers(held)}"
    aside = max(call.unit.aside for calls in held for call in calls)
    if aside:
        note += f"; up to {count(aside)} more in them are a norm or a table of positions, counted elsewhere"
    return Check(
        "parameters",
        "params_attention_layer",
        "attention, each layer",
        group.params,
        furthest([sum(call.unit.params for call in calls) for calls in held], group.params),
        unit=PARAMS,
        note=note,
        failure="the formula of an attention matrix is not that of the class",
        of=group.name,
    )


def _flops(model: ModelSpec, group: Group, asked: Workload, held: list[list[Call]]) -> Iterator[Check]:
    """FLOPs of a prefill: of each layer's projections, and of its scores, which the class computes for all pairs.

    Torch counts a convolution in another way, and what a recurrent layer does beside its projections depends on
    how it is computed: neither is compared.
    """
    symbols, workload = model.symbolic(), asked.symbolic()
    stack, layers = group.stack, group.layers
    made = projections(symbols, stack, layers, workload)
    if recurrent(layers):  # gates in blocks are batches of matrices with a bias
        linear = [sum(call.products.linear + call.products.added for call in calls) for calls in held]
        yield _counted(group, "projections", quantity(made), linear, held)
        return
    linear = [sum(call.products.linear for call in calls) for calls in held]
    batched = [sum(call.products.batched + call.products.added for call in calls) for calls in held]
    yield _counted(group, "projections", quantity(made), linear, held)
    yield _counted(group, "scores", quantity(scores(stack, layers, workload, dense=True)), batched, held)


def _counted(group: Group, what: str, predicted: Quantity, measured: list[int], held: list[list[Call]]) -> Check:
    products = {"projections": "linear layers", "scores": "QK and PV of all pairs, masked ones too"}[what]
    return Check(
        "FLOPs",
        f"flops_prefill_{what}",
        f"{what}, each layer",
        predicted,
        furthest(measured, predicted),
        unit=FLOP,
        note=f"FLOPs that torch counted in the {products}, of {_layers(held)}",
        failure="the class multiplies other matrices than the formula does",
        of=group.name,
    )


def _layers(held: list[list[Call]]) -> str:
    first = held[0][0].unit.layer
    return first if len(held) == 1 else f"{count(len(held))} layers, from {first}"


def furthest(values: list[int], predicted: int) -> int:
    """Of several measurements of what should be one value, the one that is furthest from it."""
    return max(values, key=lambda value: abs(value - predicted))


def _cache(model: ModelSpec, asked: Workload, tokens: int, ran: Ran) -> Iterator[Check]:
    """Bytes of the cache after `tokens`: of the tokens, of the source, and of states."""
    workload = Workload.decode(asked.batch, tokens, source=asked.source, dtype=asked.dtype)
    groups = kv_cache(model, workload, engine_name="transformers").groups
    parts = (
        ("kv_cache", "KV cache", total(g.context for g in groups), ran.context),
        ("cross_attention_cache", "cross cache", total(g.source for g in groups), ran.source),
        ("recurrent_state", "states", total(g.state for g in groups), ran.state),
    )
    for name, label, predicted, measured in parts:
        if predicted or measured:
            yield Check(
                "cache",
                f"{name}_{tokens}",
                f"{label}, {count(tokens)} tokens",
                predicted,
                measured,
                unit=BYTES,
                note="bytes of the tensors in the cache that the class returns",
                failure="the class keeps other rows, or rows of another width, than the formula says",
            )


def _left_out(theirs: Theirs) -> Iterator[str]:
    """What the class has and nothing is compared with."""
    for part, held in theirs.params()[1].items():
        yield f"Not compared, as the figures leave it out: {part}, {count(held)} parameters."
    if theirs.has_experts:
        yield "Routing looks at values, so the experts' own FLOPs are not compared: their parameters are."
