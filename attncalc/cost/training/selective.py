"""What selective recomputation drops: the tensors that Megatron's modules save.

Source: Megatron-LM, megatron/core/transformer/transformer_config.py (recompute_modules), and the
files that each function names. Its layers are Transformer Engine's (models/gpt/gpt_layer_specs.py).
"""

from collections import Counter
from collections.abc import Sequence

from ...attention.latent import Latent
from ...attention.saved import SavedTensor
from ...model import Layers
from ...records import NamedTuple
from .setup import Training

# What MLA computes from its latents.
_UP_PROJECTED = ("q", "k", "v", "output of W_kv_b")


class Recomputed(NamedTuple):
    """The layers of a group that are recomputed in full."""

    layers: int  # how many are recomputed
    inputs: int  # inputs of layers that are kept for them
    together: int  # layers that are recomputed at once


def recomputed_layers(run: Training, layers: Sequence[Layers]) -> dict[Layers, Recomputed]:
    """Return the recomputed layers of a stage by group, of its layers in order.

    uniform keeps the input of each chunk of recompute_num_layers layers, and recomputes a chunk at
    once; block recomputes the first recompute_num_layers layers one by one, and keeps the others
    whole (megatron/core/recompute.py, checkpointed_forward).
    """
    n = run.recompute_num_layers
    if run.recompute_method == "block":
        counts = Counter(layers[:n])
        return {group: Recomputed(count, count, 1) for group, count in counts.items()}
    inputs = Counter(layers[::n])
    together = min(n, len(layers))
    return {
        group: Recomputed(count, inputs[group], together)
        for group, count in Counter(layers).items()
    }


def is_recomputed(run: Training, layers: Layers, tensor: SavedTensor) -> bool:
    """Return whether a tensor is dropped after the forward pass, and computed again."""
    return any(_drops(run, module, layers, tensor) for module in run.recomputed_modules)


def _drops(run: Training, module: str, layers: Layers, tensor: SavedTensor) -> bool:
    """Return whether a module's recomputation drops a tensor.

    layernorm, moe_act and mla_up_proj discard their output, which the next matrix or the kernel
    reads (tensor_parallel/random.py, CheckpointWithoutOutput). The others keep their input.
    """
    if module == "layernorm":
        return tensor.name == "input" and has_norm_of_its_own(layers, tensor.part)
    if module in ("core_attn", "mla_up_proj"):
        return _drops_of_attention(run, module, layers, tensor)
    return tensor.part == "mlp" and _drops_of_mlp(module, layers, tensor)


def _drops_of_attention(run: Training, module: str, layers: Layers, tensor: SavedTensor) -> bool:
    """Return whether core_attn or mla_up_proj drops a tensor.

    The inputs of core_attn are q, k and v (attention.py, _checkpointed_attention_forward), which
    mla_up_proj computes from latents (multi_latent_attention.py).
    """
    if module == "mla_up_proj":
        return has_latents(layers) and tensor.name.removesuffix(" in fp32") in _UP_PROJECTED
    is_output = tensor.name == "output" and run.fp8 != "none"  # W_o has a copy of its own
    return tensor.is_score or is_output


def _drops_of_mlp(module: str, layers: Layers, tensor: SavedTensor) -> bool:
    """Return whether a module of the MLP drops one of its tensors.

    mlp keeps the residual stream alone, since Transformer Engine computes the norm with the first
    matrix (transformer_layer.py, _run_mlp). moe and shared_experts keep the norm's output
    (moe/moe_layer.py), and moe_act the output of the first matrices (moe/experts.py).
    """
    if module == "mlp":
        return not has_experts(layers)
    if module == "shared_experts":
        return tensor.name.startswith("shared experts' ")
    if module == "moe":
        return has_experts(layers) and tensor.name != "input"
    is_of_experts = tensor.name.startswith("experts' ")
    return is_of_experts and (tensor.is_pointwise or tensor.input_of == ("W_down",))


def has_experts(layers: Layers) -> bool:
    """Return whether the MLP of the layers is a mixture of experts."""
    return layers.mlp is not None and layers.mlp.n_experts is not None


def has_shared_experts(layers: Layers) -> bool:
    """Return whether every token uses some experts of the MLP."""
    mlp = layers.mlp
    return mlp is not None and bool(mlp.n_shared_experts or mlp.d_ff_shared)


def has_latents(layers: Layers) -> bool:
    """Return whether attention computes K and V from latents, as MLA does."""
    return isinstance(layers.attention, Latent)


def has_norm_of_its_own(layers: Layers, part: str) -> bool:
    """Return whether Megatron computes the norm before attention or the MLP by itself, and not with
    the next matrix.

    It does before MLA and before experts, whose inputs several matrices read (input_layernorm and
    pre_mlp_layernorm in gpt_layer_specs.py).
    """
    if part == "attention":
        return has_latents(layers)
    return part == "mlp" and has_experts(layers)
