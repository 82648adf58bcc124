"""The sentences above the table of `attncalc plan`: what serves the users, how fast, and
at which price.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping

from ...errors import AttncalcError
from ...model import plural
from ...quantity import ceil_div
from ...serving.fit import fit, min_gpus
from ...serving.suggestions import suggestions
from ...serving.users import users
from ...show.report import number
from ...show.request import request_facts
from ...show.users import described, shared
from ...units import MONTH_HOURS, SECONDS, count, quotient
from .demand import Demand
from .facts import models_of
from .nodes import gpus_of_replicas, replicas_on_nodes
from .plan import Plan, best_of_models
from .rows import Row


def heading(plan: Plan) -> tuple[str, ...]:
    """Return the answer of each model, its speed and its price, and what was asked."""
    models = models_of(plan)
    found = {row.candidate.group[0]: row for row in best_of_models(plan.rows)}
    answers = {name: _of_model(plan, name, found.get(name)) for name in models}
    found = {name: found[name] for name in models if name in found}
    if len(models) > 1:
        lines = [f"{name}: {text}" for name, text in answers.items()]
    else:
        lines = [text[0].upper() + text[1:] for text in answers.values()]
    if plan.enough:
        lines.append(_enough(plan.enough))
    return (*lines, *_of_found(plan, found, is_one=len(models) == 1), _question(plan))


def _of_found(plan: Plan, found: Mapping[str, Row], *, is_one: bool) -> Iterator[str]:
    """Yield the sentences on the best row of each model: fewer GPUs, the speed, the price."""
    starts = {name: "" if is_one else f"{name}: " for name in found}
    for name, row in found.items():
        yield starts[name] + _decides(row, is_one=is_one)
    for name, row in found.items():
        fewer = _fewer(row)
        if fewer:
            yield starts[name] + fewer
    for row in plan.cheaper:
        yield starts[row.candidate.group[0]] + _cheaper(row)
    if is_one and found and plan.rows[0].price_per_month:
        yield _cost(plan.rows[0])
    if plan.demand.api_price:
        for name, row in found.items():
            yield starts[name] + _api(row)


def _enough(row: Row) -> str:
    """Return the fewest GPUs that reach the targets."""
    if row.price_per_month:
        return f"Enough: {answer(row)}, {float(row.price_per_month):,.0f} per month"
    return f"Enough: {answer(row)}"


def _cheaper(row: Row) -> str:
    """Return what needs half of the GPUs, and with which options."""
    request = row.candidate.resolved.request
    options = []
    if request.weights_dtype:
        options.append(f"--weights-dtype {request.weights_dtype} ({request.checkpoint})")
    if request.workload.kv_dtype:
        options.append(f"--kv-dtype {request.workload.kv_dtype}")
    narrower = " and ".join(options)
    if row.gpus == 1:
        return f"With {narrower}, 1 GPU is enough"
    gpus = f"{count(row.gpus)} GPUs"
    if row.candidate.split.gpus > 1:
        gpus += f" ({row.candidate.split.words})"
    return f"With {narrower}, {gpus} are enough"


def _of_model(plan: Plan, name: str, row: Row | None) -> str:
    """Return the answer of a model, whose best row is `row`."""
    if row is None:
        return _nothing(plan, name)
    if plan.serves_all:
        return answer(row)
    return f"NOT ENOUGH: {answer(row)}"


def _question(plan: Plan) -> str:
    """Return what was asked: the model, the load, the engines, the dtypes, and the targets."""
    first = plan.requests[0]
    assert first.traffic is not None
    is_one = len(models_of(plan)) == 1
    load = [described(first.traffic), shared(first.traffic)]
    if not is_one:
        load.append("for each model")
    requests = ", ".join(filter(None, load))
    if plan.demand.requested is not None:
        of_load = f"{asked(plan.demand)} at once, {requests}"
    else:
        of_load = f"{asked(plan.demand)} of {requests}"
    engines = dict.fromkeys(candidate.resolved.engine.title for candidate in plan.found.candidates)
    facts = [of_load, *engines, *_dtypes(plan), *_targets(plan.demand)]
    if is_one:
        facts.insert(0, first.model.title)
    return ", ".join(facts).lstrip()


def answer(row: Row) -> str:
    """Return a row as a sentence: '8 x H200 SXM 141GB in 1 node: 1 replica of tp 8, room for 612
    users, 20,440 a month'.
    """
    candidate = row.candidate
    gpu = candidate.gpu
    place = f"{count(row.gpus)} x {gpu.title.removeprefix(f'{gpu.vendor} ')}"
    if gpu.instance:
        place = f"{count(row.nodes)} x {gpu.instance} ({place})"
    else:
        place = f"{place} in {plural(row.nodes, 'node')}"
    replicas = plural(row.replicas, "replica")
    if candidate.split.gpus > 1:
        replicas = f"{replicas} of {candidate.split.words}"
    facts = [replicas, _capacity(row)]
    if row.price_per_month:
        facts.append(f"{float(row.price_per_month):,.0f} a month")
    if candidate.verdict != "fits":
        facts.append("which may not fit")
    return f"{place}: {', '.join(facts)}"


def _capacity(row: Row) -> str:
    if row.demand.rate is not None:
        return f"up to {number(row.most_requests_per_second)} requests/s"
    if row.capacity is None:
        room = "room for any number of users"
    else:
        room = f"room for {plural(row.capacity, 'user')}"
    if row.demand.is_open and row.requests_per_second:
        return f"{room}, up to {number(row.requests_per_second)} requests/s"
    return room


def _cost(row: Row) -> str:
    """Return what a row costs beside the price per month, which the first line has: 'Price: 20.00
    per hour (2.50 per GPU x 8), ...'.
    """
    assert row.price
    gpu = row.candidate.gpu
    one = float(row.demand.prices[gpu.rented]) * gpu.rented_gpus
    each = f"{one:,.2f}" if round(one, 2) == one else f"{one:,.3f}"
    if gpu.instance:
        units = f"{each} per {gpu.instance} x {count(row.nodes)}"
    else:
        units = f"{each} per GPU x {count(row.gpus)}"
    text = f"Price: {float(row.price):,.2f} per hour ({units})"
    if row.price_per_million:
        return f"{text}, {float(row.price_per_million):,.3g} per million output tokens"
    return text


def _api(row: Row) -> str:
    """Return what an API costs, and from which rate the GPUs of a row cost less, on average."""
    demand = row.demand
    enough = float(row.break_even_rate or 0)
    part = float(demand.load_factor or 1)
    most = row.most_requests_per_second * part
    text = f"API at {_api_prices(demand)} per million tokens"
    rate = float(demand.rate or row.requests_per_second or 0) * part
    if rate and not demand.is_open:
        own = float(row.price_per_month or 0)
        traffic = row.candidate.concurrency.traffic
        bill = own * rate / enough
        tokens = rate * (traffic.prompt + traffic.output) * MONTH_HOURS * 3600 / 10**6
        own_price = f"{own:,.0f} ({own / tokens:,.3g} per million of input and output)"
        text += f": {bill:,.0f} per month for {number(rate)} requests/s, the GPUs {own_price}"
        if enough <= most and bill < own:
            text += ": the API is cheaper"
        elif enough <= most:
            text += ": the GPUs are cheaper"
    at = f"{number(enough)} requests/s, capacity {number(most)}"
    text = f"{text}. Break-even with {plural(row.gpus, 'GPU')}: {at}"
    if enough > most:
        return f"{text}; the API is cheaper at any rate"
    return text


def _api_prices(demand: Demand) -> str:
    """Return the prices of an API: '0.1 (input) and 0.3 (output)', or '5' if both are the same."""
    prices = list(dict.fromkeys(f"{float(price):,.4g}" for price in demand.api_price or ()))
    if len(prices) == 2:
        return f"{prices[0]} (input) and {prices[1]} (output)"
    return "".join(prices)


def _decides(row: Row, *, is_one: bool) -> str:
    """Return what decides how many users a replica has, and how fast these are; of several models
    (`is_one` is false) in fewer words.
    """
    if row.candidate.capacity is None:
        what = "Nothing limits the users of a replica"
    elif is_one:
        what = f"{_limit(row)} decides: {_room(row)}"
    else:
        what = f"{_limit(row)} decides"
    if row.speed is None:
        return f"{what}. The speed is not known"
    served = row.speed.served
    prefills = f"prefill takes {served.utilization:.0%} of the time"
    if is_one:
        return f"{what}. Expect {number(1 / served.tpot)} tokens/s per user: {prefills}"
    return f"{what}: {prefills}"


def _limit(row: Row) -> str:
    """Return what limits the users, or the requests per second, of a replica."""
    demand = row.demand
    if demand.rate is not None and row.speed:
        if row.speed.served.utilization > 1 / 2:
            return "Prefill"
        return "Decode"
    names = {
        "cache": "Memory",
        "--ttft": f"Prefill (--ttft {quotient(demand.ttft or 0, SECONDS)})",
        "--tpot": f"Decode (--tpot {quotient(demand.tpot or 0, SECONDS)})",
    }
    return names.get(row.candidate.limited_by, row.candidate.limited_by)


def _room(row: Row) -> str:
    """Return how many users, or requests per second, a replica has."""
    if row.demand.rate is not None and row.speed:
        most = number(row.most_requests_per_second / row.replicas)
        return f"{most} requests/s per replica"
    return f"{plural(row.candidate.capacity or 0, 'user')} per replica"


def _fewer(row: Row) -> str:
    """Return how many GPUs may be enough, with the least runtime memory of its range; '' if it is
    as many.
    """
    candidate = row.candidate
    users_asked = row.demand.requested
    spread = row.demand.spread
    if users_asked is None or candidate.limited_by != "cache":
        return ""
    found = users(candidate.resolved, "high")
    most = found and found.average and int(found.average) * candidate.resolved.replicas
    if not most:
        return ""
    on_nodes = replicas_on_nodes(candidate, ceil_div(users_asked, most), spread=spread)
    gpus = gpus_of_replicas(candidate, *on_nodes)
    if gpus >= row.gpus:
        return ""
    return (
        f"{plural(gpus, 'GPU')} may be enough: with the least runtime memory, a replica has room "
        f"for {count(most)}"
    )


def _dtypes(plan: Plan) -> list[str]:
    """Return the dtypes of weights and cache if an option sets one: '--dtype fp8' sets the cache's
    too.
    """
    if not any(
        one.weights_dtype or one.workload.kv_dtype or one.workload.dtype for one in plan.requests
    ):
        return []
    of_rows = {request_facts(row.candidate.resolved)[-2:] for row in plan.rows}
    if len(of_rows) == 1:
        return [fact for fact in of_rows.pop() if fact]
    return []


def asked(demand: Demand) -> str:
    """Return what is asked for: '500 users', or '20 requests/s'."""
    if demand.rate is not None:
        return f"{number(float(demand.rate))} requests/s"
    if demand.requested is None:
        return "requests"
    return plural(demand.requested, "user")


def _targets(demand: Demand) -> Iterator[str]:
    if demand.ttft is not None:
        yield f"first token within {quotient(demand.ttft, SECONDS)}"
    # a note has the default
    if demand.tpot is not None and not demand.has_usual_tpot:
        yield f"token within {quotient(demand.tpot, SECONDS)}"
    if demand.load_factor:
        average = demand.on_average(demand.rate)
        factor = f"load factor {number(float(demand.load_factor))}"
        if average:
            yield f"the peak of {number(float(average))} on average, {factor}"
        else:
            yield factor
    if demand.has_no_peak:
        yield "on average: a peak of 3 x is --load-factor 1/3"
    if demand.spread:
        yield "one node may fail"
    if demand.budget is not None:
        yield f"{float(demand.budget):,.2f} per hour at most"


def _nothing(plan: Plan, model: str) -> str:
    """Return why there is no row for a model."""
    if model in plan.unserved:
        return plan.unserved[model]
    refused = [one for one in plan.found.refused if one.model == model]
    reason = ""
    if refused:
        reasons = Counter((one.reason, one.tip) for one in refused)
        why, tip = max(reasons, key=lambda reason: reasons[reason])
        reason = f"{why}. {tip[:1].upper()}{tip[1:].rstrip('.')}."
    requests = [request for request in plan.requests if request.model.name == model]
    if len(refused) == len(requests) and all(one.is_whole for one in refused):
        return f"NOTHING STARTS: {reason}"
    text = (
        "NOTHING FITS: no split over these GPUs holds the weights and one "
        f"request{_what_fits(plan, model)}"
    )
    text = f"{text.rstrip('.')}."
    if refused:
        return f"{text} Others do not start: {reason}"
    return text


def _what_fits(plan: Plan, model: str) -> str:
    """Return with which dtype one request fits on the first kind of GPU, and on how many of them;
    '' if not known.
    """
    request = next(one for one in plan.requests if one.model.name == model)
    gpus = plan.demand.max_gpus
    if not gpus:
        return ""
    try:
        result = fit(dataclasses.replace(request, gpus=gpus))
    except AttncalcError:  # no split over so many
        return ""
    flags = []
    for one in suggestions(result):
        is_same_context = one.result.request.workload.context == request.workload.context
        if is_same_context and "--gpus" not in one.flag:
            flags.append(one.flag)
            break
    more = min_gpus(result.resolved)
    if more and more > gpus:
        flags.append(f"--max-gpus {more}")
    if len(flags) == 2:
        return f". {flags[0]} does, or {flags[1]}."
    if flags:
        return f". {flags[0]} does."
    return ""
