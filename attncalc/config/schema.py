"""Check a document against a JSON Schema, so that each mistake becomes an error with a line and a
tip.

Only the keywords that attncalc's own schemas use are known; a property test compares the result
with jsonschema's.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any

from ..errors import AttncalcError, did_you_mean, known_tip
from ..units import truncate
from .data_files import presets_folder
from .document import Document, KeyPath

Schema = dict[str, Any]
Mistakes = Iterator[AttncalcError]

# The most mistakes of a file that are reported at once.
MAX_MISTAKES = 10
_TYPES: dict[str, tuple[type, str]] = {
    "integer": (int, "a whole number"),
    "boolean": (bool, "true or false"),
    "string": (str, "text"),
    "array": (list, "a list"),
    "object": (dict, "a mapping of keys to values"),
}
_EXAMPLE = "'attncalc presets show llama2-70b' prints an example"


def check(document: Document, schema: Schema | None = None) -> None:
    """Raise AttncalcError, with the line and a tip, for the first value that `schema` does not
    allow.

    Its `further` has the next ones, so that a file is corrected at once. The default is the schema
    of model files.
    """
    mistakes = _check(document, (), document.data, _model_schema() if schema is None else schema)
    # one wrong field of a config.json makes several keys wrong: d_model, d_head and d_ff follow
    # from n_embd
    limit = 1 if document.origins else MAX_MISTAKES
    found = {error.message: error for error in islice(mistakes, limit)}
    if found:
        first, *further = found.values()
        first.further = tuple(further)
        raise first


@cache
def _model_schema() -> Schema:
    """Return the schema of model files, from the file: building it would import every kind of
    attention.
    """
    schema: Schema = json.loads(
        (presets_folder() / "model.schema.json").read_text(encoding="utf-8")
    )
    return schema


def _check(document: Document, path: KeyPath, value: Any, schema: Schema) -> Mistakes:
    """Yield the mistakes of one value and of everything in it."""
    meaning = schema.get("description", "")
    tip = _tip(path, value, meaning)
    if "anyOf" in schema:
        fitting = [option for option in schema["anyOf"] if _has_type(value, option["type"])]
        if not fitting:
            allowed = " or ".join(_TYPES[option["type"]][1] for option in schema["anyOf"])
            yield document.error(path, f"{_as_written(value)} is not {allowed}", tip)
            return
        schema = {**fitting[0], "description": meaning}
    if "type" in schema and not _has_type(value, schema["type"]):
        yield document.error(path, f"{_as_written(value)} is not {_TYPES[schema['type']][1]}", tip)
        return
    if "enum" in schema and (not isinstance(value, str) or value not in schema["enum"]):
        yield document.error(
            path, f"{_as_written(value)} is not known", known_tip(str(value), schema["enum"])
        )
        return
    if isinstance(value, int):
        yield from _check_number(document, path, value, schema, tip)
    elif isinstance(value, str):
        if not re.search(schema.get("pattern", ""), value):
            yield document.error(path, f"{_as_written(value)} {schema['$comment']}", tip)
    elif isinstance(value, list):
        yield from _check_list(document, path, value, schema, tip)
    elif isinstance(value, dict):
        yield from _check_mapping(document, path, value, schema)


def _tip(path: KeyPath, value: Any, meaning: str) -> str:
    """Return what to do instead of a wrong value: what its key means, or how someone's '4,096' is
    written.
    """
    digits = without_commas(value)
    if digits:
        return f"write {digits}: a comma groups no digits"
    if path and meaning:
        return f"meaning of '{path[-1]}': {meaning}"
    return _EXAMPLE


def _check_number(
    document: Document, path: KeyPath, value: int, schema: Schema, tip: str
) -> Mistakes:
    if value < schema.get("minimum", value):
        yield document.error(path, f"{truncate(value)} is below {schema['minimum']}", tip)
    if value > schema.get("maximum", value):
        yield document.error(path, f"{truncate(value)} is above {schema['maximum']:,}", tip)


def _check_list(
    document: Document, path: KeyPath, value: list[Any], schema: Schema, tip: str
) -> Mistakes:
    if len(value) < schema.get("minItems", 0):
        yield document.error(path, "empty", tip)
    for i, item in enumerate(value):
        yield from _check(document, (*path, i), item, schema["items"])
    if schema.get("uniqueItems") and len(set(map(str, value))) < len(value):
        yield document.error(path, "has an item twice", tip)


def _check_mapping(
    document: Document, path: KeyPath, value: dict[str, Any], schema: Schema
) -> Mistakes:
    if len(value) > schema.get("maxProperties", len(value)):
        yield document.error(
            path, f"has {len(value):,} entries, more than {schema['maxProperties']:,}", _EXAMPLE
        )
        return
    properties = schema.get("properties", {})
    additional = schema.get("additionalProperties")
    for key, item in value.items():
        if key in properties:
            yield from _check(document, (*path, key), item, properties[key])
        elif not isinstance(additional, dict):
            hint = did_you_mean(key, properties) or f"{schema.get('$comment', _EXAMPLE)}; "
            known = ", ".join(list(properties)[:8])
            yield document.error((*path, key), "there is no such key", f"{hint}known: {known}, ...")
        else:
            if not re.search(schema.get("propertyNames", {}).get("pattern", ""), key):
                yield document.error(
                    (*path, key),
                    "not a name",
                    "a name is a small letter, then small letters, digits and _",
                )
            yield from _check(document, (*path, key), item, additional)
    for key in schema.get("required", ()):
        if key not in value:
            meaning = properties[key].get("description", "")
            yield document.error(path, f"'{key}' is missing", f"meaning of '{key}': {meaning}")


def _has_type(value: Any, name: str) -> bool:
    """Return whether a value has a JSON type; true and false are no integers, unlike in Python."""
    return isinstance(value, _TYPES[name][0]) and (name == "boolean" or not isinstance(value, bool))


def without_commas(value: Any) -> str:
    """Return the digits of a text such as '4,096', which someone meant as a number; '' for another
    value.
    """
    is_grouped = isinstance(value, str) and re.fullmatch(
        r"[1-9]\d{0,2}(,\d{3}){1,9}(\.\d{1,9})?", value.strip()
    )
    return value.replace(",", "") if is_grouped else ""


def _as_written(value: Any) -> str:
    """Return a value as a file spells it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{truncate(value)}'"
