"""The weights in a model's safetensors or GGUF files: figures, table and notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model import ModelSpec
from ..quantity import Quantity, exact_div, quantity, symbol
from ..units import BYTES, count, exact, human
from .report import SUM, Column, Figure, Table

if TYPE_CHECKING:
    from ..checkpoint import CheckpointWeights, StoredDtype

_HEADERS = "the headers of its safetensors or GGUF files"
_INDEX = "the total_size of its model.safetensors.index.json"


def stored_figure(model: ModelSpec) -> Figure:
    """Return the bytes of all tensors in the files; the figure has no number if no files were read."""
    label = "weights as stored" + (", all devices" if model.tp > 1 else "")
    checkpoint = model.stored
    if checkpoint is None:
        return Figure("weights_stored", label, None, BYTES, _HEADERS)
    if not checkpoint.by_dtype:
        return Figure("weights_stored", label, quantity(checkpoint.size), BYTES, _INDEX)
    sizes = [symbol(_key(dtype), dtype.size, f"bytes stored in {dtype.name}") for dtype in checkpoint.by_dtype]
    return Figure("weights_stored", label, sum(sizes, quantity(0)), BYTES, SUM)


def stored_figures(model: ModelSpec) -> tuple[Figure, ...]:
    """Return the bytes of all tensors, then the bytes per dtype."""
    dtypes = model.stored.by_dtype if model.stored else ()
    return (
        stored_figure(model),
        *(Figure(_key(dtype), f"stored in {dtype.name}", _bytes(dtype), BYTES, _HEADERS) for dtype in dtypes),
    )


def _key(dtype: StoredDtype) -> str:
    """Return the name of its figure: 'weights_stored_bf16'."""
    return f"weights_stored_{dtype.name.lower()}"


def _bytes(dtype: StoredDtype) -> Quantity:
    elements = symbol("elements", dtype.elements, f"elements stored in {dtype.name}")
    if dtype.block:
        block, size = dtype.block
        blocks = exact_div(elements, symbol("block", block, f"elements of a block in {dtype.name}"))
        return quantity(blocks * symbol("block_bytes", size, f"bytes of a block in {dtype.name}"))
    if dtype.bits % 8 == 0:
        return quantity(elements * symbol("bytes", dtype.bits // 8, f"bytes of an element in {dtype.name}"))
    return quantity(exact_div(elements * symbol("bits", dtype.bits, f"bits of an element in {dtype.name}"), 8))


def stored_table(checkpoint: CheckpointWeights) -> Table:
    """Return one row per dtype, and a total if there are several."""
    rows = [(dtype.name, count(dtype.elements), dtype.size) for dtype in checkpoint.by_dtype]
    if len(rows) != 1:
        rows.append(("total" if rows else "unknown dtypes", "", checkpoint.size))
    return Table(
        (Column("weights as stored", "left"), Column("elements"), Column(), Column()),
        tuple((name, elements, human(size, BYTES), exact(size, BYTES)) for name, elements, size in rows),
    )


def stored_notes(model: ModelSpec, parameters: int) -> list[str]:
    """Return a note if the files hold more or fewer elements than `parameters`, the whole model's.

    There is no note for a device's share, nor for quantised files, where elements are not parameters.
    """
    checkpoint = model.stored
    if checkpoint is None or model.tp > 1:
        return []
    if not checkpoint.by_dtype:
        return [
            f"Weights as stored are the index's total: the headers of its {count(checkpoint.files)} safetensors files "
            "were not read."
        ]
    elements = checkpoint.parameters
    if elements is None or elements == parameters:
        return []
    comparison, reasons = "more", "masks and rotary tables, tied matrices stored twice, or parts that are not counted"
    if elements < parameters:
        comparison, reasons = "fewer", "tied matrices that its config does not name, or the config of another model"
    return [
        f"The {checkpoint.kind} files hold {count(elements)} elements, {count(abs(elements - parameters))} "
        f"{comparison} than the parameters counted here. Possible reasons: {reasons}."
    ]
