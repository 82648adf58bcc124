"""Build a ModelSpec from a checked document: fill in defaults, expand the pattern of layers, and
reject unused keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..attention import (
    FULL,
    KINDS,
    CacheSpec,
    Chunked,
    Cross,
    Grouped,
    Matrix,
    Sliding,
    Span,
    matrices_from_shapes,
)
from ..attention.kind import required_keys
from ..errors import AttncalcError, did_you_mean
from ..mlp import Mlp
from ..model import Head, Layers, ModelSpec, RopeTable, Stack, Tower, TowerAttention, TowerItem
from ..workload import Mask
from .document import Document, KeyPath
from .keys import is_layer_key, is_stack_key, kind_keys

if TYPE_CHECKING:
    from ..quantization import Quantization

# Keys of the decoder that the encoder does not inherit.
_NOT_INHERITED = ("learned_positions", "max_context", "pattern", "layer_kinds")


def build_model(document: Document, name: str) -> ModelSpec:
    """Return the model called `name` that `document`, checked against its schema, describes.

    Raises AttncalcError, with the line, if keys contradict each other or have no effect.
    """
    top = document.data
    is_bidirectional = top.get("mask") == "bidirectional"
    if is_bidirectional and "encoder" in top:
        raise document.error(
            ("mask",), "a decoder cannot be bidirectional", "leave out 'mask', or 'encoder'"
        )
    section = _Section(document, (), top)
    stacks = [_encoder(document, section.left_out)] if "encoder" in top else []
    stacks.append(
        _stack(
            section,
            "encoder" if is_bidirectional else "decoder",
            top,
            mask=top.get("mask", "causal"),
            cross=bool(stacks),
        )
    )
    quantization = top.get("quantization")
    head = _head(document)
    return ModelSpec(
        name=name,
        title=top.get("title", name),
        stacks=tuple(stacks),
        head=head,
        extra=(
            *matrices_from_shapes(top.get("extra_params", {})),
            *matrices_from_shapes(top.get("outside_matrices", {}), "queries"),
            *matrices_from_shapes(top.get("first_matrices", {}), "first"),
        ),
        quantization=_quantization(document, quantization) if quantization else None,
        towers=_towers(document, top),
        rope_tables=_rope_tables(document, top),
        assumed=_assumed(top, section.left_out, head),
        **_given(
            top, "vocab_size", "token_types", "d_embedding", "dtype", "model_type", "weights_dtype"
        ),
        **_given(top, "experts_dtype", "unread_quantization", "kv_dtype", "draft", "image_mask"),
        **_tuples(top, "sources", "notes"),
    )


def _assumed(top: Mapping[str, Any], left_out: set[str], head: Head | None) -> str:
    """Return what the figures assume: what the document says, and the defaults that no screen would
    show otherwise.
    """
    defaults = []
    if "mlp" in left_out:
        defaults.append("mlp: plain, two matrices (gated has three)")
    if head and head.kind == "lm" and "tied_embeddings" not in top:
        defaults.append("tied_embeddings: false, an lm head with a matrix of its own")
    if "dtype" not in top:
        defaults.append(f"dtype: {ModelSpec.dtype}")
    own = [top["assumed"]] if "assumed" in top else []
    text = f"{'; '.join(defaults)}: defaults of keys that the model file leaves out."
    return " ".join([*own, text] if defaults else own)


def _given(keys: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the keys that are fields of a spec too, without those that the document leaves to the
    spec's default.
    """
    return {name: keys[name] for name in names if name in keys}


def _tuples(keys: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: tuple(value) for name, value in _given(keys, *names).items()}


def _quantization(document: Document, keys: Mapping[str, Any]) -> Quantization:
    """Return how the checkpoint stores quantized matrices. Raises AttncalcError for a wrong pattern
    of modules.
    """
    from ..quantization import Quantization, Scheme, pattern_problem

    for listed in (
        keys.get("ignored", ()),
        *(scheme.get("targets", ()) for scheme in keys["schemes"]),
    ):
        problem = pattern_problem(listed)
        if problem:
            raise document.error(
                ("quantization",), f"has {problem}", "write re:.*self_attn.* for all attention"
            )
    schemes = (Scheme(**{**scheme, **_tuples(scheme, "targets")}) for scheme in keys["schemes"])
    return Quantization(
        keys["method"], tuple(schemes), **_tuples(keys, "ignored"), **_given(keys, "names")
    )


def _towers(document: Document, top: Mapping[str, Any]) -> tuple[Tower, ...]:
    """Return the towers. Raises AttncalcError if a largest item or attention belongs to none of
    them.
    """
    towers = top.get("towers", {})
    for key in ("tower_items", "tower_attention"):
        for name in top.get(key, {}):
            if name not in towers:
                raise document.error((key, name), "belongs to no tower", f"add '{name}' to towers")
    return tuple(_tower(document, name, sizes, top) for name, sizes in towers.items())


def _tower(document: Document, name: str, sizes: list[int], top: Mapping[str, Any]) -> Tower:
    """Return a tower. Raises AttncalcError unless its sizes are each a part of the one before."""
    if len(sizes) != 2 or sizes[1] > sizes[0]:
        raise document.error(
            ("towers", name),
            "is not [parameters, those of them that are divided]",
            "the second is at most the first",
        )
    params, split = sizes
    item = top.get("tower_items", {}).get(name)
    attention = top.get("tower_attention", {}).get(name)
    if attention and attention.get("whole", 0) > split:
        raise document.error(
            ("tower_attention", name, "whole"),
            f"is more than the {split:,} parameters of '{name}' that are divided",
            "it is the part of them that belongs to attention",
        )
    tower = Tower(name, params, split)
    if item:
        tower = tower._replace(item=TowerItem(**item))
    if attention:
        tower = tower._replace(attention=TowerAttention(**attention))
    return tower


def _rope_tables(document: Document, top: Mapping[str, Any]) -> tuple[RopeTable, ...]:
    tables = top.get("rope_tables", {})
    for name, shape in tables.items():
        if len(shape) != 2:
            raise document.error(("rope_tables", name), "is not [rows, width]", "give two numbers")
    return tuple(RopeTable(name, *shape) for name, shape in tables.items())


class _Section:
    """A part of a document with keys of layers: the top, `encoder`, or one of `layer_kinds`.

    It records in `used` which keys the layers use, so that a key without effect is an error, and in
    `left_out` those whose default they use. `data` has the section's own keys, without inherited
    ones.
    """

    def __init__(self, document: Document, path: KeyPath, data: Mapping[str, Any]) -> None:
        self.document = document
        self.path = path
        self.data = data
        self.used: set[str] = set()
        self.left_out: set[str] = set()

    def error(self, key: str, message: str, tip: str) -> AttncalcError:
        return self.document.error((*self.path, key) if key else self.path, message, tip)

    def check_unused(self, tip: str) -> None:
        """Raise AttncalcError for the first key of a layer that no layer uses."""
        for key in self.data:
            if is_layer_key(key) and key not in self.used:
                raise self.error(key, "has no effect on this model", tip)


def _encoder(document: Document, left_out: set[str]) -> Stack:
    """Return the encoder of an encoder-decoder; it inherits the decoder's keys that it does not
    give itself.

    The keys whose default it uses are added to `left_out`.
    """
    top = document.data
    inherited = {}
    for key, value in top.items():
        if is_stack_key(key) and key not in _NOT_INHERITED:
            inherited[key] = value
    section = _Section(document, ("encoder",), top["encoder"])
    stack = _stack(
        section, "encoder", {**inherited, **top["encoder"]}, tokens="source", mask="bidirectional"
    )
    left_out |= section.left_out
    return stack


def _stack(
    section: _Section,
    name: str,
    keys: Mapping[str, Any],
    *,
    mask: Any,
    tokens: Any = "target",
    cross: bool = False,
) -> Stack:
    """Return the stack that `keys`, those of `section` and inherited ones, describe."""
    runs = _runs(section, keys)
    fields = _fields_by_kind(section, keys, cross)
    return Stack(
        name,
        tuple(Layers(**fields[kind], count=count) for kind, count in runs),
        keys["d_model"],
        norm=keys["norm"],
        input=tokens,
        mask=Mask(mask),
        max_context=keys.get("max_context", keys.get("learned_positions")),
        **_given(
            keys, "learned_positions", "relative_position_buckets", "embedding_norm", "final_norm"
        ),
    )


def _fields_by_kind(
    section: _Section, keys: Mapping[str, Any], cross: bool
) -> dict[str, dict[str, Any]]:
    """Return {kind: the fields of its layers}; without layer_kinds all layers are of the kind
    'layers'.

    A key beside layer_kinds is used if some kind uses it and does not override it.
    """
    if "layer_kinds" not in keys:
        fields = {"layers": _layers(section, "layers", keys, cross)}
    else:
        fields = {}
        for kind, own_keys in keys["layer_kinds"].items():
            inner = _Section(
                section.document,
                (*section.path, "layer_kinds", kind),
                section.data["layer_kinds"][kind],
            )
            fields[kind] = _layers(inner, kind, {**keys, **own_keys}, cross)
            inner.check_unused(f"the attention and MLP of '{kind}' do not use it: leave it out")
            section.used |= inner.used - set(own_keys)
            section.left_out |= inner.left_out
    section.check_unused("no layer uses it, or every layer kind overrides it: leave it out")
    return fields


def _runs(section: _Section, keys: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return the runs of equal layers in order: [('local', 5), ('global', 1), ('local', 2)]."""
    n_layers = keys["n_layers"]
    if "pattern" not in keys and "layer_kinds" not in keys:
        return [("layers", n_layers)]
    period = _period(section, keys)
    if sum(count for _, count in period) > n_layers:
        raise section.error(
            "pattern",
            f"is longer than n_layers, {n_layers}",
            "a pattern is repeated until there are n_layers",
        )
    runs: list[tuple[str, int]] = []
    remaining = n_layers
    while remaining:
        for kind, count in period:
            n_run = min(count, remaining)
            remaining -= n_run
            if n_run:
                runs.append((kind, n_run))
    return runs


def _period(section: _Section, keys: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return the pattern once: [('local', 5), ('global', 1)] for [5 local, 1 global].

    Raises AttncalcError if pattern and layer_kinds do not name the same kinds.
    """
    if "pattern" not in keys or "layer_kinds" not in keys:
        raise section.error(
            "", "'pattern' and 'layer_kinds' must be given together", "give both, or neither"
        )
    kinds = keys["layer_kinds"]
    period: list[tuple[str, int]] = []
    for i, item in enumerate(keys["pattern"]):
        count, _, kind = item.rpartition(" ")
        if kind not in kinds:
            raise section.document.error(
                (*section.path, "pattern", i),
                f"'{kind}' is not one of layer_kinds",
                f"{did_you_mean(kind, kinds)}layer_kinds has: {', '.join(kinds)}",
            )
        period.append((kind, int(count or 1)))
    missing = [kind for kind in kinds if kind not in dict(period)]
    if missing:
        raise section.document.error(
            (*section.path, "layer_kinds", missing[0]),
            "is not in the pattern",
            "name it there, or leave it out",
        )
    return period


def _layers(section: _Section, name: str, keys: Mapping[str, Any], cross: bool) -> dict[str, Any]:
    """Return the fields of one kind of layers, with the section's line in every error."""
    try:
        attention = _attention(section, keys)
        mlp = _mlp(section, keys)
    except AttncalcError as error:
        if error.message.startswith(f"{section.document.file}:"):
            raise
        key, colon, rest = error.message.partition(": ")
        if not (colon and is_layer_key(key)):
            key = ""
            rest = error.message
        raise section.error(key, rest, error.tip) from None
    section.used |= {
        "norms_per_layer",
        "extra_matrices",
        "extra_vectors_per_layer",
        "lookup_tables",
        "shares_weights",
    }
    section.used.add("short_convolutions")
    if cross and not isinstance(attention, Grouped):
        raise section.error(
            "attention", "an encoder-decoder can only have grouped attention", "leave out 'encoder'"
        )
    return {
        "name": name,
        "attention": attention,
        "cross": Cross(attention) if cross else None,
        "mlp": mlp,
        "norms": keys.get("norms_per_layer", 2) + int(cross),
        "shares_weights": keys.get("shares_weights", False),
        "extra": (
            *matrices_from_shapes(keys.get("extra_matrices", {}), "queries"),
            *matrices_from_shapes(keys.get("extra_vectors_per_layer", {})),
        ),
        "lookups": tuple(
            Matrix(name, cols, rows) for name, (rows, cols) in keys.get("lookup_tables", {}).items()
        ),
        "convolutions": tuple(
            CacheSpec(
                m.name.replace("_", " "), m.rows, m.cols, per="sequence", role="short_convolution"
            )
            for m in matrices_from_shapes(keys.get("short_convolutions", {}))
        ),
    }


def _attention(section: _Section, keys: Mapping[str, Any]) -> Any:
    name = keys.get("attention", "grouped")
    kind = KINDS[name]
    known = kind_keys(name)
    section.used |= {"attention", "window", "chunk", *known}
    for key in required_keys(kind):
        if key not in keys:
            raise section.error(
                "", f"'{key}' is missing", f"meaning of '{key}': {known[key]['description']}"
            )
    if "window" in keys and "chunk" in keys:
        raise section.error(
            "chunk", "a layer has a window or a chunk, not both", "leave out one of them"
        )
    span: Span = FULL
    if "window" in keys:
        span = Sliding(keys["window"])
    elif "chunk" in keys:
        span = Chunked(keys["chunk"])
    return kind.from_keys(_given(keys, *known), keys["d_model"], span)


def _mlp(section: _Section, keys: Mapping[str, Any]) -> Mlp | None:
    """Return the MLP of layers with these keys, or None for 'mlp: none'."""
    kind = keys.get("mlp", "plain")
    section.used.add("mlp")
    if kind == "none":
        return None
    if "d_ff" not in keys:
        raise section.error(
            "",
            "'d_ff' is missing",
            "d_ff is the width of the MLP; 'mlp: none' for a model without one",
        )
    if "mlp" not in keys:
        section.left_out.add("mlp")
    sizes = ("d_ff", "n_experts", "n_experts_per_token", "n_shared_experts", "d_ff_shared")
    of_router = ("router_bias", "d_router", "d_latent")
    section.used |= {*sizes, "mlp_bias", *(of_router if "n_experts" in keys else ())}
    for key in ("n_shared_experts", "d_ff_shared"):
        if key in keys and "n_experts" not in keys:
            raise section.error(key, "shared experts need n_experts", "give n_experts too")
    return Mlp(
        **_given(keys, *sizes, *of_router), gated=kind == "gated", bias=keys.get("mlp_bias", False)
    )


def _head(document: Document) -> Head | None:
    top = document.data
    for key in ("token_types", "d_embedding", "tied_embeddings", "head_bias"):
        if key in top and "vocab_size" not in top:
            raise document.error(
                (key,), "has no effect without 'vocab_size'", "give vocab_size, or leave it out"
            )
    kind = top.get("head", "lm" if "vocab_size" in top else "none")
    if kind == "lm" and "vocab_size" not in top:
        raise document.error(
            ("head",), "an lm head needs 'vocab_size'", "give vocab_size, or 'head: none'"
        )
    for key in ("tied_embeddings", "head_bias"):
        if kind != "lm" and top.get(key):
            raise document.error((key,), "has no effect without an lm head", "leave it out")
    if kind == "none":
        return None
    return Head(kind, tied=top.get("tied_embeddings", False), bias=top.get("head_bias", False))
