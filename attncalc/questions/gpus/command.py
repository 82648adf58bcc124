"""`attncalc gpus`: the known GPUs; one of them with all its facts and sources, or several side by
side.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import typer

from ...cli import options as o
from ...cli.command import Options, command
from ...config.gpus import gpu_like, gpu_names, gpus_of
from ...errors import AttncalcError, BadValueError, CannotCheckError, is_valid, known_tip
from ...hardware import Gpu
from ...units import truncate
from .report import SORT_KEYS, gpu_report, gpus_report

# The tip of an error about a GPU, where no name is similar.
_TIP = "'attncalc gpus' lists the known GPUs"


def _known(name: str) -> Gpu:
    """Return a GPU, also local. Raises AttncalcError for a number, as of '2xh100' or an instance of
    8 GPUs, or if only its memory is known.
    """
    try:
        number, found = gpus_of(name)
    except CannotCheckError as error:
        raise CannotCheckError(error.message.removeprefix("--gpu "), _TIP) from None
    except BadValueError as error:
        if "," in name:
            tip = f"write {truncate(name.replace(',', ' '))}"
        else:
            tip = f"{gpu_like(name)}{_TIP}"
        raise BadValueError(error.message, tip) from None
    if number is not None and found.instance and number > 1:
        raise AttncalcError(
            f"{truncate(name)} has {number} x {found.name}",
            f"'attncalc gpus {found.name}' shows one of them",
        )
    if number is not None and not found.instance and not found.is_local:
        raise AttncalcError(
            f"{truncate(name)} is a number of GPUs",
            f"'attncalc gpus {found.name}' shows one of them",
        )
    if not found.flops:
        raise AttncalcError(
            f"{found.title}: only its memory is known", "'attncalc gpus' lists the known GPUs"
        )
    return found


def _all_known(names: Sequence[str]) -> list[Gpu]:
    """Return several GPUs. Raises AttncalcError as `_known` does; if the names together are one
    GPU, as 'rtx' and '4090', the tip is that name in quotes.
    """
    try:
        return [_known(name) for name in names]
    except BadValueError as error:
        whole = " ".join(names)
        if is_valid(gpus_of, whole):
            tip = f"a name of several words is in quotes: attncalc gpus '{truncate(whole)}'"
            raise BadValueError(error.message, tip) from None
        raise


class ScreenOptions(Options):
    """What the screen shows."""

    LAST: ClassVar[bool] = True

    full: Annotated[
        bool, typer.Option("--full", help="Also show the notes and sources of one GPU.")
    ] = False


@command(values={"FIGURE": lambda: SORT_KEYS})
def gpus(
    screen: ScreenOptions,
    output: o.OutputOptions,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Show one with its sources, or several side by side: names, or .yaml files of "
            "your own. Default: all.",
            metavar="[GPU]...",
        ),
    ] = None,
    sort: Annotated[
        o.Text,
        o.option(
            "--sort",
            metavar="FIGURE",
            help=f"Sort the list: {', '.join(SORT_KEYS)}, largest first.",
        ),
    ] = None,
) -> None:
    if sort is not None and sort not in SORT_KEYS:
        raise AttncalcError(
            f"--sort: there is no column '{truncate(sort)}'", known_tip(sort, SORT_KEYS)
        )
    if names and len(names) == 1 and sort is None:
        output.show(gpu_report(_known(names[0]), full=screen.full))
        return
    if screen.full:
        raise AttncalcError("--full shows one GPU", "name one, as attncalc gpus h100 --full")
    output.show(gpus_report(_all_known(names or gpu_names()), sort=sort, named=bool(names)))
