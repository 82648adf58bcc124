"""docs/your-model.md lists the kinds of attention and their keys. `python tests/test_kinds_page.py`
writes these tables anew.
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # to be run as a script

from asking import REPOSITORY

from attncalc.attention import KINDS, required_keys
from attncalc.config.keys import kind_keys

PAGE = REPOSITORY / "docs/your-model.md"
_KINDS = "<!-- tests/test_kinds_page.py writes the kinds -->"
_KEYS = "<!-- tests/test_kinds_page.py writes the keys -->"
_END = "<!-- end -->"


def with_tables(page: str) -> str:
    """Return the page with both tables written anew, from the classes of the kinds."""
    for marker, rows in ((_KINDS, kind_rows()), (_KEYS, key_rows())):
        before, found, rest = page.partition(marker)
        assert found, f"the page has no '{marker}'"
        page = before + "\n".join([marker, "", *rows, "", _END]) + rest.partition(_END)[2]
    return page


def kind_rows() -> Iterator[str]:
    """Yield a row per kind: what it is, and its keys."""
    yield from ("| kind | layers | keys |", "|---|---|---|")
    for name, kind in KINDS.items():
        about = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
        yield f"| `{name}` | {about} | {', '.join(_keys(name)) or 'none'} |"


def _keys(name: str) -> Iterator[str]:
    """Yield the keys of a kind, in bold if required; those of `grouped` are one item."""
    keys, grouped = kind_keys(name), kind_keys("grouped")
    if name != "grouped" and grouped.keys() <= keys.keys():
        yield "those of `grouped`"
        keys = {key: schema for key, schema in keys.items() if key not in grouped}
    required = required_keys(KINDS[name])
    for key in keys:
        yield f"**`{key}`**" if key in required else f"`{key}`"


def key_rows() -> Iterator[str]:
    """Yield a row per key; if its meaning differs, the later kinds' follow with their names."""
    meanings: dict[str, dict[str, list[str]]] = {}
    for name in KINDS:
        for key, schema in kind_keys(name).items():
            meanings.setdefault(key, {}).setdefault(schema["description"], []).append(name)
    yield from ("| key | meaning |", "|---|---|")
    for key, found in meanings.items():
        first, *others = found
        texts = [first, *(f"in {_names(found[text])}: {text}" for text in others)]
        cell = "; ".join(texts).replace("|", "\\|")
        yield f"| `{key}` | {cell} |"


def _names(kinds: list[str]) -> str:
    return ", ".join(f"`{kind}`" for kind in kinds)


def test_the_page_has_the_kinds_and_the_keys_of_each() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page), "`python tests/test_kinds_page.py` writes them"


def test_a_key_with_two_meanings_names_the_kinds_of_the_second() -> None:
    (row,) = [row for row in key_rows() if row.startswith("| `d_inner` |")]
    assert "in `short_convolution`: channels of the convolution" in row


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
