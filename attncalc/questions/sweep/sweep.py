"""A sweep: a row of figures for every combination of models, contexts, batches, dtypes, GPUs and
other options.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from operator import itemgetter
from typing import Any

from ...errors import AttncalcError, clash
from ...model import ModelSpec
from ...options import as_text, options_of, parsed
from ...records import NamedTuple
from ...serving.fit import NO_LIMIT
from ...serving.traffic import usual_lengths
from ...what_if import what_if
from ..fit.deployment import engine_and_weights
from ..fit.request import options_of_name
from ..fit.served import checkpoint_fields
from ..inputs import DEFAULT_CONTEXT
from ..options import WhatIfOptions
from ..swept import Figures, SweptRows
from .axes import (
    AXES,
    FIT_AXES,
    INNER,
    OF_OTHERS,
    PASS_AXES,
    TRAFFIC_AXES,
    Axis,
    cell,
    option_name,
    shown,
)
from .columns import BOUNDS, COSTS, ERROR, MEMORY, NEED, PASS, USERS, unit_of
from .costs import ANY, Costs
from .fits import NOBODY, Fits, Need
from .others import OTHERS
from .selection import ALL_ROWS, Selection, holds

# The values of a row, in the order of `Sweep.names`.
Row = tuple[Any, ...]


class LoadedModel(NamedTuple):
    """A value of the axis `model`."""

    name: str  # its name in rows: what was typed, or the model's own name
    spec: ModelSpec


class Sweep:
    """The rows of a sweep, as dicts. They are computed while they are read, and can be read again.

    Attributes:
        axes: The axes that were given, the outermost first.
        by_name: The same by their names.
        varying: The names of those that vary.
        columns: The figures.
        names: The keys of a row: the axes that vary, the context if none is given, the figures, and
            'error'.
        question: The other question whose rows they are, as 'train'; '' for the sweep's own.
        with_fit: Whether there is a GPU or a memory, and so the figures of `fit`.
        outer: The axes but batch and context: each combination of their values is a setting.
    """

    def __init__(
        self,
        axes: Sequence[Axis],
        columns: Sequence[str],
        flags: Mapping[str, Any],
        need: Need = NOBODY,
        selection: Selection = ALL_ROWS,
        *,
        question: str = "",
    ) -> None:
        """Raise AttncalcError if an axis has no effect on any column."""
        self.axes = tuple(axes)
        self.by_name = {axis.name: axis for axis in axes}
        self.varying = [axis.name for axis in axes if axis.varies]
        self.need = need
        self.selection = selection
        selected = [name for name in selection.columns if name not in AXES]
        columns = tuple(dict.fromkeys((*columns, *selected)))
        self.columns = columns
        self.question = question
        self.with_fit = has_fit(axes) and not question
        keys = [*self.varying]
        if self.by_name.keys().isdisjoint(("context", *TRAFFIC_AXES)):
            keys.append("context")  # each model has one of its own
        self.names = (*dict.fromkeys((*keys, *columns)), ERROR)
        self._flags = flags
        self.outer = [axis for axis in axes if axis.name not in INNER]
        self._inner = {axis.name: axis.values for axis in axes if axis.name in INNER}
        of_axes = [axis.name for axis in self.outer]
        self._costs: list[str] = []
        self._fits: list[str] = []
        for name in columns:
            if name in (*of_axes, *INNER):
                continue
            is_cost = not self.with_fit or name in COSTS or name.startswith("params_")
            if is_cost and not question:
                self._costs.append(name)
            else:
                self._fits.append(name)
        computed = (*of_axes, *INNER, *self._costs, *self._fits, ERROR)
        self._pick = itemgetter(*map(computed.index, self.names))
        for name in self._given:
            if self.other is None:
                self._check(name)
            elif name not in options_of(self.other.options):
                raise clash(option_name(name), f"--{question}")
        if need.fewest_gpus and not self.can_have_fewest_gpus:
            raise self._no_fewest_gpus()

    @property
    def other(self) -> SweptRows | None:
        """The rows of another question; None for the sweep's own."""
        return OTHERS.get(self.question)

    @property
    def _given(self) -> list[str]:
        """The axes and the other options that are given."""
        names = [name for name in self.by_name if name != "model"]
        names += [name for name, value in self._flags.items() if value is not False]
        return names

    def _check(self, name: str) -> None:
        option = option_name(name)
        is_other_flag = name in self._flags and name not in WhatIfOptions.__annotations__
        of_fit = name in FIT_AXES or is_other_flag
        if name in OF_OTHERS:
            other = OTHERS[OF_OTHERS[name]]
            flag = f"--{other.name}"
            raise AttncalcError(f"{option} needs {flag}", f"add {flag}: {other.meaning}")
        if of_fit and not self.with_fit:
            raise AttncalcError(
                f"{option} needs --gpu or --kv-memory", "give one of them: --gpu h100-80gb"
            )
        if name in PASS_AXES and {*PASS, *MEMORY}.isdisjoint(self.columns):
            tip = "add figures of a pass: --columns flops_total,peak_flash"
            raise AttncalcError(f"{option} changes no column", tip)
        if name in TRAFFIC_AXES and {*USERS, *BOUNDS, *NEED}.isdisjoint(self.columns):
            tip = "add the figures of users: --columns concurrent_average,concurrent_worst"
            raise AttncalcError(f"{option} changes no column", tip)

    def _no_fewest_gpus(self) -> AttncalcError:
        others: list[str] = [name for name in ("gpus", "tp", "pp") if name in self._given]
        if self.question:
            others.append(self.question)
        if others:
            tip = f"leave out {' and '.join(map(option_name, others))}"
        else:
            tip = "name the GPU only: --gpu h100"
        *first, last = map(option_name, ("gpus", "tp", "pp", *OTHERS))
        problem = f"--fewest-gpus needs --gpu, and no {', '.join(first)} or {last}"
        return AttncalcError(problem, tip)

    @property
    def models(self) -> Sequence[LoadedModel]:
        """The values of the axis `model`."""
        return self.by_name["model"].values

    @property
    def n_settings(self) -> int:
        """How many combinations of the outer axes' values there are."""
        return math.prod(axis.size for axis in self.outer)

    def __len__(self) -> int:
        return math.prod(axis.size for axis in self.axes)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in self.selection.of(self.tuples(), self.names):
            yield dict(zip(self.names, row, strict=True))

    def __repr__(self) -> str:
        return f"Sweep({len(self):,} rows of {', '.join(self.names)})"

    def __eq__(self, other: object) -> bool:
        """Return whether the other sweep has the same question."""
        return isinstance(other, Sweep) and self._question == other._question

    __hash__ = None  # type: ignore[assignment]

    @property
    def _question(self) -> tuple[Any, ...]:
        return self.axes, self.columns, self._flags, self.need, self.selection, self.question

    @property
    def can_have_fewest_gpus(self) -> bool:
        """Whether rows have a GPU, and their number is not given."""
        given = self.by_name
        if self.question or "gpu" not in given:
            return False
        has_number = all(re.match(r"\d+x", shown(gpu)) for gpu in given["gpu"].values)
        return not has_number and given.keys().isdisjoint(("gpus", "tp", "pp"))

    def with_columns(self, columns: Sequence[str]) -> "Sweep":
        return type(self)(
            self.axes, columns, self._flags, self.need, self.selection, question=self.question
        )

    def with_values(self, name: str, values: Sequence[Any]) -> "Sweep":
        """Return the same sweep with other values of one of its axes."""
        axes = [axis._replace(values=values) if axis.name == name else axis for axis in self.axes]
        flags = self._flags
        return type(self)(
            axes, self.columns, flags, self.need, self.selection, question=self.question
        )

    @property
    def flags(self) -> Mapping[str, Any]:
        """The options that are given and take no list of values."""
        return {name: value for name, value in self._flags.items() if value not in (None, False)}

    def tuples(self, escape: Callable[[str], str] = str) -> Iterator[Row]:
        """Yield all rows as tuples, in the order of `names`; `selection` keeps some of them.

        Args:
            escape: What to do with a text that the user has given, such as the path of a model, and
                with errors.
        """
        for number in range(self.n_settings):
            yield from self.rows_of(self.setting(number), escape)

    def failure_of(self, row: Row) -> str:
        """Return which condition of --fail-if a row meets, or why it is not possible; '' if it
        passes.
        """
        cells = dict(zip(self.names, row, strict=True))
        conditions = self.selection.fail_if
        if conditions and cells[ERROR]:
            failure = cells[ERROR]
        else:
            met = [one.name for one in conditions if holds(one, cells[one.name])]
            if not met:
                return ""
            failure = f"{met[0]} is {cells[met[0]]}"
        axes = ", ".join(f"{name} {cells[name]}" for name in self.varying)
        return f"{axes or 'the row'}: {failure}"

    @property
    def failures(self) -> list[str]:
        """The rows of which a condition of --fail-if is true, in words."""
        selected = self.selection.of(self.tuples(), self.names)
        return list(filter(None, map(self.failure_of, selected)))

    @property
    def units(self) -> tuple[str | None, ...]:
        """The unit of each column, '' for a number without one, and None for text."""
        return tuple(map(unit_of, self.names))

    @property
    def beyond_maximum(self) -> dict[str, int]:
        """{name of a model: its maximum context}, of the models that the sweep takes beyond it."""
        longest = max(context or 0 for context in self.values_of("context"))
        beyond = {}
        for name, spec in self.models:
            if spec.max_context and longest > spec.max_context:
                beyond[name] = spec.max_context
        return beyond

    def setting(self, number: int) -> dict[str, Any]:
        """Return {name: value} of all axes but batch and context, for one combination of them,
        counted from 0.
        """
        values = {}
        for axis in reversed(self.outer):
            number, i = divmod(number, len(axis.values))
            values[axis.name] = axis.values[i]
        return {axis.name: values[axis.name] for axis in self.outer}

    @cached_property
    def deployments(self) -> dict[str, dict[tuple[str, str | None], None]]:
        """{GPU: {(engine, dtype of weights): None}} of the rows, in their order; None for weights
        as released.

        {} without the figures of `fit`. Combinations that are not possible are left out.
        """
        found: dict[str, dict[tuple[str, str | None], None]] = {}
        if not self.with_fit:
            return found
        for number in range(self.n_settings):
            options = {**self._flags, **self.setting(number)}
            name, model = options.pop("model")
            implied, _ = options_of_name(name, {"context": ANY, **options})
            with suppress(AttncalcError):
                of = engine_and_weights(model, {**options, **implied})
                found.setdefault(shown(options.get("gpu") or ""), {})[of] = None
        return found

    def values_of(self, name: str) -> Sequence[Any]:
        """Return the values of batch or context; a single default if it is left out."""
        return self._inner.get(name, (None,))

    def rows_of(
        self,
        setting: Mapping[str, Any],
        escape: Callable[[str], str] = str,
        batches: Sequence[int | None] | None = None,
    ) -> Iterator[Row]:
        """Yield the rows of a setting: every batch, or those given, with every context."""
        start = tuple(cell(value, escape) for value in setting.values())
        nothing = tuple(None for _ in (*self._costs, *self._fits))
        default = self._default_context(setting)
        numbers: list[int] = [batch or 1 for batch in batches or self.values_of("batch")]
        contexts: list[int] = [context or default for context in self.values_of("context")]
        pick = self._pick
        try:
            costs, fits = self._figures(setting)
        except AttncalcError as error:
            for batch in numbers:
                for context in contexts:
                    yield pick((*start, batch, context, *nothing, escape(error.message)))
            return
        for batch in numbers:
            for context in contexts:
                try:
                    of_costs = costs(batch, context)
                    of_fits = fits(batch, context)
                    yield pick((*start, batch, context, *of_costs, *of_fits, None))
                except AttncalcError as error:
                    yield pick((*start, batch, context, *nothing, escape(error.message)))

    def _default_context(self, setting: Mapping[str, Any]) -> int:
        """Return the context of a setting if none is given, as other commands have it."""
        spec = setting["model"].spec
        if any(setting.get(name) is not None for name in TRAFFIC_AXES):
            longest = spec.max_context or NO_LIMIT
            lengths = usual_lengths(setting.get("prompt"), setting.get("output"), None, longest)
            return min(sum(lengths), longest)
        if self.other is not None:
            return self.other.default_context(spec)
        return spec.max_context or DEFAULT_CONTEXT

    def _figures(self, setting: Mapping[str, Any]) -> tuple[Figures, Figures]:
        """Return what computes the figures of costs, and what computes those of `fit`."""
        options = {**self._flags, **setting}
        name, model = options.pop("model")
        changes = {}
        for option in WhatIfOptions.__annotations__:
            if options.get(option) is not None:
                changes[option] = options.pop(option)
        if changes:
            released = model
            key = tuple((name, as_text(value)) for name, value in changes.items())
            model = model.kept(key, lambda: what_if(released, **parsed(changes, WhatIfOptions)))
        costs: Figures = _no_figures
        fits: Figures = _no_figures
        if self._costs:
            of_costs = {**options, "engine": None} if self.with_fit else options
            costs = Costs(model.shard(options.get("tp") or 1), of_costs, self._costs).figures
        if self.other is not None:
            fits = self.other.figures(model, options, tuple(self._fits), self.need.prices)
        elif self._fits:
            implied, _ = options_of_name(name, {"context": ANY, **options})
            served = {} if changes else checkpoint_fields(name, model)
            options |= implied
            fits = Fits(model, options, self._fits, self.need, self._inner, served).figures
        return costs, fits


def _no_figures(batch: int, context: int) -> tuple[Any, ...]:
    return ()


def has_fit(axes: Sequence[Axis]) -> bool:
    """Return whether there is a GPU or a memory, and so rows have the figures of `fit`."""
    return any(axis.name in ("gpu", "kv_memory") for axis in axes)
