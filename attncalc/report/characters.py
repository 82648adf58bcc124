"""Characters that an output cannot show, or that would deceive its reader."""

from __future__ import annotations

import re

_BLOCKS = str.maketrans("█▓▒░│┤┬└─·", "#=-.|+++-.")

# Control characters but the tab and the line feed, line separators, and marks that change the direction of text: with
# U+202E a title 'txt.exe' is shown as 'exe.txt'. A half of a surrogate pair stands for a byte of a file name that is
# not UTF-8.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str, encoding: str | None) -> str:
    r"""Return `text` with every character escaped that could deceive, or that `encoding` lacks.

    Block characters become ASCII, others `\u202e`. A character beyond U+FFFF is written as two halves, as JSON does,
    so that JSON stays JSON: `\ud83d\ude00`.
    """
    text = _UNSAFE.sub(_escape, text)
    if _has(encoding, text):
        return text
    return "".join(char if _has(encoding, char) else _escape(char) for char in text.translate(_BLOCKS))


def _has(encoding: str | None, text: str) -> bool:
    try:
        text.encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return text.isascii()
    return True


def _escape(char: str | re.Match[str]) -> str:
    units = (char if isinstance(char, str) else char[0]).encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
