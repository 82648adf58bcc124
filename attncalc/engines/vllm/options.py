"""vLLM's own options, and its arguments."""

# Without `from __future__ import annotations`, a TypedDict has its types as objects, and not as strings.

from dataclasses import dataclass
from typing import Annotated, TypedDict

from ...options import COUNT, Count, Option, Parser
from ...units import parse_bytes
from ..base import DraftModel, PagedArgs


def _gibibytes(text: str, name: str) -> int:
    """Return a size in bytes; a bare number is in GiB, as in vLLM's --swap-space."""
    return parse_bytes(text if text[-1:].isalpha() else f"{text}GiB", name)


class VllmOptions(TypedDict, total=False):
    """Arguments of vLLM alone."""

    speculative_model: Annotated[
        str | None,
        Option("--speculative-model", metavar="MODEL", help="The draft model, as an EAGLE head's config.json."),
    ]
    max_num_batched_tokens: Annotated[
        Count | None,
        Option("--max-num-batched-tokens", metavar="N", parse=COUNT, help="Tokens per step. Default: by the GPU."),
    ]
    max_num_seqs: Annotated[
        Count | None,
        Option(
            "--max-num-seqs", metavar="N", parse=COUNT, help="Sequences per step. Default: by the GPU.", common=True
        ),
    ]
    enforce_eager: Annotated[bool, Option("--enforce-eager", help="No CUDA graphs, which take memory from 0.20 on.")]
    allow_long_max_model_len: Annotated[
        bool,
        Option(
            "--allow-long-max-model-len",
            help="VLLM_ALLOW_LONG_MAX_MODEL_LEN=1, which allows a context beyond the model's maximum.",
        ),
    ]
    disable_hybrid_kv_cache_manager: Annotated[
        bool, Option("--disable-hybrid-kv-cache-manager", help="Store sliding windows as full attention.")
    ]
    swap_space: Annotated[
        float | str | None,
        Option(
            "--swap-space", metavar="GIB", parse=Parser(_gibibytes), help="Before V1: host memory for swapped blocks."
        ),
    ]


@dataclass(frozen=True)
class VllmArgs(PagedArgs):
    """The arguments of vLLM.

    Attributes:
        max_num_batched_tokens: tokens of one scheduler step.
        max_num_seqs: sequences of one scheduler step.
        enforce_eager: no CUDA graphs.
        allow_long_max_model_len: a context beyond the model's maximum.
        disable_hybrid_kv_cache_manager: store sliding windows like full attention.
        swap_space: bytes of host memory for blocks (before V1).
        speculative_model: the draft model on one device.
    """

    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    enforce_eager: bool = False
    allow_long_max_model_len: bool = False
    disable_hybrid_kv_cache_manager: bool = False
    swap_space: int | None = None
    speculative_model: DraftModel | None = None
