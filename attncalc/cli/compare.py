"""`attncalc compare`: one model's attention as every kind, or several models side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import AttncalcError
from ..model import ModelSpec
from ..report.compare import compare_models, compare_variants
from ..units import count, parse_count
from . import COMMANDS
from . import options as o
from .command import Options, command_app
from .plot_options import PlotOptions

app = command_app()


class ModelsOptions(Options):
    """Which models, or which attention of one model."""

    models: Annotated[
        list[str] | None,
        typer.Argument(help="One model, or several to compare with each other.", metavar="MODEL..."),
    ] = None
    preset: o.Preset = None
    attention: Annotated[
        list[str] | None,
        o.option("--attention", metavar="KIND", help="For one model: one more row, as mla:512; may be repeated."),
    ] = None
    tp: o.Tp = "1"
    assume_grouped: o.AssumeGrouped = False

    def read(self) -> list[ModelSpec]:
        """Return one device's share of every model. Raises AttncalcError as `model_name` and `read_model` do."""
        names = [*(self.models or []), *([self.preset] if self.preset else [])] or [o.model_name(None, None)]
        tp = parse_count(self.tp, "--tp")
        return [o.read_model(name, assume_grouped=self.assume_grouped).shard(tp) for name in names]


@app.command(help=COMMANDS["compare"], epilog="For example: attncalc compare llama2-70b --attention mla:512")
def compare(
    models: ModelsOptions,
    workload: o.SizeOptions,
    dtypes: o.CacheDtypeOptions,
    plot: PlotOptions,
    output: o.OutputOptions,
) -> None:
    plot.check(output)
    specs = models.read()
    shortest = None
    if workload.context is None and len(specs) > 1:
        shortest = min(spec.max_context or o.DEFAULT_CONTEXT for spec in specs)
        workload = workload.with_defaults({"context": str(shortest)})
    workloads = [o.read_workload(spec, _for_model(workload, encoder=bool(spec.encoder)), dtypes) for spec in specs]
    if len(specs) == 1:
        report = compare_variants(specs[0], workloads[0], models.attention or ())
    elif models.attention:
        raise AttncalcError(
            f"--attention takes one model, not {count(len(specs))}", "name one model, or leave --attention out"
        )
    else:
        report = compare_models(specs, workloads)
    if shortest is not None:
        note = f"Context {count(shortest)}: the longest that all these models support; -c sets another."
        report = report._replace(notes=(note, *report.notes))
    plot.write(report, output)


def _for_model(workload: o.SizeOptions, *, encoder: bool) -> o.SizeOptions:
    """Return the workload without a source for a model without an encoder: the option is for the others."""
    return workload if encoder else o.SizeOptions(batch=workload.batch, context=workload.context)
