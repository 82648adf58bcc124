"""`attncalc sweep`: a row for every combination of models, contexts, batches, dtypes, GPUs and other options."""

from __future__ import annotations

from typing import Any

import typer

from ..report.formats import goes_to_file
from . import COMMANDS
from . import fit_llamacpp as lc
from . import fit_options as f
from . import options as o
from . import sweep_options as s
from .command import command_app
from .plot_options import PlotFileOptions

app = command_app()

EPILOG = (
    "Options take lists (8K,32K) and ranges (8:64:8, 1K:128K:x2). "
    "For example: attncalc sweep llama3-70b qwen3-32b -c 8K,32K,128K -b 1,16,64 --kv-dtype bf16,fp8"
)


@app.command(help=COMMANDS["sweep"], epilog=EPILOG)
def sweep(
    models: s.ModelsOptions,
    workload: o.SizeOptions,
    forward: s.PassOptions,
    users: s.UserOptions,
    dtypes: f.FitDtypeOptions,
    serving: f.DeploymentOptions,
    engine: f.EngineOptions,
    vllm: f.VllmOptions,
    sglang: f.SglangOptions,
    llamacpp: f.LlamacppOptions,
    offload: lc.OffloadOptions,
    transformers: f.TransformersOptions,
    columns: s.ColumnOptions,
    plot: PlotFileOptions,
    output: s.RowOutputOptions,
) -> None:
    plot.check(output)
    from ..sweeps.grid import for_screen
    from ..sweeps.output import write_sweep
    from ..sweeps.sweep import sweep as sweep_of

    options: dict[str, Any] = {}
    for group in (workload, forward, users, dtypes, serving, engine, vllm, sglang, llamacpp, offload, transformers):
        options |= group.given()
    form = output.form()
    rows = sweep_of(
        models.names(),
        columns=columns.names(),
        attention=models.attention,
        assume_grouped=models.assume_grouped,
        **options,
    )
    screen = for_screen(rows) if form is None and columns.names() is None else rows
    force = output.force and (plot.plot is None or goes_to_file(output.output))

    def write() -> int:
        return write_sweep(screen, form, output=output.output, force=force, jobs=columns.processes())

    if plot.plot is None:
        raise typer.Exit(write())
    from ..sweeps.picture import for_picture, sweep_picture

    picture = sweep_picture(for_picture(rows, chosen=columns.names() is not None))
    raise typer.Exit(plot.draw_beside(picture, picture.default, output, write) or 0)
