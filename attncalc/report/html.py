"""A report as HTML: a page of its own, or a fragment for a notebook."""

from __future__ import annotations

import html

from .characters import printable


def escape(text: str) -> str:
    """Return `text` so that HTML shows its characters, in an element or in a quoted attribute.

    The result is ASCII, so that it is read correctly whatever encoding a page or a stream declares.
    """
    return html.escape(printable(text, "utf-8")).encode("ascii", "xmlcharrefreplace").decode("ascii")
