"""SGLang's own options, and its arguments."""

# Without `from __future__ import annotations`, a TypedDict has its types as objects, and not as strings.

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, TypedDict

from ...options import COUNT, TEXT, Count, Option
from ..options import PagedArgs
from .versions import SglangVersion, sglang_version

_REQUESTS_DRAFTING = 48
"""Concurrent requests with a drafter, unless --max-running-requests is given."""


class SglangOptions(TypedDict, total=False):
    """Arguments of SGLang alone."""

    max_running_requests: Annotated[
        Count | None,
        Option(
            "--max-running-requests",
            metavar="N",
            parse=COUNT,
            help="Maximum concurrent requests, which sizes the pools of recurrent states.",
        ),
    ]
    swa_full_tokens_ratio: Annotated[
        float | str | None,
        Option(
            "--swa-full-tokens-ratio",
            metavar="RATIO",
            parse=TEXT,
            help="Tokens of sliding-window layers per token of full layers.",
        ),
    ]
    mamba_full_memory_ratio: Annotated[
        float | str | None,
        Option(
            "--mamba-full-memory-ratio",
            metavar="RATIO",
            parse=TEXT,
            help="Memory of recurrent states over that of the KV cache.",
        ),
    ]
    chunked_prefill_size: Annotated[
        Count | None,
        Option(
            "--chunked-prefill-size", metavar="N", parse=COUNT, help="Tokens of a prefill chunk. Default: by the GPU."
        ),
    ]
    max_mamba_cache_size: Annotated[
        Count | None,
        Option("--max-mamba-cache-size", metavar="N", parse=COUNT, help="Slots of recurrent states, of all ranks."),
    ]
    disable_hybrid_swa_memory: Annotated[
        bool, Option("--disable-hybrid-swa-memory", help="Store sliding windows as full attention.")
    ]


@dataclass(frozen=True)
class SglangArgs(PagedArgs):
    """The arguments of SGLang: those of its options have their names. Ratios are decimals, as text."""

    max_running_requests: int | None = None
    swa_full_tokens_ratio: str | None = None
    mamba_full_memory_ratio: str | None = None
    chunked_prefill_size: int | None = None
    max_mamba_cache_size: int | None = None
    disable_hybrid_swa_memory: bool = False

    @cached_property
    def version(self) -> SglangVersion:
        """What this version does. Raises AttncalcError if `engine_version` is unknown."""
        return sglang_version(self.engine_version)

    @property
    def has_drafter(self) -> bool:
        return bool(self.speculative_layers or self.speculative_tokens or self.speculative_model)

    @property
    def requests(self) -> int | None:
        """The most concurrent requests: as given, or with a drafter by default; None without a limit."""
        return self.max_running_requests or (_REQUESTS_DRAFTING if self.has_drafter else None)

    @property
    def radix_cache(self) -> bool:
        """Whether prefixes are cached, which is the default."""
        return self.prefix_caching is not False
