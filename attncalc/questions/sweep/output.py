"""Writes a sweep: rows as they are computed, or a screen."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ... import __version__
from ...errors import AttncalcError
from ...show.formats import Format, Rows, goes_to_file
from ...show.lists import tell
from ...show.notes import FAILED, WARNING
from ...show.schemas import schema_name
from ...show.write import new_file, tell_written, write
from ...units import count
from .axes import cell
from .columns import title_of
from .grid import check_screen, context_warning, sweep_report
from .sweep import Row, Sweep
from .watch import Watch


def write_sweep(
    sweep: Sweep,
    form: Format | None,
    *,
    output: Path | None,
    force: bool,
    plain: bool = False,
    jobs: int = 1,
) -> int:
    """Write the rows to a file or to standard output, and return the exit code.

    It is 0 if a cell has figures, 1 if a row fails, and 128 and the number of the signal after
    Ctrl-C or SIGTERM. On standard output the last row then says so; into a file or on a screen
    nothing is written: the exception ends it.

    Raises AttncalcError if no cell is possible, the file exists (without force) or cannot be
    written, or a screen has too many cells.
    """
    to_file = goes_to_file(output)
    on_terminal = not to_file and sys.stdout.isatty()
    failures: list[str] = []
    watch = Watch(len(sweep), shows_progress=form is None or not on_terminal)
    if force and not to_file:
        raise AttncalcError("--force needs --output", "name the file to overwrite with -o FILE")
    if form is None:
        check_screen(sweep)
        cells = _checked(sweep, watch.watched(_rows(sweep, jobs, str)), failures)
        report = sweep_report(sweep, cells)
        write(report, form="table", explain=False, output=output, force=force, plain=plain)
    else:
        cells = _checked(sweep, watch.watched(_rows(sweep, jobs, form.escape)), failures)
        rows = rows_of(sweep, form, cells)
        if goes_to_file(output):
            # of a pipe the reader may have read enough
            with (
                suppress(BrokenPipeError),
                new_file(output, force=force, is_binary=form.is_binary) as file,
            ):
                form.write(rows, file)
            tell_written(output)
        else:
            with watch.between_rows():
                form.check(None)
                form.write(rows, sys.stdout.buffer if form.is_binary else sys.stdout)
                sys.stdout.flush()
    return _exit_code(watch, sweep, failures, screen=form is None)


def _checked(sweep: Sweep, rows: Iterator[Row], failures: list[str]) -> Iterator[Row]:
    """Yield the selected rows, and add those that fail to `failures`, in words."""
    for row in sweep.selection.of(rows, sweep.names):
        failure = sweep.failure_of(row)
        if failure:
            failures.append(failure)
        yield row


def rows_of(sweep: Sweep, form: Format, rows: Iterable[Row]) -> Rows:
    """Return the rows with what a format writes beside them."""
    of_models = {model.name: model.spec.title for model in sweep.models}
    titles = {name: title_of(name) for name in sweep.names}
    if len({*of_models.values()}) == len(of_models):
        titles |= of_models
    axes = {axis.name: [cell(value, form.escape) for value in axis.values] for axis in sweep.axes}
    # the keys of the JSON document before its rows
    facts = {"schema": schema_name("sweep"), "attncalc": __version__, "axes": axes}
    return Rows(sweep.names, sweep.units, rows, facts, titles)


def _rows(sweep: Sweep, jobs: int, escape: Callable[[str], str]) -> Iterator[Row]:
    if jobs == 1:
        return sweep.tuples(escape)
    from .parallel import rows_in_parallel

    return rows_in_parallel(sweep, jobs, escape)


def _exit_code(watch: Watch, sweep: Sweep, failures: list[str], *, screen: bool) -> int:
    """Return the exit code; name rows that fail, and warn of what a screen has not warned of."""
    if watch.signal:
        tell(watch.interrupted)
        return 128 + watch.signal
    if watch.rows and watch.errors == watch.rows:
        # again, as the format has escaped those that were written
        first = next(iter(sweep.tuples(str)))
        raise AttncalcError(
            f"no cell is possible: {first[-1]}",
            f"change one of the options; {'the screen' if screen else 'the column error'} has the "
            "reason of each row",
        )
    if not screen:
        if watch.errors:
            cells = f"{count(watch.errors)} of {count(watch.rows)} cells"
            tell(f"{WARNING}{cells} are not possible; the column 'error' has the reason")
        warning = context_warning(sweep)
        if warning:
            tell(warning)
    for failure in failures:
        tell(f"{FAILED}{failure}")
    return 1 if failures else 0
