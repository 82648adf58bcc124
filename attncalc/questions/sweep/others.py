"""The rows that other questions give to sweeps, as `train` does with --train."""

from .. import QUESTIONS
from ..question import declared
from ..swept import SweptRows


def _others() -> dict[str, SweptRows]:
    found = {}
    for name, listed in QUESTIONS.items():
        if listed.swept:
            rows = declared(name).rows
            assert rows is not None
            found[name] = rows()
    return found


# {question, as its flag is called: its rows}.
OTHERS = _others()
