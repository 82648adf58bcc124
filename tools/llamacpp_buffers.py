"""The caches and compute buffers that llama.cpp itself logs for models of full size, on a machine
without a GPU.

    python3.11 -m venv v && v/bin/pip install llama-cpp-py-sync==0.11739 gguf numpy
    v/bin/python tools/llamacpp_buffers.py record tests/data/llamacpp-buffers/b11739.jsonl
    v/bin/python tools/llamacpp_buffers.py check tests/data/llamacpp-buffers/b11739.jsonl

`llama-cpp-py-sync` has llama.cpp's own library, prebuilt without a GPU: its version is the build.
It loads a GGUF whose tensors are a hole in the file, and with `no_alloc` it plans a context and
logs its buffers, but allocates none. A row takes 0.1 s, and DeepSeek-V3 70 KB on disk.

The library needs glibc 2.38 (Debian 13, Ubuntu 24.04). Where it is older, run this once, and set
LD_PRELOAD as it prints:

    v/bin/python tools/llamacpp_buffers.py prepare v

`architectures TABLE --files DIRECTORY` records the tensors, keys and caches of the small files that
llama.cpp's own test writes, one per architecture (`test-llama-archs -o DIRECTORY`).

`files DIRECTORY` writes the models' files: attncalc reads the same ones in
tests/test_llamacpp_engine_buffers.py, which compares it with the tables without the library.
"""

import argparse
import importlib.metadata
import json
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gguf

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from gguf_files import Shapes, add_key, add_tensor

_TYPE = gguf.GGMLQuantizationType
# The bytes to which llama.cpp aligns a tensor's data.
_ALIGNMENT = 32


class File(NamedTuple):
    """What a GGUF says of a model."""

    architecture: str
    keys: Mapping[str, Any]  # those of the architecture
    shapes: Shapes  # {tensor: its dimensions, the fastest first}
    matrices: str = "F16"  # the type of matrices; norms and biases are in f32
    experts: str | None = None  # that of the experts' matrices

    def type_of(self, name: str) -> gguf.GGMLQuantizationType:
        """Return the type of a tensor."""
        if len(self.shapes[name]) == 1 or "ffn_gate_inp" in name or name.endswith(".bias"):
            return _TYPE.F32
        # those of MLA have rows that are no multiple of 256
        if name.endswith(("attn_k_b.weight", "attn_v_b.weight")) and self.matrices != "F16":
            return _TYPE.Q8_0
        if name.endswith("shortconv.conv.weight") or "ssm_conv1d" in name or "ssm_a" in name:
            return _TYPE.F32
        if self.experts and "_exps.weight" in name:
            return _TYPE[self.experts]
        return _TYPE[self.matrices]

    def write(self, path: Path) -> Path:
        """Write the header, and a hole as large as the tensors."""
        writer = gguf.GGUFWriter(path, self.architecture)
        for key, value in {**self.keys, "tokenizer.ggml.model": "none"}.items():
            name = key if key.startswith("tokenizer.") else f"{self.architecture}.{key}"
            add_key(writer, name, value)
        end = 0
        for name, shape in self.shapes.items():
            tensor_bytes = add_tensor(writer, name, shape, self.type_of(name))
            end += -(-tensor_bytes // _ALIGNMENT) * _ALIGNMENT
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        header = -(-path.stat().st_size // _ALIGNMENT) * _ALIGNMENT
        with path.open("r+b") as file:
            file.truncate(header + end)
        return path


class Experts(NamedTuple):
    """The experts of an MLP."""

    count: int
    used: int
    width: int
    shared: int = 0  # width of the shared expert
    dense: int = 0  # the first layers, which have an MLP without experts
    bias: bool = False
    probs_bias: bool = False  # exp_probs_b

    def keys(self) -> dict[str, Any]:
        """Return the keys of the file."""
        keys = {
            "expert_count": self.count,
            "expert_used_count": self.used,
            "expert_feed_forward_length": self.width,
        }
        if self.dense:
            keys["leading_dense_block_count"] = self.dense
        return keys

    def shapes(self, d: int) -> Shapes:
        """Return the tensors of a layer."""
        shapes: Shapes = {
            "ffn_gate_inp.weight": (d, self.count),
            "ffn_gate_exps.weight": (d, self.width, self.count),
            "ffn_up_exps.weight": (d, self.width, self.count),
            "ffn_down_exps.weight": (self.width, d, self.count),
        }
        if self.probs_bias:
            shapes["exp_probs_b.bias"] = (self.count,)
        if self.bias:
            shapes |= {
                "ffn_gate_inp.bias": (self.count,),
                "ffn_gate_exps.bias": (self.width, self.count),
                "ffn_up_exps.bias": (self.width, self.count),
                "ffn_down_exps.bias": (d, self.count),
            }
        if self.shared:
            shapes |= {
                "ffn_gate_shexp.weight": (d, self.shared),
                "ffn_up_shexp.weight": (d, self.shared),
                "ffn_down_shexp.weight": (self.shared, d),
            }
        return shapes


class Sizes(NamedTuple):
    """The sizes of a transformer."""

    layers: int
    d: int
    heads: int
    kv_heads: int
    head: int
    ff: int
    vocab: int
    context: int = 131_072
    tied: bool = False
    extra_norms: tuple[str, ...] = ()  # further norms of a layer, as wide as the model
    without: tuple[str, ...] = ()  # tensors that a layer lacks
    head_norms: bool = False  # norms of Q and K
    qkv_bias: bool = False
    fused_qkv: bool = False
    fused_up: bool = False  # gate and up in one matrix
    experts: Experts | None = None

    def keys(self) -> dict[str, Any]:
        """Return the keys of the file."""
        keys: dict[str, Any] = {
            "block_count": self.layers,
            "context_length": self.context,
            "embedding_length": self.d,
            "feed_forward_length": self.ff,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head,
            "attention.value_length": self.head,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "attention.layer_norm_epsilon": 1e-6,
            "rope.dimension_count": self.head,
            "rope.freq_base": 1e6,
            "vocab_size": self.vocab,
        }
        if self.experts:
            keys |= self.experts.keys()
        return keys

    def around(self) -> Shapes:
        """Return the tensors that belong to no layer."""
        shapes: Shapes = {
            "token_embd.weight": (self.d, self.vocab),
            "output_norm.weight": (self.d,),
        }
        if not self.tied:
            shapes["output.weight"] = (self.d, self.vocab)
        return shapes

    def attention(self) -> Shapes:
        """Return the tensors of a layer's attention."""
        q = self.heads * self.head
        kv = self.kv_heads * self.head
        shapes: Shapes = {"attn_output.weight": (q, self.d)}
        widths = {"attn_q": q, "attn_k": kv, "attn_v": kv}
        if self.fused_qkv:
            widths = {"attn_qkv": q + 2 * kv}
        for name, width in widths.items():
            shapes[f"{name}.weight"] = (self.d, width)
            if self.qkv_bias:
                shapes[f"{name}.bias"] = (width,)
        if self.head_norms:
            shapes |= {"attn_q_norm.weight": (self.head,), "attn_k_norm.weight": (self.head,)}
        return shapes

    def mlp(self, layer: int) -> Shapes:
        """Return the tensors of a layer's MLP."""
        if self.experts and layer >= self.experts.dense:
            return self.experts.shapes(self.d)
        shapes: Shapes = {"ffn_down.weight": (self.ff, self.d)}
        if self.fused_up:
            return shapes | {"ffn_up.weight": (self.d, 2 * self.ff)}
        return shapes | {"ffn_gate.weight": (self.d, self.ff), "ffn_up.weight": (self.d, self.ff)}

    def shapes(
        self, mixer: Callable[[int], Shapes] | None = None, more: Shapes | None = None
    ) -> Shapes:
        """Return all tensors; `mixer` returns a layer's attention if it has another one, and `more`
        are further tensors of every layer.
        """
        shapes = self.around()
        for layer in range(self.layers):
            block = {f"{name}.weight": (self.d,) for name in ("attn_norm", "ffn_norm")}
            block |= {f"{name}.weight": (self.d,) for name in self.extra_norms}
            block |= (mixer(layer) if mixer else self.attention()) | self.mlp(layer) | (more or {})
            for name in self.without:
                del block[f"{name}.weight"]
            shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
        return shapes

    def file(self, architecture: str, keys: Mapping[str, Any] | None = None, **types: str) -> File:
        """Return the file of a model without other tensors."""
        return File(architecture, {**self.keys(), **(keys or {})}, self.shapes(), **types)


def _gpt_oss() -> File:
    sizes = Sizes(24, 2880, 64, 8, 64, 2880, 201_088, extra_norms=("post_attention_norm",))
    sizes = sizes._replace(
        without=("ffn_norm",), qkv_bias=True, experts=Experts(32, 4, 2880, bias=True)
    )
    more: Shapes = {"attn_sinks.weight": (64,), "attn_output.bias": (2880,)}
    keys = {"attention.sliding_window": 128}
    return File("gpt-oss", {**sizes.keys(), **keys}, sizes.shapes(more=more), experts="MXFP4")


class Latent(NamedTuple):
    """The sizes of MLA."""

    q_rank: int
    rank: int
    nope: int
    rope: int
    v: int
    index_heads: int = 0
    index_top: int = 2048

    def file(self, architecture: str, sizes: Sizes) -> File:
        """Return a file whose attention is MLA, with an indexer if it has heads."""
        keys = sizes.keys() | {
            "attention.q_lora_rank": self.q_rank,
            "attention.kv_lora_rank": self.rank,
            "attention.key_length": self.rank + self.rope,
            "attention.value_length": self.rank,
            "attention.key_length_mla": self.nope + self.rope,
            "attention.value_length_mla": self.v,
            "rope.dimension_count": self.rope,
            "expert_shared_count": 1,
            "expert_weights_scale": 2.5,
            "expert_gating_func": 2,
            "rope.scaling.yarn_log_multiplier": 0.1,
        }
        if self.index_heads:
            keys |= {
                "attention.indexer.head_count": self.index_heads,
                "attention.indexer.key_length": 128,
                "attention.indexer.top_k": self.index_top,
            }
        heads = sizes.heads
        block: Shapes = {
            "attn_q_a.weight": (sizes.d, self.q_rank),
            "attn_q_a_norm.weight": (self.q_rank,),
            "attn_q_b.weight": (self.q_rank, heads * (self.nope + self.rope)),
            "attn_kv_a_mqa.weight": (sizes.d, self.rank + self.rope),
            "attn_kv_a_norm.weight": (self.rank,),
            "attn_k_b.weight": (self.nope, self.rank, heads),
            "attn_v_b.weight": (self.rank, self.v, heads),
            "attn_output.weight": (heads * self.v, sizes.d),
        }
        if self.index_heads:
            block |= {
                "indexer.k_norm.weight": (128,),
                "indexer.k_norm.bias": (128,),
                "indexer.proj.weight": (sizes.d, self.index_heads),
                "indexer.attn_k.weight": (sizes.d, 128),
                "indexer.attn_q_b.weight": (self.q_rank, self.index_heads * 128),
            }
        return File(architecture, keys, sizes.shapes(lambda _: block), matrices="Q4_K")


_V3 = Sizes(
    61,
    7168,
    128,
    1,
    0,
    18_432,
    129_280,
    163_840,
    experts=Experts(256, 8, 2048, shared=2048, dense=3, probs_bias=True),
)
_GLM_5 = Sizes(
    78,
    6144,
    64,
    1,
    0,
    12_288,
    154_880,
    202_752,
    experts=Experts(256, 8, 2048, shared=2048, dense=3, probs_bias=True),
)


def _lfm2(window: int | None) -> File:
    """LFM2-1.2B; none of its files has a window, but llama.cpp reads one."""
    sizes = Sizes(16, 2048, 32, 8, 64, 8192, 65_536, 128_000, tied=True, head_norms=True)
    attention = (2, 5, 8, 10, 12, 14)

    def mixer(layer: int) -> Shapes:
        if layer in attention:
            return sizes.attention()
        return {
            "shortconv.conv.weight": (3, 2048),
            "shortconv.in_proj.weight": (2048, 3 * 2048),
            "shortconv.out_proj.weight": (2048, 2048),
        }

    shapes = sizes.shapes(mixer)
    shapes["token_embd_norm.weight"] = shapes.pop("output_norm.weight")
    keys = sizes.keys() | {
        "attention.head_count_kv": [8 if layer in attention else 0 for layer in range(16)],
        "shortconv.l_cache": 3,
    }
    if window:
        keys["attention.sliding_window"] = window
    return File("lfm2", keys, shapes)


class Encoder(NamedTuple):
    """The sizes of an encoder with learned or rotary positions, as BERT and those after it."""

    layers: int
    d: int
    heads: int
    ff: int
    vocab: int
    context: int = 8192
    learned: bool = False  # whether positions are learned; otherwise they are rotary
    fused_qkv: bool = False
    gated: bool = False
    fused_up: bool = False  # gate and up in one matrix
    bias: bool = False
    pre_norm: bool = False  # norms before attention and MLP, and not after them
    window: int | None = None  # tokens of the window of two in three layers

    def file(self, architecture: str) -> File:
        """Return the file."""
        keys: dict[str, Any] = {
            "block_count": self.layers,
            "context_length": self.context,
            "embedding_length": self.d,
            "feed_forward_length": self.ff,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.heads,
            "attention.layer_norm_epsilon": 1e-12,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "attention.causal": False,
            "pooling_type": 1,
            "vocab_size": self.vocab,
            "tokenizer.ggml.token_type_count": 2,
        }
        if not self.learned:
            keys |= {"rope.dimension_count": self.d // self.heads, "rope.freq_base": 1e4}
        if self.window:
            keys |= {
                "attention.sliding_window": self.window,
                "attention.sliding_window_pattern": 3,
                "rope.freq_base_swa": 1e4,
            }
        shapes = self._around()
        for layer in range(self.layers):
            block = self._matrices() | self._norms(layer)
            shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
        return File(architecture, keys, shapes)

    def _around(self) -> Shapes:
        """Return the tensors that belong to no layer."""
        shapes: Shapes = {"token_embd.weight": (self.d, self.vocab)}
        if not self.pre_norm:
            shapes |= {
                "token_types.weight": (self.d, 2),
                "token_embd_norm.weight": (self.d,),
                "token_embd_norm.bias": (self.d,),
            }
        else:
            shapes["output_norm.weight"] = (self.d,)
        if self.window:
            shapes["token_embd_norm.weight"] = (self.d,)
        if self.learned:
            shapes["position_embd.weight"] = (self.d, self.context)
        return shapes

    def _matrices(self) -> Shapes:
        """Return the matrices of a layer, with their biases."""
        widths = {
            **dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (self.d, self.d)),
            "ffn_up": (self.d, self.ff),
            "ffn_down": (self.ff, self.d),
        }
        if self.fused_qkv:
            for name in ("attn_q", "attn_k", "attn_v"):
                del widths[name]
            widths["attn_qkv"] = (self.d, 3 * self.d)
        if self.fused_up:
            widths["ffn_up"] = (self.d, 2 * self.ff)
        elif self.gated:
            widths["ffn_gate"] = (self.d, self.ff)
        shapes: Shapes = {}
        for name, shape in widths.items():
            shapes[f"{name}.weight"] = shape
            if self.bias:
                shapes[f"{name}.bias"] = shape[1:]
        return shapes

    def _norms(self, layer: int) -> Shapes:
        """Return the norms of a layer; ModernBERT's first layer has none before its attention."""
        if not self.pre_norm:
            shapes: Shapes = {}
            for name in ("attn_output_norm", "layer_output_norm"):
                shapes |= {f"{name}.weight": (self.d,), f"{name}.bias": (self.d,)}
            return shapes
        names = ["attn_norm", "ffn_norm"]
        if self.window and not layer:
            names = ["ffn_norm"]
        return {f"{name}.weight": (self.d,) for name in names}


def _qwen3_next() -> File:
    """Qwen3-Next-80B-A3B: every fourth layer has attention with a gate."""
    sizes = Sizes(
        48,
        2048,
        16,
        2,
        256,
        5120,
        151_936,
        262_144,
        extra_norms=("post_attention_norm",),
        without=("ffn_norm",),
        head_norms=True,
        experts=Experts(512, 10, 512, shared=512),
    )

    def mixer(layer: int) -> Shapes:
        if layer % 4 == 3:
            return sizes.attention() | {"attn_q.weight": (2048, 2 * 16 * 256)}
        return {
            "ssm_conv1d.weight": (4, 8192),
            "attn_qkv.weight": (2048, 8192),
            "attn_gate.weight": (2048, 4096),
            "ssm_dt.bias": (32,),
            "ssm_a": (32,),
            "ssm_ba.weight": (2048, 64),
            "ssm_norm.weight": (128,),
            "ssm_out.weight": (4096, 2048),
        }

    more: Shapes = {"ffn_gate_inp_shexp.weight": (2048,)}
    keys = sizes.keys() | {
        "ssm.conv_kernel": 4,
        "ssm.state_size": 128,
        "ssm.group_count": 16,
        "ssm.time_step_rank": 32,
        "ssm.inner_size": 4096,
        "expert_shared_feed_forward_length": 512,
        "rope.dimension_count": 64,
        "full_attention_interval": 4,
    }
    return File("qwen3next", keys, sizes.shapes(mixer, more))


_GEMMA_NORMS = ("post_attention_norm", "post_ffw_norm")
MODELS: dict[str, Callable[[], File]] = {
    "llama3-8b": lambda: Sizes(32, 4096, 32, 8, 128, 14_336, 128_256).file("llama"),
    "llama3-8b-q8": lambda: Sizes(32, 4096, 32, 8, 128, 14_336, 128_256).file(
        "llama", matrices="Q8_0"
    ),
    "llama3-70b": lambda: Sizes(80, 8192, 64, 8, 128, 28_672, 128_256).file("llama"),
    "mixtral-8x7b": lambda: Sizes(
        32, 4096, 32, 8, 128, 14_336, 32_000, 32_768, experts=Experts(8, 2, 14_336)
    ).file("llama"),
    "qwen2.5-7b": lambda: Sizes(28, 3584, 28, 4, 128, 18_944, 152_064, qkv_bias=True).file("qwen2"),
    "qwen3-8b": lambda: Sizes(36, 4096, 32, 8, 128, 12_288, 151_936, 40_960, head_norms=True).file(
        "qwen3"
    ),
    "qwen3-30b-a3b": lambda: Sizes(
        48, 2048, 32, 4, 128, 6144, 151_936, 40_960, head_norms=True, experts=Experts(128, 8, 768)
    ).file("qwen3moe"),
    "qwen3-next-80b-a3b": _qwen3_next,
    "phi-4": lambda: Sizes(
        40, 5120, 40, 10, 128, 17_920, 100_352, 16_384, fused_qkv=True, fused_up=True
    ).file("phi3"),
    "gemma2-9b": lambda: Sizes(
        42, 3584, 16, 8, 256, 14_336, 256_000, 8192, tied=True, extra_norms=_GEMMA_NORMS
    ).file("gemma2", {"attention.sliding_window": 4096}),
    "gemma3-27b": lambda: Sizes(
        62, 5376, 32, 16, 128, 21_504, 262_208, tied=True, extra_norms=_GEMMA_NORMS, head_norms=True
    ).file("gemma3", {"attention.sliding_window": 1024}),
    "gpt-oss-20b": _gpt_oss,
    "glm-4.5-air": lambda: Sizes(
        46,
        4096,
        96,
        8,
        128,
        10_944,
        151_552,
        extra_norms=("post_attention_norm",),
        without=("ffn_norm",),
        qkv_bias=True,
        experts=Experts(128, 8, 1408, shared=1408, dense=1, probs_bias=True),
    ).file("glm4moe", {"expert_shared_count": 1, "rope.dimension_count": 64}),
    "grok-1": lambda: Sizes(
        64,
        6144,
        48,
        8,
        128,
        32_768,
        131_072,
        8192,
        extra_norms=("attn_output_norm", "layer_output_norm"),
        experts=Experts(8, 2, 32_768),
    ).file("grok"),
    "deepseek-v3": lambda: Latent(1536, 512, 128, 64, 128).file("deepseek2", _V3),
    "deepseek-v3.2": lambda: Latent(1536, 512, 128, 64, 128, 64).file("deepseek32", _V3),
    "glm-5": lambda: Latent(2048, 512, 192, 64, 256, 32).file("glm-dsa", _GLM_5),
    "lfm2-1.2b": lambda: _lfm2(None),
    "lfm2-1.2b-window": lambda: _lfm2(1024),
    "bert-base": lambda: Encoder(12, 768, 12, 3072, 30_522, 512, learned=True, bias=True).file(
        "bert"
    ),
    "bge-m3": lambda: Encoder(24, 1024, 16, 4096, 250_002, learned=True, bias=True).file("bert"),
    "nomic-embed": lambda: Encoder(12, 768, 12, 3072, 30_528, fused_qkv=True, gated=True).file(
        "nomic-bert"
    ),
    "modernbert-base": lambda: Encoder(
        22,
        768,
        12,
        1152,
        50_368,
        fused_qkv=True,
        gated=True,
        fused_up=True,
        pre_norm=True,
        window=128,
    ).file("modern-bert"),
    "eurobert-210m": lambda: Encoder(12, 768, 12, 3072, 128_256, gated=True, pre_norm=True).file(
        "eurobert"
    ),
}

# What an encoder is started with: it has no cache, and a text is computed in one micro-batch.
OF_ENCODERS: tuple[dict[str, Any], ...] = (
    {},
    {"c": 512},
    {"ub": 128},
    {"ub": 2048},
    {"ub": 8192},
    {"np": 4, "ub": 2048},
    {"fa": "off"},
    {"fa": "off", "ub": 2048},
)
# What each model is started with, beside a context of 8,192 tokens, in the words of the server.
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"c": 4096},
    {"c": 32_768},
    {"c": 131_072},
    {"c": 5000},
    {"c": 500},
    {"c": 300},
    {"c": 100},
    {"np": 4},
    {"np": 4, "kvu": True},
    {"np": 3},
    {"ub": 128},
    {"ub": 2048},
    {"ctk": "q8_0", "ctv": "q8_0"},
    {"ctk": "q4_0", "ctv": "q4_0", "c": 65_536},
    {"ctk": "q8_0"},
    {"ctv": "q8_0"},
    {"ctk": "bf16", "ctv": "bf16"},
    {"ctk": "bf16", "ctv": "f32"},
    {"fa": "off"},
    {"fa": "off", "c": 32_768, "np": 4},
    {"fa": "off", "ub": 128},
    {"outputs": 512},
)
# Those of a model with windows.
WITH_WINDOWS = ({"swa_full": True}, {"swa_full": True, "fa": "off"})


def options_of(name: str, file: File) -> Iterator[dict[str, Any]]:
    """Yield what a model is started with."""
    if file.keys.get("attention.causal") is False:
        yield from OF_ENCODERS
        return
    is_latent = "attention.kv_lora_rank" in file.keys
    for options in OPTIONS:
        # MLA has no V: attncalc takes one type
        if is_latent and options.get("ctk", "f16") != options.get("ctv", "f16"):
            continue
        yield options
    if "attention.sliding_window" in file.keys:
        yield from WITH_WINDOWS


_LIBRARY_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30}
_FLASH = {"auto": -1, "off": 0, "on": 1}


class Library:
    """llama.cpp's library, and the lines that it has logged."""

    def __init__(self) -> None:
        from llama_cpp_py_sync import _cffi_bindings

        self.ffi = _cffi_bindings.get_ffi()
        self.lib = _cffi_bindings.get_lib()
        self.log: list[str] = []

        @self.ffi.callback("void(enum ggml_log_level, const char*, void*)")  # type: ignore[untyped-decorator]
        def keep(_level: Any, text: Any, _data: Any) -> None:
            self.log.append(self.ffi.string(text).decode("utf8", "replace"))

        self._keep = keep  # the library has its address
        self.lib.llama_log_set(keep, self.ffi.NULL)
        self.lib.llama_backend_init()

    def load(self, path: Path) -> Any:
        """Return a model whose tensors have no data."""
        self.log.clear()
        params = self.lib.llama_model_default_params()
        params.no_alloc = True
        params.n_gpu_layers = 0
        if hasattr(params, "load_mode"):
            params.load_mode = 0  # read, not mapped
        else:
            params.use_mmap = False
        model = self.lib.llama_model_load_from_file(str(path).encode(), params)
        if model == self.ffi.NULL:
            raise RuntimeError(f"{path}: {''.join(self.log)[-400:]}")
        return model

    def start(
        self,
        model: Any,
        *,
        c: int = 8192,
        ub: int = 512,
        np: int = 1,
        kvu: bool = False,
        ctk: str = "f16",
        ctv: str = "f16",
        fa: str = "auto",
        swa_full: bool = False,
        outputs: int | None = None,
    ) -> dict[str, Any]:
        """Return what a context of the model logs."""
        self.log.clear()
        params = self.lib.llama_context_default_params()
        params.n_ctx = c
        params.n_ubatch = ub
        params.n_batch = max(2048, ub)
        params.n_seq_max = np
        params.type_k = _LIBRARY_TYPES[ctk]
        params.type_v = _LIBRARY_TYPES[ctv]
        params.swa_full = swa_full
        params.kv_unified = kvu
        params.flash_attn_type = _FLASH[fa]
        if hasattr(params, "n_outputs_max"):  # not before June 2026
            params.n_outputs_max = outputs or np  # as the server sets it
        context = self.lib.llama_init_from_model(model, params)
        text = "".join(self.log)
        if context == self.ffi.NULL:
            failed = [line for line in text.splitlines() if "fail" in line or "error" in line]
            return {"error": " ".join(failed)[:200]}
        self.lib.llama_free(context)
        return read_log(text)


def read_log(text: str) -> dict[str, Any]:
    """Return the buffers that a log has: MiB, cells and layers of each cache, MiB of the states of
    all sequences, and MiB of the compute buffer.
    """
    cache = re.findall(r"size = +([\d.]+) MiB \( *(\d+) cells, +(\d+) layers", text)
    row: dict[str, Any] = {
        "cache": [[float(size), int(cells), int(layers)] for size, cells, layers in cache]
    }
    states = re.findall(r"memory_recurrent: size = +([\d.]+) MiB", text)
    if states:
        row["states"] = float(states[0])
    (row["compute"],) = map(float, re.findall(r"compute buffer size = +([\d.]+) MiB", text))
    return row


def rows(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield what the library logs of each model with each of its options."""
    library = Library()
    with tempfile.TemporaryDirectory() as directory:
        for name in names:
            file = MODELS[name]()
            model = library.load(file.write(Path(directory) / f"{name}.gguf"))
            for options in options_of(name, file):
                yield {"model": name, "options": options, **library.start(model, **options)}
            library.lib.llama_model_free(model)


def build() -> str:
    """Return the build of the installed library: version 0.11739 is b11739."""
    version = importlib.metadata.version("llama-cpp-py-sync")
    return f"b{version.split('.')[1]}"


def record(table: Path, names: Sequence[str]) -> None:
    """Write a table of the installed build, whose name is the build's."""
    if table.stem != build():
        raise SystemExit(f"{table}: the installed library is {build()}")
    lines = [json.dumps(row, separators=(",", ":")) for row in rows(names)]
    table.write_text("\n".join(lines) + "\n")
    sys.stdout.write(f"{table}: {len(lines)} rows\n")


def check(table: Path, names: Sequence[str]) -> None:
    """Print the rows that the installed library logs otherwise; exit code 1 if there are some."""
    kept = [json.loads(line) for line in table.read_text().splitlines()]
    kept = [row for row in kept if row["model"] in names]
    now = {(row["model"], json.dumps(row["options"])): row for row in rows(names)}
    differing = 0
    for row in kept:
        found = now.get((row["model"], json.dumps(row["options"])))
        if found != row:
            differing += 1
            sys.stdout.write(f"- {json.dumps(row)}\n+ {json.dumps(found)}\n")
    sys.stdout.write(f"{len(kept)} rows of {table.name}, {differing} differ with {build()}\n")
    sys.exit(bool(differing))


# Keys that say nothing about sizes, or what every file of llama.cpp's test says.
_KEYS_LEFT_OUT = re.compile(
    r"rope\..*|vocab_size|context_length|.*_(swa|epsilon|softcapping|id|pattern)|.*\.causal"
    r"|pooling_type|deepstack_mapping|token_shift_count|expert_group_scale|kda\.gate_lower_bound"
    r"|attention\.indexer\.kpool_select_tail"
)
_KEPT = ("attention.sliding_window_pattern",)
# The longest list of a key that is kept: one number per layer.
_MOST_LAYERS = 8


def _sizes_of(reader: gguf.GGUFReader, prefix: str) -> dict[str, Any]:
    """Return the keys that say something about the model's sizes: whole numbers and lists."""
    keys = {}
    for name, field in reader.fields.items():
        key = name.removeprefix(prefix)
        if key == name or (_KEYS_LEFT_OUT.fullmatch(key) and key not in _KEPT):
            continue
        value = field.contents()
        if isinstance(value, list):
            is_kept = any(value) and len(value) <= _MOST_LAYERS
        else:
            is_kept = isinstance(value, int) and value not in (0, -1)
        if is_kept:
            keys[key] = value
    return keys


def _tensors_of(reader: gguf.GGUFReader) -> list[list[str]]:
    """Return [[numbers of the blocks, their tensors], ...], without the scales of nvfp4.

    A tensor is its name and shape; 'attn_q.' is 'attn_q.weight'.
    """
    blocks: dict[str, list[str]] = {}
    for tensor in reader.tensors:
        if tensor.name.endswith((".scale", ".input_scale")):
            continue
        match = re.fullmatch(r"blk\.(\d+)\.(.*)", tensor.name)
        block, name = match.groups() if match else ("", tensor.name)
        shape = "x".join(map(str, tensor.shape))
        name = re.sub(r"\.weight$", ".", name)
        blocks.setdefault(block, []).append(f"{name} {shape}")
    numbers: dict[str, list[str]] = {}
    for block, tensors in blocks.items():
        numbers.setdefault(" ".join(tensors), []).append(block)
    return [[" ".join(equal), tensors] for tensors, equal in numbers.items()]


def architectures(table: Path, directory: Path) -> None:
    """Write a row per architecture: its name, the file's keys and tensors, and its caches with a
    context of 1,024 tokens.
    """
    library = Library()
    lines = []
    for path in sorted(directory.glob("*.gguf")):
        reader = gguf.GGUFReader(path)
        name = str(reader.fields["general.architecture"].contents())
        model = library.load(path)
        row = {
            "architecture": name,
            "keys": _sizes_of(reader, f"{name}."),
            "blocks": _tensors_of(reader),
            "cache": library.start(model, c=1024)["cache"],
        }
        library.lib.llama_model_free(model)
        lines.append(json.dumps(row, separators=(",", ":")))
    table.write_text("\n".join(lines) + "\n")
    sys.stdout.write(f"{table}: {len(lines)} architectures of {build()}\n")


def file_of(row: Mapping[str, Any]) -> File:
    """Return the file of a row that `architectures` wrote."""
    shapes: Shapes = {}
    for numbers, tensors in row["blocks"]:
        words = tensors.split(" ")
        for number in numbers.split(" "):
            for name, shape in zip(words[::2], words[1::2], strict=True):
                whole = f"blk.{number}.{name}" if number else name
                whole = re.sub(r"\.$", ".weight", whole)
                shapes[whole] = tuple(map(int, shape.split("x")))
    return File(row["architecture"], row["keys"], shapes)


# glibc 2.38 has these names for functions that older ones have too.
_SHIM = """
#include <stdlib.h>
#include <stdio.h>
#include <stdarg.h>
#undef strtol
long __isoc23_strtol(const char*s, char**e, int b) { return strtol(s, e, b); }
unsigned long __isoc23_strtoul(const char*s, char**e, int b) { return strtoul(s, e, b); }
long long __isoc23_strtoll(const char*s, char**e, int b) { return strtoll(s, e, b); }
unsigned long long __isoc23_strtoull(const char*s, char**e, int b) { return strtoull(s, e, b); }
int __isoc23_sscanf(const char*s, const char*f, ...) {
  va_list a; va_start(a, f); int r = vsscanf(s, f, a); va_end(a); return r;
}
"""
_VERNEED = 0x6FFFFFFE
_WEAK = 2
_TOO_NEW = (b"GLIBC_2.37", b"GLIBC_2.38", b"GLIBC_2.39")


def prepare(environment: Path) -> None:
    """Let an older glibc load the library in an environment: the versions that it needs become
    weak, and a shim has the functions.
    """
    for path in environment.glob("lib/python*/site-packages/llama_cpp_py_sync/*.so*"):
        content = bytearray(path.read_bytes())
        if _make_weak(content):
            path.write_bytes(content)
    shim = environment / "isoc23.so"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(shim)]
    subprocess.run(command, input=_SHIM, text=True, check=True)
    sys.stdout.write(f"export LD_PRELOAD={shim.resolve()}\n")


def _make_weak(content: bytearray) -> int:
    """Mark the versions of glibc that are too new as weak (VER_FLG_WEAK) in an ELF file; return how
    many there are.
    """
    (start,) = struct.unpack_from("<Q", content, 40)
    size, count = struct.unpack_from("<HH", content, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", content, start + i * size) for i in range(count)]
    found = 0
    for section in sections:
        if section[1] != _VERNEED:
            continue
        names = sections[section[6]][4]
        library = section[4]
        while True:
            _, versions, _, first, following = struct.unpack_from("<HHIII", content, library)
            version = library + first
            for _ in range(versions):
                _, flags, _, name, step = struct.unpack_from("<IHHII", content, version)
                text = content[names + name : content.index(0, names + name)]
                if bytes(text) in _TOO_NEW:
                    struct.pack_into("<H", content, version + 4, flags | _WEAK)
                    found += 1
                version += step
            if not following:
                break
            library += following
    return found


def files(directory: Path, names: Sequence[str]) -> None:
    """Write the models' files."""
    for name in names:
        MODELS[name]().write(directory / f"{name}.gguf")


_COMMANDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "files": lambda args: files(args.path, args.models.split(",")),
    "record": lambda args: record(args.path, args.models.split(",")),
    "check": lambda args: check(args.path, args.models.split(",")),
    "architectures": lambda args: architectures(args.path, args.files),
    "prepare": lambda args: prepare(args.path),
}


def main() -> None:
    """Run a command of this tool."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("command", choices=tuple(_COMMANDS))
    parser.add_argument("path", type=Path, help="a directory, or the table")
    parser.add_argument("--files", type=Path, help="the directory of test-llama-archs")
    parser.add_argument("--models", default=",".join(MODELS), help="names, with commas")
    args = parser.parse_args()
    _COMMANDS[args.command](args)


if __name__ == "__main__":
    main()
