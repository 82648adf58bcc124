"""`attncalc plan`: from users to GPUs."""

import typer

from ..api.plan_options import GROUPS, PlanOptions
from . import options as o
from .command import command
from .plot_options import PlotOptions
from .trial import accepted

EPILOG = "For example: attncalc plan llama3.1-70b --users 500 --prompt 3K --output-len 500 --gpu h100,h200,mi300x"


@command(EPILOG, headings=GROUPS)
def plan(models: o.NamedModels, options: PlanOptions, plot: PlotOptions, output: o.CheckedOutputOptions) -> None:
    plot.check(output)
    from ..api.plans import read_plan
    from ..report.plan import plan_report
    from ..report.progress import progress

    request = read_plan(models.names_or_sizes(options), options)
    accepted()
    with progress(plain=output.plain) as show:
        found = request.plan(show)
    plot.write(plan_report(found), output, ("GPUs that serve the users", "give more GPUs, or fewer users"))
    if not found.found.complete:
        raise typer.Exit(130)
    raise typer.Exit(0 if found.serves_all else 1)
