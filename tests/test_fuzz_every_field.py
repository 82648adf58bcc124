"""A sample of the configs of which one field has an odd value: they are read, or are one error."""

from __future__ import annotations

import random

from fuzz.checked import check
from fuzz.every_field import every_case, every_change

SAMPLE = 200
"""Changes that are tried, of some 130,000."""


def test_a_config_with_an_odd_value_is_read_or_is_one_error() -> None:
    codes = {check(case) for case in random.Random(15).sample(list(every_case()), SAMPLE)}
    assert codes == {0, 2}


def test_fields_in_sections_and_lists_are_changed() -> None:
    changes = list(every_change())
    assert len(changes) > 100_000
    change = next(change for change in changes if len(change.place) == 2 and change.value == 10**400)
    section, field = change.place
    assert change.content()[str(section)][field] == 10**400
