"""Plain statements: the rules for how code is written that ruff does not have."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tables import each

PACKAGE = Path(__file__).parent.parent / "attncalc"
# {(file, function, rule): why the statement stays}.
OFFENDERS: dict[tuple[str, str, str], str] = {}

NESTED = "a conditional expression inside another"
NUMBER = "a condition as a number"
TUPLES = "several values assigned at once"
CONDITIONS = "a comprehension with two conditions"

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def is_condition(node: ast.AST | None) -> bool:
    """Return whether an expression is True or False, as far as its form or its name says."""
    match node:
        case ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return True
        case ast.BoolOp():
            return all(map(is_condition, node.values))  # `x or 0` is a number
        case ast.Call(func=ast.Name(id=name)):
            return name in ("bool", "any", "all", "isinstance")
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.lstrip("_").startswith(("is_", "has_"))
    return False


def is_nested(node: ast.IfExp) -> bool:
    return any(isinstance(part, ast.IfExp) and part is not node for part in ast.walk(node))


def is_number(node: ast.BinOp | ast.AugAssign | ast.Subscript) -> bool:
    if isinstance(node, ast.Subscript):
        if isinstance(node.slice, ast.Slice):
            return is_condition(node.slice.lower) or is_condition(node.slice.upper)
        return is_condition(node.slice)
    if not isinstance(node.op, ast.Mult | ast.Add | ast.Sub):
        return False
    if isinstance(node, ast.AugAssign):
        return is_condition(node.value)
    return is_condition(node.left) or is_condition(node.right)


def assigns_several(node: ast.Assign) -> bool:
    target = node.targets[0]
    if not isinstance(target, ast.Tuple) or not isinstance(node.value, ast.Tuple):
        return False
    names = set(map(ast.unparse, target.elts))
    return names.isdisjoint(map(ast.unparse, node.value.elts))  # `a, b = b, a` swaps


def has_conditions(node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> bool:
    conditions = [condition for loop in node.generators for condition in loop.ifs]
    if conditions and len(conditions) + len(node.generators) > 2:
        return True
    return any(isinstance(condition, ast.BoolOp) for condition in conditions)


RULES: dict[type, tuple[str, Callable[[Any], bool]]] = {
    ast.IfExp: (NESTED, is_nested),
    **dict.fromkeys((ast.BinOp, ast.AugAssign, ast.Subscript), (NUMBER, is_number)),
    ast.Assign: (TUPLES, assigns_several),
    **dict.fromkeys(
        (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp), (CONDITIONS, has_conditions)
    ),
}


def dense_statements(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield (function, rule, line) of what breaks a rule; the function is '' at the top."""
    nodes = list(ast.walk(ast.parse(text)))
    functions = [node for node in nodes if isinstance(node, FUNCTIONS)]
    for node in nodes:
        rule, breaks = RULES.get(type(node), ("", bool))
        if rule and breaks(node):
            line = node.lineno  # type: ignore[attr-defined] # which only modules lack
            yield function_around(line, functions), rule, line


def function_around(line: int, functions: list[Any]) -> str:
    """Return the innermost function around a line; outer ones come first in `functions`."""
    names = [one.name for one in functions if one.lineno <= line <= one.end_lineno]
    return names[-1] if names else ""


def test_statements_are_plain() -> None:
    found = []
    used = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        for function, rule, line in dense_statements(path.read_text(encoding="utf-8")):
            if (name, function, rule) in OFFENDERS:
                used.add((name, function, rule))
            else:
                found.append(f"{name}:{line}: {rule}")
    assert not found, "\n".join(found)
    assert used == OFFENDERS.keys(), "an offender that is plain now has no line"


@each(
    ("text", "rule"),
    [
        ("a = b if c else d if e else f", NESTED),
        ("a = (b if c else d) if e else f", NESTED),
        ("a = [b] * is_c", NUMBER),
        ("a = b + (c > d)", NUMBER),
        ("a = 'b' * (not c)", NUMBER),
        ("a = b - bool(c)", NUMBER),
        ("a = b * (c > d and self.has_e)", NUMBER),
        ("a += b is not None", NUMBER),
        ("a = b[c > d]", NUMBER),
        ("a = b[: self.is_c]", NUMBER),
        ("a, b = c, d[0]", TUPLES),
        ("a = [b for b in c if d if e]", CONDITIONS),
        ("a = {b: c for b, c in d.items() if e and f}", CONDITIONS),
        ("a = any(b for c in d for b in c if e)", CONDITIONS),
        ("def f():\n    return {b for b in c if not d or e}", CONDITIONS),
    ],
)
def test_a_dense_statement_is_found(text: str, rule: str) -> None:
    assert [found for _, found, _ in dense_statements(text)] == [rule]


@each(
    "text",
    [
        "a = b if c else d",
        "a = f(b if c else d, e if f else g)",
        "a = [b] * c",
        "a = b * (c or 0)",
        "a = b[c]",
        "a = b > c + d",
        "a, b = b, a",
        "a, b = c",
        "a = [b for b in c if not d]",
        "a = [b for c in d for b in c]",
        "a = sum(b > c for b in d)",
    ],
)
def test_a_plain_statement_is_not_found(text: str) -> None:
    assert not list(dense_statements(text))


def test_the_function_of_an_offender_is_the_innermost() -> None:
    text = "class A:\n    def b(self):\n        def c():\n            return d * is_e\n"
    assert list(dense_statements(text)) == [("c", NUMBER, 4)]
