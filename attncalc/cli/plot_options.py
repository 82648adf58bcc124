"""The options that draw an answer: --plot and --show."""

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


class PlotFileOptions(Options):
    """Whether the answer is drawn, and where."""

    LAST: ClassVar[bool] = True
    RARE: ClassVar[frozenset[str]] = frozenset({"show"})

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

    def __init__(self, **values: Any) -> None:
        """Raise CannotCheckError if the picture is a file and matplotlib is missing."""
        super().__init__(**values)
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

        to_file = goes_to_file(output.output)
        if self.plot is None or not self.into_file:
            written = write() if to_file else None
            draw.print_picture(picture, names, plain=output.plain)
            return written
        with draw.picture_file(picture, names, self.plot, force=output.force):
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
        charts = chosen(report.picture, names)
        self.draw_beside(
            report.picture, charts, output, lambda: output.show(report, picture_too=True)
        )
