"""Readers of recurrent layers: Mamba, delta nets and short convolutions."""

from __future__ import annotations

import math

from ...units import count
from .block import Block, LayerKeys, without_defaults


def mamba(block: Block) -> LayerKeys:
    d = block.d_model
    d_conv, d_inner = block.take("ssm_conv1d.weight", None, None)
    dt_rank = block.take("ssm_dt.weight", None, d_inner)[0]
    d_state = block.take("ssm_a", None, d_inner)[0]
    block.take("ssm_in.weight", d, 2 * d_inner)
    block.take("ssm_x.weight", d_inner, dt_rank + 2 * d_state)
    block.take("ssm_dt.bias", d_inner)
    block.take("ssm_d", d_inner)
    block.take("ssm_out.weight", d_inner, d)
    norms = block.has("ssm_dt_norm.weight")
    if norms:
        for name, width in (("dt", dt_rank), ("b", d_state), ("c", d_state)):
            block.take(f"ssm_{name}_norm.weight", width)
    block.check_key("ssm.inner_size", d_inner)
    block.check_key("ssm.state_size", d_state)
    block.check_key("ssm.conv_kernel", d_conv)
    keys = {"d_inner": d_inner, "d_state": d_state, "d_conv": d_conv, "dt_rank": dt_rank}
    conv_bias = bool(block.elements("ssm_conv1d.bias"))
    return {"attention": "mamba", **keys, **without_defaults({"conv_bias": conv_bias, "dt_norms": norms})}


def mamba2(block: Block) -> LayerKeys:
    d = block.d_model
    d_conv, channels = block.take("ssm_conv1d.weight", None, None)
    d_inner = block.take("ssm_out.weight", None, d)[0]
    n_heads = math.prod(block.take("ssm_a", None, None))
    block.take("ssm_d", None, None)
    block.take("ssm_dt.bias", n_heads)
    d_state = block.keys.required("ssm.state_size")
    n_groups = block.divide(channels - d_inner, 2 * d_state, "ssm_conv1d.weight")
    block.take("ssm_in.weight", d, d_inner + channels + n_heads)
    norm = block.elements("ssm_norm.weight")
    if norm not in (0, d_inner):
        raise block.error(f"has ssm_norm.weight of {count(norm)} elements, and not of {count(d_inner)}")
    for key, value in (("inner_size", d_inner), ("conv_kernel", d_conv), ("group_count", n_groups)):
        block.check_key(f"ssm.{key}", value)
    block.check_key("ssm.time_step_rank", n_heads)
    keys = {
        "n_heads": n_heads,
        "d_head": block.divide(d_inner, n_heads, "ssm_out.weight"),
        "d_state": d_state,
        "d_conv": d_conv,
        "n_groups": n_groups,
    }
    conv_bias = bool(block.elements("ssm_conv1d.bias"))
    return {"attention": "mamba2", **keys, **without_defaults({"conv_bias": conv_bias, "inner_norm": bool(norm)})}


def delta(block: Block) -> LayerKeys:
    """Return the keys of a gated delta net (Qwen3-Next, Qwen3.5)."""
    d = block.d_model
    d_conv, channels = block.take("ssm_conv1d.weight", None, None)
    values = block.take("ssm_out.weight", None, d)[0]
    n_heads = block.take("ssm_a", None)[0]
    n_k_heads = block.keys.required("ssm.group_count")
    keys_width = block.divide(channels - values, 2, "ssm_conv1d.weight")
    d_head = block.divide(keys_width, n_k_heads, "ssm_conv1d.weight")
    d_v = block.divide(values, n_heads, "ssm_out.weight")
    if block.has("ssm_in.weight"):  # files of 2025 have one matrix
        block.take("ssm_in.weight", d, 2 * keys_width + 2 * values)
    else:
        block.take("attn_qkv.weight", d, channels)
        block.take("attn_gate.weight", d, values)
    if block.has("ssm_ba.weight"):
        block.take("ssm_ba.weight", d, 2 * n_heads)
    else:
        block.take("ssm_alpha.weight", d, n_heads)
        block.take("ssm_beta.weight", d, n_heads)
    block.take("ssm_dt.bias" if block.has("ssm_dt.bias") else "ssm_dt", n_heads)
    block.take("ssm_norm.weight", d_v)
    for key, value in (("inner_size", values), ("conv_kernel", d_conv), ("state_size", d_head)):
        block.check_key(f"ssm.{key}", value)
    block.check_key("ssm.time_step_rank", n_heads)
    keys = {"n_heads": n_heads, "n_k_heads": n_k_heads, "d_head": d_head, "d_v": d_v, "d_conv": d_conv}
    return {"attention": "delta", **keys}


def kimi_delta(block: Block) -> LayerKeys:
    """Return the keys of Kimi's delta attention, which decays each channel."""
    d = block.d_model
    d_conv, _, inner = block.take("ssm_conv1d_q.weight", None, 1, None)
    for letter in "kv":
        block.take(f"ssm_conv1d_{letter}.weight", d_conv, 1, inner)
    n_heads = math.prod(block.take("ssm_a", 1, None))
    d_head = block.divide(inner, n_heads, "ssm_conv1d_q.weight")
    for letter in "qkv":
        block.take(f"attn_{letter}.weight", d, inner)
    rank = block.take("ssm_f_a.weight", d, None)[1]
    block.take("ssm_g_a.weight", d, rank)
    for letter in "fg":
        block.take(f"ssm_{letter}_b.weight", rank, inner)
    block.take("ssm_beta.weight", d, n_heads)
    block.take("ssm_dt.bias", inner)
    block.take("ssm_norm.weight", d_head)
    block.take("attn_output.weight", inner, d)
    block.check_key("kda.head_dim", d_head)
    keys = {"n_heads": n_heads, "d_head": d_head, "d_v": d_head, "d_conv": d_conv}
    return {"attention": "delta", **keys, "channel_decay": True, "gate_rank": rank}


def short_convolution(block: Block) -> LayerKeys:
    d = block.d_model
    d_conv, d_inner = block.take("shortconv.conv.weight", None, None)
    block.take("shortconv.in_proj.weight", d, 3 * d_inner)
    block.take("shortconv.out_proj.weight", d_inner, d)
    block.check_key("shortconv.l_cache", d_conv)
    return {"attention": "short_convolution", "d_inner": d_inner, "d_conv": d_conv}
