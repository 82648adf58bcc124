"""A block of a GGUF file becomes the keys of a layer, which contain every element of the block
once.

The shapes of tensors are those of create_tensor in llama.cpp's src/models/*.cpp; the fastest
dimension is first.
"""

import math
from typing import Any, NamedTuple

import pytest
from asking import refusal
from tables import each

from attncalc import AttncalcError
from attncalc.config.gguf.architectures import ARCHITECTURES, unsupported_reason
from attncalc.config.gguf.block import Block, BlockFacts
from attncalc.config.gguf.header import ArrayLength, GgufHeader, GgufTensor
from attncalc.config.gguf.keys import LARGEST, Keys
from attncalc.config.gguf.layers import read_block
from attncalc.config.gguf.model import gguf_document
from attncalc.ggml import TYPES_BY_NAME
from attncalc.model import MAX_LAYERS

# {name of a tensor without 'blk.N.', and without '.weight': its dimensions}.
Tensors = dict[str, tuple[int, ...]]
# Width of the model; attention has 4 heads of 16 and 2 KV heads.
D = 64
QKV: Tensors = {"attn_q": (D, 64), "attn_k": (D, 32), "attn_v": (D, 32), "attn_output": (64, D)}
MLP: Tensors = {"ffn_gate": (D, 100), "ffn_up": (D, 100), "ffn_down": (100, D)}
EXPERTS: Tensors = {
    "ffn_gate_exps": (D, 20, 6),
    "ffn_up_exps": (D, 20, 6),
    "ffn_down_exps": (20, D, 6),
    "ffn_gate_inp": (D, 6),
}
LATENT: Tensors = {
    "attn_kv_a_mqa": (D, 30),
    "attn_kv_a_norm": (24,),
    "attn_k_b": (10, 24, 4),
    "attn_v_b": (24, 12, 4),
    "attn_q": (D, 4 * (10 + 6)),
    "attn_output": (4 * 12, D),
}
INDEXER: Tensors = {
    "indexer.attn_k": (D, 20),
    "indexer.proj": (D, 3),
    "indexer.attn_q_b": (D, 60),
    "indexer.k_norm": (20,),
    "indexer.k_norm.bias": (20,),
}
MAMBA: Tensors = {
    "ssm_in": (D, 2 * 48),
    "ssm_conv1d": (4, 48),
    "ssm_x": (48, 5 + 2 * 8),
    "ssm_dt": (5, 48),
    "ssm_dt.bias": (48,),
    "ssm_a": (8, 48),
    "ssm_d": (48,),
    "ssm_out": (48, D),
}
# 2 groups of states of 8: 48 + 2 * 2 * 8 channels
MAMBA_2: Tensors = {
    "ssm_in": (D, 48 + 80 + 6),
    "ssm_conv1d": (4, 80),
    "ssm_dt.bias": (6,),
    "ssm_a": (1, 6),
    "ssm_d": (1, 6),
    "ssm_out": (48, D),
}
# 2 key heads and 4 value heads of 8
DELTA: Tensors = {
    "ssm_conv1d": (4, 2 * 16 + 32),
    "attn_qkv": (D, 2 * 16 + 32),
    "attn_gate": (D, 32),
    "ssm_alpha": (D, 4),
    "ssm_beta": (D, 4),
    "ssm_dt.bias": (4,),
    "ssm_a": (4,),
    "ssm_norm": (8,),
    "ssm_out": (32, D),
}
# 4 heads of 8; the gates have a rank of 7
KIMI: Tensors = {
    **{f"ssm_conv1d_{letter}": (3, 1, 32) for letter in "qkv"},
    **{f"attn_{letter}": (D, 32) for letter in "qkv"},
    "ssm_f_a": (D, 7),
    "ssm_f_b": (7, 32),
    "ssm_g_a": (D, 7),
    "ssm_g_b": (7, 32),
    "ssm_beta": (D, 4),
    "ssm_a": (1, 4),
    "ssm_dt.bias": (32,),
    "ssm_norm": (8,),
    "attn_output": (32, D),
}
CONVOLUTION: Tensors = {
    "shortconv.conv": (3, 48),
    "shortconv.in_proj": (D, 3 * 48),
    "shortconv.out_proj": (48, D),
}
FACTS = BlockFacts(
    n_heads=4, n_kv_heads=2, window=None, chunked=False, shares_kv=False, experts_used=2
)
F16 = TYPES_BY_NAME["F16"]
HEADS = {"n_heads": 4, "n_kv_heads": 2}
DENSE = {"mlp": "gated", "d_ff": 100}
SPARSE = {"mlp": "gated", "d_ff": 20, "n_experts": 6, "n_experts_per_token": 2}
OF_LATENT = {
    "attention": "latent",
    "n_heads": 4,
    "kv_lora_rank": 24,
    "d_nope": 10,
    "d_rope": 6,
    "d_v": 12,
}
OF_MAMBA = {"attention": "mamba", "d_inner": 48, "d_state": 8, "d_conv": 4, "dt_rank": 5}
OF_MAMBA_2 = {
    "attention": "mamba2",
    "n_heads": 6,
    "d_head": 8,
    "d_state": 8,
    "d_conv": 4,
    "n_groups": 2,
}
OF_DELTA = {"attention": "delta", "n_heads": 4, "n_k_heads": 2, "d_head": 8, "d_v": 8, "d_conv": 4}
OF_KIMI = {
    "attention": "delta",
    "n_heads": 4,
    "d_head": 8,
    "d_v": 8,
    "d_conv": 3,
    "channel_decay": True,
}


def named(name: str) -> str:
    """Return the name of a tensor in a file; "!" marks one whose name does not end with
    '.weight'.
    """
    if name.endswith("!"):
        return name[:-1]
    return name if name.endswith((".bias", ".scale", "ssm_a", "ssm_d")) else f"{name}.weight"


def keys_with(**metadata: Any) -> Keys:
    given = {f"llama.{key}": value for key, value in metadata.items()}
    return Keys(GgufHeader("m.gguf", 3, {"general.architecture": "llama", **given}, (), 0))


def block(tensors: Tensors, metadata: dict[str, Any] | None = None, **facts: Any) -> Block:
    stored = {
        named(name): GgufTensor(named(name), shape, F16, 0) for name, shape in tensors.items()
    }
    return Block(3, stored, keys_with(**(metadata or {})), D, FACTS._replace(**facts))


def without(tensors: Tensors, *names: str) -> Tensors:
    return {name: shape for name, shape in tensors.items() if name not in names}


NOTHING: dict[str, Any] = {}


class Case(NamedTuple):
    """A block: its tensors, what they become, keys of the file, and facts that differ from
    FACTS.
    """

    tensors: Tensors
    expected: Any
    metadata: dict[str, Any] = NOTHING
    facts: dict[str, Any] = NOTHING

    def read(self) -> list[dict[str, Any]]:
        """Return the keys of each layer."""
        return [keys for _, keys in read_block(block(self.tensors, self.metadata, **self.facts))]


def grouped(
    tensors: Tensors | None = None, metadata: Any = NOTHING, facts: Any = NOTHING, **keys: Any
) -> Case:
    """Grouped attention of heads of 16 and an MLP, with these tensors and keys too."""
    return Case(
        {**QKV, **(tensors or {}), **MLP}, {**HEADS, "d_head": 16, **DENSE, **keys}, metadata, facts
    )


def dense(tensors: Tensors, facts: Any = NOTHING, **keys: Any) -> Case:
    return Case({**MLP, **tensors}, {"attention": "none", **DENSE, **keys}, facts=facts)


def sparse(tensors: Tensors, **keys: Any) -> Case:
    return Case({**EXPERTS, **tensors}, {"attention": "none", **SPARSE, **keys})


# {case: a block and the keys of its layer}.
READ: dict[str, Case] = {
    # grouped attention
    "grouped": grouped(),
    "an output projection of linear layers": dense(
        {"attn_output": (64, D)}, extra_matrices={"attn_output": [64, D]}, facts={"n_kv_heads": 0}
    ),
    "one head": Case(
        {"attn_q": (D, 16), "attn_k": (D, 16), "attn_v": (D, 16), "attn_output": (16, D), **MLP},
        {"n_heads": 1, "n_kv_heads": 1, "d_head": 16, **DENSE},
        facts={"n_heads": 1, "n_kv_heads": 1},
    ),
    # 6 heads of 20, and V of 2 heads of 16
    "one matrix with wide keys": Case(
        {"attn_qkv": (D, 6 * 20 + 32), "attn_qkv.bias": (152,), "attn_output": (64, D), **MLP},
        {**HEADS, "d_head": 20, "d_v": 16, "fused": True, "bias": ["q", "k", "v"], **DENSE},
    ),
    "V is K": Case(
        {**without(QKV, "attn_v"), **MLP}, {**HEADS, "d_head": 16, "v_from_k": True, **DENSE}
    ),
    "a gate in the matrix of queries": grouped({"attn_q": (D, 128)}, gate=True),
    "a gate per element": grouped({"attn_gate": (D, 64)}, gate=True),
    "a gate per head": grouped({"attn_gate": (D, 4)}, gate="head"),
    "biases": grouped(
        {"attn_q.bias": (64,), "attn_v.bias": (32,), "attn_output.bias": (D,)}, bias=["q", "v", "o"]
    ),
    "sinks": grouped({"attn_sinks": (4,)}, sinks=True),
    "norms per head": grouped({"attn_q_norm": (16,), "attn_k_norm": (16,)}, qk_norm="head"),
    "norms of all heads": grouped({"attn_q_norm": (64,), "attn_k_norm": (32,)}, qk_norm="full"),
    "norms of all heads and of more": grouped(
        {"attn_q_norm": (64,), "attn_k_norm": (33,)}, extra_vectors=97
    ),
    "norms of another kind": grouped(
        {"attn_q_norm": (64,), "attn_k_norm": (16,), "attn_q_norm.bias": (5,)}, extra_vectors=85
    ),
    **{
        f"norms of {q} and {k} elements": grouped(
            {**({"attn_q_norm": (q,)} if q else {}), "attn_k_norm": (k,)}, extra_vectors=q + k
        )
        for q, k in ((0, 16), (8, 16), (16, 8), (16, 32), (48, 32), (80, 32))
    },
    "only keys with a norm": grouped({"attn_k_norm": (32,)}, extra_vectors=32),
    "a window": grouped(window=9, facts={"window": 9}),
    "a chunk": grouped(chunk=9, facts={"window": 9, "chunked": True}),
    "widths of windows in a layer without": grouped(
        metadata={"attention.key_length_swa": 99, "attention.key_length": 16}
    ),
    "the cache of an earlier layer": Case(
        {
            "attn_q": (D, 64),
            "attn_q.bias": (64,),
            "attn_q_norm": (16,),
            "attn_output": (64, D),
            **MLP,
        },
        {**HEADS, "d_head": 16, "shares_kv": True, "bias": ["q"], "qk_norm": "head", **DENSE},
        metadata={"attention.key_length": 99},
        facts={"shares_kv": True},
    ),
    # 2 * 64 * 32 + 16
    "the cache of an earlier layer, and matrices that nothing uses": grouped(
        {"attn_q_norm": (16,), "attn_k_norm": (16,)},
        shares_kv=True,
        qk_norm="head",
        extra_vectors=4112,
        facts={"shares_kv": True},
    ),
    "the cache of an earlier layer, norms of all heads": Case(
        {"attn_q": (D, 64), "attn_q_norm": (64,), "attn_output": (64, D), **MLP},
        {**HEADS, "d_head": 16, "shares_kv": True, "qk_norm": "full", **DENSE},
        facts={"shares_kv": True},
    ),
    # latent attention
    "latent": Case({**LATENT, **MLP}, {**OF_LATENT, **DENSE}),
    # before llama.cpp stored latents, one matrix expanded them: 4 heads of 10 and 12
    "latent of an old file": Case(
        {**without(LATENT, "attn_k_b", "attn_v_b"), "attn_kv_b": (24, 4 * (10 + 12)), **MLP},
        {**OF_LATENT, "caches_heads": True, **DENSE},
        metadata={"attention.key_length": 16, "attention.value_length": 12},
    ),
    "no rotary part": Case(
        {**LATENT, "attn_kv_a_mqa": (D, 24), "attn_q": (D, 40), **MLP},
        {**OF_LATENT, "d_rope": 0, **DENSE},
    ),
    "a latent in both forms": Case(
        {**LATENT, "attn_kv_b": (24, 88), **MLP}, {**OF_LATENT, "extra_vectors": 2112, **DENSE}
    ),
    # its queries of 3 heads of 20 are made of the latent of 28
    "an indexer with latent queries": Case(
        {
            **without(LATENT, "attn_q"),
            "attn_q_a": (D, 28),
            "attn_q_a_norm": (28,),
            "attn_q_b": (28, 64),
            **INDEXER,
            "indexer.attn_q_b": (28, 60),
            **MLP,
        },
        {
            **OF_LATENT,
            "q_lora_rank": 28,
            "index_topk": 5,
            "index_n_heads": 3,
            "index_head_dim": 20,
            **DENSE,
        },
        metadata={"attention.indexer.top_k": 5},
    ),
    "an earlier layer's indexer": Case(
        {**LATENT, **MLP},
        {**OF_LATENT, "index_topk": 5, **DENSE},
        metadata={"attention.indexer.top_k": 5},
    ),
    # recurrent layers
    "Mamba": Case(MAMBA, {**OF_MAMBA, "mlp": "none"}),
    "Mamba with norms and a bias": Case(
        {
            **MAMBA,
            "ssm_conv1d.bias": (48,),
            "ssm_dt_norm": (5,),
            "ssm_b_norm": (8,),
            "ssm_c_norm": (8,),
            **MLP,
        },
        {**OF_MAMBA, "conv_bias": True, "dt_norms": True, **DENSE},
        metadata={"ssm.inner_size": 48, "ssm.state_size": 8, "ssm.conv_kernel": 4},
    ),
    "Mamba-2": Case(MAMBA_2, {**OF_MAMBA_2, "mlp": "none"}, metadata={"ssm.state_size": 8}),
    "Mamba-2 with a norm and a bias": Case(
        {**MAMBA_2, "ssm_conv1d.bias": (80,), "ssm_norm": (24, 2)},
        {**OF_MAMBA_2, "conv_bias": True, "inner_norm": True, "mlp": "none"},
        metadata={
            "ssm.state_size": 8,
            "ssm.inner_size": 48,
            "ssm.group_count": 2,
            "ssm.time_step_rank": 6,
        },
    ),
    "a delta net": Case({**DELTA, **MLP}, {**OF_DELTA, **DENSE}, metadata={"ssm.group_count": 2}),
    # all projections, and beta with alpha
    "a delta net in two matrices": Case(
        {
            **without(DELTA, "attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta", "ssm_dt.bias"),
            "ssm_in": (D, 2 * 16 + 2 * 32),
            "ssm_ba": (D, 8),
            "ssm_dt!": (4,),
            **MLP,
        },
        {**OF_DELTA, **DENSE},
        metadata={
            "ssm.group_count": 2,
            "ssm.inner_size": 32,
            "ssm.state_size": 8,
            "ssm.time_step_rank": 4,
        },
    ),
    "Kimi's delta attention": Case(
        {**KIMI, **MLP}, {**OF_KIMI, "gate_rank": 7, **DENSE}, metadata={"kda.head_dim": 8}
    ),
    "a short convolution": Case(
        {**CONVOLUTION, **MLP},
        {"attention": "short_convolution", "d_inner": 48, "d_conv": 3, **DENSE},
        metadata={"shortconv.l_cache": 3},
    ),
    # MLPs
    "only an MLP": dense({}),
    "neither": Case({}, {"attention": "none", "mlp": "none"}, facts={"n_kv_heads": 0}),
    "a plain MLP": Case(
        {"ffn_up": (D, 100), "ffn_down": (100, D)},
        {"attention": "none", "mlp": "plain", "d_ff": 100},
    ),
    "gate and up in one matrix": Case(
        {"ffn_up": (D, 200), "ffn_down": (100, D)}, {"attention": "none", **DENSE}
    ),
    "a plain MLP with biases": Case(
        {"ffn_up": (D, 100), "ffn_down": (100, D), "ffn_up.bias": (100,), "ffn_down.bias": (D,)},
        {"attention": "none", "mlp": "plain", "d_ff": 100, "mlp_bias": True},
    ),
    "an MLP with biases": dense(
        {"ffn_up.bias": (100,), "ffn_gate.bias": (100,), "ffn_down.bias": (D,)}, mlp_bias=True
    ),
    "an MLP with one bias": dense(
        {"ffn_down.bias": (D,)}, extra_vectors_per_layer={"ffn_down_bias": [D]}
    ),
    "experts": sparse({}),
    "experts in one matrix": Case(
        {**without(EXPERTS, "ffn_gate_exps", "ffn_up_exps"), "ffn_gate_up_exps": (D, 40, 6)},
        {"attention": "none", **SPARSE, "n_experts_per_token": 6},
        facts={"experts_used": 6},
    ),
    "plain experts": Case(
        without(EXPERTS, "ffn_gate_exps"),
        {"attention": "none", **SPARSE, "mlp": "plain", "n_experts_per_token": 1},
        metadata={"expert_count": 6},
        facts={"experts_used": 1},
    ),
    **{
        f"experts with {name}": sparse({name: (6,)}, router_bias=True)
        for name in ("ffn_gate_inp.bias", "exp_probs_b.bias", "exp_probs_b")
    },
    "experts with biases": sparse(
        {"ffn_up_exps.bias": (20, 6), "ffn_gate_exps.bias": (20, 6), "ffn_down_exps.bias": (D, 6)},
        mlp_bias=True,
    ),
    "shared experts with biases": sparse(
        {
            "ffn_up_shexp": (D, 60),
            "ffn_down_shexp": (30, D),
            "ffn_up_shexp.bias": (60,),
            "ffn_down_shexp.bias": (D,),
        },
        d_ff_shared=30,
        extra_vectors_per_layer={"ffn_up_shexp_bias": [60], "ffn_down_shexp_bias": [D]},
    ),
    "an MLP beside the experts": sparse(MLP, d_ff_shared=100),
    "experts of a latent": Case(
        {
            **{f"ffn_{name}_exps": (16, 20, 6) for name in ("gate", "up")},
            "ffn_down_exps": (20, 16, 6),
            "ffn_gate_inp": (D, 6),
            "ffn_latent_down": (D, 16),
            "ffn_latent_up": (16, D),
        },
        {
            "attention": "none",
            **SPARSE,
            "d_latent": 16,
            "extra_matrices": {"ffn_latent_down": [D, 16], "ffn_latent_up": [16, D]},
        },
    ),
    # other tensors
    "a wider norm": dense({"inner_norm": (100,)}, extra_vectors_per_layer={"norms": [100]}),
    "Gemma 3n's matrices": dense(
        {"laurel_l": (D, 18), "laurel_r": (18, D), "altup_correct_scale": (D,)},
        extra_matrices={"laurel_l": [D, 18], "laurel_r": [18, D]},
        extra_vectors_per_layer={"altup_correct_scale": [D]},
    ),
    "a scale": dense({"ffn_up.scale": (1,)}, extra_vectors_per_layer={"ffn_up_scale": [1]}),
}


@each("case", READ)
def test_tensors_of_a_block_become_its_keys(case: str) -> None:
    assert READ[case].read() == [{"norms_per_layer": 0, **READ[case].expected}]


@pytest.mark.parametrize(
    ("tensors", "facts", "names"),
    [
        ({**QKV, **MLP}, {}, ("full", "dense")),
        ({**QKV, **EXPERTS}, {"window": 9}, ("sliding", "sparse")),
        (QKV, {"window": 9, "chunked": True}, ("chunked", "none")),
        ({**QKV, **MLP}, {"shares_kv": True}, ("full_shared", "dense")),
        ({**QKV, **MLP}, {"shares_kv": True, "window": 9}, ("sliding_shared", "dense")),
        ({**LATENT, **MLP}, {}, ("full", "dense")),
        ({**MAMBA, **MLP}, {}, ("mamba", "dense")),
        (MLP, {}, ("none", "dense")),
    ],
)
def test_a_layer_is_called_by_its_attention_and_mlp(
    tensors: Tensors, facts: dict[str, Any], names: tuple[str, ...]
) -> None:
    assert [named for named, _ in read_block(block(tensors, **facts))] == [names]


@pytest.mark.parametrize("norms", [0, 1, 2, 3])
def test_attention_and_mamba_in_one_block_are_two_layers(norms: int) -> None:
    """Falcon-H1: the MLP, and all norms but the first, belong to the second one."""
    tensors = {**QKV, **MAMBA_2, **MLP, **{f"{i}_norm": (D,) for i in range(norms)}}
    first, second = read_block(block(tensors, {"ssm.state_size": 8}))
    assert first == (
        ("full", "dense"),
        {**HEADS, "d_head": 16, "mlp": "none", "norms_per_layer": min(1, norms)},
    )
    assert second == (
        ("mamba", "dense"),
        {**OF_MAMBA_2, **DENSE, "norms_per_layer": max(0, norms - 1)},
    )


def test_norms_and_their_biases_are_counted_apart() -> None:
    whole = block({"a_norm": (D,), "a_norm.bias": (D,), "b_norm": (D,), "c_norm.bias": (5,)})
    assert whole.take_norms() == 5
    assert (whole.norms, whole.norm_biases) == (2, 1)
    assert not whole.has("a_norm.weight")


@each(
    ("shape", "dimensions", "expected"),
    [
        ((4, 5), (4, 5), (4, 5)),
        ((4, 5, 1), (4, 5), (4, 5)),
        ((4, 5, 1, 1), (4, None), (4, 5)),
        ((4,), (4, 1, 1), (4, 1, 1)),
        ((1, 1), (1,), (1,)),
        ((1,), (1, 1), (1, 1)),
        ((), (1,), (1,)),  # a scalar
        ((4, 5), (5, 4), None),
        ((4, 5), (4,), None),
        ((4, 5, 2), (4, 5), None),
        ((4, 1, 5), (4, None), None),
        ((4,), (4, 2), None),
    ],
)
def test_dimensions_of_1_at_the_end_may_be_left_out(
    shape: tuple[int, ...], dimensions: tuple[int | None, ...], expected: tuple[int, ...] | None
) -> None:
    tensors = block({"x": shape})
    if expected is None:
        with pytest.raises(
            AttncalcError,
            match=f"block 3 has x.weight of {' x '.join(map(str, shape))}, and not of",
        ):
            tensors.take("x.weight", *dimensions)
        return
    assert tensors.take("x.weight", *dimensions) == expected
    with pytest.raises(AttncalcError, match=r"block 3 has no tensor x\.weight"):
        tensors.take("x.weight", *dimensions)


# {case: a block and what the error says}.
CONTRADICT: dict[str, Case] = {
    "no heads": Case(QKV, "its keys give it no heads", facts={"n_heads": 0}),
    "no KV heads": Case(QKV, "its keys give it no heads", facts={"n_kv_heads": 0}),
    "queries": Case({**QKV, "attn_q": (D, 65)}, "has attn_q.weight of width 65, and not of 64"),
    "queries of a half": Case(
        {**QKV, "attn_q": (D, 32)}, "has attn_q.weight of width 32, and not of 64"
    ),
    # 4 heads of 8
    "a gate of queries with wide keys": Case(
        {**QKV, "attn_q": (D, 160), "attn_k": (D, 40)},
        "has attn_q.weight of width 160, and not of 80",
    ),
    "a gate": Case(
        {**QKV, "attn_gate": (D, 5)}, "has attn_gate.weight of width 5, and not of 64 or 4"
    ),
    "sinks": Case({**QKV, "attn_sinks": (5,)}, "has attn_sinks.weight of 5, and not of 4"),
    "a width of 0": Case(
        QKV, "attention.key_length 16, but the key says 0", metadata={"attention.key_length": 0}
    ),
    "the width of windows": Case(
        QKV,
        "attention.value_length_swa 16, but the key says 17",
        metadata={"attention.value_length_swa": 17},
        facts={"window": 9},
    ),
    "the latent of queries": Case(
        {
            **without(LATENT, "attn_q"),
            "attn_q_a": (D, 28),
            "attn_q_a_norm": (28,),
            "attn_q_b": (28, 64),
        },
        "has tensors for attention.q_lora_rank 28, but the key says 99",
        metadata={"attention.q_lora_rank": 99},
    ),
    "a latent that nothing expands": Case(
        without(LATENT, "attn_k_b"), "has no tensor attn_k_b.weight, which expands the latent"
    ),
    "an old latent of other heads": Case(
        {**without(LATENT, "attn_k_b", "attn_v_b"), "attn_kv_b": (24, 80)},
        "has attn_kv_b.weight of 24 x 80, and not of 24 x 88",
        metadata={"attention.key_length": 16, "attention.value_length": 12},
    ),
    "a latent wider than its matrix": Case(
        {**LATENT, "attn_kv_a_mqa": (D, 23), "attn_q": (D, 36)},
        "has a latent of 24, wider than its matrix",
    ),
    **{
        f"the key {key}": Case(
            LATENT, f"has tensors for {key} {width}, but the key says 99", metadata={key: 99}
        )
        for key, width in (
            ("attention.kv_lora_rank", 24),
            ("attention.key_length_mla", 16),
            ("attention.value_length_mla", 12),
        )
    },
    **{
        f"the indexer's {key}": Case(
            {**LATENT, **INDEXER},
            f"attention.indexer.{key} {width}, but the key says 99",
            metadata={"attention.indexer.top_k": 5, f"attention.indexer.{key}": 99},
        )
        for key, width in (("head_count", 3), ("key_length", 20))
    },
    **{
        f"Mamba's {key}": Case(
            MAMBA, f"has tensors for {key} {width}, but the key says 99", metadata={key: 99}
        )
        for key, width in (("ssm.inner_size", 48), ("ssm.state_size", 8), ("ssm.conv_kernel", 4))
    },
    **{
        f"Mamba-2's {key}": Case(
            MAMBA_2,
            f"has tensors for {key} {width}, but the key says 99",
            metadata={"ssm.state_size": 8, key: 99},
        )
        for key, width in (
            ("ssm.inner_size", 48),
            ("ssm.conv_kernel", 4),
            ("ssm.group_count", 2),
            ("ssm.time_step_rank", 6),
        )
    },
    **{
        f"a delta net's {key}": Case(
            DELTA,
            f"has tensors for {key} {width}, but the key says 99",
            metadata={"ssm.group_count": 2, key: 99},
        )
        for key, width in (
            ("ssm.inner_size", 32),
            ("ssm.conv_kernel", 4),
            ("ssm.state_size", 8),
            ("ssm.time_step_rank", 4),
        )
    },
    **{
        f"a norm of Mamba-2 with {n} elements": Case(
            {**MAMBA_2, "ssm_norm": (n,)},
            f"has ssm_norm.weight of {n} elements, and not of 48",
            metadata={"ssm.state_size": 8},
        )
        for n in (24, 96)
    },
    "groups of Mamba-2": Case(
        MAMBA_2, "of width 32, which 14 heads do not divide", metadata={"ssm.state_size": 7}
    ),
    "no groups of a delta net": Case(DELTA, "llama.ssm.group_count is missing"),
    "Kimi's heads": Case(KIMI, "kda.head_dim 8, but the key says 9", metadata={"kda.head_dim": 9}),
    "a convolution": Case(
        CONVOLUTION, "shortconv.l_cache 3, but the key says 4", metadata={"shortconv.l_cache": 4}
    ),
    "an up projection": Case(
        {"ffn_up": (D, 150), "ffn_down": (100, D)}, "has ffn_up.weight of width 150, and not of 100"
    ),
    "no experts used": Case(
        EXPERTS, "has 6 experts, of which the keys use 0 per token", facts={"experts_used": 0}
    ),
    "one expert too many": Case(
        EXPERTS, "has 6 experts, of which the keys use 7 per token", facts={"experts_used": 7}
    ),
    "the number of experts": Case(
        EXPERTS, "expert_count 6, but the key says 7", metadata={"expert_count": 7}
    ),
    "values of experts": Case(
        {**EXPERTS, "exp_probs_b.bias": (6,), "exp_probs_b": (6,)},
        "has 12 values for the scores of 6 experts",
    ),
    "experts of a wider output": Case(
        {**EXPERTS, "ffn_down_exps": (20, 80, 6)},
        "has experts with outputs of width 80, and not of 64",
    ),
    "biases of experts": Case(
        {
            **EXPERTS,
            "ffn_up_exps.bias": (20, 6),
            "ffn_gate_exps.bias": (20, 6),
            "ffn_down_exps.bias": (20, 6),
        },
        "has ffn_down_exps.bias of 20 x 6, and not of 64 x 6",
    ),
    "one bias of experts": Case(
        {**EXPERTS, "ffn_up_exps.bias": (20, 6)}, "has the tensor ffn_up_exps.bias"
    ),
    "no tensors": Case({}, "has no tensors of attention and of an MLP"),
    "a matrix of one dimension": Case(
        {**MLP, "laurel_l": (D,)}, "has the tensor laurel_l.weight, which is not"
    ),
    "a matrix of three": Case(
        {**MLP, "laurel_l": (D, 2, 2)}, "has the tensor laurel_l.weight, which is not"
    ),
}


@each("case", CONTRADICT)
def test_tensors_that_contradict_are_an_error_of_the_block(case: str) -> None:
    error = refusal(CONTRADICT[case].read)
    assert CONTRADICT[case].expected in error.message
    assert error.message.startswith("m.gguf: ")


@pytest.mark.parametrize(
    ("width", "heads", "d_head"),
    [(12, 3, 4), (12, 12, 1), (12, 1, 12), (12, 5, None), (12, 0, None)],
)
def test_heads_divide_a_width(width: int, heads: int, d_head: int | None) -> None:
    if d_head is not None:
        found = block({}).divide(width, heads, "x")
        assert (found, type(found)) == (d_head, int)
    else:
        with pytest.raises(
            AttncalcError, match=f"has x of width 12, which {heads} heads do not divide"
        ):
            block({}).divide(width, heads, "x")


# Keys of a file


def test_keys_are_numbers_from_0_to_their_limit() -> None:
    keys = keys_with(zero=0, largest=LARGEST, true=True, listed=[1, 2, 3], flags=[True, 0])
    assert (keys.number("zero"), keys.number("largest"), keys.number("true")) == (0, LARGEST, 1)
    assert (keys.number("none"), keys.number("none", 7)) == (None, 7)
    assert (keys.per_layer("largest", 2), keys.per_layer("none", 2)) == ([LARGEST] * 2, None)
    assert (keys.per_layer("listed", 2), keys.per_layer("listed", 3)) == ([1, 2], [1, 2, 3])
    assert (keys.flags_per_layer("flags", 2), keys.flags_per_layer("zero", 2)) == (
        [True, False],
        None,
    )
    assert (keys.flag("true"), keys.flag("zero"), keys.flag("none")) == (True, False, None)


@pytest.mark.parametrize("value", [-1, LARGEST + 1, 1.0, "1", [1]])
def test_another_value_of_a_key_is_an_error(value: Any) -> None:
    with pytest.raises(
        AttncalcError, match=r"m\.gguf: the key llama\.x is .*, and not a number from 0 on"
    ):
        keys_with(x=value).number("x")


@pytest.mark.parametrize("name", ["", 5, None])
def test_a_file_names_its_architecture(name: Any) -> None:
    with pytest.raises(AttncalcError, match=r"m\.gguf: general\.architecture is missing"):
        Keys(GgufHeader("m.gguf", 3, {"general.architecture": name}, (), 0))


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, None),
        ({"llama.vocab_size": 7}, 7),
        ({"tokenizer.ggml.tokens": ArrayLength(9), "llama.vocab_size": 7}, 9),
        ({"tokenizer.ggml.tokens": [1, 2], "llama.vocab_size": 7}, 2),
        ({"tokenizer.ggml.tokens": [], "llama.vocab_size": 7}, 7),
    ],
)
def test_the_vocabulary_is_that_of_the_tokenizer(
    metadata: dict[str, Any], expected: int | None
) -> None:
    keys = Keys(GgufHeader("m.gguf", 3, {"general.architecture": "llama", **metadata}, (), 0))
    assert keys.vocabulary() == expected


def test_a_list_shorter_than_the_layers_is_an_error() -> None:
    with pytest.raises(AttncalcError, match=r"the key llama\.x has 2 values for 3 layers"):
        keys_with(x=[1, 2]).per_layer("x", 3)


# Windows


def test_architectures_have_the_windows_of_llama_cpp() -> None:
    """set_swa_pattern(period, dense_first) and n_swa in llama.cpp's src/models/*.cpp,
    load_arch_hparams.

    {architecture: (period, whether the first layer of a period is full, tokens without a key)}.
    """
    expected = {
        "gemma2": (2, False, 4096),
        "gemma3": (6, False, None),
        "gemma3n": (5, False, None),
        "gemma-embedding": (6, False, None),
        "modern-bert": (3, True, None),
        "cohere2": (4, False, None),
        "gpt-oss": (2, False, None),
        "olmo2": (4, False, None),
        "exaone4": (4, False, 4096),
        "exaone-moe": (4, False, 128),
        "llama4": (4, False, 8192),
        "smallthinker": (4, True, 4096),
        "afmoe": (4, False, None),
        "plamo3": (8, False, None),
        "lfm2": (0, False, None),
        "deepseek4": (0, False, None),
        **dict.fromkeys(("gemma4", "mimo2", "step35"), (None, False, None)),
        **dict.fromkeys(("granite_swa", "maple", "spark2_5"), (None, False, None)),
        **dict.fromkeys(("cohere2moe", "laguna"), (4, True, None)),
        **dict.fromkeys(("mellum", "muse-glimmer"), (4, False, None)),
    }
    found = {name: known.windows for name, known in ARCHITECTURES.items() if known.windows}
    assert {name: (w.period, w.dense_first, w.default) for name, w in found.items()} == expected
    assert [name for name, windows in found.items() if windows.fixed] == ["llama4", "smallthinker"]
    assert [name for name, windows in found.items() if windows.chunked] == ["llama4"]
    assert {name: w.layers for name, w in found.items() if w.layers} == {"exaone4": 64}
    assert {
        name: known.own_kv_layers for name, known in ARCHITECTURES.items() if known.own_kv_layers
    } == {"gemma3n": 20}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "plm",
            "is not supported: llama.cpp expands its latent before it stores it, which is not "
            "modelled",
        ),
        ("lama", "is not supported. Did you mean 'llama'?"),
        ("an-invention", "is not supported"),
    ],
)
def test_an_architecture_that_is_not_read_has_a_reason(name: str, reason: str) -> None:
    assert unsupported_reason(name).startswith(reason)
    assert ("Did you mean" in unsupported_reason(name)) is (name == "lama")


# Tensors outside the blocks


OUTER: Tensors = {"token_embd": (D, 40), "output_norm": (D,)}
KEYS = {
    "block_count": 2,
    "embedding_length": D,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
}


def whole(outer: Tensors, of_blocks: Tensors, keys: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the keys of a model of two equal blocks."""
    tensors = {
        **outer,
        **{f"blk.{i}.{name}": shape for i in range(2) for name, shape in of_blocks.items()},
    }
    stored = tuple(GgufTensor(named(name), shape, F16, 0) for name, shape in tensors.items())
    metadata = {
        f"llama.{key}": value
        for key, value in {**KEYS, **(keys or {})}.items()
        if value is not None
    }
    header = GgufHeader("m.gguf", 3, {"general.architecture": "llama", **metadata}, stored, 0)
    return gguf_document([header], "m")[0].data


BLOCK: Tensors = {**QKV, **MLP, "attn_norm": (D,), "ffn_norm": (D,)}
BIASES: Tensors = {"attn_norm.bias": (D,), "ffn_norm.bias": (D,)}


class Outside(NamedTuple):
    """Two equal blocks: the tensors outside, keys of the model (None for none), those of a block,
    keys of the file.
    """

    outer: Tensors
    expected: dict[str, Any]
    of_blocks: Tensors = BLOCK
    metadata: dict[str, Any] = NOTHING


OUTSIDE: dict[str, Outside] = {
    "norms": Outside(
        OUTER, {"norm": "rmsnorm", "norms_per_layer": 2, "final_norm": None, "extra_params": None}
    ),
    "no final norm": Outside(
        {"token_embd": (D, 40)}, {"final_norm": False, "embedding_norm": None}
    ),
    "a norm of the embedding": Outside(
        {**OUTER, "token_embd_norm": (D,)}, {"embedding_norm": True}
    ),
    "all norms with biases": Outside(
        {**OUTER, "output_norm.bias": (D,)},
        {"norm": "layernorm", "extra_params": None},
        of_blocks={**BLOCK, **BIASES},
    ),
    # 2 blocks of 2 biases of 64
    "biases of the blocks alone": Outside(
        OUTER,
        {"norm": "rmsnorm", "extra_params": {"norm_biases": [256]}},
        of_blocks={**BLOCK, **BIASES},
    ),
    "a bias of the final norm alone": Outside(
        {**OUTER, "output_norm.bias": (D,)},
        {"norm": "rmsnorm", "extra_params": {"output_norm_bias": [D]}},
    ),
    "no norms": Outside(
        {"token_embd": (D, 40)}, {"norm": "rmsnorm", "norms_per_layer": 0}, of_blocks={**QKV, **MLP}
    ),
    "a narrow embedding": Outside(
        {**OUTER, "token_embd": (48, 40)}, {"d_embedding": 48, "vocab_size": 40}
    ),
    "an embedding": Outside(
        OUTER, {"d_embedding": None, "vocab_size": 40, "tied_embeddings": True}
    ),
    "a head": Outside({**OUTER, "output": (D, 40)}, {"tied_embeddings": False, "head_bias": False}),
    "a head's bias": Outside(
        {**OUTER, "output": (D, 40), "output.bias": (40,)}, {"head_bias": True}
    ),
    "types of tokens": Outside({**OUTER, "token_types": (D, 2)}, {"token_types": 2}),
    "positions": Outside({**OUTER, "position_embd": (D, 9)}, {"learned_positions": 9}),
    "a context": Outside(OUTER, {"max_context": 9}, metadata={"context_length": 9}),
    "no context": Outside(OUTER, {"max_context": None}, metadata={"context_length": 0}),
    "no causal mask": Outside(
        OUTER, {"mask": "bidirectional", "head": "none"}, metadata={"attention.causal": False}
    ),
    "a causal mask": Outside(
        OUTER, {"mask": None, "head": None}, metadata={"attention.causal": True}
    ),
    "a matrix outside": Outside(
        {**OUTER, "altup_proj": (D, D, 3)}, {"outside_matrices": {"altup_in": [D, 3 * D]}}
    ),
    "vectors outside": Outside(
        {**OUTER, "rope_freqs": (8,), "per_layer_token_embd": (24, 40), "cls.output": (D, 2)},
        {"extra_params": {"rope_freqs": [8], "layers_embedding": [960], "cls_output": [128]}},
    ),
    # Mamba's files have no such key
    "no heads": Outside(
        OUTER,
        {"attention": "mamba", "n_heads": None, "n_layers": 2},
        of_blocks={**MAMBA, "attn_norm": (D,)},
        metadata={"attention.head_count": None, "attention.head_count_kv": None},
    ),
}


@each("case", OUTSIDE)
def test_tensors_outside_the_blocks_become_keys(case: str) -> None:
    outer, expected, of_blocks, metadata = OUTSIDE[case]
    data = whole(outer, of_blocks, metadata)
    assert {key: data.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("outer", "keys", "message"),
    [
        ({**OUTER, "output": (D, 41)}, {}, "output.weight is 64 x 41"),
        ({**OUTER, "output_norm": (D + 1,)}, {}, "output_norm.weight has 65 elements"),
        ({**OUTER, "token_embd": (D,)}, {}, "has no matrix token_embd.weight"),
        ({**OUTER, "token_embd": (D, 20, 2)}, {}, "has no matrix token_embd.weight"),
        (OUTER, {"block_count": 0}, "has 0 layers, and not 1 to"),
        (OUTER, {"block_count": MAX_LAYERS + 1}, "has 2,001 layers, and not 1 to 2,000"),
        (OUTER, {"nextn_predict_layers": 2}, "has layers for multi-token prediction only"),
        ({**OUTER, "blk.7.attn_norm": (D,)}, {}, "has a block 7, but 2 layers"),
    ],
)
def test_tensors_outside_that_contradict_are_an_error(
    outer: Tensors, keys: dict[str, Any], message: str
) -> None:
    assert message in refusal(whole, outer, BLOCK, keys).message


def test_every_layer_for_multi_token_prediction_is_counted() -> None:
    data = whole(OUTER, BLOCK, {"nextn_predict_layers": 1})
    elements = sum(math.prod(shape) for shape in BLOCK.values())
    assert (data["n_layers"], data["extra_params"]) == (1, {"nextn_1": [elements]})
    assert data["notes"] == [
        "Multi-token prediction has 1 layer, which llama.cpp loads only for speculation. Their "
        "parameters are counted, "
        "their cache is not."
    ]
