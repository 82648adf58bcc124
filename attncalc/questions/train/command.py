"""`attncalc train`: whether a training run fits on its GPUs, and what a step costs."""

import re
from typing import Annotated, ClassVar

import typer

from ...cli import options as o
from ...cli.command import Options, command
from ...cli.plot_options import PlotOptions
from ...errors import AttncalcError
from ...show.lists import tell
from ...units import BYTES, GIB, human, parse_amount, truncate
from ..log_content import content
from .answer import request_report, trainable_report
from .options import GROUPS, TrainOptions
from .request import asks_for_models, read_train_request


class ScreenOptions(Options):
    """What the screen shows besides the answer; JSON and CSV always have every figure."""

    LAST: ClassVar[bool] = True

    log: Annotated[
        o.Text, o.option("--log", metavar="FILE", help="A log with CUDA's out-of-memory error.")
    ] = None
    # a pasted command or a file sets it
    launcher: Annotated[o.Text, typer.Option("--launcher", hidden=True)] = None
    full: Annotated[bool, typer.Option("--full", help="Also show FLOPs, stages and all notes.")] = (
        False
    )


_SIZE = r"(\d{1,12}(?:\.\d\d)? (?:bytes|[KMG]iB))"
_ERROR = re.compile(
    r"(?s)Tried to allocate S\. .{0,20}? capaci?ty of S of which S is free.{0,900}?memory S is "
    r"allocated by "
    r"PyTorch.{0,80}?, and S is reserved".replace("S", _SIZE)
)
# Of PyTorch 2.0.
_OLDER_ERROR = re.compile(
    r"Tried to allocate S \(GPU \d+; S total capacity; "
    r"S already allocated; S free; S reserved".replace("S", _SIZE)
)


@command(headings=GROUPS)
def train(
    model: o.NamedModel,
    options: TrainOptions,
    screen: ScreenOptions,
    plot: PlotOptions,
    output: o.CheckedOutputOptions,
) -> None:
    plot.check(output, excludes={"--gpu all": options.get("gpu") == "all"})
    options = _with_log(screen.log, options) if screen.log else options
    if not screen.log and asks_for_models(options, has_model=model.describes(options)):
        plot.write(
            trainable_report(options, full=screen.full),
            output,
            needs=("a model", "it draws its memory"),
        )
        raise typer.Exit
    if not model.describes(options):
        o.check_numbers(options)
    trained = model.name_or_sizes(options)
    o.note_file_types(trained)
    request = read_train_request(trained, options)._replace(launcher=screen.launcher or "")
    report = request_report(request, full=screen.full)
    plot.write(report, output)
    raise typer.Exit(1 if report.verdict == "does_not_fit" else 0)


def _with_log(log: str, options: TrainOptions) -> TrainOptions:
    """Return the options with the GPU of an error, whose figures are explained. Raises
    AttncalcError without one.
    """
    text = content(log).decode(errors="replace")
    match = _ERROR.search(text) or _OLDER_ERROR.search(text)
    if match is None:
        raise AttncalcError(
            f"{truncate(log)} has no out-of-memory error of PyTorch", "give its lines too"
        )
    amounts = [parse_amount(size.replace(" bytes", "B"), "a size") for size in match.groups()]
    asked, total, free, tensors, idle = (
        amount.numerator // amount.denominator for amount in amounts
    )
    if match.re is _OLDER_ERROR:  # in another order; what is reserved includes the tensors
        tensors, free, idle = free, tensors, idle - free
    others = max(0, total - free - tensors - idle)
    means = ""
    if asked <= free + idle:
        means += "; --expandable-segments is enough"
    if others > 3 * GIB // 2:  # a CUDA context and NCCL take less
        means += "; nvidia-smi lists the others"
    figures = "{} asked for, of {} {} free; tensors held {}, PyTorch {} besides, others {}".format(
        *(human(size, BYTES) for size in (asked, total, free, tensors, idle, others))
    )
    tell(f"note: {figures}{means}")
    return {"gpu": f"{total / GIB:.2f}GiB", **options}
