"""The tables of training runs, which tools/accuracy.py writes."""

import sys
import textwrap
from collections import Counter
from pathlib import Path
from statistics import mean, median

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from training_runs import (
    ON_A_GPU,
    HeldOut,
    Measured,
    fitcheck_runs,
    held_out_runs,
    litgpt_runs,
    published_runs,
    runs_on_a_gpu,
)

from attncalc.show.verdicts import VERDICTS


def lines() -> list[str]:
    """Return the tables of training runs."""
    measured = list(fitcheck_runs())
    published = list(published_runs())
    errors = [abs(run.error_of_tensors) for run in measured]
    within = sum(abs(run.error) < 0.01 for run in measured)
    on_a_gpu = list(runs_on_a_gpu())
    nearest = sum(abs(run.error) < 0.002 for run in on_a_gpu)
    held_out = [run.first / run.measured - 1 for run in on_a_gpu if run.first]
    nearest_first = sum(abs(error) < 0.001 for error in held_out)
    return [
        f"{len(on_a_gpu)} runs on an {ON_A_GPU['gpu']}: {nearest} are within 0.2 %. "
        f"{len(held_out)} were held out, of "
        f"which {nearest_first} were within 0.1 % at first.",
        "",
        "| `attncalc train` | measured, GiB | predicted | error | held out: at first |",
        "|---|---:|---:|---:|---:|",
        *(run_line(run, 2).removesuffix("|  |") + f"| {_first_error(run)} |" for run in on_a_gpu),
        "",
        f"{len(errors)} runs of LoRA on a T4: {mean(errors):.2%} off on average, "
        f"{max(errors):.1%} at most. With the "
        f"blocks that the allocator did not split when the weights were loaded, {within} are "
        "within 1 %.",
        "",
        "| run | measured, GiB | predicted | error | why it is off |",
        "|---|---:|---:|---:|---|",
        *map(run_line, published),
        "",
        "| litgpt, LoRA on A100 40GB | measured, GB | predicted | answer |",
        "|---|---:|---:|---|",
        *(
            f"| {run.name} | {f'{run.measured / 1e9:.2f}' if run.measured else 'out of memory'} | "
            f"{run.allocated / 1e9:.2f} | {VERDICTS[run.verdict]} |"
            for run in litgpt_runs()
        ),
        "",
        "| LoRA on a T4 | measured, GiB | predicted | error | larger blocks, MiB | error without |",
        "|---|---:|---:|---:|---:|---:|",
        *(
            run_line(run).removesuffix("|  |")
            + f"| {run.blocks / 2**20:.1f} | {run.error_of_tensors:+.1%} |"
            for run in measured
        ),
    ]


# Trainers in whose README a row continues the one above it: "+ recomputation".
_CONTINUED = "+"


def by_publisher() -> list[str]:
    """Return one line per publisher of training runs: how many runs, and the errors of those whose
    facts are stated.
    """
    groups: dict[str, list[Measured]] = {}
    publisher = ""
    unstated: Counter[str] = Counter()
    for run in published_runs():
        if not run.name.startswith(_CONTINUED):
            publisher = run.name.split(",")[0]
        if run.within is None:
            unstated[publisher] += 1
        else:
            groups.setdefault(publisher, []).append(run)
    return [
        "| publisher | runs | median error | largest error | not compared |",
        "|---|---:|---:|---:|---:|",
        _publisher_line(f"our own steps on an {ON_A_GPU['gpu']}", list(runs_on_a_gpu()), 0),
        _publisher_line("fitcheck-llm, LoRA and QLoRA on a T4", list(fitcheck_runs()), 0),
        *(_publisher_line(name, runs, unstated[name]) for name, runs in groups.items()),
        "",
        *textwrap.wrap(_litgpt_line(), 120),
    ]


def _publisher_line(name: str, runs: list[Measured], unstated: int) -> str:
    errors = [abs(run.error_of_tensors) for run in runs]
    return f"| {name} | {len(runs)} | {median(errors):.2%} | {max(errors):.1%} | {unstated} |"


def held_out() -> list[str]:
    """Return one line per publisher of runs that were predicted before their outcome was read."""
    groups: dict[str, list[HeldOut]] = {}
    for run in held_out_runs():
        groups.setdefault(run.publisher, []).append(run)
    return [
        "| publisher | ran | median error | largest error | contradict | ran out of memory | "
        "DOES NOT FIT | MAY NOT FIT | FITS |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(_held_out_line(name, runs) for name, runs in sorted(groups.items())),
    ]


def _held_out_line(name: str, runs: list[HeldOut]) -> str:
    ran = [run for run in runs if run.measured is not None]
    compared = [abs(run.error) for run in ran if not run.contradiction]
    verdicts = Counter(run.verdict for run in runs if run.measured is None)
    errors = f"{median(compared):.1%} | {max(compared):.1%}" if compared else " | "
    return (
        f"| {name} | {len(ran)} | {errors} | {len(ran) - len(compared)} | "
        f"{verdicts.total()} | {verdicts['does_not_fit']} | {verdicts['may_not_fit']} | "
        f"{verdicts['fits']} |"
    )


def _litgpt_line() -> str:
    runs = list(litgpt_runs())
    ran = [run for run in runs if run.measured]
    failed = [run for run in runs if not run.measured]
    right = [run for run in ran if run.verdict == "fits"]
    refused = [run for run in failed if run.verdict == "does_not_fit"]
    return (
        f"litgpt lists {len(runs)} runs of LoRA on A100 40GB. {len(right)} of {len(ran)} that ran "
        f"are FITS. {len(refused)} of {len(failed)} that ran out of memory are DOES NOT FIT, and "
        f"the others MAY NOT FIT."
    )


def _first_error(run: Measured) -> str:
    if run.first:
        return f"{run.first / run.measured - 1:+.2%}"
    return ""


def run_line(run: Measured, digits: int = 1) -> str:
    """Return the row of a training run."""
    gib = 2**30
    return (
        f"| {run.name} | {run.measured / gib:.2f} | {run.predicted / gib:.2f} | "
        f"{run.error:+.{digits}%} | {run.why} |"
    )
