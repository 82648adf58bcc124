"""LaTeX for the body of a paper that uses the package booktabs: the tables of a report, and the
rows of a sweep.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import IO

from ..units import SCALES, column, count
from .characters import printable
from .formats import Rows
from .formulas import explain_figures
from .report import Report, Table, number

# Columns of typewriter letters in the text width of LaTeX's article.
_WIDTH = 64

_MARKS = {
    "\\": "textbackslash",
    "~": "textasciitilde",
    "^": "textasciicircum",
    "`": "textasciigrave",
}
_MARKS |= {"<": "textless", ">": "textgreater", "|": "textbar", "\u2026": "ldots"}
_LETTERS = {
    "\u00c6": "AE",
    "\u00e6": "ae",
    "\u00d8": "O",
    "\u00f8": "o",
    "\u0152": "OE",
    "\u0153": "oe",
}
_LETTERS |= {"\u00df": "ss", "\u0131": "i", "\u0141": "L", "\u0142": "l"}
_MATH = {
    "\u00b0": r"^\circ",
    "\u00b1": r"\pm",
    "\u00b5": r"\mu",
    "\u00b7": r"\cdot",
    "\u00d7": r"\times",
}
_MATH |= {
    "\u2192": r"\to",
    "\u2212": "-",
    "\u2248": r"\approx",
    "\u2260": r"\ne",
    "\u2264": r"\le",
    "\u2265": r"\ge",
}
_MATH |= {"\u00b9": "^1", "\u00b2": "^2", "\u00b3": "^3"}
_ESCAPES = {
    **{mark: f"\\{mark}" for mark in "{}&%$#_"},
    **{char: f"\\{command}{{}}" for char, command in (_MARKS | _LETTERS).items()},
    **{char: f"${formula}$" for char, formula in _MATH.items()},
    '"': r"\symbol{34}",  # babel's German makes a plain " a command
    "\u00a0": "~",
    "\u2010": "-",
    "\u2011": "-",
    "\u2013": "--",
    "\u2014": "---",
    "\u2018": "`",
    "\u2019": "'",
    "\u201c": "``",
    "\u201d": "''",
}
_ACCENTS = {
    "\u0300": "`",
    "\u0301": "'",
    "\u0302": "^",
    "\u0303": "~",
    "\u0304": "=",
    "\u0306": "u",
    "\u0307": ".",
    "\u0308": '"',
    "\u030a": "r",
    "\u030b": "H",
    "\u030c": "v",
    "\u0323": "d",
    "\u0327": "c",
}
# TeX joins -- to a dash, '' to a quote, and in T1 ,, to a low quote
_LIGATURE = re.compile(r"([-',])(?=\1)")
# \\ takes a star or a bracket as its option, also at the start of the next row
_OPTION = re.compile(r"[\[*]")


def render(report: Report, *, explain: bool = False) -> str:
    r"""Return one tabular per table of the screen; the heading and the notes are comments.

    There is no table environment and no caption: a paper has its own, and loads the tabulars with
    \input. `explain` adds the formula of each figure.
    """
    title, *facts = report.heading
    head = [
        f"attncalc {report.command}: {title}",
        *facts,
        "Load \\usepackage{booktabs} in the preamble.",
    ]
    blocks = [_comments(head)]
    if report.answer:
        blocks.append(_comments([report.answer]))
    blocks += _tabulars(report.tables, report.titles)
    if explain:
        blocks += map(_typewriter, explain_figures(report.figures_to_explain, _WIDTH))
    if report.screen_notes:
        blocks.append(_comments(report.screen_notes))
    blocks += _tabulars(report.footer)
    return "\n\n".join(blocks) + "\n"


def write(rows: Rows, file: IO[str]) -> None:
    """Write the rows of a sweep as one tabular. A column has one unit, and one without any cell is
    left out.
    """
    titles = {escape(name): escape(title) for name, title in rows.titles.items()}
    align = ""
    columns = []
    for name, unit, cells in zip(rows.names, rows.units, zip(*rows.rows, strict=True), strict=True):
        if not {*cells} - {None}:
            continue
        align += "l" if unit is None else "r"
        named = cells
        if name == "model":
            named = tuple(titles.get(model, model) for model in cells)
        columns.append(_in_one_unit(titles[escape(name)], unit, named))
    lines = list(map(" & ".join, zip(*columns, strict=True)))
    file.write("% Load \\usepackage{booktabs} in the preamble.\n")
    file.write(f"\\begin{{tabular}}{{{align}}}\n\\toprule\n{lines[0]} \\\\\n\\midrule\n")
    file.writelines(f"{line} \\\\\n" for line in lines[1:])
    file.write("\\bottomrule\n\\end{tabular}\n")


def _in_one_unit(name: str, unit: str | None, cells: Sequence[object]) -> list[str]:
    """Return the header of a column, with its unit, and its cells."""
    numbers = [cell for cell in cells if isinstance(cell, int)]
    if unit not in SCALES or len(numbers) + cells.count(None) < len(cells):
        return [name, *map(_figure, cells)]
    scaled, texts = column(numbers, unit)
    in_order = iter(texts)
    return [
        f"{name}, {escape(scaled)}",
        *("" if cell is None else next(in_order) for cell in cells),
    ]


def _figure(cell: object) -> str:
    """Return a cell of a row; of those that `escape` has not passed, only verdicts have a mark."""
    if cell is None:
        return ""
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        if isinstance(cell, int):
            return count(cell)
        return number(cell)
    if cell in ("may_not_fit", "does_not_fit"):
        return str(cell).replace("_", r"\_")
    return str(cell)


def _comments(lines: Iterable[str]) -> str:
    return "\n".join(f"% {line}" for line in "\n".join(lines).split("\n"))


def _typewriter(lines: Iterable[str]) -> str:
    r"""Return lines in which every space counts. \verbatim would not do: a title may contain its
    end.
    """
    return "\n".join(rf"\noindent\texttt{{{escape(line).replace(' ', '~')}}}\par" for line in lines)


def _tabulars(
    tables: Sequence[Table], titles: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return the tables with space between them: in one table environment their rules would
    touch.
    """
    blocks: list[str] = []
    for table in tables:
        blocks += [r"\bigskip", _tabular(table, titles)]
    return blocks[1:]


def _tabular(table: Table, titles: Mapping[str, str]) -> str:
    if table.code:
        return _typewriter([*table.headers, *(line for (line,) in table.rows)])
    align = "".join(column.align[0] for column in table.columns)
    lines = [rf"\begin{{tabular}}{{@{{}}{align}@{{}}}}", r"\toprule"]
    if table.above:
        last = len(table.columns)
        above = rf"\multicolumn{{{last - 1}}}{{c}}{{{table.above}}}"
        lines.append(rf" & {above} \\ \cmidrule(l){{2-{last}}}")
    if table.header_rows:
        lines += [*(_row(cells, titles) for cells in table.header_rows), r"\midrule"]
    lines += [*(_row(cells, titles) for cells in table.rows), r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines)


def _row(cells: Iterable[str], titles: Mapping[str, str]) -> str:
    return " & ".join(_cell(titles.get(cell, cell)) for cell in cells) + r" \\"


def _cell(text: str) -> str:
    """Return a cell; one that is indented, as a part of the row above, gets a quad for each two
    spaces.
    """
    words = text.strip()
    if not words:
        return ""
    quads = (len(text) - len(text.lstrip())) // 2
    return r"\quad " * quads + escape(words)


def escape(text: str) -> str:
    r"""Return `text` on one line, so that LaTeX prints its characters: 'a_b' becomes 'a\_b'.

    The result is ASCII and compiles with any LaTeX of 2020 or later. A letter that pdfTeX's fonts
    lack is replaced by its code point: 'U+4E2D'.
    """
    line = printable(text.replace("\t", " "), "utf-8").replace("\n", " ")
    parted = unicodedata.normalize("NFC", _LIGATURE.sub("\\1\u200b", line))
    escaped = "".join(map(_character, parted))
    if _OPTION.match(escaped):
        return "{}" + escaped
    return escaped


def _character(char: str) -> str:
    if char == "\u200b":  # a space of no width, which keeps letters apart
        return "{}"
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isascii():
        return char
    letter, *marks = list(unicodedata.normalize("NFD", char))
    if letter.isascii() and len(marks) == 1 and marks[0] in _ACCENTS:
        return f"\\{_ACCENTS[marks[0]]}{{{letter}}}"
    return f"U+{ord(char):04X}"
