"""A model's own config.json -> a Document of attncalc's keys, by the rules of its model_type."""

from __future__ import annotations

from .families import families, read_families, refused
from .fields import version
from .read import document

__all__ = ["document", "families", "read_families", "refused", "version"]
