"""The options that draw an answer: --plot, --show, --title and --size."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from ..errors import AttncalcError, clash
from ..show.formats import goes_to_file
from ..show.plot import SUFFIXES
from ..show.report import Report
from ..units import truncate
from .command import OMITTED, Options
from .options import ReportOptions, Text, option, output_file

if TYPE_CHECKING:
    from ..show.plot.chart import Picture

T = TypeVar("T")


def picture_file(text: str | Path) -> Path:
    """Return the path of a picture; '-' stands for characters on standard output.

    Raises AttncalcError for a folder, and for a suffix that no picture has.
    """
    file = output_file(text)
    if str(file) != OMITTED and file.suffix.lower() not in SUFFIXES:
        *first, last = SUFFIXES
        raise AttncalcError(
            f"--plot: no picture has the suffix '{truncate(file.suffix)}' of '{truncate(file)}'",
            f"name a file in {', '.join(first)} or {last}; --plot as the last option draws on "
            "the terminal",
        )
    return file


# Inches of a unit of length.
_UNITS = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72}
_LENGTH = r"(\d{1,4}(?:\.\d{1,4})?)"
_SIZE = re.compile(rf"(?a){_LENGTH}(?: ?x ?{_LENGTH})? ?({'|'.join(_UNITS)})")
# The least and the most inches of a side of a picture.
_LEAST = 1.5
_MOST = 40.0


def picture_size(text: str) -> tuple[float, float | None]:
    """Return the width and the height of a picture in inches, from '3.3x2.2in' or '84mm'; the
    height is None if it is not given.

    Raises AttncalcError if the text is no size, or too small or too large to draw.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise AttncalcError(
            f"--size: '{truncate(text)}' is no size of a picture",
            "give a width, or a width and a height: --size 3.3in or --size 3.3x2.2in "
            "(also cm, mm and pt)",
        )
    width, height, unit = match.groups()
    sides = [float(side) * _UNITS[unit] for side in (width, height) if side]
    for side in sides:
        if not _LEAST <= side <= _MOST:
            raise AttncalcError(
                f"--size: {truncate(text)} is too {'small' if side < _LEAST else 'large'}",
                f"each side is from {_LEAST:g} to {_MOST:g} inches: --size 3.3x2.2in",
            )
    return sides[0], sides[1] if height else None


class PlotFileOptions(Options):
    """Whether the answer is drawn, where, how large, and under which title."""

    LAST: ClassVar[bool] = True
    RARE: ClassVar[frozenset[str]] = frozenset({"show", "title", "size"})

    plot: Annotated[
        Path | None,
        option(
            "--plot",
            metavar="[FILE]",
            parser=picture_file,
            help=f"Draw into this file ({', '.join(SUFFIXES)}), with matplotlib; without FILE, "
            "with characters.",
        ),
    ] = None

    title: Annotated[
        Text,
        option(
            "--title",
            metavar="TEXT",
            help="The picture's title, in place of the model; '' for none.",
        ),
    ] = None
    size: Annotated[
        Text,
        option(
            "--size",
            metavar="WxHin",
            help="The size of the file's picture, as 3.3x2.2in; 3.3in sets the width alone.",
        ),
    ] = None

    def __init__(self, **values: Any) -> None:
        """Raise AttncalcError if --title or --size lacks its picture, and CannotCheckError if the
        picture is a file and matplotlib is missing.

        Attributes:
            inches: The width and the height of the picture; None if they are not given.
        """
        super().__init__(**values)
        for name in ("title", "size"):
            if values.get(name) is not None and self.plot is None:
                raise AttncalcError(f"--{name} needs --plot", "add --plot picture.svg")
        self.inches = None if self.size is None else picture_size(self.size)
        if self.inches and not self.into_file:
            raise AttncalcError(
                "--size needs a file: characters have the size of the terminal",
                "name the file: --plot picture.svg",
            )
        if self.into_file:
            from ..show.plot.picture import need_matplotlib

            need_matplotlib()

    @property
    def into_file(self) -> bool:
        """Whether the picture is a file, and not characters on standard output."""
        return self.plot is not None and str(self.plot) != OMITTED

    def check(
        self, output: ReportOptions, excludes: Mapping[str, bool] = MappingProxyType({})
    ) -> None:
        """Raise AttncalcError if --plot cannot be combined with another option.

        The report cannot be on standard output together with characters; `excludes` are further
        options, if they are given.
        """
        for name, is_used in excludes.items():
            if self.plot is not None and is_used:
                raise clash("--plot", name)
        if self.plot is not None and self.into_file and goes_to_file(output.output):
            from ..show.write import is_same_file

            if is_same_file(self.plot, output.output):
                raise AttncalcError(
                    f"--plot and --output name the same file, {truncate(output.output)}",
                    "give each a name of its own",
                )
        if self.plot is None or self.into_file or goes_to_file(output.output):
            return
        used = {
            "--json": output.json,
            "--format": output.format is not None,
            "--explain": output.explain,
        }
        for name, is_used in used.items():
            if is_used:
                raise clash(
                    "--plot without a file",
                    name,
                    "both would be on standard output: name a file, as --plot x.svg",
                )

    def draw_beside(
        self,
        picture: "Picture",
        names: tuple[str, ...],
        output: ReportOptions,
        write: Callable[[], T],
    ) -> T | None:
        """Draw the charts of these names, and return what `write` returns, which writes the answer.

        Characters replace an answer on standard output: `write` is not called then, and None is
        returned. Of two files both are written, or none. A file is written before characters: if it
        cannot be, nothing is printed.

        Raises AttncalcError if a file exists (without --force) or cannot be written.
        """
        from ..show import draw

        if self.title is not None:
            picture = picture.titled(self.title)
        to_file = goes_to_file(output.output)
        if self.plot is None or not self.into_file:
            written = write() if to_file else None
            draw.print_picture(picture, names, plain=output.plain)
            return written
        with draw.picture_file(picture, names, self.plot, self.inches, force=output.force):
            if to_file:
                return write()
        return write()


class PlotOptions(PlotFileOptions):
    """Whether the answer is drawn, where, and which of its charts."""

    show: Annotated[
        Text,
        option(
            "--show",
            metavar="NAME,...",
            help="The charts to draw, by name; a wrong name lists all.",
        ),
    ] = None

    def __init__(self, **values: Any) -> None:
        """Raise AttncalcError if --show comes without --plot, and CannotCheckError if matplotlib is
        missing.
        """
        if values["show"] is not None and values["plot"] is None:
            raise AttncalcError("--show needs --plot", "it names the charts that --plot draws")
        super().__init__(**values)

    def write(
        self,
        report: Report,
        output: ReportOptions,
        needs: tuple[str, str] = ("another command", ""),
    ) -> None:
        """Draw the picture, and write the report; characters replace a report on standard output.

        `needs` is the option that --plot needs if the report has no picture, and a tip. Raises
        AttncalcError if the report has no picture or no such chart, or a file exists (without
        --force) or cannot be written.
        """
        if self.plot is None:
            output.show(report)
            return
        from ..show.draw import chosen

        if report.picture is None:
            raise AttncalcError(f"--plot needs {needs[0]}", needs[1])
        if self.show is None:
            names = None
        else:
            names = tuple(name.strip() for name in self.show.split(","))
        picture = report.picture
        charts = chosen(picture, names)
        if names is None and not self.into_file and not output.plain and charts[1:]:
            # a terminal has room for one
            picture = picture.captioned(f"--show {','.join(charts[1:])} draws more")
            charts = charts[:1]
        self.draw_beside(picture, charts, output, lambda: output.show(report, picture_too=True))
