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
        is_size = item.kind == "size" and "x" not in item.text and before.kind != "gpu"
        is_size = is_size and before.typed.lower() not in _BEFORE_GPU
        is_claim = is_size or (item.kind == "billions" and after[:5] == "param")
        found.append(item._replace(kind="claim", idea=Idea(item.typed, note=CLAIM)) if is_claim else item)
    return found


def _named(items: Sequence[Item]) -> tuple[str, str, str] | None:
    named = {item.idea.words.split()[0] for item in items if item.idea}
    return next((_FIGURES[name] for name in _FIGURES if name in named), None)


def checked(root: Any, items: Sequence[Item], options: Sequence[str]) -> str:
    """Return the line that compares the claim of a question with the answer, in the claim's unit; '' without one.

    `options` are the model and the options of the command that answers it.
    """
    claims = [item.text for item in items if item.kind == "claim"]
    said = {item.typed.lower() for item in items}
    figure = _named(items)
    if len(claims) != 1 or figure is None:
        return ""
    command, names, label = figure
    unit = re.sub(r"^[\d.,]+ ?", "", claims[0])
    claim, one = (
        parse_amount(text.replace("B", "e9" if command == "params" else "B"), "") for text in (claims[0], f"1{unit}")
    )
    texts = printed_by(root, [command, *options, "--get", names]).split()
    if not texts or (claim.unit == BYTES) == (command == "params"):
        return ""
    bounds = [Fraction(text) / one.numerator for text in texts]
    value = Fraction(claim.numerator, claim.denominator * one.numerator)
    if than := "more" if _MORE & said else "less" if _LESS & said else "":
        is_right = bounds[0] > value if than == "more" else bounds[-1] < value
    else:
        is_right = bounds[0] * (1 - _ROUNDED) <= value <= bounds[-1] * (1 + _ROUNDED)
    shown = f"{' to '.join(f'{float(bound):.4g}' for bound in bounds)} {unit}"
    wrong = "" if is_right or than else f", and not {float(value):.4g} {unit}"
    return f"answer: {'yes' if is_right else 'no'}: the {label} is {shown}{wrong}"
