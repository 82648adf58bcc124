"""The options of `attncalc sweep` about its rows: for how many users, at which price, which ones, in which order.

They are no axes: each holds for the whole sweep.
"""

# Without `from __future__ import annotations`, a TypedDict has its types as objects, and not as strings.

from collections.abc import Mapping, Sequence
from typing import Annotated, TypedDict

from ..api.fit_options import PRICE, USERS
from ..options import COUNT, TEXT, Count, Option


class RowOptions(TypedDict, total=False):
    """Which figures rows have, how many users all GPUs serve and what these cost, and which rows are kept."""

    train: Annotated[
        bool, Option("--train", help="Rows of a training step, with the options of `attncalc train`.", common=True)
    ]
    users: Annotated[
        Count | None,
        USERS.but(
            axis=False,
            common=False,
            help="Concurrent users, for the columns gpus_needed and price_per_hour; with --prompt.",
        ),
    ]
    price: Annotated[str | Mapping[str, float] | None, PRICE.but(axis=False, common=False)]
    where: Annotated[
        str | Sequence[str] | None,
        Option(
            "--where",
            metavar="CONDITION",
            parse=TEXT,
            axis=False,
            repeated=True,
            help="Keep rows of which this is true: 'verdict == fits', 'concurrency >= 8'; may be repeated.",
        ),
    ]
    sort: Annotated[
        str | None,
        Option(
            "--sort",
            metavar="COLUMN",
            parse=TEXT,
            axis=False,
            help="Sort the rows by a column, the smallest first; -COLUMN is the largest first.",
        ),
    ]
    top: Annotated[Count | None, Option("--top", parse=COUNT, axis=False, help="Keep so many rows, the first ones.")]
