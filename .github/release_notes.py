"""Print the notes of a release: the section of CHANGELOG.md about the version of attncalc.

`python .github/release_notes.py --version` prints the version. The exit code is 1 if the changelog
has no such section.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def version() -> str:
    """Return the version of the package, without importing it."""
    text = (ROOT / "attncalc/__init__.py").read_text(encoding="utf-8")
    return re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)[0]


def notes(changelog: str, of_version: str) -> str:
    """Return the section of a version in a changelog, without its title; '' if there is none."""
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)
    for section in sections[1:]:
        title, _, text = section.partition("\n")
        if title.startswith(f"[{of_version}]"):
            return text.strip()
    return ""


def main() -> int:
    if "--version" in sys.argv[1:]:
        sys.stdout.write(f"{version()}\n")
        return 0
    found = notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version())
    if not found:
        sys.stderr.write(f"error: CHANGELOG.md has no section about {version()}\n")
        return 1
    sys.stdout.write(f"{found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
