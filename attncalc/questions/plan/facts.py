"""What the JSON of `attncalc plan` has beside its rows."""

from typing import Any

from .figures import row_facts
from .plan import Plan, Pools, Size
from .rows import Row


def models_of(plan: Plan) -> list[str]:
    """Return the models, each once."""
    return list(dict.fromkeys(request.model.name for request in plan.requests))


def gpus_of(plan: Plan) -> list[str]:
    """Return the kinds of GPU or of instances, each once."""
    return list(dict.fromkeys(request.gpu.rented for request in plan.requests if request.gpu))


def load_facts(plan: Plan) -> dict[str, Any]:
    request = plan.requests[0]
    assert request.traffic is not None
    traffic = request.traffic
    measured_gpu = next(iter(plan.demand.scales), None)
    return {
        "users": plan.demand.requested,
        "rate": plan.demand.rate and float(plan.demand.rate),
        "load_factor": plan.demand.load_factor and float(plan.demand.load_factor),
        "ttft": plan.demand.ttft,
        "tpot": plan.demand.tpot,
        "efficiency": plan.demand.efficiency and float(plan.demand.efficiency),
        "network": plan.demand.network,
        "measured_gpu": measured_gpu,
        "measured_scale": measured_gpu and plan.demand.scales[measured_gpu],
        "api_price_input": plan.demand.api_price and float(plan.demand.api_price[0]),
        "api_price_output": plan.demand.api_price and float(plan.demand.api_price[1]),
        "budget_per_hour": plan.demand.budget and float(plan.demand.budget),
        "spread": plan.demand.spread,
        "prompt": traffic.prompt,
        "output": traffic.output,
        "shared_prefix": traffic.shared_prefix,
        "tokens_average": int(traffic.average_tokens),
        "tokens_worst": int(traffic.worst_tokens),
    }


def size_facts(size: Size) -> dict[str, Any]:
    row = size.row
    facts: dict[str, Any] = {"model": size.model, "factor": size.factor, "when": size.when or None}
    if row is None:
        nothing = ("gpu", "split", "gpus", "nodes", "replicas", "price_per_hour")
        return {**facts, "users": size.demand.requested, **dict.fromkeys(nothing)}
    return {
        **facts,
        "users": row.requested,
        "gpu": row.candidate.gpu.name,
        "split": row.candidate.split.words,
        "gpus": row.gpus,
        "nodes": row.nodes,
        "replicas": row.replicas,
        "price_per_hour": float(row.price) if row.price else None,
    }


def cheaper_facts(row: Row) -> dict[str, Any]:
    facts = row_facts(row)
    names = ("model", "gpu", "weights_dtype", "checkpoint", "kv_dtype", "split", "launch_command")
    return {**{name: facts[name] for name in names}, "gpus": row.gpus}


def pools_facts(pools: Pools) -> dict[str, Any]:
    decoder = pools.decode.candidate
    sides = {"prefill": pools.prefill, "decode": pools.decode}
    return {
        "model": decoder.group[0],
        "gpu": decoder.gpu.name,
        **{f"{name}_split": pool.candidate.split.words for name, pool in sides.items()},
        **{f"{name}_replicas": pool.replicas for name, pool in sides.items()},
        **{f"{name}_gpus": pool.gpus for name, pool in sides.items()},
        "gpus": pools.gpus,
        "requests_per_second": pools.rate,
        "ttft": pools.ttft,
        "tpot": pools.tpot,
        "cache_per_prompt": pools.cache_per_prompt,
        "cache_bytes_per_second": pools.cache_per_second,
        "price_per_hour": pools.price,
    }


def search_facts(plan: Plan) -> dict[str, Any]:
    found = plan.found
    return {
        "models": models_of(plan),
        "gpus": gpus_of(plan),
        "sort": plan.sort,
        "splits": found.tried,
        "pruned": found.pruned,
        "left_out": plan.left_out,
        "too_large": plan.too_large,
        "complete": found.complete,
        "refused": {one.gpu: one.reason for one in reversed(found.refused)},
    }
