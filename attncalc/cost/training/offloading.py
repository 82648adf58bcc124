"""Activations in host memory: torchtune's and TRL's OffloadActivations.

Source: torchtune, training/_activation_offloading.py. Each tensor of at least 1,024 bytes that is
saved for the backward pass is copied to the host, but what the head saves (NoOpManager). Streams
overlap the copies: the last five that were saved stay on the GPU until the backward pass begins
(max_fwd_stash_size). In the backward pass a tensor comes back when its operation runs, and stays
until the next one has run (bwd_tensor_stash).
"""

from ...attention.saved import SavedTensor
from ...quantity import Quantity, named, quantity, total
from .activations import LayerSaved, StageSaved

# Default arguments of OffloadActivations.
STASH = 5
LEAST = 1024
# Layers whose inputs are on the GPU at once in the backward pass: this one's and the last one's.
IN_BACKWARD = 2


def on_gpu(saved: StageSaved) -> dict[str, Quantity]:
    """Return the bytes that stay on the GPU when the backward pass begins, by part."""
    stays = [tensor for tensor in saved.outside if not _is_offloaded(tensor)]
    stays += _offloaded(saved)[-STASH:]
    parts: dict[str, list[int]] = {}
    for tensor in stays:
        parts.setdefault(tensor.part, []).append(tensor.size)
    return {part: total(sizes) for part, sizes in parts.items()}


def on_host(saved: StageSaved) -> Quantity:
    """Return the bytes of activations in host memory."""
    size = total(tensor.size for tensor in _offloaded(saved))
    return named(size, "host_activations", "bytes of activations on the host")


def in_backward(layer: LayerSaved) -> Quantity:
    """Return the bytes that are back on the GPU in the backward pass of a layer."""
    return quantity(IN_BACKWARD * total(tensor.size for tensor in layer.kept))


def _offloaded(saved: StageSaved) -> list[SavedTensor]:
    """Return the tensors that go to the host, in the order in which they are saved."""
    outside = [tensor for tensor in saved.outside if _is_offloaded(tensor)]
    found = [tensor for tensor in outside if tensor.part == "embedding"]
    for layer in saved.layers:
        kept = [tensor for tensor in layer.kept if _is_offloaded(tensor)]
        found += kept * int(layer.kept_count)
    return found + [tensor for tensor in outside if tensor.part == "head"]


def _is_offloaded(tensor: SavedTensor) -> bool:
    is_of_head = tensor.part == "head" and tensor.input_of == ("lm_head",)
    return int(tensor.size) >= LEAST and not is_of_head
