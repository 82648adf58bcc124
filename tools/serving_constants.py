"""Fit the constants of attncalc/serving/step_constants.json to published measurements.

    python tools/serving_constants.py          (writes it)
    python tools/serving_constants.py --check  (fails if it is not up to date)

The four constants of a family have the least sum of |log(measured / planned tokens/s)|. They are
found from several starts by steps of each constant in turn, which become smaller. Runs of engines
that attncalc does not have, and of one phase, are left out. A family of fewer than FEWEST runs has
the constants of NVIDIA's GPUs for data centers.

The range of a family has INSIDE of the runs of each publisher, planned with the constants of all
others.
"""

import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from measurements import Measurement, measurements  # noqa: E402

from attncalc.serving.step_times import Constants, Work, family_of, times_of, work_of  # noqa: E402

TABLE = ROOT / "attncalc" / "serving" / "step_constants.json"
# Engines that attncalc does not have.
OTHER_ENGINES = ("tensorrt-llm", "deepseek in-house")
# Runs without which a family has no constants of its own.
FEWEST = 5
# The share of runs in the range.
INSIDE = 0.85
# Usual constants, with which the first search starts.
START = {"memory": 0.6, "compute": 0.4, "layer": 30e-6, "request": 10e-6}
# Where the other searches start: a step that its layers bound, and one that its requests do.
OTHER_STARTS = (
    {"memory": 0.4, "compute": 0.2, "layer": 100e-6, "request": 1e-6},
    {"memory": 0.9, "compute": 0.3, "layer": 100e-6, "request": 50e-6},
)
# The least and the most of each.
LIMITS = {
    "memory": (0.2, 1.0),
    "compute": (0.1, 0.9),
    "layer": (1e-6, 400e-6),
    "request": (0.1e-6, 200e-6),
}
# The factors of the search's steps, the largest first.
STEPS = (2.0, 1.4, 1.15, 1.05, 1.02)
# {the most concurrent requests of a copy: the load}, which the accuracy is told by; more are 'above
# 128'.
LOADS = {8: "up to 8", 32: "9 to 32", 128: "33 to 128"}
Family = tuple[str, str]


class Run(NamedTuple):
    """A measurement with the work of its load."""

    measurement: Measurement
    work: Work
    family: Family
    source: str  # the repository or page that published it

    def of_planned(self, known: Constants) -> float:
        """Return the measured tokens/s divided by the planned."""
        planned = times_of(self.work, known).tokens_per_second
        return self.measurement.tokens_per_second / planned


def load_of(run: Run) -> str:
    """Return the family of a run's model and its load: 'dense, up to 8 requests'."""
    requests = run.work.requests_of_copy
    named = next((name for most, name in LOADS.items() if requests <= most), "above 128")
    return f"{run.family[1]}, {named} requests"


def source_of(measurement: Measurement) -> str:
    """Return the repository or page of a measurement, without the file."""
    name = str(measurement.row["source"])
    if name.startswith("http"):
        return name.split("/")[2]
    return name.partition(" ")[0].partition("@")[0]


@cache
def every_run() -> tuple[Run, ...]:
    """Return the measurements of both phases, of all engines."""
    found = []
    for one in measurements():
        if one.row.get("phase") is None:
            work = work_of(one.resolved, one.load, {})
            found.append(Run(one, work, family_of(one.resolved), source_of(one)))
    return tuple(found)


def own_runs() -> list[Run]:
    """Return the runs of engines that attncalc has."""
    return [run for run in every_run() if run.measurement.row["engine"] not in OTHER_ENGINES]


def fitted(family: Family, runs: Sequence[Run]) -> Constants:
    """Return the constants of a family with the least error."""
    sources = tuple(sorted({run.source for run in runs}))

    def constants(values: dict[str, float]) -> Constants:
        return Constants(*family, **values, low=1.0, high=1.0, runs=len(runs), sources=sources)

    def error(values: dict[str, float]) -> float:
        known = constants(values)
        total = 0.0
        for run in runs:
            total += abs(math.log(run.of_planned(known)))
        # of equal errors the usual constants: a few runs do not decide all four
        usual = sum(abs(math.log(values[name] / START[name])) for name in START)
        return total + 0.01 * usual

    found = [search(start, error) for start in (START, *OTHER_STARTS)]
    return constants(min(found, key=error))


def search(start: dict[str, float], error: Callable[[dict[str, float]], float]) -> dict[str, float]:
    """Return the values near `start` with the least error."""
    values = dict(start)
    least = error(values)
    for step in STEPS:
        is_better = True
        while is_better:
            is_better = False
            for name, (low, high) in LIMITS.items():
                for factor in (step, 1 / step):
                    tried = {**values, name: min(high, max(low, values[name] * factor))}
                    of_tried = error(tried)
                    if of_tried < least - 1e-9:
                        values = tried
                        least = of_tried
                        is_better = True
    return values


def by_family(runs: Iterable[Run]) -> dict[Family, list[Run]]:
    """Return the runs of each family of FEWEST runs and more."""
    found: dict[Family, list[Run]] = defaultdict(list)
    for run in runs:
        found[run.family].append(run)
    return {family: of for family, of in sorted(found.items()) if len(of) >= FEWEST}


def held_out(runs: Sequence[Run]) -> list[tuple[Run, float]]:
    """Return each run with its measured / planned tokens/s, by the constants of other publishers.

    A publisher whose family no other measured is planned with the family's own constants.
    """
    found = []
    for family, members in by_family(runs).items():
        for source in sorted({run.source for run in members}):
            others = [run for run in members if run.source != source]
            known = fitted(family, others if len(others) >= FEWEST else members)
            found += [(run, run.of_planned(known)) for run in members if run.source == source]
    return found


def quantile(values: Iterable[float], share: float) -> float:
    """Return the value below which that share of the values are, interpolated."""
    numbers = sorted(values)
    i, rest = divmod(share * (len(numbers) - 1), 1)
    return numbers[int(i)] + rest * (numbers[min(int(i) + 1, len(numbers) - 1)] - numbers[int(i)])


def derived(runs: Sequence[Run]) -> list[Constants]:
    """Return the constants of each family, with its range."""
    ratios = held_out(runs)
    found = []
    for family, members in by_family(runs).items():
        known = fitted(family, members)
        of_model = [ratio for run, ratio in ratios if run.family[1] == family[1]]
        low, high = range_of(of_model)
        found.append(known._replace(low=round(min(1.0, low), 2), high=round(max(1.0, high), 2)))
    return found


def range_of(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the least and the most of INSIDE of the ratios, with as many outside at either end."""
    return quantile(ratios, (1 - INSIDE) / 2), quantile(ratios, (1 + INSIDE) / 2)


def text() -> str:
    """Return the content of step_constants.json."""
    rows = []
    for known in derived(own_runs()):
        row = known._asdict()
        del row["first"], row["scale"]
        for name in START:
            row[name] = float(f"{row[name]:.3g}")
        rows.append("    " + json.dumps(row))
    listed = ",\n".join(rows)
    return f'{{\n  "families": [\n{listed}\n  ]\n}}\n'


def main() -> int:
    """Write the table, or compare it."""
    if sys.argv[1:] == ["--check"]:
        return int(TABLE.read_text(encoding="utf-8") != text())
    TABLE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
