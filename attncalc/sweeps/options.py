"""The options of `attncalc sweep` about its rows: for how many users, at which price, which ones, in which order.

They are no axes: each holds for the whole sweep.
"""

# Without `from __future__ import annotations`, a TypedDict has its types as objects, and not as strings.

from collections.abc import Mapping, Sequence
from typing import Annotated, TypedDict

from ..options import COUNT, TEXT, Count, Option


class RowOptions(TypedDict, total=False):
    """How many users all GPUs serve and what these cost, and which rows are kept."""

    users: Annotated[
        Count | None,
        Option(
            "--users",
            also=("--concurrency", "--num-users"),
            parse=COUNT,
            axis=False,
            help="Concurrent users, for the columns gpus_needed and price_per_hour; with --prompt.",
        ),
    ]
    price: Annotated[
        str | Mapping[str, float] | None,
        Option(
            "--price",
            also=("--prices", "--cost"),
            metavar="PRICES",
            axis=False,
            help="Prices of a GPU per hour, as h100=2.49,h200=3.79, or a .yaml file of them.",
        ),
    ]
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
            metavar="NAME",
            parse=TEXT,
            axis=False,
            help="Sort the rows by a column, the smallest first; -NAME is the largest first.",
        ),
    ]
    top: Annotated[Count | None, Option("--top", parse=COUNT, axis=False, help="Keep so many rows, the first ones.")]
