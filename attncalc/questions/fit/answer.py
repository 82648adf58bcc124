"""What fits, in one call: `fit("qwen3-8b", gpu="h100", context=8192)`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, overload

from ...config import ModelLike, load
from ...errors import AttncalcError, clash
from ...hardware import Gpu
from ...model import ModelSpec, plural
from ...serving import fit as of_fit
from ...serving import roofline as of_roofline
from ...serving import users as of_users
from ...serving.answer import Answer, lower_bounds
from ...serving.cache_read import ONE_DEVICE, ServingConfig
from ...serving.launch import launch_command
from ...serving.request import FitRequest, ResolvedRequest, resolve
from ...show.report import Figure
from ...show.users import user_figures
from ...show.verdicts import VERDICTS
from ...units import SECONDS, count
from ...what_if import no_model
from ...workload import Workload
from ..arguments import takes
from ..results import Result, model_subject, workload_subject
from .figures import text_length
from .options import ALL, FitOptions
from .report import answer_report, fit_report, hardware
from .request import read_fit_request
from .roofline import roofline_figures, roofline_report

if TYPE_CHECKING:
    from typing_extensions import Unpack


class FitResult(Result, of_fit.FitResult):
    """What fits, as `attncalc fit` prints it."""

    if TYPE_CHECKING:  # figures that most callers need; `dir` lists them all
        concurrency: float
        kv_tokens: int | None

    @property
    def launch_command(self) -> str | None:
        """The command that starts the engine; None if there is none."""
        return launch_command(self.resolved)

    # the engine's defaults have functions, which cannot be pickled
    def __reduce__(self) -> tuple[Any, ...]:
        return fit, (self.request,)

    def __bool__(self) -> bool:
        """Return whether it fits."""
        return self.fits

    def to_dict(self) -> dict[str, int | float | str | bool | None]:
        """Return `fits` and `verdict`, then {name: number} of the figures, as in `results` of
        `--json`.
        """
        return {"fits": self.fits, "verdict": self.verdict, **super().to_dict()}

    def _answer(self) -> str:
        if self.refusal:
            return "does not start"
        batch = self.max_batch
        texts = self.step_texts(text_length(self))
        if texts is not None:
            each = f"{plural(int(texts), 'text')} of {count(text_length(self))} tokens"
            return f"{VERDICTS[self.verdict].lower()}, {each} per step"
        if batch is None:
            requests = "no limit of requests"
        else:
            requests = plural(batch, "concurrent request")
        return f"{VERDICTS[self.verdict].lower()}, {requests}"


class Users(Result, of_users.Users):
    """How many users' requests run concurrently, as `attncalc fit` prints it."""

    FIGURES: ClassVar[tuple[str, ...]] = tuple(figure.name for figure in user_figures(None))

    def _answer(self) -> str:
        average, worst = ("no limit" if n is None else count(n) for n in (self.average, self.worst))
        return f"{average} on average, {worst} at worst"


class Roofline(Result, of_roofline.Roofline):
    """Bounds on time, as `attncalc fit --roofline` prints them."""

    FIGURES: ClassVar[tuple[str, ...]] = tuple(figure.name for figure in roofline_figures(None))

    def _answer(self) -> str:
        steps = [("prefill", self.prefill), ("decode step", self.decode)]
        times = [
            f"{name} {Figure('', '', step.seconds, SECONDS).human}" for name, step in steps if step
        ]
        return f"at least {', '.join(times)}"


@takes(FitOptions)
def fit(model: ModelLike | FitRequest | None = None, **options: Unpack[FitOptions]) -> FitResult:
    """Return what fits on GPUs, or in a memory that an engine reported.

    >>> fit("qwen3-8b", gpu="h100", context=8192).fits
    True

    Args:
        model: As in `load`, or a FitRequest, without options. Without it, the options have its
            sizes.
        options: The options of `attncalc fit`.

    Raises AttncalcError if the model or an option is not valid, or the engine does not support the
    model.
    """
    request = _request(model, options)
    result = FitResult(*of_fit.fit(request))
    return result.knowing(_subject(result.resolved), partial(answer_report, Answer(result)))


@overload
def users(model: ResolvedRequest) -> Users | None: ...
@overload
def users(model: ModelLike | None = None, **options: Unpack[FitOptions]) -> Users: ...
@takes(FitOptions)
def users(model: ModelLike | ResolvedRequest | None = None, **options: Any) -> Users | None:
    """Return how many users' requests run concurrently.

    >>> users("llama3-8b", kv_memory="20GiB", prompt=4096, output=1024)
    Users(llama3-8b on one device, vLLM, batch 1, context 5,120, bf16: 35 on average, 31 at worst)

    Args:
        model: As in `load`; or a complete request, without options, for which the answer is None
            without users.
            Without it, the options have its sizes.
        options: The options of `attncalc fit`: `prompt` with `output`, or `lengths`, are needed.

    Raises AttncalcError if the model or an option is not valid, or there are no users' requests.
    """
    if isinstance(model, ResolvedRequest):
        resolved = model
    else:
        resolved = resolve(_request(model, options))
    answer = of_users.users(resolved)
    if answer is None:
        if isinstance(model, ResolvedRequest):
            return None
        raise AttncalcError(
            "users needs --prompt and --output-len",
            'give the tokens of a request: prompt="4K", output="1K"',
        )
    return Users(*answer).knowing(_subject(resolved), partial(fit_report, resolved.request))


@overload
def roofline(
    model: ModelSpec,
    workload: Workload,
    gpu: Gpu,
    *,
    weights_dtype: str | None = None,
    config: ServingConfig = ONE_DEVICE,
) -> Roofline: ...
@overload
def roofline(model: ModelLike | None = None, **options: Unpack[FitOptions]) -> Roofline: ...
@takes(FitOptions)
def roofline(
    model: ModelLike | None = None,
    workload: Workload | None = None,
    gpu: Any = None,
    *,
    config: ServingConfig = ONE_DEVICE,
    **options: Any,
) -> Roofline:
    """Return lower bounds of the time of a prefill and of a decode step on a GPU.

    >>> roofline("qwen3-8b", gpu="h100", context=8192).decode.bound_by
    'memory'

    Args:
        model: As in `load`. Without it, the options have its sizes.
        workload: The workload, instead of options that describe one; then `gpu` is a Gpu.
        gpu: The GPU.
        config: The engine's settings, with a workload.
        options: The options of `attncalc fit`.

    Raises AttncalcError if the model or an option is not valid, or the GPU has no FLOP/s for the
    dtype.
    """
    if workload is None:
        resolved = resolve(_request(model, {**options, "gpu": gpu}))
        if resolved.gpu is None:
            raise AttncalcError(
                "roofline needs --gpu",
                "give the GPU, as --gpu h100-80gb: its FLOP/s and bandwidth bound the times",
            )
        found = lower_bounds(resolved)
        spec = resolved.model
        workload = found.workload
        gpu = resolved.gpu
    elif model is None:
        raise no_model()
    elif not isinstance(gpu, Gpu):
        raise AttncalcError(
            "roofline with a Workload needs a Gpu", 'give gpu=attncalc.gpu("h100-80gb")'
        )
    else:
        spec = load(model)
        weights_dtype = options.get("weights_dtype")
        found = of_roofline.roofline(
            spec, workload, gpu, weights_dtype=weights_dtype, config=config
        )
    bounds = Roofline(*found)
    subject = f"{model_subject(spec)} on {gpu.title}, {workload_subject(workload)}"
    return bounds.knowing(subject, partial(roofline_report, spec, workload, bounds))


def _request(model: ModelLike | FitRequest | None, options: Mapping[str, Any]) -> FitRequest:
    """Return the request. Raises AttncalcError if it is combined with options."""
    given = {name: value for name, value in options.items() if value is not None}
    if given.get("gpu") == ALL:
        raise AttncalcError(
            "this call is about one GPU", 'attncalc.what_fits(model, gpu="all") has a row of each'
        )
    if not isinstance(model, FitRequest):
        return read_fit_request(model, given)  # type: ignore[arg-type]
    if given:
        raise clash(next(iter(given)), "a FitRequest", "make it a field of the FitRequest")
    return model


def _subject(resolved: ResolvedRequest) -> str:
    """Return a request in a few words: 'qwen3-8b on one NVIDIA L4, vLLM, batch 1, context 8,192,
    bf16'.
    """
    return (
        f"{resolved.request.model.name} on {hardware(resolved)}, {resolved.engine.title}, "
        f"{workload_subject(resolved.whole_workload)}"
    )
