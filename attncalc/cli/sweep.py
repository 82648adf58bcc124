"""`attncalc sweep`: a row for every combination of models, contexts, batches, dtypes, GPUs and other options."""

from __future__ import annotations

from typing import Any

import typer

from . import COMMANDS
from . import fit_llamacpp as lc
from . import fit_options as f
from . import options as o
from . import sweep_options as s
from .command import command_app
from .plot_options import PlotFileOptions, goes_to_file

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
    draws = plot.plot is not None
    if draws:
        from ..sweeps.picture import for_picture, sweep_picture

        picture = sweep_picture(for_picture(rows, chosen=columns.names() is not None))
        if not goes_to_file(output.output):
            plot.draw(picture, picture.default, force=output.force)
            if not plot.into_file:
                raise typer.Exit(0)
    if form is None and columns.names() is None:
        rows = for_screen(rows)
    force = output.force and (not draws or goes_to_file(output.output))
    code = write_sweep(rows, form, output=output.output, force=force, jobs=columns.processes())
    if draws and goes_to_file(output.output):  # after the file: if it cannot be written, nothing is printed
        plot.draw(picture, picture.default, force=output.force)
    raise typer.Exit(code)
