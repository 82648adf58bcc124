"""A document held against the schema: the first thing that is not allowed becomes one error with a tip."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from ..errors import did_you_mean
from ..units import truncate
from .document import Document, Path
from .presets import presets_folder

Schema = dict[str, Any]

_TYPES: dict[str, tuple[type, str]] = {
    "integer": (int, "a whole number"),
    "boolean": (bool, "true or false"),
    "string": (str, "text"),
    "array": (list, "a list"),
    "object": (dict, "a mapping of keys to values"),
}


def check(document: Document, against: Schema | None = None) -> None:
    """Raise AttncalcError, with its line and a tip, for the first thing the schema does not allow.

    against: another schema than that of model files.
    """
    _check(document, (), document.data, _written() if against is None else against)


@cache
def _written() -> Schema:
    """The schema as it is written: to read it is quicker than to gather it from every kind of attention."""
    schema: Schema = json.loads((presets_folder().parent / "model.schema.json").read_text(encoding="utf-8"))
    return schema


def _check(document: Document, path: Path, value: Any, schema: Schema) -> None:
    """The keywords that the schema uses, as JSON Schema defines them; a test holds the two together."""
    meaning = schema.get("description", "")
    tip = f"it is: {meaning}" if meaning else "compare with 'attncalc presets show llama2-70b'"
    if "anyOf" in schema:
        fitting = [s for s in schema["anyOf"] if _is(value, s["type"])]
        if not fitting:
            raise document.error(path, f"{_shown(value)} is not {_alternatives(schema['anyOf'])}", tip)
        schema = {**fitting[0], "description": meaning}
    if "type" in schema and not _is(value, schema["type"]):
        raise document.error(path, f"{_shown(value)} is not {_TYPES[schema['type']][1]}", tip)
    if "enum" in schema and (not isinstance(value, str) or value not in schema["enum"]):
        hint = did_you_mean(str(value), schema["enum"])
        raise document.error(path, f"{_shown(value)} is not known", f"{hint}allowed: {', '.join(schema['enum'])}")
    if isinstance(value, int):
        _check_number(document, path, value, schema, tip)
    elif isinstance(value, str):
        _check_text(document, path, value, schema, tip)
    elif isinstance(value, list):
        _check_list(document, path, value, schema, tip)
    elif isinstance(value, dict):
        _check_mapping(document, path, value, schema)


def _check_number(document: Document, path: Path, value: int, schema: Schema, tip: str) -> None:
    if value < schema.get("minimum", value):
        raise document.error(path, f"{truncate(value)} is below {schema['minimum']}", tip)
    if value > schema.get("maximum", value):
        raise document.error(path, f"{truncate(value)} is above {schema['maximum']:,}", tip)


def _check_text(document: Document, path: Path, value: str, schema: Schema, tip: str) -> None:
    if not re.search(schema.get("pattern", ""), value):
        raise document.error(path, f"{_shown(value)} {schema['$comment']}", tip)


def _check_list(document: Document, path: Path, value: list[Any], schema: Schema, tip: str) -> None:
    if len(value) < schema.get("minItems", 0):
        raise document.error(path, "empty", tip)
    for i, item in enumerate(value):
        _check(document, (*path, i), item, schema["items"])
    if schema.get("uniqueItems") and len(set(map(str, value))) < len(value):
        raise document.error(path, "names one thing twice", tip)


def _check_mapping(document: Document, path: Path, value: dict[str, Any], schema: Schema) -> None:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties")
    for key, item in value.items():
        if key in properties:
            _check(document, (*path, key), item, properties[key])
        elif not isinstance(others, dict):
            example = schema.get("$comment", "'attncalc presets show llama2-70b' prints an example")
            hint = did_you_mean(key, properties) or f"{example}; "
            raise document.error((*path, key), "there is no such key", f"{hint}known here: {_some(properties)}")
        else:
            if not re.search(schema.get("propertyNames", {}).get("pattern", ""), key):
                raise document.error(
                    (*path, key), "not a name", "a name is a small letter, then small letters, digits and _"
                )
            _check(document, (*path, key), item, others)
    for key in schema.get("required", ()):
        if key not in value:
            meaning = properties[key].get("description", "")
            raise document.error(path, f"'{key}' is missing", f"{key} is: {meaning}")


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind][0]) and (kind == "boolean" or not isinstance(value, bool))


def _alternatives(schemas: list[Schema]) -> str:
    return " or ".join(_TYPES[s["type"]][1] for s in schemas)


def _shown(value: Any) -> str:
    """A value as the file has it."""
    if value is None:
        return "nothing"
    return str(value).lower() if isinstance(value, bool) else f"'{truncate(value)}'"


def _some(keys: Mapping[str, Any]) -> str:
    return ", ".join(list(keys)[:8]) + ", ..."
