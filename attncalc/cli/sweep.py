"""`attncalc sweep`: a row for every combination of models, contexts, batches, dtypes, GPUs and other options."""

from __future__ import annotations

import typer

from ..api.fit_options import GROUPS
from ..report.formats import goes_to_file
from ..sweeps.options import SweepOptions
from . import COMMANDS
from . import sweep_options as s
from .command import command_app
from .plot_options import PlotFileOptions

app = command_app()

EPILOG = (
    "Options take lists (8K,32K) and ranges (8:64:8, 1K:128K:x2). "
    "For example: attncalc sweep llama3-70b qwen3-32b -c 8K,32K,128K -b 1,16,64 --kv-dtype bf16,fp8"
)


@app.command(help=COMMANDS["sweep"], epilog=EPILOG, headings=GROUPS)
def sweep(
    models: s.ModelsOptions,
    options: SweepOptions,
    columns: s.ColumnOptions,
    plot: PlotFileOptions,
    output: s.RowOutputOptions,
) -> None:
    plot.check(output)
    from ..sweeps.grid import for_screen
    from ..sweeps.output import write_sweep
    from ..sweeps.sweep import sweep as sweep_of

    form = output.form()
    rows = sweep_of(models.names(), columns=columns.names(), **options)
    screen = for_screen(rows) if form is None and columns.names() is None else rows
    force = output.force and (plot.plot is None or goes_to_file(output.output))

    def write() -> int:
        return write_sweep(screen, form, output=output.output, force=force, jobs=columns.processes())

    if plot.plot is None:
        raise typer.Exit(write())
    from ..sweeps.picture import for_picture, sweep_picture

    picture = sweep_picture(for_picture(rows, chosen=columns.names() is not None))
    raise typer.Exit(plot.draw_beside(picture, picture.default, output, write) or 0)
