"""A model's own config.json -> a Document of attncalc's keys, by the rules of its model_type."""

from __future__ import annotations

from .read import document, families, refused

__all__ = ["document", "families", "refused"]
