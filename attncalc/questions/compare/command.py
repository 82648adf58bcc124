"""`attncalc compare`: one model's attention as every kind, or several models side by side."""

from typing import Annotated

import typer

from ...cli import options as o
from ...cli.command import Options, command
from ...cli.plot_options import PlotOptions
from ...options import parsed
from ...show.fail_if import parse_condition
from .answer import comparison_report, models_and_kinds, read_models
from .options import CompareOptions
from .report import checked


class ModelsOptions(Options):
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="One model, or several to compare with each other.", metavar="MODEL..."
        ),
    ] = None
    preset: o.Preset = None

    def names(self) -> list[str]:
        """Return the names of all models. Raises AttncalcError if there are none."""
        return o.model_names(self.models, self.preset)


class CheckOptions(Options):
    """What CI checks."""

    fail_if: o.FailIf = None


@command()
def compare(
    models: ModelsOptions,
    options: CompareOptions,
    checks: CheckOptions,
    plot: PlotOptions,
    output: o.OutputOptions,
) -> None:
    plot.check(output)
    conditions = [parse_condition(text) for text in checks.fail_if or ()]
    if not models.models and models.preset is None:
        # '-b llama3-8b' lacks the number, and not the model
        parsed(options, CompareOptions)
    names, kinds = models_and_kinds(models.names())
    o.note_file_types(*names)
    if kinds or options.get("attention"):
        named = [kind for text in options.get("attention") or () for kind in text.split(",")]
        options = {**options, "attention": [*named, *kinds]}
    report = checked(comparison_report(read_models(names, options), options), conditions)
    plot.write(report, output)
    output.exit_if_failed(report)
