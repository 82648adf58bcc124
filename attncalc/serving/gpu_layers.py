"""The most layers on GPUs that fit in llama.cpp, and the fewest layers whose experts must be on the host."""

from __future__ import annotations

from ..engines import find_engine
from ..engines.llamacpp.options import AUTO
from ..engines.llamacpp.placement import block_count
from ..search import first_true
from .expert_parallel import has_experts
from .fit import FitRequest, possible_verdict
from .request import resolve


def with_auto_gpu_layers(request: FitRequest) -> FitRequest:
    """Return the request with a number of layers for 'auto': the most that fit for sure, or all if none do.

    With engine 'all' they are those of llama.cpp. For another engine 'auto' stays, which that engine rejects.

    Raises AttncalcError as `resolve` does.
    """
    is_all = request.engine == "all"
    if request.engine_args.get("n_gpu_layers") != AUTO or not (is_all or find_engine(request.engine).splits_by_layer):
        return request
    of_llamacpp = request.for_engine("llamacpp") if is_all else request
    found = with_layers_on_host(of_llamacpp.with_engine_args(n_gpu_layers=None))
    return request.with_engine_args(n_gpu_layers=found.engine_args["n_gpu_layers"] if found else None)


def most_gpu_layers(request: FitRequest) -> int | None:
    """Return the most layers on GPUs that fit for sure, the output layer included; None if not even none does."""
    total = _layers(request) + 1
    if _fits(_with_gpu_layers(request, total)):  # with all layers there, no GPU copies matrices from the host
        return total
    if not _fits(_with_gpu_layers(request, 0)):
        return None
    return first_true(lambda n: not _fits(_with_gpu_layers(request, n)), 0, total) - 1


def fewest_cpu_moe(request: FitRequest) -> int | None:
    """Return the fewest layers, from the first on, whose experts are on the host so that it fits for sure.

    None for a model without experts, and if it does not fit with the experts of all layers on the host.
    """
    if not has_experts(request.model):
        return None
    if _fits(_with_cpu_moe(request, 0)):
        return 0
    total = _layers(request)
    if not _fits(_with_cpu_moe(request, total)):
        return None
    return first_true(lambda n: _fits(_with_cpu_moe(request, n)), 0, total)


def with_experts_on_host(request: FitRequest) -> FitRequest | None:
    """Return the request with the experts of as few layers on the host as fit; None if none need be, or all do not."""
    layers = fewest_cpu_moe(request)
    return _with_cpu_moe(request, layers) if layers else None


def with_layers_on_host(request: FitRequest) -> FitRequest | None:
    """Return the request with as many layers on GPUs as fit; None if all are, or none fits."""
    layers = most_gpu_layers(request)
    return None if layers is None or layers > _layers(request) else _with_gpu_layers(request, layers)


def _layers(request: FitRequest) -> int:
    """Return llama.cpp's layers, without the output layer."""
    return block_count(request.model.main.n_layers, resolve(request).args)


def _fits(request: FitRequest) -> bool:
    return possible_verdict(request) == "fits"


def _with_gpu_layers(request: FitRequest, layers: int) -> FitRequest:
    return request.with_engine_args(n_gpu_layers=layers)


def _with_cpu_moe(request: FitRequest, layers: int) -> FitRequest:
    return request.with_engine_args(n_cpu_moe=layers)
