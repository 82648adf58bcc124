"""A checked document -> a ModelSpec: defaults filled in, patterns laid out, nothing ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..attention import FULL, KINDS, Chunked, Cross, Grouped, Sliding, Span, shaped
from ..errors import AttncalcError, did_you_mean
from ..mlp import Mlp
from ..model import Head, Layers, ModelSpec, Stack
from ..workload import Mask
from .document import Document, Path
from .keys import is_layer_key, is_stack_key, kind_keys

NOT_INHERITED = ("learned_positions", "max_context", "pattern", "layer_kinds")
"""Keys beside 'encoder' that say nothing of the encoder."""


def build(document: Document, name: str) -> ModelSpec:
    """The model that `document`, checked by its schema, describes.

    AttncalcError: with the line of what is wrong.
    """
    top = document.data
    stacks = []
    if "encoder" in top:
        inherited = {k: v for k, v in top.items() if is_stack_key(k) and k not in NOT_INHERITED}
        given = {**inherited, **top["encoder"]}
        used = _Used(document, ("encoder",), top["encoder"])
        stacks.append(_stack(used, "encoder", given, reads="source", mask="bidirectional"))
    bidirectional = top.get("mask") == "bidirectional"
    if bidirectional and "encoder" in top:
        raise document.error(("mask",), "a decoder cannot be bidirectional", "leave out 'mask', or 'encoder'")
    used = _Used(document, (), top)
    stacks.append(
        _stack(
            used,
            "encoder" if bidirectional else "decoder",
            top,
            mask=top.get("mask", "causal"),
            cross=bool(stacks),
        )
    )
    return ModelSpec(
        name=name,
        title=top["title"],
        stacks=tuple(stacks),
        vocab_size=top.get("vocab_size"),
        token_types=top.get("token_types"),
        d_embedding=top.get("d_embedding"),
        head=_head(document),
        dtype=top.get("dtype", "fp16"),
        extra=(
            *shaped(top.get("extra_params", {})),
            *shaped(top.get("outside_matrices", {}), "queries"),
            *shaped(top.get("first_matrices", {}), "first"),
        ),
        sources=tuple(top["sources"]),
        notes=tuple(top.get("notes", ())),
        assumed=top.get("assumed", ""),
        model_type=top.get("model_type"),
        weights_dtype=top.get("weights_dtype"),
        experts_dtype=top.get("experts_dtype"),
    )


class _Used:
    """The layer keys of one section, and which of them a layer has taken: none is ignored in silence."""

    def __init__(self, document: Document, path: Path, section: Mapping[str, Any]) -> None:
        self.document, self.path, self.section = document, path, section
        self.keys: set[str] = set()

    def error(self, key: str, message: str, tip: str) -> AttncalcError:
        return self.document.error((*self.path, key) if key else self.path, message, tip)

    def refuse_unused(self, tip: str) -> None:
        for key in self.section:
            if is_layer_key(key) and key not in self.keys:
                raise self.error(key, "has no effect on this model", tip)


def _stack(
    used: _Used, name: str, given: Mapping[str, Any], *, mask: Any, reads: Any = "target", cross: bool = False
) -> Stack:
    kinds: dict[str, Mapping[str, Any]] = {
        kind: {**given, **keys} for kind, keys in given.get("layer_kinds", {}).items()
    } or {"layers": given}
    runs = _laid_out(used, given, kinds)
    made = {}
    for kind, keys in kinds.items():
        where = used
        if "layer_kinds" in given:
            where = _Used(used.document, (*used.path, "layer_kinds", kind), given["layer_kinds"][kind])
        made[kind] = _layers(where, kind, keys, cross)
        overridden = set(where.section) if where is not used else set()
        used.keys |= where.keys - overridden
        if where is not used:
            where.refuse_unused(f"it belongs to another kind of attention or MLP than '{kind}' has")
    used.refuse_unused("it belongs to another kind of attention or MLP, or every layer kind overrides it")
    return Stack(
        name,
        tuple(Layers(**{**made[kind], "count": n}) for kind, n in runs),
        given["d_model"],
        norm=given["norm"],
        input=reads,
        mask=Mask(mask),
        learned_positions=given.get("learned_positions"),
        relative_position_buckets=given.get("relative_position_buckets"),
        embedding_norm=given.get("embedding_norm", False),
        final_norm=given.get("final_norm", True),
        max_context=given.get("max_context", given.get("learned_positions")),
    )


def _laid_out(used: _Used, given: Mapping[str, Any], kinds: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The runs of equal layers in order: [('local', 5), ('global', 1), ...]."""
    left = given["n_layers"]
    if "pattern" not in given and "layer_kinds" not in given:
        return [("layers", left)]
    if "pattern" not in given or "layer_kinds" not in given:
        raise used.error("", "'pattern' and 'layer_kinds' come together", "give both, or neither")
    period: list[tuple[str, int]] = []
    for i, item in enumerate(given["pattern"]):
        number, _, kind = item.rpartition(" ")
        if kind not in kinds:
            raise used.document.error(
                (*used.path, "pattern", i),
                f"'{kind}' is not one of layer_kinds",
                f"{did_you_mean(kind, kinds)}layer_kinds has: {', '.join(kinds)}",
            )
        period.append((kind, int(number or 1)))
    unused = [kind for kind in kinds if kind not in dict(period)]
    if unused:
        raise used.document.error(
            (*used.path, "layer_kinds", unused[0]), "is not in the pattern", "name it there, or leave it out"
        )
    if sum(n for _, n in period) > left:
        raise used.error("pattern", f"is longer than n_layers, {left}", "a pattern repeats until n_layers are filled")
    runs: list[tuple[str, int]] = []
    while left:
        for kind, n in period:
            taken = min(n, left)
            left -= taken
            if taken:
                runs.append((kind, taken))
    return runs


def _layers(used: _Used, name: str, given: Mapping[str, Any], cross: bool) -> dict[str, Any]:
    """The fields of one kind of layer."""
    try:
        attention = _attention(used, given)
        mlp = _mlp(used, given)
    except AttncalcError as error:
        if error.message.startswith(f"{used.document.file}:"):
            raise
        key, colon, rest = error.message.partition(": ")
        if not (colon and is_layer_key(key)):
            key, rest = "", error.message
        raise used.error(key, rest, error.tip) from None
    used.keys |= {"norms_per_layer", "extra_matrices", "extra_vectors_per_layer", "shares_weights"}
    if cross and not isinstance(attention, Grouped):
        raise used.error("attention", "an encoder-decoder's cross-attention is grouped here", "leave out 'encoder'")
    return {
        "name": name,
        "attention": attention,
        "cross": Cross(attention) if cross else None,
        "mlp": mlp,
        "norms": given.get("norms_per_layer", 2) + int(cross),
        "shares_weights": given.get("shares_weights", False),
        "extra": (
            *shaped(given.get("extra_matrices", {}), "queries"),
            *shaped(given.get("extra_vectors_per_layer", {})),
        ),
    }


def _attention(used: _Used, given: Mapping[str, Any]) -> Any:
    name = given.get("attention", "grouped")
    used.keys |= {"attention", "window", "chunk", *kind_keys(name)}
    taken = {key: given[key] for key in kind_keys(name) if key in given}
    kind = KINDS[name]
    for key in kind.required():
        if key not in taken:
            meaning = kind_keys(name)[key]["description"]
            raise used.error("", f"'{key}' is missing", f"{key} is: {meaning}")
    return kind.from_keys(taken, given["d_model"], _span(used, given))


def _span(used: _Used, given: Mapping[str, Any]) -> Span:
    if "window" in given and "chunk" in given:
        raise used.error("chunk", "a layer has a window or a chunk, not both", "leave out one of them")
    if "window" in given:
        return Sliding(given["window"])
    return Chunked(given["chunk"]) if "chunk" in given else FULL


def _mlp(used: _Used, given: Mapping[str, Any]) -> Mlp | None:
    kind = given.get("mlp", "plain")
    used.keys.add("mlp")
    if kind == "none":
        return None
    if "d_ff" not in given:
        raise used.error("", "'d_ff' is missing", "d_ff is the width of the MLP; 'mlp: none' for a model without one")
    keys = ("d_ff", "n_experts", "n_experts_per_token", "n_shared_experts", "d_ff_shared")
    used.keys |= {*keys, "mlp_bias"}
    if "n_experts" in given:
        used.keys |= {"router_bias", "d_router", "d_latent"}
    for key in ("n_shared_experts", "d_ff_shared"):
        if key in given and "n_experts" not in given:
            raise used.error(key, "shared experts without n_experts", "give n_experts too")
    return Mlp(
        **{key: given[key] for key in keys if key in given},
        gated=kind == "gated",
        bias=given.get("mlp_bias", False),
        router_bias=given.get("router_bias", False),
        d_router=given.get("d_router"),
        d_latent=given.get("d_latent"),
    )


def _head(document: Document) -> Head | None:
    top = document.data
    for key in ("token_types", "d_embedding", "tied_embeddings", "head_bias"):
        if key in top and "vocab_size" not in top:
            raise document.error((key,), "has no effect without 'vocab_size'", "give vocab_size, or leave it out")
    kind = top.get("head", "lm" if "vocab_size" in top else "none")
    if kind == "lm" and "vocab_size" not in top:
        raise document.error(("head",), "an lm head without 'vocab_size'", "give vocab_size, or 'head: none'")
    for key in ("tied_embeddings", "head_bias"):
        if kind != "lm" and top.get(key):
            raise document.error((key,), "has no effect without an lm head", "leave it out")
    if kind == "none":
        return None
    return Head(kind, tied=top.get("tied_embeddings", False), bias=top.get("head_bias", False))
