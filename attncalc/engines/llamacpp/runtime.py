"""What llama.cpp keeps on a GPU besides weights and cache: its compute buffer, and memory outside
its buffers.

Source: llama.cpp's src/llama-context.cpp, common/arg.cpp, tools/server/server-context.cpp
(server_output_limits) and common/fit.cpp; for the memory outside the buffers, posted logs and an
H100.
"""

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from ...attention.kind import Attention, CacheSpec
from ...attention.latent import Latent
from ...quantity import ceil_div, quantity, symbol
from ...units import BYTES, GIB, human
from ..base import Detail
from ..multi_token import prediction_layers
from ..runtime import RuntimeFacts, RuntimeMemory, RuntimePart
from .buffers import has_pools, model_window, padded, reaches, stream_cells
from .compute_buffer import ComputeBuffer, Graph, compute_buffer
from .log_lines import buffer_lines
from .offload import held_layers
from .options import DEFAULT_UBATCH, WITHOUT_FLASH, LlamacppArgs
from .placement import placement_of
from .tensors import largest_on_host
from .versions import llamacpp_version

# Bytes outside the buffers: the fewest, the expected and the most. At exit llama.cpp could not
# account for 451 to 456 MiB on an RTX 4090 (#15860) and 749 on an RTX PRO 6000 (#27953). 28 runs of
# v0.5.0 on an H100: 527 MiB when loaded, 531 with a context, 597 after the warm-up and, after a
# micro-batch, 607 to 629, or 705 to 723 if cuBLAS multiplied.
_CONTEXT = tuple(GIB * hundredths // 100 for hundredths in (30, 45, 75))
_OUTSIDE = "3 posted logs of an RTX 4090 and an RTX PRO 6000, and 28 runs on an H100"
# The same without a GPU: the program, the vocabulary and the server's buffers. Assumed: no log has
# them.
_PROCESS = tuple(GIB * hundredths // 100 for hundredths in (5, 15, 40))
# The most that some Vulkan drivers allow for one allocation.
_VULKAN_BUFFER = 4 * GIB
# Tokens from which a GPU multiplies by a matrix that is on the host
# (ggml_backend_cuda_device_offload_op).
_MIN_OFFLOADED_ROWS = 32
_ON_HOST = "compute buffer in host memory"
# Tenths of the compute buffer that ik_llama.cpp may have, whose graph was not read.
_FORK = (6, 16)
_ALLOCATOR = "ggml's allocator (ggml/src/ggml-alloc.c) on the graphs of llama.cpp, and posted logs"
_FIT_NOTE = (
    "llama.cpp's --fit, on by default, leaves 1,024 MiB of each GPU free: with less it keeps "
    "layers in host memory. The figures are those of --fit off."
)

# find_string id 57135105231: `load_hparams: model size: 887.99 MiB`, `warmup with image size = 1472
# x 1472`.
_PROJECTOR_NOTE = (
    "The projector's compute buffer is not counted. It grows with the image: a log has 248 MiB "
    "for 1,472 x 1,472 pixels beside a projector of 888 MiB."
)


def _fields_but(kind: type, *others: str) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the values of all fields of a record but those."""
    fields = dataclasses.fields(kind)
    return attrgetter(*(field.name for field in fields if field.name not in others))


_ARGS_READ = _fields_but(LlamacppArgs, "device", "device_memory")
# The share is not read, and the limits follow from the arguments.
_FACTS_READ = _fields_but(RuntimeFacts, "model", "whole", "args", "gpu", "share", "limits")


def runtime(facts: RuntimeFacts[LlamacppArgs]) -> RuntimeMemory:
    """Return the compute buffer and the memory outside the buffers. Raises AttncalcError for an
    unknown version.

    A plan asks for the same part of a model on many GPUs, so that the part keeps the answers.
    """
    return facts.model.kept_for_now(_read(facts), lambda: _runtime(facts))


def _read(facts: RuntimeFacts[LlamacppArgs]) -> tuple[Hashable, ...]:
    """Return all that the memory depends on besides the part of the model: of the GPU, neither its
    name nor its memory, unless that is the host's too.
    """
    gpu = facts.gpu
    args = facts.args
    taken = gpu.taken_by_host() if gpu.shares_with_host else None
    return "runtime", gpu.vendor, args.backend, taken, *_ARGS_READ(args), *_FACTS_READ(facts)


def _runtime(facts: RuntimeFacts[LlamacppArgs]) -> RuntimeMemory:
    graph = _graph(facts)
    if facts.first:
        model = facts.model
    else:
        model = held_layers(dataclasses.replace(facts.model, stored=None), facts.args)
    buffer = compute_buffer(model, facts.whole, graph)
    low, high = _range(facts, graph, buffer)
    least, expected, most = _PROCESS if facts.args.on_cpu else _CONTEXT
    if facts.gpu.shares_with_host:
        least, expected, most = map(sum, zip(_CONTEXT, facts.gpu.taken_by_host(), strict=True))
    what = "program" if facts.args.on_cpu else "CUDA context"
    outside = symbol(
        "outside_buffers", expected, f"bytes of the {what} and libraries, outside the buffers"
    )
    if facts.last and facts.args.has_draft_context:
        drafting = _draft_compute_buffer(facts, graph)
    else:
        drafting = ()
    model_buffer = symbol("weights", facts.weights, "bytes of the weights on this GPU")
    label = "outside the buffers" + (" and for the host" if facts.gpu.shares_with_host else "")
    return RuntimeMemory(
        (
            RuntimePart("compute_buffer", "compute buffer", low, buffer.expected, high, _ALLOCATOR),
            *drafting,
            RuntimePart(
                "outside_buffers",
                label,
                least,
                outside,
                most,
                "assumed" if facts.args.on_cpu else _OUTSIDE,
            ),
            *_projector(facts),
        ),
        (*_notes(facts.args, graph), *_one_buffer(facts, int(buffer.expected))),
        buffer.terms,
        details=(
            Detail("compute_buffer", "compute buffer", buffer.expected, BYTES),
            *(
                []
                if facts.args.on_cpu
                else [Detail("host_compute_buffer", _ON_HOST, buffer.host, BYTES)]
            ),
            Detail("model_buffer", "model buffer", model_buffer, BYTES),
        ),
        log_lines=tuple(buffer_lines(facts, buffer)),
    )


def _draft_compute_buffer(
    facts: RuntimeFacts[LlamacppArgs], graph: Graph
) -> tuple[RuntimePart, ...]:
    """Return the compute buffer of the drafter's context; () if its layers are unknown.

    That of multi-token prediction has the lm head of the model: 520.06 MiB are printed of
    Qwen3.8-27B with 8,192 cells and a micro-batch of 2,048, and 48.02 MiB of the 2B model with
    4,096 and 512.
    """
    args = facts.args
    if args.speculative_model:
        draft = whole = args.speculative_model.model
    else:
        draft = prediction_layers(facts.whole, args.speculative_layers)
        whole = facts.whole
    if draft is None or whole is None:
        return ()
    k, v = args.draft_types
    graph = graph._replace(
        full_cells=graph.full_cells * graph.streams,
        streams=1,
        window_cells=0,
        k_copied=k.name != "fp16",
        v_copied=v.name != "fp16",
        gpus=1,
        first=True,
        last=True,
        from_host={},
    )
    buffer = compute_buffer(draft, whole, graph)
    expected = symbol(
        "draft_compute_buffer", int(buffer.expected), "bytes of the drafter's compute buffer"
    )
    return (
        RuntimePart(
            "draft_compute_buffer",
            "drafter's compute buffer",
            buffer.low,
            expected,
            buffer.high,
            _ALLOCATOR,
        ),
    )


def _projector(facts: RuntimeFacts[LlamacppArgs]) -> Iterator[RuntimePart]:
    """Yield the weights of the projector, which are on the first GPU (tools/mtmd/clip.cpp)."""
    file = facts.args.mmproj
    if file and facts.first and file.path:
        size = symbol("projector", file.weights, "bytes of the tensors of the projector's file")
        yield RuntimePart(
            "projector",
            "projector (--mmproj)",
            file.weights,
            quantity(size),
            file.weights,
            "its file",
        )
    elif file and facts.first:
        size = symbol("projector", file.weights, "bytes of the model's towers in fp16")
        yield RuntimePart(
            "projector",
            "projector with its tower",
            file.weights,
            quantity(size),
            file.weights,
            "fp16",
        )


def _graph(facts: RuntimeFacts[LlamacppArgs]) -> Graph:
    """Return what the graph depends on, with llama.cpp's defaults."""
    args = facts.args
    if args.without_cache:
        return _graph_without_cache(facts)
    whole = facts.whole
    slots = facts.args.slots
    release = args.release
    caches = [cached for layers in whole.main.distinct() for cached in layers.cache()]
    window = model_window(caches, fork=release.fork)
    per_slot = has_pools(caches)
    full, windows = stream_cells(
        args,
        window,
        batch=args.whole_contexts,
        slots=slots,
        context=facts.context,
        per_slot=per_slot,
    )
    streams = slots if per_slot else args.streams(slots)
    masked = 0
    pools = 0
    if per_slot:  # masks of pools of 4 and of 128, and one of the indexer
        pools = int(padded(ceil_div(full, 4)))
        masked = 2 * pools + int(padded(ceil_div(full, 128)))
    elif _has_whole_mask(caches, window):
        masked = int(full)
    # llama.cpp cuts the micro-batch to the context before it pads that
    given = facts.context * (args.whole_contexts if args.is_unified else slots)
    ubatch = min(args.micro_batch, given)
    k, v = args.types
    sampled = slots * args.state_rows if release.sampled_logits else ubatch
    rows = min(ubatch, args.n_outputs_max or sampled)
    is_partial = placement_of(whole.main.n_layers, args).is_partial
    # the first GPU copies matrices from the host, if they multiply enough tokens
    largest = largest_on_host(whole, args, facts.weights_dtype) if facts.first else {}
    if rows < _MIN_OFFLOADED_ROWS:
        largest.pop("head", None)
    flash = _uses_flash(args)
    kinds = [layers.attention for layers in whole.main.distinct()]
    # the scores multiply weights, which are on the GPU: sinks (gpt-oss), or W_v of MLA
    has_weights = any(map(_scores_multiply_weights, kinds))
    attends = not args.no_kv_offload or (release.short_masks and (flash or has_weights))
    has_cache_there = args.no_kv_offload or (facts.first and is_partial and not args.on_cpu)
    return Graph(
        release=release,
        flash=flash,
        ubatch=-(-ubatch // slots) * slots,  # as many tokens of every slot
        rows=rows,
        full_cells=masked,
        pool_cells=pools,
        window_cells=0 if window is None else int(windows),
        streams=streams,
        k_copied=k.name != "fp16" and not args.on_cpu,
        v_copied=v.name != "fp16" and not args.on_cpu,
        gpus=args.gpus,
        first=facts.first,
        last=facts.last,
        pipelined=not (is_partial or args.moves_experts or args.no_kv_offload),
        from_host=largest,
        on_cpu=args.on_cpu,
        k_rotated=bool(k.group),
        v_rotated=bool(v.group) or v.name == "fp32",
        attends=attends,
        cache_from_host=args.types if attends and has_cache_there else None,
        v_row=max((_v_row(c) for c in caches if c.role in ("kv", "v")), default=0),
    )


def _graph_without_cache(facts: RuntimeFacts[LlamacppArgs]) -> Graph:
    """Return what the graph of an encoder depends on: tokens see those of the same pass alone."""
    args = facts.args
    tokens = facts.context * args.slots
    ubatch = min(args.ubatch or args.texts_in_one_pass(facts.context), tokens)
    reaches_of = [layers.attention.span.reach for layers in facts.whole.main.distinct()]
    return Graph(
        release=args.release,
        flash=_uses_flash(args),
        ubatch=ubatch,
        rows=0,
        full_cells=ubatch if None in reaches_of else 0,
        window_cells=ubatch if any(reaches_of) else 0,
        streams=1,
        k_copied=False,
        v_copied=False,
        on_cpu=args.on_cpu,
        is_encoder=True,
    )


def _has_whole_mask(caches: Sequence[CacheSpec], window: int | None) -> bool:
    """Return whether a mask has the whole context: all layers may have a buffer for windows."""
    if not any(cached.per == "token" for cached in caches):
        return False
    return window is None or None in reaches(caches)


def _scores_multiply_weights(kind: Attention) -> bool:
    """Return whether attention multiplies its scores with weights: sinks, or W_v of a latent."""
    if isinstance(kind, Latent):
        return not kind.caches_heads
    return bool(getattr(kind, "sinks", False))


def _uses_flash(args: LlamacppArgs) -> bool:
    """Return whether the graph has flash attention.

    'auto' is on wherever the GPU supports it, which is assumed.
    """
    if args.flash_attn == "off" or args.model_type in WITHOUT_FLASH:
        return False
    if args.flash_attn or args.release.flash_attention:
        return True
    _, v = args.types
    return bool(v.group)


def _range(
    facts: RuntimeFacts[LlamacppArgs], graph: Graph, buffer: ComputeBuffer
) -> tuple[int, int]:
    """Return the range of the compute buffer; it is wider for builds and forks whose graph was not
    read.
    """
    low = buffer.low
    high = buffer.high
    if graph.release.fork:
        return low * _FORK[0] // 10, high * _FORK[1] // 10
    if graph.release.between_graphs:
        newer = llamacpp_version("b9500")
        rows = min(graph.rows, facts.args.slots)
        # that of a quantized cache is larger, by its copy in f16
        low = min(
            low,
            compute_buffer(facts.model, facts.whole, graph._replace(release=newer, rows=rows)).low,
        )
    return low, high


def _one_buffer(facts: RuntimeFacts[LlamacppArgs], size: int) -> Iterator[str]:
    """Yield that a Vulkan driver may not allow the compute buffer, which is one allocation.

    A Qwen2.5 7B on an MI60 started with 4,061 MiB (71,000 tokens) and failed with 4,119 (72,000;
    issue 11598).
    """
    is_limited = facts.gpu.vendor not in ("NVIDIA", "Apple") and not facts.args.on_cpu
    if facts.args.release.has_one_compute_buffer and is_limited and size > _VULKAN_BUFFER:
        yield (
            f"warning: the compute buffer of {human(size, BYTES)} is one allocation. Vulkan "
            "drivers that allow at most "
            f"{human(_VULKAN_BUFFER, BYTES)} refuse it, and llama.cpp does not start: -ub 256 "
            "halves it."
        )


def _notes(args: LlamacppArgs, graph: Graph) -> Iterator[str]:
    release = graph.release
    state = "on" if graph.flash else "off"
    rows = "sampled tokens only" if release.sampled_logits else "every token"
    backend = "a CPU" if args.on_cpu else "CUDA"
    if graph.is_encoder:
        yield from _notes_of_encoder(args, graph, backend, state)
        return
    yield (
        f"The compute buffer is that of {backend} with flash attention {state}, and of logits of "
        f"{rows}."
    )
    if args.mmproj:
        yield _PROJECTOR_NOTE
    if graph.pool_cells and release.scores_each_head:
        yield (
            "Builds up to b9988, of July 2026, have no CUDA kernel for the indexer: its scores "
            "of all heads are in the compute buffer."
        )
    elif graph.pool_cells:
        yield (
            "No compute buffer of compressed attention with the indexer's kernel is published: "
            "the range is wide."
        )
    if release.fork:
        yield (
            "The compute buffer of ik_llama.cpp was not read: it is that of llama.cpp, with a "
            "wide range."
        )
    if release.between_graphs:
        yield (
            f"Build {release.name} may or may not have the smaller compute buffer of June 2026; "
            "the range has both."
        )
    if any(graph.from_host.values()):
        yield (
            "For a pass over 32 tokens or more the first GPU copies matrices from the host, one "
            "at a time. The compute buffer has room for the largest."
        )
    if graph.copies > 1:
        yield "With several GPUs every input has 4 copies (pipeline parallelism)."
    # with either, --fit changes nothing
    if args.n_gpu_layers is None and not args.moves_experts and not args.on_cpu:
        yield _FIT_NOTE


def _notes_of_encoder(args: LlamacppArgs, graph: Graph, backend: str, state: str) -> Iterator[str]:
    """Yield what is assumed of a model without a cache."""
    yield f"The compute buffer is that of {backend} with flash attention {state}."
    if args.ubatch is None and graph.ubatch > DEFAULT_UBATCH:
        yield (
            f"-b {graph.ubatch} -ub {graph.ubatch} are assumed: llama.cpp computes a text in one "
            f"pass. Its own default, -ub {DEFAULT_UBATCH}, takes no text that is longer."
        )


def _v_row(cached: CacheSpec) -> int:
    """Return the elements of a row of V: the half of a cache that has K and V."""
    elements = int(cached.rows * cached.width)
    if cached.role == "kv":
        return elements // 2
    return elements
