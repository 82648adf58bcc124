"""GGUF headers written by the `gguf` package: the tensors of each architecture with the shapes that
llama.cpp loads.

The data of the tensors is not written: a file is cut after its header and extended by a hole of the
right size.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

# {name of a tensor: its dimensions, the fastest first}.
Shapes = dict[str, tuple[int, ...]]


def write_gguf(
    path: Path,
    architecture: str,
    keys: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    types: Mapping[str, gguf.GGMLQuantizationType] | None = None,
    *,
    tokens: int | None = None,
    data: bool = True,
) -> Path:
    """Write a file with these keys and tensors; keys without a dot at the start are those of the
    architecture.
    """
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in keys.items():
        name = (
            key if key.startswith(("general.", "split.", "tokenizer.")) else f"{architecture}.{key}"
        )
        add_key(writer, name, value)
    if tokens is not None:
        writer.add_token_list([f"t{i}" for i in range(tokens)])
    for name, shape in shapes.items():
        kind = (types or {}).get(name, gguf.GGMLQuantizationType.F16)
        add_tensor(writer, name, shape, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    if data:
        extend(path)
    return path


def add_key(writer: gguf.GGUFWriter, name: str, value: Any) -> None:
    """Add a key in the type that its value has."""
    if isinstance(value, bool):
        writer.add_bool(name, value)
    elif isinstance(value, int):
        writer.add_uint32(name, value)
    elif isinstance(value, float):
        writer.add_float32(name, value)
    elif isinstance(value, str):
        writer.add_string(name, value)
    else:
        writer.add_array(name, list(value))


def add_tensor(
    writer: gguf.GGUFWriter, name: str, shape: tuple[int, ...], kind: gguf.GGMLQuantizationType
) -> int:
    """Add a tensor without its data, and return its bytes."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    row_bytes = shape[0] // block * size
    tensor_bytes = math.prod(shape[1:]) * row_bytes
    # the shape of the bytes, as raw_dtype expects it
    rows = (*reversed(shape[1:]), row_bytes)
    writer.add_tensor_info(name, rows, np.dtype(np.uint8), tensor_bytes, raw_dtype=kind)
    return tensor_bytes


def extend(path: Path) -> None:
    """Extend a header by as many bytes as its tensors have."""
    end = sum_of_data(path)
    with path.open("r+b") as file:
        file.truncate(end)


def sum_of_data(path: Path) -> int:
    """Return the length of the whole file, as the gguf package's own offsets say."""
    from attncalc.config.folder import LocalFile
    from attncalc.config.gguf.header import read_header

    source = LocalFile(path)
    source.size = None
    header = read_header(source)
    return max(
        (header.data_start + t.offset + t.size for t in header.tensors), default=header.data_start
    )


# A small model of any architecture. Sizes are all different, so that two of them are not mixed up.

D, HEADS, KV_HEADS, D_HEAD, D_FF, VOCAB, CONTEXT = 96, 8, 2, 16, 160, 320, 512
EXPERTS, USED, D_EXPERT, D_SHARED = 6, 2, 40, 56
LATENT, Q_LATENT, NOPE, ROPE, D_V = 24, 28, 10, 6, 12
D_INNER, D_STATE, D_CONV, DT_RANK, GROUPS, SSM_HEADS = 2 * D, 8, 4, 14, 2, 12
DELTA_K_HEADS, DELTA_V_HEADS, DELTA_HEAD = 2, 4, 8
LAYERS = 4

# (architecture, norm) whose name in files does not end in '.weight' (create_tensor in llama.cpp's
# src/models/).
WITHOUT_SUFFIX = (
    ("falcon-h1", "ffn_norm"),
    ("plamo3", "post_attention_norm"),
    ("plamo3", "post_ffw_norm"),
)
_T = gguf.MODEL_TENSOR
# {architecture: the kind of its recurrent layers}.
RECURRENT = {
    "mamba": "mamba",
    "mamba2": "mamba2",
    "jamba": "mamba",
    "granitehybrid": "mamba2",
    "falcon-h1": "mamba2",
} | {
    "nemotron_h": "mamba2",
    "nemotron_h_moe": "mamba2",
    "qwen3next": "delta",
    "qwen35": "delta",
    "qwen35moe": "delta",
    "kimi-linear": "kimi_delta",
    "lfm2": "short_convolution",
    "lfm2moe": "short_convolution",
}
# The tensors of a recurrent layer, as load_arch_tensors in llama.cpp's src/models/*.cpp has them.
_SSM: dict[str, Shapes] = {
    "mamba": {
        "ssm_in.weight": (D, 2 * D_INNER),
        "ssm_conv1d.weight": (D_CONV, D_INNER),
        "ssm_conv1d.bias": (D_INNER,),
        "ssm_x.weight": (D_INNER, DT_RANK + 2 * D_STATE),
        "ssm_dt.weight": (DT_RANK, D_INNER),
        "ssm_dt.bias": (D_INNER,),
        "ssm_a": (D_STATE, D_INNER),
        "ssm_d": (D_INNER,),
        "ssm_out.weight": (D_INNER, D),
    },
    "mamba2": {
        "ssm_in.weight": (D, 2 * D_INNER + 2 * GROUPS * D_STATE + SSM_HEADS),
        "ssm_conv1d.weight": (D_CONV, D_INNER + 2 * GROUPS * D_STATE),
        "ssm_conv1d.bias": (D_INNER + 2 * GROUPS * D_STATE,),
        "ssm_dt.bias": (SSM_HEADS,),
        "ssm_a": (1, SSM_HEADS),
        "ssm_d": (1, SSM_HEADS),
        "ssm_norm.weight": (D_INNER // GROUPS, GROUPS),
        "ssm_out.weight": (D_INNER, D),
    },
    "delta": {
        "ssm_conv1d.weight": (D_CONV, (2 * DELTA_K_HEADS + DELTA_V_HEADS) * DELTA_HEAD),
        "attn_qkv.weight": (D, (2 * DELTA_K_HEADS + DELTA_V_HEADS) * DELTA_HEAD),
        "attn_gate.weight": (D, DELTA_V_HEADS * DELTA_HEAD),
        "ssm_dt.bias": (DELTA_V_HEADS,),
        "ssm_a": (DELTA_V_HEADS,),
        "ssm_norm.weight": (DELTA_HEAD,),
        "ssm_out.weight": (DELTA_V_HEADS * DELTA_HEAD, D),
    },
    "kimi_delta": {
        **{f"ssm_conv1d_{letter}.weight": (D_CONV, 1, HEADS * D_HEAD) for letter in "qkv"},
        **{f"attn_{letter}.weight": (D, HEADS * D_HEAD) for letter in "qkv"},
        "ssm_f_a.weight": (D, D_HEAD),
        "ssm_f_b.weight": (D_HEAD, HEADS * D_HEAD),
        "ssm_g_a.weight": (D, D_HEAD),
        "ssm_g_b.weight": (D_HEAD, HEADS * D_HEAD),
        "ssm_beta.weight": (D, HEADS),
        "ssm_a": (1, HEADS),
        "ssm_dt.bias": (HEADS * D_HEAD,),
        "ssm_norm.weight": (D_HEAD,),
        "attn_output.weight": (HEADS * D_HEAD, D),
    },
    "short_convolution": {
        "shortconv.conv.weight": (3, D),
        "shortconv.in_proj.weight": (D, 3 * D),
        "shortconv.out_proj.weight": (D, D),
    },
}


class SmallModel:
    """A file of an architecture, by the tensors that the `gguf` package lists for it.

    Attributes:
        name: The architecture.
        recurrent: Its recurrent kind, if it has one.
        latent: Whether its attention is latent.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        number = next(number for number, known in gguf.MODEL_ARCH_NAMES.items() if known == name)
        self.listed = set(gguf.MODEL_TENSORS[number])
        self.recurrent = RECURRENT.get(name)
        self.latent = _T.ATTN_KV_A_MQA in self.listed

    def lists(self, *tensors: gguf.MODEL_TENSOR) -> bool:
        return any(tensor in self.listed for tensor in tensors)

    def has_attention(self, layer: int) -> bool:
        """Whether a layer has attention: in hybrids every second one; every fourth is full in
        Qwen's.
        """
        if self.recurrent is None or self.name == "falcon-h1":
            return True
        if self.name in ("mamba", "mamba2"):
            return False
        return layer == LAYERS - 1 if self.recurrent == "delta" else layer % 2 == 1

    def has_mlp(self, layer: int) -> bool:
        """Whether a layer has an MLP: Nemotron-H has either that, or Mamba, or attention."""
        return self.lists(_T.FFN_UP, _T.FFN_UP_EXP, _T.FFN_GATE_UP_EXP) and not (
            self.name.startswith("nemotron_h") and layer < 2
        )

    def keys(self) -> dict[str, Any]:
        kv_heads: Any = KV_HEADS
        if (
            self.recurrent
            and self.name not in ("falcon-h1", "mamba", "mamba2")
            and self.recurrent != "delta"
        ):
            kv_heads = [
                KV_HEADS if self.has_attention(i) and not self._without_mixer(i) else 0
                for i in range(LAYERS)
            ]
        keys = {
            "general.name": f"A small {self.name}",
            "block_count": LAYERS,
            "context_length": CONTEXT,
            "embedding_length": D,
            "feed_forward_length": D_FF,
            "attention.head_count": HEADS,
            "attention.head_count_kv": 1 if self.latent and not self.recurrent else kv_heads,
        }
        if self.lists(_T.FFN_DOWN_EXP):
            keys |= {
                "expert_count": EXPERTS,
                "expert_used_count": USED,
                "expert_feed_forward_length": D_EXPERT,
            }
        if self.latent:
            keys |= {"attention.kv_lora_rank": LATENT, "attention.key_length_mla": NOPE + ROPE}
            keys |= {"attention.key_length": LATENT + ROPE, "attention.value_length": LATENT}
        if self.recurrent and self.recurrent != "short_convolution":
            keys |= {
                "ssm.conv_kernel": D_CONV,
                "ssm.state_size": D_STATE,
                "ssm.inner_size": D_INNER,
            }
            keys |= {
                "ssm.group_count": GROUPS,
                "ssm.time_step_rank": SSM_HEADS if self.recurrent != "mamba" else DT_RANK,
            }
        if self.recurrent in ("delta", "kimi_delta"):
            keys |= {"ssm.inner_size": DELTA_V_HEADS * DELTA_HEAD, "ssm.state_size": DELTA_HEAD}
            keys |= {"ssm.group_count": DELTA_K_HEADS, "ssm.time_step_rank": DELTA_V_HEADS}
        if self.name in ("gemma4", "mimo2", "step35"):
            keys |= {"attention.sliding_window_pattern": [i % 2 == 0 for i in range(LAYERS)]}
        if self.name in ("gemma3n", "gemma4", "mimo2", "step35", "gemma3", "cohere2", "gpt-oss"):
            keys |= {"attention.sliding_window": 64}
        if self.lists(_T.INDEXER_ATTN_K):
            keys |= {
                "attention.indexer.top_k": 32,
                "attention.indexer.head_count": 4,
                "attention.indexer.key_length": 20,
            }
        return keys

    def _without_mixer(self, layer: int) -> bool:
        return self.name.startswith("nemotron_h") and layer >= 2

    def shapes(self) -> Shapes:
        shapes: Shapes = {"token_embd.weight": (D, VOCAB)}
        for tensor, name, shape in (
            (_T.OUTPUT_NORM, "output_norm", (D,)),
            (_T.OUTPUT, "output", (D, VOCAB)),
            (_T.TOKEN_EMBD_NORM, "token_embd_norm", (D,)),
            (_T.TOKEN_TYPES, "token_types", (D, 2)),
            (_T.POS_EMBD, "position_embd", (D, CONTEXT)),
            (_T.ROPE_FREQS, "rope_freqs", (D_HEAD // 2,)),
            (_T.PER_LAYER_TOKEN_EMBD, "per_layer_token_embd", (LAYERS * 12, VOCAB)),
            (_T.PER_LAYER_MODEL_PROJ, "per_layer_model_proj", (D, LAYERS * 12)),
            (_T.PER_LAYER_PROJ_NORM, "per_layer_proj_norm", (12,)),
            (_T.ALTUP_PROJ, "altup_proj", (D, D, 3)),
            (_T.ALTUP_UNEMBD_PROJ, "altup_unembd_proj", (D, D, 3)),
        ):
            if tensor in self.listed:
                shapes[f"{name}.weight"] = shape
        for i in range(LAYERS):
            shapes |= {f"blk.{i}.{name}": shape for name, shape in self.block(i).items()}
        return shapes

    def block(self, i: int) -> Shapes:
        tensors: Shapes = {}
        for tensor, name in (
            (_T.ATTN_NORM, "attn_norm"),
            (_T.ATTN_NORM_2, "attn_norm_2"),
            (_T.ATTN_POST_NORM, "post_attention_norm"),
            (_T.ATTN_OUT_NORM, "attn_output_norm"),
            (_T.FFN_NORM, "ffn_norm"),
            (_T.FFN_PRE_NORM, "ffn_norm"),
            (_T.FFN_POST_NORM, "post_ffw_norm"),
            (_T.LAYER_OUT_NORM, "layer_output_norm"),
            (_T.PER_LAYER_POST_NORM, "post_norm"),
            (_T.LAUREL_POST_NORM, "laurel_post_norm"),
            (_T.ALTUP_ROUTER_NORM, "altup_router_norm"),
        ):
            if tensor in self.listed:
                tensors[name if (self.name, name) in WITHOUT_SUFFIX else f"{name}.weight"] = (D,)
        if self.lists(_T.LAUREL_L):
            tensors |= {
                "laurel_l.weight": (D, 18),
                "laurel_r.weight": (18, D),
                "altup_router.weight": (D, 4),
            }
            tensors |= {"altup_correct_coef.weight": (4, 4), "altup_predict_coef.weight": (4, 16)}
            tensors |= {"altup_correct_scale.weight": (D,)}
        if self.lists(_T.PER_LAYER_INP_GATE):
            tensors |= {"inp_gate.weight": (D, 12), "proj.weight": (12, D)}
        if not self._without_mixer(i):
            recurrent = not self.has_attention(i) or self.name == "falcon-h1"
            tensors |= self._attention() if self.has_attention(i) else {}
            tensors |= self._recurrent() if recurrent and self.recurrent else {}
        if self.has_mlp(i):
            tensors |= self._mlp(i)
        return tensors

    def _recurrent(self) -> Shapes:
        tensors: Shapes = {**_SSM[self.recurrent or ""]}
        if self.recurrent == "mamba" and self.lists(_T.SSM_DT_NORM):
            tensors |= {
                "ssm_dt_norm.weight": (DT_RANK,),
                "ssm_b_norm.weight": (D_STATE,),
                "ssm_c_norm.weight": (D_STATE,),
            }
        if self.recurrent == "delta":
            if self.lists(_T.SSM_BETA_ALPHA):
                return tensors | {"ssm_ba.weight": (D, 2 * DELTA_V_HEADS)}
            return tensors | {
                "ssm_alpha.weight": (D, DELTA_V_HEADS),
                "ssm_beta.weight": (D, DELTA_V_HEADS),
            }
        return tensors

    def _attention(self) -> Shapes:
        if self.latent:
            tensors = {
                "attn_kv_a_mqa.weight": (D, LATENT + ROPE),
                "attn_kv_a_norm.weight": (LATENT,),
                "attn_k_b.weight": (NOPE, LATENT, HEADS),
                "attn_v_b.weight": (LATENT, D_V, HEADS),
                "attn_output.weight": (HEADS * D_V, D),
            }
            if self.lists(_T.ATTN_Q_A):
                tensors |= {"attn_q_a.weight": (D, Q_LATENT), "attn_q_a_norm.weight": (Q_LATENT,)}
                tensors |= {"attn_q_b.weight": (Q_LATENT, HEADS * (NOPE + ROPE))}
            else:
                tensors |= {"attn_q.weight": (D, HEADS * (NOPE + ROPE))}
            if self.lists(_T.INDEXER_ATTN_K):
                tensors |= {"indexer.attn_k.weight": (D, 20), "indexer.proj.weight": (D, 4)}
                tensors |= {"indexer.attn_q_b.weight": (Q_LATENT, 80)}
                tensors |= {"indexer.k_norm.weight": (20,), "indexer.k_norm.bias": (20,)}
            return tensors
        queries, kv = HEADS * D_HEAD, KV_HEADS * D_HEAD
        gated = 2 if self.recurrent == "delta" else 1
        tensors = {"attn_output.weight": (queries, D)}
        if self.lists(_T.ATTN_Q):
            tensors |= {
                "attn_q.weight": (D, gated * queries),
                "attn_k.weight": (D, kv),
                "attn_v.weight": (D, kv),
            }
        else:
            tensors |= {"attn_qkv.weight": (D, queries + 2 * kv)}
        if self.lists(_T.ATTN_Q_NORM):
            tensors |= {"attn_q_norm.weight": (D_HEAD,), "attn_k_norm.weight": (D_HEAD,)}
        if self.lists(_T.ATTN_SINKS):
            tensors |= {"attn_sinks.weight": (HEADS,)}
        if self.lists(_T.ATTN_GATE) and self.recurrent != "delta":
            tensors |= {"attn_gate.weight": (D, HEADS if self.name == "step35" else queries)}
        return tensors

    def _mlp(self, i: int) -> Shapes:
        experts = self.lists(_T.FFN_DOWN_EXP)
        both = experts and self.name in ("gemma4", "arctic")
        tensors: Shapes = {}
        if not experts or both or (i == 0 and self.lists(_T.FFN_UP)):
            tensors |= self._matrices("", D_FF, gate=self.lists(_T.FFN_GATE))
        if not experts or (i == 0 and self.lists(_T.FFN_UP) and not both):
            return tensors
        gate = self.lists(_T.FFN_GATE_EXP) or not self.lists(_T.FFN_UP_EXP)
        names = ["up", "gate"] if gate else ["up"]
        tensors |= {f"ffn_{name}_exps.weight": (D, D_EXPERT, EXPERTS) for name in names}
        tensors |= {
            "ffn_down_exps.weight": (D_EXPERT, D, EXPERTS),
            "ffn_gate_inp.weight": (D, EXPERTS),
        }
        if self.lists(_T.FFN_EXP_PROBS_B):
            tensors |= {"exp_probs_b.bias": (EXPERTS,)}
        if self.lists(_T.FFN_UP_SHEXP):
            tensors |= self._matrices("_shexp", D_SHARED, gate=self.lists(_T.FFN_GATE_SHEXP))
        if self.lists(_T.FFN_GATE_INP_SHEXP):
            tensors |= {"ffn_gate_inp_shexp.weight": (D,)}
        return tensors

    def _matrices(self, suffix: str, width: int, *, gate: bool) -> Shapes:
        names = ["up", "gate"] if gate else ["up"]
        tensors: Shapes = {f"ffn_{name}{suffix}.weight": (D, width) for name in names}
        return tensors | {f"ffn_down{suffix}.weight": (width, D)}


class Bytes:
    """A file in memory that records what was read."""

    def __init__(self, content: bytes, size: int | None = None) -> None:
        self.name, self.content, self.size = "memory.gguf", content, size
        self.reads: list[tuple[int, int]] = []

    def read(self, start: int, end: int) -> bytes:
        self.reads.append((start, end))
        return self.content[start:end]
