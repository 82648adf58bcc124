"""Which device holds which layers, tensors and caches: GPUs, or the host's memory.

llama.cpp numbers the layers, and the output layer after them. The last `-ngl` of these are on the GPUs, in order, and
the others on the host; token embeddings are always on the host. With `--n-cpu-moe N` the routed experts of the first N
layers are on the host too. Each layer's cache is on the layer's device, or all are on the host (`--no-kv-offload`).

Example: 32 layers and the output with -ngl 25 are 33 - 25 = 8 layers on the host, and 24 layers and the output on the
GPU.

Source: load_tensors (src/llama-model.cpp), create_tensor (src/llama-model-loader.cpp), LLM_TENSOR_INFOS
(src/llama-arch.cpp), LLM_FFN_EXPS_REGEX (common/common.h) and ggml_backend_cuda_buffer_type_get_alloc_size
(ggml/src/ggml-cuda/ggml-cuda.cu) of llama.cpp.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from ...errors import AttncalcError
from ...ggml import TYPES_BY_NAME
from ...units import count

if TYPE_CHECKING:
    from ...checkpoint import StoredTensor
    from ..base import EngineArgs

HOST = -1
"""The number of the host among the devices; GPUs are numbered from 0."""
_BLOCK = re.compile(r"blk\.(\d{1,6})\.")
_EXPERTS = re.compile(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps")
_INPUT = ("token_embd.weight", "position_embd.weight", "token_types.weight", "per_layer_token_embd.weight")
"""Tensors of the input, which are always on the host."""
_OUTPUT = re.compile(r"(output|output_norm|cls|cls\..+|dense_\d|altup_proj|altup_unembd_proj)\.(weight|bias|scale)")
"""Tensors of the output layer. Other tensors outside the layers are with the first layer."""
_ALIGNMENT, _ROW = 128, 512
"""CUDA aligns tensors to so many bytes, and pads a quantized tensor whose rows are no multiple of so many elements."""


class Placement(NamedTuple):
    """The device of each layer.

    Attributes:
        layers: the device of each layer, in order.
        output: the device of the output layer.
        gpus: how many GPUs there are.
        on_gpus: layers on GPUs, the output layer included.
    """

    layers: tuple[int, ...]
    output: int
    gpus: int
    on_gpus: int

    @property
    def is_partial(self) -> bool:
        """Whether some layers are on the host."""
        return HOST in self.layers or self.output == HOST

    def counts(self) -> tuple[int, ...]:
        """Return how many layers the host has, and then each GPU."""
        return tuple(self.layers.count(device) for device in range(HOST, self.gpus))


def place_layers(
    layers: int, gpus: int, n_gpu_layers: int | None = None, tensor_split: Sequence[float] = ()
) -> Placement:
    """Return the device of each of `layers`.

    The layers on GPUs are divided by `tensor_split`, or evenly, as for GPUs with equal free memory: layer i of them
    goes to the first GPU whose share of all shares ends after i / (their number). The shares are 32-bit floats.

    Args:
        layers: Layers of the model, without the output layer.
        gpus: GPUs.
        n_gpu_layers: Layers on GPUs, the output layer included; None for all.
        tensor_split: The share of each GPU; () for equal ones.
    """
    offloaded = layers + 1 if n_gpu_layers is None else min(n_gpu_layers, layers + 1)
    first = layers + 1 - offloaded
    shares = list(accumulate(map(_float, tensor_split or [1] * gpus), lambda a, b: _float(a + b)))
    ends = [_float(share / shares[-1]) for share in shares]

    def device(i: int) -> int:
        return HOST if i < first else bisect_right(ends, _float((i - first) / offloaded))

    return Placement(tuple(map(device, range(layers))), device(layers), gpus, offloaded)


def _float(value: float) -> float:
    """Return a number rounded to 32 bits."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def placement_of(layers: int, args: EngineArgs) -> Placement:
    """Return the device of each of the model's layers.

    llama.cpp's layers may be others: a block of Falcon-H1 is two layers here, and those of multi-token prediction are
    none. `args.blocks` is the number of llama.cpp's, if a GGUF file was read.

    Raises AttncalcError if --tensor-split does not name the GPUs.
    """
    split = args.tensor_split
    if split and (len(split) != args.gpus or not any(split)):
        raise AttncalcError(
            f"--tensor-split has {count(len(split))} shares for {count(args.gpus)} GPU{'s'[: args.gpus != 1]}",
            "give one share per GPU, as --gpus 2 --tensor-split 3,1",
        )
    blocks = args.blocks or layers
    placed = place_layers(blocks, args.gpus, args.n_gpu_layers, split)
    per_block = 2 if layers == 2 * blocks else 1
    return placed._replace(layers=tuple(placed.layers[i // per_block] for i in range(layers)))


def tensors_by_device(contents: Sequence[StoredTensor], args: EngineArgs, layers: int) -> dict[int, list[StoredTensor]]:
    """Return the tensors of a GGUF file on the host and on each GPU.

    A tied output is a copy of the token embeddings on the output layer's GPU. The layers of multi-token prediction are
    not loaded.

    Args:
        contents: The tensors of the file.
        args: The arguments, with the number of blocks.
        layers: Layers of the model; more blocks are those of multi-token prediction.
    """
    blocks = args.blocks or layers
    placed = place_layers(blocks, args.gpus, args.n_gpu_layers, args.tensor_split)
    used = {*placed.layers, placed.output}
    devices: dict[int, list[StoredTensor]] = {device: [] for device in range(HOST, args.gpus)}
    tied = all(tensor.name != "output.weight" for tensor in contents)
    for tensor in contents:
        match = _BLOCK.match(tensor.name)
        if match:
            block = int(match[1])
            if block < layers:
                on_host = block < args.n_cpu_moe and _EXPERTS.search(tensor.name)
                devices[HOST if on_host else placed.layers[block]].append(tensor)
        elif tensor.name in _INPUT:
            devices[HOST].append(tensor)
            if tied and tensor.name == "token_embd.weight" and placed.output != HOST:
                devices[placed.output].append(tensor)
        elif _OUTPUT.fullmatch(tensor.name):
            devices[placed.output].append(tensor)
        elif tensor.name.startswith("rope_f"):  # every device with layers has a copy
            for device in sorted(used):
                devices[device].append(tensor)
        else:
            devices[placed.layers[0]].append(tensor)
    return devices


def cuda_bytes(tensors: Iterable[StoredTensor]) -> int:
    """Return the bytes of tensors in a CUDA buffer, each padded and aligned."""
    return sum(-(-_padded(tensor) // _ALIGNMENT) * _ALIGNMENT for tensor in tensors)


def _padded(tensor: StoredTensor) -> int:
    ggml_type = TYPES_BY_NAME[tensor.dtype]
    if not ggml_type.is_quantized or tensor.row % _ROW == 0:
        return tensor.size
    return tensor.size + (_ROW - tensor.row % _ROW) // ggml_type.block * ggml_type.size


def mapped_bytes(tensors: Sequence[StoredTensor]) -> int:
    """Return the bytes of the host's buffer, which maps each file from the first to the last of its tensors.

    The tensors between them are mapped too, wherever they are loaded. The system need not keep them in memory.
    """
    total = 0
    for file in {tensor.file for tensor in tensors}:
        places = [(tensor.start, tensor.start + tensor.size) for tensor in tensors if tensor.file == file]
        total += max(end for _, end in places) - min(start for start, _ in places)
    return total


def largest_of_ubatch(tensors: Iterable[StoredTensor]) -> Iterator[int]:
    """Yield the bytes of the matrices on the host that a GPU copies for a pass over many tokens."""
    return (tensor.size for tensor in tensors if _BLOCK.match(tensor.name) and "norm" not in tensor.name)
