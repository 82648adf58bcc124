"""Validate what commands print as JSON with the schema of the command."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend

from attncalc.questions.schemas import schema


def check_answer(text: str) -> dict[str, Any]:
    """Return the JSON object that a command printed. Raises AssertionError if it breaks the schema
    that it names.
    """
    answer: dict[str, Any] = json.loads(
        text, parse_constant=_no_constant, object_pairs_hook=_without_repeats
    )
    quick, thorough = _validators(schema_of(answer))
    if any(quick.iter_errors(answer)):
        error = best_match(thorough.iter_errors(answer))
        raise AssertionError(f"{error.json_path}: {error.message[:500]}")
    return answer


def schema_of(answer: dict[str, Any]) -> str:
    """Return the name of the schema that an answer names: 'kv' for 'attncalc.kv/1'."""
    return str(answer["schema"]).partition(".")[2].partition("/")[0]


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    assert len(data) == len(pairs), f"a key is given twice: {[key for key, _ in pairs]}"
    return data


@cache
def _validators(name: str) -> tuple[Any, Any]:
    return _QuickValidator(schema(name)), _Validator(schema(name))


def _contains(validator: Any, contains: Any, items: Any, parent: Any) -> Iterator[ValidationError]:
    """Validate `contains` of a figure, which names one: only items of that name are compared, which
    takes 1/40.
    """
    name = contains["properties"]["name"]["const"]
    of_name = [item for item in items if isinstance(item, dict) and item.get("name") == name]
    if len(of_name) != 1:
        yield ValidationError(f"{len(of_name)} figures are called '{name}'")
    for item in of_name:
        yield from validator.descend(item, contains, path=items.index(item))


def _descend(validator: Any, instance: Any, schema: Any, **place: Any) -> Iterator[ValidationError]:
    """Yield errors without their place, in a third of the time: no validator is made for each part
    of an answer.

    So no part of a schema may have an $id.
    """
    for keyword, value in schema.items():
        check = validator.VALIDATORS.get(keyword)
        yield from (check and check(validator, value, instance, schema)) or ()


_Validator, _QuickValidator = (
    extend(Draft202012Validator, {"contains": _contains})  # type: ignore[no-untyped-call]
    for _ in range(2)
)
_QuickValidator.descend = _descend
