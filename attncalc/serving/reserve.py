"""What an engine takes of a GPU, and what it keeps back of that: an assumption, which people replace.

The largest tensors of one forward pass have a formula; what the driver, graphs and libraries hold has none,
and a constant stands for it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..engines import engine_defaults
from ..engines.base import EngineArgs
from ..engines.defaults import Limits
from ..errors import AttncalcError
from ..model import Layers, ModelSpec, Stack, plural
from ..quantity import Quantity, minimum, named, quantity, symbol
from ..units import BYTES, GIB, count, dtype, human, truncate

FIXED = -(-179 * GIB // 100)
"""1.79 GiB for the CUDA context, graphs, libraries and the allocator's gaps on one GPU: what vLLM's own profile of
Llama-3-8B on an H100 found beside PyTorch's tensors (vllm-project/vllm pull request 10511)."""
PEERS = -(-358 * GIB // 100) - FIXED
"""What the buffers of collective operations add where there are several: 3.58 GiB in all with tp 2 there."""


class Share(NamedTuple):
    """What an engine takes of a GPU's memory, numerator / denominator, by the option that sets it.

    text: as it is written there.
    """

    option: str
    text: str
    numerator: int
    denominator: int


class Reserve(NamedTuple):
    """Bytes kept back on one device. parts: (name, label, figure) of what its formula names; note: what is assumed."""

    total: Quantity
    parts: tuple[tuple[str, str, Quantity], ...]
    note: str


def share(engine: str, args: EngineArgs, devices: int) -> Share:
    """What `engine` takes of a GPU's memory where nobody has said. devices: that hold the model once."""
    its = engine_defaults(engine)
    return parse_share(its.share(args, devices), its.share_option)


def parse_share(text: str, option: str) -> Share:
    """A share above 0 and up to 1, exact: '0.92'. AttncalcError: for anything else."""
    found = re.fullmatch(r"(0|1)?(?:\.(\d{1,12}))?", text.strip(), re.ASCII)
    whole, fraction = (found[1] or "0", found[2] or "") if found else ("0", "")
    numerator, denominator = int(whole + fraction), 10 ** len(fraction)
    if not 0 < numerator <= denominator:
        raise AttncalcError(f"{option}: '{truncate(text)}' is not a share above 0 and up to 1", "write 0.92, or 1")
    return Share(option, text.strip(), numerator, denominator)


def reserve(model: ModelSpec, engine: str, of: Limits, pp: int = 1, *, in_dtype: str | None = None) -> Reserve:
    """What is kept back on one of the model's devices.

    Tensors: the residual and a layer's input, the widest that is live inside one layer, and the logits in
    fp32 with their probabilities; some engines' share leaves room for them already. AttncalcError: for a
    dtype that activations cannot have.
    """
    keeps_back = engine_defaults(engine).keeps_back
    if keeps_back == "nothing":
        return Reserve(quantity(0), (), "")
    several = model.tp * pp > 1
    fixed: int = symbol("fixed", FIXED, "bytes assumed for the context, graphs and the allocator")
    if several:
        fixed = fixed + symbol("peers", PEERS, "bytes assumed for the buffers of collective operations")
    words = f"{human(int(fixed), BYTES)} for {'context, graphs and collectives' if several else 'context and graphs'}"
    if keeps_back == "constant":
        return Reserve(quantity(fixed), (), f"The reserve is an assumption: {words}. --reserve replaces it.")
    symbols = model.symbolic()
    tokens = symbol("N", of.tokens, "tokens of one forward pass")
    width = symbol("bytes", dtype(in_dtype or model.dtype, compute=True).bits // 8, "bytes of an activation's element")
    inside = max((_widest(stack, layers) for stack, layers in symbols.groups()), key=int, default=quantity(0))
    live = quantity(tokens * (2 * symbols.main.d_model + inside) * width)
    parts = [("activations", "activations of one forward pass", live)]
    found: int = fixed + named(live, "activations", "bytes of the largest tensors of a forward pass")
    if model.vocab_size:
        rows = minimum(tokens, symbol("max_num_seqs", of.sequences, "sequences of one step"))
        vocab = symbol("V", model.vocab_size, "tokens of the vocabulary")
        logits = quantity(rows * vocab * 8)  # fp32, and their probabilities
        parts.append(("logits", "logits and probabilities in fp32", logits))
        found = found + named(logits, "logits", "bytes of the logits and their probabilities in fp32")
    note = (
        f"The reserve is an assumption: the largest tensors of a pass over {count(of.tokens)} tokens, logits of "
        f"{plural(min(of.tokens, of.sequences), 'sequence')}, and {words}. --reserve replaces it."
    )
    return Reserve(quantity(found), tuple(parts), note)


def _widest(stack: Stack, layers: Layers) -> int:
    """Elements a token has in the widest part of a layer: its attention, or its MLP."""
    around = layers.attention.widths()
    attention = around.n_heads * (around.d_qk + around.d_v) + around.n_kv_heads * (around.d_qk + around.d_v)
    found = [attention + around.extra]
    if layers.mlp:
        one = (3 if layers.mlp.gated else 2) * layers.mlp.d_ff
        if layers.mlp.n_experts_per_token:  # each expert that a token picks has its own copy of the token
            found.append(layers.mlp.n_experts_per_token * (one + stack.d_model))
        else:
            found.append(quantity(one))
    return max(found, key=int)
