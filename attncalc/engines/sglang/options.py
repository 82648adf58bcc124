"""SGLang's own options, and its arguments."""

# Without `from __future__ import annotations`, a TypedDict has its types as objects, and not as strings.

from dataclasses import dataclass
from typing import Annotated, TypedDict

from ...options import COUNT, TEXT, Count, Option
from ..base import PagedArgs


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
    disable_hybrid_swa_memory: Annotated[
        bool, Option("--disable-hybrid-swa-memory", help="Store sliding windows as full attention.")
    ]


@dataclass(frozen=True)
class SglangArgs(PagedArgs):
    """The arguments of SGLang.

    Attributes:
        max_running_requests: concurrent requests.
        swa_full_tokens_ratio: tokens of the sliding-window pool per token of the full pool, a decimal.
        mamba_full_memory_ratio: bytes of the state pool per byte of the token pools, a decimal.
        disable_hybrid_swa_memory: store sliding windows like full attention.
    """

    max_running_requests: int | None = None
    swa_full_tokens_ratio: str | None = None
    mamba_full_memory_ratio: str | None = None
    disable_hybrid_swa_memory: bool = False
