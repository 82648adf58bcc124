"""Enumerate the mutants of a file: one small change each, made by the operators of cosmic-ray."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from cosmic_ray.ast import ast_nodes, get_ast  # type: ignore[import-untyped]
from cosmic_ray.operators.provider import OperatorProvider  # type: ignore[import-untyped]

REPLACED = {
    # arithmetic: the inverse, and one of another growth
    "Add": ("Sub", "Mul"),
    "Sub": ("Add",),
    "Mul": ("Add", "FloorDiv"),
    "Div": ("Mul", "FloorDiv"),
    "FloorDiv": ("Mul", "Div"),
    "Mod": ("FloorDiv", "Mul"),
    "Pow": ("Mul", "Add"),
    "LShift": ("RShift",),
    "RShift": ("LShift",),
    "BitOr": ("BitAnd", "BitXor"),
    "BitAnd": ("BitOr", "BitXor"),
    "BitXor": ("BitAnd", "BitOr"),
    # comparisons: the negation, and the two that differ on one side of the boundary (Kaminski et al., 2013)
    "Eq": ("NotEq", "LtE", "GtE"),
    "NotEq": ("Eq", "Lt", "Gt"),
    "Lt": ("GtE", "LtE", "NotEq"),
    "LtE": ("Gt", "Lt", "Eq"),
    "Gt": ("LtE", "GtE", "NotEq"),
    "GtE": ("Lt", "Gt", "Eq"),
    "Is": ("IsNot",),
    "IsNot": ("Is",),
}
"""{operator: by what it is replaced}. The others of cosmic-ray's 190 pairs (`*` by `<<`, `==` by `is`) are killed by
the first test that reaches them, or differ from these in no value: they would only raise the share."""

OTHERS = (
    "AddNot",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ReplaceUnaryOperator_Delete_USub",
    "ReplaceUnaryOperator_Delete_Invert",
    "ReplaceUnaryOperator_Delete_Not",
    "ExceptionReplacer",
    "NumberReplacer",
    "RemoveDecorator",
    "ZeroIterationForLoop",
)

NO_EFFECT = {
    *("cache", "lru_cache", "functools.cache", "functools.lru_cache"),
    *("overload", "abstractmethod", "override", "final"),
}
"""Decorators that change the speed, or what a type checker says, and no result."""


COMPOUND = {"if_stmt", "while_stmt", "for_stmt", "with_stmt", "try_stmt", "funcdef", "classdef", "decorated"}


class Mutant(NamedTuple):
    """One change of a file.

    Attributes:
        path: The file, relative to the repository.
        line: The line of the change, from 1.
        operator: The operator's name in cosmic-ray.
        start: Where the replaced text starts in the file, in characters.
        end: Where it ends.
        text: The text in its place.
        lines: The first and the last line of the statement, whose tests are run.
        names: What the statement defines, if it runs at import: a constant's, a field's, a function's name.
        within: The functions and classes around it, from the outside: "Grouped.cache".
    """

    path: str
    line: int
    operator: str
    start: int
    end: int
    text: str
    lines: tuple[int, int]
    names: tuple[str, ...]
    within: str

    def apply(self, source: str) -> str:
        """Return the source with this change."""
        return source[: self.start] + self.text + source[self.end :]

    def shown(self, source: str) -> str:
        """Return the change as one line: "a < b  ->  a <= b"."""
        new = _cut(self.apply(source), self.start, self.start + len(self.text))
        return f"{_cut(source, self.start, self.end)}  ->  {new}"


def _cut(source: str, start: int, end: int) -> str:
    """Return the lines from start to end, as one line."""
    first = source.rfind("\n", 0, start) + 1
    last = source.find("\n", end)
    return " ".join(source[first : last if last >= 0 else None].split())


def mutants(path: Path, root: Path) -> list[Mutant]:
    """Return the mutants of a file, without those that Python compiles to the same code as another or the original."""
    source = path.read_text(encoding="utf-8")
    seen = {_fingerprint(compile(source, "", "exec"))}
    kept = []
    for mutant in _all_mutants(source, str(path.relative_to(root))):
        try:
            fingerprint = _fingerprint(compile(mutant.apply(source), "", "exec"))
        except SyntaxError:
            continue
        if fingerprint not in seen:
            seen.add(fingerprint)
            kept.append(mutant)
    return kept


def _fingerprint(code: CodeType) -> Any:
    """Return what a code object computes, without line numbers."""
    consts = tuple(_fingerprint(c) if isinstance(c, CodeType) else (type(c).__name__, repr(c)) for c in code.co_consts)
    return code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars, code.co_exceptiontable


def _all_mutants(source: str, path: str) -> Iterator[Mutant]:
    tree = get_ast(source)
    starts = list(itertools.accumulate((len(line) for line in source.splitlines(keepends=True)), initial=0))

    def offset(position: tuple[int, int]) -> int:
        return starts[position[0] - 1] + position[1]

    for node in ast_nodes(tree):
        if node.type in {"name", "string", "newline", "endmarker"} or _left_out(node):
            continue
        for name, operator in _operators().items():
            for index, (position, stop) in enumerate(list(operator.mutation_positions(node))):
                if name.startswith("ReplaceComparison") and not _ordered(node, name, index, operator):
                    continue
                start, end = offset(node.start_pos), offset(node.end_pos)
                try:
                    text = _mutated(operator, node, index)
                except AttributeError:  # `except json.JSONDecodeError`: cosmic-ray changes plain names only
                    continue
                if text is None:  # a decorator, whose indentation goes with it
                    start, text = offset(node.get_start_pos_of_prefix()), ""
                cut = _common_prefix(source[start:end], text)
                tail = _common_prefix(source[start + cut : end][::-1], text[cut:][::-1])
                statement = _statement(node)
                yield Mutant(
                    path,
                    position[0],
                    name,
                    start + cut,
                    end - tail,
                    text[cut : len(text) - tail],
                    _lines(statement, position[0], stop[0]),
                    _defined(statement),
                    _within(node),
                )
    if tree.get_code() != source:
        raise AssertionError(f"{path}: an operator left its change in the tree")


def _common_prefix(one: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@cache
def _operators() -> dict[str, Any]:
    provider = OperatorProvider()
    pairs = [f"{old}_{new}" for old, several in REPLACED.items() for new in several]
    kinds = ("ReplaceBinaryOperator_", "ReplaceComparisonOperator_")
    names = [kind + pair for kind in kinds for pair in pairs if kind + pair in set(provider)]
    return {name: provider[name]() for name in (*names, *OTHERS)}


def _mutated(operator: Any, node: Any, index: int) -> str | None:
    """Return the code of a node after an operator's change, or None if it removes the node, and undo the change."""
    leaves = [(leaf, leaf.value) for leaf in ast_nodes(node) if hasattr(leaf, "value")]
    children = list(getattr(node, "children", ()))
    new = operator.mutate(node, index)
    text = None if new is None else new.get_code(include_prefix=False)
    for leaf, value in leaves:
        leaf.value = value
    if children:
        node.children = children
    return text


def _left_out(node: Any) -> bool:
    """Return whether a node is without effect: a type annotation, a protocol, TYPE_CHECKING, some decorators."""
    if node.type == "decorator" and node.children[1].get_code().strip().partition("(")[0] in NO_EFFECT:
        return True
    if node.type == "if_stmt" and node.children[1].get_code().strip() == "TYPE_CHECKING":
        return True
    child, parent = node, node.parent
    while parent is not None:
        if parent.type == "classdef" and "Protocol" in (base.get_code().strip() for base in _bases(parent)):
            return True
        place = parent.children.index(child) if parent.type in {"annassign", "tfpdef", "funcdef"} else 0
        if (parent.type == "annassign" and place == 1) or (parent.type == "tfpdef" and place == 2):
            return True
        if parent.type == "funcdef" and parent.children[place - 1] == "->":
            return True
        child, parent = parent, parent.parent
    return False


def _bases(class_: Any) -> list[Any]:
    arguments = class_.get_super_arglist()
    return [] if arguments is None else [arguments, *getattr(arguments, "children", ())]


def _ordered(node: Any, name: str, index: int, operator: Any) -> bool:
    """Return whether a comparison may be replaced: `==` with a string, tuple or bool only by `!=`, and the reverse."""
    if not name.endswith(("_LtE", "_GtE", "_Lt", "_Gt")) or not name.startswith(
        ("ReplaceComparisonOperator_Eq", "ReplaceComparisonOperator_NotEq")
    ):
        return True
    place = [place for place, _ in operator._mutation_points(node)][index]
    sides = (node.children[place * 2], node.children[place * 2 + 2])
    return not any(
        side.type in {"string", "strings", "fstring", "atom"} or side.get_code().strip() in {"True", "False"}
        for side in sides
    )


def _statement(node: Any) -> Any:
    """Return the statement that contains a node, or the function or class that its decorator or default belongs to."""
    while node.parent is not None and node.parent.type not in {"simple_stmt", "suite", "file_input"}:
        if node.type in COMPOUND:
            break
        node = node.parent
    return node


def _lines(statement: Any, first: int, last: int) -> tuple[int, int]:
    """Return the first and last line of a statement, but of a compound one (if, for, def) those of the change."""
    if statement.type in COMPOUND:
        return first, last
    return statement.start_pos[0], statement.end_pos[0]


def _defined(statement: Any) -> tuple[str, ...]:
    if statement.type == "decorated":
        statement = statement.children[-1]
    if statement.type in {"funcdef", "classdef"}:
        return (statement.name.value,)
    if statement.type == "expr_stmt":
        return tuple(name.value for name in statement.get_defined_names())
    return ()


def _within(node: Any) -> str:
    names = [node.parent.children[-1].name.value] if node.type == "decorator" else []
    while (node := node.parent) is not None:
        if node.type in {"funcdef", "classdef"}:
            names.insert(0, node.name.value)
    return ".".join(names)
