"""A question, declared once in the `__init__.py` of its folder."""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, cast

from ..model import ModelSpec
from ..records import NamedTuple
from .inputs import each_size

if TYPE_CHECKING:
    from ..show.report import Report
    from .swept import SweptRows


class HasReport(Protocol):
    """The result of a call, or a report alone."""

    @property
    def report(self) -> "Report":
        """What the command prints."""


class Answered(NamedTuple):
    """An answer that has no call in Python of its own."""

    report: "Report"


class Question(NamedTuple):
    """A question.

    A question about one model has `read` and `report`: its command follows from them, and so does
    the list that is its answer for several contexts or batches. Any other has a `command`. The
    page's form follows from the options. Its help is in the list of all questions, so that listing
    them imports none.
    """

    name: str
    # a command line
    example: str
    # a TypedDict: on the command line, in Python and on the page; None if only the command line
    # has options
    options: Any = None
    # returns the arguments of `report`; raises AttncalcError if an option is not valid
    read: Callable[[ModelSpec, Mapping[str, Any]], tuple[Any, ...]] | None = None
    report: Callable[..., "Report"] | None = None
    # {a flag of the screen alone: its help}, arguments of `report`
    screen: Mapping[str, str] = MappingProxyType({})
    # {a figure: the header of its column}, the main one first, in the list for several contexts or
    # batches; without any, the options have no such list
    columns: Mapping[str, str] = MappingProxyType({})
    # imports and returns the app of its command, which needs typer: pages and calls do not
    command: Callable[[], Any] | None = None
    # what a page asks of a question with a `command`: it takes the models, the options as arguments
    # in Python, and `is_screen`, which may leave out what only JSON has. It returns a result with
    # the report of the command.
    on_page: Callable[..., "HasReport"] | None = None
    # whether a page may ask it about several models
    takes_models: bool = False
    # whether a page may ask it with a GPU and without a model, about the models that fit
    lists_models: bool = False
    # imports and returns the rows that it gives to sweeps
    rows: Callable[[], "SweptRows"] | None = None
    # the end of the command's help
    epilog: str = "For example: {example}"

    def answer(self, model: ModelSpec, options: Mapping[str, Any], **screen: bool) -> "Report":
        """Return the report about one model; for several contexts or batches, a row of each.

        Raises AttncalcError if an option is not valid.
        """
        assert self.read is not None
        assert self.report is not None
        asked = [self.read(model, one) for one in each_size(options)]
        reports = [self.report(*arguments, **screen) for arguments in asked]
        if len(reports) == 1:
            return reports[0]
        from .sizes import sizes_report  # which only a list needs

        return sizes_report(reports, self.columns)


def declared(name: str) -> Question:
    """Import the folder of a question, and return its declaration."""
    return cast("Question", import_module(f"{__package__}.{name}").QUESTION)
