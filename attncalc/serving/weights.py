"""Bytes of the weights on one device: those that it holds, and those that a step reads.

Matrices of attention and MLPs may be quantized, by the schemes of the model's quantization_config or all in one dtype;
everything else is in the model's own dtype. If a model's safetensors files were read, its weights are as large as the
files. An engine may hold more: towers, and what `Engine.extra_weights` returns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..attention import Matrix
from ..cost.common import Part, compute_dtype, group_name, sum_over_groups
from ..cost.intensity import Routing, experts_read, routed_read, weights_read
from ..cost.params import lm_head, params
from ..engines.engine import ExtraWeights, HeldWeights
from ..errors import AttncalcError
from ..model import Layers, ModelSpec, Stack, Tower
from ..quantity import Quantity, ceil_div, minimum, named, quantity, symbol, total
from ..quantization import Quantization, Role, Scheme
from ..units import DType, count, dtype
from ..workload import Workload
from .stages import split_into_stages

if TYPE_CHECKING:
    from ..checkpoint import CheckpointWeights
    from ..engines.base import DraftModel, EngineArgs
    from ..engines.engine import Engine

_AS_WEIGHTS = {
    "int8": DType("int8", 8, "an fp16 scale for each output channel", group=0, scale_bytes=2),
    "int4": DType("int4", 4, "an fp16 scale per 128 weights, no zero points", group=128, scale_bytes=2),
}
"""Dtypes whose scales differ from a cache's: those of compressed-tensors' W8A8 and W4A16 schemes by default."""
AS_STORED = "as stored"
"""`Weights.dtype` of weights that are as large as the model's files."""
_MATRICES = {False: "matrices of attention and MLPs", True: "matrices of routed experts"}
"""{whether only experts are quantized: what is quantized, in words}."""
_QUANTIZED = {"F8_E4M3": "fp8", "F8_E5M2": "fp8", "F8_E4M3FNUZ": "fp8", "F8_E5M2FNUZ": "fp8", "I8": "int8"}
"""{dtype in a file: the dtype in which its matrices are multiplied}. Packed dtypes (int4 in I32) are not here."""


class Weights(NamedTuple):
    """The weights on one device; with pipeline stages, on the stage that has most of them.

    Attributes:
        total: Bytes.
        dtype: Their dtype in words: 'fp8', 'as stored'.
        parts: (name, label, figure) of each symbol in the formula that has a formula itself.
        notes: What is assumed, as sentences.
        extra: The parts of `total` that are no weights of the language model, or are copies or padding of them.
    """

    total: Quantity
    dtype: str
    parts: tuple[tuple[str, str, Quantity], ...]
    notes: tuple[str, ...]
    extra: tuple[ExtraWeights, ...] = ()


def weights(
    model: ModelSpec,
    *,
    pp: int = 1,
    part: ModelSpec | None = None,
    in_dtype: str | None = None,
    weights_dtype: str | None = None,
    engine: Engine[Any] | None = None,
    args: EngineArgs | None = None,
) -> Weights:
    """Return the weights on one device.

    Args:
        model: One tensor-parallel device's share.
        pp: Pipeline stages.
        part: The layers of one stage or GPU, instead of `pp`.
        in_dtype: The dtype of weights that are not quantized; None for the model's.
        weights_dtype: The dtype of the matrices of attention and MLPs, or of the routed experts only if it is the
            model's experts_dtype. The dtype of the model's quantization stands for its schemes. None for the model's
            dtype, or for the dtypes of its safetensors files.
        engine: The engine that loads them; None counts the checkpoint's weights with its towers.
        args: The engine's arguments, which its own extra weights depend on.

    Raises AttncalcError if a dtype is unknown, the model cannot be split into stages, or its quantization is one that
    attncalc cannot read.
    """
    model_dtype = dtype(in_dtype or model.dtype, compute=True)
    stages = split_into_stages(model, pp) if part is None else [part]
    files = model.stored if is_stored(model, model_dtype, weights_dtype) else None
    _check_quantization(model, weights_dtype)

    def of_stage(stage: ModelSpec) -> Weights:
        if files and stage.stored and part is not None:
            counted = _in_buffer(stage.stored)
        elif files:
            whole = model.tp * pp == 1 and part is None
            counted = _as_stored(model, files, int(params(stage).total), whole=whole)
        else:
            experts_only = _experts_only(model, weights_dtype)
            key = ("weights", model_dtype, weights_dtype, experts_only)
            counted = stage.kept(key, lambda: _in_dtypes(stage, model_dtype, weights_dtype, experts_only=experts_only))
        return _with_extra(counted, stage, model_dtype, weights_dtype, engine, args, stored=files is not None)

    return max(map(of_stage, stages), key=lambda stage: int(stage.total))


def _in_dtypes(stage: ModelSpec, model_dtype: DType, weights_dtype: str | None, *, experts_only: bool) -> Weights:
    """Return the weights of a part of a model without files, by the schemes of its quantization or in one dtype."""
    if stage.quantization and _is_released(stage, weights_dtype):
        return _by_schemes(stage, stage.quantization, model_dtype)
    matrix_dtype = model_dtype if weights_dtype is None else as_weights(weights_dtype)
    return _quantized(stage, matrix_dtype, model_dtype, experts_only=experts_only)


def _check_quantization(model: ModelSpec, weights_dtype: str | None) -> None:
    """Raise AttncalcError if the checkpoint has a quantization that attncalc cannot read, and no dtype is given."""
    if model.unread_quantization and weights_dtype is None and model.stored is None:
        raise AttncalcError(
            f"the quantization of {model.title} cannot be read: {model.unread_quantization}",
            "name a folder with its safetensors files or its hf_quant_config.json, or give --weights-dtype",
        )


def _with_extra(
    counted: Weights,
    stage: ModelSpec,
    model_dtype: DType,
    weights_dtype: str | None,
    engine: Engine[Any] | None,
    args: EngineArgs | None,
    *,
    stored: bool,
) -> Weights:
    """Return the weights with towers, which files contain already, and what the engine holds besides."""
    extra: list[ExtraWeights] = []
    if not stored and (engine is None or engine.loads_towers):
        pads_heads = engine is not None and engine.pads_tower_heads
        extra += [_tower(tower, stage.tp, model_dtype, pads_heads=pads_heads) for tower in stage.towers]
    if engine and args and engine.has_extra_weights:
        matrices = stage.weights_dtype or stage.experts_dtype if stored else weights_dtype
        extra += engine.extra_weights(stage, args, _held(stage, model_dtype, matrices))
    if engine and stage.dtype == "fp32" and model_dtype.name != "fp32":
        cast = f"Weights are released in fp32; {engine.title} holds them in {model_dtype.name}."
        counted = counted._replace(notes=(*counted.notes, cast))
    method = stage.quantization.method if stage.quantization else ""
    as_released = stored or _is_released(stage, weights_dtype)
    engine_version = args.engine_version if args else None
    if engine and method and as_released and not engine.loads_quantization(method, engine_version):
        unloaded = f"warning: {engine.title} does not load {method} checkpoints; the figures only show their size."
        counted = counted._replace(notes=(*counted.notes, unloaded))
    extra = [part for part in extra if part.size]
    if not extra:
        return counted
    return _add_extra(counted, tuple(extra))


def _add_extra(counted: Weights, extra: tuple[ExtraWeights, ...]) -> Weights:
    """Return the weights of the language model with further parts."""
    total_size: int = named(counted.total, "weights_model", "bytes of the language model's weights")
    for part in extra:
        total_size = total_size + named(part.size, part.name, part.label)
    parts = (
        ("weights_model", f"weights of the language model in {counted.dtype}", counted.total),
        *counted.parts,
        *((part.name, part.label, part.size) for part in extra),
    )
    return counted._replace(total=quantity(total_size), parts=parts, extra=extra)


def with_draft(counted: Weights, draft: DraftModel) -> Weights:
    """Return the weights with those of a draft model beside them."""
    of_draft = ExtraWeights("weights_draft", f"draft model, {draft.title}", Quantity(draft.weights))
    own = {"weights_model", *(part.name for part in counted.extra)}
    model_total = next((part for name, _, part in counted.parts if name == "weights_model"), counted.total)
    terms = tuple(part for part in counted.parts if part[0] not in own)
    return _add_extra(counted._replace(total=model_total, parts=terms), (*counted.extra, of_draft))


def _width(of: DType, name: str = "bytes", what: str = "a weight") -> Quantity:
    """Return the bytes of one element of a dtype without scales, as a symbol."""
    return symbol(name, of.bits // 8, f"bytes of {what} in {of.name}")


def _tower(tower: Tower, tp: int, model_dtype: DType, *, pads_heads: bool) -> ExtraWeights:
    """Return the bytes of a tower on one device."""
    divided_params, whole_params = tower.split_by(tp, pads_heads=pads_heads)
    split = symbol("params_split", divided_params, "its parameters that tensor parallelism divides")
    whole = symbol("params_whole", whole_params, "its parameters that every device has")
    width = _width(model_dtype)
    divided = ceil_div(split, symbol("tp", tp, "tensor-parallel devices")) if tp > 1 else split
    return ExtraWeights(f"weights_{tower.name}_tower", f"{tower.name} tower", quantity((divided + whole) * width))


def _held(stage: ModelSpec, model_dtype: DType, weights_dtype: str | None) -> HeldWeights:
    """Return how the engine stores the weights."""
    quantization = stage.quantization
    narrow = model_dtype if weights_dtype is None else as_weights(weights_dtype)
    experts_only = _experts_only(stage, weights_dtype)
    by_scheme = quantization is not None and _is_released(stage, weights_dtype)

    def bits(layer: int, role: Role, matrix: str) -> int:
        if quantization and by_scheme:
            scheme = quantization.scheme_of(layer, role, matrix)
            return scheme.element_bits if scheme else model_dtype.bits
        return narrow.bits if role == "experts" or not experts_only else model_dtype.bits

    return HeldWeights(model_dtype, narrow.name, bits)


def _is_released(model: ModelSpec, weights_dtype: str | None) -> bool:
    """Return whether the dtype is that of the checkpoint's quantization."""
    return weights_dtype is not None and weights_dtype in (model.weights_dtype, model.experts_dtype)


def _by_schemes(model: ModelSpec, quantization: Quantization, model_dtype: DType) -> Weights:
    """Return the weights with each matrix in the scheme that the checkpoint's quantization has for it."""
    symbols = model.symbolic()
    schemes: dict[Scheme, list[tuple[int, int]]] = {}
    for (stack, layers), runs in zip(symbols.groups(), _schemes_of_groups(model, quantization), strict=True):
        if layers.shares_weights:
            continue
        for role, copies, matrix in layers.matrices_by_role(stack.d_model, symbols.d_source):
            for scheme, n_layers in runs[role, matrix.name].items():
                times = copies * (layers.count if n_layers == int(layers.count) else n_layers)
                size = times * scheme.matrix_bytes(matrix.rows, matrix.cols)
                schemes.setdefault(scheme, []).append((times * matrix.weights, size))
    for _, matrix, scheme in _tables_in_schemes(symbols, quantization):
        schemes.setdefault(scheme, []).append((matrix.weights, scheme.matrix_bytes(matrix.rows, matrix.cols)))
    parts = [("params_on_device", "parameters on the device", params(model).total)]
    everything = named(params(model).total, "params", "parameters on the device")
    width = _width(model_dtype)
    size, rest = quantity(0), everything
    for i, (scheme, of_scheme) in enumerate(schemes.items(), start=1):
        label = scheme.name if len(schemes) == 1 else f"{scheme.name}_{i}"
        in_scheme, scheme_bytes = total(n for n, _ in of_scheme), total(n for _, n in of_scheme)
        parts += [
            (f"params_{label}", f"of them in {scheme.name} ({scheme.note})", in_scheme),
            (f"bytes_{label}", f"those matrices in {scheme.name}", scheme_bytes),
        ]
        size = size + named(scheme_bytes, f"bytes_{label}", f"bytes of the matrices in {scheme.name}")
        rest = rest - named(in_scheme, f"params_{label}", f"of them in {scheme.name}")
    names = list(dict.fromkeys(scheme.name for scheme in schemes)) or [model_dtype.name]
    notes = list(dict.fromkeys(f"{scheme.name} ({scheme.note})" for scheme in schemes))
    text = f"Weights as released ({quantization.method}): {', '.join(notes)}; {model_dtype.name} for everything else."
    return Weights(quantity(size + rest * width), " and ".join(names), tuple(parts), (text,))


def _tables_in_schemes(symbols: ModelSpec, quantization: Quantization) -> list[tuple[Role, Matrix, Scheme]]:
    """Return (role, matrix, scheme) of the token embedding and the lm head, of those that are quantized.

    A tied head is the embedding. On a later pipeline stage the vocabulary's table is the head (`split_into_stages`).
    """
    if not symbols.vocab_size:
        return []
    table = lm_head(symbols)
    own_head = symbols.head and symbols.head.kind == "lm" and not symbols.head.tied
    roles: tuple[Role, ...] = (
        ("head",) if symbols.first_layer else ("embedding", "head") if own_head else ("embedding",)
    )
    found = ((role, quantization.scheme_of(0, role, table.name)) for role in roles)
    return [(role, table, scheme) for role, scheme in found if scheme]


def _schemes_of_groups(model: ModelSpec, quantization: Quantization) -> list[dict[tuple[Role, str], dict[Scheme, int]]]:
    """Return, for each distinct group of layers, {(role, matrix): {scheme: layers in which it has the scheme}}."""
    found: list[dict[tuple[Role, str], dict[Scheme, int]]] = []
    for stack in model.stacks:
        groups = {dataclasses.replace(group, count=1): n for n, group in enumerate(stack.distinct())}
        of_stack: list[dict[tuple[Role, str], dict[Scheme, int]]] = [{} for _ in groups]
        layer = model.first_layer
        for run in stack.layers:
            counts = of_stack[groups[dataclasses.replace(run, count=1)]]
            for role, _, matrix in run.matrices_by_role(stack.d_model, model.d_source):
                by_scheme = counts.setdefault((role, matrix.name), {})
                for i in range(layer, layer + run.count):
                    if scheme := quantization.scheme_of(i, role, matrix.name):
                        by_scheme[scheme] = by_scheme.get(scheme, 0) + 1
            layer += run.count
        found += of_stack
    return found


def bytes_read(
    model: ModelSpec, workload: Workload, *, weights_dtype: str | None = None, routing: Routing = "fewest"
) -> Quantity:
    """Return the bytes of weights that one step of the whole batch reads on one device.

    Each weight is read once, with two exceptions: of an embedding only the batch's rows are read, and of the experts
    those that its tokens pick. In quantized files everything but the matrices of attention and MLPs is
    assumed to be in the model's dtype. Raises AttncalcError as `weights` does.
    """
    model_dtype = compute_dtype(model, workload)
    width = _width(model_dtype)
    read = named(weights_read(model, workload, routing), "params_read", "parameters read in the step")
    stored = is_stored(model, model_dtype, weights_dtype)
    if stored and model.stored and model.stored.parameters:
        size = symbol("weights_stored", model.stored.size, f"bytes of all tensors in its {model.stored.kind} files")
        return quantity(read * size // symbol("elements", model.stored.parameters, "elements in its files"))
    if not stored and model.quantization and _is_released(model, weights_dtype):
        in_schemes, size_read = _read_by_schemes(model, model.quantization, workload, routing)
        return quantity(
            named(size_read, "bytes_linear_read", "bytes of the quantized matrices that the step reads")
            + (read - named(in_schemes, "params_linear_read", "of them in quantized matrices")) * width
        )
    matrix_dtype = model_dtype if weights_dtype is None else as_weights(weights_dtype)
    experts_only = _experts_only(model, weights_dtype)
    in_matrices = _matrices_total(model, lambda m: m.weights, workload, experts_only=experts_only, routing=routing)
    if not in_matrices or (not stored and matrix_dtype.name == model_dtype.name):
        return quantity(read * width)
    matrices = named(in_matrices, "params_linear_read", f"of them in {_MATRICES[experts_only]}")
    if stored:
        matrix_bytes, place = _stored_matrix_bytes(model, model_dtype, int(in_matrices)), "its files"
    else:
        matrix_bytes, place = (
            _matrices_total(
                model,
                lambda m: m.cols * matrix_dtype.row_bytes(m.rows),
                workload,
                experts_only=experts_only,
                routing=routing,
                name="bytes_linear",
            ),
            matrix_dtype.name,
        )
    return quantity(
        named(matrix_bytes, "bytes_linear_read", f"bytes of those matrices, in {place}") + (read - matrices) * width
    )


def _read_by_schemes(
    model: ModelSpec, quantization: Quantization, workload: Workload, routing: Routing
) -> tuple[Quantity, Quantity]:
    """Return (weights, bytes) of the quantized matrices that one step reads on one device."""
    symbols, batch = model.symbolic(), workload.symbolic().batch
    runs_of_main = _schemes_of_groups(model, quantization)[-len(symbols.main.distinct()) :]
    weights_read: list[int] = []
    bytes_of_them: list[int] = []
    for layers, runs in zip(symbols.main.distinct(), runs_of_main, strict=True):
        for role, copies, matrix in layers.matrices_by_role(symbols.main.d_model, symbols.d_source):
            if role == "cross" and matrix.applied_to == "keys":  # K and V of the source are in the cache already
                continue
            for scheme, n_layers in runs[role, matrix.name].items():
                times = layers.count if n_layers == int(layers.count) else n_layers
                sizes = (times * matrix.weights, times * scheme.matrix_bytes(matrix.rows, matrix.cols))
                if role == "experts" and layers.mlp:
                    in_weights, in_bytes = (routed_read(size, layers.mlp, batch, routing) for size in sizes)
                else:
                    in_weights, in_bytes = (copies * size for size in sizes)
                weights_read.append(in_weights)
                bytes_of_them.append(in_bytes)
    if symbols.head and symbols.head.kind == "lm":
        tied = symbols.head.tied and not symbols.first_layer
        for role, matrix, scheme in _tables_in_schemes(symbols, quantization):
            if tied or role == "head":
                weights_read.append(matrix.weights)
                bytes_of_them.append(scheme.matrix_bytes(matrix.rows, matrix.cols))
    return total(weights_read), total(bytes_of_them)


def released_dtype(model: ModelSpec) -> str | None:
    """Return the dtype of the matrices that a checkpoint stores in another dtype than the rest.

    An engine's --dtype does not change them. None if there are none, or if the model's files were read.
    """
    return None if model.stored is not None else model.weights_dtype or model.experts_dtype


def is_stored(model: ModelSpec, model_dtype: DType, weights_dtype: str | None) -> bool:
    """Return whether the weights have the bytes of the model's files: there are files, and no other dtype is given."""
    return weights_dtype is None and model.stored is not None and model_dtype.name == dtype(model.dtype).name


def _experts_only(model: ModelSpec, weights_dtype: str | None) -> bool:
    """Return whether that dtype is the model's experts_dtype, which applies to routed experts only (gpt-oss)."""
    return weights_dtype is not None and model.experts_dtype == dtype(weights_dtype).name


def multiplied_as(model: ModelSpec, model_dtype: DType, weights_dtype: str | None) -> DType:
    """Return the dtype of the weights that are multiplied: the given one, or the most frequent of the model's files.

    It is the model's for released weights of 8 bits whose activations are not quantized (W8A16).
    """
    if weights_dtype is not None:
        given = dtype(weights_dtype)
        released = model.quantization if _is_released(model, given.name) else None
        of_dtype = [scheme for scheme in released.schemes if scheme.dtype == given.name] if released else []
        converted = given.name != "int4" and bool(of_dtype) and all(scheme.weight_only for scheme in of_dtype)
        return model_dtype if converted else given
    if is_stored(model, model_dtype, weights_dtype) and model.stored and model.stored.by_dtype:
        return dtype(_QUANTIZED.get(model.stored.by_dtype[0].name, model_dtype.name))
    return model_dtype


def as_weights(name: str) -> DType:
    """Return the dtype of that name for weights: their scales differ from a cache's."""
    cache_dtype = dtype(name)
    return _AS_WEIGHTS.get(cache_dtype.name, cache_dtype)


def _matrices_total(
    model: ModelSpec,
    size: Callable[[Matrix], int],
    step: Workload | None = None,
    *,
    experts_only: bool = False,
    routing: Routing = "fewest",
    name: str = "params_linear",
) -> Quantity:
    """Return the sum of `size` over the matrices of attention and MLPs of all layers on a device.

    Args:
        model: One device's share.
        size: Returns the parameters, or the bytes, of one matrix.
        step: Sum over the matrices that this step reads; one that layers share is read in each of them. None sums over
            the matrices that are stored, each once.
        experts_only: Only the matrices of routed experts.
        routing: The routed experts that the step reads.
        name: The name of the sum in formulas.
    """
    symbols = model.symbolic()
    if step is None:
        groups = [(stack, layers) for stack, layers in symbols.groups() if not layers.shares_weights]
    else:
        groups = [(symbols.main, layers) for layers in symbols.main.distinct()]
    symbolic_step = step and step.symbolic()
    parts = []
    for stack, layers in groups:
        per_layer = _layer_matrices(
            symbols, stack, layers, size, symbolic_step, experts_only=experts_only, routing=routing
        )
        parts.append(Part(group_name(symbols, stack, layers), quantity(layers.count * per_layer)))
    return sum_over_groups(name, f"{name.removesuffix('_linear')} of {_MATRICES[experts_only]}", parts)


def _layer_matrices(
    model: ModelSpec,
    stack: Stack,
    layers: Layers,
    size: Callable[[Matrix], int],
    step: Workload | None,
    *,
    experts_only: bool,
    routing: Routing,
) -> int:
    """Return the sum of `size` over one layer's matrices; biases, vectors and routers are not quantized."""
    mlp = layers.mlp
    if experts_only:
        if not mlp or not mlp.n_experts:
            return 0
        expert = total(size(m) for m in mlp.expert(stack.d_model))
        return routed_read(expert, mlp, step.batch, routing) if step else expert * mlp.n_experts
    attention = layers.attention.matrices(stack.d_model, stack.d_model)
    cross = layers.cross.matrices(stack.d_model, model.d_source) if layers.cross else ()
    if step:  # K and V of the source are in the cache already
        cross = tuple(m for m in cross if m.applied_to != "keys")
    layer_total: int = total(size(m) for m in (*attention, *cross) if m.applied_to)
    if mlp:
        expert = total(size(m) for m in mlp.expert(stack.d_model))
        layer_total += experts_read(expert, mlp, step.batch, routing) if step else expert * mlp.experts_stored
        layer_total += total(size(m) for m in mlp.shared(stack.d_model))
    return layer_total


def _stored_matrix_bytes(model: ModelSpec, model_dtype: DType, read: int) -> Quantity:
    """Return the bytes in the model's files of `read` weights of its matrices, at most as many as in `model_dtype`.

    All matrices together have the bytes of the budget, less everything else in `model_dtype`. Files that are smaller
    than everything else are divided as the parameters are.
    """
    all_params, in_matrices = params(model).total, _matrices_total(model, lambda m: m.weights)
    on_device = named(weights(model, in_dtype=model_dtype.name).total, "weights", "bytes of the weights on the device")
    width = _width(model_dtype)
    matrices_read = symbol("params_linear_read", read, "weights read in matrices of attention and MLPs")
    matrices = named(in_matrices, "params_linear", "weights in matrices of attention and MLPs")
    everything = named(all_params, "params", "parameters on the device")
    rest = (everything - matrices) * width
    part, whole = (on_device - rest, matrices) if int(on_device) > int(rest) else (on_device, everything)
    return quantity(minimum(matrices_read * part // whole, matrices_read * width))


def _quantized(model: ModelSpec, matrix_dtype: DType, model_dtype: DType, *, experts_only: bool) -> Weights:
    """Return the weights with matrices in `matrix_dtype`, and everything else in `model_dtype`."""
    all_params = params(model).total
    in_matrices = _matrices_total(model, lambda m: m.weights, experts_only=experts_only)
    width = _width(model_dtype)
    everything = named(all_params, "params", "parameters on the device")
    parts = [("params_on_device", "parameters on the device", all_params)]
    if matrix_dtype.name == model_dtype.name or not in_matrices:
        return Weights(quantity(everything * width), model_dtype.name, tuple(parts), ())
    matrices = named(in_matrices, "params_linear", f"of them in {_MATRICES[experts_only]}")
    parts.append(("params_linear", f"of them in {_MATRICES[experts_only]}", in_matrices))
    if matrix_dtype.group is None:
        in_bytes = _width(matrix_dtype, "bytes_linear", "one")
        matrix_bytes: int = matrices * in_bytes
    else:
        exact = _matrices_total(
            model,
            lambda m: m.cols * matrix_dtype.row_bytes(m.rows),
            experts_only=experts_only,
            name="bytes_linear",
        )
        parts.append(("bytes_linear", f"those matrices in {matrix_dtype.name}", exact))
        matrix_bytes = named(exact, "bytes_linear", f"bytes of those matrices in {matrix_dtype.name}")
    rest = "everything else" if experts_only else "embedding, head, routers, norms and biases"
    layout = matrix_dtype.meaning if matrix_dtype.group is not None else matrix_dtype.note
    note = (
        f"Weights: {matrix_dtype.name} ({layout}) is assumed for the {_MATRICES[experts_only]}, {model_dtype.name} for "
        f"{rest}."
    )
    size = quantity(matrix_bytes + (everything - matrices) * width)
    return Weights(size, matrix_dtype.name, tuple(parts), (note,))


def _as_stored(model: ModelSpec, files: CheckpointWeights, on_device: int, *, whole: bool) -> Weights:
    """Return the bytes of the model's files, divided over the devices as its parameters are."""
    size = symbol("weights_stored", files.size, f"bytes of all tensors in its {files.kind} files")
    if whole:
        return Weights(size, AS_STORED, (), (f"Weights: the bytes of all tensors in its {files.kind} files.",))
    all_params = int(params(dataclasses.replace(model, tp=1)).total)
    share = named(on_device, "params_on_device", "parameters on the device")
    per_device = ceil_div(size * share, named(all_params, "params_total", "parameters of the whole model"))
    note = (
        f"Weights: the bytes of its {files.kind} files, divided as the parameters are: {count(on_device)} of "
        f"{count(all_params)} on this device."
    )
    return Weights(quantity(per_device), AS_STORED, (), (note,))


def _in_buffer(stored: CheckpointWeights) -> Weights:
    """Return the bytes of the tensors of a GGUF file that one device has, as llama.cpp's model buffer."""
    size = symbol("model_buffer", stored.size, "bytes of the tensors of its GGUF file on this device")
    note = "Weights: the tensors of its GGUF file on this GPU, each padded as CUDA's buffers are."
    return Weights(size, AS_STORED, (), (note,))
