"""The schema of the JSON file that `attncalc verify --record DIR` writes."""

from __future__ import annotations

from . import parts as p
from . import schema_name
from .verify import DEVICE, GPU, MACHINE, SCALING, TIME, UNITS

_OF, _NAME = p.text("the kind of layer; '' for the whole model"), p.text("its name")
_UNIT = p.text("its unit")
_ROWS: dict[str, dict[str, p.Schema]] = {
    "checks": {
        "of": _OF,
        "name": _NAME,
        "predicted": p.PREDICTED,
        "measured": p.MEASURED,
        "tolerance": p.or_null(p.number("the largest difference that still agrees"), "if it is not a number"),
        "unit": _UNIT,
    },
    "reported": {
        "of": _OF,
        "name": _NAME,
        "predicted": p.or_null(p.number("the figure of a formula"), "without one"),
        "measured": p.or_null(p.number("the measured figure"), "if it is only predicted"),
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


def _row(name: str) -> p.Schema:
    """Return the schema of a row: a list with one value per column."""
    values = list(_ROWS[name].values())
    return {"type": "array", "prefixItems": values, "items": False, "minItems": len(values) - _ADDED.get(name, 0)}


def _columns(name: str) -> p.Schema:
    """Return the schema of the list of the columns."""
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
