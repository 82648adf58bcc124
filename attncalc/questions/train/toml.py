"""Files of TOML, of which Python has a parser from 3.11 on."""

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import AttncalcError


def parse_toml(file: Path) -> Mapping[str, Any] | None:
    """Return the data of a file; None if it is not TOML. Raises AttncalcError on Python 3.10."""
    if sys.version_info < (3, 11):
        raise AttncalcError(
            f"{file.name}: TOML needs Python 3.11 or later",
            "give its settings as options: --training.seq_len 8192",
        )
    parser = importlib.import_module("tomllib")
    try:
        data: Mapping[str, Any] = parser.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, parser.TOMLDecodeError):
        return None
    return data
