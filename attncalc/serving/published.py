"""What published runs reach of the planning figure of `load_bounds.py`, by class of model, load and
GPUs.

published.json is derived from tests/data/serving/measurements.json by tools/serving_classes.py.
"""

import json
from functools import cache
from pathlib import Path

from ..records import NamedTuple
from .load_bounds import Load
from .request import ResolvedRequest

# {the most concurrent requests of a copy: the load}; more are 'above 128'.
LOADS = {8: "up to 8", 32: "9 to 32", 128: "33 to 128"}
# The load of the class of all runs, for loads with few runs.
ANY_LOAD = "any number of"


class ServingClass(NamedTuple):
    """A class of deployments and loads."""

    model: str  # 'dense' or 'mixture'
    # concurrent requests of a copy: 'up to 8', '9 to 32', '33 to 128', 'above 128', or ANY_LOAD
    load: str
    gpus: str  # the GPUs of a copy: 'one', 'several', or 'several with DP attention'

    def __str__(self) -> str:
        gpus = {"one": "one GPU", "several": "several GPUs"}.get(
            self.gpus, "several GPUs with DP attention"
        )
        return f"{self.model}, {self.load} requests, {gpus}"


class PublishedRange(NamedTuple):
    """What published runs of a class measured, as a share of
    `LoadBounds.planning_tokens_per_second`.
    """

    of: ServingClass  # the class
    # Below most runs. Expected tokens/s are from `low` to `high` times the planning figure.
    low: float
    median: float  # of these runs, or if they are few of those with any load
    median_runs: int  # the number of these
    high: float  # above most runs
    runs: int  # their number
    sources: tuple[str, ...]  # the repositories and pages that published them


def class_of(resolved: ResolvedRequest, load: Load) -> ServingClass:
    requests = next((name for most, name in LOADS.items() if load.requests <= most), "above 128")
    gpus = "one" if resolved.devices * resolved.ranks == 1 else "several"
    if resolved.ranks > 1:
        gpus = "several with DP attention"
    return ServingClass("mixture" if resolved.model.has_experts else "dense", requests, gpus)


def published_range(resolved: ResolvedRequest, load: Load) -> PublishedRange | None:
    """Return what published runs of the load's class reach, or those with any load; None if there
    are too few.
    """
    of = class_of(resolved, load)
    return _table().get(of) or _table().get(of._replace(load=ANY_LOAD))


@cache
def _table() -> dict[ServingClass, PublishedRange]:
    found = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
    ranges = {}
    for row in found["classes"]:
        of = ServingClass(row["model"], row["load"], row["gpus"])
        ranges[of] = PublishedRange(
            of,
            row["low"],
            row["median"],
            row["median_runs"],
            row["high"],
            row["runs"],
            tuple(row["sources"]),
        )
    return ranges
