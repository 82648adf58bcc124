"""The weights in a model's safetensors or GGUF files: figures, table and notes."""

from collections.abc import Iterator

from ..checkpoint import CheckpointWeights, StoredDtype
from ..model import ModelSpec
from ..quantity import Quantity, exact_div, quantity, symbol
from ..units import BYTES, count, exact, human
from .figures import SUM, FigureRow, FigureRows, Given
from .report import Column, Figure, Table

_HEADERS = "the headers of its safetensors or GGUF files"
_INDEX = "the total_size of its model.safetensors.index.json"


STORED = FigureRows(
    weights_stored=FigureRow(
        "weights as stored", BYTES, "the weights in safetensors or GGUF files", "without files"
    )
)
STORED_DTYPE = FigureRow(
    "",
    BYTES,
    "the tensors of the files that have this dtype, such as weights_stored_bf16",
    name="^weights_stored_[a-z0-9_]+$",
)


def stored_weights(model: ModelSpec) -> Given:
    """Return the bytes of all tensors in the files; no number if no files were read."""
    label = f"{STORED['weights_stored'].label}, all devices" if model.tp > 1 else ""
    checkpoint = model.stored
    if checkpoint is None:
        return Given(None, label, _HEADERS)
    if not checkpoint.by_dtype:
        return Given(quantity(checkpoint.size), label, _INDEX)
    sizes = [
        symbol(_row(dtype).name, dtype.size, f"bytes stored in {dtype.name}")
        for dtype in checkpoint.by_dtype
    ]
    return Given(sum(sizes, quantity(0)), label, SUM)


def stored_by_dtype(model: ModelSpec) -> Iterator[Figure]:
    """Yield the bytes per dtype of the files."""
    for dtype in model.stored.by_dtype if model.stored else ():
        yield _row(dtype).figure(_bytes(dtype), source=_HEADERS)


def _row(dtype: StoredDtype) -> FigureRow:
    return STORED_DTYPE.one(dtype.name.lower(), f"stored in {dtype.name}")


def _bytes(dtype: StoredDtype) -> Quantity:
    elements = symbol("elements", dtype.elements, f"elements stored in {dtype.name}")
    if dtype.block:
        block, size = dtype.block
        blocks = exact_div(elements, symbol("block", block, f"elements of a block in {dtype.name}"))
        return quantity(blocks * symbol("block_bytes", size, f"bytes of a block in {dtype.name}"))
    if dtype.bits % 8 == 0:
        return quantity(
            elements * symbol("bytes", dtype.bits // 8, f"bytes of an element in {dtype.name}")
        )
    return quantity(
        exact_div(elements * symbol("bits", dtype.bits, f"bits of an element in {dtype.name}"), 8)
    )


def stored_table(checkpoint: CheckpointWeights) -> Table:
    """Return one row per dtype, and a total if there are several."""
    rows = [(dtype.name, count(dtype.elements), dtype.size) for dtype in checkpoint.by_dtype]
    if len(rows) != 1:
        rows.append(("total" if rows else "unknown dtypes", "", checkpoint.size))
    return Table(
        (Column("weights as stored", "left"), Column("elements"), Column(), Column()),
        tuple(
            (name, elements, human(size, BYTES), exact(size, BYTES))
            for name, elements, size in rows
        ),
    )


def stored_notes(model: ModelSpec, parameters: int) -> list[str]:
    """Return a note if the files hold more or fewer elements than `parameters`, the whole model's.

    There is no note for a device's share, nor for quantised files, where elements are not
    parameters.
    """
    checkpoint = model.stored
    if checkpoint is None or model.tp > 1:
        return []
    if not checkpoint.by_dtype:
        return [
            "Weights as stored are the index's total: the headers of its "
            f"{count(checkpoint.files)} safetensors files were not read."
        ]
    elements = checkpoint.parameters
    if elements is None or elements == parameters:
        return []
    comparison = "more"
    reasons = "masks and rotary tables, tied matrices stored twice, or parts that are not counted"
    if elements < parameters:
        comparison = "fewer"
        reasons = "tied matrices that its config does not name, or the config of another model"
    return [
        f"The {checkpoint.kind} files hold {count(elements)} elements, "
        f"{count(abs(elements - parameters))} "
        f"{comparison} than the parameters counted here. Possible reasons: {reasons}."
    ]
