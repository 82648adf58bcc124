"""The activations that a GPU keeps for the backward pass, by part.

A layer's saved tensors are listed once (attention/saved.py and below). Recomputation keeps only
each layer's input (full) or drops the scores (selective). Source: Korthikanti et al. 2022,
arXiv:2205.05198, 4 and 5.
"""

import dataclasses
from collections.abc import Iterable, Iterator

from ...attention.recurrent import NoAttention
from ...attention.saved import (
    FP32,
    INT64,
    MASK,
    Forward,
    Part,
    Router,
    SavedTensor,
    matrix_input,
    norm_tensors,
    split,
)
from ...errors import NotSupportedError
from ...model import Layers, ModelSpec, Stack
from ...quantity import Quantity, exact_div, quantity, summed, symbol, symbol_like, total
from ...records import NamedTuple
from ...search import grouped
from ...units import dtype
from ..common import group_name
from ..flops import matmuls_of_op
from .classes import class_math
from .mlp import mlp_tensors
from .param_tensor import ParamTensor
from .selective import is_recomputed, recomputed_layers
from .setup import Lora, Stage, Training
from .tensors import adapters, is_target, layer_tensors

SHARED_MASK = "causal mask"


class LayerSaved(NamedTuple):
    """What one layer of a group saves on one device, for one micro-batch."""

    group: str  # the group's name
    layers: Layers  # the group
    tensors: tuple[SavedTensor, ...]  # every tensor that its forward pass saves
    kept: tuple[SavedTensor, ...]  # those that stay until the backward pass of the layer begins
    params: tuple[ParamTensor, ...]  # the layer's parameter tensors
    hidden: int  # bytes of the hidden states
    inputs: int = 0  # layers whose kept tensors stay; 0 for all of the group
    together: int = 1  # layers that are recomputed at once
    is_whole: bool = False  # whether it is not recomputed, beside layers that are

    @property
    def kept_count(self) -> int:
        """Return the number of layers whose kept tensors stay."""
        return self.inputs or self.layers.count

    @property
    def kept_size(self) -> Quantity:
        """Return the bytes of what stays of all these layers, of one micro-batch."""
        return total(quantity(self.kept_count * tensor.size) for tensor in self.kept)

    def part(self, part: str, tensors: Iterable[SavedTensor]) -> Quantity:
        return total(t.size for t in tensors if t.part == part)


class StageSaved(NamedTuple):
    """What a stage saves for one micro-batch."""

    layers: tuple[LayerSaved, ...]  # what one layer of each group saves
    # what the embedding, the last norm and the head save, without the loss
    outside: tuple[SavedTensor, ...]
    tokens: Quantity  # those of a micro-batch on one device, as a formula


def stage_saved(run: Training, stage: Stage, model: ModelSpec) -> StageSaved:
    """Return what a stage saves for one micro-batch. `model` is the stage's, as symbols or as plain
    ints.

    Raises NotSupportedError if a kind's saved tensors are not known.
    """
    workload = run.workload if model is stage.model.plain() else run.workload.symbolic()
    size = dtype(run.dtype).bits // 8
    element = size
    if workload is not run.workload:
        element = symbol("bytes", size, f"bytes of an element in {run.dtype}")
    tokens = split(workload.new, run.cp, "cp", "context-parallel devices")
    source = workload.source or 0
    math = class_math(model.model_type)
    if run.fused_gelu:
        math = math._replace(activation="fused")
    if run.is_megatron:
        math = math._replace(router=_router_of_megatron(math.router))

    def forward(stack: Stack) -> Forward:
        length = source if stack.input == "source" else tokens
        return Forward(
            workload.batch,
            length,
            length,
            stack.d_model,
            element,
            run.kernel,
            run.upcasts and not run.compile,
            stack.norm,
            rotary=not (stack.learned_positions or stack.relative_position_buckets),
            dropout=run.dropout,
            math=math,
        )

    layers: list[LayerSaved] = []
    outside: list[SavedTensor] = []
    for index, (stack, group) in enumerate(model.groups()):
        f = forward(stack)
        params = tuple(layer_tensors(run, model, stack, dataclasses.replace(group, count=1)))
        saved = tuple(_reduced(run, f, _layer_saved(run, stack, group, params, f, source)))
        hidden = (FP32 if run.autocasts_adapters else f.bytes) * f.tokens * f.d_model
        name = group_name(model, stack, group)
        kept = tuple(_kept(run, f, stack, group, saved))
        layer = LayerSaved(name, group, saved, kept, params, hidden)
        layers += _by_method(run, stage, index, layer)
    for stack in model.stacks:
        f = forward(stack)
        if stage.is_first and (stack is model.main or stack.input == "source"):
            outside += _reduced(run, f, _of_the_embedding(model, stack, f))
        if stage.is_last:
            outside += _reduced(run, f, _of_the_head(run, model, stack, f))
        if run.workload.recompute == "full" and stack is model.main:
            outside += _shared_mask(run, f)
    return StageSaved(tuple(layers), tuple(outside), quantity(workload.batch * tokens))


def _by_method(run: Training, stage: Stage, index: int, layer: LayerSaved) -> Iterator[LayerSaved]:
    """Yield the layers of a group that are recomputed and those that are not, with
    --recompute-method.

    `index` is the group's place among those of the stage.
    """
    if run.recompute_method is None:
        yield layer
        return
    main = stage.model.plain().main
    of_group = main.distinct()[index]
    found = recomputed_layers(run, main.each_layer()).get(dataclasses.replace(of_group, count=1))
    recomputed = found.layers if found else 0
    rest = int(of_group.count) - recomputed
    if found:
        count = symbol_like(layer.hidden, "L_again", recomputed, "layers that are recomputed")
        inputs = symbol_like(layer.hidden, "inputs", found.inputs, "inputs of layers that are kept")
        yield layer._replace(
            group=f"{layer.group}, recomputed" if rest else layer.group,
            layers=dataclasses.replace(layer.layers, count=count),
            inputs=inputs,
            together=found.together,
        )
    if rest:
        count = symbol_like(layer.hidden, "L_whole", rest, "layers that are not recomputed")
        whole = dataclasses.replace(layer.layers, count=count)
        yield layer._replace(layers=whole, kept=layer.tensors, is_whole=True)


def _router_of_megatron(router: Router) -> Router:
    """Return a router as Megatron computes it.

    It saves its operands in their own dtype (RouterGatingLinearFunction in
    megatron/core/transformer/moe/moe_utils.py), and its weights multiply the results of the
    experts' activation function, which W_down reads (bias_act_func in moe/experts.py).
    """
    return router._replace(in_fp32="", weighs_inside=True)


def _shared_mask(run: Training, f: Forward) -> Iterator[SavedTensor]:
    """Yield the mask that recomputed layers get again: bools for SDPA, and what is added to the
    scores if eager.
    """
    if run.kernel == "eager":
        size = f.bytes
    elif run.kernel == "efficient" and has_windows(run):
        size = MASK
    else:
        return
    pairs = size * f.B * f.S * f.S
    yield SavedTensor(SHARED_MASK, "the layers' recomputation", pairs, "embedding")


def has_windows(run: Training) -> bool:
    """Return whether a layer has a window or chunk that is shorter than the sequences."""
    return any(_has_window(layers, run) for layers in run.model.main.layers)


def _has_window(layers: Layers, run: Training) -> bool:
    """Return whether a layer's window hides tokens: only then transformers passes a mask to
    SDPA.
    """
    reach = layers.attention.span.reach
    return reach is not None and int(reach) < run.workload.new


def _layer_saved(
    run: Training,
    stack: Stack,
    layers: Layers,
    params: Iterable[ParamTensor],
    f: Forward,
    source: int,
) -> Iterator[SavedTensor]:
    """Yield what one layer's forward pass saves, in its order, before parallelism and
    compilation.
    """
    norms = [
        norm_tensors(f, f.tokens, stack.d_model, "norm")
        for _ in range(f.math.norms(int(layers.norms)))
    ]
    inside = list(_adapted(run, layers, params, f, source))
    # each call of SDPA turns the bools into a bias
    if run.kernel == "efficient" and _has_window(layers, run):
        inside.append(
            SavedTensor(
                "mask of the kernel", "the kernel", f.bytes * f.B * f.S * f.S, is_score=True
            )
        )
    if norms:
        yield from norms[0]
    yield from (tensor for tensor in inside if tensor.part != "mlp")
    for norm in norms[1:]:
        for tensor in norm:
            if not f.math.in_parallel or tensor.name != "norm input":
                yield tensor
    yield from (tensor for tensor in inside if tensor.part == "mlp")
    if run.autocasts:
        n = sum(tensor.total for tensor in params if tensor.is_hidden)
        matrices = symbol_like(f.bytes, "N_layer", n, "elements of the layer's matrices")
        yield SavedTensor(
            "cast weights", "autocast", f.bytes * matrices, "mlp" if layers.mlp else "attention"
        )


def _plain_tensors(layers: Layers, f: Forward, source: int) -> Iterator[SavedTensor]:
    yield from layers.attention.saved_tensors(f)
    if f.dropout:
        yield SavedTensor(
            "dropout mask", "dropout", MASK * f.tokens * f.d_model, is_replicated=True
        )
    if layers.cross:
        yield from layers.cross.saved_tensors(f._replace(T=source))
    if layers.mlp:
        yield from mlp_tensors(layers.mlp, f)
        if f.dropout:
            yield SavedTensor(
                "dropout mask", "dropout", MASK * f.tokens * f.d_model, "mlp", is_replicated=True
            )
    if f.math.scales_layer:
        yield SavedTensor("scale of the layer", "the product", f.bytes, "mlp", is_statistic=True)
    for matrix in layers.extra:
        if matrix.name == "shared_gate":  # its input is that of the router
            size = f.bytes * f.tokens
            yield SavedTensor("output of the shared experts", "the gate", size * f.d_model, "mlp")
            yield SavedTensor(
                "gate of the shared experts", "sigmoid, product", size, "mlp", is_statistic=True
            )
        elif matrix.name == "input_gate":  # Gemma's inputs of each layer
            size = f.bytes * f.tokens * matrix.cols
            yield matrix_input(f, matrix.rows, (matrix.name,), f"input of {matrix.name}", "mlp")
            yield SavedTensor("gate of the layer's input", "the activation", size, "mlp")
            yield SavedTensor(
                "activation of the gate", "the product", size, "mlp", is_pointwise=True
            )
        elif matrix.applied_to:
            yield matrix_input(f, matrix.rows, (matrix.name,), f"input of {matrix.name}", "mlp")


def _adapted(
    run: Training, layers: Layers, params: Iterable[ParamTensor], f: Forward, source: int
) -> Iterator[SavedTensor]:
    """Yield what attention and MLP save; with LoRA without the inputs of frozen matrices, and with
    those of adapters.

    The input of a matrix is kept for its adapter A if it has one. An adapter in fp32 beside
    activations of 16 bits has an fp32 copy of its own, and one with dropout the result of it, with
    a mask (peft's tuners/lora/layer.py). Autocast casts the fp32 output of a norm for each adapter,
    and so the adapters; a quantized matrix returns the dtype of its input, so that the MLP computes
    in fp32 (Linear4bit in bitsandbytes/nn/modules.py). Beside plain matrices peft casts the input
    to fp32 first, so that autocast makes a copy of 16 bits; beside quantized ones it does not
    (lora/bnb.py).
    """
    for tensor in _plain_tensors(layers, f, source):
        if run.lora:
            yield from _with_adapters(run, run.lora, layers, tensor, f)
        # attention has saved the input of a parallel MLP already
        elif not (_is_parallel(layers, f) and tensor.part == "mlp" and tensor.name == "input"):
            yield tensor
    if run.lora is None:
        return
    rank = symbol_like(f.bytes, "r", run.lora.rank, "rank of LoRA")
    size = dtype(_adapters_dtype(run)).bits // 8
    for matrix in params:
        if is_target(run, matrix):
            part: Part = "attention" if matrix.part == "attention" else "mlp"
            name = f"output of {matrix.name} A"
            meaning = f"the gradient of {matrix.name} B"
            yield SavedTensor(name, meaning, size * f.tokens * rank, part)
    if (run.autocasts_adapters or run.autocast) and run.param_dtype == "fp32":
        in_adapters = sum(tensor.total for tensor in adapters(run, list(params)))
        n = symbol_like(f.bytes, "N_adapters", in_adapters, "their elements")
        yield SavedTensor(
            "cast adapters", "autocast", f.bytes * n, "mlp" if layers.mlp else "attention"
        )


def _is_parallel(layers: Layers, f: Forward) -> bool:
    """Return whether attention and MLP read the same normalized input."""
    has_attention = not isinstance(layers.attention, NoAttention)
    return int(layers.norms) == 1 and has_attention and not f.math.parallel_mixers


def _adapters_dtype(run: Training) -> str:
    """Return the dtype of the adapters' matmuls."""
    if run.autocasts_adapters or run.autocast:
        return run.dtype
    return run.param_dtype


def _with_adapters(
    run: Training, lora: Lora, layers: Layers, tensor: SavedTensor, f: Forward
) -> Iterator[SavedTensor]:
    """Yield a tensor as it is saved beside adapters, with what these save of it."""
    autocasts = run.autocasts_adapters
    computes = _adapters_dtype(run)
    adapter_bytes = dtype(computes).bits // 8
    casts = autocasts or (run.autocast and not run.weights_dtype)
    copies = casts or adapter_bytes != int(f.bytes) or lora.dropout
    read_by = () if autocasts and not lora.dropout else tensor.read_by  # which need no copy
    adapted = [name for name in (*tensor.input_of, *read_by) if name in lora.targets]
    if not tensor.input_of or (run.keeps_quantized_inputs and tensor.input_of != ("router",)):
        is_dense = layers.mlp is not None and layers.mlp.n_experts is None
        if autocasts and tensor.part == "mlp" and is_dense:
            yield tensor._replace(size=tensor.size // f.bytes * FP32)
        else:
            yield tensor
    elif adapted and not copies:
        yield tensor._replace(input_of=tuple(adapted))
    if not copies:
        return
    elements = tensor.size // f.bytes
    size = symbol_like(f.bytes, "bytes_adapter", adapter_bytes, "bytes of an element of an adapter")
    for name in adapted:
        named = f"{computes} input of {name} A"
        yield tensor._replace(name=named, size=elements * size, input_of=(name,), read_by=())
        if lora.dropout:
            mask = f"dropout mask of {name} A"
            yield tensor._replace(
                name=mask, meaning="dropout", size=elements * MASK, input_of=(), read_by=()
            )


def _of_the_embedding(model: ModelSpec, stack: Stack, f: Forward) -> Iterator[SavedTensor]:
    yield SavedTensor(
        "token ids", "the embedding", INT64 * f.tokens, "embedding", is_statistic=True
    )
    if stack.learned_positions:
        if f.math.positions_of_rows:
            ids = f.tokens
        elif model.token_types:
            ids = stack.learned_positions
        else:
            ids = f.S
        yield SavedTensor(
            "position ids", "the table of positions", 8 * ids, "embedding", is_statistic=True
        )
    if model.token_types:  # beside a buffer of all position ids, as in BERT
        types = f.tokens if f.math.positions_of_rows else f.S
        yield SavedTensor(
            "token types", "their table", INT64 * types, "embedding", is_statistic=True
        )
    if f.math.scales_embedding:
        yield SavedTensor(
            "scale of the embedding", "the product", f.bytes, "embedding", is_statistic=True
        )
    if stack.embedding_norm or f.math.gain == "bare":
        yield from norm_tensors(f, f.tokens, stack.d_model, "norm", "embedding")
    # Gemma 4's inputs of each layer
    for projection in (m for m in model.extra if m.name == "layers_projection"):
        width = next(m.cols for m in model.main.layers[0].extra if m.name == "input_gate")
        yield SavedTensor(
            "scale of the layers' embedding", "the product", f.bytes, "embedding", is_statistic=True
        )
        yield matrix_input(
            f, projection.rows, (projection.name,), "input of layers_projection", "embedding"
        )
        rows = f.tokens * exact_div(projection.cols, width)
        yield from norm_tensors(f, rows, width, "norm of layers_projection", "embedding")
        yield SavedTensor(
            "inputs of the layers",
            "products with gates",
            f.bytes * f.tokens * projection.cols,
            "embedding",
        )


def _of_the_head(
    run: Training, model: ModelSpec, stack: Stack, f: Forward
) -> Iterator[SavedTensor]:
    if stack.final_norm or f.math.gain in ("none", "bare"):
        normed = f._replace(bytes=FP32) if f.math.residual_in_fp32 else f
        yield from norm_tensors(normed, f.tokens, stack.d_model, "norm", "head")
    # BERT's, with an activation function and a norm, before a masked language model's head
    for matrix in model.extra:
        if matrix.name == "transform" and matrix.applied_to:
            size = f.bytes * f.tokens * matrix.cols
            yield matrix_input(f, matrix.rows, (matrix.name,), "input of the transform", "head")
            yield SavedTensor("output of the transform", "the activation", size, "head")
            yield from norm_tensors(f, f.tokens, matrix.cols, "norm of the transform", "head")
    if stack is model.main and model.head and model.head.kind == "lm":
        yield matrix_input(f, model.table_width, ("lm_head",), "input of the head", "head")
        vocabulary = model.vocab_size or 0
        if run.autocasts or run.autocasts_adapters:
            yield SavedTensor(
                "cast weights of the head",
                "autocast",
                f.bytes * vocabulary * model.table_width,
                "head",
            )
        if f.math.caps_logits and run.loss in ("full", "compiled"):
            size = f.bytes * f.tokens * vocabulary
            yield SavedTensor("tanh of the logits", "the softcap", size, "head", is_pointwise=True)
    elif stack.input == "source":
        yield SavedTensor(
            "output of the encoder",
            "W_k and W_v of the decoder",
            f.bytes * f.tokens * f.d_model,
            "head",
        )


def _reduced(run: Training, f: Forward, tensors: Iterable[SavedTensor]) -> Iterator[SavedTensor]:
    """Yield what is left with frozen weights, a compiler and sequence parallelism, and what
    autocast changes.

    A frozen norm's gain needs no normalized input. What a compiler fuses, it computes again.
    """
    for tensor in tensors:
        if run.lora and _is_of_frozen(run, run.lora, tensor):
            continue
        if run.compile and tensor.is_pointwise:
            continue
        changed: Iterable[SavedTensor] = (tensor,)
        if run.autocasts:
            changed = _cast(f, tensor)
        elif run.fp8 != "none":
            changed = _in_fp8(f, tensor)
        for one in changed:
            yield _divided(run, one)


def _is_of_frozen(run: Training, lora: Lora, tensor: SavedTensor) -> bool:
    """Return whether a tensor is saved for the gradient of a norm or a head that is frozen."""
    if not tensor.input_of:
        return False
    first = tensor.input_of[0]
    if first.endswith("norm"):
        return "norm" not in run.modules_to_save
    trained = (*lora.targets, *run.modules_to_save)
    return first == "lm_head" and "lm_head" not in trained


def _cast(f: Forward, tensor: SavedTensor) -> Iterator[SavedTensor]:
    """Yield a tensor as autocast saves it: the residual and its norms are in fp32, and each matmul
    casts its input.
    """
    if tensor.name in ("norm input", "norm normalized") and f.math.gain == "cast":
        yield tensor._replace(size=tensor.size // f.bytes * FP32)
    elif tensor.name == "input":
        for matrix in tensor.input_of:
            yield tensor._replace(name=f"input of {matrix}", input_of=(matrix,))
    else:
        yield tensor


def _in_fp8(f: Forward, tensor: SavedTensor) -> Iterator[SavedTensor]:
    """Yield a tensor as Transformer Engine saves it: inputs of a layer's matrices in fp8
    (pytorch/module/linear.py).

    An input that another operation saves too, such as the output of attention, has a copy in fp8.
    """
    read_by = tensor.input_of or tensor.read_by
    if not read_by or read_by[0].endswith("norm") or read_by[0] in ("router", "lm_head"):
        yield tensor
        return
    if tensor.read_by:
        yield tensor._replace(read_by=())
    name = f"{tensor.name} in fp8" if tensor.read_by else tensor.name
    yield tensor._replace(name=name, size=tensor.size // f.bytes, input_of=read_by, read_by=())


def _divided(run: Training, tensor: SavedTensor) -> SavedTensor:
    """Return a tensor as sequence parallelism divides it.

    torch, beside FSDP, keeps the gathered input of matrices (ColwiseParallel in
    torch/distributed/tensor/parallel); Megatron keeps its own part, and gathers again
    (LinearWithGradAccumulationAndAsyncCommunication). If the GPUs of --tp share no expert, each has
    its part of the tokens that are sent to experts (expert_tensor_parallel_size 1).
    """
    if tensor.is_dispatched and run.expert_tp < run.tp:
        return tensor._replace(size=split(tensor.size, run.tp, "tp", "tensor-parallel devices"))
    is_gathered = run.is_fsdp and tensor.input_of and not tensor.input_of[0].endswith("norm")
    if not (run.sequence_parallel and tensor.is_replicated) or is_gathered:
        return tensor
    return tensor._replace(size=split(tensor.size, run.tp, "tp", "tensor-parallel devices"))


def _kept(
    run: Training, f: Forward, stack: Stack, layers: Layers, tensors: Iterable[SavedTensor]
) -> Iterator[SavedTensor]:
    """Yield what stays until the layer's backward pass begins, by the recomputation."""
    if run.workload.recompute in ("full", "op"):
        in_fp32 = run.autocasts or run.autocasts_adapters or f.math.residual_in_fp32
        size = (FP32 if in_fp32 else f.bytes) * f.tokens * f.d_model
        # whose attention is recomputed with the layer of the MLP
        if layers.mlp or not f.math.parallel_mixers:
            yield _divided(
                run, SavedTensor("input of the layer", "recomputation", size, is_replicated=True)
            )
        if run.workload.recompute == "op":
            yield from _kept_by_op(run, f, stack, layers, tensors)
        return
    for tensor in tensors:
        if not is_recomputed(run, layers, tensor):
            yield tensor


def _kept_by_op(
    run: Training, f: Forward, stack: Stack, layers: Layers, tensors: Iterable[SavedTensor]
) -> Iterator[SavedTensor]:
    """Yield the outputs that torchtitan's _save_list keeps: of every second matmul, of attention,
    of reduce-scatters.

    A compiler drops those of the last matmul, which no gradient needs.
    """
    saved = {tensor.name: tensor for tensor in tensors}
    matmuls, _ = matmuls_of_op(stack, layers)
    for matrix in matmuls:
        part: Part = "mlp" if matrix.name in _OUTPUTS or matrix.name == "W_down" else "attention"
        size = f.bytes * f.tokens * matrix.cols
        if not (run.compile and matrix.name == "W_down"):
            output = SavedTensor(f"output of {matrix.name}", "recomputation", size, part)
            yield saved.get(_OUTPUTS.get(matrix.name, ""), output)
    yield from (saved[name] for name in ("output", "log-sum-exp") if name in saved)
    if run.sequence_parallel:
        scattered = SavedTensor(
            "output of the reduce-scatter", "", f.bytes * f.tokens * f.d_model, is_replicated=True
        )
        yield _divided(run, scattered)
        if not run.compile:
            yield _divided(run, scattered)


# Matrices of MLPs whose outputs layers save anyway, and how these are called.
_OUTPUTS = {"W_gate": "gate", "W_up": "up"}


def kept_parts(run: Training, saved: StageSaved) -> dict[str, Quantity]:
    """Return what a stage keeps of one micro-batch, by part: attention, mlp, norms, embedding,
    head.
    """
    in_layers = (
        (tensor.part, layer.kept_count * tensor.size)
        for layer in saved.layers
        for tensor in layer.kept
    )
    parts = grouped((*in_layers, *((tensor.part, tensor.size) for tensor in saved.outside)))
    return {part: quantity(summed(sizes)) for part, sizes in parts.items()}


def check_kinds(run: Training) -> None:
    """Raise NotSupportedError if the saved tensors of a kind in the model are not known."""
    if any(layers.shares_weights for _, layers in run.model.groups()):
        raise NotSupportedError(
            f"{run.model.title} shares weights between layers, which train does not support"
        )
