"""`attncalc plan`: from users to GPUs."""

# typer reads the annotations when a command is registered. Without `from __future__ import annotations` they are
# objects already, and need not be evaluated from strings.

from typing import Annotated

import typer

from ..api.plan_options import GROUPS, PlanOptions
from ..config import ModelLike
from . import COMMANDS
from . import options as o
from .command import Options, command_app
from .plot_options import PlotOptions

app = command_app()


class _Models(Options):
    """Which models."""

    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL...", help="Presets, files, folders or org/name on the hub, as in other commands."
        ),
    ] = None
    preset: o.Preset = None

    def names_or_sizes(self, options: PlanOptions) -> list[ModelLike]:
        """Return the models; without any, the one of the sizes in the options. Raises AttncalcError without both."""
        return [*o.model_names(self.models, self.preset)] if self.models or self.preset else [o.of_sizes(options)]


EPILOG = "For example: attncalc plan llama3.1-70b --users 500 --prompt 3K --output-len 500 --gpu h100,h200,mi300x"


@app.command(help=COMMANDS["plan"], epilog=EPILOG, headings=GROUPS)
def plan(models: _Models, options: PlanOptions, plot: PlotOptions, output: o.CheckedOutputOptions) -> None:
    plot.check(output)
    from ..api.plans import read_plan
    from ..report.plan import plan_report
    from ..report.progress import progress

    request = read_plan(models.names_or_sizes(options), options)
    with progress() as show:
        found = request.plan(show)
    plot.write(plan_report(found), output, ("GPUs that serve the users", "give more GPUs, or fewer users"))
    if not found.found.complete:
        raise typer.Exit(130)
    raise typer.Exit(0 if found.rows else 1)
