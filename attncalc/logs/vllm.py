"""Reads a start-up log of vLLM: the engine's settings, and the figures that it printed about its
memory.

vllm.txt has the lines.
"""

import contextlib
import json
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ..check import Check
from ..engines.base import CacheLayout
from ..engines.vllm.options import (
    DEEPEP,
    DRAFTER_KEYS,
    DRAFTER_LAYERS,
    GATHERED,
    VllmArgs,
    json_object,
)
from ..engines.vllm.versions import RELEASES, VllmVersion, releases_of, vllm_version
from ..errors import AttncalcError, is_valid
from ..search import first_true
from ..units import BYTES, GIB, TOKENS, count, long_option
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
from .endings import unfinished, without_a_start
from .lines import either, lines_of
from .pytorch import OUT_OF_MEMORY, torch_out_of_memory
from .startup_log import Advice, LogChecks, LogMemory, LogRefusal, Printed, StartupLog

WEIGHTS_TOLERANCE = (2, 2)
PREEMPTED = "preempted"
# The figures of the cache, with their labels.
_LABELS = {
    "kv_block_size": "tokens per block",
    "kv_blocks": "blocks",
    "cpu_blocks": "blocks in host memory",
    "kv_tokens": "tokens",
    "concurrency": "concurrency",
    "kv_bytes_per_sequence": "needed for one request",
    "max_context": "longest context",
}
# Half of the last of its two decimals: 44.625 is printed as 44.62 or 44.63.
_HALF_OF_CONCURRENCY = 0.005 + 1e-9
# More blocks than any memory holds.
_MOST_BLOCKS = 1 << 60
# The environment variable with the GiB of the cache on a CPU: 4 by default.
_CPU_SPACE = "VLLM_CPU_KVCACHE_SPACE"
# Bytes that smaller steps hardly free more than: logits and activations of 8,192 tokens.
_FREED_BY_STEPS = 2 * GIB
# Bytes of an allocation that only the attention of an image of many patches asks for.
_HUGE = 64 * GIB
_LARGEST = "0.95"
# {a manager of the exchange of tokens, as logs name it: the value of --all2all-backend}.
_MANAGERS = {
    "DeepEPHTAll2AllManager": DEEPEP,
    "High": DEEPEP,
    "DeepEPLLAll2AllManager": "deepep_low_latency",
    "Low": "deepep_low_latency",
    "DeepEPV2All2AllManager": "deepep_v2",
    "NixlEPAll2AllManager": "nixl_ep",
    "PPLXAll2AllManager": "pplx",
    "PPLX": "pplx",
    "FlashInferNVLinkOneSidedManager": "flashinfer_nvlink_one_sided",
    "FlashInferNVLinkTwoSidedManager": "flashinfer_nvlink_two_sided",
    "FlashInferAllToAllManager": "flashinfer_all2allv",
    "MoriAll2AllManager": "mori_high_throughput",
    "MoonEPAll2AllManager": "moonep",
}
# The value of MoRI's manager in versions that have one value for it.
_MORI = "mori"
_TABLE = lines_of("vllm")
_LINES = _TABLE["lines"]
SIGNS = _LINES["sign"]
_OUTCOME = either(
    *(_LINES[name] for name in ("size", "too_long", "no_memory", "occupied", "released")),
    OUT_OF_MEMORY,
)


def read_log(lines: Sequence[str], stated: LogRefusal | None = None) -> StartupLog | None:
    """Return the contents of the log; None if it has neither the size of the cache nor a message
    why there is none.
    """
    text, starts = logs.last_start(
        logs.without_load(lines, _LINES["load"]), _LINES["start"], _OUTCOME
    )
    # as in Python and in JSON: max_model_len=30_000, "kv_cache_dtype": "fp8"
    text = re.sub(r"(?<=\d)_(?=\d{3}\b)", "", text).replace('"', "'")
    version = _version(text)
    settings = _settings(text)
    manager = settings.pop("exchange", "")
    if settings.get("dp", "1") != "1":
        settings["all2all_backend"] = _backend_of(manager, version)
    connector = settings.pop("kv_connector", "")
    if connector and not _has_unknown_connectors(connector, version):
        settings["kv_transfer_config"] = json.dumps({"kv_connector": connector})
    contexts = logs.printed(_LINES["concurrency"], text)
    if contexts:
        settings["context"] = contexts[-1].text
    logged = _figures_of(text)
    available: list[Printed] = []
    for lines_of_memory in _TABLE["available"].values():
        available = available or logs.printed(lines_of_memory, text, GIB)
    refusal = stated or _refusal(text, logged, available)
    load = logs.busiest(lines, _LINES["start"], _LINES["load"], _LINES["preemption"])
    if refusal is None and not logged.keys() & {"kv_tokens", "concurrency"}:
        has_size = available or logged.keys() & {"kv_blocks", "kv_memory"}
        ended = unfinished(lines, _LINES["start"])
        has_ended = ended is not None and ended.where in ("error", "killed")
        if has_ended or not has_size:
            refusal = without_a_start(load, lines, _LINES["start"], _TABLE["stages"])
        if refusal is None and (has_ended or not has_size):
            return None
    return StartupLog(
        engine="vllm",
        version=version,
        model=logs.first(_LINES["model"], text) or logs.first(_LINES["other_model"], text),
        settings=settings,
        flags=logs.read_flags(_TABLE["flags"], text),
        available=tuple(available),
        logged=logged,
        budget=logs.read_budget(_TABLE["budget"], text),
        refusal=refusal,
        starts=starts,
        releases=() if version else releases_of(text),
        load=load,
        on_metal=_LINES["metal"].search(text) is not None,
        is_assumed=load is None and _LINES["own"].search(text) is None,
    )


def _version(text: str) -> str | None:
    """Return the version, 'v0' of the old engine; None if the log does not have it."""
    engine = _LINES["engine"].search(text)
    # lines that only the old engine prints
    if _LINES["cpu_blocks"].search(text) or _LINES["too_long"].search(text):
        return "v0"
    if engine and engine["engine"] == "V0":
        return "v0"
    if engine:
        return engine["version"]
    return logs.first(_LINES["banner"], text) or logs.first(_LINES["any_version"], text)


def _figures_of(text: str) -> dict[str, Printed]:
    """Return the figures of the cache: of ranks that print different ones, the least."""
    found = {name: logs.printed(pattern, text) for name, pattern in _TABLE["figures"].items()}
    found["kv_bytes_per_sequence"] = logs.printed(_LINES["needed"], text, GIB)
    found["concurrency"] = [
        Printed(match["concurrency"], match[0]) for match in _LINES["concurrency"].finditer(text)
    ]
    logged: dict[str, Printed] = {}
    for name, figures in found.items():
        figure = logs.least(figures)
        if figure:
            logged[name] = figure
    blocks = _LINES["cpu_blocks"].search(text)
    if blocks:
        logged["kv_blocks"] = Printed(blocks["blocks"], blocks[0])
        logged["cpu_blocks"] = Printed(blocks["cpu_blocks"], blocks[0])
    too_long = _LINES["too_long"].search(text)
    if too_long and too_long["tokens"]:
        logged["kv_tokens"] = Printed(too_long["tokens"].replace(",", ""), too_long[0])
    return logged


def _settings(text: str) -> dict[str, str]:
    # a later mention of a setting may be its drafter's
    settings = logs.read_settings(_TABLE["options"], text) | logs.read_settings(
        _TABLE["settings"], text
    )
    for name, yes in _TABLE["yes"].items():
        if _TABLE["no"][name].search(text):
            settings[name] = "False"
        elif yes.search(text):
            settings[name] = "True"
    if _LINES["no_prefixes"].search(text):
        settings["prefix_caching"] = "False"
    settings |= _settings_of_drafter(text)
    ranks = _LINES["ranks"].search(text)
    if ranks and not settings.keys() & {"tp", "pp"}:
        settings["tp"] = ranks[1]
    return settings | logs.read_weights_dtype(_LINES["quantization"], text)


def _backend_of(manager: str, version: str | None) -> str:
    """Return the value of --all2all-backend that made a manager of the exchange; vLLM's own without
    one.
    """
    backend = _MANAGERS.get(manager, GATHERED)
    if is_valid(vllm_version, version):
        backends = vllm_version(version).all2all_backends
        if backend not in backends and _MORI in backends:
            return _MORI
    return backend


def _has_unknown_connectors(connector: str, version: str | None) -> bool:
    """Return whether a connector has others, which the log does not name, and they decide whether
    the hybrid KV-cache manager stays on: another line says if it is turned off.
    """
    if connector != "MultiConnector" or not is_valid(vllm_version, version):
        return False
    return vllm_version(version).asks_connectors


def _settings_of_drafter(text: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    drafters = [*_LINES["drafter"].finditer(text)]
    if drafters:
        drafter = next((found for found in drafters if found["model"]), drafters[0])
        method = drafter["method"]
        model = drafter["model"]
        is_of_release = method.endswith("mtp") or not model or f"config: model='{model}'" in text
        has_layers = method.endswith(("mtp", "eagle", "eagle3")) or (
            method == "dspark" and is_of_release
        )
        if has_layers:
            settings["speculative_layers"] = DRAFTER_LAYERS.get(method, "1")
        else:
            settings["speculative_layers"] = "0"
        if not is_of_release:
            settings["speculative_model"] = model
    given = _LINES["drafter_given"].search(text)
    if given:
        with contextlib.suppress(AttncalcError):  # a line that is cut
            keys = json_object(given[1], "speculative_config", "").items()
            settings["speculative_config"] = json.dumps(
                {key: value for key, value in keys if key not in DRAFTER_KEYS}
            )
    return settings


def _refusal(text: str, logged: dict[str, Printed], available: list[Printed]) -> LogRefusal | None:
    """Return why this start ended without an engine; None if it has the tokens of its cache and no
    memory ran out.
    """
    too_long = _LINES["too_long"].search(text)
    if too_long:
        return LogRefusal("too_small", too_long[0])
    sizes = [logged[name] for name in ("kv_tokens", "concurrency") if name in logged]
    started = any(figure.number > 0 for figure in sizes)
    if "kv_bytes_per_sequence" in logged and not started:
        return LogRefusal("too_small", logged["kv_bytes_per_sequence"].line)
    released = _LINES["released"].search(text)
    if released:
        before = Printed(released["before"], released[0], GIB)
        after = Printed(released["after"], released[0], GIB)
        return LogRefusal("occupied", released[0], after, before, "profile")
    sized = [*available]
    if "kv_blocks" in logged:
        sized.append(logged["kv_blocks"])
    where = ""
    if started:
        where = "sampler"
    elif any(figure.number > 0 for figure in sized):
        where = "rest"
    failed = torch_out_of_memory(text, where, _TABLE["stages"])
    if failed or started:
        return failed
    return _without_memory(text, available)


def _without_memory(text: str, available: list[Printed]) -> LogRefusal | None:
    """Return that vLLM found other processes in its memory, or none left for the cache."""
    occupied = _LINES["occupied"].search(text)
    if occupied:
        return LogRefusal("occupied", occupied[0])
    empty = _LINES["no_memory"].search(text)
    if empty:
        return LogRefusal("no_memory", empty[0])
    none_left = [figure for figure in available if figure.number <= 0]
    if none_left:
        return LogRefusal("no_memory", none_left[0].line)
    return None


# The figures beside the predicted ones


def log_checks(log: StartupLog, layout: CacheLayout, args: VllmArgs, context: int) -> LogChecks:
    """Return the memory for the cache that a log has, and its figures beside those that follow from
    that memory.

    Raises AttncalcError if a running engine's log has neither a memory nor blocks.
    """
    memory = _logged_memory(log, layout, context)
    if memory is None:
        return None, ()
    ends = [max(0, memory.printed + step * memory.half) for step in (-1, 0, 1)]
    pools = [layout.pool(size, context) for size in ends]
    logged = {name: figure for name, figure in log.logged.items() if name in _LABELS}
    if args.pp > 1:  # versions differ in which stage's layers they count
        logged.pop("max_context", None)
        if args.version.checks_all_layers:
            logged.pop("kv_bytes_per_sequence", None)
    checks = [
        _check(name, logged[name], [pool.figure(name) for pool in pools])
        for name in _LABELS
        if name in logged.keys() - {"max_context"}
    ]
    if "max_context" in logged:
        kept = 0
        if args.version.checks_usable_blocks:
            details = layout.pool(0, context).details
            kept = sum(int(each.quantity) for each in details if each.name == "kv_bytes_per_block")
        longest = [_longest(layout, end - kept, context) for end in ends]
        checks.append(_check("max_context", logged["max_context"], longest))
    return memory, tuple(checks)


def _logged_memory(log: StartupLog, layout: CacheLayout, context: int) -> LogMemory | None:
    """Return the least memory that a rank printed; if none did, that of the printed number of
    blocks or tokens.

    None if the engine did not get so far. Raises AttncalcError if it did.
    """
    if "kv_memory" in log.logged:
        exact = int(log.logged["kv_memory"].text)
        return LogMemory(exact, f"{count(exact)} B of the log")
    available = logs.least(log.available)
    if available:
        return LogMemory(available.bytes, available.line, available.half)
    details = {detail.name: int(detail.quantity) for detail in layout.pool(0, context).details}
    is_known = log.refusal or details.get("kv_groups") == 1 or "concurrency" in log.logged
    has_tokens = "kv_tokens" in log.logged and is_known
    if "kv_blocks" in log.logged or has_tokens:
        if "kv_blocks" in log.logged:
            blocks = int(log.logged["kv_blocks"].text)
        else:
            blocks = _blocks_of_tokens(log, layout, details["kv_bytes_per_block"], context)
        return LogMemory(
            blocks * details["kv_bytes_per_block"], f"{count(blocks)} blocks, as printed"
        )
    if log.refusal is not None:
        return None
    raise AttncalcError(
        "the log has neither the memory for the cache nor the number of blocks",
        "give the memory with --kv-memory instead, or a log with 'Available KV cache memory: ... "
        "GiB'",
    )


def _blocks_of_tokens(log: StartupLog, layout: CacheLayout, block_bytes: int, context: int) -> int:
    """Return the fewest blocks of which vLLM prints the log's tokens, and its concurrency or a
    larger one.

    Tokens are no whole blocks: 24,393 blocks of 16 tokens with 63 for each request of 1,000 tokens
    are 387,190 tokens, int(24,393 / 63 * 1,000). If more blocks are one request's than its tokens,
    several numbers print the same tokens.
    """
    tokens = int(log.logged["kv_tokens"].text)
    if "concurrency" in log.logged:
        concurrency = float(log.logged["concurrency"].text)
    else:
        concurrency = 0.0

    def is_enough(blocks: int) -> bool:
        pool = layout.pool(blocks * block_bytes, context)
        printed = int(pool.figure("kv_tokens"))
        if printed != tokens:
            return printed > tokens
        return float(pool.figure("concurrency")) >= concurrency - _HALF_OF_CONCURRENCY

    high = 1
    while not is_enough(high) and high < _MOST_BLOCKS:
        high *= 2
    return first_true(is_enough, -1, high)


def _check(name: str, printed: Printed, predicted: Sequence[int | float]) -> Check:
    """Return the check of one figure; its tolerance is what the log's rounding allows."""
    low, middle, high = predicted
    label = _LABELS[name]
    note = "exact"
    if low != high:
        note = "the log's memory is rounded"
    if name == "kv_bytes_per_sequence":
        return Check("log", name, label, middle, printed.bytes, printed.half, BYTES, note)
    measured: int | float = int(printed.text) if name != "concurrency" else float(printed.text)
    tolerance = middle - low
    if measured > middle:
        tolerance = high - middle
    if name == "concurrency":
        tolerance += _HALF_OF_CONCURRENCY
    unit = ""
    if name in ("kv_tokens", "kv_block_size", "max_context"):
        unit = TOKENS
    return Check("log", name, label, middle, measured, tolerance, unit, note)


def _longest(layout: CacheLayout, memory: int, context: int) -> int:
    """Return the longest context up to `context` of which one request fits in that memory, as vLLM
    estimates it.

    Unlike `needed`, that leaves out the block that it keeps free, which is none of `memory`.
    """

    def needed(tokens: int) -> int:
        return int(layout.pool(memory, tokens).figure("kv_bytes_per_sequence"))

    return first_true(lambda tokens: needed(tokens) > memory, 0, context + 1) - 1


# What a log alone suggests


def log_advice(log: StartupLog) -> tuple[Advice, ...]:
    """Return what to change after a failed start: first what the log's own figures show to be
    enough.
    """
    refusal = log.refusal
    if refusal is None:
        return ()
    if refusal.kind == "overloaded":
        name = of_load(log)
    elif refusal.kind == "too_small":
        name = "too_small"
    elif refusal.kind == "out_of_memory":
        name = _failed_allocation(log, refusal)
    elif refusal.kind == "occupied":
        name = ""
    else:
        name = "no_memory"
    if not name:
        return ()
    figures = _advised_figures(log) | _for_one_request(log, refusal)
    return advised("vllm", name, figures)


def _failed_allocation(log: StartupLog, refusal: LogRefusal) -> str:
    """Return the name of the advice for what was allocated; '' if none helps."""
    is_huge = refusal.tried is not None and refusal.tried.bytes >= _HUGE
    share = Fraction(log.settings.get("gpu_memory_utilization", "0"))
    if refusal.where == "killed":
        return ""
    if is_huge and not refusal.where:
        return "encoder"
    if refusal.where and has_rows("vllm", refusal.where):
        return refusal.where
    if share >= Fraction(_LARGEST):
        return "unknown_of_large_share"
    return "unknown"


def _advised_figures(log: StartupLog) -> dict[str, Any]:
    """Return the figures of the rows of advice.txt, but those for one request."""
    share = Fraction(log.settings.get("gpu_memory_utilization", "1"))
    graphs = log.budget.get("cuda_graphs")
    both_shares = None
    if share < Fraction(1, 2) and any(one.counts_other_processes for one in _versions(log)):
        both_shares = f"{float(2 * share):.2g}"
    figures = {
        **smaller_share(log, "0.85", f"it has the default, {_default_share(log)}"),
        **figures_of_load(log),
        "larger_share": _larger_share(log),
        "more_gpus": more_gpus(log, "-tp"),
        "on_metal": log.on_metal,
        "both_shares": both_shares,
        "large_graphs": graphs is not None and graphs.number >= 1,
        "fewer_sequences": max(1, int(log.settings.get("max_num_seqs", "256")) // 4),
        "steps": _smaller_steps(log),
    }
    if log.on_metal:  # it refuses tensor parallelism, and caches in the model's dtype
        figures |= {"default_cache": False, "more_gpus": None}
    return figures


def _versions(log: StartupLog) -> list[VllmVersion]:
    """Return the versions that may have written the log, the newest first: the newest known one if
    it is newer.
    """
    names = log.releases or RELEASES
    if log.version:
        names = (log.version,)
    try:
        return [vllm_version(name) for name in names]
    except AttncalcError:
        return [vllm_version(None)]


def _default_share(log: StartupLog) -> str:
    """Return the default share of the versions that may have written the log: '0.92 or 0.9'."""
    shares = dict.fromkeys(version.utilization for version in _versions(log))
    return " or ".join(shares)


def _smaller_steps(log: StartupLog) -> str | None:
    """Return options of smaller steps than the log has; None if they are as small, or if more
    memory is missing than they free.
    """
    needed = log.logged.get("kv_bytes_per_sequence")
    available = logs.least(log.available)
    if needed and available and needed.bytes - available.bytes > _FREED_BY_STEPS:
        return None
    most = {"max_num_seqs": 16, "max_num_batched_tokens": 2048}
    options = [
        f"{long_option(name)} {number}"
        for name, number in most.items()
        if int(log.settings.get(name, number + 1)) > number
    ]
    return " ".join(options) or None


def _for_one_request(log: StartupLog, refusal: LogRefusal) -> dict[str, Any]:
    """Return the figures of the advice for one request that needs more than is left for the
    cache.
    """
    context = int(log.settings.get("context", "0"))
    held = log.logged.get("kv_tokens")
    tokens = int(held.text) if held else 0
    longest = log.logged.get("max_context") or held
    needed = log.logged.get("kv_bytes_per_sequence")
    available = logs.least(log.available)
    is_on_cpu = _CPU_SPACE in refusal.line
    found: dict[str, Any] = dict.fromkeys(("host_gib", "longest", "shorter"))
    if is_on_cpu and context and tokens:
        found["host_gib"] = -(-4 * context // tokens)
    if longest and 0 < int(longest.text) < (context or int(longest.text)):
        found["longest"] = int(longest.text)
    # whether a cache of half the size is enough
    if needed and available:
        is_half = available.bytes - available.half >= needed.bytes / 2
    else:
        is_half = bool(context and held and 2 * tokens >= context)
    if needed and needed.bytes and available:
        tokens_left = context * max(0, available.bytes) // needed.bytes
    else:
        tokens_left = 0
    asks_for_length = not is_half and longest is None
    if asks_for_length and tokens_left >= 1024:
        found["shorter"] = tokens_left // 1024 * 1024
    has_narrow = "kv_dtype" not in log.settings and not (is_on_cpu or log.on_metal)
    is_known_to_lack = not is_half and (needed is not None or held is not None)
    return found | {
        "unknown_length": asks_for_length and found["shorter"] is None,
        "narrow_is_enough": has_narrow and not is_known_to_lack,
        "narrow_is_not_enough": has_narrow and is_known_to_lack,
        "on_gpu": not is_on_cpu,
    }


def _larger_share(log: StartupLog) -> str | None:
    needed = log.logged.get("kv_bytes_per_sequence")
    available = logs.least(log.available)
    total = log.budget.get("gpu_memory")
    share = log.settings.get("gpu_memory_utilization")
    missing = 0
    if available and needed:
        missing = max(0, needed.bytes - available.bytes)
    elif available:
        missing = max(0, -available.bytes)
    if missing and total and total.number and share:
        enough = Fraction(share) + Fraction(missing, total.bytes)
        return larger_share(log, _LARGEST, enough)
    return larger_share(log, _LARGEST, 0, missing)


# The GPU's memory


def logged_gpu_memory(log: StartupLog) -> int | None:
    """Return the bytes of the GPU that a log has; None if it has none."""
    return logs.printed_gpu_memory(log)


def logged_room(log: StartupLog, memory: int | None, share: str | float | None) -> int | None:
    """Return the bytes that were left for the cache: vLLM prints them."""
    return memory
