"""Damage to data and to bytes. Every choice is drawn from a `random.Random`, or from Hypothesis's
double of it.
"""

import copy
import json
from collections.abc import Mapping
from random import Random
from typing import Any

from attncalc.config.huggingface.sizes import is_name_of_size, names_of_size

NUMBERS: tuple[Any, ...] = (
    0,
    1,
    -1,
    2,
    7,
    64,
    2**31,
    2**63,
    10**15,
    10**30,
    10**400,
    0.5,
    1.0,
    1e308,
    -0.0,
)
OTHERS: tuple[Any, ...] = (
    None,
    True,
    False,
    "",
    "x",
    "64",
    "٣",
    "a\nb",
    "\u202e",
    "=1+1",
    "[x](javascript:1)",
    "\ud800",
    [],
    [1],
    [[]],
    {},
    {"x": {}},
    {"0": 5},
)
LETTERS = (
    "aZ_0 9.-/\\:[]{}<>|&$#%'\"`\n\t\0\x1b\x7f\u00e9\u0663\u200b\u2028\u202e\u2066\uffff\U0001f600"
)
PIECES = (
    b"\xff\xfe",
    b"\0" * 9,
    b"\xef\xbb\xbf",
    b"\r\n",
    b"{}",
    b"[",
    b'"',
    b"9" * 30,
    b"1e400",
    b"NaN",
    b"\x1b[31m",
)


def value(random: Random) -> Any:
    """Return a number, a text or a container that a field may not expect."""
    choice = random.randrange(5)
    if choice == 0:
        return random.choice(NUMBERS)
    if choice == 1:
        return copy.deepcopy(random.choice(OTHERS))
    if choice == 2:
        return text(random)
    return random.randint(0, 300)


def text(random: Random) -> str:
    """Return up to eight characters, odd ones among them."""
    return "".join(random.choice(LETTERS) for _ in range(random.randrange(9)))


def damaged(
    random: Random, known: Mapping[str, Mapping[str, Any]], most: int = 4
) -> dict[str, Any]:
    """Return one of `known` with up to `most` of its fields changed, removed, renamed or taken from
    another.

    One in three is left as it is, so that commands get further than to its first error.
    """
    names = list(known)
    data: dict[str, Any] = copy.deepcopy(dict(known[random.choice(names)]))
    for _ in range(random.randint(0, most) if random.randrange(3) else 0):
        _damage(random, data, known[random.choice(names)])
    return data


def _damage(random: Random, data: dict[str, Any], other: Mapping[str, Any]) -> None:
    inner = [value for value in data.values() if isinstance(value, dict) and value]
    part = random.choice(inner) if inner and random.randrange(2) else data
    if part and other:
        random.choice(DAMAGES)(random, part, random.choice(list(part)), other)


def _change(random: Random, part: dict[str, Any], key: str, other: Mapping[str, Any]) -> None:
    part[key] = value(random)


def _change_number(
    random: Random, part: dict[str, Any], key: str, other: Mapping[str, Any]
) -> None:
    numbers = [name for name, value in part.items() if type(value) is int]
    if numbers:
        key = random.choice(numbers)
        part[key] = random.choice(
            (part[key] * 2, part[key] + 1, part[key] // 2, random.randint(0, 300))
        )


def _remove(random: Random, part: dict[str, Any], key: str, other: Mapping[str, Any]) -> None:
    del part[key]


def _rename(random: Random, part: dict[str, Any], key: str, other: Mapping[str, Any]) -> None:
    part[random.choice(list(other))] = part.pop(key)


def _borrow(random: Random, part: dict[str, Any], key: str, other: Mapping[str, Any]) -> None:
    borrowed = random.choice(list(other))
    part[borrowed] = copy.deepcopy(other[borrowed])


def _nest(random: Random, part: dict[str, Any], key: str, other: Mapping[str, Any]) -> None:
    part[key] = {key: part[key]}


def _change_item(random: Random, part: dict[str, Any], key: str, other: Mapping[str, Any]) -> None:
    lists = [value for value in part.values() if isinstance(value, list) and value]
    if lists:
        items = random.choice(lists)
        at = random.randrange(len(items))
        items[at] = random.choice((value(random), copy.deepcopy(random.choice(items))))


def _empty(random: Random, part: dict[str, Any], key: str, other: Mapping[str, Any]) -> None:
    """Give a size as 0 or null."""
    sizes = [name for name in part if is_name_of_size(name)]
    part[random.choice(sizes) if sizes else key] = random.choice((0, None))


def _quote(random: Random, part: dict[str, Any], key: str, other: Mapping[str, Any]) -> None:
    """Write a number or a boolean in quotes."""
    scalars = [name for name, value in part.items() if type(value) in (int, float, bool)]
    if scalars:
        key = random.choice(scalars)
        part[key] = quoted(part[key])


def quoted(scalar: float | bool) -> str:
    """Return a number or a boolean as a text, as JSON writes it."""
    return json.dumps(scalar) if isinstance(scalar, bool) else str(scalar)


def _misspell(random: Random, part: dict[str, Any], key: str, other: Mapping[str, Any]) -> None:
    """Give a size the name that it has in another dialect, or write a name with a wrong letter."""
    sizes = [name for name in part if is_name_of_size(name)]
    if sizes and random.randrange(3):
        key = random.choice(sizes)
        name = random.choice(sorted(names_of_size(key)))
    else:
        name = random.choice(
            (key + "s", key.replace("_", "-"), key.replace("_", ""), key.title(), key[1:])
        )
    part[name] = part.pop(key)


# What can happen to a key of a mapping; some of it more often.
DAMAGES = (
    _change,
    _change,
    _change_number,
    _remove,
    _rename,
    _borrow,
    _borrow,
    _nest,
    _change_item,
    _empty,
    _quote,
    _misspell,
)


def damaged_bytes(random: Random, content: bytes, most: int = 3) -> bytes:
    """Return `content` with up to `most` slices removed, repeated or replaced."""
    for _ in range(random.randint(0, most)):
        start = random.randint(0, len(content))
        end = min(len(content), start + random.randint(0, 40))
        choice = random.randrange(4)
        if choice == 0:
            piece = content[start:end] * 2
        elif choice == 1:
            piece = random.choice(PIECES)
        else:
            piece = bytes(random.randrange(256) for _ in range(random.randrange(9)))
        content = content[:start] + piece + content[end:]
    return content
