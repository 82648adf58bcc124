"""What fits where: the built-in models on a GPU, or one model on each GPU:
`what_fits(gpu="rtx-4090")`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...config import ModelLike
from ...config.gpus import gpu, gpu_names
from ...config.presets import preset_names
from ...cost.params import params
from ...engines import ENGINES, find_engine
from ...errors import AttncalcError
from ...ggml import FILE_TYPES
from ...hardware import Gpu
from ...model import ModelSpec
from ...options import options_of
from ...serving import vram as of_vram
from ...serving.fit import USEFUL_CONTEXT
from ...serving.request import FitRequest
from ...serving.vram import Need, quick_need
from ...serving.weight_format import released_dtype, weight_bits
from ...show.answer_rows import answers_of, ask_each
from ...show.report import Report
from ...units import count, is_auto
from ..arguments import takes
from ..inputs import DEFAULT_CONTEXT, read_model
from ..options import ModelOptions
from ..results import Result
from .engine_choice import NOT_OLLAMA, engine_of_options
from .newest import released_in
from .on_host import places_experts
from .options import ALL, EngineOptions, FitOptions, UserOptions
from .report import hardware
from .request import read_fit_request
from .vram import with_useful_context
from .what_fits_report import MOST_MODELS, verdict_of, what_fits_report

if TYPE_CHECKING:
    from typing_extensions import Unpack

TYPES_OF_FILES = ("q8_0", "q6_k", "q5_k_m", "q4_k_m")
# Narrower weights that are tried, the widest first: types of GGUF files, and dtypes of other
# engines' checkpoints.
TYPES = ("fp8", "int4")


class WhatFits(Result, of_vram.WhatFits):
    """What fits where, as `attncalc fit --gpu GPU` prints it without a model."""

    def __reduce__(self) -> tuple[Any, ...]:  # a budget has a function, which cannot be pickled
        found: of_vram.WhatFits = self._make_report.args[0]
        needs = (one._replace(budget=one.budget._replace(reserve_for=None)) for one in found.needs)
        return WhatFits.of, (found._replace(needs=tuple(needs)),)

    @classmethod
    def of(cls, found: of_vram.WhatFits) -> WhatFits:
        """Return what was found, which knows its report."""
        first = found.needs[0].resolved
        subject = hardware(first) if found.models else first.request.model.name
        return cls(*found).knowing(subject, partial(what_fits_report, found))

    def _answer(self) -> str:
        return verdict_of(self)


@takes(FitOptions)
def what_fits(model: ModelLike | None = None, **options: Unpack[FitOptions]) -> WhatFits:
    """Return the built-in models that fit on a GPU, or the GPUs on which one model fits.

    >>> what_fits(gpu="rtx-4090").needs[0].resolved.request.model.name
    'qwen3.6-35b-a3b'

    A model, as in `load`, needs `gpu="all"`. Raises AttncalcError if an option is not valid, or
    neither a GPU nor a model is named.
    """
    return WhatFits.of(find_what_fits(model, options))


def find_what_fits(
    model: ModelLike | None,
    options: FitOptions,
    most: int | None = None,
    *,
    newest_first: bool = False,
) -> of_vram.WhatFits:
    """Return what fits; arguments and errors as of `what_fits`. The search ends after the `most`
    largest or newest models.
    """
    if options.get("engine") == ALL:
        raise AttncalcError(
            "--engine all needs a model and one GPU", "name them, or name one engine"
        )
    if model is not None:
        if options.get("gpu") != ALL:
            raise AttncalcError(
                "what_fits takes a model with gpu='all' only",
                "leave the model out, or ask fit(model, gpu=GPU)",
            )
        return _on_each_gpu(model, options)
    if options.get("gpu") in (None, ALL):
        raise AttncalcError("a model or a GPU is required", "name one of them, as --gpu rtx-4090")
    return _of_each_model(options, most, newest_first=newest_first)


def what_fits_report_of(
    model: ModelLike | None, options: FitOptions, *, full: bool, is_screen: bool
) -> Report:
    """Return the report of what fits; a screen has the newest models first, and unless `full` no
    others, and is quicker.

    Raises AttncalcError as `what_fits` does.
    """
    most = MOST_MODELS if is_screen and not full else None
    found = find_what_fits(model, options, most, newest_first=is_screen)
    return what_fits_report(found, full=full, is_screen=is_screen)


def _on_each_gpu(model: ModelLike, options: FitOptions) -> of_vram.WhatFits:
    def need_on(kind: Gpu) -> Need:
        # without Ollama's default, which leaves on the host what is too large
        of_kind: FitOptions = {**options, "n_gpu_layers": options.get("n_gpu_layers"), "gpu": kind}
        request = read_fit_request(model, of_kind, is_compared=True)
        return quick_need(with_useful_context(request, options))

    kinds = sorted(map(gpu, gpu_names()), key=lambda one: one.memory)
    needs, errors = answers_of(kinds, need_on)
    if not needs:
        raise errors[0]
    return of_vram.WhatFits(tuple(needs), tuple(error.message for error in errors))


def _of_each_model(
    options: FitOptions, most: int | None, *, newest_first: bool
) -> of_vram.WhatFits:
    if is_auto(options.get("context")):
        options = {**options, "context": None}  # each model's longest is listed
    models = _models(options)
    smallest = _read(models[-1], options)
    options = {
        **options,
        "gpu": smallest.gpu,
        "gpus": smallest.gpus,
        "engine": _engine(smallest, options),
    }
    largest = None
    tried_first = models
    if newest_first:
        largest = _largest(models, options)
        tried_first = sorted(models, key=lambda model: released_in(model.name), reverse=True)
    needs: list[Need] = []
    errors: list[AttncalcError] = []
    tried = 0
    for _, found in ask_each(tried_first, partial(_in_widest_weights, options)):
        tried += 1
        if isinstance(found, AttncalcError):
            errors.append(found)
        elif found:
            needs.append(found)
        if len(needs) == most:
            break
    if not needs:
        needs = _smallest(models, options)
    if not needs:
        raise errors[-1]
    reasons = tuple(error.message for error in errors)
    return of_vram.WhatFits(tuple(needs), reasons, len(models), len(models) - tried, largest)


def _largest(models: Sequence[ModelSpec], options: FitOptions) -> Need | None:
    """Return what the largest model that fits needs; None if none fits."""
    for _, found in ask_each(models, partial(_in_widest_weights, options)):
        if found and not isinstance(found, AttncalcError):
            return found
    return None


def _smallest(models: Sequence[ModelSpec], options: FitOptions) -> list[Need]:
    """Return what the smallest model that is possible needs in its narrowest weights; [] if none
    is.
    """

    def need_of(model: ModelSpec) -> Need:
        *_, narrowest = _types(model, options)
        return quick_need(_request(model, {**options, "weights_dtype": narrowest}))

    for _, found in ask_each(reversed(models), need_of):
        if not isinstance(found, AttncalcError):
            return [found]
    return []


def _models(options: FitOptions) -> list[ModelSpec]:
    """Return the built-in models that generate text, the largest first: mixtures of experts, if an
    option places experts on the host.

    Raises AttncalcError if they cannot be changed as asked.
    """
    models = (read_model(name, options, ModelOptions) for name in preset_names())
    models = (model for model in models if model.main.has_cache)
    if places_experts(options):
        models = (model for model in models if model.has_experts)
    return sorted(models, key=lambda model: int(params(model).total), reverse=True)


def _engine(request: FitRequest, options: FitOptions) -> str:
    """Return the engine: on a card of a desktop the one that loads GGUF files, if no option
    excludes it.
    """
    weights = options.get("weights_dtype")
    of_others = {name for name in NOT_OLLAMA if options.get(name) is not None}
    is_open = (
        not of_others
        and engine_of_options(options) is None
        and (weights is None or weights in FILE_TYPES)
    )
    if request.gpu and request.gpu.runs_files and is_open:
        return next(name for name in ENGINES if find_engine(name).typed_files)
    return request.engine


def _in_widest_weights(options: FitOptions, model: ModelSpec) -> Need | None:
    """Return what the model needs in the widest weights that are sure to fit; None if none do.

    Raises AttncalcError if the model is not possible, or shorter than the context.
    """

    def need_in(dtype: str | None) -> Need | None:
        request = _request(model, {**options, "weights_dtype": dtype})
        if _is_too_large(request):
            return None
        return quick_need(request)

    errors = []
    is_possible = False
    for _, found in ask_each(_types(model, options), need_in):
        if isinstance(found, AttncalcError):  # the type does not suit the model's widths
            errors.append(found)
            continue
        is_possible = True
        if found and found.verdict == "fits":
            return found
    if errors and not is_possible:
        raise errors[0]
    return None


def _types(model: ModelSpec, options: FitOptions) -> Iterator[str | None]:
    """Yield the dtypes of weights to try, the widest first: None is as released.

    llama.cpp has q4_k_m by default on a desktop's GPU, so its files in 16 bits are named.
    """
    given = options.get("weights_dtype")
    released = released_dtype(model)
    has_files = find_engine(str(options.get("engine"))).typed_files
    if given is not None:
        yield given
        return
    yield model.dtype if has_files and released is None else None
    for name in TYPES_OF_FILES if has_files else TYPES:
        if released is None or weight_bits(name) < weight_bits(released):
            yield name


def _request(model: ModelSpec, options: FitOptions) -> FitRequest:
    """Return the request of a model. Raises AttncalcError as `fit` does, and if it is shorter than
    the context.
    """
    request = with_useful_context(_read(model, options), options)
    if request.workload.context > (model.max_context or request.workload.context):
        raise AttncalcError(
            f"their context is shorter than {count(request.workload.context)} tokens",
            "give a shorter -c",
        )
    return request


def _read(model: ModelSpec, options: FitOptions) -> FitRequest:
    """Return the request, with a useful context if neither that nor the users' requests are
    given.
    """
    of_requests = {"context", *options_of(UserOptions)}
    if not of_requests & {name for name, value in options.items() if value is not None}:
        options = {**options, "context": min(USEFUL_CONTEXT, model.max_context or DEFAULT_CONTEXT)}
    return read_fit_request(model, options, is_compared=True)


def _is_too_large(request: FitRequest) -> bool:
    """Return whether its parameters alone are larger than the memory of all GPUs; False if the host
    may have some.

    Each takes at least the bits of most weights of its type. This is quicker than the sizes of all
    tensors.
    """
    device = request.gpu
    if device is None or (_places_on_host(request) and not device.is_cpu):
        return False
    dtype = request.weights_dtype or released_dtype(request.model)
    bits = int(weight_bits(dtype)) if dtype else 16
    tp = request.tp or 1
    gpus = request.gpus or tp * request.pp * request.dp
    return int(params(request.model).total) * bits // 8 > gpus * device.memory


def _places_on_host(request: FitRequest) -> bool:
    """Return whether an option leaves some of the weights on the host."""
    for name, option in options_of(EngineOptions).items():
        if option.needs_gpu and name in request.engine_args:
            return True
    return False
