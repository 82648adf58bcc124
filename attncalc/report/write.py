"""Where a report goes: to standard output in the format asked for, or to a file whole or not at all."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ..errors import AttncalcError
from ..units import truncate
from .notes import WARNING
from .report import Report

FORMATS = ("table", "json", "csv", "markdown")
_BY_SUFFIX = {".json": "json", ".csv": "csv", ".md": "markdown", ".markdown": "markdown", ".txt": "table"}


def write(report: Report, *, form: str | None, explain: bool, output: Path | None, force: bool) -> None:
    """Render the report and print it, or write it to `output`.

    form: one of FORMATS; None for what the file's suffix says, else a table (plain text where there
    is no terminal). AttncalcError: an unknown format, a file that is there (without force), no room.
    """
    chosen = form or _BY_SUFFIX.get(output.suffix.lower() if output else "", "table")
    if chosen not in FORMATS:
        raise AttncalcError(f"there is no format '{truncate(chosen)}'", f"known: {', '.join(FORMATS)}")
    if output is None and not force and chosen == "table" and sys.stdout.isatty():
        from .table import render as print_table

        print_table(report, explain=explain)
        return
    deliver(_rendered(report, chosen, explain), output, force=force)
    if output is not None or chosen in ("json", "csv"):  # where a warning would go unread
        for note in report.notes:
            if note.startswith(WARNING) and sys.stderr is not None:
                sys.stderr.write(note + "\n")


def deliver(text: str, output: Path | None, *, force: bool) -> None:
    """Print `text`, or save it to `output`; '-' is standard output too.

    AttncalcError: force without a file, and what `save` refuses.
    """
    if output is not None and str(output) != "-":
        save(text, output, force=force)
    elif force:
        raise AttncalcError("--force without --output", "name the file to overwrite with -o")
    else:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has what it wanted, as `head` does
            drop_output()


def drop_output() -> None:
    """Send what is still in the buffer nowhere, or Python would try to write it again on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _rendered(report: Report, chosen: str, explain: bool) -> str:
    if chosen == "json":
        from .json import render as as_json

        return as_json(report)
    if chosen == "csv":
        from .csv import render as as_csv

        return as_csv(report)
    if chosen == "markdown":
        from .markdown import render as as_markdown

        return as_markdown(report, explain=explain)
    from .text import render as as_text

    return as_text(report, explain=explain)


def save(text: str, output: Path, *, force: bool) -> None:
    """Write `text` to `output` whole or not at all; a file that is there stays unless `force`."""
    import tempfile

    target = Path(os.path.realpath(output))
    try:
        if target.exists() and not target.is_file():
            raise AttncalcError(f"{truncate(output)}: not a file that can be written", "name a new file after -o")
        mode = target.stat().st_mode if target.exists() else 0o666 & ~_umask()
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            os.chmod(temporary, mode)
            if force:
                os.replace(temporary, target)
            else:
                os.link(temporary, target)  # unlike a rename, refuses a file that is there
        finally:
            Path(temporary).unlink(missing_ok=True)
    except FileExistsError:
        raise AttncalcError(f"{truncate(output)}: is there already", "--force overwrites it") from None
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", None) or "cannot be written").lower()
        raise AttncalcError(f"{truncate(output)}: {why}", "name a file in a folder you can write to") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
