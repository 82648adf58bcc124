"""The report of `attncalc memory`: the score matrix of a layer, and the peak memory by kernel."""

from ...cost.activations import LayerActivations, activations
from ...cost.common import compute_dtype
from ...cost.kernels import KERNELS
from ...model import ModelSpec
from ...quantity import ratio
from ...serving.weights import weights
from ...show.notes import context_notes, device_notes, kind_notes, model_notes, shape_notes
from ...show.report import (
    LABEL,
    Column,
    Figure,
    Report,
    Table,
    column_table,
    context_fact,
    heading,
    times,
    unit_column,
    workload_facts,
)
from ...units import BYTES, count, exact, human
from ...workload import Workload
from .figures import SOURCES, largest_layer, memory_figures


def memory_report(model: ModelSpec, workload: Workload) -> Report:
    """Return the activation memory of one attention layer: its score matrix, and its peak by
    kernel.

    The figures of the whole model are those of the layer with the largest score matrix.

    Raises AttncalcError if no layer runs an attention kernel.
    """
    layers = activations(model, workload)
    largest = largest_layer(model, layers)
    in_dtype = compute_dtype(model, workload)
    phase = "decode step" if workload.phase == "decode" else "forward pass"
    facts = [f"one attention layer, {phase}, {context_fact(workload)}"]
    if workload.past and workload.phase != "decode":
        facts.append(f"{count(workload.past)} of them in the cache")
    if workload.source:
        facts.append(f"source {count(workload.source)}")
    facts += [
        f"batch {count(workload.batch)}",
        f"activations in {in_dtype.name} ({in_dtype.note})",
        f"scores B x n_heads x S x T = {' x '.join(map(count, largest.score_shape))}",
    ]
    held = human(weights(model, in_dtype=in_dtype.name).total, BYTES)
    answer = (
        f"The weights take {held} in {in_dtype.name}. A pass adds the activations of one layer at "
        "a time."
    )
    return Report(
        "memory",
        heading(model, *facts),
        model.facts(),
        workload_facts(model, workload),
        memory_figures(model, largest),
        tuple((_facts(layer), memory_figures(model, layer, layer.name)) for layer in layers),
        _tables(layers, largest, largest_layer(model, activations(model, workload.doubled()))),
        _notes(model, workload, largest),
        _tensors(largest),
        answer="" if model.main.has_cache else answer,  # an encoder has nothing else
        has_fail_if=True,
    )


def _tensors(layer: LayerActivations) -> tuple[Figure, ...]:
    """Return the tensors held at a peak, which are terms of the peaks' formulas; one that several
    kernels hold once.
    """
    figures: dict[str, Figure] = {}
    for kernel in KERNELS:
        for tensor in layer.peaks[kernel].tensors:
            label = f"{tensor.name}: {tensor.meaning}"
            figures.setdefault(
                tensor.name, Figure(tensor.name, label, tensor.size, BYTES, SOURCES[kernel])
            )
    return tuple(figures.values())


def _facts(layer: LayerActivations) -> dict[str, object]:
    cross = layer.layers.cross if layer.attention == "cross" else None
    return {
        "name": layer.name,
        "layers": int(layer.layers.count),
        "part": layer.attention,
        "attention": (cross or layer.layers.attention).facts(),
        "score_shape": list(layer.score_shape),
        "output_shape": list(layer.output_shape),
        "live_at_peak": {
            k: [t.name for t in moment.tensors if t.size] for k, moment in layer.peaks.items()
        },
    }


def _tables(
    layers: tuple[LayerActivations, ...], largest: LayerActivations, doubled: LayerActivations
) -> tuple[Table, ...]:
    rows = [("score matrix", largest.score_matrix), ("  per head", largest.score_matrix_per_head)]
    cells = [(name, human(size, BYTES), exact(size, BYTES)) for name, size in rows]
    # a ratio, as `kv` has it: exact bytes on the screen are figures of JSON
    if largest.score_matrix:
        times = int(doubled.score_matrix) / int(largest.score_matrix)
        cells.append(
            ("  at twice the context", human(doubled.score_matrix, BYTES), f"{times:.1f} x as much")
        )
    matrix = Table((LABEL, Column(), Column()), tuple(cells))
    peaks = _peak_columns(largest)
    kinds = {
        (int(layer.score_matrix), *(layer.peaks[kernel].size for kernel in KERNELS))
        for layer in layers
    }
    if len(kinds) > 1:
        return matrix, column_table(peaks), _layer_table(layers)
    return matrix, column_table(peaks)


def _peak_columns(layer: LayerActivations) -> list[tuple[Column, list[str]]]:
    """Return the columns of the peaks; kernels with the same peak share a row."""
    kernels: dict[tuple[int, str], list[str]] = {}
    for kernel in KERNELS:
        peak = layer.peaks[kernel]
        kernels.setdefault((int(peak.size), peak.name), []).append(kernel)
    sizes = [size for size, _ in kernels]
    return [
        (Column("kernel", "left"), [", ".join(names) for names in kernels.values()]),
        unit_column("peak", sizes, BYTES),
        (Column("B", drop=1), list(map(count, sizes))),
        (Column("peak during", "left"), [moment for _, moment in kernels]),
    ]


def _layer_table(layers: tuple[LayerActivations, ...]) -> Table:
    columns = (
        (Column("one layer of", "left"), [layer.name for layer in layers]),
        unit_column("score matrix", [layer.score_matrix for layer in layers], BYTES),
        *(
            unit_column(f"peak {kernel}", [layer.peaks[kernel].size for layer in layers], BYTES)
            for kernel in ("math", "flash", "efficient")
        ),
    )
    return column_table(columns)


def _notes(model: ModelSpec, workload: Workload, largest: LayerActivations) -> tuple[str, ...]:
    notes = context_notes(model, workload)
    math = largest.peaks["math"].size
    flash = largest.peaks["flash"].size
    notes.append(
        "Peaks are for inference, without the weights and the layer's input. The math kernel "
        "holds whole score "
        f"matrices, in fp32 whatever the dtype: {times(ratio(math, flash))} as much as flash, "
        "which holds none."
    )
    if model.main.has_cache:
        notes.append(
            "'attncalc fit MODEL' counts the whole model, with weights and KV cache; --explain "
            "shows the tensors of each peak."
        )
    else:
        notes.append(
            "'attncalc fit MODEL' counts the whole model, with weights and a step of texts; "
            "--explain shows the tensors of each peak."
        )
    if workload.past:
        notes.append("K and V of past tokens are in the cache, which 'attncalc kv' counts.")
    recurrent: dict[str, None] = {}
    for _, layers in model.groups():
        kind = layers.attention
        if not kind.widths().n_heads and kind.cache():
            recurrent[kind.label] = None
    if recurrent:
        notes.append(
            f"{' and '.join(recurrent)} layers run no attention kernel: they are not counted here."
        )
    notes += kind_notes(model, past=bool(workload.past), kernels_only=True)
    return (*notes, *device_notes(model), *shape_notes(model), *model_notes(model))
