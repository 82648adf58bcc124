"""LaTeX: characters are escaped, and what is written compiles where a TeX is installed."""

import shutil
import subprocess
from pathlib import Path

import pytest
from tables import each

from attncalc.show.latex_text import escape

needs_tex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex is installed")

ASCII = "".join(map(chr, range(32, 127)))
LATIN = "éÉàñöůőşçæÆøßłŁœ"
MARKS = (
    "\u00d7\u00b7\u2212\u00b2\u00b3\u2026"
    "\u2013\u2014\u2018\u2019\u201c\u201d\u2264\u2265\u2248\u2260\u2192\u00b1\u00b0\u00b5\u00a0"
)


def compile_latex(body: str, folder: Path) -> str:
    """Return pdflatex's log of an article with `body` in it; fails if it does not compile."""
    file = folder / "paper.tex"
    file.write_text(
        "\\documentclass{article}\n\\usepackage{booktabs}\n\\begin{document}\n"
        + body
        + "\n\\end{document}\n",
        encoding="utf-8",
    )
    command = [
        "pdflatex",
        "-interaction=nonstopmode",
        "-halt-on-error",
        "-no-shell-escape",
        file.name,
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False)
    log = (folder / "paper.log").read_text(encoding="utf-8", errors="replace")
    assert done.returncode == 0, log[-3000:]
    return log


@each(
    ("text", "latex"),
    [
        ("a_b", r"a\_b"),
        ("50% & more", r"50\% \& more"),
        ("\\input{x}", r"\textbackslash{}input\{x\}"),
        (
            "x ~ y^2 < 3 > $1 #2 |",
            r"x \textasciitilde{} y\textasciicircum{}2 \textless{} 3 \textgreater{} \$1 \#2 ",
        ),
        ("8 \u00d7 4 \u2212 2\u00b2 \u2026", r"8 $\times$ 4 $-$ 2$^2$ \ldots{}"),
        ("Café Ünal", r"Caf\'{e} \"{U}nal"),
        ("--tp", "-{}-tp"),
        ("[x]", "{}[x]"),
        ("* as released", "{}* as released"),
        ("two\nlines", "two lines"),
        ("千问", "U+5343U+95EE"),
        ("\u202etxt.exe", r"\textbackslash{}u202etxt.exe"),
    ],
)
def test_text_is_escaped(text: str, latex: str) -> None:
    assert escape(text).startswith(latex)


def test_escaped_text_is_ascii() -> None:
    assert escape(ASCII + LATIN + MARKS + "".join(map(chr, range(0x2FFF)))).isascii()


@needs_tex
def test_escaped_text_compiles_in_a_cell(tmp_path: Path) -> None:
    cells = [
        ASCII,
        *ASCII,
        *LATIN,
        *MARKS,
        "[x]",
        "*",
        "千问",
        "\t\x01",
        "😀",
        "\ud800",
        "a--b",
        "''",
        "`` !`",
    ]
    rows = "".join(f"{escape(cell)} & {escape(cell)} \\\\\n" for cell in cells)
    log = compile_latex("\\begin{tabular}{lr}\n" + rows + "\\end{tabular}", tmp_path)
    assert "Missing character" not in log


@needs_tex
def test_a_letter_of_no_table_compiles(tmp_path: Path) -> None:
    letters = [
        chr(code)
        for block in (range(0xA0, 0x250), range(0x370, 0x400), range(0x2000, 0x2300))
        for code in block
    ]
    compile_latex("\n\n".join(escape(f"x{letter}x") for letter in letters), tmp_path)
