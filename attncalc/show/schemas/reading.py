"""Schemas as the YAML files of the questions have them: a line per key of JSON, with the type and
the meaning of its value.

    gpus: positive all GPUs, those of replicas among them
    gpu: text? name of the GPU; null without a GPU
    phase: prefill|decode the pass

A type with '?' may be null, which the meaning explains. Words with '|' between them are the allowed
values, as are those of a list in the code, '@show.verdicts.VERDICTS'. '$figure' refers to a
definition. All else is a mapping, whose first key is its kind and has its meaning:

    object: its `keys`, and those that it may have, `optional`
    list: its items are `of`, or objects: `each` is what one of them is, with `keys`
    values: an object with any keys, whose values are `of`
    figures: those of `rows`, once each, and those that there may be, `sometimes`
    either: one of several schemas, `of`
    schema: JSON Schema as it is, without a meaning

Among keys, '+model' stands for all keys of that group of groups.yaml, and '+show.users.FIGURES' for
those of figures.

A file begins with `meaning`, what the answer is, and `version`, if that is not 1. Keys without a
value say what kind of answer it is: `is_list` has `rows`, `has_fail_if` has the outcomes of
--fail-if, and `no_model` has no model.
"""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from ...config.data_files import file_content
from ..figures import FigureRow
from . import schema_name

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CONTRACT = "the command and the version of its contract"
# {a type in YAML: the schema of its values}.
_TYPES: dict[str, Schema] = {
    "text": {"type": "string"},
    "flag": {"type": "boolean"},
    "whole": {"type": "integer", "minimum": 0},
    "positive": {"type": "integer", "minimum": 1},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "empty": {"type": "array", "maxItems": 0},
    "null": {"type": "null"},
    "cell": {"type": ["string", "number", "boolean", "null"]},
}


def read_schema(name: str, written: Mapping[str, Any]) -> Schema:
    """Return the schema that the YAML file `written` has: of the answer of a command, or with
    `keys` of another document.

    Args:
        name: The answer, as reports have it: 'kv'.
        written: The content of the file.
    """
    title = schema_name(name, written.get("version", 1))
    groups = _groups()
    keys = written.get("keys") or _answer(written, groups["answer"])
    contract = {"description": written.get("contract", _CONTRACT), "const": title}
    schema = {
        "$schema": DIALECT,
        "title": title,
        "description": written["meaning"],
        **_object({"schema": contract, **properties(keys)}),
    }
    definitions = {}
    if "keys" not in written:
        definitions["figure"] = groups["figure"]
    for key, node in written.get("definitions", {}).items():
        definitions[key] = node or groups[key]
    if definitions:
        schema["$defs"] = properties(definitions)
    return schema


def _groups() -> dict[str, Any]:
    """Return {name: the keys} that several schemas have."""
    groups: dict[str, Any] = file_content(Path(__file__).parent, "groups")
    return groups


def _answer(written: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a command's answer; a command without a model has no workload either."""
    keys = dict(common)
    nothing = keys.pop("nothing")
    if "no_model" in written:
        keys |= {"model": nothing, "workload": nothing}
    keys |= {key: written[key] for key in ("model", "results") if key in written}
    keys["layers"] = {**common["layers"], "of": written["layers"]}
    if "has_fail_if" not in written:
        del keys["fail_if"]
    if "is_list" not in written:
        del keys["rows"]
    return {**keys, **written.get("extra", {})}


def properties(keys: Mapping[str, Any]) -> dict[str, Schema]:
    """Return the schemas of an object's keys."""
    found: dict[str, Schema] = {}
    for key, node in keys.items():
        group = key.removeprefix("+")
        if group == key:
            found[key] = _schema(node)
        elif "." in group:
            for name, row in _code(group).items():
                if isinstance(row, FigureRow):
                    found[name] = {"description": row.description, **_value(row)}
                else:
                    found[name] = row
        else:
            found |= properties(_groups()[group])
    return found


def _schema(node: Any) -> Schema:
    if isinstance(node, str):
        return _of_line(node)
    (kind, meaning), *_ = node.items()
    name = kind.removesuffix("?")
    of = node.get("of")
    if name == "schema":
        return dict(meaning)
    if name == "object":
        found = _object(properties(node["keys"]), properties(node.get("optional", {})))
    elif name == "list":
        items = of if of else {"object": node["each"], "keys": node["keys"]}
        found = {"type": "array", "items": _schema(items)}
    elif name == "values":
        found = {"type": "object", "additionalProperties": _schema(of)}
    elif name == "either":
        found = {"oneOf": [_schema(each) for each in of]}
    else:
        found = _figures(_rows(node["rows"]), _rows(node.get("sometimes", ())))
    if kind != name:
        found["type"] = [found["type"], "null"]
    if meaning:
        return {"description": meaning, **found}
    return found


def _of_line(line: str) -> Schema:
    """Return the schema of 'text? its name; null without one'."""
    kind, _, meaning = line.partition(" ")
    name = kind.removesuffix("?")
    is_nullable = kind.endswith("?")
    if name.startswith("$"):
        found: Schema = {"$ref": f"#/$defs/{name[1:]}"}
    elif name.startswith("@") or "|" in name:
        values = _code(name[1:]) if name.startswith("@") else name.split("|")
        allowed = [*(get_args(values) or values)]
        if is_nullable:
            allowed.append(None)
        found = {"enum": allowed}
    else:
        found = dict(_TYPES[name])
        if is_nullable:
            found["type"] = [found["type"], "null"]
    if meaning:
        return {"description": meaning, **found}
    return found


def _object(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    return {
        "type": "object",
        "required": list(required),
        "additionalProperties": False,
        "properties": {**required, **(optional or {})},
    }


# Figures


def _code(path: str) -> Any:
    """Return a value in the code: 'show.verdicts.VERDICTS'."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(f"...{module}", __package__), name)


def _rows(written: Iterable[Any]) -> list[FigureRow]:
    """Return the rows of 'show.users.FIGURES' and such, or of mappings that describe one."""
    found: list[FigureRow] = []
    for part in written:
        if isinstance(part, Mapping):
            rows = FigureRow("", **part)
        else:
            rows = _code(part)
        found += rows.values() if isinstance(rows, Mapping) else [rows]
    return found


def _figures(rows: Sequence[FigureRow], sometimes: Iterable[FigureRow]) -> Schema:
    """Return the schema of a list of figures.

    The figures of `rows` are in it once each; one that does not apply has the value null. Of a
    pattern, which starts with '^', there may be none or several. Those of `sometimes` may be in it.
    """
    names = []
    contained = []
    further = []
    for row in rows:
        if row.name.startswith("^"):
            further.append(_figure(row, {"pattern": row.name}))
            continue
        names.append(row.name)
        described = _figure(row, {"const": row.name})
        contained.append(
            {"description": described.pop("description"), "contains": described, "maxContains": 1}
        )
    further += [_figure(row, {"const": row.name}) for row in sometimes]
    choices = list[Schema]()
    # draft 4 and readers of it refuse an enum without values
    if names or not further:
        choices.append({"properties": {"name": {"enum": names}}})
    choices += further
    named: Schema = {"anyOf": choices} if len(choices) > 1 else choices[0]
    schema: Schema = {"type": "array", "items": {"$ref": "#/$defs/figure", **named}}
    if contained:
        schema["allOf"] = contained
    return schema


def _figure(row: FigureRow, name: Schema) -> Schema:
    described = {"name": name, "unit": {"const": row.unit}, "value": _value(row)}
    return {"description": f"{row.name}: {row.description}", "properties": described}


def _value(row: FigureRow) -> Schema:
    kind = "number" if row.ratio else "integer"
    if row.null_if:
        return {"type": [kind, "null"]}
    return {"type": kind}
