"""How a model's weights are stored: as in its files, by the schemes of its quantization_config, or
in one dtype.

The last two apply to the matrices of attention and MLPs; everything else is in the model's own
dtype.
"""

import dataclasses
from collections.abc import Callable

from ..attention import Matrix
from ..checkpoint import CheckpointWeights
from ..cost.common import Part, group_name, sum_over_groups
from ..cost.experts import Routing, experts_read, routed_read
from ..cost.params import lm_head
from ..ggml import FILE_TYPES, TYPES_BY_NAME
from ..model import Layers, ModelSpec, Stack
from ..quantity import Quantity, quantity, symbol, total
from ..quantization import Quantization, Role, Scheme
from ..records import NamedTuple
from ..units import DType, dtype
from ..workload import Workload

# Dtypes whose scales differ from a cache's: those of compressed-tensors' W8A8 and W4A16 schemes by
# default.
_AS_WEIGHTS = {
    "int8": DType("int8", 8, "an fp16 scale for each output channel", group=0, scale_bytes=2),
    "int4": DType(
        "int4", 4, "an fp16 scale per 128 weights, no zero points", group=128, scale_bytes=2
    ),
}
# {dtype in a file: the dtype in which its matrices are multiplied}. Packed dtypes (int4 in I32) are
# not here.
_QUANTIZED = {
    "F8_E4M3": "fp8",
    "F8_E5M2": "fp8",
    "F8_E4M3FNUZ": "fp8",
    "F8_E5M2FNUZ": "fp8",
    "I8": "int8",
}


class WeightFormat(NamedTuple):
    rest: DType  # the dtype of weights that are not quantized
    # the name of the dtype of the quantized matrices; None if they are in `rest`, or as in the
    # files
    given: str | None
    matrices: DType  # that dtype
    experts_only: bool  # whether only routed experts are quantized (gpt-oss)
    # the schemes of the quantized matrices, if `given` stands for them
    schemes: Quantization | None
    files: CheckpointWeights | None  # the model's files, if the weights are as large as they are

    @property
    def quantized(self) -> str:
        if self.experts_only:
            return "matrices of routed experts"
        return "matrices of attention and MLPs"

    @property
    def width(self) -> Quantity:
        """Bytes of a weight that is not quantized, as a symbol."""
        return symbol("bytes", self.rest.bits // 8, f"bytes of a weight in {self.rest.name}")

    def matrix_bytes(self, matrix: Matrix) -> int:
        return matrix.cols * self.matrices.row_bytes(matrix.rows)


def weight_format(
    model: ModelSpec, in_dtype: str | None, weights_dtype: str | None
) -> WeightFormat:
    """Return how the weights of a model are stored.

    Args:
        in_dtype: The dtype of weights that are not quantized; None for the model's.
        weights_dtype: The dtype of the matrices of attention and MLPs, or of the routed experts
            only if it is the model's experts_dtype. The dtype of the model's quantization stands
            for its schemes. None for the model's dtype, or for the dtypes of its safetensors files.

    Raises AttncalcError if a dtype is unknown.
    """
    rest = dtype(in_dtype or model.dtype, compute=True)
    # a GGUF file is loaded as it is, whatever --dtype says
    is_gguf = model.stored is not None and model.stored.kind == "GGUF"
    as_released = is_gguf or rest.name == dtype(model.dtype).name
    in_files = weights_dtype is None and as_released
    return WeightFormat(
        rest=rest,
        given=weights_dtype,
        matrices=rest if weights_dtype is None else as_weights(weights_dtype),
        experts_only=weights_dtype is not None and model.experts_dtype == dtype(weights_dtype).name,
        schemes=model.quantization if is_released(model, weights_dtype) else None,
        files=model.stored if in_files else None,
    )


def as_weights(name: str) -> DType:
    """Return the dtype of that name for weights: their scales differ from a cache's."""
    cache_dtype = dtype(name)
    return _AS_WEIGHTS.get(cache_dtype.name, cache_dtype)


def weight_bits(name: str) -> float:
    """Return the bits of an element without scales, or of most weights in a type of GGUF files with
    them.
    """
    ggml_type = TYPES_BY_NAME.get(FILE_TYPES.get(name, ""))
    if ggml_type:
        return ggml_type.size * 8 / ggml_type.block
    return as_weights(name).bits


def released_dtype(model: ModelSpec) -> str | None:
    """Return the dtype of the matrices that a checkpoint stores in another dtype than the rest.

    An engine's --dtype does not change them. None if there are none, or if the model's files were
    read.
    """
    if model.stored is not None:
        return None
    return model.weights_dtype or model.experts_dtype


def is_released(model: ModelSpec, weights_dtype: str | None) -> bool:
    """Return whether the dtype is that of the checkpoint's quantization."""
    return weights_dtype is not None and weights_dtype in (model.weights_dtype, model.experts_dtype)


def multiplied_as(model: ModelSpec, model_dtype: DType, weights_dtype: str | None) -> DType:
    """Return the dtype of the weights that are multiplied: the given one, or the most frequent of
    the model's files.

    It is the model's for released weights of 8 bits whose activations are not quantized (W8A16).
    """
    form = weight_format(model, model_dtype.name, weights_dtype and dtype(weights_dtype).name)
    if form.given is not None:
        if form.schemes:
            of_dtype = [scheme for scheme in form.schemes.schemes if scheme.dtype == form.given]
        else:
            of_dtype = []
        converted = (
            form.given != "int4"
            and bool(of_dtype)
            and all(scheme.weight_only for scheme in of_dtype)
        )
        if converted:
            return model_dtype
        return dtype(form.given)
    # llama.cpp quantizes the activations in blocks of 32 (Q8_1)
    if form.files and form.files.file_type:
        return dtype("q8_0")
    released = model.weights_dtype or model.experts_dtype
    # headers show only int32 for packed matrices, and uint8 for FP4
    if form.files and released:
        return multiplied_as(dataclasses.replace(model, stored=None), model_dtype, released)
    if form.files and form.files.by_dtype:
        return dtype(_QUANTIZED.get(form.files.by_dtype[0].name, model_dtype.name))
    return model_dtype


def schemes_of_groups(
    model: ModelSpec, quantization: Quantization
) -> list[dict[tuple[Role, str], dict[Scheme, int]]]:
    """Return, for each distinct group of layers, {(role, matrix): {scheme: layers in which it has
    the scheme}}. The model keeps it for further steps and batches.
    """
    return model.kept(("schemes", quantization), lambda: _schemes_of_groups(model, quantization))


def _schemes_of_groups(
    model: ModelSpec, quantization: Quantization
) -> list[dict[tuple[Role, str], dict[Scheme, int]]]:
    found: list[dict[tuple[Role, str], dict[Scheme, int]]] = []
    for stack in model.stacks:
        groups = {
            dataclasses.replace(group, count=1): n for n, group in enumerate(stack.distinct())
        }
        of_stack: list[dict[tuple[Role, str], dict[Scheme, int]]] = [{} for _ in groups]
        layer = model.first_layer
        for run in stack.layers:
            counts = of_stack[groups[dataclasses.replace(run, count=1)]]
            for role, _, matrix in run.matrices_by_role(stack.d_model, model.d_source):
                by_scheme = counts.setdefault((role, matrix.name), {})
                for i in range(layer, layer + run.count):
                    scheme = quantization.scheme_of(i, role, matrix.name)
                    if scheme:
                        by_scheme[scheme] = by_scheme.get(scheme, 0) + 1
            layer += run.count
        found += of_stack
    return found


def tables_in_schemes(
    symbols: ModelSpec, quantization: Quantization
) -> list[tuple[Role, Matrix, Scheme]]:
    """Return (role, matrix, scheme) of the token embedding and the lm head, of those that are
    quantized.

    A tied head is the embedding. On a later pipeline stage the vocabulary's table is the head
    (`split_into_stages`).
    """
    if not symbols.vocab_size:
        return []
    table = lm_head(symbols)
    own_head = symbols.head and symbols.head.kind == "lm" and not symbols.head.tied
    roles: tuple[Role, ...] = ("embedding",)
    if symbols.first_layer:
        roles = ("head",)
    elif own_head:
        roles = ("embedding", "head")
    found = ((role, quantization.scheme_of(0, role, table.name)) for role in roles)
    return [(role, table, scheme) for role, scheme in found if scheme]


def quantized_total(
    model: ModelSpec,
    form: WeightFormat,
    size: Callable[[Matrix], int] = lambda matrix: matrix.weights,
    *,
    step: Workload | None = None,
    routing: Routing = "fewest",
) -> Quantity:
    """Return the sum of `size` over the matrices that may be quantized, of all layers on a device.

    `size` is the parameters of a matrix, or `form.matrix_bytes`. With `step`, they are the matrices
    that this step reads, and one that layers share is read in each of them; without, those that are
    stored, each once.
    """
    symbols = model.symbolic()
    if step is None:
        groups = [
            (stack, layers) for stack, layers in symbols.groups() if not layers.shares_weights
        ]
    else:
        groups = [(symbols.main, layers) for layers in symbols.main.distinct()]
        step = step.symbolic()
    parts = []
    for stack, layers in groups:
        per_layer = _layer_total(symbols, stack, layers, form, size, step, routing)
        parts.append(Part(group_name(symbols, stack, layers), quantity(layers.count * per_layer)))
    kind = "bytes" if size == form.matrix_bytes else "params"
    return sum_over_groups(f"{kind}_linear", f"{kind} of {form.quantized}", parts)


def _layer_total(
    model: ModelSpec,
    stack: Stack,
    layers: Layers,
    form: WeightFormat,
    size: Callable[[Matrix], int],
    step: Workload | None,
    routing: Routing,
) -> int:
    """Return the sum of `size` over one layer's matrices; biases, vectors and routers are not
    quantized.
    """
    mlp = layers.mlp
    expert = total(size(m) for m in mlp.expert(stack.d_model)) if mlp else 0
    if form.experts_only:
        if not mlp or not mlp.n_experts:
            return 0
        if step:
            return routed_read(expert, mlp, step.batch, routing)
        return expert * mlp.n_experts
    attention = layers.attention.matrices(stack.d_model, stack.d_model)
    cross = layers.cross.matrices(stack.d_model, model.d_source) if layers.cross else ()
    if step:  # K and V of the source are in the cache already
        cross = tuple(m for m in cross if m.applied_to != "keys")
    layer_total: int = total(size(m) for m in (*attention, *cross) if m.applied_to)
    if mlp:
        if step:
            layer_total += experts_read(expert, mlp, step.batch, routing)
        else:
            layer_total += expert * mlp.experts_stored
        layer_total += total(size(m) for m in mlp.shared(stack.d_model))
    return layer_total
