"""The schema of `attncalc verify --compare A.json B.json --json`."""

from __future__ import annotations

from .checks import MEASURED, PREDICTED
from .parts import NOTHING, document, fields, figures, flag, listed, number, or_null, text, texts, whole

_MS = or_null(number("milliseconds of the passes that both timed"), "without such a pass")
_RECORD = fields(
    "a record",
    {
        "title": text("the kind of device"),
        "torch": text("the version of torch"),
        "driver": or_null(text("the version of the GPU's driver"), "without a GPU"),
        "attncalc": text("the version of attncalc"),
        "date": text("the day, such as 2026-11-22"),
    },
)
_RUN = {
    "arguments": text("the arguments of attncalc verify"),
    "compared": whole("checks that both records have"),
    "differ": whole("those that differ"),
    "ms_a": _MS,
    "ms_b": _MS,
}
_DIFFERENCE = {
    "arguments": text("the arguments of attncalc verify"),
    "of": text("the kind of layer; '' for the whole model"),
    "name": text("the name of the check"),
    "unit": text("its unit"),
    **{f"predicted_{side}": PREDICTED for side in "ab"},
    **{f"measured_{side}": MEASURED for side in "ab"},
    **{f"ok_{side}": flag("whether the two agree") for side in "ab"},
}
SCHEMA = document(
    "records",
    "Two records of attncalc verify --record, side by side.",
    results=figures("never present", {}),
    layers=fields("never present", {}),
    model=NOTHING,
    workload=NOTHING,
    extra={
        "answer": text("the answer in words"),
        "a": _RECORD,
        "b": _RECORD,
        "runs": listed("the runs that both records have", fields("a run", _RUN)),
        "differences": listed("the checks that differ", fields("a difference", _DIFFERENCE)),
        "only_a": texts("the runs that only the first record has"),
        "only_b": texts("the runs that only the second record has"),
    },
)
