"""The schema of `attncalc verify --compare A.json B.json --json`."""

from __future__ import annotations

from . import parts as p

_MS = p.or_null(p.number("milliseconds of the passes that both timed"), "without such a pass")
_RECORD = p.fields(
    "a record",
    {
        "title": p.text("the kind of device"),
        "torch": p.text("the version of torch"),
        "driver": p.or_null(p.text("the version of the GPU's driver"), "without a GPU"),
        "attncalc": p.text("the version of attncalc"),
        "date": p.text("the day, such as 2026-11-22"),
    },
)
_RUN = {
    "arguments": p.text("the arguments of attncalc verify"),
    "compared": p.whole("checks that both records have"),
    "differ": p.whole("those that differ"),
    "ms_a": _MS,
    "ms_b": _MS,
}
_DIFFERENCE = {
    "arguments": p.text("the arguments of attncalc verify"),
    "of": p.text("the kind of layer; '' for the whole model"),
    "name": p.text("the name of the check"),
    "unit": p.text("its unit"),
    **{f"predicted_{side}": p.PREDICTED for side in "ab"},
    **{f"measured_{side}": p.MEASURED for side in "ab"},
    **{f"ok_{side}": p.flag("whether the two agree") for side in "ab"},
}
SCHEMA = p.document(
    "records",
    "Two records of attncalc verify --record, side by side.",
    results=p.figures("never present"),
    layers=p.fields("never present", {}),
    model=p.NOTHING,
    extra={
        "answer": p.text("the answer in words"),
        "a": _RECORD,
        "b": _RECORD,
        "runs": p.listed("the runs that both records have", p.fields("a run", _RUN)),
        "differences": p.listed("the checks that differ", p.fields("a difference", _DIFFERENCE)),
        "only_a": p.texts("the runs that only the first record has"),
        "only_b": p.texts("the runs that only the second record has"),
    },
)
