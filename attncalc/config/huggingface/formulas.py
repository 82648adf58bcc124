"""The value of a rule, from the fields of a config.

A rule gives the value of one key of a model file. It is the value itself, or a formula of the
config's fields after '=', as in a spreadsheet:

    norm: rmsnorm
    n_heads: =num_attention_heads
    d_head: =head_dim or hidden_size // num_attention_heads

In the rules of a layer, `i` is the number of the layer, counted from 0. `top` are the fields of the
config around a text_config, such as `top["tie_word_embeddings"]`.
"""

import ast
import re
from collections.abc import Mapping
from functools import cache
from math import isqrt
from types import CodeType
from typing import Any

from ...errors import AttncalcError
from ..document import origin
from .fields import Fields, written


def primes(start: int, count: int) -> list[int]:
    """Return the first `count` primes from `start` on: the rows of tables of hashed n-grams."""
    if count > _MOST_PRIMES or start > _LARGEST_PRIME:
        raise ValueError
    found: list[int] = []
    for n in range(start | 1, start + 1000 * count, 2):
        if len(found) == count:
            break
        if all(n % d for d in range(3, isqrt(n) + 1, 2)):
            found.append(n)
    return found


_MOST_PRIMES = 256
_LARGEST_PRIME = 10**9
# The functions that a formula may call.
FUNCTIONS: dict[str, Any] = {
    function.__name__: function
    for function in (
        abs,
        all,
        any,
        bool,
        dict,
        enumerate,
        int,
        isinstance,
        len,
        list,
        max,
        min,
        primes,
        range,
        round,
        str,
        sum,
    )
}


class _Namespace(dict[str, Any]):
    """The names of a formula: a layer's number, a function, or a field; it records which fields are
    looked up.
    """

    def __init__(self, fields: Fields, variables: Mapping[str, Any], looked_up: list[str]) -> None:
        super().__init__(FUNCTIONS, **variables, top=fields.outer_or_self, __builtins__={})
        self.fields = fields
        self.looked_up = looked_up

    def __missing__(self, name: str) -> Any:
        self.looked_up.append(name)
        self.fields.looked_up.add(self.fields.own_name(name))
        return self.fields[name]


def value_of_key(key: str, rule: Any, fields: Fields, **variables: Any) -> Any:
    """Return the value of the rule of a key, and record in the fields which of them it was computed
    from.

    Raises AttncalcError as `value_of` does.
    """
    names: list[str] = []
    value = value_of(rule, fields, names, **variables)
    if (
        key == "d_head"
        and "//" in str(rule)
        and value != value_of(rule.replace("//", "/"), fields, **variables)
    ):
        numbers = ", ".join(
            f"{fields.own_name(name)} {written(fields[name])}" for name in names if fields[name]
        )
        raise AttncalcError(
            f"the width of a head is not a whole number: {numbers}", "correct one of them"
        )
    given = [name for name in names if fields[name] is not None] or names
    if given:
        is_equal = value is None or value == fields[given[0]]
        fields.origins.setdefault(key, {})[str(value)] = origin(
            key, map(fields.own_name, given), is_equal=is_equal
        )
    return value


def value_of(rule: Any, fields: Fields, used: list[str] | None = None, /, **variables: Any) -> Any:
    """Return the value of a rule; lists and mappings may contain formulas too.

    The names of the fields that a single formula looks up are added to `used`.

    Raises AttncalcError, with the fields that the formula uses, if it cannot be computed from their
    values.
    """
    if isinstance(rule, list):
        return [value_of(item, fields, **variables) for item in rule]
    if isinstance(rule, Mapping):
        return {name: value_of(item, fields, **variables) for name, item in rule.items()}
    if not isinstance(rule, str) or not rule.startswith("="):
        return rule
    names = _Namespace(fields, variables, [] if used is None else used)
    try:
        return eval(_compile(rule[1:]), names)
    except (
        TypeError,
        ValueError,
        ZeroDivisionError,
        IndexError,
        KeyError,
        AttributeError,
        OverflowError,
    ):
        raise _cannot_compute(rule, fields, dict.fromkeys(names.looked_up)) from None


def _cannot_compute(rule: str, fields: Fields, names: Mapping[str, Any]) -> AttncalcError:
    for name in names:
        if fields[name] == 0 and type(fields[name]) is int:
            return AttncalcError(f"{name} is 0; it must be at least 1", "correct the config")
    missing = [name for name in names if fields[name] is None]
    if missing:  # some of them are optional
        subject = missing[0] if len(missing) == 1 else f"one of {', '.join(missing)}"
        return AttncalcError(f"{subject} is missing", "add it to the config")
    given = {name: fields[name] for name in names}
    for name in re.findall(r"""top\[['"](\w+)""", rule):
        if fields.outer_or_self[name] is not None:
            given[name] = fields.outer_or_self[name]
    values = ", ".join(f"{name} {written(value)}" for name, value in given.items())
    return AttncalcError(
        f"the model cannot be computed from {values or rule}",
        "a field has another value than its class expects",
    )


def kinds_of_layer(rules: Mapping[str, Any], fields: Fields, i: int) -> list[str]:
    """Return the names of layer i's kinds, in the order in which their rules override each
    other.
    """
    rule = rules.get("kind", [])
    formulas = rule if isinstance(rule, list) else [rule]
    # a list in a config is an unknown kind
    return [str(value_of(formula, fields, i=i)) for formula in formulas]


def uses_layer_number(rules: Mapping[str, Any]) -> bool:
    """Return whether a formula in `rules` may use `i`, the number of the layer."""
    return bool(re.search(r"=.*\bi\b", str(rules)))


def names_in(rules: Any) -> set[str]:
    """Return the fields that formulas in `rules` name, whether or not a config's values make them
    look there.
    """
    if isinstance(rules, Mapping | list):
        items = rules.values() if isinstance(rules, Mapping) else rules
        return set().union(*map(names_in, items))
    if not isinstance(rules, str) or not rules.startswith("="):
        return set()
    return set(_fields_of(rules[1:]))


def outer_names_in(rules: Any) -> set[str]:
    """Return the fields of the config around a text_config that formulas in `rules` name."""
    return set(re.findall(r"""top\[["'](\w+)["']\]""", str(rules).replace("\\'", "'")))


@cache
def _fields_of(formula: str) -> frozenset[str]:
    """Return the fields that one formula names. Cached, because families share most of their
    formulas.
    """
    nodes = list(ast.walk(ast.parse(formula.strip(), mode="eval")))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    local_names = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    local_names |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return frozenset({node.id for node in names} - local_names - {*FUNCTIONS, "i", "top"})


@cache
def _compile(formula: str) -> CodeType:
    return compile(formula.strip(), "<rule>", "eval")
