"""From users to GPUs: `plan("llama3.1-70b", users=500, prompt="3K", output=500,
gpu="h100,h200")`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from ...config import ModelLike
from ...config.checkpoints import Checkpoints
from ...config.gpus import gpu_names, gpus_of
from ...config.prices import read_prices
from ...engines import find_engine
from ...errors import AttncalcError, BadValueError, clash
from ...hardware import Gpu
from ...model import ModelSpec, plural
from ...options import as_text, options_of, parsed
from ...quantity import Ratio, ratio
from ...ranges import parse_counts, split_list
from ...records import NamedTuple
from ...serving.fit import NO_LIMIT
from ...serving.request import FitRequest
from ...serving.traffic import Traffic
from ...units import count, is_per_day, parse_decimal, period, truncate
from ...what_if import SIZES, no_model
from ..arguments import takes
from ..fit.request import fit_request, options_of_name
from ..fit.served import served_fields
from ..inputs import read_model
from ..options import ModelOptions
from ..results import ResultRows
from .demand import Demand
from .disaggregated import disaggregated
from .heading import asked
from .load import read_traffic, usual_requests
from .options import (
    FIT_OPTIONS,
    ChoiceOptions,
    CostOptions,
    LoadOptions,
    PlanOptions,
    PlanSizeOptions,
)
from .plan import Plan, make_plan
from .report import plan_report
from .search import search
from .space import Space

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Every built-in GPU; of weights those as released and in each checkpoint that exists.
ALL = "all"
# The dtype of the release, or of the engine's default.
AUTO = "auto"


class PlanRequest(NamedTuple):
    """What the options ask for."""

    requests: tuple[FitRequest, ...]  # a request per model, GPU and dtype, without a split
    space: Space  # the splits to try
    demand: Demand  # the users, and what GPUs cost
    growth: Mapping[float, str]  # {factor by which the users may grow: when, in words}
    sort: str  # what the rows are sorted by
    is_whole: bool  # whether rows than which another is better are listed too
    disaggregates: bool  # whether pools for prefills and for decode steps are searched too

    def plan(self, on_step: Callable[[str], None] = lambda _: None) -> Plan:
        """Return the plan; after Ctrl-C with what was found until then. Raises AttncalcError as
        `search` does.
        """
        found = search(self.requests, self.space, on_step)
        plan = make_plan(
            found,
            self.demand,
            growth=self.growth,
            sort=self.sort,
            is_whole=self.is_whole,
            without_limit=lambda: search(
                self.requests, self.space._replace(max_gpus=None), on_step
            ),
        )
        if self.disaggregates:
            return plan._replace(pools=disaggregated(found.candidates, self.demand))
        return plan


class PlanResult(ResultRows):
    """The rows of a plan, as `attncalc plan` prints them, the best first. Iterating yields
    `rows`.
    """

    def __init__(self, plan: Plan) -> None:
        models = dict.fromkeys(request.model.name for request in plan.requests)
        self.plan = plan
        self.knowing(f"{', '.join(models)} for {asked(plan.demand)}", partial(plan_report, plan))

    def _answer(self) -> str:
        return self.report.heading[0]


@takes(PlanOptions)
def plan(*models: ModelLike, **options: Unpack[PlanOptions]) -> PlanResult:
    """Return which GPUs serve so many users, and how the model is split over them, the best row
    first.

    >>> best = plan("llama3.1-70b", users=500, prompt="3K", output=500, gpu="h200").rows[0]
    >>> best["gpus"], best["replicas"]
    (8, 1)

    Args:
        models: One model or several, each as in `load`. Without any, the options have the sizes of
            one.
        options: The options of `attncalc plan`.

    Raises AttncalcError if a model or an option is not valid.
    """
    return PlanResult(read_plan(models, options).plan())


def read_plan(models: Sequence[ModelLike], options: Mapping[str, Any]) -> PlanRequest:
    """Return what the options ask for. Raises AttncalcError if a model or an option is not valid.

    Without models, the options have the sizes of one.
    """
    if not models and SIZES.isdisjoint(options):
        raise no_model()
    given: Sequence[ModelLike | None] = models or [None]
    load = parsed(options, LoadOptions)
    costs = parsed(options, CostOptions)
    if "users" in load and "rate" in load:
        raise clash("--users", "--rate", "give one of them")
    names, most = _without_number(options.get("gpu") or ())
    max_gpus = parsed(options, ChoiceOptions).get("max_gpus") or most
    has_demand = not load.keys().isdisjoint(("users", "rate"))
    has_limit = _asks_for_the_most(options, max_gpus or costs.get("budget"))
    _check_required(has_demand=has_demand or has_limit, has_gpu=options.get("gpu") is not None)
    if options.get("disaggregate") and options.get("spread"):
        raise clash("--disaggregate", "--spread")
    specs = [read_model(model, options, ModelOptions) for model in given]
    for spec in specs:
        if not spec.main.has_cache:
            raise AttncalcError(
                f"plan is about users who read an output, and {spec.title} has none: it has no "
                "cache",
                f"'attncalc fit {spec.name} --gpu GPU' says how many texts a step computes",
            )
    longest = min(spec.max_context or NO_LIMIT for spec in specs)
    usual = usual_requests(load, parsed(options, PlanSizeOptions).get("context"), longest)
    traffic = read_traffic({**load, **usual})
    prices = read_prices(costs["price"], names) if "price" in costs else {}
    gpus = _gpus(names, prices)
    sort = str(costs.get("sort") or _usual_sort(has_demand=has_demand, has_prices=bool(prices)))
    if not prices:
        _check_without_prices(costs, sort)
    space = _space(options, max_gpus)
    _check_most_gpus(space, is_option="max_gpus" in options)
    choices = _choices(options, gpus)
    requests: list[FitRequest] = []
    for model, spec in zip(given, specs, strict=True):
        requests += _requests(model, spec, options, traffic, choices)
    return PlanRequest(
        requests=tuple(requests),
        space=space,
        demand=_demand(options, load, costs, max_gpus, prices, usual),
        growth=_growth(options.get("growth")),
        sort=sort,
        is_whole=bool(options.get("all")),
        disaggregates=bool(options.get("disaggregate")),
    )


def _asks_for_the_most(options: Mapping[str, Any], limit: Any) -> bool:
    """Return whether a limit of GPUs or of money asks how many users they serve."""
    for_users = ("spread", "disaggregate", "growth")
    return bool(limit) and not any(map(options.get, for_users))


def _choices(options: Mapping[str, Any], gpus: Sequence[Gpu]) -> list[tuple[Gpu, str, str]]:
    """Return each GPU with each dtype of the cache and of the weights."""
    dtypes = [
        (cache, weights)
        for weights in _texts(options, "weights_dtype")
        for cache in _texts(options, "kv_dtype")
    ]
    return [(gpu, *each) for gpu in gpus for each in dtypes]


def _demand(
    options: Mapping[str, Any],
    load: Mapping[str, Any],
    costs: Mapping[str, Any],
    max_gpus: int | None,
    prices: Mapping[str, Ratio],
    usual: Mapping[str, str],
) -> Demand:
    """Return what the replicas must serve. `usual` has the lengths of requests that are assumed,
    by option.
    """
    load_factor = load.get("load_factor")
    names = options_of(LoadOptions)
    assumed = [f"{names[field].name} {text}" for field, text in usual.items()]
    return Demand(
        requested=load.get("users"),
        rate=_peak_rate(load),
        load_factor=load_factor,
        has_no_peak=is_per_day(str(options.get("rate"))) and not load_factor,
        ttft=load.get("ttft"),
        tpot=load.get("tpot"),
        efficiency=load.get("efficiency"),
        spread=bool(options.get("spread")),
        max_gpus=max_gpus,
        budget=costs.get("budget"),
        prices=prices,
        api_price=costs.get("api_price"),
        shows_power=bool(options.get("watts")),
        assumed=f"Assumed: {', '.join(assumed)}." if assumed else "",
    )


def _check_required(*, has_demand: bool, has_gpu: bool) -> None:
    """Raise AttncalcError if it is not said for how many users, or on which GPUs."""
    missing = {}
    if not has_demand:
        missing["--users"] = "--users 500"
    if not has_gpu:
        missing["--gpu"] = "--gpu h100,h200"
    if missing:
        raise AttncalcError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} required",
            f"for example {' '.join(missing.values())} (--rate 20/s and --gpu all work too; "
            "--max-gpus 8 asks how many users these serve)",
        )


def _usual_sort(*, has_demand: bool, has_prices: bool) -> str:
    """Return the figure that ranks the rows by default."""
    if not has_demand:
        return "tokens-per-second"
    if has_prices:
        return "price"
    return "gpus"


def _check_without_prices(costs: Mapping[str, Any], sort: str) -> None:
    """Raise AttncalcError for an option that needs --price."""
    if costs.get("budget"):
        name = "--budget"
    elif "api_price" in costs:
        name = "--api-price"
    elif sort.startswith("price"):
        name = f"--sort {sort}"
    else:
        return
    raise AttncalcError(f"{name} needs --price", "give the prices: --price h100=2.49,h200=3.79")


def _space(options: Mapping[str, Any], max_gpus: int | None) -> Space:
    """Return the splits that are searched. Raises AttncalcError if a list cannot be read."""
    sizes: dict[str, Any] = {}
    for name in ("tp", "pp", "dp", "attn_dp"):
        if options.get(name) is not None:
            option = options_of(PlanOptions)[name].name
            sizes[name] = parse_counts(as_text(options[name]), option)
    return Space(
        **sizes, expert_parallel=bool(options.get("enable_expert_parallel")), max_gpus=max_gpus
    )


def _peak_rate(load: Mapping[str, Any]) -> Ratio | None:
    """Return the requests per second at the peak: the average over the load factor."""
    rate: Ratio | None = load.get("rate")
    factor = load.get("load_factor")
    if rate and factor:
        return ratio(rate.numerator * factor.denominator, rate.denominator * factor.numerator)
    return rate


def _check_most_gpus(space: Space, *, is_option: bool) -> None:
    """Raise AttncalcError if one replica of the smallest sizes has more GPUs than there may be.

    `is_option` is whether --max-gpus has this number, and not --gpu: '4xh100'.
    """
    if space.max_gpus is None:
        return
    sizes = {"--tp": space.tp, "--pp": space.pp, "--dp": space.dp}
    least = {name: min(given) for name, given in sizes.items() if given}
    needed = prod(least.values())
    if needed <= space.max_gpus:
        return
    split = " with ".join(f"{name} {size}" for name, size in least.items() if size > 1)
    if is_option:
        limit = f"--max-gpus is {space.max_gpus}"
        tip = f"give --max-gpus {needed}"
    else:
        limit = f"--gpu has {space.max_gpus}"
        tip = f"name the GPU without a number, and give --max-gpus {needed}"
    raise AttncalcError(f"{split} needs {plural(needed, 'GPU')}, and {limit}", tip)


def _requests(
    model: ModelLike | None,
    spec: ModelSpec,
    options: Mapping[str, Any],
    traffic: Traffic,
    choices: Sequence[tuple[Gpu, str, str]],
) -> Iterator[FitRequest]:
    """Yield a model's request for each GPU and dtype of cache and weights, as `fit` reads its
    options.
    """
    served = served_fields(model, spec, options)
    fields = [name for kind in FIT_OPTIONS for name in options_of(kind)]
    given = {name: options[name] for name in fields if options.get(name) is not None}
    given.setdefault("context", min(int(traffic.worst_tokens), spec.max_context or NO_LIMIT))
    # an engine is chosen that has these options; their values are each split's
    given |= {name: 1 for name in ("tp", "pp", "dp") if options.get(name) is not None}
    if options.get("enable_expert_parallel"):
        given["enable_expert_parallel"] = True
    known = Checkpoints(spec.name)
    for gpu, kv_dtype, weights_dtype in choices:
        of_gpu = {**given, "gpu": gpu, **({} if kv_dtype == AUTO else {"kv_dtype": kv_dtype})}
        for of_weights in (AUTO, *known) if weights_dtype == ALL else (weights_dtype,):
            of_dtypes = {} if of_weights == AUTO else {"weights_dtype": of_weights}
            implied, _ = options_of_name(model, {**of_gpu, **of_dtypes})
            request = fit_request(spec, {**of_gpu, **of_dtypes, **implied}, served)
            traffic.check(request.workload.context)
            # its files are made of the model itself
            if find_engine(request.engine).splits_by_layer:
                if weights_dtype == ALL and of_dtypes:
                    continue
            elif of_dtypes and weights_dtype == ALL:
                request = dataclasses.replace(request, checkpoint=known[of_weights])
            yield dataclasses.replace(request, traffic=traffic)


def _without_number(given: Any) -> tuple[list[Gpu | str], int | None]:
    """Return the GPUs and names in --gpu, and the most GPUs if it is one kind with a number:
    '4xh100'.
    """
    if isinstance(given, str):
        names: list[Gpu | str] = [*split_list(given, "--gpu")]
    # an item of a list is one GPU
    elif isinstance(given, Gpu):
        names = [given]
    else:
        names = list(given)
    if len(names) == 1 and isinstance(names[0], str) and names[0] != ALL:
        number, gpu = _numbered(names[0])
        if number is not None:
            return [gpu], number
    return names, None


def _numbered(text: str) -> tuple[int | None, Gpu]:
    """Return the number of GPUs, None if there may be any, and their kind: of 'p5.48xlarge' any
    number of instances.
    """
    number, gpu = gpus_of(text)
    is_any = gpu.is_local or (
        gpu.instance and number == gpu.per_node and not re.match(r"1 ?x", text)
    )
    return None if is_any else number, gpu


def _gpus(given: Sequence[Gpu | str], prices: Mapping[str, Any]) -> list[Gpu]:
    """Return the GPUs to choose from. With prices, 'all' are those that have one.

    Raises AttncalcError if one is unknown, has a number, or lacks a price; or if a price has no
    GPU.
    """
    found: dict[str, Gpu] = {}
    for text in given:
        if isinstance(text, Gpu):
            found[text.rented] = text
        else:
            for name in (prices or gpu_names()) if text == ALL else [text]:
                number, gpu = _numbered(name)
                if number is not None:
                    raise AttncalcError(
                        f"--gpu {truncate(text)}: several kinds of GPU have no number each",
                        "give the kinds alone, and with --max-gpus 16 the most GPUs",
                    )
                found[gpu.rented] = gpu
    for name in prices:
        if name not in found:
            raise AttncalcError(
                f"--price: {name} is not among the GPUs",
                f"add it: --gpu {','.join([*found, name])}, or leave it out",
            )
    for name in found:
        if prices and name not in prices:
            raise AttncalcError(
                f"--price: {name} has no price",
                f"add it: --price {name}=2.49, or leave out the GPU",
            )
    return list(found.values())


def _texts(options: Mapping[str, Any], field: str) -> list[str]:
    """Return the values of a list of names, each once; AUTO by default."""
    given = options.get(field)
    if given is None:
        return [AUTO]
    return list(dict.fromkeys(split_list(as_text(given), options_of(PlanOptions)[field].name)))


# {period of growth: for how many of them the users are given}.
_PERIODS = {"month": 12, "year": 3}


def _growth(given: Any) -> dict[float, str]:
    """Return {factor: when, in words} of --growth. Raises AttncalcError if one is not above 0, or
    there are many.
    """
    parts = [] if given is None else split_list(as_text(given), "--growth")
    if len(parts) > 20:
        raise AttncalcError(
            f"--growth has {count(len(parts))} sizes, and may have 20", "give fewer"
        )
    found: dict[float, str] = {}
    for part in parts:
        if by_percent := re.fullmatch(r"\+?([\d.]+) ?%(?: ?(?:/|per|a) ?([a-z]+))?", part.lower()):
            more = 1 + _number(by_percent[1]) / 100
            name = period(by_percent[2] or "")
            if by_percent[2] and name not in _PERIODS:
                raise BadValueError(
                    f"--growth: '{truncate(part)}' has no period", "write 20%/month or 50%/year"
                )
            if name:
                found |= {more**n: plural(n, name) for n in range(1, _PERIODS[name] + 1)}
            else:
                found |= {more: ""}
        else:
            found[_number(part.lower().removesuffix("x") or part)] = ""
    return found


def _number(text: str) -> float:
    try:
        numerator, denominator = parse_decimal(text, "--growth")
    except BadValueError as error:
        raise BadValueError(error.message, "write 1.5, or 20%/month") from None
    return numerator / denominator
