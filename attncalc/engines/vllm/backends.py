"""The attention backend that vLLM chooses for latents (MLA), and the tokens of its blocks.

vLLM takes the first backend of its list that runs on the GPU and with the dtype of the cache
(`_get_backend_priorities` in platforms/cuda.py). Until 0.17 the platform set the block size itself
(`check_and_update_config`); since then each backend says which sizes it supports, and 16 is taken
where it can be (`update_block_size_for_backend` in platforms/interface.py). `tools/vllm_plan.py`
asks vLLM 0.32.0 itself.
"""

from ...records import NamedTuple
from ..switches import Number
from .options import VllmArgs

_HOPPER = 9
_BLACKWELL = 10


class Backend(NamedTuple):
    """An attention backend of vLLM."""

    name: str
    block_size: int  # tokens per block without --block-size


class _Choice(NamedTuple):
    """A row of the table: from which version on, and where, a backend is chosen."""

    since: Number
    capability: int | None  # of compute; None for every other GPU
    bits: int | None  # per element of the cache; None for all
    backend: Backend


# The first row that holds is taken.
_LATENTS = (
    # flashinfer_mla.py supports blocks of 32 and 64
    _Choice((0, 18), _BLACKWELL, None, Backend("FLASHINFER_MLA", 32)),
    _Choice((0, 16), _BLACKWELL, None, Backend("FLASHINFER_MLA", 64)),
    _Choice((0, 10, 1), _BLACKWELL, None, Backend("CUTLASS_MLA", 128)),
    # flashattn_mla.py has no fp8, and supports multiples of 16
    _Choice((0, 18), _HOPPER, 16, Backend("FLASH_ATTN_MLA", 16)),
    _Choice((0, 8), _HOPPER, None, Backend("FLASHMLA", 64)),
    _Choice((0,), None, None, Backend("TRITON_MLA", 16)),
)


def latent_backend(args: VllmArgs) -> Backend:
    """Return the backend of latents without an indexer; that of an H100 if the GPU is unknown."""
    capability = args.capability if args.device else _HOPPER
    for choice in _LATENTS:
        if args.version.number < choice.since:
            continue
        if choice.capability not in (None, capability):
            continue
        if choice.bits in (None, args.kv_dtype.bits):
            return choice.backend
    raise AssertionError("the last row is for everything")
