"""llama.cpp: cells for a context that is set at start-up, in one buffer a kind of layer.

A cell is one token's K and V in every layer of a buffer. Contexts are padded to 256 cells. Sequences have
a stream of cells each, or share all (--kv-unified). Layers with a window have a buffer of their own
(iSWA), an indexer's keys too (DSA); recurrent states are rows of f32, a row a sequence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from ...attention import CacheSpec, Chunked
from ...errors import AttncalcError
from ...quantity import Quantity, exact_div, named
from ...units import DType, count, dtype, truncate
from ..base import EngineArgs
from ..defaults import EngineDefaults, Limits
from ..pipeline import LayerCacheSpec, gathered, summed
from .cells import FORK, MOST_SEQUENCES, TYPES, VERSION, Buffer, LlamaCpp, States
from .split import layers_of_gpus

NAME = "llamacpp"
UBATCH, BATCH, CHUNK = 512, 2048, 8192
"""The defaults of -ub and -b, and the chunk that Llama 4's loader sets."""
DEFAULTS = EngineDefaults(
    "llama.cpp",
    lambda args: Limits(args.ubatch or UBATCH, 1),
    cache_dtype="fp16",
    narrower=("q8_0", "q4_0"),
    narrower_weights=("q8_0", "q4_0"),
    most_slots=MOST_SEQUENCES,
    spreads=True,
)
"""common/common.h: n_ubatch, and a cache in f16 whatever the model is in."""
_STATES = ("convolution", "state")
_STORED = ("engine_version", "kv_dtype_k", "kv_dtype_v", "kv_unified", "swa_full")
_OPTIONS = frozenset((*_STORED, "sequences", "ubatch", "speculative_tokens", "gpus"))


def layout(kept: Sequence[LayerCacheSpec], args: EngineArgs) -> LlamaCpp:
    """How llama.cpp stores those layers. AttncalcError: it cannot, or its layout is not known here."""
    args.only(NAME, _OPTIONS)
    fork = args.engine_version == FORK
    types = (args.kv_dtype_k or args.kv_dtype, args.kv_dtype_v or args.kv_dtype)
    _check_settings(args, types)
    runs = gathered(kept)
    everything = [cached for run in runs for cached in run.cached]
    if not everything:
        raise AttncalcError("this model keeps no cache", "llama.cpp makes none for an encoder")
    for run in runs:
        _check(run, types, fork)
    reach, notes = _window(everything, fork, args.swa_full)
    states = _states(runs)
    if args.speculative_tokens and not states:
        raise AttncalcError("--speculative-tokens: only rows of states grow with them", "leave it out")
    notes += _notes(everything, args, reach)
    whole = LlamaCpp(
        tuple(_buffers(runs, types, reach)),
        states,
        reach,
        types,
        args.sequences or 1,
        args.ubatch or UBATCH,
        args.kv_unified or fork,
        args.swa_full,
        1 + args.speculative_tokens,
        sum(run.layers for run in kept),
        fork,
        tuple(notes),
    )
    return whole if args.gpus == 1 else dataclasses.replace(whole, parts=tuple(_parts(whole, kept, args.gpus)))


def _parts(whole: LlamaCpp, kept: Sequence[LayerCacheSpec], gpus: int) -> Iterator[LlamaCpp]:
    """What of it is on each GPU, by the windows and the types of the whole."""
    layers = [run._replace(layers=1) for run in kept for _ in range(run.layers)]
    for start, end in pairwise(accumulate(layers_of_gpus(len(layers), gpus), initial=0)):
        mine = gathered(layers[start:end])
        buffers = tuple(_buffers(mine, whole.types, whole.reach))
        yield dataclasses.replace(whole, buffers=buffers, states=_states(mine), whole=whole)


def _notes(everything: Sequence[CacheSpec], args: EngineArgs, reach: int | None) -> Iterator[str]:
    """What a reader must know, beside what its windows say."""
    if any(cached.role == "latent" for cached in everything):
        yield "A GGUF made before llama.cpp knew MLA keeps K and V of every head: --attention mha."
    if args.engine_version == FORK:
        yield "Taken with -fa (contexts are padded to 256 cells, else to 32) and MLA with -mla 2 or 3."
    if reach and (args.ubatch or 0) > BATCH and not args.swa_full:
        yield f"A micro-batch is never larger than the batch: taken with -b {args.ubatch} or more."
    if len({int(c.width) * int(c.rows) for c in everything if c.role in ("kv", "v")}) > 1:
        yield "Flash attention is taken to be on; without it every V is as wide as the widest."
    if args.gpus > 1:
        yield (
            "llama.cpp puts whole layers on each GPU, as even as may be (-ngl all, -sm layer, no -ts): the GPU with "
            "room for the fewest sequences decides, and the figures are its own. The lines it prints are of all."
        )
    elif args.device_memory is None:
        yield "Layers are spread over the GPUs, each whole: the bytes are of all GPUs together."


def _check_settings(args: EngineArgs, types: tuple[DType, DType]) -> None:
    if args.tp > 1:
        raise AttncalcError("--tp: llama.cpp spreads layers over GPUs, not heads", "give --gpus alone")
    if args.engine_version not in (None, VERSION, FORK):
        raise AttncalcError(
            f"--engine-version {truncate(args.engine_version)}: llama.cpp is known here as in one version",
            f"leave it out; known: {VERSION} (llama-cpp-python's), {FORK} (ik_llama.cpp)",
        )
    if (args.sequences or 1) > MOST_SEQUENCES:
        raise AttncalcError(f"--sequences: llama.cpp takes at most {MOST_SEQUENCES}", "start several servers")
    for one in types:
        if one.name not in TYPES:
            raise AttncalcError(f"llama.cpp has no cache in {one.name}", f"known: {', '.join(TYPES)}")


def _check(run: LayerCacheSpec, types: tuple[DType, DType], fork: bool) -> None:
    """AttncalcError: llama.cpp refuses such layers, or how it stores them is not known here."""
    for cached in run.cached:
        if cached.scales_with == "source":
            raise AttncalcError("what llama.cpp keeps of a source is not known here", "ask --engine ideal")
        if cached.role == "other" or (fork and cached.role in (*_STATES, "indexer")):
            raise AttncalcError(f"how llama.cpp stores {cached.name} is not known here", "ask --engine ideal")
        if isinstance(cached.span, Chunked) and cached.span.chunk != CHUNK:
            raise AttncalcError(
                f"llama.cpp has chunks of {count(CHUNK)} tokens alone, not {count(cached.span.chunk)}",
                "ask --engine ideal",
            )
        if cached.role == "latent" and types[0] != types[1]:
            raise AttncalcError("llama.cpp keeps MLA's latent as K alone", "give --kv-dtype instead of two types")
        for one, roles in zip(types, (("kv", "k", "latent", "indexer"), ("kv", "v")), strict=True):
            if one.group and cached.role in roles and cached.width % one.group:
                raise AttncalcError(
                    f"llama.cpp cannot keep rows of {count(cached.width)} elements in {TYPES[one.name]}",
                    f"its blocks are of {one.group}; ask for f16",
                )


def _window(everything: Sequence[CacheSpec], fork: bool, swa_full: bool) -> tuple[int | None, list[str]]:
    """Tokens of the window of a model that has layers with one and layers without; and what to know of it."""
    attention = [cached for cached in everything if cached.scales_with == "context" and cached.role != "indexer"]
    reaches = {int(c.span.reach): c.span.reach for c in attention if c.span.reach is not None}
    if fork or not reaches:
        return None, ["ik_llama.cpp keeps the whole context in layers with a window too."] if reaches else []
    if all(cached.span.reach is not None for cached in attention):
        return None, ["Every layer has a window; llama.cpp loads such models (Mistral, Phi-3) without it."]
    if len(reaches) > 1:
        raise AttncalcError(
            f"llama.cpp has one window a model, these layers have {' and '.join(map(count, sorted(reaches)))}",
            "ask --engine ideal",
        )
    told = [] if swa_full else ["llama.cpp's loader of this model is taken to know its windows."]
    return next(iter(reaches.values())), told


def _buffers(runs: Sequence[LayerCacheSpec], types: tuple[DType, DType], reach: int | None) -> Iterator[Buffer]:
    kinds: dict[str, list[LayerCacheSpec]] = {"kv": [], "swa": [], "indexer": []}
    for run in runs:
        for cached in run.cached:
            if cached.scales_with != "context":
                continue
            windowed = reach is not None and cached.span.reach is not None
            name = "indexer" if cached.role == "indexer" else "swa" if windowed else "kv"
            kinds[name].append(LayerCacheSpec(run.layers, (cached,)))
    labels = {"kv": "the whole context" if reach else "all its layers", "swa": "a window", "indexer": "indexer keys"}
    for name, found in kinds.items():
        if found:
            layers = sum(run.layers for run in found if run.cached[0].role != "v")
            k = sum(run.layers * _k_bytes(run.cached[0], types[0]) for run in found)
            cell = summed(found, lambda run: _cell(run.cached[0], types), f"{name}_bytes", "bytes of a cell")
            yield Buffer(name, labels[name], layers, cell, k, name == "swa")


def _k_bytes(cached: CacheSpec, k: DType) -> int:
    """Bytes of K in a cell of one layer, plain."""
    rows, width = int(cached.rows), int(cached.width)
    return 0 if cached.role == "v" else (rows // 2 if cached.role == "kv" else rows) * k.row_bytes(width)


def _cell(cached: CacheSpec, types: tuple[DType, DType]) -> int:
    """Bytes of a cell in one layer. A row is all heads' together, in whole blocks since each head's is."""
    k, v = types
    if cached.role != "kv" or k == v:
        return cached.rows * (v if cached.role == "v" else k).row_bytes(cached.width)
    heads = exact_div(cached.rows, 2)
    parts = (heads * k.row_bytes(cached.width), heads * v.row_bytes(cached.width))
    if not isinstance(cached.rows, Quantity):
        return sum(parts)
    return named(parts[0], "k_bytes", f"bytes of K in {k.name}") + named(parts[1], "v_bytes", f"bytes of V in {v.name}")


def _states(runs: Sequence[LayerCacheSpec]) -> States | None:
    """A row of a sequence; None where no layer keeps states.

    A convolution keeps one token less than transformers does: the next makes it whole.
    """
    f32 = dtype("fp32")

    def row(cached: CacheSpec) -> int:
        width = cached.width - 1 if cached.role == "convolution" else cached.width
        return cached.rows * f32.row_bytes(width, "state_bytes")

    parts = [LayerCacheSpec(run.layers, (cached,)) for run in runs for cached in run.cached if cached.role in _STATES]
    if not parts:
        return None
    r, s = (sum(p.layers * int(row(p.cached[0])) for p in parts if p.cached[0].role == role) for role in _STATES)
    return States(summed(parts, lambda run: row(run.cached[0]), "state_row", "bytes of a row"), r, s)
