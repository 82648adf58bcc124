"""The schema of the JSON file that `attncalc verify --record DIR` writes."""

from __future__ import annotations

from . import schema_name
from .checks import MEASURED, PREDICTED, check
from .parts import (
    Schema,
    fields,
    flag,
    listed,
    number,
    or_null,
    schema_document,
    text,
    texts,
    whole,
)
from .verify import DEVICE, GPU, MACHINE, SCALING, TIME, UNITS

_OF, _NAME = text("the kind of layer; '' for the whole model"), text("its name")
_UNIT = text("its unit")
_ROWS: dict[str, dict[str, Schema]] = {
    "checks": {
        "of": _OF,
        "name": _NAME,
        "predicted": PREDICTED,
        "measured": MEASURED,
        "tolerance": or_null(number("the largest difference that still agrees"), "if it is not a number"),
        "unit": _UNIT,
    },
    "reported": {
        "of": _OF,
        "name": _NAME,
        "predicted": or_null(number("the figure of a formula"), "without one"),
        "measured": or_null(number("the measured figure"), "if it is only predicted"),
        "unit": _UNIT,
    },
    "times": {
        name: TIME[name]
        for name in (
            *("of", "phase", "kernel", "ms", "flop", "bytes", "least_ms", "flop_share", "bytes_share"),
            *("ms_min", "ms_p90"),
        )
    },
    "scaling": SCALING,
}
"""The columns of the lists of each run, in order."""
_ADDED = {"times": 2}
"""How many of the last columns the first records lack."""


def _row(name: str) -> Schema:
    """Return the schema of a row: a list with one value per column."""
    values = list(_ROWS[name].values())
    return {"type": "array", "prefixItems": values, "items": False, "minItems": len(values) - _ADDED.get(name, 0)}


def _columns(name: str) -> Schema:
    """Return the schema of the list of the columns."""
    columns = list(_ROWS[name])
    return {"enum": [columns, columns[: -_ADDED[name]]]} if name in _ADDED else {"const": columns}


_RUN = {
    "arguments": text("the arguments of attncalc verify"),
    "batch": whole("sequences", 1),
    "context": whole("tokens of context", 1),
    "source": or_null(whole("tokens on the encoder's side"), "without an encoder"),
    "dtype": text("dtype that the layers ran in"),
    "seconds": number("how long it took"),
    **{name: listed(f"rows whose columns are columns.{name}", _row(name)) for name in _ROWS},
    "disagree": listed("the checks that disagree, whole", check(UNITS)),
    "notes": texts("what was not checked, and why"),
}
_STEP = {
    "arguments": text("the arguments of attncalc verify"),
    "reason": text("why it did not run"),
    "seconds": or_null(number("how long it would have taken"), "if there was time for it"),
    "failed": flag("whether it ended in an error that nobody expected"),
    "longer": flag("whether longer contexts of the same model did not run either"),
}
_DEVICE = {
    **DEVICE,
    **MACHINE,
    "title": text("the kind of device"),
    "driver": or_null(text("the version of the GPU's driver"), "without a GPU"),
    "system": text("the operating system"),
    "python": text("the version of Python"),
    "processor": or_null(text("the processor"), "if it is unknown"),
    "processors": or_null(whole("processors of the machine"), "if they are unknown"),
}
_CLOCK = or_null(number("a clock in MHz, or a power in W"), "if it is not known")
_CLOCKS = fields(
    "the clocks and the power limit of the GPU when the record began",
    dict.fromkeys(("sm_mhz", "sm_max_mhz", "memory_max_mhz", "power_limit_w"), _CLOCK),
)
_SOMETIMES = {
    **GPU,
    "clocks": or_null(_CLOCKS, "without an NVIDIA GPU, or if its driver does not tell"),
    "notes": texts("what a reader should know about it"),
}
SCHEMA = schema_document(
    "record",
    "What attncalc verify --record measured on a device.",
    {
        "schema": {"description": "the version of the contract", "const": schema_name("record")},
        "attncalc": text("the version of attncalc"),
        "date": text("the day, such as 2026-11-22"),
        "command": text("the command that repeats the record"),
        "minutes": number("the time that it was given"),
        "device": fields("the device", _DEVICE, _SOMETIMES),
        "columns": fields(
            "the columns of the lists of each run",
            {name: _columns(name) for name in _ROWS},
        ),
        "seconds": number("the time that it took"),
        "runs": listed("the runs", fields("a run", _RUN)),
        "skipped": listed("what did not run", fields("a step", _STEP)),
    },
    {},
)
