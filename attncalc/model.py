"""A model as a list of layer groups: what the cost functions ask their questions of.

A `ModelSpec` knows no file format and no family name. Cost scales_with with its distinct layers, not with
how many there are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from .attention import FULL, Attention, CacheSpec, Matrix, Variant
from .checkpoint import CheckpointWeights
from .errors import AttncalcError
from .mlp import Mlp
from .quantity import Quantity, ceil_div, documented, named, symbol, symbolic
from .units import count, truncate
from .workload import CAUSAL, Mask, Run, Workload


@dataclass(frozen=True)
class Layers:
    """`count` equal layers, in a row in a stack's order, or gathered by `Stack.distinct`.

    shares_weights: its weights are those of layers counted elsewhere (ALBERT, Zamba). extra: further
    tensors of a layer; those that read something multiply every token.
    """

    name: str
    count: int = documented("layers", symbol="L")
    attention: Attention = dataclasses.field(kw_only=True)
    cross: Attention | None = None
    mlp: Mlp | None = None
    norms: int = documented("norms of a layer", default=2)
    shares_weights: bool = False
    extra: tuple[Matrix, ...] = ()

    @property
    def attentions(self) -> tuple[Attention, ...]:
        """Its self-attention, and its cross-attention where it has one."""
        return (self.attention, self.cross) if self.cross else (self.attention,)

    def cache(self) -> tuple[CacheSpec, ...]:
        """What one layer keeps for later tokens."""
        return tuple(kept for attention in self.attentions for kept in attention.cache())

    def with_variant(self, variant: Variant) -> Layers:
        """Itself with its attentions as `variant`. AttncalcError: its heads do not allow it."""
        cross = variant.apply(self.cross) if self.cross else None
        return dataclasses.replace(self, attention=variant.apply(self.attention), cross=cross)

    def with_full_attention(self) -> Layers:
        """Itself without a window or a chunk."""
        return dataclasses.replace(self, attention=self.attention.with_span(FULL))

    def shard(self, tp: int) -> Layers:
        return dataclasses.replace(
            self,
            attention=self.attention.shard(tp),
            cross=self.cross.shard(tp) if self.cross else None,
            mlp=self.mlp.shard(tp) if self.mlp else None,
        )


@dataclass(frozen=True)
class Stack:
    """Layers in order, with what stands before and after them.

    input: the tokens it runs over: the target's, or the source's (the encoder of an encoder-decoder).
    learned_positions: rows of a learned (or stored) position table. relative_position_buckets: rows
    of T5's table, n_heads wide. final_norm, embedding_norm: there is one.
    """

    name: str
    layers: tuple[Layers, ...]
    d_model: int = documented("width of the model")
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    input: Literal["target", "source"] = "target"
    mask: Mask = CAUSAL
    learned_positions: int | None = documented("learned positions", default=None)
    relative_position_buckets: int | None = documented("buckets of T5's relative positions", default=None)
    embedding_norm: bool = False
    final_norm: bool = True
    max_context: int | None = None

    @property
    def norm_vectors(self) -> int:
        """Vectors of d_model elements in a norm: a gain, and LayerNorm's bias."""
        return 2 if self.norm == "layernorm" else 1

    @property
    def leading(self) -> Attention:
        """The attention of its first layer that has an attention kernel, of its first layer where none has:
        what stands for the stack where one must.
        """
        kinds = [group.attention for group in self.layers]
        return next((kind for kind in kinds if kind.widths().n_heads), kinds[0])

    @property
    def n_layers(self) -> int:
        return sum(int(group.count) for group in self.layers)

    def distinct(self) -> tuple[Layers, ...]:
        """One group for each distinct kind of layer, in order of appearance, with its whole count."""
        counts: dict[Layers, int] = {}
        for group in self.layers:
            alike = dataclasses.replace(group, count=1)
            counts[alike] = counts.get(alike, 0) + group.count
        return tuple(dataclasses.replace(group, count=n) for group, n in counts.items())

    @property
    def has_cache(self) -> bool:
        """An encoder sees all its tokens at once and keeps nothing for later ones."""
        return self.mask.kind != "bidirectional"

    def runs(self, workload: Workload) -> tuple[Run, ...]:
        """The sequences this stack runs over: none for an encoder whose output is already there."""
        if self.input == "target":
            return workload.runs
        if workload.phase == "decode" or workload.past or not workload.source:
            return ()
        return (Run(workload.batch, workload.source, workload.source),)


class Head(NamedTuple):
    """What follows the last layer. kind: lm (d_model x vocab_size), pooler (d_model x d_model).

    tied: an lm head that uses the embedding's own matrix and adds no parameters.
    """

    kind: Literal["lm", "pooler"]
    tied: bool = False
    bias: bool = False


@dataclass(frozen=True)
class ModelSpec:
    """A whole model: an embedding, one stack or two (an encoder first), a head.

    vocab_size: rows of the token embedding; None for a model without one. token_types: BERT's.
    dtype: as released. extra: further parameter tensors; those that read something multiply every token.
    sources: where its facts are from. notes: what a reader of its figures must know. assumed: what all
    its figures rest on that nobody has said. tp: tensor-parallel devices that hold it; figures are then
    one device's. stored: what its files hold, all devices' together; None where none were read.
    model_type: what its config.json calls it, where an engine decides by it; None where nothing says.
    weights_dtype: what its files keep the matrices of attention and MLPs in, where that is not `dtype`.
    experts_dtype: the same of its routed experts, where they alone are kept so.
    """

    name: str
    title: str
    stacks: tuple[Stack, ...]
    vocab_size: int | None = documented("tokens of the vocabulary", symbol="V", default=None)
    token_types: int | None = documented("token types", default=None)
    d_embedding: int | None = documented(
        "width of the token embedding and the lm head", left_out="d_model", default=None
    )
    head: Head | None = None
    dtype: str = "fp16"
    extra: tuple[Matrix, ...] = ()
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    assumed: str = ""
    tp: int = 1
    stored: CheckpointWeights | None = None
    model_type: str | None = None
    weights_dtype: str | None = None
    experts_dtype: str | None = None

    @property
    def main(self) -> Stack:
        """The stack that reads the target's tokens: the decoder, or an encoder on its own."""
        return self.stacks[-1]

    @property
    def encoder(self) -> Stack | None:
        """The stack that reads the source, if there is one."""
        return self.stacks[0] if self.stacks[0].input == "source" else None

    @property
    def d_source(self) -> int:
        """Width of what cross-attention makes its keys from."""
        width = self.stacks[0].d_model
        alike = width == self.main.d_model or not isinstance(width, Quantity)
        return width if alike else named(width, "d_source", "width of the encoder")

    @property
    def table_width(self) -> int:
        """Width of the token embedding and of what the lm head reads."""
        return self.d_embedding or self.main.d_model

    @property
    def max_context(self) -> int | None:
        """The longest context it was made for; None where it names none."""
        return self.main.max_context

    @property
    def headline(self) -> str:
        """Its attention in words: 'grouped-query attention, 64 query and 8 KV heads x 128, 80 layers'."""
        kinds = " and ".join(dict.fromkeys(group.attention.headline for group in self.main.layers))
        layers = f"{self.main.n_layers} layers"
        if self.encoder:
            layers = f"{self.encoder.n_layers} encoder and {self.main.n_layers} decoder layers"
        return f"{kinds}, {layers}"

    def groups(self) -> Iterator[tuple[Stack, Layers]]:
        """Every stack with each of its distinct layer groups."""
        for stack in self.stacks:
            for layers in stack.distinct():
                yield stack, layers

    def symbolic(self, *, gathered: bool = True) -> ModelSpec:
        """One device's part with every number a symbol: what formulas are made of.

        gathered: equal layers in one group; else all groups in the model's order.
        """
        stacks = self.stacks
        if gathered:
            stacks = tuple(dataclasses.replace(stack, layers=stack.distinct()) for stack in self.stacks)
        model = symbolic(dataclasses.replace(self, stacks=stacks, extra=()))
        return dataclasses.replace(model, extra=self.extra)._split(symbol("tp", self.tp, "tensor-parallel devices"))

    def plain(self) -> ModelSpec:
        """One device's part in plain ints: what sweeps and searches run on."""
        return self._split(self.tp)

    def shard(self, tp: int) -> ModelSpec:
        """Itself over `tp` tensor-parallel devices. AttncalcError: where something does not divide."""
        sharded = dataclasses.replace(self, tp=tp)
        sharded.plain()  # asks every part whether it divides
        return sharded

    def _split(self, tp: int) -> ModelSpec:
        if tp == 1:
            return self
        rows = ceil_div(self.vocab_size, tp) if self.vocab_size else None
        return dataclasses.replace(self._map_layers(lambda group: group.shard(tp)), vocab_size=rows)

    def _map_layers(self, change: Callable[[Layers], Layers]) -> ModelSpec:
        """Itself with every layer group changed."""
        stacks = (dataclasses.replace(stack, layers=tuple(map(change, stack.layers))) for stack in self.stacks)
        return dataclasses.replace(self, stacks=tuple(stacks))

    def with_attention(self, text: str) -> ModelSpec:
        """What if its attention were 'mha', 'mqa', 'gqa:N' (KV heads) or 'mla:R' (kv_lora_rank)?

        AttncalcError: for another text, or a number that its heads do not allow.
        """
        variant = Variant.parse(text)
        kinds = [kind for stack in self.stacks for group in stack.layers for kind in group.attentions]
        if not any(variant.applies_to(kind) for kind in kinds):
            raise AttncalcError(
                f"--attention {truncate(text)}: {kinds[0].label} has no heads of keys to exchange", "leave it out"
            )
        assumed = "; ".join(dict.fromkeys(words for words in map(variant.assumption, kinds) if words))
        notes = (*self.notes, f"What if {variant.name.upper()}: {assumed}.") if assumed else self.notes
        return dataclasses.replace(self.with_variant(variant), notes=notes, stored=None)

    def with_variant(self, variant: Variant) -> ModelSpec:
        """Itself with every attention that has heads of keys as `variant`."""
        return self._map_layers(lambda group: group.with_variant(variant))

    def with_full_attention(self) -> ModelSpec:
        """Itself without windows and chunks."""
        return self._map_layers(Layers.with_full_attention)

    def facts(self) -> dict[str, Any]:
        """Itself as plain data, for JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "d_model": int(self.main.d_model),
            "n_layers": self.main.n_layers,
            "encoder_layers": self.encoder.n_layers if self.encoder else 0,
            "vocab_size": int(self.vocab_size or 0),
            "max_context": self.max_context,
            "dtype": self.dtype,
            "tp": self.tp,
            "sources": list(self.sources),
            "assumed": self.assumed,
        }


def plural(number: int, word: str) -> str:
    """'1 layer', '80 layers'."""
    return f"{count(number)} {word}" + ("" if number == 1 else "s")
