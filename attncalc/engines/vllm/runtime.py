"""What vLLM keeps on a GPU besides weights and cache, by parts.

vLLM measures it: it runs the model once on max_num_batched_tokens random tokens, samples from max_num_seqs of them, and
subtracts the peak from its share of the memory (determine_available_memory in v1/worker/gpu_worker.py). The formulas
follow that pass. They rest on the sources of 0.9.2 to 0.33.0, on 84 controlled starts of 0.15 to 0.20 on an H100
(llm-d-incubation/llm-d-planner, pull request 205) and on some 60 public logs; `versions.py` lists what changed.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from ...attention.latent import Latent
from ...mlp import Mlp
from ...model import Layers, plural
from ...quantity import Quantity, maximum, minimum, named, quantity, symbol
from ...units import BYTES, GIB, count, human
from ..runtime import RuntimeFacts, RuntimeMemory, RuntimePart, Term
from .encoder import divides_tower, encoder, with_limits_of_profile
from .held_weights import absorbed_elements
from .options import VllmArgs
from .versions import VllmVersion, vllm_version

_SOURCE = "v1/worker/gpu_model_runner.py, profile_run"
_MEASURED = "measured: 84 starts on an H100 and public logs"
_RUNS = "84 controlled starts on an H100"
MIB = 2**20
_HOPPER = (9, 0)
_FIRST_GRAPH, _FIRST_GRAPH_ELSEWHERE = 130 * MIB, 50 * MIB
_FLASHINFER_WORKSPACE = 394 * MIB
"""VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE (envs.py)."""
_GRAPHS_ON_AMD = 5
"""How many times as much a HIP graph takes as a CUDA graph."""
_SPLITS, _ROWS = 32, 512
_UNQUANTIZED = ("bf16", "fp16", "fp32")
_LARGEST_DEFAULT_SHARE = 92
"""Percent: the default of gpu_memory_utilization from 0.20 on."""
_FEWEST_TOKENS = 2048
"""The smallest default of max_num_batched_tokens (arg_utils.py)."""


class _Peak(NamedTuple):
    """The largest tensors of the profile's two steps.

    Attributes:
        forward: bytes of the forward pass.
        sampler: bytes of the sampler; 0 on a stage without the logits.
        experts: bytes of the experts' workspace.
        compiler: bytes of the inputs with which the compiler benchmarks kernels.
    """

    forward: Quantity
    sampler: Quantity
    experts: Quantity
    compiler: Quantity


def runtime(facts: RuntimeFacts[VllmArgs]) -> RuntimeMemory:
    """Return what vLLM keeps in its share of one GPU besides weights and cache."""
    version = vllm_version(facts.args.engine_version)
    notes = _notes(facts)
    facts = with_limits_of_profile(facts, version)
    v2_runner = _uses_v2_runner(facts, version)
    peak = _Peak(
        _forward(facts, version),
        _sampler(facts, version, v2_runner=v2_runner),
        _experts(facts, version),
        _compiler(facts, version),
    )
    passes = _activations(facts, version, peak), _experts_workspace(facts, version, peak)
    items = encoder(facts, version, passes, _width(facts))
    parts = [
        *passes,
        items.part if items else None,
        _received(facts),
        _sampler_states(facts, version, v2_runner=v2_runner),
        _outside_torch(facts, version),
        _graphs(facts, version, v2_runner=v2_runner),
    ]
    terms: list[Term] = [
        ("forward_bytes", "tensors of the forward pass", peak.forward),
        ("sampler_bytes", "tensors of the sampler", peak.sampler),
        ("experts_bytes", "workspace of the experts", peak.experts),
        ("compiler_bytes", "inputs of the kernels that the compiler benchmarks", peak.compiler),
        *(items.terms if items else ()),
    ]
    return RuntimeMemory(
        tuple(part for part in parts if part is not None),
        notes,
        tuple(term for term in terms if term[2]),
    )


def _uses_v2_runner(facts: RuntimeFacts[VllmArgs], version: VllmVersion) -> bool:
    layers = [group for _, group in facts.whole.groups()]
    return version.uses_v2_runner(
        facts.args.model_type,
        dense=not any(group.mlp and group.mlp.n_experts for group in layers),
        hybrid=any(spec.per == "sequence" for group in layers for spec in group.cache()),
    )


# The profile's pass


def _activations(facts: RuntimeFacts[VllmArgs], version: VllmVersion, peak: _Peak) -> RuntimePart:
    """Return the largest of forward pass, sampler and compiler: each is freed before the next."""
    forward = named(peak.forward, "forward_bytes", "bytes of the tensors of a forward pass")
    if not version.keeps_experts_workspace and peak.experts:
        forward = forward + named(peak.experts, "experts_bytes", "bytes of the workspace of the experts")
    rows, tokens = min(facts.limits), facts.limits.tokens
    steps = [(forward, f"forward pass, {plural(tokens, 'token')}")]
    if peak.sampler:
        sampler = named(peak.sampler, "sampler_bytes", "bytes of the sampler's tensors")
        steps.append((sampler, f"sampler, {plural(rows, 'sequence')}"))
    if peak.compiler and version.profiles_cold_compiler:
        compiler = named(peak.compiler, "compiler_bytes", "bytes of the inputs of a kernel that is benchmarked")
        steps.append((compiler, "compiler, which copies the embedding"))
    larger, label = quantity(steps[0][0]), steps[0][1]
    for size, name in steps[1:]:
        label = name if size > larger else label
        larger = quantity(maximum(larger, size))
    return RuntimePart(
        "activations",
        label,
        _least_activations(facts, version, peak),
        larger,
        _most_activations(facts, version, peak) + (int(larger) if version.splits_workspaces else 0),
        f"vLLM {version.name}, {_SOURCE}; {_RUNS}",
    )


def _least_activations(facts: RuntimeFacts[VllmArgs], version: VllmVersion, peak: _Peak) -> int:
    """Return the low end: without --max-num-seqs that of a server that is started with few sequences."""
    sampler = 0 if facts.args.max_num_seqs is None else int(peak.sampler)
    forward = _forward_with_experts(_with_tokens(facts, _FEWEST_TOKENS), version) - _margin(facts)
    return max(0, max(forward, sampler) - GIB // 10)


def _most_activations(facts: RuntimeFacts[VllmArgs], version: VllmVersion, peak: _Peak) -> int:
    """Return the high end: without --max-num-batched-tokens that of the class LLM, which has larger defaults."""
    forward = _forward_with_experts(_with_tokens(facts, _llm_tokens(facts)), version) + _margin(facts)
    known = facts.args.max_num_seqs is not None
    autotuning = GIB if version.autotunes_deltas and _has_delta_nets(facts) else 0
    steps = max(forward, int(peak.sampler)) + GIB * (15 if known else 30) // 100
    return max(steps, int(peak.compiler) + GIB // 20 if peak.compiler else 0) + autotuning


def _has_delta_nets(facts: RuntimeFacts[VllmArgs]) -> bool:
    """Return whether layers run kernels that are tuned during the profile: those of gated delta nets and of KDA.

    Three logs of an RTX 5090, where nothing was compiled before, have 1 to 2 GiB more than the formulas.
    """
    return any(layers.attention.label in ("GDN", "KDA") for _, layers in facts.whole.groups())


def _forward_with_experts(facts: RuntimeFacts[VllmArgs], version: VllmVersion) -> int:
    experts = 0 if version.keeps_experts_workspace else int(_experts(facts, version))
    return int(_forward(facts, version)) + experts


def _margin(facts: RuntimeFacts[VllmArgs]) -> int:
    """Return 0.75 d_model per token: the widths that are held at once are 3 to 4.5 times d_model by model."""
    return facts.whole.main.d_model * facts.limits.tokens * facts.args.dtype.bits // 8 * 3 // 4


def _with_tokens(facts: RuntimeFacts[VllmArgs], tokens: int) -> RuntimeFacts[VllmArgs]:
    """Return the facts with that many tokens per step, if their number is only assumed."""
    if facts.args.max_num_batched_tokens is not None:
        return facts
    return dataclasses.replace(facts, limits=facts.limits._replace(tokens=tokens))


def _llm_tokens(facts: RuntimeFacts[VllmArgs]) -> int:
    """Return the default of the class LLM: 8,192 tokens where the server has 2,048, else 16,384 (arg_utils.py)."""
    return max(facts.limits.tokens, 8192 if facts.limits.tokens <= _FEWEST_TOKENS else 16384)


def _sampler(facts: RuntimeFacts[VllmArgs], version: VllmVersion, *, v2_runner: bool) -> Quantity:
    """Return the bytes of the sampler's tensors: R V (bytes + scratch), and hidden states of N and R tokens.

    The logits of all tensor-parallel devices are gathered on each of them, so that tp does not divide V.
    """
    if not facts.last or not facts.whole.vocab_size:
        return quantity(0)
    tokens, width = _tokens(facts), _width(facts)
    d_model = symbol("d_model", facts.whole.main.d_model, "width of the model")
    rows = minimum(tokens, symbol("max_num_seqs", facts.limits.sequences, "sequences of one step"))
    vocab = symbol("V", facts.whole.vocab_size, "tokens of the vocabulary")
    scratch = symbol("scratch", version.sampler_scratch(v2_runner), "bytes per logit that sampling takes")
    logits = rows * vocab * (width + scratch)
    hidden = (tokens + 2 * rows) * d_model * width
    total: int = logits + hidden + _matmul_workspace(facts)
    if _has_top_k_buffer(facts, version, v2_runner=v2_runner):
        multiprocessors = symbol("multiprocessors", facts.gpu.multiprocessors, "streaming multiprocessors")
        total = total + 4 * multiprocessors * vocab
    return quantity(total)


def _has_top_k_buffer(facts: RuntimeFacts[VllmArgs], version: VllmVersion, *, v2_runner: bool) -> bool:
    if not version.has_top_k_buffer or not facts.gpu.multiprocessors or v2_runner:
        return False
    capability = facts.gpu.compute_capability
    has_flashinfer = capability is not None and capability >= (8, 0)
    return not (version.samples_with_flashinfer and has_flashinfer)


def _forward(facts: RuntimeFacts[VllmArgs], version: VllmVersion) -> Quantity:
    """Return the bytes of the forward pass: the widest part of a layer, and 3.75 d_model beside it.

    An MLP holds gate, up and their product; attention holds q, k, v and its output. 3.75 is fitted on models with
    d_model 4,096; other models have 3 to 4.5. With fp8 or int8 weights the product is quantized, 1 byte each.
    """
    tokens, width = _tokens(facts), _width(facts)
    d_model = symbol("d_model", facts.whole.main.d_model, "width of the model")
    groups = [layers for _, layers in facts.model.plain().groups()]
    mlp_width = max(map(_dense_width, groups))
    heads_width = max(map(_heads_width, groups))
    gated = 3 if any(layers.mlp and layers.mlp.gated for layers in groups) else 2
    d_ff = symbol("d_ff", mlp_width, "width of the MLP, or of the shared experts, on one device")
    if gated * mlp_width >= heads_width:
        widest = gated * d_ff
    else:
        widest = symbol("heads", heads_width, "elements of q, k, v and attention's output on one device")
    result = tokens * width * widest + tokens * width * d_model * 15 // 4 + _matmul_workspace(facts)
    if facts.weights_dtype in ("fp8", "int8") and mlp_width:
        result = result + tokens * d_ff
    expanded = maximum(_expanded_latents(facts, version), _indexer_logits(facts, version))
    return quantity(result + expanded if expanded else result)


def _compiler(facts: RuntimeFacts[VllmArgs], version: VllmVersion) -> Quantity:
    """Return the bytes of a copy of the embedding, with which Inductor benchmarks the kernel that looks tokens up.

    vLLM lets it benchmark kernels before it fuses them side by side (benchmark_combo_kernel in config/compilation.py),
    with random tensors of the sizes of a kernel's inputs (codegen_kernel_benchmark in torch/_inductor). Compiling
    happens inside the profile, so that the copy counts until the compiled graphs are cached: two logs have 0.91 and
    1.19 GiB more than the forward pass, as computed, and one of them 0.95 less at its next start. A model with towers
    looks tokens up outside its graph.
    """
    vocab = facts.whole.vocab_size
    if not vocab or not facts.first or facts.whole.towers or facts.args.enforce_eager or not version.benchmarks_kernels:
        return quantity(0)
    rows = symbol("V_device", -(-vocab // facts.args.tp), "tokens of the embedding on one device")
    d_model = symbol("d_model", facts.whole.main.d_model, "width of the model")
    return quantity((rows + _tokens(facts)) * d_model * _width(facts))


def _has_indexer(facts: RuntimeFacts[VllmArgs]) -> bool:
    return any(spec.role == "indexer" for _, layers in facts.whole.groups() for spec in layers.cache())


def _indexer_logits(facts: RuntimeFacts[VllmArgs], version: VllmVersion) -> int:
    """Return the bytes of an indexer's logits in the profile; 0 without an indexer (sparse_attn_indexer.py)."""
    if not version.profiles_indexer_logits or not _has_indexer(facts):
        return 0
    return symbol("indexer_logits", 512 * MIB, "bytes of the indexer's logits")


def _gathered_latents(facts: RuntimeFacts[VllmArgs], version: VllmVersion) -> int:
    """Return the workspace into which sparse MLA gathers latents, as many as 5 contexts; 0 without an indexer.

    It lives on in the workspace that the experts use too. Source: get_prefill_workspace_size (flashmla_sparse.py); the
    indexer's own buffer (indexer.py) is sized to fit in it.
    """
    if not version.keeps_experts_workspace or not _has_indexer(facts):
        return 0
    context = symbol("T", facts.context, "tokens of the context")
    kinds = [layers.attention for _, layers in facts.whole.groups() if layers.attention.label == "MLA"]
    latent = max((int(spec.width) for kind in kinds for spec in kind.cache() if spec.role == "latent"), default=576)
    return 5 * context * symbol("latent", latent, "elements of a latent") * 2


def _dense_width(layers: Layers) -> int:
    """Return the width of a layer's MLP, or of its shared experts."""
    if layers.mlp is None:
        return 0
    if not layers.mlp.n_experts:
        return int(layers.mlp.d_ff)
    return int(layers.mlp.d_ff_shared or (layers.mlp.n_shared_experts or 0) * layers.mlp.d_ff)


def _heads_width(layers: Layers) -> int:
    widths = layers.attention.widths()
    return int(
        widths.n_heads * (widths.d_qk + widths.d_v) + widths.n_kv_heads * (widths.d_qk + widths.d_v) + widths.extra
    )


def _expanded_latents(facts: RuntimeFacts[VllmArgs], version: VllmVersion) -> int:
    """Return the bytes of K and V of a chunk of MLA's cached prefix, which the profile allocates; 0 without MLA.

    The chunk has 8 contexts or 4 blocks per sequence, at most 65,536 tokens, and at least a block per sequence.
    Source: determine_chunked_prefill_workspace_size (mla_attention.py).
    """
    kinds = (layers.attention for _, layers in facts.model.plain().groups())
    kind = next((kind for kind in kinds if isinstance(kind, Latent)), None)
    if kind is None or not version.profiles_prefix_of_latents:
        return 0
    block = facts.args.block_size or 64
    sequences = facts.limits.sequences
    chunk = max(min(max(8 * facts.context, 4 * sequences * block), 64 * 1024), sequences * block)
    tokens = symbol("chunk", chunk, "tokens of a cached prefix that are expanded at once")
    heads = symbol("n_heads", int(kind.n_heads), "query heads on one device")
    d_kv = symbol("d_kv", int(kind.d_nope + kind.d_v), "width of K without rope, and of V")
    return tokens * heads * d_kv * _width(facts)


def _experts(facts: RuntimeFacts[VllmArgs], version: VllmVersion) -> Quantity:
    """Return the bytes of the workspace of the experts: what both products write, for each expert that a token picks.

    Source: model_executor/layers/fused_moe/. gpt-oss' experts in MXFP4 have none on Hopper, where Triton's own kernels
    run them.
    """
    mlp = _widest_mixture(facts)
    if mlp is None or (facts.whole.experts_dtype == "mxfp4" and facts.gpu.compute_capability == _HOPPER):
        return quantity(0)
    tokens: int = _tokens(facts)
    if version.largest_experts_chunk is not None:
        tokens = minimum(tokens, symbol("chunk_size", version.largest_experts_chunk, "tokens in one chunk"))
    picked = symbol("n_experts_per_token", mlp.n_experts_per_token or 1, "experts that a token is routed to")
    d_expert = symbol("d_expert", int(mlp.d_ff), "width of one expert on one device")
    d_model = symbol("d_model", int(mlp.d_latent or facts.whole.main.d_model), "width of the model")
    activation = d_expert if version.shares_experts_buffer else maximum(d_expert, d_model)
    return quantity(tokens * picked * (activation + maximum(2 * d_expert, d_model)) * _width(facts))


def _widest_mixture(facts: RuntimeFacts[VllmArgs]) -> Mlp | None:
    """Return the experts of the layers with the widest: all layers share the workspace. None without experts."""
    mixtures = [layers.mlp for _, layers in facts.model.plain().groups() if layers.mlp and layers.mlp.n_experts]
    return max(mixtures, key=lambda mlp: int(mlp.d_ff), default=None)


def _experts_workspace(facts: RuntimeFacts[VllmArgs], version: VllmVersion, peak: _Peak) -> RuntimePart | None:
    """Return the workspace that lives on after the profile: that of the experts, or of sparse MLA if it is larger."""
    gathered = quantity(_gathered_latents(facts, version))
    if gathered > peak.experts:
        source = f"vLLM {version.name}, v1/attention/backends/mla/flashmla_sparse.py"
        size = int(gathered)
        return RuntimePart("gathered_latents", "sparse MLA's workspace", size // 2, gathered, size * 5 // 4, source)
    if not version.keeps_experts_workspace or not peak.experts:
        return None
    low = int(_experts(_with_tokens(facts, _FEWEST_TOKENS), version))
    most = _with_tokens(facts, _llm_tokens(facts))
    high = int(_experts(most, version)) * 5 // 4 + _copies_for_cutlass(most)
    source = f"vLLM {version.name}, model_executor/layers/fused_moe/modular_kernel.py"
    return RuntimePart("experts", "experts' workspace", low * 9 // 10, peak.experts, high, source)


def _copies_for_cutlass(facts: RuntimeFacts[VllmArgs]) -> int:
    """Return the bytes of the inputs and outputs of the experts that NVFP4's own kernels copy; 0 for other dtypes.

    They are held three times for each expert that a token picks (run_cutlass_moe_fp4 in experts/cutlass_moe.py), but
    only with `--moe-backend cutlass`, so that they belong to the high end.
    """
    mlp = _widest_mixture(facts)
    if mlp is None or "fp4" not in (facts.whole.experts_dtype, facts.whole.weights_dtype):
        return 0
    d_model = int(mlp.d_latent or facts.whole.main.d_model)
    return 3 * facts.limits.tokens * int(mlp.n_experts_per_token or 1) * d_model * facts.args.dtype.bits // 8


def _received(facts: RuntimeFacts[VllmArgs]) -> RuntimePart | None:
    """Return what a later pipeline stage receives: hidden states and the residual."""
    if facts.first:
        return None
    d_model = symbol("d_model", facts.whole.main.d_model, "width of the model")
    size = quantity(2 * _tokens(facts) * d_model * _width(facts))
    return RuntimePart("received", "tokens of the stage before", int(size), size, int(size), f"{_SOURCE}; {_RUNS}")


def _sampler_states(facts: RuntimeFacts[VllmArgs], version: VllmVersion, *, v2_runner: bool) -> RuntimePart | None:
    """Return the second runner's counts of prompt and output tokens: 4 bytes and a bit per logit."""
    if not facts.last or not facts.whole.vocab_size or not version.counts_sampler_states(v2_runner):
        return None
    sequences = symbol("max_num_seqs", facts.limits.sequences, "sequences of one step")
    vocab = symbol("V", facts.whole.vocab_size, "tokens of the vocabulary")
    size = quantity(sequences * vocab * 33 // 8)
    source = f"vLLM {version.name}, v1/worker/gpu/sample/penalties.py"
    low = 0 if facts.args.max_num_seqs is None else int(size)
    return RuntimePart("sampler_states", "sampler's counts of tokens", low, size, int(size), source)


# What PyTorch does not allocate, and graphs


def _outside_torch(facts: RuntimeFacts[VllmArgs], version: VllmVersion) -> RuntimePart:
    """Return what is allocated outside PyTorch: libraries, kernels, communication. It is measured, not derived."""
    layers = symbol("L", facts.model.main.n_layers, "layers on this device")
    label = "outside PyTorch: libraries"
    thousandth = GIB // 1000
    link, low, high = _communication(facts, version)
    if link:
        label += ", communication"
        total: int = symbol("libraries", link.base * thousandth, "bytes measured outside PyTorch on one GPU")
        total = total + layers * symbol("per_layer", link.per_layer * GIB // 10000, "bytes measured per layer")
    elif version.profiles_graphs_early and not facts.args.enforce_eager:
        total = symbol("libraries", 225 * thousandth, "bytes measured outside PyTorch on one GPU")
        total = total + layers * symbol("per_layer", 8 * GIB // 10000, "bytes measured per layer")
    else:
        total = symbol("libraries", (100 if version.v0 else 130) * thousandth, "bytes measured outside PyTorch")
    if version.counts_other_processes:
        high += 200 + _gaps(facts, version) // thousandth
    if not _is_measured(facts):
        high += 5000  # what libraries take there is not known; one log, of an MI300X, has 1.4 GiB more than predicted
    size = quantity(total)
    return RuntimePart(
        "outside_torch",
        label,
        int(size) - low * thousandth,
        size,
        int(size) + high * thousandth,
        _MEASURED,
    )


def _gaps(facts: RuntimeFacts[VllmArgs], version: VllmVersion) -> int:
    """Return the most bytes that loading may leave free between tensors, which old versions count as non-torch memory.

    The products of MLA's matrices are computed in the model's dtype or wider, so that each could leave a gap of its own
    size in the allocator's segments. Source: memory_profiling in utils.py, which subtracts the weights and not the
    segments. This is a bound and not an explanation: the only log, of DeepSeek-R1 on 8 H200, has 7.2 GiB, but PyTorch's
    allocator, given the same tensors, keeps gaps of 0.3 GiB. So the expected figure has none.
    """
    if not version.absorbs_products or facts.weights_dtype not in (*_UNQUANTIZED, "fp8"):
        return 0
    model = facts.model.plain()
    elements = sum(layers.count * absorbed_elements(stack, layers) for stack, layers in model.groups())
    return elements * (1 if facts.weights_dtype == "fp8" else 2)


def _is_measured(facts: RuntimeFacts[VllmArgs]) -> bool:
    """Return whether the GPU is of the vendor whose GPUs the formulas were compared with."""
    return facts.gpu.compute_capability is not None or facts.gpu.vendor == "NVIDIA"


class _Link(NamedTuple):
    """What was measured outside PyTorch with tensor parallelism.

    Attributes:
        base: thousandths of a GiB.
        per_layer: ten-thousandths of a GiB per layer.
    """

    base: int
    per_layer: int = 0


def _communication(facts: RuntimeFacts[VllmArgs], version: VllmVersion) -> tuple[_Link | None, int, int]:
    """Return what was measured with tensor parallelism, and its range below and above in thousandths of a GiB.

    Over NVLink 2.05 GiB from 0.15 on (H100, tp 2 and 4). Before, with two GPUs 0.10, 0.74 and 1.38 (H200, H20), with
    four 1.39 (A800), with eight and more 2.1 (A100; 1.8 on AMD GPUs). Over PCIe 0.03 to 0.25 with two GPUs (L40S, RTX
    3090 and 4090), 0.7 with four (RTX PRO 6000).
    """
    tp, gpu = facts.args.tp, facts.gpu
    spread = 700 if tp <= 4 else 1500  # no more than 4 were measured
    if tp == 1:
        return None, 90, 150
    if gpu.nvlink is None:
        return _Link(700), 650, 1500
    if not gpu.nvlink:
        return (_Link(230), 200, 450) if tp == 2 else (_Link(700), 500, 1000)
    if not version.has_symmetric_memory:
        return _Link(740 if tp == 2 else 2100 if version.v0 and tp >= 8 else 1390), 700, spread
    measured = gpu.compute_capability == _HOPPER and tp <= 4 and version.links_were_measured
    return _Link(2050, 6) if tp == 2 else _Link(2080, 16), (100 if measured else 700), (200 if measured else spread)


def _graphs(facts: RuntimeFacts[VllmArgs], version: VllmVersion, *, v2_runner: bool) -> RuntimePart | None:
    """Return vLLM's estimate of its CUDA graphs; None where it does not subtract them.

    There are two kinds: piecewise graphs for prefills, and full ones for decode steps of up to max_num_seqs sequences.
    The estimate is the largest first capture, and the second capture of each kind for every further size
    (profile_cudagraph_memory). On Hopper the first holds the buffer of FlashAttention 3's splits, heads x d_head x 512
    rows x 32 splits in fp32: all logged values agree. The rest is fitted on an H100, off by 0.13 GiB on average and by
    0.7 at worst: a full graph takes (2 + 0.34 L) / 3 MiB, a piecewise one twice that, and a first capture without
    FlashAttention 3 130 MiB, 50 on other GPUs. Layers with more kernels take 0.8 L: MLA, and gpt-oss' experts in Triton
    (three models). Five logs of L40S, RTX PRO 6000 and others are within 0.2 GiB. A further capture counts at least 1
    MiB, the low end of the range.

    With FlashInfer's attention the first capture allocates its workspace: two logs of an RTX 5090 have 0.36 and 0.39
    GiB. On AMD GPUs graphs take far more: an MI300X took 3.9 GiB where the formula for CUDA has 0.7, a log of
    DeepSeek-V4.1 estimates 10 GiB, and vllm-project/vllm pull request 51590 measured 4.7 to 16.9 GiB on 8 MI355X.
    """
    if not version.subtracts_graphs(v2_runner) or facts.args.enforce_eager:
        return None
    sizes = capture_sizes(facts)
    piecewise = symbol("piecewise", len(sizes), "batch sizes with a piecewise CUDA graph")
    decodes = len([size for size in sizes if size <= facts.limits.sequences])
    full = symbol("full", decodes, "batch sizes with a full CUDA graph")
    layers = symbol("L", facts.model.main.n_layers, "layers on this device")
    is_hopper = facts.gpu.compute_capability == _HOPPER
    many_kernels = "MLA" in facts.args.attentions or (is_hopper and facts.whole.experts_dtype == "mxfp4")
    per_layer = symbol("per_layer", MIB * (80 if many_kernels else 34) // 100, "bytes of both graphs per layer")
    full_graph = (2 * MIB + layers * per_layer) // 3
    first: int = symbol("first", _FIRST_GRAPH if is_hopper else _FIRST_GRAPH_ELSEWHERE, "bytes of the first graph")
    if _uses_flashinfer(facts):
        first = symbol("workspace", _FLASHINFER_WORKSPACE, "bytes of FlashInfer's workspace")
    elif is_hopper:
        splits = symbol("splits", _splits_buffer(facts), "bytes of FlashAttention 3's splits") + 4 * MIB
        first = maximum(splits, first)
    graphs = 2 * (piecewise - 1) + full - 1
    if is_amd := facts.gpu.vendor == "AMD":
        graphs = graphs * symbol("hip", _GRAPHS_ON_AMD, "times a CUDA graph that a HIP graph takes")
    size = quantity(first + graphs * full_graph)
    low = (len(sizes) + decodes - 2) * MIB + (_splits_buffer(facts) if is_hopper else 0)
    high = int(size) * 2 if is_amd else int(size) + GIB * 6 // 10
    source = f"vLLM {version.name}, profile_cudagraph_memory; fitted to {_RUNS}"
    return RuntimePart("cuda_graphs", "CUDA graphs", min(low, int(size)), size, high, source)


def _uses_flashinfer(facts: RuntimeFacts[VllmArgs]) -> bool:
    """Return whether attention runs in FlashInfer by default: on compute capability 10, and for fp8 off Hopper.

    FlashAttention 2 has no fp8 cache (_get_backend_priorities in platforms/cuda.py). Gemma 4 has Triton's attention,
    and MLA backends of its own.
    """
    capability = facts.gpu.compute_capability
    if capability is None or "MLA" in facts.args.attentions or (facts.args.model_type or "").startswith("gemma4"):
        return False
    has_fp8_cache = facts.args.kv_dtype.name.startswith("fp8")
    return capability[0] == 10 or (has_fp8_cache and capability >= (8, 0) and capability != _HOPPER)


def _splits_buffer(facts: RuntimeFacts[VllmArgs]) -> int:
    """Return the bytes of FlashAttention 3's partial outputs: 256 MiB for 32 heads of 128."""
    widths = [layers.attention.widths() for _, layers in facts.model.plain().groups()]
    heads = max((int(w.n_heads * w.d_v) for w in widths), default=0)
    return heads * _ROWS * _SPLITS * 4


def capture_sizes(facts: RuntimeFacts[VllmArgs]) -> list[int]:
    """Return the batch sizes that vLLM captures: 1, 2, 4, 8 to 248 by 8, then by 16 up to 2 max_num_seqs and 512.

    Source: _set_cudagraph_sizes (config/vllm.py).
    """
    largest = min(2 * facts.limits.sequences, 512, facts.limits.tokens)
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]
    return [size for size in sizes if size <= largest]


# Notes


def _notes(facts: RuntimeFacts[VllmArgs]) -> tuple[str, ...]:
    """Return which limits are assumed: they decide most of the activations."""
    limits = {
        "--max-num-seqs": (facts.args.max_num_seqs, facts.limits.sequences),
        "--max-num-batched-tokens": (facts.args.max_num_batched_tokens, facts.limits.tokens),
    }
    assumed = [f"{option} {count(default)}" for option, (given, default) in limits.items() if given is None]
    notes = ["The runtime memory is an estimate with a range. --reserve replaces it."]
    if not _is_measured(facts):
        notes.append(
            f"vLLM's runtime memory was compared with logs of NVIDIA GPUs; on {facts.gpu.title} it may be larger."
        )
    if facts.share[0] * 100 > facts.share[1] * _LARGEST_DEFAULT_SHARE and not facts.args.enforce_eager:
        left = facts.gpu.memory - facts.gpu.memory * facts.share[0] // facts.share[1]
        notes.append(
            f"warning: {human(left, BYTES)} are left outside vLLM's share. CUDA graphs and the sampler's first run may "
            "need more than the profile found: 2 of 47 starts at 0.95 on an H100 then ran out of memory."
        )
    notes += [
        f"warning: --tp {facts.args.tp} does not divide the layers of the {tower.name} tower. vLLM may refuse to "
        "start; with --mm-encoder-tp-mode data it has the whole tower on each GPU."
        for tower in facts.whole.towers
        if not divides_tower(facts.args.tp, tower)
    ]
    notes += [
        f"--tp {facts.args.tp} does not divide the {tower.attention.heads} heads of the {tower.name} tower: each GPU "
        "has its attention whole."
        for tower in facts.whole.towers
        if tower.attention and tower.attention.whole and not tower.has_whole_heads(facts.args.tp)
    ]
    if assumed:
        notes.insert(
            0,
            f"{' and '.join(assumed)} {'are' if len(assumed) > 1 else 'is'} assumed, vLLM's default for "
            "this GPU. The runtime memory depends on them.",
        )
    return tuple(notes)


def _tokens(facts: RuntimeFacts[VllmArgs]) -> Quantity:
    return symbol("N", facts.limits.tokens, "max_num_batched_tokens")


def _width(facts: RuntimeFacts[VllmArgs]) -> Quantity:
    return symbol("bytes", facts.args.dtype.bits // 8, "bytes of an activation's element")


def _matmul_workspace(facts: RuntimeFacts[VllmArgs]) -> Quantity:
    """Return cuBLAS' workspace as PyTorch sets it: 32 MiB on Hopper and Blackwell's B200, else 8,320 KiB."""
    large = facts.gpu.compute_capability in (_HOPPER, (10, 0))
    return symbol("workspace", 32 * MIB if large else 8320 * 1024, "bytes of cuBLAS' workspace")
