"""The parameter tensors of a stage: each is trained or frozen, sharded, quantized, adapted."""

import dataclasses
from collections.abc import Iterator

from ...attention import Matrix
from ...mlp import Mlp
from ...model import Layers, ModelSpec, Stack
from ...quantity import exact_div
from ..params import lm_head
from .param_tensor import ParamTensor
from .setup import Stage, Training

# Elements per scale of nf4, and scales per scale of double quantisation (QLoRA, arXiv:2305.14314,
# 3).
NF4_BLOCK = 64
NF4_NESTED = 256


def stage_tensors(run: Training, stage: Stage, model: ModelSpec) -> Iterator[ParamTensor]:
    """Yield the parameter tensors of a stage on one GPU, without adapters.

    `model` is the stage's, as symbols or as plain ints.
    """
    if stage.is_first or (stage.is_last and model.head and model.head.tied):
        for rows in (model.vocab_size, model.token_types):
            if rows:
                yield ParamTensor("embedding", "embedding", rows, model.table_width, 1)
    for stack in model.stacks:
        if stage.is_first:
            yield from _positions(stack)
        for layers in stack.distinct():
            if not layers.shares_weights:
                yield from layer_tensors(run, model, stack, layers)
        norms = int(stack.final_norm and stage.is_last) + int(
            stack.embedding_norm and stage.is_first
        )
        if norms:
            yield ParamTensor("norm", "norms", stack.d_model, 1, norms * stack.norm_vectors)
    if stage.is_last:
        yield from _head(model)


def _positions(stack: Stack) -> Iterator[ParamTensor]:
    if stack.learned_positions:
        yield ParamTensor("positions", "embedding", stack.learned_positions, stack.d_model, 1)
    if stack.relative_position_buckets:
        heads = stack.leading.widths().n_heads
        yield ParamTensor("positions", "embedding", stack.relative_position_buckets, heads, 1)


def _head(model: ModelSpec) -> Iterator[ParamTensor]:
    for matrix in model.extra:
        yield from _of_matrix(matrix, "other", 1)
    if model.head is None:
        return
    if model.head.kind == "pooler":
        yield ParamTensor("pooler", "head", model.main.d_model, model.main.d_model, 1)
        yield ParamTensor("pooler bias", "head", model.main.d_model, 1, 1)
        return
    matrix = lm_head(model)
    if not model.head.tied:
        yield ParamTensor("lm_head", "head", matrix.cols, matrix.rows, 1)
    if model.head.bias:
        yield ParamTensor("lm_head bias", "head", matrix.cols, 1, 1)


def layer_tensors(
    run: Training, model: ModelSpec, stack: Stack, layers: Layers
) -> Iterator[ParamTensor]:
    """Yield the parameter tensors of a group of layers."""
    count = layers.count
    for matrix in layers.attention.matrices(stack.d_model, stack.d_model):
        yield from _of_matrix(matrix, "attention", count)
    if layers.cross:
        for matrix in layers.cross.matrices(stack.d_model, model.d_source):
            yield from _of_matrix(matrix, "attention", count)
    if layers.mlp:
        yield from _mlp(run, layers.mlp, stack.d_model, count)
    if layers.norms:
        yield ParamTensor(
            "norm", "norms", stack.d_model, 1, count * layers.norms * stack.norm_vectors
        )
    for matrix in layers.extra:
        yield from _of_matrix(matrix, "mlp" if matrix.applied_to else "other", count)
    for table in layers.lookups:
        yield from _of_matrix(table, "embedding", count)


def _mlp(run: Training, mlp: Mlp, d_model: int, count: int) -> Iterator[ParamTensor]:
    if mlp.n_experts is None:
        for matrix in mlp.expert(d_model):
            yield from _of_matrix(matrix, "mlp", count)
        return
    whole = dataclasses.replace(mlp, d_ff=mlp.d_ff * exact_div(run.tp, run.expert_tp))
    held = exact_div(mlp.n_experts, run.ep)
    for matrix in whole.expert(d_model):
        stacked = held if matrix.name == "W_down" or not mlp.gated else 2 * held
        for tensor in _of_matrix(matrix, "experts", count * held):
            yield tensor._replace(stacked=int(stacked))
    if mlp.n_shared_experts:
        for matrix in mlp.expert(d_model):
            yield from _of_matrix(matrix, "mlp", count * mlp.n_shared_experts)
    for matrix in (*mlp.shared(d_model), *mlp.router(d_model)):
        yield from _of_matrix(matrix, "mlp", count)


def _of_matrix(matrix: Matrix, part: str, count: int) -> Iterator[ParamTensor]:
    """Yield a matrix, whose outputs are its first dimension in torch, or another parameter, and the
    bias.
    """
    is_hidden = matrix.applied_to is not None
    rows = matrix.cols if is_hidden else matrix.rows
    columns = matrix.rows if is_hidden else matrix.cols
    yield ParamTensor(matrix.name, part, rows, columns, count, is_hidden=is_hidden)
    if matrix.bias:
        yield ParamTensor(f"{matrix.name} bias", part, matrix.bias, 1, count)


def adapters(run: Training, tensors: list[ParamTensor]) -> Iterator[ParamTensor]:
    """Yield the adapters of the matrices that LoRA targets."""
    if run.lora is None:
        return
    for tensor in tensors:
        if is_target(run, tensor):
            part = tensor.part
            yield ParamTensor(
                f"{tensor.name} A",
                part,
                run.lora.rank,
                tensor.columns,
                tensor.copies,
                is_hidden=True,
            )
            yield ParamTensor(
                f"{tensor.name} B", part, tensor.rows, run.lora.rank, tensor.copies, is_hidden=True
            )


def saved_modules(
    run: Training, stage: Stage, model: ModelSpec, tensors: list[ParamTensor]
) -> Iterator[ParamTensor]:
    """Yield the copies of modules that peft trains whole beside adapters (modules_to_save).

    The frozen ones stay (ModulesToSaveWrapper in peft/utils/other.py). Names of norms end with
    'norm', and peft takes every module whose name ends so. A tied table has two copies, of the
    embedding and of the head, unless only one of them is named.
    """
    for tensor in tensors:
        is_table = tensor.name == "embedding" and tensor.rows == model.vocab_size
        is_embedding = is_table and stage.is_first and "embedding" in run.modules_to_save
        is_head = tensor.name.startswith("lm_head") and "lm_head" in run.modules_to_save
        is_norm = tensor.name.endswith("norm") and "norm" in run.modules_to_save
        if is_embedding or is_head or is_norm:
            yield tensor._replace(is_saved=True)
    head = model.head
    if "lm_head" in run.modules_to_save and stage.is_last and head is not None and head.tied:
        matrix = lm_head(model)
        yield ParamTensor("lm_head", "head", matrix.cols, matrix.rows, 1, is_saved=True)


def is_target(run: Training, tensor: ParamTensor) -> bool:
    """Return whether LoRA adapts a tensor; experts and routers have no adapters."""
    if run.lora is None or tensor.part == "experts" or tensor.name == "router":
        return False
    return (tensor.is_hidden or tensor.name == "lm_head") and tensor.name in run.lora.targets


def quantized_bytes(tensor: ParamTensor, dtype: str, *, double_quant: bool) -> int:
    """Return the bytes of a frozen matrix in nf4 or int8, with its scales and tables.

    Source: bitsandbytes/functional.py: quantize_4bit and create_dynamic_map; LLM.int8(),
    arXiv:2208.07339.
    """
    elements = tensor.elements
    if dtype == "int8":
        return elements + 4 * tensor.rows
    scales = -(-elements // NF4_BLOCK)
    table = 16 * 4
    if double_quant:
        nested = -(-scales // NF4_NESTED)
        return elements // 2 + scales + 4 * nested + 256 * 4 + 4 + table
    return elements // 2 + 4 * scales + table
