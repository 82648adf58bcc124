"""The verdict of `attncalc verify`: whether the checks agree, the largest difference, and each check that disagrees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..check import Check, largest_difference
from ..model import plural
from ..units import count, truncate
from .notes import WARNING
from .report import LABEL, Column, Table
from .verify_tables import NOT_OK, OK, PEAKS, difference, groups_of, number, sections_of, tolerance

MAX_CHECK_NAME = 23
"""Characters of a check's name in the table of sections, so that it fits in 80 columns."""


def verdict(checks: Sequence[Check], where: str, simulated: bool = False) -> str:
    """Return the verdict in words.

    Args:
        checks: The checks.
        where: What the predictions were compared with: 'on cuda:0 (NVIDIA H200) in bf16'.
        simulated: Whether torch's fake tensors stood in for the device.
    """
    if simulated:
        where += " (torch's fake tensors; nothing ran on a GPU)"
    if not checks:
        return "Nothing was checked."
    failed = sum(not check.ok for check in checks)
    if failed:
        sentence = f"{count(failed)} of {plural(len(checks), 'check')} DISAGREE{'S' if failed == 1 else ''} {where}."
    else:
        sentence = f"{'The check agrees' if len(checks) == 1 else f'All {count(len(checks))} checks agree'} {where}."
    largest = largest_difference(checks)
    if largest:
        return f"{sentence} Largest difference: {_percent(largest)} ({full_name(largest)})."
    return sentence if failed else f"{sentence} All bytes and counts are exact."


def summary_facts(checks: Sequence[Check]) -> dict[str, Any]:
    """Return the verdict as plain data, for JSON."""
    largest = largest_difference(checks)
    return {
        "ok": bool(checks) and all(check.ok for check in checks),
        "checks": len(checks),
        "failed": sum(not check.ok for check in checks),
        "largest_difference": largest
        and {
            "name": largest.name,
            "of": largest.of,
            "section": largest.section,
            "difference": largest.difference,
            "relative_difference": largest.relative_difference,
        },
    }


def full_name(check: Check) -> str:
    """Return the name of a check with its section and layer group: 'decoder, peak memory, prefill, math'."""
    return ", ".join(filter(None, (check.of, check.section, _label(check))))


def _label(check: Check) -> str:
    """Return the label without the mark of a footnote."""
    return check.label.removesuffix(" *")


def _percent(check: Check) -> str:
    """Return the relative difference: '0.30 %', or 'less than 0.01 %'."""
    share = abs(check.relative_difference)
    return f"{100 * share:.2f} %" if share >= 0.0001 else "less than 0.01 %"


def section_table(checks: Sequence[Check]) -> Table:
    """Return one row per section: its checks, and the difference of the check that is closest to its tolerance.

    The difference has the unit of the tolerance: percent, bytes, or none. Of exact counts it is in their own unit.
    With several layer groups, the name of that check begins with its group.
    """
    several = len(groups_of(checks)) > 1
    rows: list[tuple[str, ...]] = []
    strong = set()
    for section in sections_of(checks):
        of_section = [check for check in checks if check.section == section]
        failed = sum(not check.ok for check in of_section)
        worst = max(of_section, key=lambda check: check.tolerance_used)
        name = f"{worst.of}, {_label(worst)}" if several and worst.of else _label(worst)
        if failed:
            strong.add(len(rows))
        rows.append(
            (
                section,
                f"{len(of_section) - failed} of {len(of_section)}" if failed else count(len(of_section)),
                _with_unit(worst, (difference(worst) or number(worst.measured)).lstrip("-")),
                tolerance(worst),
                NOT_OK if failed else OK,
                truncate(name, MAX_CHECK_NAME) if worst.difference else "",
            )
        )
    columns = (
        LABEL,
        *map(Column, ("checks", "difference", "tolerance")),
        LABEL,
        Column("of the check", "left"),
    )
    return Table(columns, tuple(rows), strong=frozenset(strong))


def _with_unit(check: Check, difference: str) -> str:
    """Return the difference of a count with its unit: '2,048 B', '128 parameters'."""
    return f"{difference} {check.unit}".rstrip() if check.difference and not check.tolerance else difference


def failure_notes(checks: Sequence[Check]) -> Iterator[str]:
    """Yield a note per kind of disagreement: the checks, what they compare, and what it means; then how to report it.

    Checks of one section that compare the same, such as the parameters of several matrices, share a note.
    """
    notes: dict[tuple[str, str, str], list[Check]] = {}
    for check in checks:
        if not check.ok:
            notes.setdefault((check.section, check.note, check.failure), []).append(check)
    for (section, note, failure), failed in notes.items():
        names = "; ".join(", ".join(filter(None, (check.of, _label(check)))) for check in failed)
        compared = f"Predicted peak, during {note}" if section == PEAKS else f"Compared: {note}"
        verb = "disagrees" if len(failed) == 1 else "disagree"
        yield f"{WARNING}{section} ({names}) {verb}. Meaning: {failure}. {compared}."
    if notes:
        yield (
            "To report it, send the command, this screen and its JSON (--json). They name the device, the version of "
            "torch and every figure."
        )


def failure_sentences(checks: Sequence[Check]) -> Iterator[str]:
    """Yield each check that disagrees as a sentence, for the notes in JSON."""
    for check in checks:
        if not check.ok:
            group = f"{check.of}, " if check.of else ""
            yield (
                f"{WARNING}{group}{check.section}, {check.label}: predicted {number(check.predicted)}, measured "
                f"{number(check.measured)} ({check.note}). Meaning: {check.failure}."
            )
