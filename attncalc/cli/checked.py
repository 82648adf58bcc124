"""A figure that a question brings is confirmed or not: 'is 1 GiB the right cache for llama3.1-8b at 8192 tokens'."""

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ..units import BYTES, parse_amount
from ..vocabulary import Idea
from .kinds import Item
from .neighbours import CLAIM
from .trial import printed_by

_FIGURES = {
    "per-token": ("kv", "kv_cache_per_token", "cache of a token"),
    "train": ("train", "needed_low,needed_high", "training memory"),
    "weights": ("fit", "weights", "size of the weights"),
    "kv": ("kv", "kv_cache", "KV cache"),
    "the-kv-cache": ("kv", "kv_cache", "KV cache"),
    "parameters": ("params", "params_total", "number of parameters"),
    "memory": ("fit", "needed_low,needed_high", "memory needed"),
}
"""{an idea of a question: the command that answers it, its figure or both bounds, what that is}; the first counts."""
_CHECKS = {"than", "right", "correct", "true", "accurate", "wrong"}
_FITS = {"fit", "fits", "enough", "run", "serve", "hold", "gpu", "gpus", "card", "cards"}
_BEFORE_GPU = {"on", "in", "with", "within", "a", "an", "my", "have", "has", "into"}
_MORE, _LESS = {"more", "bigger", "larger", "over", "above", "exceed"}, {"less", "smaller", "under", "below"}
_ROUNDED = Fraction(1, 50)  # '140 GB' is 141.1 GB


def with_claims(items: Sequence[Item]) -> list[Item]:
    """Return the items with the size that a question asks to confirm as a claim, which is no GPU: 'I get 140 GB of
    weights, is that right', 'is the cache 40 GB'. In 'is the cache too big for a 24 GB card' it is one.
    """
    said = [item.typed.lower() for item in items]
    is_check = not _CHECKS.isdisjoint(said) or said[:1] in (["is"], ["are"], ["does"], ["do"])
    if not (is_check and _FITS.isdisjoint(said) and _named(items)):
        return [*items]
    found = list[Item]()
    for before, item, after in zip([items[0], *items], items, [*said[1:], ""], strict=False):
        is_of_gpu = before.kind == "gpu" or before.typed.lower() in _BEFORE_GPU or "x" in item.text
        is_claim = after[:5] == "param" if item.kind == "billions" else item.kind == "size" and not is_of_gpu
        found.append(item._replace(kind="claim", idea=Idea(item.typed, note=CLAIM)) if is_claim else item)
    return found


def _named(items: Sequence[Item]) -> tuple[str, str, str] | None:
    named = {item.idea.words.split()[0] for item in items if item.idea}
    return next((_FIGURES[name] for name in _FIGURES if name in named), None)


def checked(root: Any, items: Sequence[Item], options: Sequence[str]) -> str:
    """Return the line that compares the claim of a question with the answer, in the claim's unit; '' without one.

    `options` are the model and the options of the command that answers it.
    """
    claims, figure = [item.text for item in items if item.kind == "claim"], _named(items)
    said = {item.typed.lower() for item in items}
    if len(claims) != 1 or figure is None:
        return ""
    command, names, label = figure
    unit = re.sub(r"^[\d.,]+ ?", "", claims[0])
    is_size, scale = command != "params", parse_amount(f"1{unit}".replace("1B", "1e9"), "")
    texts = printed_by(root, [command, *options, "--get", names]).split()
    if not texts or is_size != (scale.unit == BYTES):
        return ""
    low, *_, high = [Fraction(text) / scale.numerator for text in texts * 2]
    claim = Fraction(claims[0].removesuffix(unit).replace(",", ""))
    if than := "more" if _MORE & said else "less" if _LESS & said else "":
        is_right = low > claim if than == "more" else high < claim
    else:
        is_right = low * (1 - _ROUNDED) <= claim <= high * (1 + _ROUNDED)
    shown = " to ".join(dict.fromkeys(f"{float(one):.4g}" for one in (low, high)))
    other = "" if is_right or than else f", and not {float(claim):.4g} {unit}"
    return f"answer: {'yes' if is_right else 'no'}: the {label} is {shown} {unit}{other}"
