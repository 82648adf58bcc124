"""docs/kinds.md lists the keys of each kind of attention. `python tests/test_kinds_page.py` writes
it anew.
"""

import inspect
from collections.abc import Iterator

from asking import REPOSITORY

from attncalc.attention import KINDS, required_keys
from attncalc.config.keys import kind_keys

PAGE = REPOSITORY / "docs/kinds.md"
HEAD = """# Kinds of attention

A [model file](models.md#your-own-model) names the kind of its layers, or of some layers in `layer_kinds`, with the key
`attention`. The default is `grouped`: MHA, GQA and MQA. Each kind has keys of its own. Kinds that cache tokens can also
have a `window` or a `chunk`."""


def page() -> str:
    """Return the text of the page, from the classes of the kinds."""
    return "\n".join([HEAD, *(line for name in KINDS for line in _section(name))]) + "\n"


def _section(name: str) -> Iterator[str]:
    kind, keys, grouped = KINDS[name], kind_keys(name), kind_keys("grouped")
    if name != "grouped" and grouped.keys() <= keys.keys():
        keys = {key: schema for key, schema in keys.items() if key not in grouped}
        inherited = "The keys of [`grouped`](#grouped)" + (", and:" if keys else ".")
    else:
        inherited = "" if keys else "It has no keys."
    yield from (
        "",
        f"## {name}",
        "",
        " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split()),
    )
    if inherited:
        yield from ("", inherited)
    if keys:
        yield from ("", "| key | meaning |", "|---|---|")
        for key, schema in keys.items():
            meaning = schema["description"].replace("|", "\\|")
            yield f"| `{key}`{', required' if key in required_keys(kind) else ''} | {meaning} |"


def test_the_page_has_the_keys_of_every_kind() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
