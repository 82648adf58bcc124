"""One forward pass of transformers' own class, without values: what it keeps, and the products of its attention."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from .theirs import Theirs, Unit, quiet

STATE = re.compile(r"state|linear_cache")
"""What a cache calls the tensors that do not grow."""


class Products(NamedTuple):
    """FLOPs of linear layers, and of products of batches of matrices.

    added: of those that are added to something at once, as to a bias.
    """

    linear: int = 0
    batched: int = 0
    added: int = 0


class Call(NamedTuple):
    """An attention module as it ran."""

    unit: Unit
    products: Products = Products()


class Ran(NamedTuple):
    """What one forward pass kept, in bytes, and its calls of attention modules in order.

    cached: whether it returned a cache at all. context, source, state: by what it scales_with with.
    """

    cached: bool
    context: int
    source: int
    state: int
    calls: tuple[Call, ...]


def forward(theirs: Theirs, units: Sequence[Unit], batch: int, tokens: int, source: int | None, *, cached: bool) -> Ran:
    """Run over `tokens` of each sequence, with `source` tokens on an encoder's side.

    Exception, of any kind: the class looks at values, which a tensor without storage does not have.
    """
    inputs = _inputs(theirs, batch, tokens, source)
    calls: list[Call] = []
    with quiet(), torch.no_grad(), FlopCounterMode(display=False) as counter:
        hooks = [hook for unit in units for hook in _listen(theirs.model, unit, counter, calls)]
        try:
            out = theirs.model(**inputs, **({"use_cache": True} if cached else {}))
        finally:
            for hook in hooks:
                hook.remove()
    kept = [out[name] for name in ("past_key_values", "cache_params", "state") if out.get(name) is not None]
    bytes_of = {"context": 0, "source": 0, "state": 0}
    for scales_with, tensor in _tensors(kept, "state" if "state" in out else "context", set()):
        bytes_of[scales_with] += tensor.numel() * tensor.element_size()
    return Ran(bool(kept), **bytes_of, calls=tuple(calls))


def _listen(model: nn.Module, unit: Unit, counter: FlopCounterMode, calls: list[Call]) -> list[Any]:
    """Hooks that note each call of a module, with the products that it added to the counter.

    What a linear layer of a kind of its own does in batches of matrices (DeepSeek-V4's, by groups) is linear.
    """
    module = model.get_submodule(unit.path)
    before: dict[nn.Module, Products] = {}
    in_blocks: list[int] = []

    def enter(entered: nn.Module, *_: object) -> None:
        before[entered] = _products(counter)

    def leave(left: nn.Module, *_: object) -> None:
        spent = Products(*(now - then for now, then in zip(_products(counter), before[left], strict=True)))
        if left is not module:
            in_blocks.append(spent.batched)
            return
        moved = sum(in_blocks)
        in_blocks.clear()
        calls.append(Call(unit, spent._replace(linear=spent.linear + moved, batched=spent.batched - moved)))

    own = [part for part in module.modules() if isinstance(part, nn.Linear) and type(part) is not nn.Linear]
    heard = (module, *own)
    return [hook for m in heard for hook in (m.register_forward_pre_hook(enter), m.register_forward_hook(leave))]


def _products(counter: FlopCounterMode) -> Products:
    """The products that were counted so far."""
    of = {str(op).rpartition(".")[2]: int(n) for op, n in counter.get_flop_counts().get("Global", {}).items()}
    return Products(of.get("mm", 0) + of.get("addmm", 0), of.get("bmm", 0), of.get("baddbmm", 0))


def _inputs(theirs: Theirs, batch: int, tokens: int, source: int | None) -> dict[str, Any]:
    ids = torch.zeros(batch, tokens, dtype=torch.long, device="meta")
    dtype = next(theirs.model.parameters()).dtype
    config: Any = theirs.model.config
    if theirs.input == "pixel_values":
        size = config.image_size
        sides = size if isinstance(size, (list, tuple)) else (size, size)
        return {"pixel_values": torch.zeros(batch, config.num_channels, *sides, dtype=dtype, device="meta")}
    if theirs.input == "input_features":  # two frames of sound make a token
        features = torch.zeros(batch, config.num_mel_bins, 2 * (source or 0), dtype=dtype, device="meta")
        return {"input_features": features, "decoder_input_ids": ids}
    if theirs.crosses:
        read = torch.zeros(batch, source or 0, dtype=torch.long, device="meta")
        return {"input_ids": read, "decoder_input_ids": ids}
    if theirs.has_towers:  # without a cache of its own it looks for packed sequences among the positions
        from transformers import DynamicCache

        return {"input_ids": ids, "past_key_values": DynamicCache(config=config)}
    return {"input_ids": ids}


def _tensors(found: object, scales_with: str, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a cache, each once, with what they grow with."""
    if id(found) in seen:
        return
    seen.add(id(found))
    if isinstance(found, Tensor):
        if found.dim() > 1:  # others are lengths and positions
            yield scales_with, found
    elif isinstance(found, (list, tuple)):
        for part in found:
            yield from _tensors(part, scales_with, seen)
    elif isinstance(found, dict) or type(found).__module__.startswith("transformers."):
        parts = found if isinstance(found, dict) else vars(found)
        for name, part in parts.items():
            if name == "config":
                continue
            of = "source" if "cross" in str(name) else "state" if STATE.search(str(name)) else scales_with
            yield from _tensors(part, of, seen)
