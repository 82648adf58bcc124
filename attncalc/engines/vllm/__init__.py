"""vLLM's cache: blocks of tokens, which groups of layers take from one pool.

Read from vLLM 0.8.5 to 0.33.0: v1/kv_cache_interface.py, v1/core/kv_cache_utils.py and (0.33)
kv_cache_planning.py. Where a version matters, `versions.py` says what changed and when.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from ...errors import AttncalcError
from ...quantity import Quantity, named
from ..base import EngineArgs
from ..pipeline import LayerCacheSpec, stages
from .defaults import DEFAULTS as DEFAULTS
from .defaults import sequences
from .groups import Group, Padding, grouped
from .pages import Kind, LayerSpec, specs
from .pool import VllmLayout, on_stage
from .states import States, aligned
from .versions import VllmVersion, behaviour

NAME = "vllm"
_UNDERSTOOD = frozenset(
    {
        "mamba_ssm_cache_dtype",
        "engine_version",
        "pp",
        "dcp",
        "block_size",
        "max_num_batched_tokens",
        "max_num_seqs",
        "speculative_tokens",
        "speculative_layers",
        "prefix_caching",
        "disable_hybrid_kv_cache_manager",
        "swap_space",
    }
)
_BLOCK, _MLA_BLOCK = 16, 64
"""CacheConfig.DEFAULT_BLOCK_SIZE; and that of FlashMLA, which Hopper GPUs take for MLA."""


def layout(kept: Sequence[LayerCacheSpec], args: EngineArgs) -> VllmLayout:
    """How vLLM stores those layers. AttncalcError: it cannot, or its layout is not known here."""
    args.only(NAME, _UNDERSTOOD)
    does = behaviour(args.engine_version)
    staged = [
        (stage, run)
        for stage, runs in enumerate(stages(kept, args.pp))
        for run in runs
        for _ in range(run.layers)
        if run.cached
    ]
    runs = [run for _, run in staged]
    _refuse(staged, args, does)
    states, told = States.of(runs, args, does), _told(runs, args, does)
    alignment = aligned(runs, args, does, states, told)
    block = alignment.block_size if alignment else told
    if any(isinstance(c.rows * c.width, Quantity) for run in runs for c in run.cached):
        block = named(block, "block_size", "tokens of a block")
    made = [(stage, spec) for stage, run in staged for spec in specs(run.cached, args, does, block)]
    drafter = [(stage, spec) for stage, spec in made if spec.kind not in ("mamba", "cross")][-1:]
    made += drafter * args.speculative_layers
    page = max((block * s.token_bytes for _, s in made if s.kind not in ("mamba", "cross")), key=int, default=0)
    made = [(i, s._replace(padded=page) if s.kind == "mamba" and s.token_bytes <= page else s) for i, s in made]
    groups, by_stage, padding = _grouped(made, args, does)
    if args.dcp > 1:
        _refuse_dcp({g.spec.kind for g in groups}, args, does)
    notes = _notes([spec for _, spec in made], args, does, states)
    most = sequences(args, does)
    return VllmLayout(args, does, groups, by_stage, padding, alignment, states, notes, most)


def _refuse(staged: Sequence[tuple[int, LayerCacheSpec]], args: EngineArgs, does: VllmVersion) -> None:
    """AttncalcError: vLLM has nothing to store, or no way to."""
    if not staged:
        raise AttncalcError(
            "this model keeps no cache: vLLM has none to set aside",
            "an encoder sees all its tokens at once: 'attncalc memory' counts its activations",
        )
    if len({stage for stage, _ in staged}) < args.pp:
        raise AttncalcError(f"--pp {args.pp}: a stage would keep no cache, and vLLM stops at that", "give fewer")
    if not does.has_cross_attention and any(c.scales_with == "source" for _, run in staged for c in run.cached):
        raise AttncalcError(f"vLLM {does.name} has no cache for cross-attention", "0.10.2 is the first that has")


def _refuse_dcp(kinds: set[str], args: EngineArgs, does: VllmVersion) -> None:
    """AttncalcError: decode context parallelism that cannot be (config/parallel.py, config/model.py)."""
    dcp, tp = args.dcp, args.tp
    if not does.has_dcp:
        raise AttncalcError(f"--dcp: vLLM {does.name} has none", "0.10.2 is the first that has")
    if "sliding" in kinds:
        raise AttncalcError("--dcp: vLLM does not split a window's cache over devices", "leave it out")
    if tp % dcp:
        raise AttncalcError(f"--dcp {dcp} does not divide --tp {tp}", "it reuses the tensor-parallel devices")
    heads = args.n_kv_heads
    if kinds & {"full", "chunked"} and heads is not None and dcp > max(1, tp // heads):
        raise AttncalcError(
            f"--dcp {dcp}: with --tp {tp} each of {heads} KV heads is on {max(1, tp // heads)} devices",
            "vLLM splits the tokens of a head over the devices that would each hold all of it",
        )


_Groups = tuple[Group, ...]


def _grouped(
    made: Sequence[tuple[int, LayerSpec]], args: EngineArgs, does: VllmVersion
) -> tuple[_Groups, tuple[_Groups, ...], tuple[Padding, ...]]:
    """The groups of all layers, those of each stage, and what padding adds."""
    promote, of = args.disable_hybrid_kv_cache_manager, [stage for stage, _ in made]
    if does.groups_by_worker and args.pp > 1:
        each = [grouped([s for i, s in made if i == n], does, promote=promote) for n in range(args.pp)]
        kinds = [sorted(repr(group.spec.alike) for group in groups) for groups, _ in each]
        if any(later != kinds[0] for later in kinds[1:]):
            raise AttncalcError(
                f"--pp {args.pp}: vLLM {does.name} groups each stage's layers for itself, and here differently",
                "what it logs then is not known here; 0.11.0 is the first that groups all layers",
            )
        return each[0][0], tuple(groups for groups, _ in each), each[0][1]
    groups, padding = grouped([s for _, s in made], does, promote=promote)
    if len(groups) == 1 and len({s.alike for s in groups[0].specs}) > 1 and not does.cuts_groups:
        return groups, (groups,), padding
    return groups, tuple(on_stage(groups, of, stage) for stage in range(args.pp)), padding


def _told(runs: Sequence[LayerCacheSpec], args: EngineArgs, does: VllmVersion) -> int:
    """Tokens of a block as told, or as the kernel has them."""
    latent = any(c.role == "latent" for run in runs for c in run.cached)
    return args.block_size or (_MLA_BLOCK if latent and not does.v0 else _BLOCK)


def _notes(made: Sequence[LayerSpec], args: EngineArgs, does: VllmVersion, states: States | None) -> tuple[str, ...]:
    kinds = {spec.kind for spec in made}
    notes = [*_latent_notes(args, does)] if "mla" in kinds and not does.v0 else []
    notes += _device_notes(kinds, args)
    if does.version < (0, 8):
        notes.append("The engine before V1 is as vLLM 0.8.5's source has it; older ones were not read.")
    if states:
        how = "on: a state more, to align prefixes" if states.prefixes else "off"
        default = " by default" if args.prefix_caching is None else ""
        notes.append(f"Prefix caching is {how}{default}; each state takes a block, whatever the context.")
    if args.speculative_tokens and not args.speculative_layers:
        notes.append("No layer of a drafter is counted: --speculative-layers 1 is MTP's or EAGLE's.")
    if args.pp > 1 and "sliding" in kinds and does.steps_depend_on_experts:
        notes.append("Tokens in flight are those of --pp + 1 steps; a mixture of experts has --pp there.")
    return tuple(notes)


def _latent_notes(args: EngineArgs, does: VllmVersion) -> Iterator[str]:
    """Of MLA, whose kernels differ in the blocks that they take."""
    if args.block_size is None:
        yield f"Blocks of {_MLA_BLOCK} tokens are FlashMLA's (Hopper); --block-size sets another kernel's."
    elif args.block_size % _MLA_BLOCK and does.forces_flashmla:
        yield f"With FlashMLA (Hopper) vLLM {does.name} takes blocks of {_MLA_BLOCK} whatever is told."
    if does.sparse_latents_in_fp8 and args.kv_dtype.bits == 16:
        yield "vLLM 0.11.0 keeps DeepSeek-V3.2's latents in fp8 unless told bfloat16: --kv-dtype fp8."


def _device_notes(kinds: Set[Kind], args: EngineArgs) -> Iterator[str]:
    """Of a device that has another backend, or that nobody has named."""
    if args.device and not args.device.startswith(("NVIDIA", "AMD")):
        yield f"This is vLLM's layout on NVIDIA and AMD GPUs; its backend for {args.device} may have another."
    guessed = args.device_memory is None and args.max_num_batched_tokens is None
    if guessed and kinds & {"sliding", "chunked", "cross"}:
        yield "Batched tokens are an API server's on an H100 or better; --max-num-batched-tokens sets others."
