"""Reads a start-up log of vLLM: the engine's settings, and the figures that it printed about its
memory.

vllm.txt has the lines.
"""

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

from ..check import Check
from ..engines.base import CacheLayout
from ..engines.vllm.options import DRAFTER_KEYS, DRAFTER_LAYERS, VllmArgs, json_object
from ..engines.vllm.versions import releases_of
from ..errors import AttncalcError
from ..search import first_true
from ..units import BYTES, GIB, TOKENS, count, long_option
from . import startup_log as logs
from .lines import either, lines_of
from .startup_log import (
    OUT_OF_MEMORY,
    Advice,
    LogChecks,
    LogMemory,
    LogRefusal,
    Printed,
    StartupLog,
)

WEIGHTS_TOLERANCE = (2, 2)
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
_SHARE_OPTION = "--gpu-memory-utilization"
_LARGEST = "0.95"
_TABLE = lines_of("vllm")
_LINES = _TABLE["lines"]
SIGNS = _LINES["sign"]
_OUTCOME = either(
    *(_LINES[name] for name in ("size", "too_long", "no_memory", "occupied", "released")),
    re.compile(OUT_OF_MEMORY),
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
    engine = _LINES["engine"].search(text)
    version = logs.first(_LINES["banner"], text) or logs.first(_LINES["any_version"], text)
    if engine:
        version = "v0" if engine["engine"] == "V0" else engine["version"]
    settings = _settings(text)
    found = {name: logs.printed(pattern, text) for name, pattern in _TABLE["figures"].items()}
    found["kv_bytes_per_sequence"] = logs.printed(_LINES["needed"], text, GIB)
    found["concurrency"] = [
        Printed(match[2], match[0]) for match in _LINES["concurrency"].finditer(text)
    ]
    logged = {name: figure for name, figures in found.items() if (figure := logs.least(figures))}
    if contexts := logs.printed(_LINES["concurrency"], text):
        settings["context"] = contexts[-1].text
    if blocks := _LINES["cpu_blocks"].search(text):
        version = "v0"
        logged["kv_blocks"], logged["cpu_blocks"] = (Printed(blocks[i], blocks[0]) for i in (1, 2))
    if too_long := _LINES["too_long"].search(text):
        version = "v0"
        logged |= (
            {"kv_tokens": Printed(too_long["tokens"].replace(",", ""), too_long[0])}
            if too_long["tokens"]
            else {}
        )
    available: list[Printed] = []
    for lines_of_memory in _TABLE["available"].values():
        available = available or logs.printed(lines_of_memory, text, GIB)
    own = LogRefusal("too_small", too_long[0]) if too_long else _refusal(text, logged, available)
    refusal = stated or own
    load = logs.busiest(lines, _LINES["start"], _LINES["load"], _LINES["preemption"])
    if refusal is None and not logged.keys() & {"kv_tokens", "concurrency"}:
        has_size = available or logged.keys() & {"kv_blocks", "kv_memory"}
        ended = logs.unfinished(lines, _LINES["start"])
        if not has_size or (ended and ended.where in ("error", "killed")):
            refusal = logs.without_a_start(load, lines, _LINES["start"], _TABLE["stages"])
            if refusal is None:
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
        is_assumed=load is None and _LINES["own"].search(text) is None,
    )


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
    if given := _LINES["drafter_given"].search(text):
        with contextlib.suppress(AttncalcError):  # a line that is cut
            keys = json_object(given[1], "speculative_config", "").items()
            settings["speculative_config"] = json.dumps(
                {key: value for key, value in keys if key not in DRAFTER_KEYS}
            )
    if (ranks := _LINES["ranks"].search(text)) and not settings.keys() & {"tp", "pp"}:
        settings["tp"] = ranks[1]
    return settings | logs.read_weights_dtype(_LINES["quantization"], text)


def _refusal(text: str, logged: dict[str, Printed], available: list[Printed]) -> LogRefusal | None:
    """Return why this start ended without an engine; None if it has the tokens of its cache and no
    memory ran out.
    """
    started = any(
        logged[name].number > 0 for name in ("kv_tokens", "concurrency") if name in logged
    )
    if "kv_bytes_per_sequence" in logged and not started:
        return LogRefusal("too_small", logged["kv_bytes_per_sequence"].line)
    if released := _LINES["released"].search(text):
        before, after = (Printed(released[i], released[0], GIB) for i in (1, 2))
        return LogRefusal("occupied", released[0], after, before, "profile")
    sized = [*available, *(logged[name] for name in ("kv_blocks",) if name in logged)]
    is_sized = any(figure.number > 0 for figure in sized)
    failed = logs.torch_out_of_memory(
        text, "sampler" if started else "rest" if is_sized else "", _TABLE["stages"]
    )
    if failed or started:
        return failed
    if occupied := _LINES["occupied"].search(text):
        return LogRefusal("occupied", occupied[0])
    empty = _LINES["no_memory"].search(text)
    none_left = next((figure.line for figure in available if figure.number <= 0), None)
    message = empty[0] if empty else none_left
    return LogRefusal("no_memory", message) if message else None


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
        if name in logged and name != "max_context"
    ]
    if "max_context" in logged:
        longest = [_longest(layout, end, context) for end in ends]
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
    if available := logs.least(log.available):
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
    note = "the log's memory is rounded" if low != high else "exact"
    if name == "kv_bytes_per_sequence":
        return Check("log", name, _LABELS[name], middle, printed.bytes, printed.half, BYTES, note)
    measured = float(printed.text) if name == "concurrency" else int(printed.text)
    half = _HALF_OF_CONCURRENCY if name == "concurrency" else 0
    tolerance = (high - middle if measured > middle else middle - low) + half
    unit = TOKENS if name in ("kv_tokens", "kv_block_size", "max_context") else ""
    return Check("log", name, _LABELS[name], middle, measured, tolerance, unit, note)


def _longest(layout: CacheLayout, memory: int, context: int) -> int:
    """Return the longest context up to `context` of which one request fits in that memory, as vLLM
    estimates it.

    Unlike `needed`, vLLM's check leaves out the block that it keeps free.
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
    if refusal is None or refusal.kind == "occupied":
        return ()
    if refusal.kind == "out_of_memory":
        return _for_an_allocation(log, refusal)
    if refusal.kind == "overloaded":
        more = Advice("more GPUs", logs.more_gpus(log, "-tp"))
        return logs.for_load(log, "--max-num-seqs", "fp8", *_larger_share(log), more)
    if refusal.kind == "too_small":
        others = () if _CPU_SPACE in refusal.line else (*_smaller_steps(log), _fewer_weights(log))
        return (*_for_one_request(log), *others)
    graphs = log.budget.get("cuda_graphs")
    eager = (Advice("no CUDA graphs", "--enforce-eager"),) if graphs and graphs.number >= 1 else ()
    return (
        *_beside_another(log),
        *eager,
        *_larger_share(log),
        *_smaller_steps(log),
        _fewer_weights(log),
    )


def _beside_another(log: StartupLog) -> tuple[Advice, ...]:
    """Return a share for a server beside another of the same GPU, whose memory releases before
    0.9.2 count in it.
    """
    share = Fraction(log.settings.get("gpu_memory_utilization", "1"))
    if share >= Fraction(1, 2):
        return ()
    words = (
        "both shares, if another server is on this GPU: before 0.9.2 each counts the other's memory"
    )
    return (Advice(words, f"{_SHARE_OPTION} {float(2 * share):.2g}"),)


def _for_an_allocation(log: StartupLog, refusal: LogRefusal) -> tuple[Advice, ...]:
    steps = _smaller_steps(log)
    more = _fewer_weights(log)
    sequences = int(log.settings.get("max_num_seqs", "256"))
    fewer = f"--max-num-seqs {max(1, sequences // 4)}"
    smaller = logs.smaller_share(log, _SHARE_OPTION, "0.85")
    changes = {
        "weights": (more,),
        "profile": (*steps, more._replace(change="more GPUs")),
        "sampler": (Advice("fewer sequences in the warm-up", fewer), smaller),
        "graphs": (smaller, Advice("no CUDA graphs", "--enforce-eager")),
        "pool": (smaller,),
        "rest": (smaller, *steps),
        "serving": (smaller, *steps),
    }
    is_huge = refusal.tried is not None and refusal.tried.bytes >= _HUGE
    if refusal.where == "encoder" or (is_huge and not refusal.where):
        of_images = (
            Advice("if it reads images, none in the profile", "--skip-mm-profiling"),
            Advice("if it only reads text", """--limit-mm-per-prompt '{"image": 0, "video": 0}'"""),
        )
        return (*of_images, *steps, more)
    is_large = Fraction(log.settings.get("gpu_memory_utilization", "0")) >= Fraction(_LARGEST)
    if refusal.where == "killed":
        return ()
    by_stage = changes.get(refusal.where)
    if by_stage is None:
        later = smaller._replace(change="a smaller share, if the weights were loaded")
        by_stage = (smaller, *steps, more) if is_large else (*steps, later, more)
    return by_stage


def _fewer_weights(log: StartupLog) -> Advice:
    return Advice("more GPUs, or else weights in fewer bits", logs.more_gpus(log, "-tp"))


def _smaller_steps(log: StartupLog) -> tuple[Advice, ...]:
    """Return smaller steps than the log has; () if they are as small, or if more memory is missing
    than they free.
    """
    needed = log.logged.get("kv_bytes_per_sequence")
    available = logs.least(log.available)
    if needed and available and needed.bytes - available.bytes > _FREED_BY_STEPS:
        return ()
    most = {"max_num_seqs": 16, "max_num_batched_tokens": 2048}
    options = [
        f"{long_option(name)} {number}"
        for name, number in most.items()
        if int(log.settings.get(name, number + 1)) > number
    ]
    if options:
        return (Advice("less runtime memory", " ".join(options)),)
    return ()


def _for_one_request(log: StartupLog) -> Iterator[Advice]:
    """Yield the longest context that the engine itself prints, and a cache of half the size if that
    is enough.
    """
    context = log.settings.get("context")
    tokens = log.logged.get("kv_tokens")
    is_on_cpu = log.refusal is not None and _CPU_SPACE in log.refusal.line
    if is_on_cpu and context and tokens:
        space = -(-4 * int(context) // int(tokens.text))
        yield Advice(
            f"{space} GiB of host memory, if it has the default of 4", f"{_CPU_SPACE}={space}", True
        )
    longest = log.logged.get("max_context") or log.logged.get("kv_tokens")
    if longest and 0 < int(longest.text) < int(log.settings.get("context", longest.text)):
        yield Advice(
            "the longest context that fits, as the log has it",
            f"--max-model-len {int(longest.text)}",
            True,
        )
    needed = log.logged.get("kv_bytes_per_sequence")
    available = logs.least(log.available)
    if needed and available:
        is_half = available.bytes - available.half >= needed.bytes / 2
    else:
        is_half = bool(context and tokens and 2 * int(tokens.text) >= int(context))
    if not (is_half or longest):
        tokens_left = (
            needed and available and int(context or 0) * max(0, available.bytes) // needed.bytes
        )
        if tokens_left and tokens_left >= 1024:
            shorter = f" {tokens_left // 1024 * 1024} or less"
        else:
            shorter = ""
        yield Advice(
            "a shorter context" + ", in proportion" * bool(shorter),
            f"--max-model-len{shorter or ' N'}",
        )
    if "kv_dtype" not in log.settings and not is_on_cpu:
        words = ", not enough alone" * bool(not is_half and (needed or tokens))
        yield Advice(
            f"a cache of half the size, if it is in 16 bits{words}", "--kv-cache-dtype fp8"
        )
    if not is_on_cpu:
        yield from _larger_share(log)


def _larger_share(log: StartupLog) -> tuple[Advice, ...]:
    needed, available = log.logged.get("kv_bytes_per_sequence"), logs.least(log.available)
    total, share = log.budget.get("gpu_memory"), log.settings.get("gpu_memory_utilization")
    missing = max(0, (needed.bytes if needed else 0) - available.bytes) if available else 0
    is_known = missing and total and total.number and share
    enough = Fraction(share) + Fraction(missing, total.bytes) if is_known and total and share else 0
    return logs.larger_share(log, _SHARE_OPTION, _LARGEST, enough, 0 if enough else missing)


# The GPU's memory


def logged_gpu_memory(log: StartupLog) -> int | None:
    """Return the bytes of the GPU that a log has; None if it has none."""
    return logs.printed_gpu_memory(log)


def logged_room(log: StartupLog, memory: int | None, share: str | float | None) -> int | None:
    """Return the bytes that were left for the cache: vLLM prints them."""
    return memory
