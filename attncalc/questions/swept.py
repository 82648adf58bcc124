"""Rows that a question gives to sweeps, beside those of a model's costs and of `fit`."""

from collections.abc import Callable, Mapping
from typing import Any

from ..model import ModelSpec
from ..quantity import Ratio
from ..records import NamedTuple
from ..show.figures import FigureRow

# Returns the figures of a row, for a batch and a context.
Figures = Callable[[int, int], tuple[Any, ...]]


class SweptRows(NamedTuple):
    """Rows that a sweep has in place of its own, as with --train.

    Such a sweep has the options of the question, and each that takes one value is an axis.
    """

    # the question, which is the name of the flag too
    name: str
    # a TypedDict with the flag alone
    flag: Any
    # what a row is, as 'rows of a training step'
    meaning: str
    # the TypedDict of the question's options
    options: Any
    # a TypedDict of those that a sweep would not have without it, and their heading in help
    axes: Any
    heading: str
    # axes that a sweep has without it too, but that the question reads in its own way
    own_axes: tuple[str, ...]
    # {a column: its unit; '' for a number without one, None for text}
    columns: Mapping[str, str | None]
    # {a column: its row}, for its title
    rows: Mapping[str, FigureRow]
    # returns the default columns of a sweep with these options, and whether it has a price
    default_columns: Callable[[Mapping[str, Any], bool], tuple[str, ...]]
    # returns those of its columns that a table on a screen shows
    screen_columns: Callable[[tuple[str, ...]], tuple[str, ...]]
    # the column of a grid or a picture
    main_column: str
    # a column that a tip names
    known_column: str
    # returns the context of a model if none is given
    default_context: Callable[[ModelSpec], int]
    # returns what computes the columns of a model with these options; the last argument is
    # {name of a GPU: price of an hour}
    figures: Callable[[ModelSpec, Mapping[str, Any], tuple[str, ...], Mapping[str, Ratio]], Figures]
