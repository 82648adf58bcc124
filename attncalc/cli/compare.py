"""`attncalc compare`: one model's attention as every kind, or several models side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import AttncalcError
from ..report.compare import compare_models, compare_variants
from ..units import count
from . import COMMANDS, command_app
from . import options as o

app = command_app()


@app.command(help=COMMANDS["compare"], epilog="For example: attncalc compare llama2-70b --attention mla:512")
def compare(
    models: Annotated[
        list[str] | None,
        typer.Argument(help="One model, or several to stand side by side.", metavar="MODEL..."),
    ] = None,
    preset: o.Preset = None,
    batch: o.Batch = None,
    context: o.Context = None,
    source_context: o.Source = None,
    kv_dtype: o.KvDtype = None,
    dtype: o.DtypeOption = None,
    attention: Annotated[
        list[str] | None,
        typer.Option("--attention", metavar="KIND", help="Of one model: a further row, as mla:512; may be repeated."),
    ] = None,
    tp: o.Tp = "1",
    assume_grouped: o.AssumeGrouped = False,
    explain: o.Explain = False,
    format: o.Format = None,
    json: o.Json = False,
    output: o.Output = None,
    force: o.Force = False,
) -> None:
    names = [*(models or []), *([preset] if preset else [])]
    chosen: list[str | None] = [*names] or [None]
    specs = [o.read_model(name, None, tp=tp, assume_grouped=assume_grouped) for name in chosen]
    together = context is None and len(specs) > 1
    if together:  # the longest that all of them can do
        context = str(min(spec.max_context or o.DEFAULT_CONTEXT for spec in specs))
    workloads = [
        o.read_workload(
            spec,
            batch=batch,
            context=context,
            source=source_context if spec.encoder else None,
            in_dtype=dtype,
            kv_dtype=kv_dtype,
        )
        for spec in specs
    ]
    if len(specs) == 1:
        report = compare_variants(specs[0], workloads[0], attention or ())
    elif attention:
        raise AttncalcError(
            f"--attention is for one model, not for {count(len(specs))}", "name one model, or leave it out"
        )
    else:
        report = compare_models(specs, workloads)
    if together:
        note = f"Context {count(int(context or 0))}: the longest that all of them were made for; -c sets another."
        report = report._replace(notes=(note, *report.notes))
    o.show(report, explain=explain, form=format, as_json=json, output=output, force=force)
