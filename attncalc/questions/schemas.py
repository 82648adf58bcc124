"""JSON Schemas of what each question prints with --json. `attncalc schema` prints them;
`docs/schemas/` has copies.

A question's schema is schema.yaml in its folder. Further answers of it have schema_NAME.yaml there,
and an answer that several questions have has it here.
"""

from functools import cache
from pathlib import Path
from typing import Any

from ..config.data_files import file_content
from ..show.schemas import schema_name

_QUESTIONS = Path(__file__).parent


@cache
def schema(name: str) -> dict[str, Any]:
    """Return the schema of what a question prints, or of another answer such as 'vram'."""
    from ..show.schemas.reading import read_schema

    folder, file = _place(name)
    return read_schema(name, schema_name(name), file_content(folder, file))


def _place(name: str) -> tuple[Path, str]:
    """Return the folder with the schema, and its file there without '.yaml'."""
    if (_QUESTIONS / name).is_dir():
        return _QUESTIONS / name, "schema"
    file = f"schema_{name}"
    folders = [path for path in sorted(_QUESTIONS.iterdir()) if path.is_dir()]
    for folder in (_QUESTIONS, *folders):
        if (folder / f"{file}.yaml").exists():
            return folder, file
    raise ValueError(f"no question has the schema '{name}'")
