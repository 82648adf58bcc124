"""`attncalc.records` behaves as the standard library's `dataclass` and `NamedTuple`."""

import copy
import dataclasses
import inspect
import typing
from typing import Any

from tables import each

from attncalc import records


def declared(dataclass: Any, named_tuple: Any) -> list[type]:
    """Return a dataclass, one that inherits from it, and a named tuple."""

    @dataclass(frozen=True)
    class Point:
        x: int
        y: int = 2
        tags: dict[str, int] = dataclasses.field(default_factory=dict, kw_only=True)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("x")

    @dataclass(frozen=True)
    class Space(Point):
        z: int = 3

        def __repr__(self) -> str:
            return "Space"

    @dataclass(frozen=True, eq=False, repr=False)
    class Plain(Point):
        w: int = 4

    class Pair(named_tuple):  # type: ignore[misc]
        x: int
        y: int = 2

        @property
        def total(self) -> int:
            return self.x + self.y

    return [Point, Space, Plain, Pair]


OURS = declared(records.dataclass, records.NamedTuple)
THEIRS = declared(dataclasses.dataclass, typing.NamedTuple)


def outcome(kind: Any, question: str) -> object:
    """Return what an expression of `kind` gives: its value, or the type of the error."""
    try:
        value = eval(
            question, {"K": kind, "copy": copy, "dataclasses": dataclasses, "inspect": inspect}
        )
    except Exception as error:
        return type(error)
    return value if isinstance(value, bool | int) else repr(value)


@each("kind", range(4))
def test_records_answer_as_those_of_the_standard_library(kind: int) -> None:
    questions = """
        K(1)|K(1, 3)|K(x=1, y=3)|K(1, y=3)|K(y=3, x=1)|K()|K(y=1)|K(1, 2, 3, 4, 5)|K(1, x=1)|K(1, z=1)|K(w=1, y=2)
        K(-1)|K(1, tags={'a': 1})|K(1).tags is K(1).tags|vars(K(y=3, x=1))|K(4).total|K(1)[0]|len(K(1))
        K(1) == K(1)|K(1) == K(2)|K(1) == (1, 2)|K(1) != 5|len({K(1), K(1)})|hash(K(1)) == hash(K(1))
        setattr(K(1), 'x', 2)|delattr(K(1), 'x')|setattr(K(1), 'q', 2)|dataclasses.replace(K(1), y=5)
        copy.copy(K(1, 7))|copy.deepcopy(K(1, 7))|dataclasses.is_dataclass(K)|K.__match_args__|K.y
        K(1)._replace(y=9)|K(1)._asdict()|K._make([4, 5])|K._fields|K._field_defaults
        list(inspect.signature(K).parameters)|inspect.signature(K).parameters['y'].default
        list(inspect.signature(type('Heir', (K,), {})).parameters)
    """
    for question in filter(
        None, (part.strip() for line in questions.splitlines() for part in line.split("|"))
    ):
        assert outcome(OURS[kind], question) == outcome(THEIRS[kind], question), question


def test_a_named_tuple_that_is_made_often_stays_the_same() -> None:
    pair: Any = OURS[3]
    assert {pair(1, 3) for _ in range(100)} == {(1, 3)}
    assert type(pair(1)) is pair
    assert pair(y=3, x=1) == (1, 3)
