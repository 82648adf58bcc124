"""Readers of attention: the tensors of a block become the keys of grouped or latent attention."""

from __future__ import annotations

from ...units import count
from .block import Block, LayerKeys, without_defaults


def grouped(block: Block) -> LayerKeys:
    """Return the keys of grouped attention. The widths of heads follow from the shapes of its matrices."""
    facts = block.facts
    n_heads, n_kv = facts.n_heads, facts.n_kv_heads
    if n_heads < 1 or n_kv < 1:
        raise block.error("has matrices of attention, but its keys give it no heads")
    d_v = block.divide(block.take("attn_output.weight", None, block.d_model)[0], n_heads, "attn_output.weight")
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
    n_heads, n_kv = block.facts.n_heads, block.facts.n_kv_heads
    width = block.take("attn_qkv.weight", block.d_model, None)[1] - n_kv * d_v
    d_head = block.divide(width, n_heads + n_kv, "attn_qkv.weight")
    return {"d_head": d_head, "bias": ["q", "k", "v"] if block.elements("attn_qkv.bias") else []}


def _separate(block: Block, d_v: int) -> LayerKeys:
    d, n_heads, n_kv, shares_kv = block.d_model, block.facts.n_heads, block.facts.n_kv_heads, block.facts.shares_kv
    queries = block.take("attn_q.weight", d, None)[1]
    keys: LayerKeys = {"d_head": d_v}
    if shares_kv:  # files may have the matrices, which nothing uses (Gemma 3n)
        keys["extra_vectors"] = sum(
            block.elements(f"attn_{name}") for name in ("k.weight", "v.weight", "k_norm.weight")
        )
    else:
        keys["d_head"] = block.divide(block.take("attn_k.weight", d, None)[1], n_kv, "attn_k.weight")
        keys["v_from_k"] = not block.has("attn_v.weight")
        if not keys["v_from_k"]:
            block.take("attn_v.weight", d, n_kv * d_v)
    width = n_heads * keys["d_head"]
    if queries == 2 * width and keys["d_head"] == d_v:  # queries and a gate in one matrix (Qwen3-Next)
        keys["gate"] = True
    elif queries != width:
        raise block.error(f"has attn_q.weight of width {count(queries)}, and not of {count(width)}")
    keys["bias"] = [letter for letter in ("q" if shares_kv else "qkv") if block.elements(f"attn_{letter}.bias")]
    return keys


def _gate(block: Block, width: int) -> str | bool:
    """Return the key of a gate on the output of that width: one value per head, or per element."""
    n_heads = block.facts.n_heads
    gate = block.take("attn_gate.weight", block.d_model, None)[1]
    if gate not in (n_heads, width):
        raise block.error(f"has attn_gate.weight of width {count(gate)}, and not of {count(width)} or {count(n_heads)}")
    return "head" if gate == n_heads else True


def _check_lengths(block: Block, d_head: int, d_v: int) -> None:
    """Raise AttncalcError if the keys of the file have other widths of heads than its tensors."""
    for key, width in (("key_length", d_head), ("value_length", d_v)):
        of_windows = f"attention.{key}_swa"
        if block.facts.window is not None and block.keys.number(of_windows) is not None:
            block.check_key(of_windows, width)
        else:
            block.check_key(f"attention.{key}", width)


def _qk_norm(block: Block, queries: int, keys: int, d_head: int) -> tuple[str | None, int]:
    """Return the kind of norm on queries and keys, and the elements of norms of another kind."""
    names = [f"attn_{letter}_norm.{part}" for letter in "qk" for part in ("weight", "bias")]
    sizes = {name: block.elements(name) for name in names}
    q, k = sizes["attn_q_norm.weight"], sizes["attn_k_norm.weight"]
    biases = sizes["attn_q_norm.bias"] + sizes["attn_k_norm.bias"]
    shared = block.facts.shares_kv
    if q == d_head and (shared or k == d_head):
        return "head", biases
    if q and q == queries and (shared or k == keys):
        return "full", biases
    return None, sum(sizes.values())


def latent(block: Block) -> LayerKeys:
    """Return the keys of multi-head latent attention, with the indexer of sparse attention."""
    d = block.d_model
    rank = block.take("attn_kv_a_norm.weight", None)[0]
    d_rope = block.take("attn_kv_a_mqa.weight", d, None)[1] - rank
    if not block.has("attn_k_b.weight"):
        raise block.error(
            "has no tensor attn_k_b.weight: the file is from before llama.cpp stored the latent, or its latent is "
            "expanded before it is stored"
        )
    d_nope, _, n_heads = block.take("attn_k_b.weight", None, rank, None)
    d_v = block.take("attn_v_b.weight", rank, None, n_heads)[1]
    block.take("attn_output.weight", n_heads * d_v, d)
    queries, q_rank = n_heads * (d_nope + d_rope), None
    if block.has("attn_q_a.weight"):
        q_rank = block.take("attn_q_a.weight", d, None)[1]
        block.take("attn_q_a_norm.weight", q_rank)
        block.take("attn_q_b.weight", q_rank, queries)
    else:
        block.take("attn_q.weight", d, queries)
    if d_rope < 0:
        raise block.error(f"has a latent of {count(rank)}, wider than its matrix")
    block.check_key("attention.kv_lora_rank", rank)
    if q_rank:
        block.check_key("attention.q_lora_rank", q_rank)
    block.check_key("attention.key_length_mla", d_nope + d_rope)
    block.check_key("attention.value_length_mla", d_v)
    # some files have the matrix in both forms; nothing uses the whole one
    vectors = block.elements("attn_kv_b.weight")
    keys = {
        "attention": "latent",
        "n_heads": n_heads,
        "kv_lora_rank": rank,
        "d_nope": d_nope,
        "d_rope": d_rope,
        "d_v": d_v,
        **without_defaults({"q_lora_rank": q_rank, "extra_vectors": vectors}),
    }
    return {**keys, **_indexer(block, q_rank or d)}


def _indexer(block: Block, d_query: int) -> LayerKeys:
    topk = block.keys.number("attention.indexer.top_k")
    if not topk:
        return {}
    if not block.has("indexer.attn_k.weight"):  # the layer uses the keys that an earlier layer's indexer picked
        return {"index_topk": topk}
    width = block.take("indexer.attn_k.weight", block.d_model, None)[1]
    heads = block.take("indexer.proj.weight", block.d_model, None)[1]
    block.take("indexer.attn_q_b.weight", d_query, heads * width)
    block.take("indexer.k_norm.weight", width)
    block.take("indexer.k_norm.bias", width)
    block.check_key("attention.indexer.head_count", heads)
    block.check_key("attention.indexer.key_length", width)
    return {"index_topk": topk, "index_n_heads": heads, "index_head_dim": width}
