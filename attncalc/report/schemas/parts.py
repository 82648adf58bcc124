"""The parts of which the schemas of all commands consist: values, figures, and the document around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...units import BYTES, BYTES_PER_SECOND, FLOP, FLOP_PER_SECOND, NO_UNIT, PARAMS, PER_SECOND, SECONDS, TOKENS
from ..fail_if import COMMANDS, OPERATORS
from ..figures import FigureRow
from . import schema_name

Schema = dict[str, Any]
Properties = Mapping[str, Schema]
"""The keys of an object, each with the schema of its value."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"


# Values


def text(meaning: str) -> Schema:
    return {"description": meaning, "type": "string"}


def flag(meaning: str) -> Schema:
    """Return the schema of true or false."""
    return {"description": meaning, "type": "boolean"}


def whole(meaning: str, minimum: int = 0) -> Schema:
    """Return the schema of an integer that is at least `minimum`."""
    return {**integer(meaning), "minimum": minimum}


def integer(meaning: str) -> Schema:
    """Return the schema of an integer, which may be negative."""
    return {"description": meaning, "type": "integer"}


def number(meaning: str) -> Schema:
    """Return the schema of a number, which may be negative."""
    return {"description": meaning, "type": "number"}


def choice(meaning: str, *values: str | None) -> Schema:
    """Return the schema of one of several strings; None stands for null."""
    return {"description": meaning, "enum": list(values)}


def or_null(schema: Schema, when: str) -> Schema:
    """Return the schema of a value that may also be null; its description says when."""
    nullable = {**schema, "description": f"{schema['description']}; null {when}"}
    if "enum" in schema:
        nullable["enum"] = [*schema["enum"], None]
    if "type" in schema:
        nullable["type"] = [schema["type"], "null"]
    return nullable


def listed(meaning: str, item: Schema) -> Schema:
    """Return the schema of a list whose items have one schema."""
    return {"description": meaning, "type": "array", "items": item}


def texts(meaning: str) -> Schema:
    """Return the schema of a list of strings."""
    return listed(meaning, {"type": "string"})


def named_values(meaning: str, value: Schema) -> Schema:
    """Return the schema of an object with any keys, whose values have one schema."""
    return {"description": meaning, "type": "object", "additionalProperties": value}


def fields(meaning: str, properties: Properties, optional: Properties | None = None) -> Schema:
    """Return the schema of an object that has all of `properties`, may have those in `optional`, and has no others."""
    return {
        "description": meaning,
        "type": "object",
        "required": list(properties),
        "additionalProperties": False,
        "properties": {**properties, **(optional or {})},
    }


def either(*schemas: Schema) -> Schema:
    """Return the schema of a value that fits exactly one of several schemas."""
    return {"oneOf": list(schemas)}


def ref(name: str, meaning: str = "") -> Schema:
    """Return a reference to a definition of the document, with what it means here."""
    return {"description": meaning, "$ref": f"#/$defs/{name}"} if meaning else {"$ref": f"#/$defs/{name}"}


# Figures


def value_of(row: FigureRow) -> Schema:
    """Return the schema of a figure's value."""
    kind = "number" if row.ratio else "integer"
    return {"type": [kind, "null"] if row.null_if else kind}


UNITS = (BYTES, FLOP, PARAMS, TOKENS, SECONDS, PER_SECOND, FLOP_PER_SECOND, BYTES_PER_SECOND, NO_UNIT)
FIGURE = fields(
    "a figure with its formula",
    {
        "name": text("its name"),
        "value": {
            "description": "its value in its unit: an integer, or a number for a ratio; null if it does not apply; "
            "below 0 for what a sum subtracts",
            "type": ["number", "null"],
        },
        "unit": choice("its base unit; '' for a ratio or a count", *UNITS),
        "formula": text("its formula; '' if it has none"),
        "substituted": text("the formula with its numbers"),
        "symbols": named_values("the values of the formula's symbols", {"type": "number"}),
        "source": text("the paper or the file that the formula is from; it starts with 'assumed: ' if it is assumed"),
    },
)


def figures(meaning: str, *rows: Mapping[str, FigureRow] | FigureRow, sometimes: Iterable[FigureRow] = ()) -> Schema:
    """Return the schema of a list of figures.

    Args:
        meaning: What the list is.
        rows: The figures that are always in it, once each. One that does not apply has the value null. Of a pattern,
            which starts with '^', there may be none or several.
        sometimes: Further figures that may be in it.
    """
    listed = [row for part in rows for row in (part.values() if isinstance(part, Mapping) else (part,))]
    always = [row for row in listed if not row.name.startswith("^")]
    patterns = [_figure(row, {"pattern": row.name}) for row in listed if row.name.startswith("^")]
    further = [*patterns, *(_figure(row, {"const": row.name}) for row in sometimes)]
    names = {"properties": {"name": {"enum": [row.name for row in always]}}}
    named = {"anyOf": [names, *further]} if further else names
    contained = []
    for row in always:
        described = _figure(row, {"const": row.name})
        contained.append({"description": described.pop("description"), "contains": described, "maxContains": 1})
    all_of = {"allOf": contained} if contained else {}
    return {"description": meaning, "type": "array", "items": {**ref("figure"), **named}, **all_of}


def _figure(row: FigureRow, name: Schema) -> Schema:
    properties = {"name": name, "unit": {"const": row.unit}, "value": value_of(row)}
    return {"description": f"{row.name}: {row.description}", "properties": properties}


# Checks

MEASURED = or_null(number("the figure that it is compared with"), "if it is not a number")
PREDICTED = number("the figure of the formula")


def check(units: tuple[str, ...]) -> Schema:
    """Return the schema of a check whose unit is one of `units`."""
    return fields(
        "a comparison",
        {
            "name": text("its name"),
            "of": text("the kind of layer; '' for the whole model"),
            "section": text("the heading that it is listed under on screens"),
            "predicted": PREDICTED,
            "measured": MEASURED,
            "difference": or_null(number("measured minus predicted"), "if it is not a number"),
            "tolerance": number("the largest difference that still agrees; 0 if they must be equal"),
            "unit": choice("unit of the three", *units),
            "ok": flag("whether the two agree"),
            "note": text("what was compared with what"),
            "failure": text("what a disagreement would mean"),
        },
    )


# The document

MODEL_FACTS = {
    "name": text("the model's name: that of a preset, or of its file"),
    "title": text("its name for people"),
    "d_model": whole("width of the model", 1),
    "n_layers": whole("layers; of an encoder-decoder, those of the decoder", 1),
    "encoder_layers": whole("layers of the encoder; 0 without one"),
    "vocab_size": whole("tokens of the vocabulary; 0 if the model has no embedding"),
    "max_context": or_null(whole("the model's own maximum context, in tokens", 1), "if it has none"),
    "dtype": text("dtype of the weights as released"),
    "tp": whole("tensor-parallel devices; figures are per device", 1),
    "sources": texts("sources of the facts"),
    "assumed": text("what every figure assumes, with --assume-grouped; else ''"),
}
MODEL = fields("facts of the model", MODEL_FACTS)
WORKLOAD = fields(
    "the workload, with all defaults filled in",
    {
        "phase": choice("what is computed", "prefill", "decode", "train"),
        "batch": whole("sequences", 1),
        "new": whole("new tokens of each sequence", 1),
        "context": whole("tokens of each sequence, those in the cache among them", 1),
        "source_context": or_null(whole("tokens on the encoder's side", 1), "without an encoder"),
        "lengths": {
            "description": "the unpadded length of each sequence; null without --lengths",
            "type": ["array", "null"],
            "items": {"type": "integer", "minimum": 1},
        },
        "mask": text("the mask of the decoder's attention: causal, bidirectional or prefix:N"),
        "dtype": text("dtype of weights and activations"),
        "kv_dtype": text("dtype of the cache"),
        "engine": text("the engine that stores the cache"),
    },
)
NOTHING = fields("empty: this command has no model and no workload", {})
VALUES = named_values("the results by name: .values.kv_cache", {"type": ["number", "null"]})
NOTES = texts("the notes of the screen; a warning starts with 'warning: '")


def layer(meaning: str, facts: Properties, results: Schema) -> Schema:
    """Return the schema of an item of `layers`: its facts and its figures."""
    return fields(meaning, {**facts, "results": results})


_CONDITION = fields(
    "a condition of --fail-if and a figure that it was tested on",
    {
        "model": text("name of the model"),
        "context": or_null(whole("tokens per sequence", 1), "if it depends on none"),
        "of": text("the kind of layer, GPU or variant; '' for the whole model"),
        "condition": text("the condition as it was given"),
        "name": text("name of the figure"),
        "value": number("the model's figure; of verdict 0 if it fits, 1 if it may fit, 2 if not"),
        "baseline": or_null(number("the first model's figure"), "if the limit is not a change from it"),
        "operator": choice("how the two are compared", *OPERATORS),
        "limit": number("what the figure is compared with"),
        "unit": choice("unit of the three numbers", BYTES, FLOP, PARAMS, NO_UNIT),
        "passed": flag("whether the condition does not hold"),
    },
)


def document(
    command: str,
    meaning: str,
    *,
    results: Schema,
    layers: Schema,
    model: Schema = MODEL,
    extra: Properties | None = None,
    definitions: Mapping[str, Schema] | None = None,
) -> Schema:
    """Return the schema of a command's JSON.

    Args:
        command: The command, which names the schema.
        meaning: What the document answers.
        results: The list of figures of the whole.
        layers: An item of `layers`.
        model: The facts of the model; NOTHING for a command without a model and a workload.
        definitions: What `ref` refers to, besides 'figure'.
    """
    keys = {
        "schema": {"description": "the command and the version of its contract", "const": schema_name(command)},
        "attncalc": text("the version of attncalc"),
        "model": model,
        "workload": NOTHING if model is NOTHING else WORKLOAD,
        "results": results,
        "values": VALUES,
        "layers": listed("one entry per kind of layer, or per row of the answer", layers),
        "notes": NOTES,
        **({"fail_if": listed("the results of --fail-if; [] without it", _CONDITION)} if command in COMMANDS else {}),
        **(extra or {}),
    }
    return schema_document(command, meaning, keys, {"figure": FIGURE, **(definitions or {})})


def schema_document(name: str, meaning: str, keys: Properties, definitions: Mapping[str, Schema]) -> Schema:
    """Return a schema with its title, which users' files start with."""
    defined = {"$defs": dict(definitions)} if definitions else {}
    return {"$schema": DIALECT, "title": schema_name(name), **fields(meaning, keys), **defined}
