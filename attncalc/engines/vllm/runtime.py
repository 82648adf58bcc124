"""What vLLM keeps on a GPU besides weights and cache, by parts.

vLLM measures it: it runs the model once on max_num_batched_tokens random tokens, samples from
max_num_seqs of them, and subtracts the peak from its share of the memory
(determine_available_memory in v1/worker/gpu_worker.py). `profile.py` has the formulas of that pass,
and `encoder.py` those of its images. They rest on the sources of 0.9.2 to 0.33.0, on 84 controlled
starts of 0.15 to 0.20 on an H100 (llm-d-incubation/llm-d-planner, pull request 205) and on some 60
public logs; `versions.py` lists what changed.
"""

from collections.abc import Iterator, Sequence

from ...hardware import FREE_OF_UNIFIED
from ...quantity import Quantity, maximum, quantity, symbol
from ...records import NamedTuple
from ...units import BYTES, GIB, MIB, count, human
from ..runtime import ESTIMATE_NOTE, RuntimeFacts, RuntimeMemory, RuntimePart, missed
from .encoder import divides_tower, encoder, with_limits_of_profile
from .held_weights import absorbed_elements
from .options import DEEPEP, VllmArgs
from .profile import HOPPER, RUNS, UNQUANTIZED, Profile, expert_ranks
from .versions import VllmVersion

_MEASURED = "measured: 84 starts on an H100 and public logs"
_FIRST_GRAPH = 130 * MIB
_FIRST_GRAPH_ELSEWHERE = 50 * MIB
# VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE (envs.py).
_FLASHINFER_WORKSPACE = 394 * MIB
# The most bytes that graphs take beyond the estimate on Hopper, or a quarter if that is more: 53
# logs of H100s and H200s have at most 0.71 GiB more, and 0.25 of those that are estimated to take
# more than 1 GiB.
_MORE_ON_HOPPER = GIB * 3 // 4
# How many times as much a HIP graph takes as a CUDA graph.
_GRAPHS_ON_AMD = 5
# How many times the estimate the graphs take that are captured after the cache has its size.
#
# Fifteen logs have 0.3 to 1.8 times, one 3.5. On more than two GPUs without NVLink, where NCCL does
# all communication (CustomAllreduce in distributed/device_communicators/custom_all_reduce.py), 4.5
# times on 4 L40S and 6 on 4 RTX 3090.
_TIMES_LATER = 2
_TIMES_LATER_OF_NCCL = 7
# The compute capabilities of SYMM_MEM_ALL_REDUCE_MAX_SIZES
# (distributed/device_communicators/all_reduce_utils.py).
_SYMMETRIC = (HOPPER, (10, 0), (10, 3))
# The most bytes that a model with towers has beyond its weights when it is loaded.
_TOWERS = GIB * 45 // 100
_SPLITS = 32
_LARGEST_GRAPH = 512
_OF_UNIFIED = (2000, 3400, 6300)
_OF_SEVERAL = (2000, 6400, 11000)
_OF_JETSON = (-3300, 500, 7000)
# Thousandths of a GiB outside PyTorch, least, expected and most. 19 logs of a GB10 with at least
# 0.75 of the memory have 2.24 to 6.01, 11 of them less than 3; five with less have 0.98 to 3.23,
# and one -2.77, beside a server that was starting. Three logs of Jetsons have -3.3 to -1.1. Of
# starts over two GB10s the logs have 5.7 to 8.5.
#
# vLLM subtracts what the host's available memory fell by: MemorySnapshot.measure
# (utils/mem_utils.py) takes psutil's figure for compute capability 8.7, 11.0 and 12.1, and since
# pull request 35356 of April 2026 for every integrated GPU of NVIDIA. So what all programs take or
# free meanwhile counts: one command had 40.61 and 44.03 GiB for the cache within 12 minutes
# (jethac/dgx-spark-hijinks), and a GB10 took 31.6 GiB in one start (eugr/spark-vllm-docker pull
# request 286). The loader InstantTensor takes 4.4 more
# (MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#204). A Jetson frees caches while weights are loaded.
# On a Strix Halo HIP's free memory counts, since RocmPlatform has no is_integrated_gpu (pull
# request 54776): a log has 0.56 GiB.
_BESIDE_OTHERS = (-3000, 2000, 6300)
_BESIDE_KNOWN = (900, 2000, 4000)
_JETSONS = ((8, 7), (11, 0))
# Percent: the default of gpu_memory_utilization from 0.20 on.
_LARGEST_DEFAULT_SHARE = 92
# The bytes between the ends of a part from which on a note names what narrows them.
_WIDE = 3 * GIB


def runtime(facts: RuntimeFacts[VllmArgs]) -> RuntimeMemory:
    """Return what vLLM keeps in its share of one GPU besides weights and cache."""
    profile = Profile(with_limits_of_profile(facts))
    passes = [part for part in (profile.activations(), profile.workspace()) if part]
    items, terms = encoder(profile.facts, passes) or (None, ())
    found = [
        *passes,
        items,
        profile.received(),
        profile.sampler_states(),
        profile.balancer(),
        profile.exchange(),
        _outside_torch(profile.facts),
        _loading(profile.facts),
    ]
    graphs = _graphs(profile)
    later = None
    version = facts.args.version
    is_subtracted = version.subtracts_graphs(profile.v2_runner, facts.args.estimate_cudagraphs)
    if facts.gpu.vendor == "AMD" and not version.profiles_graphs_of_amd:
        is_subtracted = False
    # without a cache nothing is measured, and all of the GPU is there for them
    if is_subtracted or facts.args.without_cache:
        found.append(graphs)
    elif graphs:
        later = _captured_later(facts, graphs)
    parts = tuple(part for part in found if part)
    numerator, denominator = facts.share
    outside_share = facts.gpu.memory * (denominator - numerator) // denominator
    room = outside_share - (facts.gpu.other_memory or 0) + int(passes[0].expected)
    # the sampler runs again after them (compile_or_warm_up_model in gpu_worker.py)
    if not facts.args.version.v0:
        room -= int(profile.sampler)
    return RuntimeMemory(
        parts,
        (
            *_notes(facts),
            *profile.notes(),
            *profile.exchange_notes(),
            *_range_notes(profile.facts, parts),
        ),
        tuple(term for term in (*profile.terms(), *terms) if term[2]),
        outside=(later,) if later else (),
        room_outside=room if later else None,
        missed=0 if _is_controlled(facts) else missed(facts),
    )


class _Link(NamedTuple):
    """What was measured outside PyTorch with tensor parallelism, in thousandths of a GiB."""

    base: int  # without layers
    below: int  # how much less there may be
    above: int  # how much more there may be
    per_layer: int = 0  # ten-thousandths of a GiB per layer


def _range_of_unified(facts: RuntimeFacts[VllmArgs], link: _Link | None) -> tuple[int, int, int]:
    """Return the thousandths of a GiB by which a unified memory falls: least, expected, most."""
    if facts.gpu.compute_capability in _JETSONS:
        return _OF_JETSON
    if _is_beside_others(facts):
        return _BESIDE_OTHERS if facts.gpu.other_memory is None else _BESIDE_KNOWN
    return _OF_SEVERAL if link else _OF_UNIFIED


class _Libraries(NamedTuple):
    """What libraries, kernels and communication allocate; thousandths of a GiB if not bytes."""

    size: int  # bytes that are expected, with their formula
    below: int = 120  # how much less was measured
    above: int = 350  # how much more was measured
    least: int = 0  # the lower bound: below 0 if the memory of the host may grow meanwhile
    label: str = "outside PyTorch: libraries"


def _outside_torch(facts: RuntimeFacts[VllmArgs]) -> RuntimePart:
    """Return what is allocated outside PyTorch: libraries, kernels, communication. It is measured,
    not derived.
    """
    version = facts.args.version
    thousandth = GIB // 1000
    link = _link(facts)
    # without a cache nothing is subtracted
    if facts.gpu.counts_host_memory and not facts.args.without_cache:
        libraries = _libraries_of_unified(facts, link)
    elif link:
        libraries = _linked_libraries(facts, link)
    else:
        libraries = _libraries_of_one_gpu(facts)
    total = libraries.size
    low = libraries.below
    high = libraries.above
    # the process' own context too: four logs have 0.22 to 0.55 GiB more
    if version.counts_other_processes or facts.args.without_cache:
        high += 200 + _gaps(facts) // thousandth
        if not version.v0:
            low += 200
            total = total + symbol("context", 400 * thousandth, "bytes of the CUDA context")
    # a log of a Strix Halo has 0.56 GiB, and seven of AMD's cards suggest 0.4 to 1.6
    if not _is_measured(facts):
        high += 1200
    size = quantity(total)
    return RuntimePart(
        "outside_torch",
        libraries.label,
        max(min(0, libraries.least) * thousandth, int(size) - low * thousandth),
        size,
        int(size) + high * thousandth,
        _MEASURED,
    )


def _libraries_of_unified(facts: RuntimeFacts[VllmArgs], link: _Link | None) -> _Libraries:
    """Return what the libraries take of a memory that the host shares."""
    thousandth = GIB // 1000
    least, expected, most = _range_of_unified(facts, link)
    size = symbol("libraries", expected * thousandth, "bytes by which the host's free memory falls")
    above = most - expected
    if link:
        size = size + link.base * thousandth
        above += link.above
    label = "outside PyTorch: libraries, the host"
    return _Libraries(size, expected - least, above, least, label)


def _linked_libraries(facts: RuntimeFacts[VllmArgs], link: _Link) -> _Libraries:
    """Return what libraries and communication take of each of several GPUs."""
    layers = symbol("L", facts.model.main.n_layers, "layers on this device")
    base = symbol(
        "libraries", link.base * (GIB // 1000), "bytes measured outside PyTorch on one GPU"
    )
    per_layer = symbol("per_layer", link.per_layer * GIB // 10000, "bytes measured per layer")
    label = "outside PyTorch: libraries, communication"
    return _Libraries(base + layers * per_layer, link.below, link.above, label=label)


def _libraries_of_one_gpu(facts: RuntimeFacts[VllmArgs]) -> _Libraries:
    version = facts.args.version
    thousandth = GIB // 1000
    if version.profiles_graphs_early and not facts.args.enforce_eager:
        layers = symbol("L", facts.model.main.n_layers, "layers on this device")
        base = symbol("libraries", 225 * thousandth, "bytes measured outside PyTorch on one GPU")
        per_layer = symbol("per_layer", 8 * GIB // 10000, "bytes measured per layer")
        return _Libraries(base + layers * per_layer)
    below = 120
    expected = 100 if version.v0 else 130
    if facts.gpu.vendor == "AMD":
        below = 430
        expected = 560
    above = 350
    if facts.gpu.compute_capability == HOPPER:
        above = 220  # 33 logs have at most 0.2 GiB more
        if version.holds_more_on_hopper:
            expected = 220
    size = symbol("libraries", expected * thousandth, "bytes measured outside PyTorch")
    return _Libraries(size, below, above)


def _is_beside_others(facts: RuntimeFacts[VllmArgs]) -> bool:
    """Return whether the share of unified memory leaves room for other programs, which may end or
    grow meanwhile.
    """
    return facts.gpu.counts_host_memory and facts.share[0] * 4 < facts.share[1] * 3


def _loading(facts: RuntimeFacts[VllmArgs]) -> RuntimePart | None:
    """Return what loading may take beyond the weights, of which vLLM counts the peak; None if they
    are plain.

    Quantized weights are packed anew layer by layer, so that a layer is there twice for a while: 44
    of 46 logs have at most 1.1 layers more. MXFP4 is not packed, as three logs of gpt-oss show. Of
    models with towers 27 logs have 0.1 GiB less to 0.42 more, of others at most 0.12. Source:
    DeviceMemoryProfiler in utils/mem_utils.py, which takes max_memory_allocated.
    """
    is_packed = facts.weights_dtype not in (*UNQUANTIZED, "mxfp4")
    layers = facts.weights * 6 // (5 * facts.model.main.n_layers) if is_packed else 0
    high = max(layers, _TOWERS if facts.whole.towers else 0)
    source = f"{_MEASURED}; utils/mem_utils.py"
    if high:
        return RuntimePart("loading", "left from loading", 0, Quantity(0), high, source)
    return None


def _gaps(facts: RuntimeFacts[VllmArgs]) -> int:
    """Return the most bytes that loading may leave free between tensors, which old versions count
    as non-torch memory.

    The products of MLA's matrices are computed in the model's dtype or wider, so that each could
    leave a gap of its own size in the allocator's segments. Source: memory_profiling in utils.py,
    which subtracts the weights and not the segments. This is a bound and not an explanation: the
    only log, of DeepSeek-R1 on 8 H200, has 7.2 GiB, but PyTorch's allocator, given the same
    tensors, keeps gaps of 0.3 GiB. So the expected figure has none.
    """
    if not facts.args.version.absorbs_products or facts.weights_dtype not in (*UNQUANTIZED, "fp8"):
        return 0
    model = facts.model.plain()
    elements = sum(
        layers.count * absorbed_elements(stack, layers) for stack, layers in model.groups()
    )
    return elements * (1 if facts.weights_dtype == "fp8" else 2)


def _is_measured(facts: RuntimeFacts[VllmArgs]) -> bool:
    """Return whether the GPU is of the vendor whose GPUs the formulas were compared with."""
    return facts.gpu.compute_capability is not None or facts.gpu.vendor == "NVIDIA"


def _is_controlled(facts: RuntimeFacts[VllmArgs]) -> bool:
    """Return whether the controlled starts, of 0.15 to 0.20 on up to four H100s, are of such a
    version and GPU.
    """
    version = facts.args.version
    devices = facts.args.tp * facts.args.pp
    is_version = version.links_take_more and version.links_were_measured
    return is_version and facts.gpu.compute_capability == HOPPER and devices <= 4


def _link(facts: RuntimeFacts[VllmArgs]) -> _Link | None:
    """Return what communication takes, with the libraries; None on one device.

    Over NVLink 2.05 GiB from 0.15 on (H100, tp 2 and 4), on GPUs with symmetric memory; no log has
    it off, so that the range then has 1.4 less. Two logs of 8 GPUs leave at most 0.6 (H200, 0.19)
    and 1.1 (H100, 0.31). Three of H100s before 0.10.2 have 2.25 to 2.35 with four and eight. On
    others, and before, 0.10, 0.74 and 1.38 with two (A100, H200, H20), 0.1 and 1.39 with four
    (A100, A800), 2.1 with eight and more (A100; 1.8 on AMD GPUs). Over PCIe 0.03 to 0.3 with two
    GPUs (L40S, RTX 3090 and 4090, GH200, H200 NVL). With more, up to 0.20, -0.2 to 0.2 (eight logs
    of RTX 3090, L40S and RTX PRO 6000), and 0.85 and 0.97 from 0.27 on (RTX PRO 6000, L4).

    Data-parallel ranks that divide experts have a communicator of their own and one for the experts
    beside the world's and that of tp, and up to 0.10 one to broadcast; the figures above are of
    two. A log of 16 ranks on GB300 has 2.36, and two starts of 8 ranks of 0.10 on H20 about 3.9.

    The custom all-reduce is a small part of it: two buffers of 8 MiB and a table of 8
    (custom_all_reduce.py). Without P2P, or with more than two GPUs over PCIe, vLLM does not start
    it; the range includes both.
    """
    version = facts.args.version
    gpu = facts.gpu
    ranks = expert_ranks(facts)
    tp = facts.args.tp * ranks
    if tp == 1:
        return None
    if not gpu.nvlink:
        return _link_over_pcie(tp, version, is_known=gpu.nvlink is not None)
    if ranks > 1:
        communicators = 3
        if facts.args.tp > 1:
            communicators += 1
        if version.broadcasts_to_experts:
            communicators += 1
        base = (740 if tp == 2 else 1390) * communicators // 2
        return _Link(base, base // 2, 2200)
    if version.links_take_more and gpu.compute_capability in _SYMMETRIC:
        return _link_of_symmetric_memory(facts)
    above = 700 if tp <= 4 else 1500  # no more than 4 were measured
    if tp > 2 and version.turns_cumem_off and gpu.compute_capability == HOPPER:
        return _Link(2250, 600, above)
    base = 740
    if tp > 2:
        base = 2100 if version.v0 and tp >= 8 else 1390
    return _Link(base, base - 40, above)


def _link_of_symmetric_memory(facts: RuntimeFacts[VllmArgs]) -> _Link:
    tp = facts.args.tp
    if tp > 4:
        return _Link(1390, 1300, 2200)
    below = 1400
    above = 700
    if _is_controlled(facts) and facts.args.allreduce_symm_mem is not False:
        below = 100
        above = 200
    if tp == 2:
        return _Link(2050, below, above, 6)
    return _Link(2080, below, above, 16)


def _link_over_pcie(tp: int, version: VllmVersion, *, is_known: bool) -> _Link:
    """Return what communication over PCIe takes; `is_known` is whether the GPU is known to have no
    NVLink.
    """
    base = 230
    above = 450
    if tp > 2:
        base = version.communication_over_pcie
        above = 900
    if not is_known:
        above = 2200 - base
    return _Link(base, base - 50, above)


def _graphs(profile: Profile) -> RuntimePart | None:
    """Return vLLM's estimate of its CUDA graphs; None without graphs.

    There are two kinds: piecewise graphs for prefills, and full ones for decode steps of up to
    max_num_seqs sequences. The estimate is the largest first capture, and the second capture of
    each kind for every further size (profile_cudagraph_memory). On Hopper the first holds the
    buffer of FlashAttention 3's splits, heads x d_head x rows x 32 splits in fp32, where the rows
    are those of the largest decode step: all logged values agree, with 512. The rest is fitted on
    an H100, off by 0.13 GiB on average and by 0.7 at worst:
    a full graph takes (2 + 0.34 L) / 3 MiB, a piecewise one twice that, and a first capture without
    FlashAttention 3 130 MiB, 50 on other GPUs. Layers with more kernels take 0.8 L: MLA, and
    gpt-oss' experts in Triton (three models). Eight logs of L40S, RTX PRO 6000 and others are
    within 0.2 GiB; a GB10 and a Strix Halo took 1.8 and 1.4 times as much. A server with few
    sequences has little more than the first capture.

    With FlashInfer's attention the first capture allocates its workspace: two logs of an RTX 5090
    have 0.36 and 0.39 GiB. On AMD's GPUs with memory of their own graphs take far more: an MI300X
    took 3.9 GiB where the formula for CUDA has 0.7, a log of DeepSeek-V4.1 estimates 10 GiB, and
    vllm-project/vllm pull request 51590 measured 4.7 to 16.9 GiB on 8 MI355X.
    """
    facts = profile.facts
    version = profile.facts.args.version
    if facts.args.enforce_eager:
        return None
    sizes = capture_sizes(facts)
    # one graph with adapters and one without (_get_lora_cases in cudagraph_dispatcher.py)
    if facts.args.enable_lora:
        sizes = [*sizes, *sizes]
    piecewise = symbol("piecewise", len(sizes), "batch sizes with a piecewise CUDA graph")
    decodes = 0
    if not facts.args.pools:  # "Pooling models do not support full cudagraphs" (config/vllm.py)
        decodes = len([size for size in sizes if size <= facts.limits.max_num_seqs])
    full = symbol("full", decodes, "batch sizes with a full CUDA graph")
    layers = symbol("L", facts.model.main.n_layers, "layers on this device")
    mib_per_layer = 34  # hundredths
    is_hopper = facts.gpu.compute_capability == HOPPER
    if "MLA" in facts.args.attentions or (is_hopper and facts.whole.experts_dtype == "mxfp4"):
        mib_per_layer = 80
    per_layer = symbol("per_layer", MIB * mib_per_layer // 100, "bytes of both graphs per layer")
    full_graph = (2 * MIB + layers * per_layer) // 3
    first = _first_graph(profile)
    graphs = 2 * (piecewise - 1)
    if decodes:
        graphs = graphs + full - 1
    if facts.args.max_num_seqs or expert_ranks(facts) > 1:
        low = int(first + graphs * full_graph) * 2 // 5
    else:
        low = int(first) // 2
    is_amd = facts.gpu.vendor == "AMD" and not facts.gpu.shares_with_host
    if is_amd:
        graphs = graphs * symbol("hip", _GRAPHS_ON_AMD, "times a CUDA graph that a HIP graph takes")
    elif facts.gpu.shares_with_host:
        graphs = graphs * 3 // 2
    size = quantity(first + graphs * full_graph)
    high = _most_of_graphs(facts, int(size))
    source = f"vLLM {version.name}, profile_cudagraph_memory; fitted to {RUNS}"
    return RuntimePart("cuda_graphs", "CUDA graphs", min(low, int(size)), size, high, source)


def _most_of_graphs(facts: RuntimeFacts[VllmArgs], size: int) -> int:
    """Return the most bytes of graphs that are estimated to take `size`."""
    if facts.gpu.vendor == "AMD" and not facts.gpu.shares_with_host:
        return size * 2
    more = size * 4 // 5
    if facts.gpu.compute_capability == HOPPER and not _has_states(facts):
        more = min(more, max(_MORE_ON_HOPPER, size // 4))
    return size + max(GIB * 3 // 10, more)


def _has_states(facts: RuntimeFacts[VllmArgs]) -> bool:
    """Return whether a layer has recurrent states: the estimate of graphs then has more of the
    first capture, from 0.26 on (vllm-project/vllm issue 50780).
    """
    return any(
        cached.per == "sequence"
        for _, layers in facts.whole.groups()
        for cached in layers.attention.cache()
    )


def _first_graph(profile: Profile) -> int:
    """Return the bytes of the first capture, with FlashInfer's workspace or the buffer of
    FlashAttention 3's splits.
    """
    facts = profile.facts
    meaning = "bytes of the first graph"
    if _uses_flashinfer(facts):
        workspace = facts.args.flashinfer_workspace_buffer_size or _FLASHINFER_WORKSPACE
        return symbol("workspace", workspace, "bytes of FlashInfer's workspace")
    if facts.gpu.compute_capability != HOPPER:
        return symbol("first", _FIRST_GRAPH_ELSEWHERE, meaning)
    splits = symbol("splits", _splits_buffer(profile), "bytes of FlashAttention 3's splits")
    return maximum(splits + 4 * MIB, symbol("first", _FIRST_GRAPH, meaning))


def _captured_later(facts: RuntimeFacts[VllmArgs], graphs: RuntimePart) -> RuntimePart:
    """Return the graphs of a version that does not subtract them: they must fit outside its
    share.
    """
    has_nccl_only = facts.args.tp > 2 and facts.gpu.compute_capability and not facts.gpu.nvlink
    high = int(graphs.expected) * (_TIMES_LATER_OF_NCCL if has_nccl_only else _TIMES_LATER)
    return graphs._replace(
        name="captured_graphs", label="CUDA graphs, captured later", high=max(high, graphs.high)
    )


def _uses_flashinfer(facts: RuntimeFacts[VllmArgs]) -> bool:
    """Return whether attention runs in FlashInfer by default: on compute capability 10, and for fp8
    off Hopper.

    FlashAttention 2 has no fp8 cache (_get_backend_priorities in platforms/cuda.py). Gemma 4 has
    Triton's attention, and MLA backends of its own.
    """
    capability = facts.gpu.compute_capability
    if (
        capability is None
        or "MLA" in facts.args.attentions
        or (facts.args.model_type or "").startswith("gemma4")
    ):
        return False
    has_fp8_cache = facts.args.kv_dtype.name.startswith("fp8")
    return capability[0] == 10 or (has_fp8_cache and capability >= (8, 0) and capability != HOPPER)


def _splits_buffer(profile: Profile) -> int:
    """Return the bytes of FlashAttention 3's partial outputs: 256 MiB for 32 heads of 128 and a
    step of 512 rows.
    """
    widths = [layers.attention.widths() for layers in profile.layers]
    facts = profile.facts
    heads = max((int(w.n_heads * w.d_v) for w in widths), default=0)
    decodes = (size for size in capture_sizes(facts) if size <= facts.limits.max_num_seqs)
    return heads * max(decodes, default=0) * _SPLITS * 4


def capture_sizes(facts: RuntimeFacts[VllmArgs]) -> list[int]:
    """Return the batch sizes that vLLM captures: 1, 2, 4, 8 to 248 by 8, then by 16 up to 2
    max_num_seqs and 512.

    From 0.28 on they end at 1,024 on GPUs of compute capability 10. --max-cudagraph-capture-size is
    the largest instead. With speculation they end at 2 max_num_seqs x (1 + drafted tokens), which
    is left out: three logs have 0.18, 0.23 and 0.40 GiB of graphs, less than is estimated without.
    Source: _set_cudagraph_sizes (config/vllm.py).
    """
    args = facts.args
    limits = facts.limits
    capability = facts.gpu.compute_capability
    if capability and capability[0] == 10:
        of_gpu = args.version.largest_graph_of_blackwell
    else:
        of_gpu = _LARGEST_GRAPH
    largest = args.max_cudagraph_capture_size or min(2 * limits.max_num_seqs, of_gpu)
    largest = min(largest, limits.max_num_batched_tokens)
    sizes = {1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)}
    if args.version.captures_largest_step and not args.max_cudagraph_capture_size:
        sizes.add(limits.max_num_seqs)
    return sorted(size for size in sizes if size <= largest)


# Notes


def _notes(facts: RuntimeFacts[VllmArgs]) -> tuple[str, ...]:
    """Return what is assumed: the limits decide most of the activations."""
    args = facts.args
    limits = facts.limits
    # the heading of a screen has the version
    decisive = {
        "--max-num-seqs": (args.max_num_seqs, count(limits.max_num_seqs)),
        "--max-num-batched-tokens": (
            args.max_num_batched_tokens,
            count(limits.max_num_batched_tokens),
        ),
    }
    assumed = [
        f"{option} {default}" for option, (given, default) in decisive.items() if given is None
    ]
    notes = [ESTIMATE_NOTE]
    if not _is_measured(facts):
        notes.append(
            f"vLLM's runtime memory was compared with logs of NVIDIA GPUs; on {facts.gpu.title} "
            "it may be larger."
        )
    if facts.gpu.counts_host_memory and not facts.args.without_cache:
        notes.append(
            "--kv-cache-memory-bytes sets the cache itself. Else vLLM subtracts what all "
            "programs take meanwhile: "
            "starts of one command differ by 1 to 3 GiB. --reserve takes an earlier log's peak "
            "activation + non-torch memory + CUDA graphs."
        )
        if facts.gpu.other_memory is None and _is_beside_others(facts):
            notes.append("--other-memory SIZE, what others hold all the while, narrows the range.")
    notes += _share_notes(facts)
    notes += _tower_notes(facts)
    if len(assumed) == 1:
        notes.insert(0, f"{assumed[0]} is assumed.")
    elif assumed:
        names = f"{', '.join(assumed[:-1])} and {assumed[-1]}"
        notes.insert(0, f"{names} are assumed.")
    return tuple(notes)


def _range_notes(facts: RuntimeFacts[VllmArgs], parts: Sequence[RuntimePart]) -> Iterator[str]:
    """Yield which part of data-parallel ranks has most of a wide range, and what narrows it."""
    if expert_ranks(facts) == 1:
        return
    widest = max(parts, key=lambda part: part.high - part.low)
    limits = facts.limits
    narrower = {
        "experts": (
            f"--max-num-batched-tokens {limits.max_num_batched_tokens // 4}",
            "the experts' workspace",
        ),
        "cuda_graphs": (f"--max-num-seqs {limits.max_num_seqs // 4}", "CUDA graphs"),
    }
    is_known = facts.args.use_deep_gemm is not None or facts.args.exchange != DEEPEP
    is_wide = widest.high - widest.low > _WIDE and is_known
    if is_wide and widest.name in narrower:
        option, what = narrower[widest.name]
        low = human(Quantity(widest.low), BYTES)
        high = human(Quantity(widest.high), BYTES)
        yield f"{option} narrows the range most, of which {low} to {high} are {what}."


def _share_notes(facts: RuntimeFacts[VllmArgs]) -> Iterator[str]:
    """Yield what a large share of the GPU's memory may lead to."""
    numerator, denominator = facts.share
    if facts.args.without_cache:  # a share of which nothing is measured
        return
    wanted = facts.gpu.memory * numerator // denominator
    is_large = numerator * 100 > denominator * _LARGEST_DEFAULT_SHARE
    if is_large and not facts.args.enforce_eager:
        yield (
            f"warning: {human(facts.gpu.memory - wanted, BYTES)} are left outside vLLM's share. "
            "CUDA graphs and the sampler's first run may need more than the profile found: 2 of 47 "
            "starts at 0.95 on an H100 then ran out of memory."
        )
    least, _, most = FREE_OF_UNIFIED
    if facts.gpu.counts_host_memory and numerator * 100 > denominator * least:
        yield (
            f"warning: vLLM starts only if {human(wanted, BYTES)} are free, and a GB10 has "
            f"{least} to {most} %. --gpu-memory-utilization 0.{least} starts with the least."
        )


def _tower_notes(facts: RuntimeFacts[VllmArgs]) -> Iterator[str]:
    """Yield which towers --tp does not divide, and then of which it does not divide the
    attention.
    """
    tp = facts.args.tp
    for tower in facts.whole.towers:
        if not divides_tower(tp, tower):
            yield (
                f"warning: --tp {tp} does not divide the layers of the {tower.name} tower. vLLM "
                "may refuse to start; with --mm-encoder-tp-mode data it has the whole tower on "
                "each GPU."
            )
    for tower in facts.whole.towers:
        heads = tower.attention
        if heads and heads.whole and not tower.has_whole_heads(tp):
            yield (
                f"--tp {tp} does not divide the {heads.heads} heads of the {tower.name} tower: "
                "each GPU has its attention whole."
            )
