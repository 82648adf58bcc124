"""What vLLM holds beside a checkpoint's tensors: tables, copies, padding, and the rounding of the
allocator.

The log line "Model loading took 27.52 GiB memory" has the bytes that PyTorch's allocator gave out
while the model was loaded (`DeviceMemoryProfiler` in utils/mem_utils.py), so that all of them are
in it.
"""

from collections import Counter
from collections.abc import Iterator

from ...attention import Matrix, as_compressed, as_latent
from ...mlp import Mlp
from ...model import Layers, ModelSpec, Stack
from ...quantity import Quantity, quantity, symbol, total
from ...quantization import MIXERS, Role
from ...units import MIB
from ..engine import ExtraWeights, HeldWeights
from .options import VllmArgs
from .versions import VllmVersion

# Rows of the vocabulary are padded to a multiple of this (DEFAULT_VOCAB_PADDING_SIZE,
# vocab_parallel_embedding.py).
_VOCAB_PADDING = 64
# Beginnings of the model_types whose classes have embedding_modules in 0.33.0.
_LORA_OF_EMBEDDINGS = (
    "apertus",
    "cohere",
    "exaone",
    "falcon_h1",
    "granite",
    "jamba",
    "lfm2",
    "llama",
    "minicpm",
    "mistral",
    "mixtral",
    "nemotron",
    "phimoe",
    "qwen3",
    "solar",
)
# FLASHINFER_MLA_WORKSPACE_BUFFER_SIZE in v1/attention/backends/mla/flashinfer_mla.py.
_FLASHINFER_MLA_WORKSPACE = 128 * MIB


def extra_weights(model: ModelSpec, args: VllmArgs, held: HeldWeights) -> list[ExtraWeights]:
    """Return what vLLM holds on one device beside the weights and the towers of `model`, a part of
    a model.
    """
    parts = {
        ("weights_rope_tables", "rope tables"): _rope_tables,
        ("weights_absorbed_kv_b", "absorbed kv_b"): _absorbed_kv_b,
        ("weights_absorbed_products", "products of MLA's matrices"): _absorbed_products,
        ("weights_mla_workspace", "FlashInfer's MLA workspace"): _mla_workspace,
        ("weights_expert_padding", "padding of MXFP4 experts"): _expert_padding,
        ("weights_layer_inputs", "buffer of per-layer inputs"): _layer_inputs,
        ("weights_streams", "buffers of streams and picked tokens"): _streams,
        ("weights_vocab_padding", "padding of the vocabulary"): _vocab_padding,
        ("weights_lora", "buffers for LoRA adapters"): _lora,
        ("weights_on_host", "moved to the host"): _on_host,
        ("weights_allocator", "rounding of PyTorch's allocator"): _allocator,
    }
    return [
        ExtraWeights(name, label, size(model, args, held)) for (name, label), size in parts.items()
    ]


def _rope_tables(model: ModelSpec, args: VllmArgs, held: HeldWeights) -> Quantity:
    """Return the tables of rotary positions, in the model's dtype (rotary_embedding/base.py).

    With mrope_section a table has four times the positions (rotary_embedding/mrope.py). DeepSeek-V4
    has two, for layers with and without pools, in fp32 (models/deepseek_v4/common/rope.py,
    rotary_embedding/deepseek_scaling_rope.py).
    """
    if model.model_type == "deepseek_v4":
        return _tables_of_pools(model)
    has_plain_mrope = args.version.plain_mrope_of_qwen3 and (model.model_type or "").startswith(
        "qwen3"
    )
    parts = []
    for table in model.rope_tables:
        rows: int = symbol("rows", table.rows, f"positions of the {table.name} table")
        if table.name == "mrope" and not has_plain_mrope:
            rows = symbol("mrope", 4, "rows per position of a table with mrope_section") * rows
        parts.append(
            rows * symbol("d_rotary", table.width, "elements of a row") * held.element_bytes
        )
    return total(parts)


def _tables_of_pools(model: ModelSpec) -> Quantity:
    """Return DeepSeek-V4's tables: one for layers with pools and one for those without, in fp32."""
    kinds = {
        bool(getattr(layers.attention, "compress_rate", None))
        for _, layers in model.plain().groups()
    }
    tables = symbol("tables", len(kinds), "tables: of layers with pools, and of those without")
    rows = symbol(
        "rows", max((table.rows for table in model.rope_tables), default=0), "positions of a table"
    )
    width = symbol(
        "d_rotary",
        max((table.width for table in model.rope_tables), default=0),
        "elements of a row",
    )
    return quantity(tables * rows * width * symbol("bytes_table", 4, "bytes of an element in fp32"))


def _layer_inputs(model: ModelSpec, args: VllmArgs, held: HeldWeights) -> Quantity:
    """Return the buffer of Gemma 3n's and 4's inputs per layer, for the tokens of one step.

    It belongs to the classes with towers (per_layer_embeddings in gemma4_mm.py and gemma3n_mm.py).
    """
    columns = next(
        (int(matrix.cols) for matrix in model.extra if matrix.name == "layers_embedding"), 0
    )
    if not columns or not model.towers:
        return Quantity(0)
    tokens = symbol("N", args.limits.max_num_batched_tokens, "max_num_batched_tokens")
    inputs = symbol("layer_inputs", columns, "elements of all layers' inputs per token")
    return quantity(tokens * inputs * held.element_bytes)


def _streams(model: ModelSpec, args: VllmArgs, held: HeldWeights) -> Quantity:
    """Return the buffers of DeepSeek-V4's class for the tokens of one step
    (models/deepseek_v4/nvidia/model.py).

    They hold the tokens that the indexers pick, and the residual streams for a drafter, up to 0.26
    without one too. 0.27 and 0.28 have a pool of padded queries and of what an indexer in MXFP4
    writes (eager_scratch.py): two H200 load 74.08 GiB in 0.23 and 74.34 in 0.27, as 0.54 GiB of the
    pool replace 0.25 of the streams.

    Latents beside an indexer have the picked tokens too, and with pools the rest of one, in tiles
    of 128 (topk_indices_buffer in deepseek_v2.py and models/glm5next/common/model.py).
    """
    tokens = symbol("N", args.limits.max_num_batched_tokens, "max_num_batched_tokens")
    latents = filter(None, (as_latent(layers.attention) for _, layers in model.plain().groups()))
    latent = next((kind for kind in latents if kind.index_topk), None)
    if latent:
        picked = _aligned(int(latent.index_topk or 0) + int(latent.index_kpool or 1) - 1, 128)
        return quantity(
            tokens
            * symbol("bytes_index", 4, "bytes of an index")
            * symbol("k", picked, "picked tokens")
        )
    streams = next((int(matrix.rows) for matrix in model.extra if matrix.name == "stream_mixer"), 0)
    if model.model_type != "deepseek_v4" or not streams:
        return Quantity(0)
    kinds = filter(None, (as_compressed(layers.attention) for _, layers in model.plain().groups()))
    indexed = max(kinds, key=lambda kind: int(kind.index_topk or 0))
    picks = symbol("k", int(indexed.index_topk or 0), "picked tokens")
    per_token = symbol("bytes_index", 4, "bytes of an index") * picks
    if args.version.keeps_streams or args.speculative_tokens:
        width = symbol("d_streams", streams, "elements of all streams of a token")
        per_token = per_token + width * held.element_bytes
    if args.version.pools_queries:
        elements = padded_heads(int(indexed.n_heads), args.capability) * int(indexed.d_head)
        queries = symbol("queries", elements, "elements of all padded queries of a token")
        dim = int(indexed.index_head_dim or 0)
        heads = int(indexed.index_n_heads or 0)
        # per head values in MXFP4, a scale for each 32 of them and a weight in fp32
        head = symbol("indexer", dim // 2 + dim // 32 + 4, "bytes of an indexer's query head")
        per_token = per_token + queries * held.element_bytes + heads * head
    return quantity(tokens * per_token)


def padded_heads(heads: int, capability: int) -> int:
    """Return how many heads DeepSeek-V4's kernels have for `heads` on one GPU
    (get_padded_num_q_heads).

    FlashMLA has 64 or 128, and FlashInfer's kernels on compute capability 12 have 16, 32, 64 or
    128. AMD's pad nothing.
    """
    if capability < 9:
        return heads
    return next(
        size for size in ((16, 32, 64, 128) if capability == 12 else (64, 128)) if heads <= size
    )


def _lora(model: ModelSpec, args: VllmArgs, held: HeldWeights) -> Quantity:
    """Return the A and B of every matrix, for as many adapters as a step may have: rank x (inputs +
    outputs) each.

    They are allocated while the model is loaded, with a pair for each of q, k, v, gate, up and each
    expert. Tensor parallelism divides only the side of a matrix that it divides
    (create_lora_weights in lora/layers/). Some classes have a pair for the embedding and one for
    the head too, which nothing divides (embedding_modules).
    """
    if not args.enable_lora:
        return Quantity(0)
    widths: list[int] = []
    for stack, layers in model.plain().groups():
        width = sum(
            copies * int(matrix.rows + matrix.cols)
            for _, copies, matrix in layers.matrices_by_role(stack.d_model, model.d_source)
        )
        widths.append(
            symbol("L", layers.count, "layers")
            * symbol("widths", width, "inputs and outputs of a layer")
        )
    kind = model.model_type or ""
    if model.vocab_size and kind.startswith(_LORA_OF_EMBEDDINGS) and kind != "qwen3_next":
        vocab = symbol("V", int(model.vocab_size), "tokens of the vocabulary")
        widths.append(
            2 * (vocab + symbol("d_model", int(model.main.d_model), "width of the model"))
        )
    adapters = symbol("max_loras", args.max_loras or 1, "adapters of a step")
    rank = symbol("max_lora_rank", args.max_lora_rank or 16, "rank of the buffers")
    return quantity(adapters * rank * total(widths) * held.element_bytes)


def _on_host(model: ModelSpec, args: VllmArgs, held: HeldWeights) -> Quantity:
    """Return minus the bytes of the layers' tensors that --cpu-offload-gb moves to the host: at
    most all of them.

    It moves tensor after tensor until they have that many bytes, so that the last one may exceed
    it. The embedding and the head stay (make_layers in models/utils.py,
    model_executor/offloader/uva.py).
    """
    if not args.cpu_offload_gb:
        return Quantity(0)
    layers = sum(size * count for size, count in _tensors(model.plain(), held))
    for count, experts, mlp, d_model in _mixtures(model, held):
        layers += count * experts * sum(_mxfp4_tensors(model, args, d_model, int(mlp.d_ff)))
    return quantity(
        -1
        * symbol("cpu_offload", min(args.cpu_offload_gb, layers), "bytes of layers in host memory")
    )


# MLA


def has_mla(model: ModelSpec) -> bool:
    return any(kind.label == "MLA" for _, layers in model.groups() for kind in layers.attentions)


def _absorbed_kv_b(model: ModelSpec, args: VllmArgs, held: HeldWeights) -> Quantity:
    """Return the bytes of W_UK and W_UV, which MLA absorbs into queries and outputs, in the model's
    dtype.

    If kv_b_proj is quantized they are dequantized copies, else views of it
    (process_weights_after_loading in layers/attention/mla_attention.py,
    get_and_maybe_dequant_weights).
    """
    return model.kept(("absorbed_kv_b", held), lambda: _dequantized_kv_b(model, held))


def _dequantized_kv_b(model: ModelSpec, held: HeldWeights) -> Quantity:
    copies: list[int] = []
    for stack, layers, layer in _runs(model.plain()):
        for matrix in layers.attention.matrices(stack.d_model, stack.d_model):
            if (
                matrix.name == "W_kv_b"
                and held.bits(layer, "attention", matrix.name) != held.dtype.bits
            ):
                count = symbol("L", layers.count, "layers whose kv_b is quantized")
                weights = symbol("kv_b", matrix.weights, "weights of kv_b in one layer")
                copies.append(count * weights * held.element_bytes)
    return total(copies)


def _absorbed_products(model: ModelSpec, args: VllmArgs, held: HeldWeights) -> Quantity:
    """Return the products that 0.7 computes once for MLA: W_Q W_UK and W_UV W_O, beside the
    matrices.

    They have the dtype of kv_b, and are none if it has 4 bits. The rotary part of W_Q is copied in
    the model's dtype. DeepSeek-R1 at tp 8: 61 layers x 16 heads x 512 x (1,536 + 7,168) bytes, 4.05
    GiB. Source: process_weights_after_loading in attention/backends/mla/utils.py.
    """
    parts: list[int] = []
    for stack, layers, layer in _runs(model.plain()):
        kind = as_latent(layers.attention)
        bits = held.bits(layer, "attention", "W_kv_b")
        if not args.version.absorbs_products or kind is None or bits < 8:
            continue
        elements = symbol(
            "elements", absorbed_elements(stack, layers), "elements of both products in one layer"
        )
        rotary_width = int(kind.q_lora_rank or stack.d_model) * int(kind.n_heads * kind.d_rope)
        rotary = symbol("rotary", rotary_width, "elements of the rotary part of W_Q in one layer")
        per_layer = elements * symbol("bytes_kv_b", bits // 8, "bytes of an element of kv_b")
        parts.append(
            symbol("L", layers.count, "layers") * (per_layer + rotary * held.element_bytes)
        )
    return total(parts)


def absorbed_elements(stack: Stack, layers: Layers) -> int:
    """Return the elements of W_Q W_UK and W_UV W_O in one layer: n_heads x kv_lora_rank x both
    widths outside.
    """
    kind = as_latent(layers.attention)
    if kind is None:
        return 0
    queries = int(kind.q_lora_rank or stack.d_model)
    return int(kind.n_heads * kind.kv_lora_rank) * (queries + int(stack.d_model))


def _mla_workspace(model: ModelSpec, args: VllmArgs, held: HeldWeights) -> Quantity:
    """Return the buffer that FlashInfer's MLA backend, for capability 9 and 10, allocated when it
    was imported.
    """
    if not (has_mla(model) and args.version.imports_flashinfer_mla and args.capability in (9, 10)):
        return Quantity(0)
    return symbol("mla_workspace", _FLASHINFER_MLA_WORKSPACE, "bytes of FlashInfer's MLA workspace")


# MXFP4


def _mixtures(model: ModelSpec, held: HeldWeights) -> Iterator[tuple[int, int, Mlp, int]]:
    """Yield (layers, experts of a layer, their MLP, width of its input) where the experts are in
    MXFP4.
    """
    for stack, layers in model.plain().groups():
        mlp = layers.mlp
        if mlp and mlp.n_experts and held.experts_dtype == "mxfp4":
            yield layers.count, mlp.n_experts, mlp, int(mlp.d_latent or stack.d_model)


def _expert_padding(model: ModelSpec, args: VllmArgs, held: HeldWeights) -> Quantity:
    """Return the bytes that vLLM's layout of MXFP4 experts needs beyond the checkpoint's."""
    parts: list[int] = []
    for layers, experts, mlp, d_model in _mixtures(model, held):
        d_ff = int(mlp.d_ff)
        padded = sum(_mxfp4_tensors(model, args, d_model, d_ff))
        if mlp.bias and _runs_triton(model, args):  # kept in fp32
            padded += (2 * _aligned(d_ff, 64) + d_model) * 4 - (
                2 * d_ff + d_model
            ) * held.dtype.bits // 8
        stored = 3 * d_model * d_ff * 17 // 32
        number = symbol("experts", layers * experts, "experts in all layers")
        per_expert = symbol("bytes_padded", padded, "bytes of one expert as vLLM holds it")
        parts.append(
            number
            * (per_expert - symbol("bytes_expert", stored, "bytes of one expert in the checkpoint"))
        )
    return total(parts)


def _mxfp4_tensors(model: ModelSpec, args: VllmArgs, d_model: int, d_ff: int) -> list[int]:
    """Return the bytes that one expert has in each tensor: values and scales of gate and up, and of
    down.

    Marlin and TensorRT-LLM pad the hidden size to 256 and the width of an expert to 128
    (mxfp4_round_up_hidden_size_and_intermediate_size in layers/fused_moe/oracle/mxfp4.py), AMD's
    kernels both to 256, or to 128 in newer versions, Intel's nothing. triton_kernels pads by its
    own layouts.
    """
    if _runs_triton(model, args):
        return _triton_tensors(args.version, d_model, d_ff)
    device = args.device.lower()
    steps = (256, 128)
    if any(name in device for name in ("amd", "mi2", "mi3", "instinct", "radeon")):
        step = _step_of_amd(model, args, device)
        steps = step, step
    elif args.is_intel:
        steps = 1, 1
    d_model = _aligned(d_model, steps[0])
    d_ff = _aligned(d_ff, steps[1])
    return [d_model * d_ff, d_model * d_ff // 16, d_model * d_ff // 2, d_model * d_ff // 32]


def _step_of_amd(model: ModelSpec, args: VllmArgs, device: str) -> int:
    """Return the multiple to which AMD's kernels pad MXFP4 experts.

    It is 128 for SiLU and SiTU in AITER's kernel, which runs on the MI350 and newer, and from 0.31
    on for the MI300 too. With 8 GPUs the 384 of Kimi-K3 and DeepSeek-V4-Pro are 512 otherwise, a
    third more. gpt-oss has another activation.
    """
    version = args.version
    is_cdna4 = any(name in device for name in ("mi350", "mi355"))
    if model.model_type == "gpt_oss":
        return 256
    if version.pads_mxfp4_of_amd_less or (is_cdna4 and version.pads_mxfp4_of_aiter_less):
        return 128
    return 256


def _runs_triton(model: ModelSpec, args: VllmArgs) -> bool:
    """Return whether triton_kernels runs the experts: gpt-oss' on Hopper
    (_get_priority_backends_for_gpt_oss).
    """
    return model.model_type == "gpt_oss" and args.capability == 9


def _triton_tensors(version: VllmVersion, d_model: int, d_ff: int) -> list[int]:
    """Return the tensors of one expert in the layouts of triton_kernels for Hopper.

    The width of an expert is padded to 64, values in both dimensions
    (tensor_details/layout_details/hopper_value.py), scales to 256 outputs and some groups
    (hopper_scale.py).
    """
    d_ff = _aligned(d_ff, 64)
    sizes = []
    for inputs, outputs in ((d_model, 2 * d_ff), (d_ff, d_model)):
        sizes += [
            _aligned(inputs // 2, version.mxfp4_value_alignment)
            * _aligned(outputs, version.mxfp4_value_alignment),
            _aligned(outputs, 256) * _aligned(inputs // 32, version.mxfp4_scale_groups),
        ]
        if version.keeps_mxfp4_scales:
            sizes.append(outputs * (inputs // 32))
    return sizes


def _aligned(number: int, step: int) -> int:
    return -(-number // step) * step


# The vocabulary, and the allocator


def padded_vocabulary(model: ModelSpec) -> int:
    """Return the rows of the embedding, on all devices together."""
    return _aligned(int(model.vocab_size or 0), _VOCAB_PADDING)


def _tables(model: ModelSpec) -> int:
    """Return how many tables as large as the embedding a device has: the embedding and an lm head
    of its own.
    """
    if model.head and model.head.kind == "lm" and not model.head.tied:
        return 2
    return 1


def _vocab_padding(model: ModelSpec, args: VllmArgs, held: HeldWeights) -> Quantity:
    plain = model.plain()
    rows = -(-padded_vocabulary(model) // model.tp) - int(plain.vocab_size or 0)
    if not rows:
        return Quantity(0)
    added = symbol("rows", rows, "rows that pad the vocabulary on one device")
    tables = symbol("tables", _tables(model), "tables with a row per token")
    return quantity(
        tables
        * added
        * symbol("d_model", int(plain.table_width), "width of a row")
        * held.element_bytes
    )


def _allocator(model: ModelSpec, args: VllmArgs, held: HeldWeights) -> Quantity:
    """Return the bytes by which PyTorch's allocator rounds up large tensors.

    It requests blocks of 10 MiB or more in multiples of 2 MiB. If 1 MiB or less of a block would
    stay free, the tensor gets the whole block: 75 MiB take 76 (round_size and should_split in
    c10/cuda/CUDACachingAllocator.cpp). From 0.21 on vLLM loads with max_split_size_mb:20, so that
    each tensor of 20 MiB or more gets one: gate and up of Gemma 3 1B have 30.4 MiB and take 32, 42
    MiB in 26 layers. Experts in MXFP4 are packed anew, and no log has them so.
    """
    whole = args.version.loads_whole_blocks and not args.device.startswith(("AMD", "Intel"))
    tensors = model.kept(("rounded", held, whole), lambda: _rounded(model, held, whole)).copy()
    for layers, experts, mlp, d_model in _mixtures(model, held):
        # each has all experts of a layer
        for size in _mxfp4_tensors(model, args, d_model, int(mlp.d_ff)):
            tensors[rounding(experts * size)] += layers
    table = (
        -(-padded_vocabulary(model) // model.tp)
        * int(model.plain().table_width)
        * held.dtype.bits
        // 8
    )
    tensors[rounding(table, whole=whole)] += _tables(model)
    return total(
        symbol("tensors", count, "tensors that get a whole block")
        * symbol("free", free, "bytes of such a block beyond the tensor")
        for free, count in sorted(tensors.items())
        if free
    )


def _rounded(model: ModelSpec, held: HeldWeights, whole: bool) -> Counter[int]:
    """Return {bytes of a rounding: how many matrices of layers have it}."""
    tensors: Counter[int] = Counter()
    for size, count in _tensors(model.plain(), held):
        tensors[rounding(size, whole=whole)] += count
    return tensors


def rounding(size: int, *, whole: bool = False) -> int:
    """Return the bytes by which PyTorch's allocator rounds up a tensor of `size` bytes.

    With `whole`, tensors of 20 MiB or more get whole blocks.
    """
    size = _aligned(size, 512)
    free = _aligned(size, 2 * MIB) - size
    if size >= 10 * MIB and (free <= MIB or (whole and size >= 20 * MIB)):
        return free
    return 0


def _tensors(model: ModelSpec, held: HeldWeights) -> Iterator[tuple[int, int]]:
    """Yield (bytes, how many) of the matrices of layers, as vLLM fuses them: q, k and v, gate and
    up, all experts.

    Scales are tensors of their own, and too small to be rounded up.
    """
    for stack, layers, layer in _runs(model):
        if layers.shares_weights:
            continue
        fused: Counter[tuple[Role, str]] = Counter()
        for role, copies, matrix in layers.matrices_by_role(stack.d_model, model.d_source):
            if role == "experts" and held.experts_dtype == "mxfp4":
                continue
            size = copies * matrix.weights * held.bits(layer, role, matrix.name) // 8
            fused[role, _fused_name(layers, role, matrix)] += size
        for size in fused.values():
            yield size, layers.count


def _fused_name(layers: Layers, role: Role, matrix: Matrix) -> str:
    """Return the name of the tensor of which vLLM makes the matrix a part."""
    if role not in MIXERS:
        if matrix.name in ("W_gate", "W_up"):
            return "gate_up"
        return matrix.name
    if layers.attention.label == "MLA":
        if matrix.name in ("W_q_a", "W_kv_a"):
            return "qkv_a"
        return matrix.name
    is_input = matrix.name in ("W_q", "W_k", "W_v", "W_gate")
    if is_input and layers.attention.widths().n_heads:
        return "qkv"
    return matrix.name


def _runs(model: ModelSpec) -> Iterator[tuple[Stack, Layers, int]]:
    """Yield the runs of equal layers, each with the number of a layer in its middle."""
    for stack in model.stacks:
        layer = model.first_layer
        for layers in stack.layers:
            yield stack, layers, layer + layers.count // 2
            layer += layers.count
