"""The width of a screen, text and commands in lines of it, and a table that is wider as a list."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from ..units import UNIT_NAMES
from .characters import printable

if TYPE_CHECKING:
    from .report import Table

# Columns of a screen that is no terminal, and of text on a wider one.
WIDTH = 80
_UNITS = "|".join(map(re.escape, sorted(UNIT_NAMES, key=len, reverse=True)))
_SIGNS = {"-": "minus", "+": "plus", "=": "equals", "x": "times"}  # a screen reader skips signs
# Columns of the narrowest screen; a narrower terminal wraps the lines itself.
_NARROWEST = 40


def screen_width(stream: TextIO) -> int:
    """Return the columns of the terminal, at least _NARROWEST, or WIDTH if it is none; COLUMNS
    overrides both.
    """
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdecimal() and int(given[:6]):
        return max(_NARROWEST, int(given[:6]))
    try:
        return max(_NARROWEST, os.get_terminal_size(stream.fileno()).columns or WIDTH)
    except (OSError, ValueError):  # it is no terminal, or has no number
        return WIDTH


def screen_rows(stream: TextIO) -> int:
    """Return the lines of the terminal, less those told above and one for the prompt; 0 if it is
    none.
    """
    try:
        return max(1, os.get_terminal_size(stream.fileno()).lines - 1 - sum(_told))
    except (OSError, ValueError):
        return 0


def wrapped(text: str, hanging: str = "  ", width: int = WIDTH) -> list[str]:
    """Return `text` in lines of at most `width` columns, indented by `hanging` after the first.

    No line ends between a number and its unit.
    """
    joined = re.sub(rf"(?<=\d) (?=(?:{_UNITS})(?![\w/]))", "\0", text)
    lines = textwrap.wrap(
        joined, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\0", " ") for line in lines]


# The lines of each text that this process wrote to a terminal beside its answer.
_told: list[int] = []


def tell(
    text: str, hanging: str = "  ", stream: TextIO | None = None, *, is_command: bool = False
) -> None:
    """Write a line to `stream`, by default standard error, in several of the width of a terminal or
    of COLUMNS.

    In a pipe without COLUMNS it is one line, which programs search. A command's lines end with a
    backslash.
    """
    stream = stream or sys.stderr
    if stream is None:  # it is closed
        return
    is_wrapped = stream.isatty() or "COLUMNS" in os.environ
    width = screen_width(stream)
    divided = command_lines(text, width) if is_command else wrapped(text, hanging, width)
    lines = divided if is_wrapped else [text]
    stream.write(printable("\n".join(lines), stream.encoding) + "\n")
    if stream.isatty():
        _told.append(len(lines))


def divided(table: Table, width: int) -> list[Table]:
    """Return a table, in parts of at most `width` columns if it is divisible; each part has the
    first column.

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
        parts.append(
            table._replace(
                columns=(table.columns[0], *table.columns[start + 1 : end + 1]), rows=rows
            )
        )
    return parts


def list_lines(table: Table, width: int) -> list[str]:
    """Return each row as a sentence that has the labels of its cells, in lines of at most `width`
    columns.

    A line breaks between cells: '  gpu: h200; replicas: 1;' and '    TTFT >= 54.7 ms; tokens/s <=
    7'.
    """
    if table.code:
        command = " ".join(line.removesuffix("\\").strip() for (line,) in table.rows)
        title = wrapped(f"  {table.columns[0].header}", "      ", width)
        return [*title, *(f"  {line}" for line in command_lines(command, width - 2))]
    lines: list[str] = []
    for label, *cells in _records(table):
        indent = " " * (len(label) - len(label.lstrip()) + 2)
        lines += packed([label.lstrip(), *cells], indent, width)
    return lines


def packed(parts: list[str], indent: str, width: int) -> list[str]:
    """Return the parts in lines of at most `width` columns, which break between parts, or else
    within a long one.
    """
    first, *others = parts
    lines = wrapped(indent + first, f"{indent}  ", width)
    for part in others:
        if len(lines[-1]) + 1 + len(part) <= width:
            lines[-1] += f" {part}"
        else:
            lines += wrapped(f"{indent}  {part}", f"{indent}    ", width)
    return lines


def _records(table: Table) -> Iterator[tuple[str, ...]]:
    """Yield the label of each row and its cells after their headers, or without headers the whole
    row in one text.

    '  gpu: h200;' and '8 GPUs', or 'KV cache: 1.25 GiB (1,342,177,280 B)'.
    """
    headers = _headers(table)
    if len(headers) == 1:
        yield from ((text,) for text in (headers[0], *(row[0] for row in table.rows)) if text)
        return
    records: list[list[str]] = []
    above = ""
    for label, *cells in _whole_rows(table, headers[0]):
        values = [table.missing if cell.strip() == "-" else cell.strip() for cell in cells]
        text = re.sub("^( *)([-+=x]) ", lambda sign: f"{sign[1]}{_SIGNS[sign[2]]} ", label.rstrip())
        if any(headers):
            record = _record(table, headers, text, values)
        else:
            record = [_without_headers(text, values)]
        if label == above and len(record) == 2:  # further tensors of the same kernel
            records[-1] += record[1:]
        else:
            records.append(record)
        above = label
    for first, *others in records:
        if others:
            end = ";" if headers[0] else ":"
        else:
            end = ""
        yield (first + end, *(f"{other};" for other in others[:-1]), *others[-1:])


def _headers(table: Table) -> list[str]:
    """Return the headers, each in one line, and with `above`: 'context 4,096'."""
    texts = [
        re.sub("\n(?!/)", " ", column.header.replace("-\n", "")).replace("\n", "")
        for column in table.columns
    ]
    if not table.above:
        return texts
    pairs = zip(table.columns, texts, strict=True)
    return [f"{table.above} {text}" if column.align == "right" else text for column, text in pairs]


def _without_headers(label: str, values: list[str]) -> str:
    first, *others = [*filter(None, values)] or [""]
    return label + (f": {first}" if first else "") + (f" ({', '.join(others)})" if others else "")


def _record(table: Table, headers: list[str], label: str, values: list[str]) -> list[str]:
    """Return the label and the cells after their headers. A cell without a header is a part of the
    cell before it.

    The unit of a column, of a row as 'KV cache, GiB', or of the table follows each number.
    """
    title, unit = _without_unit(headers[0], ", ")
    text, own = _without_unit(label, ", ")
    unit = own or unit or table.unit
    indent = text[: len(text) - len(text.lstrip())]
    record = [f"{indent}{title}: {text.strip()}" if title else text]
    for column, header, value in zip(table.columns[1:], headers[1:], values, strict=True):
        if value and not header and len(record) > 1:
            record[-1] += f", {value}"
        elif value:
            own_unit = unit if column.align == "right" else ""
            record.append(_named(header, value, own_unit))
    return record


def _without_unit(header: str, before: str = "(?:^|,? )") -> tuple[str, str]:
    """Return a header, and its unit or ''; a regular expression matches what is before the unit.

    'KV cache, GiB' has a unit. 'tokens per GiB' and '7.6 GiB' have none.
    """
    match = re.search(rf"(?<!per){before}({_UNITS})(?=,? (?!per)|$)", header)
    if match is None or re.search(r"(?:^| )[\d.,]+$", header[: match.start()]):
        return header, ""
    return header[: match.start()] + header[match.end() :], match[1]


def _named(header: str, value: str, unit: str) -> str:
    """Return a cell after its header, and before its unit: 'replicas: 8', 'TTFT >= 54.7 ms', 'KV
    cache: 36 MiB'.
    """
    if header.endswith("="):
        return f"{header} {value}"
    if re.fullmatch(r"[\d.,]+(?: to [\d.,]+)?", value):
        header, own = _without_unit(header)
        value = f"{value} {own or unit}".rstrip()
    header = header.removeprefix(", ")
    if header:
        return f"{header}: {value}"
    return value


def _whole_rows(table: Table, header: str) -> list[tuple[str, ...]]:
    """Return the rows, with what a table prints once: labels of the row above, and a cell in
    several lines.
    """
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


def command_lines(command: str, width: int, *, whole_nodes: int = 2) -> list[str]:
    """Return a command in lines of at most `width` columns that end with a backslash, so that they
    can be pasted.

    One that starts another in the background ends with '&'. Of a server on several nodes, the
    commands of `whole_nodes` are shown, and how the others differ from the first.
    """
    first, *others = command.split("\n")
    if others:
        found = ["# on node 0", *command_lines(first, width)]
        for node, other in enumerate(others, 1):
            if node < whole_nodes:
                found += [f"# on node {node}", *command_lines(other, width)]
            else:
                own = " ".join(
                    option for option in _options(other) if option not in _options(first)
                )
                more = f", with {own}" if own else ""
                found.append(f"# on node {node} as on node 0{more}")
        return found
    found = []
    for part in command.split(" & "):
        first, *others = option_lines(part, width - 6)  # without the indent and ' \\'
        lines = [first, *(f"    {line}" for line in others)]
        found += [*(f"{line} \\" for line in lines[:-1]), f"{lines[-1]} &"]
    return [*found[:-1], found[-1].removesuffix(" &")]


def _options(command: str) -> list[str]:
    """Return the options of a command, each with its value: '--node-rank 1'."""
    return [f"--{part}" for part in command.split(" --")[1:]]


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
