"""Which device holds which layers and caches: GPUs, or the host's memory.

llama.cpp numbers the layers, and the output layer after them. The last `-ngl` of these are on the
GPUs, in order, and the others on the host; token embeddings are always on the host. With
`--n-cpu-moe N` the routed experts of the first N layers are on the host too. Each layer's cache is
on the layer's device, or all are on the host (`--no-kv-offload`).

Example: 32 layers and the output with -ngl 25 are 33 - 25 = 8 layers on the host, and 24 layers and
the output on the GPU.

Builds until December 2025 offload the output layer last: there -ngl 25 is 25 layers on the GPU, and
the output on the host.

Source: load_tensors (src/llama-model.cpp) of llama.cpp, and #18148.
"""

import struct
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate

from ...errors import AttncalcError
from ...model import plural
from ...records import NamedTuple
from ...units import count
from ..base import EngineArgs
from .options import LlamacppArgs

# The number of the host among the devices; GPUs are numbered from 0.
HOST = -1
# model_types with attention and Mamba-2 in parallel, which are two layers here.
TWO_LAYERS_PER_BLOCK = ("falcon_h1",)


class Placement(NamedTuple):
    """The device of each layer."""

    layers: tuple[int, ...]  # the device of each layer, in order
    output: int  # the device of the output layer
    gpus: int  # how many GPUs there are
    on_gpus: int  # layers on GPUs, the output layer included

    @property
    def is_partial(self) -> bool:
        """Whether some layers are on the host."""
        return HOST in self.layers or self.output == HOST

    def counts(self) -> tuple[int, ...]:
        """Return how many layers the host has, and then each GPU."""
        return tuple(self.layers.count(device) for device in range(HOST, self.gpus))


@lru_cache(maxsize=128)
def place_layers(
    layers: int,
    gpus: int,
    n_gpu_layers: int | None = None,
    tensor_split: tuple[float, ...] = (),
    *,
    output_first: bool = True,
) -> Placement:
    """Return the device of each of `layers`.

    The layers on GPUs are divided by `tensor_split`, or evenly, as for GPUs with equal free memory:
    layer i of them goes to the first GPU whose share of all shares ends after i / (their number).
    The shares are 32-bit floats.

    Args:
        n_gpu_layers: Layers on GPUs, the output layer included; None for all.
        tensor_split: The share of each GPU; () for equal ones.
        output_first: Whether the output layer is the first on a GPU; in builds of 2025 it is the
            last, so that
            -ngl 25 puts 25 layers there and no output.

    It is cached because the compute buffer of each batch of a search depends on it.
    """
    offloaded = layers + 1 if n_gpu_layers is None else min(n_gpu_layers, layers + 1)
    first = max(0, layers + int(output_first) - offloaded)
    shares = list(accumulate(map(float32, tensor_split or [1] * gpus), lambda a, b: float32(a + b)))
    ends = [float32(share / shares[-1]) for share in shares]

    def device(i: int) -> int:
        if not first <= i < first + offloaded:
            return HOST
        return bisect_right(ends, float32((i - first) / offloaded))

    return Placement(tuple(map(device, range(layers))), device(layers), gpus, offloaded)


def float32(value: float) -> float:
    """Return a number rounded to 32 bits."""
    rounded: float
    (rounded,) = struct.unpack("f", struct.pack("f", value))
    return rounded


def placement_of(layers: int, args: LlamacppArgs) -> Placement:
    """Return the device of each of the model's layers.

    llama.cpp's layers may be others (`block_count`), and both layers of a block are on the same
    device.

    Raises AttncalcError if --tensor-split does not name the GPUs.
    """
    split = args.tensor_split
    if split and (len(split) != args.gpus or not any(split)):
        raise AttncalcError(
            f"--tensor-split has {count(len(split))} shares for {plural(args.gpus, 'GPU')}",
            "give one share per GPU, as --gpus 2 --tensor-split 3,1",
        )
    blocks = block_count(layers, args)
    placed = place_blocks(blocks, args)
    if layers == blocks:
        return placed
    per_block = 2 if layers == 2 * blocks else 1
    return placed._replace(layers=tuple(placed.layers[i // per_block] for i in range(layers)))


def block_count(layers: int, args: EngineArgs) -> int:
    """Return llama.cpp's own layers of a model that has `layers` here.

    A GGUF file has their number, with the layers of multi-token prediction, which are none here. A
    block of Falcon-H1 is two layers here.
    """
    return args.blocks or (layers // 2 if args.model_type in TWO_LAYERS_PER_BLOCK else layers)


def place_blocks(blocks: int, args: LlamacppArgs) -> Placement:
    """Return the device of each of llama.cpp's own layers."""
    output_first = args.release.output_first
    return place_layers(
        blocks, args.gpus, args.n_gpu_layers, args.tensor_split, output_first=output_first
    )
