"""A GGUF file of a model's sizes, for llama.cpp: a header, and a hole in the place of the weights.

The file is as large as the model for programs that read it, and takes some KB of the disk. The
names of keys and tensors are those of LLM_KV_NAMES and LLM_TENSOR_NAMES in src/llama-arch.cpp.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

from ...attention import Sliding
from ...attention.grouped import Grouped
from ...errors import CannotCheckError
from ...ggml import TYPES_BY_NAME
from ...model import Layers, ModelSpec
from ...quantity import ceil_div

# {model_type of a config.json: the architecture of its GGUF files}, of models whose attention is
# plain and whose tensors are written here.
ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "gemma3_text": "gemma3",
}
# Value types and the alignment of tensors (gguf.h).
_UINT32 = 4
_FLOAT32 = 6
_STRING = 8
_ALIGNMENT = 32
_NORM_EPSILON = 1e-5

Value = int | float | str
# {name of a tensor: (its dimensions, the fastest first; the name of its ggml type)}.
Tensors = dict[str, tuple[tuple[int, ...], str]]


def write_model(path: Path, model: ModelSpec) -> Path:
    """Write a file with weights in F16 and norms in F32.

    Raises CannotCheckError for a model whose tensors are not known here.
    """
    architecture = ARCHITECTURES.get(model.model_type or "")
    if architecture is None:
        known = ", ".join(ARCHITECTURES)
        raise CannotCheckError(
            f"a GGUF file of {model.title} cannot be written here: model_type {model.model_type}",
            f"give a .gguf file of it, whose weights are not read; written are {known}",
        )
    keys = {f"{architecture}.{name}": value for name, value in _keys(model).items()}
    general: dict[str, Value] = {
        "general.architecture": architecture,
        "general.name": model.name,
        "tokenizer.ggml.model": "none",
    }
    return write_gguf(path, {**general, **keys}, _tensors(model, architecture))


def write_gguf(path: Path, keys: Mapping[str, Value], tensors: Tensors) -> Path:
    """Write a header with keys and tensors, and a hole as long as the tensors."""
    header = bytearray(struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys)))
    for key, value in keys.items():
        header += _text(key)
        if isinstance(value, str):
            header += struct.pack("<I", _STRING) + _text(value)
        elif isinstance(value, float):
            header += struct.pack("<If", _FLOAT32, value)
        else:
            header += struct.pack("<II", _UINT32, value)
    offset = 0
    for name, (shape, kind) in tensors.items():
        ggml_type = TYPES_BY_NAME[kind]
        header += _text(name)
        header += struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        header += struct.pack("<IQ", ggml_type.number, offset)
        offset = _aligned(offset + ggml_type.tensor_bytes(shape))
    with path.open("wb") as file:
        file.write(header)
        file.truncate(_aligned(len(header)) + offset)
    return path


def copy_header(path: Path, start: int, end: int, to: Path) -> Path:
    """Write the header of a GGUF file, and a hole in the place of its data from `start` to
    `end`.
    """
    with path.open("rb") as source, to.open("wb") as file:
        file.write(source.read(start))
        file.truncate(end)
    return to


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _aligned(offset: int) -> int:
    return ceil_div(offset, _ALIGNMENT) * _ALIGNMENT


def _kind(layer: Layers) -> Grouped:
    """Return the attention of a layer. Raises CannotCheckError for another kind than grouped."""
    kind = layer.attention
    if not isinstance(kind, Grouped) or layer.cross:
        raise CannotCheckError("only grouped attention is written to a GGUF file")
    return kind


def _keys(model: ModelSpec) -> dict[str, Value]:
    """Return the keys of the architecture."""
    main = model.main
    kinds = [(_kind(layer), layer.mlp) for _, layer in model.groups()]
    first, mlp = kinds[0]
    assert mlp is not None
    keys: dict[str, Value] = {
        "block_count": int(main.n_layers),
        "context_length": int(model.max_context or 4096),
        "embedding_length": int(main.d_model),
        "feed_forward_length": int(mlp.d_ff),
        "attention.head_count": int(first.n_heads),
        "attention.head_count_kv": int(first.n_kv_heads),
        "attention.key_length": int(first.d_head),
        "attention.value_length": int(first.d_v or first.d_head),
        "attention.layer_norm_rms_epsilon": _NORM_EPSILON,
        "rope.dimension_count": int(first.d_head),
        "vocab_size": int(model.vocab_size or 1),
    }
    windows = {int(kind.span.window) for kind, _ in kinds if isinstance(kind.span, Sliding)}
    if windows:
        keys["attention.sliding_window"] = min(windows)
    if mlp.n_experts:
        keys["expert_count"] = int(mlp.n_experts)
        keys["expert_used_count"] = int(mlp.n_experts_per_token or 1)
        keys["expert_feed_forward_length"] = int(mlp.d_ff)
    return keys


def _tensors(model: ModelSpec, architecture: str) -> Tensors:
    """Return all tensors of the file."""
    width = int(model.main.d_model)
    rows = int(model.vocab_size or 1)
    tensors: Tensors = {
        "token_embd.weight": ((width, rows), "F16"),
        "output_norm.weight": ((width,), "F32"),
    }
    if model.head and not model.head.tied:
        tensors["output.weight"] = ((width, rows), "F16")
    number = 0
    for layer in model.main.layers:
        for _ in range(int(layer.count)):
            of_layer = _layer_tensors(layer, width, architecture)
            tensors |= {f"blk.{number}.{name}": tensor for name, tensor in of_layer.items()}
            number += 1
    return tensors


def _layer_tensors(layer: Layers, width: int, architecture: str) -> Tensors:
    """Return the tensors of one layer."""
    kind = _kind(layer)
    mlp = layer.mlp
    assert mlp is not None
    queries = int(kind.n_heads * kind.d_head)
    keys = int(kind.n_kv_heads * kind.d_head)
    values = int(kind.n_kv_heads * (kind.d_v or kind.d_head))
    widths = {"q": queries, "k": keys, "v": values}
    found: Tensors = {
        "attn_norm.weight": ((width,), "F32"),
        "ffn_norm.weight": ((width,), "F32"),
        "attn_output.weight": ((int(kind.n_heads * (kind.d_v or kind.d_head)), width), "F16"),
    }
    for name, size in widths.items():
        found[f"attn_{name}.weight"] = ((width, size), "F16")
        if name in kind.bias:
            found[f"attn_{name}.bias"] = ((size,), "F32")
    if kind.qk_norm == "head":
        found["attn_q_norm.weight"] = ((int(kind.d_head),), "F32")
        found["attn_k_norm.weight"] = ((int(kind.d_head),), "F32")
    if architecture == "gemma3":
        found["post_attention_norm.weight"] = ((width,), "F32")
        found["post_ffw_norm.weight"] = ((width,), "F32")
    d_ff = int(mlp.d_ff)
    shapes = {"gate": (width, d_ff), "up": (width, d_ff), "down": (d_ff, width)}
    for name, shape in shapes.items():
        if mlp.n_experts:
            found[f"ffn_{name}_exps.weight"] = ((*shape, int(mlp.n_experts)), "F16")
        else:
            found[f"ffn_{name}.weight"] = (shape, "F16")
    if mlp.n_experts:
        found["ffn_gate_inp.weight"] = ((width, int(mlp.n_experts)), "F32")
    return found
