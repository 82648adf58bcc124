"""The projector of a multimodal model: a GGUF file of its own, which llama.cpp loads with --mmproj."""

from __future__ import annotations

from pathlib import Path

from ...errors import AttncalcError
from ...units import truncate
from .files import local_sources
from .header import read_headers
from .model import stored_weights


def projector_bytes(path: str) -> int:
    """Return the bytes of all tensors in a projector's file. Raises AttncalcError if it is no such file."""
    name, tip = truncate(path, 200), "give the file that llama-server gets, as --mmproj mmproj-model-f16.gguf"
    try:
        is_file = Path(path).is_file()
    except (OSError, ValueError):  # a name that is too long, or has a NUL
        is_file = False
    if not is_file:
        raise AttncalcError(f"--mmproj {name}: there is no such file", tip)
    headers = read_headers(local_sources(Path(path)))
    if headers[0].metadata.get("general.architecture") != "clip":
        raise AttncalcError(f"--mmproj {name}: it is not a projector, whose architecture is clip", tip)
    return stored_weights(headers).size
