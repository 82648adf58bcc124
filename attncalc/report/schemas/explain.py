"""The schema of `attncalc explain --json`."""

from __future__ import annotations

from ..glossary import FIGURES
from . import parts as p

SCHEMA = p.document(
    "explain",
    "Terms of the field: what they mean, their formulas, and examples.",
    results=p.figures("their number", FIGURES),
    layers=p.fields("never present", {}),
    model=p.NOTHING,
    extra={
        "terms": p.listed(
            "the terms",
            p.fields(
                "a term",
                {
                    "name": p.text("its name"),
                    "title": p.text("its name in words"),
                    "also": p.texts("other names by which it is found"),
                    "meaning": p.text("what it is"),
                    "formula": p.texts("the formula, and its symbols; [] for none"),
                    "example": p.texts("a calculation with tiny numbers"),
                    "command": p.text("the command that computes it for a model"),
                    "source": p.text("the paper; '' for none"),
                },
            ),
        )
    },
)
