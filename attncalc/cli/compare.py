"""`attncalc compare`: one model's attention as every kind, or several models side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from ..api.models import read_model
from ..api.workloads import DEFAULT_CONTEXT
from ..errors import AttncalcError
from ..model import ModelSpec
from ..ranges import parse_counts
from ..report.compare import checked, compare_models, compare_variants, wide
from ..report.fail_if import parse_condition
from ..units import count, parse_count
from . import COMMANDS
from . import options as o
from .command import Options, command_app
from .plot_options import PlotOptions

app = command_app()
MAX_CONTEXTS = 100
"""The most contexts of one comparison."""


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
        return [read_model(name, assume_grouped=self.assume_grouped).shard(tp) for name in names]


class ContextsOptions(o.SizeOptions):
    """The number of sequences, and of tokens: one number or several."""

    context: Annotated[
        o.Text,
        o.option(
            "--context",
            "-c",
            "--max-model-len",
            metavar="N,N,...",
            help="Tokens of context, as 32K; several as 4K,32K,128K or 4K:128K:x2. Default: the model's maximum.",
        ),
    ] = None

    def contexts(self) -> list[int]:
        """Return the contexts; none if the option was left out. Raises AttncalcError if one is not a number."""
        return [] if self.context is None else parse_counts(self.context, "--context", limit=MAX_CONTEXTS)

    def of(self, model: ModelSpec, contexts: Sequence[int]) -> o.SizeOptions:
        """Return the sizes at the first context; without a source if the model has no encoder to read it."""
        context = str(contexts[0]) if contexts else None
        return o.SizeOptions(
            batch=self.batch, context=context, source_context=self.source_context if model.encoder else None
        )


class CheckOptions(Options):
    """What CI checks, and how it stores the figures."""

    fail_if: Annotated[
        list[str] | None,
        o.option(
            "--fail-if",
            metavar="CONDITION",
            help="Exit with 1 if a figure is beyond a limit: 'kv_cache > 8GiB', or 'kv_cache > +5%' of the first "
            "model; may be repeated.",
        ),
    ] = None
    wide: Annotated[
        bool, typer.Option("--wide", help="CSV and TSV: one row per model and context, one column per figure.")
    ] = False


@app.command(help=COMMANDS["compare"], epilog="For example: attncalc compare llama2-70b --attention mla:512")
def compare(
    models: ModelsOptions,
    size: ContextsOptions,
    dtypes: o.CacheDtypeOptions,
    checks: CheckOptions,
    plot: PlotOptions,
    output: o.OutputOptions,
) -> None:
    plot.check(output)
    contexts = size.contexts()
    conditions = [parse_condition(text) for text in checks.fail_if or ()]
    if checks.wide and output.chosen.name not in ("csv", "tsv"):
        raise AttncalcError("--wide needs --format csv or tsv", "name one of them, or -o FILE.csv")
    specs = models.read()
    shortest = None
    if not contexts and len(specs) > 1:
        shortest = min(spec.max_context or DEFAULT_CONTEXT for spec in specs)
        contexts = [shortest]
    workloads = [o.read_workload(spec, size.of(spec, contexts), dtypes) for spec in specs]
    if len(specs) == 1:
        report = compare_variants(specs[0], workloads[0], models.attention or (), contexts)
    elif models.attention:
        raise AttncalcError(
            f"--attention takes one model, not {count(len(specs))}", "name one model, or leave --attention out"
        )
    else:
        report = compare_models(specs, workloads, contexts)
    if shortest is not None:
        note = f"Context {count(shortest)}: the longest that all these models support; -c sets another."
        report = report._replace(notes=(note, *report.notes))
    report = checked(report, conditions)
    plot.write(wide(report) if checks.wide else report, output)
    raise typer.Exit(0 if all(check["passed"] for check in report.extra["checks"]) else 1)
