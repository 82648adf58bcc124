"""The GGUF file that llama-quantize makes of a model: the type of each tensor, by the type of the
file.

A file type is a mixture. Q4_K_M has most matrices in Q4_K, and attn_v and ffn_down of about half of
the layers in Q6_K.

Source: llama_tensor_get_type_impl and tensor_type_fallback (src/llama-quant.cpp) of llama.cpp.
Files of other authors have mixtures of their own: Qwen3.5-9B in Q4_K_M has 5,629,109,088 bytes as
llama-quantize makes it, 5,680,522,464 of Unsloth, and bartowski's model buffer is 5,060.88 MiB
instead of 4,810.31.

Experts that were released in MXFP4 keep it in every type. An MXFP4 file has all other matrices in
Q8_0.
"""

import dataclasses
from collections.abc import Iterator

from ...attention import Matrix
from ...checkpoint import CheckpointWeights, StoredDtype, StoredTensor
from ...ggml import FILE_TYPES, TYPES_BY_NAME
from ...model import Layers, ModelSpec
from ...quantization import MIXERS
from ...records import NamedTuple
from .placement import TWO_LAYERS_PER_BLOCK

# The types of matrices whose rows are no multiple of 256.
_FALLBACKS = {
    **dict.fromkeys(("Q2_K", "Q3_K"), "Q4_0"),
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
    **dict.fromkeys(
        ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"), "IQ4_NL"
    ),
}
# File types of 1 and 2 bits, which have rules of their own; like all of the IQ types they are made
# with an imatrix.
_LOWEST = ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs")
_LOW = ("iq2_s", "iq2_m")
_NAMES = {
    "W_q": "attn_q",
    "W_k": "attn_k",
    "W_v": "attn_v",
    "W_qkv": "attn_qkv",
    "W_o": "attn_output",
    "W_gate": "attn_gate",
    "W_kv_a": "attn_kv_a_mqa",
}
# Gemma 3n's and 4's inputs of each layer: a table, which is on the host, and a projection, which
# stays in 16 bits.
_TABLES = {"layers_embedding": "per_layer_token_embd", "layers_projection": "per_layer_model_proj"}
_ROLES = {"mlp": "", "experts": "_exps", "shared_experts": "_shexp"}
# The model_types of which GGUF files have Q, K and V in one tensor.
_FUSED = ("phi3", "phimoe", "gpt2", "gpt_neox", "falcon", "bloom", "mpt", "chatglm", "dbrx")
# The model_types of which llama.cpp calls 80 layers 70B, if heads share K and V.
_70B = ("llama", "qwen2")


class _Tensor(NamedTuple):
    """A tensor before it has a type; the first dimension is its row."""

    name: str
    row: int
    rows: int = 1
    quantized: bool = True

    @property
    def elements(self) -> int:
        return self.row * self.rows


def quantized(model: ModelSpec, file_type: str) -> ModelSpec:
    """Return the decoder with the tensors of its GGUF file of that type, a key of FILE_TYPES or
    mxfp4.
    """
    return model.kept(("quantized", file_type), lambda: _quantized(model, file_type))


def _quantized(model: ModelSpec, file_type: str) -> ModelSpec:
    mixture = _Mixture(model, file_type)
    contents: list[StoredTensor] = []
    by_type: dict[str, list[int]] = {}
    start = 0
    for tensor in _tensors(model):
        name = mixture.type_of(tensor) if tensor.quantized else "F32"
        size = TYPES_BY_NAME[name].tensor_bytes((tensor.row, tensor.rows))
        contents.append(StoredTensor(tensor.name, name, tensor.row, size, 0, start))
        start += size
        of_type = by_type.setdefault(name, [0, 0])
        of_type[0] += tensor.elements
        of_type[1] += size
    dtypes = sorted(
        (StoredDtype(name, *of_type) for name, of_type in by_type.items()),
        key=lambda each: -each.size,
    )
    stored = CheckpointWeights(
        1, len(contents), tuple(dtypes), start, "GGUF", tuple(contents), file_type
    )
    return dataclasses.replace(model, stored=stored)


# The tensors


def _tensors(model: ModelSpec) -> Iterator[_Tensor]:
    """Yield the tensors of the model's GGUF file. Norms, biases, routers and convolutions are not
    quantized.
    """
    stack = model.main
    if model.vocab_size:
        yield _Tensor("token_embd.weight", int(model.table_width), model.vocab_size)
        if model.head and model.head.kind == "lm" and not model.head.tied:
            yield _Tensor("output.weight", int(model.table_width), model.vocab_size)
    norms = []
    if stack.embedding_norm:
        norms.append("token_embd_norm")
    if stack.final_norm:
        norms.append("output_norm")
    for norm in norms:
        yield _Tensor(f"{norm}.weight", stack.d_model * stack.norm_vectors, quantized=False)
    if stack.learned_positions:
        yield _Tensor(
            "position_embd.weight", stack.d_model, stack.learned_positions, quantized=False
        )
    for matrix in model.extra:
        row = matrix.rows
        rows = matrix.cols
        is_table = matrix.name == "layers_embedding"
        if is_table:
            row = matrix.cols
            rows = matrix.rows
        name = f"{_TABLES.get(matrix.name, matrix.name)}.weight"
        yield _Tensor(name, row, rows, quantized=is_table or matrix.applied_to is not None)
    yield from _tensors_of_layers(model)


def _tensors_of_layers(model: ModelSpec) -> Iterator[_Tensor]:
    layer = 0
    for group in model.main.layers:
        for lookup in group.lookups:
            yield _Tensor("per_layer_token_embd.weight", lookup.rows, lookup.cols * group.count)
        for _ in range(group.count):
            if not group.shares_weights:
                for tensor in _layer(model, group):
                    yield tensor._replace(
                        name=f"blk.{layer // _layers_of_block(model)}.{tensor.name}"
                    )
            layer += 1


def _layers_of_block(model: ModelSpec) -> int:
    if model.model_type in TWO_LAYERS_PER_BLOCK:
        return 2
    return 1


def _layer(model: ModelSpec, layers: Layers) -> Iterator[_Tensor]:
    d_model = model.main.d_model
    matrices = list(layers.matrices_by_role(d_model, model.d_source))
    attention = [matrix for role, _, matrix in matrices if role in MIXERS]
    if model.model_type in _FUSED or layers.attention.label == "GDN":
        attention = _with_fused(attention)
    for matrix in attention:
        yield from _attention_tensors(layers, matrix)
    for role, copies, matrix in matrices:
        bias = matrix.name
        if role == "router":
            yield _Tensor("ffn_gate_inp.weight", matrix.rows, matrix.cols, quantized=False)
        elif role in _ROLES:
            name = matrix.name.replace("W_", "ffn_") + _ROLES[role]
            # Shared experts are one MLP: the inputs of its down projection are those of all of
            # them.
            wide = copies if role == "shared_experts" and matrix.name == "W_down" else 1
            yield _Tensor(f"{name}.weight", matrix.rows * wide, matrix.cols * copies // wide)
            # by this name --n-cpu-moe moves the biases of experts too (LLM_FFN_EXPS_REGEX)
            bias = name
        if matrix.bias:
            yield _Tensor(f"{bias}.bias", matrix.bias * copies, quantized=False)
    for i in range(layers.norms):
        yield _Tensor(f"norm_{i}.weight", d_model * model.main.norm_vectors, quantized=False)
    others = (m for m in layers.attention.matrices(d_model, d_model) if not m.applied_to)
    for matrix in (*others, *layers.extra):
        is_matrix = matrix.applied_to is not None
        yield _Tensor(f"{matrix.name}.weight", matrix.rows, matrix.cols, quantized=is_matrix)


def _with_fused(attention: list[Matrix]) -> list[Matrix]:
    """Return the matrices with those of Q, K and V as one."""
    parts = [matrix for matrix in attention if matrix.name in ("W_q", "W_k", "W_v")]
    if len(parts) < 3:
        return attention
    cols, bias = (sum(getattr(matrix, name) for matrix in parts) for name in ("cols", "bias"))
    return [
        parts[0]._replace(name="W_qkv", cols=cols, bias=bias),
        *(m for m in attention if m not in parts),
    ]


def _attention_tensors(layers: Layers, matrix: Matrix) -> Iterator[_Tensor]:
    """Yield the tensors of a matrix: two of MLA's W_kv_b, of which K's is transposed."""
    if matrix.name == "W_kv_b":
        heads = layers.attention.n_heads  # type: ignore[attr-defined]
        d_nope = layers.attention.d_nope  # type: ignore[attr-defined]
        yield _Tensor("attn_k_b.weight", d_nope, matrix.rows * heads)
        yield _Tensor("attn_v_b.weight", matrix.rows, matrix.cols - d_nope * heads)
    else:
        name = _NAMES.get(matrix.name, f"attn_{matrix.name.removeprefix('W_').lower()}")
        yield _Tensor(f"{name}.weight", matrix.rows, matrix.cols)


# Their types


class _Mixture:
    """The types of a file's tensors, which are asked for in the order of the layers."""

    def __init__(self, model: ModelSpec, file_type: str) -> None:
        self.file_type = file_type
        self.base = FILE_TYPES.get(file_type, "Q8_0")
        self.keeps_experts = model.experts_dtype == "mxfp4"
        # an encoder has no head, and then its embedding has the type of one (llama-quant.cpp)
        has_output = model.head and model.head.kind == "lm" and not model.head.tied
        self.tied = not has_output
        self.experts = max(
            (group.mlp.n_experts or 0 for group in model.main.layers if group.mlp), default=0
        )
        self.layers = model.main.n_layers // _layers_of_block(model)
        names = [tensor.name for tensor in _tensors(model)]
        self.n_v = sum(name.endswith(("attn_v.weight", "attn_qkv.weight")) for name in names)
        widths = model.main.leading.widths()
        self.shared = widths.n_heads // (widths.n_kv_heads or 1)  # query heads of a KV head
        self.is_70b = model.model_type in _70B and self.layers == 80 and self.shared > 1
        self.seen = {"attn_v": 0, "ffn_down": 0}

    def type_of(self, tensor: _Tensor) -> str:
        """Return the type of a quantized tensor: that of the rule, or one for rows of any multiple
        of 32.
        """
        found = self._by_rule(tensor)
        if tensor.row % TYPES_BY_NAME[found].block:
            found = _FALLBACKS.get(found, "F16")
        if tensor.row % TYPES_BY_NAME[found].block:
            return "F16"
        return found

    def _by_rule(self, tensor: _Tensor) -> str:
        name = tensor.name.removesuffix(".weight").rpartition(".")[2]
        if self.keeps_experts and name.endswith("_exps"):
            return "MXFP4"
        if name == "output" or (name == "token_embd" and self.tied):
            unfit = tensor.row % TYPES_BY_NAME[self.base].block
            if unfit or self.base == "Q8_0":
                return "Q8_0"
            is_low = self.file_type in (*_LOWEST, *_LOW, "iq3_xxs")
            return "Q5_K" if is_low else "Q6_K"
        if name == "token_embd":
            wider = dict.fromkeys(_LOWEST, "Q2_K") | dict.fromkeys((*_LOW, "iq3_xxs"), "IQ3_S")
            return wider.get(self.file_type, self.base)
        if name == "per_layer_model_proj":
            return "BF16"
        is_low = self.file_type in (*_LOWEST, *_LOW)
        return self._of_low(tensor, name) if is_low else self._of_matrix(tensor, name)

    def _of_matrix(self, tensor: _Tensor, name: str) -> str:
        """Return the type of a matrix of a layer in a file of 3 bits or more."""
        found: str | None = None
        if name == "attn_v":
            found = self._of_values(self._next("attn_v"))
        elif name == "attn_k" and self.experts == 8:
            found = "Q8_0"
        elif name in ("attn_q", "attn_k"):
            found = {"iq3_xxs": "IQ2_S", "iq3_xs": "IQ3_XXS"}.get(self.file_type)
        elif self.file_type == "iq3_xs" and name.startswith(("ffn_gate", "ffn_up")):
            layer = int(tensor.name.split(".")[1])
            if self.layers // 8 <= layer < 7 * self.layers // 8:
                found = "IQ3_XXS"
        elif name.startswith("ffn_down"):
            # A mixture's layers are counted by their numbers: a layer has several ffn_down.
            if self.experts > 1:
                number = int(tensor.name.split(".")[1])
            else:
                number = self._next("ffn_down")
            found = self._of_down(number)
        elif name == "attn_output":
            found = self._of_output()
        elif name == "attn_qkv":
            found = {
                "q3_k_m": "Q4_K",
                "q3_k_l": "Q4_K",
                "iq3_m": "Q4_K",
                "q4_k_m": "Q5_K",
                "q5_k_m": "Q6_K",
            }.get(self.file_type)
        return found or self.base

    def _of_low(self, tensor: _Tensor, name: str) -> str:
        """Return the type of a matrix in a file of 1 or 2 bits."""
        wider = "IQ3_S" if self.file_type in _LOW else "Q2_K"
        if name in ("attn_v", "attn_qkv"):
            return "Q4_K" if self.shared >= 4 or self.experts >= 4 else wider
        if self.experts == 8 and name in ("attn_k", "attn_output"):
            return "Q4_K" if name == "attn_k" else "Q5_K"
        if name.startswith("ffn_down"):
            return wider if int(tensor.name.split(".")[1]) < self.layers // 8 else self.base
        if name == "attn_output" and self.file_type in _LOW:
            return wider
        if name == "attn_output" and self.file_type in ("iq1_s", "iq1_m"):
            return "IQ2_XXS"
        return self.base

    def _next(self, name: str) -> int:
        self.seen[name] += 1
        return self.seen[name] - 1

    def _of_values(self, i: int) -> str:
        found = {
            "q2_k": "Q4_K" if self.shared >= 4 else "Q3_K",
            "q3_k_m": "Q5_K" if i < 2 else "Q4_K",
            "q3_k_l": "Q5_K",
            "iq3_m": "Q4_K",
            **dict.fromkeys(
                ("iq3_xxs", "iq3_xs", "iq3_s"), "Q4_K" if self.shared >= 4 else self.base
            ),
            **dict.fromkeys(("iq4_xs", "iq4_nl"), "Q5_K" if self.shared >= 4 else self.base),
            "q4_k_s": "Q5_K" if i < 4 else self.base,
            **dict.fromkeys(
                ("q4_k_m", "q5_k_m"), "Q6_K" if _has_more_bits(i, self.n_v) else self.base
            ),
        }.get(self.file_type, self.base)
        if self.experts == 8:
            return "Q8_0"
        if self.is_70b and found in ("Q3_K", "Q4_K"):
            return "Q5_K"
        return found

    def _of_down(self, i: int) -> str:
        return {
            "q2_k": "Q3_K",
            "q3_k_m": "Q5_K" if i < self.layers // 16 else "Q4_K",
            "q3_k_l": "Q5_K",
            "iq3_m": "Q4_K"
            if i < self.layers // 8 or (self.experts == 8 and _has_more_bits(i, self.layers))
            else self.base,
            "q4_k_s": "Q5_K" if i < self.layers // 8 else self.base,
            **dict.fromkeys(
                ("q4_k_m", "q5_k_m"), "Q6_K" if _has_more_bits(i, self.layers) else self.base
            ),
        }.get(self.file_type, self.base)

    def _of_output(self) -> str:
        if self.experts == 8:
            wider = ("q2_k", "q3_k_s", "q3_k_m", "q4_k_s", "q4_k_m")
            if self.file_type in wider or self.file_type.startswith("iq"):
                return "Q5_K"
            return self.base
        found = {
            "q2_k": "Q3_K",
            "q3_k_m": "Q4_K",
            "iq3_m": "Q4_K",
            "iq3_xxs": "IQ3_S",
            "q3_k_l": "Q5_K",
        }
        return found.get(self.file_type, self.base)


def _has_more_bits(i: int, n: int) -> bool:
    """Return whether layer i of n has more bits: the first and last eighth, and every third between
    them.
    """
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2
