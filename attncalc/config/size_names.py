"""The names that config.json files have for the sizes of a model."""

from pathlib import Path

_TEXT = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
# The names of each size.
NAMES = tuple(frozenset(line.split()) for line in _TEXT.splitlines() if not line.startswith("#"))
