"""A sample of the configs of which one field has an odd value: they are read, or are one error."""

import random
from itertools import cycle

from fuzz.checked import check
from fuzz.every_field import every_change
from fuzz.inputs import CHEAP

# Changes that are tried, of some 130,000.
SAMPLE = 150


def test_a_config_with_an_odd_value_is_read_or_is_one_error() -> None:
    changes = list(every_change())
    assert len(changes) > 100_000
    sample = random.Random(15).sample(changes, SAMPLE)
    assert {check(change.case(command)) for change, command in zip(sample, cycle(CHEAP))} == {0, 2}


def test_fields_in_sections_are_changed() -> None:
    change = next(
        change for change in every_change() if len(change.place) == 2 and change.value == 10**400
    )
    section, field = change.place
    assert change.content()[str(section)][field] == 10**400
