"""What llama.cpp keeps on a GPU besides weights and cache: its compute buffer, and memory outside its buffers.

Source: llama.cpp's src/llama-context.cpp, common/arg.cpp, tools/server/server-context.cpp (server_output_limits) and
common/fit.cpp; for the memory outside the buffers, posted logs (tests/data/engine-logs/llamacpp-buffers.json).
"""

from __future__ import annotations

from collections.abc import Iterator

from ...quantity import symbol
from ...units import BYTES, GIB
from ..base import Detail
from ..runtime import RuntimeFacts, RuntimeMemory, RuntimePart
from .cells import padded, window_cells
from .compute_buffer import ComputeBuffer, Graph, compute_buffer
from .layout import mib, model_window
from .limits import DEFAULT_UBATCH, MIN_OFFLOADED_ROWS
from .options import LlamacppArgs
from .placement import block_count, placement_of
from .tensors import largest_on_host, model_buffers
from .versions import LlamaCppVersion, llamacpp_version

_CONTEXT = tuple(GIB * hundredths // 100 for hundredths in (30, 45, 75))
"""Bytes outside the buffers: the fewest, the expected and the most. At exit llama.cpp could not account for 451 to 456
MiB on an RTX 4090 (#15860) and 749 on an RTX PRO 6000 (#27953)."""
_FORK = (6, 16)
"""Tenths of the compute buffer that ik_llama.cpp may have, whose graph was not read."""
_ALLOCATOR = "ggml's allocator (ggml/src/ggml-alloc.c) on the graphs of llama.cpp, and posted logs"
_FIT_NOTE = (
    "llama.cpp's --fit, on by default, leaves 1,024 MiB of each GPU free: with less it keeps layers in host memory. "
    "The figures are those of --fit off."
)


def llamacpp_runtime(facts: RuntimeFacts[LlamacppArgs]) -> RuntimeMemory:
    """Return the compute buffer and the memory outside the buffers. Raises AttncalcError for an unknown version."""
    release = llamacpp_version(facts.args.engine_version)
    graph = _graph(facts, release)
    buffer = compute_buffer(facts.model, facts.whole, graph)
    low, high = _range(facts, graph, buffer)
    least, expected, most = _CONTEXT
    parts = (
        RuntimePart("compute_buffer", "compute buffer", low, buffer.expected, high, _ALLOCATOR),
        RuntimePart(
            "outside_buffers",
            "outside the buffers",
            least,
            symbol("outside_buffers", expected, "bytes of the CUDA context and libraries, outside the buffers"),
            most,
            "3 posted logs of an RTX 4090 and an RTX PRO 6000",
        ),
    )
    model_buffer = symbol("weights", facts.weights, "bytes of the weights on this GPU")
    details = (
        Detail("compute_buffer", "compute buffer", buffer.expected, BYTES),
        Detail("host_compute_buffer", "compute buffer in host memory", buffer.host, BYTES),
        Detail("model_buffer", "model buffer", model_buffer, BYTES),
    )
    return RuntimeMemory(
        parts,
        tuple(_notes(facts.args, graph, release)),
        buffer.terms,
        details=details,
        log_lines=tuple(_log_lines(facts, buffer)),
    )


def _graph(facts: RuntimeFacts[LlamacppArgs], release: LlamaCppVersion) -> Graph:
    """Return what the graph depends on, with llama.cpp's defaults."""
    args = facts.args
    slots = args.sequences or 1
    unified = args.kv_unified or release.fork
    full = padded(slots * facts.context if unified else facts.context)
    streams = 1 if unified else slots
    ubatch = min(args.ubatch or DEFAULT_UBATCH, streams * full)
    window = model_window(
        [cached for layers in facts.whole.main.distinct() for cached in layers.cache()], fork=release.fork
    )
    windows = 0
    if window is not None:
        tokens = window * (slots if unified else 1)
        windows = full if args.swa_full else int(window_cells(full, tokens, args.ubatch or DEFAULT_UBATCH))
    placed = placement_of(facts.whole.main.n_layers, args)
    k, v = args.kv_dtype_k or args.kv_dtype, args.kv_dtype_v or args.kv_dtype
    sampled = slots * (1 + args.speculative_tokens) if release.sampled_logits else ubatch
    rows = min(ubatch, args.n_outputs_max or sampled)
    return Graph(
        release=release,
        flash=_flash(args.flash_attn, release, quantized_v=bool(v.group)),
        ubatch=-(-ubatch // slots) * slots,  # as many tokens of every slot
        rows=rows,
        full_cells=int(full),
        window_cells=windows,
        streams=streams,
        k_copied=k.name != "fp16",
        v_copied=v.name != "fp16",
        gpus=args.gpus,
        first=facts.first,
        last=facts.last,
        pipelined=not (placed.is_partial or args.n_cpu_moe or args.no_kv_offload),
        **(_copied_from_host(facts, rows=rows) if facts.first else {}),
    )


def _copied_from_host(facts: RuntimeFacts[LlamacppArgs], *, rows: int) -> dict[str, int]:
    """Return the bytes of matrices on the host that the first GPU copies, if they multiply enough tokens."""
    head, layer = (
        largest_on_host(facts.whole, facts.args, facts.weights_dtype, of_head=of_head) for of_head in (True, False)
    )
    return {"from_host": layer, "head_from_host": head if rows >= MIN_OFFLOADED_ROWS else 0}


def _flash(option: str | None, release: LlamaCppVersion, *, quantized_v: bool) -> bool:
    """Return whether flash attention is on. 'auto' is on wherever the GPU supports it, which is assumed."""
    if option in ("on", "off"):
        return option == "on"
    return option == "auto" or release.flash_attention or quantized_v


def _range(facts: RuntimeFacts[LlamacppArgs], graph: Graph, buffer: ComputeBuffer) -> tuple[int, int]:
    """Return the range of the compute buffer; it is wider for builds and forks whose graph was not read."""
    low, high = buffer.low, buffer.high
    if graph.release.fork:
        return low * _FORK[0] // 10, high * _FORK[1] // 10
    if graph.release.between_graphs:
        newer = llamacpp_version(None)
        rows = min(graph.rows, facts.args.sequences or 1)
        low = compute_buffer(facts.model, facts.whole, graph._replace(release=newer, rows=rows)).low
    return low, high


def _notes(args: LlamacppArgs, graph: Graph, release: LlamaCppVersion) -> Iterator[str]:
    state = "on" if graph.flash else "off"
    rows = "sampled tokens only" if release.sampled_logits else "every token"
    yield f"The compute buffer is that of CUDA with flash attention {state}, and of logits of {rows}."
    if release.fork:
        yield "The compute buffer of ik_llama.cpp was not read: it is that of llama.cpp, with a wide range."
    if release.between_graphs:
        yield f"Build {release.name} may or may not have the smaller compute buffer of June 2026; the range has both."
    if graph.from_host or graph.head_from_host:
        yield (
            "For a pass over 32 tokens or more the first GPU copies matrices from the host, one at a time. The compute "
            "buffer has room for the largest."
        )
    if graph.copies > 1:
        yield "With several GPUs every input has 4 copies (pipeline parallelism)."
    if args.n_gpu_layers is None and not args.n_cpu_moe:  # with either, --fit changes nothing
        yield _FIT_NOTE


def _log_lines(facts: RuntimeFacts[LlamacppArgs], buffer: ComputeBuffer) -> Iterator[str]:
    """Yield the log's lines on layers and model buffers, and on the compute buffers of this GPU and of the host."""
    args, layers = facts.args, facts.whole.main.n_layers
    blocks, on_gpus = block_count(layers, args), placement_of(layers, args).on_gpus
    yield f"load_tensors: offloaded {on_gpus}/{blocks + 1} layers to GPU"
    sizes = model_buffers(facts.whole, args)
    index = 0 if facts.first else args.gpus - 1
    is_known = facts.first or facts.last
    if not sizes and is_known:
        sizes = {f"CUDA{index}": facts.weights}
    for name, size in sizes.items():
        yield f"load_tensors: {name:>12} model buffer size = {mib(size, width=8)} MiB"
    if is_known:
        yield f"sched_reserve: {f'CUDA{index}':>10} compute buffer size = {mib(int(buffer.expected), width=8)} MiB"
        yield f"sched_reserve: {'CUDA_Host':>10} compute buffer size = {mib(int(buffer.host), width=8)} MiB"
