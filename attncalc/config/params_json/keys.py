"""The keys of a params.json, with checked types."""

import math
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import AttncalcError, NotSupportedError
from ...units import truncate
from ..huggingface.fields import written

TIP = "give the config.json of the same model"
OTHERS_TIP = f"only Mistral's and Meta's own releases are read; for others, {TIP}"
MAX_SIZE = 10**9
# {what an error calls a number: its lower bound}.
_NUMBERS = {"a number": 0, "a number above 0": math.ulp(0)}


class Keys(dict[str, Any]):
    """The keys of a file, or those inside one of its keys, with checked types."""

    def __init__(self, data: Mapping[str, Any], place: str = "") -> None:
        super().__init__(data)
        self.place = place  # what errors write before a key: 'moe.', or '' for the file's own keys

    def error(self, key: str, problem: str) -> AttncalcError:
        return AttncalcError(f"{self.place}{key}: {problem}", TIP)

    def unsupported(self, key: str) -> AttncalcError:
        return NotSupportedError(f"{self.place}{key} {written(self[key])} is not supported", TIP)

    def check(self, *sections: str, names: Collection[str] = ()) -> None:
        """Raise AttncalcError if a key is neither in a section of keys.txt nor in `names`: it may
        change a figure.

        ExecuTorch's files have keys of Meta's and of Mistral's; the error names one of neither, if
        there is one.
        """
        known = _known_keys(*sections) | {*names}
        unknown = [key for key in self if key not in known]
        if not unknown:
            return
        of_others = _known_keys("llama", "llama4", "mistral")
        first = min(unknown, key=of_others.__contains__)
        raise AttncalcError(f"unknown key {self.place}{truncate(first)}", OTHERS_TIP)

    def require(self, *keys: str) -> None:
        """Raise AttncalcError if a key is missing that each release has."""
        for key in keys:
            if self.get(key) is None:
                raise AttncalcError(
                    f"{key} is missing; the params.json of each release has it", OTHERS_TIP
                )

    def inside(self, key: str) -> "Keys":
        """Return the keys inside a key, or none if it is null. Raises AttncalcError if it has
        another value.
        """
        value = self.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.error(key, "not a mapping of keys to values")
        return Keys(value or {}, f"{key}.")

    def renamed(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return {name: the value of the key}, without the keys that are missing."""
        return {name: self[key] for key, name in names.items() if key in self}

    def size(self, key: str, default: int | None = None) -> int:
        value = self.get(key, default)
        if type(value) is not int or not 1 <= value <= MAX_SIZE:
            raise self.error(key, f"{written(value)} is not a whole number above 0")
        return value

    def number(self, key: str, default: float, kind: str) -> Any:
        """Return one of _NUMBERS up to 1000. Raises AttncalcError for another value, such as nan
        and true.
        """
        value = self.get(key, default)
        if type(value) not in (int, float) or not _NUMBERS[kind] <= value <= 1000:
            raise self.error(key, f"{written(value)} is not {kind}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a key that is true or false. Raises AttncalcError for another value, such as
        "false".
        """
        value = self.get(key, default)
        if type(value) is not bool:
            raise self.error(key, f"{written(value)} is not true or false")
        return value


@cache
def _known_keys(*sections: str) -> frozenset[str]:
    """Return the keys of these sections of keys.txt."""
    found = set[str]()
    for line in Path(__file__).with_name("keys.txt").read_text(encoding="utf-8").splitlines():
        section, _, keys = line.partition(": ")
        if section in sections:
            found.update(keys.split())
    return frozenset(found)
