"""`attncalc plan`: from users to GPUs."""

import typer

from ...cli import options as o
from ...cli.command import command
from ...cli.plot_options import PlotOptions
from ...errors import clash
from ...show.formats import TABLE, goes_to_file
from ...show.lists import tell
from .options import GROUPS, PlanOptions

# Formats that have the rows alone, without the table of --growth.
_ROWS_ALONE = ("csv", "tsv", "jsonl", "xlsx")


def _check_growth(options: PlanOptions, output: o.CheckedOutputOptions) -> None:
    """Raise AttncalcError if --growth asks for what the answer has no place for."""
    if options.get("growth") is None:
        return
    tip = "leave one of them out; a screen and --json have the growth"
    if output.get is not None:
        raise clash("--growth", "--get", tip)
    if output.chosen.name in _ROWS_ALONE:
        raise clash("--growth", f"the format {output.chosen.name}", tip)
    if output.is_silent:
        raise clash("--growth", "--quiet", tip)


@command(headings=GROUPS)
def plan(
    models: o.NamedModels, options: PlanOptions, plot: PlotOptions, output: o.CheckedOutputOptions
) -> None:
    plot.check(output)
    from ...show.progress import progress
    from .answer import read_plan
    from .report import explained, plan_report
    from .tables import asked_tables

    _check_growth(options, output)
    request = read_plan(models.names_or_sizes(options), options)
    with progress(plain=output.plain) as show:
        found = request.plan(show)
    is_whole = found.found.complete
    if not is_whole and (plot.into_file or goes_to_file(output.output)):
        tell("interrupted: no file is written")
        raise typer.Exit(130)
    report = plan_report(found)
    if output.explain and output.chosen.name == TABLE:  # formulas replace the tables
        report = explained(report)._replace(footer=(*asked_tables(found), *report.footer))
    plot.write(report, output, ("GPUs that serve the users", "give more GPUs, or fewer users"))
    if not is_whole:
        raise typer.Exit(130)
    raise typer.Exit(0 if found.serves_all else 1)
