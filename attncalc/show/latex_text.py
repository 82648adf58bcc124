"""Text as LaTeX prints it."""

import re
import unicodedata

from .characters import printable

_MARKS = {
    "\\": "textbackslash",
    "~": "textasciitilde",
    "^": "textasciicircum",
    "`": "textasciigrave",
    "<": "textless",
    ">": "textgreater",
    "|": "textbar",
    "\u2026": "ldots",
}
_LETTERS = {
    "\u00c6": "AE",
    "\u00e6": "ae",
    "\u00d8": "O",
    "\u00f8": "o",
    "\u0152": "OE",
    "\u0153": "oe",
    "\u00df": "ss",
    "\u0131": "i",
    "\u0141": "L",
    "\u0142": "l",
}
_MATH = {
    "\u00b0": r"^\circ",
    "\u00b1": r"\pm",
    "\u00b5": r"\mu",
    "\u00b7": r"\cdot",
    "\u00d7": r"\times",
    "\u2192": r"\to",
    "\u2212": "-",
    "\u2248": r"\approx",
    "\u2260": r"\ne",
    "\u2264": r"\le",
    "\u2265": r"\ge",
    "\u00b9": "^1",
    "\u00b2": "^2",
    "\u00b3": "^3",
}
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
