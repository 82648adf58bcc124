"""The schema of a check: a predicted figure and a measured one. `fit --log` and `verify` have them."""

from __future__ import annotations

from .parts import Schema, choice, fields, flag, number, or_null, text

MEASURED = or_null(number("the figure that it is compared with"), "if it is not a number")
PREDICTED = number("the figure of the formula")


def check(units: tuple[str, ...]) -> Schema:
    """Return the schema of a check whose unit is one of `units`."""
    return fields(
        "a comparison",
        {
            "name": text("its name"),
            "of": text("the kind of layer; '' for the whole model"),
            "section": text("the heading that it is listed under on screens"),
            "predicted": PREDICTED,
            "measured": MEASURED,
            "difference": or_null(number("measured minus predicted"), "if it is not a number"),
            "tolerance": number("the largest difference that still agrees; 0 if they must be equal"),
            "unit": choice("unit of the three", *units),
            "ok": flag("whether the two agree"),
            "note": text("what was compared with what"),
            "failure": text("what a disagreement would mean"),
        },
    )
