"""Fields that change neither parameters, nor FLOPs, nor a cache (inert.txt lists them)."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_PATTERNS = re.compile(
    r"rope|rotary|dropout|_pdrop$|initializer|init_std|init_method|_eps$|epsilon|_token_id$|_token_index$|softcap"
    r"|aux_loss|_loss_coef$|_drop$|_image_token|^mask_(time|feature)|^spec_augment|_multipliers?$"
)


def is_inert(name: str) -> bool:
    """`name` is known to change no figure, in any family."""
    return name in _names() or bool(_PATTERNS.search(name))


@cache
def _names() -> frozenset[str]:
    text = Path(__file__).with_name("ignored.txt").read_text(encoding="utf-8")
    return frozenset(word for line in text.splitlines() if not line.startswith("#") for word in line.split())
