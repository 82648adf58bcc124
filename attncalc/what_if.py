"""A model with other sizes: `--layers 16`, `--kv-heads 4`, `--window 4096`, `--pattern '3 linear, 1
global'`.

Without a model, the sizes alone describe one: `model_of_sizes`.

Encoder and decoder change alike, and everything that is not named stays as released.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import groupby, repeat
from typing import Any

from .attention import FULL, Attention, Cross, Grouped, Sliding, Span, Variant
from .attention.grouped import kv_heads_tip
from .errors import AttncalcError, Tip
from .mlp import Mlp
from .model import MAX_LAYERS, Layers, ModelSpec, Stack
from .units import count, truncate

LOCAL = "local"
GLOBAL = "global"
UNNAMED = ""
_SPANS = {
    LOCAL: LOCAL,
    "sliding": LOCAL,
    "window": LOCAL,
    "swa": LOCAL,
    GLOBAL: GLOBAL,
    "full": GLOBAL,
}
# The sizes that describe a model without another.
SIZES = frozenset({"layers", "heads", "kv_heads", "head_dim", "d_model", "d_ff", "vocab_size"})
OF_SIZES = "A model of these sizes"  # its title


def parse_pattern(text: str, name: str) -> tuple[str, ...]:
    """Return what each layer of a pattern is: ('linear', 'linear', 'global') for '2 linear, 1
    global'.

    A layer is LOCAL, GLOBAL or has an attention of its own ('linear', 'gqa:4', 'mla:512'); the
    first ones of '5:1' are UNNAMED. Raises AttncalcError if the text is no pattern, or has more
    layers than a model may have.
    """
    numbers = re.fullmatch(r"(\d{1,3}):(\d{1,3})", text)
    layers: list[str] = []
    parts = []
    if numbers:
        layers += repeat(UNNAMED, int(numbers[1]))
        layers += repeat(GLOBAL, int(numbers[2]))
    else:
        parts = text.split(",")
    for part in parts:
        # '3 linear', '3x linear' and 'linear:3' are the same; mla:512 has a size; config.json has
        # 'full_attention'
        word = part.strip().lower().removesuffix("_attention")
        match = re.fullmatch(
            r"(?:(\d{1,9}) ?[x*]? ?)?(gqa:\d+|mla:\d+(?:\+\d+)?|[a-z]+)(?::(\d{1,9}))?", word
        )
        if (
            match is None
            or (match[1] and match[3])
            or not (match[2] in _SPANS or Variant.is_named(match[2]))
        ):
            raise AttncalcError(
                f"{name}: '{truncate(part.strip())}' is no kind of layer", _written(text)
            )
        kind = _SPANS.get(match[2], match[2])
        number = int(match[1] or match[3] or "1")
        if len(layers) + number > MAX_LAYERS:
            raise AttncalcError(f"{name}: more than {MAX_LAYERS:,} layers", _written())
        layers += repeat(kind, number)
    if not layers:
        raise AttncalcError(f"{name}: '{truncate(text)}' has no layer", _written())
    return tuple(layers)


def _written(text: str = "") -> str:
    """Return how a pattern is written, with the numbers of '3:1' or 'LLLF', whose kinds only the
    reader knows.
    """
    letters = re.fullmatch(r"(([A-Z])\2*)(([A-Z])\4*)", text)
    numbers = re.fullmatch(r"(\d{1,3}):(\d{1,3})", text)
    if letters:
        many = f"{len(letters[1])}"
        few = f"{len(letters[3])}"
    elif numbers:
        many = numbers[1]
        few = numbers[2]
    else:
        many = "3"
        few = "1"
    return (
        f"write '{many} local, {few} global' for windows, or '{many} linear, {few} global', "
        f"'{many} linear, {few} mla'"
    )


def what_if(
    model: ModelSpec,
    *,
    attention: str | None = None,
    layers: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    d_model: int | None = None,
    d_ff: int | None = None,
    experts: int | None = None,
    experts_per_token: int | None = None,
    vocab_size: int | None = None,
    tie_word_embeddings: bool | None = None,
    window: int | None = None,
    pattern: Sequence[str] | None = None,
) -> ModelSpec:
    """Return the model with the sizes of `WhatIfOptions`, in which `parse_pattern` has read the
    pattern.

    Further layers continue the order of the released ones, and MHA with other heads stays MHA.
    Raises AttncalcError if the model has no such sizes, or they contradict.
    """
    if attention and kv_heads and attention.lower().partition(":")[0] in ("mha", "gqa", "mqa"):
        raise AttncalcError(
            f"--kv-heads cannot be combined with --attention {truncate(attention)}, which has a "
            "number of KV heads",
            f"leave one out, as in --attention gqa:{kv_heads}",
        )
    changed = model.with_attention(attention) if attention else model
    if heads or kv_heads or head_dim:
        # MLA and linear attention take the sizes of the heads that they replace.
        first = changed if kv_heads or _has_kv_heads(changed) else model
        changed = _with_heads(first, heads, kv_heads, head_dim)
        changed = changed.with_attention(attention) if attention and first is model else changed
    if d_model or d_ff or vocab_size:
        changed = _with_widths(changed, d_model, d_ff, vocab_size)
    if experts or experts_per_token:
        changed = _with_experts(changed, experts, experts_per_token)
    if tie_word_embeddings is not None:
        if not (model.head and model.head.kind == "lm"):
            raise AttncalcError(
                "--tie-word-embeddings: this model has no lm head",
                "leave it out, or give --vocab-size",
            )
        changed = dataclasses.replace(changed, head=model.head._replace(tied=tie_word_embeddings))
    if layers:
        changed = _with_layers(changed, layers)
    # local and global layers: it changes the local ones
    if window and not pattern and {None} < _reaches(changed):
        changed = _with_attentions(changed, lambda kind: _with_other_window(kind, window))
    elif window or pattern:
        changed = _with_pattern(changed, window, pattern or (LOCAL,))
    return changed if changed is model else dataclasses.replace(changed, stored=None)


def _has_kv_heads(model: ModelSpec) -> bool:
    return any(isinstance(group.attention, Grouped) for _, group in model.groups())


def _reach(kind: Attention) -> int | None:
    """Return the window of a kind that can have one, or None for full attention; beside pools, that
    of tokens.
    """
    span: Span = getattr(kind, "span_of_tokens", kind.span)
    return span.reach


def _reaches(model: ModelSpec) -> set[int | None]:
    """Return the windows of the layers that can have one; None for full attention."""
    return {
        _reach(group.attention) for _, group in model.groups() if hasattr(group.attention, "span")
    }


def _with_span(kind: Attention, span: Span) -> Attention:
    """Return the kind with another span. Raises AttncalcError for a window where an indexer picks
    the keys.
    """
    from .attention.picked import Picked

    if hasattr(kind, "span_of_tokens") or not isinstance(kind.span, Picked):
        return kind.with_span(span)
    if span == FULL:
        return kind  # the indexer picks from the whole context
    raise AttncalcError(
        "--window: this model has an indexer that picks keys of the whole context", "leave it out"
    )


def _with_other_window(kind: Attention, window: int) -> Attention:
    is_local = hasattr(kind, "span") and _reach(kind)
    if is_local:
        return _with_span(kind, Sliding(int(window)))
    return kind


def _with_heads(
    model: ModelSpec, heads: int | None, kv_heads: int | None, head_dim: int | None
) -> ModelSpec:
    def changed(kind: Attention) -> Attention:
        if not isinstance(kind, Grouped):
            return kind
        n_heads = heads or kind.n_heads
        n_kv_heads = kv_heads or (n_heads if kind.n_kv_heads == kind.n_heads else kind.n_kv_heads)
        if n_heads % n_kv_heads and kv_heads:
            raise AttncalcError(
                f"--kv-heads: {n_kv_heads} does not divide the {n_heads} query heads",
                kv_heads_tip(n_heads),
            )
        if n_heads % n_kv_heads:
            raise AttncalcError(
                f"--heads: the {n_kv_heads} KV heads do not divide {n_heads}",
                f"give a multiple of {n_kv_heads}, or --kv-heads too",
            )
        return dataclasses.replace(
            kind, n_heads=n_heads, n_kv_heads=n_kv_heads, d_head=head_dim or kind.d_head
        )

    if not _has_kv_heads(model):
        kind = model.main.layers[0].attention
        if kv_heads:
            name = "--kv-heads"
        elif heads:
            name = "--heads"
        else:
            name = "--head-dim"
        raise AttncalcError(
            f"{name}: {kind.label} has no such heads", "it changes MHA, GQA and MQA only"
        )
    return _with_attentions(model, changed)


def _with_widths(
    model: ModelSpec, d_model: int | None, d_ff: int | None, vocab_size: int | None
) -> ModelSpec:
    main = model.main
    d_model = None if d_model == main.d_model else d_model
    if d_model and (
        model.extra
        or model.towers
        or len(model.stacks) > 1
        or any(group.extra for group in main.layers)
    ):
        raise AttncalcError(
            "--d-model: this model has further matrices of its width", "leave it out"
        )
    if d_ff and not any(group.mlp for _, group in model.groups()):
        raise AttncalcError("--d-ff: this model has no MLP", "leave it out")
    if vocab_size and model.vocab_size is None:
        raise AttncalcError("--vocab-size: this model has no vocabulary", "leave it out")
    ratio = Fraction(d_model or main.d_model, int(main.d_model))

    def changed_mlp(mlp: Mlp) -> Mlp:
        if d_ff:
            return dataclasses.replace(mlp, d_ff=d_ff)
        shared = mlp.d_ff_shared and round(mlp.d_ff_shared * ratio)
        return dataclasses.replace(mlp, d_ff=round(mlp.d_ff * ratio), d_ff_shared=shared)

    def changed(layer: Layers) -> Layers:
        if layer.mlp:
            return dataclasses.replace(layer, mlp=changed_mlp(layer.mlp))
        return layer

    changed_model = _with_each_layer(model, changed)
    assumed = model.assumed
    widths = dict.fromkeys(group.mlp.d_ff for _, group in changed_model.groups() if group.mlp)
    if ratio != 1 and not d_ff and widths:
        text = (
            f"d_ff {' and '.join(map(count, widths))}, as many times d_model as released (--d-ff)."
        )
        assumed = f"{assumed} {text}".lstrip()
    stack = dataclasses.replace(changed_model.main, d_model=d_model or main.d_model)
    stacks = (*changed_model.stacks[:-1], stack)
    vocab_size = vocab_size or model.vocab_size
    return dataclasses.replace(changed_model, stacks=stacks, vocab_size=vocab_size, assumed=assumed)


def _with_experts(model: ModelSpec, experts: int | None, per_token: int | None) -> ModelSpec:
    def changed(layer: Layers) -> Layers:
        mlp = layer.mlp
        if mlp is None or not mlp.n_experts:
            return layer
        n_experts = experts or mlp.n_experts
        n_per_token = per_token or mlp.n_experts_per_token or 0
        if n_per_token > n_experts:
            raise AttncalcError(
                f"--experts-per-token: {n_per_token} is more than the {n_experts} experts",
                f"give --experts-per-token {n_experts} or fewer",
            )
        return dataclasses.replace(
            layer,
            mlp=dataclasses.replace(mlp, n_experts=n_experts, n_experts_per_token=n_per_token),
        )

    if not model.has_experts:
        name = "--experts" if experts else "--experts-per-token"
        raise AttncalcError(
            f"{name}: this model has no experts",
            "'attncalc presets show mixtral-8x7b' prints a model file to change",
        )
    return _with_each_layer(model, changed)


def _with_layers(model: ModelSpec, number: int) -> ModelSpec:
    if number > MAX_LAYERS:
        raise AttncalcError(
            f"--layers {count(number)} is more than {MAX_LAYERS:,}",
            f"give --layers {MAX_LAYERS} or fewer",
        )

    def changed(stack: Stack) -> Stack:
        released = stack.each_layer()
        period = _period(released)
        further = [
            released[len(released) - period + i % period]
            for i in range(max(0, number - len(released)))
        ]
        return _with_layers_of(stack, [*released, *further][:number])

    return dataclasses.replace(model, stacks=tuple(map(changed, model.stacks)))


def _period(layers: Sequence[Layers]) -> int:
    """Return after how many layers their order repeats; 1 if it does not, so that the last layer is
    repeated.
    """
    for period in range(1, len(layers) // 2 + 1):
        if all(layers[i] == layers[i - period] for i in range(period, len(layers))):
            return period
    return 1


def _local_span(model: ModelSpec, window: int | None, pattern: Sequence[str]) -> Span:
    """Return the span of a pattern's local layers: `window`, or the only one that the model has."""
    windows = _reaches(model)
    if not windows:
        raise AttncalcError("--window: no layer of this model can have a window", "leave it out")
    released = [reach for reach in windows if reach]
    if window is None and len(released) != 1:
        if UNNAMED in pattern:
            text = f"{pattern.count(UNNAMED)}:{pattern.count(GLOBAL)}"
            raise AttncalcError(
                f"--pattern: '{text}' does not say of which kind its layers are", _written(text)
            )
        if LOCAL in pattern:
            raise AttncalcError(
                "--pattern needs --window",
                "give the tokens that a local layer sees, as --window 4096",
            )
    if window:
        return Sliding(int(window))
    return Sliding(int(released[0])) if released else FULL


def _with_pattern(model: ModelSpec, window: int | None, pattern: Sequence[str]) -> ModelSpec:
    """Return the model with its layers as in a repeating pattern; `window` is that of the local
    ones.
    """
    local = _local_span(model, window, pattern)
    pattern = [text or LOCAL for text in pattern]
    variants = {text: Variant.parse(text) for text in dict.fromkeys(pattern) if text not in _SPANS}

    def changed(i: int, layer: Layers) -> Layers:
        text = pattern[i % len(pattern)]
        if not hasattr(layer.attention, "span"):
            return layer
        span = local if text == LOCAL else FULL
        layer = _with_attention(layer, lambda kind: _with_span(kind, span))
        if text in variants:
            layer = dataclasses.replace(layer, attention=variants[text].apply(layer.attention))
        if {*pattern} == {text}:
            return layer
        name = text.replace(":", "_")  # as each group of layers needs a name of its own
        if layer.name != "layers":
            name = f"{layer.name}_{name}"
        return dataclasses.replace(layer, name=name)

    stacks = []
    for stack in model.stacks:
        layers = [changed(i, layer) for i, layer in enumerate(stack.each_layer())]
        stacks.append(_with_layers_of(stack, layers))
    notes = list(model.notes)
    for variant in variants.values():
        notes += model.notes_of(variant)
    return dataclasses.replace(model, stacks=tuple(stacks), notes=tuple(notes))


def _with_attentions(model: ModelSpec, change: Callable[[Attention], Attention]) -> ModelSpec:
    """Return the model with `change` applied to every attention."""
    return _with_each_layer(model, lambda layer: _with_attention(layer, change))


def _with_attention(layer: Layers, change: Callable[[Attention], Attention]) -> Layers:
    """Return the layer with `change` applied to its attention, and to the heads of its
    cross-attention.
    """
    cross = layer.cross
    if isinstance(cross, Cross):
        heads = change(cross.heads)
        cross = Cross(heads) if isinstance(heads, Grouped) else cross
    return dataclasses.replace(layer, attention=change(layer.attention), cross=cross)


def _with_each_layer(model: ModelSpec, change: Callable[[Layers], Layers]) -> ModelSpec:
    """Return the model with `change` applied to every layer of every stack."""
    stacks = (_with_layers_of(stack, [*map(change, stack.each_layer())]) for stack in model.stacks)
    return dataclasses.replace(model, stacks=tuple(stacks))


def _with_layers_of(stack: Stack, layers: Sequence[Layers]) -> Stack:
    """Return the stack with other layers, equal neighbours together."""
    groups = tuple(
        dataclasses.replace(layer, count=len(list(equal))) for layer, equal in groupby(layers)
    )
    return dataclasses.replace(stack, layers=groups)


_SIZES_EXAMPLE = "--layers 32 --heads 32 --kv-heads 8 --head-dim 128"


def no_model() -> AttncalcError:
    return AttncalcError(
        "a model is required",
        Tip(
            f"'attncalc presets' lists names; or give sizes: {_SIZES_EXAMPLE}",
            page="choose one from the list, drop a config.json here, or give sizes: "
            f"{_SIZES_EXAMPLE}",
            python=f"attncalc.preset_names() lists names; or give sizes: {_SIZES_EXAMPLE}",
        ),
    )


def _missing_sizes(wanted: Mapping[str, int | None]) -> AttncalcError:
    missing = [name for name, size in wanted.items() if size is None]
    return AttncalcError(
        f"a model of your own sizes needs {', '.join(missing)}",
        "for example --layers 32 --heads 32 --kv-heads 8 --head-dim 128; the MLP is --d-ff, and "
        "--vocab-size",
    )


def _widths_of(heads: int, head_dim: int | None, d_model: int | None) -> tuple[int, list[str]]:
    """Return d_model, and what is assumed: each of the widths of the model and of a head follows
    from the other.
    """
    if d_model is None:
        assert head_dim is not None  # one of the two is known
        width = heads * head_dim
        return width, [f"d_model {count(width)} (heads x head_dim)"]
    if head_dim is None and d_model % heads == 0:
        return d_model, [f"heads of {d_model // heads} (--d-model / --heads)"]
    return d_model, []


def model_of_sizes(sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return the keys of a model file for a decoder that is given by its sizes alone.

    Args:
        sizes: those of SIZES, experts and experts_per_token, as far as they are known.

    Raises AttncalcError if there are none, or a size is missing that the others do not decide.
    """
    if not SIZES & sizes.keys():
        raise no_model()
    layers = sizes.get("layers")
    heads = sizes.get("heads", sizes.get("kv_heads"))
    head_dim = sizes.get("head_dim")
    d_model = sizes.get("d_model")
    if layers is None or heads is None or (head_dim is None and d_model is None):
        raise _missing_sizes(
            {"--layers": layers, "--heads": heads, "--head-dim or --d-model": head_dim or d_model}
        )
    d_model, of_widths = _widths_of(heads, head_dim, d_model)
    assumed = ["RMSNorm, no biases", *of_widths]
    d_ff = sizes.get("d_ff", 4 * d_model)
    is_gated = d_ff != 4 * d_model
    assumed.append(
        f"an MLP of {'three matrices' if is_gated else 'two matrices'} with d_ff {count(d_ff)}"
    )
    if "heads" not in sizes:
        assumed.append("as many query heads as KV heads")
    if "vocab_size" not in sizes:
        assumed.append("no vocabulary")
    elif "tie_word_embeddings" not in sizes:
        assumed.append("an lm head with a matrix of its own (--tie-word-embeddings)")
    known = {
        "n_kv_heads": sizes.get("kv_heads"),
        "d_head": head_dim,
        "vocab_size": sizes.get("vocab_size"),
    }
    if "vocab_size" in sizes:
        known["tied_embeddings"] = False
    experts = sizes.get("experts")
    if experts:
        known["n_experts"] = experts
        known["n_experts_per_token"] = sizes.get("experts_per_token", min(2, experts))
        if "experts_per_token" not in sizes:
            assumed.append(f"{known['n_experts_per_token']} experts per token")
    return {
        "title": OF_SIZES,
        "assumed": f"{'; '.join(assumed)}.",
        "n_layers": layers,
        "d_model": d_model,
        "n_heads": heads,
        "norm": "rmsnorm",
        "mlp": "gated" if is_gated else "plain",
        "d_ff": d_ff,
        "dtype": "bf16",
        **{key: value for key, value in known.items() if value is not None},
    }
