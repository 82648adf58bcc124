"""`attncalc plan`: from users to GPUs."""

import typer

from ...cli import options as o
from ...cli.command import command
from ...cli.plot_options import PlotOptions
from ...show.formats import goes_to_file
from ...show.lists import tell
from .options import GROUPS, PlanOptions

EPILOG = (
    "For example: attncalc plan llama3.1-70b --users 500 --prompt 3K --output-len 500 --gpu "
    "h100,h200,mi300x"
)


@command(EPILOG, headings=GROUPS)
def plan(
    models: o.NamedModels, options: PlanOptions, plot: PlotOptions, output: o.CheckedOutputOptions
) -> None:
    plot.check(output)
    from ...show.progress import progress
    from .answer import read_plan
    from .report import plan_report

    request = read_plan(models.names_or_sizes(options), options)
    with progress(plain=output.plain) as show:
        found = request.plan(show)
    is_whole = found.found.complete
    if not is_whole and (plot.into_file or goes_to_file(output.output)):
        tell("interrupted: no file is written")
        raise typer.Exit(130)
    plot.write(
        plan_report(found), output, ("GPUs that serve the users", "give more GPUs, or fewer users")
    )
    if not is_whole:
        raise typer.Exit(130)
    raise typer.Exit(0 if found.serves_all else 1)
