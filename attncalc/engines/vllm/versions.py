"""What changed between vLLM's versions, as far as a log's figures go. Read from the sources of 0.8.5 to 0.33.0."""

from __future__ import annotations

from typing import NamedTuple

from ...errors import AttncalcError
from ...units import shown

Version = tuple[int, ...]

FIRST, NEWEST = (0, 5), (0, 33, 0)
"""The first whose log lines are known here, and the newest whose source was read."""
V0 = "V0"
STRETCHES = (
    *("0.33.0", "0.32.0", "0.31.0", "0.27.1", "0.26.0", "0.25.1", "0.23.0", "0.20.0", "0.19.1", "0.17.1"),
    *("0.14.1", "0.13.0", "0.11.2", "0.10.2", "0.10.0", "0.9.0", "0.8.5"),
)
"""The newest version of each stretch in which nothing changed here."""
_V1_BY_DEFAULT = (0, 8)


class Behaviour(NamedTuple):
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
    def one_line(self) -> bool:
        """Tokens and concurrency stand on one line of the log."""
        return self.version >= (0, 28)

    @property
    def large_devices(self) -> bool:
        """Devices of 160 GiB and more have a default number of batched tokens of their own (arg_utils.py)."""
        return self.version >= (0, 28)


def behaviour(text: str | None) -> Behaviour:
    """That of the version so named; of the newest where none is. 'v0' is the old engine of any version.

    AttncalcError: no version, one before the first or after the newest that is known here.
    """
    if text is None:
        return Behaviour(NEWEST, v0=False)
    if text.lower() == "v0":
        return Behaviour((0,), v0=True)
    parts = text.lower().removeprefix("v").split(".post")[0].split(".")
    if not all(part.isdigit() for part in parts) or len(parts) < 2:
        raise AttncalcError(
            f"--engine-version: '{shown(text)}' is no version of vLLM", f"for example {_name(NEWEST)}, 0.11.0 or v0"
        )
    version = tuple(int(part) for part in parts)
    if version < FIRST:
        raise AttncalcError(
            f"--engine-version {shown(text)}: before the first whose log lines are known here",
            f"the first is {_name(FIRST)}, the newest {_name(NEWEST)}",
        )
    if version[:2] > NEWEST[:2]:
        raise AttncalcError(
            f"--engine-version {shown(text)}: after the newest whose source was read",
            f"the newest is {_name(NEWEST)}; without the option it is taken",
        )
    return Behaviour(version, v0=version < _V1_BY_DEFAULT)


def _name(version: Version) -> str:
    return ".".join(map(str, version))
