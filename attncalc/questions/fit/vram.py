"""How much GPU memory a model needs, in one call: `vram("llama3.1-8b", context=8192)`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...config import ModelLike
from ...config.gpus import gpu, gpu_with
from ...cost.params import params
from ...engines import find_engine
from ...errors import AttncalcError
from ...hardware import Gpu
from ...records import NamedTuple
from ...serving import vram as of_vram
from ...serving.fit import USEFUL_CONTEXT, possible_verdict, sure_limits
from ...serving.request import FitRequest, resolve
from ...serving.vram import fewest_gpus, need, smallest
from ...show.answer_rows import answers_of
from ...show.report import Report
from ...units import BYTES, human, is_auto
from ..arguments import takes
from ..inputs import DEFAULT_CONTEXT
from ..results import Result, workload_subject
from .options import ALL, FitOptions
from .request import fit_request, read_fit_request
from .vram_report import vram_report

if TYPE_CHECKING:
    from typing_extensions import Unpack

# A common GPU of each size of memory, the smallest first.
USUAL_GPUS = (
    "rtx-4060",
    "rtx-4070",
    "rtx-4080",
    "rtx-4090",
    "rtx-5090",
    "rtx-6000-ada",
    "h100-80gb",
    "rtx-pro-6000",
    "h200",
    "b200",
    "mi325x",
    "b300",
)
# GPUs of a kind that are tried; more of the largest, if no kind has enough.
MOST_GPUS = 8
_MOST_OF_LARGEST = 512
# A context that is shown beside the one that is asked for.
LONG_CONTEXT = 32 * 1024
# Types of GGUF files that are published of most models, the largest first.
QUANTS = ("q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_m", "q2_k")
_DESKTOP_GPUS = USUAL_GPUS[:4]
# Bits per parameter that the smallest type has at least.
_LEAST_BITS = 2


class VramRequest(NamedTuple):
    # The request at each context, without a GPU and first as asked
    requests: tuple[FitRequest, ...]
    # (type of GGUF files, the request with it), the largest first; () if types are not searched for
    quantized: tuple[tuple[str, FitRequest], ...] = ()
    assumes_context: bool = False  # whether the context was not given
    lists_quants: bool = False  # whether the longest context with each of these types is asked for

    def need(self, i: int = 0) -> of_vram.Need:
        """Return what one of the requests needs on the smallest GPU. Raises AttncalcError as
        `smallest` does.
        """
        return smallest(self.requests[i], gpu_with("1GiB"))


class Vram(Result, of_vram.Vram):
    """The GPU memory that a model needs, as `attncalc fit` prints it without a GPU."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _vram, self._make_report.args

    def _answer(self) -> str:
        return f"{human(self.low, BYTES)} to {human(self.high, BYTES)}"


@takes(FitOptions)
def vram(model: ModelLike | None = None, **options: Unpack[FitOptions]) -> Vram:
    """Return the GPU memory that a model needs, and the GPUs that have it.

    >>> vram("llama3.1-8b", context=8192)
    Vram(llama3.1-8b, vLLM, batch 1, context 8,192, bf16: 17.7 GiB to 20.4 GiB)

    Args:
        model: As in `load`. Without it, the options have its sizes.
        options: The options of `attncalc fit`, without `gpu`.

    Raises AttncalcError if the model or an option is not valid, the engine does not support the
    model, or a GPU is given, for which `fit` answers.
    """
    if options.get("gpu") is not None or options.get("kv_memory") is not None:
        name = "gpu" if options.get("gpu") is not None else "kv_memory"
        if options.get("gpu") == ALL:
            call = 'what_fits(model, gpu="all")'
        else:
            call = f"fit(model, {name}=...)"
        raise AttncalcError(f"vram has no {name}", f"ask whether it fits: attncalc.{call}")
    return _vram(read_vram_request(model, options))


def read_vram_request(
    model: ModelLike | None, options: FitOptions, *, lists_quants: bool = False
) -> VramRequest:
    """Return the request that the options of `attncalc fit` describe without a GPU.

    `lists_quants` asks for the longest context with each type of GGUF files. Raises AttncalcError
    as `read_fit_request` does, and if an option needs a GPU.
    """
    if options.get("engine") == ALL:
        raise AttncalcError(
            "--engine all needs one GPU", "name it, as --gpu h100-80gb; or name one engine"
        )
    if is_auto(options.get("context")):
        raise AttncalcError(
            "--context auto needs --gpu", "give the GPU, as --gpu rtx-4090; or a context, as -c 8K"
        )
    request = with_useful_context(read_fit_request(model, options), options)
    own = request.model.max_context
    quantized = tuple(_quantized(request, options))
    if lists_quants and not quantized:
        raise AttncalcError(
            "--quants without --gpu needs a model for llama.cpp that a GPU of 24 GB may hold",
            "give the GPU, as --gpu 48GB",
        )
    contexts = [request.workload.context]
    for tokens in (LONG_CONTEXT, own):
        if tokens and contexts[-1] < tokens <= (own or tokens):
            contexts.append(tokens)
    return VramRequest(
        tuple(request.with_workload(context=tokens) for tokens in contexts),
        quantized,
        assumes_context=request.workload.context == USEFUL_CONTEXT
        and options.get("context") is None,
        lists_quants=lists_quants,
    )


def with_useful_context(request: FitRequest, options: FitOptions) -> FitRequest:
    """Return the request; if neither a context nor a name that implies one is given, with a useful
    context.

    Users' requests imply one, and so does 'llama3.1:8b', OLLAMA_CONTEXT_LENGTH, if that is set.
    """
    default = request.model.max_context or DEFAULT_CONTEXT
    if options.get("context") is not None or request.traffic or request.workload.context != default:
        return request
    return request.with_workload(context=min(USEFUL_CONTEXT, request.workload.context))


def vram_request_report(request: VramRequest, *, full: bool = False) -> Report:
    """Return the report of a request. Raises AttncalcError as `fit` does."""
    return vram_report(_found(request), full=full)


def _vram(request: VramRequest) -> Vram:
    found = Vram(*_found(request))
    resolved = found.asked.resolved
    subject = (
        f"{resolved.request.model.name}, {resolved.engine.title}, "
        f"{workload_subject(resolved.whole_workload)}"
    )
    return found.knowing(subject, partial(vram_request_report, request))


def _found(request: VramRequest) -> of_vram.Vram:
    gpus: list[of_vram.UsualGpu] = []
    for name in reversed(USUAL_GPUS):
        found = _usual_gpu(name, request, MOST_GPUS if gpus else _MOST_OF_LARGEST)
        if found is None:
            continue
        is_constant = len(set(found.fewest)) == 1
        if gpus and is_constant and gpus[0].fewest == found.fewest:
            gpus.pop(0)  # as few of the smaller one are enough
        gpus.insert(0, found)
    return of_vram.Vram(
        needs=tuple(map(request.need, range(len(request.requests)))),
        gpus=tuple(gpus),
        quants=tuple(_largest_quants(request.quantized)),
        quant_contexts=tuple(_quant_contexts(request.quantized)) if request.lists_quants else (),
        assumes_context=request.assumes_context,
    )


def _usual_gpu(name: str, request: VramRequest, most: int) -> of_vram.UsualGpu | None:
    """Return the fewest GPUs of a kind for each context; None if `most` do not hold the first."""
    kind = gpu(name)
    first, *longer = (dataclasses.replace(one, gpu=kind) for one in request.requests)
    found = fewest_gpus(first, most)
    if found is None:
        return None
    on_them = need(found)
    fewest: list[int | None] = [on_them.resolved.gpus]
    for one in longer:
        more = fewest_gpus(one, most, above=fewest[-1] - 1) if fewest[-1] else None
        fewest.append(resolve(more).gpus if more else None)
    return of_vram.UsualGpu(name, on_them, tuple(fewest))


def _quantized(request: FitRequest, options: FitOptions) -> list[tuple[str, FitRequest]]:
    """Return the request with each type of GGUF files, if the options leave the weights and the
    engine open.
    """
    least = int(params(request.model).total) * _LEAST_BITS // 8
    if request.weights_dtype is not None or request.model.stored is not None:
        return []
    if least >= gpu(_DESKTOP_GPUS[-1]).memory:
        return []

    def in_type(name: str) -> tuple[str, FitRequest]:
        of_type = {**options, "weights_dtype": name, "context": request.workload.context}
        return name, fit_request(request.model, of_type)

    # a type may not suit the model's widths, or an option be another engine's
    found, _ = answers_of(QUANTS, in_type)
    return [(name, one) for name, one in found if find_engine(one.engine).typed_files]


def _largest_quants(quantized: Sequence[tuple[str, FitRequest]]) -> list[tuple[int, str | None]]:
    """Return (GB of a GPU, the largest type that it holds) of GPUs in desktops and laptops."""
    if not quantized:
        return []
    return [(kind.memory_gb, _largest_quant(quantized, kind)) for kind in map(gpu, _DESKTOP_GPUS)]


def _largest_quant(quantized: Sequence[tuple[str, FitRequest]], kind: Gpu) -> str | None:
    for name, request in quantized:
        if possible_verdict(dataclasses.replace(request, gpu=kind)) == "fits":
            return name
    return None


def _quant_contexts(
    quantized: Sequence[tuple[str, FitRequest]],
) -> list[tuple[str, tuple[int, ...]]]:
    """Return (type, the longest context that surely fits on each GPU of desktops and laptops); 0 if
    none does.
    """
    found = []
    for name, request in quantized:
        longest = []
        for kind in map(gpu, _DESKTOP_GPUS):
            context, _ = sure_limits(resolve(dataclasses.replace(request, gpu=kind)))
            longest.append(context)
        found.append((name, tuple(longest)))
    return found
