"""What a GPU holds during the whole run: weights, gradients and optimizer states, whole or as
shards.

Source: Rajbhandari et al. 2019, arXiv:1910.02054 (ZeRO): with N parameters in 16 bits and Adam, a
GPU holds 2 N of weights, 2 N of gradients, and 12 N of optimizer states (fp32 weights, two
moments). Stage 1 divides the states by the ranks, stage 2 also the gradients, stage 3 also the
weights.
"""

from collections.abc import Callable, Iterable
from typing import Literal

from ...quantity import Quantity, named, quantity, symbol, total
from ...records import NamedTuple
from ...search import grouped
from ...units import dtype
from .optimizers import state_bytes
from .param_tensor import ParamTensor
from .setup import Stage, Training
from .tensors import adapters, quantized_bytes, saved_modules, stage_tensors


class States(NamedTuple):
    """The bytes that one GPU of a stage holds during the whole run."""

    trained: Quantity  # parameters that are trained, before sharding
    frozen: Quantity  # parameters that are not trained, before sharding
    weights: Quantity  # weights in the dtype in which they are trained, with frozen ones
    frozen_weights: Quantity  # the frozen part of them
    master: Quantity  # fp32 copies of the weights
    moments: Quantity  # the optimizer's moments
    gradients: Quantity  # gradients
    references: Quantity  # weights of frozen copies of the model
    largest: ParamTensor  # the largest trained tensor
    layer: int  # elements of a layer that a rank gathers
    layer_bytes: int  # bytes of them, of which quantized matrices are gathered as they are
    outside: int  # elements outside the layers that a rank gathers
    on_host: Quantity  # bytes in host memory
    # bytes of transposed copies that Transformer Engine keeps, but on SM 100 to 110
    # (module/base.py)
    transposes: int
    # bytes that experts would take beyond the quantized ones if they were left in 16 bits
    experts_left: int
    tensors: list[ParamTensor]  # the model's parameter tensors
    trained_tensors: list[ParamTensor]  # the tensors that are trained


def states(run: Training, stage: Stage) -> States:
    """Return what one GPU of a stage holds during the whole run."""
    model = stage.model.plain()
    tensors = list(stage_tensors(run, stage, model))
    saved_copies = list(saved_modules(run, stage, model, tensors))
    trained = [*adapters(run, tensors), *saved_copies]
    frozen = tensors
    if not run.lora:
        trained = [t for t in tensors if t.has_gradient]
        frozen = [t for t in tensors if not t.has_gradient]
    sharded = _Shards(run)
    n_trained = _of_parts(trained, "N", "trained parameters of a stage on one device")
    n_frozen = _of_parts(frozen, "N_frozen", "frozen parameters of a stage on one device")
    weights = _trained_bytes(run, trained, sharded, "param")
    transposes = 0
    if run.fp8 == "weights":
        saved = dtype(run.param_dtype).bits // 8 - 1
        matrices = sharded([t for t in trained if t.is_layer_matrix], run.zero >= 3, "N_fp8")
        weights = quantity(
            weights - matrices * symbol("bytes_saved", saved, "bytes that a weight in fp8 saves")
        )
        if run.gpu is None or (run.gpu.compute_capability or (0,))[0] not in (10, 11):
            transposes = int(matrices)
    frozen_weights = _frozen_weights(run, frozen, sharded)
    in_optimizer = sharded(trained, run.zero >= 1, "N")
    master = quantity(0)
    if run.master_weights:
        master = quantity(in_optimizer * symbol("bytes_master", 4, "bytes of an fp32 copy"))
    moments = _moments(run, trained, sharded)
    largest = max(
        trained,
        key=lambda tensor: tensor.elements * tensor.stacked,
        default=ParamTensor("none", "other", 0, 0, 0),
    )
    gradients = _trained_bytes(run, trained, sharded, "grad")
    if run.optimizer_in_backward:
        elements = largest.elements * largest.stacked
        one = named(elements, "largest", "elements of the largest trained tensor")
        of_largest = run.dtypes_of(largest).grad
        gradients = quantity(one * _bytes(of_largest, "bytes_grad", "a gradient"))
    references = quantity(0)
    # else the model with its adapters switched off, as in TRL
    if run.references and run.lora is None:
        whole = sharded(tensors, run.zero >= 3, "N_model")
        copies = symbol("references", run.references, "frozen copies of the model")
        # loaded as the trained weights are (trl/trainer/dpo_trainer.py), which autocast leaves in
        # fp32; DeepSpeed casts the copy too
        loaded = run.param_dtype if run.autocasts and run.zero == 0 else run.dtype
        references = quantity(
            copies * whole * _bytes(loaded, "bytes", "a weight of a reference model")
        )
    layer, layer_bytes, outside = _gathered(run, stage, [*tensors, *saved_copies])
    on_gpu = States(
        trained=n_trained,
        frozen=n_frozen,
        weights=weights,
        frozen_weights=frozen_weights,
        master=master,
        moments=moments,
        gradients=gradients,
        references=references,
        largest=largest,
        layer=layer,
        layer_bytes=layer_bytes,
        outside=outside,
        on_host=total(()),
        transposes=transposes,
        experts_left=_experts_left(run, frozen),
        tensors=tensors,
        trained_tensors=trained,
    )
    return _offloaded(run, on_gpu, frozen) if run.offload else on_gpu


def _offloaded(run: Training, held: States, frozen: list[ParamTensor]) -> States:
    """Return the states with those on the host that the run moves there."""
    nothing = quantity(0)
    moved = []
    if "optimizer" in run.offload:
        moved += [("master", held.master), ("moments", held.moments)]
        held = held._replace(master=nothing, moments=nothing)
        # DeepSpeed moves averaged gradients to the host, where the optimizer runs
        if run.zero >= 1:
            moved.append(("gradients", held.gradients))
            held = held._replace(gradients=nothing)
    if "params" in run.offload:
        scales = nothing  # which are the module's, and no parameters that FSDP moves
        if run.weights_dtype:
            size = _quantized(run, frozen, run.weights_dtype)[1]
            scales = symbol("scales", size, f"bytes of the scales of {run.weights_dtype}")
        moved += [("weights", held.weights), ("frozen", quantity(held.frozen_weights - scales))]
        held = held._replace(weights=nothing, frozen_weights=scales)
    parts = (named(size, f"host_{name}", f"bytes of {name} on the host") for name, size in moved)
    return held._replace(on_host=total(parts))


# The stage of ZeRO from which weights, gradients and moments are sharded, and their words.
_SHARDED_FROM = {"param": 3, "grad": 2, "moment": 1}
_WORDS = {"param": "a trained weight", "grad": "a gradient", "moment": "a moment"}


def _trained_bytes(
    run: Training,
    trained: list[ParamTensor],
    sharded: Callable[..., Quantity],
    of: Literal["param", "grad", "moment"],
) -> Quantity:
    """Return the bytes of trained weights, of their gradients, or of one moment of each.

    Modules that are trained whole beside adapters have dtypes of their own.
    """
    is_sharded = run.zero >= _SHARDED_FROM[of]
    own = [tensor for tensor in trained if not tensor.is_saved]
    saved = [tensor for tensor in trained if tensor.is_saved]
    of_own = {"param": run.param_dtype, "grad": run.grad_dtype, "moment": run.optimizer_dtype}[of]
    size = quantity(sharded(own, is_sharded, "N") * _bytes(of_own, f"bytes_{of}", _WORDS[of]))
    if not saved:
        return size
    of_saved = getattr(run.dtypes_of(saved[0]), of)
    copies = sharded(saved, is_sharded, "N_saved")
    size_of_saved = _bytes(of_saved, f"bytes_saved_{of}", f"{_WORDS[of]} of modules_to_save")
    return total((size, quantity(copies * size_of_saved)))


def _bytes(name: str, symbol_name: str, what: str) -> Quantity:
    return symbol(symbol_name, dtype(name).bits // 8, f"bytes of {what} in {name}")


def _of_parts(tensors: Iterable[ParamTensor], name: str, meaning: str) -> Quantity:
    """Return the number of parameters as a sum of named parts."""
    parts = grouped((tensor.part, tensor.total) for tensor in tensors).items()
    return total(
        symbol(f"{name}_{part}", sum(n), f"{meaning}: {part}") for part, n in parts if any(n)
    )


class _Shards:
    """Counts the parameters that one rank holds.

    FSDP shards each tensor by its first dimension, rounded up
    (torch/distributed/fsdp/_fully_shard/_fsdp_param.py); ZeRO-3 each tensor by its elements
    (deepspeed/runtime/zero/partition_parameters.py). DeepSpeed's other stages and Megatron shard
    all of them as one vector. Experts are replicated on fewer ranks than other weights.
    """

    def __init__(self, run: Training) -> None:
        self._run = run

    def __call__(self, tensors: Iterable[ParamTensor], is_sharded: bool, name: str) -> Quantity:
        tensors = list(tensors)
        experts = [tensor for tensor in tensors if tensor.part == "experts"]
        others = [tensor for tensor in tensors if tensor.part != "experts"]
        run = self._run
        parts = [self._of(others, run.ranks, is_sharded, name, "parameters")]
        if experts:
            name = f"{name}_experts"
            parts.append(
                self._of(experts, run.expert_ranks, is_sharded, name, "parameters of the experts")
            )
        return total(parts)

    def _of(
        self, tensors: list[ParamTensor], ranks: int, is_sharded: bool, name: str, what: str
    ) -> Quantity:
        whole = sum(tensor.total for tensor in tensors)
        if not is_sharded or ranks == 1:
            return symbol(name, whole, f"{what} of a stage on one device")
        if self._run.zero >= 3:
            if self._run.is_fsdp:
                held = sum(
                    tensor.copies * -(-tensor.rows // ranks) * tensor.columns for tensor in tensors
                )
            else:
                held = sum(tensor.copies * -(-tensor.elements // ranks) for tensor in tensors)
            return symbol(
                f"{name}_shard", held, f"{what} of one of {ranks} shards, rounded up per tensor"
            )
        return symbol(f"{name}_shard", -(-whole // ranks), f"{what} of one of {ranks} shards")


def _moments(
    run: Training, trained: list[ParamTensor], sharded: Callable[..., Quantity]
) -> Quantity:
    optimizer = run.in_optimizer
    if optimizer.kind == "plain":
        count = symbol("moments", optimizer.moments, f"moments of {optimizer.title}")
        return quantity(count * _trained_bytes(run, trained, sharded, "moment"))
    whole = 0
    for tensor in trained:
        whole += state_bytes([tensor], optimizer, dtype(run.dtypes_of(tensor).moment).bits // 8)
    if run.zero == 0 or run.ranks == 1:
        return symbol(
            "state_bytes", whole, f"bytes of {optimizer.title}'s states, tensor by tensor"
        )
    return symbol(
        "state_bytes", -(-whole // run.ranks), f"bytes of one shard of {optimizer.title}'s states"
    )


def _frozen_weights(
    run: Training, frozen: list[ParamTensor], sharded: Callable[..., Quantity]
) -> Quantity:
    """Return the bytes of frozen weights: quantized matrices of layers, and the rest in the
    activations' dtype.
    """
    if not frozen:
        return quantity(0)
    if run.weights_dtype is None:
        return quantity(
            sharded(frozen, run.zero >= 3, "N_frozen")
            * _bytes(run.dtype, "bytes", "a frozen weight")
        )
    ranks = run.ranks if run.zero >= 3 else 1
    packed, scales, others = _quantized(run, frozen, run.weights_dtype)
    kept = sum(t.total for t in others)
    size = -(-packed // ranks) + scales
    return total(
        (
            symbol(
                "quantized",
                size,
                f"bytes of the matrices in {run.weights_dtype}, with all their scales",
            ),
            symbol("N_unquantized", -(-kept // ranks), "parameters that are not quantized")
            * _bytes(
                "fp32" if run.autocasts_adapters else run.dtype,
                "bytes_unquantized",
                "a weight that is not quantized",
            ),
        )
    )


def _experts_left(run: Training, frozen: list[ParamTensor]) -> int:
    if run.weights_dtype is None:
        return 0
    experts = [tensor for tensor in frozen if tensor.part == "experts"]
    packed, scales, _ = _quantized(run, experts, run.weights_dtype)
    ranks = run.expert_ranks if run.zero >= 3 else 1
    return (2 * sum(tensor.total for tensor in experts) - packed) // ranks - scales


def _quantized(
    run: Training, tensors: list[ParamTensor], quantized: str
) -> tuple[int, int, list[ParamTensor]]:
    """Return the bytes of the matrices of layers in a quantized dtype, those of their scales, and
    the other tensors.

    Shards have whole scales: they belong to the module and not to the parameter
    (bitsandbytes/nn/modules.py, fix_4bit_weight_quant_state_from_module).
    """
    per_byte = 2 if quantized == "nf4" else 1
    size = 0
    packed = 0
    others = []
    for tensor in tensors:
        if tensor.is_layer_matrix:
            each = quantized_bytes(tensor, quantized, double_quant=run.double_quant)
            size += tensor.copies * each
            packed += tensor.copies * (tensor.elements // per_byte)
        else:
            others.append(tensor)
    return packed, size - packed, others


def _gathered(run: Training, stage: Stage, tensors: list[ParamTensor]) -> tuple[int, int, int]:
    """Return the elements and bytes of a layer, and the elements outside the layers: ZeRO-3 gathers
    them for use.
    """
    inside = [t for t in tensors if t.part not in ("embedding", "head")]
    outside = sum(t.total for t in tensors) - sum(t.total for t in inside)
    size = 0
    others = inside
    if run.weights_dtype:
        size, _, others = _quantized(run, inside, run.weights_dtype)
    size += sum(t.total for t in others) * (dtype(run.dtype).bits // 8)
    n_layers = max(1, sum(int(stack.n_layers) for stack in stage.model.stacks))
    return -(-sum(t.total for t in inside) // n_layers), -(-size // n_layers), outside
