"""The width of a screen, text and commands in lines of it, and a table that is wider as a list."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from .characters import printable

if TYPE_CHECKING:
    from .report import Table

WIDTH = 80
"""Columns of a screen that is no terminal, and of text on a wider one."""
_NARROWEST = 40
"""Columns of the narrowest screen; a narrower terminal wraps the lines itself."""

_MOST_CELLS = 4
"""Cells of a row beside its label that have a line each in a list."""


def screen_width(stream: IO[str]) -> int:
    """Return the columns of the terminal, at least _NARROWEST, or WIDTH if it is none; COLUMNS overrides both."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdecimal() and int(given[:6]):
        return max(_NARROWEST, int(given[:6]))
    try:
        return max(_NARROWEST, os.get_terminal_size(stream.fileno()).columns or WIDTH)
    except (OSError, ValueError):  # it is no terminal, or has no number
        return WIDTH


def wrapped(text: str, hanging: str = "  ", width: int = WIDTH) -> list[str]:
    """Return `text` in lines of at most `width` columns, indented by `hanging` after the first."""
    return textwrap.wrap(text, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)


def tell(text: str, hanging: str = "  ", stream: IO[str] | None = None) -> None:
    """Write a line to `stream`, by default standard error, in several of the width of a terminal or of COLUMNS.

    In a pipe without COLUMNS it is one line, which programs search.
    """
    stream = stream or sys.stderr
    if stream is None:  # it is closed
        return
    is_wrapped = stream.isatty() or "COLUMNS" in os.environ
    lines = wrapped(text, hanging, screen_width(stream)) if is_wrapped else [text]
    stream.write(printable("\n".join(lines), stream.encoding) + "\n")


def divided(table: Table, width: int) -> list[Table]:
    """Return a table, in parts of at most `width` columns if it is divisible; each part has the first column.

    It is returned whole if a column does not fit beside the first.
    """
    if not table.is_divisible:
        return [table]
    labels, *columns = zip([column.header for column in table.columns], *table.rows, strict=True)
    room = width - 2 - max(map(len, labels))
    per_part = room // (2 + max(len(cell) for cells in columns for cell in cells)) or len(columns)
    parts = []
    for start in range(0, len(columns), per_part):
        end = start + per_part
        rows = tuple((row[0], *row[start + 1 : end + 1]) for row in table.rows)
        parts.append(table._replace(columns=(table.columns[0], *table.columns[start + 1 : end + 1]), rows=rows))
    return parts


def list_lines(table: Table, width: int) -> list[str]:
    """Return each row with its labels before its cells, in lines of at most `width` columns."""
    if table.code:
        command = " ".join(line.removesuffix("\\").strip() for (line,) in table.rows)
        title = wrapped(f"  {table.columns[0].header}", "      ", width)
        return [*title, *(f"  {line}" for line in command_lines(command, width - 2))]
    lines = []
    for line in _records(table):
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        lines += wrapped(f"  {line}", f"  {indent}", width)
    return lines


def _records(table: Table) -> Iterator[str]:
    """Yield the lines of each row: 'KV cache: 1.25 GiB (1,342,177,280 B)', or with headers a line per cell.

    Of more than _MOST_CELLS the lines would be many, and the cells are one line.
    """
    shown = [i for i, column in enumerate(table.columns) if column.in_lists]
    table = table._replace(
        columns=tuple(table.columns[i] for i in shown), rows=tuple(tuple(row[i] for i in shown) for row in table.rows)
    )
    headers = [re.sub("\n(?!/)", " ", column.header.replace("-\n", "")).replace("\n", "") for column in table.columns]
    if len(headers) == 1:
        yield from filter(None, (headers[0], *(row[0] for row in table.rows)))
        return
    above = None
    for label, *cells in _whole_rows(table, headers[0]):
        indent = " " * (len(label) - len(label.lstrip()))
        values = [cell.strip() for cell in cells]
        if any(headers):
            named = [(header, value) for header, value in zip(headers[1:], values, strict=True) if value.strip("-")]
            has_meaning = len(named) == 2 and not named[1][0]
            if has_meaning:  # '64 MiB: queries'
                named = [(f"{named[0][1]} {named[0][0]}", named[1][1])]
            if label != above or not has_meaning:
                yield f"{indent}{_named(headers[0], label.strip())}" if headers[0] else label.rstrip()
            above = label
            texts = [_named(header, value) for header, value in named]
            yield from (f"{indent}  {text}" for text in (["; ".join(texts)] if len(texts) > _MOST_CELLS else texts))
        else:
            first, *others = [*filter(None, values)] or [""]
            yield label.rstrip() + (f": {first}" if first else "") + (f" ({', '.join(others)})" if others else "")


def _named(header: str, value: str) -> str:
    """Return a cell after its header: 'gpus: 8', or 'TTFT >= 54.7 ms'."""
    return f"{header}{'' if header.endswith('=') else ':'} {value}" if header else value


def _whole_rows(table: Table, header: str) -> list[tuple[str, ...]]:
    """Return the rows, with what a table prints once: labels of the row above, and a cell in several lines."""
    rows: list[tuple[str, ...]] = []
    for row in table.rows:
        filled = [i for i, cell in enumerate(row) if cell] or [0]
        if header and row[0].startswith(" ") and filled == [0]:  # more options of a change
            rows[-1] = (f"{rows[-1][0]} {row[0].strip()}", *rows[-1][1:])
        elif header or not rows or filled[0] == 0:
            rows.append((*(rows[-1] if rows else row)[: filled[0]], *row[filled[0] :]))
        else:
            rows[-1] = (*rows[-1][:-1], f"{rows[-1][-1]} {row[-1]}")
    return rows


def command_lines(command: str, width: int) -> list[str]:
    """Return a command in lines of at most `width` columns that end with a backslash, so that they can be pasted.

    One that starts another in the background ends with '&'.
    """
    found: list[str] = []
    for part in command.split(" & "):
        first, *others = option_lines(part, width - 6)  # without the indent and ' \\'
        lines = [first, *(f"    {line}" for line in others)]
        found += [*(f"{line} \\" for line in lines[:-1]), f"{lines[-1]} &"]
    return [*found[:-1], found[-1].removesuffix(" &")]


def option_lines(command: str, width: int) -> list[str]:
    """Return a command in lines of at most `width` columns, unless a word is longer.

    An option stays beside its value if both fit, and a quoted word is not divided.
    """
    import shlex  # only screens with commands need it

    groups: list[str] = []
    for word in map(shlex.quote, shlex.split(command)):
        has_option = groups and groups[-1].startswith("-") and " " not in groups[-1]
        if has_option and not word.startswith("-") and len(f"    {groups[-1]} {word}") <= width:
            groups[-1] += f" {word}"
        else:
            groups.append(word)
    lines = [groups[0]]
    for group in groups[1:]:
        if len(lines[-1]) + 1 + len(group) > width:
            lines.append(group)
        else:
            lines[-1] += f" {group}"
    return lines
