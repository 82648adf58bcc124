"""JSON Schemas of what each question prints with --json. `attncalc schema` prints them, and
tools/build_page.py publishes them with the page.

A question's schema is schema.yaml in its folder. Its key `further` lists the question's further
answers and what they are; each has a schema_NAME.yaml there.
"""

from functools import cache
from pathlib import Path
from typing import Any

from ..config.data_files import file_content

_QUESTIONS = Path(__file__).parent


@cache
def schema(name: str) -> dict[str, Any]:
    """Return the schema of what a question prints, or of another answer such as 'vram'."""
    from ..show.schemas.reading import read_schema

    folder, file = _place(name)
    return read_schema(name, file_content(folder, file))


def schema_name(name: str) -> str:
    """Return the name of the schema with its version: 'attncalc.kv/1'."""
    return str(schema(name)["title"])


def further_answers(question: str) -> dict[str, str]:
    """Return {name of a further answer of a question: what its schema describes}."""
    found: dict[str, str] = file_content(_QUESTIONS / question, "schema").get("further", {})
    return found


def _place(name: str) -> tuple[Path, str]:
    """Return the folder with the schema, and its file there without '.yaml'."""
    if (_QUESTIONS / name).is_dir():
        return _QUESTIONS / name, "schema"
    file = f"schema_{name}"
    for folder in sorted(_QUESTIONS.iterdir()):
        if (folder / f"{file}.yaml").exists():
            return folder, file
    raise ValueError(f"no question has the schema '{name}'")
