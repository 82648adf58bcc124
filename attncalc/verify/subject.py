"""What is verified: one real layer for each distinct kind of attention layer in a model."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..attention import FULL, Attention, Cross, Grouped
from ..attention.recurrent import NoAttention
from ..cost.common import group_name
from ..model import ModelSpec, Stack
from ..workload import Mask, Workload
from .caches import Cache
from .device import DTYPES
from .kernels import reference, sdpa
from .layers import Attend, GroupedAttention, build
from .masks import EVERY_KEY, Seen, seen_by
from .states import RecurrentLayer, State, project

REFERENCE, RECURRENCE = "reference", "recurrence"


class Asked(NamedTuple):
    """What to verify with: sizes, the dtype of weights and activations, kernels, and the seed."""

    batch: int
    context: int
    source: int | None
    dtype: str
    kernels: tuple[str, ...]
    seed: int = 0

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype as torch has it."""
        return DTYPES[self.dtype]

    def workload(self, context: int) -> Workload:
        """A prefill of so many tokens, as the cost functions are asked about it."""
        return Workload.prefill(self.batch, context, source=self.source, dtype=self.dtype)


class Subject(NamedTuple):
    """One attention of a model: the self- or the cross-attention of the layer groups named.

    layers: how many layers have it, in all groups; own: those of them whose weights are their own.
    """

    groups: tuple[str, ...]
    stack: Stack
    kind: Attention
    d_source: int
    layers: int
    own: int

    @property
    def group(self) -> str:
        """The first of its layer groups, which stands for all of them."""
        return self.groups[0]

    @property
    def name(self) -> str:
        """'decoder', 'decoder_cross', 'dense and moe': unique in the model."""
        return " and ".join(f"{group}_cross" if self.crosses else group for group in self.groups)

    @property
    def layer_name(self) -> str:
        """What the cost functions call it: the name of its first layer group."""
        return f"{self.group}_cross" if self.crosses else self.group

    @property
    def crosses(self) -> bool:
        """Whether its keys come from a source."""
        return isinstance(self.kind, Cross)

    @property
    def mask(self) -> Mask:
        """Which keys its queries see."""
        return Mask("bidirectional") if self.crosses else self.stack.mask

    @property
    def decodes(self) -> bool:
        """Whether it takes one token after another, and keeps something for the later ones."""
        return self.stack.has_cache and bool(self.kind.cache())


def subjects(model: ModelSpec) -> tuple[Subject, ...]:
    """Every distinct attention of a model; of a symbolic model in symbols, in the same order."""
    found: dict[object, Subject] = {}
    for stack, layers in model.groups():
        group = group_name(model, stack, layers)
        for kind in layers.attentions:
            if isinstance(kind, NoAttention):
                continue
            d_source = model.d_source if kind is layers.cross else stack.d_model
            key = (kind, stack.name, d_source)
            known = found.get(key) or Subject((), stack, kind, d_source, 0, 0)
            found[key] = known._replace(
                groups=(*known.groups, group),
                layers=known.layers + int(layers.count),
                own=known.own + (0 if layers.shares_weights else int(layers.count)),
            )
    return tuple(found.values())


class Layer:
    """A layer with random weights, and random tokens to give it."""

    def __init__(self, subject: Subject, asked: Asked, where: torch.device, random: torch.Generator) -> None:
        self.subject, self.asked, self.where, self.random = subject, asked, where, random
        self.d_model = int(subject.stack.d_model)
        kind = subject.kind
        with torch.device("meta"):
            module = build(kind, self.d_model, subject.d_source)
        self.module = filled(module.to(asked.torch_dtype).to_empty(device=where), random)
        tokens = (asked.source or 0) if subject.stack.input == "source" else asked.context
        self.x = self.tokens(tokens, (kind.d_input if isinstance(kind, Grouped) else None) or self.d_model)
        if isinstance(kind, Grouped) and kind.shares_kv and isinstance(self.module, GroupedAttention):
            widths = (kind.d_head, kind.d_v or kind.d_head)
            k, v = (self.tokens(tokens, kind.n_kv_heads * n).unflatten(-1, (-1, n)) for n in widths)
            self.module.earlier = (k, v)
        self.source = self.tokens(asked.source or 0, subject.d_source) if subject.crosses else None

    def cached_bytes(self, keys: int) -> int:
        """Bytes of K and V, or of the latent, of so many tokens of the batch."""
        width = sum(c.rows * c.width for c in self.subject.kind.cache())
        return self.asked.batch * keys * width * self.x.itemsize

    def tokens(self, number: int, width: int) -> Tensor:
        """(B, number, width) of a normal distribution, as a norm would leave them."""
        shape = (self.asked.batch, number, width)
        return torch.randn(shape, generator=self.random, device=self.where, dtype=self.asked.torch_dtype)

    @property
    def steps(self) -> bool:
        """Whether it takes token after token by a recurrence, with no kernel of attention."""
        return isinstance(self.module, RecurrentLayer)

    def kept(self) -> Cache | State:
        """What the layer keeps, before its first token."""
        return State() if self.steps else self.cache()

    def cache(self, reserved: int = 0) -> Cache:
        """An empty cache of what the layer keeps."""
        return Cache(FULL if self.subject.crosses else self.subject.kind.span, reserved)

    def full_cache(self, tokens: int) -> Cache:
        """A cache that holds that many tokens but one, with room for the last; a source's K and V are its own."""
        one = self.cache()
        self.prefill(1, attend_by(REFERENCE, EVERY_KEY), one)
        if self.subject.crosses:
            return one
        full = self.cache(tokens)
        shapes = [(row.shape[0], tokens - 1, *row.shape[2:]) for row in one.rows]
        full.extend(*(torch.randn(s, generator=self.random, device=self.where, dtype=self.x.dtype) for s in shapes))
        return full

    def seen(self, tokens: int) -> Seen:
        """What `tokens` new tokens without a past are shown."""
        if self.subject.crosses:
            return EVERY_KEY
        positions = torch.arange(tokens, device=self.where)
        return seen_by(self.subject.kind.span, self.subject.mask, positions, positions)

    def seen_by_next(self, cache: Cache | State) -> Seen:
        """What the one token that `cache` takes in next will be shown."""
        if self.subject.crosses or isinstance(cache, State):
            return EVERY_KEY
        here = torch.tensor([cache.seen], device=self.where)
        return seen_by(self.subject.kind.span, self.subject.mask, here, cache.positions_after(1).to(self.where))

    def prefill(self, tokens: int, attend: Attend, cache: Cache | State | None = None) -> Tensor:
        """The first `tokens` at once: (B, tokens, d_model). A recurrent layer has no use for `attend`."""
        if self.steps:
            return project(self.module, self.x[:, :tokens], cache or State())
        from_source = () if self.source is None else (self.source,)
        y: Tensor = self.module(self.x[:, :tokens], attend, cache, *from_source)
        return y

    def step(self, at: int, attend: Attend, cache: Cache | State) -> Tensor:
        """The token at position `at`, after those in the cache: (B, 1, d_model)."""
        x = self.x[:, at : at + 1]
        if isinstance(cache, State):
            return project(self.module, x, cache)
        if isinstance(self.module, GroupedAttention) and self.source is not None:
            return self.module.again(x, attend, cache)
        y: Tensor = self.module(x, attend, cache)
        return y

    def decode(self, at: int, kernel: str, cache: Cache | State) -> Tensor:
        """`step` by this kernel, with what the token sees."""
        return self.step(at, attend_by(kernel, self.seen_by_next(cache)), cache)


def attend_by(kernel: str, seen: Seen, *, with_sinks: bool = True) -> Attend:
    """A kernel, or the reference, with what its queries see; a layer's sinks can be left out."""

    def attend(q: Tensor, k: Tensor, v: Tensor, *, scale: float, sinks: Tensor | None) -> Tensor:
        given = sinks if with_sinks else None
        if kernel == REFERENCE:
            return reference(q, k, v, seen, scale, given)
        return sdpa(kernel, q, k, v, seen, scale, given)

    return attend


def filled(module: nn.Module, random: torch.Generator) -> nn.Module:
    """The module with weights that keep a token's spread: variance 1 / fan-in; gains near 1, sinks near 0."""
    for name, parameter in module.named_parameters():
        if parameter.dim() > 1:
            reach = (3 / parameter.shape[-1]) ** 0.5
            parameter.uniform_(-reach, reach, generator=random)
        else:
            parameter.uniform_(-0.5, 0.5, generator=random)
            if name.endswith("norm.weight"):
                parameter.add_(1)
    return module
