"""Reads a start-up log of vLLM: the engine's settings, and the figures that it printed about its
memory.

The lines are those of vllm/v1/engine/core.py ('Initializing a V1 LLM engine ... with config'),
v1/worker/gpu_worker.py ('Available KV cache memory', 'Free memory on device'),
v1/core/kv_cache_utils.py, and of V0's executor/executor_base.py ('# GPU blocks') and
worker/worker.py ('reserved for KV Cache').
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
    r"vllm|LLM engine|vLLM|KV cache size: \d|# \w+ blocks: \d|KV cache is needed|KV cache "
    r"memory|Model loading took"
    r"|for the cache blocks|kv_cache_utils|gpu_worker|memory profiling|stored in KV "
    r"cache|GPU memory utilization"
    r"|Running: \d+ reqs|EngineCore|VllmWorker|warming up sampler|available Mamba cache "
    r"blocks|Maximum concurrency"
    r"|derived max_model_len|(?i:(?:CUDA|HIP|XPU) (?:error:? )?out of "
    r"memory)|CUBLAS_STATUS_ALLOC|Cuda failure 2"
    r"|Killed process|OOMKilled|code 137"
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
_DECIMAL = r"(\d{1,12}(?:\.\d{1,9})?)"
_NUMBER = r"\d{1,6}(?:\.\d{1,6})+(?:\.dev0(?!\d))?"
_ENGINE = re.compile(
    rf"Initializing an? (?:(?P<engine>V[01]) )?LLM engine \(v(?P<version>{_NUMBER})"
)
_BANNER = re.compile(rf"vLLM API server version v?({_NUMBER})")
_ANY_VERSION = re.compile(rf"(?<!NCCL )\bversion v?({_NUMBER})")
_MODEL = re.compile(r"\bmodel='([^']{1,4096})'|'model(?:_tag)?': '([^']{1,4096})'")
# The model in other lines of the log, and in the command that people paste with it.
_OTHER_MODEL = re.compile(
    r"Starting to load model ([^\s<'`]{1,4096}?)\.\.\.|vllm serve ([^\s<'`-][^\s<'`]{0,4095})"
    r"|--model[ =]{1,4}([^\s<'`]{1,4096})|█ model ([^\s<'`]{1,4096})"
)
_DRAFTER = re.compile(
    r"(?:SpeculativeConfig\(method=|'method': ?)'(?P<method>\w{1,80})'(?:, '?model'?[=:] "
    r"?'(?P<model>[^']{1,4096})')?"
)
_DRAFTER_GIVEN = re.compile(r"'speculative_config': ?(\{[^{}]{1,8000}\})")
_NO_PREFIXES = re.compile(r"without support for prefix caching: disabling")
_RANKS = re.compile(r"\bworld_size=(\d{1,6}) rank=\d")
_START = re.compile(
    r"non-default args:|vLLM API server version|Initializing an? (?:V[01] )?LLM engine"
)
_NO_MEMORY = r"(?i:no available memory for the cache blocks)"
_OCCUPIED = r"is less than desired GPU memory utilization|\) < desired utilization"
# Other processes released memory while vLLM measured its own.
_RELEASED = re.compile(
    rf"Error in memory profiling\. Initial free memory {_DECIMAL} GiB, current free memory "
    rf"{_DECIMAL} GiB"
)
# The environment variable with the GiB of the cache on a CPU: 4 by default.
_CPU_SPACE = "VLLM_CPU_KVCACHE_SPACE"
# V0's refusal, after it has printed blocks and concurrency. V1 says how much memory a request
# needs.
_TOO_LONG = (
    rf"(?i:max seq len(?: \(?{COUNT}\)?)? is larger than the maximum number of tokens .{{1,20}} "
    r"in KV cache)"
    rf"(?: \(?{COUNT}\)?)?"
    rf"(?:\. Try increasing `{_CPU_SPACE}`)?"
)
# Bytes that smaller steps hardly free more than: logits and activations of 8,192 tokens.
_FREED_BY_STEPS = 2 * GIB
# Bytes of an allocation that only the attention of an image of many patches asks for.
_HUGE = 64 * GIB
_OUTCOME = re.compile(
    rf"KV cache size: \d|# \w+ blocks: \d|KV cache is needed|{_TOO_LONG}|{_NO_MEMORY}|{_OCCUPIED}"
    rf"|{OUT_OF_MEMORY}|{_RELEASED.pattern}"
)
# Functions of vLLM in the traceback of an allocation that failed. A profile calls the sampler too,
# so it is first.
_STAGES = {
    "serving": re.compile(logs.in_calls("run_busy_loop|_process_engine_step") + "|EngineDeadError"),
    "encoder": re.compile(
        logs.in_calls(r"get_multimodal_embeddings|embed_multimodal|vit_\w{1,40}|vision_\w{1,40}")
    ),
    "profile": re.compile(
        logs.in_calls("profile_run|determine_available_memory|determine_num_available_blocks")
        + r"|processing method determine_num_available_blocks"
    ),
    "graphs": re.compile(
        logs.in_calls("capture_model|_capture_cudagraphs|capture_end")
        + r"|Capturing (?:the model for CUDA graphs|cudagraphs for decoding)(?!.{0,4000}?Graph "
        r"capturing finished)"
        r"|try setting VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"
    ),
    "sampler": re.compile(
        logs.in_calls("_dummy_sampler_run|apply_top_k_top_p") + r"|warming up sampler"
    ),
    "pool": re.compile(
        logs.in_calls("_?allocate_kv_cache(?:_tensors)?|initialize_kv_cache|initialize_from_config")
    ),
    "weights": re.compile(
        rf"{logs.OF_WEIGHTS.pattern}|{logs.in_calls('_init_executor')}|= executor_class\("
    ),
}
_AVAILABLE = logs.gib(
    r"Available KV cache memory: SIZE|memory reserved for KV Cache is SIZE|kv_cache_size=SIZE"
    r"|larger than the available KV cache memory \(SIZE\)|reserved SIZE memory for KV Cache as "
    r"specified"
)
_IN_USE = logs.gib(r"Current kv cache memory in use is SIZE\.?")
_SHARE_OPTION = "--gpu-memory-utilization"
_LARGEST = "0.95"
# Words of vLLM's lines, by which an allocation that failed is vLLM's.
_OWN = re.compile(r"(?i)vllm|engine|(?<!num_)worker|KV cache|desired (?:GPU memory )?utilization")
_CONCURRENCY = re.compile(rf"Maximum concurrency for {COUNT} tokens per request: {_DECIMAL}x")
_CPU_BLOCKS = re.compile(r"# \w{1,20} blocks: (\d{1,15}), # CPU blocks: (\d{1,15})")
# The figures that are read, by the names that attncalc gives them in JSON, with the lines that
# contain them.
_FIGURES = {
    "kv_tokens": re.compile(rf"KV cache size: {COUNT} tokens"),
    "kv_blocks": re.compile(r"after num_gpu_blocks is: (\d{1,15})"),
    # exact bytes: as an argument, as vllm-ascend prints them, or after the start (0.10.2 to 0.11)
    "kv_memory": re.compile(
        r"kv_cache_memory_bytes'?[=:] ?(\d{1,18})|Available memory: (\d{1,18}), total memory"
        r"|Current kv cache memory in use is (\d{1,18}) bytes"
    ),
    "max_context": re.compile(rf"estimated maximum model length is {COUNT}"),
    "kv_block_size": re.compile(rf"Setting attention block size to {COUNT} tokens"),
}
_LOAD = re.compile(
    r"Running: (?P<running>\d{1,9}) reqs?, (?:Swapped: \d{1,9} reqs?, )?(?:Waiting|Pending): "
    r"(?P<waiting>\d{1,9}) reqs?"
    r".{0,40}?KV cache usage: (?P<percent>\d{1,3}(?:\.\d{1,9})?)%"
)
_PREEMPTION = re.compile(r"reempt(?:ed|ing)\b")
_NEEDED = logs.gib(r"SIZE KV cache is needed")
# What is printed about the rest of the memory.
_BUDGET = {
    "weights": logs.gib(
        r"(?:Model loading|Loading model weights) took SIZE|model weights take SIZE|SIZE for "
        r"weight\b"
        r"|weights memory: SIZE"
    ),
    "activations": logs.gib(
        r"PyTorch activation peak memory takes SIZE|SIZE for peak activation|torch peak memory "
        r"increase: SIZE"
    ),
    "outside_torch": logs.gib(
        r"non_torch_memory takes SIZE|SIZE for non-torch memory|non-torch forward increase "
        r"memory: SIZE"
        r"|non_torch_memory=SIZE"
    ),
    "weights_and_outside": logs.gib(r"SIZE for consumed memory"),
    "cuda_graphs": logs.gib(r"Estimated CUDA graph memory: SIZE|SIZE \(estimated\)"),
    "captured_graphs": logs.gib(
        r"SIZE for CUDAGraph memory|CUDA graph pool memory: SIZE|Graph capturing finished in "
        r"\d{1,9} secs?, took SIZE"
    ),
    "gpu_memory": logs.gib(
        r"Free memory on (?:device )?(?:\S{1,20} "
        r")?\(\d{1,6}(?:\.\d{1,9})?/SIZE\)|total_gpu_memory \(SIZE\)"
        r"|total_gpu_memory=SIZE|has (?:a total capacity of )?SIZE of which|SIZE total(?: "
        r"capacity)?;"
    ),
    "free_memory": re.compile(
        r"Free memory on (?:device )?(?:\S{1,20} )?\((\d{1,6}(?:\.\d{1,9})?)/"
    ),
}


def _setting(*names: str) -> re.Pattern[str]:
    """Return a pattern for a setting in the engine's config (name=value) or in its arguments
    ('name': value).
    """
    return re.compile(
        rf"(?<!\w)'?(?:{'|'.join(names)})'?[=:] ?'?(?:torch\.)?(?!None|auto)([\w.]{{0,40}}\w)"
    )


def _number(*names: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)'?(?:{'|'.join(names)})'?[=:] ?(\d{{1,12}})(?![\w.])")


# The settings that are read, by the names of `VllmArgs` and `attncalc fit`.
_SETTINGS = {
    "tp": _number("tensor_parallel_size"),
    "pp": _number("pipeline_parallel_size"),
    "dp": _number("data_parallel_size"),
    "dcp": _number("decode_context_parallel_size"),
    "context": re.compile(
        r"max_(?:seq|model)_len'?[=:] ?(\d{1,12})|Using max model len (\d{1,12})|max seq len "
        r"\(?(\d{1,12})\b"
    ),
    "kv_dtype": re.compile(
        r"kv_cache_dtype'?[=:] ?'?(?!auto|self|\w{0,40}dtype)(fp8(?=_ds_mla)|\w{1,40})"
        r"|Using (fp8)\w* data type to store kv cache|Using (?:DeepSeek's )?(fp8)_ds_mla KV "
        r"cache format"
    ),
    "dtype": re.compile(
        r"(?<!\w)'?dtype'?[=:] ?'?(?:torch\.)?(b?float16|float(?:32)?|half|[bf]p?16|fp32)\b"
    ),
    "prefix_caching": re.compile(r"enable_prefix_caching'?[=:] ?(True|False)"),
    "max_num_batched_tokens": _number("max_num_batched_tokens"),
    "max_num_seqs": re.compile(
        r"(?<!\w)'?max_num_seqs'?[=:] ?(\d{1,12})(?![\w.])|warming up sampler with (\d{1,9}) "
        r"dummy requests"
    ),
    "gpu_memory_utilization": re.compile(
        r"gpu_memory_utilization'?(?:[=:] ?| \()([01]?\.\d{1,6})|GPU memory utilization (?:is "
        r")?\(([01]?\.\d{1,6}),"
    ),
    "block_size": _number("block_size"),
    "swap_space": _setting("swap_space"),
    "max_loras": _number("max_loras"),
    "max_lora_rank": _number("max_lora_rank"),
    "cpu_offload_gb": re.compile(r"cpu_offload_gb'?[=:] ?(?!0(?:\.0)?\b)(\d{1,6}(?:\.\d{1,9})?)"),
    "limit_mm_per_prompt": re.compile(
        r"limit_mm_per_prompt'?[=:] ?(\{(?:[^{}]|\{[^{}]{0,200}\}){1,400}\})"
    ),
    # The engine's config has it too, with its default
    "max_cudagraph_capture_size": re.compile(
        r"non-default args: (?:(?!LLM engine).){0,8000}?'max_cudagraph_capture_size': "
        r"([1-9]\d{0,9})"
    ),
    "mamba_ssm_cache_dtype": _setting("mamba_ssm_cache_dtype"),
    "speculative_tokens": _number("num_spec_tokens", "num_speculative_tokens"),
}
_WHOLE = r"\d{1,12}(?!\w|\.\d)"
_SHARE = r"[01]?\.\d{1,6}"
# The options of a pasted command, for what the engine's own lines lack.
_OPTIONS = {
    "tp": logs.option("tensor-parallel-size|tp", _WHOLE),
    "pp": logs.option("pipeline-parallel-size|pp", _WHOLE),
    "dp": logs.option("data-parallel-size|dp", _WHOLE),
    "context": logs.option("max-model-len|max_model_len", _WHOLE),
    "max_num_batched_tokens": logs.option("max-num-batched-tokens", _WHOLE),
    "max_num_seqs": logs.option("max-num-seqs", _WHOLE),
    "kv_dtype": logs.option("kv-cache-dtype"),
    "dtype": logs.option("dtype", r"(?:b?float16|float(?:32)?|half)(?!\w)"),
    "gpu_memory_utilization": logs.option("gpu-memory-utilization", _SHARE),
}
_FLAGS = {
    name: re.compile(rf"{name}'?[=:] ?True|{long_option(name)}\b")
    for name in (
        "enforce_eager",
        "enable_lora",
        "enable_expert_parallel",
        "language_model_only",
        "skip_mm_profiling",
    )
}
# Settings that whole lines decide: {name: (a line that says yes, a line that says no)}.
_ANSWERS = {
    "flashinfer_sampler": (
        re.compile(r"Using FlashInfer for top-p"),
        re.compile(
            r"FlashInfer (?:is not available|is available, but|\S{1,20} sampling "
            r"(?:disabled|unavailable))"
        ),
    ),
    # what is not the default: 0.18 and 0.19 have 'will be enabled by default (...=1)', later ones
    # 'enabled (default'
    "estimate_cudagraphs": (
        re.compile(r"memory profiling is enabled \(VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1"),
        re.compile(r"memory profiling is disabled \(VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0"),
    ),
    "warm_start": (
        re.compile(r"Directly load (?:the compiled|AOT)"),
        re.compile(r"Compiling a graph for"),
    ),
}
_QUANTIZATION = re.compile(r"(?<!\w)'?quantization'?[=:] ?'?(?!None)(\w{1,40})")


def read_log(lines: Sequence[str], stated: LogRefusal | None = None) -> StartupLog | None:
    """Return the contents of the log; None if it has neither the size of the cache nor a message
    why there is none.
    """
    text, starts = logs.last_start(logs.without_load(lines, _LOAD), _START, _OUTCOME)
    # as in Python and in JSON: max_model_len=30_000, "kv_cache_dtype": "fp8"
    text = re.sub(r"(?<=\d)_(?=\d{3}\b)", "", text).replace('"', "'")
    engine = _ENGINE.search(text)
    version = logs.first(_BANNER, text) or logs.first(_ANY_VERSION, text)
    if engine:
        version = "v0" if engine["engine"] == "V0" else engine["version"]
    settings = _settings(text)
    found = {name: logs.printed(pattern, text) for name, pattern in _FIGURES.items()}
    found["kv_bytes_per_sequence"] = logs.printed(_NEEDED, text, GIB)
    found["concurrency"] = [Printed(match[2], match[0]) for match in _CONCURRENCY.finditer(text)]
    logged = {name: figure for name, figures in found.items() if (figure := logs.least(figures))}
    if contexts := logs.printed(_CONCURRENCY, text):
        settings["context"] = contexts[-1].text
    if blocks := _CPU_BLOCKS.search(text):
        version = "v0"
        logged["kv_blocks"], logged["cpu_blocks"] = (Printed(blocks[i], blocks[0]) for i in (1, 2))
    if too_long := re.search(_TOO_LONG, text):
        version = "v0"
        logged |= (
            {"kv_tokens": Printed(too_long[2].replace(",", ""), too_long[0])} if too_long[2] else {}
        )
    available = logs.printed(_AVAILABLE, text, GIB) or logs.printed(_IN_USE, text, GIB)
    own = LogRefusal("too_small", too_long[0]) if too_long else _refusal(text, logged, available)
    refusal = stated or own
    load = logs.busiest(lines, _START, _LOAD, _PREEMPTION)
    if refusal is None and not logged.keys() & {"kv_tokens", "concurrency"}:
        has_size = available or logged.keys() & {"kv_blocks", "kv_memory"}
        ended = logs.unfinished(lines, _START)
        if not has_size or (ended and ended.where in ("error", "killed")):
            refusal = logs.without_a_start(load, lines, _START, _STAGES)
            if refusal is None:
                return None
    return StartupLog(
        engine="vllm",
        version=version,
        model=logs.first(_MODEL, text) or logs.first(_OTHER_MODEL, text),
        settings=settings,
        flags=logs.read_flags(_FLAGS, text),
        available=tuple(available),
        logged=logged,
        budget=logs.read_budget(_BUDGET, text),
        refusal=refusal,
        starts=starts,
        releases=() if version else releases_of(text),
        load=load,
        is_assumed=load is None and _OWN.search(text) is None,
    )


def _settings(text: str) -> dict[str, str]:
    # a later mention of a setting may be its drafter's
    settings = logs.read_settings(_OPTIONS, text) | logs.read_settings(_SETTINGS, text)
    for name, (yes, no) in _ANSWERS.items():
        if yes.search(text) or no.search(text):
            settings[name] = str(no.search(text) is None)
    if _NO_PREFIXES.search(text):
        settings["prefix_caching"] = "False"
    drafters = [*_DRAFTER.finditer(text)]
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
    if given := _DRAFTER_GIVEN.search(text):
        with contextlib.suppress(AttncalcError):  # a line that is cut
            keys = json_object(given[1], "speculative_config", "").items()
            settings["speculative_config"] = json.dumps(
                {key: value for key, value in keys if key not in DRAFTER_KEYS}
            )
    if (ranks := _RANKS.search(text)) and not settings.keys() & {"tp", "pp"}:
        settings["tp"] = ranks[1]
    return settings | logs.read_weights_dtype(_QUANTIZATION, text)


def _refusal(text: str, logged: dict[str, Printed], available: list[Printed]) -> LogRefusal | None:
    """Return why this start ended without an engine; None if it has the tokens of its cache and no
    memory ran out.
    """
    started = any(
        logged[name].number > 0 for name in ("kv_tokens", "concurrency") if name in logged
    )
    if "kv_bytes_per_sequence" in logged and not started:
        return LogRefusal("too_small", logged["kv_bytes_per_sequence"].line)
    if released := _RELEASED.search(text):
        before, after = (Printed(released[i], released[0], GIB) for i in (1, 2))
        return LogRefusal("occupied", released[0], after, before, "profile")
    sized = [*available, *(logged[name] for name in ("kv_blocks",) if name in logged)]
    is_sized = any(figure.number > 0 for figure in sized)
    failed = logs.torch_out_of_memory(
        text, "sampler" if started else "rest" if is_sized else "", _STAGES
    )
    if failed or started:
        return failed
    if occupied := re.search(_OCCUPIED, text):
        return LogRefusal("occupied", occupied[0])
    empty = re.search(_NO_MEMORY, text)
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
