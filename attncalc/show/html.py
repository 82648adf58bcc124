"""HTML: a report as a page of its own or as a fragment for a notebook, and the rows of a sweep."""

import html
from collections.abc import Iterable, Sequence
from typing import IO

from .characters import printable
from .formats import Rows
from .formulas import explain_figures
from .report import Column, Report, Table

_STYLE = """\
<style>
.attncalc table { border-collapse: collapse; margin: 1em 0; border-top: 2px solid; \
border-bottom: 2px solid; }
.attncalc th, .attncalc td { padding: 0.15em 0.6em; text-align: left; \
font-variant-numeric: tabular-nums; }
.attncalc th { font-weight: normal; vertical-align: bottom; }
.attncalc thead { border-bottom: 1px solid; }
.attncalc .number { text-align: right; white-space: nowrap; }
.attncalc .part { padding-left: 2em; }
.attncalc .strong > * { font-weight: bold; }
.attncalc p { max-width: 50em; }
.attncalc pre { line-height: 1.2; overflow-x: auto; }
</style>"""


def render(report: Report, *, explain: bool = False) -> str:
    """Return a page without scripts and without links, so that it opens in a browser and can be
    sent as one file.

    `explain` adds the formula of each figure.
    """
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(f'attncalc {report.command}: {_title(report)[0]}')}</title>",
        _STYLE,
        "<style>:root { color-scheme: light dark; font-family: sans-serif; } body { margin: 2em; "
        "}</style>",
        "</head>",
        '<body class="attncalc">',
        *_blocks(report, explain=explain),
        "</body>",
        "</html>",
    ]
    return "\n".join(lines) + "\n"


def write(rows: Rows, file: IO[str]) -> None:
    """Write the rows of a sweep as a page with one table."""
    file.write(
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>attncalc '
        "sweep</title>\n"
    )
    file.write(
        "<style>td, th { padding: 0 0.5em; } .number { text-align: right; }</style>\n</head>\n"
        "<body>\n<table>\n"
    )
    classes = ["" if unit is None else ' class="number"' for unit in rows.units]
    header = ""
    for kind, name in zip(classes, rows.names, strict=True):
        header += f"<th{kind}>{escape(name)}</th>"
    file.write(f"<thead><tr>{header}</tr></thead>\n<tbody>\n")
    for row in rows.rows:
        line = ""
        for kind, cell in zip(classes, row, strict=True):
            line += f"<td{kind}></td>" if cell is None else f"<td{kind}>{cell}</td>"
        file.write(f"<tr>{line}</tr>\n")
    file.write("</tbody>\n</table>\n</body>\n</html>\n")


def fragment(report: Report) -> str:
    """Return the report with its style as one element for a page that exists, as a notebook does.

    Colours and fonts are those of the page.
    """
    return "\n".join(('<div class="attncalc">', _STYLE, *_blocks(report, explain=False), "</div>"))


def _blocks(report: Report, *, explain: bool) -> list[str]:
    name, attention = _title(report)
    blocks = [f"<p><strong>{escape(name)}</strong> {escape(attention)}".rstrip() + "</p>"]
    blocks += map(_paragraph, report.heading[1:])
    if report.bar:
        blocks.append(_paragraph("; ".join(report.bar.words())))
    if report.answer:
        blocks.append(f"<p><strong>{escape(report.answer)}</strong></p>")
    blocks += map(_table, report.tables)
    if explain:
        blocks += map(_lines, explain_figures(report.figures_to_explain))
    blocks += map(_paragraph, report.screen_notes)
    blocks += map(_table, report.footer)
    return blocks


def _title(report: Report) -> tuple[str, str]:
    """Return the name of the model or the answer, and the rest of the first line: the model's
    attention.
    """
    name, _, attention = report.heading[0].partition("  ")
    return name, attention


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def _lines(lines: Iterable[str]) -> str:
    return "<pre>" + escape("\n".join(lines)) + "</pre>"


def _table(table: Table) -> str:
    if table.code:
        code = _lines(line for (line,) in table.rows)
        return "\n".join([*map(_paragraph, table.headers), code])
    lines = ["<table>"]
    if table.header_rows:
        header = "".join(map(_header, table.columns))
        lines += ["<thead>", f"<tr>{header}</tr>", "</thead>"]
    lines.append("<tbody>")
    for i, row in enumerate(table.rows):
        lines.append(_row(table.columns, row, strong=i in table.strong))
    return "\n".join([*lines, "</tbody>", "</table>"])


def _header(column: Column) -> str:
    text = "<br>".join(map(escape, column.header.split("\n")))
    if not text:  # above the names of the rows, where a header would be read out for nothing
        return "<td></td>"
    return f'<th scope="col"{_class(column)}>{text}</th>'


def _row(columns: Sequence[Column], cells: Sequence[str], *, strong: bool) -> str:
    first, *others = map(_cell, columns, cells)
    if columns[0].align == "left" and cells[0].strip():
        first = _row_header(cells[0])
    line = "".join([first, *others])
    if strong:
        return f'<tr class="strong">{line}</tr>'
    return f"<tr>{line}</tr>"


def _row_header(cell: str) -> str:
    """Return the cell that names the row. It is indented if it is a part of the row above."""
    text = escape(cell.strip())
    if cell.startswith(" "):
        return f'<th scope="row" class="part">{text}</th>'
    return f'<th scope="row">{text}</th>'


def _cell(column: Column, cell: str) -> str:
    return f"<td{_class(column)}>{escape(cell.strip())}</td>"


def _class(column: Column) -> str:
    if column.align == "right":
        return ' class="number"'
    return ""


def escape(text: str) -> str:
    """Return `text` so that HTML shows its characters, in an element or in a quoted attribute.

    The result is ASCII, so that it is read correctly whatever encoding a page or a stream declares.
    """
    return (
        html.escape(printable(text, "utf-8")).encode("ascii", "xmlcharrefreplace").decode("ascii")
    )
