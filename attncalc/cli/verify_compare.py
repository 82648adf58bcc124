"""`attncalc verify --compare A.json B.json`: two records side by side."""

from __future__ import annotations

from pathlib import Path

from ..errors import AttncalcError, CannotCheckError
from ..units import truncate
from . import options as o


def compare(paths: tuple[Path, Path], output: o.OutputOptions, *, full: bool) -> int:
    """Write the comparison of two records, and return the exit code: 0 if they agree, 1 if not, 3 without a common run.

    Raises AttncalcError if a file is no record.
    """
    from ..report.record_files import read_record
    from ..report.records import records_report

    a, b = map(read_record, paths)
    try:
        report = records_report(a, b, full=full)
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise AttncalcError(
            f"--compare: a damaged record: {truncate(f'{type(error).__name__}: {error}', 80)}",
            "its schema: attncalc schema record",
        ) from None
    output.show(report)
    if not report.rows:
        return CannotCheckError.code
    return 1 if report.extra["differences"] else 0
