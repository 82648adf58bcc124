"""`attncalc sweep`: a row for every combination of models, contexts, batches, dtypes, GPUs and
other options.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from inspect import unwrap
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from ...cli import options as o
from ...cli.command import Options, command
from ...cli.plot_options import PlotFileOptions
from ...errors import AttncalcError
from ...show.formats import ROW_FORMATS, TABLE, Format, choose_row_format, goes_to_file
from ...units import parse_count
from ...what_if import SIZES
from ..fit.options import GROUPS
from ..options import TrainingOptions
from .axes import SweepOptions
from .options import RowOptions
from .others import OTHERS

# The most processes of a sweep.
_MAX_JOBS = 256


class _Columns(Options):
    """Which figures, and how many processes compute them.

    Attributes:
        processes: The number of processes.
    """

    columns: Annotated[
        o.Text,
        o.option(
            "--columns",
            "--show",
            metavar="NAME,...",
            help="Figures as JSON calls them: kv_cache, concurrency, ...",
        ),
    ] = None
    jobs: Annotated[
        o.Text,
        o.option(
            "--jobs",
            "-j",
            metavar="N",
            help="Processes that compute rows; pays for long sweeps. Default: 1.",
        ),
    ] = None

    def __init__(self, **values: Any) -> None:
        """Raise AttncalcError if --jobs is not from 1 to _MAX_JOBS: '-j llama3-8b' lacks the
        number, and not the model.
        """
        super().__init__(**values)
        self.processes = 1 if self.jobs is None else parse_count(self.jobs, "--jobs")
        if self.processes > _MAX_JOBS:
            raise AttncalcError(
                f"--jobs {self.processes} is more than {_MAX_JOBS} processes",
                "give the number of your CPU cores",
            )


class RowOutputOptions(o.ReportOptions):
    """Where the rows go, and in which format."""

    RARE: ClassVar[frozenset[str]] = frozenset()

    format: Annotated[
        o.Text,
        o.option(
            "--format",
            metavar="FORMAT",
            help=f"{TABLE}, {', '.join(ROW_FORMATS)}. Default: {TABLE} on a terminal, else csv.",
        ),
    ] = None
    output: Annotated[
        Path | None, o.output_option(*(known.suffixes[0] for known in ROW_FORMATS.values()))
    ] = None

    def check_format(self) -> None:
        chosen = choose_row_format(self.form_name, self.output, on_terminal=False)
        if chosen:
            chosen.check(self.output)

    def form(self) -> Format | None:
        """Return the format; None for the screen, which is the default on a terminal."""
        return choose_row_format(
            self.form_name, self.output, on_terminal=self.plain or sys.stdout.isatty()
        )


def _models(named: o.NamedModels, options: Mapping[str, Any]) -> list[Any]:
    """Return the models; without any, the one of the first of each size, which the rows change."""
    sizes = {name: str(options[name]) for name in SIZES & options.keys()}
    is_open = "head_dim" not in sizes and re.search(
        "[,:]", f"{sizes.get('heads')} {sizes.get('d_model')}"
    )
    models = named.names_or_sizes(
        {} if is_open else {name: re.split("[,:]", text)[0] for name, text in sizes.items()}
    )
    lists = (model.split(",") if isinstance(model, str) else [model] for model in models)
    return [model for several in lists for model in several]


_HEADINGS = {
    **{other.heading: (other.axes,) for other in OTHERS.values()},
    "Options": (TrainingOptions,),
    **GROUPS,
    "Rows": (*(other.flag for other in OTHERS.values()), RowOptions),
}


def _names_of_columns() -> Iterable[str]:
    from .columns import COSTS, OF_FIT, OF_OTHERS

    return dict.fromkeys((*COSTS, *OF_FIT, *OF_OTHERS))


@command(
    headings=_HEADINGS,
    values={"COLUMN": _names_of_columns, "--columns": _names_of_columns},
    has_axes=True,
)
def sweep(
    models: o.NamedModels,
    options: SweepOptions,
    columns: _Columns,
    plot: PlotFileOptions,
    output: RowOutputOptions,
) -> None:
    plot.check(
        output, excludes={f"--{name}": bool(options.get(name)) for name in ("where", "sort", "top")}
    )
    from .call import sweep as sweep_of
    from .grid import for_screen
    from .output import write_sweep

    form = output.form()
    found = _models(models, options)
    # errors name options, as typed
    rows = unwrap(sweep_of)(found, columns=columns.columns, **options)
    screen = for_screen(rows) if form is None and columns.columns is None else rows
    force = output.force and (plot.plot is None or goes_to_file(output.output))

    def write() -> int:
        return write_sweep(
            screen,
            form,
            output=output.output,
            force=force,
            plain=output.plain,
            jobs=columns.processes,
        )

    if plot.plot is None:
        raise typer.Exit(write())
    from .picture import for_picture, sweep_picture

    picture = sweep_picture(for_picture(rows, chosen=columns.columns is not None))
    raise typer.Exit(plot.draw_beside(picture, picture.default, output, write) or 0)
