"""Damaged inputs give an answer or one error: a few of each kind, and all that once failed.

`python tools/fuzz.py --seconds 600` tries as many as there is time for.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.case import Case, check
from fuzz.inputs import TARGETS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CORPUS = sorted((Path(__file__).parent / "fuzz" / "corpus").glob("*.json"))


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_damaged_input_gives_an_answer_or_one_error(name: str, data: st.DataObject) -> None:
    check(data.draw(TARGETS[name]))


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.stem)
def test_an_input_that_once_failed_gives_an_answer_or_one_error(file: Path) -> None:
    check(Case.from_json(file.read_text(encoding="utf-8")))
