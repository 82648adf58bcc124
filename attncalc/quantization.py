"""How a checkpoint stores quantized matrices: bits, scales and zero points, and the modules that
each scheme covers.

A checkpoint names modules as transformers does ('model.layers.3.self_attn.q_proj'). `module_names`
returns these names for a matrix of attncalc, so that the lists of a quantization_config can be
applied to it.
"""

import fnmatch
import math
import re
from collections.abc import Iterable
from functools import cache
from itertools import product
from typing import Literal

from .quantity import ceil_div, symbol_like
from .records import NamedTuple

# The part of a model that a matrix belongs to; 'linear' is a recurrent layer's in place of
# attention.
#
# Norms, biases and convolutions are not quantized.
Role = Literal[
    "attention",
    "linear",
    "cross",
    "mlp",
    "experts",
    "shared_experts",
    "router",
    "lookup",
    "embedding",
    "head",
]
# The roles of the part of a layer that mixes tokens.
MIXERS: tuple[Role, ...] = ("attention", "linear")
# The roles that 'Linear' does not stand for: a scheme covers them only if one of its targets names
# them.
OUTSIDE: tuple[Role, ...] = ("router", "lookup", "embedding", "head")

# The target that stands for every matrix of attention and MLPs.
LINEAR = "Linear"
# Before a Role, the target that stands for all matrices of that part: 'part:attention'. No
# checkpoint has it: options and the table of checkpoints name parts and not modules.
PART = "part:"

# Parts of the names of modules outside the language model.
_NOT_TEXT = ("visual", "vision", "audio", "projector", "embed_vision", "embed_audio", "mtp")
# The names that modules of each part have in a layer, in transformers' classes; expert 0 stands for
# all experts.
_PARENTS: dict[Role, tuple[str, ...]] = {
    "attention": ("self_attn", "attn", "attention", "mixer", "mamba"),
    "linear": ("linear_attn", "self_attn", "attn", "attention", "mixer", "mamba"),
    "cross": ("cross_attn", "encoder_attn"),
    "mlp": ("mlp", "feed_forward", "ffn"),
    "experts": (
        "mlp.experts.0",
        "block_sparse_moe.experts.0",
        "feed_forward.experts.0",
        "ffn.experts.0",
        "experts.0",
    ),
    "shared_experts": (
        "mlp.shared_experts",
        "mlp.shared_expert",
        "feed_forward.shared_expert",
        "ffn.shared_experts",
        "shared_mlp",
        "block_sparse_moe.shared_experts",
    ),
    "router": (
        "mlp.gate",
        "block_sparse_moe.gate",
        "mlp.router",
        "feed_forward.router",
        "ffn.gate",
        "router",
        "feed_forward.gate",
        "moe.gate",
    ),
    "lookup": ("engram.embed",),
}
# {how a model_type begins: the names that differ in its class from _PARENTS}. A pattern may match
# only real names.
_PARENTS_OF: dict[str, dict[Role, tuple[str, ...]]] = {
    # The dense MLP beside the experts is attncalc's shared expert.
    "gemma4": {"experts": ("experts.0", "moe.experts.0"), "shared_experts": ("mlp",)},
    "nemotron_h": {
        **dict.fromkeys(("attention", "linear", "mlp"), ("mixer",)),
        "experts": ("mixer.experts.0",),
        "shared_experts": ("mixer.shared_experts",),
        "router": ("mixer.gate",),
    },
    "qwen3_5": {"attention": ("self_attn",), "linear": ("linear_attn",)},
    "qwen3_next": {"attention": ("self_attn",), "linear": ("linear_attn",)},
}
# The names that differ in mlx-lm, where one module has all experts of a layer.
_PARENTS_IN_MLX: dict[Role, tuple[str, ...]] = {
    "experts": ("mlp.switch_mlp", "block_sparse_moe.switch_mlp")
}
# {name of a matrix in attncalc: its names in checkpoints}.
_LEAVES: dict[str, tuple[str, ...]] = {
    "W_q": ("q_proj", "in_proj_qkv", "in_proj_qkvz"),
    "W_k": ("k_proj", "in_proj_qkv", "in_proj_qkvz"),
    "W_v": ("v_proj", "in_proj_qkv", "in_proj_qkvz"),
    "W_qkv": ("qkv_proj", "query_key_value", "in_proj_qkv", "c_attn"),
    "W_o": ("o_proj", "out_proj", "dense", "wo_b"),
    "W_q_a": ("q_a_proj", "wq_a"),
    "W_q_b": ("q_b_proj", "wq_b"),
    "W_kv_a": ("kv_a_proj_with_mqa", "wkv_a"),
    "W_kv_b": ("kv_b_proj", "wkv_b"),
    "pool_W_kv": ("compressor.wkv",),
    "pool_W_gate": ("compressor.wgate",),
    "index_W_kv": ("indexer.compressor.wkv",),
    "index_W_gate": ("indexer.compressor.wgate",),
    "index_W_q": ("indexer.wq_b",),
    "index_W_k": ("indexer.wk",),
    "index_W_weights": ("indexer.weights_proj",),
    "W_gate": ("gate_proj", "gate_up_proj", "w1", "in_proj_z", "in_proj_qkvz", "g_proj"),
    "W_up": ("up_proj", "gate_up_proj", "w3", "fc1"),
    "W_down": ("down_proj", "w2", "fc2"),
    "W_beta": ("in_proj_b", "in_proj_ba", "b_proj"),
    "W_decay": ("in_proj_a", "in_proj_ba"),
    "W_in": ("in_proj",),
    "W_out": ("out_proj",),
}
_NO_GATE: dict[str, tuple[str, ...]] = {"W_up": ("up_proj",)}
_QWEN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("W_q", "W_gate"), ("q_proj",)),  # one module
    "W_k": ("k_proj",),
    "W_v": ("v_proj",),
    "W_o": ("o_proj",),
}
# {how a model_type begins: the names that differ in its class from _LEAVES, by the part of a
# layer}.
_LEAVES_OF: dict[str, dict[Role, dict[str, tuple[str, ...]]]] = {
    "nemotron_h": {
        "attention": {"W_o": ("o_proj",)},
        "mlp": _NO_GATE,
        "shared_experts": _NO_GATE,
        "experts": _NO_GATE,
    },
    "qwen3_5": {
        "attention": _QWEN,
        "linear": {
            **dict.fromkeys(("W_q", "W_k", "W_v"), ("in_proj_qkv",)),
            "W_gate": ("in_proj_z",),
            "W_beta": ("in_proj_b",),
            "W_decay": ("in_proj_a",),
            "W_o": ("out_proj",),
        },
    },
    "qwen3_next": {
        "attention": _QWEN,
        "linear": {
            **dict.fromkeys(("W_q", "W_k", "W_v", "W_gate"), ("in_proj_qkvz",)),
            **dict.fromkeys(("W_beta", "W_decay"), ("in_proj_ba",)),
            "W_o": ("out_proj",),
        },
    },
}
# The names of the token embedding and the lm head.
_NAMES_OUTSIDE: dict[Role, tuple[str, ...]] = {
    "embedding": ("embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embed_in"),
    "head": ("lm_head", "embed_out", "output_layer", "output", "head", "transformer.ff_out"),
}
# What may stand before 'layers', or before the embedding and the head, in the name of a module.
_PREFIXES = (
    "model.",
    "model.language_model.",
    "language_model.model.",
    "language_model.",
    "backbone.",
    "",
)
_LAYER = r"(?:^|\.)(?:layers|h|blocks|block)\.(\d+)(?:\.|$)"


class Scheme(NamedTuple):
    """How the matrices that a scheme covers are stored, by their input (rows) and output (columns)
    dimension.
    """

    dtype: str  # the dtype of their elements, in attncalc's words: 'int4'
    bits: int  # bits of `per` elements
    # inputs that share a scale; 0 if all inputs of an output do, or of the whole matrix (with block
    # 0)
    group: int = 0
    block: int = 1  # outputs that share a scale: 1, 128 for DeepSeek's blocks, 0 for all
    scale_bits: int = 16  # bits of one scale
    zero_bits: int = 0  # bits of one zero point; 0 if the scheme is symmetric
    row_bits: int = 0  # further bits per input (GPTQ's g_idx)
    fixed: int = 0  # further bytes per matrix: its shape, scales of the whole matrix
    # Modules that it covers: 'Linear', a name, a pattern with *, a regular expression after 're:',
    # or a part of the model after 'part:'
    targets: tuple[str, ...] = (LINEAR,)
    # elements that have `bits` together: 1, 10 for HQQ's 3-bit elements, of which 10 are in 32 bits
    per: int = 1
    # its size in words, where the other fields do not say it: '4.65 bits per weight on average'
    words: str = ""
    # Whether activations are not quantized, so that products run in the model's dtype (W8A16)
    weight_only: bool = False

    def matrix_bytes(self, rows: int, cols: int) -> int:
        """Return the bytes of a matrix with `rows` inputs and `cols` outputs, scales and zero
        points included.
        """
        elements = "an element" if self.per == 1 else f"{self.per} elements"
        bits = symbol_like(cols, "bits", self.bits, f"bits of {elements} in {self.name}")
        size = ceil_div(rows * cols * bits, 8 * self.per)
        scale = self.scale_bits + self.zero_bits
        if scale:
            if self.group:
                groups = ceil_div(
                    rows, symbol_like(cols, "group", self.group, "inputs that share a scale")
                )
            else:
                groups = 1
            outputs = cols
            if self.block != 1:
                if self.block:
                    outputs = ceil_div(
                        cols, symbol_like(cols, "block", self.block, "outputs that share a scale")
                    )
                else:
                    outputs = 1
            per_scale = symbol_like(cols, "scale_bits", scale, "bits of a scale and its zero point")
            size = size + ceil_div(groups * outputs * per_scale, 8)
        if self.row_bits:
            size = size + ceil_div(rows * self.row_bits, 8)
        if self.fixed:
            return size + self.fixed
        return size

    @property
    def element_bits(self) -> int:
        """Return the bits of one element, rounded up."""
        return -(-self.bits // self.per)

    @property
    def name(self) -> str:
        """Return the dtype of its elements with their own bits: 'int3', which attncalc multiplies
        as int4.
        """
        if self.dtype in ("int4", "int8") and self.per == 1:
            return f"int{self.bits}"
        return self.dtype

    @property
    def note(self) -> str:
        """Return its size in words: '4-bit elements, 16 bits of scale per 128'."""
        if self.words:
            return self.words
        scale = f"{self.scale_bits} bits of scale" + (
            f" and {self.zero_bits} of zero point" if self.zero_bits else ""
        )
        if self.group and self.block > 1:
            return f"{self.bits}-bit elements, {scale} per block of {self.block} x {self.group}"
        if self.group:
            per = f"per {self.group}"
        elif self.block:
            per = "per output channel"
        else:
            per = "per matrix"
        return f"{self.bits / self.per:g}-bit elements, {scale} {per}"


class Quantization(NamedTuple):
    """The schemes of a checkpoint, and the modules that stay in the model's dtype."""

    # its name in the config: 'compressed-tensors'; '' if no checkpoint was read, but options name
    # what stays in 16 bits
    method: str
    # The schemes; one that names a module goes before one that targets every linear layer. () if
    # they cannot be read
    schemes: tuple[Scheme, ...]
    ignored: tuple[str, ...] = ()  # modules that are not quantized, as in `Scheme.targets`
    names: str = ""  # the model_type whose class names the modules

    def scheme_of(self, layer: int, role: Role, matrix: str) -> Scheme | None:
        """Return the scheme of a matrix of a layer, counted from 0; None if it is not quantized."""
        return _scheme_of(self, layer, role, matrix)


class StoredAs(NamedTuple):
    """How a known checkpoint stores a model's matrices."""

    repository: str  # 'nvidia/Qwen3.6-27B-NVFP4'
    quantization: Quantization
    kv_dtype: str | None  # the dtype of the cache that it asks for; None for the model's
    words: str  # what it does with attention: 'attention in fp8'
    differs: bool  # whether other checkpoints of the model may leave other parts in 16 bits


@cache
def module_names(
    layer: int, role: Role, matrix: str, model_type: str = "", method: str = ""
) -> tuple[str, ...]:
    """Return the names that a matrix may have in checkpoints, from 'layers' on:
    'layers.3.self_attn.q_proj'.

    A matrix whose name is not known has only the names of its part of the layer:
    'layers.3.self_attn'. The embedding and the head are in no layer: 'lm_head'.
    """
    if role in _NAMES_OUTSIDE:
        return _NAMES_OUTSIDE[role]
    own = next((name for name in _PARENTS_OF if model_type.startswith(name)), "")
    leaves = _LEAVES_OF.get(own, {}).get(role, {}).get(matrix, ())
    if not leaves:
        leaves = _LEAVES.get(matrix, ())
        if role not in MIXERS:
            leaves = tuple(leaf for leaf in leaves if not leaf.startswith(("in_proj_", "g_proj")))
    parents_of = {**_PARENTS, **_PARENTS_OF.get(own, {})}
    if method == "mlx":
        parents_of.update(_PARENTS_IN_MLX)
    parents = [f"layers.{layer}.{parent}" for parent in parents_of[role]]
    if not leaves:
        return tuple(parents)
    return tuple(f"{parent}.{leaf}" for parent, leaf in product(parents, leaves))


# Steps that comparing one name with all regular expressions of a list may take; those of releases
# take thousands.
_MAX_STEPS = 500_000
# Characters of a module's name, about:
# 'language_model.model.layers.61.mlp.shared_experts.gate_up_proj'.
_LONGEST_NAME = 64
# A repeated group, as in (a+)+ and (a|a)*, and rare groups: comments could hide a repeat from
# `pattern_problem`.
_UNBOUNDED = r"\)[*+{]|\(\?(?![:=!<]|i\))"


def pattern_problem(listed: Iterable[str]) -> str:
    """Return why the regular expressions among these modules cannot be used; '' if they can.

    Matching backtracks, which can take exponential time. If no group is repeated, n repeats divide
    a name in at most length^n / n! ways, for each combination of alternatives:
    'mlp.*(gate|up)_proj.*' takes at most 2 * 64^2 / 2 steps.
    """
    steps = 0
    for pattern in (name[3:] for name in listed if name.startswith("re:")):
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError):
            return "a pattern of modules that is not valid"
        plain = re.sub(r"\\.|\[[^\]]*\]", "x", pattern)  # an escape or a set is one character
        repeats = min(8, len(re.findall(r"(?<!\()[*+?{]", plain)))
        alternatives = math.prod(part.count("|") + 1 for part in re.split(r"[()]", plain))
        steps += alternatives * _LONGEST_NAME**repeats // math.factorial(repeats) + 100
        if re.search(_UNBOUNDED, plain) or steps > _MAX_STEPS:
            return "a pattern of modules that is too complex"
    return ""


class _Modules(NamedTuple):
    """A list of modules, sorted by how a name is compared with it."""

    exact: frozenset[str]  # names from 'layers' on, which cover the modules inside them too
    # names without a layer, such as 'self_attn' and 'mlp.gate', which may be anywhere in a name
    parts: tuple[str, ...]
    # {number of a layer: the wildcards of that layer as one expression}
    by_layer: dict[int, re.Pattern[str]]
    anywhere: tuple[re.Pattern[str], ...]  # wildcards of any layer, and regular expressions

    def cover(self, layer: int, name: str) -> bool:
        """Return whether the list covers the module of that name in that layer, as `module_names`
        writes it.
        """
        pieces = name.split(".")
        if any(".".join(pieces[:n]) in self.exact for n in range(2, len(pieces) + 1)):
            return True
        if self.parts:
            full_names = "\n".join(f".{prefix}{name}." for prefix in _PREFIXES)
            if any(f".{part}." in full_names for part in self.parts):
                return True
        if layer in self.by_layer:
            expressions = (*self.anywhere, self.by_layer[layer])
        else:
            expressions = self.anywhere
        full = [f"{prefix}{name}" for prefix in _PREFIXES]
        return any(expression.match(text) for expression, text in product(expressions, full))

    def cover_one(self, layer: int, names: Iterable[str], *, fuses: bool) -> bool:
        """Return whether the list covers a module that may have any of these names.

        Unless the engine `fuses` gate and up before it compares them, a list that covers one of
        them by its own name does not mean the fused module: '.*up_proj' is not gate_up_proj.
        """
        for name in names:
            parent, _, leaf = name.rpartition(".")
            fused = leaf == "gate_up_proj" and not fuses
            apart = fused and any(
                self.cover(layer, f"{parent}.{part}") for part in ("gate_proj", "up_proj")
            )
            if not apart and self.cover(layer, name):
                return True
        return False


@cache
def _modules(listed: tuple[str, ...]) -> _Modules:
    exact = set[str]()
    parts = list[str]()
    anywhere = list[str]()
    by_layer: dict[int, list[str]] = {}
    for item in listed:
        if item.startswith("re:"):
            anywhere.append(f"(?:{item[3:]})")
            continue
        if any(word in item for word in _NOT_TEXT):
            continue
        in_layer = re.search(_LAYER, item)
        if "*" in item:
            expressions = [fnmatch.translate(item), fnmatch.translate(f"{item}.*")]
            # 'layers.1*' also covers layer 10, and is compared with all layers
            if in_layer:
                by_layer.setdefault(int(in_layer[1]), []).extend(expressions)
            else:
                anywhere.extend(expressions)
        elif in_layer:
            exact.add(f"layers.{in_layer[1]}.{item[in_layer.end() :]}".rstrip("."))
        else:
            parts.append(item)
    return _Modules(
        frozenset(exact),
        tuple(parts),
        {layer: re.compile("|".join(expressions)) for layer, expressions in by_layer.items()},
        tuple(map(re.compile, anywhere)),
    )


@cache
def _scheme_of(quantization: Quantization, layer: int, role: Role, matrix: str) -> Scheme | None:
    part = f"{PART}{role}"
    if part in quantization.ignored:
        return None
    for scheme in quantization.schemes:
        if part in scheme.targets:
            return scheme
    fuses = quantization.method.startswith(("modelopt", "nvfp4"))
    # vLLM and SGLang compare 'mlp.experts', one module: '*gate*' leaves none of it out
    if role == "experts" and fuses:
        matrix = "W_down"
    names = module_names(layer, role, matrix, quantization.names, quantization.method)
    if _modules(quantization.ignored).cover_one(layer, names, fuses=fuses):
        return None
    for scheme in quantization.schemes:
        named = tuple(target for target in scheme.targets if target != LINEAR)
        if named and _modules(named).cover_one(layer, names, fuses=fuses):
            return scheme
    if role in OUTSIDE:
        return None
    return next((scheme for scheme in quantization.schemes if LINEAR in scheme.targets), None)
