"""Screens as ranked blocks: which lines a screen without room drops, and what it keeps."""

from collections.abc import Mapping

from attncalc.model import plural
from attncalc.show import markdown
from attncalc.show.bar import Bar
from attncalc.show.blocks import NOTE, Form, bar_block, note_blocks, on_one_screen
from attncalc.show.report import LABEL, Report, Table
from attncalc.show.text import HEIGHT, height, render
from attncalc.units import GIB

REPORT = Report("fit", ("FITS: yes.",), {}, {}, ())
BAR = Bar(24 * GIB, 22 * GIB, "vLLM", "0.92", "--share", 8 * GIB, (GIB, 2 * GIB), (12, 13 * GIB))


def lines(number: int, text: str = "line") -> tuple[Table, ...]:
    """Return a table of so many lines."""
    return (Table((LABEL,), tuple((f"{text} {i}",) for i in range(number))),)


def counted(left_out: Mapping[str, int]) -> tuple[str, ...]:
    if not left_out:
        return ()
    return (f"Left out: {', '.join(plural(n, what) for what, n in left_out.items())}.",)


def test_a_screen_with_room_has_the_longest_form_of_each_block() -> None:
    blocks = [[Form(lines(19)), Form(lines(1), loss=1)], *note_blocks(["a note"], 0)]
    screen = on_one_screen(REPORT, blocks, counted)
    # the heading, 19 lines and the note, with an empty line between two of them
    assert height(screen) == 23
    assert (screen.tables, screen.screen_notes) == (lines(19), ("a note",))


def test_the_form_that_loses_least_is_taken_first() -> None:
    first = [Form(lines(12, "a")), Form(lines(11, "a"), loss=2)]
    second = [Form(lines(9, "b")), *(Form(lines(n, "b"), loss=1) for n in (8, 7))]
    # 1 + 13 + 10 lines are one too many: the second block drops one
    assert on_one_screen(REPORT, [first, second]).tables == (*lines(12, "a"), *lines(8, "b"))
    # its forms are used up before the next loss
    large = [Form(lines(14, "a")), Form(lines(13, "a"), loss=2)]
    assert on_one_screen(REPORT, [large, second]).tables == (*lines(13, "a"), *lines(7, "b"))


def test_of_the_same_loss_the_lowest_block_is_shortened_first() -> None:
    blocks = [
        [Form(lines(n, text)), Form(lines(n - 1, text), loss=1)]
        for n, text in ((11, "a"), (10, "b"))
    ]
    assert on_one_screen(REPORT, blocks).tables == (*lines(11, "a"), *lines(9, "b"))


def test_notes_but_warnings_are_dropped_and_counted() -> None:
    notes = ["warning: one", "two", "three"]
    screen = on_one_screen(REPORT, [[Form(lines(18))], *note_blocks(notes, 0)], counted)
    assert screen.short_notes == ("warning: one", "Left out: 2 notes.")
    assert height(screen) == HEIGHT


def test_formulas_and_files_keep_the_notes_that_a_screen_drops() -> None:
    blocks = [[Form(lines(19))], *note_blocks(["one", "two"], 0)]
    screen = on_one_screen(REPORT, blocks, counted)
    assert "one" not in render(screen)
    assert render(screen, explain=True).endswith("\n\none\ntwo\n")
    assert markdown.render(screen).endswith("> one\n\n> two\n")


def test_no_note_is_dropped_in_vain() -> None:
    blocks = [[Form(lines(40)), Form(lines(30), loss=1)], *note_blocks(["one", "two"], 0)]
    screen = on_one_screen(REPORT, blocks, counted)
    assert (screen.tables, screen.screen_notes) == (lines(30), ("one", "two"))
    assert screen.short_notes is None


def test_a_bar_becomes_words_where_these_fit() -> None:
    with_bar = REPORT._replace(bar=BAR)
    # the heading, 3 lines of the bar and 19 more with an empty one are 24, and 23 with its words
    screen = on_one_screen(with_bar, [bar_block(0), [Form(lines(19))]])
    assert screen.bar == BAR._replace(in_words=True)
    assert height(screen) == HEIGHT
    assert on_one_screen(with_bar, [bar_block(0), [Form(lines(18))]]).bar == BAR


def test_what_no_block_drops_is_not_counted() -> None:
    assert counted({NOTE: 1}) == ("Left out: 1 note.",)
    assert on_one_screen(REPORT, [[Form(lines(2))]], counted).screen_notes == ()
