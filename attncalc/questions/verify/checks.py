"""The checks of `attncalc verify`: the verdict, their tables, and each check that disagrees."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...check import Check, VerifyResult, largest_difference
from ...model import plural
from ...search import grouped
from ...show.notes import WARNING
from ...show.report import LABEL, Column, Table
from ...units import BYTES, count, truncate

# The sections of checks, in the order of the screen.
SECTIONS = (
    "parameters",
    "cache",
    "FLOPs",
    "saved for backward",
    "training states",
    "peak memory",
    "kernel buffers",
    "layer behaviour",
    "kernels vs reference",
    "mask effect, pairs",
    "softmax sum error",
    "model",
)
PEAKS = "peak memory"
# Units that the screen shows next to the name of a section.
_UNITS = {"cache": "bytes", PEAKS: "bytes"}
OK = "ok"
NOT_OK = "NO"
# What a cell of '-' means.
NOT_MEASURED = "not measured"
# Characters of a number in the table of checks; longer ones are rounded.
_MAX_DIGITS = 14
# Characters of a check's name in the table of sections, so that it fits in 80 columns.
_MAX_NAME = 23


def groups_of(checks: Iterable[Check]) -> tuple[str, ...]:
    """Return the layer groups of the checks, in order, without '' for the whole model."""
    return tuple(dict.fromkeys(check.of for check in checks if check.of))


def full_name(check: Check) -> str:
    """Return the name of a check with its section and layer group: 'decoder, peak memory, prefill,
    math'.
    """
    return ", ".join(filter(None, (check.of, check.section, _label(check))))


def _label(check: Check) -> str:
    """Return the label without the mark of a footnote."""
    return check.label.removesuffix(" *")


def number(value: float) -> str:
    """Return a predicted or a measured figure: an exact whole number, or about three digits."""
    if isinstance(value, int):
        text = count(value)
        if len(text) <= _MAX_DIGITS:
            return text
        return f"{int(value):.7e}"
    if abs(value) < 0.01:
        return f"{value:.2e}"
    return f"{value:.4g}"


def difference(check: Check) -> str:
    """Return the difference in the unit of the tolerance; '' if the measured figure is a difference
    itself.
    """
    if not check.predicted:
        return ""
    if _is_in_percent(check):
        return f"{100 * check.relative_difference:.2f} %"
    if check.unit == BYTES and check.tolerance:
        return f"{count(int(check.difference))} B"
    if isinstance(check.difference, int):
        return number(check.difference)
    return f"{check.difference:.4f}"


def _tolerance(check: Check) -> str:
    if not check.tolerance:
        return "0"
    if _is_in_percent(check):
        return f"{100 * check.tolerance / max(1, check.predicted):.0f} %"
    if check.unit == BYTES:
        return f"{count(int(check.tolerance))} B"
    return f"{check.tolerance:.1g}"


def _is_in_percent(check: Check) -> bool:
    """Whether the difference and the tolerance of a peak are shares of it: if that is at least 0.1
    %.
    """
    return check.unit == BYTES and 1000 * check.tolerance >= max(1, check.predicted)


# The verdict


def verdict(checks: Sequence[Check], where: str, simulated: bool = False) -> str:
    """Return the verdict in words.

    `where` is what the predictions were compared with: 'on cuda:0 (NVIDIA H200) in bf16'.
    """
    if simulated:
        where += " (torch's fake tensors; --device cuda runs on a GPU)"
    if not checks:
        return "Nothing was checked."
    failed = sum(not check.ok for check in checks)
    if failed:
        sentence = (
            f"{count(failed)} of {plural(len(checks), 'check')} "
            f"DISAGREE{'S' if failed == 1 else ''} {where}."
        )
    else:
        agreed = "The check agrees"
        if len(checks) != 1:
            agreed = f"All {count(len(checks))} checks agree"
        sentence = f"{agreed} {where}."
    largest = largest_difference(checks)
    if largest:
        share = abs(largest.relative_difference)
        percent = f"{100 * share:.2f} %" if share >= 0.0001 else "less than 0.01 %"
        return f"{sentence} Largest difference: {percent} ({full_name(largest)})."
    if failed:
        return sentence
    return f"{sentence} All bytes and counts are exact."


def summary_facts(checks: Sequence[Check]) -> dict[str, Any]:
    """Return the verdict as plain data, for JSON."""
    largest = largest_difference(checks)
    keys = ("name", "of", "section", "difference", "relative_difference")
    return {
        "ok": bool(checks) and all(check.ok for check in checks),
        "checks": len(checks),
        "failed": sum(not check.ok for check in checks),
        "largest_difference": largest and {key: getattr(largest, key) for key in keys},
    }


# Tables


def came_from(result: VerifyResult) -> str:
    """Return the heading of the figures that predictions are compared with."""
    if result.simulated:
        return "simulated"
    return "measured"


def check_tables(checks: Sequence[Check], source: str) -> Iterator[Table]:
    """Yield the table of each layer group, then that of the whole model: one row per check.
    `source` is `came_from`.
    """
    for group in (*groups_of(checks), ""):
        rows: list[tuple[str, ...]] = []
        strong = set()
        for section, of_section in _by_section(
            check for check in checks if check.of == group
        ).items():
            if group:
                rows.append(
                    (
                        f"{section}, {_UNITS[section]}" if section in _UNITS else section,
                        "",
                        "",
                        "",
                        "",
                        "",
                    )
                )
            for check in of_section:
                if not check.ok:
                    strong.add(len(rows))
                numbers = (
                    number(check.predicted),
                    number(check.measured),
                    difference(check),
                    _tolerance(check),
                )
                rows.append(
                    (
                        f"  {check.label}" if group else check.label,
                        *numbers,
                        OK if check.ok else NOT_OK,
                    )
                )
        columns = (
            Column(group or "the whole model", "left"),
            *map(Column, ("predicted", source, "diff", "tolerance")),
        )
        if rows:
            yield Table((*columns, LABEL), tuple(rows), strong=frozenset(strong))


def _by_section(checks: Iterable[Check]) -> dict[str, list[Check]]:
    """Return the checks of each section, in the order of the screen."""
    in_order = sorted(checks, key=lambda check: SECTIONS.index(check.section))
    return grouped((check.section, check) for check in in_order)


def section_table(checks: Sequence[Check]) -> Table:
    """Return one row per section: its checks, and the difference of the check that is closest to
    its tolerance.

    The difference has the unit of the tolerance: percent, bytes, or none. Of exact counts it is in
    their own unit.
    With several layer groups, the name of that check begins with its group.
    """
    several = len(groups_of(checks)) > 1
    rows: list[tuple[str, ...]] = []
    strong = set()
    for section, of_section in _by_section(checks).items():
        failed = sum(not check.ok for check in of_section)
        worst = max(of_section, key=lambda check: check.tolerance_used)
        name = f"{worst.of}, {_label(worst)}" if several and worst.of else _label(worst)
        largest = (difference(worst) or number(worst.measured)).lstrip("-")
        if worst.difference and not worst.tolerance:
            largest = f"{largest} {worst.unit}".rstrip()
        if failed:
            strong.add(len(rows))
        rows.append(
            (
                section,
                f"{len(of_section) - failed} of {len(of_section)}"
                if failed
                else count(len(of_section)),
                largest,
                _tolerance(worst),
                NOT_OK if failed else OK,
                truncate(name, _MAX_NAME) if worst.difference else "",
            )
        )
    columns = (
        LABEL,
        *map(Column, ("checks", "difference", "tolerance")),
        LABEL,
        Column("closest check", "left"),
    )
    return Table(columns, tuple(rows), strong=frozenset(strong))


# Checks that disagree


def failure_notes(checks: Sequence[Check]) -> Iterator[str]:
    """Yield a note per kind of disagreement: the checks, what they compare, and what it means; then
    how to report it.

    Checks of one section that compare the same, such as the parameters of several matrices, share a
    note.
    """
    notes = grouped(
        ((check.section, check.note, check.failure), check) for check in checks if not check.ok
    )
    for (section, note, failure), failed in notes.items():
        names = "; ".join(", ".join(filter(None, (check.of, _label(check)))) for check in failed)
        if section == PEAKS:
            compared = f"Predicted peak, during {note}"
        else:
            compared = f"Compared: {note}"
        verb = "disagrees" if len(failed) == 1 else "disagree"
        yield f"{WARNING}{section} ({names}) {verb}. Meaning: {failure}. {compared}."
    if notes:
        yield (
            "To report it, send the command, this screen and its JSON (--json). They name the "
            "device, the version of torch and every figure."
        )


def failure_sentences(checks: Sequence[Check]) -> Iterator[str]:
    """Yield each check that disagrees as a sentence, for the notes in JSON."""
    for check in checks:
        if not check.ok:
            group = f"{check.of}, " if check.of else ""
            yield (
                f"{WARNING}{group}{check.section}, {check.label}: predicted "
                f"{number(check.predicted)}, measured "
                f"{number(check.measured)} ({check.note}). Meaning: {check.failure}."
            )
