"""What SGLang answers, beside its layout and runtime memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ...model import ModelSpec
from ...quantity import Quantity, ceil_div, quantity, symbol, total
from ...units import parse_decimal
from ..base import CacheLayout, Limits, Pool
from ..ds_mla import has_pools, picks_latents
from ..engine import AttentionSplit, Engine, ExtraWeights, HeldWeights, HostCache, Refusal
from ..multi_token import PREDICT_TOKENS
from ..options import (
    DraftOptions,
    ExpertOptions,
    LoraOptions,
    PagedOptions,
    VersionOptions,
    capability,
)
from .launch import WORDS, launch
from .layout import layout
from .lora import lora_buffers
from .options import LONG_CONTEXT, SglangArgs, SglangOptions, exchanges_tokens
from .pools import stage_sizes
from .runtime import runtime
from .share import chunked_prefill_size, mem_fraction_static
from .versions import sglang_version

if TYPE_CHECKING:
    from .slots import SglangLayout

_FEWER_REQUESTS = (64, 16, 4)
# quant_methods that QUANTIZATION_METHODS (layers/quantization) does not have in 0.5.23.
_NEVER_LOADED = ("mlx", "exl2", "exl3", "eetq", "bitnet", "hqq", "torchao", "fbgemm_fp8")

# {model_type: its class}: models that SGLang lacks (srt/models of 0.5.23), and cannot run with the
# code of transformers (srt/model_loader/utils.py).
_MISSING = {
    "bamba": "BambaForCausalLM",
    "biogpt": "BioGptForCausalLM",
    "bloom": "BloomForCausalLM",
    "codegen": "CodeGenForCausalLM",
    "falcon": "FalconForCausalLM",
    "gpt_neo": "GPTNeoForCausalLM",
    "gpt_neox_japanese": "GPTNeoXJapaneseForCausalLM",
    "jamba": "JambaForCausalLM",
    "mpt": "MptForCausalLM",
    "openai-gpt": "OpenAIGPTLMHeadModel",
    "rwkv": "RwkvForCausalLM",
    "xglm": "XGLMForCausalLM",
    "xlm": "XLMWithLMHeadModel",
    "xlnet": "XLNetLMHeadModel",
    "zamba2": "Zamba2ForCausalLM",
}


class Sglang(Engine[SglangArgs]):
    name = "sglang"
    title = "SGLang"
    args = SglangArgs
    options = (
        VersionOptions,
        PagedOptions,
        DraftOptions,
        LoraOptions,
        ExpertOptions,
        SglangOptions,
    )
    splits = frozenset({"pp", "dcp", "attn_dp"})
    share_option = "--mem-fraction-static"
    long_context_variable = LONG_CONTEXT
    share_is_of_free = True
    dtype_of_fp32 = "fp16"  # _get_and_verify_dtype in configs/model_config.py
    running_option = "--max-running-requests"
    # published for a GB10; sgl-project/sglang issue 35860 has 0.85 leave its host no memory
    share_of_unified = "0.8"
    larger_shares = ("0.8", "0.85", "0.88", "0.9", "0.92")
    data_parallel = True
    ranks_share_tp = True
    pads_tower_heads = True
    converts_to = "fp8"
    has_extra_weights = True
    whole_with_dcp = frozenset({"indexer"})
    host_cache_option = "--hicache-size"
    disk_tip = "add SGLang's --hicache-storage-backend file"
    layout = staticmethod(layout)
    runtime = staticmethod(runtime)
    launch = staticmethod(launch)
    commands = (WORDS,)
    stage_sizes = staticmethod(stage_sizes)
    share = staticmethod(mem_fraction_static)

    def checkpoint_cache_dtype(
        self, model: ModelSpec, version: str | None, device: str = ""
    ) -> str | None:
        """Return fp8, or None: an NVFP4 cache is left to --kv-cache-dtype
        (mem_cache/kv_cache_dtype.py).

        Compressed attention only has fp8, and on Blackwell GPUs it is the default of latents that
        an indexer picks (_deepseek_v4_kv_cache_dtype and _dsa_kv_cache_dtype_default in
        arg_groups/overrides.py).
        """
        switches = sglang_version(version)
        method = model.quantization.method if model.quantization else ""
        if has_pools(model) or (capability(device) >= 10 and picks_latents(model)):
            return "fp8"
        is_read = {
            "modelopt": switches.reads_modelopt_cache_dtype,
            "fp8": switches.reads_fp8_cache_dtype,
            "compressed": switches.reads_compressed_tensors_cache_dtype,
        }
        if is_read.get(re.split("[-_]", method)[0]) and model.kv_dtype == "fp8":
            return "fp8"
        return None

    def divide(self, model: ModelSpec, args: SglangArgs) -> ModelSpec:
        from ..expert_parallel import divide_for_attention

        return divide_for_attention(
            model,
            args.tp,
            args.attn_dp,
            expert_parallel=args.enable_expert_parallel,
            redundant=args.num_redundant_experts or 0,
            whole_shared=args.exchanges_tokens,
        )

    def spreads_experts(self, given: Mapping[str, Any]) -> bool:
        return exchanges_tokens(given.get("moe_a2a_backend"))

    def held(self, part: ModelSpec, args: SglangArgs) -> ModelSpec:
        """Return the part without the experts that KTransformers has on the host
        (layers/moe/kt_ep_wrapper.py).
        """
        if args.kt_num_gpu_experts is None:
            return part
        from ..expert_parallel import with_experts

        return with_experts(part, args.kt_num_gpu_experts)

    def host_notes(self, args: SglangArgs) -> Iterator[str]:
        if args.kt_num_gpu_experts is not None:
            yield (
                f"--kt-num-gpu-experts {args.kt_num_gpu_experts}: the other routed experts of "
                "each layer are in host "
                "memory, in the format of --kt-weight-path. Bounds of time take all experts as "
                "if on GPUs."
            )

    def limits(self, args: SglangArgs) -> Limits:
        return Limits(chunked_prefill_size(args), 256)

    def admits(self, layout: CacheLayout, batch: int, context: int) -> bool:
        return super().admits(layout, batch, context) and cast("SglangLayout", layout).has_tokens(
            batch, context
        )

    def fewer_requests(self, args: SglangArgs) -> Sequence[int]:
        """Return fewer requests than the limit with compressed attention, which reserves windows
        for each of them.
        """
        if args.attentions.isdisjoint({"CSA", "CSA2"}):
            return ()
        return [
            n for n in _FEWER_REQUESTS if n < (args.max_running_requests or _FEWER_REQUESTS[0] + 1)
        ]

    def host_cache(
        self, args: SglangArgs, layout: CacheLayout, kv_memory: Quantity
    ) -> HostCache | None:
        """Return HiCache's pools, of which each GPU has its own (HostKVCache in
        mem_cache/pool_host/base.py).
        """
        if not args.caches_on_host:
            return None
        if args.hicache_size:
            size = symbol(
                "hicache_size", args.hicache_size * 10**9, "bytes of host memory of each GPU"
            )
        else:
            numerator, denominator = parse_decimal(args.hicache_ratio or "2", "--hicache-ratio")
            size = quantity(kv_memory * numerator // denominator)
        return HostCache(size, args.tp * args.pp // args.attn_dp)

    def loads_quantization(self, method: str, version: str | None) -> bool:
        return method not in _NEVER_LOADED

    def extra_weights(
        self, model: ModelSpec, args: SglangArgs, held: HeldWeights
    ) -> Sequence[ExtraWeights]:
        """Return the tables of rotary positions, the copies of MLA's kv_b, and the buffers for LoRA
        adapters.

        Tables are in fp32 (layers/rotary_embedding/base.py), with four times the positions if they
        have mrope_section. `w_kc` and `w_vc` are copies of kv_b in the model's dtype
        (models/deepseek_common/deepseek_weight_loader.py).
        """
        tables = [
            symbol(
                "rows",
                table.rows * (4 if table.name == "mrope" else 1),
                f"positions of the {table.name} table",
            )
            * symbol("d_rotary", table.width, "elements of a row")
            * symbol("bytes_table", 4, "bytes of an element in fp32")
            for table in model.rope_tables
        ]
        copies = []
        for _, layers in model.plain().groups():
            for matrix in layers.attention.matrices(1, 1):
                if matrix.name == "W_kv_b":
                    with_mla = symbol("L", layers.count, "layers with MLA")
                    weights = symbol("kv_b", matrix.weights, "weights of kv_b in one layer")
                    copies.append(with_mla * weights * held.element_bytes)
        return [
            ExtraWeights("weights_rope_tables", "rope tables", total(tables)),
            ExtraWeights("weights_absorbed_kv_b", "absorbed kv_b", total(copies)),
            ExtraWeights(
                "weights_draft_tables", "the drafter's tables", _draft_tables(model, args, held)
            ),
            ExtraWeights(
                "weights_lora", "buffers for LoRA adapters", lora_buffers(model, args, held)
            ),
        ]

    def loads_drafter_first(self, args: SglangArgs) -> bool:
        return args.version.sizes_pools_after_drafter

    # "SGLang only supports sm75 and above." (maybe_downgrade_dtype_for_legacy_gpu in
    # srt/model_executor; model_runner.py before)
    least_compute_capability = (7, 5)

    def refusal(self, model: ModelSpec, args: SglangArgs) -> Refusal | None:
        missing = _MISSING.get(model.model_type or "")
        if missing:
            return Refusal(
                f"{missing} has no SGlang implementation and the Transformers implementation is "
                "not compatible with SGLang",
                "Use another --engine.",
            )
        if args.version.refuses_long_context:
            return super().refusal(model, args)
        return None

    def longest_request(self, pool: Pool) -> int | None:
        """Return max_req_len: the pool without one token.

        SGLang starts with any pool that holds six tokens, and rejects longer requests
        (managers/tp_worker.py).
        """
        longest = int(pool.tokens) - 1
        if longest > 5 and pool.concurrency:
            return longest
        return None

    def attention_ranks(self, args: SglangArgs, dp: int) -> AttentionSplit:
        tp = args.tp * dp
        return AttentionSplit(f"--tp {tp} --attn-dp {tp}", {"tp": tp, "attn_dp": tp, "dp": 1})


def _draft_tables(model: ModelSpec, args: SglangArgs, held: HeldWeights) -> Quantity:
    """Return the embedding and the lm head that a drafter allocates, and gives back when the pools
    have their sizes.

    Both are in 16 bits: 2 * 248,320 * 5,120 * 2 B = 4.74 GiB of Qwen3.8-27B, for which "Load weight
    end" prints 5.53 GiB with 0.79 GiB of its own (init_lm_head in speculative/eagle_worker_v2.py;
    issue #36452).
    """
    draft = args.speculative_model
    predicts = bool(args.speculative_layers) and args.model_type in PREDICT_TOKENS
    tables = draft.shared_tables if draft else 2 * predicts
    if (
        not tables
        or not model.head
        or not model.vocab_size
        or not args.version.sizes_pools_after_drafter
    ):
        return Quantity(0)
    table = ceil_div(
        symbol("V", model.vocab_size, "tokens of the vocabulary"), symbol("tp", model.tp, "devices")
    )
    width = symbol("d", model.table_width, "width of the table")
    return quantity(
        symbol("tables", tables, "tables of the drafter") * table * width * held.element_bytes
    )


ENGINE = Sglang()
