"""Readers of MLPs: dense ones, and mixtures of experts."""

from __future__ import annotations

from ...units import count
from .block import Block, LayerKeys, without_defaults


def read_mlp(block: Block) -> LayerKeys:
    """Return the keys of the block's MLP: dense, or a mixture of experts."""
    if block.has("ffn_up_exps.weight", "ffn_gate_up_exps.weight", "ffn_down_exps.weight"):
        return _experts(block)
    if not block.has("ffn_up.weight"):
        return {"mlp": "none"}
    width, gated, has_bias = _dense(block, "")
    return {"mlp": "gated" if gated else "plain", "d_ff": width, **without_defaults({"mlp_bias": has_bias})}


def _dense(block: Block, suffix: str) -> tuple[int, bool, bool]:
    """Return (width, whether it is gated, whether all its matrices have a bias) of a dense MLP or shared experts."""
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
            raise block.error(f"has ffn_up{suffix}.weight of width {count(up)}, and not of {count(width)}")
    # the biases of gate and up in one matrix are one vector of both
    biases = [f"ffn_{name}{suffix}.bias" for name in (("gate", "up", "down") if separate else ("up", "down"))]
    has_bias = not suffix and all(map(block.has, biases))
    if has_bias:
        for name in biases:
            block.elements(name)
    return width, gated, has_bias


def _experts(block: Block) -> LayerKeys:
    d, used = block.d_model, block.facts.experts_used
    width, d_latent, n_experts = block.take("ffn_down_exps.weight", None, None, None)
    if d_latent != d and not block.has("ffn_latent_down.weight"):
        raise block.error(f"has experts with outputs of width {count(d_latent)}, and not of {count(d)}")
    gated = True
    if block.has("ffn_gate_up_exps.weight"):
        block.take("ffn_gate_up_exps.weight", d_latent, 2 * width, n_experts)
    else:
        block.take("ffn_up_exps.weight", d_latent, width, n_experts)
        gated = block.has("ffn_gate_exps.weight")
        if gated:
            block.take("ffn_gate_exps.weight", d_latent, width, n_experts)
    if not 1 <= used <= n_experts:
        raise block.error(f"has {count(n_experts)} experts, of which the keys use {count(used)} per token")
    block.check_key("expert_count", n_experts)
    block.take("ffn_gate_inp.weight", d, n_experts)
    # a bias, or a correction of the scores, or a scale: one value per expert each
    per_expert = block.elements("ffn_gate_inp.bias") + block.elements("exp_probs_b.bias")
    per_expert += block.elements("exp_probs_b.weight")
    sizes = [("up", width), ("down", d_latent)] + [("gate", width)] * gated
    biases = [f"ffn_{name}_exps.bias" for name, _ in sizes]
    mlp_bias = all(map(block.has, biases))
    if mlp_bias:
        for name, size in sizes:
            block.take(f"ffn_{name}_exps.bias", size, n_experts)
    shared = _dense(block, "_shexp")[0] if block.has("ffn_up_shexp.weight") else None
    if shared is None and block.has("ffn_up.weight"):  # a dense MLP beside the experts (Gemma 4, Arctic)
        shared = _dense(block, "")[0]
    keys = {"mlp": "gated" if gated else "plain", "d_ff": width, "n_experts": n_experts, "n_experts_per_token": used}
    if per_expert not in (0, n_experts):
        raise block.error(f"has {count(per_expert)} values for the scores of {count(n_experts)} experts")
    optional = {
        "d_ff_shared": shared,
        "router_bias": bool(per_expert),
        "mlp_bias": mlp_bias,
        "d_latent": None if d_latent == d else d_latent,
    }
    return {**keys, **without_defaults(optional)}
