"""What changed between vLLM's versions, as far as a log's figures go. Read from the sources of 0.8.5 to 0.33.0."""

from __future__ import annotations

import re
from typing import NamedTuple

from ...errors import AttncalcError
from ...units import truncate

Version = tuple[int, ...]

FIRST, NEWEST = (0, 5), (0, 33, 0)
"""The first whose log lines are known here, and the newest whose source was read."""
V0 = "V0"
RELEASES = (
    *("0.33.0", "0.32.0", "0.31.0", "0.30.0", "0.29.0", "0.28.0", "0.27.1", "0.26.0", "0.25.1", "0.24.0", "0.23.0"),
    *("0.22.1", "0.21.0", "0.20.2", "0.20.1", "0.20.0", "0.19.1", "0.18.1", "0.17.1", "0.16.0", "0.15.1", "0.14.1"),
    *("0.13.0", "0.12.0", "0.11.2", "0.11.0", "0.10.2", "0.10.1", "0.10.0", "0.9.2", "0.9.0", "0.8.5"),
)
"""Releases that a log may be of, from the newest on: one at the least of each stretch in which nothing changed."""
_V1_BY_DEFAULT = (0, 8)


class VllmVersion(NamedTuple):
    """What one version does. Each field's comment names the file that decides it."""

    version: Version
    v0: bool

    @property
    def name(self) -> str:
        """'0.33.0', 'V0'."""
        return V0 if self.version == (0,) else ".".join(map(str, self.version))

    @property
    def utilization(self) -> str:
        """gpu_memory_utilization where none is given (config/cache.py)."""
        return "0.92" if self.version >= (0, 20) else "0.9"

    @property
    def groups_hybrids(self) -> bool:
        """Windows have blocks of their own; before, they were kept as long as the context (kv_cache_utils.py)."""
        return not self.v0 and self.version >= (0, 9, 1)

    @property
    def groups_chunks(self) -> bool:
        """So have chunks (envs.py, VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE: its default changed twice)."""
        return (0, 10) <= self.version < (0, 10, 1) or self.version >= (0, 14)

    @property
    def aligns_states(self) -> bool:
        """Attention's blocks grow until a state fits in one (models/config.py, later platforms/interface.py)."""
        return not self.v0 and self.version >= (0, 10)

    @property
    def uniform_type(self) -> bool:
        """Layers of one type and different widths share a group (UniformTypeKVCacheSpecs)."""
        return self.version >= (0, 11)

    @property
    def unifies_pages(self) -> bool:
        """Smaller pages take more tokens (unify_kv_cache_spec_page_size)."""
        return self.version >= (0, 12)

    @property
    def pads_pages(self) -> bool:
        """Pages that do not divide the largest are padded to it (the same function)."""
        return self.version >= (0, 24)

    @property
    def most_padding(self) -> tuple[int, int] | None:
        """Groups take as many layers as the largest type has where that is less than this times the smallest."""
        if self.version >= (0, 18):
            return (3, 2)
        return (5, 4) if self.version >= (0, 12) else None

    @property
    def steps_by_block(self) -> bool:
        """Those blocks are multiples of the size that was told; before, of the kernel's, and at least that size."""
        return self.version >= (0, 20)

    @property
    def strides_groups(self) -> bool:
        """A group takes every n-th layer of its kind, so that each stage has its share (kv_cache_utils.py)."""
        return self.version >= (0, 11)

    @property
    def multiplies_dcp(self) -> bool:
        """The tokens logged of several groups are times dcp too (kv_cache_utils.py)."""
        return self.version >= (0, 11)

    @property
    def logs_told_block(self) -> bool:
        """The tokens logged of one group are blocks of the size that was told (kv_cache_utils.py)."""
        return self.version < (0, 11)

    @property
    def has_dcp(self) -> bool:
        """There is decode context parallelism (kv_cache_utils.py)."""
        return self.version >= (0, 10, 2)

    @property
    def has_cross_attention(self) -> bool:
        """There is a cache for cross-attention (CrossAttentionSpec)."""
        return not self.v0 and self.version >= (0, 10, 2)

    @property
    def always_announces_block(self) -> bool:
        """The line on attention's block size stands in the log even where it did not grow (models/config.py)."""
        return self.version < (0, 18)

    @property
    def latents_beside_states(self) -> bool:
        """Blocks of latents grow for states too (models/config.py)."""
        return self.version >= (0, 11, 1)

    @property
    def least_latent_block(self) -> int:
        """Tokens that such a block is a multiple of (platforms/interface.py)."""
        return 128 if self.version >= (0, 27) else 64

    @property
    def forces_flashmla(self) -> bool:
        """On NVIDIA GPUs a block that FlashMLA has not becomes 64 tokens (platforms/cuda.py)."""
        return not self.v0 and self.version < (0, 18)

    @property
    def sparse_latents_in_fp8(self) -> bool:
        """An indexer's model keeps fp8_ds_mla unless told bfloat16 (models/config.py)."""
        return self.version == (0, 11, 0)

    @property
    def drafts_beside_states(self) -> bool:
        """Any model with states may have a drafter, and prefixes with it; before, the gated delta net's alone."""
        return self.version >= (0, 17)

    @property
    def caches_state_prefixes(self) -> bool:
        """Prefixes of states can be cached at all (gpu_model_runner.py)."""
        return self.version >= (0, 11, 1)

    def keeps_by_chunk(self, drafting: bool) -> bool:
        """Mamba's states are kept once a chunk where prefixes are (mamba_cache_mode 'all', models/config.py)."""
        return self.version < (0, 28) and not (drafting and self.version >= (0, 20))

    @property
    def steps_depend_on_experts(self) -> bool:
        """A mixture of experts runs on the older runner, with as many steps as stages (config/vllm.py)."""
        return (0, 26) <= self.version < (0, 29)

    @property
    def groups_by_worker(self) -> bool:
        """Each pipeline stage groups its own layers (v1/engine/core.py)."""
        return self.version < (0, 11)

    @property
    def cuts_groups(self) -> bool:
        """A stage pays for its own layers where a group has several widths (_project_kv_cache_groups_to_worker)."""
        return self.version < (0, 11) or self.version >= (0, 17)

    @property
    def pads_values(self) -> bool:
        """Values narrower than keys are stored as wide (mimo_v2_flash.py)."""
        return self.version < (0, 20)

    @property
    def crosses_by_length(self) -> bool:
        """Cross-attention's blocks are for the encoder's tokens; later, for max_num_batched_tokens."""
        return self.version < (0, 13)

    @property
    def drafts_in_states(self) -> bool:
        """A request has a block for each token that a drafter may take back, and one more to align prefixes."""
        return self.version >= (0, 15)

    @property
    def counts_requests(self) -> bool:
        """Concurrency is blocks over a request's blocks; before, tokens over the context."""
        return not self.v0 and self.version >= (0, 9, 1)

    def window_block(self, block_size: int) -> int:
        """Tokens of a window's block: 0.25 to 0.29 take the kernel's smallest (attention.py)."""
        return 16 if (0, 25) <= self.version < (0, 30) and block_size > 16 else block_size

    @property
    def tokens_from_concurrency(self) -> bool:
        """'GPU KV cache size' is concurrency times the context; before, it was blocks over groups."""
        return self.version >= (0, 20, 1)

    @property
    def two_steps_in_flight(self) -> bool:
        """A window keeps the tokens of all steps in flight, two with async scheduling (max_in_flight_tokens)."""
        return self.version >= (0, 26)

    @property
    def caches_hybrid_prefixes(self) -> bool:
        """Prefix caching is on by default for models with states too (config/model.py)."""
        return self.version >= (0, 26)

    @property
    def planner(self) -> str:
        """The file that makes groups and counts blocks."""
        return "kv_cache_planning.py" if self.version >= (0, 33) else "kv_cache_utils.py"

    @property
    def one_line(self) -> bool:
        """Tokens and concurrency stand on one line of the log."""
        return self.version >= (0, 28)

    @property
    def large_devices(self) -> bool:
        """Devices of 160 GiB and more have a default number of batched tokens of their own (arg_utils.py)."""
        return self.version >= (0, 28)


def behaviour(text: str | None) -> VllmVersion:
    """That of the version so named; of the newest where none is. 'v0' is the old engine of any version.

    AttncalcError: no version, one before the first or after the newest that is known here.
    """
    if text is None:
        return VllmVersion(NEWEST, v0=False)
    if text.lower() == "v0":
        return VllmVersion((0,), v0=True)
    found = re.match(
        r"v?(\d{1,4}(?:\.\d{1,4})+)(?![\d])", text.lower(), re.ASCII
    )  # whatever .post1, rc2 or +cu128 follows
    if found is None:
        raise AttncalcError(
            f"--engine-version: '{truncate(text)}' is no version of vLLM", f"for example {_name(NEWEST)}, 0.11.0 or v0"
        )
    version = tuple(int(part) for part in found.group(1).split("."))
    if version < FIRST:
        raise AttncalcError(
            f"--engine-version {truncate(text)}: before the first whose log lines are known here",
            f"the first is {_name(FIRST)}, the newest {_name(NEWEST)}",
        )
    if version[:2] > NEWEST[:2]:
        raise AttncalcError(
            f"--engine-version {truncate(text)}: after the newest whose source was read",
            f"the newest is {_name(NEWEST)}; without the option it is taken",
        )
    return VllmVersion(version, v0=version < _V1_BY_DEFAULT)


def _name(version: Version) -> str:
    return ".".join(map(str, version))
