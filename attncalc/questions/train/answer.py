"""What training costs, in one call: `train("llama3-8b", gpu="h100", gpus=8, zero=3)`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ...config import ModelLike
from ...config.gpus import gpu as gpu_of
from ...config.gpus import gpu_names
from ...config.presets import preset_names
from ...cost.params import params
from ...cost.training.fits import (
    TrainResult,
    changes,
    fewest_gpus,
    train_result,
    ways_to_tune,
    widest_tuned,
)
from ...cost.training.work import duration, work
from ...errors import AttncalcError
from ...show.answer_rows import answers_of
from ...show.report import Report
from ...show.verdicts import VERDICTS
from ...units import BYTES, human
from ..arguments import takes
from ..results import Result, model_subject, workload_subject
from .figures import Answer
from .heading import hardware_text
from .list_report import gpus_report, models_report
from .options import TrainOptions
from .report import train_report
from .request import USUAL_MFU, TrainRequest, read_train_request

if TYPE_CHECKING:
    from typing_extensions import Unpack


_USUAL_GPUS = ("rtx-4090", "h100-80gb", "h200")


class Train(Result, TrainResult):
    """What training costs, as `attncalc train` prints it."""

    # a budget has the model's tables, and is computed again
    def __reduce__(self) -> tuple[Any, ...]:
        return _train, self._make_report.args

    def __bool__(self) -> bool:
        """Return whether it fits; true without a GPU."""
        return self.verdict != "does_not_fit"

    def to_dict(self) -> dict[str, int | float | str | bool | None]:
        """Return `verdict`, then {name: number} of the figures, as in `results` of `--json`."""
        return {"verdict": self.verdict, **super().to_dict()}

    def _answer(self) -> str:
        words = f"{VERDICTS[self.verdict].lower()}, " if self.verdict else ""
        return f"{words}{human(self.low, BYTES)} to {human(self.high, BYTES)}"


@takes(TrainOptions)
def train(model: ModelLike | None = None, **options: Unpack[TrainOptions]) -> Train:
    """Return what a training step needs on each GPU.

    >>> train("llama3-8b", gpu="h100", gpus=8, zero=3, recompute="full").verdict
    'fits'

    The options are those of `attncalc train`. Without a model, they have its sizes.

    Raises AttncalcError if the model or an option is not valid, or what a layer saves is not known.
    """
    return _train(read_train_request(model, options))


def _train(request: TrainRequest) -> Train:
    result = Train(*request_answer(request).result)
    run = result.run
    where = hardware_text(run.gpu, run.gpus)
    subject = f"{model_subject(run.model)} on {where}, {workload_subject(run.workload)}"
    return result.knowing(subject, partial(request_report, request))


def request_answer(
    request: TrainRequest, *, with_changes: bool = True, plain: bool = False
) -> Answer:
    """Return the answer of a request of one GPU, with changes that make it fit unless they are not
    wanted.

    With `plain` the activations carry no formulas, which is faster.

    Raises AttncalcError if the GPU has no FLOP/s for the dtype and a time is asked for.
    """
    run = request.run
    time = None
    result = train_result(run, plain=plain)
    of_work = work(run)
    if request.tokens and run.gpu:
        mfu = request.mfu or USUAL_MFU
        peak = run.gpu.peak(run.dtype)
        time = duration(run, of_work, request.tokens, mfu, peak, request.price)
        time = time._replace(assumes_mfu=request.mfu is None, within=request.within)
    needs_changes = with_changes and result.verdict in ("may_not_fit", "does_not_fit")
    if with_changes and run.gpu is None and run.gpus == 1:
        usual = [*map(gpu_of, _USUAL_GPUS)]
    else:
        usual = []
    asked = request.asked
    ways = ways_to_tune(asked) if usual else {}
    fewest = tuple(
        (gpu, {way: fewest_gpus(one.asked, gpu) for way, one in ways.items()}) for gpu in usual
    )
    by_way = {
        way: train_result(one.run, plain=True) for way, one in ways.items() if run.lora is None
    }
    found = changes(asked) if needs_changes else ()
    searched = tuple(change._replace(asked=request.searched(change.asked)) for change in found)
    return Answer(
        result, of_work, time, request.auto, searched, fewest, by_way, asked, request.launcher
    )


def trainable_report(options: TrainOptions, *, full: bool = False) -> Report:
    """Return the built-in models that can be trained on a GPU, the largest first. Raises
    AttncalcError if none can.
    """
    # a kind without a training path, or a model that is shorter, for example, has an error
    answers, _ = answers_of(preset_names(), partial(_widest_tuned, options))
    found = [answer for answer in answers if answer]
    if not found:
        read_train_request(preset_names()[-1], options)  # raises the error of an option
        raise AttncalcError(
            "no built-in model is sure to fit", "give shorter sequences, as -c 512, or a larger GPU"
        )
    return models_report(
        sorted(found, key=lambda of: -int(params(of.result.run.model).total)), full=full
    )


def _widest_tuned(options: TrainOptions, name: str) -> Answer | None:
    """Return the answer of a model with the changes that train most of its weights; None if it is
    not sure to fit.
    """
    request = read_train_request(name, options)
    change = widest_tuned(request.asked)
    if change is None:
        return None
    answer = request_answer(request._replace(run=change.run), with_changes=False, plain=True)
    return answer._replace(changes=(change,))


def request_report(request: TrainRequest, *, full: bool = False) -> Report:
    """Return the report of a request: of one GPU, or one row per known GPU."""
    if not request.all_gpus:
        return train_report(request_answer(request), full=full)
    answers, errors = answers_of(gpu_names(), partial(_on_gpu, request))
    if not answers:
        raise errors[0]
    return gpus_report(answers, as_asked=request.run, full=full)


def _on_gpu(request: TrainRequest, name: str) -> Answer:
    """Return the answer of a request on one GPU, as with --gpu. Raises AttncalcError if an option
    cannot be on that GPU.
    """
    asked = request.asked.changed(gpu=gpu_of(name))
    run = request.searched(asked).run
    return request_answer(request._replace(run=run, options=asked.options), with_changes=False)
