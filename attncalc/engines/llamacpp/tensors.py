"""The tensors of a GGUF file on each device, and their bytes in llama.cpp's buffers.

Source: create_tensor (src/llama-model-loader.cpp), load_tensors (src/llama-model.cpp),
LLM_TENSOR_INFOS (src/llama-arch.cpp), LLM_FFN_EXPS_REGEX (common/common.h),
ggml_backend_cuda_buffer_type_get_alloc_size (ggml/src/ggml-cuda/ggml-cuda.cu) and
ggml_backend_sched_split_graph (ggml/src/ggml-backend.cpp) of llama.cpp.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from ...checkpoint import StoredTensor
from ...ggml import TYPES_BY_NAME
from ...model import ModelSpec
from ...units import DType, dtype
from .options import LlamacppArgs, patterns_of
from .placement import HOST, Placement, block_count, place_blocks, placement_of

_BLOCK = re.compile(r"blk\.(\d{1,6})\.")
_EXPERTS = re.compile(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps")
# Tensors of the input, which are always on the host.
_INPUT = (
    "token_embd.weight",
    "position_embd.weight",
    "token_types.weight",
    "per_layer_token_embd.weight",
)
# Tensors of the output layer. Other tensors outside the layers are with the first layer.
_OUTPUT = re.compile(
    r"(output|output_norm|cls|cls\..+|dense_\d|altup_proj|altup_unembd_proj)\.(weight|bias|scale)"
)
# CUDA aligns tensors to so many bytes, and pads a quantized tensor whose rows are no multiple of so
# many elements.
_ALIGNMENT = 128
_ROW = 512


def tensors_by_device(
    contents: Sequence[StoredTensor],
    args: LlamacppArgs,
    layers: int,
    *,
    has_head: bool,
    predicts: bool = False,
) -> dict[int, list[StoredTensor]]:
    """Return the tensors of a GGUF file on the host and on each GPU.

    A tied output is a copy of the token embeddings on the output layer's GPU.

    Args:
        layers: Layers of the model, of which a block may have two; more blocks are those of
            multi-token prediction.
        has_head: Whether the model has an lm head.
        predicts: Whether to count the layers of multi-token prediction, which are loaded with
            --spec-type draft-mtp only ('load_mtp').
    """
    blocks = block_count(layers, args)
    placed = place_blocks(blocks, args)
    used = {*placed.layers, placed.output}
    overrides = patterns_of(args.override_tensor)
    devices: dict[int, list[StoredTensor]] = {device: [] for device in range(HOST, args.gpus)}
    tied = has_head and all(tensor.name != "output.weight" for tensor in contents)
    for tensor in contents:
        match = _BLOCK.match(tensor.name)
        if match:
            block = int(match[1])
            if block < (len(placed.layers) if predicts else layers):
                is_moved = block < args.n_cpu_moe or any(p.search(tensor.name) for p in overrides)
                on_host = is_moved and _EXPERTS.search(tensor.name)
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


def host_bytes(tensors: Sequence[StoredTensor], args: LlamacppArgs) -> int:
    """Return the bytes of the host's buffer, which maps each file from the first to the last of its
    tensors.

    The tensors between them are mapped too, wherever they are loaded. The system need not keep them
    in memory. With --no-mmap the buffer has the host's tensors only.
    """
    if args.no_mmap:
        return sum(tensor.size for tensor in tensors)
    total = 0
    for file in {tensor.file for tensor in tensors}:
        places = [
            (tensor.start, tensor.start + tensor.size) for tensor in tensors if tensor.file == file
        ]
        total += max(end for _, end in places) - min(start for start, _ in places)
    return total


def largest_on_host(model: ModelSpec, args: LlamacppArgs, weights_dtype: str) -> dict[str, int]:
    """Return the bytes of the largest matrices on the host: "head" (lm head), "down" (of MLPs),
    "other" (of layers).

    Without a GGUF file all matrices are in `weights_dtype`.
    """
    largest: dict[str, int] = {}
    is_file = model.stored and model.stored.contents
    for kind, size in (
        _in_file(model, args) if is_file else _in_dtype(model, args, dtype(weights_dtype))
    ):
        largest[kind] = max(largest.get(kind, 0), size)
    return largest


def _in_file(model: ModelSpec, args: LlamacppArgs) -> Iterator[tuple[str, int]]:
    """Yield the kind and the bytes of the host's tensors in a GGUF file that a GPU may copy."""
    sizes = {tensor.name: tensor.size for tensor in tensors_of(model, args)[HOST]}
    if placement_of(model.main.n_layers, args).output == HOST:
        yield "head", sizes.get("output.weight") or sizes.get("token_embd.weight", 0)
    yield from (
        ("down" if ".ffn_down" in name else "other", n)
        for name, n in sizes.items()
        if _BLOCK.match(name)
    )


def _in_dtype(
    model: ModelSpec, args: LlamacppArgs, matrix_dtype: DType
) -> Iterator[tuple[str, int]]:
    """Yield the same of matrices in one dtype."""
    placed = placement_of(model.main.n_layers, args)
    if placed.output == HOST:
        yield "head", (model.vocab_size or 0) * matrix_dtype.row_bytes(model.table_width)
    number = 0
    for group in model.main.layers:
        on_host = placed.layers[number] == HOST
        if on_host or any(map(args.has_experts_on_host, range(number, number + group.count))):
            for role, copies, matrix in group.matrices_by_role(model.main.d_model, model.d_source):
                if on_host or role == "experts":
                    kind = "down" if matrix.name == "W_down" else "other"
                    yield kind, copies * matrix.cols * matrix_dtype.row_bytes(matrix.rows)
        number += group.count


def model_buffers(model: ModelSpec, args: LlamacppArgs) -> dict[str, int]:
    """Return the bytes of each device's model buffer by its name in the log, the host first; {}
    without a GGUF file.
    """
    if not model.stored or not model.stored.contents:
        return {}
    predicts = args.speculative_layers > 0

    def measured() -> dict[str, int]:
        devices = tensors_of(model, args, predicts=predicts)
        sizes = {
            f"{args.backend}_Host" if args.no_mmap else "CPU_Mapped": host_bytes(
                devices[HOST], args
            ),
            **{f"{args.backend}{gpu}": cuda_bytes(devices[gpu]) for gpu in range(args.gpus)},
        }
        return {name: size for name, size in sizes.items() if size}

    placed = placed_by(model.main.n_layers, args)
    return model.kept(("buffers", predicts, args.backend, *placed), measured)


def tensors_of(
    model: ModelSpec, args: LlamacppArgs, *, predicts: bool = False
) -> dict[int, list[StoredTensor]]:
    """Return the tensors of the model's GGUF file on the host and on each GPU, as in
    `tensors_by_device`.
    """
    contents = model.stored.contents if model.stored else ()
    has_head = model.head is not None and model.head.kind == "lm"
    layers = model.main.n_layers
    return model.kept(
        ("tensors", predicts, *placed_by(layers, args)),
        lambda: tensors_by_device(contents, args, layers, has_head=has_head, predicts=predicts),
    )


def placed_by(layers: int, args: LlamacppArgs) -> tuple[Placement, int, str | None, int, bool]:
    """Return all that `tensors_by_device` and `host_bytes` read of the arguments."""
    return (
        place_blocks(block_count(layers, args), args),
        args.n_cpu_moe,
        args.override_tensor,
        args.gpus,
        args.no_mmap,
    )
