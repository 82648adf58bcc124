"""vLLM's own options, and its arguments."""

# Without `from __future__ import annotations`, a TypedDict has its types as objects, and not as strings.

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, TypedDict

from ...options import COUNT, Count, Option, Parser
from ...units import GIB, parse_bytes
from ..base import DraftModel
from ..options import PagedArgs
from .versions import VllmVersion, vllm_version

_LONG_CONTEXT = 32 * 1024
"""Tokens of context beyond which V0 splits prompts by default (_set_default_args_v0)."""


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
    """The arguments of vLLM: those of its options have their names. `swap_space` is in bytes."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enforce_eager: bool = False
    allow_long_max_model_len: bool = False
    disable_hybrid_kv_cache_manager: bool = False
    swap_space: int | None = None
    speculative_model: DraftModel | None = None

    @cached_property
    def version(self) -> VllmVersion:
        """What this version does. Raises AttncalcError if `engine_version` is unknown."""
        return vllm_version(self.engine_version)

    @property
    def step_tokens(self) -> int:
        """The tokens of one step: as given, or the API server's default for the device (engine/arg_utils.py).

        V0 splits prompts only if the context is longer than 32K, and never with MLA; a step takes a whole prompt
        otherwise.
        """
        if self.max_num_batched_tokens:
            return self.max_num_batched_tokens
        if self.version.v0:
            context = self.max_model_len or 0
            return max(context, 2048) if context <= _LONG_CONTEXT or "MLA" in self.attentions else 2048
        if self.device_memory is not None and self.device_memory >= 160 * GIB and self.version.has_default_for_160_gib:
            return 16384
        return 8192 if self._has_large_gpu else 2048

    @property
    def step_sequences(self) -> int:
        """The concurrent sequences: as given, or the default for the device (256 before V1)."""
        return self.max_num_seqs or (1024 if self._has_large_gpu and not self.version.v0 else 256)

    @property
    def _has_large_gpu(self) -> bool:
        """Whether vLLM takes the device for an H100 or better; an unknown device counts as one."""
        memory = 70 * GIB if self.device_memory is None else self.device_memory
        slower = self.version.gpus_with_small_defaults
        return memory >= 70 * GIB and not any(name in self.device.lower() for name in slower)
