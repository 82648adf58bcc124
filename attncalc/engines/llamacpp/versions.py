"""The versions of llama.cpp: a build (b11258), the release of llama-cpp-python, or the fork ik_llama.cpp.

The cells of the cache are computed as in `VERSION` for every build. What differs is the compute graph: since two pull
requests of June 2026 a mask of flash attention is in f16 (#23764) and a server computes only the logits that it samples
from (#23861); since a third, CUDA reserves an f16 copy of a quantized cache (#23907).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ...errors import AttncalcError
from ...units import truncate

VERSION, FORK = "0.3.36", "ik"
"""The values of --engine-version besides builds: the version of llama-cpp-python, or the fork ik_llama.cpp."""
LARGEST_BUILD = 99_999
_FLASH_ATTENTION = 6325
"""The build since which flash attention is on by default ('auto'), of August 2025 (#15434)."""
_OLD_GRAPH, _NEW_GRAPH = 9371, 9500
"""The last build known to be before the changes of June 2026, and the first known to be after them (two lists of the
merged pull requests, up to b9371 and from b9442 to b9500)."""
_TWO_HOST_COPIES = 7600
"""A build of January 2026. Logs of 2025 have the token embeddings once in CUDA_Host, those of 2026 twice."""
_OUTPUT_FIRST = 7480
"""A build of the days after 18 December 2025, when -ngl began to count from the output layer (#18148)."""


class LlamaCppVersion(NamedTuple):
    """What depends on the version.

    Attributes:
        name: the version as given, or the default.
        fork: whether it is ik_llama.cpp.
        short_masks: masks of flash attention are in f16 only; before, in f32 with a copy in f16.
        sampled_logits: a server computes the logits of sampled tokens only; before, of every token.
        f16_cache_copy: flash attention on CUDA reserves an f16 copy of a quantized cache.
        between: whether the build is one of those that may have some of these changes.
        flash_attention: whether flash attention is on by default.
        output_first: whether the output layer is the first to go to a GPU; before, it was the last.
        host_embeddings: how often the token embeddings are in the buffer of the host.
    """

    name: str
    fork: bool
    short_masks: bool
    sampled_logits: bool
    f16_cache_copy: bool
    between: bool
    flash_attention: bool
    host_embeddings: int
    output_first: bool


def llamacpp_version(text: str | None) -> LlamaCppVersion:
    """Return what that version does; None is VERSION. Raises AttncalcError if the version is unknown."""
    build = re.fullmatch(r"b([1-9]\d{0,4})", text or "")
    if text not in (None, VERSION, FORK) and not build:
        raise AttncalcError(
            f"--engine-version {truncate(text)}: llama.cpp has no such version",
            f"known: builds as b11258, {VERSION} (of llama-cpp-python), {FORK} (ik_llama.cpp)",
        )
    fork = text == FORK
    number = int(build[1]) if build else 0 if fork else LARGEST_BUILD
    new = number >= _NEW_GRAPH
    return LlamaCppVersion(
        name=text or VERSION,
        fork=fork,
        short_masks=new,
        sampled_logits=new,
        f16_cache_copy=new,
        between=_OLD_GRAPH < number < _NEW_GRAPH,
        flash_attention=fork or number >= _FLASH_ATTENTION,  # for the fork -fa is assumed
        host_embeddings=2 if number >= _TWO_HOST_COPIES else 1,
        output_first=number >= _OUTPUT_FIRST,
    )
