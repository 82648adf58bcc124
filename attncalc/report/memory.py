"""The report of `attncalc memory`."""

from __future__ import annotations

from ..cost.activations import LayerActivations, activations
from ..cost.common import compute_dtype
from ..cost.kernels import KERNELS, Live
from ..errors import AttncalcError
from ..model import ModelSpec
from ..units import BYTES, NO_UNIT, count, exact, human
from ..workload import Workload
from .layers import attention_source
from .notes import memory_notes
from .report import LABEL, Column, Figure, Report, Table, heading, tokens_asked, unit_column, workload_facts


def memory_report(model: ModelSpec, workload: Workload) -> Report:
    """The activation memory of one attention layer: the score matrix, and the peak by kernel.

    The figures of the whole are those of the layer with the largest score matrix. AttncalcError: it has none.
    """
    found = activations(model, workload)
    if not found:
        words = model.main.layers[0].attention.label
        raise AttncalcError(
            f"memory: {words} layers run no attention kernel: there is no score matrix, and no peak of one",
            "'attncalc kv' counts their states, 'attncalc flops' what they compute",
        )
    largest = max(found, key=lambda layer: int(layer.score_matrix))
    in_dtype = compute_dtype(model, workload)
    phase = "one decode step" if workload.phase == "decode" else "a forward pass"
    asked = (
        f"{phase}, {tokens_asked(workload)}",
        f"{count(workload.past)} of it in the cache" if workload.past and workload.phase != "decode" else "",
        f"source {count(workload.source)}" if workload.source else "",
        f"batch {count(workload.batch)}",
        f"activations in {in_dtype.name} ({in_dtype.note})",
        f"scores B x n_heads x S x T = {' x '.join(map(count, largest.score_shape))}",
    )
    return Report(
        "memory",
        heading(model, *asked),
        model.facts(),
        workload_facts(model, workload),
        _figures(model, largest, ""),
        tuple((_facts(layer), _figures(model, layer, layer.name)) for layer in found),
        _tables(model, found, largest),
        memory_notes(model, workload, largest),
        _parts(largest),
    )


def _parts(layer: LayerActivations) -> tuple[Figure, ...]:
    """The tensors alive at a peak, which the peaks' formulas name; each as the first kernel has it."""
    found: dict[str, Figure] = {}
    for kernel in KERNELS:
        for tensor in layer.peaks[kernel].live:
            label = f"{tensor.name}: {tensor.meaning}"
            found.setdefault(tensor.name, Figure(tensor.name, label, tensor.size, BYTES, _WHERE[kernel]))
    return tuple(found.values())


def _facts(layer: LayerActivations) -> dict[str, object]:
    across = layer.layers.cross if layer.attention == "cross" else None
    return {
        "name": layer.name,
        "layers": int(layer.layers.count),
        "part": layer.attention,
        "attention": (across or layer.layers.attention).facts(),
        "score_shape": list(layer.score_shape),
        "output_shape": list(layer.output_shape),
        "live_at_peak": {k: [t.name for t in moment.live if t.size] for k, moment in layer.peaks.items()},
    }


def _figures(model: ModelSpec, layer: LayerActivations, of: str) -> tuple[Figure, ...]:
    source = attention_source(model)
    return (
        Figure("score_matrix", "score matrix of one layer", layer.score_matrix, BYTES, source, of),
        Figure("score_matrix_per_head", "score matrix of one head", layer.score_matrix_per_head, BYTES, source, of),
        Figure("score_elements", "scores of one layer", layer.score_elements, NO_UNIT, source, of),
        *(
            Figure(f"peak_{kernel}", f"peak with {kernel}", layer.peaks[kernel].total, BYTES, _WHERE[kernel], of)
            for kernel in KERNELS
        ),
    )


_WHERE = {
    "math": "torch, aten/src/ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math",
    "flash": "Dao et al. 2022, arXiv:2205.14135: the output and one logsumexp a query",
    "efficient": "Rabe and Staats 2021, arXiv:2112.05682; torch's takes no grouped heads: K, V repeated",
    "cudnn": "as flash, without the logsumexp; its workspace is not counted",
}


def _tables(model: ModelSpec, found: tuple[LayerActivations, ...], largest: LayerActivations) -> tuple[Table, ...]:
    rows = [("score matrix", largest.score_matrix), ("  of one head", largest.score_matrix_per_head)]
    matrix = Table((LABEL, Column(), Column()), tuple((n, human(size, BYTES), exact(size, BYTES)) for n, size in rows))
    unit, cells = unit_column("peak", _peaks(largest), BYTES)
    peaks = tuple(
        (kernel, cell, count(size), largest.peaks[kernel].name)
        for kernel, cell, size in zip(KERNELS, cells, _peaks(largest), strict=True)
    )
    tables = [matrix, Table((Column("kernel", "left"), unit, Column("B"), Column("when", "left")), peaks)]
    tables.append(_live_table(largest))
    if len(found) > 1:
        tables.append(_layer_table(found))
    return tuple(tables)


def _peaks(layer: LayerActivations) -> list[int]:
    return [layer.peaks[kernel].size for kernel in KERNELS]


def _live_table(layer: LayerActivations) -> Table:
    """What is alive at the peak of the math kernel and of flash, largest first."""
    rows: list[tuple[str, Live]] = []
    for kernel in ("math", "flash"):
        moment = layer.peaks[kernel]
        live = sorted((t for t in moment.live if t.size >= moment.size / 1000), key=lambda t: -int(t.size))
        rows += [(f"{kernel}, {moment.name}" if i == 0 else "", tensor) for i, tensor in enumerate(live)]
    unit, cells = unit_column("", [tensor.size for _, tensor in rows], BYTES)
    body = tuple((when, cell, tensor.meaning) for (when, tensor), cell in zip(rows, cells, strict=True))
    return Table((Column("alive at the peak", "left"), unit, Column("", "left")), body)


def _layer_table(found: tuple[LayerActivations, ...]) -> Table:
    matrix, of_matrix = unit_column("score matrix", [layer.score_matrix for layer in found], BYTES)
    columns = [Column("one layer of", "left"), matrix]
    cells = [[layer.name for layer in found], of_matrix]
    for kernel in ("math", "flash", "efficient"):
        column, shown = unit_column(f"peak {kernel}", [layer.peaks[kernel].size for layer in found], BYTES)
        columns.append(column)
        cells.append(shown)
    return Table(tuple(columns), tuple(zip(*cells, strict=True)))
