"""Damaged inputs give an answer or one error: some of each kind, and all that once failed.

`python tools/fuzz.py --seconds 600` tries as many as there is time for.
"""

import json
from pathlib import Path
from random import Random

import pytest
from fuzz.case import Case
from fuzz.checked import check
from fuzz.inputs import KINDS
from fuzz.relations import RELATIONS
from fuzz.same import RELATIONS as SAME
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import each

CORPUS = sorted((Path(__file__).parent / "fuzz" / "corpus").glob("*.json"))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_a_damaged_input_gives_an_answer_or_one_error(kind: str, random: Random) -> None:
    check(KINDS[kind](random))


@each("file", CORPUS)
def test_an_input_that_once_failed_gives_an_answer_or_one_error(file: Path) -> None:
    """With all relations, or with those that a case of slow commands names."""
    text = file.read_text(encoding="utf-8")
    names = json.loads(text).get("relations")
    named = [relation for relation in (*RELATIONS, *SAME) if relation.__name__ in (names or ())]
    check(Case.from_json(text), named if names else RELATIONS)
