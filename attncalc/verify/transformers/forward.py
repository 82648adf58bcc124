"""One forward pass of a transformers class on meta tensors: the bytes of its cache, the FLOPs of
its attention.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ...records import NamedTuple
from .model import AttentionModule, TransformersModel, quiet

# Names of a cache's tensors that do not grow with the tokens.
STATE = re.compile(r"state|linear_cache")


class MatmulFlops(NamedTuple):
    """FLOPs of matrix products."""

    linear: int = 0  # of linear layers (mm, addmm)
    batched: int = 0  # of batched matmuls (bmm)
    batched_bias: int = 0  # of batched matmuls that add a bias (baddbmm)


class ModuleCall(NamedTuple):
    """One call of an attention module, and the FLOPs that it added."""

    module: AttentionModule
    flops: MatmulFlops = MatmulFlops()


class ForwardResult(NamedTuple):
    """What one forward pass returned."""

    has_cache: bool  # whether it returned a cache
    context: int  # bytes of the cache that grow with the context
    source: int  # bytes of the cache that grow with the source
    state: int  # bytes of the cache that do not grow
    calls: tuple[ModuleCall, ...]  # calls of attention modules, in order


def forward(
    hf_model: TransformersModel,
    modules: Sequence[AttentionModule],
    batch: int,
    tokens: int,
    source: int | None,
    *,
    use_cache: bool,
) -> ForwardResult:
    """Run the model over `tokens` tokens of each sequence, with `source` tokens on the encoder's
    side.

    Raises any exception if the class reads values, which meta tensors do not have.
    """
    inputs = _inputs(hf_model, batch, tokens, source)
    calls: list[ModuleCall] = []
    with quiet(), torch.no_grad(), FlopCounterMode(display=False) as counter:
        hooks = [
            hook
            for module in modules
            for hook in _record_calls(hf_model.model, module, counter, calls)
        ]
        try:
            out = hf_model.model(**inputs, **({"use_cache": True} if use_cache else {}))
        finally:
            for hook in hooks:
                hook.remove()
    caches = [
        out[name]
        for name in ("past_key_values", "cache_params", "state")
        if out.get(name) is not None
    ]
    bytes_of = {"context": 0, "source": 0, "state": 0}
    for per, tensor in _cache_tensors(caches, "state" if "state" in out else "context", set()):
        bytes_of[per] += tensor.numel() * tensor.element_size()
    return ForwardResult(bool(caches), **bytes_of, calls=tuple(calls))


def _record_calls(
    model: nn.Module,
    attention_module: AttentionModule,
    counter: FlopCounterMode,
    calls: list[ModuleCall],
) -> list[Any]:
    """Add hooks that append each call of a module, with its FLOPs, to `calls`; return the hooks.

    Batched matmuls inside a subclass of nn.Linear count as linear: DeepSeek-V4's grouped projection
    is one.
    """
    module = model.get_submodule(attention_module.path)
    before: dict[nn.Module, MatmulFlops] = {}
    batched_in_linear: list[int] = []

    def enter(called: nn.Module, *_: object) -> None:
        before[called] = _counted(counter)

    def leave(called: nn.Module, *_: object) -> None:
        flops = MatmulFlops(
            *(now - then for now, then in zip(_counted(counter), before[called], strict=True))
        )
        if called is not module:
            batched_in_linear.append(flops.batched)
            return
        moved = sum(batched_in_linear)
        batched_in_linear.clear()
        flops = flops._replace(linear=flops.linear + moved, batched=flops.batched - moved)
        calls.append(ModuleCall(attention_module, flops))

    linears = [m for m in module.modules() if isinstance(m, nn.Linear)]
    hooked = (module, *(linear for linear in linears if type(linear) is not nn.Linear))
    return [
        hook
        for m in hooked
        for hook in (m.register_forward_pre_hook(enter), m.register_forward_hook(leave))
    ]


def _counted(counter: FlopCounterMode) -> MatmulFlops:
    flops = {
        str(op).rpartition(".")[2]: int(n)
        for op, n in counter.get_flop_counts().get("Global", {}).items()
    }
    return MatmulFlops(
        flops.get("mm", 0) + flops.get("addmm", 0), flops.get("bmm", 0), flops.get("baddbmm", 0)
    )


def _inputs(
    hf_model: TransformersModel, batch: int, tokens: int, source: int | None
) -> dict[str, Any]:
    ids = torch.zeros(batch, tokens, dtype=torch.long, device="meta")
    dtype = next(hf_model.model.parameters()).dtype
    config: Any = hf_model.model.config
    if hf_model.input_name == "pixel_values":
        size = config.image_size
        sides = size if isinstance(size, (list, tuple)) else (size, size)
        return {
            "pixel_values": torch.zeros(
                batch, config.num_channels, *sides, dtype=dtype, device="meta"
            )
        }
    if hf_model.input_name == "input_features":  # two audio frames make one token
        features = torch.zeros(
            batch, config.num_mel_bins, 2 * (source or 0), dtype=dtype, device="meta"
        )
        return {"input_features": features, "decoder_input_ids": ids}
    if hf_model.is_encoder_decoder:
        source_ids = torch.zeros(batch, source or 0, dtype=torch.long, device="meta")
        return {"input_ids": source_ids, "decoder_input_ids": ids}
    if hf_model.has_towers:  # without a cache, the class reads positions to find packed sequences
        from transformers import DynamicCache

        return {"input_ids": ids, "past_key_values": DynamicCache(config=config)}
    return {"input_ids": ids}


def _size_depends_on(name: str, outer: str) -> str:
    """Return what the size of a cache's attribute depends on: as what it is in, by default."""
    if "cross" in name:
        return "source"
    if STATE.search(name):
        return "state"
    return outer


def _cache_tensors(value: object, per: str, visited: set[int]) -> Iterator[tuple[str, Tensor]]:
    """Yield ('context', 'source' or 'state', tensor) for each tensor inside a cache: what its size
    depends on.
    """
    if id(value) in visited:
        return
    visited.add(id(value))
    if isinstance(value, Tensor):
        if value.dim() > 1:  # tensors of one dimension are lengths and positions
            yield per, value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _cache_tensors(item, per, visited)
    elif isinstance(value, dict) or type(value).__module__.startswith("transformers."):
        items = value if isinstance(value, dict) else vars(value)
        for name, item in items.items():
            if name == "config":
                continue
            yield from _cache_tensors(item, _size_depends_on(str(name), per), visited)
