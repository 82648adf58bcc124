"""Every field of every config replaced by each odd value, one at a time.

Random damage hits a given field with a given value about once in a million inputs; there are some
130,000 such pairs. `python tools/fuzz.py --every-field` tries all of them.
"""

import json
import math
from collections.abc import Iterator
from itertools import cycle
from typing import Any, NamedTuple

from .case import Case
from .inputs import CHEAP, configs, params_json

VALUES: tuple[Any, ...] = (
    10**400,
    -(10**400),
    1e308,
    -1e308,
    math.inf,
    math.nan,
    2**63,
    10**30,
    0,
    -1,
    0.5,
    None,
    True,
    "",
    "x",
    "8",
    "true",
    "false",
    [],
    [1],
    [[]],
    {},
    {"x": {}},
)

Place = tuple[str | int, ...]


class Change(NamedTuple):
    """One changed field."""

    file: str  # 'config.json' or 'params.json'
    model: str  # the name of the config that is changed
    place: Place  # the keys that lead to the field, with numbers for items of a list
    value: Any  # what the field is now

    def content(self) -> dict[str, Any]:
        """Return the changed config."""
        changed: dict[str, Any] = _with(_configs(self.file)[self.model], self.place, self.value)
        return changed

    def case(self, command: str) -> Case:
        """Return the command on the changed config."""
        return Case((command, "model"), {f"model/{self.file}": json.dumps(self.content()).encode()})


def every_change() -> Iterator[Change]:
    """Yield each change once for each model_type, so that 40 configs of Llama do not repeat each
    other.
    """
    seen = set()
    for file in ("config.json", "params.json"):
        for model, config in _configs(file).items():
            for place in _places(config):
                key = (
                    file,
                    config.get("model_type"),
                    tuple("item" if isinstance(k, int) else k for k in place),
                )
                if key not in seen:
                    seen.add(key)
                    yield from (Change(file, model, place, value) for value in VALUES)


def every_case() -> Iterator[Case]:
    """Yield a quick command on each changed config."""
    for change, command in zip(every_change(), cycle(CHEAP), strict=False):
        yield change.case(command)


def _configs(file: str) -> dict[str, dict[str, Any]]:
    return configs() if file == "config.json" else params_json()


def _places(data: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the places of a config: every key, and the first and last item of a list."""
    if place:
        yield place
    items: dict[str | int, Any] = {}
    if isinstance(data, dict):
        items = dict(data)
    elif isinstance(data, list) and data:
        items = {0: data[0], len(data) - 1: data[-1]}
    for key, value in items.items():
        yield from _places(value, (*place, key))


def _with(data: Any, place: Place, value: Any) -> Any:
    """Return a copy of the data with the value at that place."""
    if not place:
        return value
    copied: Any = list(data) if isinstance(data, list) else dict(data)
    copied[place[0]] = _with(data[place[0]], place[1:], value)
    return copied
