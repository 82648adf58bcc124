"""The headers of a model's GGUF files become a model file: the keys of every layer, and the tensors
outside them.

The projector of a multimodal model is a file of its own, which llama.cpp loads with --mmproj.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...checkpoint import CheckpointWeights, StoredDtype, StoredTensor
from ...errors import AttncalcError
from ...model import MAX_LAYERS, plural
from ...units import BYTES, count, human, truncate
from ..document import Document
from ..folder import ByteSource
from ..huggingface.layers import Layer, shortest_pattern
from .architectures import ARCHITECTURES, Architecture, unsupported_reason
from .block import Block, BlockFacts, as_key
from .files import local_sources
from .header import GgufHeader, GgufTensor, read_headers
from .keys import Keys
from .layers import read_block

_BLOCK = re.compile(r"blk\.(\d{1,6})\.(.+)")
# What general.type says of files that are no models.
_TYPES = {
    "adapter": "a LoRA adapter, which goes with a model: name the model's own file",
    "imatrix": "statistics for quantization, and no model",
}
# Tensors outside the blocks that multiply nothing, and their keys.
_OUTSIDE = {
    "per_layer_token_embd.weight": "layers_embedding",
    "per_layer_proj_norm.weight": "layers_norm",
    "rope_freqs.weight": "rope_freqs",
    "rope_factors_long.weight": "rope_factors_long",
    "rope_factors_short.weight": "rope_factors_short",
    "output_hc_base.weight": "mixer_base",
    "output_hc_scale.weight": "mixer_scale",
}
# Matrices outside the blocks that multiply every token, and their keys (Gemma 3n and 4,
# DeepSeek-V4).
_OUTSIDE_MATRICES = {
    "per_layer_model_proj.weight": "layers_projection",
    "altup_proj.weight": "altup_in",
    "altup_unembd_proj.weight": "altup_out",
    "output_hc_fn.weight": "mixer",
}
# {key of a model file: the key of the file that has the same number}, for errors.
_ORIGINS = {
    "d_model": "embedding_length",
    "n_layers": "block_count",
    "n_heads": "attention.head_count",
    "n_kv_heads": "attention.head_count_kv",
    "d_head": "attention.key_length",
    "d_v": "attention.value_length",
    "d_ff": "feed_forward_length",
    "n_experts": "expert_count",
    "n_experts_per_token": "expert_used_count",
    "n_shared_experts": "expert_shared_count",
    "max_context": "context_length",
    "window": "attention.sliding_window",
    "kv_lora_rank": "attention.kv_lora_rank",
    "q_lora_rank": "attention.q_lora_rank",
}
# Tensors of heads that are counted without being named.
_HEADS = re.compile(
    r"(cls|cls\.output|cls\.norm|dense_2|dense_3|output)\.(weight|bias)|output\.(scale|input_scale)"
)


def read_document(sources: Sequence[ByteSource], name: str) -> tuple[Document, CheckpointWeights]:
    """Return the model in those files, all of its shards in order, as a model file, and the weights
    that they have.

    Raises AttncalcError if a file is not valid, its architecture is not supported, or its keys and
    tensors contradict.
    """
    return gguf_document(read_headers(sources), name)


def gguf_document(headers: Sequence[GgufHeader], name: str) -> tuple[Document, CheckpointWeights]:
    """Return the model file that the headers of a model's files describe, and the weights in the
    files.

    Raises AttncalcError if the architecture is not supported, a key is missing, or keys and tensors
    contradict.
    """
    keys = Keys(headers[0])
    tensors = _all_tensors(headers, keys)
    weights = stored_weights(headers)
    architecture = _architecture(keys, weights)
    keys.check()
    reader = _Reader(keys, architecture, tensors)
    data = reader.data(name)
    # the layers of multi-token prediction
    after = [f"blk.{i}." for i in range(reader.layers, reader.all_layers)]
    weights = weights._replace(
        predicting=sum(t.size for t in weights.contents if t.name.startswith(tuple(after)))
    )
    origins = {key: {"": keys.name(other)} for key, other in _ORIGINS.items() if keys.has(other)}
    return Document(keys.file, data, {}, origins), weights


def _all_tensors(headers: Sequence[GgufHeader], keys: Keys) -> dict[str, GgufTensor]:
    """Return {name: tensor} of all files. Raises AttncalcError if a file is missing or does not
    belong to the model.
    """
    tensors: dict[str, GgufTensor] = {}
    for header in headers:
        for tensor in header.tensors:
            if tensor.name in tensors:
                raise keys.error(
                    f"the tensor {truncate(tensor.name, 80)} is in {truncate(header.file, 80)} too"
                )
            tensors[tensor.name] = tensor
    files, total = (headers[0].metadata.get(f"split.{key}") for key in ("count", "tensors.count"))
    if isinstance(files, int) and files > 1 and files != len(headers):
        raise AttncalcError(
            f"{keys.file}: one of {count(files)} files, whose names do not end in "
            f"-00001-of-{files:05}.gguf",
            "keep the names that the files were released with",
        )
    if len(headers) > 1 and isinstance(total, int) and total != len(tensors):
        raise keys.error(f"the files have {count(len(tensors))} tensors, and not {count(total)}")
    return tensors


def stored_weights(headers: Sequence[GgufHeader]) -> CheckpointWeights:
    """Return the weights in the files: bytes and elements of each type, and where each tensor
    is.
    """
    elements = Counter[str]()
    sizes = Counter[str]()
    stored = []
    for i, header in enumerate(headers):
        for tensor in header.tensors:
            name = tensor.type.name
            elements[name] += tensor.elements
            sizes[name] += tensor.size
            row = tensor.shape[0] if tensor.shape else 1
            stored.append(
                StoredTensor(
                    tensor.name, name, row, tensor.size, i, header.data_start + tensor.offset
                )
            )
    by_dtype = sorted(
        (StoredDtype(name, elements[name], sizes[name]) for name in sizes),
        key=lambda d: (-d.size, d.name),
    )
    return CheckpointWeights(
        len(headers), len(stored), tuple(by_dtype), sizes.total(), "GGUF", tuple(stored)
    )


def _architecture(keys: Keys, weights: CheckpointWeights) -> Architecture:
    kind = keys.text("general.type")
    if kind in _TYPES:
        raise AttncalcError(f"{keys.file}: {_TYPES[kind]}", "give a language model's .gguf file")
    name = keys.architecture
    if name not in ARCHITECTURES:
        size = f"its tensors have {human(weights.size, BYTES)}"
        raise AttncalcError(
            f"{keys.file}: the architecture {truncate(name)} {unsupported_reason(name)} ({size})",
            "use the model's config.json, or write a model file: 'attncalc presets show "
            "llama2-70b' prints one",
        )
    return ARCHITECTURES[name]


class _Reader:
    """Reads the model of one set of files."""

    def __init__(
        self, keys: Keys, architecture: Architecture, tensors: Mapping[str, GgufTensor]
    ) -> None:
        self.keys = keys
        self.architecture = architecture
        self.all_layers = keys.required("block_count")
        if not 1 <= self.all_layers <= MAX_LAYERS:
            raise keys.error(
                f"has {count(self.all_layers)} layers, and not 1 to {count(MAX_LAYERS)}"
            )
        nextn = keys.number("nextn_predict_layers", 0) or 0
        if nextn >= self.all_layers:
            raise keys.error(
                "has layers for multi-token prediction only: name the file of the model itself"
            )
        self.d_model = keys.required("embedding_length")
        self.left: dict[str, GgufTensor] = {}
        self.blocks: dict[int, dict[str, GgufTensor]] = {}
        for name, tensor in tensors.items():
            match = _BLOCK.fullmatch(name)
            if match and name not in _OUTSIDE_MATRICES:
                self.blocks.setdefault(int(match[1]), {})[match[2]] = tensor
            else:
                self.left[name] = tensor
        last = self.blocks.get(self.all_layers - nextn, {})
        may_lack = (
            architecture is ARCHITECTURES["deepseek4"]
        )  # its converter can leave those layers out, and keeps their number
        is_plain = may_lack and last and not any(part.startswith("nextn.") for part in last)
        self.layers = self.all_layers - (0 if is_plain else nextn)
        self.notes: list[str] = []

    def data(self, name: str) -> dict[str, Any]:
        """Return the keys of the model file. Raises AttncalcError if the file contradicts
        itself.
        """
        layers, norms, norm_biases = self._layers()
        outer = self._outer()
        if self.keys.architecture.startswith("lfm2"):  # a wrong name that files of LFM2 keep
            final = "token_embd_norm"
            first = "output_norm"
        else:
            final = "output_norm"
            first = "token_embd_norm"
        has = {norm: f"{norm}.weight" in self.left for norm in (final, first)}
        counted = norms + sum(has.values())
        norm_biases += sum(f"{norm}.bias" in self.left for norm in has)
        layer_norm = counted > 0 and norm_biases == counted
        extra = outer["extra_params"]
        for norm in has:
            tensor = self.left.pop(f"{norm}.weight", None)
            bias = self.left.pop(f"{norm}.bias", None)
            if tensor and tensor.elements != self.d_model:
                raise self.keys.error(f"{norm}.weight has {count(tensor.elements)} elements")
            if bias and not layer_norm:
                extra[f"{norm}_bias"] = [bias.elements]
        if norm_biases and not layer_norm:
            in_layers = norm_biases - sum(f"{norm}_bias" in extra for norm in has)
            if in_layers:
                extra["norm_biases"] = [in_layers * self.d_model]
        self._other_tensors(extra)
        data = {
            "title": truncate(self.keys.text("general.name"), 100) or name,
            "sources": [f"its GGUF file, read as llama.cpp's {self.keys.architecture}"],
            "notes": self.notes,
            "dtype": "fp16",
            # the engines decide by it that flash attention is off
            "model_type": "grok-1" if self.keys.architecture == "grok" else None,
            "d_model": self.d_model,
            "norm": "layernorm" if layer_norm else "rmsnorm",
            "final_norm": None if has[final] else False,
            "embedding_norm": True if has[first] else None,
            **outer,
            **shortest_pattern(layers),
            "n_layers": len(layers),
        }
        return {key: value for key, value in data.items() if value not in (None, [], {})}

    # Layers

    def _layers(self) -> tuple[list[Layer], int, int]:
        """Return the layers, the number of their norms, and how many of the norms have a bias."""
        layers: list[Layer] = []
        norms = norm_biases = 0
        for i, facts in enumerate(self._facts()):
            block = Block(i, self.blocks.pop(i, {}), self.keys, self.d_model, facts)
            layers += read_block(block)
            norms += block.norms
            norm_biases += block.norm_biases
        return layers, norms, norm_biases

    def _facts(self) -> list[BlockFacts]:
        n = self.all_layers
        keys = self.keys
        zeros = [0 for _ in range(n)]
        heads = keys.per_layer("attention.head_count", n) or zeros
        kv_heads = keys.per_layer("attention.head_count_kv", n) or heads
        used = keys.per_layer("expert_used_count", n) or zeros
        window, slides = self._windows()
        own = self.architecture.own_kv_layers
        shared = keys.number("attention.shared_kv_layers")
        if shared is not None:
            own = self.layers - shared
        chunked = bool(self.architecture.windows and self.architecture.windows.chunked)
        return [
            BlockFacts(
                n_heads=heads[i],
                n_kv_heads=kv_heads[i],
                window=window if slides[i] else None,
                chunked=chunked,
                shares_kv=own is not None and i >= own,
                experts_used=used[i],
            )
            for i in range(self.layers)
        ]

    def _windows(self) -> tuple[int | None, list[bool]]:
        """Return the tokens of the windows, and which layers have one."""
        windows = self.architecture.windows
        keys = self.keys
        none_slides = [False for _ in range(self.layers)]
        size = keys.number("attention.sliding_window")
        if windows is None or (windows.layers is not None and self.layers != windows.layers):
            if size:
                self.notes.append(
                    f"The file has sliding windows of {count(size)} tokens. llama.cpp stores the "
                    f"whole context for {keys.architecture}."
                )
            return None, none_slides
        if size == 0 or (size is None and windows.default is None):
            return None, none_slides
        tokens = windows.default if windows.fixed or size is None else size
        pattern = "attention.sliding_window_pattern"
        flags = keys.flags_per_layer(pattern, self.layers)
        if flags is not None:
            return tokens, flags
        period = keys.required(pattern) if windows.period is None else windows.period
        if period:
            given = keys.number(pattern)
            period = period if given is None else given
        full = 0 if windows.dense_first else period - 1
        return tokens, [period == 0 or i % period != full for i in range(self.layers)]

    # Tensors outside the layers

    def _outer(self) -> dict[str, Any]:
        """Return the keys of embedding, head, positions and other tensors outside the blocks."""
        data: dict[str, Any] = {"max_context": self.keys.number("context_length") or None}
        embedding = self.left.pop("token_embd.weight", None)
        if embedding is None or len(embedding.shape) != 2:
            raise self.keys.error("has no matrix token_embd.weight")
        width, vocabulary = embedding.shape
        named = self.keys.vocabulary()
        if named not in (None, vocabulary):
            raise self.keys.error(
                f"token_embd.weight has {count(vocabulary)} rows, and the vocabulary "
                f"{count(named or 0)} tokens"
            )
        data["vocab_size"] = vocabulary
        if width != self.d_model:
            data["d_embedding"] = width
        types = self.left.pop("token_types.weight", None)
        if types:
            data["token_types"] = types.elements // width
        positions = self.left.pop("position_embd.weight", None)
        if positions:
            data["learned_positions"] = positions.elements // self.d_model
        if self.architecture.encoder or self.keys.flag("attention.causal") is False:
            data["mask"] = "bidirectional"
            data["head"] = "none"
        else:
            head = self.left.pop("output.weight", None)
            if head is not None and head.shape != (width, vocabulary):
                raise self.keys.error(f"output.weight is {' x '.join(map(count, head.shape))}")
            data["tied_embeddings"] = head is None
            data["head_bias"] = bool(self.left.pop("output.bias", None))
        matrices: dict[str, list[int]] = {}
        for tensor_name, key in _OUTSIDE_MATRICES.items():
            tensor = self.left.pop(tensor_name, None)
            if tensor:
                matrices[key] = [tensor.shape[0], tensor.elements // tensor.shape[0]]
        return {**data, "outside_matrices": matrices, "extra_params": {}}

    def _other_tensors(self, extra: dict[str, list[int]]) -> None:
        """Count the tensors that are left. Raises AttncalcError for one that is not known."""
        for name, tensor in self.left.items():
            if name not in _OUTSIDE and not _HEADS.fullmatch(name):
                raise self.keys.error(
                    f"the tensor {truncate(name, 80)} is not known for {self.keys.architecture}"
                )
            key = _OUTSIDE.get(name, as_key(name))
            extra[key] = [tensor.elements]
        for i, tensors in self.blocks.items():
            if not self.layers <= i < self.all_layers:
                raise self.keys.error(
                    f"has a block {count(i)}, but {count(self.all_layers)} layers"
                )
            extra[f"nextn_{i}"] = [sum(tensor.elements for tensor in tensors.values())]
        if self.blocks:
            self.notes.append(
                f"Multi-token prediction has {plural(len(self.blocks), 'layer')}, which llama.cpp "
                "loads only for speculation. Their parameters are counted, their cache is not."
            )


def projector_bytes(path: str) -> int:
    """Return the bytes of all tensors in a projector's file. Raises AttncalcError if it is no such
    file.
    """
    name = truncate(path, 200)
    tip = "give the file that llama-server gets, as --mmproj mmproj-model-f16.gguf"
    try:
        is_file = Path(path).is_file()
    except (OSError, ValueError):  # a name that is too long, or has a NUL
        is_file = False
    if not is_file:
        raise AttncalcError(f"--mmproj {name}: there is no such file", tip)
    headers = read_headers(local_sources(Path(path)))
    if headers[0].metadata.get("general.architecture") != "clip":
        raise AttncalcError(
            f"--mmproj {name}: it is not a projector, whose architecture is clip", tip
        )
    return stored_weights(headers).size
