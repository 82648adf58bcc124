"""vLLM's profile of its memory: the pass over max_num_batched_tokens random tokens, and the sampler
after it.

vLLM subtracts the peak of this pass from its share of the GPU (profile_run in
v1/worker/gpu_model_runner.py). The formulas follow the pass; `runtime.py` says which logs they were
compared with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from ...attention import as_compressed, as_latent
from ...mlp import Mlp
from ...model import Layers, plural
from ...quantity import Quantity, maximum, minimum, named, quantity, symbol
from ...units import BYTES, GIB, MIB, count, dtype, human
from ..estimate import attention_width
from ..runtime import RuntimeFacts, RuntimePart, Term
from .exchange import batched_rows, exchange_buffers, experts_of, picked_rows, received_tokens
from .held_weights import padded_heads
from .options import BATCHED, DEEPEP, GATHERED, VllmArgs

if TYPE_CHECKING:
    from ...attention.compressed import Compressed

HOPPER = (9, 0)
BLACKWELL = (12, 0)
RUNS = "84 controlled starts on an H100"
_SOURCE = "v1/worker/gpu_model_runner.py, profile_run"
UNQUANTIZED = ("bf16", "fp16", "fp32")
# Steps whose loads EPLB records: window_size of EPLBConfig.
_EPLB_WINDOW = 1000
_MIXER = "stream_mixer_attention"
# Bytes per logit that verifying drafts takes in fp32: the last token's logits 4, the draft's 4, a
# copy to process 4, their probabilities 4, random numbers 4 and their reciprocals 4
# (rejection_sample in v1/sample/rejection_sampler.py).
VERIFIED = 24


class Profile:
    """The profile's pass on one GPU.

    A size without a part of its own is the tensors of one step. They are freed before the next, so
    that the largest step decides.
    """

    def __init__(self, facts: RuntimeFacts[VllmArgs]) -> None:
        self.facts = facts  # the GPU, with the tokens and sequences of the pass
        self._args = facts.args
        self._version = facts.args.version
        # the layers on the GPU and those of the whole model; equal ones are merged
        self.layers = [layers for _, layers in facts.model.plain().groups()]
        self.whole = [layers for _, layers in facts.whole.groups()]
        # whether the second model runner (v1/worker/gpu/) is used
        self.v2_runner = self._version.uses_v2_runner(
            facts.args.model_type,
            facts.args.v2_model_runner,
            dense=not any(layers.mlp and layers.mlp.n_experts for layers in self.whole),
            hybrid=any(spec.per == "sequence" for layers in self.whole for spec in layers.cache()),
            quantized=facts.weights_dtype not in UNQUANTIZED,
        )
        self.tokens = symbol("N", facts.limits.max_num_batched_tokens, "max_num_batched_tokens")
        self.width = facts.element_bytes
        self.d_model = symbol("d_model", facts.whole.main.d_model, "width of the model")

    def terms(self) -> list[Term]:
        """Return the symbols of the parts' formulas that have formulas themselves."""
        return [
            ("forward_bytes", "tensors of the forward pass", self.forward),
            ("sampler_bytes", "tensors of the sampler", self.sampler),
            ("experts_bytes", "workspace of the experts", self.experts),
            ("compiler_bytes", "inputs of the kernels that the compiler benchmarks", self.compiler),
        ]

    def notes(self) -> Iterator[str]:
        """Yield what decides the profile and is not known."""
        if self._may_have_flashinfer and int(self.sampler) > self._pass_bytes:
            yield (
                f"warning: vLLM {self._version.name} samples with FlashInfer where it is "
                "installed, as in its Docker images. That takes less memory: --flashinfer-sampler."
            )
        more = self._copies * int(self.compiler) - max(self._pass_bytes, int(self.sampler))
        if (
            self._version.profiles_cold_compiler
            and not self._args.without_cache
            and self._args.warm_start is None
            and more > GIB // 10
        ):
            yield (
                f"The first start compiles the model, which takes {human(Quantity(more), BYTES)} "
                "more than later ones: --warm-start."
            )

    def exchange_notes(self) -> Iterator[str]:
        """Yield how experts get the tokens of data-parallel ranks, and what else would be."""
        args = self._args
        if expert_ranks(self.facts) == 1 or self._mixture is None:
            return
        if args.exchange == GATHERED:
            yield (
                "The experts' workspace is that for the tokens of all ranks, which each GPU "
                "gathers. --all2all-backend deepep_high_throughput sends each token only to GPUs "
                "that have its experts."
            )
        if args.assumes_exchange:
            gathered = dataclasses.replace(args, all2all_backend=GATHERED)
            profile = Profile(dataclasses.replace(self.facts, args=gathered))
            yield (
                f"--all2all-backend {DEEPEP} is assumed, as vLLM's guide has it for several "
                f"nodes. Its default, {GATHERED}, gathers the tokens of all ranks on each GPU, "
                f"which takes a workspace of {human(profile.experts, BYTES)}."
            )
        if args.exchange == DEEPEP and self._kernel_is_unknown:
            rows = quantity(picked_rows(experts_of(self.facts, self._mixture)))
            yield (
                "--use-deep-gemm (VLLM_USE_DEEP_GEMM=1) settles most of the range: DeepGEMM's "
                f"workspace has {count(rows)} rows, and that of the default kernel "
                f"{count(int(self._gathered) * (self._mixture.n_experts_per_token or 1))}."
            )
        is_default = args.exchange in BATCHED and args.max_num_batched_tokens is None
        if is_default and self._version.batches_whole_steps:
            yield (
                f"--max-num-batched-tokens is 256 by default with {args.exchange}, which is for "
                "decodes: its buffers grow with it."
            )

    @property
    def _kernel_is_unknown(self) -> bool:
        """Whether DeepGEMM may run experts in FP8, which decides the rows of their workspace."""
        is_open = self._args.use_deep_gemm is None and not self._version.profiles_worst_experts
        return is_open and not self._runs_deep_gemm and self.facts.weights_dtype == "fp8"

    # The largest step

    def activations(self) -> RuntimePart:
        """Return the largest of forward pass, sampler and compiler."""
        forward = named(self.forward, "forward_bytes", "bytes of the tensors of a forward pass")
        if not self._version.keeps_experts_workspace and self.experts:
            forward = forward + named(
                self.experts, "experts_bytes", "bytes of the workspace of the experts"
            )
        tokens = plural(self.facts.limits.max_num_batched_tokens, "token")
        steps = [(forward, f"forward pass, {tokens}")]
        if self.sampler:
            sampler = named(self.sampler, "sampler_bytes", "bytes of the sampler's tensors")
            steps.append((sampler, f"sampler, {plural(min(self.facts.limits), 'sequence')}"))
        if self.compiler and self._version.profiles_cold_compiler and not self._args.without_cache:
            compiler = named(
                self.compiler,
                "compiler_bytes",
                "bytes of the inputs of a kernel that is benchmarked",
            )
            steps.append((self._copies * compiler, "compiler, which copies the embedding"))
        larger = quantity(steps[0][0])
        label = steps[0][1]
        for size, name in steps[1:]:
            label = name if size > larger else label
            larger = quantity(maximum(larger, size))
        low, high = self._range_of_activations()
        low = min(low, int(larger))
        return RuntimePart(
            "activations", label, low, larger, high, f"vLLM {self._version.name}, {_SOURCE}; {RUNS}"
        )

    def _range_of_activations(self) -> tuple[int, int]:
        """Return the range: a later start at the low end, and a first one, which compiles the
        model, at the high end.

        The widths that a forward pass holds at once are 3 to 4.5 times d_model by model, 0.75 on
        both sides of what is expected. Public starts of V0 without --max-num-seqs may have had
        fewer sequences.
        """
        facts = self.facts
        tokens = facts.limits.max_num_batched_tokens
        margin = facts.whole.main.d_model * tokens * self._args.dtype.bits // 8 * 3 // 4
        if self._may_have_flashinfer:
            fewest = self._sampler_of(flashinfer=True)
        else:
            fewest = self.sampler
        halves = 2 if self._version.v0 and self._args.max_num_seqs is None else 1
        low = (
            max(self._pass_bytes - int(self._copies_for_cutlass) - margin, int(fewest) // halves)
            - GIB // 10
        )
        if self._args.warm_start is False and self._version.profiles_cold_compiler:
            low = max(low, int(self.compiler) - GIB // 20)
        sampler = int(self.sampler)
        # 33 logs of one H100 or H200 have at most 0.07 GiB more than the formulas
        if self.facts.gpu.compute_capability != HOPPER:
            sampler = sampler * 21 // 20
        high = max(self._pass_bytes + margin, sampler) + GIB * 15 // 100
        copies = 2 if self._version.splits_workspaces else 1
        if self.compiler:
            high = max(high, copies * int(self.compiler) + GIB // 20)
        elif copies > 1:  # another block may be counted once more
            high += int(maximum(self.forward, self.sampler)) // 2
        # Kernels of gated delta nets and of KDA are tuned during the profile. Three logs of an RTX
        # 5090, where nothing was compiled before, have 1 to 2 GiB more than the formulas.
        if self._version.autotunes_deltas and any(
            layers.attention.label in ("GDN", "KDA") for layers in self.whole
        ):
            high += GIB
        return max(0, low), high

    @property
    def _pass_bytes(self) -> int:
        experts = 0 if self._version.keeps_experts_workspace else int(self.experts)
        return int(self.forward) + experts

    @property
    def sampler(self) -> Quantity:
        """The sampler's tensors."""
        return self._sampler_of(flashinfer=self._samples_with_flashinfer)

    @property
    def _sampled(self) -> int:
        """Tokens of the vocabulary of which this stage samples; 0 for a pooling model, whose pooler
        is small.
        """
        if not self.facts.last or self._args.pools:
            return 0
        return self.facts.whole.vocab_size or 0

    @property
    def _has_flashinfer(self) -> bool:
        """Whether FlashInfer's kernels run on this GPU: from compute capability 8.0 on."""
        capability = self.facts.gpu.compute_capability
        return capability is not None and capability >= (8, 0)

    @property
    def _may_have_flashinfer(self) -> bool:
        """Whether FlashInfer samples if it is installed, which is not known."""
        version = self._version
        given = self._args.flashinfer_sampler
        may_be = version.samples_with_installed_flashinfer and not version.v0
        return given is None and may_be and self._has_flashinfer

    @property
    def _samples_with_flashinfer(self) -> bool:
        given = self._args.flashinfer_sampler
        return self._has_flashinfer and (
            self._version.samples_with_flashinfer if given is None else given
        )

    def _sampler_of(self, *, flashinfer: bool) -> Quantity:
        """Return the sampler's tensors: R V (bytes + scratch), hidden states of N and R tokens; 0
        without the logits.

        The logits of all tensor-parallel devices are gathered on each of them, so that tp does not
        divide V. With a drafter, a draft of each sequence is verified then, beside logits of two
        tokens and a copy of the last one's.
        """
        facts = self.facts
        if not self._sampled:
            return quantity(0)
        rows = minimum(
            self.tokens, symbol("max_num_seqs", facts.limits.max_num_seqs, "sequences of one step")
        )
        vocab = symbol("V", self._sampled, "tokens of the vocabulary")
        verifies = (
            self._version.verifies_drafts
            and bool(self._args.speculative_tokens)
            and not self.v2_runner
        )
        if verifies:
            scratch_bytes = VERIFIED
        else:
            scratch_bytes = self._version.sampler_scratch(self.v2_runner, flashinfer)
        scratch = symbol("scratch", scratch_bytes, "bytes per logit that sampling takes")
        logits = rows * vocab * (self.width * (3 if verifies else 1) + scratch)
        hidden = (self.tokens + 2 * rows) * self.d_model * self.width
        total: int = logits + hidden + self._matmul_workspace
        # Triton's kernel has a row per multiprocessor
        runs_triton = verifies or not flashinfer or self._version.samples_twice
        if (
            self._version.has_top_k_buffer
            and facts.gpu.multiprocessors
            and runs_triton
            and not self.v2_runner
        ):
            multiprocessors = symbol(
                "multiprocessors", facts.gpu.multiprocessors, "streaming multiprocessors"
            )
            total = total + 4 * multiprocessors * vocab
        return quantity(total)

    @cached_property
    def forward(self) -> Quantity:
        """The forward pass: the widest part of a layer, and 3.75 d_model beside it.

        An MLP holds gate, up and their product; attention holds q, k, v and its output. 3.75 is
        fitted on models with d_model 4,096; other models have 3 to 4.5. Tokens gathered from other
        ranks are beside it. With fp8 or int8 weights the product is quantized, 1 byte each; where
        the compiler fuses SiLU and the quantization to fp8, it is never written in the model's
        dtype.
        """
        kinds = self._compressed_kinds
        if kinds:
            return self._compressed_attention(
                max(kinds, key=lambda kind: int(kind.index_n_heads or 0))
            )
        mlp_width = max(map(_dense_width, self.layers))
        heads_width = max(int(attention_width(layers)) for layers in self.layers)
        if any(layers.mlp and layers.mlp.gated for layers in self.layers):
            gated = 3
        else:
            gated = 2
        is_fused = self._version.fuses_quantized_products and not self._args.enforce_eager
        if is_fused and self.facts.weights_dtype == "fp8":
            gated -= 1
        d_ff = symbol(
            "d_ff", mlp_width, "width of the MLP, or of the shared experts, on one device"
        )
        if gated * mlp_width >= heads_width:
            widest = gated * d_ff
        else:
            widest = symbol(
                "heads", heads_width, "elements of q, k, v and attention's output on one device"
            )
        per_width = self.tokens * self.width
        result = per_width * widest + per_width * self.d_model * 15 // 4 + self._matmul_workspace
        if self._gathered > self.tokens:
            result = result + self._gathered * self.width * self.d_model
        if self.facts.weights_dtype in ("fp8", "int8") and mlp_width:
            result = result + self.tokens * d_ff
        expanded = maximum(self._expanded_latents(), self._indexer_logits())
        if self._runs_cutlass:
            result = result + named(
                self._copies_for_cutlass, "copies", "bytes of the copies of experts' inputs"
            )
        if self.facts.states_read:
            result = result + self._states_read * per_width * self.d_model
        return quantity(result + expanded if expanded else result)

    @property
    def _states_read(self) -> Quantity:
        return symbol(
            "states_read", self.facts.states_read, "layers whose hidden states the drafter reads"
        )

    def _compressed_attention(self, kind: Compressed) -> Quantity:
        """Return the forward pass of DeepSeek-V4, whose attention is its widest part.

        From 0.23 on it is not compiled, so that the residual streams and the input of the layer
        before live on beside the layer's own. Attention holds its output and the queries, both
        padded to the kernel's heads, the queries before that, the latents before and after their
        norm, and in fp32 what the pools and the indexer's pools are made from. The indexer runs
        before the queries up to 0.27, with its own in fp8 and its logits. Two H200 with 8,192
        tokens have 256 KiB of each: 2 GiB. Source: models/deepseek_v4/attention.py and
        nvidia/model.py.
        """
        heads = int(kind.n_heads)
        d_head = int(kind.d_head)
        padded = padded_heads(heads, self._args.capability)
        extra = [matrix for layers in self.layers for matrix in layers.extra]
        mixers = [int(matrix.rows) for matrix in extra if matrix.name == _MIXER]
        beside = (
            symbol("d_streams", max(mixers, default=0), "elements of all streams of a token")
            + self.d_model
        )
        latents = symbol(
            "latents",
            int(kind.q_lora_rank or 0) + d_head,
            "elements of the latents of queries and keys",
        )
        output = symbol(
            "output", padded * d_head, "elements of attention's output, in padded heads"
        )
        indexer = int(kind.index_head_dim or 0)
        scores = 16 * symbol(
            "d_pools", d_head + indexer, "elements that a token gives to the pools"
        )
        copies = 1 if self._version.compiles_streams else 2
        held = (copies * beside + 2 * latents + output) * self.width + scores
        unpadded = symbol(
            "heads",
            heads * d_head if heads < padded else 0,
            "elements of queries before they are padded",
        )
        queries = held + (output + unpadded) * self.width
        picks = held + symbol(
            "d_index",
            int(kind.index_n_heads or 0) * indexer,
            "bytes of the indexer's queries in fp8",
        )
        if self._version.indexes_beside_queries:
            picks = picks + output * self.width
        steps = maximum(self.tokens * queries, self.tokens * picks + self._indexer_logits())
        return quantity(steps + self._matmul_workspace)

    @cached_property
    def compiler(self) -> Quantity:
        """A copy of the embedding, with which Inductor benchmarks the kernel that looks tokens up.

        vLLM lets it benchmark kernels before it fuses them side by side (benchmark_combo_kernel in
        config/compilation.py), with random tensors of the sizes of a kernel's inputs
        (codegen_kernel_benchmark in torch/_inductor). Compiling happens inside the profile, so that
        the copy counts until the compiled graphs are cached: two logs have 0.91 and 1.19 GiB more
        than the forward pass, as computed, and a later start of three models has 0.91, 0.95 and
        1.13 less. A model with towers looks tokens up outside its graph.

        An EAGLE-3 drafter is compiled while the hidden states that it reads, the model's and their
        combination are there; its kernel reads the last too, and writes both side by side. With
        steps of 2,048 and 8,192 tokens Llama 3.1 8B has 0.11 and 0.51 GiB less than without, as
        logged, and 0.12 and 0.50 as computed.
        """
        facts = self.facts
        vocab = self.facts.whole.vocab_size
        is_compiled = self._version.compiles_streams or not self._compressed_kinds
        is_outside = (
            not facts.first
            or bool(facts.whole.towers)
            or self._args.enforce_eager
            or not is_compiled
        )
        if not vocab or is_outside or self._args.warm_start or not self._version.benchmarks_kernels:
            return quantity(0)
        rows = symbol(
            "V_device", -(-vocab // self._args.tp), "tokens of the embedding on one device"
        )
        states: int = self.tokens * (self._states_read + 5) if facts.states_read else quantity(0)
        return quantity((rows + self.tokens + states) * self.d_model * self.width)

    @property
    def _copies(self) -> int:
        """How often the compiler's copy of the embedding counts: twice if a small tensor pins the
        freed block.

        From 0.27 to 0.30 it counts twice with weights in int4 on an RTX 5090 (two logs), once with
        int4 on four other GPUs (seven logs) and in bf16 (two logs).
        """
        is_blackwell = (self.facts.gpu.compute_capability or HOPPER) >= BLACKWELL
        if self._version.splits_workspaces and self.facts.weights_dtype == "int4" and is_blackwell:
            return 2
        return 1

    @property
    def _matmul_workspace(self) -> Quantity:
        """cuBLAS' workspace as PyTorch sets it: 32 MiB on Hopper and Blackwell's B200, else 8,320
        KiB.
        """
        large = self.facts.gpu.compute_capability in (HOPPER, (10, 0))
        return symbol("workspace", 32 * MIB if large else 8320 * 1024, "bytes of cuBLAS' workspace")

    # MLA

    @cached_property
    def _compressed_kinds(self) -> list[Compressed]:
        """The layers' kinds of compressed attention."""
        kinds = (as_compressed(layers.attention) for layers in self.layers)
        return [kind for kind in kinds if kind]

    @property
    def _has_indexer(self) -> bool:
        return any(spec.role == "indexer" for layers in self.whole for spec in layers.cache())

    def _indexer_logits(self) -> int:
        """Return the bytes of an indexer's logits (sparse_attn_indexer.py); 0 without an
        indexer.
        """
        is_indexed = self._has_indexer or self._compressed_kinds
        if not self._version.profiles_indexer_logits or not is_indexed:
            return 0
        size = (self._args.sparse_indexer_max_logits_mb or 512) * MIB
        return symbol("indexer_logits", size, "bytes of the indexer's logits")

    def _expanded_latents(self) -> int:
        """Return the bytes of K and V of a chunk of MLA's cached prefix, which the profile
        allocates; 0 without MLA.

        The chunk has 8 contexts or 4 blocks per sequence, at most 65,536 tokens, and at least a
        block per sequence. Source: determine_chunked_prefill_workspace_size (mla_attention.py).
        """
        kind = next(filter(None, (as_latent(layers.attention) for layers in self.layers)), None)
        if kind is None or not self._version.profiles_prefix_of_latents:
            return 0
        block = self._args.block_size or 64
        sequences = self.facts.limits.max_num_seqs
        chunk = max(
            min(max(8 * self.facts.context, 4 * sequences * block), 64 * 1024), sequences * block
        )
        tokens = symbol("chunk", chunk, "tokens of a cached prefix that are expanded at once")
        heads = symbol("n_heads", int(kind.n_heads), "query heads on one device")
        d_kv = symbol("d_kv", int(kind.d_nope + kind.d_v), "width of K without rope, and of V")
        return tokens * heads * d_kv * self.width

    def _gathered_latents(self) -> int:
        """Return the workspace into which sparse MLA gathers latents, as many as 5 contexts; 0
        without an indexer.

        It lives on in the workspace that the experts use too. From 0.32 on it has 2 contexts of
        more than 262,144 tokens. Source: get_prefill_workspace_size (flashmla_sparse.py); the
        indexer's own buffer (indexer.py) is sized to fit in it.
        """
        if not self._version.keeps_experts_workspace or not self._has_indexer:
            return 0
        with_mla = [layers for layers in self.whole if layers.attention.label == "MLA"]
        specs = [spec for layers in with_mla for spec in layers.attention.cache()]
        latents = (int(spec.width) for spec in specs if spec.role == "latent")
        latent = max(latents, default=576)
        context = symbol("T", self.facts.context, "tokens of the context")
        return (
            self._gathered_contexts * context * symbol("latent", latent, "elements of a latent") * 2
        )

    @property
    def _gathered_contexts(self) -> int:
        if self._version.gathers_two_long_contexts and self.facts.context > 256 * 1024:
            return 2
        return 5

    def _gathered_pools(self) -> int:
        """Return the workspace into which DeepSeek-V4's attention gathers its keys, of 4 requests;
        0 for other models.

        An indexer gathers the pools of 40 contexts, in fp8 with a scale of 4 bytes, beside 1 MiB
        for its top k; from 0.32 on 16 contexts of more than 262,144 tokens. FlashMLA gathers those
        of 4 contexts in 16 bits, with their windows and the tokens of the step. DeepSeek-V4.1 has
        pools of single tokens. 1,048,576 tokens take 1.29 GiB of Flash in 0.31, and 5.16 of V4.1.
        Source: forward_mqa in models/deepseek_v4/nvidia/flashmla.py; get_max_prefill_buffer_size in
        v1/attention/backends/mla/indexer.py.
        """
        kinds = [kind for kind in self._compressed_kinds if kind.index_n_heads]
        if not kinds:
            return 0
        kind = min(kinds, key=lambda kind: int(kind.compress_rate or 1))
        rate = symbol("rate", int(kind.compress_rate or 1), "tokens of a pool")
        pools = -(-symbol("T", self.facts.context, "tokens of the context") // rate)
        keys = (
            8
            * self._gathered_contexts
            * pools
            * (symbol("d_index", int(kind.index_head_dim or 0), "width") + 4)
            + MIB
        )
        if self._args.capability not in (9, 10):
            return keys
        d_head = symbol("d_head", int(kind.d_head), "width of a key")
        return maximum(keys, 4 * (pools + self.tokens) * d_head * 2)

    def _decode_logits(self) -> int:
        """Return the workspace of an indexer's logits on AMD's GPUs: in fp32, of each token of a
        step and each token, or pool, of a context. 0 without an indexer, and on other GPUs.

        From 0.30 on there are only as many rows as sequences have tokens in a step of decoding.
        16,384 tokens and the 262,144 pools of DeepSeek-V4-Pro's 1,048,576 tokens take 16 GiB
        (vllm-project/vllm issue 53961), and 8,192 tokens with GLM-5.3's context 32 GiB (issue
        55132). Source: rocm_aiter_sparse_attn_indexer in v1/attention/ops/rocm_aiter_mla_sparse.py,
        for GPUs from the MI300X on; on older ones each head has logits.
        """
        version = self._version
        pooled = [int(kind.compress_rate or 1) for kind in self._compressed_kinds]
        is_latent = any(layers.attention.label == "MLA" for layers in self.whole)
        is_indexed = pooled or (is_latent and self._has_indexer)
        if self.facts.gpu.vendor != "AMD" or not (is_indexed and version.reserves_decode_logits):
            return 0
        rows: int = self.tokens
        if version.bounds_decode_logits:
            sequences = symbol("max_num_seqs", self.facts.limits.max_num_seqs, "sequences")
            rows = minimum(rows, sequences * (1 + self._args.speculative_tokens))
        rate = symbol("rate", min(pooled, default=1), "tokens of a pool")
        pools = symbol("T", self.facts.context, "tokens of the context") // rate
        return rows * pools * 4

    # Experts

    @cached_property
    def _mixture(self) -> Mlp | None:
        """The experts of the layers with the widest: all layers share the workspace. None without
        experts.
        """
        mlps = [layers.mlp for layers in self.layers if layers.mlp is not None]
        mixtures = [mlp for mlp in mlps if mlp.n_experts]
        return max(mixtures, key=lambda mlp: int(mlp.d_ff), default=None)

    @cached_property
    def _gathered(self) -> int:
        """The tokens that the experts have: those of all data-parallel ranks that divide them, or
        those that are sent to this device.
        """
        ranks = expert_ranks(self.facts)
        mlp = self._mixture
        if ranks == 1 or mlp is None:
            return self.tokens
        if self._args.exchange in BATCHED:
            return symbol("received", 0, "tokens that are received elsewhere")
        if self._args.exchange == DEEPEP:
            received = received_tokens(experts_of(self.facts, mlp))
            return symbol("received", received, "tokens that pick an expert of this device")
        return self.tokens * symbol(
            "ranks", ranks, "data-parallel ranks whose tokens the experts have"
        )

    @cached_property
    def experts(self) -> Quantity:
        """The workspace of the experts: what both products write, for each expert that a token
        picks.

        Data-parallel ranks gather the tokens of all by default (AgRsAll2AllManager in all2all.py).
        With 16 ranks of 8,192 tokens GLM-4.6 has 20 GiB, as vllm-project/vllm#57270 says of the
        worst case, and 1.3 GiB if DeepEP distributes them evenly to DeepGEMM: exchange.py.

        Source: model_executor/layers/fused_moe/. gpt-oss' experts in MXFP4 have none on Hopper,
        where Triton's own kernels run them. DeepGEMM, which runs those of other models on compute
        capability 12, pads the tokens of each expert to 128 (deep_gemm_utils.py): 0.5 GiB of
        DeepSeek-V4-Flash.
        """
        mlp = self._mixture
        whole = self.facts.whole
        if mlp is None or (
            whole.experts_dtype == "mxfp4" and self.facts.gpu.compute_capability == HOPPER
        ):
            return quantity(0)
        if self._args.exchange in BATCHED:
            return self._batched_experts(mlp)
        tokens = self._gathered
        chunk = self._version.largest_experts_chunk
        if chunk is not None:
            chunk = self._args.fused_moe_chunk_size or chunk
            limit = symbol("chunk_size", chunk, "tokens in one chunk")
            if self._args.exchange == DEEPEP and self._version.profiles_worst_experts:
                tokens = limit
            else:
                tokens = minimum(tokens, limit)
        picked = symbol(
            "n_experts_per_token", mlp.n_experts_per_token or 1, "experts that a token is routed to"
        )
        d_expert = symbol("d_expert", int(mlp.d_ff), "width of one expert on one device")
        d_model = symbol("d_model", int(mlp.d_latent or whole.main.d_model), "width of the model")
        is_narrow = self._version.shares_experts_buffer or self._runs_cutlass
        activation = d_expert if is_narrow else maximum(d_expert, d_model)
        rows = tokens * picked
        is_sent = self._args.exchange == DEEPEP and not self._version.profiles_worst_experts
        if is_sent and self._runs_deep_gemm:
            rows = picked_rows(experts_of(self.facts, mlp))
        capability = self.facts.gpu.compute_capability or HOPPER
        # gpt-oss has an experts_dtype instead
        if whole.weights_dtype == "mxfp4" and capability >= BLACKWELL:
            rows = rows + 127 * symbol(
                "n_experts", mlp.n_experts or 0, "experts of a layer on one device"
            )
        second = maximum(2 * d_expert, d_model)
        if self._runs_deep_gemm and self._version.packs_inputs_of_experts:
            return quantity(rows * (activation + second * self.width))
        return quantity(rows * (activation + second) * self.width)

    def _batched_experts(self, mlp: Mlp) -> Quantity:
        """Return the workspace of experts with places for tokens, and the tokens that are received:
        those in FP8 have a byte per value (workspace_shapes of BatchedDeepGemmExperts).
        """
        experts = experts_of(self.facts, mlp)
        d_expert = symbol("d_expert", experts.d_ff, "width of one expert on one device")
        d_model = symbol("d_model", experts.d_model, "width of the model")
        workspace = (maximum(d_model, 2 * d_expert) + d_expert) * self.width
        if self.facts.weights_dtype == "fp8":
            received = d_model * 1
        else:
            received = d_model * self.width
        return quantity(batched_rows(self._args, experts) * (workspace + received))

    @property
    def _runs_deep_gemm(self) -> bool:
        """Whether DeepGEMM runs experts in FP8: as given, or by default where no kernel of
        FlashInfer is preferred. Ranks that share nothing have kernels of their own.
        """
        if self.facts.weights_dtype != "fp8" or expert_ranks(self.facts) == 1:
            return False
        if self._args.use_deep_gemm is not None:
            return self._args.use_deep_gemm
        is_hopper = self.facts.gpu.compute_capability == HOPPER
        return is_hopper and not self._version.prefers_cutlass_experts

    def workspace(self) -> RuntimePart | None:
        """Return the workspace that lives on after the pass: that of the experts, or of sparse
        attention if larger.
        """
        gathered = quantity(maximum(self._gathered_latents(), self._gathered_pools()))
        logits = quantity(self._decode_logits())
        name = self._version.name
        if logits > maximum(gathered, self.experts):
            source = f"vLLM {name}, v1/attention/ops/rocm_aiter_mla_sparse.py"
            size = int(logits)
            return RuntimePart("gathered_latents", "indexer's logits", size, logits, size, source)
        if gathered > self.experts:
            size = int(gathered)
            source = f"vLLM {name}, v1/attention/backends/mla/ (flashmla_sparse.py, indexer.py)"
            return RuntimePart(
                "gathered_latents",
                "sparse MLA's workspace",
                size // 2,
                gathered,
                size * 5 // 4,
                source,
            )
        if not self._version.keeps_experts_workspace or not self.experts:
            return None
        low, high = self._range_of_experts()
        if not self._runs_cutlass:  # it may be asked for
            high += int(self._copies_for_cutlass)
        source = f"vLLM {name}, model_executor/layers/fused_moe/modular_kernel.py"
        return RuntimePart("experts", "experts' workspace", low, self.experts, high, source)

    def _range_of_experts(self) -> tuple[int, int]:
        """Return the range of the experts' workspace.

        TensorRT-LLM's kernels, which data-center Blackwell GPUs prefer, asked for 4.06 GiB with 8
        ranks of Qwen3.6 and 6.56 with 4 of GLM-5 (flashinfer-ai/flashinfer#4916), where the formula
        has 4.0 and 6.0 for 8,192 tokens, or twice that for 16,384. DeepGEMM's takes three quarters
        from 0.31 on, and behind DeepEP only has rows for the experts that tokens pick.
        """
        size = int(self.experts)
        capability = self.facts.gpu.compute_capability or HOPPER
        low = size * 9 // 10
        mlp = self._mixture
        if expert_ranks(self.facts) > 1 and self._kernel_is_unknown:
            low = size * 7 // 10
        if expert_ranks(self.facts) > 1 and capability[0] == 10:
            low = size * 4 // 10
        if self._args.exchange == DEEPEP and self._kernel_is_unknown and mlp is not None:
            experts = experts_of(self.facts, mlp)
            fewest = int(picked_rows(experts))
            if self._version.packs_inputs_of_experts:
                fewest = fewest * 3 // 4
            low = min(low, size * fewest // max(1, int(self._gathered) * experts.picked))
        return low, size * 5 // 4

    def exchange(self) -> RuntimePart | None:
        """Return the buffers through which ranks send tokens to experts."""
        if self._mixture is None or expert_ranks(self.facts) == 1:
            return None
        return exchange_buffers(self.facts, self._mixture)

    @property
    def _runs_cutlass(self) -> bool:
        """Whether CUTLASS' kernels run NVFP4's experts: on compute capability 12, for which
        TensorRT-LLM has none.

        Two starts of a GB10 that differ in their tokens only need 72 KB more per token than without
        the copies, which are 74 there, and one of Gemma 4 on an RTX 5090 1.76 GiB, which are 1.55.
        """
        capability = self.facts.gpu.compute_capability
        return bool(capability and capability >= BLACKWELL and self._copies_for_cutlass)

    @cached_property
    def _copies_for_cutlass(self) -> Quantity:
        """The inputs and outputs of the experts that NVFP4's own kernels copy; 0 for other dtypes.

        They are held three times for each expert that a token picks: inputs by expert, outputs by
        token, and these times the router's weights (run_cutlass_moe_fp4 in experts/cutlass_moe.py).
        """
        mlp = self._mixture
        whole = self.facts.whole
        stored = (whole.experts_dtype, whole.weights_dtype, self.facts.weights_dtype)
        if mlp is None or "fp4" not in stored:
            return quantity(0)
        d_model = int(mlp.d_latent or whole.main.d_model)
        picked = int(mlp.n_experts_per_token or 1)
        return quantity(
            3
            * self.tokens
            * symbol("picked", picked * d_model, "inputs of all experts")
            * self.width
        )

    # What is allocated before the pass

    def received(self) -> RuntimePart | None:
        """Return what a later pipeline stage receives: hidden states and the residual."""
        if self.facts.first:
            return None
        size = quantity(2 * self.tokens * self.d_model * self.width)
        return RuntimePart(
            "received",
            "tokens of the stage before",
            int(size),
            size,
            int(size),
            f"{_SOURCE}; {RUNS}",
        )

    def balancer(self) -> RuntimePart | None:
        """Return what EPLB holds: a buffer for the experts of one layer, and 4 bytes per layer and
        expert of each of its 1,000 steps; None without it.

        Versions that count only the weights and the pass itself leave it out (add_model in
        distributed/eplb/eplb_state.py; window_size in config/parallel.py).
        """
        mlp = self._mixture
        args = self._args
        is_counted = self._version.holds_eplb_buffer and self._version.counts_what_is_held
        if mlp is None or not (args.enable_eplb and is_counted):
            return None
        dtype_name = self.facts.whole.experts_dtype or self.facts.weights_dtype
        weights = sum(int(matrix.weights) for matrix in mlp.expert(self.facts.whole.main.d_model))
        of_expert = symbol(
            "expert_bytes", dtype(dtype_name).row_bytes(weights), "bytes of one expert"
        )
        here = symbol("n_experts", mlp.n_experts or 0, "experts of a layer on one device")
        experts = symbol(
            "n_physical", mlp.n_routed + (args.num_redundant_experts or 0), "experts and copies"
        )
        with_experts = [
            layers.count for layers in self.layers if getattr(layers.mlp, "n_experts", 0)
        ]
        count_of = symbol("L", sum(with_experts), "layers with experts")
        steps = symbol("window", _EPLB_WINDOW, "steps whose loads are recorded")
        size = quantity(here * of_expert + steps * count_of * experts * 4)
        source = f"vLLM {self._version.name}, distributed/eplb/eplb_state.py"
        low = int(size) * 9 // 10
        return RuntimePart("eplb", "EPLB's buffer of experts", low, size, int(size), source)

    def sampler_states(self) -> RuntimePart | None:
        """Return the second runner's counts of prompt and output tokens: 4 bytes and a bit per
        logit.
        """
        facts = self.facts
        if not self._sampled or not self._version.counts_sampler_states(self.v2_runner):
            return None
        sequences = symbol("max_num_seqs", facts.limits.max_num_seqs, "sequences of one step")
        vocab = symbol("V", self._sampled, "tokens of the vocabulary")
        size = quantity(sequences * vocab * 33 // 8)
        is_known = self._args.max_num_seqs is not None or expert_ranks(facts) > 1
        low = int(size) if is_known else 0
        source = f"vLLM {self._version.name}, v1/worker/gpu/sample/penalties.py"
        return RuntimePart(
            "sampler_states", "sampler's counts of tokens", low, size, int(size), source
        )


def expert_ranks(facts: RuntimeFacts[VllmArgs]) -> int:
    """Return the data-parallel ranks whose tokens the experts have; 1 without experts."""
    return max((getattr(layers.mlp, "ranks", 1) for _, layers in facts.whole.groups()), default=1)


def _dense_width(layers: Layers) -> int:
    """Return the width of a layer's MLP, or of its shared experts."""
    if layers.mlp is None:
        return 0
    if not layers.mlp.n_experts:
        return int(layers.mlp.d_ff)
    return int(layers.mlp.d_ff_shared or (layers.mlp.n_shared_experts or 0) * layers.mlp.d_ff)
