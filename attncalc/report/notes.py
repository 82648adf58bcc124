"""Notes that an expert would add to a screen: what a reader could take the figures for, and should not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..attention import FULL
from ..cost.cache import KVCache, kv_cache
from ..cost.common import cache_dtype
from ..model import ModelSpec, plural
from ..quantity import Quantity, ratio
from ..units import BYTES, PARAMS, count, human
from ..workload import Workload
from .checkpoint import stored_notes
from .layers import attends, kv_heads
from .report import times

if TYPE_CHECKING:
    from ..cost.activations import LayerActivations
    from ..cost.flops import Flops
    from ..cost.params import Params

WARNING = "warning: "
"""What a note starts with that says the answer may not be what was meant."""
NARROW = 32
"""Query-key products over fewer elements than this discriminate poorly (Michel et al., arXiv:1905.10650,
prune heads; Bhojanapalli et al., arXiv:2002.07028, name the low-rank bottleneck)."""


def model_notes(model: ModelSpec) -> list[str]:
    """What is true of the model whatever is asked."""
    notes = list(model.notes)
    if not any(layers.mlp for layers in model.main.layers) and attends(model):
        notes.append("There is no MLP in this model file: totals count attention alone.")
    if model.vocab_size is None:
        notes.append("There is no vocabulary in this model file: no embedding and no lm head are counted.")
    return notes


def shape_notes(model: ModelSpec) -> list[str]:
    """Heads that are narrow, or whose widths do not add up to d_model."""
    notes = []
    for stack, layers in model.groups():
        around = layers.attention.widths()
        width = int(around.n_heads) * int(around.d_qk)
        d_model = int(stack.d_model)
        if 0 < around.d_qk < NARROW:
            notes.append(
                f"Heads are {around.d_qk} wide: below {NARROW} a head's scores have low rank and quality "
                "suffers (arXiv:2002.07028); fewer, wider heads cost the same."
            )
        facts = layers.attention.facts()
        square = (0, d_model, getattr(layers.attention, "d_input", None))
        if width not in square and "d_head" in facts and "q_lora_rank" not in facts:
            notes.append(
                f"n_heads * d_head is {count(width)}, not d_model {count(d_model)}: "
                "the query and output projections are not square."
            )
    return list(dict.fromkeys(notes))


def context_notes(model: ModelSpec, workload: Workload) -> list[str]:
    """What was taken where the question was silent; a context, or a source, beyond the model's own."""
    notes = list(workload.assumed)
    sides = [("context", model.main, int(workload.context))]
    if model.encoder and workload.source:
        sides.append(("source", model.encoder, int(workload.source)))
    for what, stack, asked in sides:
        if stack.learned_positions and asked > stack.learned_positions:
            notes.append(
                f"{WARNING}{what} {count(asked)} is beyond the learned position table of "
                f"{count(stack.learned_positions)}: this model cannot run there."
            )
        elif stack.max_context and asked > stack.max_context:
            notes.append(f"{WARNING}{what} {count(asked)} is beyond the model's own {count(stack.max_context)}.")
    return notes


def device_notes(model: ModelSpec) -> list[str]:
    """What tensor parallelism replicates."""
    notes = []
    for _, layers in model.groups():
        heads, copies = int(kv_heads(layers.attention)), 1
        if heads:
            copies = int(kv_heads(layers.attention.shard(model.tp))) * model.tp // heads
        cached = layers.attention.cache()
        if copies > 1 and heads == 1 and cached:
            notes.append(f"{layers.attention.label}: {cached[0].name} are whole on each of the {model.tp} devices.")
        elif copies > 1 and cached:
            notes.append(
                f"{plural(heads, 'KV head')} on {model.tp} devices: each is held by {copies}, so all devices "
                f"together keep {copies} x the cache."
            )
    return list(dict.fromkeys(notes))


def _remarks(model: ModelSpec, past: bool, *, attending: bool = False) -> list[str]:
    """attending: of the kinds with a kernel alone."""
    kinds = [kind for _, layers in model.groups() for kind in layers.attentions]
    if attending:
        kinds = [kind for kind in kinds if kind.widths().n_heads]
    return list(dict.fromkeys(remark for kind in kinds for remark in kind.notes(past)))


def kv_notes(model: ModelSpec, workload: Workload, cache: KVCache, engine: str) -> tuple[str, ...]:
    """The notes of `kv`."""
    notes = context_notes(model, workload)
    if not cache.total:
        notes.append("An encoder sees all tokens at once and keeps nothing: it has no KV cache.")
    notes += _window_note(model, workload, cache)
    notes += _kept_notes(model, engine)
    if model.encoder:
        notes.append("The encoder keeps nothing; the decoder keeps K and V of the source, made once for its tokens.")
    stored = cache_dtype(model, workload)
    if stored.group is not None:
        notes.append(f"{stored.name}: {stored.meaning}. Scales are counted.")
    elif stored.name == "fp8":
        notes.append(f"fp8: {stored.meaning}.")
    if model.stored is not None:
        from ..cost.params import params

        notes += stored_notes(model, params(model).total)
    return (*notes, *device_notes(model), *shape_notes(model), *model_notes(model))


def _kept_notes(model: ModelSpec, engine: str) -> list[str]:
    """Layers that keep nothing, or something else than the heading's heads in the heading's dtype."""
    notes = []
    layers = model.main.distinct()
    sharing = sum(int(g.count) for g in layers if g.attention.widths().n_heads and not g.attention.cache())
    if sharing and model.main.has_cache:
        notes.append(f"{sharing} of {model.main.n_layers} layers read an earlier layer's K and V, and keep none.")
    kept = [cached for g in layers for cached in g.cache()]
    states = dict.fromkeys(cached.dtype for cached in kept if cached.dtype and cached.scales_with == "never")
    if states:
        notes.append(f"Recurrent states are kept in {' and '.join(states)} whatever the cache's dtype.")
    if engine == "transformers":
        if any(cached.span.reach is not None for cached in kept):
            notes.append("transformers keeps one token less of a window: the next one fills it.")
        if any(cached.repeated != 1 for cached in kept):
            notes.append("transformers' class keeps K and V once for every query head.")
    return notes


def _window_note(model: ModelSpec, workload: Workload, cache: KVCache) -> list[str]:
    narrow = [g for g in model.main.distinct() if g.attention.span.reach is not None and g.attention.cache()]
    full = kv_cache(model.with_full_attention(), workload).total
    if not narrow or not cache.total or full == cache.total:
        return []
    number = sum(int(g.count) for g in narrow)
    spans = " or ".join(dict.fromkeys(g.attention.span.description for g in narrow))
    return [
        f"{number} of {model.main.n_layers} layers see {spans} and keep no more: with full attention "
        f"everywhere the cache would be {human(full, BYTES)}, {times(ratio(full, cache.total))} as much."
    ]


def params_notes(model: ModelSpec, counted: Params) -> tuple[str, ...]:
    """The notes of `params`."""
    share = f"{100 * int(counted.attention) / int(counted.total):.0f} %" if counted.total else "nothing"
    notes = [
        f"Attention holds {human(counted.attention, PARAMS)} of {human(counted.total, PARAMS)} "
        f"parameters, {share}; its matrices without biases and norms hold {count(counted.attention_weights)}."
    ]
    if counted.active != counted.total:
        notes.append(f"A token uses {human(counted.active, PARAMS)} of them: the router picks its experts.")
    if model.head and model.head.tied:
        notes.append("The lm head is tied: it uses the embedding's matrix and adds none.")
    if model.vocab_size and model.vocab_size % model.tp:
        notes.append(f"The vocabulary of {count(model.vocab_size)} is padded to a multiple of {model.tp}.")
    if model.tp > 1:
        notes.append("Attention, MLP, embedding and head are split; norms, routers and output biases are not.")
    notes += stored_notes(model, counted.total)
    return (*notes, *device_notes(model), *shape_notes(model), *model_notes(model))


def flops_notes(model: ModelSpec, workload: Workload, spent: Flops, overtake: Quantity | None) -> tuple[str, ...]:
    """The notes of `flops`."""
    notes = context_notes(model, workload)
    if workload.phase == "train":
        notes.append(f"{spent.rule[:1].upper()}{spent.rule[1:]}.")
    if overtake is None:
        why = "every layer has a window" if attends(model) else "a state has one size"
        notes.append(f"Scores never overtake projections: {why}, so they grow as fast as the tokens.")
    narrow = [g.attention.span for g in model.main.layers if g.attention.span != FULL]
    if spent.scores * 2 < spent.scores_dense and narrow:
        what = "Picked keys" if all(span.reach is None for span in narrow) else "Windows"
        notes.append(
            f"{what} make this context cheap: dense scores would cost "
            f"{times(ratio(spent.scores_dense, spent.scores))} as much as the exact ones."
        )
    notes += _remarks(model, past=bool(workload.past))
    if workload.lengths:
        notes.append("Projections and MLP run over the padded batch; exact scores count real tokens alone.")
    notes.append("Matrix products only: softmax, norms, activations and table look-ups are not counted.")
    return (*notes, *device_notes(model), *shape_notes(model), *model_notes(model))


def compare_notes(rows: Sequence[tuple[ModelSpec, Workload]], variants: bool) -> tuple[str, ...]:
    """The notes of `compare`: of one model's variants, or of several models."""
    notes = []
    if variants:
        notes += context_notes(*rows[0])
        notes.append("* as released. attn.: attention's parameters; FLOP/byte: a decode step's, weights and cache.")
    for model, workload in () if variants else rows:
        for note in context_notes(model, workload):
            notes.append(_of(model, note))
    groups = [group for model, _ in rows for group in model.main.layers]
    notes += [f"Decode: {remark}" for model, _ in rows for remark in _remarks(model, past=True)]
    if any(g.mlp and g.mlp.n_experts for g in groups):
        notes.append("A decode step reads at most min(n_experts, B * n_experts_per_token) experts a layer.")
    if variants:
        notes += [note for model, _ in rows for note in model_notes(model)]
        replicated = [model for model, _ in rows if device_notes(model)]
        if replicated:
            tp = replicated[0].tp
            notes.append(
                f"With {tp} devices, KV heads fewer than {tp} are held by several of them, and MLA's latent by all."
            )
    else:
        for model, _ in rows:
            notes += [_of(model, note) for note in (*device_notes(model), *model_notes(model))]
    return tuple(dict.fromkeys(notes))


def _of(model: ModelSpec, note: str) -> str:
    """A note that says which model it is of; a warning stays one."""
    words = note.removeprefix(WARNING)
    return f"{WARNING if words != note else ''}{model.title}: {words}"


def memory_notes(model: ModelSpec, workload: Workload, largest: LayerActivations) -> tuple[str, ...]:
    """The notes of `memory`."""
    notes = context_notes(model, workload)
    math, flash = largest.peaks["math"].size, largest.peaks["flash"].size
    notes.append(
        "Beyond the weights and the layer's input, for inference: math keeps whole score matrices, in fp32 "
        f"whatever the dtype, and needs {times(ratio(math, flash))} as much as flash, which keeps none."
    )
    if workload.past:
        notes.append("K and V of the past are in the cache, which 'attncalc kv' counts.")
    kinds = [layers.attention for _, layers in model.groups()]
    others = dict.fromkeys(kind.label for kind in kinds if not kind.widths().n_heads and kind.cache())
    if others:
        notes.append(f"{' and '.join(others)} layers run no attention kernel: they are not counted here.")
    notes += _remarks(model, past=bool(workload.past), attending=True)
    return (*notes, *device_notes(model), *shape_notes(model), *model_notes(model))
