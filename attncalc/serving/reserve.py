"""What an engine takes of a GPU's memory, and what of that is reserved for everything but weights and cache.

The reserve is an estimate, which --reserve replaces. The largest tensors of a forward pass have a formula; what
driver, CUDA graphs and libraries take has none, so it is a constant from a published profile.
"""

from __future__ import annotations

from typing import NamedTuple

from ..engines import engine_defaults
from ..engines.base import EngineArgs
from ..engines.defaults import Limits
from ..model import Layers, ModelSpec, Stack, plural
from ..quantity import Quantity, minimum, named, quantity, symbol
from ..units import BYTES, GIB, count, dtype, human, parse_decimal

FIXED = -(-179 * GIB // 100)
"""1.79 GiB for the CUDA context, CUDA graphs, libraries and the allocator's gaps on one GPU: what vLLM's own profile of
Llama-3-8B on an H100 found beside PyTorch's tensors (vllm-project/vllm pull request 10511)."""
COLLECTIVES = -(-358 * GIB // 100) - FIXED
"""What the buffers of collective operations add with several GPUs: the same profile has 3.58 GiB in all with tp 2."""


class Share(NamedTuple):
    """The share of a GPU's memory that an engine takes: numerator / denominator, exact.

    Attributes:
        option: The engine's option that sets it.
        text: The share as it is written there.
    """

    option: str
    text: str
    numerator: int
    denominator: int


class Reserve(NamedTuple):
    """What is reserved on one GPU.

    Attributes:
        total: Bytes.
        parts: (name, label, figure) of what the formula names.
        note: What is estimated, as a sentence.
    """

    total: Quantity
    parts: tuple[tuple[str, str, Quantity], ...]
    note: str


def default_share(engine: str, args: EngineArgs, devices: int) -> Share:
    """Return the share of a GPU's memory that `engine` takes by default. devices: those that hold the model once."""
    defaults = engine_defaults(engine)
    return parse_share(defaults.share(args, devices), defaults.share_option)


def parse_share(text: str, option: str) -> Share:
    """Return a share above 0 and up to 1, exactly: '0.92'. Raises AttncalcError if it is not one."""
    numerator, denominator = parse_decimal(text, option, upper=1)
    return Share(option, text.strip(), numerator, denominator)


def reserve(model: ModelSpec, engine: str, limits: Limits, pp: int = 1, *, in_dtype: str | None = None) -> Reserve:
    """Return what is reserved on one of the model's devices.

    The tensors are: the residual and a layer's input, the widest tensors within one layer, and the logits in fp32
    with their probabilities. SGLang's share of the memory already leaves room for them, so it reserves the constant
    only. Raises AttncalcError for a dtype that activations cannot have.
    """
    reserves = engine_defaults(engine).reserves
    if reserves == "nothing":
        return Reserve(quantity(0), (), "")
    several = model.tp * pp > 1
    fixed: int = symbol("fixed", FIXED, "bytes estimated for the CUDA context, graphs and the allocator")
    if several:
        fixed = fixed + symbol("collectives", COLLECTIVES, "bytes estimated for the buffers of collective operations")
    constant = (
        f"{human(fixed, BYTES)} for the CUDA {'context, graphs and collectives' if several else 'context and graphs'}"
    )
    if reserves == "constant":
        return Reserve(quantity(fixed), (), f"The reserve is an estimate: {constant}. --reserve replaces it.")
    symbols = model.symbolic()
    tokens = symbol("N", limits.tokens, "tokens of one forward pass")
    width = symbol("bytes", dtype(in_dtype or model.dtype, compute=True).bits // 8, "bytes of an activation's element")
    widest = max((_widest(stack, layers) for stack, layers in symbols.groups()), key=int, default=quantity(0))
    live = quantity(tokens * (2 * symbols.main.d_model + widest) * width)
    parts = [("activations", "activations of one forward pass", live)]
    total: int = fixed + named(live, "activations", "bytes of the largest tensors of a forward pass")
    if model.vocab_size:
        rows = minimum(tokens, symbol("max_num_seqs", limits.sequences, "sequences of one step"))
        vocab = symbol("V", model.vocab_size, "tokens of the vocabulary")
        logits = quantity(rows * vocab * 8)  # 4 bytes in fp32, and as many for the probabilities
        parts.append(("logits", "logits and probabilities in fp32", logits))
        total = total + named(logits, "logits", "bytes of the logits and their probabilities in fp32")
    note = (
        f"The reserve is an estimate: the largest tensors of a pass over {count(limits.tokens)} tokens, logits of "
        f"{plural(min(limits.tokens, limits.sequences), 'sequence')}, and {constant}. --reserve replaces it."
    )
    return Reserve(quantity(total), tuple(parts), note)


def _widest(stack: Stack, layers: Layers) -> int:
    """Return the elements that one token has in the widest part of a layer: its attention, or its MLP."""
    widths = layers.attention.widths()
    attention = widths.n_heads * (widths.d_qk + widths.d_v) + widths.n_kv_heads * (widths.d_qk + widths.d_v)
    parts = [attention + widths.extra]
    if layers.mlp:
        mlp = (3 if layers.mlp.gated else 2) * layers.mlp.d_ff
        if layers.mlp.n_experts_per_token:  # each expert that a token picks has its own copy of the token
            parts.append(layers.mlp.n_experts_per_token * (mlp + stack.d_model))
        else:
            parts.append(quantity(mlp))
    return max(parts, key=int)
