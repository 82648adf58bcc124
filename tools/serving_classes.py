"""Derive the classes of attncalc/serving/published.json from published measurements.

    python tools/serving_classes.py          (writes it)
    python tools/serving_classes.py --check  (fails if it is not up to date)

A class has a range of measured / planned tokens/s: from 10 to 90 %, widened by one factor for all
classes, since runs of another publisher differ more than those of one do. Each run is compared with
the range of its class from all other publishers, and the factor is that which INSIDE of the runs
need. Loads with few runs have the class of all loads.
"""

import json
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from measurements import Measurement, measurements  # noqa: E402

from attncalc.serving.published import ANY_LOAD, ServingClass, class_of  # noqa: E402

TABLE = ROOT / "attncalc" / "serving" / "published.json"
# Runs without which a class has no range, and without which it has the median of all loads.
FEWEST = 5
FEWEST_FOR_MEDIAN = 15
# The share of the runs that lie in the range of the other publishers.
INSIDE = 0.85
Classes = dict[ServingClass, list[Measurement]]


def is_held_out(run: Measurement) -> bool:
    """Return whether a page is in the third that validates the procedure: by a hash of its name."""
    return zlib.crc32(run.row["source"].encode()) % 3 == 2


def source(run: Measurement) -> str:
    """Return the repository or page of a run, without the file."""
    name = str(run.row["source"])
    if name.startswith("http"):
        return name.split("/")[2]
    return name.partition(" ")[0].partition("@")[0]


def quantile(values: Iterable[float], share: float) -> float:
    """Return the value below which that share of the values are, interpolated."""
    numbers = sorted(values)
    i, rest = divmod(share * (len(numbers) - 1), 1)
    return numbers[int(i)] + rest * (numbers[min(int(i) + 1, len(numbers) - 1)] - numbers[int(i)])


def by_class(runs: Iterable[Measurement]) -> Classes:
    """Return the runs of each class."""
    classes: Classes = defaultdict(list)
    for run in runs:
        classes[class_of(run.resolved, run.load)].append(run)
    return classes


def widening(classes: Classes) -> float:
    """Return the factor by which the 10 to 90 % of other publishers have to be widened for INSIDE
    of the runs.
    """
    factors = []
    for members in classes.values():
        for run in members:
            others = [other.of_planning for other in members if source(other) != source(run)]
            if len(others) >= FEWEST:
                low = quantile(others, 0.1)
                high = quantile(others, 0.9)
                factors.append(max(1.0, low / run.of_planning, run.of_planning / high))
    return quantile(factors, INSIDE)


def derived(runs: Sequence[Measurement]) -> dict[str, Any]:
    """Return the table of classes."""
    classes = by_class(runs)
    factor = widening(classes)
    for of, members in [*classes.items()]:
        classes[of._replace(load=ANY_LOAD)] += members
    table = [
        row(of, members, classes[of._replace(load=ANY_LOAD)], factor)
        for of, members in sorted(classes.items())
        if len(members) >= FEWEST
    ]
    return {"widened_by": round(factor, 2), "classes": table}


def row(
    of: ServingClass, members: Sequence[Measurement], any_load: Sequence[Measurement], factor: float
) -> dict[str, Any]:
    """Return one class as JSON; `any_load` are the runs of its models and GPUs."""
    ratios = [run.of_planning for run in members]
    typical = members if len(members) >= FEWEST_FOR_MEDIAN else any_load
    return {
        **of._asdict(),
        "runs": len(members),
        "low": round(quantile(ratios, 0.1) / factor, 3),
        "median": round(quantile((run.of_planning for run in typical), 0.5), 3),
        "median_runs": len(typical),
        "high": round(min(1.0, quantile(ratios, 0.9) * factor), 3),
        "sources": sorted({source(run) for run in members}),
    }


def text() -> str:
    """Return the content of published.json."""
    table = derived(measurements())
    rows = ",\n".join("    " + json.dumps(each) for each in table.pop("classes"))
    rest = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in table.items())
    return f'{{\n{rest},\n  "classes": [\n{rows}\n  ]\n}}\n'


def inside(runs: Iterable[Measurement], others: Sequence[Measurement]) -> tuple[int, int]:
    """Return how many runs have a class that is derived from others, and how many of them lie in
    its range.
    """
    table = derived(others)["classes"]
    ranges = {
        ServingClass(each["model"], each["load"], each["gpus"]): (each["low"], each["high"])
        for each in table
    }
    found = [
        (ranges[of], run) for run in runs if (of := class_of(run.resolved, run.load)) in ranges
    ]
    return len(found), sum(low <= run.of_planning <= high for (low, high), run in found)


def held_out() -> tuple[int, int]:
    """Return `inside` for the held-out pages, with classes from all others."""
    runs = measurements()
    return inside(filter(is_held_out, runs), [run for run in runs if not is_held_out(run)])


def of_new_publishers() -> tuple[int, int]:
    """Return the sum of `inside` for the runs of each publisher, with classes from all other
    publishers.
    """
    runs = measurements()
    publishers = sorted({source(run) for run in runs})
    found = [
        inside(
            [run for run in runs if source(run) == name],
            [run for run in runs if source(run) != name],
        )
        for name in publishers
    ]
    return sum(n for n, _ in found), sum(n for _, n in found)


def main() -> int:
    """Write the table, or compare it."""
    if sys.argv[1:] == ["--check"]:
        return int(TABLE.read_text(encoding="utf-8") != text())
    TABLE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
