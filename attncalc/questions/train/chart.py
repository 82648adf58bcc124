"""The charts of `attncalc train`: the parts of a GPU's memory at the peak, over the context and
over one step, and the stages of a pipeline.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...cost.training.setup import Training
from ...cost.training.step import (
    LOADING,
    LOSS,
    StageBudget,
    StepMoment,
    holds_gradients,
    most_loaded,
)
from ...records import NamedTuple
from ...show.bar import gib
from ...show.picture import bars
from ...show.plot.chart import Areas, Chart, Mark, Series, Span
from ...show.plot.scale import Axis
from ...units import BYTES, NO_UNIT, TOKENS, human

DEFAULT = ("memory", "stages")
# Contexts that are ticks, each half of the next; the last is twice the run's own.
_TICKS = 6
# Contexts between two ticks.
_BETWEEN = 4
# Names of the parts, the lowest first.
_WEIGHTS = "weights"
_REFERENCES = "reference model"
_OPTIMIZER = "optimizer states"
_GRADIENTS = "gradients"
_ACTIVATIONS: Mapping[str, str] = {"attention": "activations: attention", "mlp": "activations: MLP"}
# Of the norms, the embedding and the head.
_OTHER_ACTIVATIONS = "activations: other"
_LOGITS = "logits and loss"
_TEMPORARY = "temporaries"
# with cuBLAS's workspaces, as in the table: 16 to 64 MiB
_COMMUNICATION = "communication, cuBLAS"
_CHECKPOINT = "full state dict and shard"
_PARTS = (
    *(_WEIGHTS, _OPTIMIZER, _GRADIENTS),
    *(*_ACTIVATIONS.values(), _OTHER_ACTIVATIONS),
    *(_LOGITS, _TEMPORARY, _COMMUNICATION, _REFERENCES, _CHECKPOINT),
)
# Parts that are held for the whole run.
STATES = (_WEIGHTS, _REFERENCES, _OPTIMIZER)
# Names of what is held at a moment only, as moments have them.
_OF_MOMENTS = {
    "gradients": _GRADIENTS,
    "logits": _LOGITS,
    "temporary": _TEMPORARY,
    "communication": _COMMUNICATION,
}

# {name of a part: bytes}.
Parts = Mapping[str, int]


def parts_at_peak(budget: StageBudget) -> dict[str, int]:
    """Return {part: bytes} of all that tensors hold at the peak. Their sum is `allocated`."""
    if budget.peaks_at_loading:
        return {_CHECKPOINT: int(budget.loading)}
    return _parts_at(budget, budget.peak)


def _parts_at(budget: StageBudget, moment: StepMoment) -> dict[str, int]:
    """Return {part: bytes} of all that tensors hold at a moment of a step."""
    parts = _always(budget)
    for held in moment.held:
        if held.name == "activations":
            _add_activations(parts, held.parts)
            rest = int(held.size) - sum(map(int, held.parts.values()))
            _add(parts, _OTHER_ACTIVATIONS, rest)
        else:
            _add(parts, _OF_MOMENTS.get(held.name, _TEMPORARY), int(held.size))
    return parts


def _always(budget: StageBudget) -> dict[str, int]:
    """Return {part: bytes} of what is held for the whole run."""
    states = budget.states
    return {
        _WEIGHTS: int(states.weights) + int(states.frozen_weights),
        _REFERENCES: int(states.references),
        _OPTIMIZER: int(states.master) + int(states.moments),
        _COMMUNICATION: int(budget.workspaces),
    }


def _add(parts: dict[str, int], name: str, size: int) -> None:
    parts[name] = parts.get(name, 0) + size


def _add_activations(parts: dict[str, int], by_part: Mapping[str, int]) -> None:
    for part, size in by_part.items():
        _add(parts, _ACTIVATIONS.get(part, _OTHER_ACTIVATIONS), int(size))


def train_charts(run: Training, stages: list[int]) -> Iterator[Chart]:
    """Yield the memory by part over the context and over a step, and the bytes of each stage of a
    pipeline.
    """
    yield over_contexts(run)
    yield over_a_step(run, most_loaded(run, plain=True))
    if len(stages) > 1:
        named = [(f"stage {i}", size) for i, size in enumerate(stages)]
        yield from filter(None, [bars("stages", "Allocated on a GPU of each stage", BYTES, named)])


def _areas(
    name: str, title: str, x: Axis, columns: Sequence[tuple[float, Parts]], run: Training
) -> Areas:
    """Return the parts as areas, without those that are nowhere above zero.

    `columns` are pairs of x and {part: bytes}.
    """
    series = []
    colours = []
    for i, part in enumerate(_PARTS):
        points = tuple((at, parts.get(part, 0)) for at, parts in columns)
        if any(size for _, size in points):
            series.append(Series(_label(part, run), points))
            colours.append(i)
    limits: tuple[Mark, ...] = ()
    if run.gpu:
        limits = (Mark(run.gpu.memory, f"GPU memory, {gib(run.gpu.memory)} GiB"),)
    axis = Axis(title, BYTES, "allocated")
    return Areas(name, title, x, axis, tuple(series), limits=limits, colours=tuple(colours))


def _label(part: str, run: Training) -> str:
    if part != _ACTIVATIONS["attention"]:
        return part
    if run.workload.recompute == "full" and run.recompute_method != "block":
        return "activations: layer inputs"
    if any(layers.attention.widths().n_heads for _, layers in run.model.groups()):
        return part
    return "activations: recurrence"


# Over the context


class _Change(NamedTuple):
    """The first context at which the peak is in another phase than before."""

    context: int
    phase: str


def over_contexts(run: Training) -> Areas:
    """Return the parts of the peak of each context. Where another moment becomes the peak, they
    jump.
    """
    budgets = _budgets(run)
    columns = [(context, parts_at_peak(budget)) for context, budget in budgets.items()]
    x = Axis("context", TOKENS, "context")
    chart = _areas("memory", "Peak allocated", x, columns, run)
    marks = []
    for change in _phase_changes(budgets):
        marks.append(Mark(change.context, f"peak in the {change.phase} from {change.context:,}"))
    return chart._replace(ticks=tuple(_ticks(run)), marks=tuple(marks))


def peak_text(run: Training) -> str:
    """Return in which phases the contexts of the chart have their peak, in words."""
    budgets = _budgets(run)
    first = _phase(next(iter(budgets.values())))
    changes = _phase_changes(budgets)
    texts = [f"peak in the {first}"]
    texts += [f"from {change.context:,} in the {change.phase}" for change in changes]
    return ", ".join(texts)


def _phase_changes(budgets: Mapping[int, StageBudget]) -> list[_Change]:
    changes = []
    before = ""
    for context, budget in budgets.items():
        phase = _phase(budget)
        if before and phase != before:
            changes.append(_Change(context, phase))
        before = phase
    return changes


def _phase(budget: StageBudget) -> str:
    if budget.peaks_at_loading:
        return LOADING
    return place_of(budget.peak).phase


def _step(run: Training) -> int:
    """Return what a context has to be a multiple of."""
    return run.cp * (run.tp if run.sequence_parallel else 1)


def _ticks(run: Training) -> list[int]:
    step = _step(run)
    longest = 2 * run.workload.context
    if run.model.main.learned_positions:
        longest = run.workload.context
    return sorted({max(1, (longest >> i) // step) * step for i in range(_TICKS)})


class _Budgets(dict[int, StageBudget]):
    """{context: budget}, which is computed when it is first read."""

    def __init__(self, run: Training) -> None:
        super().__init__()
        self._run = run

    def __missing__(self, context: int) -> StageBudget:
        self[context] = most_loaded(self._run.with_workload(context=context), plain=True)
        return self[context]


def _budgets(run: Training) -> dict[int, StageBudget]:
    """Return {context: budget}: of the ticks, of contexts between them, and of both sides of each
    change of the peak's moment.
    """
    step = _step(run)
    ticks = _ticks(run)
    contexts = {*ticks}
    for low, high in itertools.pairwise(ticks):
        for i in range(1, _BETWEEN + 1):
            place = low + (high - low) * i // (_BETWEEN + 1)
            contexts.add(max(1, place // step) * step)
    budgets = _Budgets(run)
    found = set(contexts)
    for low, high in itertools.pairwise(sorted(contexts)):
        if _moment(budgets[low]) != _moment(budgets[high]):
            found |= {*_around_change(budgets, low, high, step)}
    return {context: budgets[context] for context in sorted(found)}


def _around_change(budgets: _Budgets, low: int, high: int, step: int) -> tuple[int, int]:
    """Return the last context with the moment of `low`, and the next, by bisection."""
    while high - low > step:
        middle = (low + high) // 2 // step * step
        if middle <= low:
            break
        if _moment(budgets[middle]) == _moment(budgets[low]):
            low = middle
        else:
            high = middle
    return low, high


def _moment(budget: StageBudget) -> tuple[int, str]:
    """Return the stage and the moment of the peak."""
    name = LOADING if budget.peaks_at_loading else budget.peak.name
    return budget.stage.number, name


# Over a step


class _Place(NamedTuple):
    """When a moment is: its phase, and where that begins and ends on the axis."""

    phase: str
    start: float
    end: float


_FORWARD = Span("forward", 0.0, 1.0)
_OF_LOSS = _Place("loss", 1.0, 2.0)
_OPTIMIZER_STEP = _Place("optimizer step", 3.0, 4.0)
_BACKWARD = "backward pass"
# {words in a moment's name: its place}, the first that fits.
_PLACES: Mapping[str, _Place] = {
    LOSS: _OF_LOSS,
    "optimizer step": _OPTIMIZER_STEP,
    "last layer but one": _Place(_BACKWARD, 2.2, 2.4),
    "last layer": _Place(_BACKWARD, 2.0, 2.2),
    "first layer": _Place(_BACKWARD, 2.7, 2.85),
}
# Of the embedding, and of any other moment: gradients of the first matrices come last.
_END = _Place(_BACKWARD, 2.85, 3.0)
_SPANS = (_FORWARD, Span("loss", 1.0, 2.0), Span("backward", 2.0, 3.0), Span("step", 3.0, 4.0))


def place_of(moment: StepMoment) -> _Place:
    for words, place in _PLACES.items():
        if words in moment.name:
            return place
    return _END


def over_a_step(run: Training, budget: StageBudget) -> Areas:
    """Return the parts over the moments of a step, with the peak."""
    largest: dict[_Place, StepMoment] = {}
    for moment in budget.moments:
        place = place_of(moment)
        if place not in largest or moment.size > largest[place].size:
            largest[place] = moment
    columns: list[tuple[float, Parts]] = [*_forward(run, budget)]
    for place in sorted(largest, key=lambda one: one.start):
        parts = _parts_at(budget, largest[place])
        columns += [(place.start, parts), (place.end, parts)]
    spans: tuple[Span, ...] = _SPANS
    if _OF_LOSS not in largest:  # a stage without the head
        spans = (Span("forward", 0.0, 2.0), *_SPANS[2:])
    x = Axis("moments of one step, not to scale", NO_UNIT, "moment")
    chart = _areas("timeline", "Allocated", x, columns, run)
    place = place_of(budget.peak)
    size = human(budget.allocated_in_step, BYTES)
    mark = Mark((place.start + place.end) / 2, f"{size}: {budget.peak.name}")
    return chart._replace(spans=spans, marks=(mark,))


def _forward(run: Training, budget: StageBudget) -> Iterable[tuple[float, Parts]]:
    """Yield the parts at the start and at the end of the forward pass, which keeps activations.

    Gradients exist at its start if they are never freed. The buffers of
    communication are those of the next moment.
    """
    parts = _always(budget)
    if holds_gradients(run):
        _add(parts, _GRADIENTS, int(budget.states.gradients))
    for held in budget.moments[0].held:
        if held.name == "communication":
            _add(parts, _COMMUNICATION, int(held.size))
    yield 0.0, parts
    at_end = dict(parts)
    _add_activations(at_end, budget.activations)
    has_loss = any(place_of(moment) == _OF_LOSS for moment in budget.moments)
    yield (1.0 if has_loss else 2.0), at_end
