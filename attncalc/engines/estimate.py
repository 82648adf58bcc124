"""An estimate of the runtime memory for engines without a formula of their own: a pass's tensors
and a constant.
"""

from typing import Any

from ..model import Layers, Stack, plural
from ..quantity import Quantity, minimum, named, quantity, symbol
from ..units import GIB, count
from .runtime import RuntimeFacts, RuntimeMemory, RuntimePart, Term

# 1.79 GiB for the CUDA context, CUDA graphs, libraries and the allocator's gaps on one GPU: what
# vLLM's own profile of Llama-3-8B on an H100 found beside PyTorch's tensors (vllm-project/vllm pull
# request 10511).
_FIXED = -(-179 * GIB // 100)
# Bytes that the buffers of collective operations add with several GPUs: the same profile has 3.58
# GiB with tp 2.
_COLLECTIVES = -(-358 * GIB // 100) - _FIXED
# A CUDA context alone: no log of an engine has less outside its own tensors.
_LEAST = GIB // 4
_PROFILE = "vllm-project/vllm pull request 10511, a profile of Llama-3-8B on an H100"


def estimated_runtime(facts: RuntimeFacts[Any]) -> RuntimeMemory:
    """Return the largest tensors of a forward pass, and a constant for the CUDA context, graphs and
    libraries.

    The tensors are: the residual and a layer's input, the widest tensors within one layer, and the
    logits in fp32 with their probabilities. The range of a tensor's bytes is half of them to both
    sides, since an engine may free some of them earlier or hold others longer.
    """
    tensors, terms = largest_tensors(facts)
    several = facts.args.tp * facts.args.pp > 1
    fixed: int = symbol(
        "fixed", _FIXED, "bytes estimated for the CUDA context, graphs and the allocator"
    )
    if several:
        fixed = fixed + symbol(
            "collectives", _COLLECTIVES, "bytes estimated for the buffers of collective operations"
        )
    label = f"CUDA {'context, graphs and collectives' if several else 'context and graphs'}"
    cuda = RuntimePart("cuda", label, _LEAST, quantity(fixed), int(fixed) * 3 // 2, _PROFILE)
    part = RuntimePart(
        "activations",
        f"tensors of a pass over {plural(facts.limits.max_num_batched_tokens, 'token')}",
        int(tensors) // 2,
        tensors,
        int(tensors) * 3 // 2,
        "the shapes of the model's largest tensors",
    )
    rows = plural(min(facts.limits.max_num_batched_tokens, facts.limits.max_num_seqs), "sequence")
    note = (
        "The runtime memory is an estimate: the largest tensors of a pass over "
        f"{count(facts.limits.max_num_batched_tokens)} tokens, "
        f"logits of {rows}, and a constant. --reserve replaces it."
    )
    return RuntimeMemory((part, cuda), (note,), terms)


def largest_tensors(facts: RuntimeFacts[Any]) -> tuple[Quantity, tuple[Term, ...]]:
    """Return the bytes of the largest tensors of a pass, and the terms of their formula."""
    model = facts.model
    symbols = model.symbolic()
    tokens = symbol("N", facts.limits.max_num_batched_tokens, "tokens of one forward pass")
    widest = max(
        (_widest(stack, layers) for stack, layers in symbols.groups()), key=int, default=quantity(0)
    )
    tensors = quantity(tokens * (2 * symbols.main.d_model + widest) * facts.element_bytes)
    terms = [("activation_bytes", "activations of one forward pass", tensors)]
    result: int = named(
        tensors, "activation_bytes", "bytes of the largest tensors of a forward pass"
    )
    if model.vocab_size:
        rows = minimum(
            tokens, symbol("max_num_seqs", facts.limits.max_num_seqs, "sequences of one step")
        )
        vocab = symbol("V", model.vocab_size, "tokens of the vocabulary")
        logits = quantity(rows * vocab * 8)  # 4 bytes in fp32, and as many for the probabilities
        terms.append(("logit_bytes", "logits and probabilities in fp32", logits))
        result = result + named(
            logits, "logit_bytes", "bytes of the logits and their probabilities in fp32"
        )
    return quantity(result), tuple(terms)


def _widest(stack: Stack, layers: Layers) -> int:
    """Return the elements that one token has in the widest part of a layer: its attention, or its
    MLP.
    """
    parts = [attention_width(layers)]
    if layers.mlp:
        mlp = (3 if layers.mlp.gated else 2) * layers.mlp.d_ff
        # each expert that a token picks has its own copy of the token
        if layers.mlp.n_experts_per_token:
            parts.append(layers.mlp.n_experts_per_token * (mlp + stack.d_model))
        else:
            parts.append(quantity(mlp))
    return max(parts, key=int)


def attention_width(layers: Layers) -> int:
    """Return the elements that one token has in a layer's attention: q, k, v and the output."""
    widths = layers.attention.widths()
    heads = widths.n_heads * (widths.d_qk + widths.d_v) + widths.n_kv_heads * (
        widths.d_qk + widths.d_v
    )
    return heads + widths.extra
