"""A block of a GGUF file becomes the keys of a layer of a model file.

Widths are read from the shapes of tensors. Where a key of the file says the same, both must agree. Every tensor must be
known, and every element is counted once.
"""

from __future__ import annotations

from .attention import grouped, latent
from .block import Block, LayerKeys
from .mlp import read_mlp
from .recurrent import delta, kimi_delta, mamba, mamba2, short_convolution

_READERS = (
    (("attn_kv_a_mqa.weight",), latent),
    (("ssm_conv1d_q.weight",), kimi_delta),
    (("ssm_ba.weight", "ssm_alpha.weight"), delta),
    (("attn_q.weight", "attn_qkv.weight"), grouped),
    (("ssm_x.weight",), mamba),
    (("ssm_in.weight",), mamba2),
    (("shortconv.conv.weight",), short_convolution),
)
"""The tensors by which a kind of attention or recurrent layer is known, and its reader; the first that applies."""


def read_block(block: Block) -> list[tuple[tuple[str, ...], LayerKeys]]:
    """Return the names and keys of the layers that a block is: one, or two if it has attention and Mamba in parallel.

    Raises AttncalcError if a tensor is not known, or contradicts another or a key.
    """
    parallel = block.has("attn_q.weight") and block.has("ssm_in.weight")  # Falcon-H1
    attention = read_attention(block)
    mixer = read_attention(block) if parallel else None
    mlp = read_mlp(block)
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
    if kind in ("grouped", "latent"):
        span = "chunked" if "chunk" in attention else "sliding" if "window" in attention else "full"
        kind = f"{span}_shared" if attention.get("shares_kv") else span
    return (kind, "none" if mlp["mlp"] == "none" else "sparse" if "n_experts" in mlp else "dense")


def read_attention(block: Block) -> LayerKeys:
    """Return the keys of the block's attention or recurrent layer; those of a block without either if it has an MLP."""
    reader = next((read for names, read in _READERS if block.has(*names)), None)
    if reader is not None:
        return reader(block)
    if block.facts.n_kv_heads and not block.has("ffn_up.weight", "ffn_up_exps.weight", "ffn_gate_up_exps.weight"):
        raise block.error("has no tensors of attention and of an MLP")
    return {"attention": "none"}
