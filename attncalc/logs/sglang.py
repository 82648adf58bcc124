"""Reads a start-up log of SGLang: its arguments, and what it printed about its memory.

sglang.txt has the lines.
"""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

from ..engines.base import CacheLayout
from ..engines.sglang.options import SglangArgs
from ..engines.sglang.runtime import AITER_RESERVE, AITER_RESERVED_FROM
from ..engines.sglang.versions import releases_of, sglang_version
from ..search import first_true
from ..units import GIB, count, parse_decimal
from . import startup_log as logs
from .advice import (
    advised,
    figures_of_load,
    has_rows,
    larger_share,
    more_gpus,
    of_load,
    smaller_share,
)
from .endings import without_a_start
from .lines import Section, either, lines_of
from .pytorch import OUT_OF_MEMORY, torch_out_of_memory
from .startup_log import Advice, LogChecks, LogMemory, LogRefusal, Printed, StartupLog

WEIGHTS_TOLERANCE = (2, 2)
PREEMPTED = "retracted"
# Bytes that CUDA and communication take before SGLang prints what is free.
_OUTSIDE = GIB * 55 // 100
# More bytes than any device has: where a search for the memory ends.
_BEYOND = 2**60
_SHARE_OPTION = "--mem-fraction-static"
# Characters of ServerArgs(...): some 10,000.
_LONGEST_ARGS = 30_000
_TABLE = lines_of("sglang")
_LINES = _TABLE["lines"]
SIGNS = _LINES["sign"]
_OF_STATES = {"state_slots", *_TABLE["state_sizes"]}
_OUTCOME = either(*(_LINES[name] for name in ("size", "no_memory", "unbalanced")), OUT_OF_MEMORY)


def read_log(lines: Sequence[str], stated: LogRefusal | None = None) -> StartupLog | None:
    """Return the contents of the log; None if it has neither the size of the cache nor a message
    why there is none.
    """
    text, starts = logs.last_start(
        logs.without_load(lines, _LINES["load"]), _LINES["start"], _OUTCOME
    )
    logged = figures_of(text)
    budget = logs.read_budget(_TABLE["budget"], text)
    if "weights" in budget and not budget["weights"].number:
        del budget["weights"]
    budget |= _with_drafter(text)
    before = budget.get("free_memory")
    after = budget.get("after_weights")
    if "weights" not in budget and before and after and before.number > after.number:  # up to 0.4.3
        used = float(before.number - after.number)
        budget["weights"] = Printed(f"{used:.2f}", f"{before.line}, {after.line}", GIB)
    refusal = stated or _refusal(text, started=bool(logged))
    load = logs.busiest(lines, _LINES["start"], _LINES["load"], _LINES["preemption"])
    if refusal is None and not logged:
        refusal = without_a_start(load, lines, _LINES["start"], _TABLE["stages"])
        if refusal is None:
            return None
    version = logs.first(_LINES["version"], text)
    return StartupLog(
        engine="sglang",
        version=version,
        model=logs.first(_LINES["model"], text),
        settings=_with_whole_share(_settings(text), version, text),
        flags=logs.read_flags(_TABLE["flags"], text),
        available=tuple(logs.printed(_LINES["available"], text, GIB)),
        logged=logged,
        budget=budget,
        refusal=refusal,
        starts=starts,
        releases=() if version else releases_of(text),
        load=load,
    )


def _with_drafter(text: str) -> dict[str, Printed]:
    """Return the sizes around the loading of a model and then of its drafter, which prints them
    too; {} without one.

    The weights of both count, with what was free before the first and, if the pools follow, after
    the second.
    """
    loads = [*_LINES["loaded"].finditer(text)]
    weights: dict[str, Fraction] = {}
    for load in loads:
        weights[load["type"]] = max(weights.get(load["type"], Fraction(0)), Fraction(load["used"]))
    if len(weights) < 2:
        return {}
    found = {
        "weights": Printed(
            f"{float(sum(weights.values())):.2f}", " and ".join(load[0] for load in loads), GIB
        )
    }
    first_load = text.partition("Load weight end")[0]
    before = logs.read_budget({"free_memory": _TABLE["budget"]["free_memory"]}, first_load)
    if before:
        found |= before
    pools = _LINES["pool"].search(text)
    if pools and loads[-1].start() < pools.start():
        after = min(loads, key=lambda load: Fraction(load["free"]))
        found["after_weights"] = Printed(after["free"], after[0], GIB)
    return found


def _settings(text: str) -> dict[str, str]:
    settings = logs.read_settings(_TABLE["options"], text) | logs.read_settings(
        _TABLE["settings"], text
    )
    # the line of max_total_num_tokens has the number that SGLang made of it
    arguments = text.partition("ServerArgs(")[2].partition("max_total_num_tokens=")[0]
    settings |= logs.read_settings(_TABLE["arguments"], arguments[:_LONGEST_ARGS])
    requests = logs.first(_LINES["requests"], arguments[:_LONGEST_ARGS])
    if requests and requests.isdecimal():
        settings["max_running_requests"] = requests
    ranks = logs.first(_LINES["ranks"], text) or (
        logs.first(_LINES["replicas"], text) if _LINES["dp_attention"].search(text) else None
    )
    if ranks:
        settings["attn_dp"] = ranks
    if logs.first(_LINES["experts"], text) not in (None, "0", "1"):
        settings["enable_expert_parallel"] = "True"
    algorithm = logs.first(_LINES["algorithm"], text)
    drafter = logs.first(_LINES["drafter"], text)
    if algorithm and algorithm != "NGRAM":
        if algorithm in ("DFLASH", "DSPARK"):
            settings["speculative_layers"] = "0"
        else:
            settings["speculative_layers"] = "1"
        # multi-token prediction names the model
        if drafter and drafter != logs.first(_LINES["model"], text):
            settings["speculative_model"] = drafter
    if settings.get("kv_dtype", "").startswith("fp4"):
        settings["kv_dtype"] = "fp4"
    return settings | logs.read_weights_dtype(_LINES["quantization"], text)


def figures_of(text: str) -> dict[str, Printed]:
    """Return the sizes of the pools in those lines: SGLang's own, or the ones that attncalc
    predicts.
    """
    figures: dict[str, Printed] = {}
    tokens = logs.least(logs.printed(_LINES["tokens"], text))
    for match in _LINES["pool"].finditer(text):
        kind = match["kind"].strip().lower()
        prefix = f"{kind}_" if kind else ""
        count = _LINES["tokens_of_pool"].search(match["rest"])
        if count:
            figures.setdefault(f"{prefix}kv_tokens", Printed(count[1].replace(",", ""), match[0]))
        _sizes(figures, prefix, _TABLE["pool_sizes"], match["rest"])
    compressed = _LINES["compressed"].search(text)
    if compressed:
        for name, tokens_text in compressed.groupdict().items():
            figures[name] = Printed(tokens_text, compressed[0])
    states = _LINES["states"].search(text)
    if states:
        slots = _LINES["slots"].search(states[0])
        if slots:
            figures.setdefault("state_slots", Printed(slots[1].replace(",", ""), states[0]))
        _sizes(figures, "", _TABLE["state_sizes"], states[0])
    if tokens is not None and "kv_tokens" not in figures and "full_kv_tokens" not in figures:
        figures["kv_tokens"] = tokens
    return figures


def _sizes(figures: dict[str, Printed], prefix: str, sizes: Section, text: str) -> None:
    for name, pattern in sizes.items():
        size = pattern.search(text)
        if size:
            figures.setdefault(prefix + name, Printed(size[1], size[0], GIB))


def _refusal(text: str, *, started: bool) -> LogRefusal | None:
    no_slots = _LINES["no_slots"].search(text)
    no_tokens = _LINES["no_tokens"].search(text)
    no_memory = _LINES["no_memory"].search(text)
    unbalanced = _LINES["unbalanced"].search(text)
    failed = torch_out_of_memory(text, "graphs" if started else "", _TABLE["stages"])
    refusal = None
    if no_slots:
        batch = _LINES["requests_of_a_batch"].search(text)
        refusal = _of_a_batch(no_slots[0], batch, "requests")
    elif no_tokens:
        batch = _LINES["tokens_of_a_batch"].search(text)
        refusal = _of_a_batch(no_tokens[0], batch, "tokens")
    elif failed and no_memory and not started:
        refusal = _between(failed, text)
    elif failed or started:
        refusal = failed
    elif no_memory:
        refusal = LogRefusal("no_memory", no_memory[0])
    elif unbalanced:
        free, more = (
            Printed(number, unbalanced[0], GIB) if number else None
            for number in unbalanced.groups()
        )
        refusal = LogRefusal("occupied", unbalanced[0], more, free)
    return refusal


def _of_a_batch(message: str, batch: re.Match[str] | None, where: str) -> LogRefusal:
    """Return that a batch got no request slots, or no tokens, of which it wanted so many."""
    if batch is None:
        return LogRefusal("out_of_memory", message, where=where)
    tried = Printed(batch["tried"], batch[0])
    free = Printed(batch["free"], batch[0])
    return LogRefusal("out_of_memory", message, tried, free, where)


def _between(failed: LogRefusal, text: str) -> LogRefusal:
    """Return that neither of two shares starts: with the smaller no cache is left, with the larger
    too little else.
    """
    shares = sorted({*re.findall(r"(?<![\d.])0\.\d{1,3}(?![\d.])", text)})
    smaller = "a smaller one"
    larger = "a larger one"
    if len(shares) == 2:
        smaller, larger = shares
    reason = (
        f"a share of {smaller} leaves nothing for the cache, and with {larger} an allocation "
        "beside it fails."
    )
    advice = advised("sglang", "between", {})
    return failed._replace(kind="no_memory", cause="nothing_left", reason=reason, advice=advice)


def _with_whole_share(settings: dict[str, str], version: str | None, text: str) -> dict[str, str]:
    """Return the settings with the share of --mem-fraction-static, if the log has it multiplied for
    AITER already.

    For example 0.7225, which is 0.85 of 0.85 (`SglangVersion.prints_share_of_aiter`).
    """
    printed_share = logs.first(_TABLE["settings"]["gpu_memory_utilization"], text)
    longest = settings.get("context")
    is_multiplied = (
        settings.get("attention_backend") == "aiter"
        and sglang_version(version).prints_share_of_aiter
    )
    if (
        printed_share is None
        or not is_multiplied
        or (longest and int(longest) <= AITER_RESERVED_FROM)
    ):
        return settings
    return settings | {
        "gpu_memory_utilization": f"{float(Fraction(printed_share) / (1 - AITER_RESERVE)):.4g}"
    }


# The figures beside the predicted ones


def log_checks(log: StartupLog, layout: CacheLayout, args: SglangArgs, context: int) -> LogChecks:
    """Return the sizes of the pools that have as many tokens, or slots, as printed.

    Only logs of compressed attention have the memory: then the tokens are those that follow from
    it.
    """
    available = logs.least(log.available)
    if available:
        memory = LogMemory(available.bytes, available.line, available.half)
        rounded = (memory.printed + step * memory.half for step in (0, -1, 1))
        expected, *ends = (
            figures_of(" ".join(layout.pool(size, context).log_lines)) for size in rounded
        )
        return memory, logs.size_checks(log, expected, ends=ends)
    named = {"state_slots": "state_slots", "full_kv_tokens": "kv_tokens", "kv_tokens": "kv_tokens"}
    given = next(
        (name for name in ("kv_tokens", "full_kv_tokens", "state_slots") if name in log.logged),
        None,
    )
    if given is None:
        return None, ()
    printed = int(log.logged[given].text)
    # the log has the tokens of one GPU
    if given == "state_slots":
        per_gpu = 1
    else:
        per_gpu = args.dcp

    def counted(memory: int) -> int:
        return int(layout.pool(memory, context).figure(named[given])) // per_gpu

    if given == "state_slots":
        bounds = None
    else:
        bounds = _with_as_many_slots(log, layout, context)
    if bounds is None:
        low = 0
        high = 1
        while counted(high) < printed and high < _BEYOND:
            low = high
            high = 2 * high
        bounds = low, high
    needed = first_true(lambda size: counted(size) >= printed, *bounds)
    source = f"{count(printed)} {logs.SIZES[given]}, as printed"
    predicted = figures_of(" ".join(layout.pool(needed, context).log_lines))
    if "state_slots" in predicted and not log.logged.keys() & _OF_STATES:
        missing = "Mamba Cache is allocated"
    else:
        missing = ""
    sizes = 0 if missing else _bytes_of_pools(log.logged)
    # the pools are larger than what SGLang divided
    if _bytes_of_pools(predicted) > needed * 51 // 50:
        sizes = 0
    return LogMemory(sizes or needed, source, missing=missing), logs.size_checks(
        log, predicted, given
    )


def _bytes_of_pools(figures: Mapping[str, Printed]) -> int:
    return sum(figure.bytes for name, figure in figures.items() if name.endswith("_size"))


def _with_as_many_slots(
    log: StartupLog, layout: CacheLayout, context: int
) -> tuple[int, int] | None:
    """Return the least memory with the printed number of slots of states, and the least with more.

    Only within one number of slots does more memory hold more tokens, since a further slot takes
    all its bytes at once. None if the log has no slots, or their number does not depend on the
    memory.
    """
    if "state_slots" not in log.logged:
        return None
    printed = int(log.logged["state_slots"].text)

    def slots(memory: int) -> int:
        return int(layout.pool(memory, context).figure("state_slots"))

    if slots(_BEYOND) <= printed:
        return None
    low = first_true(lambda memory: slots(memory) >= printed, 0, _BEYOND)
    return low, first_true(lambda memory: slots(memory) > printed, low, _BEYOND)


# What a log alone suggests


def log_advice(log: StartupLog) -> tuple[Advice, ...]:
    """Return what to change after a failed start."""
    refusal = log.refusal
    if refusal is None:
        return ()
    if refusal.kind == "overloaded":
        name = of_load(log)
    elif refusal.kind in ("occupied", "no_memory"):
        name = refusal.kind
    elif refusal.where == "killed":
        name = ""
    elif refusal.where and has_rows("sglang", refusal.where):
        name = refusal.where
    else:
        name = "unknown"
    if not name:
        return ()
    least = 0 if refusal.kind == "overloaded" else _least_share(log)
    # a step wants a token for each request
    at_once = 16
    if refusal.tried and refusal.line.startswith("Decode"):
        at_once = int(refusal.tried.number)
    if log.load:
        at_once = log.load.running
    most = log.settings.get("max_running_requests")
    figures = {
        **smaller_share(log, "0.75", "the log's mem_fraction_static is larger"),
        **figures_of_load(log),
        "larger_share": larger_share(log, "0.92", least),
        "more_gpus": more_gpus(log, "--tp"),
        "fewer_requests": max(1, at_once // 2),
        "more_slots": 2 * int(most) if most else "N",
        "has_helpers": refusal.use.together,
    }
    return advised("sglang", name, figures)


def _least_share(log: StartupLog) -> Fraction | int:
    """Return the share that leaves nothing for the cache: 1 - A1 / A0 of what is free; 0 if it is
    unknown.
    """
    stated = log.budget.get("least_share")
    if stated:
        return Fraction(stated.text)
    before, after, weights = (
        log.budget.get(name) for name in ("free_memory", "after_weights", "weights")
    )
    if after is None or not (before or weights):
        return 0
    if before:
        free = before.number
    elif weights:
        free = after.number + weights.number
    else:
        return 0
    if not free:
        return 0
    return 1 - after.number / free


# The GPU's memory


def logged_gpu_memory(log: StartupLog) -> int | None:
    """Return the bytes of the GPU. SGLang prints what is free after CUDA and communication have
    started.
    """
    free = log.budget.get("free_memory")
    total = logs.printed_gpu_memory(log)
    if not total and free:
        return free.bytes + _OUTSIDE
    return total


def logged_room(log: StartupLog, memory: int | None, share: str | float | None) -> int | None:
    """Return f A0 - W: what is free after the weights, less 1 - f of what was before."""
    before = log.budget.get("free_memory")
    after = log.budget.get("after_weights")
    if not before or not after or not share:
        return None
    numerator, denominator = parse_decimal(str(share), _SHARE_OPTION, upper=1)
    return after.bytes - before.bytes * (denominator - numerator) // denominator
