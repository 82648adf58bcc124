"""LaTeX for the body of a paper that uses the package booktabs: the tables of a report, and the
rows of a sweep.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import IO

from .formats import Rows
from .formulas import Explanation, explanations
from .latex_math import math, symbol_name
from .latex_text import escape
from .report import Report, Table
from .row_columns import in_columns


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
        labels = {figure.name: figure.label.strip() for figure in report.figures_to_explain}
        for explanation in explanations(report.figures_to_explain):
            blocks.append(_explanation(explanation, labels))
    if report.screen_notes:
        blocks.append(_comments(report.screen_notes))
    blocks += _tabulars(report.footer)
    return "\n\n".join(blocks) + "\n"


def write(rows: Rows, file: IO[str]) -> None:
    """Write the rows of a sweep as one tabular. A column has one unit, and one without any cell is
    left out.
    """
    columns = in_columns(rows, escape, _verdict)
    align = "".join(column.align[0] for column in columns)
    header = " & ".join(column.header for column in columns)
    file.write("% Load \\usepackage{booktabs} in the preamble.\n")
    file.write(f"\\begin{{tabular}}{{{align}}}\n\\toprule\n{header} \\\\\n\\midrule\n")
    for cells in zip(*(column.cells for column in columns), strict=True):
        file.write(f"{' & '.join(cells)} \\\\\n")
    file.write("\\bottomrule\n\\end{tabular}\n")


def _verdict(cell: str) -> str:
    """Return a verdict; no other cell that `escape` has not passed has a mark."""
    if cell in ("may_not_fit", "does_not_fit"):
        return cell.replace("_", r"\_")
    return cell


def _comments(lines: Iterable[str]) -> str:
    return "\n".join(f"% {line}" for line in "\n".join(lines).split("\n"))


def _explanation(of: Explanation, labels: Mapping[str, str]) -> str:
    """Return a figure as a paragraph: its formula in symbols and in numbers, the meaning of each
    symbol, and the source. `labels` are those of all figures.
    """
    figure = of.figure
    formula = figure.formula
    name = f"{figure.label.strip()}, {figure.of}" if figure.of else figure.label.strip()
    exact = escape(figure.exact)
    if figure.human != figure.exact:
        exact = f"{exact} ({escape(figure.human)})"
    lines = [rf"\textbf{{{escape(name)}}}"]
    sides = dict.fromkeys((math(formula, labels), math(formula, numbers=True)))
    is_number = len(formula.tokens) == 1 and not formula.has_symbols
    if not is_number:
        lines += [f"$= {side}$" for side in sides]
    lines[-1] += rf" $=$ {exact}\\"
    meanings = []
    for symbol, value, meaning in of.symbols:
        shown = symbol_name(symbol) if value else symbol
        equals = f" = {value.replace(',', '{,}')}" if value else ""
        meanings.append(f"${shown}{equals}$ ({escape(meaning)})")
    if meanings:
        lines.append(f"with {', '.join(meanings)}.")
    if of.source:
        lines.append(f"Source: {escape(of.source)}.")
    text = "\n".join(lines).removesuffix(r"\\")
    return f"{{\\raggedright\\noindent\n{text}\\par}}\\smallskip"


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
