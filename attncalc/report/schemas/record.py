"""The schema of the JSON file that `attncalc verify --record DIR` writes."""

from __future__ import annotations

from ...check import COLUMNS
from . import parts as p
from . import schema_name
from .verify import DEVICE, GPU, MACHINE, REPORTED, SCALING, TIME, UNITS

_CHECK = {
    **p.check(UNITS)["properties"],
    "tolerance": p.or_null(p.number("the largest difference that still agrees"), "if it is not a number"),
}
_VALUES: dict[str, p.Properties] = {"checks": _CHECK, "reported": REPORTED, "times": TIME, "scaling": SCALING}
_ROWS = {name: {column: _VALUES[name][column] for column in columns} for name, columns in COLUMNS.items()}
_ADDED = {"times": 2}
"""How many of the last columns the first records lack."""


def _row(name: str) -> p.Schema:
    """Return the schema of a row: a list with one value per column."""
    values = list(_ROWS[name].values())
    return {"type": "array", "prefixItems": values, "items": False, "minItems": len(values) - _ADDED.get(name, 0)}


def _columns(name: str) -> p.Schema:
    columns = list(_ROWS[name])
    return {"enum": [columns, columns[: -_ADDED[name]]]} if name in _ADDED else {"const": columns}


_RUN = {
    "arguments": p.text("the arguments of attncalc verify"),
    "batch": p.whole("sequences", 1),
    "context": p.whole("tokens of context", 1),
    "source": p.or_null(p.whole("tokens on the encoder's side"), "without an encoder"),
    "dtype": p.text("dtype that the layers ran in"),
    "seconds": p.number("how long it took"),
    **{name: p.listed(f"rows whose columns are columns.{name}", _row(name)) for name in _ROWS},
    "disagree": p.listed("the checks that disagree, whole", p.check(UNITS)),
    "notes": p.texts("what was not checked, and why"),
}
_STEP = {
    "arguments": p.text("the arguments of attncalc verify"),
    "reason": p.text("why it did not run"),
    "seconds": p.or_null(p.number("how long it would have taken"), "if there was time for it"),
    "failed": p.flag("whether it ended in an error that nobody expected"),
    "longer": p.flag("whether longer contexts of the same model did not run either"),
}
_DEVICE = {
    **DEVICE,
    **MACHINE,
    "title": p.text("the kind of device"),
    "driver": p.or_null(p.text("the version of the GPU's driver"), "without a GPU"),
    "system": p.text("the operating system"),
    "python": p.text("the version of Python"),
    "processor": p.or_null(p.text("the processor"), "if it is unknown"),
    "processors": p.or_null(p.whole("processors of the machine"), "if they are unknown"),
}
_CLOCK = p.or_null(p.number("a clock in MHz, or a power in W"), "if it is not known")
_CLOCKS = p.fields(
    "the clocks and the power limit of the GPU when the record began",
    dict.fromkeys(("sm_mhz", "sm_max_mhz", "memory_max_mhz", "power_limit_w"), _CLOCK),
)
_SOMETIMES = {
    **GPU,
    "clocks": p.or_null(_CLOCKS, "without an NVIDIA GPU, or if its driver does not tell"),
    "notes": p.texts("what a reader should know about it"),
}
SCHEMA = p.schema_document(
    "record",
    "What attncalc verify --record measured on a device.",
    {
        "schema": {"description": "the version of the contract", "const": schema_name("record")},
        "attncalc": p.text("the version of attncalc"),
        "date": p.text("the day, such as 2026-11-22"),
        "command": p.text("the command that repeats the record"),
        "minutes": p.number("the time that it was given"),
        "device": p.fields("the device", _DEVICE, _SOMETIMES),
        "columns": p.fields("the columns of the lists of each run", {name: _columns(name) for name in _ROWS}),
        "seconds": p.number("the time that it took"),
        "runs": p.listed("the runs", p.fields("a run", _RUN)),
        "skipped": p.listed("what did not run", p.fields("a step", _STEP)),
    },
    {},
)
