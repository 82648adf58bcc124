"""The attention backends that vLLM chooses, and the tokens of their blocks, as tables.

vLLM takes the first backend of its list that runs on the GPU, with the dtype of the cache and with
--block-size (`_get_backend_priorities` in platforms/cuda.py, and `get_supported_kernel_block_sizes`
of each backend). Without --block-size a block has 16 tokens, or as many as the backend needs
(`update_block_size_for_backend` in platforms/interface.py). Until 0.17 the platform set the size
itself, whatever was given (`check_and_update_config`). `tools/vllm_plan.py` asks vLLM itself.

Not told apart: on Blackwell, 0.16 and 0.17 take CUTLASS_MLA for latents of models whose
qk_nope_head_dim is not 128. ROCm's sparse backends have blocks of 1 to 64 tokens by version; this
is 64. On Blackwell, windows of Gemma 3 and 4 keep blocks of 64 tokens beside a larger --block-size.
"""

from collections.abc import Mapping

from ...model import ModelSpec
from ...records import NamedTuple
from ..ds_mla import cache_roles, picks_latents
from ..engine import Refusal
from ..switches import Number
from .layer_spec import HEAD_ROLES
from .options import VllmArgs

HOPPER = 9
BLACKWELL = 10
_RTX_BLACKWELL = 12
# CacheConfig.DEFAULT_BLOCK_SIZE in config/cache.py.
BLOCK_SIZE = 16
# Intel GPUs (platforms/xpu.py, from 0.20 on get_preferred_block_size in
# v1/attention/backends/flash_attn.py).
INTEL_BLOCK_SIZE = 64
# Tokens that MiniMax-M3's indexer picks together (models/minimax_m3/common/sparse_attention.py).
BLOCK_SPARSE_SIZE = 128
# With FlashAttention 4 on Hopper, a cache in fp8 with heads of 512 elements
# (_get_sm90_fa4_fp8_kv_block_size in v1/attention/backends/flash_attn.py).
_WIDE_HEAD = 512
# With the composite of Triton and FlashInfer, which reads image tokens in both directions, on
# Blackwell (v1/attention/backends/triton_flashinfer.py).
_HEADS_OF_COMPOSITE = (256, 512)
# So many tokens have these two, and on AMD's GPUs a model with sinks: of ROCm's backends only
# AITER's has them (v1/attention/backends/rocm_aiter_unified_attn.py), which vLLM's images have.
_LARGE_BLOCK = 64
# Elements of a head in FlashInfer (get_supported_head_sizes in
# v1/attention/backends/flashinfer.py).
_HEADS_OF_FLASHINFER = (64, 128, 256, 512)
# The first version whose backends say which sizes of blocks they take, and the sizes that the
# option takes before (BlockSize in config/cache.py of 0.12.0 to 0.17.1).
_CHOSEN_BY_BACKENDS = (0, 18)
_SIZES_OF_OPTION = (1, 8, 16, 32, 64, 128, 256)
# model_types with ALiBi.
_WITH_ALIBI = ("bloom", "mpt")
# The first compute capability with fp8 in Triton's kernels.
_FIRST_FP8 = (8, 9)


class Backend(NamedTuple):
    """An attention backend of vLLM."""

    name: str
    # a block has a multiple of so many tokens
    multiple: int
    # tokens per block without --block-size; 0 for `multiple`
    default: int = 0
    # further sizes of blocks that it takes
    also: tuple[int, ...] = ()
    # whether a block has no other multiple either
    has_one_size: bool = False
    # whether a cache in fp8 is supported
    has_fp8: bool = True

    @property
    def block_size(self) -> int:
        """The tokens per block without --block-size."""
        return self.default or self.multiple

    def takes(self, block_size: int) -> bool:
        """Return whether blocks may have so many tokens."""
        if block_size in self.also:
            return True
        if self.has_one_size:
            return block_size == self.multiple
        return block_size % self.multiple == 0


_TRITON = Backend("TRITON_MLA", 16)
# {compute capability: {the first version: its backends for latents}}. The newest versions and the
# preferred backends stand first. Elsewhere it is Triton's.
_LATENTS: Mapping[int, Mapping[Number, tuple[Backend, ...]]] = {
    BLACKWELL: {
        # flashinfer_mla.py: 32 and 64
        (0, 18): (Backend("FLASHINFER_MLA", 32), _TRITON),
        (0, 16): (Backend("FLASHINFER_MLA", 64, also=(32,)),),
        (0, 10, 1): (Backend("CUTLASS_MLA", 128),),
    },
    HOPPER: {
        (0, 18): (Backend("FLASH_ATTN_MLA", 16, has_fp8=False), Backend("FLASHMLA", 64), _TRITON),
        (0, 8): (Backend("FLASHMLA", 64),),
    },
}
# The same for latents of which an indexer picks. Blocks are those of the indexer's keys
# (v1/attention/backends/mla/indexer.py), and FlashInfer's kernel on Blackwell has smaller ones.
_PICKED_LATENTS: Mapping[int, Mapping[Number, tuple[Backend, ...]]] = {
    BLACKWELL: {
        (0, 18): (Backend("DEEPSEEK_V32_INDEXER", 32, default=64),),
        (0,): (Backend("FLASHMLA_SPARSE", 64, also=(32,), has_one_size=True),),
    },
    HOPPER: {
        (0, 18): (Backend("DEEPSEEK_V32_INDEXER", 64),),
        (0,): (Backend("FLASHMLA_SPARSE", 64, has_one_size=True),),
    },
    _RTX_BLACKWELL: {(0,): (Backend("DEEPSEEK_V32_INDEXER", 64),)},
}
# On Blackwell, FlashInfer's kernel for picked latents in 16 bits is preferred up to so many heads
# on a GPU, and FlashMLA's, which --dcp does not split, beyond.
_HEADS_OF_SPARSE_FLASHINFER = 16


def backends_of_latents(args: VllmArgs, *, are_picked: bool) -> tuple[Backend, ...]:
    """Return the backends for latents on the GPU, the preferred one first; those of an H100 if the
    GPU is unknown.

    `are_picked` tells that an indexer picks among the latents.
    """
    capability = args.capability if args.device else HOPPER
    table = _PICKED_LATENTS if are_picked else _LATENTS
    for since, backends in table.get(capability, {}).items():
        if args.version.number >= since:
            if args.kv_dtype.bits < 16:
                return tuple(backend for backend in backends if backend.has_fp8)
            return backends
    if are_picked:
        return (Backend("DEEPSEEK_V32_INDEXER", 16, default=64),)
    return (_TRITON,)


class LatentBlocks(NamedTuple):
    """The blocks of latents."""

    backend: Backend
    block_size: int  # tokens per block


def blocks_of_latents(args: VllmArgs, *, are_picked: bool) -> LatentBlocks | None:
    """Return the backend for latents and its block size; None if no backend takes --block-size.

    Old versions replace a --block-size that their backend does not take. That is only known for a
    known GPU.
    """
    backends = backends_of_latents(args, are_picked=are_picked)
    first = backends[0]
    if args.block_size is None:
        return LatentBlocks(first, first.block_size)
    for backend in backends:
        if backend.takes(args.block_size):
            return LatentBlocks(backend, args.block_size)
    if not args.version.forces_block_size:
        return None
    # Triton's kernels and ROCm's backends take the size as it is given
    is_forced = args.device.startswith("NVIDIA") and first != _TRITON
    return LatentBlocks(first, first.block_size if is_forced else args.block_size)


def default_of_heads(args: VllmArgs, head_sizes: frozenset[int]) -> int:
    """Return the tokens per block of keys and values without --block-size.

    `head_sizes` are the elements of a head, in each kind of layer.
    """
    version = args.version
    is_fp8 = args.kv_dtype.name == "fp8"
    has_wide_fp8 = version.has_wide_fp8_heads and is_fp8 and _WIDE_HEAD in head_sizes
    if args.capability == HOPPER and has_wide_fp8:
        return _LARGE_BLOCK
    is_composite = version.has_composite_backend and args.masks_images
    if args.capability == BLACKWELL and is_composite and head_sizes <= {*_HEADS_OF_COMPOSITE}:
        return _LARGE_BLOCK
    # AITER's kernel has values as wide as keys
    has_aiter = args.device.startswith("AMD") and len(head_sizes) == 1
    if args.sinks and has_aiter and version.has_blocks_of_aiter:
        return _LARGE_BLOCK
    return BLOCK_SIZE


def missing_backend(model: ModelSpec, args: VllmArgs) -> Refusal | None:
    """Return why no attention backend runs on a GPU of NVIDIA or AMD, in vLLM's words; None if one
    does.
    """
    if args.device.startswith("NVIDIA"):
        refusal = _no_sparse_backend(model, args)
        if refusal:
            return refusal
    refusal = _unfit_block_size(model, args)
    if refusal or not args.device.startswith("NVIDIA"):
        return refusal
    return _no_fp8_with_alibi(args) or _no_fp8_in_triton(model, args)


def _no_sparse_backend(model: ModelSpec, args: VllmArgs) -> Refusal | None:
    """Return why no backend of NVIDIA's GPUs reads latents of which an indexer picks; None if one
    does, or there are none.
    """
    if not picks_latents(model):
        return None
    if args.capability < HOPPER:
        return Refusal(
            "No valid attention backend found: compute capability not supported",
            "Use a Hopper or a Blackwell GPU: vLLM has no kernel for others.",
        )
    heads = int(model.main.leading.widths().n_heads) // args.tp
    has_flashmla = args.capability == BLACKWELL and heads > _HEADS_OF_SPARSE_FLASHINFER
    if has_flashmla and args.dcp > 1 and args.kv_dtype.bits == 16:
        return Refusal(
            "DCP for FlashMLA sparse requires an fp8_ds_mla kv-cache", "Use --kv-dtype fp8."
        )
    return None


def _unfit_block_size(model: ModelSpec, args: VllmArgs) -> Refusal | None:
    """Return why vLLM does not take --block-size; None if it does."""
    size = args.block_size
    if size is None or args.version.v0:
        return None
    if args.version.number < _CHOSEN_BY_BACKENDS:
        if size in _SIZES_OF_OPTION:
            return None
        choices = ", ".join(map(str, _SIZES_OF_OPTION))
        return Refusal(
            f"argument --block-size: invalid choice: {size} (choose from {choices})",
            "Use one of these, or leave --block-size out.",
        )
    roles = cache_roles(model)
    if "latent" in roles:
        are_picked = "indexer" in roles
        if blocks_of_latents(args, are_picked=are_picked):
            return None
        multiple = backends_of_latents(args, are_picked=are_picked)[-1].multiple
    elif roles.isdisjoint(HEAD_ROLES) or size % BLOCK_SIZE == 0:
        return None
    else:
        multiple = BLOCK_SIZE
    return Refusal(
        "No valid attention backend found: block_size not supported",
        f"Use a multiple of {multiple} for --block-size, or leave it out.",
    )


def _no_fp8_with_alibi(args: VllmArgs) -> Refusal | None:
    """Return why FlashAttention has no cache in fp8 for a model with ALiBi; None if it has or is
    not used.
    """
    has_alibi = args.model_type in _WITH_ALIBI and args.version.checks_fp8_of_alibi
    if not has_alibi or args.capability != HOPPER or args.kv_dtype.name != "fp8":
        return None
    return Refusal(
        "FlashAttention does not support fp8 kv-cache on this device", "Use --kv-dtype bf16."
    )


def _no_fp8_in_triton(model: ModelSpec, args: VllmArgs) -> Refusal | None:
    """Return why Triton's kernels have no cache in fp8 on a GPU older than compute capability 8.9;
    None if they have or are not used.
    """
    capability = args.compute_capability
    if capability is None or capability >= _FIRST_FP8 or args.kv_dtype.name != "fp8":
        return None
    if "latent" in cache_roles(model):
        kind = "MLA"
        is_checked = args.version.checks_fp8_of_triton_mla
    else:
        kind = "attention"
        is_checked = args.version.checks_fp8_of_triton and not _runs_in_flashinfer(model, args)
    if not is_checked:
        return None
    number = ".".join(map(str, capability))
    return Refusal(
        f"FP8 KV cache is not supported by the Triton {kind} backend on {args.device} (compute "
        f"capability {number}); native FP8 (fp8e4nv) requires SM89+",
        "Use --kv-dtype bf16.",
    )


def _runs_in_flashinfer(model: ModelSpec, args: VllmArgs) -> bool:
    """Return whether FlashInfer runs all layers, as the only kernels for fp8 beside Triton's before
    Hopper.

    It has no sinks, no image tokens that see each other and no cross-attention, and few head sizes.
    """
    if args.sinks or args.masks_images or args.source is not None:
        return False
    for _, layers in model.groups():
        for cached in layers.cache():
            if cached.role in HEAD_ROLES and int(cached.width) not in _HEADS_OF_FLASHINFER:
                return False
    return True
