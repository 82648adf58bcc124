"""What fits of one model with one set of options, by batch and context."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar, cast

from ...engines import find_engine
from ...engines.base import CacheLayout
from ...engines.engine import AUTO
from ...engines.without_cache import StepLayout
from ...model import ModelSpec
from ...quantity import Quantity, Ratio
from ...records import NamedTuple
from ...serving.answer import Answer, bounds_of
from ...serving.fit import NO_LIMIT, Deployment, FitResult, min_gpus, with_other_gpus
from ...serving.request import FitRequest, ResolvedRequest, resolve
from ...serving.traffic import usual_lengths
from ...serving.users import Users, users
from ...show.users import user_figures
from ...tracing import Compiled, LateQuestionError, Remembered
from ..fit.figures import fit_figures, totals
from ..fit.on_host import check_offload, with_needed_offload
from ..fit.request import fit_request
from ..fit.roofline import roofline_figures
from .columns import BOUNDS, LIMITS, NEED, USERS
from .costs import ANY

# Results that a Deployment's cells keep, so that the memory is bounded.
MAX_KEPT = 4096
Kept = TypeVar("Kept")


class _QuickLayout:
    """A layout whose `needed` is compiled: a search for the longest context asks for it some fifty
    times.
    """

    def __init__(self, layout: CacheLayout) -> None:
        self._layout = layout
        self._compiled = Compiled(
            lambda batch, context: [layout.needed(batch, context)], ("B", "T")
        )

    def needed(self, batch: int, context: int) -> int:
        (size,) = self._compiled(batch, context)
        return int(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layout, name)


class _Cells:
    """The cells of one Deployment; what depends on the batch alone or on the context alone is
    computed once.
    """

    def __init__(self, deployment: Deployment, users_of: Users | None) -> None:
        self.users = users_of
        quick: dict[int, CacheLayout] = {}

        def made_quick(layout: CacheLayout) -> CacheLayout:
            if isinstance(layout, StepLayout):
                return layout
            if id(layout) not in quick:
                quick[id(layout)] = cast("CacheLayout", _QuickLayout(layout))
            return quick[id(layout)]

        for i, device in enumerate(deployment.devices):
            deployment.devices[i] = device._replace(layout=made_quick(device.layout))
        deployment.layouts = [*map(made_quick, deployment.layouts)]
        self._deployment = deployment
        self._kept: dict[Any, Any] = {}

    def result(self, requests: int, context: int) -> FitResult:
        """Return what fits of so many requests in all replicas, without formulas."""
        deployment = self._deployment
        batch = deployment.resolved.per_replica(requests)
        pools = self._keep(("pools", context), lambda: deployment.pools(context))
        tightest, pool = deployment.tightest(pools, batch, context)
        device = deployment.devices[tightest]
        refusal = self._keep(("refusal", context), lambda: deployment.refusal(context))
        return FitResult(
            resolved=deployment.resolved_at(requests, context),
            budget=device.budget,
            layout=deployment.layouts[tightest],
            pool=pool,
            needed=deployment.needed(batch, context, tightest),
            verdict="does_not_fit" if refusal else deployment.verdict(batch, context),
            refusal=refusal,
            max_context=self._keep(
                ("max_context", batch), lambda: deployment.max_context(batch, tightest)
            ),
            max_batch=self._keep(
                ("max_batch", context), lambda: deployment.max_batch(context, tightest)
            ),
            host=deployment.host,
        )

    def _keep(self, key: Any, compute: Callable[[], Kept]) -> Kept:
        if key not in self._kept:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[key] = compute()
        kept: Kept = self._kept[key]
        return kept


class Need(NamedTuple):
    """What all GPUs together serve, and what they cost."""

    users: int | None = None  # concurrent users; None if they are not given
    prices: Mapping[str, Ratio] = MappingProxyType({})  # {name of a GPU: price of an hour}
    fewest_gpus: bool = False  # whether each row has the fewest GPUs that hold it

    def figures(
        self, resolved: ResolvedRequest, of_one: Users | None
    ) -> dict[str, int | float | None]:
        """Return the figures of columns.NEED; None for those that do not apply."""
        served = None
        if of_one is not None and of_one.average is not None:
            served = int(of_one.average) * resolved.replicas
        gpus: int | None = resolved.gpus
        if self.users is not None and served is not None:
            gpus = resolved.gpus * -(-self.users // served) if served else None
        figures: dict[str, int | float | None] = {
            "users_all_replicas": served,
            "gpus_needed": None,
            "price_per_hour": None,
        }
        if resolved.gpu and self.users is not None:
            figures["gpus_needed"] = gpus
        price = self.prices.get(resolved.gpu.rented) if resolved.gpu else None
        if price is not None and gpus is not None:
            figures["price_per_hour"] = gpus * price.numerator / price.denominator
        return figures


NOBODY = Need()


class Fits:
    """The figures of `fit` of one model, for any batch and context."""

    def __init__(
        self,
        model: ModelSpec,
        options: Mapping[str, Any],
        columns: Sequence[str],
        need: Need = NOBODY,
        sizes: Collection[str] = ("batch", "context"),
        served: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Take the options of a setting; `sizes` are which of batch and context the sweep was
        given, and `served` is as in `fit_request`.
        """
        check_offload(options, model)
        self._sizes = sizes
        self._served = served
        self._model = model
        self._options = options
        self._columns = columns
        self._need = need
        self._names = [name for name in columns if name not in (*BOUNDS, *USERS, *NEED)]
        self._bound_names = [name for name in columns if name in BOUNDS]
        self._with_need = not NEED.keys().isdisjoint(columns)
        self._with_users = self._with_need or not USERS.keys().isdisjoint(columns)
        self._request = self._fit_request(1, ANY)
        self._engine = find_engine(self._request.engine)
        # 'auto' is another number for each batch and context, and so are the layers that go to a
        # host whose memory is known
        self._has_own_placements = options.get("n_gpu_layers") == AUTO or bool(options.get("ram"))
        self._is_late = self._has_own_placements
        self._remembered: Remembered[_Cells] = Remembered(self._cells, ("B", "T"))
        self._compiled_bounds = Compiled(self._compute_bounds, ("B", "T"))

    def figures(self, batch: int, context: int) -> tuple[Any, ...]:
        """Return the figures. Raises AttncalcError as `fit` does."""
        if self._need.fewest_gpus and self._request.gpus is None:
            return self._with_fewest_gpus(batch, context).figures(batch, context)
        if "batch" not in self._sizes:
            size = {"context": context} if "context" in self._sizes else {}
            of_slots = self._engine.sizes(size, self._options)
            if "batch" in of_slots:  # '-c 8192 -np 4' is '-c 2048 --batch 4', as in `fit`
                options = dict(self._options)
                options.pop("sequences", None)
                each = Fits(
                    self._model, options, self._columns, self._need, self._sizes, self._served
                )
                return each.figures(of_slots["batch"], of_slots.get("context", context))
        traffic = self._request.traffic
        if traffic and not traffic.lengths:
            given = (self._options.get("prompt"), self._options.get("output"))
            if None in given:
                longest = self._model.max_context or NO_LIMIT
                prompt, output = usual_lengths(*given, context, longest)
                options = {**self._options, "prompt": prompt, "output": output}
                whole = Fits(
                    self._model, options, self._columns, self._need, self._sizes, self._served
                )
                return whole.figures(batch, context)
        if not self._is_late:
            try:
                return self._row(self._remembered(batch, context), batch, context)
            except LateQuestionError:
                self._is_late = True
        return self._row(self._cells(batch, context), batch, context)

    def _with_fewest_gpus(self, batch: int, context: int) -> "Fits":
        """Return the same with the fewest GPUs that hold so many requests."""
        resolved = resolve(self._request_at(batch, context))
        gpus = min_gpus(resolved)
        fewest = resolved.request
        for other in with_other_gpus(resolved):
            if other.gpus == gpus:
                fewest = other
                break
        options = {**self._options, "gpus": fewest.gpus or 1, "tp": fewest.tp, "pp": fewest.pp}
        need = self._need._replace(fewest_gpus=False)
        return Fits(self._model, options, self._columns, need, self._sizes, self._served)

    def _cells(self, batch: int, context: int) -> _Cells:
        resolved = resolve(self._request_at(batch, context))
        return _Cells(Deployment(resolved), users(resolved) if self._with_users else None)

    def _request_at(self, batch: int, context: int) -> FitRequest:
        if self._has_own_placements:
            return self._fit_request(batch, context)
        return self._request.with_workload(batch=batch, context=context)

    def _fit_request(self, batch: int, context: int) -> FitRequest:
        options = {**self._options, "batch": batch, "context": context}
        request = with_needed_offload(fit_request(self._model, options, self._served), options)
        return dataclasses.replace(request, batch_is_given="batch" in self._sizes)

    def _row(self, cells: _Cells, batch: int, context: int) -> tuple[Any, ...]:
        values: dict[str, Any] = {}
        if self._names:
            values = _values(cells.result(batch, context), self._names)
        if self._with_users:
            values |= {figure.name: figure.value for figure in user_figures(cells.users)}
        if self._with_need:
            values |= self._need.figures(self._resolved, cells.users)
        if self._bound_names:
            values |= zip(BOUNDS, self._bounds(batch, context), strict=True)
        return tuple([values.get(name) for name in self._columns])

    @cached_property
    def _resolved(self) -> ResolvedRequest:
        return resolve(self._request)

    def _bounds(self, batch: int, context: int) -> Sequence[Any]:
        """Return the values of the lower bounds of time."""
        # with users' requests the batch is searched, which asks for every number
        if self._request.traffic or self._has_own_placements:
            figures = self._compute_bounds(batch, context)
            return [getattr(figure, "value", figure) for figure in figures]
        return self._compiled_bounds(batch, context)

    def _compute_bounds(self, requests: int, context: int) -> list[Quantity | Ratio | None]:
        """Return the lower bounds of time; without numbers as `fit` has none."""
        if self._has_own_placements:
            resolved = resolve(self._request_at(requests, context))
        else:
            batch = self._resolved.per_replica(requests)
            workload = dataclasses.replace(self._resolved.workload, batch=batch, context=context)
            request = self._request.with_workload(batch=requests)
            resolved = self._resolved._replace(workload=workload, request=request)
        with_limits = not set(LIMITS).isdisjoint(self._bound_names)
        bounds, _ = bounds_of(resolved, with_limits=with_limits)
        return [figure.quantity for figure in roofline_figures(bounds)]


def _values(result: FitResult, names: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {
        figure.name: figure.value for figure in fit_figures(Answer(result), searched=names)
    }
    values["verdict"] = result.verdict
    values["replicas"] = result.resolved.replicas
    values["gpus"] = result.resolved.gpus
    for name, value in totals(result).items():
        values[f"{name}_all_replicas"] = value
    return values
