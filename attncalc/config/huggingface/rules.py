"""A family's rules: a table from attncalc's keys to what a config's fields make of them.

A rule is a value as it is, or a formula of the fields after '=', as in a spreadsheet:

    n_heads: =num_attention_heads
    d_head: =head_dim or hidden_size // num_attention_heads
    norm: rmsnorm

In a layer's rules `i` is the number of the layer, from 0. `top` are the fields around a text_config.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from types import CodeType
from typing import Any

from ...errors import AttncalcError
from ...units import truncate
from .fields import Fields

FUNCTIONS: dict[str, Any] = {
    function.__name__: function
    for function in (abs, all, any, bool, dict, enumerate, int, isinstance, len, list, max, min, range, round, str, sum)
}
"""What a formula may call."""


class _Names(dict[str, Any]):
    """What a formula's names mean: a layer's number, a function, or a field."""

    def __init__(self, fields: Fields, known: Mapping[str, Any]) -> None:
        super().__init__(FUNCTIONS, **known, top=fields.around or fields, __builtins__={})
        self.fields = fields
        self.read: list[str] = []

    def __missing__(self, name: str) -> Any:
        self.read.append(name)
        return self.fields[name]


def value_of(rule: Any, fields: Fields, **known: Any) -> Any:
    """What `rule` comes to. AttncalcError: the fields it reads are not what it needs, and which they are."""
    if isinstance(rule, list):
        return [value_of(item, fields, **known) for item in rule]
    if isinstance(rule, Mapping):
        return {name: value_of(item, fields, **known) for name, item in rule.items()}
    if not isinstance(rule, str) or not rule.startswith("="):
        return rule
    names = _Names(fields, known)
    try:
        return eval(_compiled(rule[1:]), names)
    except (TypeError, ValueError, ZeroDivisionError, IndexError, KeyError, AttributeError, OverflowError):
        read = ", ".join(f"{name} {truncate(repr(fields[name]))}" for name in dict.fromkeys(names.read))
        raise AttncalcError(
            f"cannot make anything of {read or rule}", "the config lacks a field, or one is not what its class expects"
        ) from None


def kinds_of(rules: Mapping[str, Any], fields: Fields, i: int) -> list[str]:
    """The names of layer i's kinds, in the order in which they are laid over each other."""
    found = value_of(rules.get("kind", []), fields, i=i)
    return [str(name) for name in (found if isinstance(found, list) else [found])]


def names_in(rules: Any) -> set[str]:
    """The fields that rules name, whether or not a value makes them look."""
    if isinstance(rules, Mapping):
        return {name for rule in rules.values() for name in names_in(rule)}
    if isinstance(rules, list):
        return {name for rule in rules for name in names_in(rule)}
    if not isinstance(rules, str) or not rules.startswith("="):
        return set()
    return set(_fields_of(rules[1:]))


@cache
def _fields_of(formula: str) -> frozenset[str]:
    """The fields that a formula names; most families have most of theirs from the one they are like."""
    nodes = list(ast.walk(ast.parse(formula.strip(), mode="eval")))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    of_its_own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    of_its_own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return frozenset(names - of_its_own - {*FUNCTIONS, "i", "top"})


@cache
def _compiled(formula: str) -> CodeType:
    return compile(formula.strip(), "<rule>", "eval")
