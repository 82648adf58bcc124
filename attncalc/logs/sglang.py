"""Reads a start-up log of SGLang: its arguments, and what it printed about its memory.

The lines are those of srt/model_executor/model_runner.py ('Load weight begin', 'Memory pool end',
'Capture cuda graph end'), srt/mem_cache/memory_pool.py ('KV Cache is allocated') and
srt/managers/scheduler.py ('max_total_num_tokens='). What it prints as GB are GiB.
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
from .startup_log import (
    COUNT,
    OUT_OF_MEMORY,
    Advice,
    LogChecks,
    LogMemory,
    LogRefusal,
    Printed,
    StartupLog,
)

SIGNS = (
    r"sglang|ServerArgs\(|KV Cache is allocated|Load weight "
    r"(?:begin|end)|max_total_num_tokens=|Memory pool end"
    r"|mem.fraction.static|Mamba Cache is allocated|(?:Decode|Prefill) batch|derived "
    r"context_length"
    r"|capacity is unbalanced|torch_memory_saver|alloc_req_slots|profiled value -"
    r"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: (?:DP|PP|TP|EP)\d{1,4}){1,4}\]"
)
WEIGHTS_TOLERANCE = (2, 2)
# Bytes that CUDA and communication take before SGLang prints what is free.
_OUTSIDE = GIB * 55 // 100
# More bytes than any device has: where a search for the memory ends.
_BEYOND = 2**60
_SHARE_OPTION = "--mem-fraction-static"
_START = re.compile(r"server_args=|ServerArgs\(|Init torch distributed begin")
_NO_MEMORY = (
    r"(?i:not enough memory\W{1,3}please try to increase)"
    r"|Loaded weights leave no GPU memory for the KV cache|Not enough GPU memory for hybrid"
    r"|is larger than the profiled value -\d"
)
# The least that is free on a GPU, and what is free on the one that says so.
_UNBALANCED = re.compile(
    r"The memory capacity is unbalanced\.(?: Some .{1,60}processes\.)?(?: "
    r"\w{1,40}_memory=(\d{1,6}(?:\.\d{1,20})?), "
    r"\w{1,40}_memory=(\d{1,6}(?:\.\d{1,20})?))?"
)
# A batch got no slots or no tokens, and the server ends (mem_cache/common.py).
_NO_SLOTS = re.compile(
    r"alloc_req_slots runs out of memory|(?:Prefill|Decode) out of memory\. Try to lower your batch"
)
_REQUESTS_OF_A_BATCH = re.compile(
    r"available_size\(\)=(?P<free>\d{1,12}), num_reqs=(?P<tried>\d{1,12})"
)
_TOKENS_OF_A_BATCH = re.compile(
    r"Try to allocate (?P<tried>\d{1,12}) tokens\.?\s{0,4}Ava\w{1,8} tokens: ?(?P<free>\d{1,12})"
)
_UNBALANCED_CHECK = "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK"
_OUTCOME = re.compile(
    r"Cache is "
    rf"allocated|max_total_num_tokens=\d|{_NO_MEMORY}|{OUT_OF_MEMORY}|{_UNBALANCED.pattern}"
)
# Functions of SGLang in the traceback of an allocation that failed.
_STAGES = {
    "serving": re.compile(logs.in_calls(r"forward_thread_func|event_loop_\w{1,20}|run_batch")),
    "graphs": re.compile(
        logs.in_calls("init_cuda_graphs|capture|capture_one_batch_size")
        + r"|self\.capture\(|(?i:Capture cuda graph failed)"
    ),
    "pool": re.compile(logs.in_calls("init_memory_pool|_create_buffers")),
    "weights": logs.OF_WEIGHTS,
}


def _argument(names: str, value: str = r"[\w.]{1,40}") -> re.Pattern[str]:
    """Return a pattern for an argument in ServerArgs(name=value)."""
    return re.compile(rf"(?<!\w)'?(?:{names})'?[=:] ?'?(?!None|auto)({value})")


_MODEL = re.compile(r"model_path='([^']{1,4096})'|--model(?:-path)? ([^\s']{1,4096})")
_VERSION = re.compile(r"(?:sglang|SGLang)(?:[ =:]{1,3}| version )v?(\d{1,6}\.\d{1,6}\.\d{1,6})")
_SETTINGS = {
    "tp": _argument("tp_size|tp", r"\d{1,6}"),
    "pp": _argument("pp_size|pp", r"\d{1,6}"),
    "dcp": _argument("dcp_size", r"\d{1,6}"),
    "context": re.compile(r"context_len(?:gth)?'?[=:] ?(\d{1,12})"),
    "dtype": re.compile(
        r"(?<!\w)dtype='(?!auto)(\w{1,40})'|Load weight end\. type=\w{1,80}, "
        r"dtype=torch\.(\w{1,40})"
    ),
    "kv_dtype": re.compile(
        r"kv_cache_dtype='?(?!auto)(\w{1,40})|Using KV cache dtype: torch\.(\w{1,40})"
    ),
    "gpu_memory_utilization": _argument("mem_fraction_static", r"[01]?\.\d{1,12}"),
    "attention_backend": _argument("attention_backend"),
    "block_size": _argument("page_size", r"\d{1,6}"),
    "swa_full_tokens_ratio": _argument("swa_full_tokens_ratio", r"\d{0,6}\.?\d{1,9}"),
    "mamba_full_memory_ratio": _argument("mamba_full_memory_ratio", r"\d{0,6}\.?\d{1,9}"),
    "mamba_ssm_cache_dtype": _argument("mamba_ssm_dtype"),
    "mamba_radix_cache_strategy": _argument("mamba_(?:radix_cache|scheduler)_strategy"),
    "speculative_tokens": _argument("speculative_num_draft_tokens", r"\d{1,6}"),
}
_ALGORITHM = _argument("speculative_algorithm")
_DRAFTER = re.compile(
    r"speculative_draft_model_path='([^']{1,4096})'|--speculative-draft-model-path ([^\s']{1,4096})"
)
# The options of a pasted command, for what the engine's own lines lack.
_OPTIONS = {
    "tp": logs.option("tp-size|tensor-parallel-size|tp", r"\d{1,6}(?!\w|\.\d)"),
    "context": logs.option("context-len(?:gth)?", r"\d{1,12}(?!\w|\.\d)"),
    "kv_dtype": logs.option("kv-cache-dtype"),
    "gpu_memory_utilization": logs.option("mem-fraction(?:-static)?", r"[01]?\.\d{1,12}"),
}
_ARGUMENTS = {
    name: re.compile(rf"(?<!\w){name}=([1-9]\d{{0,9}})(?!\d)")
    for name in ("chunked_prefill_size", "max_mamba_cache_size", "max_total_tokens")
} | {"kt_num_gpu_experts": _argument("kt_num_gpu_experts", r"\d{1,6}")}
_REQUESTS = re.compile(r"max_running_requests'?[=:] ?'?(\w{1,12})")
_RANKS = _argument("attn_dp_size", r"\d{1,6}")
_REPLICAS = _argument("dp_size", r"\d{1,6}")
_DP_ATTENTION = re.compile(r"enable_dp_attention'?[=:] ?True")
_EXPERTS = _argument("ep_size", r"\d{1,6}")
# Characters of ServerArgs(...): some 10,000.
_LONGEST_ARGS = 30_000
_FLAGS = {"disable_hybrid_swa_memory": re.compile(r"disable_hybrid_swa_memory=True")}
_QUANTIZATION = re.compile(r"(?<!\w)quantization='(\w{1,40})'")
_POOL = re.compile(
    r"(?P<kind>Full |SWA |)KV Cache is allocated\.(?P<rest>.{0,200}?size: {0,4}[\d.]{1,20} "
    r"?GB(?:, V size: "
    r"{0,4}[\d.]{1,20} ?GB)?)"
)
# The first line counts: --max-total-tokens may shrink the pools after that.
_COMPRESSED = re.compile(r"DSV4 pool sizes: full=(\d{1,12}), swa=(\d{1,12})")
_AVAILABLE = logs.gib(r"DSV4 memory calculation:[^\[]{0,200}?available_bytes=SIZE")
_STATES = re.compile(r"Mamba Cache is allocated\..{0,200}?ssm_state size: ?[\d.]{1,20} ?GB")
_TOKENS = re.compile(rf"#tokens: {COUNT}")
_NUMBER = r"[ :]{1,4}(\d{1,9}(?:\.\d{1,9})?) ?GB"
_SIZES = {"k_size": r"K size", "v_size": r"V size", "kv_size": r"KV size"}
_STATE_SIZES = {"conv_state_size": "conv_state size", "ssm_state_size": "ssm_state size"}
_OF_STATES = {"state_slots", *_STATE_SIZES}
_BUDGET = {
    "gpu_memory": logs.gib(r"has (?:a total capacity of )?SIZE of which|SIZE total(?: capacity)?;"),
    "least_share": re.compile(r"Raise --mem-fraction-static above (0\.\d{1,6})"),
    "free_memory": logs.gib(r"Load weight begin\. avail mem=SIZE"),
    "weights": logs.gib(r"Load weight end\.[^\[]{0,300}?mem usage=SIZE"),
    "after_weights": logs.gib(r"Load weight end\.[^\[]{0,300}?avail mem=SIZE"),
    "after_cache": logs.gib(r"Memory pool end\. avail mem=SIZE"),
    "cuda_graphs": logs.gib(r"Capture (?:\w{1,20} )?cuda graph end\.[^\[]{0,200}?mem usage=SIZE"),
}
_LOADED = re.compile(
    r"Load weight end\.[^\[]{0,120}?type=(?P<type>\w{1,80})[^\[]{0,200}?avail "
    r"mem=(?P<free>[\d.]{1,12}) GB, "
    r"mem usage=(?P<used>[\d.]{1,12}) GB"
)


_LOAD = re.compile(
    r"(?:Decode|Prefill) batch(?=.{0,200}?#running-req: (?P<running>\d{1,9}))"
    r"(?=.{0,200}?token usage: (?P<usage>[01]\.\d{1,9}))(?:.{0,400}?#queue-req: "
    r"(?P<waiting>\d{1,9}))?"
)
_PREEMPTION = re.compile(r"Retract requests")


def read_log(lines: Sequence[str], stated: LogRefusal | None = None) -> StartupLog | None:
    """Return the contents of the log; None if it has neither the size of the cache nor a message
    why there is none.
    """
    text, starts = logs.last_start(logs.without_load(lines, _LOAD), _START, _OUTCOME)
    logged = figures_of(text)
    budget = {
        name: figure
        for name, figure in logs.read_budget(_BUDGET, text).items()
        if figure.number or name != "weights"
    }
    budget |= _with_drafter(text)
    before, after = budget.get("free_memory"), budget.get("after_weights")
    if "weights" not in budget and before and after and before.number > after.number:  # up to 0.4.3
        used = float(before.number - after.number)
        budget["weights"] = Printed(f"{used:.2f}", f"{before.line}, {after.line}", GIB)
    refusal = stated or _refusal(text, started=bool(logged))
    load = logs.busiest(lines, _START, _LOAD, _PREEMPTION)
    if refusal is None and not logged:
        refusal = logs.without_a_start(load, lines, _START, _STAGES)
        if refusal is None:
            return None
    version = logs.first(_VERSION, text)
    return StartupLog(
        engine="sglang",
        version=version,
        model=logs.first(_MODEL, text),
        settings=_with_whole_share(_settings(text), version, text),
        flags=logs.read_flags(_FLAGS, text),
        available=tuple(logs.printed(_AVAILABLE, text, GIB)),
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
    loads = [*_LOADED.finditer(text)]
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
    if before := logs.read_budget({"free_memory": _BUDGET["free_memory"]}, first_load):
        found |= before
    pools = _POOL.search(text)
    if pools and loads[-1].start() < pools.start():
        after = min(loads, key=lambda load: Fraction(load["free"]))
        found["after_weights"] = Printed(after["free"], after[0], GIB)
    return found


def _settings(text: str) -> dict[str, str]:
    settings = logs.read_settings(_OPTIONS, text) | logs.read_settings(_SETTINGS, text)
    # the line of max_total_num_tokens has the number that SGLang made of it
    arguments = text.partition("ServerArgs(")[2].partition("max_total_num_tokens=")[0]
    settings |= logs.read_settings(_ARGUMENTS, arguments[:_LONGEST_ARGS])
    requests = logs.first(_REQUESTS, arguments[:_LONGEST_ARGS])
    if requests and requests.isdecimal():
        settings["max_running_requests"] = requests
    ranks = logs.first(_RANKS, text) or (
        logs.first(_REPLICAS, text) if _DP_ATTENTION.search(text) else None
    )
    if ranks:
        settings["attn_dp"] = ranks
    if logs.first(_EXPERTS, text) not in (None, "0", "1"):
        settings["enable_expert_parallel"] = "True"
    algorithm = logs.first(_ALGORITHM, text)
    drafter = logs.first(_DRAFTER, text)
    if algorithm and algorithm != "NGRAM":
        if algorithm in ("DFLASH", "DSPARK"):
            settings["speculative_layers"] = "0"
        else:
            settings["speculative_layers"] = "1"
        # multi-token prediction names the model
        if drafter and drafter != logs.first(_MODEL, text):
            settings["speculative_model"] = drafter
    if settings.get("kv_dtype", "").startswith("fp4"):
        settings["kv_dtype"] = "fp4"
    return settings | logs.read_weights_dtype(_QUANTIZATION, text)


def figures_of(text: str) -> dict[str, Printed]:
    """Return the sizes of the pools in those lines: SGLang's own, or the ones that attncalc
    predicts.
    """
    figures: dict[str, Printed] = {}
    tokens = logs.least(logs.printed(re.compile(rf"max_total_num_tokens={COUNT}"), text))
    for match in _POOL.finditer(text):
        kind = match["kind"].strip().lower()
        prefix = f"{kind}_" if kind else ""
        if count := _TOKENS.search(match["rest"]):
            figures.setdefault(f"{prefix}kv_tokens", Printed(count[1].replace(",", ""), match[0]))
        _sizes(figures, prefix, _SIZES, match["rest"])
    if compressed := _COMPRESSED.search(text):
        for name, tokens_text in zip(
            ("full_kv_tokens", "swa_kv_tokens"), compressed.groups(), strict=True
        ):
            figures[name] = Printed(tokens_text, compressed[0])
    if states := _STATES.search(text):
        if slots := re.search(rf"max_mamba_cache_size: {COUNT}", states[0]):
            figures.setdefault("state_slots", Printed(slots[1].replace(",", ""), states[0]))
        _sizes(figures, "", _STATE_SIZES, states[0])
    if tokens is not None and "kv_tokens" not in figures and "full_kv_tokens" not in figures:
        figures["kv_tokens"] = tokens
    return figures


def _sizes(figures: dict[str, Printed], prefix: str, labels: dict[str, str], text: str) -> None:
    for name, label in labels.items():
        if size := re.search(rf"(?<!\w){label}{_NUMBER}", text):
            figures.setdefault(prefix + name, Printed(size[1], size[0], GIB))


def _refusal(text: str, *, started: bool) -> LogRefusal | None:
    if match := _NO_SLOTS.search(text):
        is_of_requests = match[0].startswith("alloc_req_slots")
        batch = (_REQUESTS_OF_A_BATCH if is_of_requests else _TOKENS_OF_A_BATCH).search(text)
        tried, free = (
            (Printed(batch[name], batch[0]) for name in ("tried", "free"))
            if batch
            else (None, None)
        )
        return LogRefusal(
            "out_of_memory", match[0], tried, free, where="requests" if is_of_requests else "tokens"
        )
    if failed := logs.torch_out_of_memory(text, "graphs" if started else "", _STAGES):
        return _between(failed, text) if re.search(_NO_MEMORY, text) and not started else failed
    if started:
        return None
    if match := re.search(_NO_MEMORY, text):
        return LogRefusal("no_memory", match[0])
    if match := _UNBALANCED.search(text):
        free, more = (Printed(match[i], match[0], GIB) if match[i] else None for i in (1, 2))
        return LogRefusal("occupied", match[0], more, free)
    return None


def _between(failed: LogRefusal, text: str) -> LogRefusal:
    """Return that neither of two shares starts: with the smaller no cache is left, with the larger
    too little else.
    """
    shares = sorted({*re.findall(r"(?<![\d.])0\.\d{1,3}(?![\d.])", text)})
    smaller, larger = shares if len(shares) == 2 else ("a smaller one", "a larger one")
    reason = (
        f"a share of {smaller} leaves nothing for the cache, and with {larger} an allocation "
        "beside it fails."
    )
    advice = (
        Advice("more GPUs, or else weights in fewer bits", "--tp 2"),
        Advice("CUDA graphs for smaller batches, between the two shares", "--cuda-graph-max-bs 8"),
        Advice(
            "less beside the weights: smaller prefill steps, or no draft model",
            "--chunked-prefill-size 2048",
        ),
    )
    return failed._replace(kind="no_memory", cause="nothing_left", reason=reason, advice=advice)


def _with_whole_share(settings: dict[str, str], version: str | None, text: str) -> dict[str, str]:
    """Return the settings with the share of --mem-fraction-static, if the log has it multiplied for
    AITER already.

    For example 0.7225, which is 0.85 of 0.85 (`SglangVersion.prints_share_of_aiter`).
    """
    printed_share = logs.first(_SETTINGS["gpu_memory_utilization"], text)
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
    if available := logs.least(log.available):
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
    fewer_weights = Advice("more GPUs, or else weights in fewer bits", logs.more_gpus(log, "--tp"))
    if refusal.kind == "overloaded":
        larger = logs.larger_share(log, _SHARE_OPTION, "0.92", 0)
        return logs.for_load(
            log,
            "--max-running-requests",
            "fp8_e4m3",
            *larger,
            Advice("more GPUs", fewer_weights.option),
        )
    if refusal.kind == "occupied":
        return (
            Advice("start with the least of them, if the GPUs differ", f"{_UNBALANCED_CHECK}=0"),
        )
    if refusal.kind == "no_memory":
        return (*logs.larger_share(log, _SHARE_OPTION, "0.92", _least_share(log)), fewer_weights)
    smaller = logs.smaller_share(log, _SHARE_OPTION, "0.75")
    # a step wants a token for each request
    is_decode = refusal.tried and refusal.line.startswith("Decode")
    at_once = int(refusal.tried.number) if refusal.tried and is_decode else 16
    fewer = max(1, (log.load.running if log.load else at_once) // 2)
    slots = (
        2 * int(log.settings["max_running_requests"])
        if "max_running_requests" in log.settings
        else "N"
    )
    changes = {
        "killed": (),
        "tokens": (Advice("fewer requests in a batch", f"--max-running-requests {fewer}"),),
        "requests": (
            Advice("more request slots than it has", f"--max-running-requests {slots}"),
            Advice("a newer SGLang, if few requests run: some versions do not release all slots"),
        ),
        "graphs": (
            smaller,
            Advice("graphs for smaller batches", "--cuda-graph-max-bs 4"),
            Advice(
                "no CUDA graphs: slower, and shows whether they are the cause",
                "--disable-cuda-graph",
            ),
        ),
        "pool": (smaller,),
        "weights": (fewer_weights,),
    }
    steps = Advice("smaller prefill steps", "--chunked-prefill-size 2048")
    on_cpu = Advice(
        "if it reads images: they are prepared on the CPU", "--disable-fast-image-processor"
    )
    fewer_at_once = Advice("fewer requests at once", "--max-running-requests 16")
    running = (fewer_at_once,) if refusal.where == "serving" else ()
    return changes.get(
        refusal.where, (smaller, *((on_cpu,) if refusal.use.together else ()), steps, *running)
    )


def _least_share(log: StartupLog) -> Fraction | int:
    """Return the share that leaves nothing for the cache: 1 - A1 / A0 of what is free; 0 if it is
    unknown.
    """
    if stated := log.budget.get("least_share"):
        return Fraction(stated.text)
    before, after, weights = (
        log.budget.get(name) for name in ("free_memory", "after_weights", "weights")
    )
    if after is None or not (before or weights):
        return 0
    free = before.number if before else after.number + weights.number if weights else 0
    return 1 - after.number / free if free else 0


# The GPU's memory


def logged_gpu_memory(log: StartupLog) -> int | None:
    """Return the bytes of the GPU. SGLang prints what is free after CUDA and communication have
    started.
    """
    free = log.budget.get("free_memory")
    return logs.printed_gpu_memory(log) or (free.bytes + _OUTSIDE if free else None)


def logged_room(log: StartupLog, memory: int | None, share: str | float | None) -> int | None:
    """Return f A0 - W: what is free after the weights, less 1 - f of what was before."""
    before = log.budget.get("free_memory")
    after = log.budget.get("after_weights")
    if not before or not after or not share:
        return None
    numerator, denominator = parse_decimal(str(share), _SHARE_OPTION, upper=1)
    return after.bytes - before.bytes * (denominator - numerator) // denominator
