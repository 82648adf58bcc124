"""Put a mutant's code into functions that are already imported, so that nothing is imported or collected again."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

_COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
_OPTIMIZED = 1
"""The flag of a function's code; modules and class bodies do not have it."""

Place = tuple[tuple[str, int], ...]
"""Where a code object is: the names around it, each with a number among those of the same name."""


class Functions:
    """The functions of attncalc that this process has imported, by file and place."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._by_file: dict[str, list[FunctionType]] = {}
        for thing in gc.get_objects():
            if type(thing) is FunctionType and thing.__code__.co_filename.startswith(str(root / "attncalc")):
                self._by_file.setdefault(thing.__code__.co_filename, []).append(thing)

    def swap(self, path: str, before: str, after: str) -> None:
        """Put the changed functions of a file in place.

        Args:
            path: The file, relative to the repository.
            before: Its source.
            after: Its source with the change.
        """
        file = str(self.root / path)
        old, new, changed = _changed(before, after, file)
        places = {code: place for place, code in old.items()}
        for function in self._by_file.get(file, ()):
            place = places.get(function.__code__, ())
            if place and any(place == other[: len(place)] for other in changed):
                function.__code__ = new[place]


_INNER = {property: "fget", cached_property: "func", classmethod: "__func__", staticmethod: "__func__"}
"""{the type that a decorator makes of a method: its attribute that holds the plain function}"""


def undecorated_body(source: str, line: int) -> tuple[int, int] | None:
    """Return the first and last line of the body of the method whose only decorator is `@property` or alike at `line`.

    Returns None if no such decorator is there. Removing one needs no import: see `remove_decorator`.
    """
    names = {decorator.__name__ for decorator in _INNER}
    for class_ in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)):
        for method in class_.body:
            if isinstance(method, ast.FunctionDef) and [d.lineno for d in method.decorator_list] == [line]:
                decorator = method.decorator_list[0]
                if isinstance(decorator, ast.Name) and decorator.id in names:
                    return method.body[0].lineno, method.end_lineno or line
    return None


def remove_decorator(module: str, within: str) -> None:
    """Put the plain function of a method in the place of its property, class method or static method.

    Args:
        module: The name of its module.
        within: Its name in the module: "Grouped.label".
    """
    *classes, name = within.split(".")
    owner: Any = sys.modules[module]
    for class_ in classes:
        owner = getattr(owner, class_)
    decorated = vars(owner)[name]
    setattr(owner, name, getattr(decorated, _INNER[type(decorated)]))


def only_in_functions(before: str, after: str) -> bool:
    """Return whether a change is in the code of functions only, and not in code that runs at import."""
    old, new, changed = _changed(before, after, "")
    return old.keys() == new.keys() and all(
        _in_function(place, old) and old[place].co_freevars == new[place].co_freevars for place in changed
    )


def _changed(before: str, after: str, file: str) -> tuple[dict[Place, CodeType], dict[Place, CodeType], list[Place]]:
    old, new = (dict(_tree(compile(source, file, "exec", dont_inherit=True))) for source in (before, after))
    return old, new, [place for place in old if place not in new or _own(old[place]) != _own(new[place])]


def _tree(code: CodeType, place: Place = ()) -> Iterator[tuple[Place, CodeType]]:
    yield place, code
    counts: dict[str, int] = {}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            number = counts[inner.co_name] = counts.get(inner.co_name, 0) + 1
            yield from _tree(inner, (*place, (inner.co_name, number)))


def _own(code: CodeType) -> Any:
    """Return what a code object contains, besides the code objects in it."""
    consts = tuple((type(c).__name__, repr(c)) for c in code.co_consts if not isinstance(c, CodeType))
    return code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars, code.co_exceptiontable


def _in_function(place: Place, codes: dict[Place, CodeType]) -> bool:
    """Return whether code runs only when a function is called: a comprehension of a module runs at import."""
    around = [place[: i + 1] for i in range(len(place))]
    return any(codes[p].co_flags & _OPTIMIZED and p[-1][0] not in _COMPREHENSIONS for p in around)
