"""A model with other sizes: `--layers 16`, `--kv-heads 4`, `--window 4096`, `--pattern '5 local, 1 global'`.

Only the stack that reads the target's tokens changes, and everything that is not named stays as released.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from .attention import FULL, Attention, Grouped, Sliding
from .errors import AttncalcError
from .model import MAX_LAYERS, Layers, ModelSpec
from .units import count, parse_count, truncate

_LOCAL, _GLOBAL = ("local", "sliding", "window"), ("global", "full")
_EXAMPLE = "write '5 local, 1 global'"


def parse_pattern(text: str, name: str) -> tuple[bool, ...]:
    """Return whether each layer of a pattern is local: (True, True, False) for '2 local, 1 global'.

    Raises AttncalcError if the text is no pattern, or has more layers than a model may have.
    """
    layers: list[bool] = []
    for part in text.split(","):
        match = re.fullmatch(r"(?:(\d{1,9}) ?)?([a-z]+)", part.strip().lower())
        if match is None or match[2] not in (*_LOCAL, *_GLOBAL):
            raise AttncalcError(f"{name}: '{truncate(part.strip())}' is neither local nor global", _EXAMPLE)
        number = parse_count(match[1] or "1", name)
        if len(layers) + number > MAX_LAYERS:
            raise AttncalcError(f"{name}: more than {MAX_LAYERS:,} layers", _EXAMPLE)
        layers += [match[2] in _LOCAL] * number
    return tuple(layers)


def what_if(
    model: ModelSpec,
    *,
    attention: str | None = None,
    layers: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    window: int | None = None,
    pattern: Sequence[bool] | None = None,
) -> ModelSpec:
    """Return the model with other sizes.

    Args:
        model: The model as released.
        attention: 'mha', 'mqa', 'gqa:N', 'mla:R' or 'linear'.
        layers: Layers; further ones continue the order of the released ones.
        heads: Query heads. MHA stays MHA.
        kv_heads: Key and value heads.
        head_dim: Elements of a head.
        window: Tokens that a layer sees, of all layers or of the local ones of the pattern.
        pattern: Whether each layer of a repeating pattern is local.

    Raises AttncalcError if the model has no such sizes, or they contradict.
    """
    changed = model.with_attention(attention) if attention else model
    if heads or kv_heads or head_dim:
        changed = _with_heads(changed, heads, kv_heads, head_dim)
    if layers:
        changed = _with_layers(changed, layers)
    if window or pattern:
        changed = _with_windows(changed, window, pattern)
    return changed if changed is model else dataclasses.replace(changed, stored=None)


def _with_heads(model: ModelSpec, heads: int | None, kv_heads: int | None, head_dim: int | None) -> ModelSpec:
    def changed(kind: Attention) -> Attention:
        if not isinstance(kind, Grouped):
            return kind
        n_heads = heads or kind.n_heads
        n_kv_heads = kv_heads or (n_heads if kind.n_kv_heads == kind.n_heads else kind.n_kv_heads)
        return dataclasses.replace(kind, n_heads=n_heads, n_kv_heads=n_kv_heads, d_head=head_dim or kind.d_head)

    kinds = [group.attention for group in model.main.layers]
    if not any(isinstance(kind, Grouped) for kind in kinds):
        name = "--heads" if heads else "--kv-heads" if kv_heads else "--head-dim"
        raise AttncalcError(f"{name}: {kinds[0].label} has no such heads", "it changes MHA, GQA and MQA only")
    return _with_attentions(model, changed)


def _with_layers(model: ModelSpec, number: int) -> ModelSpec:
    if number > MAX_LAYERS:
        raise AttncalcError(f"--layers {count(number)} is more than {MAX_LAYERS:,}", "give fewer layers")
    released = list(_one_by_one(model))
    period = _period(released)
    further = [released[len(released) - period + i % period] for i in range(max(0, number - len(released)))]
    return _with_stack(model, [*released, *further][:number])


def _period(layers: Sequence[Layers]) -> int:
    """Return after how many layers their order repeats; 1 if it does not, so that the last layer is repeated."""
    for period in range(1, len(layers) // 2 + 1):
        if all(layers[i] == layers[i - period] for i in range(period, len(layers))):
            return period
    return 1


def _with_windows(model: ModelSpec, window: int | None, pattern: Sequence[bool] | None) -> ModelSpec:
    windows = {group.attention.span.reach for group in model.main.layers if hasattr(group.attention, "span")}
    if not windows:
        raise AttncalcError("--window: no layer of this model can have a window", "leave it out")
    released = [reach for reach in windows if reach]
    if window is None and pattern and any(pattern) and len(released) != 1:
        raise AttncalcError("--pattern needs --window", "give the tokens that a local layer sees, as --window 4096")
    local = Sliding(int(window or released[0])) if window or released else FULL
    is_local = pattern or (True,)

    def spanned(i: int, layer: Layers) -> Layers:
        if not hasattr(layer.attention, "span"):
            return layer
        span = local if is_local[i % len(is_local)] else FULL
        return dataclasses.replace(layer, attention=layer.attention.with_span(span))

    return _with_stack(model, [spanned(i, layer) for i, layer in enumerate(_one_by_one(model))])


def _with_attentions(model: ModelSpec, change: Callable[[Attention], Attention]) -> ModelSpec:
    changed = [dataclasses.replace(layer, attention=change(layer.attention)) for layer in _one_by_one(model)]
    return _with_stack(model, changed)


def _one_by_one(model: ModelSpec) -> Iterator[Layers]:
    """Yield the layers of the main stack in order, each as a group of its own."""
    for group in model.main.layers:
        yield from [dataclasses.replace(group, count=1)] * group.count


def _with_stack(model: ModelSpec, layers: Sequence[Layers]) -> ModelSpec:
    """Return the model with these layers in its main stack, equal neighbours together."""
    groups = tuple(dataclasses.replace(layer, count=len(list(equal))) for layer, equal in groupby(layers))
    return dataclasses.replace(model, stacks=(*model.stacks[:-1], dataclasses.replace(model.main, layers=groups)))
