"""A screen as ranked blocks, which are cut to the rows of a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from ..records import NamedTuple
from .notes import ALERTS
from .report import Report, Table
from .text import HEIGHT, height

# {what a screen lacks, as 'note': how many of them}.
LeftOut: TypeAlias = Mapping[str, int]
NOTE = "note"


class Form(NamedTuple):
    """A block in one of its lengths."""

    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()  # its sentences, which are below all tables
    # How much a reader loses by this form instead of the one before it: a rank, not a size. Of the
    # next forms of all blocks, a screen without room takes the one with the least loss.
    loss: int = 0
    left_out: LeftOut = MappingProxyType({})  # what the longest form has beside it
    bar_in_words: bool = False  # whether the report's bar is words, a line less on a terminal


# A part of a screen: its forms, the longest first. The last one may be empty.
#
# Example: a table of 8 changes has 8 forms, with 8 changes to 1. A part that drops nothing has one.
Block: TypeAlias = Iterable[Form]


def bar_block(loss: int) -> Block:
    """Return the block of the report's bar, which becomes words."""
    return (Form(), Form(loss=loss, bar_in_words=True))


def note_blocks(notes: Iterable[str], loss: int) -> list[Block]:
    """Return a block per note, which drops it, unless it is a warning."""
    blocks: list[Block] = []
    for note in notes:
        whole = Form(notes=(note,))
        if note.startswith(ALERTS):
            blocks.append((whole,))
        else:
            blocks.append((whole, Form(loss=loss, left_out={NOTE: 1})))
    return blocks


def on_one_screen(
    report: Report,
    blocks: Sequence[Block],
    closing: Callable[[LeftOut], tuple[str, ...]] = lambda left_out: (),
) -> Report:
    """Return the report with these blocks in this order, cut to HEIGHT lines.

    Of several forms with the same loss, the one that is lowest on the screen is taken first. If the
    screen does not even fit with the last form of each block, it drops no note in vain.

    Formulas, and files in other formats, have as many lines as they need: they keep the notes that
    a screen drops.

    Args:
        report: The report, with the heading and the footer of the screen.
        blocks: Its blocks in the order of the screen; there the tables of all are above the notes.
        closing: Returns the last sentences by what is left out, as '--full adds 3 changes.'
    """
    forms = [iter(block) for block in blocks]
    shown = [next(of_block) for of_block in forms]
    longest = list(shown)
    screen = _screen(report, shown, closing)
    if height(screen) <= HEIGHT:
        return screen
    following = [next(of_block, None) for of_block in forms]
    while height(screen) > HEIGHT:
        losses = [(form.loss, -i) for i, form in enumerate(following) if form]
        if not losses:
            break
        i = -min(losses)[1]
        shown[i] = following[i] or shown[i]
        following[i] = next(forms[i], None)
        screen = _screen(report, shown, closing)
    with_all_notes = _screen(
        report,
        [form if first.tables else first for first, form in zip(longest, shown, strict=True)],
        closing,
    )
    if height(screen) > HEIGHT:
        return with_all_notes
    return screen._replace(shown_notes=with_all_notes.shown_notes, short_notes=screen.shown_notes)


def _screen(
    report: Report, forms: Sequence[Form], closing: Callable[[LeftOut], tuple[str, ...]]
) -> Report:
    left_out: Counter[str] = Counter()
    for form in forms:
        left_out.update(form.left_out)
    bar = report.bar
    if bar and any(form.bar_in_words for form in forms):
        bar = bar._replace(in_words=True)
    return report._replace(
        bar=bar,
        tables=tuple(table for form in forms for table in form.tables),
        shown_notes=(*(note for form in forms for note in form.notes), *closing(left_out)),
    )
