"""The charts of `attncalc train`: the parts of a GPU's memory over the context, and the stages of a
pipeline.
"""

from collections.abc import Callable, Iterator

from ...cost.training.setup import Training
from ...cost.training.step import StageBudget, most_loaded
from ...show.picture import bars
from ...show.plot.chart import Chart, Lines, Series
from ...show.plot.scale import Axis
from ...units import BYTES, TOKENS

DEFAULT = ("memory", "stages")
# Contexts of the chart, each half of the next; the last is twice the run's own.
_POINTS = 6


def train_charts(run: Training, stages: list[int]) -> Iterator[Chart]:
    """Yield the memory by part over the context, and the bytes of each stage of a pipeline."""
    step = run.cp * (run.tp if run.sequence_parallel else 1)
    longest = 2 * run.workload.context
    if run.model.main.learned_positions:
        longest = run.workload.context
    contexts = sorted({max(1, (longest >> i) // step) * step for i in range(_POINTS)})
    budgets = {
        context: most_loaded(run.with_workload(context=context), plain=True) for context in contexts
    }
    lines: dict[str, Callable[[StageBudget], int]] = {
        "weights and states": lambda budget: budget.always,
        "gradients": lambda budget: budget.held("gradients"),
        "activations": lambda budget: budget.held("activations"),
        "logits and temporaries": lambda budget: budget.held("logits") + budget.held("temporary"),
        "allocated": lambda budget: budget.allocated,
    }
    series = [
        Series(label, tuple((c, size(budget)) for c, budget in budgets.items()))
        for label, size in lines.items()
    ]
    if run.gpu:
        series.append(
            Series("the GPU has", tuple((context, run.gpu.memory) for context in contexts))
        )
    axis = Axis("Memory of a GPU at the peak", BYTES, "allocated")
    yield Lines("memory", axis.label, Axis("context", TOKENS, "context"), axis, tuple(series))
    if len(stages) > 1:
        named = [(f"stage {i}", size) for i, size in enumerate(stages)]
        yield from filter(None, [bars("stages", "Allocated on a GPU of each stage", BYTES, named)])
