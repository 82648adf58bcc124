"""The memory budget of one GPU: the share that the engine takes, less weights and reserve, is for
the cache.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal

from ..attention.linear import GatedDeltaNet
from ..cost.params import params
from ..engines.multi_token import prediction_layers
from ..engines.runtime import RuntimeFacts, RuntimeMemory, RuntimePart
from ..hardware import Gpu
from ..model import ModelSpec
from ..quantity import Quantity, ceil_div, named, quantity, symbol
from ..quantization import StoredAs
from ..records import NamedTuple
from ..units import BYTES, dtype, human
from .kept_weights import with_layout
from .request import ResolvedRequest, Share, usual_layouts
from .weight_format import multiplied_as, weight_format
from .weights import Weights, weights

# Which end of the range of the memory for the cache: the least, the expected, or the most.
End = Literal["low", "expected", "high"]
_UNKNOWN_DRAFTER = (
    "The drafter's weights are not counted. If it is a draft model, --speculative-model FILE "
    "counts them."
)


class Reserve(NamedTuple):
    """The memory that is reserved on one GPU for everything but weights and cache."""

    total: Quantity  # bytes, as given or as expected of the engine
    low: int  # the fewest bytes to expect; `total` if it was given
    high: int  # the most bytes to expect; `total` if it was given
    # the parts that add up to these; none if the total was given
    runtime: RuntimeMemory = RuntimeMemory()

    def at(self, end: End) -> int:
        """Return its bytes at one end of the memory for the cache: the most at its low end."""
        return {"low": self.high, "expected": int(self.total), "high": self.low}[end]

    def with_excess(self, excess: int, *, exact: bool) -> "Reserve":
        """Return it with `excess` bytes that a log shows beyond the estimate; if exact, without a
        range.
        """
        total = quantity(
            named(self.total, "estimated", "bytes of the estimate")
            + symbol("excess", excess, "bytes logged")
        )
        if exact:
            return self._replace(total=total, low=int(total), high=int(total))
        return self._replace(
            total=total, low=max(0, self.low + excess), high=max(0, self.high + excess)
        )


class MemoryBudget(NamedTuple):
    """The memory of one GPU. Only `kv_memory` is set if the request gives the memory for the
    cache.
    """

    kv_memory: Quantity  # bytes for the cache; 0 if weights and reserve leave none
    memory: Quantity | None = None  # bytes of the GPU that software sees
    share: Share | None = None  # the share of it that the engine takes
    usable: Quantity | None = None  # bytes that the engine takes
    weights: Weights | None = None  # the weights on this GPU
    reserve: Reserve | None = None  # what is reserved for activations, CUDA graphs and the driver
    short: int = 0  # bytes by which weights and reserve exceed `usable`
    layers: int | None = None  # the number of layers on this GPU, if it does not have all of them
    # what the runtime memory was estimated from; None if it was given
    facts: RuntimeFacts[Any] | None = None
    # Returns what is reserved for another batch and context; None if the reserve was given. It
    # keeps its answers: a search asks again for each GPU, and GPUs with equal layers have one
    # budget.
    reserve_for: Callable[[int, int], Reserve] | None = None

    def room(self, end: End = "expected") -> int:
        """Return the bytes for the cache; negative if weights and reserve are too large.

        The most has the share of a GPU whose driver shows more memory than the least of all logs.
        """
        expected = int(self.kv_memory) - self.short
        if self.reserve is None:
            return expected
        room = expected + int(self.reserve.total) - self.reserve.at(end)
        if end == "high" and self.facts:
            numerator, denominator = self.facts.share
            room += self.facts.gpu.more_memory * numerator // denominator
        return room

    @property
    def kv_memory_low(self) -> int:
        """Bytes for the cache if the runtime memory is as large as it may be."""
        return max(0, self.room("low"))

    @property
    def kv_memory_high(self) -> int:
        """Bytes for the cache if the runtime memory is as small as it may be."""
        return max(0, self.room("high"))


def memory_budget(
    resolved: ResolvedRequest,
    part: ModelSpec | None = None,
    *,
    first: bool = True,
    last: bool = True,
) -> MemoryBudget:
    """Return the budget of one GPU.

    `part` is its layers as a model, None if it has all; `first` and `last` are whether it has the
    first and the last layer. Raises AttncalcError as `weights` does, and if the engine does not
    support an argument.
    """
    gpu = resolved.gpu
    share = resolved.share
    engine = resolved.engine
    workload = resolved.workload
    if gpu is None or share is None:
        given_memory = resolved.request.kv_memory or 0
        return MemoryBudget(symbol("kv_memory", given_memory, "bytes for the cache on one device"))
    memory = symbol("memory", gpu.memory, f"bytes of one {gpu.title} that software sees")
    usable = memory
    if share.numerator != share.denominator:
        usable = quantity(ceil_div(memory * share.numerator, share.denominator))
    on_gpu = engine.held(part or resolved.model, resolved.args)
    held = weights_on_gpu(resolved, None if on_gpu is resolved.model else on_gpu, last=last)
    facts = None
    reserve_for = None
    if resolved.request.reserve is None:
        facts = _runtime_facts(
            resolved, gpu, share, part, weights=int(held.total), first=first, last=last
        )
        reserve_for = _estimates(resolved, facts)
        reserve = reserve_for(workload.batch, workload.context)
    else:
        given = symbol("reserve", resolved.request.reserve, "bytes reserved, as given")
        reserve = _as_logged(Reserve(given, int(given), int(given)), resolved)
    kv_memory = (
        named(usable, "usable", "bytes that the engine takes")
        - named(held.total, "weights", "bytes of the weights")
        - named(reserve.total, "reserve", "bytes reserved for activations, graphs and the driver")
    )
    short = max(0, int(held.total) + int(reserve.total) - int(usable))
    return MemoryBudget(
        kv_memory=Quantity(0) if short else kv_memory,
        memory=memory,
        share=share,
        usable=usable,
        weights=held,
        reserve=reserve,
        short=short,
        layers=part.main.n_layers if part else None,
        facts=facts,
        reserve_for=reserve_for,
    )


def _runtime_facts(
    resolved: ResolvedRequest,
    gpu: Gpu,
    share: Share,
    part: ModelSpec | None,
    *,
    weights: int,
    first: bool,
    last: bool,
) -> RuntimeFacts[Any]:
    """Return what the runtime memory of a GPU depends on; `weights` are the bytes that it holds."""
    model = resolved.model
    workload = resolved.workload
    multiplied = multiplied_as(model, resolved.args.dtype, resolved.weights_dtype)
    return RuntimeFacts(
        model=part or model,
        whole=model,
        args=resolved.args,
        limits=resolved.limits(workload.batch, workload.context),
        gpu=gpu,
        share=(share.numerator, share.denominator),
        batch=workload.batch,
        context=workload.context,
        weights=weights,
        weights_dtype=multiplied.name,
        first=first,
        last=last,
        states_read=resolved.draft.states_read if resolved.draft else 0,
    )


def weights_on_gpu(
    resolved: ResolvedRequest, part: ModelSpec | None, *, last: bool = False
) -> Weights:
    """Return the weights of a part of the model, or of the largest stage; with the draft model on
    the last one.

    Raises AttncalcError as `weights` does.
    """
    held = weights(
        resolved.model,
        pp=resolved.args.pp,
        part=part,
        in_dtype=resolved.workload.dtype,
        weights_dtype=resolved.weights_dtype,
        engine=resolved.engine,
        args=resolved.args,
        draft=resolved.draft
        if last and resolved.engine.loads_drafter_first(resolved.args)
        else None,
    )
    if resolved.args.speculative_layers and resolved.draft is None:
        held = held._replace(notes=(*held.notes, _UNKNOWN_DRAFTER))
    return held


def _estimates(
    resolved: ResolvedRequest, facts: RuntimeFacts[Any]
) -> Callable[[int, int], Reserve]:
    """Return the function (batch, context) -> the runtime memory of the GPU with those facts.

    It keeps its answers if the engine's runtime memory depends on both. Otherwise it is asked once,
    and looks at neither: the budget of one cell of a sweep then holds for others (tracing.py).
    """
    unquantized = _unquantized(resolved, facts.model)
    predicting = _prediction_in_files(resolved, facts.model)

    def reserve_for(batch: int, context: int) -> Reserve:
        args = resolved.engine.for_batch(facts.args, batch)
        limits = facts.limits
        if resolved.engine.whole_prompts:
            limits = resolved.limits(batch, context)
        runtime = resolved.engine.runtime(
            dataclasses.replace(facts, args=args, limits=limits, batch=batch, context=context)
        )
        runtime = runtime.on_machine(resolved.measured_starts, resolved.engine.title)
        others = _other_programs(resolved)
        if others:
            runtime = runtime._replace(parts=(*runtime.parts, others))
        if unquantized:
            note = _unquantized_note(resolved, unquantized)
            runtime = runtime._replace(
                parts=(*runtime.parts, unquantized), notes=(*runtime.notes, note)
            )
        if predicting:
            runtime = runtime._replace(parts=(*runtime.parts, predicting))
        return _as_logged(Reserve(runtime.total, runtime.low, runtime.high, runtime), resolved)

    if resolved.engine.runtime_grows:
        return cache(reserve_for)
    return reserve_for


def _other_programs(resolved: ResolvedRequest) -> RuntimePart | None:
    """Return what other programs hold of the GPU, as far as it leaves less for the cache; None if
    nothing was given.
    """
    gpu = resolved.gpu
    share = resolved.share
    engine = resolved.engine
    if not (gpu and share and gpu.other_memory):
        return None
    if resolved.has_cache and not engine.counts_others(resolved.args):
        return None
    size: int = symbol("other_memory", gpu.other_memory, "bytes that other programs hold")
    if engine.share_is_of_free:
        size = ceil_div(size * share.numerator, share.denominator)
    return RuntimePart(
        "other_memory", "other programs", int(size), quantity(size), int(size), "as given"
    )


def _unquantized(resolved: ResolvedRequest, model: ModelSpec) -> RuntimePart | None:
    """Return what 4-bit weights may take beyond the estimate, if a dtype stands for an unnamed
    checkpoint.

    The recipes of llm-compressor for gated delta nets leave their matrices in 16 bits (ignore:
    're:.*linear_attn.*' in its examples for Qwen3-Next and Qwen3.5), those of ModelOpt do not. For
    example Qwen3.6-27B in NVFP4 on 4 GPUs has 5.04 GiB on each, or 6.89. Of mixtures some quantize
    the experts only, as TheHouseOfTheDude/MiniMax-M2.5: a log of Gemma 4 26B in int4 has 2.0 GiB
    more.
    """
    usual = usual_layouts(resolved.request)
    if usual:
        return _as_in_others(resolved, model, usual)
    form = weight_format(model, resolved.workload.dtype, resolved.weights_dtype)
    if (
        form.given is None
        or form.schemes
        or form.files
        or form.experts_only
        or form.matrices.bits >= 8
    ):
        return None
    left_out = []
    for stack, layers in model.plain().groups():
        if isinstance(layers.attention, GatedDeltaNet) or (layers.mlp and layers.mlp.n_experts):
            for matrix in layers.attention.matrices(stack.d_model, stack.d_model):
                if matrix.applied_to:
                    left_out.append((layers.count, matrix))
    more = sum(
        int(n) * (int(matrix.weights) * form.rest.bits // 8 - int(form.matrix_bytes(matrix)))
        for n, matrix in left_out
    )
    label = f"attention, if left in {form.rest.name}"
    source = "vllm-project/llm-compressor, examples for Qwen3.5: ignore=['re:.*linear_attn.*']"
    if more:
        return RuntimePart("unquantized_weights", label, 0, Quantity(0), more, source)
    return None


def _as_in_others(
    resolved: ResolvedRequest, model: ModelSpec, usual: Sequence[StoredAs]
) -> RuntimePart | None:
    """Return what the weights of other known checkpoints take beyond those of the most usual one;
    None if all are as large.
    """
    weights_dtype = str(resolved.weights_dtype)
    sizes = []
    for layout in usual:
        part = with_layout(dataclasses.replace(model, quantization=None), weights_dtype, layout)
        size = weights(
            part, part=part, in_dtype=resolved.workload.dtype, weights_dtype=weights_dtype
        )
        sizes.append(int(size.total))
    low = min(sizes) - sizes[0]
    high = max(sizes) - sizes[0]
    if low == high:
        return None
    label = f"weights, if not as in {usual[0].repository}"
    return RuntimePart("unquantized_weights", label, low, Quantity(0), high, "checkpoints.txt")


def _unquantized_note(resolved: ResolvedRequest, part: RuntimePart) -> str:
    """Return what checkpoints may take beyond the estimate, as a warning, and what settles it."""
    name = resolved.weights_dtype
    more = human(Quantity(part.high), BYTES)
    if not usual_layouts(resolved.request):
        return (
            f"warning: some checkpoints in {name} leave attention in 16 bits, which takes {more} "
            "more. --keep or --weights-size says what yours does."
        )
    others = []
    if part.low:
        others.append(f"{human(Quantity(-part.low), BYTES)} less")
    if part.high:
        others.append(f"{more} more")
    return (
        f"warning: weights of other checkpoints in {name} take up to {' or '.join(others)}. Name "
        "yours, or give --keep or --weights-size."
    )


def _prediction_in_files(resolved: ResolvedRequest, model: ModelSpec) -> RuntimePart | None:
    """Return what the weights take beyond the estimate if the files of --weights-size do not have
    the layers for multi-token prediction, which were taken off (`with_size`).
    """
    if resolved.request.weights_size is None:
        return None
    layers = prediction_layers(model, 1)
    if layers is None:
        return None
    more = int(params(layers).total) * dtype(model.dtype).bits // 8
    label = "weights, if no layers for multi-token prediction are in the files"
    return RuntimePart("no_prediction_layers", label, 0, Quantity(0), more, "--weights-size")


def _as_logged(reserve: Reserve, resolved: ResolvedRequest) -> Reserve:
    """Return the runtime memory with what a log shows beyond the estimate; as it is without a
    log.
    """
    excess = resolved.request.logged_excess
    if excess:
        return reserve.with_excess(
            excess.of(int(reserve.total)), exact=excess.devices == resolved.devices
        )
    return reserve
