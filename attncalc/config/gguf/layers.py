"""A block of a GGUF file becomes the keys of a layer of a model file.

Widths are read from the shapes of tensors. Where a key of the file says the same, both must agree.
Every tensor must be known, and every element is counted once.
"""

import math

from ...units import count
from .block import Block, LayerKeys, without_defaults


def read_block(block: Block) -> list[tuple[tuple[str, ...], LayerKeys]]:
    """Return the names and keys of the layers that a block is: one, or two if it has attention and
    Mamba in parallel.

    Raises AttncalcError if a tensor is not known, or contradicts another or a key.
    """
    parallel = block.has("attn_q.weight") and block.has("ssm_in.weight")  # Falcon-H1
    attention = _read_attention(block)
    mixer = _read_attention(block) if parallel else None
    mlp = _read_mlp(block)
    others = block.take_norms()
    extra = block.extra()
    if others:
        extra.setdefault("extra_vectors_per_layer", {})["norms"] = [others]
    names = _names(block, attention, mlp)
    if mixer is None:
        return [(names, {**attention, **mlp, "norms_per_layer": block.norms, **extra})]
    first = {**attention, "mlp": "none", "norms_per_layer": min(1, block.norms)}
    second = {**mixer, **mlp, "norms_per_layer": max(0, block.norms - 1), **extra}
    return [(names, first), (("mamba", *names[1:]), second)]


def _names(block: Block, attention: LayerKeys, mlp: LayerKeys) -> tuple[str, ...]:
    kind = attention.get("attention", "grouped")
    if kind == "compressed":
        if "index_topk" in attention:
            kind = "csa"
        elif "compress_rate" in attention:
            kind = "hca"
        else:
            kind = "swa"
    if kind in ("grouped", "latent"):
        if "chunk" in attention:
            span = "chunked"
        elif "window" in attention:
            span = "sliding"
        else:
            span = "full"
        kind = f"{span}_shared" if attention.get("shares_kv") else span
    if mlp["mlp"] == "none":
        return (kind, "none")
    return (kind, "sparse" if "n_experts" in mlp else "dense")


def _read_attention(block: Block) -> LayerKeys:
    """Return the keys of the block's attention or recurrent layer; those of a block without either
    if it has an MLP.
    """
    reader = next((read for names, read in _READERS if block.has(*names)), None)
    if reader is not None:
        return reader(block)
    if block.facts.n_kv_heads and not block.has(
        "ffn_up.weight", "ffn_up_exps.weight", "ffn_gate_up_exps.weight"
    ):
        raise block.error("has no tensors of attention and of an MLP")
    return {"attention": "none"}


# Attention


def _grouped(block: Block) -> LayerKeys:
    """Read grouped attention. The widths of heads follow from the shapes of its matrices."""
    facts = block.facts
    n_heads = facts.n_heads
    n_kv = facts.n_kv_heads
    if n_heads < 1 or n_kv < 1:
        raise block.error("has matrices of attention, but its keys give it no heads")
    d_v = block.divide(
        block.take("attn_output.weight", None, block.d_model)[0], n_heads, "attn_output.weight"
    )
    fused = block.has("attn_qkv.weight")
    projections = _fused(block, d_v) if fused else _separate(block, d_v)
    if block.has("attn_gate.weight"):
        projections["gate"] = _gate(block, n_heads * d_v)
    d_head = projections["d_head"]
    if not facts.shares_kv:
        _check_lengths(block, d_head, d_v)
    norm, of_norms = _qk_norm(block, n_heads * d_head, n_kv * d_head, d_head)
    if block.elements("attn_output.bias"):
        projections["bias"] += ["o"]
    optional = {
        **projections,
        "d_v": None if d_v == d_head else d_v,
        "fused": fused,
        "qk_norm": norm,
        "sinks": bool(block.has("attn_sinks.weight") and block.take("attn_sinks.weight", n_heads)),
        "shares_kv": facts.shares_kv,
        "extra_vectors": projections.get("extra_vectors", 0) + of_norms,
    }
    if facts.window:
        optional["chunk" if facts.chunked else "window"] = facts.window
    return {"n_heads": n_heads, "n_kv_heads": n_kv, **without_defaults(optional)}


def _fused(block: Block, d_v: int) -> LayerKeys:
    n_heads = block.facts.n_heads
    n_kv = block.facts.n_kv_heads
    width = block.take("attn_qkv.weight", block.d_model, None)[1] - n_kv * d_v
    d_head = block.divide(width, n_heads + n_kv, "attn_qkv.weight")
    return {"d_head": d_head, "bias": ["q", "k", "v"] if block.elements("attn_qkv.bias") else []}


def _separate(block: Block, d_v: int) -> LayerKeys:
    d = block.d_model
    n_heads = block.facts.n_heads
    n_kv = block.facts.n_kv_heads
    shares_kv = block.facts.shares_kv
    queries = block.take("attn_q.weight", d, None)[1]
    keys: LayerKeys = {"d_head": d_v}
    if shares_kv:  # files may have the matrices, which nothing uses (Gemma 3n)
        keys["extra_vectors"] = sum(
            block.elements(f"attn_{name}") for name in ("k.weight", "v.weight", "k_norm.weight")
        )
    else:
        keys["d_head"] = block.divide(
            block.take("attn_k.weight", d, None)[1], n_kv, "attn_k.weight"
        )
        keys["v_from_k"] = not block.has("attn_v.weight")
        if not keys["v_from_k"]:
            block.take("attn_v.weight", d, n_kv * d_v)
    width = n_heads * keys["d_head"]
    # queries and a gate in one matrix (Qwen3-Next)
    if queries == 2 * width and keys["d_head"] == d_v:
        keys["gate"] = True
    elif queries != width:
        raise block.error(f"has attn_q.weight of width {count(queries)}, and not of {count(width)}")
    keys["bias"] = [
        letter for letter in ("q" if shares_kv else "qkv") if block.elements(f"attn_{letter}.bias")
    ]
    return keys


def _gate(block: Block, width: int) -> str | bool:
    """Return the key of a gate on the output of that width: one value per head, or per element."""
    n_heads = block.facts.n_heads
    gate = block.take("attn_gate.weight", block.d_model, None)[1]
    if gate not in (n_heads, width):
        raise block.error(
            f"has attn_gate.weight of width {count(gate)}, and not of {count(width)} or "
            f"{count(n_heads)}"
        )
    if gate == n_heads:
        return "head"
    return True


def _check_lengths(block: Block, d_head: int, d_v: int) -> None:
    for key, width in (("key_length", d_head), ("value_length", d_v)):
        has_own = (
            block.facts.window is not None and block.keys.number(f"attention.{key}_swa") is not None
        )
        block.check_keys("attention.", **{f"{key}_swa" if has_own else key: width})


def _qk_norm(block: Block, queries: int, keys: int, d_head: int) -> tuple[str | None, int]:
    """Return the kind of norm on queries and keys, and the elements of norms of another kind."""
    q = block.elements("attn_q_norm.weight")
    k = block.elements("attn_k_norm.weight")
    biases = block.elements("attn_q_norm.bias") + block.elements("attn_k_norm.bias")
    shared = block.facts.shares_kv
    if q == d_head and (shared or k == d_head):
        return "head", biases
    if q and q == queries and (shared or k == keys):
        return "full", biases
    return None, q + k + biases


def _latent(block: Block) -> LayerKeys:
    d = block.d_model
    rank = block.take("attn_kv_a_norm.weight", None)[0]
    d_rope = block.take("attn_kv_a_mqa.weight", d, None)[1] - rank
    expanded: LayerKeys = {}
    if block.has("attn_k_b.weight"):
        d_nope, _, n_heads = block.take("attn_k_b.weight", None, rank, None)
        d_v = block.take("attn_v_b.weight", rank, None, n_heads)[1]
        block.check_keys("attention.", key_length_mla=d_nope + d_rope, value_length_mla=d_v)
    else:
        n_heads, d_nope, d_v = _expanded_latent(block, rank, d_rope)
        expanded = {"caches_heads": True}
    block.take("attn_output.weight", n_heads * d_v, d)
    queries = n_heads * (d_nope + d_rope)
    q_rank = None
    if block.has("attn_q_a.weight"):
        q_rank = block.take("attn_q_a.weight", d, None)[1]
        block.take("attn_q_a_norm.weight", q_rank)
        block.take("attn_q_b.weight", q_rank, queries)
    else:
        block.take("attn_q.weight", d, queries)
    if d_rope < 0:
        raise block.error(f"has a latent of {count(rank)}, wider than its matrix")
    block.check_keys("attention.", kv_lora_rank=rank)
    if q_rank:
        block.check_keys("attention.", q_lora_rank=q_rank)
    # some files have the matrix in both forms; nothing uses the whole one
    vectors = block.elements("attn_kv_b.weight")
    keys = {
        "n_heads": n_heads,
        "kv_lora_rank": rank,
        "d_nope": d_nope,
        "d_rope": d_rope,
        "d_v": d_v,
    }
    optional = without_defaults({"q_lora_rank": q_rank, "extra_vectors": vectors})
    return {"attention": "latent", **keys, **expanded, **optional, **_indexer(block, q_rank or d)}


def _expanded_latent(block: Block, rank: int, d_rope: int) -> tuple[int, int, int]:
    """Return the heads of a file from before llama.cpp stored latents, with the widths of K without
    rope and of V: it stores those of every head.

    The keys tell: such a file has no attention.key_length_mla (llama_hparams::is_mla), and
    key_length is that of a head.
    """
    number = block.keys.number
    d_qk = number("attention.key_length")
    d_v = number("attention.value_length")
    if number("attention.key_length_mla") or not (d_qk and d_v and block.has("attn_kv_b.weight")):
        raise block.error("has no tensor attn_k_b.weight, which expands the latent")
    n_heads = block.facts.n_heads
    d_nope = d_qk - d_rope
    block.take("attn_kv_b.weight", rank, n_heads * (d_nope + d_v))
    return n_heads, d_nope, d_v


def _compressed(block: Block) -> LayerKeys:
    """Read compressed attention (DeepSeek-V4). A pool of 4 tokens has an indexer, and overlaps the
    pool before.
    """
    d = block.d_model
    rank = block.take("attn_q_a.weight", d, None)[1]
    block.take("attn_q_a_norm.weight", rank)
    d_head = block.take("attn_kv.weight", d, None)[1]
    block.take("attn_kv_a_norm.weight", d_head)
    n_heads = block.divide(block.take("attn_q_b.weight", rank, None)[1], d_head, "attn_q_b.weight")
    block.take("attn_sinks.weight", n_heads)
    groups = block.keys.required("attention.output_group_count")
    width = block.take("attn_output_b.weight", None, d)[0]
    o_rank = block.divide(width, groups, "attn_output_b.weight")
    block.take(
        "attn_output_a.weight", block.divide(n_heads * d_head, groups, "attn_q_b.weight"), width
    )
    block.check_keys("attention.", key_length=d_head, q_lora_rank=rank, output_lora_rank=o_rank)
    keys = {
        "n_heads": n_heads,
        "d_head": d_head,
        "q_lora_rank": rank,
        "o_groups": groups,
        "o_lora_rank": o_rank,
    }
    if block.facts.window:
        keys["window"] = block.facts.window
    index: LayerKeys = {}
    if block.has("indexer.proj.weight"):
        heads = block.take("indexer.proj.weight", d, None)[1]
        d_index = block.divide(
            block.take("indexer.attn_q_b.weight", rank, None)[1], heads, "indexer.attn_q_b.weight"
        )
        topk = block.keys.required("attention.indexer.top_k")
        index = {"index_topk": topk, "index_n_heads": heads, "index_head_dim": d_index}
        _pooling(block, "indexer", 2 * d_index)
    if block.has("attn_compressor_kv.weight"):
        rate = _pooling(block, "attn", (2 if index else 1) * d_head)
    else:
        rate = 0
    rates = block.keys.per_layer("attention.compress_ratios", block.number + 1)
    if rates and rates[-1] != rate:
        raise block.error(
            f"has pools of {count(rate)} tokens, but the key attention.compress_ratios "
            f"{count(rates[-1])}"
        )
    return {"attention": "compressed", **keys, **without_defaults({"compress_rate": rate}), **index}


def _pooling(block: Block, name: str, width: int) -> int:
    """Take the tensors that pool keys of that width, and return the tokens of a pool."""
    for part in ("kv", "gate"):
        block.take(f"{name}_compressor_{part}.weight", block.d_model, width)
    block.elements(f"{name}_compressor_norm.weight")
    return block.take(f"{name}_compressor_ape.weight", width, None)[1]


def _indexer(block: Block, d_query: int) -> LayerKeys:
    topk = block.keys.number("attention.indexer.top_k")
    if not topk:
        return {}
    # the layer uses the keys that an earlier layer's indexer picked
    if not block.has("indexer.attn_k.weight"):
        return {"index_topk": topk}
    width = block.take("indexer.attn_k.weight", block.d_model, None)[1]
    heads = block.take("indexer.proj.weight", block.d_model, None)[1]
    block.take("indexer.attn_q_b.weight", d_query, heads * width)
    block.take("indexer.k_norm.weight", width)
    block.take("indexer.k_norm.bias", width)
    block.check_keys("attention.indexer.", head_count=heads, key_length=width)
    return {"index_topk": topk, "index_n_heads": heads, "index_head_dim": width}


# MLPs


def _read_mlp(block: Block) -> LayerKeys:
    if block.has("ffn_up_exps.weight", "ffn_gate_up_exps.weight", "ffn_down_exps.weight"):
        return _experts(block)
    if not block.has("ffn_up.weight"):
        return {"mlp": "none"}
    width, gated, has_bias = _dense(block, "")
    return {
        "mlp": "gated" if gated else "plain",
        "d_ff": width,
        **without_defaults({"mlp_bias": has_bias}),
    }


def _dense(block: Block, suffix: str) -> tuple[int, bool, bool]:
    """Return (width, whether it is gated, whether all its matrices have a bias) of a dense MLP or
    shared experts.
    """
    d = block.d_model
    width = block.take(f"ffn_down{suffix}.weight", None, d)[0]
    gated = separate = block.has(f"ffn_gate{suffix}.weight")
    if separate:
        block.take(f"ffn_gate{suffix}.weight", d, width)
        block.take(f"ffn_up{suffix}.weight", d, width)
    else:
        up = block.take(f"ffn_up{suffix}.weight", d, None)[1]
        gated = up == 2 * width  # gate and up in one matrix (Phi-3, GLM-4)
        if up not in (width, 2 * width):
            raise block.error(
                f"has ffn_up{suffix}.weight of width {count(up)}, and not of {count(width)}"
            )
    # the biases of gate and up in one matrix are one vector of both
    biases = [
        f"ffn_{name}{suffix}.bias"
        for name in (("gate", "up", "down") if separate else ("up", "down"))
    ]
    has_bias = not suffix and all(map(block.has, biases))
    if has_bias:
        for name in biases:
            block.elements(name)
    return width, gated, has_bias


def _experts(block: Block) -> LayerKeys:
    d = block.d_model
    used = block.facts.experts_used
    width, d_latent, n_experts = block.take("ffn_down_exps.weight", None, None, None)
    if d_latent != d and not block.has("ffn_latent_down.weight"):
        raise block.error(
            f"has experts with outputs of width {count(d_latent)}, and not of {count(d)}"
        )
    fused = block.has("ffn_gate_up_exps.weight")
    if fused:
        block.take("ffn_gate_up_exps.weight", d_latent, 2 * width, n_experts)
    else:
        block.take("ffn_up_exps.weight", d_latent, width, n_experts)
    gated = fused or block.has("ffn_gate_exps.weight")
    if gated and not fused:
        block.take("ffn_gate_exps.weight", d_latent, width, n_experts)
    if not 1 <= used <= n_experts:
        raise block.error(
            f"has {count(n_experts)} experts, of which the keys use {count(used)} per token"
        )
    block.check_keys("", expert_count=n_experts)
    block.take("ffn_gate_inp.weight", d, n_experts)
    # a bias, or a correction of the scores, or a scale: one value per expert each
    per_expert = sum(
        map(
            block.elements,
            ("ffn_gate_inp.bias", "exp_probs_b.bias", "exp_probs_b.weight", "exp_probs_b"),
        )
    )
    sizes = {"up": width, "down": d_latent} | ({"gate": width} if gated else {})
    mlp_bias = all(block.has(f"ffn_{name}_exps.bias") for name in sizes)
    if mlp_bias:
        for name, size in sizes.items():
            block.take(f"ffn_{name}_exps.bias", size, n_experts)
    shared = _dense(block, "_shexp")[0] if block.has("ffn_up_shexp.weight") else None
    # a dense MLP beside the experts (Gemma 4, Arctic)
    if shared is None and block.has("ffn_up.weight"):
        shared = _dense(block, "")[0]
    keys = {
        "mlp": "gated" if gated else "plain",
        "d_ff": width,
        "n_experts": n_experts,
        "n_experts_per_token": used,
    }
    if per_expert not in (0, n_experts):
        raise block.error(
            f"has {count(per_expert)} values for the scores of {count(n_experts)} experts"
        )
    optional = {"d_ff_shared": shared, "router_bias": bool(per_expert), "mlp_bias": mlp_bias}
    return {
        **keys,
        **without_defaults(optional | {"d_latent": None if d_latent == d else d_latent}),
    }


# Recurrent layers


def _mamba(block: Block) -> LayerKeys:
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
    block.check_keys("ssm.", inner_size=d_inner, state_size=d_state, conv_kernel=d_conv)
    keys = {"d_inner": d_inner, "d_state": d_state, "d_conv": d_conv, "dt_rank": dt_rank}
    conv_bias = bool(block.elements("ssm_conv1d.bias"))
    return {
        "attention": "mamba",
        **keys,
        **without_defaults({"conv_bias": conv_bias, "dt_norms": norms}),
    }


def _mamba2(block: Block) -> LayerKeys:
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
        raise block.error(
            f"has ssm_norm.weight of {count(norm)} elements, and not of {count(d_inner)}"
        )
    block.check_keys(
        "ssm.", inner_size=d_inner, conv_kernel=d_conv, group_count=n_groups, time_step_rank=n_heads
    )
    keys = {
        "n_heads": n_heads,
        "d_head": block.divide(d_inner, n_heads, "ssm_out.weight"),
        "d_state": d_state,
        "d_conv": d_conv,
        "n_groups": n_groups,
    }
    conv_bias = bool(block.elements("ssm_conv1d.bias"))
    return {
        "attention": "mamba2",
        **keys,
        **without_defaults({"conv_bias": conv_bias, "inner_norm": bool(norm)}),
    }


def _delta(block: Block) -> LayerKeys:
    """Read a gated delta net (Qwen3-Next, Qwen3.5)."""
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
    block.check_keys(
        "ssm.", inner_size=values, conv_kernel=d_conv, state_size=d_head, time_step_rank=n_heads
    )
    keys = {
        "n_heads": n_heads,
        "n_k_heads": n_k_heads,
        "d_head": d_head,
        "d_v": d_v,
        "d_conv": d_conv,
    }
    return {"attention": "delta", **keys}


def _kimi_delta(block: Block) -> LayerKeys:
    """Read Kimi's delta attention, which decays each channel."""
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
    block.check_keys("kda.", head_dim=d_head)
    keys = {"n_heads": n_heads, "d_head": d_head, "d_v": d_head, "d_conv": d_conv}
    return {"attention": "delta", **keys, "channel_decay": True, "gate_rank": rank}


def _short_convolution(block: Block) -> LayerKeys:
    d = block.d_model
    d_conv, d_inner = block.take("shortconv.conv.weight", None, None)
    block.take("shortconv.in_proj.weight", d, 3 * d_inner)
    block.take("shortconv.out_proj.weight", d_inner, d)
    block.check_keys("shortconv.", l_cache=d_conv)
    return {"attention": "short_convolution", "d_inner": d_inner, "d_conv": d_conv}


# The tensors by which a kind of attention or recurrent layer is known, and its reader; the first
# that applies.
_READERS = (
    (("attn_kv.weight",), _compressed),
    (("attn_kv_a_mqa.weight",), _latent),
    (("ssm_conv1d_q.weight",), _kimi_delta),
    (("ssm_ba.weight", "ssm_alpha.weight"), _delta),
    (("attn_q.weight", "attn_qkv.weight"), _grouped),
    (("ssm_x.weight",), _mamba),
    (("ssm_in.weight",), _mamba2),
    (("shortconv.conv.weight",), _short_convolution),
)
