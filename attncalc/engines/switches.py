"""What an engine does in which of its versions, as data: one `Switch` per behaviour."""

from __future__ import annotations

from typing import Generic, TypeVar, overload

from ..errors import AttncalcError
from ..records import NamedTuple

T = TypeVar("T")
# A version as numbers: (0, 11, 1).
Number = tuple[int, ...]


class Version(NamedTuple):
    """A version of an engine. Each engine derives a class from it, whose attributes are its
    switches.
    """

    name: str  # its name, as the engine writes it
    number: Number  # its numbers, which switches compare

    def require(self, switch: str, engine: str, what: str) -> None:
        """Raise AttncalcError if that switch is off: 'vLLM 0.23.0 has no MiniMax-M3'."""
        if not getattr(self, switch):
            first = next(
                number for number, value in getattr(type(self), switch).steps.items() if value
            )
            if len(first) == 1:
                name = f"b{first[0]}"
            else:
                name = ".".join(map(str, (*first, 0)[:3]))
            raise AttncalcError(
                f"{engine} {self.name} has no {what}", f"use --engine-version {name} or later"
            )


class Switch(Generic[T]):
    """A behaviour that changed between versions. As an attribute of a `Version`, it is that
    version's value.
    """

    def __init__(self, steps: dict[Number, T], source: str) -> None:
        # {the first version with a value: the value}, the oldest first. () is earlier than every
        # version.
        self.steps = steps
        self.source = source  # the engine's file, or its function or class, that decides it
        # those that were asked for: a search asks a million times
        self._values: dict[Number, T] = {}

    @overload
    def __get__(self, version: None, owner: object) -> Switch[T]: ...

    @overload
    def __get__(self, version: Version, owner: object) -> T: ...

    def __get__(self, version: Version | None, owner: object) -> T | Switch[T]:
        if version is None:
            return self
        number = version.number
        if number not in self._values:
            self._values[number] = next(
                value for first, value in reversed(self.steps.items()) if number >= first
            )
        return self._values[number]


# A switch with a value from each version on: {(): "0.9", (0, 20): "0.92"}.
by_version = Switch


def since(first: Number, source: str) -> Switch[bool]:
    """Return a switch that is on in `first` and later versions."""
    return Switch({(): False, first: True}, source)


def until(end: Number, source: str) -> Switch[bool]:
    """Return a switch that is on in versions before `end`."""
    return Switch({(): True, end: False}, source)


def between(first: Number, end: Number, source: str) -> Switch[bool]:
    """Return a switch that is on from `first` on, in versions before `end`."""
    return Switch({(): False, first: True, end: False}, source)
