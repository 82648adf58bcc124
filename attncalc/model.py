"""A model as a list of layer groups: the input of the cost functions.

A `ModelSpec` knows no file format and no model family. The time to compute a cost grows with the
number of distinct groups, not with the number of layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal

from .attention import FULL, Attention, CacheSpec, Matrix, Variant
from .errors import AttncalcError
from .mlp import Mlp
from .quantity import Constant, Quantity, ceil_div, documented, named, symbol, symbolic
from .records import Keeper, NamedTuple, dataclass
from .units import count, truncate
from .workload import CAUSAL, Mask, Run, Workload

if TYPE_CHECKING:
    from .checkpoint import CheckpointWeights
    from .quantization import Quantization, Role

_GAIN_AND_BIAS = Constant(2, "vectors of a LayerNorm: gain and bias")
_TABLE_DTYPES = ("BF16", "F16", "F32", "F8_E4M3")
# Layers of a stack. The deepest published model has 1,000 (DeepNet, arXiv:2203.00555). More in
# irregular order would take `fit` longer than a user waits.
MAX_LAYERS = 2_000


@dataclass(frozen=True)
class Layers:
    """Equal layers: neighbours in a stack, or all equal ones of a stack (`Stack.distinct`).

    Attributes:
        name: the name of the group: 'layers', 'local'.
        count: how many layers.
        attention: the self-attention of a layer.
        cross: its cross-attention, if it has one.
        mlp: its MLP, if it has one.
        norms: norms of a layer.
        shares_weights: the weights are those of layers that are counted elsewhere (ALBERT, Zamba).
        extra: further tensors of a layer; a matrix with `applied_to` multiplies every token.
        lookups: tables of which a token reads a few rows, which are the columns here. Tensor
            parallelism divides them.
        convolutions: what further convolutions cache. Tensor parallelism does not divide them.
    """

    name: str
    count: int = documented("layers", symbol="L")
    attention: Attention = dataclasses.field(kw_only=True)
    cross: Attention | None = None
    mlp: Mlp | None = None
    norms: int = documented("norms of a layer", default=2)
    shares_weights: bool = False
    extra: tuple[Matrix, ...] = ()
    lookups: tuple[Matrix, ...] = ()
    convolutions: tuple[CacheSpec, ...] = ()

    @property
    def attentions(self) -> tuple[Attention, ...]:
        """Return the self-attention, and the cross-attention if there is one."""
        if self.cross:
            return (self.attention, self.cross)
        return (self.attention,)

    def cache(self) -> tuple[CacheSpec, ...]:
        """Return what one layer caches for later tokens."""
        specs: list[CacheSpec] = []
        for attention in self.attentions:
            specs += attention.cache()
        return (*specs, *self.convolutions)

    def matrices_by_role(self, d_model: int, d_source: int) -> Iterator[tuple[Role, int, Matrix]]:
        """Yield (role, copies, matrix) of one layer's matrices that a quantization may cover.

        Norms and biases are not among them. The encoder's output is `d_source` wide.
        """
        mixer: Role = "attention" if self.attention.widths().n_heads else "linear"
        yield from (
            (mixer, 1, m) for m in self.attention.matrices(d_model, d_model) if m.applied_to
        )
        yield from (("lookup", 1, m) for m in self.lookups)
        if self.cross:
            yield from (
                ("cross", 1, m) for m in self.cross.matrices(d_model, d_source) if m.applied_to
            )
        if self.mlp is None:
            return
        if self.mlp.n_experts is None:
            yield from (("mlp", 1, m) for m in self.mlp.expert(d_model))
            return
        yield from (("experts", self.mlp.n_experts, m) for m in self.mlp.expert(d_model))
        if self.mlp.n_shared_experts:
            yield from (
                ("shared_experts", self.mlp.n_shared_experts, m) for m in self.mlp.expert(d_model)
            )
        yield from (("shared_experts", 1, m) for m in self.mlp.shared(d_model))
        yield from (("router", 1, m) for m in self.mlp.router(d_model))

    def with_variant(self, variant: Variant) -> Layers:
        """Return the layers with another kind of attention. Raises AttncalcError if the heads do
        not allow it.
        """
        cross = variant.apply(self.cross) if self.cross else None
        return dataclasses.replace(self, attention=variant.apply(self.attention), cross=cross)

    def with_full_attention(self) -> Layers:
        """Return the layers without windows and chunks."""
        return dataclasses.replace(self, attention=self.attention.with_span(FULL))

    def shard(self, tp: int) -> Layers:
        """Return the part on one of `tp` devices. Raises AttncalcError if something does not
        divide.
        """
        return dataclasses.replace(
            self,
            attention=self.attention.shard(tp),
            cross=self.cross.shard(tp) if self.cross else None,
            mlp=self.mlp.shard(tp) if self.mlp else None,
            lookups=tuple(m._replace(cols=ceil_div(m.cols, tp)) for m in self.lookups),
        )


@dataclass(frozen=True)
class Stack:
    """Layers in order, with the norms and position tables around them.

    Attributes:
        name: 'decoder' or 'encoder'.
        layers: the layer groups, in order.
        d_model: width of the model.
        norm: the kind of norm.
        input: the tokens that the stack runs over: the target's, or the source's for the encoder of
            an encoder-decoder.
        mask: the keys that a query can see.
        learned_positions: rows of a learned (or stored) position table.
        relative_position_buckets: rows of T5's table, which is n_heads wide.
        embedding_norm: there is a norm before the first layer.
        final_norm: there is a norm after the last layer.
        max_context: the longest context that the model is made for; None if unknown.
    """

    name: str
    layers: tuple[Layers, ...]
    d_model: int = documented("width of the model")
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    input: Literal["target", "source"] = "target"
    mask: Mask = CAUSAL
    learned_positions: int | None = documented("learned positions", default=None)
    relative_position_buckets: int | None = documented(
        "buckets of T5's relative positions", default=None
    )
    embedding_norm: bool = False
    final_norm: bool = True
    max_context: int | None = None

    @property
    def norm_vectors(self) -> int:
        """Return how many vectors of d_model elements a norm has: a gain, and for LayerNorm a
        bias.
        """
        if self.norm == "layernorm":
            return _GAIN_AND_BIAS
        return 1

    @property
    def leading(self) -> Attention:
        """Return the attention of the first layer with an attention kernel, or of the first layer
        if none has one.

        Screens with one line per model describe the stack by it.
        """
        kinds = [group.attention for group in self.layers]
        return next((kind for kind in kinds if kind.widths().n_heads), kinds[0])

    @property
    def n_layers(self) -> int:
        """Return how many layers the stack has."""
        return sum(int(group.count) for group in self.layers)

    def each_layer(self) -> list[Layers]:
        """Return the layers in order, each as a group of its own."""
        layers: list[Layers] = []
        for group in self.layers:
            one_layer = dataclasses.replace(group, count=1)
            layers += repeat(one_layer, int(group.count))
        return layers

    def distinct(self) -> tuple[Layers, ...]:
        """Return one group per distinct layer, in order of appearance, with the count of all equal
        layers.
        """
        return self._distinct

    @cached_property
    def _distinct(self) -> tuple[Layers, ...]:
        counts: dict[Layers, int] = {}
        for group in self.layers:
            if group.count == 1:
                one_layer = group
            else:
                one_layer = dataclasses.replace(group, count=1)
            counts[one_layer] = counts.get(one_layer, 0) + group.count
        return tuple(
            group if n == 1 else dataclasses.replace(group, count=n) for group, n in counts.items()
        )

    @property
    def has_cache(self) -> bool:
        """Return whether later tokens need a cache: an encoder sees all its tokens in one pass and
        needs none.
        """
        return self.mask.kind != "bidirectional"

    def runs(self, workload: Workload) -> tuple[Run, ...]:
        """Return the sequences that the stack runs over; () for an encoder that has already run."""
        if self.input == "target":
            return workload.runs
        if workload.phase == "decode" or workload.past or not workload.source:
            return ()
        return (Run(workload.batch, workload.source, workload.source),)


class Head(NamedTuple):
    """The output head: the matrix after the last layer.

    Attributes:
        kind: 'lm' (d_model x vocab_size) or 'pooler' (d_model x d_model).
        tied: an lm head that uses the embedding's matrix and adds no parameters.
        bias: an lm head with a bias.
        ranks: data-parallel ranks of attention that divide an lm head of its own, beside tensor
            parallelism (SGLang).
    """

    kind: Literal["lm", "pooler"]
    tied: bool = False
    bias: bool = False
    ranks: int = 1


class TowerItem(NamedTuple):
    """The largest image, video or sound that a tower encodes, whose memory vLLM measures when it
    starts.
    """

    tokens: int  # the language model's tokens of one item
    positions: int  # the tower's patches or frames of one item
    values: int  # values of one position in the tower's input: 3 x 14 x 14 pixels
    d_model: int  # width of the tower
    # elements per position of the largest tensors inside one of its layers: of attention, or of the
    # MLP
    d_inside: int
    d_output: int  # elements of the output per token of the language model
    repeats: int = 1  # how many times as large as this a video may be; the context limits it


class TowerAttention(NamedTuple):
    """How tensor parallelism divides a tower's attention: by its heads."""

    heads: int  # attention heads of a layer
    # Parameters that every device has whole if the devices do not divide the heads. 0 if the engine
    # does not start then
    whole: int = 0


class Tower(NamedTuple):
    """A vision or audio tower with its projector, which serving engines load with the language
    model.
    """

    name: str  # 'vision'
    params: int  # its parameters
    split: int  # the parameters that tensor parallelism divides; the others are on every device
    item: TowerItem | None = None  # the largest item that it encodes; None if unknown
    # Its heads, which tensor parallelism divides; None if unknown, or if nothing is divided
    attention: TowerAttention | None = None

    def has_whole_heads(self, tp: int) -> bool:
        """Return whether each of `tp` devices has the same number of the tower's heads, as far as
        is known.
        """
        return self.attention is None or self.attention.heads % tp == 0

    @property
    def size_of_layers(self) -> int:
        """12 x layers x width^2, about the parameters of its layers. The layers follow from what tp
        divides of them.
        """
        if not self.item or not self.item.d_model:
            return self.split or self.params
        d_model = self.item.d_model
        layers = max(1, round(self.split / (4 * d_model**2 + d_model * self.item.d_inside)))
        return 12 * layers * d_model**2

    def split_by(self, tp: int, *, pads_heads: bool = False) -> tuple[int, int]:
        """Return the parameters that `tp` devices divide, and those that each of them has.

        4 devices do not divide InternViT's 25 heads: they divide 28 heads, of which 3 are padding,
        or none.
        """
        whole = self.params - self.split
        if self.attention is None or self.has_whole_heads(tp):
            return self.split, whole
        undivided = self.attention.whole
        heads = self.attention.heads
        if pads_heads:
            return self.split + -heads % tp * undivided // heads, whole
        return self.split - undivided, whole + undivided


class RopeTable(NamedTuple):
    """A table of the cosines and sines of rotary positions, which the layers share."""

    name: str  # the layers that use it: 'full', 'sliding'
    rows: int  # positions
    width: int  # elements of a row: half of them cosines, half sines


@dataclass(frozen=True, repr=False)
class ModelSpec(Keeper):
    """A whole model: an embedding, one or two stacks (the encoder first) and a head.

    Attributes:
        name: the preset's name or the file's.
        title: the name on screens.
        stacks: the encoder of an encoder-decoder, and the stack that reads the target's tokens.
        vocab_size: rows of the token embedding; None without one.
        token_types: rows of BERT's table of token types.
        d_embedding: width of the token embedding and the lm head; None for d_model.
        head: the head, if there is one.
        dtype: the dtype that the model is released in.
        extra: further parameter tensors; a matrix with `applied_to` multiplies every token.
        sources: where the facts are from.
        notes: what users of its figures should know.
        assumed: the assumption behind all its figures, as a sentence; '' for none.
        tp: tensor-parallel devices that hold the model; figures are those of one device.
        stored: the contents of its files, for all devices together; None if no files were read.
        model_type: `model_type` of its config.json, by which some engines decide; None if unknown.
        weights_dtype: dtype of the matrices of attention and MLPs in its files, if it is not
            `dtype`.
        experts_dtype: dtype of the routed experts in its files, if only they have another one.
        quantization: how its files store quantized matrices; None if they have none, or only a
            dtype is known.
        unread_quantization: a quantization of its files that attncalc cannot read; '' for none.
        kv_dtype: dtype of the cache that its quantization asks for.
        towers: vision and audio towers, which no cost of the language model includes.
        rope_tables: tables of rotary positions that vLLM keeps.
        draft: it only proposes tokens, which another model checks.
        image_mask: the tokens of one image see each other, though the layers are causal.
        first_layer: number of its first layer in the whole model, if it is a part of one.
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
    quantization: Quantization | None = None
    unread_quantization: str = ""
    kv_dtype: str | None = None
    towers: tuple[Tower, ...] = ()
    rope_tables: tuple[RopeTable, ...] = ()
    draft: bool = False
    image_mask: bool = False
    first_layer: int = 0

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                tip = ""
            else:
                tip = "; facts() has its sizes, main.layers its layers"
            raise AttributeError(f"'ModelSpec' object has no attribute '{name}'{tip}")

    def __repr__(self) -> str:
        return f"ModelSpec({self.name}: {self.title}, {self.headline})"

    def _repr_html_(self) -> str:
        """Return the model as a table, for a notebook."""
        from html import escape  # 1 ms, and no command shows a model so

        rows = {
            "attention": self.headline,
            "d_model": count(self.main.d_model),
            "vocabulary": "none",
            "maximum context": "unknown",
            "dtype": self.dtype,
        }
        if self.vocab_size:
            rows["vocabulary"] = count(self.vocab_size)
        if self.max_context:
            rows["maximum context"] = count(self.max_context)
        if self.tp > 1:
            rows["tensor-parallel devices"] = count(self.tp)
        if self.assumed:
            rows["assumed"] = self.assumed
        cells = "".join(
            f'<tr><th scope="row">{name}</th><td>{escape(text)}</td></tr>'
            for name, text in rows.items()
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return (
            f"<div><p><strong>{escape(self.title)}</strong></p><table>{cells}</table>{notes}</div>"
        )

    @property
    def main(self) -> Stack:
        """Return the stack that reads the target's tokens: the decoder, or the encoder of an
        encoder-only model.
        """
        return self.stacks[-1]

    @property
    def encoder(self) -> Stack | None:
        """Return the stack that reads the source, if there is one."""
        if self.stacks[0].input == "source":
            return self.stacks[0]
        return None

    @property
    def d_source(self) -> int:
        """Return the width of the encoder's output, from which cross-attention computes K and V."""
        width = self.stacks[0].d_model
        same = width == self.main.d_model or not isinstance(width, Quantity)
        if same:
            return width
        return named(width, "d_source", "width of the encoder")

    @property
    def table_width(self) -> int:
        """Return the width of the token embedding and of the lm head's input."""
        return self.d_embedding or self.main.d_model

    @property
    def max_context(self) -> int | None:
        """Return the longest context that the model is made for; None if unknown."""
        return self.main.max_context

    @property
    def has_experts(self) -> bool:
        """Return whether a layer is a mixture of experts."""
        return any(layers.mlp and layers.mlp.n_experts for _, layers in self.groups())

    @property
    def headline(self) -> str:
        """Return its attention in words: 'grouped-query attention, 64 query and 8 KV heads x 128,
        80 layers'.
        """
        kinds = " and ".join(dict.fromkeys(group.attention.headline for group in self.main.layers))
        layers = plural(self.main.n_layers, "layer")
        if self.encoder:
            layers = f"{self.encoder.n_layers} encoder and {self.main.n_layers} decoder layers"
        return f"{kinds}, {layers}"

    def groups(self) -> Iterator[tuple[Stack, Layers]]:
        """Yield every stack with each of its distinct layer groups."""
        for stack in self.stacks:
            for layers in stack.distinct():
                yield stack, layers

    def symbolic(self, *, gathered: bool = True) -> ModelSpec:
        """Return one device's part with every number as a symbol, from which costs get their
        formulas.

        With `gathered`, equal layers are gathered in one group; otherwise all groups stay in the
        model's order.
        """
        if gathered:
            return self._gathered_symbols
        return self._as_symbols(self.stacks)

    @cached_property  # one `attncalc fit` asks for it 50 times
    def _gathered_symbols(self) -> ModelSpec:
        return self._as_symbols(
            tuple(dataclasses.replace(stack, layers=stack.distinct()) for stack in self.stacks)
        )

    def _as_symbols(self, stacks: tuple[Stack, ...]) -> ModelSpec:
        """Return one device's part, with these stacks, as symbols."""
        model = symbolic(dataclasses.replace(self, stacks=stacks, extra=(), stored=None))
        return dataclasses.replace(model, extra=self.extra, stored=self.stored)._split(
            symbol("tp", self.tp, "tensor-parallel devices")
        )

    def plain(self) -> ModelSpec:
        """Return one device's part in plain ints, which searches use since they are fast."""
        return self._plain

    @cached_property  # one `attncalc fit` asks for it 20 times
    def _plain(self) -> ModelSpec:
        return self._split(self.tp)

    def shard(self, tp: int) -> ModelSpec:
        """Return the model on `tp` tensor-parallel devices. Raises AttncalcError if something does
        not divide.
        """

        def sharded() -> ModelSpec:
            part = self if tp == self.tp else dataclasses.replace(self, tp=tp)
            part.plain()  # raises the error now instead of when a cost is computed
            return part

        return self.kept(("shard", tp), sharded)

    def _split(self, tp: int) -> ModelSpec:
        if tp == 1:
            return self
        rows = ceil_div(self.vocab_size, tp) if self.vocab_size else None
        return dataclasses.replace(self._map_layers(lambda group: group.shard(tp)), vocab_size=rows)

    def _map_layers(self, change: Callable[[Layers], Layers]) -> ModelSpec:
        """Return the model with `change` applied to every layer group."""
        stacks = (
            dataclasses.replace(stack, layers=tuple(map(change, stack.layers)))
            for stack in self.stacks
        )
        return dataclasses.replace(self, stacks=tuple(stacks))

    def with_attention(self, text: str) -> ModelSpec:
        """Return the model with 'mha', 'mqa', 'gqa:N' (KV heads), 'mla:R' (kv_lora_rank R) or
        'linear' attention.

        Raises AttncalcError for another text, a number that the heads do not allow, or a model
        without KV heads.
        """
        variant = Variant.parse(text)
        kinds = self._kinds
        if not any(variant.applies_to(kind) for kind in kinds):
            raise AttncalcError(
                f"--attention {truncate(text)}: {kinds[0].label} has no KV heads to exchange",
                "leave out --attention",
            )
        notes = (*self.notes, *self.notes_of(variant))
        return dataclasses.replace(self.with_variant(variant), notes=notes, stored=None)

    def notes_of(self, variant: Variant) -> list[str]:
        """Return a note on what has to be assumed to make this model's attention a variant, if
        anything has.
        """
        assumptions = dict.fromkeys(map(variant.assumption, self._kinds))
        assumptions.pop("", None)
        if assumptions:
            return [f"As {variant.title}: {'; '.join(assumptions)}."]
        return []

    @property
    def _kinds(self) -> list[Attention]:
        """Return the attention of every group of layers, cross-attention too."""
        kinds: list[Attention] = []
        for stack in self.stacks:
            for group in stack.layers:
                kinds += group.attentions
        return kinds

    def with_variant(self, variant: Variant) -> ModelSpec:
        """Return the model with every attention that has KV heads as `variant`."""
        return self._map_layers(lambda group: group.with_variant(variant))

    def with_full_attention(self) -> ModelSpec:
        """Return the model without windows and chunks."""
        return self._map_layers(Layers.with_full_attention)

    def without_lookups(self) -> ModelSpec:
        """Return the model without lookup tables, with a note. Files have them in the one float
        that is large enough.

        Raises AttncalcError if it has some, and only an index of its files was read.
        """
        tables = 0
        for _, layers in self.groups():
            tables += sum(int(layers.count * matrix.params) for matrix in layers.lookups)
        if not tables:
            return self
        stored = self.stored
        note = f"Lookup tables of {tables / 10**9:.1f} billion parameters are in host memory."
        if stored is not None:
            floats = [of for of in stored.by_dtype if of.name in _TABLE_DTYPES]
            bits = [of.bits for of in floats if of.elements >= tables]
            if not bits:
                raise AttncalcError(
                    "the sizes of lookup tables are not known from files", "name its config.json"
                )
            stored = stored._replace(size=stored.size - tables * min(bits) // 8)
        model = self._map_layers(lambda group: dataclasses.replace(group, lookups=()))
        return dataclasses.replace(model, stored=stored, notes=(*self.notes, note))

    def facts(self) -> dict[str, Any]:
        """Return the model as plain data, for JSON."""
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
    """Return the number with its noun: '1 layer', '80 layers'."""
    return f"{count(number)} {word}" + ("" if number == 1 else "s")
