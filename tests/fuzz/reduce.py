"""Make a case that fails smaller, while it fails in the same way."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from .case import Case

Fails = Callable[[Case], bool]
MOST_TRIES = 600


def reduced(case: Case, fails: Fails) -> Case:
    """Return the smallest case that still fails, among those that at most MOST_TRIES steps lead
    to.
    """
    tries = 0
    found = True
    while found and tries < MOST_TRIES:
        found = False
        for smaller in _smaller(case):
            tries += 1
            if fails(smaller):
                case, found = smaller, True
                break
            if tries >= MOST_TRIES:
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Yield the case with something left out: the largest parts first."""
    for name in case.environment:
        yield case._replace(
            environment={key: value for key, value in case.environment.items() if key != name}
        )
    if case.terminal:
        yield case._replace(terminal=False)
    for name in case.files:
        yield case._replace(files={key: value for key, value in case.files.items() if key != name})
    words = case.arguments
    for size in (2, 1):
        for i in range(len(words) - 1, 0, -1):
            if i + size <= len(words):
                yield case._replace(arguments=(*words[:i], *words[i + size :]))
    for name, content in case.files.items():
        for smaller in _smaller_contents(content):
            yield case._replace(files={**case.files, name: smaller})


def _smaller_contents(content: bytes) -> Iterator[bytes]:
    """Yield the content with keys left out if it is JSON, else with lines left out, then with bytes
    left out.
    """
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        lines = content.splitlines(keepends=True)
        if len(lines) > 1:
            yield from (b"".join(kept) for kept in _without_slices(lines))
        elif len(content) < 2000:
            yield from (bytes(kept) for kept in _without_slices(list(content)))
    else:
        for smaller in _smaller_data(data):
            yield json.dumps(smaller).encode()


def _smaller_data(data: Any) -> Iterator[Any]:
    if isinstance(data, dict):
        for kept in _without_slices(list(data)):
            yield {key: data[key] for key in kept}
        for key, value in data.items():
            yield from ({**data, key: smaller} for smaller in _smaller_data(value))
    elif isinstance(data, list):
        yield from _without_slices(data)
        for i, item in enumerate(data):
            yield from ([*data[:i], smaller, *data[i + 1 :]] for smaller in _smaller_data(item))


def _without_slices(items: list[Any]) -> Iterator[list[Any]]:
    """Yield the items without one half, one quarter, ..., one item."""
    size = len(items) // 2
    while size:
        for start in range(0, len(items), size):
            yield items[:start] + items[start + size :]
        size //= 2
    if len(items) == 1:
        yield []
