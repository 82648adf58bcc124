"""Draw the picture of a report: into a file with matplotlib, or with characters."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ..errors import AttncalcError, known_tip
from ..plot.chart import Picture
from ..units import truncate
from .characters import printable
from .lists import WIDTH, screen_width
from .write import deliver, saved


def chosen(picture: Picture, names: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the names of the charts to draw: `names`, or the default if None.

    Raises AttncalcError if there is no chart of a name.
    """
    if names is None:
        return picture.default
    known = tuple(dict.fromkeys(chart.name for chart in picture.charts))
    for name in names:
        if name not in known:
            raise AttncalcError(f"--show: there is no chart '{truncate(name)}'", known_tip(name, known))
    return names


def picture_file(picture: Picture, names: tuple[str, ...], file: Path, *, force: bool) -> AbstractContextManager[None]:
    """Draw the charts of these names into a file, which gets its name when the block of the context ends without an
    error; its suffix selects the format.

    Raises CannotCheckError without matplotlib, and AttncalcError if the file exists (without `force`) or cannot be
    written.
    """
    from ..plot.picture import render

    return saved(render(_printable(picture), names, file.suffix.lower()), file, force=force)


def print_picture(picture: Picture, names: tuple[str, ...]) -> None:
    """Draw the charts of these names with characters, on standard output."""
    from ..plot.text import render

    deliver(render(picture, names, min(WIDTH, screen_width(sys.stdout))), None, force=False)


def _printable(part: Any) -> Any:
    """Return a part of a picture without characters that would deceive a reader, or that XML does not allow."""
    if isinstance(part, str):
        return printable(part, "utf-8").replace("\n", " ")
    if isinstance(part, tuple):
        parts = [_printable(each) for each in part]
        return type(part)(*parts) if hasattr(part, "_fields") else tuple(parts)
    return part
