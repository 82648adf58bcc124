"""Weights as stored: the figures, the table and the notes of what a model's files hold."""

from __future__ import annotations

from ..checkpoint import BITS, CheckpointWeights, StoredDtype
from ..model import ModelSpec
from ..quantity import Quantity, exact_div, quantity, symbol
from ..units import BYTES, count, exact, human
from .report import SUM, Column, Figure, Table

_HEADERS = "the headers of its safetensors files"
_INDEX = "the total_size of its model.safetensors.index.json"


def stored_figure(model: ModelSpec) -> Figure:
    """The bytes of all its files' tensors; a figure without a number where no files were read."""
    label = "weights as stored" + (", all devices" if model.tp > 1 else "")
    held = model.stored
    if held is None:
        return Figure("weights_stored", label, None, BYTES, _HEADERS)
    if not held.by_dtype:
        return Figure("weights_stored", label, quantity(held.size), BYTES, _INDEX)
    parts = [symbol(_key(each), each.size, f"bytes stored in {each.name}") for each in held.by_dtype]
    return Figure("weights_stored", label, sum(parts, quantity(0)), BYTES, SUM)


def stored_figures(model: ModelSpec) -> tuple[Figure, ...]:
    """All of it, then the bytes in each dtype."""
    of = model.stored.by_dtype if model.stored else ()
    return (
        stored_figure(model),
        *(Figure(_key(each), f"stored in {each.name}", _bytes(each), BYTES, _HEADERS) for each in of),
    )


def _key(each: StoredDtype) -> str:
    """'weights_stored_bf16'."""
    return f"weights_stored_{each.name.lower()}"


def _bytes(each: StoredDtype) -> Quantity:
    elements = symbol("elements", each.elements, f"elements stored in {each.name}")
    bits = BITS[each.name]
    if bits % 8 == 0:
        return quantity(elements * symbol("bytes", bits // 8, f"bytes of an element in {each.name}"))
    return quantity(exact_div(elements * symbol("bits", bits, f"bits of an element in {each.name}"), 8))


def stored_table(held: CheckpointWeights) -> Table:
    """A row a dtype, and all of them where they are several."""
    rows = [(each.name, count(each.elements), each.size) for each in held.by_dtype]
    if len(rows) != 1:
        rows.append(("all of them" if rows else "dtypes not known", "", held.size))
    return Table(
        (Column("weights as stored", "left"), Column("elements"), Column(), Column()),
        tuple((name, elements, human(size, BYTES), exact(size, BYTES)) for name, elements, size in rows),
    )


def stored_notes(model: ModelSpec, parameters: int) -> list[str]:
    """Whether the files hold what is counted here, where one of their elements is one parameter.

    parameters: of the whole model; a device's part cannot be held against files.
    """
    held = model.stored
    if held is None or model.tp > 1:
        return []
    if not held.by_dtype:
        return [f"Weights as stored: what the index says of {count(held.files)} safetensors files, which are not here."]
    elements = held.parameters
    if elements is None or elements == parameters:
        return []
    kind, why = "more", "masks and rotary tables, tied matrices stored twice, or parts that are not counted here"
    if elements < parameters:
        kind, why = "fewer", "matrices that are tied though its config does not say so, or the config of another model"
    return [
        f"Its safetensors files hold {count(elements)} elements, {count(abs(elements - parameters))} {kind} than "
        f"the parameters counted here: {why}."
    ]
