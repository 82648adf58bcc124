"""Compare a model's figures with those of its transformers class: parameters, cache bytes and
FLOPs.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ...attention.global_window import GlobalWindow
from ...attention.image_cross import ImageCross
from ...check import Check, VerifyResult
from ...cost.cache import kv_cache
from ...cost.common import compute_dtype, group_name
from ...cost.flops import projections, scores
from ...cost.params import params
from ...model import Layers, ModelSpec, Stack
from ...quantity import Quantity, quantity, total
from ...records import NamedTuple
from ...search import grouped
from ...units import BYTES, FLOP, NO_UNIT, PARAMS, count
from ...workload import Workload
from .. import need_transformers
from ..checks.tolerance import furthest
from ..devices import DTYPES
from ..request import default_dtype, parse_dtype
from .forward import ForwardResult, ModuleCall, forward
from .model import AttentionModule, TransformersModel, first_line

DEFAULT_BATCH = 2
# Default tokens. They are fewer for recurrent classes, which process them one by one, and for a
# source.
DEFAULT_CONTEXT = 128
DEFAULT_RECURRENT_CONTEXT = 32
DEFAULT_SOURCE = 24


class TransformersComparison(NamedTuple):
    result: VerifyResult  # the checks
    workload: Workload  # the prefill whose FLOPs were compared
    # The 'device' of the JSON report: the class and the versions of transformers and torch
    device_facts: dict[str, Any]


class LayerGroup(NamedTuple):
    """A group of identical layers of a symbolic model."""

    name: str
    stack: Stack  # the stack that it is in
    layers: Layers
    modules: int  # attention modules of the class that make up one layer: 2 with cross-attention
    params: Quantity  # attention parameters of one layer


def compare_with_transformers(
    model: ModelSpec,
    config: Mapping[str, Any],
    workload: Workload,
    on_progress: Callable[[str], None],
) -> TransformersComparison:
    """Build the transformers class of `config`, and compare it with the figures of `model`, made
    from that config.

    Raises CannotCheckError if transformers has no class for the config, or its class cannot be
    built from it.

    Args:
        workload: the prefill whose FLOPs are compared.
    """
    on_progress(f"{model.name}, building")
    hf_model = TransformersModel(config, DTYPES[compute_dtype(model, workload).name], model.head)
    workload = _fixed_lengths(model, hf_model, workload)
    without_positions = {stack.input for stack in model.stacks if stack.relative_position_buckets}
    modules = hf_model.attention_modules(without_positions)
    results, failure = _results(model, hf_model, modules, workload, on_progress)
    skipped = [*_not_compared(model, hf_model), *failure]
    if results:
        calls = results[workload.context].calls
    else:
        calls = tuple(map(ModuleCall, modules))
    attention_params = hf_model.attention_params(modules, without_positions)
    checks = [_params_total(model, hf_model, config), _params_attention(model, attention_params)]
    for stack in model.stacks:
        stack_calls = [call for call in calls if call.module.side == stack.input]
        checks += _stack_checks(model, stack, workload, stack_calls, ran=bool(results))
    with_cache = {tokens: result for tokens, result in results.items() if result.has_cache}
    for tokens, result in with_cache.items():
        checks += _cache_checks(model, workload, tokens, result)
    if model.main.has_cache and results and not with_cache:
        skipped.append(f"{hf_model.name} returns no cache: cache bytes are not compared.")
    name = f"transformers {need_transformers()}, {hf_model.name}"
    compared = VerifyResult(tuple(checks), skipped=tuple(skipped), context=workload.context)
    return TransformersComparison(
        compared, workload, {"type": "meta", "name": name, "torch": torch.__version__}
    )


def _results(
    model: ModelSpec,
    hf_model: TransformersModel,
    modules: Sequence[AttentionModule],
    workload: Workload,
    on_progress: Callable[[str], None],
) -> tuple[dict[int, ForwardResult], list[str]]:
    """Return the class's prefill by its number of tokens, and a note if the class cannot run."""
    results: dict[int, ForwardResult] = {}
    try:
        for tokens in _context_lengths(model, workload.context):
            on_progress(f"{model.name}, {count(tokens)} tokens")
            use_cache = model.main.has_cache
            results[tokens] = forward(
                hf_model, modules, workload.batch, tokens, workload.source, use_cache=use_cache
            )
    except Exception as error:  # the class may raise anything
        failure = (
            f"{hf_model.name} cannot run on tensors without values ({first_line(error)}): "
            "cache and FLOPs are not compared."
        )
        return results, [failure]
    return results, []


def resolve_workload(
    model: ModelSpec, batch: int | None, context: int | None, source: int | None, dtype: str | None
) -> Workload:
    """Return the prefill to compare, with small defaults that the model supports.

    Raises AttncalcError if torch's layers cannot run in `dtype`.
    """
    if any(map(is_recurrent, model.main.layers)):
        default = DEFAULT_RECURRENT_CONTEXT
    else:
        default = DEFAULT_CONTEXT
    longest = model.max_context or model.main.learned_positions or default
    if model.encoder:
        source = source or min(model.encoder.max_context or DEFAULT_SOURCE, DEFAULT_SOURCE)
    name = default_dtype(model) if dtype is None else parse_dtype(dtype)
    return Workload.prefill(
        batch or DEFAULT_BATCH, context or min(longest, default), source=source, dtype=name
    )


def _fixed_lengths(model: ModelSpec, hf_model: TransformersModel, workload: Workload) -> Workload:
    """Return the workload at the only length that a class supports which reads images, or audio
    features.
    """
    if hf_model.input_name == "pixel_values" and model.main.learned_positions:
        return workload.at(model.main.learned_positions)
    if (
        hf_model.input_name == "input_features"
        and model.encoder
        and model.encoder.learned_positions
    ):
        return dataclasses.replace(workload, source=model.encoder.learned_positions)
    return workload


def is_recurrent(layers: Layers) -> bool:
    """Whether the layers cache a state and have no attention heads."""
    return bool(layers.attention.cache()) and not layers.attention.widths().n_heads


def _context_lengths(model: ModelSpec, context: int) -> list[int]:
    """Return the context, and a second one beyond the widest window or chunk, up to the model's
    maximum.

    Recurrent models are compared at one length, because their classes are slow.
    """
    if any(map(is_recurrent, model.main.layers)) or not model.main.has_cache:
        return [context]
    beyond_spans = max(int(layers.attention.span.reach or 0) for layers in model.main.layers) + 2
    longer = min(beyond_spans, model.max_context or beyond_spans)
    if context < longer:
        return [context, longer]
    return [context]


def _params_total(
    model: ModelSpec, hf_model: TransformersModel, config: Mapping[str, Any]
) -> Check:
    """Check all parameters, with those that the class holds in another way than the checkpoint."""
    measured, other_parts = hf_model.params()
    notes = [
        f"parameters of the class{', of its language side' if other_parts else ''}, tied tensors "
        "once"
    ]
    mlps = [group.mlp for _, group in model.groups() if group.mlp]
    router_biases = hf_model.router_bias_buffers()
    if router_biases and any(mlp.n_experts and mlp.router_bias for mlp in mlps):
        measured += router_biases
        notes.append(f"with {count(router_biases)} of router biases that it holds as buffers")
    if config.get("tie_word_embeddings") is False and hf_model.tied_head():
        measured += hf_model.tied_head()
        notes.append("with the lm head, which the class ties until it loads one")
    note = ", ".join(notes)
    failure = (
        "attncalc counts a matrix, norm or table that the class does not have, or the other way "
        "round"
    )
    return Check(
        "parameters",
        "params_total",
        "parameters",
        params(model).total,
        measured,
        0,
        PARAMS,
        note,
        failure,
    )


def _params_attention(model: ModelSpec, measured: int) -> Check:
    predicted = params(model).attention
    label = "attention parameters"
    note = "parameters of the class's attention modules in all layers, shared ones once"
    failure = "the formula's sum over the layers differs from the class"
    return Check(
        "parameters", "params_attention", label, predicted, measured, 0, PARAMS, note, failure
    )


def _stack_checks(
    model: ModelSpec, stack: Stack, workload: Workload, calls: list[ModuleCall], *, ran: bool
) -> Iterator[Check]:
    """Compare each layer of a stack with the modules that the class runs for it, in order.

    If the number of modules differs, only that is reported: layers and modules cannot be matched.
    """
    groups = _layer_groups(model, ran=ran)
    order = [
        groups[group_name(model, stack, layers)]
        for layers in stack.layers
        for _ in range(int(layers.count))
    ]
    expected = sum(group.modules for group in order)
    name = f"modules_{stack.name}"
    label = f"{stack.name} modules"
    note = f"attention modules of the {stack.name} that the class {'runs' if ran else 'has'}"
    failure = "the model has another number of layers, or other kinds of layers, than the class"
    yield Check("model", name, label, expected, len(calls), 0, NO_UNIT, note, failure)
    if expected != len(calls):
        return
    remaining = list(calls)
    calls_of = grouped((group.name, _take_calls(remaining, group)) for group in order)
    for group in {group.name: group for group in order if group.modules}.values():
        yield _params_of_layer(group, calls_of[group.name])
        if ran and not isinstance(group.layers.attention, GlobalWindow):
            yield from _flops_of_layer(model, group, workload, calls_of[group.name])


def _layer_groups(model: ModelSpec, *, ran: bool) -> dict[str, LayerGroup]:
    """Return the layer groups of all stacks, by name.

    If the class `ran`, layers that text skips have no modules: those that attend to an image (Llama
    3.2 Vision).
    """
    groups: dict[str, LayerGroup] = {}
    for (stack, layers), part in zip(model.symbolic().groups(), params(model).groups, strict=True):
        skipped = ran and isinstance(layers.attention, ImageCross)
        if part.attention_per_layer and not skipped:
            modules = len(layers.attentions)
        else:
            modules = 0
        groups.setdefault(
            part.group, LayerGroup(part.group, stack, layers, modules, part.attention_per_layer)
        )
    return groups


def _take_calls(remaining: list[ModuleCall], group: LayerGroup) -> list[ModuleCall]:
    """Remove the calls of one layer of `group` from the front of `remaining` and return them.

    A class may hold several attention modules in one layer that are separate layer groups here.
    Then the result is the module whose number of parameters is closest to the group's.
    """
    if group.modules == 1:
        layer = [call for call in remaining if call.module.layer == remaining[0].module.layer]
        contiguous = next(
            (i for i, call in enumerate(remaining) if call not in layer), len(remaining)
        )
        side_by_side = layer[:contiguous]
        layer_calls = [min(side_by_side, key=lambda call: abs(call.module.params - group.params))]
    else:
        layer_calls = remaining[: group.modules]
    for call in layer_calls:
        remaining.remove(call)
    return layer_calls


def _params_of_layer(group: LayerGroup, layers: list[list[ModuleCall]]) -> Check:
    note = f"parameters of the attention modules of {_layer_names(layers)}"
    other_params = max(call.module.other_params for calls in layers for call in calls)
    if other_params:
        note += (
            f"; up to {count(other_params)} more in them are a norm or a table of positions, "
            "counted elsewhere"
        )
    name = "params_attention_layer"
    label = "attention per layer"
    measured = furthest(
        [sum(call.module.params for call in calls) for calls in layers], group.params
    )
    failure = "the formula of an attention matrix does not match the class"
    return Check(
        "parameters", name, label, group.params, measured, 0, PARAMS, note, failure, group.name
    )


def _flops_of_layer(
    model: ModelSpec, group: LayerGroup, workload: Workload, layers: list[list[ModuleCall]]
) -> Iterator[Check]:
    """Check the FLOPs of a layer's prefill: its projections, and its scores, which the class
    computes for all pairs.

    Of a recurrent layer only the projections are compared: torch counts convolutions differently,
    and the rest depends on how the recurrence is computed.
    """
    symbolic_workload = workload.symbolic()
    predicted = quantity(
        projections(model.symbolic(), group.stack, group.layers, symbolic_workload)
    )
    if is_recurrent(group.layers):  # block-diagonal gates are batched matmuls with a bias
        linear = [
            sum(call.flops.linear + call.flops.batched_bias for call in calls) for calls in layers
        ]
        yield _flops_check(group, "projections", predicted, linear, layers)
        return
    linear = [sum(call.flops.linear for call in calls) for calls in layers]
    batched = [
        sum(call.flops.batched + call.flops.batched_bias for call in calls) for calls in layers
    ]
    yield _flops_check(group, "projections", predicted, linear, layers)
    predicted = quantity(scores(group.stack, group.layers, symbolic_workload, dense=True))
    yield _flops_check(group, "scores", predicted, batched, layers)


def _flops_check(
    group: LayerGroup,
    part: str,
    predicted: Quantity,
    measured: list[int],
    layers: list[list[ModuleCall]],
) -> Check:
    products = {
        "projections": "linear layers",
        "scores": "QK and PV of all pairs, masked ones included",
    }[part]
    name = f"flops_prefill_{part}"
    label = f"{part} per layer"
    value = furthest(measured, predicted)
    note = f"FLOPs that torch counts in {products}, of {_layer_names(layers)}"
    failure = "the class multiplies other matrices than the formula"
    return Check("FLOPs", name, label, predicted, value, 0, FLOP, note, failure, group.name)


def _layer_names(layers: list[list[ModuleCall]]) -> str:
    first = layers[0][0].module.layer
    if len(layers) == 1:
        return first
    return f"{count(len(layers))} layers, from {first}"


def _cache_checks(
    model: ModelSpec, workload: Workload, tokens: int, result: ForwardResult
) -> Iterator[Check]:
    """Check the bytes of the cache after `tokens` tokens: of the context, of the source, and of
    states.
    """
    decode = Workload.decode(workload.batch, tokens, source=workload.source, dtype=workload.dtype)
    groups = kv_cache(model, decode, engine_name="transformers").groups
    parts = (
        ("kv_cache", "KV cache", total(g.context for g in groups), result.context),
        ("cross_attention_cache", "cross cache", total(g.source for g in groups), result.source),
        ("recurrent_state", "states", total(g.state for g in groups), result.state),
    )
    note = "bytes of the tensors in the cache that the class returns"
    failure = "the class caches another number of rows, or rows of another width, than the formula"
    for part, label, predicted, measured in parts:
        if predicted or measured:
            at_context = f"{label}, {count(tokens)} tokens"
            yield Check(
                "cache",
                f"{part}_{tokens}",
                at_context,
                predicted,
                measured,
                0,
                BYTES,
                note,
                failure,
            )


def _not_compared(model: ModelSpec, hf_model: TransformersModel) -> Iterator[str]:
    """Note the parts of the class that are not compared."""
    for part, size in hf_model.params()[1].items():
        yield f"Not compared, because attncalc does not count it: {part}, {count(size)} parameters."
    if hf_model.has_experts:
        yield (
            "The FLOPs of experts are not compared, because routing needs values; their "
            "parameters are compared."
        )
    if any(isinstance(layers.attention, GlobalWindow) for _, layers in model.groups()):
        yield (
            "FLOPs of windows with global tokens are not compared: the class computes whole "
            "blocks of them."
        )
