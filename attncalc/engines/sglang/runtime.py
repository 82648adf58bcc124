"""What SGLang keeps on a GPU besides weights and cache, inside and outside its share of the memory.

SGLang measures the free memory after torch.distributed has started, A0, and gives f A0 - W to the
cache, where f is --mem-fraction-static and W are the weights. So what is gone before A0 costs the
cache only f of it, and activations, CUDA graphs and the table of requests must fit into the other
(1 - f) A0.

Example: 24 GB of which 23.51 GiB are seen, A0 22.76, f 0.88 and W 14.39 (Qwen2.5-7B in 0.4.2):
0.88 * 22.76 - 14.39 = 5.64 GiB, as logged.

Source: profile_max_num_token and _profile_available_bytes (srt/model_executor/model_runner.py, and
srt/mem_cache/kv_cache_configurator.py in 0.5.23); start-ups in tests/data/sglang/startups.json and
tests/data/startups.
"""

from collections.abc import Iterator
from fractions import Fraction

from ...hardware import Gpu
from ...quantity import Quantity, ceil_div, named, quantity, symbol
from ...units import BYTES, GIB, human
from ..deepep import dual_mode_bytes, low_latency_bytes, normal_bytes
from ..estimate import largest_tensors
from ..runtime import RuntimeFacts, RuntimeMemory, RuntimePart, missed
from .options import SglangArgs
from .share import decode_graphs, largest_graph

# Hundredths of a GiB that are gone before the share, the least, expected and most: 17 logs have
# 0.31 to 0.87 GiB, of which an H100 has 0.5 to 0.8 and an RTX PRO 6000 0.34 and 0.83. Two RTX 5090
# had 1.16, under WSL, and 1.28.
_ONE_DEVICE = (25, 55, 100)
_AT_A_DESK = (25, 55, 130)
# The same for up to four devices without NVLink, and for more: 0.40 (4 x L4), 0.43 (4 of 24 GB),
# 0.58 (2 x RTX 4090); 0.83 to 0.98 (five logs of 8 x RTX PRO 6000).
_OVER_PCIE = (30, 55, 110)
_OVER_PCIE_OF_MANY = (40, 90, 130)
# The same with NVLink: 1.3 to 1.67 (H100 and H800), 1.42 (H20), 1.7 to 2.5 (H200), 1.93 (2 x H100).
_OVER_NVLINK = (120, 190, 310)
# The same: 3.0 (4 x B200) and 3.3 (8 x B200).
_OVER_NVLINK_OF_BLACKWELL = (190, 300, 400)
# The same with AMD GPUs: 4.36 to 4.5 in three logs of 8 x MI355X. Twice 2 GiB are the buffers of
# quick reduce, which SGLang's images for ROCm switch on for any number of GPUs
# (ROCM_QUICK_REDUCE_QUANTIZATION=INT8).
_OVER_XGMI = (120, 440, 500)
AITER_RESERVE = Fraction(15, 100)
# Tokens of context beyond which the share leaves that part of itself to AITER's workspace.
AITER_RESERVED_FROM = 8192
# Heads of MLA on one GPU for which AITER has kernels.
_AITER_HEADS = (16, 128)
# Percent of unified memory that SGLang starts from, least, expected and most: 109.8 to 115.4 of
# 121.6 GiB in 32 logs of GB10s. It counts the page cache as available (get_available_gpu_memory in
# utils/common.py), which CUDA does not.
_FREE_OF_UNIFIED = (90, 92, 95)
# Percent: the share above which starts on a GB10 are published as failing.
_LARGEST_OF_UNIFIED = 80
_UNKNOWN_LINK = (_OVER_PCIE[0], 120, _OVER_NVLINK[2])
# The most bytes that loading leaves allocated beside the weights, and beside those of a model with
# towers: three logs of such have 0.5 to 0.7 GiB.
_LOADING = 3 * GIB // 10
_LOADING_TOWERS = 7 * GIB // 10
# Bytes of one captured batch size: 0.07 GiB for 3 sizes, 1.00 for 36 and 1.44 for 52 were logged.
_GRAPH = 27 * 2**20
# Concurrent requests by default, by the tokens of the pool (resolve_max_num_reqs).
_REQUESTS = 2048
_MOST_REQUESTS = 4096
# Tokens of a rank for DeepEP's low-latency kernels
# (SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK in srt/environ.py).
_TOKENS_OF_DEEPEP = 128
# Tokens of a row of the table beyond the context.
_EXTRA_TOKENS = 4


def runtime(facts: RuntimeFacts[SglangArgs]) -> RuntimeMemory:
    """Return what is gone before the share, and what must fit outside it."""
    least, expected, most = (
        size * GIB // 100 for size in _before_share(facts.gpu, facts.args.tp * facts.args.pp)
    )
    if facts.gpu.counts_host_memory and facts.gpu.measured and facts.gpu.other_memory is None:
        least, expected, most = facts.gpu.taken_by_host(_FREE_OF_UNIFIED)
    numerator, denominator = facts.share
    before = symbol(
        "before_share", expected, "bytes gone before the share: CUDA context, communication"
    )
    part = RuntimePart(
        "before_share",
        "before the share",
        int(ceil_div(least * numerator, denominator)),
        quantity(ceil_div(before * numerator, denominator)),
        int(ceil_div(most * numerator, denominator)),
        "SGLang's own figure of the free memory before weights, in 22 public logs; on unified "
        "memory, those of GB10s",
    )
    loading = _loading(facts)
    for_aiter = _aiter_reserve(facts, quantity(facts.gpu.memory - before))
    free = facts.gpu.memory - expected
    pool = free * numerator // denominator - facts.weights
    exchange = _exchange(facts)
    outside = (_activations(facts), _graphs(facts), _requests(facts, pool), *exchange)
    room = free * (denominator - numerator) // denominator
    needed = sum(int(part.expected) for part in outside)
    notes = [
        "SGLang's share is of the memory that is free after CUDA and communication have started. "
        "Activations, CUDA graphs and the table of requests are outside the share."
    ]
    if for_aiter:
        notes.append(
            "SGLang multiplies --mem-fraction-static by 0.85 if AITER computes attention, AMD's "
            "default, and the "
            "context is longer than 8,192 tokens. --attention-backend triton keeps the share. "
            "For weights that "
            "need it, so does SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION=1 from September 2026 on."
        )
    if needed > room:
        notes.append(
            "warning: activations, CUDA graphs and the table of requests need "
            f"{human(Quantity(needed), BYTES)}, but "
            f"the share leaves {human(Quantity(room), BYTES)}: a smaller --mem-fraction-static "
            "avoids running out of memory."
        )
    if facts.gpu.counts_host_memory and numerator * 100 > denominator * _LARGEST_OF_UNIFIED:
        notes.append(
            f"warning: the host uses the same memory as {facts.gpu.title}. Autotuning at 0.85 "
            "left a GB10's host none "
            "(sgl-project/sglang#35860). --mem-fraction-static 0.8 is published as starting."
        )
    parts = (part, loading, *([for_aiter] if for_aiter else []))
    return RuntimeMemory(parts, tuple(notes), outside=outside, missed=missed(facts))


def _loading(facts: RuntimeFacts[SglangArgs]) -> RuntimePart:
    """Return what loading leaves allocated beside the weights.

    Quantized weights are packed anew, layer by layer: 1.1 layers at most in four logs. On AMD,
    experts in 4 bits keep the indices of their inputs, and their order, as int32
    (compressed_tensors_wNa16_moe.py): 1.27 GiB of Kimi-K2.5 on 8 GPUs. With CUTLASS, which runs
    experts in NVFP4 on RTX Blackwell GPUs, the scales of down take half of a block of memory and
    the next layer's matrices the rest: it stays when the scales are copied (modelopt_quant.py). One
    log has this, so the range begins without it. On Hopper triton_kernels holds experts in MXFP4 in
    a padded layout, and the released scales stay too (mxfp4.py): 2.17 GiB of gpt-oss 20B in one
    start on an H100, four times its scales.
    """
    is_packed = facts.weights_dtype not in ("bf16", "fp16", "fp32", "mxfp4")
    above = facts.weights * 6 // (5 * facts.model.main.n_layers) if is_packed else 0
    above = max(above, _LOADING_TOWERS if facts.whole.towers else _LOADING)
    expected = quantity(_left_of_experts(facts))
    source = (
        "sgl-project/sglang#36583: temporaries of the loader count as used; 9 public logs have "
        "0.1 to 0.7 GiB less"
    )
    low = int(expected) if facts.gpu.vendor == "AMD" else 0
    return RuntimePart("loading", "left from loading", low, expected, int(expected) + above, source)


def _left_of_experts(facts: RuntimeFacts[SglangArgs]) -> int:
    gpu = facts.gpu
    experts_dtype = facts.whole.experts_dtype or facts.weights_dtype
    inputs = scales = 0
    for stack, layers in facts.model.plain().groups():
        if layers.mlp and layers.mlp.n_experts:
            experts = layers.count * layers.mlp.n_experts
            d_model = int(stack.d_model)
            d_ff = int(layers.mlp.d_ff)
            inputs += experts * (d_model + d_ff)
            scales += experts * d_model * d_ff // 16
    if gpu.vendor == "AMD" and experts_dtype == "int4":
        inputs = symbol("inputs", inputs, "inputs of both products of all experts")
        return inputs * symbol("bytes_indices", 8, "two int32")
    generation = gpu.compute_capability[0] if gpu.compute_capability else 0
    if experts_dtype == "mxfp4" and generation == 9:
        copies = symbol("copies", 4, "the released scales, and what the layout adds")
        return symbol("scales", scales * 3 // 2, "bytes of the scales of all experts") * copies
    runs_cutlass = experts_dtype == "fp4" and generation == 12
    return symbol(
        "scales", scales if runs_cutlass else 0, "bytes of the scales of all experts' down matrices"
    )


def _aiter_reserve(facts: RuntimeFacts[SglangArgs], free: Quantity) -> RuntimePart | None:
    """Return what SGLang takes from its share for AITER's workspace; None if another backend
    computes attention.
    """
    if facts.gpu.vendor != "AMD" or facts.context <= AITER_RESERVED_FROM or not _uses_aiter(facts):
        return None
    numerator, denominator = facts.share
    available = named(free, "free", "bytes that are free before weights")
    part = AITER_RESERVE
    size = quantity(available * (numerator * part.numerator) // (denominator * part.denominator))
    source = "sgl-project/sglang#25199 and #37242: mem_fraction_static *= 0.85"
    return RuntimePart(
        "aiter_reserve", "left to AITER's workspace", int(size), size, int(size), source
    )


def _uses_aiter(facts: RuntimeFacts[SglangArgs]) -> bool:
    """Return whether AITER computes attention: as given, or by default, which is for AMD's Instinct
    GPUs.

    MLA has it for 16 or 128 heads per GPU; sparse attention and gpt-oss have backends of their own
    (_get_default_attn_backend and _handle_model_specific_adjustments in server_args.py).
    """
    args = facts.args
    if not args.version.reserves_for_aiter or args.attention_backend:
        return args.version.reserves_for_aiter and args.attention_backend == "aiter"
    if "Instinct" not in facts.gpu.title or args.model_type == "gpt_oss":
        return False
    kinds = [layers.attention for _, layers in facts.model.plain().groups()]
    if any(spec.role in ("indexer", "pools") for kind in kinds for spec in kind.cache()):
        return False
    latent = next((kind for kind in kinds if kind.label == "MLA"), None)
    return latent is None or int(latent.widths().n_heads) in _AITER_HEADS


def _before_share(gpu: Gpu, devices: int) -> tuple[int, int, int]:
    """Return the hundredths of a GiB gone before the share: the least, the expected and the most.

    Communication takes as much on 2 devices as on 8 that are linked, and more than over PCIe.
    """
    if devices == 1:
        if gpu.shows_desktop:
            return _AT_A_DESK
        return _ONE_DEVICE
    if gpu.vendor == "AMD":
        return _OVER_XGMI
    if gpu.nvlink and gpu.compute_capability and gpu.compute_capability[0] == 10:
        return _OVER_NVLINK_OF_BLACKWELL
    over_pcie = _OVER_PCIE if devices <= 4 else _OVER_PCIE_OF_MANY
    return {True: _OVER_NVLINK, False: over_pcie, None: _UNKNOWN_LINK}[gpu.nvlink]


def _activations(facts: RuntimeFacts[SglangArgs]) -> RuntimePart:
    tensors = int(largest_tensors(facts)[0])
    expected = named(tensors, "activation_bytes", "bytes of the tensors of a prefill chunk")
    source = "the shapes of the model's largest tensors"
    return RuntimePart(
        "activations",
        "activations of a prefill chunk",
        tensors // 2,
        expected,
        tensors * 3 // 2,
        source,
    )


def _graphs(facts: RuntimeFacts[SglangArgs]) -> RuntimePart:
    sizes = decode_graphs(largest_graph(facts.args))
    each = symbol("graph_bytes", _GRAPH, "bytes of one captured batch size, measured")
    expected = quantity(symbol("graphs", sizes, "captured batch sizes") * each)
    source = "CUDA graphs in 5 public logs: 0.07 to 1.44 GiB"
    return RuntimePart(
        "cuda_graphs", "CUDA graphs", int(expected) // 2, expected, int(expected) * 2, source
    )


def _exchange(facts: RuntimeFacts[SglangArgs]) -> Iterator[RuntimePart]:
    """Yield DeepEP's buffers, which are allocated with the first tokens: 128 of a rank for the
    low-latency kernels (DeepEPBuffer in layers/moe/token_dispatcher/deepep.py).
    """
    args = facts.args
    mlps = [layers.mlp for _, layers in facts.model.plain().groups() if layers.mlp]
    experts = max((mlp.n_routed for mlp in mlps), default=0)
    if args.moe_a2a_backend != "deepep" or not experts:
        return
    experts += args.num_redundant_experts or 0
    d_model = facts.whole.main.d_model
    if args.deepep_mode == "normal":
        size = normal_bytes(args.tp, d_model)
    elif args.deepep_mode == "low_latency":
        size = low_latency_bytes(experts, _TOKENS_OF_DEEPEP, d_model)
    else:
        size = dual_mode_bytes(experts, _TOKENS_OF_DEEPEP, args.tp, d_model)
    source = "DeepEP's csrc/legacy/config.hpp; SGLang's token_dispatcher/deepep.py"
    high = int(size) + GIB
    yield RuntimePart("exchange", "buffers of DeepEP", int(size), size, high, source)


def _requests(facts: RuntimeFacts[SglangArgs], pool: int) -> RuntimePart:
    """Return the table of the tokens of each request (req_to_token): 4 bytes per token of the
    context.

    By default it has 512 requests per context that `pool` bytes hold, which are estimated from a
    token in all layers.
    """
    token = 0  # bytes of a token in all layers
    for _, layers in facts.model.plain().groups():
        for cached in layers.cache():
            if cached.per == "token":
                row_bytes = facts.args.kv_dtype.row_bytes(int(cached.width))
                token += layers.count * int(cached.rows) * row_bytes
    least = facts.args.requests or _REQUESTS
    most = facts.args.requests or _MOST_REQUESTS
    requests = min(max(512 * pool // max(1, token * facts.context), least), most)
    row = (symbol("T", facts.context, "tokens of a sequence") + _EXTRA_TOKENS) * 4
    expected = quantity((symbol("requests", requests, "concurrent requests") + 1) * row)
    source = "SGLang's ReqToTokenPool (srt/mem_cache/memory_pool.py)"
    low, high = ((count + 1) * int(row) for count in (least, most))
    return RuntimePart("req_to_token", "table of requests", low, expected, high, source)
