"""The options of `attncalc sweep` about its rows: for how many users, at which price, which ones,
in which order.

They are no axes: each holds for the whole sweep.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, TypedDict

from ...options import COUNT, TEXT, Count, With
from ..fit.options import PRICE, USERS


class RowOptions(TypedDict, total=False):
    """Which figures rows have, how many users all GPUs serve and what these cost, and which rows
    are kept.
    """

    users: Annotated[
        Count | None,
        USERS.but(
            axis=False,
            common=False,
            help="Concurrent users, for the columns gpus_needed and price_per_hour; with --prompt.",
        ),
    ]
    price: Annotated[str | float | Mapping[str, float] | None, PRICE.but(axis=False, common=False)]
    fewest_gpus: Annotated[
        bool, "Give each row the fewest GPUs of its kind that hold the model and the batch."
    ]
    where: Annotated[
        str | Sequence[str] | None,
        TEXT,
        "Keep rows of which this is true: 'verdict == fits', 'concurrency >= 8'; may be repeated.",
        With(metavar="CONDITION", axis=False, repeated=True),
    ]
    fail_if: Annotated[
        str | Sequence[str] | None,
        TEXT,
        "Exit with 1 if this is true of a row: 'verdict != FITS'; may be repeated. Impossible "
        "rows fail too.",
        With(metavar="CONDITION", axis=False, repeated=True),
    ]
    sort: Annotated[
        str | None,
        TEXT,
        "Sort the rows by a column, the smallest first; -COLUMN is the largest first.",
        With(metavar="COLUMN", axis=False),
    ]
    top: Annotated[Count | None, COUNT, "Keep so many rows, the first ones.", With(axis=False)]
