"""Bytes of the weights that one step reads on one device."""

from ..checkpoint import CheckpointWeights
from ..cost.common import compute_dtype
from ..cost.experts import Routing, routed_read
from ..cost.intensity import weights_read
from ..cost.params import params
from ..model import ModelSpec
from ..quantity import Quantity, minimum, named, quantity, symbol, total
from ..quantization import Quantization
from ..workload import Workload
from .weight_format import (
    WeightFormat,
    quantized_total,
    schemes_of_groups,
    tables_in_schemes,
    weight_format,
)
from .weights import weights


def bytes_read(
    model: ModelSpec,
    workload: Workload,
    *,
    weights_dtype: str | None = None,
    routing: Routing = "fewest",
) -> Quantity:
    """Return the bytes of weights that one step of the whole batch reads on one device.

    Each weight is read once, with two exceptions: of an embedding only the batch's rows are read,
    and of the experts those that its tokens pick. In quantized files everything but the matrices of
    attention and MLPs is assumed to be in the model's dtype. Raises AttncalcError as `weights`
    does.
    """
    form = weight_format(model, compute_dtype(model, workload).name, weights_dtype)
    read = named(
        weights_read(model, workload, routing), "params_read", "parameters read in the step"
    )
    if form.files and form.files.parameters:
        return _read_of_file(model, form, form.files, workload, routing, read)
    if form.schemes:
        in_schemes, size_read = _read_by_schemes(model, form.schemes, workload, routing)
        return quantity(
            named(
                size_read,
                "bytes_linear_read",
                "bytes of the quantized matrices that the step reads",
            )
            + (read - named(in_schemes, "params_linear_read", "of them in quantized matrices"))
            * form.width
        )
    in_matrices = quantized_total(model, form, step=workload, routing=routing)
    if not in_matrices or (not form.files and form.matrices.name == form.rest.name):
        return quantity(read * form.width)
    matrices = named(in_matrices, "params_linear_read", f"of them in {form.quantized}")
    if form.files:
        matrix_bytes = _stored_matrix_bytes(model, form, int(in_matrices))
        place = "its files"
    else:
        matrix_bytes = quantized_total(
            model, form, form.matrix_bytes, step=workload, routing=routing
        )
        place = form.matrices.name
    return quantity(
        named(matrix_bytes, "bytes_linear_read", f"bytes of those matrices, in {place}")
        + (read - matrices) * form.width
    )


def _read_of_file(
    model: ModelSpec,
    form: WeightFormat,
    files: CheckpointWeights,
    workload: Workload,
    routing: Routing,
    read: Quantity,
) -> Quantity:
    """Return the bytes of `read` parameters. Experts, and all others, have their own bits per
    parameter.
    """
    experts = [tensor for tensor in files.contents if "_exps." in tensor.name]
    size = sum(tensor.size for tensor in experts)
    elements = sum(tensor.elements for tensor in experts)
    which = "other" if size else "all"
    meaning = f"bytes of {which} tensors in its {files.kind} files"
    rest = symbol("weights_stored", files.size - size, meaning)
    of_rest = symbol("elements", (files.parameters or 0) - elements, "elements of those tensors")
    if not elements:
        return quantity(read * rest // of_rest)
    of_experts = form._replace(experts_only=True)
    in_experts = named(
        quantized_total(model, of_experts, step=workload, routing=routing),
        "experts_read",
        "of experts",
    )
    stored = symbol("experts_stored", size, "bytes of all experts in its files")
    of_all = symbol("experts_elements", elements, "elements of all experts")
    return quantity(in_experts * stored // of_all + (read - in_experts) * rest // of_rest)


def _read_by_schemes(
    model: ModelSpec, quantization: Quantization, workload: Workload, routing: Routing
) -> tuple[Quantity, Quantity]:
    """Return (weights, bytes) of the quantized matrices that one step reads on one device."""
    symbols = model.symbolic()
    batch = workload.symbolic().batch
    runs_of_main = schemes_of_groups(model, quantization)[-len(symbols.main.distinct()) :]
    read: list[tuple[int, int]] = []
    for layers, runs in zip(symbols.main.distinct(), runs_of_main, strict=True):
        for role, copies, matrix in layers.matrices_by_role(symbols.main.d_model, symbols.d_source):
            # K and V of the source are in the cache already
            if role == "cross" and matrix.applied_to == "keys":
                continue
            if role == "lookup":  # a few rows per token
                continue
            for scheme, n_layers in runs[role, matrix.name].items():
                times = layers.count if n_layers == int(layers.count) else n_layers
                size = times * matrix.weights
                size_bytes = times * scheme.matrix_bytes(matrix.rows, matrix.cols)
                if role == "experts" and layers.mlp:
                    mlp = layers.mlp
                    read.append(
                        (
                            routed_read(size, mlp, batch, routing),
                            routed_read(size_bytes, mlp, batch, routing),
                        )
                    )
                else:
                    read.append((copies * size, copies * size_bytes))
    if symbols.head and symbols.head.kind == "lm":
        tied = symbols.head.tied and not symbols.first_layer
        for role, matrix, scheme in tables_in_schemes(symbols, quantization):
            if tied or role == "head":
                read.append((matrix.weights, scheme.matrix_bytes(matrix.rows, matrix.cols)))
    return total(size for size, _ in read), total(size for _, size in read)


def _stored_matrix_bytes(model: ModelSpec, form: WeightFormat, read: int) -> Quantity:
    """Return the bytes in the model's files of `read` weights of its matrices, at most as many as
    in its dtype.

    All matrices together have the bytes of the budget, less everything else in the model's dtype.
    Files that are smaller than everything else are divided as the parameters are.
    """
    on_device = named(
        weights(model, in_dtype=form.rest.name).total,
        "weights",
        "bytes of the weights on the device",
    )
    matrices_read = symbol(
        "params_linear_read", read, "weights read in matrices of attention and MLPs"
    )
    matrices = named(
        quantized_total(model, form), "params_linear", "weights in matrices of attention and MLPs"
    )
    everything = named(params(model).total, "params", "parameters on the device")
    rest = (everything - matrices) * form.width
    part = on_device
    whole = everything
    if int(on_device) > int(rest):
        part = on_device - rest
        whole = matrices
    return quantity(minimum(matrices_read * part // whole, matrices_read * form.width))
