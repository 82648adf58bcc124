"""Characters that an output cannot show, or that would deceive its reader."""

import re

_BLOCKS = str.maketrans("█▓▒░│┤┬└─·", "#=-.|+++-.")

# Control characters but the line feed, line separators, and marks that change the direction of
# text: with
# U+202E a title 'txt.exe' is shown as 'exe.txt'. Characters without a width: two names that look
# equal could differ in one, and U+E0020 to U+E007E are a whole alphabet that nobody sees. A half of
# a surrogate pair stands for a byte of a file name that is not UTF-8.
_UNSAFE = (
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\ud800-\udfff]"
)


def printable(text: str, encoding: str | None, *, tabs: bool = False) -> str:
    r"""Return `text` with every character escaped that could deceive, or that `encoding` lacks;
    `tabs` keeps tabs.

    Block characters become ASCII, others `\u202e`. A character beyond U+FFFF is written as two
    halves, as JSON does, so that JSON stays JSON: `\ud83d\ude00`.
    """
    ascii_text = text.translate(_BLOCKS)
    if ascii_text.isascii() and ascii_text.replace("\n", "").isprintable():
        # without compiling _UNSAFE, which takes half a millisecond
        if _has(encoding, text):
            return text
        return ascii_text
    text = "\t".join(
        re.sub(_UNSAFE, _escape, part) for part in (text.split("\t") if tabs else [text])
    )
    if _has(encoding, text):
        return text
    return "".join(
        char if _has(encoding, char) else _escape(char) for char in text.translate(_BLOCKS)
    )


def _has(encoding: str | None, text: str) -> bool:
    try:
        text.encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return text.isascii()
    return True


def _escape(char: str | re.Match[str]) -> str:
    units = (char if isinstance(char, str) else char[0]).encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
