"""A question about one model, declared once in the `__init__.py` of its folder."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ..model import ModelSpec
from ..records import NamedTuple
from ..show.report import Report


class Question(NamedTuple):
    """A question about one model.

    The command, its completion and the page's form follow from it; so does the list that the
    question has as its answer for several contexts or batches. Its help is in the list of all
    questions, so that listing them imports none.
    """

    name: str
    # a TypedDict: on the command line, in Python and on the page
    options: Any
    # the name of the function of `attncalc` that asks it in Python, in answer.py
    call: str
    # returns the arguments of `report`; raises AttncalcError if an option is not valid
    read: Callable[[ModelSpec, Mapping[str, Any]], tuple[Any, ...]]
    report: Callable[..., Report]
    # a command line
    example: str
    # {a flag of the screen alone: its help}, arguments of `report`
    screen: Mapping[str, str] = MappingProxyType({})
    # {a figure: the header of its column}, the main one first, in the list for several contexts or
    # batches; without any, the options have no such list
    columns: Mapping[str, str] = MappingProxyType({})
