"""Bytes of the weights that one device holds.

If a model's files were read, its weights are as large as the files. An engine may hold more:
towers, and what `Engine.extra_weights` returns.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from ..checkpoint import CheckpointWeights
from ..cost.params import params
from ..engines.base import DraftModel, EngineArgs
from ..engines.engine import Engine, ExtraWeights, HeldWeights
from ..engines.pipeline import split_into_stages
from ..errors import AttncalcError
from ..model import ModelSpec
from ..quantity import Quantity, ceil_div, named, quantity, symbol, total
from ..quantization import Quantization, Role, Scheme
from ..records import NamedTuple
from ..units import count
from .weight_format import (
    WeightFormat,
    is_released,
    quantized_total,
    schemes_of_groups,
    tables_in_schemes,
    weight_format,
)

# `Weights.dtype` of weights that are as large as the model's files.
AS_STORED = "as stored"
_ON_DEVICE = "parameters on the device"
# Dtypes whose releases of Qwen3.8-Flash-Next and DeepSeek-V4.1 have lookup tables in fp8, with one
# scale or few.
_WITH_TABLES_IN_FP8 = ("fp8", "fp4")


class Weights(NamedTuple):
    """The weights on one device; with pipeline stages, on the stage that has most of them."""

    total: Quantity  # bytes
    dtype: str  # their dtype in words: 'fp8', 'as stored'
    # (name, label, figure) of each symbol in the formula that has a formula itself
    parts: tuple[tuple[str, str, Quantity], ...]
    notes: tuple[str, ...]  # what is assumed, as sentences
    # The parts of `total` that are no weights of the language model, or are copies or padding of
    # them
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
    draft: DraftModel | None = None,
) -> Weights:
    """Return the weights on one device.

    Args:
        model: One tensor-parallel device's share.
        pp: Pipeline stages.
        part: The layers of one stage or GPU, instead of `pp`.
        weights_dtype: As in `weight_format`.
        engine: The engine that loads them; None counts the checkpoint's weights with its towers.
        args: The engine's arguments, which its own extra weights depend on.

    Raises AttncalcError if a dtype is unknown, the model cannot be split into stages, or its
    quantization is one that attncalc cannot read.
    """
    form = weight_format(model, in_dtype, weights_dtype)
    stages = split_into_stages(model, pp) if part is None else [part]
    if model.unread_quantization and weights_dtype is None and model.stored is None:
        raise AttncalcError(
            f"the quantization of {model.title} cannot be read: {model.unread_quantization}",
            "name a folder with its safetensors files or its hf_quant_config.json, or give "
            "--weights-dtype",
        )
    is_whole = model.tp * pp == 1 and part is None

    def of_stage(stage: ModelSpec) -> Weights:
        if form.files and stage.stored and part is not None:
            counted = _in_buffer(stage.stored)
        elif form.files:
            counted = _as_stored(model, form.files, int(params(stage).total), whole=is_whole)
        else:
            counted = _in_dtypes(stage, form)
        extra = _towers(stage, form, engine)
        if engine and args and engine.has_extra_weights:
            of = ("held", form.rest, form.given, form.experts_only, form.files is None)
            held = stage.kept(of, lambda: _held(stage, form))
            extra += engine.extra_weights(stage, args, held)
        if draft:
            extra.append(
                ExtraWeights("weights_draft", f"drafter, {draft.title}", Quantity(draft.weights))
            )
        notes = _engine_notes(stage, form, engine, args) if engine else ()
        return _with_extra(
            counted._replace(notes=(*counted.notes, *notes)), [part for part in extra if part.size]
        )

    return max(map(of_stage, stages), key=lambda stage: int(stage.total))


def _in_dtypes(stage: ModelSpec, form: WeightFormat) -> Weights:
    """Return the weights of the language model in the checkpoint's schemes, or in one dtype. The
    stage keeps them.
    """
    key = ("weights", form.rest, form.given, form.experts_only)
    schemes = form.schemes
    if schemes:
        return stage.kept(key, lambda: _by_schemes(stage, schemes, form))
    return stage.kept(key, lambda: _in_one_dtype(stage, form))


def _engine_notes(
    stage: ModelSpec, form: WeightFormat, engine: Engine[Any], args: EngineArgs | None
) -> Iterator[str]:
    if stage.dtype == "fp32" and form.rest.name != "fp32":
        yield f"Weights are released in fp32; {engine.title} holds them in {form.rest.name}."
    method = stage.quantization.method if stage.quantization else ""
    as_released = form.files or is_released(stage, form.given)
    if (
        method
        and as_released
        and not engine.loads_quantization(method, args.engine_version if args else None)
    ):
        yield (
            f"warning: {engine.title} does not load {method} checkpoints; the figures only show "
            "their size."
        )


def _with_extra(counted: Weights, extra: Sequence[ExtraWeights]) -> Weights:
    """Return the weights of the language model with further parts."""
    if not extra:
        return counted
    total_size: int = named(counted.total, "weights_model", "bytes of the language model's weights")
    for part in extra:
        total_size = total_size + named(part.size, part.name, part.label)
    parts = (
        ("weights_model", f"weights of the language model in {counted.dtype}", counted.total),
        *counted.parts,
        *((part.name, part.label, part.size) for part in extra),
    )
    return counted._replace(total=quantity(total_size), parts=parts, extra=tuple(extra))


def _towers(stage: ModelSpec, form: WeightFormat, engine: Engine[Any] | None) -> list[ExtraWeights]:
    """Return the bytes of each tower on one device; none if files contain them, or the engine does
    not load them.
    """
    if form.files or (engine and not engine.loads_towers):
        return []
    tp = symbol("tp", stage.tp, "tensor-parallel devices")
    towers = []
    for tower in stage.towers:
        divided_params, whole_params = tower.split_by(
            stage.tp, pads_heads=bool(engine and engine.pads_tower_heads)
        )
        split = symbol(
            "params_split", divided_params, "its parameters that tensor parallelism divides"
        )
        whole = symbol("params_whole", whole_params, "its parameters that every device has")
        size = quantity(((ceil_div(split, tp) if stage.tp > 1 else split) + whole) * form.width)
        towers.append(ExtraWeights(f"weights_{tower.name}_tower", f"{tower.name} tower", size))
    return towers


def _held(stage: ModelSpec, form: WeightFormat) -> HeldWeights:
    """Return how the engine stores the weights; files store them as they were released."""
    if form.files:
        form = weight_format(stage, form.rest.name, stage.weights_dtype or stage.experts_dtype)

    def bits(layer: int, role: Role, matrix: str) -> int:
        if form.schemes:
            scheme = form.schemes.scheme_of(layer, role, matrix)
            if scheme:
                return scheme.element_bits
            return form.rest.bits
        if role == "experts" or not form.experts_only:
            return form.matrices.bits
        return form.rest.bits

    return HeldWeights(form.rest, form.matrices.name, bits)


def _by_schemes(model: ModelSpec, quantization: Quantization, form: WeightFormat) -> Weights:
    """Return the weights with each matrix in the scheme that the checkpoint's quantization has for
    it.
    """
    symbols = model.symbolic()
    schemes: dict[Scheme, list[tuple[int, int]]] = {}
    for (stack, layers), runs in zip(
        symbols.groups(), schemes_of_groups(model, quantization), strict=True
    ):
        if layers.shares_weights:
            continue
        for role, copies, matrix in layers.matrices_by_role(stack.d_model, symbols.d_source):
            for scheme, n_layers in runs[role, matrix.name].items():
                times = copies * (layers.count if n_layers == int(layers.count) else n_layers)
                size = times * scheme.matrix_bytes(matrix.rows, matrix.cols)
                schemes.setdefault(scheme, []).append((times * matrix.weights, size))
    for _, matrix, scheme in tables_in_schemes(symbols, quantization):
        schemes.setdefault(scheme, []).append(
            (matrix.weights, scheme.matrix_bytes(matrix.rows, matrix.cols))
        )
    parts = [("params_on_device", _ON_DEVICE, params(model).total)]
    size = quantity(0)
    rest = named(params(model).total, "params", _ON_DEVICE)
    for i, (scheme, of_scheme) in enumerate(schemes.items(), start=1):
        label = scheme.name if len(schemes) == 1 else f"{scheme.name}_{i}"
        in_scheme = total(n for n, _ in of_scheme)
        scheme_bytes = total(n for _, n in of_scheme)
        parts += [
            (f"params_{label}", f"of them in {scheme.name} ({scheme.note})", in_scheme),
            (f"bytes_{label}", f"those matrices in {scheme.name}", scheme_bytes),
        ]
        size = size + named(
            scheme_bytes, f"bytes_{label}", f"bytes of the matrices in {scheme.name}"
        )
        rest = rest - named(in_scheme, f"params_{label}", f"of them in {scheme.name}")
    names = list(dict.fromkeys(scheme.name for scheme in schemes)) or [form.rest.name]
    notes = list(dict.fromkeys(f"{scheme.name} ({scheme.note})" for scheme in schemes))
    if quantization.method:
        source = f"Weights as released ({quantization.method})"
    else:
        source = "Weights as --keep says"
    text = f"{source}: {', '.join(notes)}; {form.rest.name} for everything else."
    return Weights(quantity(size + rest * form.width), " and ".join(names), tuple(parts), (text,))


def _in_one_dtype(model: ModelSpec, form: WeightFormat) -> Weights:
    """Return the weights with the quantized matrices in one dtype."""
    all_params = params(model).total
    in_matrices = quantized_total(model, form)
    everything = named(all_params, "params", _ON_DEVICE)
    tables = total(group.lookups for group in params(model).groups)
    parts = [("params_on_device", _ON_DEVICE, all_params)]
    name = form.matrices.name
    of_them = f"of them in {form.quantized}"
    if name == form.rest.name or not in_matrices:
        return Weights(quantity(everything * form.width), form.rest.name, tuple(parts), ())
    matrices = named(in_matrices, "params_linear", of_them)
    parts.append(("params_linear", of_them, in_matrices))
    if form.matrices.group is None:
        layout = form.matrices.note
        matrix_bytes: int = matrices * symbol(
            "bytes_linear", form.matrices.bits // 8, f"bytes of one in {name}"
        )
    else:
        layout = form.matrices.meaning
        exact = quantized_total(model, form, form.matrix_bytes)
        parts.append(("bytes_linear", f"those matrices in {name}", exact))
        matrix_bytes = named(exact, "bytes_linear", f"bytes of those matrices in {name}")
    if form.experts_only:
        rest = "everything else"
    else:
        rest = "embedding, head, routers, norms and biases"
    note = (
        f"Weights: {name} ({layout}) is assumed for the {form.quantized}, {form.rest.name} for "
        f"{rest}."
    )
    rest_bytes: int = (everything - matrices) * form.width
    if tables and name in _WITH_TABLES_IN_FP8:
        note = f"{note[:-1]}, and fp8 for lookup tables."
        rest_bytes = rest_bytes - named(tables, "params_lookups", "of them in lookup tables") * (
            form.width - 1
        )
    return Weights(quantity(matrix_bytes + rest_bytes), name, tuple(parts), (note,))


def _as_stored(
    model: ModelSpec, files: CheckpointWeights, on_device: int, *, whole: bool
) -> Weights:
    """Return the bytes of the model's files, divided over the devices as its parameters are."""
    source = "files of --weights-size" if files.kind == "given" else f"its {files.kind} files"
    size = symbol("weights_stored", files.size, f"bytes of all tensors in {source}")
    if whole:
        note = _of_file(files) or f"Weights: the bytes of all tensors in {source}."
        return Weights(size, files.file_type or AS_STORED, (), (note,))
    all_params = int(params(dataclasses.replace(model, tp=1)).total)
    share = named(on_device, "params_on_device", "parameters on the device")
    per_device = ceil_div(
        size * share, named(all_params, "params_total", "parameters of the whole model")
    )
    note = (
        f"Weights: the bytes of {source}, divided as the parameters are: {count(on_device)} of "
        f"{count(all_params)} on this device."
    )
    return Weights(quantity(per_device), AS_STORED, (), (note,))


def _in_buffer(stored: CheckpointWeights) -> Weights:
    """Return the bytes of the tensors of a GGUF file that one device has, as llama.cpp's model
    buffer.
    """
    size = symbol(
        "model_buffer", stored.size, "bytes of the tensors of its GGUF file on this device"
    )
    note = (
        _of_file(stored)
        or "Weights: the tensors of its GGUF file on this GPU, each padded as CUDA's buffers are."
    )
    return Weights(size, stored.file_type or AS_STORED, (), (note,))


def _of_file(stored: CheckpointWeights) -> str:
    """Return which file was computed for the model, as a sentence; '' for real files."""
    if not stored.file_type:
        return ""
    types = ", ".join(dict.fromkeys(tensor.dtype for tensor in stored.contents))
    return (
        f"Weights: a {stored.file_type.upper()} file as llama-quantize makes it, with tensors in "
        f"{types}."
    )
