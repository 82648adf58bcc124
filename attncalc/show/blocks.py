"""A screen as ranked blocks, which are cut to the rows of a terminal."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from ..records import NamedTuple
from .notes import ALERTS
from .report import Report, Table
from .text import HEIGHT, height

# {what a screen lacks, as 'note': how many of them}.
LeftOut = Mapping[str, int]
NOTE = "note"


class Form(NamedTuple):
    """A block in one of its lengths."""

    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()  # its sentences, which are below all tables
    left_out: LeftOut = MappingProxyType({})  # what the longest form has beside it
    bar_in_words: bool = False  # whether the report's bar is words, a line less on a terminal


class Block(NamedTuple):
    """A part of a screen, with the lines that it may drop.

    Example: a table of 8 changes has 8 forms, with 8 changes to 1; those that do not fit are only
    counted. A part that is always shown whole has one form.
    """

    forms: Iterable[Form]  # the longest first; the last one may be empty
    # The block of the least worth is shortened first, down to its last form; of several of the same
    # worth, the lowest on the screen.
    worth: int = 0


def whole(*tables: Table) -> Block:
    """Return a block that drops nothing."""
    return Block([Form(tables)])


def bar_block(worth: int) -> Block:
    """Return the block of the report's bar, which becomes words."""
    return Block([Form(), Form(bar_in_words=True)], worth)


def note_blocks(notes: Iterable[str], worth: int) -> list[Block]:
    """Return a block per note, which drops it, unless it is a warning."""
    blocks = []
    for note in notes:
        forms = [Form(notes=(note,))]
        if not note.startswith(ALERTS):
            forms.append(Form(left_out={NOTE: 1}))
        blocks.append(Block(forms, worth))
    return blocks


def on_one_screen(
    report: Report,
    blocks: Sequence[Block],
    closing: Callable[[LeftOut], tuple[str, ...]] = lambda left_out: (),
) -> Report:
    """Return the report with these blocks in this order, cut to HEIGHT lines.

    If it does not even fit with the last form of each block, it is returned with these.

    Args:
        report: The report, with the heading and the footer of the screen.
        blocks: Its blocks in the order of the screen; there the tables of all are above the notes.
        closing: Returns the last sentences by what is left out, as '--full adds 3 changes.'
    """
    forms = [iter(block.forms) for block in blocks]
    shown = [next(of_block) for of_block in forms]
    screen = _screen(report, shown, closing)
    for i in sorted(range(len(blocks)), key=lambda i: (blocks[i].worth, -i)):
        for form in forms[i]:
            if height(screen) <= HEIGHT:
                return screen
            shown[i] = form
            screen = _screen(report, shown, closing)
    return screen


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
