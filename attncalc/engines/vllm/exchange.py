"""The memory with which whole experts get the tokens of data-parallel ranks (--all2all-backend).

- `allgather_reducescatter`, vLLM's own: each GPU gets the tokens of all ranks, and its experts'
  workspace has a row for each token and each expert that it picks.
- `deepep_high_throughput`: a GPU gets the tokens that pick one of its experts. DeepEP has a buffer
  for NVLink, and one for RDMA if the GPUs are on several nodes.
- `deepep_low_latency`, `nixl_ep`, `pplx`: each expert has a place for the most tokens of every
  rank. Buffers and workspace are as large, however many tokens come.
- `deepep_v2`, `flashinfer_nvlink_one_sided` and others: buffers for the most tokens that may come,
  and a workspace as if all did.

Source: distributed/device_communicators/all2all.py, model_executor/layers/fused_moe/; DeepEP's
csrc/legacy/config.hpp and csrc/elastic/buffer.hpp; pplx-kernels' csrc/all_to_all; FlashInfer's
moe_ep/backends/split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...mlp import Mlp
from ...quantity import Quantity, ceil_div, maximum, named, quantity, symbol
from ...records import NamedTuple
from ...units import GIB, MIB
from ..deepep import low_latency_bytes
from ..runtime import RuntimeFacts, RuntimePart
from .options import BATCHED, DEEPEP, GATHERED, VllmArgs

if TYPE_CHECKING:
    from collections.abc import Iterator

# VLLM_DEEPEP_BUFFER_SIZE_MB (envs.py).
_BUFFER_MIB = 1024
# VLLM_MOE_DP_CHUNK_SIZE (envs.py).
_CHUNK = 256
# NVSHMEM's heap grows in such steps (NVSHMEM_CUMEM_GRANULARITY in DeepEP's buffer.py).
_HEAP_STEP = 512 * MIB


class Experts(NamedTuple):
    """The experts of one layer, and the ranks whose tokens they get."""

    here: int  # experts of a layer on one device
    everywhere: int  # experts of a layer on all devices, with their copies
    picked: int  # experts that a token picks
    devices: int  # devices of all ranks
    ranks: int  # data-parallel ranks
    tokens: int  # the most tokens of one rank in a step
    d_model: int
    d_ff: int  # width of one expert


def experts_of(facts: RuntimeFacts[VllmArgs], mlp: Mlp) -> Experts:
    args = facts.args
    return Experts(
        here=mlp.n_experts or 0,
        everywhere=mlp.n_routed + (args.num_redundant_experts or 0),
        picked=mlp.n_experts_per_token or 1,
        devices=args.tp * args.dp,
        ranks=args.dp,
        tokens=facts.limits.max_num_batched_tokens,
        d_model=int(mlp.d_latent or facts.whole.main.d_model),
        d_ff=int(mlp.d_ff),
    )


def batched_tokens(args: VllmArgs, experts: Experts) -> int:
    """Return the tokens of a rank for which an expert has a place."""
    if args.version.batches_whole_steps:
        return experts.tokens
    return min(experts.tokens, args.moe_dp_chunk_size or _CHUNK)


def batched_rows(args: VllmArgs, experts: Experts) -> Quantity:
    """Return the places for tokens that the experts of a device have together."""
    return quantity(
        symbol("n_experts", experts.here, "experts of a layer on one device")
        * symbol("devices", experts.devices, "devices that send tokens")
        * symbol("batch", batched_tokens(args, experts), "tokens of a device for one expert")
    )


def received_tokens(experts: Experts) -> int:
    """Return the tokens of all ranks that pick at least one expert of a device, if they pick at
    random: N R (1 - (1 - 1/D)^k).
    """
    missed = (1 - 1 / experts.devices) ** experts.picked
    return round(experts.tokens * experts.ranks * (1 - missed))


def picked_rows(experts: Experts) -> Quantity:
    """Return the pairs of a token and an expert of this device, if tokens pick at random, each
    expert's padded to 128 (compute_aligned_M in deep_gemm_utils.py).
    """
    tokens = symbol("N", experts.tokens, "max_num_batched_tokens")
    ranks = symbol("ranks", experts.ranks, "data-parallel ranks")
    picked = symbol("n_experts_per_token", experts.picked, "experts that a token picks")
    devices = symbol("devices", experts.devices, "devices of all ranks")
    here = symbol("n_experts", experts.here, "experts of a layer on one device")
    return quantity(ceil_div(tokens * ranks * picked, devices) + 127 * here)


def exchange_buffers(facts: RuntimeFacts[VllmArgs], mlp: Mlp) -> RuntimePart | None:
    """Return the buffers through which tokens are sent; None if they are gathered by NCCL."""
    args = facts.args
    if args.exchange == GATHERED:
        return None
    experts = experts_of(facts, mlp)
    parts = [*_buffers(args, experts)]
    size = quantity(sum(parts[1:], parts[0]))
    low = int(size) * 9 // 10
    high = int(size) * 11 // 10
    if args.crosses_nodes:  # NVSHMEM's own heap, and queues of RDMA
        high += GIB
    if args.exchange not in (DEEPEP, "deepep_v2", "flashinfer_nvlink_one_sided", *BATCHED):
        low = 0  # its source was not read
        high = int(size) * 2
    source = f"vLLM {args.version.name}, device_communicators/all2all.py; {args.exchange}"
    return RuntimePart("exchange", f"buffers of {args.exchange}", low, size, high, source)


def _buffers(args: VllmArgs, experts: Experts) -> Iterator[Quantity]:
    """Yield the buffers of a backend: at least one."""
    backend = args.exchange
    if backend in ("deepep_low_latency", DEEPEP):
        mib = args.deepep_buffer_size_mb or _BUFFER_MIB
        yield symbol("nvl_bytes", mib * MIB, "bytes of DeepEP's buffer for NVLink")
    if backend == DEEPEP:
        if args.crosses_nodes:
            yield symbol("rdma_bytes", mib * MIB, "bytes of DeepEP's buffer for RDMA")
    elif backend in ("deepep_low_latency", "nixl_ep"):
        asked = low_latency_bytes(
            experts.everywhere, batched_tokens(args, experts), experts.d_model
        )
        heap = ceil_div(asked, _HEAP_STEP) * _HEAP_STEP
        yield named(quantity(heap), "rdma_bytes", "bytes of the buffers of the low-latency kernels")
    elif backend == "pplx":
        yield _pplx_bytes(args, experts)
    elif backend == "deepep_v2":
        yield _elastic_bytes(args, experts)
    else:
        yield _received_bytes(experts)


def _pplx_bytes(args: VllmArgs, experts: Experts) -> Quantity:
    """Return the buffers of pplx-kernels, whose results are in fp32: on several nodes those of
    `AllToAllInterNode`, and else one for each GPU of `AllToAllIntraNode`.
    """
    batch = symbol("batch", batched_tokens(args, experts), "tokens of a device for one expert")
    here = symbol("n_experts", experts.here, "experts of a layer on one device")
    devices = symbol("devices", experts.devices, "devices of all ranks")
    result = symbol("result_bytes", 4 * experts.d_model, "bytes of a token in fp32")
    if not args.crosses_nodes:
        return quantity(devices * here * batch * result)
    token = symbol("token_bytes", 2 * experts.d_model, "bytes of a token in 16 bits")
    received = here * devices * batch
    return quantity(received * (token + result) + here * devices * batch * result)


def _elastic_bytes(args: VllmArgs, experts: Experts) -> Quantity:
    """Return DeepEP v2's buffer: the larger of one to send tokens and one for their results
    (get_dispatch_buffer_size, get_combine_buffer_size).
    """
    tokens = symbol("N", experts.tokens, "max_num_batched_tokens")
    token = symbol("token_bytes", 2 * experts.d_model, "bytes of a token in 16 bits")
    nodes = symbol("nodes", -(-experts.devices // args.gpus_per_node), "nodes")
    devices = symbol("devices", experts.devices, "devices of all ranks")
    picked = symbol("n_experts_per_token", experts.picked, "experts that a token picks")
    if int(nodes) == 1:
        return quantity(maximum(devices, picked) * tokens * token)
    sent = devices + 1 + nodes
    returned = 2 * picked * nodes + picked
    return quantity(maximum(sent, returned) * tokens * token)


def _received_bytes(experts: Experts) -> Quantity:
    """Return places for the tokens of all devices and for their results, in 16 bits
    (workspace_size_per_rank of FlashInfer).
    """
    tokens = symbol("N", experts.tokens, "max_num_batched_tokens")
    devices = symbol("devices", experts.devices, "devices of all ranks")
    token = symbol("token_bytes", 2 * experts.d_model, "bytes of a token in 16 bits")
    return quantity(2 * devices * tokens * token)
