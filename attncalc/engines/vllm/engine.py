"""What vLLM answers, beside its layout, runtime memory and extra weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from ...hardware import FREE_OF_UNIFIED, VOLTA
from ...model import ModelSpec, plural
from ...quantity import Quantity, quantity, symbol
from ...units import BYTES, GIB, count, dtype, human
from ..base import CacheLayout, Limits, Pool
from ..ds_mla import cache_roles, has_pools, picks_latents
from ..engine import AttentionSplit, Engine, HostCache, Refusal, SmallerStep
from ..options import (
    DraftOptions,
    ExpertOptions,
    LoraOptions,
    PagedOptions,
    VersionOptions,
    capability,
)
from ..without_cache import StepLayout
from .architectures import missing_model
from .backends import missing_backend
from .encoder import reads
from .held_weights import extra_weights, has_mla, padded_vocabulary
from .launch import WORDS, launch
from .layout import layout
from .options import VllmArgs, VllmOptions
from .pooling import refusal_without_cache, step_layout
from .runtime import runtime
from .versions import RELEASES, vllm_version

if TYPE_CHECKING:
    from ..pipeline import LayerCacheSpec
    from .blocks import VllmLayout

# Tokens per step to suggest: the default on small GPUs.
_FEW_TOKENS = 2048
_NEVER_LOADED = ("mlx", "exl2", "exl3", "eetq", "bitnet")


class Vllm(Engine[VllmArgs]):
    name = "vllm"
    title = "vLLM"
    args = VllmArgs
    options = (VersionOptions, PagedOptions, DraftOptions, LoraOptions, ExpertOptions, VllmOptions)
    splits = frozenset({"pp", "dcp"})
    dtype_of_fp32 = "bf16"  # _resolve_auto_dtype in config/model.py
    larger_shares = ("0.95",)
    share_of_unified = f"0.{FREE_OF_UNIFIED[0]}"
    fewer_sequences = (128, 32, 8)
    step_sizes = (512, 1024, 2048, 4096, 8192, 16384, 32768)
    without_graphs = "enforce_eager"
    running_option = "--max-num-seqs"
    step_option = ("max_num_batched_tokens", "--max-num-batched-tokens")
    host_cache_option = "--kv-offloading-size"
    disk_tip = "vLLM has it with --kv-transfer-config, or in LMCache"
    data_parallel = True
    must_fit_one = True
    converts_to = "fp8"
    has_extra_weights = True
    releases = RELEASES
    long_context_variable = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
    runtime = staticmethod(runtime)
    launch = staticmethod(launch)
    commands = (WORDS,)
    extra_weights = staticmethod(extra_weights)

    def too_small_message(self, args: VllmArgs, pool: Pool, memory: int, context: int) -> str:
        """Return the message of _check_enough_kv_cache_memory (v1/core/kv_cache_utils.py), without
        the longest context; of V0, that of raise_if_cache_size_invalid (worker/worker.py).
        """
        if memory <= 0:
            return (
                "ValueError: No available memory for the cache blocks. Try increasing "
                "`gpu_memory_utilization` when initializing the engine."
            )
        if args.version.v0:
            return (
                f"ValueError: The model's max seq len ({context}) is larger than the maximum "
                f"number of tokens that can be stored in KV cache ({int(pool.tokens)})."
            )
        needed = int(pool.figure("kv_bytes_per_sequence"))
        models = "models's"
        if args.version.refuses_the_models_length:
            models = "model's"
        sizes = [f"{size / GIB:.2f}" for size in (needed, memory)]
        if args.version.trims_refused_sizes:
            sizes = [str(float(size)) for size in sizes]
        return (
            f"ValueError: To serve at least one request with the {models} max seq len ({context}), "
            f"({sizes[0]} GiB KV cache is needed, which is larger than the available KV cache "
            f"memory ({sizes[1]} GiB)."
        )

    def checkpoint_cache_dtype(
        self, model: ModelSpec, version: str | None, device: str = ""
    ) -> str | None:
        """Return the dtype of the cache that vLLM takes from the checkpoint; None if it takes the
        model's.

        MLA does not read compressed-tensors' kv_cache_scheme: only `Attention` does, and not
        `MLAAttention`.
        Compressed attention only has fp8, as have the latents that an indexer picks on some
        devices.
        """
        switches = vllm_version(version)
        method = model.quantization.method if model.quantization else ""
        if switches.stores_pools_in_fp8 and has_pools(model):
            return "fp8"
        if picks_latents(model) and (switches.sparse_latents_in_fp8 or capability(device) == 12):
            return "fp8"
        if (
            switches.gated_latents_in_fp8
            and capability(device) >= 10
            and "gated_averages" in cache_roles(model)
        ):
            return "fp8"
        if method.startswith("compressed"):
            is_read = switches.reads_compressed_tensors_cache_dtype and not has_mla(model)
        elif method.startswith("modelopt"):
            is_fp4 = model.kv_dtype == "fp4"
            if is_fp4:
                is_read = switches.reads_modelopt_fp4_cache
            else:
                is_read = switches.reads_modelopt_cache_dtype
        else:
            is_read = False
        if is_read:
            return model.kv_dtype
        return None

    def half_of_fp32(self, *, pools: bool) -> str | None:
        """Return fp16 for a pooling model (_resolve_auto_dtype in config/model.py)."""
        if pools:
            return "fp16"
        return self.dtype_of_fp32

    def layout(self, specs: Sequence[LayerCacheSpec], args: VllmArgs) -> VllmLayout | StepLayout:
        if args.without_cache:
            return step_layout(args)
        return layout(specs, args)

    def divide(self, model: ModelSpec, args: VllmArgs) -> ModelSpec:
        from ..expert_parallel import divide_experts  # most models are on one rank

        return divide_experts(
            model,
            args.tp,
            args.dp,
            expert_parallel=args.enable_expert_parallel,
            redundant=args.num_redundant_experts or 0,
        )

    def share(self, args: VllmArgs, devices: int) -> str:
        return args.version.utilization

    def conversion_peak(self, args: VllmArgs) -> float:
        return args.version.conversion_peak

    def counts_others(self, args: VllmArgs) -> bool:
        return args.version.counts_other_processes

    def least_blocks(self, layout: CacheLayout) -> int:
        if isinstance(layout, StepLayout):
            return 0
        args = cast("VllmLayout", layout).args
        states = cast("VllmLayout", layout).states
        is_checked = states and args.version.needs_block_per_sequence and not args.enforce_eager
        if is_checked:
            return args.limits.max_num_seqs
        return 0

    def limits(self, args: VllmArgs) -> Limits:
        return args.limits

    def text_only(self, args: VllmArgs) -> str | None:
        if args.version.has_language_model_only:
            return "language_model_only"
        return None

    def loaded(self, model: ModelSpec, args: VllmArgs) -> ModelSpec:
        """Return the model without the towers whose inputs are all limited to 0.

        Its files are smaller by the parameters of the towers, which quantizations leave as they
        are. Source: _mark_tower_model in interfaces.py.
        """
        left_out = [tower for tower in model.towers if not reads(args, tower)]
        if not left_out:
            return model
        towers = tuple(tower for tower in model.towers if tower not in left_out)
        stored = model.stored
        if stored:
            size = sum(tower.params for tower in left_out) * args.dtype.bits // 8
            stored = stored._replace(size=max(0, stored.size - size))
        return dataclasses.replace(model, towers=towers, stored=stored)

    def held_of_draft(self, draft: ModelSpec, model: ModelSpec) -> ModelSpec:
        """Return the draft without a head that is equal to the model's, which vLLM shares.

        P-EAGLE has such a head beside an embedding of its own: of Qwen3-8B with 4 layers of P-EAGLE
        18.03 GiB are loaded, and 16.87 without the embedding (_maybe_share_lm_head in
        v1/spec_decode/llm_base_proposer.py).
        """
        shape = (model.main.d_model, model.vocab_size)
        stored = draft.stored
        heads = draft.extra if draft.vocab_size else ()
        equal = [m for m in heads if (m.name, m.rows, m.cols) == ("lm_head", *shape)]
        if stored:
            shared = sum(m.weights for m in equal) * dtype(draft.dtype).bits // 8
            stored = stored._replace(size=max(0, stored.size - shared))
        return dataclasses.replace(
            draft, extra=tuple(m for m in draft.extra if m not in equal), stored=stored
        )

    def host_notes(self, args: VllmArgs) -> Iterator[str]:
        draft = args.speculative_model
        # of Qwen3-32B's drafters 1.46 GiB are counted, and one with its own embedding holds 2.91
        # (_maybe_share_embeddings in v1/spec_decode/llm_base_proposer.py)
        if draft and draft.shared_tables and draft.model and draft.model.stored is None:
            yield (
                "warning: a drafter's checkpoint with an embedding of its own keeps it beside the "
                "model's, of the same size, unless the two are equal: vLLM logs 'distinct "
                "embed_tokens weights'. Its files, instead of its config.json, count it."
            )
        if args.cpu_offload_gb:
            size = human(args.cpu_offload_gb, BYTES)
            yield (
                f"--cpu-offload-gb: up to {size} of the layers on each GPU are in host memory. "
                "Every step reads them over PCIe, which bounds of time leave out."
            )

    def host_cache(
        self, args: VllmArgs, layout: CacheLayout, kv_memory: Quantity
    ) -> HostCache | None:
        """Return the buffer of --kv-offloading-size (CPUOffloadingSpec in
        v1/kv_offload/cpu/spec.py).

        With LMCache each GPU has a part of it, and latents of MLA are in the first GPU's
        (save_only_first_rank).
        """
        if not args.caches_on_host:
            return None
        offloads_once = cast("VllmLayout", layout).offloads_once and not args.offloads_to_lmcache
        copies = 1 if offloads_once else args.tp * args.pp
        size = symbol(
            "kv_offloading_size", args.offloaded_size, "bytes of host memory for all GPUs"
        )
        return HostCache(
            quantity(size // symbol("copies", copies, "GPUs whose caches are stored")), copies
        )

    def smaller_steps(self, args: VllmArgs, batch: int) -> Iterator[SmallerStep]:
        """Yield smaller limits of a step: the sampler holds the logits of all its sequences.

        The tokens of a step are named too, since a default that is only assumed widens the range.
        """
        for sequences in self.fewer_sequences:
            if batch <= sequences < args.limits.max_num_seqs:
                tokens = min(args.limits.max_num_batched_tokens, _FEW_TOKENS)
                given = {"max_num_seqs": sequences, "max_num_batched_tokens": tokens}
                flag = f"--max-num-seqs {sequences} --max-num-batched-tokens {tokens}"
                yield SmallerStep(f"{plural(sequences, 'sequence')} per step", flag, given)

    least_compute_capability = VOLTA  # docs/getting_started/installation/gpu.cuda.inc.md

    def loads_quantization(self, method: str, version: str | None) -> bool:
        switches = vllm_version(version)
        dropped = {"bitsandbytes": switches.loads_bitsandbytes, "hqq": switches.loads_hqq}
        return method not in _NEVER_LOADED and dropped.get(method, True)

    def refusal(self, model: ModelSpec, args: VllmArgs) -> Refusal | None:
        too_long = super().refusal(model, args)
        if too_long:
            return too_long
        fits_kernel = args.kv_dtype.name == "fp8" and "indexer" in cache_roles(model)
        has_kernel = args.version.has_sparse_latents_on_rtx and fits_kernel
        if args.capability == 12 and picks_latents(model) and not has_kernel:
            return Refusal(
                f"vLLM {args.version.name} has no kernel for {args.kv_dtype.name} latents that "
                "an indexer picks on GPUs of compute capability 12",
                "Use vLLM 0.24 or later and leave --kv-dtype out: the default is fp8_ds_mla there.",
            )
        missing = (
            missing_model(model, args)
            or refusal_without_cache(args)
            or _refused_connector(args)
            or _refused_experts(args)
        )
        if missing:
            return missing
        if args.device.startswith(("NVIDIA", "AMD")):
            refusal = missing_backend(model, args)
            if refusal:
                return refusal
        rows = padded_vocabulary(model)
        if rows % args.tp:
            sizes = [str(tp) for tp in range(1, args.tp) if rows % tp == 0]
            return Refusal(
                f"--tp {args.tp} does not divide the padded vocabulary of {count(rows)}",
                f"Use a --tp that does: {', '.join(sizes[-4:])}.",
            )
        return None

    def checks_all_layers(self, args: VllmArgs) -> bool:
        return args.version.checks_all_layers

    def attention_ranks(self, args: VllmArgs, dp: int) -> AttentionSplit:
        ranks = args.tp * dp
        fields = {"tp": 1, "dcp": 1, "dp": ranks, "enable_expert_parallel": True}
        return AttentionSplit(f"--tp 1 --dp {ranks} --enable-expert-parallel", fields)


def _refused_experts(args: VllmArgs) -> Refusal | None:
    """Return why experts cannot be moved or copied, or get no tokens (ParallelConfig in
    config/parallel.py).
    """
    backend = args.all2all_backend
    known = args.version.all2all_backends
    if backend and backend not in known:
        return Refusal(
            f"vLLM {args.version.name} has no --all2all-backend {backend}",
            f"Use one of {', '.join(sorted(known))}.",
        )
    if args.num_redundant_experts and not args.enable_eplb:
        return Refusal("redundant experts need --enable-eplb", "Add --enable-eplb.")
    if args.enable_eplb and not args.enable_expert_parallel:
        return Refusal(
            "--enable-eplb needs --enable-expert-parallel",
            "Add --enable-expert-parallel, or leave --enable-eplb out.",
        )
    if args.enable_eplb and args.tp * args.dp == 1:
        return Refusal(
            "--enable-eplb moves experts between GPUs, and there is one", "Leave --enable-eplb out."
        )
    return None


def _refused_connector(args: VllmArgs) -> Refusal | None:
    """Return that a connector needs the hybrid KV-cache manager off, and it is on
    (KVConnectorFactory.create_connector).
    """
    if args.supports_hybrids or args.without_hybrid_manager:
        return None
    return Refusal(
        f"{args.connector_name} of vLLM {args.version.name} does not support the hybrid KV-cache "
        "manager, which is on",
        "Add --disable-hybrid-kv-cache-manager.",
    )


ENGINE = Vllm()
