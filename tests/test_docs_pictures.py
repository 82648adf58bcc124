"""Pictures of the docs: each is what the command above it draws.

`python tests/test_docs_pictures.py` draws all of them anew.
"""

import re
import shlex
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from asking import REPOSITORY, Ask
from test_docs import PAGES, links, printed

FOLDER = REPOSITORY / "docs/pictures"
_COMMAND = re.compile(r"^attncalc .* --plot docs/pictures/(?P<file>[\w-]+\.svg)$", re.MULTILINE)
# {picture: the command that draws it}.
COMMANDS = {
    match["file"]: match[0] for page in PAGES for match in _COMMAND.finditer(page.read_text())
}


def content(svg: Path) -> list[str]:
    """Return the texts of an SVG; versions of matplotlib differ in how they write shapes."""
    return ["".join(tag.itertext()) for tag in ET.parse(svg).iter() if tag.tag.endswith("}text")]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_picture_is_what_its_command_draws(ask: Ask, tmp_path: Path, name: str) -> None:
    command = COMMANDS[name].replace("docs/pictures/", f"{tmp_path}/")
    assert ask(*shlex.split(command)[1:]).code == 0
    assert content(tmp_path / name) == content(FOLDER / name)


def test_every_picture_has_a_command_and_is_on_a_page() -> None:
    screenshots = {"page.png"}  # of the page in a browser
    assert {path.name for path in FOLDER.iterdir()} == set(COMMANDS) | screenshots
    shown = {
        Path(target).name for page in PAGES for target in links(page) if target.endswith(".svg")
    }
    assert shown == set(COMMANDS)


if __name__ == "__main__":
    for command in COMMANDS.values():
        sys.stderr.write(printed(f"{command} --force") and f"{command}\n")
