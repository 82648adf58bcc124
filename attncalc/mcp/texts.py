"""The texts that an agent reads: the instructions, the skill, and the resources."""

from functools import cache
from pathlib import Path

from ..errors import AttncalcError, known_tip
from ..questions import QUESTIONS

_FOLDER = Path(__file__).parent


@cache
def text(name: str) -> str:
    """Return the content of a text file of this folder."""
    return (_FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def skill() -> str:
    """Return SKILL.md, for agents that run commands."""
    return (_FOLDER.parent / "skills" / "attncalc" / "SKILL.md").read_text(encoding="utf-8")


# {a resource: the words of the command that prints it}.
_PRINTED = {
    "presets": ("presets",),
    "gpus": ("gpus",),
    "glossary": ("explain",),
    "skill": ("mcp", "--skill"),
}


def resources() -> dict[str, str]:
    """Return {name of a resource: what it is}."""
    return {
        "presets": "The built-in models.",
        "gpus": "The known GPUs, with memory and bandwidth.",
        "glossary": "The terms of the field that explain knows.",
        "skill": "How to use attncalc on a command line.",
        **{f"help/{name}": f"All options of {name}." for name in QUESTIONS},
    }


def printed_by(name: str) -> tuple[str, ...]:
    """Return the words of the command that prints a resource. Raises AttncalcError if there is no
    such resource.
    """
    if name not in resources():
        raise AttncalcError(f"there is no resource '{name}'", known_tip(name, resources()))
    return _PRINTED.get(name) or (name.removeprefix("help/"), "--help", "all")
