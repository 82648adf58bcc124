"""The figures of `attncalc memory`."""

from collections.abc import Sequence

from ...cost.activations import LayerActivations
from ...cost.kernels import KERNELS
from ...errors import AttncalcError
from ...model import ModelSpec
from ...show.figures import FigureRow, FigureRows
from ...show.layers import attention_source
from ...show.report import Figure
from ...units import BYTES, NO_UNIT

SOURCES = {
    "math": "torch, aten/src/ATen/native/transformers/attention.cpp, "
    "_scaled_dot_product_attention_math",
    "flash": "Dao et al. 2022, arXiv:2205.14135: the output and one logsumexp per query",
    "efficient": "Rabe and Staats 2021, arXiv:2112.05682; torch's kernel has no grouped heads: K "
    "and V are repeated",
    "cudnn": "as flash, without the logsumexp; its workspace is not counted",
}
FIGURES = FigureRows(
    score_matrix=FigureRow("score matrix per layer", BYTES, "the score matrix of one layer"),
    score_matrix_per_head=FigureRow("score matrix per head", BYTES, "the score matrix of one head"),
    score_elements=FigureRow(
        "scores per layer", NO_UNIT, "elements of the score matrix of one layer"
    ),
    **{
        f"peak_{kernel}": FigureRow(
            f"peak with {kernel}", BYTES, f"the peak with the kernel '{kernel}'", source=source
        )
        for kernel, source in SOURCES.items()
    },
)


def largest_layer(model: ModelSpec, layers: Sequence[LayerActivations]) -> LayerActivations:
    """Return the layer with the largest score matrix. Raises AttncalcError if no layer runs an
    attention kernel.
    """
    if not layers:
        label = model.main.layers[0].attention.label
        raise AttncalcError(
            f"{label} layers run no attention kernel: they have no score matrix",
            "'attncalc kv' counts their states, 'attncalc flops' their FLOPs",
        )
    return max(layers, key=lambda layer: int(layer.score_matrix))


def memory_figures(model: ModelSpec, layer: LayerActivations, of: str = "") -> tuple[Figure, ...]:
    """Return the figures of one layer, whose names scripts rely on."""
    return FIGURES.filled(
        attention_source(model),
        of,
        score_matrix=layer.score_matrix,
        score_matrix_per_head=layer.score_matrix_per_head,
        score_elements=layer.score_elements,
        **{f"peak_{kernel}": layer.peaks[kernel].total for kernel in KERNELS},
    )
